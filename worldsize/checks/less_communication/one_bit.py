"""Check of `one_bit_average`: each number travels as a sign bit, with a scale per block, and the rest is kept.

A rank codes its gradient plus the residual that earlier bits left; so the check plays several steps, each with the residual
that the previous step returned. F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
distributed training of speech DNNs", Interspeech 2014, for bits and residual; S. P. Karimireddy et al., "Error feedback fixes
SignSGD", ICML 2019, for the scale, the mean size. Left out: two scales, one for each sign (Seide), and a second coding of the
average (H. Tang et al., "1-bit Adam", ICML 2021).
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import less_communication
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, ranks_in_words
from worldsize.checks.kit.needed_bytes import NeededBytes
from worldsize.checks.less_communication.coded_steps import CodedStep, average_slips, draw_steps, residual_slips
from worldsize.checks.less_communication.compared_steps import (
    awaited,
    differ_by_rank,
    differ_in_dtype_alone,
    inputs_of,
    kept_and_sent,
    not_as_asked,
)
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

AVERAGE = "the mean of what the ranks' bits and scales say, the same on every rank to the last bit"
FEEDBACK = "what a rank's bits do not say stays in its residual, and is in the next code"
KEPT = "gradient and residual stay as they were handed in"
BYTES = "8 signs in a byte, and a scale a block, from each rank to every other"
# ranks, numbers, block, steps, dtype; the first two tell all slips apart; the last one's scales are messages above 128 KiB,
# which no wire copies
SIZES = (
    (3, 22, 5, 3, "float64"), (3, 37, 8, 3, "float32"), (1, 9, 4, 2, "float32"), (4, 16, 16, 3, "float32"),
    (5, 41, 64, 2, "float64"), (7, 23, 6, 2, "float32"), (2, 13, 1, 3, "float32"), (2, 16_387, 1, 1, "float64"),
)  # fmt: skip
TOLD = 2  # so many cases tell all slips apart
ROUNDING = {"float32": 4e-6, "float64": 1e-10}
NOT_FINITE = "are not finite."


@exercise({AVERAGE: 0.25, FEEDBACK: 0.25, KEPT: 0.25, BYTES: 0.25}, seen={BYTES: evidence.MESSAGES}, waits=BYTES)
def one_bit_average(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the average of signs: `one_bit_average(fabric, gradient, residual, block)` returns (average, residual).

    gradient, residual and average have shape [numbers]. The first step of each case has zeros and, given two whole blocks or
    more, a block of zeros. The first two cases are redrawn until every slip with words gives a wrong result;
    `tests/checks/test_less_communication.py` counts how often.
    """
    for number, (n, numbers, block, steps, dtype) in enumerate(SIZES):
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        drawn = draw_steps(generator, n, numbers, block, steps, dtype, telling=number < TOLD)
        name = f"{ranks_in_words(n)}, {numbers:,} numbers of {dtype} in blocks of {block:,}, {count(steps, 'step')}"
        run = partial(arena.ranks, fn, inputs_of(drawn), block, driver=less_communication.step_by_step)
        yield Case(name, run, partial(_examine, drawn))


def _examine(steps: list[CodedStep], ended: ArenaResult) -> dict[str, Complaint]:
    unexamined = dict.fromkeys(one_bit_average.points, UNEXAMINED)
    complaint = not_as_asked(ended, "(average, residual)", 2)
    if complaint:
        return unexamined | {AVERAGE: complaint}

    rounding = ROUNDING[str(steps[0].average.dtype)]
    average: Complaint = None
    for number, step in enumerate(steps, 1):
        averages, residuals = zip(*[told[number - 1] for told in ended.returned], strict=True)
        right, slips = [step.average] * len(averages), partial(average_slips, step)
        wanted = awaited(f"the average of step {number}", right, slips, rounding=rounding)
        average = average or _with_block_of_zeros(wanted.wrong(averages)) or differ_by_rank(averages, number)
        if average and not differ_in_dtype_alone(averages, wanted):
            return unexamined | {AVERAGE: average}

        wanted = awaited(f"the residual of step {number}", step.kept, partial(residual_slips, step), rounding=rounding)
        feedback = _with_block_of_zeros(wanted.wrong(residuals))
        if feedback:
            return unexamined | {AVERAGE: average, FEEDBACK: feedback}

    kept, sent = kept_and_sent(ended, _needed(steps), average)
    return {AVERAGE: average, FEEDBACK: None, KEPT: kept, BYTES: sent}


def _with_block_of_zeros(complaint: Complaint) -> Complaint:
    if complaint and complaint.endswith(NOT_FINITE):
        return f"{complaint} Do you divide by a scale? A block of zeros has the scale 0."
    return complaint


def _needed(steps: list[CodedStep]) -> NeededBytes:
    n, numbers, block = len(steps[0].gradients), steps[0].gradients[0].size, steps[0].block
    item, blocks = steps[0].gradients[0].itemsize, -(-numbers // block)
    pairs = n * (n - 1) * len(steps)
    bits, scales = -(-numbers // 8), blocks * item

    # what blocks take that are packed one by one, each with a last byte of its own
    by_blocks = sum(-(-min(block, numbers - start) // 8) for start in range(0, numbers, block))

    return NeededBytes(
        pairs * (bits + scales),
        f"{count(bits, 'byte')} of signs and {count(blocks, 'scale')} from each rank to every other, in each step",
        {
            pairs * (numbers + scales): (
                "Does each sign take a byte? bool and int8 have 8 bits a number. np.packbits puts 8 signs into a byte."
            ),
            pairs * (8 * numbers + scales): "Each sign takes 8 bytes, as an int64 does: 1 bit is enough.",
            pairs * (numbers * item + scales): "The signs travelled as numbers of the gradient's dtype: send 1 bit for each.",
            pairs * numbers * item: (
                "Every rank sent all its numbers in the gradient's dtype to every other: nothing is saved. Send bits and "
                "scales, and let the receiver multiply."
            ),
            2 * (n - 1) * numbers * item * len(steps): "That is an all-reduce of the gradient's numbers: nothing is saved.",
            2 * pairs * (bits + scales): (
                "Do you add up buffers with zeros for the other ranks' codes? Each rank fills its own part, and an all-gather "
                "sends it once to each."
            ),
            pairs * (by_blocks + scales): (
                "Do you pack each block on its own? Its last byte is not full: pack all signs in one row."
            ),
            pairs * (bits + 8 * blocks): "Do the scales take 8 bytes? Send them in the gradient's dtype, here float32.",
            pairs * (bits + numbers * item): "A scale travelled with each number: send one for each block.",
        },
        "Send each rank's signs, 8 to a byte and all in one row, and one scale a block to every other rank, and nothing else.",
    )  # fmt: skip
