"""Exercise 16.1: a step on 8 ranks, forecast with its interval."""

import math
import statistics

import numpy as np
import torch

from tests.checks.mutants import Answers

answers = Answers("forecast")


def parts(measured):
    """The forecast, the scatter of one step there, and the error of the means, as standard deviations in seconds."""
    two, four = np.array(measured[2]), np.array(measured[4])
    left = np.concatenate([two / two.mean() - 1, four / four.mean() - 1])
    scatter = np.sqrt((left**2).sum() / (len(left) - 2))
    middle = 3.5 * (four.mean() - two.mean())
    line = 3.5 * scatter * np.hypot(two.mean() / len(two) ** 0.5, four.mean() / len(four) ** 0.5)
    return middle, scatter * middle, line


def around(middle, half):
    return middle - half, middle, middle + half


@answers.is_right
def two_parts_and_students_quantile(measured):
    middle, scatter, line = parts(measured)
    factor = 1.645 + 1.5 / (len(measured[2]) + len(measured[4]) - 2)
    half = factor * math.hypot(scatter, line)
    return middle - half, middle, middle + half


@answers.is_right
def alpha_and_beta_in_torch_with_students_quantile(measured):
    """Least squares for α and m/B, and the t quantile by Peiser's approximation."""
    times = {n: torch.tensor(steps, dtype=torch.float64) for n, steps in measured.items()}
    rows = torch.tensor([[2.0, 1.0], [6.0, 1.5]], dtype=torch.float64)
    means = torch.stack([times[2].mean(), times[4].mean()])
    back = torch.linalg.inv(rows)
    alpha, size_over_b = back @ means

    middle = 14 * alpha + 1.75 * size_over_b
    free = sum(map(len, times.values())) - 2
    relative = torch.cat([t / t.mean() - 1 for t in times.values()])
    variance = (relative**2).sum() / free
    of_means = torch.stack([variance * t.mean() ** 2 / len(t) for t in times.values()])
    weights = torch.tensor([14.0, 1.75], dtype=torch.float64) @ back
    quantile = 1.645 + (1.645**3 + 1.645) / (4 * free)
    half = quantile * torch.sqrt((weights**2 * of_means).sum() + variance * middle**2)
    return torch.stack([middle - half, middle, middle + half])


@answers.is_wrong("few steps", "lie in the intervals", chance=True)
def a_bootstrap_of_both_means_and_a_step(measured):
    drawn = np.random.default_rng()
    two, four = map(np.array, (measured[2], measured[4]))
    left = np.concatenate([two / two.mean(), four / four.mean()])
    ways = 2000
    means = [drawn.choice(steps, (ways, len(steps))).mean(axis=1) for steps in (two, four)]
    steps = 3.5 * (means[1] - means[0]) * drawn.choice(left, ways)
    return np.quantile(steps, 0.05), 3.5 * (four.mean() - two.mean()), np.quantile(steps, 0.95)


@answers.is_right
def medians_in_plain_python(measured):
    two, four = (statistics.median(measured[n]) for n in (2, 4))
    left = [(s - mid) / mid for n, mid in ((2, two), (4, four)) for s in measured[n]]
    scatter = math.sqrt(sum(r * r for r in left) / (len(left) - 2))
    middle, factor = 3.5 * (four - two), 1.645 + 1.5 / (len(left) - 2)
    of_medians = math.sqrt(math.pi / 2)  # which err by so much more than means
    line = of_medians * 3.5 * scatter * math.sqrt(four**2 / len(measured[4]) + two**2 / len(measured[2]))
    return [middle + way * factor * math.hypot(scatter * middle, line) for way in (-1, 0, 1)]


@answers.is_right
def each_size_has_a_scatter_of_its_own(measured):
    two, four = map(np.array, (measured[2], measured[4]))
    middle = 3.5 * (four.mean() - two.mean())
    line = 3.5 * math.sqrt(two.var(ddof=1) / len(two) + four.var(ddof=1) / len(four))
    of_step = middle * math.sqrt((two.var(ddof=1) / two.mean() ** 2 + four.var(ddof=1) / four.mean() ** 2) / 2)
    return around(middle, (1.645 + 1.5 / (len(two) + len(four) - 4)) * math.hypot(line, of_step))


@answers.is_right
def draws_machines_that_could_have_been(measured):
    """The scatter, the means and the step, each drawn anew from its distribution: the scatter is as unsure as chi-square says."""
    drawn, means = np.random.default_rng(), {n: statistics.fmean(steps) for n, steps in measured.items()}
    left = [s / means[n] - 1 for n, steps in measured.items() for s in steps]
    freedom, ways = len(left) - 2, 2000
    scatter = np.sqrt(sum(r * r for r in left) / drawn.chisquare(freedom, ways))
    two, four = (means[n] * (1 + scatter * drawn.standard_normal(ways) / len(measured[n]) ** 0.5) for n in (2, 4))
    steps = np.sort(3.5 * (four - two) * (1 + scatter * drawn.standard_normal(ways)))
    return steps[100], 3.5 * (means[4] - means[2]), steps[-101]


answers.mistake("the_scatter_of_one_step_alone", {"math.hypot(scatter, line)": "scatter"},
    "few steps", "The intervals hold the scatter of one step alone", "3.5 times the errors of both means")
answers.mistake("an_interval_of_the_mean", {"math.hypot(scatter, line)": "line"},
    "They hold the error of the means alone", "The next step scatters as the measured ones did")
answers.mistake("a_line_in_the_ranks",
    {"half =": "middle = 3 * np.mean(measured[4]) - 2 * np.mean(measured[2])\nhalf ="},
    "steps without scatter", "That is a straight line through the times on 2 and on 4 ranks")
answers.mistake("one_standard_deviation", {"factor * ": ""},
    "The intervals reach about one standard deviation each way")
answers.mistake("the_factor_of_ten_steps",
    {"1.5 / (len(measured[2]) + len(measured[4]) - 2)": "1.5 / 8"},
    "many steps", "The factor is that of ten steps, whatever N is")
answers.mistake("two_standard_deviations", {"factor * ": "1.96 * "},
    "many steps", "The intervals reach two standard deviations each way or more, which covers 95 %")
answers.mistake("in_milliseconds",
    {"return middle - half, middle, middle + half": "return 1e3 * (middle - half), 1e3 * middle, 1e3 * (middle + half)"},
    "steps without scatter", "return seconds, not milliseconds")
answers.mistake("a_tenth_each_way", {"return middle - half, middle, middle + half": "return 0.9 * middle, middle, 1.1 * middle"},
    "They reach the same share of the middle each way, whatever the steps scatter")
answers.mistake("the_scatter_in_seconds_of_four_ranks",
    {"hypot(scatter, line)": "hypot(np.std(measured[4], ddof=1), line)"},
    "does your scatter grow with it?")


@answers.is_wrong("times as wide as needed")
def from_the_extremes(measured):
    two, four = measured[2], measured[4]
    middle = 3.5 * (np.mean(four) - np.mean(two))
    return 3.5 * (min(four) - max(two)), middle, 3.5 * (max(four) - min(two))


answers.mistake("no_interval_at_all", {"return middle - half, middle, middle + half": "return middle, middle, middle"},
    "few steps", ": 0% of the next steps on 8 ranks lie in the intervals")
answers.mistake("drops_a_step_to_warm_up", {"middle, scatter": "measured[2].pop(0)\nmiddle, scatter"},
    "measured was changed in place")
answers.mistake("the_middle_alone", {"return middle - half, middle, middle + half": "return middle"},
    "expected three numbers, (low, middle, high) in seconds")
answers.mistake("the_half_width_in_the_place_of_the_ends",
    {"return middle - half, middle, middle + half": "return half, middle, half"},
    "expected low ≤ middle ≤ high")
answers.mistake("all_is_bandwidth", {"half =": "middle = np.mean(measured[4]) * 1.75 / 1.5\nhalf ="},
    "That takes all for bytes")
answers.mistake("a_line_in_the_logarithm",
    {"half =": "middle = 2 * np.mean(measured[4]) - np.mean(measured[2])\nhalf ="},
    "That adds for each doubling what the last one added")
answers.mistake("from_the_least_steps", {
    "half =": "middle = 3.5 * (min(measured[4]) - min(measured[2]))\nhalf =",
}, "few steps", "They are wide enough, but lie elsewhere")
answers.mistake("more_below_than_above", {
    "return middle - half, middle, middle + half": "return middle - 1.4 * half, middle, middle + 0.6 * half",
}, "few steps", "They are wide enough, but lie elsewhere")
answers.mistake("a_quarter_more_or_less", {"half = factor * math.hypot(scatter, line)": "half = middle / 4"},
    "times as wide as needed")


@answers.is_wrong("few steps", "lie in the intervals")
def the_quantiles_of_the_measured_steps(measured):
    two, four = map(np.array, (measured[2], measured[4]))
    middle = 3.5 * (four.mean() - two.mean())
    shares = np.concatenate([two / two.mean(), four / four.mean()])
    return middle * np.quantile(shares, 0.05), middle, middle * np.quantile(shares, 0.95)


for name, edits, words in (
    ("the_quantile_of_a_known_scatter", {"factor * ": "1.645 * "}, "which suits a known s"),
    ("subtracts_the_variances", {"line = parts(measured)": """
        line = parts(measured)
        off = [scatter / middle * np.mean(measured[n]) / len(measured[n]) ** 0.5 for n in (2, 4)]
        line = 3.5 * math.sqrt(abs(off[1] ** 2 - off[0] ** 2))
    """}, "The variances of the two means were subtracted"),
    ("adds_the_errors_as_they_are", {"math.hypot(scatter, line)": "(scatter + line)"}, "Errors were added up as they are"),
    ("adds_the_errors_of_the_means", {"line = parts(measured)": """
        line = parts(measured)
        line = 3.5 * scatter / middle * sum(np.mean(measured[n]) / len(measured[n]) ** 0.5 for n in (2, 4))
    """}, "Errors were added up as they are"),
    ("one_k_for_both", {"line = parts(measured)": """
        line = parts(measured)
        line = 3.5 * scatter / middle * np.hypot(*(np.mean(measured[n]) / len(measured[2]) ** 0.5 for n in (2, 4)))
    """}, "with its own ranks' k"),
    ("k_of_all_steps", {"line = parts(measured)": """
        line = parts(measured)
        k = len(measured[2]) + len(measured[4])
        line = 3.5 * scatter / middle * np.hypot(*(np.mean(measured[n]) / k**0.5 for n in (2, 4)))
    """}, "with its own ranks' k"),
    ("the_line_without_its_factor", {"math.hypot(scatter, line)": "math.hypot(scatter, line / 3.5)"}, "by the factor 3.5"),
    ("scatter_of_two_ranks_alone", {"line = parts(measured)": """
        line = parts(measured)
        alone = np.std(measured[2], ddof=1) / np.mean(measured[2])
        scatter = alone * middle
        line = 3.5 * alone * np.hypot(*(np.mean(measured[n]) / len(measured[n]) ** 0.5 for n in (2, 4)))
    """}, "s comes from the steps on 2 ranks alone"),
    ("scatter_of_four_ranks_alone", {"line = parts(measured)": """
        line = parts(measured)
        alone = np.std(measured[4], ddof=1) / np.mean(measured[4])
        scatter = alone * middle
        line = 3.5 * alone * np.hypot(*(np.mean(measured[n]) / len(measured[n]) ** 0.5 for n in (2, 4)))
    """}, "s comes from the steps on 4 ranks alone"),
    ("scatter_divided_by_the_steps", {"line = parts(measured)": """
        line = parts(measured)
        k = len(measured[2]) + len(measured[4])
        factor = 1.645 * math.sqrt((k - 2) / k)
    """, "factor = 1.645 + 1.5 / (len(measured[2]) + len(measured[4]) - 2)": ""}, "divide by N − 2"),
    ("scatter_divided_by_the_steps_with_students_factor", {"half = factor *": """
        k = len(measured[2]) + len(measured[4])
        half = math.sqrt((k - 2) / k) * factor *
    """}, "divide by N − 2"),
    ("always_five_steps", {"line = parts(measured)": """
        line = parts(measured)
        line = 3.5 * scatter / middle * np.hypot(*(np.mean(measured[n]) / 5**0.5 for n in (2, 4)))
    """}, "of the next steps on 8 ranks"),
):
    answers.mistake(name, edits, words)

@answers.is_right
def adds_up_variances_of_all_three(measured):
    """Steps in any sequence; the variance of a forecast as a sum of three shares, with a series for Student's quantile."""
    steps = {n: torch.tensor(tuple(measured[n]), dtype=torch.float64) for n in (4, 2)}
    middle = 3.5 * float(steps[4].mean() - steps[2].mean())
    freedom = sum(map(len, steps.values())) - 2
    share = sum(float(((x / x.mean() - 1) ** 2).sum()) for x in steps.values()) / freedom
    variance = share * (middle**2 + sum(12.25 * float(x.mean()) ** 2 / len(x) for x in steps.values()))
    z = statistics.NormalDist().inv_cdf(0.95)
    series = z + (z**3 + z) / 4 / freedom + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / freedom**2
    half = series * variance**0.5
    return middle - half, middle, middle + half


def reaches_far(measured):
    middle, _, _ = parts(measured)
    return around(middle, 10 * middle)


answers.spoil("reaches_far_around_nothing", {"return around(middle, 10 * middle)": "return 0, middle"}, of=reaches_far)


@answers.is_wrong("The next step's scatter comes from the steps on 4 ranks alone")
def a_step_scatters_as_on_four_ranks_and_each_mean_by_its_own(measured):
    two, four = map(np.array, (measured[2], measured[4]))
    middle = 3.5 * (four.mean() - two.mean())
    line = 3.5 * math.sqrt(two.var(ddof=1) / len(two) + four.var(ddof=1) / len(four))
    return around(middle, (1.645 + 1.5 / (len(two) + len(four) - 2)) * math.hypot(line, middle * four.std(ddof=1) / four.mean()))


@answers.is_wrong("The next step's scatter is a step's on 4 ranks, in seconds")
def a_step_scatters_by_the_seconds_of_four_ranks_and_each_mean_by_its_own(measured):
    two, four = map(np.array, (measured[2], measured[4]))
    line = 3.5 * math.sqrt(two.var(ddof=1) / len(two) + four.var(ddof=1) / len(four))
    half = (1.645 + 1.5 / (len(two) + len(four) - 2)) * math.hypot(line, four.std(ddof=1))
    return around(3.5 * (four.mean() - two.mean()), half)


@answers.is_wrong("Each mean's error was taken for a single step's")
def every_mean_is_a_single_step(measured):
    two, four = map(np.array, (measured[2], measured[4]))
    left = np.concatenate([two / two.mean() - 1, four / four.mean() - 1])
    scatter, middle = math.sqrt((left @ left) / (len(left) - 2)), 3.5 * (four.mean() - two.mean())
    line = 3.5 * scatter * math.hypot(two.mean(), four.mean())
    return around(middle, (1.645 + 1.5 / (len(left) - 2)) * math.hypot(scatter * middle, line))
