"""Check lab 01's memory estimate against the bytes of real arrays of the same shapes.

The arrays are NumPy broadcasts of a single number, so a model of billions is measured without the memory. Left out: a
framework's other allocations (caches, message buffers).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, first_named, lone_number, number
from worldsize.checks.verdict import UNEXAMINED, Complaint

WEIGHTS = "weights and gradients"
OPTIMIZER = "the optimizer's state"
ACTIVATIONS = "activations"
PARTS = {"weights": WEIGHTS, "gradients": WEIGHTS, "optimizer": OPTIMIZER, "activations": ACTIVATIONS}
KINDS = {1: "int8", 2: "float16", 4: "float32", 8: "int64"}
FLOAT32, ADAM, MIXED, MIXED_ADAM = 4, 8, 2, 12

WHOLE = 1e-12  # bytes are whole numbers, which a float holds exactly

Shapes = list[tuple[int, ...]]
Saved = list[tuple[tuple[int, ...], int]]


@exercise({WEIGHTS: 0.25, OPTIMIZER: 0.25, ACTIVATIONS: 0.5})
def training_bytes(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check an estimate of the memory that training takes.

    `training_bytes(weights, saved, batch, weight_bytes=4, optimizer_bytes=8)` returns bytes by part, as a dict.
    """
    a, b, c = (arena.draws.randint(11, 99) for _ in range(3))
    layer: Shapes = [(a, b), (a,)]

    yield _case(arena, fn, "a linear layer", layer, [((b,), 4), ((a,), 4)], arena.draws.randint(5, 9), ())
    cnn: Shapes = [(c, 1, 3, 3), (c,), (10, c, 7), (), (10,)]
    yield _case(arena, fn, "a small CNN", cnn, [((1, 28, 28), 4), ((c, 14, 14), 8), ((), 8), ((10,), 4)], 32, ())
    yield _case(arena, fn, "mixed precision", layer, [((b,), 2), ((a, 3), 1)], 1, (MIXED, MIXED_ADAM))
    yield _case(arena, fn, "plain SGD", layer, [((b, a), 4)], 3, (FLOAT32, 0))

    width = 4 * arena.draws.randint(1000, 1050) + 1  # no float32 equals the number of weights
    large: Shapes = [(width, width), (width, 4 * width), (width,)] * 36
    yield _case(arena, fn, "billions of weights", large, [((2048, 4096), 2)] * 36, 4, (MIXED, MIXED_ADAM))


def _case(arena: Arena, fn: Callable, name: str, weights: Shapes, saved: Saved, batch: int, widths: tuple) -> Case:
    weight_bytes, optimizer_bytes = widths or (FLOAT32, ADAM)
    of_weights = sum(_measured(shape, weight_bytes) for shape in weights)
    measured = {
        "weights": of_weights,
        "gradients": of_weights,
        "optimizer": sum(_measured((*shape, optimizer_bytes), 1) for shape in weights),
        "activations": sum(_measured((batch, *shape), width) for shape, width in saved),
    }
    mistakes = {part: _mistakes(part, measured, weights, saved, batch, weight_bytes, optimizer_bytes) for part in PARTS}

    if len(weights) <= 9:
        name += f", weights {weights}, saved {saved}, batch {batch}"
    if widths:
        name += f", weight_bytes={weight_bytes}, optimizer_bytes={optimizer_bytes}"
    run = partial(arena.call, fn, weights, saved, batch, *widths)
    return Case(name, run, partial(_examine, measured=measured, mistakes=mistakes, weights=weights, saved=saved))


def _measured(shape: Sequence[int], width: int) -> int:
    """Return the memory, in bytes, of an array of this shape; all its elements share one number's memory."""
    return np.broadcast_to(np.zeros((), KINDS[width]), tuple(shape)).nbytes


def _examine(
    ended: ArenaResult, measured: dict[str, int], mistakes: dict[str, dict], weights: Shapes, saved: Saved
) -> dict[str, Complaint]:
    got = ended.returned[0]
    if not isinstance(got, dict):
        came = number(got)
        if not isinstance(came, str):
            came = f"got the number {came:g}"
        names = ", ".join(f'"{part}"' for part in PARTS)
        return {**dict.fromkeys(training_bytes.points, UNEXAMINED), WEIGHTS: f"expected a dict with {names}, {came}"}

    complaints: dict[str, Complaint] = dict.fromkeys(training_bytes.points)
    for part, expected in measured.items():
        if not complaints[PARTS[part]]:
            complaints[PARTS[part]] = _wrong_part(part, got, expected, mistakes[part])

    extra = [part for part in got if part not in PARTS]
    if extra and not complaints[WEIGHTS]:
        names = ", ".join(map(repr, extra))
        complaints[WEIGHTS] = f"the dict also has {names}; the lab adds up all its entries: return only the four parts"

    complaints[WEIGHTS] = complaints[WEIGHTS] or changed(ended.inputs[0], weights, "weights")
    complaints[ACTIVATIONS] = complaints[ACTIVATIONS] or changed(ended.inputs[1], saved, "saved")
    return complaints


def _wrong_part(part: str, got: dict[str, Any], expected: int, mistakes: dict[str, float]) -> Complaint:
    if part not in got:
        names = ", ".join(map(repr, got)) or "nothing"
        return f'the dict has no "{part}"; it has {names}'

    value = lone_number(got[part])
    if isinstance(value, str):
        return f'"{part}": expected bytes, one number, {value}'
    if close(value, expected, WHOLE):
        return None
    return f'"{part}": arrays of these shapes have {expected:,} bytes, got {value:,.10g}{first_named(value, mistakes, WHOLE)}'


def _mistakes(
    part: str, measured: dict[str, int], weights: Shapes, saved: Saved, batch: int, width: int, kept: int
) -> dict[str, float]:
    """Return {words: the bytes of memory that the slip gives} for this part."""
    count = measured["weights"] // width
    no_scalars = _numbers(filter(None, weights))
    each = batch if part == "activations" else width
    every = {
        "It is 0: has this part been left out?": 0,
        "These are numbers, not bytes: each has some bytes": measured[part] / each,
        "Dimensions were added up; a tensor has as many numbers as their product": sum(map(sum, weights)) * width,
        "A tensor of shape () is one number too": no_scalars * width,
        "Vectors were left out; a bias has numbers too": _numbers(shape for shape in weights if len(shape) > 1) * width,
        "Weights do not grow with the batch": count * width * batch,
        "Dimensions of more than two were left out": _numbers(shape[:2] for shape in weights) * width,
    }

    if part == "optimizer":
        return {
            "optimizer_bytes is already per parameter: do not multiply it by weight_bytes": count * kept * width,
            "Adam's 8 bytes were taken; use optimizer_bytes": count * ADAM,
            "It is as large as the weights; use optimizer_bytes per parameter": count * width,
            "The state does not grow with the batch": count * kept * batch,
            **every,
            "A tensor of shape () is one number too": no_scalars * kept,
        }

    if part == "activations":
        numbers = _numbers(shape for shape, _ in saved)
        return {
            "It is for one example; the step has a whole batch": measured[part] / batch,
            "Every number was counted as 4 bytes; saved says how many each has": numbers * batch * FLOAT32,
            "Every number was counted as weight_bytes; saved says how many each has": numbers * batch * width,
            "The numbers were counted; saved says how many bytes each has": numbers * batch,
            "It is 0: has this part been left out?": 0,
        }

    return {
        "Every weight was counted as 4 bytes; use weight_bytes": count * FLOAT32,
        "Weights and gradients were added up: return an entry for each": 2 * count * width,
        **every,
    }


def _numbers(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(int(np.prod(shape)) for shape in shapes)
