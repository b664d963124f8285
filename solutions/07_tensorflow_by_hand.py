# %% [markdown]
# # Lab 07. TensorFlow by hand: towers, in-graph, between-graph
#
# **After this lab you are able to** say on which device each variable and each operation of a TensorFlow program lives;
# to train on several devices with *towers* and averaged gradients; and to turn a script for one machine into one for
# several, with parameters on a server, asynchronous and synchronous.
#
# **Minutes:** 130 (two sittings: 55 up to “Between-graph: a program for each worker”, then 75) · **Points:** 6 ·
# **Prerequisites:** Keras on one device. Labs 05 and 06 tell of the same servers without TensorFlow.

# %% [markdown]
# ![Where do the variables lie, and who computes? CPU:0 holds all variables; CPU:1, CPU:2, CPU:3 and …](../labs/covers/07.png)

# %%
# Set-up: the tools of this lab
import functools
import json
import os
import time
from datetime import datetime

import numpy as np

from worldsize.notebook import *
from worldsize.tf import Cluster, graphs, launch, warm
from worldsize.tf.sessions import together

# %% tags=["parameters"]
towers = 4
batch = 64
steps = 40
updates = 80
work_s = 0.04
slow = 3

# %%
lab, check = open_lab("07")
warm()  # TensorFlow is imported in the background, while you read

# %% [markdown]
# ## Devices
#
# You will hardly ever write a program like this again: `tf.distribute` does it for you (labs 08 and 09). But this is what it
# does, and when it is slow or wrong, you must know what is inside. It begins with **devices**. A device is a place where
# operations run and tensors lie: a GPU, or a CPU with its memory.

# %% [markdown]
# TensorFlow can split one CPU into several **logical devices**. They have names and memory of their own, so a program
# for five devices runs on any laptop; only the cores are shared. This must be settled before TensorFlow does anything
# else. So each run in this lab gets a fresh process: `launch(fn, logical_devices=5)`. TensorFlow is imported there, inside
# the function, and not in this notebook.

# %%
def look_around():
    import tensorflow as tf

    with tf.device("CPU:3"):
        x = tf.ones([2, 2])
    y = x @ x
    with tf.device("CPU:1"):
        z = y + x
    listed = tf.config.list_logical_devices
    cpus, gpus = [[device.name for device in listed(kind)] for kind in ("CPU", "GPU")]
    places = {"x": x.device, "y": y.device, "z": z.device}
    return {"CPUs": cpus, "GPUs": gpus or "none here", **places}

# %%
lab.predict("lands", "x lies on CPU:3, and y = x @ x names no device. On which CPU, by its number, will y lie?", "")

# %%
run = launch(look_around, logical_devices=5)
lab.measure("lands", int(run[0]["y"].split(":")[-1]))
print("\n".join(f"{key}: {value}" for key, value in run[0].items()))

# %% [markdown]
# A full name says more than the number: *job*, *replica* and *task* tell which process of a cluster it is. Here there
# is one, `localhost`. `tf.device` says where operations go. Without it TensorFlow chooses: a GPU if there is one, else
# `CPU:0`, even if the operands lie elsewhere. It copies them without a word. **You** must watch what moves.

# %% [markdown]
# ## Towers
#
# The oldest way to use several devices is still the clearest. The variables exist once, on the CPU. Every device gets the
# same model and its own part of the batch: that is a **tower**. Each tower computes its gradients. The CPU averages them and
# changes the variables once. In the classic script, which trained on CIFAR-10 with several GPUs, this function was called
# `average_gradients`; lab 04 has an exercise of that name, so here it has a longer one. It is called inside a `tf.function`,
# where tensors have no values yet: use TensorFlow's operations.
#
# <details><summary>An example: two towers, two variables</summary>The variables are <code>w</code> and <code>b</code>. Then
# <code>towers</code> is <code>[[(gw0, w), (gb0, b)], [(gw1, w), (gb1, b)]]</code>, and you return a list of two pairs: one
# with <code>w</code>, one with <code>b</code>.</details>
# <details><summary>Hint 1</summary><code>zip(*towers)</code> turns the lists round: first all pairs of variable 0, one
# from each tower, then all of variable 1.</details>
# <details><summary>Hint 2</summary><code>tf.stack</code> puts tensors on top of each other along a new first axis, and
# <code>tf.reduce_mean(…, axis=0)</code> takes it away again.</details>

# %% tags=["exercise:average_tower_gradients"]
# Exercise 7.1: average the towers' gradients
def average_tower_gradients(towers):
    """towers[k] is the list of (gradient, variable) of tower k; all towers share the variables.

    Returns one such list: for each variable, in their order, the mean of its gradients.
    """
    import tensorflow as tf

    ### BEGIN SOLUTION
    averaged = []
    for pairs in zip(*towers):
        gradients = [gradient for gradient, _ in pairs]
        variable = pairs[0][1]
        averaged.append((tf.reduce_mean(tf.stack(gradients), axis=0), variable))
    return averaged
    ### END SOLUTION

# %% tags=["check:average_tower_gradients"] points=1.5
check.average_tower_gradients(average_tower_gradients)

# %% [markdown]
# Now a real model: pictures of clothes from Fashion-MNIST, and a small CNN made with Keras. `make_step` builds the step that
# all towers take together. `tf.function` **traces** it: Python runs once and leaves a graph, which then runs on its own.
# Look for the three places: `CPU:0` for what happens once, a device for each tower, and the average in between.

# %%
def small_cnn():
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    return tf.keras.Sequential([
        tf.keras.Input((28, 28, 1)),
        layers.Conv2D(8, 5, strides=2, activation="relu", name="conv1"),
        layers.Conv2D(16, 3, strides=2, activation="relu", name="conv2"), layers.Flatten(),
        layers.Dense(10, name="dense"),
    ], name="cnn")

def tower_devices(count):
    """GPUs where there are enough of them, else logical CPUs; CPU:0 is for the variables."""
    import tensorflow as tf

    gpus, cpus = (tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU"))
    return [device.name for device in (gpus if len(gpus) >= count else cpus[1:])[:count]]

# %%
def make_step(model, devices, average):
    import tensorflow as tf

    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def tower(device, images, labels):
        with tf.device(device):
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(images))
            found = tape.gradient(loss, model.trainable_variables)
        return loss, list(zip(found, model.trainable_variables))

    @tf.function(autograph=False)
    def step(images, labels, rate):
        with tf.device("CPU:0"):
            parts = zip(devices, tf.split(images, len(devices)), tf.split(labels, len(devices)))
            losses, gradients = zip(*[tower(*part) for part in parts])
            for gradient, variable in average(gradients):
                variable.assign_sub(rate * gradient)
            return tf.add_n(losses) / len(devices)

    return step

# %% [markdown]
# The training itself is a loop, which also times every step. Every ten steps it prints a line in the words of the classic
# script (more on that below) and pauses: it is a generator, so that several training runs can take turns. And it asks
# TensorFlow's graph where everything was put.

# %%
def train(towers, batch, steps, average, rate_at):
    import tensorflow as tf

    clothes = data.load("fashion-mnist")
    with tf.device("CPU:0"):
        model = small_cnn()
    step, seconds, count = make_step(model, tower_devices(towers), average), [], towers * batch
    for k in range(steps):
        rows = (k * count + np.arange(count)) % len(clothes.train_labels)
        given = (tf.constant(clothes.train_images[rows, :, :, None] / 255, tf.float32),
                 tf.constant(clothes.train_labels[rows]), tf.constant(rate_at(k), tf.float32))
        begin_s = time.perf_counter()
        loss = float(step(*given))
        seconds.append(time.perf_counter() - begin_s)
        if k % 10 == 9:
            tell(k, loss, batch, towers, seconds[-1])
            graph = step.get_concrete_function(*given).graph.as_graph_def()
            weights = [variable.numpy() for variable in model.trainable_variables]
            placed = graphs.placed([graph], model.trainable_variables)
            yield {"weights": weights, "seconds": seconds, "placed": placed}

def tell(step, loss, batch, towers, seconds):
    rate, each = batch * towers / seconds, seconds / towers
    speed = f"{rate:.1f} examples/sec; {each:.3f} sec/batch"
    print(f"{datetime.now()}: step {step}, loss = {loss:.2f} ({speed})", flush=True)

# %% [markdown]
# First, is it right? Towers must take the step that one device would take with the whole batch. The mean over a batch
# is the mean of the means over its equal parts, so the weights should agree, apart from rounding. Train both from the same
# start and compare every weight.

# %%
def compare(average, towers, batch, steps):
    def rate_at(k):
        return 0.1

    *_, alone = train(1, towers * batch, steps, average, rate_at)
    *_, split = train(towers, batch, steps, average, rate_at)
    gap = max(abs(a - b).max() for a, b in zip(alone["weights"], split["weights"]))
    return {"gap": float(gap), "placed": split["placed"]}

run = launch(
    compare, args=(average_tower_gradients, towers, batch, 10), logical_devices=towers + 1
)
if run.state == "done":
    gap = run[0]["gap"]
    print(f"{towers} towers against one device, 10 steps: weights differ by {gap:.1e} at most")
    print("equal to 1e-6:", gap <= 1e-6)

# %% tags=["cover"]
def told(run, key):
    """What the first task returned under `key`; the run itself if it waits for an exercise."""
    return run if run.state == "not yet" else run[0][key]

figures.placement(told(run, "placed"), "Where do the variables lie, and who computes?")

# %% [markdown]
# Each row is a device, and the chips are the variables that it holds. A tower holds none: it is sent the weights
# at every step and sends gradients back. All towers list the same operations, because they are the same model.
# `CPU:0` has what happens once: splitting the batch, averaging, assigning.

# %% [markdown]
# ## A rate that falls
#
# The classic script starts with a large learning rate and multiplies it by 0.1 after every 350 epochs: an **exponential
# decay**, in stairs. An epoch is one pass over all training examples. But TensorFlow counts *steps*, and with towers a step
# takes more examples than one batch. So how many steps is an epoch? Plain numbers are enough. If you use a Keras schedule,
# import it in a cell of its own: the first import takes seconds, and a check has a time limit.

# %%
lab.predict(
    "stair", "50,000 images, batches of 125 on each of 4 towers. After how many steps are 350 epochs over?", "steps"
)

# %% tags=["exercise:decayed_rate"]
# Exercise 7.2: exponential learning-rate decay
def decayed_rate(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    """The learning rate at `step`, counted from 0: `start`, times `factor` for every
    `epochs_per_decay` epochs that are over.

    In every step each tower takes a batch. The rate falls in stairs: between two falls it stays
    as it is.
    """
    ### BEGIN SOLUTION
    steps_per_epoch = examples / (batch * towers)
    decay_steps = int(epochs_per_decay * steps_per_epoch)
    return start * factor ** (step // decay_steps)
    ### END SOLUTION

# %% tags=["check:decayed_rate"] points=1
check.decayed_rate(decayed_rate)

# %%
def unless_stub(fn, *args, **more):
    """What fn returns; None where it is not written yet."""
    try:
        return fn(*args, **more)
    except NotYet:
        return None

at = functools.partial(unless_stub, decayed_rate, examples=50_000, batch=125, towers=4)
first = next((step for step in range(100_000) if at(step) != at(0)), None)
lab.measure("stair", first)

# %% [markdown]
# Two mistakes are common, and neither raises an error. Forget the towers, and the rate falls too late, by a factor of their
# number. Forget to round down to an integer, and you get a slope instead of stairs. Draw it for a small data set, with one
# tower and with more, and let TensorFlow's own `exponential_decay` say what it thinks.

# %%
def stairs(towers):
    rates = [
        unless_stub(decayed_rate, k, 6400, 64, towers, epochs_per_decay=4) for k in range(600)
    ]
    return None if None in rates else rates

fallen = {n: stairs(n) for n in (1, 2, 4)}
answer = None
if fallen[1]:
    answer = f"to {fallen[1][-1]:.2g} after 600 steps with 1 tower, {fallen[4][-1]:.2g} with 4"
figures.histories(
    {f"{n} tower{'s' * (n > 1)}": rates for n, rates in fallen.items()},
    figures.answered("How does the rate fall, with one tower and with more?", answer),
    y="learning rate", log=True, growth=True,
)

# %%
def framework_rates(count, decay_steps):
    import tensorflow.compat.v1 as tf

    falling = [
        tf.train.exponential_decay(0.1, k, decay_steps, 0.1, staircase=True)
        for k in range(count)
    ]
    return [float(rate() if callable(rate) else rate) for rate in falling]

theirs, yours = launch(framework_rates, args=(400, 100))[0], stairs(4)
if yours:
    gap = max(abs(a / b - 1) for a, b in zip(yours, theirs))
    print(f"largest difference from TensorFlow's, relative: {gap:.1e}")

# %% [markdown]
# ### The classic script's own mistakes
#
# The first versions of the classic script got this wrong themselves. Below is the script's way, in our words: the length of a
# stair, the loop over the towers, and the loss that it prints. The towers are real, and see real images. Two lines do not do what
# their author meant. Find them before you run the cell.

# %%
def the_classic_way(towers, batch, examples=50_000, epochs_per_decay=350):
    import tensorflow as tf

    decay_steps = int(examples / batch * epochs_per_decay)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model, clothes, noted = small_cnn(), data.load("fashion-mnist"), []
    for k in range(towers):
        with tf.device(f"CPU:{k + 1}"):
            rows = slice(k * batch, (k + 1) * batch)
            images = tf.constant(clothes.train_images[rows, :, :, None] / 255, tf.float32)
            loss = loss_of(clothes.train_labels[rows], model(images))
        noted.append(float(loss))  # this line is ours: it notes what every tower had
    return {"prints": float(loss), "losses": noted, "decay_steps": decay_steps}

# %%
lab.predict("classic", "4 towers, batches of 125: after how many epochs does the classic rate fall for the first time?", "epochs")

# %%
classic = launch(the_classic_way, args=(4, 125), logical_devices=5)[0]
epochs = classic["decay_steps"] * 125 * 4 / 50_000
lab.measure("classic", epochs)
print(f"it meant 350 epochs; its rate falls after {epochs:g}")
print("losses of the towers:", ", ".join(f"{loss:.4f}" for loss in classic["losses"]))
mean = np.mean(classic["losses"])
print(f"it prints {classic['prints']:.4f}; the loss of the step is their mean, {mean:.4f}")

# %% [markdown]
# <details><summary>Compare</summary><code>decay_steps</code> forgets the towers: an epoch has <code>examples / (batch ·
# towers)</code> steps. A later version divides by them. And <code>loss</code> is one name for all towers: after the loop
# it is the last one's, and that is printed as the loss of the step. Either way the program runs, and looks
# healthy.</details>
#
# The script is TensorFlow's `cifar10_multi_gpu_train.py`, from the repository *tensorflow/models*.

# %% [markdown]
# ## Examples per second, seconds per batch
#
# The classic script printed two speeds: examples/sec and sec/batch. Read its lines with care. `sec/batch` is the
# time of a step *divided by the number of towers*, as if the batches had come one after the other. A step takes longer
# than that. Now train with 1, 2 and 4 towers; every tower gets the same batch size. The three runs take turns, so that
# whatever else this machine does disturbs all of them alike.

# %%
lab.predict("more_towers", f"{towers} towers on this machine: how many times the examples/sec of one tower?", "times")

# %%
def several(counts, batch, steps, average, rate):
    """The seconds of every step of a training for each count of towers, ten steps in turn."""
    def begin(n):
        def rate_at(k):
            return rate(k, 6400, batch, n, epochs_per_decay=2)

        print(f"{n} tower{'s' * (n > 1)}: {', '.join(tower_devices(n))}", flush=True)
        return train(n, batch, steps, average, rate_at)

    *_, last = zip(*[begin(n) for n in counts])
    return {n: told["seconds"] for n, told in zip(counts, last)}

counts = sorted({1, 2, towers})
settings = counts, batch, steps, average_tower_gradients, decayed_rate
run = launch(several, args=settings, logical_devices=towers + 1)

# %%
laps = run[0] if run.state == "done" else None
rates = {n: n * batch / np.median(seconds[5:]) for n, seconds in laps.items()} if laps else {}
gain = rates[towers] / rates[1] if rates else None
lab.measure("more_towers", gain)
for n, rate in rates.items():
    step_s = n * batch / rate
    told_s = f"{step_s / n:.4f} sec/batch, but a step takes {step_s:.4f} s"
    print(f"towers: {n}, {rate:6.0f} examples/sec, {told_s}")

# %%
ideal = [(n, n * rates[1]) for n in rates]
figures.curves(
    [figures.Curve("towers on this machine", list(rates.items()), ideal)],
    figures.answered(
        f"How many examples do {towers} towers bring, beside as many devices with cores of"
        " their own?",
        f"{rates[towers]:,.0f} a second: {gain:.2g} times one tower's; cores of their own:"
        f" {towers}",
    ),
    x="towers", y="examples/sec",
) if rates else figures.not_yet("Exercises 7.1 and 7.2")

# %% [markdown]
# The dashed line grows with every tower; the points follow it only while there are idle cores. Logical devices are places, not
# hardware: they share the cores of this machine. On a host with several GPUs `tower_devices` takes those, and the same cells
# show what towers were made for. The first steps of each run are left out, because TensorFlow traces and optimises the graph
# then.
#
# **In one sentence:** why can sec/batch fall although no step gets faster?
#
# <details><summary>Compare</summary>sec/batch is the step's time divided by the number of towers. If a step with twice the
# towers takes as long as before, sec/batch is halved.</details>

# %% [markdown]
# ## A server, and workers
#
# Towers end at the edge of one machine. For more, TensorFlow's first version had a **cluster**: a table that says which
# *jobs* there are and at which addresses their *tasks* listen. By convention the job `ps` holds the parameters and the
# job `worker` computes. Each task runs a `Server`, and finds the table in its environment variable `TF_CONFIG`, as JSON.

# %%
def who_am_i():
    return os.environ["TF_CONFIG"]

run = launch(who_am_i, cluster=Cluster(chief=1, worker=2, ps=1), servers=("ps",))
print(run["worker:1"])

# %% [markdown]
# Every task gets the same table and its own line under `task`. The addresses are for this run only: the course picks free
# ports. A device name now says which process it is in: `/job:ps/task:0/device:CPU:0`. A program may put an operation on any
# device of the cluster, whatever process it is in.

# %% [markdown]
# ## In-graph: one program for all
#
# The first way to use a cluster: *one* client builds *one* graph with all towers in it, each on another worker. This is
# **in-graph replication**. The client opens a session with one server, the **master**; here the master is the client's own
# server, the task `chief`. The master cuts the graph into parts, one for each device, hands every worker its part, and starts
# all of them at every step. The workers know nothing of the model: they serve.

# %% [markdown]
# Our model from here on is a linear regression with ten weights: small enough to see everything. The columns of `x` are
# uncorrelated, so the loss is a round bowl and we know its lowest point. We will plot how far *above* it the weights are.

# %%
def make_points(count=1000, features=10):
    generator = np.random.default_rng(0)
    x = np.linalg.qr(generator.normal(size=(count, features)))[0] * count**0.5
    y = x.sum(axis=1) + generator.normal(size=count)
    return x.astype("float32"), y.astype("float32")

x, y = make_points()
best = x.T @ y / len(x)

def excess(weights):
    return float(((x @ weights - y) ** 2).mean() - ((x @ best - y) ** 2).mean()) / 2

print(f"all weights zero: {excess(0 * best):.2f} above the lowest loss")

# %% [markdown]
# This is the old TensorFlow, which lives on in `tf.compat.v1`: first a graph is built, and nothing happens; then a
# session runs parts of it. Your average from exercise 7.1 works here too, unchanged.

# %%
def in_graph(task, average, steps, workers=2, rows=8):
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            weights = tf.get_variable(
                "weights", [x.shape[1]], initializer=tf.zeros_initializer()
            )
            optimizer = tf.train.GradientDescentOptimizer(0.1)
        places, towers = [], []
        for k in range(workers):
            with tf.device(f"/job:worker/task:{k}"):
                xs = tf.placeholder(tf.float32, [rows, x.shape[1]], name=f"data/x{k}")
                ys = tf.placeholder(tf.float32, [rows], name=f"data/y{k}")
                loss = tf.reduce_mean((tf.linalg.matvec(xs, weights) - ys) ** 2) / 2
                places += [xs, ys]
                towers.append(optimizer.compute_gradients(loss, [weights]))
        with tf.device("/job:ps/task:0"):
            train = optimizer.apply_gradients(average(towers))
        master = tf.train.Server(task.cluster, "chief", 0)
        with tf.Session(master.target) as session:
            session.run(tf.global_variables_initializer())
            return drive(session, train, weights, places, steps, rows)

# %%
def drive(session, train, weights, places, steps, rows):
    import tensorflow.compat.v1 as tf

    told, generator = tf.RunMetadata(), np.random.default_rng(1)
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    for _ in range(steps):
        chosen = generator.integers(0, len(x), [len(places) // 2, rows])
        fed = dict(zip(places, [part for own in chosen for part in (x[own], y[own])]))
        session.run(train, feed_dict=fed, options=options, run_metadata=told)
    placed, moves = graphs.placed(told.partition_graphs), graphs.moves(told, session.graph)
    return {"placed": placed, "moves": moves, "weights": session.run(weights)}

# %%
run = launch(
    in_graph, args=(average_tower_gradients, 20), cluster=Cluster(chief=1, worker=2, ps=1)
)
if run.state == "done":
    after = excess(run[0]["weights"])
    print(f"loss above the lowest: {excess(0 * best):.2f}, after 20 steps {after:.3f}")
figures.placement(told(run, "placed"), "In-graph: what does each task have of the one graph?")

# %%
figures.route(told(run, "moves"), "One step in-graph: what goes from whom to whom?")

# %% [markdown]
# All that you see was read from the parts that the master made. They have a send and a receive wherever an edge of the graph
# goes from one part to another. Follow the arrows from left to right: data from the client, weights from the server, gradients
# back. One `session.run` waits for all towers, so the steps are synchronous by themselves.
#
# **In one sentence:** why did in-graph replication stay small?
#
# <details><summary>Compare</summary>Look at the data. They are larger than the weights here, and with images larger by
# far. All data go through one process, the client, and the client's graph grows with every worker.</details>

# %% [markdown]
# ## Between-graph: a program for each worker
#
# The second way: *every* worker is a client. Each runs the same script, builds only its own tower, reads its own data,
# and has a session with its own server. They share the variables on the ps, by name. This is **between-graph replication**,
# the usual way on a cluster.

# %% [markdown]
# Nobody wants to write `tf.device` for each variable. `replica_device_setter` returns a function that TensorFlow asks
# at every new operation: variables, and what changes them, go to the job `ps`; everything else goes to this worker. With
# several servers it deals the variables out in turn, **round robin**. Here is the CNN of the classic CIFAR-10 script, on two
# servers. Building a graph needs no server, so one process is enough.

# %%
def build_classic(chosen=None, servers=2):
    import tensorflow.compat.v1 as tf

    shapes = {"conv1": (5, 5, 3, 64), "conv2": (5, 5, 64, 64),
              "local3": (2304, 384), "local4": (384, 192), "softmax": (192, 10)}
    turn = iter(chosen or ())
    strategy = (lambda op: next(turn)) if chosen else None
    setter = tf.train.replica_device_setter(
        ps_tasks=servers, worker_device="/job:worker/task:0", ps_strategy=strategy
    )
    with tf.Graph().as_default() as graph, tf.device(setter):
        for layer, shape in shapes.items():
            tf.get_variable(f"{layer}/weights", shape)
            tf.get_variable(f"{layer}/biases", shape[-1:])
        sizes = [4 * variable.shape.num_elements() for variable in tf.global_variables()]
    return {"placed": graphs.placed([graph.as_graph_def()]), "sizes": sizes}

# %%
lab.predict("skew", "Two servers, round robin. What % of all bytes lie on the first?", "%")

# %%
def held(built):
    """{"ps 0": {"weights": bytes, "biases": bytes}, …}"""
    by_server = {}
    for server in ("ps 0", "ps 1"):
        mine = by_server[server] = {"weights": 0, "biases": 0}
        for name, size_bytes in built["placed"][server]["variables"].items():
            mine[name.split("/")[1]] += size_bytes
    return by_server

in_turn = launch(build_classic)[0]
totals = [sum(parts.values()) for parts in held(in_turn).values()]
skew = 100 * totals[0] / sum(totals)
lab.measure("skew", skew)
even = "yes" if 40 < skew < 60 else "no"
figures.placement(
    in_turn["placed"],
    figures.answered(
        "Round robin over two servers: does each have its share?",
        f"{even}: {skew:.3g} % of the bytes are on the first",
    ),
)

# %% [markdown]
# Weights and biases are made in turn, and the servers take turns too. So one server has nearly all bytes, and every
# worker fetches from it at every step: the fan-in of lab 06 again, with an idle server beside it. Better: give each
# variable to the server that holds the fewest **bytes** so far. TensorFlow asks for one variable at a time, so you
# cannot sort them first.

# %% tags=["exercise:place_variables"]
# Exercise 7.3: place variables by their bytes
def place_variables(sizes_bytes, servers):
    """The number of a server, 0 to servers - 1, for each variable, in the order of sizes_bytes.

    Each goes to the server that holds the fewest bytes at that moment; if several do, to any.
    """
    ### BEGIN SOLUTION
    held_bytes = [0] * servers
    chosen = []
    for size_bytes in sizes_bytes:
        lightest = held_bytes.index(min(held_bytes))
        held_bytes[lightest] += size_bytes
        chosen.append(lightest)
    return chosen
    ### END SOLUTION

# %% tags=["check:place_variables"] points=1.5
check.place_variables(place_variables)

# %%
chosen = unless_stub(place_variables, in_turn["sizes"], 2)
by_bytes = launch(build_classic, args=(chosen,))[0] if chosen else None
answer = None
if by_bytes:
    servers = [*held(in_turn).values(), *held(by_bytes).values()]
    megabytes = [sum(parts.values()) / 1e6 for parts in servers]
    words = "round robin: {:.3g} and {:.2g} MB; by bytes: {:.3g} and {:.3g} MB"
    answer = words.format(*megabytes)
figures.stacks(
    {"round robin": held(in_turn), "by bytes": held(by_bytes) if by_bytes else None},
    figures.answered(
        "What does each server hold, and send to every worker at every step?", answer
    ),
    what="variables",
)

# %% [markdown]
# Still not equal: one layer has most of the bytes, and a variable lies whole on one server. To do better you must cut it
# (lab 09). But both servers work now. An optimizer with a memory, such as Adam, keeps that memory beside the variable, so a
# variable's bytes count more than once.

# %% [markdown]
# ## Server, CPU, device, and back
#
# A worker may have several devices itself. Then between-graph and towers come together: each worker is a small towers
# program, whose variables lie on the server. Let us follow one step with real bytes. Each worker has two devices, and
# its `CPU:0` is the **host**: on a real worker everything from the network passes through the host's memory. The pictures
# leave out that stop. The model has one matrix, from 784 pixels to 10 classes. (What the session and `together` do is
# explained below.)

# %%
def host_and_devices(task, average, cached):
    import tensorflow.compat.v1 as tf

    me = f"/job:worker/task:{task.index}"
    host, chief = f"{me}/cpu:0", task.index == 0
    jobs = {job: task.cluster[job] for job in ("ps", "worker")}
    config = tf.ConfigProto(device_count={"CPU": 3})
    server = tf.train.Server(jobs, "worker", task.index, config=config)
    setter = tf.train.replica_device_setter(cluster=jobs, worker_device=host)
    with tf.Graph().as_default(), tf.device(setter):
        weights = tf.get_variable("weights", [784, 10], caching_device=host if cached else None)
        optimizer, towers = tf.train.GradientDescentOptimizer(tf.constant(0.1, name="rate")), []
        for k in (1, 2):
            images = tf.random.uniform([32, 784], name=f"data/{k}")
            labels = tf.zeros([32], tf.int32, f"data/labels{k}")
            with tf.device(f"{me}/cpu:{k}"):
                cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
                loss = tf.reduce_mean(cross_entropy(labels, images @ weights))
                towers.append(optimizer.compute_gradients(loss, [weights]))
        with tf.name_scope("average"):
            averaged = average(towers)
        train = optimizer.apply_gradients(averaged)
        hooks, told = [together(chief)], tf.RunMetadata()
        with tf.train.MonitoredTrainingSession(server.target, chief, hooks=hooks) as session:
            full = tf.RunOptions.FULL_TRACE
            options = tf.RunOptions(trace_level=full, output_partition_graphs=True)
            session.run(train)
            session.run(train, options=options, run_metadata=told)
        moves = graphs.moves(told, tf.get_default_graph())
        return {"placed": graphs.placed(told.partition_graphs), "moves": moves}

# %%
lab.predict(
    "sent", "A worker has two devices, the weights are 31.36 kB. How many kB of weights does the server send it in a step?",
    "kB",
)

# %%
def follow(cached):
    way = {"cluster": Cluster(worker=2, ps=1), "logical_devices": 3}
    return launch(host_and_devices, args=(average_tower_gradients, cached), **way)

plain = follow(cached=False)
figures.route(
    told(plain, "moves"), "Worker 0, one step: how often do the weights cross the network?"
)

# %%
def from_the_server(run):
    """kB that the server sends in the step; None where the exercise is not written yet."""
    if run.state == "done":
        sent = [move.size_bytes for move in run[0]["moves"] if move.src.startswith("ps")]
        return sum(sent) / 1e3

lab.measure("sent", from_the_server(plain))

# %% [markdown]
# Both devices asked the server, and the same bytes crossed the network twice. The remedy is one word,
# `caching_device`: the weights are fetched once, to the host, and go on from there. On the way back the average does
# the same for the gradients: the host averages first, and then sends one gradient.

# %%
cached = follow(cached=True)
figures.route(told(cached, "moves"), "Worker 0, one step, cached: and now?")

# %%
if cached.state == "done":
    without_it, with_it = from_the_server(plain), from_the_server(cached)
    print(f"weights from the server: {without_it:.2f} kB without the cache,", end=" ")
    print(f"{with_it:.2f} kB with it")

answer = None
if cached.state == "done":
    kinds = {name: set(row["operations"]) for name, row in cached[0]["placed"].items()}
    server = kinds.pop("ps 0, CPU:0")
    others = set().union(*kinds.values()) - server
    answer = f"the server: {' and '.join(sorted(server))}; worker 0: {len(others)} other kinds"
figures.placement(
    told(cached, "placed"),
    figures.answered("The same step: what did worker 0 and the server run for it?", answer),
)

# %% [markdown]
# This is the path of every step with a parameter server, with GPUs as with logical devices: server → CPU → device →
# CPU → server. Four transfers, two of them over the network, which is the slowest. Mind also what the server does: it
# holds the variables *and* applies the gradients, so the update operations run there. The averaged gradient comes with a
# tiny companion, the learning rate.

# %% [markdown]
# ## From one machine to several
#
# Here is a script for one machine. `regression` builds the graph; a `MonitoredTrainingSession` fills the variables and
# runs until a hook says stop. A batch has eight rows. Computing with eight rows takes microseconds, so we add **declared
# compute**: each gradient also waits a set time, without burning a core. So workers on a small machine do not disturb each
# other, and we decide who is slow.

# %% [markdown]
# Three terms first. A **hook** is an object that a session calls at fixed moments: at its beginning, before and after each
# run, at its end. A **control dependency** says that an operation waits for others, though it takes nothing from them;
# without one, a run skips whatever it does not need. `numpy_function` puts a Python function into the graph. Here are the
# first two.

# %%
def three_runs(held):
    import tensorflow.compat.v1 as tf

    class Counts(tf.train.SessionRunHook):
        def after_run(self, context, values):
            calls.append("after_run")

    calls, found = [], []
    with tf.Graph().as_default():
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        change = weight.assign_add(1.0)
        with tf.control_dependencies([change] if held else []):
            read = weight.read_value()
        with tf.train.MonitoredTrainingSession(hooks=[Counts()]) as session:
            for _ in range(3):
                found.append(float(session.run(read)))
    return found, len(calls)

# %%
lab.predict("held", "`read` runs three times, without the control dependency: what does it return the last time?", "")

# %%
without, _ = launch(three_runs, args=(False,))[0]
with_it, calls = launch(three_runs, args=(True,))[0]
lab.measure("held", without[-1])
print(f"without the control dependency: {without}; with it: {with_it};", end=" ")
print(f"the hook was called {calls} times")

# %% [markdown]
# Now the graph. Every `control_dependencies` below fixes a moment: the weights are read, *then* the worker takes its time,
# *then* rows are chosen; and only after the update are the weights read again.

# %%
def regression(is_chief=True, updates=60, work_s=(0.03,), sync=False, rows=8):
    """Builds the graph. Returns what a step fetches, and the session's hooks."""
    import tensorflow.compat.v1 as tf

    # alone there is no TF_CONFIG
    me = json.loads(os.environ["TF_CONFIG"])["task"]["index"] if len(work_s) > 1 else 0
    version = tf.train.get_or_create_global_step()  # counts updates, on the server too
    weights = tf.get_variable("weights", [x.shape[1]], initializer=tf.zeros_initializer())
    base, read, began_s = tf.identity(version), tf.identity(weights), tf.timestamp()  # once
    with tf.control_dependencies([base, read, began_s]):
        pause = tf.numpy_function(lambda: time.sleep(work_s[me]), [], [])
    with tf.control_dependencies([pause]):
        chosen = tf.random.uniform([rows], 0, len(x), tf.int32, seed=1 + me)
    errors = tf.linalg.matvec(tf.gather(x, chosen), read) - tf.gather(y, chosen)
    loss = tf.reduce_mean(errors**2) / 2
    optimizer, hooks = optimizer_and_hooks(is_chief, sync, len(work_s))
    train = optimizer.apply_gradients([(tf.gradients(loss, read)[0], weights)], version)
    with tf.control_dependencies([train]):
        after = [version.read_value(), tf.timestamp(), weights.read_value()]
    return [base, began_s, *after], [tf.train.StopAtStepHook(last_step=updates), *hooks]

def optimizer_and_hooks(is_chief, sync, workers):
    import tensorflow.compat.v1 as tf

    optimizer = tf.train.GradientDescentOptimizer(0.1)
    hooks = [together(is_chief)] if workers > 1 else []
    if sync:
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, workers)
        hooks.append(optimizer.make_session_run_hook(is_chief, num_tokens=0))  # no head start
    return optimizer, hooks

# %%
def one_machine(build):
    import tensorflow.compat.v1 as tf

    diary = []
    with tf.Graph().as_default():
        fetches, hooks = build()
        with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                diary.append(session.run(fetches))
    return diary

build = functools.partial(regression, updates=updates, work_s=(work_s,))
alone = launch(one_machine, args=(build,)).results
losses = f"{excess(0 * best):.2f}, at the end {excess(alone[0][-1][-1]):.4f}"
print(f"{len(alone[0])} steps; loss above the lowest: {losses}")

# %% [markdown]
# A row of the diary says of a step which version of the weights it read, and when; which version it left behind, and when;
# and the weights after it. Now move it to a cluster. The script stays; three things are new. The worker starts its
# **server**; it builds the graph under a **device setter**; and its session goes to its own server, with one worker as the
# **chief**, which alone fills the variables.

# %% [markdown]
# The hooks that `build` returns do the rest. One stops each worker once the weights have reached a given version. Another,
# `together`, makes the workers wait for the chief to fill the variables, and for each other at the start and at the end.
#
# `stop_grace_period_secs` is how long a session waits at its end for helper threads: two minutes by default. The thread of
# synchronous training does not end by itself. A session that would hang there is stopped by `together`, which says what to
# do.
#
# <details><summary>Hint 1</summary><code>tf.train.Server(jobs, job_name=…, task_index=…)</code>, where jobs is
# <code>config["cluster"]</code> and the index <code>config["task"]["index"]</code>.</details>
# <details><summary>Hint 2</summary><code>tf.train.replica_device_setter(cluster=jobs, worker_device=…)</code>, to be
# used in <code>with tf.device(…)</code>; the device of a worker begins with <code>/job:worker/task:</code>.</details>
# <details><summary>Hint 3</summary><code>tf.train.MonitoredTrainingSession(master=server.target, is_chief=…, hooks=…,
# stop_grace_period_secs=…)</code>. The loop is the one in <code>one_machine</code>.</details>

# %% tags=["exercise:between_graph"]
# Exercise 7.4: a between-graph worker
def between_graph(config, build):
    """One worker: its server, the graph of build(is_chief) with variables spread over all ps,
    and steps until the session stops.

    config is TF_CONFIG, parsed; worker 0 is the chief. build returns (fetches, hooks). Wait at
    most 2 s for threads. Returns what each step fetched, as a list.
    """
    import tensorflow.compat.v1 as tf

    diary = []
    with tf.Graph().as_default():
        ### BEGIN SOLUTION
        jobs, index = config["cluster"], config["task"]["index"]
        server, chief = tf.train.Server(jobs, job_name="worker", task_index=index), index == 0
        setter = tf.train.replica_device_setter(
            cluster=jobs, worker_device=f"/job:worker/task:{index}"
        )
        with tf.device(setter):
            fetches, hooks = build(is_chief=chief)
        settings = {"is_chief": chief, "hooks": hooks, "stop_grace_period_secs": 2}
        with tf.train.MonitoredTrainingSession(server.target, **settings) as session:
            while not session.should_stop():
                diary.append(session.run(fetches))
        ### END SOLUTION
    return diary

# %% tags=["check:between_graph"] points=2
check.between_graph(between_graph)

# %% [markdown]
# ## Asynchronous
#
# Two workers, each at its own pace. A worker reads the weights, takes its time, and sends a gradient; the server applies
# it at once. Nobody waits for anybody. The work of one gradient takes as long as on one machine.

# %%
lab.predict("async", "2 workers, asynchronous: how many times the examples/sec of one machine do they reach?", "times")

# %%
# Helper: start workers and servers, and read their diaries
def a_worker(worker, build):
    return worker(json.loads(os.environ["TF_CONFIG"]), build)

def distributed(sync, work_s, updates=updates):
    """The diaries of two workers; None where the exercise is not written yet."""
    build = functools.partial(regression, updates=updates, work_s=work_s, sync=sync)
    run = launch(a_worker, args=(between_graph, build), cluster=Cluster(worker=2, ps=1))
    return run.results[:2] if run.state == "done" else None

def examples_per_s(diaries, rows=8):
    """Rows that all workers worked through, over the time from the first start to the last end."""
    if diaries is None:
        return None
    steps = [step for diary in diaries for step in diary]
    return rows * len(steps) / (max(step[3] for step in steps) - min(step[1] for step in steps))

def times(one, other):
    return one / other if one and other else None

# %%
asynchronous = distributed(sync=False, work_s=(work_s, work_s))
lab.measure("async", times(examples_per_s(asynchronous), examples_per_s(alone)))

# %%
if asynchronous:
    first, second = ([int(step[2]) for step in diary[:8]] for diary in asynchronous)
    ages = [step[2] - step[0] - 1 for diary in asynchronous for step in diary]
    print(f"versions left behind, worker 0: {first} …, worker 1: {second} …")
    between = "came in between reading the weights and changing them"
    print(f"mean staleness: {np.mean(ages):.2f} updates {between}")

# %% [markdown]
# Both workers count the same versions, since `global_step` is a variable on the server too. How near do twice the workers
# come to twice the examples? The price is **staleness**: while one worker computes, the other changes the weights. Two
# workers that are alike take turns, so you may expect one update in between (lab 05 counts it for more workers).

# %% [markdown]
# ## Synchronous
#
# `SyncReplicasOptimizer` wraps any optimizer. Gradients are collected on the server, in an accumulator. When there are
# enough of them, the chief's helper thread averages and applies them, and puts a *token* for each worker into a queue.
# A worker begins its next step when it has its token. A gradient of an old version is thrown away.

# %%
lab.predict("sync", "2 workers, synchronous: how many times the updates/sec of one machine do they reach?", "times")

# %%
def updates_per_s(diaries):
    """Versions that came, over the time from the first start to the last end."""
    steps = [step for diary in diaries or [] for step in diary]
    if not steps:
        return None
    _, began_s, versions, ended_s, *_ = zip(*steps)
    return max(versions) / (max(ended_s) - min(began_s))

synchronous = distributed(sync=True, work_s=(work_s, work_s))
lab.measure("sync", times(updates_per_s(synchronous), updates_per_s(alone)))

# %%
def descent(name, diaries):
    if diaries is None:
        return figures.Descent(name, None)
    steps = sorted((step for diary in diaries for step in diary), key=lambda step: step[3])
    begin_s = min(step[1] for step in steps)
    points = [(int(s[2]), s[3] - begin_s, excess(s[4])) for s in steps]
    return figures.Descent(name, [(0, 0.0, excess(0 * best)), *points])

def late_loss(diaries):
    """The mean loss above the lowest over the second half of the steps."""
    return np.mean([excess(step[4]) for diary in diaries for step in diary[len(diary) // 2 :]])

rows = {"one machine": alone, "asynchronous": asynchronous, "synchronous": synchronous}
falls, answer = [descent(name, diaries) for name, diaries in rows.items()], None
if all(rows.values()):
    ends = ", ".join(f"{max(point[1] for point in fall.points):.2g}" for fall in falls)
    losses = ", ".join(f"{late_loss(diaries):.2g}" for diaries in rows.values())
    answer = f"after {ends} s; mean late loss {losses}"
figures.descents(
    falls,
    figures.answered(
        f"{updates} updates, on one machine and with two workers: when are they done,"
        " and how low is the loss?",
        answer,
    ),
    y="loss above the lowest",
)

# %% [markdown]
# On the left, loss against updates; on the right, against seconds. Which curves fall alike on the left? At the end each may
# hover at a height of its own: every update is noisy, since it saw only a few rows. So read the title's late loss, the mean
# over the second half of the steps, and not the last point. A synchronous update is the mean over both workers' rows, twice as
# many. On the right: which run is done first?

# %%
def show(rows):
    for name, diaries in rows.items():
        speeds = "not yet"
        if diaries:
            speeds = f"{examples_per_s(diaries):4.0f} examples/s"
            speeds += f", {updates_per_s(diaries):3.0f} updates/s"
        print(f"{name:>22}: {speeds}")

show(rows)
for name, diaries in rows.items():
    if diaries:
        late = late_loss(diaries)
        print(f"{name:>22}: loss above the lowest, mean of the second half: {late:.3f}")

# %% [markdown]
# Compare examples/s first: does each way of using two workers come out ahead of one machine? Then compare updates/s. For a
# synchronous update gradients and tokens travel, and both workers wait for the later one: what does that cost? But each
# synchronous update holds the rows of both workers.

# %% [markdown]
# ### One slow worker
#
# Now worker 1 takes longer for each gradient, as a busy machine would. Asynchronously, worker 0 goes on at its own pace.
# Synchronously, nobody gets a token before the slow one is done.

# %%
lab.predict(
    "slow", f"Worker 1 takes {slow} times as long. Asynchronous reaches how many times synchronous's examples/sec?", "times"
)

# %%
uneven = (work_s, slow * work_s)
rows = {
    f"{name}, one slow": distributed(name == "synchronous", uneven, updates // 2)
    for name in ("asynchronous", "synchronous")
}
show(rows)
lab.measure("slow", times(*map(examples_per_s, rows.values())))

# %%
for name, diaries in rows.items():
    for worker, diary in enumerate(diaries or []):
        age = np.mean([step[2] - step[0] - 1 for step in diary])
        print(f"{name}: worker {worker} made {len(diary)} gradients, mean staleness {age:.1f}")
figures.predicted(lab, ["async", "sync", "slow"])

# %% [markdown]
# Synchronously, each worker waits for its token. So both make as many gradients, none of them is stale, and the slow worker
# sets the pace. Asynchronously, nobody is held up; but the quick worker's rows count more often, and the slow worker's
# gradients are old when they come. Do the lines above show all of this?
#
# **In one sentence:** when would you still choose the synchronous one?
#
# <details><summary>Compare</summary>When the workers are alike, as GPUs of one kind are. Then little time is lost in
# waiting, a synchronous step is that of one large batch, and a run can be repeated and reasoned about.</details>

# %% [markdown]
# ## What is gone, and what came of it
#
# Old tutorials wrap all of this in an *Estimator*, which read `TF_CONFIG` and ran workers and servers by itself. What
# does today's TensorFlow say about it?

# %%
def what_is_left():
    import tensorflow as tf

    def ask(name):
        try:
            functools.reduce(getattr, name.split("."), tf)
            return "there"
        except AttributeError as error:
            return f"gone: {error}"

    names = ("estimator", "contrib", "Session", "compat.v1.estimator", "compat.v1.Session",
             "compat.v1.train.replica_device_setter", "compat.v1.train.SyncReplicasOptimizer",
             "distribute.Server")
    return {name: ask(name) for name in names}

for name, words in launch(what_is_left)[0].items():
    print(f"tf.{name:<42} {words}")

# %% [markdown]
# Estimator is gone, and with it the scripts of many tutorials. `TF_CONFIG`, servers and jobs live on, and so does each
# idea of this lab, under another name:
#
# | by hand | in `tf.distribute` |
# | --- | --- |
# | towers, variables on the CPU | `CentralStorageStrategy` |
# | towers, variables on every device | `MirroredStrategy` |
# | synchronous workers | `MultiWorkerMirroredStrategy` |
# | asynchronous workers and servers | `ParameterServerStrategy` |

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Abadi and others, *TensorFlow: a system for large-scale machine learning* (OSDI 2016): graphs,
# placement, parameter servers, and why synchronous training with backup workers came back. Dean and others, *Large scale
# distributed deep networks* (NIPS 2012): the asynchronous ancestor, DistBelief. Chen and others, *Revisiting distributed
# synchronous SGD* ([arXiv:1604.00981](https://arxiv.org/abs/1604.00981), 2016), from which `SyncReplicasOptimizer` came.
# Krizhevsky, *One weird trick for parallelizing convolutional neural networks*
# ([arXiv:1404.5997](https://arxiv.org/abs/1404.5997), 2014).
