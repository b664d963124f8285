"""A watched tensor: what is noted of each message."""

from types import SimpleNamespace

import pytest
import torch

from worldsize.fabric.watched import Watched


class Loop:
    """A fabric whose messages come back: enough to watch an algorithm."""

    rank, world_size = 0, 2

    def __init__(self):
        self.sent = []

    def send(self, x, to, tag=0):
        self.sent.append((x, to, tag))

    def isend(self, x, to, tag=0):
        self.sent.append((x, to, tag))
        return SimpleNamespace(wait=lambda: None)

    def recv(self, out, frm=None, tag=0):
        out.fill_(10.0)
        return 1


def watched(x, chunks=None):
    return Watched(Loop(), x, chunks)


def test_a_watched_fabric_notes_what_the_tensor_held_before_each_call_and_at_the_end():
    x = torch.tensor([1.0, 1.0])
    fabric = watched(x)
    fabric.recv(x[1:], frm=1)
    x[0] += 5
    fabric.send(x, to=1)
    assert [note.held for note in fabric.notes()] == [(1.0, 1.0), (6.0, 10.0), (6.0, 10.0)]


@pytest.mark.parametrize("way", ["send", "isend"])
def test_a_watched_message_goes_where_it_would_have_gone(way):
    x = torch.ones(2)
    fabric = watched(x)
    getattr(fabric, way)(x, 1, 5)
    ((sent, *rest),) = fabric._fabric.sent
    assert sent is x and rest == [1, 5]


@pytest.mark.parametrize(
    ("part", "chunks"),
    [
        (slice(0, 5), (0, 0)),
        (slice(5, 10), (1, 1)),
        (slice(5, 20), (1, 3)),
        (slice(0, 20), (0, 3)),
        (slice(4, 6), (0, 1)),
    ],
)
def test_a_sent_slice_is_known_by_its_chunks(part, chunks):
    x = torch.ones(20)
    fabric = watched(x, 4)
    fabric.isend(x[part], to=1)
    assert fabric.notes()[0].chunks == chunks


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(0), torch.ones(3, dtype=torch.int64)])
def test_a_sent_tensor_that_is_no_part_of_it_is_no_chunk(other):
    fabric = watched(torch.ones(20), 4)
    fabric.isend(other, to=1)
    assert fabric.notes()[0].chunks is None


@pytest.mark.parametrize("of", [lambda x: x[2:4].clone(), lambda x: x[:2].double(), lambda x: x[:0]])
def test_what_is_made_of_a_part_and_an_empty_part_are_no_chunk(of):
    x = torch.ones(20)
    fabric = watched(x, 4)
    fabric.send(of(x), to=1)
    assert fabric.notes()[0].chunks is None


def test_a_receive_has_no_chunk_and_the_end_is_the_ranks_own():
    fabric = watched(torch.ones(2))
    fabric.recv(torch.empty(1), 1)
    received, end = fabric.notes()
    assert (received.op, received.chunks) == ("recv", None)
    assert (end.op, end.peer, end.tag) == ("end", fabric.rank, 0)


def test_a_receive_from_anyone_notes_who_it_was():
    fabric = watched(torch.ones(2))
    assert fabric.recv(torch.empty(1)) == fabric.notes()[0].peer == 1


@pytest.mark.parametrize("x", [torch.ones(1), torch.ones(4, 4).t()[1:]])
def test_a_tensor_that_cannot_be_watched_is_refused(x):
    with pytest.raises(ValueError, match="expected a contiguous tensor of at least one number for each of"):
        Watched(Loop(), x, 4 if x.numel() == 1 else 2)
