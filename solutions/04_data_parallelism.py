# %% [markdown]
# # Lab 04. Data parallelism: replicas and averaged gradients
#
# **After this lab you are able to** train one model on many ranks and end with the weights that one process would have
# found, to name mistakes by the trace that they leave, to weigh unequal shares by what they hold, and to say from two
# numbers of a model and a batch whether copies or parts of it move less.
#
# **Minutes:** 130 (two sittings: 60 up to “The training”, then 70) · **Points:** 6 · **Prerequisites:** Lab 00 (`send`, `isend`,
# `recv`), PyTorch on one device. Lab 03 helps in the last part.

# %% [markdown]
# ![Do 4 replicas take the path of one process? Yes, to the last bit.](../labs/covers/04.png)

# %%
# Set-up: the tools of this lab
import codecs
import io
from contextlib import redirect_stdout

from worldsize.notebook import *

import torch
from torch import nn

from worldsize.fabric.collectives import all_reduce
from worldsize.formulas import parallelism
from worldsize.pytorch.models import flat, mlp, small_cnn, tensors

# %% tags=["parameters"]
ranks = 4
count = 197
batch_size = 64
epochs = 6
learning_rate = 0.05
images_count = 1277
sweep = [6, 96, 1536]

# %%
lab, check = open_lab("04")

# %% [markdown]
# ## One process
#
# We begin with the smallest model there is: a line, with a slope and an intercept. Its best values are known without any
# training: they are the line of least squares. All numbers are float64. How large a difference can rounding alone make? One
# operation on numbers near 1 is off by about 10⁻¹⁶; training does many, one after another. So this lab calls a difference
# below `rounding` rounding, and one above it a mistake.

# %%
torch.manual_seed(4)
x = torch.randn(count, dtype=torch.float64)
y = 3 * x - 2 + 3 * torch.randn(count, dtype=torch.float64)

def closed_form(x, y):
    """The line of least squares: [slope, intercept]."""
    table = torch.stack([x, torch.ones_like(x)], dim=1)
    return torch.linalg.lstsq(table, y.unsqueeze(1)).solution.flatten()

rounding = 1e-12
print("slope {:.3f}, intercept {:.3f}".format(*closed_form(x, y)))
epsilon = torch.finfo(torch.float64).eps
print(f"float64 has steps of {epsilon:.1e} above 1; rounding: {rounding:g}")

# %% [markdown]
# Gradient descent needs the gradient of the loss, here the mean squared error. `weights` is a list of two tensors,
# because larger models have a list of many. The mean over no examples at all is 0/0, which is NaN; remember that.

# %%
# Set-up
def gradients(weights, x, y):
    """The gradients of the mean squared error over the examples x, y: [slope, intercept]."""
    slope, intercept = weights
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    error = slope * x + intercept - y
    return [2 * (error * x).mean(0, keepdim=True), 2 * error.mean(0, keepdim=True)]

# %%
# Helper: gradient descent on all examples
def descend(x, y, steps=60):
    """Gradient descent from zero, all examples at every step. The weights after each: [steps + 1, 2]."""
    weights = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
    history = [flat(weights)]
    for _ in range(steps):
        for weight, slope in zip(weights, gradients(weights, x, y)):
            weight -= learning_rate * slope
        history.append(flat(weights))
    return torch.stack(history)

# %% [markdown]
# ## Four processes that do not talk
#
# Now deal the examples out to several ranks, like cards. Each holds a **replica**, a copy of the model, and trains it
# on its own examples. Nobody sends anything.

# %%
lab.predict(
    "alone", f"{ranks} ranks learn the line, each from its own part. What is the largest slope minus the smallest?", ""
)

# %%
def alone(fabric, x, y):
    return descend(x[fabric.rank :: fabric.world_size], y[fabric.rank :: fabric.world_size])

run = launch(alone, ranks, args=(x, y))
slopes = [float(history[-1, 0]) for history in run.results]
lab.measure("alone", max(slopes) - min(slopes))

# %%
def loss_of_all(slope, intercept):
    return ((slope * x + intercept - y) ** 2).mean()

figures.paths(
    {f"rank {r} alone": history.tolist() for r, history in enumerate(run.results)},
    {"closed form": closed_form(x, y).tolist()},
    loss_of_all, f"Where do {ranks} ranks end that never talk?", x="slope", y="intercept",
)

# %% [markdown]
# To train *one* model the ranks must agree at every step. The key: the gradient is a **mean over examples**. If all shares
# are equally large, the mean of all examples is the mean of the shares' means.

# %%
part = count // ranks * ranks  # this many divide evenly
start = [torch.zeros(1, dtype=torch.float64)] * 2
shares = [flat(gradients(start, x[r:part:ranks], y[r:part:ranks])) for r in range(ranks)]
for r, share in enumerate(shares):
    print(f"rank {r}: {share.numpy().round(3)}")
print(f"   mean: {torch.stack(shares).mean(0).numpy()}")
print(f"  whole: {flat(gradients(start, x[:part], y[:part])).numpy()}")

# %% [markdown]
# That is **data parallelism**: the same weights everywhere, a share of the batch for each rank, one average, one step. You
# write its four parts: the shares, the same start, the average, the training.

# %% [markdown]
# ## The shares
#
# One **epoch** passes once over all examples, in a fresh random order. The order is cut into batches, and every batch
# into shares. `batch_size` counts the examples of *all ranks together*: the training must not depend on how many ranks
# there are. All ranks must draw the same order; each works it out for itself, from a seed. The last batch is what is
# left: it may be smaller, even smaller than the number of ranks.

# %% [markdown]
# <details><summary>Hint 1</summary>An order that depends on the seed alone:
# <code>torch.randperm(count, generator=…)</code> with a fresh <code>torch.Generator()</code>, whose
# <code>manual_seed</code> returns it. <code>torch.manual_seed</code> would reset the generator of the whole process, and
# with it every rank's dropout.</details>
# <details><summary>Hint 2</summary>Either every n-th example of a batch, beginning with the rank's own number, or one
# block after another. Both are fine. With every n-th the rest takes care of itself; blocks of equal length would leave the
# last rank too few.</details>

# %% tags=["exercise:shards"]
# Exercise 4.1: shares of every batch
def shards(count, batch_size, seed, rank, world_size):
    """For each step of an epoch, the list of the examples (0 to count - 1) that this rank
    takes; empty if it has none.

    In step s all ranks together take batch s of the order that the seed shuffles; shares differ
    by one at most. The process's generators stay as they are.
    """
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator).tolist()
    batches = [order[start : start + batch_size] for start in range(0, count, batch_size)]
    return [batch[rank::world_size] for batch in batches]
    ### END SOLUTION

# %% tags=["check:shards"] points=1
check.shards(shards)

# %% [markdown]
# ## The same start
#
# Replicas must begin alike. A seed is no guarantee: another version, another device, one more random number drawn before,
# and it yields something else. So rank 0's weights go to all others: a **broadcast**. How the messages travel is up to
# you: straight, down a line, or along a tree as in Lab 02.
#
# *In place* means: into the memory of the tensors in the list. The model holds the same memory, and does not see a new
# tensor that you put into the list.

# %%
model = small_cnn(seed=0)
kilobytes = sum(p.nbytes for p in model.parameters()) / 1e3
asks = "How much do all ranks together send at the start?"
lab.predict("broadcast", f"A model of {kilobytes:.1f} kB, {ranks} ranks. {asks}", "kB")

# %% [markdown]
# <details><summary>Hint 1</summary><code>fabric.recv(weight, frm=…)</code> writes into the tensor itself.
# <code>weight = …</code>, <code>weights[k] = …</code> and <code>weight.data = …</code> do not.</details>
# <details><summary>Hint 2</summary>Rank 0 sends, all others receive. If rank 0 sends to each in turn, nobody has to pass
# anything on.</details>

# %% tags=["exercise:same_start"]
# Exercise 4.2: the same start
def same_start(fabric, weights):
    """Makes every tensor of the list `weights` equal to rank 0's, on all ranks, in place.

    Every rank but rank 0 receives each tensor once. Any shapes and dtypes, alike on all ranks.
    """
    ### BEGIN SOLUTION
    for weight in weights:
        if fabric.rank != 0:
            fabric.recv(weight, frm=0)
            continue
        handles = [fabric.isend(weight, to=rank) for rank in range(1, fabric.world_size)]
        for handle in handles:
            handle.wait()
    ### END SOLUTION

# %% tags=["check:same_start"] points=1
check.same_start(same_start)

# %%
def met(fabric):
    torch.manual_seed(fabric.rank)
    weights = list(small_cnn().state_dict().values())
    before = float(flat(weights).norm())
    same_start(fabric, weights)
    return before, float(flat(weights).norm())

run = launch(met, ranks, link=Link("1 MB/s", "1 ms"))
lab.measure("broadcast", run.trace.total_bytes() / 1e3 if run.state == "done" else None)
for rank, (before, after) in enumerate(run.results):
    print(f"rank {rank}: length of the weights {before:.4f} before, {after:.4f} after")
figures.messages(run)

# %% [markdown]
# ## The average
#
# Adding up over ranks is an **all-reduce**. `all_reduce(fabric, t)` is given: it leaves the sum of all ranks' `t` in `t`,
# on every rank, and each rank sends $\frac{2(n-1)}{n}$ of it (Lab 06 looks inside). The question here is what to *do* with
# the sum, because shares may be unequal. Take five examples on four ranks: the shares are 2, 1, 1 and 1.

# %%
lab.predict(
    "louder",
    "Shares of 2, 1, 1, 1. We take the mean of the four ranks' means. How many times as much does an example "
    "on rank 1 count as one on rank 0?",
    "times",
)

# %% [markdown]
# The right answer weighs every *example* the same. Each rank knows all counts, so it can work out everyone's share. One
# trap: a rank whose share is empty. It must take part in the all-reduce, or the others wait for ever. But its gradient is a
# mean over nothing, NaN, and even zero times NaN is NaN.
#
# <details><summary>Hint</summary>Multiply by the rank's count over the sum of all counts, and then add up. In place:
# the methods that end in an underscore, such as <code>mul_</code> and <code>zero_</code>.</details>

# %% tags=["exercise:average_gradients"]
# Exercise 4.3: the average of gradients
def average_gradients(fabric, gradients, counts):
    """Makes each tensor of the list the mean over the examples of all ranks, on every rank, in
    place, each by one all-reduce.

    Before, each is the mean over the rank's own counts[fabric.rank] examples; NaN where it has
    none. A NaN from a rank that has examples stays in the mean: it shows a fault. counts stays
    as it is.
    """
    ### BEGIN SOLUTION
    mine = counts[fabric.rank]
    for gradient in gradients:
        if mine:
            gradient.mul_(mine / sum(counts))
        else:
            gradient.zero_()
        all_reduce(fabric, gradient)
    ### END SOLUTION

# %% tags=["check:average_gradients"] points=1.5
check.average_gradients(average_gradients)

# %% [markdown]
# To see how much each example counts, we mark them all: an example's gradient is 1 in a place of its own, and 0 elsewhere.
# The average then *lists* how much each one counts.

# %%
# Helper: the mean of means, and gradients that mark the examples
def mean_of_means(fabric, gradients, counts):
    for gradient in gradients:
        all_reduce(fabric, gradient).div_(fabric.world_size)

def marks(fabric, average):
    own = [[0, 1], [2], [3], [4]][fabric.rank]
    gradient = torch.zeros(5)
    gradient[own] = 1 / len(own)
    average(fabric, [gradient], [2, 1, 1, 1])
    return gradient

# %%
for name, average in (("mean of means", mean_of_means), ("yours", average_gradients)):
    run = launch(marks, 4, args=(average,))
    print(f"{name}: {run[0].numpy().round(3) if run.state == 'done' else 'not yet'}")
    if average is mean_of_means:
        lab.measure("louder", run[0][2] / run[0][0])

# %% [markdown]
# ## What is an example?
#
# A language model learns from **tokens**, pieces of text; here they are letters. Its loss is a mean over tokens, and
# sequences differ in length. Here are sixteen lines, four for each rank, sorted by length, as loaders do to save padding. Is
# the mean of the ranks' means right?

# %%
# Helper: the tokens of some lines, and the gradient of a model that guesses each letter from the one before
def tokens_in(part):
    return sum(len(line) - 1 for line in part)  # the first letter of a line is given

def text_gradient(part, reduction="mean"):
    """The gradient of the loss over the lines of `part`, by a table of 128 × 128 scores that begins at zero."""
    table = torch.zeros(128, 128, dtype=torch.float64, requires_grad=True)
    letters = [torch.tensor([ord(letter) for letter in line]) for line in part]
    before, after = torch.cat([t[:-1] for t in letters]), torch.cat([t[1:] for t in letters])
    nn.functional.cross_entropy(table[before], after, reduction=reduction).backward()
    return table.grad

# %%
with redirect_stdout(io.StringIO()):  # the module prints its text when it is imported
    import this
lines = sorted(codecs.decode(this.s, "rot13").splitlines()[3:19], key=len)
blocks = [lines[first : first + 4] for first in range(0, len(lines), 4)]
print("tokens of ranks 0, 1, 2, 3:", [tokens_in(block) for block in blocks])
asks = "How far is the mean of the ranks' means from one process's gradient"
lab.predict("tokens", f"{asks}, in % of that one's length?", "%")

# %%
def by_blocks(fabric, average, counts):
    gradient = text_gradient(blocks[fabric.rank])
    average(fabric, [gradient], counts)
    return gradient

whole = text_gradient(lines)
tried = {"lines": list(map(len, blocks)), "tokens": list(map(tokens_in, blocks))}
off = {}
for name, counts in tried.items():
    run = launch(by_blocks, 4, args=(average_gradients, counts))
    if run.state == "done":
        off[name] = float((run[0] - whole).norm() / whole.norm())
        print(f"weighed by {name}: {100 * off[name]:.2g} % off")
lab.measure("tokens", 100 * off["lines"] if off else None)

# %% [markdown]
# `average_gradients` was the same both times; the *counts* were not. A mean over tokens is weighed by tokens: add up the
# losses of all ranks, and divide once by the tokens of all ranks.
#
# $$\text{loss}=\frac{\sum_r \sum_t \ell_{r,t}}{\sum_r T_r}\qquad\text{and not}\qquad
# \frac{1}{n}\sum_r \frac{\sum_t \ell_{r,t}}{T_r}$$
#
# One device has the same trouble when it **accumulates** gradients: it adds up those of several micro-batches, and then takes
# one step.

# %%
# loss / 4, then backward, four times
means = sum(text_gradient(block) for block in blocks) / len(blocks)
sums = sum(text_gradient(block, "sum") for block in blocks) / tokens_in(lines)
for name, gradient in (("mean of four means", means), ("sum over all tokens", sums)):
    away = 100 * float((gradient - whole).norm() / whole.norm())
    print(f"one device, four micro-batches, {name}: {away:.2g} % off")

# %% [markdown]
# The first line is what Hugging Face's Trainer did until October 2024
# ([their report](https://huggingface.co/blog/gradient_accumulation)). The fix: `reduction="sum"`, divided by the tokens of
# all micro-batches and, with several ranks, of all ranks.

# %% [markdown]
# ## The training
#
# Now put it together. At each step a rank takes its share, calls `gradients`, averages the gradients with the other ranks',
# and takes the step. Then it notes the weights: `flat(weights)` copies the list into one vector.
#
# The start and the average are parameters: later we put in wrong ones. The check puts in its own, and counts what is
# sent. In one run it gives each rank its own y, to see who took which example.
#
# <details><summary>Hint</summary>The shares of all ranks, for the counts:
# <code>[shards(…, r, fabric.world_size) for r in range(fabric.world_size)]</code>. Which seed gives every epoch an order
# of its own, the same on all ranks?</details>

# %% tags=["exercise:train_replicas"]
# Exercise 4.4: replicas that train as one
def train_replicas(
    fabric, weights, x, y, batch_size, epochs, learning_rate,
    begin=same_start, average=average_gradients,
):
    """Trains the line in `weights`, in place, on x, y (all examples, on every rank), each step
    on the ranks' shares of a batch.

    Calls begin once and average at every step, and sends nothing else; each epoch reshuffles.
    Returns the weights after each step, float64 [steps, 2]: the same for one rank and for many.
    x and y stay as they are.
    """
    ### BEGIN SOLUTION
    n, history = fabric.world_size, []
    begin(fabric, weights)
    for epoch in range(epochs):
        everyone = [shards(len(x), batch_size, epoch, rank, n) for rank in range(n)]
        for step, mine in enumerate(everyone[fabric.rank]):
            slopes = gradients(weights, x[mine], y[mine])
            average(fabric, slopes, [len(steps[step]) for steps in everyone])
            for weight, slope in zip(weights, slopes):
                weight -= learning_rate * slope
            history.append(flat(weights))
    return torch.stack(history)
    ### END SOLUTION

# %% tags=["check:train_replicas"] points=1.5
check.train_replicas(train_replicas)

# %% [markdown]
# Now one process learns the line, and then four replicas, over the same batches. Rank r begins with slope r and
# intercept r. Where will the path of the replicas run?

# %%
def lesson(fabric, x, y, begin=same_start, average=average_gradients):
    # rank 0 begins at zero
    weights = [torch.full((1,), float(fabric.rank), dtype=torch.float64) for _ in range(2)]
    settings = batch_size, epochs, learning_rate, begin, average
    return train_replicas(fabric, weights, x, y, *settings)

one = launch(lesson, 1, args=(x, y))
four = launch(lesson, ranks, args=(x, y))

# %% tags=["cover"]
def path(run):
    return run[0].tolist() if run.state == "done" else None

apart = None
if one.state == four.state == "done":
    apart = (four[0] - one[0]).abs().amax(dim=1).tolist()
figures.paths(
    {"one process": path(one), f"{ranks} replicas": path(four)},
    {"closed form": closed_form(x, y).tolist()},
    loss_of_all,
    figures.answered(
        f"Do {ranks} replicas take the path of one process?", figures.same(apart, rounding)
    ),
    x="slope", y="intercept",
)

# %% [markdown]
# "Looks the same" is no test. So after every step we take the largest difference between any weight on any rank and the same
# weight in one process. And we put in three mistakes that people really make.
#
# - *Added up*: nobody divides.
# - *Mean of means*: each rank counts the same, whatever its share.
# - *Any start*: each rank keeps its own random weights.

# %%
lab.predict("sum", f"Gradients added up on {ranks} ranks: how many times as long is the first step?", "times")
lab.predict("first_wrong", "Mean of means: after how many right steps does the first wrong one come?", "steps")

# %%
# Helper: two of the mistakes, how far ranks are from one process, and how far from each other
def added_up(fabric, gradients, counts):
    for gradient in gradients:
        all_reduce(fabric, gradient)

def any_start(fabric, weights):
    pass

def gap(run, reference):
    """After each step, the largest difference between a weight of any rank and the reference's; None if not yet."""
    if "not yet" in (run.state, reference.state):
        return None
    apart = torch.stack([(history - reference[0]).abs().amax(dim=1) for history in run.results])
    return apart.amax(dim=0).tolist()

def among_ranks(run):
    """After each step, the largest weight of any rank minus the smallest; None if not yet."""
    if run.state == "not yet":
        return None
    histories = torch.stack(list(run.results))
    return (histories.amax(dim=0) - histories.amin(dim=0)).amax(dim=1).tolist()

# %%
mistakes = {
    "any start": (any_start, average_gradients),
    "added up": (same_start, added_up),
    "mean of means": (same_start, mean_of_means),
}
runs = {name: launch(lesson, ranks, args=(x, y, *parts)) for name, parts in mistakes.items()}
gaps = {name: gap(run, one) for name, run in runs.items()} | {"right": gap(four, one)}

answer = None
if all(gaps.values()):
    far = [max(gaps[name]) for name in mistakes]
    with_mistake = f"{min(far):.2g} to {max(far):.2g}"
    answer = f"right {max(gaps['right']):.2g} at most; with a mistake {with_mistake}"
figures.histories(
    gaps,
    figures.answered(
        f"With three mistakes and without: how far are {ranks} replicas from one process?",
        answer,
    ),
    y="largest difference", log=True, rounding=rounding,
)

# %%
if four.state == "done":
    # rank 0 begins at zero: the weights are the step
    lab.measure("sum", runs["added up"][0][0, 0] / four[0][0, 0])
wrong = gaps["mean of means"]
right_at_first = wrong and sum(max(wrong[:k]) < rounding for k in range(1, len(wrong) + 1))
lab.measure("first_wrong", right_at_first)
figures.predicted(lab, ["louder", "sum", "first_wrong"])

# %% [markdown]
# With *any start* the distance from one process falls. Do the ranks come together, then? Here is how far they are from *each
# other*, for each mistake that drives them apart at all.

# %%
spreads = {name: among_ranks(run) for name, run in runs.items()}
parted = {
    name: spread for name, spread in spreads.items() if spread is None or max(spread) > rounding
}
for name, spread in spreads.items():
    if spread:
        print(f"{name:>13}: {spread[0]:.4g} apart after the first step, {spread[-1]:.4g}",
              f"after the last; in between it changes by {max(spread) - min(spread):.1g}")

answer, spread = None, spreads["any start"]
if spread:
    together = "yes" if spread[-1] < rounding else "no"
    first, last = spread[0], spread[-1]
    answer = f"{together}: any start is {first:.3g} apart at first, {last:.3g} at last"
figures.histories(
    {f"{name}, {what}": values for name, spread in parted.items()
     for what, values in {"between ranks": spread, "from one process": gaps[name]}.items()},
    figures.answered(f"Do {ranks} replicas that begin apart come together?", answer),
    y="largest difference", growth=True,
)

# %% [markdown]
# Each mistake leaves its own trace. With *any start* all ranks take the same steps, from different places: look at how far
# they are from each other. *Added up* is a learning rate n times as large, from the first step on. *Mean of means* is the
# nasty one: how many steps were right before the first wrong one, at the smaller batch that ends the epoch? Nothing looks
# broken.
#
# **In one sentence:** why does *any start* never heal, though all ranks see the same gradients?
#
# <details><summary>Compare</summary>The averaged gradient is added to every replica alike. What is added to all of them
# does not change the differences between them.</details>

# %% [markdown]
# PyTorch's `DistributedDataParallel` divides the sum by the number of *ranks*: a mean of means, right only for equal
# shares. That is why PyTorch's usual sampler repeats some examples until all ranks have the same number (Lab 10).

# %% [markdown]
# ## A real network
#
# Now the same with a small convolutional network on Fashion-MNIST, in float32, with momentum: the step is a running sum of
# gradients. That sum needs no messages of its own: equal gradients make equal sums. `same_start` gets the whole
# `state_dict`.

# %%
# Helper: the training of a network, with more layers in `extra`
def train_network(fabric, extra=()):
    """Weights after each step [steps, parameters]; by step, a running mean where there is one."""
    torch.set_num_threads(1)  # alone or not, a rank computes in the same way
    torch.manual_seed(fabric.rank)  # other weights, and other random numbers, on every rank
    first, *others = small_cnn()
    model = nn.Sequential(first, *extra, *others)
    same_start(fabric, list(model.state_dict().values()))
    parameters, velocity = list(model.parameters()), 0
    everyone = [shards(len(images), batch_size, 0, rank, fabric.world_size) for rank in range(fabric.world_size)]
    history, means = [], []
    for step, mine in enumerate(everyone[fabric.rank]):
        loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
        gradient = flat(torch.autograd.grad(loss, parameters))  # one tensor: fewer, larger messages
        average_gradients(fabric, [gradient], [len(part[step]) for part in everyone])
        velocity = 0.9 * velocity + gradient
        history.append(flat(parameters) - 0.02 * velocity)
        nn.utils.vector_to_parameters(history[-1].clone(), parameters)
        means += [layer.running_mean[0].item() for layer in extra if isinstance(layer, nn.BatchNorm2d)]
    return torch.stack(history), means

# %%
# Helper: how far replicas are from one process, and from each other
def network_gap(run, reference):
    """Like `gap`, for runs that return more than the weights."""
    if "not yet" in (run.state, reference.state):
        return None
    return torch.stack([(w - reference[0][0]).abs().amax(1) for w, *_ in run.results]).amax(0).tolist()

def between(run):
    """The largest difference between a weight of any replica and rank 0's, after any step."""
    return max(float((w - run[0][0]).abs().max()) for w, *_ in run.results)

# %%
images, labels, *_ = tensors(data.load("fashion-mnist"), images_count, 1)
one_network = launch(train_network, 1)
four_networks = launch(train_network, ranks)
apart = network_gap(four_networks, one_network)
if apart:
    differ = f"from one process {apart[-1]:.1e}, between replicas {between(four_networks):g}"
    print(f"after {len(apart)} steps: {differ}")

# %% [markdown]
# Sums in another order round differently, so a difference from one process remains. Between the *replicas* there is none:
# each sum was made on one rank and then copied to all.

# %% [markdown]
# ## What must differ: random numbers (optional)
#
# Weights must be equal on all ranks. Random numbers for the *data* must not: dropout is there to show the model many
# variants. Here each of 4 ranks draws a dropout mask at each of 50 steps.

# %%
lab.predict("masks", "4 ranks, 50 steps, the same seed on every rank: how many different masks are drawn in all?", "masks")

# %%
def masks(fabric, same):
    torch.manual_seed(0 if same else fabric.rank)
    return [tuple(nn.functional.dropout(torch.ones(64)).tolist()) for _ in range(50)]

drawn = {
    same: len({mask for rank in launch(masks, 4, args=(same,)).results for mask in rank})
    for same in (True, False)
}
lab.measure("masks", drawn[True])
print(f"the same seed everywhere: {drawn[True]} different masks;", end=" ")
print(f"a seed for each rank: {drawn[False]}")
dropped = launch(train_network, ranks, args=([nn.Dropout(0.2)],))
if dropped.state == "done":
    print("trained with dropout, a seed for each rank:", end=" ")
    print(f"largest difference between replicas {between(dropped):g}")

# %% [markdown]
# So the order of things is: make the model, broadcast it, *then* give each rank a seed of its own. Whatever a rank does in
# its forward pass, only the averaged gradient reaches the weights.

# %% [markdown]
# ## BatchNorm's caveat (optional)
#
# One common layer breaks the rule that a replica equals one process. **BatchNorm** subtracts the mean of *the batch*
# and divides by its standard deviation. A replica sees only its share. Also, each rank keeps a *running mean* for later
# use, from what it alone has seen.

# %%
lab.predict("running", f"{ranks} ranks train with BatchNorm. How many different running means do they hold at the end?", "")

# %%
variants = {"BatchNorm": [nn.BatchNorm2d(8)], "GroupNorm": [nn.GroupNorm(2, 8)]}
pairs = {
    name: [launch(train_network, n, args=(extra,)) for n in (1, ranks)]
    for name, extra in variants.items()
}
single, many = pairs["BatchNorm"]
if many.state == "done":
    lab.measure("running", len({means[-1] for _, means in many.results}))
    print("running means at the end:", [round(means[-1], 5) for _, means in many.results])
    print("of one process:", round(single[0][1][-1], 5))
    print(f"largest difference between the replicas' weights: {between(many):g}")

# %%
gaps = {name: network_gap(many, single) for name, (single, many) in pairs.items()}
gaps["no such layer"] = apart
answer = None
if all(gaps.values()):
    answer = "; ".join(f"{name}: {figures.same(gaps[name], 1e-4)}" for name in variants)
figures.histories(
    gaps, figures.answered(f"With such a layer, are {ranks} replicas one process?", answer),
    y="largest difference of a weight", log=True, rounding=1e-4,
)

# %% [markdown]
# The weights of all replicas are still equal, but they are not what one big batch would give, and there is no single set of
# running statistics to save. `DistributedDataParallel` copies rank 0's before each forward pass; `SyncBatchNorm` sends sums
# instead, at the price of messages in the middle of the network. GroupNorm looks at one image at a time, so only rounding
# can part its replicas from one process; rounding grows as training goes on.

# %% [markdown]
# ## The other way: spread the model
#
# **Model parallelism** cuts the model and not the batch: each rank holds some layers, a **stage**. **Activations** travel
# forwards and their gradients backwards (Lab 03). Below are two models, each cut before every layer with weights: three
# stages, three ranks.

# %%
# Helper: a model cut into stages, and what passes between them
def cut(model):
    """A stage for each layer with weights, and the layers after it that have none."""
    stages = []
    for layer in model:
        if list(layer.parameters()):
            stages.append(nn.Sequential())
        stages[-1].append(layer)
    return stages

def boundaries(stages, x):
    """The shape of one example's activations at each boundary between two stages."""
    shapes = []
    for stage in stages[:-1]:
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    return shapes

# %%
wide = cut(mlp([784, 512, 512, 10], seed=0))
conv = cut(small_cnn(seed=0))
pixels, targets, *_ = tensors(data.load("fashion-mnist"), max(*sweep, 3_000), 1)
models = {"wide MLP": (wide, pixels.flatten(1)), "CNN": (conv, pixels)}
for name, (stages, x_all) in models.items():
    numbers = [sum(p.numel() for p in stage.parameters()) for stage in stages]
    print(name, numbers, "parameters;", boundaries(stages, x_all[:1]))

# %%
# Helper: one step of stages; `work` is declared time, the whole batch's on one rank
def split_step(fabric, stages, x, y, work):
    """Each rank has one stage and the whole batch."""
    rank, stage, last = fabric.rank, stages[fabric.rank], fabric.world_size - 1
    if rank > 0:
        x = torch.empty(len(x), *boundaries(stages, x[:1])[rank - 1])
        fabric.recv(x, frm=rank - 1)
        x.requires_grad_()
    fabric.compute(work / (last + 1) / 3)
    out = stage(x)
    if rank < last:
        fabric.send(out, to=rank + 1)
        gradient = torch.empty_like(out)
        fabric.recv(gradient, frm=rank + 1)
    fabric.compute(work / (last + 1) * 2 / 3)
    if rank < last:
        out.backward(gradient)
    else:
        nn.functional.cross_entropy(out, y).backward()
    if rank > 0:
        fabric.send(x.grad, to=rank - 1)
    return stage

# %%
# Helper: one step of replicas
def replica_step(fabric, stages, x, y, work):
    """Each rank has all stages and its share of the batch, which divides evenly here."""
    n, model = fabric.world_size, nn.Sequential(*stages)
    mine = slice(fabric.rank, None, n)
    fabric.compute(work / n)
    nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
    gradient = flat([p.grad for p in model.parameters()])
    nn.utils.vector_to_parameters(all_reduce(fabric, gradient).div_(n), [p.grad for p in model.parameters()])
    return model

# %%
# Helper: a step of either sort, the weights after it and the bytes that a rank holds in it, counted by autograd's hook
def spread(fabric, way, stages, x, y, work=0.0):
    """One step; the weights that this rank has then, and the bytes that it holds during the step."""
    weights = {p.data_ptr() for stage in stages for p in stage.parameters()}
    kept = {}

    def keep(t):
        if t.untyped_storage().data_ptr() not in weights:
            kept[t.untyped_storage().data_ptr()] = t.nbytes  # a tensor that is kept twice counts once
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        model = way(fabric, stages, x, y, work)
    parameters = list(model.parameters())
    with torch.no_grad():
        for p in parameters:
            p -= 0.1 * p.grad
            p.grad = None
    held = sum(p.nbytes for p in parameters)
    memory = {"parameters": held, "gradients": held, "kept for backward": sum(kept.values())}
    return flat(parameters), memory

def step(name, way, n=3, batch=96):
    stages, x_all = models[name]
    run = launch(spread, n, args=(way, stages, x_all[:batch].clone(), targets[:batch].clone()))
    return run, torch.cat([w for w, _ in run.results]) if way is split_step else run[0][0]

# %% [markdown]
# Is it the same training? One process, three replicas, and three stages whose weights we put together:

# %%
_, single = step("wide MLP", replica_step, n=1)
replicas, by_data = step("wide MLP", replica_step)
split, by_model = step("wide MLP", split_step)
print(f"replicas differ from one process by {(by_data - single).abs().max():.1e} at most")
print(f"  stages differ from one process by {(by_model - single).abs().max():.1e} at most")

# %% [markdown]
# So the choice is one of cost: bytes to move, memory to hold. Predict the bytes for the wide MLP from the numbers printed
# above, four bytes each. All replicas together send $2(n-1)$ times the gradients; stages send the activations of the whole
# batch over two boundaries, forwards and back.

# %%
lab.predict("replica_bytes", "Wide MLP, batch 96, 3 replicas: how many MB do all ranks send in a step?", "MB")
lab.predict("split_bytes", "Wide MLP, batch 96, 3 stages: how many MB do all ranks send in a step?", "MB")

# %%
lab.measure("replica_bytes", replicas.trace.total_bytes() / 1e6)
lab.measure("split_bytes", split.trace.total_bytes() / 1e6)
figures.predicted(lab, ["replica_bytes", "split_bytes"])

# %%
groups = {
    "wide MLP, replicas": replicas, "wide MLP, stages": split,
    "CNN, replicas": step("CNN", replica_step)[0], "CNN, stages": step("CNN", split_step)[0],
}
held = {name: [parts for _, parts in run.results] for name, run in groups.items()}
every = held["wide MLP, replicas"][0], *held["wide MLP, stages"]
replica, *stages = [sum(parts.values()) / 1e6 for parts in every]
figures.stacks(
    held,
    figures.answered(
        "How much does each rank hold in a step?",
        f"wide MLP: a replica {replica:.3g} MB,"
        f" a stage {min(stages):.3g} to {max(stages):.3g} MB",
    ),
)

# %% [markdown]
# Every replica holds the whole model, which must fit into one device. Stages divide the parameters, as unevenly as the
# layers differ in size.

# %% [markdown]
# ## For which batch, for which model?
#
# Replicas move **gradients**: as many bytes as the parameters have, once a step, whatever the batch. Stages move
# **activations**, in proportion to the batch. So each model has a batch at which the two are equal. With one stage on each
# rank it is the *parameters over the mean activations at a boundary*.

# %%
lab.predict("crossing_mlp", "Wide MLP: from which batch size on do replicas move less than stages?", "examples")

# %%
ways = {"replicas": replica_step, "stages": split_step}
measured = {}
for name in models:
    for word, way in ways.items():
        runs = {batch: step(name, way, batch=batch)[0] for batch in sweep}
        measured[name, word] = [(batch, run.trace.total_bytes()) for batch, run in runs.items()]
        print(name, word, measured[name, word])

# %%
# Helper: the formulas' curves beside the measured bytes
def sizes_of(name):
    """Bytes of the parameters, and of one example's activations at each boundary."""
    stages, x_all = models[name]
    shapes = boundaries(stages, x_all[:1])
    return sum(p.nbytes for s in stages for p in s.parameters()), [4 * torch.Size(shape).numel() for shape in shapes]

def curves_of(name):
    parameters, passing = sizes_of(name)
    replicas = [(batch, parallelism.bytes_data_parallel(3, parameters)) for batch in sweep]
    stages = [(batch, parallelism.bytes_model_parallel(batch, passing)) for batch in sweep]
    return [
        figures.Curve(f"{name}: replicas", measured[name, "replicas"], replicas),
        figures.Curve(f"{name}: stages", measured[name, "stages"], stages),
    ]

# %%
# Helper: where the measured lines meet
def crossing(name):
    """The batch at which the measured lines meet: stages grow in proportion to it, replicas not at all."""
    (_, flat_bytes), *_ = measured[name, "replicas"]
    (batch, grown_bytes), *_ = measured[name, "stages"]
    return flat_bytes / (grown_bytes / batch)

# %%
meet = {name: crossing(name) for name in models}
lab.measure("crossing_mlp", meet["wide MLP"])
figures.curves(
    curves_of("wide MLP") + curves_of("CNN"),
    figures.answered(
        "From which batch on do replicas move less?",
        f"wide MLP from about {meet['wide MLP']:,.0f} examples on,"
        f" CNN from about {meet['CNN']:,.0f}",
    ),
    x="examples in the batch", y="moved in a step (bytes)", log=True,
    beside=[(f"{name}: replicas", f"{name}: stages") for name in ("wide MLP", "CNN")],
)

# %%
for name in models:
    less = [min(ways, key=lambda word: dict(measured[name, word])[batch]) for batch in sweep]
    print(f"{name}, batches {sweep}: less is moved by {less}")

# %% [markdown]
# So no rule can say "copies" or "parts" from the model alone: **which is smaller depends on the batch**. The same holds
# where single layers are cut (tensor parallelism, Lab 12): there, too, activations travel, at *every* cut layer.
#
# **In one sentence:** a convolution's kernel is used at every pixel. Why does that favour copies, for the same batch?
#
# <details><summary>Compare</summary>Each place where a weight is used makes an activation but no new parameter. So a
# convolution has more to move forwards, and fewer gradients.</details>

# %% [markdown]
# ## When does averaging cost more than the step?
#
# Averaging takes as long for one example as for a thousand; work grows with their number. So over a slow link ranks with a
# small batch mostly talk. How many examples a rank (for a language model: tokens) make the two equal? Lab 01 asked that
# with measured compute. Here the work is declared, 0.3 s for 96 examples on one rank, and the link is shaped.

# %%
# Helper: a warmed-up step over slow links with declared work
def warmed(fabric, way, stages, x, y):
    nn.Sequential(*stages)(x[:3]).sum().backward()  # the first time takes longer
    for stage in stages:
        stage.zero_grad()
    all_reduce(fabric, torch.zeros(1))  # so that all begin together
    spread(fabric, way, stages, x, y, work_s * len(x) / 96)

def timed(name, word, batch=96):
    """The trace of one step, from its first declared work on."""
    stages, x_all = models[name]
    trace = launch(warmed, 3, args=(ways[word], stages, x_all[:batch].clone(), targets[:batch].clone()), link=slow).trace
    return trace.between(min(s.start_s for s in trace.spans if s.kind == "compute"), float("inf"))

def seconds(trace):
    ends = [e.end_s for e in (*trace.spans, *trace.transfers)]
    return max(ends) - min(s.start_s for s in trace.spans)

def by_formula(name, word, batch=96):
    parameters, passing = sizes_of(name)
    if word == "replicas":
        return parallelism.seconds_data_parallel(3, work_s, parameters, slow)
    return parallelism.seconds_model_parallel(batch, work_s, passing, slow)

# %%
slow = Link("5 MB/s", "100 us")
work_s = 0.3  # of 96 examples
megabytes = sizes_of("wide MLP")[0] / 1e6
print(f"{megabytes:.1f} MB of gradients, 3 ranks, {slow}; {work_s} s of work for 96 examples")
asks = "How many examples a rank make the work as long as the averaging?"
lab.predict("border", asks, "examples")

# %%
replicas_step = timed("wide MLP", "replicas")
talk_s, example_s = seconds(replicas_step) - work_s / 3, work_s / 96
border = talk_s / example_s
lab.measure("border", border)
print(f"averaging took {talk_s:.2f} s, an example's work {1000 * example_s:.2f} ms:", end=" ")
print(f"equal at {border:.0f} examples a rank")
figures.messages(replicas_step)

# %%
for each in (round(border / 4), round(border), round(2 * border)):
    step_s = seconds(timed("wide MLP", "replicas", batch=3 * each))
    part = each * example_s / step_s
    print(f"{each:4} examples a rank: a step {step_s:.2f} s, of it declared work {part:.0%}")
parameters, _ = sizes_of("wide MLP")
for link in (slow, Link("50 MB/s", "100 us")):
    averaging_s = parallelism.seconds_data_parallel(3, 0, parameters, link)
    print(f"by formula, over {link}: {averaging_s / example_s:.0f} a rank")

# %% [markdown]
# Where the work for an example grows with the weights, as in an MLP, the border hardly depends on the model's size: the
# gradients grow with it too. (Here the work is declared, the same for both models.) A slow link asks for large batches, or
# for averaging that hides behind the backward pass (Lab 11).

# %% [markdown]
# ## Which way is quicker?
#
# Fewer bytes do not yet make a quicker step. Replicas share the work: each takes its share of the batch, whole examples, and
# the largest share decides when they are done. Then comes one ring all-reduce of the gradients: $2(n-1)$ messages in a row,
# each an n-th of them. Stages work one after another, because each needs what the one before makes. (Lab 03 fills that gap
# with micro-batches; here there are none.)

# %% [markdown]
# And a way must fit into memory. Count parameters and as many bytes of gradients, and leave activations out: how much does a
# replica hold, how much a stage? Write the decision. Your function knows sizes and speeds, and launches nothing.
#
# <details><summary>Hint</summary>Two times in seconds, each made of work and messages. A boundary is passed twice in a step,
# by the activations of the whole batch and by their gradients. Put only what fits into a dict, and take the
# smallest.</details>

# %% tags=["exercise:quicker_way"]
# Exercise 4.5: replicas or stages
def quicker_way(
    batch, example_s, stage_bytes, boundary_bytes, alpha_s, bytes_per_s, memory_bytes,
):
    """Return "replicas" or "stages": of those that fit, the one whose step ends sooner; None if
    neither fits. In a tie, either.

    stage_bytes[r]: parameters of stage r, one stage a rank; boundary_bytes[k]: ONE example's
    activations after stage k. An example's work takes example_s on one rank, a message alpha_s
    plus its bytes over bytes_per_s. A rank has memory_bytes. The lists stay unchanged.
    """
    ### BEGIN SOLUTION
    n, model = len(stage_bytes), sum(stage_bytes)
    share = -(-batch // n)
    seconds = {}
    if 2 * model <= memory_bytes:
        averaging_s = 2 * (n - 1) * (alpha_s + model / (n * bytes_per_s))
        seconds["replicas"] = share * example_s + averaging_s
    if 2 * max(stage_bytes) <= memory_bytes:
        passing_s = sum(2 * (alpha_s + batch * size / bytes_per_s) for size in boundary_bytes)
        seconds["stages"] = batch * example_s + passing_s
    return min(seconds, key=seconds.get, default=None)
    ### END SOLUTION

# %% tags=["check:quicker_way"] points=1
check.quicker_way(quicker_way)

# %% [markdown]
# Now both models on real ranks: the same slow links, the same declared work, batch 96. Which way is faster?

# %%
asks = "Wide MLP, batch 96, slow links: how many times as long as a step of stages"
lab.predict("mlp_ratio", f"{asks} is one of replicas?", "times")

# %%
steps = {(name, word): timed(name, word) for name in models for word in ways}
took = {key: seconds(trace) for key, trace in steps.items()}
lab.measure("mlp_ratio", took["wide MLP", "replicas"] / took["wide MLP", "stages"])
figures.messages(steps["wide MLP", "stages"])

# %%
# Helper: your decision for a model, or "not yet"
def decided(name, batch=96, memory_bytes=10**9):
    stage_bytes = [sum(p.nbytes for p in stage.parameters()) for stage in models[name][0]]
    link = slow.latency_s, slow.bandwidth_bytes_per_s
    try:
        return quicker_way(batch, work_s / 96, stage_bytes, sizes_of(name)[1], *link, memory_bytes)
    except NotYet:
        return "not yet"

# %%
def quicker(name):
    """The quicker way for a model, and how many times as fast as the other it is."""
    sooner, later = sorted(ways, key=lambda word: took[name, word])
    return sooner, took[name, later] / took[name, sooner]

for name in models:
    print(f"{name}: measured, {quicker(name)[0]} are quicker; yours says {decided(name)}")
print(f"wide MLP, 2 MB a rank: yours says {decided('wide MLP', memory_bytes=2_000_000)}")

(mlp, mlp_lead), (cnn, cnn_lead) = [quicker(name) for name in models]
same = "yes" if mlp == cnn else "no"
figures.race(
    [
        figures.Timing(word, took[name, word], by_formula(name, word), group=name)
        for name, word in steps
    ],
    figures.answered(
        "Over slow links: is the same way the faster one for both models?",
        f"{same}: {mlp} with wide MLP ({mlp_lead:.2g} times),"
        f" {cnn} with CNN ({cnn_lead:.2g} times)",
    ),
)

# %% [markdown]
# **In one sentence:** the choice between replicas and stages may leave out the links' latency. Why?
#
# <details><summary>Compare</summary>A ring of n ranks has 2 (n − 1) messages one after the other, and n stages have n − 1
# boundaries, each passed twice: the same number. Without micro-batches both ways wait for the latency equally
# often.</details>

# %% [markdown]
# ## One weird trick (optional)
#
# In 2014 Alex Krizhevsky looked at his own network in this way, layer by layer. We do the same, on the `meta` device,
# which knows shapes and holds no numbers. For each layer with weights: its parameters, and the activations that 128 images
# make in it, before any pooling. Where do the two lines cross?

# %%
def alexnet():
    C, P, R, L = nn.Conv2d, nn.MaxPool2d, nn.ReLU, nn.Linear
    return nn.Sequential(
        C(3, 64, 11, 4, 2), R(), P(3, 2), C(64, 192, 5, padding=2), R(), P(3, 2),
        C(192, 384, 3, padding=1), R(), C(384, 256, 3, padding=1), R(),
        C(256, 256, 3, padding=1), R(), P(3, 2), nn.Flatten(),
        L(9216, 4096), R(), L(4096, 4096), R(), L(4096, 1000),
    )

with torch.device("meta"):
    layers, passing = alexnet(), torch.empty(1, 3, 224, 224)
    parameters, outputs = [], []
    for layer in layers:
        passing = layer(passing)
        if list(layer.parameters()):
            parameters.append(sum(p.numel() for p in layer.parameters()))
            outputs.append(passing.numel())  # before pooling makes it less

# %%
lab.predict("convolutions", "What part of AlexNet's parameters is in its five convolutions?", "%")

# %%
lab.measure("convolutions", 100 * sum(parameters[:5]) / sum(parameters))
linear = 100 * sum(parameters[5:]) / sum(parameters)
convolutions = 100 * sum(outputs[:5]) / sum(outputs)
of_128 = [128 * size for size in outputs]
figures.curves(
    [
        figures.Curve("parameters", list(enumerate(parameters, 1))),
        figures.Curve("activations of 128 images", list(enumerate(of_128, 1))),
    ],
    figures.answered(
        "AlexNet: which layers hold the parameters, and which make the activations?",
        f"linear layers: {linear:.0f} % of parameters;"
        f" convolutions: {convolutions:.0f} % of activations",
    ),
    x="layer", y="numbers", bulk=True,
)

# %%
for layer, (weights, made) in enumerate(zip(parameters, outputs), 1):
    equal = weights / made
    print(f"layer {layer}: from {equal:8,.1f} images on, more activations than parameters")

# %% [markdown]
# Hence his trick: data parallelism for the five convolutions, model parallelism for the three fully connected layers, in one
# network, at his batch of 128. The last numbers say for which batches that holds. Today's large models mix the two as well,
# and cut single layers too (Lab 12).

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Goyal and others, *Accurate, large minibatch SGD*
# ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677), 2017): averaging, and what goes wrong. Li and others, *PyTorch
# Distributed* (VLDB 2020). Krizhevsky, *One weird trick* ([arXiv:1404.5997](https://arxiv.org/abs/1404.5997), 2014).
