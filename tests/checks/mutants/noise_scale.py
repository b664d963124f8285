"""Exercise 13.3: the gradient noise scale from two batch sizes, unbiased."""

import numpy as np
import torch

from tests.checks.mutants import Answers

answers = Answers("noise_scale")


def squared(gradient):
    return float((gradient.double() ** 2).sum())


def norms(gradients):
    small = sum(map(squared, gradients)) / len(gradients)
    return small, squared(torch.stack(list(gradients)).double().mean(0))


def parts(small, big, small_norm, big_norm):
    return (big * big_norm - small * small_norm) / (big - small), (small_norm - big_norm) / (1 / small - 1 / big)


def over(steps, of_step):
    """tr(Σ) over |G|², each averaged; `of_step(batch, gradients)` gives a step's (|G|², tr(Σ))."""
    signals, noises = zip(*(of_step(batch, gradients) for batch, gradients in steps), strict=True)
    return sum(noises) / sum(signals)


@answers.is_right
def plain(steps):
    signals, noises = [], []
    for batch, gradients in steps:
        small, big = norms(gradients)
        signal, noise = parts(batch, batch * len(gradients), small, big)
        signals.append(signal)
        noises.append(noise)
    return sum(noises) / sum(signals)


@answers.is_right
def by_the_variance_between_the_ranks(steps):
    """The same two estimates, written as variance and mean."""

    def of_step(batch, gradients):
        every = torch.stack(gradients).double()
        noise = batch * every.var(0).sum()
        return every.mean(0).square().sum() - noise / (batch * len(gradients)), noise

    return over(steps, of_step)


@answers.is_right
def by_products_between_the_ranks(steps):
    """|G|² from gradients of different ranks, whose noises have nothing in common."""

    def of_step(batch, gradients):
        n, every = len(gradients), torch.stack(list(gradients)).double()
        products = every @ every.T
        own = float(products.diagonal().mean())
        cross = (float(products.sum()) - n * own) / (n * (n - 1))
        return cross, batch * (own - cross)

    return over(steps, of_step)


@answers.is_right
def in_numpy(steps):
    signals, noises = [], []
    for batch, gradients in steps:
        every = np.stack([g.numpy().astype(float) for g in gradients])
        signal, noise = parts(batch, batch * len(every), np.mean((every**2).sum(1)), (every.mean(0) ** 2).sum())
        signals.append(signal)
        noises.append(noise)
    return np.mean(noises) / np.mean(signals)


@answers.is_right
def with_tensors_in_their_own_dtype(steps):
    signal = noise = 0
    for batch, gradients in steps:
        n = len(gradients)
        small = torch.stack([g @ g for g in gradients]).mean()
        mean = sum(gradients) / n
        big = mean.norm() ** 2
        signal = signal + (n * big - small) / (n - 1)
        noise = noise + (small - big) * batch * n / (n - 1)
    return noise / signal


answers.twin("adds_up_in_float32", {
    "n = len(gradients)": "gradients = [g.float() for g in gradients]\nn = len(gradients)",
}, of=with_tensors_in_their_own_dtype)
answers.twin("by_running_means", {
    "signals, noises = [], []": "signals, noises, count = [0.0], [0.0], 0",
    "signals.append(signal)": "count += 1\nsignals[0] += (signal - signals[0]) / count",
    "noises.append(noise)": "noises[0] += (noise - noises[0]) / count",
})

# Unbiased too; only that it varies more.
answers.mistake("takes_the_norm_of_rank_0", {"small, big)": "squared(gradients[0]), big)"},
    "|G_small|² comes from rank 0 alone: take the mean over the ranks")
answers.mistake("takes_the_norm_of_the_last_rank", {"small, big)": "squared(gradients[-1]), big)"},
    "|G_small|² comes from rank", "alone: take the mean over the ranks")
answers.mistake("clamps_the_signal", {"signals.append(signal)": "signals.append(max(signal, 0.0))"},
    "some of them mostly noise", "A |G|² below 0 was raised to 0")
answers.mistake("skips_negative_signals", {"signals.append(signal)": """
    if signal <= 0:
        continue
    signals.append(signal)
"""}, "some of them mostly noise", "The steps whose |G|² came out below 0 were left out")
answers.mistake("skips_negative_signals_alone", {
    "signals.append(signal)": "signals += [signal] * (signal > 0)",
    "sum(noises) / sum(signals)": "np.mean(noises) / np.mean(signals)",
}, "some of them mostly noise", "|G|² was left out where it came out below 0, but tr(Σ) was not")
answers.mistake("takes_the_size_of_the_signal", {"signals.append(signal)": "signals.append(abs(signal))"},
    "some of them mostly noise", "A |G|² below 0 lost its sign")
answers.mistake("takes_torchs_median_of_the_ratios", {
    "sum(noises) / sum(signals)": "(torch.tensor(noises) / torch.tensor(signals)).median()",
}, "This is the lower of the two middle ratios: average |G|² and tr(Σ) separately, then divide once")
answers.mistake("takes_torchs_median", {
    "sum(noises) / sum(signals)": "torch.tensor(noises).median() / torch.tensor(signals).median()",
}, "These are the lower of the two middle steps: take the means of |G|²")

answers.mistake("averages_the_ratios",
    {"sum(noises) / sum(signals)": "np.mean([noise / signal for signal, noise in zip(signals, noises, strict=True)])"},
    "The ratios were averaged over the steps", "divide once")
answers.mistake("divides_by_the_big_norm", {"signals.append(signal)": "signals.append(big)"},
    "It is divided by |G_big|², which has noise of its own")
answers.mistake("divides_by_the_small_norm", {"signals.append(signal)": "signals.append(small)"},
    "It is divided by |G_small|², which is mostly noise")
answers.mistake("forgets_the_batch", {"parts(batch, batch * len(gradients)": "parts(1, len(gradients)"},
    "B_small is missing", "B_big as the number of ranks")
answers.mistake("sums_the_ranks", {
    "parts(batch, batch * len(gradients), small, big)":
        "parts(batch, batch * len(gradients), small, squared(sum(gradients)))",
}, "The big gradient is the sum over the ranks: it should be their mean")
answers.mistake("forgets_the_square", {"small, big)": "small**0.5, big**0.5)"}, "The norms are not squared")
answers.mistake("averages_the_norms_and_forgets_the_square",
    {"small, big)": "sum(float(g.double().norm()) for g in gradients) / len(gradients), big**0.5)"},
    "The norms are not squared, and are averaged over the ranks")
answers.mistake("squares_the_mean_norm",
    {"small, big)": "(sum(float(g.double().norm()) for g in gradients) / len(gradients)) ** 2, big)"},
    "The mean of the ranks' norms is squared: take the mean of their squares")
answers.mistake("leaves_the_signal_times_the_batches",
    {"signals.append(signal)": "signals.append(signal * batch * (len(gradients) - 1))"},
    "is (m − b)·|G|²: divide it by m − b")
answers.mistake("leaves_the_noise_times_the_inverse_batches", {"noises.append(noise)": "noises.append(small - big)"},
    "is tr(Σ)·(1/b − 1/m): divide it by 1/b − 1/m")
answers.mistake("divides_neither", {
    "signals.append(signal)": "signals.append(signal * batch * (len(gradients) - 1))",
    "noises.append(noise)": "noises.append(small - big)",
}, "and m·|G_m|² − b·|G_b|² holds |G|² times m − b: divide by these")
answers.mistake("swaps_the_batches", {"parts(batch, batch * len(gradients)": "parts(batch * len(gradients), batch"},
    "The two batches are swapped")
answers.mistake("takes_the_ranks_for_the_big_batch", {"batch * len(gradients)": "len(gradients)"},
    "The batch is missing in B_big", "n · B_small")
answers.mistake("averages_the_ratios_of_rank_zero", {
    "small, big)": "squared(gradients[0]), big)",
    "sum(noises) / sum(signals)": "np.mean([noise / signal for signal, noise in zip(signals, noises, strict=True)])",
}, "|G_small|² comes from rank 0 alone: take the mean over the ranks")
answers.mistake("takes_the_first_batch_for_all", {"small, big = norms": "batch = steps[0][0]\nsmall, big = norms"},
    "The batch of the first step is taken for all")
answers.mistake("weighs_the_steps_by_their_batch", {
    "signals.append(signal)": "signals.append(batch * signal)",
    "noises.append(noise)": "noises.append(batch * noise)",
}, "The steps are weighted by batch: count each step equally")
answers.mistake("takes_the_middle_ones", {"sum(noises) / sum(signals)": "np.median(noises) / np.median(signals)"},
    "These are the medians over the steps")
answers.mistake("averages_the_gradients_over_the_steps", {
    "for batch, gradients in steps:": """
        every = torch.stack([torch.stack(list(gradients)) for _, gradients in steps]).double()
        for batch, gradients in [(steps[0][0], [*every.mean(0)])]:
    """,
}, "The gradients were averaged over the steps first")
answers.mistake("turns_it_over", {"sum(noises) / sum(signals)": "sum(signals) / sum(noises)"},
    "The ratio is upside down: divide tr(Σ) by |G|²")
answers.mistake("takes_the_biased_variance",
    {"noises.append(noise)": "noises.append(noise * (len(gradients) - 1) / len(gradients))"},
    "The variance between the ranks is divided by n: divide by n − 1")
answers.mistake("is_biased_twice", {
    "signals.append(signal)": "signals.append(big)",
    "noises.append(noise)":
        "noises.append(batch * float(torch.stack(gradients).double().var(0, correction=0).sum()))",
}, "tr(Σ) is divided by |G_big|², and its variance between the ranks by n: both are biased")
answers.mistake("returns_the_trace", {"sum(noises) / sum(signals)": "sum(noises) / len(steps)"},
    "This is tr(Σ): divide it by |G|²")
answers.mistake("takes_the_last_step", {"in steps:": "in steps[-1:]:"}, "Only the last step counts")
answers.mistake("adds_up_in_the_first_gradient", {
    "signal, noise =": """
        for gradient in gradients[1:]:
            gradients[0].add_(gradient)
        big = squared(gradients[0].div_(len(gradients)))
        signal, noise =
    """,
}, "the function changed the gradients that it was given: leave them unchanged")
answers.mistake("guards_the_division", {"/ sum(signals)": "/ (sum(signals) + 1e-8)"},
    "small gradients", "A small number was added to |G|²")
answers.mistake("raises_the_mean_signal_to_a_small_number", {"/ sum(signals)": "/ max(sum(signals), 1e-12)"},
    "nearly all of them mostly noise", "The mean of |G|² is below 0 here, and so is the noise scale: return it as it is")
answers.mistake("is_infinite_where_noise_hides_the_signal",
    {"return sum(noises) / sum(signals)": "return sum(noises) / sum(signals) if sum(signals) > 0 else float('inf')"},
    "nearly all of them mostly noise", "got inf. The mean of |G|² is below 0 here")
answers.mistake("has_no_sign", {"return sum(noises) / sum(signals)": "return abs(sum(noises) / sum(signals))"},
    "nearly all of them mostly noise", "The mean of |G|² is below 0 here, and so is the noise scale")
answers.mistake("takes_the_steps_off_their_list", {
    "for batch, gradients in steps:": "while steps:\n    batch, gradients = steps.pop()",
    "return sum(noises) / sum(signals)": "return sum(noises) / sum(signals) if signals else 0.0",
}, "the function changed the list of steps that it was given: leave them unchanged")
answers.mistake("returns_a_list", {"return sum(noises) / sum(signals)": "return [sum(noises) / sum(signals)]"},
    "expected the noise scale, one number, got a list with the number in it")
answers.mistake("returns_nothing", {"return sum(noises) / sum(signals)": ""},
    "expected the noise scale, one number, got None (does the function return it?)")

answers.spoil("averages_the_ratios_and_spoils_a_lone_step",
    {"return np.mean": "if len(steps) == 1:\n    gradients[0].zero_()\nreturn np.mean"}, of=answers["averages_the_ratios"])
