"""A right answer's results under one seed, handed back to a check that has drawn with another: a pasted table of answers.

`RememberingArena` keeps what every case gave, and the calls that it made on the check's own functions; `PastedArena` gives
that back, case by case, whatever the check hands in. So a fixed case is always answered rightly, and a drawn one as it was
right under the other seed. Left out: which properties may be earned in this way (`test_pasted_answers`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case
from worldsize.checks.noted_calls import NotedCall, NotedCalls, make_again


@dataclass(frozen=True)
class Remembered:
    """The result of a case, and its calls on the check's own functions."""

    ended: ArenaResult
    calls: tuple[NotedCall, ...] = ()


class RememberingArena:
    """`arena`, whose results are kept."""

    def __init__(self, arena: Arena) -> None:
        self.draws = arena.draws
        self.kept: list[Remembered] = []
        self._arena = arena

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        noted = NotedCalls()
        ended = self._arena.call(fn, *map(noted.instead, args))
        return self._keep(ended, noted)

    def ranks(self, *given: Any, **more: Any) -> ArenaResult:
        return self._keep(self._arena.ranks(*given, **more))

    def saves(self, *given: Any) -> ArenaResult:
        return self._keep(self._arena.saves(*given))

    def group(self, *given: Any, **more: Any) -> ArenaResult:
        return self._keep(self._arena.group(*given, **more))

    def tensorflow(self, fn: Callable | None, inputs: Sequence[Any], *more: Any, **ways: Any) -> ArenaResult:
        noted = NotedCalls()
        given = noted.instead([list(inputs), *more])
        return self._keep(self._arena.tensorflow(fn, given[0], *given[1:], **ways), noted)

    def _keep(self, ended: ArenaResult, noted: NotedCalls | None = None) -> ArenaResult:
        assert ended.state == "done", ended.message
        self.kept.append(Remembered(ended, tuple(noted.calls) if noted else ()))
        return ended


class PastedArena:
    """Gives back what was kept, in its order, and makes the same calls; draws from a seed of its own."""

    def __init__(self, seed: int, kept: Sequence[Remembered]) -> None:
        self.draws = random.Random(seed)
        self._kept = iter(kept)

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        return self._next(list(args))

    def ranks(self, fn: Callable, inputs: Sequence[Any], *more: Any, **ways: Any) -> ArenaResult:
        return self._next()

    def saves(self, fn: Callable, scenarios: Sequence[Any]) -> ArenaResult:
        return self._next()

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any, **ways: Any) -> ArenaResult:
        return self._next()

    def tensorflow(self, fn: Callable | None, inputs: Sequence[Any], *more: Any, **ways: Any) -> ArenaResult:
        return self._next([list(inputs), *more])

    def _next(self, given: Any = ()) -> ArenaResult:
        one = next(self._kept, None)
        if one is None:
            return ArenaResult("raised", "there were fewer cases under the other seed")
        make_again(one.calls, given)
        return one.ended


def remembered(exercise: str, arena: Arena, fn: Callable) -> list[Remembered]:
    """What a right answer gave in every case of the check."""
    keeping = RememberingArena(arena)
    verdict = run_check(exercise, keeping, fn)
    assert verdict.state == "pass", verdict.mismatch
    return keeping.kept


def held_in_every_case(exercise: str, arena: Arena) -> set[str]:
    """The properties that no case of the check finds anything against, with the results that the arena gives."""
    module = import_module(f"worldsize.checks.{CHECKS[exercise]}")
    held: dict[str, bool] = {}

    def judge(name: str, points: dict[str, float], cases: Iterable[Case], **more: Any) -> None:
        held.update(dict.fromkeys(points, True))
        for case in cases:
            for one, complaint in _found(case, points).items():
                held[one] = held[one] and complaint is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "judge", judge)
        run_check(exercise, arena, None)
    return {name for name, right in held.items() if right}


def _found(case: Case, points: dict[str, float]) -> dict[str, Any]:
    ended = case.run()
    if ended.state != "done":
        return dict.fromkeys(points, ended.message)
    try:
        return case.examine(ended)
    except Exception as error:
        return dict.fromkeys(points, str(error))
