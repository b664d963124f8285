"""A wait graph of a run that hangs: ranks in a circle, an arrow from each to the rank that it waits for.

A circle of arrows is a deadlock and is drawn heavier; arrows of a rank that waits for any of several are dashed. A rank in
a collective waits for all ranks that have not come. `engines.deadlock` decides that a run hangs. R. C. Holt, "Some Deadlock
Properties of Computer Systems", ACM Computing Surveys 4(3), 1972, draws waiting so.
"""

import math
import textwrap
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.transforms import offset_copy

from worldsize import failures, units
from worldsize.failures import Outcome, Standing
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame.findings import verb

MOST_RANKS = 16  # in the drawing
MOST_ROWS = 8  # of text beside it
HEAD_CHARS, ROW_CHARS = 58, 66
ROW_IN = 0.36
RADIUS = 1.0


@dataclass(frozen=True)
class WaitArrow:
    """Rank `waiter` waits for rank `awaited`, or for any of several ranks: then each arrow has `one_of_many`."""

    waiter: int
    awaited: int
    one_of_many: bool = False


def hangs(run: Any) -> bool:
    """Tell whether the run broke off with all its remaining ranks waiting for others, so that there is something to draw."""
    outcome = getattr(run, "outcome", None)
    if outcome is None or outcome.status not in ("deadlock", "timeout"):
        return False
    if outcome.status == "timeout" and not all(standing.wait or standing.collective for standing in outcome.standings):
        return False
    return bool(arrows(outcome, run.world_size))


def arrows(outcome: Outcome, world_size: int) -> list[WaitArrow]:
    """Return who waits for whom when a run was stopped, in the order of the waiting ranks."""
    edges = []
    for standing in sorted(outcome.standings, key=lambda s: s.rank):
        rank, wait = standing.rank, standing.wait
        if standing.awaits:
            edges += [WaitArrow(rank, other) for other in standing.awaits]
        elif outcome.cause:
            continue  # this rank goes on
        elif wait is not None and wait.peer is not None:
            edges.append(WaitArrow(rank, wait.peer))
        elif wait is not None:
            edges += [WaitArrow(rank, other, one_of_many=True) for other in range(world_size) if other != rank]
        elif standing.collective:
            there = {other.rank for other in outcome.standings if other.collective == standing.collective}
            edges += [WaitArrow(rank, other) for other in range(world_size) if other not in there]
    return edges


def circle(edges: Sequence[WaitArrow]) -> list[int]:
    """Return a shortest circle of ranks, each waiting for the next and the last for the first; [] where there is none."""
    awaited: dict[int, list[int]] = {}
    for arrow in edges:
        if not arrow.one_of_many:
            awaited.setdefault(arrow.waiter, []).append(arrow.awaited)

    best: list[int] = []
    for start in awaited:
        paths = deque([[start]])  # breadth first, so the first circle through `start` is a shortest one
        seen = {start}
        while paths:
            path = paths.popleft()
            following = awaited.get(path[-1], [])
            if start in following:
                if not best or len(path) < len(best):
                    best = path
                break
            paths += [[*path, rank] for rank in following if rank not in seen]
            seen.update(following)
    return best


@base.plain_style
def waiting(run: Any) -> Picture:
    """Draw who waits for whom in a run (`last_run()`) that ended in a deadlock, or in a timeout while its ranks waited."""
    if not hangs(run):
        return base.notice("no rank of this run waits for a rank that never came")

    outcome, edges = run.outcome, arrows(run.outcome, run.world_size)
    closed = circle(edges)
    standings = {standing.rank: standing for standing in outcome.standings}
    order = list(dict.fromkeys([*closed, *range(run.world_size)]))
    drawn = sorted(order[:MOST_RANKS])
    lines = _lines(order, standings, run.tasks)
    rows = min(len(lines), MOST_ROWS)
    waited_s: dict[int, float] = {}  # by rank, when the run was stopped, where recorded
    for event in [*run.trace.spans, *run.trace.collectives]:
        if not event.ended:
            waited_s[event.rank] = max(waited_s.get(event.rank, 0.0), event.end_s - event.start_s)

    height_in = max(2.3 if len(drawn) == 2 else 2.7, 1.0 + ROW_IN * 1.5 * rows)
    picture = Picture(base.WIDTH_IN, height_in)
    picture.set_layout_engine(None)
    below = 1 - 0.62 / height_in
    ax = picture.add_axes((0.01, 0.03, 0.34, below - 0.03))
    _circle(ax, drawn, edges, closed, standings)

    statement = finding(outcome, run.world_size, run.tasks)
    picture.text(0.013, 1 - 0.2 / height_in, statement, fontsize=tokens.TITLE_PT, color=base.INK, va="center")
    more = "" if len(drawn) == run.world_size else f"{len(drawn)} of {run.world_size} ranks are drawn; "
    key = "the heavy arrows close a circle" if closed else "an arrow goes from who waits to who is awaited"
    picture.text(0.013, 1 - 0.45 / height_in, more + key, fontsize=tokens.LABEL_PT, color=base.QUIET_INK, va="center")

    step = (below - 0.06) / max(rows, 3)
    clauses = []
    for place, line in enumerate(lines[:MOST_RANKS]):
        head, where = _row(line, standings, outcome, run.tasks, waited_s)
        if line[0] in standings:
            clauses.append(f"{head}, {where}" if where else head)

        if place < rows:
            top = below - 0.05 - step * place
            told = textwrap.wrap(head, HEAD_CHARS)
            picture.text(0.38, top, "\n".join(told), fontsize=tokens.LABEL_PT, color=base.INK, va="top", weight="bold")
            top -= 0.17 * len(told) / height_in
            code = textwrap.wrap(where, ROW_CHARS, max_lines=1 if rows > 3 else 2, placeholder=" …")
            picture.text(0.38, top, "\n".join(code), fontsize=tokens.SMALL_PT, color=base.QUIET_INK, va="top")

    picture.alt = base.sentences(statement, *clauses)
    return picture


def finding(outcome: Outcome, world_size: int, tasks: failures.TaskNames = ()) -> str:
    """Return the wait graph's headline: a circle, a rank that waits for an ended one, or the ranks missing from a collective."""
    found = arrows(outcome, world_size)
    closed = circle(found)
    if outcome.cause and (not closed or " called " in outcome.cause):
        return _capital(outcome.cause)
    if len(closed) == 2:
        one, other = failures.name(closed[0], tasks), failures.name(closed[1], tasks)
        return f"Deadlock: {one} and {other} wait for each other"
    if closed:
        way = list(map(str, closed[:MOST_ROWS]))
        if len(closed) > MOST_ROWS:
            way.append("…")
        return f"Deadlock: {len(closed)} ranks wait in a circle, {' → '.join([*way, str(closed[0])])}"

    for wait in outcome.waits or [standing.wait for standing in outcome.standings if standing.wait]:
        if wait.peer is not None and wait.peer_ended:
            return f"{_capital(failures.name(wait.rank, tasks))} waits for {failures.name(wait.peer, tasks)}, which has ended"
    for standing in outcome.standings:
        if standing.collective:
            there = [other.rank for other in outcome.standings if other.collective == standing.collective]
            missing = [rank for rank in range(world_size) if rank not in there]
            said = f"{failures.names(there, tasks)} {verb(there, 'waits', 'wait')} in {standing.collective}"
            return _capital(f"{said}; {failures.names(missing, tasks)} {verb(missing, 'has', 'have')} not come")

    waiting = [standing.rank for standing in outcome.standings]
    return f"{_capital(failures.names(waiting, tasks))} {verb(waiting, 'waits', 'wait')} for messages that nobody sends"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lines(order: Sequence[int], standings: Mapping[int, Standing], tasks: failures.TaskNames) -> list[list[int]]:
    """Return the ranks of each line beside the circle, in `order`: those that wait alike together."""
    groups = [[standing.rank for standing in line] for line in failures.standing_alike(list(standings.values()), tasks)]
    lines = [*groups, *([rank] for rank in order if rank not in standings)]
    return sorted(lines, key=lambda line: min(map(order.index, line)))


def _row(
    line: Sequence[int], standings: Mapping[int, Standing], outcome: Outcome, tasks: failures.TaskNames,
    waited_s: Mapping[int, float],
) -> tuple[str, str]:  # fmt: skip
    """Return what waiting ranks do, with the time that they waited, and their line in the reader's code."""
    if line[0] not in standings:
        failed = any(failure.rank == line[0] for failure in outcome.failures)
        return f"{failures.name(line[0], tasks)} {'failed' if failed else 'has ended'}", ""

    long = max(waited_s.get(rank, 0.0) for rank in line)
    how_long = f" for {units.seconds(long)}" if long else ""
    return f"{failures.doing_all([standings[rank] for rank in line], tasks)}{how_long}", failures.own_line(standings[line[0]])


def _circle(
    ax: Axes, drawn: Sequence[int], edges: Sequence[WaitArrow], closed: Sequence[int], standings: Mapping[int, Standing]
) -> None:
    """Draw a wait graph's ranks on a circle, clockwise from the top, and the arrows between them."""
    places = {}
    for k, rank in enumerate(drawn):
        angle = math.pi / 2 - 2 * math.pi * k / len(drawn)
        places[rank] = RADIUS * math.cos(angle), RADIUS * math.sin(angle)
    if len(drawn) == 2:  # side by side, as the text names them
        places = {drawn[0]: (-0.75, 0.0), drawn[1]: (0.75, 0.0)}

    size = 34 if len(drawn) == 2 else 22 if len(drawn) <= 8 else 15
    both_ways = {(arrow.waiter, arrow.awaited) for arrow in edges}
    following = dict(zip(closed, [*closed[1:], *closed[:1]], strict=True))
    for arrow in edges:
        if not {arrow.waiter, arrow.awaited} <= places.keys():
            continue
        look = {"mutation_scale": 9, "color": base.QUIET_INK, "linewidth": tokens.LINE_PT}
        if arrow.one_of_many:
            look["linestyle"] = (0, (4, 2))
        elif following.get(arrow.waiter) == arrow.awaited:
            look = {"mutation_scale": 13, "color": tokens.BAD.light, "linewidth": 2.2}
        bow = 0.28 if (arrow.awaited, arrow.waiter) in both_ways else 0.0  # two ranks' arrows bend apart
        ax.add_patch(FancyArrowPatch(
            places[arrow.waiter], places[arrow.awaited], arrowstyle="-|>", connectionstyle=f"arc3,rad={bow}",
            shrinkA=size / 2 + 2, shrinkB=size / 2 + 2, **look,
        ))  # fmt: skip

    for rank, (x, y) in places.items():
        waits = rank in standings
        edge = tokens.BAD.light if rank in closed else base.INK
        ax.plot(
            x, y, "o", markersize=size, markerfacecolor=base.PAPER if waits else tokens.SHADE.light,
            markeredgecolor=edge, markeredgewidth=1.6 if waits else tokens.THIN_PT, zorder=3,
        )  # fmt: skip
        ax.text(x, y, str(rank), ha="center", va="center", fontsize=tokens.LABEL_PT, color=base.INK, zorder=4)
        look = {"markersize": 7, "markeredgecolor": base.INK, "markeredgewidth": tokens.HAIR_PT, "zorder": 5}
        off = 0.36 * size if size > 15 else 0.46 * size  # of a small circle it would cover the number
        rim = offset_copy(ax.transData, ax.get_figure(root=True), -off, off, units="points")
        ax.plot(x, y, marker=base.marker(rank), color=base.colour(rank), transform=rim, **look)

    ax.set_xlim(-1.3, 1.3)
    ax.set_ylim(*((-0.7, 0.7) if len(drawn) == 2 else (-1.3, 1.3)))
    ax.set_aspect("equal")
    ax.axis("off")
