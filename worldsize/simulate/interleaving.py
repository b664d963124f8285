"""Choose what happens first among what happens at the same moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interleaving:
    """Another order of what happens at the same moment than by the numbers of the ranks, drawn from `seed`.

    Each rank begins up to `late_s` seconds late. Which of several ranks has the next turn, and which of several messages is
    received first from anyone, is drawn anew each time.
    """

    seed: int
    late_s: float = 1e-4
