"""A right answer's results under one seed, handed back to a check that has drawn with another: a pasted table of answers.

`RememberingArena` keeps what every case gave, and the calls that it made on the check's own functions; `PastedArena` gives
that back, case by case, whatever the check hands in. So a fixed case is always answered rightly, and a drawn one as it was
right under the other seed. Left out: which properties may be earned in this way (`tests.checks.test_pasted_answers`).
"""

import pickle
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from worldsize.arrays import plain
from worldsize.checks import check_of, run_check
from worldsize.checks.arena import Arena, ArenaResult, Trial
from worldsize.checks.kit.judge import Case
from worldsize.checks.noted_calls import NotedCall, NotedCalls, make_again

CALLED_BACK = ("call", "tensorflow")  # the ways in which a function of the check's may be called


@dataclass(frozen=True)
class Remembered:
    """What a run was given, without the check's own functions; its result; its calls on those functions."""

    given: Any
    ended: ArenaResult
    calls: tuple[NotedCall, ...] = ()


@dataclass(frozen=True)
class RightAnswer:
    """A right answer's runs under one seed, and for each property what was handed in where a case tried it."""

    runs: tuple[Remembered, ...]
    handed_in: Mapping[str, list[bytes]]


class RememberingArena(Arena):
    """`arena`, whose runs are kept."""

    def __init__(self, arena: Arena) -> None:
        self.draws = arena.draws
        self.runs: list[Remembered] = []
        self._arena = arena

    @override
    def run(self, trial: Trial) -> ArenaResult:
        noted = NotedCalls()
        given = _given(trial)
        if trial.way in CALLED_BACK:
            instead = noted.instead(given)
            inputs, more = (instead, ()) if trial.way == "call" else (instead[0], instead[1:])
            trial = replace(trial, inputs=tuple(inputs), more=tuple(more))
        ended = self._arena.run(trial)
        assert ended.state == "done", ended.message
        self.runs.append(Remembered(_without_functions(given), ended, tuple(noted.calls)))
        return ended


class PastedArena(Arena):
    """Gives back the results of `runs` in their order, and makes their calls again. Draws from a seed of its own."""

    def __init__(self, seed: int, runs: Iterable[Remembered]) -> None:
        self.draws = random.Random(seed)
        self._runs = iter(runs)

    @override
    def run(self, trial: Trial) -> ArenaResult:
        one = next(self._runs, None)
        if one is None:
            return ArenaResult("raised", "there were fewer cases under the other seed")
        make_again(one.calls, _given(trial))
        return replace(one.ended, inputs=plain(trial.inputs)) if trial.way == "call" else one.ended


def _given(trial: Trial) -> list[Any]:
    """A trial's arguments, laid out as `NotedCalls` numbers the check's own functions among them."""
    return list(trial.inputs) if trial.way == "call" else [list(trial.inputs), *trial.more]


def remembered(exercise: str, arena: Arena, fn: Callable) -> RightAnswer:
    """A right answer's runs in the check of `exercise`. Raises NotPlayable where the arena does."""
    keeping = RememberingArena(arena)
    handed_in: dict[str, list[bytes]] = {}

    check = check_of(exercise)
    verdict = check.judged(_noted(case, keeping.runs, handed_in) for case in check.cases(keeping, fn))
    assert verdict.state == "pass", verdict.mismatch
    return RightAnswer(tuple(keeping.runs), handed_in)


def earned(exercise: str, seed: int, runs: Iterable[Remembered]) -> set[str]:
    """The properties whose points the check gives, with this seed, for the results of these runs."""
    verdict = run_check(exercise, PastedArena(seed, runs), _never_called)
    return {p.name for p in verdict.properties if p.passed and p.points}


def _noted(case: Case, runs: list[Remembered], handed_in: dict[str, list[bytes]]) -> Case:
    """The case; what was handed in for it, or for the case whose run it shares, is noted for each property that it tries."""
    begins = len(runs)

    def examine(ended: ArenaResult) -> dict[str, Any]:
        found = case.examine(ended)
        its = runs[begins:] or runs[-1:]
        mark = pickle.dumps([(one.given, one.calls, one.ended.returned) for one in its])
        for name in found:
            handed_in.setdefault(name, []).append(mark)
        return found

    return replace(case, examine=examine)


def _without_functions(value: Any) -> Any:
    """The same lists, tuples and dicts; what the check's functions say shows in the results."""
    if isinstance(value, (list, tuple)):
        return [_without_functions(v) for v in value]
    if isinstance(value, dict):
        return {k: _without_functions(v) for k, v in value.items()}
    return None if callable(value) else value


def _never_called(*given: Any) -> None:
    raise AssertionError("a pasted answer was run")
