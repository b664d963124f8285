"""A rank's clock in place of the machine's: `time.sleep` advances it, `time.monotonic` and `time.perf_counter` read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worldsize.engines.payload import reachable
from worldsize.simulate.turns import replaced_in_turns
from worldsize.simulate.world import World


@contextmanager
def virtual_clock(world: World, fn: Callable) -> Iterator[None]:
    """Give the rank that has its turn its own clock while inside, also where `fn`'s cells say `from time import sleep`."""
    ways = {
        (time, "sleep"): lambda rank, seconds, /: world.pass_time(rank, seconds),
        (time, "monotonic"): world.now,
        (time, "perf_counter"): world.now,
    }
    real = {name: getattr(time, name) for _, name in ways}
    named = _named_clocks(fn, real)

    with replaced_in_turns(world, ways):
        try:
            for cells_names, key, name in named:
                cells_names[key] = getattr(time, name)
            yield
        finally:
            for cells_names, key, name in named:
                cells_names[key] = real[name]


def _named_clocks(fn: Callable, real: dict[str, Callable]) -> list[tuple[dict, str, str]]:
    """Return (names of a cell, key there, name in `time`) for each clock that the function's cells have under their own name."""
    names = {id(way): name for name, way in real.items()}
    places = [getattr(fn, "__globals__", {})]
    places += [f.__globals__ for f in reachable(fn).values() if hasattr(f, "__globals__")]

    found = {}
    for place in places:
        if place.get("__name__") == "time":
            continue
        for key, value in place.items():
            if id(value) in names:
                found[id(place), key] = (place, key, names[id(value)])
    return list(found.values())
