"""Check a day's accounting: work, saves, failures and restarts, replayed from the times at which failures came.

The answer is compared with a replay of the same day, and a wrong share is named by the rule that gives it. The fixed days
tell the rules apart; each property also has a day that is drawn until its rule decides. Left out: the mean over days, which
Young and Daly give (`formulas.goodput`).
"""

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Complaint
from worldsize.formulas import goodput as formulas

AT_WORK = "a failure in the work loses what is not saved, and costs a restart"
IN_RESTART = "a failure in a restart begins it again"
IN_SAVE = "a failure in a save loses what it was saving"
NONE = "without failures: work, saves, and work again"
EXACT, MARGIN = 1e-9, 1e-3  # MARGIN in seconds, from a drawn failure to the end of a save or restart: rounding never decides
ROUNDED = 1e-3  # an error that rounding, or a clock in steps, leaves in a share


@dataclass(frozen=True)
class Day:
    """The arguments of `goodput`, all in seconds."""

    interval_s: float
    save_s: float
    restart_s: float
    day_s: float
    failures_at: tuple[float, ...] = ()

    @override
    def __str__(self) -> str:
        times = ", ".join(f"{t:g}" for t in self.failures_at) or "none"
        return (
            f"{self.interval_s:g} s of work, {self.save_s:g} s a save, {self.restart_s:g} s a restart, a day of "
            f"{self.day_s:g} s, failures at {times}"
        )


@dataclass(frozen=True)
class Rules:
    """The rules by which goodput is accounted for; every value but the default is a mistake."""

    lost: str = "work"  # what a failure loses: "work" since the last save, "nothing", "all", an "interval", "half" of one
    restart: str = "again"  # after a failure in a restart: "again", "ignored", one "after" the other
    in_save: str = "lost"  # a failure in a save: "lost", "kept", "ignored"
    at_end: str = "counts"  # the work since the last save: "counts", "lost", "save too" (so does a save that the day ends in)
    goes_on: str = "anew"  # the interval after a restart: "anew", or the "rest" of the one before
    save_counts: bool = False
    restart_costs: bool = True
    first_save: bool = False  # before the first work
    beyond: bool = False  # the last interval is counted to its end, past the day's


RIGHT = Rules()
SLIPS = {  # in the order in which the properties are tried
    AT_WORK: (Rules(lost="nothing"), Rules(lost="all"), Rules(restart_costs=False)),
    IN_SAVE: (Rules(in_save="ignored"), Rules(in_save="kept")),
    IN_RESTART: (Rules(restart="ignored"), Rules(restart="after")),
}
FAILURES = {NONE: 0, AT_WORK: 2, IN_SAVE: 3, IN_RESTART: 5}
SHORT_DAY_S = 300  # of a day drawn for a single property


def replayed(day: Day, rules: Rules = RIGHT, ends: list[float] | None = None) -> float:
    """Return the share of the day that is work which was not lost. `ends` collects the ends of work, saves and restarts."""
    failures = [t for t in day.failures_at if t < day.day_s]
    if ends is None:
        ends = []
    now, kept, due = day.save_s * rules.first_save, 0.0, day.interval_s  # due: the work until the next save

    while now < day.day_s:
        worked_at, saved_at = now + due, now + due + day.save_s
        ends += [worked_at, saved_at]
        failure = failures[0] if failures else float("inf")
        in_save = worked_at <= failure < saved_at
        if in_save and rules.in_save == "ignored":
            failures.pop(0)
        elif failure < saved_at:
            failures.pop(0)
            worked_s = min(due, failure - now)
            if in_save and rules.in_save == "kept":
                kept, worked_s = kept + worked_s, 0.0
            kept = _after_a_failure(kept, worked_s, rules, day)
            rest_s = max(0.0, worked_at - failure) or day.interval_s
            due = rest_s if rules.goes_on == "rest" else day.interval_s
            now = _restarted(failure, failures, day, rules, ends)
        elif saved_at <= day.day_s:
            now, kept, due = saved_at, kept + due + day.save_s * rules.save_counts, day.interval_s
        else:  # the day ends in this interval
            whole = rules.save_counts or rules.at_end == "save too"
            counted_s = day.day_s - now if whole else min(due, day.day_s - now)
            if rules.at_end == "lost":
                counted_s = 0.0
            elif rules.beyond:
                counted_s = due
            return (kept + counted_s) / day.day_s

    return kept / day.day_s


def _after_a_failure(kept: float, worked_s: float, rules: Rules, day: Day) -> float:
    if rules.lost == "nothing":
        return kept + worked_s
    if rules.lost == "all":
        return 0.0
    if rules.lost == "interval":
        return kept + worked_s - day.interval_s
    if rules.lost == "half":
        return kept + worked_s - day.interval_s / 2
    return kept


def _restarted(failure: float, failures: list[float], day: Day, rules: Rules, ends: list[float]) -> float:
    """Return when the day's work goes on; remove failures during the restart from the list."""
    if not rules.restart_costs:
        return failure

    until = failure + day.restart_s
    ends.append(until)
    while failures and failures[0] < until:
        again = failures.pop(0)
        if rules.restart == "again":
            until = again + day.restart_s
        elif rules.restart == "after":
            until += day.restart_s
        ends.append(until)

    return until


FIXED = (
    (NONE, Day(11, 2.3, 5.7, 110)),  # not of 100 s, where seconds would be per cent
    (NONE, Day(11, 2.3, 5.7, 91)),  # ends in a save
    (NONE, Day(30, 0, 0, 20)),
    (AT_WORK, Day(11, 2.3, 5.7, 100, (34.1,))),
    (AT_WORK, Day(11, 2.3, 5.7, 100, (3.4, 57.4, 101.3))),  # before the first save; the last is after the day
    (AT_WORK, Day(7, 1.2, 0, 60, (20.5, 46.6))),
    (AT_WORK, Day(7, 0, 2.5, 60, (20.5, 46.6))),  # saves that take no time
    (AT_WORK, Day(30, 2.3, 4, 20, (6.1,))),  # an interval longer than the day
    (AT_WORK, Day(1750, 120, 600, 86_400, (9_000.5, 30_000.25))),
    (AT_WORK, Day(11, 2.3, 5.7, 103, (101.2,))),  # the day ends in a restart
    (IN_SAVE, Day(11, 4.3, 5.7, 101, (28.4,))),
    (IN_SAVE, Day(11, 4.3, 5.7, 101, (29.9,))),  # late in a save
    (IN_SAVE, Day(11, 4.3, 5.7, 101, (12.1, 60.3))),
    (IN_RESTART, Day(11, 2.3, 8.9, 109, (34.1, 38.4))),
    (IN_RESTART, Day(11, 2.3, 8.9, 127, (5.3, 11.6, 19.9, 28.1, 94.7))),  # one failure after another
    (IN_RESTART, Day(11, 2.3, 8.9, 104, (50.2, 95.1, 101.9))),
)


@exercise({AT_WORK: 0.5, IN_RESTART: 0.5, IN_SAVE: 0.25, NONE: 0.25}, goes_on=False)
def goodput(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check `goodput(interval_s, save_s, restart_s, day_s, failures_at)`, a share from 0 to 1.

    The rules build on one another, and a long day needs all of them, so the first wrong day is the last.
    """
    cases = []
    for kind in FAILURES:
        for its, day in FIXED:
            if its == kind:
                cases.append(_case(arena, fn, kind, day))
        cases.append(_case(arena, fn, kind, _telling(arena.draws, kind)))

    for failures in (6, 15, 40):  # a wrong rule gives no long day's share by luck: two real numbers would agree to 9 digits
        cases.append(_case(arena, fn, AT_WORK, _drawn(arena.draws, failures), f"a drawn day with {failures} failures"))
    return cases


def _telling(draws: random.Random, kind: str) -> Day:
    """Draw a day on which this rule of goodput decides, and no rule of a later property.

    Raises AssertionError as `drawn_until`.
    """
    order = [NONE, *SLIPS]

    def tells(day: Day) -> bool:
        right = replayed(day)
        if kind != IN_RESTART and not close(_with_cycles_below_none(day), right, EXACT):
            return False
        decides = {}
        for rule, slips in SLIPS.items():
            decides[rule] = [not close(replayed(day, slip), right, EXACT) for slip in slips]
        return all(decides.get(kind, [])) and not any(any(decides[later]) for later in order[order.index(kind) + 1 :])

    return drawn_until(tells, lambda: _drawn(draws, FAILURES[kind], SHORT_DAY_S), f"goodput, {kind}")


def _drawn(draws: random.Random, failures: int, day_s: int = 1000) -> Day:
    """Draw a goodput day with so many failures, none within MARGIN of the end of work, a save, a restart or the day.

    Raises AssertionError as `drawn_until`.
    """

    def draw() -> Day:
        times = sorted(round(draws.uniform(0, day_s), 3) for _ in range(failures))
        return Day(
            round(draws.uniform(15, 40), 2), round(draws.uniform(2, 6), 2), round(draws.uniform(5, 15), 2), day_s, tuple(times)
        )

    def tells(day: Day) -> bool:
        ends: list[float] = [day.day_s]
        replayed(day, ends=ends)
        return all(abs(t - end) > MARGIN for t in day.failures_at for end in ends)

    return drawn_until(tells, draw, f"goodput, {failures} failures")


def _case(arena: Arena, fn: Callable, kind: str, day: Day, name: str = "") -> Case:
    given = (day.interval_s, day.save_s, day.restart_s, day.day_s, list(day.failures_at))
    return Case(name or str(day), lambda: arena.call(fn, *given), lambda ended: {kind: _wrong(ended, day)})


def _wrong(ended: ArenaResult, day: Day) -> Complaint:
    got = number(ended.returned[0])
    if isinstance(got, str):
        return f"expected one number, the share of the day that is work and was not lost, {got}"

    right = replayed(day)
    if close(got, right, EXACT):
        return changed(ended.inputs[4], list(day.failures_at), "failures_at")

    telling = {words: share for words, share in _mistakes(day).items() if not close(share, right, EXACT)}
    shown, digits = first_named(got, telling, EXACT), 6
    if not shown and close(got, right, ROUNDED):
        shown, digits = ". It was rounded, or the day was replayed in steps of time: replay it from event to event.", 12
    return f"expected {right:.{digits}g}, {right * day.day_s:.6g} s of {day.day_s:g} s, got {got:.{digits}g}{shown}"


def _mistakes(day: Day) -> dict[str, float]:
    def ruled(**changed: Any) -> float:
        return replayed(day, Rules(**changed))

    share, by_formula = replayed(day), math.nan
    away = len([t for t in day.failures_at if t < day.day_s]) * day.restart_s / day.day_s
    if day.failures_at and day.save_s:
        mtbf_s = day.day_s / len(day.failures_at)
        by_formula = formulas.effective_share(day.interval_s, day.save_s, day.restart_s, mtbf_s)
    # a failure after the day takes the work of the interval in which the day ends
    failed_later = bool(day.failures_at) and day.failures_at[-1] >= day.day_s

    return {
        "This is in per cent: a share is a number from 0 to 1.": 100 * share,
        "These are seconds: divide by day_s.": share * day.day_s,
        "This is the share that is lost: 1 minus it.": 1 - share,
        "A failure in a restart is ignored here: the restart begins again.": ruled(restart="ignored"),
        "A failure in a restart adds a whole restart here to the one that it ended: it begins again from the failure.": ruled(
            restart="after"
        ),
        "A failure in a save is ignored here: the save is incomplete, and the work that it was saving is lost.": ruled(
            in_save="ignored"
        ),
        "A failure in a save keeps the work being saved here: an incomplete save saves nothing.": ruled(in_save="kept"),
        "A failure after the day's end is counted here: it does not happen.": (
            ruled(at_end="lost") if failed_later else math.nan
        ),
        "The failures are left out.": replayed(Day(day.interval_s, day.save_s, day.restart_s, day.day_s)),
        "The work since the last save is kept here: a failure loses it.": ruled(lost="nothing"),
        "A failure loses all work of the day here: what was saved is kept.": ruled(lost="all"),
        "A failure loses a whole interval here: it loses the work since the last save.": ruled(lost="interval"),
        "A failure loses half an interval here, which is the mean: replay the day, with the times that failures had.": ruled(
            lost="half"
        ),
        "The restart takes no time here.": ruled(restart_costs=False),
        "After a restart only the rest of the interval is worked before the next save: a whole interval begins.": ruled(
            goes_on="rest"
        ),
        "Saves count as work here: nothing is trained in them.": ruled(save_counts=True),
        "There is a save before the first work, when there is nothing to save.": ruled(first_save=True),
        "The work since the last save, at the day's end, does not count here: no failure lost it.": ruled(at_end="lost"),
        "The save in which the day ends counts as work here: it is none.": ruled(at_end="save too"),
        "The last interval is counted to its end, which is after the day's.": ruled(beyond=True),
        "The restarts count as work here: nothing is trained in them.": share + away,
        "This is the share of the time without the restarts: divide by day_s, with them.": share / (1 - away),
        "The day ends in a restart, and its rest after the day's end was counted: nothing is left of the day then.": (
            _with_a_rest_below_none(day)
        ),
        "A failure in a restart takes an interval away here (floor division of a time below 0): nothing was worked, and what was "
        "kept stays.": _with_cycles_below_none(day),
        "This is the formula for many days: replay this one, with the times that its failures had.": by_formula,
    }


def _with_a_rest_below_none(day: Day) -> float:
    """Return the share with `divmod` of a time below 0, where the day ends in a restart; else NaN."""
    failures = [t for t in day.failures_at if t < day.day_s]
    left = day.day_s - failures[-1] - day.restart_s if failures else 0.0
    if left >= 0:
        return math.nan
    cycles, rest = divmod(left, day.interval_s + day.save_s)
    return replayed(day) + (cycles * day.interval_s + min(rest, day.interval_s)) / day.day_s


def _with_cycles_below_none(day: Day) -> float:
    """Return the share where whole cycles are counted from the end of a restart to a failure before it."""
    begin, kept, cycle = 0.0, 0.0, day.interval_s + day.save_s
    for failure in (t for t in day.failures_at if t < day.day_s):
        kept += (failure - begin) // cycle * day.interval_s
        begin = failure + day.restart_s

    rest = Day(day.interval_s, day.save_s, 0, max(0.0, day.day_s - begin))
    if rest.day_s:
        kept += replayed(rest) * rest.day_s
    return kept / day.day_s
