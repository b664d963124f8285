"""Exercise 2.4: α and B from measured times."""

from __future__ import annotations

import numpy as np
import torch

from tests.checks.mutants import Answers

answers = Answers("fit_alpha_beta")


def line(sizes, seconds, weights=None):
    """(α, seconds a byte) by least squares."""
    slope, offset = np.polyfit(sizes, seconds, 1, w=weights)
    return offset, slope


@answers.is_wrong("left out", "Your line misses the small sizes most", "what makes it care for large ones more?")
def errors_in_seconds(sizes, seconds):
    alpha, slope = line(sizes, seconds)
    return alpha, 1 / slope


@answers.is_wrong("which was left out, your line says")
def errors_over_the_square_of_the_size(sizes, seconds):
    alpha, slope = line(sizes, seconds, 1 / sizes**2)
    return alpha, 1 / slope


@answers.is_wrong("That is 1/B, the seconds that a byte takes: turn it over")
def returns_the_slope(sizes, seconds):
    return line(sizes, seconds, 1 / seconds)


@answers.is_wrong("The two are swapped: α comes first")
def bandwidth_first(sizes, seconds):
    alpha, slope = line(sizes, seconds, 1 / seconds)
    return 1 / slope, alpha


@answers.is_wrong("That α is the time of the smallest message, bytes and all")
def alpha_from_the_smallest_alone(sizes, seconds):
    alpha = seconds.min()
    return alpha, np.mean(sizes[seconds > 2 * alpha] / (seconds[seconds > 2 * alpha] - alpha))


@answers.is_wrong("A line through zero has no α")
def bandwidth_alone(sizes, seconds):
    return 0.0, np.mean(sizes / seconds)


@answers.is_wrong("α is wanted in seconds")
def alpha_in_milliseconds(sizes, seconds):
    alpha, slope = line(sizes, seconds, 1 / seconds)
    return 1e3 * alpha, 1 / slope


@answers.is_wrong("which was left out, your line says")
def through_the_first_and_the_last(sizes, seconds):
    small, large = sizes.argmin(), sizes.argmax()
    slope = (seconds[large] - seconds[small]) / (sizes[large] - sizes[small])
    return seconds[small] - slope * sizes[small], 1 / slope


@answers.is_wrong("expected two finite numbers", "got None (does the function return it?)")
def forgets_to_return(sizes, seconds):
    line(sizes, seconds, 1 / seconds)


@answers.is_wrong("expected α = ", "Without noise, every point lies on the line")
def logarithms_of_both(sizes, seconds):
    slope, offset = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return np.exp(offset), 1 / slope


@answers.is_wrong("which was left out, your line says", "Two of the times are 20% off")
def errors_over_the_root_of_the_time(sizes, seconds):
    alpha, slope = line(sizes, seconds, 1 / np.sqrt(seconds))
    return alpha, 1 / slope


@answers.is_wrong("which was left out, your line says", "Two of the times are 20% off")
def errors_over_the_size(sizes, seconds):
    alpha, slope = line(sizes, seconds, 1 / sizes)
    return alpha, 1 / slope


@answers.is_wrong("which was left out, your line says", "Two of the times are 20% off")
def errors_over_the_root_of_the_size(sizes, seconds):
    alpha, slope = line(sizes, seconds, 1 / np.sqrt(sizes))
    return alpha, 1 / slope


@answers.is_right
def weights_of_polyfit(sizes, seconds):
    alpha, slope = line(sizes, seconds, 1 / seconds)
    return alpha, 1 / slope


@answers.is_right
def torch_solves_it(sizes, seconds):
    sizes, seconds = torch.tensor(sizes), torch.tensor(seconds)
    scale = sizes.max()
    table = torch.stack([1 / seconds, sizes / scale / seconds], dim=1)
    alpha, slope = torch.linalg.lstsq(table, torch.ones(len(sizes), 1, dtype=sizes.dtype)).solution.flatten()
    return alpha, scale / slope


@answers.is_right
def by_hand_in_plain_python(sizes, seconds):
    rows = [(1 / t, m / t) for m, t in zip(sizes.tolist(), seconds.tolist(), strict=True)]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(r[i] for r in rows) for i in (0, 1))
    alpha, slope = (a * bb - b * ab) / (aa * bb - ab * ab), (b * aa - a * ab) / (aa * bb - ab * ab)
    return np.array([alpha, 1 / slope])


@answers.is_right
def weighted_by_its_own_line(sizes, seconds):
    guess = seconds
    for _ in range(5):
        alpha, slope = line(sizes, seconds, 1 / guess)
        guess = alpha + slope * sizes
    return alpha, 1 / slope


@answers.is_right
def errors_of_the_logarithm(sizes, seconds):
    """Gauss and Newton: nearest in log T, each parameter multiplied until nothing changes."""
    alpha, slope = line(sizes, seconds, 1 / seconds)
    for _ in range(30):
        said = alpha + slope * sizes
        shares = np.stack([alpha / said, slope * sizes / said], axis=1)
        more, steeper = np.linalg.lstsq(shares, np.log(seconds / said), rcond=None)[0]
        alpha, slope = alpha * np.exp(more), slope * np.exp(steeper)
    return alpha, 1 / slope


@answers.is_right
def a_line_in_one_over_m(sizes, seconds):
    """T/m = α/m + 1/B is a line in 1/m, its errors again relative to T/m."""
    slope, offset = np.polyfit(1 / sizes, seconds / sizes, 1, w=sizes / seconds)
    return slope, 1 / offset
