"""Ranks that stand for others: times to the last bit where all do the same, and refused where they do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.simulate.programs import all_to_all, ring, server, tree, two_levels
from worldsize.engines.payload import Payload
from worldsize.errors import Deadlock
from worldsize.launch.run import KernelLaunches
from worldsize.links import Link
from worldsize.simulate import Nodes, simulate, symmetry
from worldsize.simulate.run import Setting, by_symmetry

LINK = Link("10 GB/s", "5 us")
EIGHT = Nodes(8, inside=Link("300 GB/s", "2 us"), between=Link("25 GB/s", "5 us"))


def with_few(fn, n, *more, link=None, nodes=None, slowness=None):
    """A run by symmetry of a world that is small enough for the other way too."""
    slowness = np.ones(n) if slowness is None else slowness
    setting = Setting(n, link, nodes, 0, 60.0, slowness, np.full(n, np.inf))
    call = Payload(fn, (torch.ones(n), *more), {})
    return by_symmetry(call, setting, KernelLaunches(), symmetry.listen(call, setting), 0.0)


@pytest.mark.parametrize("n", [16, 64, 256])
@pytest.mark.parametrize("nodes", [None, EIGHT], ids=["flat", "nodes"])
@pytest.mark.parametrize("fn, more", [(ring, ()), (two_levels, (8,)), (all_to_all, ())])
def test_times_are_those_of_the_full_simulation_to_the_last_bit(fn, more, nodes, n):
    if nodes is None and fn is two_levels:
        pytest.skip("its ranks do the same by nodes")
    link = None if nodes else LINK
    full = simulate(fn, n, args=(torch.ones(n), *more), link=link, nodes=nodes)
    assert with_few(fn, n, *more, link=link, nodes=nodes).ended_s.tolist() == full.ended_s.tolist()


def works_and_sums(fabric, x):
    fabric.compute(1e-3)
    ring(fabric, x)
    fabric.compute(2e-3)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 64])
def test_stragglers_have_the_times_of_the_full_simulation(n):
    def drawn(generator, n):
        return 1 + generator.exponential(0.5, n)

    full = simulate(works_and_sums, n, args=(torch.ones(n),), link=LINK, stragglers=drawn, seed=3)
    factors = drawn(np.random.default_rng([3, 17]), n)
    assert with_few(works_and_sums, n, link=LINK, slowness=factors).ended_s.tolist() == full.ended_s.tolist()


def test_ten_thousand_ranks_take_the_seconds_of_the_formula():
    run = simulate(ring, 10_000, args=(torch.ones(10_000),), link=LINK)
    assert run.simulated_s == pytest.approx(2 * 9999 * LINK.seconds(4), rel=1e-9)
    assert run.recorded_ranks == (0,) and len(run.ended_s) == 10_000
    assert "10,000 ranks by symmetry" in run.notes[0] and "to the last bit" in run.notes[0]


def test_a_run_by_symmetry_has_no_values_and_says_so():
    run = simulate(ring, 4096, args=(torch.ones(4096),), link=LINK)
    with pytest.raises(IndexError, match="a run by symmetry has times and no values"):
        run[0]


@pytest.mark.parametrize("fn, messages", [(server, 2 * 9999), (tree, 2 * 9999)])
def test_trees_and_servers_run_in_full(fn, messages):
    run = simulate(fn, 10_000, args=(torch.ones(1),), link=LINK)
    assert run.messages == messages and {float(x) for x in run.results} == {10_000.0}


# ---- what is refused ---------------------------------------------------------------------------------


def uneven(fabric, x):
    ring(fabric, x)


def parity(fabric, x):
    """Every rank sends to all others, the odd ones an element more."""
    for d in range(1, fabric.world_size):
        fabric.isend(x[: 1 + fabric.rank % 2], (fabric.rank + d) % fabric.world_size)


def by_data(fabric, x):
    for _ in range(fabric.world_size):
        handle = fabric.isend(x[:1], (fabric.rank + 1) % fabric.world_size)
        got = torch.empty(1)
        fabric.recv(got, (fabric.rank - 1) % fabric.world_size)
        handle.wait()
        if got[0] > 50:
            return


def everybody_from_anyone(fabric, x):
    for d in range(1, fabric.world_size):
        fabric.isend(x[:1], (fabric.rank + d) % fabric.world_size)
    for _ in range(fabric.world_size - 1):
        fabric.recv(torch.empty(1))


@pytest.mark.parametrize(
    "fn, length, words",
    [
        (uneven, 20_001, "20,001 elements, which 4,000 ranks do not divide evenly: take 20,000"),
        (parity, 4_000, "4 bytes.*8 bytes"),
        (by_data, 4_000, "depends on the numbers that it receives"),
        (everybody_from_anyone, 4_000, "receives from anyone"),
    ],
)
def test_what_is_not_alike_is_refused_beyond_what_is_simulated_in_full(monkeypatch, fn, length, words):
    monkeypatch.setattr("worldsize.simulate.run.MOST_FULL_RANKS", 3_000)
    with pytest.raises(ValueError, match=f"some can stand for the others only where all do the same: .*{words}"):
        simulate(fn, 4_000, args=(torch.zeros(length),), link=LINK)


def test_stragglers_on_a_shared_card_are_refused_beyond_what_is_simulated_in_full(monkeypatch):
    monkeypatch.setattr("worldsize.simulate.run.MOST_FULL_RANKS", 3_000)
    with pytest.raises(ValueError, match="stragglers come to their node's network card in another order"):
        simulate(works_and_sums, 4_000, args=(torch.ones(4_000),), nodes=EIGHT, stragglers={3: 2.0})


def test_stragglers_are_refused_where_vectors_over_them_would_take_minutes(monkeypatch):
    monkeypatch.setattr("worldsize.simulate.run.MOST_FULL_RANKS", 3_000)
    monkeypatch.setattr("worldsize.simulate.run.MOST_UNEVEN_RANKS", 3_000)
    with pytest.raises(ValueError, match="more than 3,000 ranks of unequal speed"):
        simulate(works_and_sums, 4_000, args=(torch.ones(4_000),), link=LINK, stragglers={3: 2.0})


def shifted(fabric, x):
    """A send at +2 that is awaited at -1: every rank does the same, and nothing meets."""
    for _ in range(fabric.world_size):
        fabric.isend(x[:1], (fabric.rank + 2) % fabric.world_size)
        fabric.recv(x[:1], (fabric.rank - 1) % fabric.world_size)


def test_a_deadlock_of_many_is_told_as_that_of_few():
    with pytest.raises(Deadlock, match=r"rank 0 waits for 1999 \(recv\).*and 1,992 more ranks wait"):
        simulate(shifted, 2_000, args=(torch.ones(1),), link=LINK)
