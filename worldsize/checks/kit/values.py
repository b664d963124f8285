"""What ranks returned, held against what they should have: numbers and tensors, and which mistake gives just that.

A mistake is named by what it would have given: the first one that gives what came back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from worldsize.checks.verdict import Complaint

TOLERANCE = 1e-6  # relative: float32 holds 7 digits
LAZY = ("generator", "map", "zip", "chain", "product", "filter", "list_iterator", "islice")
_OTHER_KIND = re.compile(r"<\w+>")


# ---- arrays ----------------------------------------------------------------------------------


def inputs_for(world_size: int, length: int, seed: int, dtype: str = "float32") -> list[np.ndarray]:
    """The ranks' inputs of a case to be judged: whole numbers that differ by rank and by element.

    So sums are exact and a swap shows. Each has shape [length].
    """
    generator = np.random.default_rng([seed, world_size, length])
    inputs = []
    for rank in range(world_size):
        drawn = generator.integers(1, 100, length)
        inputs.append((drawn + 1000 * rank + 7 * np.arange(length)).astype(dtype))

    return inputs


def differing(got: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 0.0) -> np.ndarray:
    """Where two arrays of one shape differ by more than rounding: a flat array of places.

    `tolerance` is relative to the expected value; `near_zero` is what a difference may be besides, in the values' own
    unit, for expected values that are sums of larger ones. NaN equals nothing.
    """
    far = ~np.isclose(got, expected, rtol=tolerance, atol=near_zero)
    return np.flatnonzero(far.reshape(-1))


def same(got: Any, expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 1e-12) -> bool:
    """Whether what came back is an array of the expected shape, and its values the expected ones but for rounding."""
    if not isinstance(got, np.ndarray) or got.shape != expected.shape:
        return False

    return not differing(got, expected, tolerance, near_zero).size


def first_difference(
    got: Any, expected: np.ndarray, rank: int | None, what: str, tolerance: float = TOLERANCE, near_zero: float = 0.0
) -> Complaint:
    """Judges a tensor by the expected one: the first element that differs, in words, or None.

    None where `got` is `expected`, but for `tolerance` and `near_zero` as in `differing`; words too where there is no
    tensor, or one of another shape or dtype. `rank` is None for a tensor that no rank stands for.
    """
    whose, of_whose = ("", "") if rank is None else (f"rank {rank}: ", f"rank {rank}, ")
    if not isinstance(got, np.ndarray):
        return f"{whose}expected {what} as a tensor of shape {list(expected.shape)}, got {kind_in_words(got)}"
    if got.shape != expected.shape:
        return f"{whose}expected {what} of shape {list(expected.shape)}, got shape {list(got.shape)}"
    if got.dtype != expected.dtype:
        return f"{whose}expected {what} as {expected.dtype}, got {got.dtype}"

    where = differing(got, expected, tolerance, near_zero)
    if not where.size:
        return None

    i = int(where[0])
    wanted, found = _apart(expected.reshape(-1)[i], got.reshape(-1)[i])
    return (
        f"{of_whose}element {i}: expected {wanted} ({what}), got {found}"
        f" ({where.size} of {expected.size} elements differ)"
    )


def _apart(one: Any, other: Any) -> tuple[str, str]:
    """Two numbers that differ, in six digits, or in as many as show it."""
    short = f"{one:g}", f"{other:g}"
    return short if short[0] != short[1] else (f"{one:.17g}", f"{other:.17g}")


def is_row(got: Any) -> bool:
    """Whether what came back has places to go through: a list or a tuple, or a tensor of one dimension or more."""
    if isinstance(got, np.ndarray):
        return got.ndim > 0
    return isinstance(got, tuple)


def are_whole(*values: Any) -> bool:
    """Whether all values are whole numbers, of Python or of NumPy."""
    return not any(isinstance(value, bool) or not isinstance(value, (int, np.integer)) for value in values)


def is_whole(got: Any) -> bool:
    """Tell whether this is one whole number, also in a tensor of no dimension: a list that is made of a tensor has such."""
    return are_whole(got) or (isinstance(got, np.ndarray) and got.ndim == 0 and got.dtype.kind in "iu")


def has_keys(got: Any, *keys: str) -> bool:
    """Whether what came back is a dict in which these keys are."""
    return isinstance(got, dict) and set(keys) <= set(got)


def all_same(held: Iterable[Any], expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 1e-12) -> bool:
    """Whether every rank holds the expected array, but for rounding."""
    return all(same(got, expected, tolerance, near_zero) for got in held)


def size(value: Any) -> int:
    """How many values there are in an array, or in lists inside lists, which may differ in length."""
    if isinstance(value, (tuple, list)):
        return sum(map(size, value))
    return int(np.size(value))


# ---- what came instead, in words -------------------------------------------------------------

NOTHING = "None (does the function return it?)"
_MANY_DIGITS = re.compile(r"\d+\.\d{8,}(?:e[+-]?\d+)?")


def type_in_words(got: Any) -> str:
    if isinstance(got, np.ndarray):
        return "tensor"
    return type(got).__name__


def kind_in_words(got: Any) -> str:
    if got is None:
        return NOTHING
    if isinstance(got, np.ndarray):
        return f"a tensor of shape {list(got.shape)}"
    if isinstance(got, str) and _OTHER_KIND.fullmatch(got):  # as `arrays.plain` tells it
        kind = got.strip("<>")
        advice = " (make it a list, which can be gone through twice)" * (kind in LAZY)
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}{advice}"
    if isinstance(got, tuple):
        return "a list or a tuple"  # `arrays.plain` makes tuples of both
    return f"a {type(got).__name__}"


def shown(got: Any, most: int = 60) -> str:
    """Return what came back as Python writes it: `most` letters of it, and nine digits of a number, which are the same
    wherever it was computed."""
    if got is None:
        return NOTHING
    return _MANY_DIGITS.sub(lambda found: f"{float(found[0]):.9g}", repr(got))[:most]


# ---- numbers ---------------------------------------------------------------------------------


def number(value: Any) -> float | str:
    """The one value that a student's function returned, as a float, or words that say what came instead."""
    if value is None:
        return f"got {NOTHING}"
    if isinstance(value, (bool, np.bool_, str)):
        return f"got {value!r}"

    with suppress(TypeError, ValueError):
        if size(value) == 1:
            return float(np.asarray(value, dtype=float).reshape(-1)[0])

    return f"got {_size_in_words(value)}"


def lone_number(value: Any) -> float | str:
    """As `number`, for a value that the lab's next cell computes with or prints: one in a list or a row is none."""
    found = number(value)
    if isinstance(found, float) and np.ndim(value):
        kind = "a list" if isinstance(value, (tuple, list)) else f"a tensor of shape {list(np.shape(value))}"
        return f"got {kind} with the number in it: return the number itself"
    return found


def _size_in_words(value: Any) -> str:
    if isinstance(value, dict):
        return f"{len(value)} values"
    if isinstance(value, (tuple, list, np.ndarray)):
        return f"{size(value)} values"
    return f"a {type(value).__name__}"


def close(got: float, expected: float, tolerance: float = TOLERANCE, near_zero: float | None = None) -> bool:
    """Whether a returned value equals the expected one but for rounding.

    `tolerance` is relative for large numbers. For small ones a difference may be `near_zero`, which is `tolerance` again
    where it is not given.
    """
    if near_zero is None:
        near_zero = tolerance

    return math.isclose(got, expected, rel_tol=tolerance, abs_tol=near_zero)


def first_named(got: float, mistakes: Mapping[str, float | Callable[[], float]], tolerance: float = TOLERANCE) -> str:
    """Words for a wrong value: the first of the named mistakes that would have given just this value.

    It is ". This is …"; empty where no mistake gives what was got.
    """
    for complaint, value in mistakes.items():
        found = value() if callable(value) else value
        if math.isfinite(found) and close(got, found, tolerance):
            return f". {complaint}"

    return ""


def first_slip(gives_it: Callable[[Any], bool], slips: Mapping[str, Any]) -> str:
    """Words for wrong arrays: the first of the named slips whose result is what came back; empty where none is."""
    for complaint, given in slips.items():
        if gives_it(given):
            return complaint

    return ""
