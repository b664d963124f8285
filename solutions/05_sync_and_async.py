# %% [markdown]
# # Lab 05. Synchronous and asynchronous updates
#
# **After this lab you are able to** train with a parameter server that waits for everybody, for nobody, or for most;
# to say how old a gradient is when it is applied, and what its age does; and to compare ways of training fairly: by
# seconds, each at its own best learning rate, over several seeds.
#
# **Minutes:** 185 (two sittings: 95 up to “Backup workers”, then 90) · **Points:** 6 · **Prerequisites:** Lab 00 (`send`,
# `recv`), gradient descent with PyTorch.

# %% [markdown]
# ![Timeline of 9 ranks over 1.45 s: rank 1 computes 4.3 times as long as the others; rank 0 waits …](../labs/covers/05.png)

# %%
# Set-up: the tools of this lab
import heapq
import math
import random
import statistics
import time

from worldsize.notebook import *

import torch

from worldsize.formulas import staleness as formulas
from worldsize.launch import unobserved

# %% tags=["parameters"]
few = 4
workers = 8
worlds = [1, 2, 4, 8, 16]
pool = 12
work_s = 0.02
slow = 5
trainings = 9  # seeds of each comparison; “A fair race” takes as many fresh ones

# %%
lab, check = open_lab("05")

# %% [markdown]
# ## A bowl with a known bottom
#
# Our model is as small as can be: a linear regression with ten weights. The columns of `x` are made uncorrelated, each
# with variance 1. Then the loss is a round bowl: it curves equally in all directions, with curvature 1. And we know its
# lowest point, so we can say how far *above* it the weights still are. We will plot that number.

# %%
def make_points(count=1000, features=10):
    """x [count, features], y [count], and the weights with the smallest loss, [features]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.linalg.qr(torch.randn(count, features, generator=generator)).Q * count**0.5
    y = x.sum(dim=1) + torch.randn(count, generator=generator)
    return x, y, x.T @ y / count

x, y, best = make_points()

# %%
def loss(weights):
    return ((x @ weights - y) ** 2).mean().item() / 2

lowest = loss(best)

def excess(weights):
    return loss(weights) - lowest

def gradient(weights, own=None, batch=8):
    """From a batch drawn at random: from all examples, or from the rows `own`."""
    rows = torch.randint(len(x if own is None else own), (batch,))
    rows = rows if own is None else own[rows]
    return x[rows].T @ (x[rows] @ weights - y[rows]) / batch

print(f"all weights zero: {loss(0 * best):.2f}, the best weights: {loss(best):.2f}")

# %% [markdown]
# ## Letters
#
# Rank 0 is the **parameter server**: it owns the weights. All other ranks are **workers**: they get weights, compute a
# gradient, and send it. Every message here is a *letter*: first a version number, then ten values. On a letter with
# weights the version is the number of updates that these weights contain. A gradient carries the version of the weights
# that it was computed on. Version −1 means: stop.

# %%
# Set-up
STOP = -1

def letter(version, values):
    """A version number and values, as one tensor."""
    return torch.cat([torch.tensor([float(version)]), values])

def opened(box):
    """The version and the values of a letter."""
    return int(box[0]), box[1:]

def dismiss(fabric, weights, busy):
    """The end: throw away the gradient of each worker in `busy`, then tell all to stop."""
    for worker in busy:
        fabric.recv(letter(0, weights), frm=worker)
    for worker in range(1, fabric.world_size):
        fabric.send(letter(STOP, weights), to=worker)

# %% [markdown]
# A worker knows nothing of updates. It answers every letter with a gradient for it, and keeps a diary for our plots.
# The gradient is real, but takes only microseconds, so we add **declared compute**: `fabric.compute(seconds)` lets the
# time pass without burning a core. So 16 workers fit on a small machine, and we decide who is slow: `pace(rank)` says how
# long a gradient takes.

# %%
def work(fabric, pace, own=None):
    """Returns a diary: when each version came, and its loss."""
    random.seed(fabric.rank)  # so that in every run the same worker meets the same random times
    box, diary = torch.empty(len(best) + 1), []
    while True:
        fabric.recv(box, frm=0)
        version, weights = opened(box)
        if version == STOP:
            return diary
        diary.append((time.monotonic(), version, excess(weights)))
        mine = gradient(weights, own)
        fabric.compute(pace(fabric.rank))
        fabric.send(letter(version, mine), to=0)

# %%
# Helper: start a server and its workers
def play(fabric, server, pace, *settings):
    if fabric.rank == 0:
        return server(fabric, torch.zeros(len(best)), *settings)
    return work(fabric, pace)

def train(server, workers, pace, *settings):
    """A run of a server and its workers. `settings`: updates, learning rate, and what else the server takes."""
    return launch(play, workers + 1, args=(server, pace, *settings))

# %% [markdown]
# ## Wait for everybody
#
# The obvious server is **synchronous**: it sends the weights to all workers, takes a gradient from each, and makes one step
# with the mean. Averaging gradients over ranks does the same, with other messages. Read the code well: you will change
# it three times.
# `fabric.recv(box)` without `frm` takes from whoever comes first, and returns who that was.

# %%
def sync_server(fabric, weights, updates, rate):
    box, n = letter(0, weights), fabric.world_size - 1
    for version in range(updates):
        for worker in range(1, n + 1):
            fabric.send(letter(version, weights), to=worker)
        total = torch.zeros_like(weights)
        for _ in range(n):
            fabric.recv(box)
            total += opened(box)[1]
        weights -= rate * total / n
    dismiss(fabric, weights, busy=[])
    return weights, []

# %% [markdown]
# Now one worker is a **straggler**: rank 1 takes several times as long as the others. In a real cluster that is a hot
# machine, a shared one, or a broken disk.

# %%
def steady(rank):
    return work_s

def one_slow(rank):
    return work_s * (slow if rank == 1 else 1)

# %%
# Helper: the loss over time, from all diaries
def history(run):
    """[(version, seconds, loss)], from all diaries; None where the server is not yet written."""
    if run.state != "done":
        return None
    rows = sorted(row for diary in run.results[1:] for row in diary)
    first = {}
    for moment, version, excess in rows:
        first.setdefault(version, (version, moment - rows[0][0], excess))
    return sorted(first.values())

# %%
lab.predict(
    "sync",
    f"{few} workers, {work_s * 1e3:g} ms a gradient, one takes {slow} times as long: how many synchronous updates a second?",
    "updates/s",
)

# %%
run = train(sync_server, few, one_slow, 5, 0.1)
versions, seconds, _ = history(run)[-1]
lab.measure("sync", versions / seconds)
figures.timeline(run)

# %% [markdown]
# Rank 0 serves; look at the bars of the others. Rank 1 computes all the time. The quick workers compute briefly and
# then sit in `recv`: they wait for the next weights, and the server waits for rank 1's gradient. A point where all wait for
# the last one is a **barrier**: **a synchronous step takes as long as its slowest worker.** The same run as messages:

# %%
figures.messages(run)

# %% [markdown]
# ## Wait for nobody
#
# The **asynchronous** server does not wait. It applies each gradient at once, with the whole learning rate, and answers its
# sender with the newest weights. Meanwhile the weights have changed under the other workers, which compute on. The
# **staleness** of a gradient is the number of updates between the weights it was computed on and those it is applied to:
# `version - base`, where `base` is its letter's version.
#
# Write this server now. With `scaled=True` a gradient of staleness above 1 is applied with the rate divided by its
# staleness. There may be fewer updates than workers.
#
# <details><summary>Hint 1</summary>Begin like the synchronous server: version 0 to every worker. Then a loop over the
# updates: receive from anyone, apply, answer the sender alone.</details>
# <details><summary>Hint 2</summary>After the last update every worker is still computing, also one that you have not heard
# from yet. Hand them all to <code>dismiss</code> as <code>busy</code>.</details>

# %% tags=["exercise:async_server"]
# Exercise 5.1: the asynchronous server
def async_server(fabric, weights, updates, rate, scaled=False):
    """Apply `updates` gradients, each as it comes, and answer its sender at once with the new
    weights.

    Returns the weights and the staleness of each gradient. If scaled, a staleness above 1
    divides the rate for this gradient.
    """
    ### BEGIN SOLUTION
    everybody = range(1, fabric.world_size)
    for worker in everybody:
        fabric.send(letter(0, weights), to=worker)
    box, staleness = letter(0, weights), []
    for version in range(updates):
        sender = fabric.recv(box)
        base, arrived = opened(box)
        age = version - base
        staleness.append(age)
        weights -= arrived * (rate / max(1, age) if scaled else rate)
        fabric.send(letter(version + 1, weights), to=sender)
    dismiss(fabric, weights, busy=everybody)
    return weights, staleness
    ### END SOLUTION

# %% tags=["check:async_server"] points=1.5
check.async_server(async_server)

# %%
lab.predict("async", f"The same {few} workers and {work_s * 1e3:g} ms: how many asynchronous updates a second?", "updates/s")

# %%
def speed(run, gradients=1):
    """How many gradients a second went into the weights; a step holds `gradients` of them."""
    points = history(run)
    return points and gradients * points[-1][0] / points[-1][1]

run = train(async_server, few, one_slow, 60, 0.02)
lab.measure("async", speed(run))
figures.timeline(run)

# %% [markdown]
# Now every worker computes all the time until the end, where the last gradients wait in `send` for `dismiss` to take them.
# How much does a straggler cost each server? To be fair, count gradients and not updates: a synchronous update holds one
# from every worker. The synchronous server gets N gradients in the time of the slowest worker. With the asynchronous one
# the slow worker delays only itself.

# %%
def slowed(times):
    return lambda rank: work_s * (times if rank == 1 else 1)

slowdowns = [1, 2, 4, 8]
with unobserved():  # several runs, one picture
    sync_speed = [
        (k, speed(train(sync_server, few, slowed(k), 4, 0.1), few)) for k in slowdowns
    ]
    async_speed = [(k, speed(train(async_server, few, slowed(k), 40, 0.02))) for k in slowdowns]

# %%
def by_formula(speed_of):
    return [(k, speed_of(few, work_s, k)) for k in slowdowns]

answer = None
if sync_speed[-1][1] and async_speed[-1][1]:
    lost = [100 * max(0, 1 - row[-1][1] / row[0][1]) for row in (sync_speed, async_speed)]
    losses = f"synchronous loses {lost[0]:.0f} %, asynchronous {lost[1]:.0f} %"
    answer = f"{slowdowns[-1]} times as slow: {losses}"
figures.curves(
    [
        figures.Curve("synchronous", sync_speed, by_formula(formulas.sync_gradients_per_s)),
        figures.Curve("asynchronous", async_speed, by_formula(formulas.async_gradients_per_s)),
    ],
    figures.answered(
        "What does one straggler cost a server that waits, and one that does not?", answer
    ),
    x="how many times as long the straggler takes", y="gradients a second", growth=True,
)

# %% [markdown]
# The lines allow no time for messages, nor for anything else this machine does.

# %%
for (k, waits), (_, goes_on) in zip(sync_speed, async_speed):
    if waits and goes_on:
        part = f"{waits / goes_on:.0%} of the other's gradients"
        print(f"straggler {k} times as slow: the server that waits gets {part}")

# %% [markdown]
# **In one sentence:** so why would anybody wait?
#
# <details><summary>Compare</summary>Because a gradient applied to weights other than those it was computed on may point the
# wrong way. Speed is counted in gradients; what we want is a low loss.</details>

# %% [markdown]
# ## How old is a gradient?
#
# Let every gradient take a random time, and count. Here is how to predict the mean. While one worker computes, each update
# by another makes its gradient one older. Every worker always has one gradient under way. So each update makes the gradients
# of *all other* workers one older.

# %%
# Helper: uneven workers, and the ages of gradients
def uneven(rank):
    return work_s * random.uniform(0.5, 1.5)

def ages(run):
    return run[0][1] if run.state == "done" else None

def ages_of(run, rank):
    """The ages of one worker's gradients: the sender of update k gets version k as its answer."""
    found = ages(run)
    versions = [version for _, version, _ in run.results[rank]] if found is not None else []
    return [int(found[k - 1]) for k in versions if 1 <= k <= len(found)]

def mean(values):
    return sum(values) / len(values) if values else None

# %%
lab.predict("mean_age", f"{max(worlds)} workers: how stale is a gradient on average?", "updates")

# %%
with unobserved():
    runs = {n: train(async_server, n, uneven, 10 + 20 * n, 0.01) for n in worlds}
lab.measure("mean_age", mean(ages(runs[max(worlds)])))
figures.spreads(
    [
        figures.Sample(f"{n} worker{'s' * (n > 1)}", ages(runs[n]), formulas.mean_staleness(n))
        for n in worlds
    ],
    "How stale is a gradient on average, by the number of workers?",
    x="staleness (updates)", mean=True,
)

# %% [markdown]
# Counting alone gives a mean of $N-1$; it is a little less here, since the gradients under way at the end are not counted.
# Nothing in that count depends on who is slow! But a mean hides a lot. Make one worker slow again, and look at the far end.

# %%
lab.predict(
    "oldest", f"{workers} workers, one takes {slow} times as long. How stale is the oldest gradient?", "updates"
)

# %%
even_run = train(async_server, workers, uneven, 200, 0.01)
tail_run = train(async_server, workers, one_slow, 200, 0.01)
lab.measure("oldest", max(ages(tail_run)) if ages(tail_run) else None)

# %%
changes = None
if ages(even_run) and ages(tail_run):
    both = ages(even_run), ages(tail_run)
    changes = figures.growing(
        {"the mean": list(map(mean, both)), "the far end": list(map(max, both))}
    )
figures.spreads(
    [
        figures.Sample(
            "uneven, nobody slow", ages(even_run), workers - 1, ages_of(even_run, 1)
        ),
        figures.Sample(
            f"rank 1, {slow} times as slow", ages(tail_run), workers - 1, ages_of(tail_run, 1)
        ),
    ],
    figures.answered("What does one slow worker change: the mean, or the far end?", changes),
    x="staleness (updates)", marked="rank 1's",
)

# %% [markdown]
# **In one sentence:** whose gradients are the oldest, and about how old must they be?
#
# <details><summary>Compare</summary>The slow worker's. While it computes one gradient, each of the $N-1$ others finishes
# several, and each of these is an update. So all its gradients were computed on weights long out of date, and each is applied
# with the full rate.</details>
#
# Try other values:

# %%
def tail(workers=8, slowdown=5):
    run = train(async_server, workers, slowed(slowdown), 25 * workers, 0.01)
    rows = [figures.Sample(f"{workers} workers", ages(run), workers - 1)]
    return figures.spreads(
        rows, f"One worker {slowdown} times as slow: how old does a gradient get?",
        x="staleness (updates)",
    )

knobs(tail, workers=[2, 4, 8, 16], slowdown=[1, 2, 5, 10])

# %% [markdown]
# ### Sixty-four workers (optional)
#
# That many processes would be slow to start here. `simulate` needs none: it runs the same server and the same workers in
# this process, one at a time, and each has a **simulated clock**. Declared compute moves that clock and takes none of your
# time. First the eight workers from before: real and simulated, are the ages alike?

# %%
def simulated_ages(n, pace, updates):
    run = simulate(play, n + 1, args=(async_server, pace, updates, 0.01))
    return run[0][1] if run.state == "done" else None

lived, played = ages(tail_run), simulated_ages(workers, one_slow, 200)
answer = None
if lived and played:
    near = [abs(of(lived) - of(played)) <= 0.2 * of(lived) for of in (mean, max)]
    alike = ("no", "partly", "yes")[sum(near)]
    means = f"means {mean(lived):.3g} and {mean(played):.3g}"
    answer = f"{alike}: {means}, the oldest {max(lived)} and {max(played)}"
figures.spreads(
    [
        figures.Sample(f"{workers} workers, real", lived, workers - 1),
        figures.Sample(f"{workers} workers, simulated", played, workers - 1),
    ],
    figures.answered(
        "The same workers in processes and in simulated time: are the ages alike?", answer
    ),
    x="staleness (updates)",
)

# %%
lab.predict("sixty_four", f"64 workers, one takes {slow} times as long. How stale is the oldest gradient?", "updates")

# %%
def crowd(workers=64, slowdown=slow):
    found = simulated_ages(workers, slowed(slowdown), 25 * workers)
    if (workers, slowdown) == (64, slow):
        lab.measure("sixty_four", max(found) if found else None)
    rows = [figures.Sample(f"{workers} workers", found, workers - 1)]
    return figures.spreads(
        rows, f"Simulated: one worker {slowdown} times as slow. How old?",
        x="staleness (updates)",
    )

knobs(crowd, workers=[8, 16, 64, 128], slowdown=[1, 2, slow, 10])

# %% [markdown]
# ## Steps or seconds?
#
# Now train for real: both servers, with one straggler and one learning rate. The loss is drawn twice: against the number
# of updates, as most papers draw it, and against the clock.

# %%
rate, behind = 0.12, 4
lab.predict(
    "sooner",
    f"{workers} workers, one takes {behind} times as long. Both servers train until the loss is"
    " a tenth of the first one. Divide the synchronous seconds by the asynchronous ones:"
    f" what do you get, as the median of {trainings} seeds?",
    "times",
)

# %%
sync_run = train(sync_server, workers, slowed(behind), 40, rate)
async_run = train(async_server, workers, slowed(behind), 360, rate)
curves = {"synchronous": history(sync_run), "asynchronous": history(async_run)}

# %%
figures.descents(
    [figures.Descent(name, points) for name, points in curves.items()],
    "Which loss falls faster: by steps, and by seconds?",
    y="loss above the smallest possible",
)

# %% [markdown]
# On the left, a synchronous step is the mean of all workers' fresh gradients; an asynchronous one is a single stale
# gradient. On the right the asynchronous server makes many steps while the other one waits. You pay for seconds.
#
# But this is one run of each, and their batches are drawn at random. How different would other draws be? `simulate` runs the
# same server and workers without processes, each with a **simulated clock**: so both can train again, with several seeds.

# %%
# Helper: the same runs with several seeds, in simulated time
def simulated(server, n, pace, seed, *settings):
    """The history of a run in simulated time; None where the server is not yet written."""
    return history(simulate(play, n + 1, args=(server, pace, *settings), seed=seed))

def times(one, other):
    return one / other if one and other else None

def over_seeds(what, found):
    """Print the median and the range of numbers, one for each seed; returns the median, None where one is missing."""
    if None in found:
        return None
    middle = statistics.median(found)
    print(f"{what}: {middle:.2g} times, from {min(found):.2g} to {max(found):.2g} over {len(found)} seeds")
    return middle

# %%
def reached(points, goal):
    """The seconds until the loss was first at the goal or below it; None where it never was."""
    return next((seconds for _, seconds, excess in points or [] if excess <= goal), None)

goal, seeds = excess(0 * best) / 10, range(1, 1 + trainings)
sync_curves = [
    simulated(sync_server, workers, slowed(behind), seed, 40, rate) for seed in seeds
]
async_curves = [
    simulated(async_server, workers, slowed(behind), seed, 360, rate) for seed in seeds
]
ratios = [
    times(reached(one, goal), reached(other, goal))
    for one, other in zip(sync_curves, async_curves)
]
lab.measure("sooner", over_seeds("synchronous seconds / asynchronous seconds", ratios))
if None not in ratios:
    apart = max(ratios) / min(ratios)
    print(f"the largest is {apart:.1f} times the smallest: what would a single run have told?")

# %% [markdown]
# One more doubt remains: both ran at *one* learning rate, and a mean of many gradients tolerates a larger rate than a single
# gradient does. “A fair race” asks again.

# %% [markdown]
# Now look at the *end* of the curves: which is smooth, which trembles? Call the standard deviation of the loss over the
# last third of the steps its **jitter**.

# %%
lab.predict(
    "jitter", "How many times the synchronous jitter is the asynchronous one? Guess the median of the seeds from the picture.",
    "times",
)

# %%
def last_third(points):
    return points and [excess for _, _, excess in points[-(len(points) // 3) :]]

def jitter(points):
    return points and torch.tensor(last_third(points)).std().item()

ratios = [times(jitter(one), jitter(other)) for one, other in zip(async_curves, sync_curves)]
lab.measure("jitter", over_seeds("asynchronous jitter / synchronous jitter", ratios))

# %% [markdown]
# Two things may make the asynchronous loss tremble: its steps follow single gradients, and these are stale. To tell the two
# apart, train longer, so that nothing of the fall itself is left in the last third, and once with single *fresh* gradients: the
# synchronous server with one worker. (Without the fall the synchronous jitter is smaller, so all ratios are larger than above.)

# %%
def long_jitters(server, n, steps):
    return [jitter(simulated(server, n, steady, seed, steps, rate)) for seed in seeds]

means = long_jitters(sync_server, workers, 120)
fresh, stale = long_jitters(sync_server, 1, 600), long_jitters(async_server, workers, 600)
for name, found in (("fresh", fresh), ("stale", stale)):
    shares = list(map(times, found, means))
    over_seeds(f"jitter of single {name} gradients / of means of {workers}", shares)

# %% [markdown]
# **In one sentence:** how much of the trembling comes from single gradients, and where does the rest come from?
#
# <details><summary>Compare</summary>A single gradient has N times the variance of a mean of N. The loss grows with the square of
# the weights' distance, so it should tremble about N times as much: compare the first median. Where the second median is
# larger, the rest is staleness: a gradient describes older weights, so its step overshoots.</details>

# %% [markdown]
# ## Too old for its step
#
# Think of steering a ship whose rudder answers late: steer gently, or you swing from side to side, ever wider. For a
# bowl of curvature 1 and gradients that all have the same staleness τ, the largest learning rate that still converges
# is known exactly: $2\cos\frac{\pi\tau}{2\tau+1}$ (Levin and May, 1976). Without staleness this largest rate is 2.
#
# That holds for gradients of all examples. A worker's gradient comes from a few, for which the bowl is steeper one time and
# flatter the next; so real limits lie lower.

# %%
for n in worlds:
    below = formulas.stable_rate(n - 1)
    print(f"workers: {n:2}   staleness: {n - 1:2}   full gradients: stable below {below:.3f}")
edge = formulas.stable_rate(workers - 1)

# %% [markdown]
# Now take twice this largest rate, with workers that are all alike, on both servers. Then mend the asynchronous run in two
# ways. Divide the bold rate by $N-1$, the mean staleness, for all gradients; or divide it by each gradient's own staleness,
# which is the `scaled` in your server.

# %%
bold, mean_age = 2 * edge, workers - 1
with unobserved():
    falls = {
        f"synchronous, rate {bold:.2f}": train(sync_server, workers, steady, 30, bold),
        f"asynchronous, rate {bold:.2f}": train(async_server, workers, steady, 160, bold),
        f"asynchronous, {bold:.2f} / {mean_age}": train(
            async_server, workers, steady, 160, bold / mean_age
        ),
        f"asynchronous, {bold:.2f} / staleness": train(
            async_server, workers, steady, 160, bold, True
        ),
    }

# %%
answer, ends = None, [history(run) and history(run)[-1][2] for run in falls.values()]
if None not in ends:
    good = "yes" if ends[1] < excess(0 * best) else "no"
    cures = f"divided by {mean_age}: {ends[2]:.2g}, by staleness: {ends[3]:.2g}"
    answer = f"{good}, it ends at {ends[1]:.2g}; {cures}"
figures.descents(
    [figures.Descent(name, history(run)) for name, run in falls.items()],
    figures.answered(
        "Does a rate that is good without staleness stay good with it? And which cure helps?",
        answer,
    ),
    y="loss above the smallest possible",
)

# %% [markdown]
# Where a line rises, the weights swing ever wider: a gradient still pushes one way although the weights have crossed the
# bottom since. So staleness is not only noise. With it the learning rate must be smaller, and smaller with every additional
# worker. Zhang and others (2016) divide by the staleness, as you did. Is that more than a smaller rate for all?

# %%
scaled_ages = ages(falls[f"asynchronous, {bold:.2f} / staleness"])
if scaled_ages:
    share = scaled_ages.count(mean_age) / len(scaled_ages)
    print(f"{share:.0%} of the scaled run's gradients had staleness {mean_age}:", end=" ")
    print(f"these took the rate {bold:.2f} / {mean_age}")

# %% [markdown]
# Where most gradients have one age, both cures are one smaller rate, except for the first few gradients: these are younger
# and take larger steps. Does `scaled` gain more where ages differ, and each server has its own best rate? “A fair race” asks
# that too.

# %% [markdown]
# ## A gate: bounded staleness
#
# Between everybody and nobody there is a compromise. Count for each worker how many gradients it has delivered: its
# **clock**. A worker gets new weights only while its clock is at most `bound` ahead of the *slowest* one's. When its next
# gradient arrives, it may be `bound` + 1 ahead: then it waits at the gate until the slowest has caught up. This is *stale
# synchronous parallel* (Ho and others, 2013).

# %% [markdown]
# An example with `bound` 1: rank 1 delivers two gradients, rank 2 none. Rank 1's clock is 2, the slowest one's is 0, so
# rank 1 waits. Then rank 2 delivers one: now the difference is 1, and rank 1 gets the newest weights and goes on.

# %% [markdown]
# Take your asynchronous server and build in the gate. Each gradient can open it, and for several workers at once: so
# after every update look at *all* waiting workers, the sender among them.
#
# <details><summary>Hint 1</summary>Keep a dict of clocks and a list of waiting workers. At the start everybody waits, and
# all may go.</details>
# <details><summary>Hint 2</summary>Do not change a list while you loop over it: first collect who may go.</details>
# <details><summary>Hint 3</summary>At the end, a worker at the gate has no gradient under way and is not
# <code>busy</code>.</details>

# %% tags=["exercise:bounded_server"]
# Exercise 5.2: the gate of bounded staleness
def bounded_server(fabric, weights, updates, rate, bound):
    """Asynchronous, but a worker more than `bound` gradients ahead of the slowest waits for its
    weights.

    A worker that waited gets the newest weights as soon as it may go on. Returns the weights
    and the staleness of each gradient.
    """
    ### BEGIN SOLUTION
    clocks = {worker: 0 for worker in range(1, fabric.world_size)}
    waiting, staleness = list(clocks), []
    box = letter(0, weights)
    for version in range(updates + 1):
        for worker in [w for w in waiting if clocks[w] - min(clocks.values()) <= bound]:
            fabric.send(letter(version, weights), to=worker)
            waiting.remove(worker)
        if version == updates:
            break
        sender = fabric.recv(box)
        base, arrived = opened(box)
        weights -= rate * arrived
        staleness.append(version - base)
        clocks[sender] += 1
        waiting.append(sender)
    dismiss(fabric, weights, busy=[w for w in clocks if w not in waiting])
    return weights, staleness
    ### END SOLUTION

# %% tags=["check:bounded_server"] points=1.5
check.bounded_server(bounded_server)

# %% [markdown]
# What does the gate cost, and what does it buy? This time nobody is always slow. Instead every worker has a
# **hiccup** now and then: with a small chance a gradient takes ten times as long.

# %%
chance, longer, bounds = 0.08, 10, (0, 1, 4)

def hiccups(rank):
    return work_s * (longer if random.random() < chance else 1)

# %% [markdown]
# How stale can a gradient get behind the gate? Let s be the `bound`, and c a worker's clock when it gets weights. Every other
# clock is then at least c − s. When the worker's gradient arrives, and before it counts, every other clock is at most
# c + s + 1. How many updates can each of the others make between the two?

# %%
lab.predict("gate", f"{workers} workers, bound 1: no gradient can be staler than …?", "updates, by counting")

# %%
lab.measure("gate", formulas.most_staleness(workers, 1))
with unobserved():
    gated = {
        f"bound {s}": train(bounded_server, workers, hiccups, 104, 0.01, s) for s in bounds
    }
    gated["no bound"] = train(async_server, workers, hiccups, 104, 0.01)

# %%
def with_speed(name, run):
    return f"{name}: {speed(run):.0f} /s" if run.state == "done" else name

answer, tightest, free = None, gated[f"bound {bounds[0]}"], gated["no bound"]
if ages(tightest) and ages(free):
    answer = (f"bound {bounds[0]}: oldest {max(ages(tightest))}, not {max(ages(free))}; "
              f"{speed(tightest):.0f} gradients a second, not {speed(free):.0f}")
figures.spreads(
    [figures.Sample(with_speed(name, run), ages(run)) for name, run in gated.items()],
    figures.answered(
        "What does a tighter bound do to the tail, and to the gradients a second?", answer
    ),
    x="staleness (updates)",
)

# %%
for s in bounds:
    oldest = ages(gated[f"bound {s}"])
    most = formulas.most_staleness(workers, s)
    print(f"bound {s}: at most {most}; the oldest was {max(oldest) if oldest else 'not yet'}")

# %% [markdown]
# A gate forgives a hiccup: whoever stumbles is overtaken for a while and catches up. Bound 0 makes everybody wait for
# everybody, like the synchronous server, but applies the gradients one by one, so their ages begin at 0. And a worker that
# is *always* slow? Think, then predict.

# %%
lab.predict(
    "always", f"{workers} workers, one always takes {slow} times as long, bound 2: gradients a second?", "gradients/s"
)

# %% tags=["cover"]
always_run = train(bounded_server, workers, one_slow, 120, 0.01, 2)
lab.measure("always", speed(always_run))
figures.timeline(always_run)

# %% [markdown]
# At first nobody waits. Then the gate closes. At whose pace does everybody move from then on? Compare the gradients a
# second with N gradients in the time of one slow gradient. A bound forgives slowness that passes, and not slowness that
# lasts. The cure for the second is to give the slow worker less to do, or to do without it.

# %% [markdown]
# ## Backup workers
#
# Doing without the slow worker is the last idea (Chen and others, 2016). Stay synchronous, but start more workers than you
# need. A step ends with the first $N-b$ gradients of its version. The $b$ slowest workers of that step are its *backup*:
# when one of their late gradients comes, it is thrown away, and its sender gets the newest weights at once. So no gradient
# that counts is ever stale.

# %%
lab.predict(
    "hiccup",
    f"{pool} workers, each with a hiccup in {chance:.0%} of its gradients: in how many of 100 steps is there a hiccup?",
    "steps, by counting",
)

# %%
nobody = (1 - chance) ** pool  # the chance that no worker has one
lab.measure("hiccup", 100 * (1 - nobody))
cases = f"{100 * (1 - nobody):.0f} of 100 cases"
print(f"a synchronous step of {pool} workers has a hiccup in {cases}")

# %% [markdown]
# Write the barrier. A late gradient must be *received*, or its sender would stay in `send` for ever; you recognise it by its
# version. Count how many you drop; what `dismiss` takes at the end does not count.
#
# <details><summary>Hint 1</summary>Keep a list of workers waiting for the next version. At the start that is everybody. A
# step is done when the list is long enough.</details>
# <details><summary>Hint 2</summary>Divide by the number of gradients that you added up.</details>
# <details><summary>Hint 3</summary>At the end, whoever is not waiting is busy.</details>

# %% tags=["exercise:backup_server"]
# Exercise 5.3: the barrier with backup workers
def backup_server(fabric, weights, updates, rate, backups):
    """Synchronous, but a step is the mean of the first gradients of its version, from all but
    `backups` workers.

    A late gradient is dropped, and its sender is answered at once with the newest weights.
    Returns the weights and how many gradients were dropped while steps were made.
    """
    ### BEGIN SOLUTION
    everybody = range(1, fabric.world_size)
    waiting, dropped, box = list(everybody), 0, letter(0, weights)
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        while len(waiting) < len(everybody) - backups:
            sender = fabric.recv(box)
            base, arrived = opened(box)
            if base < version:
                dropped += 1
                fabric.send(letter(version, weights), to=sender)
            else:
                waiting.append(sender)
                total += arrived
        weights -= rate * total / len(waiting)
    dismiss(fabric, weights, busy=[w for w in everybody if w not in waiting])
    return weights, dropped
    ### END SOLUTION

# %% tags=["check:backup_server"] points=1.5
check.backup_server(backup_server)

# %% [markdown]
# How many backup workers are best? With more of them a step waits for fewer, so it is shorter. But it holds fewer
# gradients. A mean of fewer gradients is noisier and needs a smaller learning rate; we make the rate proportional to the
# number of gradients. So a step also gets you less far. Time to the goal = time of a step × number of steps. Hiccups are
# chance, so the runs are many, in simulated time.

# %%
choices = [b for b in (0, 1, 2, 4, 8) if b < pool]
tried = ", ".join(map(str, choices))
asks = f"{pool} workers with hiccups; {tried} of them as backup: which is first at the goal?"
asks += f" (by medians over {trainings} seeds)"
lab.predict("backups", asks, "workers")

# %%
# Helper: seconds to the goal
def with_backups(backups):
    """What the server takes: steps enough for the goal, the rate, and `backups`."""
    rate = 0.015 * (pool - backups)
    foreseen = math.log(excess(0 * best) / goal) / (-2 * math.log(1 - rate))
    return math.ceil(1.15 * foreseen) + 2, rate, backups

def to_goal(points):
    """(seconds a step, steps to the goal, seconds to the goal) of a run's history."""
    steps = next((step for step, _, excess in points or [] if excess <= goal), None)
    return points and points[-1][1] / points[-1][0], steps, reached(points, goal)

# %%
goal = excess(0 * best) / 30
by_seed = {}
for b in choices:
    runs = [simulated(backup_server, pool, hiccups, seed, *with_backups(b)) for seed in seeds]
    by_seed[b] = list(map(to_goal, runs))
found = {
    b: [None if None in column else statistics.median(column) for column in zip(*rows)]
    for b, rows in by_seed.items()
}
done = {b: row for b, row in found.items() if None not in row}
lab.measure("backups", min(done, key=lambda b: done[b][2]) if done else None)

# %%
def relative(place):
    """How many times what it is with no backup worker."""
    return [(b, times(found[b][place], found[0][place])) for b in choices]

(_, length), (_, steps) = relative(0)[-1], relative(1)[-1]
answer = None
if length and steps:
    answer = f"with {choices[-1]}: a step {length:.2g} times as long, {steps:.2g} times as many"
figures.curves(
    [
        figures.Curve("time of a step", relative(0)),
        figures.Curve(
            "steps to the goal", relative(1), [(b, pool / (pool - b)) for b in choices]
        ),
    ],
    figures.answered(
        "With more backup workers, how long is a step, and how many does it take?", answer
    ),
    x="backup workers", y="times that with none", growth=True,
)

# %% [markdown]
# The dashed line, $\frac{N}{N-b}$, predicts the number of steps. The time of a step can fall only while there are hiccups
# left to cut off. So the time of a step times the number of steps must have a minimum. The dashed line below is this
# product, from the measured time of a step and the predicted number of steps. Each point is a median over the seeds.

# %%
foretold = [
    (b, row[0] * done[0][1] * pool / (pool - b)) for b, row in done.items() if 0 in done
]
answer = None
if done:
    least_s = min(row[2] for row in done.values())
    tied = ", ".join(str(b) for b, row in done.items() if row[2] <= 1.05 * least_s)
    answer = f"{tied}: {least_s:.3g} s to the goal"
figures.curves(
    [figures.Curve("time to the goal", [(b, found[b][2]) for b in choices], foretold)],
    figures.answered(f"How many backup workers of {pool} are best?", answer),
    x="backup workers", y="time to the goal (s)", least=True,
)

# %%
if len(done) == len(choices):
    seconds = {b: [row[2] for row in rows] for b, rows in by_seed.items()}
    firsts = [min(choices, key=lambda b: seconds[b][k]) for k in range(len(seeds))]
    for b, (step_s, steps, goal_s) in done.items():
        in_steps = f"{step_s * 1e3:4.0f} ms a step, {steps:3.0f} steps"
        span = f"from {min(seconds[b]):.2f} to {max(seconds[b]):.2f}"
        print(f"{b:2} backup workers: {in_steps}, {goal_s:.2f} s to the goal ({span});",
              f"first in {firsts.count(b)} of {len(seeds)} seeds")

# %% [markdown]
# Chen and others found this curve with about a hundred workers, and trained an image model this way, faster and better than
# asynchronously.
#
# **In one sentence:** why not as many backup workers as there are workers that count?
#
# <details><summary>Compare</summary>The first backup workers cut off the hiccups. A hiccup lasts several short steps, so this
# may take a few of them. From some number on, a further one saves less time than its gradients, thrown away, are
# worth.</details>

# %% [markdown]
# There is another price. So far all workers drew from the same examples. Now each has its own: worker r holds the r-th of
# $N$ equal parts, of the examples in the order in which they were made, or sorted by $y$. One worker is always slow, and is
# the backup worker, so all its gradients are dropped. Does the training miss its examples?

# %%
lab.predict(
    "missed", "Examples sorted by y: the loss at the end with this backup worker, divided by that without it?", "times"
)

# %%
def play_apart(fabric, parts, server, *settings):
    """Like `play`, with one slow worker; each worker draws from a part of its own, rows."""
    if fabric.rank == 0:
        return server(fabric, torch.zeros(len(best)), *settings)
    return work(fabric, one_slow, parts[fabric.rank - 1])

def end_of(order, backups, seed):
    """The mean loss over the last third of the steps; None if the server is not yet written."""
    settings = order.chunk(workers), backup_server, 45, 0.1, backups
    points = history(simulate(play_apart, workers + 1, args=settings, seed=seed))
    return points and mean(last_third(points))

# %%
for name, order in (("as made", torch.arange(len(x))), ("sorted by y", y.argsort())):
    ratios = [times(end_of(order, 1, seed), end_of(order, 0, seed)) for seed in seeds]
    missed = over_seeds(
        f"examples {name}: loss at the end, with a backup worker / without", ratios
    )
lab.measure("missed", missed)  # of the last order, sorted

# %% [markdown]
# **In one sentence:** when is it safe to drop the slowest worker's gradients?
#
# <details><summary>Compare</summary>When its examples are like those of the others, or when it is another worker each time. If
# the same worker is always dropped and holds examples of its own kind, the model never learns from them.</details>

# %% [markdown]
# **Federated learning** on phones works this way in production. Rounds are synchronous, and the server selects more phones
# than a round needs, about 130 %, because some drop out; those that report late are ignored (Bonawitz and others, 2019).
# Whose phones may be late in every round?

# %%
needed = round(pool / 1.3)
print(f"130 % of {needed} workers are {1.3 * needed:.1f}:", end=" ")
print(f"of the pool of {pool}, {pool - needed} would be backup workers")

# %% [markdown]
# ## A fair race
#
# So far each server ran at a rate that we chose. A fair race lets every server run at its own best rate. Finding it takes
# dozens of training runs. But the time of a gradient is declared here, so your servers can be rehearsed without waiting: in
# place of the fabric, an object hands over the gradients in the order in which they would be ready, and its clock jumps.
# This is a *discrete-event simulation*, a small one; `simulate` is one for functions on all ranks.

# %%
# Helper: workers in simulated time, without processes
class RehearsedWorkers:
    """Half of a server's fabric: `send` starts a worker, whose gradient is ready some time later."""

    rank = 0

    def __init__(self, workers, pace, seed):
        random.seed(seed)
        torch.manual_seed(seed)
        self.world_size, self.pace, self.now, self.sent = workers + 1, pace, 0.0, 0
        self.under_way, self.points = [], []

    def send(self, box, to):
        version, weights = opened(box)
        if version == STOP:
            return
        if not self.points or self.points[-1][0] < version:
            self.points.append((version, self.now, excess(weights)))
        self.sent += 1  # of two ready at once, the one sent first comes first
        ready = self.now + self.pace(to)
        heapq.heappush(self.under_way, (ready, self.sent, to, letter(version, gradient(weights))))

# %%
# Helper: a server's fabric in simulated time
class Rehearsal(RehearsedWorkers):
    """`recv` takes the gradient that is ready first."""

    def isend(self, box, to):
        self.send(box, to)
        return self

    def wait(self):
        """Nothing: in simulated time a message arrives at once."""

    def recv(self, box, frm=None):
        event = min(e for e in self.under_way if frm in (None, e[2]))
        self.under_way.remove(event)
        self.now = max(self.now, event[0])
        box.copy_(event[3])
        return event[2]

# %%
SERVERS = {  # the server, its updates, and what else it takes
    "synchronous": (sync_server, 32, ()),
    "asynchronous": (async_server, 256, ()),
    "scaled": (async_server, 256, (True,)),
    "bound 2": (bounded_server, 256, (2,)),
    "1 backup worker": (backup_server, 36, (1,)),
}
CLUSTERS = {"all alike": steady, "hiccups": hiccups, "one straggler": slowed(4)}

# %%
# Helper: one of the servers as train(rate, seed)
def training(name, pace):
    """train(rate, seed) for this server: its history [(version, seconds, loss)] in simulated time."""
    server, updates, more = SERVERS[name]

    def train(rate, seed):
        if not 1e-4 < rate < 1e4:
            raise ValueError(f"{name}: no rate from 0.0001 to 10,000 reaches the goal. Is this server right?")
        fabric = Rehearsal(workers, pace, seed)
        server(fabric, torch.zeros(len(best)), updates, rate, *more)
        return fabric.points

    return train

# %%
goal = excess(0 * best) / 100
train_sync = training("synchronous", CLUSTERS["one straggler"])
for rate in (0.4, 0.9, 30):
    for seed in (1, 2):
        points = train_sync(rate, seed)
        when_s = reached(points, goal) or math.inf
        ends = f"ends at {points[-1][2] / goal:.3g} × goal"
        print(f"rate {rate}, seed {seed}: first touches the goal after {when_s:.2f} s, {ends}")

# %% [markdown]
# Look at these lines as a referee would. At which rate do the two seeds disagree about the end? Which run touches the goal
# and leaves it again? Whose loss is no number? And whoever tries many rates and reports the quickest of all runs reports
# luck. So some runs choose the rate, and *fresh* ones, with other seeds, measure its time.

# %% [markdown]
# A run is **at the goal** once its loss stays at or below the goal to the end. If it never does, its time is `math.inf`.
# Write the referee. `rates` is a grid, each rate twice the one before. If the best rate is an end of the grid, go on beyond
# it, halving or doubling. With an even number of seeds the median is the mean of the two times in the middle. You may count
# on this: some rate of the grid reaches the goal, and no other rate has the best one's median.
#
# <details><summary>Hint 1</summary>Two helpers: the time of one run, and the median time of one rate.</details>
# <details><summary>Hint 2</summary>Every comparison with NaN is false: ask <code>loss <= goal</code>, not
# <code>loss > goal</code>.</details>

# %% tags=["exercise:time_at_best_rate"]
# Exercise 5.4: the time to the goal at the best learning rate
def time_at_best_rate(train, goal, rates, seeds, fresh):
    """(rate, times): the rate with the least median time to the goal over `seeds`, and its time
    with each seed in `fresh`.

    `train(rate, seed)`, called without names, returns [(version, seconds, loss), …]. While the
    best rate is an end of the current grid, the grid grows. The lists stay as they are.
    """
    ### BEGIN SOLUTION
    def time_of(rate, seed):
        since = math.inf
        for _, seconds, loss in train(rate, seed):
            since = min(since, seconds) if loss <= goal else math.inf
        return since

    def median_of(rate):
        return statistics.median(time_of(rate, seed) for seed in seeds)

    medians = {rate: median_of(rate) for rate in rates}
    while True:
        chosen = min(medians, key=medians.get)
        if chosen == max(medians):
            medians[2 * chosen] = median_of(2 * chosen)
        elif chosen == min(medians):
            medians[chosen / 2] = median_of(chosen / 2)
        else:
            return chosen, [time_of(chosen, seed) for seed in fresh]
    ### END SOLUTION

# %% tags=["check:time_at_best_rate"] points=1.5
check.time_at_best_rate(time_at_best_rate)

# %%
lab.predict("fair", "One straggler, each server at its own best rate: synchronous time / asynchronous time?", "times")

# %%
lab.predict("alike", "The same ratio where all workers are alike?", "times")

# %%
def raced(name, pace):
    """(rate, [seconds of fresh seeds]) of a server at its best; None if not yet written."""
    rates = [0.025, 0.05, 0.1, 0.2]
    try:
        fresh = range(11, 11 + trainings)
        return time_at_best_rate(
            training(name, pace), goal, rates, seeds=range(1, 1 + trainings), fresh=fresh
        )
    except NotYet:
        return None

fair = {}
for cluster, pace in CLUSTERS.items():
    print(f"{cluster}: {len(SERVERS)} servers, some rates, {trainings} seeds each …")
    for name in SERVERS:
        fair[cluster, name] = raced(name, pace)

# %%
def middle(cluster, name):
    """The median of the fresh seeds; None where an exercise is not yet written."""
    return fair[cluster, name] and statistics.median(fair[cluster, name][1])

sooner = {
    cluster: times(middle(cluster, "synchronous"), middle(cluster, "asynchronous"))
    for cluster in CLUSTERS
}
lab.measure("fair", sooner["one straggler"])
lab.measure("alike", sooner["all alike"])
answer = None
if all(gain and math.isfinite(gain) for gain in sooner.values()):
    answer = ", ".join(f"{cluster} {gain:.2g} times" for cluster, gain in sooner.items())
figures.race(
    [
        figures.Timing(
            name, middle(cluster, name), group=cluster, repeats_s=row[1] if row else ()
        )
        for (cluster, name), row in fair.items()
    ],
    figures.answered(
        "Each at its own best rate: how many times sooner is asynchronous than synchronous?",
        answer,
    ),
    simulated=True,
)

# %%
for (cluster, name), row in fair.items():
    if row:
        each = ", ".join(f"{t:.2f} s" for t in sorted(row[1]))
        print(f"{cluster:13} {name:15} best rate {row[0]:.4f}, fresh seeds: {each}")

# %% [markdown]
# Does it pay to divide the rate by each gradient's staleness, when both have their own best rate? And if it pays even where
# all are alike, so that nearly all ages are the same: which gradients gave `scaled` its lead?

# %%
for cluster in CLUSTERS:
    plain, scaled = fair[cluster, "asynchronous"], fair[cluster, "scaled"]
    if plain and scaled:
        wins = sum(one < other for one, other in zip(scaled[1], plain[1]))
        middles = [f"{middle(cluster, name):.2f} s" for name in ("scaled", "asynchronous")]
        print(f"{cluster}: scaled is sooner in {wins} of {trainings} seeds,",
              " beside ".join(middles), "in the middle")

# %% [markdown]
# Compare the best rates: how many times the asynchronous rate is the synchronous one? This is what asynchrony costs: single,
# stale gradients tolerate only small steps (*statistical efficiency*). In return the server gets more gradients a second
# (*hardware efficiency*). Which of the two weighs more depends on the cluster, on the goal and on the noise (Dutta and
# others, 2018).
#
# A rehearsal allows no time for messages or the server. Do real ranks agree?

# %%
def for_real(name, seeds=(21, 22, 23)):
    """Seconds of real runs with the straggler, at the best rate, until the goal is touched."""
    plan = fair["one straggler", name]
    if not plan:
        return []
    server, updates, more = SERVERS[name]
    settings = (server, CLUSTERS["one straggler"], math.ceil(updates / 2), plan[0], *more)
    runs = [launch(play, workers + 1, args=settings, seed=seed) for seed in seeds]
    return [reached(history(run), goal) or math.inf for run in runs]

def rehearsed(name, seeds=range(11, 11 + trainings)):
    plan = fair["one straggler", name]
    train = training(name, CLUSTERS["one straggler"])
    return plan and statistics.median(
        reached(train(plan[0], seed), goal) or math.inf for seed in seeds
    )

with unobserved():
    real = {name: for_real(name) for name in ("synchronous", "asynchronous", "1 backup worker")}

# %%
bars = [
    figures.Timing(
        name, statistics.median(each) if each else None, rehearsed(name), repeats_s=each
    )
    for name, each in real.items()
]
answer = None
if all(bar.measured_s for bar in bars):
    first = min(bars, key=lambda bar: bar.measured_s)
    foretold = f"the rehearsal says {first.predicted_s:.2g} s"
    answer = f"{first.name}, after {first.measured_s:.2g} s; {foretold}"
figures.race(
    bars,
    figures.answered(
        "Real ranks, three runs each: who touches the goal first, and is it when the rehearsal"
        " says?",
        answer,
    ),
)

# %% [markdown]
# ## Which one, then?
#
# Compare the bars of the last section: which server never waits for the straggler, and yet makes steps of fresh
# gradients?
#
# <details><summary>Compare</summary>The server with a backup worker: the straggler is the backup, and every gradient that counts
# has its step's version.</details>
#
# In today's deep-learning clusters workers are alike and hiccups are rare. So nearly everybody trains synchronously: then a run
# can be repeated, and the rate need not shrink. Slow machines are replaced.

# %% [markdown]
# **Asynchronous training is back** where work is uneven by nature. In reinforcement learning of language models the
# workers write answers, some short and some very long, and meanwhile a trainer learns from them: Noukhovitch and others
# (2024), AReaL (2025). Answers from old weights are stale. AReaL has a setting for how stale they may be,
# `max_head_offpolicyness`; with 0 it is synchronous. That is your gate.
#
# Another way out is to talk less often: workers make many steps alone, then average (DiLoCo). You build that in lab 14.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Dean and others, *Large scale distributed deep networks* (NIPS 2012): DistBelief, the asynchronous
# server. Li and others, *Scaling distributed machine learning with the parameter server* (OSDI 2014). Ho and others,
# *More effective distributed ML via a stale synchronous parallel parameter server* (NIPS 2013). Zhang and others,
# *Staleness-aware async-SGD* (IJCAI 2016). Mitliagkas and others, *Asynchrony begets momentum* (Allerton 2016). Levin
# and May, *A note on difference-delay equations* (1976).

# %% [markdown]
# Backup workers: Chen and others ([arXiv:1604.00981](https://arxiv.org/abs/1604.00981)). The trade: Dutta and others,
# *Slow and stale gradients can win the race* ([arXiv:1803.01113](https://arxiv.org/abs/1803.01113)). Phones: Bonawitz
# and others ([arXiv:1902.01046](https://arxiv.org/abs/1902.01046)). Language models: Noukhovitch and others, *Asynchronous
# RLHF* ([arXiv:2410.18252](https://arxiv.org/abs/2410.18252)); Fu and others, *AReaL*
# ([arXiv:2505.24298](https://arxiv.org/abs/2505.24298)). Talking less: Douillard and others, *DiLoCo*
# ([arXiv:2311.08105](https://arxiv.org/abs/2311.08105)). A rate for each batch size: Shallue and others, JMLR 20 (2019).
