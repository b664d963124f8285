"""Exercise 2.3: row j of every rank's table to rank j."""

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers

answers = Answers("all_to_all")


def others(fabric):
    return [rank for rank in range(fabric.world_size) if rank != fabric.rank]


@answers.is_right
def round_by_round(fabric, x):
    """Round by round: to the rank that is `offset` further on, from the one that is as far back."""
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    for offset in range(1, n):
        handle = fabric.isend(x[(me + offset) % n], to=(me + offset) % n)
        fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)
        handle.wait()
    return out


answers.twin("offsets_in_an_order_that_all_ranks_draw_alike", {
    "for offset in range(1, n):": """
        order = torch.randperm(max(0, n - 1), generator=torch.Generator().manual_seed(5)) + 1
        for offset in order.tolist():
    """,
})
answers.twin("the_other_way_round_into_x_itself", {
    "range(1, n)": "reversed(range(1, n))",
    "return out": "x.copy_(out)\nreturn x",
})


@answers.is_right
def partners_by_xor_where_they_fit(fabric, x):
    n, out = fabric.world_size, x.clone()
    if n & (n - 1):
        return round_by_round(fabric, x)
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


@answers.is_wrong(
    "the values are right", "ranks 1, 2 and 3 all send their message 1 to rank 0", "Let each start with a different rank"
)
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


answers.mistake("rank_0_sends_and_the_others_receive_first", {
    "handle = fabric.isend(x[(me + offset) % n], to=(me + offset) % n)": """
        if me == 0:
            fabric.send(x[(me + offset) % n], to=(me + offset) % n)
    """,
    "handle.wait()": """
        if me:
            fabric.send(x[(me + offset) % n], to=(me + offset) % n)
    """,
}, "4 ranks", "deadlock: rank 0 waits for 3 (send)")


@answers.is_wrong("the values are right", "before it sent its message 1", "A card sends and receives at the same time")
def pairs_that_take_turns(fabric, x):
    n, me, out = fabric.world_size, fabric.rank, x.clone()
    if n & (n - 1):
        return round_by_round(fabric, x)
    for bits in range(1, n):
        partner = me ^ bits
        if me < partner:
            fabric.send(x[partner], to=partner)
        fabric.recv(out[partner], frm=partner)
        if me > partner:
            fabric.send(x[partner], to=partner)
    return out


answers.mistake("sends_before_it_receives", {"handle = fabric.isend": "fabric.send", "handle.wait()": ""},
    "deadlock: rank 0 waits for 1 (send)", "Receive before you wait")
answers.mistake("a_buffer_of_floats", {
    "x.clone()": "torch.empty(x.shape)",
    "for offset": "out[me] = x[me]\nfor offset",
}, "expected float32[4], which is what `out` is, got int64[4]")
answers.mistake("waits_for_the_last_one_alone", {
    """
            handle.wait()
        return out
    """: """
        if n > 1:
            handle.wait()
        return out
    """,
}, "ended without waiting for an isend: call its wait()")
answers.mistake("swaps_in_place", {
    "n, out = fabric.world_size, x.clone()": "n = fabric.world_size",
    "fabric.isend(x[partner], to=partner, tag=bits)": "fabric.isend(x[partner], to=partner)",
    "fabric.recv(out[partner], frm=partner, tag=bits)": "fabric.recv(x[partner], frm=partner)",
    "return out": "return x",
}, "changed the tensor of its isend to rank", "before wait()", of=partners_by_xor_where_they_fit)
answers.mistake("one_buffer_for_all_sends", {
    "for offset": "buffer, handles = torch.empty_like(x[0]), []\nfor offset",
    "handle = fabric.isend(x[(me + offset) % n], to=(me + offset) % n)": """
        buffer.copy_(x[(me + offset) % n])
        handles.append(fabric.isend(buffer, to=(me + offset) % n))
    """,
    "    handle.wait()": """
        for handle in handles:
            handle.wait()
    """,
}, "changed the tensor of its isend to rank", "before wait()")


answers.mistake("forgets_its_own_block", {"return out": "out[me] = 0\nreturn out"},
    "rank 0, row 0: expected rank 0's block 0", "A rank's own block does not travel: copy it")
answers.mistake("everybody_gets_the_senders_own_row", {"x[(me + offset) % n]": "x[me]"},
    "rank 0, row 1: expected rank 1's block 0", "It holds rank 1's block 1, which was for rank 1")
answers.mistake("in_the_order_of_the_rounds", {"out[(me - offset) % n]": "out[(me + offset) % n]"},
    "It holds the block from rank 3: row r is for the block from rank r")
answers.mistake("in_the_order_of_the_values", {"return out": "return out[out[:, 0].argsort()]"},
    "row r is for the block from rank r")
answers.mistake("keeps_rows_in_float32", {"return out": "return out.float().to(x.dtype)"},
    "5 ranks", "The digits beyond float32 precision are lost")
answers.mistake("sends_rows_of_whole_numbers", {"isend(x[(me + offset) % n]": "isend(x[(me + offset) % n].round()"},
    "5 ranks", "These are whole numbers, but the expected values are not: do not round")
answers.mistake("writes_the_rounds_of_eight_out", {"range(1, n)": "[k for k in (1, 2, 3, 4, 5, 6, 7) if k < n]"},
    "9 ranks", "nothing arrived here")
answers.mistake("sends_and_never_looks", {"return out": "return x"},
    "It holds rank 0's own block 1, which was for rank 1: nothing arrived here")
answers.mistake("leaves_it_in_x", {"return out": "x.copy_(out)"},
    "rank 0: expected the table of blocks as a tensor of shape [4, 3], got None (does the function return it?)")


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


answers.mistake("whole_tables", {
    "fabric.isend(x[(me + offset) % n]": "fabric.isend(x",
    "fabric.recv(out[(me - offset) % n], frm=(me - offset) % n)": """
        arrived = torch.empty_like(x)
        fabric.recv(arrived, frm=(me - offset) % n)
        out[(me - offset) % n] = arrived[me]
    """,
}, "the values are right, but rank 0 sent rank 1 a message of 48 bytes; expected only its block, 12 bytes")


@answers.is_wrong("the values are right, but rank 0 sent rank 1 3 messages; expected 1")
def number_by_number(fabric, x):
    columns = [round_by_round(fabric, column.contiguous()) for column in x.split(1, dim=1)]
    return torch.cat(columns, dim=1)


@answers.is_wrong("the values are right, but rank 1 sent rank 2 0 messages; expected 1, the block for rank 2")
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
answers.mistake("partners_by_xor_where_n_is_even", {"n & (n - 1)": "n % 2"}, "6 ranks", of=partners_by_xor_where_they_fit)


@answers.spoils()
def partners_by_xor_among_four_alone(fabric, x):
    return partners_by_xor_where_they_fit(fabric, x) if fabric.world_size == 4 else x


def sends_zeros_to_rank_0_first(fabric, x):
    return everybody_serves_rank_0_first(fabric, x.zero_())


answers.spoil("good_rounds_among_four_alone", {
    "return everybody_serves_rank_0_first(fabric, x.zero_())":
        "return (round_by_round if fabric.world_size == 4 else sends_zeros_to_rank_0_first)(fabric, x)",
}, of=sends_zeros_to_rank_0_first)
