"""Orders of actions for the stages of a pipeline, drawn among those that do not deadlock.

`worldsize.formulas.schedules` makes the schedules that have a name.
"""

from itertools import product

import numpy as np

from worldsize.checks.kit.draws import drawn_until
from worldsize.formulas.pipeline import BACKWARD, FORWARD, Action, needed

EAGER, FILLED, REVERSED, SHUFFLED = "eager", "filled", "reversed", "shuffled"  # `drawn_orders` explains them

Schedules = list[list[Action]]


def drawn_orders(ranks: int, micro_batches: int, way: str, generator: np.random.Generator) -> Schedules:
    """Draw the order of each rank's actions.

    EAGER: everything runs as soon as it can, the first rank's forwards and then the last rank's backwards before all
    else. FILLED: all forwards first. REVERSED: the same, with backwards from the last micro-batch to the first.
    SHUFFLED: forwards and backwards each have their own random order, and only the first rank's forwards go before the
    rest.
    """
    micros = range(micro_batches)
    forwards, backwards = [(FORWARD, k) for k in micros], [(BACKWARD, k) for k in micros]
    if way in (FILLED, REVERSED):
        return [forwards + (backwards[::-1] if way == REVERSED else backwards)] * ranks
    if way == EAGER:
        return _one_by_one(ranks, forwards, backwards, generator, eager=True)

    def draw() -> tuple[list[Action], Schedules]:
        forwards, backwards = ([(name, k) for k in generator.permutation(micros).tolist()] for name in (FORWARD, BACKWARD))
        return forwards, _one_by_one(ranks, forwards, backwards, generator, eager=False)

    def tells(drawn: tuple[list[Action], Schedules]) -> bool:
        """Return whether a stack, a queue and a sort of the micro-batches fail on every rank's order."""
        forwards, orders = drawn
        return forwards != sorted(forwards) and all(map(_takes_one_between, orders))

    return drawn_until(tells, draw, "run_stage")[1]


def _takes_one_between(order: list[Action]) -> bool:
    """Return whether an order's backward takes neither the oldest, the newest, nor the lowest-numbered micro-batch in flight."""
    held: list[int] = []
    for way, k in order:
        if way == FORWARD:
            held.append(k)
            continue
        if k not in (held[0], held[-1], min(held)):
            return True
        held.remove(k)
    return False


def _one_by_one(
    ranks: int, forwards: list[Action], backwards: list[Action], generator: np.random.Generator, eager: bool
) -> Schedules:
    """Draw one action after the other among all that are ready.

    The first rank's forwards come first; if `eager`, the last rank's backwards come next.
    """
    orders: Schedules = [[] for _ in range(ranks)]
    over: set[tuple[int, Action]] = set()
    while len(over) < 2 * ranks * len(forwards):
        ready = []
        for rank, way in product(range(ranks), (forwards, backwards)):
            left = [action for action in way if (rank, action) not in over]
            if left and over.issuperset(needed(rank, left[0], ranks)):
                ready.append((rank, left[0]))

        for first in ((0, FORWARD), (ranks - 1, BACKWARD))[: 1 + eager]:
            found = [(rank, action) for rank, action in ready if (rank, action[0]) == first]
            if found:
                ready = found
                break

        rank, action = ready[int(generator.integers(len(ready)))]
        orders[rank].append(action)
        over.add((rank, action))

    return orders
