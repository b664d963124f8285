"""The result of a check, as data: points by property, the first mismatch, the messages."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from typing_extensions import override

from worldsize.trace import Trace
from worldsize.units import count, worth

Complaint = str | None  # what is wrong, in words; None where nothing is
UNEXAMINED: Complaint = ""  # where it cannot be said whether something is wrong


@dataclass(frozen=True)
class Property:
    """A property that an exercise is checked for. `passed` is None where it was not examined.

    Anything observable only in the process of the student's function has 0 points: it is displayed, but earns nothing.
    """

    name: str
    points: float
    passed: bool | None = None


@dataclass(frozen=True)
class Tried:
    """A record of where a check's cases ran: `simulated` of them in simulated time, with `draws` draws of the random inputs.

    `confirmed` holds the world size of each case that also ran on real ranks. `reordered`: the case that failed did so in
    an order of events that the real ranks did not show.
    """

    simulated: int
    draws: int = 1
    confirmed: tuple[int, ...] = ()
    reordered: bool = False

    @override
    def __str__(self) -> str:
        if self.reordered:
            return "Seen in simulated time, in an order of events that the real processes of this check did not show."
        drawn = f", over {self.draws} draws" * (self.draws > 1)
        real = f"{len(self.confirmed) or 'none'} of them also on real processes"
        often = {1: "", 2: ", twice"}
        runs = [(count(size, "rank"), times) for size, times in Counter(self.confirmed).items()]
        ranks = "; ".join(f"{size}{often.get(times, f', {times} times')}" for size, times in runs)
        return f"{count(self.simulated, 'case')} in simulated time{drawn}; {real}{ranks and f' ({ranks})'}."


@dataclass(frozen=True)
class Verdict:
    """The verdict of a check. `tried` says where its cases ran; None where all of them ran on real processes."""

    exercise: str
    state: Literal["pass", "fail", "not yet"]
    properties: tuple[Property, ...]
    mismatch: Complaint = None
    trace: Trace | None = field(default=None, compare=False)
    tried: Tried | None = field(default=None, compare=False)

    @property
    def points(self) -> float:
        if self.state == "not yet":
            return 0
        return sum(p.points for p in self.properties if p.passed)

    @property
    def possible(self) -> float:
        return sum(p.points for p in self.properties)

    @property
    def earned_all(self) -> bool:
        """Return whether the answer earned all points there are; what is still wrong is shown and costs none."""
        return 0 < self.possible == self.points

    @override
    def __str__(self) -> str:
        head = f"{self.exercise}: {self.points:g} of {self.possible:g} points"
        if not self.possible:
            head = f"{self.exercise}: optional, no points"
        small_print = [str(self.tried)] if self.tried else []
        if self.state == "pass":
            return "\n".join([f"✔ {head}", *small_print])
        if self.state == "not yet":
            points = f"{self.possible:g} point{'s' * (self.possible != 1)}"
            return f"○ {self.exercise}: not yet ({points}). {self.mismatch or ''}".rstrip()

        marks = {True: "✔", False: "✘", None: "–"}
        rows = [f"  {marks[p.passed]} {p.name} ({worth(p.points)})" for p in self.properties]
        first = f"✔ {head}, with something to mend" if self.earned_all else f"✘ {head}"
        return "\n".join([first, *rows, self.mismatch or "", *small_print])
