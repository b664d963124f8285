"""Simulated time: `simulate(fn, world_size=1000, link=…)` runs a function over the fabric on as many ranks as you like.

The function is the same that `launch` takes, unedited; seconds are a clock's that only messages and declared work move.
Left out: real processes (`launch`).
"""

from __future__ import annotations

from worldsize.simulate.api import MOST_RANKS, simulate
from worldsize.simulate.run import MOST_MESSAGES
from worldsize.simulate.simulated_run import SimulatedRun
from worldsize.simulate.topology import Nodes

__all__ = ["MOST_MESSAGES", "MOST_RANKS", "Nodes", "SimulatedRun", "simulate"]
