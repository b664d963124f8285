"""Exercise 4.1: a shuffled epoch, cut into batches, cut into shares."""

import hashlib
import random

import numpy as np
import torch

from tests.checks.mutants import Answers

answers = Answers("shards")

STAY = ("two different seeds give the same batches", "no shuffle of the examples")


def shuffled(count, seed):
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()


def batches(order, batch_size):
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


@answers.is_right
def by_stride(count, batch_size, seed, rank, world_size):
    order = shuffled(count, seed)
    steps = batches(order, batch_size)
    return [batch[rank::world_size] for batch in steps]


@answers.is_right
def contiguous_tensors(count, batch_size, seed, rank, world_size):
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return [batch.tensor_split(world_size)[rank] for batch in order.split(batch_size)]


@answers.is_right
def numpy_from_the_back(count, batch_size, seed, rank, world_size):
    order = np.random.default_rng(seed).permutation(count)
    return tuple(order[start : start + batch_size][rank::world_size] for start in range(0, count, batch_size))


@answers.is_right
def plain_python(count, batch_size, seed, rank, world_size):
    order = list(range(count))
    random.Random(seed).shuffle(order)
    steps = []
    while order:
        batch, order = order[:batch_size], order[batch_size:]
        steps.append([example for place, example in enumerate(batch) if place % world_size == rank])
    return steps


# What it sets is set back at the end.
answers.twin("forks_the_global_generator", {
    "order = shuffled(count, seed)": """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            order = torch.randperm(count)
    """,
})


@answers.is_right
def by_the_samplers_of_torch(count, batch_size, seed, rank, world_size):
    from torch.utils.data import BatchSampler, RandomSampler

    generator = torch.Generator().manual_seed(seed)
    cut = BatchSampler(RandomSampler(range(count), generator=generator), batch_size, drop_last=False)
    return [batch[len(batch) * rank // world_size : len(batch) * (rank + 1) // world_size] for batch in cut]


@answers.is_right
def sorted_by_hashes(count, batch_size, seed, rank, world_size):
    order = sorted(range(count), key=lambda example: hashlib.sha256(f"{seed} {example}".encode()).digest())
    steps = []
    for start in range(0, count, batch_size):
        steps.append({example for place, example in enumerate(order[start : start + batch_size]) if place % world_size == rank})
    return [list(step) for step in steps]


answers.mistake("does_not_shuffle", {"shuffled(count, seed)": "list(range(count))"},
    "two different seeds give the same batches: shuffle the examples by the seed")
answers.mistake("shuffles_by_rank", {"shuffled(count, seed)": "shuffled(count, seed + rank)"},
    "The ranks shuffle differently: all must shuffle with the same seed")
answers.mistake("shuffles_by_the_global_generator", {"shuffled(count, seed)": "torch.randperm(count).tolist()"},
    "The ranks shuffle differently", "in a separate generator")
answers.mistake("drops_the_last_batch", {"for batch in steps": "for batch in steps if len(batch) == batch_size"},
    "is taken by no rank (4 of", "Was the last batch left out, because it is smaller?")
answers.mistake("fills_up_as_a_distributed_sampler", {
    """
        steps = batches(order, batch_size)
        return [batch[rank::world_size] for batch in steps]
    """: """
        order += order[: -count % world_size]
        return batches(order[rank::world_size], batch_size // world_size + 1)
    """,
}, "The ranks take", "examples in all, but there are", "do not pad", "by rank")


@answers.is_wrong("step 0: the ranks take 2, 2, 4 of 8 examples; expected 2 or 3 each", "The slowest rank decides")
def leaves_the_rest_to_the_last_rank(count, batch_size, seed, rank, world_size):
    def share(batch):
        size = len(batch) // world_size
        return batch[rank * size : len(batch) if rank == world_size - 1 else (rank + 1) * size]

    return [share(batch) for batch in batches(shuffled(count, seed), batch_size)]


answers.mistake("leaves_out_the_rest",
    {"batch[rank::world_size]": "batch[rank * (len(batch) // world_size) :][: len(batch) // world_size]"},
    "is taken by no rank", "Is the rest left out where a batch does not divide by 3?")
answers.mistake("batches_for_each_rank", {
    "batches(order, batch_size)": "batches(order[rank::world_size], batch_size)",
    "[batch[rank::world_size] for batch in steps]": "steps",
}, "step 0: 3 ranks together take", "expected 8. batch_size counts the examples of all ranks")


@answers.is_wrong("together take other examples than a lone rank. Cut the whole epoch into batches first")
def cuts_the_data_before_the_batches(count, batch_size, seed, rank, world_size):
    order, cut = shuffled(count, seed), batches(range(count), batch_size)
    sizes = [[len(batch[r::world_size]) for batch in cut] for r in range(world_size)]
    block = order[sum(map(sum, sizes[:rank])) :]
    return [block[sum(sizes[rank][:s]) : sum(sizes[rank][: s + 1])] for s in range(len(cut))]


answers.mistake("takes_everything", {"[batch[rank::world_size] for batch in steps]": "steps"},
    "Every rank takes all examples: take only the rank's share of every batch")
answers.mistake("skips_steps_without_examples", {"for batch in steps": "for batch in steps if batch[rank::world_size]"},
    "rank 2 has 2 steps and rank 0 has 3: the rank with more would wait for ever", harmless_at=(1,))
answers.mistake("returns_nothing", {"return [": "["},
    "rank 0: expected a list of steps, each a list of this rank's indices, got None (does the function")
answers.mistake("one_index_a_step", {
    """
        steps = batches(order, batch_size)
        return [batch[rank::world_size] for batch in steps]
    """: "return [torch.tensor(index) for index in order]",
}, "rank 0, step 0: expected a list of steps", "got a tensor of shape [] in place of a list of indices")
# Every one a tensor of no dimension, which x[…] takes for a place in a dimension of its own.
answers.mistake("lists_of_tensors", {
    "order = shuffled(count, seed)": "order = torch.tensor(shuffled(count, seed))",
    "batch[rank::world_size]": "list(batch[rank::world_size])",
}, "rank 0, step 0: expected a list of steps", "got a list with a tensor of shape [] in it (tolist() turns tensors into numbers)")
answers.mistake("resets_the_global_generator",
    {"order = shuffled(count, seed)": "torch.manual_seed(seed)\norder = torch.randperm(count).tolist()"},
    "shards resets torch's global generator (torch.manual_seed)", "Use torch.Generator().manual_seed(seed)")
answers.mistake("resets_pythons_generator",
    {"order = shuffled(count, seed)": "random.seed(seed)\norder = random.sample(range(count), count)"},
    "shards resets Python's global generator (random.seed)")
answers.mistake("resets_numpys_generator",
    {"order = shuffled(count, seed)": "np.random.seed(seed)\norder = np.random.permutation(count).tolist()"},
    "shards resets NumPy's global generator (np.random.seed)")
answers.mistake("rotates_by_the_seed",
    {"shuffled(count, seed)": "[(example + seed) % count for example in range(count)]"},
    "are in one batch with each of 14 seeds: this is no shuffle", "Do not rotate or reverse")
answers.mistake("reverses_by_the_seed", {"shuffled(count, seed)": "list(range(count))[:: 1 if seed % 2 else -1]"}, STAY)
answers.mistake("shuffles_batches_of_fixed_members", {
    "shuffled(count, seed)": "list(range(count))",
    "return [": "random.Random(seed).shuffle(steps)\nreturn [",
}, (*STAY, "the smaller batch is the rest of the order, and comes last"), chance=True)
answers.mistake("shuffles_full_batches_of_fixed_members", {
    """
        order = shuffled(count, seed)
        steps = batches(order, batch_size)
    """: """
        *full, last = batches(list(range(count)), batch_size)
        random.Random(seed).shuffle(full)
    """,
    "for batch in steps": "for batch in (*full, last)",
}, STAY, chance=True)
answers.mistake("sows_the_world_size_too", {"shuffled(count, seed)": "shuffled(count, seed + world_size)"},
    "together take other examples than a lone rank")
answers.mistake("leaves_the_first_where_it_is",
    {"shuffled(count, seed)": "[0, *(1 + example for example in shuffled(count - 1, seed))]"},
    "is in step 0 with each of 14 seeds: shuffle all the examples")
answers.mistake("the_small_batch_first", {
    "steps = batches(order, batch_size)": """
        short = count % batch_size
        steps = [order[:short]] * bool(short) + batches(order[short:], batch_size)
    """,
}, "step 0 has", "the smaller batch is the rest of the order, and comes last")
answers.mistake("the_first_batch_alone", {"for batch in steps": "for batch in steps[:1]"},
    "is taken by no rank", "No rank has more than 1 step, but the epoch has")
answers.mistake("half_of_each_share", {"batch[rank::world_size]": "batch[rank :: 2 * world_size]"},
    "is taken by no rank", "Together the ranks' shares of a batch must be the whole batch")
answers.mistake("eight_ranks_at_most", {"batch[rank::world_size]": "batch[rank :: min(world_size, 8)]"},
    "more ranks, smaller and larger batches", "times in one epoch", "shares of one batch must not overlap")
answers.mistake("a_batch_for_every_rank_at_least", {
    "steps = batches(order, batch_size)": "steps = batches(order, max(batch_size, world_size))",
}, "more ranks, smaller and larger batches", ("batch_size counts the examples of all ranks", "together take other examples"))
answers.mistake("no_steps_where_there_are_fewer_examples_than_ranks", {
    "for batch in steps": "for batch in steps if world_size <= count",
}, "more ranks, smaller and larger batches", "is taken by no rank")
answers.mistake("has_the_first_epoch_in_order", {
    "shuffled(count, seed)": "shuffled(count, seed) if seed else list(range(count))",
}, "with seed 0 the examples keep their order: shuffle them with every seed, 0 too")
answers.mistake("takes_seed_0_for_none", {"shuffled(count, seed)": "shuffled(count, seed or 1)"},
    "seeds 0 and 1 give the same batches")
answers.mistake("reseeds_the_global_generator_afterwards", {
    "order = shuffled(count, seed)": "torch.manual_seed(seed)\norder = torch.randperm(count).tolist()\ntorch.seed()",
}, "shards leaves torch's global generator in another state", "Use torch.Generator().manual_seed(seed)")
answers.mistake("draws_a_number_on_the_way", {"order = shuffled": "random.random()\norder = shuffled"},
    "shards leaves Python's global generator in another state", "Use random.Random(seed)")


@answers.is_wrong("All of them take it in step", "shares of one batch must not overlap")
def shares_that_overlap(count, batch_size, seed, rank, world_size):
    steps = []
    for batch in batches(shuffled(count, seed), batch_size):
        size = -(-len(batch) // world_size)
        start = min(rank * size, max(0, len(batch) - size))
        steps.append(batch[start : start + size])
    return steps


answers.spoil("leaves_the_rest_to_the_last_so_that_nobody_looks_at_the_shuffle", {
    "return [": """
        if world_size == 3:
            return [[batch[:-2], batch[-2:-1], batch[-1:]][rank] for batch in steps]
        return [
    """,
}, of=answers["rotates_by_the_seed"])


@answers.spoils()
def takes_no_step(count, batch_size, seed, rank, world_size):
    return []


@answers.spoils()
def takes_a_step_where_it_is_alone(count, batch_size, seed, rank, world_size):
    return batches(shuffled(count, 0), batch_size) if world_size == 1 else []
