"""A replay as one SVG that moves by itself, for pages that run no script, such as a README.

Messages travel along straight lines from rank to rank, and a bar for each run grows on one clock; behind a bar stands what has
arrived and, once the run is over, how long it took. The film plays `TIMES` times, then rests at its end; where motion is to be
reduced, and on paper, its end alone is shown. It opens with the first moment that shows something. The animation is the
Synchronized Multimedia Integration Language in SVG 1.1, chapter 19, which browsers play in an `img` too.
"""

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from worldsize import units
from worldsize.figures import tokens

FILM_S, HOLD_S, TIMES = 9.0, 3.0, 2  # of motion, then of rest at the end; and how often
FONT = 17  # on a telephone, where the film is 360 pixels wide, 11 pixels
SIDE, HEAD, SCENE, PAD = 280, 30, 166, 30  # a run's width, and heights of its name and of its ranks
ROW, BAR, BAR_LEAST, END_WORDS = 29, 12, 60, 240  # of a run's row: its height, its bar, the room for words behind it
RADIUS = 15
LETTER = 0.62 * FONT  # the width of a bold letter, as a rule
MOST_CAPTIONS = 40  # of one run; with more messages, captions say "at least"

_DATA = re.compile(r'^showAll\("replay", "[0-9a-f]+", (\{.*\})\);$', re.MULTILINE)
# an animation outweighs a style, so what moves is hidden as a whole
_STYLE = """<style>
.end { display: none }
@media print, (prefers-reduced-motion: reduce) { .moves { display: none } .end { display: inline } }
</style>"""


def film_of(player: str, theme: str = "light") -> str:
    """Return the film of a saved replay, from the HTML of its output, in the `theme` "light" or "dark".

    Raises ValueError for other HTML.
    """
    found = _DATA.search(player)
    if found is None:
        raise ValueError(f"film: expected the HTML of a replay, got {player[:60]!r}; pass the output of figures.replay")
    data = json.loads(found[1])
    return film(data, data["finding"], theme)


def film(data: Mapping[str, Any], alt: str, theme: str = "light") -> str:
    """Return the SVG of a replay from its `data` (`bands.replay`): its runs side by side, and their times on one clock."""
    runs = data["runs"]
    width = SIDE * max(2, len(runs))
    below = HEAD + SCENE
    height = below + ROW * len(runs) + 12
    left = 24 + LETTER * max(len(run["name"]) for run in runs)
    room = max(BAR_LEAST, width - left - END_WORDS)
    paper, ink = getattr(tokens.PAPER, theme), getattr(tokens.INK, theme)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' font-family="{html.escape(tokens.FONTS)}" font-size="{FONT}" fill="{ink}">',
        f"<title>{html.escape(alt)}</title>",
        _STYLE,
        f'<rect width="{width}" height="{height}" rx="8" fill="{paper}"/>',
    ]
    for number, run in enumerate(runs):
        x = (width - SIDE * len(runs)) / 2 + SIDE * number
        parts += [f'<g class="run" transform="translate({x:g} 0)" text-anchor="middle">', *_scene(run, data, theme), "</g>"]
    for number, run in enumerate(runs):
        at = f"translate(0 {below + ROW * (number + 0.5):g})"
        parts += [f'<g class="row" transform="{at}">', *_row(run, data, (left, room), theme), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _begin(data: Mapping[str, Any]) -> str:
    """Return the film's start, which is negative: it opens with the moment `opens`."""
    return f'begin="{-FILM_S * data["opens"] / data["last"]:.3f}s"'


def _scene(run: Mapping[str, Any], data: Mapping[str, Any], theme: str) -> list[str]:
    frames, opens = data["last"], data["opens"]
    ink, rule = getattr(tokens.INK, theme), getattr(tokens.RULE, theme)
    places = [(PAD + x * (SIDE - 2 * PAD), HEAD + PAD + y * (SCENE - 2 * PAD)) for x, y in run["at"]]
    parts = [f'<text x="{SIDE / 2:g}" y="25" font-weight="bold">{html.escape(run["name"])}</text>']
    for src, dst in run["links"]:
        parts.append(f'<path d="{_path(*_way(places[src], places[dst]))}" stroke="{rule}" stroke-width="1.5" fill="none"/>')
    for rank, (x, y) in enumerate(places):
        tone = getattr(tokens.RANKS[rank % len(tokens.RANKS)], theme)
        look = f'fill="{getattr(tokens.PAPER, theme)}" stroke="{tone}" stroke-width="3"'
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" {look}/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 6:.1f}" fill="{ink}">{rank}</text>')

    parts.append('<g class="moves">')
    for src, dst, start, end, radius in run["messages"]:
        way, tone = _way(places[src], places[dst]), getattr(tokens.RANKS[src % len(tokens.RANKS)], theme)
        size = 1.3 * radius
        parts.append(_packet(way, start / frames, end / frames, size, tone, _begin(data)))
        if start <= opens < end:  # on its way in the opening frame, for what plays nothing: an animated film hides this circle
            share = (opens - start) / (end - start)
            x, y = (a + share * (b - a) for a, b in zip(*way, strict=True))
            hides = '<set attributeName="visibility" to="hidden" begin="0s"/>'
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{tone}">{hides}</circle>')
    return [*parts, "</g>"]


def _row(run: Mapping[str, Any], data: Mapping[str, Any], bar: tuple[float, float], theme: str) -> list[str]:
    """Return a run's row: its name, its bar, which is `bar[1]` wide at the clock's end, and the words behind it."""
    frames, opens, begin = data["last"], data["opens"], _begin(data)
    left, room = bar
    over = run["over"] / frames
    long = max(1.0, room * over)
    place = f'x="{left:.1f}" y="{-BAR / 2:g}" height="{BAR}"'
    full = f'{place} rx="2" fill="{getattr(tokens.QUIET_INK, theme)}"'
    grows = _animated("width", begin, "linear", (0, 0.0), (_share(over), long), (1.0, long))
    words = f'x="{left + room + 10:.1f}" y="6"'
    parts = [
        f'<text x="{left - 10:.1f}" y="6" text-anchor="end" font-weight="bold">{html.escape(run["name"])}</text>',
        f'<rect {place} width="{room:.1f}" rx="2" fill="{getattr(tokens.SHADE, theme)}"/>',
        f'<rect class="end" {full} width="{long:.1f}"/>',
        f'<text class="end" {words}>{html.escape(_ended(run))}</text>',
        '<g class="moves">',
        f'<rect {full} width="{min(long, room * opens / frames):.1f}">{grows}</rect>',
    ]
    for from_frame, to_frame, said in _captions(run):
        moments = [(0.0, 0), (_share(from_frame / frames), 1)] if from_frame else [(0.0, 1)]
        if to_frame is not None:
            moments.append((_share(to_frame / frames), 0))
        stands = from_frame <= opens and (to_frame is None or opens < to_frame)
        look = f'{words} opacity="{int(stands)}"'
        parts.append(f"<text {look}>{html.escape(said)}{_animated('opacity', begin, 'discrete', *moments)}</text>")
    return [*parts, "</g>"]


def _captions(run: Mapping[str, Any]) -> list[tuple[int, int | None, str]]:
    """Return (from frame, to frame or None for good, caption) of a film's run, without gaps."""
    rows = [(at, size_bytes) for at, size_bytes, _ in run["arrived"] if at < run["over"]]
    every = max(1, math.ceil(len(rows) / MOST_CAPTIONS))
    of = f"of {units.size(run['bytes'])}"
    least = ""
    if every > 1 or len(run["arrived"]) < run["count"]:  # thinned
        least = "at least "

    captions = {0: f"{units.size(0)} {of}" if run["count"] else "no messages"}
    for at, size_bytes in rows[::every]:
        captions[at] = f"{least}{units.size(size_bytes)} {of}"
    captions[run["over"]] = _ended(run)
    moments = sorted(captions)
    return [(at, to, captions[at]) for at, to in zip(moments, [*moments[1:], None], strict=True)]


def _ended(run: Mapping[str, Any]) -> str:
    """Say how a film's run ended, without the words that its bar says: "108 ms, first", "313 ms, 2.9 times as long"."""
    return run["standing"].removeprefix("done at ").removesuffix(" as the first")


def _way(a: Sequence[float], b: Sequence[float]) -> list[tuple[float, float]]:
    """Return the film's line from the rim of a to the rim of b, a little to its right: the two directions stay apart."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1.0)
    along_x, along_y = dx / length, dy / length
    rim = min(RADIUS, length / 3)
    aside_x, aside_y = -along_y * 5, along_x * 5
    return [
        (a[0] + aside_x + rim * along_x, a[1] + aside_y + rim * along_y),
        (b[0] + aside_x - rim * along_x, b[1] + aside_y - rim * along_y),
    ]


def _path(a: Sequence[float], b: Sequence[float]) -> str:
    return f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}"


def _packet(way: Sequence[Any], start: float, end: float, radius: float, tone: str, begin: str) -> str:
    begins, ends = _share(start), max(_share(end), _share(start) + 0.0005)
    times = f'keyPoints="0;0;1;1" keyTimes="0;{begins:.4f};{ends:.4f};1" calcMode="linear"'
    return (
        f'<circle r="{radius:.1f}" fill="{tone}" opacity="0">'
        f"{_animated('opacity', begin, 'discrete', (0, 0), (begins, 1), (ends, 0))}"
        f'<animateMotion {_played(begin)} path="{_path(*way)}" {times}/></circle>'
    )


def _animated(what: str, begin: str, how: str, *moments: tuple[float, float]) -> str:
    """Return the film's animation of an attribute by (share of film and hold, its value from then on, or then)."""
    values = ";".join(f"{value:g}" for _, value in moments)
    times = ";".join(f"{at:.4f}" for at, _ in moments)
    return f'<animate attributeName="{what}" {_played(begin)} calcMode="{how}" values="{values}" keyTimes="{times}"/>'


def _played(begin: str) -> str:
    return f'{begin} dur="{FILM_S + HOLD_S:g}s" repeatCount="{TIMES}" fill="freeze"'


def _share(share: float) -> float:
    """Convert a share of the film to one of film and hold, kept above 0 since keyTimes must grow."""
    return max(0.0005, min(0.9985, share * FILM_S / (FILM_S + HOLD_S)))
