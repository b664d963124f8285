"""The grader's arena in simulated time: one sandboxed process with the submission's cells plays all ranks of a case.

A played case shows the effect of other draws and another order of events, and earns nothing: in one process a rank can
read another's data and forge messages. A case that needs real processes raises `NotPlayable`; a process that gives no
result ends in `PlayLost`.
"""

import random

from typing_extensions import override

from worldsize.checks.arena import ArenaResult, ByRank, Trial
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import expect_playable
from worldsize.grade.frames import MAX_BLOB_BYTES, BadFrame
from worldsize.grade.isolation.limits import MOST, Meter
from worldsize.grade.outside.arena import Cells, SandboxArena
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.outside.played_result import arena_result
from worldsize.grade.outside.sandboxed_run import Incident

PLAYING_PROCESS = "the process that plays the ranks"


class PlayLost(Exception):
    """A playing process without a result for the arena; the message says what it did instead."""

    def __init__(self, incident: Incident, message: str) -> None:
        super().__init__(message)
        self.incident = incident


class SimulatedSandboxArena(SandboxArena):
    """An arena that plays the functions that `cells` make, each case in an event order drawn from `orders`."""

    def __init__(
        self, sandbox: Sandbox, meter: Meter, cells: Cells, seed: int, draws: random.Random, orders: random.Random
    ) -> None:
        super().__init__(sandbox, meter, cells, seed, draws)
        self._limit_s = MOST * meter.limits.case_s  # the grader's own limit comes first
        self._orders = orders

    @override
    def run(self, trial: Trial) -> ArenaResult:
        if trial.way == "call":
            return super().run(trial)
        expect_playable(trial)
        if trial.played:
            raise NotPlayable("ranks that the check plays, outside of the sandbox")

        own, shared = {}, []
        for place, value in enumerate(trial.more):
            if isinstance(value, ByRank):
                own[place] = list(value.values)
                shared.append(None)
            else:
                shared.append(value)

        n, link = len(trial.inputs), trial.link
        job = self._job(
            "play", 0, n, [trial.fn, list(trial.inputs), own, *shared], driver=trial.driver,
            link=[link.bandwidth_bytes_per_s, link.latency_s] if link else None,
            interleaving=self._orders.getrandbits(62), limit_s=self._limit_s,
        )  # fmt: skip
        if len(job[1]) > MAX_BLOB_BYTES:
            raise NotPlayable("inputs too large for one process")

        result = self._run([job], alone=PLAYING_PROCESS)
        if result.state != "done":
            raise PlayLost(result.incident or "crashed", result.message)
        try:
            return arena_result(result.values[0].get("played"), n)
        except BadFrame as error:
            raise PlayLost("crashed", f"{PLAYING_PROCESS} reported something else: {error}") from None
