"""The checks of DistributedSampler by hand and of an evaluation that its padding does not spoil.

The sampler is held against the library's, because to be equal to it is the exercise: it is no answer, since the lab
asks for the rule and names it. An accuracy is a closed form: right ones over examples. Left out: batches.
The sampler pads so that all ranks take equally many steps: S. Li et al., "PyTorch Distributed", VLDB 2020.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge, ranks_in_words
from worldsize.checks.kit.values import number
from worldsize.checks.verdict import Verdict
from worldsize.units import count as counted

SHARE = {
    "equal shares, and no example left out": 0.5,
    "shuffled anew in every epoch, alike on all ranks": 0.5,
    "the indices of the library's sampler": 0.5,
}
EXACT = {
    "exact where the examples divide evenly": 0.5,
    "exact in spite of padding": 0.5,
    "also where a rank has padding alone": 0.5,
}
PLANS = ((4, 18), (3, 12), (4, 2), (1, 9))  # (ranks, examples)
COUNTS = ((2, 6, 0), (4, 10, 1), (3, 7, 1), (4, 2, 2))  # (ranks, examples, which property)
LABELS = 4

Epoch = list[list[int]]  # by rank, the indices that it takes


# ---- the sampler -----------------------------------------------------------------------------


def my_share(arena: Arena, fn: Callable) -> Verdict:
    """Check of a sampler as DistributedSampler is one.

    `my_share(count, rank, world_size, seed, epoch)`: the indices that this rank takes in that epoch.
    """

    def cases() -> Iterator[Case]:
        for n, count in PLANS:
            seed, epoch = _telling(count, n, arena.draws)
            yield Case(
                f"{ranks_in_words(n)}, {count} examples",
                lambda n=n, count=count, seed=seed, epoch=epoch: _ask(arena, fn, count, n, seed, epoch),
                lambda ended, n=n, count=count, seed=seed, epoch=epoch: _examine(ended.returned, count, n, seed, epoch),
            )

    return judge("my_share", SHARE, cases())


def library(count: int, n: int, seed: int, epoch: int) -> Epoch:
    """What torch's DistributedSampler deals to each of n ranks, with which a student's sampler is compared."""
    from torch.utils.data import DistributedSampler

    samplers = [DistributedSampler(range(count), n, rank, seed=seed) for rank in range(n)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return [list(sampler) for sampler in samplers]


def _telling(count: int, n: int, draws: random.Random) -> tuple[int, int]:
    """A seed and an epoch with which the library's own shares could not be taken for a mistake, as by chance they may."""
    while True:
        seed, epoch = draws.getrandbits(20), 1 + draws.randrange(9)
        shares, later = (library(count, n, seed, when) for when in (epoch, epoch + 1))
        if not _wrong_order(shares, later[0], count, seed, epoch):
            return seed, epoch


def _ask(arena: Arena, fn: Callable, count: int, n: int, seed: int, epoch: int) -> ArenaResult:
    """Every rank for this epoch, then rank 0 for the next; the first that does not end well stands for all."""
    returned = []
    for rank, when in [*((r, epoch) for r in range(n)), (0, epoch + 1)]:
        ended = arena.call(fn, count, rank, n, seed, when)
        if ended.state != "done":
            return ended
        returned.append(ended.returned[0])
    return ArenaResult("done", returned=tuple(returned))


def _examine(returned: Sequence[Any], count: int, n: int, seed: int, epoch: int) -> dict[str, str | None]:
    even, shuffled, equal = SHARE
    for rank, got in enumerate(returned):
        complaint = _no_indices(got, rank % n, count)
        if complaint:
            return dict.fromkeys(SHARE, complaint)
    shares = [[int(i) for i in got] for got in returned[:n]]
    right = library(count, n, seed, epoch)
    cover = _wrong_cover(shares, count)
    order = None if cover else _wrong_order(shares, returned[n], count, seed, epoch)
    return {even: cover, shuffled: order, equal: cover or order or _unlike(shares, right, count)}


def _no_indices(got: Any, rank: int, count: int) -> str | None:
    if not isinstance(got, (tuple, np.ndarray)):
        kind = "None (does the function return it?)" if got is None else f"a {type(got).__name__}"
        return f"rank {rank}: expected a list of indices, got {kind}"
    for place, index in enumerate(got):
        if not isinstance(index, (int, np.integer)) or not 0 <= index < count:
            return f"rank {rank}, place {place}: expected an index from 0 to {count - 1}, got {index}"
    return None


def _wrong_cover(shares: Epoch, count: int) -> str | None:
    n, lengths = len(shares), [len(share) for share in shares]
    each = -(-count // n)
    times = Counter(i for share in shares for i in share)
    missing = [i for i in range(count) if not times[i]]
    if lengths == [count] * n and n > 1 and each != count:
        return f"every rank takes all {count} examples: expected {each} each. Deal them out, indices[rank::world_size]."
    if len(set(lengths)) > 1:
        few = int(np.argmin(lengths))
        return (
            f"rank {few} takes {counted(lengths[few], 'example')}, another {max(lengths)}: who has more would wait for the "
            f"others in its last step, for ever. Pad the order before it is dealt out."
        )
    if missing:
        return f"example {missing[0]} is taken by no rank. {_why_missing(shares, lengths[0], each)}"
    if lengths[0] != each:
        return f"every rank takes {lengths[0]} examples; expected {each}, the least with which all are taken."
    return None


def _why_missing(shares: Epoch, got: int, each: int) -> str:
    if got < each:
        return "The rest was left out: take it, and pad what is missing with examples from the beginning of the order."
    if len({tuple(sorted(share)) for share in shares}) == 1:
        return "All ranks take the same examples."
    return (
        "And others are taken twice, so the ranks' orders differ: shuffle with the same seed on every rank, in a "
        "generator of its own."
    )


def _wrong_order(shares: Epoch, later: Any, count: int, seed: int, epoch: int) -> str | None:
    order = _dealt(shares, count)
    if count > 4 and order == list(range(count)):
        return "the examples come in the order 0, 1, 2, …: shuffle them, by seed and epoch."
    if len(shares[0]) > 2 and list(map(int, later)) == shares[0]:
        return (
            f"rank 0 takes the same examples in the same order in epochs {epoch} and {epoch + 1}. The epoch has to be in "
            f"the seed, or every epoch is the first one again."
        )
    return None


def _dealt(shares: Epoch, count: int) -> list[int]:
    """The order that was dealt out like cards to give these shares, without its padding."""
    return [share[k] for k in range(len(shares[0])) for share in shares][:count]


def _unlike(shares: Epoch, right: Epoch, count: int) -> str | None:
    if shares == right:
        return None
    n, each = len(right), len(right[0])
    order = [i for i in _dealt(right, n * each)]
    blocks = [order[r * each : (r + 1) * each] for r in range(n)]
    if shares == blocks:
        return f"these are blocks of the order; the library deals it like cards: rank 1 begins with its second, {right[1][0]}."
    if _dealt(shares, count) == _dealt(right, count):
        return f"the order is right, the padding is not: expected it to be filled up from its beginning, {order[:count]} …"
    rank = next(r for r in range(n) if shares[r] != right[r])
    return (
        f"rank {rank}: expected {right[rank]}, got {shares[rank]}. The order is torch.randperm(count) of a fresh "
        f"torch.Generator with the seed seed + epoch."
    )


# ---- the evaluation --------------------------------------------------------------------------


def exact_accuracy(arena: Arena, fn: Callable) -> Verdict:
    """Check of the sampler's other half: over padded shares the accuracy on every rank must still be exact.

    `exact_accuracy(share, count)`: the accuracy over `count` examples, in a process group.
    `share` is {"predicted": [k], "labels": [k]}, this rank's examples as DistributedSampler deals them unshuffled.
    """
    names = list(EXACT)

    def cases() -> Iterator[Case]:
        for n, count, which in COUNTS:
            right = _outcomes(n, count, arena.draws)
            shares = _shares(right, n, arena.draws)
            yield Case(
                f"{ranks_in_words(n)}, {count} examples",
                lambda shares=shares, count=count: arena.group(fn, shares, count),
                lambda ended, right=right, n=n, name=names[which]: {name: _wrong_accuracy(ended.returned, right, n)},
            )

    return judge("exact_accuracy", EXACT, cases())


def _outcomes(n: int, count: int, draws: random.Random) -> np.ndarray:
    """Which examples are predicted right: so that every mistake gives an accuracy of its own, as far as it can."""
    best, most = np.zeros(count, dtype=bool), 0
    for _ in range(60):
        right = np.array([draws.randrange(2) for _ in range(count)], dtype=bool)
        given = [[float(right.mean())] * n, *_slips(right, n).values()]
        found = len({tuple(np.round(by_rank, 6)) for by_rank in given})
        exact, padded = right.mean(), right[_order(count, n)].mean()
        if 0 < exact < 1 and (count % n == 0 or abs(exact - padded) > 1e-3) and found > most:
            best, most = right, found
    return best


def _order(count: int, n: int) -> np.ndarray:
    return np.arange(-(-count // n) * n) % count


def _shares(right: np.ndarray, n: int, draws: random.Random) -> list[dict[str, np.ndarray]]:
    labels = np.array([draws.randrange(LABELS) for _ in right])
    predicted = np.where(right, labels, (labels + 1) % LABELS)
    order = _order(len(right), n)
    return [{"predicted": predicted[order[r::n]], "labels": labels[order[r::n]]} for r in range(n)]


def _wrong_accuracy(returned: Sequence[Any], right: np.ndarray, n: int) -> str | None:
    exact, found = float(right.mean()), [number(got) for got in returned]
    for rank, value in enumerate(found):
        if isinstance(value, str):
            return f"rank {rank}: expected the accuracy, one number, {value.replace('the function', 'every rank')}"
    for rank, value in enumerate(found):
        if not np.isclose(value, exact, atol=1e-6):
            slips = _slips(right, n).items()
            named = next((w for w, by_rank in slips if np.allclose(found, by_rank, atol=1e-6, equal_nan=True)), "")
            said = f"rank {rank}: expected {right.sum()} of {len(right)} right, {exact:.6f}; got {value:.6f}. {named}"
            return said.strip()
    return None


def _slips(right: np.ndarray, n: int) -> dict[str, list[float]]:
    """What mistakes give on each rank, with their names."""
    count, order = len(right), _order(len(right), n)
    padded = [right[order[r::n]] for r in range(n)]
    own = [right[r::n] for r in range(n)]
    with np.errstate(invalid="ignore"):
        means = [float(part.mean()) if len(part) else np.nan for part in own]
    total, kept = sum(part.sum() for part in padded), [part[:-1] for part in padded]
    dropped = sum(len(part) for part in kept)
    slips = {
        f"The padding was counted: {len(order)} predictions of {count} examples.": [total / len(order)] * n,
        f"The padding was among the right ones, though they were divided by {count}.": [total / count] * n,
        "This is the mean of the ranks' accuracies: a rank with fewer examples counts as much as one with more. Add up "
        "right ones and examples, then divide.": [np.mean(means)] * n,
        "This is each rank's own accuracy: add up over the ranks.": means,
        "This is each rank's own accuracy, with its padding: add up over the ranks.": [float(p.mean()) for p in padded],
        "These are the right ones: divide by the number of examples.": [float(right.sum())] * n,
        "These are the wrong ones.": [1 - float(right.mean())] * n,
    }
    if dropped:
        complaint = "Every rank left its last example out: padding is on some ranks only."
        slips[complaint] = [sum(part.sum() for part in kept) / dropped] * n
    return slips
