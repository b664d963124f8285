"""The cost of buckets: the closed forms against a step played bucket by bucket, and where the minimum lies."""

import pytest

from worldsize.formulas import bucketing, cost
from worldsize.links import Link

pytestmark = pytest.mark.quick
LINK = Link("20 MB/s", "5 ms")


def played_s(backward_s, buckets, fixed_s, moving_s):
    """Slow and obvious: each bucket leaves when it is ready and the one before has arrived."""
    free_s = 0.0
    for k in range(1, buckets + 1):
        free_s = max(free_s, backward_s * k / buckets) + fixed_s + moving_s / buckets
    return free_s


@pytest.mark.parametrize("moving_s", [0.0, 0.05, 0.16, 0.5])
@pytest.mark.parametrize("buckets", [1, 2, 3, 8, 40])
def test_the_closed_form_is_what_playing_bucket_by_bucket_gives(buckets, moving_s):
    given = (0.16, buckets, 0.01, moving_s)
    assert bucketing.step_s(*given) == pytest.approx(played_s(*given))


@pytest.mark.parametrize("moving_s", [0.0, 0.05, 0.16, 0.5])
@pytest.mark.parametrize("fixed_s", [0.001, 0.01, 0.3])
def test_no_whole_number_of_buckets_beats_the_neighbours_of_the_best(fixed_s, moving_s):
    best = bucketing.best_buckets(0.16, fixed_s, moving_s)
    least = min(bucketing.step_s(0.16, b, fixed_s, moving_s) for b in range(1, 400))
    around = {max(1, int(best)), int(best) + 1}
    assert least == pytest.approx(min(bucketing.step_s(0.16, b, fixed_s, moving_s) for b in around))


def test_one_bucket_is_the_flat_form():
    assert bucketing.step_s(0.16, 1, 0.01, 0.2) == pytest.approx(bucketing.naive_s(0.16, 1, 0.01, 0.2))


def test_two_ranks_cost_what_a_ring_of_two_costs():
    whole = bucketing.fixed_s(2, LINK) + bucketing.moving_s(2, 1e6, LINK)
    assert whole == pytest.approx(cost.ring_all_reduce(2, 1e6, LINK))


def test_more_ranks_cost_a_ring_reduce_scatter_and_a_straight_all_gather():
    straight_s = LINK.seconds(3 / 4 * 1e6)
    whole = bucketing.fixed_s(4, LINK) + bucketing.moving_s(4, 1e6, LINK)
    assert whole == pytest.approx(cost.reduce_scatter(4, 1e6, LINK) + straight_s)


def test_a_rank_that_is_alone_pays_nothing():
    assert bucketing.fixed_s(1, LINK) == bucketing.moving_s(1, 1e6, LINK) == 0


def test_no_bucket_and_no_fixed_cost_are_errors():
    with pytest.raises(ValueError, match="expected 1 bucket or more"):
        bucketing.step_s(1, 0, 1, 1)
    with pytest.raises(ValueError, match="smallest buckets are best"):
        bucketing.best_buckets(1, 0, 1)
