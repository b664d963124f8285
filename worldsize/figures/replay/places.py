"""Places of ranks in a replay, as the messages between them suggest: a star, a row, a tree, or a ring.

Coordinates are shares of a frame's width and height, x to the right and y downwards.
"""

from collections.abc import Sequence
from operator import attrgetter

from worldsize.figures.replay.racers import Racer
from worldsize.figures.step_through.layout import Position, below_each, on_ellipse


def places(racer: Racer) -> list[Position]:
    """Return a place for every rank of a replay's run."""
    n = racer.world_size
    messages = sorted(racer.messages, key=attrgetter("end_s"))
    pairs = list(map(attrgetter("src", "dst"), messages))
    links = set(map(frozenset, pairs))

    if n < 3 or not links:
        return ring(n)

    hubs = frozenset.intersection(*links) if len(links) > 1 else frozenset()
    if hubs:  # one rank takes part in every message
        return star(n, min(hubs))
    if all(max(link) - min(link) == 1 for link in links):
        return row(n)
    if not _is_tree(n, links):
        return ring(n)

    # the root sends the first message down a tree, or receives the last message up it
    root = messages[-1].dst
    never_received = set(range(n)) - set(map(attrgetter("dst"), messages))
    if len(never_received) == 1:
        (root,) = never_received
    return tree(n, root, pairs)


def ring(n: int) -> list[Position]:
    """Place a replay's ranks on a ring: rank 0 on top, the others clockwise; two side by side."""
    if n == 1:
        return [(0.5, 0.5)]
    return [(0.5 + x, 0.5 + y) for x, y in on_ellipse(n, 0.5, 0.5)]


def star(n: int, hub: int) -> list[Position]:
    """Place a replay's ranks as a star: `hub` in the middle, the others round it."""
    around = ring(n - 1)
    around.insert(hub, (0.5, 0.5))
    return around


def row(n: int) -> list[Position]:
    """Place a replay's ranks in a row, as the stages of a pipeline."""
    return [(rank / (n - 1), 0.5) for rank in range(n)]


def tree(n: int, root: int, pairs: Sequence[tuple[int, int]]) -> list[Position]:
    """Place a replay's ranks as a tree: below each rank stand its message partners without a place, breadth first from `root`."""
    below = below_each(n, root, pairs)
    positions: dict[int, Position] = {}
    leaves: list[int] = []

    def place(rank: int, level: int) -> float:
        xs = [place(lower, level + 1) for lower in below[rank]]
        if not xs:
            leaves.append(rank)
            xs = [len(leaves) - 1.0]
        positions[rank] = ((xs[0] + xs[-1]) / 2, float(level))
        return positions[rank][0]

    place(root, 0)
    wide = max(1, len(leaves) - 1)
    deep = max(level for _, level in positions.values())
    return [(positions[rank][0] / wide, positions[rank][1] / deep) for rank in range(n)]


def _is_tree(n: int, links: set[frozenset[int]]) -> bool:
    """Tell whether a replay's links join all ranks without a cycle."""
    if len(links) != n - 1:
        return False

    joined = {0}
    for _ in range(n):  # rounds enough for the longest path
        for link in links:
            if link & joined:
                joined |= link
    return len(joined) == n
