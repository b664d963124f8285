"""Judging: run a function on a list of cases, smallest first, and stop at the first case that shows a mistake.

A case's examiner says, property by property, what is wrong; the first words become the verdict's mismatch.
Left out: what is right (each check knows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from worldsize.checks.arena import ArenaResult
from worldsize.checks.verdict import Property, Verdict
from worldsize.trace import Trace


@dataclass(frozen=True)
class Case:
    """One run of the function: `run()` does it, `examine(ended)` gives {property: what is wrong or None}.

    A property that the dict leaves out was not tried by this case. `name` says which case, in the reader's words.
    """

    name: str
    run: Callable[[], ArenaResult]
    examine: Callable[[ArenaResult], dict[str, str | None]]


def judge(exercise: str, points: dict[str, float], cases: Iterable[Case]) -> Verdict:
    """The judging that checks share: runs case after case, and gives points for every property that held.

    It must hold in all cases up to and with the first that failed. A run that breaks off earns nothing: what it would
    have shown was not reached.
    """
    tried: dict[str, bool] = {}
    for case in cases:
        ended = case.run()
        if ended.state == "not yet":
            return _verdict(exercise, "not yet", points, {}, ended.message, ended)
        if ended.state != "done":
            complaint = f"{case.name}: {ended.message}{_advice(ended)}"
            return _verdict(exercise, "fail", points, {}, complaint, ended)
        wrong = case.examine(ended)
        tried.update({name: tried.get(name, True) and complaint is None for name, complaint in wrong.items()})
        first = next((complaint for complaint in wrong.values() if complaint), None)
        if first:
            return _verdict(exercise, "fail", points, tried, f"{case.name}: {first}", ended)
    return _verdict(exercise, "pass", points, tried, None, None)


def _advice(ended: ArenaResult) -> str:
    """The next step where all ranks send to each other and none receives."""
    if ended.waits and all(wait.op == "send" for wait in ended.waits):
        return "\nEvery rank waits in a send and nobody receives. Begin with isend, then recv, then wait for the handle."
    return ""


def _verdict(exercise: str, state: str, points: dict, tried: dict, complaint: str | None, ended: ArenaResult | None) -> Verdict:
    properties = tuple(Property(name, value, tried.get(name)) for name, value in points.items())
    return Verdict(exercise, state, properties, complaint, ended.trace if ended else None)


def ranks_in_words(world_size: int) -> str:
    return f"{world_size} rank{'s' if world_size > 1 else ''}"


def none_sent(trace: Trace) -> str | None:
    """For judging any run over the fabric: words where nothing was sent, or the framework's collective did the work.

    Also where such a collective was called besides.
    """
    ops = sorted({c.op for c in trace.collectives})
    if ops:
        passed = "no message passed through the fabric" if not trace.transfers else "the fabric was not all that was used"
        return f"{passed}: dist.{ops[0]} did it. Write the messages yourself, with fabric.isend, send and recv."
    if not trace.transfers and trace.world_size > 1:
        return "no message passed through the fabric. Write the messages yourself, with fabric.isend, send and recv."
    return None
