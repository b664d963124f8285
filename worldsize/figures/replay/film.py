"""A replay as one SVG that moves by itself and loops, for pages that run no script, such as a README.

Messages travel along straight lines from rank to rank; below each run stands what has arrived and, once it is over, how it
ended. The film opens with the first moment that shows something, and print or a thumbnail shows that moment. The animation
is the Synchronized Multimedia Integration Language in SVG 1.1, chapter 19, which browsers play in an `img` too.
"""

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from worldsize import units
from worldsize.figures import tokens

FILM_S, HOLD_S = 9.0, 3.0  # of motion, then of rest before the loop begins again
WIDTH, HEIGHT, HEAD, FOOT, PAD = 380, 260, 34, 34, 40
RADIUS = 16
MOST_CAPTIONS = 40  # of one run; with more messages, captions say "at least"


_DATA = re.compile(r'^showAll\("replay", "[0-9a-f]+", (\{.*\})\);$', re.MULTILINE)


def film_of(player: str) -> str:
    """Return the film of a saved replay, from the HTML of its output. Raises ValueError for other HTML."""
    found = _DATA.search(player)
    if found is None:
        raise ValueError(f"film: expected the HTML of a replay, got {player[:60]!r}; pass the output of figures.replay")
    data = json.loads(found[1])
    return film(data, data["finding"])


def film(data: Mapping[str, Any], alt: str) -> str:
    """Return the SVG of a replay from its `data` (`bands.replay`): its runs side by side on one clock."""
    runs = data["runs"]
    width, height = WIDTH * len(runs), HEAD + HEIGHT + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' font-family="{html.escape(tokens.FONTS)}" font-size="14" text-anchor="middle">',
        f"<title>{html.escape(alt)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{tokens.PAPER.light}"/>',
    ]
    for number, run in enumerate(runs):
        parts += [f'<g transform="translate({number * WIDTH} 0)">', *_run(run, data), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _run(run: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    frames, opens = data["last"], data["opens"]
    begin = f'begin="{-FILM_S * opens / frames:.3f}s"'  # negative: the film opens at this moment
    ink, rule = tokens.INK.light, tokens.RULE.light
    places = [(PAD + x * (WIDTH - 2 * PAD), HEAD + PAD + y * (HEIGHT - 2 * PAD)) for x, y in run["at"]]
    parts = [f'<text x="{WIDTH / 2}" y="24" fill="{ink}" font-weight="bold">{html.escape(run["name"])}</text>']
    for src, dst in run["links"]:
        parts.append(f'<path d="{_path(*_way(places[src], places[dst]))}" stroke="{rule}" fill="none"/>')

    for src, dst, start, end, radius in run["messages"]:
        way, tone = _way(places[src], places[dst]), tokens.RANKS[src % len(tokens.RANKS)].light
        parts.append(_packet(way, start / frames, end / frames, radius + 2, tone, begin))
        if start <= opens < end:  # on its way in the opening frame, for print: an animated film hides this circle
            share = (opens - start) / (end - start)
            x, y = (a + share * (b - a) for a, b in zip(*way, strict=True))
            hides = '<set attributeName="visibility" to="hidden" begin="0s"/>'
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius + 2:.1f}" fill="{tone}">{hides}</circle>')

    for rank, (x, y) in enumerate(places):
        tone = tokens.RANKS[rank % len(tokens.RANKS)].light
        look = f'fill="{tokens.PAPER.light}" stroke="{tone}" stroke-width="3"'
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" {look}/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 5:.1f}" fill="{ink}">{rank}</text>')

    for from_frame, to_frame, words in _captions(run):
        moments = [(0.0, 0), (_share(from_frame / frames), 1)] if from_frame else [(0.0, 1)]
        if to_frame is not None:
            moments.append((_share(to_frame / frames), 0))
        stands = from_frame <= opens and (to_frame is None or opens < to_frame)
        look = f'x="{WIDTH / 2}" y="{HEAD + HEIGHT + 20}" fill="{ink}" opacity="{int(stands)}"'
        parts.append(f"<text {look}>{html.escape(words)}{_shown(begin, *moments)}</text>")
    return parts


def _captions(run: Mapping[str, Any]) -> list[tuple[int, int | None, str]]:
    """Return (from frame, to frame or None for good, caption) of a film's run, without gaps."""
    rows = [(at, count) for at, _, count in run["arrived"] if at < run["over"]]
    every = max(1, math.ceil(len(rows) / MOST_CAPTIONS))
    of = units.count(run["count"], "message")
    least = ""
    if every > 1 or len(run["arrived"]) < run["count"]:  # thinned
        least = "at least "

    captions = {0: f"0 of {of} arrived" if run["count"] else "no messages"}
    for at, count in rows[::every]:
        captions[at] = f"{least}{count:,} of {of} arrived"
    captions[run["over"]] = run["standing"]
    moments = sorted(captions)
    return [(at, to, captions[at]) for at, to in zip(moments, [*moments[1:], None], strict=True)]


def _way(a: Sequence[float], b: Sequence[float]) -> list[tuple[float, float]]:
    """Return the film's line from a to b, a little to its right, so that the two directions between ranks stay apart."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1.0)
    aside_x, aside_y = -dy / length * 5, dx / length * 5
    return [(a[0] + aside_x, a[1] + aside_y), (b[0] + aside_x, b[1] + aside_y)]


def _path(a: Sequence[float], b: Sequence[float]) -> str:
    return f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}"


def _packet(way: Sequence[Any], start: float, end: float, radius: float, tone: str, begin: str) -> str:
    begins, ends = _share(start), max(_share(end), _share(start) + 0.0005)
    seconds = f'{begin} dur="{FILM_S + HOLD_S:g}s" repeatCount="indefinite"'
    times = f'keyPoints="0;0;1;1" keyTimes="0;{begins:.4f};{ends:.4f};1" calcMode="linear"'
    return (
        f'<circle r="{radius:.1f}" fill="{tone}" opacity="0">{_shown(begin, (0, 0), (begins, 1), (ends, 0))}'
        f'<animateMotion {seconds} path="{_path(*way)}" {times}/></circle>'
    )


def _shown(begin: str, *moments: tuple[float, int]) -> str:
    """Return the film's animation of the opacity from each moment on, in shares of film and hold."""
    values = ";".join(str(value) for _, value in moments)
    times = ";".join(f"{at:.4f}" for at, _ in moments)
    return (
        f'<animate attributeName="opacity" {begin} dur="{FILM_S + HOLD_S:g}s" repeatCount="indefinite" calcMode="discrete"'
        f' values="{values}" keyTimes="{times}"/>'
    )


def _share(share: float) -> float:
    """Convert a share of the film to one of film and hold, kept above 0 since keyTimes must grow."""
    return max(0.0005, min(0.9985, share * FILM_S / (FILM_S + HOLD_S)))
