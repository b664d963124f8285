"""Check of `top_k_average`: only the k largest numbers of each gradient travel, and the rest is kept.

A rank chooses from its gradient plus the residual that earlier steps left unsent; so the check plays several steps, each with
the residual that the previous step returned. Sending dense tensors of mostly zeros gives the values, but saves nothing. F.
Seide et al., "1-bit stochastic gradient descent", Interspeech 2014, for the residual; A. F. Aji and K. Heafield, "Sparse
communication for distributed gradient descent", EMNLP 2017, for the largest; S. Stich, J.-B. Cordonnier and M. Jaggi,
"Sparsified SGD with memory", NeurIPS 2018, for why it converges. Left out: momentum (Y. Lin et al., "Deep gradient
compression", ICLR 2018).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import less_communication
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected
from worldsize.checks.kit.judge import Case, ranks_in_words
from worldsize.checks.kit.needed_bytes import NeededBytes
from worldsize.checks.kit.values import same
from worldsize.checks.less_communication.compared_steps import (
    awaited,
    differ_by_rank,
    differ_in_dtype_alone,
    inputs_of,
    kept_and_sent,
    not_as_asked,
)
from worldsize.checks.less_communication.sparse_steps import SparseStep, average_slips, draw_steps, residual_slips
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

AVERAGE = "the mean of what the ranks send, dense, the same on every rank to the last bit; numbers of one index add up"
FEEDBACK = "what a rank does not send stays in its residual, and is in the next choice"
KEPT = "gradient and residual stay as they were handed in"
BYTES = "k numbers and k indices of 4 bytes from each rank to every other"
# ranks, numbers, k, steps, dtype. The first has three ranks, since with two the ways to send too much have equal bytes, and
# float64, so that only an index can be too wide. In the fifth five numbers add up at each index. The last has messages above
# 128 KiB, which no wire copies, and more numbers than two bytes can count
SIZES = (
    (3, 14, 3, 3, "float64"), (3, 20, 4, 3, "float32"), (1, 9, 2, 2, "float32"), (4, 15, 1, 3, "float32"),
    (5, 8, 8, 2, "float64"), (7, 23, 6, 2, "float32"), (2, 12, 3, 3, "float32"), (2, 90_000, 40_000, 1, "float32"),
)  # fmt: skip
INDEX_BYTES, LAST_OF_INT16 = 4, 2**15 - 1
ROUNDING = {"float32": 2e-6, "float64": 1e-10}


@exercise({AVERAGE: 0.25, FEEDBACK: 0.25, KEPT: 0.25, BYTES: 0.25}, seen={BYTES: evidence.MESSAGES}, waits=BYTES)
def top_k_average(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the sparse average: `top_k_average(fabric, gradient, residual, k)` returns (average, residual).

    gradient, residual and average have shape [numbers]. In all cases but one a rank's numbers differ in size. First steps of
    small cases are redrawn until every slip with words is wrong. By case, 3 to 50 of 100 draws qualify (measured); even at 2,
    the chance that 1,000 are not enough is 0.98 ** 1000 < 1e-8.
    """
    for number, (n, numbers, k, steps, dtype) in enumerate(SIZES):
        if number == len(SIZES) - 1:
            yield _tied_case(arena, fn)
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        drawn = draw_steps(generator, n, numbers, k, steps, dtype)
        name = f"{ranks_in_words(n)}, {numbers:,} numbers of {dtype}, k = {k:,}, {count(steps, 'step')}"
        run = partial(arena.ranks, fn, inputs_of(drawn), k, driver=less_communication.step_by_step)
        if numbers > LAST_OF_INT16:
            yield Case(name, run, partial(_examine_large, *drawn), _ADVICE)
        else:
            yield Case(name, run, partial(_examine, drawn))


def _tied_case(arena: Arena, fn: Callable) -> Case:
    """Return a case in which several numbers tie for the k-th largest, so that the answer may choose among them."""
    n, numbers, k = 3, 12, 4
    generator = np.random.default_rng(arena.draws.getrandbits(32))

    def draw() -> list[np.ndarray]:
        sizes = [9.5, 8.25, 7.0, 7.0, 7.0, 7.0, *range(1, 7)]
        return [generator.permutation(sizes) * generator.choice([-1, 1], numbers) for _ in range(n)]

    totals = drawn_until(lambda drawn: _cut_tells(drawn, k), draw, "top_k_average, ties")

    residuals = [generator.integers(-2, 3, numbers) / 2 for _ in range(n)]
    step = SparseStep(list(map(np.subtract, totals, residuals)), residuals, k)
    name = f"{ranks_in_words(n)}, {numbers} numbers of float64, k = {k}, of which several have the size of the last"
    run = partial(arena.ranks, fn, inputs_of([step]), k, driver=less_communication.step_by_step)
    return Case(name, run, partial(_examine_tied, step))


def _cut_tells(totals: list[np.ndarray], k: int) -> bool:
    """Return whether the first k, and the last k, of all numbers that are no smaller than the k-th leave out a larger one."""
    lost = {"first": False, "last": False}
    for total in totals:
        sizes = np.abs(total)
        candidates = np.flatnonzero(sizes >= np.sort(sizes)[-k])
        larger = np.flatnonzero(sizes > np.sort(sizes)[-k])
        lost["first"] |= not np.isin(larger, candidates[:k]).all()
        lost["last"] |= not np.isin(larger, candidates[-k:]).all()
    return all(lost.values())


_SHORT = "Can the indices' dtype count this far? int16 ends at 32,767, and goes on at −32,768; int32 is enough."
_ADVICE = {"index out of range in self": _SHORT, "is out of bounds for dimension 0": _SHORT}


def _examine(steps: list[SparseStep], ended: ArenaResult) -> dict[str, Complaint]:
    unexamined = dict.fromkeys(top_k_average.points, UNEXAMINED)
    complaint = not_as_asked(ended, "(average, residual)", 2)
    if complaint:
        return unexamined | {AVERAGE: complaint}

    rounding = ROUNDING[str(steps[0].average.dtype)]
    average: Complaint = None
    order: Complaint = None  # right numbers, but ranks whose sums have other orders: it hides nothing else
    for number, step in enumerate(steps, 1):
        averages, residuals = zip(*[told[number - 1] for told in ended.returned], strict=True)
        wanted = _wanted_average(step, number, rounding)
        average = average or _wrong_average(averages, step, wanted)
        if average and not differ_in_dtype_alone(averages, wanted):
            return unexamined | {AVERAGE: average}
        order = order or differ_by_rank(averages, number)

        wanted = awaited(f"the residual of step {number}", step.kept, partial(residual_slips, step), rounding=rounding)
        feedback = wanted.wrong(residuals)
        if feedback:
            return unexamined | {AVERAGE: average or order, FEEDBACK: feedback}

    average = average or order
    kept, sent = kept_and_sent(ended, _needed(steps), average)
    return {AVERAGE: average, FEEDBACK: None, KEPT: kept, BYTES: sent}


def _examine_large(step: SparseStep, ended: ArenaResult) -> dict[str, Complaint]:
    """Check the top-k average alone, since nothing else hangs on how large an index is."""
    complaint = not_as_asked(ended, "(average, residual)", 2)
    if complaint:
        return {AVERAGE: complaint}

    averages = [told[0][0] for told in ended.returned]
    average = _wrong_average(averages, step, _wanted_average(step, 1, ROUNDING[str(step.average.dtype)]))
    if average and 0 < ended.trace.total_bytes() < _needed([step]).size_bytes:
        average += f" {_SHORT}"
    return {AVERAGE: average}


def _examine_tied(step: SparseStep, ended: ArenaResult) -> dict[str, Complaint]:
    """Check the top-k case with ties: each rank sends k numbers, none smaller than a number it keeps, and the average has them.

    All of it counts for the residuals: of equal numbers, they alone tell which were sent.
    """
    complaint = not_as_asked(ended, "(average, residual)", 2)
    if complaint:
        return {FEEDBACK: complaint}

    averages, kept = zip(*[told[0] for told in ended.returned], strict=True)
    shape = step.totals[0].shape
    for rank, (average, residual) in enumerate(zip(averages, kept, strict=True)):
        for name, got in (("the average", average), ("the residual", residual)):
            if got.shape != shape:
                return {FEEDBACK: f"rank {rank}: expected {name} of shape {list(shape)}, got shape {list(got.shape)}"}

    sent = list(map(np.subtract, step.totals, kept))
    for rank, (own, residual) in enumerate(zip(sent, kept, strict=True)):
        found = np.count_nonzero(own)
        if found != step.k:
            return {FEEDBACK: f"rank {rank} took {count(found, 'number')} off its residual, expected k = {step.k}. {_TIES}"}
        if np.abs(own[own != 0]).min() < np.abs(residual).max():
            return {FEEDBACK: f"rank {rank} keeps a larger number than one that it sends: send the k largest."}

    wanted = awaited("the average of the numbers that the ranks took off their residuals", [np.mean(sent, axis=0)] * len(sent))
    return {FEEDBACK: wanted.wrong(averages)}


_TIES = "Where several numbers have the size of the k-th, send only enough to make k: a comparison with >= takes all, > none."


def _wanted_average(step: SparseStep, number: int, rounding: float) -> Expected:
    right = [step.average] * len(step.totals)
    return awaited(f"the average of step {number}", right, partial(average_slips, step), rounding=rounding)


def _wrong_average(held: Sequence, step: SparseStep, wanted: Expected) -> Complaint:
    right, complaint = step.average, wanted.wrong(held)
    if not complaint or not complaint.endswith("differ)."):
        return complaint

    got = next(got for got in held if not same(got, right, **wanted.margin(0)))
    found, expected = np.count_nonzero(got), np.count_nonzero(right)
    if found != expected:
        told = f"It has {count(found, 'number')} that are not zero, expected {expected}"
        return f"{complaint} {told}: each rank sends k = {step.k}."

    alone = step.senders < 2
    if not same(got[alone], right[alone], **wanted.margin(0)):
        return complaint
    return (
        f"{complaint} It is wrong only where several ranks chose one index: add their numbers up. x[index] = values or "
        f"x[index] += values keeps only one of them. See index_add_."
    )


_EIGHT_BYTES = {  # by the item size of the gradient; a float64 case comes first
    8: "Do the indices take 8 bytes? torch gives them as int64, and float64 takes 8 as well; int32 is enough.",
    4: "Do the values take 8 bytes? Send them in the gradient's dtype, here float32: does the buffer of the gather have it?",
}


def _needed(steps: list[SparseStep]) -> NeededBytes:
    n, numbers, k = len(steps[0].gradients), steps[0].gradients[0].size, steps[0].k
    item = steps[0].gradients[0].itemsize
    each = n * (n - 1) * k * len(steps)
    whole = (n - 1) * numbers * item * len(steps)

    return NeededBytes(
        each * (item + INDEX_BYTES),
        "k numbers and k indices of 4 bytes from each rank to every other",
        {
            2 * each * (item + INDEX_BYTES): (
                "Do you add up buffers with zeros for the other ranks' pairs? Each rank fills its own part, and an all-gather "
                "sends it once to each."
            ),
            each * (item + 8): _EIGHT_BYTES[item],
            n * whole: "Every rank sent its whole tensor to every other, zeros and all: nothing is saved. Send k pairs.",
            2 * whole: "That is an all-reduce of the whole tensor, with zeros in it: nothing is saved. Send what is not zero.",
        },
        "Send k values and k int32 indices from each rank to every other, and nothing else.",
    )
