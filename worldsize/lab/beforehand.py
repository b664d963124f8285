"""The pictures of a cell with knobs at all their positions, for a page that no kernel answers.

They are drawn in a headless run with `WORLDSIZE_KNOBS=beforehand`, where no position needs ranks: in simulated time, or by
formula. The page's script shows them; without one the first picture is all. Left out: knobs that start a run.
"""

from __future__ import annotations

import base64
import gzip
import html
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from worldsize.figures.base import Picture
from worldsize.launch.run import STUDENTS_LAUNCHES, unobserved

WANTED = "WORLDSIZE_KNOBS"
MOST_POSITIONS = 60


def drawn_first(draw: Callable[..., Any], values: Mapping[str, Any]) -> tuple[Any, bool]:
    """The picture at the starting `values`, and whether the others may be drawn beforehand, because none needs ranks."""
    before = STUDENTS_LAUNCHES.latest
    with unobserved():
        picture = draw(**values)
    runs = STUDENTS_LAUNCHES.latest is not before or "launch" in draw.__code__.co_names
    wanted = os.environ.get(WANTED) == "beforehand"
    return picture, wanted and not runs and isinstance(picture, Picture)


def bundle(
    picture: Picture,
    draw: Callable[..., Any],
    choices: Mapping[str, Sequence[Any]],
    values: Mapping[str, Any],
    said: Callable[[Any], str],
) -> dict[str, str]:
    """What a notebook keeps of a cell with knobs: its `picture`, and behind it those at the other positions.

    A position is the numbers of the chosen values, as in "0,2"; `said` is a value as text. With more than `MOST_POSITIONS` only
    those are kept that differ from the start in one knob.
    """
    kept = picture.bundle()
    start = ",".join(str(list(offered).index(values[name])) for name, offered in choices.items())
    pictures = {}
    for position, chosen in _positions(choices, values):
        if position != start:
            with unobserved():
                pictures[position] = _packed(draw(**chosen))

    fields = [{"name": name.replace("_", " "), "values": list(map(said, offered))} for name, offered in choices.items()]
    data = html.escape(json.dumps({"knobs": fields, "start": start, "pictures": pictures}, ensure_ascii=False))
    kept["text/html"] = f'<div class="ws-knobs" data-knobs="{data}"><div>{kept["text/html"]}</div></div>'
    return kept


def _positions(choices: Mapping[str, Sequence[Any]], values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    offered = [list(enumerate(options)) for options in choices.values()]
    many = list(itertools.product(*offered))
    for row in many:
        chosen = {name: value for name, (_, value) in zip(choices, row, strict=True)}
        moved = sum(chosen[name] != values[name] for name in choices)
        if len(many) <= MOST_POSITIONS or moved <= 1:
            yield ",".join(str(number) for number, _ in row), chosen


def _packed(picture: Picture) -> str:
    """The HTML of a picture, compressed as browsers can undo it: gzip, in letters."""
    shown = picture._repr_html_().encode()
    return base64.b64encode(gzip.compress(shown, 9, mtime=0)).decode()
