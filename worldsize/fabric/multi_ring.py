"""An all-reduce over several routes at once, as in NCCL: k rings over k cards, and a double binary tree.

Each route carries a part of the tensor. Rings leave a node at different ranks, so that each has its own card. The inner ranks
of one binary tree are the leaves of the other, so that every rank sends and receives as much, and pieces follow each other up
and down. Left out: NCCL's search for routes, and its threads, which overlap a tree's two directions.

P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
35, 2009. S. Jeaugey, "Massively scale your deep learning training with NCCL 2.4", NVIDIA, 2019.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from worldsize.fabric.interface import Fabric, Handle


def ring_orders(world_size: int, per_node: int, rings: int) -> list[list[int]]:
    """Return each ring's order of ranks: node after node, ring j entering every node at its place j · per_node / rings.

    Raises ValueError if nodes do not divide the ranks, or rings the ranks of a node.
    """
    if world_size % per_node or per_node % rings:
        raise ValueError(
            f"ring_orders: expected nodes that divide {world_size} ranks, and rings that divide the {per_node} ranks of a node; "
            f"got {rings} rings"
        )
    orders = []
    for ring in range(rings):
        first = ring * per_node // rings
        orders.append([rank - rank % per_node + (rank + first) % per_node for rank in range(world_size)])
    return orders


def rings_all_reduce(fabric: Fabric, x: torch.Tensor, orders: Sequence[Sequence[int]]) -> torch.Tensor:
    """Replace x, of shape [elements], by the sum of all ranks' x: part j goes round the ring `orders[j]`. Returns x.

    Every rank sends 2 (n − 1)/n of x, over all rings together.
    """
    n = fabric.world_size
    parts = [part.tensor_split(n) for part in x.tensor_split(len(orders))]
    places = [list(order).index(fabric.rank) for order in orders]

    for step in range(2 * (n - 1)):
        handles = []
        for ring, (order, place) in enumerate(zip(orders, places, strict=True)):
            handles.append(fabric.isend(parts[ring][(place - step) % n], to=order[(place + 1) % n], tag=ring))

        for ring, (order, place) in enumerate(zip(orders, places, strict=True)):
            own = parts[ring][(place - step - 1) % n]
            arrived = torch.empty_like(own)
            fabric.recv(arrived, frm=order[(place - 1) % n], tag=ring)
            if step < n - 1:
                own += arrived
            else:
                own.copy_(arrived)
        for handle in handles:
            handle.wait()
    return x


class Place(NamedTuple):
    """A rank's neighbors in one of two trees; the root has no parent, a leaf no children."""

    parent: int | None
    children: tuple[int, ...]


def two_trees(rank: int, world_size: int) -> tuple[Place, Place]:
    """Return `rank`'s places in two binary trees of depth ⌈log2 n⌉; only the roots are inner ranks in both.

    The second tree is the first mirrored, or shifted by one for an odd number of ranks. NCCL, 2019, figure 4.
    """
    n = world_size
    if n % 2:
        other, renamed = _in_order_tree((rank - 1) % n, n), lambda r: (r + 1) % n
    else:
        other, renamed = _in_order_tree(n - 1 - rank, n), lambda r: n - 1 - r

    parent = None if other.parent is None else renamed(other.parent)
    return _in_order_tree(rank, n), Place(parent, tuple(map(renamed, other.children)))


def _in_order_tree(rank: int, n: int) -> Place:
    """Return a rank's place. Odd ranks are leaves; a rank's lowest bit is its height; rank 0 is the root, with one child."""
    bit = rank & -rank if rank else 1 << (n - 1).bit_length()
    parent = None
    if rank:
        parent = (rank ^ bit) | (bit << 1)
        if parent >= n:
            parent = rank ^ bit

    children, below = [], bit >> 1
    if rank and below:
        children.append(rank - below)
    while below and rank + below >= n:
        below >>= 1
    if below:
        children.append(rank + below)
    return Place(parent, tuple(children))


def double_tree_all_reduce(fabric: Fabric, x: torch.Tensor, pieces: int = 8) -> torch.Tensor:
    """Replace x, of shape [elements], by the sum of all ranks' x; each of two trees carries a half up and down. Returns x.

    A half travels in `pieces` that follow each other: no rank sends more than three halves up and down. In its leaf tree a rank
    sends `depth` pieces ahead of its inner tree going up, and receives pieces as much later going down; otherwise each piece
    would wait for a whole tree.
    """
    depth = (fabric.world_size - 1).bit_length()
    halves = [half.tensor_split(pieces) for half in x.tensor_split(2)]
    places = two_trees(fabric.rank, fabric.world_size)
    inner, leaf = sorted(range(2), key=lambda tree: -len(places[tree].children))

    handles = []
    for step in range(pieces + depth):  # up: sums
        if step < pieces:
            handles += _sum_up(fabric, halves[leaf][step], places[leaf], leaf)
        if step >= depth:
            handles += _sum_up(fabric, halves[inner][step - depth], places[inner], inner)
    for handle in handles:
        handle.wait()  # the way down overwrites what was sent up

    handles = []
    for step in range(pieces + depth):  # down: the whole sum
        if step < pieces:
            handles += _pass_down(fabric, halves[inner][step], places[inner], inner)
        if step >= depth:
            handles += _pass_down(fabric, halves[leaf][step - depth], places[leaf], leaf)
    for handle in handles:
        handle.wait()
    return x


def _sum_up(fabric: Fabric, own: torch.Tensor, place: Place, tag: int) -> list[Handle]:
    for child in place.children:
        arrived = torch.empty_like(own)
        fabric.recv(arrived, frm=child, tag=tag)
        own += arrived
    return [] if place.parent is None else [fabric.isend(own, to=place.parent, tag=tag)]


def _pass_down(fabric: Fabric, own: torch.Tensor, place: Place, tag: int) -> list[Handle]:
    if place.parent is not None:
        fabric.recv(own, frm=place.parent, tag=tag)
    return [fabric.isend(own, to=child, tag=tag) for child in place.children]
