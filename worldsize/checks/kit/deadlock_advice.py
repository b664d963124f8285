"""Advice for ranks that wait for each other forever, from their waits: who ended, who was left out, who sends to whom.

`failures.deadlock_line` states the deadlock and each rank's wait.
"""

from collections.abc import Sequence

from worldsize.failures import Wait


def deadlock_advice(waits: Sequence[Wait]) -> str:
    """Return one or two sentences of advice for a deadlock, or an empty text if none fits.

    `waits` are the ranks that have not ended, each with the call that blocks it.
    """
    for advice in (_left_out, _other_tag, _all_alike, _circle):  # the general case last
        words = advice(waits)
        if words:
            return words
    return ""


def _left_out(waits: Sequence[Wait]) -> str:
    for wait in waits:
        if not wait.peer_ended:
            continue
        if wait.op == "recv":
            missing = f"sent rank {wait.rank} fewer messages than rank {wait.rank} expects"
        else:
            missing = f"received fewer messages from rank {wait.rank} than rank {wait.rank} sent"
        return f"Rank {wait.peer} has ended: it {missing}. Did it return early, or skip rank {wait.rank}?"
    return ""


def _other_tag(waits: Sequence[Wait]) -> str:
    sends = {(wait.rank, wait.peer): wait for wait in waits if wait.op == "send"}
    for wait in waits:
        sent = sends.get((wait.peer, wait.rank))
        if wait.op != "recv" or sent is None:
            continue
        if sent.tag != wait.tag:
            return (
                f"Rank {sent.rank} sends to rank {wait.rank} with tag {sent.tag}, but rank {wait.rank} receives with tag "
                f"{wait.tag}: a recv takes only messages with its own tag."
            )
    return ""


def _all_alike(waits: Sequence[Wait]) -> str:
    operations = {wait.op for wait in waits}
    if operations == {"send"}:
        return (
            f"Every rank waits until its message is received, but no rank receives: {_pairs(waits)}. "
            f"Receive before you wait: isend, then recv, then wait for the handle."
        )
    if operations == {"recv"}:
        return (
            f"Every rank waits for a message that no rank has sent: {_pairs(waits)}. Let one rank send first, "
            f"or check from which rank each one receives."
        )
    return ""


def _circle(waits: Sequence[Wait]) -> str:
    waiting = {wait.rank: wait for wait in waits}
    rank, seen = next(iter(waiting), None), []
    while rank in waiting and rank not in seen:
        seen.append(rank)
        rank = waiting[rank].peer

    if rank not in seen:  # no circle: the last rank waits for anyone, or for a rank that does not wait
        return ""
    round_ = [waiting[r] for r in seen[seen.index(rank) :]]
    return (
        f"These ranks wait in a circle: {_pairs(round_)}. Let one of them swap the order of its calls, "
        f"or send with isend and wait later."
    )


def _pairs(waits: Sequence[Wait]) -> str:
    clauses = []
    for wait in waits:
        whom = "anyone" if wait.peer is None else str(wait.peer)
        verb = "sends to" if wait.op == "send" else "receives from"
        clauses.append(f"rank {wait.rank} {verb} {whom}")

    return ", ".join(clauses)
