# %% [markdown]
# # Lab 09. tf.distribute across machines
#
# **After this lab you are able to** write `TF_CONFIG`, to train with several workers so that the weights are those of
# one machine, to share out data between workers, to train with a parameter server that survives lost workers and a lost
# server, to find updates that were lost without an error, and to say which of all this works today.
#
# **Minutes:** 160 (two sittings: 60 up to “A parameter server and its coordinator”, then 100) · **Points:** 6 ·
# **Prerequisites:** Labs 05 and 08 (replicas, custom training loops, stale updates).

# %% [markdown]
# ![With a partitioner: does each server have its share now? Ps 0, CPU:0 and ps 1, CPU:0 tie: 32.3 kB …](../labs/covers/09.png)

# %%
# Set-up: the tools of this lab
import json
import os
import tempfile
import textwrap
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
warm()  # another process imports TensorFlow while you read

# %% [markdown]
# ## Who is who
#
# Lab 08 had several devices in one process. A second machine means a second process, and neither process knows the
# address of the other. TensorFlow reads the addresses from one environment variable, `TF_CONFIG`, which *you* set for
# every process before it starts. Each of these processes is a **task**. All tasks run the same program; only the variable
# tells a task which one it is: by a type, such as chief, worker or parameter server, and by an index.

# %%
lab.predict("index", "Ranks 0 to 3 are 1 chief, 2 workers, 1 parameter server: which index does rank 2 get?", "")

# %%
def who_am_i():
    return os.environ["TF_CONFIG"]

# no servers: all four run the function
run = launch(who_am_i, cluster=Cluster(chief=1, worker=2, ps=1), servers=())
lab.measure("index", json.loads(run[2])["task"]["index"])
print(f"{len(set(run.results))} different values for {len(run.results)} tasks.", end=" ")
print(f"The value of rank 2, which is {run.tasks[2]}:")
print(json.dumps(json.loads(run[2]), indent=1))

# %% [markdown]
# The part `cluster` is the same in every task: all addresses, sorted by **type**. A *chief* is a worker that also writes
# logs and checkpoints (files with the weights, from which training can continue). *Workers* compute. A *ps*, parameter
# server, holds variables. The part `task` differs: it says which of the tasks in `cluster` this process is. The index
# counts within the task's own type, from 0.

# %% [markdown]
# In this course `launch` writes the variable. A scheduler such as Slurm gives a process less: a list of hosts, and the
# process's place in this list, its rank. Write the text of `TF_CONFIG` from these two and the number of parameter servers.
# Leave the caller's list as it is.
#
# <details><summary>Hint 1</summary>Cut the list into three with slices. First find where the servers begin:
# <code>len(hosts) - ps</code>. With <code>ps=0</code>, <code>hosts[-ps:]</code> is not what you want.</details>
# <details><summary>Hint 2</summary>An environment variable holds text: <code>json.dumps(…)</code>.</details>

# %% tags=["exercise:cluster_config"]
# Exercise 9.1: TF_CONFIG
def cluster_config(hosts, ps, rank):
    """The text of TF_CONFIG for the process on hosts[rank], such as "node7:2222".

    hosts[0] is the chief, the last `ps` hosts are parameter servers, the ones between are
    workers, perhaps none.
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
# TensorFlow's *resolver*. Every strategy learns from a resolver which task it runs in.

# %%
def resolved(task):
    import tensorflow as tf

    hosts = [host for addresses in task.cluster.values() for host in addresses]
    os.environ["TF_CONFIG"] = cluster_config(hosts, 1, task.rank)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    every = resolver.cluster_spec().as_dict()
    return f"I am {resolver.task_type} {resolver.task_id}; all: {every}"

run = launch(resolved, cluster=Cluster(chief=1, worker=2, ps=1), servers=())
rows = [f"{task:9} {said}" for task, said in zip(run.tasks, run.results or ())]
print("\n".join(rows) or "nothing yet")

# %% [markdown]
# What if a machine on the list is missing? Below, worker 0 makes a strategy, and worker 1 ends at once without one. Before
# you run the cell: will worker 0 raise an error?

# %%
def alone(task):
    import tensorflow as tf

    if task.index == 0:
        tf.distribute.MultiWorkerMirroredStrategy()

try:
    launch(alone, cluster=Cluster(worker=2), timeout_s=4)
except LaunchError as error:  # an error of a task, or the course's time limit
    print("\n".join(str(error).splitlines()[:2]))

# %% [markdown]
# Did an error of TensorFlow's end the run, or the course's time limit? A wrong address or a blocked port looks just like
# a missing worker. So give every job a time limit, and one that ends in SIGKILL. A worker that waits for others does not
# end on SIGTERM, the signal of `timeout 600 python train.py`: TensorFlow catches SIGTERM as a warning that the machine
# will soon be taken away. `timeout -k 10 600 python train.py` sends SIGKILL ten seconds later, which no program can
# catch.

# %% [markdown]
# ## The same step on two machines
#
# `MultiWorkerMirroredStrategy` is lab 08's mirrored strategy across processes: every worker holds all weights, takes
# its part of the batch, and an all-reduce adds up the gradients. Synchronous training on several machines must give the
# weights of *one* machine. For comparison we train on one machine, in NumPy: linear regression, one step for each batch of
# eight examples.

# %%
x = np.random.default_rng(9).normal(size=(48, 3)).astype("float32")
y = x @ np.array([[1], [-2], [3]], "float32")
GLOBAL_BATCH, RATE = 8, 0.1

# %%
# Helper: the same training on one machine, to compare with
def one_machine(epochs=1):
    """The weights after every step."""
    w, path = np.zeros((3, 1)), []
    for start in [*range(0, len(x), GLOBAL_BATCH)] * epochs:
        part, truth = x[start : start + GLOBAL_BATCH], y[start : start + GLOBAL_BATCH]
        w = w - RATE * 2 / GLOBAL_BATCH * part.T @ (part @ w - truth)
        path.append(w)
    return path

def off(path):
    """How far the furthest weight is from one machine's, after every step; after its last step, from its last weights."""
    one = one_machine()
    return [float(np.abs(w - one[min(k, len(one) - 1)]).max()) for k, w in enumerate(path)]

# %% [markdown]
# The workers' program is a custom loop as in lab 08, with the loss divided by the size of the *global* batch. Only the
# strategy is new. The argument of `mirrored` chooses its all-reduce: `RING` is TensorFlow's own, over gRPC (calls of
# functions in another process, over the network), `NCCL` is NVIDIA's, between GPUs, and `AUTO` leaves the choice to
# TensorFlow.

# %%
def mirrored(communication="AUTO"):
    import tensorflow as tf

    kind = tf.distribute.experimental.CommunicationImplementation[communication]
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

def step_of(strategy, w):
    """One step of gradient descent on all replicas, given this worker's part of a batch."""
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
    chosen = tf.data.experimental.AutoShardPolicy[policy]
    options.experimental_distribute.auto_shard_policy = chosen
    return strategy.experimental_distribute_dataset(batches.with_options(options))

# %%
def reducer(strategy, numbers=1_000_000):
    """A step that adds up numbers over all workers, and which all-reduce its graph asks for."""
    import tensorflow as tf

    def reduce():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(numbers))[0]

    step = tf.function(lambda: strategy.run(reduce))
    step()
    graph = step.get_concrete_function().graph.get_operations()
    hints = [op.get_attr("communication_hint") for op in graph if "Collective" in op.type]
    return step, hints[0].decode() if hints else "none: one worker needs no all-reduce"

def in_turns(steps, rounds=9):
    """The seconds that each step takes, in `rounds` rounds; in a round every step runs once."""
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
    # before any other operation of TensorFlow
    strategies = {kind: mirrored(kind) for kind in kinds}
    # each opens the collectives anew: no worker may be ahead
    context.context().wait_at_barrier("all strategies", 60_000)
    paths = {kind: train(s, shared_out(s, global_batches())) for kind, s in strategies.items()}
    made = {kind: reducer(s) for kind, s in strategies.items()}
    seconds = in_turns({kind: step for kind, (step, _) in made.items()})
    return {kind: (paths[kind], seconds[kind], made[kind][1]) for kind in kinds}

hide = {"CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {}
asked = ["RING", "AUTO", "NCCL"]
run = launch(all_kinds, args=(asked,), cluster=Cluster(worker=workers), env=hide)
kinds = run["worker:0"]
lab.measure("equal", sum(off(path)[-1] < 1e-5 for path, *_ in kinds.values()))
for kind, (path, _, hint) in kinds.items():
    print(f"{kind}: asks for {hint!r}; weights off NumPy's by at most {max(off(path)):.0e}")
print("\n".join(line for line in run.log("worker:0").splitlines() if "NCCL" in line))

# %%
figures.race(
    [
        figures.Timing(
            kind, float(np.median(laps)), group=f"{workers} workers, 4 MB", repeats_s=laps
        )
        for kind, (_, laps, _) in kinds.items()
    ],
    "Three names: is one faster?",
)

# %% [markdown]
# Are any weights off by more than float32's rounding? The three all-reduces took turns, so that a busy moment of the
# machine slows all of them. Do their lines overlap? On machines without GPUs all three names lead to the same ring: this
# strategy does not refuse `NCCL`, but writes one line into a log and takes the ring. So a job meant for fast links may run
# over slow ones for weeks, with right results. Measure, and read the log. (In lab 08 `MirroredStrategy` behaved
# differently: NCCL on CPUs raised an error.)

# %% [markdown]
# ## Which worker takes which examples
#
# Every worker runs the same program and so opens the same data set. The strategy shares the examples out between the
# workers, by a **policy**. With `DATA` every worker reads all examples and keeps its part; with `FILE` every worker reads
# some of the files; `AUTO` is `FILE` if there are enough files, else `DATA`. With `OFF` the strategy shares nothing out:
# every worker reads all examples and uses them all.

# %%
lab.predict("off_steps", "12 examples in batches of 4, two workers, policy OFF: how many steps has an epoch?", "steps")

# %%
def numbers_in_two_files(folder):
    """The numbers 0 to 11, in batches of 4, from a file with 0 to 5 and one with 6 to 11."""
    import tensorflow as tf

    folder.mkdir()
    files = [folder / f"{k}.txt" for k in range(2)]
    for k, file in enumerate(files):
        file.write_text("\n".join(str(6 * k + n) for n in range(6)))
    lines = tf.data.TextLineDataset([str(file) for file in files])
    return lines.map(lambda line: tf.strings.to_number(line, tf.int32)).batch(4)

def taken(task, policies):
    strategy, found = mirrored(), {}
    numbers = numbers_in_two_files(task.dir / f"worker{task.index}")
    for name in policies:
        data = shared_out(strategy, numbers, name)
        mine = [strategy.experimental_local_results(batch)[0] for batch in data]
        found[name] = [numbers.numpy().tolist() for numbers in mine]
    return found

# %%
run = launch(taken, args=(["DATA", "FILE", "AUTO", "OFF"],), cluster=Cluster(worker=2))
policies = {name: [run[worker][name] for worker in range(2)] for name in run[0]}
lab.measure("off_steps", len(policies["OFF"][0]))
figures.shares(policies, "Under which policy does an example come twice?")

# %% [markdown]
# A box holds the examples that a worker takes in a step; two boxes, one above the other, are that step's global batch.
# Under which policies is it one machine's batch? Under which does every example come once, but in other batches? Also
# under `OFF` the strategy takes your batches for global ones and divides their size by the number of workers. So both
# workers take the *same* two examples of a batch of four, and the other two a step later: each example counts twice, and
# an epoch has twice the steps. No error is raised.

# %% [markdown]
# Your own code can share the data out instead, for example if the examples come from a stream. Write this code now, for
# workers of one replica each. Two things matter. In each step the workers together must take exactly the global batch. And
# all workers must have the same number of steps. Otherwise the worker with a step more waits in its all-reduce for ever, if
# you iterate over the data set yourself. (The strategy's iterator hands an empty batch to a worker without examples: that
# step is smaller, and no error says so.)
#
# <details><summary>Hint 1</summary><code>dataset.batch(n, drop_remainder=True)</code> leaves out an incomplete batch.</details>
# <details><summary>Hint 2</summary>Cut global batches first, then take a slice of each:
# <code>dataset.map(lambda *arrays: …)</code> gets the arrays of a batch, <code>a[index::workers]</code> takes rows
# at equal distances.</details>

# %% tags=["exercise:worker_share"]
# Exercise 9.2: a worker's share of every batch
def worker_share(dataset, global_batch, workers, index):
    """A tf.data.Dataset: at step k this worker's global_batch // workers examples of global
    batch k.

    `dataset` gives single examples (x, y), x a number or an array, and may have an unknown
    length. An incomplete last global batch is left out; a whole one divides evenly among the
    workers. Each worker is one replica.
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
# Now train for an epoch: under `OFF`, under `DATA`, and with your function. For yours, every worker makes its own data set:
# `distribute_datasets_from_function` calls a function with the number of workers and this worker's index. The data were
# made with weights that we know, 1, −2 and 3. Does `OFF` end nearer to them than one machine, or less near?

# %%
def from_true(w):
    return float(np.abs(w - [[1], [-2], [3]]).max())

far = from_true(one_machine()[-1])
print(f"One machine ends its epoch {far:.3f} from the weights that made the data.")

# %%
lab.predict("wrong", "An epoch with OFF: how far from the weights that made the data does it end?", "")

# %%
def with_policies(names):
    strategy = mirrored()
    shared = {name: shared_out(strategy, global_batches(), name) for name in names}
    return {name: train(strategy, batches) for name, batches in shared.items()}

def with_yours(sizes=(None,)):
    """The weights after every step, for each size to which a worker's batches are cut anew."""
    import tensorflow as tf

    strategy, data = mirrored(), tf.data.Dataset.from_tensor_slices((x, y))

    def feed(size):
        def share(context):
            workers, index = context.num_input_pipelines, context.input_pipeline_id
            mine = worker_share(data, GLOBAL_BATCH, workers, index)
            return mine.rebatch(size) if size else mine

        return strategy.distribute_datasets_from_function(share)

    return [train(strategy, feed(size)) for size in sizes]

# %%
paths = launch(with_policies, args=(["OFF", "DATA"],), cluster=Cluster(worker=workers))[0]
run = launch(with_yours, cluster=Cluster(worker=workers))
paths["yours"] = run[0][0] if run.state == "done" else None
lab.measure("wrong", from_true(paths["OFF"][-1]))
for name, path in paths.items():
    steps = "not yet"
    if path:
        far = from_true(path[-1])
        steps = f"{len(path):2} steps, ends {far:.3f} from the weights that made the data"
    print(f"{name:5}  {steps}")

# %%
figures.histories(
    {name: path and off(path) for name, path in paths.items()},
    "Whose weights are those of one machine?", y="distance from one machine's path", log=True,
    rounding=1e-5,
)

# %% [markdown]
# Which lines stay below the dotted one, float32's rounding? Which training ends nearest to the weights that made the data?
# Under `OFF` an epoch has more steps, and on an easy problem more steps may help. The loss goes down under `OFF` too,
# so the mistake is easy to miss: it is a different training from the one you wrote.
#
# **In one sentence:** when would you prefer `FILE`, although its batches differ?
#
# <details><summary>Compare</summary>When reading takes most of the time: with DATA every worker reads and decodes all
# files, and keeps only its share.</details>

# %% [markdown]
# ## Several devices in each worker
#
# A real machine often has four or eight GPUs. The strategy makes a **replica** on every GPU of every worker: its number
# of replicas is workers times devices, and one all-reduce runs over all of them. Without GPUs a worker is one replica,
# however many logical CPUs (lab 08) it is split into. The course's `use_logical_cpus` makes the strategy count logical CPUs
# as if they were GPUs. Which examples does each device get?

# %%
lab.predict("second", "2 workers of 2 devices take the examples 0 to 7: with which does worker 0's second device begin?", "")

# %%
def replicas(count_cpus):
    """The number of replicas; for every step this worker's examples, by device; all weights."""
    if count_cpus:
        worker_devices.use_logical_cpus()
    strategy = mirrored()

    taken = {}
    for (numbers,) in shared_out(strategy, global_batches(np.arange(len(x)))):
        for part in strategy.experimental_local_results(numbers):
            taken.setdefault(part.device[-5:], []).append(part.numpy().tolist())
    path = train(strategy, shared_out(strategy, global_batches()))
    return strategy.num_replicas_in_sync, taken, path

pair = Cluster(worker=2)
for count_cpus in (False, True):
    run = launch(replicas, args=(count_cpus,), cluster=pair, logical_devices=2)
    print(f"{'logical CPUs counted' if count_cpus else 'GPUs counted'}: {run[0][0]} replicas")
    for worker, (_, taken, path) in enumerate(run.results):
        for where, steps in taken.items():
            print(f"  worker {worker}, {where}: first step {steps[0]}, second step {steps[1]}")
        print(f"  worker {worker}: weights off one machine's by at most {max(off(path)):.0e}")
lab.measure("second", run[0][1]["CPU:1"][0][0])

# %% [markdown]
# Look at the numbers: a global batch is cut into one piece for each replica, and the workers take the pieces in turn. Are
# the weights still those of one machine? So "batch size" has three meanings: a replica's, a worker's, and the global one.
# `experimental_distribute_dataset` expects batches of the global size and cuts them itself.

# %% [markdown]
# Your `worker_share` makes batches of a *worker's* size. What happens to them on two devices in each worker? Does it help
# to cut them into batches of a replica's size?

# %%
def yours_on_two_devices(sizes):
    worker_devices.use_logical_cpus()
    return with_yours(sizes)

sizes = {"a worker's size": None, "a replica's size": GLOBAL_BATCH // 4}
given = (list(sizes.values()),)
run = launch(yours_on_two_devices, args=given, cluster=pair, logical_devices=2)
for name, path in zip(sizes, run[0] if run.state == "done" else ()):
    far = f"at most {max(off(path)):.0e}"
    print(f"batches of {name}: {len(path)} steps, weights off one machine's by {far}")

# %% [markdown]
# `distribute_datasets_from_function` does not cut: it expects batches of one *replica's* size. With either function divide the
# summed loss by the global batch size.

# %% [markdown]
# ## A mirrored worker is lost
#
# Every worker holds all weights, so a lost worker takes no weights with it. But the others need its gradient in every step.
# Below, worker 1 is killed before step 13 of 30. When does worker 0 notice? If a new worker 1 is started, does it take
# part? Are the final weights those of a run in which no worker was killed?

# %% [markdown]
# First, saving. *Every* worker calls `save`, since saving may communicate: a variable that each replica adds to by
# itself, such as a count of examples, is summed over all workers when it is saved. But two workers must not write to one
# file. So only worker 0 writes to the folder of checkpoints (a cluster without a task of type chief has worker 0 as its
# chief). Every other worker writes to a folder that nobody reads.

# %%
def resumed(strategy, task, folder):
    """New variables, restored if `folder` has a checkpoint, and a manager that saves them."""
    import tensorflow as tf

    with strategy.scope():
        state = {"w": tf.Variable(tf.zeros((3, 1))), "step": tf.Variable(0)}
    checkpoint = tf.train.Checkpoint(**state)
    if newest := tf.train.latest_checkpoint(folder):
        checkpoint.restore(newest)

    mine = folder if task.rank == 0 else task.dir / f"not used {task.rank}"
    return state, tf.train.CheckpointManager(checkpoint, str(mine), max_to_keep=2)

def train_saving(task, folder, accident=None, steps=30, every=5):
    """30 steps, a checkpoint after every 5. Returns the steps restored and the last weights."""
    (task.dir / f"worker {task.index} asks for a strategy, attempt {task.attempt}").touch()
    strategy = mirrored()
    (task.dir / f"worker {task.index} has a strategy, attempt {task.attempt}").touch()
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
def new_worker(dir):
    """Seconds to a strategy of the first worker 1; seconds given to the new one; has it one?"""
    asks = [dir / f"worker 1 asks for a strategy, attempt {k}" for k in range(2)]
    has = [dir / f"worker 1 has a strategy, attempt {k}" for k in range(2)]
    while not asks[1].exists():  # the new process is still starting
        time.sleep(0.02)

    first_s = has[0].stat().st_mtime - asks[0].stat().st_mtime
    given_s = min(30.0, max(2.0, 4 * first_s))
    time.sleep(given_s)
    return first_s, given_s, has[1].exists()

def struck(task, folder, what):
    """Worker 0 kills or restarts worker 1 and trains on: its error, when, and `new_worker`."""
    import tensorflow as tf

    began = []

    def accident():
        getattr(task, what)("worker", 1)
        began.append(time.monotonic())

    try:
        train_saving(task, folder, accident if task.rank == 0 else None)
    except tf.errors.OpError as error:
        noticed = time.monotonic() - began[0]
        new = new_worker(task.dir) if what == "restart" else None
        task.kill("worker", 1)
        words = textwrap.shorten(error.message.partition(": ")[2], 240, placeholder=" …")
        return type(error).__name__, noticed, words, new

# %%
folders = {what: tempfile.mkdtemp() for what in ("kill", "restart", "quiet")}
for what in ("kill", "restart"):
    run = launch(struck, args=(folders[what], what), cluster=pair, timeout_s=90)
    name, seconds, words, new = run[0]
    print(f"{what} worker 1: after {seconds:.2f} s worker 0 gets {name}: {words}")
first_s, given_s, there = new
print(f"The first worker 1 had its strategy {first_s:.1f} s after it asked for it.")
print(f"The new worker 1 {'has one' if there else 'has none'} {given_s:.1f} s after it asked.")

# %% [markdown]
# Worker 0 notices the loss at once if its all-reduce meets a closed connection. Otherwise it notices only when worker 1's
# *heartbeats*, small messages that say "I am here", have been missing for a while. Chance decides which comes first. Does
# a new worker 1 alone help? At its start every process draws a number, its *incarnation*, and the cluster was made with
# the old worker's number. So **all** workers must start again, from the checkpoint. Slurm or Kubernetes does that; here
# the next cell does. (In Keras's `fit` the callback `keras.callbacks.BackupAndRestore` saves and restores for you.)

# %%
lab.predict("twice", "Worker 0 had made 12 steps. After the new start of both: how many of them are made again?", "steps")

# %%
quiet = launch(train_saving, args=(folders["quiet"],), cluster=pair)[0]
again = launch(train_saving, args=(folders["kill"],), cluster=pair)[0]
lab.measure("twice", 12 - again[0])
for name, (first, w) in {"no worker killed": quiet, "killed, all started again": again}.items():
    print(f"{name}: steps {first + 1} to 30, weights {w.ravel().tolist()}")
print(f"largest difference: {np.abs(quiet[1] - again[1]).max()}")

# %% [markdown]
# ### If worker 0 alone saves (optional)
#
# The variables above have the same value on every worker, so worker 0 could save them alone. A variable with
# `ON_READ` is different: each replica adds to its own copy, and the checkpoint needs the sum of all copies. First both
# workers save such a variable, then worker 0 alone. What will happen the second time?

# %%
def saved_by(task, who):
    """Every worker adds 1 to a counter; those in `who` save it. Returns what this one saved."""
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
    run = launch(saved_by, args=([0],), cluster=pair, timeout_s=6)
    print("worker 0 alone saves:", run.results)
except RunTimedOut as error:
    first, second = str(error).splitlines()[:2]
    print("worker 0 alone saves:", first, second.partition(" at ")[0].strip())

# %% [markdown]
# ## Keras' fit on two workers, and an evaluator (optional)
#
# You need not write the loop yourself. Under `MultiWorkerMirroredStrategy` the `fit` of tf_keras (Keras 2) shares out the
# batches and sums the gradients. `legacy_keras=True` makes `tf.keras` tf_keras: it sets the environment variable
# `TF_USE_LEGACY_KERAS=1`. For comparison the same program also runs on one machine, with no strategy.

# %%
lab.predict("losses", "Two workers, each sees half of every batch: how many different losses does an epoch end with?", "")

# %%
def compiled(strategy):
    import tensorflow as tf

    with strategy.scope():
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = tf.keras.Sequential([tf.keras.Input((3,)), layer])
        model.compile(optimizer=tf.keras.optimizers.SGD(RATE), loss="mse")
    return model

def fitted(task, epochs=3):
    """The loss of every epoch that `fit` reports, and the weights at the end; or its error."""
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
names = "one machine", "worker 0", "worker 1"
for name, (losses, w) in zip(names, [by_itself, *together]):
    far = np.abs(w - one_machine(epochs=3)[-1]).max()
    said = ", ".join(f"{loss:.7f}" for loss in losses)
    print(f"{name:11}  losses {said}; weights off NumPy's by {far:.0e}")
print("and Keras 3:", launch(fitted, cluster=pair)[0][0])

# %% [markdown]
# Does `fit` report each worker's own loss, or the mean over all workers?

# %% [markdown]
# How good is the model on *new* examples? If a worker computes that in its loop, all workers wait. A task of type
# **evaluator** does it beside them. It is not part of the cluster: it has no address in `TF_CONFIG`, takes no part in a
# collective, and no worker waits for it. It watches the folder of checkpoints and scores what it finds:
# `checkpoints_iterator` looks for a checkpoint once a second.
#
# Below, the workers save after each of four epochs, first with a rest after every epoch, then without. How many checkpoints
# does the evaluator score in each run?

# %%
new_x = np.random.default_rng(10).normal(size=(200, 3)).astype("float32")
new_y = new_x @ np.array([[1], [-2], [3]], "float32")

def watched(task, folder, pause, epochs=4):
    """Workers train and rest for `pause` s after an epoch. The evaluator returns its scores."""
    import tensorflow as tf

    if task.type != "evaluator":
        path, on = f"{folder}/epoch-{{epoch}}", tf.keras.callbacks
        rest = on.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(pause))
        told = {"callbacks": [on.ModelCheckpoint(path, save_weights_only=True), rest]}
        model = compiled(mirrored())
        model.fit(global_batches(), epochs=epochs, shuffle=False, verbose=0, **told)
        return None

    jobs = " and ".join(task.cluster)
    print(f"I am {task.type} {task.index}; TF_CONFIG's cluster has {jobs}")
    model, scores = compiled(tf.distribute.get_strategy()), {}
    for path in tf.train.checkpoints_iterator(folder, timeout=30):
        model.load_weights(path).expect_partial()
        epoch = int(path.rpartition("-")[2])
        scores[epoch] = model.evaluate(new_x, new_y, verbose=0)
        if epoch == epochs:
            break
    return scores

# %%
watching = Cluster(chief=1, worker=1, evaluator=1)
for pause in (1.5, 0.0):
    run = launch(watched, args=(tempfile.mkdtemp(), pause), cluster=watching, legacy_keras=True)
    scores = run["evaluator:0"]
    print(f"a rest of {pause} s after each epoch: {len(scores)} of 4 scored")
    for epoch, score in scores.items():
        w = one_machine(epochs=epoch)[-1]
        by_numpy = np.mean((new_x @ w - new_y) ** 2)
        print(f"  epoch {epoch}: {score:.6f}; with NumPy's weights {by_numpy:.6f}")

# %% [markdown]
# The evaluator looks for the *newest* checkpoint: if a newer one is written before it looks again, the older is never
# scored. No worker waits for the evaluator. If the evaluator dies, only scores are lost.
#
# **In one sentence:** training must stop when the score no longer improves. What must change?
#
# <details><summary>Compare</summary>Then the workers need the score: they must wait for it in their loop, or stop some
# checkpoints late, when the evaluator has written so into a file that they read.</details>

# %% [markdown]
# ## A parameter server and its coordinator
#
# From here on no worker waits for another. A *ps* holds the variables. The chief runs your program. It trains nothing
# itself but hands out **closures**, functions with their arguments, to whichever worker is free. The chief does that by a
# `ClusterCoordinator`: `schedule` puts a closure into a queue, `join` waits until all closures have run, and `fetch` gets
# what they returned. Workers and servers only start TensorFlow's server, which waits for work.

# %% [markdown]
# First, the variables. `ParameterServerStrategy` puts each on a server. A *partitioner* may cut a large one into pieces.

# %%
def coordinator_of(**options):
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver, **options)
    return tf.distribute.coordinator.ClusterCoordinator(strategy)

def both():
    """Where variables lie uncut, and cut in two if each piece still has 256 bytes."""
    import tensorflow as tf

    partitioners = tf.distribute.experimental.partitioners
    cut = partitioners.MinSizePartitioner(min_shard_bytes=256, max_shards=2)
    return placed(None), placed(cut)

def placed(partitioner):
    """Make a table, a kernel, a bias, in this order: each device's variables and bytes."""
    import tensorflow as tf
    from worldsize.tf import graphs

    with coordinator_of(variable_partitioner=partitioner).strategy.scope():
        made = [tf.Variable(tf.zeros(shape), name=name) for name, shape in
                (("table", (1000, 16)), ("kernel", (16, 10)), ("bias", (10,)))]
    return graphs.placed([], [part for v in made for part in getattr(v, "variables", [v])])

# %%
lab.predict("held", "Variables of 64,000, 640 and 40 bytes, made in this order, 2 servers: how many bytes are on ps 0?", "bytes")

# %%
whole, cut = launch(both, cluster=Cluster(chief=1, worker=2, ps=2))["chief:0"]
lab.measure("held", sum(whole["ps 0, CPU:0"]["variables"].values()))
figures.placement(whole, "Without a partitioner: does each server have its share?")

# %% tags=["cover"]
figures.placement(cut, "With a partitioner: does each server have its share now?")

# %% [markdown]
# Without a partitioner the servers take whole variables in turn, whatever their size. Does one server hold nearly all
# bytes? Lab 06 showed what that means for its network card. The partitioner cuts the table and the kernel by rows, and
# leaves the short bias whole. Code that expects one variable may fail on the pieces: Keras 3 does, as the matrix at the end
# shows.

# %% [markdown]
# Now the queue. Workers take closures from it in the order in which you scheduled them. The closures below pause for
# declared time, which needs no core: six of 100 ms and one of 600 ms. Two workers share 1.2 s of work. How long does
# `schedule` take for all seven, and after how long does `join` return? Does the order matter?

# %%
lab.predict("join", "Six closures of 100 ms, after them one of 600 ms, 2 workers: after how long does join return?", "s")

# %%
def queued(orders):
    """For each order of pauses: seconds until all closures are scheduled, and until all ran."""
    import tensorflow as tf
    from worldsize.tf.declared_time import pause

    def closure_of(seconds):
        return tf.function(lambda: pause(seconds))

    coordinator = coordinator_of()
    closures = {seconds: closure_of(seconds) for order in orders for seconds in order}
    took = []
    # in the first, each worker only gets to know each closure
    for order in [sorted([*closures] * 2), *orders]:
        start = time.monotonic()
        for seconds in order:
            coordinator.schedule(closures[seconds])
        scheduled = time.monotonic() - start
        coordinator.join()
        took.append((scheduled, time.monotonic() - start))
    return took[1:]

short, long = [0.1] * 6, [0.6]
orders = {"the long one last": short + long, "the long one first": long + short}
run = launch(queued, args=([*orders.values()],), cluster=Cluster(chief=1, worker=2, ps=1))
lab.measure("join", run["chief:0"][0][1])
for name, (scheduled, joined) in zip(orders, run["chief:0"]):
    print(f"{name}: scheduled after {1e3 * scheduled:.0f} ms, joined after {joined:.2f} s")

# %% [markdown]
# In which order has one worker nothing to do while the other still works? If you know which closures take long, schedule
# them first.

# %% [markdown]
# Now train. A closure below takes a batch of eight of our linear regression, reads the weights from the server, computes
# a gradient, and subtracts it on the server, whatever other closures have done to the weights in the meantime (lab 05:
# staleness). A pause of 50 ms stands for the work of a large model. Will two passes bring the loss down? Will the
# weights be those of one machine?

# %%
def trained_on_server(passes):
    """The weights on the server at the end, and the loss that each closure saw, in order."""
    import tensorflow as tf
    from worldsize.tf.declared_time import pause

    coordinator, features, answers = coordinator_of(), tf.constant(x), tf.constant(y)
    with coordinator.strategy.scope():
        w = tf.Variable(tf.zeros((3, 1)))

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def update(start):
        rows = slice(start, start + GLOBAL_BATCH)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features[rows] @ w - answers[rows]) ** 2) / GLOBAL_BATCH
        work = tf.cast(pause(0.05), tf.float32)  # 0, after 50 ms
        w.assign_sub(RATE * tape.gradient(loss, w) + work)
        return loss

    starts = [*range(0, len(x), GLOBAL_BATCH)] * passes
    later = [coordinator.schedule(update, args=(tf.constant(start),)) for start in starts]
    coordinator.join()
    return w.numpy(), [float(loss) for loss in coordinator.fetch(later)]

run = launch(trained_on_server, args=(2,), cluster=Cluster(chief=1, worker=2, ps=1))
(end, losses), one = run["chief:0"], one_machine(epochs=2)[-1]
print(f"The loss of the first update is {losses[0]:.2f}, of the last {losses[-1]:.2f}.")
print(f"The weights are off one machine's by {np.abs(end - one).max():.3f}.")
print(f"They end {from_true(end):.3f} from the weights that made the data,", end=" ")
print(f"one machine's {from_true(one):.3f}.")

# %% [markdown]
# While one worker computes its gradient, the other worker changes the weights. So asynchronous training is not one
# machine's training, and differs a little from run to run. What does it gain? No worker waits for a slow one.

# %% [markdown]
# ### A worker is lost
#
# Let the workers do something that can be checked: count right answers. A simple classifier compares pictures of clothes
# with the mean picture of each class, a few pictures in a closure. To leave time for an accident, each closure
# also pauses for 30 ms of declared time. NumPy computes the true score.

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
# Write the chief's part. If a worker is lost, the coordinator gives the worker's closure to another one: each closure runs
# **at least once**. A closure whose worker dies near the closure's end runs twice. So an `assign_add` in it may count
# twice, but you get its return value once. `join` before you `fetch`, or ask `done()` until it is true: a `fetch` that is
# still waiting may raise the error of a worker that dies. Parts may differ in size.
#
# <details><summary>Hint</summary><code>later = coordinator.schedule(right_in, args=(part,))</code> returns at once;
# <code>coordinator.fetch(later)</code> gives the two numbers, also for a list of them.</details>

# %% tags=["exercise:score"]
# Exercise 9.3: an exact score with a coordinator
def score(coordinator, right_in, parts):
    """The share of right answers over all parts, exact even if closures run twice.

    right_in(part), to be run on a worker, returns two numbers: right answers, and examples in
    the part.
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
# second later a new process takes its place. A counter on the server goes up whenever a closure *begins*; a log on the
# server says which worker ended which closure, and when. Your `score` is not told of the accident. Will it be
# exact? How many closures will have begun? Does the new process get work?

# %%
def accident(task, begun, events, began):
    """A quarter of the closures begun, worker 1 is killed; half a second later it restarts."""
    while int(begun.numpy()) < closures // 4:
        time.sleep(0.02)
    for what, act in (("worker 1 killed", task.kill), ("restarted", task.restart)):
        events[what] = time.time() - began
        act("worker", 1)
        time.sleep(0.5)

def counting(begun, log, began):
    """The closure: it counts its beginning, pauses, counts right answers, and logs itself."""
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
    parts = [tf.constant(part) for part in range(closures)]
    result = float(score(coordinator, right_in, parts))
    strike.join()
    return {"score": result, "begun": int(begun.numpy()), "log": log.numpy(), "events": events}

run = launch(scored, cluster=Cluster(chief=1, worker=2, ps=1))
found = run["chief:0"] if run.state == "done" else None

# %%
def show(found):
    log = found["log"]
    rows = {f"worker {w}": sorted(log[log[:, 0] == w, 1]) for w in range(2)}
    scores = f"score {found['score']:.4f}, NumPy's {exact:.4f}"
    print(f"begun {found['begun']} of {closures}; {scores}")
    killed_s, back_s = found["events"].values()
    others = sum(at > killed_s for at in rows["worker 0"])
    joined = sum(at > back_s for at in rows["worker 1"])
    joins = f"joins: {joined}" if joined else "ends none"
    answer = f"worker 0: {others} more closures; the new one {joins}"
    asked = figures.answered(
        "Worker 1 dies: who goes on, and does the new one join in?", answer
    )
    return figures.lanes(rows, found["events"], asked, "a tick is a closure that ended")

show(found) if found else figures.not_yet("Exercise 9.3")

# %% [markdown]
# Did the job stop at any time? If worker 1 died in the middle of a closure, another worker began that closure again, and
# the counter on the server is above the number of closures: it counts beginnings. Your score is made from the values that
# closures returned, one for each closure.
#
# **In one sentence:** training steps *add* to the weights. What does at-least-once do to training?
#
# <details><summary>Compare</summary>A few gradients may be applied twice. Asynchronous training tolerates that, as it
# tolerates stale ones (lab 05); a count of right answers does not.</details>

# %% [markdown]
# ### A server is lost
#
# A worker holds no variables, so its loss costs little. A server holds the weights. If the server dies, they are gone, and
# whatever needs the server next raises `UnavailableError`: a `schedule`, a `join`, or a save, which reads the variables. Only a
# checkpoint helps. The old coordinator, variables and step are useless: the server's new process knows no variables. The chief,
# which is still running, makes a new strategy, new variables and a new step, and restores the variables from the checkpoint.

# %% [markdown]
# A function `start()` makes the new strategy, variables and step. You write the rest: rounds of `every` steps, the last
# round shorter if need be, a join and a checkpoint after each, and what to do when the server is gone. Let `state["step"]`
# say how many steps are done: each step adds 1 to this variable on the server, and the checkpoint holds it. Do not count
# yourself: if a worker is lost, a step may run twice. Any other error is a fault of the program: let it through, since a
# new start does not mend it.
#
# <details><summary>Hint 1</summary><code>checkpoint = tf.train.Checkpoint(**state)</code>, then
# <code>manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)</code>. A manager can
# <code>save</code>, and <code>restore_or_initialize</code> the newest.</details>
# <details><summary>Hint 2</summary>A <code>while True:</code> round all of it, with <code>start()</code> at its top, and
# <code>except tf.errors.UnavailableError</code> that does nothing: the loop begins again.</details>

# %% tags=["exercise:train_through"]
# Exercise 9.4: through the loss of a server
def train_through(start, steps, every, folder):
    """Runs `steps` steps in all, with a checkpoint in `folder` after every `every` steps.

    start() gives (coordinator, step, state): step is to be scheduled, state holds the
    variables, new and 0. What is already saved in `folder`, perhaps by an earlier chief,
    counts. Returns the state.
    """
    import tensorflow as tf

    ### BEGIN SOLUTION
    while True:
        coordinator, step, state = start()
        saved = tf.train.Checkpoint(**state)
        manager = tf.train.CheckpointManager(saved, folder, max_to_keep=2)
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
lab.predict("again", "A checkpoint every 20 steps, the server dies as step 60 is scheduled: which step is next?", "")

# %%
class Watched:
    """A coordinator that notes what it does; it kills the server as it schedules `kill_at`."""

    scheduled = 0

    def __init__(self, coordinator, state, note, kill, kill_at):
        self.real, self.state, self.note = coordinator, state, note
        self.kill, self.kill_at, self.first = kill, kill_at, True

    def schedule(self, step):
        if self.first:
            self.note(f"the first step scheduled here is step {int(self.state['step']) + 1}")
        self.first = False
        Watched.scheduled += 1
        if Watched.scheduled == self.kill_at:
            self.kill()
            self.note(f"the server is killed as step {Watched.scheduled} is scheduled")
        return self.real.schedule(step)

    def join(self):
        self.real.join()
        self.note(f"join: {Watched.scheduled} steps scheduled so far")

def advance(state):
    state["step"].assign_add(1)
    state["weights"].assign_add([1.0, 2.0, 3.0])

# %%
def through(task, steps=100, every=20):
    """The server is killed as step 60 is scheduled, and started anew. Returns (when, what)."""
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
            # TensorFlow tries a lost address again only later; a failed try is one more loss
            time.sleep(2)
        coordinator = coordinator_of()
        with coordinator.strategy.scope():
            state = {"step": tf.Variable(0), "weights": tf.Variable(tf.zeros(3))}
        note(f"a new strategy, variables at step {int(state['step'])}")
        watched = Watched(coordinator, state, note, kill, kill_at=60)
        return watched, tf.function(lambda: advance(state)), state

    state = train_through(start, steps, every, str(task.dir))
    note(f"done: step {int(state['step'])}, weights {state['weights'].numpy().tolist()}")
    return told

# %%
run = launch(through, cluster=Cluster(chief=1, worker=2, ps=1))
told = run["chief:0"] if run.state == "done" else []
print("\n".join(f"{seconds:6.2f} s  {what}" for seconds, what in told) or "nothing yet")
first = [int(what.split()[-1]) for _, what in told if what.startswith("the first step")]
lab.measure("again", first[-1] if first else None)

# %% [markdown]
# A step adds [1, 2, 3] to the weights. Are the final weights those of 100 steps? The last `join` line says how many steps
# were scheduled in all. After each new start the steps since the last checkpoint were scheduled again, at most `every`.
# Their number depends on whether `schedule` or `join` raises the error. In a large job you save by the clock; lab 15 works
# out how often. And workers that read data get a dataset each: `coordinator.create_per_worker_dataset(make)` calls `make` on
# every worker, also on one that comes back.

# %% [markdown]
# ## Updates that disappear
#
# Now Keras on a parameter server. Three workers run steps of the same model. So that we can count, the gradient is 1
# in every step: plain gradient descent then moves every weight by exactly the learning rate, in whatever order the workers
# come. Three counters should agree: the updates that closures report, the optimizer's `iterations`, and the distance that
# the weights moved, in learning rates.

# %%
def counters(ways):
    coordinator = coordinator_of()
    return {name: counts(coordinator, *way) for name, way in ways.items()}

def counts(coordinator, library, optimizer):
    """Run closures: the updates that each reports, `iterations`, weights before and after."""
    import importlib
    import tensorflow as tf

    keras, ones = importlib.import_module(library), tf.ones((2, 3))
    with coordinator.strategy.scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((3,)), layer])
        descent = getattr(keras.optimizers, optimizer)(RATE)
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
# Write the audit. From the three counters it works out how many updates the optimizer's counter has lost, and how many the
# weights have lost. Mind four things: a closure may report several updates, weights need not begin at 0, an element whose
# gradient is 0 tells you nothing, and gradients of different signs may cancel in a mean. Leave the arrays as they are.
#
# <details><summary>Hint</summary>One update changes a weight by <code>-rate * gradient</code>. So how many updates
# lie between <code>before</code> and <code>after</code>? Floats are a little off: <code>round</code>.</details>

# %% tags=["exercise:audit"]
# Exercise 9.5: where did updates get lost?
def audit(made, iterations, before, after, rate, gradient):
    """{"counter": updates that `iterations` lost, "weights": updates that the weights lost}.

    made: updates that each closure made. before, after, gradient: arrays; the same gradient in
    each update.
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
# Helper: how many counters are right, in words
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
ways = {
    "tf_keras, SGD": ("tf_keras", "SGD"),
    "Keras 3, SGD": ("keras", "SGD"),
    "Keras 3, Adam": ("keras", "Adam"),
}
counted = launch(counters, args=(ways,), cluster=three)["chief:0"]
for name, found in counted.items():
    try:
        print(f"{name}: {audit(*found, RATE, np.ones((3, 1)))}")
    except NotYet as stub:
        print(f"{name}: not yet: {stub}")
lab.measure("lost", sum(counted["Keras 3, SGD"][0]) - counted["Keras 3, SGD"][1])

# %%
tallies = {}
for name, (made, n, before, after) in counted.items():
    moved = float((before - after).mean()) / RATE
    tallies[name] = {"closures": sum(made), "iterations": n, "weights / rate": moved}
figures.tallies(
    tallies, updates,
    figures.answered("Do all counters say what was done?", counted_right(tallies)),
)

# %% [markdown]
# All closures ran. In which of the three did the counter lose updates, and in which did the weights? Adam divides its steps
# by numbers that it computes from the counter: if the counter is short, Adam's *weights* are wrong too. A learning-rate
# schedule reads the counter, so it would be late. No error and no warning says so. What is different about Keras 3's
# counter?

# %% [markdown]
# There are two ways to add 1 to a variable on a server. With `assign_add` the worker sends the 1, and the server adds it.
# With `assign` the worker reads the value, adds 1, and sends the sum. Below, three workers use both ways in each closure.
# Guess both results first.

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

figures.tallies(
    {f"{updates} closures on 3 workers": launch(two_ways, cluster=three)["chief:0"]}, updates,
    "Two ways to add one: do both count every closure?",
)

# %% [markdown]
# If two workers read 7, both write 8, and one update is lost. Keras 3's variables add in the second way, and the optimizers
# of Keras 3 keep `iterations` in such a variable. SGD changes its weights by TensorFlow's own subtraction, which the server
# does, so they lose nothing. On one machine, or with mirrored variables, no other worker writes between the read and the
# write. So the mistake does not show there.

# %% [markdown]
# ## A TPU, which we do not have
#
# On a TPU machine four lines come before the model: (1) a *resolver* finds the TPU, (2) `experimental_connect_to_cluster`
# connects this program to the TPU's hosts, (3) `initialize_tpu_system` resets the chips, and (4) `TPUStrategy` makes a
# replica on each core. Below, each line runs without a TPU; `tpu="local"` means this machine. A fifth line makes a resolver
# without any address. Do not try an invented address: the program would wait for an answer.

# %%
lab.predict("tpu_line", "Which of the lines 1 to 4 is the first to say that there is no TPU?", "")

# %%
def tpu_lines():
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    lines = {
        'TPUClusterResolver(tpu="local")': lambda: resolver,
        "tf.config.experimental_connect_to_cluster(resolver)":
            lambda: tf.config.experimental_connect_to_cluster(resolver),
        "tf.tpu.experimental.initialize_tpu_system(resolver)":
            lambda: tf.tpu.experimental.initialize_tpu_system(resolver),
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
fine = [said.startswith("no error") for said in answers.values()]
lab.measure("tpu_line", 1 + fine.index(False))
for line, said in answers.items():
    print(f"{line}\n    {said}")

# %% [markdown]
# On a **TPU pod** every host has a few TPU cores, and links of their own join all cores of the pod in a torus of rings.
# `TPUStrategy` is a mirrored strategy over all cores: each core is a replica, and each host feeds its own cores. The
# all-reduce is part of the compiled program, and its data never go through a host. A compiled program needs shapes that are
# known beforehand, and TPUs mostly compute in bfloat16. No code of this lab has run on a TPU.

# %% [markdown]
# ## What works, of everything
#
# Which strategy goes with which way to train? Documentation is often older than the code. So the authors ran every
# combination (`make support` in the repository). A synchronous strategy works if its weights are NumPy's, a parameter
# server if no update is lost. The five ways to train are `fit` and a loop, each with Keras 3 and with tf_keras, and a loop
# with plain variables. The parameter `column` at the top chooses one of them; the cell below the picture counts the
# strategies that work with it.

# %%
matrix = support.recorded()
kept = matrix.column(column)

# %%
def mark(row, outcome):
    return "no TPU here" if row == "TPU" and outcome == "fails" else outcome

made_with = ", ".join(f"{name} {version}" for name, version in matrix.versions.items())
marks = {(row, way): mark(row, outcome) for (row, way), (outcome, _) in matrix.cells.items()}
figures.outcomes(
    matrix.rows, support.WAYS, marks, "What works, of everything?",
    f"run on {matrix.date} with {made_with}",
)

# %%
works = [row for row, (outcome, _) in kept.items() if outcome == "works"]
print(f"{column}: {len(works)} of {len(kept)} strategies work\n")
for (row, way), (outcome, words) in matrix.cells.items():
    if outcome != "works" and way in ("Keras 3 fit", "loop, Keras 3", "loop, variables"):
        print(f"{row}, {way}: {words}")

# %% [markdown]
# The next picture shows what the guide to TensorFlow 2.0 promised in 2019, beside what holds today. The guide had three
# rows. The `Estimator` API is gone. For which strategies has its row `Custom training loop` come true? (We have no TPU to
# try.) In its row `Keras API`, MultiWorkerMirrored was experimental and ParameterServer only planned. Does Keras 3 work
# with them today? Does tf_keras, in the large matrix above?

# %%
today = {"OneDevice": "OneDevice", "Mirrored": "Mirrored, 2 devices",
         "CentralStorage": "CentralStorage", "MultiWorkerMirrored": "MultiWorkerMirrored, RING",
         "ParameterServer": "ParameterServer", "TPU": "TPU"}
told_how = ("CentralStorage, aggregation=MEAN", "loop, variables")
apis = {
    "Keras API": ("Keras", "Keras 3 fit"),
    "Custom training loop": ("loop", "loop, variables"),
}
beside = {}
for name, row in today.items():
    for api, (short, way) in apis.items():
        beside[name, f"{short}, 2019"] = support.GUIDE_2_0[api][name]
        beside[name, f"{short}, today"] = mark(row, matrix.cells[row, way][0])
    beside[name, "Estimator, 2019"] = support.GUIDE_2_0["Estimator API"][name]
    fails = matrix.cells["v1 Estimator", "loop, variables"][0] == "fails"
    beside[name, "Estimator, today"] = "gone" if fails else "there"
beside["CentralStorage", "loop, today"] = matrix.cells[told_how][0]
with_keras = matrix.cells["ParameterServer", "loop, Keras 3"][0]
figures.outcomes(
    list(today),
    [f"{api}, {when}" for api in ("Keras", "loop", "Estimator") for when in ("2019", "today")],
    beside,
    "What of the guide of TensorFlow 2.0 holds today?",
    "words: the guide's, shortened; marks: run by this course;"
    f" ParameterServer's loop with Keras 3: {with_keras}",
)

# %% [markdown]
# CentralStorage's loop works if its variables have an `aggregation=`, the way to combine the replicas' updates; without it
# the loop fails, as the large matrix says. The mark for ParameterServer with a loop is from a run with plain
# `tf.Variable`s; the line under the picture's title says how a loop with a Keras 3 model ends. So on several machines use a
# custom loop, or tf_keras. And count your updates.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Abadi and others, *TensorFlow: a system for large-scale machine learning* (OSDI 2016): servers,
# workers, and what happens when one is lost. Li and others, *Scaling distributed machine learning with the parameter
# server* (OSDI 2014). Kumar and others, *Scale MLPerf-0.6 models on Google TPU-v3 pods*
# ([arXiv:1909.09756](https://arxiv.org/abs/1909.09756), 2019). TensorFlow's guides *Multi-worker training with Keras* and
# *Parameter server training*.
