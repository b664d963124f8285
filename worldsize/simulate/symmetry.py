"""Ranks that stand for others: if all nodes do the same, one node is simulated, and all others share its times.

If a program and its links do not change when every rank r is renamed r + k, then rank r does at every moment what rank r % k
does. So the function runs on ranks 0 to k - 1 alone, with the true world size. A message to rank `to` goes to the
representative `to % k`, which takes it for the message of the rank at the same distance before it (a quotient of the run by
that symmetry). Times are exact to the last bit; values are not: a representative gets its own node's numbers. `ranks_alone.py`
tests the symmetry, without proving it; `replay.py` handles ranks of unequal speed.
"""

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from worldsize.simulate.world import Sent, World

Call = tuple[str, int, int, float]  # kind, distance to the other rank, tag, bytes or seconds


class NotSymmetric(ValueError):
    """Ranks are not symmetric, as they do not do the same; the message says where they differ."""


class SymmetricWorld(World):
    """A world of `world_size` ranks of which the first `len(slowness)` are simulated and stand for the others.

    `calls[r]` has the calls of representative r, its waits included; a wait's first number is the message's.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls: list[list[Call]] = [[] for _ in self.clock_s]

    @override
    def _address(self, rank: int, to: int, tag: int) -> tuple[int, tuple[int, int]]:
        return to % len(self.clock_s), ((to - rank) % self.world_size, tag)

    @override
    def _key(self, rank: int, frm: int, tag: int) -> tuple[int, int]:
        return (rank - frm) % self.world_size, tag

    @override
    def post(self, rank: int, x: Any, to: int, tag: int) -> Sent:
        self.calls[rank].append(("send", (to - rank) % self.world_size, tag, x.nbytes))
        return super().post(rank, x, to, tag)

    @override
    def take(self, rank: int, out: Any, frm: int | None, tag: int, land: Callable[[Sent, Any], None]) -> tuple[int, int, float]:
        if frm is None:
            raise NotSymmetric(f"rank {rank} receives from anyone, and the first sender differs from rank to rank")
        self.calls[rank].append(("recv", (rank - frm) % self.world_size, tag, out.nbytes))
        _, size_bytes, first_s = super().take(rank, out, frm, tag, land)
        return frm, size_bytes, first_s

    @override
    def wait_until_taken(self, message: Sent) -> None:
        self.calls[message.rank].append(("wait", message.number, 0, 0))
        super().wait_until_taken(message)

    @override
    def compute(self, rank: int, seconds: float) -> None:
        self.calls[rank].append(("compute", 0, 0, seconds))
        super().compute(rank, seconds)
