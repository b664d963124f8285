"""The steps of a trace in words: who sends what to whom, who waits, and how far the sums are."""

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from worldsize import units
from worldsize.figures.chunk_contents import whole_sums
from worldsize.figures.step_through.steps import RankRest, Step, StepMessage

MOST_NAMED = 4


def sentence(step: Step, world_size: int) -> str:
    """Return one step as text: "rank 1 sends chunk 2 (250 kB) to rank 2; rank 0 waits for rank 2"."""
    clauses = [_together(step.messages, world_size) or _one_by_one(step.messages)]

    late = list(filter(attrgetter("waited_s"), step.messages))
    for m in late[:MOST_NAMED]:
        clauses.append(f"rank {m.dst} waited {units.seconds(m.waited_s)} for its message")
    clauses += resting(step.rest)

    whole = whole_sums(step.held)
    if whole:
        clauses.append(f"{whole} of {sum(map(len, step.held))} cells hold the whole sum")
    return "; ".join(clauses)


def resting(rest: dict[int, RankRest]) -> list[str]:
    """Describe a step's ranks without a message; ranks that do the same share a clause."""
    same: dict[RankRest, list[int]] = defaultdict(list)
    for rank, does in sorted(rest.items()):
        same[does].append(rank)
    return [f"{named(ranks)} {rest_in_words(does, len(ranks))}" for does, ranks in same.items()]


def rest_in_words(rest: RankRest, ranks: int = 1) -> str:
    """Return as text what ranks without a message do: "waits for rank 2", "wait for rank 2"."""
    s = "s" if ranks == 1 else ""
    if rest.does == "computes":
        return f"compute{s}"
    more = {"waits": "", "receives": f" for rank {rest.peer}", "sends": f" to send to rank {rest.peer}"}
    return f"wait{s}{more[rest.does]}"


def rest_in_short(rest: RankRest) -> str:
    """Return as text what a rank without a message does in one word: "computes" or "waits"."""
    return "computes" if rest.does == "computes" else "waits"


def named(ranks: Sequence[int]) -> str:
    """Return a step's ranks, in order, as text: "rank 1", "ranks 1, 3 and 4", "ranks 2 to 7"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def payload_in_words(message: StepMessage) -> str:
    """Return the text of a message's chunks: "chunk 2", "chunks 0 to 3"; "" where they are not known."""
    if message.chunks is None:
        return ""
    first, last = message.chunks
    if first == last:
        return f"chunk {first}"
    return f"chunks {first} to {last}"


def label(message: StepMessage, tagged: bool = False) -> str:
    """Return the text on a message's arrow: its chunks where known, else its size; its tag if asked."""
    what = payload_in_words(message) or units.size(message.size_bytes)
    if tagged:
        what += f", tag {message.tag}"
    return what


def _together(messages: Sequence[StepMessage], n: int) -> str:
    """Describe a step's messages in which every rank sends to the rank equally far on; empty otherwise."""
    shifts = {(m.dst - m.src) % n for m in messages}
    if len(messages) != n or len(shifts) != 1:
        return ""

    sizes = sorted(map(attrgetter("size_bytes"), messages))
    what = " to ".join(dict.fromkeys([units.size(sizes[0]), units.size(sizes[-1])]))  # one size where both read alike
    if any(map(payload_in_words, messages)):
        what = f"a chunk ({what})"
    if n == 2:
        return f"ranks 0 and 1 send each other {what}"

    shift = shifts.pop()
    to = {1: "the next one", n - 1: "the one before"}.get(shift, f"the one {shift} further on")
    return f"every rank sends {what} to {to}"


def _one_by_one(messages: Sequence[StepMessage]) -> str:
    clauses = []
    for m in messages[:MOST_NAMED]:
        what, part = units.size(m.size_bytes), payload_in_words(m)
        if part:
            what = f"{part} ({what})"
        clauses.append(f"rank {m.src} sends {what} to rank {m.dst}")

    more = len(messages) - MOST_NAMED
    if more > 0:
        clauses.append(f"and {units.count(more, 'more message')}")
    return ", ".join(clauses)
