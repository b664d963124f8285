"""The notebook's arena: the first case runs on real ranks, the others in simulated time, and one of those again on real ranks.

A case that fails in simulated time runs again on real ranks, so that a student sees what `launch` would show. For a check
that passes, the case with the largest messages runs again, over real wires and buffers. Where both disagree, all remaining
cases run on real ranks.
"""

from collections.abc import Callable
from dataclasses import replace

from typing_extensions import override

from worldsize.checks import check_of
from worldsize.checks.arena import Arena, ArenaResult, Trial
from worldsize.checks.simulated_check import SimulatedCheck, SimulatedPass, simulate_check
from worldsize.checks.verdict import Tried, Verdict

MOST_REAL_RANKS = 4  # beyond the cores of a laptop, more processes only take longer


def confirmed_check(
    exercise: str, fn: Callable, *more: Callable, launches: Arena, wrap: Callable[[Arena], Arena] = lambda arena: arena
) -> Verdict:
    """Return the verdict on `fn`: found in simulated time where possible, and confirmed on real ranks.

    `wrap(arena)` wraps an arena so that a person is told what it runs. Raises ValueError for an unknown exercise.
    """
    check = check_of(exercise)
    if check.needs:
        return check(wrap(launches), fn, *more)

    arena = ConfirmingArena(launches, exercise, (fn, *more))
    try:
        verdict = check(wrap(arena), fn, *more)
    except OtherDraws:
        arena.begin_again()
        verdict = check(wrap(arena), fn, *more)
    return arena.with_what_was_tried(verdict)


class OtherDraws(BaseException):
    """The simulated verdict used other draws than the check began with; the check must run again with those draws."""


class ConfirmingArena(Arena):
    """An arena that uses `launches`, except for cases over the fabric that were played in simulated time and need no
    confirmation.
    """

    def __init__(self, launches: Arena, exercise: str, functions: tuple[Callable, ...]) -> None:
        self.draws = launches.draws
        self._launches = launches
        self._exercise = exercise
        self._functions = functions
        self._began_with = launches.draws.getstate()
        self._simulated: SimulatedCheck | None = None
        self._asked = False
        self._to_confirm: int | None = None
        self._number = 0
        self._confirmed: list[int] = []

    @override
    def run(self, trial: Trial) -> ArenaResult:
        if trial.way != "ranks":
            return self._launches.run(trial)

        number, self._number = self._number, self._number + 1
        real = 2 if len(trial.inputs) == 1 else 1  # one rank starts as quickly as the process that simulates all cases
        simulated = self._told() if number >= real or self._asked else None
        if simulated is not None and number < len(simulated.results) and number != self._to_confirm:
            return simulated.results[number]

        ended = self._launches.run(trial)
        self._confirmed.append(len(trial.inputs))
        return ended

    def begin_again(self) -> None:
        """Restart the check, to be confirmed, with the draws of the reported pass."""
        self._number = 0
        self._launches.draws.setstate(self._simulated.told.draws)

    def with_what_was_tried(self, verdict: Verdict) -> Verdict:
        """Return the verdict with `tried` set; a failure seen only in simulated time, with reordered events, replaces a pass."""
        simulated = self._simulated
        if simulated is None or verdict.state == "not yet":
            return verdict
        if verdict.state == "pass" and simulated.told.reordered:
            verdict = simulated.told.verdict
            return replace(verdict, tried=Tried(simulated.cases, simulated.passes, tuple(self._confirmed), reordered=True))
        return replace(verdict, tried=Tried(simulated.cases, simulated.passes, tuple(self._confirmed)))

    def _told(self) -> SimulatedPass | None:
        """Return the simulated pass to confirm and report, or None where real processes are needed.

        The first call simulates the check. Raises OtherDraws where the reported pass drew anew.
        """
        if not self._asked:
            self._asked = True
            self._simulated = simulate_check(self._exercise, self._functions, self._began_with)
            if self._simulated is None:
                return None
            self._to_confirm = _to_confirm(self._simulated.told)
            if self._simulated.told.reordered:
                raise OtherDraws
        return self._simulated.told if self._simulated else None


def _to_confirm(simulated: SimulatedPass) -> int:
    """Return the number of the case to confirm: the one with the first mistake, else the case with the largest messages.

    A lone rank behaves alike in both worlds, so its cases are skipped. 0, the default, has run on real ranks already.
    """
    last = len(simulated.results) - 1
    if simulated.verdict.state != "pass":
        traces = [ended.trace for ended in simulated.results]
        return next((number for number, trace in enumerate(traces) if trace is simulated.verdict.trace), last)

    def weight(number: int) -> tuple[int, int]:
        ended = simulated.results[number]
        return max((t.size_bytes for t in ended.trace.transfers), default=0), len(ended.returned)

    few = [number for number in range(1, last + 1) if 1 < len(simulated.results[number].returned) <= MOST_REAL_RANKS]
    return max(few, key=weight, default=0)
