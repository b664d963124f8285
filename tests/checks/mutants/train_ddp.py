"""Exercise 10.2: a training with DistributedDataParallel and a DistributedSampler."""

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


def broadcast(model):
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    return model


def average(model, n):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= n


def my_device():
    """As the lab's set-up gives it, where there is no GPU."""
    return torch.device("cpu")


@answers.is_right
def plain(data, epochs, batch_size, rate, build=line, loss=mse_loss):
    device = my_device()
    dataset = TensorDataset(data["x"], data["y"])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    model, history = DistributedDataParallel(build(data).to(device)), []
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            x, y = x.to(device), y.to(device)
            loss(model(x), y).backward()
            optimizer.step()
        history.append(flat([*model.parameters()]))
    return history


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


answers.twin("a_list_of_tensors_for_each_epoch",
    {"return history": "return [list(row.split([2, 1])) for row in history]"})


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


answers.mistake("skips_set_epoch", {"sampler.set_epoch(epoch)": ""},
    "Every epoch has the order of the first one: call sampler.set_epoch(epoch) before each")
answers.mistake("does_not_wrap", {"DistributedDataParallel(build(data).to(device))": "build(data).to(device)"},
    "2 ranks", "ranks 0 and 1 hold different weights", "nothing is wrapped in DistributedDataParallel")
answers.mistake("calls_the_model_inside",
    {"DistributedDataParallel(build(data).to(device))": "DistributedDataParallel(build(data).to(device)).module"},
    "ranks 0 and 1 hold different weights", "ddp.module goes round it")
answers.mistake("trains_a_second_model", {
    "model, history = DistributedDataParallel(build(data).to(device)), []": """
        DistributedDataParallel(build(data).to(device))
        model, history = line(data), []
    """,
}, "ranks 0 and 1 hold different weights", "the unwrapped model was called")
answers.mistake("never_forgets_gradients", {"optimizer.zero_grad()": ""},
    "The gradients of earlier steps are still there: optimizer.zero_grad() at every step")
answers.mistake("does_not_shuffle", {"DistributedSampler(dataset)": "DistributedSampler(dataset, shuffle=False)"},
    "2 ranks", "The examples were never shuffled")
answers.mistake("multiplies_by_the_ranks", {"loss(model(x), y)": "(loss(model(x), y) * dist.get_world_size())"},
    "The steps are 2 times as long")
answers.mistake("divides_again", {"loss(model(x), y)": "(loss(model(x), y) / dist.get_world_size())"},
    "The steps are 2 times too short: DDP has divided by the number of ranks already")
answers.mistake("forgets_the_sampler", {"batch_size, sampler=sampler": "batch_size"},
    "Every rank took all examples: give the loader the sampler")


@answers.is_wrong("ranks 0 and 1 hold different weights", "Each rank computed the gradients of all shares by itself")
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


answers.mistake("keeps_views", {"return history": "return [history[-1]] * epochs"},
    "All rows are equal: keep a copy of the weights")
answers.mistake("never_steps", {"optimizer.step()": ""}, "The weights never moved: call optimizer.step()")
answers.mistake("counts_epochs_from_1", {"set_epoch(epoch)": "set_epoch(epoch + 1)"},
    "The orders are those of epochs 1, 2, …, or of seed 1: sampler.set_epoch(0) comes first")
answers.mistake("has_a_seed_of_its_own", {"DistributedSampler(dataset)": "DistributedSampler(dataset, seed=1)"},
    "or of seed 1", "the sampler's seed stays 0")
answers.mistake("has_a_usual_seed", {"DistributedSampler(dataset)": "DistributedSampler(dataset, seed=42)"},
    "The orders are those of the sampler's seed 42: leave it at 0")
answers.mistake("has_an_odd_seed", {"DistributedSampler(dataset)": "DistributedSampler(dataset, seed=7)"},
    "The orders are those of the sampler's seed 7: leave it at 0")
answers.mistake("tells_the_epoch_when_it_has_ended", {
    "sampler.set_epoch(epoch)": "",
    "history.append(flat": "sampler.set_epoch(epoch)\nhistory.append(flat",
}, "The sampler gave the orders of epochs [0, 0, 1], expected [0, 1, 2]", "before the loop over an epoch's batches")
answers.mistake("tells_the_epoch_at_each_batch", {
    "sampler.set_epoch(epoch)": "",
    "optimizer.zero_grad()": "optimizer.zero_grad()\nsampler.set_epoch(epoch)",
}, "The sampler gave the orders of epochs [0, 0, 1], expected [0, 1, 2]")
answers.mistake("steps_with_adam", {"torch.optim.SGD(model.parameters(), rate)": "torch.optim.Adam(model.parameters(), rate)"},
    "The optimizer is Adam. A plain step is weights -= rate · gradient")
answers.mistake("has_a_rate_of_its_own", {"SGD(model.parameters(), rate)": "SGD(model.parameters(), 0.01)"},
    "The optimizer's lr is 0.01; rate is")
answers.mistake("adds_up_the_loss", {"loss(model(x), y)": "(loss(model(x), y) * len(x))"},
    "Each gradient is multiplied by the number of its batch's examples: the loss is a mean over the batch")
answers.mistake("returns_dicts", {"flat([*model.parameters()])": "model.state_dict()"},
    "expected the weights after each of 3 epochs", "got dicts: make one vector of an epoch's weights")
answers.mistake("notes_the_weights_before_each_epoch", {
    "history.append(flat([*model.parameters()]))": "",
    "sampler.set_epoch(epoch)": "sampler.set_epoch(epoch)\nhistory.append(flat([*model.parameters()]))",
}, "These are the weights before each epoch: note them after it")
answers.mistake("divides_the_rate_by_the_batch", {"SGD(model.parameters(), rate)": "SGD(model.parameters(), rate / batch_size)"},
    "The steps are 3 times too short: the loss is a mean over the batch already")
answers.mistake("steps_once_an_epoch", {
    "optimizer.step()": "",
    "history.append(flat": "optimizer.step()\nhistory.append(flat",
},
    "The weights moved once an epoch, by the last step's gradients: optimizer.step() belongs into the loop over batches")
answers.mistake("steps_once_an_epoch_by_all_gradients", {
    "optimizer.step()": "",
    "history.append(flat": "optimizer.step()\nhistory.append(flat",
    "optimizer.zero_grad()": "",
    "sampler.set_epoch(epoch)": "sampler.set_epoch(epoch)\noptimizer.zero_grad()",
}, "The weights moved once an epoch, by the sum of all steps' gradients")
answers.mistake("zeroes_once_an_epoch", {
    "optimizer.zero_grad()": "",
    "sampler.set_epoch(epoch)": "sampler.set_epoch(epoch)\noptimizer.zero_grad()",
}, "The gradients of an epoch's earlier steps are still there: optimizer.zero_grad() at every step")
answers.mistake("leaves_out_what_does_not_divide", {"DistributedSampler(dataset)": "DistributedSampler(dataset, drop_last=True)"},
    "The sampler left examples out: its drop_last is False by default")
answers.mistake("is_rank_0_everywhere", {"DistributedSampler(dataset)":
    "DistributedSampler(dataset, dist.get_world_size(), 0)"}, "Every rank took rank 0's examples")
answers.mistake("does_not_begin_alike", {"DistributedDataParallel(build(data).to(device))":
    "DistributedDataParallel(build(data).to(device), init_sync=False)"},
    "ranks 0 and 1 hold different weights", "The ranks began with other weights, and kept them apart")
answers.mistake("samples_for_two_ranks", {"DistributedSampler(dataset)": "DistributedSampler(dataset, 2, dist.get_rank())"},
    "3 ranks, 14 examples", "Invalid rank 2")
answers.mistake("trains_three_epochs", {"range(epochs)": "range(3)"},
    "3 ranks, 14 examples", "expected the weights after each of 2 epochs", "got 3 rows")
answers.mistake("averages_by_itself", {
    "DistributedDataParallel(build(data).to(device))": "broadcast(build(data).to(device))",
    "backward()": "backward()\naverage(model, dist.get_world_size())",
}, "3 ranks, 14 examples", "the weights are right, but no DistributedDataParallel was called: wrap the model")
answers.mistake("averages_the_weights_each_epoch", {
    "DistributedDataParallel(build(data).to(device))": "broadcast(build(data).to(device))",
    "history.append(flat": """
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= dist.get_world_size()
        history.append(flat""",
}, "2 ranks", "No DistributedDataParallel was called: wrap the model, call the wrapped one")
answers.mistake("replaces_a_parameter_after_the_wrapping", {
    "optimizer = torch": "model.module.weight = nn.Parameter(model.module.weight.detach().clone())\noptimizer = torch",
}, "Expected to have finished reduction", "Was one replaced or added after the wrapping?")
answers.mistake("averages_over_two_by_itself", {
    "DistributedDataParallel(build(data).to(device))": "broadcast(build(data).to(device))",
    "backward()": "backward()\naverage(model, 2)",
}, "3 ranks, 14 examples", "The ranks' gradients were added up and divided by 2, but there are 3 ranks")
answers.mistake("averages_by_itself_and_does_not_begin_alike", {
    "DistributedDataParallel(build(data).to(device))": "build(data).to(device)",
    "backward()": "backward()\naverage(model, dist.get_world_size())",
}, "ranks 0 and 1 hold different weights", "The ranks began with other weights, and kept them apart")
answers.mistake("ends_the_group", {"return history": "dist.destroy_process_group()\nreturn history"},
    "the process group is gone: the caller made it, so the caller ends it")
answers.mistake("returns_the_last_weights_alone", {"return history": "return history[-1:]"},
    "expected the weights after each of 3 epochs, a list of 3 tensors of 3 numbers, got 1 row of 3 numbers")
answers.mistake("ignores_the_loss", {"loss(model(x), y)": "mse_loss(model(x), y)"},
    "another model and another loss", "The loss is not the given one: loss is a parameter")
answers.mistake("ignores_build", {"build(data)": "line(data)"},
    "The model does not come from build(data): build is a parameter, call it")
answers.mistake("ignores_build_and_loss", {"build(data)": "line(data)", "loss(model(x), y)": "mse_loss(model(x), y)"},
    "The check's own build and loss were not used: they are parameters, call them")
answers.mistake("moves_the_examples_alone", {"build(data).to(device)": "build(data)"},
    "the model stays where build made it", "build(data).to(my_device())")
answers.mistake("moves_the_model_alone", {"x, y = x.to(device), y.to(device)": ""},
    "the examples stay on the CPU", "x.to(device), y.to(device)")
# no_sync on all steps: nobody ever hears of anybody.
answers.mistake("averages_at_the_end_of_an_epoch_only", {
    "loss(model(x), y).backward()": """
        with model.no_sync():
            loss(model(x), y).backward()
    """,
}, "ranks 0 and 1 hold different weights", "Its forward arms the hooks", "no_sync() disarms them")
answers.mistake("forgets_the_epoch_and_the_zeros", {"sampler.set_epoch(epoch)": "", "optimizer.zero_grad()": ""},
    "the order of the first one, and the gradients of earlier steps are still there")
answers.mistake("divides_the_batch", {"batch_size, sampler": "batch_size // dist.get_world_size(), sampler"},
    "Each rank took batch_size // 2 examples in a step: batch_size counts one rank's examples")
answers.mistake("multiplies_the_batch", {"batch_size, sampler": "batch_size * dist.get_world_size(), sampler"},
    "Each rank took 2 · batch_size examples in a step: batch_size counts one rank's examples already")
answers.mistake("drops_the_last_batch", {"sampler=sampler": "sampler=sampler, drop_last=True"},
    "The smaller batch at the end of a share was left out")
answers.mistake("shuffles_in_the_loader", {"sampler=sampler": "shuffle=True"},
    "No DistributedSampler was asked for an order: give the loader the sampler, sampler=…, and no shuffle=True", chance=True)
answers.mistake("decays_the_weights", {"torch.optim.SGD(model.parameters(), rate)":
    "torch.optim.SGD(model.parameters(), rate, weight_decay=1e-4)"}, "the optimizer has weight_decay=0.0001")
answers.mistake("steps_with_momentum", {"torch.optim.SGD(model.parameters(), rate)":
    "torch.optim.SGD(model.parameters(), rate, momentum=0.9)"}, "the optimizer has momentum=0.9")
answers.mistake("decays_the_weights_by_an_odd_number", {"torch.optim.SGD(model.parameters(), rate)":
    "torch.optim.SGD(model.parameters(), rate, weight_decay=2e-5)"}, "The optimizer has weight_decay=2e-05")
