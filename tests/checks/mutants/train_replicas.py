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


def from_rank_0(fabric, weights):
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


def nothing(*_):
    pass


def train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, take=shards, seed=int):
    begin(fabric, weights)
    history, n = [], fabric.world_size
    for epoch in range(epochs):
        everyone = [take(len(x), batch_size, seed(epoch), rank, n) for rank in range(n)]
        for step, mine in enumerate(everyone[fabric.rank]):
            slopes = gradients(weights, x[mine], y[mine])
            average(fabric, slopes, [len(steps[step]) for steps in everyone])
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= rate * slope
            history.append(flat(weights))
    return torch.stack(history)


def whole_batches(count, batch_size, seed, rank, n):
    return shards(count, batch_size, seed, 0, 1)


# ---- begin and average -----------------------------------------------------------------------


@answers.is_wrong("they stay as far apart as they began")
def begins_anywhere(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, nothing, average)


@answers.is_wrong("the parameters begin and average are not used: wrong ones could not be put in", "call begin and average")
def uses_its_own_parts(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, from_rank_0, mean)


@answers.is_wrong("the weights begin as rank 0's, but not by the parameter begin")
def uses_its_own_begin(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, from_rank_0, average)


@answers.is_wrong("gradients are averaged, but not by the parameter average")
def uses_its_own_average(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, mean)


@answers.is_wrong("3 ranks, 12 examples in one batch", "Every step is 3 times as long as it should be")
def adds_gradients_up(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def added(fabric, slopes, counts):
        for slope in slopes:
            all_reduce(fabric, slope)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, added)


@answers.is_wrong("gradients are averaged, but not by the parameter average", "call begin and average")
def averages_the_weights_after_every_step(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    """From the same weights, the mean of the ranks' next weights is the next of the mean gradient: right, and not by average."""
    begin(fabric, weights)
    history = []
    for epoch in range(epochs):
        everyone = [shards(len(x), batch_size, epoch, rank, fabric.world_size) for rank in range(fabric.world_size)]
        for step, mine in enumerate(everyone[fabric.rank]):
            size = sum(len(steps[step]) for steps in everyone)
            slopes = gradients(weights, x[mine], y[mine]) if mine else [torch.zeros_like(weight) for weight in weights]
            for weight, slope in zip(weights, slopes, strict=True):
                moved = (weight - rate * slope) * len(mine) / size
                weight.copy_(all_reduce(fabric, moved))
            history.append(flat(weights))
    return torch.stack(history)


@answers.is_wrong("The ranks hold different weights, and not by the same amount at every step: are gradients averaged?")
def never_talks(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, nothing)


@answers.is_wrong("In step 0 rank 0 gave average the counts 5, 5; its batch has 7 examples")
def gives_equal_counts(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    """Right where shares are equal."""

    def as_if_equal(fabric, slopes, counts):
        average(fabric, slopes, [5 for _ in counts])

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, as_if_equal)


@answers.is_wrong("average: expected counts, the examples of each of 3 ranks, got [4]")
def gives_its_own_count_alone(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def own(fabric, slopes, counts):
        average(fabric, slopes, [counts[fabric.rank]])

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, own)


@answers.is_wrong("deadlock")
def who_has_nothing_stays_away(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def present(fabric, slopes, counts):
        if counts[fabric.rank]:
            average(fabric, slopes, counts)
        else:
            for slope in slopes:
                slope.zero_()

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, present)


# ---- what travels ----------------------------------------------------------------------------


@answers.is_wrong("the weights are right, but the ranks sent", "Examples and weights stay where they are")
def sends_the_weights_at_every_step(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def again(fabric, slopes, counts):
        from_rank_0(fabric, weights)
        average(fabric, slopes, counts)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, again)


@answers.is_wrong("3 ranks, 12 examples in one batch", "begin was called 3 times: the weights travel once")
def begins_at_every_step(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def again(fabric, slopes, counts):
        begin(fabric, weights)
        average(fabric, slopes, counts)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, again)


@answers.is_wrong("the weights are right, but the ranks sent", "Examples and weights stay where they are")
def tells_rank_0_the_examples(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    """Right values; but every rank also sends its share to rank 0 at each step."""

    def shared(fabric, slopes, counts):
        average(fabric, slopes, counts)
        share = [torch.zeros(2 * count, dtype=torch.float64) for count in counts]
        if fabric.rank:
            fabric.send(share[fabric.rank], to=0)
        else:
            for other in range(1, fabric.world_size):
                fabric.recv(share[other], frm=other)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, shared)


# ---- epochs and shares -----------------------------------------------------------------------


@answers.is_wrong("epoch 1 has the batches of epoch 0: give shards another seed in every epoch")
def takes_the_same_order_in_every_epoch(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, seed=lambda epoch: 0)


@answers.is_wrong("epoch 2 has the batches of epoch 0: give shards another seed in every epoch")
def has_two_orders_in_turn(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, seed=lambda epoch: epoch % 2)


@answers.is_wrong(("ranks took example", "The ranks agree with each other, but not with one process", "is not the mean"))
def has_an_order_of_its_own(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def own(count, batch_size, seed, rank, n):
        return shards(count, batch_size, seed + 100 * fabric.rank, rank, n)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, take=own)


@answers.is_wrong(("The ranks agree with each other, but not with one process", "is not the mean"))
def averages_the_first_share_only(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    """All ranks take rank 0's share: the same on each, and less than the batch."""

    def same(count, batch_size, seed, rank, n):
        return shards(count, batch_size, seed, 0, n)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, take=same)


@answers.is_wrong("with other numbers on each rank", "every rank trained on the whole batch by itself")
def trains_on_everything_everywhere(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    """From one start and by one seed, all ranks walk the same way, and need nobody."""
    talked = fabric.world_size == 3

    def stated(fabric, slopes, counts):
        if talked:
            average(fabric, [torch.zeros_like(slope) for slope in slopes], counts)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, stated, take=whole_batches)


@answers.is_wrong("with other numbers on each rank", "every rank trained on the whole batch by itself, whatever it sent")
def trains_on_everything_and_adds_up_zeros(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def zeros(fabric, slopes, counts):
        average(fabric, [torch.zeros_like(slope) for slope in slopes], counts)

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, zeros, take=whole_batches)


@answers.is_wrong("the weights are right, but the ranks sent", "average was never called")
def trains_on_everything_and_never_talks(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, nothing, take=whole_batches)


@answers.is_wrong("all did all the work", "Each rank is to take its share of the batch")
def averages_gradients_of_the_whole_batch(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, take=whole_batches)


@answers.is_wrong("step 0 is that of rank 0 alone, which took the whole batch")
def one_rank_does_the_work(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def all_or_none(count, batch_size, seed, rank, n):
        batches = shards(count, batch_size, seed, 0, 1)
        return batches if rank == 0 else [[] for _ in batches]

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, take=all_or_none)


@answers.is_wrong("the ranks took 6, 1 examples: shares differ by one at most")
def leaves_one_example_to_the_last(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    def uneven(count, batch_size, seed, rank, n):
        batches = shards(count, batch_size, seed, 0, 1)
        if n == 1:
            return batches
        cuts = [0, *range(len(batches[0]) - n + 1, len(batches[0]) + 1)]
        return [batch[cuts[rank] : cuts[rank + 1]] for batch in batches]

    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average, take=uneven)


# ---- what is returned ------------------------------------------------------------------------


@answers.is_wrong("All rows are alike: keep a copy of the weights after every step, they change in place")
def keeps_views(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    train(fabric, weights, x, y, batch_size, epochs, rate, begin, average)
    return flat(weights).expand(epochs * -(-len(x) // batch_size), 2)


@answers.is_wrong("expected the weights after each of 2 steps as a tensor of shape [2, 2], got shape [2]")
def returns_the_last_weights(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, rate, begin, average)[-1]


@answers.is_wrong("1 rank", "A step takes 0.05 times the gradient of the mean squared error from the weights")
def climbs(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    return train(fabric, weights, x, y, batch_size, epochs, -rate, begin, average)


@answers.is_wrong("1 rank", "A step takes 0.05 times the gradient of the mean squared error from the weights")
def notes_the_weights_before_the_step(fabric, weights, x, y, batch_size, epochs, rate, begin=None, average=None):
    begin(fabric, weights)
    first = flat(weights)[None]
    return torch.cat([first, train(fabric, weights, x, y, batch_size, epochs, rate, nothing, average)[:-1]])


# ---- right -----------------------------------------------------------------------------------


@answers.is_right
def plain(fabric, weights, x, y, batch_size, epochs, learning_rate, begin=from_rank_0, average=mean):
    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, average)


@answers.is_right
def contiguous_shares_and_one_tensor(fabric, weights, x, y, batch_size, epochs, learning_rate, begin=None, average=None):
    """Steps from a line of its own; both gradients travel as one."""
    begin(fabric, weights)
    n, history = fabric.world_size, []
    line = torch.cat(weights)
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(7 * epoch + 3))
        for batch in order.split(batch_size):
            shares = batch.tensor_split(n)
            mine = shares[fabric.rank]  # a tensor of indices
            step = torch.cat(gradients([line[:1], line[1:]], x[mine], y[mine]))
            average(fabric, [step], [len(share) for share in shares])
            line = line - learning_rate * step
            history.append(line)
    return torch.stack(history)


@answers.is_right
def one_gradient_after_the_other(fabric, weights, x, y, batch_size, epochs, learning_rate, begin=None, average=None):
    def each(fabric, slopes, counts):
        for slope in reversed(slopes):
            average(fabric, [slope], counts)

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, each)


@answers.is_right
def deals_the_last_ranks_more(fabric, weights, x, y, batch_size, epochs, learning_rate, begin=None, average=None):
    """Blocks from the end of the batch on."""

    def from_the_end(count, batch_size, seed, rank, n):
        batches = shards(count, batch_size, seed, 0, 1)
        return [torch.tensor(batch).flip(0).tensor_split(n)[n - 1 - rank].tolist() for batch in batches]

    return train(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, average, take=from_the_end)


@answers.is_right
def by_autograd_and_an_optimizer(fabric, weights, x, y, batch_size, epochs, learning_rate, begin=None, average=None):
    begin(fabric, weights)
    slope, intercept = parameters = [torch.nn.Parameter(weight) for weight in weights]
    optimizer = torch.optim.SGD(parameters, lr=learning_rate)
    history = torch.empty(0, 2, dtype=torch.float64)
    n = fabric.world_size
    for epoch in range(epochs):
        for shares in zip(*(shards(len(x), batch_size, 1000 - epoch, r, n) for r in range(n)), strict=True):
            mine = shares[fabric.rank]
            optimizer.zero_grad(set_to_none=False)
            ((slope * x[mine] + intercept - y[mine]) ** 2).mean().backward()
            average(fabric, [p.grad for p in parameters], list(map(len, shares)))
            optimizer.step()
            history = torch.cat([history, torch.cat(parameters).detach()[None]])
    return history
