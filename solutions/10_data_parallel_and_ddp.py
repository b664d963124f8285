# %% [markdown]
# # Lab 10. PyTorch DataParallel and DistributedDataParallel
#
# **After this lab you are able to** train one model with DataParallel and with DistributedDataParallel, to say from
# the record what each of them sends, to deal out examples to ranks, to evaluate exactly, to save a training run and
# resume it; and to start the same training from a notebook and with `torchrun`.
#
# **Minutes:** 145 (two sittings: 75 up to “Is it the same training?”, then 70) · **Points:** 6 · **Prerequisites:** PyTorch on
# one device, Lab 00 (ranks, `launch`). Lab 04 (averaged gradients) helps.

# %% [markdown]
# ![How far off is an accuracy that counts padding? Padding counted is up to 16.7 percentage points …](../labs/covers/10.png)

# %%
# Set-up: the tools of this lab
import os

from worldsize.notebook import *

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from worldsize.pytorch.models import flat

# %%
import linecache
import re
import socket
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from statistics import median

from worldsize.fabric.background import Background, over_the_fabric
from worldsize.formulas import cost
from worldsize.pytorch.data_parallel import Cards, RecordedCopies, data_parallel
from worldsize.pytorch.models import mlp, small_cnn, tensors
from worldsize.pytorch.observed_step import together, witnessed
from worldsize.pytorch.resnet import resnet

# %% tags=["parameters"]
gpus = torch.cuda.device_count()
cards = gpus if gpus > 1 else 4
depth = 101 if gpus > 1 else 18
width = 64 if gpus > 1 else 16
images_count = 512
batch = 64
steps = 3
epochs = 4

# %%
lab, check = open_lab("10")
images, labels, test_images, test_labels = tensors(
    data.load("fashion-mnist"), images_count, 256
)

# %% [markdown]
# ## The model
#
# A ResNet adds each block's input to its output; so it can be very deep. It was made for pictures with three colours.
# Ours have one. Does the first layer take them? torchvision calls this layer `conv1`; here it is number 0.

# %%
for_colours = resnet(18)
try:
    for_colours(images[:2])
except RuntimeError as error:
    print(error)
for_colours[0] = nn.Conv2d(1, 64, 7, 2, padding=3, bias=False)
out = list(for_colours(images[:2]).shape)
print("after the swap, out:", out, "for two images and 1000 classes")

# %% [markdown]
# So the first layer is swapped, and the rest stays. `channels=1` does the same below. With several GPUs this lab uses
# depth 101, else depth 18 and a quarter of the width, so that two cores can train it.

# %%
shape = {"depth": depth, "channels": 1, "classes": 10, "width": width}
model = resnet(**shape)
model_bytes = sum(p.nbytes for p in model.parameters())
millions = model_bytes / 4 / 1e6
print(f"ResNet-{depth}: {millions:.2f} million weights, {model_bytes / 1e6:.1f} MB")
print("one image in:", list(images[:1].shape), " out:", list(model(images[:2])[:1].shape))

# %% [markdown]
# How fast does *one* device train? Where there are GPUs, one of them trains ResNet-101 here, at full width.

# %%
def images_per_second(shape, repeats=3, count=batch):
    torch.set_num_threads(1)  # one device is one GPU, or one core
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = resnet(**shape).to(device)
    x, y = images[:count].to(device), labels[:count].to(device)
    for number in range(repeats + 1):
        if number == 1:  # the first step warms up
            start_s = time.monotonic()
        F.cross_entropy(model(x), y).backward()
        next(model.parameters()).grad.sum().item()  # waits until a GPU has done its work
    return repeats * count / (time.monotonic() - start_s)

# %%
alone = {**shape, "depth": 101, "width": 64} if gpus else shape
speed = launch(images_per_second, 1, args=(alone,))[0]
place = "GPU" if gpus else "core"
print(f"ResNet-{alone['depth']} on one {place}: {speed:,.0f} images a second")

# %% [markdown]
# And without a GPU, how fast would one core train ResNet-101 at full width? One step with 8 images gives an estimate.

# %%
deep = {**shape, "depth": 101, "width": 64}
if gpus == 0:
    slow_speed = launch(images_per_second, 1, args=(deep, 1, 8))[0]
    weights = sum(p.numel() for p in resnet(**deep).parameters())
    print(f"ResNet-101: {weights / 1e6:.1f} million weights,",
          f"{slow_speed:,.1f} images a second, one step of 8 in {8 / slow_speed:.1f} s")

# %% [markdown]
# ## One process, many cards
#
# You have several cards (GPUs) and one training script. PyTorch's oldest help is one line:
# `model = nn.DataParallel(model)`. There is still one process. At every step it cuts the batch into pieces and gives
# each card a piece, a copy of the model, and a *thread*. You, as before, put the model on card 0; a batch may lie anywhere.

# %%
lab.predict("leaves", f"{cards} cards, one step of DataParallel. How many copies of the weights leave card 0?", "copies")

# %%
def gradients(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()

def step_of_data_parallel(link):
    torch.set_num_threads(1)  # for each card; its thread needs no helpers
    record = Cards(cards, link)
    model, words = data_parallel(resnet(**shape), record)
    place = next(model.parameters()).device
    with RecordedCopies(record):
        gradients(model, images[:batch].to(place), labels[:batch].to(place))
    return words, record.trace()

# %%
words, trace = launch(step_of_data_parallel, 1, args=(Link("100 MB/s", "1 ms"),))[0]
print(words)
whole = [t for t in trace.transfers if t.src == 0 and t.size_bytes >= model_bytes]
lab.measure("leaves", sum(t.size_bytes for t in whole) / model_bytes)
figures.messages(trace).calling("card")

# %% [markdown]
# Where the line above says *emulated*, there were no GPUs to run PyTorch's own DataParallel on. In that case threads of one
# process stand in for cards: they do the same in the same order, and each copy takes the time of a link, so that you
# can see it; NCCL, the library for GPUs, did not run here. According to its documentation it may pass a copy on from card
# to card, which should be faster. Even so, all copies start on card 0, and all gradients end there.

# %%
on_card_0 = [c for c in trace.collectives if c.rank == 0]
for c in on_card_0:
    later_ms = 1e3 * (c.start_s - on_card_0[0].start_s)
    print(f"{c.op:>11} {c.size_bytes / 1e6:8.3f} MB, {later_ms:4.0f} ms after the first")

# %% [markdown]
# Read it from the top. **Scatter** the images. **Replicate** the weights, at every step anew, because the last step's
# copies are out of date. (The sizes of *replicate* and *reduce add* are those of one copy, the others those of the whole
# batch. In the picture, a small message follows each copy: BatchNorm's running means and variances.) **Gather** the
# outputs on card 0, where the loss is worked out. Backward: scatter the outputs' gradients, and **add up** all weights'
# gradients on card 0. Only card 0 takes the step.

# %%
figures.links(trace).calling("card")

# %% [markdown]
# One row and one column: everything leaves or enters card 0. The others wait for it, and it needs more memory than
# they do. There is a second price, which the picture does not show: all threads share one Python, which runs one of
# them at a time.
#
# **In one sentence:** what limits DataParallel as cards are added?
#
# <details><summary>Compare</summary>Card 0: it sends and receives for every other card, so its load grows with their number.
# The parameter server of Lab 06 has the same trouble.</details>

# %% [markdown]
# ## A process for each card
#
# DistributedDataParallel (DDP) has no card in the middle. Each card has a **process** of its own, with its own Python and its own
# copy of the model, which stays. First the processes, the *ranks*, must find each other and form a **process group**.
# `init_process_group` does that. It wants to know the *backend*, the library that carries the messages. As a test, two
# ranks add up their numbers, so that both hold the sum: an **all-reduce**.

# %%
def first_sum(backend):
    dist.init_process_group(backend)
    device = f"cuda:{os.environ['LOCAL_RANK']}" if backend == "nccl" else "cpu"
    x = torch.full((1,), dist.get_rank() + 1.0, device=device)
    dist.all_reduce(x)
    return f"ran: 1 + 2 = {x.item():g}"

# %%
print("gloo:", launch(first_sum, 2, args=("gloo",), device="cpu")[0])
said = f"needs a GPU for each rank; this machine has {gpus}"
print("nccl:", launch(first_sum, 2, args=("nccl",))[0] if gpus > 1 else said)

def tries_mpi():
    try:
        dist.init_process_group("mpi")
    except RuntimeError as error:
        return str(error)

built_in = "built in; its ranks are started by mpirun"
print("mpi: ", built_in if dist.is_mpi_available() else launch(tries_mpi, 1, device="cpu")[0])

# %% [markdown]
# **nccl** is NVIDIA's library for GPUs, and PyTorch's documentation recommends it there. Where its line above says *needs a
# GPU for each rank*, it was not run here, nor below. **gloo** works on any machine, over TCP. **mpi** is for
# clusters that have an MPI of their own; you must build PyTorch from source against it, and start the ranks with
# `mpirun`. The code around them is the same.
#
# How do processes that know nothing of each other meet? By default through the **environment** (`env://`).

# %%
names = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"]

def environment():
    return [os.environ[name] for name in names]

run = launch(environment, 2, device="cpu")
for name, *values in zip(names, *run.results):
    print(f"{name:>12}: {values[0]:>9} on one rank, {values[1]:>9} on the other")

# %% [markdown]
# All ranks go to one address, the **rendezvous**, and say who they are. Nobody goes on until all have come. Whoever
# starts the processes sets these variables: `launch` does here, `torchrun` does in a terminal.
#
# You may also name the meeting place yourself, with `init_method=`: an address, or a file that all can see. Then `rank=`
# and `world_size=` are yours to give.

# %%
def meets(init_method):
    named = init_method.format(**os.environ)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=named, rank=rank, world_size=2)
    x = torch.ones(1)
    dist.all_reduce(x)
    return named.partition("//")[0] + f"// {x.item():g} ranks have met"

with tempfile.TemporaryDirectory() as shared:
    for place in ("env://", "tcp://{MASTER_ADDR}:{MASTER_PORT}", f"file://{shared}/meeting"):
        print(launch(meets, 2, args=(place,), device="cpu")[0])

# %% [markdown]
# Three ways, one result. Take a new file for each run. (If an old one is still there, the ranks believe its entries and
# may hang, or look for ranks that are gone. We do not try that here.)
#
# What if a rank never comes? Below, two ranks are told that there are three, with a limit of one second.

# %%
def incomplete():
    os.environ["WORLD_SIZE"] = "3"
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=1))
    except dist.DistError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"

print(launch(incomplete, 2, device="cpu")[0])

# %% [markdown]
# The last line is the error; lines before it, if any, are PyTorch's own warnings. Each rank writes a key at the meeting
# place. Rank 2's key never came, so after one second the others gave up. Without `timeout=` they wait for minutes. So
# set a limit.
#
# RANK is the number among *all* processes, LOCAL_RANK the number on *this machine*. LOCAL_RANK chooses the card: each
# machine numbers its GPUs from 0. On the second of two machines with 4 GPUs each, rank 6 has LOCAL_RANK 2 and takes `cuda:2`.

# %%
# Set-up
def my_device():
    """This rank's device: with nccl the GPU with the number LOCAL_RANK, else the CPU."""
    if dist.get_backend() != "nccl":
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))

# %% [markdown]
# ## Move, then wrap
#
# Now the model: first `model.to(device)`, then `ddp = DistributedDataParallel(model)`. The order matters. DDP looks at the
# parameters once, when it wraps them: it copies rank 0's to all ranks, and registers a **hook** for each parameter, a
# function that PyTorch calls when this parameter's gradient is ready. Here are two mistakes. The first: the model was
# never moved to its card.

# %%
def forgets_to_move():
    dist.init_process_group("gloo")
    DistributedDataParallel(nn.Linear(2, 1), device_ids=[0])

try:
    launch(forgets_to_move, 1, device="cpu")
except RankFailed as failed:
    print(str(failed).splitlines()[0])

# %% [markdown]
# PyTorch reports this mistake because `device_ids` was given. Without it, and over gloo, a model and batches left on the
# CPU train there: slowly, and nothing complains. `device_ids=[k]`, with this rank's LOCAL_RANK k, says on which GPU its
# model lies. `output_device=k` says where its outputs go: by default to the same GPU. For a model on the CPU both are None.

# %%
def where_it_runs():
    nccl = torch.cuda.device_count() >= 2
    dist.init_process_group("nccl" if nccl else "gloo")
    device = my_device()
    ids = [device.index] if device.type == "cuda" else None
    model = nn.Linear(2, 1).to(device)
    ddp = DistributedDataParallel(model, device_ids=ids, output_device=ids and ids[0])
    out = ddp(torch.ones(1, 2)).device
    return f"device_ids {ddp.device_ids}, output_device {ddp.output_device}, output on {out}"

for rank, said in enumerate(launch(where_it_runs, 2).results):
    print(f"rank {rank}: {said}")

# %% [markdown]
# The second mistake: after the wrapping, a new parameter takes the place of an old one. Rank r's example is r + 1 and
# all weights are 1, so rank r's own gradient is r + 1, and the mean over two ranks is 1.5. Each rank takes two steps,
# with a model of one layer and with one of two.

# %%
def gradient_of_each_step(replaced, layers=1):
    """The first layer's gradient in each of two steps, and the error if there is one."""
    dist.init_process_group("gloo")
    model = nn.Sequential(*[nn.Linear(1, 1, bias=False) for _ in range(layers)])
    for p in model.parameters():
        nn.init.ones_(p)
    ddp, seen = DistributedDataParallel(model), []
    if replaced:
        model[0].weight = nn.Parameter(torch.ones(1, 1))
    try:
        for _ in range(2):
            ddp.zero_grad()
            ddp(torch.full((1, 1), dist.get_rank() + 1.0)).sum().backward()
            seen.append(model[0].weight.grad.item())
    except RuntimeError as error:
        seen.append(str(error).partition(" in the prior")[0])
    return seen

cases = {"wrapped last": (False,), "one of one replaced": (True,)}
cases["one of two replaced"] = (True, 2)
for name, case in cases.items():
    run = launch(gradient_of_each_step, 2, args=case, device="cpu")
    for rank, seen in enumerate(run.results):
        print(f"{name}, rank {rank}:", ", ".join(map(str, seen)))

# %% [markdown]
# The new parameter has no hook, so nobody averages its gradient. Where all parameters are replaced, DDP waits for nothing:
# PyTorch never complains, and the ranks drift apart. Where one of several is replaced, DDP waits for the old one's hook, and
# the next forward pass raises an error. So: build, load, move, make all changes, and wrap **last**. Create the optimizer
# after that.
#
# A parameter that a step does not use never calls its hook either. Below, no step uses `extra`.

# %%
def leaves_one_out(find):
    """The used weight's gradient in each of two steps, and the error if there is one."""
    dist.init_process_group("gloo")
    model = nn.Linear(1, 1)
    model.extra = nn.Linear(1, 1)
    ddp, seen = DistributedDataParallel(model, find_unused_parameters=find), []
    try:
        for _ in range(2):
            ddp.zero_grad()
            ddp(torch.full((1, 1), dist.get_rank() + 1.0)).sum().backward()
            seen.append(model.weight.grad.item())
    except RuntimeError as error:
        seen.append(str(error).partition(" in the prior")[0])
    return seen

for find in (False, True):
    for rank, seen in enumerate(launch(leaves_one_out, 2, args=(find,), device="cpu").results):
        print(f"find_unused_parameters={find}, rank {rank}:", ", ".join(map(str, seen)))

# %% [markdown]
# DDP sends gradients in **buckets**, each when all its parameters' hooks have been called. The hook of `extra` is not, so
# this bucket never leaves, and the gradients of *used* weights in it are not averaged either. The error comes one step late,
# in the next forward pass; an optimizer that steps in between makes the ranks differ. With `find_unused_parameters=True`
# DDP looks for unused parameters in every step, which costs time, and averages the others.

# %% [markdown]
# ## Does DDP gather on card 0?
#
# Some articles say so: DDP gathers all gradients on card 0, averages them there, and broadcasts the result. Do not
# believe it, and do not believe us. We ask two witnesses that know nothing of DDP: the system, which counts the bytes
# of every connection between processes, and PyTorch's profiler, which names what was called.

# %%
lab.predict("card0", "4 ranks, one step of DDP: rank 0 receives how many times the bytes of all gradients?", "times")

# %%
def watched_ddp():
    dist.init_process_group("gloo")
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    x, y = images[mine].flatten(1), labels[mine]
    with witnessed() as start:
        ddp = DistributedDataParallel(mlp([784, 512, 10]))
    for _ in range(2):  # in its first steps DDP still arranges its buckets
        gradients(ddp, x, y)
    with witnessed() as step:
        gradients(ddp, x, y)
    return start, step

run = launch(watched_ddp, 4, device="cpu")
start, step = (together(seen) for seen in zip(*run.results))

# %%
gradient_bytes = sum(p.nbytes for p in mlp([784, 512, 10]).parameters())
lab.measure("card0", step.received_bytes(0) / gradient_bytes if step.transfers else None)
for c in sorted(step.collectives, key=lambda c: c.rank):
    print(f"rank {c.rank} took part in {c.op} of {c.size_bytes / 1e6:.2f} MB")
figures.links(step)

# %% [markdown]
# Nobody is in the middle. Each rank sends to one neighbour and receives from the other: a **ring**. With gathering on
# one card, rank 0 would receive three gradients and send three; instead every rank receives $\frac{2(n-1)}{n}$ of one.
# (The little that gloo sends besides the data is left out.) Lab 06 builds this ring.

# %% [markdown]
# The articles are not wholly wrong. Once, when DDP wraps the model, everything does start at rank 0: it sends its weights
# to some ranks, and ranks that have them send them on. (Before that the ranks compare the shapes of their parameters: the
# all-gather below.) Also, before each forward pass rank 0 sends out its *buffers*, such as the running means of
# BatchNorm; this model has none. Here is the start:

# %%
print("rank 1 took part in:", *dict.fromkeys(c.op for c in start.collectives if c.rank == 1))
figures.links(start)

# %% [markdown]
# ## Who takes which example?
#
# With DataParallel one process loads every batch. With DDP each rank loads its own. `DistributedSampler` shuffles all
# examples; then each rank takes every n-th, beginning with its own number: rank r takes r, r + n, r + 2n, … All ranks must
# take equally many steps, or one would wait for ever.

# %%
lab.predict("dealt", "10 examples, 4 ranks. How many examples are dealt out in one epoch?", "examples")

# %% [markdown]
# If the examples do not divide evenly, `DistributedSampler` *pads*: some from the beginning of the order are dealt twice.
# Write such a sampler yourself, without `DistributedSampler`. Lab 04 cut batches so that nothing was dealt twice; this is
# the library's simpler rule. The order must be the same on all ranks and new in every epoch, from epoch 0 on: it depends
# on `seed + epoch` and nothing else.
#
# <details><summary>Hint 1</summary>A fresh <code>torch.Generator()</code>, its <code>manual_seed</code>, and
# <code>torch.randperm(count, generator=…)</code>.</details>
# <details><summary>Hint 2</summary>How many are missing up to the next multiple of n: <code>-count % n</code>. There may
# be fewer examples than ranks; then the beginning is needed more than once.</details>

# %% tags=["exercise:my_share"]
# Exercise 10.1: DistributedSampler by hand
def my_share(count, rank, world_size, seed, epoch):
    """The indices, from 0 to count - 1, that this rank takes in this epoch, in the order of
    DistributedSampler.

    All ranks take equally many; what is missing comes from the beginning of the shuffled order.
    A list, or one tensor.
    """
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(count, generator=generator).tolist()
    missing = -count % world_size
    padded = (order * world_size)[: count + missing]
    return padded[rank::world_size]
    ### END SOLUTION

# %% tags=["check:my_share"] points=1.5
check.my_share(my_share)

# %%
def attempt(fn, *args):
    """What fn returns; None where an exercise that it needs is not written yet."""
    try:
        return fn(*args)
    except NotYet as stub:
        print(f"not yet: {stub}")

samplers = [DistributedSampler(range(10), 4, rank, seed=3) for rank in range(4)]
mine = attempt(lambda: [my_share(10, rank, 4, 3, 0) for rank in range(4)])
for rank, sampler in enumerate(samplers):
    yours = mine[rank] if mine else "not yet"
    print(f"rank {rank}: the library {list(sampler)}, yours {yours}")
lab.measure("dealt", sum(len(sampler) for sampler in samplers))

# %% [markdown]
# There are two ways without padding. With `drop_last=True` the sampler leaves out what does not divide evenly. Or the ranks
# take unequal numbers of steps inside `with ddp.join():`, where a rank that has finished adds zeros to the others' sums.
# Below, rank 0 has three batches and rank 1 two, and every gradient is 1. By how many ranks is the third sum divided?

# %%
def unequal(by_all):
    """The averaged gradient of each of this rank's steps."""
    dist.init_process_group("gloo")
    ddp, found = DistributedDataParallel(nn.Linear(1, 1, bias=False)), []
    with ddp.join(divide_by_initial_world_size=by_all):
        for _ in range(3 - dist.get_rank()):
            ddp.zero_grad()
            ddp(torch.ones(1, 1)).sum().backward()
            found.append(ddp.module.weight.grad.item())
    return found

dropping = [
    list(DistributedSampler(range(10), 4, rank, seed=3, drop_last=True)) for rank in range(4)
]
left_out = sorted(set(range(10)) - set(sum(dropping, [])))
print("drop_last=True:", *dropping, " left out:", *left_out)
for by_all in (True, False):
    for rank, found in enumerate(launch(unequal, 2, args=(by_all,), device="cpu").results):
        print(f"divide_by_initial_world_size={by_all}, rank {rank}: mean gradients {found}")

# %% [markdown]
# <details><summary>Compare</summary>Where rank 0's third mean is 0.5, its one gradient was divided by both ranks; where it is 1,
# by the one that was still there.</details>

# %% [markdown]
# ## A new order for every epoch
#
# The library's sampler does not know when an epoch begins. You must tell it the number: its method `set_epoch` is
# for that. Nothing fails if you forget. What happens then?

# %%
lab.predict("batches", "20 batches an epoch, 5 epochs, without set_epoch: how many different batches are there?", "batches")

# %%
def batches_seen(sets_epoch):
    """How many different batches of 20 of 400 examples 4 ranks have seen after each epoch."""
    samplers = [DistributedSampler(range(400), 4, rank) for rank in range(4)]
    seen, counts = set(), []
    for number in range(5):
        for sampler in samplers:
            if sets_epoch:
                sampler.set_epoch(number)
        shares = [torch.tensor(list(sampler)).split(5) for sampler in samplers]
        seen |= {frozenset(torch.cat(parts).tolist()) for parts in zip(*shares)}
        counts.append(len(seen))
    return counts

without = batches_seen(False)
lab.measure("batches", without[-1])
figures.histories(
    {"with set_epoch": batches_seen(True), "without": without},
    "How many different batches do the ranks see, with set_epoch and without?",
    y="different batches so far", x="epochs done",
)

# %% [markdown]
# Without it, the same examples meet in the same batches in the same order, for ever. The training still learns
# something, and no message tells you. To find such a mistake, print the *order* of the examples in two epochs.

# %% [markdown]
# ## The training
#
# Put it together. Each rank: device, sampler, loader, model, wrap, optimizer, loop. The function must train any model:
# `build(data)` makes one and `loss` judges it. The small model in the next cell is there for the check.

# %%
# Set-up
def line(data):
    """A linear model with the weights in `data`: they differ by rank, until DDP wraps it."""
    model = nn.Linear(data["x"].shape[1], 1, dtype=data["x"].dtype)
    model.load_state_dict({"weight": data["weight"], "bias": data["bias"]})
    return model

# %% [markdown]
# The caller makes the process group, and ends it. `batch_size` counts the examples of *one rank*. Leave the sampler's
# seed as it is, and count epochs from 0. Model and batches go to `my_device()`. In a training all ranks hold the same
# `data`. In the check alone each rank has a `data["y"]` of its own, so that the weights agree only if DDP has averaged the
# gradients. The check then trains again, on three ranks, with another `build` and `loss`: use both.
#
# <details><summary>Hint 1</summary><code>TensorDataset(data["x"], data["y"])</code>; then the sampler of it; then
# <code>DataLoader(dataset, batch_size, sampler=…)</code>.</details>
# <details><summary>Hint 2</summary>Call the wrapped model, not the one inside: only the wrapper averages. DDP has divided
# by the number of ranks; you need not.</details>
# <details><summary>Hint 3</summary><code>flat([*ddp.parameters()])</code> is a copy of all weights as one vector.</details>

# %% tags=["exercise:train_ddp"]
# Exercise 10.2: a training with DDP
def train_ddp(data, epochs, batch_size, rate, build=line, loss=F.mse_loss):
    """Trains build(data), wrapped in DDP, by plain SGD on data["x"], data["y"], which every
    rank holds whole.

    Returns the weights after each epoch, a list of vectors: the same on all ranks.
    """
    ### BEGIN SOLUTION
    device, history = my_device(), []
    dataset = TensorDataset(data["x"], data["y"])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    ddp = DistributedDataParallel(build(data).to(device))
    optimizer = torch.optim.SGD(ddp.parameters(), rate)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss(ddp(x.to(device)), y.to(device)).backward()
            optimizer.step()
        history.append(flat([*ddp.parameters()]))
    return history
    ### END SOLUTION

# %% tags=["check:train_ddp"] points=1.5
check.train_ddp(train_ddp)

# %% [markdown]
# ## Is it the same training?
#
# Two ranks with 32 images each, or one process with 64: the same global batch. Does the loss go down the same way? The
# optimizer is Adam, and every rank has its own. The model is small and has no BatchNorm; why that matters comes next.
# The loss is a cross-entropy with natural logarithms, so its unit is the **nat**.

# %%
lab.predict("gap", "One process and 2 ranks, same global batch: the largest gap between their losses?", "nats")

# %%
def plain_model():
    return small_cnn(seed=1)

def curve(build):
    """The loss of each step over the whole global batch, and each epoch's accuracy on tests."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    n, losses, accuracies = dist.get_world_size(), [], []
    ddp, sampler = DistributedDataParallel(build()), DistributedSampler(images)
    adam = torch.optim.Adam(ddp.parameters(), 1e-3)
    for epoch in range(epochs):
        ddp.train()
        sampler.set_epoch(epoch)
        for part in torch.tensor(list(sampler)).split(batch // n):
            adam.zero_grad()
            loss = F.cross_entropy(ddp(images[part]), labels[part])
            loss.backward()
            losses.append(loss.detach() / n)
            adam.step()
        ddp.eval()
        right = ddp.module(test_images).argmax(1) == test_labels
        accuracies.append(right.float().mean().item())
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    return losses.tolist(), accuracies

# %%
one, two = (launch(curve, n, args=(plain_model,), device="cpu")[0] for n in (1, 2))

def gaps(one, two):
    """The largest gap in the loss (nats) and in the accuracy (percentage points)."""
    loss, accuracy = (max(abs(a - b) for a, b in zip(*pair)) for pair in zip(one, two))
    return loss, 100 * accuracy

lab.measure("gap", gaps(one, two)[0])
words = "the largest gap: {:.2g} nats in the loss, {:.2g} percentage points in the accuracy"
print(words.format(*gaps(one, two)))
figures.histories(
    {"one process": one[0], "2 ranks": two[0]}, "Do one process and 2 ranks learn alike?",
    y="loss (nats)", x="step",
)

# %% [markdown]
# The gap that is left is rounding: two ranks add up in a different order from one. So keep the learning rate with which
# one process trains on the whole batch.
#
# BatchNorm spoils this. It takes mean and spread over the images that it *sees*; on a rank these are the rank's own.
# `SyncBatchNorm` takes both over the images of all ranks.

# %%
def normed_model():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(392, 10),
    )

def synced_model():
    return nn.SyncBatchNorm.convert_sync_batchnorm(normed_model())

normed = launch(curve, 1, args=(normed_model,), device="cpu")[0]
for n in (2, 4, 8):
    loss_gap, _ = gaps(normed, launch(curve, n, args=(normed_model,), device="cpu")[0])
    each = f"{batch // n:2} images each"
    print(f"BatchNorm, {n} ranks, {each}: the largest gap in the loss is {loss_gap:.2g} nats")
try:
    launch(curve, 2, args=(synced_model,), device="cpu")
    print("SyncBatchNorm ran on the CPU")
except RankFailed as failed:
    print("SyncBatchNorm:", str(failed).splitlines()[0])

# %% [markdown]
# The more ranks share a batch, the fewer images each BatchNorm sees. The running means that you evaluate with are rank 0's
# alone: before each forward pass DDP sends them to all.
#
# If the last line is an error, this PyTorch has SyncBatchNorm for GPUs only, and it was not run here. Call
# `convert_sync_batchnorm` before you wrap the model.

# %% [markdown]
# ## As a notebook, as a script
#
# Your function trains the ResNet too. `main` is what every rank runs: form the group, train, say how it went, end the
# group. (PyTorch warns if a group over nccl is left open.) Watch how little of it knows about ranks.
#
# Dropout should drop other places on each rank: after the wrap, call `torch.manual_seed(seed + rank)`. A `DataLoader` seeds
# its workers from that generator, so random crops then differ by rank, too.

# %%
def main(shape, count, batch, epochs):
    """What every rank runs."""
    nccl = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl" if nccl else "gloo")
    torch.manual_seed(10)  # repeatable: all ranks draw the same first weights
    torch.set_num_threads(1)  # more threads add up in another order, and round differently
    images, labels, *_ = tensors(data.load("fashion-mnist"), count, 1)
    model, rank, n = resnet(**shape), dist.get_rank(), dist.get_world_size()
    given = {"x": images, "y": labels}
    train_ddp(given, epochs, batch // n, 0.05, lambda _: model, F.cross_entropy)
    model.eval()
    x, y = images[rank::n].to(my_device()), labels[rank::n].to(my_device())
    loss = f"loss of its share {F.cross_entropy(model(x), y).item():.4f}"
    print(f"rank {rank} of {n}, process {os.getpid()}: {loss}", flush=True)
    dist.destroy_process_group()

# %%
run = launch(main, 2, args=(shape, images_count, batch, 1))

# %% [markdown]
# On a cluster there is no notebook. There is a file, and a program that starts it: **torchrun**. The next cell writes
# the file, from the very cells above: your function is in it.

# %%
imports = """\
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from worldsize import data
from worldsize.pytorch.models import flat, tensors
from worldsize.pytorch.resnet import resnet
"""

def cell_of(fn):
    return "".join(linecache.getlines(fn.__code__.co_filename))

folder = tempfile.TemporaryDirectory(prefix="worldsize-lab-10-")
script = Path(folder.name, "train.py")
call = f'if __name__ == "__main__":\n    main({shape}, {images_count}, {batch}, 1)\n'
cells = map(cell_of, (my_device, line, train_ddp, main))
script.write_text("\n\n".join([imports, *cells, call]))
print(f"{script.name}: {len(script.read_text().splitlines())} lines; it ends with\n…\n{call}")

# %% [markdown]
# `torchrun --standalone --nproc-per-node 2 train.py` means: this machine alone, two processes on it. It sets the five
# variables that you saw and starts the script twice. If one rank fails, it ends the others. `terminal` runs a command as
# your terminal would, with a time limit. It takes seconds, because each process starts Python and imports PyTorch anew.

# %%
def losses(text):
    return sorted(re.findall(r"loss of its share (\d+\.\d+)", text))

if run.state == "not yet":
    print(f"not yet: {run.not_yet}")
else:
    said = terminal(
        "torchrun", "--standalone", "--nproc-per-node", 2, script.name,
        folder=folder.name, timeout_s=90,
    )
    print("the same losses as in the notebook:", losses(said) == losses(run.log()))

# %% [markdown]
# Compare the lines with those from `launch`: different processes, the same training. That is no accident. Both set the
# same environment, and the ranks do the rest.
#
# Older scripts are started by `python -m torch.distributed.launch`, which is deprecated. It hands the script an
# *argument* with the local rank. Here is such a script, as many articles show it.

# %%
old = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
local = parser.parse_args().local_rank
print("local rank", local, flush=True)
"""
Path(folder.name, "old.py").write_text(old)
starts = "-m", "torch.distributed.launch", "--nproc-per-node", 2
print("$ python", *starts, "old.py", flush=True)
try:
    with redirect_stdout(StringIO()):  # most of what it prints is the starter's own traceback
        terminal("python", *starts, "old.py", folder=folder.name)
except RuntimeError as failed:
    print(*[said for said in failed.output.splitlines() if "error:" in said], sep="\n")

# %% [markdown]
# The launcher passes `--local-rank`; the script takes `--local_rank`. PyTorch 2.0 changed that one character, as the
# documentation of `torch.distributed.launch` says. So write scripts that need no argument: the environment holds the
# local rank too, and `torchrun` puts it nowhere else.

# %%
mended = 'import os\nlocal = int(os.environ["LOCAL_RANK"])\n'
mended += 'print("local rank", local, flush=True)\n'
Path(folder.name, "mended.py").write_text(mended)
two_ranks = "torchrun", "--standalone", "--nproc-per-node", 2
said = terminal(*two_ranks, "mended.py", folder=folder.name)

# %% [markdown]
# ## Two machines (optional)
#
# With two machines, or **nodes**, you give the command on each, with the node's number and the address of node 0. Here
# both nodes are this machine: two groups of processes, which meet at one port. (Many scripts name the meeting place by
# `--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT` instead.) The script also says which ranks would save a file if a
# script saved on `LOCAL_RANK == 0`.

# %%
lab.predict(
    "savers", "2 machines, 2 processes each: how many ranks save if a script saves on LOCAL_RANK == 0?", "ranks"
)

# %%
nodes = """\
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
rank, local, node = (os.environ[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK"))
saves = "would save" if local == "0" else "would not"
ranks = f"RANK {rank}, LOCAL_RANK {local}, {x.item():g} ranks together"
print(f"node {node}: {ranks}; {saves}", flush=True)
dist.destroy_process_group()
"""
Path(folder.name, "nodes.py").write_text(nodes)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = ["torchrun", "--nnodes", 2, "--nproc-per-node", 2]
command += ["--master-addr", "127.0.0.1", "--master-port", port]

# %%
with ThreadPoolExecutor() as pool:
    both = [
        pool.submit(terminal, *command, "--node-rank", k, "nodes.py", folder=folder.name)
        for k in (0, 1)
    ]
said = "".join(node.result() for node in both)
lab.measure("savers", said.count("would save"))
print("ranks that would save:", said.count("would save"))

# %% [markdown]
# Each machine has a local rank 0. If both machines see one disk, two ranks would write to one file. So save on
# `RANK == 0`, or on `LOCAL_RANK == 0` only where every machine has a disk of its own.

# %% [markdown]
# ## An exact evaluation
#
# After training you want the accuracy on the test images. All ranks can help: each takes a share, and the numbers of
# right answers are added up. But the sampler *pads*: some images are judged twice, and count twice.

# %%
lab.predict("padded", "5 test images, only image 0 is judged right. What accuracy do 4 ranks find, padding counted?", "%")

# %%
def padded_accuracy(share, count):
    """As many scripts do it: the mean over everything that was dealt out."""
    right = share["predicted"] == share["labels"]
    totals = torch.tensor([right.sum(), len(right)], dtype=torch.float64)
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()

def evaluate(accuracy, predicted, labels, counts):
    """The accuracy on the first `count` images, for each of counts."""
    dist.init_process_group("gloo")
    found = []
    for count in counts:
        mine = list(DistributedSampler(range(count), shuffle=False))
        found.append(accuracy({"predicted": predicted[mine], "labels": labels[mine]}, count))
    return found

# %%
one_right = torch.tensor([1, 0, 0, 0, 0]), torch.ones(5, dtype=torch.long)
found = launch(evaluate, 4, args=(padded_accuracy, *one_right, [5]), device="cpu")[0][0]
lab.measure("padded", 100 * found)
print(f"exact: 1 of 5, {1 / 5:.1%}; with padding {found:.1%}")

# %% [markdown]
# Unshuffled, rank r is dealt the examples r, r + n, r + 2n, … in this order; the padding comes last. So each rank can work
# out which of its own are padding. Then add up over the ranks, and divide once.
#
# <details><summary>Hint 1</summary>The k-th of this rank's examples was number k n + r of those dealt. From
# <code>count</code> on it is padding.</details>
# <details><summary>Hint 2</summary>The ranks' accuracies must not be averaged: a rank may have fewer examples than
# others, or none.</details>

# %% tags=["exercise:exact_accuracy"]
# Exercise 10.3: exact in spite of padding
def exact_accuracy(share, count):
    """The fraction of `count` examples predicted right, each counted once; the same number on
    every rank.

    share holds this rank's "predicted" and "labels", as DistributedSampler(shuffle=False) deals
    them. Leave it as it is.
    """
    ### BEGIN SOLUTION
    places = torch.arange(len(share["labels"])) * dist.get_world_size() + dist.get_rank()
    own = places < count
    right = (share["predicted"] == share["labels"]) & own
    totals = torch.stack([right.sum(), own.sum()]).double()
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
    ### END SOLUTION

# %% tags=["check:exact_accuracy"] points=1.5
check.exact_accuracy(exact_accuracy)

# %% [markdown]
# How far off is the padded accuracy? Train a small model, take the first test images, a few and then more, and
# compare with what one process finds.

# %%
net = mlp([784, 10], seed=0)
for _ in range(20):
    gradients(net, images.flatten(1), labels)
    for p in net.parameters():
        p.data -= 0.01 * p.grad
predicted = net(test_images.flatten(1)).argmax(dim=1)
counts = list(range(1, 40))
truth = [(predicted[:c] == test_labels[:c]).double().mean().item() for c in counts]

# %% tags=["cover"]
errors = {}
for name, accuracy in (("padding counted", padded_accuracy), ("yours", exact_accuracy)):
    run = launch(evaluate, 4, args=(accuracy, predicted, test_labels, counts), device="cpu")
    done = run.state == "done"
    errors[name] = [100 * (a - t) for a, t in zip(run[0], truth)] if done else None
figures.histories(
    errors, "How far off is an accuracy that counts padding?", y="error (percentage points)",
    x="test-set size", errors=True,
)

# %% [markdown]
# With $n$ ranks and $c$ images at most $n-1$ are dealt twice, so the error is at most $\frac{n-1}{c+n-1}$: small for many
# images, but it can be there whenever $n$ does not divide $c$. Does it change with the number of ranks? Here are the same
# few images, dealt to more and more ranks.

# %%
few = next((c for c in range(9, 40) if 0 < truth[c - 1] < 1), 9)
for n in (1, 2, 4, 8, 16):
    dealt = [k % few for k in range(-(-few // n) * n)]
    share = (predicted == test_labels)[dealt].double().mean().item()
    print(f"{n:2} {'ranks' if n > 1 else 'rank '}: {len(dealt)} predictions of {few} images,",
          f"accuracy {share:.1%} with padding counted, {truth[few - 1]:.1%} without")

# %% [markdown]
# (Where there is padding and the accuracy is exact, it is so by chance.) Where two runs count padding, with different
# numbers of ranks, their accuracies cannot be compared. In *training* the
# order is new in every epoch, so the padding falls on other examples each time, and no example counts double for long.

# %% [markdown]
# ## Save once, load everywhere, go on
#
# All ranks hold the same weights, so one file is enough: **rank 0 saves**. If every rank wrote to the same path, they
# would write into each other's file. Afterwards all load that file. But rank 1 may come to `load` while rank 0 is still
# writing: so all wait at a **barrier** in between. And to resume exactly, a checkpoint needs more than the model.

# %% [markdown]
# You write the order of events; the actions are handed in. `train_epoch(model, optimizer, epoch)` takes the two states
# and returns the states after it. `save(checkpoint)`, `load()` and `barrier()` do what they say; `load()` returns None
# while there is no file. All ranks train together, and all come to each barrier. A barrier must lie between a save and the
# next load.
#
# <details><summary>Hint</summary>Begin with what <code>load()</code> gives, or with epoch 0 and the states that were
# passed. After each epoch rank 0 saves; then comes the barrier, for all ranks, so outside the
# <code>if</code>.</details>

# %% tags=["exercise:train_resumable"]
# Exercise 10.4: save, load, resume
def train_resumable(rank, epochs, model, optimizer, train_epoch, save, load, barrier):
    """Trains until `epochs` epochs are done, from the file if there is one; returns what load()
    gives at the end.

    A checkpoint is {"epoch": how many are done, "model": …, "optimizer": …}; one is saved after
    every epoch.
    """
    ### BEGIN SOLUTION
    at = load() or {"epoch": 0, "model": model, "optimizer": optimizer}
    for epoch in range(at["epoch"], epochs):
        model, optimizer = train_epoch(at["model"], at["optimizer"], epoch)
        at = {"epoch": epoch + 1, "model": model, "optimizer": optimizer}
        if rank == 0:
            save(at)
        barrier()
    return load()
    ### END SOLUTION

# %% tags=["check:train_resumable"] points=1.5
check.train_resumable(train_resumable)

# %% [markdown]
# Now with a real training. Its optimizer has momentum: a memory of earlier gradients. `dies_at` makes rank 1 fail in
# the middle of an epoch.

# %%
def resumable(path, epochs, dies_at=None):
    dist.init_process_group("gloo")
    rank, ddp = dist.get_rank(), DistributedDataParallel(small_cnn())
    inside, momentum = ddp.module, torch.optim.SGD(ddp.parameters(), 0.05, momentum=0.9)

    def train_epoch(model, optimizer, number):
        inside.load_state_dict(model)
        momentum.load_state_dict(optimizer)
        mine = my_part(number)
        for k, part in enumerate(mine.split(32)):
            if (rank, number, k) == (1, dies_at, 1):
                raise OSError("this rank's machine has gone")
            gradients(ddp, images[part], labels[part])
            momentum.step()
        return inside.state_dict(), momentum.state_dict()

    def save(checkpoint):
        torch.save(checkpoint, path)

    def load():
        return torch.load(path) if path.exists() else None

    states = inside.state_dict(), momentum.state_dict()
    return train_resumable(rank, epochs, *states, train_epoch, save, load, dist.barrier)

def my_part(number):
    sampler = DistributedSampler(images)
    sampler.set_epoch(number)
    return torch.tensor(list(sampler))

# %% [markdown]
# Three trainings: one undisturbed; one that loses a rank in its third epoch; and a new start of that one, in new
# processes whose first weights are different random numbers. Does the third end with the weights of the first?

# %%
whole, broken = Path(folder.name, "whole.pt"), Path(folder.name, "broken.pt")
for path in (whole, broken):
    path.unlink(missing_ok=True)  # of an earlier run of this cell
undisturbed = launch(resumable, 2, args=(whole, epochs), device="cpu", seed=1)
try:
    launch(resumable, 2, args=(broken, epochs, 2), device="cpu", seed=1)
except RankFailed as failed:
    print(str(failed).splitlines()[0])
resumed = launch(resumable, 2, args=(broken, epochs), device="cpu", seed=2)

# %%
if resumed.state == "done":
    pairs = []
    for r in range(2):
        pairs += [(a, resumed[r]["model"][k]) for k, a in undisturbed[r]["model"].items()]
    difference = max((a - b).abs().max().item() for a, b in pairs)
    files = sorted(p.name for p in Path(folder.name).glob("*.pt"))
    print(f"the largest difference is {difference}; files:", *files)
    print("a weight in the file is called", next(iter(resumed[0]["model"])))
else:
    print(f"not yet: {resumed.not_yet}")

# %% [markdown]
# A difference of 0 means: the new start went on as if nothing had happened. The file holds the names of `ddp.module`'s
# weights. A wrapped model would call them `module.0.weight`, and a plain model refuses these names. A training that draws
# random numbers as it goes, for dropout, say, must also save the states of its generators. (If the machine dies
# *while* rank 0 writes, the file is cut off. Lab 15 cures that.)

# %% [markdown]
# Two mistakes are common: saving the wrapped model's *states*, and saving the whole *module*. What does a script
# without DDP make of each?

# %%
def saves_the_wrapper(states, module):
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.Linear(2, 1))
    torch.save(ddp.state_dict(), states)
    torch.save(ddp, module)

states, module = Path(folder.name, "states.pkl"), Path(folder.name, "module.pkl")
launch(saves_the_wrapper, 1, args=(states, module), device="cpu")
print("names in the file of states:", *torch.load(states))
for name, load in (
    ("states:", lambda: nn.Linear(2, 1).load_state_dict(torch.load(states))),
    ("module:", lambda: torch.load(module)),
    ("module, weights_only=False:", lambda: torch.load(module, weights_only=False)),
):
    try:
        load()
        print(name, "loads")
    except Exception as error:
        print(name, f"{type(error).__name__}:", textwrap.shorten(str(error), 84))

# %% [markdown]
# Either every name begins with `module.`, or the file needs a process group and DDP itself. Save
# `ddp.module.state_dict()`. And where ranks have GPUs, load it with `map_location=my_device()`: otherwise each of them loads the
# tensors onto the card that they were saved from, card 0. Where a file has such names already,
# `torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(states, "module.")` takes the prefix away.

# %% [markdown]
# ## DataParallel against DDP
#
# Now both in one run, on the same model and the same batch. First over links of 20 MB/s: there the messages decide.
# The weights are $W$ bytes and a link carries $B$ bytes a second. DataParallel sends the weights to $n-1$ cards and gets
# the gradients back. Card 0 sends or receives one copy after another: $2(n-1)\frac WB$ seconds. DDP's ring takes
# $\frac{2(n-1)}{n}\frac WB$.

# %% [markdown]
# The time of a step varies, so all take several steps, in turns. DataParallel needs one process; meanwhile the other ranks
# wait at a barrier. For that `new_group` makes a second process group of the same ranks, over gloo, where waiting ranks sleep.

# %%
small = {**shape, "depth": 18, "width": 16}
slow = Link("20 MB/s", "100 us")

# %%
lab.predict(
    "ratio", f"{cards} cards, slow links, whole steps: divide DataParallel's seconds by DDP's. What do you get?", "times"
)

# %%
def race(fabric, shape, link=None):
    """The seconds of each one's steps, in turns; the other ranks sleep until DDP's turn."""
    nccl = torch.cuda.device_count() >= fabric.world_size
    dist.init_process_group("nccl" if nccl else "gloo")
    others, n, racers = dist.new_group(backend="gloo"), fabric.world_size, {}
    if fabric.rank == 0:
        racers["one device"] = resnet(**shape).to("cuda:0" if nccl else "cpu"), slice(batch)
        racers["DataParallel"] = data_parallel(resnet(**shape), Cards(n, link))[0], slice(batch)
    ddp = DistributedDataParallel(resnet(**shape).to(my_device()))
    if link:
        ddp.register_comm_hook(Background(fabric), over_the_fabric)

    seconds = {name: [] for name in (*racers, "DDP")}
    for _ in range(steps + 1):  # the first ones warm up
        for name, (model, mine) in racers.items():
            seconds[name].append(timed(model, mine))
        dist.barrier(group=others)
        seconds["DDP"].append(timed(ddp, slice(fabric.rank, batch, n)))
        dist.barrier(group=others)
    return {name: took[1:] for name, took in seconds.items()}

# %%
def timed(model, mine):
    """The seconds of one step on these examples."""
    device = next(model.parameters()).device
    x, y = images[mine].to(device), labels[mine].to(device)
    start_s = time.monotonic()
    gradients(model, x, y)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - start_s

# %%
over_links = launch(race, cards, args=(small, slow), link=slow, device="cpu")[0]
bare = launch(race, cards, args=(shape if gpus >= cards else small,))[0]
small_bytes = sum(p.nbytes for p in resnet(**small).parameters())
messages_s = {
    "DataParallel": 2 * (cards - 1) * slow.seconds(small_bytes),
    "DDP": cost.ring_all_reduce(cards, small_bytes, slow),
}
here = "this machine's GPUs" if gpus >= cards else "this machine: threads and processes"
bars = {"over links of 20 MB/s": [], here: []}
for (group, row), found, least_s in zip(bars.items(), (over_links, bare), (messages_s, {})):
    for name, took in found.items():
        least = least_s.get(name)
        row.append(figures.Timing(name, median(took), least, group=group, repeats_s=took))
linked, local = map(figures.first, bars.values())
figures.race(
    [bar for group in bars.values() for bar in group],
    figures.answered(
        "Which is the fastest: one device, DataParallel or DDP?",
        f"over links {linked}; here {local}",
    ),
    outlines="messages alone",
)

# %%
for group, found in (("over links of 20 MB/s", over_links), (here, bare)):
    for name in ("DataParallel", "DDP"):
        times = median(found[name]) / median(found["one device"])
        print(f"{group}: {name} takes {times:.1f} times as long as one device")
ratio = median(over_links["DataParallel"]) / median(over_links["DDP"])
lab.measure("ratio", ratio)
alone = messages_s["DataParallel"] / messages_s["DDP"]
print(f"over links, DataParallel beside DDP: messages alone {alone:.1f} times,",
      f"whole steps {ratio:.1f} times")
for name, alone_s in messages_s.items():
    print(f"{name}: {median(over_links[name]) - alone_s:.2f} s of a step are no messages")
print(f"{cards} cards, {gpus} GPUs, {os.cpu_count()} cores")

# %% [markdown]
# The outlines are the messages alone; computing comes on top. Over slow links a ring should win, and by more with every
# card. Both also compute, which brings the ratio of whole steps closer to 1 than that of the messages alone. But without
# GPUs the emulated cards are threads, which share one Python and compute more slowly than processes: that makes the ratio
# larger. Which weighs more in the lines above?
#
# <details><summary>Compare</summary>The computing that both do, if the ratio of whole steps is below that of the messages
# alone; the shared Python, if it is above.</details>
#
# Without slow links messages cost little, and where there are no GPUs all wait for the same cores. PyTorch's own advice is
# DDP, even on one machine.

# %% [markdown]
# Does it pay at all? Look at the bar of *one device*: the same batch, no cards, no messages. Cards help by what they
# compute at the same time. If they share cores, there is as much to compute as before, in smaller pieces, and the
# messages come on top. With a GPU for each rank the computing should be divided by $n$, and only the messages be left to pay.
# Without such GPUs that was not run here.

# %% [markdown]
# **In one sentence:** what is the ratio of the two formulas, DataParallel's to DDP's?
#
# <details><summary>Compare</summary>2 (n − 1) against 2 (n − 1)/n: DDP's messages take an n-th of the time.</details>

# %% [markdown]
# ## Two lines of long scripts (optional)
#
# Scripts for large models have two more things. Inside `with ddp.no_sync():` gradients add up in `.grad` and nothing is sent, so
# that several small batches make one step. Inside `torch.autocast` matrix products run in bfloat16, with 16 bits a number. The
# weights stay float32.

# %%
lab.predict(
    "autocast", "4 small batches a step. Divide the bytes of gradients that travel with neither of the two by those with "
    "both, no_sync for all but the last batch. What do you get?", "times",
)

# %%
def accumulated(quiet, cast, parts=4):
    """One step of DDP on `parts` small batches: the dtype of the outputs, and the gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(mlp([784, 512, 10], seed=0))
    # DDP's own sum, called from Python, where the record sees it
    ddp.register_comm_hook(None, allreduce_hook)
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    small = list(zip(images[mine].flatten(1).chunk(parts), labels[mine].chunk(parts)))
    for k, (x, y) in enumerate(small):
        silent = ddp.no_sync() if quiet and k < parts - 1 else nullcontext()
        with silent, torch.autocast("cpu", torch.bfloat16, enabled=cast):
            out = ddp(x)
            (F.cross_entropy(out, y) / parts).backward()
    return out.dtype, flat([p.grad for p in ddp.parameters()])

# %%
asked = {"neither": (False, False), "no_sync": (True, False)}
asked["no_sync and autocast"] = True, True
found, travelled = {}, {}
for name, given in asked.items():
    run = found[name] = launch(accumulated, 2, args=given, device="cpu")
    sums = [c for c in run.trace.collectives if c.rank == 0 and c.op == "all_reduce"]
    travelled[name] = sum(c.size_bytes for c in sums)
exact = found["neither"][0][1]
for name, run in found.items():
    dtype, gradients_now = run[0]
    off = float((gradients_now - exact).norm() / exact.norm())
    print(f"{name}: outputs in {dtype}, gradients in {gradients_now.dtype},",
          f"{travelled[name] / 1e6:.1f} MB of them travel; {off:.1g} off the first")
lab.measure("autocast", travelled["neither"] / travelled["no_sync and autocast"])

# %% [markdown]
# **In one sentence:** autocast computes in 16 bits; why do the gradients still travel in 32?
#
# <details><summary>Compare</summary>A gradient has its weight's dtype, and the weights are float32. One way to
# send fewer bytes is a communication hook, as in Lab 14; another is to hold the weights in bfloat16.</details>
#
# Lab 11 writes `no_sync` by hand, and says what must be inside it.

# %% [markdown]
# DDP does one more thing: it sends while backward still computes. In Lab 11 you build that, and the buckets that
# gradients travel in.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Li and others, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*
# ([arXiv:2006.15704](https://arxiv.org/abs/2006.15704), VLDB 2020). He and others, *Deep Residual Learning for Image
# Recognition* ([arXiv:1512.03385](https://arxiv.org/abs/1512.03385), CVPR 2016). Paszke and others, *PyTorch*
# ([arXiv:1912.01703](https://arxiv.org/abs/1912.01703), NeurIPS 2019). Goyal and others, *Accurate, Large Minibatch SGD*
# ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677), 2017): shuffling once an epoch, and what goes wrong.
