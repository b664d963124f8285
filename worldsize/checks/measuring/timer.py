"""Check lab 01's timer with a scripted device on a virtual clock, so that no property depends on real time.

The device works as a GPU does: `step` queues work and returns, `synchronize` waits until the queue is empty. On a CPU
`step` returns when its work is done. Left out: the quality of real measurements, and events on the device itself
(`torch.cuda.Event`).
PyTorch's notes on CUDA semantics, "Asynchronous execution": launches are asynchronous, and a reading of the clock must
wait.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import close, first_named, lone_number
from worldsize.checks.verdict import UNEXAMINED, Complaint

MEDIAN = "the median, which one slow step does not move"
WARM = "the warm-up is called and does not count"
FINISHED = "the seconds of finished work, where step() comes back before"
UNSCRIPTED_S = 0.125  # of a call after the script's end
ROUNDING_S = 1e-6  # float rounding, where the clock shows thousands of seconds


class TimerScript:
    """A device on a virtual clock that begins at `start_s`; each call of `step` gives the device the next of `lasts_s` to do.

    A launch takes `launch_s` of the caller's time: 0 for a CPU, whose step also waits for its work.
    """

    def __init__(self, lasts_s: Sequence[float], start_s: float, launch_s: float = 0.0) -> None:
        self._lasts_s, self._launch_s = iter(lasts_s), launch_s
        self._now_s = self._idle_s = start_s  # the device is idle from `_idle_s` on
        self.calls = self.reads = self.synchronized = 0

    def step(self) -> None:
        self.calls += 1
        self._now_s += self._launch_s
        self._idle_s = max(self._idle_s, self._now_s) + next(self._lasts_s, UNSCRIPTED_S)
        if not self._launch_s:
            self._now_s = self._idle_s

    def synchronize(self) -> None:
        self.synchronized += 1
        self._now_s = max(self._now_s, self._idle_s)

    def clock(self) -> float:
        self.reads += 1
        return self._now_s


@exercise({MEDIAN: 0.25, WARM: 0.25, FINISHED: 0.5}, seen=dict.fromkeys((MEDIAN, WARM, FINISHED), evidence.CALLS))
def seconds_per_step(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a timer for training steps.

    `seconds_per_step(step, clock, synchronize, warm_up, steps)` returns the median seconds of the calls after the warm-up,
    each with its work finished.
    """
    a, b, c, d = _rising(arena)
    yield _case(arena, fn, [], [a, 6.0, d, c, b], MEDIAN, "a CPU; one of 5 steps takes 6 s")

    a, b, c, d = _rising(arena)
    yield _case(arena, fn, [], [c, a, 2 * d, b], MEDIAN, "a CPU; no warm-up, 4 steps")

    a, b, c, d = _rising(arena)
    yield _case(arena, fn, [], [b, a], MEDIAN, "a CPU; no warm-up, 2 steps")
    yield _case(arena, fn, [], [d, 3 * d, b, a, c, 2 * d], MEDIAN, "a CPU; no warm-up, 6 steps")

    a, b, c, _ = _rising(arena)
    yield _case(arena, fn, [], [a, c, b], MEDIAN, "a CPU; no warm-up, 3 steps")
    a, b, c, _ = _rising(arena)
    yield _case(arena, fn, [], [a, c, b], MEDIAN, "a CPU whose clock begins at 0; no warm-up, 3 steps", start_s=0.0)

    yield _case(arena, fn, [1.9, 1.3], [0.25] * 5, WARM, "a CPU; 2 slow calls, then 5 of 0.25 s")
    yield _case(arena, fn, [0.01, 0.02, 0.01], _drawn(arena, 9), WARM, "a CPU; 3 quick calls to warm up, then 9 steps")

    launch_s = arena.draws.uniform(0.001, 0.002)
    growing = sorted(_drawn(arena, 5))  # an answer that is late by a step has another median
    yield _case(arena, fn, [], growing, FINISHED, "a device that works on its own; 5 steps", launch_s)

    queued = [*_drawn(arena, 2), 1.7]
    yield _case(arena, fn, queued, _drawn(arena, 1), FINISHED, "a device that works on its own; 1 step", launch_s)
    yield _case(arena, fn, _drawn(arena, 2), _drawn(arena, 8), FINISHED, "a device that works on its own; 8 steps", launch_s)


def _drawn(arena: Arena, count: int) -> list[float]:
    return [arena.draws.uniform(0.2, 0.4) for _ in range(count)]


def _rising(arena: Arena) -> list[float]:
    """Return four times to measure from 0.2 s on, each 0.05 s or more longer than the last, so that no two slips agree."""
    return list(accumulate((arena.draws.uniform(0.05, 0.1) for _ in range(3)), initial=arena.draws.uniform(0.2, 0.25)))


def _case(
    arena: Arena, fn: Callable, warm: list[float], counted: list[float], what: str, name: str, launch_s: float = 0.0,
    start_s: float | None = None,
) -> Case:  # fmt: skip
    if start_s is None:
        start_s = arena.draws.uniform(1000.0, 2000.0)
    script = TimerScript(warm + counted, start_s, launch_s)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        expected = len(warm) + len(counted)
        if script.calls == expected:
            return {what: _wrong_value(ended, script, warm, counted, launch_s)}

        came = f"step was called {script.calls} times; expected {expected}"
        complaint = f"{came}, {len(warm)} to warm up and {len(counted)} that count"
        if warm and script.calls == len(counted):
            complaint += ". Make the warm-up calls in addition to the steps that count, and before them"
        return {what: UNEXAMINED, WARM: complaint}

    run = partial(arena.call, fn, script.step, script.clock, script.synchronize, len(warm), len(counted))
    return Case(f"warm_up={len(warm)}, steps={len(counted)} ({name})", run, examine)


def _wrong_value(
    ended: ArenaResult, script: TimerScript, warm: list[float], counted: list[float], launch_s: float
) -> Complaint:
    got = lone_number(ended.returned[0])
    if isinstance(got, str):
        return f"expected seconds, one number, {got}"
    if not script.reads:
        return "the clock was never read: call clock(), the given one, before and after a step"

    finished = [launch_s + lasts_s for lasts_s in counted]
    expected = statistics.median(finished)
    if close(got, expected, near_zero=ROUNDING_S):
        return None

    complaint = f"expected {expected:.6g} s, got {got:.6g} s"
    if launch_s:
        return complaint + _too_early(got, script, warm, finished, launch_s)

    complaint += first_named(got, _mistakes(warm, finished))
    if close(got, 0):
        return f"{complaint}. No time passed between the two readings: call step() between them"
    if got < 0:
        return f"{complaint}. It is negative: subtract the reading before from the reading after"
    if got > 900:
        return f"{complaint}. This is a reading of the clock: subtract two readings"
    return complaint


def _too_early(got: float, script: TimerScript, warm: list[float], finished: list[float], launch_s: float) -> str:
    """Return the complaint about a timer's clock read at the wrong moment, on a device that works on by itself."""
    never = " synchronize() was never called." * (not script.synchronized)
    if close(got, launch_s, near_zero=ROUNDING_S):
        return (
            f". This is the time to launch a step: step() returned while its work went on.{never} "
            "Synchronize between step() and the clock reading that ends it"
        )
    if close(got, 0, near_zero=ROUNDING_S):
        return ". No time passed between the two readings: call step() and then synchronize() between them"

    left_s = sum(warm) - (len(warm) - 1) * launch_s
    if warm and len(finished) == 1 and close(got, finished[0] + left_s - launch_s, near_zero=ROUNDING_S):
        return ". The warm-up's work was still in the queue when the clock was first read: synchronize before that reading, too"
    return f". Read the clock only when all work so far is done.{never}"


def _mistakes(warm: list[float], counted: list[float]) -> dict[str, float]:
    mistakes = {
        "This is the mean: one slow step moves it. Take the median": statistics.fmean(counted),
        "This is the mean without the fastest and the slowest: with more steps this is no median": (
            statistics.fmean(sorted(counted)[1:-1] or counted)
        ),
        "This is the sum of the steps, not the seconds of one": sum(counted),
    }

    if len(counted) % 2 == 0 and len(counted) > 2:  # of two steps the middle ones are the fastest and the slowest
        takes = "For an even number of steps this takes the {} of the two middle values: the median is their mean"
        mistakes[takes.format("upper")] = statistics.median_high(counted)
        mistakes[takes.format("lower")] = statistics.median_low(counted)

    mistakes |= {
        "This is the fastest step. Take the median": min(counted),
        "This is the slowest step. Take the median": max(counted),
        "This is the last step alone. Keep the seconds of each": counted[-1],
        "The first step is not in it: 0 is a reading of the clock like any other": statistics.median(counted[1:] or counted),
        "This is the middle of the list as it was measured: sort the seconds first": counted[len(counted) // 2],
        "These are steps per second: invert it": 1 / statistics.median(counted),
        "The clock was read once before all steps: read it again before each": statistics.median(accumulate(counted)),
    }

    if warm:
        every = warm + counted
        mistakes |= {
            "The warm-up is in it: note seconds only after the warm-up calls": statistics.median(every),
            "The warm-up is in it, and this is a mean": statistics.fmean(every),
            "The warm-up is in it: its time was added to the steps": sum(every) / len(counted),
        }
    return mistakes
