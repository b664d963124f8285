"""Ranks that stand for others: times to the last bit where all do the same, and refused where they do not."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.simulate.programs import all_to_all, ring, server, tree, two_levels
from worldsize.engines.payload import Payload
from worldsize.errors import Deadlock, RunTimedOut
from worldsize.launch.run import KernelLaunches
from worldsize.links import Link
from worldsize.simulate import Nodes, ranks_alone, simulate, symmetry
from worldsize.simulate.simulation import Setting, by_symmetry

LINK = Link("10 GB/s", "5 us")
EIGHT = Nodes(8, inside=Link("300 GB/s", "2 us"), between=Link("25 GB/s", "5 us"))


def with_few(fn, n, *more, link=None, nodes=None, slowness=None):
    """A run by symmetry of a world that is small enough for the other way too."""
    slowness = np.ones(n) if slowness is None else slowness
    setting = Setting(n, link, nodes, 0, 60.0, slowness, np.full(n, np.inf))
    call = Payload(fn, (torch.ones(n), *more), {})
    return by_symmetry(call, setting, KernelLaunches(), ranks_alone.listen(call, setting), 0.0)


@pytest.mark.parametrize("n", [16, 64, pytest.param(256, marks=pytest.mark.soak)])
@pytest.mark.parametrize("nodes", [None, EIGHT, replace(EIGHT, cards=4)], ids=["flat", "nodes", "nodes of four cards"])
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
    with pytest.raises(IndexError, match="a run by symmetry has times but no values"):
        run[0]


@pytest.mark.parametrize("n", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fn", [server, tree])
def test_trees_and_servers_run_in_full(fn, n):
    run = simulate(fn, n, args=(torch.ones(1),), link=LINK, most_messages=100_000)
    assert run.messages == 2 * (n - 1) and {float(x) for x in run.results} == {float(n)}
    assert str(run).startswith(f"SimulatedRun({n:,} ranks, done: ")


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
        (uneven, 2_001, "2,001 elements, which 400 ranks do not divide evenly: take 2,000"),
        (parity, 400, "4 bytes.*8 bytes"),
        (by_data, 400, "rank 0 makes different calls when it receives different numbers"),
        (everybody_from_anyone, 400, "receives from anyone"),
    ],
)
def test_what_is_not_alike_is_refused_beyond_what_is_simulated_in_full(monkeypatch, fn, length, words):
    monkeypatch.setattr("worldsize.simulate.simulation.MOST_FULL_RANKS", 300)
    with pytest.raises(ValueError, match=f"some can stand for the others only if all do the same: .*{words}"):
        simulate(fn, 400, args=(torch.zeros(length),), link=LINK, most_messages=10_000)


def test_stragglers_on_a_shared_card_are_refused_beyond_what_is_simulated_in_full(monkeypatch):
    monkeypatch.setattr("worldsize.simulate.simulation.MOST_FULL_RANKS", 300)
    with pytest.raises(ValueError, match="stragglers reach their node's network card in a different order"):
        simulate(works_and_sums, 400, args=(torch.ones(400),), nodes=EIGHT, stragglers={3: 2.0}, most_messages=10_000)


def test_stragglers_are_refused_where_vectors_over_them_would_take_minutes(monkeypatch):
    monkeypatch.setattr("worldsize.simulate.simulation.MOST_FULL_RANKS", 300)
    monkeypatch.setattr("worldsize.simulate.simulation.MOST_UNEVEN_RANKS", 300)
    with pytest.raises(ValueError, match="more than 300 ranks of unequal speed"):
        simulate(works_and_sums, 400, args=(torch.ones(400),), link=LINK, stragglers={3: 2.0}, most_messages=10_000)


def shifted(fabric, x):
    """A send at +2 that is awaited at -1: every rank does the same, and nothing meets."""
    for _ in range(fabric.world_size):
        fabric.isend(x[:1], (fabric.rank + 2) % fabric.world_size)
        fabric.recv(x[:1], (fabric.rank - 1) % fabric.world_size)


def test_a_deadlock_of_many_is_told_as_that_of_few():
    with pytest.raises(Deadlock, match=r"rank 0 waits for 499 \(recv\).*and 492 more ranks wait"):
        simulate(shifted, 500, args=(torch.ones(1),), link=LINK, most_messages=100_000)


def rounds(fabric, x, steps, skips):
    """Pass `x` round the ring; whom `skips(rank, step)` names leaves a step out."""
    n, rank = fabric.world_size, fabric.rank
    for step in range(steps):
        if skips(rank, step):
            continue
        handle = fabric.isend(x, (rank + 1) % n)
        fabric.recv(torch.empty_like(x), (rank - 1) % n)
        handle.wait()


def asked_about(n, steps, skips, seed=0, most_messages=3_000_000):
    setting = Setting(n, LINK, None, seed, 60.0, np.ones(n), np.full(n, np.inf), most_messages)
    return ranks_alone.listen(Payload(rounds, (torch.ones(1), steps, skips), {}), setting)


def nobody(rank, step):
    return False


def test_a_step_that_one_rank_of_ten_thousand_skips_is_found_where_the_function_compares_the_rank_s_number():
    with pytest.raises(symmetry.NotSymmetric, match="rank 0 makes 800 calls, rank 7,777 798"):
        asked_about(10_000, 400, lambda rank, step: step == 200 and rank == 7_777, most_messages=2_000_000)


def by_another_name(rank, step):
    return f"{rank}, {step}" == "347, 3"


def test_a_step_that_one_rank_skips_is_found_where_all_are_asked():
    with pytest.raises(symmetry.NotSymmetric, match="rank 0 makes 10 calls, rank 347 8"):
        asked_about(500, 5, by_another_name, most_messages=2_000)


def test_whether_all_are_asked_follows_from_a_count_of_their_calls():
    assert asked_about(500, 5, nobody, most_messages=1_667).asked == 500  # 5,000 calls; three a message
    assert asked_about(500, 5, nobody, most_messages=1_666).asked == 1 + 166


def test_a_run_whose_symmetry_was_sampled_says_so_in_its_state():
    sampled, counted = (simulate(rounds, 500, args=(torch.ones(1), 5, nobody), most_messages=most) for most in (1_000, 2_000))
    assert "500 ranks, done by symmetry, 101 of 500 ranks asked: " in str(sampled)
    assert "Symmetry was sampled: 101 of 500 ranks were asked" in " ".join(sampled.notes)
    assert "500 ranks, done by symmetry, all ranks asked: " in str(counted)
    assert "on all 500 ranks, each run alone" in counted.notes[0] and len(counted.notes) == 1


def test_another_seed_asks_others_beside_the_first_node_the_middle_the_last_and_round_powers_of_two():
    def ranks(seed):
        words = asked_about(1_000, 50, nobody, seed, most_messages=1_000).evidence[0]
        return {int(rank) for rank in words.partition(" on ranks ")[2].partition(", each")[0].replace(",", "").split()}

    one, again, other = ranks(3), ranks(3), ranks(4)
    assert one == again != other and len(one) == 11
    assert one & other >= {0, 500, 511, 512, 513, 999}


def test_a_time_limit_while_ranks_are_asked_says_how_many_were():
    def is_late(rank, step):
        if rank == 500:
            handler = signal.getsignal(signal.SIGALRM)
            handler(signal.SIGALRM, None)
        return False

    with pytest.raises(RunTimedOut, match="after timeout_s=1e-09 real s a simulation had 4 of 1,000 ranks asked alone"):
        simulate(rounds, 1_000, args=(torch.ones(1), 5, is_late), timeout_s=1e-9, most_messages=1_000)
