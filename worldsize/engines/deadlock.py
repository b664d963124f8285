"""Who waits for whom: deciding from every rank's published wait-for state whether anything can still happen.

The graph is Knapp's AND/OR wait-for graph (Deadlock Detection in Distributed Databases, 1987, doi 10.1145/45075.46163)
over messages: a receive from anyone waits for one of many.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """What a rank does: `doing` is (op, peer or None, tag) where it is blocked, None where it is not (or has ended);
    `posted` and `taken` count messages by (peer, tag)."""

    doing: tuple[str, int | None, int] | None
    posted: Counter
    taken: Counter


def deadlock(waits: dict[int, Wait], live: set[int]) -> tuple[str, ...]:
    """Who waits for whom where ranks are in a deadlock.

    ("rank 0 waits for 3", …) where every live rank is blocked and none can go on; else ().
    """
    if not live or any(rank not in waits or waits[rank].doing is None for rank in live):
        return ()
    if any(_can_go_on(rank, waits) for rank in live):
        return ()
    return tuple(_words(rank, waits[rank], live) for rank in sorted(live))


def _can_go_on(rank: int, waits: dict[int, Wait]) -> bool:
    op, peer, tag = waits[rank].doing
    if op == "recv":
        sources = [peer] if peer is not None else [r for r in waits if r != rank]
        return any(_untaken(source, rank, tag, waits) for source in sources)
    if not _untaken(rank, peer, tag, waits):
        return True  # taken already: the send is about to return
    if peer not in waits or waits[peer].doing is None:
        return False  # it has ended without taking the message
    other_op, other_peer, other_tag = waits[peer].doing
    return other_op == "recv" and other_peer in (None, rank) and other_tag == tag


def _untaken(src: int, dst: int, tag: int, waits: dict[int, Wait]) -> int:
    posted = waits[src].posted[dst, tag] if src in waits else 0
    taken = waits[dst].taken[src, tag] if dst in waits else 0
    return posted - taken


def _words(rank: int, wait: Wait, live: set[int]) -> str:
    op, peer, tag = wait.doing
    whom = "anyone" if peer is None else str(peer)
    ended = ", which has ended" if peer is not None and peer not in live else ""
    under = f", tag {tag}" if tag else ""
    return f"rank {rank} waits for {whom} ({op}{under}){ended}"
