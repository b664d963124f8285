"""Judging: run a function on a list of cases, smallest first, and stop at the first case that shows a mistake.

A case's examiner says, property by property, what is wrong; the first words become the verdict's mismatch.
Left out: what is right (each check knows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from worldsize.checks.arena import ArenaResult
from worldsize.checks.verdict import Property, Verdict


@dataclass(frozen=True)
class Case:
    """One run of the function: `run()` does it, `examine(ended)` gives {property: what is wrong or None}.

    A property that the dict leaves out was not tried by this case. `name` says which case, in the reader's words.
    """

    name: str
    run: Callable[[], ArenaResult]
    examine: Callable[[ArenaResult], dict[str, str | None]]


def judge(exercise: str, points: dict[str, float], cases: Iterable[Case]) -> Verdict:
    """The judging that checks share: runs case after case, and gives points for every property that held.

    It must hold in all cases up to and with the first that failed. A run that breaks off earns nothing: what it would
    have shown was not reached.
    """
    tried: dict[str, bool] = {}
    for case in cases:
        ended = case.run()
        if ended.state == "not yet":
            return _verdict(exercise, "not yet", points, {}, ended.message, ended)
        if ended.state != "done":
            complaint = f"{case.name}: {ended.message}{_advice(ended)}"
            return _verdict(exercise, "fail", points, {}, complaint, ended)
        wrong = case.examine(ended)
        tried.update({name: tried.get(name, True) and complaint is None for name, complaint in wrong.items()})
        first = next((complaint for complaint in wrong.values() if complaint), None)
        if first:
            return _verdict(exercise, "fail", points, tried, f"{case.name}: {first}", ended)
    return _verdict(exercise, "pass", points, tried, None, None)


def _advice(ended: ArenaResult) -> str:
    """The next step where all ranks send to each other and none receives."""
    first = ended.message.partition("\n")[0]
    if ended.state == "deadlock" and "(send" in first and "(recv" not in first:
        return "\nEvery rank waits in a send and nobody receives. Begin with isend, then recv, then wait for the handle."
    return ""


def _verdict(exercise: str, state: str, points: dict, tried: dict, complaint: str | None, ended: ArenaResult | None) -> Verdict:
    properties = tuple(Property(name, value, tried.get(name)) for name, value in points.items())
    return Verdict(exercise, state, properties, complaint, ended.trace if ended else None)


def inputs_for(world_size: int, length: int, seed: int, dtype: str = "float32") -> list[np.ndarray]:
    """The ranks' inputs of a case to be judged: whole numbers that differ by rank and by element.

    So sums are exact and a swap shows. Each has shape [length].
    """
    generator = np.random.default_rng([seed, world_size, length])
    return [
        (generator.integers(1, 100, length) + 1000 * rank + 7 * np.arange(length)).astype(dtype)
        for rank in range(world_size)
    ]


def first_difference(got: Any, expected: np.ndarray, rank: int, what: str) -> str | None:
    """Judges one rank's tensor by the expected one: the first element that differs, in words, or None.

    None where `got` is `expected`; words too where there is no tensor, or one of another shape or dtype.
    """
    if not isinstance(got, np.ndarray):
        return f"rank {rank}: expected {what} as a tensor of shape {list(expected.shape)}, got {_kind(got)}"
    if got.shape != expected.shape:
        return f"rank {rank}: expected {what} of shape {list(expected.shape)}, got shape {list(got.shape)}"
    if got.dtype != expected.dtype:
        return f"rank {rank}: expected {what} as {expected.dtype}, got {got.dtype}"
    where = np.flatnonzero(~np.isclose(got, expected, rtol=1e-6, atol=0).reshape(-1))
    if not where.size:
        return None
    i = int(where[0])
    return (
        f"rank {rank}, element {i}: expected {expected.reshape(-1)[i]:g} ({what}), got {got.reshape(-1)[i]:g}"
        f" ({where.size} of {expected.size} elements differ)"
    )


def _kind(value: Any) -> str:
    return "None (does the function return it?)" if value is None else f"a {type(value).__name__}"


def ranks_in_words(world_size: int) -> str:
    return f"{world_size} rank{'s' if world_size > 1 else ''}"
