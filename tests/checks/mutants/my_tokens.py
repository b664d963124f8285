"""Exercise 17.2: which tokens a rank owns, so that no rank of a causal ring idles."""

import random

import torch

from tests.checks.mutants import Answers

answers = Answers("my_tokens")


@answers.is_right
def dealt_out(rank, world_size, length):
    return list(range(rank, length, world_size))


@answers.is_right
def folded(rank, world_size, length):
    """Zigzag: the rank's part from the front, and its part from the back."""
    parts = torch.arange(length).tensor_split(2 * world_size)
    return torch.cat([parts[rank], parts[2 * world_size - 1 - rank]])


@answers.is_right
def dealt_out_to_and_fro(rank, world_size, length):
    own = []
    for start in range(0, length, 2 * world_size):
        own += [token for token in (start + rank, start + 2 * world_size - 1 - rank) if token < length]
    return own


@answers.is_right
def by_a_mask_and_backwards(rank, world_size, length):
    tokens = torch.arange(length).flip(0)
    return tokens[tokens % world_size == rank].tolist()


@answers.is_right
def dealt_out_in_short_strips(rank, world_size, length):
    """Two tokens at a time: uneven by two tokens at most."""
    return tuple(token for token in range(length) if token // 2 % world_size == rank)


answers.twin("a_range", {"list(range(rank, length, world_size))": "range(rank, length, world_size)"})
answers.twin("a_list_of_tensors", {"list(range(rank, length, world_size))": "list(torch.arange(rank, length, world_size))"})

answers.mistake("in_a_row", {"list(range(rank, length, world_size))":
    "torch.arange(length).tensor_split(world_size)[rank].tolist()"},
    "Each rank has one stretch: the first stretch sees next to nothing", harmless_at=(1,))
answers.mistake("loses_the_rest", {"length, world_size": "length // world_size * world_size, world_size"},
    "3 ranks, 10 tokens", "no rank owns 1 token of 10", "Where the ranks do not divide the tokens, the last ones are left over")
answers.mistake("counts_from_1", {"range(rank, length, world_size)": "range(rank + 1, length + 1, world_size)"},
    "owns token 8: expected numbers from 0 to 7")
answers.mistake("deals_to_the_rank_before", {"range(rank,": "range(rank - 1,"}, "owns token -1: expected numbers from 0 to")
answers.mistake("gives_all_to_each", {"range(rank, length, world_size)": "range(length)"},
    "token 0 is owned by rank 0 and by rank 1", harmless_at=(1,))
answers.mistake("says_how_many", {"list(range(rank, length, world_size))": "length // world_size"},
    "rank 0: expected the numbers of its tokens, got a int")
answers.mistake("returns_nothing", {"return list": "list"}, "expected the numbers of its tokens, got None")
answers.mistake("a_mask", {"list(range(rank, length, world_size))": "torch.arange(length) % world_size == rank"},
    "expected the numbers of its tokens, got a mask")
answers.mistake("a_generator", {"list(range(rank, length, world_size))": "(t for t in range(rank, length, world_size))"},
    "got a generator (make it a list, which can be iterated twice)")
answers.mistake("in_floats", {"list(range(rank, length, world_size))": "[float(t) for t in range(rank, length, world_size)]"},
    "expected whole numbers, got 0.0")
answers.mistake("in_a_tensor_of_floats", {
    "list(range(rank, length, world_size))": "torch.arange(rank, length, world_size).float()",
}, "expected whole numbers, got 0.0")


@answers.is_wrong("keys and values take memory on each rank, so share the tokens out evenly")
def as_many_pairs_in_a_row(rank, world_size, length):
    """Stretches that are shorter towards the end, so that all work alike over all rounds."""
    ends = [round(length * (part / world_size) ** 0.5) for part in range(world_size + 1)]
    return list(range(ends[rank], ends[rank + 1]))


@answers.is_wrong("Late tokens see more keys")
def folded_from_the_middle(rank, world_size, length):
    """Each rank a stretch of the front half, and the same stretch of the back half."""
    front, back = torch.arange(length).tensor_split(2)
    return torch.cat([half.tensor_split(world_size)[rank] for half in (front, back)]).tolist()


@answers.is_wrong("Late tokens see more keys")
def at_random(rank, world_size, length):
    tokens = list(range(length))
    random.Random(7).shuffle(tokens)
    return tokens[rank::world_size]


@answers.is_wrong("Late tokens see more keys", "1.02 x is allowed")
def even_on_the_usual_numbers_of_ranks(rank, world_size, length):
    """Zigzag where the ranks are few; elsewhere a front half and a back half in a row."""
    if world_size in (1, 2, 3, 4, 7) or length < 100:
        return folded(rank, world_size, length)
    return folded_from_the_middle(rank, world_size, length)


@answers.is_wrong("no rank owns 4 tokens of 10", "3 ranks, 10 tokens")
def folded_without_the_rest(rank, world_size, length):
    """Zigzag in parts of equal length: what is left over belongs to nobody."""
    size = length // (2 * world_size)
    back = 2 * world_size - 1 - rank
    return [*range(rank * size, (rank + 1) * size), *range(back * size, (back + 1) * size)]


@answers.is_wrong("keys and values take memory on each")
def in_strips_of_a_fixed_length(rank, world_size, length):
    return [token for token in range(length) if token // 128 % world_size == rank]


@answers.spoils()
def even_on_four_ranks_and_then_a_token_less(rank, world_size, length):
    if world_size == 4:
        return list(range(rank, length, world_size))
    own = torch.arange(length).tensor_split(world_size)[rank].tolist()
    return own[1:] if length > 100 else own
