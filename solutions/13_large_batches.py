# %% [markdown]
# # Lab 13. Large batches
#
# **After this lab you are able to** train with a batch as large as all your ranks together, at the rate that it needs; to make
# one step out of unequal parts; to foretell from gradients alone up to which batch more ranks save steps, and to check that
# against a measured curve; and to write a batch norm that is right over all ranks.
#
# **Minutes:** 125 (two sittings: 55 up to “How noisy is a gradient?”, then 70) · **Points:** 6 · **Prerequisites:** Lab 04
# (averaged gradients), Lab 10 (DistributedDataParallel). Lab 11 helps.

# %% [markdown]
# ![Up to which batch do more examples save steps? Up to 512: 29 steps, 85 at 32.](../labs/covers/13.png)

# %%
# Set-up: the tools of this lab
from worldsize.notebook import *

from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from worldsize.fabric.collectives import all_reduce
from worldsize.formulas import large_batches
from worldsize.pytorch.group_over_fabric import use_fabric
from worldsize.pytorch.live_bytes import LiveBytes
from worldsize.pytorch.models import flat, strided_cnn, tensors
from worldsize.pytorch.sync_batch_norm import torch_synced_norm

# %% tags=["parameters"]
ranks = 2
images_count = 8192
test_count = 10_000
epochs = 8
small = 32
large = 1024
base_rate = 0.005
bold_rate = 0.06
warmups = [0, 4]
wrong_labels = 0.4
seeds = [0, 1, 2]
sweep = [32, 64, 128, 256, 512, 1024, 2048]
rates = [0.2, 0.4, 0.8, 1.6]
goal = 30
goal_count = 4096  # test images that decide whether the goal is reached
most_steps = 800
part = 256
noise_ranks = 4
noise_rate = 0.8
norm_rows = [2, 4, 8, 32, 128]
window = 4
sum_s = 0.01  # assumed: an all-reduce of the gradients
image_s = 0.001  # assumed: one image on one rank
many_ranks = [1, 32, 1024]
below_critical = [128, 32, 8]
rate_goal = 35

# %%
lab, check = open_lab("13")

# %% [markdown]
# ## Fewer, larger steps
#
# One rank trains with a **batch** of 32 images a step. Now take 32 ranks, each with 32 images of its own, and the gradients are
# averaged: the batch of all ranks is 1,024. An **epoch**, once through all images, takes a 32nd of the steps. If a step takes
# no longer, training is 32 times as fast. That is what data parallelism promises. Do so few steps teach as much?

# %%
images, labels, test_images, test_labels = tensors(data.load("fashion-mnist"), images_count, test_count)
images, test_images = F.avg_pool2d(images, 2), F.avg_pool2d(test_images, 2)  # 14 x 14, so that many trainings take seconds
usual = images.mean(0)
images, test_images = images - usual, test_images - usual  # what all images share teaches nothing

random = torch.Generator().manual_seed(13)
wrong = torch.rand(images_count, generator=random) < wrong_labels
true_labels, labels = labels, torch.where(wrong, torch.randint(10, (images_count,), generator=random), labels)
for batch in (small, large):
    print(f"batch {batch}: {images_count // batch} steps an epoch, {epochs * images_count // batch} in {epochs} epochs")

# %% [markdown]
# What is learned depends on the batch of all ranks together, and not on how many ranks share it (Lab 04). So two ranks with 512
# images each show what 32 ranks with 32 would learn. The network is small, trained by plain gradient descent. Its learning
# rate, "the rate" from here on, drops to a tenth in the last epoch.
#
# Fashion-MNIST is easy: its images agree on what is to be learned. Large tasks are less easy. Hence four in ten training
# labels are drawn at random here; the test labels are right. You will see what that does.

# %%
# Set-up
def shuffled(batch, seed):
    """The images of each step in turn: every epoch in a new order, the same on all ranks."""
    random = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(images_count, generator=random).split(batch)

def own(chosen):
    """This rank's share of a step's images."""
    return chosen[dist.get_rank() :: dist.get_world_size()]

@torch.no_grad()
def error(model):
    """How many of a hundred test images the model gets wrong."""
    return 100 * float((model(test_images).argmax(1) != test_labels).float().mean())

# %%
# Set-up
def lesson(model, share, rate, batch, seed, tells=False):
    """Trains with rate(step) at each step, on this rank's share of every batch. Returns the error after each epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    an_epoch, errors = images_count // batch, []
    for step, chosen in zip(range(epochs * an_epoch), shuffled(batch, seed)):
        mine = share(chosen)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        F.cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()
        if (step + 1) % an_epoch == 0:
            errors.append(error(model))
            if tells:
                report(epoch=len(errors), epochs=epochs, error=errors[-1])
    return errors

# %%
def together(rate, batch, seeds):
    """All ranks on one training, for each seed."""
    dist.init_process_group("gloo")
    errors = []
    for number, seed in enumerate(seeds, 1):
        errors.append(lesson(DistributedDataParallel(strided_cnn(seed)), own, rate, batch, seed))
        report(step=number, steps=len(seeds))
    return errors

def alone(fabric, rate, seeds):
    """The small batch on one rank; here each rank has a training of its own, with its own seed."""
    seed = seeds[fabric.rank]
    return lesson(strided_cnn(seed), lambda chosen: chosen, rate, small, seed, tells=True)

def steady(rate, batch):
    """That rate at every step, a tenth of it in the last epoch."""
    return lambda step: rate / 10 if step >= (epochs - 1) * images_count // batch else rate

# %%
# Helper: the errors of a run, by training and by epoch
def middle(values):
    return sorted(values)[len(values) // 2]

def errors_of(run):
    """[training][epoch]; [] where an exercise is not written yet."""
    if run.state != "done":
        return []
    return run[0] if isinstance(run[0][0], list) else run.results  # all trainings on each rank, or one

def last_errors(run):
    return [errors[-1] for errors in errors_of(run)]

def said(run):
    found = last_errors(run)
    return f"{min(found):.1f} to {max(found):.1f} %" if found else "not yet"

# %%
# Helper: the picture of these errors
def error_curve(name, run, trainings=None):
    """The middle one of the first `trainings` trainings, or of all, with each of them."""
    by_epoch = dict(enumerate(zip(*errors_of(run)[:trainings]), 1))
    points = [(epoch, middle(errors)) for epoch, errors in by_epoch.items()] or [(1, None)]
    return figures.Curve(name, points, repeats=by_epoch)

def as_much(run, other, trainings=None):
    """Say whether a run's middle error ends as low as the other run's, or at least within its spread over the seeds."""
    if not last_errors(run):
        return None
    found, ends = middle(last_errors(run)), last_errors(other)
    verdict = "yes" if found <= middle(ends) else "no"
    if middle(ends) < found <= max(ends):
        verdict = "within the seeds' spread"
    return f"{verdict}: {found:.1f} % error, batch {small} has {middle(ends[:trainings]):.1f} %"

def by_epoch(runs, asks, trainings=None):
    rows = [error_curve(*row, trainings) for row in runs.items()]
    return figures.curves(rows, asks, x="epochs", y="error on test images (%)", at_end=True)

# %%
print(f"batch {small}: {len(seeds)} trainings of {epochs} epochs …")
reference = launch(alone, len(seeds), args=(steady(base_rate, small), seeds), device="cpu")
print(f"batch {small}: errors of {said(reference)} at the end")

# %%
lab.predict("same_rate", f"{large} images a step, the same rate, the same epochs. What is the error at the end?", "%")

# %%
same = launch(together, ranks, args=(steady(base_rate, large), large, seeds), device="cpu")
lab.measure("same_rate", middle(last_errors(same)))
runs = {f"batch {small}": reference, f"batch {large}, same rate": same}
asks = f"The same epochs and rate: does a batch of {large} learn as much as one of {small}?"
by_epoch(runs, figures.answered(asks, as_much(same, reference)))

# %% [markdown]
# ## The linear scaling rule
#
# A large batch gives a better gradient, not a longer step. And steps are few. From the same weights $w$, put $k$ small
# steps of rate $\eta$ beside one large step of rate $\hat\eta$ on the same images. With $g_j$ the gradient of small batch $j$,
# and $w_j$ the weights when its turn comes, they end at
#
# $$w-\eta\sum_{j<k} g_j(w_j)\qquad\text{and}\qquad w-\hat\eta\,\frac1k\sum_{j<k} g_j(w)$$
#
# If the gradients hardly change during the $k$ small steps, both end in the same place for $\hat\eta=k\eta$. This is the
# **linear scaling rule**: batch times k, rate times k (Goyal and others, 2017).

# %% [markdown]
# The "if" fails where weights change fast: at the very beginning. Hence **gradual warm-up**: step 0 has the rate of the small
# batch, each step adds the same amount, and the first step after the warm-up epochs is the first at the scaled rate. With 2
# such epochs of 4 steps each, that is step 8. (Others count one step more or less. And for a batch smaller than that of the
# base rate, the same rule lowers the rate.)

# %% [markdown]
# Later the rate falls, whatever the batch. With `drop_epochs=(2, 5)` it is a tenth once 2 epochs are over, and a hundredth once
# 5 are. Epochs count from step 0, and no drop comes within the warm-up. So the rate depends on *epochs*, and steps must be
# converted into them.
#
# <details><summary>Hint</summary>Three questions, one after the other: what is the scaled rate? Is the step within the warm-up
# of <code>warmup_epochs * steps_per_epoch</code> steps, and how far into it? How many drops has it passed?</details>

# %% tags=["exercise:scaled_rate"]
# Exercise 13.1: the rate of a step
def scaled_rate(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    """The rate of a step (counted from 0), a number: base_rate · batch / base_batch, divided by ten once e epochs are over, for
    each e in drop_epochs, which ascend.

    In the first warmup_epochs (0: none) it goes from base_rate, at step 0, to the scaled rate, at the first step after them, by
    the same amount at each step: up, or down if the batch is below base_batch.
    """
    ### BEGIN SOLUTION
    rate = base_rate * batch / base_batch
    warmup_steps = warmup_epochs * steps_per_epoch
    if step < warmup_steps:
        rate = base_rate + (rate - base_rate) * step / warmup_steps
    drops = sum(step >= epoch * steps_per_epoch for epoch in drop_epochs)
    return rate / 10**drops
    ### END SOLUTION

# %% tags=["check:scaled_rate"] points=1
check.scaled_rate(scaled_rate)

# %%
def by_rule(base, warmup, batch=large):
    """Your rate of each step; a tenth of it in the last epoch."""
    return partial(
        scaled_rate, steps_per_epoch=images_count // batch, batch=batch, base_rate=base, base_batch=small,
        warmup_epochs=warmup, drop_epochs=(epochs - 1,),
    )

def scaled(base, warmup):
    return launch(together, ranks, args=(by_rule(base, warmup), large, seeds), device="cpu")

# %%
lab.predict("rule", f"Batch {large} by the rule: how many percentage points more error than batch {small}?", "points")

# %%
ruled = scaled(base_rate, 0)
found = last_errors(ruled)
lab.measure("rule", middle(found) - middle(last_errors(reference)) if found else None)
runs |= {"the rule": ruled, "the rule with warm-up": scaled(base_rate, 1)}
asks = f"Batch {large} by the rule: does it learn as much as batch {small} in the same epochs?"
by_epoch(runs, figures.answered(asks, as_much(ruled, reference)))

# %%
# Helper: errors at the end in words
def compared(runs, reference):
    """The errors at the end, seed by seed, and whether the middle one is within those of the reference."""
    ends = last_errors(reference)
    print(f"{'seed':>28}: {', '.join(map(str, seeds))}")
    for name, run in runs.items():
        where = ""
        if run is not reference and last_errors(run):
            inside = min(ends) <= middle(last_errors(run)) <= max(ends)
            where = f", the middle one {'within' if inside else 'outside'} the spread of batch {small}"
        each = ", ".join(f"{error:.1f} %" for error in last_errors(run)) or "not yet"
        print(f"{name:>28}: {each}{where}")

def helped(cold, warmed, reference):
    """Say whether warm-up lowers the error with each seed, and whether it reaches the errors of the reference."""
    if not last_errors(cold):
        return None
    found, goals = last_errors(warmed), last_errors(reference)
    lower = sum(warm < without for warm, without in zip(found, last_errors(cold)))
    helps = {0: "no", len(seeds): "yes"}.get(lower, "undecided")
    enough = "enough" if middle(found) <= max(goals) else "not enough"
    link = "but" if (helps, enough) == ("yes", "not enough") else "and"
    return f"{helps}, {link} {enough}: {middle(found):.1f} % error, batch {small} has {middle(goals):.1f} %"

# %%
compared(runs, reference)

# %% [markdown]
# That was a careful rate. Does batch 32 learn more at a much higher one, in the same epochs? For the large batch the rule
# multiplies that rate by 32. Does its training still work?

# %%
lab.predict("bold", f"The base rate is {bold_rate} instead of {base_rate}, by the rule alone: the error of batch {large}?", "%")

# %%
print(f"batch {small} and batch {large} with a base rate of {bold_rate} …")
bold = {f"batch {small}, rate {base_rate}": reference}
bold[f"batch {small}"] = launch(alone, len(seeds), args=(steady(bold_rate, small), seeds), device="cpu")
for warmup in warmups:
    bold[f"{warmup} epochs of warm-up"] = scaled(bold_rate, warmup)
found = last_errors(bold["0 epochs of warm-up"])
lab.measure("bold", middle(found) if found else None)

# %%
answer = helped(bold["0 epochs of warm-up"], bold[f"{warmups[-1]} epochs of warm-up"], bold[f"batch {small}"])
by_epoch(bold, figures.answered(f"A base rate of {bold_rate}: does warm-up help the large batch, and is it enough?", answer))

# %%
compared(bold, bold[f"batch {small}"])

# %% [markdown]
# A few epochs of small images are no ImageNet. This is what Goyal and others measured there (2017, table 1; ResNet-50, 90
# epochs, top-1 error, mean and deviation):
#
# | batch | warm-up | error |
# | ---: | --- | ---: |
# | 256 | none | 23.60 ± 0.12 % |
# | 8,192 | none | 24.84 ± 0.37 % |
# | 8,192 | constant: the small rate at first, then all at once | 25.88 ± 0.56 % |
# | 8,192 | gradual | 23.74 ± 0.09 % |

# %% [markdown]
# There warm-up makes the difference. And here? Above the table, look at each seed: with which does warm-up help, and with
# which not? A few seeds of a network with three layers settle nothing; theirs has fifty layers.

# %% [markdown]
# How far does the rule go? Turn the knobs: which batch is too large, and does a longer warm-up save it? Before you run, count
# the steps that are left in all epochs.

# %%
# Helper: one training with the rule, beside that of the small batch with the same seed
def try_out(batch=large, warmup=1, base=base_rate):
    rate = by_rule(base, warmup, batch)
    tried = launch(together, ranks, args=(rate, batch, seeds[:1]), device="cpu")
    asks = f"Batch {batch}, {epochs * images_count // batch} steps, the rate up to {base * batch / small:.2g}: as much learned?"
    shown = {f"batch {small}, rate {base_rate}": reference, f"batch {batch}": tried}
    return by_epoch(shown, figures.answered(asks, as_much(tried, reference, trainings=1)), trainings=1)

# %%
knobs(try_out, batch=[256, large, 4096], warmup=[0, 1, 2, 4], base=[base_rate, 2 * base_rate, bold_rate])

# %% [markdown]
# ## A batch that does not fit
#
# A rank's share may be too large for its memory, since forward keeps **activations**, which backward will need. So cut the
# share into parts, **micro-batches**: forward and backward for each, the gradients add up in `p.grad`, and one step follows.
# This is **gradient accumulation**. With it, any batch runs on any number of ranks.

# %% [markdown]
# Two things about DDP matter here. It averages over ranks in *every* backward; inside `with ddp.no_sync():`, put around forward
# and backward, it sends nothing and only adds up. And it divides by the number of *ranks*, whatever each has worked on. But
# parts are unequal: the last one of an epoch is small, and texts differ in length.

# %%
sizes = [[96, 32], [8, 8]]
lab.predict(
    "louder", f"2 ranks, parts of {sizes[0]} and {sizes[1]} images. Each rank averages its parts' means, then the ranks "
    "average. How many times as much does an image of rank 1 count as one of rank 0's first part?", "times"
)

# %%
def marked(parts_of_ranks):
    """How much each image counts: its own weight is the only one that its output moves."""
    dist.init_process_group("gloo")
    count, first = sum(map(sum, parts_of_ranks)), sum(map(sum, parts_of_ranks[: dist.get_rank()]))
    ddp = DistributedDataParallel(torch.nn.Linear(count, 1, bias=False))
    parts = parts_of_ranks[dist.get_rank()]
    for x in torch.eye(count)[first : first + sum(parts)].split(parts):
        (ddp(x).mean() / len(parts)).backward()
    return ddp.module.weight.grad[0]

counts = launch(marked, 2, args=(sizes,), device="cpu")[0]
lab.measure("louder", counts[-1] / counts[0])
print(f"an image of rank 0's first part counts {counts[0]:.4f}, one of rank 1 {counts[-1]:.4f}; all alike: {1 / len(counts):.4f}")

# %% [markdown]
# Nothing would look broken: a loss would fall, but that of another mean. The step you write counts every *image* alike, for
# parts of any size but 0. DDP's all-reduce comes once, and only one part's activations are in memory at a time. If all parts
# share one loop, the part outside `no_sync()` needs a `with` that does nothing: `nullcontext()`, from the set-up.
#
# <details><summary>Hint 1</summary>With <code>reduction="sum"</code> every image adds its own loss. By what must the sum be
# divided? All ranks must know it before the first backward: one <code>dist.all_reduce</code> of one number.</details>
# <details><summary>Hint 2</summary>DDP divides by the number of ranks afterwards, so multiply by
# <code>dist.get_world_size()</code> before. Only the last part is not in <code>no_sync()</code>.</details>

# %% tags=["exercise:big_batch_step"]
# Exercise 13.2: one step of many parts
def big_batch_step(ddp, optimizer, parts):
    """One step of the optimizer, as one device would take it on the mean cross-entropy of all examples of all ranks.

    parts: this rank's [(x, y), …], equally many on every rank, of any sizes, none empty; the list stays as it is. Gradients
    travel once; one part's graph at a time is in memory.
    """
    ### BEGIN SOLUTION
    count = torch.tensor(sum(len(y) for _, y in parts))
    dist.all_reduce(count)
    optimizer.zero_grad()
    for k, (x, y) in enumerate(parts, 1):
        with ddp.no_sync() if k < len(parts) else nullcontext():
            loss = F.cross_entropy(ddp(x), y, reduction="sum")
            (loss * dist.get_world_size() / count).backward()
    optimizer.step()
    ### END SOLUTION

# %% tags=["check:big_batch_step"] points=1.5
check.big_batch_step(big_batch_step)

# %% [markdown]
# Now one step on 1,024 images: on one rank in one part, and on two ranks in parts. DDP sends through a process group;
# `use_fabric` gives it one over our recorded messages. How much is sent, and what is the peak memory, besides weights and
# images?

# %%
lab.predict("memory", f"{large // ranks} images a rank: the peak memory in 8 parts is what share of that in one? (0 to 1)", "")

# %%
def big_step(fabric, count):
    """One step on this rank's images, cut into `count` parts: the weights afterwards, and the peak memory."""
    use_fabric(fabric)
    ddp = DistributedDataParallel(strided_cnn(0))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    parts = [(images[p], labels[p]) for p in own(torch.arange(large)).tensor_split(count)]
    with span("the step"), LiveBytes([*ddp.parameters(), images, labels, *sum(parts, ())]) as meter:
        before = meter.now()
        big_batch_step(ddp, optimizer, parts)
    return flat(list(ddp.parameters())), meter.peak - before

def only_step(run):
    """The messages of the step alone: DDP sends some when it is made."""
    return run.trace.between(min(s.start_s for s in run.trace.spans if s.label == "the step"), float("inf"))

# %%
cuts = [1, 2, 4, 8, 16]
in_parts = {count: launch(big_step, ranks, args=(count,), device="cpu") for count in cuts}
one_device = launch(big_step, 1, args=(1,), device="cpu")
done = one_device.state == "done"
for count in (1, 8) if done else ():
    off = float((in_parts[count][0][0] - one_device[0][0]).abs().max())
    sent = only_step(in_parts[count]).sent_bytes(0)
    print(f"{count} parts: rank 0 sends {sent / 1e3:.1f} kB; weights differ by {off:.0e} from one device's")
figures.messages(only_step(in_parts[8]) if done else in_parts[8])

# %% [markdown]
# The first messages carry the count: one number in one chunk, and an empty second chunk. The gradients follow at the end of the
# last part.

# %%
peaks = [(count, run[0][1] if done else None) for count, run in in_parts.items()]
lab.measure("memory", dict(peaks)[8] / dict(peaks)[1] if done else None)
falls = None
if done:
    share = peaks[-1][1] / peaks[0][1]
    falls = f"{'yes' if share < 1 / 1.3 else 'no'}: {100 * share:.0f} % of it in {peaks[-1][0]} parts"
figures.curves(
    [figures.Curve("your step", peaks, [(count, peaks[0][1] / count) for count in cuts] if done else ())],
    figures.answered("Does the memory of a step fall as its parts become more?", falls),
    x="parts of a rank's images", y="peak memory (bytes)", log=True,
)

# %% [markdown]
# The dashed line is the peak with one part, divided by the number of parts. Gradients stay as large, however small the parts
# are; only activations shrink. And it is the same arithmetic in more and smaller pieces: accumulation buys memory, not time.

# %% [markdown]
# ## How noisy is a gradient?
#
# So any batch can be run. Which is worth it? The gradient $G_B$ of a batch of B examples is the mean of their gradients.
# Another batch gives another gradient. Let $G$ be the gradient over *all* examples, and $\operatorname{tr}\Sigma$ the variance
# of one example's gradient, added up over all weights. The noise of a mean falls as the batch grows, and noise makes the
# gradient longer:
#
# $$\mathrm{E}\,|G_B|^2=|G|^2+\frac{\operatorname{tr}\Sigma}{B}$$

# %% [markdown]
# At $B=\operatorname{tr}\Sigma/|G|^2$ the noise is as large as the signal $|G|^2$. This batch is the **gradient noise scale**
# (McCandlish and others, 2018). Far below it, twice the batch halves a noise that dominates, and the step may be twice as long.
# Far above it the gradient is as good as exact, and more examples change nothing.
#
# Two unknowns need two batch sizes. Data parallelism has both at each step: a rank's own gradient, over B examples, and the
# mean of all n ranks', over nB.

# %%
lab.predict("noisier", "A batch of a quarter of the noise scale: how many times |G|² is |G_B|², on average?", "times")

# %%
random = torch.Generator().manual_seed(13)
true, noise = torch.full((1000,), 0.1), 0.2  # |G|² = 10, and tr Σ = 1000 · 0.2² = 40: a noise scale of 4 examples
drawn = [true + noise * torch.randn(1000, generator=random) for _ in range(2000)]  # gradients of one example
lab.measure("noisier", sum(float(g @ g) for g in drawn) / len(drawn) / float(true @ true))

# %% [markdown]
# Solve the two equations for $|G|^2$ and $\operatorname{tr}\Sigma$; for one rank's $|G_B|^2$ take the mean over the ranks,
# which is less noisy. A single step gives a poor estimate: $|G|^2$ may come out near 0, or below it, and then the ratio is
# huge, or negative. The mean of many such ratios is no better. So average each of the two over all steps, and divide once, at
# the end. Every step counts alike; B may differ from step to step.
#
# <details><summary>Hint</summary>b = B, of one rank; m = nB, of the mean. Subtract one equation from the other: what is left
# holds trΣ alone. Then m·|G_m|² − b·|G_b|² holds |G|² alone.</details>

# %% tags=["exercise:noise_scale"]
# Exercise 13.3: the gradient noise scale
def noise_scale(steps):
    """tr(Σ)/|G|², in examples. steps[k] = (batch, gradients): each rank's flat gradient of its own `batch` examples.

    Unbiased estimates of |G|² and of tr(Σ), each averaged over all steps before the division: negative ones count as they are,
    and so does a negative mean. For one rank's |gradient|², a step takes the mean over its ranks, equally many at every step.
    steps and its gradients stay unchanged.
    """
    ### BEGIN SOLUTION
    signals, noises = [], []
    for batch, gradients in steps:
        whole = len(gradients) * batch
        mean = sum(gradients) / len(gradients)
        long_sq = sum(float(g @ g) for g in gradients) / len(gradients)
        short_sq = float(mean @ mean)
        signals.append((whole * short_sq - batch * long_sq) / (whole - batch))
        noises.append((long_sq - short_sq) / (1 / batch - 1 / whole))
    return (sum(noises) / len(steps)) / (sum(signals) / len(steps))
    ### END SOLUTION

# %% tags=["check:noise_scale"] points=1.5
check.noise_scale(noise_scale)

# %% [markdown]
# Now a real training: four ranks, a large batch and a high rate, until the error on test images is down to a goal of `goal`
# per cent. Every rank keeps its own gradient before it averages. Then once more with the right labels:
# what did the wrong ones do to the noise?

# %%
lab.predict("wrong", "With wrong labels, how many times the noise scale with right ones?", "times")

# %%
# Set-up
@torch.no_grad()
def shared_error(model):
    """Like `error`, on the first `goal_count` test images, shared among the ranks; the same number on all ranks."""
    mine = slice(dist.get_rank(), goal_count, dist.get_world_size())
    wrong = (model(test_images[mine]).argmax(1) != test_labels[mine]).sum()
    dist.all_reduce(wrong)
    return 100 * float(wrong) / len(test_labels[:goal_count])

# %%
def own_gradients(batch, rate, seed, labels):
    """This rank's own gradient at each step until the goal; the steps themselves are taken with the mean."""
    dist.init_process_group("gloo")
    model, kept = strided_cnn(seed), []
    weights = list(model.parameters())
    for _, chosen in zip(range(most_steps), shuffled(batch, seed)):
        mine = own(chosen)
        kept.append(flat(torch.autograd.grad(F.cross_entropy(model(images[mine]), labels[mine]), weights)))
        mean = kept[-1].clone()
        dist.all_reduce(mean)
        torch.nn.utils.vector_to_parameters(flat(weights) - rate / dist.get_world_size() * mean, weights)
        if shared_error(model) <= goal:
            break
    return kept

# %%
# Helper: your noise scale over some steps, and over windows of them
def scale_of(steps):
    try:
        return noise_scale(steps)
    except NotYet:
        return None

def by_window(name, steps):
    """The noise scale over each window, at the step that ends it."""
    ends = range(window, len(steps) + 1, window)
    return figures.Curve(name, [(end, scale_of(steps[end - window : end])) for end in ends])

# %%
def steps_of(seed, labels):
    """[(batch, gradients of all ranks)] of a training."""
    run = launch(own_gradients, noise_ranks, args=(large, noise_rate, seed, labels), device="cpu")
    return [(large // noise_ranks, list(gradients)) for gradients in zip(*run.results)]

noisy = {f"seed {seed}": steps_of(seed, labels) for seed in seeds}
noisy[f"seed {seeds[0]}, right labels"] = steps_of(seeds[0], true_labels)
windows = {name: by_window(name, steps) for name, steps in noisy.items()}
right, wrong = (dict(windows[f"seed {seeds[0]}{labels}"].known) for labels in (", right labels", ""))
smaller = [scale < wrong[end] for end, scale in right.items() if end in wrong]
answer = None
if smaller:
    answer = "yes, at every marker" if all(smaller) else f"no, at {sum(smaller)} of {len(smaller)} markers"
figures.curves(
    windows.values(), figures.answered("With right labels: is the noise scale smaller all the time?", answer),
    x="step", y="noise scale (examples)", log=True,
)

# %% [markdown]
# Where all examples pull the same way, $|G|$ is large and the noise scale small. Once the easy part is learned, they disagree,
# and noise takes over. Which steps of your runs are which?
#
# A wrong label pulls in a direction of its own, so it adds to the noise. And wrong labels of all kinds cancel out: $G$ is left
# to the right ones. So $|G|$ shrinks as well. By how much? At the first step, weights and images are the same with both labels.

# %%
def first_length(name):
    """The length of the mean gradient of all ranks at the first step."""
    _, gradients = noisy[name][0]
    return float(torch.stack(gradients).mean(0).norm())

with_wrong, with_right = map(first_length, (f"seed {seeds[0]}", f"seed {seeds[0]}, right labels"))
print(f"first step, {large} images: |gradient| {with_wrong:.2f} with wrong labels, {with_right:.2f} with right ones: "
      f"{with_wrong / with_right:.2f} times as long")

# %% [markdown]
# What follows for the number of steps? A step of rate $\eta$ gains $\eta|G|^2$ and loses, by the curvature $h$ of the
# loss, $\frac{\eta^2}{2}h\left(|G|^2+\frac{\operatorname{tr}\Sigma}{B}\right)$. Take one rate for a whole training,
# the one that gains most, and the means over its steps. Then the training takes
#
# $$S(B)=S_\text{min}\left(1+\frac{B_\text{crit}}{B}\right)\qquad\text{with}\qquad
# B_\text{crit}=\frac{\text{mean of }\operatorname{tr}\Sigma}{\text{mean of }|G|^2}$$
#
# steps to a goal. $B_\text{crit}$ is what your function returns for all steps of a training. (One curvature for all directions
# is a simplification.)

# %%
*foretold, right = map(scale_of, noisy.values())
written = right is not None
lab.measure("wrong", foretold[0] / right if written else None)
if written:
    print("noise scale of the whole way to the goal, by seed:", *(f"{value:.0f}" for value in foretold))
    print(f"with the right labels: {right:.0f}")
foretold = middle(foretold) if written else None

# %% [markdown]
# At $B=B_\text{crit}$, the **critical batch size**, a goal takes twice the fewest steps and twice the fewest examples: half of
# the work is the price of speed. Far below it more ranks save time and waste little; far above it they waste most of their
# work. You have a number for the critical batch, from the gradients of one training. Now the costly way: train with every
# batch.

# %% [markdown]
# ## Steps to a goal
#
# Shallue and others (2019) did that for many models: for each batch size, at the rate that suits it best, they counted
# the steps to a goal. They found three regions: **perfect scaling**, where twice the batch takes half the steps;
# **diminishing returns**; and **maximal data parallelism**, where more examples save no steps. Here the goal is an
# error on the first `goal_count` test images, and your `big_batch_step` runs every batch in parts on the ranks.

# %%
lab.predict("saved", f"From a batch of {sweep[0]} to one of {sweep[-1]}: how many times fewer steps to the goal?", "times")

# %%
lab.predict("knee", "At which batch does the goal take twice the fewest steps? (You have the noise scale.)", "examples")

# %%
# Helper: the search for the best rate of every batch
def steps_to_goal(batch, rate, seed, limit):
    """Steps until the test error is at the goal; None if `limit` steps do not get there."""
    ddp = DistributedDataParallel(strided_cnn(seed))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate)
    for step, chosen in zip(range(1, limit + 1), shuffled(batch, seed)):
        big_batch_step(ddp, optimizer, [(images[p], labels[p]) for p in own(chosen).split(part)])
        if step % max(1, step // 16) == 0 and shared_error(ddp.module) <= goal:
            return step

def at_best_rate(batch, seed, first):
    """(steps, rate) of the rate that takes fewest steps: `first`, half or twice it. A slower one is given up early."""
    near = [rate for rate in rates if not first or first / 2 <= rate <= 2 * first]
    best = None, first
    for rate in sorted(near, key=lambda rate: rate != first):
        steps = steps_to_goal(batch, rate, seed, (best[0] or most_steps) - 1)
        best = (steps, rate) if steps else best
    return best

def search(batches, seeds):
    """{batch: [(steps, rate) of each seed]}. The search for the best rate starts from the next smaller batch's."""
    dist.init_process_group("gloo")
    found, first = {}, dict.fromkeys(seeds)
    for number, batch in enumerate(batches, 1):
        found[batch] = [at_best_rate(batch, seed, first[seed]) for seed in seeds]
        first = {seed: rate for seed, (_, rate) in zip(seeds, found[batch])}
        report(step=number, steps=len(batches))
    return found

# %%
print(f"{len(sweep)} batch sizes, {len(seeds)} trainings of each at up to {len(rates)} rates …")
run = launch(search, ranks, args=(sweep, seeds), device="cpu", timeout_s=300)
found = run[0] if run.state == "done" else {}
taken = {batch: [steps for steps, _ in pairs if steps] for batch, pairs in found.items()}
taken = {batch: steps for batch, steps in taken.items() if steps}

# %%
fewest, knee = None, None
if taken:
    fewest, knee = large_batches.fit_steps([(batch, steps) for batch in taken for steps in taken[batch]])
    print(f"fewest steps {fewest:.0f}; twice as many at a batch of {knee:.0f}")
    lab.measure("saved", middle(taken[sweep[0]]) / middle(taken[sweep[-1]]))
if taken and foretold:
    print(f"the noise scale foretold {foretold:.0f}: {foretold / knee:.2f} times that batch")
lab.measure("knee", knee)

# %%
# Helper: the curves of the picture, and its answer
def saves_up_to(taken):
    """Say up to which batch steps are saved; None where an exercise is not written yet."""
    if not taken:
        return None
    steps = {batch: middle(each) for batch, each in taken.items()}
    level = next(batch for batch in steps if steps[batch] <= 1.3 * min(steps.values()))
    if level == sweep[0]:
        return "none of these save steps"
    return f"up to {level}: {steps[level]} steps, {steps[sweep[0]]} at {sweep[0]}"

def lines_of(taken):
    """Measured steps with what the noise scale foretells, the curve fitted to them, and what perfect scaling would be."""
    if not taken:
        return [figures.Curve("measured", [(batch, None) for batch in sweep])]
    first = middle(taken[sweep[0]])
    fine = sorted({*sweep, *(sweep[0] * (sweep[-1] / sweep[0]) ** (k / 60) for k in range(61))})
    fitted = [(batch, large_batches.steps(batch, fewest, knee)) for batch in fine]
    perfect = [(batch, first * sweep[0] / batch) for batch in sweep]
    measured = [(batch, middle(steps)) for batch, steps in taken.items()]
    least = first / (1 + foretold / sweep[0]) if foretold else 0
    told = [(batch, large_batches.steps(batch, least, foretold)) for batch in fine if foretold]
    computed = {"by the noise scale": told, "fitted to the points": fitted, "perfect scaling": perfect}
    drawn = [figures.Curve(name, predicted=points) for name, points in computed.items() if points]
    return [figures.Curve("measured", measured, repeats=taken), *drawn]

# %% tags=["cover"]
figures.curves(
    lines_of(taken), figures.answered("Up to which batch do more examples save steps?", saves_up_to(taken)),
    x="batch of all ranks", y="steps to the goal", log=True, until_level=True,
    marks={"noise scale": foretold and round(foretold), "twice the fewest steps": knee and round(knee)},
)

# %% [markdown]
# The curves are $S_\text{min}(1+B_\text{crit}/B)$. One takes your noise scale as $B_\text{crit}$, which cost one training
# for each seed, and goes through the first point; so does perfect scaling. The third curve is fitted to all points. Its knee is
# the batch at which it is twice as high as its floor. Which doublings of the batch still save steps, and what does each cost in
# images?

# %%
# Helper: what each doubling of the batch brings
def doublings(taken):
    for batch, twice in zip(taken, list(taken)[1:]):
        ratio = middle(taken[batch]) / middle(taken[twice])
        region = "diminishing returns"
        if ratio > 0.9 * twice / batch:
            region = "perfect scaling"
        if min(taken[batch]) <= max(taken[twice]):  # with other seeds it may come out the other way round
            region = "no step saved that the seeds' spread would not hide"
        images_more = twice * middle(taken[twice]) / (batch * middle(taken[batch]))
        print(f"{batch:5} to {twice:5}: {ratio:4.2f} times fewer steps, {images_more:4.2f} times the images: {region}")

# %%
doublings(taken)

# %% [markdown]
# **In one sentence:** which of the three regions do you see, and where would you have to look for the others?
#
# <details><summary>Compare</summary>Perfect scaling is where the points follow the straight line, which begins at the first of
# them: at batches far below the critical one. Where they lie flat, more ranks save nothing.</details>

# %% [markdown]
# And the rate? By the same theory the best one is $\frac{\eta_\text{max}}{1+B_\text{crit}/B}$: proportional to the batch far
# below the critical one, constant far above. The linear scaling rule is the left half of this curve.
#
# The search tried all `rates` with the smallest batch, and from there on the best rate of the batch before, half of it and
# twice it. The dashed curve is drawn through the point of the largest batch, so that point proves nothing: look at the others.

# %%
# Helper: the best rates, and the curve of the theory
def best_rates(found):
    """The best rate of each batch, and the curve of the theory through that of the largest."""
    if not taken:
        return figures.Curve("the best rate", [(batch, None) for batch in sweep])
    each = {batch: [rate for _, rate in pairs if rate] for batch, pairs in found.items() if batch in taken}
    most = middle(each[sweep[-1]]) * (1 + knee / sweep[-1])
    theory = [(batch, large_batches.best_rate(batch, most, knee)) for batch in each]
    return figures.Curve("the best rate", [(batch, middle(tried)) for batch, tried in each.items()], theory, repeats=each)

# %%
line, grows = best_rates(found), None
if taken:
    rate_at = dict(line.measured)
    first, highest = next(iter(rate_at)), max(rate_at, key=rate_at.get)
    grows = f"no: {rate_at[first]:.3g} at first, {list(rate_at.values())[-1]:.3g} at last"
    if rate_at[highest] >= 1.3 * rate_at[first]:
        grows = f"yes, up to {highest}: from {rate_at[first]:.3g} to {rate_at[highest]:.3g}"
figures.curves(
    [line], figures.answered("Does the best rate grow with the batch, and how far?", grows), x="batch of all ranks", y="rate",
    log=True, until_level=True,
)

# %% [markdown]
# The rates are few, so several points stand at the same height. And a goal counts as reached when it is touched once: that
# favours a high rate, which swings to and fro. The error is checked after every sixteenth of the steps done, so a count may be
# 6 % late.
#
# In the first section a batch of 1,024 was compared with one of 32. How far from the best were the rates there?

# %%
for batch, rate, run in (small, base_rate, reference), (large, base_rate * large / small, ruled):
    reached = [epoch * images_count for epoch, errors in enumerate(zip(*errors_of(run)), 1) if middle(errors) <= goal]
    after = f"{reached[0]:,} images" if reached else "more epochs than these"
    print(f"batch {batch}, first section: rate {rate:.3g}, {goal} % after {after}")
    if batch in taken:
        best = middle([rate for steps, rate in found[batch] if steps])
        print(f"{' ' * 10} the search: best rate {best:.3g}, {goal} % after {batch * middle(taken[batch]):,} images")

# %% [markdown]
# **In one sentence:** say the rule holds for 1,024 images in your first section. How can it, far above the critical batch?
#
# <details><summary>Compare</summary>There the small batch had a rate far below its best one: its many steps were short. The
# large batch went the same way in fewer, longer ones. Both could have arrived sooner, and the small batch with fewer
# images.</details>

# %% [markdown]
# McCandlish and others (2018, abstract) report useful batches of tens of thousands on ImageNet, and of millions for agents that
# play a game. Shallue and others (2019) found large differences between tasks, networks and optimizers. So measure the noise
# scale of *your* task before you buy ranks, and over the whole way to *your* goal: the first steps alone may give another
# number.

# %% [markdown]
# ### A batch that grows (optional)
#
# At first examples agree, and a small batch is enough; later noise takes over. So let the batch follow the noise scale (Smith
# and others, 2018, grow it instead of lowering the rate). Here it starts at the smallest. After every `window` steps it doubles
# if your noise scale over all steps so far is above it, or below 0 (noise still hides |G|). Where the batch equals the noise
# scale, the theory's best rate is half of the largest. So the growing batch keeps one rate, half of `noise_rate`.

# %%
lab.predict("grown", f"Batch {sweep[0]}, growing: how many times the images of batch {sweep[0]} until the goal?", "times")
lab.predict("grown_steps", f"And how many times the steps of batch {sweep[-1]}?", "times")

# %%
def growing(rate, seed):
    """[batch of each step] of a training to the goal, with a batch that follows the noise scale of the way so far."""
    dist.init_process_group("gloo")
    model, random, batch, kept, n = strided_cnn(seed), torch.Generator().manual_seed(seed), sweep[0], [], dist.get_world_size()
    weights = list(model.parameters())
    for step in range(1, most_steps + 1):
        mine = own(torch.randperm(images_count, generator=random)[:batch])
        gradient = flat(torch.autograd.grad(F.cross_entropy(model(images[mine]), labels[mine]), weights))
        gradients = [torch.empty_like(gradient) for _ in range(n)]
        dist.all_gather(gradients, gradient)
        kept.append((batch // n, gradients))
        torch.nn.utils.vector_to_parameters(flat(weights) - rate * sum(gradients) / n, weights)
        if step % max(1, step // 16) == 0 and shared_error(model) <= goal:
            break
        if step % window == 0 and batch < sweep[-1] and not 0 < noise_scale(kept) <= batch:
            batch *= 2
    return [n * share for share, _ in kept]

# %%
grown = [launch(growing, noise_ranks, args=(noise_rate / 2, seed), device="cpu") for seed in seeds]
grown = [run[0] for run in grown if run.state == "done"]
for seed, batches in zip(seeds, grown):
    places = ", ".join(f"{batch} from step {batches.index(batch) + 1}" for batch in sorted(set(batches)))
    print(f"seed {seed}: {len(batches)} steps, {sum(batches):,} images; batch {places}")
ready = bool(grown and taken)
lab.measure("grown", middle(list(map(sum, grown))) / (sweep[0] * middle(taken[sweep[0]])) if ready else None)
lab.measure("grown_steps", middle(list(map(len, grown))) / middle(taken[sweep[-1]]) if ready else None)

# %% [markdown]
# Which is fastest? That depends on the ranks. Declare the time of a step: a rank's share of its images at `image_s` each, and
# `sum_s` for the all-reduce if there are several ranks. The fixed batches take their best rate from the search; a step uses at
# most one rank per image. On how many ranks does the growing batch come first, and against which fixed one?

# %%
def declared_s(batches, n):
    """Seconds of a training by the assumed times, with the batch of each step."""
    return sum(sum_s * (n > 1) + image_s * max(1, batch / n) for batch in batches)

trainings = {f"batch {batch}": [[batch] * steps for steps in taken[batch]] for batch in taken} | {"growing": grown}
bars, first, level, answer = [], [], [], None
for n in many_ranks if ready else ():
    took = {name: sorted(declared_s(batches, n) for batches in each) for name, each in trainings.items()}
    fixed = min((name for name in took if name != "growing"), key=lambda name: middle(took[name]))
    print(f"ranks {n}: the best fixed one is {fixed}, {middle(took[fixed]):.2f} s; growing {middle(took['growing']):.2f} s")
    for name in (f"batch {sweep[0]}", f"batch {sweep[-1]}", "growing") if n > 1 else ():  # on one rank the largest takes minutes
        bars.append(figures.Timing(name, middle(took[name]), world_size=n, repeats_s=took[name]))
    first += [f"{n:,}"] * (took["growing"][-1] < took[fixed][0])
    level += [f"{n:,}"] * (took["growing"][-1] >= took[fixed][0] and took["growing"][0] <= took[fixed][-1])
    places = ", ".join(first) or "none"
    if level:
        places += f", level on {', '.join(level) if len(level) < len(many_ranks) else 'all'}"
    answer = f"first on {places}; {middle(took['growing']):.2f} s against {middle(took[fixed]):.2f} s"
asks = f"The same goal: on how many ranks is the growing batch first, and how far on {many_ranks[-1]:,}?"
figures.race(bars, figures.answered(asks, answer), simulated=True) if ready else figures.not_yet("Exercise 13.3")

# %% [markdown]
# **In one sentence:** against which fixed batches can growing win, and what would it need to beat the best fixed one?
#
# <details><summary>Compare</summary>Against one that is far from the noise scale: it saves the steps of a small batch and the
# images of a large one. The best fixed batch is known only after a search like yours. Growing beats it only if the noise scale
# changes a lot on the way, as in long trainings (McCandlish and others, 2018, section 3). Also, the noise scale rises when the
# batch grows and the rate does not: with less noise the weights settle, and |G| falls.</details>

# %% [markdown]
# ### And Adam? (optional)
#
# The linear rule is SGD's. For Adam one often reads: batch times k, rate times $\sqrt k$ (Krizhevsky, 2014, once proposed it
# for SGD; Malladi and others, 2022, derive it for Adam where noise dominates). Look at small batches, up to about the critical
# one: for each of `below_critical`, find the rate with the fewest steps to `rate_goal` per cent, on a grid of factors of two.
# Each rank has its own seed.

# %%
times = below_critical[0] // below_critical[-1]
lab.predict("adam", f"{times} times the batch: how many times the rate is Adam's best one?", "times")
lab.predict("sgd", "And SGD's?", "times")

# %%
# Helper: the rate of fewest steps for each batch, from the largest down
def steps_with(kind, rate, batch, seed, limit):
    """Steps until the error on the first 1,000 test images is at `rate_goal`; None if `limit` steps do not get there."""
    model = strided_cnn(seed)
    optimizer = kind(model.parameters(), lr=rate)
    for step, chosen in zip(range(1, limit + 1), shuffled(batch, seed)):
        optimizer.zero_grad()
        F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        if step % max(2, step // 16) == 0:
            with torch.no_grad():
                wrong = (model(test_images[:1000]).argmax(1) != test_labels[:1000]).float().mean()
            if 100 * wrong <= rate_goal:
                return step

def rates_by_batch(fabric, kind, grid, seeds):
    """{batch: (steps, rate)} of this rank's seed; each next batch tries the last one's best rate, half and a quarter of it."""
    found, first, limit = {}, None, most_steps // 5
    for batch in below_critical:
        best, near = (None, first), [rate for rate in grid if not first or first / 4 <= rate <= first]
        for rate in sorted(near, key=lambda rate: rate != (first and first / 2)):
            steps = steps_with(kind, rate, batch, seeds[fabric.rank], (best[0] or limit + 1) - 1)
            best = (steps, rate) if steps else best
        found[batch], first = best, best[1]
        limit = min(most_steps, 6 * (best[0] or most_steps))
        report(step=len(found), steps=len(below_critical))
    return found

# %%
kinds = {
    "SGD": (torch.optim.SGD, [0.025 * 2**k for k in range(7)]), "Adam": (torch.optim.Adam, [0.0005 * 2**k for k in range(7)]),
}
best = {}
for name, (kind, grid) in kinds.items():
    print(f"{name}: {len(below_critical)} batch sizes, {len(seeds)} seeds …")
    best[name] = launch(rates_by_batch, len(seeds), args=(kind, grid, seeds), device="cpu", timeout_s=300).results

# %%
# Helper: the exponent of each seed, and the curves
def exponent(found):
    """The slope of log rate over log batch; None where fewer than three batches reached the goal."""
    known = [(batch, rate) for batch, (steps, rate) in found.items() if steps]
    logs = torch.tensor(known, dtype=torch.float64).log()
    if len(known) < 3:
        return None
    x, y = (logs - logs.mean(0)).T
    return float((x * y).sum() / (x * x).sum())

def rate_curve(name, power):
    """Measured best rates, and a power of the batch, drawn through the largest batch's middle one."""
    each = {batch: [found[batch][1] for found in best[name] if found[batch][0]] for batch in reversed(below_critical)}
    each = {batch: tried for batch, tried in each.items() if tried}
    top = max(each, default=None)
    told = [(batch, middle(each[top]) * (batch / top) ** power) for batch in each]
    return figures.Curve(name, [(batch, middle(tried)) for batch, tried in each.items()], told, repeats=each)

# %%
grows = {"SGD": "undecided", "Adam": "undecided"}
for name, id in (("Adam", "adam"), ("SGD", "sgd")):
    powers = sorted(power for power in map(exponent, best[name]) if power is not None)
    if powers:
        print(f"{name}: exponent {middle(powers):.2f}, by seed {powers[0]:.2f} to {powers[-1]:.2f}", end="")
        rules = {"its root": powers[0] <= 0.5 <= powers[-1], "the batch": powers[0] <= 1 <= powers[-1]}
        for rule, within in rules.items():
            print(f"; as {rule}: {'within' if within else 'outside'}", end="")
        print()
        fits = [rule for rule, within in rules.items() if within]
        grows[name] = f"as {fits[0] if len(fits) == 1 else 'either' if fits else 'neither'} ({powers[0]:.2f}–{powers[-1]:.2f})"
    lab.measure(id, times ** middle(powers) if powers else None)
asks = "Does the best rate grow as the batch, or as its root?"
figures.curves(
    [rate_curve("SGD", 1.0), rate_curve("Adam", 0.5)],
    figures.answered(asks, "; ".join(f"{name} {how}" for name, how in grows.items())),
    x="batch", y="rate", log=True, growth=True,
)

# %% [markdown]
# The dashes are SGD's linear rule and Adam's root, through the point of the largest batch. Rates go in factors of two, a goal
# counts when it is touched once, and seeds are few. Do your two ranges lie apart? If not, this run does not tell SGD's exponent
# from Adam's.
#
# <details><summary>Compare</summary>Near the critical batch any best rate grows more slowly than its rule. Adam divides by the
# size of its gradients, noise included. Far below the critical batch that size falls with the root of the batch, so Adam's
# steps grow by themselves, and only the root is left for the rate. Seeing that takes smaller batches, a finer grid and many
# seeds: more work than two cores do in a minute.</details>

# %% [markdown]
# ## BatchNorm over ranks
#
# To one layer it matters how a batch is *shared*. **BatchNorm** takes each feature's mean and variance over the rows of its
# batch, and a rank sees only its own rows. With many images a rank, that hardly matters; Goyal and others left it so, with 32.
# With two images a rank, as when pictures are large, it does. How much?

# %%
lab.predict("off", "4 ranks with 8 rows each: how far is y from one device's y, in % of that one's length?", "%")

# %%
# Helper: rows for 4 ranks, and the batch norm of one device by autograd
def norm_task(rows, features=64):
    random = torch.Generator().manual_seed(rows)
    x, grad = torch.randn(2, 4 * rows, features, generator=random, dtype=torch.float64)
    weight, bias = torch.randn(2, features, generator=random, dtype=torch.float64)
    return x, weight, bias, grad, 1e-5

def plain_norm(x, weight, bias, grad, eps):
    """y, and the gradients of x, weight and bias."""
    x, weight, bias = (t.clone().requires_grad_() for t in (x, weight, bias))
    y = F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)
    y.backward(grad)
    return y.detach(), x.grad, weight.grad, bias.grad

# %%
# Helper: a norm on four ranks, and how far it is from one device's
def on_each_rank(fabric, norm, all_rows):
    """For each number of rows: what this rank gets from its own rows."""
    found = []
    for rows in all_rows:
        x, weight, bias, grad, eps = norm_task(rows)
        mine = slice(fabric.rank * rows, (fabric.rank + 1) * rows)
        found.append(norm(fabric, x[mine], weight, bias, grad[mine], eps))
    return found

def unsynced(fabric, *given):
    return plain_norm(*given)

def far_off(run, which):
    """For each number of rows: how far y (0) or the gradient of x (1) of all ranks is from one device's, relative to it."""
    if run.state != "done":
        return [(rows, None) for rows in norm_rows]
    found = []
    for k, rows in enumerate(norm_rows):
        whole, got = plain_norm(*norm_task(rows))[which], torch.cat([rank[k][which] for rank in run.results])
        found.append((rows, float((got - whole).norm() / whole.norm())))
    return found

# %%
apart = launch(on_each_rank, 4, args=(unsynced, norm_rows), device="cpu")
lab.measure("off", 100 * dict(far_off(apart, 0))[8])
for rows, off in far_off(apart, 0):
    print(f"{rows:4} rows a rank: y is {off:.0%} off, the gradient of x {dict(far_off(apart, 1))[rows]:.0%}")

# %% [markdown]
# So let the ranks exchange sums inside the layer. Forwards, they need the mean $\mu$ and variance $\sigma^2$ over all N rows of
# all ranks; then $y=w\hat x+b$ with $\hat x=(x-\mu)/\sqrt{\sigma^2+\epsilon}$, weight $w$ and bias $b$. Backwards, each row's
# gradient depends on all rows through mean and variance; with $g$ the gradient of y:
#
# $$\frac{\partial L}{\partial x}=\frac{w}{\sqrt{\sigma^2+\epsilon}}\left(g-\frac1N\sum g-\frac{\hat x}{N}\sum g\,\hat x\right)$$
#
# Both sums run over the rows of all ranks.

# %% [markdown]
# Mind the variance. It is $\mathrm{E}[x^2]-\mathrm{E}[x]^2$, and sums of $x$ and $x^2$ travel in one message. But take a
# feature of mean 10,000 and variance 1. Then $x^2$ is about $10^8$, and float32 holds numbers of 24 binary digits.

# %%
lab.predict("cancel", "float32, near 10⁸ (between 2²⁶ and 2²⁷): how far is a number from the next one?", "")

# %%
x = 10_000 + torch.randn(4096, generator=torch.Generator().manual_seed(1))
of_sums = (x * x).mean() - x.mean() ** 2
square = torch.tensor(1e8)
lab.measure("cancel", torch.nextafter(square, 2 * square) - square)
print(f"mean(x²) − mean(x)²: {float(of_sums):.3g}; mean((x − mean)²): {float(((x - x.mean()) ** 2).mean()):.3g}")

# %% [markdown]
# Two large numbers cancel, and what is left is their rounding. Each rank's *own* mean and sum of squares about it are safe,
# and from these the whole can be put together (Chan, Golub and LeVeque, 1983). Rank r has $n_r$ rows, maybe more or fewer than
# another, with mean $\mu_r$; let $M_r$ be the sum of $(x-\mu_r)^2$ over them:
#
# $$\mu=\frac1N\sum_r n_r\mu_r\qquad N\sigma^2=\sum_r M_r+\sum_r n_r(\mu_r-\mu)^2$$
#
# `all_reduce(fabric, t)` leaves the sum of all ranks' t in t, and returns it.
#
# <details><summary>Hint 1</summary>All ranks need all ranks' numbers. An all-reduce can bring them: a table of zeros with a row
# for each rank, in which each fills its own.</details>
# <details><summary>Hint 2</summary>The sums of g and of g·x̂ over this rank's own rows are the gradients of bias and weight.
# Return them as they are, and all-reduce a copy: DDP averages the gradients of weights later.</details>

# %% tags=["exercise:synced_norm"]
# Exercise 13.4: batch norm over the rows of all ranks
def synced_norm(fabric, x, weight, bias, grad, eps):
    """Batch norm of x [rows, features] over the rows of all ranks; grad is the loss's gradient of y.

    Ranks may differ in their number of rows; each has at least one. Returns y and the gradients of x, weight, bias, in x's
    dtype; for weight and bias, this rank's own sums. At most two all-reduces, one forwards and one backwards, with no more
    bytes in all than 4 (n + 1) numbers of x's dtype for each feature, on n ranks. What is handed in stays as it is.
    """
    ### BEGIN SOLUTION
    features = x.shape[1]
    table = torch.zeros(fabric.world_size, 1 + 2 * features, dtype=x.dtype)
    mean = x.mean(0)
    table[fabric.rank] = torch.cat([torch.tensor([len(x)]), mean, ((x - mean) ** 2).sum(0)])
    counts, means, squares = all_reduce(fabric, table).split([1, features, features], dim=1)
    rows = counts.sum()
    mean = (counts * means).sum(0) / rows
    variance = (squares + counts * (means - mean) ** 2).sum(0) / rows

    scale = (variance + eps).rsqrt()
    normed = (x - mean) * scale
    grad_bias, grad_weight = grad.sum(0), (grad * normed).sum(0)
    sums = all_reduce(fabric, torch.stack([grad_bias, grad_weight]))
    grad_x = weight * scale * (grad - sums[0] / rows - normed * sums[1] / rows)
    return weight * normed + bias, grad_x, grad_weight, grad_bias
    ### END SOLUTION

# %% tags=["check:synced_norm"] points=2
check.synced_norm(synced_norm)

# %%
synced = launch(on_each_rank, 4, args=(synced_norm, norm_rows), device="cpu")
figures.curves(
    [figures.Curve("each rank its own", far_off(apart, 1)), figures.Curve("your norm over all ranks", far_off(synced, 1))],
    "How far is the gradient of x from one device's?", x="rows a rank", y="part of its length", log=True,
)

# %% [markdown]
# ## PyTorch's SyncBatchNorm (optional)
#
# PyTorch has this layer: `SyncBatchNorm.convert_sync_batchnorm(model)` puts it in place of every BatchNorm, before DDP wraps
# the model. Its arithmetic is written for GPUs, and it refuses CPUs. So five of its kernels are replaced here by a line or two
# each; what it sends, and when, is PyTorch's own.

# %%
lab.predict("sent", "64 features, float64. How many bytes does each rank put into PyTorch's collective in forward?", "bytes")

# %%
def by_torch(fabric, *given):
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return torch_synced_norm(*given)

theirs = launch(on_each_rank, 4, args=(by_torch, norm_rows), device="cpu")
ops = [c for c in theirs.trace.collectives if c.rank == 0][:2]
lab.measure("sent", ops[0].size_bytes)
for way, c in zip(("forwards", "backwards"), ops):
    print(f"PyTorch's, {way}: {c.op}, {c.size_bytes} bytes of each rank")
if synced.state == "done":
    off = max(float((a - b).abs().max()) for mine, its in zip(synced[0], theirs[0]) for a, b in zip(mine, its))
    print(f"yours and PyTorch's differ by {off:.0e} at most, in y and in all gradients")

# %% [markdown]
# It gathers each rank's mean, its $1/\sqrt{\sigma^2+\epsilon}$ and its number of rows, and puts them together as you do. Two
# collectives for every such layer, in the middle of forward and of backward, where nothing can hide them: with fifty layers, a
# hundred a step. That is why one synchronizes only where a rank's share is small (MegDet, 2017: 256 images on 128 GPUs), or
# uses a norm that needs no batch.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Goyal and others, *Accurate, large minibatch SGD* ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677),
# 2017): section 2, the rule, warm-up and BatchNorm; section 3, pitfalls. McCandlish, Kaplan, Amodei and others, *An empirical
# model of large-batch training* ([arXiv:1812.06162](https://arxiv.org/abs/1812.06162), 2018): section 2 and appendix A.1.
# Shallue and others, *Measuring the effects of data parallelism on neural network training*
# ([JMLR 20, 2019](http://jmlr.org/papers/v20/18-789.html)). Smith and others, *Don't decay the learning rate, increase the batch
# size* ([arXiv:1711.00489](https://arxiv.org/abs/1711.00489), 2018). Malladi and others, *On the SDEs and scaling rules for
# adaptive gradient algorithms* ([arXiv:2205.10287](https://arxiv.org/abs/2205.10287), 2022). Peng and others, *MegDet*
# ([arXiv:1711.07240](https://arxiv.org/abs/1711.07240), 2017).
