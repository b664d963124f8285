"""Exercise 5.4: the time to the goal at a training's own best learning rate."""

from __future__ import annotations

import math
from statistics import fmean, median

from tests.checks.mutants import Answers

answers = Answers("time_at_best_rate")


def stays(points, goal):
    since = math.inf
    for _, seconds, loss in points:
        if not loss <= goal:
            since = math.inf
        elif since == math.inf:
            since = seconds
    return since


def referee(train, goal, rates, seeds, fresh, time=stays, middle=median, goes_on=True, measure=None):
    """A right answer but for what the other arguments spoil."""
    rates, found = list(rates), {}
    while True:
        for rate in rates:
            if rate not in found:
                found[rate] = middle([time(train(rate, seed), goal) for seed in seeds])
        best = min(rates, key=found.get)
        if goes_on and best == rates[0]:
            rates.insert(0, best / 2)
        elif goes_on and best == rates[-1]:
            rates.append(2 * best)
        else:
            return best, [time(train(best, seed), goal) for seed in (fresh if measure is None else measure)]


def touches(points, goal):
    return next((seconds for _, seconds, loss in points if loss <= goal), math.inf)


def after_the_last_over_it(points, goal):
    over = [k for k, (_, _, loss) in enumerate(points) if loss > goal]
    return points[over[-1] + 1][1] if over[-1] + 1 < len(points) else math.inf


# ---- wrong -------------------------------------------------------------------------------------


@answers.is_wrong("One lucky seed has the least time: take the median")
def takes_the_luckiest_seed(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh, middle=min)


@answers.is_wrong("one that diverges makes it inf: take the median")
def takes_the_mean(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh, middle=fmean, goes_on=False)


@answers.is_wrong("expected rate", "whose median is")
def wants_every_seed_to_arrive(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh, middle=max, goes_on=False)


@answers.is_wrong("one rate diverges with most of them", "This leaves out the runs that never stay at the goal")
def leaves_out_what_diverged(train, goal, rates, seeds, fresh):
    def of_survivors(times):
        return median([t for t in times if t < math.inf] or [math.inf])

    return referee(train, goal, rates, seeds, fresh, middle=of_survivors)


@answers.is_wrong("one rate touches the goal early", "the time counts from where it stays")
def takes_the_first_touch(train, goal, rates, seeds, fresh):
    def end_matters(points, goal):
        return touches(points, goal) if points[-1][2] <= goal else math.inf

    return referee(train, goal, rates, seeds, fresh, time=end_matters)


@answers.is_wrong("touches the goal and rises over it again")
def takes_the_first_touch_of_runs_that_end_anywhere(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh, time=touches)


@answers.is_wrong("one rate is there early and ends at NaN", "NaN is not at the goal")
def takes_nan_for_the_goal(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh, time=after_the_last_over_it)


@answers.is_wrong("beyond the grid's right end", "It is the grid's end: halve or double on")
def stays_on_the_grid(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh, goes_on=False)


@answers.is_wrong("beyond the grid's left end", "expected rate")
def only_doubles(train, goal, rates, seeds, fresh):
    return referee(train, goal, [*rates, *[rates[-1] * 2**k for k in range(1, 5)]], seeds, fresh, goes_on=False)


@answers.is_wrong("beyond the grid's right end", "expected rate")
def goes_on_by_one_place_alone(train, goal, rates, seeds, fresh):
    return referee(train, goal, [rates[0] / 2, *rates, 2 * rates[-1]], seeds, fresh, goes_on=False)


@answers.is_wrong("These are the runs by which the rate was chosen", "Measure with the seeds in `fresh`")
def measures_with_the_seeds_that_chose(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh, measure=seeds)


@answers.is_wrong("The fresh seeds have chosen it: they only measure")
def chooses_with_all_seeds(train, goal, rates, seeds, fresh):
    best, _ = referee(train, goal, rates, [*seeds, *fresh], fresh)
    return best, [stays(train(best, seed), goal) for seed in fresh]


@answers.is_wrong("A run that does not stay at the goal counts, with math.inf")
def leaves_fresh_runs_out(train, goal, rates, seeds, fresh):
    best, times = referee(train, goal, rates, seeds, fresh)
    return best, [t for t in times if t < math.inf]


@answers.is_wrong("expected as second value the seconds of each fresh seed")
def returns_one_time(train, goal, rates, seeds, fresh):
    best, times = referee(train, goal, rates, seeds, fresh)
    return best, median(times)


@answers.is_wrong("steps differ in length", "seconds count")
def counts_steps(train, goal, rates, seeds, fresh):
    def steps(points, goal):
        return stays([(version, version, loss) for version, _, loss in points], goal)

    return referee(train, goal, rates, seeds, fresh, time=steps)


@answers.is_wrong("train was asked for seed 0; expected one of seeds or of fresh")
def has_seeds_of_its_own(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, range(len(seeds)), fresh)


@answers.is_wrong("train was asked for rate", "expected one of rates, or its end halved or doubled")
def has_a_grid_of_its_own(train, goal, rates, seeds, fresh):
    return referee(train, goal, [0.3 * rate for rate in rates], seeds, fresh)


@answers.is_wrong("expected two values, the rate and the times")
def returns_the_rate_alone(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh)[0]


@answers.is_wrong("each is lucky with a rate of its own", ("One lucky seed", "This is the first seed"))
def looks_at_the_first_seed_alone(train, goal, rates, seeds, fresh):
    best, _ = referee(train, goal, rates, seeds[:1], fresh)
    return best, [stays(train(best, seed), goal) for seed in fresh]


@answers.is_wrong("one rate diverges with most of them", "expected rate")
def looks_at_the_first_three_seeds_alone(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds[:3], fresh)


@answers.is_wrong("one rate diverges with most of them", "expected rate")
def looks_at_the_last_three_seeds_alone(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds[-3:], fresh)


# ---- right, in odd styles ----------------------------------------------------------------------


@answers.is_right
def plain(train, goal, rates, seeds, fresh):
    return referee(train, goal, rates, seeds, fresh)


@answers.is_right
def walks_from_the_end_backwards(train, goal, rates, seeds, fresh):
    def time(rate, seed):
        points = train(rate, seed)
        at = math.inf
        for _, seconds, loss in reversed(points):
            if math.isnan(loss) or loss > goal:
                break
            at = seconds
        return at

    def middle(rate):
        return sorted(time(rate, seed) for seed in seeds)[len(seeds) // 2]

    known = {rate: middle(rate) for rate in rates}
    while min(known, key=known.get) == max(known):
        known[2 * max(known)] = middle(2 * max(known))
    while min(known, key=known.get) == min(known):
        known[min(known) / 2] = middle(min(known) / 2)
    best = min(known, key=known.get)
    return best, tuple(time(best, seed) for seed in fresh)


@answers.is_right
def looks_far_beyond_the_grid_at_once(train, goal, rates, seeds, fresh):
    wide = [rates[0] / 2**k for k in range(5, 0, -1)] + list(rates) + [rates[-1] * 2**k for k in range(1, 6)]
    times = {(rate, seed): stays(train(rate, seed), goal) for rate in wide for seed in (*fresh, *seeds)}
    best = min(wide, key=lambda rate: median(times[rate, seed] for seed in seeds))
    return best, [times[best, seed] for seed in fresh]


@answers.is_right
def computes_in_tensors(train, goal, rates, seeds, fresh):
    import torch

    def times(rate, which):
        rows = []
        for seed in which:
            table = torch.tensor(train(rate, seed), dtype=torch.float64)
            bad = torch.nonzero(~(table[:, 2] <= goal)).flatten()
            last = int(bad[-1]) + 1 if len(bad) else 0
            rows.append(table[last, 1].item() if last < len(table) else math.inf)
        return torch.tensor(rows, dtype=torch.float64)

    rates = list(rates)
    while True:
        k = int(torch.stack([times(rate, seeds).median() for rate in rates]).argmin())
        if 0 < k < len(rates) - 1:
            return torch.tensor(rates[k], dtype=torch.float64), times(rates[k], fresh)
        rates = [rates[0] / 2, *rates] if k == 0 else [*rates, rates[-1] * 2]
