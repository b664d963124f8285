"""Some ranks of a fabric as a fabric of their own, such as a row or a column of a mesh.

Messages go over the whole fabric's wire, so they are shaped, recorded and simulated like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from worldsize.fabric.interface import Fabric
from worldsize.fabric.wire import Arrival, Pending, Wire

if TYPE_CHECKING:  # a process that sends no torch tensor need not import torch
    import torch


def among(fabric: Fabric, ranks: Sequence[int]) -> Fabric:
    """Return a fabric of `ranks` alone, numbered from 0 in this order. Each of them calls this with the same list.

        row = among(fabric, [0, 1])  # of a mesh [[0, 1], [2, 3]]

    Raises ValueError unless `ranks` are different ranks of `fabric`, and its own rank is one of them. `recv` needs a sender:
    from any rank, a message of another part could come first.
    """
    members = list(ranks)
    known = range(fabric.world_size)
    if len(set(members)) < len(members) or not all(rank in known for rank in members):
        raise ValueError(f"among: expected different ranks from 0 to {fabric.world_size - 1}, got {members}")
    if fabric.rank not in members:
        raise ValueError(f"among: rank {fabric.rank} is not one of {members}. Call it on these ranks only.")
    return Fabric(PartOfWire(fabric._wire, members), fabric._handles)


class PartOfWire:
    """The part of a wire that joins some of its ranks, which have numbers of their own."""

    def __init__(self, whole: Wire, ranks: Sequence[int]) -> None:
        self.rank = ranks.index(whole.rank)
        self.world_size = len(ranks)
        self.now = whole.now
        self._whole = whole
        self._ranks = ranks

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        return self._whole.post(x, self._ranks[to], tag, stamp_s)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        if frm is None:
            raise ValueError(
                "recv: expected the rank to receive from, got None. Among some of the ranks a message that others sent for "
                "another part could come first."
            )
        return replace(self._whole.take(out, self._ranks[frm], tag), source=frm)

    def compute(self, seconds: float, x: torch.Tensor | None = None) -> torch.Tensor | None:
        return self._whole.compute(seconds, x)
