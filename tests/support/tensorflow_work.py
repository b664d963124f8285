"""What tasks of TensorFlow do in several tests: right work on each strategy, and work that fails, waits or loses a task."""

import os
import signal
import time
from typing import Any

from worldsize.tf import Cluster

PAIR = Cluster(worker=2)
COORDINATED = Cluster(chief=1, worker=2, ps=1)


def counter() -> tuple[Any, Any, Any]:
    """A new coordinator, a function to schedule that adds 1 on a worker, and the variable that it adds to."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def update():
        total.assign_add(1.0)

    return coordinator, update, total


def mirrored():
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    context = tf.distribute.get_replica_context
    one = [1.0, 2.0, 3.0, 4.0]
    summed = strategy.run(lambda: context().all_reduce("sum", tf.gather(one, context().replica_id_in_sync_group)))
    return [float(x) for x in strategy.experimental_local_results(summed)]


def multi_worker(task):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    context = tf.distribute.get_replica_context
    summed = strategy.run(lambda: context().all_reduce("sum", tf.constant(1.0 + 10 * task.rank)))
    return float(strategy.experimental_local_results(summed)[0])


def coordinate(updates):
    coordinator, update, total = counter()
    for _ in range(updates):
        coordinator.schedule(update)
    coordinator.join()
    return float(total.numpy()), total.device


_serving: list = []  # a server stops when nobody refers to it, and the other worker's session may still talk to it


def between_graphs(task):
    """Two workers add to one variable on the parameter server, which waits until both have said that they are done.

    They begin once the server's own session has been made: it reaches all tasks then. Its channel to one that was not yet
    there at its first try is in back-off for a second, and a step that needs a worker's tensor on the server would fail.
    """
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    spec = tf.train.ClusterSpec(task.cluster)
    server = tf.train.Server(spec, job_name=task.type, task_index=task.index)
    _serving.append(server)
    with tf.device("/job:ps/task:0"):
        ready, done = (tf.FIFOQueue(2, tf.int32, shared_name=name) for name in ("ready", "done"))
    if task.type == "ps":
        with tf.Session(server.target) as session:
            session.run(ready.enqueue_many([[1, 1]]))
            return sum(int(session.run(done.dequeue())) for _ in range(2))
    with tf.device(tf.train.replica_device_setter(cluster=spec, worker_device=f"/job:worker/task:{task.index}")):
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
        add = tf.assign_add(total, 1.0, use_locking=True)
    begin, say_done, missing = ready.dequeue(), done.enqueue(1), tf.report_uninitialized_variables()
    initialize = tf.global_variables_initializer()
    with tf.Session(server.target) as session:
        session.run(begin)
        if task.index == 0:
            session.run(initialize)
        while len(session.run(missing)):
            time.sleep(0.02)  # between two looks
        for _ in range(10):
            session.run(add)
        session.run(say_done)
    return total.device


EXPECTED = {
    "raise": "failed first: KeyError: 'the culprit'",
    "exit": "exited with code 3 and no result",
    "kill": "was killed by SIGKILL",
}


def die(task, how, culprit):
    """Everybody meets in a collective; then the culprit fails while the others go on."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def meet():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))

    meet()
    if task.index == culprit:
        if how == "raise":
            raise KeyError("the culprit")
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        meet()


def lose_a_worker(task, path):
    """The chief kills worker 1, goes on without it, and gets it back."""
    coordinator, update, total = counter()

    def updates(count):
        for _ in range(count):
            coordinator.schedule(update)
        coordinator.join()
        return float(total.numpy())

    counts = [updates(10)]
    task.kill("worker", 1)
    counts.append(updates(10))
    task.restart("worker", 1)
    return [*counts, updates(10)]


def wait_for_a_peer(task, note=None):
    """Worker 0 makes its strategy, which waits for worker 1; that one never makes its own."""
    import tensorflow as tf

    if note:
        with open(f"{note}{task.index}", "w") as file:
            file.write(str(os.getpid()))
    if task.index == 1:
        time.sleep(1000)  # for ever, as a peer that does not come
    tf.distribute.MultiWorkerMirroredStrategy()
