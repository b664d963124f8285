"""Pictures of TensorFlow's graphs by device: which device holds what, and which tensors cross between devices in a step.

`placement` draws devices as rows, `route` as lanes with arrows; both take plain data from `graphs`. Arrows stand at equal
distances, in the order in which their tensors were ready: the length of a transfer is not shown.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.figures.frame.inputs import waits_for
from worldsize.tf.graphs import Move, order

LABEL_IN, PAD_IN, LINE_IN, CHIP_IN = 1.45, 0.12, 0.27, 0.21
CHARACTER_IN = 0.072  # average width at 8 points, rather too broad
MOST_TYPES = 5
MINOR = {"Cast", "DivNoNan", "ExpandDims", "Fill", "Pack", "Reshape", "Shape", "Squeeze", "StridedSlice", "Transpose"}
HEAVY = {"MatMul", "Conv2D"}
KINDS = ("data", "weights", "gradients", "average", "rate")  # numbered first: the same look in every picture

Devices = Mapping[str, Mapping[str, Mapping[str, int]]]


@base.plain_style
def placement(devices: Devices | Any, asks: str = "") -> Picture:
    """Draw a row for each device, with a chip for each variable that the device holds.

    A chip shows its variable's bytes, a row the number of operations on its device. `devices` is the result of
    `graphs.placed`, or a run that is "not yet". `asks` is the question above the picture; ValueError unless it ends in "?".
    """
    if waits_for(devices):
        return base.not_yet(waits_for(devices))

    rows = {name: row for name, row in devices.items() if row["variables"] or row["operations"]}
    if not rows:
        return base.notice("no device holds anything yet")

    laid, heights = {}, {}
    for name, row in rows.items():
        laid[name] = _chips(row["variables"])
        heights[name] = LINE_IN * (len(laid[name]) + 1) + 0.1

    finding = "; ".join(filter(None, [held(rows), computes(rows)]))  # not `findings.line`: a task's name gets no capital
    picture, ax, y = _sheet(asks, finding, sum(heights.values()) + 0.12 * len(rows))
    sentences = []

    for index, (name, row) in enumerate(rows.items()):
        height = heights[name]
        _box(ax, LABEL_IN, y, base.WIDTH_IN - LABEL_IN - 0.06, height, facecolor=base.PAPER, edgecolor=base.QUIET_INK)
        look = {"marker": base.marker(index), "color": base.algorithm(index), "markersize": 7, "markeredgecolor": base.INK}
        ax.plot(0.16, y + height / 2, **look)
        ax.text(0.3, y + height / 2, name, fontsize=tokens.LABEL_PT, color=base.INK, va="center")

        for line, chips in enumerate(laid[name]):
            top = y + 0.1 + LINE_IN * line
            for x, text in chips:
                _box(ax, x, top, _width(text), CHIP_IN, facecolor=tokens.SHADE.light, edgecolor=base.INK)
                look = {"fontsize": tokens.SMALL_PT, "color": base.INK, "ha": "center", "va": "center"}
                ax.text(x + _width(text) / 2, top + CHIP_IN / 2, text, **look)

        below = y + height - 0.17
        ax.text(LABEL_IN + PAD_IN, below, _works(row), fontsize=tokens.SMALL_PT, color=base.QUIET_INK, va="center")
        y += height + 0.12

        holds = "no variables"
        if row["variables"]:
            holds = f"variables {base.listed(row['variables'], units.size)}"
        sentences.append(f"{name}: {holds}; {_works(row)}")

    heading.tell(picture, asks, finding, *sentences)
    return picture


def held(rows: Devices) -> str:
    """Say which task or device, by placement, holds how much of the variables."""
    sums = {name: sum(row["variables"].values()) for name, row in rows.items() if row["variables"]}
    if not sums:
        return "No device holds a variable"

    first, whole = max(sums, key=sums.get), sum(sums.values())
    if len(sums) == 1:
        return f"{_task(first)} holds all variables"
    if len(findings.leaders(sums)) == len(sums):
        return findings.line(findings.ranked(sums, ("holds", "hold"), units.size))
    share = 100  # only the whole is 100 %
    if sums[first] < whole:
        share = min(99, round(100 * sums[first] / whole))
    return f"{_task(first)} holds {share} % of the variables' {units.size(whole)}"


def computes(rows: Devices) -> str:
    """Name the tasks or devices that multiply matrices; empty where none does."""
    names = list(dict.fromkeys(_task(name) for name, row in rows.items() if HEAVY & set(row["operations"])))
    if not names:
        return ""
    return f"{findings.both(names, len(rows))} {findings.verb(names, 'multiplies', 'multiply')} matrices"


def _chips(variables: Mapping[str, int]) -> list[list[tuple[float, str]]]:
    """Return a placement's lines of (x, text), each with as many chips as fit; no lines without variables."""
    lines: list[list[tuple[float, str]]] = []
    end = math.inf  # where the next chip would begin

    for name, size_bytes in variables.items():
        text = f"{name} {units.size(size_bytes)}"
        if end + _width(text) > base.WIDTH_IN - PAD_IN:
            lines.append([])
            end = LABEL_IN + PAD_IN
        lines[-1].append((end, text))
        end += _width(text) + 0.08

    return lines


def _width(text: str) -> float:
    return CHARACTER_IN * len(text) + 0.12


def _sheet(asks: str, finding: str, height_in: float) -> tuple[Picture, Axes, float]:
    """Return a placement's picture measured in inches from the top left, its axes, and where its rows begin."""
    picture = Picture(base.WIDTH_IN, height_in)
    picture.set_layout_engine("none")
    top = heading.head(picture, asks, finding)
    ax = picture.add_axes((0, 0, 1, 1))

    ax.set_axis_off()
    ax.set_xlim(0, base.WIDTH_IN)
    ax.set_ylim(top + height_in, 0)
    return picture, ax, top


def _box(ax: Axes, x: float, y: float, width: float, height: float, **look: str) -> None:
    shape = "round,pad=0,rounding_size=0.05"
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, linewidth=tokens.THIN_PT, **look))


def _works(row: Mapping[str, Mapping[str, int]]) -> str:
    """Return how many operations are placed on a device, and their types: `MINOR` ones last, else the most frequent first."""
    counts = row["operations"]
    if not counts:
        return "no operations"

    types = sorted(counts, key=lambda name: (name in MINOR, -counts[name]))
    if len(types) > MOST_TYPES:
        types[MOST_TYPES:] = ["…"]
    return f"{units.count(sum(counts.values()), 'operation')}: {', '.join(types)}"


@dataclass(frozen=True)
class Hop:
    """The tensors of one kind that went from one device to another in a step."""

    src: str
    dst: str
    kind: str
    size_bytes: int


def hops(moves: Iterable[Move]) -> list[Hop]:
    """Merge a route's moves of one kind between the same two devices, with the sum of their bytes.

    Each sum stands in the order of its first move.
    """
    sums: dict[tuple[str, str, str], int] = {}
    for move in sorted(moves, key=lambda move: move.at):
        key = (move.src, move.dst, move.kind)
        sums[key] = sums.get(key, 0) + move.size_bytes

    return [Hop(*key, size_bytes) for key, size_bytes in sums.items()]


@base.plain_style
def route(moves: Iterable[Move] | Any, asks: str = "") -> Picture:
    """Draw the way of a step's tensors: a lane for each device, and arrows in order, each with its bytes.

    `moves` is the result of `graphs.moves`, or a run that is "not yet". `asks` is the question above the picture;
    ValueError unless it ends in "?".
    """
    if waits_for(moves):
        return base.not_yet(waits_for(moves))
    path = hops(moves)
    if not path:
        return base.notice("no tensor went from one device to another")

    lanes = sorted(set(chain(*map(attrgetter("src", "dst"), path))), key=order)
    finding = travels(path)
    picture, ax, top = _sheet(asks, finding, 0.3 + 0.55 * len(lanes))
    ys = {lane: top + 0.5 + 0.55 * index for index, lane in enumerate(lanes)}
    for lane, y in ys.items():
        ax.plot([LABEL_IN, base.WIDTH_IN - 0.1], [y, y], color=base.RULE, linewidth=tokens.LINE_PT, zorder=0)
        ax.text(0.1, y, lane, fontsize=tokens.LABEL_PT, color=base.INK, va="center")

    present = list(dict.fromkeys(map(attrgetter("kind"), path)))
    kinds = list(dict.fromkeys([*KINDS, *present]))
    step = (base.WIDTH_IN - LABEL_IN - 0.35) / len(path)
    for place, hop in enumerate(path):
        _arrow(ax, LABEL_IN + 0.35 + step * place, ys, hop, kinds.index(hop.kind))

    entries = []
    for index, kind in enumerate(kinds):
        if kind in present:
            look = {"color": base.algorithm(index), "linestyle": _dashes(index)}
            entries.append(Line2D([], [], linewidth=tokens.STRONG_PT, label=kind, **look))
    ax.legend(
        handles=entries, loc="upper right", bbox_to_anchor=(1, 1 - (top - 0.05) / picture.get_figheight()),
        fontsize=tokens.SMALL_PT, frameon=False, ncols=len(entries), handlelength=3,
    )  # fmt: skip

    clauses = [f"{hop.kind} {units.size(hop.size_bytes)} from {hop.src} to {hop.dst}" for hop in path]
    heading.tell(picture, asks, finding, "; ".join(clauses))
    return picture


def travels(hops: Iterable[Hop]) -> str:
    """Say what a route carries between tasks or, within one task, how many transfers and bytes there are and who sends most."""
    hops = tuple(hops)
    if any(_task(hop.src) != _task(hop.dst) for hop in hops):
        return between_tasks(hops)
    sent: dict[str, float] = {}
    for hop in hops:
        sent[hop.src] = sent.get(hop.src, 0) + hop.size_bytes

    most = findings.ranked(sent, ("sends", "send"), units.size)
    if len(sent) == 1:
        (only,) = sent
        most = f"{only} sends all"
    return findings.line(f"{units.count(len(hops), 'transfer')}, {units.size(sum(sent.values()))} in all", most)


def between_tasks(hops: Sequence[Hop]) -> str:
    """Say how often each kind of tensor crosses the network from one task to another, and with how many bytes."""
    sizes: dict[str, list[float]] = {}
    inside = 0
    for hop in hops:
        if _task(hop.src) == _task(hop.dst):
            inside += 1
        else:
            sizes.setdefault(hop.kind, []).append(hop.size_bytes)

    clauses = []
    for kind, sent in sizes.items():
        times = {1: "once", 2: "twice"}.get(len(sent), f"{len(sent)} times")
        clauses.append(f"{kind} {times}, {units.size(sum(sent))}")
    return findings.line(f"between tasks: {'; '.join(clauses)}", inside and f"{units.count(inside, 'transfer')} within a task")


def _task(device: str) -> str:
    """Return the task of a device, "worker 0" for "worker 0, CPU:1"; on one machine, the device itself."""
    return device.split(",")[0]


def _arrow(ax: Axes, x: float, ys: Mapping[str, float], hop: Hop, index: int) -> None:
    """Draw the arrow of a hop; `index` numbers the hop's kind, which gives the arrow its look."""
    begin, end = ys[hop.src], ys[hop.dst]
    look = {"color": base.algorithm(index), "linewidth": tokens.STRONG_PT, "linestyle": _dashes(index), "mutation_scale": 11}
    ax.annotate("", (x, end), (x, begin), arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **look}, zorder=2)
    ax.plot(x, begin, marker="o", markersize=4, color=base.algorithm(index), zorder=2)

    # just before the arrow's end, between two lanes: one sender's arrows end at different heights, so sizes do not collide
    y = end - math.copysign(0.27, end - begin)
    size, white = units.size(hop.size_bytes), {"facecolor": base.PAPER, "edgecolor": "none", "pad": 0.6}
    ax.text(x, y, size, fontsize=tokens.TINY_PT, color=base.INK, ha="center", va="center", bbox=white, zorder=3)


def _dashes(index: int) -> Any:
    return ("-", (0, (4, 1.2)), (0, (1.5, 1)), (0, (4, 1, 1, 1)))[index % 4]
