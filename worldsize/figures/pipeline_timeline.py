"""A pipeline's timeline: a lane for each stage, a box for each micro-batch forward or backward, grey where a stage is idle.

Forward and backward differ by colour and height; where backward passes are split, weights' gradients are a paler backward
with an outline. The number is the micro-batch, with a prime for each earlier chunk of the stage. Y. Huang et al.,
"GPipe", arXiv:1811.06965, 2019, figure 2, draw it so; the run is real or simulated.
"""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch, Rectangle

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import heading
from worldsize.figures.frame.inputs import waits_for
from worldsize.formulas.pipeline import BACKWARD, FORWARD, WEIGHTS, StagePass, makespan_s, works

PALE = 0.5  # the opacity of weights' gradients
LOOKS = {
    FORWARD: {"facecolor": tokens.COMPUTE.light, "edgecolor": base.PAPER, "linewidth": tokens.THIN_PT},
    BACKWARD: {"facecolor": tokens.BACKWARD.light, "edgecolor": base.PAPER, "linewidth": tokens.THIN_PT},
    WEIGHTS: {
        "facecolor": to_rgba(tokens.BACKWARD.light, PALE), "edgecolor": tokens.BACKWARD.light, "linewidth": tokens.THIN_PT,
    },
}  # fmt: skip
IDLE = {"facecolor": tokens.IDLE.light, "edgecolor": "none"}
NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHTS: "weights' gradients"}
PRIME = "′"
LANE_HEIGHT = 0.72
HEIGHTS = {FORWARD: 0.52, BACKWARD: 0.72, WEIGHTS: 0.72}
DIGIT_EM, PRIME_EM = 0.7, 0.27  # widths of bold characters in their height
EDGE_PT = 1.0
MOST_ARROWS = 70
MOST_TOLD = 8  # stages
MOST_PASSES_TOLD = 12


@base.plain_style
def pipeline(of: Any, asks: str = "") -> Picture:
    """Draw a pipeline's stages in time, from the spans "forward k" and "backward k" that they marked, with their messages.

    `asks` is the question above the picture; ValueError unless it ends in "?".
    """
    if waits_for(of):
        return base.not_yet(waits_for(of))

    trace = getattr(of, "trace", of)
    marked = works(trace) if trace else []
    if not marked:
        return base.notice("no forward and no backward was marked")

    start_s, whole_s = marked[0].start_s, makespan_s(trace)
    scale, unit = units.time_unit(whole_s)

    picture = Picture(base.WIDTH_IN, 0.75 + 0.46 * trace.world_size)
    picture.set_layout_engine(None)
    statement = finding(trace)
    head_in = heading.head(picture, asks, statement, f"{units.seconds(whole_s)} from the first forward to the last backward")
    height_in = picture.get_figheight()
    picture.subplots_adjust(0.85 / base.WIDTH_IN, 0.5 / height_in, 1 - 0.2 / base.WIDTH_IN, 1 - (head_in + 0.25) / height_in)
    ax = picture.plot_area()

    _lanes(ax, trace.world_size, whole_s * scale)
    ax.set_xlim(0, whole_s * scale)
    points = 72 * base.WIDTH_IN * ax.get_position().width / (whole_s * scale)  # of one unit of time
    for work in marked:
        _box(ax, work, start_s, scale, points)
    _arrows(ax, trace, start_s, start_s + whole_s, scale)
    ax.set_xlabel(f"time since the first forward ({unit})", fontsize=tokens.LABEL_PT, color=base.INK)
    _legend(ax, {work.way for work in marked})

    over = f"Timeline of {units.count(trace.world_size, 'pipeline stage')}: {statement}"
    heading.tell(picture, asks, over, _told(marked, trace).removesuffix("."))
    return picture


def finding(trace: Any) -> str:
    """Say what part of the time a pipeline's stages work, and which works most where they differ."""
    shares = _percents(trace)
    low, high = min(shares), max(shares)
    if low == high:
        return f"Each stage works {high} % of the time and is idle {100 - high} %"
    if high - low <= 5:
        return f"Stages work {low} to {high} % of the time; they are idle {100 - high} to {100 - low} %"

    most, others = [], []
    for stage, share in enumerate(shares):
        if high - share <= 2:
            most.append(stage)
        else:
            others.append(share)

    who = f"Stage {most[0]} works"
    if len(most) > 1:
        who = f"{len(most)} of {len(shares)} stages work"
    rest = f"{min(others)} %" if min(others) == max(others) else f"{min(others)} to {max(others)} %"
    return f"{who} {high} % of the time, {'the other' if len(others) == 1 else 'the others'} {rest}"


def _percents(trace: Any) -> list[int]:
    """Return the part of the time that each pipeline stage works, in per cent."""
    worked_s = [0.0] * trace.world_size
    for work in works(trace):
        worked_s[work.stage] += work.end_s - work.start_s

    whole_s = makespan_s(trace)
    return [round(100 * (stage_s / whole_s)) for stage_s in worked_s]


def _lanes(ax: Axes, stages: int, width: float) -> None:
    for stage in range(stages):
        ax.add_patch(Rectangle((0, stage - LANE_HEIGHT / 2), width, LANE_HEIGHT, zorder=0, **IDLE))
        base.rank_mark(ax, stage, stage)

    ax.set_yticks(range(stages), base.numbered("stage", stages))
    ax.tick_params(axis="y", pad=14)
    ax.set_ylim(stages - 0.5, -0.5)


def _box(ax: Axes, work: StagePass, start_s: float, scale: float, points: float) -> None:
    """Draw one pass of a pipeline's stage, with its number where the box holds it; `points` are the width of a unit of time."""
    left, width, height = (work.start_s - start_s) * scale, (work.end_s - work.start_s) * scale, HEIGHTS[work.way]
    where = (left, work.stage - height / 2), width, height
    if work.way == WEIGHTS:  # an outline inside of the box, and no grey of the lane through its pale colour
        ax.add_patch(Rectangle(*where, facecolor=base.PAPER, edgecolor="none", zorder=1))
        inset = min(EDGE_PT / points, width / 4)
        where = (left + inset, work.stage - height / 2), width - 2 * inset, height
    ax.add_patch(Rectangle(*where, zorder=2, **LOOKS[work.way]))

    size = _number_pt(work, width * points)
    if size:
        ink = base.INK if work.way == WEIGHTS else base.PAPER
        look = {"ha": "center", "va": "center_baseline", "fontweight": "bold"}
        ax.text(left + width / 2, work.stage, _number(work), fontsize=size, color=ink, zorder=4, **look)


def _number_pt(work: StagePass, width_pt: float) -> float:
    """Return the size of a pass's number in its box of the pipeline, the larger one that fits; 0 where none does."""
    ems = DIGIT_EM * len(str(work.micro)) + PRIME_EM * work.chunk
    return next((size for size in (tokens.SMALL_PT, tokens.TINY_PT) if ems * size <= width_pt - EDGE_PT), 0)


def _number(work: StagePass) -> str:
    return f"{work.micro}{PRIME * work.chunk}"


def _arrows(ax: Axes, trace: Any, start_s: float, end_s: float, scale: float) -> None:
    """Draw the messages between pipeline stages, where there are few enough: they show what waits for what."""
    if len(trace.transfers) > MOST_ARROWS:
        return

    look = {"arrowstyle": "-|>", "color": base.QUIET_INK, "linewidth": tokens.THIN_PT, "shrinkA": 0, "shrinkB": 0}
    look["mutation_scale"] = 7
    for t in trace.transfers:
        if start_s <= t.start_s and t.end_s <= end_s:
            half_box = math.copysign(LANE_HEIGHT / 2, t.dst - t.src)
            begin = ((t.start_s - start_s) * scale, t.src + half_box)
            end = ((t.end_s - start_s) * scale, t.dst - half_box)
            ax.annotate("", end, begin, arrowprops=look, zorder=3)


def _legend(ax: Axes, ways: set[str]) -> None:
    entries = [Patch(label=NAMES[way], **look) for way, look in LOOKS.items() if way in ways or way != WEIGHTS]
    entries.append(Patch(label="idle", **IDLE))
    ax.legend(
        handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(entries), fontsize=tokens.SMALL_PT, frameon=False,
        labelcolor=base.QUIET_INK,
    )  # fmt: skip


def _told(marked: Sequence[StagePass], trace: Any) -> str:
    """Return each pipeline stage's share of work and the order of its passes, as text."""
    stages = []
    for stage, share in enumerate(_percents(trace)[:MOST_TOLD]):
        own = [f"{work.way[0].upper()}{_number(work)}" for work in marked if work.stage == stage]
        order = " ".join(own[:MOST_PASSES_TOLD])
        if len(own) > MOST_PASSES_TOLD:
            order += f" and {len(own) - MOST_PASSES_TOLD} more"
        stages.append(f"Stage {stage} works {share} %: {order}.")
    return " ".join(stages)
