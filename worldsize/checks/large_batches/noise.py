"""The check of the gradient noise scale, estimated from gradients of two batch sizes.

The small batch is one rank's, any of them or the mean over all, the big one that of all ranks together. Both estimates, of
|G|² and of tr(Σ), are unbiased, and each is averaged over the steps before one is divided by the other.
No right answer is turned away by luck: the ranks' noise adds up to zero, which makes the mean estimate of |G|² at least 1.25
for each number of a gradient, and the steps' lengths are fixed, so that no two ways of averaging agree. That a wrong number
is by luck the estimate of one of the ranks has a chance under 1e-5 in one of the float64 inputs, and so under 1e-9 in two.
S. McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162, 2018, appendix A.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.units import count

POINTS = {
    "unbiased: |G|² and tr(Σ) of one step": 0.75,
    "averaged over the steps before the division": 0.75,
}
UNBIASED, AVERAGED = POINTS
TOLERANCE = {"float64": 1e-6, "float32": 1e-3}  # two near norms are subtracted, which costs float32 some digits


@dataclass(frozen=True)
class NoisySteps:
    """`gradients[k][rank]`, each of shape [numbers], from `batches[k]` examples of each rank."""

    batches: tuple[int, ...]
    gradients: list[list[np.ndarray]]

    @property
    def ranks(self) -> int:
        return len(self.gradients[0])

    @property
    def dtype(self) -> str:
        return str(self.gradients[0][0].dtype)

    @property
    def asked(self) -> tuple[Any, ...]:
        return ([(batch, own) for batch, own in zip(self.batches, self.gradients, strict=True)],)

    @property
    def small(self) -> np.ndarray:
        """The batch of one rank at each step."""
        return np.array(self.batches, float)

    @property
    def big(self) -> np.ndarray:
        return self.ranks * self.small

    @cached_property
    def norms(self) -> tuple[np.ndarray, np.ndarray]:
        """At each step the squared norm of one rank's gradient, as a mean over the ranks, and of their mean gradient."""
        every = np.array(self.gradients, float)
        return np.mean(np.sum(every**2, axis=2), axis=1), np.sum(np.mean(every, axis=1) ** 2, axis=1)

    @cached_property
    def norms_of_ranks(self) -> list[np.ndarray]:
        """By rank, the squared norm of its own gradient at each step."""
        return [*np.sum(np.array(self.gradients, float) ** 2, axis=2).T]

    def __str__(self) -> str:
        sizes = f"batch {self.batches[0]}"
        if len(set(self.batches)) > 1:
            sizes = f"batches {', '.join(map(str, self.batches))}"
        return f"{self.ranks} ranks, {sizes}, {count(len(self.batches), 'step')}"


def noise_scale(arena: Arena, fn: Callable) -> Verdict:
    """Check of the gradient noise scale: `noise_scale(steps)`, a number.

    steps[k] is (batch, gradients): how many examples each rank took, and every rank's mean gradient over them, [numbers].
    """
    return judge("noise_scale", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    def drawn(ranks: int, batches: Sequence[int], dtype: str = "float64") -> NoisySteps:
        return _drawn(np.random.default_rng(arena.draws.getrandbits(32)), ranks, tuple(batches), dtype)

    single = [drawn(3, [4]), drawn(2, [16]), drawn(8, [5], "float32")]
    several = [drawn(3, [4] * 4), drawn(5, [2, 8, 3]), drawn(2, [6, 6, 12, 6, 24], "float32")]

    yield _case("one step", arena, fn, single, UNBIASED)
    yield _case("several steps", arena, fn, several, AVERAGED)


def _drawn(generator: np.random.Generator, ranks: int, batches: tuple[int, ...], dtype: str, numbers: int = 40) -> NoisySteps:
    """Signal and noise change from step to step, each in its own way."""
    gradients = []
    for k in range(len(batches)):
        signal = generator.uniform(1.5, 2.5, numbers) * generator.choice([-1, 1], numbers) * (1, 3, 0.7)[k % 3]
        noise = generator.uniform(-1, 1, (ranks, numbers)) * (1, 0.6, 0.5, 0.2)[k % 4]
        gradients.append([*(signal + noise - noise.mean(axis=0)).astype(dtype)])
    return NoisySteps(batches, gradients)


def _case(name: str, arena: Arena, fn: Callable, drawn: list[NoisySteps], kind: str) -> Case:
    return Case(
        name,
        lambda: arena.ranks(fn, [[steps.asked for steps in drawn]], driver=on_ranks.answers),
        lambda ended: {kind: _first_wrong(ended, drawn)},
    )


def _first_wrong(ended: ArenaResult, drawn: list[NoisySteps]) -> Complaint:
    for got, after, steps in zip(ended.returned[0]["returned"], ended.inputs[0], drawn, strict=True):
        complaint = _changed(after, steps) or _wrong(got, steps)
        if complaint:
            return f"{steps}: {complaint}"

    return None


def _wrong(got: Any, steps: NoisySteps) -> Complaint:
    value = number(got)
    if isinstance(value, str):
        return f"expected the noise scale, one number, {value}"

    tolerance = TOLERANCE[steps.dtype]
    expected = estimate(steps)
    if any(close(value, estimate(steps, small_norm), tolerance) for small_norm in (steps.norms[0], *steps.norms_of_ranks)):
        return None

    named = first_named(value, _mistakes(steps, steps.norms[0]), tolerance)
    named = named or first_named(value, _mistakes(steps, steps.norms_of_ranks[0]), tolerance)
    return f"expected {expected:.6g}, got {value:.6g}{named}"


def _changed(after: Any, steps: NoisySteps) -> Complaint:
    """`after` is what was handed in, as the function left it."""
    left = [own for _, own in after[0]]
    if np.array_equal(np.array(left), np.array(steps.gradients)):
        return None
    return "the gradients that were handed in have changed: leave them as they are, the optimizer has to step by them."


# ---- what should come out --------------------------------------------------------------------


def parts(small: Any, big: Any, small_norm: Any, big_norm: Any) -> tuple[Any, Any]:
    """Unbiased |G|² and tr(Σ) from the squared norms of the gradients of two batches (McCandlish, appendix A.1)."""
    signal = (big * big_norm - small * small_norm) / (big - small)
    noise = (small_norm - big_norm) / (1 / small - 1 / big)
    return signal, noise


def estimate(steps: NoisySteps, small_norm: np.ndarray | None = None) -> float:
    """The noise scale, tr(Σ) over |G|², each of them averaged over the steps.

    `small_norm`, at each step, is the mean of the ranks' squared norms where it is not given.
    """
    mean_norm, big_norm = steps.norms
    signal, noise = parts(steps.small, steps.big, mean_norm if small_norm is None else small_norm, big_norm)
    return float(noise.mean() / signal.mean())


def _mistakes(steps: NoisySteps, small_norm: np.ndarray) -> dict[str, float]:
    n, small, big = steps.ranks, steps.small, steps.big
    big_norm = steps.norms[1]
    signal, noise = parts(small, big, small_norm, big_norm)
    every = np.array(steps.gradients, float)

    def of(*given: Any) -> float:
        found = parts(*given)
        with np.errstate(all="ignore"):
            return float(np.mean(found[1]) / np.mean(found[0]))

    return {
        "It was divided step by step, and the ratios averaged: average |G|² and tr(Σ) each, and divide once.": float(
            np.mean(noise / signal)
        ),
        "This is the middle one of the steps' ratios: average |G|² and tr(Σ) each, and divide once.": float(
            np.median(noise / signal)
        ),
        "It is divided by |G_big|², which has noise of its own: its mean is |G|² + tr(Σ)/B_big.": float(
            noise.mean() / big_norm.mean()
        ),
        "It is divided by |G_small|², which is mostly noise: its mean is |G|² + tr(Σ)/B_small.": float(
            noise.mean() / small_norm.mean()
        ),
        "The big gradient is the sum over the ranks: it should be their mean.": of(small, big, small_norm, n**2 * big_norm),
        "The norms are not squared.": of(small, big, small_norm**0.5, big_norm**0.5),
        "The norms are not squared, and are averaged over the ranks.": of(
            small, big, np.mean(np.sum(every**2, axis=2) ** 0.5, axis=1), big_norm**0.5
        ),
        "B_small is missing: it counts as 1, and B_big as the number of ranks.": of(1.0, float(n), small_norm, big_norm),
        "The two batches are the wrong way round.": of(big, small, small_norm, big_norm),
        "The batch is missing in B_big: it is that of all ranks together, n · B_small.": of(
            small, float(n), small_norm, big_norm
        ),
        "The batch of the first step is taken for all: each step has its own.": of(small[0], big[0], small_norm, big_norm),
        "The steps' mean batch is taken for all: each step has its own.": of(small.mean(), big.mean(), small_norm, big_norm),
        "The steps are weighed by their batch: each step counts alike.": float((small * noise).mean() / (small * signal).mean()),
        "These are the middle ones of the steps: take the mean of |G|² and that of tr(Σ).": float(
            np.median(noise) / np.median(signal)
        ),
        "The gradients were averaged over the steps first: the noise scale is one of each step's own gradients.": of(
            small[0], big[0], np.mean(np.sum(every.mean(axis=0) ** 2, axis=1)), np.sum(every.mean(axis=(0, 1)) ** 2)
        ),
        "The norms' means are joined with the mean batch: each step has a batch of its own.": of(
            small.mean(), big.mean(), small_norm.mean(), big_norm.mean()
        ),
        "Only the first step counts.": float(noise[0] / signal[0]),
        "Only the last step counts.": float(noise[-1] / signal[-1]),
        "It is the wrong way round: tr(Σ) over |G|².": float(signal.mean() / noise.mean()),
        "This is tr(Σ): divide it by |G|².": float(noise.mean()),
        "This is the variance between the ranks' gradients over |G|²: a single example's is B_small times that.": float(
            np.mean(noise / small) / signal.mean()
        ),
        "The variance between the ranks is divided by n, and should be by n − 1: its mean is too small.": float(
            np.mean(noise * (n - 1) / n) / signal.mean()
        ),
        "tr(Σ) is divided by |G_big|², and its variance between the ranks by n: both are biased.": float(
            np.mean(noise * (n - 1) / n) / big_norm.mean()
        ),
    }
