"""What lab 16's checks claim of themselves: how little is left to luck, and that a made-up cluster shows what a model lacks."""

import random

import numpy as np
import pytest
from scipy import stats

from tests.checks.mutants.forecast import two_parts_and_students_quantile
from worldsize import data
from worldsize.checks.capstone import clusters, counted_parts, forecasts, made_up_cluster, plans
from worldsize.formulas import measured_clusters

STAYS_WITHIN = (  # as the docstring says, rounded outwards
    (0.890, 0.896), (0.889, 0.897), (0.895, 0.901), (0.892, 0.900), (0.898, 0.902), (0.899, 0.901),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "within"), list(zip(forecasts.KINDS, STAYS_WITHIN, strict=True)))
def test_what_is_drawn_hardly_moves_the_coverage_of_a_right_forecast(kind, within):
    for seed in range(20):
        machines = forecasts._machines(kind, np.random.default_rng(seed))
        ends = [two_parts_and_students_quantile(one.steps())[::2] for one in machines]
        covered = np.mean([one.machine.inside(*pair) for one, pair in zip(machines, ends, strict=True)])
        assert within[0] <= covered <= within[1]
        assert kind.least < within[0] and within[1] < kind.most


def test_the_factor_that_the_lab_gives_is_students_t_within_two_percent():
    for freedom in range(8, 200):  # five steps and more on each of two numbers of ranks
        assert 1.645 + 1.5 / freedom == pytest.approx(stats.t.ppf(0.95, freedom), rel=0.02)


PARTS = ("off node", "data parallel", "point to point", "head", "nvlink")


@pytest.mark.parametrize("seed", range(8))
def test_on_a_made_up_cluster_the_model_is_near_in_each_group_and_without_a_part_far_in_one(seed):
    measured = data.measured_iterations("single"), data.measured_iterations("multi")
    single, multi, more = made_up_cluster.cluster(*measured, np.random.default_rng(seed))
    few = [row for row in multi if row.gpus == clusters.FEW_GPUS]

    def farthest(without=""):
        fit = measured_clusters.fit(few, measured_clusters.fit_memory(single, without), without)
        rows_of = {name: [row for row in more if made_up_cluster.group(row) == name] for name in made_up_cluster.GROUPS}
        return max(measured_clusters.error(fit, rows) for rows in rows_of.values())

    assert farthest() < 0.03
    assert min(farthest(part) for part in PARTS) > clusters.MADE_UP + 0.005


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (lambda row: measured_clusters.work(row), ""),
        (lambda row: measured_clusters.work(row, "bubble"), "leave out the bubble"),
        (lambda row: measured_clusters.work(row, "attention"), ""),  # of another kind, as far as the course counts
        (lambda row: measured_clusters.work(row) * [1, 0, 1, 1, 1], "memory traffic takes no time"),
    ],
)
def test_predictions_show_the_part_that_they_leave_out_and_no_other(parts, words):
    rows = data.measured_iterations("multi")
    predicted_s = np.array([parts(row) for row in rows]) @ np.array([1.2, 4.0, 3.0, 7.0, 0.002])
    sentence = counted_parts.missing_part(rows, predicted_s) or counted_parts.wrong_constant(rows, predicted_s)
    assert words in sentence and bool(sentence) == bool(words)


def test_no_measured_step_is_of_a_made_up_group():
    rows = data.measured_iterations("multi")
    assert {made_up_cluster.group(row) for row in rows} == {None}
    drawn = made_up_cluster.cluster([], rows, np.random.default_rng(1))[2]
    assert sorted(map(made_up_cluster.group, drawn)) == sorted(3 * list(made_up_cluster.GROUPS))


def test_a_step_on_eight_ranks_follows_from_those_on_two_and_four():
    machine = forecasts.Machine(alpha_s=0.013, bytes_s=0.2)
    assert machine.step_s(8) == pytest.approx(3.5 * (machine.step_s(4) - machine.step_s(2)))


def test_drawn_cases_turn_away_every_shortcut_and_two_have_no_plan():
    for seed in range(5):
        *fitting, too_small, indivisible = plans.drawn_cases(random.Random(seed))
        assert plans._fastest(too_small) is plans._fastest(indivisible) is None
        for name, shortcut in plans.SHORTCUTS.items():
            best = [(plans._fastest(case), plans._fastest(case, shortcut), case) for case in fitting]
            slower = [b is None or plans._seconds(b, case) > plans._seconds(a, case) * 1.000001 for a, b, case in best]
            assert any(slower), name


def test_the_fastest_plans_differ_in_every_decision_and_two_tasks_have_none():
    best = [plans._fastest(task) for task in plans.TASKS]
    assert best.count(None) == 2
    for name in plans.DECIDED:
        assert len({getattr(plan, name) for plan in best if plan}) > 1, name
