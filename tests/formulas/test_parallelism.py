"""What replicas and stages move and how long a step takes, by formula, held against trivial cases and real messages."""

import pytest
import torch

from worldsize.fabric.collectives import all_reduce
from worldsize.formulas import parallelism
from worldsize.launch import launch
from worldsize.links import Link

pytestmark = pytest.mark.quick

LINK = Link("1 MB/s", "1 ms")


def test_one_rank_moves_nothing():
    assert parallelism.bytes_data_parallel(1, 1000) == parallelism.bytes_model_parallel(64, []) == 0


def test_replicas_move_what_an_all_reduce_of_their_gradients_moves():
    def step(fabric):
        all_reduce(fabric, torch.ones(12))

    for n in (2, 3, 4):
        assert launch(step, n).trace.total_bytes() == parallelism.bytes_data_parallel(n, 48)


def test_stages_move_activations_forwards_and_as_much_back():
    assert parallelism.bytes_model_parallel(10, [4, 8]) == 2 * 10 * 12


def test_at_the_crossing_both_move_the_same():
    batch = parallelism.crossing_batch(3, 6000, [20, 40])
    assert parallelism.bytes_model_parallel(batch, [20, 40]) == parallelism.bytes_data_parallel(3, 6000)


def test_with_a_stage_on_each_rank_the_crossing_is_parameters_over_mean_activations():
    assert parallelism.crossing_batch(5, 6000, [20, 40, 20, 40]) == 6000 / 30


def test_where_nothing_passes_a_boundary_stages_always_move_less():
    assert parallelism.crossing_batch(1, 6000, []) == float("inf")


def test_replicas_share_the_work_and_stages_do_not():
    assert parallelism.seconds_data_parallel(4, 2.0, 0, Link("1 MB/s")) == 0.5
    assert parallelism.seconds_model_parallel(8, 2.0, [], LINK) == 2.0


def test_a_boundary_costs_a_message_each_way():
    assert parallelism.seconds_model_parallel(10, 0.0, [100], LINK) == pytest.approx(2 * (0.001 + 0.001))


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="expected a batch and boundaries of 0 or more, got 4 and"):
        parallelism.bytes_model_parallel(4, [-1])
