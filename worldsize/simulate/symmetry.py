"""Ranks that stand for others: where all nodes do the same, one node is simulated, and its times are those of all.

If a program and its links do not change when every rank r is called r + k, then rank r does at every moment what rank
r % k does. So the function runs on ranks 0 to k - 1 alone, with the true world size; a message to rank `to` goes to the
representative `to % k`, which takes it for the one that the rank at the same distance before it has sent (a quotient of
the run by that symmetry). Times are exact to the last bit; values are not: a representative gets its own node's numbers.

Left out: whether a program is symmetric, which is tried and not proved (`witnesses`), the simulation itself (`world`), and
ranks of unequal speed (`replay`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worldsize.simulate.world import Sent, World

_SMALL_WORLD = 64

Call = tuple[str, int, int, float]  # what, distance to the other rank, tag, bytes or seconds


class NotSymmetric(ValueError):
    """Ranks do not do the same; the message says where they part."""


class SymmetricWorld(World):
    """A world of `world_size` ranks of which the first `len(slowness)` are simulated and stand for the others.

    `calls[r]` is what representative r did, its waits too: of those the first number is that of the message.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls: list[list[Call]] = [[] for _ in self.clock_s]

    def _address(self, rank: int, to: int, tag: int) -> tuple[int, tuple[int, int]]:
        return to % len(self.clock_s), ((to - rank) % self.world_size, tag)

    def _key(self, rank: int, frm: int, tag: int) -> tuple[int, int]:
        return (rank - frm) % self.world_size, tag

    def post(self, rank: int, x: Any, to: int, tag: int) -> Sent:
        self.calls[rank].append(("send", (to - rank) % self.world_size, tag, x.nbytes))
        return super().post(rank, x, to, tag)

    def take(self, rank: int, out: Any, frm: int | None, tag: int, land: Callable[[Sent, Any], None]) -> tuple[int, int, float]:
        if frm is None:
            raise NotSymmetric(f"rank {rank} receives from anyone: who comes first differs from rank to rank")
        self.calls[rank].append(("recv", (rank - frm) % self.world_size, tag, out.nbytes))
        _, size_bytes, first_s = super().take(rank, out, frm, tag, land)
        return frm, size_bytes, first_s

    def wait_until_taken(self, message: Sent) -> None:
        self.calls[message.rank].append(("wait", message.number, 0, 0))
        super().wait_until_taken(message)

    def compute(self, rank: int, seconds: float) -> None:
        self.calls[rank].append(("compute", 0, 0, seconds))
        super().compute(rank, seconds)


def small_world(world_size: int, node_ranks: int) -> int | None:
    """A world size at which all ranks are quickly simulated, and which divides what the large one does; None if there is none."""
    for n in range(min(_SMALL_WORLD, world_size - 1), 1, -1):
        if world_size % n == 0 and n % node_ranks == 0 and n > node_ranks:
            return n
    return None
