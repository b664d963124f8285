"""Exercise 4.4: replicas that train as one process does."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce
from worldsize.pytorch.models import flat

answers = Answers("train_replicas")


def gradients(weights, x, y):
    """As the lab's set-up gives it."""
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    slope, intercept = weights
    error = slope * x + intercept - y
    return [2 * (error * x).mean().reshape(1), 2 * error.mean().reshape(1)]


def shards(count, batch_size, seed, rank, n):
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return [order[start : start + batch_size][rank::n] for start in range(0, count, batch_size)]


def begin(fabric, weights):
    for weight in weights:
        if fabric.rank == 0:
            for other in range(1, fabric.world_size):
                fabric.send(weight, to=other)
        else:
            fabric.recv(weight, frm=0)


def mean(fabric, slopes, counts):
    mine, total = counts[fabric.rank], sum(counts)
    for slope in slopes:
        slope.copy_(slope * mine / total if mine else torch.zeros_like(slope))
        all_reduce(fabric, slope)


def train(fabric, weights, x, y, batch_size, epochs, rate, start=begin, average=mean, take=shards):
    start(fabric, weights)
    history, n = [], fabric.world_size
    for epoch in range(epochs):
        everyone = [take(len(x), batch_size, epoch, rank, n) for rank in range(n)]
        for step, mine in enumerate(everyone[fabric.rank]):
            slopes = gradients(weights, x[mine], y[mine])
            average(fabric, slopes, [len(steps[step]) for steps in everyone])
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= rate * slope
            history.append(flat(weights))
    return torch.stack(history)


@answers.is_wrong("they stay as far apart as they began")
def begins_anywhere(fabric, weights, x, y, batch_size, epochs, learning_rate):
    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, start=lambda f, w: None)


@answers.is_wrong("3 ranks, 12 examples in one batch", "Every step is 3 times as long as it should be")
def adds_gradients_up(fabric, weights, x, y, batch_size, epochs, learning_rate):
    def added(fabric, slopes, counts):
        for slope in slopes:
            all_reduce(fabric, slope)

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, average=added)


@answers.is_wrong("2 ranks, 11 examples", "11 examples do not divide by 2: is each rank's gradient weighed by its count?")
def means_of_means(fabric, weights, x, y, batch_size, epochs, learning_rate):
    def averaged(fabric, slopes, counts):
        for slope in slopes:
            all_reduce(fabric, slope).div_(fabric.world_size)

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, average=averaged)


@answers.is_wrong("4 ranks, 18 examples", "A rank that takes no example in a step has NaN for a gradient")
def multiplies_nothing_by_zero(fabric, weights, x, y, batch_size, epochs, learning_rate):
    def averaged(fabric, slopes, counts):
        for slope in slopes:
            all_reduce(fabric, slope.mul_(counts[fabric.rank] / sum(counts)))

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, average=averaged)


@answers.is_wrong("The ranks hold different weights, and not by the same amount at every step: are gradients averaged?")
def never_talks(fabric, weights, x, y, batch_size, epochs, learning_rate):
    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, average=lambda f, s, c: None)


@answers.is_wrong("All rows are alike: keep a copy of the weights after every step, they change in place")
def keeps_views(fabric, weights, x, y, batch_size, epochs, learning_rate):
    train(fabric, weights, x, y, batch_size, epochs, learning_rate)
    return flat(weights).expand(epochs * -(-len(x) // batch_size), 2)


@answers.is_wrong("expected the weights after each of 2 steps as a tensor of shape [2, 2], got shape [2]")
def returns_the_last_weights(fabric, weights, x, y, batch_size, epochs, learning_rate):
    return train(fabric, weights, x, y, batch_size, epochs, learning_rate)[-1]


@answers.is_wrong("1 rank", "A step takes 0.05 times the gradient of the mean squared error from the weights")
def climbs(fabric, weights, x, y, batch_size, epochs, learning_rate):
    return train(fabric, weights, x, y, batch_size, epochs, -learning_rate)


@answers.is_wrong("with 41 examples the ranks sent 3 times as many bytes as with 11", "Examples stay where they are")
def tells_rank_0_the_examples(fabric, weights, x, y, batch_size, epochs, learning_rate):
    """Right values; but every rank also sends its share to rank 0 at each step."""

    def shared(fabric, slopes, counts):
        mean(fabric, slopes, counts)
        share = [torch.zeros(2 * count, dtype=torch.float64) for count in counts]
        if fabric.rank:
            fabric.send(share[fabric.rank], to=0)
        else:
            for other in range(1, fabric.world_size):
                fabric.recv(share[other], frm=other)

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, average=shared)


@answers.is_wrong("The ranks agree with each other, but not with one process")
def averages_the_first_share_only(fabric, weights, x, y, batch_size, epochs, learning_rate):
    """All ranks take rank 0's share: the same on each, and less than the batch."""

    def same(count, batch_size, seed, rank, n):
        return shards(count, batch_size, seed, 0, n)

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, take=same)


def whole_batches(count, batch_size, seed, rank, n):
    return shards(count, batch_size, seed, 0, 1)


@answers.is_wrong("with other numbers on each rank", "every rank trained on the whole batch by itself")
def trains_on_everything_everywhere(fabric, weights, x, y, batch_size, epochs, learning_rate):
    """From one start and by one seed, all ranks walk the same way, and need nobody."""
    return train(
        fabric, weights, x, y, batch_size, epochs, learning_rate, average=lambda f, s, c: None, take=whole_batches
    )


@answers.is_wrong("every rank trained on the whole batch by itself, whatever it sent")
def trains_on_everything_and_adds_up_zeros(fabric, weights, x, y, batch_size, epochs, learning_rate):
    def zeros(fabric, slopes, counts):
        for slope in slopes:
            slope += all_reduce(fabric, torch.zeros_like(slope))

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, average=zeros, take=whole_batches)


@answers.is_wrong("every rank trained on the whole batch by itself, whatever it sent")
def averages_the_weights_at_the_end(fabric, weights, x, y, batch_size, epochs, learning_rate):
    history = trains_on_everything_everywhere(fabric, weights, x, y, batch_size, epochs, learning_rate)
    for weight in weights:
        all_reduce(fabric, weight).div_(fabric.world_size)
    history[-1] = flat(weights) if len(history) > 1 else history[-1]
    return history


@answers.is_wrong("all did all the work", "Each rank is to take its share of the batch")
def averages_gradients_of_the_whole_batch(fabric, weights, x, y, batch_size, epochs, learning_rate):
    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, take=whole_batches)


@answers.is_wrong("the step is that of rank 0 alone, which took the whole batch")
def one_rank_trains_and_tells(fabric, weights, x, y, batch_size, epochs, learning_rate):
    history = []
    begin(fabric, weights)
    for epoch in range(epochs):
        for batch in shards(len(x), batch_size, epoch, 0, 1):
            if fabric.rank == 0:
                for weight, slope in zip(weights, gradients(weights, x[batch], y[batch]), strict=True):
                    weight -= learning_rate * slope
            begin(fabric, weights)
            history.append(flat(weights))
    return torch.stack(history)


@answers.is_wrong("The ranks hold different weights, and not by the same amount at every step: are gradients averaged?")
def averages_the_weights_of_shares_at_the_end(fabric, weights, x, y, batch_size, epochs, learning_rate):
    history = train(fabric, weights, x, y, batch_size, epochs, learning_rate, average=lambda f, s, c: None)
    for weight in weights:
        all_reduce(fabric, weight).div_(fabric.world_size)
    history[-1] = flat(weights)
    return history


@answers.is_right
def plain(fabric, weights, x, y, batch_size, epochs, learning_rate):
    return train(fabric, weights, x, y, batch_size, epochs, learning_rate)


@answers.is_right
def contiguous_shares_and_averaged_weights(fabric, weights, x, y, batch_size, epochs, learning_rate):
    """Every rank steps from the same weights by its share of the gradient; the sum of the steps is the mean's step."""
    begin(fabric, weights)
    n, history = fabric.world_size, []
    line = torch.cat(weights)
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(batch_size):
            mine = batch.tensor_split(n)[fabric.rank]  # a tensor of indices
            step = torch.zeros(2, dtype=torch.float64)
            if len(mine):
                step = torch.cat(gradients([line[:1], line[1:]], x[mine], y[mine])) * len(mine) / len(batch)
            line = line - learning_rate * all_reduce(fabric, step)
            history.append(line)
    return torch.stack(history)


@answers.is_right
def averages_weights_after_every_step(fabric, weights, x, y, batch_size, epochs, learning_rate):
    """From the same weights, the mean of the ranks' next weights is the next of the mean gradient; sums where none is taken."""
    begin(fabric, weights)
    history = []
    for epoch in range(epochs):
        everyone = [shards(len(x), batch_size, epoch, rank, fabric.world_size) for rank in range(fabric.world_size)]
        for step, mine in enumerate(everyone[fabric.rank]):
            size = sum(len(steps[step]) for steps in everyone)
            slopes = gradients(weights, x[mine], y[mine]) if mine else [torch.zeros_like(weight) for weight in weights]
            for weight, slope in zip(weights, slopes, strict=True):
                moved = (weight - learning_rate * slope) * len(mine) / size
                weight.copy_(all_reduce(fabric, moved))
            history.append(flat(weights))
    return torch.stack(history)


@answers.is_right
def deals_the_last_ranks_more(fabric, weights, x, y, batch_size, epochs, learning_rate):
    """Blocks from the end of the batch on."""

    def from_the_end(count, batch_size, seed, rank, n):
        batches = shards(count, batch_size, seed, 0, 1)
        return [torch.tensor(batch).flip(0).tensor_split(n)[n - 1 - rank].tolist() for batch in batches]

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, take=from_the_end)
