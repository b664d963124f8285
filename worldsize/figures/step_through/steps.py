"""A trace in steps: the messages that a person looks at together, who waits meanwhile, and what each rank then holds.

In one step a rank sends at most one message and receives at most one, as one network card would. Every message comes after
all messages that its sender had sent or received before it began: L. Lamport's "happened before" (CACM 21, 1978) in rows.
So a ring's k-th messages make one step, and messages that queue at a server make a step each.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from worldsize.figures.frame.inputs import began_s, ended_s, marked
from worldsize.trace import Note, Trace, Transfer, in_steps

LONG_WAIT_S = 5e-3
LONG_WAIT_SHARE = 0.5  # of a step

Held = tuple[float, ...]
Notes = Sequence[Sequence[Note]]
Noted = dict[int, tuple[tuple[int, int] | None, Held | None]]


@dataclass(frozen=True)
class StepMessage:
    """A message of a step. `chunks`: the first and last chunk in it, None if unknown; `waited_s`: its receiver's wait."""

    src: int
    dst: int
    size_bytes: int
    chunks: tuple[int, int] | None = None
    waited_s: float = 0.0
    tag: int = 0


@dataclass(frozen=True)
class RankRest:
    """The state of a rank without a message in a step: it computes, waits, or waits for `peer` to send or to receive."""

    does: Literal["computes", "waits", "receives", "sends"]
    peer: int | None = None


@dataclass(frozen=True)
class Step:
    """A step: `rest` maps ranks without a message to their state; `held[rank]` is what a rank holds afterwards, if known."""

    messages: tuple[StepMessage, ...]
    end_s: float
    rest: dict[int, RankRest]
    held: tuple[Held, ...] = ()

    @property
    def tagged(self) -> bool:
        """Tell whether tags tell the step's messages apart."""
        return any(m.tag for m in self.messages)


def steps_of(trace: Trace, contents: Notes | None = None) -> list[Step]:
    """Return a trace's steps; `contents[rank]` are the notes of a `Watched` fabric.

    A step's `end_s` counts from the first message.
    """
    rounds = in_steps(trace.transfers)
    noted = _noted(trace.transfers, contents or ())
    rest = _resting(trace, rounds)
    held = held_first(contents)
    first_s = before_s = began_s(trace.transfers)

    steps = []
    for number, transfers in enumerate(rounds):
        end_s = ended_s(transfers)
        messages = tuple(_message(t, noted, before_s, end_s) for t in transfers)
        if held:
            now = list(held)
            for t in transfers:
                _, after = noted[id(t)]
                if after is not None:
                    now[t.dst] = after
            held = tuple(now)
        steps.append(Step(messages=messages, end_s=end_s - first_s, rest=rest[number], held=held))
        before_s = max(before_s, end_s)
    return steps


def held_first(contents: Notes | None) -> tuple[Held, ...]:
    """Return what each rank holds before the first step of the trace; empty where that is unknown."""
    return tuple(notes[0].held for notes in contents or ())


def _message(t: Transfer, noted: Noted, before_s: float, end_s: float) -> StepMessage:
    """Return a message of a trace's step; `before_s` and `end_s` are when the step before and this one ended.

    A wait is kept only where it is long, and counts from the end of the step before at the earliest.
    """
    chunks, _ = noted.get(id(t), (None, None))
    waited_s = 0.0
    if t.recv_start_s is not None:
        waited_s = t.start_s - max(before_s, t.recv_start_s)
    if waited_s <= max(LONG_WAIT_S, LONG_WAIT_SHARE * (end_s - before_s)):
        waited_s = 0.0  # too short to mention

    return StepMessage(src=t.src, dst=t.dst, size_bytes=t.size_bytes, chunks=chunks, waited_s=waited_s, tag=t.tag)


@dataclass(frozen=True, order=True)
class _Wait:
    """A wait of a rank for its part in round `round`, as sender or receiver: it has been ready since `since_s`."""

    round: int
    sends: bool
    since_s: float
    peer: int


def _resting(trace: Trace, rounds: list[list[Transfer]]) -> list[dict[int, RankRest]]:
    """Return, for each step's round, what the ranks do that take no part in it."""
    pending: dict[int, list[_Wait]] = defaultdict(list)
    for number, messages in enumerate(rounds):
        for t in messages:
            ready_s = t.recv_start_s
            if ready_s is None:
                ready_s = t.end_s
            pending[t.src].append(_Wait(number, sends=True, since_s=t.start_s, peer=t.dst))
            pending[t.dst].append(_Wait(number, sends=False, since_s=ready_s, peer=t.src))

    rests = []
    for number, messages in enumerate(rounds):
        start_s, end_s = began_s(messages), ended_s(messages)
        idle = set(range(trace.world_size))
        for t in messages:
            idle -= {t.src, t.dst}

        kinds: dict[int, set[str]] = defaultdict(set)  # by rank, of its spans in this round
        for span in marked(trace):
            if span.start_s < end_s and span.end_s > start_s:
                kinds[span.rank].add(span.kind)

        doing = {}
        for rank in sorted(idle):
            waits = [wait for wait in pending[rank] if wait.round > number and wait.since_s < end_s]
            rest = _rest(min(waits, default=None), kinds[rank])
            if rest is not None:
                doing[rank] = rest
        rests.append(doing)
    return rests


def _rest(wait: _Wait | None, kinds: set[str]) -> RankRest | None:
    """Return what a rank does: a receive blocks it, while a send may wait as it computes. `kinds` are its spans' kinds."""
    if wait and not wait.sends:
        return RankRest("receives", wait.peer)
    if "compute" in kinds:
        return RankRest("computes")
    if wait:
        return RankRest("sends", wait.peer)
    if kinds:
        return RankRest("waits")
    return None


def _noted(transfers: Iterable[Transfer], contents: Notes) -> Noted:
    """Return, by a transfer's id, the chunks in it and what its receiver held when it made its next call."""
    if not contents:
        return {}

    places: dict[tuple, list[int]] = defaultdict(list)
    for rank, notes in enumerate(contents):
        for place, note in enumerate(notes):
            places[note.op, rank, note.peer, note.tag].append(place)

    noted: Noted = {}
    for t in sorted(transfers, key=lambda t: t.end_s):
        sent, received = places["send", t.src, t.dst, t.tag], places["recv", t.dst, t.src, t.tag]
        chunks = held = None
        if sent:
            chunks = contents[t.src][sent.pop(0)].chunks
        if received:
            held = contents[t.dst][received.pop(0) + 1].held  # a note holds the chunks before its call
        noted[id(t)] = (chunks, held)
    return noted
