"""Exercise 13.4: batch norm over the rows of all ranks, forwards and backwards."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce

answers = Answers("synced_norm")


def added(fabric, *parts):
    """All ranks' sums of these, in one all-reduce, in float64."""
    flat = torch.cat([part.reshape(-1).double() for part in parts])
    return all_reduce(fabric, flat).split([part.numel() for part in parts])


def statistics(fabric, x):
    """How many rows there are, their mean and their variance."""
    x = x.double()
    rows, total, squares = added(fabric, torch.tensor([len(x)]), x.sum(0), (x**2).sum(0))
    mean = total / rows
    return rows, mean, squares / rows - mean**2


def backward(fabric, x, weight, grad, hat, root, rows, own=None):
    bias_sum, weight_sum = grad.sum(0), (grad * hat).sum(0)
    if own is None:
        of_grad, of_product = added(fabric, bias_sum, weight_sum)
    else:
        of_grad, of_product = bias_sum, weight_sum
    grad_x = weight / root * (grad - of_grad / rows - hat * of_product / rows)
    return grad_x.to(x.dtype), weight_sum.to(x.dtype), bias_sum


def finished(fabric, x, weight, bias, grad, eps, rows, mean, variance):
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    return (weight * hat + bias).to(x.dtype), *backward(fabric, x, weight, grad, hat, root, rows)


@answers.is_wrong("These are the mean and the variance of this rank's own rows")
def normalises_its_own_rows(fabric, x, weight, bias, grad, eps):
    given = [t.clone().requires_grad_() for t in (x, weight, bias)]
    y = torch.nn.functional.batch_norm(given[0], None, None, *given[1:], training=True, eps=eps)
    y.backward(grad)
    return y, *(t.grad for t in given)


@answers.is_wrong("The ranks' means count alike: a rank with more rows has to count for more")
def averages_the_means(fabric, x, weight, bias, grad, eps):
    mean, squares = (part / fabric.world_size for part in added(fabric, x.mean(0), (x**2).mean(0)))
    rows = len(x) * fabric.world_size
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, squares - mean**2)


@answers.is_wrong("divided by n times this rank's rows: count the rows of all")
def takes_the_ranks_to_have_equal_rows(fabric, x, weight, bias, grad, eps):
    rows = len(x) * fabric.world_size
    mean, squares = (part / rows for part in added(fabric, x.sum(0), (x**2).sum(0)))
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, squares - mean**2)


@answers.is_wrong("it misses how far the ranks' own means lie apart")
def averages_the_variances(fabric, x, weight, bias, grad, eps):
    rows, total, within = added(fabric, torch.tensor([len(x)]), x.sum(0), len(x) * x.var(0, correction=0))
    return finished(fabric, x, weight, bias, grad, eps, rows, total / rows, within / rows)


def joined(fabric, x, own, weighed=True, each=True):
    """Rows, mean and variance from every rank's count, mean and squares of each feature, in one table."""
    n, features = fabric.world_size, x.shape[1]
    mean = x.mean(0)
    table = torch.zeros(3, n, features, dtype=x.dtype)
    table[:, fabric.rank] = torch.stack([torch.full_like(mean, len(x)), mean, own(x, mean)])
    counts, means, squares = all_reduce(fabric, table)
    rows = counts.sum(0)
    joint = (counts * means).sum(0) / rows if weighed else means.mean(0)
    between = (counts if each else 1) * (means - joint) ** 2
    return rows, joint, (squares + between).sum(0) / rows


def squares_about(x, mean):
    return ((x - mean) ** 2).sum(0)


@answers.is_wrong("The joint mean counts the ranks' means alike")
def joins_the_means_alike(fabric, x, weight, bias, grad, eps):
    return finished(fabric, x, weight, bias, grad, eps, *joined(fabric, x, squares_about, weighed=False))


@answers.is_wrong("A rank's squares come from x.var(), which divides by one less than its rows")
def takes_torchs_variance(fabric, x, weight, bias, grad, eps):
    def own(x, mean):
        return x.var(0) * len(x)

    return finished(fabric, x, weight, bias, grad, eps, *joined(fabric, x, own))


@answers.is_wrong("count once a rank: each counts for all the rank's rows")
def forgets_the_rows_between_the_means(fabric, x, weight, bias, grad, eps):
    return finished(fabric, x, weight, bias, grad, eps, *joined(fabric, x, squares_about, each=False))


@answers.is_wrong("The part with x̂ is added: it has to be taken away")
def adds_the_part_of_the_variance(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    of_grad, of_product = added(fabric, grad.sum(0), (grad * hat).sum(0))
    grad_x = weight / root * (grad - of_grad / rows + hat * of_product / rows)
    return weight * hat + bias, grad_x, (grad * hat).sum(0), grad.sum(0)


@answers.is_wrong("The variance is divided by N − 1: batch norm divides by N")
def divides_by_one_less(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, variance * rows / (rows - 1))


@answers.is_wrong("eps belongs under the root, beside the variance")
def adds_eps_to_the_root(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    root = variance.sqrt() + eps
    hat = (x - mean) / root
    return weight * hat + bias, *backward(fabric, x, weight, grad, hat, root, rows)


@answers.is_wrong("these sums need an all-reduce too")
def goes_back_through_its_own_rows(fabric, x, weight, bias, grad, eps):
    _, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    return weight * hat + bias, *backward(fabric, x, weight, grad, hat, root, len(x), own=True)


@answers.is_wrong("divided by the rows of all ranks: they need an all-reduce too")
def keeps_the_sums_of_the_backward_pass(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    return weight * hat + bias, *backward(fabric, x, weight, grad, hat, root, rows, own=True)


@answers.is_wrong("Mean and variance are taken for constants")
def takes_the_statistics_for_constants(fabric, x, weight, bias, grad, eps):
    _, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    return weight * hat + bias, weight / root * grad, (grad * hat).sum(0), grad.sum(0)


@answers.is_wrong("The part with x̂ is missing: the variance depends on x, too")
def forgets_the_variance_on_the_way_back(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    of_grad, _ = added(fabric, grad.sum(0), (grad * hat).sum(0))
    return weight * hat + bias, weight / root * (grad - of_grad / rows), (grad * hat).sum(0), grad.sum(0)


@answers.is_wrong("This is the sum over the rows of all ranks: return this rank's own")
def returns_everybodys_sums(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    of_grad, of_product = added(fabric, grad.sum(0), (grad * hat).sum(0))
    grad_x = weight / root * (grad - of_grad / rows - hat * of_product / rows)
    return weight * hat + bias, grad_x, of_product, of_grad


@answers.is_wrong("y and grad_x are right, but rank", "as many as 3 all-reduces; expected one forwards and one backwards")
def meets_for_the_mean_and_again_for_the_variance(fabric, x, weight, bias, grad, eps):
    rows, total = added(fabric, torch.tensor([len(x)]), x.sum(0))
    mean = total / rows
    (squares,) = added(fabric, ((x - mean) ** 2).sum(0))
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, squares / rows)


@answers.is_wrong("y and grad_x are right, but rank", "as many as 4 all-reduces")
def meets_for_every_sum(fabric, x, weight, bias, grad, eps):
    rows = all_reduce(fabric, torch.tensor([float(len(x))]).double())
    mean = all_reduce(fabric, x.sum(0)) / rows
    variance = all_reduce(fabric, (x**2).sum(0)) / rows - mean**2
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, variance)


@answers.is_wrong("send sums over the rows, not the rows")
def gathers_all_rows(fabric, x, weight, bias, grad, eps):
    n, rank, features = fabric.world_size, fabric.rank, x.shape[1]
    counts = torch.zeros(n).double()
    counts[rank] = len(x)
    most = 20
    room = torch.zeros(n, 1 + 2 * most * features, dtype=torch.float64)
    room[rank, 0] = len(x)
    room[rank, 1 : 1 + 2 * x.numel()] = torch.cat([x.reshape(-1), grad.reshape(-1)])
    all_reduce(fabric, room)
    rows = [int(row[0]) for row in room]
    every = [row[1 : 1 + 2 * k * features].view(2, k, features) for row, k in zip(room, rows, strict=True)]
    given = torch.cat([one[0] for one in every]).requires_grad_()
    y = torch.nn.functional.batch_norm(given, None, None, weight, bias, training=True, eps=eps)
    y.backward(torch.cat([one[1] for one in every]))
    hat = (y.detach() - bias) / weight
    mine = slice(sum(rows[:rank]), sum(rows[: rank + 1]))
    return y[mine], given.grad[mine], (grad * hat[mine]).sum(0), grad.sum(0)


@answers.is_wrong("in float32 the mean of the squares is rounded", "send count, mean and squared distances")
def subtracts_large_squares(fabric, x, weight, bias, grad, eps):
    ones = torch.ones(1, dtype=x.dtype)
    flat = all_reduce(fabric, torch.cat([len(x) * ones, x.sum(0), (x**2).sum(0)]))
    rows, total, squares = flat.split([1, x.shape[1], x.shape[1]])
    mean = total / rows
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, (squares / rows - mean**2).clamp(min=0))


@answers.is_wrong("These are the right numbers with half of their digits", "x is float64")
def adds_up_in_float32(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = (part.float() for part in statistics(fabric, x))
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, variance)


@answers.is_wrong("x was changed in place")
def normalises_in_place(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    x -= mean
    x /= root
    return weight * x + bias, *backward(fabric, x, weight, grad, x, root, rows)


@answers.is_wrong("expected y, grad_x, grad_weight, grad_bias, four tensors, got a tensor of shape [10, 3]")
def returns_y_alone(fabric, x, weight, bias, grad, eps):
    return finished(fabric, x, weight, bias, grad, eps, *statistics(fabric, x))[0]


@answers.is_right
def plain(fabric, x, weight, bias, grad, eps):
    return finished(fabric, x, weight, bias, grad, eps, *statistics(fabric, x))


@answers.is_right
def joins_the_parts_of_all_ranks(fabric, x, weight, bias, grad, eps):
    """Chan's formula on counts, means and squared distances, which one all-reduce gathers: a row for each rank."""
    n, features = fabric.world_size, x.shape[1]
    own = x.mean(0)
    room = torch.zeros(n, 1 + 2 * features, dtype=x.dtype)
    room[fabric.rank] = torch.cat([torch.tensor([float(len(x))], dtype=x.dtype), own, ((x - own) ** 2).sum(0)])
    counts, means, within = all_reduce(fabric, room).split([1, features, features], dim=1)
    rows = counts.sum()
    mean = (counts * means).sum(0) / rows
    variance = (within.sum(0) + (counts * (means - mean) ** 2).sum(0)) / rows
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, variance)


@answers.is_right
def counts_its_rows_beside_every_feature(fabric, x, weight, bias, grad, eps):
    """Three numbers of each feature and rank, where the count would do once."""
    return finished(fabric, x, weight, bias, grad, eps, *joined(fabric, x, squares_about))


@answers.is_right
def lets_rank_zero_add_up(fabric, x, weight, bias, grad, eps):
    """A star in place of a ring, each way."""
    n, features = fabric.world_size, x.shape[1]

    def summed(flat):
        if fabric.rank:
            fabric.send(flat, to=0)
            fabric.recv(flat, frm=0)
            return flat
        other = torch.empty_like(flat)
        for rank in range(1, n):
            fabric.recv(other, frm=rank)
            flat += other
        for handle in [fabric.isend(flat, to=rank) for rank in range(1, n)]:
            handle.wait()
        return flat

    wide = x.double()
    flat = summed(torch.cat([torch.tensor([len(x)]), wide.sum(0), wide.square().sum(0)]).double())
    rows, total, squares = flat.split([1, features, features])
    mean = total / rows
    root = (squares / rows - mean**2 + eps).sqrt()
    hat = (wide - mean) / root
    own = [(grad * hat).sum(0), grad.double().sum(0)]
    both = summed(torch.cat(own)).view(2, features) / rows
    y = weight * hat + bias
    grad_x = weight / root * (grad - both[1] - hat * both[0])
    return tuple(t.to(x.dtype) for t in (y, grad_x, *own))


@answers.is_right
def through_autograd(fabric, x, weight, bias, grad, eps):
    """autograd goes back to the sums, the ranks add up what arrives there, and it goes on."""
    x, weight, bias = (t.double().requires_grad_() for t in (x, weight, bias))
    sums = torch.cat([torch.tensor([len(x)]).double(), x.sum(0), (x**2).sum(0)])
    whole = all_reduce(fabric, sums.detach().clone()).requires_grad_()
    rows, total, squares = whole.split([1, x.shape[1], x.shape[1]])
    mean = total / rows
    y = (x - mean) / (squares / rows - mean**2 + eps).sqrt() * weight + bias
    y.backward(grad.double(), retain_graph=True)
    sums.backward(all_reduce(fabric, whole.grad))
    return y, x.grad, weight.grad, bias.grad  # in float64, whatever x is
