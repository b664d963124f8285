"""Simulated time: `simulate(fn, world_size=1000, link=…)` runs a function over the fabric on any number of ranks.

The function is the one that `launch` takes, unedited; only messages and declared work advance the clock. The public names are
imported on first use, because a check's cases need only `world`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from worldsize.links import Nodes

if TYPE_CHECKING:
    from worldsize.simulate.simulate_function import MOST_RANKS, simulate
    from worldsize.simulate.simulated_run import SimulatedRun
    from worldsize.simulate.simulation import MOST_MESSAGES

__all__ = ["MOST_MESSAGES", "MOST_RANKS", "Nodes", "SimulatedRun", "simulate"]

# imported on first use: a check's cases use the world alone, and a fresh process should not wait for the rest
_FACE = {
    "MOST_MESSAGES": "simulation", "MOST_RANKS": "simulate_function", "SimulatedRun": "simulated_run",
    "simulate": "simulate_function",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FACE[name]}"), name)
