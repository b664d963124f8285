"""Exercise 14.3: local steps, then one outer step of all ranks with Nesterov momentum."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce, broadcast

answers = Answers("local_sgd")


def mean(fabric, x):
    return all_reduce(fabric, x.clone()) / fabric.world_size


# ---- wrong -----------------------------------------------------------------------------------


@answers.is_wrong("rate 0.", "This is plain averaging: rate and momentum were left out")
def averages_and_nothing_else(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        weights = mean(fabric, train_locally(weights, number))
    return weights


@answers.is_wrong("rate 0.", "There is no momentum in it")
def has_no_momentum(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        weights = weights - rate * (weights - mean(fabric, train_locally(weights.clone(), number)))
    return weights


@answers.is_wrong("rate 0.", "The rate was left out")
def has_no_rate(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + gradient
        weights = weights - (gradient + momentum * buffer)
    return weights


@answers.is_wrong("changed in place", "The round's start was changed: train_locally may work in its argument. Keep a copy")
def lets_its_start_be_changed(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        end = train_locally(weights, number)
        gradient = weights - mean(fabric, end)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("changed in place", "Keep a copy of the start")
def keeps_a_name_for_a_copy(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        start = weights
        weights = train_locally(weights, number)
        gradient = start - mean(fabric, weights)
        buffer.mul_(momentum).add_(gradient)
        weights = start - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("rate 0.", "This is plain momentum: weights −= rate · buffer")
def is_not_nesterovs(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + gradient
        weights = weights - rate * buffer
    return weights


@answers.is_wrong("rate 0.", "This is plain momentum", "with the buffer that this round's gradient is in")
def steps_before_the_buffer(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        weights = weights - rate * (gradient + momentum * buffer)
        buffer = momentum * buffer + gradient
    return weights


@answers.is_wrong("rate 0.", "The gradient came into the buffer as (1 − momentum) · gradient")
def dampens(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + (1 - momentum) * gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("rate 0.", "The buffer began anew in every round")
def begins_its_buffer_anew(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = torch.zeros_like(weights) * momentum + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("rate 0.", "The buffer began anew in every round")
def makes_an_optimizer_a_round(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        outer = torch.nn.Parameter(weights.clone())
        optimizer = torch.optim.SGD([outer], lr=rate, momentum=momentum, nesterov=momentum > 0)
        outer.grad = weights - mean(fabric, train_locally(weights.clone(), number))
        optimizer.step()
        weights = outer.detach()
    return weights


@answers.is_wrong("3 ranks, 6 weights", "The outer gradient is n times too large: divide by the number of ranks")
def adds_up_and_does_not_divide(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = all_reduce(fabric, weights - train_locally(weights.clone(), number))
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("3 ranks, 6 weights", "The outer step began at the mean of the ranks' ends")
def steps_from_the_mean(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        end = mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + weights - end
        weights = end - rate * (weights - end + momentum * buffer)
    return weights


@answers.is_wrong("3 ranks, 6 weights", "The ends were added up and not divided")
def adds_up_the_ends(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - all_reduce(fabric, train_locally(weights.clone(), number).clone())
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("3 ranks, 6 weights", "The step went the wrong way")
def steps_uphill(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = mean(fabric, train_locally(weights.clone(), number)) - weights
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("3 ranks, 6 weights", "Every rank went its own way: the ends of a round were not averaged")
def trains_alone(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        weights = train_locally(weights, number)
    return weights


@answers.is_wrong("3 ranks, 6 weights", "Every rank went on from its own end: every round begins at")
def averages_in_the_end(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        weights = train_locally(weights, number)
    return mean(fabric, weights)


@answers.is_wrong("3 ranks, 6 weights", "Every rank went on from its own end")
def goes_on_from_its_own_end(fabric, weights, train_locally, rounds, rate, momentum):
    buffer, own = torch.zeros_like(weights), weights.clone()
    for number in range(rounds):
        own = train_locally(own, number)
        gradient = weights - mean(fabric, own)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("3 ranks, 6 weights", "asked for round 0 each time")
def trains_the_first_round_again(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for _ in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), 0))
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("train_locally: expected a round from 0 to 2, got 3")
def counts_from_1(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(1, rounds + 1):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("3 ranks, 6 weights", "These are the weights of the round before: the last outer step is missing")
def leaves_out_the_last_round(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds - 1):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("rate 0.", "the ranks' ends in the last round, averaged: its outer step was not taken")
def returns_the_last_ends(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        end = mean(fabric, train_locally(weights.clone(), number))
        gradient = weights - end
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return end


@answers.is_wrong("the weights are right, but all ranks together sent", "2 x", "Two all-reduces a round")
def averages_the_buffer_too(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = mean(fabric, momentum * buffer + gradient)
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("the weights are right, but all ranks together sent", "The weights travelled once more")
def begins_with_a_broadcast(fabric, weights, train_locally, rounds, rate, momentum):
    broadcast(fabric, [weights])
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("the weights are right, but all ranks together sent", "Every rank has sent its end to every other")
def gathers_all_ends(fabric, weights, train_locally, rounds, rate, momentum):
    n, buffer = fabric.world_size, torch.zeros_like(weights)
    for number in range(rounds):
        ends = weights.new_zeros(n, len(weights))
        ends[fabric.rank] = train_locally(weights.clone(), number)
        gradient = weights - all_gather(fabric, ends.view(-1)).view(n, -1).mean(0)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_wrong("expected the weights as a tensor of shape [6], got None (does the function return it?)")
def returns_nothing(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - mean(fabric, train_locally(weights.clone(), number))
        buffer = momentum * buffer + gradient
        weights -= rate * (gradient + momentum * buffer)


@answers.is_wrong("Nesterov momentum requires a momentum", "hand torch's SGD nesterov=momentum > 0")
def asks_for_nesterov_without_momentum(fabric, weights, train_locally, rounds, rate, momentum):
    outer = torch.nn.Parameter(weights)
    optimizer = torch.optim.SGD([outer], lr=rate, momentum=momentum, nesterov=True)
    for number in range(rounds):
        start = outer.detach().clone()
        outer.grad = start - mean(fabric, train_locally(outer.detach().clone(), number))
        optimizer.step()
    return outer


@answers.is_wrong("3 ranks, 6 weights of float64", "(the weights)", "So far off are numbers that went through float32")
def averages_in_float32(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        end = train_locally(weights.clone(), number)
        gradient = weights - mean(fabric, end.float()).to(weights.dtype)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


# ---- right -----------------------------------------------------------------------------------


@answers.is_right
def as_its_text_says(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        end = train_locally(weights.clone(), number)
        gradient = weights - all_reduce(fabric, end) / fabric.world_size
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_right
def with_the_frameworks_sgd(fabric, weights, train_locally, rounds, rate, momentum):
    outer = torch.nn.Parameter(weights)
    optimizer = torch.optim.SGD([outer], lr=rate, momentum=momentum, nesterov=momentum > 0)
    for number in range(rounds):
        start = outer.detach().clone()
        end = train_locally(outer.detach().clone(), number)
        outer.grad = all_reduce(fabric, start - end).div_(fabric.world_size)
        optimizer.step()
    return outer


@answers.is_right
def averages_what_each_stepped_to(fabric, weights, train_locally, rounds, rate, momentum):
    """Every rank takes the outer step with its own gradient and buffer, and the results are averaged: all of it is linear."""
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        gradient = weights - train_locally(weights.clone(), number)
        buffer = momentum * buffer + gradient
        own = weights - rate * (gradient + momentum * buffer)
        weights = all_reduce(fabric, own) / fabric.world_size
    return weights


@answers.is_right
def with_a_server_and_in_place(fabric, weights, train_locally, rounds, rate, momentum):
    """A star: rank 0 alone takes the outer step, and hands out what it comes to."""
    n, velocity = fabric.world_size, torch.zeros_like(weights)
    for number in range(rounds):
        start = weights.clone()
        end = train_locally(weights, number)
        if fabric.rank:
            fabric.send(end, to=0)
            weights = torch.empty_like(start)
            fabric.recv(weights, frm=0)
            continue

        total, other = end.clone(), torch.empty_like(end)
        for rank in range(1, n):
            fabric.recv(other, frm=rank)
            total += other
        velocity = momentum * velocity + (start - total / n)
        weights = start - rate * momentum * velocity - rate * (start - total / n)
        handles = [fabric.isend(weights, to=rank) for rank in range(1, n)]
        for handle in handles:
            handle.wait()
    return weights
