"""Run a whole check in simulated time, in a process of its own: whatever the function does there, the notebook lives on.

The first pass plays the cases in the natural order of events, with the notebook's draws. While there are few messages,
further passes draw anew and let a seed choose the order; the number of passes depends on no clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from worldsize.checks import run_check
from worldsize.checks.arena import ArenaResult, Trial
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.checks.verdict import Verdict
from worldsize.errors import LaunchError

MOST_PASSES = 4
FEW_MESSAGES = 250  # take a tenth of a second; below that, another pass is no noticeable wait
CASE_LIMIT_S = 4.0
CHECK_LIMIT_S = 10.0
MOST_BYTES = 64_000_000  # of results sent back to the notebook


@dataclass(frozen=True)
class SimulatedPass:
    """A pass of a check in simulated time: the draws that it began with, its verdict, and the results of `arena.ranks`."""

    draws: Any  # a state of `random.Random`
    verdict: Verdict
    results: tuple[ArenaResult, ...]
    reordered: bool


@dataclass(frozen=True)
class SimulatedCheck:
    """A check in simulated time. `told` is its first pass, or the first that did not end in "pass"."""

    told: SimulatedPass
    passes: int
    cases: int


def simulate_check(exercise: str, functions: tuple[Callable, ...], draws: Any) -> SimulatedCheck | None:
    """Run the check of `exercise` in a fresh process. Returns None where real processes are needed.

    `draws` is the state of the arena's `random.Random` at the check's beginning.
    """
    from worldsize.launch import quiet_launch

    try:
        run = quiet_launch(_passes, 1, (exercise, functions, draws), timeout_s=CHECK_LIMIT_S, device="cpu")
    except (LaunchError, ValueError):  # real ranks run it again, and report the failure in full
        return None
    return run.results[0] if run.state == "done" else None


def _passes(exercise: str, functions: tuple[Callable, ...], draws: Any) -> SimulatedCheck | None:
    reported: SimulatedPass | None = None
    cases = messages = 0
    for number in range(MOST_PASSES):
        arena = KeptResults(seed=number, interleaved=number > 0, limit_s=CASE_LIMIT_S)
        arena.draws.setstate(draws)
        if number:
            arena.draws.seed(f"pass {number} {arena.draws.random()}")

        begins_with = arena.draws.getstate()
        try:
            verdict = run_check(exercise, arena, *functions)
        except NotPlayable:
            return None if reported is None else SimulatedCheck(reported, number, cases)

        simulated = SimulatedPass(begins_with, verdict, tuple(arena.results), reordered=number > 0)
        cases += len(simulated.results)
        messages += sum(len(ended.trace.transfers) for ended in simulated.results)
        if reported is None and sum(map(_size_bytes, simulated.results)) > MOST_BYTES:
            return None
        if reported is None or simulated.verdict.state != "pass":
            reported = simulated
        if simulated.verdict.state != "pass" or messages > FEW_MESSAGES:
            break
    return SimulatedCheck(reported, number + 1, cases)


class KeptResults(SimulatedArena):
    """The simulated arena, with its results over the fabric kept."""

    def __init__(self, seed: int, interleaved: bool, limit_s: float) -> None:
        super().__init__(seed, interleaved, limit_s)
        self.results: list[ArenaResult] = []

    @override
    def run(self, trial: Trial) -> ArenaResult:
        ended = super().run(trial)
        if trial.way == "ranks":
            self.results.append(ended)
        return ended


def _size_bytes(value: Any) -> int:
    if isinstance(value, ArenaResult):
        return _size_bytes(value.returned) + _size_bytes(value.inputs)
    if isinstance(value, (tuple, list)):
        return sum(map(_size_bytes, value))
    if isinstance(value, dict):
        return sum(map(_size_bytes, value.values()))
    return int(getattr(value, "nbytes", 0))
