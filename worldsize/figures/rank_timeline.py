"""The timeline: what every rank did when, as bars: H. Gantt, "Work, Wages, and Profits", 1910, drew work so.

Each rank has a lane, and in it a track for what the rank itself did, which computed or stood and waited, one for sends, one
for receives, one for a framework's collectives, as far as there are any. Kinds are told apart by colour and by hatch. The
headline's parts of the time are those of the waits in the first track (`trace.waits`). What never ended is a bar
that is open to the right, and then the headline says who waited for whom. Left out: arrows from sender to receiver
(`spacetime`), and single bars where there are too many to be seen.
"""

from __future__ import annotations

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
from worldsize.figures.inputs import began_s, ended_s, waits_for
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
# a marked phase in which collectives ran: hollow, with them in it
HOLLOW = {"facecolor": tokens.SHADE.light, "hatch": ""}
NAMED = ("compute", "wait", "collective")
MOST_BARS = 150
FINE = 1 / 250  # of the time drawn
MOST_FINE = 40
SLICES = 175
PIXELS = 700
TRACK_HEIGHT = 0.8
LABEL_CHARACTER = 0.0085  # of the width
LABEL_BOX = {"facecolor": base.PAPER, "edgecolor": "none", "pad": 0.6}
MOST_LABELS = 60
MOST_TOLD = 8
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
    """What a rank timeline draws as bars: a trace's spans, its collectives and each rank's waits, in the order of their starts.

    The waits are `trace.waits`. One that was recorded as a wait has a label, and may be part of a longer one without.
    """
    found = [Bar(s.rank, s.kind, s.start_s, s.end_s, s.label, s.ended) for s in trace.spans if s.kind in KINDS]
    found += [Bar(c.rank, "collective", c.start_s, c.end_s, c.op, c.ended) for c in trace.collectives]
    known = {(b.rank, b.start_s, b.end_s) for b in found if b.kind == "wait"}
    never_ended = {(b.rank, b.end_s) for b in found if not b.ended}
    for rank, intervals in enumerate(waits(trace)):
        for start_s, end_s in intervals:
            if (rank, start_s, end_s) not in known:
                found.append(Bar(rank, "wait", start_s, end_s, ended=(rank, end_s) not in never_ended))
    return sorted(found, key=lambda b: (b.start_s, -b.end_s))


def timeline(of: Any) -> Picture:
    """What every rank did when: its marked spans, sends, receives and the framework's collectives, as bars.

    `of` is a trace, or a run: of one that broke off the headline says where each rank stood.
    """
    if waits_for(of):
        return base.not_yet(waits_for(of))

    trace = getattr(of, "trace", of)
    if not trace or not bars(trace):
        return base.notice("nothing was recorded")
    return _timeline(trace, stands(trace, getattr(of, "outcome", None)))


@base.plain_style
def _timeline(trace: Any, stood: Mapping[int, str]) -> Picture:
    """`trace` has at least one span or collective; `stood` says where ranks were when the run broke off."""
    shown = bars(trace)
    start_s = began_s(shown)
    whole_s = max(ended_s(shown) - start_s, 1e-9)
    scale, unit = units.time_unit(whole_s)
    kinds = set(map(attrgetter("kind"), shown))
    tracks = [track for track in TRACKS if not kinds.isdisjoint(track)]

    height_in = min(9.0, 1.2 + trace.world_size * max(0.34, 0.22 * len(tracks)))
    picture = Picture(base.WIDTH_IN, height_in)
    picture.set_layout_engine(None)  # half of the time that drawing takes; many runs end with it
    picture.subplots_adjust(0.85 / base.WIDTH_IN, 0.5 / height_in, 1 - 0.2 / base.WIDTH_IN, 1 - 0.6 / height_in)
    ax = picture.plot_area()
    _lanes(ax, trace.world_size, len(tracks))

    groups: dict[tuple[int, str], list[Bar]] = defaultdict(list)
    open_bars = [b for b in shown if not b.ended]
    for b in shown:
        groups[b.rank, b.kind].append(b)
    drawn = {key: _without_gaps(group, whole_s / PIXELS) if key[1] == "wait" else group for key, group in groups.items()}
    crowded = {kind for (_, kind), group in drawn.items() if _is_crowded(group, whole_s)}
    hollow = "compute" not in crowded and any(_holds_collectives(groups, rank) for rank in range(trace.world_size))

    for (rank, kind), group in drawn.items():
        depth = [kind in track for track in tracks].index(True)
        y = rank * (len(tracks) + 0.5) + depth
        closed = [b for b in group if b.ended or kind in crowded]
        intervals = _moved(closed, start_s, scale)
        if kind in crowded:
            _shares(ax, y, intervals, whole_s * scale, kind)
            continue

        if hollow and kind == "compute":
            _bars(ax, y, intervals, whole_s * scale, HOLLOW, height=len(tracks) - 1 + TRACK_HEIGHT)
        else:
            _bars(ax, y, intervals, whole_s * scale, LOOKS[kind])
        if kind in NAMED:
            _labels(ax, y, closed, start_s, whole_s, scale)

    for b in open_bars:
        if b.kind not in crowded:
            y = b.rank * (len(tracks) + 0.5) + [b.kind in track for track in tracks].index(True)
            _open_bar(ax, y, b, start_s, whole_s, scale)

    ax.set_xlim(0, whole_s * scale)
    x = f"time since the first event ({unit})" + _crowded_words(crowded)
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    _legend(ax, kinds, hollow)

    said, late = told_stands(stood), ""
    if not said:
        said, late = finding(trace.world_size, shown, whole_s), _straggler(shown)
    base.headline(ax, findings.line(late) or said, units.seconds(whole_s) + " in all")
    over = f"Timeline of {units.count(trace.world_size, 'rank')} over {units.seconds(whole_s)}"
    told = f"{said[0].lower()}{said[1:]}"
    if late:
        told = f"{late}; {told}"
    picture.alt = f"{over}: {told}. {_sums(trace.world_size, groups)}"
    return picture


def _intervals(group: Iterable[Bar]) -> list[Interval]:
    return [(b.start_s, b.end_s) for b in group]


def _moved(group: Sequence[Bar], start_s: float, scale: float) -> list[list[float]]:
    """The intervals of bars as they are drawn: from `start_s` on, in the axis's unit."""
    return [[(b.start_s - start_s) * scale, (b.end_s - start_s) * scale] for b in group]


def _without_gaps(waiting: Sequence[Bar], least_s: float) -> list[Bar]:
    """Waits between which there is less than can be drawn, as one bar; those that are named or never ended stay."""
    found: list[Bar] = []
    for b in waiting:
        before = found[-1] if found else None
        plain = before is not None and not (before.label or b.label) and before.ended and b.ended
        if plain and b.start_s - before.end_s < least_s:
            found[-1] = replace(before, end_s=max(before.end_s, b.end_s))
        else:
            found.append(b)
    return found


def _is_crowded(group: Sequence[Bar], whole_s: float) -> bool:
    """Whether bars of one kind would look like a barcode: too many, or many that are as narrow as their outlines."""
    narrow = [b for b in group if b.end_s - b.start_s < FINE * whole_s]
    gaps = [one for one, b in pairwise(group) if 0 < b.start_s - one.end_s < FINE * whole_s]
    return len(group) > MOST_BARS or len(narrow) + len(gaps) > MOST_FINE


def _crowded_words(crowded: set[str]) -> str:
    if not crowded:
        return ""
    return f"; {' and '.join(sorted(crowded))}: height is the part of the time"


def _holds_collectives(groups: Mapping[tuple[int, str], Sequence[Bar]], rank: int) -> bool:
    """Whether collectives of a rank ran within spans that it marked."""
    phases = joined(_intervals(groups.get((rank, "compute"), ())))
    for bar in groups.get((rank, "collective"), ()):
        if any(start <= bar.start_s and bar.end_s <= end for start, end in phases):
            return True
    return False


def _bars(
    ax: Axes, y: float, intervals: Sequence[Interval], whole: float, look: Mapping[str, str], height: float = TRACK_HEIGHT
) -> None:
    """One path of all bars: Matplotlib hatches a path once, but a collection's members one by one."""
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
    """A bar of what never ended: to the end of the run, with no line at its right, and named."""
    whole = whole_s * scale
    left, bottom = min((bar.start_s - start_s) * scale, whole * (1 - 4 / PIXELS)), y + TRACK_HEIGHT
    corners = [(whole, y), (left, y), (left, bottom), (whole, bottom)]
    path = Path(corners, [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO])
    ax.add_patch(PathPatch(path, edgecolor=base.INK, linewidth=tokens.LINE_PT, **LOOKS[bar.kind]))

    if not bar.label:  # its track beside has it
        return
    text = f"{bar.label}, never ended"
    fits = len(text) * LABEL_CHARACTER < (whole - left) / whole
    x, align = ((left + whole) / 2, "center") if fits else (left - whole / 100, "right")
    ax.text(x, y + TRACK_HEIGHT / 2, text, ha=align, va="center", fontsize=tokens.TINY_PT, color=base.INK, bbox=LABEL_BOX)


def _shares(ax: Axes, y: float, intervals: Sequence[Interval], whole: float, kind: str) -> None:
    """In place of bars too narrow to be seen: the part of each slice of time that they cover, as a height."""
    edges = np.linspace(0, whole, SLICES + 1)
    starts, ends = np.array(joined(intervals)).T
    covered = np.concatenate(([0.0], np.cumsum(ends - starts)))

    place = np.searchsorted(starts, edges, side="right")
    over = np.maximum(0, ends[place - 1] - edges) * (place > 0)  # of the interval that an edge cuts
    heights = np.diff(covered[place] - over) / (whole / SLICES) * TRACK_HEIGHT

    bottom = y + TRACK_HEIGHT
    tops = bottom - np.append(heights, heights[-1])
    ax.fill_between(edges, bottom, tops, step="post", edgecolor=base.INK, linewidth=tokens.HAIR_PT, **LOOKS[kind])


def finding(world_size: int, shown: Sequence[Bar], whole_s: float) -> str:
    """Headline of a rank timeline: which ranks wait most and which least.

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

    alike_s = min(ALIKE * whole_s, (most_s - least_s) / 3)
    most = [rank for rank in range(world_size) if idle_s[rank] >= most_s - alike_s]
    least = [rank for rank in range(world_size) if idle_s[rank] <= least_s + alike_s]

    verb = "waits" if len(most) == 1 else "wait"
    said = f"{_named(most)} {verb} most, {_about(most)}{_share(most_s, whole_s)} of the time"
    return f"{said[0].upper()}{said[1:]}; {_named(least)} least, {_about(least)}{_share(least_s, whole_s)}"


def _about(ranks: Sequence[int]) -> str:
    return "about " if len(ranks) > 1 else ""


def _named(ranks: Sequence[int]) -> str:
    """ "rank 3", "ranks 0 and 2", "ranks 0, 1, 2, 3, 4, 5 and 58 more"."""
    said = failures.names(list(ranks))
    return said.replace(", ", " and ") if len(ranks) == 2 else said


def stands(trace: Any, outcome: Outcome | None = None) -> dict[int, str]:
    """By rank, where it was when its run broke off, in words: "failed", "waited in recv from rank 0", "ran".

    From the outcome's failures and standings, where there are any, and else from what never ended in the trace. Empty
    for a run that came to its end.
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
    """Headline of a run that broke off: ranks that stood alike together, the fewest first; empty where none stood."""
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, words in sorted(stood.items()):
        alike[words].append(rank)

    groups = sorted(alike.items(), key=lambda group: (group[0] != "failed", len(group[1]), group[1]))
    said = []
    for words, ranks in groups[:MOST_GROUPS]:
        plural = words.replace("was ", "were ", 1) if len(ranks) > 1 else words
        said.append(f"{_named(ranks)} {plural}")
    if len(groups) > MOST_GROUPS:
        left = sum(len(ranks) for _, ranks in groups[MOST_GROUPS:])
        said.append(f"and {units.count(left, 'more rank')} elsewhere")

    line = "; ".join(said)
    return line[:1].upper() + line[1:]


def _straggler(shown: Sequence[Bar]) -> str:
    """Which rank computes longest, where one clearly does: it is the one that the others wait for."""
    worked: dict[str, list[Interval]] = defaultdict(list)
    for b in shown:
        if b.kind == "compute":
            worked[f"rank {b.rank}"].append((b.start_s, b.end_s))
    return findings.straggler({rank: covered_s(intervals) for rank, intervals in worked.items()})


def _share(part_s: float, whole_s: float) -> str:
    return f"{round(100 * part_s / max(whole_s, 1e-9))} %"


def covered_s(intervals: Iterable[Interval]) -> float:
    """Seconds of a rank's timeline that its bars (intervals) cover together; where they overlap time counts once."""
    return sum(end - start for start, end in joined(intervals))


def _sums(world_size: int, groups: Mapping[tuple[int, str], Sequence[Bar]]) -> str:
    """By rank, the seconds of each kind."""
    ranks = []
    for rank in range(min(world_size, MOST_TOLD)):
        said = []
        for kind in KINDS:
            if (rank, kind) in groups:
                total_s = covered_s(_intervals(groups[rank, kind]))
                vain = "" if all(b.ended for b in groups[rank, kind]) else " (one never ended)"
                said.append(f"{kind} {units.seconds(total_s)}{vain}")
        ranks.append(f"rank {rank}: {', '.join(said) or 'nothing'}")

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
    """The names of spans that the user marked and of collectives, where they fit into their bars."""
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
