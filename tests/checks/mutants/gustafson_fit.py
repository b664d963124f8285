"""Lab 01: the serial fraction by Gustafson's law."""

from __future__ import annotations

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("gustafson_fit")


def clamped(f):
    return min(1.0, max(0.0, f))


def scaled(workers, alone_s, together_s):
    return [(n, a / t) for n, a, t in zip(workers, alone_s, together_s, strict=True)]


def least_squares(points):
    return sum((n - 1) * (n - s) for n, s in points) / sum((n - 1) ** 2 for n, _ in points)


@answers.is_wrong("The ratio is upside down: the speedup is the seconds of one over the seconds of many")
def turns_the_ratio_over(workers, alone_s, together_s):
    return clamped(least_squares(scaled(workers, together_s, alone_s)))


@answers.is_wrong("This is the fraction by Amdahl's law, for a job of fixed size")
def takes_amdahls_law(workers, alone_s, together_s):
    both = [(1 - 1 / n, 1 / s - 1 / n) for n, s in scaled(workers, alone_s, together_s)]
    return clamped(sum(x * y for x, y in both) / sum(x * x for x, _ in both))


@answers.is_wrong("8 workers alone decided", "is it the last point only?")
def takes_the_last_point(workers, alone_s, together_s):
    n, s = max(scaled(workers, alone_s, together_s))
    return clamped((n - s) / (n - 1))


@answers.is_wrong("ZeroDivisionError", "One worker tells nothing of the fraction")
def divides_by_zero_at_one_worker(workers, alone_s, together_s):
    return clamped(float(np.mean([(n - s) / (n - 1) for n, s in scaled(workers, alone_s, together_s)])))


@answers.is_wrong("This is 1 − f, the part that workers share")
def returns_the_slope(workers, alone_s, together_s):
    return clamped(float(np.polyfit(*zip(*scaled(workers, alone_s, together_s), strict=True), 1)[0]))


@answers.is_wrong("noise made it more than n times as fast: expected 0, got -", "Keep the fraction from 0 to 1")
def forgets_the_bounds(workers, alone_s, together_s):
    return least_squares(scaled(workers, alone_s, together_s))


@answers.is_wrong("This is 1 − the mean efficiency S/n")
def takes_what_is_lost(workers, alone_s, together_s):
    return clamped(1 - float(np.mean([s / n for n, s in scaled(workers, alone_s, together_s) if n > 1])))


@answers.is_wrong("expected a fraction, one number, got 4 values")
def returns_the_speedups(workers, alone_s, together_s):
    return [s for _, s in scaled(workers, alone_s, together_s)]


@answers.is_right
def averages_the_points(workers, alone_s, together_s):
    found = [(n - s) / (n - 1) for n, s in scaled(workers, alone_s, together_s) if n > 1]
    return clamped(sum(found) / len(found))


@answers.is_right
def lays_a_line_through_the_speedups(workers, alone_s, together_s):
    slope, _ = np.polyfit(*zip(*scaled(workers, alone_s, together_s), strict=True), 1)
    return clamped(1 - slope)


@answers.is_right
def works_with_tensors(workers, alone_s, together_s):
    import torch

    n = torch.tensor(workers, dtype=torch.float64)
    s = torch.tensor(alone_s, dtype=torch.float64) / torch.tensor(together_s, dtype=torch.float64)
    return ((n - 1) @ (n - s) / ((n - 1) @ (n - 1))).clamp(0, 1)
