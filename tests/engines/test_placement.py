"""Which rank runs on which host: neighbours together, as much on each as its cores or GPUs carry."""

from collections.abc import Sequence

import pytest

from worldsize.engines.host import place

pytestmark = pytest.mark.quick


def counts(world_size: int, *capacities: int) -> list[int]:
    return [len(ranks) for ranks in place(world_size, capacities)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8, 64, 256])
@pytest.mark.parametrize("capacities", [(1,), (2, 2), (1, 7), (64, 2, 2), (0, 3), (5, 0, 0, 5)])
def test_every_rank_has_one_host_and_neighbours_stay_together(world_size: int, capacities: Sequence[int]) -> None:
    ranks = place(world_size, capacities)
    assert [rank for each in ranks for rank in each] == list(range(world_size))
    assert len(ranks) == len(capacities)


@pytest.mark.parametrize("world_size", [2, 3, 4, 5, 8])
def test_both_of_two_hosts_are_used_and_alike_ones_differ_by_one_at_most(world_size: int) -> None:
    first, second = counts(world_size, 2, 2)
    assert first >= second >= 1 and first - second <= 1


def test_one_rank_runs_on_the_first_host() -> None:
    assert counts(1, 2, 2) == [1, 0]


def test_uneven_hosts_get_ranks_by_their_cores() -> None:
    assert counts(12, 8, 4) == [8, 4]
    assert counts(6, 8, 4) == [4, 2]
    assert counts(24, 8, 4) == [16, 8]


def test_a_small_host_is_used_beside_a_large_one() -> None:
    assert counts(2, 64, 1) == [1, 1]
    assert counts(9, 64, 1) == [8, 1]


def test_a_host_with_nothing_gets_nothing() -> None:
    assert counts(4, 0, 2, 2) == [0, 2, 2]


@pytest.mark.parametrize("capacities", [(8, 4), (16, 1, 1), (3, 5, 7)])
def test_no_host_has_more_than_it_carries_while_all_fit(capacities: tuple[int, ...]) -> None:
    for world_size in range(1, sum(capacities) + 1):
        assert all(got <= most for got, most in zip(counts(world_size, *capacities), capacities, strict=True))
