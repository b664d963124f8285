"""A timeline of every rank, drawn as bars after H. Gantt, "Work, Wages, and Profits", 1910.

A rank's lane has up to four tracks: computing and waiting, sends, receives, and a framework's collectives. The headline's
shares of time come from the waits in the first track (`trace.waits`). Bars too narrow to be seen become a profile: the
share of each slice of time that they cover. `spacetime` draws arrows from sender to receiver.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from worldsize import failures, units
from worldsize.failures import Outcome
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings
from worldsize.figures.frame.inputs import began_s, ended_s, waits_for
from worldsize.trace import joined, waits

KINDS = ("compute", "wait", "send", "recv", "collective")
TRACKS = (("compute", "wait"), ("send",), ("recv",), ("collective",))
LOOKS = {
    "compute": {"facecolor": tokens.COMPUTE.light, "hatch": ""},
    "wait": {"facecolor": tokens.PAPER.light, "hatch": "---"},
    "send": {"facecolor": tokens.SEND.light, "hatch": "////"},
    "recv": {"facecolor": tokens.RECV.light, "hatch": "\\\\\\\\"},
    "collective": {"facecolor": tokens.COLLECTIVE.light, "hatch": "xxx"},
}
# a marked phase that contains collectives: hollow, so that their bars show inside
HOLLOW = {"facecolor": tokens.SHADE.light, "hatch": ""}
NAMED = ("compute", "wait", "collective")
MOST_BARS = 150
FINE = 1 / 250  # of the time drawn: a narrower bar is hardly more than its outline
MOST_FINE = 40
SLICES = 175  # of a profile across the axes
PIXELS = 700  # across the axes: the narrowest bar, and the least gap between two waits
TRACK_HEIGHT = 0.8
LABEL_CHARACTER = 0.0085  # of the width
LABEL_BOX = {"facecolor": base.PAPER, "edgecolor": "none", "pad": 0.6}
MOST_LABELS = 60  # of one kind on one rank
MOST_TOLD = 8  # ranks in the alt text
MOST_GROUPS = 3
ALIKE = 0.02  # of the whole time: ranks that differ by less wait alike

Interval = tuple[float, float]


@dataclass(frozen=True)
class Bar:
    rank: int
    kind: str
    start_s: float
    end_s: float
    label: str = ""
    ended: bool = True


def bars(trace: Any) -> list[Bar]:
    """Return a trace's spans, collectives and each rank's waits as bars, ordered by start.

    Waits come from `trace.waits`. A wait that was recorded as a span keeps its label, and may lie inside a longer one
    without.
    """
    events = [Bar(s.rank, s.kind, s.start_s, s.end_s, s.label, s.ended) for s in trace.spans if s.kind in KINDS]
    events += [Bar(c.rank, "collective", c.start_s, c.end_s, c.op, c.ended) for c in trace.collectives]
    known = {(b.rank, b.start_s, b.end_s) for b in events if b.kind == "wait"}
    never_ended = {(b.rank, b.end_s) for b in events if not b.ended}
    for rank, intervals in enumerate(waits(trace)):
        for start_s, end_s in intervals:
            if (rank, start_s, end_s) not in known:
                events.append(Bar(rank, "wait", start_s, end_s, ended=(rank, end_s) not in never_ended))
    return sorted(events, key=lambda b: (b.start_s, -b.end_s))


def timeline(of: Any) -> Picture:
    """Draw what every rank did when, as bars: its marked spans, sends, receives and the framework's collectives.

    `of` is a trace or a run. For a run that broke off, the headline says where each rank stood.
    """
    if waits_for(of):
        return base.not_yet(waits_for(of))

    trace = getattr(of, "trace", of)
    if not trace or not bars(trace):
        return base.notice("nothing was recorded")
    return _timeline(trace, stands(trace, getattr(of, "outcome", None)))


@base.plain_style
def _timeline(trace: Any, stood: Mapping[int, str]) -> Picture:
    """Draw a trace with at least one span or collective; `stood` says where ranks were when the run broke off."""
    shown = bars(trace)
    start_s = began_s(shown)
    whole_s = max(ended_s(shown) - start_s, 1e-9)
    scale, unit = units.time_unit(whole_s)
    kinds = set(map(attrgetter("kind"), shown))
    tracks = [track for track in TRACKS if not kinds.isdisjoint(track)]
    depths = {}
    for depth, track in enumerate(tracks):
        depths |= dict.fromkeys(track, depth)

    height_in = min(9.0, 1.2 + trace.world_size * max(0.34, 0.22 * len(tracks)))
    picture = Picture(base.WIDTH_IN, height_in)
    picture.set_layout_engine(None)  # layout would take half of the drawing time, and many runs end with this picture
    picture.subplots_adjust(0.85 / base.WIDTH_IN, 0.5 / height_in, 1 - 0.2 / base.WIDTH_IN, 1 - 0.6 / height_in)
    ax = picture.plot_area()
    _lanes(ax, trace.world_size, len(tracks))

    groups: dict[tuple[int, str], list[Bar]] = defaultdict(list)
    for b in shown:
        groups[b.rank, b.kind].append(b)
    drawn, crowded = {}, set()
    for (rank, kind), group in groups.items():
        drawn[rank, kind] = _without_gaps(group, whole_s / PIXELS) if kind == "wait" else group
        if _is_crowded(drawn[rank, kind], whole_s):
            crowded.add(kind)
    hollow = "compute" not in crowded and any(_holds_collectives(groups, rank) for rank in range(trace.world_size))

    for (rank, kind), group in drawn.items():
        y = rank * (len(tracks) + 0.5) + depths[kind]
        closed = [b for b in group if b.ended or kind in crowded]
        intervals = [((b.start_s - start_s) * scale, (b.end_s - start_s) * scale) for b in closed]
        if kind in crowded:
            _shares(ax, y, intervals, whole_s * scale, kind)
            continue

        if hollow and kind == "compute":
            _bars(ax, y, intervals, whole_s * scale, HOLLOW, height=len(tracks) - 1 + TRACK_HEIGHT)
        else:
            _bars(ax, y, intervals, whole_s * scale, LOOKS[kind])
        if kind in NAMED:
            _labels(ax, y, closed, start_s, whole_s, scale)

    for b in shown:
        if not b.ended and b.kind not in crowded:
            y = b.rank * (len(tracks) + 0.5) + depths[b.kind]
            _open_bar(ax, y, b, start_s, whole_s, scale)

    ax.set_xlim(0, whole_s * scale)
    x = f"time since the first event ({unit})"
    if crowded:
        x += f"; {' and '.join(sorted(crowded))}: height is the part of the time"
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    _legend(ax, kinds, hollow)

    clause, late = told_stands(stood), ""
    if not clause:
        clause, late = finding(trace.world_size, shown, whole_s), _straggler(groups)
    base.headline(ax, findings.line(late) or clause, units.seconds(whole_s) + " in all")
    over = f"Timeline of {units.count(trace.world_size, 'rank')} over {units.seconds(whole_s)}"
    sentence = f"{clause[0].lower()}{clause[1:]}"
    if late:
        sentence = f"{late}; {sentence}"
    picture.alt = f"{over}: {sentence}. {_sums(trace.world_size, groups)}"
    return picture


def _intervals(group: Iterable[Bar]) -> list[Interval]:
    return [(b.start_s, b.end_s) for b in group]


def _without_gaps(waiting: Sequence[Bar], least_s: float) -> list[Bar]:
    """Merge waits that are less than `least_s` apart; keep waits that have a label or never ended."""
    merged_waits, before = [], None
    for b in waiting:
        plain = b.ended and not b.label
        if plain and before is not None and b.start_s - before.end_s < least_s:
            before = merged_waits[-1] = replace(before, end_s=max(before.end_s, b.end_s))
            continue
        merged_waits.append(b)
        before = b if plain else None  # the wait that the next one may continue
    return merged_waits


def _is_crowded(group: Sequence[Bar], whole_s: float) -> bool:
    """Tell whether bars of one kind would look like a barcode: too many, or too many bars and gaps as narrow as outlines."""
    narrow = sum(b.end_s - b.start_s < FINE * whole_s for b in group)
    gaps = sum(0 < b.start_s - one.end_s < FINE * whole_s for one, b in pairwise(group))
    return len(group) > MOST_BARS or narrow + gaps > MOST_FINE


def _holds_collectives(groups: Mapping[tuple[int, str], Sequence[Bar]], rank: int) -> bool:
    """Tell whether a collective of the rank ran within the spans that the rank marked."""
    phases = joined(_intervals(groups.get((rank, "compute"), ())))
    for bar in groups.get((rank, "collective"), ()):
        if any(start <= bar.start_s and bar.end_s <= end for start, end in phases):
            return True
    return False


def _bars(
    ax: Axes, y: float, intervals: Sequence[Interval], whole: float, look: Mapping[str, str], height: float = TRACK_HEIGHT
) -> None:
    """Add all bars as one path: Matplotlib hatches a path once, but a collection's members one by one."""
    if not intervals:
        return

    corners = []
    for start, end in intervals:
        right, bottom = max(end, start + whole / PIXELS), y + height
        corners.append([(start, y), (right, y), (right, bottom), (start, bottom), (start, y)])

    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(corners)
    path = Path(np.concatenate(corners), codes)
    zorder = 0.9 if look is HOLLOW else 1
    ax.add_patch(PathPatch(path, edgecolor=base.INK, linewidth=tokens.HAIR_PT, zorder=zorder, **look))


def _open_bar(ax: Axes, y: float, bar: Bar, start_s: float, whole_s: float, scale: float) -> None:
    """Draw a bar that never ended: up to the end of the run, with no line at its right, and named."""
    whole = whole_s * scale
    left, bottom = min((bar.start_s - start_s) * scale, whole * (1 - 4 / PIXELS)), y + TRACK_HEIGHT
    corners = [(whole, y), (left, y), (left, bottom), (whole, bottom)]
    path = Path(corners, [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO])
    ax.add_patch(PathPatch(path, edgecolor=base.INK, linewidth=tokens.LINE_PT, **LOOKS[bar.kind]))

    if not bar.label:  # a derived wait: the bar of its cause, in another track, has the label
        return
    text = f"{bar.label}, never ended"
    fits = len(text) * LABEL_CHARACTER < (whole - left) / whole
    x, align = ((left + whole) / 2, "center") if fits else (left - whole / 100, "right")
    ax.text(x, y + TRACK_HEIGHT / 2, text, ha=align, va="center", fontsize=tokens.TINY_PT, color=base.INK, bbox=LABEL_BOX)


def _shares(ax: Axes, y: float, intervals: Sequence[Interval], whole: float, kind: str) -> None:
    """Draw, in place of bars too narrow to be seen, the part of each slice of time that they cover, as a height."""
    edges = np.linspace(0, whole, SLICES + 1)
    starts, ends = np.array(joined(intervals)).T
    covered = np.concatenate(([0.0], np.cumsum(ends - starts)))

    place = np.searchsorted(starts, edges, side="right")
    over = np.maximum(0, ends[place - 1] - edges) * (place > 0)  # the part beyond the edge of an interval that it cuts
    heights = np.diff(covered[place] - over) / (whole / SLICES) * TRACK_HEIGHT

    bottom = y + TRACK_HEIGHT
    tops = bottom - np.append(heights, heights[-1])
    ax.fill_between(edges, bottom, tops, step="post", edgecolor=base.INK, linewidth=tokens.HAIR_PT, **LOOKS[kind])


def finding(world_size: int, shown: Sequence[Bar], whole_s: float) -> str:
    """Return the headline of a run that ended: which ranks wait most and which least.

    Ranks that differ by less than 2 % of the time wait alike.
    """
    waiting: dict[int, list[Bar]] = defaultdict(list)
    for b in shown:
        if b.kind == "wait":
            waiting[b.rank].append(b)
    idle_s = [covered_s(_intervals(waiting[rank])) for rank in range(world_size)]
    most_s, least_s = max(idle_s), min(idle_s)

    if not most_s:
        return "No rank waits for another"
    if world_size == 1:
        return f"The rank waits {_share(most_s, whole_s)} of the time"
    if most_s - least_s < ALIKE * whole_s:
        return f"Every rank waits about {_share(most_s, whole_s)} of the time"

    alike_s = min(ALIKE * whole_s, (most_s - least_s) / 3)  # a third: no rank is among both most and least
    most = [rank for rank in range(world_size) if idle_s[rank] >= most_s - alike_s]
    least = [rank for rank in range(world_size) if idle_s[rank] <= least_s + alike_s]

    said = f"{_named(most)} {findings.verb(most, 'waits most,', 'wait most, about')} {_share(most_s, whole_s)} of the time"
    least_said = f"{_named(least)} {findings.verb(least, 'least,', 'least, about')} {_share(least_s, whole_s)}"
    return f"{said[0].upper()}{said[1:]}; {least_said}"


def _named(ranks: Sequence[int]) -> str:
    """Return ranks as text: "rank 3", "ranks 0 and 2", "ranks 0, 1, 2, 3, 4, 5 and 58 more"."""
    said = failures.names(list(ranks))
    return said.replace(", ", " and ") if len(ranks) == 2 else said


def stands(trace: Any, outcome: Outcome | None = None) -> dict[int, str]:
    """Return, by rank, where it stood when its run broke off: "failed", "waited in recv from rank 0", "was running".

    Use the outcome's failures and standings; without standings, use labelled bars that never ended. Empty for a run that
    came to its end.
    """
    if outcome is None or not outcome.standings:
        return {b.rank: f"left {b.label} unfinished" for b in bars(trace) if b.label and not b.ended}

    stood: dict[int, str] = {}
    for standing in outcome.standings:
        if standing.wait is not None:
            stood[standing.rank] = f"waited {failures.where_it_waits(standing.wait)}"
        elif standing.collective:
            stood[standing.rank] = f"waited in {standing.collective}"
        else:
            stood[standing.rank] = f"was {failures.doing(standing)}"
    for failure in outcome.failures:
        stood[failure.rank] = "failed"
    return stood


def told_stands(stood: Mapping[int, str]) -> str:
    """Return the headline of a run that broke off: failures first, then ranks that stood alike, the smallest group first."""
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, words in sorted(stood.items()):
        alike[words].append(rank)

    groups = sorted(alike.items(), key=lambda group: (group[0] != "failed", len(group[1]), group[1]))
    clauses = []
    for words, ranks in groups[:MOST_GROUPS]:
        plural = words.replace("was ", "were ", 1) if len(ranks) > 1 else words
        clauses.append(f"{_named(ranks)} {plural}")
    if len(groups) > MOST_GROUPS:
        left = sum(len(ranks) for _, ranks in groups[MOST_GROUPS:])
        clauses.append(f"and {units.count(left, 'more rank')} elsewhere")

    line = "; ".join(clauses)
    return line[:1].upper() + line[1:]


def _straggler(groups: Mapping[tuple[int, str], Sequence[Bar]]) -> str:
    """Name the rank that computes longest, where one clearly does: the others wait for it."""
    worked_s = {}
    for (rank, kind), group in groups.items():
        if kind == "compute":
            worked_s[f"rank {rank}"] = covered_s(_intervals(group))
    return findings.straggler(worked_s)


def _share(part_s: float, whole_s: float) -> str:
    return f"{round(100 * part_s / max(whole_s, 1e-9))} %"


def covered_s(intervals: Iterable[Interval]) -> float:
    """Return the seconds that the intervals cover together; where they overlap, time counts once."""
    return sum(end - start for start, end in joined(intervals))


def together_s(intervals: Iterable[Interval], others: Iterable[Interval]) -> float:
    """Return the seconds that lie in intervals of both."""
    total_s = 0.0
    for start, end in joined(intervals):
        for begin, until in joined(others):
            total_s += max(0.0, min(end, until) - max(start, begin))
    return total_s


def _sums(world_size: int, groups: Mapping[tuple[int, str], Sequence[Bar]]) -> str:
    """Return the seconds of each kind, rank by rank, as text for the first `MOST_TOLD` ranks."""
    ranks = []
    for rank in range(min(world_size, MOST_TOLD)):
        totals = []
        for kind in KINDS:
            if (rank, kind) in groups:
                total_s = covered_s(_intervals(groups[rank, kind]))
                vain = "" if all(b.ended for b in groups[rank, kind]) else " (one never ended)"
                totals.append(f"{kind} {units.seconds(total_s)}{vain}")
        ranks.append(f"rank {rank}: {', '.join(totals) or 'nothing'}")

    if world_size > MOST_TOLD:
        ranks.append(f"and {world_size - MOST_TOLD} more ranks")
    return f"{'; '.join(ranks)}.".capitalize()


def _lanes(ax: Axes, world_size: int, tracks: int) -> None:
    lane = tracks + 0.5
    middles = np.arange(world_size) * lane + (tracks - 1 + TRACK_HEIGHT) / 2
    for rank, middle in enumerate(middles):
        ax.axhline(rank * lane - 0.35, color=base.RULE, linewidth=tokens.THIN_PT, zorder=0)
        base.rank_mark(ax, rank, middle)

    ax.set_yticks(middles, base.numbered("rank", world_size))
    ax.tick_params(axis="y", pad=14)
    ax.set_ylim(world_size * lane - 0.35, -0.35)


def _labels(ax: Axes, y: float, group: Sequence[Bar], start_s: float, whole_s: float, scale: float) -> None:
    """Write the names of marked spans and of collectives into their bars, where they fit."""
    look = {"ha": "center", "va": "center", "fontsize": tokens.TINY_PT, "color": base.INK}
    for b in group[:MOST_LABELS]:
        if b.label and len(b.label) * LABEL_CHARACTER < (b.end_s - b.start_s) / whole_s:
            x = ((b.start_s + b.end_s) / 2 - start_s) * scale
            ax.text(x, y + TRACK_HEIGHT / 2, b.label, bbox=LABEL_BOX, **look)


def _legend(ax: Axes, kinds: set[str], hollow: bool) -> None:
    looks = dict(LOOKS)
    if hollow:
        looks["compute"] = HOLLOW
    outline = {"edgecolor": base.INK, "linewidth": tokens.HAIR_PT}
    entries = [Patch(label=kind, **outline, **looks[kind]) for kind in KINDS if kind in kinds]
    ax.legend(
        handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(entries), fontsize=tokens.SMALL_PT, frameon=False,
        labelcolor=base.QUIET_INK,
    )  # fmt: skip
