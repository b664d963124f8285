"""A replay as one still picture, where no script runs: every run a band of lanes, all on the same axis of time."""

from collections.abc import Sequence
from operator import attrgetter

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.replay.racers import Racer, standing

LANE_IN, BAND_IN, AXIS_IN, TITLE_IN, LEFT_IN = 0.14, 0.42, 0.42, 0.36, 0.45
LINE = {"linewidths": 0.8, "alpha": 0.8}


@base.plain_style
def still(racers: Sequence[Racer], title: str) -> Picture:
    """Draw the still picture of a replay: every message a line from its sender's lane to its receiver's."""
    lanes = sum(map(attrgetter("world_size"), racers))
    high_in = TITLE_IN + AXIS_IN + BAND_IN * len(racers) + LANE_IN * lanes
    picture = Picture(base.WIDTH_IN, high_in)
    picture.set_layout_engine("none")  # every band's place is known
    picture.text(0.01, 1 - 0.1 / high_in, title, va="top", fontsize=tokens.TITLE_PT, color=base.INK)

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
