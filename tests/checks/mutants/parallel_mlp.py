"""Exercise 12.3: two layers and a ReLU, cut so that they meet twice."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce

answers = Answers("parallel_mlp")


def parts(fabric, up, down):
    n, rank = fabric.world_size, fabric.rank
    return up.tensor_split(n)[rank], down.tensor_split(n, dim=1)[rank]


def backward(fabric, x, up, down, grad, hidden, masked=True, reduced=True):
    inward = grad @ down
    if masked:
        inward = inward * (hidden > 0)
    back = inward @ up
    if reduced:
        all_reduce(fabric, back)
    return back, inward.T @ x, grad.T @ hidden.relu()


@answers.is_wrong("the values are right, but all ranks together sent", "x those of two all-reduces")
def gathers_the_hidden_layer(fabric, given):
    x, up, down, grad = given
    whole = torch.zeros(len(up), len(x), dtype=x.dtype)
    whole.tensor_split(fabric.world_size)[fabric.rank].copy_((x @ parts(fabric, up, down)[0].T).T)
    whole = all_reduce(fabric, whole)
    up, down = parts(fabric, up, down)
    hidden = whole.tensor_split(fabric.world_size)[fabric.rank].T
    return all_reduce(fabric, hidden.relu() @ down.T), *backward(fabric, x, up, down, grad, hidden)


@answers.is_wrong("(y)", "This is rank 0's part alone")
def forgets_the_sum_forwards(fabric, given):
    x, up, down, grad = given
    up, down = parts(fabric, up, down)
    hidden = x @ up.T
    return hidden.relu() @ down.T, *backward(fabric, x, up, down, grad, hidden)


@answers.is_wrong("the gradient of x", "This is rank 0's part alone")
def forgets_the_sum_backwards(fabric, given):
    x, up, down, grad = given
    up, down = parts(fabric, up, down)
    hidden = x @ up.T
    y = all_reduce(fabric, hidden.relu() @ down.T)
    return y, *backward(fabric, x, up, down, grad, hidden, reduced=False)


@answers.is_wrong("the gradient of x", "The gradient passed ReLU as if it were not there")
def forgets_relu_backwards(fabric, given):
    x, up, down, grad = given
    up, down = parts(fabric, up, down)
    hidden = x @ up.T
    y = all_reduce(fabric, hidden.relu() @ down.T)
    return y, *backward(fabric, x, up, down, grad, hidden, masked=False)


@answers.is_wrong("(y)", "ReLU has to come between the two layers")
def relu_after_the_sum(fabric, given):
    x, up, down, grad = given
    up, down = parts(fabric, up, down)
    hidden = x @ up.T
    return all_reduce(fabric, hidden @ down.T).relu(), *backward(fabric, x, up, down, grad, hidden)


@answers.is_wrong("the gradient of its columns of down", "It was taken with the values before ReLU")
def takes_the_values_before_relu(fabric, given):
    x, up, down, grad = given
    up, down = parts(fabric, up, down)
    hidden = x @ up.T
    y = all_reduce(fabric, hidden.relu() @ down.T)
    back, for_up, _ = backward(fabric, x, up, down, grad, hidden)
    return y, back, for_up, grad.T @ hidden


@answers.is_wrong("(y), got nan", "The check puts NaN in what belongs to other ranks, and rank 0 has computed with it")
def computes_the_whole_forwards(fabric, given):
    x, up, down, grad = given
    y = (x @ up.T).relu() @ down.T
    up, down = parts(fabric, up, down)
    return y, *backward(fabric, x, up, down, grad, x @ up.T)


@answers.is_wrong("(y), got nan", "The check puts NaN in what belongs to other ranks, and rank 0 has computed with it")
def computes_it_all_and_adds_up_zeros(fabric, given):
    """The whole MLP on every rank, and the messages of one that is cut."""
    x, up, down, grad = given
    hidden = x @ up.T
    inward = (grad @ down) * (hidden > 0)
    y, back = hidden.relu() @ down.T, inward @ up
    all_reduce(fabric, torch.zeros_like(y))
    all_reduce(fabric, torch.zeros_like(back))
    return y, back, parts(fabric, inward.T @ x, down)[0], parts(fabric, up, grad.T @ hidden.relu())[1]


@answers.is_wrong("(y), got nan", "The check puts NaN in what belongs to other ranks, and rank 0 has computed with it")
def adds_up_halves_of_the_whole(fabric, given):
    """The whole MLP on every rank again; the sum over the ranks of the n-th part of it is right, too."""
    x, up, down, grad = given
    hidden = x @ up.T
    inward = (grad @ down) * (hidden > 0)
    y = all_reduce(fabric, hidden.relu() @ down.T / fabric.world_size)
    back = all_reduce(fabric, inward @ up / fabric.world_size)
    return y, back, parts(fabric, inward.T @ x, down)[0], parts(fabric, up, grad.T @ hidden.relu())[1]


@answers.is_right
def lets_autograd_do_it(fabric, given):
    x, up, down, grad = given
    x.requires_grad_()
    up, down = (part.clone().requires_grad_() for part in parts(fabric, up, down))
    part = torch.relu(x @ up.T) @ down.T
    part.backward(grad)
    return all_reduce(fabric, part.detach()), all_reduce(fabric, x.grad), up.grad, down.grad


@answers.is_right
def with_where_instead_of_products(fabric, given):
    x, up, down, grad = given
    up, down = parts(fabric, up, down)
    hidden = x @ up.T
    zero = torch.zeros((), dtype=x.dtype)
    active = torch.where(hidden > 0, hidden, zero)
    inward = torch.where(hidden > 0, grad @ down, zero)
    both = torch.stack([active @ down.T, inward @ up])
    all_reduce(fabric, both)
    return [both[0], both[1], inward.T @ x, grad.T @ active]
