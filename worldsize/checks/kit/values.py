"""Returned numbers and tensors, compared with the expected ones, and the mistake that explains a difference.

A mistake is named by its result: the first mistake that gives just what came back.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from worldsize.checks.verdict import Complaint

TOLERANCE = 1e-6  # relative: float32 holds 7 digits
# types that can be gone through only once
LAZY = ("generator", "map", "zip", "chain", "product", "filter", "list_iterator", "islice")
_OTHER_KIND = re.compile(r"<\w+>")


def inputs_for(world_size: int, length: int, seed: int, dtype: str = "float32") -> list[np.ndarray]:
    """Draw the ranks' inputs of a case, each of shape [length]: whole numbers that differ by rank in every element.

    Sums are exact, and a swap of ranks shows; elements of one rank may be equal.
    """
    generator = np.random.default_rng([seed, world_size, length])
    inputs = []
    for rank in range(world_size):
        drawn = generator.integers(1, 100, length)
        inputs.append((drawn + 1000 * rank + 7 * np.arange(length)).astype(dtype))

    return inputs


def differing(
    got: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 0.0, equal_nan: bool = False
) -> np.ndarray:
    """Return the flat indices at which the values of two arrays of one shape differ by more than rounding.

    `tolerance` is relative to the expected value; `near_zero` is absolute, for expected values that are sums of larger
    ones. NaN equals nothing, or NaN with `equal_nan`. Whole numbers do not round.
    """
    if got.dtype.kind in "iu" and expected.dtype.kind in "iu":
        return np.flatnonzero(got != expected)
    far = ~np.isclose(got, expected, rtol=tolerance, atol=near_zero, equal_nan=equal_nan)
    return np.flatnonzero(far.reshape(-1))


def same(got: Any, expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 1e-12) -> bool:
    """Return whether `got` is an array of the expected shape, with the expected values but for rounding."""
    if not isinstance(got, np.ndarray) or got.shape != expected.shape:
        return False

    return not differing(got, expected, tolerance, near_zero).size


def alike(got: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 0.0) -> bool:
    """Return whether two arrays' values agree within rounding. NaN, the mean over no examples, equals NaN."""
    return not differing(got, expected, tolerance, near_zero, equal_nan=True).size


def first_difference(
    got: Any, expected: np.ndarray, rank: int | None, what: str, tolerance: float = TOLERANCE, near_zero: float = 0.0,
    equal_nan: bool = False,
) -> Complaint:  # fmt: skip
    """Return a complaint about the first value that differs from `expected`, or None.

    Another shape or dtype, or no tensor at all, is a complaint, too. `tolerance`, `near_zero` and `equal_nan` are as in
    `differing`. `rank` is None for a tensor of no rank.
    """
    whose, of_whose = ("", "") if rank is None else (f"rank {rank}: ", f"rank {rank}, ")
    if not isinstance(got, np.ndarray):
        return f"{whose}expected {what} as a tensor of shape {list(expected.shape)}, got {kind_in_words(got)}"
    if got.shape != expected.shape:
        return f"{whose}expected {what} of shape {list(expected.shape)}, got shape {list(got.shape)}"
    if got.dtype != expected.dtype:
        return f"{whose}expected {what} as {expected.dtype}, got {got.dtype}"

    where = differing(got, expected, tolerance, near_zero, equal_nan)
    if not where.size:
        return None

    i = int(where[0])
    right, wrong = expected.reshape(-1)[i], got.reshape(-1)[i]
    wanted, actual = f"{right:g}", f"{wrong:g}"
    if wanted == actual:  # six digits do not tell them apart
        wanted, actual = f"{right:.17g}", f"{wrong:.17g}"
    return (
        f"{of_whose}element {i}: expected {wanted} ({what}), got {actual}"
        f" ({where.size} of {expected.size} elements differ)"
    )


def is_row(got: Any) -> bool:
    """Return whether a returned value, `got`, has items: a list or a tuple, or a tensor of one dimension or more."""
    if isinstance(got, np.ndarray):
        return got.ndim > 0
    return isinstance(got, tuple)


def are_whole(*values: Any) -> bool:
    """Return whether all values are whole numbers, of Python or of NumPy; booleans are not."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            return False
    return True


def is_whole(got: Any) -> bool:
    """Return whether a value is a whole number, also as a tensor of no dimension, as in a list made of a tensor."""
    if isinstance(got, np.ndarray):
        return got.ndim == 0 and got.dtype.kind in "iu"
    return are_whole(got)


def has_keys(got: Any, *keys: str) -> bool:
    """Return whether a returned value is a dict with these keys."""
    return isinstance(got, dict) and set(keys) <= set(got)


def all_same(held: Iterable[Any], expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 1e-12) -> bool:
    """Return whether every rank holds the expected array's values, but for rounding."""
    return all(same(got, expected, tolerance, near_zero) for got in held)


def size(value: Any) -> int:
    """Return the number of values in an array, or in nested lists, which may differ in length."""
    if isinstance(value, (tuple, list)):
        return sum(map(size, value))
    return int(np.size(value))


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
    if isinstance(got, str) and _OTHER_KIND.fullmatch(got):  # `arrays.plain` sends other types as "<name>"
        kind = got.strip("<>")
        advice = " (make it a list, which can be iterated twice)" * (kind in LAZY)
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}{advice}"
    if isinstance(got, tuple):
        return "a list or a tuple"  # `arrays.plain` makes tuples of both
    return f"a {type(got).__name__}"


def other_than_tuple(got: Any, length: int) -> str:
    """Return the returned value in words if it is not a tuple or a list of `length` values, else an empty text."""
    if not isinstance(got, tuple):  # `arrays.plain` makes tuples of lists
        return kind_in_words(got)
    return "" if len(got) == length else f"{len(got)} values"


def shown(got: Any, most: int = 60) -> str:
    """Return a value as Python writes it, up to `most` characters; numbers have at most nine digits, the same on any machine."""
    if got is None:
        return NOTHING
    return _MANY_DIGITS.sub(lambda found: f"{float(found[0]):.9g}", repr(got))[:most]


def number(value: Any) -> float | str:
    """Return the one value that a student's function returned, as a float, or a text on what came instead."""
    if value is None:
        return f"got {NOTHING}"
    if isinstance(value, (bool, np.bool_, str)):
        return f"got {value!r}"

    with suppress(TypeError, ValueError):
        if size(value) == 1:
            return float(np.asarray(value, dtype=float).reshape(-1)[0])

    if isinstance(value, dict):
        return f"got {len(value)} values"
    if isinstance(value, (tuple, list, np.ndarray)):
        return f"got {size(value)} values"
    return f"got a {type(value).__name__}"


def lone_number(value: Any) -> float | str:
    """Return `number(value)`, but reject a number inside a list or a row, which the lab's next cell could not use."""
    result = number(value)
    if isinstance(result, float) and np.ndim(value):
        kind = "a list" if isinstance(value, (tuple, list)) else kind_in_words(value)
        return f"got {kind} with the number in it: return the number itself"
    return result


def close(got: float, expected: float, tolerance: float = TOLERANCE, near_zero: float | None = None) -> bool:
    """Return whether a value equals the expected one but for rounding.

    `tolerance` is relative. `near_zero`, for small numbers, is absolute; its default is `tolerance`.
    """
    if near_zero is None:
        near_zero = tolerance

    return math.isclose(got, expected, rel_tol=tolerance, abs_tol=near_zero)


def first_named(got: float, mistakes: Mapping[str, float | Callable[[], float]], tolerance: float = TOLERANCE) -> str:
    """Return ". This is …" for the first named mistake that gives this wrong value, or an empty text."""
    for complaint, value in mistakes.items():
        found = value() if callable(value) else value
        if math.isfinite(found) and close(got, found, tolerance):
            return f". {complaint}"

    return ""


def first_slip(gives_it: Callable[..., bool], slips: Mapping[str, Any]) -> str:
    """Return the first named slip whose result came back, or an empty text."""
    for complaint, given in slips.items():
        if gives_it(given):
            return complaint

    return ""
