"""Exercise 11.6: several micro-batches a step, one all-reduce."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import network, train

answers = Answers("accumulate")


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


def learning(model):
    return [p for p in model.parameters() if p.requires_grad]


def in_parts(fabric, task, start=broadcast, divisor=None, pick=learning, each=None):
    model = network(fabric, task)
    start(fabric, model.parameters())
    by = divisor or (lambda parts, n: parts * n)

    def gradients(losses):
        for loss in losses:
            loss.backward()
            if each:
                each(model)
        for p in pick(model):
            p.grad = all_reduce(fabric, gradient(p)) / by(task["parts"], fabric.world_size)

    return train(fabric, task, model, gradients)


@answers.is_wrong("the gradients travel 4 times a step, after every micro-batch")
def averages_after_every_part(fabric, task):
    """Right values: a mean of what is a mean already changes nothing."""

    def each(model):
        for p in learning(model):
            p.grad = all_reduce(fabric, gradient(p)) / fabric.world_size

    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        for loss in losses:
            (loss / task["parts"]).backward()
            each(model)

    return train(fabric, task, model, gradients)


@answers.is_wrong("The step is 4 times the mean gradient", "micro-batches' gradients add up")
def forgets_the_parts(fabric, task):
    return in_parts(fabric, task, divisor=lambda parts, n: n)


@answers.is_wrong("The step is 12 times the mean gradient", "nothing was divided")
def divides_by_nothing(fabric, task):
    return in_parts(fabric, task, divisor=lambda parts, n: 1)


@answers.is_wrong("The step is 0.333 times the mean gradient", "divided twice")
def divides_twice(fabric, task):
    return in_parts(fabric, task, divisor=lambda parts, n: parts * n * n)


@answers.is_wrong("4 micro-batches count alike: is a gradient zeroed")
def keeps_the_last_part_alone(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        for loss in losses:
            model.zero_grad()
            loss.backward()
        for p in learning(model):
            p.grad = all_reduce(fabric, gradient(p)) / fabric.world_size

    return train(fabric, task, model, gradients)


@answers.is_wrong("each from random weights of its own")
def forgets_the_broadcast(fabric, task):
    return in_parts(fabric, task, start=lambda f, p: None)


@answers.is_wrong("steps by its own gradient alone")
def averages_the_weights(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        for loss in losses:
            (loss / task["parts"]).backward()
        for p in model.parameters():
            all_reduce(fabric, p.data).div_(fabric.world_size)

    return train(fabric, task, model, gradients)


@answers.is_wrong("rank 1 does not use layer 2", "it counts as zeros")
def ignores_unused(fabric, task):
    return in_parts(fabric, task, pick=lambda model: [p for p in model.parameters() if p.grad is not None])


@answers.is_wrong("layers 1 and 2 are tied", "share one tensor")
def divides_tied_twice(fabric, task):
    return in_parts(fabric, task, pick=lambda model: [w for w in model.weights if w.requires_grad])


@answers.is_wrong("layer 1 is frozen", "frozen tensors are added up")
def sends_zeros_for_frozen(fabric, task):
    return in_parts(fabric, task, pick=lambda model: list(model.parameters()))


@answers.is_right
def plain(fabric, task):
    return in_parts(fabric, task)


@answers.is_right
def one_loss_of_all_parts(fabric, task):
    """Needs the memory of all parts at once, but it is right."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        torch.stack(list(losses)).mean().backward()
        members = learning(model)
        flat = torch.cat([gradient(p).flatten() for p in members])
        all_reduce(fabric, flat).div_(fabric.world_size)
        for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
            p.grad = part.view_as(p)

    return train(fabric, task, model, gradients)
