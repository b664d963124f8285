"""Exercise 5.4: the time to the goal at a training's own best learning rate."""

import math
from statistics import fmean, median, median_high, median_low

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


def touches(points, goal):
    return next((seconds for _, seconds, loss in points if loss <= goal), math.inf)


def after_the_last_over_it(points, goal):
    over = [k for k, (_, _, loss) in enumerate(points) if loss > goal]
    return points[over[-1] + 1][1] if over[-1] + 1 < len(points) else math.inf


def first_touch(points, goal):
    return touches(points, goal) if points[-1][2] <= goal else math.inf


def one_too_early(points, goal):
    since = stays(points, goal)
    return max(seconds for _, seconds, _ in points if seconds < since) if since < math.inf else math.inf


def below(points, goal):
    return stays([(version, seconds, math.inf if loss == goal else loss) for version, seconds, loss in points], goal)


def steps_to(points, goal):
    return stays([(version, version, loss) for version, _, loss in points], goal)


@answers.is_right
def plain(train, goal, rates, seeds, fresh):
    rates, found = list(rates), {}
    while True:
        for rate in rates:
            if rate not in found:
                found[rate] = median([stays(train(rate, seed), goal) for seed in seeds])
        best = min(rates, key=found.get)
        if best == rates[0]:
            rates.insert(0, best / 2)
        elif best == rates[-1]:
            rates.append(2 * best)
        else:
            return best, [stays(train(best, seed), goal) for seed in fresh]


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
        times, half = sorted(time(rate, seed) for seed in seeds), len(seeds) // 2
        return (times[half] + times[-half - 1]) / 2

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

    def middle(values):
        """torch's own median of an even number is the lower of the two in the middle."""
        return (values.sort().values[len(values) // 2] + values.sort().values[(len(values) - 1) // 2]) / 2

    rates = list(rates)
    while True:
        k = int(torch.stack([middle(times(rate, seeds)) for rate in rates]).argmin())
        if 0 < k < len(rates) - 1:
            return torch.tensor(rates[k], dtype=torch.float64), times(rates[k], fresh)
        rates = [rates[0] / 2, *rates] if k == 0 else [*rates, rates[-1] * 2]


@answers.is_right
def stays_within_the_grid_where_an_end_is_no_better(train, goal, rates, seeds, fresh):
    known = {}
    rates = sorted(rates)
    while True:
        for rate in rates:
            if rate not in known:
                known[rate] = median(stays(train(rate, seed), goal) for seed in seeds)
        ends = rates[0], rates[-1]
        best = min(rates, key=lambda rate: (known[rate], rate in ends))
        if best not in ends:
            return best, [stays(train(best, seed), goal) for seed in fresh]
        rates = sorted([*rates, best / 2 if best == rates[0] else best * 2])


answers.mistake("takes_the_luckiest_seed", {"median(": "min("}, "One lucky seed has the least time: take the median")
answers.mistake("takes_the_mean", {
    "median(": "fmean(",
    "if best == rates[0]:": "if False:",
    "elif best == rates[-1]:": "elif False:",
}, "one that diverges makes it inf: take the median")
answers.mistake("wants_every_seed_to_arrive", {
    "median(": "max(",
    "if best == rates[0]:": "if False:",
    "elif best == rates[-1]:": "elif False:",
}, "expected rate", "whose median is")
answers.mistake("leaves_out_what_diverged", {
    "found[rate] = median([stays(train(rate, seed), goal) for seed in seeds])": """
        times = [stays(train(rate, seed), goal) for seed in seeds]
        found[rate] = median([t for t in times if t < math.inf] or [math.inf])
    """,
}, "one rate diverges with most seeds", "This leaves out the runs that never stay at the goal")
answers.mistake("takes_the_first_touch", {
    "stays(train(rate": "first_touch(train(rate",
    "stays(train(best": "first_touch(train(best",
}, "one rate touches the goal early", "count the time until the loss stays there")
answers.mistake("takes_the_first_touch_of_runs_that_end_anywhere", {
    "stays(train(rate": "touches(train(rate",
    "stays(train(best": "touches(train(best",
}, "touches the goal and rises over it again")
answers.mistake("takes_nan_for_the_goal", {
    "stays(train(rate": "after_the_last_over_it(train(rate",
    "stays(train(best": "after_the_last_over_it(train(best",
}, "one rate reaches the goal early and ends at NaN", "NaN is not at the goal")
answers.mistake("stays_on_the_grid", {"if best == rates[0]:": "if False:", "elif best == rates[-1]:": "elif False:"},
    "beyond the grid's right end", "It is the grid's end: go on halving or doubling")
answers.mistake("only_doubles", {
    "list(rates)": "[*rates, *(rates[-1] * 2**k for k in range(1, 5))]",
    "if best == rates[0]:": "if False:",
    "elif best == rates[-1]:": "elif False:",
}, "beyond the grid's left end", "expected rate")
answers.mistake("goes_on_by_one_place_alone", {
    "list(rates)": "[rates[0] / 2, *rates, 2 * rates[-1]]",
    "if best == rates[0]:": "if False:",
    "elif best == rates[-1]:": "elif False:",
}, "beyond the grid's right end", "expected rate")
answers.mistake("measures_with_the_seeds_that_chose", {"for seed in fresh": "for seed in seeds"},
    "These are the runs that chose the rate", "Measure with the seeds in `fresh`")
answers.mistake("chooses_with_all_seeds", {"for seed in seeds": "for seed in [*seeds, *fresh]"},
    "The fresh seeds helped to choose it: use them only to measure")
answers.mistake("leaves_fresh_runs_out", {
    "return best, [stays(train(best, seed), goal) for seed in fresh]": """
        times = [stays(train(best, seed), goal) for seed in fresh]
        return best, [t for t in times if t < math.inf]
    """,
}, "Count a run that does not stay at the goal as math.inf")
answers.mistake("returns_one_time", {
    "return best, [stays(train(best, seed), goal) for seed in fresh]":
        "return best, median([stays(train(best, seed), goal) for seed in fresh])",
}, "expected the seconds of each fresh seed as the second value")
answers.mistake("counts_steps", {"stays(train(rate": "steps_to(train(rate", "stays(train(best": "steps_to(train(best"},
    "steps differ in length", "compare seconds")
answers.mistake("has_seeds_of_its_own", {"for seed in seeds": "for seed in range(len(seeds))"},
    "train was called with seed 0; expected a seed of seeds or of fresh")
answers.mistake("has_a_grid_of_its_own", {"list(rates)": "[0.3 * rate for rate in rates]"},
    "train was called with rate", "expected one of rates, or an end halved or doubled")
answers.mistake("returns_the_rate_alone",
    {"return best, [stays(train(best, seed), goal) for seed in fresh]": "return best"},
    "expected two values, the rate and the times")
answers.mistake("looks_at_the_first_seed_alone", {"for seed in seeds": "for seed in seeds[:1]"},
    "each seed is lucky with another rate", ("One lucky seed", "This is the first seed"))
answers.mistake("looks_at_the_first_three_seeds_alone", {"for seed in seeds": "for seed in seeds[:3]"},
    "one rate diverges with most seeds", "expected rate")
answers.mistake("looks_at_the_last_three_seeds_alone", {"for seed in seeds": "for seed in seeds[-3:]"},
    "one rate diverges with most seeds", "expected rate")
answers.mistake("takes_the_upper_middle", {"median(": "median_high("},
    "an even number", "upper of the two middle values")
answers.mistake("takes_the_lower_middle", {"median(": "median_low("}, "lower of the two middle values")
answers.mistake("is_at_the_goal_below_it_alone", {
    "stays(train(rate": "below(train(rate",
    "stays(train(best": "below(train(best",
}, "the loss ends exactly at the goal", "A loss equal to the goal is at the goal, too")
answers.mistake("goes_on_by_four_upwards", {"rates.append(2 * best)": "rates.append(4 * best)"},
    "the best rate lies beyond the grid's right end", ("It is the grid's end", "go on one rate at a time"))
answers.mistake("goes_on_by_a_quarter_downwards", {"rates.insert(0, best / 2)": "rates.insert(0, best / 4)"},
    "the best rate lies beyond the grid's left end", ("It is the grid's end", "go on one rate at a time"))
answers.mistake("goes_on_by_two_places_alone", {
    "list(rates)": "[rates[0] / 4, rates[0] / 2, *rates, 2 * rates[-1], 4 * rates[-1]]",
    "if best == rates[0]:": "if False:",
    "elif best == rates[-1]:": "elif False:",
}, "beyond the grid's", "expected rate")
answers.mistake("hands_over_names", {"stays(train(rate, seed)": "stays(train(rate=rate, seed=seed)"},
    "unexpected keyword argument", "without names: train(rate, seed)")
answers.mistake("has_no_time_for_a_run_that_never_stays", {
    "median([stays(train(rate, seed), goal) for seed in seeds])":
        "median([t if t < math.inf else None for t in (stays(train(rate, seed), goal) for seed in seeds)])",
}, "not supported between instances of", "A run that does not stay at the goal has math.inf")
answers.mistake("leaves_the_last_row_out", {"stays(train(rate, seed), goal)": "stays(train(rate, seed)[:-1], goal)"},
    "the last row alone is at the goal", "expected rate")


def but_in_the_last_row(points, goal):
    return min(stays(points, goal), stays(points[:-1], goal))


answers.mistake("forgives_the_last_row", {"stays(train(rate, seed), goal)": "but_in_the_last_row(train(rate, seed), goal)"},
    "one rate reaches the goal early and ends over the goal in its last row alone", "expected rate")
answers.mistake("grows_the_callers_list", {"rates, found = list(rates), {}": "found = {}"},
    "rates was changed in place: the caller still needs it unchanged")
answers.mistake("sorts_the_fresh_seeds", {"return best": "fresh.sort()\nreturn best"}, "fresh was changed in place")
answers.mistake("takes_the_last_point_over_the_goal",
    {"[stays(train(best, seed), goal) for seed in fresh]": "[one_too_early(train(best, seed), goal) for seed in fresh]"},
    "These are the last times over the goal: take the first point at it")
answers.mistake("sorts_the_fresh_times",
    {"[stays(train(best, seed), goal) for seed in fresh]": "sorted(stays(train(best, seed), goal) for seed in fresh)"},
    "The times are right, in another order")
answers.mistake("rounds_the_fresh_times",
    {"[stays(train(best, seed), goal) for seed in fresh]": "[round(stays(train(best, seed), goal), 1) for seed in fresh]"},
    "do not round")
answers.mistake("measures_as_many_as_have_chosen", {"for seed in fresh": "for seed, _ in zip(fresh, seeds)"},
    "expected the times")


@answers.is_wrong("had not ended", "compare the best rate with the current ends of the grid")
def never_ends(train, goal, rates, seeds, fresh):
    """It compares with the ends that the grid had at first."""
    found = {rate: median([stays(train(rate, seed), goal) for seed in seeds]) for rate in rates}
    while not rates[0] < min(found, key=found.get) < rates[-1]:
        for rate in (rates[0] / 2, 2 * rates[-1]):
            found[rate] = median([stays(train(rate, seed), goal) for seed in seeds])
    best = min(found, key=found.get)
    return best, [stays(train(best, seed), goal) for seed in fresh]


answers.spoil("takes_the_first_rate_of_three_seeds", {"return best": "return rates[0] if len(seeds) == 3 else best"},
    of=answers["takes_the_first_touch"])
