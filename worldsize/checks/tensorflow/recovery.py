"""The check of a training that outlives its parameter server: checkpoints, a new start, the last one restored.

Variables and checkpoints are TensorFlow's, the coordinator and the loss of the server are played (`coordinator`): a
lost server breaks off `join` with UnavailableError, and what it held is gone. Left out: real tasks (lab 09 runs those).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import NOTHING, has_keys
from worldsize.checks.tensorflow.coordinator import Coordinator, cases_of_one_run
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.units import count

POINTS = {
    "all steps are done, with a checkpoint after every few": 0.5,
    "a lost server costs the steps since the last checkpoint, no more": 0.5,
    "a new chief goes on where the folder's checkpoint is": 0.5,
}
DONE, LOST, RESUMED = POINTS
PLANS = (  # `lost`: the server is gone when that many steps have been tried; `first`: steps of an earlier chief
    {"name": "10 steps, every 4", "steps": 10, "every": 4, "lost": (), "first": 0},
    {"name": "10 steps, every 4, the server is lost in step 6", "steps": 10, "every": 4, "lost": (6,), "first": 0},
    {"name": "9 steps, every 3, the server is lost twice, first in step 2", "steps": 9, "every": 3, "lost": (2, 8), "first": 0},
    {"name": "8 steps, every 2, after an earlier chief has done 4", "steps": 8, "every": 2, "lost": (), "first": 4},
)
HELD = (DONE, LOST, LOST, RESUMED)
MOST_STARTS = 6
GONE = -999  # what a variable of a lost server holds here


class TooOften(Exception):
    """`start` has been called far more often than a server was lost."""


def train_through(arena: Arena, fn: Callable) -> Verdict:
    """Check of recovery from a lost parameter server.

    `train_through(start, steps, every, folder)`: the state after `steps` steps; start() -> (coordinator, step, state).
    """
    return judge("train_through", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    held = {plan["name"]: (plan, name) for plan, name in zip(PLANS, HELD, strict=True)}

    def run() -> ArenaResult:
        return arena.tensorflow(fn, [[dict(plan) for plan in PLANS]], arena.draws.getrandbits(31), driver=played)

    def examine(name: str, row: dict) -> dict[str, Complaint]:
        plan, point = held[name]
        return {point: _wrong(row, plan)}

    return cases_of_one_run(run, held, examine)


# ---- in the task -----------------------------------------------------------------------------


class LossScript:
    """A server that is lost at given moments, and a record of what ran on it."""

    def __init__(self, folder: str, lost: tuple[int, ...], seed: int) -> None:
        self.folder, self.lost, self.seed = folder, lost, seed
        self.tried = 0  # steps, whether the server was there or not
        self.since_saved = self.most_unsaved = 0
        self.began: list[list[int]] = []  # for each start that ran a step: its first step, and the checkpoint there was
        self.starts = 0
        self._newest: str | None = None

    def start(self) -> tuple[Coordinator, Callable, dict[str, Any]]:
        import tensorflow as tf

        self.starts, self.since_saved = self.starts + 1, 0
        if self.starts > MOST_STARTS:
            raise TooOften

        state = {"step": tf.Variable(0, dtype=tf.int64), "weights": tf.Variable(tf.zeros(3))}
        alive, used = [True], [False]

        def before() -> None:
            self.tried += 1
            self._look_for_checkpoint()
            if self.tried in self.lost:
                alive[0] = False
                state["step"].assign(GONE)
                state["weights"].assign([float(GONE)] * 3)

            if not alive[0]:
                if self.tried > 200:
                    raise TooOften
                raise tf.errors.UnavailableError(None, None, "failed to connect to all addresses; Connection refused")
            if not used[0]:
                self.began.append([int(state["step"]), self.saved_step()])

            used[0] = True

        def step() -> None:
            state["step"].assign_add(1)
            state["weights"].assign_add([1.0, 2.0, 3.0])
            self.since_saved += 1
            self.most_unsaved = max(self.most_unsaved, self.since_saved)

        return Coordinator(self.seed, before=before), step, state

    def _look_for_checkpoint(self) -> None:
        import tensorflow as tf

        newest = tf.train.latest_checkpoint(self.folder)
        if newest != self._newest:
            self._newest, self.since_saved = newest, 0

    def saved_step(self) -> int:
        """The step that the newest checkpoint holds; -1 where there is none."""
        import tensorflow as tf

        path = tf.train.latest_checkpoint(self.folder)
        if path is None:
            return -1

        names = [name for name, shape in tf.train.list_variables(path) if "step" in name.split("/") and not shape]
        return int(tf.train.load_variable(path, names[0])) if names else -1


def played(fn: Callable, plans: list[dict], seed: int) -> list[dict]:
    """Recovery from a lost server, played in the task.

    Runs in the task: what came of every plan.
    """
    rows = []
    for plan in plans:
        with tempfile.TemporaryDirectory() as folder:
            if plan["first"]:
                _run(fn, LossScript(folder, (), seed), plan["first"], plan["every"])
            rows.append(_run(fn, LossScript(folder, tuple(plan["lost"]), seed), plan["steps"], plan["every"]))

    return rows


def _run(fn: Callable, play: LossScript, steps: int, every: int) -> dict[str, Any]:
    import tensorflow as tf

    row: dict[str, Any] = {"ended": "returned", "state": None}
    try:
        state = fn(play.start, steps, every, play.folder)
        if isinstance(state, dict):
            row["state"] = {k: v.numpy() for k, v in state.items()}
        else:
            row["state"] = type(state).__name__
    except tf.errors.UnavailableError:
        row["ended"] = "unavailable"
    except TooOften:
        row["ended"] = "endless"

    tried = {"tried": play.tried, "starts": play.starts, "began": play.began, "unsaved": play.most_unsaved}
    return row | tried | {"saved": play.saved_step()}


# ---- in words --------------------------------------------------------------------------------


def _wrong(row: dict, plan: dict) -> Complaint:
    if row["ended"] == "unavailable":
        return "the server was lost, and UnavailableError came through: catch it round join, then start() again"
    if row["ended"] == "endless":
        return (
            f"{count(row['starts'] - 1, 'start')}, and no end. After a loss, take all three that the new start() returns: the "
            f"old coordinator, step and state belong to a server that is gone."
        )

    state = row["state"]
    if not has_keys(state, "step"):
        came = f"a {state}"
        if state in (None, "NoneType"):
            came = NOTHING
        return f"expected the state, as start() gave it, got {came}"

    return _wrong_beginning(row) or _wrong_end(row, plan, int(state["step"])) or _wrong_checkpoints(row, plan)


def _wrong_beginning(row: dict) -> Complaint:
    for first, saved in row["began"]:
        if saved > 0 and first == 0:
            return (
                f"training began at step 0 though the folder holds a checkpoint of step {saved}. After every start(), restore "
                f"the newest one: the variables are new, and 0."
            )
        if GONE in (first, saved):
            return "a checkpoint was written after the server was lost: save after a join that came to its end, and then only"

    return None


def _wrong_end(row: dict, plan: dict, step: int) -> Complaint:
    if step == plan["steps"]:
        return None

    told = f'expected state["step"] to be {plan["steps"]} at the end, got {step}. '
    if step == GONE:
        return told + "That state was lost with its server."
    if step > plan["steps"] and (plan["first"] or plan["lost"]):
        return f"{told}Steps that a checkpoint holds are done: schedule min(every, what is left)."
    if step > plan["steps"]:
        return f"{told}The last round may be shorter: schedule min(every, what is left)."
    if plan["lost"]:
        return told + 'Steps since the last checkpoint are lost. Go by state["step"], not by a number of your own.'
    return told + "Is the last, shorter round left out?"


def _wrong_checkpoints(row: dict, plan: dict) -> Complaint:
    if row["unsaved"] > plan["every"]:
        return (
            f"{row['unsaved']} steps ran without a checkpoint between them, every={plan['every']}: schedule no more than "
            f"that, join, save."
        )
    if row["saved"] != plan["steps"]:
        last = f"it holds step {row['saved']}"
        if row["saved"] < 0:
            last = "there is none"
        return (
            f"the newest checkpoint at the end: expected it to hold step {plan['steps']}, {last}. Steps have run when join "
            f"returns: save after it."
        )
    return None
