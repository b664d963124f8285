"""Lab 01: seconds per step of finished work, with a warm-up that does not count."""

import itertools
import statistics
import time

from tests.checks.mutants import Answers

answers = Answers("seconds_per_step")
MIDDLES = statistics.median_low, statistics.median_high


@answers.is_right
def plain(step, clock, synchronize, warm_up, steps):
    seconds = []
    for _ in range(warm_up + steps):
        synchronize()
        before = clock()
        step()
        synchronize()
        seconds.append(clock() - before)
    return statistics.median(seconds[warm_up:])


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


answers.twin("sorts_and_takes_the_middle", {
    "return statistics.median(seconds[warm_up:])": """
        found = sorted(seconds[warm_up:])
        return (found[(steps - 1) // 2] + found[steps // 2]) / 2
    """,
})
answers.twin("returns_a_tensor", {
    "return statistics.median(seconds[warm_up:])": """
        import torch

        return torch.tensor(seconds[warm_up:], dtype=torch.float64).quantile(0.5)
    """,
})
answers.twin("takes_the_mean_of_the_two_medians",
    {"statistics.median(seconds[warm_up:])": "statistics.fmean(f(seconds[warm_up:]) for f in MIDDLES)"})


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


answers.twin("makes_a_step_that_waits", {
    "synchronize()\nbefore": "before",
    "step()\nsynchronize()": "finished_step()",
    "seconds = []": """
        def finished_step():
            step()
            synchronize()

        seconds = []
    """,
})
answers.twin("synchronizes_more_often_than_it_must", {
    """
        synchronize()
        before
    """: """
        synchronize()
        synchronize()
        before
    """,
    """
        step()
        synchronize()
    """: """
        step()
        synchronize()
        synchronize()
    """,
})

answers.mistake("counts_the_warm_up", {"seconds[warm_up:]": "seconds"},
    "The warm-up is in it: note seconds only after the warm-up calls")
answers.mistake("takes_the_warm_up_from_the_steps", {
    "range(warm_up + steps)": "range(steps)",
    "seconds[warm_up:]": "seconds[warm_up:] or [0.25]",
}, "step was called 5 times; expected 7", "Make the warm-up calls in addition to the steps that count")
answers.mistake("never_warms_up", {"range(warm_up + steps)": "range(steps)", "seconds[warm_up:]": "seconds"},
    "step was called 5 times; expected 7")
answers.mistake("takes_the_mean", {"statistics.median": "statistics.mean"}, "This is the mean: one slow step moves it")


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


answers.mistake("takes_the_fastest", {"statistics.median": "min"}, "This is the fastest step. Take the median")
answers.mistake("takes_the_fastest_of_three_or_fewer", {"statistics.median": "(min if steps <= 3 else statistics.median)"},
    "This is the fastest step. Take the median")
answers.mistake("takes_the_upper_middle",
    {"statistics.median(seconds[warm_up:])": "sorted(seconds[warm_up:])[steps // 2]"},
    "this takes the upper of the two middle values: the median is their mean")
answers.mistake("takes_the_lower_middle", {"statistics.median": "statistics.median_low"},
    "this takes the lower of the two middle values: the median is their mean")
answers.mistake("takes_torchs_median", {
    "return statistics.median(seconds[warm_up:])": """
        import torch

        return torch.tensor(seconds[warm_up:], dtype=torch.float64).median()
    """,
}, "this takes the lower of the two middle values: the median is their mean")
answers.mistake("averages_all_but_the_ends", {
    "statistics.median(seconds[warm_up:])":
        "statistics.fmean(sorted(seconds[warm_up:])[1:-1] or seconds[warm_up:])",
}, "This is the mean without the fastest and the slowest: with more steps this is no median")
answers.mistake("reads_a_clock_of_its_own", {"seconds = []": "seconds, clock = [], time.perf_counter"},
    "the clock was never read: call clock(), the given one")
answers.mistake("reads_the_start_once", {
    """
        synchronize()
        before = clock()
    """: """
        if len(seconds) <= warm_up:
            before = clock()
    """,
}, "The clock was read once before all steps: read it again before each")
answers.mistake("takes_the_total", {"statistics.median": "sum"}, "This is the sum of the steps")
answers.mistake("reads_twice_after_the_step", {
    """
        synchronize()
        before = clock()
        step()
    """: "step()",
    """
        synchronize()
        seconds
    """: """
        synchronize()
        before = clock()
        seconds
    """,
}, "No time passed between the two readings: call step() between them")
answers.mistake("returns_all_of_them", {"statistics.median(seconds[warm_up:])": "seconds[warm_up:]"}, "got 5 values")
answers.mistake("forgets_to_sort", {"statistics.median(seconds[warm_up:])": "seconds[warm_up:][steps // 2]"},
    "the middle of the list as it was measured: sort the seconds first")
answers.mistake("returns_nothing", {"return statistics": "statistics"}, "got None (does the function return it?)")

answers.mistake("takes_a_reading_of_0_for_none", {
    "before = clock()": "before = clock() or None",
    "seconds.append(clock() - before)": """
        if before:
            seconds.append(clock() - before)
    """,
}, "whose clock begins at 0", "The first step is not in it: 0 is a reading of the clock like any other")
LAUNCH = "This is the time to launch a step: step() returned while its work went on."


answers.mistake("never_synchronizes", {"synchronize()\nbefore": "before", "step()\nsynchronize()": "step()"},
    LAUNCH, "synchronize() was never called")
answers.mistake("names_it_and_does_not_call_it", {
    "synchronize()\nbefore": "before",
    "step()\nsynchronize()": "step()\nsynchronize",
}, LAUNCH, "synchronize() was never called")
answers.mistake("synchronizes_before_the_step_alone", {"step()\nsynchronize()": "step()"},
    LAUNCH, "Synchronize between step() and the clock reading that ends it")
answers.mistake("reads_the_clock_and_then_synchronizes", {
    """
        step()
        synchronize()
    """: """
        step()
        after = clock()
        synchronize()
    """,
    "clock() - before": "after - before",
}, LAUNCH, "Synchronize between step() and the clock reading that ends it")
answers.mistake("synchronizes_after_all_steps", {
    "synchronize()\nbefore": "before",
    "step()\nsynchronize()": "step()",
    "return": "synchronize()\nreturn",
}, LAUNCH)


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


@answers.is_wrong("No time passed between the two readings: call step() and then synchronize() between them")
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


@answers.is_wrong("Read the clock only when all work so far is done")
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


answers.spoil("steps_once_more_after_a_warm_up", {"seconds = []": """
    if warm_up:
        step()
    seconds = []
"""}, of=leaves_the_warm_up_in_the_queue)
answers.spoil("steps_once_more_where_the_number_is_even", {"seconds = []": """
    if steps % 2 == 0:
        step()
    seconds = []
"""}, of=answers["takes_the_upper_middle"])
