"""Exercise 7.4: a worker of a cluster, with its own graph and the variables on the server."""

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


@answers.is_right
def plain(config, build):
    import tensorflow.compat.v1 as tf

    server, chief, diary = server_of(config), config["task"]["index"] == 0, []
    with tf.Graph().as_default():
        with setter_of(config):
            fetches, hooks = build(chief)
        with tf.train.MonitoredTrainingSession(server.target, chief, hooks=hooks, stop_grace_period_secs=2) as session:
            while not session.should_stop():
                diary.append(session.run(fetches))
    return diary


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


answers.twin("deals_them_out_the_other_way", {
    "with setter_of(config):": """
        turn = iter([1, 0, 1, 0, 1, 0])
        with setter_of(config, ps_strategy=lambda op: next(turn)):
    """,
})


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


answers.mistake("no_device_setter", {
    """
        with setter_of(config):
            fetches, hooks = build(chief)
    """: "fetches, hooks = build(chief)",
}, "expected the variables on /job:ps, got no device", "replica_device_setter that knows the cluster")
answers.mistake("everybody_is_task_0", {"setter_of(config)": 'setter_of(config, worker_device="/job:worker/task:0")'},
    "worker 1: expected operations on /job:worker/task:1, got /job:worker/task:0: that is another worker's")
answers.mistake("no_worker_device",
    {"setter_of(config)": 'tf.device(tf.train.replica_device_setter(cluster=config["cluster"]))'},
    "expected operations on /job:worker/task:0, got /job:worker", "give worker_device")
answers.mistake("everybody_is_the_chief", {'config["task"]["index"] == 0': "True"},
    "worker 1: build got is_chief = True; worker 1 is not the chief: pass False")
answers.mistake("a_session_of_its_own", {
    "server, chief, diary = server_of(config),": "server_of(config)\nchief, diary =",
    "server.target": '""',
}, "Is the session connected? Give MonitoredTrainingSession master=server.target")
answers.mistake("no_hooks", {"hooks=hooks, ": ""}, "the session still runs: does it have hooks?")
answers.mistake("no_hooks_and_a_number_of_steps", {"hooks=hooks, ": "", "while not session.should_stop()": "for _ in range(4)"},
    "the session did not get the hooks that build returned", "Run steps while not session.should_stop()")
answers.mistake("never_closes", {
    "with tf.train.MonitoredTrainingSession(server.target, chief, hooks=hooks, stop_grace_period_secs=2) as session:": """
        session = tf.train.MonitoredTrainingSession(server.target, chief, hooks=hooks, stop_grace_period_secs=2)
        if session:
    """,
}, "its session was never closed: use it in `with")
answers.mistake("runs_once_more_than_it_asks", {
    "diary.append(session.run(fetches))": "session.run(fetches)\ndiary.append(session.run(fetches))",

}, "Check session.should_stop() before every run")
answers.mistake("everybody_is_server_0", {
    "server, chief, diary = server_of(config),": """
        server = tf.train.Server(config["cluster"], job_name="worker", task_index=0)
        chief, diary =
    """,
}, "give this worker's own task_index")


@answers.is_wrong("A session freezes the graph: call build before it")
def builds_too_late(config, build):
    import tensorflow.compat.v1 as tf

    server, chief = server_of(config), config["task"]["index"] == 0
    with tf.Graph().as_default():
        with tf.train.MonitoredTrainingSession(server.target, chief, stop_grace_period_secs=2) as session:
            with setter_of(config):
                fetches, hooks = build(chief)
            return [session.run(fetches)]


answers.mistake("one_step", {
    """
        while not session.should_stop():
            diary.append(session.run(fetches))
    """: "diary.append(session.run(fetches))",
}, "steps, until the session stops, got 1")
answers.mistake("forgets_to_return", {"return diary": ""},
    "expected a list of the steps' results, got None (does the function return it?)")


@answers.is_wrong("all variables lie on /job:ps/task:0, but there are 2 servers", "spreads them over all")
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


answers.mistake("no_grace_period", {", stop_grace_period_secs=2": ""},
    "would wait 120 s for a thread that does not end by itself", "stop_grace_period_secs=2")
answers.mistake("every_session_is_the_chiefs", {"server.target, chief": "server.target, True"},
    "worker 1's session would fill the variables, too", "is_chief=True on worker 0, and False on all others")
answers.mistake("no_session_is_the_chiefs", {"server.target, chief": "server.target, False"},
    "worker 0's session waits for another worker to fill the variables", "is_chief=True on worker 0")
answers.mistake("notes_every_other_step", {
    "diary.append(session.run(fetches))": """
        session.run(fetches)
        if not session.should_stop():
            diary.append(session.run(fetches))
    """,
}, "steps, until the session stops, got")


@answers.is_wrong("Give Server only the table of the jobs")
def hands_the_server_the_whole_config(config, build):
    import tensorflow.compat.v1 as tf

    server = tf.train.Server(config, job_name="worker", task_index=config["task"]["index"])
    with tf.Graph().as_default(), setter_of(config):
        return run(server.target, True, *build(True))
