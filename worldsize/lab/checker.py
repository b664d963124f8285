"""`check.<exercise>(fn)` in a notebook: the function as it would be handed in, its check, its points.

A student's function is rebuilt from the cells that count before its check runs, so that what passes here passes for a
grade; what would not be handed in is named. Left out: what is checked (`checks`), keeping points (`lab`), and showing
the verdict (`verdict_view`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import LaunchArena
from worldsize.checks.verdict import Verdict
from worldsize.lab import graded_cells
from worldsize.lab.lab import Lab
from worldsize.lab.released import SETUPS


class Checker:
    """`check.<exercise>(fn)`: run the check, keep its points in the lab, and show the verdict."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._arena = LaunchArena()

    def __dir__(self) -> list[str]:
        return sorted(CHECKS)

    def __getattr__(self, exercise: str) -> Callable[..., Verdict]:
        if exercise.startswith("_"):
            raise AttributeError(exercise)
        if exercise not in CHECKS:
            raise AttributeError(f"check.{exercise}: expected one of {', '.join(sorted(CHECKS))}")

        def run(fn: Callable, *more: Any) -> Verdict:
            if not callable(fn):
                raise ValueError(f"check.{exercise}: expected your function, got {type(fn).__name__}")
            _note_changed_setups(self._lab.number)
            verdict = run_check(exercise, self._arena, *[_as_handed_in(f) for f in (fn, *more)])
            self._lab.record(verdict)
            return verdict

        return run


def _as_handed_in(fn: Callable) -> Callable:
    """The function as the cells that count make it, so that what passes here passes for a grade."""
    shell = notebook_shell()
    if shell is None or not hasattr(fn, "__code__"):
        return fn
    sources = graded_cells.counting(shell.user_ns.get("In", ()))
    namespace = graded_cells.rebuild(sources, lambda source: shell.compile.get_code_name(source, source, 0))
    rebuilt = namespace.get(fn.__name__)
    if rebuilt is None or not hasattr(rebuilt, "__code__"):
        print(f"note: `{fn.__name__}` is not in a cell that starts with `# Exercise …`: only such cells are handed in.")
        return fn
    if fn.__code__.co_code != rebuilt.__code__.co_code:
        print(f"note: `{fn.__name__}` was defined again elsewhere; the one in the exercise's own cell was checked.")
    outside = [name for name in graded_cells.missing_names(rebuilt, namespace) if name in shell.user_ns]
    if outside:
        print(
            f"note: `{fn.__name__}` uses {', '.join(f'`{name}`' for name in outside)} from a cell that is not handed "
            f"in: move it into the exercise's own cell."
        )
    return rebuilt


def _note_changed_setups(number: str) -> None:
    """A grade uses the release's set-up cells, so what was changed there may pass here and fail there."""
    shell = notebook_shell()
    released = SETUPS.get(number)
    if shell is None or not released:
        return
    for line in graded_cells.changed_setups(graded_cells.counting(shell.user_ns.get("In", ())), released):
        print(
            f"note: the set-up cell that begins `{line[:60]}` is not as the lab gave it. A grade uses the lab's own: put "
            f"what you added into the exercise's cell. If you have changed it back, restart the kernel."
        )


def notebook_shell() -> Any:
    from IPython import get_ipython

    return get_ipython()
