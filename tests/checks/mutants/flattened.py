"""Exercise 11.2: after backward, one all-reduce of all gradients."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import network, train

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
