"""Lab 01: seconds per step of finished work, with a warm-up that does not count."""

from __future__ import annotations

import itertools
import statistics
import time

from tests.checks.mutants import Answers

answers = Answers("seconds_per_step")


def timed(step, clock, synchronize, calls):
    """The seconds of each call; all work before it is done when its clock begins."""
    seconds = []
    for _ in range(calls):
        synchronize()
        before = clock()
        step()
        synchronize()
        seconds.append(clock() - before)
    return seconds


def nothing():
    """In the place of synchronize: what a timer for a CPU does."""


# ---- on every device -------------------------------------------------------------------------


@answers.is_wrong("The warm-up is in it: begin to note the seconds after the warm-up calls")
def counts_the_warm_up(step, clock, synchronize, warm_up, steps):
    return statistics.median(timed(step, clock, synchronize, warm_up + steps))


@answers.is_wrong("step was called 5 times; expected 7", "The warm-up calls come before the steps that count")
def takes_the_warm_up_from_the_steps(step, clock, synchronize, warm_up, steps):
    return statistics.median(timed(step, clock, synchronize, steps)[warm_up:] or [0.25])


@answers.is_wrong("step was called 5 times; expected 7")
def never_warms_up(step, clock, synchronize, warm_up, steps):
    return statistics.median(timed(step, clock, synchronize, steps))


@answers.is_wrong("This is the mean: one slow step moves it")
def takes_the_mean(step, clock, synchronize, warm_up, steps):
    timed(step, clock, synchronize, warm_up)
    return statistics.mean(timed(step, clock, synchronize, steps))


@answers.is_wrong("This is the mean: one slow step moves it")
def divides_the_total(step, clock, synchronize, warm_up, steps):
    for _ in range(warm_up):
        step()
    synchronize()
    before = clock()
    for _ in range(steps):
        step()
    synchronize()
    return (clock() - before) / steps


@answers.is_wrong("This is the fastest step. Take the median")
def takes_the_fastest(step, clock, synchronize, warm_up, steps):
    timed(step, clock, synchronize, warm_up)
    return min(timed(step, clock, synchronize, steps))


@answers.is_wrong("the clock was never read: call clock(), the one that is handed in")
def reads_a_clock_of_its_own(step, clock, synchronize, warm_up, steps):
    timed(step, time.perf_counter, synchronize, warm_up)
    return statistics.median(timed(step, time.perf_counter, synchronize, steps))


@answers.is_wrong("The clock was read once before all steps: read it again before each")
def reads_the_start_once(step, clock, synchronize, warm_up, steps):
    timed(step, clock, synchronize, warm_up)
    before, seconds = clock(), []
    for _ in range(steps):
        step()
        synchronize()
        seconds.append(clock() - before)
    return statistics.median(seconds)


@answers.is_wrong("This is the sum of the steps")
def takes_the_total(step, clock, synchronize, warm_up, steps):
    timed(step, clock, synchronize, warm_up)
    return sum(timed(step, clock, synchronize, steps))


@answers.is_wrong("No time passed between the two readings: call step() between them")
def reads_twice_after_the_step(step, clock, synchronize, warm_up, steps):
    seconds = []
    for _ in range(warm_up + steps):
        step()
        synchronize()
        before = clock()
        seconds.append(clock() - before)
    return statistics.median(seconds[warm_up:])


@answers.is_wrong("got 5 values")
def returns_all_of_them(step, clock, synchronize, warm_up, steps):
    return timed(step, clock, synchronize, warm_up + steps)[warm_up:]


@answers.is_wrong("the middle of the list as it was measured: sort the seconds first")
def forgets_to_sort(step, clock, synchronize, warm_up, steps):
    timed(step, clock, synchronize, warm_up)
    return timed(step, clock, synchronize, steps)[steps // 2]


@answers.is_wrong("got None (does the function return it?)")
def returns_nothing(step, clock, synchronize, warm_up, steps):
    timed(step, clock, synchronize, warm_up + steps)


# ---- where step() comes back before its work is done -------------------------------------------

LAUNCH = "This is how long it takes to launch a step: step() came back, and its work went on."


@answers.is_wrong(LAUNCH, "synchronize() was never called")
def never_synchronizes(step, clock, synchronize, warm_up, steps):
    return statistics.median(timed(step, clock, nothing, warm_up + steps)[warm_up:])


@answers.is_wrong(LAUNCH, "synchronize() was never called")
def names_it_and_does_not_call_it(step, clock, synchronize, warm_up, steps):
    seconds = []
    for _ in range(warm_up + steps):
        before = clock()
        step()
        synchronize  # noqa: B018 the mistake
        seconds.append(clock() - before)
    return statistics.median(seconds[warm_up:])


@answers.is_wrong(LAUNCH, "Synchronize between step() and the reading that ends it")
def synchronizes_before_the_step_alone(step, clock, synchronize, warm_up, steps):
    seconds = []
    for _ in range(warm_up + steps):
        synchronize()
        before = clock()
        step()
        seconds.append(clock() - before)
    return statistics.median(seconds[warm_up:])


@answers.is_wrong(LAUNCH, "Synchronize between step() and the reading that ends it")
def reads_the_clock_and_then_synchronizes(step, clock, synchronize, warm_up, steps):
    seconds = []
    for _ in range(warm_up + steps):
        before = clock()
        step()
        after = clock()
        synchronize()
        seconds.append(after - before)
    return statistics.median(seconds[warm_up:])


@answers.is_wrong(LAUNCH)
def synchronizes_after_all_steps(step, clock, synchronize, warm_up, steps):
    seconds = timed(step, clock, nothing, warm_up + steps)[warm_up:]
    synchronize()
    return statistics.median(seconds)


@answers.is_wrong("The warm-up's work was still in the queue when the clock was first read")
def leaves_the_warm_up_in_the_queue(step, clock, synchronize, warm_up, steps):
    for _ in range(warm_up):
        step()
    seconds = []
    for _ in range(steps):
        before = clock()
        step()
        synchronize()
        seconds.append(clock() - before)
    return statistics.median(seconds)


@answers.is_wrong("No time passed between the two readings: step() and then synchronize() belong between them")
def launches_before_the_first_reading(step, clock, synchronize, warm_up, steps):
    """On a CPU it does time the step, in a way of its own; on a device the work is done before its clock begins."""
    seconds, last = [], clock()
    for _ in range(warm_up + steps):
        step()
        now = clock()
        on_a_cpu = now - last
        synchronize()
        last = clock()
        seconds.append(on_a_cpu if last == now else clock() - last)
    return statistics.median(seconds[warm_up:])


@answers.is_wrong("A reading of the clock counts only when all work so far is done")
def synchronizes_after_the_reading_between_steps(step, clock, synchronize, warm_up, steps):
    for _ in range(warm_up):
        step()
    synchronize()
    readings = [clock()]
    for _ in range(steps):
        step()
        readings.append(clock())
        synchronize()
    return statistics.median(b - a for a, b in itertools.pairwise(readings))


# ---- right, in odd styles ----------------------------------------------------------------------


@answers.is_right
def reads_the_clock_once_between_steps(step, clock, synchronize, warm_up, steps):
    readings = []
    for _ in range(warm_up):
        step()
    synchronize()
    readings.append(clock())
    for _ in range(steps):
        step()
        synchronize()
        readings.append(clock())
    return statistics.median(b - a for a, b in itertools.pairwise(readings))


@answers.is_right
def sorts_and_takes_the_middle(step, clock, synchronize, warm_up, steps):
    return sorted(timed(step, clock, synchronize, warm_up + steps)[warm_up:])[steps // 2]


@answers.is_right
def returns_a_tensor(step, clock, synchronize, warm_up, steps):
    import torch

    every = timed(step, clock, synchronize, warm_up + steps)
    return torch.tensor(every[warm_up:], dtype=torch.float64).median()


@answers.is_right
def makes_a_clock_that_waits(step, clock, synchronize, warm_up, steps):
    def done_at():
        synchronize()
        return clock()

    for _ in range(warm_up):
        step()
    seconds = []
    for _ in range(steps):
        began = done_at()
        step()
        seconds.append(done_at() - began)
    return statistics.median(seconds)


@answers.is_right
def makes_a_step_that_waits(step, clock, synchronize, warm_up, steps):
    def finished_step():
        step()
        synchronize()

    return statistics.median(timed(finished_step, clock, nothing, warm_up + steps)[warm_up:])


@answers.is_right
def synchronizes_more_often_than_it_must(step, clock, synchronize, warm_up, steps):
    synchronize()
    every = timed(step, clock, lambda: (synchronize(), synchronize()), warm_up + steps)
    synchronize()
    return statistics.median_high(every[warm_up:])
