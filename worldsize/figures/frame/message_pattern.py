"""The pattern of a run's messages in words: a ring, a line, a hub, a tree, or the busiest rank."""

from collections import Counter
from operator import attrgetter
from typing import Any

from worldsize.figures.frame import findings


def message_pattern(trace: Any) -> str:
    """Return the pattern of a trace's messages in words; the trace has at least one."""
    n = trace.world_size
    pairs = set(map(attrgetter("src", "dst"), trace.transfers))
    if n < 3:  # too few ranks for a shape
        return _shares(trace, pairs)

    for step, neighbour in ((1, "next one (rank + 1)"), (-1, "previous one (rank − 1)")):
        if all(dst == (src + step) % n for src, dst in pairs):
            return f"every message goes from a rank to the {neighbour}, round a ring"

    neighbours = set()
    for rank in range(n - 1):
        neighbours |= {(rank, rank + 1), (rank + 1, rank)}
    if pairs == neighbours:
        return f"every message goes from a rank to a neighbour, from rank 0 to rank {n - 1} and back"

    hubs = set.intersection(*map(set, pairs))
    if len(pairs) > 1 and len(hubs) == 1:
        return f"every message goes to or comes from rank {hubs.pop()}"

    return _tree(trace, pairs) or _shares(trace, pairs)


def _tree(trace: Any, pairs: set[tuple[int, int]]) -> str:
    """Describe a tree of messages: every rank but one receives a single message, or sends one. Empty otherwise."""
    everybody = set(range(trace.world_size))
    count = len(trace.transfers)
    if count != len(everybody) - 1:
        return ""

    senders, receivers = map(set, zip(*pairs, strict=True))
    if len(receivers) == count:
        (root,) = everybody - receivers
        return f"every rank but {root} receives one message, down a tree from rank {root}"
    if len(senders) == count:
        (root,) = everybody - senders
        return f"every rank but {root} sends one message, up a tree to rank {root}"
    return ""


def _shares(trace: Any, pairs: set[tuple[int, int]]) -> str:
    """Say who sends how much, where the messages make no simple shape."""
    n = trace.world_size
    if len(pairs) == 1:
        ((src, dst),) = pairs
        return f"rank {src} sends to rank {dst}"

    sent = Counter(dict.fromkeys(range(n), 0))
    for t in trace.transfers:
        sent[t.src] += t.size_bytes
    most = max(sent.values())

    if min(sent.values()) >= 0.999 * most:  # chunks that differ by an element are as good as equal
        to_all = ""
        if len(pairs) == n * (n - 1) > 2:
            to_all = " to every other one,"
        return f"every rank sends{to_all} the same number of bytes"

    share = round(100 * most / sum(sent.values()))
    first, *others = findings.leaders(sent)
    if len(others) == n - 1:
        return "every rank sends about the same number of bytes"
    if len(others) > 3:
        return f"{len(others) + 1} of {n} ranks send most, about {share} % of all bytes each"
    if others:
        return f"ranks {findings.both([str(rank) for rank in (first, *others)])} send most, about {share} % of all bytes each"
    return f"rank {first} sends most, {share} % of all bytes"
