"""A day of failures: hours of work kept so far, hour by hour, with every kill marked.

A failure shows as a fall of the line by the work lost. The diagonal is a day without saves and failures.
"""

import math
from collections.abc import Mapping, Sequence

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import charts, findings, heading

MOST_POINTS = 400  # of a line, besides its falls
HOURS = 24
Course = Sequence[tuple[float, float]]  # (hour of the day, hours of work kept by then)


@base.plain_style
def kept_work(days: Mapping[str, Course | None], kills: Sequence[float], asks: str = "", *, hours: int = HOURS) -> Picture:
    """Draw the hours of work kept so far by the hour of the day, a line for each of `days`; `kills` are hours, marked below.

    `hours` is the length of the days. None stands for an exercise not yet written. `asks` is the question above the
    picture; ValueError unless it ends in "?".
    """
    known = base.written(days)
    if not known:
        return base.not_yet(*days)

    picture = Picture(8.5, 3.9)
    ax = picture.plot_area()
    look = {"color": base.QUIET_INK, "linewidth": tokens.THIN_PT, "linestyle": tokens.DASHES[2]}
    ax.plot([0, hours], [0, hours], label="no save, no failure", **look)
    tones = charts.tones(list(days))
    for index, name in enumerate(days):
        if name not in known:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
            continue
        shown = _thinned(known[name])
        ax.plot(
            *zip(*shown, strict=True), color=tones[name], linewidth=tokens.LINE_PT, label=name,
            marker=base.marker(index), markersize=6, markevery=max(1, len(shown) // 8), markeredgewidth=0,
        )  # fmt: skip
    ax.plot(
        kills, [-hours / 40] * len(kills), linestyle="none", marker="x", markersize=6, color=tokens.BAD.light, clip_on=False,
        label="a rank is killed",
    )  # fmt: skip

    ax.set_xlim(0, hours)
    ax.set_ylim(-hours / 20, hours)
    ticks = range(0, hours + 1, math.ceil(hours / 6))
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    ax.set_xlabel("hour of the day", fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel("hours of work kept so far", fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
    base.grid(ax)
    ax.legend(fontsize=tokens.LABEL_PT, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.5)

    found = finding(known)
    heading.head(picture, asks, found)
    heading.tell(picture, asks, found, units.count(len(kills), "kill"), *base.of_each(_words, days))
    return picture


def finding(days: Mapping[str, Course]) -> str:
    """Say which day has kept most work at the end."""
    kept = {name: course[-1][1] for name, course in days.items()}
    return findings.line(findings.ranked(kept, ("keeps", "keep"), _hours))


def falls(course: Course) -> list[tuple[float, float]]:
    """Return each fall of kept work in a day: (hour, hours lost)."""
    losses = []
    for (_, before), (hour, after) in zip(course, course[1:], strict=False):
        if after < before:
            losses.append((hour, before - after))
    return losses


def _thinned(course: Course) -> list[tuple[float, float]]:
    """Return few enough points of kept work for a picture, with both ends of every fall among them."""
    stride = max(1, len(course) // MOST_POINTS)
    kept = {0, len(course) - 1, *range(0, len(course), stride)}
    for k in range(1, len(course)):
        if course[k][1] < course[k - 1][1]:
            kept.update((k - 1, k))
    return [course[k] for k in sorted(kept)]


def _words(course: Course) -> str:
    lost = falls(course)
    said = f"{_hours(course[-1][1])} of work kept"
    if lost:
        said += f", {units.count(len(lost), 'fall')}, the deepest {_hours(max(depth for _, depth in lost))}"
    return said


def _hours(value: float) -> str:
    return units.number(value, "hours")
