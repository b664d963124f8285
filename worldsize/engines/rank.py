"""A rank's own process: from the fork to the result, with a thread that answers the agent while the main one works.

The agent asks three things: "where" (stack, what it waits for, the record so far), "bye" (leave), and by closing the
line: die. Left out: everything about other ranks.
"""

from __future__ import annotations

import linecache
import os
import pickle
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import cloudpickle
import numpy as np
import torch
import torch.distributed as dist

from worldsize import parcel
from worldsize.collectives import CollectiveLog
from worldsize.engines import Job
from worldsize.fabric import Fabric, Recorded
from worldsize.failures import Failure, Frame, NotYet, Standing
from worldsize.trace import RankRecord
from worldsize.wires import GlooWire, Shaped, gloo_group

_TICK_S = 0.05
_BLOCKED_AFTER_TICKS = 2


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
        line.watch()
        parcel_in = parcel.open_parcel(job.payload_path().read_bytes())
        arguments = _arguments(parcel_in, rank, job, line)
        line.tell(("entered", time.monotonic()))
        before = parcel.fingerprint(parcel_in.fn)
        result = parcel_in.fn(*arguments, **parcel_in.kwargs)
        _write(job.result_path(rank), cloudpickle.dumps(result))
        line.finish("result", _notes(parcel_in, before, line))
    except BaseException as error:
        line.finish("failure", _failure(rank, error))


def _prepare(rank: int, job: Job, env: dict[str, str], threads: int) -> None:
    log = os.open(job.log_path(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
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
    return _own(traceback.extract_tb(error.__traceback__))


def _own(entries: traceback.StackSummary) -> tuple[Frame, ...]:
    """The frames below `main`: those of the launched function."""
    found = [Frame(e.filename, e.lineno or 0, e.name, e.line or "") for e in entries]
    mine = [i for i, f in enumerate(found) if f.file == __file__ and f.function == "main"]
    return tuple(found[mine[-1] + 1 :] if mine else found)


def _write(path: Path, data: bytes) -> None:
    """All of the file or none of it: a rank can be killed at any moment."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)


class Line:
    """This rank's line to the agent: sends news, answers questions from a thread of its own."""

    def __init__(self, address: str, rank: int) -> None:
        self.rank = rank
        self.job: Job | None = None
        self.fabric: Fabric | None = None
        self.recorded: Recorded | None = None
        self.collectives: CollectiveLog | None = None
        self._lock = threading.Lock()
        self._released = threading.Event()
        joint = socket.socket(socket.AF_UNIX)
        joint.connect(address)
        self._connection = Connection(joint.detach())
        self.tell(("hello", rank, os.getpid()))

    def tell(self, news: tuple) -> None:
        with self._lock:
            self._connection.send(news)

    def watch(self) -> None:
        threading.Thread(target=self._watch, name="worldsize-line", daemon=True).start()

    def finish(self, kind: str, content: object) -> None:
        """Say how it ended and stay until the agent lets go: a peer may still read what this rank sent."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        try:
            self._save_record()
        finally:
            self.tell((kind, content))
        self._released.wait(timeout=None if self.job else 5)
        os._exit(0)

    def _watch(self) -> None:
        quiet = changes = reported = 0
        try:
            while True:
                if self._connection.poll(_TICK_S):
                    self._answer(self._connection.recv())
                state = self.recorded.state if self.recorded else None
                if state is None or state.doing is None:
                    continue
                quiet = quiet + 1 if state.changes == changes else 0
                changes = state.changes
                if quiet >= _BLOCKED_AFTER_TICKS and reported != changes:
                    reported = changes
                    self.tell(("blocked", changes))
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)  # the agent is gone: nobody would ever end this rank

    def _answer(self, question: str) -> None:
        if question == "bye":
            self._released.set()
        elif question == "waits":
            state = self.recorded.state if self.recorded else None
            self.tell(("waits", (state.changes, state.doing, state.posted, state.taken) if state else None))
        elif question == "where":
            self._save_record()
            self.tell(("where", self._standing()))

    def _save_record(self) -> None:
        record = self.recorded.record() if self.recorded else RankRecord(self.rank)
        rows = self.collectives.rows() if self.collectives else ()
        if self.job and (rows or record.events or record.spans):
            _write(self.job.record_path(self.rank), pickle.dumps(replace(record, collectives=rows)))

    def _standing(self) -> Standing:
        frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
        doing = self.recorded.state.doing if self.recorded else None
        return Standing(
            self.rank,
            doing=waiting_in_words(doing) if doing else "",
            frames=_own(traceback.extract_stack(frame)) if frame else (),
            last_transfer=_last_in_words(self.recorded),
        )


def _last_in_words(recorded: Recorded | None) -> str:
    ended = (e for e in reversed(recorded.events if recorded else []) if e[5] > e[4])  # one on its way has no end yet
    for kind, peer, _, size_bytes, *_ in ended:
        way = "sent {} bytes to rank {}" if kind == "send" else "received {} bytes from rank {}"
        return way.format(size_bytes, peer)
    return ""


def waiting_in_words(doing: tuple[str, int | None, int]) -> str:
    op, peer, tag = doing
    way = "to" if op == "send" else "from"
    whom = "anyone" if peer is None else f"rank {peer}"
    return f"waits in {op} {way} {whom}" + (f" (tag {tag})" if tag else "")


