# %% [markdown]
# # Lab 11. DDP from the inside
#
# **After this lab you are able to** build what PyTorch's DistributedDataParallel does, from the plainest form to
# buckets that travel while backward still computes; to predict how long a step takes with any number of buckets, and
# which number is best; and to say what goes wrong with frozen, shared and unused weights.
#
# **Minutes:** 160 (two sittings: 55 up to “Form 4: buckets”, then 105) · **Points:** 6 · **Prerequisites:** Lab 04 (averaged
# gradients), Lab 06 (all-reduce). Lab 10 helps.

# %% [markdown]
# ![4 buckets, 244 ms by the formula: does it take that? No: 317 ms, 30 % more.](../labs/covers/11.png)

# %%
# Set-up: the tools of this lab
from worldsize.notebook import *

import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from worldsize.fabric.background import Background, OverGloo, over_the_fabric
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.formulas import bucketing
from worldsize.pytorch.observed_step import witnessed
from worldsize.pytorch.timed_network import network, task, train

# %% tags=["parameters"]
ranks = 2
layers = 32
width = 160
wide_width = 512
layer_ms = 5
steps = 3
long_steps = 12
bucket_counts = [1, 2, 4, 8, 16, 32]
encoder_layers = 8
encoder_layer_ms = 10
parts = 4

# %%
lab, check = open_lab("11")

# %% [markdown]
# ## When is a gradient ready?
#
# Lab 04 averaged gradients *after* backward. But backward is not one event. It walks through the layers, and each
# gradient is ready at a moment of its own. PyTorch can tell you: a **hook** is a function that you hand to it, and that
# it calls at a certain moment; here, as soon as a parameter's gradient is ready. Then the hook is said to *fire*. We
# work with a network of plain layers. In which order do the hooks fire?

# %%
small = task(sizes=[4] * 9, seed=11)
lab.predict("first", f"{len(small['sizes']) - 1} layers, 0 at the input. Which layer's gradient is ready first?", "")

# %%
def order(fabric, task):
    """The layers in the order in which their hooks fire."""
    model, seen = network(fabric, task), []
    for number, p in enumerate(model.parameters()):
        p.register_post_accumulate_grad_hook(lambda p, number=number: seen.append(number))

    def gradients(loss):
        loss.backward()

    train(fabric, task, model, gradients)
    return seen

seen = launch(order, 1, args=(small,))[0]
lab.measure("first", seen[0])
print("gradients became ready in the order of layers", *seen)

# %% [markdown]
# The last layer comes first. While backward still works on the layers before it, its gradient is already final and
# could travel. That is the whole secret of DDP. This lab builds up to it in four forms; the first is given.

# %% [markdown]
# ## The workbench
#
# A `task` is a dict that describes a whole training. `network(fabric, task)` makes this rank's copy of the model; every
# rank draws *other* weights, on purpose. `train(fabric, task, model, gradients)` trains this copy: at each step it clears
# all gradients, calls your `gradients(loss)` and takes the step. Your function must leave in every `p.grad` the gradient
# that the step is to use.

# %%
big = task(
    sizes=[width] * (layers + 1), examples=8, steps=steps, rate=0.01, seed=11, backward_s=layer_ms / 1000
)
big_bytes = layers * width * width * 4
backward_s = layers * layer_ms / 1000
print(f"{layers} weights of {width * width * 4 / 1e3:.0f} kB: {big_bytes / 1e6:.1f} MB; backward {backward_s * 1e3:.0f} ms")

# %% [markdown]
# The time of backward is **declared** here, not real: in each layer's backward the rank only waits for some milliseconds,
# as if a GPU were working. On two busy cores computing and sending would get in each other's way; declared work shows the
# overlap on any machine. The messages are real, over links that we slow down.

# %%
link = Link("20 MB/s", "5 ms")
fixed_s = bucketing.fixed_s(ranks, link)
moving_s = bucketing.moving_s(ranks, big_bytes, link)
print(f"T = {backward_s * 1e3:.0f} ms: backward")
print(f"A = {fixed_s * 1e3:.0f} ms: one all-reduce, however small")
print(f"W = {moving_s * 1e3:.0f} ms: the bytes of all gradients")
known = f"T {backward_s * 1e3:.0f}, A {fixed_s * 1e3:.0f}, W {moving_s * 1e3:.0f} ms"

# %% [markdown]
# Remember these three numbers; every prediction below is built from them. An all-reduce of part of the gradients costs
# A plus its share of W.

# %% [markdown]
# ## Form 1: one by one
#
# `broadcast(fabric, tensors)` gives every rank rank 0's tensors. `all_reduce(fabric, t)` leaves the sum of all ranks'
# `t` in `t` and returns it; every rank must call it equally often, in the same order. So the plainest form is:
# give all ranks the same weights at the start; after each backward, average one tensor after the other, as in Lab 04.

# %%
def one_by_one(fabric, task):
    """One all-reduce for each tensor that learns, after backward. For networks where each rank's loss reaches every weight."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(loss):
        loss.backward()
        for p in model.parameters():
            if p.requires_grad:
                p.grad = all_reduce(fabric, p.grad) / fabric.world_size

    return train(fabric, task, model, gradients)

# %%
lab.predict("naive", f"A step is backward, then {layers} all-reduces. With {known}: how long does it take?", "ms")

# %%
# Helper: step times of a run, and what is inside backward
def middle_s(run, rank=0):
    """The middle of a rank's step times; None where an exercise is not written yet."""
    return sorted(run[rank]["seconds"])[len(run[rank]["seconds"]) // 2] if run.state == "done" else None

def milliseconds(run):
    return middle_s(run) and 1e3 * middle_s(run)

def in_words(s):
    return f"{1e3 * s:.0f} ms" if s < 0.9995 else f"{s:.3g} s"

def as_much(runs, works):
    """Compare the parts hidden in backward, yours and PyTorch's; None where an exercise is not written yet."""
    if any(getattr(of, "state", "done") != "done" for of in runs.values()):
        return None
    yours, theirs = (100 * figures.middle_step(getattr(of, "trace", of), 0, works).hidden(False) for of in runs.values())
    found = "less" if yours < theirs else "more"
    if abs(yours - theirs) <= 5:
        found = "as much"
    return f"{found}: {yours:.0f} % of yours, {theirs:.0f} % of PyTorch's"

# %%
# Helper: when hooks begin to send, in words; None where an exercise is not written yet
def hooks_begin(forms):
    """Say when hooks begin to send, and compare their step with all at once; None where an exercise is not written yet."""
    if any(run.state != "done" for run in forms.values()):
        return None
    flat, hooks = (figures.middle_step(forms[name].trace, 0, layers) for name in ("all at once", "in hooks"))
    begins_s = hooks.messages[0][0]
    inside = "yes" if begins_s < hooks.backward_s else "no"
    kind = "no shorter" if hooks.end_s < 1.05 * flat.end_s else "a longer"
    if hooks.end_s < 0.95 * flat.end_s:
        kind = "a shorter"
    lengths = f"{in_words(hooks.end_s)}, not {in_words(flat.end_s)}"
    return f"{inside}, after {in_words(begins_s)}; {kind} step: {lengths}"

# %%
# Helper: what travels inside backward, in words; None where an exercise is not written yet
def in_backward(run):
    """Say what travels before backward has ended."""
    if run.state != "done":
        return None
    share = figures.middle_step(run.trace, 0, layers).hidden(False)
    return f"{100 * share:.0f} % of what is sent" if share > 0.005 else "nothing"

def saves(run, than):
    """Say what a form saves in the steps that are drawn, and what travels inside backward."""
    if in_backward(run) is None or in_backward(than) is None:
        return None
    new_s, old_s = (figures.middle_step(of.trace, 0, layers).end_s for of in (run, than))
    saved = f"{in_words(old_s - new_s)} of {in_words(old_s)}" if new_s < old_s else "no time"
    return f"{saved}; {in_backward(run)} inside backward"

def hides_most(forms):
    """Say which of the forms hides most."""
    if any(run.state != "done" for run in forms.values()):
        return None
    shares = {name: 100 * figures.middle_step(run.trace, 0, layers).hidden(False) for name, run in forms.items()}
    most = max(shares.values())
    first = [name for name, share in shares.items() if most - share <= 5]
    return f"{' and '.join(first)}, {most:.0f} % of it" if len(first) < len(shares) else f"all alike, about {most:.0f} %"

# %%
forms = {"one by one": launch(one_by_one, ranks, args=(big,), link=link)}
lab.measure("naive", milliseconds(forms["one by one"]))
print(f"T + {layers} A + W = {1e3 * bucketing.naive_s(backward_s, layers, fixed_s, moving_s):.0f} ms")
asks = "One by one: what travels before backward has ended?"
figures.overlaps(forms, layers, figures.answered(asks, in_backward(forms["one by one"])))

# %% [markdown]
# The upper row is backward, layer by layer; the line marks its end. The lower row is what this rank has on the network.
# First one, then the other, and every small all-reduce pays A again.

# %% [markdown]
# ## Form 2: all at once
#
# The cure for many small messages is one large one. Lay all gradients end to end in one flat tensor, average that, and
# cut it up again. Two functions for that are given; you need them three times in this lab. The pieces that `unpacked`
# returns are **views**: they look into the flat tensor's memory, and nothing is copied.

# %%
# Set-up
def packed(tensors):
    """All tensors end to end in one flat tensor, a copy."""
    return torch.cat([x.flatten() for x in tensors])

def unpacked(flat, like):
    """Views into `flat`, one after the other, in the shapes of the tensors in `like`."""
    pieces = flat.split([x.numel() for x in like])
    return [piece.view_as(x) for piece, x in zip(pieces, like)]

# %% [markdown]
# Your function must work for real networks too, where three kinds of weights need care. A **frozen** one
# (`p.requires_grad` is False) never has a gradient; but all ranks need the same value. An **unused** one is not reached
# by this rank's loss: its `p.grad` is None on this rank, and perhaps a tensor on others. Count None as zeros. A **tied**
# one serves two layers and is still one tensor.
#
# <details><summary>Hint 1</summary>Before the first step all ranks need the weights of rank 0: all parameters, the frozen
# ones too.</details>
# <details><summary>Hint 2</summary><code>model.parameters()</code> gives a tied tensor once. For an unused one:
# <code>torch.zeros_like(p)</code>.</details>

# %% tags=["exercise:flattened"]
# Exercise 11.1: one all-reduce of everything
def flattened(fabric, task):
    """Broadcasts rank 0's weights, then trains: after backward each learning tensor's gradient becomes the ranks' mean.

    One all-reduce a step, for all of them. gradients(loss) runs backward itself. The task stays as it is.
    """
    model = network(fabric, task)
    ### BEGIN SOLUTION
    broadcast(fabric, model.parameters())
    members = [p for p in model.parameters() if p.requires_grad]

    def gradients(loss):
        loss.backward()
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in members]
        mean = all_reduce(fabric, packed(own)) / fabric.world_size
        for p, piece in zip(members, unpacked(mean, members)):
            p.grad = piece
    ### END SOLUTION
    return train(fabric, task, model, gradients)

# %% tags=["check:flattened"] points=1
check.flattened(flattened)

# %%
forms["all at once"] = launch(flattened, ranks, args=(big,), link=link)
print(f"T + A + W = {1e3 * bucketing.naive_s(backward_s, 1, fixed_s, moving_s):.0f} ms")
asks = "All at once: what does it save, and what does the network do in backward?"
figures.overlaps(forms, layers, figures.answered(asks, saves(forms["all at once"], forms["one by one"])))

# %% [markdown]
# ## Form 3: inside backward
#
# Now begin each all-reduce in the hook, the moment its gradient is ready. A plain `all_reduce` in a hook would hold up
# backward. Make one `sums = Background(fabric)`, before the first step. It has a helper thread: `work = sums.start(t)`
# returns at once, and `work.wait()` returns when `t` holds the sum. The thread carries out the sums one after the
# other, in the order of your calls.

# %% [markdown]
# In this exercise all ranks use the same layers, so their hooks fire in one order. Mind three things. Do not touch a
# gradient between `start` and `wait`. Wait for nothing while backward is running. And drop a step's `work` objects before
# the next step.
#
# <details><summary>Hint</summary>A hook gets the parameter: <code>def ready(p)</code> may begin the sum of
# <code>p.grad</code> and keep p and the <code>work</code> in a list. Frozen parameters can have no hook.</details>

# %% tags=["exercise:overlapped"]
# Exercise 11.2: begin in the hook, wait after backward
def overlapped(fabric, task):
    """Like Exercise 11.1, but each tensor's all-reduce begins in its hook; after backward, wait for all of them."""
    model = network(fabric, task)
    ### BEGIN SOLUTION
    broadcast(fabric, model.parameters())
    sums, begun = Background(fabric), []

    def ready(p):
        begun.append((p, sums.start(p.grad)))

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        loss.backward()
        for p, work in begun:
            work.wait()
            p.grad /= fabric.world_size
        begun.clear()
    ### END SOLUTION
    return train(fabric, task, model, gradients)

# %% tags=["check:overlapped"] points=1.5
check.overlapped(overlapped)

# %%
lab.predict("hooks", f"A step's {layers} all-reduces begin inside backward. With {known}: how long is the step?", "ms")

# %%
forms["in hooks"] = launch(overlapped, ranks, args=(big,), link=link)
lab.measure("hooks", milliseconds(forms["in hooks"]))
asks = "In hooks: does the network start inside backward, and is the step shorter?"
figures.overlaps(forms, layers, figures.answered(asks, hooks_begin(forms)))

# %% [markdown]
# Compare this step with the flat tensor's.
#
# **In one sentence:** why can a step with hooks be longer, although more is hidden?
#
# <details><summary>Compare</summary>Every tensor pays A. The network is the bottleneck, and overlap hides no more than
# the length of backward.</details>

# %% [markdown]
# ## Form 4: buckets
#
# So group gradients: enough in one **bucket** that A is paid rarely, few enough that the first bucket leaves early. Who
# shares a bucket? Neighbours in the order of backward. PyTorch's rule: take the tensors from the last to the first; a
# bucket closes as soon as it holds the cap or more. The last bucket may hold less.

# %% tags=["exercise:fill_buckets"]
# Exercise 11.3: fill the buckets
def fill_buckets(sizes, cap):
    """Returns lists of tensors' numbers, the last tensor first. A list is closed as soon as its tensors' sizes add up to cap or
    more. sizes stays as it is.

    fill_buckets([4, 8, 1, 30, 2], 10) is [[4, 3], [2, 1, 0]].
    """
    ### BEGIN SOLUTION
    buckets, room = [], 0
    for number in reversed(range(len(sizes))):
        if room <= 0:
            buckets.append([])
            room = cap
        buckets[-1].append(number)
        room -= sizes[number]
    return buckets
    ### END SOLUTION

# %% tags=["check:fill_buckets"] points=0.5
check.fill_buckets(fill_buckets)

# %% [markdown]
# Now the real thing. `task["buckets"]` holds such lists; number 0 is the first tensor that learns.
# When the hooks of *all* of a bucket's tensors have fired, pack it and begin its sum.
#
# One trap is left. Rank 1's loss may skip a layer. That layer's hook never fires, its bucket is never full, and rank
# 1's next bucket would be added to rank 0's earlier one, which holds other gradients. So **begin the buckets strictly in the
# order of the list**, on every rank. Begin the rest when backward ends; a missing gradient counts as zeros.

# %% [markdown]
# <details><summary>Hint 1</summary>Keep a set of the numbers whose hooks have fired, and the list of what has begun. Its
# length is the number of the next bucket.</details>
# <details><summary>Hint 2</summary>One inner function notes what has fired and then begins as many buckets as it may.
# Call it in every hook; and once after backward, as if everything had fired.</details>
# <details><summary>Hint 3</summary>A hook that knows its number: <code>lambda p, number=number: …</code>. It must
# return None.</details>

# %% tags=["exercise:bucketed"]
# Exercise 11.4: buckets inside backward
def bucketed(fabric, task):
    """Like Exercise 11.2, with one all-reduce for each of task["buckets"], begun in their order as early as possible.
    Ranks may use different layers."""
    model, sums = network(fabric, task), Background(fabric)
    ### BEGIN SOLUTION
    broadcast(fabric, model.parameters())
    members = [p for p in model.parameters() if p.requires_grad]
    fired, begun = set(), []

    def fire(numbers):
        fired.update(numbers)
        for bucket in task["buckets"][len(begun) :]:
            if not fired.issuperset(bucket):
                return
            own = [members[i] for i in bucket]
            flat = packed([torch.zeros_like(p) if p.grad is None else p.grad for p in own])
            begun.append((own, flat, sums.start(flat)))

    for number, p in enumerate(members):
        p.register_post_accumulate_grad_hook(lambda p, number=number: fire([number]))

    def gradients(loss):
        loss.backward()
        fire(range(len(members)))
        for own, flat, work in begun:
            work.wait()
            for p, piece in zip(own, unpacked(flat / fabric.world_size, own)):
                p.grad = piece
        fired.clear(), begun.clear()
    ### END SOLUTION
    return train(fabric, task, model, gradients)

# %% tags=["check:bucketed"] points=2
check.bucketed(bucketed)

# %%
def filled(fabric, task, count):
    """Your training, with about `count` buckets that you filled."""
    sizes = [p.nbytes for p in network(fabric, task).parameters() if p.requires_grad]
    buckets = fill_buckets(sizes, -(-sum(sizes) // count))
    return bucketed(fabric, {**task, "buckets": buckets})

sweep = {count: launch(filled, ranks, args=(big, count), link=link) for count in bucket_counts}

# %% [markdown]
# ## The best number of buckets
#
# With $b$ equal buckets the first leaves after $T/b$; from then on the network is busy: $b$ times $A$, and $W$. So a
# step takes ${\color{#8a68bf}{\frac Tb}}+{\color{#d06e00}{bA+W}}$. (Where backward is slower than the
# network, a step takes $T+A+\frac Wb$. The longer of the two times counts.) Many buckets pay too much A. With few, nothing
# can travel during a long first part of backward, the head.

# %%
lab.predict("best", f"For which b is T/b + bA + W smallest, with {known}?", "buckets")

# %%
best = bucketing.best_buckets(backward_s, fixed_s, moving_s)
lab.measure("best", best)
every = range(1, max(bucket_counts) + 1)
figures.curves(
    [figures.Curve(
        "a step", [(b, middle_s(sweep[b])) for b in bucket_counts],
        [(b, bucketing.step_s(backward_s, b, fixed_s, moving_s)) for b in every],
    )],
    f"Which number of buckets is best? (By the formula {best:.0f}.) Is it?", x="buckets", y="one step (s)",
)

# %% [markdown]
# The minimum is at $b=\sqrt{T/A}$, where head and latencies are equal: $\frac Tb=bA$. PyTorch's default is a *size*,
# 25 MB a bucket (and a smaller first one, so that the network starts early). It is a guess for a typical cluster; set
# it with `bucket_cap_mb`. If points lie above the line: the formula leaves out the time of Python.

# %%
few, many = min(bucket_counts), max(bucket_counts)
middle = min(bucket_counts, key=lambda b: abs(b - best))
for b in (many, middle, few):
    forms[f"{b} bucket{'s' * (b > 1)}"] = sweep[b]
buckets_of = {name: run for name, run in forms.items() if "bucket" in name}
asks = "How many buckets hide most of the network's work inside backward?"
figures.overlaps(forms, layers, figures.answered(asks, hides_most(buckets_of)))

# %% [markdown]
# Read the lower rows against those above. One bucket is the flat form again, and a bucket for each tensor the form with
# hooks alone. In between, the network starts early *and* pays A seldom.
#
# Turn the knobs: where is the minimum on a network with low latency? Predict it from $\sqrt{T/A}$ before you run.

# %%
# Helper: one run of your buckets, with knobs
def try_out(buckets=4, latency="5 ms", bandwidth="20 MB/s"):
    run = launch(filled, ranks, args=(big, buckets), link=Link(bandwidth, latency))
    a, w = (f(Link(bandwidth, latency)) for f in (
        lambda link: bucketing.fixed_s(ranks, link), lambda link: bucketing.moving_s(ranks, big_bytes, link)))
    foretold_ms = 1e3 * bucketing.step_s(backward_s, buckets, a, w)
    asks = f"{buckets} buckets, {foretold_ms:.0f} ms by the formula: does it take that?"
    answer = None
    if run.state == "done":
        took_ms = 1e3 * figures.middle_step(run.trace, 0, layers).end_s
        off = 100 * (took_ms / foretold_ms - 1)
        answer = f"{'yes' if abs(off) < 10 else 'no'}: {took_ms:.0f} ms, {abs(off):.0f} % {'more' if off > 0 else 'less'}"
    return figures.overlaps({f"{buckets} buckets": run}, layers, figures.answered(asks, answer))

# %% tags=["cover"]
knobs(
    try_out, buckets=[1, 2, 4, 8, 16, 32], latency=["500 µs", "5 ms", "20 ms"],
    bandwidth=["10 MB/s", "20 MB/s", "100 MB/s"],
)

# %% [markdown]
# ## PyTorch's own
#
# Now the original. It sends over its process group, where we cannot watch it. But it accepts a **communication hook**:
# a function that it calls inside backward for each full bucket. `over_the_fabric` is one; it hands the bucket to the
# same `Background` that you used. So both trainings travel over the same slow links, and the record shows both.

# %%
def torch_ddp(fabric, task, count, over_fabric=True, **more):
    """The same training by PyTorch's DDP, with about `count` buckets."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = network(fabric, task)
    cap_mb = sum(p.nbytes for p in model.parameters() if p.requires_grad) / count / 2**20
    ddp = DistributedDataParallel(model, bucket_cap_mb=cap_mb, **more)
    if over_fabric:
        ddp.register_comm_hook(Background(fabric), over_the_fabric)
    return train(fabric, task, model, lambda loss: loss.backward(), forward=ddp)

# %%
lab.predict("shaped", f"Slow links, {middle} buckets: your step takes how many times as long as PyTorch's?", "times")

# %%
# Helper: two trainings in one run
def side_by_side(fabric, task, count):
    """Both in one run, one after the other."""
    return {"yours": filled(fabric, task, count), "PyTorch's": torch_ddp(fabric, task, count)}

def largest_difference(one, other):
    return max(float((a - b).abs().max()) for a, b in zip(one["weights"], other["weights"]))

def middle_of(seconds):
    return sorted(seconds)[len(seconds) // 2]

# %%
long = {**big, "steps": long_steps}
run = launch(side_by_side, ranks, args=(long, middle), link=link)
pairs = run.results if run.state == "done" else []
names = ("yours", "PyTorch's")
shaped = {name: pairs[0][name]["seconds"][1:] if pairs else () for name in names}  # see take_turns
lab.measure("shaped", middle_of(shaped["yours"]) / middle_of(shaped["PyTorch's"]) if pairs else None)
for rank, pair in enumerate(pairs):
    print(f"rank {rank}: after {long_steps} steps the largest difference of a weight is {largest_difference(*pair.values())}")

# %% [markdown]
# The record holds both trainings, one after the other. Here is one step of each.

# %%
def halves(run):
    """The trace of the first training and of the second, {name: …}; the run itself where an exercise is not written yet."""
    if run.state != "done":
        return dict.fromkeys(names, run)
    works = sorted(s.start_s for s in run.trace.spans if s.kind == "compute")
    middle_s = works[len(works) // 2] - 1e-6
    return {"yours": run.trace.between(works[0], middle_s), "PyTorch's": run.trace.between(middle_s, float("inf"))}

for name, half in halves(run).items():
    if half is not run:
        print(f"{name}: {half.sent_bytes(0) / long_steps / 1e6:.2f} MB a step leave rank 0")
asks = "Does as much of your traffic travel inside backward as of PyTorch's?"
figures.overlaps(halves(run), layers, figures.answered(asks, as_much(halves(run), layers)))

# %% [markdown]
# And with no slow links, nothing declared, real work only? There PyTorch sends over gloo, and yours does too: a
# `Background` of `OverGloo(fabric)` begins gloo's own all-reduce. The two take turns, a few steps each, many times,
# because a busy machine is never the same twice.

# %%
lab.predict("bare", "No slow links, both over gloo: your step takes how many times as long as PyTorch's?", "times")

# %%
# Helper: both contestants, a few steps each, many times
def take_turns(fabric, task, count, rounds):
    dist.init_process_group("gloo")
    contestants = {
        "yours": lambda: filled(OverGloo(fabric), task, count),
        "PyTorch's": lambda: torch_ddp(fabric, task, count, over_fabric=False),
    }
    seconds = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            dist.barrier()
            seconds[name].append(middle_of(run()["seconds"][1:]))  # in its first step PyTorch fills the buckets anew
    return seconds

# %%
real = {**big, "backward_s": 0.0, "examples": 128, "steps": 5}
run = launch(take_turns, ranks, args=(real, middle, 8))
bare = run[0] if run.state == "done" else dict.fromkeys(names, ())
lab.measure("bare", middle_of(bare["yours"]) / middle_of(bare["PyTorch's"]) if run.state == "done" else None)
expected = {"slow links": bucketing.step_s(backward_s, middle, fixed_s, moving_s)}
bars = [
    figures.Timing(name, middle_of(seconds) if seconds else None, expected.get(group), group=group, repeats_s=seconds)
    for group, pair in (("slow links", shaped), ("bare gloo", bare)) for name, seconds in pair.items()
]
groups = ("slow links", "bare gloo")
firsts = map(figures.first, ([bar for bar in bars if bar.group == group] for group in groups))
answer = "; ".join(f"{group}: {first}" for group, first in zip(groups, firsts)) if pairs else None
figures.race(bars, figures.answered("One step: which is first?", answer))

# %% [markdown]
# PyTorch's is written in C++, and yours in a page of Python. Both send the same bytes. Two things DDP does are not in
# your page yet: it fills its buckets a second time, and it can do without copies.

# %% [markdown]
# ## Filled twice
#
# Your buckets trust that backward goes through `model.parameters()` from the last to the first. This module breaks that:
# it registers its layers as c, a, b and calls them as a, b, c. DDP begins with the same trust. A communication hook of
# our own notes what is in each bucket. In which order are the buckets filled after the first step?

# %%
class Crossed(torch.nn.Module):
    """Three layers, registered in one order and used in another."""

    def __init__(self):
        super().__init__()
        self.c, self.a, self.b = (torch.nn.Linear(64, 64, bias=False) for _ in range(3))

    def forward(self, x):
        return self.c(self.b(self.a(x)))

# %%
lab.predict(
    "refilled", "Layers used as a, b, c; two fill a bucket. In the third step: which number has layer a's bucket, from 0?", ""
)

# %%
def buckets_of_steps(steps, as_views):
    """The layers in each bucket of each step, and how many pieces of memory hold the gradients."""
    dist.init_process_group("gloo")
    model, seen = Crossed(), []
    names = {p.data_ptr(): name[0] for name, p in model.named_parameters()}

    def noted(_, bucket):
        seen[-1].append([names[p.data_ptr()] for p in bucket.parameters()])
        return allreduce_hook(None, bucket)

    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02, gradient_as_bucket_view=as_views)
    ddp.register_comm_hook(None, noted)
    for _ in range(steps):
        seen.append([])
        ddp(torch.ones(2, 64)).sum().backward()
    return seen, len({p.grad.untyped_storage().data_ptr() for p in model.parameters()})

# %%
(seen, apart), (_, shared) = (launch(buckets_of_steps, ranks, args=(3, views))[0] for views in (False, True))
for step, buckets in enumerate(seen):
    print(f"step {step}:", *("+".join(bucket) for bucket in buckets))
lab.measure("refilled", next(number for number, bucket in enumerate(seen[-1]) if "a" in bucket))

# %% [markdown]
# In the first step DDP notes the order in which gradients come. (Its first bucket may hold 1 MiB then, so all three
# share it.) Before the second step it fills the buckets anew in that order, and rank 0's order is used on all ranks. So
# a benchmark of DDP leaves the first step out.

# %%
lab.predict("views", "3 gradients in 2 buckets. As views into them: in how many pieces of memory do they lie?", "")

# %%
lab.measure("views", shared)
print(f"by default: {apart} pieces for the gradients, and the buckets beside them; as views: {shared}")

# %% [markdown]
# By default DDP copies each gradient into its bucket and the mean back, so gradients take up memory twice. With
# `gradient_as_bucket_view=True` each `p.grad` *is* a piece of its bucket, as your `unpacked` makes them: one copy less of
# all gradients, and no copying. The price, says PyTorch's documentation: nobody may call `detach_()` on such a `p.grad`.

# %% [markdown]
# ## What a profiler sees (optional)
#
# In daily work nobody records messages. There is a **profiler** instead: `torch.profiler` notes each operator, its thread and
# its memory, and the backend's collectives. `profiled` runs it on a rank and puts what it saw on our record's clock. Now rank
# 1's backward takes twice as long as rank 0's, and PyTorch's DDP averages over gloo. Links are not slowed down.

# %%
lab.predict("under_way", f"Rank 1 is half as fast, {middle} buckets. How much of rank 0's step has an all-reduce under way?", "%")

# %%
from collections import Counter
from functools import partial

from worldsize.pytorch.live_bytes import LiveBytes
from worldsize.pytorch.profiled import profiled

def seen_by_both(fabric, task, training, count):
    """What the profiler sees of a rank in a training in which rank 1 is slow."""
    with profiled(fabric.rank) as seen:
        training(fabric, {**task, "backward_s": task["backward_s"] * (1 + fabric.rank)}, count)
    return seen

over_gloo = launch(seen_by_both, ranks, args=(big, partial(torch_ddp, over_fabric=False), middle))

# %%
def under_way(run, rank):
    """The part of a rank's last step, in percent, in which the profiler sees a collective under way."""
    begin_s = [s.start_s for s in run.trace.spans if s.rank == rank and s.declared][-layers]
    return 100 * run[rank].in_collectives(begin_s, run[rank].slices[-1].end_s)

lab.measure("under_way", under_way(over_gloo, 0))
print(f"the first of {middle} buckets is full at T/{middle}, the last of rank 1's at 2 T: {100 - 50 / middle:.0f} %")
for rank in range(ranks):
    print(f"rank {rank}: an all-reduce is under way {under_way(over_gloo, rank):.0f} % of the step")
share = 100 * figures.at_work(over_gloo, layers)[1]
answer = f"{'rank 1: it' if share > 10 else 'no rank: rank 1'} still works in {share:.0f} % of their time"
figures.two_records(over_gloo, layers, figures.answered("Whom do rank 0's all-reduces wait for?", answer))

# %% [markdown]
# A collective's bar begins when its own rank arrives. The bar covers two things, bytes that travel and the wait for
# ranks that have not arrived, and one rank's profile cannot tell them apart. Our record has each rank's work, but
# nothing of what DDP sends over gloo. NCCL is similar (not run here): the kernel of a collective runs while it waits.
#
# **In one sentence:** a profile of one rank shows most of a step in all-reduce. Is the network slow?
#
# <details><summary>Compare</summary>You cannot know yet. Compare the ranks' profiles: the one with the shortest all-reduces came
# last, and the others waited for it.</details>

# %% [markdown]
# Now your buckets, through the fabric and over slow links. Our record has every sum, message by message.

# %%
lab.predict("seen", f"{steps} steps, {middle} buckets, through the fabric: how many all-reduces does the profiler show?", "")

# %%
through_fabric = launch(seen_by_both, ranks, args=(big, filled, middle), link=link)
seen_runs = {"DDP over gloo": over_gloo}
if through_fabric.state == "done":
    lab.measure("seen", len(through_fabric[0].collectives))
    seen_runs["your buckets through the fabric"] = through_fabric
for name, run in seen_runs.items():
    gloo = Counter(one.name for one in run[0].slices if one.name.startswith("gloo:"))
    most_mb = max(size_bytes for _, size_bytes in run[0].allocated) / 1e6
    print(f"{name}, says the profiler: {len(run[0].operators)} operators, {dict(gloo)}, at most {most_mb:.1f} MB allocated;",
          f"threads: {len(run[0].threads)}. Says the record: {len(run.trace.transfers)} messages")
answer = None
if through_fabric.state == "done":
    operators, sums, messages = figures.in_step(through_fabric, layers).values()
    answer = f"profiler {operators:,} operators and {sums} all-reduces, our record {messages} messages"
asks = "Your buckets: what does each record have that the other lacks?"
figures.two_records(through_fabric, layers, figures.answered(asks, answer))

# %% [markdown]
# The profiler follows the thread in which it was started, and PyTorch's C++ threads. A Python thread carries your sums,
# so it sees none; only the broadcast at the start shows, as gloo's sends. Use each for what it has: the profiler for
# operators, threads and memory, our record for who waited for whom, and which message on which link.
#
# One file can hold both records. A rank's first row is our record, with an arrow per message; the profiler's threads are below
# it.

# %%
latest = list(seen_runs.values())[-1]
path = latest.save_trace("lab_11_trace.json", [row for seen in latest.results for row in seen.rows])
error_us = 1e6 * max(seen.clock_error_s for seen in latest.results)
print(f"both clocks agree to within {error_us:.1f} µs; open {path} in https://ui.perfetto.dev")

# %% [markdown]
# How do two clocks become one? The profiler records marks, and `profiled` reads our clock just before and just after each. The
# two readings that lie closest together give the difference of the clocks, and a bound of its error.
#
# Looking costs time. How much?

# %%
lab.predict("profiled", "Real work, DDP over gloo: a step with the profiler on takes how many times as long?", "times")

# %%
def watched_and_not(fabric, task, count, rounds):
    """Middle seconds of a step of DDP with the profiler and without, which take turns."""
    dist.init_process_group("gloo")
    ways = {"alone": nullcontext, "profiled": partial(profiled, fabric.rank)}
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            dist.barrier()
            with way():
                seconds[name] += torch_ddp(fabric, task, count, over_fabric=False)["seconds"][1:]
    return {name: middle_of(values) for name, values in seconds.items()}

watched = launch(watched_and_not, ranks, args=(real, middle, 4))[0]
lab.measure("profiled", watched["profiled"] / watched["alone"])
print(f"a step takes {1e3 * watched['alone']:.1f} ms, and {1e3 * watched['profiled']:.1f} ms with the profiler on")

# %% [markdown]
# The profiler pays for each operator, however small. So turn it on for a few steps only, and compare its times with each
# other.
#
# Last, memory. What is alive at the fullest moment of a step? `LiveBytes` looks at all tensors after each operation, keeps the
# largest sum (Lab 12 uses it a lot), and can tell how much of given tensors was alive then.

# %%
plain_bytes = 8 * width * width * 4
lab.predict("fullest", f"{plain_bytes / 1e6:.1f} MB of gradients. As views: how many MB less at the fullest moment?", "MB")

# %%
def at_fullest(fabric, task, as_views):
    """The bytes that are alive at the fullest moment of a step of PyTorch's DDP, by what they are."""
    dist.init_process_group("gloo")
    model = network(fabric, task)
    with LiveBytes(model.parameters()) as meter:
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=as_views)
        train(fabric, task, model, lambda loss: loss.backward(), forward=ddp)
    weights = meter.at_peak(model.parameters())
    gradients = meter.at_peak([p.grad for p in model.parameters()])
    return {"weights": weights, "gradients": gradients, "all else, buckets too": meter.peak - weights - gradients}

# %%
one_step = task(sizes=[width] * 9, examples=8, steps=1)
alive = {name: launch(at_fullest, ranks, args=(one_step, flag))[0] for name, flag in (("default", False), ("as views", True))}
lab.measure("fullest", (sum(alive["default"].values()) - sum(alive["as views"].values())) / 1e6)
figures.stacks({"PyTorch's DDP, rank 0": alive}, "What is alive at the fullest moment of a step?")

# %% [markdown]
# As views, gradients and buckets are the same bytes. On a GPU the allocator itself keeps such a list:
# `torch.cuda.memory._record_memory_history()` before a step and `torch.cuda.memory._dump_snapshot("step.pickle")` after it
# write each block with the lines of Python that asked for it, and <https://pytorch.org/memory_viz> draws them over time.

# %% [markdown]
# ## Who carries the bytes? (optional)
#
# Declared work needs no core. Real work does, and so do sums: they must be moved and added. Here a backward alone and
# one with sums beside it take turns, once with declared work and once with matrix products. (Other programs running now
# want cores too, and blur the result.)

# %%
lab.predict("cores", "Real backward with sums beside it: how many times as long as alone?", "times")

# %%
def competing(fabric, task):
    """Middle seconds of backward alone and beside sums, which take turns."""
    dist.init_process_group("gloo")
    model, sums, begun = network(fabric, task), Background(OverGloo(fabric)), []
    seconds = {"alone": [], "beside sums": []}

    def now():
        return min(seconds, key=lambda name: len(seconds[name]))

    def gradients(loss):
        dist.barrier()
        start = time.monotonic()
        loss.backward()
        seconds[now()].append(time.monotonic() - start)
        while begun:
            begun.pop().wait()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(
            lambda p: begun.append(sums.start(p.grad)) if now() == "beside sums" else None
        )
    train(fabric, task, model, gradients)
    return {name: middle_of(values) for name, values in seconds.items()}

# %%
wide = {"sizes": [wide_width] * 9, "rate": 1e-4, "steps": 24, "examples": 64}
works = {"declared work": task(**wide, backward_s=layer_ms / 1000), "real work": task(**wide)}
taken = {kind: launch(competing, ranks, args=(given,))[0] for kind, given in works.items()}
lab.measure("cores", taken["real work"]["beside sums"] / taken["real work"]["alone"])
longer = {kind: pair["beside sums"] / pair["alone"] for kind, pair in taken.items()}
cost = ", ".join(f"with {kind} {ratio:.2f} times" for kind, ratio in longer.items() if ratio > 1.1)
figures.race(
    [figures.Timing(name, seconds, group=kind) for kind, pair in taken.items() for name, seconds in pair.items()],
    figures.answered("Backward alone and beside sums: when do the sums cost it time?", cost or "with neither"),
)

# %% [markdown]
# The formula above is a best case: it gives backward and the network each their own hardware. On GPUs it is similar
# (not run here): NCCL's sums are kernels too, and take multiprocessors from backward; NVIDIA's documentation has
# `NCCL_MAX_CTAS` to limit how many.

# %% [markdown]
# ## Half the bytes (optional)
#
# A communication hook may also change what travels. PyTorch's own `bf16_compress_hook` sends every gradient in 16 bits.
# Will DDP take it here, on CPUs?

# %%
def compressed(fabric, task, hook):
    """The weights after a training by DDP, and the bytes that a step put on this rank's connections."""
    dist.init_process_group("gloo")
    model, found = network(fabric, task), []
    ddp = DistributedDataParallel(model)
    if hook:
        ddp.register_comm_hook(None, hook)

    def gradients(loss):
        with witnessed() as seen:
            loss.backward()
        found.append(sum(t.size_bytes for t in seen.transfers))

    return {**train(fabric, task, model, gradients, forward=ddp), "bytes": found[-1]}

plain_task = task(sizes=[width] * 9, steps=3, rate=0.1)
try:
    launch(compressed, ranks, args=(plain_task, bf16_compress_hook))
except RankFailed as failed:
    print(str(failed)[:110], "…")

# %% [markdown]
# It asks for NCCL. But a hook is a short function, and gloo can add up bf16 too. So here is our own: divide, make it
# small, add up, put it back.

# %%
lab.predict("bf16", "Gradients travel as bf16. How many times the bytes of float32?", "times")

# %%
def halved(_, bucket):
    small = bucket.buffer().div_(dist.get_world_size()).bfloat16()
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))

whole, half = (launch(compressed, ranks, args=(plain_task, hook))[0] for hook in (None, halved))
if whole["bytes"] and half["bytes"]:  # Linux counts them
    lab.measure("bf16", half["bytes"] / whole["bytes"])
start = launch(compressed, ranks, args=({**plain_task, "rate": 0.0}, None))[0]
print(f"in 3 steps weights move by up to {largest_difference(whole, start):.1e}; with bf16 they differ by "
      f"up to {largest_difference(whole, half):.1e}")

# %% [markdown]
# ## The hard cases
#
# Ranks that start differently, tied weights, frozen ones, and layers that some rank does not use. For each: the largest
# difference of a weight between your training and PyTorch's, after many steps, on any rank.

# %%
cases = {
    "all layers learn": {},
    "layers 1 and 2 tied": {"tied": [[1, 2]]},
    "layers 0 and 3 frozen": {"frozen": [0, 3]},
    "each rank passes another layer by": {"unused": {0: [1], 1: [2]}},
    "no rank uses layer 2": {"unused": {0: [2], 1: [2]}},
}

def compare(fabric, cases, steps):
    found = {}
    for name, given in cases.items():
        t = task(sizes=[6] * 6, steps=steps, seed=5, **given)
        pair = filled(fabric, t, 2), torch_ddp(fabric, t, 2, find_unused_parameters=bool(t["unused"]))
        found[name] = largest_difference(*pair)
    return found

# %%
run = launch(compare, ranks, args=(cases, long_steps))
for name in cases:
    print(f"{name}: {max(found[name] for found in run.results) if run.state == 'done' else 'not yet'}")

# %% [markdown]
# For the last two cases PyTorch needs `find_unused_parameters=True`: it then walks through the graph after each forward, to
# learn whose hooks will not fire. That costs time, so it is off by default. What happens without it?

# %%
try:
    t = task(sizes=[6] * 6, steps=3, unused={1: [2]})
    launch(torch_ddp, ranks, args=(t, 2))
except RankFailed as failed:
    print(str(failed)[:330], "…")

# %% [markdown]
# Rank 1 is left with a bucket that never gets full, and PyTorch notices at the next forward. Yours needs no walk: it
# waits for the end of backward instead, and the price is that buckets behind the missing tensor leave late.
#
# One case is left: a layer that *no* rank uses. You count it as zeros everywhere. And DDP?

# %%
lab.predict("nobody", "5 layers, and no rank uses layer 2. After DDP's backward: how many p.grad are None?", "")

# %%
def without_gradient(fabric, task):
    dist.init_process_group("gloo")
    model, counts = network(fabric, task), []
    ddp = DistributedDataParallel(model, find_unused_parameters=True)

    def gradients(loss):
        loss.backward()
        counts.append(sum(p.grad is None for p in model.parameters()))

    train(fabric, task, model, gradients, forward=ddp)
    return counts

t = task(sizes=[6] * 6, steps=3, **cases["no rank uses layer 2"])
counts = launch(without_gradient, ranks, args=(t,))[0]
lab.measure("nobody", counts[-1])
print("p.grad that are None, step by step:", *counts)

# %% [markdown]
# DDP asks all ranks who used what, with one more all-reduce, and leaves alone what nobody used. Plain descent sees no
# difference between None and zeros. An optimizer with momentum or weight decay does: it skips None, but moves a
# weight whose gradient is zero.

# %% [markdown]
# ## Any module (optional)
#
# So far your function made the network and ran the loop. A library does neither: it is handed a module, and the script
# stays as it was, `loss.backward()`, then the step. What can a module bring along? Weights that are frozen, tied
# or unused. Weights of two dtypes, while a flat tensor has one. And **buffers**: tensors that no gradient changes, such
# as BatchNorm's running averages, or its count of batches, a whole number. Here are some of torch's own.

# %%
from worldsize.fabric import over_group
from worldsize.pytorch import torch_modules

def module_tasks(name, n):
    """A training of this module on n ranks: each draws its weights, buffers and rows from a seed of its own."""
    return [torch_modules.module_task(name, seed=11 + rank) for rank in range(n)]

for name in torch_modules.MODULES:
    model = torch_modules.module(module_tasks(name, 1)[0])
    weights = list(model.parameters())
    names = len(list(model.named_parameters(remove_duplicate=False)))
    print(f"{name}: {len(weights)} weights under {names} names, learning: {sum(p.requires_grad for p in weights)}, "
          f"dtypes: {len({p.dtype for p in weights})}, buffers: {len(list(model.buffers()))}")

# %% [markdown]
# “Layers used in turn” are four layers with two weights each. At each step a rank uses two of them: the last one, and
# layer 1 or 2, in turn. Its neighbour uses the other one.

# %%
lab.predict("fired", "8 weights, two layers of four used: how many hooks fire on a rank in a step?", "hooks")

# %%
(used,), seen = module_tasks("layers used in turn", 1), []
model = torch_modules.module(used)
for p in model.parameters():
    p.register_post_accumulate_grad_hook(seen.append)
torch_modules.loss(used, 0, 0, model).backward()
lab.measure("fired", len(seen))

# %% [markdown]
# Now write the wrapper. Sending is given: `begin_mean(sums, bucket, n)` packs the gradients of a bucket, begins their sum, and
# returns a function `end()`, which waits and puts the means in place. Left to you: who gets what from rank 0, which parameters
# share a bucket, when each bucket begins, and what a step leaves for the next. (`broadcast` takes tensors of any dtype.)

# %%
# Set-up
def begin_mean(sums, bucket, n):
    """Begin the mean over n ranks of these parameters' gradients, a missing one counts as zeros; return its end()."""
    flat = packed([torch.zeros_like(p) if p.grad is None else p.grad for p in bucket])
    work = sums.start(flat)

    def end():
        work.wait()
        for p, piece in zip(bucket, unpacked(flat / n, bucket)):
            p.grad = piece

    return end

# %% [markdown]
# <details><summary>Hint 1</summary><code>fill_buckets</code> gives numbers within the list of sizes that it gets. Call it once
# for each dtype. <code>dict.fromkeys(p.dtype for p in members)</code> has each dtype once, in an order that is the same on
# all ranks.</details>
# <details><summary>Hint 2</summary>A hook begins as many buckets as it may, in the order of the list. <code>finish</code> does
# the same as if all hooks had fired, then ends all, then forgets the step.</details>
# <details><summary>Hint 3</summary>A set can hold parameters: <code>fired.issuperset(bucket)</code>.</details>

# %% tags=["exercise:wrap_module"]
# Exercise 11.6: any module (optional)
def wrap_module(fabric, module, cap_bytes):
    """Give all ranks rank 0's parameters and buffers, hook up what learns, and return a function, finish().

    Gradients travel as in Exercise 11.4, in buckets of one dtype filled up to cap_bytes as in 11.3. finish() is called after each
    backward and leaves the mean over the ranks in each p.grad. Which gradients a rank misses may differ by rank and by step.
    """
    sums = Background(fabric)
    ### BEGIN SOLUTION
    broadcast(fabric, [*module.parameters(), *module.buffers()])
    members = [p for p in module.parameters() if p.requires_grad]
    buckets, fired, ends = [], set(), []
    for dtype in dict.fromkeys(p.dtype for p in members):
        own = [p for p in members if p.dtype == dtype]
        buckets += [[own[i] for i in numbers] for numbers in fill_buckets([p.nbytes for p in own], cap_bytes)]

    def fire(parameters):
        fired.update(parameters)
        while len(ends) < len(buckets) and fired.issuperset(buckets[len(ends)]):
            ends.append(begin_mean(sums, buckets[len(ends)], fabric.world_size))

    for p in members:
        p.register_post_accumulate_grad_hook(lambda p: fire([p]))

    def finish():
        fire(members)
        for end in ends:
            end()
        fired.clear(), ends.clear()

    return finish
    ### END SOLUTION

# %% tags=["check:wrap_module"] points=0
check.wrap_module(wrap_module)

# %% [markdown]
# Each module is trained for ten steps, once wrapped by you and once by DDP. The weights at the end are compared with
# those of one process that has all ranks' rows.

# %%
lab.predict("module_bytes", "All these modules together: how many times the bytes of your wrapper does DDP send?", "times")

# %%
# Helper: a training of a module in your wrapper, or in DDP
def in_a_wrapper(fabric, task, by_ddp):
    """The weights and buffers at the end."""
    model = torch_modules.module(task)
    cap_bytes = sum(p.nbytes for p in model.parameters()) // 3
    if not by_ddp:
        return torch_modules.train(task, fabric.rank, model, wrap_module(fabric, model, cap_bytes))["end"]

    some_unused = task["module"] == "layers used in turn"
    ddp = DistributedDataParallel(model, bucket_cap_mb=cap_bytes / 2**20, find_unused_parameters=some_unused)
    ddp.register_comm_hook(Background(fabric), over_the_fabric)
    return torch_modules.train(task, fabric.rank, model, forward=ddp)["end"]

def all_in_wrappers(fabric, by_ddp):
    if by_ddp:
        dist.init_process_group("gloo")
    every = [module_tasks(name, fabric.world_size)[fabric.rank] for name in torch_modules.MODULES]
    return [in_a_wrapper(fabric, task, by_ddp) for task in every]

def farthest(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in other)

# %%
wrapped_runs = {whose: launch(all_in_wrappers, ranks, args=(whose != "yours",)) for whose in ("yours", "PyTorch's")}
step_bytes = {}
for whose, run in wrapped_runs.items():
    if run.state == "done":
        step_bytes[whose] = run.trace.sent_bytes(ranks - 1) / used["steps"]  # the last rank has nothing to send at the start
        print(f"{whose}: {step_bytes[whose]:.0f} bytes a step")
for place, name in enumerate(torch_modules.MODULES):
    alone, found = torch_modules.train_alone(module_tasks(name, ranks))["end"], []
    for whose in step_bytes:
        off = max(farthest(made[place], alone) for made in wrapped_runs[whose].results)
        found.append(f"{whose} {off:.0e} from one process")
    print(f"{name}:", ", ".join(found))
lab.measure("module_bytes", step_bytes["PyTorch's"] / step_bytes["yours"] if len(step_bytes) == 2 else None)

# %% [markdown]
# Only gradients are counted. (By default DDP also sends rank 0's buffers again before each forward, over its own process
# group. Without that, BatchNorm's running averages would differ from rank to rank.)
#
# And do they travel at the same moments? Here are the layers of a TransformerEncoder, over the slow links. As before,
# each layer's backward takes a declared time.

# %%
def encoder_in_a_wrapper(fabric, count, by_ddp):
    """Some steps of a TransformerEncoder with about `count` buckets."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, encoder_layers, enable_nested_tensor=False)
    for one in model.layers:  # backward of a layer begins with what it declares
        one.register_full_backward_pre_hook(lambda _, grads: (fabric.compute(encoder_layer_ms / 1e3, grads[0]),))
    cap_bytes = sum(p.nbytes for p in model.parameters()) // count
    forward, finish = model, lambda: None
    if by_ddp:
        dist.init_process_group("gloo")
        forward = DistributedDataParallel(model, bucket_cap_mb=cap_bytes / 2**20)
        forward.register_comm_hook(Background(fabric), over_the_fabric)
    else:
        finish = wrap_module(fabric, model, cap_bytes)
    for _ in range(2 * steps):
        model.zero_grad()
        forward(torch.randn(4, 8, 64, requires_grad=True)).square().mean().backward()
        finish()

# %%
encoder_runs = {
    whose: launch(encoder_in_a_wrapper, ranks, args=(4, whose != "yours"), link=link) for whose in ("yours", "PyTorch's")
}
asks = "A TransformerEncoder: does your wrapper hide as much in backward as DDP?"
figures.overlaps(encoder_runs, encoder_layers, figures.answered(asks, as_much(encoder_runs, encoder_layers)))

# %% [markdown]
# Your function wants a fabric, and a script of your own has none. `over_group()` makes one from the existing process
# group: under `torchrun`, under Slurm, or here.

# %%
def in_a_script(tasks):
    """This function uses nothing of the notebook's but the wrapper."""
    dist.init_process_group("gloo")
    fabric, task = over_group(), tasks[dist.get_rank()]
    model = torch_modules.module(task)
    found = torch_modules.train(task, dist.get_rank(), model, wrap_module(fabric, model, 1000))["end"]
    dist.barrier()  # the fabric must last until its last message is taken
    return found

tasks = module_tasks("a TransformerEncoderLayer", 4)
run = launch(in_a_script, 4, args=(tasks,))
if run.state == "done":
    print(f"4 ranks, no fabric given: {farthest(run[3], torch_modules.train_alone(tasks)['end']):.0e} from one process")

# %% [markdown]
# **In one sentence:** a module has two branches, and each rank's data chooses one. Why may a bucket not begin just
# because it is full?
#
# <details><summary>Compare</summary>Other buckets are full first on another rank, and an all-reduce adds up what all ranks
# begin at the same place in their order: gradients of different weights.</details>

# %% [markdown]
# ## Accumulate, then talk
#
# A batch may be too large for memory: forward keeps **activations**, which backward will need. Then the batch is cut into
# **micro-batches**: forward and backward for each, and the gradients add up in `p.grad`. Backward frees the activations.
# The ranks need not send anything after each micro-batch.

# %%
lab.predict("no_sync", f"{parts} micro-batches a step. If the ranks average after each: how many times the bytes?", "times")

# %%
lab.predict("kept", f"sum(losses).backward() on {parts} micro-batches: it keeps how many times the activations of one?", "times")

# %%
# Helper: the bytes that autograd keeps for backward
class Kept:
    """Counts them as they come and go; `most_bytes` is the most at a time."""

    def __init__(self):
        self.bytes = self.most_bytes = 0

    def pack(self, x):
        counter = self
        self.bytes += x.nbytes
        self.most_bytes = max(self.most_bytes, self.bytes)

        class Packed:
            tensor = x

            def __del__(self):
                counter.bytes -= x.nbytes

        return Packed()

    def counted(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, lambda packed: packed.tensor)

# %%
# Helper: the most of it in a step on one rank
def most_kept(task, gradients):
    """The most bytes that autograd keeps in one step on one rank."""
    def alone(fabric):
        kept = Kept()
        with kept.counted():
            train(fabric, task, network(fabric, task), gradients)
        return kept.most_bytes
    return launch(alone, 1)[0]

# %%
in_parts = task(sizes=[6] * 6, parts=parts, seed=3)
one = most_kept({**in_parts, "parts": 1}, lambda loss: loss.backward())
all_of_them = most_kept(in_parts, lambda losses: sum(losses).backward())
lab.measure("kept", all_of_them / one)
print(f"autograd keeps {one} bytes for one micro-batch, {all_of_them} for the sum of {parts}")

# %% [markdown]
# With more than one part, `train` hands you an iterator: each turn of `for loss in losses` runs the next forward. So the
# order is yours: which forward may run while which activations are in memory? All micro-batches are equally large, so the
# step's gradient is the mean over all micro-batches of all ranks.

# %% tags=["exercise:accumulate"]
# Exercise 11.5: micro-batches
def accumulate(fabric, task):
    """Like Exercise 11.1, with task["parts"] micro-batches a step: gradients(losses) gets an iterator over them.

    Only one micro-batch's activations are in memory at a time, and no message passes until the last one is done. Then one
    all-reduce takes the gradients of all tensors.
    """
    model = network(fabric, task)
    ### BEGIN SOLUTION
    broadcast(fabric, model.parameters())
    members = [p for p in model.parameters() if p.requires_grad]

    def gradients(losses):
        for loss in losses:
            loss.backward()
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in members]
        mean = all_reduce(fabric, packed(own)) / (task["parts"] * fabric.world_size)
        for p, piece in zip(members, unpacked(mean, members)):
            p.grad = piece
    ### END SOLUTION
    return train(fabric, task, model, gradients)

# %% tags=["check:accumulate"] points=1
check.accumulate(accumulate)

# %% [markdown]
# In PyTorch the same is called `no_sync`: inside `with ddp.no_sync():` the hooks only add up. It must enclose the
# forward too, because forward arms the hooks. Below, with and without it.

# %%
def torch_parts(fabric, task, quiet):
    dist.init_process_group("gloo")
    model = network(fabric, task)
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(Background(fabric), over_the_fabric)

    def gradients(losses):
        for part in range(task["parts"]):
            last = part == task["parts"] - 1
            with ddp.no_sync() if quiet and not last else nullcontext():
                (next(losses) / task["parts"]).backward()

    return train(fabric, task, model, gradients, forward=ddp)

# %%
in_parts = {**in_parts, "steps": long_steps}
talks, quiet = (launch(torch_parts, ranks, args=(in_parts, flag)) for flag in (False, True))
lab.measure("no_sync", talks.trace.total_bytes() / quiet.trace.total_bytes())
mine = launch(accumulate, ranks, args=(in_parts,))
print(f"with and without no_sync the largest difference of a weight is {largest_difference(talks[0], quiet[0]):.0e}")
if mine.state == "done":
    print(f"yours and PyTorch's differ by {largest_difference(mine[0], quiet[0]):.0e} at most")

# %% [markdown]
# ## Mean or sum
#
# DDP divides by the number of ranks. With a loss that is a *mean* over the rank's examples, that is right. Some losses
# are *sums* over examples. Then one process with all examples gets the sum of the ranks' gradients. What does DDP give?

# %%
lab.predict("sum", "4 ranks, the loss is a sum. DDP's gradient is how many times one process's?", "times")

# %%
def gradient(x, model, loss):
    model.zero_grad()
    loss(model(x) ** 2).backward()
    return model.module.weight.grad if isinstance(model, DistributedDataParallel) else model.weight.grad

def ddp_gradients(x):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(3, 1))
    own = x.tensor_split(dist.get_world_size())[dist.get_rank()]
    return [gradient(own, ddp, loss).clone() for loss in (torch.mean, torch.sum)]

# %%
torch.manual_seed(0)
alone, x = torch.nn.Linear(3, 1), torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
found = launch(ddp_gradients, 4, args=(x,))[0]
ratios = [float((got / gradient(x, alone, loss)).mean()) for got, loss in zip(found, (torch.mean, torch.sum))]
lab.measure("sum", ratios[1])
print(f"a mean: {ratios[0]:.2f} times one process' gradient; a sum: {ratios[1]:.2f} times")

# %% [markdown]
# With a sum, multiply the loss by the number of ranks, or take the mean in the first place.
#
# **In one sentence:** with Adam as the optimizer, would you notice a gradient that is too small by a constant factor?
#
# <details><summary>Compare</summary>Hardly: Adam divides by the gradient's own size, so a constant factor cancels. With
# plain gradient descent the learning rate would be that many times too small.</details>

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Li and others, *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*
# ([arXiv:2006.15704](https://arxiv.org/abs/2006.15704), VLDB 2020): the design of DDP, with the bucket sweep. Zhang and
# others, *Poseidon* (USENIX ATC 2017): sending inside backward. Sergeev and Del Balso, *Horovod*
# ([arXiv:1802.05799](https://arxiv.org/abs/1802.05799), 2018): tensor fusion. Goyal and others
# ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677), 2017), section 3: pitfalls of averaging.
