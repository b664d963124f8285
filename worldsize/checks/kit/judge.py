"""Judging: run a function on a list of cases, in order, and stop at the first case that shows a mistake.

A case's examiner returns complaints by property; the first one becomes the verdict's mismatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from worldsize import failures
from worldsize.checks.arena import ArenaResult
from worldsize.checks.kit.deadlock_advice import deadlock_advice
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.verdict import Complaint, Property, Verdict
from worldsize.trace import Trace
from worldsize.units import count


@dataclass(frozen=True)
class Case:
    """A run of the function: `run()` makes it, `examine(ended)` returns {property: complaint or None}.

    A property that the dict leaves out was not tried by this case. `name` tells the reader which case it is. `advice`, as in
    `with_advice`, follows the message of a run that broke off.
    """

    name: str
    # "...": a lambda keeps a loop's variables as its defaults, which mypy takes for parameters that the type must name
    run: Callable[..., ArenaResult]
    examine: Callable[..., dict[str, Complaint]]
    advice: Mapping[str, str] = field(default_factory=dict)


def judge(exercise: str, points: dict[str, float], cases: Iterable[Case], waits: str | None = None) -> Verdict:
    """Run case after case up to the first that fails, and return a verdict with points for every property that held.

    A property must hold in all cases that ran. A run that breaks off earns nothing, since what it would have shown was
    not reached. If a rank did not wait for an isend, the property `waits` is lost, or the first one.
    """
    tried: dict[str, bool] = {}
    for case in cases:
        ended = with_advice(case.run(), case.advice)
        if ended.state == "not yet":
            return _verdict(exercise, "not yet", points, {}, ended.message, ended.trace)
        if ended.state != "done":
            complaint = "\n".join(filter(None, [f"{case.name}: {ended.message}", deadlock_advice(ended.waits)]))
            return _verdict(exercise, "fail", points, {}, complaint, ended.trace)

        try:
            found = case.examine(ended)
        except Exception as error:  # a function may return anything
            complaint = f"{case.name}: the check could not read the result ({type(error).__name__}: {str(error)[:200]})"
            return _verdict(exercise, "fail", points, {}, complaint, ended.trace)

        for name, complaint in found.items():
            tried[name] = tried.get(name, True) and complaint is None

        first = first_complaint(found.values())
        if not first and ended.unwaited:
            first = failures.unwaited_line(ended.unwaited)
            tried[waits or next(iter(points))] = False  # a message that nobody waits for may not have arrived
        if first:
            return _verdict(exercise, "fail", points, tried, f"{case.name}: {first}", ended.trace)

    return _verdict(exercise, "pass", points, tried)


def _verdict(
    exercise: str, state: str, points: dict, tried: dict, complaint: Complaint = None, trace: Trace | None = None
) -> Verdict:
    properties = tuple(Property(name, value, tried.get(name)) for name, value in points.items())
    return Verdict(exercise, state, properties, complaint, trace)


# ---- what examiners share --------------------------------------------------------------------


def first_complaint(complaints: Iterable[Complaint]) -> Complaint:
    return next(filter(None, complaints), None)


def with_untried(properties: Iterable[str], found: dict[str, Complaint]) -> dict[str, Complaint]:
    """Return `found`, and its first complaint against each property that the case therefore left out.

    For drawn cases after fixed ones: an answer that memorized the fixed cases has shown nothing by them.
    """
    return {**dict.fromkeys(properties, first_complaint(found.values())), **found}


def though_right(what: str, complaint: Complaint) -> Complaint:
    """Prefix a complaint with the fact that `what` are right. None stays None."""
    if not complaint:
        return complaint

    return f"{what} are right, but {complaint}"


def values_first(found: dict[str, Complaint]) -> dict[str, Complaint]:
    """Prefix complaints about messages with the fact that the values, the first property, are right, if they are."""
    values, *_ = found.values()
    if values:
        return found
    return {name: though_right("the values", complaint) for name, complaint in found.items()}


def ranks_in_words(world_size: int) -> str:
    return count(world_size, "rank")


BY_HAND = "Write the messages yourself, with fabric.isend, send and recv."


def none_sent(trace: Trace, advice: str = BY_HAND) -> Complaint:
    """Return a complaint if several ranks sent nothing over the fabric, the only way to a peer; else None."""
    if not trace.transfers and trace.world_size > 1:
        return f"no message passed through the fabric. {advice}".rstrip()
    return None
