"""Exercise 6.3: the sum of one chunk on every rank, round the ring."""

import torch

from tests.checks.mutants import IN_FLOAT32, LOST_WHOLE, Answers

answers = Answers("reduce_scatter")


def slices(length, n):
    return [(length * k // n, length * (k + 1) // n) for k in range(n)]


def scatter(fabric, x, bounds, way=1, first=0, steps=None, to=None):
    """Standard ring: in step s, rank r sends chunk r - s. Returns the index of the chunk that is whole now."""
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1 if steps is None else steps):
        out = x[slice(*bounds[(rank + first - way * step) % n])]
        into = x[slice(*bounds[(rank + first - way * (step + 1)) % n])]
        landing = torch.empty_like(into)
        handle = fabric.isend(out, (rank + way) % n if to is None else to)
        fabric.recv(landing, (rank - way) % n)
        into += landing
        handle.wait()
    return (rank + first - way * (n - 1)) % n


@answers.is_right
def the_usual_way(fabric, x):
    """In step s, rank r passes on what it has of the sum of chunk r - s."""
    n, rank = fabric.world_size, fabric.rank
    bounds = slices(len(x), n)
    for step in range(n - 1):
        out = x[slice(*bounds[(rank - step) % n])]
        into = x[slice(*bounds[(rank - step - 1) % n])]
        landing = torch.empty_like(into)
        handle = fabric.isend(out, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        into += landing
        handle.wait()
    return bounds[(rank + 1) % n]


@answers.is_right
def to_the_left(fabric, x):
    bounds = slices(len(x), fabric.world_size)
    return bounds[scatter(fabric, x, bounds, way=-1)]


answers.twin("ends_with_the_chunk_of_its_own_number",
    {"bounds[scatter(fabric, x, bounds, way=-1)]": "slice(*bounds[scatter(fabric, x, bounds, first=-1)])"},
    of=to_the_left)
answers.twin("remainder_to_the_last_chunk", {
    "bounds = slices(len(x), n)": """
        size = len(x) // n
        bounds = [(k * size, (k + 1) * size if k < n - 1 else len(x)) for k in range(n)]
    """,
})
answers.twin("returns_a_tensor", {"return bounds[(rank + 1) % n]": "return torch.tensor(bounds[(rank + 1) % n])"})


@answers.is_right
def waits_for_all_handles_at_the_end(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    bounds, handles = slices(len(x), n), []
    for step in range(n - 1):
        handles.append(fabric.isend(x[slice(*bounds[(rank - step) % n])], (rank + 1) % n))
        into = x[slice(*bounds[(rank - step - 1) % n])]
        landing = torch.empty_like(into)
        fabric.recv(landing)
        into += landing
    for handle in handles:
        handle.wait()
    return list(bounds[(rank + 1) % n])


@answers.is_right
def rank_0_receives_first(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    bounds = slices(len(x), n)
    for step in range(n - 1):
        out, into = x[slice(*bounds[(rank - step) % n])], x[slice(*bounds[(rank - step - 1) % n])]
        landing = torch.empty_like(into)
        if rank:
            fabric.send(out, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        if not rank:
            fabric.send(out, (rank + 1) % n)
        into += landing
    return bounds[(rank + 1) % n]


answers.mistake("returns_the_slice_that_it_started_with", {"return bounds[(rank + 1) % n]": "return bounds[rank]"},
    "its slice", "Rank 0 holds the whole sum of chunk 1 (elements 2 to 3): return its slice, (2, 4)")
answers.mistake("returns_a_length", {
    "return bounds[(rank + 1) % n]": """
        start, stop = bounds[(rank + 1) % n]
        return start, stop - start
    """,
}, "rank 1: expected (start, stop)", "Is the second number a length? It is where the slice ends")
answers.mistake("goes_round_twice", {"range(n - 1)": "range(2 * (n - 1))"},
    "rank 0 sent 4 messages; expected 2, one a step", harmless_at=(1,))
answers.mistake("leaves_out_the_last_step", {"range(n - 1)": "range(n - 2)"},
    "These are still rank 0's own values", "1 message; there are 2 steps. Is the last step missing?")
answers.mistake("assigns_instead_of_adding", {"into += landing": "into.copy_(landing)"},
    "These are only rank 1's values")
answers.mistake("forgets_to_return", {"return bounds[(rank + 1) % n]": ""},
    "expected (start, stop), the slice of x that it owns, got nothing")
answers.mistake("returns_the_chunk_itself",
    {"return bounds[(rank + 1) % n]": "return x[slice(*bounds[(rank + 1) % n])]"},
    "expected (start, stop), the slice of x that it owns, got array")
answers.mistake("sums_in_a_copy",
    {"n, rank = fabric.world_size, fabric.rank": "n, rank, x = fabric.world_size, fabric.rank, x.clone()"},
    "These are still rank", "own values")


@answers.is_wrong("messages hold the whole tensor: rank 0 sends 2 x the tensor, where 0.67 x is enough")
def whole_tensors_round_the_ring(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    token, landing = x.clone(), torch.empty_like(x)
    for _ in range(n - 1):
        handle = fabric.isend(token, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        handle.wait()
        token.copy_(landing)
        x += token
    return slices(len(x), n)[rank]


@answers.is_wrong("the values are right, but rank 0 sent a message to rank 2", harmless_at=(2, 3))
def straight_to_the_owner(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    bounds = slices(len(x), n)
    handles = [fabric.isend(x[slice(*bounds[(rank + k) % n])], (rank + k) % n) for k in range(1, n)]
    mine = x[slice(*bounds[rank])]
    landing = torch.empty_like(mine)
    for k in range(1, n):
        fabric.recv(landing, (rank - k) % n)
        mine += landing
    for handle in handles:
        handle.wait()
    return bounds[rank]


answers.mistake("breaks_where_lengths_do_not_divide",
    {"bounds = slices(len(x), n)": "size = len(x) // n\nbounds = [(k * size, (k + 1) * size) for k in range(n)]"},
    "element 6 is in no rank's slice")


@answers.is_wrong("element 0 is in the slices of ranks 0 and 1; expected one owner for each")
def everyone_owns_everything(fabric, x):
    n = fabric.world_size
    bounds = slices(len(x), n)
    scatter(fabric, x, bounds)
    for start, stop in bounds:  # as an all-gather by a server, so that the values are right
        if fabric.rank:
            fabric.send(x[start:stop], 0)
        for worker in range(1, n) if fabric.rank == 0 else ():
            landing = torch.empty(stop - start)
            fabric.recv(landing, worker)
            x[start:stop] = torch.maximum(x[start:stop], landing)
    for worker in range(1, n):
        if fabric.rank == 0:
            fabric.send(x, worker)
        elif fabric.rank == worker:
            fabric.recv(x, 0)
    return 0, len(x)


answers.mistake("averages", {"return": "x /= n\nreturn"}, "This is the mean, not the sum")
answers.mistake("sends_first_everywhere", {"handle = fabric.isend": "fabric.send", "handle.wait()": ""},
    "deadlock: rank 0 waits for 1 (send), rank 1 waits for 2 (send)", "Receive before you wait")
answers.mistake("listens_to_the_wrong_neighbour", {
    "fabric.recv(landing, (rank - 1) % n)": "fabric.recv(landing, (rank + 1) % n)",
    "into += landing": "",
}, "deadlock: rank 0 waits for 1 (recv)")
answers.mistake("even_ranks_send_first", {
    """
        handle = fabric.isend(out, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
    """: """
        if rank % 2 == 0:
            fabric.send(out, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        if rank % 2:
            fabric.send(out, (rank + 1) % n)
    """,
    "handle.wait()": "",
}, "the values are right, but it takes 15 rounds of messages where 8 are enough", "each rank sends one chunk and receives",
    harmless_at=(2, 3, 4))
answers.mistake("one_rank_after_another", {
    """
        handle = fabric.isend(out, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
    """: """
        for turn in range(n):
            if rank == turn:
                fabric.send(out, (rank + 1) % n)
            if rank == (turn + 1) % n:
                fabric.recv(landing, turn)
    """,
    "handle.wait()": "",
}, "it takes 72 rounds of messages where 8 are enough", "1 of 9 ranks send at a time", harmless_at=(2, 3, 4))


@answers.is_wrong("rounds of messages where 8 are enough", "isend, then recv, then wait", harmless_at=(2, 3, 4))
def a_chunk_goes_all_the_way_before_the_next_starts(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    bounds = slices(len(x), n)
    for chunk, part in enumerate(bounds):
        for hop in range(n - 1):
            sender = (chunk + hop) % n
            if rank == sender:
                fabric.send(x[slice(*part)], (rank + 1) % n)
            if rank == (sender + 1) % n:
                landing = torch.empty_like(x[slice(*part)])
                fabric.recv(landing, sender)
                x[slice(*part)] += landing
    return bounds[(rank + 1) % n]


answers.mistake("forgets_to_wait", {"handle = fabric": "fabric", "handle.wait()": ""},
    "ended without waiting for an isend: call its wait()")


@answers.is_wrong("changed the tensor of its isend to rank", "before wait()", "receive into another tensor")
def receives_into_what_it_sends(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    bounds = slices(len(x), n)
    room = torch.empty_like(x[: len(x) // n + 1])
    for step in range(n - 1):
        start, stop = bounds[(rank - step) % n]
        room[: stop - start] = x[start:stop]
        handle = fabric.isend(room[: stop - start], (rank + 1) % n)
        start, stop = bounds[(rank - step - 1) % n]
        fabric.recv(room[: stop - start], (rank - 1) % n)
        handle.wait()
        x[start:stop] += room[: stop - start]
    return bounds[(rank + 1) % n]


@answers.is_wrong("changed the tensor of its isend to rank", "before wait()", harmless_at=(2,))
def one_buffer_for_all_that_is_on_its_way(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    bounds = slices(len(x), n)
    room, handles = torch.empty_like(x[: len(x) // n + 1]), []
    for step in range(n - 1):
        out = x[slice(*bounds[(rank - step) % n])]
        room[: len(out)] = out
        handles.append(fabric.isend(room[: len(out)], (rank + 1) % n))
        into = x[slice(*bounds[(rank - step - 1) % n])]
        landing = torch.empty_like(into)
        fabric.recv(landing, (rank - 1) % n)
        into += landing
    for handle in handles:
        handle.wait()
    return bounds[(rank + 1) % n]


answers.mistake("buffers_are_float32", {"torch.empty_like(into)": "torch.empty(len(into))"},
    "3 ranks, 7 elements of float64", "expected float32[", "got float64[", "Receive into a tensor like the one",
    harmless_at=IN_FLOAT32)
answers.mistake("adds_in_float32", {"into += landing": "into.copy_(into.float() + landing.float())"},
    "float64", "The digits beyond float32 precision are lost", harmless_at=IN_FLOAT32)
answers.mistake("adds_in_float64", {"into += landing": "into.copy_(into.double() + landing)"},
    "3 ranks, 8 elements of int64", LOST_WHOLE, harmless_at=IN_FLOAT32)
answers.mistake("rounds_the_sums", {"into += landing": "into += landing\ninto.round_()"},
    "These are whole numbers, but the expected values are not: do not round", harmless_at=IN_FLOAT32)
answers.mistake("goes_round_a_lap_and_a_step", {
    "return bounds[(rank + 1) % n]": """
        whole = bounds[(rank + 1) % n]
        handle = fabric.isend(x[slice(*whole)], (rank + 1) % n)
        fabric.recv(torch.empty_like(x[slice(*bounds[rank])]), (rank - 1) % n)
        handle.wait()
        return whole
    """,
}, "the values are right, but rank 0 sent 3 messages; expected 2, one a step", "ranks has n − 1 steps, not n", harmless_at=(1,))


def owns_what_it_has(fabric, x):
    return slices(len(x), fabric.world_size)[fabric.rank]


# Rounds are counted on nine ranks.
answers.spoil("adds_up_on_nine_ranks_alone", {
    "return slices": "if fabric.world_size == 9:\n    return the_usual_way(fabric, x)\nreturn slices",
}, of=owns_what_it_has)


def zeros_round_the_ring(fabric, x):
    return the_usual_way(fabric, x.zero_())


answers.spoil("zeros_round_the_ring_but_on_nine_ranks", {"x.zero_()": "x if fabric.world_size == 9 else x.zero_()"},
    of=zeros_round_the_ring)
