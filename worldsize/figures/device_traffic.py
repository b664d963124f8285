"""The traffic between devices in a step, one panel for each way of doing it: boxes for devices, arrows for what crosses.

A box says what its device holds, takes in and gives out; an arrow's style says weights or gradients. The data come from
`crossings`; scalars and times are not drawn.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.figures.frame.inputs import waits_for

KINDS = ("gradients", "weights")
NAMES = {"gradients": "gradients and their sums", "weights": "weights"}
LOOKS = {"gradients": (base.part(0), "-"), "weights": (base.part(1), (0, (3, 1.5)))}
BENDS = {"gradients": 0.16, "weights": 0.24}  # different, so that two kinds' arrows between two boxes do not coincide
PANEL_IN = {3: 2.35, 2: 3.5, 1: 3.5}
LEGEND_IN = 0.3
ROOM = 1.62
StepTraffic = Mapping[str, Any]


@base.plain_style
def moved(steps: Mapping[str, Any], asks: str = "") -> Picture:
    """Draw the traffic between devices in a step, one panel for each way of doing it.

    `steps[name]` is the result of `crossings`, a run that returned it, or None for a step not yet written. `asks` is the
    question above the picture; ValueError unless it ends in "?".
    """
    shown: dict[str, StepTraffic | None] = {}
    for name, step in steps.items():
        shown[name] = None if waits_for(step) else step
        if shown[name] is not None and hasattr(step, "results"):
            shown[name] = step[0]

    known = base.written(shown)
    if not known:
        return base.notice(f"not yet: {', '.join(steps)}")

    columns = min(len(steps), 3)
    if max(len(devices(step)) for step in known.values()) > 4:
        columns = min(columns, 2)

    rows = math.ceil(len(steps) / columns)
    picture = Picture(base.WIDTH_IN, LEGEND_IN + rows * PANEL_IN[columns])
    picture.set_layout_engine("none")
    statement = finding(known)
    head_in = LEGEND_IN + heading.head(picture, asks, statement)
    height_in = picture.get_figheight()

    for index, (name, step) in enumerate(shown.items()):
        row, column = divmod(index, columns)
        bottom = (height_in - head_in - (row + 1) * PANEL_IN[columns]) / height_in
        area = (column / columns, bottom, 1 / columns, PANEL_IN[columns] / height_in)
        _panel(picture.add_axes(area), name, step)

    _legend(picture, known.values(), 1 - (head_in - LEGEND_IN) / height_in)
    heading.tell(picture, asks, statement, *base.of_each(in_words, shown))
    return picture


def finding(steps: Mapping[str, StepTraffic]) -> str:
    """Say, of traffic, which device of which way takes in most or, for a single way, the traffic of its busiest device.

    No graph has the bytes of a collective op, so ways with such an op are not compared.
    """
    if len(steps) == 1:
        ((_, step),) = steps.items()
        if totals(step):
            return of_one(step)

    busiest: dict[str, float] = {}
    device_of = {}
    for name, step in steps.items():
        if step["collectives"]:
            continue
        sums = {device: taken_in(step, device) for device in devices(step)}
        device_of[name] = max(sums, key=sums.get, default="")
        busiest[name] = sums.get(device_of[name], 0)

    if not busiest:
        return "No graph says what moves"
    if not any(busiest.values()):
        return "Nothing moves"
    leaders = findings.leaders(busiest)
    first = max(leaders, key=busiest.get)
    ways = findings.both(leaders, len(busiest))
    return findings.line(f"{device_of[first]} takes in {units.size(busiest[first])}: {ways}")


def of_one(step: StepTraffic) -> str:
    """Say what the busiest device of one step takes in and gives out, by kind."""
    hub = busiest(step)
    ways: dict[str, dict[str, int]] = {"takes in": {}, "gives out": {}}
    for (src, dst, kind), size in totals(step).items():
        for way, end in (("takes in", dst), ("gives out", src)):
            if end == hub:
                ways[way][kind] = ways[way].get(kind, 0) + size

    clauses = []
    for way, sizes in ways.items():
        parts = [f"{units.size(size)} of {NAMES[kind]}" for kind, size in sizes.items()]
        if parts:
            clauses.append(f"{way} {findings.both(parts)}")
    return f"{hub} {' and '.join(clauses)}"


def busiest(step: StepTraffic) -> str:
    """Return the device with most traffic, which takes in and gives out most."""
    return max(devices(step), key=lambda name: taken_in(step, name) + given_out(step, name))


def devices(step: StepTraffic) -> list[str]:
    """Return the devices with traffic, in order of name, that hold, send, receive or take part in a collective."""
    found = {*step["holds"], *step["collectives"]}
    for send in step["sends"]:
        found |= {send["src"], send["dst"]}
    return sorted(found, key=lambda name: (name[:3], len(name), name))


def totals(step: StepTraffic) -> dict[tuple[str, str, str], int]:
    """Return {(src, dst, kind): bytes} of the traffic of a step's weights and gradients, without scalars."""
    sums: dict[tuple[str, str, str], int] = {}
    for send in step["sends"]:
        if send["kind"] in KINDS:
            key = send["src"], send["dst"], send["kind"]
            sums[key] = sums.get(key, 0) + send["bytes"]
    return sums


def taken_in(step: StepTraffic, name: str) -> int:
    """Return the bytes of weights and gradients that a device receives."""
    return sum(size for (_, dst, _), size in totals(step).items() if dst == name)


def given_out(step: StepTraffic, name: str) -> int:
    return sum(size for (src, _, _), size in totals(step).items() if src == name)


def _panel(ax: Axes, name: str, step: StepTraffic | None) -> None:
    ax.set_axis_off()
    ax.set_xlim(-ROOM, ROOM)
    ax.set_ylim(-ROOM + 0.05, ROOM + 0.25)
    ax.text(0, ROOM + 0.12, name, fontsize=tokens.HEAD_PT, weight="bold", color=base.INK, ha="center", va="top")
    if step is None:
        ax.text(0, 0, "not yet", fontsize=tokens.HEAD_PT, color=base.QUIET_INK, ha="center")
        return

    if step["collectives"]:
        size = max(step["collectives"].values())
        words = f"a collective op,\n{units.size(size)} on each\nof {len(step['collectives'])} devices"
        ax.text(0, -0.08, words, fontsize=tokens.SMALL_PT, color=base.INK, ha="center", va="center")

    names = devices(step)
    boxes = {}
    places = _places(len(names))
    if len(names) > 4 and totals(step):  # the busiest device in the middle: none of its arrows passes behind a box
        hub = busiest(step)
        names = [hub, *(device for device in names if device != hub)]
        places = [(0.0, -0.08), *_places(len(names) - 1, round_a_hub=True)]
    for device, place in zip(names, places, strict=True):
        boxes[device] = _box(ax, place, device, step, small=len(names) > 4)

    most = max(totals(step).values(), default=1)
    for (src, dst, kind), size in totals(step).items():
        _arrow(ax, boxes[src], boxes[dst], kind, 0.8 + 1.2 * size / most, BENDS[kind])


def _places(n: int, round_a_hub: bool = False) -> list[tuple[float, float]]:
    """Return `n` devices' places clockwise round a circle, from the top; two stand side by side, four in a square."""
    if n == 1:
        return [(0.0, 0.0)]

    start, wide, high = 0.5, 1.05, 1.05  # `start` is the first angle in half turns; 0.5 is the top
    if round_a_hub:
        wide, high = 1.24, 1.22
    elif n == 2:
        start = 1.0
    elif n == 4:
        start, wide, high = 0.75, 1.34, 1.3
    elif n > 4:
        wide, high = 1.24, 1.22

    places = []
    for k in range(n):
        angle = math.pi * start - 2 * math.pi * k / n
        places.append((wide * math.cos(angle), high * math.sin(angle) - 0.08))
    return places


def _arrow(ax: Axes, start: Text, end: Text, kind: str, width: float, bend: float) -> None:
    """Draw the traffic's arrow from box to box; the boxes lie over it."""
    colour, dashes = LOOKS[kind]
    ax.add_patch(
        FancyArrowPatch(
            start.get_position(), end.get_position(), connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>",
            patchA=start.get_bbox_patch(), patchB=end.get_bbox_patch(), shrinkA=1, shrinkB=2, mutation_scale=9,
            linewidth=width, color=colour, linestyle=dashes, zorder=1,
        )
    )  # fmt: skip


def _box(ax: Axes, place: tuple, name: str, step: StepTraffic, small: bool) -> Text:
    held, edge = "nothing", base.QUIET_INK
    if step["holds"].get(name):
        held, edge = units.size(step["holds"][name]), base.INK

    lines, between = [name], ",\n"
    if not small:
        lines.append(f"holds {held}")
        between = ", "

    went_in, went_out = taken_in(step, name), given_out(step, name)
    if went_in or went_out:
        scale, unit = units.byte_unit(max(went_in, went_out))
        amounts = f"in {units.number(went_in * scale)}", f"out {units.number(went_out * scale)} {unit}"
        lines.append(between.join(amounts))

    look = {"boxstyle": "round,pad=0.3", "facecolor": base.PAPER, "edgecolor": edge, "linewidth": tokens.LINE_PT}
    text = ax.text(*place, "\n".join(lines), fontsize=tokens.TINY_PT, ha="center", va="center", bbox=look, zorder=3)
    text.update_bbox_position_size(ax.figure.canvas.get_renderer())  # arrows end at the box's edge, and are drawn before the box
    return text


def _legend(picture: Picture, known: Iterable[StepTraffic], top: float) -> None:
    entries = []
    present = {kind for _, _, kind in chain(*map(totals, known))}
    for kind in KINDS:
        if kind in present:
            colour, dashes = LOOKS[kind]
            entries.append(Line2D([], [], color=colour, linestyle=dashes, linewidth=tokens.STRONG_PT, label=NAMES[kind]))

    if entries:
        picture.legend(
            handles=entries, loc="upper left", bbox_to_anchor=(0.0, top), fontsize=tokens.LABEL_PT, frameon=False,
            ncols=len(entries), handlelength=3,
        )  # fmt: skip


def in_words(step: StepTraffic) -> str:
    """Return the alt text of the traffic in a step: what each device holds, and what moves between devices."""
    words = []
    if step["holds"]:
        held = [f"{units.size(size)} on {name}" for name, size in sorted(step["holds"].items())]
        words.append(f"holds {', '.join(held)}")

    for (src, dst, kind), size in totals(step).items():
        words.append(f"{NAMES[kind]}, {units.size(size)}, from {src} to {dst}")

    if step["collectives"]:
        words.append(f"a collective op of {units.size(max(step['collectives'].values()))} on each device")
    return "; ".join(words) or "nothing"
