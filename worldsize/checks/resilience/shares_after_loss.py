"""Check an epoch that goes on with fewer ranks, or with more: who takes which samples, and at which rate.

Each remaining sample must be in a share, once. When every rank has taken k of its share, these must be the next samples of
the order, so that `done` alone describes the next loss; the order of ranks within a round is open. Left out: a step in
which some ranks have no sample, whose mean must be weighted (lab 04).
P. Goyal et al., arXiv:1706.02677, 2017: the linear rule of the rate.
PyTorch's TorchElastic example, `ElasticDistributedSampler`: an epoch's samples in one order for any number of ranks.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import (
    are_whole,
    close,
    first_named,
    is_row,
    kind_in_words,
    number,
    other_than_tuple,
    shown,
)
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

ONCE = "every sample that is left is in one share, once"
NEXT = "whenever all ranks have taken k more, those are the next ones of the order"
EVEN = "the shares differ by one sample at most"
RATE = "the rate goes with the global batch"
CLOSE = 1e-6


@dataclass(frozen=True)
class Loss:
    """A loss of ranks: of `samples` in the epoch, `world_size` ranks have trained `done`, before `alive` go on."""

    samples: int
    done: int
    world_size: int
    alive: tuple[int, ...]

    @property
    def left(self) -> int:
        return self.samples - self.done

    @override
    def __str__(self) -> str:
        who = ", ".join(map(str, self.alive))
        return f"{self.world_size} ranks, {self.done} of {count(self.samples, 'sample')} done, ranks {who} go on"


LOSSES = (
    Loss(20, 8, 4, (0, 1, 2)),  # 12 left, 4 each
    Loss(24, 8, 4, (0, 2, 3)),  # 16 left: 6, 5, 5
    Loss(31, 12, 4, (3, 0, 2)),
    Loss(23, 6, 3, (2,)),
    Loss(20, 12, 4, (0, 1, 2, 3)),  # all ranks are back
    Loss(25, 6, 2, (0, 1, 2)),  # a rank joins
    Loss(40, 15, 5, (4, 1)),
    Loss(14, 12, 4, (1, 2, 3)),  # fewer left than ranks
    Loss(12, 12, 4, (0, 3)),  # nothing left
    Loss(29, 0, 7, (1, 5, 6, 0, 3)),  # lost before the first step
    Loss(30, 11, 3, (0, 2)),  # a second loss: of the 11, four ranks took 8 and three took 3
)
MOST_RANKS = (9, 33)  # of the two drawn losses


@exercise({ONCE: 0.25, NEXT: 0.75, EVEN: 0.25, RATE: 0.25})
def shares_after_loss(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check `shares_after_loss(order, done, world_size, alive, rate)`, which returns ({rank: samples}, rate).

    order is a list of whole numbers, alive a list of ranks.
    """
    losses = list(LOSSES)
    for most in MOST_RANKS:
        losses.append(_drawn(arena.draws, most))

    cases = []
    for loss in losses:
        order = arena.draws.sample(range(1, 100_000), loss.samples)
        if loss.left:  # sample 0 is among those that are left: it is one like any other
            order[arena.draws.randrange(loss.done, loss.samples)] = 0
        rate = round(arena.draws.uniform(0.05, 0.5), 3)
        run = partial(arena.call, fn, order, loss.done, loss.world_size, list(loss.alive), rate)
        cases.append(Case(str(loss), run, partial(_examine, loss=loss, order=order, rate=rate)))
    return cases


def _drawn(draws: random.Random, most_ranks: int) -> Loss:
    """Draw a loss of ranks that is not the first: neither the done nor the remaining samples divide by the ranks."""
    world_size = draws.randint(max(3, most_ranks // 2), most_ranks)
    alive = tuple(draws.sample(range(world_size), draws.randint(2 * world_size // 3, world_size - 1)))
    done = world_size * draws.randint(1, 3) + draws.randint(1, world_size - 1)
    left = len(alive) * draws.randint(2, 4) + draws.randint(1, len(alive) - 1)
    return Loss(done + left, done, world_size, alive)


def _examine(ended: ArenaResult, loss: Loss, order: list[int], rate: float) -> dict[str, Complaint]:
    got = ended.returned[0]
    complaint = _no_answer(got, loss)
    if complaint:
        return dict.fromkeys(shares_after_loss.points, UNEXAMINED) | {ONCE: complaint}

    shares = {rank: list(map(int, got[0][rank])) for rank in loss.alive}
    wrong_rate = _wrong_rate(got[1], loss, rate)
    # the caller needs these arguments at the next loss
    spoilt = changed(ended.inputs[0], order, "order") or changed(ended.inputs[3], list(loss.alive), "alive")
    once = _not_once(shares, loss, order) or spoilt
    if once:  # with wrong samples, shares are neither even nor next
        return {ONCE: once, NEXT: UNEXAMINED, EVEN: UNEXAMINED, RATE: wrong_rate}

    uneven = _uneven(shares)  # first, because uneven shares are never the next samples
    following = UNEXAMINED if uneven else _not_next(shares, loss, order)
    return {ONCE: None, EVEN: uneven, NEXT: following, RATE: wrong_rate}


def _no_answer(got: Any, loss: Loss) -> Complaint:
    shape = "({rank: samples}, rate)"
    came = other_than_tuple(got, 2)
    if came:
        return f"expected two values, {shape}, got {came}"
    if not isinstance(got[0], dict):
        return f"expected two values, {shape}, got {kind_in_words(got[0])} instead of the dict"
    if set(got[0]) != set(loss.alive):
        named = ", ".join(map(str, got[0])) or "none"
        why = ""
        if set(map(str, got[0])) == set(map(str, loss.alive)):
            why = f" The ranks are numbers, not text such as {next(iter(got[0]))!r}."
        elif set(got[0]) == set(range(len(loss.alive))):
            why = " The ranks that go on need not be 0, 1, 2, …: take them from alive."
        elif set(got[0]) < set(loss.alive):
            why = " A rank with nothing left to do gets an empty share."
        elif set(got[0]) > set(loss.alive):
            why = " A lost rank takes nothing."
        return f"expected a share for each of the ranks {', '.join(map(str, loss.alive))}, got shares for {named}.{why}"

    for rank, share in got[0].items():
        if not is_row(share) or not are_whole(*(value.item() if isinstance(value, np.ndarray) else value for value in share)):
            return f"expected a list of samples as the share of rank {rank}, got {_other_than_samples(share)}"

    return None


def _other_than_samples(share: Any) -> str:
    """Describe a share that is no row of whole numbers."""
    if not is_row(share):
        return kind_in_words(share)
    first = share[0].item() if isinstance(share[0], np.ndarray | np.generic) and not np.ndim(share[0]) else share[0]
    return f"{shown(first)} in it: samples are whole numbers, the entries of order"


def _not_once(shares: dict[int, list[int]], loss: Loss, order: list[int]) -> Complaint:
    taken = Counter(chain.from_iterable(shares.values()))
    for sample in taken:
        if sample in order:
            continue
        complaint = f"sample {sample} is not in the epoch."
        if sorted(taken.elements()) == list(range(loss.done, loss.samples)):
            return f"{complaint} The shares hold places in the order, not samples: take order[k]."
        return complaint

    times = [taken[sample] for sample in order]
    again = loss.done - times[: loss.done].count(0)
    missing = times[loss.done :].count(0)
    twice = loss.left - missing - times[loss.done :].count(1)
    mistakes = []
    if again:
        mistakes.append(f"{count(again, 'sample')} taken of the {loss.done} done already")
    if twice:
        mistakes.append(f"{count(twice, 'sample')} taken more than once")
    if missing:
        mistakes.append(f"{count(missing, 'sample')} missing")
    if not mistakes:
        return None

    complaint = f"the shares do not match the {count(loss.left, 'sample')} left: {', '.join(mistakes)}."
    return f"{complaint} {_slip(shares, loss, order)}".rstrip()


def _slip(shares: dict[int, list[int]], loss: Loss, order: list[int]) -> str:
    """Return the mistake that leads to exactly these shares after a loss, in words."""
    left, m, ranks = order[loss.done :], len(loss.alive), loss.alive
    own_done = loss.done // loss.world_size

    def of(share: Callable[..., list[int]]) -> dict[int, list[int]]:
        return {rank: share(place, rank) for place, rank in enumerate(ranks)}

    padded = left + (left * m)[: -len(left) % m]
    slips = {
        "A rank begins at its own number, and takes every len(alive)-th: begin at its place in alive.": of(
            lambda place, rank: left[rank::m]
        ),
        "The shares are dealt to all the ranks there were: the lost ranks' samples are missing.": of(
            lambda place, rank: left[rank :: loss.world_size]
        ),
        "Each rank went on with its old share of the epoch: the lost ranks' are missing.": of(
            lambda place, rank: order[rank :: loss.world_size][own_done:]
        ),
        "Each rank skipped `done` samples of its own share: done counts the samples of all ranks together.": of(
            lambda place, rank: order[place::m][loss.done :]
        ),
        "The epoch was divided anew, and `done` samples of all taken off each share by their number a rank: leave out "
        "order[:done] first, then divide.": of(lambda place, rank: order[place::m][loss.done // m :]),
        "Some are taken twice to make the shares equal, as DistributedSampler does: here shares may differ by one.": of(
            lambda place, rank: padded[place::m]
        ),
        "The samples that do not divide by the number of ranks were left out: here shares may differ by one.": of(
            lambda place, rank: left[: len(left) // m * m][place::m]
        ),
        "The epoch begins again: order[:done] are done.": of(lambda place, rank: order[place::m]),
        "Every rank takes all that is left.": of(lambda place, rank: left),
        "done counts samples, not steps: order[done:] are left.": of(
            lambda place, rank: order[loss.done * loss.world_size :][place::m]
        ),
    }
    for size in (loss.world_size, m):
        for whole in (loss.done // size * size, -(-loss.done // size) * size):
            words = f"`done` was rounded to {whole}, a multiple of {size}: after an earlier loss it need not be one."
            if whole == loss.done + 1:
                words = f"order[{whole}:] was dealt out: {loss.done} are done, and the next one is order[{loss.done}]."
            slips[words] = of(lambda place, rank, whole=whole: order[whole:][place::m])
    words = f"order[{loss.done + 1}:] was dealt out: {loss.done} are done, and the next one is order[{loss.done}]."
    slips[words] = of(lambda place, rank: order[loss.done + 1 :][place::m])

    blocks = [list(map(int, block)) for block in np.array_split(padded, m)]
    slips["Some are taken twice to make the shares equal: here shares may differ by one."] = of(lambda place, rank: blocks[place])
    size = len(left) // m
    cut = of(lambda place, rank: left[place * size : (place + 1) * size])
    slips["The samples that do not divide by the number of ranks were left out: the last ones are missing."] = cut

    for words, given in slips.items():
        if all(sorted(shares[rank]) == sorted(given[rank]) for rank in ranks):
            return words

    taken = sorted(chain.from_iterable(shares.values()))
    missing = len(set(left).difference(taken))
    if missing < max(m, loss.world_size) and taken == sorted(left[: len(left) - missing]):
        return "The order's last samples, too few for a whole step, were left out: here shares may differ by one."
    return ""


def _uneven(shares: dict[int, list[int]]) -> Complaint:
    sizes = {rank: len(share) for rank, share in shares.items()}
    if max(sizes.values()) - min(sizes.values()) <= 1:
        return None
    told = ", ".join(f"{size} for rank {rank}" for rank, size in sizes.items())
    return f"the shares have different sizes: {told}. Ranks with a smaller share would wait for the others."


def _not_next(shares: dict[int, list[int]], loss: Loss, order: list[int]) -> Complaint:
    left, m = order[loss.done :], len(loss.alive)
    rows: Sequence[list[int]] = list(shares.values())

    for k in range(1, -(-len(left) // m) + 1):
        taken = set(chain.from_iterable(row[:k] for row in rows))
        if taken != set(left[: k * m]):
            skipped = next(sample for sample in left[: k * m] if sample not in taken)
            return (
                f"when every rank has taken {k} more, together they have skipped number {left.index(skipped) + 1} of the "
                f"samples left (sample {skipped}) and taken later ones. Then `done` does not tell what is left after the next "
                f"loss: {_how_to_deal(rows, left, m)}"
            )

    return None


def _how_to_deal(rows: Sequence[list[int]], left: list[int], m: int) -> str:
    """Return advice on how to deal out the samples, by how the answer changed their order."""
    dealt = f"deal the samples out in turn, left[place::{m}]"
    places = [[left.index(sample) for sample in row] for row in rows]
    if all(there == list(range(there[0], there[0] + len(there))) for there in places if there):
        return f"{dealt}, not in blocks."
    if any(there != sorted(there) for there in places):
        ascending = all(row == sorted(row) for row in rows)
        lost = "the samples are sorted here by their numbers" if ascending else "the epoch's order is lost here"
        return f"{lost} (a set keeps no order, and sorted makes a new one). Take the samples as they stand in order[done:]."
    return f"{dealt}."


def _wrong_rate(returned: Any, loss: Loss, rate: float) -> Complaint:
    got = number(returned)
    if isinstance(got, str):
        return f"expected the rate, one number, {got}"

    share = len(loss.alive) / loss.world_size
    right = rate * share
    if close(got / right, 1.0, CLOSE):
        return None

    mistakes = {
        "It is the old rate: with other ranks, a step takes another number of samples.": rate,
        "It goes the wrong way: fewer ranks make a smaller global batch, and a smaller rate.": rate / share,
        "It goes with the square root of the batch: use the linear rule.": rate * share**0.5,
        "It was divided by the ranks that go on: the rate was that of all ranks together.": rate / len(loss.alive),
        "It was multiplied by the ranks that go on, and not divided by the ranks there were.": rate * len(loss.alive),
        "It is 0: // leaves whole numbers, so divide by /.": rate * (len(loss.alive) // loss.world_size),
        "It takes one rank to be lost: count those in alive.": rate * (loss.world_size - 1) / loss.world_size,
        "It goes with the ranks that were lost.": rate * (1 - share),
        "It goes with the samples that are left: the batch goes with the ranks.": rate * loss.left / loss.samples,
    }

    telling = {words: value for words, value in mistakes.items() if not close(value / right, 1.0, CLOSE)}
    gone = f"{len(loss.alive)} of {loss.world_size} ranks"
    return f"expected the rate {right:.6g}, for {gone}, got {got:.6g}{first_named(got, telling, CLOSE)}"
