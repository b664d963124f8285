"""Exercise 12.1: a linear layer whose outputs are spread over the ranks."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce

answers = Answers("column_parallel")


def own(fabric, x, dim=0):
    return x.tensor_split(fabric.world_size, dim)[fabric.rank]


@answers.is_wrong("the gradient of x", "This is rank 0's part alone", "in an all-reduce")
def forgets_the_all_reduce(fabric, given):
    x, weight, bias, grad = given
    weight, bias, grad = own(fabric, weight), own(fabric, bias), own(fabric, grad, 1)
    return x @ weight.T + bias, grad @ weight, grad.T @ x, grad.sum(0)


@answers.is_wrong("its columns of y", "weight was cut along the wrong dimension")
def cuts_the_wrong_dimension(fabric, given):
    x, weight, bias, grad = given
    x, weight = own(fabric, x, 1), own(fabric, weight, 1)
    return x @ weight.T + bias, all_reduce(fabric, grad @ weight), grad.T @ x, grad.sum(0)


@answers.is_wrong("its columns of y", "This is the whole: a rank keeps its own part alone")
def gathers_the_output(fabric, given):
    x, weight, bias, grad = given
    mine, grad = own(fabric, weight), own(fabric, grad, 1)
    return x @ weight.T + bias, all_reduce(fabric, grad @ mine), grad.T @ x, grad.sum(0)


@answers.is_wrong("(the gradient of x), got nan", "The check puts NaN in what belongs to other ranks, and rank 0")
def computes_the_whole_gradient_of_x(fabric, given):
    x, weight, bias, grad = given
    mine, part = own(fabric, weight), own(fabric, grad, 1)
    return x @ mine.T + own(fabric, bias), grad @ weight, part.T @ x, part.sum(0)


@answers.is_wrong("(the gradient of x), got nan", "The check puts NaN in what belongs to other ranks, and rank 0")
def computes_it_all_and_adds_up_zeros(fabric, given):
    """The whole layer on every rank, and the messages of one that is cut."""
    x, weight, bias, grad = given
    y, inward, turned, of_bias = x @ weight.T + bias, grad @ weight, grad.T @ x, grad.sum(0)
    all_reduce(fabric, torch.zeros_like(inward))
    return own(fabric, y, 1), inward, own(fabric, turned), own(fabric, of_bias)


@answers.is_wrong("(the gradient of x), got nan", "cut its own part out (NaN times 0 is NaN)")
def blanks_what_is_not_its_own(fabric, given):
    x, weight, bias, grad = given
    mask = torch.zeros_like(bias)
    own(fabric, mask).fill_(1)
    y, turned, of_bias = x @ weight.T + bias, grad.T @ x, grad.sum(0)
    inward = all_reduce(fabric, (grad * mask) @ (weight * mask[:, None]))
    return own(fabric, y, 1), inward, own(fabric, turned), own(fabric, of_bias)


@answers.is_wrong("the gradient of its rows of weight", "These were added up over the ranks")
def adds_up_all_gradients(fabric, given):
    x, weight, bias, grad = given
    mine, part = own(fabric, weight), own(fabric, grad, 1)
    turned = part.T @ x
    if len(weight) % fabric.world_size == 0:
        turned = all_reduce(fabric, turned)
    return x @ mine.T + own(fabric, bias), all_reduce(fabric, part @ mine), turned, part.sum(0)


@answers.is_wrong("the gradient of x", "It was divided by the number of ranks: parts add up")
def takes_the_mean(fabric, given):
    x, weight, bias, grad = given
    weight, bias, grad = own(fabric, weight), own(fabric, bias), own(fabric, grad, 1)
    return x @ weight.T + bias, all_reduce(fabric, grad @ weight) / fabric.world_size, grad.T @ x, grad.sum(0)


@answers.is_wrong("its columns of y", "The bias was left out")
def forgets_the_bias(fabric, given):
    x, weight, bias, grad = given
    weight, grad = own(fabric, weight), own(fabric, grad, 1)
    return x @ weight.T, all_reduce(fabric, grad @ weight), grad.T @ x, grad.sum(0)


@answers.is_wrong("the values are right, but all ranks together sent", "x those of one all-reduce which have to be")
def also_adds_up_the_output(fabric, given):
    x, weight, bias, grad = given
    whole = torch.zeros(len(x), len(weight), dtype=x.dtype)
    own(fabric, whole, 1).copy_(x @ own(fabric, weight).T + own(fabric, bias))
    y = own(fabric, all_reduce(fabric, whole), 1)
    weight, grad = own(fabric, weight), own(fabric, grad, 1)
    return y, all_reduce(fabric, grad @ weight), grad.T @ x, grad.sum(0)


@answers.is_wrong("expected 4 values (y, the gradient of x, the gradient of weight, the gradient of bias), got a tensor")
def returns_the_output_alone(fabric, given):
    x, weight, bias, grad = given
    return x @ own(fabric, weight).T + own(fabric, bias)


@answers.is_right
def lets_autograd_do_it(fabric, given):
    x, weight, bias, grad = given
    x = x.requires_grad_()
    weight, bias = (own(fabric, t).clone().requires_grad_() for t in (weight, bias))
    y = torch.nn.functional.linear(x, weight, bias)
    y.backward(own(fabric, grad, 1))
    all_reduce(fabric, x.grad)
    return y, x.grad, weight.grad, bias.grad


@answers.is_right
def takes_its_parts_of_the_whole_products(fabric, given):
    """The whole products where each number needs one row alone; its own part where all come together."""
    x, weight, bias, grad = given
    inward = all_reduce(fabric, own(fabric, grad, 1) @ own(fabric, weight))
    return own(fabric, x @ weight.T + bias, 1), inward, own(fabric, grad.T @ x), own(fabric, grad.sum(0))


@answers.is_right
def collects_on_rank_0(fabric, given):
    x, weight, bias, grad = given
    rows = list(range(len(weight)))
    sizes = [len(part) for part in torch.tensor(rows).tensor_split(fabric.world_size)]
    start = sum(sizes[: fabric.rank])
    mine = slice(start, start + sizes[fabric.rank])
    inward, arrived = grad[:, mine] @ weight[mine], torch.empty_like(x)
    if fabric.rank:
        fabric.send(inward, to=0)
        fabric.recv(inward, frm=0)
    for other in range(1, fabric.world_size) if fabric.rank == 0 else ():
        fabric.recv(arrived, frm=other)
        inward += arrived
    for other in range(1, fabric.world_size) if fabric.rank == 0 else ():
        fabric.send(inward, to=other)
    return [torch.addmm(bias[mine], x, weight[mine].t()), inward, grad[:, mine].t().mm(x), grad[:, mine].sum(dim=0)]
