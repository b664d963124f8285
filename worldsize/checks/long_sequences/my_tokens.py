"""Check of `my_tokens`: which tokens a rank owns, so that under a causal mask no rank of the ring idles.

A query sees its own and earlier tokens, so a block costs as many pairs as its mask leaves, and a round lasts as long as its
busiest rank works. Any layout passes whose rounds are even to within 2 %, such as tokens dealt out one by one (W. Brandon et
al., "Striped Attention", arXiv:2311.09431, 2023) or folded in 2n parts (zigzag: J. Zhu's ring-flash-attention; Llama 3,
arXiv:2407.21783, section 3.3.2). Left out: what travels (`ring_attention`).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, ranks_in_words
from worldsize.checks.kit.values import is_row, is_whole, kind_in_words, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.formulas import attention
from worldsize.units import count

OWNERS = "every token has one owner, and no rank owns more than two more than another"
EVEN = "no round of the causal ring waits for a rank, to within 2 %"
SMALL = ((2, 8), (3, 10), (1, 5), (4, 4), (5, 23))  # (ranks, tokens)
RANKS = (4, 2, 3, 7)  # world sizes of long sequences, whose lengths are drawn; one world size more is drawn, too
MORE_RANKS = (5, 6, 8, 9)
TOKENS_OF_A_RANK = (400, 800)
MOST = 1.02  # times the duration of even work


@exercise({OWNERS: 0.25, EVEN: 0.75})
def my_tokens(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the owners of tokens: `my_tokens(rank, world_size, length)` returns the numbers of a rank's tokens."""
    ranks = (*RANKS, arena.draws.choice(MORE_RANKS))
    long = [(n, n * arena.draws.randint(*TOKENS_OF_A_RANK) + arena.draws.randint(0, n - 1)) for n in ranks]
    for n, length in (*SMALL, *long):
        asked = [(rank, n, length) for rank in range(n)]
        yield Case(
            f"{ranks_in_words(n)}, {count(length, 'token')}",
            lambda asked=asked: arena.ranks(fn, [asked], driver=on_ranks.answers),
            lambda ended, n=n, length=length: _examine(ended.returned[0]["returned"], n, length),
        )


def _examine(returned: Sequence[Any], n: int, length: int) -> dict[str, Complaint]:
    wrong = _wrong_owners(returned, n, length)
    if wrong:
        return {OWNERS: wrong, EVEN: UNEXAMINED}
    if (n, length) in SMALL:  # too few tokens to be uneven
        return {OWNERS: None, EVEN: None}
    return {OWNERS: None, EVEN: _uneven([list(map(int, own)) for own in returned], length)}


def _wrong_owners(returned: Sequence[Any], n: int, length: int) -> Complaint:
    owner: dict[int, int] = {}
    for rank, got in enumerate(returned):
        if not is_row(got):
            return f"rank {rank}: expected the numbers of its tokens, got {kind_in_words(got)}"
        for token in got:
            if isinstance(token, bool | np.bool_):
                return f"rank {rank}: expected the numbers of its tokens, got a mask: mask.nonzero().flatten() has them"
            if not is_whole(token):
                plain = token.item() if isinstance(token, np.generic) else token
                return f"rank {rank}: expected whole numbers, got {shown(plain)}"
            number = int(token)
            if not 0 <= number < length:
                return f"rank {rank} owns token {number}: expected numbers from 0 to {length - 1}"
            if number in owner:
                return f"token {number} is owned by rank {owner[number]} and by rank {rank}"
            owner[number] = rank

    missing = sorted(set(range(length)) - set(owner))
    if missing:
        over = len(missing) < n and missing == list(range(length - len(missing), length))
        lost = " Where the ranks do not divide the tokens, the last ones are left over." if over else ""
        return f"no rank owns {count(len(missing), 'token')} of {length}; the first is {missing[0]}.{lost}"

    sizes = list(map(len, returned))
    if max(sizes) - min(sizes) > 2:
        most, least = sizes.index(max(sizes)), sizes.index(min(sizes))
        return (
            f"rank {most} owns {sizes[most]} tokens and rank {least} {sizes[least]}: keys and values take memory on each rank, "
            f"so share the tokens out evenly."
        )
    return None


def _uneven(tokens: Sequence[Sequence[int]], length: int) -> Complaint:
    """Return a complaint if a rank's tokens make a causal ring's rounds take over 2 % longer than even work would."""
    n = len(tokens)
    pairs = attention.pairs_by_round(tokens)
    even = attention.causal_pairs(length) / n
    lasts = pairs.max(axis=1).sum()
    if lasts <= MOST * even:
        return None

    first = int((pairs.max(axis=1) / pairs.mean(axis=1)).argmax())
    busy, idle = int(pairs[first].argmax()), int(pairs[first].argmin())
    complaint = (
        f"the rounds take {lasts / even:.3f} x as long as with even work, {MOST} x is allowed: in round {first + 1} of {n} rank "
        f"{busy} works on {pairs[first, busy]:,} pairs of a query and a key that it sees, and rank {idle} on "
        f"{pairs[first, idle]:,}. "
    )
    if all(max(one) < min(other) for one, other in pairwise(sorted(tokens, key=min))):
        return complaint + "Each rank has one stretch: the first stretch sees next to nothing, the last sees all."
    return complaint + "Late tokens see more keys: give every rank early and late tokens in the same mix."
