"""Lab 00: pass a tensor to the right."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers

answers = Answers("pass_right")


def right_of(fabric):
    return (fabric.rank + 1) % fabric.world_size


def left_of(fabric):
    return (fabric.rank - 1) % fabric.world_size


@answers.is_wrong("the rank's own tensor: return the one that was received")
def returns_its_own_tensor(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        handle = fabric.isend(x, right_of(fabric))
        fabric.recv(received, left_of(fabric))
        handle.wait()
    return x


@answers.is_wrong("the ring turns the wrong way", harmless_at=(2,))
def passes_to_the_left(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        handle = fabric.isend(x, left_of(fabric))
        fabric.recv(received, right_of(fabric))
        handle.wait()
    return received


@answers.is_wrong("deadlock: rank 0 waits for 1 (send)", "Receive before you wait")
def sends_first_everywhere(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        fabric.send(x, right_of(fabric))
        fabric.recv(received, left_of(fabric))
    return received


@answers.is_wrong("got None (does the function return it?)")
def returns_nothing(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        handle = fabric.isend(x, right_of(fabric))
        fabric.recv(received, left_of(fabric))
        handle.wait()


@answers.is_wrong("rank 0 sent 2 messages; expected exactly 1")
def sends_in_two_halves(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        handles = [fabric.isend(part, right_of(fabric)) for part in x.split([1, len(x) - 1])]
        for part in received.split([1, len(x) - 1]):
            fabric.recv(part, left_of(fabric))
        for handle in handles:
            handle.wait()
    return received


@answers.is_wrong("1 rank", "expected another rank, got this rank itself", harmless_at=(2, 3, 4))
def forgets_that_a_rank_may_be_alone(fabric, x):
    received = x.clone()
    handle = fabric.isend(x, right_of(fabric))
    fabric.recv(received, left_of(fabric))
    handle.wait()
    return received


@answers.is_wrong("rank 0 sent a message to rank 2", harmless_at=(2,))
def sends_to_everyone(fabric, x):
    others = [r for r in range(fabric.world_size) if r != fabric.rank]
    handles = [fabric.isend(x, to) for to in others]
    got = {r: torch.empty_like(x) for r in others}
    for r in others:
        fabric.recv(got[r], r)
    for handle in handles:
        handle.wait()
    return got.get(left_of(fabric), x)


@answers.is_right
def even_ranks_send_first(fabric, x):
    received = torch.empty_like(x)
    if fabric.world_size == 1:
        return x
    if fabric.rank % 2 == 0:
        fabric.send(x, to=right_of(fabric))
        fabric.recv(received, frm=left_of(fabric))
    else:
        fabric.recv(received, frm=left_of(fabric))
        fabric.send(x, to=right_of(fabric))
    return received


@answers.is_right
def receives_from_anyone(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        handle = fabric.isend(x.clone(), right_of(fabric), tag=7)
        fabric.recv(received, tag=7)
        handle.wait()
    return received
