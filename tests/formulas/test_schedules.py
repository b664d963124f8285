"""Interleaved 1F1B and split backwards have, played on paper, the bubbles that their papers promise; so has 1F1B."""

from itertools import product

import pytest

from worldsize.formulas import cost, schedules
from worldsize.formulas.pipeline import Schedules, in_flight, makespan_s, play, utilisation

pytestmark = pytest.mark.quick

DEVICES = (1, 2, 3, 4, 5, 8)
GROUPS = (1, 2, 3, 8)  # of as many micro-batches as there are devices
CHUNKS = (1, 2, 3, 4)


def one_forward_one_backward(stages: int, micro_batches: int) -> Schedules:
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, micro_batches)
        actions = [("forward", k) for k in range(ahead)]
        for k in range(micro_batches):
            if ahead + k < micro_batches:
                actions.append(("forward", ahead + k))
            actions.append(("backward", k))
        orders.append(actions)
    return orders


def interleaved(devices: int, micro_batches: int, chunks: int) -> Schedules:
    return [schedules.interleaved(d, devices, micro_batches, chunks) for d in range(devices)]


def split(stages: int, micro_batches: int) -> Schedules:
    return [schedules.split_backward(s, stages, micro_batches) for s in range(stages)]


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 1), (2, 4), (3, 5), (4, 2), (4, 8), (4, 32), (8, 13)])
def test_1f1b_has_the_overhead_and_the_idle_share_of_the_papers(p, m):
    trace = play(one_forward_one_backward(p, m), 1, 2)
    assert makespan_s(trace) / (3 * m) - 1 == pytest.approx(schedules.overhead(p, m))
    assert 1 - utilisation(trace) == pytest.approx(schedules.idle_share(p, m))


@pytest.mark.parametrize(("p", "m"), [(1, 1), (4, 8), (8, 3)])
def test_both_measures_are_of_one_bubble(p, m):
    assert 1 + schedules.overhead(p, m) == pytest.approx(cost.bubble(p, m))
    assert schedules.idle_share(p, m) == pytest.approx(schedules.overhead(p, m) / cost.bubble(p, m))


@pytest.mark.parametrize(("p", "groups", "v"), list(product(DEVICES, GROUPS, CHUNKS)))
def test_interleaved_1f1b_has_a_vth_of_the_bubble(p, groups, v):
    m = groups * p
    trace = play(interleaved(p, m, v), 1, 2, chunks=v)
    assert makespan_s(trace) / (3 * m) - 1 == pytest.approx(schedules.overhead(p, m, v))


@pytest.mark.parametrize(("p", "groups"), list(product(DEVICES, GROUPS)))
def test_with_one_chunk_interleaved_holds_at_least_what_1f1b_holds(p, groups):
    m = groups * p
    held = in_flight(play(interleaved(p, m, 1), 1, 2, chunks=1))
    assert all(a >= b for a, b in zip(held, in_flight(play(one_forward_one_backward(p, m), 1, 2)), strict=True))


def test_interleaving_refuses_micro_batches_that_do_not_fill_a_group():
    with pytest.raises(ValueError, match="whole groups of 4.*got 6.*Choose a multiple of 4"):
        schedules.interleaved(0, 4, 6, 2)


@pytest.mark.parametrize("seconds", [(1, 1, 1), (1, 1.2, 0.8), (2, 2, 1)])
@pytest.mark.parametrize(("p", "more"), list(product(DEVICES, (0, 1, 5, 24))))
def test_split_backwards_leave_the_bubble_of_the_paper(p, more, seconds):
    forward_s, backward_s, weights_s = seconds
    m = p + more
    trace = play(split(p, m), forward_s, backward_s, weights_s=weights_s)
    bubble_s = makespan_s(trace) - m * sum(seconds)
    assert bubble_s == pytest.approx(schedules.split_bubble_s(p, *seconds))
    assert max(in_flight(trace)) <= p


@pytest.mark.parametrize(("p", "m"), list(product((1, 3, 4), (1, 2, 3, 9))))
def test_split_backwards_do_everything_once(p, m):
    for actions in split(p, m):
        assert sorted(actions) == sorted((way, k) for way in ("forward", "backward", "weights") for k in range(m))
