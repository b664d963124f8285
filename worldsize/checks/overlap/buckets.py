"""Check of buckets, which gradients travel together: sizes and a cap go in, lists of tensor numbers come out.

The rule is torch DDP's: in the order of backward, a bucket closes as soon as it holds the cap or more (S. Li et al.,
"PyTorch Distributed", VLDB 2020, section 3.2.3). Left out: sending them (`gradient_averaging`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import are_whole, kind_in_words, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint

ORDER = "every tensor once, the last one first"
CLOSING = "a bucket closes as soon as it holds the cap"


@exercise({ORDER: 0.25, CLOSING: 0.25})
def fill_buckets(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check filling buckets with gradients in the order in which backward makes them.

    `fill_buckets(sizes, cap)` returns lists of numbers of tensors.
    """
    tasks = [([10, 10, 10, 10], 20), ([4, 8, 1, 30, 2], 10), ([5, 5, 5], 100), ([7, 7, 7], 1), ([9], 9), ([3, 9, 9], 10)]
    generator = np.random.default_rng(arena.draws.getrandbits(32))
    for length in generator.integers((5, 9, 12), (13, 17, 20)):
        tasks.append((generator.integers(1, 30, length).tolist(), int(generator.integers(20, 60))))

    for sizes, cap in tasks:
        examine = partial(_examine, sizes=sizes, cap=cap)
        yield Case(f"sizes {sizes}, cap {cap}", partial(arena.call, fn, sizes, cap), examine)


def _examine(ended: ArenaResult, sizes: Sequence[int], cap: int) -> dict[str, Complaint]:
    got, closing = ended.returned[0], UNEXAMINED
    no_lists = _no_lists(got)
    if no_lists:
        wrong: Complaint = f"expected a list of lists of tensor numbers, got {no_lists}"
    else:
        wrong = _wrong_order(got, sizes) or changed(ended.inputs[0], sizes, "sizes")
        rest = tuple(range(len(sizes) - len(list(chain(*got)))))[::-1]
        whole = (*got, rest) if rest else got  # who lost the last bucket may have closed the others well
        if not _wrong_order(whole, sizes):
            closing = _wrong_close(whole, sizes, cap)
    return {ORDER: wrong, CLOSING: closing}


def _no_lists(got: Any) -> str:
    """Return in words what is no list of lists of whole numbers; empty if all is."""
    if not isinstance(got, tuple):
        return kind_in_words(got)
    for place, bucket in enumerate(got):
        if not isinstance(bucket, tuple):
            return f"{kind_in_words(bucket)} as bucket {place}"
        if not are_whole(*bucket):
            return f"{shown(bucket)} as bucket {place}"
    return ""


def _wrong_order(got: tuple, sizes: Sequence[int]) -> Complaint:
    buckets, length = [list(map(int, bucket)) for bucket in got], len(sizes)
    flat, wanted = list(chain(*buckets)), list(range(length))[::-1]
    if flat == wanted:
        if [] in buckets:
            return f"{buckets} has an empty bucket: nothing would travel in it"
        return None

    if sorted(flat) == sorted(sizes):
        return f"{buckets} are sizes: a bucket holds its tensors' numbers, 0 to {length - 1}"
    if not set(flat) <= set(wanted):
        return f"{buckets} has other numbers than 0 to {length - 1}"

    missing = sorted(set(wanted) - set(flat))
    if missing:
        lost = ": the last bucket is missing, which may not be full" * (flat == wanted[: len(flat)])
        twice = f" and has tensor {max(flat, key=flat.count)} twice" if len(set(flat)) < len(flat) else ""
        return f"{buckets} leaves tensor {missing[0]} out{twice}{lost}"
    if flat == wanted[::-1]:
        return f"{buckets} begins with the first layer, whose gradient is ready last: go from the last tensor to the first"
    if len(flat) > length:
        return f"{buckets} has a tensor twice"
    return f"{buckets} is not in the order in which backward finishes the tensors: {wanted}"


def _wrong_close(got: tuple, sizes: Sequence[int], cap: int) -> Complaint:
    for place, bucket in enumerate(got):
        held, last = sum(sizes[i] for i in bucket), sizes[bucket[-1]]
        if held < cap and place < len(got) - 1:
            after = held + sizes[got[place + 1][0]]
            why = " (a tensor that goes over the cap still goes in)" * (after > cap)
            return f"bucket {place} closes with {held}, before it holds the cap of {cap}{why}"
        if held - last >= cap:
            return f"bucket {place} holds {held}; it had reached the cap of {cap} before its last tensor came in"

    return None
