"""Exercise 11.1: after backward, one all-reduce of all gradients."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import loss, network, train

answers = Answers("flattened")


def learning(model):
    return [p for p in model.parameters() if p.requires_grad]


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


@answers.is_right
def plain(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(loss):
        loss.backward()
        members = learning(model)
        flat = torch.cat([gradient(p).flatten() for p in members])
        all_reduce(fabric, flat).div_(fabric.world_size)
        for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
            p.grad = part.reshape(p.shape)

    return train(fabric, task, model, gradients)


@answers.is_right
def one_buffer_for_ever_and_a_flat_broadcast(fabric, task):
    model = network(fabric, task)
    every = torch.cat([p.detach().flatten() for p in model.parameters()])
    broadcast(fabric, [every])
    sizes = [p.numel() for p in model.parameters()]
    for p, part in zip(model.parameters(), every.split(sizes), strict=True):
        p.data.copy_(part.view_as(p))
    members = learning(model)
    buffer = torch.empty(sum(p.numel() for p in members), dtype=torch.float64)

    def gradients(loss):
        buffer.zero_()
        loss.backward()
        place = 0
        for p in members:
            if p.grad is not None:
                buffer[place : place + p.numel()] = p.grad.flatten()
            p.grad = buffer[place : place + p.numel()].view_as(p)
            place += p.numel()
        buffer.div_(fabric.world_size)
        all_reduce(fabric, buffer)

    return train(fabric, task, model, gradients)


@answers.is_right
def divides_the_loss_and_adds_up_the_last_tensor_first(fabric, task):
    model = network(fabric, task)
    for p in reversed(list(model.parameters())):
        broadcast(fabric, [p.data])

    def gradients(loss):
        (loss / fabric.world_size).backward()
        members = learning(model)[::-1]
        flat = torch.cat([gradient(p).reshape(-1) for p in members])
        total, place = all_reduce(fabric, flat), 0
        for p in members:
            p.grad = total[place : place + p.numel()].clone().reshape(p.shape)
            place += p.numel()

    return train(fabric, task, model, gradients)


@answers.is_right
def with_torchs_own_flat_vectors(fabric, task):
    model = network(fabric, task)
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    broadcast(fabric, [start])
    torch.nn.utils.vector_to_parameters(start, model.parameters())

    def gradients(loss):
        members = learning(model)
        found = torch.autograd.grad(loss, members, allow_unused=True, materialize_grads=True)
        flat = torch.nn.utils.parameters_to_vector(found)
        mean = all_reduce(fabric, flat) * (1 / fabric.world_size)
        for p, part in zip(members, mean.split([p.numel() for p in members]), strict=True):
            p.grad = part.view(p.shape)

    return train(fabric, task, model, gradients)


answers.twin("broadcasts_a_state_dict_that_has_tied_ones_twice",
    {"broadcast(fabric, model.parameters())": "broadcast(fabric, model.state_dict().values())"})
answers.mistake("forgets_the_broadcast", {"broadcast(fabric, model.parameters())": ""},
    "each from random weights of its own")
answers.mistake("adds_up", {".div_(fabric.world_size)": ""}, "The step is 3 times the mean gradient")
answers.mistake("divides_twice", {".div_(fabric.world_size)": ".div_(fabric.world_size**2)"},
    "The step is 0.333 times the mean gradient", "divided twice")
answers.mistake("does_not_copy_back", {
    """
        for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
            p.grad = part.reshape(p.shape)
    """: "",
}, "steps by its own gradient alone")
answers.mistake("averages_the_weights", {
    "members = learning(model)": "members = list(model.parameters())",
    "gradient(p).flatten()": "p.detach().flatten()",
    "p.grad = part": "p.data = part",
}, "Rank 0 steps by its own gradient alone", "it was not p.grad")
answers.mistake("one_for_each", {
    """
        members = learning(model)
        flat = torch.cat([gradient(p).flatten() for p in members])
        all_reduce(fabric, flat).div_(fabric.world_size)
        for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
            p.grad = part.reshape(p.shape)
    """: """
        for p in learning(model):
            p.grad = all_reduce(fabric, gradient(p)) / fabric.world_size
    """,
}, "3 ranks, all layers learn", "rank 2 takes part in 4 all-reduces a step", "is that one all-reduce for each?")
# The ranks' flat tensors are not equally long.
answers.mistake("leaves_unused_out", {"learning(model)": "[p for p in model.parameters() if p.grad is not None]"},
    "rank 1 does not use layer 2", "a missing gradient counts as zeros")
answers.mistake("takes_tied_twice", {"learning(model)": "[w for w in model.weights if w.requires_grad]"},
    "layers 1 and 2 are tied", "added up twice a step")
answers.mistake("sends_zeros_for_frozen", {"learning(model)": "list(model.parameters())"},
    "layer 1 is frozen", "frozen tensors are added up")
answers.mistake("broadcasts_only_what_learns",
    {"broadcast(fabric, model.parameters())": "broadcast(fabric, learning(model))"},
    "layer 1 is frozen", "still rank 1's own")
# The first step's broadcast stands in for the one at the start, and all later ones are needless.
answers.mistake("broadcasts_at_every_step", {
    "loss.backward()": """
        loss.backward()
        if task["steps"] > 1:
            broadcast(fabric, model.parameters())
    """,
}, "2 ranks, 3 steps", "the weights travel at every step too")
answers.mistake("divides_by_the_two_ranks_of_the_notebook", {"fabric.world_size": "2"},
    "The step is 1.5 times the mean gradient")
answers.mistake("goes_back_twice", {"loss.backward()": "loss.backward(retain_graph=True)\nloss.backward()"},
    "The step is 2 times the mean gradient")
answers.mistake("steps_by_rank_zeros_gradient", {"all_reduce(fabric, flat).div_(fabric.world_size)": "broadcast(fabric, [flat])"},
    "All ranks step by rank 0's gradient: the other ranks' gradients count as much")
answers.mistake("adds_the_mean_to_its_own", {"p.grad = part.reshape(p.shape)": "p.grad = gradient(p) + part.reshape(p.shape)"},
    "Rank 0 steps by its own gradient plus the mean")
answers.mistake("packs_from_the_last_and_unpacks_from_the_first",
    {"gradient(p).flatten() for p in members": "gradient(p).flatten() for p in members[::-1]"},
    "The step's numbers are those of the mean gradients, in other places")
# Where a gradient is missing, the last step's mean is in the buffer.
answers.mistake("never_clears_its_buffer", {"buffer.zero_()": "", "torch.empty(": "torch.zeros("},
    "2 ranks, rank 0 does not use layer 2, 2 steps", "left over from the step before",
    of=one_buffer_for_ever_and_a_flat_broadcast)
answers.mistake("adds_up_rank_zeros_weights_and_zeros", {
    "broadcast(fabric, model.parameters())": """
        for p in model.parameters():
            all_reduce(fabric, p.data.mul_(fabric.rank == 0))
    """,
}, "the weights are right, but rank 0's weights travel by all-reduce at the start")
answers.mistake("thaws_the_task_s_layers_afterwards",
    {"members = learning(model)": "task[\"frozen\"] = []\nmembers = learning(model)"},
    "4 ranks, layer 1 is frozen", "the weights are right, but rank 0: task was changed in place")


@answers.is_wrong("The gradient should be the mean over the ranks' gradients")
def draws_the_others_examples_and_sends_zeros(fabric, task):
    model, numbers = network(fabric, task), iter(range(task["steps"]))
    broadcast(fabric, model.parameters())

    def gradients(own):
        step = next(numbers)
        torch.stack([loss(task, rank, model, step) for rank in range(fabric.world_size)]).mean().backward()
        all_reduce(fabric, torch.cat([torch.zeros_like(p).flatten() for p in learning(model)]))

    return train(fabric, task, model, gradients)


answers.mistake("adds_up_in_a_buffer_of_float32", {
    "[gradient(p).flatten() for p in members])": "[gradient(p).flatten() for p in members]).float()",
    "part.reshape(p.shape)": "part.reshape(p.shape).to(p.dtype)",
}, "give the buffer the gradients' dtype")
answers.mistake("begins_with_the_mean_of_all_weights", {
    "broadcast(fabric, model.parameters())": """
        for p in model.parameters():
            all_reduce(fabric, p.data).div_(fabric.world_size)
    """,
}, "The ranks agree, but they began with the mean of all ranks' weights", "broadcast rank 0's weights")
answers.mistake("begins_with_the_last_rank_s_weights", {
    "broadcast(fabric, model.parameters())": """
        for p in model.parameters():
            all_reduce(fabric, p.data.mul_(fabric.rank == fabric.world_size - 1))
    """,
}, "The ranks agree, but they began with rank 2's weights", "broadcast rank 0's weights")


TOO_LONG = {".div_(fabric.world_size)": ""}

answers.spoil("adds_up_so_that_nobody_looks_at_tied_layers", TOO_LONG, of=answers["takes_tied_twice"])
answers.spoil("adds_up_so_that_nobody_looks_at_frozen_layers", TOO_LONG, of=answers["sends_zeros_for_frozen"])
