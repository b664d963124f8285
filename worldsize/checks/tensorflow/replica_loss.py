"""Check of a replica's loss: the values of all replicas must add up to the mean over all examples, plus the penalty.

Replicas are logical CPUs under a real MirroredStrategy; shares of a batch differ in length, and one is empty. Lab 04
shows why means of means are wrong; `mirrored_step.py` checks gradients.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.mirrored_strategy import losses_of_replicas
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import close, first_named, is_row, number, size
from worldsize.checks.tensorflow.mirrored_step import TOLERANCE
from worldsize.checks.verdict import Complaint
from worldsize.units import count as counted

EVENLY_SHARED = "equal shares: adds up to the mean over all"
UNEVENLY_SHARED = "unequal shares, and one that is empty"
PENALTY_ONCE = "the penalty counts once, with unequal shares too"
# a penalty is a tensor, or a Python number where a model has none
EVEN, UNEVEN = ((4, 4), (3, 3, 3), (5,)), ((4, 3), (3, 2, 1), (2, 1, 0))
PENALIZED = ((4, 4), (3, 2, 1), (5,))


@exercise({EVENLY_SHARED: 0.5, UNEVENLY_SHARED: 0.5, PENALTY_ONCE: 0.5}, needs=needs.TENSORFLOW)
def replica_loss(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check the loss of one replica, scaled for the global batch.

    `replica_loss(losses, penalty, global_batch)`: the values of all replicas add up to mean + penalty.
    """
    generator = np.random.default_rng(arena.draws.getrandbits(64))
    plans = [(EVENLY_SHARED, shares, 0.0) for shares in EVEN] + [(UNEVENLY_SHARED, shares, 0.0) for shares in UNEVEN]
    plans += [(PENALTY_ONCE, shares, float(np.round(generator.uniform(2, 9), 2))) for shares in PENALIZED]

    cases = []
    for _, shares, penalty in plans:
        losses = [np.round(generator.uniform(1, 9, count), 2).astype("float32") for count in shares]
        cases.append({"losses": losses, "penalty": penalty, "plain": not penalty})

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        found: dict[str, Complaint] = {}
        for (held, *_), case, got in zip(plans, cases, ended.returned[0], strict=True):
            found[held] = found.get(held) or _wrong_loss(case, got)
        return found

    run = Case(
        "on replicas", lambda: arena.tensorflow(fn, [cases], logical_devices=3, driver=losses_of_replicas), examine
    )
    return [run]


def _wrong_loss(case: dict, got: Any) -> Complaint:
    shares, penalty = case["losses"], case["penalty"]
    n, counts = len(shares), list(map(len, shares))
    name = f"{counted(n, 'replica')} with {', '.join(map(str, counts))} examples: "
    if isinstance(got, dict):
        return name + got["raised"]

    values = [f"got {size(value)} numbers" if is_row(value) else number(value) for value in got]
    for replica, value in enumerate(values):
        if isinstance(value, str):
            return f"{name}replica {replica}: expected one number, {value}"
        if np.isnan(value):
            return f"{name}replica {replica} returned NaN: the mean of no examples is 0/0. Add up, and divide by global_batch."

    count, total = sum(counts), float(np.concatenate(shares).sum())
    added, expected = sum(values), total / count + penalty
    if close(added, expected, TOLERANCE):
        return None

    means = sum(float(share.sum()) / max(1, len(share)) for share in shares)  # an empty share adds 0
    mistakes = {
        "This is the mean of each replica added up: divide by all examples of the step, global_batch, not by a replica's own": (
            means + penalty
        ),
        "This is divided twice: by the replica's own count and by global_batch": means / count + penalty,
        "This is divided by global_batch and by the replicas, too: gradients are added up, not averaged": (
            total / count / n + penalty
        ),
        "This is divided by global_batch with //, which cuts: divide with /": (
            sum(float(share.sum()) // count for share in shares) + penalty
        ),
        "The penalty is multiplied by the number of replicas: divide by it": total / count + n**2 * penalty,
        "This is the sum of all losses: divide by global_batch": total + penalty,
        "This is the mean of the replicas' means: wrong where shares differ. Divide the sum by global_batch": (
            means / n + penalty
        ),
        "Each replica adds the whole penalty, so it counts once for each: divide it by the number of replicas": (
            total / count + n * penalty
        ),
        "The penalty is divided by the examples, but the model has one: divide it by the number of replicas": (
            total / count + n * penalty / count
        ),
        "The penalty is divided by 2, whatever the number of replicas": total / count + n * penalty / 2,
        "The penalty is left out": total / count,
    }
    if n > 1 and all(close(value, total / count + penalty / n, TOLERANCE) for value in values):
        return f"{name}every replica returns the whole mean, so it counts once for each: return this replica's share of it"

    complaint = f"{name}the replicas' losses add up to {added:.6g}, expected {expected:.6g}"

    return complaint + first_named(added, mistakes, TOLERANCE)
