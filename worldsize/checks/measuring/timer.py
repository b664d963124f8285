"""The check of lab 01's timer: a scripted step and a scripted clock, so that no real time is in a property.

The step moves the clock on by seconds that the check chose; the clock says what time it is and takes none. Left out:
how good a real measurement is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Complaint, Verdict

POINTS = {
    "step is called warm_up + steps times": 0.5,
    "the warm-up does not count": 0.5,
    "the median, which one slow step does not move": 0.5,
}
CALLS, WARM, MEDIAN = POINTS
UNSCRIPTED_S = 0.125  # a call after the script's end
ROUNDING_S = 1e-6  # the clock shows thousands of seconds


class TimerScript:
    """A step that takes the next of `lasts_s` at each call, and the clock that it moves on from `start_s`."""

    def __init__(self, lasts_s: Sequence[float], start_s: float) -> None:
        self._lasts_s, self._now_s = iter(lasts_s), start_s
        self.calls = self.reads = 0

    def step(self) -> None:
        self._now_s += next(self._lasts_s, UNSCRIPTED_S)
        self.calls += 1

    def clock(self) -> float:
        self.reads += 1
        return self._now_s


def seconds_per_step(arena: Arena, fn: Callable) -> Verdict:
    """Check of a timer for training steps.

    `seconds_per_step(step, clock, warm_up, steps)` returns the median seconds of the calls after the warm-up.
    """
    return judge("seconds_per_step", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    noise = [arena.draws.uniform(0.2, 0.4) for _ in range(9)]
    yield _case(arena, fn, [1.9, 1.3], [0.25] * 5, WARM, "2 slow calls, then 5 of 0.25 s")
    yield _case(arena, fn, [1.5], [0.2, 6.0, 0.35, 0.3, 0.25], MEDIAN, "one of 5 steps takes 6 s")
    yield _case(arena, fn, [], [0.5, 0.2, 0.3, 0.9], MEDIAN, "no warm-up, 4 steps")
    yield _case(arena, fn, [0.01, 0.02, 0.01], noise, WARM, "3 quick calls to warm up, then 9 steps")


def _case(arena: Arena, fn: Callable, warm: list[float], counted: list[float], value: str, name: str) -> Case:
    script = TimerScript(warm + counted, arena.draws.uniform(1000.0, 2000.0))
    return Case(
        f"warm_up={len(warm)}, steps={len(counted)} ({name})",
        lambda: arena.call(fn, script.step, script.clock, len(warm), len(counted)),
        lambda ended: {CALLS: _wrong_calls(script, warm, counted), value: _wrong_value(ended, script, warm, counted)},
    )


def _wrong_calls(script: TimerScript, warm: list[float], counted: list[float]) -> Complaint:
    expected = len(warm) + len(counted)
    if script.calls == expected:
        return None

    complaint = f"step was called {script.calls} times; expected {expected}, {len(warm)} to warm up and {len(counted)} that count"
    if warm and script.calls == len(counted):
        complaint += ". The warm-up calls come before the steps that count, they are not some of them"
    return complaint


def _wrong_value(ended: ArenaResult, script: TimerScript, warm: list[float], counted: list[float]) -> Complaint:
    got = number(ended.returned[0])
    if isinstance(got, str):
        return f"expected seconds, one number, {got}"
    if not script.reads:
        return "the clock was never read: call clock(), the one that is handed in, before and after a step"

    lowest, highest = statistics.median_low(counted), statistics.median_high(counted)
    if lowest - ROUNDING_S <= got <= highest + ROUNDING_S:
        return None

    expected = statistics.median(counted)
    complaint = f"expected {expected:.6g} s, got {got:.6g} s"
    return complaint + first_named(got, _mistakes(warm, counted)) + _odd(got)


def _mistakes(warm: list[float], counted: list[float]) -> dict[str, float]:
    mistakes = {
        "This is the mean: one slow step moves it. Take the median": statistics.fmean(counted),
        "This is the sum of the steps, not the seconds of one": sum(counted),
        "This is the fastest step. Take the median": min(counted),
        "This is the slowest step. Take the median": max(counted),
        "This is the last step alone. Keep the seconds of each": counted[-1],
        "This is the middle of the list as it was measured: sort the seconds first": counted[len(counted) // 2],
        "These are steps a second: turn it over": 1 / statistics.median(counted),
        "The clock was read once before all steps: read it again before each": statistics.median(accumulate(counted)),
    }
    if warm:
        every = warm + counted
        mistakes |= {
            "The warm-up is in it: begin to note the seconds after the warm-up calls": statistics.median(every),
            "The warm-up is in it, and this is a mean": statistics.fmean(every),
            "The warm-up is in it: its time was added to the steps": sum(every) / len(counted),
        }

    return mistakes


def _odd(got: float) -> str:
    if close(got, 0):
        return ". No time passed between the two readings: call step() between them"
    if got < 0:
        return ". It is negative: subtract the reading before from the reading after"
    if got > 900:
        return ". This is a reading of the clock: subtract two readings"
    return ""
