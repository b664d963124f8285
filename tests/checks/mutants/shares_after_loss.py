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


answers.twin("with_tensors", {
    "order[done:]": "torch.tensor(order[done:], dtype=torch.int64)",
    "return shares, rate * len(alive) / world_size": "return [shares, torch.tensor(rate * len(alive) / world_size)]",
})


def scaled(rate, alive, world_size):
    return rate * len(alive) / world_size


answers.mistake("begins_at_the_ranks_number", {"left[place ::": "left[rank ::"},
    "ranks 0, 2, 3 go on", "A rank begins at its own number", "begin at its place in alive")
answers.mistake("keeps_the_old_stride", {"left[place :: len(alive)]": "left[rank::world_size]"},
    "what the lost ones would have taken is missing")
answers.mistake("keeps_the_old_shares", {"left[place :: len(alive)]": "order[rank::world_size][done // world_size :]"},
    "taken are: 3 samples by nobody")
answers.mistake("in_blocks", {
    "shares = {rank: left[place :: len(alive)] for place, rank in enumerate(alive)}": """
        parts = np.array_split(left, len(alive))
        shares = {rank: part.tolist() for rank, part in zip(alive, parts, strict=True)}
    """,
}, "ranks 0, 1, 2 go on: when every rank has taken 1 more", "deal the samples out one after the other")
answers.mistake("pads_as_a_sampler_does", {"shares =": "left = left + left[: -len(left) % len(alive)]\nshares ="},
    "ranks 0, 2, 3 go on", "taken are: 2 samples more than once", "as DistributedSampler does")
answers.mistake("drops_the_rest", {"shares =": "left = left[: len(left) // len(alive) * len(alive)]\nshares ="},
    "ranks 0, 2, 3 go on", "1 sample by nobody", "that do not divide by the number of ranks were left out")
answers.mistake("keeps_the_rate", {"rate * len(alive) / world_size": "rate"},
    "ranks 0, 1, 2 go on", "It is the rate of before")
answers.mistake("scales_the_rate_up", {"rate * len(alive) / world_size": "rate * world_size / len(alive)"},
    "It goes the wrong way: fewer ranks make a smaller global batch")
answers.mistake("scales_by_the_square_root", {"len(alive) / world_size": "(len(alive) / world_size) ** 0.5"},
    "It goes by the square root of the batch")
answers.mistake("never_scales_up", {"rate * len(alive) / world_size": "rate * min(1.0, len(alive) / world_size)"},
    "2 ranks, 6 of 25 samples done, ranks 0, 1, 2 go on: expected the rate", "It is the rate of before")
answers.mistake("begins_the_epoch_again", {"order[done:]": "order"},
    "8 samples of the 8 that were done already", "The epoch begins again: order[:done] are done")
answers.mistake("everything_to_everyone", {"left[place :: len(alive)]": "left"},
    "of the 12 samples that are left, taken are: 12 samples more than once. Every rank takes all that is left")
answers.mistake("skips_on_every_rank", {"left[place :: len(alive)]": "order[place :: len(alive)][done:]"},
    "done counts those of all ranks together")
answers.mistake("divides_before_it_leaves_out",
    {"left[place :: len(alive)]": "order[place :: len(alive)][done // len(alive) :]"},
    "leave out order[:done] first, then divide")
answers.mistake("numbers_the_ranks_anew", {"{rank: left[place :: len(alive)]": "{place: left[place :: len(alive)]"},
    "got shares for 0, 1, 2.", "take them from alive")
answers.mistake("gives_places", {"order[done:]": "list(range(done, len(order)))"},
    "is not one of the epoch's. These are places in the order, not its samples")
answers.mistake("returns_the_shares_alone", {"return shares, rate * len(alive) / world_size": "return shares"},
    "expected two values, ({rank: samples}, rate), got a dict")
answers.mistake("leaves_out_empty_shares",
    {"return": "shares = {rank: share for rank, share in shares.items() if share}\nreturn"},
    "got shares for 1, 2. A rank for which nothing is left has an empty share")


@answers.is_wrong("the shares have different sizes", "would wait for the others")
def gives_the_lost_share_to_one(order, done, world_size, alive, rate):
    left = order[done:]
    shares = {rank: left[rank::world_size] for rank in alive}
    for lost in set(range(world_size)) - set(alive):
        shares[alive[0]] = shares[alive[0]] + left[lost::world_size]
    return shares, scaled(rate, alive, world_size)
