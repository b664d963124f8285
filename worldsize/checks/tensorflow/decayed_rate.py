"""The check of a learning rate that falls in stairs: plain numbers in, one number out.

The rule is that of the classic CIFAR-10 script: a factor whenever so many epochs are over, counted in steps that all
towers take together. Left out: steps so near a fall that rounding the stairs' length decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Verdict

POINTS = {"one tower: falls in stairs, by the factor": 0.5, "more towers: an epoch has fewer steps": 0.5}
ONE, MORE = POINTS
DEFAULTS = (350, 0.1, 0.1)
EXACT = 1e-9

DecayPlan = tuple[int, int, int, int, float, float]  # examples, batch, towers, epochs_per_decay, start, factor


def decayed_rate(arena: Arena, fn: Callable) -> Verdict:
    """Check of a learning rate that is decayed by towers' steps.

    `decayed_rate(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1)`: a number.
    """
    return judge("decayed_rate", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    draws = arena.draws
    start, factor = round(draws.uniform(0.05, 0.5), 3), round(draws.uniform(0.3, 0.8), 2)
    one: DecayPlan = (600, 6, 1, 2, start, factor)
    for step in (0, 2650, 199, 200):  # one far on, where no two mistakes give the same, then the edge of a stair
        yield _case(arena, fn, step, one, ONE)
    four: DecayPlan = (2400, 6, 4, 3, start, factor)
    for step in (0, 2500, 299, 300):
        yield _case(arena, fn, step, four, MORE)
    examples, batch, towers, epochs = (draws.randint(*span) for span in ((5000, 9000), (10, 50), (2, 8), (2, 9)))
    length = examples * epochs // (batch * towers)
    yield _case(arena, fn, 3 * length + length // 2, (examples, batch, towers, epochs, start, factor), MORE)
    yield _case(arena, fn, 100_000, (50_000, 125, 4, *DEFAULTS), MORE)


def _case(arena: Arena, fn: Callable, step: int, plan: DecayPlan, kind: str) -> Case:
    examples, batch, towers, *rest = plan
    given = (step, examples, batch, towers, *([] if tuple(rest) == DEFAULTS else rest))
    named = "" if tuple(rest) == DEFAULTS else " every {} epochs, start {}, factor {}".format(*rest)
    complaint = f"step {step:,}, {examples:,} examples, batches of {batch}, {towers} tower{'s' * (towers > 1)},{named}"
    return Case(complaint.rstrip(","), lambda: arena.call(fn, *given), lambda ended: {kind: _wrong(ended, step, plan)})


def _wrong(ended: ArenaResult, step: int, plan: DecayPlan) -> str | None:
    got = number(ended.returned[0])
    wanted = _rate(step, plan)
    if isinstance(got, str):
        return f"expected the rate, one number, {got}"
    if close(got / wanted, 1.0, EXACT):
        return None
    found = {complaint: value / wanted for complaint, value in _mistakes(step, plan).items()}
    named = first_named(got / wanted, {complaint: v for complaint, v in found.items() if not close(v, 1.0, EXACT)}, EXACT)
    return f"expected {wanted:.6g} ({_falls(step, plan)} so far), got {got:.6g}{named}"


def _falls(step: int, plan: DecayPlan) -> str:
    falls = _stairs(step, plan)
    return f"{falls} fall{'s' * (falls != 1)}"


def _stairs(step: int, plan: DecayPlan) -> int:
    examples, batch, towers, epochs, *_ = plan
    return step * batch * towers // (examples * epochs)


def _rate(step: int, plan: DecayPlan) -> float:
    *_, start, factor = plan
    return start * factor ** _stairs(step, plan)


def _mistakes(step: int, plan: DecayPlan) -> dict[str, Any]:
    examples, batch, towers, epochs, start, factor = plan
    falls, length = _stairs(step, plan), examples * epochs / (batch * towers)

    def at(other: float) -> float:
        return start * factor**other

    return {
        "It falls one step too late: when all the steps of the epochs are taken, they are over.": at((step - 1) // length),
        "The rate falls too late, as if there were one tower: in a step every tower takes a batch.": at(
            step // (length * towers)
        ),
        "The number of towers counts the wrong way: with more of them an epoch has fewer steps.": at(
            step // (length * towers**2)
        ),
        "It slides down: in stairs, only epochs that are over count, so the exponent is a whole number.": at(step / length),
        "It falls after every epoch: epochs_per_decay of them have to be over.": at(step // (length / epochs)),
        "It falls every epochs_per_decay steps: count epochs.": at(step // epochs),
        "A batch counts as one example: an epoch has examples / (batch · towers) steps.": at(step // (length * batch)),
        "It falls one stair too early: at step 0 nothing is over yet.": at(falls + 1),
        "It falls once and never again: the factor counts for every time.": at(min(falls, 1)),
        "The factor was multiplied by the number of falls: it has to be its power.": start * factor * falls,
        "The rate was divided by the factor: it grows.": at(-falls),
        "The start is missing: this is the factor's power alone.": factor**falls,
        "The rate never falls.": start,
        "The factor is 0.1, whatever was given.": start * 0.1**falls,
        "The start is 0.1, whatever was given.": 0.1 * factor**falls,
    }
