"""Exercise 11.1: after backward, one all-reduce for each tensor."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import loss, network, train

answers = Answers("naive")


def averaged(fabric, task, start=None, average=None):
    model = network(fabric, task)
    (start or (lambda m: broadcast(fabric, m.parameters())))(model)

    def gradients(loss):
        loss.backward()
        for p in model.parameters():
            if p.requires_grad:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if average:
            average(model)
            return
        for p in model.parameters():
            if p.requires_grad:
                all_reduce(fabric, p.grad).div_(fabric.world_size)

    return train(fabric, task, model, gradients)


@answers.is_wrong("3 ranks, all layers learn", "each from random weights of its own: broadcast rank 0's")
def forgets_the_broadcast(fabric, task):
    return averaged(fabric, task, start=lambda m: None)


@answers.is_wrong("Rank 0 steps by its own gradient alone", "weights that are alike stay alike when they are averaged")
def averages_the_weights(fabric, task):
    def average(model):
        for p in model.parameters():
            all_reduce(fabric, p.detach()).div_(fabric.world_size)

    return averaged(fabric, task, average=average)


@answers.is_wrong("The step is 3 times the mean gradient", "nobody divided by the number of ranks")
def adds_up(fabric, task):
    def average(model):
        for p in model.parameters():
            if p.requires_grad:
                all_reduce(fabric, p.grad)

    return averaged(fabric, task, average=average)


@answers.is_wrong("The step is 0.333 times the mean gradient", "divided twice by the number of ranks")
def divides_twice(fabric, task):
    def average(model):
        for p in model.parameters():
            if p.requires_grad:
                p.grad /= fabric.world_size
                all_reduce(fabric, p.grad).div_(fabric.world_size)

    return averaged(fabric, task, average=average)


@answers.is_wrong("rank 1 does not use layer 2", "leaves its p.grad None", "it counts as zeros", chance=True)
def ignores_unused(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(loss):
        loss.backward()
        for p in model.parameters():
            if p.grad is not None:
                all_reduce(fabric, p.grad).div_(fabric.world_size)

    return train(fabric, task, model, gradients)


@answers.is_wrong("layers 1 and 2 are tied", "the tensor that two layers share is added up twice a step")
def reduces_tied_twice(fabric, task):
    def average(model):
        for weight in model.weights:
            if weight.requires_grad:
                all_reduce(fabric, weight.grad).div_(fabric.world_size)

    return averaged(fabric, task, average=average)


@answers.is_wrong("layer 1 is frozen", "It is frozen, and still rank 1's own")
def broadcasts_only_what_learns(fabric, task):
    def start(model):
        broadcast(fabric, [p for p in model.parameters() if p.requires_grad])

    return averaged(fabric, task, start=start)


@answers.is_wrong("layer 1 is frozen", "A frozen tensor (p.requires_grad is False) has no gradient")
def expects_a_gradient_of_frozen(fabric, task):
    def average(model):
        for p in model.parameters():
            all_reduce(fabric, p.grad).div_(fabric.world_size)

    return averaged(fabric, task, average=average)


@answers.is_wrong("layer 1 is frozen", "frozen tensors are added up at every step")
def adds_up_zeros_of_frozen(fabric, task):
    def average(model):
        for p in model.parameters():
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            all_reduce(fabric, grad).div_(fabric.world_size)

    return averaged(fabric, task, average=average)


@answers.is_wrong("2 ranks, 3 steps", "the weights travel at every step too")
def broadcasts_at_every_step(fabric, task):
    """The first step's broadcast stands in for the one at the start, and all later ones are needless."""
    def average(model):
        for p in model.parameters():
            if p.requires_grad:
                all_reduce(fabric, p.grad).div_(fabric.world_size)
        if task["steps"] > 1:
            broadcast(fabric, model.parameters())

    return averaged(fabric, task, average=average)


@answers.is_wrong("The gradient should be the mean over the ranks' gradients")
def draws_the_others_examples_and_sends_zeros(fabric, task):
    model, numbers = network(fabric, task), iter(range(task["steps"]))
    broadcast(fabric, model.parameters())

    def gradients(own):
        step = next(numbers)
        torch.stack([loss(task, rank, model, step) for rank in range(fabric.world_size)]).mean().backward()
        for p in model.parameters():
            if p.requires_grad:
                all_reduce(fabric, torch.zeros_like(p))

    return train(fabric, task, model, gradients)


@answers.is_right
def plain(fabric, task):
    return averaged(fabric, task)


@answers.is_right
def from_the_last_to_the_first_and_divided_before(fabric, task):
    model = network(fabric, task)
    for p in reversed(list(model.parameters())):
        broadcast(fabric, [p.data])

    def gradients(loss):
        (loss / fabric.world_size).backward()
        for p in reversed(list(model.parameters())):
            if p.requires_grad:
                total = all_reduce(fabric, torch.zeros_like(p) if p.grad is None else p.grad.clone())
                p.grad = total

    return train(fabric, task, model, gradients)
