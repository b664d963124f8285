"""Exercise 15.4: an epoch that goes on with the ranks that are left."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import torch

from tests.checks.mutants import Answers

answers = Answers("shares_after_loss")


@answers.is_right
def plain(order, done, world_size, alive, rate):
    left = order[done:]
    shares = {rank: left[place :: len(alive)] for place, rank in enumerate(alive)}
    return shares, rate * len(alive) / world_size


@answers.is_right
def deals_them_out(order, done, world_size, alive, rate):
    """In the ranks' own order, and with what the labs' tensors give."""
    shares = {rank: [] for rank in sorted(alive)}
    for sample, rank in zip(torch.tensor(order)[done:].tolist(), cycle(sorted(alive)), strict=False):
        shares[rank].append(sample)
    return shares, float(np.float32(rate) * len(alive) / np.float32(world_size))


@answers.is_right
def back_and_forth(order, done, world_size, alive, rate):
    """Each round the other way round: the samples of a round are the next ones all the same."""
    shares = {rank: [] for rank in alive}
    for k, first in enumerate(range(done, len(order), len(alive))):
        members = list(alive) if k % 2 == 0 else list(alive)[::-1]
        chunk = order[first : first + len(alive)]
        if len(chunk) < len(alive):
            members = list(alive)
        for rank, sample in zip(members, chunk, strict=False):
            shares[rank].append(sample)
    return shares, rate / world_size * len(alive)


@answers.is_right
def with_tensors(order, done, world_size, alive, rate):
    left = torch.tensor(order[done:], dtype=torch.int64)
    return [{rank: left[k :: len(alive)] for k, rank in enumerate(alive)}, torch.tensor(rate * len(alive) / world_size)]


def scaled(rate, alive, world_size):
    return rate * len(alive) / world_size


@answers.is_wrong("ranks 0, 2, 3 go on", "A rank begins at its own number", "begin at its place in alive")
def begins_at_the_ranks_number(order, done, world_size, alive, rate):
    left = order[done:]
    return {rank: left[rank :: len(alive)] for rank in alive}, scaled(rate, alive, world_size)


@answers.is_wrong("what the lost ones would have taken is missing")
def keeps_the_old_stride(order, done, world_size, alive, rate):
    left = order[done:]
    return {rank: left[rank::world_size] for rank in alive}, scaled(rate, alive, world_size)


@answers.is_wrong("taken are: 3 samples by nobody")
def keeps_the_old_shares(order, done, world_size, alive, rate):
    shares = {rank: order[rank::world_size][done // world_size :] for rank in alive}
    return shares, scaled(rate, alive, world_size)


@answers.is_wrong("ranks 0, 1, 2 go on: when every rank has taken 1 more", "deal the samples out one after the other")
def in_blocks(order, done, world_size, alive, rate):
    parts = np.array_split(order[done:], len(alive))
    return {rank: part.tolist() for rank, part in zip(alive, parts, strict=True)}, scaled(rate, alive, world_size)


@answers.is_wrong("ranks 0, 2, 3 go on", "taken are: 2 samples more than once", "as DistributedSampler does")
def pads_as_a_sampler_does(order, done, world_size, alive, rate):
    left = order[done:]
    left = left + left[: -len(left) % len(alive)]
    return {rank: left[k :: len(alive)] for k, rank in enumerate(alive)}, scaled(rate, alive, world_size)


@answers.is_wrong("ranks 0, 2, 3 go on", "1 sample by nobody", "that do not divide by the number of ranks were left out")
def drops_the_rest(order, done, world_size, alive, rate):
    left = order[done:]
    left = left[: len(left) // len(alive) * len(alive)]
    return {rank: left[k :: len(alive)] for k, rank in enumerate(alive)}, scaled(rate, alive, world_size)


@answers.is_wrong("ranks 0, 1, 2 go on", "It is the rate of before")
def keeps_the_rate(order, done, world_size, alive, rate):
    left = order[done:]
    return {rank: left[k :: len(alive)] for k, rank in enumerate(alive)}, rate


@answers.is_wrong("It goes the wrong way: fewer ranks make a smaller global batch")
def scales_the_rate_up(order, done, world_size, alive, rate):
    left = order[done:]
    return {rank: left[k :: len(alive)] for k, rank in enumerate(alive)}, rate * world_size / len(alive)


@answers.is_wrong("It goes by the square root of the batch")
def scales_by_the_square_root(order, done, world_size, alive, rate):
    left = order[done:]
    return {rank: left[k :: len(alive)] for k, rank in enumerate(alive)}, rate * (len(alive) / world_size) ** 0.5


@answers.is_wrong("2 ranks, 6 of 25 samples done, ranks 0, 1, 2 go on: expected the rate", "It is the rate of before")
def never_scales_up(order, done, world_size, alive, rate):
    left = order[done:]
    share = min(1.0, len(alive) / world_size)
    return {rank: left[k :: len(alive)] for k, rank in enumerate(alive)}, rate * share


@answers.is_wrong("8 samples of the 8 that were done already", "The epoch begins again: order[:done] are done")
def begins_the_epoch_again(order, done, world_size, alive, rate):
    return {rank: order[k :: len(alive)] for k, rank in enumerate(alive)}, scaled(rate, alive, world_size)


@answers.is_wrong("of the 12 samples that are left, taken are: 12 samples more than once. Every rank takes all that is left")
def everything_to_everyone(order, done, world_size, alive, rate):
    return {rank: order[done:] for rank in alive}, scaled(rate, alive, world_size)


@answers.is_wrong("done counts those of all ranks together")
def skips_on_every_rank(order, done, world_size, alive, rate):
    return {rank: order[k :: len(alive)][done:] for k, rank in enumerate(alive)}, scaled(rate, alive, world_size)


@answers.is_wrong("leave out order[:done] first, then divide")
def divides_before_it_leaves_out(order, done, world_size, alive, rate):
    m = len(alive)
    return {rank: order[k::m][done // m :] for k, rank in enumerate(alive)}, scaled(rate, alive, world_size)


@answers.is_wrong("got shares for 0, 1, 2.", "take them from alive")
def numbers_the_ranks_anew(order, done, world_size, alive, rate):
    left, m = order[done:], len(alive)
    return {rank: left[rank::m] for rank in range(m)}, scaled(rate, alive, world_size)


@answers.is_wrong("is not one of the epoch's. These are places in the order, not its samples")
def gives_places(order, done, world_size, alive, rate):
    left, m = range(done, len(order)), len(alive)
    return {rank: list(left[k::m]) for k, rank in enumerate(alive)}, scaled(rate, alive, world_size)


@answers.is_wrong("expected two values, ({rank: samples}, rate), got a dict")
def returns_the_shares_alone(order, done, world_size, alive, rate):
    left, m = order[done:], len(alive)
    return {rank: left[k::m] for k, rank in enumerate(alive)}


@answers.is_wrong("got shares for 1, 2. A rank for which nothing is left has an empty share")
def leaves_out_empty_shares(order, done, world_size, alive, rate):
    left, m = order[done:], len(alive)
    return {rank: left[k::m] for k, rank in enumerate(alive) if left[k::m]}, scaled(rate, alive, world_size)


@answers.is_wrong("the shares have different sizes", "would wait for the others")
def gives_the_lost_share_to_one(order, done, world_size, alive, rate):
    left = order[done:]
    shares = {rank: left[rank::world_size] for rank in alive}
    for lost in set(range(world_size)) - set(alive):
        shares[alive[0]] = shares[alive[0]] + left[lost::world_size]
    return shares, scaled(rate, alive, world_size)
