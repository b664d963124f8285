"""The checks of what a chief does with a coordinator: an exact score, and a training that outlives its server.

The coordinator is played here by the rules of TensorFlow's: closures run in any order once they are waited for, one
whose worker was lost runs again, and a lost server breaks off `join`. Left out: real tasks (lab 09 runs those).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Complaint, Verdict

SCORE_POINTS = {
    "the score of all examples": 0.5,
    "exact where closures run twice": 0.25,
    "all parts are under way before the first answer is needed": 0.25,
}
VALUE, TWICE, ASYNC = SCORE_POINTS

Examine = Callable[[str, Any], dict[str, Complaint]]


class ScheduledValue:
    """What `schedule` returns."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self.value = coordinator, None

    def fetch(self) -> Any:
        return _each(self.get(), lambda value: value.numpy() if hasattr(value, "numpy") else value)

    def get(self) -> Any:
        self._coordinator.wait()
        return self.value


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same lists, tuples and dicts, with every value in them changed."""
    if isinstance(value, (list, tuple)):
        return type(value)(_each(v, change) for v in value)
    if isinstance(value, dict):
        return {k: _each(v, change) for k, v in value.items()}
    return change(value)


class Coordinator:
    """Runs what is scheduled when it is waited for, in the order of `chance`; every `again`th closure runs twice."""

    def __init__(self, seed: int, again: int = 0, before: Callable[[], None] = lambda: None) -> None:
        self._chance, self._again, self._before = random.Random(seed), again, before
        self._pending: list[tuple[ScheduledValue, Callable, tuple, dict]] = []
        self.running = False
        self.waves: list[int] = []  # how many closures were under way at each wait

    def schedule(self, fn: Callable, args: Sequence = (), kwargs: dict | None = None) -> ScheduledValue:
        later = ScheduledValue(self)
        self._pending.append((later, fn, tuple(args or ()), dict(kwargs or {})))
        return later

    def wait(self) -> None:
        if not self._pending:
            return

        pending, self._pending = self._pending, []
        self.waves.append(len(pending))
        self._chance.shuffle(pending)

        self.running = True
        try:
            for k, closure in enumerate(pending):
                self._run(*closure)
                if self._again and k % self._again == 0:
                    self._run(*closure)
        finally:
            self.running = False

    def _run(self, later: ScheduledValue, fn: Callable, args: tuple, kwargs: dict) -> None:
        self._before()
        later.value = fn(*args, **kwargs)

    join = wait

    def done(self) -> bool:
        return not self._pending

    def fetch(self, value: Any) -> Any:
        return _each(value, lambda later: later.fetch() if isinstance(later, ScheduledValue) else later)


# ---- one run for several cases ----------------------------------------------------------------


def cases_of_one_run(run: Callable[[], ArenaResult], names: Iterable[str], examine: Examine) -> Iterator[Case]:
    """For checks of TensorFlow, which starts slowly: cases that one run answers, row by row, and is made but once.

    The run returns a list with a row for each name; `examine(name, row)` says what is wrong with it.
    """
    ran: list[ArenaResult] = []

    def row(k: int) -> ArenaResult:
        if not ran:
            ran.append(run())
        if ran[0].state != "done":
            return ran[0]
        return ArenaResult("done", returned=(ran[0].returned[0][k],))

    for k, name in enumerate(names):
        yield Case(name, lambda k=k: row(k), lambda ended, name=name: examine(name, ended.returned[0]))


# ---- an exact score --------------------------------------------------------------------------


def score(arena: Arena, fn: Callable) -> Verdict:
    """Check of closures that a coordinator schedules.

    `score(coordinator, right_in, parts)`: the share of right answers over all parts; right_in(part) -> (right, of).
    """
    return judge("score", SCORE_POINTS, _score_cases(arena, fn))


def _score_cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    draws = arena.draws
    sizes = [draws.randrange(3, 9) * (k + 1) for k in range(6)]
    truth = [[draws.randrange(1 + k % 2, size), size] for k, size in enumerate(sizes)]
    plans = {
        "one part": {"truth": truth[:1], "again": 0},
        "six parts of different size": {"truth": truth, "again": 0},
        "six parts, and every second closure runs twice": {"truth": truth, "again": 2},
    }

    def run() -> ArenaResult:
        return arena.tensorflow(fn, [list(plans.values())], draws.getrandbits(31), driver=scored)

    return cases_of_one_run(run, plans, lambda name, row: _examine_score(row, plans[name]))


def scored(fn: Callable, plans: list[dict], seed: int) -> list[dict]:
    """Closures scheduled on a played coordinator.

    Runs in the task: what `fn` returned for every plan, and who called `right_in` with which part.
    """
    import tensorflow as tf

    rows = []
    for plan in plans:
        coordinator, calls = Coordinator(seed, plan["again"]), []

        def right_in(part: Any, plan: dict = plan, calls: list = calls, coordinator: Coordinator = coordinator) -> Any:
            calls.append((int(part), coordinator.running))
            right, of = plan["truth"][int(part)]
            return tf.constant(right), tf.constant(of)

        got = fn(coordinator, right_in, list(range(len(plan["truth"]))))
        rows.append({"got": got, "calls": calls, "waves": coordinator.waves, "left": not coordinator.done()})

    return rows


def _examine_score(row: dict, plan: dict) -> dict[str, Complaint]:
    truth, calls = plan["truth"], row["calls"]
    if any(not running for _, running in calls):
        return {ASYNC: "right_in was called on the chief itself: hand it to coordinator.schedule, with args=(part,)"}
    if row["left"] and not calls:
        return {VALUE: "nothing had run when the function returned: `join` waits for what was scheduled"}

    parts = [part for part, _ in calls]
    asked = sorted(set(parts))
    missing = [part for part in range(len(truth)) if part not in asked]
    if missing:
        late = " Does a lambda in a loop look its part up too late? Give it as args=(part,)." if len(asked) == 1 else ""
        return {VALUE: f"part {missing[0]} was never asked for; asked were {asked}.{late}"}

    held = TWICE if plan["again"] else VALUE
    return {held: _wrong_score(row["got"], truth, parts), ASYNC: _one_by_one(row["waves"], len(truth))}


def _one_by_one(waves: Sequence[int], parts: int) -> Complaint:
    if parts == 1 or waves[0] == parts:
        return None
    return (
        f"{waves[0]} of {parts} parts was under way when the first answer was fetched: the other workers have nothing to do. "
        f"Schedule all, then fetch."
    )


def _wrong_score(got: Any, truth: list, parts: list[int]) -> Complaint:
    value = number(got)
    right, of = np.sum(truth, axis=0).tolist()
    told = f"{right} of {of} answers are right, so {right / of:.4f}; "
    if isinstance(value, str):
        return told + value
    if close(value, right / of):
        return None

    ran_right, ran_of = np.sum([truth[part] for part in parts], axis=0).tolist()
    mistakes = {
        "Parts differ in size: divide the sum of right answers by the sum of examples":
            sum(r / n for r, n in truth) / len(truth),
        "Closures that ran twice count twice. What a closure returns is there once; what it adds somewhere is not":
            ran_right / ran_of,
        "Closures that ran twice count twice in the right answers. Add up what they return": ran_right / of,
        "That is the number of right answers, expected is their share": right,
        "That is the share of wrong answers": 1 - right / of,
        "That is the last part alone": truth[-1][0] / truth[-1][1],
        "That is the first part alone": truth[0][0] / truth[0][1],
    }  # fmt: skip
    return f"{told}got {value:.6g}{first_named(value, mistakes)}"
