"""Exercise 11.5: several micro-batches a step, one all-reduce."""

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
def asks_for_each_loss_and_packs_them_all(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        for _ in range(task["parts"]):
            (next(losses) / task["parts"]).backward()
        flatten(fabric, model)

    return train(fabric, task, model, gradients)


def flatten(fabric, model, by=1):
    members = learning(model)
    flat = torch.cat([gradient(p).flatten() for p in members])
    all_reduce(fabric, flat).div_(fabric.world_size * by)
    for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
        p.grad = part.view_as(p)


@answers.is_right
def adds_up_by_itself_in_a_buffer(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, [p.data for p in model.parameters()])

    def gradients(losses):
        members = learning(model)
        totals = [torch.zeros_like(p) for p in members]
        while (loss := next(losses, None)) is not None:
            found = torch.autograd.grad(loss, members, allow_unused=True)
            for total, own in zip(totals, found, strict=True):
                if own is not None:
                    total += own
        for p, total in zip(members, totals, strict=True):
            p.grad = all_reduce(fabric, total).div_(task["parts"]).div_(fabric.world_size)

    return train(fabric, task, model, gradients)


@answers.is_right
def divides_the_sum_of_the_gradients_at_the_end(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        list(map(torch.Tensor.backward, losses))
        flatten(fabric, model, by=task["parts"])

    return train(fabric, task, model, gradients)


# ---- all graphs at once ----------------------------------------------------------------------


AT_ONCE = ("forward and backward: the weights are right, but on rank 0", "of 4 micro-batches were in memory at once")


def at_once(fabric, task, back):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        back(losses)
        flatten(fabric, model)

    return train(fabric, task, model, gradients)


@answers.is_wrong(*AT_ONCE)
def one_backward_of_the_sum_of_all_losses(fabric, task):
    return at_once(fabric, task, lambda losses: (sum(losses) / task["parts"]).backward())


@answers.is_wrong(*AT_ONCE)
def one_loss_of_all_parts(fabric, task):
    return at_once(fabric, task, lambda losses: torch.stack(list(losses)).mean().backward())


@answers.is_wrong(*AT_ONCE)
def a_list_of_losses_first(fabric, task):
    def back(losses):
        for loss in list(losses):
            (loss / task["parts"]).backward()

    return at_once(fabric, task, back)


@answers.is_wrong(*AT_ONCE)
def a_running_total_that_goes_back_once(fabric, task):
    def back(losses):
        total = 0.0
        for loss in losses:
            total = total + loss / task["parts"]
        total.backward()

    return at_once(fabric, task, back)


@answers.is_wrong("on rank 0", "of 2 micro-batches were in memory at once")
def always_one_loss_ahead(fabric, task):
    def back(losses):
        before = next(losses)
        for loss in losses:
            (before / task["parts"]).backward()
            before = loss
        (before / task["parts"]).backward()

    return at_once(fabric, task, back)


@answers.is_wrong("4 micro-batches count alike")
def leaves_the_last_part_out(fabric, task):
    """One too few: the last one is asked for and never goes back."""

    def back(losses):
        for number, loss in enumerate(losses):
            if number < task["parts"] - 1:
                (loss / task["parts"]).backward()

    return at_once(fabric, task, back)
