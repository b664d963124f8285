"""Checks of a hand-written DistributedSampler, and of an evaluation that its padding does not spoil.

The sampler must equal the library's, because the lab asks for its rule by name; an accuracy must equal right
predictions over examples. Padding gives all ranks equally many steps: S. Li et al., "PyTorch Distributed", VLDB 2020.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.error_advice import HANG
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint, ranks_in_words, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import alike, differing, is_row, is_whole, kind_in_words, number
from worldsize.checks.replicas.shards import resets
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count as counted

EQUAL_SHARES = "equal shares, and no example left out"
SHUFFLED = "shuffled anew in every epoch, alike on all ranks"
LIBRARYS = "the indices of the library's sampler, worked out by hand"
EVEN = "exact where the examples divide evenly"
PADDED = "exact in spite of padding"
ALL_PADDING = "also where a rank has padding alone"
# (ranks, examples, seed, epoch); None: drawn
PLANS = ((3, 12, None, 0), (4, 2, None, None), (4, 1, None, None), (7, 31, None, None), (1, 9, 0, 0))
DRAWN = (4, range(14, 120, 4))  # comes first; the drawn number of examples is always two too few to share out evenly
EPOCHS = range(1, 300)  # drawn from
COUNTS = ((2, 6, EVEN), (4, 9, PADDED), (3, 7, PADDED), (4, 2, ALL_PADDING))  # (ranks, examples, property)
MANY = (3, 70_001)  # ranks and examples of one set more; half of them are over 32,767, where int16 ends
LABELS = 4
MORE = 12  # sets of outcomes after the one that tells slips apart
APART = 1e-3  # how far from the exact accuracy a slip must be, if there is padding beside examples
# float32 holds 7 digits; two accuracies over so few examples differ by far more
ACCURACY = {"tolerance": 1e-5, "near_zero": 1e-6}

Epoch = list[list[int]]  # [rank] -> its indices


@exercise({EQUAL_SHARES: 0.5, SHUFFLED: 0.5, LIBRARYS: 0.5}, seen={LIBRARYS: evidence.RETURNED_AND_LIBRARY})
def my_share(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a sampler against torch's DistributedSampler.

    `my_share(count, rank, world_size, seed, epoch)` returns the rank's indices in that epoch.
    """
    cases = []
    ranks, counts = DRAWN
    for n, count, *given in ((ranks, arena.draws.choice(counts), None, None), *PLANS):
        seed, epoch = _telling(count, n, given, arena.draws)
        asked = [(count, rank, n, seed, epoch) for rank in range(n)]
        asked.append((count, 0, n, seed, epoch + 1))
        run = partial(arena.ranks, fn, [asked], driver=on_ranks.answers_by_hand)
        examine = partial(_examine, count=count, n=n, seed=seed, epoch=epoch)
        cases.append(Case(f"{ranks_in_words(n)}, {counted(count, 'example')}, epoch {epoch}", run, examine))
    return cases


def library(count: int, n: int, seed: int, epoch: int) -> Epoch:
    """Return the indices that torch's DistributedSampler deals to each of `n` ranks."""
    from torch.utils.data import DistributedSampler

    shares = []
    for rank in range(n):
        sampler = DistributedSampler(range(count), n, rank, seed=seed)
        sampler.set_epoch(epoch)
        shares.append(list(sampler))

    return shares


def _telling(count: int, n: int, given: Sequence[int | None], draws: random.Random) -> tuple[int, int]:
    """Draw a seed and an epoch whose right shares by the sampler do not look like a mistake by chance, unless they are `given`.

    Raises AssertionError as `drawn_until`.
    """

    def tells(drawn: tuple[int, int]) -> bool:
        seed, epoch = drawn
        later = library(count, n, seed, epoch + 1)[0]
        return not _wrong_order(library(count, n, seed, epoch), later, epoch)

    def draw() -> tuple[int, int]:
        seed, epoch = given
        return draws.getrandbits(20) if seed is None else seed, draws.choice(EPOCHS) if epoch is None else epoch

    return drawn_until(tells, draw, "my_share")


def _examine(ended: ArenaResult, count: int, n: int, seed: int, epoch: int) -> dict[str, Complaint]:
    """Examine a sampler: every rank's share of this epoch, then rank 0's share of the next."""
    (answered,) = ended.returned
    returned = answered["returned"]
    for rank, got in enumerate(returned):
        complaint = _no_indices(got, rank % n, count)
        if complaint:
            return {EQUAL_SHARES: complaint, SHUFFLED: UNEXAMINED, LIBRARYS: UNEXAMINED}

    *shares, later = [list(map(int, got)) for got in returned]
    right = library(count, n, seed, epoch)
    cover = _wrong_cover(shares, count, right)
    if cover:
        # if ranks differ, and more examples are missing than padding makes up, the shares may be cut from fewer examples
        missing = set(range(count)).difference(*shares)
        of_fewer = len(missing) >= n and len(set(map(frozenset, shares))) > 1
        if of_fewer or _ORDERS_DIFFER in cover or _ONE_FURTHER in cover or min(len(set(share)) for share in shares) < count // n:
            return {EQUAL_SHARES: cover, SHUFFLED: UNEXAMINED, LIBRARYS: UNEXAMINED}

    order = _wrong_order(shares, later, epoch)
    by_library = _BY_LIBRARY if answered["library"] else None
    of_next = library(count, n, seed, epoch + 1)
    return {
        EQUAL_SHARES: cover,
        SHUFFLED: order or resets("my_share", answered["drawn"], "seed + epoch"),
        LIBRARYS: UNEXAMINED if cover or order else _unlike(shares, right, count, epoch, of_next) or by_library,
    }


_ORDERS_DIFFER = "the ranks' orders differ"
_ONE_FURTHER = "numbers begin at 0"
_BY_LIBRARY = "the indices are right, but a DistributedSampler dealt them. Work them out by hand: shuffle, pad, deal."


def _no_indices(got: Any, rank: int, count: int) -> Complaint:
    if not is_row(got):
        return f"rank {rank}: expected a list of indices, got {kind_in_words(got)}"

    for place, index in enumerate(got):
        if not is_whole(index) or not 0 <= index < count:
            return f"rank {rank}, place {place}: expected an index from 0 to {count - 1}, got {index}"

    return None


def _wrong_cover(shares: Epoch, count: int, right: Epoch) -> Complaint:
    n = len(shares)
    each = -(-count // n)
    lengths = list(map(len, shares))
    if count > n > 1 and shares[:-1] == right[1:]:
        return (
            f"rank 0 begins with number 1 of the order, {shares[0][0]}: {_ONE_FURTHER}, so rank r begins with number r, "
            f"and goes on in steps of {n}."
        )
    if lengths == [count] * n and n > 1 and each != count:
        return f"every rank takes all {count} examples: expected {each} each. Deal them out, indices[rank::world_size]."
    if len(set(lengths)) > 1:
        once = [len(range(rank, min(2 * count, each * n), n)) for rank in range(n)]
        if 2 * count < each * n and lengths == once:
            return (
                f"the ranks take {', '.join(map(str, lengths))} examples: the order was appended only once, and "
                f"{counted(count, 'example')} twice are fewer than {n} ranks. Repeat it until every rank has one."
            )
        few = int(np.argmin(lengths))
        return (
            f"rank {few} takes {counted(lengths[few], 'example')}, another {max(lengths)}: the rank with more would wait "
            f"for ever in its last step. Pad the order before you deal it out."
        )

    missing = set(range(count)).difference(*shares)
    if missing:
        why = (
            f"Others are taken twice, so {_ORDERS_DIFFER}: shuffle with the same seed on every rank, in a separate generator."
        )
        if lengths[0] < each:
            why = "The rest was left out: take it, and pad with examples from the beginning of the order."
        elif len({tuple(sorted(share)) for share in shares}) == 1:
            why = "All ranks take the same examples."
        return f"example {min(missing)} is taken by no rank. {why}"
    if lengths[0] != each:
        return f"every rank takes {lengths[0]} examples; expected {each}, the fewest that cover all examples."
    return None


def _wrong_order(shares: Epoch, later: list[int], epoch: int) -> Complaint:
    """Return a complaint if the sampler shuffled nothing, or if `later`, rank 0's next epoch, repeats this one; else None."""
    # few examples may come in this order by chance
    order = list(dict.fromkeys(_dealt(shares)))
    if len(order) > 4 and order == list(range(len(order))):
        anew = "shuffle them, by seed and epoch." if epoch else "epoch 0 is shuffled as well, by seed and epoch."
        return f"the examples come in the order 0, 1, 2, …: {anew}"
    if len(shares[0]) > 2 and later == shares[0]:
        return (
            f"rank 0 takes the same examples in the same order in epochs {epoch} and {epoch + 1}. Put the epoch "
            f"into the seed, or an epoch repeats another one."
        )
    return None


def _dealt(shares: Epoch) -> list[int]:
    """Return the sampler's order that gives these shares if each rank took every n-th."""
    rounds = chain(*zip_longest(*shares))
    return [index for index in rounds if index is not None]


def _unlike(shares: Epoch, right: Epoch, count: int, epoch: int, of_next: Epoch) -> Complaint:
    """Return a complaint if the shares are not the `right` ones of this epoch; the next epoch has the shares `of_next`."""
    if shares == right:
        return None

    order = _dealt(right)
    if list(chain(*shares)) == order:
        return (
            f"the shares are blocks; with the library each rank takes every n-th of the order, beginning with its own number: "
            f"rank 1 begins with the order's second, {right[1][0]}."
        )
    if _dealt(shares)[:count] == order[:count]:
        return f"the order is right, the padding is not: expected it from the beginning of the order, {order[count:]}."

    each, n = len(right[0]), len(right)
    unshuffled = [sorted(place % count for place in range(rank, each * n, n)) for rank in range(n)]
    if n > 1 and count > n and list(map(sorted, shares)) == unshuffled:
        return (
            "the examples were dealt out first, and each share was shuffled by itself: a rank then has the same examples in "
            "every epoch. Shuffle all of them, then deal."
        )

    rank = next(rank for rank, share in enumerate(shares) if share != right[rank])
    complaint = f"rank {rank}: expected {right[rank]}, got {shares[rank]}."
    if shares[rank] in right:
        return f"{complaint} This is the share of rank {right.index(shares[rank])}: rank r begins with number r of the order."
    if len(shares) > 1 and list(map(sorted, shares)) == list(map(sorted, right)):
        return f"{complaint} These are its examples in another order: leave them in the order in which they are dealt."
    if shares == of_next:
        return (
            f"{complaint} This is the order of epoch {epoch + 1}, or of another seed: the generator is seeded with seed + epoch, "
            f"and epochs begin at 0."
        )
    return f"{complaint} The order is torch.randperm(count) with a fresh torch.Generator, seeded with seed + epoch."


@exercise({EVEN: 0.5, PADDED: 0.5, ALL_PADDING: 0.5}, needs=needs.GROUP)
def exact_accuracy(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check an evaluation over a sampler's padded shares: the accuracy must be exact on every rank.

    `exact_accuracy(share, count)` returns the accuracy over `count` examples, in a process group. `share` is
    {"predicted": [k], "labels": [k]}, the rank's examples as DistributedSampler deals them unshuffled.

    No named mistake passes by luck: in both cases with padding beside examples, outcomes are redrawn until every named
    mistake gives a wrong accuracy, as 41 of 512 and 8 of 128 outcomes do. An unnamed mistake, which counts one
    example for another, passes each of 24 more sets of outcomes with chance 1/2, all of them with 6e-8.
    """
    for n, count, held in COUNTS:  # drawn as they are asked for: an answer that fails needs no more outcomes
        outcomes = [_outcomes(n, count, arena.draws)]
        for _ in range(MORE):
            outcomes.append(_any_outcomes(count, arena.draws))
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        ranks, many = MANY
        if n == ranks:
            outcomes.append(generator.integers(2, size=many) > 0)

        shares: list[list[tuple[dict[str, np.ndarray], int]]] = [[] for _ in range(n)]
        for right in outcomes:
            labels = generator.integers(LABELS, size=len(right))
            predicted = np.where(right, labels, (labels + 1) % LABELS)
            for rank in range(n):
                own = _order(len(right), n)[rank::n]
                shares[rank].append(({"predicted": predicted[own], "labels": labels[own]}, len(right)))

        run = partial(arena.group, fn, shares, driver=on_ranks.on_each)
        examine = partial(_examine_sets, given=shares, outcomes=outcomes, held=held)
        yield Case(f"{ranks_in_words(n)}, {count} examples", run, examine, _ALL_MEET)


def _any_outcomes(count: int, draws: random.Random) -> np.ndarray:
    return np.array([draws.randrange(2) for _ in range(count)], dtype=bool)


def _examine_sets(ended: ArenaResult, given: Sequence[Any], outcomes: Sequence[np.ndarray], held: str) -> dict[str, Complaint]:
    """Examine each rank's accuracy for each set of outcomes; no named mistake gives the right one for the first set."""
    by_set = list(zip(*ended.returned, strict=True))
    named = partial(_named_slip, by_set, outcomes)
    complaint = first_complaint(_wrong_accuracy(values, right, named) for values, right in zip(by_set, outcomes, strict=True))
    after = zip(ended.inputs, given, strict=True)
    kept = first_complaint(changed(held_then, share, "share", rank) for rank, (held_then, share) in enumerate(after))
    return {held: complaint or though_right("the accuracies", kept)}


_ALL_MEET = {
    HANG: "Does every rank call the all-reduce, even a rank with only padding? The others wait for it.",
    "killed by SIGABRT": "gloo ends a process in which a collective gets a tensor of another length than on other ranks.",
}


def _outcomes(n: int, count: int, draws: random.Random) -> np.ndarray:
    """Draw which examples are predicted right: some, and not all.

    If there is padding beside examples, no slip may give the exact accuracy. Raises AssertionError as `drawn_until`.
    """

    def tells(right: np.ndarray) -> bool:
        exact = float(right.mean())
        if exact in (0, 1) or (exact == 1 / 2 and not count % n):
            return False
        padding_beside_examples = n < count and count % n > 0
        return not padding_beside_examples or all(
            any(abs(value - exact) > APART for value in by_rank) for _, by_rank in _slips(right, n)
        )

    return drawn_until(tells, lambda: _any_outcomes(count, draws), "exact_accuracy")


def _order(count: int, n: int) -> np.ndarray:
    return np.arange(-(-count // n) * n) % count


def _wrong_accuracy(returned: Sequence[Any], right: np.ndarray, named: Callable[[], str]) -> Complaint:
    """Return a complaint about a set's accuracies, with the slip that is `named` for all sets, or None."""
    n, accuracies = len(returned), list(map(number, returned))
    for rank, value in enumerate(accuracies):
        if isinstance(value, str):
            return f"rank {rank}: expected the accuracy, one number, {value.replace('the function', 'every rank')}"

    exact = float(right.mean())
    wrong = differing(np.array(accuracies), np.full(n, exact), **ACCURACY)
    if not wrong.size:
        return None

    rank = int(wrong[0])
    complaint = f"rank {rank}: expected {right.sum():,} of {len(right):,} right, {exact:.6f}; got {accuracies[rank]:.6f}."
    if len(right) == MANY[1]:
        return f"{complaint} With fewer examples it is right: can the totals' dtype count this far? int16 ends at 32,767."
    slip = named()
    if not slip and wrong.size == n - 1:
        (alone,) = set(range(n)) - set(map(int, wrong))
        slip = f"Only rank {alone} has it: dist.reduce gives a sum to one rank, dist.all_reduce to all."
    return f"{complaint} {slip}".strip()


def _named_slip(by_set: Sequence[Sequence[Any]], outcomes: Sequence[np.ndarray]) -> str:
    """Return the mistake that gives the returned accuracies in every set of outcomes, or an empty text.

    The set of very many examples is left out: a sum's dtype may spoil it.
    """
    sets = [(list(map(number, values)), right) for values, right in zip(by_set, outcomes, strict=True) if len(right) != MANY[1]]
    if any(isinstance(value, str) for values, _ in sets for value in values):
        return ""

    given = np.array([values for values, _ in sets])
    known = ([*_slips(right, len(values)), *_rarer_slips(right, len(values))] for values, right in sets)
    for slips in zip(*known, strict=True):
        if alike(given, np.array([by_rank for _, by_rank in slips]), **ACCURACY):
            return slips[0][0]
    return ""


def _slips(right: np.ndarray, n: int) -> list[tuple[str, list[float]]]:
    """Return (complaint, the accuracy on each rank) of known mistakes with padded shares."""
    count, order = len(right), _order(len(right), n)
    means, sums, padded = [], [], []
    for rank in range(n):
        own = right[rank::n]
        means.append(float(own.mean()) if len(own) else np.nan)
        sums.append(float(own.sum()))
        padded.append(right[order[rank::n]])
    total, dealt, kept = sum(sums), right[order].sum(), right[order[:-n]]
    all_ranks: list[tuple[str, float]] = [
        (f"The padding was counted: {len(order)} predictions of {count} examples.", dealt / len(order)),
        (
            f"Padding was counted among the right ones, though they were divided by {count}: the place tells padding, the k-th "
            "example of rank r is number k n + r. Sorting the hits loses the place.", dealt / count
        ),
        (
            "This is the mean of the ranks' accuracies: a rank with fewer examples counts as much as one with more. Add up "
            "right ones and examples, then divide.", float(np.mean(means))
        ),
        ("This is the number of right ones: divide by the number of examples.", total),
        ("This is in percent: expected a fraction, from 0 to 1.", 100 * total / count),
        (
            f"This is 1/{n} of the accuracy: the sum over the ranks was divided by the number of ranks, too. Divide by count "
            "alone.", total / count / n
        ),
    ]  # fmt: skip
    if kept.size:
        last = "Every rank left its last example out: padding is on some ranks only, and on none where all divide evenly."
        all_ranks += [(last, kept.mean()), (last, kept.sum() / count)]
    number_last = "The example with the number count - 1 was left out: it is the last one, and no padding."
    all_ranks += [(number_last, right[:-1].mean()), (number_last, right[:-1].sum() / count)]
    if not count % n:
        all_ranks.append(("This is the share of wrong ones.", 1 - total / count))
    else:
        in_rank_order = np.concatenate(padded)
        first_padding = f"A padded example was counted: numbers begin at 0, so number {count} is padding, and k n + r < count."
        all_ranks += [
            (
                "Padding was taken to lie at the end, all on the last rank, as if ranks held blocks: each rank takes every "
                "n-th, the k-th of rank r is number k n + r.", in_rank_order[:count].mean()
            ),
            (
                "The hits were sorted before they were cut, so right ones went with the padding: the place, k n + r, "
                "tells padding.", np.sort(in_rank_order)[:count].mean()
            ),
            (
                "The hits were sorted before they were cut, so padding stayed. Sorting the hits loses the place, k n + r, which "
                "tells padding.", np.sort(in_rank_order)[::-1][:count].mean()
            ),
            ("One padded example was left out: every rank from count % n on has some.", right[order[:-1]].mean()),
            (
                f"Padding was left out of the right ones, but they were divided by {len(order)}, with padding: divide by count.",
                total / len(order),
            ),
            (first_padding, right[order[: count + 1]].sum() / count),
            (first_padding, right[order[: count + 1]].mean()),
        ]  # fmt: skip

    return [
        ("This is each rank's own accuracy: add up over the ranks.", means),
        ("This is each rank's own accuracy, with its padding: add up over the ranks.", [float(p.mean()) for p in padded]),
        (f"Each rank divided its own right ones by {count}: add them up over the ranks first.", [own / count for own in sums]),
        *((complaint, [float(accuracy)] * n) for complaint, accuracy in all_ranks),
    ]


def _rarer_slips(right: np.ndarray, n: int) -> list[tuple[str, list[float]]]:
    """Return more slips, as `_slips`. The first set of outcomes need not tell them from a right answer: the others do."""
    count, order = len(right), _order(len(right), n)
    missing, padded = len(order) - count, [right[order[rank::n]] for rank in range(n)]
    found = [
        (f"It was rounded to {digits} digits: return the accuracy as it is.", round(float(right.mean()), digits))
        for digits in (2, 3, 4)
    ]
    if missing and count > n:
        on_the_first = sum(hits[: len(hits) - (rank < missing)].sum() for rank, hits in enumerate(padded))
        found.append((
            f"The ranks below {missing} left their last example out: padding is dealt last, so it lies on the ranks from "
            "count % n on.", on_the_first / count
        ))  # fmt: skip
        kept = np.concatenate([padded[0][:-missing], *padded[1:]])
        on_rank_0 = "All padding was taken to lie on rank 0: each rank from count % n on holds one padded example."
        found += [(on_rank_0, kept.mean()), (on_rank_0, kept.sum() / count)]
        found.append(("One padded example was left out: every rank from count % n on has some.", right[order[:-1]].sum() / count))
    return [(complaint, [float(accuracy)] * n) for complaint, accuracy in found]
