"""Workers side by side: when each finished a closure and what happened meanwhile, and who takes which examples in a step.

Left out: how long a closure took, and what it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worldsize.figures import base
from worldsize.figures.base import Picture
from worldsize.units import count, number

Taken = Sequence[Sequence[Sequence[int]]]  # [worker][step] -> the examples it takes
ROW, GAP = 1.0, 1.5  # heights of shares, in rows
BACK = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}


@base.plain_style
def lanes(rows: Mapping[str, Sequence[float]], events: Mapping[str, float], title: str, small: str = "") -> Picture:
    """Workers side by side, a lane each: a tick for each closure that the worker finished, and marked events.

    `rows[worker]` are the seconds of its ticks; `events[what]` are marked across all lanes.
    """
    if not any(map(len, rows.values())):
        return base.notice("nothing was finished")

    picture = Picture(base.WIDTH_IN, 1.5 + 0.62 * len(rows))
    ax = picture.plot_area()
    for index, times in enumerate(rows.values()):
        ax.vlines(times, index - 0.32, index + 0.32, color=base.colour(index), linewidth=0.7)
    for k, (what, at) in enumerate(sorted(events.items(), key=lambda event: event[1])):
        ax.axvline(at, color=base.INK, linewidth=1.2, linestyle=(0, (4, 2)))
        ax.text(at, -0.62 - 0.3 * (k % 2), f" {what}", fontsize=9, color=base.INK, va="center", bbox=BACK)

    labels, top = [], -0.55
    for name, times in rows.items():
        labels.append(f"{name}\n{count(len(times), 'closure')}")
    if events:
        top = -1.15
    ax.set_yticks(range(len(rows)), labels)
    ax.set_ylim(len(rows) - 0.55, top)
    ax.set_xlim(left=0)
    ax.set_xlabel("seconds", fontsize=9, color=base.QUIET_INK)

    base.headline(ax, title, small)
    said = base.of_each(_words, rows)
    for what, at in events.items():
        said.append(f"{what} at {number(at)} s")
    picture.alt = base.sentences(title, *said)
    return picture


def longest_gap(times: Sequence[float]) -> tuple[float, float]:
    """For the picture of workers: the longest time in which one finished no closure, as (from, to)."""
    return max(pairwise(sorted(times)), key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))


def _words(times: Sequence[float]) -> str:
    since, until = longest_gap(times)
    said = count(len(times), "closure")
    if until - since > 1:
        said += f", none from {number(since)} to {number(until)} s"
    return said


@base.plain_style
def shares(policies: Mapping[str, Taken | None], title: str) -> Picture:
    """Picture of workers and their data: which examples each worker takes in each step, a panel a policy.

    `policies[name][worker][step]` are examples; `policies[name]` is None where that is not yet written.
    """
    known = list(filter(None, policies.values()))
    if not known:
        return base.not_yet(", ".join(policies))

    every = list(chain(*known))  # of each worker of a policy, its steps
    missing = len(policies) - len(known)
    rows = (len(every) + missing) * ROW + len(policies) * GAP
    steps = max(map(len, every))
    picture = Picture(base.WIDTH_IN, 0.75 + 0.27 * rows)
    picture.suptitle(title, x=0.012, ha="left", fontsize=11, color=base.INK)
    ax = picture.add_subplot()
    ax.axis("off")

    y, said = 0.0, []
    for name, taken in policies.items():
        found = "not yet"
        if taken:
            found = finding(taken)
        said.append(f"{name}: {found}")
        ax.text(-0.95, y + 0.45, name, fontsize=10, color=base.INK, weight="bold", va="center")
        ax.text(steps, y + 0.45, found, fontsize=9, color=base.QUIET_INK, va="center", ha="right")
        y += 0.95
        for worker, own in enumerate(taken or []):
            _row(ax, y, worker, own, _of_others(taken, worker))
            y += ROW
        y += GAP - 0.95

    ax.set_xlim(-0.97, steps + 0.02)
    ax.set_ylim(y, -0.2)
    picture.alt = base.sentences(title, *said)
    return picture


def _of_others(taken: Taken, worker: int) -> set[int]:
    """The examples that other workers take."""
    found: set[int] = set()
    for other, steps in enumerate(taken):
        if other != worker:
            found.update(*steps)
    return found


def _row(ax: Axes, y: float, worker: int, own: Sequence[Sequence[int]], elsewhere: set[int]) -> None:
    ax.text(-0.95, y + 0.42, f"worker {worker}", fontsize=9, color=base.INK, va="center")

    back = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    said = {"fontsize": 9, "color": base.INK, "ha": "center", "va": "center", "bbox": back}
    for step, numbers in enumerate(own):
        look = {"facecolor": "white", "edgecolor": base.colour(worker), "linewidth": 1.4}
        if not elsewhere.isdisjoint(numbers):
            look |= {"facecolor": "#f0f0f0", "hatch": "////", "linestyle": "--"}
        ax.add_patch(Rectangle((step + 0.04, y + 0.06), 0.92, 0.76, **look))
        ax.text(step + 0.5, y + 0.42, " ".join(map(str, numbers)), **said)

    ax.axhline(y + 0.94, color=base.RULE, linewidth=0.5)


def finding(taken: Taken) -> str:
    """A panel of workers in words: how many steps, and how many examples were taken more than once."""
    counts: Counter[int] = Counter()
    for steps in taken:
        for numbers in steps:
            counts.update(numbers)
    twice = sum(times > 1 for times in counts.values())

    lengths = sorted(set(map(len, taken)))
    words = f"{lengths[0]} or {lengths[-1]} steps"
    if len(lengths) == 1:
        words = count(lengths[0], "step")
    if not twice:
        return f"{words}, every example at one worker"
    if twice == len(counts):
        return f"{words}, every example at several workers"
    return f"{words}, {twice} of {len(counts)} examples at several workers"
