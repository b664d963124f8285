"""Exercise 13.3: the gradient noise scale from two batch sizes, unbiased."""

from __future__ import annotations

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


@answers.is_wrong("It was divided step by step, and the ratios averaged", "divide once")
def averages_the_ratios(steps):
    ratios = []
    for batch, gradients in steps:
        signal, noise = parts(batch, batch * len(gradients), *norms(gradients))
        ratios.append(noise / signal)
    return sum(ratios) / len(ratios)


@answers.is_wrong("It is divided by |G_big|², which has noise of its own")
def divides_by_the_big_norm(steps):
    def of_step(batch, gradients):
        _, noise = parts(batch, batch * len(gradients), *norms(gradients))
        return norms(gradients)[1], noise

    return over(steps, of_step)


@answers.is_wrong("It is divided by |G_small|², which is mostly noise")
def divides_by_the_small_norm(steps):
    def of_step(batch, gradients):
        _, noise = parts(batch, batch * len(gradients), *norms(gradients))
        return norms(gradients)[0], noise

    return over(steps, of_step)


@answers.is_wrong("B_small is missing", "B_big as the number of ranks")
def forgets_the_batch(steps):
    return over(steps, lambda batch, gradients: parts(1, len(gradients), *norms(gradients)))


@answers.is_wrong("The big gradient is the sum over the ranks: it should be their mean")
def sums_the_ranks(steps):
    def of_step(batch, gradients):
        small = sum(map(squared, gradients)) / len(gradients)
        return parts(batch, batch * len(gradients), small, squared(sum(gradients)))

    return over(steps, of_step)


@answers.is_wrong("The norms are not squared")
def forgets_the_square(steps):
    def of_step(batch, gradients):
        small, big = norms(gradients)
        return parts(batch, batch * len(gradients), small**0.5, big**0.5)

    return over(steps, of_step)


@answers.is_wrong("The norms are not squared, and are averaged over the ranks")
def averages_the_norms_and_forgets_the_square(steps):
    def of_step(batch, gradients):
        small = sum(float(g.double().norm()) for g in gradients) / len(gradients)
        return parts(batch, batch * len(gradients), small, norms(gradients)[1] ** 0.5)

    return over(steps, of_step)


@answers.is_wrong("The two batches are the wrong way round")
def swaps_the_batches(steps):
    return over(steps, lambda batch, gradients: parts(batch * len(gradients), batch, *norms(gradients)))


@answers.is_wrong("The batch is missing in B_big", "n · B_small")
def takes_the_ranks_for_the_big_batch(steps):
    return over(steps, lambda batch, gradients: parts(batch, len(gradients), *norms(gradients)))


@answers.is_wrong("It was divided step by step, and the ratios averaged")
def averages_the_ratios_of_rank_zero(steps):
    ratios = []
    for batch, gradients in steps:
        signal, noise = parts(batch, batch * len(gradients), squared(gradients[0]), norms(gradients)[1])
        ratios.append(noise / signal)
    return sum(ratios) / len(ratios)


@answers.is_wrong("The batch of the first step is taken for all")
def takes_the_first_batch_for_all(steps):
    first = steps[0][0]
    return over(steps, lambda _, gradients: parts(first, first * len(gradients), *norms(gradients)))


@answers.is_wrong("The steps are weighed by their batch: each step counts alike")
def weighs_the_steps_by_their_batch(steps):
    def of_step(batch, gradients):
        signal, noise = parts(batch, batch * len(gradients), *norms(gradients))
        return batch * signal, batch * noise

    return over(steps, of_step)


@answers.is_wrong("These are the middle ones of the steps")
def takes_the_middle_ones(steps):
    signals, noises = zip(*(parts(batch, batch * len(g), *norms(g)) for batch, g in steps), strict=True)
    return np.median(noises) / np.median(signals)


@answers.is_wrong("The gradients were averaged over the steps first")
def averages_the_gradients_over_the_steps(steps):
    batch, every = steps[0][0], torch.stack([torch.stack(list(gradients)) for _, gradients in steps]).double()
    return over([(batch, [*every.mean(0)])], lambda b, g: parts(b, b * len(g), *norms(g)))


@answers.is_wrong("It is the wrong way round: tr(Σ) over |G|²")
def turns_it_over(steps):
    return 1 / over(steps, lambda batch, gradients: parts(batch, batch * len(gradients), *norms(gradients)))


@answers.is_wrong("The variance between the ranks is divided by n, and should be by n − 1")
def takes_the_biased_variance(steps):
    def of_step(batch, gradients):
        n = len(gradients)
        signal, noise = parts(batch, batch * n, *norms(gradients))
        return signal, noise * (n - 1) / n

    return over(steps, of_step)


@answers.is_wrong("tr(Σ) is divided by |G_big|², and its variance between the ranks by n: both are biased")
def is_biased_twice(steps):
    def of_step(batch, gradients):
        every = torch.stack(gradients).double()
        return squared(every.mean(0)), batch * float(every.var(0, correction=0).sum())

    return over(steps, of_step)


@answers.is_wrong("This is tr(Σ): divide it by |G|²")
def returns_the_trace(steps):
    return sum(parts(batch, batch * len(g), *norms(g))[1] for batch, g in steps) / len(steps)


@answers.is_wrong("Only the last step counts")
def takes_the_last_step(steps):
    return over(steps[-1:], lambda batch, gradients: parts(batch, batch * len(gradients), *norms(gradients)))


@answers.is_wrong("the gradients that were handed in have changed: leave them as they are")
def adds_up_in_the_first_gradient(steps):
    def of_step(batch, gradients):
        n, small = len(gradients), sum(map(squared, gradients)) / len(gradients)
        mean = gradients[0]
        for gradient in gradients[1:]:
            mean += gradient
        mean /= n
        return parts(batch, batch * n, small, squared(mean))

    return over(steps, of_step)


@answers.is_wrong("expected the noise scale, one number, got None (does the function return it?)")
def returns_nothing(steps):
    over(steps, lambda batch, gradients: parts(batch, batch * len(gradients), *norms(gradients)))


@answers.is_right
def plain(steps):
    return over(steps, lambda batch, gradients: parts(batch, batch * len(gradients), *norms(gradients)))


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


@answers.is_right
def from_one_rank_alone(steps):
    """Unbiased too; only that it varies more."""

    def of_step(batch, gradients):
        return parts(batch, batch * len(gradients), squared(gradients[-1]), norms(gradients)[1])

    return over(steps, of_step)
