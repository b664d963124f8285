"""The checks of lab 01's two fits: the serial fraction from speedups (Amdahl) and from scaled speedups (Gustafson).

Numbers that follow the law must give its fraction back; no point may decide alone; a fraction is from 0 to 1. Any
way to fit passes, also one that fits in another unit. Left out: how near a fit comes on noisy data.
A. Karp and H. Flatt, "Measuring parallel processor performance", CACM 33, 1990, take the fraction from one point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.formulas import scaling

POINTS = {
    "numbers that follow the law give its fraction back": 0.75,
    "no number of workers decides alone": 0.5,
    "a fraction from 0 to 1, whatever was measured": 0.25,
}
EXACT, ALL, BOUNDS = POINTS
DECIDES = 0.02  # nearer than this part of the way to what one point says: that point decided alone
WORKERS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Law:
    """A law, what a function that fits it is handed, and what it shows to have gone wrong.

    `speedup(n, f)`; `handed(workers, speedups, draws)` are the arguments, what they need besides drawn at random;
    `one_point(n, s)` is the fraction that one point says, `other` the other law's.
    """

    speedup: Callable[[float, float], float]
    handed: Callable[[list[int], list[float], Random], tuple]
    one_point: Callable[[float, float], float]
    other: Callable[[float, float], float]
    other_words: str


def amdahl_fit(arena: Arena, fn: Callable) -> Verdict:
    """Check of a fit to speedups: Amdahl's serial fraction.

    `amdahl_fit(workers, speedups)` returns the serial fraction f of S = 1 / (f + (1 − f)/n).
    """
    law = Law(
        speedup=scaling.amdahl,
        handed=lambda workers, speedups, draws: (workers, speedups),
        one_point=_amdahl_point,
        other=_gustafson_point,
        other_words="This is the fraction by Gustafson's law, for a job that grows",
    )
    return judge("amdahl_fit", POINTS, _cases(arena, fn, law))


def gustafson_fit(arena: Arena, fn: Callable) -> Verdict:
    """Check of a fit to speedups that scale: Gustafson's serial fraction.

    `gustafson_fit(workers, alone_s, together_s)` returns the serial fraction f of S = f + (1 − f) n.
    """
    law = Law(
        speedup=scaling.gustafson,
        handed=_seconds,
        one_point=_gustafson_point,
        other=_amdahl_point,
        other_words="This is the fraction by Amdahl's law, for a job of fixed size",
    )
    return judge("gustafson_fit", POINTS, _cases(arena, fn, law))


def _amdahl_point(n: float, s: float) -> float:
    if n == 1:
        return math.nan
    return (1 / s - 1 / n) / (1 - 1 / n)


def _gustafson_point(n: float, s: float) -> float:
    if n == 1:
        return math.nan
    return (n - s) / (n - 1)


def _seconds(workers: list[int], speedups: list[float], draws: Random) -> tuple[list[int], list[float], list[float]]:
    together_s = [draws.uniform(0.3, 0.7) for _ in workers]
    return workers, [s * t for s, t in zip(speedups, together_s, strict=True)], together_s


# ---- cases -----------------------------------------------------------------------------------


def _cases(arena: Arena, fn: Callable, law: Law) -> Iterator[Case]:
    for workers, low, high in (([1, 2, 4, 8], 0.05, 0.3), ([6, 2, 3], 0.3, 0.8), ([16, 1, 4, 2], 0.01, 0.05)):
        yield _exact(arena, fn, law, workers, arena.draws.uniform(low, high))

    for odd in range(1, len(WORKERS)):
        usual, other = 0.3, 0.1
        if odd % 2:
            usual, other = 0.1, 0.3
        yield _odd_one(arena, fn, law, odd, usual, other)

    yield _exact(arena, fn, law, [1, 2, 4], 0.0)
    yield _exact(arena, fn, law, [1, 2, 4], 1.0)
    yield _bound(arena, fn, law, [1.0, 2.3, 4.6], 0.0, "more than n times as fast")
    yield _bound(arena, fn, law, [1.0, 0.8, 0.7], 1.0, "slower than one worker")


Examine = Callable[[ArenaResult], dict[str, Complaint]]


def _case(
    arena: Arena, fn: Callable, law: Law, name: str, workers: list[int], speedups: list[float], examine: Examine
) -> Case:
    handed = law.handed(workers, speedups, arena.draws)
    return Case(name, lambda: _with_advice(arena.call(fn, *handed)), examine)


def _with_advice(ended: ArenaResult) -> ArenaResult:
    """What to do about n = 1, which every law's one-point formula divides by zero."""
    failure = ended.failure
    if failure is None:
        return ended

    if failure.type == "ZeroDivisionError" or _NUMPY_DIVIDED_BY_ZERO.search(failure.message):
        return replace(ended, message=f"{ended.message}\n{_ALONE}")
    return ended


_NUMPY_DIVIDED_BY_ZERO = re.compile("divide by zero|invalid value")
_ALONE = "One worker tells nothing of the fraction (n − 1 is 0): do not divide there, or leave n = 1 out"


def _exact(arena: Arena, fn: Callable, law: Law, workers: list[int], f: float) -> Case:
    speedups = [law.speedup(n, f) for n in workers]

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = number(ended.returned[0])
        if isinstance(got, str):
            return {EXACT: f"expected a fraction, one number, {got}"}
        if math.isnan(got):
            return {EXACT: f"expected {f:.4g}, got nan. {_ALONE}"}
        if close(got, f):
            return {EXACT: None}
        return {EXACT: f"expected {f:.4g}, got {got:.4g}{first_named(got, _mistakes(law, workers, speedups, f))}"}

    name = f"workers {workers}, speedups {_said(speedups)}, a serial fraction of {f:.4g}"
    return _case(arena, fn, law, name, workers, speedups, examine)


def _odd_one(arena: Arena, fn: Callable, law: Law, odd: int, usual: float, other: float) -> Case:
    """All points follow the law with one fraction, but one of them another."""
    speedups = [law.speedup(n, usual) for n in WORKERS]
    speedups[odd] = law.speedup(WORKERS[odd], other)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = number(ended.returned[0])
        if isinstance(got, str) or math.isnan(got):
            return {ALL: f"expected a fraction between {min(usual, other):g} and {max(usual, other):g}, {_came(got)}"}
        if abs(got - other) > DECIDES * abs(usual - other):
            return {ALL: None}

        complaint = (
            f"{WORKERS[odd]} workers alone decided: they say {other:g}, the others {usual:g}, and the answer is {got}"
            f"{_which(odd)}. Let every point have its say, for example by least squares"
        )
        return {ALL: complaint}

    name = f"workers {list(WORKERS)}, speedups {_said(speedups)}"
    return _case(arena, fn, law, name, list(WORKERS), speedups, examine)


def _came(got: float | str) -> str:
    if isinstance(got, str):
        return got
    return f"got {got:.4g}"


def _which(odd: int) -> str:
    if odd == len(WORKERS) - 1:
        return " (is it the last point only?)"
    return " (is it the first point only, or the largest or smallest fraction?)"


def _bound(arena: Arena, fn: Callable, law: Law, speedups: list[float], expected: float, complaint: str) -> Case:
    workers = [1, 2, 4]

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = number(ended.returned[0])
        if not isinstance(got, str) and close(got, expected):
            return {BOUNDS: None}
        return {BOUNDS: f"noise made it {complaint}: expected {expected:g}, {_came(got)}. Keep the fraction from 0 to 1"}

    return _case(arena, fn, law, f"workers {workers}, speedups {_said(speedups)}", workers, speedups, examine)


def _mistakes(law: Law, workers: Sequence[int], speedups: Sequence[float], f: float) -> dict[str, Callable[[], float]]:
    points = [(n, s) for n, s in zip(workers, speedups, strict=True) if n > 1]
    turned = [(n, 1 / s) for n, s in points]
    slope = np.polyfit(workers, speedups, 1)[0]
    return {
        "This is 1 − f, the part that workers share": lambda: 1 - f,
        law.other_words: lambda: fmean(law.other(*p) for p in points),
        f"{law.other_words}, by least squares": lambda: _least_squares(law.other, points),
        f"{law.other_words}, of the last point": lambda: law.other(*points[-1]),
        "n = 1 was averaged in as a 0: leave it out": lambda: f * len(points) / len(workers),
        "The ratio is upside down: the speedup is the seconds of one over the seconds of many": (
            lambda: min(1.0, max(0.0, _least_squares(law.one_point, turned)))
        ),
        "A straight line was laid through the speedups; take the law's own form": lambda: 1 - slope,
        "A line through the speedups has this slope; take the law's own form": lambda: slope,
        "This is 1 − the mean efficiency S/n": lambda: 1 - fmean(s / n for n, s in points),
        "This is the last 1/S, which is the fraction only for endless workers": lambda: 1 / speedups[-1],
    }


def _least_squares(one_point: Callable[[float, float], float], points: Sequence[tuple[float, float]]) -> float:
    """One-point fractions weighted as least squares weigh them."""
    n = np.array([n for n, _ in points])
    weights = (1 - 1 / n) ** 2
    if one_point is _gustafson_point:
        weights = (n - 1) ** 2

    return float(np.average([one_point(*point) for point in points], weights=weights))


def _said(speedups: Sequence[float]) -> str:
    return "[" + ", ".join(f"{s:.3g}" for s in speedups) + "]"
