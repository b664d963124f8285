"""Checks of the exercises, one module a topic.

A check is `check(arena, fn, …) -> Verdict`: a property over fresh inputs and recorded messages. It is declared by
`@exercise(points)` (`kit.exercise`); `CHECKS` names its module. Checks hold references, formulas and known slips, so a sandbox
shows a rank only `__init__`, `index`, `verdict`, `drivers` and the modules that run a function in a rank or play all ranks of a
case.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from worldsize.checks.index import CHECKS
from worldsize.checks.verdict import Verdict

if TYPE_CHECKING:  # a sandbox has no kit
    from worldsize.checks.arena import Arena
    from worldsize.checks.kit.exercise import Check

__all__ = ["CHECKS", "check_of", "run_check"]


def check_of(exercise: str) -> Check:
    """Return the check of `exercise`. Raises ValueError for an unknown exercise."""
    if exercise not in CHECKS:
        raise ValueError(f"check: expected one of {', '.join(sorted(CHECKS))}, got {exercise!r}")
    return getattr(import_module(f"worldsize.checks.{CHECKS[exercise]}"), exercise)


def run_check(exercise: str, arena: Arena, fn: Any, *more: Any) -> Verdict:
    """Run the check of `exercise` on `fn` and return its verdict. Raises ValueError for an unknown exercise."""
    return check_of(exercise)(arena, fn, *more)
