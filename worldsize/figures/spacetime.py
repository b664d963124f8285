"""The space-time diagram: ranks are lanes, time runs to the right, a message is an arrow from sender to receiver.

L. Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM 21, 1978, drew processes so. Work is a
bar in its rank's lane. The messages inside a framework's collectives aren't recorded, so they are missing.
"""

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import heading
from worldsize.figures.frame.inputs import began_s, ended_s, marked, trace_of
from worldsize.figures.frame.message_pattern import message_pattern
from worldsize.trace import on_logical_clock

MOST_ARROWS_A_RANK = 32
MOST_INK = 640
LONG_ARROW = 6
THIN_BAR = 0.12  # the height of a wait, in lanes
PALE = 0.25  # the opacity of work
MUCH_LARGER = 4  # ratio of sizes from which an arrow's width shows its bytes
SIDE_BY_SIDE = 0.015  # of the time drawn
MOST_EQUAL_LABELS = 6  # fewer than `MOST_LABELS`: the headline gives an equal size too
MOST_LABELS = 80
LABEL_PLACES = (0.5, 0.35, 0.65, 0.2, 0.8)
DrawnArrow = tuple[float, float, Any]  # begin, end, transfer


@base.plain_style
def messages(of: Any, in_steps: bool = False) -> Picture:
    """Draw a run's messages as a space-time diagram: an arrow each, its size beside it where there is room.

    With `in_steps`, time is a logical clock: it shows what comes after what, not how long it took.
    """
    trace, instead = trace_of(of)
    if instead is not None:
        return instead

    finding = message_pattern(trace)
    if in_steps:
        trace = on_logical_clock(trace)

    shown, spans = _legible(trace), marked(trace)
    start_s, end_s = began_s([*shown, *spans]), ended_s(shown)
    if len(shown) == len(trace.transfers):
        end_s = ended_s([*shown, *spans])

    scale, unit, x = 1.0, "", "step"
    if not in_steps:
        scale, unit = units.time_unit(end_s - start_s)
        x = f"time since the first event ({unit})"

    picture = Picture(base.WIDTH_IN, min(7.9, 1.15 + 0.42 * trace.world_size))
    ax = picture.plot_area()
    _lanes(ax, trace.world_size)
    _bars(ax, [s for s in spans if s.start_s < end_s], start_s, end_s, scale)

    arrows = [((t.start_s - start_s) * scale, (t.end_s - start_s) * scale, t) for t in shown]
    widths = _widths(list(map(attrgetter("size_bytes"), shown)))
    head = 6 if len(arrows) > 200 else 9
    for (begin, end, transfer), width in zip(arrows, widths, strict=True):
        look = {"arrowstyle": "-|>", "linewidth": width, "mutation_scale": head, "shrinkA": 0, "shrinkB": 0}
        look |= {"color": base.colour(transfer.src), "linestyle": base.dashes(transfer.src)}
        arrow = ax.annotate("", (end, transfer.dst), (begin, transfer.src), arrowprops=look, zorder=2)
        arrow.set_in_layout(False)

    ax.set_xlim(0, max((end_s - start_s) * scale, 1e-9) * 1.01)
    if in_steps:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)

    totals = _totals(trace, shown, unit, scale, start_s)
    heading.head(picture, "", finding[0].upper() + finding[1:], totals)

    _size_labels(picture, ax, arrows)

    picture.alt = f"Space-time diagram of {units.count(trace.world_size, 'rank')}: {finding}. {totals}."
    return picture


def _legible(trace: Any) -> list[Any]:
    """Return the first messages that can be told apart: an arrow over many lanes counts for up to `LONG_ARROW`."""
    shown, ink = [], 0
    for t in sorted(trace.transfers, key=lambda t: (t.start_s, t.end_s)):
        ink += min(abs(t.dst - t.src), LONG_ARROW)
        if shown and (ink > MOST_INK or len(shown) >= MOST_ARROWS_A_RANK * trace.world_size):
            break
        shown.append(t)
    return shown


def _totals(trace: Any, shown: Sequence[Any], unit: str, scale: float, start_s: float) -> str:
    count, sizes = len(trace.transfers), [t.size_bytes for t in trace.transfers]
    text = units.count(count, "message")
    if count > 1 and len(set(map(units.size, sizes))) == 1:
        text += f", {units.size(sizes[0])} each"

    whole_s = ended_s(trace.transfers) - start_s
    lasting = units.count(round(whole_s), "step")
    if unit:
        lasting = units.seconds(whole_s)
    text += f", {units.size(sum(sizes))} in all, {lasting}"

    if len(shown) < count:
        drawn = units.number((ended_s(shown) - start_s) * scale, unit or "steps")
        text += f"; only the first {len(shown):,} are drawn ({drawn})"
    return text


def _lanes(ax: Axes, world_size: int) -> None:
    for rank in range(world_size):
        ax.axhline(rank, color=base.RULE, linewidth=tokens.LINE_PT, zorder=0)
        base.rank_mark(ax, rank, rank)

    ax.set_ylim(world_size - 0.4, -0.6)
    ax.set_yticks(range(world_size), base.numbered("rank", world_size))
    ax.tick_params(axis="y", pad=14)


def _bars(ax: Axes, spans: Sequence[Any], start_s: float, end_s: float, scale: float) -> None:
    for span in spans:
        left, right = (span.start_s - start_s) * scale, (min(span.end_s, end_s) - start_s) * scale
        height, look = THIN_BAR, {"facecolor": tokens.IDLE.light, "edgecolor": base.QUIET_INK}
        if span.kind == "compute":  # pale, so that arrows are seen on it
            height = 0.3
            look = {"facecolor": to_rgba(base.colour(span.rank), PALE), "edgecolor": base.colour(span.rank)}
        ax.barh(span.rank, right - left, height, left, zorder=1, linewidth=tokens.HAIR_PT, **look)

    kinds = set(map(attrgetter("kind"), spans))
    entries = []
    if "compute" in kinds:
        entries.append(Patch(facecolor=base.RULE, edgecolor=base.QUIET_INK, linewidth=tokens.HAIR_PT, label="compute"))
    if "wait" in kinds:
        entries.append(Patch(facecolor=tokens.IDLE.light, edgecolor=base.QUIET_INK, linewidth=tokens.HAIR_PT, label="wait"))
    if entries:
        entries.append(Line2D([], [], color=base.QUIET_INK, label="message"))
        ax.legend(handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize=tokens.SMALL_PT, frameon=False)


def _widths(sizes: Sequence[int]) -> list[float]:
    """Return the width of each message's arrow in points: by bytes where they differ much, and thinner if there are many."""
    usual = tokens.LINE_PT
    if len(sizes) > 200:
        usual = tokens.HAIR_PT
    elif len(sizes) > 60:
        usual = tokens.THIN_PT

    least, most = max(1, min(sizes)), max(1, *sizes)
    if most < MUCH_LARGER * least:
        return [usual] * len(sizes)
    return [usual * (0.6 + 1.2 * math.log(max(1, size) / least) / math.log(most / least)) for size in sizes]


def _bundles(arrows: Sequence[DrawnArrow], whole: float) -> list[list[DrawnArrow]]:
    """Group the diagram's arrows over one link that begin so soon after one another that they lie side by side."""
    bundles: list[list[DrawnArrow]] = []
    latest: dict[tuple[int, int], list[DrawnArrow]] = {}
    for arrow in arrows:
        begin, _, transfer = arrow
        link = transfer.src, transfer.dst
        if link in latest and begin - latest[link][-1][0] <= SIDE_BY_SIDE * whole:
            latest[link].append(arrow)
        else:
            latest[link] = [arrow]
            bundles.append(latest[link])
    return bundles


def _bundle_size(bundle: Sequence[DrawnArrow]) -> str:
    sizes = [transfer.size_bytes for _, _, transfer in bundle]
    if len(sizes) == 1:
        return units.size(sizes[0])
    if len(set(sizes)) == 1:
        return f"{len(sizes)} × {units.size(sizes[0])}"
    return f"{len(sizes)}: {units.size(sum(sizes))}"


def _size_labels(picture: Picture, ax: Axes, arrows: Sequence[DrawnArrow]) -> None:
    """Write a message's size on each arrow or bundle of the diagram, where it touches no other label.

    Write none where there are too many; the limit is lower if all are equal.
    """
    bundles = _bundles(arrows, ax.get_xlim()[1])
    sizes = list(map(_bundle_size, bundles))
    most = MOST_EQUAL_LABELS if len(set(sizes)) == 1 else MOST_LABELS
    if len(sizes) > most:
        return

    picture.canvas.draw()  # constrained layout moves the axes; only now are pixels known
    inside = ax.get_window_extent()
    taken = [bar.get_window_extent() for bar in ax.patches if bar.get_height() > THIN_BAR]

    for bundle, size in zip(bundles, sizes, strict=True):
        begin, end, transfer = bundle[len(bundle) // 2]
        label = ax.text(
            0, 0, size, fontsize=tokens.SMALL_PT, color=base.INK, ha="center", va="center", zorder=3,
            bbox={"facecolor": base.PAPER, "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
        for place in LABEL_PLACES:
            y = transfer.src + place * (transfer.dst - transfer.src)
            label.set(position=(begin + place * (end - begin), y), ha="center")
            words = label.get_window_extent()
            if words.x0 < inside.x0 or words.x1 > inside.x1:  # beside the arrow at an end of the axis
                label.set_ha("left" if words.x0 < inside.x0 else "right")
                words = label.get_window_extent()
            box = words.padded(8, 3)
            on_a_lane = abs(y - round(y)) < 0.2
            across = inside.x0 <= words.x0 and words.x1 <= inside.x1
            if across and not on_a_lane and not any(map(box.overlaps, taken)):
                taken.append(box)
                break
        else:
            label.remove()
