"""Check an optimizer step for a batch that comes in parts, on several ranks, with DistributedDataParallel.

The weights must match one device's that has all examples at once, for parts of any size. DDP's process group lies over
the fabric and its layers declare their work, so the record shows what travelled and how many micro-batches were in memory.
S. Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.4.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.big_batch import stepped
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected
from worldsize.checks.kit.judge import Case, first_complaint, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import first_slip, same
from worldsize.checks.large_batches.big_batch import LAYERS, BigBatch
from worldsize.checks.overlap.live_graphs import passes, too_many
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.trace import Trace
from worldsize.units import count, number

EVEN = "equal parts: the step of one device"
UNEVEN = "uneven parts: the mean over all examples of all ranks"
FRUGAL = "gradients travel once a step, one micro-batch in memory at a time"
KEPT = "the parts stay as they were handed in"
NEAR_ZERO = 1e-7  # division by a tensor of counts gives float32, off by 5e-9 of a step at most; slips by 5e-4 and more (measured)
SMALL = 0.02  # of the gradients' bytes: allowed besides them for counts and DDP's own messages

Counts = Sequence[Sequence[int]]  # [rank][part]: examples
ALIKE: Counts = ((4, 4, 4), (4, 4, 4))
DIFFERENT: tuple[tuple[Counts, ...], ...] = (  # by step
    (((3, 1, 5, 2), (4, 4, 1, 6), (2, 7, 3, 3)), ((2, 1, 4, 6), (1, 1, 3, 2), (5, 2, 2, 4))),
    (((5, 1, 3),), ((2, 8, 3),)),
    (((3,), (1,), (261,), (2,)),),  # no byte, and no bfloat16, counts that far
    (((1, 2), (3, 3), (2, 5), (1, 1), (4, 2)),),
)


@exercise({EVEN: 0.25, UNEVEN: 0.5, FRUGAL: 0.5, KEPT: 0.25}, seen={FRUGAL: evidence.WORK_AND_TENSORS}, needs=needs.GROUP)
def big_batch_step(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check `big_batch_step(ddp, optimizer, parts)`, an optimizer step whose gradients accumulate over the parts of a batch.

    parts are this rank's (x, y): x [examples, inputs] and y [examples], the class of each. The loss is cross-entropy.
    """
    even = BigBatch.drawn(arena.draws, ALIKE)
    yield Case(
        str(even),
        lambda: arena.ranks(fn, even.inputs, driver=stepped),
        lambda ended: {EVEN: _wrong_weights(ended, replace(even, work=ended.work))},
    )

    for counts in DIFFERENT:
        batch = BigBatch.drawn(arena.draws, *counts)
        yield Case(
            str(batch),
            lambda batch=batch: arena.ranks(fn, batch.inputs, driver=stepped),
            lambda ended, batch=batch: _examine(ended, replace(batch, work=ended.work)),
        )


def _examine(ended: ArenaResult, batch: BigBatch) -> dict[str, Complaint]:
    wrong = _wrong_weights(ended, batch)
    if wrong:
        return {UNEVEN: wrong, FRUGAL: UNEXAMINED, KEPT: UNEXAMINED}  # the cost of a wrong step earns nothing
    if (most := _most_steps(ended)) > 1:
        again = though_right("the weights", f"optimizer.step() was called {most} times for one batch: take one step.")
        return {UNEVEN: again, FRUGAL: UNEXAMINED, KEPT: UNEXAMINED}

    wasteful = _wasteful(ended.trace, batch) or _left_of_earlier_parts(ended, batch)
    kept = first_complaint(
        changed(given["steps"], own["steps"], "the list of parts", rank)
        for rank, (given, own) in enumerate(zip(ended.inputs, batch.inputs, strict=True))
    )
    return {UNEVEN: None, FRUGAL: though_right("the weights", wasteful), KEPT: though_right("the weights", kept)}


def _most_steps(ended: ArenaResult) -> int:
    """Return the most calls of optimizer.step() for a big batch; noted in the function's own process, as is the next."""
    return max((given["stepped"].count(step) for given in ended.inputs for step in given["stepped"]), default=1)


def _left_of_earlier_parts(ended: ArenaResult, batch: BigBatch) -> Complaint:
    for rank, given in enumerate(ended.inputs):  # noted in the function's own process, so it can only take points
        if given["held"] and batch.parts > 1:
            return (
                f"rank {rank} still holds activations of {count(given['held'], 'earlier part')} when the next part goes forward, "
                f"though their backward is over: without retain_graph a backward frees them."
            )
    return None


def _wrong_weights(ended: ArenaResult, batch: BigBatch) -> Complaint:
    for step, right in enumerate(batch.weights):
        wanted = Expected(
            f"the weights after step {step}", [right] * batch.ranks, near_zero=NEAR_ZERO,
            otherwise=partial(_mistake, ended=ended, batch=batch, step=step),
        )  # fmt: skip
        wrong = wanted.wrong([told[step] for told in ended.returned])
        if wrong:
            return wrong

    return None


def _mistake(rank: int, got: Any, right: np.ndarray, *, ended: ArenaResult, batch: BigBatch, step: int) -> str:
    returned = ended.returned
    before = returned[rank][step - 1] if step else batch.start
    if np.array_equal(got, before):
        return "The weights have not moved: call optimizer.step() after the last part."
    stepped = ended.inputs[rank]["stepped"].count(step) if ended.inputs else 1
    if stepped == 0:
        return "optimizer.step() was not called: a step by hand lacks the optimizer's momentum."
    if stepped > 1:
        return f"optimizer.step() was called {stepped} times: take one step, after the last part."
    if step:
        if same(got, batch.without_zero_grad(step), near_zero=NEAR_ZERO):
            return "The previous step's gradients are still there: call optimizer.zero_grad() before the first part."
        if any(same(got, weights, near_zero=NEAR_ZERO) for weights in batch.by_rate(step)):
            return "The rate was scaled, not the gradients: momentum then mixes sums over other numbers of examples."
        return "The previous step was right. Is something left over from it, a gradient or a sum?"

    moved = (batch.start - got) / batch.rate  # the first step's gradient, because momentum begins at 0
    found = first_slip(lambda given: same(moved, given[rank], near_zero=NEAR_ZERO), batch.slips)
    if found:
        return found
    if any(not same(told[step], got, near_zero=NEAR_ZERO) for told in returned):
        return (
            "The ranks hold different weights: not all of the step was averaged over them. Let the last part be outside "
            "no_sync()."
        )
    gradient = (batch.start - right) / batch.rate
    ratio = float(moved @ gradient / (gradient @ gradient))
    if same(moved, ratio * gradient, near_zero=NEAR_ZERO / batch.rate):
        return f"The step is {number(ratio)} times the right one: the losses must add up to the mean over all examples."
    return "All ranks take the same step, but it is not by the mean gradient of all examples."


def _wasteful(trace: Trace, batch: BigBatch) -> Complaint:
    """Complain about gradients of a big batch that travel more than once a step, or about more than one part in memory."""
    if batch.ranks > 1:
        at_the_start = (batch.ranks - 1) * batch.start.nbytes  # DDP's constructor sends rank 0's weights to all
        one = 2 * (batch.ranks - 1) * batch.start.nbytes * len(batch.steps)
        often = (trace.total_bytes() - at_the_start) / one
        if batch.parts > 1 and abs(often - batch.parts) <= SMALL:
            return (
                f"the gradients travel {batch.parts} times a step, after every part: once is enough. Run forward and backward "
                f"of all parts but the last inside `with ddp.no_sync():`."
            )
        if not 1 <= often <= 1 + SMALL:
            return f"{number(often)} times the gradients' bytes travel in a step; expected once, plus a count."

    if batch.parts > 1 and passes(trace, 0, batch.task)[0] == LAYERS * len(batch.steps):
        return (
            f"the {batch.parts} parts went through the model as one batch, with all its activations in memory at once: run "
            f"forward and backward part by part."
        )
    return too_many(trace, batch) or batch.invented_work()
