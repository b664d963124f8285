"""Who takes which examples in which step: a panel a policy, a row a worker, a box a step.

An example that two workers take, in whatever step, is seen by the hatch of its box and counted under the panel's name.
Left out: what the examples are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from worldsize.picture import INK, QUIET_INK, RULE, WIDTH_IN, Picture, colour, not_yet, plain_style
from worldsize.quantity import count

Taken = Sequence[Sequence[Sequence[int]]]  # [worker][step] -> the examples it takes
ROW, GAP = 1.0, 1.5  # heights, in rows


@plain_style
def shares(policies: Mapping[str, Taken | None], title: str) -> Picture:
    """`policies[name][worker][step]` are the numbers of examples; None for an exercise not yet written."""
    known = [taken for taken in policies.values() if taken]
    if not known:
        return not_yet(", ".join(policies))
    steps = max(len(steps) for taken in known for steps in taken)
    rows = sum(len(taken or [()]) * ROW + GAP for taken in policies.values())
    picture = Picture(WIDTH_IN, 0.75 + 0.27 * rows)
    picture.suptitle(title, x=0.012, ha="left", fontsize=11, color=INK)
    ax = picture.add_subplot()
    ax.axis("off")
    y = 0.0
    for name, taken in policies.items():
        ax.text(-0.95, y + 0.45, name, fontsize=10, color=INK, weight="bold", va="center")
        ax.text(steps, y + 0.45, finding(taken) if taken else "not yet", fontsize=9, color=QUIET_INK, va="center", ha="right")
        y += 0.95
        for worker, its in enumerate(taken or []):
            _row(ax, y, worker, its, taken)
            y += ROW
        y += GAP - 0.95
    ax.set_xlim(-0.97, steps + 0.02)
    ax.set_ylim(y, -0.2)
    said = [f"{name}: {finding(taken) if taken else 'not yet'}" for name, taken in policies.items()]
    picture.alt = ". ".join([title, *said]) + "."
    return picture


def _row(ax, y: float, worker: int, its: Sequence[Sequence[int]], taken: Taken) -> None:
    ax.text(-0.95, y + 0.42, f"worker {worker}", fontsize=9, color=INK, va="center")
    elsewhere = {n for other, steps in enumerate(taken) if other != worker for step in steps for n in step}
    for step, numbers in enumerate(its):
        twice = bool(elsewhere & set(numbers))
        look = {"facecolor": "white", "edgecolor": colour(worker), "linewidth": 1.4}
        if twice:
            look |= {"facecolor": "#f0f0f0", "hatch": "////", "linestyle": "--"}
        ax.add_patch(Rectangle((step + 0.04, y + 0.06), 0.92, 0.76, **look))
        back = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
        ax.text(step + 0.5, y + 0.42, " ".join(map(str, numbers)), fontsize=9, color=INK, ha="center", va="center", bbox=back)
    ax.axhline(y + 0.94, color=RULE, linewidth=0.5)


def finding(taken: Taken) -> str:
    """How many steps, and which examples count twice or never, in words."""
    counts = Counter(n for steps in taken for step in steps for n in step)
    twice = sum(times > 1 for times in counts.values())
    lengths = sorted({len(steps) for steps in taken})
    words = count(lengths[0], "step") if len(lengths) == 1 else f"{lengths[0]} or {lengths[-1]} steps"
    if not twice:
        return f"{words}, every example at one worker"
    return f"{words}, {'every example' if twice == len(counts) else f'{twice} of {len(counts)} examples'} at several workers"
