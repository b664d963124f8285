"""Check of `pays_below`: the bandwidth below which the way that sends less reaches the target first.

A way takes steps · (work_s + bytes/B) seconds at B bytes/s, with nothing hidden behind work. Two ways tie where the bytes saved
in all take as long as the work added in all. Left out: latency. S. Agarwal et al., "On the utility of gradient compression in
distributed training systems", MLSys 2022, ask the same of one step's time, with communication that overlaps.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, first_slip, number
from worldsize.checks.verdict import Complaint
from worldsize.units import number as in_words

CROSSING = "the bandwidth at which both reach the target together"
EDGES = "always where it works no longer and sends less, never where it sends more"
MOMENT_S = 2**-12  # work is a whole multiple of 2**-12 s, so that equal work is equal in floats, however computed
CLEAR = 0.01  # least relative difference of a slip


@dataclass(frozen=True)
class TimedWay:
    """A way to train: steps to the target, seconds of work a step, bytes that a rank sends a step."""

    steps: float
    work_s: float
    bytes: float

    @property
    def all_work_s(self) -> float:
        return self.steps * self.work_s

    @property
    def all_bytes(self) -> float:
        return self.steps * self.bytes

    def seconds(self, bytes_per_s: float) -> float:
        return self.steps * (self.work_s + self.bytes / bytes_per_s)

    @override
    def __str__(self) -> str:
        if math.isinf(self.steps):
            return f"never at the target, with steps of {self.work_s:.4g} s and {self.bytes:,} bytes"
        return f"{self.steps:,} steps of {self.work_s:.4g} s and {self.bytes:,} bytes"


@exercise({CROSSING: 0.25, EDGES: 0.5}, goes_on=False)
def pays_below(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a decision by formula: `pays_below(plain, other)` returns bytes a second.

    Each is a dict with "steps" (math.inf if the target is never reached), "work_s" and "bytes". Ways that differ in their steps
    are redrawn until every slip with words is 1 % off or more. Over 95 of 100 draws are (measured); even at 50, the chance that
    1,000 are not enough is 0.5 ** 1000 < 1e-300. The crossings come first, and keep their points if a later case divides by 0.
    """
    ways = [(*draw_ways(arena, steps, work, sent), name) for steps, work, sent, name in DRAWN]
    plain, other = draw_ways(arena, (1.2, 2.0), (1.1, 3.0), (0.01, 0.1))
    plain_never, other_never = replace(plain, steps=math.inf), replace(other, steps=math.inf)
    ways += [
        (plain, other_never, "the other never reaches the target"),
        (plain_never, other, "only the other reaches the target"),
        (plain_never, other_never, "neither reaches the target"),
    ]

    for plain, other, name in ways:
        what = CROSSING if 0 < crossing(plain, other) < math.inf else EDGES
        yield Case(
            f"plain {plain}; other {other} ({name})",
            partial(arena.call, fn, asdict(plain), asdict(other)),
            lambda ended, what=what, plain=plain, other=other: {what: _wrong(ended, plain, other)},
            tries=(what,),
        )


DRAWN = (  # factors (low, high) from plain to the other: of steps, of work, of bytes
    ((1.2, 2.0), (1.1, 3.0), (0.01, 0.1), "more steps, more work, far fewer bytes"),
    ((1, 1), (1.2, 4.0), (0.1, 0.5), "as many steps, more work"),
    ((1.3, 3.0), (1, 1), (0.05, 0.3), "steps of the same length, more of them"),
    ((0.5, 0.8), (2.5, 4.0), (0.5, 1.0), "fewer steps, each far longer"),
    ((3.5, 5.0), (0.4, 0.6), (0.02, 0.1), "many more steps, each shorter"),
    # they never tie
    ((1, 1), (0.4, 0.9), (0.1, 0.5), "a shorter step, fewer bytes"),
    ((1, 1), (1, 1), (0.1, 0.5), "fewer bytes, and nothing else"),
    ((0.2, 0.4), (0.5, 1.5), (1.2, 1.8), "more bytes a step, and far fewer steps"),
    ((1, 1), (1.2, 2.0), (1.2, 2.0), "more work, more bytes"),
    ((5.0, 9.0), (1.0, 1.5), (0.3, 0.6), "fewer bytes a step, but many more steps"),
    ((1, 1), (1, 1), (1.2, 2.0), "as much work, more bytes"),
    ((1, 1), (0.4, 0.9), (1.2, 2.0), "less work, more bytes"),
    ((1, 1), (0.4, 0.9), (1, 1), "less work, as many bytes"),
    ((1, 1), (1.2, 2.0), (1, 1), "more work, as many bytes"),
    ((1, 1), (1, 1), (1, 1), "as much work, as many bytes"),
)


def draw_ways(
    arena: Arena, steps: tuple[float, float], work: tuple[float, float], sent: tuple[float, float]
) -> tuple[TimedWay, TimedWay]:
    """Draw plain, and another way that may pay, whose steps, work and bytes are plain's times factors from the given (low, high).

    If their steps differ, no slip gives the right answer. Raises AssertionError as `drawn_until`.
    """

    def draw() -> tuple[TimedWay, TimedWay]:
        work_s = _moments(arena.draws.uniform(0.01, 0.2))
        plain = TimedWay(_tenths(arena.draws.uniform(20, 2000)), work_s, arena.draws.randint(10**6, 10**8))
        factors = [arena.draws.uniform(*factor) for factor in (steps, work, sent)]
        other = TimedWay(_tenths(plain.steps * factors[0]), _moments(plain.work_s * factors[1]), round(plain.bytes * factors[2]))
        return plain, other

    def tells(ways: tuple[TimedWay, TimedWay]) -> bool:
        plain, other = ways
        if plain.steps == other.steps:
            return True
        right, values = crossing(plain, other), _mistakes(plain, other).values()
        return not any(math.isfinite(value) and close(value, right, CLEAR, near_zero=0.0) for value in values)

    return drawn_until(tells, draw, f"pays_below, {steps}, {work}, {sent}")


def _tenths(steps: float) -> float:
    """Return steps between two looks, as a race to a target has them."""
    return round(steps, 1)


def _moments(seconds: float) -> float:
    return max(1, round(seconds / MOMENT_S)) * MOMENT_S


def crossing(plain: TimedWay, other: TimedWay) -> float:
    """Return the bandwidth at which two ways take equally long; inf if the other is always first, 0 if it is first below none."""
    if math.isinf(other.steps):
        return 0.0
    saved = plain.all_bytes - other.all_bytes
    added_s = other.all_work_s - plain.all_work_s
    if saved <= 0:  # more bytes but less work wins above some bandwidth, and below none
        return math.inf if saved == 0 and added_s < 0 else 0.0
    if added_s <= 0:
        return math.inf
    return saved / added_s


def _wrong(ended: ArenaResult, plain: TimedWay, other: TimedWay) -> Complaint:
    right, bandwidth = crossing(plain, other), number(ended.returned[0])
    if isinstance(bandwidth, str):
        return f"expected bytes a second as one number, {bandwidth}"
    if bandwidth == right or (math.isfinite(right) and close(bandwidth, right, near_zero=0.0)):
        given = zip(ended.inputs, (plain, other), ("plain", "other"), strict=True)
        return first_complaint(changed(after, asdict(way), name) for after, way, name in given)

    complaint = f"expected {_bandwidth(right)}, got {_bandwidth(bandwidth)}"
    if not 0 < right < math.inf:
        return complaint + _edge(bandwidth, right, plain, other)
    slip = first_slip(lambda value: math.isfinite(value) and close(bandwidth, value, near_zero=0.0), _mistakes(plain, other))
    if slip:
        return f"{complaint}. {slip}"
    if close(bandwidth, crossing(*(replace(way, steps=int(way.steps)) for way in (plain, other)))):
        return f"{complaint}. The steps were cut to whole ones: a way reaches the target between two steps"
    if not 0 < bandwidth < math.inf:
        return f"{complaint}. There is one bandwidth at which both take equally long"
    plain_s, other_s = plain.seconds(bandwidth), other.seconds(bandwidth)
    return f"{complaint}. At that bandwidth plain takes {plain_s:.4g} s, the other {other_s:.4g} s"


def _bandwidth(bytes_per_s: float) -> str:
    if not math.isfinite(bytes_per_s):
        return f"{bytes_per_s}"
    return in_words(bytes_per_s, "bytes/s")


def _edge(bandwidth: float, right: float, plain: TimedWay, other: TimedWay) -> str:
    """Explain why the two ways, of which one may pay, never tie, and that a bandwidth is not negative."""
    if math.isinf(other.steps):
        neither = ", nor does plain: it is never before plain" if math.isinf(plain.steps) else ""
        return f": the other never reaches the target{neither}"
    if math.isinf(plain.steps):
        return ": plain never reaches the target, so the other is first at any bandwidth"

    wins = "first at any bandwidth"
    if right == 0:
        wins = "first only above some bandwidth: the answer is 0.0" if other.all_work_s < plain.all_work_s else "never first"
        if (other.all_work_s, other.all_bytes) == (plain.all_work_s, plain.all_bytes):
            wins = "never before plain: both take equally long at any bandwidth"
    explanation = (
        f": in all, the other sends {in_words(other.all_bytes)} bytes and works {other.all_work_s:.4g} s, plain sends "
        f"{in_words(plain.all_bytes)} and works {plain.all_work_s:.4g} s, so the other is {wins}"
    )
    if bandwidth < 0:
        explanation += ". A bandwidth is never negative: ask first whether both tie at any bandwidth"
    return explanation


def _mistakes(plain: TimedWay, other: TimedWay) -> dict[str, float]:
    saved, added_s = plain.all_bytes - other.all_bytes, other.all_work_s - plain.all_work_s
    each_saved, each_added_s = plain.bytes - other.bytes, other.work_s - plain.work_s
    right = _ratio(saved, added_s)

    return {
        "This compares one step of each; they need different numbers of steps": _ratio(each_saved, each_added_s),
        "The bytes are multiplied by the steps, the work is not: multiply both": _ratio(saved, each_added_s),
        "The work is multiplied by the steps, the bytes are not: multiply both": _ratio(each_saved, added_s),
        "Both ways were given the steps of plain": _ratio(each_saved * plain.steps, each_added_s * plain.steps),
        "This is seconds a byte: bandwidth is the bytes that are saved over the seconds that are added": _ratio(added_s, saved),
        "This is in bits a second": 8 * right,
        "This is where the other's messages take as long as the work it adds": _ratio(other.all_bytes, added_s),
        "This is where plain's messages take as long as the work that is added": _ratio(plain.all_bytes, added_s),
        "This is where plain's messages take as long as its work": _ratio(plain.bytes, plain.work_s),
        "This is where the other's messages take as long as its work": _ratio(other.bytes, other.work_s),
        "The bytes that are saved are divided by all of the other's work, not by the work it adds": _ratio(
            saved, other.all_work_s
        ),
        "The bytes that are saved are divided by all of plain's work, not by the work that is added": _ratio(
            saved, plain.all_work_s
        ),
    }  # fmt: skip


def _ratio(above: float, below: float) -> float:
    if not below or not math.isfinite(above) or not math.isfinite(below):
        return math.nan
    return above / below
