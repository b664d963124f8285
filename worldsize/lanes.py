"""When each worker finished a closure: a lane a worker, a tick a closure, and lines for what happened to whom.

Left out: how long a closure took, and what it did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worldsize.picture import INK, QUIET_INK, WIDTH_IN, Picture, colour, headline, notice, plain_style
from worldsize.quantity import count, number

BACK = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}


@plain_style
def lanes(rows: Mapping[str, Sequence[float]], events: Mapping[str, float], title: str, small: str = "") -> Picture:
    """`rows[worker]` are the seconds at which it finished something; `events[what]` is when that happened."""
    if not any(len(times) for times in rows.values()):
        return notice("nothing was finished")
    picture = Picture(WIDTH_IN, 1.5 + 0.62 * len(rows))
    ax = picture.plot_area()
    for index, times in enumerate(rows.values()):
        ax.vlines(times, index - 0.32, index + 0.32, color=colour(index), linewidth=0.7)
    for k, (what, at) in enumerate(sorted(events.items(), key=lambda event: event[1])):
        ax.axvline(at, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
        ax.text(at, -0.62 - 0.3 * (k % 2), f" {what}", fontsize=9, color=INK, va="center", bbox=BACK)
    ax.set_yticks(range(len(rows)), [f"{name}\n{count(len(times), 'closure')}" for name, times in rows.items()])
    ax.set_ylim(len(rows) - 0.55, -1.15 if events else -0.55)
    ax.set_xlim(left=0)
    ax.set_xlabel("seconds", fontsize=9, color=QUIET_INK)
    headline(ax, title, small)
    picture.alt = ". ".join([title, *(_words(name, times) for name, times in rows.items()), *(
        f"{what} at {number(at)} s" for what, at in events.items()
    )]) + "."  # fmt: skip
    return picture


def longest_gap(times: Sequence[float]) -> tuple[float, float]:
    """The longest time in which nothing was finished, as (from, to)."""
    ordered = sorted(times)
    return max(zip(ordered, ordered[1:], strict=False), key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))


def _words(name: str, times: Sequence[float]) -> str:
    since, until = longest_gap(times)
    pause = f", none from {number(since)} to {number(until)} s" if until - since > 1 else ""
    return f"{name}: {count(len(times), 'closure')}{pause}"
