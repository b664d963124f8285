"""Exercise 10.2: a training with DistributedDataParallel and a DistributedSampler."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

from tests.checks.mutants import Answers
from worldsize.pytorch.models import flat

answers = Answers("train_ddp")


def line(data):
    """As the lab's set-up gives it."""
    model = nn.Linear(data["x"].shape[1], 1, dtype=torch.float64)
    model.load_state_dict({"weight": data["weight"], "bias": data["bias"]})
    return model


def my_device():
    """As the lab's set-up gives it, where there is no GPU."""
    return torch.device("cpu")


def train(
    data, epochs, batch_size, rate, build, loss, wrap=DistributedDataParallel, new_order=True, forget=True, scale=1.0,
    move_batches=True, **ways,
):  # fmt: skip
    device = my_device()
    dataset = TensorDataset(data["x"], data["y"])
    sampler = DistributedSampler(dataset, **ways)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    model, history = wrap(build(data).to(device)), []
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for epoch in range(epochs):
        if new_order:
            sampler.set_epoch(epoch)
        for x, y in loader:
            if forget:
                optimizer.zero_grad()
            if move_batches:
                x, y = x.to(device), y.to(device)
            (scale * loss(model(x), y)).backward()
            optimizer.step()
        history.append(flat([*model.parameters()]))
    return history


@answers.is_wrong("Every epoch has the order of the first one: call sampler.set_epoch(epoch) before each")
def skips_set_epoch(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, new_order=False)


@answers.is_wrong("2 ranks", "ranks 0 and 1 end with different weights", "nothing is wrapped in DistributedDataParallel")
def does_not_wrap(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, wrap=lambda model: model)


@answers.is_wrong("ranks 0 and 1 end with different weights", "ddp.module goes round it")
def calls_the_model_inside(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, wrap=lambda model: DistributedDataParallel(model).module)


@answers.is_wrong("ranks 0 and 1 end with different weights", "it was not the wrapped model that was called")
def trains_a_second_model(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    def wrap(model):
        DistributedDataParallel(model)
        return line(data)

    return train(data, epochs, batch_size, rate, build, loss, wrap=wrap)


@answers.is_wrong("The gradients of earlier steps are still there: optimizer.zero_grad() at every step")
def never_forgets_gradients(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, forget=False)


@answers.is_wrong("2 ranks", "The examples were never shuffled")
def does_not_shuffle(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, shuffle=False)


@answers.is_wrong("The steps are 2 times as long")
def multiplies_by_the_ranks(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, scale=float(dist.get_world_size()))


@answers.is_wrong("The steps are 2 times too short: DDP has divided by the number of ranks already")
def divides_again(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, scale=1 / dist.get_world_size())


@answers.is_wrong("Every rank took all examples: give the loader the sampler")
def forgets_the_sampler(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    loader = DataLoader(TensorDataset(data["x"], data["y"]), batch_size)
    model, history = DistributedDataParallel(build(data)), []
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        history.append(flat([*model.parameters()]))
    return history


@answers.is_wrong("ranks 0 and 1 end with different weights", "Each rank worked out the gradients of all shares by itself")
def takes_the_shares_of_all(data, epochs, batch_size, rate, build=line, loss=mse_loss):
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
def keeps_views(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return [train(data, epochs, batch_size, rate, build, loss)[-1]] * epochs


@answers.is_wrong("expected the weights after each of 3 epochs, a list of 3 tensors of 3 numbers, got 1 of 3 numbers")
def returns_the_last_weights_alone(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss)[-1:]


@answers.is_right
def plain(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss)


@answers.is_right
def by_hand(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    """No optimizer and no loader: the sampler's indices in blocks, and steps on the wrapped model's parameters."""
    device = my_device()
    ddp = DistributedDataParallel(build(data).to(device))
    x, y = data["x"].to(device), data["y"].to(device)
    sampler = DistributedSampler(range(len(data["x"])), dist.get_world_size(), dist.get_rank())
    rows = torch.empty(epochs, 3, dtype=torch.float64)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(batch_size):
            ddp.zero_grad()
            loss(ddp(x[batch]), y[batch]).backward()
            with torch.no_grad():
                for p in ddp.parameters():
                    p -= rate * p.grad
        rows[epoch] = nn.utils.parameters_to_vector(ddp.parameters()).detach()
    return rows


@answers.is_wrong("another model and another loss", "The loss is not the one that was handed in: loss is a parameter")
def ignores_the_loss(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, mse_loss)


@answers.is_wrong("The model is not what build(data) made: build is a parameter, call it")
def ignores_build(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, line, loss)


@answers.is_wrong("The check's own build and loss were not used: they are parameters, call them")
def ignores_build_and_loss(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, line, mse_loss)


@answers.is_wrong("the model stays where build made it", "build(data).to(my_device())")
def moves_the_examples_alone(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    dataset = TensorDataset(data["x"].to(my_device()), data["y"].to(my_device()))
    sampler, ddp, history = DistributedSampler(dataset), DistributedDataParallel(build(data)), []
    optimizer = torch.optim.SGD(ddp.parameters(), rate)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(dataset, batch_size, sampler=sampler):
            optimizer.zero_grad()
            loss(ddp(x), y).backward()
            optimizer.step()
        history.append(flat([*ddp.parameters()]))
    return history


@answers.is_wrong("the examples stay on the CPU", "x.to(device), y.to(device)")
def moves_the_model_alone(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, move_batches=False)


@answers.is_wrong("ranks 0 and 1 end with different weights", "Its forward arms the hooks", "no_sync() disarms them")
def averages_at_the_end_of_an_epoch_only(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    """no_sync on all steps: nobody ever hears of anybody."""
    ddp, dataset, history = DistributedDataParallel(build(data).to(my_device())), TensorDataset(data["x"], data["y"]), []
    sampler = DistributedSampler(dataset)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(dataset, batch_size, sampler=sampler):
            ddp.zero_grad()
            with ddp.no_sync():
                loss(ddp(x), y).backward()
            with torch.no_grad():
                for p in ddp.parameters():
                    p -= rate * p.grad
        history.append(flat([*ddp.parameters()]))
    return history


@answers.is_right
def a_list_of_tensors_for_each_epoch(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return [list(row.split([2, 1])) for row in train(data, epochs, batch_size, rate, build, loss)]


@answers.is_right
def with_device_ids_and_a_loader_of_its_own(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    """device_ids is None on the CPU; the batches are drawn by a batch sampler."""
    device = my_device()
    ids = [device] if device.type == "cuda" else None
    ddp = DistributedDataParallel(build(data).to(device), device_ids=ids, output_device=ids and ids[0])
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate)
    dataset = TensorDataset(torch.as_tensor(data["x"], device=device), torch.as_tensor(data["y"], device=device))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_sampler=BatchSampler(sampler, batch_size, drop_last=False))
    told = torch.zeros(epochs, 3, dtype=torch.float64)
    for epoch, row in enumerate(told):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=False)
            loss(ddp(x), y).backward()
            optimizer.step()
        row.copy_(flat([*ddp.parameters()]))
    return told.numpy()


@answers.is_wrong("the order of the first one, and the gradients of earlier steps are still there")
def forgets_the_epoch_and_the_zeros(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size, rate, build, loss, new_order=False, forget=False)


@answers.is_wrong("Each rank took batch_size // 2 examples in a step: batch_size counts one rank's own")
def divides_the_batch(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    return train(data, epochs, batch_size // dist.get_world_size(), rate, build, loss)


def train_from(loader, data, epochs, rate, build, loss):
    model, history = DistributedDataParallel(build(data)), []
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for epoch in range(epochs):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        history.append(flat([*model.parameters()]))
    return history


@answers.is_wrong("The smaller batch at the end of a share was left out")
def drops_the_last_batch(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    dataset = TensorDataset(data["x"], data["y"])
    loader = DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset), drop_last=True)
    return train_from(loader, data, epochs, rate, build, loss)


@answers.is_wrong("Is the loader given the sampler of every epoch, and no shuffle= of its own?", chance=True)
def shuffles_in_the_loader(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    loader = DataLoader(TensorDataset(data["x"], data["y"]), batch_size, shuffle=True)
    return train_from(loader, data, epochs, rate, build, loss)
