"""The two pipes between a rank and the grader, one each way, which carry bytes only.

A socket would also carry file descriptors, and a descriptor can block, or outlive its receiver.
"""

import fcntl
import os
from contextlib import suppress
from typing import NamedTuple

CHUNK = 1 << 18  # bytes


class PipeEnds(NamedTuple):
    """The descriptors of two pipes at one side."""

    reads: int
    writes: int

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.writes)


def pipe_line() -> tuple[PipeEnds, PipeEnds]:
    """Return both sides of a line: each reads what the other writes. Programs that are started do not inherit them."""
    there = os.pipe()
    back = os.pipe()
    for _, writes in (there, back):
        with suppress(OSError):  # a user's pipe space is limited: a smaller pipe is only slower
            fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, CHUNK)
    return PipeEnds(back[0], there[1]), PipeEnds(there[0], back[1])
