"""Stacked bars of what adds up on every rank, such as memory by use, in groups that share one scale.

Colour tells the parts apart, and the sum is written out. A bar computed by a formula is pale and dashed, and the
finding is about the others.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading

ROOM_FOR_TEXT = 1.2
SUM_WIDTH = 0.15  # of the longest bar: the width of a sum's text
COMPUTED = "formula"  # in the name of a computed row or group
TRAINING = ("parameters", "gradients", "optimizer")  # each has its own colour, also where another one is missing
THIN = 0.006  # of the axis: a part that its pale edges would hide
PALE = 0.3  # of a part's colour, in a bar that is computed
LEAST_HEIGHT_IN = 2.2  # room for legend and axis round a single bar

Parts = Mapping[str, float]
Rows = Sequence[Parts] | Mapping[str, Parts]


@base.plain_style
def stacks(
    groups: Mapping[str, Rows | None],
    asks: str = "",
    what: str = "memory",
    limit: tuple[str, float] | None = None,
) -> Picture:
    """Draw stacked bars of bytes: `groups[name][rank]` is {part: bytes}; None for a group not yet measured.

    Rows may have labels instead of ranks: `groups[name][label]`. With "formula" in its label or in its group's name, a row
    is computed. `limit` is a line's name and bytes. `asks` is the question above the picture; ValueError unless it ends in
    "?".
    """
    labelled = {name: _labelled(rows) for name, rows in base.written(groups).items()}
    if not labelled:
        return base.notice(f"not measured yet: {', '.join(groups)}")

    known: list[Parts] = []
    for rows in labelled.values():
        known += rows.values()
    highest = [sum(row.values()) for row in known]

    names = list(dict.fromkeys(chain(*known)))
    if set(names) <= set(TRAINING):
        names = list(TRAINING)
    groups_measured, measured = _measured(labelled), set()
    for rows in groups_measured.values():
        measured.update(*rows.values())
    if limit:
        highest.append(limit[1])
    largest = max(highest) or 1
    scale, unit = units.byte_unit(largest)
    picture = Picture(base.WIDTH_IN, max(LEAST_HEIGHT_IN, 0.8 + 0.27 * len(known) + 0.34 * len(groups)))
    ax = picture.plot_area()

    y, ticks = 0.0, []
    ax.set_xlim(0, largest * scale * ROOM_FOR_TEXT)
    for name, rows in groups.items():
        head = name
        if rows is None:
            head = f"{name}: not yet"
        ax.text(0, y, head, fontsize=tokens.HEAD_PT, weight="bold", color=base.INK, va="center")
        y += 1.0
        for label, row in labelled.get(name, {}).items():
            _bar(ax, y, row, names, scale, computed=_computed(name, label), measured=measured)

            size_bytes = end = sum(row.values())
            if limit and end <= limit[1] < end + SUM_WIDTH * largest:  # the sum's text would cross the line
                end = limit[1]
            ax.text(end * scale, y, f" {units.size(size_bytes)}", fontsize=tokens.LABEL_PT, color=base.INK, va="center")
            ticks.append((y, label))
            y += 1
        y += 0.25

    ax.set_yticks(*zip(*ticks, strict=True))
    ax.set_ylim(y - 0.6, -0.7)
    ax.set_xlabel(f"{what} ({unit})", fontsize=tokens.LABEL_PT, color=base.INK)
    if limit:
        name, x = limit[0], limit[1] * scale
        ax.axvline(x, color=base.INK, linewidth=tokens.LINE_PT, linestyle=(0, (5, 2)))
        ax.text(x, ax.get_ylim()[0], f" {name}", fontsize=tokens.LABEL_PT, color=base.INK, va="bottom")
    _legend(ax, names, measured)

    found = finding(groups_measured, limit, len(labelled) == 1)
    heading.head(picture, asks, found)
    said = [found]
    if limit:
        said.append(f"The line: {limit[0]}, {units.size(limit[1])}")
    heading.tell(picture, asks, *said, *base.of_each(_words, groups))
    return picture


def finding(groups: Mapping[str, Mapping[str, Parts]], limit: tuple[str, float] | None, alone: bool = True) -> str:
    """Say which group's fullest stack is highest or, with a limit, which bars stay under it.

    A single group's own bars are compared where it stands `alone`, without a group of formulas.
    """
    fullest = {}
    for name, rows in groups.items():
        sums = {label: sum(row.values()) for label, row in rows.items()}
        fullest[name] = max(sums.values(), default=0.0)
    if len(groups) == 1 and (alone or limit):
        fullest = sums

    if limit:
        return _fits(fullest, *limit)
    return findings.line(findings.ranked(fullest, ("has", "have"), units.size))


def _fits(fullest: Mapping[str, float], name: str, limit: float) -> str:
    """Say which groups of stacked bars, or which bars of a single group, stay under a limit, and how far the highest bar is."""
    over, under = [], []
    for who, size_bytes in fullest.items():
        if size_bytes > limit:
            over.append(who)
        else:
            under.append(who)
    if len(fullest) == 1:
        (size_bytes,) = fullest.values()
        said = "It does not fit" if over else "It fits"
        return f"{said}: {units.size(size_bytes)}, {units.times(size_bytes / limit)} times {name}"
    highest = f"the highest bar is {units.times(max(fullest.values()) / limit)} times {name}"
    if not over:
        return f"All fit: {highest}"
    if not under:
        return f"None fits: {highest}"
    return f"What fits: {findings.both(under)}; what does not: {findings.both(over)}; {highest}"


def _labelled(rows: Rows) -> Mapping[str, Parts]:
    if isinstance(rows, Mapping):
        return rows
    return dict(zip(base.numbered("rank", len(rows)), rows, strict=True))


def _computed(group: str, label: str) -> bool:
    return COMPUTED in group or COMPUTED in label


def _measured(groups: Mapping[str, Mapping[str, Parts]]) -> Mapping[str, Mapping[str, Parts]]:
    """Return the stacks' groups without computed bars; all groups where every bar is computed."""
    measured_groups = {}
    for name, rows in groups.items():
        kept = {label: row for label, row in rows.items() if not _computed(name, label)}
        if kept:
            measured_groups[name] = kept
    return measured_groups or groups


def _bar(
    ax: Axes, y: float, row: Parts, names: Sequence[str], scale: float, computed: bool, measured: Collection[str]
) -> None:
    left = 0.0
    for part, size_bytes in row.items():
        index = names.index(part)
        look = {"edgecolor": base.PAPER, "linewidth": tokens.THIN_PT, "facecolor": base.part(index)}
        if 0 < size_bytes * scale < THIN * ax.get_xlim()[1]:
            look |= {"edgecolor": base.part(index), "zorder": 2}
        if computed:
            fill = to_rgba(base.part(index), PALE) if part in measured else base.PAPER
            look |= {"facecolor": fill, "edgecolor": base.INK, "linestyle": (0, (3, 2))}
        ax.barh(y, size_bytes * scale, 0.7, left, **look)
        left += size_bytes * scale


def _legend(ax: Axes, names: Sequence[str], measured: Collection[str]) -> None:
    entries = []
    for index, name in enumerate(names):
        if name in measured:
            entries.append(Patch(label=name, facecolor=base.part(index), edgecolor="none"))

    ax.legend(
        handles=entries, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(entries), fontsize=tokens.LABEL_PT, frameon=False,
        labelcolor=base.QUIET_INK,
    )  # fmt: skip


def _words(rows: Rows) -> str:
    told = []
    for label, row in _labelled(rows).items():
        told.append(f"{label} {base.listed(row, units.size)}")
    return "; ".join(told)
