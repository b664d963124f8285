"""The support matrix's trials for TensorFlow 1: towers, in-graph and between-graph replication.

All use `tf.compat.v1`, with the model and data of `trials`. Left out: queues, savers, summaries.
"""

import json
import os
import time
from typing import Any

from bench.tf_support.trials import RATE, SCHEDULED, STEPS, compared, counted, examples
from worldsize.tf.support import Outcome


def halves(tf: Any, places: tuple[str, ...], weights: Any) -> list[Any]:
    """Return the gradients of the two halves of the examples, one on each of two places."""
    x, y = examples()
    half = len(x) // 2
    found = []
    for k, place in enumerate(places):
        with tf.device(place):
            part = slice(half * k, half * (k + 1))
            loss = tf.reduce_mean((tf.matmul(tf.constant(x[part]), weights) - y[part]) ** 2)
            found.append(tf.gradients(loss, weights)[0])

    return found


def split(server: str, places: tuple[str, ...], target: str = "", config: Any = None) -> Outcome:
    """Train in one graph and one session, split over two places.

    The weights are on `server`, half the examples on each place.
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        with tf.device(server):
            weights = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
            gradient = tf.add_n(halves(tf, places, weights)) / len(places)
            step = tf.assign_sub(weights, RATE * gradient)
        with tf.Session(target, config=config) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(STEPS):
                session.run(step)
            return compared(session.run(weights))


def towers() -> Outcome:
    import tensorflow.compat.v1 as tf

    return split("/cpu:0", ("/cpu:0", "/cpu:1"), config=tf.ConfigProto(device_count={"CPU": 2}))


def in_graph() -> Outcome:
    import tensorflow.compat.v1 as tf

    jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
    alone = tf.ConfigProto(device_filters=["/job:ps", "/job:worker"])  # the chief has no server here
    places = ("/job:worker/task:0", "/job:worker/task:1")
    return split("/job:ps/task:0", places, "grpc://" + jobs["worker"][0], alone)


def between_graphs(task: Any, synchronous: bool) -> Outcome:
    """Run between-graph replication on this worker: its own graph shares the variables with the others'."""
    import tensorflow.compat.v1 as tf

    from worldsize.tf.sessions import together

    cluster, is_chief = tf.train.ClusterSpec(task.cluster), task.index == 0
    server = tf.train.Server(cluster, "worker", task.index)
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task.index}")

    with tf.Graph().as_default(), tf.device(setter):
        step = tf.train.get_or_create_global_step()
        weights = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        optimizer = tf.train.GradientDescentOptimizer(RATE, use_locking=True)
        hooks = [together(is_chief)]

        if synchronous:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, len(task.cluster["worker"]))
            hooks.append(optimizer.make_session_run_hook(is_chief, num_tokens=0))
            gradient = halves(tf, ("", ""), weights)[task.index]
        else:
            gradient = tf.ones([3, 1])

        train = optimizer.apply_gradients([(gradient, weights)], step)
        finished = tf.get_variable("finished", [], tf.int32, tf.zeros_initializer(), trainable=False)
        finish, there = finished.assign_add(1, use_locking=True), len(task.cluster["worker"])
        session = tf.train.MonitoredTrainingSession(
            server.target, is_chief, hooks=hooks, checkpoint_dir=None, stop_grace_period_secs=2
        )
        with session:
            for _ in range(STEPS if synchronous else SCHEDULED):
                session.run(train)
            session.run(finish)
            while session.run(finished) < there:
                time.sleep(0.02)
            held = session.run(weights)

        if synchronous:
            return compared(held)
        return counted(held, None, SCHEDULED * there)
