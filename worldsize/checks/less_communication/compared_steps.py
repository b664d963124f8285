"""Comparison of what ranks returned and sent, step by step, with what is right and what slips (known mistakes) give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from worldsize.checks.arena import ArenaResult
from worldsize.checks.kit.judge import none_sent, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import TOLERANCE, first_difference, first_slip, kind_in_words, same, shown
from worldsize.checks.verdict import Complaint
from worldsize.trace import Trace
from worldsize.units import times

ByRank = Sequence[np.ndarray]
Slips = Callable[[], dict[str, ByRank]]  # called only if something is wrong
NO_WEIGHT = 1e-12  # added to scales and norms, so that none is zero
SINGLE = 1e-6  # largest relative error of a number that went through float32
HALF = 2.0**-6  # the same for bfloat16 (8 bits) or float16, after a few sums and rounds


@dataclass(frozen=True)
class Awaited:
    """A tensor's name in messages, its right value on each rank, other right values, and slips.

    `slips()` returns {words for a slip: its result by rank}. `rounding` is the error allowed, relative to each value and to the
    largest.
    """

    name: str
    expected: ByRank
    slips: Slips = dict
    too: Sequence[ByRank] = ()
    rounding: float = TOLERANCE

    @property
    def near_zero(self) -> float:
        return self.rounding * max(float(np.abs(x).max(initial=0.0)) for x in self.expected) + NO_WEIGHT


def wrong(held: Sequence[Any], wanted: Awaited) -> Complaint:
    """Return a complaint about the first rank whose tensor is not the wanted one; None if all are right."""
    margin = {"tolerance": wanted.rounding, "near_zero": wanted.near_zero}
    for rank, got in enumerate(held):
        complaint = first_difference(got, wanted.expected[rank], rank, wanted.name, **margin)
        if not complaint:
            continue
        if not any(first_difference(got, other[rank], rank, wanted.name, **margin) is None for other in wanted.too):
            slip = first_slip(lambda given, got=got, rank=rank: same(got, given[rank], **margin), wanted.slips())
            return f"{complaint}. {slip or _as_number(got, wanted.expected[rank])}".rstrip()

    return None


def kept_and_sent(ended: ArenaResult, needed: Needed, average: Complaint) -> tuple[Complaint, Complaint]:
    """Return the complaints about gradient and residual, which stay as they were handed in, and about bytes.

    `average` is the complaint about the average: beside it nothing is called right.
    """
    found = changed_arguments(ended, ("the gradient", "the residual")), wrong_bytes(ended.trace, needed)
    if average:
        return found
    kept, sent = (though_right("average and residual", complaint) for complaint in found)
    return kept, sent


def differ_in_dtype_alone(held: Sequence[np.ndarray], wanted: Awaited) -> bool:
    """Return whether all values are right, but not all in the wanted dtype."""
    as_wanted = [got.astype(right.dtype) for got, right in zip(held, wanted.expected, strict=True)]
    return bool(wrong(held, wanted)) and not wrong(as_wanted, wanted)


def _as_number(got: Any, expected: np.ndarray) -> str:
    """Return what can be said whatever the values mean: a wider dtype, not finite, or too few digits."""
    if not isinstance(got, np.ndarray) or got.shape != expected.shape:
        return ""
    if got.dtype.itemsize > expected.dtype.itemsize:
        return "Something on the way had a wider dtype: give buffers the dtype of the input."
    if not np.isfinite(got).all():
        return f"{int((~np.isfinite(got)).sum())} of its {got.size} numbers are not finite."
    if same(got, expected, SINGLE, SINGLE * float(np.abs(expected).max(initial=0.0))):
        return "Numbers that went through float32 are off by this much: give buffers the dtype of the input."
    if same(got, expected, HALF, HALF * float(np.abs(expected).max(initial=0.0))):
        return "Numbers that went through bfloat16 or float16 are off by this much: send them in the dtype of the input."
    return ""


# ---- what is handed in -----------------------------------------------------------------------


@dataclass(frozen=True)
class StepWithResiduals:
    """A step of all ranks: each rank's gradient, and the residual that earlier steps left. Subclasses say what is sent."""

    gradients: ByRank
    residuals: ByRank

    @cached_property
    def totals(self) -> list[np.ndarray]:
        return list(map(np.add, self.gradients, self.residuals))

    @property
    def sent(self) -> ByRank:
        """The part of each rank's total that travels, and is taken off it."""
        raise NotImplementedError

    @cached_property
    def average(self) -> np.ndarray:
        return np.mean(self.sent, axis=0)

    @cached_property
    def kept(self) -> list[np.ndarray]:
        return list(map(np.subtract, self.totals, self.sent))


def inputs_of(steps: Sequence[StepWithResiduals], *kept: np.ndarray) -> list[dict[str, Any]]:
    """Return each rank's input for `drivers.less_communication.step_by_step`: its gradients, and what it has kept.

    That is the rank's residual of the first step, and `kept`, the same on every rank.
    """
    given = []
    for rank, residual in enumerate(steps[0].residuals):
        given.append({"gradients": [step.gradients[rank] for step in steps], "kept": [residual, *kept]})
    return given


def changed_arguments(ended: ArenaResult, names: Sequence[str]) -> Complaint:
    """Return a complaint if a step changed its gradient or what was kept, called `names`.

    For `drivers.less_communication`: each step is handed what the previous one returned after its average.
    """
    for rank, (told, given) in enumerate(zip(ended.returned, ended.inputs, strict=True)):
        kept = given["kept"]
        for step, (gradient, returned, after) in enumerate(zip(given["gradients"], told, given["after"], strict=False), 1):
            for name, before, left in zip(names, (gradient, *kept), after, strict=True):
                complaint = changed(left, before, f"in step {step} {name}", rank)
                if complaint:
                    return complaint
            kept = returned[1:]
    return None


# ---- what comes back -------------------------------------------------------------------------


def not_as_asked(ended: ArenaResult, names: str, count: int) -> Complaint:
    """Return a complaint if a rank did not return a tuple of `count` tensors, called `names`, at each step."""
    for rank, told in enumerate(ended.returned):
        for step, got in enumerate(told, 1):
            if not isinstance(got, tuple):
                return f"rank {rank}, step {step}: expected {names}, got {kind_in_words(got)}"
            if len(got) != count:
                return f"rank {rank}, step {step}: expected {names}, got {len(got)} values"
            for value in got:
                if not isinstance(value, np.ndarray):
                    return f"rank {rank}, step {step}: expected {names}, all of them tensors, got {shown(value)} among them"
    return None


# ---- bytes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needed:
    """The bytes that all ranks together must send, what for, and {bytes that a slip sends: words for it}.

    `fewer`: words for fewer bytes; empty if fewer are right as long as the values are.
    """

    size_bytes: int
    what: str
    slips: dict[int, str]
    advice: str
    fewer: str = ""


TOO_FEW = "Fewer bytes cannot hold the sums over the ranks: give buffers the dtype of the input."


def wrong_bytes(trace: Trace, needed: Needed) -> Complaint:
    """Return a complaint about too many bytes, too few if `needed.fewer` is set, or no message at all."""
    complaint = none_sent(trace, needed.advice)
    if complaint:
        return complaint
    got, right = trace.total_bytes(), needed.size_bytes
    least = right if needed.fewer else 0
    if least <= got <= right:
        return None

    share = f"{times(got / right)} x" if right else "many x"
    if share == "1 x":
        share = "slightly more than" if got > right else "slightly fewer than"
    told = f"all ranks together sent {got:,} bytes, {share} the {right:,} bytes of {needed.what}. "
    if got < right:
        return told + needed.fewer
    return told + needed.slips.get(got, needed.advice)


def all_differ(right: np.ndarray, slips: dict[str, ByRank], clear: float) -> bool:
    """Return whether every two of rank 0's results, the right one and the slips', differ by more than `clear` somewhere."""
    results = [right]
    for by_rank in slips.values():
        results.append(by_rank[0])
    return all(np.abs(a - b).max() > clear for a, b in combinations(results, 2))
