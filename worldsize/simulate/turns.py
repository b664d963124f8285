"""Functions of this process that do something else while a simulated rank has its turn.

`world.py` decides whose turn it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worldsize.simulate.world import World


def turn_in_this_thread(world: World) -> Callable[[], int | None]:
    """Return a function that returns the rank whose turn it is, or None between turns and in every thread but this one.

    Threads of the kernel go on while a rank has its turn: their calls are no rank's.
    """
    ranks_thread = threading.get_ident()
    return lambda: world.current if threading.get_ident() == ranks_thread else None


@contextmanager
def replaced_in_turns(world: World, ways: Mapping[tuple[Any, str], Callable]) -> Iterator[None]:
    """Replace functions, given as (owner, name), while inside: a rank's call becomes `ways[owner, name](rank, *arguments)`.

    Calls between turns and calls of other threads reach the real function.
    """
    turn = turn_in_this_thread(world)
    real = {place: getattr(*place) for place in ways}

    def in_turns(function: Callable, way: Callable) -> Callable:
        def called(*given: Any, **more: Any) -> Any:
            rank = turn()
            return function(*given, **more) if rank is None else way(rank, *given, **more)

        return called

    for (owner, name), way in ways.items():
        setattr(owner, name, in_turns(real[owner, name], way))
    try:
        yield
    finally:
        for (owner, name), function in real.items():
            setattr(owner, name, function)
