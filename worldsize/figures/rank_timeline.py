"""A timeline of every rank: one lane a rank, after H. Gantt, "Work, Wages, and Profits", 1910.

A lane is solid where the rank computes or is in a framework's collective, and pale where it waits for others
(`trace.waits`). Messages are thin arrows from the sender's lane to the receiver's. A bar at the right gives the share of
the time in which the rank did not wait. Pieces too narrow to be seen become a profile: the share of each slice of time.
`holdups` finds whom the ranks waited for; `spacetime` draws messages alone, with their sizes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path

from worldsize import failures, units
from worldsize.failures import Outcome
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, holdups
from worldsize.figures.frame.inputs import began_s, ended_s, waits_for
from worldsize.trace import Span, joined, waits

KINDS = ("compute", "wait", "send", "recv", "collective")
LAYERS = ("compute", "wait", "collective")  # each covers those before it
STACK = ("compute", "collective", "wait")  # of a profile, from below
LOOKS = {
    "compute": tokens.COMPUTE.light,
    "wait": tokens.IDLE.light,
    "collective": tokens.COLLECTIVE.light,
}
MOST_PIECES = 150
FINE = 1 / 250  # of the time drawn: a narrower piece is hardly seen
MOST_FINE = 40
SLICES = 100  # of a profile across the axes
LEVELS = 10  # of a profile's height
PIXELS = 700  # across the axes: the narrowest piece, and the least gap between two
LANE_IN, PITCH_IN = 0.105, 0.3
HALF = LANE_IN / PITCH_IN / 2  # of a lane, where lanes are 1 apart
MOST_ARROWS = 200
HEAD_IN = 0.055  # of an arrow
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 0.7, 1.1, 0.62, 0.5
LABEL_CHARACTER = 0.0105  # of the width
DECLARED = " s declared"  # ends the label that a fabric gives to declared work
MOST_LABELS = 60  # on one rank
MOST_TOLD = 8  # ranks in the alt text
MOST_GROUPS = 3
ALIKE = 0.02  # of the whole time: ranks that differ by less wait alike

Interval = tuple[float, float]
Polygon = list[tuple[float, float]]
Lanes = Mapping[int, Mapping[str, Sequence[Interval]]]


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
    events = [Bar(s.rank, s.kind, s.start_s, s.end_s, _label_of(s), s.ended) for s in trace.spans if s.kind in KINDS]
    events += [Bar(c.rank, "collective", c.start_s, c.end_s, c.op, c.ended) for c in trace.collectives]
    known = {(b.rank, b.start_s, b.end_s) for b in events if b.kind == "wait"}
    never_ended = {(b.rank, b.end_s) for b in events if not b.ended}
    for rank, intervals in enumerate(waits(trace)):
        for start_s, end_s in intervals:
            if (rank, start_s, end_s) not in known:
                events.append(Bar(rank, "wait", start_s, end_s, ended=(rank, end_s) not in never_ended))
    return sorted(events, key=lambda b: (b.start_s, -b.end_s))


def _label_of(span: Span) -> str:
    """Return a span's label; declared work tells its time with three digits."""
    declared_s = span.label.removesuffix(DECLARED)
    return f"{units.seconds(float(declared_s))} declared" if span.declared and declared_s != span.label else span.label


def timeline(of: Any) -> Picture:
    """Draw what every rank did when: where it computed and waited, its messages, and the framework's collectives.

    `of` is a trace or a run. The headline says who holds the others up. For a run that broke off, it says where each rank
    stood.
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

    height_in = min(9.0, TOP_IN + BOTTOM_IN + PITCH_IN * trace.world_size)
    picture = Picture(base.WIDTH_IN, height_in)
    picture.set_layout_engine(None)  # layout would take half of the drawing time, and many runs end with this picture
    right = 1 - RIGHT_IN / base.WIDTH_IN
    picture.subplots_adjust(LEFT_IN / base.WIDTH_IN, BOTTOM_IN / height_in, right, 1 - TOP_IN / height_in)
    ax = picture.plot_area()
    ax.set(xlim=(0, whole_s * scale), ylim=(trace.world_size - 0.5, -0.5))
    ax.set_yticks(range(trace.world_size), base.numbered("rank", trace.world_size))

    groups: dict[tuple[int, str], list[Bar]] = defaultdict(list)
    for b in shown:
        groups[b.rank, b.kind].append(b)
    lanes = {}
    for rank in range(trace.world_size):
        lanes[rank] = _pieces({kind: _intervals(groups.get((rank, kind), ())) for kind in LAYERS})
    merged = {rank: {kind: _closed(part, whole_s / PIXELS) for kind, part in pieces.items()} for rank, pieces in lanes.items()}
    crowded = any(_is_crowded(pieces, merged[rank], whole_s) for rank, pieces in lanes.items())
    if crowded:
        areas = _profiles(lanes, start_s, whole_s, scale)
    else:
        areas = _rectangles(merged, start_s, whole_s, scale)
    for kind, polygons in areas.items():
        _area(ax, polygons, LOOKS[kind])

    for rank in range(trace.world_size):
        named = [b for kind in LAYERS for b in groups.get((rank, kind), ()) if b.label]
        if not crowded:
            _labels(ax, [b for b in named if b.ended], start_s, whole_s, scale)
        for b in named:
            if not b.ended:
                _open_end(ax, b, start_s, whole_s, scale)
    arrows = [((t.start_s - start_s) * scale, (t.end_s - start_s) * scale, t.src, t.dst) for t in trace.transfers]
    if len(arrows) <= MOST_ARROWS:
        _arrows(ax, picture, arrows)

    x = f"time since the first event ({unit})"
    if crowded:
        x += "; height: share of the time"
    if len(arrows) > MOST_ARROWS:
        x += f"; {len(arrows):,} messages not drawn"
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
    _legend(ax, set(areas), bool(arrows) and len(arrows) <= MOST_ARROWS)
    failed = [rank for rank, words in stood.items() if words == "failed"]
    for rank in failed:
        end_s = ended_s([b for b in shown if b.rank == rank] or shown)
        look = {"marker": "X", "markersize": 9, "color": tokens.BAD.light}
        ax.plot((end_s - start_s) * scale, rank, zorder=5, clip_on=False, **look)
    idle_s = [covered_s(_intervals(groups.get((rank, "wait"), ()))) for rank in range(trace.world_size)]
    own_s = [ended_s([b for b in shown if b.rank == rank]) - start_s for rank in range(trace.world_size)]
    if not stood:  # the lanes of a run that broke off end at different times
        _busy(ax, [1 - idle / own if own > 0 else None for idle, own in zip(idle_s, own_s, strict=True)])

    clause, late = told_stands(stood), ""
    if not clause:
        clause, late = finding(idle_s, whole_s), holdups.sentence(trace) or _straggler(groups)
    if failed:  # the lanes say where the others stood
        late = f"{_named(failed)} failed"
        waited = sum(words.startswith("waited") for words in stood.values())
        if waited:
            late += f"; {units.count(waited, 'rank')} waited for others"
    base.headline(ax, findings.line(late) or clause, units.seconds(whole_s) + " in all", at_edge=True)
    over = f"Timeline of {units.count(trace.world_size, 'rank')} over {units.seconds(whole_s)}"
    sentence = f"{clause[0].lower()}{clause[1:]}"
    if late and not failed:
        sentence = f"{late}; {sentence}"
    picture.alt = f"{over}: {sentence}. {_sums(trace.world_size, groups)}"
    return picture


def _intervals(group: Iterable[Bar]) -> list[Interval]:
    return [(b.start_s, b.end_s) for b in group]


def _pieces(by_kind: Mapping[str, Sequence[Interval]]) -> dict[str, list[Interval]]:
    """Return the intervals of each timeline layer without the parts that a later layer covers."""
    pieces: dict[str, list[Interval]] = {}
    covering: list[Interval] = []
    for kind in reversed(LAYERS):
        pieces[kind] = _without(joined(by_kind[kind]), covering)
        covering = joined([*covering, *pieces[kind]])
    return {kind: pieces[kind] for kind in LAYERS}


def _closed(intervals: Iterable[Interval], gap_s: float) -> list[Interval]:
    """Close a timeline's gaps below `gap_s`, too narrow to be seen, between intervals in order."""
    closed: list[Interval] = []
    for start, end in intervals:
        if closed and start - closed[-1][1] < gap_s:
            closed[-1] = (closed[-1][0], end)
        else:
            closed.append((start, end))
    return closed


def _without(intervals: Iterable[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Return the parts of `intervals` that lie in none of `others`; both are in order and overlap with none of their own."""
    parts, place = [], 0
    for start, end in intervals:
        while place < len(others) and others[place][1] <= start:
            place += 1
        at, begin = place, start
        while at < len(others) and others[at][0] < end:
            if others[at][0] > begin:
                parts.append((begin, others[at][0]))
            begin = max(begin, others[at][1])
            at += 1
        if begin < end or begin == start == end:
            parts.append((begin, end))
    return parts


def _is_crowded(
    pieces: Mapping[str, Sequence[Interval]], merged: Mapping[str, Sequence[Interval]], whole_s: float
) -> bool:
    """Tell whether a timeline's lane would look like a barcode, or `merged` would show more of a kind than there is."""
    each = [interval for part in merged.values() for interval in part]
    narrow = sum(end - start < FINE * whole_s for start, end in each)
    added_s = sum(map(_length_s, merged.values())) - sum(map(_length_s, pieces.values()))
    return len(each) > MOST_PIECES or narrow > MOST_FINE or added_s > ALIKE * whole_s


def _length_s(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


def _rectangles(lanes: Lanes, start_s: float, whole_s: float, scale: float) -> dict[str, list[Polygon]]:
    """Return each kind's pieces of a timeline as rectangles, none narrower than a pixel."""
    rectangles: dict[str, list[Polygon]] = defaultdict(list)
    for rank, pieces in lanes.items():
        low, high = rank - HALF, rank + HALF
        for kind, intervals in pieces.items():
            for start, end in intervals:
                left, right = (start - start_s) * scale, (max(end, start + whole_s / PIXELS) - start_s) * scale
                rectangles[kind].append([(left, low), (right, low), (right, high), (left, high)])
    return rectangles


def _area(ax: Axes, polygons: Sequence[Polygon], tone: str) -> None:
    """Add a timeline's polygons as one path: a picture's bytes go with its elements."""
    if not polygons:
        return
    vertices, codes = [], []
    for corners in polygons:
        vertices += [*corners, corners[0]]
        codes += [Path.MOVETO, *[Path.LINETO] * (len(corners) - 1), Path.CLOSEPOLY]
    ax.add_patch(PathPatch(Path(vertices, codes), facecolor=tone, edgecolor="none", linewidth=0, zorder=1))


def _profiles(lanes: Lanes, start_s: float, whole_s: float, scale: float) -> dict[str, list[Polygon]]:
    """Return a lane's polygons by kind: in each slice as high as the part of it that this kind and those below it cover.

    They are in drawing order: the lower kinds cover the foot of the higher ones.
    """
    edges_s = np.linspace(start_s, start_s + whole_s, SLICES + 1)
    edges = (edges_s - start_s) * scale
    polygons: dict[str, list[Polygon]] = {kind: [] for kind in reversed(STACK)}
    for rank, pieces in lanes.items():
        covered = np.zeros(SLICES)
        for kind in STACK:
            if not pieces[kind]:
                continue
            covered = covered + _covered(pieces[kind], edges_s)
            share = np.rint(LEVELS * covered / np.diff(edges_s)) / LEVELS
            for first, last in _runs(share):
                foot = rank + HALF
                steps = [(edges[edge], share[place]) for place in range(first, last) for edge in (place, place + 1)]
                top = [(x, foot - 2 * HALF * part) for x, part in steps]
                polygons[kind].append(_turns([*top, (edges[last], foot), (edges[first], foot)]))
    return {kind: outlines for kind, outlines in polygons.items() if outlines}


def _covered(intervals: Sequence[Interval], edges: np.ndarray) -> np.ndarray:
    """Return the seconds of each timeline slice between two edges that the intervals cover."""
    if not intervals:
        return np.zeros(len(edges) - 1)
    starts, ends = np.array(joined(intervals)).T
    covered = np.concatenate(([0.0], np.cumsum(ends - starts)))
    place = np.searchsorted(starts, edges, side="right")
    over = np.maximum(0, ends[place - 1] - edges) * (place > 0)  # the part beyond the edge of an interval that it cuts
    return np.diff(covered[place] - over)


def _runs(share: np.ndarray) -> list[tuple[int, int]]:
    """Return the stretches of a lane's neighbouring slices with something in them, as (first, behind the last)."""
    ends = np.flatnonzero(np.diff(np.concatenate(([0], share > 0, [0]))))
    return list(zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True))


def _turns(outline: Polygon) -> Polygon:
    """Drop the points of a lane's outline of right angles at which it does not turn."""
    kept: Polygon = []
    for x, y in outline:
        if len(kept) > 1 and (kept[-2][0] == kept[-1][0] == x or kept[-2][1] == kept[-1][1] == y):
            kept.pop()
        kept.append((x, y))
    return kept


def _open_end(ax: Axes, bar: Bar, start_s: float, whole_s: float, scale: float) -> None:
    """Name on the timeline what never ended, beside a line at the run's end."""
    whole = whole_s * scale
    edge = [bar.rank - 1.6 * HALF, bar.rank + 1.6 * HALF]
    ax.plot([whole, whole], edge, color=base.INK, linewidth=tokens.STRONG_PT, clip_on=False)
    text, left = f"{bar.label}, never ended", (bar.start_s - start_s) * scale
    fits = len(text) * LABEL_CHARACTER < (whole - left) / whole
    x, align = ((left + whole) / 2, "center") if fits else (min(left, whole) - whole / 100, "right")
    tone = base.PAPER if bar.kind == "collective" and fits else base.INK  # on a strong area, or a pale one, or none
    ground = {"facecolor": LOOKS[bar.kind] if fits else base.PAPER, "edgecolor": "none", "pad": 0.6}  # arrows end at it
    ax.text(x, bar.rank, text, ha=align, va="center", fontsize=tokens.SMALL_PT, color=tone, zorder=4, bbox=ground)


def _labels(ax: Axes, named: Sequence[Bar], start_s: float, whole_s: float, scale: float) -> None:
    """Write on the timeline the names of marked spans and of collectives above their lane, where they fit."""
    for b in named[:MOST_LABELS]:
        if len(b.label) * LABEL_CHARACTER < (b.end_s - b.start_s) / whole_s:
            x = ((b.start_s + b.end_s) / 2 - start_s) * scale
            ax.text(
                x, b.rank - HALF - 0.02, b.label, ha="center", va="bottom", fontsize=tokens.TINY_PT, color=base.QUIET_INK,
                bbox={"facecolor": base.PAPER, "edgecolor": "none", "pad": 0.4}, zorder=4,  # no arrow strikes it out
            )  # fmt: skip


def _arrows(ax: Axes, picture: Picture, arrows: Sequence[tuple[float, float, int, int]]) -> None:
    """Draw messages from (start, source) to (end, destination), their lines as one path, their heads as another."""
    if not arrows:
        return
    box, (width, height) = ax.get_position(), picture.get_size_inches()
    low, high = ax.get_xlim()
    inch = np.array([(high - low) / (box.width * width), abs(np.subtract(*ax.get_ylim())) / (box.height * height)])

    lines, heads = [], []
    for start, end, source, goal in arrows:
        away = HALF * np.sign(goal - source)
        tail, tip = np.array([start, source + away]), np.array([end, goal - away])
        lines += [tail, tip]
        along = (tip - tail) / inch
        along = along / max(np.hypot(*along), 1e-9) * HEAD_IN
        across = np.array([-along[1], along[0]]) * 0.35
        heads.append([tuple(tip), tuple(tip - (along + across) * inch), tuple(tip - (along - across) * inch)])
    path = Path(lines, [Path.MOVETO, Path.LINETO] * len(arrows))
    ax.add_patch(PathPatch(path, facecolor="none", edgecolor=base.INK, linewidth=tokens.HAIR_PT, zorder=3, clip_on=False))
    _area(ax, heads, base.INK)
    ax.patches[-1].set(zorder=3, clip_on=False)


def _busy(ax: Axes, shares: Sequence[float | None]) -> None:
    """Draw, right of each timeline lane, the share of the time until the rank's last event in which it did not wait."""
    beside = ax.get_yaxis_transform()
    left, width = 1.015, 0.09
    ax.annotate(
        "busy", (left, 1), (0, 6), "axes fraction", "offset points", fontsize=tokens.SMALL_PT, color=base.QUIET_INK,
    )  # fmt: skip
    look = {"transform": beside, "clip_on": False, "edgecolor": "none"}
    for rank, share in enumerate(shares):
        if share is None:
            continue
        ax.add_patch(Rectangle((left, rank - HALF), width, 2 * HALF, facecolor=LOOKS["wait"], **look))
        ax.add_patch(Rectangle((left, rank - HALF), width * share, 2 * HALF, facecolor=base.QUIET_INK, **look))
        ax.text(
            left + width + 0.012, rank, f"{round(100 * share)} %", va="center", fontsize=tokens.SMALL_PT, color=base.INK,
            transform=beside,
        )  # fmt: skip


def finding(idle_s: Sequence[float], whole_s: float) -> str:
    """Return a timeline's headline of a run that ended: which ranks wait most and which least, from the seconds that each waits.

    Ranks that differ by less than 2 % of the time wait alike.
    """
    world_size, most_s, least_s = len(idle_s), max(idle_s), min(idle_s)

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
    """Return a timeline's ranks as text: "rank 3", "ranks 0 and 2", "ranks 0, 1, 2, 3, 4, 5 and 58 more"."""
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
    """Return the headline of a timeline that broke off: failures first, then ranks that stood alike, the smallest group first."""
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
    """Name the timeline's rank that computes longest, where one clearly does: the others wait for it."""
    worked_s = {}
    for (rank, kind), group in groups.items():
        if kind == "compute":
            worked_s[f"rank {rank}"] = covered_s(_intervals(group))
    return findings.straggler(worked_s)


def _share(part_s: float, whole_s: float) -> str:
    return f"{round(100 * part_s / max(whole_s, 1e-9))} %"


def covered_s(intervals: Iterable[Interval]) -> float:
    """Return the seconds that a lane's intervals cover together; where they overlap, time counts once."""
    return sum(end - start for start, end in joined(intervals))


def together_s(intervals: Iterable[Interval], others: Iterable[Interval]) -> float:
    """Return the seconds that lie in intervals of both."""
    total_s = 0.0
    for start, end in joined(intervals):
        for begin, until in joined(others):
            total_s += max(0.0, min(end, until) - max(start, begin))
    return total_s


def _sums(world_size: int, groups: Mapping[tuple[int, str], Sequence[Bar]]) -> str:
    """Return the timeline's seconds of each kind, rank by rank, as text for the first `MOST_TOLD` ranks."""
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


def _legend(ax: Axes, kinds: set[str], arrows: bool) -> None:
    entries: list[Any] = [Patch(label=kind, facecolor=LOOKS[kind], edgecolor="none") for kind in LAYERS if kind in kinds]
    if arrows:
        entries.append(Line2D([], [], color=base.INK, linewidth=tokens.THIN_PT, label="message"))
    ax.legend(
        handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(entries), fontsize=tokens.SMALL_PT, frameon=False,
        labelcolor=base.QUIET_INK, handlelength=1.2, borderpad=0.1,
    )  # fmt: skip
