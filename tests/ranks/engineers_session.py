# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---
# %% [markdown]
# # Data parallelism by hand, on four ranks
# A classifier of two spirals with batch normalisation, trained by four ranks that share its gradients. All of it is written
# here, so all of it may be wrong.

# %%
# ruff: noqa: B018, E402, F403, F405, F811, F821, I001
from worldsize.notebook import *

# %%
import math

import torch
from torch import nn
from torch.nn import functional as F

settings = {"examples": 1200, "batch": 50, "hidden": 24, "rate": 0.02}


# %% [markdown]
# ## Data and model
# Every rank makes the same examples and keeps every fourth.


# %%
def spirals(count):
    """Two spirals with a little noise: points (count, 2) and labels (count,)."""
    draws = torch.Generator().manual_seed(7)
    label = torch.arange(count) % 2
    radius = torch.linspace(0.1, 1, count)
    angle = 2 * math.pi * radius + math.pi * label
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return points + 0.02 * torch.randn(points.shape, generator=draws), label


# %%
class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first = nn.Linear(2, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.second = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.norm(self.first(x))))))


# %% tags=["raises-exception"]
# %%ranks 4
points, labels = [part[rank::world_size] for part in spirals(settings["examples"])]
len(points)

# %% [markdown]
# The settings are the notebook's data, so they have to be pushed.

# %%
world.push(settings=settings)

# %%
# %%ranks
points, labels = [part[rank::world_size] for part in spirals(settings["examples"])]
net = Net(settings["hidden"])
optimizer = torch.optim.Adam(net.parameters(), lr=settings["rate"])
epoch = 0
print(len(points), "examples,", sum(p.numel() for p in net.parameters()), "parameters")

# %% [markdown]
# Each rank has drawn weights of its own. Do they differ?

# %%
world.differ("net")


# %%
def copy_from_rank_0(net):
    for tensor in net.state_dict().values():
        dist.broadcast(tensor, 0)


# %%
# %%ranks
copy_from_rank_0(net)

# %%
world.differ("net")


# %% [markdown]
# ## Training
# Gradients are averaged in buckets, since one message is cheaper than many.


# %%
def average_gradients(net, bucket_elements=600):
    bucket = []
    for parameter in reversed(list(net.parameters())):
        bucket.append(parameter.grad)
        if sum(grad.numel() for grad in bucket) >= bucket_elements:
            average(bucket)
            bucket = []


def average(grads):
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad) / world_size)


# %%
def train(net, optimizer, points, labels, epoch):
    """Train one epoch; its mean loss over all ranks."""
    net.train()
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(epoch))
    losses = []
    for rows in order.split(settings["batch"]):
        loss = F.cross_entropy(net(points[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        average_gradients(net)
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / world_size


# %%
# %%ranks
epoch += 1
print(f"epoch {epoch}: loss {train(net, optimizer, points, labels, epoch):.4f}")

# %% [markdown]
# The loss is a mean over the ranks, so it looks well whatever they do. The weights say more.

# %%
world.differ("net")

# %% [markdown]
# The last bucket, with the layers that come last in the backward pass, is never full, and nobody sends it.


# %%
def average_gradients(net, bucket_elements=600):
    bucket = []
    for parameter in reversed(list(net.parameters())):
        bucket.append(parameter.grad)
        if sum(grad.numel() for grad in bucket) >= bucket_elements:
            average(bucket)
            bucket = []
    if bucket:
        average(bucket)


# %%
# %%ranks
copy_from_rank_0(net)
optimizer = torch.optim.Adam(net.parameters(), lr=settings["rate"])
epoch += 1
print(f"epoch {epoch}: loss {train(net, optimizer, points, labels, epoch):.4f}")

# %%
world.differ("net")

# %% [markdown]
# The weights agree now. The running statistics of the batch normalisation do not: each rank sees its own examples.


# %%
def average_statistics(net):
    for buffer in net.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= world_size


# %%
# %%ranks
for _ in range(3):
    epoch += 1
    loss = train(net, optimizer, points, labels, epoch)
    average_statistics(net)
print(f"epoch {epoch}: loss {loss:.4f}")

# %%
print(world.differ("net"))
print(world.differ("optimizer"))

# %% [markdown]
# ## A bad shard, in the midst of it

# %% tags=["raises-exception"]
# %%ranks
spoilt = points.clone()
if rank == 2:
    spoilt[17] = float("nan")
if not spoilt.isfinite().all():
    raise ValueError(f"example {int((~spoilt.isfinite()).any(1).nonzero())} is not finite")
train(net, optimizer, spoilt, labels, epoch + 1)

# %% [markdown]
# Ranks 0, 1 and 3 waited for rank 2 and were freed, and all keep what they have. Is the model still what it was?

# %%
print("epochs", world["epoch"])
print(world.differ("net"))

# %% [markdown]
# The weights are. But three ranks had a batch through their normalisation before they waited, and rank 2 had none.

# %%
# %%ranks
copy_from_rank_0(net)

# %%
world.differ("net")

# %% [markdown]
# ## A checkpoint

# %%
# %%rank 0
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "checkpoint.pt")

# %%
# %%ranks
losses = []
for _ in range(2):
    epoch += 1
    losses.append(train(net, optimizer, points, labels, epoch))
    average_statistics(net)
print(f"epoch {epoch}: loss {losses[-1]:.4f}")

# %%
straight_on = world["losses"]

# %% [markdown]
# Rank 3 is killed, as by a system that is out of memory. What the others have can still be read.

# %% tags=["raises-exception"]
# %%ranks
import os
import signal

if rank == 3:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()

# %%
world["epoch"]

# %% tags=["raises-exception"]
# %%ranks
epoch

# %%
world.restart()
world.push(settings=settings)

# %%
# %%ranks
points, labels = [part[rank::world_size] for part in spirals(settings["examples"])]
net = Net(settings["hidden"])
optimizer = torch.optim.Adam(net.parameters(), lr=settings["rate"])
saved = torch.load("checkpoint.pt")
net.load_state_dict(saved["net"])
optimizer.load_state_dict(saved["optimizer"])
epoch = saved["epoch"]
losses = []
for _ in range(2):
    epoch += 1
    losses.append(train(net, optimizer, points, labels, epoch))
    average_statistics(net)
print(f"epoch {epoch}: loss {losses[-1]:.4f}")

# %%
print("resumed as if nothing had happened:", world["losses"] == straight_on)
print(world.differ("net"))
run = last_run()

# %%
# %%ranks
for _ in range(20):
    epoch += 1
    train(net, optimizer, points, labels, epoch)
    average_statistics(net)
net.eval()
right = (net(points).argmax(1) == labels).float().mean()
dist.all_reduce(right)
f"{right.item() / world_size:.1%} of the examples are right"

# %%
reduced = [each for each in last_run().trace.collectives if each.rank == 0 and each.op == "all_reduce"]
print(len(reduced), "all-reduces on rank 0")

# %%
world.close()
