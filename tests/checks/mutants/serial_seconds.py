"""Lab 01: the seconds that no worker shares, from measured times."""

from __future__ import annotations

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("serial_seconds")


def kept(s, one_s):
    return float(min(min(one_s), max(0.0, s)))


def points(workers, one_s, many_s):
    """(x, y) of y = s x."""
    return [(1 - 1 / n, many - one / n) for n, one, many in zip(workers, one_s, many_s, strict=True)]


def least_squares(both):
    return sum(x * y for x, y in both) / sum(x * x for x, _ in both)


def each(workers, one_s, many_s):
    return [y / x for x, y in points(workers, one_s, many_s) if x]


@answers.is_wrong("One worker's time of the first job was taken for all")
def takes_the_first_job_for_all(workers, one_s, many_s):
    return kept(least_squares(points(workers, [one_s[0]] * len(workers), many_s)), one_s)


@answers.is_wrong("This is the fraction of one worker's time; the seconds are asked for")
def returns_amdahls_fraction(workers, one_s, many_s):
    return kept(least_squares(points(workers, one_s, many_s)), one_s) / one_s[-1]


@answers.is_wrong("This is the fraction of the workers' time; the seconds are asked for")
def returns_gustafsons_fraction(workers, one_s, many_s):
    return kept(least_squares(points(workers, one_s, many_s)), one_s) / many_s[-1]


@answers.is_wrong("These are the seconds that workers share, one − s")
def returns_the_shared_seconds(workers, one_s, many_s):
    return one_s[-1] - kept(least_squares(points(workers, one_s, many_s)), one_s)


@answers.is_wrong("s has its n-th in one/n too, so divide by 1 − 1/n")
def forgets_that_its_share_was_taken_off(workers, one_s, many_s):
    return kept(np.mean([y for x, y in points(workers, one_s, many_s) if x]), one_s)


@answers.is_wrong("the measurement at index 0, of 4 workers", "Every measurement has to have its say")
def takes_the_last_point(workers, one_s, many_s):
    return kept(each(workers, one_s, many_s)[-1], one_s)


@answers.is_wrong("the measurement at index 1, of 2 workers", "Every measurement has to have its say")
def takes_the_first_point(workers, one_s, many_s):
    return kept(each(workers, one_s, many_s)[0], one_s)


@answers.is_wrong("had changed, and the answer stayed")
def takes_the_first_and_the_last(workers, one_s, many_s):
    every = each(workers, one_s, many_s)
    return kept((every[0] + every[-1]) / 2, one_s)


@answers.is_wrong("had changed, and the answer stayed")
def takes_the_largest(workers, one_s, many_s):
    return kept(max(each(workers, one_s, many_s)), one_s)


@answers.is_wrong("the measurement at index 6, of 8 workers, had changed")
def leaves_out_the_last(workers, one_s, many_s):
    every = each(workers, one_s, many_s)
    return kept(np.mean(every[:-1] or every), one_s)


@answers.is_wrong("the measurement at index 1, of 2 workers, had changed")
def keeps_one_time_for_each_number_of_workers(workers, one_s, many_s):
    latest = {n: (one, many) for n, one, many in zip(workers, one_s, many_s, strict=True)}
    rows = [(n, *pair) for n, pair in latest.items()]
    return kept(least_squares(points(*zip(*rows, strict=True))), one_s)


@answers.is_wrong("ZeroDivisionError", "One worker tells nothing of s")
def divides_by_zero_at_one_worker(workers, one_s, many_s):
    return kept(float(np.mean([y / x for x, y in points(workers, one_s, many_s)])), one_s)


@answers.is_wrong("n = 1 was averaged in as a 0: leave it out")
def averages_one_worker_in(workers, one_s, many_s):
    return kept(sum(each(workers, one_s, many_s)) / len(workers), one_s)


@answers.is_wrong("noise made it more than n times as fast: expected 0 s, got -", "Keep s from 0")
def forgets_the_lower_bound(workers, one_s, many_s):
    return min(min(one_s), least_squares(points(workers, one_s, many_s)))


@answers.is_wrong("noise made it slower than one worker: expected 2 s, got 2.")
def forgets_the_upper_bound(workers, one_s, many_s):
    return max(0.0, least_squares(points(workers, one_s, many_s)))


@answers.is_wrong("noise made it slower than one worker: expected 1.5 s, got 2")
def keeps_it_under_another_job(workers, one_s, many_s):
    return float(np.clip(least_squares(points(workers, one_s, many_s)), 0, np.median(one_s)))


@answers.is_wrong("s off, got")
def searches_in_steps_that_are_too_wide(workers, one_s, many_s):
    return nearest_of(np.linspace(0, min(one_s), 24), workers, one_s, many_s)


def nearest_of(tried, workers, one_s, many_s):
    misses = [sum((s + (one - s) / n - many) ** 2 for n, one, many in zip(workers, one_s, many_s, strict=True)) for s in tried]
    return float(tried[int(np.argmin(misses))])


@answers.is_right
def averages_the_points(workers, one_s, many_s):
    every = each(workers, one_s, many_s)
    return kept(sum(every) / len(every), one_s)


@answers.is_right
def takes_the_median_of_the_points(workers, one_s, many_s):
    return kept(np.median(each(workers, one_s, many_s)), one_s)


@answers.is_right
def searches_in_a_thousand_steps(workers, one_s, many_s):
    return nearest_of(np.linspace(0, min(one_s), 1001), workers, one_s, many_s)


@answers.is_right
def weighs_by_the_time(workers, one_s, many_s):
    both = [(x / many, y / many) for (x, y), many in zip(points(workers, one_s, many_s), many_s, strict=True)]
    return kept(least_squares(both), one_s)


@answers.is_right
def multiplies_by_n_first(workers, one_s, many_s):
    rows = zip(workers, one_s, many_s, strict=True)
    return kept(least_squares([(n - 1, n * many - one) for n, one, many in rows]), one_s)


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
