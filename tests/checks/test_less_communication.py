"""What the checks of lab 14 compare with: drawn so that no luck decides, and true by another way of working it out."""

import random

import numpy as np
import pytest
import torch

from tests.support.answers import ANSWERS
from worldsize.checks import run_check
from worldsize.checks.kit.values import first_difference
from worldsize.checks.less_communication import (
    coded_steps,
    local_sgd,
    low_rank_steps,
    one_bit,
    pays_below,
    power_sgd,
    sparse_steps,
    top_k,
)
from worldsize.checks.simulated_arena import SimulatedArena

SEEDS = range(5)
SMALL = [size for size in top_k.SIZES if size[1] < 1000]


class Draws:
    """What the drawing of a case needs of an arena."""

    def __init__(self, seed: int) -> None:
        self.draws = random.Random(seed)


@pytest.mark.parametrize("size", SMALL, ids=str)
def test_no_two_numbers_of_a_rank_have_one_size(size):
    for seed in SEEDS:
        for step in sparse_steps.draw_steps(np.random.default_rng(seed), *size):
            assert all(len(np.unique(np.abs(total))) == total.size for total in step.totals)


@pytest.mark.parametrize("size", SMALL, ids=str)
def test_what_ranks_send_and_keep_adds_up_to_all_gradients(size):
    n, numbers, *_ = size
    for seed in SEEDS:
        steps = sparse_steps.draw_steps(np.random.default_rng(seed), *size)
        came_in = sum(sum(step.gradients) for step in steps) + sum(steps[0].residuals)
        went_out = sum(step.average * n for step in steps) + sum(steps[-1].kept)
        assert np.allclose(came_in, went_out, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("size", one_bit.SIZES[: one_bit.TOLD], ids=str)
def test_most_draws_of_signs_tell_all_slips_apart(size):
    n, numbers, block, _, dtype = size
    firsts = [coded_steps._first(np.random.default_rng(seed), n, numbers, block, dtype) for seed in range(200)]
    assert sum(map(coded_steps._tells, firsts)) > 10


@pytest.mark.parametrize("size", one_bit.SIZES[:-1], ids=str)
def test_what_bits_say_and_what_is_kept_adds_up_to_all_gradients(size):
    for seed in SEEDS:
        steps = coded_steps.draw_steps(np.random.default_rng(seed), *size, telling=False)
        came_in = sum(sum(step.gradients) for step in steps) + sum(steps[0].residuals)
        went_out = sum(step.average * size[0] for step in steps) + sum(steps[-1].kept)
        assert np.allclose(came_in, went_out, atol=1e-3)


@pytest.mark.parametrize("size", one_bit.SIZES[:-1], ids=str)
def test_no_sign_of_a_later_step_hangs_on_rounding(size):
    for seed in SEEDS:
        for step in coded_steps.draw_steps(np.random.default_rng(seed), *size, telling=False)[1:]:
            assert min(np.abs(total).min() for total in step.totals) > 0.29


@pytest.mark.parametrize("size", power_sgd.SIZES[:-1], ids=str)
def test_both_residuals_of_power_sgd_have_one_mean_and_so_one_average(size):
    n, rows, columns, r, count, dtype = size
    for seed in SEEDS:
        steps = low_rank_steps.draw_steps(np.random.default_rng(seed), n, (rows, columns), r, count, dtype)
        for step, by_own in zip(steps, low_rank_steps.with_own_residuals(steps), strict=True):
            assert np.allclose(np.mean(step.kept, axis=0), np.mean(by_own.kept_by_own(), axis=0), atol=1e-4)
            assert np.allclose(step.average, by_own.average, atol=1e-4)


@pytest.mark.parametrize(
    ("exercise", "name", "held"),
    [
        ("one_bit_average", "votes", [False, None, None, None]),
        ("one_bit_average", "adds_up_its_own_first", [False, None, None, None]),
        ("one_bit_average", "takes_the_average_off", [True, False, None, None]),
        ("one_bit_average", "has_a_byte_for_each_sign", [True, True, True, False]),
        ("top_k_average", "chooses_by_value", [False, None, None, None]),
        ("top_k_average", "forgets_to_divide", [False, None, None, None]),
        ("top_k_average", "adds_up_its_own_first", [False, True, True, True]),
        ("pays_below", "divides_by_no_added_work", [True, None]),
        ("top_k_average", "keeps_what_it_has_sent", [True, False, None, None]),
        ("top_k_average", "waits_for_nothing", [True, True, True, False]),
        ("power_sgd_average", "starts_cold", [True, True, False, None, None]),
        ("local_sgd", "is_not_nesterovs", [True, False, True, True]),
    ],
)
def test_a_mistake_is_marked_at_its_cause_alone(exercise, name, held):
    fn = next(a for a in ANSWERS if a.exercise == exercise)[name]
    assert [p.passed for p in run_check(exercise, SimulatedArena(0), fn).properties] == held


def test_what_is_not_in_the_average_is_orthogonal_to_it():
    (step, *_) = low_rank_steps.draw_steps(np.random.default_rng(1), 3, (7, 5), 2, 1, "float64")
    left = step.mean - step.average
    assert np.allclose(step.p.T @ left, 0) and np.linalg.norm(left) < np.linalg.norm(step.mean)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_outer_step_is_that_of_torchs_sgd(momentum):
    task = local_sgd.draw_training(Draws(2), 3, 5, 4, 0.7, momentum)
    outer = torch.nn.Parameter(torch.from_numpy(task.start.copy()))
    optimizer = torch.optim.SGD([outer], lr=task.rate, momentum=momentum, nesterov=momentum > 0)
    for number in range(task.rounds):
        start = outer.detach().numpy().copy()
        outer.grad = torch.from_numpy(start - np.mean([task.end(r, start, number) for r in range(3)], axis=0))
        optimizer.step()
    assert all(np.allclose(held, outer.detach().numpy()) for held in local_sgd.outer_steps(task))


@pytest.mark.parametrize("mistake", local_sgd._NAMED, ids=str)
def test_every_mistake_in_the_outer_steps_gives_other_weights(mistake):
    task = local_sgd.draw_training(Draws(3), 3, 5, 4, 0.7, 0.9)
    assert not np.allclose(local_sgd.outer_steps(task, mistake)[0], local_sgd.outer_steps(task)[0])


@pytest.mark.parametrize("factors", [((1.2, 2.0), (1.1, 3.0), (0.01, 0.1)), ((0.5, 0.8), (2.5, 4.0), (0.5, 1.0))], ids=str)
def test_below_the_crossing_the_other_is_first_and_above_it_plain(factors):
    for seed in SEEDS:
        plain, other = pays_below.draw_ways(Draws(seed), *factors)
        at = pays_below.crossing(plain, other)
        assert other.seconds(at / 1.01) < plain.seconds(at / 1.01)
        assert other.seconds(at * 1.01) > plain.seconds(at * 1.01)


def test_where_there_is_no_crossing_one_of_them_is_always_first():
    plain = pays_below.TimedWay(100, 0.5, 1000)
    slow, frugal = pays_below.TimedWay(200, 0.5, 600), pays_below.TimedWay(100, 0.25, 900)
    for bytes_per_s in (1e-3, 1e3, 1e9):
        assert slow.seconds(bytes_per_s) > plain.seconds(bytes_per_s) > frugal.seconds(bytes_per_s)
    assert (pays_below.crossing(plain, slow), pays_below.crossing(plain, frugal)) == (0.0, float("inf"))


def test_the_gram_schmidt_of_published_code_leaves_less_than_there_was_of_a_matrix_of_rank_one():
    for seed in SEEDS:
        generator = np.random.default_rng(seed)
        m, q = np.outer(np.eye(6)[1], generator.normal(size=5)), generator.normal(size=(5, 2))
        p = m @ q
        for k in range(2):
            p[:, k] /= np.sqrt((p[:, k] ** 2).sum()) + 1e-8
            p[:, k + 1 :] -= p[:, k : k + 1] * (p[:, k] @ p[:, k + 1 :])
        assert power_sgd._leaves_less(p @ (m.T @ p).T, m)
        assert not power_sgd._leaves_less(2 * m, m)
        assert not power_sgd._leaves_less(np.full_like(m, np.nan), m)


def test_a_difference_within_what_is_allowed_near_zero_is_none():
    expected, got = np.array([1.0, 0.0]), np.array([1.0, 1e-9])
    assert first_difference(got, expected, 0, "x", near_zero=1e-8) is None
    assert "element 1: expected 0 (x), got 1e-09" in first_difference(got, expected, 0, "x")
