"""Check of lab 07's towers: gradients averaged variable by variable, and the steps that follow.

The function runs as in a tower program, inside a `tf.function` with towers on logical devices; gradients come back as
arrays, each with its variable. The device that averages is not checked.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.towers import drive
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import first_difference, first_slip, same
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

ONE_PAIR_EACH = "a (gradient, variable) for each variable, in their order"
MEAN_GRADIENTS = "the mean of its gradients"
STEPS_TAKEN = "towers step as one device does, but for rounding"
SHAPES = ((3,), (2, 4), (), (2, 2, 3))
DTYPES = ("float32", "float32", "float32", "float64")
MOST_TOWERS = 4
EXACT = 1e-5  # relative to the largest weight; float32 was off by 2e-7 at most after five steps, in 3,000 drawn trainings
STEPS, RATE, FEATURES, ROWS = 5, 0.1, 3, 8


@exercise({ONE_PAIR_EACH: 0.25, MEAN_GRADIENTS: 0.75, STEPS_TAKEN: 0.5}, needs=needs.TENSORFLOW)
def average_tower_gradients(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check towers: `average_tower_gradients(towers)` returns the mean gradient of each variable.

    `towers` has a list of (gradient, variable) for each tower; the result is one such list.
    """
    generator = np.random.default_rng(arena.draws.getrandbits(32))
    cases = [_gradients(generator, n) for n in (1, 2, 3, MOST_TOWERS)]
    x = generator.normal(size=(ROWS * MOST_TOWERS, FEATURES))
    lesson = {
        "x": x, "y": x @ generator.normal(size=FEATURES) + 1, "start": generator.normal(size=FEATURES + 1),
        "towers": MOST_TOWERS, "steps": STEPS, "rate": RATE,
    }  # fmt: skip

    devices = MOST_TOWERS + 1  # CPU:0 holds the driver's variables, CPU:(k + 1) its tower k
    case = Case(
        "gradients of four variables",
        lambda: arena.tensorflow(fn, [cases], lesson, driver=drive, logical_devices=devices),
        lambda ended: _examine(ended, cases, lesson),
        _WAYS_OUT,
    )
    return [case]


def _gradients(generator: np.random.Generator, n: int) -> list[list[np.ndarray]]:
    """Draw towers' gradients, by tower and variable: whole numbers that differ by tower and element."""
    towers = []
    for k in range(n):
        drawn = [generator.integers(1, 100, shape) + 1000.0 * k for shape in SHAPES]
        towers.append([array.astype(dtype) for array, dtype in zip(drawn, DTYPES, strict=True)])
    return towers


def _examine(ended: ArenaResult, cases: list, lesson: dict) -> dict[str, Complaint]:
    got, weights, broke = ended.returned[0]
    given = [(f"{count(len(towers), 'tower')}: ", towers) for towers in cases]
    for (where, _), answer in zip(given, got, strict=True):
        complaint = _wrong_pairs(answer)
        if complaint:
            return {ONE_PAIR_EACH: where + complaint, MEAN_GRADIENTS: UNEXAMINED, STEPS_TAKEN: UNEXAMINED}

    spoilt: Complaint = None
    for (where, _), answer in zip(given, got, strict=True):
        if answer.get("spoilt") and not spoilt:
            spoilt = f"{where}{SPOILT}"

    for (where, towers), answer in zip(given, got, strict=True):
        complaint = _wrong_mean(answer, towers)
        if complaint:
            return {ONE_PAIR_EACH: spoilt, MEAN_GRADIENTS: where + complaint, STEPS_TAKEN: UNEXAMINED}

    return {ONE_PAIR_EACH: spoilt, MEAN_GRADIENTS: None, STEPS_TAKEN: _wrong_steps(weights, broke, lesson)}


SPOILT = "the lists of the towers were changed in place: the caller still needs them unchanged. Work on copies."
_BY_VARIABLE = "Are these the gradients of one variable? zip(*towers) groups them by variable."
_WAYS_OUT = {
    "has no attribute 'numpy'": "The function is traced into a graph, which has no values yet: use TensorFlow's operations.",
    "don't all match": _BY_VARIABLE,
    "Shapes of all inputs must match": _BY_VARIABLE,
}


def _wrong_pairs(answer: Any) -> Complaint:
    if isinstance(answer, str):
        return answer

    order, wanted = list(answer["variables"]), list(range(len(SHAPES)))
    if order == wanted:
        return None
    if -1 in order:
        return f"row {order.index(-1)}: the gradient's partner is not one of the variables: pass on the tower's own"
    if len(order) != len(wanted):
        why = "the towers share the variables" if len(order) > len(wanted) else "names do not tell variables apart, places do"
        return f"expected {len(wanted)} pairs, one for each variable, got {len(order)}: {why}"
    return f"expected the variables in the order {wanted}, got {order}"


def _wrong_mean(answer: dict, towers: Sequence[Sequence[np.ndarray]]) -> Complaint:
    for k, got in enumerate(answer["gradients"]):
        own = [tower[k] for tower in towers]
        mean = np.mean(own, axis=0, dtype="float64").astype(own[0].dtype)
        complaint = first_difference(got, mean, None, "the mean over the towers")
        if complaint:
            return f"variable {k}: {complaint}. {_mistake(got, own)}".rstrip()

    return None


def _mistake(got: np.ndarray, own: Sequence[np.ndarray]) -> str:
    n = len(own)
    if got.dtype != own[0].dtype:
        return "A gradient keeps the dtype of its variable."

    halves = own[0]
    for gradient in own[1:]:
        halves = (halves + gradient) / 2

    slips = {
        "This is the sum of the gradients: divide by the number of towers.": sum(own),
        "This is tower 0's own gradient: the others count too.": own[0],
        "This is the last tower's own gradient: each replaced the one before.": own[-1],
        "All numbers were averaged into one: average over the towers alone, which is axis 0 after tf.stack.": np.mean(own),
        "The towers were joined end to end: tf.stack them, along a new first axis.": np.concatenate(
            [np.atleast_1d(g) for g in own]
        ),
        "Averaged two by two: so the last tower counts half, and the first hardly at all.": halves,
        "Divided by the number of variables, not of towers.": sum(own) / len(SHAPES),
        "Divided twice.": sum(own) / n**2,
        "This is the median over the towers: an outlier is part of the mean.": np.median(own, axis=0),
        "This is the largest of the towers' gradients: every tower counts.": np.max(own, axis=0),
        "Divided by 2, whatever the number of towers.": sum(own) / 2,
        "Divided by one tower too few.": sum(own) / max(1, n - 1),
    }
    return first_slip(lambda given: same(got, np.asarray(given, own[0].dtype)), slips)


def _wrong_steps(weights: Any, broke: str, lesson: dict) -> Complaint:
    where = f"a training with {MOST_TOWERS} towers"
    if broke:
        return f"{where} broke off: {broke}"

    x, y, line = lesson["x"], lesson["y"], lesson["start"].astype("float64")
    for step in range(STEPS):
        error = x @ line[:-1] + line[-1] - y
        line = line - RATE * 2 * np.array([*(x.T @ error / len(y)), error.mean()])
        apart = np.abs(weights[step] - line).max()
        if not apart <= EXACT * max(1.0, np.abs(line).max()):
            return f"{where}, step {step}: a weight differs by {apart:.1e} from the weight on one device with the whole batch"

    return None
