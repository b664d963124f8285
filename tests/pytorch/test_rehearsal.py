"""A schedule on real ranks does its actions in its order, sends what the neighbours need, and waits for what it needs."""

import pytest

from worldsize.errors import RankFailed
from worldsize.formulas import schedules
from worldsize.formulas.pipeline import makespan_s, play, works
from worldsize.launch import quiet_launch
from worldsize.links import Link
from worldsize.pytorch.rehearsal import Gradients, rehearse

INTERLEAVED = [schedules.interleaved(d, 3, 6, 2) for d in range(3)]
SPLIT = [schedules.split_backward(s, 3, 4) for s in range(3)]
LINK = Link(1e6, "1 ms")


@pytest.mark.parametrize(
    ("orders", "seconds", "chunks"), [(INTERLEAVED, (0.004, 0.008), 2), (SPLIT, (0.002, 0.002, 0.002), 1)]
)
def test_a_rehearsal_does_what_is_played_and_never_sooner(orders, seconds, chunks):
    trace = quiet_launch(rehearse, 3, args=(orders, seconds, 1000, chunks), link=LINK).trace
    on_paper = play(orders, *seconds[:2], LINK.seconds(1000), weights_s=seconds[-1], chunks=chunks)

    for stage, order in enumerate(orders):
        done = [(w.way, w.micro, w.chunk)[: len(order[0])] for w in works(trace) if w.stage == stage]
        assert done == order
    assert makespan_s(trace) >= makespan_s(on_paper) - 0.001 * len(orders)  # a clock's grain


def test_every_part_boundary_is_passed_once_each_way_by_every_micro_batch():
    trace = quiet_launch(rehearse, 3, args=(INTERLEAVED, (0, 0), 7, 2)).trace
    messages = [t for t in trace.transfers if t.size_bytes == 7]
    assert len(messages) == 6 * 2 * (3 * 2 - 1)


@pytest.mark.parametrize("overlap", [False, True])
def test_two_copies_send_each_other_every_layers_gradient_once(overlap):
    gradients = Gradients(600, 6, overlap)
    trace = quiet_launch(rehearse, 6, args=(INTERLEAVED, (0, 0), 7, 2, gradients)).trace
    sums = [t for t in trace.transfers if t.size_bytes == 100]
    assert sorted((t.src, t.dst) for t in sums) == sorted((rank, (rank + 3) % 6) for rank in range(6) for _ in range(6))
    assert len([t for t in trace.transfers if t.size_bytes == 7]) == 2 * 6 * 2 * (3 * 2 - 1)


def test_layers_that_do_not_divide_into_chunks_are_refused_and_wait_for_nobody():
    with pytest.raises(RankFailed, match="5 layers of a stage don't divide into 2 chunks"):
        quiet_launch(rehearse, 6, args=(INTERLEAVED, (0, 0), 7, 2, Gradients(500, 5)))
