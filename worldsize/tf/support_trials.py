"""Trials for the cells of the support matrix: one layer, trained under one strategy in one way, and the result.

A synchronous strategy works if its weights equal NumPy's after the same steps; a parameter server, if every update is in the
weights and in the optimizer's counter. The functions run in tasks of `worldsize.tf.launch` and return plain data. `support.py`
lists the cells; `support_trials_tf1.py` holds TensorFlow 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from worldsize.tf import worker_devices

SupportCell = tuple[str, str]  # (row, way)
Found = dict[SupportCell, tuple[str, str]]  # cell -> ("works", "fails", "wrong" or "loses updates"; explanation)
Others = Mapping[str, Callable[[], tuple[str, str]]]
NO_OTHERS: Others = MappingProxyType({})

KERAS_3_FIT, TF_KERAS_FIT = "Keras 3 fit", "tf_keras fit"
RAW, LOOP_KERAS_3, LOOP_TF_KERAS = "loop, variables", "loop, Keras 3", "loop, tf_keras"
RATE, STEPS = 0.1, 3
EXAMPLES = 24  # divisible into equal parts for 2, 3 and 4 replicas
FITTED, SCHEDULED = 20, 150
TOLD = 110  # characters of an error


def attempt(cell: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    try:
        return cell()
    except Exception as error:
        return "fails", first_words(error)


def first_words(error: Exception) -> str:
    """Return the line of an error that explains it, without the tensors and addresses in it.

    The result has at most `TOLD` characters.
    """
    text = re.sub(r"\{\s.*?\}", "{…}", re.sub(r"\x1b\[\d*m", "", str(error)), flags=re.DOTALL)
    lines = [re.sub(r"\{\{.*?\}\} ?", "", line).strip() for line in text.splitlines() if line.strip()]

    unregistered = [line for line in lines if "No OpKernel was registered" in line]
    told = [*unregistered, *lines, ""][0]
    if "in user code" in told:
        told = lines[-1]
    if told.startswith("Exception encountered when calling"):
        told = f"{told.split()[4].removesuffix('.call().')}: {lines[1]}"

    told = re.split(r" used by | \(<class|\. ", told)[0]
    kind = "" if re.match(r"\w+Error: ", told) else f"{type(error).__name__}: "
    return (kind + told)[:TOLD]


# ---- the model and its data ------------------------------------------------------------------


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


def compared(weights: Any) -> tuple[str, str]:
    off = float(np.abs(np.asarray(weights).reshape(3, 1) - reference()).max())
    if off < 1e-5:
        return "works", "weights as NumPy's"
    return "wrong", f"weights are off NumPy's by up to {off:.2g}"


def keras_of(way: str) -> Any:
    import keras
    import tf_keras

    return keras if "Keras 3" in way else tf_keras


def linear(keras: Any, strategy: Any, rate: float) -> tuple[Any, Any]:
    """Return the model and optimizer of the trials: one layer without bias, plain gradient descent."""
    with strategy.scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model, optimizer = keras.Sequential([keras.Input((3,)), layer]), keras.optimizers.SGD(rate)
        optimizer.build(model.trainable_variables)
    return model, optimizer


# ---- synchronous strategies ------------------------------------------------------------------


def batches() -> Any:
    """Return the training data of the trials: all examples as one batch.

    Several workers shard the batch by DATA, since sharding by file would look for files.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices(examples()).batch(EXAMPLES).with_options(options)


def synchronous(strategy: Any, way: str) -> tuple[str, str]:
    if way in (KERAS_3_FIT, TF_KERAS_FIT):
        model, optimizer = linear(keras_of(way), strategy, RATE)
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
        model, optimizer = linear(keras_of(way), strategy, RATE)
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


def layers(strategy: Any, way: str, names: tuple[str, ...]) -> tuple[str, str]:
    """Run `fit` on a model with these layers, as a cell of the support matrix."""
    keras = keras_of(way)
    kinds = {
        "Conv2D": lambda: keras.layers.Conv2D(2, 3),
        "LSTM": lambda: keras.layers.LSTM(2),
        "Dropout": lambda: keras.layers.Dropout(0.5),
        "BatchNormalization": keras.layers.BatchNormalization,
    }

    with strategy.scope():
        if "LSTM" in names:
            inside = [kinds["Conv2D"](), keras.layers.Reshape((-1, 2)), kinds["LSTM"]()]
        else:
            inside = [keras.layers.Flatten()]
        inside += [kinds[name]() for name in names if name not in ("Conv2D", "LSTM")]
        model = keras.Sequential([keras.Input((5, 5, 1)), *inside, keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(RATE), loss="mse")

    model.fit(np.ones((4, 5, 5, 1), "float32"), np.ones((4, 1), "float32"), batch_size=4, verbose=0)
    return "works", f"with {' and '.join(names)}"


def on_devices(cells: Iterable[SupportCell], others: Others = NO_OTHERS) -> Found:
    """Run trials on one machine's devices, and return the result of each cell.

    `others` are rows whose trials the caller supplies.
    """
    import tensorflow as tf

    d, pair, three = tf.distribute, ["/cpu:0", "/cpu:1"], ["/cpu:0", "/cpu:1", "/cpu:2"]
    made = {
        "OneDevice": lambda: d.OneDeviceStrategy("/cpu:0"),
        "Mirrored, 2 devices": lambda: d.MirroredStrategy(pair),
        "Mirrored, 4 devices": lambda: d.MirroredStrategy([f"/cpu:{k}" for k in range(4)]),
        "Mirrored, HierarchicalCopyAllReduce": lambda: d.MirroredStrategy(pair, d.HierarchicalCopyAllReduce()),
        "Mirrored, HierarchicalCopyAllReduce, 3 devices": lambda: d.MirroredStrategy(three, d.HierarchicalCopyAllReduce()),
        "Mirrored, ReductionToOneDevice": lambda: d.MirroredStrategy(pair, d.ReductionToOneDevice()),
        "Mirrored, NcclAllReduce on CPUs": lambda: d.MirroredStrategy(pair, d.NcclAllReduce()),
    }

    def central() -> Any:
        return d.experimental.CentralStorageStrategy(pair)

    def run(row: str, way: str) -> tuple[str, str]:
        if row == "TPU":
            return str(d.TPUStrategy(d.cluster_resolver.TPUClusterResolver())), ""
        if row == "v1 Estimator":
            return ("works", "") if hasattr(tf, "estimator") or hasattr(tf.compat.v1, "estimator") else GONE
        if row in others:
            return others[row]()
        if row == "CentralStorage, aggregation=MEAN":
            return compared(looped(central(), way, aggregation=tf.VariableAggregation.MEAN).numpy())
        if row.startswith("CentralStorage, "):
            return layers(central(), way, tuple(row.removeprefix("CentralStorage, ").split(" and ")))
        return synchronous(central() if row == "CentralStorage" else made[row](), way)

    return {(row, way): attempt(lambda row=row, way=way: run(row, way)) for row, way in cells}


GONE = ("fails", "AttributeError: tf.estimator and tf.compat.v1.estimator are gone")


def on_workers(cells: Iterable[SupportCell]) -> Found:
    """Run trials of MultiWorkerMirrored on each worker, and return the result of each cell."""
    import tensorflow as tf

    kinds = tf.distribute.experimental.CommunicationImplementation

    def strategy(row: str) -> Any:
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=getattr(kinds, row.removeprefix("MultiWorkerMirrored, ").split()[0], kinds.AUTO)
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    made = {row: strategy(row) for row in dict.fromkeys(row for row, _ in cells)}  # before any other operation
    return {(row, way): attempt(lambda row=row, way=way: synchronous(made[row], way)) for row, way in cells}


def on_workers_devices(cells: Iterable[SupportCell]) -> Found:
    """Run the trials of `on_workers` with every logical CPU of a worker as a replica."""
    worker_devices.use_logical_cpus()
    return on_workers(cells)


# ---- parameter servers -----------------------------------------------------------------------


def with_servers(cells: Iterable[SupportCell], others: Others = NO_OTHERS) -> Found:
    """Run trials with ParameterServerStrategy on the chief, and return the result of each cell.

    `others` are rows whose trials the caller supplies.
    """
    import tensorflow as tf

    d, made = tf.distribute, {}

    def coordinator(row: str) -> Any:
        if row not in made:
            cut = d.experimental.partitioners.FixedShardsPartitioner(2) if "partitioner" in row else None
            resolver = d.cluster_resolver.TFConfigClusterResolver()
            made[row] = d.coordinator.ClusterCoordinator(d.ParameterServerStrategy(resolver, variable_partitioner=cut))
        return made[row]

    def run(row: str, way: str) -> tuple[str, str]:
        if row in others:
            return others[row]()
        if way in (KERAS_3_FIT, TF_KERAS_FIT):
            return fitted(coordinator(row), way)
        return scheduled(coordinator(row), way)

    return {(row, way): attempt(lambda row=row, way=way: run(row, way)) for row, way in cells}


def fitted(coordinator: Any, way: str) -> tuple[str, str]:
    """Run a `fit` with parameter servers whose weights count the updates.

    The gradient is 1 at every step.
    """
    import tensorflow as tf

    model, optimizer = linear(keras_of(way), coordinator.strategy, RATE)
    with coordinator.strategy.scope():
        model.compile(optimizer=optimizer, loss=lambda y, guess: tf.reduce_mean(guess))
    ones = tf.data.Dataset.from_tensors((np.ones((4, 3), "float32"), np.ones((4, 1), "float32"))).repeat()
    model.fit(ones, epochs=1, steps_per_epoch=FITTED, verbose=0)
    return counted(model.get_weights()[0], int(optimizer.iterations.numpy()), FITTED)


def scheduled(coordinator: Any, way: str) -> tuple[str, str]:
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
        model, optimizer = linear(keras_of(way), strategy, RATE)
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


def counted(weights: np.ndarray, iterations: int | None, updates: int) -> tuple[str, str]:
    """Return the result of a trial with parameter servers: "works" if the weights hold every update.

    Each update moves every element of the weights by `RATE`; the optimizer counts the updates.
    """
    landed = round(float(-weights.min()) / RATE)
    if (landed, iterations or updates) == (updates, updates):
        return "works", f"all {updates} updates are there"

    return "loses updates", f"of {updates} updates the weights hold {landed}, optimizer.iterations counts {iterations}"
