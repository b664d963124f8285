"""A TensorFlow task's part beside its function: logical devices, seed, `Task`; or the task is a server.

The fork server has imported tensorflow without starting its runtime; settings that must come first are made here, in the
fresh process. `rank.py` is the rest of a rank; `tensorflow_session.py` sets its environment.
"""

import functools
import json
import os
import signal
import tempfile
import threading
import types
from pathlib import Path

from worldsize.engines import payload
from worldsize.engines.cluster_spec import Task, corrected_tf_config, prepare_tensorflow, start_server
from worldsize.engines.job import Job
from worldsize.engines.ranks.last_seen import tell_stack_on_signal
from worldsize.engines.ranks.rank_channel import RankChannel


def prepare(rank: int, job: Job, channel: RankChannel, threads: int, seed: int) -> None:
    _end_with_fork_server()
    tell_stack_on_signal(job.files.of(rank, "stack"))
    prepare_tensorflow(job.tasks.logical_devices, seed)
    _keep_generated_code_in(job.dir)
    _correct_tf_config()


def _keep_generated_code_in(folder: Path) -> None:
    """Let AutoGraph write the code that it generates into the run's folder: this process ends too abruptly to remove it."""
    from tensorflow.python.autograph.pyct import loader  # TensorFlow's own, private

    if hasattr(loader, "tempfile"):
        write = functools.partial(tempfile.NamedTemporaryFile, dir=folder)
        loader.tempfile = types.SimpleNamespace(NamedTemporaryFile=write)


def _correct_tf_config() -> None:
    """Let resolvers read the launch's `TF_CONFIG`, also where the function has set another for the same cluster."""
    import tensorflow as tf

    own = os.environ.get("TF_CONFIG", "")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver
    original = resolver.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        if "TF_CONFIG" in os.environ:
            os.environ["TF_CONFIG"] = corrected_tf_config(os.environ["TF_CONFIG"], own)
        original(self, *args, **kwargs)

    resolver.__init__ = init


def _end_with_fork_server() -> None:
    """Let the operating system kill this TensorFlow task when its fork server ends.

    A call into TensorFlow can hold Python's lock while it waits, so no thread here would notice that the
    agent is gone. The fork server is not held up.
    """
    import ctypes
    from multiprocessing import forkserver

    alive = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if alive is not None:  # an open copy would keep the fork server from ending
        os.close(alive)
        forkserver._forkserver._forkserver_alive_fd = None  # type: ignore[attr-defined]  # Python's own, private

    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):  # not Linux
        return


def payload_of(rank: int, job: Job) -> payload.Payload:
    """Return what a TensorFlow task runs: the payload's function, or a server."""
    if rank in job.tasks.serving_ranks():
        return payload.Payload(serve, (), {})
    return payload.unpack(job.files.payload.read_bytes())


def arguments(opened: payload.Payload, rank: int, job: Job, channel: RankChannel, attempt: int) -> tuple:
    """Return a TensorFlow function's arguments, with the `Task` in front if its first parameter is named `task`."""
    if payload.first_parameter(opened.fn) != "task":
        return opened.args

    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    own = config.get("task", {"type": "", "index": 0})
    shared = job.dir / "shared"
    shared.mkdir(exist_ok=True)

    cluster = config.get("cluster", {})
    task = Task(own["type"], own["index"], rank, attempt, cluster, shared, job.tasks.cluster, channel.request)
    return (task, *opened.args)


def serve() -> None:
    """Run this TensorFlow task's `tf.distribute.Server`, from `TF_CONFIG`, until the process is ended."""
    server = start_server()
    threading.Event().wait()  # `server.join()` would hold Python's lock while it waits
    del server
