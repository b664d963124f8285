"""Exercise 6.1: rank 0 is the server."""

import torch
import torch.distributed as dist

from tests.checks.mutants import IN_FLOAT32, LOST_WHOLE, Answers

answers = Answers("parameter_server")


def push(fabric, x):
    """Rank 0 gets the sum of all ranks' x; the others send theirs."""
    if fabric.rank:
        fabric.send(x, 0)
        return x
    total, other = x.clone(), torch.empty_like(x)
    for worker in range(1, fabric.world_size):
        fabric.recv(other, worker)
        total += other
    return total


def pull(fabric, total):
    """Every rank gets rank 0's tensor."""
    if fabric.rank:
        fabric.recv(total, 0)
    else:
        for worker in range(1, fabric.world_size):
            fabric.send(total, worker)
    return total


@answers.is_right
def plain(fabric, x):
    if fabric.rank:
        fabric.send(x, 0)
        fabric.recv(x, 0)
        return x
    total, other = x.clone(), torch.empty_like(x)
    for worker in range(1, fabric.world_size):
        fabric.recv(other, worker)
        total += other
    for worker in range(1, fabric.world_size):
        fabric.send(total, worker)
    return total


@answers.is_right
def takes_from_anyone_and_answers_all_at_once(fabric, x):
    if fabric.rank:
        handle = fabric.isend(x, 0)
        handle.wait()
        fabric.recv(x, 0)
        return x
    parts = [torch.empty_like(x) for _ in range(fabric.world_size - 1)]
    for part in parts:
        fabric.recv(part)
    total = sum(parts, x)
    handles = [fabric.isend(total, worker) for worker in range(1, fabric.world_size)]
    for handle in handles:
        handle.wait()
    return total


@answers.is_right
def answers_the_last_worker_first_under_tags(fabric, x):
    n = fabric.world_size
    if fabric.rank:
        fabric.send(x, 0, tag=fabric.rank)
        fabric.recv(x, 0, tag=n + fabric.rank)
        return x
    buffer = x.new_zeros(n, len(x))
    buffer[0] = x
    for worker in reversed(range(1, n)):
        fabric.recv(buffer[worker], worker, tag=worker)
    total = buffer.sum(dim=0)
    for worker in reversed(range(1, n)):
        fabric.send(total, worker, tag=n + worker)
    return total


@answers.is_right
def adds_up_a_stack(fabric, x):
    if fabric.rank:
        fabric.send(x, to=0)
        fabric.recv(x, frm=0)
        return x
    parts = [x]
    for _ in range(1, fabric.world_size):
        parts.append(torch.empty_like(x))
        fabric.recv(parts[-1])
    return pull(fabric, torch.stack(parts).sum(dim=0))


answers.twin("receives_beside_what_it_sends", {
    """
        fabric.send(x, 0)
        fabric.recv(x, 0)
        return x
    """: """
        total = torch.full_like(x, -1)
        handle = fabric.isend(x, 0)
        fabric.recv(total, 0)
        handle.wait()
        return total
    """,
})

answers.mistake("server_forgets_its_own", {"x.clone()": "torch.zeros_like(x) if fabric.world_size > 1 else x.clone()"},
    "Rank 0's own values were never added")
answers.mistake("workers_return_their_own", {"fabric.recv(x, 0)": "fabric.recv(x.clone(), 0)"},
    "These are still rank 1's own values")
answers.mistake("server_answers_only_one", {
    """
        range(1, fabric.world_size):
            fabric.send
    """: """
        range(1, fabric.world_size)[:1]:
            fabric.send
    """,
}, "deadlock: rank 2 waits for 0 (recv), which has ended", harmless_at=(2,))
answers.mistake("server_answers_before_it_has_all", {
    """
        for worker in range(1, fabric.world_size):
            fabric.send(total, worker)
    """: "",
    "total += other": "total += other\nfabric.send(total, worker)",
}, "chunk 0", "Rank 2's values are not in this sum", harmless_at=(2,))
answers.mistake("averages", {
    """
        for worker in range(1, fabric.world_size):
            fabric.send
    """: """
        total /= fabric.world_size
        for worker in range(1, fabric.world_size):
            fabric.send
    """,
}, "This is the mean, not the sum")
answers.mistake("assigns_instead_of_adding", {"total += other": "total.copy_(other)"},
    "holds only one rank's values: received values were copied, not added")


@answers.is_wrong("the values are right, but rank 1 sent a message to rank 2", harmless_at=(2,))
def everyone_sends_to_everyone(fabric, x):
    others = [r for r in range(fabric.world_size) if r != fabric.rank]
    handles = [fabric.isend(x, to) for to in others]
    total, other = x.clone(), torch.empty_like(x)
    for frm in others:
        fabric.recv(other, frm)
        total += other
    for handle in handles:
        handle.wait()
    return total


@answers.is_wrong("the values are right, but rank 1 sent rank 0 6 messages", "expected 1 message with the whole tensor")
def sends_element_by_element(fabric, x):
    total = x.clone()
    for element in total.split(1):
        element.copy_(push(fabric, element))
    return pull(fabric, total)


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x):
    dist.init_process_group("gloo")
    dist.all_reduce(x)
    return x


answers.mistake("forgets_to_return", {"fabric.recv(x, 0)\nreturn x": "fabric.recv(x, 0)\nreturn", "return total": ""},
    "expected the sum in the return value", "got None (does the function return it?)")
answers.mistake("nobody_sends", {
    "fabric.send(x, 0)": "",
    """
        for worker in range(1, fabric.world_size):
            fabric.send(total, worker)
    """: "",
}, "deadlock: rank 0 waits for 1 (recv), rank 1 waits for 0 (recv)")
answers.mistake("workers_receive_into_what_they_send", {
    """
        fabric.send(x, 0)
        fabric.recv(x, 0)
    """: """
        handle = fabric.isend(x, 0)
        fabric.recv(x, 0)
        handle.wait()
    """,
}, "rank 1 changed the tensor of its isend to rank 0 before wait()")
answers.mistake("the_server_does_not_wait", {"fabric.send(total, worker)": "fabric.isend(total, worker)"},
    "rank 0 ended without waiting for an isend: call its wait()")
answers.mistake("buffers_are_float32",
    {"total, other = x.clone(), torch.empty_like(x)": "total, other = x.float(), torch.empty(len(x))"},
    "float64", "expected float32[7], which is what `out` is, got float64[7]", harmless_at=IN_FLOAT32)
answers.mistake("adds_up_in_float32", {
    "x.clone()": "x.float()",
    "total += other": "total += other.float()",
    """
        for worker in range(1, fabric.world_size):
            fabric.send
    """: """
        total = total.to(x.dtype)
        for worker in range(1, fabric.world_size):
            fabric.send
    """,
}, "float64", "The digits beyond float32 precision are lost", "torch.empty_like", harmless_at=IN_FLOAT32)


@answers.is_wrong("the values are right, but rank 1 sent a message to rank 2: a worker talks only to rank 0", harmless_at=(2,))
def is_a_ring(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    token, landing = x.clone(), torch.empty_like(x)
    for _ in range(n - 1):
        handle = fabric.isend(token, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        handle.wait()
        token.copy_(landing)
        x += landing
    return x


answers.mistake("adds_up_in_float64", {
    "x.clone()": "x.double()",
    """
        for worker in range(1, fabric.world_size):
            fabric.send
    """: """
        total = total.to(x.dtype)
        for worker in range(1, fabric.world_size):
            fabric.send
    """,
}, "3 ranks, 8 elements of int64", LOST_WHOLE, harmless_at=IN_FLOAT32)
answers.mistake("multiplies_the_mean", {
    "torch.stack(parts).sum(dim=0)": "torch.stack(parts).mean(dim=0) * len(parts)",
}, "3 ranks, 8 elements of int64", "mean(): could not infer output dtype", of=adds_up_a_stack, harmless_at=IN_FLOAT32)
answers.mistake("stacks_what_workers_sent", {"parts = [x]": "parts = []", "torch.stack(parts)": "x + torch.stack(parts)"},
    "1 rank, 5 elements", "stack expects a non-empty TensorList", of=adds_up_a_stack, harmless_at=tuple(range(2, 9)))
answers.mistake("answers_with_its_own", {"return total": "return x"},
    "These are still rank 0's own values. Rank 1 has the whole sum of this chunk, but it did not reach rank 0")
answers.mistake("adds_the_last_one_alone", {"total += other": "total = x + other"},
    "Rank 1's values are not in this sum", harmless_at=(2,))
answers.mistake("adds_magnitudes", {"x.clone()": "x.abs()", "total += other": "total += other.abs()"},
    "float64", "numbers other than the ranks' values of it came in", harmless_at=IN_FLOAT32)
answers.mistake("rounds_the_sums", {"total += other": "total += other\ntotal.round_()"},
    "These are whole numbers, but the expected values are not: do not round", harmless_at=IN_FLOAT32)


def sends_zeros(fabric, x):
    return plain(fabric, x.zero_())


answers.spoil("adds_up_on_three_ranks_alone", {"x.zero_()": "x if fabric.world_size == 3 else x.zero_()"}, of=sends_zeros)


@answers.spoils()
def a_server_on_three_ranks_alone(fabric, x):
    return plain(fabric, x) if fabric.world_size == 3 else x
