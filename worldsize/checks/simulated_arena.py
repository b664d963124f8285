"""The arena in simulated time: every rank of a case takes its turns in this process, in the natural order or one from a seed.

`SimulatedArena` gives the verdict of real ranks, in milliseconds. It refuses with `NotPlayable` what needs real processes;
`NEEDS_PROCESSES` names the exercises whose checks always do.
"""

from __future__ import annotations

import random
import secrets

from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult, Trial, called
from worldsize.checks.drivers import big_batch
from worldsize.checks.in_one_process import LIMIT_S, NotPlayable, play
from worldsize.simulate.interleaving import Interleaving

KILLED = "a process to kill"
_GROUP, _TENSORFLOW, _THREAD = "a process group", "TensorFlow", "a thread"
_BACKWARD = "a backward that waits for messages, which autograd runs one at a time in a process"
NEEDS_PROCESSES = {
    "average_tower_gradients": _TENSORFLOW, "between_graph": _TENSORFLOW, "mirrored_step": _TENSORFLOW,
    "missing_devices": _TENSORFLOW, "replica_loss": _TENSORFLOW, "score": _TENSORFLOW, "train_through": _TENSORFLOW,
    "tree_sum": _TENSORFLOW, "worker_share": _TENSORFLOW,
    "big_batch_step": _GROUP, "exact_accuracy": _GROUP, "train_ddp": _GROUP,
    "bucketed": _THREAD, "overlapped": _THREAD, "wrap_module": _THREAD,
    "parallel_mlp": _BACKWARD, "sequence_parallel": _BACKWARD,
    "save_atomically": KILLED,
}  # fmt: skip

_BY_WAY = {"saves": KILLED, "group": _GROUP, "tensorflow": _TENSORFLOW}
_BY_DRIVER = {big_batch.stepped: _GROUP}


def expect_playable(trial: Trial) -> None:
    """Raise NotPlayable for a trial that needs real processes."""
    why = _BY_WAY.get(trial.way) or _BY_DRIVER.get(trial.driver)
    if why:
        raise NotPlayable(why)


class SimulatedArena(Arena):
    """An arena that runs a student's function in simulated time. `interleaved` plays each case in another order, drawn from
    `seed`.

    `limit_s` bounds a case, and a plain call, in real seconds. Raises NotPlayable for what needs processes.
    """

    def __init__(self, seed: int | None = None, interleaved: bool = False, limit_s: float = LIMIT_S) -> None:
        self.draws = random.Random(secrets.randbits(62) if seed is None else seed)
        self._orders = random.Random(f"orders {seed}") if interleaved else None
        self._limit_s = limit_s

    @override
    def run(self, trial: Trial) -> ArenaResult:
        if trial.way == "call":
            return called(trial, self._limit_s)
        expect_playable(trial)
        interleaving = Interleaving(self._orders.getrandbits(62)) if self._orders else None
        return play(trial, interleaving, self._limit_s)
