"""Judging: run a function on a list of cases, in order, and say of each property whether it holds, fails or was not examined.

A case's examiner returns complaints by property; the first one becomes the verdict's mismatch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from worldsize import failures
from worldsize.checks.arena import ArenaResult
from worldsize.checks.kit.deadlock_advice import deadlock_advice
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.verdict import UNEXAMINED, Complaint, Property, Verdict
from worldsize.trace import Trace
from worldsize.units import count


@dataclass(frozen=True)
class Case:
    """A case to judge, a run of the function: `run()` makes it, `examine(ended)` returns {property: complaint or None}.

    The dict has the properties that this case tries, whatever is wrong: one that cannot be judged beside another's complaint is
    UNEXAMINED. `name` tells the reader which case it is. `advice`, as in `with_advice`, follows the message of a run that broke
    off. Such a run leaves what the case `tries` unexamined: the named properties, or all if none is named.
    """

    name: str
    # "...": a lambda keeps a loop's variables as its defaults, which mypy takes for parameters that the type must name
    run: Callable[..., ArenaResult]
    examine: Callable[..., dict[str, Complaint]]
    advice: Mapping[str, str] = field(default_factory=dict)
    tries: tuple[str, ...] = ()


def judge(
    exercise: str, points: dict[str, float], cases: Iterable[Case], waits: str | None = None, goes_on: bool = True
) -> Verdict:
    """Judge case after case while a property with points can still hold, and return a verdict with points for those that did.

    A property holds if every case that tries it was examined for it, without a complaint. The first mistake does not end the
    cases: a cheap one, made early, must not spare dear properties the cases that they would fail. It does end what is new: a
    property that no case has tried until then stays unexamined. The mismatch tells of the first mistake. A run that breaks off
    leaves all properties unexamined, or those that its case names. If a rank did not wait for an isend, the property `waits`
    fails, or the first one.

    Without `goes_on` the first mistake is the last: for rules that build on one another, where a later case would blame one rule
    for a mistake in another.
    """
    judged = _Judged(points)
    for case in cases:
        if judged.is_decided() or (judged.mismatch and not goes_on):
            break
        ended = with_advice(case.run(), case.advice)
        if ended.state == "not yet" and not judged.mismatch:
            return Verdict(exercise, "not yet", judged.properties(), ended.message, ended.trace)
        if ended.state != "done":
            complaint = "\n".join(filter(None, [f"{case.name}: {ended.message}", deadlock_advice(ended.waits)]))
            judged.break_off(case, complaint, ended.trace)
            break

        try:
            complaints = case.examine(ended)
        except Exception as error:  # a function may return anything
            complaint = f"{case.name}: the check could not read the result ({type(error).__name__}: {str(error)[:200]})"
            judged.break_off(case, complaint, ended.trace)
            break

        first = first_complaint(complaints.values())
        if ended.unwaited:  # a message that nobody waits for may not have arrived
            line, loses = failures.unwaited_line(ended.unwaited), waits or next(iter(points))
            first, complaints = first or line, {**complaints, loses: complaints.get(loses) or line}
        judged.note(case, complaints, first, ended.trace)

    return Verdict(exercise, "fail" if judged.mismatch else "pass", judged.properties(), judged.mismatch, judged.trace)


class _Judged:
    """The findings of the cases so far, by property, and the first mistake, with its messages."""

    def __init__(self, points: dict[str, float]) -> None:
        self._points = points
        self._held: set[str] = set()
        self._failed: set[str] = set()
        self._unexamined: set[str] = set()
        self.mismatch: Complaint = None
        self.trace: Trace | None = None

    def is_decided(self) -> bool:
        """Return whether there is a mistake, and no property with points can hold any more."""
        lost = self._failed | self._unexamined
        return bool(self.mismatch) and all(name in lost for name, value in self._points.items() if value)

    def note(self, case: Case, complaints: Mapping[str, Complaint], first: Complaint, trace: Trace | None) -> None:
        """Note, to judge later, the `complaints` of the case's examiner, and the `first` of them."""
        for name, complaint in complaints.items():
            kept = self._held if complaint is None else self._unexamined if complaint == UNEXAMINED else self._failed
            kept.add(name)
        if first and not self.mismatch:
            self._unexamined.update(self._points.keys() - self._held - self._failed)
            self.mismatch, self.trace = f"{case.name}: {first}", trace

    def break_off(self, case: Case, complaint: str, trace: Trace | None) -> None:
        """Note, as judge, a case whose run showed nothing of any property."""
        self._unexamined.update(case.tries or self._points)
        if self.mismatch:
            self.mismatch += f"\nBeyond this nothing counts: {case.name} shows nothing, because its run broke off."
        else:
            self.mismatch, self.trace = complaint, trace

    def properties(self) -> tuple[Property, ...]:
        return tuple(Property(name, value, self._state(name)) for name, value in self._points.items())

    def _state(self, name: str) -> bool | None:
        """Return whether the property is judged to hold; None if it was not examined."""
        if name in self._failed:
            return False
        return True if name in self._held - self._unexamined else None


def first_complaint(complaints: Iterable[Complaint]) -> Complaint:
    return next(filter(None, complaints), None)


def of_both(first: Complaint, other: Complaint) -> Complaint:
    """Return two looks' judgement of a property: the first complaint, else UNEXAMINED if one could not judge it, else None."""
    return first or (first if other is None else other)


def though_right(what: str, complaint: Complaint) -> Complaint:
    """Prefix a complaint with the fact that `what` are right. None stays None."""
    if not complaint:
        return complaint

    return f"{what} are right, but {complaint}"


def values_first(complaints: dict[str, Complaint]) -> dict[str, Complaint]:
    """Prefix complaints about messages with the fact that the values, the first property, are right, if they are."""
    values, *_ = complaints.values()
    if values:
        return complaints
    return {name: though_right("the values", complaint) for name, complaint in complaints.items()}


def ranks_in_words(world_size: int) -> str:
    return count(world_size, "rank")


BY_HAND = "Write the messages yourself, with fabric.isend, send and recv."


def none_sent(trace: Trace, advice: str = BY_HAND) -> Complaint:
    """Return a complaint if several ranks sent nothing over the fabric, the only way to a peer; else None."""
    if not trace.transfers and trace.world_size > 1:
        return f"no message passed through the fabric. {advice}".rstrip()
    return None
