"""Check lab 01's fit: the serial seconds of a job from the seconds of one worker and of many.

In the model of both laws, n workers take s + (t − s)/n for a job that takes one worker t, of which s is not shared. Amdahl
(AFIPS 1967) keeps t, Gustafson (CACM 31, 1988) lets t grow with n. Any way to fit passes: a mean, a median, least squares
with any weights.
A. Karp and H. Flatt, "Measuring parallel processor performance", CACM 33, 1990, take the fraction from a single point.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import mul
from statistics import fmean, median

from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import first_named, lone_number
from worldsize.checks.verdict import UNEXAMINED, Complaint

STAYS = "a job that stays the same"
GROWS = "a job that grows"
SAY = "every measurement has its say"
BOUNDS = "from 0 to the shortest job, whatever was measured"
EXACT = 1e-3  # of the shortest job: near enough for a search in a thousand steps
MOVES = 1e-5  # of the shortest job: an answer that moves by less ignores the change
ROUNDING = 1e-6

# An answer that leaves a job out, or cuts each measurement off at the bounds, does not move at all when this one changes, so it
# never passes by luck: the job of one worker never sets a bound, and a measurement beyond the bounds stays beyond them.
SAY_WORKERS = (4, 2, 8, 1, 2, 3, 8)
SHORTEST_S, LONGEST_S = (1.5, 1.6), (1.65, 2.1)  # ranges of SAY_WORKERS' jobs: the shortest, and the others


@dataclass(frozen=True)
class Say:
    """Serial seconds s that single measurements of SAY_WORKERS give: `s` for `of_workers`, and `others_s` for the rest.

    Then the measurements of `changing`, by default of `of_workers`, give `then_s`, a different one each time.
    """

    of_workers: tuple[int, ...]
    s: float
    then_s: float
    others_s: float
    changing: tuple[int, ...] = ()


WITHIN = (
    Say((4, 8), 0.4, 0.1, others_s=0.1),
    Say((2, 3), 0.1, 0.4, others_s=0.4),
)
# (workers, a factor of the seconds): jobs of seconds, of a millisecond, which a search in milliseconds misses, and of hours
STAYING = (
    ((1, 2, 4, 8), 1.0), ((6, 2, 3), 1.0), ((16, 1, 4, 2), 6e-4), ((1, 3, 1, 4), 1.0), ((2, 5), 3600.0),
)  # fmt: skip
BEYOND = (  # the bounds by themselves, but not all together
    Say((2, 3), -0.2, -0.05, others_s=0.4),
    Say((2, 3), 2.5, 2.2, others_s=0.1, changing=(3,)),
)


@dataclass(frozen=True)
class MeasuredJobs:
    """The measured jobs that the function is given: seconds `one_s[k]` of one worker, `many_s[k]` of `workers[k]`."""

    workers: tuple[int, ...]
    one_s: tuple[float, ...]
    many_s: tuple[float, ...]

    @property
    def shortest_s(self) -> float:
        return min(self.one_s)

    @override
    def __str__(self) -> str:
        return f"workers {list(self.workers)}, one_s {_said(self.one_s)}, many_s {_said(self.many_s)}"


@exercise({STAYS: 0.25, GROWS: 0.25, SAY: 0.75, BOUNDS: 0.25})
def serial_seconds(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a fit to measured times: the seconds that no worker shares.

    `serial_seconds(workers, one_s, many_s)` returns s of many = s + (one − s)/n.
    """
    draw = arena.draws.uniform
    for workers, scale in STAYING:
        job_s = scale * draw(1.5, 3.0)
        serial_s = draw(0.05, 0.4) * job_s
        yield _exact(arena, fn, STAYS, _following(workers, [job_s] * len(workers), [serial_s] * len(workers)), serial_s)

    for workers in ((1, 2, 4, 8), (12, 3, 2, 6)):
        serial_s, share_s = draw(0.1, 0.3), draw(0.3, 0.6)
        jobs_s = [serial_s + n * share_s for n in workers]
        yield _exact(arena, fn, GROWS, _following(workers, jobs_s, [serial_s] * len(workers)), serial_s)

    yield from _every_say(arena, fn, WITHIN)

    yield _exact(arena, fn, BOUNDS, _following((1, 2, 4), [draw(1.5, 3.0)] * 3, [0.0] * 3), 0.0)
    yield _bound(arena, fn, MeasuredJobs((1, 2, 4), (2.0, 2.0, 2.0), (2.0, 0.9, 0.45)), 0.0, "more than n times as fast")
    yield _bound(arena, fn, MeasuredJobs((1, 2, 4), (2.0, 2.0, 2.0), (2.0, 2.4, 2.7)), 2.0, "slower than one worker")
    for shortest, workers in enumerate(((1, 2, 4), (8, 2, 1), (2, 6, 3))):
        one_s = [draw(2.0, 2.2), draw(2.5, 2.7)]  # at least 0.3 s apart, so no other job passes for the bound
        one_s.insert(shortest, draw(1.4, 1.7))
        many_s = [t if n == 1 else t * draw(1.1, 1.3) for n, t in zip(workers, one_s, strict=True)]
        slower = MeasuredJobs(workers, tuple(one_s), tuple(many_s))
        yield _bound(arena, fn, slower, one_s[shortest], "slower than one worker")

    yield from _every_say(arena, fn, BEYOND)


def _following(workers: Sequence[int], one_s: Sequence[float], serial_s: Sequence[float]) -> MeasuredJobs:
    """Return jobs of these seconds on one worker, each with its own seconds that no worker shares."""
    rows = zip(workers, one_s, serial_s, strict=True)
    return MeasuredJobs(tuple(workers), tuple(one_s), tuple(s + (t - s) / n for n, t, s in rows))


def _every_say(arena: Arena, fn: Callable, says: Sequence[Say]) -> Iterator[Case]:
    """Yield a case where half of the measurements give one s, half another, then a case for each measurement that changes.

    The answer of a mean, a median and least squares moves each time. An answer that ignores the measurement stays.
    """
    draw = arena.draws.uniform
    shortest, *others = draw(*SHORTEST_S), *sorted(draw(*LONGEST_S) for _ in SAY_WORKERS[1:])
    jobs_s = [shortest, *others[1:]]
    arena.draws.shuffle(jobs_s)
    jobs_s.insert(SAY_WORKERS.index(1), others[0])  # the job of one worker is neither the shortest nor the longest

    for say in says:
        before: list[float] = []
        yield _saying(arena, fn, jobs_s, say, None, before)
        for place, n in enumerate(SAY_WORKERS):
            if n in (say.changing or say.of_workers):
                yield _saying(arena, fn, jobs_s, say, place, before)


Examine = Callable[[ArenaResult], dict[str, Complaint]]


def _case(arena: Arena, fn: Callable, name: str, measured: MeasuredJobs, examine: Examine) -> Case:
    run = partial(arena.call, fn, list(measured.workers), list(measured.one_s), list(measured.many_s))
    return Case(f"{measured}{name}", run, examine, _ADVICE)


# for n = 1 the formula of one point divides by zero: Python raises, and NumPy's warnings are errors
_ALONE = "One worker says nothing about s (1 − 1/n is 0): do not divide there, or leave out each n = 1"
_ADVICE = dict.fromkeys(("ZeroDivisionError", "divide by zero", "invalid value"), _ALONE)


def _exact(arena: Arena, fn: Callable, what: str, measured: MeasuredJobs, serial_s: float) -> Case:
    near_s = EXACT * measured.shortest_s
    given = {"workers": measured.workers, "one_s": measured.one_s, "many_s": measured.many_s}

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        if what != BOUNDS:
            spoilt = first_complaint(map(changed, ended.inputs, given.values(), given))
            if spoilt:
                return {what: spoilt}

        got = lone_number(ended.returned[0])
        if isinstance(got, str):
            return {what: f"expected seconds, one number, {got}"}
        if math.isnan(got):
            return {what: f"expected {serial_s:.6g} s, got nan. {_ALONE}"}
        if abs(got - serial_s) <= near_s:
            return {what: None}

        wanted = f"expected {serial_s:.6g} s, at most {near_s:.3g} s off, got {got:.6g} s"
        return {what: wanted + first_named(got, _mistakes(measured, serial_s))}

    return _case(arena, fn, f", of which {serial_s:.6g} s are serial", measured, examine)


def _saying(
    arena: Arena, fn: Callable, jobs_s: list[float], say: Say, place: int | None, before: list[float]
) -> Case:
    """Return the serial seconds' case in which the measurement at index `place` has changed; if it is None, none has.

    That case, the first, keeps its answer in `before`, if it is a number to compare with.
    """
    serial_s = [say.s if n in say.of_workers else say.others_s for n in SAY_WORKERS]
    if place is not None:
        serial_s[place] = say.then_s
    measured = _following(SAY_WORKERS, jobs_s, serial_s)
    low_s, high_s = sorted((say.s, say.others_s))

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = lone_number(ended.returned[0])
        if place is None:
            if isinstance(got, str) or not low_s - ROUNDING <= got <= high_s + ROUNDING:
                wanted = f"half of the measurements give {low_s:g} s and half {high_s:g} s: expected a number between"
                return {SAY: f"{wanted}, {_came(got)}"}
            before.append(got)
            return {SAY: None}

        if not before:
            return {SAY: UNEXAMINED}
        if isinstance(got, str) or math.isnan(got):
            return {SAY: f"expected a number between {low_s:g} s and {high_s:g} s, {_came(got)}"}
        if abs(got - before[0]) > MOVES * measured.shortest_s:
            return {SAY: None}

        complaint = (
            f"only the measurement at index {place}, of {measured.workers[place]} workers, changed, but the answer stayed "
            f"{got:.6f} s. "
        )
        if 0 <= say.s <= measured.shortest_s:
            return {SAY: complaint + EVERY_ONE_COUNTS}
        return {
            SAY: f"{complaint}By itself it now gives {say.then_s:g} s, not {say.s:g} s: count it as it is, and keep only the "
            "result from 0 to the shortest of one_s"
        }

    return _case(arena, fn, "", measured, examine)


EVERY_ONE_COUNTS = (
    "Every measurement must count, also the first, the last and a second one of the same number of workers; least squares does "
    "that"
)


def _bound(arena: Arena, fn: Callable, measured: MeasuredJobs, expected: float, complaint: str) -> Case:
    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = lone_number(ended.returned[0])
        if not isinstance(got, str) and abs(got - expected) <= EXACT * measured.shortest_s:
            return {BOUNDS: None}

        keep = f"Keep s from 0 to the shortest of one_s, {measured.shortest_s:.6g} s"
        named = ""
        if not isinstance(got, str):
            named = first_named(got, _other_bounds(measured))
        return {BOUNDS: f"noise made the workers {complaint}: expected {expected:.6g} s, {_came(got)}{named}. {keep}"}

    return _case(arena, fn, "", measured, examine)


def _came(got: float | str) -> str:
    if isinstance(got, str):
        return got
    return f"got {got:.6g} s"


def _other_bounds(measured: MeasuredJobs) -> dict[str, float]:
    alone = [one for n, one in zip(measured.workers, measured.one_s, strict=True) if n > 1]
    return {
        "This is the first of one_s": measured.one_s[0],
        "This is the last of one_s": measured.one_s[-1],
        "This is the longest of one_s": max(measured.one_s),
        "This is the median of one_s": median(measured.one_s),
        "This is the mean of one_s": fmean(measured.one_s),
        "This is the shortest of many_s": min(measured.many_s),
        "This is the shortest of one_s without the measurement of one worker": min(alone),
    }


def _mistakes(measured: MeasuredJobs, serial_s: float) -> dict[str, float]:
    """Return {words for a slip: the serial seconds that it gives}, of the measurements with more than one worker."""
    weights, of_first_job, undivided = [], [], []
    for n, one_s, many_s in zip(measured.workers, measured.one_s, measured.many_s, strict=True):
        if n == 1:
            continue
        last_one_s, last_many_s = one_s, many_s
        weights.append((1 - 1 / n) ** 2)
        of_first_job.append((many_s - measured.one_s[0] / n) / (1 - 1 / n))
        undivided.append(many_s - one_s / n)
    least_squares = sum(map(mul, weights, of_first_job)) / sum(weights)

    return {
        "This is the fraction of one worker's time; return the seconds": serial_s / last_one_s,
        "This is the fraction of the workers' time; return the seconds": serial_s / last_many_s,
        "These are the seconds that workers share, one − s": last_one_s - serial_s,
        "n = 1 was averaged in as a 0: leave it out": serial_s * len(undivided) / len(measured.workers),
        "The first job's one_s was taken for all jobs: every job has its own one_s[k]": least_squares,
        "The first job's one_s was taken for all jobs: every job has its own one_s[k], and this is a mean": fmean(of_first_job),
        "This is many − one/n on average: s has its n-th in one/n too, so divide by 1 − 1/n": fmean(undivided),
        "This is many − one/n of the last: s has its n-th in one/n too, so divide by 1 − 1/n": undivided[-1],
        "This is the shortest measured time, which has shared work in it": min(measured.many_s),
    }


def _said(seconds: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{s:.4g}" for s in seconds) + "]"
