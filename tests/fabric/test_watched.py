"""A watched tensor: what is noted of each message."""

from __future__ import annotations

import pytest
import torch

from worldsize.fabric.watched import Watched
from worldsize.simulate import simulate

HELD = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]


def sent(fabric, of):
    x = torch.tensor(HELD)
    watched = Watched(fabric, x, 3)
    if fabric.rank == 0:
        watched.send(of(x), 1)
    else:
        watched.recv(torch.empty_like(of(x)), 0)
    first, end = watched.notes()
    assert (end.op, end.peer, end.tag) == ("end", fabric.rank, 0)
    return first


@pytest.mark.parametrize(
    ("of", "chunks"),
    [
        (lambda x: x[2:4], (1, 1)),
        (lambda x: x[:3], (0, 1)),
        (lambda x: x, (0, 2)),
        (lambda x: x[2:4].clone(), None),
        (lambda x: x[:2].double(), None),
        (lambda x: x[:0], None),
    ],
)
def test_a_note_names_the_chunks_that_a_message_shares_memory_with(of, chunks):
    note, received = simulate(sent, 2, (of,)).results
    assert (note.op, note.peer, note.held, note.chunks) == ("send", 1, (1.0, 2.0, 3.0), chunks)
    assert (received.op, received.peer, received.chunks) == ("recv", 0, None)
