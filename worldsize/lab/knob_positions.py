"""The pictures of a cell with knobs at all their positions, for a page without a kernel.

A headless run with `WORLDSIZE_KNOBS=beforehand` draws the pictures if no position needs ranks: in simulated time, or by formula.
The page's script shows them; without a script only the first picture is visible.
"""

import base64
import gzip
import html
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from worldsize.figures.base import Picture
from worldsize.launch.run import STUDENTS_LAUNCHES, unobserved
from worldsize.simulate.simulated_run import SimulatedRun

WANTED = "WORLDSIZE_KNOBS"
MOST_POSITIONS = 60


def drawn_first(draw: Callable[..., Any], values: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the knobs' picture at the starting `values`, and how the others are computed beforehand.

    The second is "in simulated time" or "by formula"; "" if a position needs ranks, or no pictures are wanted.
    """
    before = STUDENTS_LAUNCHES.latest
    with unobserved():
        picture = draw(**values)
    latest = STUDENTS_LAUNCHES.latest
    if os.environ.get(WANTED) != "beforehand" or not isinstance(picture, Picture) or "launch" in draw.__code__.co_names:
        return picture, ""
    if latest is before:
        return picture, "by formula"
    return picture, "in simulated time" if isinstance(latest, SimulatedRun) else ""


def bundle(
    picture: Picture,
    draw: Callable[..., Any],
    choices: Mapping[str, Sequence[Any]],
    values: Mapping[str, Any],
    text: Callable[[Any], str],
    how: str,
) -> dict[str, str]:
    """Return a notebook's output for a cell with knobs: its `picture`, and behind it those at the other positions.

    A position is the chosen values' indices, as in "0,2"; `text` turns a value into text, `how` comes from `drawn_first`.
    With more than `MOST_POSITIONS` positions, only those that differ from the start in one knob are kept.
    """
    kept = picture.bundle()
    start = ",".join(str(list(offered).index(values[name])) for name, offered in choices.items())
    offered = [list(enumerate(options)) for options in choices.values()]
    rows = list(itertools.product(*offered))
    pictures = {}
    for row in rows:
        position = ",".join(str(number) for number, _ in row)
        chosen = {name: value for name, (_, value) in zip(choices, row, strict=True)}
        moved = sum(chosen[name] != values[name] for name in choices)
        if position == start or (len(rows) > MOST_POSITIONS and moved > 1):
            continue

        with unobserved():
            drawn = draw(**chosen)
        shown = re.sub("<img[^>]*>", "", drawn.html(b""))  # without a bitmap beside its SVG
        if "<svg" not in shown:
            shown = drawn._repr_html_()
        # base64 of gzip, which browsers can decompress
        pictures[position] = base64.b64encode(gzip.compress(shown.encode(), 9, mtime=0)).decode()

    fields = [{"name": name.replace("_", " "), "values": list(map(text, offered))} for name, offered in choices.items()]
    data = html.escape(json.dumps({"how": how, "knobs": fields, "start": start, "pictures": pictures}, ensure_ascii=False))
    kept["text/html"] = f'<div class="ws-knobs" data-knobs="{data}"><div>{kept["text/html"]}</div></div>'
    return kept
