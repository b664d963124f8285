"""The line between a rank and the grader: two pipes, one each way, which carry bytes and nothing else.

A socket would also carry descriptors, and a descriptor can block or outlive whoever receives it. Left out: frames
(`frames`), and who reads and writes when (`peer`, `broker_channel`).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import NamedTuple

CHUNK = 1 << 18


class PipeEnds(NamedTuple):
    """One side's two descriptors."""

    reads: int
    writes: int

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.writes)


def pipe_line() -> tuple[PipeEnds, PipeEnds]:
    """Two sides of a line: what one writes the other reads. No program that is started inherits them."""
    there = os.pipe()
    back = os.pipe()
    for _, writes in (there, back):
        with suppress(OSError):  # a user may have only so much room in pipes: then they are smaller, and slower
            fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, CHUNK)
    return PipeEnds(back[0], there[1]), PipeEnds(there[0], back[1])
