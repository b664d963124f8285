"""Complaints about wrong messages of a tree, from the recorded transfers: who sends to whom, how much, in how many rounds.

In a round a rank sends and receives at most one message. A tree of n ranks takes ⌈log2 n⌉ rounds if every rank that can
help does; a star or a chain needs n − 1. The order of receives is not judged: with `recv` from anyone it is no choice
of the rank.
"""

from collections import defaultdict
from collections.abc import Iterable

from worldsize.checks.kit.transfers import by_sender, from_rank, links, received_by_each, sent_by_each
from worldsize.checks.verdict import Complaint
from worldsize.trace import Trace
from worldsize.units import count


def enough(world_size: int) -> int:
    """Return the fewest rounds of a tree over n ranks, ⌈log2 n⌉.

    After k rounds a rank can have reached, or heard from, at most 2**k ranks.
    """
    return (world_size - 1).bit_length()


def no_tree_down(trace: Trace, root: int) -> Complaint:
    """Return a complaint unless each rank of a broadcast tree but the root receives one message; else None."""
    for rank in range(trace.world_size):
        into = [t for t in trace.transfers if t.dst == rank]
        if rank == root:
            if into:
                first = min(t.src for t in into)
                return f"rank {first} sent a message to rank {root}, the root, which already has the tensor."
        elif len(into) != 1:
            return f"rank {rank} received {count(len(into), 'message')}; expected 1 message with the whole tensor."

    return None


def rounds_down(trace: Trace, root: int) -> int:
    """Return the rounds that the transfers of a broadcast tree took on their way from the root.

    Each rank's sends count in the order in which they began.
    """
    got, last = {root: 0}, defaultdict(int)
    for t in sorted(trace.transfers, key=lambda t: t.start_s):
        got[t.dst] = last[t.src] = max(got.get(t.src, 0), last[t.src]) + 1

    return max(got.values())


def slow_down(trace: Trace, root: int) -> Complaint:
    """Return a complaint if the transfers of a broadcast tree take more rounds than needed, or None."""
    taken, best = rounds_down(trace, root), enough(trace.world_size)
    if taken <= best:
        return None

    sent = sent_by_each(trace)
    if len(sent) == 1:
        return f"{_rounds(taken, best)} Rank {root} sends to all others, one after the other: this is a star. {_HELP}"
    if max(sent.values()) == 1:
        return f"{_rounds(taken, best)} Every rank passes the tensor on to one other: this is a chain. {_HELP}"
    if _fewest(root, _below(links(trace))) <= best:
        return (
            f"{_rounds(taken, best)} The tree is good, but a rank serves its receivers in the wrong order. "
            f"Serve the ranks with the most ranks below them first."
        )
    return f"{_rounds(taken, best)} {_HELP}"


_HELP = "In every round, let each rank that has the tensor send it to one that does not."


def no_tree_up(trace: Trace, root: int) -> Complaint:
    """Return a complaint unless each rank of a reduce tree but the root sends one message; else None."""
    sent = sent_by_each(trace)
    for rank in range(trace.world_size):
        if rank == root:
            if sent[rank]:
                to = from_rank(trace, root)[0].dst
                return f"rank {root}, the root, sent a message to rank {to}; the root only receives."
        elif sent[rank] != 1:
            return f"rank {rank} sent {count(sent[rank], 'message')}; expected 1, once everything from below has arrived."

    return None


def slow_up(trace: Trace, root: int) -> Complaint:
    """Return a complaint if the transfers of a reduce tree take more rounds than needed, or None.

    Receives are taken in their best order.
    """
    upward = _below((upper, lower) for lower, upper in links(trace))
    taken, best = _fewest(root, upward), enough(trace.world_size)
    if taken <= best:
        return None

    received = received_by_each(trace)
    if len(received) == 1:
        return f"{_rounds(taken, best)} Rank {root} receives every message, one after the other: this is a star. {_PAIRS}"
    if max(received.values()) == 1:
        return f"{_rounds(taken, best)} Every rank waits for one other: this is a chain. {_PAIRS}"
    return f"{_rounds(taken, best)} {_PAIRS}"


_PAIRS = "In every round, let the ranks that still hold a sum pair up: one of each pair sends to the other."


def _below(links: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return {rank: the ranks below it in a tree} from the (upper, lower) ranks of all messages."""
    below: dict[int, list[int]] = defaultdict(list)
    for upper, lower in links:
        below[upper].append(lower)

    return below


def _fewest(rank: int, below: dict[int, list[int]], seen: frozenset[int] = frozenset()) -> int:
    """Return the fewest rounds of a tree up to `rank`, or down from it."""
    if rank in seen:
        return 0  # a circle, in which values are wrong already

    done = 0
    for ready in sorted(_fewest(lower, below, seen | {rank}) for lower in below[rank]):
        done = max(done, ready) + 1

    return done


def _rounds(taken: int, best: int) -> str:
    verb = "is" if best == 1 else "are"
    return f"it takes {count(taken, 'round')} of messages where ⌈log2 n⌉ = {best} {verb} enough."


def not_whole(trace: Trace, tensor_bytes: int) -> Complaint:
    """Return a complaint about a tree's first message that is not the whole tensor, or None."""
    for t in by_sender(trace):
        if t.size_bytes != tensor_bytes:
            return (
                f"rank {t.src} sent rank {t.dst} a message of {t.size_bytes} bytes; expected the whole tensor, "
                f"{tensor_bytes} bytes."
            )

    return None
