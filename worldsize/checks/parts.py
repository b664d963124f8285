"""Words for tensors that are spread over the ranks: which one is wrong on which rank, and which slip gives just that.

What a rank returns is compared with the part that it should hold; where it differs, with what known slips would have
given there. Left out: messages (`traffic`), and what is right (each check says so).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.judge import first_difference

ByRank = Sequence[np.ndarray]


@dataclass(frozen=True)
class Part:
    """A tensor in the reader's words, what each rank should hold of it, and {words: what a slip gives, by rank}."""

    name: str
    expected: ByRank
    slips: dict[str, ByRank] = field(default_factory=dict)


def cut(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """One part for each rank, as torch's `tensor_split` cuts."""
    return np.array_split(x, n, axis)


def wrong_part(held: Sequence[Any], part: Part) -> str | None:
    """The first rank whose `held[rank]` is not its part; None where all are right."""
    for rank, got in enumerate(held):
        words = first_difference(got, part.expected[rank], rank, part.name)
        if words:
            slip = next((words for words, given in part.slips.items() if same(got, given[rank])), "")
            return f"{words}. {slip}".rstrip()
    return None


def same(got: Any, given: np.ndarray) -> bool:
    return isinstance(got, np.ndarray) and got.shape == given.shape and bool(np.allclose(got, given, rtol=1e-6, atol=1e-12))


def not_a_tuple(returned: Sequence[Any], names: Sequence[str]) -> str | None:
    """Words where a rank did not return as many values as there are names."""
    for rank, got in enumerate(returned):
        if not isinstance(got, tuple) or len(got) != len(names):
            shown = "nothing" if got is None else f"{len(got)} values" if isinstance(got, tuple) else f"a {_kind(got)}"
            return f"rank {rank}: expected {len(names)} values ({', '.join(names)}), got {shown}"
    return None


def _kind(got: Any) -> str:
    return "tensor" if isinstance(got, np.ndarray) else type(got).__name__
