"""Exercise 6.4: every rank's slice to all ranks, round the ring."""

import torch
import torch.distributed as dist

from tests.checks.mutants import IN_FLOAT32, LOST_WHOLE, Answers

answers = Answers("all_gather")


def gather(fabric, x, bounds, way=1, steps=None):
    """In step s, rank r passes on the slice of rank r - s."""
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1 if steps is None else steps):
        handle = fabric.isend(x[slice(*bounds[(rank - way * step) % n])], (rank + way) % n)
        fabric.recv(x[slice(*bounds[(rank - way * (step + 1)) % n])], (rank - way) % n)
        handle.wait()


@answers.is_right
def the_usual_way(fabric, x, bounds):
    """In step s, rank r passes on the slice of rank r - s."""
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1):
        handle = fabric.isend(x[slice(*bounds[(rank - step) % n])], (rank + 1) % n)
        fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], (rank - 1) % n)
        handle.wait()


@answers.is_right
def to_the_left(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1):
        handle = fabric.isend(x[slice(*bounds[(rank + step) % n])], (rank - 1) % n)
        fabric.recv(x[slice(*bounds[(rank + step + 1) % n])], (rank + 1) % n)
        handle.wait()
    return x


@answers.is_right
def waits_for_all_handles_at_the_end(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    handles = []
    for step in range(n - 1):
        handles.append(fabric.isend(x[slice(*bounds[(rank - step) % n])], (rank + 1) % n, tag=step))
        fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], (rank - 1) % n, tag=step)
    for handle in handles:
        handle.wait()


@answers.is_right
def rank_0_receives_first(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1):
        out, into = x[slice(*bounds[(rank - step) % n])], x[slice(*bounds[(rank - step - 1) % n])]
        if rank:
            fabric.send(out, (rank + 1) % n)
        fabric.recv(into, (rank - 1) % n)
        if not rank:
            fabric.send(out, (rank + 1) % n)


@answers.is_right
def copies_what_has_landed(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    carried = x[slice(*bounds[rank])].clone()
    for step in range(n - 1):
        start, stop = bounds[(rank - step - 1) % n]
        landing = x.new_empty(stop - start)
        handle = fabric.isend(carried, (rank + 1) % n)
        fabric.recv(landing)
        handle.wait()
        x[start:stop] = carried = landing


answers.mistake("leaves_out_the_last_step", {"range(n - 1)": "range(n - 2)"},
    "which rank 1 owns", "These are still rank 0's own values: rank 1's slice never arrived", "Is the last step missing?")
answers.mistake("always_sends_its_own_guess", {
    "for step": "start = x.clone()\nfor step",
    "fabric.isend(x[": "fabric.isend(start[",
}, "which does not own this slice: a rank sent a slice before receiving it", harmless_at=(2,))
answers.mistake("gathers_into_a_copy", {
    "n, rank = fabric.world_size, fabric.rank": "n, rank, x = fabric.world_size, fabric.rank, x.clone()",
    "    handle.wait()": """
            handle.wait()
        return x
    """,
}, "the whole tensor was returned, but x itself does not hold it: receive into x[start:stop]", harmless_at=(1,))
answers.mistake("gathers_into_a_copy_and_keeps_it",
    {"n, rank = fabric.world_size, fabric.rank": "n, rank, x = fabric.world_size, fabric.rank, x.clone()"},
    "slice never arrived in its x", harmless_at=(1,))
answers.mistake("adds_instead_of_copying", {
    "fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], (rank - 1) % n)": """
        into = x[slice(*bounds[(rank - step - 1) % n])]
        landing = torch.empty_like(into)
        fabric.recv(landing, (rank - 1) % n)
        into += landing
    """,
}, "Several ranks' values were added up here: an all-gather only copies")


@answers.is_wrong("messages hold the whole tensor: rank 0 sends 2 x the tensor, where 0.67 x is enough")
def whole_tensors_round_the_ring(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    token = x.clone()
    for step in range(n - 1):
        landing = torch.empty_like(token)
        handle = fabric.isend(token, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        handle.wait()
        token = landing
        part = slice(*bounds[(rank - step - 1) % n])
        x[part] = token[part]


@answers.is_wrong("the values are right, but rank 0 sent a message to rank 2", harmless_at=(2,))
def straight_to_everyone(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    handles = [fabric.isend(x[slice(*bounds[rank])], (rank + k) % n) for k in range(1, n)]
    for k in range(1, n):
        fabric.recv(x[slice(*bounds[(rank - k) % n])], (rank - k) % n)
    for handle in handles:
        handle.wait()


@answers.is_wrong("the values are right, but rank 0 gathers and broadcasts")
def gathers_and_broadcasts(fabric, x, bounds):
    for owner in range(1, fabric.world_size):
        if fabric.rank == 0:
            fabric.recv(x[slice(*bounds[owner])], owner)
        elif fabric.rank == owner:
            fabric.send(x[slice(*bounds[owner])], 0)
    for part in bounds:
        for worker in range(1, fabric.world_size):
            if fabric.rank == 0:
                fabric.send(x[slice(*part)], worker)
            elif fabric.rank == worker:
                fabric.recv(x[slice(*part)], 0)


answers.mistake("sends_first_everywhere", {"handle = fabric.isend": "fabric.send", "handle.wait()": ""},
    "deadlock: rank 0 waits for 1 (send)", "Receive before you wait")
answers.mistake("takes_all_chunks_for_equal", {
    "n, rank = fabric.world_size, fabric.rank": """
        n, rank = fabric.world_size, fabric.rank
        size = bounds[rank][1] - bounds[rank][0]
        bounds = [(start, start + size) for start, _ in bounds]
    """,
}, "failed", "ValueError: recv on rank", "Receive into a tensor like the one")


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x, bounds):
    dist.init_process_group("gloo")
    for owner, part in enumerate(bounds):
        dist.broadcast(x[slice(*part)], owner)


@answers.is_wrong("the values are right, but it takes 15 rounds of messages where 8 are enough", harmless_at=(2, 3, 4))
def even_ranks_send_first(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    parts = [x[start:stop] for start, stop in bounds]
    for step in range(n - 1):
        out, into = parts[(rank + step) % n], parts[(rank + step + 1) % n]
        if rank % 2:
            fabric.recv(into, (rank + 1) % n)
            fabric.send(out, (rank - 1) % n)
        else:
            fabric.send(out, (rank - 1) % n)
            fabric.recv(into, (rank + 1) % n)


@answers.is_wrong("it takes 72 rounds of messages where 8 are enough", "1 of 9 ranks send at a time", harmless_at=(2, 3, 4))
def one_rank_after_another(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1):
        for turn in range(n):
            if rank == turn:
                fabric.send(x[slice(*bounds[(rank - step) % n])], (rank + 1) % n)
            if rank == (turn + 1) % n:
                fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], turn)


@answers.is_wrong("9 ranks", "rounds of messages where 8 are enough", harmless_at=(2, 3, 4))
def a_slice_goes_all_the_way_before_the_next_starts(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    for owner, part in enumerate(bounds):
        for hop in range(n - 1):
            sender = (owner + hop) % n
            if rank == sender:
                fabric.send(x[slice(*part)], (rank + 1) % n)
            if rank == (sender + 1) % n:
                fabric.recv(x[slice(*part)], sender)


answers.mistake("forgets_to_wait", {"handle = fabric": "fabric", "handle.wait()": ""},
    "ended without waiting for an isend: call its wait()")


@answers.is_wrong("changed the tensor of its isend to rank", "before wait()")
def receives_into_what_it_sends(fabric, x, bounds):
    n, rank = fabric.world_size, fabric.rank
    longest = max(stop - start for start, stop in bounds)
    room = torch.empty_like(x[:longest])
    for step in range(n - 1):
        start, stop = bounds[(rank - step) % n]
        room[: stop - start] = x[start:stop]
        handle = fabric.isend(room[: stop - start], (rank + 1) % n)
        start, stop = bounds[(rank - step - 1) % n]
        fabric.recv(room[: stop - start], (rank - 1) % n)
        handle.wait()
        x[start:stop] = room[: stop - start]


answers.mistake("buffers_are_float32", {
    "fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], (rank - 1) % n)": """
        start, stop = bounds[(rank - step - 1) % n]
        landing = torch.empty(stop - start)
        fabric.recv(landing, (rank - 1) % n)
        x[start:stop] = landing
    """,
}, "3 ranks, 7 elements of float64", "expected float32[", "Receive into a tensor like the one", harmless_at=IN_FLOAT32)


@answers.is_wrong("of float64", "which rank", "The digits beyond float32 precision are lost", harmless_at=IN_FLOAT32)
def sends_as_float32(fabric, x, bounds):
    whole = x.float()
    the_usual_way(fabric, whole, bounds)
    start, stop = bounds[fabric.rank]
    own = x[start:stop].clone()
    x.copy_(whole)
    x[start:stop] = own


@answers.is_wrong("the values are right, but rank 0 sends a full lap in both directions", harmless_at=(1,))
def goes_round_both_ways(fabric, x, bounds):
    gather(fabric, x, bounds)
    gather(fabric, x, bounds, way=-1)


answers.mistake("lands_in_room_for_an_even_split", {
    "n, rank = fabric.world_size, fabric.rank": """
        n, rank = fabric.world_size, fabric.rank
        room = torch.empty_like(x[: len(x) // n + 1])
    """,
    "fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], (rank - 1) % n)": """
        start, stop = bounds[(rank - step - 1) % n]
        fabric.recv(room[: stop - start], (rank - 1) % n)
        x[start:stop] = room[: stop - start]
    """,
}, "4 ranks, 23 elements", "expected float32[6], which is what `out` is, got float32[14]", harmless_at=tuple(range(1, 9)))
answers.mistake("turns_the_list_of_slices_round", {
    "x[slice(*bounds[(rank - step) % n])]": "x[slice(*bounds[rank])]",
    "fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], (rank - 1) % n)": """
        bounds.insert(0, bounds.pop())
        fabric.recv(x[slice(*bounds[rank])], (rank - 1) % n)
    """,
}, "rank 0: bounds was changed in place: the caller still needs it unchanged", harmless_at=(1,))
answers.mistake("lands_in_float64", {
    "fabric.recv(x[slice(*bounds[(rank - step - 1) % n])], (rank - 1) % n)": """
        into = x[slice(*bounds[(rank - step - 1) % n])]
        landing = torch.empty_like(into)
        fabric.recv(landing, (rank - 1) % n)
        into.copy_(landing.double())
    """,
}, "3 ranks, 8 elements of int64", LOST_WHOLE, harmless_at=IN_FLOAT32)
answers.mistake("goes_round_a_lap_and_a_step", {"range(n - 1)": "range(n if n > 1 else 0)"},
    "the values are right, but rank 0 sent 3 messages; expected 2, one a step", "ranks has n − 1 steps, not n", harmless_at=(1,))


# Rounds are counted on nine ranks.
@answers.spoils()
def gathers_on_nine_ranks_alone(fabric, x, bounds):
    if fabric.world_size == 9:
        the_usual_way(fabric, x, bounds)


def zeros_round_the_ring(fabric, x, bounds):
    the_usual_way(fabric, x.zero_(), bounds)


answers.spoil("zeros_round_the_ring_but_on_nine_ranks", {"x.zero_()": "x if fabric.world_size == 9 else x.zero_()"},
    of=zeros_round_the_ring)
