"""A rank's clock in place of the machine's: `time.sleep` advances it, `time.monotonic` and `time.perf_counter` read it."""

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
    names = {id(way): name for name, way in real.items()}

    # (names of a cell, key there, name in `time`) for each clock that the function's cells have under their own name
    named = {}
    for function in (fn, *reachable(fn).values()):
        place = getattr(function, "__globals__", {})
        if place.get("__name__") == "time":
            continue
        for key, value in place.items():
            if id(value) in names:
                named[id(place), key] = (place, key, names[id(value)])

    with replaced_in_turns(world, ways):
        try:
            for cells_names, key, name in named.values():
                cells_names[key] = getattr(time, name)
            yield
        finally:
            for cells_names, key, name in named.values():
                cells_names[key] = real[name]
