"""Exercise 10.2: a training with DistributedDataParallel and a DistributedSampler."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.checks.mutants import Answers
from worldsize.pytorch.models import flat

answers = Answers("train_ddp")


def line(data):
    """As the lab's set-up gives it."""
    model = nn.Linear(data["x"].shape[1], 1, dtype=torch.float64)
    model.load_state_dict({"weight": data["weight"], "bias": data["bias"]})
    return model


def train(data, epochs, batch_size, rate, wrap=DistributedDataParallel, new_order=True, forget=True, scale=1.0, **ways):
    dataset = TensorDataset(data["x"], data["y"])
    sampler = DistributedSampler(dataset, **ways)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    model, history = wrap(line(data)), []
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for epoch in range(epochs):
        if new_order:
            sampler.set_epoch(epoch)
        for x, y in loader:
            if forget:
                optimizer.zero_grad()
            (scale * nn.functional.mse_loss(model(x), y)).backward()
            optimizer.step()
        history.append(flat([*model.parameters()]))
    return history


@answers.is_wrong("Every epoch has the order of the first one: call sampler.set_epoch(epoch) before each")
def skips_set_epoch(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate, new_order=False)


@answers.is_wrong("2 ranks", "ranks 0 and 1 end with different weights", "nothing is wrapped in DistributedDataParallel")
def does_not_wrap(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate, wrap=lambda model: model)


@answers.is_wrong("ranks 0 and 1 end with different weights", "ddp.module goes round it")
def calls_the_model_inside(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate, wrap=lambda model: DistributedDataParallel(model).module)


@answers.is_wrong("ranks 0 and 1 end with different weights", "it was not the wrapped model that was called")
def trains_a_second_model(data, epochs, batch_size, rate):
    def wrap(model):
        DistributedDataParallel(model)
        return line(data)

    return train(data, epochs, batch_size, rate, wrap=wrap)


@answers.is_wrong("The gradients of earlier steps are still there: optimizer.zero_grad() at every step")
def never_forgets_gradients(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate, forget=False)


@answers.is_wrong("2 ranks", "The examples were never shuffled")
def does_not_shuffle(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate, shuffle=False)


@answers.is_wrong("The steps are 2 times as long")
def multiplies_by_the_ranks(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate, scale=float(dist.get_world_size()))


@answers.is_wrong("The steps are 2 times too short: DDP has divided by the number of ranks already")
def divides_again(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate, scale=1 / dist.get_world_size())


@answers.is_wrong("Every rank took all examples: give the loader the sampler")
def forgets_the_sampler(data, epochs, batch_size, rate):
    loader = DataLoader(TensorDataset(data["x"], data["y"]), batch_size)
    model, history = DistributedDataParallel(line(data)), []
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        history.append(flat([*model.parameters()]))
    return history


@answers.is_wrong("ranks 0 and 1 end with different weights", "Each rank worked out the gradients of all shares by itself")
def takes_the_shares_of_all(data, epochs, batch_size, rate):
    """After a broadcast nobody needs anybody: each knows the order of all ranks, and has all examples."""
    n = dist.get_world_size()
    weights = torch.cat([data["weight"][0], data["bias"]])
    dist.broadcast(weights, 0)
    x, y, history = torch.cat([data["x"], torch.ones_like(data["y"])], 1), data["y"][:, 0], []
    samplers = [DistributedSampler(range(len(x)), n, rank) for rank in range(n)]
    for epoch in range(epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for batches in zip(*[torch.tensor(list(sampler)).split(batch_size) for sampler in samplers], strict=True):
            slope = sum(2 * x[b].T @ (x[b] @ weights - y[b]) / len(b) for b in batches)
            weights = weights - rate / n * slope
        history.append(weights.clone())
    return history


@answers.is_wrong("All rows are alike: keep a copy of the weights")
def keeps_views(data, epochs, batch_size, rate):
    return [train(data, epochs, batch_size, rate)[-1]] * epochs


@answers.is_wrong("expected the weights after each of 3 epochs, a list of 3 tensors of 3 numbers, got 1 of 3 numbers")
def returns_the_last_weights_alone(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate)[-1:]


@answers.is_right
def plain(data, epochs, batch_size, rate):
    return train(data, epochs, batch_size, rate)


@answers.is_right
def by_hand(data, epochs, batch_size, rate):
    """No optimizer and no loader: the sampler's indices in blocks, and steps on the wrapped model's parameters."""
    ddp = DistributedDataParallel(line(data))
    sampler = DistributedSampler(range(len(data["x"])), dist.get_world_size(), dist.get_rank())
    rows = torch.empty(epochs, 3, dtype=torch.float64)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(batch_size):
            ddp.zero_grad()
            (ddp(data["x"][batch]) - data["y"][batch]).square().mean().backward()
            with torch.no_grad():
                for p in ddp.parameters():
                    p -= rate * p.grad
        rows[epoch] = nn.utils.parameters_to_vector(ddp.parameters()).detach()
    return rows
