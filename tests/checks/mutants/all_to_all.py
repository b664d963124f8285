"""Exercise 2.3: row j of every rank's table to rank j."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers

answers = Answers("all_to_all")


def shifted(fabric, x, offsets):
    """Round by round: to the rank that is `offset` further on, from the one that is as far back."""
    n, me = fabric.world_size, fabric.rank
    out = x.clone()
    for offset in offsets:
        handle = fabric.isend(x[(me + offset) % n], to=(me + offset) % n)
        fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)
        handle.wait()
    return out


def others(fabric):
    return [rank for rank in range(fabric.world_size) if rank != fabric.rank]


# ---- more than n − 1 rounds ------------------------------------------------------------------


@answers.is_wrong("the values are right", "ranks 1, 2 and 3 all send their message 1 to rank 0", "Let each begin with another")
def everybody_serves_rank_0_first(fabric, x):
    out = x.clone()
    handles = [fabric.isend(x[rank], to=rank) for rank in others(fabric)]
    for rank in others(fabric):
        fabric.recv(out[rank], frm=rank)
    for handle in handles:
        handle.wait()
    return out


@answers.is_wrong("the values are right", "4 ranks", "ranks 1, 2 and 3 all send their message 1 to rank 0")
def one_pair_at_a_time(fabric, x):
    out = x.clone()
    for low in range(fabric.world_size):
        for high in range(low + 1, fabric.world_size):
            if fabric.rank == low:
                fabric.send(x[high], to=high)
                fabric.recv(out[high], frm=high)
            elif fabric.rank == high:
                fabric.recv(out[low], frm=low)
                fabric.send(x[low], to=low)
    return out


@answers.is_wrong("the values are right", "rank 1 had received 1 message before it sent its message 1", "isend first")
def one_rank_after_the_other(fabric, x):
    n, out = fabric.world_size, x.clone()
    for source in range(n):
        if fabric.rank == source:
            for offset in range(1, n):
                fabric.send(x[(source + offset) % n], to=(source + offset) % n)
        else:
            fabric.recv(out[source], frm=source)
    return out


@answers.is_wrong("4 ranks", "deadlock: rank 0 waits for 3 (send)")
def rank_0_sends_and_the_others_receive_first(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    for offset in range(1, n):
        right, left = (me + offset) % n, (me - offset) % n
        if me == 0:
            fabric.send(x[right], to=right)
            fabric.recv(out[left], frm=left)
        else:
            fabric.recv(out[left], frm=left)
            fabric.send(x[right], to=right)
    return out


@answers.is_wrong("the values are right", "before it sent its message 1", "A card sends and receives at the same time")
def pairs_that_take_turns(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    if n & (n - 1):
        return shifted(fabric, x, range(1, n))
    for bits in range(1, n):
        partner = me ^ bits
        if me < partner:
            fabric.send(x[partner], to=partner)
        fabric.recv(out[partner], frm=partner)
        if me > partner:
            fabric.send(x[partner], to=partner)
    return out


# ---- waits and buffers -----------------------------------------------------------------------


@answers.is_wrong("deadlock: rank 0 waits for 1 (send)", "Receive before you wait")
def sends_before_it_receives(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    for offset in range(1, n):
        fabric.send(x[(me + offset) % n], to=(me + offset) % n)
        fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)
    return out


@answers.is_wrong("expected float32[4], which is what `out` is, got int64[4]")
def a_buffer_of_floats(fabric, x):
    n, me = fabric.world_size, fabric.rank
    out = torch.empty(x.shape)
    out[me] = x[me]
    for offset in range(1, n):
        handle = fabric.isend(x[(me + offset) % n], to=(me + offset) % n)
        fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)
        handle.wait()
    return out


@answers.is_wrong("ended with an isend that nobody waited for: call its wait()")
def waits_for_the_last_one_alone(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    for offset in range(1, n):
        handle = fabric.isend(x[(me + offset) % n], to=(me + offset) % n)
        fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)
    if n > 1:
        handle.wait()
    return out


@answers.is_wrong("changed the tensor of its isend to rank", "before wait()")
def swaps_in_place(fabric, x):
    n = fabric.world_size
    if n & (n - 1):
        return shifted(fabric, x, range(1, n))
    for bits in range(1, n):
        partner = fabric.rank ^ bits
        handle = fabric.isend(x[partner], to=partner)
        fabric.recv(x[partner], frm=partner)
        handle.wait()
    return x


@answers.is_wrong("changed the tensor of its isend to rank", "before wait()")
def one_buffer_for_all_sends(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    buffer, handles = torch.empty_like(x[0]), []
    for offset in range(1, n):
        buffer.copy_(x[(me + offset) % n])
        handles.append(fabric.isend(buffer, to=(me + offset) % n))
        fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)
    for handle in handles:
        handle.wait()
    return out


# ---- wrong values ----------------------------------------------------------------------------


@answers.is_wrong("rank 0, row 0: expected rank 0's block 0", "A rank's own block does not travel: copy it")
def forgets_its_own_block(fabric, x):
    out = shifted(fabric, x, range(1, fabric.world_size))
    out[fabric.rank] = 0
    return out


@answers.is_wrong("rank 0, row 1: expected rank 1's block 0", "It holds rank 1's block 1, which was for rank 1")
def everybody_gets_the_senders_own_row(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    for offset in range(1, n):
        handle = fabric.isend(x[me], to=(me + offset) % n)
        fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)
        handle.wait()
    return out


@answers.is_wrong("It holds what rank 3 sent: row r is for what came from rank r")
def in_the_order_of_the_rounds(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    for offset in range(1, n):
        handle = fabric.isend(x[(me + offset) % n], to=(me + offset) % n)
        fabric.recv(out[(me + offset) % n], frm=(me - offset) % n)
        handle.wait()
    return out


@answers.is_wrong("row r is for what came from rank r")
def in_the_order_of_the_values(fabric, x):
    out = shifted(fabric, x, range(1, fabric.world_size))
    return out[out[:, 0].argsort()]


@answers.is_wrong("It holds rank 0's own block 1, which was for rank 1: nothing arrived here")
def sends_and_never_looks(fabric, x):
    shifted(fabric, x, range(1, fabric.world_size))
    return x


@answers.is_wrong("rank 0: expected the table of blocks as a tensor of shape [4, 3], got None (does the function return it?)")
def leaves_it_in_x(fabric, x):
    x.copy_(shifted(fabric, x, range(1, fabric.world_size)))


@answers.is_wrong("send to rank 3", "the world size is 3")
def partners_by_xor_alone(fabric, x):
    n = 2 ** (fabric.world_size - 1).bit_length()
    out = x.clone()
    for bits in range(1, n):
        partner = fabric.rank ^ bits
        handle = fabric.isend(x[partner % len(x)], to=partner)
        fabric.recv(out[partner], frm=partner)
        handle.wait()
    return out


# ---- wrong messages --------------------------------------------------------------------------


@answers.is_wrong("the values are right, but rank 0 sent rank 1 a message of 48 bytes; expected its block alone, 12 bytes")
def whole_tables(fabric, x):
    n, me, out, arrived = fabric.world_size, fabric.rank, x.clone(), torch.empty_like(x)
    for offset in range(1, n):
        handle = fabric.isend(x, to=(me + offset) % n)
        fabric.recv(arrived, frm=(me - offset) % n)
        out[(me - offset) % n] = arrived[me]
        handle.wait()
    return out


@answers.is_wrong("the values are right, but rank 0 sent rank 1 3 messages; expected 1")
def number_by_number(fabric, x):
    columns = [shifted(fabric, column.contiguous(), range(1, fabric.world_size)) for column in x.split(1, dim=1)]
    return torch.cat(columns, dim=1)


@answers.is_wrong("the values are right, but rank 1 sent rank 2 0 messages; expected 1, the block that is for rank 2")
def by_way_of_rank_0(fabric, x):
    if fabric.rank:
        fabric.send(x, to=0)
        fabric.recv(x, frm=0)
        return x
    tables = [x] + [torch.empty_like(x) for _ in others(fabric)]
    for rank in others(fabric):
        fabric.recv(tables[rank], frm=rank)
    turned = torch.stack(tables).transpose(0, 1).contiguous()
    for rank in others(fabric):
        fabric.send(turned[rank], to=rank)
    return turned[0]


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x):
    dist.init_process_group("gloo")
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out


# ---- right -----------------------------------------------------------------------------------


@answers.is_right
def round_by_round(fabric, x):
    return shifted(fabric, x, range(1, fabric.world_size))


@answers.is_right
def the_other_way_round_into_x_itself(fabric, x):
    x.copy_(shifted(fabric, x, reversed(range(1, fabric.world_size))))
    return x


@answers.is_right
def partners_by_xor_where_they_fit(fabric, x):
    n, out = fabric.world_size, x.clone()
    if n & (n - 1):
        return shifted(fabric, x, range(1, n))
    for bits in range(1, n):
        partner = fabric.rank ^ bits
        handle = fabric.isend(x[partner], to=partner, tag=bits)
        fabric.recv(out[partner], frm=partner, tag=bits)
        handle.wait()
    return out


@answers.is_right
def all_sends_at_once_then_from_anyone(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    handles = [fabric.isend(x[(me + k) % n], to=(me + k) % n) for k in range(1, n)]
    arrived = torch.empty_like(x[0])
    for _ in handles:
        source = fabric.recv(arrived)
        out[source] = arrived
    for handle in handles:
        handle.wait()
    return out


@answers.is_right
def all_sends_at_once_then_in_the_order_of_ranks(fabric, x):
    n, me = fabric.world_size, fabric.rank
    handles = {(me + k) % n: fabric.isend(x[(me + k) % n], to=(me + k) % n) for k in range(1, n)}
    rows = [x[me].clone() if rank == me else torch.empty_like(x[0]) for rank in range(n)]
    for rank in sorted(handles):
        fabric.recv(rows[rank], frm=rank)
    for rank in sorted(handles):
        handles[rank].wait()
    return torch.stack(rows)


@answers.is_right
def one_send_ahead(fabric, x):
    """The next send leaves before the last receive is over."""
    n, me, out, before = fabric.world_size, fabric.rank, x.clone(), []
    for k in range(1, n):
        before.append(fabric.isend(x[(me + k) % n], to=(me + k) % n))
        if k > 1:
            fabric.recv(out[(me - k + 1) % n], frm=(me - k + 1) % n)
            before.pop(0).wait()
    if n > 1:
        fabric.recv(out[(me + 1) % n], frm=(me + 1) % n)
        before.pop().wait()
    return out
