"""Lab 01: the seconds that no worker shares, from measured times."""

from __future__ import annotations

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


answers.mistake("takes_the_first_job_for_all", {"many - one / n": "many - one_s[0] / n"},
    "One worker's time of the first job was taken for all")
answers.mistake("returns_amdahls_fraction", {"max(0.0, seconds)))": "max(0.0, seconds))) / one_s[-1]"},
    "This is the fraction of one worker's time; the seconds are asked for")
answers.mistake("returns_gustafsons_fraction", {"max(0.0, seconds)))": "max(0.0, seconds))) / many_s[-1]"},
    "This is the fraction of the workers' time; the seconds are asked for")
answers.mistake("returns_the_shared_seconds", {"return float": "return one_s[-1] - float"},
    "These are the seconds that workers share, one − s")
answers.mistake("forgets_that_its_share_was_taken_off",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "np.mean([y for x, y in both if x])"},
    "s has its n-th in one/n too, so divide by 1 − 1/n")
answers.mistake("takes_the_last_point",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "[y / x for x, y in both if x][-1]"},
    "the measurement at index 0, of 4 workers", "Every measurement has to have its say")
answers.mistake("takes_the_first_point",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "[y / x for x, y in both if x][0]"},
    "the measurement at index 1, of 2 workers", "Every measurement has to have its say")
answers.mistake("takes_the_first_and_the_last", {
    "seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)": """
        every = [y / x for x, y in both if x]
        seconds = (every[0] + every[-1]) / 2
    """,
}, "had changed, and the answer stayed")
answers.mistake("takes_the_largest",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "max(y / x for x, y in both if x)"},
    "had changed, and the answer stayed")
answers.mistake("leaves_out_the_last", {
    "seconds = sum(x * y for x, y in both) / sum(x * x for x, _ in both)": """
        every = [y / x for x, y in both if x]
        seconds = np.mean(every[:-1] or every)
    """,
}, "the measurement at index 6, of 8 workers, had changed")
answers.mistake("keeps_one_time_for_each_number_of_workers",
    {"seconds =": "both = list(dict(zip(workers, both, strict=True)).values())\nseconds ="},
    "the measurement at index 1, of 2 workers, had changed")
answers.mistake("divides_by_zero_at_one_worker",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "np.mean([y / x for x, y in both])"},
    "ZeroDivisionError", "One worker tells nothing of s")
answers.mistake("averages_one_worker_in",
    {"sum(x * y for x, y in both) / sum(x * x for x, _ in both)": "sum(y / x for x, y in both if x) / len(workers)"},
    "n = 1 was averaged in as a 0: leave it out")
answers.mistake("forgets_the_lower_bound", {"max(0.0, seconds)": "seconds"},
    "noise made it more than n times as fast: expected 0 s, got -", "Keep s from 0")
answers.mistake("forgets_the_upper_bound", {"min(min(one_s), max(0.0, seconds))": "max(0.0, seconds)"},
    "noise made it slower than one worker: expected 2 s, got 2.")
answers.mistake("keeps_it_under_another_job", {"min(one_s)": "np.median(one_s)"},
    "noise made it slower than one worker: expected 1.5 s, got 2")
answers.mistake("searches_in_steps_that_are_too_wide", {"1001": "24"}, "s off, got", of=searches_in_a_thousand_steps)
