"""Exercise 7.4: a worker of a cluster, with its own graph and the variables on the server."""

from __future__ import annotations

from tests.checks.mutants import Answers

answers = Answers("between_graph")


def setter_of(config, **instead):
    import tensorflow.compat.v1 as tf

    worker = f"/job:worker/task:{config['task']['index']}"
    return tf.device(tf.train.replica_device_setter(**{"cluster": config["cluster"], "worker_device": worker, **instead}))


def server_of(config):
    import tensorflow.compat.v1 as tf

    return tf.train.Server(config["cluster"], job_name="worker", task_index=config["task"]["index"])


def run(master, chief, fetches, hooks):
    import tensorflow.compat.v1 as tf

    diary = []
    with tf.train.MonitoredTrainingSession(master, chief, hooks=hooks, stop_grace_period_secs=2) as session:
        while not session.should_stop():
            diary.append(session.run(fetches))
    return diary


@answers.is_wrong("expected the variables on /job:ps, got no device", "replica_device_setter that knows the cluster")
def no_device_setter(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        return run(server.target, chief, *build(chief))


@answers.is_wrong("worker 1: expected operations on /job:worker/task:1, got /job:worker/task:0: that is another worker's")
def everybody_is_task_0(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        with setter_of(config, worker_device="/job:worker/task:0"):
            built = build(chief)
        return run(server.target, chief, *built)


@answers.is_wrong("expected operations on /job:worker/task:0, got /job:worker", "give worker_device")
def no_worker_device(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=config["cluster"])):
            built = build(chief)
        return run(server.target, chief, *built)


@answers.is_wrong("worker 1: build was told is_chief = True; worker 1 is not the chief: False")
def everybody_is_the_chief(config, build):
    import tensorflow.compat.v1 as tf

    server = server_of(config)
    with tf.Graph().as_default():
        with setter_of(config):
            built = build(True)
        return run(server.target, True, *built)


@answers.is_wrong("Is the session connected? Give MonitoredTrainingSession master=server.target")
def a_session_of_its_own(config, build):
    import tensorflow.compat.v1 as tf

    server_of(config)
    chief = config["task"]["index"] == 0
    with tf.Graph().as_default():
        with setter_of(config):
            built = build(chief)
        return run("", chief, *built)


@answers.is_wrong("the session still runs: has it the hooks?")
def no_hooks(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        with setter_of(config):
            fetches, _ = build(chief)
        return run(server.target, chief, fetches, [])


@answers.is_wrong("steps, until the session stops, got 1")
def one_step(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        with setter_of(config):
            fetches, hooks = build(chief)
        with tf.train.MonitoredTrainingSession(server.target, chief, hooks=hooks) as session:
            return [session.run(fetches)]


@answers.is_wrong("expected a list of what each step fetched, got None (does the function return it?)")
def forgets_to_return(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        with setter_of(config):
            built = build(chief)
        run(server.target, chief, *built)


@answers.is_right
def a_cluster_spec_and_tensors_counted(config, build):
    import tensorflow as tf

    v1, cluster = tf.compat.v1, tf.train.ClusterSpec(config["cluster"])
    index = config["task"]["index"]
    server, here = tf.distribute.Server(cluster, "worker", index), f"/job:worker/task:{index}/cpu:0"
    graph, found = v1.Graph(), []
    with graph.as_default():
        with v1.device(v1.train.replica_device_setter(len(config["cluster"]["ps"]), worker_device=here)):
            fetches, hooks = build(is_chief=not index)
        session = v1.train.MonitoredTrainingSession(server.target, not index, hooks=hooks, stop_grace_period_secs=1)
        with session:
            while True:
                found += [session.run({"fetched": fetches})["fetched"]]
                if session.should_stop():
                    break
    return tuple(found)


@answers.is_right
def creators_of_sessions(config, build):
    import tensorflow.compat.v1 as tf

    index, server = config["task"]["index"], server_of(config)
    kind = tf.train.WorkerSessionCreator if index else tf.train.ChiefSessionCreator
    with tf.Graph().as_default():
        with setter_of(config, ps_device="/job:ps", ps_tasks=len(config["cluster"]["ps"]), cluster=None):
            fetches, hooks = build(index == 0)
        with tf.train.MonitoredSession(kind(master=server.target), hooks, stop_grace_period_secs=2) as session:
            rows = []
            while not session.should_stop():
                rows.append(session.run(fetches))
    return rows


@answers.is_wrong("all variables lie on /job:ps/task:0, and there are 2 servers", "deals them out over all")
def everything_on_the_first_server(config, build):
    import tensorflow.compat.v1 as tf

    server, index = server_of(config), config["task"]["index"]

    def place(op):
        variable = op.type in ("VarHandleOp", "VariableV2")
        return "/job:ps/task:0" if variable else f"/job:worker/task:{index}"

    with tf.Graph().as_default():
        with tf.device(place):
            built = build(index == 0)
        return run(server.target, index == 0, *built)


@answers.is_wrong("would wait 120 s for a thread that does not end by itself", "stop_grace_period_secs=2")
def no_grace_period(config, build):
    import tensorflow.compat.v1 as tf

    server, chief, diary = server_of(config), config["task"]["index"] == 0, []
    with tf.Graph().as_default():
        with setter_of(config):
            fetches, hooks = build(chief)
        with tf.train.MonitoredTrainingSession(server.target, chief, hooks=hooks) as session:
            while not session.should_stop():
                diary.append(session.run(fetches))
    return diary


@answers.is_wrong("worker 1's session would fill the variables, too", "is_chief=True on worker 0, and False on all others")
def every_session_is_the_chiefs(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        with setter_of(config):
            built = build(chief)
        return run(server.target, True, *built)


@answers.is_wrong("worker 0's session waits for somebody to fill the variables", "is_chief=True on worker 0")
def no_session_is_the_chiefs(config, build):
    import tensorflow.compat.v1 as tf

    server, chief, diary = server_of(config), config["task"]["index"] == 0, []
    with tf.Graph().as_default():
        with setter_of(config):
            fetches, hooks = build(chief)
        with tf.train.MonitoredTrainingSession(server.target, False, hooks=hooks, stop_grace_period_secs=2) as session:
            while not session.should_stop():
                diary.append(session.run(fetches))
    return diary


@answers.is_wrong("steps, until the session stops, got")
def notes_every_other_step(config, build):
    import tensorflow.compat.v1 as tf

    server, chief, diary = server_of(config), config["task"]["index"] == 0, []
    with tf.Graph().as_default():
        with setter_of(config):
            fetches, hooks = build(chief)
        with tf.train.MonitoredTrainingSession(server.target, chief, hooks=hooks, stop_grace_period_secs=2) as session:
            while not session.should_stop():
                session.run(fetches)
                if not session.should_stop():
                    diary.append(session.run(fetches))
    return diary


@answers.is_right
def deals_them_out_the_other_way(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    turn = iter([1, 0, 1, 0, 1, 0])
    with tf.Graph().as_default():
        with setter_of(config, ps_strategy=lambda op: next(turn)):
            built = build(chief)
        return run(server.target, chief, *built)


@answers.is_right
def closes_by_hand(config, build):
    import tensorflow.compat.v1 as tf

    server, index, diary = server_of(config), config["task"]["index"], []
    graph = tf.Graph()
    with graph.as_default(), setter_of(config):
        fetches, hooks = build(is_chief=index == 0)
    with graph.as_default():
        session = tf.train.MonitoredTrainingSession(
            server.target, is_chief=index == 0, hooks=tuple(hooks), stop_grace_period_secs=0.5, save_summaries_steps=None,
            save_summaries_secs=None, log_step_count_steps=None,
        )
        try:
            while not session.should_stop():
                diary += [session.run(fetches)]
        finally:
            session.close()
    return diary


@answers.is_wrong("Server wants the table of the jobs alone")
def hands_the_server_the_whole_config(config, build):
    import tensorflow.compat.v1 as tf

    server = tf.train.Server(config, job_name="worker", task_index=config["task"]["index"])
    with tf.Graph().as_default(), setter_of(config):
        return run(server.target, True, *build(True))
