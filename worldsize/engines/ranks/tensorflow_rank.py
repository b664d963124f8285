"""What a task of TensorFlow has beside its function: its logical devices, its seed, its `Task`; or it is a server.

The fork server has imported tensorflow and not started its runtime; all that must be set before the runtime starts is
set here, in the fresh process. Left out: a rank's way from the fork to the result (`rank.py`), addresses and
environment (`tensorflow_session.py`).
"""

from __future__ import annotations

import json
import os
import signal
import threading

from worldsize.engines import payload
from worldsize.engines.cluster import Task, prepare_tensorflow, start_server
from worldsize.engines.job import Job
from worldsize.engines.ranks.last_seen import tell_stack_on_signal
from worldsize.engines.ranks.rank_channel import RankChannel


def prepare(rank: int, job: Job, channel: RankChannel, threads: int, seed: int) -> None:
    _end_with_fork_server()
    tell_stack_on_signal(job.files.stack(rank))
    prepare_tensorflow(job.tasks.logical_devices, seed)


def _end_with_fork_server() -> None:
    """A call into TensorFlow can hold Python's lock for as long as it waits; then nobody here sees that the agent is
    gone. So the kernel of the system ends this process with its fork server, and the fork server is not held up."""
    import ctypes
    from multiprocessing import forkserver

    alive = getattr(forkserver._forkserver, "_forkserver_alive_fd", None)
    if alive is not None:
        os.close(alive)
        forkserver._forkserver._forkserver_alive_fd = None

    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):  # not Linux
        return


def payload_of(rank: int, job: Job) -> payload.Payload:
    """Of a rank of TensorFlow, the payload that its task runs.

    What this task runs: the function, or a server.
    """
    if rank in job.tasks.serving_ranks():
        return payload.Payload(serve, (), {})
    return payload.unpack(job.files.payload.read_bytes())


def arguments(opened: payload.Payload, rank: int, job: Job, channel: RankChannel, attempt: int) -> tuple:
    """What a TensorFlow rank calls its function with.

    The function's arguments, with its `Task` in front where it asks for one.
    """
    if payload.first_parameter(opened.fn) != "task":
        return opened.args

    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    own = config.get("task", {"type": "", "index": 0})
    shared = job.dir / "shared"
    shared.mkdir(exist_ok=True)

    task = Task(
        type=own["type"],
        index=own["index"],
        rank=rank,
        attempt=attempt,
        cluster=config.get("cluster", {}),
        dir=shared,
        _counts=job.tasks.cluster,
        _request=channel.request,
    )
    return (task, *opened.args)


def serve() -> None:
    """What a rank of TensorFlow runs where its task is a server: a `tf.distribute.Server` as `TF_CONFIG` says."""
    server = start_server()
    threading.Event().wait()  # `server.join()` would wait for ever too, and hold Python's lock meanwhile
    del server
