"""Exercise 12.2: a linear layer whose inputs are spread over the ranks."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce

answers = Answers("row_parallel")


def own(fabric, x, dim=1):
    return x.tensor_split(fabric.world_size, dim)[fabric.rank]


@answers.is_wrong("The bias is in it 2 times: every rank added it, and then all were summed")
def adds_the_bias_on_every_rank(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight)
    return all_reduce(fabric, x @ weight.T + bias), grad @ weight, grad.T @ x, grad.sum(0)


@answers.is_wrong("(y)", "This is rank 0's part alone", "in an all-reduce")
def forgets_the_all_reduce(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight)
    return x @ weight.T + bias, grad @ weight, grad.T @ x, grad.sum(0)


@answers.is_wrong("the gradient of its columns of x", "These were added up over the ranks")
def adds_up_the_gradient_of_x(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight)
    inward = grad @ weight
    if given[1].shape[1] % fabric.world_size == 0:
        inward = all_reduce(fabric, inward)
    return all_reduce(fabric, x @ weight.T) + bias, inward, grad.T @ x, grad.sum(0)


@answers.is_wrong("the gradient of bias", "It is 2 times too large")
def adds_up_the_gradient_of_the_bias(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight)
    return all_reduce(fabric, x @ weight.T) + bias, grad @ weight, grad.T @ x, all_reduce(fabric, grad.sum(0))


@answers.is_wrong("(y)", "It was divided by the number of ranks: parts add up")
def takes_the_mean(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight)
    return all_reduce(fabric, x @ weight.T) / fabric.world_size + bias, grad @ weight, grad.T @ x, grad.sum(0)


@answers.is_wrong("shapes cannot be multiplied", "weight is [outputs, inputs]: cut it along dimension 1")
def cuts_the_wrong_dimension(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight, 0)
    return all_reduce(fabric, x @ weight.T) + bias, grad @ weight, grad.T @ x, grad.sum(0)


@answers.is_wrong("the gradient of its columns of x", "This is the whole: a rank keeps its own part alone")
def returns_the_whole_gradient_of_x(fabric, given):
    x, weight, bias, grad = given
    return all_reduce(fabric, x @ own(fabric, weight).T) + bias, grad @ weight, grad.T @ x, grad.sum(0)


@answers.is_wrong("(y), got nan", "The check puts NaN in what belongs to other ranks, and rank 0 has computed with it")
def gathers_x_besides(fabric, given):
    x, weight, bias, grad = given
    whole = torch.zeros(weight.shape[1], len(x), dtype=x.dtype)
    own(fabric, whole, 0).copy_(x.T)
    y = all_reduce(fabric, whole).T @ weight.T + bias
    return all_reduce(fabric, y) / fabric.world_size, grad @ own(fabric, weight), grad.T @ x, grad.sum(0)


@answers.is_wrong("the values are right, but all ranks together sent", "x those of one all-reduce which have to be")
def adds_the_bias_up_besides(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight)
    y = all_reduce(fabric, x @ weight.T) + all_reduce(fabric, bias / fabric.world_size)
    return y, grad @ weight, grad.T @ x, grad.sum(0)


@answers.is_right
def adds_the_bias_on_rank_0(fabric, given):
    x, weight, bias, grad = given
    weight = own(fabric, weight).contiguous()
    part = x.mm(weight.t())
    if fabric.rank == 0:
        part += bias
    return all_reduce(fabric, part), grad.mm(weight), grad.t().mm(x), torch.ones(len(grad), dtype=grad.dtype) @ grad


@answers.is_right
def reduces_and_gathers_in_two_halves(fabric, given):
    from worldsize.fabric.collectives import reduce_scatter

    x, weight, bias, grad = given
    weight = own(fabric, weight)
    part = x @ weight.T
    flat = torch.empty(part.numel(), dtype=part.dtype)
    own(fabric, flat, 0).copy_(reduce_scatter(fabric, part.flatten()))
    y = all_gather(fabric, flat).view(part.shape) + bias
    return [y, torch.einsum("bo,oi->bi", grad, weight), torch.einsum("bo,bi->oi", grad, x), grad.sum(dim=0)]
