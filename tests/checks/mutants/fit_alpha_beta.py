"""Exercise 2.4: α and B from measured times."""

import numpy as np
import torch

from tests.checks.mutants import Answers

answers = Answers("fit_alpha_beta")


def line(sizes, seconds, weights=None):
    """(α, seconds a byte) by least squares."""
    slope, offset = np.polyfit(sizes, seconds, 1, w=weights)
    return offset, slope


@answers.is_right
def weights_of_polyfit(sizes, seconds):
    slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / seconds)
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


answers.twin("weighted_by_its_own_line", {
    "slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / seconds)": """
        guess = seconds
        for _ in range(5):
            slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / guess)
            guess = alpha + slope * sizes
    """,
})


@answers.is_right
def errors_of_the_logarithm(sizes, seconds):
    """Gauss and Newton: nearest in log T, each parameter multiplied until nothing changes."""
    slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    for _ in range(30):
        said = alpha + slope * sizes
        shares = np.stack([alpha / said, slope * sizes / said], axis=1)
        more, steeper = np.linalg.lstsq(shares, np.log(seconds / said), rcond=None)[0]
        alpha, slope = alpha * np.exp(more), slope * np.exp(steeper)
    return alpha, 1 / slope


answers.twin("doubles_the_points_that_it_has", {
    "slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / seconds)": """
        both = np.concatenate([seconds, seconds])
        slope, alpha = np.polyfit(np.concatenate([sizes, sizes]), both, 1, w=1 / both)
    """,
})


# T/m = α/m + 1/B is a line in 1/m, its errors again relative to T/m.
answers.twin("a_line_in_one_over_m", {
    "slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / seconds)":
        "alpha, slope = np.polyfit(1 / sizes, seconds / sizes, 1, w=sizes / seconds)",
})

answers.mistake("errors_in_seconds", {", w=1 / seconds": ""},
    "left out", "Your line misses the small sizes most", "why do the large ones weigh more?")
answers.mistake("errors_over_the_square_of_the_size", {"w=1 / seconds": "w=1 / sizes**2"},
    "which was left out, your line says")
answers.mistake("returns_the_slope", {"1 / slope": "slope"}, "That is 1/B, the seconds for one byte: invert it")
answers.mistake("bandwidth_first", {"alpha, 1 / slope": "1 / slope, alpha"}, "The two are swapped: α comes first")


@answers.is_wrong("That α is the time of the smallest message, bytes and all")
def alpha_from_the_smallest_alone(sizes, seconds):
    alpha = seconds.min()
    return alpha, np.mean(sizes[seconds > 2 * alpha] / (seconds[seconds > 2 * alpha] - alpha))


@answers.is_wrong("A line through zero has no α")
def bandwidth_alone(sizes, seconds):
    return 0.0, np.mean(sizes / seconds)


answers.mistake("alpha_in_milliseconds", {"alpha, 1 / slope": "1e3 * alpha, 1 / slope"}, "Return α in seconds")


@answers.is_wrong("which was left out, your line says")
def through_the_first_and_the_last(sizes, seconds):
    small, large = sizes.argmin(), sizes.argmax()
    slope = (seconds[large] - seconds[small]) / (sizes[large] - sizes[small])
    return seconds[small] - slope * sizes[small], 1 / slope


answers.mistake("bandwidth_in_megabytes", {"alpha, 1 / slope": "alpha, 1e-6 / slope"},
    "Return B in bytes a second, not in kB, MB or GB")
answers.mistake("bandwidth_in_bits", {"alpha, 1 / slope": "alpha, 8 / slope"}, "Return B in bytes a second, not in bits")
answers.mistake("weights_that_add_the_median", {"w=1 / seconds": "w=1 / (seconds + np.median(seconds))"},
    "which was left out, your line says", "Two of the times are 20% off")
answers.mistake("weights_no_larger_than_the_medians", {"w=1 / seconds": "w=1 / np.maximum(seconds, np.median(seconds))"},
    "which was left out, your line says", "Two of the times are 20% off")
answers.mistake("weights_that_add_the_geometric_mean",
    {"w=1 / seconds": "w=1 / (seconds + np.exp(np.log(seconds).mean()))"},
    "which was left out, your line says", "Two of the times are 20% off")
answers.mistake("forgets_to_return", {"return alpha": "alpha"},
    "expected two finite numbers", "got None (does the function return it?)")
answers.mistake("logarithms_of_both", {
    "sizes, seconds, 1, w=1 / seconds": "np.log(sizes), np.log(seconds), 1",
    "return alpha": "return np.exp(alpha)",
}, "expected α = ", "Without noise, every point lies on the line")
answers.mistake("errors_over_the_root_of_the_time", {"1 / seconds": "1 / np.sqrt(seconds)"},
    "which was left out, your line says", "Two of the times are 20% off")
answers.mistake("errors_over_the_size", {"1 / seconds": "1 / sizes"},
    "which was left out, your line says", "Two of the times are 20% off")
answers.mistake("errors_over_the_root_of_the_size", {"1 / seconds": "1 / np.sqrt(sizes)"},
    "which was left out, your line says", "Two of the times are 20% off")
answers.mistake("divides_the_callers_sizes", {
    "slope, alpha": "seconds_before = seconds.copy()\nsizes /= seconds_before\nsizes *= seconds_before * 1.000001\nslope, alpha",
}, "sizes was changed in place: the caller still needs it unchanged")
answers.mistake("sorts_the_callers_times", {
    "slope, alpha": "order = sizes.argsort()\nsizes[:], seconds[:] = sizes[order], seconds[order]\nslope, alpha",
}, "sizes mixed", "sizes was changed in place: the caller still needs it unchanged")


@answers.is_right
def least_sum_of_relative_errors(sizes, seconds):
    """Through the two points whose line has the least sum of relative errors."""
    best = (np.inf, 0.0, 1.0)
    for i, j in zip(*np.triu_indices(len(sizes), 1), strict=True):
        if sizes[i] != sizes[j]:
            slope = (seconds[j] - seconds[i]) / (sizes[j] - sizes[i])
            alpha = seconds[i] - slope * sizes[i]
            best = min(best, (np.abs((alpha + slope * sizes) / seconds - 1).sum(), alpha, slope))
    return best[1], 1 / best[2]


answers.spoil("has_nothing_to_say_of_two_sizes", {"slope, alpha": "if len(sizes) == 2:\n    return None\nslope, alpha"},
    of=answers["errors_in_seconds"])
