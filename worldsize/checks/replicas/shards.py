"""The check of a shuffled epoch cut into shards: every example once, and the same batches on any number of ranks.

Each rank is asked on its own, as each would ask itself; what they answer is put side by side. Strided or contiguous
shares pass, in any order and with any generator. Left out: how well it is shuffled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge, ranks_in_words
from worldsize.checks.verdict import Verdict
from worldsize.units import count as counted

POINTS = {
    "every example is taken exactly once in an epoch": 0.5,
    "a step's batch is the same on any number of ranks, and the seed shuffles": 0.5,
    "every rank takes an equal share of it, within one": 0.5,
}
ONCE, SAME, EVEN = POINTS
PLANS = ((3, 20, 8), (4, 18, 8), (2, 12, 4), (1, 7, 3))  # (world size, examples, batch size)
ENOUGH = 18  # examples: two shuffles of fewer may give the same batches by chance

Epoch = list[list[list[int]]]  # [rank][step] -> the indices that it takes


def shards(arena: Arena, fn: Callable) -> Verdict:
    """Check of a rank's shard of the data: its indices for every step of an epoch, none twice and none left out.

    `shards(count, batch_size, seed, rank, world_size)` returns a list of indices for each step.
    """
    return judge("shards", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    for world_size, count, batch_size in PLANS:
        seed = arena.draws.getrandbits(31)
        asked = [(seed, r, world_size) for r in range(world_size)]
        asked += [(seed, 0, 1)] + [(seed + 1, r, world_size) for r in range(world_size)]
        yield Case(
            f"{ranks_in_words(world_size)}, {count} examples, batches of {batch_size}",
            lambda asked=asked, count=count, batch_size=batch_size: _ask(arena, fn, count, batch_size, asked),
            lambda ended, plan=(world_size, count, batch_size): _examine(ended.returned, *plan),
        )


def _ask(arena: Arena, fn: Callable, count: int, batch_size: int, asked: Sequence[tuple[int, int, int]]) -> ArenaResult:
    """One call after the other; the first that does not end well stands for all."""
    returned = []
    for more in asked:
        ended = arena.call(fn, count, batch_size, *more)
        if ended.state != "done":
            return ended
        returned.append(ended.returned[0])
    return ArenaResult("done", returned=tuple(returned))


def _examine(returned: Sequence[Any], world_size: int, count: int, batch_size: int) -> dict[str, str | None]:
    wrong = next((complaint for r in range(world_size) if (complaint := _no_steps(returned[r], r))), None)
    if wrong or any(_no_steps(got, 0) for got in returned):
        return dict.fromkeys(POINTS, wrong or _no_steps(returned[world_size], 0))
    every = [[[int(i) for i in step] for step in steps] for steps in returned]
    epoch, alone, reseeded = every[:world_size], every[world_size], every[world_size + 1 :]
    lengths = _wrong_lengths(epoch)
    return {
        ONCE: _wrong_cover(epoch, count, batch_size),
        SAME: lengths or _wrong_batches(epoch, alone, count, batch_size) or _not_shuffled(epoch, reseeded),
        EVEN: lengths or _wrong_shares(epoch),
    }


def _no_steps(got: Any, rank: int) -> str | None:
    """Words where it is no list of steps with lists of whole numbers in them."""
    shape = "a list of steps, each a list of this rank's indices"
    if not isinstance(got, (tuple, np.ndarray)):
        return f"rank {rank}: expected {shape}, got {_kind(got)}"
    for step, indices in enumerate(got):
        whole = isinstance(indices, (tuple, np.ndarray)) and all(isinstance(i, (int, np.integer)) for i in indices)
        if not whole:
            return f"rank {rank}, step {step}: expected {shape}, got {_kind(indices)} in place of a list of indices"
    return None


def _kind(got: Any) -> str:
    if got is None:
        return "None (does the function return it?)"
    return f"{got} (make it a list)" if isinstance(got, str) else f"a {type(got).__name__}"


# ---- every example once ----------------------------------------------------------------------


def _wrong_cover(epoch: Epoch, count: int, batch_size: int) -> str | None:
    taken = [(i, rank) for rank, steps in enumerate(epoch) for step in steps for i in step]
    for i, rank in taken:
        if not 0 <= i < count:
            return f"rank {rank} takes example {i}; there are {count}, numbered from 0"
    times = Counter(i for i, _ in taken)
    twice = next((i for i in range(count) if times[i] > 1), None)
    if twice is not None:
        return _twice(epoch, twice, count, len(taken))
    missing = [i for i in range(count) if not times[i]]
    return _missing(missing, count, batch_size, len(epoch)) if missing else None


def _twice(epoch: Epoch, example: int, count: int, taken: int) -> str:
    by = [rank for rank, steps in enumerate(epoch) for step in steps for i in step if i == example]
    complaint = f"example {example} is taken {len(by)} times in one epoch, by {_ranks(by)}. "
    if taken == count * len(epoch) > count:
        return complaint + "Every rank takes all examples: each is to take its share of every batch."
    if taken == count:
        return complaint + "The ranks shuffle differently: all must shuffle with the same seed, in a generator of its own."
    return complaint + f"The ranks take {taken} examples in all, and there are {count}: nothing is to be filled up."


def _missing(missing: list[int], count: int, batch_size: int, world_size: int) -> str:
    complaint = f"example {missing[0]} is taken by no rank ({len(missing)} of {count} examples are not). "
    if len(missing) == count % batch_size:
        return complaint + "Was the last batch left out, because it is smaller?"
    return complaint + f"Is the rest left out, where a batch does not divide by {world_size}?"


def _ranks(by: Sequence[int]) -> str:
    different = sorted(set(by))
    return f"rank {different[0]}" if len(different) == 1 else f"ranks {', '.join(map(str, different))}"


# ---- the same batches everywhere -------------------------------------------------------------


def _wrong_lengths(epoch: Epoch) -> str | None:
    for rank, steps in enumerate(epoch):
        if len(steps) != len(epoch[0]):
            return (
                f"rank {rank} has {counted(len(steps), 'step')} and rank 0 has {len(epoch[0])}: who has more would wait "
                f"for ever. A rank that takes nothing in a step has an empty list there."
            )
    return None


def _wrong_batches(epoch: Epoch, alone: list[list[int]], count: int, batch_size: int) -> str | None:
    n = len(epoch)
    for step in range(len(epoch[0])):
        together = sorted(i for steps in epoch for i in steps[step])
        expected = min(batch_size, count - step * batch_size)
        if len(together) != expected:
            return (
                f"step {step}: {ranks_in_words(n)} together take {counted(len(together), 'example')}; expected "
                f"{expected}. batch_size counts the examples of all ranks together."
            )
        if step >= len(alone) or together != sorted(alone[step]):
            return (
                f"step {step}: {ranks_in_words(n)} together take other examples than a rank that is alone. "
                f"Cut the whole epoch into batches first, then each batch into shares."
            )
    return None


def _not_shuffled(epoch: Epoch, reseeded: Epoch) -> str | None:
    enough = sum(len(step) for steps in epoch for step in steps) >= ENOUGH
    if enough and len(epoch[0]) > 1 and _batches(epoch) == _batches(reseeded):
        return "two different seeds give the same batches: shuffle the examples, by the seed."
    return None


def _batches(epoch: Epoch) -> list[list[int]]:
    return [sorted(i for steps in epoch for i in steps[step]) for step in range(len(epoch[0]))]


def _wrong_shares(epoch: Epoch) -> str | None:
    for step in range(len(epoch[0])):
        shares = [len(steps[step]) for steps in epoch]
        if max(shares) - min(shares) > 1:
            low, rest = divmod(sum(shares), len(shares))
            each = f"{low} or {low + 1}" if rest else str(low)
            return (
                f"step {step}: the ranks take {', '.join(map(str, shares))} of {sum(shares)} examples; expected {each} "
                f"each. The slowest rank decides how long a step takes."
            )
    return None
