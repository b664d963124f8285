"""Workers side by side: when each finished a closure and which events fell between, and which examples each takes in a step."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, pairwise

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.units import count, number

Taken = Sequence[Sequence[Sequence[int]]]  # [worker][step] -> the examples it takes
ROW, GAP = 1.0, 1.5  # heights of a worker and of the gap with a policy's name
BACK = {"boxstyle": "square,pad=0.1", "facecolor": base.PAPER, "edgecolor": "none"}


@base.plain_style
def lanes(
    rows: Mapping[str, Sequence[float]], events: Mapping[str, float], asks: str = "", small: str = "", noun: str = "closure"
) -> Picture:
    """Draw workers as lanes: a tick for each closure that the worker finished, and marked events.

    `rows[worker]` are the seconds of its ticks; `events[name]` is a time, marked across all lanes. `noun` names a tick.
    `asks` is the question above the picture; ValueError unless it ends in "?".
    """
    if not any(map(len, rows.values())):
        return base.notice("nothing was finished")

    picture = Picture(base.WIDTH_IN, 1.0 + 0.62 * len(rows))
    ax = picture.plot_area()
    for index, times in enumerate(rows.values()):
        ax.vlines(times, index - 0.32, index + 0.32, color=base.colour(index), linewidth=tokens.THIN_PT)
    for k, (what, at) in enumerate(sorted(events.items(), key=lambda event: event[1])):
        ax.axvline(at, color=base.INK, linewidth=tokens.LINE_PT, linestyle=(0, (4, 2)))
        ax.text(at, -0.62 - 0.3 * (k % 2), f" {what}", fontsize=tokens.LABEL_PT, color=base.INK, va="center", bbox=BACK)

    labels, top = [], -0.55
    for name, times in rows.items():
        labels.append(f"{name}\n{count(len(times), noun)}")
    if events:
        top = -1.15
    ax.set_yticks(range(len(rows)), labels)
    ax.set_ylim(len(rows) - 0.55, top)
    ax.set_xlim(left=0)
    ax.set_xlabel("seconds", fontsize=tokens.LABEL_PT, color=base.QUIET_INK)

    statement = pauses(rows, events, noun)
    heading.head(picture, asks, statement, small)
    sentences = []
    for name, times in rows.items():
        since, until = longest_gap(times)
        pause = f", none from {number(since)} to {number(until)} s" if until - since > 1 else ""
        sentences.append(f"{name}: {count(len(times), noun)}{pause}")
    for what, at in events.items():
        sentences.append(f"{what} at {number(at)} s")
    heading.tell(picture, asks, statement, *sentences)
    return picture


def pauses(rows: Mapping[str, Sequence[float]], events: Mapping[str, float], noun: str = "closure") -> str:
    """Say which workers pause for over a second, and how much each finishes after the last event (in all without events)."""
    clauses = []
    for name, times in rows.items():
        since, until = longest_gap(times)
        if until - since > 1:  # seconds: a shorter gap is no pause
            clauses.append(f"{name} finishes nothing from {number(since)} to {number(until)} s")

    if events:
        what = max(events, key=events.get)
        after = []
        for name, times in rows.items():
            ticks = sum(time > events[what] for time in times)
            after.append(f"{name} finishes {count(ticks, noun) if ticks else 'none'}")
        clauses.append(f'after "{what}" {", ".join(after)}')
    else:
        clauses.append(findings.ranked({name: len(times) for name, times in rows.items()}, ("finishes", "finish")))
    return findings.line(*clauses)


def longest_gap(times: Sequence[float]) -> tuple[float, float]:
    """Return the longest time between two ticks of a worker's lane, as (from, to); (0, 0) below two ticks."""
    return max(pairwise(sorted(times)), key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))


@base.plain_style
def shares(policies: Mapping[str, Taken | None], asks: str = "", every: Collection[int] = ()) -> Picture:
    """Draw which examples each worker takes in each step, a panel a policy.

    `policies[name][worker][step]` are examples; `policies[name]` is None where not yet written. `every` holds all examples;
    with it, the finding also counts examples never taken. `asks` is the question above the picture; ValueError unless it
    ends in "?".
    """
    known = list(filter(None, policies.values()))
    if not known:
        return base.not_yet(*policies)

    lanes = list(chain(*known))  # the steps of each worker of each policy
    missing = len(policies) - len(known)
    rows = (len(lanes) + missing) * ROW + len(policies) * GAP
    steps = max(map(len, lanes))
    picture = Picture(base.WIDTH_IN, 0.3 + 0.27 * rows)
    ax = picture.add_subplot()
    ax.axis("off")

    y, sentences = 0.0, []
    for name, taken in policies.items():
        statement = "not yet"
        if taken:
            statement = finding(taken, every)
        sentences.append(f"{name}: {statement}")
        ax.text(-0.95, y + 0.45, name, fontsize=tokens.HEAD_PT, color=base.INK, weight="bold", va="center")
        ax.text(steps, y + 0.45, statement, fontsize=tokens.LABEL_PT, color=base.QUIET_INK, va="center", ha="right")
        y += 0.95
        taken = taken or []
        repeats = {number for number, times in _counts(taken).items() if times > 1}
        for worker, own in enumerate(taken):
            _row(ax, y, worker, own, repeats)
            y += ROW
        y += GAP - 0.95

    ax.set_xlim(-0.97, steps + 0.02)
    ax.set_ylim(y, -0.2)
    written = base.written(policies)
    statement = findings.line(doubled(written), missed(written, every))
    heading.head(picture, asks, statement)
    heading.tell(picture, asks, statement, *sentences)
    return picture


def doubled(policies: Mapping[str, Taken]) -> str:
    """Say under which policies an example is taken more than once."""
    twice = [name for name, taken in policies.items() if repeated(taken)]
    if not twice:
        return findings.line(f"no example is taken twice with {findings.both(list(policies))}")
    if len(twice) == len(policies):
        return findings.line(f"examples are taken more than once with {findings.both(twice)}")
    return findings.line(f"with {findings.both(twice)}, examples are taken more than once; with the others none is")


def missed(policies: Mapping[str, Taken], every: Collection[int]) -> str:
    """Say how many examples no worker takes, by policy; empty where `every` is empty."""
    if not every:
        return ""

    clauses = []
    for name, taken in policies.items():
        many = never(taken, every)
        if many:
            clauses.append(f"{many} of {count(len(every), 'example')} never taken with {name}")
    return "; ".join(clauses) or "every example is taken"


def never(taken: Taken, every: Collection[int]) -> int:
    """Count the examples of `every` that no worker of a policy takes."""
    return len(set(every) - set(_counts(taken)))


def repeated(taken: Taken) -> int:
    """Count the examples of a policy that workers take more than once."""
    return sum(times > 1 for times in _counts(taken).values())


def _counts(taken: Taken) -> Counter[int]:
    counts: Counter[int] = Counter()
    for steps in taken:
        for numbers in steps:
            counts.update(numbers)
    return counts


def _row(ax: Axes, y: float, worker: int, own: Sequence[Sequence[int]], repeats: set[int]) -> None:
    ax.text(-0.95, y + 0.42, f"worker {worker}", fontsize=tokens.LABEL_PT, color=base.INK, va="center")

    back = {"boxstyle": "round,pad=0.15", "facecolor": base.PAPER, "edgecolor": "none"}
    text_look = {"fontsize": tokens.LABEL_PT, "color": base.INK, "ha": "center", "va": "center", "bbox": back}
    for step, numbers in enumerate(own):
        look = {"facecolor": base.PAPER, "edgecolor": base.colour(worker), "linewidth": tokens.LINE_PT}
        if not repeats.isdisjoint(numbers):
            look |= {"facecolor": tokens.SHADE.light, "linestyle": "--"}
        ax.add_patch(Rectangle((step + 0.04, y + 0.06), 0.92, 0.76, **look))
        ax.text(step + 0.5, y + 0.42, " ".join(map(str, numbers)), **text_look)

    ax.axhline(y + 0.94, color=base.RULE, linewidth=tokens.HAIR_PT)


def finding(taken: Taken, every: Collection[int] = ()) -> str:
    """Describe a policy's panel: its steps, and the examples taken more than once or never."""
    counts, twice = _counts(taken), repeated(taken)
    lengths = sorted(set(map(len, taken)))
    words = f"{lengths[0]} or {lengths[-1]} steps"
    if len(lengths) == 1:
        words = count(lengths[0], "step")
    missing = never(taken, every)
    if missing:
        words += f", {count(missing, 'example')} never"
    if not twice:
        return f"{words}, no example more than once"
    if twice == len(counts):
        return f"{words}, all {twice} others more than once" if missing else f"{words}, every example more than once"
    return f"{words}, {twice} of {len(counts)} examples more than once"
