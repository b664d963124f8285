"""Exercise 4.4: replicas that train as one process does."""

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


def sown(count, batch_size, seed, rank, n):
    torch.manual_seed(seed)
    order = torch.randperm(count).tolist()
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


def uneven(count, batch_size, seed, rank, n):
    batches = shards(count, batch_size, seed, 0, 1)
    if n == 1:
        return batches
    cuts = [0, *range(len(batches[0]) - n + 1, len(batches[0]) + 1)]
    return [batch[cuts[rank] : cuts[rank + 1]] for batch in batches]


def from_the_end(count, batch_size, seed, rank, n):
    batches = shards(count, batch_size, seed, 0, 1)
    return [torch.tensor(batch).flip(0).tensor_split(n)[n - 1 - rank].tolist() for batch in batches]


@answers.is_right
def plain(fabric, weights, x, y, batch_size, epochs, rate, begin=from_rank_0, average=mean):
    begin(fabric, weights)
    history, n = [], fabric.world_size
    for epoch in range(epochs):
        everyone = [shards(len(x), batch_size, epoch, rank, n) for rank in range(n)]
        for step, mine in enumerate(everyone[fabric.rank]):
            counts = [len(steps[step]) for steps in everyone]
            slopes = gradients(weights, x[mine], y[mine])
            average(fabric, slopes, counts)
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= rate * slope
            history.append(flat(weights))
    return torch.stack(history)


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
    for weight, value in zip(weights, line.split(1), strict=True):
        weight.copy_(value)
    return torch.stack(history)


answers.twin("one_gradient_after_the_other", {
    "average(fabric, slopes, counts)": """
        for slope in reversed(slopes):
            average(fabric, [slope], counts)
    """,
})
# Blocks from the end of the batch on.
answers.twin("deals_the_last_ranks_more",
    {"shards(len(x), batch_size, epoch, rank, n)": "from_the_end(len(x), batch_size, epoch, rank, n)"})


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


answers.mistake("begins_anywhere", {"begin(fabric, weights)": ""}, "they stay as far apart as they began")
answers.mistake("uses_its_own_parts", {
    "begin(fabric, weights)": "from_rank_0(fabric, weights)",
    "average(fabric, slopes, counts)": "mean(fabric, slopes, counts)",
}, "the training uses its own begin and average", "Call the parameters begin and average")
answers.mistake("uses_its_own_begin", {"begin(fabric, weights)": "from_rank_0(fabric, weights)"},
    "the weights start as rank 0's, but not by the parameter begin")
answers.mistake("uses_its_own_average", {"average(fabric, slopes, counts)": "mean(fabric, slopes, counts)"},
    "gradients are averaged, but not by the parameter average")
answers.mistake("adds_gradients_up", {
    "average(fabric, slopes, counts)": """
        for slope in slopes:
            all_reduce(fabric, slope)
    """,
}, "3 ranks, 12 examples in one batch", "Every step is 3 times as long as it should be: were gradients added up")
# From the same weights, the mean of the ranks' next weights is the next of the mean gradient: right, and not by
# average.
answers.mistake("averages_the_weights_after_every_step", {
    """
        slopes = gradients(weights, x[mine], y[mine])
        average(fabric, slopes, counts)
    """: "slopes = gradients(weights, x[mine], y[mine]) if mine else [torch.zeros_like(weight) for weight in weights]",
    "weight -= rate * slope": "weight.copy_(all_reduce(fabric, (weight - rate * slope) * len(mine) / sum(counts)))",
}, "gradients are averaged, but not by the parameter average", "Call the parameters begin and average")
answers.mistake("never_talks", {"average(fabric, slopes, counts)": ""},
    "The ranks hold different weights, and their gap changes from step to step: are gradients averaged?")
answers.mistake("divides_the_rate_by_the_ranks", {"weight -= rate * slope": "weight -= rate / n * slope"},
    "3 ranks, 12 examples in one batch", "Every step is 0.333 times as long as learning_rate times the mean gradient")
answers.mistake("has_a_rate_of_its_own", {"weight -= rate * slope": "weight -= 0.05 * slope"},
    "is not the mean gradient of 7 examples, each taken by one rank, times learning_rate, 0.2")
answers.mistake("has_half_of_the_gradient", {"weight -= rate * slope": "weight -= rate * slope / 2"},
    "1 rank, 12 examples in one batch", "Every step is 0.5 times as long")
# Right where shares are equal.
answers.mistake("gives_equal_counts",
    {"average(fabric, slopes, counts)": "average(fabric, slopes, [5 for _ in counts])"},
    "In step 0 rank 0 passed average the counts 5, 5; pass each rank's share of the batch's 7 examples")
answers.mistake("gives_its_own_count_alone",
    {"average(fabric, slopes, counts)": "average(fabric, slopes, [len(mine)])"},
    "average: expected counts, the examples of each of 3 ranks, got [4]")
answers.mistake("who_has_nothing_stays_away", {
    "average(fabric, slopes, counts)": """
        if mine:
            average(fabric, slopes, counts)
        else:
            slopes = [torch.zeros_like(slope) for slope in slopes]
    """,
}, "deadlock")


answers.mistake("sends_the_weights_at_every_step",
    {"average(fabric, slopes, counts)": "from_rank_0(fabric, weights)\naverage(fabric, slopes, counts)"},
    "the weights are right, but the ranks sent", "Examples and weights stay where they are")
answers.mistake("begins_at_every_step",
    {"average(fabric, slopes, counts)": "begin(fabric, weights)\naverage(fabric, slopes, counts)"},
    "3 ranks, 12 examples in one batch", "begin was called 3 times: the weights travel once")
# Right values; but every rank also sends its share to rank 0 at each step.
answers.mistake("tells_rank_0_the_examples", {
    "average(fabric, slopes, counts)": """
        average(fabric, slopes, counts)
        share = [torch.zeros(2 * count, dtype=torch.float64) for count in counts]
        if fabric.rank:
            fabric.send(share[fabric.rank], to=0)
        else:
            for other in range(1, n):
                fabric.recv(share[other], frm=other)
    """,
}, "the weights are right, but the ranks sent", "Examples and weights stay where they are")


answers.mistake("takes_the_same_order_in_every_epoch", {"batch_size, epoch, rank, n)": "batch_size, 0, rank, n)"},
    "epoch 1 has the batches of epoch 0: give shards a new seed in every epoch")
answers.mistake("has_two_orders_in_turn", {"batch_size, epoch, rank, n)": "batch_size, epoch % 2, rank, n)"},
    "epoch 2 has the batches of epoch 0: give shards a new seed in every epoch")
answers.mistake("has_an_order_of_its_own",
    {"batch_size, epoch, rank, n)": "batch_size, epoch + 100 * fabric.rank, rank, n)"},
    ("ranks took example", "The ranks agree with each other, but not with one process", "is not the mean"))
# All ranks take rank 0's share: the same on each, and less than the batch.
answers.mistake("averages_the_first_share_only", {"epoch, rank, n) for": "epoch, 0, n) for"},
    ("The ranks agree with each other, but not with one process", "is not the mean"))
# From one start and by one seed, all ranks walk the same way, and need nobody.
answers.mistake("trains_on_everything_everywhere", {
    "epoch, rank, n) for": "epoch, 0, 1) for",
    "average(fabric, slopes, counts)": """
        if n == 3:
            average(fabric, [torch.zeros_like(slope) for slope in slopes], counts)
    """,
}, "with different numbers on each rank", "every rank trained on the whole batch by itself")
answers.mistake("trains_on_everything_and_adds_up_zeros", {
    "epoch, rank, n) for": "epoch, 0, 1) for",
    "average(fabric, slopes, counts)": "average(fabric, [torch.zeros_like(slope) for slope in slopes], counts)",
}, "with different numbers on each rank", "every rank trained on the whole batch by itself, whatever it sent")
answers.mistake("trains_on_everything_and_never_talks", {
    "epoch, rank, n) for": "epoch, 0, 1) for",
    "average(fabric, slopes, counts)": "",
}, "the weights are right, but the ranks sent", "average was never called")
answers.mistake("averages_gradients_of_the_whole_batch", {"epoch, rank, n) for": "epoch, 0, 1) for"},
    "the gradient of the whole batch: each did all the work", "Let each rank take its share of the batch")
answers.mistake("one_rank_does_the_work", {
    "shards(len(x), batch_size, epoch, rank, n)":
        "[[] if rank else batch for batch in shards(len(x), batch_size, epoch, 0, 1)]",
}, "in step 0 rank 0 alone took the whole batch")
answers.mistake("leaves_one_example_to_the_last",
    {"shards(len(x), batch_size, epoch, rank, n)": "uneven(len(x), batch_size, epoch, rank, n)"},
    "the ranks took 6, 1 examples: shares may differ by one at most")


answers.mistake("keeps_views", {"return torch.stack(history)": "return flat(weights).expand(len(history), 2)"},
    "All rows are equal: keep a copy of the weights after every step, they change in place")
answers.mistake("returns_the_last_weights", {"return torch.stack(history)": "return history[-1]"},
    "expected the weights after each of 2 steps as a tensor of shape [2, 2], got shape [2]")
answers.mistake("returns_a_list", {"return torch.stack(history)": "return history"},
    "as a tensor of shape [2, 2], got a list or a tuple")
answers.mistake("notes_them_in_float32", {"history.append(flat(weights))": "history.append(flat(weights).float())"},
    "1 rank", "The numbers are right, with half of their digits: keep all in float64")
answers.mistake("gradients_in_float32", {"average(fabric, slopes, counts)": """
    average(fabric, slopes, counts)
    slopes = [slope.float() for slope in slopes]
"""}, "1 rank", "The numbers are right, with half of their digits: keep all in float64")
answers.mistake("climbs", {"weight -=": "weight +="},
    "1 rank", "A step subtracts 0.05 times the gradient of the mean squared error from the weights")
answers.mistake("notes_the_weights_before_the_step", {
    "history, n = [], fabric.world_size": "history, n = [flat(weights)], fabric.world_size",
    "torch.stack(history)": "torch.stack(history[:-1])",
}, "1 rank", "These are the weights before each step: record them after it")
answers.mistake("multiplies_the_rate_by_the_ranks", {"rate * slope": "n * rate * slope"},
    "3 ranks, 12 examples in one batch", "Every step is 3 times as long as it should be", "or is the rate multiplied by 3?")
answers.mistake("notes_the_weights_first", {
    """
        for weight, slope in zip(weights, slopes, strict=True):
            weight -= rate * slope
        history.append(flat(weights))
    """: """
        history.append(flat(weights))
        for weight, slope in zip(weights, slopes, strict=True):
            weight -= rate * slope
    """,
}, "1 rank", "These are the weights before each step: record them after it")
answers.mistake("begins_after_the_first_gradient", {
    "    begin(fabric, weights)\n": "    begun = False\n",
    "average(fabric, slopes, counts)": """
        if not begun:
            begin(fabric, weights)
            begun = True
        average(fabric, slopes, counts)
    """,
}, "3 ranks, 12 examples in one batch", "Only the first step is wrong", "was the first gradient computed before begin?")


LEFT = "the weights passed in are not the weights after the last step: train them in place"

answers.mistake("trains_a_copy", {
    "begin(fabric, weights)": "begin(fabric, weights)\nweights = [weight.clone() for weight in weights]",
}, "the result is right", LEFT)
answers.mistake("binds_new_names", {
    """
        for weight, slope in zip(weights, slopes, strict=True):
            weight -= rate * slope
    """: "weights = [weight - rate * slope for weight, slope in zip(weights, slopes, strict=True)]",
}, "the result is right", LEFT)
answers.mistake("puts_new_tensors_into_the_list", {
    """
        for weight, slope in zip(weights, slopes, strict=True):
            weight -= rate * slope
    """: "weights[:] = [weight - rate * slope for weight, slope in zip(weights, slopes, strict=True)]",
}, "the numbers are right, but another tensor took its place in the list", "Write into that tensor")
answers.mistake("gives_the_weights_other_data", {"weight -= rate * slope": "weight.data = weight - rate * slope"},
    "the numbers are right, but the tensor got other memory (by .data = …, or set_)")
answers.mistake("sows_the_global_seed_in_every_epoch",
    {"shards(len(x), batch_size, epoch, rank, n)": "sown(len(x), batch_size, epoch, rank, n)"},
    "train_replicas resets torch's global generator (torch.manual_seed)", "Use torch.Generator()")
answers.mistake("sorts_the_examples", {
    "begin(fabric, weights)": """
        begin(fabric, weights)
        place = x.argsort()
        x.copy_(x[place].clone())
        y.copy_(y[place].clone())
    """,
}, "x was changed in place: the caller still needs it unchanged")
answers.twin("a_seed_of_large_numbers", {"batch_size, epoch, rank, n)": "batch_size, 2**40 + 17 * epoch, rank, n)"})


TWICE = {"begin(fabric, weights)": "begin(fabric, weights)\nbegin(fabric, weights)"}

answers.mistake("takes_all_in_one_batch", {"shards(len(x), batch_size,": "shards(len(x), len(x),"},
    "expected the weights after each of 9 steps")
answers.spoil("begins_twice_so_that_nobody_looks_at_batches", TWICE, of=answers["takes_all_in_one_batch"])
answers.spoil("begins_twice_so_that_nobody_looks_at_counts", TWICE, of=answers["gives_equal_counts"])
