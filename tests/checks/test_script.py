"""The scripts by which the checks of lab 05 play a server's workers, and what has to come out: rules, with no launch."""

import random

import numpy as np
import pytest

from worldsize.checks.asynchronous.scripted_workers import script
from worldsize.checks.asynchronous.servers import alternating_order, any_order, gated_order, hurried_order
from worldsize.checks.asynchronous.update_plan import first_of_each, one_by_one, shares, weights_at

pytestmark = pytest.mark.quick

SEEDS = range(40)


def asynchronous(workers, seed=0, **more):
    play = script(workers, any_order(workers, random.Random(seed)), seed)
    return play, one_by_one(play, **more)


def gated(workers, bound, seed=0):
    play = script(workers, gated_order(workers, bound, random.Random(seed)), seed)
    return play, one_by_one(play, bound=bound)


def hurried(workers, backups, seed=0):
    play = script(workers, hurried_order(workers, backups, random.Random(seed)), seed)
    return play, first_of_each(play, backups)


def alternating(workers, backups, seed=0):
    play = script(workers, alternating_order(workers, backups, random.Random(seed)), seed)
    return play, first_of_each(play, backups)


def every_plan():
    for seed in SEEDS:
        yield from (alternating(n, b, seed) for n in (2, 3, 4, 6) for b in range(1, n))
        yield from (asynchronous(n, seed) for n in (1, 2, 3, 4))
        yield from (gated(n, bound, seed) for n in (1, 2, 3, 4) for bound in (0, 1, 2))
        yield from (hurried(n, b, seed) for n in (2, 3, 4) for b in range(n))


def test_in_an_alternating_order_each_worker_is_late_once_and_then_in_time():
    for workers, backups in ((2, 1), (3, 1), (3, 2), (6, 2)):
        play, plan = alternating(workers, backups)
        late = [k for k, age in enumerate(plan.ages) if age]
        assert sorted(play.order[k] for k in late) == list(range(1, workers + 1))
        assert all(play.order[k + 1] == play.order[k] and plan.ages[k + 1] == 0 for k in late)


def test_no_workers_turn_comes_before_it_has_new_weights():
    for play, plan in every_plan():
        for worker in range(1, play.workers + 1):
            bases = [base for base, who in zip(plan.bases, play.order, strict=True) if who == worker]
            assert bases == list(plan.versions_sent[worker])[: len(bases)] and len(set(bases)) == len(bases)


def test_no_gradient_is_younger_than_the_newest_weights():
    assert all(min(plan.ages) >= 0 for _, plan in every_plan())


def test_the_slow_worker_of_an_asynchronous_script_is_stale_and_others_are_not():
    for seed in SEEDS:
        _, plan = asynchronous(3, seed)
        assert max(plan.ages) >= 4 and min(plan.ages) == 0


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_a_gate_closes_in_every_script_and_opens_again(bound):
    for seed in SEEDS:
        play, plan = gated(3, bound, seed)
        at_once = {(who, k + 1) for k, who in enumerate(play.order)}
        waited = [(w, v) for w, versions in plan.versions_sent.items() for v in versions[1:] if (w, v) not in at_once]
        assert waited


def test_an_open_gate_is_an_asynchronous_server():
    play, free = asynchronous(3)
    assert one_by_one(play, bound=len(play.order)).versions_sent == free.versions_sent


def test_every_script_with_backups_has_three_steps_or_more_and_a_late_gradient_for_each_but_the_first():
    updates = set()
    for seed in SEEDS:
        _, plan = hurried(3, 1, seed)
        updates.add(plan.updates)
        assert sum(age > 0 for age in plan.ages) == plan.updates - 1
    assert min(updates) == 3 and len(updates) > 4


def test_a_late_gradient_counts_nothing_and_the_others_a_share():
    play, plan = hurried(3, 1)
    counted = shares(play, plan, plan.updates)[: len(play.order)]
    assert [round(share, 3) for share in counted] == [0.5 * (age == 0) for age in plan.ages]


def test_with_no_backup_a_step_is_the_mean_of_all():
    play, plan = hurried(3, 0)
    assert set(plan.ages) == {0} and all(len(use) == 3 for use in plan.uses)


def test_scaled_shares_are_one_over_the_staleness():
    play, plan = asynchronous(3, scaled=True)
    counted = shares(play, plan, plan.updates)[: len(play.order)]
    assert counted.tolist() == pytest.approx([1 / max(1, age) for age in plan.ages])


def test_the_weights_of_version_0_are_those_of_the_start():
    play, plan = asynchronous(2)
    assert np.array_equal(weights_at(play, plan, 0, 0.25), play.start)
