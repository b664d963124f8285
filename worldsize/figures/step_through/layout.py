"""Places of ranks in a step-through: on a ring, on a star round a hub, as a tree below a root, or in a row.

Coordinates are pixels of a canvas that `scene.js` and `still` share, x to the right and y downwards. A canvas has one of
`WIDTHS`, the widest for which a page has room, so that text keeps its size.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, count

import numpy as np

WIDTHS = (720, 460, 300)
WIDTH = WIDTHS[0]
ROOM_Y = 20  # for the text below a box: what its rank does
MOST_ROOMY = 8  # ranks, so that a message's label has room between two boxes
MOST_NAMED = dict(zip(WIDTHS, (MOST_ROOMY, 4, 1), strict=True))  # ranks with room for "rank" before their numbers
EDGE = 3  # from the end of an arrow to its box
LABEL = 66  # the width of most messages' labels
MOST_RADIUS = 330.0
LONGEST_STAR = 1.5  # ratio of its sides, so that messages have ways of similar length

Position = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Places of ranks on a canvas: boxes of size `box` round `centres`; `cell` is the size of one number of a chunk.

    An arrow's middle lies `bend[0]` times its length beside the straight line, at most `bend[1]` pixels, so that two ranks
    that swap have two arrows.
    """

    width: float
    height: float
    box: Position
    cell: Position
    centres: tuple[Position, ...]
    bend: Position = (0.12, 30)

    def arrow(self, src: int, dst: int) -> tuple[Position, Position, Position]:
        """Return the curve of a message in this layout: its start, its control point, and its end."""
        a, b = self._edge(src, dst), self._edge(dst, src)
        dx, dy = b[0] - a[0], b[1] - a[1]

        aside = 2 * min(self.bend[0], self.bend[1] / max(1.0, math.hypot(dx, dy)))
        via = ((a[0] + b[0]) / 2 + aside * dy, (a[1] + b[1]) / 2 - aside * dx)
        return a, via, b

    def _edge(self, rank: int, towards: int) -> Position:
        """Return the point at which the line between two ranks leaves the first one's box in the layout."""
        (x, y), (to_x, to_y) = self.centres[rank], self.centres[towards]
        dx, dy = to_x - x, to_y - y

        share = math.inf  # of the line, as far as the box goes
        for length, size in ((dx, self.box[0]), (dy, self.box[1])):
            if length:
                share = min(share, (size / 2 + EDGE) / abs(length))
        return x + share * dx, y + share * dy


def ring(n: int, chunks: int = 0, width: float = WIDTH) -> Layout:
    """Lay a step-through's ranks out as a ring: rank 0 on top, the others clockwise; two side by side."""
    return _round(n, chunks, width, lambda rx, ry: on_ellipse(n, rx, ry))


def star(n: int, chunks: int = 0, hub: int = 0, width: float = WIDTH) -> Layout:
    """Lay a step-through's ranks out as a star: `hub` in the middle, the others round it at even distances."""

    def place(rx: float, ry: float) -> list[Position]:
        around = on_ellipse(n - 1, min(rx, LONGEST_STAR * ry), min(ry, LONGEST_STAR * rx))
        around.insert(hub, (0.0, 0.0))
        return around

    return _round(n, chunks, width, place)


def tree(
    n: int, chunks: int = 0, hub: int = 0, pairs: Iterable[tuple[int, int]] = (), width: float = WIDTH
) -> Layout:
    """Lay a step-through's ranks out as a tree with `hub` on top.

    Below each rank stand its message partners without a place, breadth first (`below_each`); `pairs` are in time order.
    Many ranks side by side get the wide canvas.
    """
    pairs = tuple(pairs)
    below = below_each(n, hub, pairs)
    leaves = list(below.values()).count([])
    box, cell = _box(n, chunks, width, width / leaves - 12)
    if width < WIDTH and box[0] > width / leaves - 8:
        return tree(n, chunks, hub, pairs)
    floor = box[1] + ROOM_Y + 44  # from one level to the next
    slots, centres = count(), {}

    def place(rank: int, level: int) -> float:
        xs = [place(lower, level + 1) for lower in below[rank]]
        if not xs:
            xs = [width * (next(slots) + 0.5) / leaves]
        centres[rank] = ((xs[0] + xs[-1]) / 2, ROOM_Y + box[1] / 2 + level * floor)
        return centres[rank][0]

    place(hub, 0)
    height = max(y for _, y in centres.values()) + box[1] / 2 + 2 * ROOM_Y
    return Layout(width, height, box, cell, centres=tuple(centres[rank] for rank in range(n)))


def below_each(n: int, hub: int, pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the partners below each rank, breadth first from `hub`, by first message; unreachable ranks go below `hub`."""
    partners: dict[int, dict[int, None]] = defaultdict(dict)
    for a, b in pairs:
        partners[a][b] = partners[b][a] = None

    below: dict[int, list[int]] = {rank: [] for rank in range(n)}
    missing = set(range(n)) - {hub}
    waiting = deque([hub])
    while waiting:
        upper = waiting.popleft()
        below[upper] = [lower for lower in partners[upper] if lower in missing]
        missing -= set(below[upper])
        waiting += below[upper]

    below[hub] += sorted(missing)
    return below


def pipeline(n: int, chunks: int = 0, width: float = WIDTH) -> Layout:
    """Lay a step-through's ranks out as a pipeline: a row of stages, from left to right.

    Many stages get the wide canvas.
    """
    box, cell = _box(n, chunks, width, min(width / n - 12, max(44.0, width / n - LABEL)))
    if width < WIDTH and box[0] > width / n - 8:
        return pipeline(n, chunks)
    height = box[1] + 2 * ROOM_Y + 110  # for the arcs of messages that pass by a rank
    centres = tuple((width * (rank + 0.5) / n, height / 2) for rank in range(n))

    # a message to the next stage passes above the boxes, or below them on its way back
    aside = max(0.2, (box[1] / 2 + 14) / (width / n - box[0] - 2 * EDGE))
    return Layout(width, height, box, cell, centres, bend=(aside, 65 + box[1] / 2))


def on_ellipse(n: int, rx: float, ry: float) -> list[Position]:
    """Return `n` places at even distances along an ellipse round (0, 0), clockwise from its top; two side by side."""
    angles = np.linspace(0, 2 * math.pi, 721)
    if n == 2:
        angles -= math.pi / 2
    xs, ys = rx * np.sin(angles), -ry * np.cos(angles)

    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(xs), np.diff(ys)))])
    wanted = np.arange(n) * lengths[-1] / max(1, n)
    return list(zip(np.interp(wanted, lengths, xs).tolist(), np.interp(wanted, lengths, ys).tolist(), strict=True))


def _round(n: int, chunks: int, width: float, place: Callable[[float, float], list[Position]]) -> Layout:
    """Return the flattest ellipse on which boxes keep their distance, on the widest canvas if they would touch on this one."""
    box, cell = _box(n, chunks, width, width)
    gap = (16, 26)
    if n <= MOST_ROOMY:
        gap = (LABEL + 14, 46)
    rx, ry = width / 2 - box[0] / 2 - width / 21, 60.0 + box[1] / 2
    while ry < MOST_RADIUS and _crowded(place(rx, ry), (box[0] + gap[0], box[1] + gap[1])):
        ry += 6

    placed = place(rx, ry)
    if width < WIDTH and _crowded(placed, (box[0] + 4, box[1] + ROOM_Y)):
        return _round(n, chunks, WIDTH, place)
    _, ys = zip(*placed, strict=True)
    top = max(-min(ys), 40) + box[1] / 2 + ROOM_Y
    height = top + max(max(ys), 40) + box[1] / 2 + ROOM_Y
    centres = tuple((width / 2 + x, top + y) for x, y in placed)
    return Layout(width, height, box, cell, centres)


def _crowded(centres: list[Position], apart: Position) -> bool:
    for (x, y), (other_x, other_y) in combinations(centres, 2):
        if abs(x - other_x) < apart[0] and abs(y - other_y) < apart[1]:
            return True
    return False


def _box(n: int, chunks: int, width: float, most: float) -> tuple[Position, Position]:
    """Return the size of a rank's box in the layout, at most `most` wide, and of a number in it, on a canvas of this width."""
    box_width, height = 44.0, 28.0
    if n <= MOST_NAMED[width]:
        box_width = 84.0
    box_width = min(box_width, most)
    if not chunks:
        return (box_width, height), (0.0, 0.0)

    cell = (max(4.0, min(18.0, 84 / chunks, (most - 12) / chunks)), max(4.0, min(10.0, 46 / n)))
    return (max(box_width, chunks * cell[0] + 12), height + n * cell[1] + 4), cell
