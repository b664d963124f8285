"""Exercise 4.1: a shuffled epoch, cut into batches, cut into shares."""

from __future__ import annotations

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


@answers.is_wrong("two different seeds give the same batches: shuffle the examples, by the seed")
def does_not_shuffle(count, batch_size, seed, rank, world_size):
    return [batch[rank::world_size] for batch in batches(list(range(count)), batch_size)]


@answers.is_wrong("The ranks shuffle differently: all must shuffle with the same seed")
def shuffles_by_rank(count, batch_size, seed, rank, world_size):
    return [batch[rank::world_size] for batch in batches(shuffled(count, seed + rank), batch_size)]


@answers.is_wrong("The ranks shuffle differently", "in a generator of its own")
def shuffles_by_the_global_generator(count, batch_size, seed, rank, world_size):
    order = torch.randperm(count).tolist()
    return [batch[rank::world_size] for batch in batches(order, batch_size)]


@answers.is_wrong("is taken by no rank (4 of 20 examples are not). Was the last batch left out, because it is smaller?")
def drops_the_last_batch(count, batch_size, seed, rank, world_size):
    return [b[rank::world_size] for b in batches(shuffled(count, seed), batch_size) if len(b) == batch_size]


@answers.is_wrong("The ranks take 21 examples in all, and there are 20: nothing is to be filled up", "by rank")
def fills_up_as_a_distributed_sampler(count, batch_size, seed, rank, world_size):
    order = shuffled(count, seed)
    order += order[: -count % world_size]
    return batches(order[rank::world_size], batch_size // world_size + 1)


@answers.is_wrong("step 0: the ranks take 2, 2, 4 of 8 examples; expected 2 or 3 each", "The slowest rank decides")
def leaves_the_rest_to_the_last_rank(count, batch_size, seed, rank, world_size):
    def share(batch):
        size = len(batch) // world_size
        return batch[rank * size : len(batch) if rank == world_size - 1 else (rank + 1) * size]

    return [share(batch) for batch in batches(shuffled(count, seed), batch_size)]


@answers.is_wrong("is taken by no rank", "Is the rest left out, where a batch does not divide by 3?")
def leaves_out_the_rest(count, batch_size, seed, rank, world_size):
    def share(batch):
        size = len(batch) // world_size
        return batch[rank * size : (rank + 1) * size]

    return [share(batch) for batch in batches(shuffled(count, seed), batch_size)]


@answers.is_wrong("step 0: 3 ranks together take 20 examples; expected 8. batch_size counts the examples of all ranks")
def batches_for_each_rank(count, batch_size, seed, rank, world_size):
    return batches(shuffled(count, seed)[rank::world_size], batch_size)


@answers.is_wrong("together take other examples than a rank that is alone. Cut the whole epoch into batches first")
def cuts_the_data_before_the_batches(count, batch_size, seed, rank, world_size):
    order, cut = shuffled(count, seed), batches(range(count), batch_size)
    sizes = [[len(batch[r::world_size]) for batch in cut] for r in range(world_size)]
    block = order[sum(map(sum, sizes[:rank])) :]
    return [block[sum(sizes[rank][:s]) : sum(sizes[rank][: s + 1])] for s in range(len(cut))]


@answers.is_wrong("Every rank takes all examples: each is to take its share of every batch")
def takes_everything(count, batch_size, seed, rank, world_size):
    return batches(shuffled(count, seed), batch_size)


@answers.is_wrong("rank 2 has 2 steps and rank 0 has 3: who has more would wait for ever", harmless_at=(1,))
def skips_steps_without_examples(count, batch_size, seed, rank, world_size):
    return [s for batch in batches(shuffled(count, seed), batch_size) if (s := batch[rank::world_size])]


@answers.is_wrong("rank 0: expected a list of steps, each a list of this rank's indices, got None (does the function")
def returns_nothing(count, batch_size, seed, rank, world_size):
    batches(shuffled(count, seed), batch_size)


@answers.is_wrong("rank 0, step 0: expected a list of steps", "got a tensor of shape [] in place of a list of indices")
def one_index_a_step(count, batch_size, seed, rank, world_size):
    return [torch.tensor(index) for index in shuffled(count, seed)]


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


@answers.is_wrong("shards resets torch's global generator (torch.manual_seed)", "Take torch.Generator().manual_seed(seed)")
def resets_the_global_generator(count, batch_size, seed, rank, world_size):
    torch.manual_seed(seed)
    return [batch[rank::world_size] for batch in batches(torch.randperm(count).tolist(), batch_size)]


@answers.is_wrong("shards resets Python's global generator (random.seed)")
def resets_pythons_generator(count, batch_size, seed, rank, world_size):
    random.seed(seed)
    order = random.sample(range(count), count)
    return [batch[rank::world_size] for batch in batches(order, batch_size)]


@answers.is_wrong("shards resets NumPy's global generator (np.random.seed)")
def resets_numpys_generator(count, batch_size, seed, rank, world_size):
    np.random.seed(seed)  # noqa: NPY002 - what is wrong
    return [batch[rank::world_size] for batch in batches(np.random.permutation(count).tolist(), batch_size)]  # noqa: NPY002


@answers.is_wrong("are in one batch with each of 12 seeds: that is no shuffle", "Do not rotate or reverse")
def rotates_by_the_seed(count, batch_size, seed, rank, world_size):
    order = [(example + seed) % count for example in range(count)]
    return [batch[rank::world_size] for batch in batches(order, batch_size)]


@answers.is_wrong(STAY)
def reverses_by_the_seed(count, batch_size, seed, rank, world_size):
    order = list(range(count))[:: 1 if seed % 2 else -1]
    return [batch[rank::world_size] for batch in batches(order, batch_size)]


@answers.is_wrong((*STAY, "batch_size counts the examples of all ranks together"), chance=True)
def shuffles_batches_of_fixed_members(count, batch_size, seed, rank, world_size):
    cut = batches(list(range(count)), batch_size)
    random.Random(seed).shuffle(cut)
    return [batch[rank::world_size] for batch in cut]


@answers.is_wrong(STAY, chance=True)
def shuffles_full_batches_of_fixed_members(count, batch_size, seed, rank, world_size):
    *full, last = batches(list(range(count)), batch_size)
    random.Random(seed).shuffle(full)
    return [batch[rank::world_size] for batch in (*full, last)]


@answers.is_wrong("together take other examples than a rank that is alone")
def sows_the_world_size_too(count, batch_size, seed, rank, world_size):
    return [batch[rank::world_size] for batch in batches(shuffled(count, seed + world_size), batch_size)]


@answers.is_wrong("is in step 0 with each of 12 seeds: shuffle all the examples")
def leaves_the_first_where_it_is(count, batch_size, seed, rank, world_size):
    order = [0, *(1 + example for example in shuffled(count - 1, seed))]
    return [batch[rank::world_size] for batch in batches(order, batch_size)]


@answers.is_right
def forks_the_global_generator(count, batch_size, seed, rank, world_size):
    """What it sets is set back at the end."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        order = torch.randperm(count)
    return [batch[rank::world_size] for batch in order.split(batch_size)]


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
