"""Check the gradient noise scale, estimated from gradients of two batch sizes.

The small batch is a rank's, with |gradient|² averaged over the ranks; the big batch joins all ranks. The estimates of |G|²
and of tr(Σ) are unbiased, so each is averaged over all steps, a negative |G|² included, before the division.
S. McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162, 2018, appendix A.1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, first_slip, lone_number
from worldsize.checks.verdict import Complaint
from worldsize.units import count

UNBIASED = "unbiased: |G|² and tr(Σ) of one step"
AVERAGED = "averaged over the steps before the division"
# float32 loses digits where two near norms are subtracted; gradients in float64 may be added up in float32
TOLERANCE = {"float64": 2e-4, "float32": 1e-3}
CLEAR = {"float64": 1e-3, "float32": 5e-3}
# Inputs are drawn again until each mistake is off by CLEAR, at least five tolerances, or right by its formula, as many are with
# one step: none passes by luck. By input, 28 to 95 of 100 draws suffice (measured). Even if 20 did, 1,000 draws would all fail
# with a chance of 0.8 ** 1000 < 1e-90
SAME = 1e-9
NUMBERS = 40  # of a gradient
TINY = 1e-6  # times the usual gradients: a small number that guards a division shows
GUARDS = (1e-12, 1e-10, 1e-8, 1e-6)


@dataclass(frozen=True)
class NoisySteps:
    """The gradients of some noisy steps: `gradients[k][rank]`, of shape [numbers], from `batches[k]` examples of each rank."""

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
        """Return the noise scale's small batch, a rank's, at each step."""
        return np.array(self.batches, float)

    @property
    def big(self) -> np.ndarray:
        return self.ranks * self.small

    @cached_property
    def norms(self) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each step, the squared norm of a rank's gradient, as a mean over the ranks, and of the mean gradient."""
        every = np.array(self.gradients, float)
        return np.mean(np.sum(every**2, axis=2), axis=1), np.sum(np.mean(every, axis=1) ** 2, axis=1)

    @cached_property
    def norms_of_ranks(self) -> list[np.ndarray]:
        """Return, for the noise of each rank, the squared norm of its own gradient at each step."""
        return [*np.sum(np.array(self.gradients, float) ** 2, axis=2).T]

    @override
    def __str__(self) -> str:
        sizes = f"batch {self.batches[0]}"
        if len(set(self.batches)) > 1:
            sizes = f"batches {', '.join(map(str, self.batches))}"
        return f"{self.ranks} ranks, {sizes}, {count(len(self.batches), 'step')}"


@exercise({UNBIASED: 0.75, AVERAGED: 0.75})
def noise_scale(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check `noise_scale(steps)`, which returns the gradient noise scale, a number.

    steps[k] is (batch, gradients): the number of examples that each rank took, and every rank's mean gradient over them,
    [numbers].
    """

    def drawn(ranks: int, batches: Sequence[int], *more: Any, **given: Any) -> NoisySteps:
        return draw(np.random.default_rng(arena.draws.getrandbits(32)), ranks, tuple(batches), *more, **given)

    single = [drawn(3, [4]), drawn(2, [16]), drawn(8, [5], "float32"), drawn(33, [2])]
    several = [drawn(3, [4] * 4), drawn(5, [2, 8, 3]), drawn(2, [6, 6, 12, 6, 24], "float32")]
    noisy = [drawn(3, [8] * 6, weak=(1, 4)), drawn(2, [4, 4, 3, 16, 4], weak=(0, 3, 4))]
    small = [drawn(4, [3, 12], size=TINY)]
    hidden = [drawn(2, [4, 16, 3, 5, 8, 4, 12, 6, 7], weak=(0, 1, 3, 4, 5, 6, 7, 8))]

    for name, steps, tried in (
        ("one step", single, UNBIASED), ("several steps", several, AVERAGED),
        ("several steps, some of them mostly noise", noisy, AVERAGED), ("small gradients", small, AVERAGED),
        ("several steps, nearly all of them mostly noise", hidden, AVERAGED),
    ):  # fmt: skip
        yield Case(
            name,
            lambda steps=steps: arena.ranks(fn, [[one.asked for one in steps]], driver=on_ranks.answers),
            lambda ended, steps=steps, tried=tried: {tried: _first_wrong(ended, steps)},
        )


def draw(
    generator: np.random.Generator, ranks: int, batches: tuple[int, ...], dtype: str = "float64", weak: Sequence[int] = (),
    size: float = 1.0,
) -> NoisySteps:  # fmt: skip
    """Draw noisy steps with each known mistake clearly wrong, or right by its formula; `weak` steps have a negative |G|².

    Numbers are about `size`.
    """

    def drawn() -> NoisySteps:
        gradients = []
        for k in range(len(batches)):
            # signal and noise change from step to step, each with a period of its own
            strength, spread = (1, 3, 0.7)[k % 3], (1, 0.6, 0.5, 0.2)[k % 4]
            if k in weak:
                strength, spread = 0.15, 2.0
            signal = generator.uniform(1.5, 2.5, NUMBERS) * generator.choice([-1, 1], NUMBERS) * strength
            noise = generator.uniform(-1, 1, (ranks, NUMBERS)) * spread
            # the ranks' noise adds up to zero, so a mean estimate of |G|² is clearly positive, or negative if most steps are weak
            gradients.append([*(size * (signal + noise - noise.mean(axis=0))).astype(dtype)])
        return NoisySteps(batches, gradients)

    return drawn_until(_tells, drawn, f"noise_scale for {ranks} ranks and batches {batches}")


def _tells(steps: NoisySteps) -> bool:
    """Return whether each noise mistake is clearly wrong or exactly right, and no two are nearly alike without being the same."""
    right, every = estimate(steps), np.array(list(_mistakes(steps).values()))
    mistaken = every[np.isfinite(every)]
    apart = np.abs(np.diff(np.sort(mistaken))) / abs(right)
    alike = (apart > SAME) & (apart < 2 * TOLERANCE["float64"])
    off = np.abs(mistaken / right - 1)
    clear = (off > CLEAR[steps.dtype]) | (off < SAME)
    if alike.any() or not clear.all():
        return False

    # of an even number of steps, neither the first nor the last may have a middle ratio, and no step both middle values
    count = len(steps.batches)
    if count < 4 or count % 2:
        return True
    signal, noise = parts(steps.small, steps.big, *steps.norms)
    middles = [(count - 1) // 2, count // 2]
    of_ratio, of_signal, of_noise = (np.argsort(values)[middles] for values in (noise / signal, signal, noise))
    return not np.isin(of_ratio, (0, count - 1)).any() and not (of_signal == of_noise).any()


def _first_wrong(ended: ArenaResult, drawn: list[NoisySteps]) -> Complaint:
    for got, after, steps in zip(ended.returned[0]["returned"], ended.inputs[0], drawn, strict=True):
        complaint: Complaint
        if changed(after, steps.asked, "steps"):
            what = "the gradients" if len(after[0]) == len(steps.batches) else "the list of steps"
            complaint = f"the function changed {what} that it was given: leave them unchanged, the caller needs them."
        else:
            complaint = _wrong(got, steps)
        if complaint:
            return f"{steps}: {complaint}"

    return None


def _wrong(got: Any, steps: NoisySteps) -> Complaint:
    value = lone_number(got)
    if isinstance(value, str):
        return f"expected the noise scale, one number, {value}"

    tolerance = TOLERANCE[steps.dtype]
    expected = estimate(steps)
    if close(value, expected, tolerance, near_zero=0.0):
        return None

    def gives_it(mistaken: float) -> bool:
        return bool(np.isfinite(mistaken)) and close(value, mistaken, tolerance, near_zero=0.0)

    named = first_slip(gives_it, _mistakes(steps))
    for small_norm in steps.norms_of_ranks:
        named = named or first_slip(gives_it, _mistakes_of(steps, small_norm))
    if not named and any(map(gives_it, _guarded(steps))):
        named = "A small number was added to |G|²: with gradients as small as these it counts."
    if not named and expected < 0:
        named = "The mean of |G|² is below 0 here, and so is the noise scale: return it as it is."
    return f"expected {expected:.6g}, got {value:.6g}. {named}".rstrip()


def parts(small: Any, big: Any, small_norm: Any, big_norm: Any) -> tuple[Any, Any]:
    """Return unbiased |G|² and tr(Σ) from the squared norms of the gradients of two batches (McCandlish, appendix A.1)."""
    signal = (big * big_norm - small * small_norm) / (big - small)
    noise = (small_norm - big_norm) / (1 / small - 1 / big)
    return signal, noise


def estimate(steps: NoisySteps, small_norm: np.ndarray | None = None) -> float:
    """Return the noise scale: tr(Σ) over |G|², each averaged over the steps.

    `small_norm`, at each step, defaults to the mean of the ranks' squared norms.
    """
    mean_norm, big_norm = steps.norms
    signal, noise = parts(steps.small, steps.big, mean_norm if small_norm is None else small_norm, big_norm)
    return float(noise.mean() / signal.mean())


def _guarded(steps: NoisySteps) -> list[float]:
    """Return the noise scales with a small number added to the mean or the sum of |G|², which guards the division."""
    signal, noise = (one.mean() for one in parts(steps.small, steps.big, *steps.norms))
    return [float(noise / (signal + guard / count)) for guard in GUARDS for count in (1, len(steps.batches))]


def _mistakes(steps: NoisySteps) -> dict[str, float]:
    """Return {words: what the mistake gives}: with the mean of the ranks' norms, or with a rank's norm as the only mistake."""
    alone = {
        f"|G_small|² comes from rank {rank} alone: take the mean over the ranks, which is less noisy.": estimate(steps, norm)
        for rank, norm in enumerate(steps.norms_of_ranks)
    }
    return _mistakes_of(steps, steps.norms[0]) | alone


def _mistakes_of(steps: NoisySteps, small_norm: np.ndarray) -> dict[str, float]:
    n, small, big = steps.ranks, steps.small, steps.big
    big_norm = steps.norms[1]
    signal, noise = parts(small, big, small_norm, big_norm)
    every = np.array(steps.gradients, float)

    of_ratios, of_steps = {}, {}
    for which, place in (("lower", (len(signal) - 1) // 2), ("upper", len(signal) // 2)):
        words = f"This is the {which} of the two middle ratios: average |G|² and tr(Σ) separately, then divide once."
        of_ratios[words] = float(np.sort(noise / signal)[place])
        words = f"These are the {which} of the two middle steps: take the means of |G|² and of tr(Σ)."
        of_steps[words] = float(np.sort(noise)[place] / np.sort(signal)[place])

    def of(*given: Any) -> float:
        found = parts(*given)
        with np.errstate(all="ignore"):
            return float(np.mean(found[1]) / np.mean(found[0]))

    return {
        "The ratios were averaged over the steps: average |G|² and tr(Σ) separately, then divide once.": float(
            np.mean(noise / signal)
        ),
        "This is the median of the steps' ratios: average |G|² and tr(Σ) separately, then divide once.": float(
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
        "The mean of the ranks' norms is squared: take the mean of their squares.": of(
            small, big, np.mean(np.sum(every**2, axis=2) ** 0.5, axis=1) ** 2, big_norm
        ),
        "m·|G_m|² − b·|G_b|² is (m − b)·|G|²: divide it by m − b.": float(noise.mean() / ((big - small) * signal).mean()),
        "|G_b|² − |G_m|² is tr(Σ)·(1/b − 1/m): divide it by 1/b − 1/m.": float(
            ((1 / small - 1 / big) * noise).mean() / signal.mean()
        ),
        "|G_b|² − |G_m|² holds tr(Σ) times 1/b − 1/m, and m·|G_m|² − b·|G_b|² holds |G|² times m − b: divide by these.": float(
            ((1 / small - 1 / big) * noise).mean() / ((big - small) * signal).mean()
        ),
        "B_small is missing: it counts as 1, and B_big as the number of ranks.": of(1.0, float(n), small_norm, big_norm),
        "The two batches are swapped.": of(big, small, small_norm, big_norm),
        "The batch is missing in B_big: take the batch of all ranks together, n · B_small.": of(
            small, float(n), small_norm, big_norm
        ),
        "The batch of the first step is taken for all: each step has its own.": of(small[0], big[0], small_norm, big_norm),
        "The steps' mean batch is taken for all: each step has its own.": of(small.mean(), big.mean(), small_norm, big_norm),
        "The steps are weighted by batch: count each step equally.": float((small * noise).mean() / (small * signal).mean()),
        "These are the medians over the steps: take the means of |G|² and of tr(Σ).": float(
            np.median(noise) / np.median(signal)
        ),
        **_without_negatives(signal, noise),
        **of_ratios,
        **of_steps,
        "The gradients were averaged over the steps first: the noise scale is one of each step's own gradients.": of(
            small[0], big[0], np.mean(np.sum(every.mean(axis=0) ** 2, axis=1)), np.sum(every.mean(axis=(0, 1)) ** 2)
        ),
        "The norms' means are joined with the mean batch: each step has a batch of its own.": of(
            small.mean(), big.mean(), small_norm.mean(), big_norm.mean()
        ),
        "Only the first step counts.": float(noise[0] / signal[0]),
        "Only the last step counts.": float(noise[-1] / signal[-1]),
        "The ratio is upside down: divide tr(Σ) by |G|².": float(signal.mean() / noise.mean()),
        "This is tr(Σ): divide it by |G|².": float(noise.mean()),
        "This is the variance between the ranks' gradients over |G|²: a single example's is B_small times that.": float(
            np.mean(noise / small) / signal.mean()
        ),
        "The variance between the ranks is divided by n: divide by n − 1, or its mean is too small.": float(
            np.mean(noise * (n - 1) / n) / signal.mean()
        ),
        "tr(Σ) is divided by |G_big|², and its variance between the ranks by n: both are biased.": float(
            np.mean(noise * (n - 1) / n) / big_norm.mean()
        ),
    }


def _without_negatives(signal: np.ndarray, noise: np.ndarray) -> dict[str, float]:
    """Return {words: what the mistake gives} for noise mistakes with steps whose |G|² is below 0."""
    kept = signal > 0
    if kept.all():
        return {}

    because = "only negative values keep the mean over the steps unbiased"
    return {
        f"A |G|² below 0 was raised to 0: {because}.": float(noise.mean() / np.maximum(signal, 0).mean()),
        f"The steps whose |G|² came out below 0 were left out: {because}.": float(noise[kept].mean() / signal[kept].mean()),
        f"|G|² was left out where it came out below 0, but tr(Σ) was not: {because}.": float(noise.mean() / signal[kept].mean()),
        f"A |G|² below 0 lost its sign: {because}.": float(noise.mean() / np.abs(signal).mean()),
    }
