"""The transfers of a run, as checks ask for them: by sender, receiver or link; and declared work."""

from collections import Counter
from operator import attrgetter, itemgetter

from worldsize.trace import Span, Trace, Transfer

_SENDER, _RECEIVER = attrgetter("src"), attrgetter("dst")
_LINK = attrgetter("src", "dst")


def sent_by_each(trace: Trace) -> Counter[int]:
    """Count the transfers that each rank sent."""
    return Counter(map(_SENDER, trace.transfers))


def received_by_each(trace: Trace) -> Counter[int]:
    """Count the transfers that each rank received."""
    return Counter(map(_RECEIVER, trace.transfers))


def links(trace: Trace) -> list[tuple[int, int]]:
    """Return (sender, receiver) of each transfer."""
    return list(map(_LINK, trace.transfers))


def sizes_on(trace: Trace, src: int, dst: int) -> list[int]:
    """Return the bytes of each transfer from `src` to `dst`."""
    return [t.size_bytes for t in trace.transfers if _LINK(t) == (src, dst)]


def by_sender(trace: Trace) -> list[Transfer]:
    """Return the transfers of rank 0 first, each rank's in order: time order differs from run to run, complaints must not."""
    return sorted(trace.transfers, key=attrgetter("src", "start_s"))


def from_rank(trace: Trace, rank: int) -> list[Transfer]:
    """Return the rank's transfers in the order in which it sent them."""
    return [t for t in by_sender(trace) if t.src == rank]


def declared_work(trace: Trace, rank: int) -> list[Span]:
    """Return the work that the rank declared, in order, from a trace with its transfers."""
    return sorted((s for s in trace.spans if s.rank == rank and s.declared), key=attrgetter("start_s"))


def rounds(trace: Trace) -> int:
    """Return the rounds in which a run's transfers could pass; in a round a rank sends and receives at most one message.

    A message can leave once everything has arrived that its sender received before posting it: L. Lamport's "happened
    before" (CACM 21, 1978). Only the order of each rank's own calls counts; no clock, duration or head start changes
    anything.
    """
    calls = _calls(trace)
    posted: list[list[Transfer]] = [[] for _ in calls]
    arrived: set[int] = set()  # id() of transfers

    passed = 0
    while True:
        for own, ready in zip(calls, posted, strict=True):
            while own:  # up to a receive whose message has not arrived
                t, receives = own[-1]
                if receives and id(t) not in arrived:
                    break
                if not receives:
                    ready.append(t)
                own.pop()
        if not any(posted):
            return passed

        passed += 1
        taken: set[int] = set()  # receivers of this round
        for turn in range(len(posted)):  # another rank chooses first in each round
            own = posted[(passed + turn) % len(posted)]
            for t in own:
                if t.dst not in taken:
                    taken.add(t.dst)
                    own.remove(t)
                    arrived.add(id(t))
                    break


def _calls(trace: Trace) -> list[list[tuple[Transfer, bool]]]:
    """Return each rank's calls as (transfer, whether it was received), the last call first."""
    timed: list[list[tuple[float, bool, Transfer]]] = [[] for _ in range(trace.world_size)]
    for t in trace.transfers:
        timed[t.src].append((t.start_s, True, t))
        timed[t.dst].append((t.end_s, False, t))

    calls = []
    for own in timed:
        ordered = sorted(own, key=itemgetter(0, 1))
        calls.append([(t, not sends) for _, sends, t in reversed(ordered)])  # `rounds` pops from the end
    return calls
