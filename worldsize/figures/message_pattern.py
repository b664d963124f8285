"""What the messages of a run do together, in words: a ring, a hub, a tree, or who sends how much. Left out: drawing."""

from __future__ import annotations

from collections import Counter
from typing import Any


def message_pattern(trace: Any) -> str:
    """What a trace's messages do, in words: a ring, one hub, or their busiest rank."""
    n = trace.world_size
    pairs = {(t.src, t.dst) for t in trace.transfers}
    for step, neighbour in ((1, "next one (rank + 1)"), (-1, "previous one (rank − 1)")):
        if n > 2 and all(dst == (src + step) % n for src, dst in pairs):
            return f"every message goes from a rank to the {neighbour}, round a ring"
    hubs = set.intersection(*({src, dst} for src, dst in pairs))
    if n > 2 and len(pairs) > 1 and len(hubs) == 1:
        return f"every message goes to or comes from rank {hubs.pop()}"
    return _tree(trace, pairs) or _shares(trace, pairs)


def _tree(trace: Any, pairs: set[tuple[int, int]]) -> str:
    """Where every rank but one receives a single message, or every rank but one sends one; else empty."""
    everybody, receivers, senders = set(range(trace.world_size)), {dst for _, dst in pairs}, {src for src, _ in pairs}
    if len(everybody) < 3 or len(trace.transfers) != len(everybody) - 1:
        return ""
    if len(receivers) == len(trace.transfers):
        return "every rank but {0} receives one message, down a tree from rank {0}".format(*(everybody - receivers))
    if len(senders) == len(trace.transfers):
        return "every rank but {0} sends one message, up a tree to rank {0}".format(*(everybody - senders))
    return ""


def _shares(trace: Any, pairs: set[tuple[int, int]]) -> str:
    """Who sends how much, where the messages make no simple shape."""
    if len(pairs) == 1:
        return "rank {} sends to rank {}".format(*pairs.pop())
    sent = Counter({rank: 0 for rank in range(trace.world_size)})
    for t in trace.transfers:
        sent[t.src] += t.size_bytes
    (rank, most), least = sent.most_common(1)[0], min(sent.values())
    if least >= 0.999 * most:  # chunks that differ by an element are as good as equal
        to_all = " to every other one," if len(pairs) == trace.world_size * (trace.world_size - 1) > 2 else ""
        return f"every rank sends{to_all} the same number of bytes"
    share = round(100 * most / sum(sent.values()))
    return f"rank {rank} sends most, {share} % of all bytes"
