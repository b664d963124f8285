"""Run a student's function on towers on logical devices, inside a `tf.function`.

Gradients come back as arrays, each with the number of its variable.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def drive(fn: Callable, cases: list, lesson: dict) -> tuple[list, Any, str]:
    """Drive towers in the task: return `fn`'s result for each case, and the weights after each step of a training with it.

    The third value tells why that training broke off, empty if it did not.
    """
    got = [_told(fn, towers) for towers in cases]
    if any(isinstance(told, str) for told in got):
        return got, None, ""

    try:
        return got, _train(fn, lesson), ""
    except Exception as error:
        return got, None, f"{type(error).__name__}: {error}"


def _told(fn: Callable, towers: list) -> Any:
    import tensorflow as tf

    variables = [tf.Variable(np.zeros_like(gradient)) for gradient in towers[0]]
    outcomes: list[Any] = []
    spoilt: list[bool] = []

    def step() -> list:
        given = [list(zip(map(tf.constant, own), variables, strict=True)) for own in towers]
        before = _ids(given)
        complaint, rows = _rows(fn(given))
        spoilt.append(_ids(given) != before)
        if complaint:
            outcomes.append(complaint)
            return []

        places = {id(variable): k for k, variable in enumerate(variables)}
        outcomes.append([places.get(id(variable), -1) for _, variable in rows])  # -1: none of the variables
        return [tf.convert_to_tensor(gradient) for gradient, _ in rows]

    tensors = tf.function(step, autograph=False)()
    if isinstance(outcomes[-1], str):
        return outcomes[-1]
    gradients = [np.asarray(tensor) for tensor in tensors]
    return {"variables": outcomes[-1], "gradients": gradients, "spoilt": any(spoilt)}


def _ids(towers: list) -> list[list[int]]:
    """Return which pairs the lists of the towers hold."""
    return [[id(pair) for pair in own] for own in towers]


def _rows(got: Any) -> tuple[str, list]:
    """Return ("", the towers' result as a list of pairs), or (a complaint, []) if it is anything else."""
    if got is None:
        return "expected a list of (gradient, variable), got None (does the function return it?)", []

    try:
        rows = [tuple(row) for row in got]
    except Exception:
        came = f"a {type(got).__name__}"
        if isinstance(got, (list, tuple)):
            came = "a list of tensors: where are the variables?"
        return f"expected a list of (gradient, variable), got {came}", []

    for k, row in enumerate(rows):
        if len(row) != 2:
            return f"row {k}: expected (gradient, variable), got {len(row)} values", []

    return "", rows


def _train(fn: Callable, lesson: dict) -> np.ndarray:
    """Train a linear regression by towers of equal parts. Return the weights, [steps, weights]."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        slope, offset = tf.Variable(lesson["start"][:-1], dtype="float32"), tf.Variable(lesson["start"][-1], dtype="float32")

    parts = [tf.split(tf.constant(lesson[name], tf.float32), lesson["towers"]) for name in "xy"]

    def step() -> None:
        towers = []
        for k, (x, y) in enumerate(zip(*parts, strict=True)):
            with tf.device(f"CPU:{k + 1}"):  # CPU:0 holds the variables
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((tf.linalg.matvec(x, slope) + offset - y) ** 2)
                towers.append(list(zip(tape.gradient(loss, [slope, offset]), [slope, offset], strict=True)))

        for gradient, variable in fn(towers):
            variable.assign_sub(lesson["rate"] * gradient)

    take, history = tf.function(step, autograph=False), []
    for _ in range(lesson["steps"]):
        take()
        history.append([*slope.numpy(), offset.numpy()])

    return np.array(history)
