# %% [markdown]
# # Lab 12. Sharding: tensor parallel, ZeRO, FSDP
#
# **After this lab you are able to** cut a layer over ranks in two ways and say what each has to send, to cut an
# optimizer's state over ranks, and to work out what every stage of ZeRO keeps and sends; you have seen PyTorch's FSDP
# do what the formulas say.
#
# **Minutes:** 80 · **Points:** 6 · **Prerequisites:** Lab 06 (all-reduce and its two halves), Lab 04 (replicas).

# %% [markdown]
# ![8 ranks: 120 GB a rank with whole copies, 15 GB with everything cut.](../labs/covers/12.png)

# %%
# Set-up: the tools of this lab
from worldsize.notebook import *

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from worldsize.fabric.collectives import all_gather, all_reduce, reduce_scatter
from worldsize.formulas import sharding
from worldsize.pytorch.models import flat, mlp, tensors

# %% tags=["parameters"]
ranks = 4
width = 64
batches = [16, 64, 256, 1024]
images_count = 512
steps = 8

# %%
lab, check = open_lab("12")

# %% [markdown]
# ## What does not fit
#
# So far every rank held the whole model. A training step keeps more than the weights: a gradient for each, and what the
# optimizer remembers. Take the usual mix for large models: weights and gradients of 16 bits, and an Adam that keeps in
# 32 bits a copy of the weights, the mean of the gradients and the mean of their squares.

# %%
lab.predict("whole", "A model of 7.5 billion parameters, trained so. How many GB does a rank keep?", "GB")

# %%
big, many = 7.5e9, 64
whole = sharding.memory(big, many, stage=0)
lab.measure("whole", sum(whole.values()) / 1e9)
figures.stacks(
    {"7.5 billion parameters": {"every rank": whole}},
    "What does training keep, before the first image, and does it fit?", limit=("a card of 80 GB", 80e9),
)

# %% [markdown]
# In the colours of the picture, with $\Psi$ parameters, a rank keeps
# $\color{#3779cf}{2\Psi} + \color{#d06e00}{2\Psi} + \color{#a15399}{12\Psi}$ bytes.
#
# It is not the weights that are large but the optimizer's state. And with 64 replicas the very same numbers are there 64
# times. There are two ways out. Cut each *layer*, so that a rank has a part of every weight and works out a part of
# every output: **tensor parallelism**. Or keep replicas, but cut what they *store*: **ZeRO**. You write both.

# %% [markdown]
# ## A layer cut by its outputs
#
# First the whole layer on one rank, forwards and backwards by hand. In PyTorch `weight` has shape [outputs, inputs].
# `grad` is the loss's gradient of the output; the layer turns it into the gradients of x, weight and bias. All numbers
# are float64, so that a difference of 10⁻⁶ is a mistake and not rounding.

# %%
def dense(x, weight, bias, grad):
    """The output, and the gradients of x, weight and bias."""
    return x @ weight.T + bias, grad @ weight, grad.T @ x, torch.sum(grad, dim=0)

torch.manual_seed(12)
x, grad = torch.randn(2, 32, width, dtype=torch.float64)
weight = torch.randn(width, width, dtype=torch.float64)
bias = torch.randn(width, dtype=torch.float64)
slow = Link("400 kB/s", "1 ms")

# %% [markdown]
# Each output needs all inputs, but only its own row of `weight`. So give every rank some of the rows, and it has some of
# the outputs: some *columns* of y. Megatron-LM writes x A for the layer and calls this **column-parallel**. Forwards
# nobody needs anybody. But look at the backward pass: the gradient of x is `grad @ weight`. Which outputs go into it?

# %%
lab.predict(
    "column",
    f"x is [32, {width}] in float64, {ranks} ranks, column-parallel. How many kB does each rank send in all?", "kB",
)

# %% [markdown]
# Given: `all_reduce(fabric, t)` leaves the sum of all ranks' t in t, and returns it. Cut with `tensor_split`, which also
# copes with sizes that do not divide.
#
# On a real machine a rank holds its part and nothing else. The check sees to that: all tensors have the shape of the
# whole, but what belongs to other ranks is NaN in them. Whoever computes with it gets NaN; even zero times NaN is NaN.
#
# <details><summary>Hint 1</summary>This rank's rows: <code>weight.tensor_split(n)[rank]</code>. Its columns of
# <code>grad</code>: the same with <code>dim=1</code>.</details>
# <details><summary>Hint 2</summary>Each rank can work out its rows' contribution to the gradient of x. What makes the
# whole of the contributions?</details>

# %% tags=["exercise:column_parallel"]
# Exercise 12.1: a column-parallel layer
def column_parallel(fabric, given):
    """This rank's columns of y = x weightᵀ + bias, from its own part of weight, bias and grad, the gradient of y.

    x is whole. In the check the other ranks' parts of weight, bias and grad are NaN.
    Returns its columns of y, the gradient of x (whole, on every rank), and those of its rows of weight and bias.
    """
    x, weight, bias, grad = given
    ### BEGIN SOLUTION
    n, rank = fabric.world_size, fabric.rank
    own_weight, own_bias = weight.tensor_split(n)[rank], bias.tensor_split(n)[rank]
    own_grad = grad.tensor_split(n, dim=1)[rank]
    y = x @ own_weight.T + own_bias
    grad_x = all_reduce(fabric, own_grad @ own_weight)
    return y, grad_x, own_grad.T @ x, own_grad.sum(0)
    ### END SOLUTION

# %% tags=["check:column_parallel"] points=1.5
check.column_parallel(column_parallel)

# %% [markdown]
# Now against the whole layer: put the ranks' parts together and take the largest difference. Then the messages.

# %%
def largest_difference(run, together):
    """Between the parts of all ranks, put together, and the whole layer; None where there is no run."""
    if run.state != "done":
        return None
    pairs = zip(together(run.results), dense(x, weight, bias, grad))
    return max(float((mine - whole).abs().max()) for mine, whole in pairs)

run = launch(column_parallel, ranks, args=((x, weight, bias, grad),), link=slow)
off = largest_difference(
    run, lambda parts: [torch.cat([p[0] for p in parts], dim=1), parts[0][1]] + [torch.cat([p[k] for p in parts]) for k in (2, 3)]
)
print("largest difference from the whole layer:", "not yet" if off is None else f"{off:.0e}")

# %%
lab.measure("column", run.trace.sent_bytes(0) / 1e3 if run.state == "done" else None)
figures.messages(run)

# %% [markdown]
# All of it is one all-reduce, and it belongs to the backward pass. Megatron-LM calls this pair *f*: forwards it passes x
# on as it is, backwards it adds up the gradient.
#
# **In one sentence:** why does the forward pass need no message, and the backward pass does?
#
# <details><summary>Compare</summary>Forwards, x goes *to* all ranks, and all have it. Backwards the arrows turn round:
# the gradient comes *from* all ranks, and what comes from many has to be added up.</details>

# %% [markdown]
# ## A layer cut by its inputs
#
# The other cut: rank r has some columns of `weight`, which belong to some of the *inputs*: **row-parallel** in
# Megatron's words. It needs only those columns of x, and that is what a column-parallel layer before it leaves. Its
# product has the shape of the whole output, but it is only one summand of it.

# %% [markdown]
# Here x is already this rank's own columns; bias and grad are whole. Of weight each rank uses its own columns alone: in
# the check the others are NaN. Mind the bias: it is in the output once.
#
# <details><summary>Hint 1</summary>This rank's columns of weight: <code>tensor_split</code> with
# <code>dim=1</code>.</details>
# <details><summary>Hint 2</summary>Backwards: is there anything in <code>grad</code> that a rank does not have? If not,
# nothing has to travel.</details>

# %% tags=["exercise:row_parallel"]
# Exercise 12.2: a row-parallel layer
def row_parallel(fabric, given):
    """The whole y = x weightᵀ + bias on every rank, from this rank's columns of weight; x is its columns already.

    bias and grad are whole. In the check the other ranks' columns of weight are NaN.
    Returns y, and the gradients of this rank's columns of x, of its columns of weight, and of bias (whole).
    """
    x, weight, bias, grad = given
    ### BEGIN SOLUTION
    own_columns = weight.tensor_split(fabric.world_size, dim=1)[fabric.rank]
    summand = x @ own_columns.T
    y = all_reduce(fabric, summand) + bias
    grad_own_x = grad @ own_columns
    grad_own_columns = grad.T @ x
    return y, grad_own_x, grad_own_columns, grad.sum(0)
    ### END SOLUTION

# %% tags=["check:row_parallel"] points=1.5
check.row_parallel(row_parallel)

# %%
def with_own_columns(fabric, layer):
    x, *rest = layer
    return row_parallel(fabric, (x.tensor_split(fabric.world_size, dim=1)[fabric.rank], *rest))

run = launch(with_own_columns, ranks, args=((x, weight, bias, grad),))
off = largest_difference(
    run, lambda parts: [parts[0][0], *(torch.cat([p[k] for p in parts], dim=1) for k in (1, 2)), parts[0][3]]
)
print("largest difference from the whole layer:", "not yet" if off is None else f"{off:.0e}")

# %% [markdown]
# One all-reduce again, and this time it belongs to the forward pass. This is Megatron's *g*: it adds up forwards, and
# backwards it passes the gradient on as it is. *f* and *g* are each other's mirror.

# %% [markdown]
# ## The pair
#
# Half of a transformer's layers are pairs: a wide layer `up`, a nonlinearity, a layer `down`. Cut `up` by its outputs
# and `down` by its inputs. Then rank r's part of the hidden layer is just what its part of `down` needs, and ReLU works
# on each number alone. So how often do the ranks have to meet, forwards and backwards together?

# %%
figures.matrix_cuts(32, 64, 256, 64, 4)

# %%
lab.predict("pair", "x [32, 64], hidden 256, 4 ranks, float64. How many kB does each rank send for the pair?", "kB")

# %% [markdown]
# <details><summary>Hint 1</summary>Forwards: a column-parallel layer, ReLU, and a row-parallel layer, both without bias.
# Backwards: from grad to the gradient of the values after ReLU, to that of the values before it, to that of x.</details>
# <details><summary>Hint 2</summary>ReLU's gradient is 1 where hidden is above 0, else 0:
# <code>hidden &gt; 0</code>.</details>

# %% tags=["exercise:parallel_mlp"]
# Exercise 12.3: two layers, two all-reduces
def parallel_mlp(fabric, given):
    """y = relu(x upᵀ) downᵀ, up [hidden, width] cut by its rows, down [width, hidden] by its columns.

    x and grad are whole. In the check the other ranks' parts of up and down are NaN.
    Returns y, the gradient of x (both whole, on every rank), and those of this rank's parts of up and down.
    """
    x, up, down, grad = given
    ### BEGIN SOLUTION
    n, rank = fabric.world_size, fabric.rank
    own_up, own_down = up.tensor_split(n)[rank], down.tensor_split(n, dim=1)[rank]
    hidden = x @ own_up.T
    active = hidden.relu()
    y = all_reduce(fabric, active @ own_down.T)
    grad_hidden = (grad @ own_down) * (hidden > 0)
    grad_x = all_reduce(fabric, grad_hidden @ own_up)
    return y, grad_x, grad_hidden.T @ x, grad.T @ active
    ### END SOLUTION

# %% tags=["check:parallel_mlp"] points=1
check.parallel_mlp(parallel_mlp)

# %%
def pair(batch, width=64):
    """x, up, down and the gradient of y."""
    shapes = ((batch, width), (4 * width, width), (width, 4 * width), (batch, width))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)

run = launch(parallel_mlp, 4, args=(pair(32),), link=slow)
lab.measure("pair", run.trace.sent_bytes(0) / 1e3 if run.state == "done" else None)
figures.messages(run)

# %% [markdown]
# Two waves of messages: one all-reduce of y, one of the gradient of x. The hidden layer is four times as wide, and
# nothing of it travels.

# %% [markdown]
# ## Cut the layers, or copy them?
#
# What travels here are *activations*: more examples, more bytes. With replicas the *gradients* travel, the same for any
# batch. So for a small batch it is cheaper to cut the layers, for a large one to copy them. Where is the turn?

# %%
lab.predict("turn", f"up and down of width {width}: up to which batch does cutting them send less?", "examples")

# %%
def replicas(fabric, layers):
    """Lab 04's way: whatever the batch, the gradients of both weights are added up."""
    _, up, down, _ = layers
    all_reduce(fabric, torch.zeros(up.numel() + down.numel(), dtype=up.dtype))

def sent(fn, batch):
    """Bytes that rank 0 sends; None where fn is not written yet."""
    run = launch(fn, ranks, args=(pair(batch, width),))
    return run.trace.sent_bytes(0) if run.state == "done" else None

# %%
measured = {name: [(b, sent(fn, b)) for b in batches] for name, fn in (("cut", parallel_mlp), ("copied", replicas))}
numbers = 8  # bytes of a float64
formulas = {
    "cut": [(b, sharding.bytes_sent_tensor_parallel(ranks, b * width * numbers)) for b in batches],
    "copied": [(b, sharding.bytes_sent(ranks, 8 * width**2 * numbers, stage=0)) for b in batches],
}
figures.curves(
    [figures.Curve(f"layers {name}", measured[name], formulas[name]) for name in measured],
    "Does what travels grow with the batch, where layers are cut and where they are copied?",
    x="examples in the batch", y="each rank sends (bytes)", log=True,
)

# %%
slope = measured["cut"][0][1] and measured["cut"][0][1] / batches[0]
lab.measure("turn", measured["copied"][0][1] / slope if slope else None)
figures.predicted(lab, ["column", "pair", "turn"])

# %% [markdown]
# For a language model an "example" is a token, and a batch has many thousands. So cut layers send far more than copies,
# in every layer, and everyone has to wait for it before going on. That is why tensor parallelism stays inside one
# machine, where links are fastest; its gain is memory, and a layer's arithmetic shared.

# %% [markdown]
# ## An optimizer, cut
#
# Back to replicas, and to what they store. Here is Adam on one flat tensor. `state` has two numbers for each weight:
# the mean of its gradients, and of their squares. Now the idea of **ZeRO**: every rank takes the same step with the same
# numbers. Why should each take the *whole* step? Let rank r take it for part r of the weights, and tell the others.

# %%
# Set-up
def new_state(weights):
    """Adam's memory for `weights`, before the first step."""
    return {"step": 0, "mean": torch.zeros_like(weights), "square": torch.zeros_like(weights)}

def adam(weights, gradient, state, learning_rate):
    """One step, in place: weights and state change."""
    state["step"] += 1
    state["mean"].lerp_(gradient, 1 - 0.9)
    state["square"].lerp_(gradient**2, 1 - 0.999)
    mean = state["mean"] / (1 - 0.9 ** state["step"])
    square = state["square"] / (1 - 0.999 ** state["step"])
    weights -= learning_rate * mean / (square.sqrt() + 1e-8)

# %% [markdown]
# A rank then needs state for its own part alone. It needs the average gradient of its own part alone. And after its
# step, all need all weights. Given, both for flat tensors: `reduce_scatter(fabric, t)` returns this rank's part of the
# sum of all t. `all_gather(fabric, t)` fills t in place: part r comes from rank r. Parts are those of `tensor_split`.

# %%
lab.predict(
    "zero_bytes",
    "An all-reduce of the gradient against this reduce-scatter and all-gather: how many times as many bytes?", "times",
)

# %% [markdown]
# `gradients` yields this rank's gradient for one step after the other, each at the weights as they are by then. So change
# the weights **in place**. A rank takes no step with another rank's part of the weights, and so has no use for its old
# values: in the check they are NaN at the start, and all weights have to be there after the gather.
#
# <details><summary>Hint 1</summary><code>weights.tensor_split(n)[rank]</code> is a view: when it changes, weights
# change.</details>
# <details><summary>Hint 2</summary>A sum is not a mean. Adam hardly shows the difference in its weights, but its state
# does.</details>

# %% tags=["exercise:sharded_adam"]
# Exercise 12.4: Adam with its state in parts
def sharded_adam(fabric, replica, learning_rate):
    """Steps of Adam on `weights` (flat, equal on all ranks), in place; one for each of `gradients`, averaged over ranks.

    Each rank keeps the state of its own part of the weights alone. Returns that state. In the check the other ranks'
    parts of `weights` are NaN at the start.
    """
    weights, gradients = replica
    ### BEGIN SOLUTION
    n = fabric.world_size
    own = weights.tensor_split(n)[fabric.rank]
    state = new_state(own)
    for gradient in gradients:
        part = reduce_scatter(fabric, gradient) / n
        adam(own, part, state, learning_rate)
        all_gather(fabric, weights)
    return state
    ### END SOLUTION

# %% tags=["check:sharded_adam"] points=2
check.sharded_adam(sharded_adam)

# %% [markdown]
# Now a real model and real images. Its parameters are made views of one flat tensor, so that a step on that tensor is a
# step of the model.

# %%
images, labels, *_ = tensors(data.load("fashion-mnist"), images_count, 1)
images = F.avg_pool2d(images, 2).flatten(1)  # 14 by 14 pixels
sizes = [196, 256, 256, 256, 256, 10]

def on_one_tensor(model):
    """The model's weights as one flat tensor, of which its parameters are views from now on."""
    parameters = list(model.parameters())
    weights = flat(parameters)
    for p, view in zip(parameters, weights.split([p.numel() for p in parameters])):
        p.data = view.view_as(p)
    return weights

# %%
def gradients_of(model, x, y):
    """This rank's gradient, step after step."""
    for _ in range(steps):
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        yield flat([p.grad for p in model.parameters()])

def whole_adam(fabric, replica, learning_rate):
    """The same with the whole state on every rank."""
    weights, gradients = replica
    state = new_state(weights)
    for gradient in gradients:
        all_reduce(fabric, gradient)
        adam(weights, gradient / fabric.world_size, state, learning_rate)
    return state

# %% [markdown]
# We measure what is there: the bytes of the tensors that a rank holds at the end, part by part.

# %%
def size_of(tensors):
    return sum(t.nbytes for t in tensors)

def train(fabric, optimize, learning_rate=1e-3):
    """The weights at the end, and the bytes that this rank keeps."""
    model = mlp(sizes, seed=0)
    weights = on_one_tensor(model)
    mine = slice(fabric.rank, None, fabric.world_size)
    state = optimize(fabric, (weights, gradients_of(model, images[mine], labels[mine])), learning_rate)
    kept = {
        "parameters": size_of(model.parameters()),
        "gradients": size_of(p.grad for p in model.parameters()),
        "optimizer": size_of(t for t in state.values() if isinstance(t, torch.Tensor)),
    }
    return weights, kept

# %%
copied = launch(train, ranks, args=(whole_adam,))
cut = launch(train, ranks, args=(sharded_adam,))
done = cut.state == "done"
lab.measure("zero_bytes", cut.trace.sent_bytes(0) / copied.trace.sent_bytes(0) if done else None)
if done:
    print(f"largest difference of any weight: {float((cut[0][0] - copied[0][0]).abs().max()):.1e}")

# %%
count = sum(p.numel() for p in mlp(sizes).parameters())

def formula(stage):
    """float32 throughout: 4 bytes for a parameter, 4 for its gradient, 8 for Adam."""
    return sharding.memory(count, ranks, stage, parameter_bytes=4, gradient_bytes=4, optimizer_bytes=8)

def beside(run, stage):
    rows = {f"rank {r}": kept for r, (_, kept) in enumerate(run.results)}
    return {**rows, "formula": formula(stage)} if run.state == "done" else None

figures.stacks(
    {"the whole state on every rank": beside(copied, 0), "your sharded Adam": beside(cut, 1)},
    f"Sharded over {ranks} ranks: what does each rank keep?",
)

# %% [markdown]
# The same weights, the same bytes on the links, and of the state only one part left on each rank. It needs no byte more,
# because an all-reduce *was* a reduce-scatter and an all-gather all along; the step has only moved in between. This is
# ZeRO's **stage 1**.

# %% [markdown]
# ## Two stages more
#
# After the reduce-scatter a rank needs no gradient but its own part's: **stage 2** drops the rest. And the weights? A
# layer needs them for the moment of its forward and of its backward pass. **Stage 3** keeps only a part of them too, and
# gathers each layer's when it is needed, twice in a step.

# %%
lab.predict("stage_1", "7.5 billion parameters, 64 ranks. GB a rank with stage 1?", "GB")
lab.predict("stage_3", "And with stage 3?", "GB")

# %%
stages = {stage: sharding.memory(big, many, stage) for stage in sharding.STAGES}
for id, stage in (("stage_1", 1), ("stage_3", 3)):
    lab.measure(id, sum(stages[stage].values()) / 1e9)
cuts = ("nothing cut", "1: optimizer", "2: and gradients", "3: and parameters")
figures.stacks(
    {"each of 64 ranks": {name: stages[k] for k, name in enumerate(cuts)}},
    "7.5 billion parameters: how much must be cut until they fit?", limit=("a card of 80 GB", 80e9),
)

# %%
for stage, parts in stages.items():
    sends = sharding.bytes_sent(many, 1, stage)
    print(f"stage {stage}: {sum(parts.values()) / 1e9:6.2f} GB a rank, sends {sends:.2f} x the parameters in a step")

# %% [markdown]
# The same as a picture: a panel a stage, a column a rank. Which stage takes most away?

# %% tags=["cover"]
figures.zero_stages(big, 8)

# %% [markdown]
# These are the numbers of figure 1 in the ZeRO paper. Stages 1 and 2 are free. Stage 3 has its price: an all-gather more.
# Try other sizes: how many ranks does a model of 70 billion need until it fits a card?

# %%
def try_out(billions=7.5, ranks=64):
    rows = {name: sharding.memory(billions * 1e9, ranks, k) for k, name in enumerate(cuts)}
    asks = f"{billions:g} billion parameters on {ranks} ranks: do they fit?"
    return figures.stacks({"each rank": rows}, asks, limit=("a card of 80 GB", 80e9))

knobs(try_out, billions=[1.5, 7.5, 70.0, 405.0], ranks=[1, 8, 64, 512, 4096])

# %% [markdown]
# ## From the library
#
# PyTorch's `fully_shard` is stage 3; it is called **FSDP**, *fully sharded data parallel*. Call it on each layer, then
# on the model. With `reshard_after_forward=False` a layer's weights stay whole from the forward to the backward pass:
# the gradients and the state are cut, as in stage 2. Beside them DDP, which copies. DDP's own all-reduces start in C++, where our
# record does not look; PyTorch's `allreduce_hook` does the same from Python.

# %%
def copied_by_ddp(model):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    model = nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, allreduce_hook)
    return model

def cut_by_fsdp(model, reshard):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in [*(part for part in model if isinstance(part, nn.Linear)), model]:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    return model

# %% [markdown]
# A sharded parameter is a `DTensor`: `to_local()` is this rank's part, `full_tensor()` gathers the whole. While a layer
# works, its parameter is an ordinary tensor again. A hook looks at each layer in that moment: how many bytes of whole
# copies are there? The most that it sees are the *gathered* ones.

# %%
# Helper: read what FSDP keeps on a rank
def own_part(t):
    return t.to_local() if hasattr(t, "to_local") else t

def watch_layers(model):
    """A list that grows, whenever a layer works, by the bytes of the parameters that are whole by then."""
    seen = []

    def look(layer, inputs, output):
        seen.append(size_of(p for p in model.parameters() if not hasattr(p, "to_local")))

    for layer in model:
        layer.register_forward_hook(look)
    return seen

# %%
def library(names):
    """For each way in `names`: the weights after two steps, and what this rank keeps."""
    dist.init_process_group("gloo")
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    return {name: two_steps(ways[name], images[mine], labels[mine]) for name in names}

def two_steps(way, x, y):
    model = mlp(sizes, seed=0)
    gathered = watch_layers(model)
    model = way(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):  # the first warms up
        optimizer.zero_grad()
        dist.barrier()
        with span("forward"):
            loss = F.cross_entropy(model(x), y)
        with span("backward"):
            loss.backward()
        optimizer.step()
    weights = flat([p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()])
    return weights, kept_in(model, optimizer) | {"gathered": max(gathered) if way is not copied_by_ddp else 0}

# %%
def kept_in(model, optimizer):
    return {
        "parameters": size_of(own_part(p) for p in model.parameters()),
        "gradients": size_of(own_part(p.grad) for p in model.parameters()),
        "optimizer": size_of(own_part(t) for s in optimizer.state.values() for t in s.values()),
    }

ways = {
    "DDP": copied_by_ddp,
    "FSDP, weights kept after forward": lambda model: cut_by_fsdp(model, reshard=False),
    "FSDP": lambda model: cut_by_fsdp(model, reshard=True),
}
stage_of = dict(zip(ways, (0, 2, 3)))

# %%
lab.predict("fsdp_bytes", "DDP against FSDP, stage 3: how many times as many bytes does FSDP send in a step?", "times")

# %%
run = launch(library, ranks, args=(list(ways),))
for name, (weights, _) in run[0].items():
    print(f"{name}: largest difference of any weight from DDP's: {float((weights - run[0]['DDP'][0]).abs().max()):.0e}")

# %%
figures.stacks(
    {
        name: {
            **{f"rank {r}": run[r][name][1] for r in (0, ranks - 1)},
            f"formula, stage {stage}": formula(stage),
        }
        for name, stage in stage_of.items()
    },
    "Real tensors of one step: what does each way keep?",
)

# %% [markdown]
# Without the gathered copies, FSDP should be at the formula of stage 3. With them it has to be above: at least one layer
# must be whole. That is why one calls `fully_shard` on each layer: called on the model alone it would gather everything at
# once. Where the weights are kept after forward, all layers are whole at the end of the forward pass, as in stage 2;
# FSDP then holds its own part besides.

# %% [markdown]
# Now what they send. The record has every collective of every rank, and the bytes that went in. Round a ring an
# all-reduce sends $\frac{2(n-1)}{n}$ of its input, a reduce-scatter $\frac{n-1}{n}$, an all-gather $n-1$ times its own
# part.

# %%
def second_step(name):
    """The record of the second of this way's two steps."""
    number = 2 * list(ways).index(name) + 1
    forwards = [[s for s in run.trace.spans if s.rank == r and s.label == "forward"] for r in range(ranks)]
    start_s, *after = [min(spans[k].start_s for spans in forwards) for k in range(number, 2 * len(ways))]
    return run.trace.between(start_s, after[0] if after else float("inf"))

def sent_in(trace):
    """What rank 0 sends, by collective."""
    found = {}
    for c in trace.collectives:
        if c.rank == 0 and c.op != "barrier":
            op = c.op.removesuffix("_single").replace("_", "-")
            found[op] = found.get(op, 0) + sharding.bytes_sent_by(c.op, c.size_bytes, ranks)
    return found

# %%
traffic = {name: sent_in(second_step(name)) for name in ways}
totals = {name: sum(parts.values()) for name, parts in traffic.items()}
lab.measure("fsdp_bytes", totals["FSDP"] / totals["DDP"])
for name, total in totals.items():
    print(f"{name}: each rank sends {total / (4 * count) / ((ranks - 1) / ranks):.2f} Ψ (n − 1)/n")

# %%
figures.stacks(
    {
        name: {
            "rank 0": traffic[name],
            f"formula, stage {stage}": {"formula": sharding.bytes_sent(ranks, 4 * count, stage)},
        }
        for name, stage in stage_of.items()
    },
    "Who sends most in a step, and how much more?", "sent in a step",
)

# %% [markdown]
# Ψ is the paper's letter for the bytes of all parameters: 2Ψ for copies and for stages 1 and 2, 3Ψ for stage 3. If your
# figures are a little higher: the last layer's 10 rows may not divide by the number of ranks, and FSDP fills them up. In
# which pass do you see all-gathers, and in which reduce-scatters?

# %%
for name in ways:
    ops = [c.op for c in second_step(name).collectives if c.rank == 0]
    print(name, {op: ops.count(op) for op in dict.fromkeys(ops) if op != "barrier"})
figures.timeline(second_step("FSDP"))

# %% [markdown]
# **In one sentence:** an all-gather more in each step, and everyone uses FSDP all the same. Why?
#
# <details><summary>Compare</summary>The next layer's all-gather can run while this layer computes, so on fast links it is
# hidden; and the memory that it frees holds a larger model or a larger batch, which nothing else can buy.</details>

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Shoeybi and others, *Megatron-LM: training multi-billion parameter language models using model
# parallelism* ([arXiv:1909.08053](https://arxiv.org/abs/1909.08053), 2019): the two cuts, f and g. Rajbhandari and
# others, *ZeRO: memory optimizations toward training trillion parameter models*
# ([arXiv:1910.02054](https://arxiv.org/abs/1910.02054), SC 2020): the stages, their memory and their bytes. Zhao and
# others, *PyTorch FSDP: experiences on scaling fully sharded data parallel*
# ([arXiv:2304.11277](https://arxiv.org/abs/2304.11277), VLDB 2023).
