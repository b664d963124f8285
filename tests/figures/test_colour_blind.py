"""Pictures as people with each kind of dichromacy see them: they tell apart what a legend tells apart.

The simulation is coloraide's. Left out: the palettes by themselves (`test_tokens`).
"""

import functools
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import pytest
from coloraide import Color
from matplotlib.artist import Artist
from matplotlib.colors import to_hex, to_rgba
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from tests.support.sights import APART, SIGHTS, as_seen
from worldsize import figures
from worldsize.figures import report_curves, tokens
from worldsize.figures.base import Picture
from worldsize.formulas.pipeline import play
from worldsize.trace import Collective, Span, Trace, Transfer

WORK = (tokens.COMPUTE, tokens.BACKWARD, tokens.COLLECTIVE)
TONES = {tone.light: tone for tone in tokens.ALL}
HUES = {tone.light for tone in (*tokens.RANKS, *tokens.PHASES, *tokens.ALGORITHMS)}
NAMES = ["ring", "tree", "star", "server", "halving", "torch"]
THEMES = ["light", "dark"]

EVERY_KIND = tuple(Span(0, kind, 0.1 * n, 0.1 * n + 0.08) for n, kind in enumerate(("compute", "wait", "send", "recv")))
STEP = tuple(Span(rank, "compute", layer, layer + 1.0) for layer in range(2) for rank in range(2))
HOLDS, MISSES = (figures.Forecast(8.0, 10.0, 12.0, measured) for measured in (11.0, 20.0))
DAYS = {"often": [(0, 0), (10, 8), (11, 7), (24, 18)], "rarely": [(0, 0), (10, 9), (11, 3), (24, 12)]}
SENT = [{"src": "CPU:0", "dst": "CPU:1", "bytes": 100, "kind": kind} for kind in ("weights", "gradients")]
CENTRAL = {"holds": {"CPU:0": 100}, "sends": SENT, "collectives": {}}
COLLECTIVE = {"holds": {"CPU:0": 100}, "sends": [], "collectives": {"CPU:0": 100, "CPU:1": 100}}


def reported(last: float) -> list[dict[str, float]]:
    return [{"t": 0.1 * step, "step": step, "loss": loss} for step, loss in enumerate((2.0, last))]


PICTURES: dict[str, Callable[[], Picture]] = {
    "what ranks did": lambda: figures.timeline(Trace(2, (), EVERY_KIND, (Collective("all_reduce", 8, 1, 0.0, 0.2),))),
    "a pipeline": lambda: figures.pipeline(play([[("forward", 0), ("backward", 0)]] * 4, 1, 2)),
    "a race with forecasts": lambda: figures.race([figures.Timing(name, 0.02, 0.03, 4) for name in NAMES]),
    "six losses": lambda: figures.histories(
        {name: [2.0 + k, 1.0 + k] for k, name in enumerate(NAMES)}, "Who learns best?", y="loss"
    ),
    "bands of runs": lambda: figures.bands(
        {name: [[(1, k + 1.0), (2, k + 2.0)]] * 2 for k, name in enumerate(NAMES)}, "Who is lower?", x="step", y="loss"
    ),
    "memory by what it holds": lambda: figures.stacks({"a": [{name: 1000.0 for name in NAMES}] * 2}, "Who holds most?"),
    "what eight ranks reported": lambda: report_curves.draw([reported(1.0 + rank) for rank in range(8)]),
    "stages of ZeRO": lambda: figures.zero_stages(1e9, 4),
    "work kept over days": lambda: figures.kept_work(DAYS, [10.5], "Who keeps most?"),
    "traffic between devices": lambda: figures.moved({"central": CENTRAL, "collective": COLLECTIVE}),
    "forecasts that hold or miss": lambda: figures.intervals({"one": [HOLDS] * 5, "other": [MISSES]}, "Do they hold?"),
    "messages inside a step": lambda: figures.overlaps({"a": Trace(2, (Transfer(0, 1, 8, 1.0, 3.0),), STEP)}, 2),
}


class Mark(NamedTuple):
    """How a legend shows one thing: by its area or line, and its edge; and by what is no colour."""

    name: str
    colours: tuple[tuple[float, ...], ...]
    form: tuple[object, ...]


def mark_of(handle: Artist, name: str) -> Mark:
    if isinstance(handle, Line2D):
        form = ("line", handle.get_marker(), handle.get_linestyle(), handle.get_fillstyle())
        shown = handle.get_color() if handle.get_linestyle() != "None" else handle.get_markerfacecolor()
        return Mark(name, (to_rgba(shown, handle.get_alpha()),), form)

    face = handle.get_facecolor()
    face = face if isinstance(face, tuple) else tuple(face[0])
    edge = to_rgba(handle.get_edgecolor() if isinstance(handle.get_edgecolor(), tuple) else handle.get_edgecolor()[0])
    hatch = handle.get_hatch() if hasattr(handle, "get_hatch") else None
    return Mark(name, (face, edge) if face[3] else (edge,), ("area", hatch, face[3] == 0, handle.get_linestyle()))


def marks_of(picture: Picture) -> list[list[Mark]]:
    """The marks of each of a picture's legends."""
    found = []
    for legend in picture.findobj(Legend):
        words = [text.get_text() for text in legend.get_texts()]
        found.append([mark_of(handle, name) for handle, name in zip(legend.legend_handles, words, strict=True)])
    return found


def seen(rgba: tuple[float, ...], theme: str, sight: tuple[str, str] | None) -> Color:
    """A colour of a picture in a theme, on its ground, as somebody sees it."""
    tone = TONES.get(to_hex(rgba))
    colour = Color(getattr(tone, theme) if tone else to_hex(rgba)).set("alpha", rgba[3])
    colour = Color.layer([colour, Color(getattr(tokens.PAPER, theme))], space="srgb")
    return as_seen(colour, sight)


@functools.cache
def legends(name: str) -> list[list[Mark]]:
    return marks_of(PICTURES[name]())


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_names_what_is_to_be_told_apart_in_a_legend_or_at_its_lines(name: str) -> None:
    at_lines = [text for text in PICTURES[name]().findobj(Annotation) if text.get_text()]
    assert max(map(len, legends(name)), default=len(at_lines)) >= 2


def alike(name: str, theme: str, compared: Callable[[Mark, Mark], bool]) -> list[tuple[object, ...]]:
    """The pairs of a picture's legend, of those to be `compared`, whose colours somebody does not tell apart at a glance."""
    found = []
    for marks in legends(name):
        for one, other in combinations(marks, 2):
            if not compared(one, other):
                continue
            for sight in SIGHTS:
                colours = [seen(mark.colours[0], theme, sight) for mark in (one, other)]
                apart = colours[0].delta_e(colours[1], method="2000")
                if apart < APART:
                    found.append((one.name, other.name, sight, round(apart, 1)))
    return found


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PICTURES)
def test_two_colours_of_a_legend_are_two_for_every_sight(name: str, theme: str) -> None:
    def two(one: Mark, other: Mark) -> bool:
        hues = {to_hex(mark.colours[0]) for mark in (one, other)}
        return len(hues) == 2 and hues <= HUES

    assert alike(name, theme, two) == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PICTURES)
def test_what_has_no_marker_hatch_or_dash_of_its_own_differs_by_colour_for_every_sight(name: str, theme: str) -> None:
    assert alike(name, theme, lambda one, other: one.form == other.form) == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PICTURES)
def test_what_a_legend_names_stands_out_from_its_ground(name: str, theme: str) -> None:
    faint = []
    for mark in (mark for marks in legends(name) for mark in marks):
        ground = Color(getattr(tokens.PAPER, theme))
        if to_hex(mark.colours[0]) == tokens.IDLE.light:  # the ground of a lane, on which work stands out
            continue
        contrast = max(seen(colour, theme, None).contrast(ground, method="wcag21") for colour in mark.colours)
        if contrast < 3:
            faint.append((mark.name, round(contrast, 2)))
    assert faint == []


@pytest.mark.parametrize("theme", THEMES)
def test_what_a_rank_does_stands_out_from_its_waiting(theme: str) -> None:
    idle = Color(getattr(tokens.IDLE, theme))
    assert min(Color(getattr(tone, theme)).contrast(idle, method="wcag21") for tone in WORK) >= 3
