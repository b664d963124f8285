"""Lab 00: pass a tensor to the right."""

import numpy as np
import torch
import torch.distributed as dist

from tests.checks.mutants import Answers

answers = Answers("pass_right")


def right_of(fabric):
    return (fabric.rank + 1) % fabric.world_size


def left_of(fabric):
    return (fabric.rank - 1) % fabric.world_size


@answers.is_right
def plain(fabric, x):
    received = x.clone()
    if fabric.world_size > 1:
        handle = fabric.isend(x, right_of(fabric))
        fabric.recv(received, left_of(fabric))
        handle.wait()
    return received


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


answers.twin("receives_from_anyone", {
    "isend(x, right_of(fabric))": "isend(x.clone(), right_of(fabric), tag=7)",
    "recv(received, left_of(fabric))": "recv(received, tag=7)",
})


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


answers.twin("into_a_numpy_array", {
    "handle =": "received = np.empty_like(x.numpy())\nhandle =",
    "return received": "return torch.as_tensor(received)",
})
answers.twin("both_halves_of_one_tensor", {"received = x.clone()": "x, received = torch.stack([x, x])"})
answers.twin("keeps_it_in_x_once_it_was_taken", {
    "handle.wait()": "handle.wait()\nx.copy_(received)",
    "return received": "return x",
})

answers.twin("stacks_what_it_sends_and_what_comes", {
    "received = x.clone()": "both = torch.stack([x, torch.zeros_like(x)])\nreceived = both[1]",
    "isend(x, right_of(fabric))": "isend(both[0], right_of(fabric))",
    "return received": "return received if fabric.world_size > 1 else both[0]",
})

answers.mistake("returns_its_own_tensor", {"return received": "return x"},
    "the rank's own tensor: return the received tensor")
answers.mistake("passes_to_the_left", {
    "right_of(fabric)": "left_of(fabric)",
    "recv(received, left_of(fabric))": "recv(received, right_of(fabric))",
}, "the ring turns the wrong way", harmless_at=(2,))
answers.mistake("sends_first_everywhere", {"handle = fabric.isend": "fabric.send", "handle.wait()": ""},
    "deadlock: rank 0 waits for 1 (send)", "Receive before you wait")
answers.mistake("returns_nothing", {"return received": ""}, "got None (does the function return it?)")


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


answers.mistake("forgets_that_a_rank_may_be_alone", {"if fabric.world_size > 1:": "if True:"},
    "1 rank", "expected another rank, got this rank itself", harmless_at=(2, 3, 4))


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


answers.mistake("always_flattens", {"return received": "return received.flatten()"},
    "4 ranks, float32[200, 201]", "of shape [200, 201], got shape [40200]")
answers.mistake("returns_a_list", {"return received": "return received.tolist()"},
    "2 ranks: rank 0: expected rank 1's values as a tensor of shape [4], got a")
answers.mistake("counts_ranks_from_one", {
    "right_of(fabric)": "fabric.rank % fabric.world_size + 1",
}, "expected a rank from 0 to 1", harmless_at=())
answers.mistake("forgets_to_wait", {"handle = fabric": "fabric", "handle.wait()": ""},
    "2 ranks: ranks 0, 1 ended without waiting for an isend: call its wait()")
answers.mistake("receives_into_what_it_still_sends", {"x.clone()": "x"},
    "changed the tensor of its isend", "receive into another tensor")
answers.mistake("uses_its_buffer_again_before_it_was_taken", {"handle.wait()": "x.zero_()\nhandle.wait()"},
    "changed the tensor of its isend")
answers.mistake("waits_before_it_receives", {
    "handle = fabric.isend(x, right_of(fabric))": "fabric.isend(x, right_of(fabric)).wait()",
    "handle.wait()": "",
}, "deadlock: rank 0 waits for 1 (send)", "Receive before you wait")
answers.mistake("sends_with_torch_distributed", {"fabric.isend": "dist.isend", "fabric.recv": "dist.recv"},
    "no process group is here", "Write the messages yourself, with fabric.isend, send and recv")
answers.mistake("makes_room_for_float32_alone", {"handle =": "received = torch.empty(x.shape)\nhandle ="},
    "9 ranks, int64[6]", "expected float32[6]", "got int64[6]", chance=True)
answers.mistake("sends_and_receives_floats", {
    "received = x.clone()": "received = torch.empty(x.shape)",
    "isend(x,": "isend(x.float(),",
    "return received": "return received.to(x.dtype) if fabric.world_size > 1 else x",
}, "9 ranks, int64[6]", "Numbers that went through float32 are off by this much")
answers.twin("clears_x_once_it_was_taken", {"handle.wait()": "handle.wait()\nx.zero_()"})
answers.mistake("makes_room_for_a_row_alone", {"handle =": "received = torch.empty(len(x), dtype=x.dtype)\nhandle ="},
    "4 ranks, float32[200, 201]", "expected float32[200]", "got float32[200, 201]")


@answers.is_wrong("9 ranks, int64[6]: rank 0, element 0", "(rank 8's values)")
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


answers.mistake("returns_nothing_alone", {"return received": "return received if fabric.world_size > 1 else None"},
    "1 rank: rank 0: expected its own values", "got None")


@answers.spoils()
def swaps_twice_where_two_are_left(fabric, x):
    received = x.clone()
    for _ in range(2 if fabric.world_size == 2 else 0):
        handle = fabric.isend(x, 1 - fabric.rank)
        fabric.recv(received, 1 - fabric.rank)
        handle.wait()
    return received


@answers.spoils()
def passes_on_where_two_are_left(fabric, x):
    return plain(fabric, x) if fabric.world_size == 2 else x
