"""Check of a chief's work with a coordinator: an exact score, from parts that workers count.

The check plays the coordinator by TensorFlow's rules: closures run in any order once they are waited for, and the
closure of a lost worker runs again. Every closure calls the check, which picks the next one and notes each request.
`recovery.py` tests a lost server.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.coordinator import scored
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.verdict import UNEXAMINED, Complaint

_PROMISE = (
    "`schedule` returns at once, with a promise of the two numbers (TensorFlow's is a RemoteValue). coordinator.fetch returns "
    "the numbers themselves."
)
_ARGS = "`args` is a tuple, even for one part: schedule(right_in, args=(part,))."
_RETURNED = (
    "This coordinator is simulated: it has schedule, join, done and fetch. Add up the closures' results here on the chief: an "
    "addition to a variable may happen twice."
)
UNCALLED = "object is not callable"  # of what was scheduled
UNCALLED_ADVICE = "Was a result scheduled? `schedule` takes the function: pass the function itself, without calling it."
_ADVICE = {
    UNCALLED: UNCALLED_ADVICE,
    "expected one part": _ARGS + " A closure gets one part at a time.",
    "ScheduledValue": _PROMISE,
    "missing 1 required positional argument: 'part'": _ARGS,
    "'int' object is not iterable": _ARGS,
    "'bool' object is not iterable": "done() is False while closures run: ask again until it is True, or call join.",
    "has no attribute 'strategy'": _RETURNED,
}
VALUE = "the score of all examples"
TWICE = "exact where closures run twice"
ASYNC = "all parts are under way, and joined, before the first answer is fetched"

Examine = Callable[[str, Any], dict[str, Complaint]]


class PlayedCoordinator:
    """A coordinator as a check plays it: which closures are under way, and which of them runs next.

    A wait runs all scheduled closures, in random order; every `repeats`th runs twice. The closures themselves stay in
    the student's process; the check knows their numbers.
    """

    def __init__(self, seed: int, repeats: int = 0) -> None:
        self._chance, self.repeats = random.Random(seed), repeats
        self._scheduled = 0
        self.pending: list[int] = []  # scheduled, and not waited for so far
        self._wave: list[int] | None = None
        self.running: int | None = None
        self.waves: list[int] = []  # closures under way at each wait
        self.fetched_early = False  # whether a fetch began a wait

    @property
    def seen(self) -> dict[str, Callable]:
        """Return the calls that the driver's coordinator makes from its process."""
        return {"schedule": self.schedule, "next": self.next, "stop": self.stop, "fetch": self.fetch}

    def schedule(self) -> int:
        self.pending.append(self._scheduled)
        self._scheduled += 1
        return self._scheduled - 1

    def fetch(self) -> None:
        """Note that a fetch begins the coordinator's wait, and no join."""
        self.fetched_early = True

    def next(self) -> int | None:
        """End the running closure and return the next one, or None at the end of the coordinator's wait."""
        if self._wave is None:
            self._wave = self._begun()
        if not self._wave:
            self.stop()
            return None

        self.running = self._wave.pop(0)
        return self.running

    def stop(self) -> None:
        """End the coordinator's wait, and drop its closures that have not run."""
        self._wave, self.running = None, None

    def _begun(self) -> list[int]:
        pending, self.pending = self.pending, []
        if pending:
            self.waves.append(len(pending))
        self._chance.shuffle(pending)

        wave = []
        for place, closure in enumerate(pending):
            wave.append(closure)
            if self.repeats and place % self.repeats == 0:
                wave.append(closure)
        return wave


def cases_of_one_run(run: Callable[[], ArenaResult], names: Iterable[str], examine: Examine) -> Iterator[Case]:
    """Yield a case for each name, all answered by one run, because TensorFlow starts slowly.

    The run returns a list with a row for each name; `examine(name, row)` returns the row's complaints.
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


@exercise(
    {VALUE: 0.25, TWICE: 0.5, ASYNC: 0.25},
    seen=dict.fromkeys((VALUE, TWICE, ASYNC), evidence.CALLS),
    needs=needs.TENSORFLOW,
)
def score(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check closures that a coordinator schedules.

    `score(coordinator, right_in, parts)` returns the share of right answers over all parts; right_in(part) -> (right, of).
    """
    truth = _drawn_truth(arena.draws)
    seed = arena.draws.getrandbits(31)
    parts = {
        "one part": PlayedParts(truth[:1], PlayedCoordinator(seed)),
        "six parts of different size": PlayedParts(truth, PlayedCoordinator(seed)),
        "six parts, and every second closure runs twice": PlayedParts(truth, PlayedCoordinator(seed, repeats=2)),
    }

    def run() -> ArenaResult:
        ended = arena.tensorflow(fn, [[played.seen for played in parts.values()]], driver=scored)
        return with_advice(ended, _ADVICE)

    cases = cases_of_one_run(run, parts, lambda name, got: _examine_score(got, parts[name]))
    return cases


def _drawn_truth(draws: random.Random) -> list[list[int]]:
    """Draw [right answers, examples] of the coordinator's six parts, until no mistake gives the right share by luck.

    Mistakes are one part alone, a mean of shares, the wrong answers, a set of the parts, one part's size for all, and any three
    parts, which could then count twice unseen. No share turned round is a number of right answers. Raises AssertionError as
    `drawn_until`.
    """

    def draw() -> list[list[int]]:
        sizes = [draws.randrange(3, 9) * (k + 1) for k in range(6)]
        truth = [[draws.randrange(1 + k % 2, size), size] for k, size in enumerate(sizes)]
        truth[3] = list(truth[1])  # parts with equal answers both count; a set drops one
        return truth

    def tells(truth: list[list[int]]) -> bool:
        share = Fraction(*np.sum(truth, axis=0).tolist())
        shares = [Fraction(*part) for part in truth]
        threes = [Fraction(*np.sum(three, axis=0).tolist()) for three in combinations(truth, 3)]
        right, of = np.sum(truth, axis=0).tolist()
        alike = [Fraction(right, len(truth) * truth[place][1]) for place in (0, -1)]
        turned = any(r * r == n for r, n in (truth[0], (right, of)))
        return not turned and share not in (*shares, sum(shares) / len(shares), 1 - share, _of_a_set(truth), *threes, *alike)

    return drawn_until(tells, draw, "score")


def _of_a_set(truth: list[list[int]]) -> Fraction:
    """Return the coordinator's share of right answers if parts with equal answers count once."""
    return Fraction(*np.sum(list(set(map(tuple, truth))), axis=0).tolist())


class PlayedParts:
    """Parts whose right answers are counted on a played coordinator, and a record of each request."""

    def __init__(self, truth: list[list[int]], coordinator: PlayedCoordinator) -> None:
        self.truth, self.coordinator = truth, coordinator
        self.asked: list[int] = []
        self.on_the_chief = False  # whether `right_in` was called outside a closure

    @property
    def seen(self) -> dict[str, Any]:
        """Return what the coordinator's driver gets."""
        return {"parts": len(self.truth), "right_in": self.right_in, "coordinator": self.coordinator.seen}

    def right_in(self, part: Any) -> list[int]:
        """Return [right answers, examples] of a part. Raises ValueError for a part out of range."""
        part = number(part)
        if isinstance(part, str):
            raise ValueError(f"right_in: expected one part, {part}")
        k = int(part)
        if not 0 <= k < len(self.truth):
            raise ValueError(f"right_in: expected a part from 0 to {len(self.truth) - 1}, got {k}")

        self.asked.append(k)
        self.on_the_chief |= self.coordinator.running is None
        return self.truth[k]


def _examine_score(got: Any, played: PlayedParts) -> dict[str, Complaint]:
    truth, coordinator = played.truth, played.coordinator
    value, several = TWICE if coordinator.repeats else VALUE, len(truth) > 1
    unexamined: dict[str, Complaint] = {ASYNC: UNEXAMINED} if several else {}  # one part alone waits for no other
    if played.on_the_chief:
        alone = "right_in was called on the chief itself: pass it to coordinator.schedule, with args=(part,)"
        return {value: UNEXAMINED, ASYNC: alone} if several else {value: alone}
    if coordinator.pending and not played.asked:
        idle = "no closure had run when the function returned: `join` waits for the scheduled closures"
        return {value: idle} | unexamined

    asked = sorted(set(played.asked))
    for part in range(len(truth)):
        if part not in asked:
            late = " Does a lambda in a loop look its part up too late? Pass it as args=(part,)." * (len(asked) == 1)
            missing = f"part {part} was never asked for; the closures asked for {asked}.{late}"
            return {value: missing} | unexamined

    found = {value: _wrong_score(got, truth, played.asked)}
    if several:
        found[ASYNC] = _one_by_one(coordinator.waves, len(truth)) or _unjoined(coordinator)
    return found


def _one_by_one(waves: Sequence[int], parts: int) -> Complaint:
    if waves[0] == parts:
        return None
    if waves[0] > parts:
        return (
            f"{waves[0]} closures were scheduled for {parts} parts: schedule each part once. If a worker is lost, the "
            f"coordinator itself gives its closure to another worker."
        )

    under_way = "1 of {} parts was" if waves[0] == 1 else f"{waves[0]} of {{}} parts were"
    return (
        f"{under_way.format(parts)} under way when the first answer was fetched: the other workers have nothing to do. "
        f"Schedule all parts, then fetch."
    )


def _unjoined(coordinator: PlayedCoordinator) -> Complaint:
    if not coordinator.fetched_early:
        return None
    return (
        "the first answer was fetched before join: a fetch that waits while a worker dies may get that worker's error. `join` "
        "first, or wait until done() is true; then fetch."
    )


def _wrong_score(got: Any, truth: list, parts: list[int]) -> Complaint:
    value = number(got)
    right, of = np.sum(truth, axis=0).tolist()
    complaint = f"{right} of {of} answers are right, so {right / of:.4f}; "
    if isinstance(value, str):
        return complaint + value
    if close(value, right / of):
        return None

    ran_right, ran_of = np.sum([truth[part] for part in parts], axis=0).tolist()
    mistakes = {
        "Parts differ in size: divide the sum of right answers by the sum of examples":
            sum(r / n for r, n in truth) / len(truth),
        "Closures that ran twice count twice. A closure's result arrives once; its additions elsewhere may happen twice":
            ran_right / ran_of,
        "Closures that ran twice count twice in the right answers. Add up what they return": ran_right / of,
        "Parts with the same answers all count: was one left out as a duplicate?": float(_of_a_set(truth)),
        "That is the number of right answers; expected their share": right,
        "That is the share of wrong answers": 1 - right / of,
        "right_in returns the right answers first, then the examples": of / right,
        "Parts differ in size: add up the examples of all parts, the first part's size is not theirs":
            right / (len(truth) * truth[0][1]),
        "Parts differ in size: add up the examples of all parts, the last part's size is not theirs":
            right / (len(truth) * truth[-1][1]),
        "A share is a number from 0 to 1, not in per cent": 100 * right / of,
        "`//` drops the fraction: divide with `/`": right // of,
        "That is the last part alone": truth[-1][0] / truth[-1][1],
        "That is the first part alone": truth[0][0] / truth[0][1],
    }  # fmt: skip
    return f"{complaint}got {value:.6g}{first_named(value, mistakes)}"
