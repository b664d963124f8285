"""`check.<exercise>(fn)` in a notebook: the function as it would be handed in, its check, its points.

`handed_in` rebuilds the function, `checks` holds the checks, `lab.py` keeps points, `verdict_view.py` shows the verdict.
"""

import functools
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from worldsize.cells.released import EXERCISES, SETUPS
from worldsize.checks import CHECKS
from worldsize.checks.arena import Arena, ArenaResult, LaunchArena, Trial
from worldsize.checks.confirming_arena import confirmed_check
from worldsize.checks.verdict import Verdict
from worldsize.lab.handed_in import as_handed_in, note_changed_setups
from worldsize.lab.lab import Lab
from worldsize.titles import title_of
from worldsize.units import count


class Checker:
    """The object behind `check.<exercise>(fn)`: runs the check, keeps its points in the lab, and shows the verdict."""

    def __init__(self, lab: Lab, says: Callable[[str], None] | None = None) -> None:
        """Keep the checks' points in `lab`, and call `says` with a sentence before each run."""
        self._lab = lab
        self._arena = LaunchArena()
        self._told: Callable[[Arena], Arena] = functools.partial(ToldArena, says=says) if says else lambda arena: arena

    @override
    def __dir__(self) -> list[str]:
        return sorted(CHECKS)

    def __getattr__(self, exercise: str) -> Callable[..., Verdict]:
        if exercise.startswith("_"):
            raise AttributeError(exercise)
        if exercise not in CHECKS:
            raise AttributeError(f"check.{exercise}: expected one of {', '.join(sorted(CHECKS))}")

        return functools.partial(self._run, exercise)

    def _run(self, exercise: str, fn: Callable, *more: Any) -> Verdict:
        if not callable(fn):
            raise ValueError(f"check.{exercise}: expected your function, got {type(fn).__name__}")

        # a grade uses the release's own set-up cells, so a pass with changed ones may fail there
        note_changed_setups(SETUPS.get(self._lab.number, ()))
        titles = {name: title_of(line) for name, line in EXERCISES.get(self._lab.number, {}).items()}
        handed_in = [as_handed_in(each, exercise, titles) for each in (fn, *more)]
        verdict = confirmed_check(exercise, *handed_in, launches=self._arena, wrap=self._told)
        self._lab.record(verdict)
        return verdict


class ToldArena(Arena):
    """An arena that announces each run of `arena`: "run 3 of the check, 5 ranks"."""

    def __init__(self, arena: Arena, says: Callable[[str], None]) -> None:
        self.draws = arena.draws
        self._arena = arena
        self._says = says
        self._runs = 0

    @override
    def run(self, trial: Trial) -> ArenaResult:
        self._runs += 1
        ranks = "" if trial.way == "call" else f", {count(len(trial.inputs), 'rank')}"
        self._says(f"run {self._runs} of the check{ranks}")
        return self._arena.run(trial)
