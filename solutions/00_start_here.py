# %% [markdown]
# # Lab 00. Start here: your first ranks
#
# **After this lab you are able to** start real processes from a notebook cell, tell them apart, send a message from
# one to another, and read what comes back when one of them fails or when all of them wait for each other.
#
# **Minutes:** 25 · **Points:** 4 · **Prerequisites:** Python functions, and PyTorch tensors on one device.
# Nothing about distributed computing.

# %% [markdown]
# ![Space-time diagram of 4 ranks: every message goes from a rank to the next one (rank + 1), round a …](../labs/covers/00.png)

# %% [markdown]
# Run the next cell first. It loads the course's tools and quietly starts a helper process that has already imported
# PyTorch. That helper is why the launches below take a fraction of a second. The cell is folded, as are others that only
# set something up; click its three dots to read it.

# %%
# Set-up: the tools of this lab
import os

import torch
import torch.distributed as dist

from worldsize.notebook import *

# %% tags=["parameters"]
few_ranks = 2
many_ranks = 8

# %%
lab, check = open_lab("00")

# %% [markdown]
# ## This machine
#
# Real training runs on many machines with many GPUs. The labs of this course run real processes on the machine that
# you have. The sheet below says what that is. Look for one line: how many **cores** there are. More processes than
# cores is fine for learning, but not faster.

# %%
capability_sheet()

# %% [markdown]
# ## Two ranks
#
# A **rank** is one process of a run, and its number. The **world size** is how many there are. `launch` starts them.
# Every rank runs the *same function*. It finds its own number in the environment, exactly as under PyTorch's own
# starter, `torchrun`.

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
# The first line is the launcher's: how many ranks, how they talk (**gloo** is PyTorch's library for CPUs), and how
# many threads each may use. Then each rank speaks for itself. The process numbers differ: these are real processes,
# with a memory of their own. What a function returns comes back by rank.

# %%
for rank in range(few_ranks):
    print(f"rank {rank} returned {run[rank]}")

# %% [markdown]
# ## More ranks than cores
#
# Starting Python and importing PyTorch takes seconds. Our helper has done that once, and copies itself for every rank.

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
# Here each rank appends its number to a list of this notebook.

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
# processes share nothing, so whatever one must know of another has to be *sent*.

# %% [markdown]
# ## One message
#
# A function whose first parameter is called `fabric` gets a connection to the other ranks. It can do three things:
# `send`, `isend` and `recv`. `recv` writes into a tensor that you give it.

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
# that record. Time runs to the right; the arrow leaves where the sender was ready and arrives where the receiver had
# everything.

# %%
figures.messages(run)

# %% [markdown]
# ## A mistake on purpose
#
# Now one rank fails while the others wait for it. On a real cluster this often ends in a silent hang. Here the first
# failure is named, with its line, and everybody else is stopped. Normally the cell just shows the error; we catch it
# so that this notebook runs to its end.

# %%
def one_fails():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        batch = torch.ones(4, 3)
        batch @ batch  # the shapes do not fit
    dist.barrier()

# %%
try:
    launch(one_fails, world_size=3)
except RankFailed as error:
    print(error)

# %% [markdown]
# Read it from the top. **Who** failed first, with the exception. **Where**: your own lines; the frames of libraries
# are folded away. **The others**: where they stood when they were stopped. Here they waited in the `barrier`, a
# meeting point that rank 1 never reached. The last line says where the full logs are.

# %% [markdown]
# ## Two polite ranks
#
# `send` returns when the other side has *taken* the message. Two ranks that want to swap tensors both send first.

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
# A launch that goes on for a second or more shows its ranks while they run; at the end its picture takes that place. If
# you reload the page meanwhile, only the view is lost. `last_run().show()` shows what came of the latest launch again, at
# any time.

# %%
last_run().show()

# %% [markdown]
# ## Your turn: pass it on
#
# Ranks often stand in a **ring**: rank 0 sends to 1, 1 to 2, and the last one to 0 again. If all of them `send` first,
# they deadlock. `isend` does not wait: it returns a handle at once, and the handle's `wait` method waits later.
#
# <details><summary>Hint 1</summary>
# The rank to the right is <code>(fabric.rank + 1) % fabric.world_size</code>.</details>
# <details><summary>Hint 2</summary>Begin the isend, then recv, then wait for the handle.</details>

# %% tags=["exercise:pass_right"]
# Exercise 0.1: pass a tensor to the right
def pass_right(fabric, x):
    """Send x to the next rank of the ring; return what came from the rank before.

    A rank that is alone returns a copy of x. `torch.empty_like(x)` makes room for a message.
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
# The check runs your function with 2, 3 and 4 ranks and with one alone, on fresh random numbers, and looks at the
# messages too. Run it as often as you like. The last answer counts.

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
# The same run, step by step: click the slider and press the arrow keys. All four messages are on their way in the same
# step, because nobody waited before sending.

# %%
figures.steps(run, "ring")

# %% [markdown]
# ## Where to go from here
#
# An arrow leads from a lab to those that build on it. You may leave out what you know.

# %%
lab.course_map()

# %% [markdown]
# ## What you predicted, and what came out
#
# Your numbers and points are kept beside this notebook, so nothing is lost when the kernel restarts.

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** PyTorch's tutorial
# [Writing Distributed Applications](https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html) shows the same
# ideas with `torch.distributed` alone. Ranks, tags and the rendezvous of `send` are those of the
# [MPI standard](https://www.mpi-forum.org/docs/), chapter 3.
