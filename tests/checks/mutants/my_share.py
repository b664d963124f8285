"""Exercise 10.1: DistributedSampler by hand."""

from __future__ import annotations

import math
import random
from itertools import cycle, islice

import torch
from torch.utils.data import DistributedSampler

from tests.checks.mutants import Answers

answers = Answers("my_share")


def order_of(count, seed):
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()


def padded(order, world_size):
    return list(islice(cycle(order), math.ceil(len(order) / world_size) * world_size))


@answers.is_wrong("rank 0 takes the same examples in the same order in epochs", "The epoch has to be in the seed")
def forgets_the_epoch(count, rank, world_size, seed, epoch):
    return padded(order_of(count, seed), world_size)[rank::world_size]


@answers.is_wrong("rank 2 takes 4 examples, another 5: who has more would wait", "Pad the order before it is dealt out")
def does_not_pad(count, rank, world_size, seed, epoch):
    return order_of(count, seed + epoch)[rank::world_size]


@answers.is_wrong("is taken by no rank. The rest was left out")
def drops_the_rest(count, rank, world_size, seed, epoch):
    order = order_of(count, seed + epoch)
    return order[: count // world_size * world_size][rank::world_size]


@answers.is_wrong("blocks of the order; the library deals it like cards: rank 1 begins with its second")
def deals_blocks(count, rank, world_size, seed, epoch):
    order = padded(order_of(count, seed + epoch), world_size)
    size = len(order) // world_size
    return order[rank * size : (rank + 1) * size]


@answers.is_wrong("the ranks' orders differ: shuffle with the same seed on every rank")
def shuffles_by_rank(count, rank, world_size, seed, epoch):
    return padded(order_of(count, seed + epoch + 1000 * rank), world_size)[rank::world_size]


@answers.is_wrong("the ranks' orders differ", "in a generator of its own", chance=True)
def shuffles_by_the_global_generator(count, rank, world_size, seed, epoch):
    return padded(torch.randperm(count).tolist(), world_size)[rank::world_size]


@answers.is_wrong("the examples come in the order 0, 1, 2, …: shuffle them, by seed and epoch")
def never_shuffles(count, rank, world_size, seed, epoch):
    return padded(list(range(count)), world_size)[rank::world_size]


@answers.is_wrong("the padding is not: expected it to be filled up from its beginning")
def pads_with_the_last_one(count, rank, world_size, seed, epoch):
    order = order_of(count, seed + epoch)
    return (order + [order[-1]] * (-count % world_size))[rank::world_size]


@answers.is_wrong("every rank takes all 18 examples: expected 5 each")
def takes_everything(count, rank, world_size, seed, epoch):
    return order_of(count, seed + epoch)


@answers.is_wrong("The order is torch.randperm(count) of a fresh torch.Generator with the seed seed + epoch")
def multiplies_seed_and_epoch(count, rank, world_size, seed, epoch):
    return padded(order_of(count, 1000 * seed + epoch), world_size)[rank::world_size]


@answers.is_wrong("rank 0: expected a list of indices, got None (does the function return it?)")
def returns_nothing(count, rank, world_size, seed, epoch):
    padded(order_of(count, seed + epoch), world_size)[rank::world_size]


@answers.is_right
def by_the_modulus(count, rank, world_size, seed, epoch):
    order, each = order_of(count, seed + epoch), -(-count // world_size)
    return [order[(rank + world_size * k) % count] for k in range(each)]


@answers.is_right
def as_tensors(count, rank, world_size, seed, epoch):
    generator = torch.Generator()
    generator.manual_seed(epoch + seed)
    order = torch.randperm(count, generator=generator)
    rows = -(-count // world_size)
    return order.repeat(world_size + 1)[: rows * world_size].view(rows, world_size)[:, rank]


@answers.is_right
def one_card_after_the_other(count, rank, world_size, seed, epoch):
    hands, order = [[] for _ in range(world_size)], order_of(count, seed + epoch)
    place = 0
    while place < count or place % world_size:
        hands[place % world_size].append(order[place % count])
        place += 1
    return tuple(hands[rank])


@answers.is_wrong("4 ranks, 1 example", "the order was appended once", "Repeat it until all have one")
def pads_once_round(count, rank, world_size, seed, epoch):
    order = order_of(count, seed + epoch)
    order += order[: -count % world_size]
    return order[rank::world_size]


@answers.is_wrong("my_share resets torch's global generator", "dropout too")
def seeds_the_global_generator(count, rank, world_size, seed, epoch):
    torch.manual_seed(seed + epoch)
    return padded(torch.randperm(count).tolist(), world_size)[rank::world_size]


@answers.is_wrong("The order is torch.randperm(count) of a fresh torch.Generator with the seed seed + epoch")
def shuffles_with_another_generator(count, rank, world_size, seed, epoch):
    order = list(range(count))
    random.Random(seed + epoch).shuffle(order)
    return padded(order, world_size)[rank::world_size]


@answers.is_wrong("every rank takes 6 examples; expected 5, the least with which all are taken")
def always_pads(count, rank, world_size, seed, epoch):
    order = order_of(count, seed + epoch)
    return padded([*order, *order[:world_size]], world_size)[rank::world_size]


@answers.is_right
def draws_from_the_global_generator_and_puts_it_back(count, rank, world_size, seed, epoch):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + epoch)
        order = torch.randperm(count)
    dealt = torch.arange(rank, -(-count // world_size) * world_size, world_size)
    return order[dealt % count]


@answers.is_right
def asks_the_library(count, rank, world_size, seed, epoch):
    sampler = DistributedSampler(range(count), world_size, rank, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)
