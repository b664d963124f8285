"""Exercise 2.3: every rank's tensor to the root, as a tree."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers

answers = Answers("tree_gather")
POWERS = (2, 4, 8)


def up(fabric, x, me, real):
    """The blocks of ranks me, me + 1, … so far, on the way up; None where they were sent on."""
    n, held, step = fabric.world_size, x[None], 1
    while step < n:
        if me % (2 * step) == step:
            fabric.send(held, to=real(me - step))
            return None
        if me + step < n:
            arrived = torch.empty(min(step, n - me - step), len(x))
            fabric.recv(arrived, frm=real(me + step))
            held = torch.cat([held, arrived])
        step *= 2
    return held


def from_root(fabric, root):
    n = fabric.world_size
    return (fabric.rank - root) % n, lambda k: (k + root) % n


@answers.is_wrong("rank 0 returned the blocks, but the root is rank 1", "Count ranks from the root")
def always_to_rank_0(fabric, x, root):
    return up(fabric, x, fabric.rank, lambda k: k)


@answers.is_wrong("4 ranks, root 1", "It holds rank 1's: all blocks are there, in the order of the tree")
def in_the_order_of_the_tree(fabric, x, root):
    return up(fabric, x, *from_root(fabric, root))


@answers.is_wrong("4 ranks, root 1", "all blocks are there, in the order of the tree", harmless_at=(2,))
def turned_the_wrong_way(fabric, x, root):
    held = up(fabric, x, *from_root(fabric, root))
    return None if held is None else held.roll(-root, 0)


@answers.is_wrong("rank 1 sent 4 blocks to rank 0, but had 1: its own and what it received")
def whole_tables_padded_with_zeros(fabric, x, root):
    n, step = fabric.world_size, 1
    me, real = from_root(fabric, root)
    table = torch.zeros(n, len(x))
    table[fabric.rank] = x
    while step < n:
        if me % (2 * step) == step:
            fabric.send(table, to=real(me - step))
            return None
        if me + step < n:
            arrived = torch.empty_like(table)
            fabric.recv(arrived, frm=real(me + step))
            table += arrived
        step *= 2
    return table


@answers.is_wrong("Rank 0 takes every message, one after the other: this is a star", harmless_at=(2, 3))
def star(fabric, x, root):
    if fabric.rank != root:
        fabric.send(x, to=root)
        return None
    table = torch.empty(fabric.world_size, len(x))
    table[root] = x
    for other in range(fabric.world_size):
        if other != root:
            fabric.recv(table[other], frm=other)
    return table


@answers.is_wrong("Every rank waits for one other: this is a chain", harmless_at=(2, 3))
def chain(fabric, x, root):
    n = fabric.world_size
    me, real = from_root(fabric, root)
    held = x[None]
    if me + 1 < n:
        arrived = torch.empty(n - me - 1, len(x))
        fabric.recv(arrived, frm=real(me + 1))
        held = torch.cat([held, arrived])
    if me:
        fabric.send(held, to=real(me - 1))
        return None
    return held.roll(root, 0)


@answers.is_wrong("3 ranks", "expected float32[2, 5], which is what `out` is, got float32[1, 5]", harmless_at=POWERS)
def every_message_as_long_as_its_step(fabric, x, root):
    n, held, step = fabric.world_size, x[None], 1
    me, real = from_root(fabric, root)
    while step < n:
        if me % (2 * step) == step:
            fabric.send(held, to=real(me - step))
            return None
        if me + step < n:
            arrived = torch.empty(step, len(x))
            fabric.recv(arrived, frm=real(me + step))
            held = torch.cat([held, arrived])
        step *= 2
    return held.roll(root, 0)


@answers.is_wrong("row 3: expected rank 3's block", "It holds zeros: that block never arrived", harmless_at=(2, 3))
def passes_on_its_own_alone(fabric, x, root):
    n, step = fabric.world_size, 1
    me, real = from_root(fabric, root)
    table = torch.zeros(n, len(x))
    table[fabric.rank] = x
    while step < n:
        if me % (2 * step) == step:
            fabric.send(x, to=real(me - step))
            return None
        if me + step < n:
            fabric.recv(table[real(me + step)], frm=real(me + step))
        step *= 2
    return table


@answers.is_wrong("rank 1 returned something; expected None: rank 0, the root, has it all")
def everybody_returns_what_it_has(fabric, x, root):
    held = up(fabric, x, *from_root(fabric, root))
    return x if held is None else held.roll(root, 0)


@answers.is_wrong("expected all blocks of shape [4, 8], got shape [32]")
def end_to_end(fabric, x, root):
    held = up(fabric, x, *from_root(fabric, root))
    return None if held is None else held.roll(root, 0).flatten()


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x, root):
    dist.init_process_group("gloo")
    rows = [torch.empty_like(x) for _ in range(fabric.world_size)]
    dist.gather(x, rows if fabric.rank == root else None, root)
    return torch.stack(rows) if fabric.rank == root else None


@answers.is_right
def pairs(fabric, x, root):
    held = up(fabric, x, *from_root(fabric, root))
    return None if held is None else held.roll(root, 0)


@answers.is_right
def a_dictionary_by_rank(fabric, x, root):
    n = fabric.world_size
    me, real = from_root(fabric, root)
    held, step = {me: x}, 1
    while step < n:
        if me % (2 * step) == step:
            fabric.send(torch.cat([held[k] for k in sorted(held)]), to=real(me - step), tag=step)
            return None
        below = range(me + step, min(me + 2 * step, n))
        if below:
            arrived = torch.empty(len(below) * len(x))
            fabric.recv(arrived, frm=real(me + step), tag=step)
            held.update(zip(below, arrived.split(len(x)), strict=True))
        step *= 2
    return torch.stack([held[(rank - root) % n] for rank in range(n)])


@answers.is_right
def from_the_far_half_into_its_place(fabric, x, root):
    n = fabric.world_size
    me, real = from_root(fabric, root)
    table = torch.zeros(n, len(x))
    table[me] = x
    ranges, low, high = [], 0, n
    while high - low > 1:
        middle = (low + high + 1) // 2
        ranges.append((low, middle, high))
        low, high = (middle, high) if me >= middle else (low, middle)
    for low, middle, high in reversed(ranges):
        if me == middle:
            fabric.isend(table[middle:high], to=real(low)).wait()
            return None
        if me == low:
            fabric.recv(table[middle:high], frm=real(middle))
    return torch.cat([table[n - root :], table[: n - root]])
