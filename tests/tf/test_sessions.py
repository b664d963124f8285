"""Workers of TensorFlow 1 that begin and end together, and one that waits in vain."""

import time

import pytest

from worldsize.engines.cluster_spec import Cluster
from worldsize.tf import quiet_launch
from worldsize.tf.sessions import together


def _late_worker(task):
    """A chief that comes 0.5 s late, and a worker that counts on it; when each came, began, ended and left."""
    import tensorflow.compat.v1 as tf

    chief = task.index == 0
    time.sleep(0.5 * chief)  # the lateness that the others have to bear
    came_s = time.time()
    server = tf.train.Server(task.cluster, "worker", task.index)
    with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(cluster=task.cluster)):
        version = tf.train.get_or_create_global_step()
        train = tf.assign_add(version, 1)
        with tf.train.MonitoredTrainingSession(server.target, chief, hooks=[together(chief)]) as session:
            began_s = time.time()
            for _ in range(3):
                session.run(train)
            time.sleep(0.5 * chief)  # and here too
            ended_s = time.time()
    return {"came": came_s, "began": began_s, "ended": ended_s, "left": time.time()}


def _no_chief(task):
    """Worker 1 waits for variables that worker 0 never fills; the words of its error."""
    import tensorflow.compat.v1 as tf

    server = tf.train.Server(task.cluster, "worker", task.index)  # noqa: F841  it serves while it is referenced
    done = task.dir / "done"
    if task.index == 0:
        while not done.exists():
            time.sleep(0.02)  # between two looks
        return ""
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        tf.train.get_or_create_global_step()
        try:
            together(is_chief=False, patience_s=0.3).begin()
        except TimeoutError as error:
            return str(error)
        finally:
            done.touch()


def _a_thread_that_stays(task, grace):
    """A session whose helper thread does not end by itself, told so how long to wait for it; the words of its error."""
    import threading

    import tensorflow.compat.v1 as tf

    class Helper(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            helper = threading.Thread(target=threading.Event().wait, daemon=True)
            helper.start()
            coord.register_thread(helper)

    server = tf.train.Server(task.cluster, "worker", task.index)
    with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(cluster=task.cluster)):
        version = tf.train.get_or_create_global_step()
        try:
            with tf.train.MonitoredTrainingSession(server.target, True, hooks=[together(True), Helper()], **grace) as session:
                session.run(version)
        except TimeoutError as error:
            return str(error)


@pytest.fixture(scope="module")
def diaries():
    return quiet_launch(_late_worker, cluster=Cluster(worker=2, ps=1), timeout_s=60).results[:2]


def test_no_worker_begins_before_all_are_there(diaries):
    chief, worker = diaries
    assert worker["began"] >= chief["came"]


def test_no_worker_leaves_before_all_are_done(diaries):
    chief, worker = diaries
    assert worker["left"] >= chief["ended"]


def test_who_waits_in_vain_says_for_what():
    run = quiet_launch(_no_chief, cluster=Cluster(worker=2, ps=1), timeout_s=60)
    assert run["worker:1"] == "waited 0.3 s for the chief to fill the variables"


@pytest.mark.parametrize(
    ("grace", "said"),
    [
        ({}, "Give MonitoredTrainingSession stop_grace_period_secs=2."),
        pytest.param({"stop_grace_period_secs": 0.1}, "", marks=pytest.mark.soak),
    ],
    ids=["not told", "told"],
)
def test_a_session_that_would_hang_at_its_end_says_what_to_do(grace, said):
    run = quiet_launch(_a_thread_that_stays, (grace,), cluster=Cluster(worker=1, ps=1), timeout_s=60)
    assert (run["worker:0"] or "").endswith(said)
    assert bool(run["worker:0"]) == bool(said)
