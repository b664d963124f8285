"""Complaints about wrong messages, from the recorded transfers alone: to whom, how many, how large.

A right value proves nothing: a gather and a broadcast give the same sum, and even the same total bytes, as a ring. So
checks cover neighbors, counts, sizes, totals, each rank's share, and rounds, counted by the order of each rank's calls,
by no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from worldsize.checks.kit.judge import first_complaint, none_sent
from worldsize.checks.kit.transfers import by_sender, from_rank, links, rounds, sent_by_each, sizes_on
from worldsize.checks.verdict import Complaint
from worldsize.trace import Trace
from worldsize.units import count, times

_ROUNDING = 1e-9  # of shares, which are quotients
_MOST_ROUNDS = 1.5  # times the least number; even and odd ranks that take turns need 2 times


@dataclass(frozen=True)
class Ring:
    """The transfers that a ring all-reduce needs: `steps` a rank, of at most `chunk_bytes`, together `halves` (n − 1) tensors.

    `halves` is 1 for a reduce-scatter or an all-gather alone, 2 for both.
    """

    world_size: int
    halves: int
    tensor_bytes: int
    chunk_bytes: int

    @property
    def steps(self) -> int:
        return self.halves * (self.world_size - 1)

    @property
    def share(self) -> float:
        """Return the tensors that each rank sends if all chunks are equal."""
        return self.steps / self.world_size


def wrong_at_server(trace: Trace, tensor_bytes: int) -> Complaint:
    """Return a complaint about the transfers of a parameter server, or None.

    Each worker sends rank 0 a tensor and gets one back, nothing else.
    """
    for t in by_sender(trace):
        if 0 not in (t.src, t.dst):
            return f"rank {t.src} sent a message to rank {t.dst}: a worker talks only to rank 0, the server."

    for worker in range(1, trace.world_size):
        for src, dst in ((worker, 0), (0, worker)):
            sizes = sizes_on(trace, src, dst)
            if sizes != [tensor_bytes]:
                moved = f"{count(len(sizes), 'message')}, {sum(sizes)} bytes in all"
                return f"rank {src} sent rank {dst} {moved}; expected 1 message with the whole tensor, {tensor_bytes} bytes."

    return None


def wrong_at_shards(trace: Trace, want: Ring) -> Complaint:
    """Return a complaint about the transfers of a sharded parameter server, or None.

    Each link carries at most two messages: a chunk to its server, and a sum on its way back.
    """
    centre = _hub(trace)
    if centre is not None:
        return f"rank {centre} serves every chunk: all messages go to it or come from it. Let rank k serve chunk k."

    for src, dst in permutations(range(trace.world_size), 2):
        sizes = sizes_on(trace, src, dst)
        if len(sizes) > 2:
            empty = f", {sizes.count(0)} of them empty" * (0 in sizes)
            return (
                f"rank {src} sent {len(sizes)} messages to rank {dst}{empty}; expected at most 2: "
                f"chunk {dst} to its server, and the sum of chunk {src} back."
            )

    return first_complaint([_too_large(trace, want.chunk_bytes), _wrong_total(trace, want)])


def wrong_half(trace: Trace, want: Ring) -> Complaint:
    """Return a complaint about the transfers of a reduce-scatter or an all-gather alone, also if there are none; else None."""
    return first_complaint([none_sent(trace), off_the_ring(trace, want), wrong_shares(trace, want)])


def off_the_ring(trace: Trace, want: Ring) -> Complaint:
    """Return a complaint if a rank does not send `want.steps` messages, all to a neighbor; else None.

    A rank may change direction once. An empty message counts only if a chunk may be empty.
    """
    centre = _hub(trace)
    if centre is not None:
        return (
            f"rank {centre} gathers and broadcasts: all {count(len(trace.transfers), 'message')} go to it or come from "
            f"it. On a ring all ranks send the same amount."
        )

    for rank in range(trace.world_size):
        targets = [t.dst for t in from_rank(trace, rank)]
        complaint = _wrong_way(rank, targets, trace.world_size)
        if complaint:
            return complaint
        if len(targets) > want.steps:
            too_many = f"rank {rank} sent {len(targets)} messages; expected {want.steps}, one a step."
            alike = len({trace.sent_bytes(one) for one in range(trace.world_size)}) == 1
            uneven = None if alike else _uneven(trace, want)
            return _more_than_a_lap(trace, want, rank, targets) or uneven or too_many

    if want.chunk_bytes * (want.world_size - 1) >= want.tensor_bytes:
        return None  # n − 1 chunks can hold the tensor: an empty chunk need not be sent

    for rank in range(trace.world_size):
        filled = sum(t.size_bytes > 0 for t in from_rank(trace, rank))
        if filled < want.steps:
            few = f"rank {rank} sent {count(filled, 'message')} with values in them; expected {want.steps}, one a step."
            return _whole_tensors(trace, want) or few

    return None


def _more_than_a_lap(trace: Trace, want: Ring, rank: int, targets: Sequence[int]) -> Complaint:
    """Name why all ranks send too many messages: empty ones, both ways round, or a step too many in a lap; else None."""
    if set(sent_by_each(trace).values()) != {len(targets)}:
        return None

    empty = sum(one.src == rank and one.size_bytes == 0 for one in trace.transfers)
    if empty:
        return (
            f"rank {rank} sent {len(targets)} messages, {empty} of them empty; expected {want.steps}, one a step: a rank "
            "that has a chunk can go on at once."
        )

    lap = want.world_size - 1
    right = targets.count((rank + 1) % want.world_size)
    if want.world_size > 2 and min(right, len(targets) - right) >= lap:
        return (
            f"rank {rank} sends a full lap in both directions, {len(targets)} messages where {want.steps} are enough: "
            f"every chunk arrives twice."
        )
    if len(targets) <= want.steps + want.halves:
        return (
            f"rank {rank} sent {len(targets)} messages; expected {want.steps}, one a step. A lap of {want.world_size} ranks has "
            f"n − 1 steps, not n: one more step brings a chunk back to its start."
        )
    return None


def _wrong_way(rank: int, targets: Sequence[int], world_size: int) -> Complaint:
    """Return a complaint if a transfer goes to no neighbor on the ring, or a rank changes direction more than once; else None."""
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for target in targets:
        if target not in (left, right):
            return f"rank {rank} sent a message to rank {target}; its neighbours on the ring are {left} and {right}."

    turns = sum(a != b for a, b in pairwise(targets))
    if turns > 1:
        return f"rank {rank} sends to both neighbours, {left} and {right}, in turn: choose one way round the ring."
    return None


def wrong_shares(trace: Trace, want: Ring) -> Complaint:
    """Return a complaint about a transfer over a chunk, a wrong total, or an uneven share of a rank; else None.

    The total must be exact, and each rank's share right within one chunk, or more if chunks must differ.
    """
    return first_complaint([
        _whole_tensors(trace, want),
        _too_large(trace, want.chunk_bytes),
        _wrong_total(trace, want),
        _uneven(trace, want),
    ])


def _whole_tensors(trace: Trace, want: Ring) -> Complaint:
    for t in by_sender(trace):
        if t.size_bytes >= want.tensor_bytes > want.chunk_bytes:
            sent = trace.sent_bytes(t.src) / want.tensor_bytes
            return (
                f"messages hold the whole tensor: rank {t.src} sends {times(sent)} x the tensor, "
                f"where {times(want.share)} x is enough. Send one chunk at a time."
            )

    return None


def _uneven(trace: Trace, want: Ring) -> Complaint:
    even, largest = 1 / want.world_size, want.chunk_bytes / want.tensor_bytes
    slack = even
    if want.chunk_bytes * want.world_size != want.tensor_bytes:
        # in each half a rank sends all chunks but one, which may be empty or the largest
        slack = want.halves * max(even, largest - even)

    sent = [trace.sent_bytes(rank) / want.tensor_bytes for rank in range(trace.world_size)]
    most, least = sent.index(max(sent)), sent.index(min(sent))
    if max(sent[most] - want.share, want.share - sent[least]) <= slack + _ROUNDING:
        return None

    if sent[most] == sent[least]:
        return f"every rank sent {times(sent[most])} x the tensor; on a ring {times(want.share)} x is enough."
    return (
        f"rank {most} sent {times(sent[most])} x the tensor and rank {least} {times(sent[least])} x; on a ring every rank "
        f"sends {times(want.share)} x, give or take one chunk. Is it a gather and a broadcast, from neighbour to neighbour?"
    )


def with_hint(wrong: Complaint, trace: Trace, want: Ring) -> Complaint:
    """Return a complaint about an all-reduce's values, with a hint if some rank sent messages, but none as many as steps."""
    if not wrong:
        return wrong
    most = max(sent_by_each(trace).values(), default=0)
    if not 0 < most < want.steps:
        return wrong.rstrip()

    gone = want.steps - most
    missing = "Is the last step missing?" if gone == 1 else f"{gone} steps are missing."
    if gone == want.world_size - 1 > 1 and want.halves == 2:
        missing = "Is a whole half missing?"
    hint = f"No rank sent more than {count(most, 'message')}; there are {want.steps} steps. {missing}"
    return f"{wrong.rstrip()} {hint}"


def slow(trace: Trace, best: int, advice: str) -> Complaint:
    """Return a complaint if transfers, each right for an all-reduce, take over 1.5 times the `best` number of rounds, or None."""
    taken = rounds(trace)
    if taken <= _MOST_ROUNDS * best:
        return None

    at_once = len(trace.transfers) / taken
    return (
        f"it takes {taken} rounds of messages where {best} are enough: on average {at_once:.2g} of {trace.world_size} ranks "
        f"send at a time, and all could. {advice}"
    )


def _hub(trace: Trace) -> int | None:
    """Return the one rank that all transfers go to or come from, as through a server, or None.

    None also with fewer than three ranks or with messages on one link alone, where a hub tells nothing.
    """
    pairs = set(links(trace))
    if trace.world_size < 3 or len(pairs) < 2:
        return None

    centres = set.intersection(*map(set, pairs))
    if len(centres) != 1:
        return None
    return centres.pop()


def _too_large(trace: Trace, chunk_bytes: int) -> Complaint:
    for t in by_sender(trace):
        if t.size_bytes > chunk_bytes:
            return (
                f"rank {t.src} sent rank {t.dst} a message of {t.size_bytes} bytes; expected at most one chunk, "
                f"{chunk_bytes} bytes."
            )

    return None


def _wrong_total(trace: Trace, want: Ring) -> Complaint:
    """Return a complaint if the bytes of all transfers of an all-reduce are not exact, or None."""
    got, expected = trace.total_bytes(), want.steps * want.tensor_bytes
    if got == expected:
        return None

    return (
        f"all ranks together sent {times(got / want.tensor_bytes)} x the tensor ({got} bytes); expected "
        f"{want.steps} x ({expected} bytes)."
    )
