"""Exercise 14.4: local steps, then one outer step of all ranks with Nesterov momentum."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce, broadcast

answers = Answers("local_sgd")


def mean(fabric, x):
    return all_reduce(fabric, x.clone()) / fabric.world_size


@answers.is_right
def as_its_text_says(fabric, weights, train_locally, rounds, rate, momentum):
    buffer = torch.zeros_like(weights)
    for number in range(rounds):
        end = train_locally(weights.clone(), number)
        gradient = weights - mean(fabric, end)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    return weights


@answers.is_right
def with_the_frameworks_sgd(fabric, weights, train_locally, rounds, rate, momentum):
    outer = torch.nn.Parameter(weights.clone())
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
    n, velocity, weights = fabric.world_size, torch.zeros_like(weights), weights.clone()
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


answers.mistake("averages_and_nothing_else", {
    """
        gradient = weights - mean(fabric, end)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    """: "weights = mean(fabric, end)",
}, "rate 0.", "This is plain averaging: rate and momentum were left out")
answers.mistake("has_no_momentum", {"(gradient + momentum * buffer)": "gradient"},
    "rate 0.", "There is no momentum in it")
answers.mistake("has_no_rate", {"rate * (gradient": "(gradient"}, "rate 0.", "The rate was left out")
answers.mistake("lets_its_start_be_changed", {"weights.clone()": "weights"},
    "changed in place", "train_locally may change its argument")
answers.mistake("keeps_a_name_for_a_copy", {
    "end = train_locally(weights.clone(), number)": "start = weights\nweights = train_locally(weights, number)",
    "gradient = weights - mean(fabric, end)": "gradient = start - mean(fabric, weights)",
    "weights = weights - rate": "weights = start - rate",
}, "changed in place", "train_locally may change its argument")
answers.mistake("lets_the_copy_that_it_began_with_be_changed", {
    "buffer = torch.zeros_like(weights)": "weights = weights.clone()\nbuffer = torch.zeros_like(weights)",
    "train_locally(weights.clone(), number)": "train_locally(weights, number)",
}, "changed in place",
    "The round's start was changed: train_locally may change its argument. Keep the start, and hand out a copy")
answers.mistake("is_not_nesterovs", {"(gradient + momentum * buffer)": "buffer"},
    "rate 0.", "This is plain momentum: weights −= rate · buffer")
answers.mistake("steps_before_the_buffer", {
    """
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    """: """
        weights = weights - rate * (gradient + momentum * buffer)
        buffer = momentum * buffer + gradient
    """,
}, "rate 0.", "This is plain momentum", "with this round's gradient already in the buffer")
answers.mistake("looks_ahead", {
    """
        end = train_locally(weights.clone(), number)
        gradient = weights - mean(fabric, end)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    """: """
        ahead = weights - rate * momentum * buffer
        end = train_locally(ahead.clone(), number)
        gradient = ahead - mean(fabric, end)
        buffer = momentum * buffer + gradient
        weights = weights - rate * buffer
    """,
}, "rate 0.", "The rounds began at weights − rate · momentum · buffer", "another form of Nesterov's momentum")
answers.mistake("steps_along_the_first_gradient_alone",
    {"(gradient + momentum * buffer)": "(gradient + momentum * buffer if number else gradient)"},
    "rate 0.", "The first step was rate · gradient. It too is rate · (gradient + momentum · buffer)")
answers.mistake("adds_the_buffer_to_itself", {"(gradient + momentum * buffer)": "(1 + momentum) * buffer"},
    "rate 0.", "The step is rate · (1 + momentum) · buffer")
answers.mistake("adds_the_gradient_to_the_buffer", {"(gradient + momentum * buffer)": "(buffer + momentum * gradient)"},
    "rate 0.", "The step is rate · (buffer + momentum · gradient)")
answers.mistake("divides_by_two", {"mean(fabric, end)": "all_reduce(fabric, end.clone()) / 2"},
    "3 ranks, 6 weights", "The sum of the ends was divided by 2, not by the number of ranks")
answers.mistake("adds_up_in_what_train_locally_returned", {"mean(fabric, end)": "all_reduce(fabric, end) / fabric.world_size"},
    "the weights are right, but rank 0: the tensor that train_locally returned in round 0 was changed in place")
answers.mistake("has_the_rate_in_its_buffer_alone", {
    "momentum * buffer + gradient": "momentum * buffer + rate * gradient", "rate * (gradient": "(gradient",
}, "rate 0.", "The rate is in the buffer alone: it multiplies the whole step")
answers.twin("has_the_rate_in_its_buffer_and_in_the_gradient", {
    "momentum * buffer + gradient": "momentum * buffer + rate * gradient",
    "rate * (gradient + momentum * buffer)": "(rate * gradient + momentum * buffer)",
})
answers.mistake("dampens", {"momentum * buffer + gradient": "momentum * buffer + (1 - momentum) * gradient"},
    "rate 0.", "The buffer got (1 − momentum) · gradient")
answers.mistake("begins_its_buffer_anew", {"buffer = momentum * buffer + gradient": "buffer = gradient"},
    "rate 0.", "The buffer began anew in every round")


@answers.is_wrong("rate 0.", "The buffer began anew in every round")
def makes_an_optimizer_a_round(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        outer = torch.nn.Parameter(weights.clone())
        optimizer = torch.optim.SGD([outer], lr=rate, momentum=momentum, nesterov=momentum > 0)
        outer.grad = weights - mean(fabric, train_locally(weights.clone(), number))
        optimizer.step()
        weights = outer.detach()
    return weights


answers.mistake("measures_from_the_first_start", {
    "buffer = torch.zeros_like(weights)": "buffer, first = torch.zeros_like(weights), weights",
    "gradient = weights - mean(fabric, end)": "gradient = first - mean(fabric, end)",
}, "3 ranks, 6 weights", "taken off the weights that came in", "in each round take it off the start of that round")
answers.mistake("adds_up_and_does_not_divide", {"weights - mean(fabric, end)": "all_reduce(fabric, weights - end)"},
    "3 ranks, 6 weights", "The outer gradient is n times too large: divide by the number of ranks")
answers.mistake("steps_from_the_mean", {"weights = weights - rate": "weights = weights - gradient - rate"},
    "3 ranks, 6 weights", "The outer step began at the mean of the ranks' ends")
answers.mistake("adds_up_the_ends", {"mean(fabric, end)": "all_reduce(fabric, end.clone())"},
    "3 ranks, 6 weights", "The ends were added up and not divided")
answers.mistake("steps_uphill", {"weights - mean(fabric, end)": "mean(fabric, end) - weights"},
    "3 ranks, 6 weights", "The step went the wrong way")
answers.mistake("trains_alone", {
    """
        gradient = weights - mean(fabric, end)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    """: "weights = end",
}, "3 ranks, 6 weights", "Every rank went its own way: average the ends of a round")
answers.mistake("averages_in_the_end", {
    """
        gradient = weights - mean(fabric, end)
        buffer = momentum * buffer + gradient
        weights = weights - rate * (gradient + momentum * buffer)
    """: "weights = end",
    "return weights": "return mean(fabric, weights)",
}, "3 ranks, 6 weights", "Every rank went on from its own end: begin every round at")
answers.mistake("goes_on_from_its_own_end", {
    "buffer = torch.zeros_like(weights)": "buffer, end = torch.zeros_like(weights), weights",
    "weights.clone()": "end.clone()",
}, "3 ranks, 6 weights", "Every rank went on from its own end")
answers.mistake("trains_the_first_round_again",
    {"train_locally(weights.clone(), number)": "train_locally(weights.clone(), 0)"},
    "3 ranks, 6 weights", "asked for round 0 each time")
answers.mistake("counts_from_1", {"range(rounds)": "range(1, rounds + 1)"},
    "train_locally: expected a round from 0 to 2, got 3")
answers.mistake("leaves_out_the_last_round", {"range(rounds)": "range(rounds - 1)"},
    "3 ranks, 6 weights", "These are the weights of the round before: the last outer step is missing")
answers.mistake("returns_the_last_ends", {
    "end = train_locally(weights.clone(), number)": "end = mean(fabric, train_locally(weights.clone(), number))",
    "weights - mean(fabric, end)": "weights - end",
    "return weights": "return end",
}, "rate 0.", "the ranks' ends in the last round, averaged: its outer step was not taken")
answers.mistake("averages_the_buffer_too",
    {"buffer = momentum * buffer + gradient": "buffer = mean(fabric, momentum * buffer + gradient)"},
    "the weights are right, but all ranks together sent", "2 x", "Two all-reduces a round")
answers.mistake("begins_with_a_broadcast",
    {"buffer = torch.zeros_like(weights)": "broadcast(fabric, [weights])\nbuffer = torch.zeros_like(weights)"},
    "the weights are right, but all ranks together sent", "The weights travelled once more")
answers.mistake("gathers_all_ends", {
    "gradient = weights - mean(fabric, end)": """
        ends = weights.new_zeros(fabric.world_size, len(weights))
        ends[fabric.rank] = end
        gradient = weights - all_gather(fabric, ends.view(-1)).view(ends.shape).mean(0)
    """,
}, "the weights are right, but all ranks together sent", "Every rank sent its end to every other")
answers.mistake("returns_nothing", {"return weights": ""},
    "expected the weights as a tensor of shape [6], got None (does the function return it?)")
answers.mistake("asks_for_nesterov_without_momentum", {"nesterov=momentum > 0": "nesterov=True"},
    "Nesterov momentum requires a momentum", "hand torch's SGD nesterov=momentum > 0", of=with_the_frameworks_sgd)
answers.mistake("averages_in_float32", {"mean(fabric, end)": "mean(fabric, end.float()).to(weights.dtype)"},
    "3 ranks, 6 weights of float64", "(the weights)", "Numbers that went through float32 are off by this much")
answers.mistake("adds_up_in_float64", {"mean(fabric, end)": "mean(fabric, end.double()).to(weights.dtype)"},
    "of float32", "the weights are right, but", "2 x", "Did the weights travel as 8 bytes a number?")
answers.mistake("averages_in_bfloat16", {"mean(fabric, end)": "mean(fabric, end.bfloat16()).to(weights.dtype)"},
    "3 ranks, 6 weights of float64", "(the weights)", "Numbers that went through bfloat16 or float16 are off by this much")
answers.mistake("lets_the_framework_step_in_what_was_given",
    {"torch.nn.Parameter(weights.clone())": "torch.nn.Parameter(weights)"},
    "are right, but rank 0: the tensor of weights that was handed in was changed in place", of=with_the_frameworks_sgd)
answers.mistake("hands_out_what_it_was_given", {
    "velocity, weights = fabric.world_size, torch.zeros_like(weights), weights.clone()":
        "velocity = fabric.world_size, torch.zeros_like(weights)",
}, "are right, but rank 0: the tensor of weights that was handed in was changed in place", of=with_a_server_and_in_place)
answers.mistake("steps_in_place", {"weights = weights - rate *": "weights -= rate *"},
    "are right, but rank 0: the tensor of weights that was handed in was changed in place")


@answers.spoils()
def averages_three_ranks_alone(fabric, weights, train_locally, rounds, rate, momentum):
    if fabric.world_size == 3 and momentum == 0:
        return as_its_text_says(fabric, weights, train_locally, rounds, rate, momentum)
    return weights.clone()


def averages_alone(fabric, weights, train_locally, rounds, rate, momentum):
    for number in range(rounds):
        weights = mean(fabric, train_locally(weights.clone(), number))
    return weights


answers.spoil("sends_nothing_where_there_is_an_outer_step",
    {"range(rounds)": "range(rounds * (momentum == 0))"}, of=averages_alone)
