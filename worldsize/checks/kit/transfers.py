"""The transfers of a run, as checks ask for them: by sender, by receiver, by link; and the declared work beside them.

Left out: what they should be (each check knows), and the transfers of a collective (`collectives`).
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter, itemgetter

from worldsize.trace import Span, Trace, Transfer

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


def declared_work(trace: Trace, rank: int) -> list[Span]:
    """Return the work that the rank declared, in order."""
    return sorted((s for s in trace.spans if s.rank == rank and s.declared), key=attrgetter("start_s"))


# ---- rounds ----------------------------------------------------------------------------------


def rounds(trace: Trace) -> int:
    """In how many rounds a run's messages could pass: in a round a rank sends at most one and receives at most one.

    A message can leave once everything has arrived that its sender had received before it posted it: L. Lamport's
    "happened before" (CACM 21, 1978). Only the order of each rank's own calls counts, and no clock: how long anything
    took, and who was ahead of whom, changes nothing.
    """
    calls = _calls(trace)
    posted: list[list[Transfer]] = [[] for _ in calls]
    arrived: set[int] = set()  # by id of a transfer

    passed = 0
    while True:
        for rank, own in enumerate(calls):
            posted[rank] += _go_on(own, arrived)
        if not any(posted):
            return passed

        passed += 1
        for t in _leaving(posted, passed):
            posted[t.src].remove(t)
            arrived.add(id(t))


def _calls(trace: Trace) -> list[list[tuple[Transfer, bool]]]:
    """By rank, its calls in order, the last one first: (message, whether it was received)."""
    timed: list[list[tuple[float, bool, Transfer]]] = [[] for _ in range(trace.world_size)]
    for t in trace.transfers:
        timed[t.src].append((t.start_s, True, t))
        timed[t.dst].append((t.end_s, False, t))

    calls = []
    for own in timed:
        ordered = sorted(own, key=itemgetter(0, 1))
        calls.append([(t, not sends) for _, sends, t in reversed(ordered)])
    return calls


def _go_on(own: list[tuple[Transfer, bool]], arrived: set[int]) -> list[Transfer]:
    """What a rank posts until it waits for a message that has not arrived. Takes these calls off its list."""
    found = []
    while own:
        t, receives = own[-1]
        if receives and id(t) not in arrived:
            break
        if not receives:
            found.append(t)
        own.pop()
    return found


def _leaving(posted: list[list[Transfer]], number: int) -> list[Transfer]:
    """The messages of one round: of each rank the first for which the receiver is free; another rank chooses first each time."""
    taken: set[int] = set()
    found = []
    for turn in range(len(posted)):
        for t in posted[(number + turn) % len(posted)]:
            if t.dst not in taken:
                taken.add(t.dst)
                found.append(t)
                break
    return found
