"""The next step of a deadlock: told by who has ended, who was left out and who sends to whom."""

import pytest
import torch

from worldsize.checks.arena import LaunchArena
from worldsize.checks.kit.deadlock_advice import deadlock_advice
from worldsize.checks.kit.values import inputs_for
from worldsize.failures import Wait


def left_out(fabric, x):
    """Rank 0 serves all but the last."""
    if fabric.rank == 0:
        for other in range(1, fabric.world_size - 1):
            fabric.send(x, to=other)
    else:
        fabric.recv(x, frm=0)


def one_too_many(fabric, x):
    if fabric.rank == 0:
        fabric.send(x, to=1)
        fabric.send(x, to=1)
    elif fabric.rank == 1:
        fabric.recv(x, frm=0)


def all_send(fabric, x):
    fabric.send(x, to=(fabric.rank + 1) % fabric.world_size)
    fabric.recv(x, frm=(fabric.rank - 1) % fabric.world_size)


def waits_for_its_isend_first(fabric, x):
    handle = fabric.isend(x, to=(fabric.rank + 1) % fabric.world_size)
    handle.wait()
    fabric.recv(torch.empty_like(x), frm=(fabric.rank - 1) % fabric.world_size)


def all_receive(fabric, x):
    fabric.recv(x, frm=(fabric.rank - 1) % fabric.world_size)
    fabric.send(x, to=(fabric.rank + 1) % fabric.world_size)


def other_tag(fabric, x):
    if fabric.rank == 0:
        fabric.send(x, to=1, tag=1)
    elif fabric.rank == 1:
        fabric.recv(x, frm=0, tag=2)


def in_a_circle(fabric, x):
    """Rank 0 sends to 1, which first wants something from 2, which first wants something from 0."""
    if fabric.rank == 0:
        fabric.send(x, to=1)
        fabric.send(x, to=2)
    elif fabric.rank == 1:
        fabric.recv(x, frm=2)
        fabric.recv(x, frm=0)
    else:
        fabric.recv(x, frm=0)
        fabric.send(x, to=1)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (left_out, "Rank 0 has ended: it sent rank 2 fewer messages than rank 2 expects. Did it return early, or skip rank 2?"),
        (one_too_many, "Rank 1 has ended: it received fewer messages from rank 0 than rank 0 sent"),
        (all_send, "no rank receives: rank 0 sends to 1, rank 1 sends to 2, rank 2 sends to 0. Receive before you wait"),
        (waits_for_its_isend_first, "no rank receives: rank 0 sends to 1, rank 1 sends to 2, rank 2 sends to 0."),
        (all_receive, "rank 0 receives from 2, rank 1 receives from 0, rank 2 receives from 1. Let one rank send first"),
        (other_tag, "Rank 0 sends to rank 1 with tag 1, but rank 1 receives with tag 2"),
        (in_a_circle, "These ranks wait in a circle: rank 0 sends to 1, rank 1 receives from 2, rank 2 receives from 0."),
    ],
)
def test_a_deadlock_says_what_to_do_next(mistake, words):
    ended = LaunchArena().ranks(mistake, inputs_for(3, 4, seed=0))
    assert ended.state == "deadlock"
    assert words in deadlock_advice(ended.waits)


def test_who_waits_for_anyone_is_in_no_circle():
    assert deadlock_advice([Wait(0, "recv", None), Wait(1, "send", 2), Wait(2, "send", 0)]) == ""
