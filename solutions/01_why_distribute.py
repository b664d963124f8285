# %% [markdown]
# # Lab 01. Why distribute: throughput, speedup, efficiency, and the model's own metrics
#
# **After this lab you are able to** time a training step correctly, on a GPU too, say what part of a device's peak a step
# reaches, how much faster n workers are and why not n times, when averaging outweighs computing, tell a fast run from one
# that learns, compute a metric exactly over ranks, and count the bytes that training takes.
#
# **Minutes:** 185 (two sittings: 75 up to “Your decision”, then 110) · **Points:** 6 · **Prerequisites:** Lab 00, and training a
# small network in PyTorch on one device.

# %% [markdown]
# ![Declared compute, and a job that grows with its workers: are they all of use? Yes: 16 workers do …](../labs/covers/01.png)

# %%
# Set-up: the tools of this lab
import math
import queue
import statistics
import threading
import time
from functools import partial
from itertools import pairwise

from worldsize.notebook import *

import torch
import torch.distributed as dist
from torch import nn

from worldsize.fabric import collectives
from worldsize.formulas import cost, scaling
from worldsize.machine import usable_cores
from worldsize.pytorch import models

# %% tags=["parameters"]
batch = 256
rounds = 30
job_s = 1.0
share_s = 0.1
most_workers = 16
link_speed = "10 MB/s"
link_latency = "1 ms"
allowed = 0.2
most_images = 1024
team = 8
target = 0.75
alone_steps = 300
team_steps = 120

# %%
lab, check = open_lab("01")

# %% [markdown]
# ## One worker
#
# A *worker* is one process that trains on one core: a rank of lab 00. Ours trains a small convolutional network on
# pictures of clothes (Fashion-MNIST): 28 × 28 grey pixels, ten classes. Here is one training step, as you know it. The
# update is written out: plain gradient descent.

# %%
clothes = data.load("fashion-mnist")
images, labels, test_images, test_labels = models.tensors(clothes, train=4096, test=1000)

def gradients(model, images, labels):
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    return [p.grad for p in model.parameters()]

def update(model, rate=0.1):
    with torch.no_grad():
        for p in model.parameters():
            p -= rate * p.grad

# %% [markdown]
# How long does a step take? Let one worker do ten of them, of 32 images each, and read a clock before and after each.
# Before you run it: will the ten numbers be alike?

# %%
lab.predict("first", "How many times as long as a usual step does the first one take?", "times")

# %%
def ten_steps():
    torch.set_num_threads(1)
    model, seconds = models.small_cnn(seed=0), []
    for _ in range(10):
        before = time.perf_counter()
        gradients(model, images[:32], labels[:32])
        update(model)
        seconds.append(time.perf_counter() - before)
    return seconds

run = launch(ten_steps, 1, device="cpu")
lab.measure("first", run[0][0] / statistics.median(run[0]))
print("ms a step:", ", ".join(f"{1000 * s:.1f}" for s in run[0]))

# %% [markdown]
# The first step pays for things that happen once: memory is fetched from the system, the fastest routine for these
# shapes is looked up, threads start. So the first steps are a **warm-up** and do not count. And now and then a step is
# slow because the machine did something else. The *mean* of ten would include that; the **median**, the one in the
# middle, does not.

# %% [markdown]
# ## A clock that is read too early
#
# On a CPU a PyTorch call returns when its work is done. On a GPU it does not: the call puts a *kernel*, one piece of
# work, into the GPU's queue and returns at once. Python runs ahead of the device, on purpose: the queue is never empty.
# A clock that is read then knows nothing of the work.

# %% [markdown]
# To show this without a GPU, here is a **stand-in**: a thread that works through a queue of kernels, one after another. It
# computes on a core of this machine, and is asynchronous like a GPU: its `launch` returns at once, its `synchronize` when
# the queue is empty, like `torch.cuda.synchronize`.

# %%
# Helper: a stand-in for a GPU, a thread with a queue of kernels
class ThreadedDevice:
    """Runs kernels one after another in a thread. `launch` queues one; `synchronize` waits until all are done."""

    def __init__(self):
        self._kernels = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def launch(self, kernel):
        self._kernels.put(kernel)

    def synchronize(self):
        self._kernels.join()

    def _work(self):
        while True:
            kernel = self._kernels.get()
            try:
                kernel()
            finally:
                self._kernels.task_done()

# %%
lab.predict("launched", "Without synchronize: what part of a matrix product's time will a timer see?", "%")

# %% [markdown]
# One product of two matrices, and the same clock read at three moments: before the launch, after it, and after
# `synchronize`.

# %%
def three_readings(size=1024):
    torch.set_num_threads(1)
    device, x = ThreadedDevice(), torch.randn(size, size)
    synchronize = device.synchronize
    x @ x  # warm-up
    before = time.perf_counter()
    device.launch(lambda: x @ x)
    launched = time.perf_counter()
    synchronize()
    return launched - before, time.perf_counter() - before

launched_s, finished_s = launch(three_readings, 1, device="cpu")[0]
lab.measure("launched", 100 * launched_s / finished_s)
print(f"launched after {1e3 * launched_s:.3f} ms, finished after {1e3 * finished_s:.3f} ms")

# %% [markdown]
# ## Your timer
#
# Write it so that it can time anything, anywhere: it is given the step, the clock and `synchronize`. On a GPU the last
# is `torch.cuda.synchronize`; on a CPU it is a function that does nothing. Think of both ends: what must be finished
# when a step's time begins, and what when it ends?
#
# <details><summary>Hint</summary>A list of seconds, and <code>statistics.median</code>. The warm-up calls leave work in
# the queue, too.</details>

# %% tags=["exercise:seconds_per_step"]
# Exercise 1.1: a timer of finished work
def seconds_per_step(step, clock, synchronize, warm_up, steps):
    """Call step() warm_up times, then steps times more; return the median seconds of finished
    work over the latter.

    The median of an even number is the mean of the two in the middle. clock() returns seconds,
    from any start. step() may return before its work is done; synchronize() returns when all
    is done.
    """
    ### BEGIN SOLUTION
    for _ in range(warm_up):
        step()
    synchronize()
    seconds = []
    for _ in range(steps):
        before = clock()
        step()
        synchronize()
        seconds.append(clock() - before)
    return statistics.median(seconds)
    ### END SOLUTION

# %% tags=["check:seconds_per_step"] points=1
check.seconds_per_step(seconds_per_step)

# %% [markdown]
# The check ran your timer on a scripted device with a clock of its own, so a busy machine could not spoil the result. Now
# the stand-in, with larger and larger matrices: an n × n product takes $2n^3$ operations. Your timer runs once with the
# stand-in's `synchronize`, and once with a function that does nothing.

# %%
def nothing():
    """What synchronize is on a CPU: work is done when its call returns."""

def products(sizes):
    """Seconds of an n × n product on the stand-in, by size: without and with synchronize."""
    torch.set_num_threads(1)
    device = ThreadedDevice()

    def timed(size, synchronize):
        x = torch.randn(size, size)
        seconds = seconds_per_step(
            lambda: device.launch(lambda: x @ x), time.perf_counter, synchronize, 2, 5
        )
        device.synchronize()  # nothing left over for the next one
        return seconds

    return [(timed(size, nothing), timed(size, device.synchronize)) for size in sizes]

# %%
sizes = [128, 256, 512, 1024]
run = launch(products, 1, args=(sizes,), device="cpu")
early, finished = zip(*run[0]) if run.state == "done" else ([None] * len(sizes),) * 2

# %%
figures.curves(
    [
        figures.Curve("clock read too early", list(zip(sizes, early))),
        figures.Curve("after synchronize", list(zip(sizes, finished))),
    ],
    figures.answered(
        "Which of the two timers sees that the matrices grow?",
        figures.growing({"clock read too early": early, "after synchronize": finished}),
    ),
    x="n of an n × n product", y="seconds a product (s)", log=True, growth=True,
)

# %% [markdown]
# A timer that is wrong in this way flatters, and most where there is most work. Printing a loss, `.item()` and `.cpu()`
# synchronize too, since they need the number: then the wait is billed to whoever asks first. Where there is a CUDA
# device, the next cell repeats this on it; elsewhere it says that it measured nothing.

# %%
def on_cuda(size=4096):
    x = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    ways = {"too early": nothing, "synchronized": torch.cuda.synchronize}
    return {
        name: seconds_per_step(lambda: x @ x, time.perf_counter, wait, 3, 9)
        for name, wait in ways.items()
    }

if torch.cuda.is_available():
    for name, seconds in (launch(on_cuda, 1, device="cuda")[0] or {}).items():
        speed = f"{2 * 4096**3 / seconds / 1e12:,.0f} million million operations a second"
        print(f"{name}: {1e3 * seconds:.3f} ms, as if {speed}")
else:
    print("no CUDA device here: this cell has measured nothing")

# %% [markdown]
# ## How good is that?
#
# **Throughput** is work done in a second: samples a second here, tokens a second for a language model. It says which of
# two settings is faster, but not whether either is good. For that, count the work. A dense layer multiplies and adds
# once for each weight and example: **2 FLOPs** (floating-point operations) forward.

# %% [markdown]
# Backward costs about twice that: one product for the weights' gradient, one for the input's. The first layer's input is
# data and needs none. So a step of a multilayer perceptron, an MLP, takes $6\,w\,b$ FLOPs, for $w$ weights and $b$
# examples, less the first layer's $2\,w_1 b$. PyTorch can count too: does it agree?

# %%
from torch.utils.flop_counter import FlopCounterMode

widths = [784, 512, 512, 10]

def by_hand(widths, examples):
    """FLOPs of a step of dense layers; backward is twice forward, but for the first input."""
    forward = [2 * examples * i * o for i, o in pairwise(widths)]
    return 3 * sum(forward) - forward[0]

def counted(model, x):
    with FlopCounterMode(display=False) as counter:
        gradients(model, x, labels[: len(x)])
    return counter.get_total_flops()

flat_images = images.flatten(1)
by_count = counted(models.mlp(widths, seed=0), flat_images[:64])
print(f"MLP, 64 images: by hand {by_hand(widths, 64):,}, counted {by_count:,}")
cnn_flops = counted(models.small_cnn(seed=0), images[:64]) // 64
print(f"a step of one image: MLP {by_hand(widths, 1):,} FLOPs, CNN {cnn_flops:,}")

# %% [markdown]
# The **peak** is what the device does at best: on a GPU the data sheet gives it; here we take the fastest matrix product
# that your timer finds. **MFU**, model FLOPs utilization, is the step's FLOPs a second over the peak (Chowdhery and others,
# *PaLM*, 2022, appendix B).

# %%
lab.predict("utilized", "What MFU does the MLP reach with one image a step?", "%")

# %%
lab.predict("larger", f"MLP, steps of {batch} images instead of 1: how many times the images a second?", "times")

# %%
def utilization(sizes):
    """FLOP/s of the best matrix product, and each network's images a second by batch size."""
    torch.set_num_threads(1)

    def timed(step):
        return seconds_per_step(step, time.perf_counter, nothing, warm_up=3, steps=9)

    def images_per_s(model, x, size):
        def step():
            gradients(model, x[:size], labels[:size])
            update(model)

        return size / timed(step)

    squares = {n: torch.randn(n, n) for n in (256, 512, 1024)}
    peak = max(2 * n**3 / timed(partial(torch.matmul, x, x)) for n, x in squares.items())
    mlp, cnn = models.mlp(widths, seed=0), models.small_cnn(seed=0)
    return (
        peak,
        [images_per_s(mlp, flat_images, s) for s in sizes],
        [images_per_s(cnn, images, s) for s in sizes],
    )

# %%
sizes = [1, 4, 16, 64, batch]
run = launch(utilization, 1, args=(sizes,), device="cpu")
nobody = [None] * len(sizes)
peak, mlp_rate, cnn_rate = run[0] if run.state == "done" else (None, nobody, nobody)

def mfu(rates, flops):
    return [rate and 100 * rate * flops / peak for rate in rates]

# %%
mlp_mfu, cnn_mfu = mfu(mlp_rate, by_hand(widths, 1)), mfu(cnn_rate, cnn_flops)
lab.measure("utilized", mlp_mfu[0])
lab.measure("larger", mlp_rate[0] and mlp_rate[-1] / mlp_rate[0])
if peak:
    print(f"peak of one core: {peak / 1e9:.0f} GFLOP/s")
    print(f"{batch} images a step: MLP {mlp_rate[-1]:,.0f} images/s, CNN {cnn_rate[-1]:,.0f}")

# %%
mfus = {"MLP": mlp_mfu, "small CNN": cnn_mfu}
figures.curves(
    [figures.Curve(name, list(zip(sizes, mfu))) for name, mfu in mfus.items()],
    figures.answered(
        "Do more images a step bring a core nearer to its peak?",
        figures.growing(mfus, last="{:.3g} %".format),
    ),
    x="images a step", y="MFU (% of the peak)", log=True, growth=True,
)

# %% [markdown]
# With one image a dense layer reads every weight for one multiplication; with many it reads each weight once for them all.
# A convolution with few channels gives the core small products whatever the batch. (A point above 100 % says that this
# machine was busy when the peak was measured.)
#
# **In one sentence:** would you distribute either of the two yet?
#
# <details><summary>Compare</summary>Not the MLP with few images a step: where more images bring it nearer to the peak, one
# core has more to give, and that is cheaper than a second one. Where more images gain nothing, as with small products,
# other ways remain: products that fit the device better, or more devices.</details>

# %% [markdown]
# What do others reach? Published figures, relative to the data sheet's peak for dense 16-bit products:
#
# | who | MFU | source |
# | --- | --- | --- |
# | GPT-3, 175 billion weights, V100 | 21 % | PaLM, table 3 |
# | PaLM, 540 billion, 6,144 TPU v4 | 46 % | [arXiv:2204.02311](https://arxiv.org/abs/2204.02311), table 3 |
# | MegaScale, 175 billion, 12,288 GPUs | 55 % | [arXiv:2402.15627](https://arxiv.org/abs/2402.15627) |
# | Llama 3, 405 billion, up to 16,384 H100 | 38 to 43 % | [arXiv:2407.21783](https://arxiv.org/abs/2407.21783) |
#
# Look twice at what was counted. Megatron-LM's 52 % ([arXiv:2104.04473](https://arxiv.org/abs/2104.04473)) counts work that
# is done again to save memory: that is *hardware* utilization, HFU.

# %% [markdown]
# ## More workers on the same batch
#
# Now **data parallel** training, in its simplest form: n workers have the same model, each takes its n-th of the batch,
# and then all of them average their gradients. `dist.all_reduce` leaves the sum on every rank. Labs 04 and 06 look
# inside; here it is a tool. The batch stays the same, so this is **strong scaling**: the same work, more hands.

# %%
def training(fabric, n, count, group):
    """A step: each of n workers takes `count` images, and all average their gradients."""
    model = models.small_cnn(seed=0)
    mine = slice(fabric.rank * count, (fabric.rank + 1) * count)
    pictures, answers = (images[mine], labels[mine]) if fabric.rank < n else (None, None)

    def step():
        grads = gradients(model, pictures, answers)
        together = nn.utils.parameters_to_vector(grads)
        dist.all_reduce(together, group=group)
        nn.utils.vector_to_parameters(together / n, grads)
        update(model)

    return step

# %% [markdown]
# For fairness, all cases take turns in one launch, round after round. A *group* is the ranks of one case; the others wait
# at a *barrier*, which lets nobody pass before all are there. Your timer times one step a round. Other programs can only
# make a step slower, perhaps for many steps: so the best of all rounds counts. Every worker may use one thread, that is,
# one core.

# %%
# Helper: time teams of several sizes, in turns
def contest(fabric, make_step, cases, rounds):
    """The best seconds per step of each case (workers, work each); rank 0 is in all of them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {n: dist.new_group(list(range(n))) for n in sorted({n for n, _ in cases})}
    doing = [make_step(fabric, n, work, groups[n]) for n, work in cases]
    laps = [[] for _ in cases]
    for _ in range(rounds):
        for (n, _), step, row in zip(cases, doing, laps):
            dist.barrier()
            if fabric.rank < n:
                lap = torch.tensor(seconds_per_step(step, time.perf_counter, nothing, warm_up=0, steps=1))
                dist.all_reduce(lap, dist.ReduceOp.MAX, group=groups[n])  # the slowest rank counts
                row.append(lap.item())
    return [min(row, default=None) for row in laps]

def time_cases(make_step, cases, rounds):
    """Seconds per step of each case; None for each while the timer is not yet written."""
    most = max(n for n, _ in cases)
    print(f"{len(cases)} cases on up to {most} ranks, {rounds} rounds …", flush=True)
    run = launch(contest, most, args=(make_step, cases, rounds), device="cpu")
    return run[0] if run.state == "done" else [None] * len(cases)

# %%
cores = max(1, int(usable_cores()))
worlds = [n for n in (1, 2, 4, 8, 16, 32) if n <= 4 * cores]
tried = f"{worlds} workers, {batch} images a step together"
print(f"this machine lets us use {cores} cores; we try {tried}")

# %%
lab.predict("cores", f"How many times as fast as one worker are {cores}?", "times")

# %%
lab.predict("beyond", f"How many times as fast as one worker are {worlds[-1]} on these {cores} cores?", "times")

# %%
strong = time_cases(training, [(n, batch // n) for n in worlds], rounds)

# %% [markdown]
# This gives three numbers. **Throughput** again. **Speedup**: the seconds of one worker over the seconds of n.
# **Efficiency**: the speedup over n, the part of the workers you paid for that is put to use.

# %%
def ratio(one, other):
    return one / other if one and other else None

speedups = [ratio(strong[0], s) for s in strong]
head = "workers  ms a step  images/s  speedup  efficiency"
print(head if strong[0] else "not yet: the timer")
for n, seconds, gain in zip(worlds, strong, speedups):
    if seconds:
        part = scaling.efficiency(n, gain)
        row = f"{n:7}  {1000 * seconds:9.1f}  {batch / seconds:8,.0f}"
        print(f"{row}  {gain:7.2f}  {part:10.0%}")
inside = [n for n in worlds if n <= cores]
lab.measure("cores", speedups[len(inside) - 1])
lab.measure("beyond", speedups[-1])

# %%
figures.curves(
    [
        figures.Curve("measured", list(zip(worlds, speedups))),
        figures.Curve("n workers, n times as fast", predicted=[(n, n) for n in worlds]),
        figures.Curve(
            f"… as far as there are {cores} cores",
            predicted=[(n, min(n, cores)) for n in worlds],
        ),
    ],
    f"A small CNN on {cores} cores: how many times as fast are more workers?",
    x="workers", y="speedup",
)

# %% [markdown]
# Beyond the number of cores, workers share them: each gets a smaller part of a second, and averaging takes a little
# longer with each. (If other programs run on this machine, points may lie anywhere; run the cells again.) What would
# happen with a core for every worker?

# %% [markdown]
# ## Workers with a core of their own
#
# We have no more cores. So from here on a worker's computing is **declared**: `fabric.compute(0.1)` takes 0.1 s and
# uses no core: it sleeps. The messages stay real. One twentieth of our job is **serial**: rank 0 alone does it, say
# writing the log and saving the weights, while the others wait. The rest is shared evenly.

# %%
serial_part = 0.05

def declared(fabric, n, work_s, group):
    """A declared step: each does `work_s`, they average, rank 0 alone does the serial part."""
    gradient = nn.utils.parameters_to_vector(models.small_cnn().parameters()).detach()

    def step():
        fabric.compute(work_s)
        dist.all_reduce(gradient, group=group)
        if fabric.rank == 0:
            fabric.compute(serial_part * job_s)
        dist.barrier(group)

    return step

# %%
def two_steps(fabric):
    dist.init_process_group("gloo")
    step = declared(fabric, 4, (1 - serial_part) * job_s / 4, dist.group.WORLD)
    step()
    step()

figures.timeline(launch(two_steps, 4, device="cpu"))

# %% [markdown]
# Two steps of four workers. The long bars are shared work, the short ones on rank 0 the serial part, in which three
# workers are paid to wait. As workers are added, the shared part shrinks. The serial part does not. (A profiler's view of a
# step is in lab 11, in the section “What a profiler sees (optional)”.)

# %%
lab.predict("cap", "5 % is serial. How many times as fast can a million workers be?", "times")

# %%
lab.measure("cap", scaling.amdahl(1_000_000, serial_part))

def cap(serial=serial_part):
    workers, limit = [2**k for k in range(11)], scaling.amdahl_limit(serial)
    return figures.curves(
        [
            figures.Curve(
                "Amdahl's law", predicted=[(n, scaling.amdahl(n, serial)) for n in workers]
            ),
            figures.Curve("its limit", predicted=[(n, limit) for n in workers], limit=True),
        ],
        f"{100 * serial:g} % is serial: how many times as fast can it get?", x="workers",
        y="speedup", log=True,
    )

knobs(cap, serial=[0.001, 0.01, serial_part, 0.2, 0.5])

# %% [markdown]
# That is **Amdahl's law** (1967). Say one worker needs $t$ seconds for the job, and nobody can share $s$ of them. Then
# $n$ workers need $s+\frac{t-s}{n}$. With the serial fraction $f=s/t$ the speedup is
# $S=1\big/\left(f+\frac{1-f}{n}\right)$. However large $n$ is, $S$ stays under $1/f$. In JupyterLab you can choose other
# values of f above the picture.

# %% [markdown]
# ## The same job, or a larger one
#
# By Amdahl's law more workers soon stop helping. **Gustafson** (1988) asked whether we want the same job at all. With
# more workers people take *more data*: every worker keeps its full share, and the job grows. That is **weak scaling**.
# The *scaled* speedup says what it is worth: the seconds that **one** worker would need for the whole grown job, over the
# seconds of n.

# %% [markdown]
# The two laws do not quarrel: they are one equation. Both have a job that takes one worker $t$ and n workers
# $s+\frac{t-s}{n}$. Amdahl keeps $t$; Gustafson lets $t$ grow with n, and calls the *n workers'* time 1: with
# $g=s/(\text{their seconds})$ the scaled speedup is $g+(1-g)\,n$, which has no cap.

# %% [markdown]
# ## Your fit
#
# On a real machine nobody tells you $s$. You measure jobs, the same or different ones, on one worker and on many, and look
# for one $s$ for all of them. Begin with one measurement: solve the equation for $s$. Then decide how every measurement has
# its say (a mean will do; least squares is finer), and what n = 1 can tell. Noise can push the result below 0 or above a
# whole job: keep it in between.
#
# <details><summary>Hint</summary>Bring it to the form y = s x, with y = many − one/n. The best s by least squares
# is the sum of all xy over the sum of all xx. In these sums n = 1 does no harm.</details>

# %% tags=["exercise:serial_seconds"]
# Exercise 1.2: the seconds that nobody shares
def serial_seconds(workers, one_s, many_s):
    """The serial seconds s that explain all measurements best, from 0 to the shortest of one_s.

    one_s[k]: one worker's seconds for a job; many_s[k]: the seconds of workers[k] workers for
    it. Jobs may differ; workers may hold any number, 1 too, once or more often, in any order.
    Every measurement counts, as it is: only the result is kept in that range. Within a
    thousandth of the shortest of one_s is close enough. The lists stay as they are.
    """
    ### BEGIN SOLUTION
    xy = xx = 0.0
    for n, one, many in zip(workers, one_s, many_s):
        x, y = 1 - 1 / n, many - one / n
        xy += x * y
        xx += x * x
    return min(min(one_s), max(0.0, xy / xx))
    ### END SOLUTION

# %% tags=["check:serial_seconds"] points=1.5
check.serial_seconds(serial_seconds)

# %% [markdown]
# Now the declared job on real ranks; at first it stays the same. We fit $s$ to the runs of up to 8 workers. Does the fit
# predict 16, which it has not seen?

# %%
many = [n for n in (1, 2, 4, 8, 16, 32) if n <= most_workers]
asks = f"5 % is serial. How many times as fast are {many[-1]} workers?"
lab.predict("sixteen", asks, "times")

# %%
shares = [(n, (1 - serial_part) * job_s / n) for n in many]
fixed = time_cases(declared, shares, rounds=3)
gains = [ratio(fixed[0], s) for s in fixed]
lab.measure("sixteen", gains[-1])

# %%
# Helper: what a function of yours says, or None
def said(fn, *args):
    """What your function returns; None while it is not yet written, or while what it needs is not measured."""
    if any(value is None or (isinstance(value, list) and None in value) for value in args):
        return None
    try:
        return fn(*args)
    except NotYet:
        return None

def law(formula, fraction, workers):
    return [] if fraction is None else [(n, formula(n, fraction)) for n in workers]

# %%
serial_s = said(serial_seconds, many[:-1], fixed[:1] * (len(many) - 1), fixed[:-1])
f = ratio(serial_s, fixed[0])
if f:
    declared_s, limit = serial_part * job_s, scaling.amdahl_limit(f)
    print(f"fitted: {1000 * serial_s:.0f} ms are serial, declared {1000 * declared_s:.0f} ms")
    print(f"a fraction of {f:.1%}: no more than {limit:.1f} times as fast, ever")
    by_fit = scaling.amdahl(many[-1], f)
    print(f"{many[-1]} workers: the fit says {by_fit:.2f} times, measured {gains[-1]:.2f}")
figures.curves(
    [
        figures.Curve("measured speedup", list(zip(many, gains)), law(scaling.amdahl, f, many)),
        figures.Curve(
            "Amdahl's law with 5 %", predicted=law(scaling.amdahl, serial_part, many)
        ),
    ],
    f"Declared compute, {serial_part:.0%} of it serial: how many times as fast are {many[-1]}"
    " workers?",
    x="workers", y="speedup",
)

# %% [markdown]
# **In one sentence:** what can make the fitted part larger than the declared one, and put the last point below the line?
#
# <details><summary>Compare</summary>Averaging the gradients and waking up the ranks take time too, which no worker
# shares. It even <em>grows</em> with n, and Amdahl's law has no term for that.</details>
#
# Now let the job grow: every worker keeps a share of its own, so the serial part is a larger fraction of each step. By
# Amdahl's law that is worse. Is it?

# %%
alone_s = serial_part * job_s
step_s = alone_s + share_s
print(f"a step: {1000 * share_s:.0f} ms for everyone, {1000 * alone_s:.0f} ms for rank 0 alone")
asks = f"{alone_s / step_s:.0%} is serial. What is the scaled speedup of {many[-1]} workers?"
lab.predict("scaled", asks, "times")

# %%
alone = time_cases(declared, [(1, share_s * n) for n in many], rounds=1)
together = time_cases(declared, [(n, share_s) for n in many], rounds=3)
scaled = [ratio(a, t) for a, t in zip(alone, together)]
lab.measure("scaled", scaled[-1])

# %% [markdown]
# The dashed line under the measurements is Gustafson's law with the $s$ that you fitted to the *other* job, the one that
# stayed the same.

# %% tags=["cover"]
g, answer = ratio(serial_s, together[0]), None
if g and g > 1:
    print("the fitted serial part is longer than a whole step here:", end=" ")
    print("this machine was busy, so no law is drawn")
    g = None
if scaled[-1]:
    most, best = max(zip(scaled, many))
    of_use = "yes" if best == many[-1] else f"up to {best}"
    answer = f"{of_use}: {best} workers do {most:.3g} times the work of one"
figures.curves(
    [
        figures.Curve(
            "the job grows (Gustafson)", list(zip(many, scaled)),
            law(scaling.gustafson, g, many),
        ),
        figures.Curve(
            "the job stays (Amdahl), same fraction", predicted=law(scaling.amdahl, g, many)
        ),
    ],
    figures.answered(
        "Declared compute, and a job that grows with its workers: are they all of use?", answer
    ),
    x="workers", y="speedup",
)

# %% [markdown]
# And the real network, up to the number of cores? "Serial" is then everything that did not shrink: averaging, the
# update that every worker repeats, the Python around it, and whatever else this machine did. A fit of 0, or of a whole
# step (limit 1.0), means that the machine was busy.

# %%
cnn_s = None
if cores > 1:
    cnn_s = said(serial_seconds, inside, strong[:1] * len(inside), strong[: len(inside)])
f_cnn = None if cnn_s is None else cnn_s / strong[0]
if f_cnn is not None:
    found = f"{1000 * cnn_s:.1f} ms are serial, limit {scaling.amdahl_limit(f_cnn):.1f}"
    print(f"small CNN on up to {cores} cores: {found}")

n, gain, answer = worlds[-1], speedups[-1], None
if f_cnn is not None:
    promised = scaling.amdahl(n, f_cnn)
    holds = "yes" if abs(gain - promised) < 0.1 * promised else "no"
    answer = f"{holds}: {n} workers are {gain:.3g} times as fast, the law says {promised:.3g}"
    if n <= cores:
        answer = f"not decided by this run: it had no more than {n} workers"
figures.curves(
    [
        figures.Curve(
            "small CNN", list(zip(worlds, speedups)), law(scaling.amdahl, f_cnn, worlds)
        )
    ],
    figures.answered(
        f"Does the law that was fitted up to {cores} cores hold beyond them?", answer
    ),
    x="workers", y="speedup",
)

# %% [markdown]
# **In one sentence:** why is a fit to few workers a risky promise for many?
#
# <details><summary>Compare</summary>Costs that grow with the number of workers, like messages, hardly show among few,
# and resources that run out, like cores, do not show at all.</details>
#
# The laws have no word for messages. They need one.

# %% [markdown]
# ## When does the all-reduce outweigh the step?
#
# A step computes, then averages. Computing grows with each rank's batch. Averaging moves the gradients: as many bytes for
# one image as for a thousand. So a small batch mostly talks, and a large one mostly computes. Where is the border? You need
# two numbers of the link: its **latency** α, the seconds that every message takes, and its **bandwidth** B, bytes a second.

# %% [markdown]
# The usual all-reduce goes round a **ring**: the tensor is cut into n chunks, and in $2(n-1)$ rounds every rank sends one
# chunk to its neighbour. Half of the rounds add up, half hand out the sums. Lab 06 derives it; here it is given. For $m$
# bytes on n ranks:
#
# $$T=2\,(n-1)\left(\alpha+\frac{m}{n\,B}\right)$$

# %%
link = Link(link_speed, link_latency)
gradient_bytes = sum(p.nbytes for p in models.small_cnn().parameters())
for n in (1, 2, 8, 64):
    time_s = cost.ring_all_reduce(n, gradient_bytes, link)
    print(f"{n:2} ranks, {gradient_bytes:,} bytes over {link}: {1e3 * time_s:7.2f} ms")

# %% [markdown]
# The bandwidth's part hardly grows with n; the latency's part does, and for small tensors on many ranks it is all that
# counts.

# %% [markdown]
# ## Your decision
#
# You are asked: *communication may take at most this share of a step; how large must the batch be?* You have a function
# that **measures** a step's compute at any batch. A measurement costs seconds. And time may grow in stairs, as on a GPU,
# which works in blocks of a fixed size: a line through two measurements will not do. On an idle machine the time
# never falls as the batch grows. If it does fall in the runs below, that is noise: run the cell again.
#
# <details><summary>Hint</summary>Communication takes T of a step of T + compute. Try the largest batch first: is it
# enough? Then halve what is left.</details>

# %% tags=["exercise:smallest_batch"]
# Exercise 1.3: when the all-reduce is small
def smallest_batch(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    """The smallest batch per rank whose all-reduce takes at most `share` of the step:
    an int, 1 to most; None if none does.

    step_s(batch) measures a step's seconds of compute, which never fall as the batch grows; if
    most is 4,096, call it at most 30 times, please. n ranks compute and then all-reduce
    size_bytes in a ring; alpha_s per message, bytes_per_s per link.
    """
    ### BEGIN SOLUTION
    transfer_s = 2 * (n - 1) * (alpha_s + size_bytes / (n * bytes_per_s))

    def enough(batch):
        return transfer_s <= share * (transfer_s + step_s(batch))

    if not enough(most):
        return None
    low, high = 0, most  # high is enough, low is not
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high
    ### END SOLUTION

# %% tags=["check:smallest_batch"] points=1.5
check.smallest_batch(smallest_batch)

# %% [markdown]
# Now with real measurements: your timer measures, your function decides, for two ranks on the link above.

# %%
most = f"{allowed:.0%} of a step"
asks = f"Averaging over {link} may take {most}: how many images a rank does the CNN need?"
lab.predict("border", asks, "images")

# %%
def compute(model, count):
    def step():
        gradients(model, images[:count], labels[:count])
        update(model)

    return step

def decide(most):
    """Your smallest batch for two ranks, and the seconds measured on the way, by batch."""
    torch.set_num_threads(1)
    model, measured = models.small_cnn(seed=0), {}

    def step_s(count):
        measured[count] = seconds_per_step(
            compute(model, count), time.perf_counter, nothing, warm_up=1, steps=5
        )
        return measured[count]

    alpha_s, speed = link.latency_s, link.bandwidth_bytes_per_s
    return smallest_batch(step_s, most, 2, gradient_bytes, alpha_s, speed, allowed), measured

run = launch(decide, 1, args=(most_images,), device="cpu")
border, compute_s = run[0] if run.state == "done" else (None, {})
lab.measure("border", border)
for count, seconds in sorted(compute_s.items()):
    print(
        f"{count:5} images: {1e3 * seconds:7.2f} ms of compute"
        + ("  <- your answer" if count == border else "")
    )

# %% [markdown]
# Does the border hold? Two ranks train over a link that is shaped to be that slow, with a real ring. Your timer times both
# halves of each step, computing and averaging, and the median of all rounds counts, as when you decided. The dashed line is
# the formula, with the compute measured here. It leaves out waking up, and waiting for a slower rank. If at your answer the
# formula itself exceeds what is allowed, computing took less time here than when you decided.

# %%
def over_the_link(fabric, counts, rounds=8):
    """The median seconds of computing and of averaging, for each number of images a rank."""
    torch.set_num_threads(1)
    model = models.small_cnn(seed=0)
    computing, averaging = ({count: [] for count in counts} for _ in range(2))

    def compute_mine(count):
        mine = slice(fabric.rank * count, (fabric.rank + 1) * count)
        return lambda: gradients(model, images[mine], labels[mine])

    def average():
        grads = [p.grad for p in model.parameters()]
        together = collectives.all_reduce(fabric, nn.utils.parameters_to_vector(grads))
        nn.utils.vector_to_parameters(together / fabric.world_size, grads)

    for _ in range(rounds):
        for count in counts:
            for laps, half in ((computing, compute_mine(count)), (averaging, average)):
                laps[count].append(
                    seconds_per_step(half, time.perf_counter, nothing, warm_up=0, steps=1)
                )
            update(model)
    return [
        {count: statistics.median(seconds) for count, seconds in laps.items()}
        for laps in (computing, averaging)
    ]

# %%
counts = sorted({1, 8, 32, 128, 512, border or 128})
run = launch(over_the_link, 2, args=(counts,), link=link, device="cpu")
computing, averaging = run[0] if run.state == "done" else ({}, {})
transfer_s = cost.ring_all_reduce(2, gradient_bytes, link)

def share_of_step(communication_s, seconds):
    return 100 * communication_s / (communication_s + seconds)

measured = [
    (count, share_of_step(averaging[count], seconds)) for count, seconds in computing.items()
]
foretold = [(count, share_of_step(transfer_s, seconds)) for count, seconds in computing.items()]
if border in computing:
    limit = f"at most {allowed:.0%} of a step"
    print(f"your answer, {border} images a rank: communication is to take {limit};", end=" ")
    by_formula, by_clock = dict(foretold)[border], dict(measured)[border]
    print(f"the formula says {by_formula:.0f}%, measured {by_clock:.0f}%")
figures.curves(
    [
        figures.Curve("communication", measured or [(1, None)], foretold),
        figures.Curve(
            "the limit", predicted=[(count, 100 * allowed) for count in counts], limit=True
        ),
    ],
    f"From how many images a rank on is communication at most {allowed:.0%} of a step?",
    x="images a rank", y="communication (% of a step)",
)

# %% [markdown]
# Turn the knobs: more ranks, another link. Here the compute is declared, at the length measured above, so that every rank
# has a core of its own; each choice starts real runs. Look for a setting in which a faster link hardly helps.

# %%
def declared_training(fabric, seconds):
    """The whole step's median seconds, for each number of seconds of compute."""
    gradient = nn.utils.parameters_to_vector(models.small_cnn().parameters()).detach()

    def timed(compute_s):
        def step():
            fabric.compute(compute_s)
            collectives.all_reduce(fabric, gradient)

        return seconds_per_step(step, time.perf_counter, nothing, warm_up=1, steps=3)

    return [timed(s) for s in seconds]

def borders(ranks=4, bandwidth=link_speed, latency=link_latency):
    chosen, seconds = Link(bandwidth, latency), list(computing.values())
    run = launch(declared_training, ranks, args=(seconds,), link=chosen, device="cpu")
    whole = run[0] if run.state == "done" else []
    shares = [100 * (1 - s / step_s) for s, step_s in zip(seconds, whole)]

    transfer_s = cost.ring_all_reduce(ranks, gradient_bytes, chosen)
    formula = [(count, share_of_step(transfer_s, s)) for count, s in computing.items()]
    row = figures.Curve("communication", list(zip(computing, shares)) or [(1, None)], formula)
    asks = f"{ranks} ranks, {bandwidth}, {latency}: how much of a step is communication?"
    return figures.curves([row], asks, x="images a rank", y="communication (% of a step)")

knobs(
    borders, ranks=[2, 4, 8], bandwidth=["1 MB/s", link_speed, "100 MB/s", "1 GB/s"],
    latency=["10 µs", link_latency, "5 ms"],
)

# %% [markdown]
# **In one sentence:** if an all-reduce outweighs the step, what would you change, besides the link?
#
# <details><summary>Compare</summary>A larger batch per rank, or several batches between two all-reduces (lab 11); fewer
# bytes (bfloat16, lab 06); or hide it: gradients of the last layers are ready while the first ones are still being computed
# (lab 11). Fewer ranks, where latency is nearly everything.</details>
#
# But a larger batch is a different step for the model. What does the model make of it?

# %% [markdown]
# ## Does it learn?
#
# Throughput is the machine's number. The model has its own. **Accuracy**: the part of the test images that it names
# right. **Recall** of a class: the part of that class's images that it finds. **Average precision** (AP): sort all
# images by how sure the model is of the class; AP is high if those of the class come first. The last two see what a
# mean hides.

# %% [markdown]
# One worker takes 32 images a step. Eight workers take 32 each and average: that is one step with 256 images (lab 04
# proves it), so a single process can show us what eight would learn. Both train here, side by side on two ranks, with
# the same learning rate. Every few steps they look at the test images.

# %%
# images a step, steps, steps between two looks
plans = [(32, alone_steps, 20), (32 * team, team_steps, 10)]

def learn(fabric):
    """(step, accuracy) at every look, and what the model says of the test images at each."""
    torch.set_num_threads(1)
    size, steps, every = plans[fabric.rank]
    model, order = models.small_cnn(seed=0), torch.Generator().manual_seed(1)
    curve, said = [], []
    for step in range(1, steps + 1):
        chosen = torch.randint(len(images), (size,), generator=order)
        gradients(model, images[chosen], labels[chosen])
        update(model)
        if step % every == 0:
            with torch.no_grad():
                said.append(model(test_images).softmax(1).numpy())
            curve.append((step, (said[-1].argmax(1) == test_labels.numpy()).mean().item()))
    return curve, said

# %%
lab.predict("worst", f"One worker, {alone_steps} steps: what is the recall of the class that it knows worst?", "%")

# %%
print(f"one worker {plans[0][1]} steps, the team {plans[1][1]} …", flush=True)
from sklearn.metrics import accuracy_score, average_precision_score, recall_score

run = launch(learn, 2, device="cpu")
(one_curve, one_said), (team_curve, team_said) = run.results

# %% [markdown]
# Compare them after about the same number of images: the one worker after its last step, and the team at the look that
# comes nearest to that number of images. How many steps did each take?

# %%
def scores(said):
    """Accuracy; recall and average precision of each class, as scikit-learn computes them."""
    truth, named = test_labels.numpy(), said.argmax(1)
    average_precision = [
        average_precision_score(truth == k, said[:, k]) for k in range(said.shape[1])
    ]
    return (
        accuracy_score(truth, named),
        recall_score(truth, named, average=None),
        average_precision,
    )

looks = [step * plans[1][0] for step, _ in team_curve]
same = min(range(len(looks)), key=lambda k: abs(looks[k] - plans[0][0] * one_curve[-1][0]))
alone_scores, team_scores = scores(one_said[-1]), scores(team_said[same])
print(
    f"one worker after {one_curve[-1][0]} steps, {plans[0][0] * one_curve[-1][0]:,} images;",
    end=" ",
)
print(f"the team of {team} after {team_curve[same][0]} steps, {looks[same]:,} images")
print(f"{'':12}  one worker      the team")
print(f"{'accuracy':12}  {alone_scores[0]:10.0%}  {team_scores[0]:12.0%}")
for name, *found in zip(clothes.classes, *alone_scores[1:], *team_scores[1:]):
    print("{:12}  recall {:4.0%}, AP {:4.0%}   recall {:4.0%}, AP {:4.0%}".format(name, *found))
lab.measure("worst", 100 * min(alone_scores[1]))

# %% [markdown]
# Two questions. Which classes does the single accuracy hide, and do they look alike? And has the team, with about as
# many images, learnt as much? A model learns once in a step, however many images the step has.

# %%
reached = f"{team} workers reach {target:.0%} accuracy"
asks = f"At one of their looks {reached}: how many times as fast as one worker?"
lab.predict("sooner", asks, "times")

# %% [markdown]
# The seconds of a step are those that your timer measured above in the *declared* runs, for one worker and for eight: there
# a step takes far longer than this network needs. Two numbers for the same runs: images a second, and the seconds to a
# goal. Reports call the second one the **time to accuracy**. Each run has one seed here: other seeds may give other times.

# %%
def seconds_to(curve, step_s, goal):
    """Seconds until the first look with an accuracy of `goal` or more; None if none has it."""
    steps = next((step for step, accuracy in curve if accuracy >= goal), None)
    return step_s * steps if steps and step_s else None

one_s, team_s = together[0], together[many.index(team)]
soon = [seconds_to(one_curve, one_s, target), seconds_to(team_curve, team_s, target)]
lab.measure("sooner", ratio(*soon))
names = ("one worker", f"{team} workers")
for name, plan, step_s, goal_s in zip(names, plans, (one_s, team_s), soon):
    if goal_s:
        reached = f"{target:.0%} accuracy after {goal_s:.1f} s (declared compute)"
        print(f"{name:10}: {plan[0] / step_s:6,.0f} images/s, {reached}")

# %%
def descent(name, curve, step_s):
    points = step_s and [(step, step * step_s, 1 - accuracy) for step, accuracy in curve]
    return figures.Descent(name, points)

figures.descents(
    [descent("one worker", one_curve, one_s), descent(f"{team} workers", team_curve, team_s)],
    f"{team} workers look at {team} times as many images a step: who is lower, by steps,"
    " by seconds?",
    y="test error (1 − accuracy)",
)

# %% [markdown]
# Left, by steps: is a step of the team worth eight of one worker? Right, by seconds: the gain that counts. Images a
# second may promise more than **time to a given accuracy** delivers. A faster run that learns less is no gain. Lab 13 is
# about what large batches need: another learning rate, for a start.
#
# **In one sentence:** why is strong scaling free of this trouble?
#
# <details><summary>Compare</summary>There the batch, and with it every step, stays the same; only its seconds
# change.</details>

# %% [markdown]
# ## Metrics over ranks
#
# A test set is dealt out, too: each rank has the scores of its own images, and one number is reported. You know recall.
# **Precision** is the other side: of the images that the model finds, the part that belongs to the class. What it finds
# depends on a *threshold*: an image is found if its score is at least as high.
#
# Average precision takes every score as the threshold, from the highest to the lowest. Each brings recall from $R_{k-1}$ to
# $R_k$ at the precision $P_k$; recall begins at 0:
#
# $$AP=\sum_k\,(R_k-R_{k-1})\,P_k$$

# %% [markdown]
# The shortcut: every rank computes its own metric, and the mean is reported. Let us try that with the class whose AP is
# lowest. The images are dealt out in two ways: like cards, and in blocks, as in a folder sorted by class.

# %%
hard = min(range(10), key=lambda k: alone_scores[2][k])
sure, of_class = one_said[-1][:, hard], test_labels.numpy() == hard
exact = alone_scores[2][hard]
deals = {
    "dealt like cards": lambda n: [slice(r, None, n) for r in range(n)],
    "in blocks": lambda n: [
        mine.numpy() for mine in test_labels.argsort(stable=True).tensor_split(n)
    ],
}

def mean_of_ranks(shares):
    """The mean of the ranks' own average precisions, 0 for a rank with none of the class."""
    own = [
        average_precision_score(of_class[mine], sure[mine]) if of_class[mine].any() else 0.0
        for mine in shares
    ]
    return statistics.mean(own)

of_all = f"over all {len(of_class):,} images, {of_class.sum()} of the class"
print(f"“{clothes.classes[hard]}”: AP {exact:.1%} {of_all}")

# %%
lab.predict("cards", f"{team} ranks, images dealt like cards: what is the mean of the ranks' APs?", "%")

# %%
lab.predict("blocks", f"{team} ranks, in blocks, class by class: what is the mean of the ranks' APs?", "%")

# %%
for name, key in zip(deals, ("cards", "blocks")):
    found = 100 * mean_of_ranks(deals[name](team))
    lab.measure(key, found)
    of_all = f"of all images {100 * exact:.1f} %"
    print(f"{name}: the mean of {team} ranks' APs is {found:.1f} %, {of_all}")

# %% [markdown]
# Now the exact metrics. What must travel? For recall and precision three counts from each rank are enough. Could average
# precision be made from one number per rank? It sorts *all* examples, so ask where a rank's best example stands among the
# others'.
#
# Two given collectives may help. You have seen `collectives.all_reduce(fabric, t)`: it leaves the sum in `t`.
# `collectives.concatenated(fabric, t)` returns the flat `t` of all ranks one after the other, however long each is, `bool`
# too. Write the metrics in PyTorch: scikit-learn would have to be imported on every rank first.

# %% [markdown]
# <details><summary>Hint 1</summary>A helper gives recall and precision at one threshold. Average precision calls it for every
# score that occurs, from the highest down: <code>scores.unique().flip(0)</code>.</details>
# <details><summary>Hint 2</summary>Equal scores pass the threshold at the same moment. A rank without examples must
# still take part in each collective.</details>

# %% tags=["exercise:metrics_of_all"]
# Exercise 1.4: metrics of all ranks' examples
def metrics_of_all(fabric, scores, labels, threshold):
    """Return (recall, precision, average precision) of all ranks' examples:
    three numbers, the same on every rank.

    scores (finite floats) and labels (True: of the class) are of this rank's examples; ranks
    have different numbers, and some have none. Recall and precision are of scores >= threshold,
    any number; equal scores are one threshold; 0/0 counts as 0. Arguments stay as they are.
    """
    ### BEGIN SOLUTION
    scores = collectives.concatenated(fabric, scores)
    labels = collectives.concatenated(fabric, labels)

    def at(score):
        found = scores >= score
        hits = int((found & labels).sum())
        return hits / max(1, int(labels.sum())), hits / max(1, int(found.sum()))

    average, before = 0.0, 0.0
    for score in scores.unique().flip(0):
        recall, precision = at(score)
        average += (recall - before) * precision
        before = recall
    return *at(threshold), average
    ### END SOLUTION

# %% tags=["check:metrics_of_all"] points=1
check.metrics_of_all(metrics_of_all)

# %%
def over_ranks(fabric, shares):
    mine = shares[fabric.rank]
    return metrics_of_all(fabric, torch.tensor(sure[mine]), torch.tensor(of_class[mine]), 0.5)

teams = [n for n in (1, 2, 4, 8, 16) if n <= most_workers]
yours = {}
for n in teams:
    run = launch(over_ranks, n, args=(deals["in blocks"](n),), device="cpu")
    yours[n] = float(run[0][2]) if run.state == "done" else None
if yours[team]:
    by_library = f"scikit-learn says of all images {exact:.6f}"
    print(f"{team} ranks: yours is {yours[team]:.6f}, {by_library}")

# %%
means = {name: [mean_of_ranks(deal(n)) for n in teams] for name, deal in deals.items()}
answer = None
if all(yours.values()):
    changes = [
        round(max(found) - min(found), 4) for found in (means["in blocks"], yours.values())
    ]
    answer = "the mean of ranks by up to {:g}, yours by {:g}".format(*changes)
figures.curves(
    [
        figures.Curve(
            "all images (yours)", [(n, yours[n]) for n in teams], [(n, exact) for n in teams]
        ),
        *(
            figures.Curve(f"mean of ranks, {name}", list(zip(teams, found)))
            for name, found in means.items()
        ),
    ],
    figures.answered(
        f"“{clothes.classes[hard]}”: does the reported average precision depend on the number"
        " of ranks?",
        answer,
    ),
    x="ranks", y="average precision", growth=True,
)

# %% [markdown]
# The same model, the same images: only the number of ranks and the way of dealing differ. Which of the two errors would go
# unseen in a report? Sending every score costs bytes for every example. Libraries also count scores in bins
# and add the bins up: the bytes no longer grow with the examples, and the result is close, not exact.
#
# **In one sentence:** two metrics of this section can be had from counts alone. Why not the third?
#
# <details><summary>Compare</summary>Recall and precision count examples on one side of a threshold, and counts add up over
# ranks. Average precision asks how examples of different ranks compare, which no number from one rank tells.</details>

# %% [markdown]
# ## Too large for one
#
# Time is one reason to distribute. The other is **memory**. In a training step a device holds the *weights*, a *gradient*
# for each, what the *optimizer* remembers of each (Adam: two numbers, its moments), and *activations*: what the forward
# pass keeps for the backward pass. PyTorch can list every tensor that it keeps:

# %%
def kept(model, loss_of):
    """The tensors kept for the backward pass, each once, without the weights; and the loss."""
    found, own = {}, {p.untyped_storage()._cdata for p in model.parameters()}

    def note(t):
        memory = t.untyped_storage()._cdata  # the same for two tensors that share their memory
        if memory not in own:
            found[memory] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        loss = loss_of(model)
    return list(found.values()), loss

def loss_of(count):
    return lambda model: nn.functional.cross_entropy(model(images[:count]), labels[:count])

# %%
model = models.small_cnn(seed=0)
for t in kept(model, loss_of(1))[0]:
    print(f"{t.nbytes:7,} bytes: {str(tuple(t.shape)):16} {t.dtype}")

# %% [markdown]
# That is for one image. You see the image itself, the output of every layer, and for each pooling *which* pixel was the
# largest: whole numbers of 8 bytes. Now write the estimate.
#
# <details><summary>Hint</summary><code>math.prod(shape)</code> is how many numbers a tensor of that shape has; it is 1
# for the shape ().</details>

# %% tags=["exercise:training_bytes"]
# Exercise 1.5: the memory of a training step
def training_bytes(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    """Bytes of a training step, under these keys and no other:
    {"weights": …, "gradients": …, "optimizer": …, "activations": …}.

    weights: a shape for each parameter tensor; weight_bytes of a weight, and of its gradient;
    optimizer_bytes per weight. saved: (shape, bytes per number) of each tensor that is kept for
    ONE example; batch: how many examples. Both lists stay as they are.
    """
    ### BEGIN SOLUTION
    count = sum(math.prod(shape) for shape in weights)
    one_example = sum(math.prod(shape) * width for shape, width in saved)
    return {
        "weights": weight_bytes * count,
        "gradients": weight_bytes * count,
        "optimizer": optimizer_bytes * count,
        "activations": batch * one_example,
    }
    ### END SOLUTION

# %% tags=["check:training_bytes"] points=1
check.training_bytes(training_bytes)

# %% [markdown]
# ### Against measured bytes
#
# One real step with Adam. Afterwards we ask every tensor how large it is. Your estimate knows only the shapes, and
# what is kept for one image.

# %%
# Helper: your estimate, and what was measured
def estimated(*args):
    """Your estimate; None while it is not yet written."""
    try:
        return training_bytes(*args)
    except NotYet:
        return None

def measured_bytes(count):
    model = models.small_cnn(seed=0)
    adam = torch.optim.Adam(model.parameters())
    tensors, loss = kept(model, loss_of(count))
    loss.backward()
    adam.step()
    return {
        "weights": sum(p.nbytes for p in model.parameters()),
        "gradients": sum(p.grad.nbytes for p in model.parameters()),
        "optimizer": sum(t.nbytes for state in adam.state.values() for t in state.values()),
        "activations": sum(t.nbytes for t in tensors),
    }

# %%
lab.predict("outweigh", "From how many images on do activations need more than all the rest?", "images")

# %%
shapes = [tuple(p.shape) for p in model.parameters()]
saved = [(tuple(t.shape), t.element_size()) for t in kept(model, loss_of(1))[0]]
counts = [1, 4, 16, 64, 256]
real = [measured_bytes(count) for count in counts]
paper = [estimated(shapes, saved, count) for count in counts]
for part, size_bytes in real[-1].items():
    guess = f"{paper[-1][part]:10,}" if paper[-1] else "   not yet"
    print(f"{part:12} estimated {guess}   measured {size_bytes:10,} bytes, {counts[-1]} images")

# %%
def rest(row):
    return row and sum(row.values()) - row["activations"]

def lines(name, part):
    estimates = [(count, part(row)) for count, row in zip(counts, paper) if row]
    return figures.Curve(
        name, [(count, part(row)) for count, row in zip(counts, real)], estimates
    )

one_image = paper[0] and paper[0]["activations"]
lab.measure("outweigh", one_image and math.floor(rest(paper[0]) / one_image) + 1)
parts = {"activations": lambda row: row["activations"], "weights, gradients, Adam": rest}
figures.curves(
    [lines(name, part) for name, part in parts.items()],
    figures.answered(
        "What of the memory grows with the batch, and what does not?",
        figures.growing({name: [part(row) for row in real] for name, part in parts.items()}),
    ),
    x="images", y="memory (bytes)", log=True, growth=True,
)

# %% [markdown]
# Why do estimate and measurement differ by a few bytes? Adam also counts its steps, one number for each tensor, and not
# all that the loss keeps is per image. At the largest batch, which part is nearly everything? Is it the same one for a
# large language model with a small batch?

# %% [markdown]
# ### A model of seven billion
#
# Let us build a language model of the size that the ZeRO paper takes as its example. The `meta` device has shapes but no
# memory, so the same hooks tell what the model *would* keep. In mixed precision a weight and its gradient are 16-bit
# numbers, 2 bytes each. Adam then keeps 12 for each weight: a float32 copy of the weight and two moments.

# %%
lab.predict("large", "7.5 billion weights, mixed precision, Adam: how many GB without activations?", "GB")

# %%
layers, width, length, heads = 36, 4096, 1024, 32
with torch.device("meta"):
    block = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.0, batch_first=True, dtype=torch.bfloat16
    )
    words = nn.Embedding(50_257, width, dtype=torch.bfloat16)
    text = torch.empty(1, length, width, dtype=torch.bfloat16)
large = [tuple(p.shape) for p in block.parameters()] * layers + [tuple(words.weight.shape)]
print(f"{sum(math.prod(shape) for shape in large) / 1e9:.2f} billion weights")
one_text = [
    (tuple(t.shape), t.element_size()) for t in kept(block, lambda m: m(text).sum())[0]
] * layers
need = estimated(large, one_text, 1, 2, 12)
lab.measure("large", need and rest(need) / 1e9)
for part, size_bytes in (need or {}).items():
    print(f"{part:12} {size_bytes / 1e9:6.1f} GB")
tables = sum(
    math.prod(shape) * size for shape, size in one_text if shape[-2:] == (length, length)
)
part = f"{tables / 1e9:.1f} GB of the activations"
print(f"the tables of attention, every word against every word, are {part}")

# %% [markdown]
# Data parallelism with a whole copy on each card does not help: every card holds all of it, and the activations of its own
# batch. But who says that every rank must keep what all have? **ZeRO** (2020) is data parallelism in which each of n ranks
# keeps an n-th of the optimizer's state, the gradients and the weights, and fetches the rest when a layer needs it. The
# activations belong to a rank's own examples; ZeRO does not divide them.

# %%
def zero_stage_3(need, n):
    """What a rank holds: an n-th of weights, gradients and optimizer; its own activations."""
    return need and {
        part: size_bytes / (1 if part == "activations" else n)
        for part, size_bytes in need.items()
    }

cards = 8
figures.stacks(
    {
        "One card": need and [need],
        "Two cards, data parallel: a copy on each": need and [need] * 2,
        f"{cards} cards, data parallel with ZeRO stage 3": (
            need and [zero_stage_3(need, cards)] * cards
        ),
    },
    "7.5 billion weights, one text a card: which way do they fit?",
    limit=("a card of 80 GB", 80e9),
)

# %%
if need:
    held = zero_stage_3(need, cards)
    total, share = sum(need.values()) / 1e9, sum(held.values()) / 1e9
    print(f"one card needs {total:.0f} GB; each of {cards} with ZeRO {share:.0f} GB,")
    print(f"of which activations {held['activations'] / 1e9:.1f} GB, as before")

# %% [markdown]
# That is the second reason to distribute, and for large models it comes first. There are other cuts: by layers (lab 03) and
# tensor by tensor (lab 12), and these divide activations too, in part. ZeRO's paper treats activations separately, as
# *residual states*, and divides them only among ranks that cut the model's tensors as well (section 6).
#
# **In one sentence:** which of the four parts could you make smaller on one device, and at what price?
#
# <details><summary>Compare</summary>Activations: keep fewer and compute the rest again in the backward pass, which costs
# time (FlashAttention, a way to compute a language model's attention, does so with its tables, and gains time). The
# optimizer's state: plain gradient descent keeps none, and often learns more slowly.</details>

# %% [markdown]
# ### Tokens a second (optional)
#
# The first reason was time. A language model's step takes about $6\,w$ FLOPs a **token**, a piece of a word (Kaplan and
# others, 2020: twice for the forward pass, four times for the backward pass; attention's tables left out). With a
# published peak and MFU, how fast is one card with our 7.5 billion weights, and for how long would it read what Llama 3
# has read?

# %%
# H100 SXM, dense bfloat16, NVIDIA's data sheet (which prints 1,979e12, for sparse matrices)
card_peak = 989.4e12
card_mfu = 0.40  # Llama 3 reached 38 to 43 %
corpus = 15e12  # tokens, about as many as Llama 3 read

# %%
lab.predict("years", "One H100, 7.5 billion weights, 15 trillion tokens: how many years?", "years")

# %%
weights = sum(math.prod(shape) for shape in large)
tokens_per_s = card_mfu * card_peak / (6 * weights)
years = corpus / tokens_per_s / (365 * 24 * 3600)
lab.measure("years", years)
tokens = f"{corpus / 1e12:.0f} trillion tokens"
print(f"one card: {tokens_per_s:,.0f} tokens/s, {years:.0f} years for {tokens}")

# %%
for n in (8, 1024):
    speed, days = n * tokens_per_s, 365 * years / n
    print(f"{n:5} cards, were the rest free: {speed:12,.0f} tokens/s, {days:8,.0f} days")

# %% [markdown]
# And is the rest free? Your function knows. Gradients in bfloat16, a network card of 400 Gbit/s (50 GB/s) for every GPU,
# 10 µs a message, at most a tenth of the step. These are numbers on paper: none of it ran here.

# %%
def tokens_needed(n, allowed=0.1):
    """The fewest tokens per card and step for a small enough all-reduce; None if unwritten."""
    def compute_s(tokens):
        return tokens / tokens_per_s

    return said(smallest_batch, compute_s, 10**6, n, 2 * weights, 10e-6, 50e9, allowed)

for n in (2, 8, 64, 1024):
    print(f"{n:5} cards: {tokens_needed(n) or 'not yet':>8} tokens a card and step, or more")

# %% [markdown]
# **In one sentence:** from 64 cards to 1,024 the number hardly grows. Why, and when would it?
#
# <details><summary>Compare</summary>A rank's bytes, 2 (n − 1) m/n, approach 2 m and stay there. Only the latency's part
# grows with n; it counts when m is small.</details>

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Amdahl (AFIPS 1967), Gustafson (CACM 1988), and Karp and Flatt (CACM 1990): the serial fraction as a
# tool. PyTorch, *CUDA semantics: asynchronous execution*. Chowdhery and others, *PaLM*: MFU. Kaplan and others, *Scaling
# laws* ([arXiv:2001.08361](https://arxiv.org/abs/2001.08361)). Patarasuk and Yuan (JPDC 2009): the ring. Coleman and others,
# *DAWNBench* (2017): time to accuracy. Goyal and others ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677)): large batches.
# Rajbhandari and others, *ZeRO* ([arXiv:1910.02054](https://arxiv.org/abs/1910.02054)): sixteen bytes a weight, shared.
