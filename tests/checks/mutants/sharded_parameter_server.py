"""Exercise 6.2: rank k is the server of chunk k."""

import torch
import torch.distributed as dist

from tests.checks.mutants import IN_FLOAT32, LOST_WHOLE, Answers
from tests.checks.mutants.ring_all_reduce import the_usual_way

answers = Answers("sharded_parameter_server")


def others(fabric):
    """All other ranks, the next one first, so that not everyone begins with the same server."""
    return [(fabric.rank + k) % fabric.world_size for k in range(1, fabric.world_size)]


def wait_all(handles):
    for handle in handles:
        handle.wait()


def push(fabric, chunks, add=True):
    """Chunk k of every rank goes to rank k, which adds them up."""
    own = chunks[fabric.rank]
    handles = [fabric.isend(chunks[k], k) for k in others(fabric)]
    landing, total = torch.empty_like(own), own.clone()
    for frm in reversed(others(fabric)):
        fabric.recv(landing, frm)
        total = total + landing if add else landing.clone()
    wait_all(handles)
    own.copy_(total)


def pull(fabric, chunks):
    """Rank k's chunk k goes to every rank."""
    handles = [fabric.isend(chunks[fabric.rank], to) for to in others(fabric)]
    for k in reversed(others(fabric)):
        fabric.recv(chunks[k], k)
    wait_all(handles)


@answers.is_right
def in_place_with_tensor_split(fabric, x):
    chunks = x.tensor_split(fabric.world_size)
    push(fabric, chunks)
    pull(fabric, chunks)
    return x


@answers.is_right
def remainder_to_the_last_server(fabric, x):
    n = fabric.world_size
    size = len(x) // n
    chunks = list(x.clone().split([size] * (n - 1) + [len(x) - size * (n - 1)]))
    push(fabric, chunks)
    pull(fabric, chunks)
    return torch.cat(chunks)


@answers.is_right
def empty_chunks_are_not_sent(fabric, x):
    chunks = x.tensor_split(fabric.world_size)
    mine = chunks[fabric.rank]
    handles = [fabric.isend(chunks[k].clone(), k, tag=1) for k in others(fabric) if len(chunks[k])]
    for _ in others(fabric) if len(mine) else ():
        landing = torch.empty_like(mine)
        fabric.recv(landing, tag=1)
        mine += landing
    handles += [fabric.isend(mine, k, tag=2) for k in others(fabric) if len(mine)]
    for k in others(fabric):
        if len(chunks[k]):
            fabric.recv(chunks[k], k, tag=2)
    wait_all(handles)
    return x


@answers.is_right
def serves_the_chunk_after_its_own(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = [x[len(x) * k // n : len(x) * (k + 1) // n] for k in range(n)]
    chunks = chunks[1:] + chunks[:1]
    push(fabric, chunks)
    pull(fabric, chunks)
    return torch.cat(chunks[-1:] + chunks[:-1])


@answers.is_right
def every_isend_goes_to_rank_0_first(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    handles = [fabric.isend(chunks[k], k) for k in range(n) if k != rank]
    total = chunks[rank].clone()
    landing = torch.empty_like(total)
    for frm in range(n):
        if frm != rank:
            fabric.recv(landing, frm)
            total += landing
    handles += [fabric.isend(total, k) for k in range(n) if k != rank]
    sums = [torch.empty_like(chunk) for chunk in chunks]
    sums[rank] = total
    for frm in range(n):
        if frm != rank:
            fabric.recv(sums[frm], frm)
    wait_all(handles)
    return torch.cat(sums)


@answers.is_right
def one_partner_to_send_to_and_one_to_receive_from_in_each_round(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    total = chunks[rank].clone()
    landing = torch.empty_like(total)
    for k in range(1, n):
        handle = fabric.isend(chunks[(rank + k) % n], (rank + k) % n)
        fabric.recv(landing, (rank - k) % n)
        total += landing
        handle.wait()
    for k in range(1, n):
        handle = fabric.isend(total, (rank + k) % n)
        fabric.recv(chunks[(rank - k) % n], (rank - k) % n)
        handle.wait()
    chunks[rank].copy_(total)
    return x


@answers.is_wrong("the values are right, but rank 0 serves every chunk", harmless_at=(2,))
def all_shards_on_rank_0(fabric, x):
    for chunk in x.tensor_split(fabric.world_size):
        if fabric.rank:
            fabric.send(chunk, 0)
            continue
        landing = torch.empty_like(chunk)
        for worker in range(1, fabric.world_size):
            fabric.recv(landing, worker)
            chunk += landing
    for chunk in x.tensor_split(fabric.world_size):
        if fabric.rank:
            fabric.recv(chunk, 0)
        else:
            for worker in range(1, fabric.world_size):
                fabric.send(chunk, worker)
    return x


answers.mistake("nobody_sends_the_sums_back", {"pull(fabric, chunks)": ""},
    "chunk 1", "Rank 1 has the whole sum of this chunk, but it did not reach rank 0")
answers.mistake("servers_forget_their_own", {
    "push(fabric, chunks)": """
        mine = chunks[fabric.rank].clone()
        push(fabric, chunks)
        chunks[fabric.rank].sub_(mine if fabric.world_size > 1 else 0)
    """,
}, "Rank 0's own values were never added")
answers.mistake("servers_assign_instead_of_adding", {"push(fabric, chunks)": "push(fabric, chunks, add=False)"},
    "holds only one rank's values: received values were copied, not added")


@answers.is_wrong("the values are right, but rank 0 sent rank 1 a message of 24 bytes", "at most one chunk, 8 bytes")
def sends_the_whole_tensor_to_every_server(fabric, x):
    handles = [fabric.isend(x, k) for k in others(fabric)]
    total, landing = x.clone(), torch.empty_like(x)
    for k in reversed(others(fabric)):
        fabric.recv(landing, k)
        total += landing
    wait_all(handles)
    return total


answers.mistake("averages",
    {"pull(fabric, chunks)": "chunks[fabric.rank].div_(fabric.world_size)\npull(fabric, chunks)"},
    "This is the mean, not the sum")
answers.mistake("leaves_the_remainder", {
    "chunks = x.tensor_split(fabric.world_size)": """
        size = len(x) // fabric.world_size
        chunks = [x[k * size : (k + 1) * size] for k in range(fabric.world_size)]
    """,
}, "The last 1 of 7 elements were left out: 7 is not divisible by 3")
answers.mistake("puts_the_sums_in_the_wrong_places", {"return x": "return torch.cat([*chunks[1:], chunks[0]])"},
    "chunk 0", "This is the sum of chunk 1: chunks are mixed up")
answers.mistake("everyone_sends_first", {
    "push(fabric, chunks)": """
        for k in others(fabric):
            fabric.send(chunks[k], k)
        push(fabric, chunks)
    """,
}, "deadlock", "(send)", "Receive before you wait")


@answers.is_wrong("the values are right, but rank 0 sent 4 messages to rank 1", "at most 2", harmless_at=(2,))
def is_a_ring(fabric, x):
    the_usual_way(fabric, x)
    return x


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x):
    dist.init_process_group("gloo")
    dist.all_reduce(x)
    return x


@answers.is_wrong(
    "the values are right, but it takes 96 rounds of messages where 16 are enough", "Let all ranks serve at the same time",
    harmless_at=(2, 3, 4),
)
def one_server_after_another_with_blocking_sends(fabric, x):
    size = -(-len(x) // fabric.world_size)
    for server in range(fabric.world_size):
        part = x[server * size : (server + 1) * size]
        if fabric.rank != server:
            fabric.send(part, server)
            fabric.recv(part, server)
            continue
        landing = torch.empty_like(part)
        for worker in others(fabric):
            fabric.recv(landing, worker)
            part += landing
        for worker in others(fabric):
            fabric.send(part, worker)
    return x


@answers.is_wrong("9 ranks", "rounds of messages where 16 are enough", harmless_at=(2, 3, 4))
def all_serve_in_turn_first_the_sums_then_their_way_back(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    for server, chunk in enumerate(chunks):
        if rank != server:
            fabric.send(chunk, server)
            continue
        landing = torch.empty_like(chunk)
        for worker in others(fabric):
            fabric.recv(landing, worker)
            chunk += landing
    for server, chunk in enumerate(chunks):
        if rank != server:
            fabric.recv(chunk, server)
            continue
        for worker in others(fabric):
            fabric.send(chunk, worker)
    return x


@answers.is_wrong("9 ranks", "it takes 27 rounds of messages where 16 are enough", harmless_at=(2, 3, 4))
def one_pair_at_a_time(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    total = chunks[rank].clone()
    landing = torch.empty_like(total)
    partners = [a + b - rank for a in range(n) for b in range(a + 1, n) if rank in (a, b)]
    for other in partners:
        handle = fabric.isend(chunks[other], other)
        fabric.recv(landing, other)
        handle.wait()
        total += landing
    for other in partners:
        handle = fabric.isend(total, other)
        fabric.recv(chunks[other], other)
        handle.wait()
    chunks[rank].copy_(total)
    return x


answers.mistake("does_not_wait_for_the_sums", {
    "pull(fabric, chunks)": """
        for to in others(fabric):
            fabric.isend(chunks[fabric.rank], to)
        for k in reversed(others(fabric)):
            fabric.recv(chunks[k], k)
    """,
}, "ended without waiting for an isend: call its wait()")


@answers.is_wrong("changed the tensor of its isend to rank", "before wait()")
def receives_the_sums_into_what_it_sends(fabric, x):
    chunks = x.tensor_split(fabric.world_size)
    mine = chunks[fabric.rank]
    handles = [fabric.isend(chunks[k], k) for k in others(fabric)]
    landing = torch.empty_like(mine)
    for frm in reversed(others(fabric)):
        fabric.recv(landing, frm)
        mine += landing
    handles += [fabric.isend(mine, k) for k in others(fabric)]
    for k in reversed(others(fabric)):
        fabric.recv(chunks[k], k)
    wait_all(handles)
    return x


@answers.is_wrong(
    "float64", "expected float32[", "got float64[", "Receive into a tensor like the one",
    harmless_at=IN_FLOAT32,
)
def buffers_are_float32(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    handles = [fabric.isend(chunks[k], k) for k in others(fabric)]
    total = chunks[rank].clone()
    landing = torch.empty(len(total))
    for frm in reversed(others(fabric)):
        fabric.recv(landing, frm)
        total += landing
    wait_all(handles)
    chunks[rank].copy_(total)
    pull(fabric, chunks)
    return x


@answers.is_wrong("the values are right, but rank 0 serves every chunk", harmless_at=())
def is_one_server(fabric, x):
    if fabric.rank:
        fabric.send(x, 0)
        fabric.recv(x, 0)
        return x
    landing = torch.empty_like(x)
    for worker in range(1, fabric.world_size):
        fabric.recv(landing, worker)
        x += landing
    for worker in range(1, fabric.world_size):
        fabric.send(x, worker)
    return x


answers.mistake("adds_up_in_float64", {
    "total = chunks[rank].clone()": "total = chunks[rank].double()",
    "landing = torch.empty_like(total)": "landing = torch.empty_like(chunks[rank])",
    "handles += [fabric.isend(total, k) for k in range(n) if k != rank]": """
        total = total.to(x.dtype)
        handles += [fabric.isend(total, k) for k in range(n) if k != rank]
    """,
}, "3 ranks, 8 elements of int64", LOST_WHOLE, of=every_isend_goes_to_rank_0_first, harmless_at=IN_FLOAT32)
answers.mistake("rounds_the_sums", {"return x": "return x.round()"},
    "These are whole numbers, but the expected values are not: do not round", harmless_at=IN_FLOAT32)
answers.mistake("a_round_of_empty_messages_between_the_halves", {
    "pull(fabric, chunks)": """
        empty = [x[:0] for _ in chunks]
        push(fabric, empty)
        pull(fabric, chunks)
    """,
}, "the values are right, but rank 0 sent 3 messages to rank 1, 1 of them empty", "at most 2")


@answers.spoils()
def serves_nine_ranks_alone(fabric, x):
    return in_place_with_tensor_split(fabric, x) if fabric.world_size == 9 else x


# Rounds are counted on nine ranks; there nothing else is wrong.
answers.spoil("leaves_three_ranks_alone_and_serves_in_turn", {
    "n, rank = fabric.world_size, fabric.rank": "n, rank = fabric.world_size, fabric.rank\nif n == 3:\n    return x",
}, of=all_serve_in_turn_first_the_sums_then_their_way_back)
