"""Check of averaged gradients: the mean over all ranks' examples, on every rank, in place.

The ranks' gradients are means over their own examples, of which a rank may have more than others, or none. Messages may take
any route, but no more bytes than one all-reduce. Averaging and its pitfalls: P. Goyal et al., arXiv:1706.02677, 2017.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import TOLERANCE, same
from worldsize.checks.replicas.in_place import EXACT, Arrays, first_wrong, not_in_place, tensor_of
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count as count_of
from worldsize.units import number, times

MEAN = "the mean over all examples, on every rank, in place"
UNEVEN = "also where the ranks have unequal counts, or none"
BYTES = "the bytes of one all-reduce"

COUNTS = ((4, 4, 4), (2, 1, 1, 1), (5, 3), (1, 1, 1, 0), (0, 3), (7,))  # examples by rank
FAULTY = (3, 0, 2)  # examples by rank; the last rank has examples, but a NaN gradient
# counts that add up to a power of two, so that whole gradients have an exact mean in float32; for lists of other lengths
EXACT_COUNTS, EXACT_SHAPES = (1, 2, 0, 1), ((4,), (2, 1), (3,))
ALONE_COUNTS, ALONE_SHAPE = (3, 5), ((2, 3),)
MORE_RANKS = (5, 8)  # range of the drawn world size
SHAPES = ((3, 2), (5,))
COUNT_BYTES = 8  # allowance for a number sent along with each tensor


@exercise({MEAN: 0.25, UNEVEN: 1.0, BYTES: 0.25}, seen={BYTES: evidence.MESSAGES})
def average_gradients(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check that every rank ends with the mean gradient over all ranks' examples.

    `average_gradients(fabric, gradients, counts)` works in place. `gradients` are the means over the rank's own
    examples, `counts` the examples by rank.
    """
    cases = []
    drawn = _drawn_counts(arena)
    plain = [(counts, SHAPES) for counts in (*COUNTS, FAULTY, drawn, [max(drawn)] * len(drawn))]
    for counts, shapes in (*plain, (EXACT_COUNTS, EXACT_SHAPES), (ALONE_COUNTS, ALONE_SHAPE)):
        dtype = "float64" if shapes is SHAPES else "float32"
        inputs = _gradients(counts, arena.draws.getrandbits(32), shapes, dtype)
        name = f"{ranks_in_words(len(counts))} with {', '.join(map(str, counts))} examples"
        if shapes is not SHAPES:
            name += f", {count_of(len(shapes), 'gradient')} of {dtype}"
        if counts is FAULTY:
            inputs[-1][-1][...] = np.nan
            name += ", a NaN among the gradients"

        run = partial(arena.ranks, fn, inputs, list(counts), driver=on_ranks.in_memory)
        cases.append(Case(name, run, partial(_examine, inputs=inputs, counts=counts)))
    return cases


def _drawn_counts(arena: Arena) -> list[int]:
    """Draw counts of gradients' examples for more ranks, in no order: one or two ranks have no examples.

    The last rank, which a short list misses, has some. Any two nonzero counts exceed the number of ranks together, so
    no sum of several counts equals it.
    """
    n = arena.draws.randint(*MORE_RANKS)
    empty = arena.draws.sample(range(n - 1), arena.draws.randint(1, 2))
    return [0 if rank in empty else arena.draws.randint(5, 20) for rank in range(n)]


def _gradients(counts: Sequence[int], seed: int, shapes: Sequence[tuple[int, ...]], dtype: str) -> list[Arrays]:
    """Draw gradients that differ by rank and element: in float64 numbers that float32 would round, in float32 whole numbers.

    A rank without examples has NaN, as a mean over no examples is.
    """
    generator = np.random.default_rng([seed, *counts])
    inputs: list[Arrays] = []
    for rank, count in enumerate(counts):
        own = []
        for shape in shapes:
            numbers = generator.integers(1, 100, shape) + 1000.0 * (rank + 1) + (1 / 3) * (dtype == "float64")
            if count == 0:
                numbers[:] = np.nan
            own.append(numbers.astype(dtype))
        inputs.append(own)

    return inputs


def _examine(ended: ArenaResult, inputs: list[Arrays], counts: Sequence[int]) -> dict[str, Complaint]:
    wrong = _wrong_mean(ended.inputs, ended.returned, inputs, counts)
    sent = none_sent(ended.trace) or _more_than_an_all_reduce(ended, inputs[0])
    if wrong:
        sent = sent or _too_few_to_judge(ended, inputs[0])
    held = MEAN if len(set(counts)) == 1 else UNEVEN
    complaints = {held: wrong, BYTES: sent if wrong else though_right("the values", sent)}
    if held == UNEVEN:
        kept = (changed(noted["more"], (list(counts),), "counts", rank) for rank, noted in enumerate(ended.returned))
        complaints[MEAN] = first_complaint(kept)
    return complaints


def _too_few_to_judge(ended: ArenaResult, gradients: Arrays) -> Complaint:
    """Return UNEXAMINED if, for gradients, less was sent than half of an all-reduce, float32's share, else None."""
    least = 2 * (ended.trace.world_size - 1) * sum(x.nbytes for x in gradients)
    return UNEXAMINED if ended.trace.total_bytes() < least / 2 else None


def _more_than_an_all_reduce(ended: ArenaResult, gradients: Arrays) -> Complaint:
    n, size_bytes = ended.trace.world_size, sum(x.nbytes for x in gradients)
    least = 2 * (n - 1) * size_bytes
    extra = 2 * (n - 1) * COUNT_BYTES * (len(gradients) + 1)
    got = ended.trace.total_bytes()

    if got <= least + extra:
        return None
    return (
        f"all ranks together sent {times(got / size_bytes)} x the gradients ({got} bytes); one all-reduce needs "
        f"{2 * (n - 1)} x ({least} bytes). Use all_reduce, once for each gradient."
    )


def _wrong_mean(held: Any, noted: Sequence[Any], inputs: Sequence[Arrays], counts: Sequence[int]) -> Complaint:
    """Return a complaint if an averaged gradient is not the mean over all examples, or None.

    The complaint names the first wrong tensor in the lists `held[rank]`, or else in memory (`noted`, from
    `on_ranks.in_memory`). `inputs[rank]` holds the means over that rank's own examples.
    """
    means = _combine(inputs, np.divide(counts, sum(counts)))

    def diagnosis(rank: int, k: int, got: np.ndarray) -> str:
        if np.any(np.isnan(means[k]) & ~np.isnan(got)):
            faulty = next(r for r, own in enumerate(inputs) if counts[r] and np.isnan(own[k]).any())
            return (
                f"Rank {faulty} has {counts[faulty]} examples with a NaN gradient: that is a fault, and the mean must show it. "
                f"Leave out only a rank whose count is 0."
            )
        return _mean_mistake(got, tensor_of(noted[rank]["returned"], k), inputs, counts, rank, k)

    return first_wrong(held, means, diagnosis) or not_in_place(noted, means)


def _mean_mistake(got: Any, given: Any, inputs: Sequence[Arrays], counts: Sequence[int], rank: int, k: int) -> str:
    n, total = len(counts), sum(counts)
    shares = np.divide(counts, total)  # of all examples, by rank
    mean = _combine(inputs, shares)[k]
    if np.isnan(got).any() and 0 in counts:
        empty = counts.index(0)
        if rank and not counts[rank]:  # `first_wrong` takes ranks in order, so earlier ones are right
            return (
                f"Other ranks hold the mean, but rank {rank}, which has no examples, still holds its NaN. gradient = … makes a "
                f"new tensor: zero this one in place (zero_), and the sum arrives in it."
            )
        return f"Rank {empty} has no examples, so its gradient is NaN; NaN times 0 is NaN: leave this gradient out."
    if same(given, mean, **EXACT):
        return "The function returned the mean, but the gradient itself is unchanged: work in place."

    mistakes = {
        "This is the sum of the gradients, n times the mean: divide.": [1] * n,
        "This is the mean of the ranks' means: a rank with fewer examples counts as much as one with more. "
        "Weigh each rank by its count.": [1 / n] * n,
        "This is the sum over all examples: divide by their number.": list(counts),
        "The ranks' means were added up and divided by the number of examples: they are means already. "
        "Weigh each rank by its count first.": [1 / total] * n,
        "Weighed by the counts, but divided by the number of ranks, not of examples.": np.divide(counts, n),
        "Divided twice.": shares / n,
    }
    for complaint, weights in mistakes.items():
        if n > 1 and same(got, _combine(inputs, weights)[k], **EXACT):
            return complaint

    if same(got, inputs[rank][k], **EXACT):
        return f"This is still rank {rank}'s own gradient."
    if n > 1 and same(got, shares[rank] * inputs[rank][k], **EXACT):
        return f"This is rank {rank}'s own gradient times its share: the sum over the ranks did not arrive in this tensor."
    if same(got, mean, TOLERANCE):
        return "These are the right numbers with half of their digits: the gradients are float64, so use float64 throughout."

    own = f"Rank {rank}'s gradient is the mean over {counts[rank]} of {total} examples."
    factor = float(np.median(got / mean))
    if same(got, factor * mean, **EXACT):
        return f"This is {number(factor)} times the mean: weigh each rank by its count over the sum of all counts. {own}"
    return own


def _combine(inputs: Sequence[Arrays], weights: Sequence[float]) -> list[np.ndarray]:
    """Return gradients' weighted sum over the ranks, by tensor; skip ranks without examples, whose first tensor is all NaN."""
    total = [np.zeros_like(x) for x in inputs[0]]
    for own, weight in zip(inputs, weights, strict=True):
        if np.isnan(own[0]).all():
            continue
        for so_far, x in zip(total, own, strict=True):
            so_far += weight * x

    return total
