"""Programs over the fabric that simulations are tried with: collectives written as a student would."""

import torch

from worldsize.fabric.collectives import meet


def passes(fabric, parts, me, peer, count):
    """Reduce-scatter, then all-gather, round the ring of `count` ranks of which `peer(d)` is d further on."""
    for step in range(count - 1):
        handle = fabric.isend(parts[(me - step) % count], peer(1))
        got = torch.empty_like(parts[(me - step - 1) % count])
        fabric.recv(got, peer(-1))
        handle.wait()
        parts[(me - step - 1) % count] += got


def gathers(fabric, parts, me, peer, count):
    for step in range(count - 1):
        handle = fabric.isend(parts[(me + 1 - step) % count], peer(1))
        fabric.recv(parts[(me - step) % count], peer(-1))
        handle.wait()


def ring(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    parts = list(x.tensor_split(n))
    passes(fabric, parts, rank, lambda d: (rank + d) % n, n)
    gathers(fabric, parts, rank, lambda d: (rank + d) % n, n)
    return x


def two_levels(fabric, x, node_ranks):
    """Inside each node, across the nodes with a part each, and inside again."""
    n, k = fabric.world_size, node_ranks
    node, local = divmod(fabric.rank, k)

    def inside(d):
        return node * k + (local + d) % k

    def across(d):
        return (node + d) % (n // k) * k + local

    mine = list(x.tensor_split(k))
    passes(fabric, mine, local, inside, k)
    parts = list(mine[(local + 1) % k].tensor_split(n // k))
    passes(fabric, parts, node, across, n // k)
    gathers(fabric, parts, node, across, n // k)
    gathers(fabric, mine, local, inside, k)
    return x


def all_to_all(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    parts, got = x.tensor_split(n), list(torch.empty_like(x).tensor_split(n))
    handles = [fabric.isend(parts[(rank + d) % n], (rank + d) % n) for d in range(1, n)]
    for d in range(1, n):
        fabric.recv(got[(rank - d) % n], (rank - d) % n)
    for handle in handles:
        handle.wait()


def server(fabric, x):
    n = fabric.world_size
    if fabric.rank:
        fabric.send(x, 0)
        fabric.recv(x, 0)
        return x

    got = torch.empty_like(x)
    for _ in range(n - 1):
        fabric.recv(got)
        x += got
    for handle in [fabric.isend(x, rank) for rank in range(1, n)]:
        handle.wait()
    return x


def tree(fabric, x):
    """A sum towards rank 0 by pairs, and the way back."""
    n, rank, gap = fabric.world_size, fabric.rank, 1
    got, below = torch.empty_like(x), []
    while gap < n and rank % (2 * gap) == 0:
        if rank + gap < n:
            fabric.recv(got, rank + gap)
            x += got
            below.append(rank + gap)
        gap *= 2

    if rank:
        fabric.send(x, rank - gap)
        fabric.recv(x, rank - gap)
    for other in reversed(below):
        fabric.send(x, other)
    return x


def together(fabric, fn, x):
    """All begin at once, so that a process that starts late is not counted."""
    meet(fabric)
    fabric.compute(1e-6)
    fn(fabric, x)


def seconds(run):
    """From the first message after all have met to the end of the last."""
    began_s = max(span.end_s for span in run.trace.spans if span.kind == "compute")
    return max(t.end_s for t in run.trace.transfers) - began_s
