"""The check of a shuffled epoch cut into shards: every example once, and the same batches on any number of ranks.

Each rank is asked on its own, as each would ask itself; what they answer is put side by side. Strided or contiguous
shares pass, in any order and with any generator. Left out: how well it is shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, product
from typing import Any

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, first_complaint, judge, ranks_in_words
from worldsize.checks.kit.values import are_whole, is_row, kind_in_words
from worldsize.checks.verdict import Complaint, Verdict
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
        plan = (world_size, count, batch_size)
        asked = [(count, batch_size, *whose) for whose in _whose(seed, world_size)]
        yield Case(
            f"{ranks_in_words(world_size)}, {count} examples, batches of {batch_size}",
            lambda asked=asked: call_each(arena, fn, asked),
            lambda ended, plan=plan: _examine(ended.returned, *plan),
        )


def _whose(seed: int, world_size: int) -> list[tuple[int, int, int]]:
    """(seed, rank, world size) of each call: all ranks, then a rank that is alone, then all with another seed."""
    together = list(product([seed], range(world_size), [world_size]))
    reseeded = list(product([seed + 1], range(world_size), [world_size]))
    return [*together, (seed, 0, 1), *reseeded]


def call_each(arena: Arena, fn: Callable, asked: Sequence[tuple]) -> ArenaResult:
    """For checks of shards and of samplers: `fn(*arguments)` for each of the arguments asked, one call after the other.

    The first call that does not end well stands for all; otherwise `returned` has what each returned.
    """
    returned = []
    for arguments in asked:
        ended = arena.call(fn, *arguments)
        if ended.state != "done":
            return ended
        returned.append(ended.returned[0])

    return ArenaResult("done", returned=tuple(returned))


def _examine(returned: Sequence[Any], world_size: int, count: int, batch_size: int) -> dict[str, Complaint]:
    for (_, rank, _), got in zip(_whose(0, world_size), returned, strict=True):
        complaint = _no_steps(got, rank)
        if complaint:
            return dict.fromkeys(POINTS, complaint)

    every = [_whole_numbers(steps) for steps in returned]
    epoch, alone, reseeded = every[:world_size], every[world_size], every[world_size + 1 :]
    lengths = _wrong_lengths(epoch)

    return {
        ONCE: _wrong_cover(epoch, count, batch_size),
        SAME: first_complaint([lengths, _wrong_batches(epoch, alone, count, batch_size), _not_shuffled(epoch, reseeded)]),
        EVEN: lengths or _wrong_shares(epoch),
    }


def _no_steps(got: Any, rank: int) -> Complaint:
    """Words where it is no list of steps with lists of whole numbers in them."""
    shape = "a list of steps, each a list of this rank's indices"
    if not is_row(got):
        return f"rank {rank}: expected {shape}, got {_kind(got)}"

    for step, indices in enumerate(got):
        if not is_row(indices) or not are_whole(*indices):
            return f"rank {rank}, step {step}: expected {shape}, got {_kind(indices)} in place of a list of indices"

    return None


def _kind(got: Any) -> str:
    if isinstance(got, str):
        return f"{got} (make it a list)"
    return kind_in_words(got)


def _whole_numbers(steps: Sequence[Sequence[Any]]) -> list[list[int]]:
    return [list(map(int, indices)) for indices in steps]


# ---- every example once ----------------------------------------------------------------------


def _wrong_cover(epoch: Epoch, count: int, batch_size: int) -> Complaint:
    takers: list[list[int]] = [[] for _ in range(count)]  # by example, the ranks that take it
    for rank, steps in enumerate(epoch):
        for example in chain(*steps):
            if not 0 <= example < count:
                return f"rank {rank} takes example {example}; there are {count}, numbered from 0"
            takers[example].append(rank)

    for example, by in enumerate(takers):
        if len(by) > 1:
            return f"example {example} is taken {len(by)} times in one epoch, by {_ranks(by)}. {_why_twice(epoch, count)}"

    missing = [example for example, by in enumerate(takers) if not by]
    if missing:
        return _missing(missing, count, batch_size, len(epoch))
    return None


def _why_twice(epoch: Epoch, count: int) -> str:
    taken = _taken(epoch)
    if taken == count * len(epoch) > count:
        return "Every rank takes all examples: each is to take its share of every batch."
    if taken == count:
        return "The ranks shuffle differently: all must shuffle with the same seed, in a generator of its own."
    return f"The ranks take {taken} examples in all, and there are {count}: nothing is to be filled up."


def _taken(epoch: Epoch) -> int:
    """How many examples all ranks together take."""
    return len(list(chain(*chain(*epoch))))


def _missing(missing: list[int], count: int, batch_size: int, world_size: int) -> str:
    complaint = f"example {missing[0]} is taken by no rank ({len(missing)} of {count} examples are not). "
    if len(missing) == count % batch_size:
        return complaint + "Was the last batch left out, because it is smaller?"
    return complaint + f"Is the rest left out, where a batch does not divide by {world_size}?"


def _ranks(by: Sequence[int]) -> str:
    different = sorted(set(by))
    if len(different) == 1:
        return f"rank {different[0]}"
    return f"ranks {', '.join(map(str, different))}"


# ---- the same batches everywhere -------------------------------------------------------------


def _wrong_lengths(epoch: Epoch) -> Complaint:
    for rank, steps in enumerate(epoch):
        if len(steps) != len(epoch[0]):
            return (
                f"rank {rank} has {counted(len(steps), 'step')} and rank 0 has {len(epoch[0])}: who has more would wait "
                f"for ever. A rank that takes nothing in a step has an empty list there."
            )

    return None


def _wrong_batches(epoch: Epoch, alone: list[list[int]], count: int, batch_size: int) -> Complaint:
    n = len(epoch)
    for step, together in enumerate(_batches(epoch)):
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


def _not_shuffled(epoch: Epoch, reseeded: Epoch) -> Complaint:
    if _taken(epoch) < ENOUGH or len(epoch[0]) == 1:
        return None
    if _batches(epoch) == _batches(reseeded):
        return "two different seeds give the same batches: shuffle the examples, by the seed."
    return None


def _batches(epoch: Epoch) -> list[list[int]]:
    """By step, what all ranks together take, in ascending order."""
    return [sorted(chain(*shares)) for shares in zip(*epoch, strict=False)]


def _wrong_shares(epoch: Epoch) -> Complaint:
    for step, shares in enumerate(zip(*epoch, strict=True)):
        sizes = list(map(len, shares))
        if max(sizes) - min(sizes) > 1:
            low, rest = divmod(sum(sizes), len(sizes))
            each = str(low)
            if rest:
                each = f"{low} or {low + 1}"
            return (
                f"step {step}: the ranks take {', '.join(map(str, sizes))} of {sum(sizes)} examples; expected {each} "
                f"each. The slowest rank decides how long a step takes."
            )

    return None
