"""Comparison of what ranks returned and sent, step by step, with what is right and what slips (known mistakes) give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from worldsize.checks.arena import ArenaResult
from worldsize.checks.kit.expected import ByRank, Expected, Mistakes
from worldsize.checks.kit.judge import though_right
from worldsize.checks.kit.needed_bytes import NeededBytes
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import TOLERANCE, other_than_tuple, shown
from worldsize.checks.verdict import Complaint

NO_WEIGHT = 1e-12  # added to scales and norms, so that none is zero


def awaited(
    name: str, by_rank: ByRank, mistakes: Callable[[], Mistakes] = dict, too: Sequence[ByRank] = (), rounding: float = TOLERANCE
) -> Expected:
    """Return a tensor of a step, whose rounding is relative to the largest value of all ranks: their sums are rounded so."""
    largest = max(float(np.abs(x).max(initial=0.0)) for x in by_rank)
    return Expected(name, by_rank, mistakes, too, rounding, near_zero=rounding * largest + NO_WEIGHT)


def kept_and_sent(ended: ArenaResult, needed: NeededBytes, average: Complaint) -> tuple[Complaint, Complaint]:
    """Return the compared steps' complaints about gradient and residual, which stay as they were handed in, and about bytes.

    `average` is the complaint about the average: beside it nothing is called right.
    """
    found = changed_arguments(ended, ("the gradient", "the residual")), needed.wrong(ended.trace)
    if average:
        return found
    kept, sent = (though_right("average and residual", complaint) for complaint in found)
    return kept, sent


def differ_in_dtype_alone(held: Sequence[np.ndarray], wanted: Expected) -> bool:
    """Return whether all compared values are right, but not all in the wanted dtype."""
    as_wanted = [got.astype(right.dtype) for got, right in zip(held, wanted.by_rank, strict=True)]
    return bool(wanted.wrong(held)) and not wanted.wrong(as_wanted)


def differ_by_rank(held: Sequence[np.ndarray], number: int) -> Complaint:
    """Return a complaint if ranks hold right averages of a step that differ in their last bits, from other orders of addition."""
    for rank, got in enumerate(held):
        places = np.flatnonzero(got != held[0])
        if places.size:
            place = int(places[0])
            return (
                f"the average of step {number} differs by rank in its last bits: element {place} is {held[0][place]:.17g} on "
                f"rank 0, {got[place]:.17g} on rank {rank}. Add up in one order on all ranks, such as rank 0's first: weights "
                "that differ in a last bit drift apart."
            )
    return None


def orders_differ(sent: ByRank) -> bool:
    """Return whether means of what ranks sent differ in last bits, if each rank's sum begins with its own part and goes round."""
    n, added = len(sent), []
    for rank in range(n):
        total = np.zeros_like(sent[0])
        for k in range(n):
            total = total + sent[(rank + k) % n]
        added.append(total / n)
    return not np.array_equal(added, added[:1] * n)


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


def not_as_asked(ended: ArenaResult, names: str, count: int) -> Complaint:
    """Return a complaint if a rank did not return a tuple of `count` tensors, called `names`, at each step."""
    for rank, told in enumerate(ended.returned):
        for step, got in enumerate(told, 1):
            came = other_than_tuple(got, count)
            if came:
                return f"rank {rank}, step {step}: expected {names}, got {came}"
            for value in got:
                if not isinstance(value, np.ndarray):
                    return f"rank {rank}, step {step}: expected {names}, all of them tensors, got {shown(value)} among them"
    return None


def by_other_counts(step: StepWithResiduals) -> dict[str, ByRank]:
    """Return {words for a slip: the average, by rank, of a step whose ranks were counted otherwise}."""
    n, right = len(step.totals), step.average
    slips = {"The rank's own numbers are in it twice.": [right + own / n for own in step.sent]}
    if n != 2:
        slips[f"The sum was divided by 2, but there are {n} ranks."] = [right * n / 2] * n
    return slips


def all_differ(right: np.ndarray, slips: dict[str, ByRank], clear: float) -> bool:
    """Return whether every two of rank 0's compared results, right or by a slip, differ by more than `clear` somewhere."""
    results = [right]
    for by_rank in slips.values():
        results.append(by_rank[0])
    return all(np.abs(a - b).max() > clear for a, b in combinations(results, 2))
