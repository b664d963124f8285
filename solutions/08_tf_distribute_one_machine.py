# %% [markdown]
# # Lab 08. tf.distribute on one machine
#
# **After this lab you are able to** train one Keras model on several devices with a strategy, to say where its
# variables live and what each step moves, to scale a loss so that the weights are those of one device, to write a
# training step and an all-reduce of your own, and to notice when a strategy silently computes something else.
#
# **Minutes:** 135 (two sittings: 55 up to “A training step of your own”, then 80) · **Points:** 6 · **Prerequisites:** Lab 04
# (averaged gradients), Lab 06 (all-reduce), Keras on one device.

# %% [markdown]
# ![Eight replicas: how much does CPU:0 take in? 713 kB with ReductionToOneDevice, 305 kB with your …](../labs/covers/08.png)

# %%
# Set-up: the tools of this lab
import functools
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from worldsize.notebook import *
from worldsize.tf import launch, warm  # from here on, `launch` starts a process with TensorFlow
from worldsize.tf.crossings import crossings

# %% tags=["parameters"]
device = "cpu"  # "gpu": real GPUs, where this machine has enough of them
replicas = 4
steps = 6
rate = 0.2
mobile_replicas = 2
per_replica = 16
side = 32  # pixels of MobileNetV2's images, 32 to 224
mobile_steps = 16
mobile_epochs = 3

# %%
lab, check = open_lab("08")
warm()

# %% [markdown]
# ## Several devices in one process
#
# So far each rank was a process. On one machine `tf.distribute` needs only one process: one Python program, several devices.
# A **strategy** holds a copy of the model on each, feeds each a part of the batch, and runs the step on all of them.
# Each copy is called a **replica**.

# %% [markdown]
# You need no GPUs for this. TensorFlow can split its CPU into *logical* devices: each has variables and tensors of
# its own. They share your cores, so nothing gets faster here. What lives where, and what moves, is the same as with
# real cards. TensorFlow is imported inside the function, in the launched process, and not in this notebook.

# %%
def what_there_is():
    import tensorflow as tf

    logical = [found.name for found in tf.config.list_logical_devices()]
    return logical, len(tf.config.list_physical_devices("GPU"))

run = launch(what_there_is, logical_devices=replicas)
names, gpus = run[0]
print(*names, f"real GPUs: {gpus}", sep="\n")

# %% [markdown]
# You choose the devices of a strategy by name: `MirroredStrategy(["CPU:0", "CPU:1"])`. With no list it takes all GPUs,
# and where there are none all logical CPUs. Suppose you ask for a card that is not there, `GPU:60`: a typo, or a
# driver that failed. How many replicas will TensorFlow say it has?

# %%
lab.predict("replicas", "MirroredStrategy(['CPU:0', 'GPU:60']): how many replicas does it say it has?", "replicas")

# %%
def asks_for_too_much():
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "GPU:60"])
    with strategy.scope():
        variable = tf.Variable(0.0)
    return strategy.num_replicas_in_sync, [copy.device for copy in variable.values]

run = launch(asks_for_too_much)
said, places = run[0]
lab.measure("replicas", said)
print(f"{said} replicas, and the copies of a variable are on:", *places, sep="\n")

# %% [markdown]
# Two replicas, no error, and both copies on the same CPU. If TensorFlow cannot put a variable where you asked, it puts it
# elsewhere. Training would go on for days with half the cards you pay for. So check before you train: a device's
# name says what you *asked* for, a variable's `.device` says what you *got*.

# %% [markdown]
# This is called **soft placement**, and it is on unless you say otherwise. Switch it off, and ask for the same two
# devices.

# %%
def hard_placement():
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    try:
        with tf.distribute.MirroredStrategy(["CPU:0", "GPU:60"]).scope():
            return [copy.device for copy in tf.Variable(0.0).values]
    except tf.errors.InvalidArgumentError as error:
        return str(error).split(" [Op:")[0]

print(launch(hard_placement)[0])

# %% [markdown]
# Hard placement is a good seat belt while you look for a mistake. But it also refuses operations that a GPU has no kernel
# for, which soft placement quietly runs on the CPU. So most programs leave it on, and check their devices themselves.

# %% [markdown]
# Write that check. Names come in several spellings: `GPU:1`, `/gpu:1`, `/device:GPU:1`. And there may be a CPU:0 but
# no CPU:7.
#
# <details><summary>Hint 1</summary>Make a variable under <code>tf.device(…)</code> and look at its
# <code>.device</code>.</details>
# <details><summary>Hint 2</summary><code>tf.DeviceSpec.from_string(name)</code> reads every spelling; it has
# <code>device_type</code> and <code>device_index</code>.</details>

# %% tags=["exercise:missing_devices"]
# Exercise 8.1: which devices are missing?
def missing_devices(devices):
    """Returns those names in the list `devices` for which this process has no device, in order.

    A variable that is made under such a name lies on another device.
    """
    import tensorflow as tf

    ### BEGIN SOLUTION
    missing = []
    for name in devices:
        with tf.device(name):
            variable = tf.Variable(0.0)
        asked, got = (tf.DeviceSpec.from_string(where) for where in (name, variable.device))
        if (asked.device_type, asked.device_index) != (got.device_type, got.device_index):
            missing.append(name)
    return missing
    ### END SOLUTION

# %% tags=["check:missing_devices"] points=1
check.missing_devices(missing_devices)

# %% [markdown]
# ## One variable, a copy on each device
#
# These are the strategies of this lab. `MirroredStrategy` keeps a copy of every variable on every device; it comes
# with a choice of how gradients are added up, its *cross-device ops*. `CentralStorageStrategy` keeps each variable
# once, on `CPU:0`.

# %%
def devices(n):
    """The names of n devices: GPUs if you want them and there are enough, else logical CPUs."""
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU")
    kind = "GPU" if device == "gpu" and len(gpus) >= n else "CPU"
    return [f"{kind}:{k}" for k in range(n)]

def mirrored(n, ops="default"):
    """A MirroredStrategy over n devices; `ops` names cross-device ops of tf.distribute."""
    import tensorflow as tf

    how = None if ops == "default" else getattr(tf.distribute, ops)()
    return tf.distribute.MirroredStrategy(devices(n), how)

def one_device(n):
    import tensorflow as tf

    return tf.distribute.OneDeviceStrategy(devices(1)[0])

def central_storage(n):
    import tensorflow as tf

    return tf.distribute.experimental.CentralStorageStrategy(devices(n), "CPU:0")

# %% [markdown]
# Whatever is made inside `strategy.scope()` belongs to the strategy. Here is a small model of two layers. Its weights
# start at random. Do the copies on the devices start alike?

# %%
def two_layers():
    import keras

    inputs = keras.Input((784,))
    hidden = keras.layers.Dense(32, activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(10)(hidden))

def copies_of(weight):
    """A weight's copies: one for each replica, or the only one."""
    return getattr(weight.value, "values", (weight.value,))

def first_look():
    with mirrored(replicas).scope():
        weight = two_layers().trainable_variables[0]
    copies = copies_of(weight)
    apart = max(float(abs(copy.numpy() - copies[0].numpy()).max()) for copy in copies)
    return [copy.device for copy in copies], apart

# %%
run = launch(first_look, logical_devices=replicas)
places, apart = run[0]
print(*places, f"largest difference between two copies: {apart}", sep="\n")

# %% [markdown]
# One name in Python, a copy on each device, and all are alike: the strategy drew the numbers once and copied them.
# This is a **mirrored variable**. In lab 04 you had to broadcast the first weights yourself. From now on every replica
# must take the same step, or the copies drift apart.

# %% [markdown]
# ## Keras does it for you
#
# Real images: Fashion-MNIST, flattened. As a judge we train the same model in plain NumPy, on all examples of a batch
# at once. A strategy is right if it ends with the same weights.

# %%
fashion = data.load("fashion-mnist")
x = fashion.train_images[:600].reshape(-1, 784).astype("float32") / 255
y = fashion.train_labels[:600]
draw = np.random.default_rng(8)
shapes = (784, 32), (32,), (32, 10), (10,)
start = [draw.normal(size=shape).astype("float32") / shape[0] ** 0.5 for shape in shapes]
print(fashion.shape)

# %%
# Helper: a judge: the same training in NumPy
def judge(count, batch):
    """The weights after one epoch of gradient descent in NumPy, after each step, in float64."""
    w1, b1, w2, b2 = (array.astype("float64") for array in start)
    history = []
    for begin in range(0, count, batch):
        some, labels = x[begin : min(begin + batch, count)], y[begin : min(begin + batch, count)]
        hidden = np.maximum(some @ w1 + b1, 0)
        scores = np.exp(hidden @ w2 + b2)
        slope = scores / scores.sum(1, keepdims=True) - np.eye(10)[labels]  # of the loss, by the logits
        back = (slope @ w2.T) * (hidden > 0)
        slopes = [some.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)]
        w1, b1, w2, b2 = (w - rate * s / len(some) for w, s in zip((w1, b1, w2, b2), slopes))
        history.append([w1, b1, w2, b2])
    return history

def apart_from(weights, truth):
    """The largest difference of any weight."""
    return max(float(abs(one - other).max()) for one, other in zip(weights, truth))

# %% [markdown]
# Now Keras: `compile` inside the scope, then `fit`, `evaluate` and `predict` as you know them. The batch that you name
# is the **global** one: two replicas get half of it each.

# %%
def keras_run(make, n, counts, batch, path=None):
    """fit on the first `counts[0]` images, then anew on `counts[1]`, …; what Keras then says"""
    import keras

    with make(n).scope():
        model = two_layers()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    found = {}
    for count in counts:
        model.set_weights(start)
        model.fit(x[:count], y[:count], batch_size=batch, shuffle=False, verbose=0)
        found[count] = model.get_weights()
    _, accuracy = model.evaluate(x[:512], y[:512], batch_size=64, verbose=0)
    guesses = model.predict(x[:512], batch_size=64, verbose=0)
    if path:
        model.save(path)
    copies = [copy.numpy() for copy in copies_of(model.trainable_variables[0])]
    spread = max(abs(copy - copies[0]).max() for copy in copies)
    return {"weights": found, "evaluate": accuracy, "guesses": guesses, "spread": float(spread)}

# %% [markdown]
# An epoch of 515 images in batches of 64, and one of 512. In the first, the last batch has 3 images, and two replicas
# get 2 and 1 of them. On one device there is nothing special about that. Under the strategy?

# %%
lab.predict("copies", "After training, how far apart are the copies of a weight on two replicas?", "")

# %%
folder = tempfile.TemporaryDirectory(prefix="worldsize-lab-08-")
uneven, even, batch = 515, 512, 64
runs = {}
for name, make, n in [("OneDevice", one_device, 1), ("Mirrored", mirrored, 2)]:
    fits = f"fit on {uneven} images, then on {even} …"
    print(f"{name}, {n} replica{'s' * (n > 1)}: {fits}", flush=True)
    given = make, n, [uneven, even], batch, f"{folder.name}/{n}.keras"
    runs[name] = launch(keras_run, args=given, logical_devices=n)

# %%
lab.measure("copies", runs["Mirrored"][0]["spread"])
for name, run in runs.items():
    kept = run[0]["weights"]
    far = {count: apart_from(kept[count], judge(count, batch)[-1]) for count in (even, uneven)}
    after = f"{far[even]:.0e} after {even} images, {far[uneven]:.0e} after {uneven}"
    print(f"{name:9s} from NumPy's weights: {after}")
print("two replicas' copies apart:", runs["Mirrored"][0]["spread"])

# %% [markdown]
# The copies are equal, bit for bit. And with batches that divide evenly, the weights are NumPy's up to rounding. With
# the uneven last batch they are far off, on all replicas alike, and Keras says nothing. You know the mistake from lab
# 04: each replica takes the mean over *its own* examples, and the strategy takes the mean of those means. With 2 and 1
# examples, the single one counts double.
#
# **In practice:** `drop_remainder=True` in the data set, or the loop that you write below.

# %% [markdown]
# ### Saving and loading
#
# A saved model knows nothing of strategies. So it can be trained on eight devices and used on one, or the other way
# round. Load the file of the mirrored model without a strategy, and once more inside another strategy's scope.

# %%
def load(path):
    import keras

    plain = keras.models.load_model(path)
    with mirrored(3).scope():
        again = keras.models.load_model(path)
    guesses = [model.predict(x[:60], verbose=0) for model in (plain, again)]
    return guesses, [len(copies_of(model.trainable_variables[0])) for model in (plain, again)]

run = launch(load, args=(f"{folder.name}/2.keras",), logical_devices=3)
guesses, copies = run[0]
for n, guess in zip(copies, guesses):
    difference = abs(guess - runs["Mirrored"][0]["guesses"][:60]).max()
    loaded = f"loaded with {n} cop{'ies' if n > 1 else 'y'} of each weight"
    print(f"{loaded}: predictions differ by {difference:.0e} at most")

# %% [markdown]
# ### CentralStorage, and what Keras 3 makes of it
#
# The same training with the variables on `CPU:0` alone. Look at the weights, and then at the accuracy: once as
# `evaluate` reports it, and once as we count it from `predict`. Should they be equal?

# %%
runs["CentralStorage"] = launch(
    keras_run, args=(central_storage, 2, [even], batch), logical_devices=2
)
for name, run in runs.items():
    far = apart_from(run[0]["weights"][even], judge(even, batch)[-1])
    counted = (run[0]["guesses"].argmax(1) == y[:512]).mean()
    accuracy = f"evaluate says {run[0]['evaluate']:.4f}, counted {counted:.4f}"
    print(f"{name:14s} weights {far:.0e} off; accuracy: {accuracy}")

# %% [markdown]
# The weights are right, and `evaluate` is wrong. A metric counts in variables: hits, and examples. Each replica adds its
# own to the old count; then this strategy adds up what *both replicas* have, so the old count is included twice: after each
# batch the counter is 2 × old + new. If that is so, the first of 8 batches counts 128 times as much as the last:

# %%
hits = (runs["CentralStorage"][0]["guesses"].argmax(1) == y[:512]).reshape(8, 64).mean(1)
accuracy = np.average(hits, weights=2.0 ** np.arange(8)[::-1])
print(f"accuracy with weights 128, 64, …, 1 for the batches: {accuracy:.4f}")

# %% [markdown]
# That is the number that `evaluate` gave. And a layer that counts while it trains, such as Dropout with its random
# numbers, does not run at all:

# %%
def with_dropout():
    import keras

    with central_storage(2).scope():
        model = keras.Sequential(
            [keras.Input((784,)), keras.layers.Dropout(0.5), keras.layers.Dense(10)]
        )
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    try:
        model.fit(x[:64], y[:64], verbose=0)
    except ValueError as error:
        return str(error).replace("\033[1m", "")

run = launch(with_dropout, logical_devices=2)
print((run[0] or "it works")[:260], "…")

# %% [markdown]
# *Aggregation* is the rule by which the replicas' values of a variable become one. Keras 3 gives none here. The
# strategy is called *experimental* for a reason. Mirrored has none of these troubles.

# %% [markdown]
# ## The loss of a replica
#
# Now without `fit`. Each replica sees its own examples and computes a loss and gradients. The strategy then **adds
# up** the gradients of all replicas. It does not divide. So dividing is your job, inside the loss.
#
# In a program the batches come from a `tf.data` pipeline: you name the *global* batch, and
# `strategy.experimental_distribute_dataset` cuts each into a share for every replica. 515 images, batches of 64, two
# replicas: how many images are in the last shares, and what does `drop_remainder=True` change?

# %%
def shares_of(drop_remainder):
    import tensorflow as tf

    strategy = mirrored(2)
    images = tf.data.Dataset.from_tensor_slices(x[:515])
    pipeline = images.batch(64, drop_remainder=drop_remainder)
    shared = strategy.experimental_distribute_dataset(pipeline)
    return [
        [len(share) for share in strategy.experimental_local_results(batch)] for batch in shared
    ]

for drop in (False, True):
    shares = launch(shares_of, args=(drop,), logical_devices=2)[0]
    seen = sum(map(sum, shares))
    dealt = f"{len(shares)} batches, last shares {shares[-1]}"
    print(f"drop_remainder={drop}: {dealt}; {515 - seen} images not seen")

# %% [markdown]
# Dropping the rest keeps shares equal, and a step that was traced for one shape is never traced again. The price is the
# images that the epoch leaves out: shuffle before you batch, so that each epoch leaves out different ones.
#
# Suppose each of 4 replicas uses the loss that you know from one device, the mean over its own examples. From here on we
# share a batch out by hand, so that you see the parts.

# %%
lab.predict("scale", "4 replicas, each with the mean over its own examples: how many times too long is the step?", "times")

# %%
# Helper: a value for each replica
def shared_out(strategy, whole):
    """A value for each replica: its part of the array, on its device."""
    import tensorflow as tf

    parts = np.array_split(whole, strategy.num_replicas_in_sync)

    def part(context):
        with tf.device(strategy.extended.worker_devices[context.replica_id_in_sync_group]):
            return tf.identity(parts[context.replica_id_in_sync_group])

    return strategy.experimental_distribute_values_from_function(part)

# %%
def each_its_own_mean(n, count):
    import tensorflow as tf

    strategy = mirrored(n)
    losses = np.arange(1.0, count + 1, dtype="float32")
    means = strategy.run(tf.reduce_mean, args=(shared_out(strategy, losses),))
    return float(strategy.reduce("SUM", means, axis=None)), float(losses.mean())

run = launch(each_its_own_mean, args=(4, 12), logical_devices=4)
added, mean = run[0]
lab.measure("scale", added / mean)
print(f"the replicas' means add up to {added:g}; the mean over all examples is {mean:g}")

# %% [markdown]
# The step is too long by the number of replicas, as if the learning rate had been multiplied. On two devices it may pass
# unnoticed; on sixty-four the training diverges. The cure: add the losses of your own examples, and divide by the
# number of examples that *all* replicas have in this step. Penalties on the weights (L2) are the same on every
# replica; they must count once.
#
# <details><summary>Hint</summary>The number of replicas:
# <code>tf.distribute.get_strategy().num_replicas_in_sync</code>. A replica may have no example at all: then do not
# take a mean.</details>

# %% tags=["exercise:replica_loss"]
# Exercise 8.2: the loss of one replica
def replica_loss(losses, penalty, global_batch):
    """`losses` [k]: this replica's own, one per example; `penalty`: one float, the same on
    every replica; 0.0 if there is none.

    `global_batch`: how many examples all replicas have. The replicas' results add up to the
    mean over these, plus the penalty once.
    """
    import tensorflow as tf

    ### BEGIN SOLUTION
    replicas_now = tf.distribute.get_strategy().num_replicas_in_sync
    own = tf.reduce_sum(losses) / global_batch
    return own + penalty / replicas_now
    ### END SOLUTION

# %% tags=["check:replica_loss"] points=1.5
check.replica_loss(replica_loss)

# %% [markdown]
# TensorFlow has helpers for just this: `tf.nn.compute_average_loss` and `tf.nn.scale_regularization_loss`. The first takes
# `global_batch_size`, a whole number; if you leave it out, the helper guesses from the replica's own share. One replica has
# the losses 1 and 2, the other 6, and the penalty is 5: the right sum is the mean 3, plus 5.

# %%
lab.predict("guess", "The same without global_batch_size: what do the two replicas' losses add up to, with the penalty?", "")

# %%
def helpers(count):
    import tensorflow as tf

    def official(losses):
        average = tf.nn.compute_average_loss(losses, global_batch_size=count)
        return average + tf.nn.scale_regularization_loss(tf.constant(5.0))

    strategy = mirrored(2)
    losses = shared_out(strategy, np.array([1, 2, 6], "float32"))
    return float(strategy.reduce("SUM", strategy.run(official, args=(losses,)), axis=None))

told, guessed = (launch(helpers, args=(count,), logical_devices=2)[0] for count in (3, None))
lab.measure("guess", guessed)
print(f"with global_batch_size=3: {told:g}; without: {guessed:g}")

# %% [markdown]
# Without it each replica divides by *its own* count times the replicas: right for equal shares, a mean of means for others.
# So pass the global batch, or drop the remainder.

# %% [markdown]
# ## A training step of your own
#
# `strategy.run(f, args)` runs f on every replica, each with its own part. `strategy.reduce("SUM", values, axis=None)`
# turns the replicas' values into one number. Inside f, `tf.distribute.get_replica_context().all_reduce("SUM", v)` adds
# up a number over all replicas. And `optimizer.apply_gradients`, called in f, itself adds up the gradients of all
# replicas before it steps.
#
# The last batch may be smaller, so count: every replica knows how many examples it has.

# %%
# Set-up
def per_example(model, x, y):
    """[k]: the loss of each example."""
    import keras

    return keras.losses.sparse_categorical_crossentropy(
        y, model(x, training=True), from_logits=True
    )

# %% [markdown]
# <details><summary>Hint 1</summary>Inside: the count, <code>tf.shape(x)[0]</code>, all-reduced (cast it to float32 if your
# <code>replica_loss</code> divides by it; TensorFlow's helper wants it whole); a
# <code>tf.GradientTape</code> round the loss; gradients; apply; return the loss.</details>
# <details><summary>Hint 2</summary><code>model.losses</code> is a list, empty for a model without penalties:
# <code>sum(model.losses, 0.0)</code> is a float then, too.</details>

# %% tags=["exercise:mirrored_step"]
# Exercise 8.3: one training step on every replica
def mirrored_step(strategy, model, optimizer, x, y):
    """x, y: a value for each replica. Every replica takes the same step, for the mean over all
    their examples.

    Returns the loss before the step, one number: the mean over all examples, plus the model's
    own penalties, if it has any. Runs on any number of replicas, even one, eagerly and in a
    tf.function.
    """
    import tensorflow as tf

    ### BEGIN SOLUTION
    def on_replica(x, y):
        own_count = tf.cast(tf.shape(x)[0], tf.float32)
        count = tf.distribute.get_replica_context().all_reduce("SUM", own_count)
        with tf.GradientTape() as tape:
            loss = replica_loss(per_example(model, x, y), sum(model.losses, 0.0), count)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    losses = strategy.run(on_replica, args=(x, y))
    return strategy.reduce("SUM", losses, axis=None)
    ### END SOLUTION

# %% tags=["check:mirrored_step"] points=2
check.mirrored_step(mirrored_step)

# %% [markdown]
# ### Three kinds of model
#
# Nothing in your step asks how the model was built. Try it: a list of layers, a graph of layers, and a class of your
# own. Each takes three steps on two replicas, line by line as Python runs (*eager*). How far apart are the copies
# then?

# %%
def as_a_list():
    import keras

    layers = [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
    return keras.Sequential([keras.Input((784,)), *layers])

def as_a_class():
    import keras

    class TwoLayers(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(32, activation="relu")
            self.scores = keras.layers.Dense(10)

        def call(self, images):
            return self.scores(self.hidden(images))

    return TwoLayers()

kinds = {"Sequential": as_a_list, "functional": two_layers, "subclassed": as_a_class}

# %%
# Helper: the batches of one epoch, shared out
def batches(strategy, count, batch):
    """The batches of one epoch: of each the images and the labels, shared out."""
    for begin in range(0, count, batch):
        end = min(begin + batch, count)
        yield shared_out(strategy, x[begin:end]), shared_out(strategy, y[begin:end])

def three_steps(kind):
    import keras

    strategy = mirrored(2)
    with strategy.scope():
        model, optimizer = kind(), keras.optimizers.SGD(rate)
        model(x[:1])  # a class makes its variables when it is first called
    model.set_weights(start)
    for images, labels in batches(strategy, 180, 60):
        mirrored_step(strategy, model, optimizer, images, labels)
    one, other = copies_of(model.trainable_variables[0])
    return model.get_weights(), float(abs(one.numpy() - other.numpy()).max())

# %%
for name, kind in kinds.items():
    run = launch(three_steps, args=(kind,), logical_devices=2)
    if run.state == "done":
        weights, spread = run[0]
        far = apart_from(weights, judge(180, 60)[-1])
        print(f"{name:11s} copies apart: {spread}; from NumPy's weights: {far:.0e}")

# %% [markdown]
# ### Every strategy against NumPy
#
# Now all strategies, with your step. Wrapped in `tf.function` it is traced once and then runs as a graph. The epoch
# ends with a batch of 7, so the shares of the last step are uneven for every number of replicas. `crossings` notes
# what the first step moves between devices; we look at that afterwards.

# %%
def train(make, n, count, traced=True):
    """Weights and seconds after each step, and what the first step moved."""
    import keras
    import tensorflow as tf

    strategy = make(n)
    with strategy.scope():
        model, optimizer = two_layers(), keras.optimizers.SGD(rate)
        optimizer.build(model.trainable_variables)
    model.set_weights(start)

    def step(images, labels):
        return mirrored_step(strategy, model, optimizer, images, labels)

    if traced:  # no `if` or `for` in it depends on a tensor
        step = tf.function(step, autograph=False)
    moved, weights, seconds = None, [], []
    for images, labels in batches(strategy, count, 60):
        began = time.perf_counter()
        if traced and moved is None:
            moved = crossings(step, (images, labels), model.trainable_variables)
        else:
            step(images, labels)
        seconds.append(time.perf_counter() - began)
        weights.append(model.get_weights())
    return {"weights": weights, "seconds": seconds, "moved": moved}

# %%
lab.predict("faster", f"{replicas} replicas: how many times as fast as eager is a step in tf.function?", "times")

# %%
def hierarchical(n):
    return mirrored(n, "HierarchicalCopyAllReduce")

def to_one_device(n):
    return mirrored(n, "ReductionToOneDevice")

cases = {
    "OneDevice": (one_device, 1),
    f"Mirrored, default × {replicas}": (mirrored, replicas),
    f"ReductionToOneDevice × {replicas}": (to_one_device, replicas),
    f"CentralStorage × {replicas}": (central_storage, replicas),
    f"HierarchicalCopy × {replicas}": (hierarchical, replicas),
    "HierarchicalCopy × 3": (hierarchical, 3),
}
count = steps * 60 + 7
trained = {}
for number, (name, (make, n)) in enumerate(cases.items(), start=1):
    print(f"{number} of {len(cases)}: {name}", flush=True)
    trained[name] = launch(train, args=(make, n, count), logical_devices=n)
races = {"eager": [], "tf.function": []}
for turn in (1, 2):  # they take turns, so that whatever else this machine does disturbs both
    for name, runs_of_it in races.items():
        print(f"Mirrored, {name}, turn {turn} of 2", flush=True)
        args = mirrored, replicas, count, name == "tf.function"
        runs_of_it.append(launch(train, args=args, logical_devices=replicas))

# %%
truth = judge(count, 60)

def distances(run):
    """How far from NumPy's the weights are after each step; None if no step is written yet."""
    if run.state == "done":
        return [apart_from(w, t) for w, t in zip(run[0]["weights"], truth)]

apart, answer = {name: distances(run) for name, run in trained.items()}, None
if all(apart.values()):
    off = {name: max(far) for name, far in apart.items() if max(far) >= 1e-4}
    answer = f"all {len(apart)}"
    if off:
        farthest = max(off, key=off.get)
        answer = f"all but {len(off)}: {farthest} is up to {off[farthest]:.2g} off"
figures.histories(
    apart,
    figures.answered("Which ways of training stay at NumPy's weights, up to rounding?", answer),
    y="largest difference of a weight", log=True, rounding=1e-4,
)

# %% [markdown]
# A line at the bottom is the rounding of float32, even after the uneven last step: synchronous training *is* training on
# one device. Is there a line that leaves the bottom? There was no error and no warning. Remember that line; a picture will show
# why it leaves. First the speed.

# %%
for name, run in trained.items():
    far = distances(run)
    weights = "the weights of one device" if far and max(far) < 1e-4 else "other weights"
    print(f"{name}: {weights if far else 'not yet'}")

# %%
def timing(name):
    """The steps of both turns without the first and the last, which are traced."""
    seconds = [s for run in races[name] if run.state == "done" for s in run[0]["seconds"][1:-1]]
    middle_s = float(np.median(seconds)) if seconds else None
    return figures.Timing(name, middle_s, repeats_s=seconds)

eager, graph = map(timing, races)
faster = eager.measured_s / graph.measured_s if eager.measured_s and graph.measured_s else None
lab.measure("faster", faster)
answer = None
if faster:
    graph_ms, eager_ms = 1e3 * graph.measured_s, 1e3 * eager.measured_s
    answer = f"{faster:.2g} times as fast: {graph_ms:.3g} ms, not {eager_ms:.3g} ms"
figures.race(
    [eager, graph],
    figures.answered(
        f"One step of {replicas} replicas: how much faster is a graph than Python?", answer
    ),
)

# %% [markdown]
# In eager mode Python goes through every operation of every replica, one replica after the other. The graph is made once;
# after that all devices may work at the same time. The first step with a new shape pays for the tracing; here the last step
# has a new shape, too. Rule: write and debug eagerly, train in `tf.function`.

# %% [markdown]
# ## Where variables live, and what a step moves
#
# TensorFlow cuts the traced step into one graph for each device, and sends a tensor wherever an arrow of the graph
# crosses from one device to another. So the graphs that ran tell exactly what moved.
#
# The model's weights are 102 kB. ReductionToOneDevice sends all gradients to `CPU:0`, which adds them up and sends the
# sum to everybody.

# %%
weights_bytes = sum(array.nbytes for array in start)
print(f"one copy of the weights: {weights_bytes / 1e3:.0f} kB")
lab.predict(
    "fan_in", f"{replicas} replicas: how many kB of gradients does CPU:0 take in at each step?",
    "kB",
)

# %%
moved = {way: run[0]["moved"] if run.state == "done" else None for way, run in trained.items()}

def taken_in(step):
    """kB that the first device receives; on real cards that is GPU:0."""
    if step:
        first = next(iter(step["holds"]))
        return sum(send["bytes"] for send in step["sends"] if send["dst"] == first) / 1e3

lab.measure("fan_in", taken_in(moved[f"ReductionToOneDevice × {replicas}"]))
figures.moved(
    moved, "The same training, several ways of moving gradients: which device is busiest?"
)

# %% [markdown]
# Read box by box. **OneDevice**: nothing moves. **ReductionToOneDevice** is the parameter server of lab 06, and
# `CPU:0` pays for the fan-in. **HierarchicalCopy** adds up in two groups, then across. The **default** uses one
# *collective* op on every device; its messages are in no graph. The collective is a ring, as in lab 06. **CentralStorage** holds
# the weights once: they travel out, and gradients travel in.

# %% [markdown]
# ### What CentralStorage sends between CPU and devices
#
# In the picture `CPU:0` was both: the host with the variables, and a replica. On a real machine replicas are GPUs. So keep
# `CPU:0` as the host only, and give the replicas devices of their own.

# %%
lab.predict("central", f"{replicas} replicas: how many kB go from the host to the devices at each step?", "kB")

# %%
def central_host(n):
    import tensorflow as tf

    names = [f"CPU:{k + 1}" for k in range(n)]
    return tf.distribute.experimental.CentralStorageStrategy(names, "CPU:0")

run = launch(train, args=(central_host, replicas, 120), logical_devices=replicas + 1)
if run.state == "done":
    sends = run[0]["moved"]["sends"]
    def kilobytes(end, cpu, kind=None):
        mine = [send for send in sends if send[end] == cpu and kind in (None, send["kind"])]
        return sum(send["bytes"] for send in mine) / 1e3

    lab.measure("central", kilobytes("src", "CPU:0"))
    for cpu in [f"CPU:{k}" for k in range(1, replicas + 1)]:
        for way, end in (("host to", "dst"), ("back from", "src")):
            kinds = sorted({send["kind"] for send in sends if send[end] == cpu})
            sums = [f"{kind} {kilobytes(end, cpu, kind):.0f} kB" for kind in kinds]
            print(f"{way} {cpu}:", ", ".join(sums))

answer = None
if run.state == "done":
    sent, back = kilobytes("src", "CPU:0"), kilobytes("dst", "CPU:0")
    answer = f"the host sends {sent:.0f} kB a step and takes in {back:.0f} kB"
figures.moved(
    {"CentralStorage": run[0]["moved"] if run.state == "done" else None},
    figures.answered("How much do host and devices send each other?", answer),
)

# %% [markdown]
# Every device fetches the weights and sends its gradients. Which device moves more than the others, and what could the
# extra tensor be?
#
# <details><summary>Compare</summary>The first device. The graph shows the sum of the gradients going out to it once more, and
# a tensor of the same size coming back: the change in the weights is computed there, and not on the host.</details>

# %% [markdown]
# A mirrored model moves only gradients; its weights never leave their device. For CentralStorage there is an easily overlooked
# rule: with a single GPU the variables lie on *that GPU*, and no host is involved. Does the rule hold for a single logical CPU?

# %%
def with_one_device():
    import tensorflow as tf

    with tf.distribute.experimental.CentralStorageStrategy(["CPU:1"]).scope():
        return tf.Variable(0.0).device

print("one device, CPU:1; the variable lies on", launch(with_one_device, logical_devices=2)[0])

# %% [markdown]
# **And HierarchicalCopy × 3?** In the picture of all strategies, follow the arrows that leave each of its boxes. Which
# replica's gradients does nobody get?
#
# <details><summary>Compare</summary>CPU:2 receives a sum and sends nothing. The code makes two groups of n // 2
# devices: with 3 that is one and one, and the third is in no group. It was written for machines of 8 cards. With 5 or
# 7 replicas the same happens. Here a third of each batch is computed and thrown away.</details>
#
# This is why we compare every strategy with a reference before we trust it.

# %% [markdown]
# ## An all-reduce of your own
#
# In TensorFlow a class, `CrossDeviceOps`, adds up the copies, and you may write one of your own. TensorFlow calls it with the
# copies and asks for a sum on every device. You decide *where* things meet. A star makes one device take in $n-1$ copies.
# Build a **tree**: pairs of devices meet, then pairs of pairs, until one holds the sum. Then the sum goes back the same way.
#
# <details><summary>Hint 1</summary>An operation runs where <code>tf.device(…)</code> says, and its inputs are sent
# there. To copy a tensor to a device: <code>tf.identity</code> there.</details>
# <details><summary>Hint 2</summary>Keep a list of sums. With gap = 1, 2, 4, …: device k, a multiple of 2·gap, adds the
# sum of device k + gap to its own, if there is one. Then gap = …, 4, 2, 1 for the way back.</details>

# %% tags=["exercise:tree_sum"]
# Exercise 8.4: a sum that meets in a tree
def tree_sum(copies, devices):
    """copies[k] is a tensor on devices[k]. Returns the list of sums, the k-th on devices[k].
    You may change the list copies.

    No device takes in or gives out more than ⌈log₂ n⌉ tensors, and at most 2⌈log₂ n⌉ moves
    follow each other.
    """
    import tensorflow as tf

    ### BEGIN SOLUTION
    n, sums, gap = len(copies), list(copies), 1
    while gap < n:
        for k in range(0, n - gap, 2 * gap):
            with tf.device(devices[k]):
                sums[k] = sums[k] + sums[k + gap]
        gap *= 2
    while gap > 1:
        gap //= 2
        for k in range(0, n - gap, 2 * gap):
            with tf.device(devices[k + gap]):
                sums[k + gap] = tf.identity(sums[k])
    return sums
    ### END SOLUTION

# %% tags=["check:tree_sum"] points=1.5
check.tree_sum(tree_sum)

# %% [markdown]
# Here is the class around it. TensorFlow has no public name for "a value for each device", so two imports reach
# inside.

# %%
def own_all_reduce(sum_copies):
    import tensorflow as tf
    from tensorflow.python.distribute import cross_device_ops, distribute_utils, values

    class OwnAllReduce(tf.distribute.CrossDeviceOps):
        def reduce_implementation(self, reduce_op, value, destinations, options):
            names = cross_device_ops.get_devices_from(destinations)
            sums = sum_copies(list(value.values), list(names))
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                sums = [total / len(names) for total in sums]
            return distribute_utils.regroup(tuple(sums), wrap_class=values.Mirrored)

        def batch_reduce_implementation(self, reduce_op, pairs, options):
            return [
                self.reduce_implementation(reduce_op, value, to, options) for value, to in pairs
            ]

    return OwnAllReduce()

def by_tree(n):
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(devices(n), own_all_reduce(tree_sum))

# %%
lab.predict("tree", "8 replicas and your tree: how many kB of gradients does CPU:0 take in at each step?", "kB")

# %% tags=["cover"]
eight = {}
for name, make in {"ReductionToOneDevice": to_one_device, "your tree": by_tree}.items():
    print(f"{name}, 8 replicas …", flush=True)
    eight[name] = launch(train, args=(make, 8, 120), logical_devices=8)
moved = {name: run[0]["moved"] if run.state == "done" else None for name, run in eight.items()}
(one, tree), answer = [taken_in(step) for step in moved.values()], None
lab.measure("tree", tree)
if one and tree:
    answer = f"{one:.0f} kB with ReductionToOneDevice, {tree:.0f} kB with your tree"
figures.moved(moved, figures.answered("Eight replicas: how much does CPU:0 take in?", answer))

# %%
for name, run in eight.items():
    far = distances(run)
    apart = f"{max(far):.0e}" if far else "not yet"
    print(f"{name:21s} 8 replicas, from NumPy's weights: {apart}")

# %% [markdown]
# ## NCCL
#
# On NVIDIA cards the usual choice is `NcclAllReduce`: NVIDIA's own rings and trees over the links between the cards.
# It has no version for CPUs. What happens if you ask for it there? If this machine has GPUs, the cell below uses
# them.

# %%
def try_nccl():
    import keras
    import tensorflow as tf

    gpus = [found.name for found in tf.config.list_logical_devices("GPU")]
    strategy = tf.distribute.MirroredStrategy(gpus or devices(2), tf.distribute.NcclAllReduce())
    with strategy.scope():
        model = two_layers()
        model.compile(
            keras.optimizers.SGD(rate),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    model.set_weights(start)
    try:
        model.fit(x[:256], y[:256], batch_size=64, shuffle=False, verbose=0)
    except tf.errors.InvalidArgumentError as error:
        return len(gpus), str(error), None
    return len(gpus), "", model.get_weights()

# %%
run = launch(try_nccl, logical_devices=2)
gpus, words, weights = run[0]
print(f"GPUs here: {gpus}")
if weights is None:
    print(*words.strip().splitlines()[:4], sep="\n")
else:
    print(f"it ran; from NumPy's weights: {apart_from(weights, judge(256, 64)[-1]):.0e}")

# %% [markdown]
# The strategy was made, the model was built, and only the first step failed: TensorFlow looks for an operation's kernel
# when the graph is about to run. A **kernel** is the code of one operation for one kind of device. Read such an error
# from its end: the registered kernels, and which devices they are for.
#
# You seldom need to ask for NCCL. What does a MirroredStrategy choose if you say nothing? That depends on the list
# of devices; their names decide.

# %%
def choices(lists):
    import tensorflow as tf

    found = {}
    for names in lists:
        extended = tf.distribute.MirroredStrategy(names).extended
        # two private names: there are no public ones
        chosen = type(extended._cross_device_ops).__name__
        if chosen == "CollectiveAllReduce":
            chosen += f" by {extended._communication_options.implementation.value}"
        found[", ".join(names)] = chosen
    return found

lists = [["GPU:0", "GPU:1"], ["CPU:0", "CPU:1"], ["CPU:0", "GPU:0"]]
for names, chosen in launch(choices, args=(lists,), logical_devices=2)[0].items():
    print(f"{names}: {chosen}")

# %% [markdown]
# For GPUs it is a collective by NCCL, for CPUs one by a ring, and for a list that mixes both a reduction to one device.
# Without a GPU, the strategies that list one are only *made* here: nothing ran on them.
#
# ### Packing gradients
#
# A model has many small variables, and each message costs its latency. So gradients are **packed**: put end to end, sent
# as a few large tensors, and cut up again. `num_packs` says how many; 0 means each variable by itself.

# %%
lab.predict("packs", "4 variables, 4 replicas: num_packs=0 sends how many times as many messages as num_packs=1?", "times")

# %%
def packed(n, num_packs):
    import tensorflow as tf

    ops = tf.distribute.HierarchicalCopyAllReduce(num_packs=num_packs)
    return tf.distribute.MirroredStrategy(devices(n), ops)

messages = {}
for packs in (0, 1, 2):
    make = functools.partial(packed, num_packs=packs)
    run = launch(train, args=(make, 4, 120), logical_devices=4)
    sends = run[0]["moved"]["sends"] if run.state == "done" else []
    sizes = [send["bytes"] for send in sends if send["kind"] == "gradients"]
    messages[packs] = len(sizes)
    if sizes:
        total = f"{len(sizes)} messages, {sum(sizes) / 1e3:.0f} kB"
        print(f"num_packs={packs}: {total}", flush=True)
lab.measure("packs", messages[0] / messages[1] if messages[1] else None)

# %% [markdown]
# ## MobileNetV2 on real images
#
# Finally a real network: MobileNetV2, made for phones. The images are CIFAR-10 if you have put its archive in place
# (see `datasets/README.md`), else the course's own, in three equal colours. If Keras's cache holds the weights
# trained on ImageNet, they are used; nothing is downloaded. Change `side`, `per_replica` and `mobile_replicas` at
# the top: 224 pixels want a GPU.

# %%
def cached_weights(side):
    """The file of pretrained weights in Keras's cache, or None."""
    rows = side if side in (96, 128, 160, 192, 224) else 224
    home = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    name = f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_{rows}_no_top.h5"
    path = home / "models" / name
    return str(path) if path.is_file() else None

try:
    pictures = data.load("cifar10")
except FileNotFoundError:
    pictures = fashion
images = mobile_replicas * per_replica * mobile_steps
pretrained = cached_weights(side) or "none in the cache"
print(f"{pictures.name}: {images} images, {side} x {side}; pretrained weights: {pretrained}")

# %% [markdown]
# The images come through a pipeline: shuffle, resize one by one, batch, and fetch ahead while the devices compute. The
# training drops the remainder; the test keeps every image. Adam trains, `fit` runs it, and the strategy is the default
# one.

# %%
def pipeline(images, labels, batch, side, training):
    import tensorflow as tf

    def prepare(image, label):
        if image.shape.rank == 2:  # grey
            image = tf.stack([image] * 3, axis=-1)
        return tf.image.resize(image, (side, side)) / 127.5 - 1, label

    pairs = tf.data.Dataset.from_tensor_slices((images, labels))
    if training:
        pairs = pairs.shuffle(len(images), seed=8)
    batches = pairs.map(prepare, tf.data.AUTOTUNE).batch(batch, drop_remainder=training)
    return batches.prefetch(tf.data.AUTOTUNE)

def network(n, side):
    import keras

    with mirrored(n).scope():
        base = keras.applications.MobileNetV2(
            (side, side, 3), include_top=False, pooling="avg", weights=cached_weights(side)
        )
        model = keras.Sequential([base, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    return model

# %%
def mobile_net(n, train_set, test_set, side, per_replica, epochs):
    """Seconds of each step of the first epoch, what fit says, and how much is trained."""
    import keras

    model = network(n, side)
    clock, batch = [time.perf_counter()], n * per_replica
    variables = f"{len(model.trainable_variables)} variables"
    print(f"the network is built, {variables} on {n} replicas; tracing …", flush=True)
    def note(batch, logs):
        clock.append(time.perf_counter())
        if len(clock) == 2:
            print(f"first step: {clock[1] - clock[0]:.0f} s", flush=True)

    tick = keras.callbacks.LambdaCallback(
        on_train_batch_end=note,
        on_epoch_end=lambda k, _: print(f"epoch {k + 1} of {epochs} is over", flush=True),
    )
    told = model.fit(
        pipeline(*train_set, batch, side, True), epochs=epochs,
        validation_data=pipeline(*test_set, batch, side, False),
        shuffle=False, verbose=0, callbacks=[tick],
    )
    parameters = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    seconds = np.diff(clock)[:mobile_steps].tolist()
    return {"seconds": seconds, "history": told.history, "parameters": parameters}

# %%
lab.predict("first", "How many times as long as a later step does the first step take?", "times")

# %%
train_set = pictures.train_images[:images], pictures.train_labels[:images]
test_set = pictures.test_images[:200], pictures.test_labels[:200]
given = (mobile_replicas, train_set, test_set, side, per_replica, mobile_epochs)
print(f"{mobile_epochs} epochs of {mobile_steps} steps;", end=" ")
print("the first step traces the whole network …", flush=True)
run = launch(mobile_net, args=given, logical_devices=mobile_replicas, timeout_s=900)

# %%
net, batch = run[0], per_replica * mobile_replicas
later = float(np.median(net["seconds"][1:]))
lab.measure("first", net["seconds"][0] / later)
print(f"{per_replica} a replica x {mobile_replicas} replicas = {batch} images a step")
print(f"first step {net['seconds'][0]:.1f} s, then {later:.2f} s: {batch / later:.0f} images/s")
parameters = net["parameters"]
print(f"{parameters / 1e6:.1f} million parameters, so", end=" ")
print(f"{4 * parameters / 1e6:.0f} MB of gradients from each replica a step")
# %%
rows = zip(*(net["history"][key] for key in ("loss", "accuracy", "val_accuracy")))
for epoch, (loss, seen, unseen) in enumerate(rows, start=1):
    accuracy = f"accuracy {seen:.2f} in training, {unseen:.2f} on test images"
    print(f"epoch {epoch}: loss {loss:.2f}, {accuracy}")

# %% [markdown]
# Is the accuracy on the test images better than 0.1, which guessing gives? Without pretrained weights, after so few steps,
# do not expect much: batch normalization is one reason. In training it uses each *replica's own* batch; in testing it uses
# averages collected since the start, and these are still young.

# %% [markdown]
# The first step traces the whole network, forward and backward, for each replica. It is no measure of speed: leave it
# out, as in lab 01. And note the two numbers that you set: *batch for each replica* decides whether a card is busy; times
# *replicas*, it is the batch that your learning rate must fit. Lab 13 is about that.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** TensorFlow's guides *Distributed training with TensorFlow* and *Custom training with
# tf.distribute.Strategy*. Goyal and others, *Accurate, large minibatch SGD*
# ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677), 2017): section 3 lists the mistakes in scaling a loss. Abadi
# and others, *TensorFlow: a system for large-scale machine learning* (OSDI 2016): how a graph is cut by devices.
# Sandler and others, *MobileNetV2* ([arXiv:1801.04381](https://arxiv.org/abs/1801.04381), 2018).
