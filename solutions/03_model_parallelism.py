# %% [markdown]
# # Lab 03. Model parallelism: layers and pipelines
#
# **After this lab you are able to** split a model by layers over ranks and train it by hand, say why most ranks are
# then idle and how much, keep them busy with micro-batches in the GPipe and the 1F1B order, and predict a step's time
# and memory from the number of stages, their balance, the links between them, and what is computed twice.
#
# **Minutes:** 135 (two sittings: 75 up to “What a stage keeps”, then 60) · **Points:** 6 · **Prerequisites:** Lab 00 (`send`,
# `isend`, `recv`), PyTorch's autograd.

# %% [markdown]
# ![1F1B with 8 micro-batches: how much of their time do stages work? Timeline of 4 pipeline stages: …](../labs/covers/03.png)

# %%
# Set-up: the tools of this lab
from worldsize.notebook import *

import torch
from torch.nn.functional import cross_entropy

from worldsize.fabric.collectives import meet
from worldsize.formulas import cost, schedules
from worldsize.formulas.pipeline import in_flight, makespan_s, play, utilisation
from worldsize.launch import unobserved
from worldsize.pytorch import models
from worldsize.pytorch.rehearsal import rehearse
from worldsize.pytorch.stages import build, cut

# %% tags=["parameters"]
stages = 4
forward_s = 0.03
backward_s = 0.06
micro_batches = [4, 8, 32]
rows = 16

# %%
lab, check = open_lab("03")

# %% [markdown]
# ## When one device is too small
#
# GPT-3 (2020) has 96 transformer layers of width 12,288; a layer of width $w$ has about $12\,w^2$ weights. A large GPU has
# 80 GB of memory. Training keeps weights, gradients, optimizer state and activations there; let us count the weights
# alone, at two bytes a number. The `meta` device builds a layer without any memory.

# %%
lab.predict("devices", "How many GPUs of 80 GB does it take to hold GPT-3's weights, two bytes each?", "GPUs")

# %%
with torch.device("meta"):
    layer = torch.nn.TransformerEncoderLayer(12288, 96, 4 * 12288)
weights_bytes = 2 * 96 * sum(p.numel() for p in layer.parameters())
lab.measure("devices", -(-weights_bytes // 80e9))
print(f"the weights of 96 layers: {weights_bytes / 1e9:.0f} GB")

# %% [markdown]
# So the model itself must be divided. The simplest way: **by layers**. Rank 0 takes the first ones, rank 1 the next, and
# so on. Each rank is a **stage** of the model. This is *model parallelism*; in contrast, *data parallelism* (Lab 04)
# gives every rank the whole model and a part of the data.

# %% [markdown]
# ## Cut a model in two
#
# Our model is small, so that we can check everything: eight linear layers that learn to name pieces of clothing. Let us
# cut it in the middle, still in one process, and see what must cross the cut.

# %%
images, labels, *_ = models.tensors(data.load("fashion-mnist"), train=rows * max(micro_batches))
x, y = images.flatten(1), labels
model = models.mlp([784, 128, 128, 128, 128, 128, 128, 128, 10], seed=3)
front, back = model[:8], model[8:]

# %% [markdown]
# In the forward pass the front's output crosses it: the **activation**. A message carries only its numbers,
# without autograd's graph; `detach` gives you such a tensor. Before you run the next cell: which layers get a gradient from
# `loss.backward()`?

# %%
activation = front(x[:64])
message = activation.detach().requires_grad_()
loss = cross_entropy(back(message), y[:64])
loss.backward()
print("first layer of the back: ", "has a gradient" if back[0].weight.grad is not None else "no gradient")
print("first layer of the front:", "has a gradient" if front[0].weight.grad is not None else "no gradient")

# %% [markdown]
# The backward pass stopped at the cut. But it left something there: `message.grad`, how the loss changes with every
# number of the activation. That is all that the front needs to know. By the chain rule the front's
# `backward` can start from that gradient. So one tensor crosses each way, and both have the same shape.

# %%
def gradients_of(model):
    return models.flat([p.grad for p in model.parameters()])

activation.backward(message.grad)
by_hand = gradients_of(model)
model.zero_grad()
cross_entropy(model(x[:64]), y[:64]).backward()
print(f"largest difference from the uncut model: {(by_hand - gradients_of(model)).abs().max():.1e}")

# %% [markdown]
# ## A stage on every rank
#
# Now over ranks. `cut` makes a *part* for each stage, plain data that can travel: its layers' weights, the inputs `xs`
# and the labels `ys`. Both are lists by **micro-batch**, for later; for now there is one, number 0. On rank 0 `xs`
# holds the images, on the others empty tensors of the shape that will arrive. Only the last part has labels.

# %%
even = [8 * s // stages for s in range(stages + 1)]
parts = cut(model, even, x[:64], y[:64])
for rank, part in enumerate(parts):
    arriving = [tuple(t.shape) for t in part["xs"]]
    print(f"rank {rank}: {len(part['layers'])} layers, xs {arriving}, {len(part['ys'])} tensor(s) of labels")

# %%
lab.predict("bytes", "64 images: how many kB does rank 0 send to rank 1 in one step?", "kB")

# %% [markdown]
# You write the stage. A list of **actions** tells it what to do: `("forward", k)` or `("backward", k)`, k the
# micro-batch. Do them in order, whatever order that is. Between a forward and its backward, keep under k what the
# backward will need. Send with `isend`: a stage works on while its message travels, and later two neighbours will send
# to each other at the same moment. Wait for all handles at the end, and leave what you sent unchanged until then.

# %% [markdown]
# You are given `build(part, fabric)`. It returns the stage's layers as one PyTorch module: `layers(inputs)` goes forward
# through all of them, `layers.parameters()` are their weights and biases, and autograd works as on one device. It holds
# this stage's weights alone. (`build` gets `fabric` so that the layers can take a declared time, later and in the check.)
# The module knows nothing of other ranks: every message is yours.

# %% [markdown]
# <details><summary>Hint 1: forward</summary>All but rank 0 receive into <code>part["xs"][k]</code>, then say that they
# want its gradient. All but the last send their output on. The last computes the loss.</details>
# <details><summary>Hint 2: the loss</summary>The batch's loss is the mean over its micro-batches, all equally large: so
# each one's <code>cross_entropy</code>, itself a mean, counts 1/m, with m = <code>len(part["ys"])</code>.</details>
# <details><summary>Hint 3: backward</summary>All but the last receive the gradient of their output, into
# <code>torch.empty_like</code> of that output: the same shape and dtype. All but rank 0 send the gradient of their
# input back.</details>

# %% tags=["exercise:run_stage"]
# Exercise 3.1: one stage of a split model
def run_stage(fabric, part, orders):
    """Does the actions of orders[fabric.rank], in order. Activations go to rank + 1, their gradients to rank - 1, if any.
    Returns the gradients of the loss, the mean over all the batch's images, with respect to layers.parameters(): a list.
    """
    layers = build(part, fabric)
    ### BEGIN SOLUTION
    kept, handles, last = {}, [], fabric.rank == fabric.world_size - 1
    for way, k in orders[fabric.rank]:
        if way == "forward":
            inputs = part["xs"][k]
            if fabric.rank > 0:
                fabric.recv(inputs, frm=fabric.rank - 1)
                inputs.requires_grad_()
            out = layers(inputs)
            if last:
                out = cross_entropy(out, part["ys"][k]) / len(part["ys"])
            else:
                handles.append(fabric.isend(out, to=fabric.rank + 1))
            kept[k] = inputs, out
        else:
            inputs, out = kept.pop(k)
            grad = None if last else torch.empty_like(out)
            if not last:
                fabric.recv(grad, frm=fabric.rank + 1)
            out.backward(grad)
            if fabric.rank > 0:
                handles.append(fabric.isend(inputs.grad, to=fabric.rank - 1))
    for handle in handles:
        handle.wait()
    return [p.grad for p in layers.parameters()]
    ### END SOLUTION

# %% tags=["check:run_stage"] points=2.5
check.run_stage(run_stage)

# %%
def step(fabric, parts, schedule):
    """One training step: the gradients of this rank's layers."""
    if "seconds" in parts[0]:
        meet(fabric)  # timed: all ranks begin together
    n, m = fabric.world_size, len(parts[0]["xs"])
    return list(run_stage(fabric, parts[fabric.rank], [list(schedule(s, n, m)) for s in range(n)]))

def whole_batch(stage, stages, m):
    return [("forward", 0), ("backward", 0)]

run = launch(step, stages, args=(parts, whole_batch))
lab.measure("bytes", run.trace.bytes_by_link()[0, 1] / 1e3 if run.state == "done" else None)
figures.links(run)

# %% [markdown]
# One stripe beside the diagonal is the activations, the other the gradients: each stage talks to its neighbours alone,
# with the same number of bytes each way. Step through the run: press Play, or use the arrow keys. How many ranks have
# something to do at a time?

# %%
figures.steps(run, "pipeline")

# %% [markdown]
# And the gradients themselves? The unsplit model's, for the same images, are still in `model`.

# %%
def difference(run):
    """The largest difference between the stages' gradients and those of the unsplit model."""
    if run.state == "done":
        split = models.flat([grad for stage in run.results for grad in stage])
        return f"{(split - gradients_of(model)).abs().max():.0e}"
    return "not yet"

print("largest difference from the unsplit model:", difference(run))

# %% [markdown]
# ## One works, the others wait
#
# A real stage would be large and keep its device busy for a while. Ours takes a **declared** time: the layers do their
# small work, then `fabric.compute` waits until the time is up. So four "devices" fit on any laptop. The times below
# are measured; the lengths of the boxes are declared. A backward takes twice as long as a forward, as it does for
# matrices: it multiplies twice, for the input's gradient and for the weights'.

# %%
# Helper: one step of a pipeline with declared compute
def pipeline(schedule, m, seconds=None, edges=even, link=None, rows=rows, watch=False, recompute=False):
    """One step on m micro-batches of `rows` images; seconds[stage] is declared: (forward, backward)."""
    seconds = seconds or [(forward_s, backward_s)] * stages
    parts = cut(model, edges, x[: m * rows], y[: m * rows], m, seconds, watch, recompute)
    return launch(step, stages, args=(parts, schedule), link=link)

# %%
lab.predict("naive", f"{stages} stages, the whole batch at once: what part of the time does a stage work?", "%")

# %%
naive = pipeline(whole_batch, 1, [(4 * forward_s, 4 * backward_s)] * stages, rows=4 * rows)
naive_s = makespan_s(naive.trace)
lab.measure("naive", naive_s and 100 * utilisation(naive.trace))
figures.pipeline(naive, "The whole batch at once: how much of their time do stages work?")

# %% [markdown]
# A staircase, down and up again. Arrows are messages: a stage cannot begin until the one before it has sent or, on
# the way back, the one behind it. At each moment one stage works. We have paid for all these devices, fitted a large
# model into them, and are not a bit faster than one.
#
# **In one sentence:** what would you change so that stage 0 need not wait so long?
#
# <details><summary>Compare</summary>Give it another part of the batch to work on, while the first part is
# elsewhere.</details>

# %% [markdown]
# ## Micro-batches
#
# Cut the batch into m **micro-batches**. Stage 0 hands over the first and begins the second at once, as on an assembly
# line. The gradients of the micro-batches add up in `.grad`, and the weights change only at the end of the batch: the
# result is the whole batch's. In **GPipe** (Google, 2019) each stage goes forward with all micro-batches, then
# backward with all. With your stage written, only the list of actions is new.

# %% tags=["exercise:gpipe"]
# Exercise 3.2: the GPipe schedule
def gpipe(stage, stages, micro_batches):
    """The list of actions of `stage`, one of 0 … stages - 1: each is ("forward", k) or ("backward", k).

    Every micro-batch k = 0 … micro_batches - 1 goes forward and backward once, and all go forward first.
    """
    ### BEGIN SOLUTION
    actions = []
    for way in ("forward", "backward"):
        for k in range(micro_batches):
            actions.append((way, k))
    return actions
    ### END SOLUTION

# %% tags=["check:gpipe"] points=1
check.gpipe(gpipe)

# %%
lab.predict("speedup", f"{stages} stages, the same batch in 4 micro-batches: how many times as fast as before?", "times")

# %%
run = pipeline(gpipe, 4)
gpipe_s = makespan_s(run.trace)
lab.measure("speedup", naive_s / gpipe_s if naive_s and gpipe_s else None)
figures.pipeline(run, "The same batch in four: how much of their time do stages work now?")

# %% [markdown]
# The two runs once more, on one clock. **Before you press Play:** when the whole batch reaches the last stage, how far
# will the micro-batches be? (By the messages at the very start the ranks only agree on when to begin.)

# %%
figures.replay({"whole batch": naive, "GPipe": run})

# %% [markdown]
# Count in forwards of one micro-batch. The whole batch, m of them, reaches the last stage after $(p-1)\,m$; GPipe has
# gone forward with everything after $m+p-1$. The numbers in its picture are micro-batches. The remaining grey is the
# **bubble**: filling the pipeline and draining it. Count one forward and one backward of a micro-batch as a slot. The
# last stage begins $p-1$ forwards late, and stage 0 ends $p-1$ backwards after it. So the step takes $m+p-1$ slots where
# $m$ would do: $\frac{m+p-1}{m}$ times the ideal.

# %%
# Helper: a step in multiples of the ideal
def times_ideal(run, m):
    """How long the step took, counted in m forwards and backwards; None where it is not written yet."""
    if run.state == "done":
        return round(makespan_s(run.trace) / (m * (forward_s + backward_s)), 3)

# %%
most = max(micro_batches)
lab.predict("bubble", f"{stages} stages, {most} micro-batches: how many times the ideal does GPipe take?", "times")

# %%
gpipes = {m: pipeline(gpipe, m) for m in micro_batches}
for m, run in gpipes.items():
    print(f"{m} micro-batches: {times_ideal(run, m) or 'not yet'} (by the formula {cost.bubble(stages, m):.4g})")
lab.measure("bubble", times_ideal(gpipes[most], most))

# %%
every = range(min(micro_batches), most + 1)
first, last = [times_ideal(gpipes[m], m) for m in (min(micro_batches), most)]
answer = None
if last:
    smaller = "yes" if last < first else "no"
    answer = f"{smaller}: from {first:.3g} times the ideal at {min(micro_batches)} to {last:.3g} at {most}"
figures.curves(
    [
        figures.Curve(
            "GPipe", [(m, times_ideal(run, m)) for m, run in gpipes.items()],
            [(m, cost.bubble(stages, m)) for m in every],
        )
    ],
    figures.answered("Do more micro-batches make the bubble smaller?", answer),
    x="micro-batches", y="time of a step (times the ideal)",
)

# %% [markdown]
# Where a point lies above the line, messages and a busy machine took their time: the formula counts them as free. Papers
# measure the same bubble in two more ways. Megatron-LM divides it by the ideal time: an **overhead** of $\frac{p-1}{m}$.
# GPipe divides it by the whole step: an **idle share** of $\frac{p-1}{m+p-1}$. Which is larger?

# %%
print(" m  times the ideal   overhead: paper, run   idle share: paper, run")
for m, run in gpipes.items():
    times = times_ideal(run, m)
    longer, idle = (f"{times - 1:6.1%}", f"{1 - utilisation(run.trace):6.1%}") if times else ("not yet", "not yet")
    print(f"{m:2}  {cost.bubble(stages, m):15.3f}  {schedules.overhead(stages, m):15.1%}, {longer}"
          f"  {schedules.idle_share(stages, m):17.1%}, {idle}")

# %% [markdown]
# So before you compare two papers' bubbles, ask what they divide by. And why not a thousand micro-batches? One reason: a
# very small one no longer fills a real device. For the other, look at what each stage must keep.

# %% [markdown]
# ## What a stage keeps
#
# A backward needs what its forward computed. Autograd keeps it: the **activations** of each micro-batch that has gone
# forward but not yet backward. Such a micro-batch is *in flight*. In real models activations often take more than the
# weights. Our stages can report how many bytes autograd holds, counted by its own hooks, without the weights. Time
# does not matter for this, so the next run declares none.

# %%
lab.predict("gpipe_peak", f"GPipe, {most} micro-batches: how many are in flight on stage 0, at most?", "micro-batches")

# %%
def peak(run, stage=0):
    """The most micro-batches that the stage had in flight; None where it is not written yet."""
    return in_flight(run.trace)[stage] if run.state == "done" else None

quick = [(0, 0)] * stages
watched = {"GPipe": pipeline(gpipe, most, quick, watch=True)}
lab.measure("gpipe_peak", peak(watched["GPipe"]))

# %% [markdown]
# Rank r is stage r; stage 0 keeps the images too, which are wider than an activation. The hill in the picture is as high
# as the whole batch: GPipe keeps all of it, in however many pieces. The last stage shows a way out. It has micro-batch
# 0's output and its loss very early. It *could* go backward at once, and free that memory.

# %% [markdown]
# ## One forward, one backward
#
# That is **1F1B** (PipeDream, 2019; in this form, with all gradients of one batch added up, in Megatron-LM). The last
# stage alternates from the start: forward 0, backward 0, forward 1 … Each earlier stage first goes forward a few times,
# just often enough for its first gradient to come back, then alternates too, and at the end drains what is left.

# %% [markdown]
# Stage $s$ of $p$ may hold at most $p-s$ micro-batches, and nobody may wait longer than with GPipe. A batch can also be
# shorter than the pipeline.
#
# <details><summary>Hint 1</summary>How many stages lie behind stage s? A micro-batch must pass all of them before its
# gradient can begin to come back.</details>
# <details><summary>Hint 2</summary>Three loops: some forwards; pairs of a forward and the oldest backward; the
# remaining backwards.</details>

# %% tags=["exercise:one_forward_one_backward"]
# Exercise 3.3: the 1F1B schedule
def one_forward_one_backward(stage, stages, micro_batches):
    """The list of actions of `stage`: first some forwards, then a forward and a backward in turn, then backwards.

    Stage s never has more than stages - s micro-batches in flight, and no stage waits longer than with GPipe.
    """
    ### BEGIN SOLUTION
    ahead = min(stages - stage - 1, micro_batches)
    actions = [("forward", k) for k in range(ahead)]
    for k in range(micro_batches - ahead):
        actions.append(("forward", ahead + k))
        actions.append(("backward", k))
    actions += [("backward", k) for k in range(micro_batches - ahead, micro_batches)]
    return actions
    ### END SOLUTION

# %% tags=["check:one_forward_one_backward"] points=1.5
check.one_forward_one_backward(one_forward_one_backward)

# %%
lab.predict("peak", f"1F1B, {most} micro-batches: how many are in flight on stage 0, at most?", "micro-batches")

# %%
lab.predict("bubble_1f1b", f"{stages} stages, {most} micro-batches: how many times the ideal does 1F1B take?", "times")

# %% tags=["cover"]
alternating = {m: pipeline(one_forward_one_backward, m) for m in micro_batches}
lab.measure("peak", peak(alternating[most]))
lab.measure("bubble_1f1b", times_ideal(alternating[most], most))
middle = sorted(micro_batches)[len(micro_batches) // 2]
figures.pipeline(alternating[middle], f"1F1B with {middle} micro-batches: how much of their time do stages work?")

# %% [markdown]
# Follow micro-batch 0 down and up again. Then look at the middle: every stage goes forward, backward, forward, backward,
# and while one sends an activation, its neighbour sends a gradient the other way. Had you used `send`, both would block
# here for ever.

# %%
watched["1F1B"] = pipeline(one_forward_one_backward, most, quick, watch=True)
print("most in flight, by stage:", [peak(watched["1F1B"], stage) for stage in range(stages)])

# %%
named = {"GPipe": gpipes, "1F1B": alternating}
held = {name: peak(runs[most]) for name, runs in named.items()}
answer = f"of {most}: GPipe {held['GPipe']}, 1F1B {held['1F1B']}" if all(held.values()) else None
figures.curves(
    [
        figures.Curve(name, [(m, peak(run)) for m, run in runs.items()], [(m, most_held(m)) for m in every])
        for (name, runs), most_held in zip(named.items(), [lambda m: m, lambda m: min(m, stages)])
    ],
    figures.answered("How many micro-batches must stage 0 keep?", answer),
    x="micro-batches", y="in flight on stage 0, at most", growth=True,
)

# %% [markdown]
# The same batch, the same gradients: how much time? Compare the columns below: m is the number of micro-batches. All
# gradients are compared with the unsplit model's on the same images.

# %%
def report_on(name, m, run):
    """One line: time, idle share, and how far the gradients are from the unsplit model's."""
    if run.state != "done":
        return print(f"{name:6} m = {m:2}: not yet")
    model.zero_grad()
    cross_entropy(model(x[: m * rows]), y[: m * rows]).backward()
    idle = 1 - utilisation(run.trace)
    print(f"{name:6} m = {m:2}: {times_ideal(run, m):.3f} times the ideal (formula {cost.bubble(stages, m):.3f}), "
          f"idle {idle:3.0%}, {peak(run):2} in flight on stage 0, gradients differ by {difference(run)}")

for name, runs in named.items():
    for m, run in runs.items():
        report_on(name, m, run)

# %% [markdown]
# So 1F1B is *not* faster than GPipe: by the formula both have the same bubble. What differs is how many micro-batches are
# kept, and many micro-batches are what makes the bubble small.
#
# **In one sentence:** why must stage 0 keep more than the last stage?
#
# <details><summary>Compare</summary>Its micro-batches have the longest way to go before they come back: down through all
# stages behind it, and up again.</details>

# %% [markdown]
# ## A larger batch, or smaller pieces
#
# So far a micro-batch had the same number of images, whatever m was: the *batch* grew with m. Training usually fixes the
# batch, because it decides what is learned. Then more micro-batches mean smaller ones. Let us cut one batch into ever
# more pieces, and count what autograd keeps on stage 0, in bytes.

# %%
lab.predict("fixed_gpipe", f"One batch, GPipe: how many times the bytes of {min(micro_batches)} pieces do {most} keep?", "times")

# %%
lab.predict("fixed_1f1b", f"One batch, 1F1B: how many times the bytes of {min(micro_batches)} pieces do {most} keep?", "times")

# %%
batch, kept_widths = rows * most, [784] + [128] * 7  # of each image: the input, and every ReLU's output

def kept(run, stage=0):
    """The most bytes that autograd kept for the backward on that stage; None where it is not written yet."""
    if run.state == "done":
        return 1000 * max(row["kept_for_backward_kB"] for row in run.reports[stage])

def kept_on_paper(held, rows, stage=0, recompute=False):
    """The same by counting; with recompute only inputs, and one micro-batch's outputs at a time."""
    first, *rest = kept_widths[even[stage] : even[stage + 1] + 1]
    return 4 * rows * (held * first + (1 if recompute else held) * sum(rest))

# %%
few, orders = min(micro_batches), {"GPipe": gpipe, "1F1B": one_forward_one_backward}
memory = {}
with unobserved():  # several runs, one picture
    for name, schedule in orders.items():
        for which, size in [("one batch", batch // few), ("growing", rows)]:
            small = pipeline(schedule, few, quick, rows=size, watch=True)
            memory[name, which] = [(few, kept(small)), (most, kept(watched[name]))]

for key, name in [("fixed_gpipe", "GPipe"), ("fixed_1f1b", "1F1B")]:
    (_, before), (_, after) = memory[name, "one batch"]
    lab.measure(key, after / before if before else None)

# %%
def memory_curve(name, which):
    """Measured at both ends, and by counting at every m, as if rows could be divided."""
    on_paper = []
    for m in every:
        held = {"GPipe": m, "1F1B": min(m, stages)}[name]
        on_paper.append((m, kept_on_paper(held, {"one batch": batch / m, "growing": rows}[which])))
    return figures.Curve(f"{name} ({which})", memory[name, which], on_paper)

answer, ends = None, [(at_few, at_most) for (_, at_few), (_, at_most) in memory.values()]
if all(map(all, ends)):
    growth = dict(zip(memory, [at_most / at_few for at_few, at_most in ends]))
    changes = {which: {name: growth[name, which] for name in orders} for which in ("one batch", "growing")}
    said = []
    for which, times_of in changes.items():
        changed = [f"{name}, {times:.3g} times" for name, times in times_of.items() if abs(times - 1) > 0.05]
        said.append(f"{which}: {'only ' * (len(changed) == 1)}{' and '.join(changed) or 'neither more nor less'}")
    answer = "; ".join(said)
figures.curves(
    [memory_curve(*which) for which in memory],
    figures.answered(f"{most} micro-batches instead of {few}: how many times as much does stage 0 keep?", answer),
    x="micro-batches", y="kept on stage 0 (bytes)", growth=True,
)

# %% [markdown]
# With a growing batch GPipe's memory grows with m, and 1F1B's stays level. With one fixed batch GPipe keeps that batch,
# however it is cut, while 1F1B keeps $p$ of its $m$ pieces. Either way 1F1B keeps $p/m$ of what GPipe does.
#
# **In one sentence:** what limits m, for a fixed batch, if memory does not?
#
# <details><summary>Compare</summary>The batch has only so many examples, and a small micro-batch no longer fills a
# device.</details>

# %% [markdown]
# ## Compute it twice
#
# GPipe's authors knew how much their order keeps. So for each micro-batch their stages keep *only the input*, and go
# forward once more, internally, when its backward comes (*recomputation*, or activation checkpointing:
# `torch.utils.checkpoint`). The price is time. Our stages can do it too: `recompute=True`.

# %%
lab.predict("recompute", "Each backward goes forward once more: how many times as long does the step take?", "times")

# %%
tried = {}

def switch(recompute=True, schedule="GPipe"):
    """A step with recomputation or without; its picture."""
    run = pipeline(orders[schedule], middle, watch=True, recompute=recompute)
    tried[schedule, recompute] = run
    return figures.pipeline(run, f"{schedule}, recompute = {recompute}: how much of their time do stages work?")

knobs(switch, recompute=[False, True], schedule=["GPipe", "1F1B"])

# %%
once, twice = pipeline(gpipe, middle, watch=True), tried["GPipe", True]
if once.state == "done":
    lab.measure("recompute", makespan_s(twice.trace) / makespan_s(once.trace))
    for stage in range(stages):
        before, after = kept(once, stage), kept(twice, stage)
        formula = kept_on_paper(middle, rows, stage, recompute=True)
        print(f"stage {stage}: keeps {before / 1e3:.0f} kB, recomputing {after / 1e3:.0f} kB (by counting {formula / 1e3:.0f}), "
              f"{after / before:.0%}")
longer = (2 * forward_s + backward_s) / (forward_s + backward_s)
print(f"on paper the step takes {longer:.3g} times as long, and nothing else changes")

# %% [markdown]
# A stage saves least where most of what it keeps is its input, like the first one's images: the input stays. The more
# layers lie behind one input, the more is saved. Everything else is as before, the gradients too. Real systems recompute
# only what is cheap to compute and large to keep, and use 1F1B as well: try both above.

# %% [markdown]
# ## The slowest stage
#
# So far all stages took the same time. What if one of them is slower? Let one take twice as long as each of the others.
# Together they then have a quarter more to do. Does the step take a quarter longer, or more?

# %%
lab.predict("slow_stage", f"One of {stages} stages is half as fast, m = {middle}: how many times as long is the step?", "times")

# %%
def slow_stage(slower=2):
    """A step in which one stage takes `slower` times as long as each of the others."""
    seconds = [(forward_s, backward_s)] * stages
    seconds[stages // 2] = (slower * forward_s, slower * backward_s)
    run = pipeline(one_forward_one_backward, middle, seconds)
    if slower == 2 and run.state == "done":
        lab.measure("slow_stage", makespan_s(run.trace) / makespan_s(alternating[middle].trace))
    return figures.pipeline(run, f"One stage takes {slower} times as long: how much do the others work?")

knobs(slow_stage, slower=[1, 1.5, 2, 3])

# %% [markdown]
# While the pipeline is full the slow stage hardly rests, and all others wait for it: **the slowest stage paces the
# pipeline.** Each micro-batch after the first costs that stage's time. If stage $s$ takes $t_s$ for a forward and a
# backward, a step takes $\sum_s t_s+(m-1)\max_s t_s$. In a live notebook, choose other values above the picture: each is
# a new run.

# %% [markdown]
# Layers differ: a language model's last one, with its large vocabulary, costs as much as several others. So the *cuts*
# must differ. Below are eight layers with their declared milliseconds. Where would you cut them into four stages?

# %%
layer_ms = [20, 20, 20, 20, 20, 20, 60, 60]

# %% [markdown]
# <details><summary>Hint</summary>There are few layers: you may try all ways to choose the inner edges, with
# <code>itertools.combinations(range(1, layers), stages - 1)</code>, and keep the one whose slowest stage is
# fastest.</details>

# %% tags=["exercise:balanced_cuts"]
# Exercise 3.4: balanced cuts
def balanced_cuts(seconds, stages):
    """edges, a list of stages + 1 numbers: stage s has layers edges[s] up to, but not including, edges[s + 1].

    seconds[k] is the time of layer k; the list stays as it is. Every stage has a layer, and the slowest stage is as fast
    as it can be.
    """
    ### BEGIN SOLUTION
    from itertools import combinations

    def slowest(edges):
        return max(sum(seconds[start:stop]) for start, stop in zip(edges, edges[1:]))

    ways = combinations(range(1, len(seconds)), stages - 1)
    return min(([0, *inner, len(seconds)] for inner in ways), key=slowest)
    ### END SOLUTION

# %% tags=["check:balanced_cuts"] points=1
check.balanced_cuts(balanced_cuts)

# %%
lab.predict("balance", f"Two layers a stage, m = {middle}: how many times as long as with your cuts does a step take?", "times")

# %%
def with_cuts(name, choose):
    """A bar: a step's time with these cuts, and what the formula says of it."""
    try:
        edges = choose(layer_ms, stages)
    except NotYet:
        return figures.Timing(name, None)
    stage_s = [sum(layer_ms[a:b]) / 1000 for a, b in zip(edges, edges[1:])]
    run = pipeline(one_forward_one_backward, middle, [(t / 3, 2 * t / 3) for t in stage_s], edges)
    print(f"{name}: edges {list(edges)}, stages of {[round(1000 * t) for t in stage_s]} ms")
    return figures.Timing(name, makespan_s(run.trace), cost.pipeline(stage_s, middle))

bars = [with_cuts("an even cut", lambda ms, n: even), with_cuts("a balanced cut", balanced_cuts)]
both = all(bar.measured_s for bar in bars)
lab.measure("balance", bars[0].measured_s / bars[1].measured_s if both else None)
figures.race(bars, "Does a balanced cut make the step shorter?")

# %% [markdown]
# Nothing else changed: the same layers, the same four devices. PipeDream finds such cuts by itself, from a profile of each
# layer. Your time is what the slowest stage allows: no cut can divide a layer. To go further, a layer itself must be
# split over ranks: Lab 12.

# %% [markdown]
# ## Slow links
#
# Up to now messages took no time worth mentioning. Each one here holds a micro-batch's activation, or its gradient. Let us
# choose a link on which a message takes about two thirds as long as a forward. A rank can compute while its messages travel;
# the receiver may have nothing to do until they arrive.

# %%
message_bytes = rows * 128 * 4
slow = Link(message_bytes / (forward_s * 2 / 3), "100 us")
print(f"one message: {message_bytes:,} bytes, {1000 * slow.seconds(message_bytes):.1f} ms over {slow}")

# %%
lab.predict("link_gpipe", f"GPipe, {middle} micro-batches: how many times as long is the step over this link?", "times")

# %%
lab.predict("link_1f1b", f"1F1B, {middle} micro-batches: how many times as long is the step over this link?", "times")

# %%
def over(link, schedule):
    """(the run over that link, how many times as long it takes as with no link)"""
    run = pipeline(schedule, middle, link=link)
    direct_s = makespan_s((gpipes if schedule is gpipe else alternating)[middle].trace)
    return run, makespan_s(run.trace) / direct_s if run.state == "done" and direct_s else None

gpipe_linked, longer = over(slow, gpipe)
lab.measure("link_gpipe", longer)
figures.pipeline(gpipe_linked, "GPipe over a slow link: how much of their time do stages work?")

# %%
alternating_linked, longer = over(slow, one_forward_one_backward)
lab.measure("link_1f1b", longer)
figures.pipeline(alternating_linked, "1F1B over a slow link: how much of their time do stages work?")

# %% [markdown]
# Which one does the slow link cost more, and where? GPipe can pay only where the pipeline fills and drains; in between,
# messages hide behind the work. 1F1B must pay in every round. A stage with few micro-batches in flight has nothing else
# to do until a gradient is back, so each round trip shows. 1F1B saves memory by keeping little, and so has little to
# hide the messages behind.

# %%
def on_paper(schedule, hop_s):
    """Seconds that the schedule needs if each message takes `hop_s`; None where it is not written yet."""
    try:
        orders = [list(schedule(s, stages, middle)) for s in range(stages)]
    except NotYet:
        return None
    return makespan_s(play(orders, forward_s, backward_s, hop_s))

hop_s = slow.seconds(message_bytes)
bars = [
    figures.Timing(
        name, makespan_s(run.trace), on_paper(schedule, hop_s if links == "slow" else 0), group=f"{links} links"
    )
    for links, name, schedule, run in [
        ("fast", "GPipe", gpipe, gpipes[middle]),
        ("fast", "1F1B", one_forward_one_backward, alternating[middle]),
        ("slow", "GPipe", gpipe, gpipe_linked),
        ("slow", "1F1B", one_forward_one_backward, alternating_linked),
    ]
]

answer = None
if all(bar.measured_s for bar in bars):
    said = []
    for gpipe_bar, other in (bars[:2], bars[2:]):
        ratio = other.measured_s / gpipe_bar.measured_s
        faster = f"{'GPipe' if ratio > 1 else '1F1B'}, {max(ratio, 1 / ratio):.3g} times as fast"
        said.append("a tie" if abs(ratio - 1) < 0.05 else faster)
    answer = "fast links: {}; slow ones: {}".format(*said)
figures.race(bars, figures.answered("Which schedule is faster, over fast links and over slow ones?", answer))

# %% [markdown]
# The outlines are played on paper: your lists of actions, with nothing but their dependencies and one time for each
# message. Where links are slow, real systems give 1F1B a little more in flight. Even so a pipeline asks little of its
# links: it sends only activations and their gradients, only at the cuts, and only to a neighbour.
#
# **In one sentence:** why do pipelines run *between* machines, and finer splits of a layer *inside* one?
#
# <details><summary>Compare</summary>A cut between layers passes one activation and one gradient for each micro-batch, to one
# neighbour, and can hide it behind work where enough are in flight; a split layer needs every rank's part at every layer, at
# once.</details>

# %% [markdown]
# ## Smaller bubbles (optional)
#
# GPipe and 1F1B leave a bubble of $p-1$ forwards and backwards. **Interleaved 1F1B** (Megatron-LM, 2021) gives each device
# $v$ *chunks* of the model, each a stage of its own, in place of one stage: with 4 devices and 2 chunks, device 0 has the
# first eighth and the fifth. A slot is then $v$ times shorter, and so should the bubble be: $\frac{p-1}{v\,m}$. The price
# is $v$ times as many messages.

# %%
def interleaving(chunks=2):
    """Interleaved 1F1B, played on paper: no processes, so it appears at once."""
    on_devices = [schedules.interleaved(d, stages, 2 * stages, chunks) for d in range(stages)]
    trace = play(on_devices, forward_s, backward_s, chunks=chunks)
    return figures.pipeline(trace, f"Chunks a device: {chunks}. How much of their time do devices work?")

knobs(interleaving, chunks=[1, 2, 4])

# %% [markdown]
# A number with a prime is that micro-batch in the device's second chunk. **Split backwards** (*zero bubble*, 2024) are the
# other idea. A backward is two products: the input's gradient, for which the stage before waits, and the weights', for
# which nobody waits until the end of the step. So do the first at once, and fill the bubble with the second.

# %%
half = backward_s / 2  # two products of the same size
split = [schedules.split_backward(s, stages, 2 * stages) for s in range(stages)]
figures.pipeline(play(split, forward_s, half, weights_s=half), "Split backwards: how much of their time do stages work?")

# %% [markdown]
# The contest: `mine` below begins as a copy of the schedule above. One bound holds for all schedules without chunks:
# the last stage cannot begin before $p-1$ forwards have passed, and `mine` may already reach that bound. So win
# elsewhere: take the same time with fewer micro-batches in flight, or go under the bound with chunks. The player refuses a
# schedule that waits for ever.

# %%
def mine(stage, stages, m):
    """Yours: ("forward", k), ("backward", k) for the input's gradient, ("weights", k)."""
    return schedules.split_backward(stage, stages, m)

m, ideal_s = 2 * stages, 2 * stages * (forward_s + backward_s)
own = [mine(s, stages, m) for s in range(stages)]
contest = {f"interleaved, chunks: {v}": (play([schedules.interleaved(d, stages, m, v) for d in range(stages)],
                                             forward_s, backward_s, chunks=v), v) for v in (2, 4)}
contest["mine"] = (play(own, forward_s, half, weights_s=half), 1)
for name, (trace, v) in contest.items():
    extra, most_held = makespan_s(trace) / ideal_s - 1, max(in_flight(trace)) / v
    print(f"{name:22} overhead {extra:6.1%}, at most {most_held:.3g} micro-batches' activations on a device")
bound = (stages - 1) * forward_s / ideal_s
print(f"by the papers: 1F1B {schedules.overhead(stages, m):.1%}, 2 chunks {schedules.overhead(stages, m, 2):.1%}, "
      f"split {schedules.split_bubble_s(stages, forward_s, half, half) / ideal_s:.1%}; the bound {bound:.1%}")

# %% [markdown]
# Does this hold on real ranks? `rehearse` does a schedule's actions in four processes, with declared work and messages
# over a link, but without a model. Here is the previous section's slow link, with messages of the same size. Before you
# run it: which schedule sends the most messages, and will its smaller bubble still pay?

# %%
def rehearsal(name, on_stages, backward, weights=0, chunks=1):
    """A bar: the schedule on real ranks over the slow link, and on paper."""
    seconds = (forward_s, backward, weights)
    run = launch(rehearse, stages, args=(on_stages, seconds, message_bytes, chunks), link=slow)
    on_paper = play(on_stages, forward_s, backward, hop_s, weights_s=weights, chunks=chunks)
    print(f"{name}: {makespan_s(run.trace) / makespan_s(on_paper):.3f} times the player's time")
    return figures.Timing(name, makespan_s(run.trace), makespan_s(on_paper))

two = [schedules.interleaved(d, stages, m, 2) for d in range(stages)]
one = [schedules.interleaved(d, stages, m, 1) for d in range(stages)]
with unobserved():
    bars = [rehearsal("1 chunk", one, backward_s), rehearsal("2 chunks", two, backward_s, chunks=2)]
    bars.append(rehearsal("mine", own, half, half))
figures.race(bars, "Over a slow link: which schedule is fastest?")

# %% [markdown]
# **In one sentence:** when do more chunks pay?
#
# <details><summary>Compare</summary>Where the bubble that they save is longer than the messages that they add: over fast
# links, and where a batch has few micro-batches.</details>

# %% [markdown]
# ## What you predicted, and what came out

# %%
figures.predicted(lab, ["bubble", "bubble_1f1b", "fixed_gpipe", "fixed_1f1b", "recompute", "balance"])

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Huang and others, *GPipe* ([arXiv:1811.06965](https://arxiv.org/abs/1811.06965), 2019). Narayanan and
# others: *PipeDream* (SOSP 2019), 1F1B and cuts by profile; *Memory-efficient pipeline-parallel DNN training*
# ([arXiv:2006.09503](https://arxiv.org/abs/2006.09503), 2021), the 1F1B of this lab; *Efficient large-scale language model
# training on GPU clusters using Megatron-LM* ([arXiv:2104.04473](https://arxiv.org/abs/2104.04473), 2021), interleaving. Qi
# and others, *Zero bubble pipeline parallelism* ([arXiv:2401.10241](https://arxiv.org/abs/2401.10241), 2024). Chen and
# others, *Training deep nets with sublinear memory cost* ([arXiv:1604.06174](https://arxiv.org/abs/1604.06174), 2016):
# recomputation. In PyTorch: `torch.distributed.pipelining`.
