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


@answers.is_wrong("expected the variable on /job:ps/task:0, got no device", "replica_device_setter that knows the cluster")
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
        with setter_of(config, ps_device="/job:ps", ps_tasks=1, cluster=None):
            fetches, hooks = build(index == 0)
        with tf.train.MonitoredSession(kind(master=server.target), hooks, stop_grace_period_secs=2) as session:
            rows = []
            while not session.should_stop():
                rows.append(session.run(fetches))
    return rows
