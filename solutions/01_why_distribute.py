# %% [markdown]
# # Lab 01. Why distribute: throughput, speedup, efficiency, and the model's own metrics
#
# **After this lab you are able to** time a training step so that the number means something, to say how much faster n
# workers are and why not n times, to predict where adding workers stops helping, to tell a fast run from one that
# learns, and to count the bytes that training a model takes.
#
# **Minutes:** 60 · **Points:** 6 · **Prerequisites:** Lab 00, and training a small network in PyTorch on one device.

# %% [markdown]
# ![Declared compute, and a job that grows with its workers: are they all of use? The job grows …](../labs/covers/01.png)

# %%
# Set-up: the tools of this lab
import math
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

from worldsize.notebook import *
from worldsize.formulas import scaling
from worldsize.machine import usable_cores
from worldsize.pytorch import models

# %% tags=["parameters"]
batch = 256
each_images = 64
rounds = 30
job_s = 1.0
share_s = 0.1
most_workers = 16
team = 8
target = 0.75

# %%
lab, check = open_lab("01")

# %% [markdown]
# ## One worker
#
# A *worker* is one process that trains on one core. Ours trains a small convolutional network on pictures of clothes
# (Fashion-MNIST): 28 × 28 grey pixels, ten classes. Here is one training step, as you know it. The update is written
# out, plain gradient descent.

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
# The first step pays for things that come once: memory is fetched from the system, the fastest routine for these shapes
# is looked up, threads start. On a GPU it can take seconds. So the first steps are a **warm-up** and do not count. And
# now and then a step is slow because the machine did something else. The *mean* of ten would carry that; the **median**,
# the one in the middle, does not.

# %% [markdown]
# ## Your timer
#
# Write it so that it can time anything: it is given the step and the clock, both as functions. `clock()` returns
# seconds. Call `step()` a few times first, then take the seconds of each call that counts.
#
# <details><summary>Hint</summary>A list of seconds, and <code>statistics.median</code>.</details>

# %% tags=["exercise:seconds_per_step"]
# Exercise 1.1: a timer that warms up
def seconds_per_step(step, clock, warm_up, steps):
    """Call step() warm_up times, then steps times more; return the median seconds of those that count.

    clock() returns the time in seconds, from any start.
    """
    ### BEGIN SOLUTION
    for _ in range(warm_up):
        step()
    seconds = []
    for _ in range(steps):
        before = clock()
        step()
        seconds.append(clock() - before)
    return statistics.median(seconds)
    ### END SOLUTION

# %% tags=["check:seconds_per_step"] points=1.5
check.seconds_per_step(seconds_per_step)

# %% [markdown]
# **Throughput** is work done in a second, here images. Put your timer to use: does a worker do more images a second when
# each step has more of them?

# %%
lab.predict("larger", f"Steps of {batch} images instead of 1: how many times the images a second?", "times")

# %%
def throughput(sizes):
    """Images a second of one worker, for each number of images a step."""
    torch.set_num_threads(1)
    model = models.small_cnn(seed=0)

    def images_per_s(size):
        def step():
            gradients(model, images[:size], labels[:size])
            update(model)

        return size / seconds_per_step(step, time.perf_counter, warm_up=3, steps=9)

    return [images_per_s(size) for size in sizes]

sizes = [1, 4, 16, 64, batch]
run = launch(throughput, 1, args=(sizes,), device="cpu")
found = run[0] if run.state == "done" else [None] * len(sizes)

# %%
lab.measure("larger", found[-1] and found[-1] / found[0])
figures.curves(
    [figures.Curve("one worker", list(zip(sizes, found)))],
    "Do more images a step give more images a second, and without end?",
    x="images a step", y="images a second", log=True,
)

# %% [markdown]
# Every step has a price that does not depend on its images: Python calls each layer once. Few images do not pay for it.
# Remember this when we cut a batch into pieces.

# %% [markdown]
# ## More workers on the same batch
#
# Now **data parallel** training, in its simplest form: n workers have the same model, each takes its n-th of the batch,
# and then all of them average their gradients. `dist.all_reduce` leaves the sum on every rank. Labs 04 and 06 look
# inside; here it is a tool. The batch stays the same, so this is **strong scaling**: the same work, more hands.

# %%
def training(fabric, n, count, group):
    """A step in which each of n workers takes `count` images, and all average their gradients."""
    model, mine = models.small_cnn(seed=0), slice(fabric.rank * count, (fabric.rank + 1) * count)
    pictures, answers = (images[mine], labels[mine]) if fabric.rank < n else (None, None)

    def step():
        grads = gradients(model, pictures, answers)
        together = nn.utils.parameters_to_vector(grads)
        dist.all_reduce(together, group=group)
        nn.utils.vector_to_parameters(together / n, grads)
        update(model)

    return step

# %% [markdown]
# To be fair, all cases take turns in one launch, round after round. The ranks that a case does not need wait. Your timer
# times one step a round. What other programs do can only make a step slower, and it may last longer than a few steps: so
# of all the rounds the best one counts, and the first is the warm-up. Every worker may use one thread, that is one core.

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
                lap = torch.tensor(seconds_per_step(step, time.perf_counter, warm_up=0, steps=1))
                dist.all_reduce(lap, dist.ReduceOp.MAX, group=groups[n])  # the slowest rank counts
                row.append(lap.item())
    return [min(row, default=None) for row in laps]

def time_cases(make_step, cases, rounds):
    """Seconds per step of each case; None for each while the timer is not yet written."""
    most = max(n for n, _ in cases)
    run = launch(contest, most, args=(make_step, cases, rounds), device="cpu")
    return run[0] if run.state == "done" else [None] * len(cases)

# %%
cores = max(1, int(usable_cores()))
worlds = [n for n in (1, 2, 4, 8, 16, 32) if n <= 4 * cores]
print(f"this machine lets us use {cores} cores; we try {worlds} workers, {batch} images a step together")

# %%
lab.predict("cores", f"How many times as fast as one worker are {cores}?", "times")

# %%
lab.predict("beyond", f"And {worlds[-1]} workers on these {cores} cores?", "times")

# %%
strong = time_cases(training, [(n, batch // n) for n in worlds], rounds)

# %% [markdown]
# Three numbers come of it. **Throughput** again. **Speedup**: the seconds of one worker over the seconds of
# n. **Efficiency**: the speedup over n, the part of the workers that you paid for and that is put to use.

# %%
def ratio(one, other):
    return one / other if one and other else None

speedups = [ratio(strong[0], s) for s in strong]
print("workers  ms a step  images/s  speedup  efficiency" if strong[0] else "not yet: the timer")
for n, seconds, gain in zip(worlds, strong, speedups):
    if seconds:
        part = scaling.efficiency(n, gain)
        print(f"{n:7}  {1000 * seconds:9.1f}  {batch / seconds:8,.0f}  {gain:7.2f}  {part:10.0%}")
inside = [n for n in worlds if n <= cores]
lab.measure("cores", speedups[len(inside) - 1])
lab.measure("beyond", speedups[-1])

# %%
figures.curves(
    [
        figures.Curve("measured", list(zip(worlds, speedups))),
        figures.Curve("n workers, n times as fast", predicted=[(n, n) for n in worlds]),
        figures.Curve(f"… as far as there are {cores} cores", predicted=[(n, min(n, cores)) for n in worlds]),
    ],
    f"A small CNN on {cores} cores: how many times as fast are more workers?",
    x="workers", y="speedup",
)

# %% [markdown]
# Up to the number of cores, more workers help. Beyond it they share cores: each gets a smaller part of a second, and
# averaging takes a little more with each, so there is nothing left to gain. (If other programs run on this machine,
# points may lie anywhere; run the cells again.) What would happen with a core for every worker?

# %% [markdown]
# ## Workers with a core of their own
#
# We have no more cores. So from here on a worker's computing is **declared**: `fabric.compute(0.1)` takes 0.1 s and
# uses no core, it sleeps. The messages stay real. Of our job one twentieth is **serial**: rank 0 alone does it, say
# writing the log and saving the weights, while the others wait for it. The rest is shared evenly.

# %%
serial_part = 0.05

def declared(fabric, n, work_s, group):
    """A step of declared compute: each does `work_s`, they average, then rank 0 alone does the serial part."""
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
# workers are paid to wait. As workers are added, the shared part shrinks. The serial part does not.

# %%
lab.predict("cap", "5 % is serial. How many times as fast can a million workers be?", "times")

# %%
lab.measure("cap", scaling.amdahl(1_000_000, serial_part))

def cap(serial=serial_part):
    workers, limit = [2**k for k in range(11)], scaling.amdahl_limit(serial)
    return figures.curves(
        [
            figures.Curve("Amdahl's law", predicted=[(n, scaling.amdahl(n, serial)) for n in workers]),
            figures.Curve("its limit", predicted=[(n, limit) for n in workers]),
        ],
        f"{100 * serial:g} % is serial: how many times as fast can it get?", x="workers", y="speedup", log=True,
    )

knobs(cap, serial=[0.001, 0.01, serial_part, 0.2, 0.5])

# %% [markdown]
# That is **Amdahl's law** (1967). Call one worker's time 1 and its serial part $f$. Then $n$ workers take
# $f+\frac{1-f}{n}$, and the speedup is $S=1\big/\left(f+\frac{1-f}{n}\right)$. However large $n$ is, $S$ stays under
# $1/f$. In JupyterLab you can choose other values of f above the picture.

# %% [markdown]
# ## Your first fit
#
# On a real machine nobody tells you f. You measure speedups and look for the f that explains them. Turn the law over:
# $\frac1S=f+\frac{1-f}{n}$. Then $\frac1S-\frac1n=f\left(1-\frac1n\right)$: with $y$ for the left side and $x$ for the
# bracket, $y=fx$. The best $f$ by least squares is $\sum xy\big/\sum x^2$. Noise can push it below 0 or above 1; keep
# it between.
#
# <details><summary>Hint</summary>For n = 1 both x and y are 0. In the two sums that does no harm. If you divide y by x
# for each point, leave n = 1 out.</details>

# %% tags=["exercise:amdahl_fit"]
# Exercise 1.2: the serial fraction by Amdahl's law
def amdahl_fit(workers, speedups):
    """The serial fraction f, from 0 to 1, that explains measured speedups best.

    workers and speedups are lists of one length; workers may hold a 1, and holds at least one larger number.
    """
    ### BEGIN SOLUTION
    xy = xx = 0.0
    for n, s in zip(workers, speedups):
        x, y = 1 - 1 / n, 1 / s - 1 / n
        xy += x * y
        xx += x * x
    return min(1.0, max(0.0, xy / xx))
    ### END SOLUTION

# %% tags=["check:amdahl_fit"] points=1.5
check.amdahl_fit(amdahl_fit)

# %% [markdown]
# Now the declared job on real ranks. We fit f to the runs of up to 8 workers, and see whether it foretells those of 16,
# which it has not seen.

# %%
many = [n for n in (1, 2, 4, 8, 16, 32) if n <= most_workers]
lab.predict("sixteen", f"5 % is serial. How many times as fast are {many[-1]} workers?", "times")

# %%
shares = [(n, (1 - serial_part) * job_s / n) for n in many]
fixed = time_cases(declared, shares, rounds=3)
gains = [ratio(fixed[0], s) for s in fixed]
lab.measure("sixteen", gains[-1])

# %%
# Helper: what a fit finds, or None
def fitted(fit, workers, *measured):
    """What a fit finds; None while it, or the timer, is not yet written, or with one worker only."""
    if any(None in row for row in measured) or max(workers) < 2:
        return None
    try:
        return fit(workers, *measured)
    except NotYet:
        return None

def law(formula, f, workers):
    return [] if f is None else [(n, formula(n, f)) for n in workers]

# %%
f = fitted(amdahl_fit, many[:-1], gains[:-1])
figures.curves(
    [
        figures.Curve("declared compute, real messages", list(zip(many, gains)), law(scaling.amdahl, f, many)),
        figures.Curve("Amdahl's law with 5 %", predicted=law(scaling.amdahl, serial_part, many)),
    ],
    f"Declared compute, {serial_part:.0%} of it serial: how many times as fast are {many[-1]} workers?",
    x="workers", y="speedup",
)

# %%
if f:
    print(f"fitted serial fraction {f:.1%}: no more than {scaling.amdahl_limit(f):.1f} times as fast, ever")
    print(f"{many[-1]} workers: the fit says {scaling.amdahl(many[-1], f):.2f}, measured {gains[-1]:.2f}")
    print(f"declared serial: {serial_part:.1%}")

# %% [markdown]
# **In one sentence:** what can make the fitted part larger than the declared one, and the last point lower than the line?
#
# <details><summary>Compare</summary>Averaging the gradients and waking up the ranks take time too, and no worker shares
# that. It even <em>grows</em> with n, which Amdahl's law has no term for.</details>
#
# Lab 02 measures messages. Now fit the real network, as far as there are cores:

# %%
f_cnn = fitted(amdahl_fit, inside, speedups[: len(inside)])
if f_cnn is not None:
    print(f"small CNN on up to {cores} cores: serial fraction {f_cnn:.1%}, limit {scaling.amdahl_limit(f_cnn):.1f}")
figures.curves(
    [figures.Curve("small CNN, measured", list(zip(worlds, speedups)), law(scaling.amdahl, f_cnn, worlds))],
    f"Does the law that was fitted up to {cores} cores hold beyond them?",
    x="workers", y="speedup",
)

# %% [markdown]
# "Serial" here is all that did not shrink: averaging, the update that every worker repeats, the Python around it, and
# whatever else this machine did. A fit of 0 % means that noise hid it. A law holds for what it was made for: n workers
# with n cores.
#
# **In one sentence:** why is a fit to few workers a risky promise for many?
#
# <details><summary>Compare</summary>What grows with the number of workers, as messages do, hardly shows among few, and
# what runs out, as cores do, does not show at all.</details>

# %% [markdown]
# ## A job that grows
#
# Amdahl's law sounds hopeless. Gustafson (1988) asked whether we want the same job at all. With more workers people take
# *more data*: every worker keeps its full share, and the batch grows. That is **weak scaling**. First the real network:
# each worker now takes images of its own, as many as one worker alone.

# %%
lab.predict(
    "weak", f"{worlds[-1]} workers on {cores} cores, {each_images} images each: how many times one worker's seconds?", "times"
)

# %%
weak = time_cases(training, [(n, each_images) for n in worlds], rounds)
lab.measure("weak", ratio(weak[-1], weak[0]))
figures.curves(
    [
        figures.Curve("measured", [(n, ratio(s, weak[0])) for n, s in zip(worlds, weak)]),
        figures.Curve(f"{cores} cores shared", predicted=[(n, max(1, n / cores)) for n in worlds]),
    ],
    f"Each worker brings its own images. Does a step on {cores} cores stay as short?",
    x="workers, each with its own images", y="seconds of a step, of one worker's",
)

# %% [markdown]
# Perfect weak scaling is a flat line: more work, the same time. Up to the cores it can be nearly so, on a machine with
# nothing else to do. Then the workers queue for cores: the dashed line.

# %% [markdown]
# What has n times the batch in the same time is worth is said by the **scaled speedup**: the seconds that *one* worker
# would need for the whole grown job, over the seconds that n need. Now call the *n workers'* time 1, and f its serial
# part. One worker would do the serial part once and everybody's share, one after the other: $S=f+(1-f)\,n$. There is
# no cap: it grows with n for ever.

# %% [markdown]
# Write the fit. You get both measurements. Again turn the law over: $n-S=f\,(n-1)$, again $y=fx$.
#
# <details><summary>Hint</summary>First the scaled speedups, one for each number of workers. Then the same two sums as
# before, with other x and y.</details>

# %% tags=["exercise:gustafson_fit"]
# Exercise 1.3: the serial fraction by Gustafson's law
def gustafson_fit(workers, alone_s, together_s):
    """The serial fraction f, from 0 to 1, that explains measured scaled speedups best.

    alone_s[k]: seconds of one worker for the whole job of workers[k]; together_s[k]: seconds of those workers.
    """
    ### BEGIN SOLUTION
    scaled = [alone / together for alone, together in zip(alone_s, together_s)]
    xy = sum((n - 1) * (n - s) for n, s in zip(workers, scaled))
    xx = sum((n - 1) ** 2 for n in workers)
    if xy <= 0:
        return 0.0
    return min(1.0, xy / xx)
    ### END SOLUTION

# %% tags=["check:gustafson_fit"] points=1.5
check.gustafson_fit(gustafson_fit)

# %% [markdown]
# The declared job again, with the same serial part. But now every worker keeps a share of work of its own, so the
# serial part is a larger fraction of each step. By Amdahl's law that is worse. Is it?

# %%
serial_s = serial_part * job_s
serial_share = serial_s / (serial_s + share_s)
print(f"a step: {1000 * share_s:.0f} ms for everyone, {1000 * serial_s:.0f} ms for rank 0 alone: {serial_share:.0%} serial")
lab.predict("scaled", f"{serial_share:.0%} is serial. The scaled speedup of {many[-1]} workers?", "times")

# %%
alone = time_cases(declared, [(1, share_s * n) for n in many], rounds=1)
together = time_cases(declared, [(n, share_s) for n in many], rounds=3)
scaled = [ratio(a, t) for a, t in zip(alone, together)]
lab.measure("scaled", scaled[-1])
f_weak = fitted(gustafson_fit, many, alone, together)

# %% tags=["cover"]
figures.curves(
    [
        figures.Curve("the job grows (Gustafson)", list(zip(many, scaled)), law(scaling.gustafson, f_weak, many)),
        figures.Curve("the job stays (Amdahl), same serial part", predicted=law(scaling.amdahl, serial_share, many)),
    ],
    "Declared compute, and a job that grows with its workers: are they all of use?",
    x="workers", y="speedup",
)

# %%
if f_weak is not None:
    print(f"fitted serial fraction {f_weak:.1%}, declared {serial_share:.1%}; the rest is messages, as before")
f_weak_cnn = None
if cores > 1:
    one = time_cases(training, [(1, each_images * n) for n in inside], rounds)
    f_weak_cnn = fitted(gustafson_fit, inside, one, weak[: len(inside)])
if f_weak_cnn is not None:
    print(f"small CNN on up to {cores} cores: serial fraction {f_weak_cnn:.1%}")

# %% [markdown]
# The two laws do not quarrel. They answer two questions: *how soon is this job done*, and *how much can be done in this
# time*. Training can ask the second one, since there is always more data. But a larger batch is another step for the
# model. What does it make of it?

# %% [markdown]
# ## Does it learn?
#
# Throughput is the machine's number. The model has its own. **Accuracy**: the part of test images that it names right.
# **Recall** of a class: the part of that class's images that it finds. **Average precision** (AP): sort all images by
# how sure it is of the class; AP is high if those of the class come first. The last two see what a mean hides.

# %% [markdown]
# One worker takes 32 images a step. Eight workers take 32 each and average: that is one step with 256 images (lab 04
# proves it), so a single process can show us what eight would learn. Both train here, side by side on two ranks, with
# the same learning rate. Every few steps they look at the test images.

# %%
plans = [(32, 300, 20), (32 * team, 120, 10)]  # images a step, steps, steps between two looks

def learn(fabric):
    """(step, accuracy) at every look, and what the model says of the test images at each."""
    torch.set_num_threads(1)
    size, steps, every = plans[fabric.rank]
    model, order, curve, said = models.small_cnn(seed=0), torch.Generator().manual_seed(1), [], []
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
lab.predict("worst", "One worker, 300 steps: what recall has the class that it knows worst?", "%")

# %%
run = launch(learn, 2, device="cpu")
(one_curve, one_said), (team_curve, team_said) = run.results

# %% [markdown]
# Compare them after equally many images: all of the one worker's, and as many of the team's, which took an eighth of
# the steps.

# %%
from sklearn.metrics import accuracy_score, average_precision_score, recall_score

def scores(said):
    """Accuracy; recall and average precision of each class, as scikit-learn computes them."""
    truth, named = test_labels.numpy(), said.argmax(1)
    average_precision = [average_precision_score(truth == k, said[:, k]) for k in range(said.shape[1])]
    return accuracy_score(truth, named), recall_score(truth, named, average=None), average_precision

looks = [step * plans[1][0] for step, _ in team_curve]
same = min(range(len(looks)), key=lambda k: abs(looks[k] - plans[0][0] * one_curve[-1][0]))
alone_scores, team_scores = scores(one_said[-1]), scores(team_said[same])
print(f"one worker after {plans[0][0] * one_curve[-1][0]:,} images, the team of {team} after {looks[same]:,}")
print(f"{'':12}  one worker      the team")
print(f"{'accuracy':12}  {alone_scores[0]:10.0%}  {team_scores[0]:12.0%}")
for name, *found in zip(clothes.classes, *alone_scores[1:], *team_scores[1:]):
    print("{:12}  recall {:4.0%}, AP {:4.0%}   recall {:4.0%}, AP {:4.0%}".format(name, *found))
lab.measure("worst", 100 * min(alone_scores[1]))

# %% [markdown]
# Two things to see. One accuracy hides classes that are nearly always found and others that are often missed: shirts,
# coats and pullovers look alike. And the team, with as many images, has learnt less. It goes through them several times as
# fast, but it took a fraction of the steps, and a step is when a model learns.

# %%
lab.predict("sooner", f"{team} workers: how many times as soon as one do they reach {target:.0%} accuracy?", "times")

# %% [markdown]
# The seconds of a step are those that your timer measured above, in the declared runs in which every worker keeps its
# share: for one worker, and for eight. Two numbers for the same runs: images a second, and **accuracy per hour** on the
# way to a goal.

# %%
def seconds_to(curve, step_s, goal):
    """Seconds until the first look at which the accuracy is at least `goal`; None if it never is."""
    steps = next((step for step, accuracy in curve if accuracy >= goal), None)
    return step_s * steps if steps and step_s else None

one_s, team_s = together[0], together[many.index(team)]
soon = [seconds_to(one_curve, one_s, target), seconds_to(team_curve, team_s, target)]
lab.measure("sooner", ratio(*soon))
for name, plan, step_s, goal_s in zip(("one worker", f"{team} workers"), plans, (one_s, team_s), soon):
    if goal_s:
        print(f"{name:10}: {plan[0] / step_s:6,.0f} images/s, {target:.0%} accuracy after {goal_s:.1f} s (declared compute):",
              f"that is {100 * target / goal_s * 3600:,.0f} points of accuracy per hour")

# %%
def descent(name, curve, step_s):
    return figures.Descent(name, step_s and [(step, step * step_s, 1 - accuracy) for step, accuracy in curve])

figures.descents(
    [descent("one worker", one_curve, one_s), descent(f"{team} workers", team_curve, team_s)],
    f"{team} workers look at {team} times as many images. Does the error fall as much faster?", y="test error (1 − accuracy)",
)

# %% [markdown]
# Left, by steps: is a step of the team worth as many of one worker? Right, by seconds: the gain that counts. Images a
# second may promise more than **time to a given accuracy**, or the accuracy after an hour, will hold. A faster run that
# learns less is no gain. Lab 13 is about what large batches need: another learning rate, for a start.
#
# **In one sentence:** why is strong scaling free of this trouble?
#
# <details><summary>Compare</summary>There the batch, and with it every step, stays the same; only its seconds change.</details>

# %% [markdown]
# ## Too large for one
#
# Time is one reason to distribute. The other one is **memory**. In a training step a device holds the *weights*, a
# *gradient* for each, what the *optimizer* remembers of each (Adam: two numbers, its moments), and *activations*: what the
# forward pass keeps for the backward pass. PyTorch tells us of each tensor that it keeps:

# %%
def kept(model, loss_of):
    """The tensors kept for the backward pass, each piece of memory once and without the weights; and the loss."""
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
# Exercise 1.4: the memory of a training step
def training_bytes(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    """Bytes of a training step: {"weights": …, "gradients": …, "optimizer": …, "activations": …}.

    weights: a shape for each parameter tensor; weight_bytes of a weight, and of its gradient; optimizer_bytes a weight.
    saved: (shape, bytes of a number) of each tensor that is kept for ONE example; batch: how many examples.
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

# %% tags=["check:training_bytes"] points=1.5
check.training_bytes(training_bytes)

# %% [markdown]
# ### Against measured bytes
#
# One real step with Adam. Afterwards we ask every tensor how large it is. Your estimate knows the shapes, and what one
# image keeps, and nothing else.

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
    return figures.Curve(name, [(count, part(row)) for count, row in zip(counts, real)], estimates)

one_image = paper[0] and paper[0]["activations"]
lab.measure("outweigh", one_image and math.floor(rest(paper[0]) / one_image) + 1)
figures.curves(
    [lines("activations", lambda row: row["activations"]), lines("weights, gradients, Adam", rest)],
    "What of the memory grows with the batch, and what does not?",
    x="images", y="memory (bytes)", log=True,
)

# %% [markdown]
# The few bytes that your estimate misses: Adam also counts its steps, one number for each tensor, and the loss keeps one
# that is not per image. For this network the activations are nearly all there is. In a large language model with a small
# batch it is the other way round.

# %% [markdown]
# ### A model of seven billion
#
# Let us build a language model of the size that the ZeRO paper takes as its example. The `meta` device knows shapes and no
# memory, so the same hooks tell what it *would* keep. In mixed precision a weight and its gradient have 2 bytes. Adam then
# keeps 12 for each: a float32 copy of the weight and two moments.

# %%
lab.predict("large", "7.5 billion weights, mixed precision, Adam: how many GB without activations?", "GB")

# %%
layers, width, length, heads = 36, 4096, 1024, 32
with torch.device("meta"):
    block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, dtype=torch.bfloat16)
    words = nn.Embedding(50_257, width, dtype=torch.bfloat16)
    text = torch.empty(1, length, width, dtype=torch.bfloat16)
large = [tuple(p.shape) for p in block.parameters()] * layers + [tuple(words.weight.shape)]
print(f"{sum(math.prod(shape) for shape in large) / 1e9:.2f} billion weights")
one_text = [(tuple(t.shape), t.element_size()) for t in kept(block, lambda m: m(text).sum())[0]] * layers
need = estimated(large, one_text, 1, 2, 12)
lab.measure("large", need and rest(need) / 1e9)
for part, size_bytes in (need or {}).items():
    print(f"{part:12} {size_bytes / 1e9:6.1f} GB")
tables = sum(math.prod(shape) * size for shape, size in one_text if shape[-2:] == (length, length))
print(f"the tables of attention, every word against every word, are {tables / 1e9:.1f} GB of the activations")

# %%
def parts(need, n):
    return need and {part: size_bytes / n for part, size_bytes in need.items()}

cards = 8
figures.stacks(
    {
        "One card": need and [need],
        "Two cards, data parallel: a copy on each": need and [need] * 2,
        f"{cards} cards, each an equal part of the model": need and [parts(need, cards)] * cards,
    },
    "7.5 billion weights: which way do they fit?", limit=("a card of 80 GB", 80e9),
)

# %% [markdown]
# It does not fit, with a single text of a thousand words as its batch. Data parallelism does not help at all: every
# worker holds the whole. The model itself must be cut, by layers (lab 03) or tensor by tensor (lab 12). That is the
# second reason to distribute, and for large models it comes first.
#
# **In one sentence:** which of the four parts could you make smaller on one device, and at what price?
#
# <details><summary>Compare</summary>Activations: keep fewer and compute them again in the backward pass, which costs time
# (FlashAttention does so with its tables, and gains time).
# The optimizer's state: plain gradient descent keeps none, and often learns slower.</details>

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Amdahl, *Validity of the single processor approach to achieving large scale computing capabilities*
# (AFIPS 1967). Gustafson, *Reevaluating Amdahl's law* (CACM 1988). Coleman and others, *DAWNBench* (2017): time to
# accuracy. Goyal and others, *Accurate, large minibatch SGD* ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677)).
# Rajbhandari and others, *ZeRO* ([arXiv:1910.02054](https://arxiv.org/abs/1910.02054), 2020): sixteen bytes a weight, and
# how to share them. Karp and Flatt (CACM 1990): the serial fraction as a tool to find out what is slow.
