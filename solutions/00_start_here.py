# %% [markdown]
# # Lab 00. Start here: your first ranks
#
# **After this lab you are able to** start real processes from a notebook cell, tell them apart, send a message from
# one to another, read what comes back when one of them fails or when all of them wait for each other, and start the
# same function with `torchrun`.
#
# **Minutes:** 50 · **Points:** 4 · **Prerequisites:** Python functions, and PyTorch tensors on one device. Nothing about
# distributed computing.

# %% [markdown]
# ![Space-time diagram of 4 ranks: every message goes from a rank to the next one (rank + 1), round a …](../labs/covers/00.png)

# %% [markdown]
# Run the next cell first. It loads the course's tools and starts a helper process, which imports PyTorch. New processes
# are then made as copies of that helper: it is a **fork server** (to fork is to copy a running process). That is why the
# launches below take a fraction of a second. The cell is folded, as are others that only set something up; click its
# three dots to read it.

# %%
# Set-up: the tools of this lab
import os

from worldsize.notebook import *

import torch
import torch.distributed as dist

# %% tags=["parameters"]
few_ranks = 2
many_ranks = 8

# %%
lab, check = open_lab("00")

# %% [markdown]
# ## This machine
#
# Real training runs on many machines with many GPUs. The labs of this course run real processes on your own machine.
# The sheet below describes it. One line matters now: how many **cores** there are. More processes than cores is fine
# for learning, but not faster. The rest is folded; click its triangle to read it.

# %%
capability_sheet()

# %% [markdown]
# ## Two ranks
#
# A **rank** is one process of a run, and also its number. The **world size** is how many ranks there are. `launch`
# starts them. Every rank runs the *same function*. It finds its own number in the environment, exactly as under
# PyTorch's own launcher, `torchrun`.

# %%
def hello():
    rank = os.environ["RANK"]
    print(f"hello from rank {rank} of {os.environ['WORLD_SIZE']}, process {os.getpid()}")
    return os.getpid()

# %% [markdown]
# Before every run this course asks you for a number. A guess is welcome: a wrong one teaches more than none. Type it,
# then run the next cells.

# %%
lab.predict("lines", f"`hello` has one print. How many lines do {few_ranks} ranks print together?", "lines")

# %%
run = launch(hello, world_size=few_ranks)
lab.measure("lines", len(run.log().splitlines()))

# %% [markdown]
# The first line is the launcher's: how many ranks, how they talk, and how many threads each may use. The library that
# carries their messages is called the **backend**: gloo for CPUs, NCCL for NVIDIA's GPUs. Then each rank speaks for
# itself. The process numbers differ: these are real processes, with memory of their own. Return values come back by
# rank.

# %%
for rank in range(few_ranks):
    print(f"rank {rank} returned {run[rank]}")

# %% [markdown]
# ## More ranks than cores
#
# Starting Python and importing PyTorch takes seconds. The fork server has done that once, and copies itself for every
# rank.

# %%
lab.predict("seconds", f"How many seconds until {many_ranks} ranks have started, spoken and come back?", "s")

# %%
run = launch(hello, world_size=many_ranks)
lab.measure("seconds", run.wall_s)
print(f"{many_ranks} ranks: {run.wall_s:.2f} s")

# %% [markdown]
# The lines may come in any order. Nobody told the ranks to take turns, so they do not. Every line is kept:
# `run.log(3)` is all that rank 3 printed.

# %% [markdown]
# ## Nothing is shared
#
# Here each rank appends its number to a list in this notebook.

# %%
visitors = []

def sign_in():
    visitors.append(os.environ["RANK"])
    return len(visitors)

# %%
lab.predict("visitors", f"After {few_ranks} ranks have signed in, how long is the notebook's list?", "entries")

# %%
run = launch(sign_in, world_size=few_ranks)
lab.measure("visitors", len(visitors))
print("the ranks' lists have", run.results, "entries; the notebook's has", len(visitors))

# %% [markdown]
# Each rank changed **its own copy**. That is the whole difficulty of distributed training, and its whole beauty:
# processes share nothing, so whatever one needs to know of another must be *sent*.

# %% [markdown]
# ## One message
#
# A function whose first parameter is called `fabric` gets a connection to the other ranks. It knows `fabric.rank` and
# `fabric.world_size`, and it can do three things: `send`, `isend` and `recv`. `recv` writes into a tensor that you give
# it. That tensor must have the shape and the dtype of what arrives.

# %%
def one_message(fabric):
    if fabric.rank == 0:
        fabric.send(torch.arange(1000.0), to=1)
    else:
        out = torch.empty(1000)
        fabric.recv(out, frm=0)
        return out.sum().item()

# %%
lab.predict("bytes", "The message is 1000 numbers of type float32. How many bytes is that?", "bytes")

# %%
run = launch(one_message, world_size=2)
lab.measure("bytes", run.trace.total_bytes())
print("rank 1 received numbers that add up to", run[1])

# %% [markdown]
# Every message of a run is recorded: from whom, to whom, how many bytes, from when to when. The picture is drawn from
# that record. Time runs to the right; the arrow starts when the sender was ready and ends when the receiver had
# everything.

# %%
figures.messages(run)

# %% [markdown]
# ## What a small message costs
#
# How long is that arrow, and why? You would expect: bytes, divided by the **bandwidth**, the bytes that pass in a
# second. Let us send 1 number, then 1000, then a million, 20 times in turns to rank 1 and back, and take the
# middle time of each.

# %%
import time

def there_and_back(fabric, counts):
    """{count of numbers: its 20 times to rank 1 and back, in seconds, sorted}, in turns"""
    took_s = {count: [] for count in counts}
    for _ in range(20):
        for count in counts:
            x, began_s = torch.zeros(count), time.perf_counter()
            if fabric.rank == 0:
                fabric.send(x, to=1)
                fabric.recv(x, frm=1)
            else:
                fabric.recv(x, frm=0)
                fabric.send(x, to=0)
            took_s[count].append(time.perf_counter() - began_s)
    return {count: sorted(seconds) for count, seconds in took_s.items()}

# %%
lab.predict("thousand", "How many times as long as 1 number do 1000 numbers take, there and back?", "times")

# %%
took_s = launch(there_and_back, 2, args=([1, 1000, 1_000_000],))[0]
middle_s = {count: seconds[10] for count, seconds in took_s.items()}
lab.measure("thousand", middle_s[1000] / middle_s[1])
for count, (fastest_s, *_, slowest_s) in took_s.items():
    times_one = middle_s[count] / middle_s[1]
    compared = f"{middle_s[count] * 1e6:>7,.0f} µs, {times_one:.1f} times as long as one"
    spread = f"from {fastest_s * 1e6:,.0f} to {slowest_s * 1e6:,.0f} µs"
    print(f"{count:>9,} × float32: {compared} ({spread})")

arrow = run.trace.transfers[0]
print(f"one arrow, 1,000 numbers one way: {(arrow.end_s - arrow.start_s) * 1e6:,.0f} µs")

# %% [markdown]
# If a thousand times the bytes take about the same time, then bytes are not what costs time. A rank that waits
# *sleeps*: the operating system must **wake it up**, and sender and receiver first agree that both are there. Each
# message pays this once, whatever its size. Such a fixed cost is called **latency**. Only large messages show
# bandwidth.
#
# So do not read bandwidth off a short arrow. Is yours longer than a round trip? It was the first message of its
# run, so it includes the time in which rank 1 was still starting.

# %% [markdown]
# ## A mistake on purpose
#
# Now one rank fails while the others wait for it. The function below uses PyTorch's own calls. `init_process_group` is a
# **rendezvous**: all ranks go to one address, which they find in the environment, and nobody goes on before all have
# arrived. Then they are a **process group**: ranks that can talk to each other, over the backend "gloo". A `barrier` is
# another meeting point.

# %%
def one_fails():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        batch = torch.ones(4, 3)
        batch @ batch  # the shapes do not fit
    dist.barrier()

# %% [markdown]
# Normally the cell just shows the error. Here we catch it, so that this notebook runs to its end.

# %%
try:
    launch(one_fails, world_size=3)
except RankFailed as error:
    print(error)

# %% [markdown]
# Read it from the top. **Who** failed first, with the exception. **Where**: your own lines; the frames of libraries
# are folded away. **The others**: where they stood when they were stopped. Here they waited in the `barrier`, which rank
# 1 never reached. The last line says where the full logs are.
#
# `torchrun` stops the others too when one process fails ([failure
# modes](https://docs.pytorch.org/docs/stable/elastic/run.html)). Ranks that nobody watches go on waiting: a process group
# gives up after [30 minutes with gloo, 10 with NCCL](https://docs.pytorch.org/docs/stable/distributed.html), unless you
# set another `timeout`.

# %% [markdown]
# ## Two polite ranks
#
# `send` returns when the other side has *taken* the message; such a send is called **synchronous**. Two ranks that want
# to swap tensors both send first.

# %%
def swap(fabric):
    other = 1 - fabric.rank
    out = torch.empty(3)
    fabric.send(torch.ones(3), to=other)
    fabric.recv(out, frm=other)
    return out

# %%
lab.predict("swapped", "How many of the two messages arrive?", "messages")

# %%
try:
    launch(swap, world_size=2)
except Deadlock as error:
    print(error)
lab.measure("swapped", len(last_run().trace.transfers))

# %% [markdown]
# Each waits for the other to receive, and neither does: a **deadlock**. The launcher saw that nobody could ever go on
# and said so at once. Remember the shape of this message. You will meet it again.
#
# Elsewhere, in MPI for one, a plain send may copy a small message and return early. Then the same program passes its
# test and hangs later, with larger tensors.

# %% [markdown]
# A launch that takes a second or more shows its ranks while they run; at the end its picture takes their place. If the
# cell shows another picture or launches twice, the run's own picture is folded into one line: click its triangle. If you
# reload the page meanwhile, the run goes on, and only its view is lost. `last_run().show()` shows the result of the
# latest launch again, at any time. Below a run are three buttons. One opens it in Perfetto, which draws large traces, one
# saves it as a page, and one copies it as text.

# %%
last_run().show()

# %% [markdown]
# ## Your turn: pass it on
#
# Ranks often stand in a **ring**: rank 0 sends to 1, 1 to 2, and the last one to 0 again. If all of them `send` first,
# they deadlock. `isend` does not wait: it returns a handle at once, and the handle's `wait` method waits later. Until then
# the tensor is still being sent: leave it as it is.
#
# <details><summary>Hint 1</summary>
# The rank to the right is <code>(fabric.rank + 1) % fabric.world_size</code>.</details>
# <details><summary>Hint 2</summary>Begin the isend, then recv, then wait for the handle.</details>

# %% tags=["exercise:pass_right"]
# Exercise 0.1: pass a tensor to the right
def pass_right(fabric, x):
    """Send x to the next rank of the ring; return what came from the rank before.

    A rank that is alone returns what x holds. `torch.empty_like(x)` makes room for a message.
    Afterwards x may hold anything.
    """
    ### BEGIN SOLUTION
    if fabric.world_size == 1:
        return x.clone()
    right = (fabric.rank + 1) % fabric.world_size
    left = (fabric.rank - 1) % fabric.world_size
    received = torch.empty_like(x)
    handle = fabric.isend(x, to=right)
    fabric.recv(received, frm=left)
    handle.wait()
    return received
    ### END SOLUTION

# %% [markdown]
# The check runs your function with 2, 3, 4 and 9 ranks and with one alone, on fresh random numbers, a large matrix and
# whole numbers too. It looks at the messages, and at whether you waited. Run it as often as you like. The last answer
# counts.

# %% tags=["check:pass_right"] points=4
check.pass_right(pass_right)

# %% [markdown]
# See your own ring at work. Every rank sends one arrow to its right, and the last one sends its arrow all the way back.

# %% tags=["cover"]
def ring(fabric):
    return pass_right(fabric, torch.full((1000,), float(fabric.rank)))

run = launch(ring, world_size=4)
figures.messages(run)

# %% [markdown]
# The same run, step by step: click the slider and press the arrow keys. Messages that are on their way in the same step
# did not wait for each other. How many steps does your ring take?

# %%
figures.steps(run, "ring")

# %% [markdown]
# ## Out of the notebook
#
# `launch` belongs to this course. Elsewhere ranks start from a terminal, with PyTorch's `torchrun`, and send with
# `torch.distributed`. Here is the ring once more, in plain PyTorch. You know all its words by now: a process group, its
# backend, `isend`, `recv`, and the handle, which is called a request here.

# %%
def plain_ring():
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    x, received = torch.full((3,), float(rank)), torch.empty(3)

    request = dist.isend(x, dst=(rank + 1) % n)
    dist.recv(received, src=(rank - 1) % n)
    request.wait()
    print(f"rank {rank} of {n} received {received.tolist()}")
    dist.destroy_process_group()  # closes the connections

# %% [markdown]
# `torchrun` starts a file, so the next cell writes one: a few imports, the cell above, and a call. The first line that
# the file prints shows you when a rank begins.

# %%
import linecache
import tempfile
from pathlib import Path

IMPORTS = """\
import os
print("rank", os.environ["RANK"], "has started, and imports PyTorch", flush=True)
import torch
import torch.distributed as dist
"""
folder = tempfile.TemporaryDirectory(prefix="worldsize-lab-00-")

def write_script(name, fn, call):
    """The file `name`: imports, the notebook's cell that defines `fn`, and a call."""
    cell = "".join(linecache.getlines(fn.__code__.co_filename))
    Path(folder.name, name).write_text("\n\n".join([IMPORTS, cell, call]))

write_script("plain_ring.py", plain_ring, "plain_ring()\n")

# %%
lab.predict("torchrun", f"torchrun starts {few_ranks} ranks. After how many seconds have they come back?", "s")

# %% [markdown]
# `--standalone` means: this machine alone. `--nproc-per-node` is how many processes to start on each machine, or node.
# `terminal` runs a command as your terminal would, with a time limit.

# %%
began_s = time.monotonic()
terminal(
    "torchrun", "--standalone", "--nproc-per-node", few_ranks, "plain_ring.py",
    folder=folder.name, timeout_s=120,
)
lab.measure("torchrun", time.monotonic() - began_s)

# %% [markdown]
# The ranks found each other as before: `torchrun` sets the same variables as `launch` does, RANK, WORLD_SIZE and the
# address of the rendezvous. But it has no fork server. Every process starts Python and imports PyTorch anew.
#
# And your own function? It wants a `fabric`. `over_group()` makes one from the existing process group. The `timeout`
# ends a wait that nobody answers: `torchrun` does not notice a deadlock. The file gets only the cell of your
# exercise, so keep your helpers in that cell.

# %%
CALL = """\
from datetime import timedelta
from worldsize.fabric import over_group

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
fabric = over_group()
received = pass_right(fabric, torch.full((3,), float(fabric.rank)))
print(f"rank {fabric.rank} of {fabric.world_size} received {received.tolist()}")
dist.destroy_process_group()
"""
if run.state == "not yet":
    print(f"not yet: {run.not_yet}")
else:
    write_script("my_ring.py", pass_right, CALL)
    terminal(
        "torchrun", "--standalone", "--nproc-per-node", few_ranks, "my_ring.py",
        folder=folder.name, timeout_s=120,
    )

# %% [markdown]
# Not one line of yours was changed. In every lab with a fabric, this is how your functions leave the notebook: under
# `torchrun`, on a cluster, or in a debugger.
#
# **In one sentence:** what does `launch` do for you that `torchrun` does not?
#
# <details><summary>Compare</summary>It starts a function, not a file, in a fraction of a second; it records every message;
# and it notices a deadlock at once. torchrun, for its part, starts ranks on many machines and can restart
# them.</details>

# %% [markdown]
# ## Ranks that stay (optional)
#
# `launch` starts fresh ranks, and so does `torchrun`. When the function ends, they end, with all that they had. That
# keeps a result clean: nothing from an earlier run is in it. But you also want to try one line, look, and try the next.
#
# For that there are ranks that stay. `%%ranks 4` on a cell's first line opens four and runs the cell on each. They keep what
# they have from cell to cell. Each has `rank`, `world_size`, `fabric`, `torch`, and `dist` with a process group.

# %%
# %%ranks 4
x = torch.full((3,), float(rank))
x

# %% [markdown]
# The notebook shows the value of the last line, by rank. The next cell adds up `x` over the ranks, into `x` itself.

# %%
lab.predict("summed", "Rank r's `x` holds r, three times. What is an element of `x` after the sum over the four ranks?", "")

# %%
# %%ranks
dist.all_reduce(x)
x

# %% [markdown]
# Nobody made `x` again: every rank still had its own. The notebook can fetch it. `world` stands for the open ranks, and
# `world["x"]` is a list with a copy of each rank's `x`.

# %%
lab.measure("summed", world["x"][0][0].item())
world["x"]

# %% [markdown]
# Now something goes wrong: rank 1 fails after it has made `y`, while the others wait for it. `world.run` runs a string
# as `%%ranks` runs a cell, and you can catch its error.

# %%
lab.predict("kept", "Rank 1 fails. On how many of the four ranks can you still read `y`?", "ranks")

# %%
try:
    world.run("""
y = x * rank
if rank == 1:
    y @ torch.ones(4)  # the shapes do not fit
dist.barrier()
""")
except RankFailed as error:
    print(error)

lab.measure("kept", sum(y is not None for y in world["y"]))

# %% [markdown]
# The error reads as it does after a launch. But no rank has ended. Each stopped where it stood, and kept its state. You
# can look at the states side by side. In the table a tensor has the same letter on ranks where its bytes are the same.
# How many letters does `x` have, and how many does `y`?

# %%
world.table("[x, y]")

# %% [markdown]
# The group was interrupted in its barrier. Does it still work? The next cell finds out, and then the ranks end.

# %%
# %%ranks
dist.all_reduce(y)
y

# %%
world.close()

# %% [markdown]
# In Jupyter you can also step into a rank: write `breakpoint()` in a cell, or `%debug` in the cell after an error.
#
# **In one sentence:** when do you take fresh ranks, and when ranks that stay?
#
# <details><summary>Compare</summary>Take fresh ranks for a result that others must be able to repeat: nothing from before
# is in it. Take ranks that stay to look around, to find a mistake, and to load slow things only once.</details>

# %% [markdown]
# ## What you predicted, and what came out
#
# Your numbers and points are kept beside this notebook, so nothing is lost when the kernel restarts. Below them is the map
# of the course, as below every lab: each card says which labs it builds on and links to its notebook. You may skip what
# you know.

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** PyTorch's tutorial
# [Writing Distributed Applications](https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html) shows the same
# ideas with `torch.distributed` alone. Ranks come from the
# [MPI standard](https://www.mpi-forum.org/docs/mpi-4.1/mpi41-report.pdf), chapter 3. The fabric's `send` is its
# `MPI_Ssend`, the synchronous mode of section 3.4; `MPI_Send` may also copy the message and return early.
