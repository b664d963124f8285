"""Prints and reports of simulated ranks, which share one process: each goes to the rank that has its turn."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from worldsize import report
from worldsize.simulate.turns import turn_in_this_thread
from worldsize.simulate.world import World


@contextmanager
def output_by_rank(
    world: World, logs: dict[int, io.StringIO], buffers: dict[int, report.ReportBuffer]
) -> Iterator[None]:
    """Write ranks' prints into `logs` and their reports into `buffers` while inside."""
    out, gathering = sys.stdout, list(report._gathering)
    sys.stdout = _Router(world, logs, out)
    report._gathering[:] = [_Buffers(world, buffers)]
    try:
        yield
    finally:
        sys.stdout = out
        report._gathering[:] = gathering


class _Router(io.TextIOBase):
    """A stdout that sends a rank's prints to its log, and prints outside of a turn or from another thread to `out`."""

    def __init__(self, world: World, logs: dict[int, io.StringIO], out: Any) -> None:
        self._turn = turn_in_this_thread(world)
        self._logs = logs
        self._out = out

    @override
    def write(self, text: str) -> int:
        rank = self._turn()
        if rank is None:
            return self._out.write(text)
        return self._logs.setdefault(rank, io.StringIO()).write(text)

    @override
    def flush(self) -> None:
        self._out.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


class _Buffers:
    """A `ReportBuffer` that stands for the buffer of the rank whose turn it is."""

    origin_s = 0.0

    def __init__(self, world: World, buffers: dict[int, report.ReportBuffer]) -> None:
        self._turn = turn_in_this_thread(world)
        self._buffers = buffers

    def __getattr__(self, name: str) -> Any:
        rank = self._turn()
        if rank is None:
            return getattr(report.ReportBuffer(0.0), name)
        return getattr(self._buffers.setdefault(rank, report.ReportBuffer(0.0)), name)
