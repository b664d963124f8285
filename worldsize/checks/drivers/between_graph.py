"""Drive a student's between-graph worker: note the graph that it builds, and its steps.

Devices are noted while the graph is built; if they are wrong, nothing runs, since the run could hang.
"""

import json
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

PATIENCE_S = 6.0  # a worker waits so long for the others, then raises TimeoutError
GRACE_S = 120.0  # TensorFlow's default time to wait for threads at a session's end
TOO_MANY = 25  # steps past a worker's last: its session did not stop


class _Misplaced(Exception):
    """The graph is on wrong devices, or the session is of the wrong kind, such as a second chief: a run could hang."""


def drive(fn: Callable, own: dict) -> dict:
    """Drive between-graph replication in the task, on each worker.

    Returns what `build` was told and where its graph lies, what `fn` returned, and the weights on the server afterwards.
    """
    config = json.loads(os.environ["TF_CONFIG"])
    noted: dict[str, Any] = {"built": 0}

    def build(is_chief: Any = None) -> tuple:
        noted.update(built=noted["built"] + 1, chief=is_chief)
        return _graph(own, config["task"]["index"], bool(is_chief), noted)

    try:
        returned = fn(config, build)
    except _Misplaced:
        return noted
    except TimeoutError as error:
        return {**noted, "waited": str(error)}
    except Exception:
        if noted.get("runs", 0) > own["steps"] + TOO_MANY:
            raise RuntimeError(f"{TOO_MANY} steps after a hook said stop, the session still runs: does it have hooks?") from None
        raise

    weights = _weights_on("grpc://" + config["cluster"]["ps"][0], noted["variables"][0]) if noted["built"] else None
    if not isinstance(returned, (list, tuple)):
        return {**noted, "returned": type(returned).__name__, "weights": weights}

    steps: list[Any] = []
    for step in returned:
        found = np.asarray(step)
        if found.size == 1 and found.dtype.kind in "iuf":
            steps.append(int(found))
        else:
            steps.append(type(step).__name__)
    return {**noted, "returned": steps, "weights": weights}


def _graph(own: dict, index: int, is_chief: bool, noted: dict) -> tuple:
    import tensorflow.compat.v1 as tf

    from worldsize.tf.sessions import together

    _note_chiefs(index, noted)
    version = tf.train.get_or_create_global_step()
    weights = tf.get_variable("weights", [len(own["gradient"])], initializer=tf.zeros_initializer())
    gradient = tf.identity(tf.constant(own["gradient"]), name="gradient")
    train = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(gradient, weights)], global_step=version)

    noted.update(variables=[weights.device, version.device], operation=gradient.device)
    if not noted["operation"].startswith(f"/job:worker/task:{index}"):
        raise _Misplaced
    for device in noted["variables"]:
        if not device.startswith("/job:ps"):
            raise _Misplaced

    noted["runs"] = 0

    def count() -> np.ndarray:
        noted["runs"] += 1
        if noted["runs"] > own["steps"] + TOO_MANY:
            raise RuntimeError("endless")
        return np.int64(noted["runs"])

    class Stop(tf.train.SessionRunHook):
        """Ask a session to stop after this worker's steps. A helper thread ends only once the session joins its threads."""

        def after_create_session(self, session: Any, coord: Any) -> None:
            noted["hooked"] = True
            ended, join = threading.Event(), coord.join
            helper = threading.Thread(target=ended.wait, daemon=True)
            helper.start()
            coord.register_thread(helper)

            def noting(*given: Any, stop_grace_period_secs: float = GRACE_S, **more: Any) -> None:
                noted["grace_s"] = float(stop_grace_period_secs)
                ended.set()
                helper.join()
                join(*given, stop_grace_period_secs=stop_grace_period_secs, **more)

            coord.join = noting

        def after_run(self, context: Any, values: Any) -> None:
            if noted["runs"] >= own["steps"]:
                context.request_stop()

    with tf.control_dependencies([train]):
        fetched = tf.numpy_function(count, [], tf.int64)

    return fetched, [together(is_chief, PATIENCE_S), Stop()]


def _note_chiefs(index: int, noted: dict) -> None:
    """Make the wrong kind of session raise _Misplaced, and note it.

    A second chief would initialize the variables again; without a chief, all workers would wait for them.
    """
    import tensorflow.compat.v1 as tf

    right, wrong = tf.train.ChiefSessionCreator, tf.train.WorkerSessionCreator
    if index:
        right, wrong = wrong, right

    def refuse(self: Any) -> None:
        noted["session"] = wrong.__name__
        raise _Misplaced

    wrong.create_session = refuse


def _weights_on(server: str, device: str) -> np.ndarray | None:
    """Return the weights that all workers share, read by name from the server; None if they are not initialized."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.device(device):
        weights = tf.get_variable("weights", [3])
        with tf.Session(server) as session:
            if not session.run(tf.is_variable_initialized(weights)):
                return None
            return session.run(weights.read_value())
