"""The check of buckets: which gradients travel together. Sizes and a cap go in, lists of numbers come out.

The rule is that of torch's DDP: in the order of backward, a bucket closes as soon as it holds the cap or more (S. Li
et al., "PyTorch Distributed", VLDB 2020, section 3.2.3). Left out: sending them (`gradient_averaging`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.verdict import Verdict

POINTS = {"every tensor once, the last one first": 0.25, "a bucket closes as soon as it holds the cap": 0.25}


def fill_buckets(arena: Arena, fn: Callable) -> Verdict:
    """Check of filling buckets with gradients in the order in which backward makes them.

    `fill_buckets(sizes, cap)` returns lists of numbers of tensors.
    """
    return judge("fill_buckets", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    generator = np.random.default_rng(arena.draws.getrandbits(32))
    drawn = [(generator.integers(1, 30, length).tolist(), int(generator.integers(20, 60))) for length in (5, 9, 12)]
    fixed = [([10, 10, 10, 10], 20), ([4, 8, 1, 30, 2], 10), ([5, 5, 5], 100), ([7, 7, 7], 1), ([9], 9), ([3, 9, 9], 10)]
    for sizes, cap in fixed + drawn:
        yield Case(
            f"sizes {sizes}, cap {cap}",
            lambda sizes=sizes, cap=cap: arena.call(fn, sizes, cap),
            lambda ended, sizes=sizes, cap=cap: _examine(ended.returned[0], sizes, cap),
        )


def _examine(got: Any, sizes: Sequence[int], cap: int) -> dict[str, str | None]:
    order, closing = POINTS
    complaint = _no_lists(got) or _wrong_order(got, len(sizes))
    return {order: complaint} if complaint else {order: None, closing: _wrong_close(got, sizes, cap)}


def _no_lists(got: Any) -> str | None:
    whole = isinstance(got, tuple) and all(
        isinstance(bucket, tuple) and all(isinstance(i, (int, np.integer)) for i in bucket) for bucket in got
    )
    shown = "None (does the function return it?)" if got is None else f"{got!r:.60}"
    return None if whole else f"expected a list of lists of numbers of tensors, got {shown}"


def _wrong_order(got: tuple, length: int) -> str | None:
    flat, wanted = [int(i) for bucket in got for i in bucket], list(range(length))[::-1]
    shown = [list(map(int, bucket)) for bucket in got]
    if flat == wanted:
        empty = [bucket for bucket in got if not bucket]
        return f"{shown} has an empty bucket: nothing would travel in it" if empty else None
    missing = sorted(set(wanted) - set(flat))
    if missing:
        return f"{shown} leaves tensor {missing[0]} out: is the last bucket, which may not be full, among them?"
    if flat == wanted[::-1]:
        return f"{shown} begins with the first layer, whose gradient is ready last: go from the last tensor to the first"
    if len(flat) > length:
        return f"{shown} has a tensor twice"
    return f"{shown} is not in the order in which backward ends with them: {wanted}"


def _wrong_close(got: tuple, sizes: Sequence[int], cap: int) -> str | None:
    for place, bucket in enumerate(got):
        held, last = sum(sizes[i] for i in bucket), sizes[bucket[-1]]
        if held < cap and place < len(got) - 1:
            after = held + sizes[got[place + 1][0]]
            why = " (a tensor that goes over the cap still goes in)" if after > cap else ""
            return f"bucket {place} closes with {held}, before it holds the cap of {cap}{why}"
        if held - last >= cap:
            return f"bucket {place} holds {held}; it had the cap of {cap} already before its last tensor came in"
    return None
