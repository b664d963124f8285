"""The arena in simulated time: every rank of a case takes its turns in this process, in the natural order or one from a seed.

`SimulatedArena` gives the verdict of real ranks, in milliseconds. It refuses with `NotPlayable` what needs real processes; an
exercise whose check always does says so in its declaration (`needs`).
"""

import random
import secrets

from typing_extensions import override

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult, Trial, called
from worldsize.checks.drivers import big_batch
from worldsize.checks.in_one_process import LIMIT_S, NotPlayable, play
from worldsize.simulate.interleaving import Interleaving

_BY_WAY = {"saves": needs.KILLED, "group": needs.GROUP, "tensorflow": needs.TENSORFLOW}
_BY_DRIVER = {big_batch.stepped: needs.GROUP}


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
