"""The formulas of asynchronous training, each against a count or a run of what it is about."""

import heapq
import random

import numpy as np
import pytest

from worldsize.formulas import staleness

pytestmark = pytest.mark.quick


def simulated(workers, updates, seconds, bound=None, seed=0):
    """(staleness of each gradient, clocks in the end) with an asynchronous server and `seconds(worker, chance)`."""
    chance, clocks, waiting, ages = random.Random(seed), [0] * workers, [], []
    under_way = [(seconds(w, chance), w, 0) for w in range(workers)]
    heapq.heapify(under_way)
    for version in range(updates):
        now, w, base = heapq.heappop(under_way)
        ages.append(version - base)
        clocks[w] += 1
        waiting.append(w)
        for free in [w for w in waiting if bound is None or clocks[w] - min(clocks) <= bound]:
            waiting.remove(free)
            heapq.heappush(under_way, (now + seconds(free, chance), free, version + 1))
    return ages, clocks


def grows(rate, delay, steps=4000):
    """Whether w ← w − rate · w_old ends further out than it began."""
    w = np.ones(steps + delay + 1)
    for t in range(delay, steps + delay):
        w[t + 1] = w[t] - rate * w[t - delay]
        if abs(w[t + 1]) > 1e6:
            return True
    return abs(w[-50:]).max() > 1


@pytest.mark.parametrize("workers", [1, 2, 5, 16])
@pytest.mark.parametrize("slow", [1, 10])
def test_the_mean_staleness_does_not_depend_on_who_is_slow(workers, slow):
    ages, _ = simulated(workers, 20_000, lambda w, chance: chance.random() * (slow if w == 0 else 1))
    assert np.mean(ages) == pytest.approx(staleness.mean_staleness(workers), rel=0.02)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_no_gradient_is_staler_than_the_gate_lets_it(bound):
    oldest = [
        max(simulated(4, 400, lambda w, chance: chance.paretovariate(0.6), bound, seed)[0]) for seed in range(10)
    ]
    assert 0.8 * staleness.most_staleness(4, bound) <= max(oldest) <= staleness.most_staleness(4, bound)


@pytest.mark.parametrize("delay", [0, 1, 3, 7, 15])
def test_a_rate_under_the_stable_one_shrinks_and_one_above_it_grows(delay):
    edge = staleness.stable_rate(delay)
    assert (grows(0.97 * edge, delay), grows(1.03 * edge, delay)) == (False, True)


def test_without_staleness_the_stable_rate_is_two_over_the_curvature():
    assert staleness.stable_rate(0, curvature=4.0) == pytest.approx(0.5)


def test_a_straggler_slows_a_synchronous_server_by_its_own_factor():
    assert staleness.sync_gradients_per_s(4, 0.02, 5) == pytest.approx(staleness.sync_gradients_per_s(4, 0.02) / 5)


def test_a_straggler_takes_only_its_own_gradients_from_an_asynchronous_server():
    lost = staleness.async_gradients_per_s(4, 0.02) - staleness.async_gradients_per_s(4, 0.02, 5)
    assert lost == pytest.approx((1 - 1 / 5) / 0.02)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: staleness.mean_staleness(0),
        lambda: staleness.most_staleness(2, -1),
        lambda: staleness.stable_rate(-1),
        lambda: staleness.sync_gradients_per_s(0, 1.0),
    ],
)
def test_a_number_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="expected .* or more"):
        wrong()
