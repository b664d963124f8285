"""Exercise 15.4: an epoch that goes on with the ranks that are left."""

import random
from itertools import cycle, islice, zip_longest

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


answers.twin("with_arrays", {"left[place :: len(alive)]": "np.array(left[place :: len(alive)], dtype=int)"})
answers.twin("asks_whose_turn_it_is", {
    "left[place :: len(alive)]": "[sample for k, sample in enumerate(left) if k % len(alive) == place]",
})
answers.twin("from_an_iterator", {
    "left = order[done:]": "rest = islice(iter(order), done, None)\nleft = tuple(rest)",
    "left[place :: len(alive)]": "list(islice(left, place, None, len(alive)))",
})


def scaled(rate, alive, world_size):
    return rate * len(alive) / world_size


answers.mistake("begins_at_the_ranks_number", {"left[place ::": "left[rank ::"},
    "ranks 0, 2, 3 go on", "A rank begins at its own number", "begin at its place in alive")
answers.mistake("keeps_the_old_stride", {"left[place :: len(alive)]": "left[rank::world_size]"},
    "the lost ranks' samples are missing")
answers.mistake("keeps_the_old_shares", {"left[place :: len(alive)]": "order[rank::world_size][done // world_size :]"},
    "the 12 samples left: 3 samples missing")
answers.mistake("in_blocks", {
    "shares = {rank: left[place :: len(alive)] for place, rank in enumerate(alive)}": """
        parts = np.array_split(left, len(alive))
        shares = {rank: part.tolist() for rank, part in zip(alive, parts, strict=True)}
    """,
}, "ranks 0, 1, 2 go on: when every rank has taken 1 more", "deal the samples out in turn")
answers.mistake("pads_as_a_sampler_does", {"shares =": "left = left + left[: -len(left) % len(alive)]\nshares ="},
    "ranks 0, 2, 3 go on", "the 16 samples left: 2 samples taken more than once", "as DistributedSampler does")
answers.mistake("drops_the_rest", {"shares =": "left = left[: len(left) // len(alive) * len(alive)]\nshares ="},
    "ranks 0, 2, 3 go on", "1 sample missing", "that do not divide by the number of ranks were left out")
answers.mistake("keeps_the_rate", {"rate * len(alive) / world_size": "rate"},
    "ranks 0, 1, 2 go on", "It is the old rate")
answers.mistake("scales_the_rate_up", {"rate * len(alive) / world_size": "rate * world_size / len(alive)"},
    "It goes the wrong way: fewer ranks make a smaller global batch")
answers.mistake("scales_by_the_square_root", {"len(alive) / world_size": "(len(alive) / world_size) ** 0.5"},
    "It goes with the square root of the batch")
answers.mistake("never_scales_up", {"rate * len(alive) / world_size": "rate * min(1.0, len(alive) / world_size)"},
    "2 ranks, 6 of 25 samples done, ranks 0, 1, 2 go on: expected the rate", "It is the old rate")
answers.mistake("begins_the_epoch_again", {"order[done:]": "order"},
    "8 samples taken of the 8 done already", "The epoch begins again: order[:done] are done")
answers.mistake("everything_to_everyone", {"left[place :: len(alive)]": "left"},
    "the 12 samples left: 12 samples taken more than once. Every rank takes all that is left")
answers.mistake("skips_on_every_rank", {"left[place :: len(alive)]": "order[place :: len(alive)][done:]"},
    "done counts the samples of all ranks together")
answers.mistake("divides_before_it_leaves_out",
    {"left[place :: len(alive)]": "order[place :: len(alive)][done // len(alive) :]"},
    "leave out order[:done] first, then divide")
answers.mistake("numbers_the_ranks_anew", {"{rank: left[place :: len(alive)]": "{place: left[place :: len(alive)]"},
    "got shares for 0, 1, 2.", "take them from alive")
answers.mistake("gives_places", {"order[done:]": "list(range(done, len(order)))"},
    "is not in the epoch. The shares hold places in the order, not samples")
answers.mistake("returns_the_shares_alone", {"return shares, rate * len(alive) / world_size": "return shares"},
    "expected two values, ({rank: samples}, rate), got a dict")
answers.mistake("returns_the_rate_first",
    {"return shares, rate * len(alive) / world_size": "return rate * len(alive) / world_size, shares"},
    "expected two values, ({rank: samples}, rate), got a float instead of the dict")
answers.mistake("leaves_out_empty_shares",
    {"return": "shares = {rank: share for rank, share in shares.items() if share}\nreturn"},
    "got shares for 1, 2. A rank with nothing left to do gets an empty share")
# At the first loss it is right: what is done was done by all ranks of the group.
answers.mistake("rounds_done_to_whole_steps", {"order[done:]": "order[done // world_size * world_size :]"},
    "3 ranks, 11 of 30 samples done", "2 samples taken of the 11 done already",
    "`done` was rounded to 9, a multiple of 3: after an earlier loss it need not be one")
answers.mistake("rounds_done_up", {"order[done:]": "order[-(-done // len(alive)) * len(alive) :]"},
    "1 sample missing. order[9:] was dealt out: 8 are done, and the next one is order[8]")
answers.mistake("counts_done_from_1", {"order[done:]": "order[done + 1 :]"},
    "1 sample missing. order[9:] was dealt out: 8 are done, and the next one is order[8]")
answers.mistake("takes_sample_0_for_none", {
    "shares = {rank: left[place :: len(alive)] for place, rank in enumerate(alive)}": """
        rounds = list(zip_longest(*[iter(left)] * len(alive)))
        columns = list(zip(*rounds, strict=True)) or [()] * len(alive)
        shares = {rank: list(filter(None, column)) for rank, column in zip(alive, columns, strict=True)}
    """,
}, "ranks 0, 1, 2 go on", "1 sample missing")
answers.mistake("keeps_samples_in_int16", {"order[done:]": "np.array(order[done:]).astype(np.int16).tolist()"},
    "is not in the epoch")
answers.mistake("gives_real_numbers", {"order[done:]": "[float(sample) for sample in order[done:]]"},
    "as the share of rank 0, got", ".0 in it: samples are whole numbers, the entries of order")
answers.mistake("gives_rows_of_one", {"order[done:]": "[[sample] for sample in order[done:]]"},
    "as the share of rank 0, got (", "in it: samples are whole numbers, the entries of order")
answers.mistake("names_ranks_in_text", {"{rank: left": "{str(rank): left"}, "The ranks are numbers, not text such as '0'")
answers.mistake("gives_generators", {"left[place :: len(alive)]": "(sample for sample in left[place :: len(alive)])"},
    "got a generator (make it a list, which can be iterated twice)")
answers.mistake("divides_the_ranks_to_a_whole_number", {"rate * len(alive) / world_size": "rate * (len(alive) // world_size)"},
    "got 0. It is 0: // leaves whole numbers, so divide by /")
answers.mistake("takes_one_rank_to_be_lost", {"rate * len(alive) / world_size": "rate * (world_size - 1) / world_size"},
    "ranks 2 go on: expected the rate", "It takes one rank to be lost: count those in alive")
answers.mistake("empties_alive", {
    "return shares, rate * len(alive) / world_size":
        "rate *= len(alive) / world_size\nwhile alive:\n    alive.pop()\nreturn shares, rate",
}, "alive was changed in place")
answers.mistake("deletes_what_is_done", {"left = order[done:]": "del order[:done]\nleft = order"},
    "order was changed in place: the caller still needs it unchanged")
answers.mistake("takes_them_off_the_order", {
    "left = order[done:]": "",
    "left[place :: len(alive)]": "[order.pop(done) for _ in range(place, len(order) - done + place, len(alive))]",
}, "ranks 0, 1, 2 go on")
answers.mistake("sorts_alive", {"left = order[done:]": "alive.sort()\nleft = order[done:]"},
    "ranks 3, 0, 2 go on: alive was changed in place")
answers.mistake("loses_the_order", {"order[done:]": "sorted(order[done:])"},
    "when every rank has taken 1 more", "the samples are sorted here by their numbers")
answers.mistake("takes_the_difference_of_sets", {"order[done:]": "list(set(order) - set(order[:done]))"},
    "when every rank has taken 1 more", ("the epoch's order is lost here", "the samples are sorted here"),
    "Take the samples as they stand in order[done:]")
answers.mistake("from_the_back", {"order[done:]": "order[done:][::-1]"},
    "when every rank has taken 1 more", "the epoch's order is lost here")
answers.mistake("shuffles_the_rest", {"shares =": "left = random.Random(done).sample(left, len(left))\nshares ="},
    "more, together they have", "Take the samples as they stand in order[done:]")
answers.mistake("drops_the_rest_in_blocks", {
    "shares = {rank: left[place :: len(alive)] for place, rank in enumerate(alive)}": """
        size = len(left) // len(alive)
        shares = {rank: left[place * size : (place + 1) * size] for place, rank in enumerate(alive)}
    """,
}, "when every rank has taken 1 more")
answers.mistake("drops_what_the_old_group_would_not_share", {
    "shares =": "left = left[: len(left) // world_size * world_size]\nshares =",
}, "missing. The order's last samples, too few for a whole step, were left out")
answers.mistake("goes_by_the_lost_ranks", {"len(alive) / world_size": "(1 - (world_size - len(alive)) / world_size / 2)"},
    "ranks 0, 1, 2 go on: expected the rate")
answers.mistake("asks_for_at_most_eight_ranks", {"enumerate(alive)}": "enumerate(alive) if place < 8}"},
    "go on: expected a share for each of the ranks")


@answers.is_wrong("the shares have different sizes", "would wait for the others")
def gives_the_lost_share_to_one(order, done, world_size, alive, rate):
    left = order[done:]
    shares = {rank: left[rank::world_size] for rank in alive}
    for lost in set(range(world_size)) - set(alive):
        shares[alive[0]] = shares[alive[0]] + left[lost::world_size]
    return shares, scaled(rate, alive, world_size)


@answers.spoils()
def drops_the_rest_and_names_no_rate(order, done, world_size, alive, rate):
    left = order[done:]
    left = left[: len(left) // len(alive) * len(alive)]
    return {rank: left[place :: len(alive)] for place, rank in enumerate(alive)}, -1.0


def gives_all_to_one(order, done, world_size, alive, rate):
    shares = {rank: [] for rank in alive}
    shares[alive[-1]] = order[done:]
    return shares, scaled(rate, alive, world_size)


answers.spoil("gives_all_to_one_and_empties_the_order",
    {"return shares, scaled": "order.clear()\nreturn shares, scaled"}, of=gives_all_to_one)
