"""Guarded sends: a tensor that changes between its isend and the wait is an error, every time and at every size."""

import pytest
import torch

from tests.support.conformance import SUITE
from worldsize.errors import RankFailed
from worldsize.launch import launch

SIZES = [1, 40_000]  # of the second, a message has more than 128 KiB


def into_what_is_being_sent(fabric, length):
    fabric.guard_sends()
    x = torch.full((length,), float(fabric.rank))
    handle = fabric.isend(x, to=(fabric.rank + 1) % fabric.world_size)
    fabric.recv(x, frm=(fabric.rank - 1) % fabric.world_size)
    handle.wait()


def one_buffer_for_two_messages(fabric, length):
    fabric.guard_sends()
    if fabric.rank == 0:
        buffer = torch.zeros(length)
        handles = []
        for other in range(1, fabric.world_size):
            buffer.fill_(other)
            handles.append(fabric.isend(buffer, to=other))
        for handle in handles:
            handle.wait()
    else:
        fabric.recv(torch.empty(length), frm=0)


@pytest.mark.parametrize("length", SIZES)
@pytest.mark.parametrize("mistake", [into_what_is_being_sent, one_buffer_for_two_messages])
@pytest.mark.parametrize("world_size", [3, pytest.param(4, marks=pytest.mark.soak)])
def test_a_tensor_that_changes_while_it_is_sent_is_named_with_its_ranks(mistake, world_size, length):
    with pytest.raises(RankFailed, match=r"rank \d changed the tensor of its isend to rank \d before wait\(\)"):
        launch(mistake, world_size, args=(length,))


def waits_first(fabric, length):
    fabric.guard_sends()
    x = torch.full((length,), float(fabric.rank))
    got = torch.empty(length)
    handle = fabric.isend(x, to=(fabric.rank + 1) % fabric.world_size)
    fabric.recv(got, frm=(fabric.rank - 1) % fabric.world_size)
    handle.wait()
    x += got
    return x[-1].item()


@pytest.mark.parametrize("length", SIZES)
def test_a_tensor_may_change_after_the_wait(length):
    assert launch(waits_first, 3, args=(length,)).results == [2.0, 1.0, 3.0]


def guarded(fn):
    def on_a_guarded_fabric(fabric, *args):
        fabric.guard_sends()
        return fn(fabric, *args)

    return on_a_guarded_fabric


@pytest.mark.parametrize("rule", SUITE, ids=lambda rule: rule.__name__)
def test_conformance(rule):
    rule(lambda fn, n, *args: launch(guarded(fn), n, args=args, timeout_s=30), 3)
