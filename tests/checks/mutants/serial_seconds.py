"""Lab 01: the seconds that no worker shares, from measured times."""

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("serial_seconds")


@answers.is_right
def by_least_squares(workers, one_s, many_s):
    both = [(1 - 1 / n, many - one / n) for n, one, many in zip(workers, one_s, many_s, strict=True)]
    seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)
    return float(min(min(one_s), max(0.0, seconds)))


def nearest_of(tried, workers, one_s, many_s):
    misses = [sum((s + (one - s) / n - many) ** 2 for n, one, many in zip(workers, one_s, many_s, strict=True)) for s in tried]
    return float(tried[int(np.argmin(misses))])


answers.twin("averages_the_points",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "np.mean([y / x for x, y in both if x])"})
answers.twin("takes_the_median_of_the_points",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "np.median([y / x for x, y in both if x])"})


@answers.is_right
def searches_in_a_thousand_steps(workers, one_s, many_s):
    return nearest_of(np.linspace(0, min(one_s), 1001), workers, one_s, many_s)


answers.twin("weighs_by_the_time", {"(1 - 1 / n, many - one / n)": "((1 - 1 / n) / many, (many - one / n) / many)"})
answers.twin("multiplies_by_n_first", {"(1 - 1 / n, many - one / n)": "(n - 1, n * many - one)"})


@answers.is_right
def minimizes_with_scipy(workers, one_s, many_s):
    from scipy.optimize import minimize_scalar

    def miss(s):
        return sum((s + (one - s) / n - many) ** 2 for n, one, many in zip(workers, one_s, many_s, strict=True))

    best = minimize_scalar(miss, bounds=(0, min(one_s)), method="bounded", options={"xatol": 1e-12}).x
    return min((0.0, best, min(one_s)), key=miss)


@answers.is_right
def works_with_tensors(workers, one_s, many_s):
    import torch

    n, one, many = (torch.tensor(row, dtype=torch.float64) for row in (workers, one_s, many_s))
    x, y = 1 - 1 / n, many - one / n
    return torch.clamp(x @ y / (x @ x), torch.tensor(0.0, dtype=torch.float64), one.min())


@answers.is_right
def solves_for_every_job_and_s_at_once(workers, one_s, many_s):
    """Every job's own one_s as an unknown with a great weight, so that it stays; s is the last unknown."""
    k, sure = len(workers), 1e6
    rows, right = np.zeros((2 * k, k + 1)), np.zeros(2 * k)
    for i, (n, one, many) in enumerate(zip(workers, one_s, many_s, strict=True)):
        rows[i, i], right[i] = sure, sure * one
        rows[k + i, i], rows[k + i, k], right[k + i] = 1 / n, 1 - 1 / n, many
    return float(np.clip(np.linalg.lstsq(rows, right, rcond=None)[0][-1], 0.0, min(one_s)))


answers.mistake("takes_the_first_job_for_all", {"many - one / n": "many - one_s[0] / n"},
    "The first job's one_s was taken for all jobs")
answers.mistake("returns_amdahls_fraction", {"max(0.0, seconds)))": "max(0.0, seconds))) / one_s[-1]"},
    "This is the fraction of one worker's time; return the seconds")
answers.mistake("returns_gustafsons_fraction", {"max(0.0, seconds)))": "max(0.0, seconds))) / many_s[-1]"},
    "This is the fraction of the workers' time; return the seconds")
answers.mistake("returns_the_shared_seconds", {"return float": "return one_s[-1] - float"},
    "These are the seconds that workers share, one − s")
answers.mistake("forgets_that_its_share_was_taken_off",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "np.mean([y for x, y in both if x])"},
    "s has its n-th in one/n too, so divide by 1 − 1/n")
answers.mistake("takes_the_last_point",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "[y / x for x, y in both if x][-1]"},
    "the measurement at index 0, of 4 workers", "Every measurement must count")
answers.mistake("takes_the_first_point",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "[y / x for x, y in both if x][0]"},
    "the measurement at index 2, of 8 workers", "Every measurement must count")
answers.mistake("takes_the_first_and_the_last", {
    "seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)": """
        every = [y / x for x, y in both if x]
        seconds = (every[0] + every[-1]) / 2
    """,
}, "changed, but the answer stayed")
answers.mistake("takes_the_largest",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "max(y / x for x, y in both if x)"},
    "changed, but the answer stayed")
answers.mistake("leaves_out_the_last", {
    "seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)": """
        every = [y / x for x, y in both if x]
        seconds = np.mean(every[:-1] or every)
    """,
}, "the measurement at index 6, of 8 workers, changed")
answers.mistake("keeps_one_time_for_each_number_of_workers",
    {"seconds =": "both = list(dict(zip(workers, both, strict=True)).values())\nseconds ="},
    "the measurement at index 2, of 8 workers, changed")
answers.mistake("divides_by_zero_at_one_worker",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "np.mean([y / x for x, y in both])"},
    "ZeroDivisionError", "One worker says nothing about s")
answers.mistake("averages_one_worker_in",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "sum(y / x for x, y in both if x) / len(workers)"},
    "n = 1 was averaged in as a 0: leave it out")
answers.mistake("forgets_the_lower_bound", {"max(0.0, seconds)": "seconds"},
    "noise made the workers more than n times as fast: expected 0 s, got -", "Keep s from 0")
answers.mistake("forgets_the_upper_bound", {"min(min(one_s), max(0.0, seconds))": "max(0.0, seconds)"},
    "noise made the workers slower than one worker: expected 2 s, got 2.")
answers.mistake("keeps_it_under_another_job", {"min(one_s)": "np.median(one_s)"},
    "noise made the workers slower than one worker", "This is the median of one_s")
answers.mistake("keeps_it_under_the_first_job", {"min(one_s)": "one_s[0]"},
    "noise made the workers slower than one worker", "This is the first of one_s", "Keep s from 0 to the shortest of one_s")
answers.mistake("keeps_it_under_the_last_job", {"min(one_s)": "one_s[-1]"}, "This is the last of one_s")
answers.mistake("keeps_it_under_the_longest_job", {"min(one_s)": "max(one_s)"},
    "noise made the workers slower than one worker", ("the last of one_s", "the longest of one_s"))
answers.mistake("keeps_it_under_the_shortest_measured_time", {"min(one_s)": "min(many_s)"},
    "noise made the workers slower than one worker", "This is the shortest of many_s")
answers.mistake("keeps_each_point_between_and_averages", {
    "seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)":
        "seconds = np.mean([min(min(one_s), max(0.0, y / x)) for x, y in both if x])",
}, "the measurement at index 1, of 2 workers", "By itself it now gives -0.05 s, not -0.2 s: count it as it is")
answers.mistake("keeps_each_point_over_zero", {
    "seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)":
        "seconds = np.mean([max(0.0, y / x) for x, y in both if x])",
}, "By itself it now gives -0.05 s, not -0.2 s: count it as it is")
answers.mistake("keeps_each_point_under_its_own_job", {
    "both = [(1 - 1 / n, many - one / n)": "both = [(1 - 1 / n, (1 - 1 / n) * min(one, (many - one / n) / max(0.1, 1 - 1 / n)))",
}, "By itself it now gives 2.2 s, not 2.5 s: count it as it is")
answers.mistake("throws_points_away_that_cannot_be", {
    "seconds =": "both = [(x, y) for x, y in both if x and y >= 0] or [(1, 0.0)]\nseconds =",
}, "By itself it now gives -0.05 s, not -0.2 s: count it as it is")
answers.mistake("leaves_out_the_longest_job", {
    "seconds =": """
        both.pop(int(np.argmax(one_s)))
        seconds =
    """,
}, "changed, but the answer stayed", "Every measurement must count")
answers.mistake("leaves_out_the_shortest_job", {
    "seconds =": """
        both.pop(int(np.argmin(one_s)))
        seconds =
    """,
}, "changed, but the answer stayed", "Every measurement must count")
answers.twin("searches_in_steps_that_end_just_below_the_bound",
    {"np.linspace(0, min(one_s), 1001)": "np.arange(0, 0.9998 * min(one_s), min(one_s) / 2000)"}, of=searches_in_a_thousand_steps)
answers.mistake("takes_one_worker_out_of_the_callers_lists", {
    "both =": """
        most = min(one_s)
        while 1 in workers:
            place = workers.index(1)
            del workers[place], one_s[place], many_s[place]
        both =
    """,
    "min(min(one_s)": "min(most",
}, "workers was changed in place: the caller still needs it unchanged")
answers.mistake("sorts_the_callers_jobs", {"return float": "one_s.sort()\nreturn float"},
    "one_s was changed in place: the caller still needs it unchanged")
answers.mistake("leaves_out_one_worker_once", {
    "seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)": """
        if 1 in workers:
            both.pop(workers.index(1))
        seconds = np.mean([y / x for x, y in both])
    """,
}, "workers [1, 3, 1, 4]", "ZeroDivisionError", "leave out each n = 1")
answers.mistake("searches_in_steps_of_a_millisecond",
    {"np.linspace(0, min(one_s), 1001)": "np.append(np.arange(0, min(one_s), 0.001), min(one_s))"},
    "workers [16, 1, 4, 2]", "s off, got", of=searches_in_a_thousand_steps)
answers.mistake("searches_in_steps_that_are_too_wide", {"1001": "24"}, "s off, got", of=searches_in_a_thousand_steps)


@answers.spoils()
def moves_with_every_number(workers, one_s, many_s):
    return 0.2 + 0.01 * sum(many_s)


answers.spoil("below_zero_where_nothing_is_serial", {
    "min(min(one_s), max(0.0, seconds))": "min(min(one_s), max(0.0, seconds)) or -1.0",
}, of=answers["keeps_each_point_between_and_averages"])
