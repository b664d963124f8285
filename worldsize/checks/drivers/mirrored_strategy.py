"""Run a student's steps and losses on the replicas of a MirroredStrategy, which are logical CPUs of one process."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from worldsize.checks.drivers.devices import answer


def trained(fn: Callable, cases: list[dict]) -> list[Any]:
    """Train a mirrored model in the task, for each case; an error comes as {"raised": message}.

    Returns "weights" after each step on every replica, "losses", each step's result, and "applied", the optimizer's count of
    steps.
    """
    return [answer(lambda case: _train(fn, case), case) for case in cases]


def _train(fn: Callable, case: dict) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    features, classes = case["start"].shape
    strategy = on_cpus(len(case["steps"][0]))
    with strategy.scope():
        regularizer = keras.regularizers.L2(case["penalty"]) if case["penalty"] else None
        layer = keras.layers.Dense(classes, use_bias=False, kernel_regularizer=regularizer)
        model = keras.Sequential([keras.Input((features,)), layer])
        optimizer = keras.optimizers.SGD(case["rate"])
        optimizer.build(model.trainable_variables)

    model.set_weights([case["start"]])

    def step(x: Any, y: Any) -> Any:
        return fn(strategy, model, optimizer, x, y)

    run = tf.function(step, autograph=False) if case["traced"] else step
    weights, losses = [], []
    for shares in case["steps"]:
        x, y = zip(*shares, strict=True)
        losses.append(run(per_replica(strategy, x), per_replica(strategy, y)))
        kernel = model.trainable_variables[0].value
        weights.append([copy.numpy() for copy in getattr(kernel, "values", (kernel,))])

    return {"weights": weights, "losses": losses, "applied": int(optimizer.iterations.numpy())}


def on_cpus(n: int) -> Any:
    """Return a MirroredStrategy on n replicas, each on a logical CPU; for the check of a mirrored step.

    Gradients are summed on one device: the default collectives do not let a process have a second strategy.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(n)], tf.distribute.ReductionToOneDevice())


def per_replica(strategy: Any, shares: Sequence[np.ndarray]) -> Any:
    """Return a value for each replica, as a distributed data set does; for the check of a mirrored step."""
    import tensorflow as tf

    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(shares[context.replica_id_in_sync_group])
    )


def losses_of_replicas(fn: Callable, cases: list[dict]) -> list[Any]:
    """Compute the loss on each replica, in the task.

    Returns for each case what every replica returned; an error comes as {"raised": message}.
    """
    return [answer(lambda case: _losses(fn, case), case) for case in cases]


def _losses(fn: Callable, case: dict) -> list[Any]:
    import tensorflow as tf

    strategy = on_cpus(len(case["losses"]))
    losses = per_replica(strategy, case["losses"])
    everybody = sum(map(len, case["losses"]))  # a Python number, which divides tensors of any dtype
    penalty = case["penalty"] if case["plain"] else tf.constant(case["penalty"])
    returned = strategy.run(fn, args=(losses, penalty, everybody))

    return list(strategy.experimental_local_results(returned))
