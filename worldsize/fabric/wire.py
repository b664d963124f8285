"""The interface of a wire, which moves a fabric's bytes.

Wires wrap each other: `Recorded(Shaped(GlooWire))` records the traffic of a shaped link. Every wire serves the same interface, so
an algorithm runs unedited on real processes, on shaped links and in simulated time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a process that sends no torch tensor need not import torch
    import torch

SMALL_BYTES = 2**17  # up to here a message travels in one piece: copying beside its header is cheaper than a second message


class PeerLost(ConnectionError):
    """The other rank of a message on the wire has ended. Seldom the first failure of a run, which is that rank's own."""


class PeerSilent(TimeoutError):
    """The other rank of a message did not arrive within the wire's time limit, if it has one."""


class Pending(Protocol):
    """A message on its way over the wire."""

    def wait(self) -> None:
        """Block until the receiver has taken the message off the wire. Raises PeerLost."""


@dataclass(frozen=True)
class Arrival:
    """A message taken off the wire: its source, its size, and when its first byte left (`stamp_s`, on the wire's clock)."""

    source: int
    size_bytes: int
    stamp_s: float


class Wire(Protocol):
    """The interface below the fabric: it moves one tensor's bytes and has a clock.

    `Fabric` has checked ranks and tags, and passes contiguous tensors in this machine's memory. Several threads of a rank may use
    a wire, one at a time each.
    """

    rank: int
    world_size: int

    def now(self) -> float:
        """Return the seconds on the wire's clock, which all ranks share."""

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        """Begin to send `x` over the wire, and return at once; `x` must not change until the message is taken.

        `stamp_s` travels along: the time of posting or, below a shaper, the time when the first byte leaves.
        Raises ValueError for a tensor that cannot travel, and PeerLost.
        """

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        """Block until a message from rank `frm`, or from any rank if None, is in `out`.

        Raises ValueError if its dtype or shape differs, and PeerLost.
        """

    def compute(self, seconds: float, x: torch.Tensor | None = None) -> torch.Tensor | None:
        """Block for `seconds` of the wire's clock. Return the work's result for `x`: `x` itself, except in a graded run."""
