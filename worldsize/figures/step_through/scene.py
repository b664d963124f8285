"""A recorded trace to step through with the arrow keys: what the player and `scene.js` draw.

`steps` cuts a trace into steps, and `layout` places ranks.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from worldsize import units
from worldsize.figures import base
from worldsize.figures.base import Picture
from worldsize.figures.chunk_contents import counts
from worldsize.figures.frame.inputs import trace_of
from worldsize.figures.frame.message_pattern import message_pattern
from worldsize.figures.player.output import Scripted
from worldsize.figures.step_through import text
from worldsize.figures.step_through.layout import MOST_ROOMY, WIDTHS, Layout, pipeline, ring, star, tree
from worldsize.figures.step_through.steps import Held, Notes, Step, held_first, steps_of
from worldsize.figures.step_through.still import still

MOST_RANKS = 16
MOST_RANKS_WITH_CELLS = MOST_ROOMY
MOST_CHUNKS = 16
MOST_MESSAGES = 200
MOST_STEPS_IN_ALT = 6
BEAT = [1400, 1]  # milliseconds and steps
SCRIPT = Path(__file__).with_suffix(".js")
KEYS = "Keys: left and right arrow, Home, End."
CHUNKS = "On an arrow: which chunk it carries{tags}."
SIZES = "On an arrow: its size{tags}. Which part of a tensor that was, a record does not tell by itself."
CELLS = "In each rank, a column is a chunk, and a row a rank whose number may be in it."


def steps(of: Any, layout: str = "ring", contents: Notes | None = None, hub: int | None = None) -> Scripted | Picture:
    """Return a player that steps through a run with the arrow keys, for a notebook.

    `layout` is "ring", "star" or "tree" (round or below `hub`, by default the busiest rank), or "pipeline". Each rank shows
    its chunks where every rank returned the notes of a `Watched` fabric: `contents=run.results`. Raises ValueError for
    another layout or for other contents.
    """
    trace, instead = trace_of(of)
    if instead is not None:
        return instead

    n, finding = trace.world_size, message_pattern(trace)
    if hub is None:  # the rank with the most messages
        ends = Counter(chain(*map(attrgetter("src", "dst"), trace.transfers)))
        hub = max(range(n), key=ends.__getitem__)

    before = held_first(contents and _checked(contents, n))
    chunks = max(map(len, before), default=0)
    if n > MOST_RANKS_WITH_CELLS or chunks > MOST_CHUNKS:
        contents, before, chunks = None, (), 0

    every = steps_of(trace, contents)
    # before the limit on ranks, so that a wrong layout raises at any world size
    stages = [_layout_of(layout, n, chunks, hub, every, width) for width in WIDTHS]
    if n > MOST_RANKS:
        return base.notice(f"{n} ranks are too many to step through (at most {MOST_RANKS}); see figures.messages")

    shown = _first(every)
    title = finding[0].upper() + finding[1:]
    picture = still(shown, stages[1], title)  # the middle canvas: panels stand in two columns
    picture.alt = _alt(shown, every, n, layout, finding)
    return Scripted(picture, _data(shown, every, n, stages, title, before), SCRIPT, "steps")


def _layout_of(layout: str, n: int, chunks: int, hub: int, every: Sequence[Step], width: float) -> Layout:
    pairs: list[tuple[int, int]] = []
    for step in every:
        pairs += [(m.src, m.dst) for m in step.messages if max(m.src, m.dst) < MOST_RANKS]

    layouts = {
        "ring": ring, "star": partial(star, hub=hub), "tree": partial(tree, hub=hub, pairs=pairs),
        "pipeline": pipeline,
    }  # fmt: skip
    if layout not in layouts:
        raise ValueError(f"figures.steps: expected one of the layouts {', '.join(map(repr, layouts))}, got {layout!r}")
    return layouts[layout](min(n, MOST_RANKS), chunks, width=width)


def _checked(contents: Notes, n: int) -> Notes:
    if len(contents) == n and all(isinstance(notes, list) and hasattr(notes[0], "held") for notes in contents):
        return contents
    raise ValueError(
        f"figures.steps: expected contents to hold a Watched fabric's notes for each of {n} ranks, got {contents!r:.60}. "
        f"Return `watched.notes()` from every rank, and pass `contents=run.results`."
    )


def _first(every: list[Step]) -> list[Step]:
    """Return the scene's first steps with at most `MOST_MESSAGES` messages together, and at least one step."""
    total, shown = 0, []
    for step in every:
        total += len(step.messages)
        if shown and total > MOST_MESSAGES:
            break
        shown.append(step)

    return shown


def _totals(every: Sequence[Step]) -> str:
    messages = list(chain(*map(attrgetter("messages"), every)))
    whole = units.size(sum(m.size_bytes for m in messages))
    return f"{units.count(len(messages), 'message')} in {units.count(len(every), 'step')}, {whole} in all"


def _notes(shown: Sequence[Step], every: Sequence[Step], cells: bool) -> list[str]:
    tags, on_arrows = "", SIZES
    for step in shown:
        if step.tagged:
            tags = " and its tag"
        if any(m.chunks is not None for m in step.messages):
            on_arrows = CHUNKS

    notes = [on_arrows.format(tags=tags)]
    if cells:
        notes.append(CELLS)
    notes.append(KEYS)
    if len(shown) < len(every):
        notes.append(f"Only the first {len(shown)} of {len(every)} steps are here.")
    return notes


def _alt(shown: Sequence[Step], every: Sequence[Step], n: int, layout: str, finding: str) -> str:
    sentences = [f"step {k}: {text.sentence(step, n)}" for k, step in enumerate(shown[:MOST_STEPS_IN_ALT], 1)]
    listing = ". ".join(sentences)
    if len(every) > len(sentences):
        listing += f" and {len(every) - len(sentences)} more"

    return f"Steps of {units.count(n, 'rank')} as a {layout}: {finding}. {_totals(every)}. {listing}."


def _data(
    shown: Sequence[Step], every: Sequence[Step], n: int, stages: Sequence[Layout], title: str, before: tuple[Held, ...]
) -> dict[str, Any]:
    rows, before_it, links = [], before, set()
    for step in shown:
        rows.append(_step(step, before_it, n))
        before_it = step.held
        links.update(map(attrgetter("src", "dst"), step.messages))

    return {
        "title": title,
        "last": len(shown),
        "opens": 0 if before else 1,  # without chunks, nothing shows before the first step
        "slider": "step",
        "stride": 1,
        "beat": BEAT,
        "start": f"{units.count(n, 'rank')}, {_totals(every)}",
        "notes": _notes(shown, every, cells=bool(before)),
        "stages": list(map(_stage, stages)),
        "links": sorted(links),  # the faint tracks under the arrows
        "cells": [[_code(value, n) for value in row] for row in before],
        "steps": rows,
    }


def _stage(where: Layout) -> dict[str, Any]:
    """Return the scene's data of a canvas of one width."""
    return {
        "width": where.width,
        "height": round(where.height),
        "box": where.box,
        "cell": where.cell,
        "at": [[round(x), round(y)] for x, y in where.centres],
        "bend": where.bend,
    }


def _step(step: Step, before: Sequence[Held], n: int) -> dict[str, Any]:
    """Return a step: its text, messages [src, dst, label], what ranks do [word, words], changed cells [rank, chunk, code]."""
    messages: list[list[Any]] = []
    doing = {}
    for rank, rest in step.rest.items():
        doing[rank] = [text.rest_in_short(rest), text.rest_in_words(rest)]
    for m in step.messages:
        messages.append([m.src, m.dst, text.label(m, step.tagged)])
        if m.waited_s:
            doing[m.dst] = ["waited", f"waited {units.seconds(m.waited_s)}"]
    record: dict[str, Any] = {
        "text": text.sentence(step, n), "at": units.seconds(step.end_s), "messages": messages, "doing": doing,
    }  # fmt: skip

    if not step.held:
        return record
    record["cells"] = []
    for rank, row in enumerate(step.held):
        for chunk, value in enumerate(row):
            if value != before[rank][chunk]:
                record["cells"].append([rank, chunk, _code(value, n)])
    return record


def _code(value: float, n: int) -> str:
    """Return, for the scene, how often each rank's number is in a sum, a digit a rank; "?" where the value is no sum of marks."""
    found = counts(value, n)
    return "?" if found is None else "".join(map(str, found))
