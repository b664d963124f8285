"""Deadlock detection: decide from every rank's published wait-for state whether any rank can go on.

The graph is Knapp's AND/OR wait-for graph (Deadlock Detection in Distributed Databases, 1987, doi 10.1145/45075.46163)
over messages: a receive from anyone waits for one of many.
"""

from collections import Counter
from dataclasses import dataclass, replace

from worldsize.failures import Wait


@dataclass(frozen=True)
class RankMessages:
    """A rank in the wait-for graph: `wait` is its blocked call, None if it is not blocked or has ended; `posted` and
    `taken` count its messages by (peer, tag).
    """

    wait: Wait | None
    posted: Counter
    taken: Counter


def deadlock(ranks: dict[int, RankMessages], live: set[int]) -> tuple[Wait, ...]:
    """Return a `Wait` for every live rank if none can go on; else ()."""
    waits: list[Wait] = []
    for rank in sorted(live):
        wait = ranks[rank].wait if rank in ranks else None
        if wait is None or _can_go_on(wait, ranks):
            return ()
        waits.append(replace(wait, peer_ended=wait.peer not in (None, *live)))
    return tuple(waits)


def _can_go_on(wait: Wait, ranks: dict[int, RankMessages]) -> bool:
    if wait.op == "recv":
        sources = [wait.peer] if wait.peer is not None else ranks.keys() - {wait.rank}
        return any(_untaken(source, wait.rank, wait.tag, ranks) for source in sources)

    if not _untaken(wait.rank, wait.peer, wait.tag, ranks):
        return True  # already taken: the send is about to return

    receiver = ranks[wait.peer].wait if wait.peer in ranks else None
    if receiver is None or receiver.op != "recv":
        return False  # the receiver has ended without the message, or is itself in a send
    return receiver.peer in (None, wait.rank) and receiver.tag == wait.tag


def _untaken(src: int, dst: int, tag: int, ranks: dict[int, RankMessages]) -> int:
    posted = ranks[src].posted[dst, tag] if src in ranks else 0
    taken = ranks[dst].taken[src, tag] if dst in ranks else 0
    return posted - taken
