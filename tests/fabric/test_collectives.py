"""The given collectives: exact sums and parts on every rank, and no more bytes than they need."""

import pytest
import torch

from worldsize.fabric import collectives
from worldsize.formulas import cost
from worldsize.launch import launch
from worldsize.simulate import simulate

LENGTHS = (8, 7, 2)


def of_every_length(fabric):
    return {length: all_three(fabric, length) for length in LENGTHS}


def all_three(fabric, length):
    n, rank = fabric.world_size, fabric.rank
    x = 1000.0 * rank + torch.arange(length, dtype=torch.float64)
    part = collectives.reduce_scatter(fabric, x)
    whole = torch.full((length,), -1.0, dtype=torch.float64)
    whole.tensor_split(n)[rank].copy_(part)
    collectives.all_gather(fabric, whole)
    return x.clone(), part, whole, collectives.all_reduce(fabric, x.clone())


@pytest.mark.parametrize("start", [simulate, launch])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
def test_a_reduce_scatter_and_an_all_gather_are_an_all_reduce(world_size, start):
    for rank, found in enumerate(start(of_every_length, world_size).results):
        for length, (x, part, gathered, reduced) in found.items():
            total = sum(1000.0 * r + torch.arange(length, dtype=torch.float64) for r in range(world_size))
            assert torch.equal(x, 1000.0 * rank + torch.arange(length, dtype=torch.float64))
            assert torch.equal(part, total.tensor_split(world_size)[rank])
            assert torch.equal(gathered, total)
            assert torch.equal(reduced, total)


def unequal_parts(fabric):
    own = 1000 * fabric.rank + torch.arange((3, 0, 5, 1)[fabric.rank])
    return [collectives.concatenated(fabric, own.to(dtype)).tolist() for dtype in (torch.int64, torch.float64, torch.bool)]


@pytest.mark.parametrize("start", [simulate, launch])
def test_unequal_parts_stand_one_after_the_other_on_every_rank(start):
    whole = [0, 1, 2, 2000, 2001, 2002, 2003, 2004, 3000]
    assert start(unequal_parts, 4).results == [[whole, whole, [bool(value) for value in whole]]] * 4


def moved(fabric, name):
    getattr(collectives, name)(fabric, torch.ones(12))


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "all_reduce"])
def test_each_rank_sends_what_its_formula_says(name):
    run = simulate(moved, 3, args=(name,))
    formula = {"all_reduce": cost.bytes_ring_all_reduce}.get(name) or getattr(cost, f"bytes_{name}")
    assert [run.trace.sent_bytes(rank) for rank in range(3)] == [formula(3, 48)] * 3


def test_an_all_reduce_takes_any_shape_and_order_of_elements():
    def transposed(fabric):
        return collectives.all_reduce(fabric, (torch.arange(6.0).view(2, 3) + fabric.rank).T)

    assert torch.equal(launch(transposed, 2)[1], (2 * torch.arange(6.0).view(2, 3) + 1).T)


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "concatenated"])
def test_parts_are_of_a_flat_tensor(name):
    with pytest.raises(ValueError, match=name + r": expected a flat tensor, .* got shape \[2, 3\]"):
        getattr(collectives, name)(None, torch.ones(2, 3))
