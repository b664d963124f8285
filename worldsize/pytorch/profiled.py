"""The record of torch's own profiler for a rank, on the launch's clock, to be shown beside the recorded messages.

The profiler counts microseconds from its own origin. Marks recorded between two readings of the launch's clock bound the offset
between the two clocks, as an NTP client brackets a server's answer. Left out: the Python work of threads other than the profiled
one (the profiler follows torch's C++ threads), and GPUs.
"""

import json
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldsize.pytorch.observed_step import quietly
from worldsize.report import launched_s
from worldsize.trace import joined

ChromeRow = dict[str, Any]
FIRST_THREAD = 10  # row of the first profiled thread in a rank's group, after the rank's own rows
_MARK = "worldsize mark"
_MARKS = 20  # before the block and after it; the tightest bounds count
_BACKENDS = ("gloo:", "nccl:", "mpi:")
_KEPT = ("cpu_op", "user_annotation", "cpu_instant_event")


@dataclass(frozen=True)
class Slice:
    """An interval in the profiler's record: an operator or a collective, in seconds since the launch."""

    name: str
    thread: str
    start_s: float
    end_s: float


@dataclass
class Profile:
    """The profiler's record of a rank; complete once the block has ended.

    `clock_error_s` bounds the error of its moments on the launch's clock. `rows` are the profiler's own, in Chrome's Trace Event
    Format, with `ts` in microseconds since the launch.
    """

    rank: int
    rows: tuple[ChromeRow, ...] = ()
    threads: tuple[str, ...] = ()
    clock_error_s: float = math.inf

    @property
    def slices(self) -> list[Slice]:
        """The profiler's operators and collectives in order of their start; an operator that calls others contains theirs."""
        calls = []
        for row in self.rows:
            if row["ph"] == "X":
                start_s, length_s = row["ts"] * 1e-6, row["dur"] * 1e-6
                calls.append(Slice(row["name"], self.threads[row["tid"] - FIRST_THREAD], start_s, start_s + length_s))
        return sorted(calls, key=lambda call: (call.start_s, -call.end_s))

    @property
    def collectives(self) -> list[Slice]:
        """The collectives of a backend such as gloo, each from the start to the end of this rank's part."""
        calls = []
        for call in self.slices:
            operation = call.name.partition(":")[2]
            if call.name.startswith(_BACKENDS) and operation not in ("send", "recv", "recvAnySource"):
                calls.append(call)
        return calls

    @property
    def operators(self) -> list[Slice]:
        """The slices outside the collectives' backends: operators and their callers."""
        return [one for one in self.slices if not one.name.startswith(_BACKENDS)]

    def in_collectives(self, start_s: float, end_s: float) -> float:
        """Return the profiled share of the time between two moments in which a collective is under way."""
        inside_s = 0.0
        for begun_s, ended_s in joined((one.start_s, one.end_s) for one in self.collectives):
            inside_s += max(0.0, min(end_s, ended_s) - max(start_s, begun_s))
        return inside_s / (end_s - start_s)

    @property
    def allocated(self) -> list[tuple[float, int]]:
        """(moment, bytes allocated and not freed since the profiler began), after each change."""
        levels, total = [], 0
        for row in sorted(self.rows, key=lambda row: row.get("ts", 0.0)):
            if row["name"] == "[memory]":
                total += row["args"]["Bytes"]
                levels.append((row["ts"] * 1e-6, total))
        return levels


@contextmanager
def profiled(rank: int) -> Iterator[Profile]:
    """Profile this rank's work: `with profiled(fabric.rank) as seen: step()`, then return `seen`.

    Shapes and memory are recorded too. Outside a launch, moments are seconds since the block began.
    """
    from torch.profiler import ProfilerActivity, profile

    seen = Profile(rank)
    origin_s = launched_s()
    if origin_s is None:
        origin_s = time.monotonic()

    watching = profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True)
    with quietly():
        watching.start()
    before = _marks(origin_s)
    try:
        yield seen
    finally:
        after = _marks(origin_s)
        with quietly():
            watching.stop()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        watching.export_chrome_trace(str(path))
        rows = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    offset_s, seen.clock_error_s = _offset(rows, (before, after))
    seen.rows, seen.threads = _on_launch_clock(rows, rank, offset_s)


def _marks(origin_s: float) -> list[tuple[float, float]]:
    """Let the profiler record some marks; return the launch's clock just before and just after each."""
    from torch.profiler import record_function

    marks = []
    for _ in range(_MARKS):
        start_s = time.monotonic()
        with record_function(_MARK):
            pass
        marks.append((start_s - origin_s, time.monotonic() - origin_s))
    return marks


def _offset(rows: Sequence[ChromeRow], readings: Sequence[list[tuple[float, float]]]) -> tuple[float, float]:
    """Return (seconds from the profiler's clock to the launch's, the bound of its error).

    A mark lies between its readings, so each leaves an interval for the offset. The marks before and after the block narrow
    separate intervals: if one clock runs faster, the true offset moves from the first to the second.
    """
    marks = sorted((row["ts"] * 1e-6, (row["ts"] + row["dur"]) * 1e-6) for row in rows if row["name"] == _MARK)
    lowest, highest = math.inf, -math.inf
    for part in readings:
        own, marks = marks[: len(part)], marks[len(part) :]
        low = max(before - start for (before, _), (start, _) in zip(part, own, strict=True))
        high = min(after - end for (_, after), (_, end) in zip(part, own, strict=True))
        lowest, highest = min(lowest, low, high), max(highest, low, high)
    return (lowest + highest) / 2, (highest - lowest) / 2


def _on_launch_clock(rows: Sequence[ChromeRow], rank: int, offset_s: float) -> tuple[tuple[ChromeRow, ...], tuple[str, ...]]:
    """Return profiled rows of work and memory in `rank`'s group, one row per thread, and the threads' names in that order."""
    names, kept = {}, []
    for row in rows:
        if (row["ph"], row["name"]) == ("M", "thread_name"):
            names[row["tid"]] = row["args"]["name"]
        elif row.get("cat") in _KEPT and row["name"] != _MARK:
            kept.append(row)

    timeline, threads, numbers = [], [], {}
    for row in sorted(kept, key=lambda row: row["ts"]):
        thread = row["tid"]
        if thread in numbers:
            continue

        name, number = names.get(thread, str(thread)), FIRST_THREAD + len(threads)
        short = name.partition("(")[2].rstrip(")") or name  # "python" of "thread 15585 (python)"
        numbers[thread] = number
        threads.append(short)
        about = {"name": f"profiler: {short}"}
        timeline.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": about})

    for row in kept:
        timeline.append({**row, "pid": rank, "tid": numbers[row["tid"]], "ts": row["ts"] + offset_s * 1e6})
    return tuple(timeline), tuple(threads)
