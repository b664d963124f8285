"""What each case of a check says of each property: a check that runs in an arena, with its cases looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import pytest

from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.verdict import Complaint, Verdict

Found = dict[str, Complaint]


@dataclass(frozen=True)
class Examined:
    """A check's verdict, and what its cases found, by their place and name."""

    verdict: Verdict
    found: dict[tuple[int, str], Found] = field(default_factory=dict)


def examined(exercise: str, arena: Arena, fn: Callable) -> Examined:
    """Run the check of `exercise` on `fn`. Raises NotPlayable where the arena does."""
    found: dict[tuple[int, str], Found] = {}

    def noted(cases: Iterable[Case]) -> Iterator[Case]:
        for place, case in enumerate(cases):
            yield _noted(case, (place, case.name), found)

    with looking_at_cases(exercise, noted):
        return Examined(run_check(exercise, arena, fn), found)


@contextmanager
def looking_at_cases(exercise: str, noted: Callable[[Iterable[Case]], Iterator[Case]]) -> Iterator[None]:
    """Let the check of `exercise` judge `noted(cases)` in place of its cases."""

    def judges(name: str, points: dict[str, float], cases: Iterable[Case], **more: Any) -> Verdict:
        return judge(name, points, noted(cases), **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module(f"worldsize.checks.{CHECKS[exercise]}"), "judge", judges)
        yield


def _noted(case: Case, key: tuple[int, str], found: dict[tuple[int, str], Found]) -> Case:
    def examine(ended: ArenaResult) -> Found:
        found[key] = case.examine(ended)
        return found[key]

    return replace(case, examine=examine)
