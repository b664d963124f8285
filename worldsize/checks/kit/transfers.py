"""The transfers of a run, as checks ask for them: by sender, by receiver, by link.

Left out: what they should be (each check knows), and the transfers of a collective (`collectives`).
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

from worldsize.trace import Trace, Transfer

_SENDER, _RECEIVER = attrgetter("src"), attrgetter("dst")
_LINK = attrgetter("src", "dst")


def sent_by_each(trace: Trace) -> Counter[int]:
    """How many messages each rank sent."""
    return Counter(map(_SENDER, trace.transfers))


def received_by_each(trace: Trace) -> Counter[int]:
    """How many messages each rank received."""
    return Counter(map(_RECEIVER, trace.transfers))


def links(trace: Trace) -> list[tuple[int, int]]:
    """(sender, receiver) of each message."""
    return list(map(_LINK, trace.transfers))


def sizes_on(trace: Trace, src: int, dst: int) -> list[int]:
    """The bytes of each message from one rank to another."""
    return [t.size_bytes for t in trace.transfers if _LINK(t) == (src, dst)]


def by_sender(trace: Trace) -> list[Transfer]:
    """The messages of rank 0 first, each rank's in its order: the order in time differs from run to run, words should not."""
    return sorted(trace.transfers, key=attrgetter("src", "start_s"))


def from_rank(trace: Trace, rank: int) -> list[Transfer]:
    """The rank's messages in the order in which it sent them."""
    return [t for t in by_sender(trace) if t.src == rank]
