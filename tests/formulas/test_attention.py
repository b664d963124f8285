"""Attention over a sequence on several ranks: pairs, bytes and seconds, against a count and against simulated ranks."""

import math

import pytest
import torch

from worldsize.formulas import attention
from worldsize.links import Link
from worldsize.simulate import simulate

LINK = Link("1 GB/s", "100 us")


def in_a_row(n, length):
    return [part.tolist() for part in torch.arange(length).tensor_split(n)]


@pytest.mark.parametrize(("n", "length"), [(1, 7), (2, 8), (3, 10), (5, 23)])
def test_the_pairs_of_all_rounds_are_those_of_the_mask(n, length):
    tokens = in_a_row(n, length)
    pairs = attention.pairs_by_round(tokens)
    counted = [
        [sum(key <= query for query in tokens[rank] for key in tokens[(rank - step) % n]) for rank in range(n)]
        for step in range(n)
    ]
    assert pairs.tolist() == counted
    assert pairs.sum() == attention.causal_pairs(length)


def test_scores_grow_with_the_square_of_the_length():
    assert attention.score_bytes(2000, 4) == 4 * attention.score_bytes(1000, 4) == 4 * 4 * 1000**2 * 2


def ring(fabric, rows, width, block_s):
    n, rank = fabric.world_size, fabric.rank
    for step in range(n):
        if step < n - 1:
            handle = fabric.isend(torch.zeros(2, rows, width, dtype=torch.float16), to=(rank + 1) % n)
        fabric.compute(block_s)
        if step < n - 1:
            fabric.recv(torch.empty(2, rows, width, dtype=torch.float16), frm=(rank - 1) % n)
            handle.wait()


@pytest.mark.parametrize("work_s", [1e-3, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_a_simulated_ring_takes_the_seconds_and_sends_the_bytes_of_the_formula(n, work_s):
    length, width = 420, 50
    run = simulate(ring, n, args=(length // n, width, work_s / n**2), link=LINK)
    assert run.simulated_s == pytest.approx(attention.ring_seconds(n, length, width, LINK, work_s), rel=1e-9)
    assert run.trace.sent_bytes(0) == attention.bytes_ring(n, length, width)


def heads_dealt_out(fabric, rows, width, work_s):
    n, me = fabric.world_size, fabric.rank
    for many in (3, 1):
        part = torch.zeros(many, rows, width // n, dtype=torch.float16)
        handles = [fabric.isend(part, to=(me + k) % n) for k in range(1, n)]
        for k in range(1, n):
            fabric.recv(torch.empty_like(part), frm=(me - k) % n)
        for handle in handles:
            handle.wait()
        if many == 3:
            fabric.compute(work_s)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_simulated_heads_take_the_seconds_and_send_the_bytes_of_the_formula(n):
    length, width, work_s = 420, 84, 0.01
    run = simulate(heads_dealt_out, n, args=(length // n, width, work_s / n), link=LINK)
    assert run.simulated_s == pytest.approx(attention.heads_seconds(n, 84, length, width, LINK, work_s), rel=1e-9)
    assert run.trace.sent_bytes(0) == attention.bytes_heads(n, length, width)


def test_heads_that_the_ranks_do_not_divide_take_for_ever():
    assert math.isinf(attention.heads_seconds(3, 4, 12, 8, LINK, 1.0))


def test_no_rank_at_all_is_refused():
    with pytest.raises(ValueError, match="expected one rank or more, got 0"):
        attention.block_bytes(10, 4, 0)
