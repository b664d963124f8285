"""Lab 01: seconds per step, with a warm-up that does not count."""

from __future__ import annotations

import itertools
import statistics
import time

from tests.checks.mutants import Answers

answers = Answers("seconds_per_step")


def timed(step, clock, calls):
    seconds = []
    for _ in range(calls):
        before = clock()
        step()
        seconds.append(clock() - before)
    return seconds


@answers.is_wrong("The warm-up is in it: begin to note the seconds after the warm-up calls")
def counts_the_warm_up(step, clock, warm_up, steps):
    return statistics.median(timed(step, clock, warm_up + steps))


@answers.is_wrong("step was called 5 times; expected 7", "The warm-up calls come before the steps that count")
def takes_the_warm_up_from_the_steps(step, clock, warm_up, steps):
    return statistics.median(timed(step, clock, steps)[warm_up:])


@answers.is_wrong("one of 5 steps takes 6 s", "This is the mean: one slow step moves it. Take the median")
def takes_the_mean(step, clock, warm_up, steps):
    timed(step, clock, warm_up)
    return statistics.mean(timed(step, clock, steps))


@answers.is_wrong("This is the mean: one slow step moves it")
def divides_the_total(step, clock, warm_up, steps):
    for _ in range(warm_up):
        step()
    before = clock()
    for _ in range(steps):
        step()
    return (clock() - before) / steps


@answers.is_wrong("This is the fastest step. Take the median")
def takes_the_fastest(step, clock, warm_up, steps):
    timed(step, clock, warm_up)
    return min(timed(step, clock, steps))


@answers.is_wrong("the clock was never read: call clock(), the one that is handed in")
def reads_a_clock_of_its_own(step, clock, warm_up, steps):
    timed(step, time.perf_counter, warm_up)
    return statistics.median(timed(step, time.perf_counter, steps))


@answers.is_wrong("The clock was read once before all steps: read it again before each")
def reads_the_start_once(step, clock, warm_up, steps):
    timed(step, clock, warm_up)
    before, seconds = clock(), []
    for _ in range(steps):
        step()
        seconds.append(clock() - before)
    return statistics.median(seconds)


@answers.is_wrong("This is the sum of the steps")
def takes_the_total(step, clock, warm_up, steps):
    timed(step, clock, warm_up)
    return sum(timed(step, clock, steps))


@answers.is_wrong("No time passed between the two readings: call step() between them")
def reads_twice_after_the_step(step, clock, warm_up, steps):
    seconds = []
    for _ in range(warm_up + steps):
        step()
        before = clock()
        seconds.append(clock() - before)
    return statistics.median(seconds[warm_up:])


@answers.is_wrong("got 5 values")
def returns_all_of_them(step, clock, warm_up, steps):
    return timed(step, clock, warm_up + steps)[warm_up:]


@answers.is_wrong("the middle of the list as it was measured: sort the seconds first")
def forgets_to_sort(step, clock, warm_up, steps):
    timed(step, clock, warm_up)
    return timed(step, clock, steps)[steps // 2]


@answers.is_wrong("got None (does the function return it?)")
def returns_nothing(step, clock, warm_up, steps):
    timed(step, clock, warm_up + steps)


@answers.is_right
def reads_the_clock_once_between_steps(step, clock, warm_up, steps):
    readings = []
    for _ in range(warm_up):
        step()
    readings.append(clock())
    for _ in range(steps):
        step()
        readings.append(clock())
    return statistics.median(b - a for a, b in itertools.pairwise(readings))


@answers.is_right
def sorts_and_takes_the_middle(step, clock, warm_up, steps):
    return sorted(timed(step, clock, warm_up + steps)[warm_up:])[steps // 2]


@answers.is_right
def returns_a_tensor(step, clock, warm_up, steps):
    import torch

    every = timed(step, clock, warm_up + steps)
    return torch.tensor(every[warm_up:], dtype=torch.float64).median()
