"""Rounds and words of trees, from messages made up here."""

import pytest

from worldsize.checks.collectives import tree_transfers
from worldsize.trace import Trace, Transfer

pytestmark = pytest.mark.quick

BINOMIAL = [(0, 1), (0, 2), (1, 3), (0, 4), (1, 5), (2, 6), (3, 7)]
STAR = [(0, r) for r in range(1, 8)]
CHAIN = [(r, r + 1) for r in range(7)]


def down(pairs, size_bytes=4):
    """The pairs as messages one after the other."""
    return Trace(8, tuple(Transfer(a, b, size_bytes, float(k), k + 0.5) for k, (a, b) in enumerate(pairs)))


def up(pairs, size_bytes=4):
    return down([(b, a) for a, b in reversed(pairs)], size_bytes)


@pytest.mark.parametrize(("n", "rounds"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_log2_n_rounds_are_enough(n, rounds):
    assert tree_transfers.enough(n) == rounds


@pytest.mark.parametrize(("pairs", "rounds"), [(BINOMIAL, 3), (STAR, 7), (CHAIN, 7)])
def test_rounds_down_are_counted_in_the_order_of_each_ranks_sends(pairs, rounds):
    assert tree_transfers.rounds_down(down(pairs), 0) == rounds


def test_a_binomial_tree_is_quick_both_ways():
    assert tree_transfers.slow_down(down(BINOMIAL), 0) is None and tree_transfers.slow_up(up(BINOMIAL), 0) is None


def test_the_order_in_which_messages_reached_a_rank_does_not_count_on_the_way_up():
    trace = up(BINOMIAL)
    mixed = Trace(8, tuple(sorted(trace.transfers, key=lambda t: (t.src * 5) % 8)))
    assert tree_transfers.slow_up(mixed, 0) is None


@pytest.mark.parametrize("slow", [lambda p: tree_transfers.slow_down(down(p), 0), lambda p: tree_transfers.slow_up(up(p), 0)])
def test_a_star_and_a_chain_are_named(slow):
    assert "7 rounds" in slow(STAR) and "a star" in slow(STAR)
    assert "7 rounds" in slow(CHAIN) and "a chain" in slow(CHAIN)


def test_a_good_tree_in_a_bad_order_is_told_from_a_bad_tree():
    leaves_first = [(0, 1), (0, 2), (2, 3), (0, 4), (4, 5), (4, 6), (6, 7)]
    assert "serves its receivers in the wrong order" in tree_transfers.slow_down(down(leaves_first), 0)


def test_messages_in_a_circle_end():
    tangled = Trace(3, (Transfer(0, 1, 4, 0, 1), Transfer(1, 0, 4, 0, 1), Transfer(2, 1, 4, 0, 1)))
    assert tree_transfers.slow_up(tangled, 2) is None
