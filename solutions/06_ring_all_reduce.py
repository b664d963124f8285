# %% [markdown]
# # Lab 06. Parameter server and ring all-reduce
#
# **After this lab you are able to** add up a tensor over many ranks in three ways, to see and count every message of
# each, to predict how long each takes on a given network, to say when which one wins, and to say what the order of a
# sum does to its last digits.
#
# **Minutes:** 170 (two sittings: 65 up to “Round a ring”, then 105) · **Points:** 6 · **Prerequisites:** Lab 00 (`send`, `isend`,
# `recv`), PyTorch on one device.

# %% [markdown]
# ![After 6 steps every rank holds the whole sum of every chunk.](../labs/covers/06.png)

# %%
# Set-up: the tools of this lab
import statistics
import time

from worldsize.notebook import *

import torch
import torch.distributed as dist

from worldsize.formulas import cost

# %% tags=["parameters"]
ranks = 4
worlds = [2, 4, 8]
large_bytes = 2_000_000
small_bytes = 1_000
bare_bytes = 16_000_000
simulated_worlds = [2, 4, 8, 16, 64, 256, 1024]
rounds = 3  # of every race, in turns: the median counts

# %%
lab, check = open_lab("06")

# %% [markdown]
# ## Why ranks must add up
#
# To train faster, every rank takes its own part of the batch and computes its own gradient. The step that all of them
# take must be the *average* of those gradients, or the models drift apart. Dividing by a number is easy. The work is in
# the sum: it takes values from every rank, and every rank needs the result. This is called an **all-reduce**.

# %% [markdown]
# How much is there to add up? Here is a model the size of BERT: twelve transformer layers of width 768. The `meta` device
# makes it without memory, so we can count its parameters. A gradient has one float32, four bytes, for each parameter.

# %%
lab.predict("gradient", "How many MB is one gradient of this model?", "MB")

# %%
with torch.device("meta"):
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
gradient_bytes = 4 * sum(p.numel() for p in model.parameters())
lab.measure("gradient", gradient_bytes / 1e6)
print(f"every rank, at every step: {gradient_bytes / 1e6:.0f} MB to add up")

# %% [markdown]
# ## One server
#
# Most people's first idea: one rank is the **parameter server**. All the others, the *workers*, send it their tensor. It
# adds them up and sends the sum back to each. You write it now. Mind the order: a `send` returns only when the other side
# has taken the message. All functions in this lab take any number of ranks, even one, and tensors of any dtype and length, even
# shorter than the number of ranks. They may overwrite x.
#
# <details><summary>Hint</summary>Rank 0 and the workers do different things: begin with
# <code>if fabric.rank == 0</code>. A buffer for what arrives: <code>torch.empty_like(x)</code>.</details>

# %% tags=["exercise:parameter_server"]
# Exercise 6.1: a parameter server
def parameter_server(fabric, x):
    """Every other rank sends x to rank 0, which adds them to its own and sends the sum back to
    each.

    Returns the sum on every rank. A rank that is alone returns x.
    """
    ### BEGIN SOLUTION
    if fabric.rank != 0:
        fabric.send(x, to=0)
        fabric.recv(x, frm=0)
        return x
    arrived = torch.empty_like(x)
    for worker in range(1, fabric.world_size):
        fabric.recv(arrived, frm=worker)
        x += arrived
    handles = [fabric.isend(x, to=worker) for worker in range(1, fabric.world_size)]
    for handle in handles:
        handle.wait()
    return x
    ### END SOLUTION

# %% tags=["check:parameter_server"] points=1
check.parameter_server(parameter_server)

# %% [markdown]
# ### Where the bytes go
#
# Let the ranks add up 1 MB each, over links that carry 20 MB/s. That is slow, so that you can see it: the course holds
# every message back until a real network card of that speed would have delivered it. Each rank has one card, with one
# way in and one way out.

# %%
slow = Link("20 MB/s", "100 us")

def add_up(fabric, all_reduce, length):
    return all_reduce(fabric, torch.full((length,), float(fabric.rank)))

# %%
lab.predict("fan_in", f"{ranks} ranks, 1 MB each. How many MB does rank 0 receive?", "MB")

# %%
run = served = launch(add_up, ranks, args=(parameter_server, 250_000), link=slow)
lab.measure("fan_in", run.trace.received_bytes(0) / 1e6 if run.state == "done" else None)
figures.links(run)

# %% [markdown]
# Read a row as a sender and a column as a receiver. Which row and which column hold the traffic? Do
# the links between workers carry anything? The next picture shows the same messages in time.

# %%
figures.messages(run)

# %% [markdown]
# The workers all start at once. Do their arrows end at once? They queue at the server's card. This is the
# **fan-in**; the way back has the same queue. In the **alpha-beta** model a message of $m$ bytes takes $\alpha+\frac mB$,
# with latency $\alpha$ and bandwidth $B$. Here $n-1$ messages share the server's card, so both ways together take
# $2\left(\alpha+(n-1)\frac mB\right)$.

# %% [markdown]
# Step through the same run: press Play, or click the slider and use the arrow keys. A rank with a dashed frame has
# nothing to do but wait.

# %%
figures.steps(run, "star")

# %%
for n in worlds:
    seconds = cost.parameter_server(n, gradient_bytes, Link("10 Gbit/s", "50 us"))
    print(f"{n} ranks, our gradient, 10 Gbit/s: {seconds:.2f} s for every step")

# %% [markdown]
# **In one sentence:** why do more ranks make this slower, although every rank has a card of its own?
#
# <details><summary>Compare</summary>The workers' cards are idle most of the time: everything must pass through one card, the
# server's, and its load grows with the number of ranks.</details>

# %% [markdown]
# ## Every rank a server
#
# If one server is too few, take n. Cut the tensor into n **chunks**. Rank k is the server of chunk k alone: it receives
# that chunk from everybody, adds up, and sends the sum to everybody. So each rank is a worker and a server at once.
# This is a *sharded* parameter server. `split` says where to cut, even if the length does not divide evenly.

# %%
# Set-up
def split(length, parts):
    """[(start, stop), …]: slices that follow each other; lengths differ by one at most."""
    edges = [length * k // parts for k in range(parts + 1)]
    return list(zip(edges, edges[1:]))

# %%
print(split(8, 4), split(7, 3), split(2, 3), sep="\n")

# %% [markdown]
# One thing is new. Every rank must send *and* receive, so nobody may block in a `send` while all others do the same.
# And if all ranks served rank 0 first and waited for it, they would queue there again: so let all messages begin at once.
#
# <details><summary>Hint 1</summary>Start all <code>isend</code>s, then receive and add, then wait for the handles. Do
# this twice: once for the chunks, once for the sums.</details>
# <details><summary>Hint 2</summary>Do not change a chunk before you have waited for its handle: add up in a copy, and
# receive the sums into new tensors (or wait first).</details>
# <details><summary>Hint 3</summary>The ranks to send to: <code>[(rank + k) % n for k in range(1, n)]</code>. Receive in
# reverse order: whoever sends to you first comes first.</details>

# %% tags=["exercise:sharded_parameter_server"]
# Exercise 6.2: a sharded parameter server
def sharded_parameter_server(fabric, x):
    """Rank k receives chunk k of x from every other rank, adds up, and sends the sum back to
    all.

    All ranks serve at once, with at most two messages of one chunk on every link. Returns the
    whole sum on every rank.
    """
    ### BEGIN SOLUTION
    n, rank = fabric.world_size, fabric.rank
    chunks = [x[start:stop] for start, stop in split(len(x), n)]
    others = [(rank + k) % n for k in range(1, n)]
    handles = [fabric.isend(chunks[server], to=server) for server in others]
    total = chunks[rank].clone()
    arrived = torch.empty_like(total)
    for worker in reversed(others):
        fabric.recv(arrived, frm=worker)
        total += arrived
    handles += [fabric.isend(total, to=worker) for worker in others]
    result = [torch.empty_like(chunk) for chunk in chunks]
    result[rank] = total
    for server in reversed(others):
        fabric.recv(result[server], frm=server)
    for handle in handles:
        handle.wait()
    return torch.cat(result)
    ### END SOLUTION

# %% tags=["check:sharded_parameter_server"] points=1
check.sharded_parameter_server(sharded_parameter_server)

# %%
lab.predict("sharded", f"{ranks} ranks, 1 MB each, sharded. How many MB does each rank send?", "MB")

# %%
run = launch(add_up, ranks, args=(sharded_parameter_server, 250_000), link=slow)
lab.measure("sharded", run.trace.sent_bytes(0) / 1e6 if run.state == "done" else None)
figures.links(run)

# %% [markdown]
# The same sum, the same number of bytes in total as with one server, but spread evenly: all links carry the same. No
# rank is special. The price: everyone talks to everyone, $n(n-1)$ links with a connection each. That is fine for four
# ranks. With thousands, each rank should know only its neighbours.

# %% [markdown]
# ## Round a ring
#
# Put the ranks in a ring. Each sends only to its right neighbour and receives only from its left one. The all-reduce
# then has two halves. In the first, the **reduce-scatter**, chunks travel round and grow: a rank adds each chunk it receives
# to its own. In the second, the **all-gather**, the finished sums travel round once more.
#
# <details><summary>An example: chunk 0 with 4 ranks, first half</summary>Rank 0 sends its chunk 0 to rank 1, which adds
# its own: now it holds 0+1. It sends that to rank 2: 0+1+2. Rank 2 sends it to rank 3: 0+1+2+3. After three steps rank 3
# owns the sum of chunk 0. Chunk 1 starts at rank 1 at the same moment and ends at rank 0, and so on: at every step each
# rank sends one chunk and receives another.</details>

# %% [markdown]
# First half. Step 0: send the chunk with your own number to the right; receive the one with the number before it from the
# left; add that to your own copy. Step 1: send on what you have just added up. After $n-1$ steps one chunk is complete.
# Return where this chunk lies in x. Work **in place**: `x[start:stop] += …` changes the caller's tensor.
#
# <details><summary>Hint 1</summary>In step s, rank r sends chunk (r − s) mod n and receives chunk (r − s − 1) mod n.</details>
# <details><summary>Hint 2</summary>Receive into a buffer of the chunk's length and dtype,
# <code>torch.empty_like(x[start:stop])</code>; then add the buffer to x.</details>
# <details><summary>Hint 3</summary>Everybody sends while receiving: <code>isend</code>, then <code>recv</code>, then
# <code>wait</code>. Ranks that take turns need twice as many rounds, or n times as many.</details>

# %% tags=["exercise:reduce_scatter"]
# Exercise 6.3: reduce-scatter round the ring
def reduce_scatter(fabric, x):
    """Adds up x in place, in n - 1 steps: in each, every rank sends a chunk to the right while
    one comes from the left.

    Returns (start, stop): the slice of x in which this rank now holds the sum over all ranks.
    """
    ### BEGIN SOLUTION
    n, rank = fabric.world_size, fabric.rank
    chunks = split(len(x), n)
    buffer = torch.empty_like(x[: len(x) // n + 1])  # room for the longest chunk, made once
    for step in range(n - 1):
        start, stop = chunks[(rank - step) % n]
        handle = fabric.isend(x[start:stop], to=(rank + 1) % n)
        start, stop = chunks[(rank - step - 1) % n]
        arrived = buffer[: stop - start]
        fabric.recv(arrived, frm=(rank - 1) % n)
        x[start:stop] += arrived
        handle.wait()
    return chunks[(rank + 1) % n]
    ### END SOLUTION

# %% tags=["check:reduce_scatter"] points=1.5
check.reduce_scatter(reduce_scatter)

# %% [markdown]
# Now look inside. Every rank marks its numbers: rank r fills its tensor with 10 to the power r. The digits of a sum
# then tell whose numbers are in it. In the picture each cell is one chunk on one rank.

# %%
def marks(fabric, algorithm):
    x = torch.full((fabric.world_size,), 10.0**fabric.rank, dtype=torch.float64)
    algorithm(fabric, x)
    return x

run = launch(marks, ranks, args=(reduce_scatter,))
figures.contributions(run)

# %% [markdown]
# In each column find the cell that holds only one rank's numbers: the chunk started there. It collects one more at each rank
# along your ring: chunk 0 of a ring to the right may read 0, 0+1, 0+1+2, all. Exactly one cell of each row and of each
# column says *all*. That is what "scatter" means: the sum is complete, but in pieces, one on each rank. Over time it looks
# like this:

# %%
run = launch(add_up, ranks, args=(reduce_scatter, 250_000), link=slow)
figures.messages(run)

# %% [markdown]
# Second half. Now every rank owns one slice, and needs all of them. In step 0 send your own slice to the right. In every
# later step send on what you have just received. Nothing is added; what arrives goes straight to its place. The list
# `bounds` says which slice each rank owns, so you need no assumption about the first half.
#
# <details><summary>Hint</summary>In step s you pass on the slice that rank (r − s) mod n owns. You can receive straight
# into <code>x[start:stop]</code>: a slice of a tensor is a view.</details>

# %% tags=["exercise:all_gather"]
# Exercise 6.4: all-gather round the ring
def all_gather(fabric, x, bounds):
    """Rank r owns x[start:stop] with (start, stop) = bounds[r]; the rest of its x is filled in,
    in place.

    n - 1 steps: in each, every rank sends a slice to the right while one comes from the left.
    """
    ### BEGIN SOLUTION
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1):
        start, stop = bounds[(rank - step) % n]
        handle = fabric.isend(x[start:stop], to=(rank + 1) % n)
        start, stop = bounds[(rank - step - 1) % n]
        fabric.recv(x[start:stop], frm=(rank - 1) % n)
        handle.wait()
    ### END SOLUTION

# %% tags=["check:all_gather"] points=1
check.all_gather(all_gather)

# %% [markdown]
# Put the two together. The only question left: which slice does each rank own after *your* reduce-scatter? You know
# your own from what it returns; for the others, use the rule by which you chose it. Then look at the marks again.
#
# <details><summary>Hint</summary>If you followed the hints of 6.3, rank r ends with chunk (r + 1) mod n. So
# <code>bounds[r]</code> is what <code>split</code> gives for that chunk.</details>

# %% tags=["exercise:ring_all_reduce"]
# Exercise 6.5: the ring all-reduce
def ring_all_reduce(fabric, x):
    """Leaves the sum over all ranks in x, in place.

    In 2(n - 1) steps every rank sends a chunk to one neighbour while one comes from the other:
    2(n - 1)/n of x in all.
    """
    ### BEGIN SOLUTION
    n = fabric.world_size
    chunks = split(len(x), n)
    reduce_scatter(fabric, x)  # rank r now owns chunk r + 1
    all_gather(fabric, x, [chunks[(r + 1) % n] for r in range(n)])
    return x
    ### END SOLUTION

# %% tags=["check:ring_all_reduce"] points=1.5
check.ring_all_reduce(ring_all_reduce)

# %%
run = launch(marks, ranks, args=(ring_all_reduce,))
figures.contributions(run)

# %% [markdown]
# Those are the marks at the end. To see them travel, hand your function a *watched* fabric: it notes, at every
# message, what the tensor holds. Then step through the two halves. In each rank a column is a chunk; row r is filled where
# rank r's number is in it; an arrow names the chunk that it carries. When do the first whole sums appear, and on which rank
# is each?

# %%
from worldsize.fabric.watched import Watched

def watched(fabric, algorithm, length):
    x = torch.full((length,), 10.0**fabric.rank)
    watching = Watched(fabric, x)
    algorithm(watching, x)
    return watching.notes()

run = launch(watched, ranks, args=(ring_all_reduce, 250_000), link=slow)
figures.steps(run, "ring", contents=run.results)

# %% [markdown]
# All of it as one strip: a panel for each step, a row for each rank, a column for each chunk. The darker a cell, the more
# ranks' numbers are in it; a dot marks a whole sum. Where does the first half end?

# %% tags=["cover"]
figures.collective_strip(run)

# %% [markdown]
# The same sum over the same links, by one server and by your ring. **Before you press Play:** does one of them send more
# bytes in all? Which is done first, and what do most ranks do meanwhile in the other one?

# %% tags=["film"]
run = ringed = launch(add_up, ranks, args=(ring_all_reduce, 250_000), link=slow)
figures.replay({"one server": served, "your ring": ringed})

# %% [markdown]
# In a ring all cards can send and receive all the time, and nobody has to queue. Which links are in use?

# %%
figures.links(run)

# %% [markdown]
# ## Break it
#
# No points here: two rings, each with a mistake, to see what the mistake does. The first ring sends the same messages to the
# same neighbours, and its sums are right. But one line has moved: all ranks but rank 0 receive *before* they send.

# %%
def in_turns(fabric, x):
    """A ring in which every rank but rank 0 receives before it sends."""
    n, rank = fabric.world_size, fabric.rank
    chunks = [x[start:stop] for start, stop in split(len(x), n)]
    for step in range(2 * (n - 1)):
        out, into = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        arrived = torch.empty_like(into)
        if rank == 0:
            fabric.send(out, to=1)
        fabric.recv(arrived, frm=(rank - 1) % n)
        if rank != 0:
            fabric.send(out, to=(rank + 1) % n)
        into.copy_(into + arrived if step < n - 1 else arrived)
    return x

# %%
# Helper: how long a run's messages took
def took(run):
    """Seconds from the first message's start to the last one's end; None where the exercise is not yet written."""
    if run.state == "done":
        moments = run.trace.transfers
        return max(t.end_s for t in moments) - min(t.start_s for t in moments)

def times(one, other):
    """How many times as long the first took; None where one of them is not written yet."""
    return one / other if one and other else None

# %%
lab.predict("turns", f"{ranks} ranks, 1 MB: how many times as long as your ring does this one take?", "times")

# %%
turned = launch(add_up, ranks, args=(in_turns, 250_000), link=slow)
lab.measure("turns", times(took(turned), took(ringed)))
figures.replay({"your ring": ringed, "in turns": turned})

# %% [markdown]
# **In one sentence:** how many cards send at any one moment in the slower ring, and why?
#
# <details><summary>Compare</summary>One. A rank can send only after a message has come from its neighbour, which sends only
# after one has come from its own, and so on back to rank 0. Each step goes round all ranks: n rounds instead of one. The
# checks count such rounds from the order of each rank's calls, so a busy machine changes nothing.</details>

# %% [markdown]
# The second mistake: a `wait` in the wrong place. This is the first half once more, with one buffer for everything sent. The
# next sum goes into that buffer before anybody has waited: the waits come at the end. Rank 1 is a little late in each step:
# `fabric.compute(0.2)` waits 0.2 s, as if the rank had more work.

# %%
def waits_too_late(fabric, length):
    """How much of this rank's final chunk is not the sum, in per cent."""
    n, rank = fabric.world_size, fabric.rank
    chunks = torch.full((length,), rank + 1.0).tensor_split(n)
    carried, handles = chunks[rank].clone(), []
    for step in range(n - 1):
        handles.append(fabric.isend(carried, to=(rank + 1) % n))
        if rank == 1:
            fabric.compute(0.2)
        arrived = torch.empty_like(carried)
        fabric.recv(arrived, frm=(rank - 1) % n)
        torch.add(arrived, chunks[(rank - step - 1) % n], out=carried)
    for handle in handles:
        handle.wait()
    return 100 * (carried != n * (n + 1) / 2).float().mean().item()

# %%
lab.predict("late_wait", "With 4 kB all sums come out right. With 4 MB, what % of all sums are wrong?", "%")

# %%
for size_bytes in (4_000, 4_000_000):
    equal_chunks = size_bytes // 4 // ranks * ranks
    wrong = launch(waits_too_late, ranks, args=(equal_chunks,)).results
    shares = [round(share) for share in wrong]
    print(f"{size_bytes:,} bytes: wrong sums by rank, in %: {shares}")
lab.measure("late_wait", sum(wrong) / ranks)

# %% [markdown]
# No rank raised an error, and a test with a small tensor passes. A small message is copied when it is posted; a large
# one leaves when its receiver takes it, and by then the buffer holds the next sum. Each library decides where that limit
# lies (MPI, the standard on supercomputers, calls it the *eager limit*). So: wait first, then change. The checks in this
# course look at the tensor again at `wait()`. Move the `wait` into the loop, and run both cells again.
#
# **In one sentence:** which rank was spared, and why?
#
# <details><summary>Compare</summary>Rank 0. Only messages from rank 0 to the late rank 1 are spoilt. The chunk that rank 0
# ends with begins at rank 1, and never passes from rank 0 to rank 1.</details>

# %% [markdown]
# ## What each rank sends
#
# In each half a rank sends $n-1$ chunks of $1/n$ of the tensor, so $\frac{2(n-1)}{n}$ in all. You need not take that on
# trust: the messages were recorded. Below, the busiest rank of real runs is compared with the formulas.

# %%
n = max(worlds)
asks = f"{n} ranks: how many times the tensor does a rank of the ring send?"
lab.predict("ring_bytes", asks, "times")

# %%
def busiest(all_reduce, n, length=8400):
    """What the busiest rank sends, in tensors."""
    run = launch(add_up, n, args=(all_reduce, length))
    if run.state == "done":
        return max(run.trace.sent_bytes(r) for r in range(n)) / (4 * length)

server = [(n, busiest(parameter_server, n)) for n in worlds]
ring = [(n, busiest(ring_all_reduce, n)) for n in worlds]
lab.measure("ring_bytes", ring[-1][1])

# %%
answer = None
if ring[-1][1] and server[-1][1]:
    by_server, by_ring = [points[-1][1] / points[0][1] for points in (server, ring)]
    grown = f"one server {by_server:.2g} times, ring {by_ring:.2g} times"
    answer = f"from {worlds[0]} to {n} ranks: {grown}"
every = range(2, max(worlds) + 1)
figures.curves(
    [
        figures.Curve(
            "one server", server, [(n, cost.bytes_parameter_server(n, 1)) for n in every]
        ),
        figures.Curve("ring", ring, [(n, cost.bytes_ring_all_reduce(n, 1)) for n in every]),
    ],
    figures.answered("How does the busiest rank's load grow with the number of ranks?", answer),
    x="ranks", y="tensors that the busiest rank sends", growth=True,
)

# %% [markdown]
# Patarasuk and Yuan proved in 2009 that no all-reduce among ranks needs less on its busiest one: a ring is
# *bandwidth-optimal*. (A switch that itself adds up needs half, as you will read below.) Remember the shape of the ring's
# line, 2 (n − 1)/n: it never exceeds 2. So a large tensor takes at most twice as long on a thousand ranks as on two, and at
# most a seventh longer than on eight.

# %% [markdown]
# ## A race over slow links
#
# To be fair, all ranks must start together. They agree on a moment a little ahead, wait for it, and run; the race ends
# when the last one is done. The three algorithms take turns in the same processes. An algorithm that you have not
# written yet is left out. (`dist.broadcast` only tells all ranks the start time.)

# %%
# Helper: a stopwatch on every rank
def together():
    """Wait for a moment that all ranks agree on."""
    start = torch.tensor([time.monotonic() + 0.05], dtype=torch.float64)
    dist.broadcast(start, 0)
    time.sleep(max(0.0, start.item() - time.monotonic()))
    return start.item()

def stopwatch(fabric, all_reduces, sizes):
    """Seconds until this rank is done: a row for each size, with a number for each all-reduce."""
    dist.init_process_group("gloo")
    return [[lap(fabric, f, size_bytes) for f in all_reduces] for size_bytes in [4, *sizes]][1:]

def lap(fabric, all_reduce, size_bytes):
    x = torch.ones(size_bytes // 4)
    start = together()
    try:
        all_reduce(fabric, x)
    except NotYet:
        return None
    return time.monotonic() - start

# %% [markdown]
# The first round, four bytes, only warms up and is thrown away. `race` collects what the ranks return; in each round the
# slowest rank counts. One round is luck: so every race has several, and their **median** counts. Two algorithms *tie* if
# their rounds overlap, or if their medians are less than a twentieth apart.

# %%
contestants = {"one server": parameter_server, "sharding": sharded_parameter_server}
contestants["your ring"] = ring_all_reduce

def race(n, sizes, link=None, contestants=contestants, rounds=rounds):
    """{name: [the seconds of all rounds, for each size]}; None for what is not written yet."""
    given = list(contestants.values()), [*sizes] * rounds
    laps = launch(stopwatch, n, args=given, link=link).results

    def slowest(lap, name):
        by_rank = [laps[rank][lap][name] for rank in range(n)]
        return None if None in by_rank else max(by_rank)

    def of_size(size, name):
        every = [slowest(lap, name) for lap in range(size, len(sizes) * rounds, len(sizes))]
        return None if None in every else every

    every_k = range(len(sizes))
    return {name: [of_size(k, i) for k in every_k] for i, name in enumerate(contestants)}

def middle(seconds):
    """The median of some rounds; None for what is not written yet."""
    return seconds and statistics.median(seconds)

def winners(laps):
    """The names with the least median, of {name: seconds of all rounds}, and all that tie."""
    best = min(laps.values(), key=middle)
    near = 1.05 * middle(best)
    return [name for name, own in laps.items() if min(own) <= max(best) or middle(own) <= near]

# %%
formulas = {
    "one server": cost.parameter_server,
    "sharding": cost.sharded_parameter_server,
    "your ring": cost.ring_all_reduce,
}
n = max(worlds)
lab.predict(
    "race",
    f"{n} ranks, {large_bytes / 1e6:g} MB: how many times as long as your ring does one server"
    " take?",
    "times",
)

# %%
results = {}
for n in worlds:
    print(f"{n} ranks, {rounds} rounds …", flush=True)
    results[n] = {name: laps for name, (laps,) in race(n, [large_bytes], slow).items()}
bars = []
for n in worlds:
    for name, laps in results[n].items():
        by_formula = formulas[name](n, large_bytes, slow)
        bars.append(figures.Timing(name, middle(laps), by_formula, n, repeats_s=laps or ()))

answer = None
if all(bar.measured_s for bar in bars):
    few, many = min(worlds), max(worlds)
    ahead = {n: winners(results[n]) for n in (few, many)}
    said = {n: " and ".join(names) for n, names in ahead.items()}
    said |= {n: "all tie" for n, names in ahead.items() if len(names) == len(contestants)}
    gain = middle(results[many]["one server"]) / min(map(middle, results[many].values()))
    answer = f"no: {said[many]}, {gain:.2g} times as fast as one server"
    if "one server" in ahead[many]:
        answer = f"no: {said[many]}"
    if ahead[few] != ahead[many]:
        answer = f"yes, {few} ranks: {said[few]}; {many}: {said[many]}"
figures.race(
    bars,
    figures.answered(
        "Large tensors, slow links: who is fastest, and does that change with the number of"
        " ranks?",
        answer,
    ),
)

# %%
last = results[max(worlds)]
lab.measure("race", times(middle(last["one server"]), middle(last["your ring"])))
figures.predicted(lab, ["race"])

# %% [markdown]
# The outlines are the alpha-beta predictions, made before anything ran. For a ring the formula is
# $2(n-1)\left(\alpha+\frac{m}{nB}\right)$. If yours is much slower than its outline, play the film of
# your ring once more: is there a rank that waits before it sends?
#
# **In one sentence:** from 4 to 8 ranks, why does the ring's bar grow so much less than the server's?
#
# <details><summary>Compare</summary>With more ranks there are more steps, but the chunks shrink in proportion, and all cards
# work all the time.</details>

# %% [markdown]
# ### The number that benchmarks print
#
# NVIDIA's benchmark `nccl-tests` prints two bandwidths for every time $t$. The *algorithm bandwidth* is $\frac mt$: it
# falls with more ranks, though the cards stay the same. So it also prints the **bus bandwidth**,
# $\frac mt\cdot\frac{2(n-1)}{n}$: the least that a card must send, divided by the time. On any number of ranks it can be
# compared with the card itself ([PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)).

# %%
n = max(worlds)
lab.predict(
    "busbw",
    f"{n} ranks, cards of 20 MB/s: which bus bandwidth did your ring reach in that race?",
    "MB/s",
)

# %%
print("ranks  all-reduce   algbw (MB/s)  busbw (MB/s)")
busbw = {}
for n in worlds:
    for name, laps in results[n].items():
        if seconds := middle(laps):
            algbw = large_bytes / seconds / 1e6
            busbw[n, name] = cost.bus_bandwidth(n, large_bytes, seconds) / 1e6
            print(f"{n:5}  {name:10} {algbw:14.1f} {busbw[n, name]:13.1f}")
lab.measure("busbw", busbw.get((max(worlds), "your ring")))

# %% [markdown]
# **In one sentence:** on many ranks, a colleague's all-reduce has an algorithm bandwidth of nearly half its cards'. Is
# there much to gain?
#
# <details><summary>Compare</summary>No: for many ranks 2(n − 1)/n is nearly 2, so the bus bandwidth is nearly that of the
# cards. They are full; only fewer bytes would help.</details>

# %% [markdown]
# ### A thousand ranks
#
# This machine has no room for a thousand processes. `simulate` needs none: it takes the same function, unedited, and the
# same link, and runs all ranks in this process, one at a time, each with a **simulated clock** that only messages move. A
# message takes exactly $\alpha+\frac mB$ there. Do the simulated seconds match the real ones? If so, you may ask the simulation
# about more ranks.

# %%
elements = 51_200  # a multiple of 1024, so that all chunks are alike
in_simulation = {"one server": parameter_server, "your ring": ring_all_reduce}

def simulated_s(all_reduce, n, link):
    """Seconds on the simulated clock; None where the exercise is not written yet."""
    run = simulate(add_up, n, args=(all_reduce, elements), link=link, most_messages=100_000)
    return run.simulated_s if run.state == "done" else None

# %%
lab.predict(
    "thousand",
    f"{simulated_worlds[-1]:,} ranks, {4 * elements / 1e3:.0f} kB: how many times as long as your ring does one server take?",
    "times",
)

# %%
real = {}
for n in worlds:
    raced = race(n, [4 * elements], slow, in_simulation)
    real[n] = {name: middle(laps) for name, (laps,) in raced.items()}
print("real runs are done; now simulated ones", flush=True)
simulated = {
    name: [(n, simulated_s(fn, n, slow)) for n in simulated_worlds]
    for name, fn in in_simulation.items()
}
lead = times(simulated["one server"][-1][1], simulated["your ring"][-1][1])
lab.measure("thousand", lead)
for name, points in simulated.items():
    for n, seconds in points[: len(worlds)]:
        beside = f"{real[n][name]:.4f} s real" if n in real and seconds else "not run here"
        told = f"{seconds:.4f} s simulated, {beside}" if seconds else "not yet"
        print(f"{name}, {n} ranks:", told)

# %%
answer = None
if lead:
    played = {name: dict(points) for name, points in simulated.items()}
    apart = [abs(real[n][name] / played[name][n] - 1) for n in worlds for name in played]
    end = f"at {simulated_worlds[-1]:,} ranks {lead:.2g} times as fast"
    answer = f"{100 * max(apart):.0f} % apart at most; {end}"
figures.curves(
    [
        figures.Curve(name, [(n, real[n][name]) for n in worlds], simulated=simulated[name])
        for name in in_simulation
    ],
    figures.answered(
        "Do real and simulated ranks agree, and what becomes of the ring's lead at"
        f" {simulated_worlds[-1]:,} ranks?",
        answer,
    ),
    x="ranks", y="time of an all-reduce (s)", log=True,
)

# %% [markdown]
# With many ranks the ring's chunks are small, and each of its $2(n-1)$ steps pays the latency. Turn the knobs: on which
# links does it lose its lead? (From a few hundred ranks on, one simulated rank of the ring stands for all others, because
# all do the same; the run's `notes` give the evidence. A server's ranks differ, and are all simulated.)

# %%
def thousand(largest_world=64, bandwidth="20 MB/s", latency="100 µs"):
    link = Link(bandwidth, latency)
    ladder = [n for n in simulated_worlds if n <= largest_world]
    rows = {
        name: [(n, simulated_s(fn, n, link)) for n in ladder]
        for name, fn in in_simulation.items()
    }
    return figures.curves(
        [figures.Curve(name, simulated=points) for name, points in rows.items()],
        f"Simulated, {bandwidth} and {latency}: who is ahead?",
        x="ranks", y="time of an all-reduce (s)", log=True,
    )

knobs(
    thousand, largest_world=[64, 256, 1024], bandwidth=["20 MB/s", "1 GB/s", "50 GB/s"],
    latency=["1 µs", "100 µs", "10 ms"],
)

# %% [markdown]
# ## Small messages
#
# Now the other end: tiny tensors, and links with a long delay, as between two cities. Then bandwidth hardly counts and
# each *step* costs one latency. Count the steps: to the server and back, 2. Round the ring, $2(n-1)$.

# %%
far = Link("20 MB/s", "20 ms")
n = max(worlds)
lab.predict(
    "small",
    f"{n} ranks, {small_bytes:,} bytes, 20 ms: how many times as long as one server does your"
    " ring take?",
    "times",
)

# %%
lab.predict(
    "crossing",
    f"{n} ranks, 20 MB/s, 20 ms, of 1 kB to 1 MB: from how many kB on is the ring faster than one server?",
    "kB",
)

# %%
sizes = [small_bytes, 10_000, 100_000, 400_000, 1_000_000]
print(f"{len(sizes)} sizes, {rounds} rounds …", flush=True)
swept = race(n, sizes, far)
sweep = {name: [middle(laps) for laps in rows] for name, rows in swept.items()}
lab.measure("small", times(sweep["your ring"][0], sweep["one server"][0]))

# %% [markdown]
# Where do the two lines cross? In the formulas, $2\left(\alpha+(n-1)\frac mB\right)$ and
# $2(n-1)\left(\alpha+\frac{m}{nB}\right)$ are equal at $m=\frac{n(n-2)}{(n-1)^2}\,\alpha B$. In the measurement, we
# look for the first size at which the ring is faster, and draw a straight line from the size before it.

# %%
# Helper: from which size on one is faster
def crossing(sizes, one, other):
    """The size from which `other` is faster than `one`, between two measured sizes; else None."""
    if None in one + other:
        return None
    ahead = [a - b for a, b in zip(one, other)]
    for k in range(1, len(sizes)):
        if ahead[k - 1] <= 0 < ahead[k]:
            share = ahead[k - 1] / (ahead[k - 1] - ahead[k])
            return sizes[k - 1] + share * (sizes[k] - sizes[k - 1])

# %%
formula_bytes = n * (n - 2) * far.latency_s * far.bandwidth_bytes_per_s / (n - 1) ** 2
measured_bytes = crossing(sizes, sweep["one server"], sweep["your ring"])
lab.measure("crossing", measured_bytes and measured_bytes / 1e3)
print(f"by the formulas they cross at {formula_bytes / 1e3:.0f} kB")
figures.predicted(lab, ["small", "crossing"])

# %%
every_size = sorted(
    {*sizes, *(sizes[0] * (sizes[-1] / sizes[0]) ** (k / 60) for k in range(61))}
)
answer = None
if None not in sweep["one server"] + sweep["your ring"]:
    overtakes = "at none of these sizes"
    if sweep["your ring"][0] < sweep["one server"][0]:
        overtakes = "at each of these sizes"
    elif measured_bytes:
        overtakes = f"from {measured_bytes / 1e3:.0f} kB on"
    answer = f"{overtakes}; by the formulas from {formula_bytes / 1e3:.0f} kB on"
figures.curves(
    [
        figures.Curve(
            name, list(zip(sizes, sweep[name])),
            [(m, formulas[name](n, m, far)) for m in every_size],
            repeats={m: laps for m, laps in zip(sizes, swept[name]) if laps},
        )
        for name in contestants
    ],
    figures.answered(
        f"{n} ranks over far links: from which size on is your ring faster than one server?",
        answer,
    ),
    x="size of the tensor (bytes)", y="time of an all-reduce (s)", log=True,
    beside=[tuple(contestants), ("one server", "your ring")],
    marks={"equal by the formulas": formula_bytes, "equal as measured": measured_bytes},
)

# %% [markdown]
# ### Try it out (optional)
#
# Turn the knobs yourself: another algorithm, more ranks, other links, another size. Each choice starts a real run and
# draws its messages. Look for a setting in which your ring loses, and say why before you look at the next picture.

# %%
def try_out(
    algorithm="your ring", ranks=4, bandwidth="20 MB/s", latency="100 µs", elements=250_000
):
    run = launch(
        add_up, ranks, args=(contestants[algorithm], elements), link=Link(bandwidth, latency)
    )
    return figures.messages(run)

knobs(
    try_out, algorithm=list(contestants), ranks=[2, 3, 4, 8],
    bandwidth=["20 MB/s", "100 MB/s", "1 GB/s"],
    latency=["100 µs", "2 ms", "20 ms"], elements=[250, 25_000, 250_000],
)

# %% [markdown]
# So there is no best all-reduce; there is a best one *for a size, a number of ranks and a network*. Libraries carry
# several and choose at run time. Where a point lies well above its line, this machine was busy: alpha-beta treats the work
# of sending a message as free.
#
# **In one sentence:** by its formula, $2\alpha+\frac{2(n-1)}{n}\frac mB$, sharding is never behind the ring. Why do rings exist
# at all?
#
# <details><summary>Compare</summary>Our links are ideal: any rank reaches any other at full speed, and a message costs
# its sender no work. In a real network $n(n-1)$ streams meet in switches and cables and disturb each other; a ring uses
# n links, each for one stream, and can be laid along the cables.</details>

# %% [markdown]
# NCCL, NVIDIA's library for GPUs, has rings, and since version 2.4 **double binary trees** ([NVIDIA,
# 2019](https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/)). The tensor goes in pieces
# that follow each other, half of them through each of two trees; a rank that only receives in one tree passes on in the
# other. So all cards work, as in a ring, but a piece takes about $2\log_2 n$ steps, not $2(n-1)$: at scale trees win for
# large tensors too (Sanders, Speck and Träff, 2009).

# %% [markdown]
# Switches can add up too. NVIDIA's SHARP does it in the switches of InfiniBand, a network for clusters; NVLS (NVLink SHARP)
# in those between the GPUs of one machine. Then each rank sends its tensor once and receives the sum once: about half of
# what a ring sends, so that the bus bandwidth comes out *above* the card's. None of this was run here: NCCL's trees need
# GPUs, and SHARP such a switch.

# %% [markdown]
# ## Two levels
#
# A **node** is one machine with several GPUs. Inside a node, links are fast; between nodes, slow. One ring over all
# ranks is as slow as its slowest link. Better: let as little as possible leave the node. First a reduce-scatter inside
# each node; then each rank adds up *its* chunk with the ranks in the same place in the other nodes; then an all-gather
# inside.

# %%
figures.two_level_rings(nodes=4, per_node=4)

# %% [markdown]
# With $N$ nodes of $g$ ranks, $\alpha_i, B_i$ inside a node and $\alpha_a, B_a$ across, for each rank:
# $$2(g-1)\left(\alpha_i+\frac{m}{g\,B_i}\right)+2(N-1)\left(\alpha_a+\frac{m}{g\,N\,B_a}\right)$$
# The first term is the reduce-scatter and the all-gather inside: chunks of $\frac mg$. The second is a ring over the
# nodes for one such chunk, cut once more (Mikami and others, 2018). Lab 16 has it as an exercise.

# %%
lab.predict(
    "levels",
    "4 nodes of 8 ranks, links ten times as fast inside. By the formulas, one ring takes how many times as long as two levels?",
    "times",
)

# %%
inside, across = Link("200 GB/s", "5 us"), Link("20 GB/s", "20 us")
one_ring = cost.ring_all_reduce(4 * 8, gradient_bytes, across)
two_level = cost.two_level_ring_all_reduce(4, 8, gradient_bytes, inside, across)
lab.measure("levels", one_ring / two_level)
print(f"our gradient, by the formulas: one ring {1e3 * one_ring:.1f} ms,", end=" ")
print(f"two levels {1e3 * two_level:.1f} ms")

# %% [markdown]
# ## Rabenseifner's all-reduce (optional)
#
# Can one have few steps *and* few bytes? Rolf Rabenseifner showed how in 2004. First exchange *half* the tensor with the
# rank $\frac n2$ away, and add; then half of that half with the one $\frac n4$ away, and so on. After $\log_2 n$ rounds each
# rank owns one chunk. Then the same rounds backwards, without adding:
# $$2\log_2 n\;\alpha+\frac{2(n-1)}{n}\,\frac mB$$

# %%
def exchange(fabric, partner, out, into):
    """Sends one slice to the partner while another comes from it. Returns what came."""
    handle = fabric.isend(out, to=partner)
    arrived = torch.empty_like(into)
    fabric.recv(arrived, frm=partner)
    handle.wait()
    return arrived

def rabenseifner(fabric, x):
    """The sum over all ranks, in place; their number is a power of two."""
    owned, halves, away = x, [], fabric.world_size // 2
    while away:
        low, high = owned.tensor_split(2)
        keep, give = (high, low) if fabric.rank & away else (low, high)
        keep += exchange(fabric, fabric.rank ^ away, give, keep)
        halves.append((fabric.rank ^ away, keep, give))
        owned, away = keep, away // 2
    for partner, keep, give in reversed(halves):
        give.copy_(exchange(fabric, partner, keep, give))
    return x

# %% [markdown]
# Here are the rounds of Rabenseifner's all-reduce, with marks as before. How many steps are there, and what does each rank own
# in the middle?

# %%
run = launch(watched, 8, args=(rabenseifner, 80_000), link=slow)
figures.collective_strip(run)

# %%
n = max(worlds)
both = {"your ring": ring_all_reduce, "Rabenseifner": rabenseifner}
three_sizes = sizes[::2]
rabenseifners = race(n, three_sizes, far, both)
raced = {name: [middle(laps) for laps in rows] for name, rows in rabenseifners.items()}
costs = {"your ring": cost.ring_all_reduce, "Rabenseifner": cost.rabenseifner_all_reduce}
costs["tree"] = cost.tree_all_reduce
rows = []
for name, seconds in costs.items():
    points = list(zip(three_sizes, raced.get(name, ())))
    rows.append(figures.Curve(name, points, [(m, seconds(n, m, far)) for m in every_size]))
pairs = zip(raced.get("your ring", ()), raced.get("Rabenseifner", ()))
answer, ratios = None, [times(*pair) for pair in pairs]
if ratios and all(ratios):
    least = three_sizes[ratios.index(min(ratios))]
    answer = f"yes, it is {min(ratios):.2g} to {max(ratios):.2g} times as fast"
    if min(ratios) < 1.05:
        answer = f"no: at {least:,} bytes they tie, within a twentieth"
    if min(ratios) < 0.95:
        answer = f"no: at {least:,} bytes it takes {1 / min(ratios):.2g} times as long"
figures.curves(
    rows,
    figures.answered(
        f"{n} ranks over far links: does Rabenseifner's way beat your ring at all three sizes?",
        answer,
    ),
    x="size of the tensor (bytes)", y="time of an all-reduce (s)", log=True,
    beside=[tuple(costs)],
)

# %% [markdown]
# **In one sentence:** by the formulas Rabenseifner's way is never behind a ring or a tree. What do the formulas leave out?
#
# <details><summary>Compare</summary>In its first round all ranks send half their tensor to the other half of the
# machine at once, across the middle of the network, which can seldom carry that. A ring's messages go only to the next rank.
# And n must be a power of two, or further steps are needed. MPICH, a library of MPI, uses it for large tensors (Thakur and
# others, 2005).</details>

# %% [markdown]
# ## The last digits
#
# A float32 has 24 bits for its digits, so every addition rounds. The result depends on the order: $(a+b)+c$ need not be
# $a+(b+c)$.

# %%
a, b, c = torch.tensor([1e8, -1e8, 1])
print(f"(a + b) + c = {(a + b) + c:g}, a + (b + c) = {a + (b + c):g}")

# %% [markdown]
# In a ring chunk 0 begins its sum at rank 0, chunk 1 at rank 1: *another order for every chunk*. Let each rank repeat the
# same random numbers in all its chunks. In exact arithmetic all chunks of the sum would then be equal.

# %%
lab.predict("order", f"{ranks} ranks: in what % of its places does chunk 1 of the sum differ from chunk 0?", "%")

# %%
def summed(fabric, all_reduce, repeats=1):
    """The sum over all ranks of random numbers, the same ones in every chunk."""
    torch.manual_seed(fabric.rank)
    x = torch.randn(20_000).repeat(repeats)
    total = all_reduce(fabric, x)
    return x if total is None else total

def differ(one, other):
    """Per cent of the places in which two tensors differ."""
    return 100 * (one != other).double().mean().item()

run = launch(summed, ranks, args=(ring_all_reduce, ranks))
if run.state == "done":
    first, second, *_ = run.results[0].view(ranks, -1)
    lab.measure("order", differ(first, second))
    most = (first - second).abs().max()
    print(f"{differ(first, second):.0f} % differ, by at most {most:.1g}")

# %% [markdown]
# Which of these agree to the last bit? Your ring on rank 0 and on the last rank; your ring and your ring again; your ring
# and one server, which adds in an order of its own. Decide for each before you run the cell.

# %%
runs = [
    launch(summed, ranks, args=(f,))
    for f in (ring_all_reduce, ring_all_reduce, parameter_server)
]
if all(run.state == "done" for run in runs):
    once, again, server = (run.results for run in runs)
    print(f"rank 0 and the last rank: {differ(once[0], once[-1]):.0f} % differ")
    print(f"once and once more:       {differ(once[0], again[0]):.0f} % differ")
    print(f"your ring and one server: {differ(once[0], server[0]):.0f} % differ")

# %% [markdown]
# A finished sum is only copied on, so all ranks hold the same bits; and a fixed order gives the same bits every time.
# Whatever changes the order changes the bits: another number of ranks, another algorithm, `recv` from whoever comes first.
# NCCL promises equal results on all ranks ([#855](https://github.com/NVIDIA/nccl/issues/855)). But it chooses its algorithm
# by size, and sums inside a switch (NVLS) could differ from call to call
# ([#1497](https://github.com/NVIDIA/nccl/issues/1497)). Not run here.

# %% [markdown]
# Gradients are often sent as **bfloat16**: half the bytes, but only 8 bits for the digits. Your ring then rounds at every
# step. The other way: keep the partial sums in float32, and round once at the end.

# %%
lab.predict("bf16", f"{max(worlds)} ranks: how many times as large is the error if every step rounds to bfloat16?", "times")

# %%
def errors(fabric):
    """The errors of two bfloat16 sums, in % of the sum: rounded at every step, and once."""
    torch.manual_seed(fabric.rank)
    x = torch.randn(20_000, dtype=torch.float64)
    each = x.to(torch.bfloat16)
    once = each.float()
    for tensor in (x, each, once):
        ring_all_reduce(fabric, tensor)
    once = once.to(torch.bfloat16)
    return [100 * ((total.double() - x).norm() / x.norm()).item() for total in (each, once)]

# %%
each, once = [], []
for n in worlds:
    run = launch(errors, n)
    if run.state == "done":
        each.append((n, run.results[0][0]))
        once.append((n, run.results[0][1]))
if each:
    lab.measure("bf16", times(each[-1][1], once[-1][1]))
growth = figures.growing({
    "rounded at every step": [error for _, error in each],
    "rounded once": [error for _, error in once],
})
figures.curves(
    [figures.Curve("rounded at every step", each), figures.Curve("rounded once", once)],
    figures.answered(
        "Does the error of a sum in bfloat16 grow with the number of ranks?", growth
    ),
    x="ranks", y="error of the sum (%)", growth=True,
)

# %% [markdown]
# A ring adds one small number to an ever larger sum, n − 1 times in a row; a tree adds sums of equal size, $\log_2 n$ times.
# So NCCL's makers call rings the least stable of its algorithms ([#1026](https://github.com/NVIDIA/nccl/issues/1026)). That
# is why FSDP (lab 12) lets you choose a separate `reduce_dtype`: float32 for the sums, bfloat16 for the rest.

# %% [markdown]
# ## Against the framework
#
# PyTorch has its own: `dist.all_reduce`, written in C++. On this machine with no slow links, how far is your ring from
# it? We let them take turns, with a small and with a large tensor, several times each, and take the median time.

# %%
def framework(fabric, x):
    dist.all_reduce(x)

def duel(size_bytes):
    """The seconds of seven rounds of the framework's all-reduce and of yours, bare, by name."""
    pair = {"the framework": framework, "your ring": ring_all_reduce}
    return {
        name: laps for name, (laps,) in race(ranks, [size_bytes], None, pair, rounds=7).items()
    }

# %%
lab.predict(
    "bare",
    f"{ranks} ranks, {bare_bytes / 1e6:g} MB, no slow links: "
    "your ring takes how many times the framework's time?",
    "times",
)

# %%
duels = {size_bytes: duel(size_bytes) for size_bytes in (small_bytes, bare_bytes)}
small, large = [
    times(middle(pair["your ring"]), middle(pair["the framework"])) for pair in duels.values()
]
lab.measure("bare", large)
bars = [
    figures.Timing(name, middle(laps), group=f"{size_bytes:,} bytes", repeats_s=laps or ())
    for size_bytes, pair in duels.items()
    for name, laps in pair.items()
]
answer = None
if small and large:
    answer = f"your ring takes {small:.2g} times the framework's time (small),"
    answer += f" {large:.2g} times (large)"
figures.race(
    bars,
    figures.answered(
        "Your ring and the framework's: who is faster, with a small tensor and a large one?",
        answer,
    ),
)

# %% [markdown]
# With a small tensor most of the time goes into waking up one rank after another; with a large one the bytes count. Is
# your ring slower with the large one? It adds only when a whole chunk has come. According to [its
# source](https://github.com/pytorch/gloo/blob/main/gloo/allreduce.cc) gloo has a ring too, but it cuts each chunk into
# segments, and adds one while another travels. From now on you will use the framework's, and you know what is inside.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Patarasuk and Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations* (2009):
# the ring and the proof. Li and others, *Scaling distributed machine learning with the parameter server* (OSDI 2014).
# Thakur, Rabenseifner and Gropp, *Optimization of collective communication operations in MPICH* (2005): choosing by size.
# Sanders, Speck and Träff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan* (2009). Mikami and
# others, *Massively distributed SGD* ([arXiv:1811.05233](https://arxiv.org/abs/1811.05233), 2018): two levels.
# Sergeev and Del Balso, *Horovod* ([arXiv:1802.05799](https://arxiv.org/abs/1802.05799), 2018), which followed Baidu's
# ring all-reduce of 2017.
