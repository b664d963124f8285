"""Recorded runs to play side by side on one clock: what the player and `bands.js` draw, each run a band.

Ranks stand as their messages suggest, and messages travel from sender to receiver. Beside them each rank's lane fills as
time goes on, as in L. Lamport's space-time diagram. Where no script runs, one still picture has
every run as a band of lanes on one axis of time. `step_through` shows one run step by step.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame.findings import line
from worldsize.figures.player.output import Scripted
from worldsize.figures.replay.places import places
from worldsize.figures.replay.racers import Racer, finding, racers_of, standing, winner
from worldsize.trace import Span

LANE_IN, BAND_IN, AXIS_IN, TITLE_IN, LEFT_IN = 0.14, 0.42, 0.42, 0.36, 0.45
LINE = {"linewidths": 0.8, "alpha": 0.8}


@base.plain_style
def still(racers: Sequence[Racer], title: str) -> Picture:
    """Draw the still picture of a replay: every message a line from its sender's lane to its receiver's."""
    lanes = sum(map(attrgetter("world_size"), racers))
    high_in = TITLE_IN + AXIS_IN + BAND_IN * len(racers) + LANE_IN * lanes
    picture = Picture(base.WIDTH_IN, high_in)
    picture.set_layout_engine("none")  # every band's place is known
    picture.text(base.EDGE_IN / base.WIDTH_IN, 1 - 0.1 / high_in, title, va="top", fontsize=tokens.TITLE_PT, color=base.INK)

    longest_s = max(map(attrgetter("over_s"), racers))
    scale, unit = units.time_unit(longest_s)
    top_in = high_in - TITLE_IN
    for racer in racers:
        tall_in = LANE_IN * racer.world_size
        top_in -= BAND_IN + tall_in
        inner = (LEFT_IN / base.WIDTH_IN, top_in / high_in, 1 - (LEFT_IN + 0.15) / base.WIDTH_IN, tall_in / high_in)
        ax = picture.add_axes(inner)
        _band(ax, racer, racers, scale)
        ax.set_xlim(0, max(longest_s * scale, 1e-9) * 1.01)

    ax.tick_params(axis="x", labelbottom=True)
    ax.set_xlabel(f"time since the run's first message or marked work ({unit})", fontsize=tokens.LABEL_PT, color=base.INK)
    return picture


def _band(ax: Axes, racer: Racer, racers: Sequence[Racer], scale: float) -> None:
    n = racer.world_size
    base.unframe(ax, "top", "right", "left")
    ax.spines["bottom"].set_color(base.QUIET_INK)
    ax.tick_params(colors=base.INK, labelsize=8, length=0, labelbottom=False)
    ax.set_yticks(range(n), list(map(str, range(n))))
    ax.set_ylim(n - 0.5, -0.5)
    ax.hlines(range(n), 0, racer.over_s * scale, color=base.RULE, linewidth=tokens.HAIR_PT)

    for span in racer.works:
        start = (span.start_s - racer.zero_s) * scale
        ax.barh(span.rank, (span.end_s - span.start_s) * scale, 0.7, start, color=base.RULE, edgecolor=base.INK, lw=0.4)

    ways, xs, ys = [], [], []
    for t in racer.messages:
        xs.append((t.end_s - racer.zero_s) * scale)
        ys.append(t.dst)
        ways.append([((t.start_s - racer.zero_s) * scale, t.src), (xs[-1], t.dst)])
    ax.add_collection(LineCollection(ways, color=base.INK, zorder=3, **LINE))
    ax.plot(xs, ys, ".", color=base.INK, markersize=3, zorder=4)

    look = "-" if racer.whole else (0, (3, 2))
    ax.axvline(racer.over_s * scale, color=base.INK, linewidth=tokens.STRONG_PT, linestyle=look)
    said = f"{racer.name}: {racer.load}, {standing(racer, racers)}"
    ax.set_title(said, loc="left", fontsize=tokens.LABEL_PT, color=base.INK, pad=3)


MOST_RANKS = 16
LEAST_RADIUS, MOST_RADIUS = 2.5, 7.0  # pixels of a packet
MOST_MESSAGES = 240  # drawn of one run; also the most pieces of work, and the most rows of arrived bytes
FRAMES = 20_000  # the parts into which the clock is cut
OPENING = FRAMES // 50  # a film opens here at the earliest: before, a lane would show nothing
FILM_S = 8.0
BEAT = [900, FRAMES // 16]  # milliseconds and frames of a step, with motion reduced
STRIDE = FRAMES // 50  # of an arrow key
SLOWER = (5, 2, 1, 0.5)  # how much slower than the usual film the others are
SCRIPT = Path(__file__).with_suffix(".js")
CLOCK = "Every run's clock starts with its first message or marked work. Bytes count when a message has wholly arrived."
KEYS = "Keys: space plays and pauses; left and right arrow, Home, End."


def replay(runs: Mapping[str, Any]) -> Scripted | Picture:
    """Return a player of several recorded runs on one clock, for a notebook: `{"star": run, "tree": another}`.

    Each run, or trace, is a band. An exercise that is not yet written is named and left out. Raises ValueError where `runs`
    is no mapping from names.
    """
    if not isinstance(runs, Mapping):
        raise ValueError(f'figures.replay: expected runs by name, such as {{"star": run}}, got {runs!r:.60}')

    racers, absent = racers_of(runs)
    if not racers:
        return base.notice("; ".join(absent) or "no run to replay yet")

    most = max(map(attrgetter("world_size"), racers))
    if most > MOST_RANKS:
        return base.notice(f"{most} ranks are too many to replay (at most {MOST_RANKS}); see figures.messages")

    statement = finding(racers)
    title = line(statement)
    clauses = [f"Replay of {units.count(len(racers), 'run')} on one clock: {statement}"]
    for racer in racers:
        ranks = units.count(racer.world_size, "rank")
        clauses.append(f"{racer.name}: {ranks}, {racer.load}, {standing(racer, racers)}")

    picture = still(racers, title)
    picture.alt = base.sentences(*clauses, *absent)
    return Scripted(picture, _data(racers, absent, title), SCRIPT, "replay")


def _data(racers: Sequence[Racer], absent: Sequence[str], title: str) -> dict[str, Any]:
    longest_s = max(max(map(attrgetter("over_s"), racers)), 1e-9)
    scale, unit = units.time_unit(longest_s)

    works = chain(*map(attrgetter("works"), racers))
    kinds = list(dict.fromkeys(map(_kind, works)))
    bands = [_run(racer, racers, longest_s, kinds) for racer in racers]

    notes = [f"{said}." for said in absent] + [CLOCK]
    for racer in racers:
        every = _every(len(racer.messages))
        if every > 1:
            sent = f"{len(racer.messages):,} messages"
            notes.append(f"{racer.name}: one of {every} of its {sent} is drawn; all are counted.")
        if len(racer.works) > MOST_MESSAGES:
            worked = f"{len(racer.works):,} pieces of work"
            notes.append(f"{racer.name}: the {MOST_MESSAGES} longest of its {worked} are drawn.")

    *others, last = map(attrgetter("name"), racers)
    question = f"When is {last} done?"
    if others:
        question = f"Which ends first: {', '.join(others)} or {last}?"

    return {
        "title": question,  # of the film until a run is over
        "first": line(winner(racers)),  # then, until all are
        "finding": title,
        "notes": [*notes, KEYS],
        "last": FRAMES,
        "opens": _opening(bands),
        "slider": "time",
        "stride": STRIDE,
        "beat": BEAT,
        "time": [longest_s * scale, max(0, 2 - math.floor(math.log10(longest_s * scale))), unit],
        "speeds": _speeds(longest_s),
        "ticks": _ticks(longest_s * scale, unit),
        "kinds": kinds,
        "runs": bands,
    }


def _opening(bands: Sequence[Mapping[str, Any]]) -> int:
    """Return the replay's frame shown before playing: the first in which every run shows something, while all go on."""
    seen = [OPENING]
    for band in bands:
        middles = [(start + end) // 2 for _, _, start, end, _ in band["messages"]]
        middles += [(start + end) // 2 for _, start, end, _ in band["works"]]
        seen.append(min(middles))
    return max(0, min(max(seen), min(band["over"] for band in bands) - 1))


def _run(racer: Racer, racers: Sequence[Racer], longest_s: float, kinds: Sequence[str]) -> dict[str, Any]:
    """Return one run's band. Times are frames; `arrived` has rows [frame, bytes, messages] of all that arrived by then.

    `messages` are [src, dst, start, end, radius], `works` [rank, start, end, number of its kind]. A packet's area grows with its
    bytes, on one scale for all runs.
    """

    def frame(at_s: float) -> int:
        return round((at_s - racer.zero_s) / longest_s * FRAMES)

    largest = max(map(attrgetter("size_bytes"), chain(*map(attrgetter("messages"), racers))), default=0)
    messages = []
    for t in racer.messages[:: _every(len(racer.messages))]:
        share = math.sqrt(t.size_bytes / largest) if largest else 0.0
        radius = max(LEAST_RADIUS, MOST_RADIUS * share)
        messages.append([t.src, t.dst, frame(t.start_s), frame(t.end_s), round(radius, 1)])

    works = []
    longest = sorted(racer.works, key=lambda span: span.start_s - span.end_s)[:MOST_MESSAGES]
    for span in sorted(longest, key=attrgetter("start_s")):
        works.append([span.rank, frame(span.start_s), frame(span.end_s), kinds.index(_kind(span))])

    return {
        "name": racer.name,
        "at": [[round(x, 3), round(y, 3)] for x, y in places(racer)],
        "links": sorted({(t.src, t.dst) for t in racer.messages}),
        "messages": messages,
        "works": works,
        "arrived": [[round(at_s / longest_s * FRAMES), *row] for at_s, *row in _arrived(racer)],
        "bytes": racer.total_bytes,
        "count": len(racer.messages),
        "over": round(racer.over_s / longest_s * FRAMES),
        "whole": racer.whole,
        "standing": standing(racer, racers),
    }


def _kind(span: Span) -> str:
    """Return the kind of a band's work: the first word of its label, as in "forward 3", if it is a word; else "work"."""
    first, *_ = [*span.label.split(), ""]
    return first if first.isalpha() else "work"


def _every(count: int) -> int:
    """Return the replay's stride at which at most `MOST_MESSAGES` of `count` are drawn."""
    return max(1, math.ceil(count / MOST_MESSAGES))


def _arrived(racer: Racer) -> list[tuple[float, int, int]]:
    """Return a band's (seconds, bytes, messages) arrived by then, at most `MOST_MESSAGES` rows with the last of all."""
    total, rows = 0, []
    for count, t in enumerate(sorted(racer.messages, key=attrgetter("end_s")), 1):
        total += t.size_bytes
        rows.append((t.end_s - racer.zero_s, total, count))

    every = _every(len(rows))
    return rows[::-1][::every][::-1]


def _speeds(longest_s: float) -> list[list[Any]]:
    """Return the replay's [frames a second, words] from slow to fast; the third, usual one takes some `FILM_S` seconds."""
    speeds = []
    for slower in SLOWER:
        rate_s = _round_down(longest_s / FILM_S / slower)
        speeds.append([rate_s / longest_s * FRAMES, f"1 s of the film is {units.seconds(rate_s)} of the run"])
    return speeds


def _round_down(value: float) -> float:
    """Round a replay's number down to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    factor = max(one for one in (1, 2, 5) if one * power <= value * (1 + 1e-9))
    return factor * power


def _ticks(longest: float, unit: str) -> list[list[Any]]:
    """Return the replay's [frame, label] for four to eight round numbers on the clock; the first has the unit."""
    step = _round_down(longest / 3)
    ticks: list[list[Any]] = []
    for number in range(math.floor(longest / step * (1 + 1e-9)) + 1):
        at = number * step
        ticks.append([round(at / longest * FRAMES), units.number(float(f"{at:.6g}"))])
    ticks[0][1] = f"0 {unit}"
    return ticks
