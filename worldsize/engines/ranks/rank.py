"""A rank's own process, from the fork to the result: its environment, its function, and how that ended.

`torch_rank.py` and `tensorflow_rank.py` have the framework's part; `rank_channel.py` talks to the agent.
"""

import builtins
import faulthandler
import importlib
import linecache
import multiprocessing
import os
import pickle
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from worldsize.engines import payload
from worldsize.engines.fork_server import IMPORT_LATE
from worldsize.engines.job import Job
from worldsize.engines.ranks.last_seen import LastSeen
from worldsize.engines.ranks.notebook_display import show_by
from worldsize.engines.ranks.pickles import dumps_result
from worldsize.engines.ranks.rank_channel import MAIN, RankChannel
from worldsize.engines.ranks.rank_failure import failure_of
from worldsize.engines.ranks.rich_output import RichOutput
from worldsize.failures import Return
from worldsize.files import write_whole
from worldsize.report import gather


def main(rank: int, address: str, job_path: str, env: dict[str, str], threads: int, attempt: int = 0) -> None:
    """Run a rank in a fresh process, as its entry point. `attempt` counts the rank's restarts."""
    os.setsid()  # a process group of its own, so that its children end with it
    channel = RankChannel(address, rank)
    try:
        job: Job = pickle.loads(Path(job_path).read_bytes())
        framework = importlib.import_module(f"worldsize.engines.ranks.{job.framework}_rank")
        _prepare(rank, job, env)
        framework.prepare(rank, job, channel, threads, seed_everything(job.seed, rank))

        channel.job = job
        channel.own_env = frozenset({*env, "RANK"} - {"OMP_NUM_THREADS"})
        channel.last_seen = LastSeen(job.files.of(rank, "last_seen"), MAIN)
        channel.last_seen.note_on_leaving()
        channel.reports = gather(job.origin_s)
        channel.watch()
        if job.world:
            framework.stay(rank, job, channel)

        opened = framework.payload_of(rank, job)
        arguments = framework.arguments(opened, rank, job, channel, attempt)
        channel.tell("entered", time.monotonic())

        before = payload.fingerprint(opened.fn)
        with _shown_to_a_notebook(rank, job):
            result = opened.fn(*arguments, **opened.kwargs)
        channel.end_forked()
        write_whole(job.files.of(rank, "result"), dumps_result(result))

        changed = tuple(name for name, mark in payload.fingerprint(opened.fn).items() if before.get(name) != mark)
        unwaited = channel.fabric.unwaited() if channel.fabric else 0
        channel.finish("result", Return(changed=changed, unwaited=unwaited))
    except BaseException as error:
        channel.end_forked(error)
        channel.finish("failure", failure_of(rank, error))


@contextmanager
def _shown_to_a_notebook(rank: int, job: Job) -> Iterator[None]:
    """Let the block's `display` and `plt.show()` put out pictures and tables, if a notebook is there to show them."""
    if not job.shows:
        yield
        return

    output = RichOutput(job.files, rank)
    show_by(output.display)
    builtins.display = output.display  # type: ignore[attr-defined]  # where a notebook has it
    try:
        yield
    finally:
        output.show_figures()


def write_to_logs(rank: int, job: Job) -> None:
    """Redirect everything that this rank's process prints, from Python or native code, to the rank's logs of `job`."""
    streams_of: dict[Path, list[int]] = {}
    for stream, path in ((1, job.files.of(rank, "log")), (2, job.native_log(rank))):
        streams_of.setdefault(path, []).append(stream)

    for path, streams in streams_of.items():
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in streams:
            os.dup2(log, stream)
        os.close(log)


def _prepare(rank: int, job: Job, env: dict[str, str]) -> None:
    write_to_logs(rank, job)
    faulthandler.enable(2)  # a crash in native code leaves its stack in the log

    errors = 2 if job.native_log(rank) == job.files.of(rank, "log") else 1
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(errors, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115

    os.environ.clear()
    os.environ.update({**job.env, **env, "RANK": str(rank)})
    tempfile.tempdir = None  # forget the fork server's choice, the agent's folder
    # a child of a fork server would start its own children by fork servers: slow, and unable to take along a cell's classes
    multiprocessing.set_start_method(job.children, force=True)
    sys.path[:] = job.sys_path
    os.chdir(job.cwd)

    keep_sources(job)
    for number in (signal.SIGINT, signal.SIGTERM, IMPORT_LATE):
        if number is not None:
            signal.signal(number, signal.SIG_DFL)


def keep_sources(job: Job) -> None:
    """Register in a rank the sources of the notebook's cells, so that tracebacks show their lines."""
    for name, text in job.sources:
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)


def seed_everything(seed: int, rank: int) -> int:
    """Seed NumPy and `random` for this rank, and return the framework's seed; the same `seed` and rank replay all three."""
    words = np.random.SeedSequence([seed, rank]).generate_state(4)
    np.random.seed(words[2])  # noqa: NPY002 - students' code draws from the global generator
    random.seed(int(words[3]))
    return int(words[0]) << 31 | int(words[1]) >> 1  # 63 bits, for a signed 64-bit seed
