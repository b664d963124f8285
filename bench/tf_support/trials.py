"""Trials for the cells of the support matrix: one layer, trained under one strategy in one way, and the result.

A synchronous strategy works if its weights equal NumPy's after the same steps; a parameter server, if every update is in the
weights and in the optimizer's counter. The functions run in tasks of `worldsize.tf.launch` and return plain data. `matrix.py`
lists the cells; `trials_tf1.py` holds TensorFlow 1.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from worldsize.tf.errors import first_words
from worldsize.tf.support import WAYS, Found, Outcome, SupportCell

FITS, RAW = WAYS[:2], WAYS[2]
RATE, STEPS = 0.1, 3
EXAMPLES = 24  # divisible into equal parts for 2, 3 and 4 replicas
FITTED, SCHEDULED = 20, 150


def attempts(trial: Callable[[str, str], Outcome], cells: Iterable[SupportCell]) -> Found:
    """Return the outcome of `trial(row, way)` for each cell; an error is "fails"."""
    found = {}
    for cell in cells:
        try:
            found[cell] = trial(*cell)
        except Exception as error:
            found[cell] = "fails", first_words(error)

    return found


def examples() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(9).normal(size=(EXAMPLES, 3)).astype("float32")
    return x, x @ np.array([[1], [-2], [3]], "float32")


def reference() -> np.ndarray:
    """Return the expected weights: `STEPS` steps of gradient descent in NumPy.

    The loss is the mean square error of all examples.
    """
    x, y = examples()
    w = np.zeros((3, 1))
    for _ in range(STEPS):
        w -= RATE * 2 / len(x) * x.T @ (x @ w - y)

    return w


def compared(weights: Any) -> Outcome:
    off = float(np.abs(np.asarray(weights).reshape(3, 1) - reference()).max())
    if off < 1e-5:
        return "works", "weights as NumPy's"
    return "wrong", f"weights are off NumPy's by up to {off:.2g}"


def keras_of(way: str) -> Any:
    import keras
    import tf_keras

    return keras if "Keras 3" in way else tf_keras


def linear(keras: Any, strategy: Any) -> tuple[Any, Any]:
    """Return the model and optimizer of the trials: one layer without bias, plain gradient descent."""
    with strategy.scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model, optimizer = keras.Sequential([keras.Input((3,)), layer]), keras.optimizers.SGD(RATE)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def batches() -> Any:
    """Return the training data of the trials: all examples as one batch.

    Several workers shard the batch by DATA, since sharding by file would look for files.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices(examples()).batch(EXAMPLES).with_options(options)


def synchronous(strategy: Any, way: str) -> Outcome:
    if way in FITS:
        model, optimizer = linear(keras_of(way), strategy)
        model.compile(optimizer=optimizer, loss="mse")
        model.fit(batches(), epochs=STEPS, verbose=0)
        return compared(model.get_weights()[0])
    return compared(looped(strategy, way).numpy())


def looped(strategy: Any, way: str, **options: Any) -> Any:
    """Return the variable after the custom training loop of a cell; `options` go to a raw variable."""
    import tensorflow as tf

    if way == RAW:
        with strategy.scope():
            weights = [tf.Variable(tf.zeros((3, 1)), **options)]
    else:
        model, optimizer = linear(keras_of(way), strategy)
        weights = model.trainable_variables

    def replica(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            guess = tf.matmul(x, weights[0]) if way == RAW else model(x, training=True)
            loss = tf.reduce_sum((guess - y) ** 2) / EXAMPLES
        gradients = tape.gradient(loss, weights)
        if way == RAW:
            gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
            weights[0].assign_sub(RATE * gradients[0])
        else:
            optimizer.apply_gradients(zip(gradients, weights, strict=True))

    step = tf.function(lambda batch: strategy.run(replica, batch))
    data = strategy.experimental_distribute_dataset(batches())
    for _ in range(STEPS):
        for batch in data:
            step(batch)

    return weights[0]


def layers(strategy: Any, way: str, names: tuple[str, ...]) -> Outcome:
    """Run `fit` on a model with these layers, as a cell of the support matrix."""
    keras = keras_of(way)
    with strategy.scope():
        inside = [keras.layers.Flatten()]
        if "LSTM" in names:
            inside = [keras.layers.Conv2D(2, 3), keras.layers.Reshape((-1, 2)), keras.layers.LSTM(2)]
        if "Dropout" in names:
            inside.append(keras.layers.Dropout(0.5))
        if "BatchNormalization" in names:
            inside.append(keras.layers.BatchNormalization())

        model = keras.Sequential([keras.Input((5, 5, 1)), *inside, keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(RATE), loss="mse")

    model.fit(np.ones((4, 5, 5, 1), "float32"), np.ones((4, 1), "float32"), batch_size=4, verbose=0)
    return "works", f"with {' and '.join(names)}"


def fitted(coordinator: Any, way: str) -> Outcome:
    """Run a `fit` with parameter servers whose weights count the updates.

    The gradient is 1 at every step.
    """
    import tensorflow as tf

    model, optimizer = linear(keras_of(way), coordinator.strategy)
    with coordinator.strategy.scope():
        model.compile(optimizer=optimizer, loss=lambda y, guess: tf.reduce_mean(guess))
    ones = tf.data.Dataset.from_tensors((np.ones((4, 3), "float32"), np.ones((4, 1), "float32"))).repeat()
    model.fit(ones, epochs=1, steps_per_epoch=FITTED, verbose=0)
    return counted(model.get_weights()[0], int(optimizer.iterations.numpy()), FITTED)


def scheduled(coordinator: Any, way: str) -> Outcome:
    """Run closures scheduled on parameter servers; the weights count their updates.

    There are `SCHEDULED` closures, each with gradient 1.
    """
    import tensorflow as tf

    strategy, ones = coordinator.strategy, tf.ones((2, 3))
    if way == RAW:
        with strategy.scope():
            variable = tf.Variable(tf.zeros((3, 1)))
        weights = list(getattr(variable, "variables", [variable]))
    else:
        model, optimizer = linear(keras_of(way), strategy)
        variable, weights = model.trainable_variables[0], model.trainable_variables

    def replica() -> None:
        with tf.GradientTape() as tape:
            guess = tf.matmul(ones, tf.concat(weights, 0)) if way == RAW else model(ones, training=True)
            loss = tf.reduce_mean(guess)
        gradients = tape.gradient(loss, weights)
        if way == RAW:
            for part, gradient in zip(weights, gradients, strict=True):
                part.assign_sub(RATE * gradient)
        else:
            optimizer.apply_gradients(zip(gradients, weights, strict=True))

    step = tf.function(lambda: strategy.run(replica))
    for _ in range(SCHEDULED):
        coordinator.schedule(step)
    coordinator.join()

    iterations = None if way == RAW else int(optimizer.iterations.numpy())
    return counted(np.asarray(tf.convert_to_tensor(variable)), iterations, SCHEDULED)


def counted(weights: np.ndarray, iterations: int | None, updates: int) -> Outcome:
    """Return the result of a trial with parameter servers: "works" if the weights hold every update.

    Each update moves every element of the weights by `RATE`; the optimizer counts the updates.
    """
    landed = round(float(-weights.min()) / RATE)
    if (landed, iterations or updates) == (updates, updates):
        return "works", f"all {updates} updates are there"

    return "loses updates", f"of {updates} updates the weights hold {landed}, optimizer.iterations counts {iterations}"
