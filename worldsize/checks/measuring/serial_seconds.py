"""The check of lab 01's fit: the serial seconds of a job from the seconds of one worker and of many.

The model is that of both laws: n workers take s + (t − s)/n for a job of which one worker has t, and s of it nobody
shares. Amdahl (AFIPS 1967) keeps t, Gustafson (CACM 31, 1988) lets it grow with n. Times that follow the model must give
s back; every measurement must move the answer; s is never below 0 or above the shortest job. Any way to fit passes.
Left out: how near a fit comes on noisy data. A. Karp and H. Flatt, "Measuring parallel processor performance", CACM 33,
1990, take the fraction from one point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Complaint, Verdict

POINTS = {
    "a job that stays the same": 0.25,
    "a job that grows": 0.25,
    "every measurement has its say": 0.75,
    "from 0 to the shortest job, whatever was measured": 0.25,
}
STAYS, GROWS, SAY, BOUNDS = POINTS
EXACT = 1e-3  # of the shortest job: a search in a thousand steps is near enough
MOVES = 1e-5  # of the shortest job: an answer that moves by less has not seen what changed
ROUNDING = 1e-6

SAY_WORKERS = (4, 2, 8, 1, 2, 3, 8)
LOW_S, HIGH_S = 0.1, 0.4  # what the measurements say in turn


@dataclass(frozen=True)
class MeasuredJobs:
    """What the function is handed: `one_s[k]` of one worker, `many_s[k]` of `workers[k]`."""

    workers: tuple[int, ...]
    one_s: tuple[float, ...]
    many_s: tuple[float, ...]

    @property
    def shortest_s(self) -> float:
        return min(self.one_s)

    def points(self) -> list[tuple[int, float, float]]:
        """(n, one worker's seconds, n workers' seconds), where there is more than one."""
        rows = zip(self.workers, self.one_s, self.many_s, strict=True)
        return [row for row in rows if row[0] > 1]

    def __str__(self) -> str:
        return f"workers {list(self.workers)}, one_s {_said(self.one_s)}, many_s {_said(self.many_s)}"


def serial_seconds(arena: Arena, fn: Callable) -> Verdict:
    """Check of a fit to measured times: the seconds that no worker shares.

    `serial_seconds(workers, one_s, many_s)` returns s of many = s + (one − s)/n.
    """
    return judge("serial_seconds", POINTS, _cases(arena, fn))


# ---- cases -----------------------------------------------------------------------------------


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    draw = arena.draws.uniform
    for workers in ((1, 2, 4, 8), (6, 2, 3), (16, 1, 4, 2)):
        job_s = draw(1.5, 3.0)
        serial_s = draw(0.05, 0.4) * job_s
        yield _exact(arena, fn, STAYS, _following(workers, [job_s] * len(workers), serial_s), serial_s)

    for workers in ((1, 2, 4, 8), (12, 3, 2, 6)):
        serial_s, share_s = draw(0.1, 0.3), draw(0.3, 0.6)
        yield _exact(arena, fn, GROWS, _following(workers, [serial_s + n * share_s for n in workers], serial_s), serial_s)

    yield from _every_say(arena, fn)
    yield _exact(arena, fn, BOUNDS, _following((1, 2, 4), [draw(1.5, 3.0)] * 3, 0.0), 0.0)
    yield _bound(arena, fn, MeasuredJobs((1, 2, 4), (2.0, 2.0, 2.0), (2.0, 0.9, 0.45)), 0.0, "more than n times as fast")
    yield _bound(arena, fn, MeasuredJobs((1, 2, 4), (2.0, 2.0, 2.0), (2.0, 2.4, 2.7)), 2.0, "slower than one worker")
    yield _bound(arena, fn, MeasuredJobs((1, 2, 4), (1.5, 2.0, 3.0), (1.5, 2.5, 3.4)), 1.5, "slower than one worker")


def _following(workers: tuple[int, ...], one_s: list[float], serial_s: float) -> MeasuredJobs:
    many_s = tuple(serial_s + (t - serial_s) / n for n, t in zip(workers, one_s, strict=True))
    return MeasuredJobs(workers, tuple(one_s), many_s)


def _every_say(arena: Arena, fn: Callable) -> Iterator[Case]:
    """One half of the measurements says LOW_S, the other HIGH_S; then one after the other changes its mind.

    So the answer of a mean, a median and least squares moves each time, and not that of a function that leaves it out.
    """
    jobs_s = [arena.draws.uniform(1.5, 3.0) for _ in SAY_WORKERS]
    places = [k for k, n in enumerate(SAY_WORKERS) if n > 1]
    says = [LOW_S] * len(SAY_WORKERS)
    for turn, place in enumerate(places):
        if turn % 2:
            says[place] = HIGH_S

    before: list[float] = []
    yield _between(arena, fn, _saying(jobs_s, says), before)
    for place in places:
        changed = list(says)
        changed[place] = LOW_S + HIGH_S - says[place]
        yield _moved(arena, fn, _saying(jobs_s, changed), place, before)


def _saying(jobs_s: list[float], says: list[float]) -> MeasuredJobs:
    rows = zip(SAY_WORKERS, jobs_s, says, strict=True)
    return MeasuredJobs(SAY_WORKERS, tuple(jobs_s), tuple(s + (t - s) / n for n, t, s in rows))


Examine = Callable[[ArenaResult], dict[str, Complaint]]


def _case(arena: Arena, fn: Callable, name: str, measured: MeasuredJobs, examine: Examine) -> Case:
    handed = [list(measured.workers), list(measured.one_s), list(measured.many_s)]
    return Case(f"{measured}{name}", lambda: with_advice(arena.call(fn, *handed), _ADVICE), examine)


# where n = 1 the formula of one point divides by zero: Python's error, and NumPy's warnings as errors
_ALONE = "One worker tells nothing of s (1 − 1/n is 0): do not divide there, or leave n = 1 out"
_ADVICE = dict.fromkeys(("ZeroDivisionError", "divide by zero", "invalid value"), _ALONE)


def _exact(arena: Arena, fn: Callable, what: str, measured: MeasuredJobs, serial_s: float) -> Case:
    near_s = EXACT * measured.shortest_s

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = number(ended.returned[0])
        if isinstance(got, str):
            return {what: f"expected seconds, one number, {got}"}
        if math.isnan(got):
            return {what: f"expected {serial_s:.6f} s, got nan. {_ALONE}"}
        if abs(got - serial_s) <= near_s:
            return {what: None}

        wanted = f"expected {serial_s:.6f} s, at most {near_s:.6f} s off, got {got:.6f} s"
        return {what: wanted + first_named(got, _mistakes(measured, serial_s))}

    return _case(arena, fn, f", of which {serial_s:.6f} s are serial", measured, examine)


def _between(arena: Arena, fn: Callable, measured: MeasuredJobs, before: list[float]) -> Case:
    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = number(ended.returned[0])
        if isinstance(got, str) or not LOW_S - ROUNDING <= got <= HIGH_S + ROUNDING:
            wanted = f"half of them say {LOW_S:g} s and half {HIGH_S:g} s: expected a number between"
            return {SAY: f"{wanted}, {_came(got)}"}
        before.append(got)
        return {SAY: None}

    return _case(arena, fn, "", measured, examine)


def _moved(arena: Arena, fn: Callable, measured: MeasuredJobs, place: int, before: list[float]) -> Case:
    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = number(ended.returned[0])
        if isinstance(got, str) or math.isnan(got):
            return {SAY: f"expected a number between {LOW_S:g} s and {HIGH_S:g} s, {_came(got)}"}
        if abs(got - before[0]) > MOVES * measured.shortest_s:
            return {SAY: None}

        complaint = (
            f"only the measurement at index {place}, of {measured.workers[place]} workers, had changed, and the answer stayed "
            f"{got:.6f} s. Every measurement has to have its say, also the first, the last and a second one of the same "
            "number of workers; least squares does that"
        )
        return {SAY: complaint}

    return _case(arena, fn, "", measured, examine)


def _bound(arena: Arena, fn: Callable, measured: MeasuredJobs, expected: float, complaint: str) -> Case:
    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = number(ended.returned[0])
        if not isinstance(got, str) and close(got, expected):
            return {BOUNDS: None}
        keep = f"Keep s from 0 to the shortest of one_s, {measured.shortest_s:g} s"
        return {BOUNDS: f"noise made it {complaint}: expected {expected:g} s, {_came(got)}. {keep}"}

    return _case(arena, fn, "", measured, examine)


def _came(got: float | str) -> str:
    if isinstance(got, str):
        return got
    return f"got {got:.6g} s"


# ---- what slips would have given ---------------------------------------------------------------


def _mistakes(measured: MeasuredJobs, serial_s: float) -> dict[str, Callable[[], float]]:
    points = measured.points()
    first_job_s = measured.one_s[0]
    n, one_s, _ = points[-1]
    return {
        "This is the fraction of one worker's time; the seconds are asked for": lambda: serial_s / one_s,
        "This is the fraction of the workers' time; the seconds are asked for": lambda: serial_s / points[-1][2],
        "These are the seconds that workers share, one − s": lambda: one_s - serial_s,
        "n = 1 was averaged in as a 0: leave it out": lambda: serial_s * len(points) / len(measured.workers),
        "One worker's time of the first job was taken for all: every job has its own one_s[k]": (
            lambda: _least_squares([(n, first_job_s, many) for n, _, many in points])
        ),
        "One worker's time of the first job was taken for all: every job has its own one_s[k], and this is a mean": (
            lambda: fmean(_of_point(n, first_job_s, many) for n, _, many in points)
        ),
        "This is many − one/n on average: s has its n-th in one/n too, so divide by 1 − 1/n": (
            lambda: fmean(many - one / n for n, one, many in points)
        ),
        "This is many − one/n of the last: s has its n-th in one/n too, so divide by 1 − 1/n": (
            lambda: points[-1][2] - one_s / n
        ),
        "This is the shortest measured time, which has shared work in it": lambda: min(measured.many_s),
    }


def _of_point(n: int, one_s: float, many_s: float) -> float:
    return (many_s - one_s / n) / (1 - 1 / n)


def _least_squares(points: list[tuple[int, float, float]]) -> float:
    weights = [(1 - 1 / n) ** 2 for n, _, _ in points]
    said = [_of_point(*point) for point in points]
    return sum(w * s for w, s in zip(weights, said, strict=True)) / sum(weights)


def _said(seconds: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{s:.4g}" for s in seconds) + "]"
