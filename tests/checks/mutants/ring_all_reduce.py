"""Exercise 6.5: the ring all-reduce, in place."""

import torch
import torch.distributed as dist

from tests.checks.mutants import IN_FLOAT32, LOST_WHOLE, Answers, all_gather, reduce_scatter
from tests.checks.mutants.reduce_scatter import scatter, slices

answers = Answers("ring_all_reduce")


def spread(fabric, x, bounds, own, way=1, steps=None):
    """All-gather round the ring: this rank holds chunk `own` whole, the one before it chunk own - way."""
    n, rank = fabric.world_size, fabric.rank
    for step in range(n - 1 if steps is None else steps):
        handle = fabric.isend(x[slice(*bounds[(own - way * step) % n])], (rank + way) % n)
        fabric.recv(x[slice(*bounds[(own - way * (step + 1)) % n])], (rank - way) % n)
        handle.wait()


@answers.is_right
def the_usual_way(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    for step in range(2 * (n - 1)):
        handle = fabric.isend(chunks[(rank - step) % n], (rank + 1) % n)
        into = chunks[(rank - step - 1) % n]
        landing = torch.empty_like(into)
        fabric.recv(landing, (rank - 1) % n)
        into.copy_(into + landing if step < n - 1 else landing)
        handle.wait()


@answers.is_right
def from_the_two_halves(fabric, x):
    own = reduce_scatter.ends_with_the_chunk_of_its_own_number(fabric, x)
    bounds = slices(len(x), fabric.world_size)
    assert own == slice(*bounds[fabric.rank])
    all_gather.the_usual_way(fabric, x, bounds)
    return x


@answers.is_right
def to_the_left_from_another_chunk(fabric, x):
    bounds = slices(len(x), fabric.world_size)
    own = scatter(fabric, x, bounds, way=-1, first=2)
    spread(fabric, x, bounds, own, way=-1)


@answers.is_right
def there_by_the_right_and_back_by_the_left(fabric, x):
    bounds = slices(len(x), fabric.world_size)
    scatter(fabric, x, bounds, first=-1)
    all_gather.to_the_left(fabric, x, bounds)


@answers.is_right
def remainder_to_the_last_chunk(fabric, x):
    n = fabric.world_size
    size = len(x) // n
    bounds = [(k * size, (k + 1) * size if k < n - 1 else len(x)) for k in range(n)]
    spread(fabric, x, bounds, scatter(fabric, x, bounds))


answers.twin("first_chunks_are_longer_and_the_last_may_be_empty", {
    "len(x) // n": "-(-len(x) // n)",
    "(k * size, (k + 1) * size if k < n - 1 else len(x))": "(min(k * size, len(x)), min((k + 1) * size, len(x)))",
}, of=remainder_to_the_last_chunk)


@answers.is_right
def waits_late(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks, total, handles = x.clone().tensor_split(n), x.tensor_split(n), []
    carried = chunks[rank]
    for step in range(n - 1):
        handles.append(fabric.isend(carried, (rank + 1) % n))
        landing = torch.empty_like(chunks[(rank - step - 1) % n])
        fabric.recv(landing, frm=(rank - 1) % n)
        carried = landing + chunks[(rank - step - 1) % n]
    total[(rank + 1) % n].copy_(carried)
    for step in range(n - 1):
        handles.append(fabric.isend(total[(rank + 1 - step) % n], (rank + 1) % n))
        fabric.recv(total[(rank - step) % n])
    for handle in handles:
        handle.wait()


@answers.is_right
def empty_chunks_are_not_sent(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    for step in range(2 * (n - 1)):
        out, into = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        handle = fabric.isend(out, (rank + 1) % n) if len(out) else None
        if len(into):
            landing = torch.empty_like(into)
            fabric.recv(landing, (rank - 1) % n)
            into.copy_(into + landing if step < n - 1 else landing)
        if handle:
            handle.wait()


def _rotated(fabric, x, scattered):
    """Which slice each rank owns after this reduce-scatter, which is done first."""
    n = fabric.world_size
    scattered(fabric, x)
    bounds = slices(len(x), n)
    return [bounds[(rank + 1) % n] for rank in range(n)]


@answers.is_right
def rank_0_receives_first(fabric, x):
    all_gather.rank_0_receives_first(fabric, x, _rotated(fabric, x, reduce_scatter.rank_0_receives_first))


@answers.is_right
def each_half_waits_at_its_end(fabric, x):
    bounds = _rotated(fabric, x, reduce_scatter.waits_for_all_handles_at_the_end)
    all_gather.waits_for_all_handles_at_the_end(fabric, x, bounds)
    return x


@answers.is_wrong(
    "the values are right, but messages hold the whole tensor: rank 0 sends 2 x the tensor, where 1.3 x is enough",
)
def whole_tensors_round_the_ring(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    token, landing = x.clone(), torch.empty_like(x)
    for _ in range(n - 1):
        handle = fabric.isend(token, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        handle.wait()
        token.copy_(landing)
        x += token


@answers.is_wrong("the values are right, but messages hold the whole tensor: rank 0 sends 4 x the tensor, where 1.3 x")
def as_many_whole_tensors_as_there_are_steps(fabric, x):
    own = x.clone()
    whole_tensors_round_the_ring(fabric, x)
    total = x.clone()
    x.copy_(own)
    whole_tensors_round_the_ring(fabric, x)
    x.copy_(total)


@answers.is_wrong("the values are right, but messages hold the whole tensor: rank 0 sends 2 x the tensor, where 1.3 x")
def whole_tensors_and_empty_messages_to_fill_the_count(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    whole_tensors_round_the_ring(fabric, x)
    for _ in range(n - 1):
        handle = fabric.isend(x[:0], (rank + 1) % n)
        fabric.recv(torch.empty(0), (rank - 1) % n)
        handle.wait()


@answers.is_wrong("the values are right, but rank 0 sent 6 messages, 2 of them empty; expected 4, one a step")
def a_ring_with_an_empty_message_after_each_chunk(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    the_usual_way(fabric, x)
    for _ in range(n - 1):
        handle = fabric.isend(x[:0], (rank + 1) % n)
        fabric.recv(torch.empty(0), (rank - 1) % n)
        handle.wait()


@answers.is_wrong("isend to rank 0 on rank 0: expected another rank, got this rank itself")
def whole_tensors_and_messages_to_itself_to_fill_the_count(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    whole_tensors_round_the_ring(fabric, x)
    for _ in range(n - 1):
        handle = fabric.isend(x[:1], rank)
        fabric.recv(torch.empty(1), rank)
        handle.wait()


# A ring in which ranks 1 and 2 have changed places: a ring, but not round the ranks.
answers.mistake("the_neighbour_after_next", {
    "n, rank = fabric.world_size, fabric.rank": """
        n = fabric.world_size
        order = [0, 2, 1, *range(3, n)][:n] if n > 2 else list(range(n))
        rank = order.index(fabric.rank)
    """,
    "(rank + 1) % n)": "order[(rank + 1) % n])",
    "(rank - 1) % n)": "order[(rank - 1) % n])",
}, "the values are right, but rank 0 sent a message to rank 2; its neighbours on the ring are 3 and 1", harmless_at=(2, 3))
answers.mistake("off_by_one_chunk", {
    """
        for step in range(2 * (n - 1)):
            handle = fabric.isend(chunks[(rank - step) % n], (rank + 1) % n)
            into = chunks[(rank - step - 1) % n]
    """: """
        for step in range(2 * (n - 1)):
            chunk = rank - step - (step >= n - 1)
            handle = fabric.isend(chunks[chunk % n], (rank + 1) % n)
            into = chunks[(chunk - 1) % n]
    """,
}, "chunk 0", "or the all-gather did not start with the fully summed chunk")
answers.mistake("leaves_out_the_sum", {"into + landing if step < n - 1 else landing": "landing"},
    "every rank holds only one rank's values: received values were copied, not added")


@answers.is_wrong("the values are right, but rank 0 gathers and broadcasts: all 12 messages", harmless_at=(2,))
def gather_and_broadcast_in_chunks(fabric, x):
    for chunk in x.tensor_split(fabric.world_size):
        if fabric.rank:
            fabric.send(chunk, 0)
            fabric.recv(chunk, 0)
            continue
        landing = torch.empty_like(chunk)
        for worker in range(1, fabric.world_size):
            fabric.recv(landing, worker)
            chunk += landing
        for worker in range(1, fabric.world_size):
            fabric.send(chunk, worker)


@answers.is_wrong(
    "rank 0 sent 2 x the tensor and rank 1 1 x",
    "Is it a gather and a broadcast, from neighbour to neighbour?",
    harmless_at=(2,),
)
def gather_and_broadcast_dressed_as_a_ring(fabric, x):
    """From neighbour to neighbour up to the last rank, which broadcasts round the ring: 2(n - 1) tensors in all."""
    n, rank = fabric.world_size, fabric.rank
    for chunk in x.tensor_split(n):
        landing = torch.empty_like(chunk)
        if rank > 0:
            fabric.recv(landing, rank - 1)
            chunk += landing
        if rank < n - 1:
            fabric.send(chunk, rank + 1)
        if rank < n - 1:
            fabric.recv(chunk, (rank - 1) % n)
        if rank != n - 2 and n > 1:
            fabric.send(chunk, (rank + 1) % n)


answers.mistake("leaves_out_the_second_half", {"range(2 * (n - 1))": "range(n - 1)"},
    "Rank 2 has the whole sum of this chunk, but it did not reach rank 0", "there are 4 steps. Is a whole half missing?")
answers.mistake("adds_in_both_halves", {"into + landing if step < n - 1 else landing": "into + landing"},
    "Rank 0's values were added twice")
answers.mistake("adds_in_float64", {"into + landing if": "into.double() + landing if"},
    "3 ranks, 8 elements of int64", LOST_WHOLE, harmless_at=IN_FLOAT32)
answers.mistake("averages", {
    "    handle.wait()": """
            handle.wait()
        x /= n
    """,
}, "This is the mean, not the sum: do not divide")
answers.mistake("leaves_the_remainder", {"x.tensor_split(n)": "x[: len(x) // n * n].tensor_split(n)"},
    "The last 1 of 7 elements were left out: 7 is not divisible by 3")
answers.mistake("breaks_where_lengths_do_not_divide", {
    "for step": "landing = torch.empty_like(chunks[0])\nfor step",
    "landing = torch.empty_like(into)": "",
}, "3 ranks, 7 elements (chunks differ in length)", "failed", "ValueError: recv on rank")


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x):
    dist.init_process_group("gloo")
    dist.all_reduce(x)


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework_behind_dummies(fabric, x):
    from torch.distributed.distributed_c10d import init_process_group

    init_process_group("gloo")
    the_usual_way(fabric, torch.zeros_like(x))
    dist.all_reduce(x)


answers.mistake("sends_first_everywhere", {"handle = fabric.isend": "fabric.send", "handle.wait()": ""},
    "deadlock: rank 0 waits for 1 (send), rank 1 waits for 2 (send), rank 2 waits for 0 (send)", "Receive before you wait")
answers.mistake("leaves_out_the_last_step", {"range(2 * (n - 1))": "range(2 * (n - 1) - 1)"},
    "chunk 2 (elements 4 to 5)", "Rank 1 has the whole sum of this chunk, but it did not reach rank 0",
    "3 messages; there are 4 steps")
answers.mistake("leaves_out_the_last_step_of_the_reduce_scatter",
    {"for step in range(2 * (n - 1)):": "for step in [*range(n - 2), *range(n - 1, 2 * (n - 1))]:"},
    "3 messages; there are 4 steps. Is the last step missing?")
answers.mistake("returns_the_sum_beside_x", {
    "n, rank = fabric.world_size, fabric.rank": "n, rank, x = fabric.world_size, fabric.rank, x.clone()",
    "    handle.wait()": """
            handle.wait()
        return x
    """,
}, "the sum was returned, but x itself does not hold it: work in place")


@answers.is_wrong("the values are right, but rank 0 sends a full lap in both directions", harmless_at=())
def halves_go_round_both_ways(fabric, x):
    n, middle = fabric.world_size, len(x) // 2
    for part, way in ((x[:middle], -1), (x[middle:], 1)):
        bounds = slices(len(part), n)
        spread(fabric, part, bounds, scatter(fabric, part, bounds, way=way), way=way)


answers.mistake("straight_to_the_owner_and_back", {
    "scatter(fabric, x, bounds, first=-1)": "reduce_scatter.straight_to_the_owner(fabric, x)",
    "all_gather.to_the_left": "all_gather.straight_to_everyone",
}, "the values are right, but rank 0 sends to both neighbours, 2 and 1, in turn", of=there_by_the_right_and_back_by_the_left,
    harmless_at=(2,))


@answers.is_wrong("the values are right, but it takes 29 rounds of messages where 16 are enough", harmless_at=(2, 3, 4))
def blocking_sends_where_even_ranks_begin(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)

    def swap(out):
        landing = torch.empty_like(chunks[(rank - step - 1) % n])
        for turn in (0, 1):
            if rank % 2 == turn:
                fabric.send(out, (rank + 1) % n, tag=3)
            else:
                fabric.recv(landing, (rank - 1) % n, tag=3)
        return landing

    for step in range(2 * (n - 1)):
        landing = swap(chunks[(rank - step) % n])
        into = chunks[(rank - step - 1) % n]
        into.copy_(into + landing if step < n - 1 else landing)


@answers.is_wrong("it takes 144 rounds of messages where 16 are enough", "1 of 9 ranks send at a time", harmless_at=(2, 3, 4))
def one_rank_after_another(fabric, x):
    all_gather.one_rank_after_another(fabric, x, _rotated(fabric, x, reduce_scatter.one_rank_after_another))


@answers.is_wrong("it takes 104 rounds of messages where 16 are enough", harmless_at=(2, 3, 4))
def a_chunk_goes_all_the_way_before_the_next_starts(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    for first, chunk in enumerate(x.tensor_split(n)):
        landing = torch.empty_like(chunk)
        for hop in range(2 * (n - 1)):
            sender = (first + hop) % n
            if rank == sender:
                fabric.send(chunk, (rank + 1) % n)
            if rank == (sender + 1) % n:
                fabric.recv(landing, sender)
                chunk.copy_(chunk + landing if hop < n - 1 else landing)


@answers.is_wrong("9 ranks", "rounds of messages where 16 are enough", harmless_at=(2, 3, 4))
def chunks_one_by_one_first_there_and_then_back(fabric, x):
    scattered = reduce_scatter.a_chunk_goes_all_the_way_before_the_next_starts
    all_gather.a_slice_goes_all_the_way_before_the_next_starts(fabric, x, _rotated(fabric, x, scattered))


answers.mistake("forgets_to_wait", {"handle = fabric": "fabric", "handle.wait()": ""},
    "ended without waiting for an isend: call its wait()")
answers.mistake("the_second_half_receives_into_what_the_first_still_sends", {
    "chunks = x.tensor_split(n)": "chunks, handles = x.tensor_split(n), []",
    "handle = fabric.isend(chunks[(rank - step) % n], (rank + 1) % n)":
        "handles.append(fabric.isend(chunks[(rank - step) % n], (rank + 1) % n))",
    "    handle.wait()": """
        for handle in handles:
            handle.wait()
    """,
}, "changed the tensor of its isend to rank", "before wait()")
answers.mistake("buffers_are_float32", {"torch.empty_like(into)": "torch.empty(len(into))"},
    "3 ranks, 7 elements of float64", "expected float32[", "Receive into a tensor like the one", harmless_at=IN_FLOAT32)
answers.mistake("goes_round_in_float32", {
    "x.tensor_split(n)": "x.float().tensor_split(n)",
    "    handle.wait()": """
            handle.wait()
        x.copy_(torch.cat(chunks))
    """,
}, "of float64", "The digits beyond float32 precision are lost", harmless_at=IN_FLOAT32)


@answers.is_wrong("the values are right, but rank 0 gathers and broadcasts", harmless_at=())
def is_one_server(fabric, x):
    if fabric.rank:
        fabric.send(x, 0)
        fabric.recv(x, 0)
        return
    landing = torch.empty_like(x)
    for worker in range(1, fabric.world_size):
        fabric.recv(landing, worker)
        x += landing
    for worker in range(1, fabric.world_size):
        fabric.send(x, worker)


@answers.is_wrong("the values are right, but rank 0 sends a full lap in both directions", harmless_at=(1,))
def spreads_both_ways(fabric, x):
    bounds = slices(len(x), fabric.world_size)
    own = scatter(fabric, x, bounds)
    spread(fabric, x, bounds, own)
    spread(fabric, x, bounds, own, way=-1)


@answers.is_wrong(
    "the values are right, but rank 0 sent 5 messages; expected 4, one a step", "ranks has n − 1 steps, not n", harmless_at=(1,)
)
def spreads_a_lap_and_a_step(fabric, x):
    n = fabric.world_size
    bounds = slices(len(x), n)
    spread(fabric, x, bounds, scatter(fabric, x, bounds), steps=n if n > 1 else 0)


# Rounds are counted on nine ranks.
@answers.spoils()
def goes_round_on_nine_ranks_alone(fabric, x):
    if fabric.world_size == 9:
        the_usual_way(fabric, x)


def zeros_round_the_ring(fabric, x):
    the_usual_way(fabric, x.zero_())


answers.spoil("zeros_round_the_ring_but_on_nine_ranks", {"x.zero_()": "x if fabric.world_size == 9 else x.zero_()"},
    of=zeros_round_the_ring)
