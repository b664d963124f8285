"""The checks of what a chief does with a coordinator: an exact score, and a training that outlives its server.

The coordinator is played here by the rules of TensorFlow's: closures run in any order once they are waited for, one
whose worker was lost runs again, and a lost server breaks off `join`. Left out: real tasks (lab 09 runs those).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import Verdict

SCORE_POINTS = {
    "the score of all examples": 0.5,
    "exact where closures run twice": 0.25,
    "all parts are under way before the first answer is needed": 0.25,
}
VALUE, TWICE, ASYNC = SCORE_POINTS


class ScheduledValue:
    """What `schedule` returns."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self.value = coordinator, None

    def fetch(self) -> Any:
        self._coordinator.wait()
        return self.value.numpy() if hasattr(self.value, "numpy") else _each(self.value, lambda v: getattr(v, "numpy", v)())

    def get(self) -> Any:
        self._coordinator.wait()
        return self.value


def _each(value: Any, change: Callable) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_each(v, change) for v in value)
    if isinstance(value, dict):
        return {k: _each(v, change) for k, v in value.items()}
    return change(value) if hasattr(value, "numpy") else value


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
            for k, (later, fn, args, kwargs) in enumerate(pending):
                for _ in range(2 if self._again and k % self._again == 0 else 1):
                    self._before()
                    later.value = fn(*args, **kwargs)
        finally:
            self.running = False

    join = wait

    def done(self) -> bool:
        return not self._pending

    def fetch(self, value: Any) -> Any:
        return value.fetch() if isinstance(value, ScheduledValue) else _each_later(value)


def _each_later(value: Any) -> Any:
    if isinstance(value, ScheduledValue):
        return value.fetch()
    if isinstance(value, (list, tuple)):
        return type(value)(_each_later(v) for v in value)
    return {k: _each_later(v) for k, v in value.items()} if isinstance(value, dict) else value


# ---- an exact score --------------------------------------------------------------------------


def score(arena: Arena, fn: Callable) -> Verdict:
    """Check of closures that a coordinator schedules.

    `score(coordinator, right_in, parts)`: the share of right answers over all parts; right_in(part) -> (right, of).
    """
    return judge("score", SCORE_POINTS, _score_cases(arena, fn))


def _score_cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    draw = arena.draws
    sizes = [draw.randrange(3, 9) * (k + 1) for k in range(6)]
    truth = [[draw.randrange(1 + k % 2, size), size] for k, size in enumerate(sizes)]
    plans = [{"truth": truth[:1], "again": 0}, {"truth": truth, "again": 0}, {"truth": truth, "again": 2}]
    seen: list[ArenaResult] = []

    def ask(k: int) -> ArenaResult:
        if not seen:
            seen.append(arena.tensorflow(fn, [plans], arena.draws.getrandbits(31), driver=scored))
        return seen[0] if seen[0].state != "done" else ArenaResult("done", returned=(seen[0].returned[0][k],))

    for k, name in enumerate(("one part", "six parts of different size", "six parts, and every second closure runs twice")):
        yield Case(name, lambda k=k: ask(k), lambda ended, k=k: _examine_score(ended.returned[0], plans[k]))


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


def _examine_score(row: dict, plan: dict) -> dict[str, str | None]:
    truth, calls = plan["truth"], row["calls"]
    if any(not running for _, running in calls):
        return {ASYNC: "right_in was called on the chief itself: hand it to coordinator.schedule, with args=(part,)"}
    if row["left"] and not calls:
        return {VALUE: "nothing had run when the function returned: `join` waits for what was scheduled"}
    parts = [part for part, _ in calls]
    missing = [part for part in range(len(truth)) if part not in parts]
    if missing:
        late = " Does a lambda in a loop look its part up too late? Give it as args=(part,)." if len(set(parts)) == 1 else ""
        return {VALUE: f"part {missing[0]} was never asked for; asked were {sorted(set(parts))}.{late}"}
    held = TWICE if plan["again"] else VALUE
    found: dict[str, str | None] = {held: _wrong_score(row["got"], truth, parts)}
    found[ASYNC] = _one_by_one(row["waves"], len(truth))
    return found


def _one_by_one(waves: Sequence[int], parts: int) -> str | None:
    if parts == 1 or waves[0] == parts:
        return None
    return (
        f"{waves[0]} of {parts} parts was under way when the first answer was fetched: the other workers have nothing to do. "
        f"Schedule all, then fetch."
    )


def _wrong_score(got: Any, truth: list, parts: list[int]) -> str | None:
    value = number(got)
    right, of = sum(r for r, _ in truth), sum(n for _, n in truth)
    told = f"{right} of {of} answers are right, so {right / of:.4f}; "
    if isinstance(value, str):
        return told + value
    if close(value, right / of, 1e-6):
        return None
    ran_right, ran_of = sum(truth[p][0] for p in parts), sum(truth[p][1] for p in parts)
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
    return f"{told}got {value:.6g}{first_named(value, mistakes, 1e-6)}"
