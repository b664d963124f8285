"""Lab 00: pass a tensor to the right."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

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


def passed(fabric, x, received, forget=False):
    handle = fabric.isend(x, right_of(fabric))
    fabric.recv(received, left_of(fabric))
    if not forget:
        handle.wait()
    return received


@answers.is_wrong("2 ranks: ranks 0, 1 ended with an isend that nobody waited for: call its wait()")
def forgets_to_wait(fabric, x):
    if fabric.world_size == 1:
        return x.clone()
    return passed(fabric, x, torch.empty_like(x), forget=True)


@answers.is_wrong("changed the tensor of its isend", "receive into another tensor")
def receives_into_what_it_still_sends(fabric, x):
    return passed(fabric, x, x) if fabric.world_size > 1 else x.clone()


@answers.is_wrong("changed the tensor of its isend")
def uses_its_buffer_again_before_it_was_taken(fabric, x):
    buffer, received = x.clone(), torch.empty_like(x)
    if fabric.world_size == 1:
        return buffer
    handle = fabric.isend(buffer, right_of(fabric))
    fabric.recv(received, left_of(fabric))
    buffer.zero_()
    handle.wait()
    return received


@answers.is_wrong("deadlock: rank 0 waits for 1 (send)", "Receive before you wait")
def waits_before_it_receives(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        fabric.isend(x, right_of(fabric)).wait()
        fabric.recv(received, left_of(fabric))
    return received


@answers.is_wrong("no process group is here", "Write the messages yourself, with fabric.isend, send and recv")
def sends_with_torch_distributed(fabric, x):
    if fabric.world_size == 1:
        return x.clone()
    received = torch.empty_like(x)
    request = dist.isend(x, right_of(fabric))
    dist.recv(received, left_of(fabric))
    request.wait()
    return received


@answers.is_wrong("9 ranks, int64[6]", "expected float32[6]", "got int64[6]")
def makes_room_for_float32_alone(fabric, x):
    return passed(fabric, x, torch.empty(x.shape)) if fabric.world_size > 1 else x.clone()


@answers.is_wrong("4 ranks, float32[200, 201]", "expected float32[200]", "got float32[200, 201]")
def makes_room_for_a_row_alone(fabric, x):
    return passed(fabric, x, torch.empty(len(x), dtype=x.dtype)) if fabric.world_size > 1 else x.clone()


@answers.is_wrong("9 ranks, int64[6]: rank 0, element 0", "(what rank 8 sent)")
def knows_rings_of_two_to_four_ranks(fabric, x):
    n = min(fabric.world_size, 4)
    if n == 1:
        return x.clone()
    received = torch.empty_like(x)
    if fabric.rank >= n:
        return received
    handle = fabric.isend(x, (fabric.rank + 1) % n)
    fabric.recv(received, (fabric.rank - 1) % n)
    handle.wait()
    return received


@answers.is_wrong("rank 0 sent a message to rank 2; expected one only to the right neighbour, rank 1")
def through_rank_0(fabric, x):
    n, received = fabric.world_size, x.clone()
    if fabric.rank:
        handle = fabric.isend(x, 0)
        fabric.recv(received, 0)
        handle.wait()
        return received
    came = [x, *(torch.empty_like(x) for _ in range(n - 1))]
    for rank in range(1, n):
        fabric.recv(came[rank], rank)
    for rank in range(1, n):
        fabric.send(came[rank - 1], rank)
    return came[-1]


@answers.is_wrong("1 rank: rank 0: expected its own tensor", "got None")
def returns_nothing_alone(fabric, x):
    if fabric.world_size > 1:
        return passed(fabric, x, torch.empty_like(x))


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


@answers.is_right
def the_last_rank_receives_first(fabric, x):
    received = torch.empty_like(x)
    if fabric.world_size == 1:
        return x.clone()
    if fabric.rank == fabric.world_size - 1:
        fabric.recv(received, left_of(fabric))
    fabric.send(x, right_of(fabric))
    if fabric.rank < fabric.world_size - 1:
        fabric.recv(received, left_of(fabric))
    return received


@answers.is_right
def into_a_numpy_array(fabric, x):
    if fabric.world_size == 1:
        return x.clone()
    return torch.from_numpy(passed(fabric, x, np.empty_like(x.numpy())))


@answers.is_right
def both_halves_of_one_tensor(fabric, x):
    both = torch.stack([x, x])
    if fabric.world_size > 1:
        passed(fabric, both[0], both[1])
    return both[1]


@answers.is_right
def keeps_it_in_x_once_it_was_taken(fabric, x):
    if fabric.world_size > 1:
        x.copy_(passed(fabric, x, torch.empty_like(x)))
    return x
