"""The check of a training step on the replicas of a mirrored model.

Replicas are logical CPUs under a real MirroredStrategy, in one process; shares of a batch differ in length, one is empty.
Weights are held against NumPy's: softmax regression with an L2 penalty, on all examples at once. Left out: speed.
The rule for the loss is that of TensorFlow's guide "Custom training with tf.distribute.Strategy".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, first_named, number
from worldsize.checks.tensorflow.devices import answer
from worldsize.checks.verdict import Verdict

STEP = {
    "equal shares: weights as on one device": 1.0,
    "unequal shares: weights as on one device": 0.5,
    "it returns the mean loss of the step": 0.5,
}
STEPS = (((4, 4), (4, 4)), ((3, 3), (3, 3)), ((4, 3), (2, 1)), ((2, 1, 0), (2, 1, 0)))
FEATURES, CLASSES, RATE, L2 = 5, 3, 0.5, 0.25
TOLERANCE = 1e-5


def mirrored_step(arena: Arena, fn: Callable) -> Verdict:
    """Check of a training step on a mirrored model's replicas, which returns the mean loss with the penalties.

    The function is `mirrored_step(strategy, model, optimizer, x, y)`; it is called for all replicas at once.
    """
    generator = np.random.default_rng(arena.draws.getrandbits(64))
    cases = [
        {
            "start": generator.normal(size=(FEATURES, CLASSES)).astype("float32"),
            "steps": [
                [(generator.normal(size=(k, FEATURES)).astype("float32"), generator.integers(0, CLASSES, k)) for k in shares]
                for shares in steps
            ],
            "traced": index % 2 == 1,
        }
        for index, steps in enumerate(STEPS)
    ]

    def examine(ended: ArenaResult) -> dict[str, str | None]:
        even, uneven, loss = STEP
        found: dict[str, str | None] = {even: None, uneven: None, loss: None}
        for index, (case, got) in enumerate(zip(cases, ended.returned[0], strict=True)):
            what = even if index < 2 else uneven
            wrong = _wrong_step(case, got)
            found[what] = found[what] or wrong[0]
            found[loss] = found[loss] or wrong[1]
        return found

    run = Case("training", lambda: arena.tensorflow(fn, [cases], logical_devices=3, driver=trained), examine)
    return judge("mirrored_step", STEP, [run])


def trained(fn: Callable, cases: list[dict]) -> list[Any]:
    """A mirrored model trained in the task: for each case the weights after each step on every replica.

    What each step returned comes with them; an error comes as words.
    """
    return [answer(lambda case: _train(fn, case), case) for case in cases]


def _train(fn: Callable, case: dict) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    strategy = on_cpus(len(case["steps"][0]))
    with strategy.scope():
        layer = keras.layers.Dense(CLASSES, use_bias=False, kernel_regularizer=keras.regularizers.L2(L2))
        model = keras.Sequential([keras.Input((FEATURES,)), layer])
        optimizer = keras.optimizers.SGD(RATE)
        optimizer.build(model.trainable_variables)
    model.set_weights([case["start"]])

    def step(x: Any, y: Any) -> Any:
        return fn(strategy, model, optimizer, x, y)

    run = tf.function(step, autograph=False) if case["traced"] else step
    weights, losses = [], []
    for shares in case["steps"]:
        x, y = (per_replica(strategy, [share[i] for share in shares]) for i in (0, 1))
        losses.append(run(x, y))
        kernel = model.trainable_variables[0].value
        weights.append([copy.numpy() for copy in getattr(kernel, "values", (kernel,))])
    return {"weights": weights, "losses": losses}


def on_cpus(n: int) -> Any:
    """For the check of a mirrored step: MirroredStrategy on n replicas, each on a logical CPU.

    Gradients are added up on one device: the default's collectives would not let a process have a second strategy.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(n)], tf.distribute.ReductionToOneDevice())


def per_replica(strategy: Any, shares: Sequence[np.ndarray]) -> Any:
    """For the check of a mirrored step: a value for each replica, as a distributed data set gives it."""
    import tensorflow as tf

    def share(context: Any) -> Any:
        return tf.constant(shares[context.replica_id_in_sync_group])

    return strategy.experimental_distribute_values_from_function(share)


def _wrong_step(case: dict, got: Any) -> tuple[str | None, str | None]:
    """What is wrong about the weights, and about what was returned."""
    how = "in a tf.function" if case["traced"] else "eager"
    n = len(case["steps"][0])
    if isinstance(got, dict) and "raised" in got:
        return f"{n} replicas, {how}: {got['raised']}", None
    weights = case["start"].astype(float)
    for index, shares in enumerate(case["steps"]):
        counts = ", ".join(str(len(y)) for _, y in shares)
        name = f"{n} replicas with {counts} examples, {how}, step {index}: "
        slopes, losses = zip(*(_softmax(weights, *share) for share in shares), strict=True)
        total = sum(len(y) for _, y in shares)
        mean, penalty = sum(slopes) / total, 2 * L2 * weights
        loss, cost = sum(losses) / total, L2 * float((weights**2).sum())
        complaint = _wrong_copies(got["weights"][index], weights, mean, penalty, slopes, shares)
        returned = _wrong_return(got["losses"][index], loss, cost, n)
        if complaint or returned:
            return complaint and name + complaint, returned and name + returned
        weights = weights - RATE * (mean + penalty)
    return None, None


def _softmax(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """The gradient and the loss, added up over a replica's examples."""
    logits = x.astype(float) @ weights
    logits -= logits.max(1, keepdims=True, initial=-np.inf) if len(y) else 0
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    picked = chances[np.arange(len(y)), y]
    chances[np.arange(len(y)), y] -= 1
    return x.astype(float).T @ chances, float(-np.log(picked).sum())


def _wrong_copies(
    copies: Sequence[np.ndarray],
    before: np.ndarray,
    mean: np.ndarray,
    penalty: np.ndarray,
    slopes: Sequence,
    shares: Sequence,
) -> str | None:
    expected = before - RATE * (mean + penalty)
    wrong = [k for k, copy in enumerate(copies) if not _same(copy, expected)]
    if not wrong:
        return None
    k, n, total = wrong[0], len(shares), sum(len(y) for _, y in shares)
    step = (before - copies[k]) / RATE
    means = sum(slope / max(1, len(y)) for slope, (_, y) in zip(slopes, shares, strict=True))
    where = np.unravel_index(int(np.argmax(np.abs(copies[k] - expected))), expected.shape)
    complaint = (
        f"replica {k}, weight {tuple(map(int, where))}: expected {expected[where]:.6g}, as on one device, "
        f"got {copies[k][where]:.6g}. "
    )
    if np.isnan(copies[k]).any():
        return (
            complaint + "A replica without examples has a mean of 0/0: add up, and divide by the examples of all replicas."
        )
    signatures = [
        (0 * mean, "The weights have not moved: are the gradients applied?"),
        (n * (mean + penalty), f"The step is {n} times the mean gradient: {_TIMES}"),
        (mean + n * penalty, "Each replica adds the whole penalty: divide it by the number of replicas."),
        (n * mean + penalty, f"The step is {n} times the mean gradient: {_TIMES}"),
        (means + n * penalty, f"The step is {n} times a mean: {_TIMES}"),
        (mean, "The model's own penalties, model.losses, are left out."),
        (total * mean + penalty, "The gradients of all examples were added up, and nobody divided."),
        (total * mean + n * penalty, "The gradients of all examples were added up, and nobody divided."),
        ((mean + penalty) / n, "The step is too short: divided by the number of replicas, too."),
        (mean / n + penalty, "The step is too short: divided by the number of replicas, too."),
        (means / n + penalty, _OF_MEANS),
        (means + penalty, f"The step is {n} times a mean: {_TIMES}"),
    ]
    named = next((said for value, said in signatures if n > 1 and _same(step, value)), "")
    if not named and len({len(y) for _, y in shares}) > 1:
        named = "Equal shares are right: is global_batch the number of examples that this step really has?"
    return complaint + (named or "Is the gradient that of the loss, and is every replica's in it?")


_TIMES = (
    "either each replica takes the mean over its own examples, or gradients were added up before apply_gradients, which "
    "adds them up itself."
)
_OF_MEANS = (
    "This is the mean of the replicas' means. Shares differ: divide by the number of examples that all replicas have in "
    "this step."
)


def _wrong_return(got: Any, loss: float, cost: float, n: int) -> str | None:
    if isinstance(got, (tuple, list)) or np.size(got) > 1:
        return f"expected one number, got {np.size(got)}, a value for each replica: strategy.reduce adds them up"
    value = number(got)
    if isinstance(value, str):
        return f"expected the mean loss, {value}"
    expected = loss + cost
    if close(value, expected, TOLERANCE * 10):
        return None
    mistakes = {
        'This is divided by the replicas: reduce with "SUM", each loss is a share already': expected / n,
        "This is one for each replica, added up": n * expected,
        "The model's own penalties are left out": loss,
    }
    complaint = f"expected the loss {expected:.6g}, a mean over all examples with the penalties, got {value:.6g}"
    return complaint + first_named(value, mistakes, TOLERANCE * 10)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5))
