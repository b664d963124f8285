"""The checks of TensorFlow's exercises without TensorFlow: what a case tries, and what a mistake leaves unexamined."""

import numpy as np
import pytest

from worldsize.checks.arena import ArenaResult
from worldsize.checks.tensorflow import (
    between_graph,
    coordinator,
    devices,
    mirrored_step,
    recovery,
    towers,
    worker_share,
)
from worldsize.checks.tensorflow.coordinator import ASYNC, TWICE, VALUE, PlayedCoordinator, PlayedParts
from worldsize.checks.verdict import UNEXAMINED


def towers_told(lone: dict | str, both: dict | str) -> dict:
    given = [
        [[np.ones(shape, dtype) for shape, dtype in zip(towers.SHAPES, towers.DTYPES, strict=True)]] * n for n in (1, 2)
    ]
    return towers._examine(ArenaResult("done", returned=(([lone, both], None, "it broke"),)), given, {})


def averaged(by: float = 1.0) -> dict:
    every = [np.full(shape, by, dtype) for shape, dtype in zip(towers.SHAPES, towers.DTYPES, strict=True)]
    return {"variables": [0, 1, 2, 3], "gradients": every}


def test_a_wrong_mean_does_not_spare_the_pairs_of_more_towers():
    pairs, means, steps = towers.average_tower_gradients.points
    assert towers_told(averaged(2.0), "got None") == {pairs: "2 towers: got None", means: UNEXAMINED, steps: UNEXAMINED}
    found = towers_told(averaged(2.0), averaged())
    assert (found[pairs], found[steps]) == (None, UNEXAMINED)


def scored(parts: int, repeats: int, way: str) -> dict:
    played = PlayedParts([[1, 2], [2, 3], [1, 4]][:parts], PlayedCoordinator(1, repeats))
    seen = played.coordinator.seen
    for _ in range(parts):
        seen["schedule"]()
    while way != "never joins" and (closure := seen["next"]()) is not None:
        if way != "leaves one out" or closure:
            played.right_in(closure)
    if way == "asks on the chief":
        played.right_in(0)
    return coordinator._examine_score(0.0, played)


@pytest.mark.parametrize(
    ("parts", "repeats", "tried"), [(1, 0, {VALUE}), (3, 0, {VALUE, ASYNC}), (3, 2, {TWICE, ASYNC})]
)
def test_each_case_of_a_score_tries_the_same_whatever_is_wrong(parts, repeats, tried):
    for way in ("is wrong", "never joins", "leaves one out", "asks on the chief"):
        found = scored(parts, repeats, way)
        assert set(found) == tried, way
        assert any(found.values()), way


RIGHT = [[[[0, 2], [0, 20]]], [[[1, 3], [10, 30]]]]  # [worker][step] -> numbers, labels
IN_TURN = [[[[0, 1, 2, 3], [0, 10, 20, 30]]], [[[4, 5, 6, 7], [40, 50, 60, 70]]]]


@pytest.mark.parametrize("tables", [RIGHT, IN_TURN, ["got None"] * 2, [[[[0], [1]]]] * 2])
def test_a_share_is_examined_for_all_properties_or_for_none(tables):
    assert set(worker_share._wrong(tables, 0, 4, 4, 2)) == set(worker_share.worker_share.points)


def test_an_unknown_length_is_blamed_for_no_mistake_that_a_known_one_shows():
    found = {worker_share.STEPS: None, worker_share.BATCH: "a wrong batch", worker_share.EQUAL: None}
    assert worker_share._of_unknown_length(found, {worker_share.STEPS}) is None
    assert "a wrong batch" in worker_share._of_unknown_length(found, {worker_share.BATCH})


def test_without_a_second_chief_it_is_not_known_that_checkpoints_survive_a_loss():
    tried = recovery.LATER["13 steps, every 4, after an earlier chief has done 10"][0]
    expected = {recovery.DONE: UNEXAMINED, recovery.LOST: UNEXAMINED, recovery.RESUMED: "began at 0"}
    assert recovery._examine(tried, "began at 0") == expected
    assert set(recovery._examine(tried, None).values()) == {None}


def test_a_tree_is_not_examined_where_sums_are_wrong():
    sums, tree = devices.tree_sum.points
    held = np.array([12.0] * 3)
    for row in ({"kind": "a Tensor"}, {"raised": "an error"}, {"sums": [[held] * 2, []], "moves": [], "depth": 0}):
        found = devices._wrong_tree(2, row, np.ones((2, 3)))
        assert found[sums]
        assert found[tree] == UNEXAMINED


def test_a_wrong_loss_does_not_spare_the_weights_of_later_steps():
    shares = [(np.ones((2, mirrored_step.FEATURES), "float32"), np.array([0, 1]))] * 2
    case = {
        "start": np.ones((mirrored_step.FEATURES, mirrored_step.CLASSES), "float32"),
        "steps": [shares] * 2,
        "traced": False,
        "penalty": mirrored_step.L2,
    }
    step = mirrored_step._on_one_device(case["start"].astype(float), shares, mirrored_step.L2)
    told = {"losses": [-1.0, -1.0], "applied": 0, "weights": [[step.after] * 2, [step.before] * 2]}
    weights, loss = mirrored_step._wrong_training(case, told)
    assert "step 1: replica 0" in weights
    assert "step 0: expected the loss" in loss
    assert mirrored_step._wrong_training(case, {"raised": "an error"})[1] == UNEXAMINED


def test_where_a_graph_is_misplaced_nothing_else_of_a_worker_is_examined():
    placed = {
        "built": 1,
        "operation": "/job:worker/task:0",
        "variables": ["/job:ps/task:0", "/job:ps/task:1"],
        "chief": True,
    }
    for wrong in ({"built": 0}, {"chief": False}, {"session": "WorkerSessionCreator"}, {"waited": "waited"}, {}):
        found = between_graph._examine([placed | wrong], [])
        assert set(found) == set(between_graph.between_graph.points), wrong
        assert found[between_graph.WEIGHTS] == UNEXAMINED, wrong
