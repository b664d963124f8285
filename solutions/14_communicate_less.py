# %% [markdown]
# # Lab 14. Communicate less
#
# **After this lab you are able to** train over slow networks with a fraction of the bytes: send one bit per number, the largest
# numbers, two thin matrices, or nothing for many steps; show what it costs to drop the rest, or let ranks with different
# data train alone; say below which bandwidth each way pays; and train in 16 bits, with float32 sums, master weights, a shared
# scale.
#
# **Minutes:** 205 (two sittings: 100 up to “Fewer messages”, then 105) · **Points:** 6 · **Prerequisites:** Lab 04 (averaged
# gradients), Lab 06 (all-reduce). Labs 11 and 12 help.

# %% [markdown]
# ![Who is first at a loss of 0.9, over slow links and over fast ones? 10 MB/s: 2 of 6 tie; 1 GB/s: …](../labs/covers/14.png)

# %%
# Set-up: the tools of this lab
from worldsize.notebook import *

import logging
import math
import time
from statistics import median

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional as F
from torch.nn.utils import vector_to_parameters

from worldsize.fabric.collectives import all_gather, all_reduce, meet
from worldsize.formulas import compression, cost, sharding
from worldsize.launch import unobserved
from worldsize.pytorch.models import flat, mlp, tensors
from worldsize.pytorch.resnet import resnet

# %% tags=["parameters"]
ranks = 2
seeds = [0, 1, 2]
steps = 64
hidden = 128
batch = 128
learning_rate = 0.05
block = 784
share = 0.01
thin = 2
every = 4
alone = [1, 16, 64]
work_s = 0.003
target = 0.9
many = [4, 16, 64, 112]
bandwidths = ["10 MB/s", "100 MB/s", "1 GB/s"]

# %%
lab, check = open_lab("14")

# %% [markdown]
# ## A step that waits
#
# The ranks learn to tell ten kinds of clothes apart, each from random batches of its own. The weights are *one* flat
# tensor here, and so is a gradient: `gradient(weights)` draws this rank's next batch and gives the gradient on it. So
# whatever we do to save bytes is done to a row of numbers.

# %%
sizes = [784, hidden, 10]
images, labels, test_images, test_labels = tensors(data.load("fashion-mnist"), train=4000, test=1000)
numbers = len(flat(list(mlp(sizes).parameters())))
print(f"{numbers:,} numbers in a gradient: {4 * numbers / 1e3:.0f} kB")

# %%
def learner(rank, seed, own=None):
    """A rank's `gradient(weights)`, on its next batch (of all images, or of its `own`); and the start, the same on all ranks."""
    model = mlp(sizes, seed)
    parameters = list(model.parameters())
    draws = torch.Generator().manual_seed(1000 * seed + rank)

    def gradient(weights):
        vector_to_parameters(weights, parameters)
        rows = torch.randint(len(images if own is None else own), (batch,), generator=draws)
        rows = rows if own is None else own[rows]
        loss = F.cross_entropy(model(images[rows].flatten(1)), labels[rows])
        return flat(torch.autograd.grad(loss, parameters))

    return gradient, flat(parameters)

def first_gradient(rank):
    gradient, weights = learner(rank, 0)
    return gradient(weights)

# %%
# Helper: the loss on images that nobody learns from
def test_loss(weights):
    model = mlp(sizes, 0)
    vector_to_parameters(weights, model.parameters())
    with torch.no_grad():
        return float(F.cross_entropy(model(test_images.flatten(1)), test_labels))

def curve_of(fabric, seen):
    """On rank 0 the loss curve, [(step, seconds, loss)], of the weights in [(step, seconds, weights)]."""
    return [(step, seconds, test_loss(weights)) for step, seconds, weights in seen] if fabric.rank == 0 else None

# %% [markdown]
# Every way to average gets this rank's gradient and a `state`, a dict that stays with the rank from step to step. The plain way
# is `all_reduce(fabric, x)`, which leaves the sum of all ranks' $x$ in $x$ and returns it. One thing is **declared**, not real:
# besides computing its real gradient, each step waits for `seconds`, as if a GPU worked. The messages are real.

# %%
def plain(fabric, gradient, state):
    return all_reduce(fabric, gradient) / fabric.world_size

def train(fabric, average, steps, seed, seconds, rate=learning_rate):
    """Gradient descent with the ranks' average gradient. Rank 0 returns its loss curve."""
    gradient, weights = learner(fabric.rank, seed)
    state, seen = {}, []
    meet(fabric)  # all ranks begin together
    start = time.monotonic()
    for step in range(1, steps + 1):
        mine = gradient(weights)
        fabric.compute(seconds)
        weights = weights - rate * average(fabric, mine, state)
        if step % 4 == 0 or step == steps:  # a test loss at each step would take longer than the training
            seen.append((step, time.monotonic() - start, weights.clone()))
    return curve_of(fabric, seen)

# %%
ring_bytes = cost.bytes_ring_all_reduce(ranks, 4 * numbers)
lab.predict(
    "waits",
    f"A step computes {work_s * 1e3:g} ms, then each of {ranks} ranks sends {ring_bytes / 1e3:.0f} kB over 10 MB/s. "
    f"Which share of a real step is not these {work_s * 1e3:g} ms, but sending, the real gradient and overhead?", "%",
)

# %%
run = launch(train, ranks, args=(plain, 4, 0, work_s), link=Link("10 MB/s"))
step_s = run[0][-1][1] / run[0][-1][0]
lab.measure("waits", 100 * (1 - work_s / step_s))
print(f"a step takes {step_s * 1e3:.0f} ms; {100 * (1 - work_s / step_s):.0f} % of it is not these {work_s * 1e3:g} ms;",
      f"the bytes alone need {ring_bytes / 10e6 * 1e3:.0f} ms")
figures.timeline(run)

# %% [markdown]
# In a data centre much of this waiting is hidden: Lab 11 sends inside backward, and a link of 400 Gbit/s is 5,000 times as
# fast. Whoever cannot buy bandwidth must send less.
#
# There are three ways: **fewer bits** per number, **fewer numbers**, and **fewer messages**. After a race between them, the last
# part takes the first way further: fewer bits in the whole step, not only on the wire.

# %% [markdown]
# ## Fewer bits
#
# The simplest: `bfloat16` keeps float32's range, and 8 of its 24 bits of precision. The gradient travels and is added up in it,
# while weights stay float32. For each way from here on: how much does it send, and does the loss end higher? (Below 1 %, a
# picture says “no”.)

# %%
def bf16(fabric, gradient, state):
    return all_reduce(fabric, gradient.bfloat16()).float() / fabric.world_size

# %%
# Helper: several trainings, one for each seed
def for_each_seed(fabric, fn, how):
    return [fn(fabric, how, steps, seed, 0.0) for seed in seeds]

def trainings(name):
    """Trains in this way, once for each seed, in one launch; prints what it sent, and how low its loss is at the end."""
    print(f"{name}, seeds {', '.join(map(str, seeds))}: ", end="", flush=True)
    with unobserved():  # no picture of each launch
        run = launch(for_each_seed, ranks, args=ways[name])
    if run.state != "done":
        print("not yet")
        return
    trained[name] = run
    lows = ", ".join(f"{curve[-1][2]:.3f}" for curve in run[0])
    print(f"rank 0 sends {sent(name) / 1e3:,.1f} kB per step; loss after {steps} steps {lows}")

def sent(name):
    return trained[name].trace.sent_bytes(0) / (steps * len(seeds))

def last(name, seed):
    return trained[name][0][seeds.index(seed)][-1][2]

# %%
# Helper: from the least to the most, one number where both read the same
def ranged(values, form=".0f"):
    ends = dict.fromkeys(f"{value:{form}}" for value in (min(values), max(values)))
    return " to ".join(ends).replace("-", "−")


def percent(value):
    """The value with its sign, and a decimal where it is small."""
    digits = 1 if abs(value) < 1.5 else 0
    return f"{round(value, digits) + 0.0:+.{digits}f} %".replace("-", "−")

# %%
# Helper: losses at the end beside another way's, and the curves
def gaps(name, other="plain"):
    """By how many per cent a way's loss ends above another one's, for each seed."""
    return [100 * (last(name, seed) / last(other, seed) - 1) for seed in seeds]

def judged(above):
    """Say whether losses end higher, and by how much: no below 1 % in the middle, yes if all seeds agree."""
    higher = "no" if median(above) < 1 else "yes" if min(above) > 0 else "undecided"
    return f"{higher}, {percent(median(above))}"

def ends_higher(other="plain", /, **ways):
    """Say whether each way's loss ends higher than another one's; None where one is not written yet."""
    if not trained.keys() >= set(ways.values()):
        return None
    return "; ".join(f"{said.replace('_', ' ')}: {judged(gaps(name, other))}" for said, name in ways.items())

def beside(name, other):
    """Say whether a way's loss ends lower than another way's with all seeds; None where it is not written yet."""
    if name not in trained:
        return None
    found = gaps(name, other)
    lower = "yes" if max(found) < 0 else "no" if min(found) > 0 else "undecided"
    return f"{lower}: it differs by {ranged(found, '+.1f')} %"

def losses(*names):
    """For figures.bands: {name: [[(step, loss)] of each seed]}, None where it is not written yet."""
    return {
        name: [[(step, loss) for step, _, loss in curve] for curve in trained[name][0]] if name in trained else None
        for name in names
    }

# %%
ways = {"plain": (train, plain), "bf16": (train, bf16)}
trained = {}
trainings("plain")
trainings("bf16")
asks = figures.answered("Half the bits: does the loss end higher?", ends_higher(bf16="bf16"))
figures.bands(losses("plain", "bf16"), asks, x="step", y="loss on test images", paired=True)

# %% [markdown]
# ### Codes
#
# **Quantization** goes further: it sends a **code**, a small whole number, for each value, and for each **block** of values one
# **scale**, by which the receiver multiplies. With 8 bits a code goes from −127 to 127. With 1 bit there are only two, +1 and
# −1. The bf16 numbers were added up on their way round a ring. What happens if codes are added up like that?

# %%
def eight_bits(x):
    scale = x.abs().max() / 127
    return (x / scale).round().to(torch.int8), scale

a, b = torch.tensor([0.9, -0.5, 0.2]), torch.tensor([9.0, 9.0, -3.0])
(a_code, a_scale), (b_code, b_scale) = eight_bits(a), eight_bits(b)
print(f"codes {a_code.tolist()}, scale {a_scale:.4f}, and codes {b_code.tolist()}, scale {b_scale:.4f}")
print(f"codes added up as int8: {(a_code + b_code).tolist()}; the numbers' sum: {[round(x, 1) for x in (a + b).tolist()]}")

# %% [markdown]
# **In one sentence:** which two things go wrong in the sum of the codes?
#
# <details><summary>Compare</summary>int8 wraps from 127 to −128; and each rank's codes count in a unit of its own, its
# scale.</details>
#
# So every rank sends its codes to all others, an **all-gather**, and each decodes and adds up for itself.
# `all_gather(fabric, x)` fills a flat `x` with the parts of all ranks: part $i$ of `x.tensor_split(world_size)` is rank $i$'s.
# Before the call, a rank fills its own part.

# %% [markdown]
# ### One bit
#
# Take 1 bit: the sign. The scale is the mean absolute value of the block's numbers. **Error feedback** (Seide and others, 2014)
# keeps what the code did not say as a **residual**, and adds it to the next gradient: what is lost in one step comes later.

# %%
lab.predict(
    "one_bit",
    f"{ranks} ranks, a bit per number, and 4 bytes for each block of {block}. How many times fewer bytes than plain is that?",
    "times",
)

# %% [markdown]
# All ranks need the *same* average, to the last bit: weights that differ in a last bit may drift apart. And a sum of floats
# depends on its order. So every rank must add up in the same order.
#
# <details><summary>Hint 1</summary><code>np.packbits(total.numpy() >= 0)</code> makes bytes,
# <code>np.unpackbits(bytes, count=numbers)</code> bits again, <code>torch.from_numpy</code> tensors.</details>
# <details><summary>Hint 2</summary>Unpacked bits are uint8, which has no −1: change the dtype first.
# <code>scales.repeat_interleave(block)[:numbers]</code> is a scale for each number.</details>
# <details><summary>Hint 3</summary>Two all-gathers, of bytes and of scales. Decode all codes alike, your own too, and add them
# up from rank 0's on.</details>

# %% tags=["exercise:one_bit_average"]
# Exercise 14.1: one bit of each number, and the rest kept
def one_bit_average(fabric, gradient, residual, block):
    """Sends the signs of gradient + residual, 8 in a byte (0 or more: bit 1), and each block's mean |number|, its scale.

    Returns the mean over the ranks of sign · scale, [numbers], the same bits on all ranks, and this rank's new residual: what its
    own code does not say. Scales are in the gradient's dtype. The last block may be short. What is handed in stays as it is.
    """
    ### BEGIN SOLUTION
    n, total = fabric.world_size, gradient + residual
    bits = torch.from_numpy(np.packbits(total.numpy() >= 0))
    scales = torch.stack([part.abs().mean() for part in total.split(block)])

    all_bits, all_scales = bits.repeat(n), scales.repeat(n)
    all_gather(fabric, all_bits)
    all_gather(fabric, all_scales)

    sent = []
    for code, sizes in zip(all_bits.view(n, -1), all_scales.view(n, -1)):
        ones = torch.from_numpy(np.unpackbits(code.numpy(), count=len(total)))
        signs = 2 * ones.to(total.dtype) - 1
        sent.append(signs * sizes.repeat_interleave(block)[: len(total)])
    return sum(sent) / n, total - sent[fabric.rank]
    ### END SOLUTION

# %% tags=["check:one_bit_average"] points=1
check.one_bit_average(one_bit_average)

# %% [markdown]
# Now train with it: once as it should be, once with the residual thrown away at every step.

# %%
def one_bit(fabric, gradient, state, feedback=True):
    residual = state.get("residual", torch.zeros_like(gradient))
    average, rest = one_bit_average(fabric, gradient, residual, block)
    state["residual"] = rest * feedback
    return average

def one_bit_forgetful(fabric, gradient, state):
    return one_bit(fabric, gradient, state, feedback=False)

# %%
lab.predict("forgets", f"1 bit, no feedback: how much higher than plain's is the loss after {steps} steps?", "%")

# %%
ways |= {"1 bit": (train, one_bit), "1 bit, no feedback": (train, one_bit_forgetful)}
trainings("1 bit")
trainings("1 bit, no feedback")
if "1 bit" in trained:
    lab.measure("one_bit", sent("plain") / sent("1 bit"))
    lab.measure("forgets", median(gaps("1 bit, no feedback")))
    for seed in seeds:
        above = [last(name, seed) - last("plain", seed) for name in ("1 bit", "1 bit, no feedback")]
        print(f"seed {seed}: above plain by {above[0]:+.3f} with feedback, {above[1]:+.3f} without")
figures.bands(
    losses("plain", "bf16", "1 bit", "1 bit, no feedback"),
    figures.answered(
        "One bit of 32: does the loss end higher?", ends_higher(with_feedback="1 bit", without="1 bit, no feedback")
    ),
    x="step", y="loss on test images", paired=True,
)

# %% [markdown]
# **In one sentence:** by how much does all that a rank has sent differ from the sum of its gradients, after many steps?
#
# <details><summary>Compare</summary>By its last residual, after many steps as after one: each step sends gradient + old
# residual − new residual, and in the sum all residuals but the last cancel.</details>
#
# Fewer than 1 bit per number cannot be sent in this way. The next way leaves most numbers out.

# %% [markdown]
# ## Fewer numbers: the largest
#
# Are all numbers of a gradient equally important? **Top-k** sends only the $k$ that are largest in size, that is, in absolute
# value, each with its **index**, its place in the gradient: 4 bytes for the value and 4 for the index. Every rank chooses
# different ones, so nothing can be added up on the way: an all-gather again, of everybody's pairs.

# %%
k = int(share * numbers)
first = first_gradient(0)
squares = first.abs().topk(k).values.square().sum() / first.square().sum()
print(f"the largest {100 * share:g} % of a gradient hold {100 * squares:.0f} % of its squares")

# %%
lab.predict(
    "top_k", f"{ranks} ranks, 1 % of the numbers, with indices. How many times fewer bytes than plain does a rank send?", "times"
)

# %% [markdown]
# And the other 99 %? Thrown away, they are lost: what is small stays small, step after step, and may never be sent. So keep
# them as a residual again, and add it to the next gradient. A small number that always has the same sign adds up in the
# residual, until it is among the largest.
#
# <details><summary>Hint 1</summary><code>total.abs().topk(k).indices</code>. Send the values with their signs.</details>
# <details><summary>Hint 2</summary>Two all-gathers of n · k numbers: one of values in the gradient's dtype, one of
# <code>int32</code>. Each rank fills its own part first.</details>
# <details><summary>Hint 3</summary>Several ranks may send the same index, and <code>average[places] = values</code> would
# keep one of them. <code>index_add_(0, places.long(), values)</code> adds up.</details>

# %% tags=["exercise:top_k_average"]
# Exercise 14.2: the largest numbers, and the rest kept
def top_k_average(fabric, gradient, residual, k):
    """Sends the k numbers of gradient + residual that are largest by size: values of its dtype, and int32 indices.

    Returns the mean over the ranks of what was sent, [numbers], the same bits on all ranks, and
    this rank's new residual: what it did not send. Gradient and residual stay as they are. If several
    numbers have the size of the k-th, any of them will do, but k in all.
    """
    ### BEGIN SOLUTION
    n, mine = fabric.world_size, slice(fabric.rank * k, (fabric.rank + 1) * k)
    residual = gradient + residual
    chosen = residual.abs().topk(k).indices

    values = torch.zeros(n * k, dtype=residual.dtype)
    places = torch.zeros(n * k, dtype=torch.int32)
    values[mine], places[mine] = residual[chosen], chosen.int()
    residual[chosen] = 0

    all_gather(fabric, values)
    all_gather(fabric, places)
    return torch.zeros_like(residual).index_add_(0, places.long(), values) / n, residual
    ### END SOLUTION

# %% tags=["check:top_k_average"] points=1
check.top_k_average(top_k_average)

# %% [markdown]
# Now train with it: once as it should be, once with the residual thrown away at every step.

# %%
def top_k(fabric, gradient, state, share=share, feedback=True):
    residual = state.get("residual", torch.zeros_like(gradient))
    average, rest = top_k_average(fabric, gradient, residual, int(share * len(gradient)))
    state["residual"] = rest * feedback
    return average

def forgetful(fabric, gradient, state):
    return top_k(fabric, gradient, state, feedback=False)

# %%
lab.predict(
    "closed", "Without feedback the loss ends higher than plain's. What part of that gap does feedback close?", "%"
)

# %%
ways |= {"top 1 %": (train, top_k), "top 1 %, no feedback": (train, forgetful)}
trainings("top 1 %")
trainings("top 1 %, no feedback")
if "top 1 %" in trained:
    lab.measure("top_k", sent("plain") / sent("top 1 %"))
figures.bands(
    losses("plain", "top 1 %", "top 1 %, no feedback"),
    figures.answered(
        "99 % not sent: does the loss end higher?", ends_higher(with_feedback="top 1 %", without="top 1 %, no feedback")
    ),
    x="step", y="loss on test images", paired=True,
)

# %%
if "top 1 %" in trained:
    above = [(last("top 1 %, no feedback", s) - last("plain", s), last("top 1 %", s) - last("plain", s)) for s in seeds]
    closed = [100 * (1 - kept / opened) for opened, kept in above]
    lab.measure("closed", median(closed))
    for seed, (opened, kept), part in zip(seeds, above, closed):
        print(f"seed {seed}: above plain by {opened:+.3f} without feedback, {kept:+.3f} with it: {part:.0f} % closed")

# %% [markdown]
# ### When the largest are wrong
#
# Without feedback, top-k is slow. Can it be worse? Three ranks learn three weights; rank $i$'s loss is
# $\langle a_i,x\rangle^2+\frac14\lVert x\rVert^2$ with $a_i$ from $(-3,2,2)$, $(2,-3,2)$, $(2,2,-3)$. All three losses are
# lowest at $x=0$. At $x=(1,1,1)$ rank 0's gradient is $\frac12(-11,9,9)$, and the others' are like it. Each rank sends its
# largest number, $k=1$.

# %%
lab.predict("three", "From x = (1, 1, 1), rate 0.05, no feedback: how large is each weight after 40 steps?", "")

# %%
def three(fabric, feedback, k=1, steps=40):
    """The largest of the three weights after each step."""
    a = torch.tensor([2.0, 2.0, 2.0])
    a[fabric.rank] = -3.0
    x, residual, seen = torch.ones(3), torch.zeros(3), []
    for _ in range(steps):
        gradient = 2 * (a @ x) * a + x / 2
        average, rest = top_k_average(fabric, gradient, residual, k)
        residual = rest * feedback
        x = x - 0.05 * average
        seen.append(float(x.abs().max()))
    return seen

# %%
asked = {"all three sent": (True, 3), "one, feedback": (True, 1), "one, no feedback": (False, 1)}
runs = {name: launch(three, 3, args=settings) for name, settings in asked.items()}
found = {name: run[0] if run.state == "done" else None for name, run in runs.items()}
answer = None
if found["one, no feedback"]:
    lab.measure("three", found["one, no feedback"][-1])
    kept, lost = (found[name][-1] for name in ("one, feedback", "one, no feedback"))
    answer = f"with feedback {'up' if kept > 1 else 'down'} to {kept:.2g}, without {'up' if lost > 1 else 'down'} to {lost:.2g}"
asks = "One of three numbers: which way do the weights go?"
figures.histories(found, figures.answered(asks, answer), y="largest weight", log=True, growth=True)

# %% [markdown]
# **In one sentence:** why do the weights grow for ever, although each rank sends its most important number?
#
# <details><summary>Compare</summary>Each rank's largest number, −11/2, concerns a weight of its own, and the two other ranks'
# 9/2 against it are never sent: the mean of what is sent is −11/6 everywhere, and the whole gradients' mean is +7/6. With
# feedback the 9/2 add up in the residuals and get their turn.</details>

# %% [markdown]
# ### More ranks
#
# With many ranks an all-reduce costs a rank at most twice what it costs with two: $\frac{2(n-1)}n$ of the gradient. An
# all-gather costs $n-1$ times the rank's own part. So with enough ranks, even 1 % of the numbers cost more than all of them,
# and so does 1 bit of each.

# %%
lab.predict("crossing", "From how many ranks on does top 1 % send as much as a plain ring?", "ranks")

# %%
firsts = [first_gradient(rank) for rank in range(max(many))]

def pairs(fabric):
    """What part of the average is not zero; this rank sends the largest of its first gradient."""
    gradient = firsts[fabric.rank]
    average, _ = top_k_average(fabric, gradient, torch.zeros_like(gradient), int(share * len(gradient)))
    return int(average.count_nonzero()) / len(gradient)

def coded_from(bits):
    """From how many ranks on codes of `bits` bits cost a rank as much as a plain ring, by the formulas."""
    ring = cost.bytes_ring_all_reduce
    return next(n for n in range(2, 1000) if compression.coded_bytes(n, numbers, bits, block) >= ring(n, 4 * numbers))

# %%
# Helper: where two measured lines cross
def as_much(sends, others):
    """From how many ranks on the first sends as much as the second, on the line between two points."""
    parts = [(n, sent / other) for (n, sent), (_, other) in zip(sends, others)]
    for (n, below), (next_n, above) in zip(parts, parts[1:]):
        if below < 1 <= above:
            return n + (1 - below) / (above - below) * (next_n - n)

# %%
print("simulating", many, "ranks …")
simulated = {n: simulate(pairs, n) for n in many}
rings = {n: simulate(lambda fabric: all_reduce(fabric, torch.zeros(numbers)), n) for n in many}
written = simulated[many[0]].state == "done"
sends = [(n, run.trace.sent_bytes(0) if written else None) for n, run in simulated.items()]
plain_sends = [(n, run.trace.sent_bytes(0)) for n, run in rings.items()]
crossing = as_much(sends, plain_sends) if written else None
if crossing:
    lab.measure("crossing", crossing)
    print(f"as much from {crossing:.0f} ranks on; by the formulas from {compression.top_k_crossing(numbers, k):.0f}")
print(f"by the formulas codes of 8 bits send as much as plain from {coded_from(8)} ranks on, of 1 bit from {coded_from(1)}")
figures.curves(
    [
        figures.Curve("1 bit", predicted=[(n, compression.coded_bytes(n, numbers, 1, block)) for n in many]),
        figures.Curve(
            "top 1 %", simulated=sends, predicted=[(n, compression.top_k_bytes(n, k)) for n in many] if written else []
        ),
        figures.Curve(
            "plain", simulated=plain_sends, predicted=[(n, cost.bytes_ring_all_reduce(n, 4 * numbers)) for n in many]
        ),
    ],
    "Which sends less, with few ranks and with many?", x="ranks", y="each rank sends (bytes)", log=True,
)

# %% [markdown]
# Codes have a way out: each rank decodes and adds up one part of the gradient for all, codes the sum *again*, and sends it to
# everybody. 1-bit Adam does so (Tang and others, 2021), and what a rank sends no longer grows with the number of ranks.
#
# **In one sentence:** what does the second code cost, and what makes up for it?
#
# <details><summary>Compare</summary>A second error in each step. The rank that coded the sum keeps it, as a second
# residual.</details>

# %% [markdown]
# Why are the largest numbers not added up on the way, as in a ring? The sum of two sparse gradients has the indices of *both*:
# the **union** grows with every rank that adds its own. A pair takes 8 bytes, a number 4: once half of all numbers are in the
# sum, pairs save nothing. Is that so here? If each rank chose at random, the union of $n$ ranks would hold $1-(1-s)^n$ of all
# numbers, for a share $s$. Here is what real ranks choose, at first and after a while.

# %%
later = steps // 2
lab.predict(
    "union",
    f"{many[-1]} ranks train with top 1 % and feedback. What part of all numbers does somebody "
    f"send in step {later}?", "%",
)

# %%
def sparse_training(n, steps):
    """Plays n ranks with top 1 %. Of the last step: gradients, and gradients + residuals."""
    gradients = [learner(rank, seeds[0])[0] for rank in range(n)]
    weights = learner(0, seeds[0])[1]
    residuals = torch.zeros(n, numbers)
    for _ in range(steps):
        found = [gradient(weights) for gradient in gradients]
        totals, total = [], torch.zeros(numbers)
        for own, residual in zip(found, residuals):
            totals.append(own + residual)
            chosen = totals[-1].abs().topk(k).indices
            total[chosen] += totals[-1][chosen]
            residual.copy_(totals[-1])
            residual[chosen] = 0
        weights = weights - learning_rate * total / n
    return found, totals

def union(gradients):
    """What part of all numbers is among the largest of one of these gradients, in per cent."""
    chosen = torch.zeros(numbers, dtype=torch.bool)
    for gradient in gradients:
        chosen[gradient.abs().topk(k).indices] = True
    return 100 * float(chosen.float().mean())

# %%
print("playing", max(many), "ranks …")
bare, with_rest = sparse_training(max(many), later)
unions = {"step 1": firsts, f"step {later}, gradients alone": bare, f"step {later}": with_rest}
unions = {name: [(n, union(rows[:n])) for n in many] for name, rows in unions.items()}
lab.measure("union", unions[f"step {later}"][-1][1])
for name, points in unions.items():
    print(f"{many[-1]} ranks, {name}: somebody sends {points[-1][1]:.1f} % of all numbers;",
          f"by chance it would be {100 * compression.union_by_chance(share, many[-1]):.0f} %")
dense = unions[f"step {later}"][-1][1]
print(f"with {dense:.0f} % of the numbers in it, a sum as pairs has {2 * dense / 100:.2f} times",
      "the bytes of a whole gradient")

# %%
by_chance = [(n, 100 * compression.union_by_chance(share, n)) for n in many]
begun, _, ended = (points[-1][1] for points in unions.values())
stays = "yes" if abs(ended - begun) < 0.1 * begun else "no"
figures.curves(
    [*(figures.Curve(*row) for row in unions.items()), figures.Curve("by chance", predicted=by_chance)],
    figures.answered(
        f"How dense is a sum of {many[-1]} sparse gradients, and does it stay so?",
        f"{stays}: {begun:.0f} % in step 1, {ended:.0f} % in step {later}",
    ),
    x="ranks", y="numbers that somebody sends (%)", growth=True,
)

# %% [markdown]
# Where ranks agree on what is large, the union is smaller than by chance. Residuals make them disagree: a small number has its
# turn in another step on each rank. SparCML (Renggli and others, 2019) adds up pairs on the way, and turns to whole
# tensors once pairs save nothing.
#
# Deep Gradient Compression (Lin and others, 2018) reports 270 to 600 times less, with 0.1 % of the numbers; it handles momentum
# with care, and leaves out fewer numbers in the first epochs. These factors compare *one* gradient before and after: an
# all-gather then sends it $n-1$ times.

# %% [markdown]
# ## Fewer numbers: thin matrices
#
# Whatever adds up can go round a ring, for any number of ranks. So look for something small that adds up. The first layer's
# gradient is a matrix $M$ of `hidden` rows and 784 columns, one a pixel. A matrix of **rank** $r$ is a product $PQ^\top$ of two
# thin ones, $P$ with $r$ columns of `hidden` numbers and $Q$ with $r$ columns of 784. (Rank has two meanings. In the formulas
# below, $i$ is a process and $r$ a number of columns.)

# %%
shape = (hidden, 784)
big = hidden * 784
matrix = first[:big].view(shape)
print(f"M holds {100 * big / numbers:.1f} % of all numbers of a gradient")
strengths = torch.linalg.svdvals(matrix) ** 2
for r in (1, 2, 4, 8):
    print(f"the best matrix of rank {r} holds {100 * strengths[:r].sum() / strengths.sum():.0f} % of M, by squares")

# %%
lab.predict("thin", f"M is {hidden} × 784. How many times fewer numbers do P and Q have at rank {thin}?", "times")

# %% [markdown]
# The best $P$ and $Q$ come from a singular value decomposition, which is slow, and needs the $M$ of all ranks in one place.
# **Power iteration** avoids both: multiply by $M$ and by $M^\top$ in turn, and the strongest directions of $M$ win.
# **PowerSGD** (Vogels and others, 2019) takes one such turn a step, with a mean over the ranks $i$ in both halves:
#
# $$P=\operatorname{mean}_i M_iQ,\quad P\leftarrow\text{orthonormal columns of }P,\quad
# Q=\operatorname{mean}_i M_i^\top P,\quad \text{average}=PQ^\top$$

# %% [markdown]
# **Orthonormal** columns have length 1 and are at right angles; then $PP^\top M$ is the nearest to $M$ that they can make. Both
# means are small all-reduces. The next step begins with this $Q$: a **warm start**. What $PQ^\top$ lacks of this rank's $M$ is
# its residual, as before.
#
# <details><summary>Hint 1</summary><code>torch.linalg.qr(P).Q</code> has orthonormal columns. All ranks have the same bits
# in P after an all-reduce, so all get the same. Gram-Schmidt is right too, if no column of zeros is divided by its
# length.</details>
# <details><summary>Hint 2</summary>M is <code>gradient + residual</code> in both halves, this rank's own. Only the two means
# are everybody's.</details>

# %% tags=["exercise:power_sgd_average"]
# Exercise 14.3: two thin matrices
def power_sgd_average(fabric, gradient, residual, q):
    """One step of PowerSGD on M = gradient + residual, [rows, columns], from q, [columns, r], the same on all ranks.

    Returns the mean P Qᵀ, this rank's new residual M - P Qᵀ (or M - P Pᵀ M, with its own Mᵀ P: both have one mean over the
    ranks), and the Q for the next step. Two all-reduces. What is handed in stays as it is.
    """
    ### BEGIN SOLUTION
    m = gradient + residual
    p = torch.linalg.qr(all_reduce(fabric, m @ q) / fabric.world_size).Q
    q = all_reduce(fabric, m.T @ p) / fabric.world_size
    average = p @ q.T
    return average, m - average, q
    ### END SOLUTION

# %% tags=["check:power_sgd_average"] points=1.25
check.power_sgd_average(power_sgd_average)

# %% [markdown]
# One step of power iteration is crude. With a warm start the steps of a training add up to many. To see it, hand in the same
# gradient twelve times, without residuals: with the $Q$ of the call before, or with a new random one each time. No matrix of
# this rank is nearer to $M$ than the singular value decomposition's, so its distance is drawn too.

# %%
def repeated(fabric, matrix, warm, calls):
    """How far P Qᵀ is from the matrix after each call, in parts of its length."""
    draws, seen = torch.Generator().manual_seed(0), []
    q = torch.randn(matrix.shape[1], thin, generator=draws)
    for _ in range(calls):
        average, _, after = power_sgd_average(fabric, matrix, torch.zeros_like(matrix), q)
        q = after if warm else torch.randn(q.shape, generator=draws)
        seen.append(float((matrix - average).norm() / matrix.norm()))
    return seen

# %%
runs = {name: launch(repeated, 1, args=(matrix, name == "warm", 12)) for name in ("warm", "new each time")}
far = {name: run[0] if run.state == "done" else None for name, run in runs.items()}
best = float((strengths[thin:].sum() / strengths.sum()) ** 0.5)
warm, new = far.values()
answer = warm and f"first call {warm[0]:.2f}; twelfth: warm {warm[-1]:.2f}, best {best:.2f}; new {ranged(new, '.2f')}"
figures.histories(
    {**far, "the best there is": [best] * 12},
    figures.answered("How near does one step come, and what does a warm start add?", answer),
    x="call", y="distance from M", growth=True,
)

# %% [markdown]
# Now the training. What is not in $M$ (biases, the small last layer) travels as it is.

# %%
def low_rank(fabric, gradient, state, rank=thin):
    if not state:
        draws = torch.Generator().manual_seed(0)  # the same q on all ranks
        state |= {"residual": torch.zeros(shape), "q": torch.randn(shape[1], rank, generator=draws)}
    matrix, rest = gradient[:big].view(shape), gradient[big:].clone()
    average, state["residual"], state["q"] = power_sgd_average(fabric, matrix, state["residual"], state["q"])
    return torch.cat([average.flatten(), all_reduce(fabric, rest) / fabric.world_size])

# %%
ways["PowerSGD"] = (train, low_rank)
trainings("PowerSGD")
thinner = big / compression.low_rank_numbers([shape], thin)
lab.measure("thin", thinner)
if "PowerSGD" in trained:
    print(f"P and Q have {thinner:.0f} times fewer numbers than M. With what travels as it is, a step sends "
          f"{sent('plain') / sent('PowerSGD'):.0f} times fewer bytes than plain")
figures.bands(
    losses("plain", "PowerSGD", "top 1 %"),
    figures.answered(
        "Two thin matrices, or the largest numbers: does the loss end higher?",
        ends_higher(matrices="PowerSGD", largest="top 1 %"),
    ),
    x="step", y="loss on test images", paired=True,
)

# %% [markdown]
# ### The published table
#
# For a ResNet-18 on small images, trained by 16 ranks, Vogels and others (2019, their table for CIFAR-10) say how many bytes of
# gradients an epoch of plain training has, and how many times fewer with rank 1, 2 and 4. All of that follows from the shapes
# alone: they turn a convolution [out, in, 3, 3] into a matrix of `out` rows; vectors travel whole.

# %%
lab.predict("resnet", "ResNet-18, 11.2 million numbers, rank 1: how many times fewer numbers travel?", "times")

# %%
net = resnet(18, classes=10)
net[0] = nn.Conv2d(3, 64, 3, padding=1, bias=False)  # the stem for small images
shapes = [p.shape for p in net.parameters()]
whole = sum(map(math.prod, shapes))
epoch_steps = 50_000 // (16 * 128)  # 16 ranks, batches of 128
print(f"plain: {whole / 1e6:.1f} million numbers per step, {whole * 4 * epoch_steps / 2**20:,.0f} MiB an epoch; published: 1,023")
for rank, published in ((1, 243), (2, 136), (4, 72)):
    times = whole / compression.low_rank_numbers(shapes, rank)
    print(f"rank {rank}: {times:.0f} times less; published: {published}")
    if rank == 1:
        lab.measure("resnet", times)

# %% [markdown]
# ## PyTorch's own
#
# PyTorch's DistributedDataParallel (DDP) averages gradients inside backward, in **buckets**: flat tensors of many gradients. It
# takes a **communication hook**, a function that it calls with each full bucket in place of its all-reduce. Some come with
# PyTorch, `bf16_compress_hook` and `powerSGD_hook` among them. Does DDP accept the first on CPUs, over gloo?

# %%
def hooked(hook, options, steps, seed):
    """A training by DDP with PyTorch's hook: the loss at its end."""
    logging.getLogger(powerSGD_hook.__name__).setLevel(logging.ERROR)  # else it reports its settings
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = mlp(sizes, seed)
    ddp = nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(powerSGD_hook.PowerSGDState(None, **options) if options else None, hook)
    draws = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    for _ in range(steps):
        model.zero_grad()
        rows = torch.randint(len(images), (batch,), generator=draws)
        F.cross_entropy(ddp(images[rows].flatten(1)), labels[rows]).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= learning_rate * p.grad
    return test_loss(flat(list(model.parameters())))

try:
    launch(hooked, ranks, args=(default_hooks.bf16_compress_hook, None, 2, 0))
except RankFailed as failed:
    print(str(failed).splitlines()[0])

# %% [markdown]
# DDP recognizes the hook by its name, and requires NCCL (or Intel's XCCL), a library for GPUs. But gloo can add up bf16 too:
# wrapped in a function of another name, the hook works. PowerSGD needs no such trick. It compresses from step
# `start_powerSGD_iter` on. We leave that at its default once, and set it to 2 once.

# %%
lab.predict(
    "default", f"powerSGD_hook with its default start, {steps} steps: how many times fewer bytes does it send than plain?",
    "times",
)

# %%
def wrapped_bf16(_, bucket):
    return default_hooks.bf16_compress_hook(None, bucket)

power = powerSGD_hook.powerSGD_hook
hooks = {
    "plain": (default_hooks.allreduce_hook, None),
    "bf16": (wrapped_bf16, None),
    "PowerSGD, default start": (power, {"matrix_approximation_rank": thin}),
    "PowerSGD, from step 2": (power, {"matrix_approximation_rank": thin, "start_powerSGD_iter": 2}),
}

# %%
def in_collectives(run):
    """The bytes that rank 0's all-reduces put on the network in a step, by the ring's formula."""
    calls = [c for c in run.trace.collectives if c.rank == 0 and c.op == "all_reduce"]
    return sum(sharding.bytes_sent_by(c.op, c.size_bytes, ranks) for c in calls) / steps

theirs = {}
for name, given in hooks.items():
    print(f"PyTorch's {name}: ", end="", flush=True)
    with unobserved():  # no picture of each launch
        theirs[name] = run = launch(hooked, ranks, args=(*given, steps, seeds[0]))
    print(f"{in_collectives(run) / 1e3:,.1f} kB per step, loss {run[0]:.3f}")
for name in ("plain", "bf16", "PowerSGD"):
    if name in trained:
        print(f"yours, {name}: {sent(name) / 1e3:,.1f} kB per step, loss {last(name, seeds[0]):.3f}")
lab.measure("default", in_collectives(theirs["plain"]) / in_collectives(theirs["PowerSGD, default start"]))

# %% [markdown]
# By default `start_powerSGD_iter` is 1,000, so a shorter training compresses nothing. With 2, the least that it takes with
# error feedback, two things differ from yours. PyTorch's PowerSGD makes thin matrices of the last layer too, which saves bytes;
# and its first two steps are plain, which costs some. Which matters more in so short a training? The late start has a reason:
# its documentation says that the beginning of a training is usually very sensitive to inexact gradients.

# %% [markdown]
# ## Fewer messages
#
# The third way sends all numbers, but seldom. Each rank takes $H$ steps *alone*; then the ranks average their **weights**. That
# is **local SGD**. **DiLoCo** (Douillard and others, 2023) adds an idea: take what a round has changed, the start minus the
# mean of the ends, as a gradient, the **outer gradient**, and let a separate optimizer step along it, with momentum.

# %% [markdown]
# PyTorch's SGD with Nesterov momentum $\mu$ and rate $\eta$ takes this step, with $v=0$ before the first:
#
# $$v\leftarrow\mu v+g,\qquad x\leftarrow x-\eta\,(g+\mu v)$$
#
# <details><summary>Hint 1</summary>With rate 1 and momentum 0 the outer step must end at the mean of the ranks' ends.</details>
# <details><summary>Hint 2</summary>You still need the round's start after <code>train_locally</code>.</details>

# %% tags=["exercise:local_sgd"]
# Exercise 14.4: local steps and an outer step
def local_sgd(fabric, weights, train_locally, rounds, rate, momentum):
    """Rounds 0, 1, … of train_locally(weights, round), each from the same weights on all ranks, and an outer step after each.

    The outer gradient is the start minus the mean of the ranks' ends. The step is torch.optim.SGD's, with Nesterov momentum.
    One all-reduce per round. train_locally may write into the weights that it is given; what counts
    is what it returns. Returns the weights; those that were handed in stay as they are, and so does
    what train_locally returns.
    """
    ### BEGIN SOLUTION
    velocity = torch.zeros_like(weights)
    for round in range(rounds):
        end = train_locally(weights.clone(), round)
        outer = weights - all_reduce(fabric, end.clone()) / fabric.world_size
        velocity = momentum * velocity + outer
        weights = weights - rate * (outer + momentum * velocity)
    return weights
    ### END SOLUTION

# %% tags=["check:local_sgd"] points=1
check.local_sgd(local_sgd)

# %%
def seldom(fabric, how, steps, seed, seconds, own=None):
    """Rounds of local steps, each followed by your outer step. how: (steps of a round, outer rate, momentum)."""
    every, rate, momentum = how
    gradient, start = learner(fabric.rank, seed, own)
    seen = []

    def train_locally(weights, round):
        if round and round * every % 4 == 0:
            seen.append((round * every, time.monotonic() - begin_s, weights.clone()))
        for _ in range(every):
            weights = weights - learning_rate * gradient(weights)
            fabric.compute(seconds)
        return weights

    meet(fabric)  # all ranks begin together
    begin_s = time.monotonic()
    weights = local_sgd(fabric, start, train_locally, steps // every, rate, momentum)
    return curve_of(fabric, [*seen, (steps // every * every, time.monotonic() - begin_s, weights)])

# %%
lab.predict(
    "seldom",
    f"16 steps alone, an average, and again: how much higher than plain's is the loss after {steps} steps? (Lower: below 0.)",
    "%",
)

# %%
outer_rate, momentum = 0.7, 0.5
gain = outer_rate / (1 - momentum)  # how far a gradient moves the weights in the end, in all rounds that its momentum lasts
faster = f"plain, {gain:.1f} times the rate"

def at_higher_rate(fabric, times, steps, seed, seconds):
    return train(fabric, plain, steps, seed, seconds, times * learning_rate)

ways |= {
    "local SGD": (seldom, (every, 1.0, 0.0)), "16 alone": (seldom, (16, 1.0, 0.0)),
    "16 alone, DiLoCo": (seldom, (16, outer_rate, momentum)), faster: (at_higher_rate, gain),
}
for name in ("local SGD", "16 alone", "16 alone, DiLoCo", faster):
    trainings(name)
if "16 alone" in trained:
    lab.measure("seldom", median(gaps("16 alone")))
asks = f"An average every {every} steps, or every 16: does the loss end higher?"
figures.bands(
    losses("plain", "local SGD", "16 alone"), figures.answered(asks, ends_higher(often="local SGD", seldom="16 alone")),
    x="step", y="loss on test images", paired=True,
)

# %% [markdown]
# DiLoCo's outer step with rate $\eta$ and momentum $\mu$ moves the weights by $\frac{\eta}{1-\mu}$ times the outer gradient,
# once the momentum has built up. So, compared with plain averaging, it has a higher rate as well. Which of the two helps?

# %%
asks = "DiLoCo beside plain averaging at as high a rate: is its loss lower?"
figures.bands(
    losses("plain", faster, "16 alone", "16 alone, DiLoCo"), figures.answered(asks, beside("16 alone, DiLoCo", faster)),
    x="step", y="loss on test images", paired=True,
)

# %% [markdown]
# Alone, each rank follows the noise of its own draws, and nothing holds the ranks together until the round is over. Does that
# show here? Turn the knobs: with which rounds does the loss end higher? (With rounds of one step, rate 1 and no momentum, local
# SGD *is* plain averaging.)

# %%
# Helper: one training with other rounds, with knobs
def try_rounds(every=16, outer_rate=0.7, momentum=0.5):
    run = launch(seldom, ranks, args=((every, outer_rate, momentum), steps, seeds[0], 0.0))
    rows = {"plain": losses("plain")["plain"][:1]}
    rows[f"rounds of {every}"] = [[(step, loss) for step, _, loss in run[0]]] if run.state == "done" else None
    answer = None
    if run.state == "done":
        above = 100 * (run[0][-1][2] / last("plain", seeds[0]) - 1)
        keeps_up = "yes" if above < 1 else "no"
        answer = f"{keeps_up}: {percent(above)} beside plain (seed {seeds[0]})"
    asks = figures.answered(f"Rounds of {every} steps: does the loss keep up?", answer)
    return figures.bands(rows, asks, x="step", y="loss on test images")

# %%
knobs(try_rounds, every=[1, 4, 16, 32], outer_rate=[0.4, 0.7, 1.0], momentum=[0.0, 0.5, 0.9])

# %% [markdown]
# DiLoCo's authors train language models with 8 workers that average every 500 steps, and report 500 times less communication
# with the quality of averaging at each step. That is their result. Their inner optimizer is AdamW, which gives each weight a
# step size of its own, and their outer momentum is 0.9, not 0.5. Ours is the same algorithm, run for seconds, with plain
# gradient descent inside. PyTorch itself averages weights with `PostLocalSGDOptimizer`; torchft, its library for fault
# tolerance, has `DiLoCo`.

# %% [markdown]
# ### Ranks with other data
#
# So far each rank drew from *all* images. Phones, hospitals and shops cannot: each has data of its own. So sort the images by
# label and give each rank a part. Alone, each rank moves towards its own classes, away from what suits all images: this is
# **drift**. The average undoes a part of it. To see nothing but drift, let the outer step have rate 1 and no momentum: then
# local steps and plain averaging have the same rate.

# %%
parts = labels.argsort(stable=True).tensor_split(ranks)
lengths = [length for length in alone if length <= steps]
for rank, own in enumerate(parts):
    print(f"rank {rank}: {len(own):,} images of the classes {sorted(set(labels[own].tolist()))}")

# %%
lab.predict(
    "drift",
    f"{lengths[-2]} steps alone, with images sorted by label: how much higher is the loss after {steps} steps than with "
    "an average at each step?", "%",
)

# %%
def ends_after(fabric, rounds, by_class):
    """{steps of a round: the loss at the end for each seed}, on rank 0."""
    own, found = parts[fabric.rank] if by_class else None, {}
    for length in rounds:
        curves = [seldom(fabric, (length, 1.0, 0.0), steps, seed, 0.0, own) for seed in seeds]
        found[length] = [curve[-1][2] for curve in curves if curve]
    return found

# %%
ends = {}
for name in ("all images", "own classes"):
    print(f"{name}, rounds of {', '.join(map(str, lengths))} steps …", flush=True)
    with unobserved():  # no picture of each launch
        run = launch(ends_after, ranks, args=(lengths, name == "own classes"))
    ends[name] = run[0] if run.state == "done" else None

# %%
def higher(found, length):
    """By how many per cent rounds of this length end above an average at each step, for each seed."""
    return [100 * (one / each - 1) for one, each in zip(found[length], found[lengths[0]])]

for name, found in ends.items():
    for length in lengths[1:] if found else []:
        lows, above = found[length], higher(found, length)
        print(f"{name}, {length} alone: loss {ranged(lows, '.3f')}, {percent(median(above))}, "
              f"higher in {sum(x > 0 for x in above)} of {len(seeds)} seeds")
answer = None
if ends["own classes"]:
    lab.measure("drift", median(higher(ends["own classes"], lengths[-2])))
    answer = "; ".join(f"{name}: {judged(higher(found, lengths[-1]))}" for name, found in ends.items())
figures.bands(
    {
        name: [[(length, found[length][k]) for length in lengths] for k in range(len(seeds))] if found else None
        for name, found in ends.items()
    },
    figures.answered(f"{lengths[-1]} steps alone instead of one: does the loss end higher?", answer),
    x="round length", y="loss at the end", paired=True,
)

# %% [markdown]
# **In one sentence:** why does averaging at *each* step not care who has which classes?
#
# <details><summary>Compare</summary>All ranks take their gradients at the same weights, and the mean of these is the gradient
# on all images. After a step alone the weights differ: each rank's next gradient leads on towards its own classes, and nothing
# from the others pulls it back.</details>
#
# SCAFFOLD (Karimireddy and others, 2020) is a remedy: the ranks send one more tensor a round, with which each corrects its steps.

# %% [markdown]
# ## When does it pay?
#
# Compressing takes time, and training may take more steps. So the race is about the *time to a target*, here a test loss. Three
# numbers of each way decide: the **steps** $S$ until it gets there, the **work** $w$ of a step (all that is not sending), and
# the **bytes** $b$ that a rank sends in a step:
#
# $$\text{time}=S\left(w+\frac bB\right)\quad\text{at a bandwidth of }B$$
#
# Two things are left out: what is sent *while* a gradient is computed (Lab 11) costs less, and each message has a latency,
# whatever its size. Which of the ways saves latency?
#
# <details><summary>Compare</summary>Only fewer messages: rounds of H steps need one all-reduce in H steps. The others send as
# many messages as plain, or more, each of them smaller.</details>

# %%
# Helper: the three numbers of each way, measured
def reached(curve):
    """(step, seconds) at which the loss first reaches the target, on the line between two looks; None if it never does."""
    before = None
    for step, seconds, loss in curve:
        if loss <= target:
            part = (before[2] - target) / (before[2] - loss) if before else 1
            step0, seconds0 = before[:2] if before else (0, 0.0)
            return step0 + part * (step - step0), seconds0 + part * (seconds - seconds0)
        before = (step, seconds, loss)
    return None

def measured(name):
    """A way's three numbers, of the work only the declared part, and its steps with each seed. None if not yet."""
    curves = trained[name][0] if name in trained else []
    ends = [reached(curve) for curve in curves]
    if not ends or None in ends:
        return None
    by_seed = [step for step, _ in ends]
    return {"steps": median(by_seed), "work_s": work_s, "bytes": sent(name), "by_seed": by_seed}

def winners(bars):
    """Who is at the target first over the slowest and the fastest links, or nobody."""
    found = []
    for speed, text in (("slow", bandwidths[0]), ("fast", bandwidths[-1])):
        name = figures.first(bars[text]) or "nobody"
        if " of " not in name:  # as in "3 of 6 tie"
            name = name.removesuffix(" tie").replace(" and ", ", ")
        found.append(f"{speed}: {name}")
    return "; ".join(found)

# %%
# Helper: the work of a step, timed in turns
def in_turns(fabric, names, rounds=5):
    """{name: seconds of a step, in each of the rounds}: one way after the other takes a few steps, and again."""
    took = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            fn, how = ways[name]
            curve = fn(fabric, how, 4 * every, seeds[0], 0.0)
            if curve:
                (step0, seconds0, _), *_, (step1, seconds1, _) = curve
                took[name].append((seconds1 - seconds0) / (step1 - step0))
    return took

# %%
racers = ["plain", "bf16", "1 bit", "top 1 %", "PowerSGD", "local SGD"]
entries = {name: measured(name) for name in racers}
with unobserved():  # no picture of this launch
    turns = launch(in_turns, ranks, args=([name for name in racers if entries[name]],))[0]
for name, took in turns.items():
    entries[name]["work_s"] += median(took)
apart = {name: max(took) / min(took) for name, took in turns.items()}
if max(apart.values(), default=1) > 2:
    worst = max(apart, key=apart.get)
    print(f"{worst}: its rounds are up to {apart[worst]:.1f} times apart. Was this machine busy? Then run this cell once more.")
for name, e in entries.items():
    if not e:
        print(f"{name}: not written yet, or not at {target} after {steps} steps")
        continue
    times = [1e3 * (work_s + took_s) for took_s in turns[name]]
    print(f"{name}: {e['steps']:.0f} steps to {target} ({ranged(e['by_seed'])}), "
          f"{median(times):.1f} ms of work ({ranged(times, '.1f')}), {e['bytes'] / 1e3:.1f} kB")

# %% [markdown]
# The work of a step was timed just now, the ways in turns, so that whatever else this machine does affects all of them. There
# was no slow link, so all of a step is work: the real gradient, compressing, handing messages to the system. The declared
# milliseconds come on top. Steps differ from seed to seed, and work from round to round: the line gives medians and, in brackets,
# from the least to the most. Now: below which bandwidth does another way reach the target before plain?
#
# <details><summary>Hint</summary>Set both times equal and solve for B. Then think: what if the other way saves no bytes? Over
# slow enough links bytes decide. And what if it saves bytes and costs no time?</details>

# %% tags=["exercise:pays_below"]
# Exercise 14.5: when does it pay?
def pays_below(plain, other):
    """The bandwidth, in bytes per second, below which `other` reaches the target before `plain`; math.inf if it does at any.

    Return 0.0 if `other` is nowhere strictly first, or is first only above some bandwidth. Each is a dict, and stays as it is:
    {"steps": to the target, with a fraction (math.inf: never reached), "work_s": of a step without sending, "bytes": a rank sends
    a step}.
    """
    ### BEGIN SOLUTION
    if other["steps"] == math.inf:
        return 0.0
    saved_bytes = plain["steps"] * plain["bytes"] - other["steps"] * other["bytes"]
    added_s = other["steps"] * other["work_s"] - plain["steps"] * plain["work_s"]
    if saved_bytes <= 0:
        return math.inf if saved_bytes == 0 and added_s < 0 else 0.0
    return saved_bytes / added_s if added_s > 0 else math.inf
    ### END SOLUTION

# %% tags=["check:pays_below"] points=0.75
check.pays_below(pays_below)

# %%
lab.predict("pays", "From steps, work and bytes: below which bandwidth does top 1 % win against plain?", "MB/s")

# %%
def bounds(name, plain="plain"):
    """Your answers for this way against plain, one for each round of the timing; None where it is not written yet."""
    if not (entries[name] and entries[plain]):
        return None
    pairs = [
        [{**entries[who], "work_s": work_s + took_s} for who, took_s in zip((plain, name), pair)]
        for pair in zip(turns[plain], turns[name])
    ]
    try:
        return sorted(pays_below(*pair) for pair in pairs)
    except NotYet:
        return None

def where(bound):
    return {0: "at no bandwidth", math.inf: "at any bandwidth"}.get(bound, f"below {bound / 1e6:,.0f} MB/s")

for name in racers[1:]:
    if found := bounds(name):
        told_by = dict.fromkeys(map(where, (found[0], found[-1])))
        print(f"{name} wins against plain", " by one round of the timing, ".join(told_by), "by another" * (len(told_by) > 1))
middle = median(bounds("top 1 %") or [math.inf])
lab.measure("pays", middle / 1e6 if middle < math.inf else None)

# %%
thin_numbers = compression.low_rank_numbers([shape, (numbers - big,)], thin)
at_64 = {
    "plain": cost.bytes_ring_all_reduce(64, 4 * numbers),
    "1 bit": compression.coded_bytes(64, numbers, 1, block),
    "top 1 %": compression.top_k_bytes(64, int(share * numbers)),
    "PowerSGD": cost.bytes_ring_all_reduce(64, 4 * thin_numbers),
}
print("each of 64 ranks would send per step:",
      ", ".join(f"{name} {size / 1e3:,.0f} kB" for name, size in at_64.items()))

# %% [markdown]
# Where two rounds of the timing say different things, the work of the two ways is too near to tell. And all of this is for two
# ranks, where an all-gather is cheapest: the last line shows what is left of the savings with 64.
#
# And now the race itself, over real messages on links of three bandwidths. Each way trains until it reaches the target, with each
# seed, one way after the other. Ways whose times overlap tie.

# %%
# Helper: the race
def race(fabric):
    """{name: seconds to the target, with each seed}, one way after the other. A seed that does not reach it is left out."""
    found = {name: [] for name in racers}
    for k, seed in enumerate(seeds):
        for name in racers:
            if entries[name]:
                fn, how = ways[name]
                enough = every * math.ceil((entries[name]["by_seed"][k] + 2) / every)
                curve = fn(fabric, how, enough, seed, work_s)
                if curve and reached(curve):
                    found[name].append(reached(curve)[1])
    return found

def over(bandwidth):
    """{name: seconds to the target, with each seed} over links of this bandwidth."""
    print(bandwidth, "…", flush=True)
    with unobserved():  # no picture of each launch
        return launch(race, ranks, link=Link(bandwidth), timeout_s=300)[0]

def foretold(name, bandwidth):
    e = entries[name]
    return compression.seconds_to_target(e["steps"], e["work_s"], e["bytes"], bandwidth)

# %%
speeds = {text: Link(text).bandwidth_bytes_per_s for text in bandwidths}
raced = {text: over(text) for text in bandwidths}

# %% tags=["cover"]
bars = {
    text: [
        figures.Timing(
            name, median(took) if took else None, foretold(name, speeds[text]) if entries[name] else None,
            group=text, repeats_s=took,
        )
        for name, took in raced[text].items()
    ]
    for text in bandwidths
}
figures.races(
    [bar for text in bandwidths for bar in bars[text]],
    figures.answered(f"Who is first at a loss of {target}, over slow links and over fast ones?", winners(bars)),
)

# %%
for text in bandwidths:
    times = {bar.name: bar.measured_s for bar in bars[text] if bar.measured_s}
    if "plain" in times:
        by_formula = min(times, key=lambda name: foretold(name, speeds[text]))
        gain = times["plain"] / min(times.values())
        print(f"{text}: first: {figures.first(bars[text])}; by the formula: {by_formula};",
              f"plain takes {gain:.1f} times as long as the shortest")
    late = {name: seconds / foretold(name, speeds[text]) for name, seconds in times.items()}
    if late and max(late.values()) > 1.3:
        worst = max(late, key=late.get)
        print(f"{text}: {worst} took {late[worst]:.1f} times as long as its three numbers say: was this machine busy?")

# %% [markdown]
# **In one sentence:** what must be true of a cluster for compression to pay?
#
# <details><summary>Compare</summary>Its network must be so slow for the model that saving the bytes is worth what compressing
# costs in work and in steps. The time of the bytes falls as the bandwidth grows; the work does not. A way that sends less and
# costs neither work nor steps may win anywhere.</details>
#
# On most people's clusters it does not pay: Agarwal and others (2022) compared more than 200 set-ups in data centres, and found
# a speedup over a well-made plain training in 6 of them.

# %% [markdown]
# ## Low precision in the whole step
#
# So far a gradient was computed in float32, and only the wire had fewer bits. Large runs compute in 16 bits as well: a GPU's
# units for matrix products are faster there, and tensors take half the memory. A float is a sign, an **exponent** that says how
# large it is, and a **fraction** that says how exactly; e4m3 has 4 and 3 bits of them, e5m2 5 and 2. Of the formats with 16 and
# 8 bits, which covers the widest range, and which has the finest steps?

# %%
formats = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
    "fp8 e4m3": torch.float8_e4m3fn, "fp8 e5m2": torch.float8_e5m2,
}
for name, dtype in formats.items():
    info = torch.finfo(dtype)
    print(f"{name:9} {info.bits:2} bits, largest {info.max:.3g}, smallest with all digits {info.smallest_normal:.2g}, smallest "
          f"{info.smallest_normal * info.eps:.2g}, the next number after 1 is {info.eps:.2g} larger")

# %% [markdown]
# ### A sum that stands still
#
# Round a ring a chunk meets one rank after another, and each adds its number. In bf16 each of these sums is rounded to 8
# significant bits before it travels on. Here is what happens to one number on its way.

# %%
lab.predict("ones", "1,000 ranks hold 1.0 each, and add up one after the other in bf16. What is the sum?", "")

# %%
total = torch.tensor(0.0, dtype=torch.bfloat16)
for _ in range(1000):
    total = total + torch.tensor(1.0, dtype=torch.bfloat16)
lab.measure("ones", float(total))
print(f"bf16: {float(total):g}; the next bf16 number after it is {float(total) * (1 + torch.finfo(torch.bfloat16).eps):g}")

# %% [markdown]
# From some sum on, one more is less than half the distance to the next number, and is rounded away. Gradients have both signs,
# so it is not as bad with them. How bad is it? Take the real first gradients, and compare the sum on the wire with one in
# float64. Beside it: the same numbers rounded to bf16 once, but added up exactly.

# %%
summing = many[: max(2, len(many) - 1)]
lab.predict("rounded", f"{summing[-1]} ranks, a ring in bf16: how far is the sum from the exact one, in % of its length?", "%")

# %%
def off(got, exact):
    """By how many per cent of its length a tensor differs from the exact one."""
    return 100 * float((got.double() - exact.double()).norm() / exact.double().norm())

added, once = [], []
for n in summing:
    exact = torch.stack(firsts[:n]).double().sum(dim=0)
    run = simulate(lambda fabric: all_reduce(fabric, firsts[fabric.rank].bfloat16()), n)
    added.append((n, off(run[0], exact)))
    once.append((n, off(torch.stack(firsts[:n]).bfloat16().double().sum(dim=0), exact)))
lab.measure("rounded", added[-1][1])
(few, begun), *_, (most, ended) = added
answer = f"{'yes' if ended > 1.2 * begun else 'no'}: {begun:.2g} % off with {few} ranks, {ended:.2g} % with {most}"
figures.curves(
    [figures.Curve("added up in bf16", simulated=added), figures.Curve("rounded once", simulated=once)],
    figures.answered("More ranks: does a sum in bf16 get worse?", answer), x="ranks", y="off the exact sum (%)", log=True,
)

# %% [markdown]
# **In one sentence:** why does the error of the numbers that are rounded once fall with more ranks?
#
# <details><summary>Compare</summary>Each rank's roundings are independent, so they partly cancel, while the sum itself grows. On
# the ring every addition rounds the whole sum anew.</details>
#
# Hence many trainings gather weights in bf16, and add up gradients in float32.

# %% [markdown]
# ### Weights that stand still
#
# The same happens inside a rank: a step adds a small number to a weight. Two bf16 numbers near 0.03 lie 0.0001 apart, and a
# change of less than half of that is rounded away. So keep the weights in float32, the **master weights**, and hand a bf16 copy
# to the forward and backward pass. Below, the rate is a tenth of before. Here are the sizes of weights and steps.

# %%
def quartiles(x):
    """How large the numbers of a tensor are: a quarter is no larger than the first size, and so on."""
    of_size = x.abs().quantile(torch.tensor([0.25, 0.5, 0.75, 1.0])).tolist()
    parts = ("a quarter", "half", "three quarters", "all")
    return ", ".join(f"{part} up to {size:.2g}" for part, size in zip(parts, of_size))

gradient, weights = learner(0, seeds[0])
low = weights.bfloat16()
first_step = learning_rate / 10 * gradient(low.float())
print("weights:", quartiles(low.float()))
print("changes of the first step:", quartiles(first_step))

# %%
lab.predict("moves", f"Weights in bf16, rate {learning_rate / 10:g}: what part of the weights does the first step change?", "%")

# %%
def in_bf16(fabric, master, steps, seed, seconds):
    """As `train`, at a tenth of the rate, with weights in bf16: a copy of float32 master weights, or nothing but them."""
    gradient, weights = learner(fabric.rank, seed)
    weights = weights if master else weights.bfloat16()
    seen = []
    for step in range(1, steps + 1):
        mean = plain(fabric, gradient(weights.bfloat16().float()), {})
        weights = weights - (learning_rate / 10 * mean).to(weights.dtype)
        if step % 4 == 0 or step == steps:
            seen.append((step, 0.0, weights.float()))
    return curve_of(fabric, seen)

def moved(change):
    """What part of the bf16 weights this change moves, in per cent."""
    return 100 * float((low - change.bfloat16() != low).float().mean())

lab.measure("moves", moved(first_step))
print(f"at ten times the rate: {moved(10 * first_step):.0f} %")

# %%
slow = f"float32, rate {learning_rate / 10:g}"
ways |= {slow: (at_higher_rate, 0.1), "bf16 weights": (in_bf16, False), "bf16, float32 master": (in_bf16, True)}
for name in (slow, "bf16 weights", "bf16, float32 master"):
    trainings(name)
figures.bands(
    losses(slow, "bf16 weights", "bf16, float32 master"),
    figures.answered(
        "Weights in bf16: does the loss end higher?",
        ends_higher(slow, alone="bf16 weights", with_master="bf16, float32 master"),
    ),
    x="step", y="loss on test images", paired=True,
)

# %% [markdown]
# That is what the 12 bytes beside each 16-bit weight were for, in Lab 12's table: a master copy and Adam's two means, in
# float32. At ten times the rate, where this lab trained so far, most updates of the first step are large enough to count. Rates
# fall during a training: so it is the end that a training without master weights loses.

# %% [markdown]
# ### Eight bits
#
# An fp8 number has 8 bits, and still an exponent of its own. An int8 code has none: all its numbers count in the unit of their
# scale. Before a cast to fp8, too, one divides by a scale, so that the largest number becomes the largest fp8 number. The scale
# may belong to a whole tensor, or to a block. What if one casts without a scale? What is smaller than half of a format's
# smallest number (see the table above) becomes 0.

# %%
own = first_gradient(0)
print("a gradient:", quartiles(own))

# %%
lab.predict("vanish", "A gradient cast to e4m3 as it is, without a scale: what part of its numbers becomes 0?", "%")

# %%
def coded(x, dtype, size=None):
    """x as it comes out of codes of this dtype, with a scale for each block of this size; None: without a scale."""
    if size is None:
        return x.to(dtype).float()
    top = 127 if dtype == torch.int8 else torch.finfo(dtype).max
    parts = []
    for part in x.split(size):
        scale = part.abs().max() / top
        code = (part / scale).round() if dtype == torch.int8 else part / scale
        parts.append(code.to(dtype).float() * scale)
    return torch.cat(parts)

spiked = own.clone()
spiked[0] = 100 * own.abs().max()
zeros = {}
for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2), ("int8", torch.int8)):
    for scaled, size in (("no scale", None), ("one scale", numbers), (f"a scale for {block}", block)):
        if (name, size) != ("int8", None):
            out, with_spike = coded(own, dtype, size), coded(spiked, dtype, size)
            zeros[name, size] = 100 * float((out == 0).float().mean())
            print(f"{name}, {scaled}: {off(out, own):.1f} % off, {zeros[name, size]:.1f} % became 0; beside a number "
                  f"100 times the largest {off(with_spike[1:], own[1:]):.1f} % off")
lab.measure("vanish", zeros["e4m3", None])

# %% [markdown]
# **In one sentence:** one number is far larger than all others. Why does int8 need a scale for each block then, and fp8 not?
#
# <details><summary>Compare</summary>The large number sets the scale. int8 counts all others in that unit, so they become 0. e4m3
# has an exponent for each number, and holds all its digits down to some 30,000 times below the largest.</details>
#
# Without such a number int8 with scales for blocks is the more exact of the two. What fp8 buys is range, and units of a GPU that
# multiply it. With outliers beyond its range fp8 needs blocks as well: DeepSeek-V3 (2024) was trained with a scale for each 128
# numbers of an activation, and for each block of 128 × 128 weights.

# %%
def fp8(fabric, gradient, state):
    """Codes in e4m3 and their scales travel to all ranks; each adds up in float32."""
    n, parts = fabric.world_size, gradient.split(block)
    scales = torch.stack([part.abs().max() / torch.finfo(torch.float8_e4m3fn).max for part in parts]).clamp_min(1e-30)
    unit = scales.repeat_interleave(block)[: len(gradient)]
    codes = (gradient / unit).to(torch.float8_e4m3fn).view(torch.uint8).repeat(n)  # bytes: gloo knows no fp8
    scales = scales.repeat(n)
    all_gather(fabric, codes)
    all_gather(fabric, scales)
    total = torch.zeros_like(gradient)
    for code, scale in zip(codes.view(n, -1), scales.view(n, -1)):
        total += code.view(torch.float8_e4m3fn).float() * scale.repeat_interleave(block)[: len(gradient)]
    return total / n

ways["fp8"] = (train, fp8)
trainings("fp8")

# %%
at_work = {
    "bf16": own.bfloat16(), "fp8": coded(own, torch.float8_e4m3fn, block), "int8": coded(own, torch.int8, block),
    "1 bit": torch.cat([part.sign() * part.abs().mean() for part in own.split(block)]),
}
at_work = {name: off(decoded, own) for name, decoded in at_work.items()}
scale_bytes = 4 / block
each = {"bf16": 2, "fp8": 1 + scale_bytes, "int8": 1 + scale_bytes, "1 bit": 1 / 8 + scale_bytes}
answer = f"bf16 {at_work['bf16']:.2g} %, fp8 {at_work['fp8']:.2g} %; fp8's loss higher: {judged(gaps('fp8'))}"
figures.curves(
    [figures.Curve(name, [(each[name], at_work[name])]) for name in each],
    figures.answered("Half the bytes again: how much is lost?", answer),
    x="bytes per number", y="off the gradient (%)", log=True,
)

# %% [markdown]
# ### Gradients that vanish
#
# float16 has 10 bits of fraction, three more than bf16, but a narrow range. Its smallest number stands in the table above, and
# gradients with respect to *activations* are often smaller: each is one example's share of the mean loss. **Loss scaling**
# (Micikevicius and others, 2018) multiplies the loss by a large number, and with it every gradient on the way back. Afterwards
# one divides. If the scale is too large, gradients overflow to inf. Which scales are safe?

# %%
# Helper: real float16 passes, and what they lose
def half_pass(weights, scale, rows):
    """Gradients of scale · loss in float16: of the weights, and of what comes out of each layer."""
    model, outputs = mlp(sizes, 0), []
    vector_to_parameters(weights, model.parameters())
    x = images[rows].flatten(1).half()
    for layer in model.half():
        x = layer(x)
        outputs.append(x)
        x.retain_grad()
    (scale * F.cross_entropy(x.float(), labels[rows])).backward()
    return flat([p.grad for p in model.parameters()]), [out.grad for out in outputs]

# %%
gradient, late = learner(0, seeds[0])
for _ in range(4 * steps):
    late = late - 2 * learning_rate * gradient(late)
rows = torch.arange(min(1024, len(images)))
lost, over = [], []
for k in range(0, 29, 2):
    of_weights, of_outputs = half_pass(late, 2.0**k, rows)
    lost.append((k, 100 * float((of_outputs[-1] == 0).float().mean())))
    over.append((k, 100 * float((~of_weights.isfinite()).float().mean())))
safe = [k for (k, gone), (_, too_large) in zip(lost, over) if gone < 1 and too_large == 0]
figures.curves(
    [figures.Curve("0, at the outputs", lost), figures.Curve("not finite, at the weights", over)],
    figures.answered(
        "Which scales lose less than 1 %, and overflow nowhere?",
        f"2 to the power of {ranged(safe, 'd')}" if safe else "none of these",
    ),
    x="scale: 2 to the power of", y="gradients (%)",
)

# %% [markdown]
# The safe range moves as a training goes on, and nobody knows it beforehand. So the scale is **dynamic**: where the mean
# gradient is not finite, leave the step out and halve the scale; after `patience` good steps in a row, double it. On several
# ranks all must decide alike, for a rank that takes a step alone has other weights from then on. Must they talk about it?
#
# <details><summary>Hint 1</summary>inf plus anything is inf or NaN. Which tensor do all ranks have, after they have added
# up?</details>
# <details><summary>Hint 2</summary>A sum of finite float16 numbers may overflow. A sum of n-th parts
# is no larger than the largest of them, but for rounding.</details>
# <details><summary>Hint 3</summary>Divided by the scale in float16, the small numbers vanish after all.</details>

# %% tags=["exercise:scaled_steps"]
# Exercise 14.6: float16 on the wire, and a scale that all ranks share
def scaled_steps(fabric, weights, gradient, steps, rate, scale, patience):
    """Gradient descent with the ranks' mean. gradient(half, scale) is scale times this rank's gradient at float16 weights, in
    float16.

    One all-reduce per step, in float16; each rank divides its part by the world size first. If the mean has inf or NaN: no step,
    and half the scale. After `patience` good steps in a row: twice the scale, and the count begins anew. The scale has no least
    and no greatest value. A step that is left out counts as one of `steps`. `weights` stays as it is. Returns float32 weights
    and a list of the scales, one for each step: the scale that it used.
    """
    ### BEGIN SOLUTION
    good, scales = 0, []
    for _ in range(steps):
        scales.append(scale)
        part = gradient(weights.half(), scale) / fabric.world_size
        mean = all_reduce(fabric, part).float()
        if mean.isfinite().all():
            weights = weights - rate * mean / scale
            good += 1
        else:
            scale, good = scale / 2, 0
        if good == patience:
            scale, good = scale * 2, 0
    return weights, scales
    ### END SOLUTION

# %% tags=["check:scaled_steps"] points=1
check.scaled_steps(scaled_steps)

# %% [markdown]
# Now a real training, half as long: float16 forwards and backwards, from a scale that is far too large, and beside it at a scale
# of 1. Does so short a training need the scale at all?

# %%
def by_scale(fabric, seed, steps, scale, patience):
    """A training in float16 with a dynamic scale: the loss at its end, and the scale of each step."""
    weights, draws = flat(list(mlp(sizes, seed).parameters())), torch.Generator().manual_seed(1000 * seed + fabric.rank)

    def gradient(half, scale):
        rows = torch.randint(len(images), (batch,), generator=draws)
        return half_pass(half.float(), scale, rows)[0]

    weights, scales = scaled_steps(fabric, weights, gradient, steps, learning_rate, scale, patience)
    return test_loss(weights), scales

def by_scales(fabric, steps, scale, patience=8):
    return [by_scale(fabric, seed, steps, scale, patience) for seed in seeds]

def above_plain(found, steps):
    """By how many per cent each seed's loss ends above plain's after as many steps."""
    plain = [dict((step, loss) for step, _, loss in curve)[steps] for curve in trained["plain"][0]]
    return [100 * (loss / other - 1) for (loss, _), other in zip(found, plain)]

# %%
half_steps = steps // 8 * 4  # plain's loss is known after every fourth step
with unobserved():  # no picture of each launch
    from_far = launch(by_scales, ranks, args=(half_steps, 2.0**24))
    at_one = launch(by_scales, ranks, args=(half_steps, 1.0, half_steps + 1))
answer, ended = None, [(None, None)] * len(seeds)
if from_far.state == "done":
    ended = from_far[0]
    unscaled = judged(above_plain(at_one[0], half_steps))
    print(f"after {half_steps} steps at a scale of 1: is the loss higher than plain's? {unscaled}")
    left_out = [sum(after < before for before, after in zip(scales, scales[1:])) for _, scales in ended]
    settled = median(sorted(scales)[half_steps // 2] for _, scales in ended)
    higher_by = judged(above_plain(ended, half_steps))
    answer = f"at {settled:,.0f}; {ranged(left_out)} steps skipped; loss higher: {higher_by}"
figures.histories(
    {f"seed {seed}": scales for seed, (_, scales) in zip(seeds, ended)},
    figures.answered("From 16 million: where does the scale settle, and what does it cost?", answer), y="scale", log=True,
)

# %% [markdown]
# If the loss at a scale of 1 is no higher, what vanished did not count in these few steps. The examples that a model has nearly
# learned are the first whose gradients vanish, so it is a long training that needs a scale. The first steps that were
# left out are the price of a first scale that was far too large; each later one tried twice the scale, which a larger
# `patience` makes rarer: PyTorch's GradScaler waits for 2,000 good steps.

# %% [markdown]
# ### FSDP2's policy
#
# FSDP2 (Lab 12) has a **mixed-precision policy**: the dtype in which a layer's weights are gathered and used, and the dtype in
# which gradients are added up. Before you run: in which dtype does an optimizer find its weights?

# %%
def with_policy(param_dtype, reduce_dtype):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("gloo")
    model = mlp(sizes, 0)
    policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=policy)
    out = model(images[:batch].flatten(1))
    F.cross_entropy(out.float(), labels[:batch]).backward()
    return out.dtype, next(model.parameters()).dtype

for given in ((None, None), (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16)):
    with unobserved():  # no picture of each launch
        run = launch(with_policy, ranks, args=given)
    calls = [c for c in run.trace.collectives if c.rank == 0 and c.op.startswith(("all_gather", "reduce_scatter"))]
    sent_kb = [sharding.bytes_sent_by(c.op, c.size_bytes, ranks) / 1e3 for c in calls]
    ops = [c.op.removesuffix("_single") for c in calls]
    print(f"policy {given[0]}, {given[1]}: output {run[0][0]}, weights {run[0][1]};",
          "a rank sends", ", ".join(f"{kb:,.0f} kB in {op}" for kb, op in zip(sent_kb, ops)))

# %% [markdown]
# **In one sentence:** which two of this section's mistakes does the middle policy avoid, and what does it pay?
#
# <details><summary>Compare</summary>Its weights are float32, so small steps count, and its sums are float32, so they do not get
# worse with more ranks. It pays with four bytes per number in the reduce-scatter and for the master weights. bf16 has float32's
# range, so no scale is needed.</details>

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Lin and others, *Deep gradient compression* ([arXiv:1712.01887](https://arxiv.org/abs/1712.01887), ICLR
# 2018). Renggli and others, *SparCML* ([arXiv:1802.08021](https://arxiv.org/abs/1802.08021), SC 2019): sparse sums.
# Karimireddy and others, *Error feedback fixes SignSGD* ([arXiv:1901.09847](https://arxiv.org/abs/1901.09847), ICML
# 2019): the scale. Seide and others, *1-bit stochastic gradient descent* (Interspeech 2014): error feedback. Karimireddy and
# others, *SCAFFOLD* ([arXiv:1910.06378](https://arxiv.org/abs/1910.06378), ICML 2020): drift. Tang and others, *1-bit
# Adam* ([arXiv:2102.02888](https://arxiv.org/abs/2102.02888), ICML 2021): sums coded again. Beznosikov and others, *On
# biased compression* ([arXiv:2002.12410](https://arxiv.org/abs/2002.12410), JMLR 2023): the three ranks. Vogels and others,
# *PowerSGD* ([arXiv:1905.13727](https://arxiv.org/abs/1905.13727), NeurIPS 2019). Douillard and others, *DiLoCo*
# ([arXiv:2311.08105](https://arxiv.org/abs/2311.08105), 2023). Agarwal and others, *On the utility of gradient compression*
# ([arXiv:2103.00543](https://arxiv.org/abs/2103.00543), MLSys 2022).

# %% [markdown]
# **On low precision.** Micikevicius and others, *Mixed precision training*
# ([arXiv:1710.03740](https://arxiv.org/abs/1710.03740), ICLR 2018): master weights, loss scaling. DeepSeek-AI, *DeepSeek-V3
# technical report* ([arXiv:2412.19437](https://arxiv.org/abs/2412.19437), 2024): fp8 with a scale for each tile or block.
