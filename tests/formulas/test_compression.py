"""Less communication on paper: counts against slow ones, and against the published table."""

import random

import pytest

from worldsize.formulas import compression, cost

pytestmark = pytest.mark.quick

# the gradients of ResNet-18 for CIFAR-10: stem, four stages of two blocks, 10 classes
WIDTHS = (64, 128, 256, 512)


def resnet18_shapes():
    shapes, last = [(64, 3, 3, 3), (64,), (64,)], 64
    for width in WIDTHS:
        for number in range(2):
            shapes += [(width, last, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            if number == 0 and width != last:
                shapes += [(width, last, 1, 1), (width,), (width,)]
            last = width
    return [*shapes, (10, 512), (10,)]


def test_a_rank_sends_its_pairs_to_each_of_the_others():
    assert compression.top_k_bytes(4, 10) == sum(10 * 4 + 10 * 4 for _ in range(3))
    assert compression.top_k_bytes(1, 10) == 0


def test_codes_fill_bytes_and_a_short_block_has_a_whole_scale():
    assert compression.coded_bytes(3, 17, 1, 8) == 2 * (3 + 3 * 4)
    assert compression.coded_bytes(3, 17, 8, 8) == 2 * (17 + 3 * 4)
    with pytest.raises(ValueError, match="blocks of 0"):
        compression.coded_bytes(3, 17, 1, 0)


@pytest.mark.parametrize("k", [1, 10, 100])
def test_at_the_crossing_pairs_cost_what_the_ring_costs(k):
    n = compression.top_k_crossing(1000, k)
    assert compression.top_k_bytes(int(n), k) == pytest.approx(cost.bytes_ring_all_reduce(int(n), 4000))


def test_the_union_by_chance_is_what_chance_gives():
    draw = random.Random(0)
    found = [len({i for _ in range(5) for i in draw.sample(range(1000), 100)}) / 1000 for _ in range(200)]
    assert compression.union_by_chance(0.1, 5) == pytest.approx(sum(found) / len(found), rel=0.01)


@pytest.mark.parametrize(("rank", "times"), [(1, 243), (2, 136), (4, 72)])
def test_resnet_18_sends_as_many_times_less_as_the_paper_says(rank, times):
    shapes = resnet18_shapes()
    whole = compression.low_rank_numbers(shapes, 10**6)
    assert whole == 11_173_962
    assert round(whole / compression.low_rank_numbers(shapes, rank)) == times


def test_what_would_not_get_smaller_travels_whole():
    assert compression.low_rank_numbers([(10,), (2, 2)], 3) == 14


def test_the_time_to_a_target_is_work_and_bytes_of_all_steps():
    assert compression.seconds_to_target(10, 0.5, 2e6, 1e6) == pytest.approx(25)


def test_what_cannot_be_is_an_error():
    with pytest.raises(ValueError, match="1 rank or more"):
        compression.top_k_bytes(0, 1)
    with pytest.raises(ValueError, match="from 1 to 10"):
        compression.top_k_crossing(10, 11)
    with pytest.raises(ValueError, match="rank of 1"):
        compression.low_rank_numbers([(2, 2)], 0)
