"""A fabric that notes a tensor's content at every message, to show step by step whose numbers are where.

Pass this fabric to an algorithm in place of the real one. The fabric reads one number of each chunk, so the algorithm must work
in place, and each chunk should hold one value throughout. `figures.steps` draws the notes.
"""

from itertools import pairwise
from typing import Any

import torch

from worldsize.fabric.interface import Fabric, Handle
from worldsize.trace import Note


class Watched:
    """A `fabric` that watches `x`, a contiguous tensor cut into `chunks` (by default one per rank)."""

    def __init__(self, fabric: Fabric, x: torch.Tensor, chunks: int | None = None) -> None:
        self.rank = fabric.rank
        self.world_size = fabric.world_size
        self._fabric = fabric
        self._x = x.detach().reshape(-1)

        parts = chunks or fabric.world_size
        if self._x.data_ptr() != x.data_ptr() or not 1 <= parts <= len(self._x):
            raise ValueError(
                f"Watched on rank {self.rank}: expected a contiguous tensor of at least one number for each of "
                f"{parts} chunks, got shape {tuple(x.shape)}. Watch a flat tensor."
            )

        self._edges = [len(self._x) * k // parts for k in range(parts + 1)]
        self._middles = [(a + b) // 2 for a, b in pairwise(self._edges)]
        self._notes: list[Note] = []

    def send(self, x: torch.Tensor, to: int, tag: int = 0) -> None:
        self._note_sent(to, tag, x)
        self._fabric.send(x, to, tag)

    def isend(self, x: torch.Tensor, to: int, tag: int = 0) -> Handle:
        self._note_sent(to, tag, x)
        return self._fabric.isend(x, to, tag)

    def recv(self, out: torch.Tensor, frm: int | None = None, tag: int = 0) -> int:
        held = self._held()
        source = self._fabric.recv(out, frm, tag)
        self._notes.append(Note(op="recv", peer=source, tag=tag, held=held))
        return source

    def compute(self, seconds: float, x: torch.Tensor | None = None) -> torch.Tensor | None:
        return self._fabric.compute(seconds, x)

    def notes(self) -> list[Note]:
        """Return the notes so far, which a rank returns in turn for `figures.steps(run, contents=run.results)`."""
        return [*self._notes, Note(op="end", peer=self.rank, tag=0, held=self._held())]

    def _note_sent(self, to: int, tag: int, payload: Any) -> None:
        chunks = self._chunks(payload)
        self._notes.append(Note(op="send", peer=to, tag=tag, held=self._held(), chunks=chunks))

    def _held(self) -> tuple[float, ...]:
        return tuple(self._x[self._middles].tolist())

    def _chunks(self, payload: Any) -> tuple[int, int] | None:
        """Return the first and the last watched chunk that `payload` shares memory with, or None."""
        if len(self._middles) == 1 or not isinstance(payload, torch.Tensor) or not payload.numel():
            return None

        start = (payload.data_ptr() - self._x.data_ptr()) // self._x.element_size()
        stop = start + payload.numel()
        if payload.dtype != self._x.dtype or start < 0 or stop > len(self._x):
            return None

        touched = [k for k, (a, b) in enumerate(pairwise(self._edges)) if a < stop and start < b]
        return touched[0], touched[-1]
