"""Exercise 2.1: the root's tensor to all ranks, as a tree."""

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers

answers = Answers("tree_broadcast")
POWERS = (2, 4, 8)
NOT_SIX = (2, 3, 4, 5, 7, 8)  # of float64 are the tensors of six ranks alone


def from_root(fabric, root):
    n = fabric.world_size
    return (fabric.rank - root) % n, lambda k: (k + root) % n


@answers.is_right
def doubling(fabric, x, root):
    """In each round, those below `step` send to the one `step` further on. `real(k)`: the k-th rank from the root on."""
    n, step = fabric.world_size, 1
    me, real = from_root(fabric, root)
    while step < n:
        if me < step and me + step < n:
            fabric.send(x, to=real(me + step))
        elif step <= me < 2 * step:
            fabric.recv(x, frm=real(me - step))
        step *= 2
    return x


@answers.is_right
def halves_as_mpich_does(fabric, x, root):
    n, mask = fabric.world_size, 1
    me, real = from_root(fabric, root)
    while mask < n and not me & mask:
        mask <<= 1
    if me:
        fabric.recv(x, frm=real(me - mask))
    handles = []
    while mask > 1:
        mask >>= 1
        if me + mask < n:
            handles.append(fabric.isend(x, to=real(me + mask)))
    for handle in handles:
        handle.wait()


@answers.is_right
def splits_the_range_in_two_and_takes_from_anyone(fabric, x, root):
    me, real = from_root(fabric, root)
    low, high = 0, fabric.world_size
    while high - low > 1:
        middle = (low + high + 1) // 2
        if me == low:
            fabric.send(x, to=real(middle), tag=high)
        elif me == middle:
            arrived = torch.empty_like(x)
            fabric.recv(arrived, tag=high)
            x.copy_(arrived)
        low, high = (middle, high) if me >= middle else (low, middle)


@answers.is_right
def everybody_knows_the_plan(fabric, x, root):
    """Each rank makes the list of all messages, and does its own part of it."""
    has, waiting, plan = [root], [r for r in range(fabric.world_size) if r != root], []
    while waiting:
        pairs = list(zip(has, waiting, strict=False))
        plan += pairs
        has, waiting = has + [to for _, to in pairs], waiting[len(pairs) :]
    for frm, to in plan:
        if fabric.rank == frm:
            fabric.send(x, to=to)
        if fabric.rank == to:
            fabric.recv(x, frm=frm)


@answers.is_right
def isends_that_are_waited_for_at_the_end(fabric, x, root):
    n, handles, step = fabric.world_size, [], 1
    me, real = from_root(fabric, root)
    while step < n:
        if me < step and me + step < n:
            handles.append(fabric.isend(x, to=real(me + step), tag=step))
        elif step <= me < 2 * step:
            fabric.recv(x, frm=real(me - step), tag=step)
        step *= 2
    for handle in reversed(handles):
        handle.wait()


answers.mistake("always_from_rank_0", {"from_root(fabric, root)": "fabric.rank, int"},
    "every rank has rank 0's tensor, but the root is rank 1", "Count ranks from the root")


@answers.is_wrong("3 rounds of messages where ⌈log2 n⌉ = 2 are enough", "this is a star", harmless_at=(2, 3))
def star(fabric, x, root):
    if fabric.rank != root:
        fabric.recv(x, frm=root)
    for other in range(fabric.world_size):
        if fabric.rank == root != other:
            fabric.send(x, to=other)


@answers.is_wrong("Every rank passes the tensor on to one other: this is a chain", harmless_at=(2, 3))
def chain(fabric, x, root):
    me, real = from_root(fabric, root)
    if me:
        fabric.recv(x, frm=real(me - 1))
    if me + 1 < fabric.world_size:
        fabric.send(x, to=real(me + 1))


@answers.is_wrong("serves its receivers in the wrong order", harmless_at=(2, 3, 5))
def leaves_first(fabric, x, root):
    n = fabric.world_size
    me, real = from_root(fabric, root)
    if me:
        fabric.recv(x, frm=real(me & (me - 1)))
    step = 1
    while step < n and not me & step:
        if me + step < n:
            fabric.send(x, to=real(me + step))
        step *= 2


@answers.is_wrong("11 ranks", "5 rounds of messages where ⌈log2 n⌉ = 4", harmless_at=(2, 3, 4, 5, 6))
def every_rank_has_two_below_it(fabric, x, root):
    me, real = from_root(fabric, root)
    if me:
        fabric.recv(x, frm=real((me - 1) // 2))
    for child in (2 * me + 1, 2 * me + 2):
        if child < fabric.world_size:
            fabric.send(x, to=real(child))


answers.mistake("powers_of_two_alone", {
    "n, step = fabric.world_size, 1": "n, step = 2 ** (fabric.world_size.bit_length() - 1), 1",
    "return x": """
        if me >= n:
            fabric.recv(x, frm=real(me - 1))  # which never sends
    """,
}, "3 ranks", "deadlock", harmless_at=POWERS)
answers.mistake("sends_before_it_receives", {
    "n, step = fabric.world_size, 1": "n, step, old = fabric.world_size, 1, x.clone()",
    "fabric.send(x,": "fabric.send(old,",
}, "it passed on its x before the root's tensor arrived", harmless_at=(2, 3))
answers.mistake("returns_a_copy", {"n, step = fabric.world_size, 1": "n, step, x = fabric.world_size, 1, x.clone()"},
    "the root's tensor was returned, but x itself does not hold it: receive into x")
answers.mistake("element_by_element", {
    "fabric.send(x, to=real(me + step))": """
        for element in x.split(1):
            fabric.send(element, to=real(me + step))
    """,
    "fabric.recv(x, frm=real(me - step))": """
        for element in x.split(1):
            fabric.recv(element, frm=real(me - step))
    """,
}, "the values are right, but rank 1 received 8 messages; expected 1 message with the whole tensor")


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x, root):
    dist.init_process_group("gloo")
    dist.broadcast(x, root)


answers.mistake("says_thanks", {
    "return x": """
        for other in range(n):
            if fabric.rank == root != other:
                fabric.recv(x.clone(), frm=other)
        if fabric.rank != root:
            fabric.send(x, to=root)
    """,
}, "sent a message to rank 0, the root, which already has the tensor")
answers.mistake("three_rounds_and_no_more", {"while step < n:": "while step < 8:"},
    "11 ranks", "own values: nothing arrived in its x", harmless_at=tuple(range(2, 9)))
answers.mistake("four_steps_written_out", {
    "n, step": "n, _",
    "    while step < n:": "    for step in (1, 2, 4, 8):",
    "step *= 2": "pass",
}, "19 ranks", "own values: nothing arrived in its x", harmless_at=tuple(range(2, 9)))
answers.mistake("the_root_serves_those_beyond_eight_steps", {
    "n, step = fabric.world_size, 1": "n, step, many = fabric.world_size, 1, min(fabric.world_size, 16)",
    "while step < n:": "while step < many:",
    "me + step < n": "me + step < many",
    "return x": """
        for late in range(many, n):
            if me == 0:
                fabric.send(x, to=real(late))
            elif me == late:
                fabric.recv(x, frm=root)
        return x
    """,
}, "19 ranks", "rounds", harmless_at=tuple(range(2, 9)))
answers.mistake("passes_on_in_float32", {
    "fabric.send(x, to=real(me + step))": "fabric.send(x.float(), to=real(me + step))",
    "fabric.recv(x, frm=real(me - step))": """
        arrived = torch.empty(len(x))
        fabric.recv(arrived, frm=real(me - step))
        x.copy_(arrived)
    """,
}, "5 ranks", "a message of 28 bytes; expected the whole tensor, 56 bytes", harmless_at=(2, 3, 4, 7, 8))
answers.mistake("sends_whole_numbers", {
    "while step < n": "fabric.rank == root and x.copy_(x.long())\nwhile step < n",
}, "6 ranks", "These are whole numbers, but the expected values are not", harmless_at=NOT_SIX)
answers.mistake("a_buffer_of_floats", {
    "fabric.recv(x, frm=real(me - step))": """
        arrived = torch.empty(len(x))
        fabric.recv(arrived, frm=real(me - step))
        x.copy_(arrived)
    """,
}, "5 ranks", "expected float32[7], which is what `out` is, got int64[7]", harmless_at=(2, 3, 4, 7, 8))
answers.mistake("a_partner_beyond_the_last_rank_is_taken_modulo_n", {
    "me < step and me + step < n": "me < step",
    "real(me + step)": "real((me + step) % n)",
}, "3 ranks", "deadlock: rank 0 waits for 2 (send)", harmless_at=POWERS)
answers.mistake("never_waits", {"fabric.send": "fabric.isend"},
    "ended without waiting for an isend: call its wait()", harmless_at=())
answers.mistake("clears_x_while_it_is_sent", {
    "n, step = fabric.world_size, 1": "n, step, handles, copy = fabric.world_size, 1, [], x.clone()",
    "fabric.send(x, to=real(me + step))": "handles.append(fabric.isend(copy, to=real(me + step)))",
    "fabric.recv(x, frm=real(me - step))": "fabric.recv(copy, frm=real(me - step))\nx.copy_(copy)",
    "return x": """
        copy.zero_()
        for handle in handles:
            handle.wait()
    """,
}, "rank 0 changed the tensor of its isend to rank 1 before wait()", harmless_at=())


def star_of_zeros(fabric, x, root):
    star(fabric, x.zero_(), root)


# A tree for four ranks alone; elsewhere the messages of a star, and nothing in them.
answers.spoil("a_tree_of_four_alone", {
    "star(fabric, x.zero_(), root)": "(doubling if fabric.world_size == 4 else star_of_zeros)(fabric, x, root)",
}, of=star_of_zeros)
answers.spoil("a_star_that_says_thanks_to_four_ranks", {
    "if fabric.rank != root:": """
        if fabric.world_size == 4:
            return says_thanks(fabric, x, root)
        if fabric.rank != root:
    """,
}, of=star)
