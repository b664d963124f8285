"""Exercise 10.1: DistributedSampler by hand."""

import random

import numpy as np
import torch
from torch.utils.data import DistributedSampler

from tests.checks.mutants import Answers

answers = Answers("my_share")


def order_of(count, seed):
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()


@answers.is_right
def plain(count, rank, world_size, seed, epoch):
    order = order_of(count, seed + epoch)
    while len(order) % world_size:
        order += order[: -len(order) % world_size]
    return order[rank::world_size]


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
def a_list_of_tensors(count, rank, world_size, seed, epoch):
    order = torch.tensor(order_of(count, seed + epoch))
    return list(order.repeat(world_size)[: -(-count // world_size) * world_size][rank::world_size])


@answers.is_right
def one_card_after_the_other(count, rank, world_size, seed, epoch):
    hands, order = [[] for _ in range(world_size)], order_of(count, seed + epoch)
    place = 0
    while place < count or place % world_size:
        hands[place % world_size].append(order[place % count])
        place += 1
    return tuple(hands[rank])


@answers.is_right
def draws_from_the_global_generator_and_puts_it_back(count, rank, world_size, seed, epoch):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + epoch)
        order = torch.randperm(count)
    dealt = torch.arange(rank, -(-count // world_size) * world_size, world_size)
    return order[dealt % count]


@answers.is_right
def fills_an_array(count, rank, world_size, seed, epoch):
    return np.resize(order_of(count, seed + epoch), -(-count // world_size) * world_size)[rank::world_size]


@answers.is_wrong("the indices are right, but a DistributedSampler dealt them. Work them out by hand: shuffle, pad, deal")
def asks_the_library(count, rank, world_size, seed, epoch):
    sampler = DistributedSampler(range(count), world_size, rank, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


answers.mistake("forgets_the_epoch", {"seed + epoch": "seed"},
    "rank 0 takes the same examples in the same order in epochs", "Put the epoch into the seed")
answers.mistake("leaves_epoch_0_in_order", {"order_of(count, seed + epoch)":
    "order_of(count, seed + epoch) if epoch else list(range(count))"},
    "3 ranks, 12 examples, epoch 0: the examples come in the order 0, 1, 2, …: epoch 0 is shuffled as well")
answers.mistake("takes_epoch_0_for_none", {"seed + epoch": "seed + (epoch or 1)"},
    "rank 0 takes the same examples in the same order in epochs 0 and 1. Put the epoch into the seed")
answers.mistake("takes_seed_0_for_none", {"seed + epoch": "(seed or 1) + epoch"},
    "1 rank, 9 examples, epoch 0: rank 0: expected", "seeded with seed + epoch")
answers.mistake("counts_epochs_to_10", {"seed + epoch": "seed + epoch % 10"}, "seeded with seed + epoch")
answers.mistake("shuffles_once_more_each_epoch", {
    "order = order_of(count, seed + epoch)": """
        generator = torch.Generator().manual_seed(seed)
        for _ in range(epoch + 1):
            order = torch.randperm(count, generator=generator).tolist()
    """,
}, "The order is torch.randperm(count) with a fresh torch.Generator, seeded with seed + epoch")
answers.mistake("counts_epochs_from_1", {"seed + epoch": "seed + epoch + 1"},
    "This is the order of epoch", "seeded with seed + epoch, and epochs begin at 0")
answers.mistake("counts_ranks_from_1", {"order[rank::world_size]": "order[rank + 1::world_size]"},
    "rank 0 begins with number 1 of the order", "numbers begin at 0, so rank r begins with number r")
answers.mistake("counts_ranks_from_1_round_the_order", {"rank + world_size * k": "rank + 1 + world_size * k"},
    "rank 0 begins with number 1 of the order", of=by_the_modulus)
answers.mistake("deals_from_the_last_rank_on", {"order[rank::world_size]": "order[world_size - 1 - rank::world_size]"},
    "4 ranks", "This is the share of rank 3: rank r begins with number r of the order")
answers.mistake("sorts_its_share", {"return order[rank::world_size]": "return sorted(order[rank::world_size])"},
    "These are its examples in another order: leave them in the order in which they are dealt")
answers.mistake("returns_a_set", {"return order[rank::world_size]": "return set(order[rank::world_size])"},
    "rank 0: expected a list of indices, got a set")
answers.mistake("pads_in_the_order_0_1_2", {
    """
        while len(order) % world_size:
            order += order[: -len(order) % world_size]
    """: "order += [k % count for k in range(-count % world_size)]",
}, "the padding is not: expected it from the beginning of the order")
answers.mistake("does_not_pad", {
    """
        while len(order) % world_size:
            order += order[: -len(order) % world_size]
    """: "",
}, "rank 2 takes", "the rank with more would wait", "Pad the order before you deal it out")
answers.mistake("drops_the_rest", {
    """
        while len(order) % world_size:
            order += order[: -len(order) % world_size]
    """: "order = order[: count // world_size * world_size]",
}, "is taken by no rank. The rest was left out")
answers.mistake("deals_blocks", {
    "return order[rank::world_size]": """
        size = len(order) // world_size
        return order[rank * size : (rank + 1) * size]
    """,
}, "the shares are blocks; with the library each rank takes every n-th of the order", "rank 1 begins with the order's second")
answers.mistake("shuffles_by_rank", {"seed + epoch": "seed + epoch + 1000 * rank"},
    "the ranks' orders differ: shuffle with the same seed on every rank")
answers.mistake("shuffles_by_the_global_generator", {"order_of(count, seed + epoch)": "torch.randperm(count).tolist()"},
    "the ranks' orders differ", "in a separate generator", chance=True)
answers.mistake("deals_first_and_shuffles_then", {
    "order = order_of(count, seed + epoch)": "order = list(range(count))",
    "return order[rank::world_size]": """
        share = order[rank::world_size]
        return [share[k] for k in order_of(len(share), seed + epoch)]
    """,
}, "the examples were dealt out first, and each share was shuffled by itself", "Shuffle all of them, then deal")
answers.mistake("never_shuffles", {"order_of(count, seed + epoch)": "list(range(count))"},
    "the examples come in the order 0, 1, 2, …: shuffle them, by seed and epoch")
answers.mistake("pads_with_the_last_one", {
    """
        while len(order) % world_size:
            order += order[: -len(order) % world_size]
    """: "order += [order[-1]] * (-count % world_size)",
}, "the padding is not: expected it from the beginning of the order")
answers.mistake("takes_everything", {"return order[rank::world_size]": "return order[:count]"},
    "every rank takes all", "Deal them out")
answers.mistake("multiplies_seed_and_epoch", {"seed + epoch": "1000 * seed + epoch"},
    "The order is torch.randperm(count) with a fresh torch.Generator, seeded with seed + epoch")
answers.mistake("returns_nothing", {"return order": "order"},
    "rank 0: expected a list of indices, got None (does the function return it?)")
answers.mistake("pads_once_round", {"while len": "if len"},
    "4 ranks, 1 example", "the order was appended only once", "Repeat it until every rank has one")
answers.mistake("seeds_the_global_generator", {
    "order = order_of(count, seed + epoch)": """
        torch.manual_seed(seed + epoch)
        order = torch.randperm(count).tolist()
    """,
}, "my_share resets torch's global generator", "dropout too", "manual_seed(seed + epoch)")
answers.mistake("shuffles_with_another_generator", {
    "order = order_of(count, seed + epoch)": """
        order = list(range(count))
        random.Random(seed + epoch).shuffle(order)
    """,
}, "The order is torch.randperm(count) with a fresh torch.Generator, seeded with seed + epoch")
answers.mistake("always_pads", {"while len": "order += order[:world_size]\nwhile len"},
    "every rank takes", "the fewest that cover all examples")


@answers.spoils()
def takes_nothing(count, rank, world_size, seed, epoch):
    return []


@answers.spoils()
def does_not_pad_so_that_nobody_looks_at_the_order(count, rank, world_size, seed, epoch):
    return list(range(count))[rank::world_size]


@answers.spoils()
def repeats_one_example(count, rank, world_size, seed, epoch):
    return [epoch % count] * -(-count // world_size)
