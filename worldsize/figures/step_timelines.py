"""One training step as it went in several runs, one above the other: what backward did, and what was on the network.

Two rows for each run, of one rank: its declared work, and the messages that it sent, each from its first byte to its
arrival. All steps begin at the left edge, so that their lengths compare, and a line marks the end of backward. Left
out: other ranks (`timeline`), and when a gradient was ready. That messages travel inside backward is the "wait-free
backpropagation" of H. Zhang et al., Poseidon, USENIX ATC 2017.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from worldsize import units
from worldsize.figures import base
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.figures.inputs import ended_s, waits_for
from worldsize.trace import joined

COMPUTE = {"facecolor": "#0072B2", "edgecolor": base.INK, "linewidth": 0.5}
MESSAGE = {"facecolor": base.colour(1), "edgecolor": base.INK, "linewidth": 0.5, "hatch": "////"}
HEIGHT = 0.38
TOP_IN, BOTTOM_IN, ROW_IN, LETTER_IN = 0.25, 0.55, 0.62, 0.085

Interval = tuple[float, float]


@dataclass(frozen=True)
class StepTimeline:
    """One rank's step: seconds since its first work."""

    work: tuple[Interval, ...]
    messages: tuple[Interval, ...]

    @property
    def backward_s(self) -> float:
        return _over(self.work)

    @property
    def end_s(self) -> float:
        return _over((*self.work, *self.messages))

    @property
    def inside(self) -> float:
        """The part of the time on the network that lies inside backward."""
        whole_s = inside_s = 0.0
        for start, end in joined(self.messages):
            whole_s += end - start
            inside_s += max(0.0, min(end, self.backward_s) - start)
        if not whole_s:
            return 0.0
        return inside_s / whole_s


def _over(intervals: Sequence[Interval]) -> float:
    return max(end for _, end in intervals)


def steps(trace: Any, rank: int, works_a_step: int) -> list[StepTimeline]:
    """For timelines of steps: one rank's, each with as many spans of declared work, and the messages that begin in it."""
    work = [(s.start_s, s.end_s) for s in trace.spans if s.rank == rank and s.kind == "compute"]
    sent = [(t.start_s, t.end_s) for t in trace.transfers if t.src == rank]
    edges = [start for start, _ in work[::works_a_step]] + [math.inf]

    found = []
    for first, until in pairwise(edges):
        found.append(StepTimeline(work=_between(work, first, until), messages=_between(sent, first, until)))
    return found


def _between(intervals: Sequence[Interval], first: float, until: float) -> tuple[Interval, ...]:
    """Those that begin in between, from `first` on."""
    return tuple((start - first, end - first) for start, end in intervals if first <= start < until)


def middle_step(trace: Any, rank: int, works_a_step: int) -> StepTimeline:
    """For timelines of steps: one rank's step of the middle length."""
    found = steps(trace, rank, works_a_step)
    return sorted(found, key=lambda step: step.end_s)[len(found) // 2]


def overlaps(runs: Mapping[str, Any], works_a_step: int, asks: str = "", rank: int = 0) -> Picture:
    """A step of one rank in each run or trace, one above the other: its declared work, so many spans, and its messages.

    `asks` is the question over the picture; ValueError where it is none.
    """
    waiting = list(map(waits_for, runs.values()))
    if all(waiting):
        return base.not_yet(waiting[-1])

    rows: dict[str, StepTimeline | None] = dict.fromkeys(runs)
    for name, of in runs.items():
        if not waits_for(of):
            rows[name] = middle_step(getattr(of, "trace", of), rank, works_a_step)
    return _overlaps(rows, asks)


@base.plain_style
def _overlaps(rows: Mapping[str, StepTimeline | None], asks: str) -> Picture:
    """`rows[name]` is a step, None for an exercise not yet written; at least one is there."""
    longest_s = ended_s(base.written(rows).values())
    scale, unit = units.time_unit(longest_s)

    picture = Picture(base.WIDTH_IN, TOP_IN + BOTTOM_IN + ROW_IN * len(rows))
    picture.set_layout_engine(None)  # the constrained one finds no room in a picture of one row
    found = finding(base.written(rows))
    head_in = heading.head(picture, asks, found, "one rank, the step of middle length")
    height_in = picture.get_figheight()
    left = (0.2 + LETTER_IN * max(map(len, rows))) / base.WIDTH_IN
    picture.subplots_adjust(left, BOTTOM_IN / height_in, 1 - 0.1 / base.WIDTH_IN, 1 - (head_in + TOP_IN) / height_in)
    ax = picture.plot_area()

    for place, step in enumerate(rows.values()):
        if step is None:
            ax.text(0.01 * longest_s * scale, place, "not yet", va="center", fontsize=9, color=base.QUIET_INK)
        else:
            _row(ax, place, step, scale, longest_s)

    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.set_xlim(0, longest_s * scale * 1.12)
    ax.set_xlabel(f"time since backward began ({unit})", fontsize=9, color=base.INK)
    entries = [Patch(label="backward", **COMPUTE), Patch(label="message", **MESSAGE)]
    ax.legend(handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)

    picture.alt = heading.alt(asks, found, *base.of_each(_words, rows))
    return picture


def finding(steps: Mapping[str, StepTimeline]) -> str:
    """What steps above each other say: which is shortest, and how much of its time on the network is inside backward."""
    took_s = {name: step.end_s for name, step in steps.items()}
    first, *_ = findings.leaders(took_s, largest=False)
    slowest = max(took_s, key=took_s.get)

    hidden = f"{_percent(steps[first])} of the time on the network is inside backward"
    if slowest != first:
        others = f"of {slowest}'s {_percent(steps[slowest])}"
        hidden = f"of its time on the network {_percent(steps[first])} is inside backward, {others}"
    return findings.line(findings.fastest(took_s), hidden)


def _percent(step: StepTimeline) -> str:
    return f"{round(100 * step.inside)} %"


def _row(ax: Axes, place: int, step: StepTimeline, scale: float, longest_s: float) -> None:
    for top, intervals, look in ((place - HEIGHT, step.work, COMPUTE), (place, step.messages, MESSAGE)):
        bars = [(start * scale, (end - start) * scale) for start, end in intervals]
        ax.broken_barh(bars, (top, HEIGHT), **look)
    ax.axhline(place + 0.5, color=base.RULE, linewidth=0.8, zorder=0)

    end = step.backward_s * scale
    ax.plot([end, end], [place - HEIGHT - 0.06, place + HEIGHT + 0.06], color=base.INK, linewidth=1.8, zorder=3)
    beside = (step.end_s + 0.01 * longest_s) * scale
    ax.text(beside, place, units.seconds(step.end_s), va="center", fontsize=9, color=base.INK)


def _words(step: StepTimeline) -> str:
    inside = f"{_percent(step)} of the time on the network inside backward"
    return f"{units.seconds(step.end_s)}, {inside}"

