"""A rank's own process, from the fork to the result: its environment, its function, and how that ended.

Left out: talking to the agent meanwhile (`line.py`), and everything about other ranks.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

import cloudpickle
import numpy as np
import torch
import torch.distributed as dist

from worldsize import parcel
from worldsize.collectives import CollectiveLog
from worldsize.engines import Job
from worldsize.engines.line import MAIN, Line, frames_below, write_whole
from worldsize.engines.place import Place
from worldsize.fabric import Fabric, Recorded
from worldsize.failures import Failure, Frame, NotYet
from worldsize.report import gather
from worldsize.wires import GlooWire, Shaped, gloo_group


def main(rank: int, address: str, job_path: str, env: dict[str, str], threads: int) -> None:
    """Entry point of a rank, called by elastic in a fresh process."""
    os.setsid()  # a process group of its own, so that its children end with it
    line = Line(address, rank)
    try:
        job: Job = pickle.loads(Path(job_path).read_bytes())
        _prepare(rank, job, env, threads)
        line.job = job
        line.collectives = CollectiveLog(rank, job.origin_s)
        line.collectives.install()
        line.place = Place(job.place_path(rank), MAIN)
        line.place.note_on_leaving()
        line.told = gather(job.origin_s)
        line.watch()
        parcel_in = parcel.open_parcel(job.payload_path().read_bytes())
        arguments = _arguments(parcel_in, rank, job, line)
        line.tell(("entered", time.monotonic()))
        before = parcel.fingerprint(parcel_in.fn)
        result = parcel_in.fn(*arguments, **parcel_in.kwargs)
        write_whole(job.result_path(rank), cloudpickle.dumps(result))
        line.finish("result", _notes(parcel_in, before, line))
    except BaseException as error:
        line.finish("failure", _failure(rank, error))


def _prepare(rank: int, job: Job, env: dict[str, str], threads: int) -> None:
    log = os.open(job.log_path(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    faulthandler.enable(2)  # a crash in native code leaves its stack in the log
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update({**job.env, **env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    tempfile.tempdir = None  # the fork server may have settled on the agent's
    sys.path[:] = job.sys_path
    os.chdir(job.cwd)
    for name, text in job.sources:
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    torch.set_num_threads(threads)
    seed_everything(job.seed, rank)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def seed_everything(seed: int, rank: int) -> None:
    """Give torch, NumPy and random streams of this rank's own; the same `seed` and rank replay them."""
    words = np.random.SeedSequence([seed, rank]).generate_state(4)
    torch.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
    np.random.seed(words[2])  # noqa: NPY002 - students' code draws from the global generator
    random.seed(int(words[3]))


def _arguments(opened: parcel.Parcel, rank: int, job: Job, line: Line) -> tuple:
    if not parcel.wants_fabric(opened.fn):
        return opened.args
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=60)
    )
    wire = GlooWire(gloo_group(store, rank, job.world_size))
    line.recorded = Recorded(Shaped(wire, job.link) if job.link else wire, job.origin_s)
    line.fabric = Fabric(line.recorded)
    return (line.fabric, *opened.args)


def _notes(opened: parcel.Parcel, before: dict[str, bytes], line: Line) -> dict:
    notes: dict = {}
    changed = [name for name, mark in parcel.fingerprint(opened.fn).items() if before.get(name) != mark]
    if changed:
        notes["changed"] = changed
    if line.fabric and line.fabric.unwaited():
        notes["unwaited"] = line.fabric.unwaited()
    return notes


def _failure(rank: int, error: BaseException) -> Failure:
    at_s = time.monotonic()
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else (0 if error.code is None else 1)
        return Failure(rank, "exit", at_s, code=code, frames=_frames(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return Failure(
        rank,
        "raised",
        at_s,
        type=type(error).__name__,
        message=_message(error),
        frames=_frames(error),
        not_yet=isinstance(error, NotYet),
        cause=f"{type(cause).__name__}: {_message(cause)}" if cause else "",
    )


def _message(error: BaseException) -> str:
    """The message without torch's C++ stack, at most ten lines."""
    try:
        text = str(error).split("\nException raised from")[0]
    except Exception as broken:
        text = f"(its message could not be made: {type(broken).__name__})"
    text = "\n".join([text, *getattr(error, "__notes__", [])])
    rows = text.splitlines()
    return "\n".join(row[:300] for row in rows[:10]) + ("\n…" if len(rows) > 10 else "")


def _frames(error: BaseException) -> tuple[Frame, ...]:
    return frames_below(traceback.extract_tb(error.__traceback__))
