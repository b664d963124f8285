"""The arena in simulated time: every rank of a case takes its turns in this process, in the natural order or one from a seed.

`SimulatedArena` gives the verdict of real ranks, in milliseconds. It refuses with `NotPlayable` what needs real processes;
`NEEDS_PROCESSES` names the exercises whose checks always do.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from worldsize.checks.arena import NOBODY, ArenaResult, PlayedRanks, called
from worldsize.checks.drivers import big_batch
from worldsize.checks.in_one_process import LIMIT_S, NotPlayable, PlayedCase, play
from worldsize.engines.cluster_spec import Cluster
from worldsize.links import Link
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

NEEDS = {big_batch.stepped: _GROUP}  # by driver


class SimulatedArena:
    """An arena that runs a student's function in simulated time. `interleaved` plays each case in another order, drawn from
    `seed`.

    `limit_s` bounds a case, and a plain call, in real seconds. Raises NotPlayable for what needs processes.
    """

    def __init__(self, seed: int | None = None, interleaved: bool = False, limit_s: float = LIMIT_S) -> None:
        self.draws = random.Random(secrets.randbits(62) if seed is None else seed)
        self._orders = random.Random(f"orders {seed}") if interleaved else None
        self._limit_s = limit_s

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        return called(fn, args, self._limit_s)

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Link | None = None, played: PlayedRanks = NOBODY,
        driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        if driver in NEEDS:
            raise NotPlayable(NEEDS[driver])
        interleaving = Interleaving(self._orders.getrandbits(62)) if self._orders else None
        return play(PlayedCase(fn, inputs, more, link, played, driver, interleaving, self._limit_s))

    def saves(self, fn: Callable, scenarios: Sequence[dict[str, Any]]) -> ArenaResult:
        raise NotPlayable(KILLED)

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any, driver: Callable | None = None) -> ArenaResult:
        raise NotPlayable(_GROUP)

    def tensorflow(
        self, fn: Callable | None, inputs: Sequence[Any], *more: Any, logical_devices: int = 1, cluster: Cluster | None = None,
        servers: Iterable[str] | None = None, legacy_keras: bool = False, driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        raise NotPlayable(_TENSORFLOW)
