"""An all-reduce over several rings or two trees leaves the sum on every rank, and its routes are as NCCL describes them."""

import pytest
import torch

from worldsize.fabric.multi_ring import double_tree_all_reduce, ring_orders, rings_all_reduce, two_trees
from worldsize.formulas import cost
from worldsize.links import Link
from worldsize.simulate import Nodes, simulate

SIZES = (1, 2, 3, 4, 7, 16, 17)
LINK = Link("25 GB/s", "10 us")


def summed(fabric, how, elements, *more):
    x = 1000.0 * fabric.rank + torch.arange(elements, dtype=torch.float64)
    assert how(fabric, x, *more) is x
    return x


def of_time(fabric, how, elements, *more):
    how(fabric, torch.zeros(elements, device="meta"), *more)


def expected(n, elements):
    return n * torch.arange(elements, dtype=torch.float64) + 1000.0 * sum(range(n))


@pytest.mark.parametrize("elements", [1, 5, 64])
@pytest.mark.parametrize("n", SIZES)
def test_two_trees_leave_the_sum_on_every_rank(n, elements):
    run = simulate(summed, n, args=(double_tree_all_reduce, elements, 3))
    assert all(torch.equal(x, expected(n, elements)) for x in run.results)


@pytest.mark.parametrize(("n", "per_node", "rings"), [(1, 1, 1), (2, 2, 2), (3, 3, 1), (4, 2, 2), (8, 4, 2), (12, 4, 4)])
def test_rings_leave_the_sum_on_every_rank(n, per_node, rings):
    run = simulate(summed, n, args=(rings_all_reduce, 37, ring_orders(n, per_node, rings)))
    assert all(torch.equal(x, expected(n, 37)) for x in run.results)


@pytest.mark.parametrize("n", SIZES[1:])
def test_an_inner_rank_of_one_tree_is_a_leaf_of_the_other_but_for_a_root(n):
    places = [two_trees(rank, n) for rank in range(n)]
    twice = [rank for rank, both in enumerate(places) if all(place.children for place in both)]
    assert len(twice) <= 2
    assert all(any(place.parent is None for place in places[rank]) for rank in twice)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("tree", [0, 1])
def test_every_rank_is_reached_from_the_root_in_as_many_steps_as_the_tree_is_deep(tree, n):
    places = [two_trees(rank, n)[tree] for rank in range(n)]
    reached = {rank: 0 for rank, place in enumerate(places) if place.parent is None}
    assert len(reached) == 1
    for _ in range(n):
        reached |= {child: reached[rank] + 1 for rank in list(reached) for child in places[rank].children}
    assert sorted(reached) == list(range(n))
    assert max(reached.values()) <= (n - 1).bit_length()


@pytest.mark.parametrize("rings", [1, 2, 4, 8])
def test_k_rings_over_k_cards_take_a_kth_of_the_bytes_time(rings):
    nodes = Nodes(8, inside=Link("1 TB/s"), between=Link("25 GB/s"), cards=8)
    run = simulate(of_time, 16, args=(rings_all_reduce, 16 * 160_000, ring_orders(16, 8, rings)), nodes=nodes)
    assert run.simulated_s == pytest.approx(cost.ring_all_reduce(16, 4 * 16 * 160_000 / rings, Link("25 GB/s")), rel=0.1)


def test_rings_over_a_single_card_save_nothing():
    nodes = Nodes(8, inside=Link("1 TB/s"), between=Link("25 GB/s"))
    orders = [ring_orders(16, 8, rings) for rings in (1, 4)]
    one, four = (simulate(of_time, 16, args=(rings_all_reduce, 16 * 160_000, way), nodes=nodes) for way in orders)
    assert four.simulated_s == pytest.approx(one.simulated_s, rel=0.1)


@pytest.mark.parametrize("elements", [10**6, 25 * 10**6])
@pytest.mark.parametrize("n", [4, 8, 16, 32])
def test_two_trees_take_about_the_time_of_their_formula(n, elements):
    run = simulate(of_time, n, args=(double_tree_all_reduce, elements), link=LINK)
    assert 0.9 < run.simulated_s / cost.double_tree_all_reduce(n, 4 * elements, LINK) < 1.25


def test_rings_that_do_not_divide_a_node_are_refused():
    with pytest.raises(ValueError, match="got 3 rings"):
        ring_orders(16, 8, 3)
