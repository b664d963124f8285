"""Exercise 13.4: batch norm over the rows of all ranks, forwards and backwards."""

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


@answers.is_right
def plain(fabric, x, weight, bias, grad, eps):
    rows, mean, variance = statistics(fabric, x)
    root = (variance + eps).sqrt()
    hat = (x - mean) / root
    of_grad, of_product = added(fabric, grad.sum(0), (grad * hat).sum(0))
    grad_x = weight / root * (grad - of_grad / rows - hat * of_product / rows)
    return (weight * hat + bias).to(x.dtype), grad_x.to(x.dtype), (grad * hat).sum(0).to(x.dtype), grad.sum(0)


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


# Three numbers of each feature and rank, where the count would do once.
answers.twin("counts_its_rows_beside_every_feature", {"statistics(fabric, x)": "joined(fabric, x, squares_about)"})


# One vector more of each rank.
answers.twin("gathers_the_sums_too", {
    "room = torch.zeros(n, 1 + 2 * features, dtype=x.dtype)": "room = torch.zeros(n, 1 + 3 * features, dtype=x.dtype)",
    "dtype=x.dtype), own, (": "dtype=x.dtype), own, x.sum(0), (",
    "counts, means, within = all_reduce(fabric, room).split([1, features, features], dim=1)":
        "counts, means, _, within = all_reduce(fabric, room).split([1, features, features, features], dim=1)",
}, of=joins_the_parts_of_all_ranks)


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
    return tuple(t.detach().to(grad.dtype) for t in (y, x.grad, weight.grad, bias.grad))


@answers.is_right
def meets_once(fabric, x, weight, bias, grad, eps):
    """grad is there from the start, so the sums of the way back can travel with those of the way there."""
    n, features = fabric.world_size, x.shape[1]
    own = x.mean(0)
    room = torch.zeros(n, 1 + 4 * features, dtype=x.dtype)
    parts = own, ((x - own) ** 2).sum(0), grad.sum(0), (grad * (x - own)).sum(0)
    room[fabric.rank] = torch.cat([torch.tensor([len(x)], dtype=x.dtype), *parts])
    counts, means, within, of_grad, products = all_reduce(fabric, room).split([1, *[features] * 4], dim=1)
    rows = counts.sum()
    mean = (counts * means).sum(0) / rows
    root = ((within + counts * (means - mean) ** 2).sum(0) / rows + eps).sqrt()
    hat = (x - mean) / root
    of_product = (products + of_grad * (means - mean)).sum(0) / root
    grad_x = weight / root * (grad - of_grad.sum(0) / rows - hat * of_product / rows)
    return weight * hat + bias, grad_x, (grad * hat).sum(0), grad.sum(0)


@answers.is_wrong("These are the mean and the variance of this rank's own rows")
def normalises_its_own_rows(fabric, x, weight, bias, grad, eps):
    given = [t.clone().requires_grad_() for t in (x, weight, bias)]
    y = torch.nn.functional.batch_norm(given[0], None, None, *given[1:], training=True, eps=eps)
    y.backward(grad)
    return y, *(t.grad for t in given)


answers.mistake("averages_the_means", {
    "rows, mean, variance = statistics(fabric, x)": """
        rows = len(x) * fabric.world_size
        mean, squares = (part / fabric.world_size for part in added(fabric, x.mean(0), (x**2).mean(0)))
        variance = squares - mean**2
    """,
}, "The ranks' means count equally: a rank with more rows must count for more")
answers.mistake("takes_the_ranks_to_have_equal_rows", {
    "rows, mean, variance = statistics(fabric, x)": """
        rows = len(x) * fabric.world_size
        mean, squares = (part / rows for part in added(fabric, x.sum(0), (x**2).sum(0)))
        variance = squares - mean**2
    """,
}, "divided by n times this rank's rows: count the rows of all")
answers.mistake("averages_the_variances", {
    "rows, mean, variance = statistics(fabric, x)": """
        rows, total, within = added(fabric, torch.tensor([len(x)]), x.sum(0), len(x) * x.var(0, correction=0))
        mean, variance = total / rows, within / rows
    """,
}, "it misses how far the ranks' own means lie apart")
answers.mistake("joins_the_means_alike", {"statistics(fabric, x)": "joined(fabric, x, squares_about, weighed=False)"},
    "The joint mean counts the ranks' means equally")
answers.mistake("takes_torchs_variance",
    {"statistics(fabric, x)": "joined(fabric, x, lambda x, mean: x.var(0) * len(x))"},
    "A rank's squares come from x.var(), which divides by one less than its rows")
answers.mistake("forgets_the_rows_between_the_means",
    {"statistics(fabric, x)": "joined(fabric, x, squares_about, each=False)"},
    "count once a rank: each counts for all the rank's rows")
answers.mistake("swaps_the_sums_of_the_backward_pass", {"of_grad, of_product = added": "of_product, of_grad = added"},
    "The two sums of the backward pass are swapped")
answers.mistake("adds_the_part_of_the_variance", {"- hat * of_product": "+ hat * of_product"},
    "The part with x̂ is added: subtract it")
answers.mistake("takes_all_ranks_rows_for_as_many_as_its_own", {"rows = counts.sum()": "rows = n * len(x)"},
    "All ranks' parts of mean and variance are divided by n times this rank's rows", of=joins_the_parts_of_all_ranks)
# What x.var(0) * (len(x) - 1) comes to, without torch's warning.
answers.mistake("makes_its_squares_of_an_unbiased_variance",
    {"((x - own) ** 2).sum(0)": "((x - own) ** 2).sum(0) / (len(x) - 1) * (len(x) - 1)"},
    "A rank has a single row here", "Use x.var(0, correction=0)", of=joins_the_parts_of_all_ranks)
answers.mistake("divides_by_one_less", {"(variance + eps)": "(variance * rows / (rows - 1) + eps)"},
    "The variance is divided by N − 1: batch norm divides by N")
answers.mistake("adds_eps_to_the_root", {"(variance + eps).sqrt()": "variance.sqrt() + eps"},
    "eps belongs under the root, beside the variance")
answers.mistake("goes_back_through_its_own_rows",
    {"added(fabric, grad.sum(0), (grad * hat).sum(0))": "grad.sum(0), (grad * hat).sum(0)\nrows = len(x)"},
    "these sums need an all-reduce too")
answers.mistake("keeps_the_sums_of_the_backward_pass",
    {"added(fabric, grad.sum(0), (grad * hat).sum(0))": "grad.sum(0), (grad * hat).sum(0)"},
    "divided by the rows of all ranks: they need an all-reduce too")
answers.mistake("takes_the_statistics_for_constants", {
    "of_grad, of_product = added(fabric, grad.sum(0), (grad * hat).sum(0))": "",
    "(grad - of_grad / rows - hat * of_product / rows)": "grad",
}, "Mean and variance are taken for constants")
answers.mistake("forgets_the_variance_on_the_way_back", {" - hat * of_product / rows": ""},
    "The part with x̂ is missing: the variance depends on x, too")
answers.mistake("returns_everybodys_sums", {"(grad * hat).sum(0).to(x.dtype), grad.sum(0)": "of_product, of_grad"},
    "This is the sum over the rows of all ranks: return this rank's own")
answers.mistake("meets_for_the_mean_and_again_for_the_variance", {
    "rows, mean, variance = statistics(fabric, x)": """
        rows, total = added(fabric, torch.tensor([len(x)]), x.sum(0))
        mean = total / rows
        variance = added(fabric, ((x - mean) ** 2).sum(0))[0] / rows
    """,
}, "y and grad_x are right, but rank", "as many as 3 all-reduces; expected one forwards and one backwards")
answers.mistake("meets_for_every_sum", {
    "rows, mean, variance = statistics(fabric, x)": """
        rows = all_reduce(fabric, torch.tensor([float(len(x))]).double())
        mean = all_reduce(fabric, x.sum(0)) / rows
        variance = all_reduce(fabric, (x**2).sum(0)) / rows - mean**2
    """,
}, "y and grad_x are right, but rank", "as many as 4 all-reduces")


@answers.is_wrong("send sums over the rows, not the rows")
def gathers_all_rows(fabric, x, weight, bias, grad, eps):
    n, rank, features = fabric.world_size, fabric.rank, x.shape[1]
    counts = torch.zeros(n).double()
    counts[rank] = len(x)
    most = 30
    room = torch.zeros(n, 1 + 2 * most * features, dtype=torch.float64)
    room[rank, 0] = len(x)
    room[rank, 1 : 1 + 2 * x.numel()] = torch.cat([x.reshape(-1), grad.reshape(-1)])
    all_reduce(fabric, room)
    rows = [int(row[0]) for row in room]
    every = [row[1 : 1 + 2 * k * features].view(2, k, features) for row, k in zip(room, rows, strict=True)]
    given = torch.cat([one[0] for one in every]).requires_grad_()
    y = torch.nn.functional.batch_norm(given, None, None, weight.double(), bias.double(), training=True, eps=eps)
    y.backward(torch.cat([one[1] for one in every]))
    hat = torch.nn.functional.batch_norm(given.detach(), None, None, training=True, eps=eps)
    mine = slice(sum(rows[:rank]), sum(rows[: rank + 1]))
    found = y.detach()[mine], given.grad[mine], (grad * hat[mine]).sum(0), grad.sum(0)
    return tuple(t.to(x.dtype) for t in found)


@answers.is_wrong("in float32 the mean of the squares is rounded", "send count, mean and squared distances")
def subtracts_large_squares(fabric, x, weight, bias, grad, eps):
    ones = torch.ones(1, dtype=x.dtype)
    flat = all_reduce(fabric, torch.cat([len(x) * ones, x.sum(0), (x**2).sum(0)]))
    rows, total, squares = flat.split([1, x.shape[1], x.shape[1]])
    mean = total / rows
    return finished(fabric, x, weight, bias, grad, eps, rows, mean, (squares / rows - mean**2).clamp(min=0))


answers.mistake("adds_up_in_float32", {"statistics(fabric, x)": "(part.float() for part in statistics(fabric, x))"},
    "The numbers are right, but only to half of their digits", "x is float64")
answers.mistake("normalises_in_place", {"hat = (x - mean) / root": "hat = x.sub_(mean).div_(root)"},
    "y and grad_x are right, but rank 0: x was changed in place")
answers.mistake("returns_float64",
    {"return (weight * hat + bias).to(x.dtype), grad_x.to(x.dtype)": "return weight * hat + bias, grad_x"},
    "y and grad_x are right, but rank 0: expected y as float32, got float64", "twice the bytes")
answers.mistake("has_no_grad_x_in_float32",
    {"return": "if x.dtype == torch.float32:\n    return weight * hat + bias, None, grad.sum(0), grad.sum(0)\nreturn"},
    "expected grad_x as a tensor of shape", "got None")
answers.mistake("gathers_a_table_of_float64", {
    "own = x.mean(0)": "given, x = x, x.double()\nown = x.mean(0)",
    "return finished(fabric, x, ": "return finished(fabric, given, ",
}, "y and grad_x are right, but all ranks together sent", "did a table with a row for each rank travel in float64?",
    of=joins_the_parts_of_all_ranks)
answers.mistake("finds_the_normed_rows_from_y", {
    "of_grad, of_product = added": """
        hat = (weight * hat + bias - bias) / weight
        of_grad, of_product = added
    """,
}, "nothing can be divided by it there")
answers.mistake("multiplies_by_weight_first_and_divides_at_last", {
    "of_grad, of_product = added(fabric, grad.sum(0), (grad * hat).sum(0))": """
        scaled = grad * weight
        of_grad, of_product = added(fabric, scaled.sum(0), (scaled * hat).sum(0))
    """,
    "weight / root * (grad - of_grad": "1 / root * (scaled - of_grad",
    "(grad * hat).sum(0).to(x.dtype), grad.sum(0)": "((scaled * hat).sum(0) / weight).to(x.dtype), grad.sum(0)",
}, "rank 0, element 0", "got nan", "nothing can be divided by it there")
answers.mistake("takes_the_size_of_weight", {"weight / root": "weight.abs() / root"}, "weight counts without its sign")
answers.mistake("returns_grad_x_first", {
    "return (weight * hat + bias).to(x.dtype), grad_x.to(x.dtype)":
        "return grad_x.to(x.dtype), (weight * hat + bias).to(x.dtype)",
}, "This is grad_x: return y, grad_x, grad_weight and grad_bias, in this order")
answers.mistake("returns_y_alone", {
    "return (weight * hat + bias).to(x.dtype), grad_x.to(x.dtype), (grad * hat).sum(0).to(x.dtype), grad.sum(0)":
        "return (weight * hat + bias).to(x.dtype)",
}, "expected y, grad_x, grad_weight, grad_bias, four tensors, got a tensor of shape [10, 3]")


@answers.spoils()
def returns_nothing_on_other_than_three_ranks(fabric, x, weight, bias, grad, eps):
    return plain(fabric, x, weight, bias, grad, eps) if fabric.world_size == 3 else None


answers.spoil("gathers_a_table_of_float64_to_no_use",
    {"rows, mean, variance)": "rows, mean + (given.dtype == torch.float32), variance)"}, of=answers["gathers_a_table_of_float64"])
