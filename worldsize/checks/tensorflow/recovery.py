"""Check of a training that survives the loss of its parameter server: checkpoints, a new start, the newest one restored.

The check plays the server from another process (`PlayedServer`): a loss makes `join`, or the `schedule` after it, raise
UnavailableError, and the server's variables are gone. Every step adds other numbers to the weights, so the final
weights show which steps they contain; a new chief is another process, with nothing but the folder's files.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.recovery import GONE, MOST_WAITING, NO_STEP, NONE, through
from worldsize.checks.kit import evidence
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import NOTHING, has_keys, same, shown
from worldsize.checks.tensorflow.coordinator import UNCALLED, UNCALLED_ADVICE, PlayedCoordinator, cases_of_one_run
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

DONE = "all steps are done, with a checkpoint after every few"
LOST = "a lost server costs the steps since the last checkpoint, no more"
RESUMED = "a new chief goes on where the folder's checkpoint is"
MOST_STARTS, MOST_TRIED = 6, 200  # with more starts or steps a training counts as endless

Update = tuple[float, ...]  # what a step adds to the three weights


@dataclass(frozen=True)
class RecoveryPlan:
    """A training of `steps` steps with recovery, and a checkpoint after `every`; the server is lost at the attempts in `lost`.

    `after`: the steps that an earlier chief was asked for, in another process. `eager`: steps run while the chief still
    schedules, so that `schedule` raises the loss. `broken`: the step whose error is not the loss of a server. `twice`: a step of
    the first round runs twice, as after the loss of a worker. `unsaved`: the save before which the server is lost.
    """

    steps: int
    every: int
    lost: tuple[int, ...] = ()
    after: int = 0
    eager: bool = False
    broken: int = 0
    twice: bool = False
    unsaved: int = 0


# case name -> (properties, plan)
FIRST = {
    "10 steps, every 4": ((DONE,), RecoveryPlan(10, 4)),
    "3 steps, every 5": ((DONE,), RecoveryPlan(3, 5)),
    "10 steps, every 4, the server is lost in step 6": ((LOST,), RecoveryPlan(10, 4, lost=(6,))),
    "9 steps, every 3, the server is lost twice, first in step 2": ((LOST,), RecoveryPlan(9, 3, lost=(2, 8))),
    "10 steps, every 4, the loss in step 5 comes out of schedule": ((LOST,), RecoveryPlan(10, 4, lost=(5,), eager=True)),
    "10 steps, every 4, the server is lost between the second join and its save": ((LOST,), RecoveryPlan(10, 4, unsaved=2)),
    "10 steps, every 4, step 7 raises InvalidArgumentError, on a server that is there": ((LOST,), RecoveryPlan(10, 4, broken=7)),
    "10 steps, every 4, a step of the first round runs twice": ((DONE,), RecoveryPlan(10, 4, twice=True)),
}
# only a chief in another process shows that there were checkpoints: a lost server can be survived without any
LATER = {
    "13 steps, every 4, after an earlier chief has done 10": ((DONE, LOST, RESUMED), RecoveryPlan(13, 4, after=10)),
    "8 steps, every 2, after an earlier chief has done 4": ((RESUMED,), RecoveryPlan(8, 2, after=4)),
}


@exercise(
    {DONE: 0.5, LOST: 0.5, RESUMED: 0.5},
    seen=dict.fromkeys((DONE, LOST, RESUMED), evidence.CALLS),
    needs=needs.TENSORFLOW,
)
def train_through(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check recovery from a lost parameter server.

    `train_through(start, steps, every, folder)` returns the state after `steps` steps; start() -> (coordinator, step,
    state). Two runs: first the lone and the earlier chiefs, then the chiefs that follow the earlier ones.
    """
    plans = {name: plan for name, (_, plan) in (FIRST | LATER).items()}
    seeds = {name: arena.draws.getrandbits(31) for name in plans}
    first = {name: PlayedServer(plans[name], seeds[name]) for name in FIRST}
    # another seed, so that the earlier chief's updates are not the later one's
    early = {name: PlayedServer(RecoveryPlan(plans[name].after, plans[name].every), seeds[name] + 1) for name in LATER}
    left: dict[str, dict] = {}  # files by name of the later case

    def run() -> ArenaResult:
        ended = arena.tensorflow(fn, [[server.seen({}) for server in (*first.values(), *early.values())]], driver=through)
        ended = with_advice(ended, {UNCALLED: UNCALLED_ADVICE})
        if ended.state == "done":
            left.update(zip(LATER, (_files(row) for row in ended.returned[0][len(first) :]), strict=True))
        return ended

    yield from cases_of_one_run(run, FIRST, lambda name, row: _examine(FIRST[name][0], _wrong(row, first[name])))

    later = {name: PlayedServer(plans[name], seeds[name], early[name].ends) for name in LATER}

    def go_on() -> ArenaResult:
        return arena.tensorflow(fn, [[later[name].seen(left[name]) for name in LATER]], driver=through)

    yield from cases_of_one_run(go_on, LATER, lambda name, row: _examine(LATER[name][0], _wrong(row, later[name])))


def _files(row: Any) -> dict[str, np.ndarray]:
    """Return the files that a chief left to recover from, {name: bytes}; drop anything else."""
    files = row.get("files") if isinstance(row, dict) else None
    if not isinstance(files, dict):
        return {}

    kept = {}
    for name, content in files.items():
        if isinstance(name, str) and isinstance(content, np.ndarray) and content.dtype == np.uint8:
            kept[name] = content
    return kept


class PlayedServer:
    """The servers that a chief in recovery meets: when one is lost, and the update that every step adds.

    `begun` returns what the folder's checkpoint may hold: lists of updates, each list a sum that the weights may be.
    """

    def __init__(self, plan: RecoveryPlan, seed: int, begun: Callable[[], list[list[Update]]] = lambda: [[]]) -> None:
        self.plan, self._seed, self._begun = plan, seed, begun
        self._chance = random.Random(seed)
        self._coordinators: list[PlayedCoordinator] = []
        self._lost: list[bool] = []
        self._added: list[list[Update]] = []  # by start
        self._tried = self._saves = 0

    def seen(self, files: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return what the recovery's driver gets."""
        calls = {"start": self.start, "schedule": self.schedule, "next": self.next, "stop": self.stop, "step": self.step}
        calls["save"] = self.save
        return {"steps": self.plan.steps, "every": self.plan.every, "eager": self.plan.eager, "files": files, "seen": calls}

    def start(self) -> int | None:
        """Return the number of a new server, or None after `MOST_STARTS`, far more than are lost."""
        if len(self._lost) >= MOST_STARTS:
            return None

        self._coordinators.append(PlayedCoordinator(self._seed, repeats=self.plan.every * self.plan.twice))
        self._lost.append(False)
        self._added.append([])
        return len(self._lost) - 1

    def schedule(self, server: int) -> int | None:
        if self._lost[server]:
            return None
        return self._coordinators[server].schedule()

    def next(self, server: int) -> int | None:
        if self.waves:  # a step runs twice in the first round alone
            self._coordinators[server].repeats = 0
        return self._coordinators[server].next()

    def stop(self, server: int) -> None:
        self._coordinators[server].stop()

    def save(self, server: int) -> bool:
        """Return whether a checkpoint can be written: whether the server is there."""
        self._saves += 1
        self._lost[server] |= self._saves == self.plan.unsaved
        return not self._lost[server]

    @property
    def waves(self) -> list[int]:
        """Return the steps under way at each wait of the training with recovery."""
        return list(chain.from_iterable(coordinator.waves for coordinator in self._coordinators))

    def step(self, server: int) -> list[float] | None:
        """Return what a step adds to the weights: one number if it raises its own error, None if its server is lost, an
        empty list after far too many steps.
        """
        self._tried += 1
        if self._tried > MOST_TRIED:
            return []
        if self._tried == self.plan.broken:
            return [0.0]

        self._lost[server] |= self._tried in self.plan.lost
        if self._lost[server]:
            return None

        update = tuple(float(self._chance.randrange(1, 1000)) for _ in range(3))
        self._added[server].append(update)
        return list(update)

    def ends(self) -> list[list[Update]]:
        """Return, after recoveries, the lists of updates that the final weights may contain.

        A loss costs the steps since a checkpoint: fewer than `every`, or so many if it comes before the save.
        """
        candidates = [list(begun) for begun in self._begun()]
        for server, added in enumerate(self._added):
            if server and self._lost[server - 1]:
                kept = []
                for steps in candidates:
                    costs = range(min(self.plan.every + bool(self.plan.unsaved), len(steps) + 1))
                    kept += [steps[: len(steps) - cost] for cost in costs]
                candidates = kept
            candidates = [[*steps, *added] for steps in candidates]

        return candidates


def _examine(tried: Sequence[str], complaint: Complaint) -> dict[str, Complaint]:
    """Return the complaint for the last property of recovery, without which the others cannot be judged."""
    *others, last = tried
    return dict.fromkeys(others, complaint and UNEXAMINED) | {last: complaint}


def _wrong(row: dict, server: PlayedServer) -> Complaint:
    plan = server.plan
    ended = row["ended"]
    if plan.broken and ended == "broken":
        return None
    if plan.broken and ended == "returned":
        return (
            "the step raised InvalidArgumentError, but the function caught it. A new start mends only the loss of a server: "
            "catch tf.errors.UnavailableError, and no other error"
        )
    if row["waiting"] > {"returned": 0}.get(ended, MOST_WAITING):
        return (
            f"{count(row['waiting'], 'step')} scheduled, but never waited for: coordinator.join() returns when all have run. "
            f"Save after it."
        )
    if ended == "unavailable":
        if row["late"]:
            return "a checkpoint was to be written after the server was lost: save only after a join that returned"
        if plan.unsaved:
            return (
                "save raised UnavailableError, and the function did not catch it: a save reads the variables from the server, so "
                "the loss may show there, too. Put schedule, join and save in the try."
            )
        if plan.eager:
            return (
                "schedule raised UnavailableError, and the function did not catch it: steps run while you schedule, so the loss "
                "may show in schedule or in join. Put the try round both."
            )
        return "the server was lost, and UnavailableError was not caught: catch it round schedule and join, then start() again"
    beginning = _wrong_beginning(row)
    if ended == "endless" and beginning:
        return beginning
    if row["refused"] > MOST_WAITING:
        return (
            "the server was lost, and steps were handed to its coordinator again and again. After a loss call start() again, and "
            "use all three values it returns."
        )
    if ended == "endless":
        if row["starts"] < MOST_STARTS:
            return f"{MOST_TRIED} steps ran, and the training did not end; expected {plan.steps} steps"
        return (
            f"{count(row['starts'] - 1, 'start')}, and the training did not end. After a loss, use all three values of the new "
            f"start(): the old coordinator, step and state belong to a server that is gone."
        )

    state = row["state"]
    if not has_keys(state, "step"):
        came = NOTHING if state in (None, "NoneType") else f"a {state}"
        return f"expected the state, as start() returned it, got {came}"

    return (
        beginning
        or _wrong_end(plan, int(state["step"]))
        or _wrong_checkpoints(row, plan)
        or _wrong_weights(state.get("weights"), server)
        or _one_by_one(server)
    )


def _one_by_one(server: PlayedServer) -> Complaint:
    """Return a complaint if steps ran on the chief, or one at a time; rounds shorter than `every` pass."""
    plan = server.plan
    if not server.waves:
        return "the steps ran on the chief itself: pass them to coordinator.schedule, and the workers run them"
    if plan.eager or plan.every < 4 or max(server.waves) > 1:
        return None
    return (
        f"join ran after each step, although every={plan.every}: one worker has a step, the others wait. Schedule a round, "
        f"then join once."
    )


def _wrong_beginning(row: dict) -> Complaint:
    for first, saved in row["began"]:
        if saved > 0 and first == 0:
            return (
                f"training began at step 0 though the folder holds a checkpoint of step {saved}. After every start(), restore "
                "the newest checkpoint: the variables are new, and 0. A Checkpoint or a manager of the old state restores and "
                "saves the old variables: make a new one."
            )
        if GONE in (first, saved):
            return "a checkpoint was written after the server was lost: save only after a join that returned"

    return None


def _wrong_end(plan: RecoveryPlan, step: int) -> Complaint:
    if step == plan.steps:
        return None

    complaint = f'expected state["step"] to be {plan.steps} at the end, got {step}. '
    if step == GONE:
        return complaint + "That state was lost with its server."
    if step > plan.steps:
        if plan.twice:
            return f'{complaint}A step ran twice, and state["step"] counts both. Go by state["step"], not by your own counter.'
        if plan.after or plan.lost:
            return f"{complaint}Steps that a checkpoint holds are done: schedule min(every, steps left)."
        return f"{complaint}The last round may be shorter: schedule min(every, steps left)."
    if plan.lost:
        return complaint + 'Steps since the last checkpoint are lost. Go by state["step"], not by your own counter.'
    return complaint + "Is the last, shorter round left out?"


def _wrong_checkpoints(row: dict, plan: RecoveryPlan) -> Complaint:
    if row["unsaved"] > plan.every + plan.twice:
        return (
            f"{row['unsaved']} steps ran without a checkpoint in `folder`, although every={plan.every}: schedule at most "
            f"that many, join, save."
        )
    if row["saved"] == NO_STEP:
        return "the newest checkpoint at the end holds no step: a checkpoint must hold the whole state"
    if row["saved"] != plan.steps:
        last = "there is none in the folder" if row["saved"] == NONE else f"it holds step {row['saved']}"
        return (
            f"the newest checkpoint at the end: expected it to hold step {plan.steps}, but {last}. Steps have run when join "
            f"returns: save after each join, also after the last one."
        )
    return None


def _wrong_weights(got: Any, server: PlayedServer) -> Complaint:
    """Return a complaint if the recovered weights are not the sum of the steps that ran and were not lost, or None."""
    whole = [steps for steps in server.ends() if len(steps) == server.plan.steps]
    if not whole:
        ran = " or ".join(sorted({str(len(steps)) for steps in server.ends()}))
        twice = "; one of them ran twice: only the steps themselves may count state[\"step\"]" * server.plan.twice
        return f"state[\"step\"] says {server.plan.steps}, but {ran} steps ran and were not lost{twice}"

    sums = [np.sum(steps, axis=0).astype("float32") for steps in whole]
    if any(same(got, expected) for expected in sums):
        return None
    return (
        f"state[\"weights\"]: expected {sums[0].tolist()}, the sum of all steps that were not lost, got {shown(got)}. A "
        f"checkpoint must hold the whole state, and a new start goes on from the newest."
    )
