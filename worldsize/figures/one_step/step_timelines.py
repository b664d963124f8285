"""A training step of one rank in several runs, one above the other: marked work, and messages sent.

A message goes from its first byte to its arrival. All steps begin at the left edge, so that their lengths compare, and a
line marks the end of backward. Messages inside backward are the "wait-free backpropagation" of H. Zhang et al., Poseidon,
USENIX ATC 2017.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.figures.frame.inputs import ended_s, waits_for
from worldsize.figures.rank_timeline import Interval, covered_s, together_s

COMPUTE = {"facecolor": tokens.BACKWARD.light, "edgecolor": base.PAPER, "linewidth": tokens.HAIR_PT}
MESSAGE = {"facecolor": tokens.SEND.light, "edgecolor": base.PAPER, "linewidth": tokens.HAIR_PT}
INSIDE = {False: "inside backward", True: "under work"}  # what hides a message, by whether the whole step is drawn
HEIGHT = 0.38
TOP_IN, BOTTOM_IN, ROW_IN, LETTER_IN = 0.25, 0.55, 0.62, 0.085


@dataclass(frozen=True)
class StepTimeline:
    """A rank's step: seconds since its first work."""

    work: tuple[Interval, ...]
    messages: tuple[Interval, ...]

    @property
    def backward_s(self) -> float:
        return max(end for _, end in self.work)

    @property
    def end_s(self) -> float:
        return max(end for _, end in (*self.work, *self.messages))

    def hidden(self, whole_step: bool) -> float:
        """Return the part of the time on the network before the end of backward or, of a `whole_step`, under work."""
        sent_s = covered_s(self.messages)
        if not sent_s:
            return 0.0
        hides = self.work if whole_step else [(-math.inf, self.backward_s)]
        return together_s(self.messages, hides) / sent_s


def steps(trace: Any, rank: int, works_a_step: int) -> list[StepTimeline]:
    """Return a rank's steps: `works_a_step` compute spans each, and the messages that it begins to send in the step."""
    work = [(s.start_s, s.end_s) for s in trace.spans if s.rank == rank and s.kind == "compute"]
    sent = [(t.start_s, t.end_s) for t in trace.transfers if t.src == rank]
    edges = [start for start, _ in work[::works_a_step]] + [math.inf]

    found = []
    for first, until in pairwise(edges):
        found.append(StepTimeline(work=_between(work, first, until), messages=_between(sent, first, until)))
    return found


def _between(intervals: Sequence[Interval], first: float, until: float) -> tuple[Interval, ...]:
    """Return the step's intervals that begin between `first` and `until`, counted from `first`."""
    return tuple((start - first, end - first) for start, end in intervals if first <= start < until)


def middle_step(trace: Any, rank: int, works_a_step: int) -> StepTimeline:
    """Return a rank's step of median length."""
    found = steps(trace, rank, works_a_step)
    return sorted(found, key=lambda step: step.end_s)[len(found) // 2]


@base.plain_style
def overlaps(
    runs: Mapping[str, Any], works_a_step: int, asks: str = "", rank: int = 0, *, whole_step: bool = False
) -> Picture:
    """Draw a step of one rank in each run or trace: its work, in `works_a_step` compute spans, and its messages.

    The work is backward, and the finding says what travels before its end. With `whole_step` the work is forward and
    backward, and the finding says what travels under work. `asks` is the question above the picture; ValueError unless it
    ends in "?".
    """
    waiting = list(map(waits_for, runs.values()))
    if all(waiting):
        return base.not_yet(waiting[-1])

    rows: dict[str, StepTimeline | None] = dict.fromkeys(runs)
    which = "one rank, one step"
    for name, of in runs.items():
        if not waits_for(of):
            trace = getattr(of, "trace", of)
            rows[name] = middle_step(trace, rank, works_a_step)
            if len(steps(trace, rank, works_a_step)) > 1:
                which = "one rank, the step of middle length"
    written = base.written(rows)
    longest_s = ended_s(written.values())
    scale, unit = units.time_unit(longest_s)

    picture = Picture(base.WIDTH_IN, TOP_IN + BOTTOM_IN + ROW_IN * len(rows))
    picture.set_layout_engine(None)  # constrained layout finds no room in a picture of one row
    statement = finding(written, whole_step)
    head_in = heading.head(picture, asks, statement, which)
    height_in = picture.get_figheight()
    left = (0.2 + LETTER_IN * max(map(len, rows))) / base.WIDTH_IN
    picture.subplots_adjust(left, BOTTOM_IN / height_in, 1 - 0.1 / base.WIDTH_IN, 1 - (head_in + TOP_IN) / height_in)
    ax = picture.plot_area()

    for place, step in enumerate(rows.values()):
        if step is None:
            ax.text(0.01 * longest_s * scale, place, "not yet", va="center", fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
        else:
            _row(ax, place, step, scale, longest_s, whole_step)

    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.set_xlim(0, longest_s * scale * 1.12)
    began = "the step" if whole_step else "backward"
    ax.set_xlabel(f"time since {began} began ({unit})", fontsize=tokens.LABEL_PT, color=base.INK)
    entries = [Patch(label="work" if whole_step else "backward", **COMPUTE), Patch(label="message", **MESSAGE)]
    ax.legend(handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=tokens.SMALL_PT, frameon=False)

    heading.tell(picture, asks, statement, *base.of_each(partial(_words, whole_step=whole_step), rows))
    return picture


def finding(steps: Mapping[str, StepTimeline], whole_step: bool = False) -> str:
    """Say which step is shortest, and which has most of its time on the network hidden by work."""
    took_s, hidden = {}, {}
    for name, step in steps.items():
        took_s[name], hidden[name] = step.end_s, step.hidden(whole_step)

    shortest, most_hidden = findings.fastest(took_s), _most_hidden(hidden, INSIDE[whole_step])
    if whole_step:
        return findings.line(most_hidden, shortest)
    return findings.line(shortest, most_hidden)


def _most_hidden(hidden: Mapping[str, float], inside: str) -> str:
    best = findings.leaders(hidden)
    share = _percent(hidden[best[0]])
    if share == "0 %":
        return f"no message travels {inside}"
    if len(hidden) == 1:
        return f"{share} of the time on the network is {inside}"
    if len(best) == len(hidden):
        return f"as much {inside}: about {share} of the time on the network"
    least = min(hidden, key=hidden.__getitem__)
    least_share = f"{least} least, {_percent(hidden[least])}"
    return f"{inside}: {findings.both(best)} most, {share} of the time on the network, {least_share}"


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"


def _row(ax: Axes, place: int, step: StepTimeline, scale: float, longest_s: float, whole_step: bool) -> None:
    for top, intervals, look in ((place - HEIGHT, step.work, COMPUTE), (place, step.messages, MESSAGE)):
        bars = [(start * scale, (end - start) * scale) for start, end in intervals]
        ax.broken_barh(bars, (top, HEIGHT), **look)
    ax.axhline(place + 0.5, color=base.RULE, linewidth=tokens.THIN_PT, zorder=0)

    if not whole_step:
        end = step.backward_s * scale
        ax.plot([end, end], [place - HEIGHT - 0.06, place + HEIGHT + 0.06], color=base.INK, linewidth=tokens.STRONG_PT, zorder=3)
    beside = (step.end_s + 0.01 * longest_s) * scale
    ax.text(beside, place, units.seconds(step.end_s), va="center", fontsize=tokens.LABEL_PT, color=base.INK)


def _words(step: StepTimeline, whole_step: bool) -> str:
    share = _percent(step.hidden(whole_step))
    return f"{units.seconds(step.end_s)}, {share} of the time on the network {INSIDE[whole_step]}"
