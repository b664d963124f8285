"""Parts of tensors that are sharded over the ranks.

A rank is handed only its own part, or NaN elsewhere, so an answer that computes with other ranks' parts gets NaN, whatever
messages it sends.
"""

from typing import Any

import numpy as np

from worldsize.checks.kit.expected import ByRank, Expected, Mistakes, went_through_float32
from worldsize.checks.kit.values import type_in_words

# relative to each value, and to a rank's largest: float64 sums in another order differ by some 1e-15, and Adam that is handed a
# sum in place of a mean by as little as 1e-9
NEAR = 1e-11


def cut(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """Split a tensor into one part per rank, as torch's `tensor_split` does."""
    return np.array_split(x, n, axis)


def own_alone(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """Return a tensor of the shape of `x` for each rank, with NaN everywhere but in the rank's own part."""
    given = [np.full_like(x, np.nan) for _ in range(n)]
    for rank, part in enumerate(cut(x, n, axis)):
        cut(given[rank], n, axis)[rank][...] = part

    return given


def part(name: str, by_rank: ByRank, mistakes: Mistakes, blanked: bool = False, rounding: float = NEAR) -> Expected:
    """Return the part of a tensor that each rank should hold. `blanked`: the ranks were given NaN outside their own parts."""
    otherwise = _on_blanked if blanked else went_through_float32
    return Expected(name, by_rank, mistakes, rounding=rounding, but_for_nan=True, otherwise=otherwise)


def _on_blanked(rank: int, got: Any, right: np.ndarray) -> str:
    if isinstance(got, np.ndarray) and np.isnan(got).any():
        return (
            f"The check puts NaN in other ranks' parts, and rank {rank} has computed with it: cut its own part out (NaN "
            f"times 0 is NaN), and let the ranks add up or gather their results."
        )
    if went_through_float32(rank, got, right):
        return (
            "So small a difference comes of numbers that went through float32, of a gradient with another scale, or of another "
            "epsilon in Adam."
        )
    return ""


def what_came(got: Any) -> str:
    """Describe what a rank returned in place of its parts."""
    if got is None:
        return "nothing"
    if isinstance(got, tuple):
        return f"{len(got)} values"
    if isinstance(got, dict):
        return f"a dict with {', '.join(map(str, got))}"
    return f"a {type_in_words(got)}"
