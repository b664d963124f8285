# %% [markdown]
# # Lab 04. Data parallelism: replicas and averaged gradients
#
# **After this lab you are able to** train one model on many ranks and end with the weights that one process would have
# found, to name four mistakes by the trace that they leave, and to say from two numbers of a model whether its copies
# or its parts should be spread over the ranks.
#
# **Minutes:** 100 · **Points:** 6 · **Prerequisites:** Lab 00 (`send`, `isend`, `recv`), PyTorch on one device. Lab 03
# helps in the last part.

# %% [markdown]
# ![Do 4 replicas take the path of one process? One process and 4 replicas lie on each other; from the …](../labs/covers/04.png)

# %%
# Set-up: the tools of this lab
import math

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
sweep = [6, 24, 96, 384, 1536]

# %%
lab, check = open_lab("04")

# %% [markdown]
# ## One process
#
# We begin with the smallest model there is: a line. It has two weights, a slope and an intercept, and its best values
# are known without any training: the line of least squares. So we can tell at once whether a training is right. All
# numbers are float64: a difference of 10⁻¹⁶ is rounding, anything larger is a mistake.

# %%
torch.manual_seed(4)
x = torch.randn(count, dtype=torch.float64)
y = 3 * x - 2 + 3 * torch.randn(count, dtype=torch.float64)

def closed_form(x, y):
    """The line of least squares: [slope, intercept]."""
    table = torch.stack([x, torch.ones_like(x)], dim=1)
    return torch.linalg.lstsq(table, y.unsqueeze(1)).solution.flatten()

print("slope {:.3f}, intercept {:.3f}".format(*closed_form(x, y)))

# %% [markdown]
# Gradient descent needs the gradient of the loss, the mean squared error. Here it is by hand. `weights` is a list of
# two tensors, because larger models have a list of many. Over no examples at all a mean is 0/0, which is NaN; remember
# that for later.

# %%
# Set-up
def gradients(weights, x, y):
    """The gradients of the mean squared error over the examples x, y; one for each of [slope, intercept]."""
    slope, intercept = weights
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    error = slope * x + intercept - y
    return [2 * (error * x).mean(0, keepdim=True), 2 * error.mean(0, keepdim=True)]

# %%
def descend(x, y, steps=60):
    """Gradient descent from zero, all examples at every step. The weights after each: [steps + 1, 2]."""
    weights = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
    history = [flat(weights)]
    for _ in range(steps):
        for weight, slope in zip(weights, gradients(weights, x, y)):
            weight -= learning_rate * slope
        history.append(flat(weights))
    return torch.stack(history)

# %%
distance = (descend(x, y) - closed_form(x, y)).abs().amax(dim=1)[1:]
figures.histories(
    {"one process": distance.tolist()}, "How near does gradient descent come to the closed form?", y="distance", log=True
)

# %% [markdown]
# A straight line, on a logarithmic scale: each step takes away the same part of the distance that is left.
#
# ## Four processes that do not talk
#
# Now deal the examples out to several ranks, like cards. Each holds a **replica**, a copy of the model, and trains it
# on its own examples. Nobody sends anything. Each rank has only a part of the data, but it is the same sort of data.

# %%
lab.predict(
    "alone", f"{ranks} ranks learn the line, each from its own part. Largest slope minus smallest, at the end?", ""
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
# Four processes, four models, and none is the one that all examples give. More processes alone do not train *a* model
# faster. They must agree at every step. The key is in the gradient: it is a **mean over examples**. If all shares are
# equally large, the mean of all examples is the mean of the shares' means.

# %%
part = count // ranks * ranks  # so many divide evenly
start = [torch.zeros(1, dtype=torch.float64)] * 2
shares = [flat(gradients(start, x[r:part:ranks], y[r:part:ranks])) for r in range(ranks)]
for r, share in enumerate(shares):
    print(f"rank {r}: {share.numpy().round(3)}")
print(f"   mean: {torch.stack(shares).mean(0).numpy()}")
print(f"  whole: {flat(gradients(start, x[:part], y[:part])).numpy()}")

# %% [markdown]
# No rank has the right gradient; their mean is right to the last digits. That is **data parallelism**: same weights
# everywhere, a different share of the batch for each rank, average the gradients, take the same step. It takes four
# parts, and you write all four: the shares, the same start, the average, the training.

# %% [markdown]
# ## The shares
#
# One **epoch** passes once over all examples, in a fresh random order. The order is cut into batches, and every batch
# is cut into shares. `batch_size` counts the examples of *all ranks together*, so that the training does not depend on
# how many ranks there are. All ranks must draw the same order; each works it out for itself, from a seed. The last
# batch is what is left: it may be smaller, even smaller than the number of ranks.

# %% [markdown]
# <details><summary>Hint 1</summary>An order that depends on the seed alone:
# <code>torch.randperm(count, generator=…)</code> with a fresh <code>torch.Generator()</code>, whose
# <code>manual_seed</code> returns it. The global generator differs from rank to rank.</details>
# <details><summary>Hint 2</summary>Either every n-th example of a batch, beginning with the rank's own number, or one
# block of it after the other. Both are fine. With slices the rest takes care of itself.</details>

# %% tags=["exercise:shards"]
# Exercise 4.1: shares of every batch
def shards(count, batch_size, seed, rank, world_size):
    """For each step of an epoch, the list of the examples (0 to count - 1) that this rank takes in it.

    Step s of all ranks together is batch s of the order that the seed shuffles; shares differ by one at most.
    """
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator).tolist()
    batches = [order[start : start + batch_size] for start in range(0, count, batch_size)]
    return [batch[rank::world_size] for batch in batches]
    ### END SOLUTION

# %% tags=["check:shards"] points=1.5
check.shards(shards)

# %%
last = count % batch_size or batch_size
lab.predict(
    "largest",
    f"{count} examples, batches of {batch_size}, {ranks} ranks: how many of the last batch does the busiest rank take?",
    "examples",
)

# %%
# Helper: what a function returns, or None where an exercise is open
def attempt(fn, *args):
    """What fn returns; None where an exercise that it needs is not written yet."""
    try:
        return fn(*args)
    except NotYet as stub:
        print(f"not yet: {stub}")

def sizes(n):
    return [[len(mine) for mine in shards(count, batch_size, 0, rank, n)] for rank in range(n)]

# %%
table = attempt(sizes, ranks)
lab.measure("largest", max(steps[-1] for steps in table) if table else None)
for rank, steps in enumerate(table or []):
    print(f"rank {rank} takes {steps} examples in steps 0, 1, …")

# %% [markdown]
# ## The same start
#
# Replicas must begin alike. Random weights differ from rank to rank, and a seed is no guarantee: other versions, other
# devices, or one more random number drawn before, and it yields something else. So rank 0's weights go to all others.
# That is a **broadcast**. How the messages travel is up to you: straight, down a line, or along a tree as in Lab 02.

# %%
model = small_cnn(seed=0)
kilobytes = sum(p.nbytes for p in model.parameters()) / 1e3
lab.predict(
    "broadcast", f"A model of {kilobytes:.1f} kB, {ranks} ranks. How much do all ranks together send at the start?", "kB"
)

# %% [markdown]
# <details><summary>Hint 1</summary><code>fabric.recv(weight, frm=…)</code> writes into the tensor itself. A line such as
# <code>weight = …</code> would only give a name to another tensor.</details>
# <details><summary>Hint 2</summary>Rank 0 sends, all others receive. If rank 0 sends to each in turn, nobody has to pass
# anything on.</details>

# %% tags=["exercise:same_start"]
# Exercise 4.2: the same start
def same_start(fabric, weights):
    """Makes every tensor of the list `weights` what it is on rank 0, on all ranks, in place.

    Every rank but rank 0 receives each tensor once. Shapes and dtypes are any, the same on all ranks.
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
# With one sender the messages leave its card one after the other; a tree or a line would share that work. It happens
# once in a training, so few people care. What happens at every step matters more, and comes now.

# %% [markdown]
# ## The average
#
# Adding up over ranks is called an all-reduce. `all_reduce(fabric, t)` is given: it leaves the sum of all ranks' `t`
# in `t`, on every rank, and each rank sends $\frac{2(n-1)}{n}$ of it. What is inside is Lab 06. What to *do* with the
# sum is the question here, because shares may be unequal. Take five examples on four ranks: the shares are 2, 1, 1
# and 1.

# %%
lab.predict(
    "louder",
    "Shares of 2, 1, 1, 1. We take the mean of the four ranks' means. How many times as much does an example "
    "on rank 1 count as one on rank 0?",
    "times",
)

# %% [markdown]
# The right answer weighs every *example* the same. Each rank knows all counts, because it can work out everyone's share
# (`shards` asks for a rank). One trap: a rank whose share is empty. It has to take part in the all-reduce, or the
# others wait for ever. But its gradient is a mean over nothing, NaN, and even zero times NaN is NaN.
#
# <details><summary>Hint</summary>Multiply by the rank's count over the sum of all counts, and then add up. In place:
# the methods that end in an underscore, such as <code>mul_</code> and <code>zero_</code>.</details>

# %% tags=["exercise:average_gradients"]
# Exercise 4.3: the average of gradients
def average_gradients(fabric, gradients, counts):
    """Makes each tensor of the list the mean over the examples of all ranks, on every rank, in place.

    Before, each is the mean over the rank's own counts[fabric.rank] examples; NaN where it has none.
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
# To see what each example counts, mark them. Five examples, and the gradient of example i is 1 in place i, else 0. The
# average then *is* the list of what the examples count. Below, yours beside the mean of means.

# %%
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
# ## The training
#
# Now put it together. At each step a rank takes its share, computes the gradient, averages it with the others, and
# takes the step. The start (`begin`) and the average are parameters, so that we can put in wrong ones later. After every step
# note the weights: `flat(weights)` makes one vector of the list, a copy.
#
# Every rank has all examples, and *could* take the whole batch alone. That is no data parallelism: in one training the check
# gives each rank a y of its own, and sees who took which example.
#
# <details><summary>Hint</summary>The shares of all ranks, for the counts:
# <code>[shards(…, r, fabric.world_size) for r in range(fabric.world_size)]</code>. The epoch's number is a fine
# seed.</details>

# %% tags=["exercise:train_replicas"]
# Exercise 4.4: replicas that train as one
def train_replicas(
    fabric, weights, x, y, batch_size, epochs, learning_rate, begin=same_start, average=average_gradients
):
    """Trains the line in `weights` on x, y (all examples, on every rank), each step on the ranks' shares of a batch.

    Returns the weights after each step, a tensor [steps, 2]. One rank and many have to come to the same.
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

# %% tags=["check:train_replicas"] points=2
check.train_replicas(train_replicas)

# %% [markdown]
# Now let one process learn the line, and then four replicas, over the same batches. All begin with other weights: rank
# r with slope r and intercept r. Where will the path of the replicas run, compared with that of one process?

# %%
def lesson(fabric, x, y, begin=same_start, average=average_gradients):
    weights = [torch.full((1,), float(fabric.rank), dtype=torch.float64) for _ in range(2)]  # rank 0 begins at zero
    return train_replicas(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, average)

one = launch(lesson, 1, args=(x, y))
four = launch(lesson, ranks, args=(x, y))

# %% tags=["cover"]
def path(run):
    return run[0].tolist() if run.state == "done" else None

figures.paths(
    {"one process": path(one), f"{ranks} replicas": path(four)},
    {"closed form": closed_form(x, y).tolist()},
    loss_of_all, f"Do {ranks} replicas take the path of one process?", x="slope", y="intercept",
)

# %% [markdown]
# Near the star a path jitters, since each batch is a sample of the data: do both jitter together? But "looks the
# same" is no test. So we take the largest difference of any weight on any rank from that of one process, after every
# step, on a logarithmic scale. And we put in three mistakes that people really make.

# %% [markdown]
# - *Added up*: nobody divides.
# - *Mean of means*: each rank counts the same, whatever its share.
# - *Any start*: each rank keeps its own random weights.

# %%
lab.predict("sum", f"Gradients added up on {ranks} ranks: how many times as long is the first step?", "times")

# %%
lab.predict("first_wrong", "Mean of means: after how many right steps does the first wrong one come?", "steps")

# %%
def added_up(fabric, gradients, counts):
    for gradient in gradients:
        all_reduce(fabric, gradient)

def any_start(fabric, weights):
    pass

def gap(run, reference):
    """After each step, the largest difference of a weight of any rank from the reference's; None if not yet."""
    if "not yet" in (run.state, reference.state):
        return None
    apart = torch.stack([(history - reference[0]).abs().amax(dim=1) for history in run.results])
    return apart.amax(dim=0).tolist()

# %%
mistakes = {
    "any start": (any_start, average_gradients),
    "added up": (same_start, added_up),
    "mean of means": (same_start, mean_of_means),
}
runs = {name: launch(lesson, ranks, args=(x, y, *parts)) for name, parts in mistakes.items()}
gaps = {name: gap(run, one) for name, run in runs.items()} | {"right": gap(four, one)}
figures.histories(
    gaps, f"With three mistakes and without: how far are {ranks} replicas from one process?", y="largest difference", log=True
)

# %%
if four.state == "done":
    lab.measure("sum", runs["added up"][0][0, 0] / four[0][0, 0])  # rank 0 begins at zero: the weights are the step
wrong = gaps["mean of means"]
lab.measure("first_wrong", None if wrong is None else sum(max(wrong[:k]) < 1e-12 for k in range(1, len(wrong) + 1)))
figures.predicted(lab, ["largest", "louder", "sum", "first_wrong"])

# %% [markdown]
# Each mistake has its trace. *Any start* never goes away: the ranks take the same steps from different places and do not
# meet. *Added up* is wrong from the first step: it is a learning rate n times as large. *Mean of means* is the nasty
# one. It is right to the last digit until the smaller batch at the end of the epoch, and nothing looks broken.
#
# **In one sentence:** why does *any start* never heal, though all ranks see the same gradients?
#
# <details><summary>Compare</summary>The averaged gradient is added to every replica alike. What is added to all of them
# changes nothing about the difference between them.</details>

# %% [markdown]
# PyTorch's `DistributedDataParallel` divides the sum by the number of *ranks*. It is a mean of means, right only for
# equal shares; that is why its usual sampler repeats some examples until the ranks have equally many. Lab 10 looks at
# the price. Goyal and others (2017) list the other pitfalls: shuffle once for all ranks, scale the loss once, and mind
# what momentum keeps.

# %% [markdown]
# ## A real network
#
# The same with a small convolutional network on Fashion-MNIST, in float32, with momentum: the step is a `velocity`, a
# running sum of gradients. It needs no message of its own: where gradients are equal, what is made of them is equal
# too. `same_start` gets the whole `state_dict`. The list `extra` takes more layers, for later.

# %%
images, labels, *_ = tensors(data.load("fashion-mnist"), images_count, 1)

def train_network(fabric, extra=(), tell=False):
    """Weights after each step [steps, parameters]; by step, this rank's loss and a running mean where there is one."""
    torch.set_num_threads(1)  # alone or not, a rank computes in the same way
    torch.manual_seed(fabric.rank)  # other weights, and other random numbers, on every rank
    first, *others = small_cnn()
    model = nn.Sequential(first, *extra, *others)
    same_start(fabric, list(model.state_dict().values()))
    parameters, velocity = list(model.parameters()), 0
    everyone = [shards(len(images), batch_size, 0, rank, fabric.world_size) for rank in range(fabric.world_size)]
    history, losses, means = [], [], []
    for step, mine in enumerate(everyone[fabric.rank]):
        loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
        gradient = flat(torch.autograd.grad(loss, parameters))  # one tensor: fewer, larger messages
        average_gradients(fabric, [gradient], [len(part[step]) for part in everyone])
        velocity = 0.9 * velocity + gradient
        history.append(flat(parameters) - 0.02 * velocity)
        nn.utils.vector_to_parameters(history[-1].clone(), parameters)
        losses.append(loss.item())
        means += [layer.running_mean[0].item() for layer in extra if isinstance(layer, nn.BatchNorm2d)]
        if tell:
            report(step=step + 1, loss=losses[-1])
    return torch.stack(history), losses, means

# %%
lab.predict("digits", "After one epoch the largest difference of a weight from one process is 10 to the minus …?", "")

# %%
one_network = launch(train_network, 1)
four_networks = launch(train_network, ranks, args=((), True))

# %%
# Helper: the loss of every batch, over all ranks
def loss_of_batch(run):
    """The mean loss over every batch, from the ranks' means over their shares; None if not yet."""
    if run.state == "not yet":
        return None
    parts = [shards(images_count, batch_size, 0, rank, run.world_size) for rank in range(run.world_size)]
    counts = torch.tensor([[len(mine) for mine in part] for part in parts])
    losses = torch.tensor([losses for _, losses, _ in run.results])
    return ((counts * losses).sum(0) / counts.sum(0)).tolist()

# %%
figures.histories(
    {"one process": loss_of_batch(one_network), f"{ranks} replicas": loss_of_batch(four_networks)},
    f"Do {ranks} replicas have the loss of one process?", y="loss",
)

# %%
def network_gap(run, reference):
    """As `gap`, of runs that return the weights and more."""
    if "not yet" in (run.state, reference.state):
        return None
    return torch.stack([(w - reference[0][0]).abs().amax(1) for w, *_ in run.results]).amax(0).tolist()

apart = network_gap(four_networks, one_network)
if apart:
    print(f"after {len(apart)} steps: largest difference of a weight {apart[-1]:.1e}")
    print("as equal as float32 allows:", apart[-1] <= 1e-5)
lab.measure("digits", -math.log10(apart[-1]) if apart and apart[-1] else None)

# %% [markdown]
# Sums in another order are rounded otherwise, so in float32 the difference is small but not zero. Between the *replicas*
# it is exactly zero: each sum was made on one rank and then copied to all, so all take the same bits. Replicas that
# round differently would drift apart for ever, with nobody to notice.

# %% [markdown]
# ## What must differ: random numbers
#
# Weights have to be equal on all ranks. Random numbers of the *data* must not: dropout and augmentation are there to
# show the model many variants. If every rank sets the same seed, all draw the same masks. Here each of 4 ranks draws a
# dropout mask at each of 50 steps.

# %%
lab.predict("masks", "4 ranks, 50 steps, the same seed on every rank: how many different masks are drawn in all?", "masks")

# %%
def masks(fabric, same):
    torch.manual_seed(0 if same else fabric.rank)
    return [tuple(nn.functional.dropout(torch.ones(64)).tolist()) for _ in range(50)]

drawn = {same: len({mask for rank in launch(masks, 4, args=(same,)).results for mask in rank}) for same in (True, False)}
lab.measure("masks", drawn[True])
print(f"the same seed everywhere: {drawn[True]} different masks; a seed for each rank: {drawn[False]}")

# %% [markdown]
# So the order of things is: make the model, broadcast it, *then* give each rank a seed of its own. Do the replicas stay
# equal, although each drops other activations? Let us see, with a dropout layer in the network.

# %%
run = launch(train_network, ranks, args=([nn.Dropout(0.2)],))
if run.state == "done":
    between = max(float((w - run[0][0]).abs().max()) for w, *_ in run.results)
    print(f"largest difference between replicas: {between:g}")
    print(f"from one process without dropout: {network_gap(run, one_network)[-1]:.2g}")

# %% [markdown]
# Equal to the last bit. Whatever a rank does in its forward pass, only the averaged gradient reaches the weights.
#
# ## BatchNorm's caveat
#
# One common layer breaks the rule that a replica equals one process. **BatchNorm** subtracts the mean of *the batch*
# and divides by its standard deviation. A replica sees only its share. Its mean is over fewer images, and so another
# one. Also, each rank keeps a *running mean* for later use, from what it alone has seen.

# %%
lab.predict("running", f"{ranks} ranks train with BatchNorm. How many different running means do they hold at the end?", "")

# %%
variants = {"BatchNorm": [nn.BatchNorm2d(8)], "GroupNorm": [nn.GroupNorm(2, 8)]}
pairs = {name: [launch(train_network, n, args=(extra,)) for n in (1, ranks)] for name, extra in variants.items()}

# %%
gaps = {name: network_gap(many, single) for name, (single, many) in pairs.items()} | {"no such layer": apart}
figures.histories(
    gaps, f"With such a layer, are {ranks} replicas one process?", y="largest difference of a weight", log=True
)

# %%
single, many = pairs["BatchNorm"]
apart_means = None
if many.state == "done":
    lab.measure("running", len({means[-1] for _, _, means in many.results}))
    print("running means at the end:", [round(means[-1], 5) for _, _, means in many.results])
    print("of one process:", round(single[0][2][-1], 5))
    of_one = torch.tensor(single[0][2])
    apart_means = {f"rank {r}": (torch.tensor(means) - of_one).tolist() for r, (_, _, means) in enumerate(many.results)}
figures.histories(
    apart_means or {"running means": None}, "Do the ranks agree on their running mean?", y="difference from one process"
)

# %% [markdown]
# The *weights* of all replicas are still equal, but they are not those of one big batch, and there is no one set of running
# statistics: which rank's should be saved? `DistributedDataParallel` copies rank 0's before each forward pass; `SyncBatchNorm`
# sends sums instead, so that all ranks see the whole batch, at the price of messages in the middle of the network.
# GroupNorm looks at one image at a time and has no such trouble: its line is rounding, which later steps make larger.

# %% [markdown]
# ## The other way: spread the model
#
# Data parallelism copies the model and cuts the batch. **Model parallelism** does the reverse: each rank holds some
# layers and sees the whole batch. What travels are **activations** forwards and their gradients backwards. Here is the
# same network, both ways. First an MLP, cut in front of every layer with weights.

# %%
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
pixels, targets, *_ = tensors(data.load("fashion-mnist"), max(sweep), 1)
models = {"wide MLP": (wide, pixels.flatten(1)), "CNN": (conv, pixels)}
for name, (stages, x_all) in models.items():
    print(name, [sum(p.numel() for p in s.parameters()) for s in stages], "parameters;", boundaries(stages, x_all[:1]))

# %% [markdown]
# Both have three stages, for three ranks. Below is one step of each way. `work` is declared time, for later: it makes a
# rank wait as if it had a large model, and burns no core. In `split_step` a rank waits for activations, passes its own
# on, waits for their gradient, and hands on the gradient of what it got. (Lab 03 does this by hand.)

# %%
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
def replica_step(fabric, stages, x, y, work):
    """Each rank has all stages and its share of the batch, which divides evenly here."""
    n, model = fabric.world_size, nn.Sequential(*stages)
    mine = slice(fabric.rank, None, n)
    fabric.compute(work / n)
    nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
    gradient = flat([p.grad for p in model.parameters()])
    nn.utils.vector_to_parameters(all_reduce(fabric, gradient).div_(n), [p.grad for p in model.parameters()])
    return model

# %% [markdown]
# To compare them, `spread` takes a step of either sort and counts memory: parameters, gradients, and what autograd keeps
# for the backward pass. PyTorch tells every tensor that it keeps to a hook, so this is a count, no guess.

# %%
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

# %% [markdown]
# First question: is it the same training? One process, three replicas, and three stages whose weights we put together:

# %%
def weights_after(name, way, n, batch=96):
    stages, x_all = models[name]
    run = launch(spread, n, args=(way, stages, x_all[:batch].clone(), targets[:batch].clone()))
    return run, torch.cat([w for w, _ in run.results]) if way is split_step else run[0][0]

# %%
_, single = weights_after("wide MLP", replica_step, 1)
replicas, by_data = weights_after("wide MLP", replica_step, 3)
split, by_model = weights_after("wide MLP", split_step, 3)
print(f"replicas differ from one process by {(by_data - single).abs().max():.1e} at most")
print(f"  stages differ from one process by {(by_model - single).abs().max():.1e} at most")

# %% [markdown]
# The same weights by two roads. So the choice between them is one of cost alone: bytes to move, memory to hold, and how
# evenly the work is spread. Predict the bytes for the wide MLP, from the numbers printed above. Each number has four
# bytes. Replicas send $2(n-1)$ times the gradients, all ranks together; stages send the activations of the whole
# batch over two boundaries, forwards and back.

# %%
lab.predict("replica_bytes", "Wide MLP, batch 96, 3 replicas: how many MB do all ranks send in a step?", "MB")

# %%
lab.predict("split_bytes", "Wide MLP, batch 96, 3 stages: how many MB do all ranks send in a step?", "MB")

# %%
lab.measure("replica_bytes", replicas.trace.total_bytes() / 1e6)
lab.measure("split_bytes", split.trace.total_bytes() / 1e6)
figures.predicted(lab, ["replica_bytes", "split_bytes"])

# %%
conv_replicas, _ = weights_after("CNN", replica_step, 3)
conv_split, _ = weights_after("CNN", split_step, 3)
groups = {
    "wide MLP, replicas": replicas, "wide MLP, stages": split,
    "CNN, replicas": conv_replicas, "CNN, stages": conv_split,
}
figures.stacks({name: [held for _, held in run.results] for name, run in groups.items()}, "What does each rank hold in a step?")

# %% [markdown]
# Replicas are perfectly balanced, and each holds the whole model: a model that does not fit into one device cannot be
# trained so. Stages share the parameters, but as the layers happen to be large: the MLP's first rank holds most. And the
# CNN is the other way round: parameters hardly show, activations are all there is, and most of them sit in the first
# layer. Bytes moved, for the same four runs:

# %%
figures.stacks(
    {
        name: [{"sent": run.trace.sent_bytes(r), "received": run.trace.received_bytes(r)} for r in range(3)]
        for name, run in groups.items()
    },
    "What does each rank send and receive in a step?", "bytes moved",
)

# %% [markdown]
# ## For which batch, for which model?
#
# What replicas move depends on the parameters, not on the batch. What stages move depends on the activations and the
# batch, not on the parameters. So for each model there is a batch at which both are equal. Beyond it data parallelism
# moves less. With one stage on each rank it is simply the *parameters over the mean activations at a boundary*.

# %%
lab.predict("crossing_mlp", "Wide MLP: from which batch size on do replicas move less?", "examples")

# %%
lab.predict("crossing_cnn", "CNN: from which batch size on do replicas move less?", "examples")

# %%
# Helper: the bytes of a step for every batch size
def every_batch(fabric, way, stages, x, y):
    for batch in sweep:
        with span(f"batch {batch}"):
            spread(fabric, way, stages, x[:batch], y[:batch])

def moved(name, way):
    """[(batch, bytes of all ranks in a step)]: a message counts for the batch in which its sender was."""
    stages, x_all = models[name]
    trace = launch(every_batch, 3, args=(way, stages, x_all, targets)).trace
    spans = {(s.rank, s.label): s for s in trace.spans}

    def within(t, batch):
        sender = spans[t.src, f"batch {batch}"]
        return sender.start_s <= t.start_s < sender.end_s

    return [(batch, sum(t.size_bytes for t in trace.transfers if within(t, batch))) for batch in sweep]

# %%
measured = {(name, way): moved(name, way) for name in models for way in (replica_step, split_step)}

# %%
# Helper: sizes for the curves
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
        figures.Curve(f"{name}: replicas", measured[name, replica_step], replicas),
        figures.Curve(f"{name}: stages", measured[name, split_step], stages),
    ]

# %%
crossings = {name: parallelism.crossing_batch(3, *sizes_of(name)) for name in models}
figures.curves(
    curves_of("wide MLP") + curves_of("CNN"),
    f"From which batch on do replicas move less? (By the formulas {crossings['wide MLP']:.0f} for the MLP and "
    f"{crossings['CNN']:.0f} for the CNN.) Do they?",
    x="examples in the batch", y="moved in a step (bytes)", log=True,
)

# %%
def crossing(name):
    """The batch at which the measured lines meet: stages grow in proportion to it, replicas not at all."""
    (_, flat_bytes), *_ = measured[name, replica_step]
    (batch, grown_bytes), *_ = measured[name, split_step]
    return flat_bytes / (grown_bytes / batch)

lab.measure("crossing_mlp", crossing("wide MLP"))
lab.measure("crossing_cnn", crossing("CNN"))
figures.predicted(lab, ["crossing_mlp", "crossing_cnn"])

# %% [markdown]
# Try other MLPs. A wider one has more parameters, which grow with the *square* of the width, and more activations, which
# only grow with the width itself. Which way do replicas and stages change, if you double the width? If you double the
# batch?

# %%
def compare(width=512, batch=96):
    """Real runs of one step of an MLP, both ways."""
    stages, part = cut(mlp([784, width, width, 10], seed=0)), (pixels[:batch].flatten(1).clone(), targets[:batch].clone())
    ways = {"replicas": replica_step, "stages": split_step}
    traces = {name: launch(spread, 3, args=(way, stages, *part)).trace for name, way in ways.items()}
    sent = {name: [{"sent": trace.sent_bytes(r)} for r in range(3)] for name, trace in traces.items()}
    return figures.stacks(sent, f"Width {width}, batch {batch}: which way sends more?", "bytes sent")

knobs(compare, width=[128, 256, 512, 1024], batch=[24, 96, 384, 1536])

# %% [markdown]
# ## One step in time
#
# Bytes are not yet seconds. Give the ranks slow links, and declare how long the work on the whole batch takes on one
# rank. Replicas each do a third of it, all at once. Stages each do a third of it too, but one after the other, because
# each needs what the one before makes. Then look at one step of each.

# %%
slow = Link("5 MB/s", "100 us")
work_s = 0.3

def timed(name, way, batch=96):
    stages, x_all = models[name]
    return launch(warmed, 3, args=(way, stages, x_all[:batch].clone(), targets[:batch].clone()), link=slow)

def warmed(fabric, way, stages, x, y):
    nn.Sequential(*stages)(x[:3]).sum().backward()  # the first time takes longer
    for stage in stages:
        stage.zero_grad()
    all_reduce(fabric, torch.zeros(1))  # so that all begin together
    spread(fabric, way, stages, x, y, work_s)

def step_of(run):
    """The part of the run from its first declared work on."""
    return run.trace.between(min(s.start_s for s in run.trace.spans if s.kind == "compute"), float("inf"))

# %%
lab.predict("mlp_ratio", "Wide MLP, batch 96, slow links: a step of replicas takes how many times a step of stages?", "times")

# %%
lab.predict("cnn_ratio", "CNN, batch 96, slow links: a step of stages takes how many times a step of replicas?", "times")

# %%
steps = {(name, way): step_of(timed(name, way)) for name in models for way in (replica_step, split_step)}
figures.messages(steps["wide MLP", replica_step])

# %% [markdown]
# Replicas of the wide MLP: a short time of work, all at once, then a long all-reduce of gradients.

# %%
figures.messages(steps["wide MLP", split_step])

# %% [markdown]
# Its stages: short messages, but at each moment one rank works and two wait. (Lab 03 fills that gap with micro-batches.)
# Below, the CNN, whose messages are the reverse: small gradients, large activations.

# %%
figures.messages(steps["CNN", replica_step])

# %%
figures.messages(steps["CNN", split_step])

# %%
# Helper: seconds of a step, measured and by formula
def seconds(trace):
    ends = [e.end_s for e in (*trace.spans, *trace.transfers)]
    return max(ends) - min(s.start_s for s in trace.spans)

def by_formula(name, way, batch=96):
    parameters, passing = sizes_of(name)
    if way is replica_step:
        return parallelism.seconds_data_parallel(3, work_s, parameters, slow)
    return parallelism.seconds_model_parallel(batch, work_s, passing, slow)

# %%
words = {replica_step: "replicas", split_step: "stages"}
took = {key: seconds(trace) for key, trace in steps.items()}
lab.measure("mlp_ratio", took["wide MLP", replica_step] / took["wide MLP", split_step])
lab.measure("cnn_ratio", took["CNN", split_step] / took["CNN", replica_step])
figures.race(
    [figures.Timing(words[way], took[name, way], by_formula(name, way), group=name) for name, way in steps],
    "Over slow links: is the same way the faster one for both models?",
)

# %% [markdown]
# The winner changes with the model, on the same links, with the same declared work and the same batch. (The real work of
# these small models comes on top; the formulas leave it out.) A fully connected layer has many parameters and few
# activations: spread its *parts*. A convolution uses few parameters in many places: spread its *copies*.
#
# **In one sentence:** a convolution's kernel is used at every pixel. Why does that favour copies?
#
# <details><summary>Compare</summary>Each place where a weight is used makes an activation but no new parameter. So
# activations outnumber parameters, and what is to be moved should be the smaller of the two.</details>

# %% [markdown]
# ## One weird trick
#
# In 2014 Alex Krizhevsky looked at his own network in this way, layer by layer. We do the same, on the `meta` device,
# which knows shapes and holds no numbers. For each layer: its parameters, and the activations that 128 images make in
# it. Where do the two lines cross?

# %%
def alexnet():
    C, P, R, L = nn.Conv2d, nn.MaxPool2d, nn.ReLU, nn.Linear
    return nn.Sequential(
        C(3, 64, 11, 4, 2), R(), P(3, 2), C(64, 192, 5, padding=2), R(), P(3, 2), C(192, 384, 3, padding=1), R(),
        C(384, 256, 3, padding=1), R(), C(256, 256, 3, padding=1), R(), P(3, 2), nn.Flatten(),
        L(9216, 4096), R(), L(4096, 4096), R(), L(4096, 1000),
    )

with torch.device("meta"):
    stages, x_meta = cut(alexnet()), torch.empty(1, 3, 224, 224)
    outputs = [torch.Size(shape).numel() for shape in boundaries([*stages, nn.Identity()], x_meta)]
parameters = [sum(p.numel() for p in stage.parameters()) for stage in stages]

# %%
lab.predict("convolutions", "What part of AlexNet's parameters is in its five convolutions?", "%")

# %%
lab.measure("convolutions", 100 * sum(parameters[:5]) / sum(parameters))
figures.histories(
    {"parameters": parameters, "activations of 128 images": [128 * size for size in outputs]},
    "AlexNet: which layers hold the parameters, and which make the activations?", y="numbers", x="layer", log=True,
)

# %% [markdown]
# So his trick: data parallelism for the five convolutions, model parallelism for the three fully connected layers, in
# one network. Today's large models mix the two as well, and cut single layers too (Lab 12). The rule is still the one
# that you have measured: count what would have to move, parameters or activations, and move the smaller.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Krizhevsky, *One weird trick for parallelizing convolutional neural networks*
# ([arXiv:1404.5997](https://arxiv.org/abs/1404.5997), 2014). Goyal and others, *Accurate, large minibatch SGD*
# ([arXiv:1706.02677](https://arxiv.org/abs/1706.02677), 2017): averaging, and what goes wrong. Li and others, *PyTorch
# Distributed: experiences on accelerating data parallel training* (VLDB 2020). Dean and others, *Large scale distributed
# deep networks* (NIPS 2012). Ioffe and Szegedy, *Batch normalization* (2015); Wu and He, *Group normalization* (2018).
