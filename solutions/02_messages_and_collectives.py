# %% [markdown]
# # Lab 02. Messages and collectives
#
# **After this lab you are able to** keep conversations between ranks apart, find out which rank hangs a run, write
# the collectives that all distributed training is made of, name them in PyTorch, and predict from two measured numbers
# how long a message takes.
#
# **Minutes:** 125 (two sittings: 70 up to “Everybody to everybody: all-to-all”, then 55) · **Points:** 6 · **Prerequisites:** Lab
# 00 (`send`, `isend`, `recv`), PyTorch on one device.

# %% [markdown]
# ![Replay of 2 runs on one clock: tree ends first, after 87.3 ms; star takes 2.1 times as long.](../labs/covers/02.png)

# %%
# Set-up: the tools of this lab
import json
import math
import os
import random
import statistics
import time
from datetime import timedelta

import numpy as np
from worldsize.notebook import *

import torch
import torch.distributed as dist

from worldsize.formulas import cost

# %% tags=["parameters"]
worlds = [2, 4, 8]
tensor_bytes = 500_000
tries = 3
bare_largest = 32_000_000

# %%
lab, check = open_lab("02")

# %% [markdown]
# ## Two kinds of message
#
# Rank 0 sends rank 1 two numbers: first the loss, then the number of the step. Rank 1 wants the step first. Every
# message carries a **tag**, a small number that says what kind it is. `recv` takes the next message *of its tag* from
# a given rank. The tags are arguments here, so that we can try with and without them.

# %%
def two_numbers(fabric, loss_tag, step_tag):
    if fabric.rank == 0:
        handles = [
            fabric.isend(torch.tensor([0.25]), to=1, tag=loss_tag),
            fabric.isend(torch.tensor([7.0]), to=1, tag=step_tag),
        ]
        for handle in handles:
            handle.wait()
    else:
        step, loss = torch.empty(1), torch.empty(1)
        fabric.recv(step, frm=0, tag=step_tag)
        fabric.recv(loss, frm=0, tag=loss_tag)
        return step.item(), loss.item()

# %%
lab.predict("untagged", "The loss is 0.25, the step is 7, both tags are 0. Which number does rank 1 find in `step`?", "")

# %%
run = launch(two_numbers, 2, args=(0, 0))
lab.measure("untagged", run[1][0])
print("without tags: step {:g}, loss {:g}".format(*run[1]))
run = launch(two_numbers, 2, args=(1, 2))
print("with tags:    step {:g}, loss {:g}".format(*run[1]))

# %% [markdown]
# Without tags, messages between the same two ranks arrive **in the order in which they were sent**. Nothing complains:
# both are one float. With tags they arrive in the order in which they are *asked for*.
#
# Tags come from MPI, and PyTorch's functions take them too. But NCCL, which moves nearly all messages between GPUs, has
# none: [PyTorch's documentation](https://docs.pytorch.org/docs/stable/distributed.html) says they are not supported
# there.

# %% [markdown]
# ## Without tags: groups and batches
#
# Training code keeps conversations apart in three other ways. The first is **order**: every rank does the same things in
# the same order. The second is a **process group**: some ranks with connections of their own, whose messages never meet
# another group's. `init_process_group` makes the first one. All ranks find each other at an agreed address, which is
# called *rendezvous*, and a **backend**, here gloo, moves their bytes. `new_group([0, 1])` makes a smaller group.
# *Every* rank calls it, member or not.

# %%
def grid_sums(fabric):
    """4 ranks as a grid of 2 × 2: the sum over this rank's row, and over its column."""
    dist.init_process_group("gloo")
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]

    row, column = divmod(fabric.rank, 2)
    over_row, over_column = torch.tensor([10 ** fabric.rank]), torch.tensor([10 ** fabric.rank])
    dist.all_reduce(over_row, group=rows[row])
    dist.all_reduce(over_column, group=columns[column])
    return over_row.item(), over_column.item()

# %%
lab.predict("column", "`all_reduce` leaves the sum on every rank. Rank r brings 10^r. What does rank 2 get over its column?", "")

# %%
run = launch(grid_sums, 4)
lab.measure("column", run[2][1])
for rank, (over_row, over_column) in enumerate(run.results):
    print(f"rank {rank}: {over_row:>5} over its row, {over_column:>5} over its column")

# %% [markdown]
# Large models are trained on such grids: one group splits the layers' matrices, the other averages gradients (lab 12).
#
# The third way is a **batch**. `batch_isend_irecv` takes a list of sends and receives and begins them all at once. None
# of them waits for another, so no order in the list can make a deadlock. Pipelines send activations forwards and
# gradients backwards this way. Here every rank passes its number to the right, as in lab 00.

# %%
def pass_right_in_a_batch(fabric):
    dist.init_process_group("gloo")
    n, me = fabric.world_size, fabric.rank
    x, out = torch.tensor([me]), torch.empty(1, dtype=torch.int64)
    batch = [dist.P2POp(dist.isend, x, (me + 1) % n), dist.P2POp(dist.irecv, out, (me - 1) % n)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return out.item()

print("received by ranks 0 to 3:", *launch(pass_right_in_a_batch, 4).results)

# %% [markdown]
# ## Who waits for whom
#
# Tags bring a new way to wait forever. One digit is wrong below. How long until somebody notices?

# %%
def wrong_tag(fabric):
    x = torch.zeros(3)
    if fabric.rank == 0:
        fabric.send(x, to=1, tag=1)
    elif fabric.rank == 1:
        fabric.recv(x, frm=0, tag=2)
        fabric.send(x, to=2, tag=1)
    else:
        fabric.recv(x, frm=1, tag=1)

# %%
lab.predict("noticed", "After how many seconds does the launcher end this run?", "s")

# %%
try:
    launch(wrong_tag, 3, timeout_s=60)
except Deadlock as error:
    print(error)
lab.measure("noticed", last_run().wall_s)

# %% [markdown]
# Every rank of the fabric publishes what it waits for. When all of them wait and no message can match, the launcher
# says so at once. Read the line that begins with “deadlock” as a chain: rank 2 waits for 1, rank 1 for 0, and 0 for 1.
# The two tags that do not match stand side by side.

# %% [markdown]
# `all_reduce` and `barrier` are **collectives**: all ranks of a group call them together. The messages of a framework's
# collective do not pass through the fabric, but every rank counts the collectives that it has begun. The launcher
# compares these counts: a collective that one rank can no longer join has no end. The usual reason is a branch that one
# rank takes and the others do not. The report says where each rank stood.

# %%
def one_takes_another_branch(fabric):
    dist.init_process_group("gloo")
    if fabric.rank == 2:
        fabric.recv(torch.zeros(3), frm=0)  # the others never come here
    dist.barrier()

try:
    launch(one_takes_another_branch, 3)
except Deadlock as error:
    print(error)

# %% [markdown]
# **In one sentence:** which rank has the mistake, and how does the report tell you?
#
# <details><summary>Compare</summary>Rank 2: it stands at a different line from all the others. In a hang, look for
# the odd one out, not for the rank that waits longest.</details>

# %% [markdown]
# ## What PyTorch can tell you about a hang
#
# A real job has a thousand ranks and no report. Three PyTorch tools look inside. The first is `monitored_barrier`, a
# barrier in which rank 0 asks every other rank separately. It needs gloo; a job on NCCL makes one more group for it,
# with `new_group(backend="gloo")`. Below, rank 2 never comes. **Before you run it:** which of the other three ranks
# can say who is missing?

# %%
def rank_2_never_comes(fabric):
    dist.init_process_group("gloo")
    if fabric.rank == 2:
        return "left"
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        return str(error).splitlines()[0]

for said in launch(rank_2_never_comes, 4).results:
    print(said)

# %% [markdown]
# The second is `TORCH_DISTRIBUTED_DEBUG=DETAIL`. PyTorch then compares, before each collective, what all ranks are
# about to do: operation, shape, dtype. That costs time, so it is for debugging. A job sets it in the shell before it
# starts; here PyTorch has been imported already and must read it again.

# %%
def one_rank_calls_another_collective(fabric):
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    dist.init_process_group("gloo")
    x = torch.ones(3)
    try:
        if fabric.rank == 2:
            dist.broadcast(x, src=0)
        else:
            dist.all_reduce(x)
    except RuntimeError as error:
        return str(error).partition("Collectives differ")[2]

for rank, said in enumerate(launch(one_rank_calls_another_collective, 3).results):
    print(f"rank {rank}: Collectives differ{said}")

# %% [markdown]
# The third is the **flight recorder**. Every rank keeps its last collectives in memory, 2000 of them unless
# `TORCH_FR_BUFFER_SIZE` says otherwise. Below, rank 2 is about to skip one, and we read the record from within, with a
# private function of PyTorch, which may change. Which entry is missing, and where?

# %%
def rank_2_skips_one(fabric):
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if fabric.rank != 2:
        dist.broadcast(x, src=0, async_op=True)  # begun, but not waited for
    record = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    return [
        f"{e['collective_seq_id']} {e['profiling_name']} {e['input_sizes']}"
        for e in record["entries"]
    ]

for rank, entries in enumerate(launch(rank_2_skips_one, 3).results):
    print(f"rank {rank}:", "; ".join(entries))

# %% [markdown]
# A job on NCCL writes these records when a collective runs into its time limit, with `TORCH_NCCL_DUMP_ON_TIMEOUT=1` and
# a file name in `TORCH_FR_DUMP_TEMP_FILE`; the command `torchfrtrace` compares the files of all ranks. (Not run here: it
# needs GPUs. [PyTorch's tutorial](https://docs.pytorch.org/tutorials/prototype/flight_recorder_tutorial.html) shows
# it.) And `py-spy dump --pid …`, a separate tool, prints the Python stack of a hanging process, from outside.

# %% [markdown]
# ## From one to all
#
# Before training begins, all ranks need the same weights. Rank 0 has them; it **broadcasts** them. Rank 0 is the
# *root*. The first idea: the root sends to everybody, one after the other. Drawn, that is a **star**.

# %%
def star_broadcast(fabric, x, root):
    if fabric.rank != root:
        fabric.recv(x, frm=root)
        return
    for other in range(fabric.world_size):
        if other != root:
            fabric.send(x, to=other)

# %% [markdown]
# We look at it over slow links, so that times can be seen: 20 MB/s and a latency of 100 µs. The course holds every
# message back until a real network card of that speed would have delivered it. Each rank has one card.

# %%
slow = Link("20 MB/s", "100 us")
n = max(worlds)
lab.predict(
    "star", f"{n} ranks, {tensor_bytes / 1e3:g} kB, 20 MB/s: how many ms does the star take?",
    "ms",
)

# %%
def send_all(fabric, broadcast, length):
    broadcast(fabric, torch.ones(length), 0)

run = launch(send_all, n, args=(star_broadcast, tensor_bytes // 4), link=slow)
lab.measure(
    "star",
    1e3 * max(t.end_s for t in run.trace.transfers) - 1e3 * run.trace.transfers[0].start_s,
)
figures.messages(run)

# %% [markdown]
# Only the root's card sends, and every other one waits for its turn. A message of $m$ bytes takes $\alpha+\frac mB$, with
# latency $\alpha$ and bandwidth $B$. The star's $n-1$ messages leave one after the other through one card:
# $\alpha+(n-1)\frac mB$. (The latencies overlap: on a slow link `send` returns when the last byte has left the card, so
# the second message leaves while the first is still on its way.)

# %% [markdown]
# ## Let the others help
#
# After the first message two ranks have the tensor. Why should only one of them go on sending? Let *every* rank that
# has it send it on. The number of ranks that have it doubles in every **round**: 1, 2, 4, 8. With 1000 ranks that is
# $\lceil\log_2 1000\rceil=10$ rounds, in place of 999 messages in turn. Drawn from the root down, this is a *binomial
# tree*.

# %% [markdown]
# Write it, for any root and any number of ranks, also 3 or 5. Two thoughts help. First, number the ranks *from the
# root*: `me = (rank − root) % n` is 0 on the root. Second, when round k begins (k = 0, 1, …), those with `me` below
# 2ᵏ have the tensor.
#
# <details><summary>Hint 1</summary>With <code>step</code> = 1, 2, 4, …: a rank that has the tensor sends it to the
# one <code>step</code> further on. If there is no such partner (number n or more), it skips the round.</details>
# <details><summary>Hint 2</summary>In one round a rank sends, or receives, or does neither.</details>
# <details><summary>Hint 3</summary>Back from <code>me</code> to a real rank: add the root, modulo n.</details>

# %% tags=["exercise:tree_broadcast"]
# Exercise 2.1: a broadcast as a tree
def tree_broadcast(fabric, x, root):
    """Fills every rank's x with the root's, in place.

    Every rank but the root receives one message, the whole of x; ⌈log2 n⌉ rounds. x is flat and
    may have any dtype.
    """
    ### BEGIN SOLUTION
    n = fabric.world_size
    me = (fabric.rank - root) % n
    step = 1
    while step < n:
        if me < step and me + step < n:
            fabric.send(x, to=(me + step + root) % n)
        elif step <= me < 2 * step:
            fabric.recv(x, frm=(me - step + root) % n)
        step *= 2
    ### END SOLUTION

# %% tags=["check:tree_broadcast"] points=1.5
check.tree_broadcast(tree_broadcast)

# %% [markdown]
# Star and tree on one clock, with the same tensor over the same links. **Before you press Play:** when the tree is done,
# how many ranks will the star have reached?

# %%
# Helper: wait for a common moment, then broadcast
def together():
    """Wait for a moment that all ranks agree on."""
    start = torch.tensor([time.monotonic() + 0.05], dtype=torch.float64)
    dist.broadcast(start, 0)
    time.sleep(max(0.0, start.item() - time.monotonic()))
    return start.item()

def all_at_once(fabric, collective, length):
    dist.init_process_group("gloo")
    together()
    collective(fabric, torch.ones(length), 0)

# %% tags=["cover"]
broadcasts = {"star": star_broadcast, "tree": tree_broadcast}
figures.replay(
    {
        name: launch(all_at_once, n, args=(broadcast, tensor_bytes // 4), link=slow)
        for name, broadcast in broadcasts.items()
    }
)

# %% [markdown]
# The same number of messages and of bytes; but in the tree several ranks send at once. By the formulas: a star
# $\alpha+(n-1)\frac mB$, a tree $\lceil\log_2 n\rceil\left(\alpha+\frac mB\right)$. Does that hold? A race: all ranks
# start together, and the clock runs until the last one is done. Star and tree take turns, a few times, and the *middle*
# time counts. A line on each bar goes from the fastest try to the slowest. Where two such lines overlap, it is a tie.

# %%
# Helper: a stopwatch on every rank
def lap(fabric, collective, size_bytes):
    x = torch.ones(size_bytes // 4)
    start = together()
    try:
        collective(fabric, x, 0)
    except NotYet:
        return None
    return time.monotonic() - start

def stopwatch(fabric, collectives, sizes, tries):
    """Seconds until this rank is done, for every try: by size, then by collective. They take turns."""
    dist.init_process_group("gloo")
    for collective in collectives:
        lap(fabric, collective, 64)  # warms up
    laps = [[[] for _ in collectives] for _ in sizes]
    for _ in range(tries):
        for of_size, size in zip(laps, sizes):
            for of_one, collective in zip(of_size, collectives):
                of_one.append(lap(fabric, collective, size))
    return laps

# %%
# Helper: race collectives over a link
def race(n, contestants, sizes, link):
    """{name: [the seconds of all tries, for each size]}; None for what is not written yet."""
    laps = launch(stopwatch, n, args=(list(contestants.values()), sizes, tries), link=link).results

    def slowest_rank(size, name):
        by_try = list(zip(*(laps[rank][size][name] for rank in range(n))))
        return None if None in by_try[0] else list(map(max, by_try))

    return {name: [slowest_rank(k, i) for k in range(len(sizes))] for i, name in enumerate(contestants)}

def times(one, other):
    """How many times as long the first took; None where one of them is not written yet."""
    return one / other if one and other else None

# %%
# Helper: the bars of a race
def middle(seconds):
    """The median of some tries; None for what is not written yet."""
    return seconds and statistics.median(seconds)

def bars_of(laps, formulas, size_bytes):
    """A bar for each contestant of {number of ranks: race}: the middle try, all tries, and the formula if there is one."""
    bars = []
    for n, raced in laps.items():
        for name, (own,) in raced.items():
            foretold = formulas[name](n, size_bytes, slow) if name in formulas else None
            bars.append(figures.Timing(name, middle(own), foretold, n, repeats_s=own or ()))
    return bars

# %%
lab.predict("tree", f"{n} ranks, {tensor_bytes / 1e3:g} kB: how many times as long as the tree does the star take?", "times")

# %%
formulas = {"star": cost.broadcast_star, "tree": cost.broadcast_tree}
laps = {n: race(n, broadcasts, [tensor_bytes], slow) for n in worlds}
lab.measure("tree", times(middle(laps[n]["star"][0]), middle(laps[n]["tree"][0])))
bars = bars_of(laps, formulas, tensor_bytes)
figures.race(
    bars,
    figures.answered(
        "A broadcast: star or tree, and does it depend on the number of ranks?",
        figures.quicker(bars),
    ),
)

# %% [markdown]
# The dashed outlines are the formulas, computed before anything ran. With 2 ranks there is nothing to help with.
# Beyond that the star grows with n, the tree only with log2 n.

# %% [markdown]
# ### To a thousand ranks (optional)
#
# `simulate` runs the same functions without processes: all ranks take turns in this one, each with a **simulated clock**
# that only messages move. So there is room for a thousand. First see whether its seconds match the real ranks'.

# %%
many = [2, 4, 8, 16, 64, 256, 1024]

def from_0(fabric, broadcast):
    broadcast(fabric, torch.ones(tensor_bytes // 4), 0)

def simulated_s(broadcast, n, link):
    """Seconds on the simulated clock; None where the exercise is not written yet."""
    run = simulate(from_0, n, args=(broadcast,), link=link)
    return run.simulated_s if run.state == "done" else None

# %%
lab.predict("thousand", f"{many[-1]} ranks: how many times as long as the tree does the star take?", "times")

# %%
simulated = {
    name: [(k, simulated_s(fn, k, slow)) for k in many] for name, fn in broadcasts.items()
}
lead = times(simulated["star"][-1][1], simulated["tree"][-1][1])
lab.measure("thousand", lead)
answer = None
if lead:
    apart = [
        abs(middle(laps[k][name][0]) / dict(simulated[name])[k] - 1)
        for k in worlds
        for name in broadcasts
    ]
    end = f"{many[-1]:,} ranks: star {lead:.3g} times tree"
    answer = f"{100 * max(apart):.0f} % apart at most; {end}"
figures.curves(
    [
        figures.Curve(
            name, [(k, middle(laps[k][name][0])) for k in worlds], simulated=simulated[name]
        )
        for name in broadcasts
    ],
    figures.answered(
        "Do real and simulated ranks agree, and how far apart are star and tree at the end?",
        answer,
    ),
    x="ranks", y="time of a broadcast (s)", log=True,
)

# %%
def thousand(largest_world=1024, latency="100 µs"):
    link = Link("20 MB/s", latency)
    rows = {
        name: [(k, simulated_s(fn, k, link)) for k in many if k <= largest_world]
        for name, fn in broadcasts.items()
    }
    return figures.curves(
        [figures.Curve(name, simulated=points) for name, points in rows.items()],
        f"A latency of {latency}: star or tree?", x="ranks", y="time of a broadcast (s)",
        log=True,
    )

knobs(thousand, largest_world=[64, 256, 1024], latency=["1 µs", "100 µs", "20 ms"])

# %% [markdown]
# ## When the star wins (optional)
#
# Now links with a long delay, as between two cities, and a tiny tensor. Then $m/B$ hardly counts. The star waits for the
# latency once. How often does the tree?

# %%
far = Link("20 MB/s", "20 ms")
lab.predict(
    "tiny", f"{n} ranks, 1 kB, 20 ms: how many times as long as the star does the tree take?",
    "times",
)

# %%
sizes = [1_000, 100_000, 400_000, 800_000]
sweep = {
    name: list(map(middle, by_size))
    for name, by_size in race(n, broadcasts, sizes, far).items()
}
lab.measure("tiny", times(sweep["tree"][0], sweep["star"][0]))

# %%
rounds = math.ceil(math.log2(n))
equal_bytes = (rounds - 1) * far.latency_s * far.bandwidth_bytes_per_s / (n - 1 - rounds)
figures.curves(
    [
        figures.Curve(
            name, list(zip(sizes, sweep[name])), [(m, formulas[name](n, m, far)) for m in sizes]
        )
        for name in broadcasts
    ],
    f"{n} ranks over far links: up to which size is the star quicker? (By the formulas"
    f" {equal_bytes / 1e3:.0f} kB.) Is it?",
    x="size of the tensor (bytes)", y="time of a broadcast (s)", log=True,
)

# %% [markdown]
# Small messages are a matter of latency, large ones of bandwidth: which is quicker depends on both. One caution. Our
# links count a sender's own work as free. Real software spends some time on every single message, so with thousands
# of ranks a star is slow for tiny tensors too, and libraries broadcast those as trees.
#
# **In one sentence:** where do star and tree meet, if the latency doubles?
#
# <details><summary>Compare</summary>At twice the size. Set the two formulas equal: the size is
# (rounds − 1) α B / (n − 1 − rounds), proportional to α.</details>

# %% [markdown]
# ## From all to one
#
# The opposite of a broadcast: every rank has a tensor, and the root needs their **sum**. This is called a *reduce*.
# As a star, the root receives $n-1$ tensors and adds them up. As a tree: turn the arrows of the broadcast round.
# Ranks pair up; one of each pair sends and is done; the other adds. Half of the ranks are left, and they pair up
# again.

# %%
def star_reduce(fabric, x, root):
    if fabric.rank != root:
        fabric.send(x, to=root)
        return
    arrived = torch.empty_like(x)
    for other in range(fabric.world_size):
        if other != root:
            fabric.recv(arrived, frm=other)
            x += arrived

# %% [markdown]
# Write the tree. Again count from the root, and again take steps 1, 2, 4, …: first neighbours pair up, then those that
# are left.
#
# <details><summary>Hint 1</summary>With <code>step</code> = 1 the odd ones send to the even one before them and are
# done. With 2, the remaining 2, 6, 10, … send to 0, 4, 8, …</details>
# <details><summary>Hint 2</summary>Who sends in this round? <code>me % (2 * step) == step</code>.</details>
# <details><summary>Hint 3</summary>The one that would send to you may not exist: is its number below n?</details>

# %% tags=["exercise:tree_reduce"]
# Exercise 2.2: a reduce as a tree
def tree_reduce(fabric, x, root):
    """Leaves the sum over all ranks in the root's x, in place; the others' x may change.

    Every rank but the root sends one message, as long as x; ⌈log2 n⌉ rounds. x is flat and may
    have any dtype.
    """
    ### BEGIN SOLUTION
    n = fabric.world_size
    me = (fabric.rank - root) % n
    arrived = torch.empty_like(x)
    step = 1
    while step < n:
        if me % (2 * step) == step:
            fabric.send(x, to=(me - step + root) % n)
            return
        if me + step < n:
            fabric.recv(arrived, frm=(me + step + root) % n)
            x += arrived
        step *= 2
    ### END SOLUTION

# %% tags=["check:tree_reduce"] points=1.5
check.tree_reduce(tree_reduce)

# %% [markdown]
# Look inside. Each rank fills its tensor with its own mark. In the boxes below a filled row means: this rank's numbers
# are in. Watch the sums grow on their way to the root.

# %%
from worldsize.fabric.watched import Watched

def watched(fabric, reduce, length):
    x = torch.full((length,), 10.0**fabric.rank)
    watching = Watched(fabric, x, chunks=1)
    reduce(watching, x, 0)
    return watching.notes()

run = launch(watched, n, args=(tree_reduce, tensor_bytes // 4), link=slow)
figures.steps(run, "tree", contents=run.results, hub=0)

# %% [markdown]
# A sum of two tensors is as long as one of them. So in every round the bytes on the way halve, and no card takes in
# more than one tensor a round.

# %%
lab.predict("reduce", f"{n} ranks, {tensor_bytes / 1e3:g} kB, 20 MB/s: how many ms does your tree take?", "ms")

# %%
reduces = {"star": star_reduce, "tree": tree_reduce}
formulas = {"star": cost.reduce_star, "tree": cost.reduce_tree}
laps = {n: race(n, reduces, [tensor_bytes], slow) for n in worlds}
lab.measure("reduce", laps[n]["tree"][0] and 1e3 * middle(laps[n]["tree"][0]))
bars = bars_of(laps, formulas, tensor_bytes)
figures.race(
    bars,
    figures.answered(
        "A reduce: star or tree, and does it depend on the number of ranks?",
        figures.quicker(bars),
    ),
)

# %% [markdown]
# ## All of it to one (optional)
#
# Sometimes the sum is not enough. To evaluate a model, rank 0 may want every rank's predictions, side by side. This is
# a **gather**: the root ends with n blocks, one from each rank. As a tree it takes the same pairs as your reduce. But
# nothing is added up, so what travels *grows*: a rank that has received one block sends two. Star and tree are
# given.

# %%
def star_gather(fabric, x, root):
    """The root returns everybody's x as rows; the others return None."""
    if fabric.rank != root:
        fabric.send(x, to=root)
        return None
    rows = x.repeat(fabric.world_size, 1)
    for other in range(fabric.world_size):
        if other != root:
            fabric.recv(rows[other], frm=other)
    return rows

def tree_gather(fabric, x, root):
    n = fabric.world_size
    me, held, step = (fabric.rank - root) % n, x[None], 1
    while step < n:
        if me % (2 * step) == step:
            fabric.send(held, to=(me - step + root) % n)
            return None
        if me + step < n:
            below = torch.empty(min(step, n - me - step), len(x), dtype=x.dtype)
            fabric.recv(below, frm=(me + step + root) % n)
            held = torch.cat([held, below])
        step *= 2
    return held.roll(root, dims=0)  # from the tree's order to the ranks'

# %%
lab.predict(
    "gather",
    f"{n} ranks, {tensor_bytes / 1e3:g} kB from each: how many times as long as a tree does a star take?",
    "times",
)

# %%
gathers = {"star": star_gather, "tree": tree_gather}
formulas = {"star": cost.gather_star, "tree": cost.gather_tree}
laps = {n: race(n, gathers, [tensor_bytes], slow) for n in worlds}
lab.measure("gather", times(middle(laps[n]["star"][0]), middle(laps[n]["tree"][0])))
bars = bars_of(laps, formulas, tensor_bytes)
figures.race(
    bars,
    figures.answered(
        "A gather: star or tree, and does it depend on the number of ranks?",
        figures.quicker(bars),
    ),
)

# %% [markdown]
# Fewer messages reach the tree's root, but each is twice as long as the one before. The root's card takes in $n-1$
# blocks whichever way they come. Both formulas say $(n-1)\frac mB$; the tree adds latencies.
#
# **In one sentence:** why does a tree help a reduce, and not a gather?
#
# <details><summary>Compare</summary>A sum gets no longer on its way; a table does. Helpers can add for the root; they
# cannot receive for it.</details>
#
# Turn the arrows round and the root deals out its rows: a **scatter**. A gather, then a broadcast, gives everybody
# the whole table: an **all-gather**.

# %% [markdown]
# ## Everybody to everybody: all-to-all
#
# Every rank has a table with a row for each rank. Row j of rank r's table goes to rank j, and lands there in row r. So
# blocks change places as in a transposed matrix. This is an **all-to-all**. Where a model's experts live on different
# ranks (*mixture of experts*), it takes each token to its expert, and a second one brings the result back (Lepikhin and
# others, GShard, 2020).

# %% [markdown]
# Each of the $n(n-1)$ blocks is for one rank alone. Nothing can be added up or passed on, so no tree saves a byte. What
# counts is the **order**: a rank has $n-1$ blocks to send and as many to receive, and its card can do one of each at a
# time. So $n-1$ rounds are enough, if in each of them every rank sends one block and receives one. Below, everybody
# serves rank 0 first, then rank 1, and so on. How many cards are busy at a time?

# %%
def one_after_the_other(fabric, x):
    """An all-to-all that serves rank 0 first, then rank 1, …"""
    out = x.clone()
    for served in range(fabric.world_size):
        if fabric.rank != served:
            fabric.send(x[served], to=served)
            continue
        for other in range(fabric.world_size):
            if other != served:
                fabric.recv(out[other], frm=other)
    return out

# %% [markdown]
# Now do it in $n-1$ rounds. In each, every rank sends one row and receives one, so all ranks must send to *different*
# ranks. In which order does rank r send its rows?
#
# <details><summary>Hint 1</summary>Your own row does not travel: <code>out = x.clone()</code> has it in place, with
# the right shape and dtype.</details>
# <details><summary>Hint 2</summary>Let rank r send to r + 1 in the first round, to r + 2 in the second, … Who sends to
# rank r meanwhile?</details>
# <details><summary>Hint 3</summary>In a round: isend, recv, then wait for the handle. With <code>send</code> everybody
# would wait for everybody.</details>

# %% tags=["exercise:all_to_all"]
# Exercise 2.3: an all-to-all that keeps every card busy
def all_to_all(fabric, x):
    """Returns a table like x, [n, elements]: its row r is the row that rank r had for this
    rank.

    Every rank sends each other rank one message, one row of x; n − 1 rounds. x may have any
    dtype, and afterwards hold anything.
    """
    ### BEGIN SOLUTION
    n, me = fabric.world_size, fabric.rank
    out = x.clone()
    for distance in range(1, n):
        right, left = (me + distance) % n, (me - distance) % n
        handle = fabric.isend(x[right], to=right)
        fabric.recv(out[left], frm=left)
        handle.wait()
    return out
    ### END SOLUTION

# %% tags=["check:all_to_all"] points=1.5
check.all_to_all(all_to_all)

# %%
lab.predict(
    "all_to_all",
    f"{n} ranks, tables of {4 * tensor_bytes / 1e6:g} MB: how many times as long as yours does one after the other take?",
    "times",
)

# %%
def of_tables(exchange):
    """An exchange of tables as a contestant: the tensor is cut into a row for each rank."""
    def contestant(fabric, x, root):
        exchange(
            fabric,
            x[: len(x) // fabric.world_size * fabric.world_size].view(fabric.world_size, -1),
        )
    return contestant

exchanges = {
    "one after the other": of_tables(one_after_the_other),
    "all at once": of_tables(all_to_all),
}
table = 4 * tensor_bytes
laps = {n: race(n, exchanges, [table], slow) for n in worlds}
lab.measure(
    "all_to_all",
    times(middle(laps[n]["one after the other"][0]), middle(laps[n]["all at once"][0])),
)
bars = bars_of(laps, {"all at once": cost.all_to_all}, table)
figures.race(
    bars,
    figures.answered(
        "An all-to-all: does the order matter, and does it depend on the number of ranks?",
        figures.quicker(bars),
    ),
)

# %%
run = launch(of_tables(all_to_all), min(4, n), args=(torch.ones(table // 4), 0), link=slow)
figures.messages(run)

# %% [markdown]
# By the formula your order takes $(n-1)\left(\alpha+\frac{m}{nB}\right)$ for tables of m bytes. With more ranks the
# blocks get smaller, and the bytes never take longer than one whole table would: each card sends $\frac{n-1}{n}m$ of
# them.

# %% [markdown]
# ## Two numbers for a link
#
# All predictions so far needed $\alpha$ and $B$. On a real cluster nobody tells you these; you **measure** them.
# Below, the computer draws a link at random and does not say which. Two ranks play ping-pong over it with messages of
# many sizes. The time of one message is half a round trip. Here the *fastest* of several tries counts: whatever else this
# machine does meanwhile can only add time.

# %%
from worldsize.launch import quiet_launch  # without a word, so that the link stays hidden

hidden = Link(random.uniform(10e6, 40e6), random.uniform(2e-3, 6e-3))

def there_and_back(fabric, x):
    if fabric.rank == 0:
        fabric.send(x, to=1)
        fabric.recv(x, frm=1)
    else:
        fabric.recv(x, frm=0)
        fabric.send(x, to=0)

def ping_pong(fabric, sizes, tries):
    """{size: seconds of one message}, the fastest of some tries."""
    best = dict.fromkeys(sizes, math.inf)
    tensors = {size: torch.zeros(size, dtype=torch.uint8) for size in sizes}
    for size in sizes * tries:
        there_and_back(fabric, torch.zeros(1))  # so that both are awake
        start = time.monotonic()
        there_and_back(fabric, tensors[size])
        best[size] = min(best[size], (time.monotonic() - start) / 2)
    return best

fitted = [100, 1_000, 10_000, 100_000, 1_000_000]
left_out = [300, 3_000, 30_000, 300_000, 600_000]
measured = quiet_launch(ping_pong, 2, args=(fitted + left_out, 5), link=hidden)[0]
for size in fitted:
    print(f"{size:>9,} bytes: {1e3 * measured[size]:6.2f} ms")

# %%
lab.predict("alpha", "From this table by eye: how many ms is α?", "ms")

# %%
lab.predict("bandwidth", "And how many MB/s is B?", "MB/s")

# %% [markdown]
# Now find $\alpha$ and $B$ so that the line $T=\alpha+\frac mB$ is close to the measured times: *least squares*. The
# check first gives you times that lie on a line exactly. Then it gives you one time for each of nine sizes from 100
# bytes to 10 GB, of which the first and the last are 20 % off, and asks your line for sizes that it **left out**.
# Your line may be 15 % off there. So no size may count more than another.
#
# <details><summary>Hint 1</summary>A line in m has the slope 1/B. <code>np.polyfit</code> or
# <code>np.linalg.lstsq</code> finds lines.</details>
# <details><summary>Hint 2, when the small sizes fail</summary>5 % of 5 s is 250 ms, which, squared, outweighs every
# small message. The <em>relative</em> error, (α + m/B − T) / T, should be small for all sizes alike.</details>
# <details><summary>Hint 3</summary>Divide by T: find α and 1/B for which α · (1/T) + (1/B) · (m/T) is close to 1.
# That is least squares again, with two columns.</details>

# %% tags=["exercise:fit_alpha_beta"]
# Exercise 2.4: latency and bandwidth from measured times
def fit_alpha_beta(sizes, seconds):
    """(α in seconds, B in bytes a second) of the line seconds = α + sizes / B.

    Both arguments are NumPy arrays of floats, and stay as they are. Errors count relative to
    the time, at all sizes alike.
    """
    ### BEGIN SOLUTION
    table = np.stack([1 / seconds, sizes / seconds], axis=1)
    scale = table.max(axis=0)
    wanted = np.ones(len(sizes))
    solution, *_ = np.linalg.lstsq(table / scale, wanted, rcond=None)
    alpha, seconds_a_byte = solution / scale
    return alpha, 1 / seconds_a_byte
    ### END SOLUTION

# %% tags=["check:fit_alpha_beta"] points=1.5
check.fit_alpha_beta(fit_alpha_beta)

# %%
def line(name, fit, times, sizes):
    """`fit` applied to some measured times, for a figure; no numbers if not yet written."""
    try:
        alpha, bandwidth = fit(
            np.array(sizes, float), np.array([times[size] for size in sizes])
        )
    except NotYet:
        return figures.Line(name, None)
    return figures.Line(name, (float(alpha), float(bandwidth)))

yours = line("your fit", fit_alpha_beta, measured, fitted)
alpha, bandwidth = yours.alpha_bandwidth or (None, None)
lab.measure("alpha", alpha and 1e3 * alpha)
lab.measure("bandwidth", bandwidth and bandwidth / 1e6)
if alpha:
    away_ms = 1e3 * (alpha - hidden.latency_s)
    print(f"the hidden link was {hidden}; your α is {away_ms:+.2f} ms away from its own")

# %%
def worst(line, times, sizes):
    """The largest error of a line at these sizes, in % of the time measured there."""
    if line.alpha_bandwidth:
        return 100 * max(abs(line.error(size, times[size])) for size in sizes)

figures.residuals(
    measured, [yours], "A shaped link: how far off is your line, and is there a pattern?",
    left_out,
)

# %% [markdown]
# The time that a process takes to wake up is in your $\alpha$, too: a measurement includes everything. The lower picture
# shows the **residuals**, what the line leaves over. Small, and without a pattern? That is how you
# see that a model is good enough.

# %% [markdown]
# ### Why relative errors (optional)
#
# On a quiet link nearly any fit will do. On a busy network times are easily 20 % off. No run here shows that on
# demand, so for once we **make up** numbers: the hidden link's exact times, from 100 bytes to 1 GB, each multiplied
# by a random number from 0.8 to 1.2. Ordinary least squares makes the errors in *seconds* small. How good is that
# line?

# %%
lab.predict("seconds", "The line with small errors in seconds: how many % is it off at worst, at the sizes left out?", "%")

# %%
def in_seconds(sizes, seconds):
    slope, offset = np.polyfit(sizes, seconds, 1)
    return offset, 1 / slope

sizes = [round(100 * 10 ** (k / 3)) for k in range(22)]
made_up = {size: hidden.seconds(size) * random.uniform(0.8, 1.2) for size in sizes}
both = [
    line("your fit", fit_alpha_beta, made_up, sizes[::2]),
    line("the line by seconds", in_seconds, made_up, sizes[::2]),
]
off = worst(both[1], made_up, sizes[1::2])
lab.measure("seconds", off)
asks = "Made-up noise: is a line as good that makes errors in seconds small?"
figures.residuals(made_up, both, asks, sizes[1::2], points="made up")

# %% [markdown]
# Look at the left end. A fifth of the largest time is far longer than a whole small message. Squares of seconds see
# nothing but that; the line turns to please the largest sizes, and its $\alpha$, the only thing that counts for small
# ones, can be anything. It may be below zero: a message that arrives before it was sent. Relative errors weigh all
# sizes alike.

# %% [markdown]
# ## The bare machine (optional)
#
# Now the same game with no shaped link: two processes, and messages as fast as this machine can send them. Do
# their times lie on a line too? Small messages are quick, so we try them more often.

# %%
from worldsize.fabric import SMALL_BYTES

fitted = [250, 1_000, 4_000, 16_000, 64_000, 250_000, 1_000_000, 4_000_000]
fitted += [bare_largest // 2, bare_largest]
left_out = [500, 2_000, 8_000, 32_000, 100_000, SMALL_BYTES, SMALL_BYTES + 1]
left_out += [200_000, 500_000, 2_000_000, 8_000_000]

def bare_times(sizes):
    small = [size for size in sizes if size <= 500_000]
    large = [size for size in sizes if size > 500_000]
    return launch(ping_pong, 2, args=(small, 40))[0] | launch(ping_pong, 2, args=(large, 12))[0]

# %%
lab.predict("bare", "On the bare machine, at the sizes left out: how many % is your line off at worst?", "%")

# %%
bare = bare_times(fitted + left_out)
yours = line("your fit", fit_alpha_beta, bare, fitted)
off = worst(yours, bare, left_out)
lab.measure("bare", off)
mark = {SMALL_BYTES: f"{SMALL_BYTES // 1024} KiB"}
figures.residuals(
    bare, [yours], "The bare machine: how far off is your line, and is there a pattern?",
    left_out, mark,
)

# %% [markdown]
# Compare the lower picture with the shaped link's. Are these errors larger? Do they lie in arcs, or jump? Such a
# pattern says that the *model* lacks something. Look at 128 KiB.

# %% [markdown]
# ### One more byte (optional)
#
# (Run *The bare machine* first.) The course's messages between processes have a **switch**. Up to 128 KiB a tensor is
# *copied* behind its header, and both leave as one message. Above that the header goes alone, and the tensor follows
# without a copy, as a second message. Many MPI libraries have such a switch too and call its sides *eager* and
# *rendezvous*. The copies, one on each side, cost time for every byte; the second message costs a fixed time. Is 128
# KiB the right place for the switch here?

# %%
lab.predict("switch", f"{SMALL_BYTES:,} bytes, then one byte more: how many times as long does that take?", "times")

# %%
near = [
    16_000, 32_000, 64_000, 96_000, SMALL_BYTES - 1000, SMALL_BYTES, SMALL_BYTES + 1,
    SMALL_BYTES + 1000,
]
around = launch(ping_pong, 2, args=(near, 60))[0]
apart = around[SMALL_BYTES + 1]  # the first that is not copied
lab.measure("switch", times(apart, around[SMALL_BYTES]))
for size in near:
    print(f"{size:>7,} bytes: {1e6 * around[size]:4.0f} µs")

longer = [size for size in near if size <= SMALL_BYTES and around[size] > apart]
if longer:
    print(f"copied messages take longer than the first uncopied from {longer[0]:,} bytes on")
else:
    print("no copied message takes longer than the first that is not copied")

# %% [markdown]
# If copied messages take longer than the first one that is not, the switch comes too late for this machine: the copies
# cost more than the second message that they save. **In one sentence:** where would you put it?
#
# <details><summary>Compare</summary>Below the size from which copied messages take longer. Wherever the switch is, no single
# line follows the step there. So a fit is good for the range in which it was measured, and no further.</details>

# %% [markdown]
# ### Memory is no line either (optional)
#
# (Run *The bare machine* first.) There is another reason for arcs. Leave out messages and just copy bytes from one
# place in memory to another. A machine reads what it used last from small, fast **caches**; a large tensor does not
# fit. How much does that matter?

# %%
def copy_speed(size_bytes, tries=20):
    """GB/s of a copy within this process, the fastest of some tries."""
    source = np.ones(size_bytes, np.uint8)
    target, best = source.copy(), math.inf
    for _ in range(tries):
        start = time.perf_counter()
        for _ in range(max(1, 4_000_000 // size_bytes)):
            np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return max(size_bytes, 4_000_000 // size_bytes * size_bytes) / best / 1e9

# %%
lab.predict("caches", "How many times as fast is the fastest of these copies as the slowest?", "times")

# %%
sizes = [2**k for k in range(16, 26)]
speeds = [copy_speed(size) for size in sizes]
lab.measure("caches", max(speeds) / min(speeds))
figures.curves(
    [figures.Curve("copy within one process", list(zip(sizes, speeds)))],
    "Does copying memory go at one speed, whatever the size?",
    x="size of the block (bytes)", y="GB/s", log=True,
)

# %% [markdown]
# Where does this machine stand? Beside your numbers stand published ones, of hardware that you have no access to
# here. Before you look: between the memory of a GPU and an Ethernet cable of 1 Gbit/s, how many powers of ten?

# %%
fastest_message = max(size / seconds for size, seconds in bare.items())
here = {
    "copy in memory, fastest": 1e9 * max(speeds), "copy in memory, slowest": 1e9 * min(speeds),
    "messages between two ranks": fastest_message,
}
measured_here = [figures.Bandwidth(*row) for row in here.items()]
figures.bandwidth_ladder(measured_here + [figures.Bandwidth(*row) for row in data.bandwidths()])

# %% [markdown]
# So B is not one number even in memory. Where do messages between two ranks stand beside copies? Over a real network the
# card is usually slower than the memory, and the line holds better: compare with the shaped link. That is why $\alpha$
# and $B$ are so useful there. Lab 16 will predict a large cluster with them.

# %% [markdown]
# ## The framework's names
#
# PyTorch has all of these. Each rank calls the same function; `src` and `dst` name the root. `broadcast` and `reduce`
# work in place, like yours; after a reduce only the root's result counts. `all_to_all_single` fills another table. Do
# they leave the same numbers as yours?

# %%
def both_broadcasts(fabric, mine, theirs):
    tree_broadcast(fabric, mine, 0)
    dist.broadcast(theirs, src=0)

def both_reduces(fabric, mine, theirs):
    tree_reduce(fabric, mine, 0)
    dist.reduce(theirs, dst=0)

def both_all_to_alls(fabric, mine, theirs):
    mine.copy_(all_to_all(fabric, mine.view(fabric.world_size, -1)).flatten())
    dist.all_to_all_single(theirs, theirs.clone())

def alike(fabric, both):
    """Whether yours and PyTorch's leave the same on this rank; None if yours is missing."""
    dist.init_process_group("gloo")
    mine = torch.arange(2 * fabric.world_size) + 100 * fabric.rank
    theirs = mine.clone()
    try:
        both(fabric, mine, theirs)
    except NotYet:
        return None
    return torch.equal(mine, theirs)

# %%
for name, both in {
    "broadcast": both_broadcasts,
    "reduce": both_reduces,
    "all_to_all_single": both_all_to_alls,
}.items():
    answers = launch(alike, n, args=(both,)).results
    if None in answers:
        print(f"dist.{name}: not yet")
    else:
        print(
            f"dist.{name}: the same as yours on ranks",
            *[rank for rank in range(n) if answers[rank]],
        )

# %% [markdown]
# ### One tensor for all blocks
#
# An **all-gather** gives every rank the blocks of all. `all_gather` wants a list with a tensor for each. Newer functions
# take one tensor for all blocks: `all_gather_single`, `reduce_scatter_single`, `all_to_all_single`. Older code calls the
# first two `all_gather_into_tensor` and `reduce_scatter_tensor`. A **reduce-scatter** adds up the tables of all ranks and
# leaves each rank one row of the sum. **Before you run it:** 4 ranks bring 8 numbers each. How many does each rank get
# from each of the three?

# %%
def one_tensor_each(fabric):
    dist.init_process_group("gloo")
    n = fabric.world_size
    x = torch.arange(8.0) + 100 * fabric.rank
    gathered, summed, exchanged = torch.empty(8 * n), torch.empty(8 // n), torch.empty(8)
    if hasattr(dist, "all_gather_single"):
        dist.all_gather_single(gathered, x)
        dist.reduce_scatter_single(summed, x)
    else:  # before PyTorch 2.13
        dist.all_gather_into_tensor(gathered, x)
        dist.reduce_scatter_tensor(summed, x)
    dist.all_to_all_single(exchanged, x)
    return {"all_gather": gathered, "reduce_scatter": summed, "all_to_all": exchanged}

for name, got in launch(one_tensor_each, 4)[1].items():
    first = f"{got.tolist()[:8]}{' …' * (len(got) > 8)}"
    print(f"rank 1, {name}_single: {len(got)} numbers, {first}")

# %% [markdown]
# ### While it travels
#
# With `async_op=True` a collective returns at once, with a handle. `work.wait()` returns when the result is there, as
# with your `isend`. Meanwhile the rank can compute: this is how DDP averages the first gradients before the later
# ones are known (lab 11). Below, an all-reduce of 40 MB and 100 ms of work, in which `fabric.compute` only waits. How
# long does the all-reduce take alone?

# %%
def all_reduce_and_work(fabric, at_once, work_s):
    """Seconds for both."""
    dist.init_process_group("gloo")
    x = torch.ones(10_000_000)
    dist.all_reduce(x)  # warms up
    start = together()
    work = dist.all_reduce(x, async_op=True)
    if not at_once:
        work.wait()
    fabric.compute(work_s)
    work.wait()
    return time.monotonic() - start

def slower_s(at_once, work_s=0.1):
    """Seconds of the slower of two ranks."""
    return max(launch(all_reduce_and_work, 2, args=(at_once, work_s)).results)

alone_s = min(slower_s(False, work_s=0.0) for _ in range(tries))
print(f"the all-reduce alone: {1e3 * alone_s:.0f} ms, the fastest of {tries}")

# %%
lab.predict("async", "The all-reduce and then the work: how many times as long as both at once does that take?", "times")

# %%
took = {False: [], True: []}
for _ in range(tries):  # in turns
    for at_once, seconds in took.items():
        seconds.append(slower_s(at_once))
lab.measure("async", min(took[False]) / min(took[True]))
for at_once, seconds in took.items():
    name = "both at once" if at_once else "one after the other"
    quickest, slowest = 1e3 * min(seconds), 1e3 * max(seconds)
    print(f"{name}: {quickest:.0f} ms, the fastest of {tries}; the slowest {slowest:.0f} ms")

# %% [markdown]
# ### And with NCCL?
#
# With GPUs the backend is NCCL, and three things differ (not run here; from the
# [PyTorch](https://docs.pytorch.org/docs/stable/distributed.html) and
# [NCCL](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html) documentation):
#
# - A collective only *queues* work on a **stream** of the GPU. `work.wait()` makes the current stream wait for it,
#   not Python: to measure time you need `torch.cuda.synchronize()`.
# - No tags. Tensors must be on the GPU.
# - A process group is one **communicator**: its operations run in the order of their calls, the same on all ranks.

# %% [markdown]
# From now on you may use these functions, and you know what they cost. One more, `dist.all_reduce`, leaves what a
# reduce and then a broadcast would. Lab 06 shows why a ring does it better.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Thakur, Rabenseifner and Gropp, *Optimization of collective communication operations in MPICH*
# (2005): trees, and when to leave them. Chan, Heimlich, Purkayastha and van de Geijn, *Collective communication: theory,
# practice, and experience* (2007): that each collective has its reverse. Hockney, *The communication challenge for MPP*
# (1994): α and B. Lepikhin and others, *GShard* ([arXiv:2006.16668](https://arxiv.org/abs/2006.16668)) and Jacobs and
# others, *DeepSpeed Ulysses* ([arXiv:2309.14509](https://arxiv.org/abs/2309.14509)): what all-to-all is for.
