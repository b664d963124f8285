"""Lab 01: the serial fraction by Amdahl's law."""

from __future__ import annotations

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("amdahl_fit")


def clamped(f):
    return min(1.0, max(0.0, f))


def points(workers, speedups):
    return [(1 - 1 / n, 1 / s - 1 / n) for n, s in zip(workers, speedups, strict=True)]


def least_squares(workers, speedups):
    both = points(workers, speedups)
    return sum(x * y for x, y in both) / sum(x * x for x, _ in both)


@answers.is_wrong("A straight line was laid through the speedups; take the law's own form")
def fits_a_straight_line(workers, speedups):
    return clamped(1 - np.polyfit(workers, speedups, 1)[0])


@answers.is_wrong("8 workers alone decided", "is it the last point only?")
def takes_the_last_point(workers, speedups):
    x, y = max(points(workers, speedups))
    return clamped(y / x)


@answers.is_wrong("2 workers alone decided", "is it the first point only")
def takes_the_first_point(workers, speedups):
    n, s = min((n, s) for n, s in zip(workers, speedups, strict=True) if n > 1)
    return clamped((1 / s - 1 / n) / (1 - 1 / n))


@answers.is_wrong("alone decided", "the largest or smallest fraction")
def takes_the_largest_fraction(workers, speedups):
    return clamped(max(y / x for x, y in points(workers, speedups) if x))


@answers.is_wrong("This is the fraction by Gustafson's law, for a job that grows")
def takes_gustafsons_law(workers, speedups):
    both = [(n - 1, n - s) for n, s in zip(workers, speedups, strict=True)]
    return clamped(sum(x * y for x, y in both) / sum(x * x for x, _ in both))


@answers.is_wrong("ZeroDivisionError", "One worker tells nothing of the fraction")
def divides_by_zero_at_one_worker(workers, speedups):
    return clamped(float(np.mean([y / x for x, y in points(workers, speedups)])))


@answers.is_wrong("n = 1 was averaged in as a 0: leave it out")
def averages_one_worker_in(workers, speedups):
    fractions = [y / x if x else 0.0 for x, y in points(workers, speedups)]
    return clamped(sum(fractions) / len(fractions))


@answers.is_wrong("This is 1 − f, the part that workers share")
def returns_the_shared_part(workers, speedups):
    return 1 - clamped(least_squares(workers, speedups))


@answers.is_wrong("noise made it more than n times as fast: expected 0, got -", "Keep the fraction from 0 to 1")
def forgets_the_bounds(workers, speedups):
    return least_squares(workers, speedups)


@answers.is_wrong("noise made it more than n times as fast: expected 0, got 0.")
def takes_the_size_alone(workers, speedups):
    return min(1.0, abs(least_squares(workers, speedups)))


@answers.is_wrong("noise made it slower than one worker: expected 1, got 1.")
def forgets_the_upper_bound(workers, speedups):
    return max(0.0, least_squares(workers, speedups))


@answers.is_wrong("This is 1 − the mean efficiency S/n")
def takes_what_is_lost(workers, speedups):
    return clamped(1 - float(np.mean([s / n for n, s in zip(workers, speedups, strict=True) if n > 1])))


@answers.is_wrong("workers [1, 2, 3, 4, 6, 8]", "expected a fraction between 0.1 and 0.3, got nan")
def gives_up_on_many_points(workers, speedups):
    if len(workers) > 4:
        return float("nan")
    return clamped(least_squares(workers, speedups))


@answers.is_right
def averages_the_points(workers, speedups):
    found = [y / x for x, y in points(workers, speedups) if x]
    return clamped(sum(found) / len(found))


@answers.is_right
def takes_the_median_of_the_points(workers, speedups):
    n, s = np.array(workers, float), np.array(speedups)
    many = n > 1
    return np.clip(np.median((1 / s - 1 / n)[many] / (1 - 1 / n)[many]), 0, 1)


@answers.is_right
def searches_for_the_nearest_speedups(workers, speedups):
    from scipy.optimize import minimize_scalar

    def miss(f):
        return sum((s - 1 / (f + (1 - f) / n)) ** 2 for n, s in zip(workers, speedups, strict=True))

    best = minimize_scalar(miss, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}).x
    return min((0.0, best, 1.0), key=miss)


@answers.is_right
def lays_a_line_through_one_over_s(workers, speedups):
    slope, start = np.polyfit([1 / n for n in workers], [1 / s for s in speedups], 1)
    return clamped(start / (slope + start))
