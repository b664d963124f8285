"""Exercise 2.2: the sum of all ranks' tensors on the root, as a tree."""

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers

answers = Answers("tree_reduce")
POWERS = (2, 4, 8)
NOT_SIX = (2, 3, 4, 5, 7, 8)  # of float64 are the tensors of six ranks alone


def from_root(fabric, root):
    n = fabric.world_size
    return (fabric.rank - root) % n, lambda k: (k + root) % n


@answers.is_right
def pairs(fabric, x, root):
    """At distance 1, 2, 4, …: the upper one of each pair sends to the lower one, which adds, and is done."""
    n, step = fabric.world_size, 1
    me, real = from_root(fabric, root)
    while step < n:
        if me % (2 * step) == step:
            fabric.send(x, to=real(me - step))
            return
        if me + step < n:
            arrived = torch.empty_like(x)
            fabric.recv(arrived, frm=real(me + step))
            x += arrived
        step *= 2


@answers.is_right
def a_broadcast_played_backwards(fabric, x, root):
    n = fabric.world_size
    me, real = from_root(fabric, root)
    step = 2 ** (n - 1).bit_length()
    arrived = torch.empty_like(x)
    while step > 1:
        step //= 2
        if step <= me < 2 * step:
            fabric.send(x, to=real(me - step), tag=step)
        elif me < step and me + step < n:
            fabric.recv(arrived, tag=step)
            x.add_(arrived)
    return x


@answers.is_right
def by_recursion_over_a_range(fabric, x, root):
    me, real = from_root(fabric, root)

    def collect(low, high):
        """The sum over [low, high) comes to rank low."""
        if high - low < 2:
            return
        middle = (low + high + 1) // 2
        collect(low, middle) if me < middle else collect(middle, high)
        if me == middle:
            fabric.isend(x, to=real(low)).wait()
        elif me == low:
            other = x.clone()
            fabric.recv(other, frm=real(middle))
            x.copy_(x + other)

    collect(0, fabric.world_size)


@answers.is_right
def all_partners_from_the_bits(fabric, x, root):
    """A rank's helpers differ from it in one of its low zero bits; it sends where its lowest one is."""
    n = fabric.world_size
    me, real = from_root(fabric, root)
    lowest = me & -me or n
    arrived = [torch.empty_like(x) for _ in range(n.bit_length())]
    for k, buffer in enumerate(arrived):
        if 1 << k < lowest and me + (1 << k) < n:
            fabric.recv(buffer, frm=real(me + (1 << k)))
            x += buffer
    if me:
        fabric.isend(x, to=real(me - lowest)).wait()


@answers.is_right
def the_upper_half_sends_to_the_lower(fabric, x, root):
    me, real = from_root(fabric, root)
    left, arrived = fabric.world_size, x.clone()
    while left > 1:
        half = (left + 1) // 2
        if half <= me < left:
            fabric.send(x, to=real(me - half))
        elif me + half < left:
            fabric.recv(arrived, frm=real(me + half))
            x.add_(arrived)
        left = half


answers.mistake("always_to_rank_0", {"from_root(fabric, root)": "fabric.rank, int"},
    "rank 0 holds the sum, but the root is rank 1", "Count ranks from the root")


@answers.is_wrong("Rank 0 receives every message, one after the other: this is a star", harmless_at=(2, 3))
def star(fabric, x, root):
    if fabric.rank != root:
        fabric.send(x, to=root)
        return
    arrived = torch.empty_like(x)
    for _ in range(fabric.world_size - 1):
        fabric.recv(arrived)
        x += arrived


@answers.is_wrong("Every rank waits for one other: this is a chain", harmless_at=(2, 3))
def chain(fabric, x, root):
    me, real = from_root(fabric, root)
    if me + 1 < fabric.world_size:
        arrived = torch.empty_like(x)
        fabric.recv(arrived, frm=real(me + 1))
        x += arrived
    if me:
        fabric.send(x, to=real(me - 1))


answers.mistake("sends_before_it_has_added", {
    "n, step = fabric.world_size, 1": "n, step, old = fabric.world_size, 1, x.clone()",
    "fabric.send(x,": "fabric.send(old,",
}, "Rank 3's values are not in this sum", harmless_at=(2, 3))
answers.mistake("powers_of_two_alone", {
    "n, step = fabric.world_size, 1": "n, step = 2 ** (fabric.world_size.bit_length() - 1), 1",
    "while step < n:": "while step < n and me < n:",
}, "3 ranks", "values are not in this sum", harmless_at=POWERS)
answers.mistake("assigns_instead_of_adding", {
    """
        arrived = torch.empty_like(x)
        fabric.recv(arrived, frm=real(me + step))
        x += arrived
    """: "fabric.recv(x, frm=real(me + step))",
}, "These are only rank", "received values were copied, not added", harmless_at=())
answers.mistake("averages", {
    "    step *= 2": """
            step *= 2
        x /= n
    """,
}, "This is the mean, not the sum: do not divide")
answers.mistake("adds_up_in_a_copy", {
    "n, step = fabric.world_size, 1": "n, step, x = fabric.world_size, 1, x.clone()",
    "    step *= 2": """
            step *= 2
        return x
    """,
}, "rank 0 returned the sum, but its x does not hold it: add up in place")


@answers.is_wrong("the values are right, but rank 0, the root, sent a message to rank 1")
def tells_everybody(fabric, x, root):
    pairs(fabric, x, root)
    for other in range(fabric.world_size):
        if fabric.rank == root != other:
            fabric.send(x, to=other)
    if fabric.rank != root:
        fabric.recv(x, frm=root)


@answers.is_wrong("the values are right, but rank 1 sent 8 messages; expected 1, once everything from below has arrived")
def element_by_element(fabric, x, root):
    for element in x.split(1):
        pairs(fabric, element, root)


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x, root):
    dist.init_process_group("gloo")
    dist.reduce(x, root)


@answers.is_wrong("deadlock: rank 0 waits for 1 (recv)")
def everybody_receives(fabric, x, root):
    me, real = from_root(fabric, root)
    if fabric.world_size > 1:
        fabric.recv(x, frm=real(1 - me) if me < 2 else root)


answers.mistake("three_rounds_and_no_more", {"while step < n:": "while step < min(n, 8):"},
    "11 ranks", "the sum of the first 8 ranks, counted from the root", harmless_at=tuple(range(2, 9)))
answers.mistake("four_steps_written_out", {
    "n, step": "n, _",
    "    while step < n:": "    for step in (1, 2, 4, 8):",
    "    step *= 2": "",
}, "19 ranks", "the sum of the first 16 ranks, counted from the root", harmless_at=tuple(range(2, 9)))
answers.mistake("adds_up_in_float32", {"x += arrived": "x.copy_(x.float() + arrived.float())"},
    "6 ranks", "of float64", "The digits beyond float32 precision are lost", harmless_at=NOT_SIX)
answers.mistake("adds_up_in_whole_numbers", {"x += arrived": "x.copy_(x.long() + arrived.long())"},
    "6 ranks", "These are whole numbers, but the expected values are not: do not round", harmless_at=NOT_SIX)
answers.mistake("rounds_the_sum", {"    step *= 2": """
        step *= 2
    x.round_() if x.is_floating_point() else x
"""}, "6 ranks", "These are whole numbers, but the expected values are not: do not round", harmless_at=NOT_SIX)
answers.mistake("a_buffer_of_floats", {"torch.empty_like(x)": "torch.empty(len(x))"},
    "5 ranks", "expected float32[7], which is what `out` is, got int64[7]", harmless_at=(2, 3, 4, 7, 8))
# Every rank that has sent sends its zeros on, in later rounds too.
answers.mistake("sends_and_keeps_going", {
    "if me % (2 * step) == step:": "if me & step:",
    """
            return
        if me + step < n:
    """: """
            x.zero_()
        elif me + step < n:
    """,
}, "the values are right, but rank 3 sent 2 messages; expected 1", harmless_at=(2, 3))
answers.mistake("never_waits", {"fabric.send": "fabric.isend"},
    "ended without waiting for an isend: call its wait()", harmless_at=())
answers.mistake("clears_x_while_it_is_sent", {
    "fabric.send(x, to=real(me - step))": """
        handle = fabric.isend(x, to=real(me - step))
        x.zero_()
        handle.wait()
    """,
}, "rank 1 changed the tensor of its isend to rank 0 before wait()", harmless_at=())


def star_of_zeros(fabric, x, root):
    star(fabric, x.zero_(), root)


# A tree for four ranks alone; elsewhere the messages of a star, and nothing in them.
answers.spoil("a_tree_of_four_alone", {
    "star(fabric, x.zero_(), root)": "(pairs if fabric.world_size == 4 else star_of_zeros)(fabric, x, root)",
}, of=star_of_zeros)


@answers.spoils(star)
def a_star_that_keeps_what_three_ranks_sent(fabric, x, root):
    (star if fabric.world_size > 4 else pairs)(fabric, x, root)
    if fabric.world_size == 3:
        x.zero_()
