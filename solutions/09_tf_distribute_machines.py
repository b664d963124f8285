# %% [markdown]
# # Lab 09. tf.distribute across machines
#
# **After this lab you are able to** write `TF_CONFIG`, to train with several workers so that the weights are those of
# one machine, to share out data between workers, to run a parameter server that survives lost workers and a lost
# server, to find updates that got lost without a word, and to say which of all this works today.
#
# **Minutes:** 145 (two sittings: 55 up to “A parameter server and its coordinator”, then 90) · **Points:** 6 · **Prerequisites:**
# Labs 05 and 08 (replicas, custom training loops, stale updates).

# %% [markdown]
# ![With a partitioner: does each server have its share now? Ps 0, CPU:0 and ps 1, CPU:0 tie: 32.3 kB …](../labs/covers/09.png)

# %%
# Set-up: the tools of this lab
import json
import os
import tempfile
import threading
import time

import numpy as np

from worldsize.notebook import *
from worldsize.tf import Cluster, first_words, launch, support, warm, worker_devices

# %% tags=["parameters"]
device = "cpu"
workers = 2
closures = 200
updates = 300
column = "loop, Keras 3"

# %%
lab, check = open_lab("09")
warm()  # TensorFlow is being imported, elsewhere, while you read

# %% [markdown]
# ## Who is who
#
# Lab 08 had several devices in one process. A second machine means a second process, and nobody tells it who the others
# are. TensorFlow reads that from one environment variable, `TF_CONFIG`, which *you* set on every machine before the
# program starts. All machines run the same program; only the variable differs from machine to machine.

# %%
lab.predict("texts", "1 chief, 2 workers, 1 parameter server: how many different values does TF_CONFIG have?", "texts")

# %%
def who_am_i():
    return os.environ["TF_CONFIG"]

run = launch(who_am_i, cluster=Cluster(chief=1, worker=2, ps=1), servers=())
lab.measure("texts", len(set(run.results)))
print(json.dumps(json.loads(run["worker:1"]), indent=1))

# %% [markdown]
# The part `cluster` is the same everywhere: all addresses, sorted by **type**. A *chief* is a worker that also writes logs
# and checkpoints (files with the weights, from which training can go on). *Workers* compute. A *ps*, parameter server,
# holds variables. The part `task` differs: it says which of these tasks this process is. The index counts within the
# task's own type, from 0.

# %% [markdown]
# In this course `launch` writes the variable. A scheduler such as Slurm gives you less: a list of hosts, and your place
# in this list, which is your rank. Write the text of `TF_CONFIG` from these two. Leave the caller's list as it is.
#
# <details><summary>Hint 1</summary>Cut the list into three with slices. First find where the servers begin:
# <code>len(hosts) - ps</code>. With <code>ps=0</code>, <code>hosts[-ps:]</code> is not what you want.</details>
# <details><summary>Hint 2</summary>An environment variable holds text: <code>json.dumps(…)</code>.</details>

# %% tags=["exercise:cluster_config"]
# Exercise 9.1: TF_CONFIG
def cluster_config(hosts, ps, rank):
    """The text of TF_CONFIG for the process on hosts[rank], such as "node7:2222".

    hosts[0] is the chief, the last `ps` hosts are parameter servers, the ones between are workers, perhaps none.
    """
    ### BEGIN SOLUTION
    servers = len(hosts) - ps
    cluster = {"chief": hosts[:1], "worker": hosts[1:servers], "ps": hosts[servers:]}
    for kind, addresses in cluster.items():
        if hosts[rank] in addresses:
            task = {"type": kind, "index": addresses.index(hosts[rank])}
    return json.dumps({"cluster": cluster, "task": task})
    ### END SOLUTION

# %% tags=["check:cluster_config"] points=1
check.cluster_config(cluster_config)

# %% [markdown]
# Does TensorFlow read what you meant? Each of four processes overwrites its variable with your text and asks
# TensorFlow's *resolver*, which every strategy uses.

# %%
def resolved(task):
    import tensorflow as tf

    hosts = [host for addresses in task.cluster.values() for host in addresses]
    os.environ["TF_CONFIG"] = cluster_config(hosts, 1, task.rank)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return f"I am {resolver.task_type} {resolver.task_id}; all: {resolver.cluster_spec().as_dict()}"

run = launch(resolved, cluster=Cluster(chief=1, worker=2, ps=1), servers=())
print("\n".join(f"{task:9} {said}" for task, said in zip(run.tasks, run.results or ())) or "nothing yet")

# %% [markdown]
# What if a machine on the list is missing? Below, worker 1 ends at once and never builds a strategy. Before you run
# it: will worker 0 raise an error?

# %%
def alone(task):
    import tensorflow as tf

    if task.index == 0:
        tf.distribute.MultiWorkerMirroredStrategy()

try:
    launch(alone, cluster=Cluster(worker=2), timeout_s=4)
except RunTimedOut as error:
    print("\n".join(str(error).splitlines()[:2]))

# %% [markdown]
# It waits, without a word; here the course's time limit ended it. A wrong address or a blocked port looks just the
# same. Give every job a time limit.

# %% [markdown]
# ## The same step on two machines
#
# `MultiWorkerMirroredStrategy` is lab 08's mirrored strategy across processes: every worker holds all weights, takes
# its part of the batch, and an all-reduce adds up the gradients. Synchronous training on several machines must give the
# weights of *one* machine. So here is one machine, in NumPy: linear regression, one step for each batch of eight.

# %%
x = np.random.default_rng(9).normal(size=(48, 3)).astype("float32")
y = x @ np.array([[1], [-2], [3]], "float32")
GLOBAL_BATCH, RATE = 8, 0.1

# %%
# Helper: a judge: the same training on one machine
def one_machine(epochs=1):
    """The weights after every step."""
    w, path = np.zeros((3, 1)), []
    for start in [*range(0, len(x), GLOBAL_BATCH)] * epochs:
        part, truth = x[start : start + GLOBAL_BATCH], y[start : start + GLOBAL_BATCH]
        w = w - RATE * 2 / GLOBAL_BATCH * part.T @ (part @ w - truth)
        path.append(w)
    return path

def off(path):
    """Distance from one machine's path after every step; past its last step, from where it ended."""
    one = one_machine()
    return [float(np.abs(w - one[min(k, len(one) - 1)]).max()) for k, w in enumerate(path)]

# %% [markdown]
# And here are the workers. This is a custom loop as in lab 08, with the loss divided by the *global* batch. Only the
# strategy is new. `communication` chooses who carries the all-reduce: `RING` is TensorFlow's own, over gRPC (function
# calls in another process, over the network), `NCCL` is NVIDIA's, between GPUs, and `AUTO` leaves the choice to
# TensorFlow.

# %%
def mirrored(communication="AUTO"):
    import tensorflow as tf

    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(implementation=kinds[communication])
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

def step_of(strategy, w):
    """One step of gradient descent on all replicas together, given this worker's part of a global batch."""
    import tensorflow as tf

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ w - y) ** 2) / GLOBAL_BATCH
        gradient = tape.gradient(loss, w)
        w.assign_sub(RATE * tf.distribute.get_replica_context().all_reduce("sum", gradient))

    return tf.function(lambda batch: strategy.run(replica, batch))

def train(strategy, batches):
    """One pass over the batches of this worker. Returns the weights after every step."""
    import tensorflow as tf

    with strategy.scope():
        w = tf.Variable(tf.zeros((3, 1)))
    step, path = step_of(strategy, w), []
    for batch in batches:
        step(batch)
        path.append(w.numpy())
    return path

# %%
lab.predict("equal", "RING, AUTO and NCCL on machines without a GPU: how many of the three train correctly?", "of 3")

# %%
def global_batches(*arrays):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(arrays or (x, y)).batch(GLOBAL_BATCH)

def shared_out(strategy, batches, policy="DATA"):
    """Global batches, of which the strategy gives each worker its part."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return strategy.experimental_distribute_dataset(batches.with_options(options))

# %%
def reducer(strategy, numbers=1_000_000):
    """A step that adds up a million numbers over all workers, and which kind its graph asks for."""
    import tensorflow as tf

    def reduce():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(numbers))[0]

    step = tf.function(lambda: strategy.run(reduce))
    step()
    graph = step.get_concrete_function().graph.get_operations()
    hints = [op.get_attr("communication_hint").decode() for op in graph if "Collective" in op.type]
    return step, hints[0] if hints else "none: one worker has nobody to ask"

def in_turns(steps, rounds=9):
    """Seconds of each step in each of `rounds`, in which all take their turn."""
    laps = {kind: [] for kind in steps}
    for _ in range(rounds):
        for kind, step in steps.items():
            start = time.monotonic()
            step()
            laps[kind].append(time.monotonic() - start)
    return laps

# %%
def all_kinds(kinds):
    import logging

    from tensorflow.python.eager import context

    logging.getLogger("absl").setLevel("ERROR")  # it warns of several strategies in one process
    strategies = {kind: mirrored(kind) for kind in kinds}  # before any other operation of TensorFlow
    context.context().wait_at_barrier("all strategies", 60_000)  # each opens the collectives anew: nobody may be ahead
    paths = {kind: train(s, shared_out(s, global_batches())) for kind, s in strategies.items()}
    made = {kind: reducer(s) for kind, s in strategies.items()}
    seconds = in_turns({kind: step for kind, (step, _) in made.items()})
    return {kind: (paths[kind], seconds[kind], made[kind][1]) for kind in kinds}

hide = {"CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {}
run = launch(all_kinds, args=(["RING", "AUTO", "NCCL"],), cluster=Cluster(worker=workers), env=hide)
kinds = run["worker:0"]
lab.measure("equal", sum(off(path)[-1] < 1e-5 for path, *_ in kinds.values()))
for kind, (path, _, hint) in kinds.items():
    print(f"{kind}: asks for {hint!r}; weights off NumPy's by at most {max(off(path)):.0e}")
print("\n".join(line for line in run.log("worker:0").splitlines() if "NCCL" in line))

# %%
figures.race(
    [
        figures.Timing(kind, float(np.median(laps)), group=f"{workers} workers, 4 MB", repeats_s=laps)
        for kind, (_, laps, _) in kinds.items()
    ],
    "Three names: is one faster?",
)

# %% [markdown]
# All three end at the right weights. They took turns, lap by lap, so that a busy moment hits all of them. Do their lines
# overlap? Here all three names lead to the same ring. Without GPUs `NCCL` is not refused: TensorFlow writes one line into a
# log and takes its own ring. So a job meant for fast links may run over slow ones for weeks, with right results. Measure,
# and read the log. (In lab 08 Mirrored with NCCL raised an error on CPUs: two strategies, two habits.)

# %% [markdown]
# ## Which worker takes which examples
#
# Every worker runs the same program and so opens the same data. Somebody must share them out. The strategy does it by a
# **policy**. With `DATA` every worker reads all and keeps its part; with `FILE` every worker takes some of the files;
# `AUTO` goes by file if there are enough, else by data. With `OFF` nobody shares the data out. But under each policy, `OFF`
# too, the strategy takes your batches for global ones: it divides their size by the number of workers.

# %%
lab.predict("off_steps", "12 examples, global batch 4, two workers, policy OFF: steps in an epoch?", "steps")

# %%
def numbers_in_two_files(folder):
    """A data set of the numbers 0 to 11, in batches of 4, from a file with 0 to 5 and one with 6 to 11."""
    import tensorflow as tf

    folder.mkdir()
    files = [folder / f"{k}.txt" for k in range(2)]
    for k, file in enumerate(files):
        file.write_text("\n".join(str(6 * k + n) for n in range(6)))
    return tf.data.TextLineDataset([str(file) for file in files]).map(lambda line: tf.strings.to_number(line, tf.int32)).batch(4)

def taken(task, policies):
    strategy, found = mirrored(), {}
    numbers = numbers_in_two_files(task.dir / f"worker{task.index}")
    for name in policies:
        data = shared_out(strategy, numbers, name)
        found[name] = [strategy.experimental_local_results(batch)[0].numpy().tolist() for batch in data]
    return found

# %%
run = launch(taken, args=(["DATA", "FILE", "AUTO", "OFF"],), cluster=Cluster(worker=2))
policies = {name: [run[worker][name] for worker in range(2)] for name in run[0]}
lab.measure("off_steps", len(policies["OFF"][0]))
figures.shares(policies, "Under which policy does an example come twice?")

# %% [markdown]
# A box is a step of one worker; two boxes, one above the other, are one global batch. With `DATA` it is the batch
# that one machine would take. With `FILE` every example comes once, in different company. With `OFF` both workers
# take the *same* two examples of a global batch of four: each counts twice, and the other two come a step later. So an
# epoch has twice the steps. No error is raised.

# %% [markdown]
# `OFF` has its use: when your own code shares the data out, for example because it reads from a stream. Write this code
# now. Two things matter. In each step the workers together must take exactly the global batch. And all workers must have
# the same number of steps. Otherwise a loop of your own waits in its all-reduce for ever; the strategy's iterator hands an empty
# batch to the worker that has no more, and the step is smaller without a word.
#
# <details><summary>Hint 1</summary><code>dataset.batch(n, drop_remainder=True)</code> leaves out an incomplete batch.</details>
# <details><summary>Hint 2</summary>Cut global batches first, then take a slice of each:
# <code>dataset.map(lambda *arrays: …)</code> gets the arrays of a batch, <code>a[index::workers]</code> takes rows
# at equal distances.</details>

# %% tags=["exercise:worker_share"]
# Exercise 9.2: a worker's share of every batch
def worker_share(dataset, global_batch, workers, index):
    """A tf.data.Dataset: at step k this worker's global_batch // workers examples of global batch k.

    `dataset` gives single examples (x, y), x a number or an array, and may have an unknown length. An incomplete last global
    batch is left out; a whole one divides evenly among the workers.
    """
    ### BEGIN SOLUTION
    def part(*arrays):
        return tuple(array[index::workers] for array in arrays)

    batches = dataset.batch(global_batch, drop_remainder=True)
    return batches.map(part)
    ### END SOLUTION

# %% tags=["check:worker_share"] points=1.5
check.worker_share(worker_share)

# %% [markdown]
# Now train: once with `OFF`, once with `DATA`, once with yours. Each worker builds its own data set through
# `distribute_datasets_from_function`, which tells it how many workers there are and which one it is.

# %%
lab.predict("wrong", "A whole epoch with OFF: how far from one machine's end is the furthest weight?", "")

# %%
def with_policies(names):
    strategy = mirrored()
    return {name: train(strategy, shared_out(strategy, global_batches(), name)) for name in names}

def with_yours():
    import tensorflow as tf

    strategy, data = mirrored(), tf.data.Dataset.from_tensor_slices((x, y))

    def share(context):
        return worker_share(data, GLOBAL_BATCH, context.num_input_pipelines, context.input_pipeline_id)

    return train(strategy, strategy.distribute_datasets_from_function(share))

# %%
paths = launch(with_policies, args=(["OFF", "DATA"],), cluster=Cluster(worker=workers))[0]
run = launch(with_yours, cluster=Cluster(worker=workers))
paths["yours"] = run[0] if run.state == "done" else None
lab.measure("wrong", off(paths["OFF"])[-1])
print({name: f"{len(path)} steps" if path else "not yet" for name, path in paths.items()})

# %%
for name in ("one machine", *paths):
    end = one_machine()[-1] if name == "one machine" else paths[name] and paths[name][-1]
    if end is not None:
        print(f"{name:11}  ends {np.abs(end - [[1], [-2], [3]]).max():.3f} from the weights that made the data")

# %%
figures.histories(
    {name: path and off(path) for name, path in paths.items()},
    "Whose weights are those of one machine?", y="distance from one machine's path", log=True, rounding=1e-5,
)

# %% [markdown]
# Which lines stay below the dotted one, float32's rounding? `OFF` needs twice the steps for an epoch, since each worker uses
# every example once. Which ends nearer to the weights that made the data? On an easy problem twice the steps may help. The
# loss of `OFF` goes down too, so nobody notices: it is a different training from the one you wrote.
#
# **In one sentence:** when would you prefer `FILE`, although its batches differ?
#
# <details><summary>Compare</summary>When reading takes most of the time: with DATA every worker reads and decodes all
# files, and keeps only its share.</details>

# %% [markdown]
# ## Several devices in each worker
#
# A real machine often has four or eight GPUs. The strategy makes a **replica** of every GPU of every worker: its number
# of replicas is workers times devices, and one all-reduce runs over all of them. Without GPUs a worker is one replica,
# however many logical CPUs (lab 08) it is split into. The course's `use_logical_cpus` makes the strategy count those, so
# that we can see it here.

# %%
lab.predict("a_replica", "Global batch 8, 2 workers of 2 devices each: how many examples does a replica get?", "examples")

# %%
def replicas(count_cpus):
    """How many replicas; the examples of every step on this worker, by device; the weights after every step."""
    if count_cpus:
        worker_devices.use_logical_cpus()
    strategy = mirrored()

    taken = {}
    for (numbers,) in shared_out(strategy, global_batches(np.arange(len(x)))):
        for part in strategy.experimental_local_results(numbers):
            taken.setdefault(part.device[-5:], []).append(part.numpy().tolist())
    return strategy.num_replicas_in_sync, taken, train(strategy, shared_out(strategy, global_batches()))

pair = Cluster(worker=2)
for count_cpus in (False, True):
    run = launch(replicas, args=(count_cpus,), cluster=pair, logical_devices=2)
    print(f"{'logical CPUs counted' if count_cpus else 'GPUs counted'}: {run[0][0]} replicas")
    for worker, (_, taken, path) in enumerate(run.results):
        for where, steps in taken.items():
            print(f"  worker {worker}, {where}: first step {steps[0]}, second step {steps[1]}")
        print(f"  worker {worker}: weights off one machine's by at most {max(off(path)):.0e}")
lab.measure("a_replica", len(run[0][1]["CPU:0"][0]))

# %% [markdown]
# Look at the numbers: a global batch is cut into one piece for each replica, and the pieces are dealt out to the
# workers in turn. The weights stay those of one machine. So "batch size" has three meanings: a replica's, a worker's, the
# global one. `experimental_distribute_dataset` wants batches of the global size and cuts them itself. To
# `distribute_datasets_from_function` you hand batches of one *replica's* size: here a worker has one replica, so this is also its
# own. In both cases divide the summed loss by the global batch size.

# %% [markdown]
# ## A mirrored worker is lost
#
# Every worker holds all weights, so none are lost with it. But the others need its gradient in every step. Here
# worker 1 is killed before step 13 of 30. When does worker 0 notice? What if a new worker 1 is started? Are the weights
# at the end those of a quiet run?

# %% [markdown]
# First, saving. *Every* worker calls `save`, since saving may communicate: a variable that each replica adds to by
# itself, such as a count of examples, is summed over all workers when it is saved. But two workers must not write to one
# file. So worker 0, which is the chief if no task is named so, writes to the real folder. Each other worker writes to a
# folder that nobody reads.

# %%
def resumed(strategy, task, folder):
    """Variables, as the newest checkpoint in `folder` has them if there is one, and a manager that saves them."""
    import tensorflow as tf

    with strategy.scope():
        state = {"w": tf.Variable(tf.zeros((3, 1))), "step": tf.Variable(0)}
    checkpoint = tf.train.Checkpoint(**state)
    if newest := tf.train.latest_checkpoint(folder):
        checkpoint.restore(newest)

    mine = folder if task.rank == 0 else task.dir / f"not used {task.rank}"
    return state, tf.train.CheckpointManager(checkpoint, str(mine), max_to_keep=2)

def train_saving(task, folder, accident=None, steps=30, every=5):
    """30 steps, a checkpoint after every 5. Returns the step that it began after, and the weights at the end."""
    strategy = mirrored()
    (task.dir / f"worker {task.index} has its strategy, attempt {task.attempt}").touch()
    state, manager = resumed(strategy, task, folder)
    first, step = int(state["step"].numpy()), step_of(strategy, state["w"])
    batches = global_batches().repeat().skip(first)  # the data go on where they were, too
    for k, batch in zip(range(first, steps), shared_out(strategy, batches)):
        if accident and k == 12:
            accident()
        step(batch)
        state["step"].assign(k + 1)
        if (k + 1) % every == 0:
            manager.save()
    return first, state["w"].numpy()

# %%
def struck(task, folder, what):
    """Worker 0 kills or restarts worker 1, then goes on: its error, after how many seconds, and is a new worker 1 in?"""
    import tensorflow as tf

    began = []

    def accident():
        getattr(task, what)("worker", 1)
        began.append(time.monotonic())

    try:
        train_saving(task, folder, accident if task.rank == 0 else None)
    except tf.errors.OpError as error:
        noticed = time.monotonic() - began[0]
        if what == "restart":
            time.sleep(2)
        there = (task.dir / "worker 1 has its strategy, attempt 1").exists()
        task.kill("worker", 1)
        return type(error).__name__, noticed, " ".join(error.message.partition(": ")[2].split())[:150], there

# %%
folders = {what: tempfile.mkdtemp() for what in ("kill", "restart", "quiet")}
for what in ("kill", "restart"):
    name, seconds, words, there = launch(struck, args=(folders[what], what), cluster=pair, timeout_s=90)[0]
    print(f"{what} worker 1: after {seconds:.2f} s worker 0 gets {name}: {words} …")
print(f"2 s later, has the new worker 1 got its strategy? {there}")

# %% [markdown]
# A closed connection shows at once. A silent worker shows only when its *heartbeats*, small messages that say "I am here",
# have been missing for a while. It is chance which of the two comes first. A new worker 1 alone is no help: every process
# draws a number at its start, its *incarnation*, and the cluster was made with the old one. So the new worker waits in the
# strategy's constructor. **All** must start again, from the checkpoint. Slurm or Kubernetes does that, or the cell below.

# %%
lab.predict("again_at", "Killed before step 13, saved after every 5, all started again: which step is then the first?", "")

# %%
quiet = launch(train_saving, args=(folders["quiet"],), cluster=pair)[0]
again = launch(train_saving, args=(folders["kill"],), cluster=pair)[0]
lab.measure("again_at", again[0] + 1)
for name, (first, w) in {"quiet": quiet, "killed, all started again": again}.items():
    print(f"{name}: steps {first + 1} to 30, weights {w.ravel().tolist()}")
print(f"largest difference: {np.abs(quiet[1] - again[1]).max()}")

# %% [markdown]
# ### If worker 0 alone saves (optional)
#
# With the variables above that does no harm. Here is one of the other kind: each replica adds to its own copy
# (`ON_READ`), and whoever saves needs the sum. First both save, then worker 0 alone.

# %%
def saved_by(task, who):
    """What the checkpoint of each worker in `who` holds of a counter to which every worker has added 1."""
    import tensorflow as tf

    strategy, kind = mirrored(), tf.VariableSynchronization.ON_READ
    with strategy.scope():
        seen = tf.Variable(0.0, synchronization=kind, aggregation=tf.VariableAggregation.SUM)
    tf.function(lambda: strategy.run(lambda: seen.assign_add(1.0)))()
    if task.rank in who:
        path = tf.train.Checkpoint(seen=seen).write(str(task.dir / f"by {task.rank}"))
        return float(tf.train.load_variable(path, "seen/.ATTRIBUTES/VARIABLE_VALUE"))

print("both save:", launch(saved_by, args=([0, 1],), cluster=pair).results)
try:
    print("worker 0 alone saves:", launch(saved_by, args=([0],), cluster=pair, timeout_s=8).results)
except RunTimedOut as error:
    first, second = str(error).splitlines()[:2]
    print("worker 0 alone saves:", first, second.partition(" at ")[0].strip())

# %% [markdown]
# ## Keras' fit on two workers, and an evaluator (optional)
#
# The loop is not always yours. Under `MultiWorkerMirroredStrategy` the `fit` of tf_keras (Keras 2) shares out the
# batches, sums the gradients, and averages the loss that it prints over all workers. `legacy_keras=True` sets the
# variable that chooses it, `TF_USE_LEGACY_KERAS=1`. The same program then runs on one machine, with no strategy.

# %%
lab.predict("losses", "Two workers, each sees half of every batch: how many different losses do they print?", "")

# %%
def compiled(strategy):
    import tensorflow as tf

    with strategy.scope():
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = tf.keras.Sequential([tf.keras.Input((3,)), layer])
        model.compile(optimizer=tf.keras.optimizers.SGD(RATE), loss="mse")
    return model

def fitted(task, epochs=3):
    """The loss of every epoch as `fit` says it, and the weights at the end; or the first words of its error."""
    import tensorflow as tf

    model = compiled(mirrored() if task.cluster else tf.distribute.get_strategy())
    try:
        said = model.fit(global_batches(), epochs=epochs, shuffle=False, verbose=0)
    except ValueError as error:
        return first_words(error), None
    return said.history["loss"], model.get_weights()[0]

# %%
by_itself = launch(fitted, legacy_keras=True)[0]
together = launch(fitted, cluster=pair, legacy_keras=True).results
lab.measure("losses", len({losses[-1] for losses, _ in together}))
for name, (losses, w) in {"one machine": by_itself, "worker 0": together[0], "worker 1": together[1]}.items():
    far = np.abs(w - one_machine(epochs=3)[-1]).max()
    print(f"{name:11}  losses {', '.join(f'{loss:.7f}' for loss in losses)}; weights off NumPy's by {far:.0e}")
print("and Keras 3:", launch(fitted, cluster=pair)[0][0])

# %% [markdown]
# Training reports its own loss; how good is the model on *new* examples? Asking that in the loop makes all workers
# wait. A task of type **evaluator** does it beside them. It is not part of the cluster: it has no address in
# `TF_CONFIG`, takes no part in a collective, and no worker waits for it. It watches the folder of checkpoints, and
# scores what it finds. `checkpoints_iterator` looks once a second.

# %%
lab.predict("scored", "Four epochs of about 1.5 s, a checkpoint after each: how many does the evaluator score?", "of 4")

# %%
new_x = np.random.default_rng(10).normal(size=(200, 3)).astype("float32")
new_y = new_x @ np.array([[1], [-2], [3]], "float32")

def watched(task, folder, pause, epochs=4):
    """All but the evaluator train, and rest for `pause` seconds after an epoch. The evaluator returns its scores by epoch."""
    import tensorflow as tf

    if task.type != "evaluator":
        rest = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(pause))
        keep = tf.keras.callbacks.ModelCheckpoint(f"{folder}/epoch-{{epoch}}", save_weights_only=True)
        compiled(mirrored()).fit(global_batches(), epochs=epochs, shuffle=False, callbacks=[keep, rest], verbose=0)
        return None

    print(f"I am {task.type} {task.index}; TF_CONFIG's cluster has {' and '.join(task.cluster)}")
    model, scores = compiled(tf.distribute.get_strategy()), {}
    for path in tf.train.checkpoints_iterator(folder, timeout=30):
        model.load_weights(path).expect_partial()
        epoch = int(path.rpartition("-")[2])
        scores[epoch] = model.evaluate(new_x, new_y, verbose=0)
        if epoch == epochs:
            break
    return scores

# %%
watching, slow = Cluster(chief=1, worker=1, evaluator=1), 1.5
for pause in (slow, 0.0):
    run = launch(watched, args=(tempfile.mkdtemp(), pause), cluster=watching, legacy_keras=True)
    scores = run["evaluator:0"]
    if pause == slow:
        lab.measure("scored", len(scores))
    print(f"a rest of {pause} s after each epoch: {len(scores)} of 4 scored")
    for epoch, score in scores.items():
        w = one_machine(epochs=epoch)[-1]
        print(f"  epoch {epoch}: {score:.6f}; with NumPy's weights {np.mean((new_x @ w - new_y) ** 2):.6f}")

# %% [markdown]
# Each look takes the *newest* checkpoint: a checkpoint that was written and overtaken between two looks is never scored.
# No worker waits for the evaluator. If it dies, only scores are lost.
#
# **In one sentence:** training must stop when the score no longer improves. What must change?
#
# <details><summary>Compare</summary>Then training needs the score: it must wait for it in its loop, or accept stopping
# some checkpoints late, when the evaluator says so in a file that the workers read.</details>

# %% [markdown]
# ## A parameter server and its coordinator
#
# Now nobody waits for the others. A *ps* holds the variables. The chief runs your program; here it trains nothing itself: it
# hands out **closures**, each a function to run, to whichever worker is free. `schedule` puts one into the queue and returns
# at once; `join` waits until all have run; `fetch` gets what they returned. Workers and servers run no program of yours.

# %%
def coordinator_of(**options):
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver, **options)
    return tf.distribute.coordinator.ClusterCoordinator(strategy)

def both():
    """The placement without a partitioner, and with one that cuts in two whatever then has 256 bytes a piece."""
    import tensorflow as tf

    cut = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=256, max_shards=2)
    return placed(None), placed(cut)

def placed(partitioner):
    """Where three variables lie."""
    import tensorflow as tf
    from worldsize.tf import graphs

    with coordinator_of(variable_partitioner=partitioner).strategy.scope():
        made = [tf.Variable(tf.zeros(shape), name=name) for name, shape in
                (("table", (1000, 16)), ("kernel", (16, 10)), ("bias", (10,)))]
    return graphs.placed([], [part for v in made for part in getattr(v, "variables", [v])])

# %%
lab.predict("rows", "A table of 1000 rows, 2 servers, cut into 2: how many rows lie on ps 0?", "rows")

# %%
whole, cut = launch(both, cluster=Cluster(chief=1, worker=2, ps=2))["chief:0"]
first = next(size for name, size in cut["ps 0, CPU:0"]["variables"].items() if "table" in name)
lab.measure("rows", first / (16 * 4))
figures.placement(whole, "Without a partitioner: does each server have its share?")

# %% tags=["cover"]
figures.placement(cut, "With a partitioner: does each server have its share now?")

# %% [markdown]
# Without a partitioner one server holds nearly all bytes, and lab 06 showed what that means for its network card. With
# a partitioner, the long table is cut by rows; the bias is too short to be worth it. Code that expects one variable
# may fail on the pieces: Keras 3 does, as the matrix at the end shows.

# %% [markdown]
# Now the queue. Twenty closures pause for 100 ms each: declared time, on no core. How long does `schedule` take for
# all of them, and how long until `join` returns?

# %%
lab.predict("join", "20 closures of 100 ms, 2 workers: after how long does join return?", "s")

# %%
def queued(count):
    """Seconds until all closures are scheduled, and until all have run."""
    import tensorflow as tf
    from worldsize.tf.declared_time import pause

    coordinator, closure = coordinator_of(), tf.function(lambda: pause(0.1))
    for repeat in (4, count):  # the first few only make the workers know the closure
        start = time.monotonic()
        for _ in range(repeat):
            coordinator.schedule(closure)
        scheduled = time.monotonic() - start
        coordinator.join()
    return scheduled, time.monotonic() - start

scheduled, joined = launch(queued, args=(20,), cluster=Cluster(chief=1, worker=2, ps=1))["chief:0"]
lab.measure("join", joined)
print(f"scheduled after {1e3 * scheduled:.0f} ms, joined after {joined:.2f} s; one worker would need {20 * 0.1:.2f} s")

# %% [markdown]
# ### A worker is lost
#
# Let the workers do something that can be checked: count right answers. A simple classifier compares 2000 pictures of
# clothes with the mean picture of each class, ten pictures in a closure. To leave time for an accident, each closure
# also pauses for 30 ms of declared time. NumPy tells us the true score.

# %%
def small(images):
    """Every other pixel of every other row, from 0 to 1. Shape [n, 196]."""
    return images[:, ::2, ::2].reshape(len(images), -1).astype("float32") / 255

fashion = data.load("fashion-mnist")
pictures, truth = small(fashion.test_images), fashion.test_labels
train_pictures = small(fashion.train_images)
means = np.stack([train_pictures[fashion.train_labels == k].mean(axis=0) for k in range(10)])

# %%
def guesses(pictures):
    return (2 * pictures @ means.T - (means**2).sum(axis=1)).argmax(axis=1)

exact = float((guesses(pictures) == truth).mean())
print(f"score of all {len(truth)} pictures: {exact:.4f}")

# %% [markdown]
# Write the chief's part. If a worker is lost, the coordinator gives its closure to another: each closure runs **at
# least once**. A closure that was lost near its end runs twice. So its `assign_add` may count twice, but you get its
# return value once. `join` before you `fetch`, or ask `done()` until it is true: a `fetch` that is still waiting may get
# the error of a worker that dies. Parts may differ in size.
#
# <details><summary>Hint</summary><code>later = coordinator.schedule(right_in, args=(part,))</code> returns at once;
# <code>coordinator.fetch(later)</code> gives the two numbers, also for a list of them.</details>

# %% tags=["exercise:score"]
# Exercise 9.3: an exact score with a coordinator
def score(coordinator, right_in, parts):
    """The share of right answers over all parts, exact even if closures run twice.

    right_in(part), to be run on a worker, returns two numbers: right answers, and examples in the part.
    """
    ### BEGIN SOLUTION
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    coordinator.join()
    right = examples = 0
    for r, n in coordinator.fetch(later):
        right, examples = right + r, examples + n
    return right / examples
    ### END SOLUTION

# %% tags=["check:score"] points=1
check.score(score)

# %% [markdown]
# Now with two real workers. When a quarter of the closures have begun, worker 1 is killed, with SIGKILL, and half a
# second later a new process takes its place. A counter on the server goes up whenever a closure *begins*; a log there
# says which worker ended which closure, and when. Nobody tells your `score` anything.

# %%
lab.predict("begun", f"{closures} closures, one worker killed in the middle: how many will have begun?", "closures")

# %%
def accident(task, begun, events, began):
    """When a quarter of the closures have begun, worker 1 is killed; half a second later it is started again."""
    while int(begun.numpy()) < closures // 4:
        time.sleep(0.02)
    for what, act in (("worker 1 killed", task.kill), ("restarted", task.restart)):
        events[what] = time.time() - began
        act("worker", 1)
        time.sleep(0.5)

def counting(begun, log, began):
    """The closure: it counts itself, pauses, counts right answers, and notes who it was and when."""
    import tensorflow as tf
    from worldsize.tf.declared_time import pause

    size, images, labels = len(truth) // closures, tf.constant(pictures), tf.constant(truth)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def right_in(part):
        with tf.control_dependencies([begun.assign_add(1)]):
            first = part * size + pause(0.03)
        x, y = images[first : first + size], labels[first : first + size]
        right = tf.argmax(2 * x @ means.T - (means**2).sum(axis=1), axis=1) == y
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        with tf.control_dependencies([right]):
            entry = [[tf.cast(worker, tf.float64), tf.timestamp() - began]]
        log.scatter_nd_update([[part]], entry)
        return tf.reduce_sum(tf.cast(right, tf.int32)), size

    return right_in

# %%
def scored(task):
    import tensorflow as tf

    tf.get_logger().setLevel("CRITICAL")  # it logs pages about a lost worker
    coordinator, events, began = coordinator_of(), {}, time.time()
    with coordinator.strategy.scope():
        begun, log = tf.Variable(0), tf.Variable(tf.zeros((closures, 2), tf.float64))
    right_in = counting(begun, log, began)
    strike = threading.Thread(target=accident, args=(task, begun, events, began), daemon=True)
    strike.start()
    result = float(score(coordinator, right_in, [tf.constant(part) for part in range(closures)]))
    strike.join()
    return {"score": result, "begun": int(begun.numpy()), "log": log.numpy(), "events": events}

run = launch(scored, cluster=Cluster(chief=1, worker=2, ps=1))
found = run["chief:0"] if run.state == "done" else None

# %%
def show(found):
    log = found["log"]
    rows = {f"worker {w}": sorted(log[log[:, 0] == w, 1]) for w in range(2)}
    print(f"begun {found['begun']} of {closures}; score {found['score']:.4f}, NumPy's {exact:.4f}")
    killed_s, back_s = found["events"].values()
    others, joined = sum(at > killed_s for at in rows["worker 0"]), sum(at > back_s for at in rows["worker 1"])
    joins = f"joins: {joined}" if joined else "ends none"
    answer = f"worker 0: {others} more closures; the new one {joins}"
    asks = "Worker 1 dies: who goes on, and does the new one join in?"
    return figures.lanes(rows, found["events"], figures.answered(asks, answer), "a tick is a closure that ended")

lab.measure("begun", found and found["begun"])
show(found) if found else figures.not_yet("Exercise 9.3")

# %% [markdown]
# The job never stopped. If worker 1 was in the middle of a closure when it died, that closure was begun again
# elsewhere, and the counter on the server is above the number of closures: it counts beginnings. Your score is exact:
# it is made from what closures returned.
#
# **In one sentence:** training steps *add* to the weights. What does at-least-once do to training?
#
# <details><summary>Compare</summary>A few gradients may be applied twice. Asynchronous training tolerates that, as it
# tolerates stale ones (lab 05); a count of right answers does not.</details>

# %% [markdown]
# ### A server is lost
#
# A worker holds nothing that matters. A server holds the weights. If it dies, they are gone, and `join` raises
# `UnavailableError`, or `schedule` does, if it is called first. Only a checkpoint helps. The old coordinator, variables and
# step are useless: the server's new process knows no variables. The chief, still running, makes a new strategy, new
# variables and a new step, and restores the variables from the checkpoint.

# %% [markdown]
# `start()` makes all of that. You write the rest: rounds of `every` steps, the last one shorter if need be, a join and a
# checkpoint after each, and what to do when the server is gone. Let `state["step"]`, which lies on the server and in the
# checkpoint, say what is done: the steps themselves count it, and if a worker is lost, a step may run twice. Any other
# error is a fault of the program: let it through, since a new start does not mend it.
#
# <details><summary>Hint 1</summary><code>checkpoint = tf.train.Checkpoint(**state)</code>, then
# <code>manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)</code>. A manager can
# <code>save</code>, and <code>restore_or_initialize</code> the newest.</details>
# <details><summary>Hint 2</summary>A <code>while True:</code> round all of it, with <code>start()</code> at its top, and
# <code>except tf.errors.UnavailableError</code> that does nothing: the loop begins again.</details>

# %% tags=["exercise:train_through"]
# Exercise 9.4: through the loss of a server
def train_through(start, steps, every, folder):
    """Runs `steps` steps in all, a checkpoint in `folder` after every `every`; returns the state.

    start() gives (coordinator, step, state): step is to be scheduled, state holds the variables, new and 0.
    Whatever is already saved in `folder`, perhaps by an earlier chief, counts.
    """
    import tensorflow as tf

    ### BEGIN SOLUTION
    while True:
        coordinator, step, state = start()
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(**state), folder, max_to_keep=2)
        manager.restore_or_initialize()
        try:
            while int(state["step"]) < steps:
                for _ in range(min(every, steps - int(state["step"]))):
                    coordinator.schedule(step)
                coordinator.join()
                manager.save()
            return state
        except tf.errors.UnavailableError:
            pass
    ### END SOLUTION

# %% tags=["check:train_through"] points=1.5
check.train_through(train_through)

# %%
lab.predict("again", "100 steps, a checkpoint every 20, the server killed at 50: which step is then scheduled first?", "")

# %%
def through(task, steps=100, every=20):
    """Real tasks: the server is killed when 50 steps have been scheduled, and `start` brings up a new one."""
    import tensorflow as tf

    tf.get_logger().setLevel("CRITICAL")
    told, down, began = [], [], time.monotonic()

    def note(what):
        told.append((time.monotonic() - began, what))

    def kill():
        task.kill("ps", 0)
        down.append("ps")

    def start():
        if down:
            task.restart(down.pop(), 0)
            time.sleep(2)  # a lost address is not reached again at once, and each miss would be one more loss
        coordinator = coordinator_of()
        with coordinator.strategy.scope():
            state = {"step": tf.Variable(0), "weights": tf.Variable(tf.zeros(3))}
        note(f"a new strategy, variables at step {int(state['step'])}")
        watched = Watched(coordinator, state, note, kill, kill_at=50)
        return watched, tf.function(lambda: advance(state)), state

    state = train_through(start, steps, every, str(task.dir))
    note(f"done: step {int(state['step'])}, weights {state['weights'].numpy().tolist()}")
    return told

# %%
class Watched:
    """A coordinator that notes what it does, and kills the server once, when `kill_at` steps have been scheduled."""

    scheduled = 0

    def __init__(self, coordinator, state, note, kill, kill_at):
        self.real, self.state, self.note, self.kill, self.kill_at = coordinator, state, note, kill, kill_at
        self.first = True

    def schedule(self, step):
        if self.first:
            self.note(f"the first step scheduled here is step {int(self.state['step']) + 1}")
        self.first = False
        Watched.scheduled += 1
        if Watched.scheduled == self.kill_at:
            self.kill()
            self.note(f"the server is killed when {Watched.scheduled} steps have been scheduled")
        return self.real.schedule(step)

    def join(self):
        self.real.join()
        self.note(f"join: {Watched.scheduled} steps scheduled so far")

def advance(state):
    state["step"].assign_add(1)
    state["weights"].assign_add([1.0, 2.0, 3.0])

# %%
run = launch(through, cluster=Cluster(chief=1, worker=2, ps=1))
told = run["chief:0"] if run.state == "done" else []
print("\n".join(f"{seconds:6.2f} s  {what}" for seconds, what in told) or "nothing yet")
first = [int(what.split()[-1]) for _, what in told if what.startswith("the first step")]
lab.measure("again", first[-1] if first else None)

# %% [markdown]
# Are the weights at the end those of 100 steps, [100, 200, 300]? The last `join` line says how many steps were scheduled for
# them. The steps after the last checkpoint were scheduled again, at most `every` for each new start. How many these are
# depends on whether the loss shows in `schedule` or in `join`. In a large job you save by the clock; lab 15 works out how
# often.

# %% [markdown]
# ## Updates that disappear
#
# Now Keras on a parameter server. Three workers run steps of the same model. So that we can count, the gradient is 1
# in every step: plain descent moves every weight by exactly the rate, whoever is first. Three counters should agree:
# the updates that closures report, the optimizer's `iterations`, and how far the weights moved.

# %%
def counters(ways):
    coordinator = coordinator_of()
    return {name: counts(coordinator, *way) for name, way in ways.items()}

def counts(coordinator, library, optimizer):
    """`updates` closures; what each counter says."""
    import importlib
    import tensorflow as tf

    keras, ones = importlib.import_module(library), tf.ones((2, 3))
    with coordinator.strategy.scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model, descent = keras.Sequential([keras.Input((3,)), layer]), getattr(keras.optimizers, optimizer)(RATE)
        descent.build(model.trainable_variables)

    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(ones))
        gradients = tape.gradient(loss, model.trainable_variables)
        descent.apply_gradients(zip(gradients, model.trainable_variables))
        return 1

    before = model.get_weights()[0]
    update = tf.function(lambda: coordinator.strategy.run(replica))
    later = [coordinator.schedule(update) for _ in range(updates)]
    coordinator.join()
    made = [int(n) for n in coordinator.fetch(later)]
    return made, int(descent.iterations.numpy()), before, model.get_weights()[0]

# %% [markdown]
# Write the audit. From the counters it says how many updates the optimizer's counter has lost, and how many the
# weights have. Mind four things: a closure may report several updates, weights need not begin at 0, an element whose
# gradient is 0 tells you nothing, and elements of either sign may cancel in a mean. Leave the arrays as they are.
#
# <details><summary>Hint</summary>One update changes a weight by <code>-rate * gradient</code>. So how many updates
# lie between <code>before</code> and <code>after</code>? Floats are a little off: <code>round</code>.</details>

# %% tags=["exercise:audit"]
# Exercise 9.5: where did updates get lost?
def audit(made, iterations, before, after, rate, gradient):
    """{"counter": updates that `iterations` has lost, "weights": updates that the weights have lost}.

    made: updates that each closure made. before, after, gradient: arrays; the same gradient in each update.
    """
    ### BEGIN SOLUTION
    total = sum(made)
    used = gradient != 0
    each = (before - after)[used] / (rate * gradient[used])
    landed = round(float(each.mean()))
    return {"counter": total - iterations, "weights": total - landed}
    ### END SOLUTION

# %% tags=["check:audit"] points=1
check.audit(audit)

# %%
lab.predict("lost", f"Keras 3, SGD, 3 workers, {updates} updates: how many does optimizer.iterations lose?", "updates")

# %%
# Helper: whether counters are right, in words
def counted_right(tallies):
    """Say whether all counters are at `updates`, or how many are not, and name the worst."""
    said = [value for each in tallies.values() for value in each.values()]
    off = [value for value in said if abs(value - updates) > 0.5]
    if not off:
        return f"yes: all {len(said)} say {updates}"
    worst = max(off, key=lambda value: abs(value - updates))
    return f"no: {len(off)} of {len(said)} are off, at worst {worst:.0f} of {updates}"

# %%
three = Cluster(chief=1, worker=3, ps=1)
ways = {"tf_keras, SGD": ("tf_keras", "SGD"), "Keras 3, SGD": ("keras", "SGD"), "Keras 3, Adam": ("keras", "Adam")}
counted = launch(counters, args=(ways,), cluster=three)["chief:0"]
for name, found in counted.items():
    try:
        print(f"{name}: {audit(*found, RATE, np.ones((3, 1)))}")
    except NotYet as stub:
        print(f"{name}: not yet: {stub}")
lab.measure("lost", sum(counted["Keras 3, SGD"][0]) - counted["Keras 3, SGD"][1])

# %%
tallies = {
    name: {"closures": sum(made), "iterations": n, "weights / rate": float((before - after).mean()) / RATE}
    for name, (made, n, before, after) in counted.items()
}
figures.tallies(tallies, updates, figures.answered("Do all counters say what was done?", counted_right(tallies)))

# %% [markdown]
# The closures ran. Whose counter is short, and whose weights are? Adam corrects its steps by the counter: if the counter is
# short, Adam's *weights* are wrong too. A learning-rate schedule reads the counter, so it would be late. There is no error
# and no warning, and the loss goes down. What is different about Keras 3's counter?

# %% [markdown]
# There are two ways to add one to a variable on a server. `assign_add` sends the 1, and the server adds. The other way
# reads the value, adds on the worker, and sends the sum. Below three workers use both ways in each closure. Guess both
# results first.

# %%
def two_ways():
    import tensorflow as tf

    coordinator = coordinator_of()
    with coordinator.strategy.scope():
        sent, read = tf.Variable(0), tf.Variable(0)

    @tf.function
    def closure():
        sent.assign_add(1)
        read.assign(read + 1)

    for _ in range(updates):
        coordinator.schedule(closure)
    coordinator.join()
    return {"v.assign_add(1)": int(sent.numpy()), "v.assign(v + 1)": int(read.numpy())}

figures.tallies({f"{updates} closures on 3 workers": launch(two_ways, cluster=three)["chief:0"]}, updates,
                "Two ways to add one: do both count every closure?")

# %% [markdown]
# Two workers read 7, both write 8: one update is gone. Keras 3's variables add the second way, and its optimizers use
# them for `iterations`; for SGD's weights they call TensorFlow's own subtraction, which is safe. On one machine, or
# with mirrored variables, nobody comes between read and write. That is why it was not noticed there.

# %% [markdown]
# ## A TPU, which we do not have
#
# On a TPU machine four lines come before the model. A *resolver* finds the TPU, `connect` joins its hosts to this
# program, `initialize` wakes the chips and empties them, and the strategy makes a replica of each core. Each line is
# run below, without a TPU; `tpu="local"` means this machine. A fifth line is a resolver without any address. Do not give
# an invented address: the program would wait for it.

# %%
lab.predict("tpu_line", "Which of these four lines, by its number, is the first to say that there is no TPU?", "")

# %%
def tpu_lines():
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    lines = {
        'TPUClusterResolver(tpu="local")': lambda: resolver,
        "tf.config.experimental_connect_to_cluster(resolver)": lambda: tf.config.experimental_connect_to_cluster(resolver),
        "tf.tpu.experimental.initialize_tpu_system(resolver)": lambda: tf.tpu.experimental.initialize_tpu_system(resolver),
        "tf.distribute.TPUStrategy(resolver)": lambda: tf.distribute.TPUStrategy(resolver),
        "TPUClusterResolver()": tf.distribute.cluster_resolver.TPUClusterResolver,
    }
    return {line: said_by(call) for line, call in lines.items()}

def said_by(call):
    try:
        return f"no error, it returns {type(call()).__name__}"
    except Exception as error:
        return first_words(error)

answers = launch(tpu_lines, timeout_s=60)[0]
lab.measure("tpu_line", 1 + [said.startswith("no error") for said in answers.values()].index(False))
for line, said in answers.items():
    print(f"{line}\n    {said}")

# %% [markdown]
# On a **TPU pod** every host has a few TPU cores, and the cores are joined by links of their own, in a torus of rings.
# `TPUStrategy` is a mirrored strategy over all of them: each core is a replica, and each host feeds its own. The
# all-reduce is part of the compiled program and never passes a host. So shapes must be known beforehand, the batch is
# cut by the number of cores, and numbers are mostly bfloat16. Nothing here has run on a TPU, and we say so.

# %% [markdown]
# ## What works, of everything
#
# Which strategy goes with which way to train? Documentation is often older than the code. So the authors run every
# combination (`make support` in the repository): a synchronous strategy works if the weights are NumPy's, a parameter server
# if every update is there. The result is kept with its date and versions. The ways are `fit` and a loop, each with Keras 3
# and with tf_keras, and a loop with plain variables. The parameter `column` chooses one of the five, to be counted below
# the picture.

# %%
matrix = support.recorded()
kept = matrix.column(column)

# %%
def mark(row, outcome):
    return "no TPU here" if row == "TPU" and outcome == "fails" else outcome

made_with = ", ".join(f"{name} {version}" for name, version in matrix.versions.items())
marks = {(row, way): mark(row, outcome) for (row, way), (outcome, _) in matrix.cells.items()}
figures.outcomes(
    matrix.rows, support.WAYS, marks, "What works, of everything?", f"run on {matrix.date} with {made_with}",
)

# %%
works = [row for row, (outcome, _) in kept.items() if outcome == "works"]
print(f"{column}: {len(works)} of {len(kept)} strategies work\n")
for (row, way), (outcome, words) in matrix.cells.items():
    if outcome != "works" and way in ("Keras 3 fit", "loop, Keras 3", "loop, variables"):
        print(f"{row}, {way}: {words}")

# %% [markdown]
# And this is what the guide to TensorFlow 2.0 promised in 2019, beside what holds today. Its `Estimator` row is
# history: the API is gone. For which strategies has its `Custom training loop` row come true? Nobody here can try a TPU.
# And its Keras row: what was experimental for MultiWorkerMirrored and only planned for ParameterServer, Keras 3 does not do
# now. With tf_keras both work, as the large matrix shows.

# %%
today = {"OneDevice": "OneDevice", "Mirrored": "Mirrored, 2 devices", "CentralStorage": "CentralStorage",
         "MultiWorkerMirrored": "MultiWorkerMirrored, RING", "ParameterServer": "ParameterServer", "TPU": "TPU"}
told_how = ("CentralStorage, aggregation=MEAN", "loop, variables")
apis = {"Keras API": ("Keras", "Keras 3 fit"), "Custom training loop": ("loop", "loop, variables")}
beside = {}
for name, row in today.items():
    for api, (short, way) in apis.items():
        beside[name, f"{short}, 2019"] = support.GUIDE_2_0[api][name]
        beside[name, f"{short}, today"] = mark(row, matrix.cells[row, way][0])
    beside[name, "Estimator, 2019"] = support.GUIDE_2_0["Estimator API"][name]
    beside[name, "Estimator, today"] = "gone" if matrix.cells["v1 Estimator", "loop, variables"][0] == "fails" else "there"
beside["CentralStorage", "loop, today"] = matrix.cells[told_how][0]
with_keras = matrix.cells["ParameterServer", "loop, Keras 3"][0]
figures.outcomes(
    list(today), [f"{api}, {when}" for api in ("Keras", "loop", "Estimator") for when in ("2019", "today")], beside,
    "What of the guide of TensorFlow 2.0 holds today?",
    f"words: the guide's, shortened; marks: run by this course; ParameterServer's loop with Keras 3: {with_keras}",
)

# %% [markdown]
# CentralStorage's loop works once its variables are told how to add up (`aggregation=`); without that it fails, as the
# large matrix says. The mark for ParameterServer and loop is from a run with plain `tf.Variable`s; what a Keras 3 model does
# there, the line under the picture's title says. So on several machines use a custom loop, or tf_keras. And count your
# updates.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Abadi and others, *TensorFlow: a system for large-scale machine learning* (OSDI 2016): servers,
# workers, and what happens when one is lost. Li and others, *Scaling distributed machine learning with the parameter
# server* (OSDI 2014). Kumar and others, *Scale MLPerf-0.6 models on Google TPU-v3 pods*
# ([arXiv:1909.09756](https://arxiv.org/abs/1909.09756), 2019). TensorFlow's guides *Multi-worker training with Keras*
# and *Parameter server training*.
