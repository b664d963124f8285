"""The memory and the bytes of ZeRO's stages are those of its paper."""

import pytest

from worldsize import figures
from worldsize.formulas import cost, sharding

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_a_model_of_7_5_billion_on_64_ranks_needs_what_the_paper_says(stage, gigabytes):
    assert sum(sharding.memory(7.5e9, 64, stage).values()) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize("n", [1, 2, 3, 64])
def test_stage_3_cuts_all_that_stage_0_keeps_by_the_number_of_ranks(n):
    whole, part = (sum(sharding.memory(1e6, n, stage).values()) for stage in (0, 3))
    assert part == pytest.approx(whole / n)


def test_each_stage_cuts_one_part_more():
    parts = [sharding.memory(1000, 4, stage, 4, 4, 8) for stage in sharding.STAGES]
    assert [p["optimizer"] for p in parts] == [8000, 2000, 2000, 2000]
    assert [p["gradients"] for p in parts] == [4000, 4000, 1000, 1000]
    assert [p["parameters"] for p in parts] == [4000, 4000, 4000, 1000]


@pytest.mark.parametrize(("stage", "tensors"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_the_first_stages_send_two_thirds_of_what_the_last_sends(stage, tensors):
    assert sharding.bytes_sent(4, 1000, stage) == tensors * 1000 * 3 / 4


def test_recorded_collectives_count_as_rings():
    n, whole = 4, 1000
    assert sharding.bytes_sent_by("all_reduce", whole, n) == cost.bytes_ring_all_reduce(n, whole)
    assert sharding.bytes_sent_by("reduce_scatter_single", whole, n) == cost.bytes_reduce_scatter(n, whole)
    assert sharding.bytes_sent_by("all_gather_single", whole / n, n) == cost.bytes_all_gather(n, whole)


def test_tensor_parallel_layers_send_two_all_reduces_of_an_activation():
    assert sharding.bytes_sent_tensor_parallel(4, 1000) == 3000


def test_tokens_in_parts_send_as_much_as_tokens_on_all_ranks_and_the_shared_gradients():
    shared = cost.bytes_ring_all_reduce(4, 96)
    assert sharding.bytes_sent_sequence_parallel(4, 1000, 96) == sharding.bytes_sent_tensor_parallel(4, 1000) + shared


@pytest.mark.parametrize(("stage", "tensors"), [(0, 2), (1, 2), (2, 9), (3, 24)])
def test_with_8_micro_batches_whoever_keeps_no_whole_gradient_reduces_8_times(stage, tensors):
    assert sharding.bytes_sent(4, 1000, stage, micro_batches=8) == tensors * 1000 * 3 / 4


def test_two_neighbours_are_the_most_that_stage_3_holds_whole():
    assert sharding.whole_in_stage_3([1, 5, 4, 7, 1]) == 11
    assert sharding.whole_in_stage_3([1, 5, 4, 7, 1], ahead=0) == 7
    assert sharding.whole_in_stage_3([3]) == 3


def test_what_is_not_there_is_said():
    with pytest.raises(ValueError, match="expected one micro-batch or more in a step, got 0"):
        sharding.bytes_sent(2, 10, 1, 0)
    with pytest.raises(ValueError, match="expected a stage from 0 .* to 3, got 4"):
        sharding.memory(10, 2, 4)
    with pytest.raises(ValueError, match="the world size n is 0"):
        sharding.bytes_sent(0, 10, 1)
    with pytest.raises(ValueError, match="expected an all-reduce, .*got 'gather'"):
        sharding.bytes_sent_by("gather", 10, 2)


def test_stacked_bars_stand_beside_a_formula_under_its_own_label():
    parts = sharding.memory(7.5e9, 64, 3)
    picture = figures.stacks({"FSDP": {"rank 0": parts, "formula": parts}}, "Do they agree?")
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == ["rank 0", "formula"]
    assert "formula parameters 234 MB" in picture.alt


def test_a_single_stacked_bar_has_room_for_its_title(recwarn):
    whole = {"7.5 billion parameters": {"every rank": sharding.memory(7.5e9, 64, 0)}}
    figures.stacks(whole, "How much?", limit=("a card", 80e9))._repr_html_()
    assert [str(warning.message) for warning in recwarn] == []
