"""A trace in steps: the messages that a person looks at together, who waits meanwhile, and what each rank then holds.

In one step a rank sends at most one message and receives at most one, as one network card would, and every message
comes after those that its sender had sent or received before it began. So a ring's k-th messages make one step, and
those that queue at a server make a step each. It is L. Lamport's "happened before" (CACM 21, 1978) in rows. Left out:
drawing, and the steps in words (`text`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from worldsize.trace import Note, Span, Trace, Transfer, in_steps

LONG_WAIT_S = 5e-3
LONG_WAIT_SHARE = 0.5

Held = tuple[float, ...]
Notes = Sequence[Sequence[Note]]
Noted = dict[int, tuple[tuple[int, int] | None, Held | None]]


@dataclass(frozen=True)
class StepMessage:
    """`chunks`: the first and the last chunk that it holds, where that is known; `waited_s`: its receiver, for it."""

    src: int
    dst: int
    size_bytes: int
    chunks: tuple[int, int] | None = None
    waited_s: float = 0.0


@dataclass(frozen=True)
class Step:
    """`rest[rank]` says what a rank without a message does; `held[rank]` what each holds after the step, if known."""

    messages: tuple[StepMessage, ...]
    end_s: float
    rest: dict[int, str]
    held: tuple[Held, ...] | None = None


def steps_of(trace: Trace, contents: Notes | None = None) -> list[Step]:
    """The steps of a step-through.

    All steps of a trace; `contents[rank]` are the notes of a `Watched` fabric. `end_s` counts from the first event.
    """
    rounds = in_steps(trace.transfers)
    noted = _noted(trace.transfers, contents or ())
    rest = _resting(trace, rounds)
    held = tuple(notes[0].held for notes in contents) if contents else None
    first_s = before_s = min((t.start_s for t in trace.transfers), default=0.0)
    found = []
    for number, transfers in enumerate(rounds):
        end_s = max(t.end_s for t in transfers)
        messages = tuple(_message(t, noted, before_s, end_s) for t in transfers)
        if held is not None:
            now = {t.dst: noted[id(t)][1] for t in transfers if noted[id(t)][1] is not None}
            held = tuple(now.get(rank, row) for rank, row in enumerate(held))
        found.append(Step(messages, end_s - first_s, rest[number], held))
        before_s = max(before_s, end_s)
    return found


def _message(t: Transfer, noted: Noted, before_s: float, end_s: float) -> StepMessage:
    """`before_s` and `end_s`: when the step before and this one were over; who waited then was seen to wait there."""
    waits_since_s = t.start_s if t.recv_start_s is None else t.recv_start_s
    waited_s = t.start_s - max(before_s, waits_since_s)
    long = waited_s > max(LONG_WAIT_S, LONG_WAIT_SHARE * (end_s - before_s))
    chunks = noted[id(t)][0] if noted else None
    return StepMessage(t.src, t.dst, t.size_bytes, chunks, waited_s if long else 0.0)


# ---- who waits -------------------------------------------------------------------------------


def _resting(trace: Trace, rounds: list[list[Transfer]]) -> list[dict[int, str]]:
    """For each round, what the ranks do that take no part in it."""
    pending: dict[int, list[tuple[int, bool, float, int]]] = defaultdict(list)  # (round, is a send, since, peer)
    for number, messages in enumerate(rounds):
        for t in messages:
            pending[t.src].append((number, True, t.start_s, t.dst))
            since_s = t.end_s if t.recv_start_s is None else t.recv_start_s
            pending[t.dst].append((number, False, since_s, t.src))
    work = [s for s in trace.spans if s.kind in ("compute", "wait")]
    found = []
    for number, messages in enumerate(rounds):
        start_s, end_s = min(t.start_s for t in messages), max(t.end_s for t in messages)
        active = {rank for t in messages for rank in (t.src, t.dst)}
        doing = {}
        for rank in sorted(set(range(trace.world_size)) - active):
            waits = [w for w in pending[rank] if w[0] > number and w[2] < end_s]
            own = [s for s in work if s.rank == rank and s.start_s < end_s and s.end_s > start_s]
            doing[rank] = _doing(min(waits, default=None), own)
        found.append({rank: words for rank, words in doing.items() if words})
    return found


def _doing(wait: tuple[int, bool, float, int] | None, own: list[Span]) -> str:
    """A receive blocks its rank; a send may wait behind its back while it computes."""
    if wait and not wait[1]:
        return f"waits for rank {wait[3]}"
    if any(s.kind == "compute" for s in own):
        return "computes"
    return f"waits to send to rank {wait[3]}" if wait else "waits" * bool(own)


# ---- what each rank holds --------------------------------------------------------------------


def _noted(transfers: Iterable[Transfer], contents: Notes) -> Noted:
    """By id of a transfer: the chunks in it, and what its receiver held when it made its next call."""
    if not contents:
        return {}
    places: dict[tuple, list[int]] = defaultdict(list)
    for rank, notes in enumerate(contents):
        for place, note in enumerate(notes):
            places[note.op, rank, note.peer, note.tag].append(place)
    found: Noted = {}
    for t in sorted(transfers, key=lambda t: t.end_s):
        sent, received = places["send", t.src, t.dst, t.tag], places["recv", t.dst, t.src, t.tag]
        chunks = contents[t.src][sent.pop(0)].chunks if sent else None
        found[id(t)] = (chunks, contents[t.dst][received.pop(0) + 1].held if received else None)
    return found
