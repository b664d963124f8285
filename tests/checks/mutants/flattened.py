"""Exercise 11.1: after backward, one all-reduce of all gradients."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import loss, network, train

answers = Answers("flattened")


def learning(model):
    return [p for p in model.parameters() if p.requires_grad]


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


def flat_training(fabric, task, pick=learning, start=broadcast, divide=1, copy=True, reverse=False):
    model = network(fabric, task)
    start(fabric, model.parameters())

    def gradients(loss):
        loss.backward()
        members = pick(model)
        flat = torch.cat([gradient(p).flatten() for p in members])
        all_reduce(fabric, flat)
        for _ in range(divide):
            flat /= fabric.world_size
        parts = flat.split([p.numel() for p in members])
        if not copy:
            return
        for p, part in zip(members, reversed(parts) if reverse else parts, strict=True):
            p.grad = part.reshape(p.shape)

    return train(fabric, task, model, gradients)


@answers.is_wrong("each from random weights of its own")
def forgets_the_broadcast(fabric, task):
    return flat_training(fabric, task, start=lambda f, p: None)


@answers.is_wrong("The step is 3 times the mean gradient")
def adds_up(fabric, task):
    return flat_training(fabric, task, divide=0)


@answers.is_wrong("The step is 0.333 times the mean gradient", "divided twice")
def divides_twice(fabric, task):
    return flat_training(fabric, task, divide=2)


@answers.is_wrong("steps by its own gradient alone")
def does_not_copy_back(fabric, task):
    return flat_training(fabric, task, copy=False)


@answers.is_wrong("Rank 0 steps by its own gradient alone", "it was not p.grad")
def averages_the_weights(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(loss):
        loss.backward()
        flat = torch.cat([p.detach().flatten() for p in model.parameters()])
        all_reduce(fabric, flat).div_(fabric.world_size)
        sizes = [p.numel() for p in model.parameters()]
        for p, part in zip(model.parameters(), flat.split(sizes), strict=True):
            p.data = part.view_as(p)

    return train(fabric, task, model, gradients)


@answers.is_wrong("3 ranks, all layers learn", "rank 2 takes part in 4 all-reduces a step", "is that one for each?")
def one_for_each(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(loss):
        loss.backward()
        for p in learning(model):
            p.grad = all_reduce(fabric, gradient(p)) / fabric.world_size

    return train(fabric, task, model, gradients)


@answers.is_wrong("rank 1 does not use layer 2", "it counts as zeros")
def leaves_unused_out(fabric, task):
    """The ranks' flat tensors are not equally long."""
    return flat_training(fabric, task, pick=lambda model: [p for p in model.parameters() if p.grad is not None])


@answers.is_wrong("layers 1 and 2 are tied", "added up twice a step")
def takes_tied_twice(fabric, task):
    return flat_training(fabric, task, pick=lambda model: [w for w in model.weights if w.requires_grad])


@answers.is_wrong("layer 1 is frozen", "frozen tensors are added up")
def sends_zeros_for_frozen(fabric, task):
    return flat_training(fabric, task, pick=lambda model: list(model.parameters()))


@answers.is_wrong("layer 1 is frozen", "still rank 1's own")
def broadcasts_only_what_learns(fabric, task):
    return flat_training(fabric, task, start=lambda f, ps: broadcast(f, [p for p in ps if p.requires_grad]))


@answers.is_wrong("2 ranks, 3 steps", "the weights travel at every step too")
def broadcasts_at_every_step(fabric, task):
    """The first step's broadcast stands in for the one at the start, and all later ones are needless."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(loss):
        average(fabric, loss, model)
        if task["steps"] > 1:
            broadcast(fabric, model.parameters())

    return train(fabric, task, model, gradients)


def average(fabric, loss, model, by=None):
    loss.backward()
    members = learning(model)
    flat = torch.cat([gradient(p).flatten() for p in members])
    all_reduce(fabric, flat).div_(by or fabric.world_size)
    for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
        p.grad = part.view_as(p)


@answers.is_wrong("The gradient should be the mean over the ranks' gradients")
def divides_by_the_two_ranks_of_the_notebook(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    return train(fabric, task, model, lambda loss: average(fabric, loss, model, by=2))


@answers.is_wrong("The gradient should be the mean over the ranks' gradients")
def draws_the_others_examples_and_sends_zeros(fabric, task):
    model, numbers = network(fabric, task), iter(range(task["steps"]))
    broadcast(fabric, model.parameters())

    def gradients(own):
        step = next(numbers)
        torch.stack([loss(task, rank, model, step) for rank in range(fabric.world_size)]).mean().backward()
        all_reduce(fabric, torch.cat([torch.zeros_like(p).flatten() for p in learning(model)]))

    return train(fabric, task, model, gradients)


@answers.is_wrong("a buffer needs their dtype")
def adds_up_in_a_buffer_of_float32(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    members = learning(model)
    buffer = torch.zeros(sum(p.numel() for p in members))

    def gradients(loss):
        loss.backward()
        buffer.copy_(torch.cat([gradient(p).flatten() for p in members]))
        all_reduce(fabric, buffer).div_(fabric.world_size)
        for p, part in zip(members, buffer.split([p.numel() for p in members]), strict=True):
            p.grad = part.view_as(p).to(p.dtype)

    return train(fabric, task, model, gradients)


@answers.is_right
def plain(fabric, task):
    return flat_training(fabric, task)


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
