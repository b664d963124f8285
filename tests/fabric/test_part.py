"""Some ranks of a fabric as a fabric of their own: rows and columns of a mesh, in processes and in simulated time."""

import pytest
import torch

from worldsize.fabric import among
from worldsize.fabric.collectives import all_gather, all_reduce
from worldsize.launch import launch
from worldsize.simulate import simulate


def mesh(fabric, columns):
    """This rank's row and column of a mesh whose rows have so many ranks."""
    row, column = divmod(fabric.rank, columns)
    whole = range(fabric.world_size)
    return among(fabric, whole[row * columns : (row + 1) * columns]), among(fabric, whole[column::columns])


def sums(fabric, columns):
    """The sums over this rank's row and column, and what its row holds."""
    row, column = mesh(fabric, columns)
    own = torch.arange(5.0) + 1000 * fabric.rank
    gathered = torch.zeros(row.world_size)
    gathered[row.rank] = fabric.rank
    return all_reduce(row, own.clone()), all_reduce(column, own.clone()), all_gather(row, gathered), row.rank, column.rank


def expected(rank, world_size, columns):
    row = [other for other in range(world_size) if other // columns == rank // columns]
    column = [other for other in range(world_size) if other % columns == rank % columns]
    of = [len(ranks) * torch.arange(5.0) + 1000 * sum(ranks) for ranks in (row, column)]
    return *of, torch.tensor(row, dtype=torch.float32), row.index(rank), column.index(rank)


@pytest.mark.parametrize(("world_size", "columns"), [(1, 1), (2, 1), (3, 3), (4, 2), (6, 3), (6, 2), (7, 7)])
def test_a_collective_among_some_ranks_is_theirs_alone(world_size, columns):
    run = simulate(sums, world_size, args=(columns,))
    for rank, got in enumerate(run.results):
        for mine, right in zip(got, expected(rank, world_size, columns), strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(right)), rank


def test_messages_among_processes_are_recorded_with_their_ranks_in_the_whole():
    run = launch(sums, 4, args=(2,))
    for rank, got in enumerate(run.results):
        assert torch.equal(got[0], expected(rank, 4, 2)[0]), rank
    assert {(t.src, t.dst) for t in run.trace.transfers} == {
        (0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1),
    }  # fmt: skip


def turned_round(fabric):
    """Rank 0 sends to rank 0 of a part in which it is the last one."""
    part = among(fabric, [2, 1, 0])
    box = torch.zeros(1)
    if fabric.rank == 0:
        part.send(torch.tensor([7.0]), to=0)
    if fabric.rank == 2:
        return part.recv(box, frm=2), float(box[0]), part.rank
    return part.rank


def test_the_order_of_the_list_numbers_the_ranks():
    assert simulate(turned_round, 3).results == [2, 1, (2, 7.0, 0)]


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([0, 0], r"among: expected different ranks from 0 to 1, got \[0, 0\]"),
        ([0, 2], r"among: expected different ranks from 0 to 1, got \[0, 2\]"),
        ([], r"among: rank 0 is not one of \[\]. Call it on these ranks only."),
        ([1], r"among: rank 0 is not one of \[1\]. Call it on these ranks only."),
    ],
)
def test_ranks_that_make_no_part_are_an_error(ranks, words):
    def on_rank_0(fabric):
        if fabric.rank == 0:
            with pytest.raises(ValueError, match=words):
                among(fabric, ranks)

    simulate(on_rank_0, 2)


def test_receiving_from_anyone_among_some_ranks_is_an_error():
    def from_anyone(fabric):
        with pytest.raises(ValueError, match="recv: expected the rank to receive from, got None"):
            among(fabric, [0, 1]).recv(torch.zeros(1))

    simulate(from_anyone, 2)


def leaves_a_send(fabric, waits):
    """Rank 1 sends to rank 0 among ranks of a part of a part, maybe without a wait."""
    part = among(among(fabric, [1, 0]), [0, 1])
    if fabric.rank == 0:
        part.recv(torch.zeros(1), frm=0)
    elif waits:
        part.isend(torch.ones(1), to=1).wait()
    else:
        part.isend(torch.ones(1), to=1)


@pytest.mark.parametrize("run_on", [launch, simulate])
def test_an_isend_among_some_ranks_that_nobody_waits_for_is_told(run_on):
    told = "rank 1 ended without waiting for an isend: call its wait()."
    assert told in run_on(leaves_a_send, 2, args=(False,)).notes
    assert told not in run_on(leaves_a_send, 2, args=(True,)).notes
