"""Steps of an average of signs, drawn for the check of `one_bit_average`, and the results that slips would give.

No step leaves a verdict to luck: only exact zeros are near 0, and in two small cases every slip gives a result of its own. Left
out: the judging (`one_bit`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from typing_extensions import override

from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.expected import ByRank
from worldsize.checks.less_communication.compared_steps import (
    StepWithResiduals,
    all_differ,
    by_other_counts,
    orders_differ,
)

CLEAR = 1e-3  # least difference of two slips; numbers lie between 0.3 and a few units


def by_block(values: np.ndarray, block: int, scale_of: Callable[[np.ndarray], float]) -> np.ndarray:
    """Return, for codes, `scale_of` each block's values, repeated in the place of each of them: [numbers]."""
    scales = np.empty_like(values)
    for start in range(0, values.size, block):
        scales[start : start + block] = scale_of(values[start : start + block])
    return scales


def mean_size(values: np.ndarray) -> float:
    return np.abs(values).mean(dtype=float)


def signs(values: np.ndarray) -> np.ndarray:
    """Return the codes' signs: 1 for 0 and more, −1 for less, in the dtype of the values."""
    return np.where(values >= 0, 1, -1).astype(values.dtype)


@dataclass(frozen=True)
class CodedStep(StepWithResiduals):
    """A coded step of all ranks: totals[rank] is gradient plus residual, [numbers]; sent[rank] its signs times scales."""

    block: int

    @cached_property
    def scales(self) -> list[np.ndarray]:
        return list(map(self.scaled, self.totals))

    @cached_property
    @override
    def sent(self) -> list[np.ndarray]:
        return list(map(self.coded, self.totals))

    def scaled(self, values: np.ndarray) -> np.ndarray:
        return by_block(values, self.block, mean_size)

    def coded(self, values: np.ndarray) -> np.ndarray:
        return signs(values) * self.scaled(values)


def draw_steps(
    generator: np.random.Generator, n: int, numbers: int, block: int, steps: int, dtype: str, telling: bool
) -> list[CodedStep]:
    """Draw coded steps, the first with zeros in it and, given two whole blocks or more, a block of zeros.

    `telling`: redraw until the first step tells all slips, and orders of addition, apart. Raises AssertionError as `drawn_until`.
    """
    first = drawn_until(
        lambda step: not telling or _tells(step),
        lambda: _first(generator, n, numbers, block, dtype),
        f"one_bit_average for {n} ranks",
    )
    drawn = [first]
    while len(drawn) < steps:
        # totals, not gradients, must be clear of zero: their signs are sent
        gradients = [_clear_of_zero(generator, numbers, dtype) - kept for kept in drawn[-1].kept]
        drawn.append(CodedStep(gradients, drawn[-1].kept, block))
    return drawn


def _clear_of_zero(generator: np.random.Generator, numbers: int, dtype: str) -> np.ndarray:
    values = generator.normal(size=numbers)
    return (values + 0.3 * np.sign(values)).astype(dtype)


def _first(generator: np.random.Generator, n: int, numbers: int, block: int, dtype: str) -> CodedStep:
    """Draw a coded step with zeros: integer residuals cancel exactly against gradients."""
    gradients, residuals = [], []
    for _ in range(n):
        residual = generator.integers(-3, 4, numbers).astype(dtype)
        gradient = _clear_of_zero(generator, numbers, dtype) - residual
        zeros = generator.choice(numbers, 1 + numbers // 20)
        if numbers >= 2 * block:
            start = block * int(generator.integers(numbers // block))
            residual[start : start + block] = 0
            zeros = np.concatenate([zeros, np.arange(start, start + block)])
        gradient[zeros] = -residual[zeros]
        gradients.append(gradient)
        residuals.append(residual)
    return CodedStep(gradients, residuals, block)


def _tells(step: CodedStep) -> bool:
    """Return whether every coded slip gives rank 0 a result of its own, and other orders of addition other last bits."""
    if not orders_differ(step.sent):
        return False
    return all_differ(step.average, average_slips(step), CLEAR) and all_differ(step.kept[0], residual_slips(step), CLEAR)


def average_slips(step: CodedStep) -> dict[str, ByRank]:
    """Return {words for a slip: the average of the coded step that it gives, by rank}."""
    n, block, totals, gradients, sent = len(step.totals), step.block, step.totals, step.gradients, step.sent
    right, mean = step.average, np.mean(totals, axis=0)
    own_signs, scales, mean_scale = list(map(signs, totals)), step.scales, np.mean(step.scales, axis=0)
    votes = np.sum(own_signs, axis=0)

    packed = np.packbits(np.array(totals) >= 0, axis=1)  # [ranks, bytes]
    of_summed_bytes = np.unpackbits(np.sum(packed, axis=0, dtype=np.uint8), count=right.size)  # a sum wraps after 255
    reversed_in_bytes = np.unpackbits(packed, axis=1, count=right.size, bitorder="little")

    def mean_of(made: Callable[..., np.ndarray], *by_rank: ByRank) -> np.ndarray:
        return np.mean(list(map(made, *by_rank)), axis=0)

    def scaled_by(scale_of: Callable[[np.ndarray], float], size: int = block) -> np.ndarray:
        return mean_of(lambda t: signs(t) * by_block(t, size, scale_of), totals)

    everywhere = {
        "It was coded from the gradients alone: add the residual, or the rest that the bits leave out is lost for ever.":
            mean_of(step.coded, gradients),
        "The scales are of gradient + residual, but the signs are the gradient's.":
            mean_of(lambda g, s: signs(g) * s, gradients, scales),
        "The signs are of gradient + residual, but the scales are the gradient's.":
            mean_of(lambda g, t: signs(t) * step.scaled(g), gradients, totals),
        "The residual is in the code twice: gradient + residual has it once.":
            mean_of(lambda t, e: step.coded(t + e), totals, step.residuals),
        "The packed bytes were added up: a sum of two bytes is no byte of sums. Unpack each rank's bytes first.":
            np.where(of_summed_bytes, mean_scale, -mean_scale),
        "These are sums: divide by the number of ranks.": right * n,
        "It was divided by the number of ranks twice.": right / n,
        "All numbers got the first block's scale: repeat each scale for the numbers of its own block.":
            mean_of(lambda t, s: signs(t) * s[0], totals, scales),
        "This is the mean of the numbers themselves: a sign and its block's scale travel in their place.": mean,
        "All ranks' signs got the mean of all ranks' scales: multiply each rank's signs by its own scales.":
            np.mean(own_signs, axis=0) * mean_scale,
        "This is a vote: the sign that most ranks have. Take the mean of the decoded codes.": np.sign(votes) * mean_scale,
        "The scale is the largest size of a block: the mean size is the scale that leaves the least behind.":
            scaled_by(lambda part: np.abs(part).max()),
        "The scale is the root of a block's mean square: it is the mean size.": scaled_by(lambda part: np.sqrt((part**2).mean())),
        "The scale is the sum of a block's sizes: divide by how many numbers it has.": scaled_by(lambda part: np.abs(part).sum()),
        "The scale is the size of the block's mean: the mean of its sizes is larger, where signs differ.":
            scaled_by(lambda part: abs(part.mean())),
        "The scale is the mean of a block's numbers, in which signs cancel: it is the mean of their sizes.":
            scaled_by(lambda part: part.mean()),
        "The scale is the median of a block's sizes: it is their mean.":
            scaled_by(lambda part: np.sort(np.abs(part))[(part.size - 1) // 2]),
        "The scales were laid out one after another, again and again: repeat_interleave gives each number that of its block.":
            mean_of(lambda t, s: signs(t) * np.tile(s[::block], block)[: t.size], totals, scales),
        "There is one scale for all numbers: each block has its own.": scaled_by(mean_size, totals[0].size),
        "The last block is shorter, and its mean was taken over a whole block: zeros that fill it up do not count.":
            scaled_by(lambda part: np.abs(part).sum() / block),
        "A 0 was sent as −1 times its scale. Its bit is 1.": mean_of(lambda t, s: np.where(t > 0, s, -s), totals, scales),
        "A 0 stayed 0, which no bit says: torch.sign knows three signs. Its bit is 1.":
            mean_of(lambda t, s: np.sign(t) * s, totals, scales),
        "The signs of each eight numbers came in reverse: packing and unpacking go by the same order of bits.":
            mean_of(lambda bits, s: np.where(bits, s, -s), reversed_in_bytes, scales),
        "The signs are the wrong way round: 1 is for 0 and more.": -right,
        "A −1 came as 255: uint8 has no numbers below 0, so change the dtype before you subtract.":
            mean_of(lambda t, s: np.where(t >= 0, s, 255 * s), totals, scales),
        "A bit of 0 came as the number 0: it stands for −1.": mean_of(lambda t, s: np.where(t >= 0, s, 0), totals, scales),
        "The average was coded once more: return it as it is.": step.coded(right),
        "This is the code of the mean, which no rank can know before all numbers have travelled.": step.coded(mean),
    }  # fmt: skip
    slips = {words: [value] * n for words, value in everywhere.items()}
    return slips | by_other_counts(step) | {
        "Another rank's signs got this rank's scales: send the scales too.": [
            np.mean(own_signs, axis=0) * scale for scale in scales
        ],
        "A rank's own numbers went in as they are, and the others' as coded: decode your own code, too.": [
            right + kept / n for kept in step.kept
        ],
        "This is the residual: the average comes first.": step.kept,
        "This is the rank's own code alone: the other ranks' codes are missing.": sent,
        "This is the rank's own code alone, divided: the other ranks' codes are missing.": [own / n for own in sent],
    }


def residual_slips(step: CodedStep) -> dict[str, ByRank]:
    """Return {words for a slip: the residual after the coded step that it gives, by rank}."""
    n, mean_scale = len(step.totals), np.mean(step.scales, axis=0)
    by_slip: dict[str, list[np.ndarray]] = {}
    of_ranks = zip(step.gradients, step.residuals, step.totals, step.scales, step.sent, step.kept, strict=True)
    for gradient, residual, total, scale, sent, kept in of_ranks:
        slips = {
            "It still has the numbers that were sent, and will send them again.": total,
            "It is as it was before the step.": residual,
            "It is empty: the rest that the bits leave out is lost for ever. Error feedback keeps it.": np.zeros_like(total),
            "What was left of older steps is lost: it is gradient − sent, and should be gradient + residual − sent.":
                gradient - sent,
            "The old residual is in it twice: gradient + residual − sent has it once.": kept + residual,
            "These are the numbers that were sent: keep the rest.": sent,
            "What was sent was added, not taken off.": total + sent,
            "It has the wrong sign: it is gradient + residual − sent.": -kept,
            "The average was taken off. Take off only the numbers that the rank itself sent.": total - step.average,
            "It was divided by the number of ranks: the residual is this rank's own.": kept / n,
            "A part of what was sent was taken off, divided by the number of ranks: all of it was sent.": total - sent / n,
            "A 0 was sent as +1 times its scale, as its bit is 1, and the residual ignores it: take off what the bits say.":
                total - np.sign(total) * scale,
            "Its scales are the mean of all ranks': a rank takes off what it has sent itself.":
                total - signs(total) * mean_scale,
            "The signs are gone: it is what the sizes lack of their scale.": np.abs(total) - scale,
        }  # fmt: skip

        for words, value in slips.items():
            by_slip.setdefault(words, []).append(value)
    return by_slip
