"""One training step as it went in several runs, one above the other: what backward did, and what was on the network.

Two rows for each run, of one rank: its declared work, and the messages that it sent, each from its first byte to its
arrival. All steps begin at the left edge, so that their lengths compare, and a line marks the end of backward. Left
out: other ranks (`timeline`), and when a gradient was ready. That messages travel inside backward is the "wait-free
backpropagation" of H. Zhang et al., Poseidon, USENIX ATC 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from worldsize import units
from worldsize.figures.base import INK, QUIET_INK, RULE, WIDTH_IN, Picture, colour, headline, not_yet, plain_style
from worldsize.figures.inputs import waits_for
from worldsize.trace import joined

COMPUTE = {"facecolor": "#0072B2", "edgecolor": INK, "linewidth": 0.5}
MESSAGE = {"facecolor": colour(1), "edgecolor": INK, "linewidth": 0.5, "hatch": "////"}
HEIGHT = 0.38
TOP_IN, BOTTOM_IN, ROW_IN, LETTER_IN = 0.65, 0.55, 0.62, 0.085

Interval = tuple[float, float]


@dataclass(frozen=True)
class StepTimeline:
    """One rank's step: seconds since its first work."""

    work: tuple[Interval, ...]
    messages: tuple[Interval, ...]

    @property
    def backward_s(self) -> float:
        return max(end for _, end in self.work)

    @property
    def end_s(self) -> float:
        return max(end for _, end in (*self.work, *self.messages))

    @property
    def inside(self) -> float:
        """The part of the time on the network that lies inside backward."""
        busy = joined(self.messages)
        whole = sum(end - start for start, end in busy)
        return sum(max(0.0, min(end, self.backward_s) - start) for start, end in busy) / whole if whole else 0.0


def steps(trace: Any, rank: int, works_a_step: int) -> list[StepTimeline]:
    """For timelines of steps: one rank's, each with as many spans of declared work, and the messages that begin in it."""
    work = [(s.start_s, s.end_s) for s in trace.spans if s.rank == rank and s.kind == "compute"]
    sent = [(t.start_s, t.end_s) for t in trace.transfers if t.src == rank]
    firsts = [work[k][0] for k in range(0, len(work), works_a_step)]
    found = []
    for number, first in enumerate(firsts):
        until = firsts[number + 1] if number + 1 < len(firsts) else float("inf")
        found.append(StepTimeline(_since(first, work, first, until), _since(first, sent, first, until)))
    return found


def middle_step(trace: Any, rank: int, works_a_step: int) -> StepTimeline:
    """For timelines of steps: one rank's step of the middle length."""
    found = steps(trace, rank, works_a_step)
    return sorted(found, key=lambda step: step.end_s)[len(found) // 2]


def overlaps(runs: Mapping[str, Any], works_a_step: int, title: str, rank: int = 0) -> Picture:
    """A step of one rank in each run or trace, one above the other: its declared work, so many spans, and its messages."""

    def row(of: Any) -> Any:
        return None if waits_for(of) else middle_step(getattr(of, "trace", of), rank, works_a_step)

    waiting = [waits_for(of) for of in runs.values()]
    return not_yet(waiting[-1]) if all(waiting) else _overlaps({name: row(of) for name, of in runs.items()}, title)


@plain_style
def _overlaps(rows: Mapping[str, StepTimeline | None], title: str) -> Picture:
    """`rows[name]` is a step, None for an exercise not yet written."""
    known = {name: step for name, step in rows.items() if step is not None}
    if not known:
        return not_yet(", ".join(rows))
    longest_s = max(step.end_s for step in known.values())
    scale, unit = units.time_unit(longest_s)
    height_in = TOP_IN + BOTTOM_IN + ROW_IN * len(rows)
    picture = Picture(WIDTH_IN, height_in)
    picture.set_layout_engine(None)  # the constrained one finds no room in a picture of one row
    left = 0.2 + LETTER_IN * max(map(len, rows))
    picture.subplots_adjust(left / WIDTH_IN, BOTTOM_IN / height_in, 1 - 0.1 / WIDTH_IN, 1 - TOP_IN / height_in)
    ax = picture.plot_area()
    for place, step in enumerate(rows.values()):
        if step is None:
            ax.text(0.01 * longest_s * scale, place, "not yet", va="center", fontsize=9, color=QUIET_INK)
        else:
            _row(ax, place, step, scale, longest_s)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.set_xlim(0, longest_s * scale * 1.12)
    ax.set_xlabel(f"time since backward began ({unit})", fontsize=9, color=INK)
    entries = [Patch(label="backward", **COMPUTE), Patch(label="message", **MESSAGE)]
    ax.legend(handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)
    headline(ax, title, "one rank, the step of middle length")
    picture.alt = ". ".join([title, *(_words(name, step) for name, step in rows.items())]) + "."
    return picture


def _row(ax: Axes, place: int, step: StepTimeline, scale: float, longest_s: float) -> None:
    for shift, intervals, look in ((-HEIGHT / 2, step.work, COMPUTE), (HEIGHT / 2, step.messages, MESSAGE)):
        bars = [(start * scale, (end - start) * scale) for start, end in intervals]
        ax.broken_barh(bars, (place + shift - HEIGHT / 2, HEIGHT), **look)
    ax.axhline(place + 0.5, color=RULE, linewidth=0.8, zorder=0)
    end = step.backward_s * scale
    ax.plot([end, end], [place - HEIGHT - 0.06, place + HEIGHT + 0.06], color=INK, linewidth=1.8, zorder=3)
    place_x = (step.end_s + 0.01 * longest_s) * scale
    ax.text(place_x, place, units.seconds(step.end_s), va="center", fontsize=9, color=INK)


def _words(name: str, step: StepTimeline | None) -> str:
    if step is None:
        return f"{name}: not yet"
    return f"{name}: {units.seconds(step.end_s)}, {round(100 * step.inside)} % of the time on the network inside backward"


def _since(first: float, intervals: Sequence[Interval], start: float, until: float) -> tuple[Interval, ...]:
    return tuple((a - first, b - first) for a, b in intervals if start <= a < until)
