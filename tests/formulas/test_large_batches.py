"""Steps by batch follow McCandlish's model, and a fit finds its two numbers again."""

import pytest

from worldsize.formulas import large_batches

pytestmark = pytest.mark.quick


def test_at_the_critical_batch_a_goal_takes_twice_the_fewest_steps_and_twice_the_fewest_examples():
    assert large_batches.steps(64, 30, 64) == 60
    assert 64 * large_batches.steps(64, 30, 64) == 2 * 30 * 64


@pytest.mark.parametrize("batch", [1, 32, 1000])
def test_steps_and_examples_lie_on_the_hyperbola_of_the_paper(batch):
    fewest, critical = 40, 90
    taken = large_batches.steps(batch, fewest, critical)
    assert (taken / fewest - 1) * (batch * taken / (fewest * critical) - 1) == pytest.approx(1)


def test_a_fit_finds_the_two_numbers_that_the_steps_were_made_of():
    made = {batch: large_batches.steps(batch, 25, 70) for batch in (32, 64, 128, 512, 4096)}
    assert large_batches.fit_steps(made) == pytest.approx((25, 70), rel=0.01)


def test_a_batch_that_comes_several_times_counts_several_times():
    noisy = [(32, 90), (32, 110), (64, 60), (64, 60), (1024, 30), (1024, 31)]
    fewest, critical = large_batches.fit_steps(noisy)
    assert 25 < fewest < 32 and 50 < critical < 90


def test_one_batch_size_is_refused():
    with pytest.raises(ValueError, match="two or more"):
        large_batches.fit_steps([(32, 90), (32, 80)])


def test_the_best_rate_grows_with_a_small_batch_and_stays_with_a_large_one():
    small, double = (large_batches.best_rate(b, 0.8, 1000) for b in (1, 2))
    assert double / small == pytest.approx(2, rel=0.01)
    assert large_batches.best_rate(1e6, 0.8, 1000) == pytest.approx(0.8, rel=0.01)
