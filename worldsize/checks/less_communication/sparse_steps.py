"""Steps of a sparse average, drawn for the check of `top_k_average`, and the results that slips would give.

No step leaves a verdict to luck: a rank's numbers differ in size, and in small cases every slip gives a result of its own. Left
out: the judging (`top_k`).
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

LARGEST_TOLD = 100  # the most numbers of a case that tells slips apart
PAST_HALF = np.float32(3 / 1024)  # float32 holds all sums of whole numbers and this; bfloat16 and float16 do not
CLEAR = 1e-3  # least difference of two slips; numbers are integers or thirds


@dataclass(frozen=True)
class SparseStep(StepWithResiduals):
    """A sparse step of all ranks: totals[rank] is gradient plus residual, [numbers]; places[rank] where it must send, [k]."""

    k: int

    @cached_property
    def places(self) -> list[np.ndarray]:
        return [_largest(np.abs(total), self.k) for total in self.totals]

    @cached_property
    @override
    def sent(self) -> list[np.ndarray]:
        """The numbers that each rank sends of its total, each in its place, with zeros elsewhere."""
        return list(map(_only, self.totals, self.places))

    @cached_property
    def senders(self) -> np.ndarray:
        """The number of ranks that send each index in a sparse step."""
        return np.count_nonzero(self.sent, axis=0)


def _largest(sizes: np.ndarray, k: int) -> np.ndarray:
    return np.argpartition(-sizes, k - 1)[:k]


def _only(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    found = np.zeros_like(values)
    found[places] = values[places]
    return found


def draw_steps(generator: np.random.Generator, n: int, numbers: int, k: int, steps: int, dtype: str) -> list[SparseStep]:
    """Draw sparse steps whose totals differ in size; in small cases the first tells all slips apart.

    Where every rank sends every number, other orders of addition give the first step's average other last bits.

    Raises AssertionError as `drawn_until`.
    """
    telling = n > 1 and k < numbers <= LARGEST_TOLD
    first = drawn_until(
        lambda step: _tells(step) if telling else n < 3 or k < numbers or orders_differ(step.sent),
        lambda: _step(generator, [_sized(generator, numbers, dtype) // 4 for _ in range(n)], k, dtype),
        f"top_k_average for {n} ranks and k = {k}",
    )
    drawn = [first]
    while len(drawn) < steps:
        drawn.append(_step(generator, drawn[-1].kept, k, dtype))
    return drawn


def _sized(generator: np.random.Generator, numbers: int, dtype: str) -> np.ndarray:
    """Draw a sparse step's integers of distinct sizes in any order, with random signs; float32 holds all sums of them."""
    sizes = 4 + 3 * generator.permutation(numbers)
    return (sizes * generator.choice([-1, 1], numbers)).astype(dtype)


def _step(generator: np.random.Generator, residuals: ByRank, k: int, dtype: str) -> SparseStep:
    gradients = []
    for residual in residuals:
        total = _sized(generator, residual.size, dtype)
        if dtype == "float64":
            total += np.sign(total) / 3  # float32 would round it
        elif residual.size <= LARGEST_TOLD:
            total += np.sign(total) * PAST_HALF
        gradients.append(total - residual)
    return SparseStep(gradients, residuals, k)


def _tells(step: SparseStep) -> bool:
    """Return whether every slip in a sparse step gives rank 0 a result of its own.

    That needs an index that several ranks choose. The numbers sent for it must not add up to 0, nor to one rank's
    number, and two sizes at the border of a choice must differ.
    """
    for chosen_by in (*step.gradients, np.mean(step.totals, axis=0)):
        last, next_one = np.sort(np.abs(chosen_by))[::-1][step.k - 1 : step.k + 1]
        if np.isclose(last, next_one):  # nearly tied: a mean may round either way
            return False

    if step.senders.max() < 2 or np.any((step.senders > 0) != (step.average != 0)):
        return False
    sent = np.array(step.sent)
    if np.any((sent == sent.sum(axis=0)) & (sent != 0) & (step.senders > 1)):
        return False
    return all_differ(step.average, average_slips(step), CLEAR) and all_differ(step.kept[0], residual_slips(step), CLEAR)


def average_slips(step: SparseStep) -> dict[str, ByRank]:
    """Return {words for a slip: the average of the sparse step that it gives, by rank}."""
    n, k, totals, sent = len(step.totals), step.k, step.totals, step.sent
    right, mean = step.average, np.mean(totals, axis=0)
    senders = np.maximum(1, step.senders)

    def mean_of(sent_by: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the mean of what ranks send in a sparse step of their gradient and total by a rule."""
        return np.mean(list(map(sent_by, step.gradients, totals)), axis=0)

    everywhere = {
        "It was chosen from the gradients alone: add the residual, or numbers that are not sent are lost for ever.":
            mean_of(lambda g, t: _only(g, _largest(np.abs(g), k))),
        "What was sent has the residual in it, but it was chosen by the gradient's size alone: small numbers that have added up "
        "would never be sent.": mean_of(lambda g, t: _only(t, _largest(np.abs(g), k))),
        "The choice has the residual in it, but the values were the gradient's alone: send gradient + residual.":
            mean_of(lambda g, t: _only(g, _largest(np.abs(t), k))),
        "It was chosen by value, not by size: −9 is larger than 3 here.": mean_of(lambda g, t: _only(t, _largest(t, k))),
        "The values came without their signs: choose by size, and send the numbers as they are.": np.mean(np.abs(sent), axis=0),
        "These are sums: divide by the number of ranks.": right * n,
        "It was divided by the number of ranks that sent the index: divide by the number of all ranks.": right * n / senders,
        "This is the mean of everything: the k largest of each rank travel, the rest stays.": mean,
        "The k largest of the mean were chosen, which no rank can know before everything has travelled.":
            _only(mean, _largest(np.abs(mean), k)),
        "All ranks sent rank 0's choice: each has k largest of its own.": mean_of(lambda g, t: _only(t, step.places[0])),
    }  # fmt: skip
    for many, words in ((k - 1, "One number fewer than k was sent."), (k + 1, "One number more than k was sent.")):
        if 0 < many < right.size:
            everywhere[words] = np.mean([_only(t, _largest(np.abs(t), many)) for t in totals], axis=0)
    if k not in (1, n):
        everywhere["The sum was divided by k: divide it by the number of ranks."] = right * n / k
    slips = {words: [value] * n for words, value in everywhere.items()}
    return slips | by_other_counts(step) | {
        "This is what the rank has sent itself: nothing of the others is in it.": sent,
        "This is what the rank has sent itself, divided: nothing of the others is in it.": [own / n for own in sent],
    }


def residual_slips(step: SparseStep) -> dict[str, ByRank]:
    """Return {words for a slip: the residual after the sparse step that it gives, by rank}."""
    n = len(step.totals)
    by_slip: dict[str, list[np.ndarray]] = {}
    for gradient, residual, total, sent, kept in zip(
        step.gradients, step.residuals, step.totals, step.sent, step.kept, strict=True
    ):
        slips = {
            "What was sent is still in it, and will be sent again.": total,
            "It is as it was before the step.": residual,
            "It is empty: all that was not sent is lost for ever. Error feedback keeps it.": np.zeros_like(total),
            "What was left of older steps is lost: it is gradient − sent, and should be gradient + residual − sent.":
                gradient - sent,
            "What was left of older steps is lost: it is the gradient with the sent places emptied, and should be "
            "gradient + residual with them emptied.": np.where(sent, 0, gradient),
            "This is what was sent: the rest should stay.": sent,
            "The average was taken off. A rank takes off what it has sent itself: the rest of the average is the others'.":
                total - step.average,
            "It is cleared wherever any rank has sent: this rank's own number there was not on its way.":
                np.where(step.senders, 0, total),
            "The old residual is in it twice: gradient + residual − sent has it once.": kept + residual,
            "It was divided by the number of ranks: the residual is this rank's own.": kept / n,
        }  # fmt: skip

        for words, value in slips.items():
            by_slip.setdefault(words, []).append(value)
    return by_slip
