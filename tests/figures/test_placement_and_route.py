"""Pictures of TensorFlow's devices: every variable and every kind of tensor told, one arrow a kind, in order."""

from types import SimpleNamespace

import pytest

from worldsize import figures
from worldsize.figures.placement_and_route import hops
from worldsize.tf.graphs import Move

pytestmark = pytest.mark.quick

PS, HOST, DEVICE = "ps 0, CPU:0", "worker 0, CPU:0", "worker 0, CPU:1"
DEVICES = {
    PS: {"variables": {"weights": 4000, "bias": 40}, "operations": {"ReadVariableOp": 2}},
    HOST: {"variables": {}, "operations": {"Mul": 3, "Sub": 1}},
    DEVICE: {"variables": {}, "operations": {}},
}
MOVES = [
    Move(HOST, PS, "average/stack", 4000, 9.0),
    Move(PS, HOST, "weights", 4000, 1.0),
    Move(HOST, DEVICE, "weights/Read/Identity", 4000, 2.0),
    Move(HOST, DEVICE, "weights_1/Read", 40, 3.0),
    Move(DEVICE, HOST, "gradients_1/MatMul", 4000, 5.0),
]


def test_the_alt_text_tells_every_variable_and_the_operations_of_each_device():
    alt = figures.placement(DEVICES, "What lies where?").alt
    assert alt.startswith("What lies where? ps 0 holds all variables.")
    assert "ps 0, CPU:0: variables weights 4 kB, bias 40 B; 2 operations: ReadVariableOp." in alt
    assert "worker 0, CPU:0: no variables; 4 operations: Mul, Sub" in alt


def test_a_device_that_does_nothing_is_left_out():
    assert DEVICE not in figures.placement(DEVICES, "Where?").alt


def test_many_variables_go_on_several_lines_inside_the_picture():
    many = {PS: {"variables": {f"layer{k}/kernel": 1000 * k for k in range(20)}, "operations": {}}}
    picture = figures.placement(many, "Where?")
    width_in, _ = picture.get_size_inches()
    assert max(patch.get_x() + patch.get_width() for patch in picture.axes[0].patches) <= width_in


def test_tensors_of_one_kind_between_the_same_devices_are_one_hop():
    assert [(hop.src, hop.dst, hop.kind, hop.size_bytes) for hop in hops(MOVES)] == [
        (PS, HOST, "weights", 4000),
        (HOST, DEVICE, "weights", 4040),
        (DEVICE, HOST, "gradients", 4000),
        (HOST, PS, "average", 4000),
    ]


def test_the_alt_text_follows_the_step():
    alt = figures.route(MOVES, "Which way?").alt
    assert alt.startswith("Which way? Between tasks: weights once, 4 kB; average once, 4 kB; 2 transfers within a task.")
    assert "weights 4 kB from ps 0, CPU:0 to worker 0, CPU:0; weights 4.04 kB from worker 0, CPU:0" in alt


def test_lanes_begin_with_the_server():
    texts = [text.get_text() for text in figures.route(MOVES, "Which way?").axes[0].texts]
    assert [text for text in texts if "CPU" in text] == [PS, HOST, DEVICE]


def test_a_run_that_is_not_yet_gives_pictures_that_name_the_exercise():
    run = SimpleNamespace(state="not yet", not_yet="Exercise 7.1: average")
    assert figures.placement(run, "Where?").alt.startswith("not yet: Exercise 7.1")
    assert figures.route(run, "Where?").alt.startswith("not yet: Exercise 7.1")


def test_where_nothing_crosses_a_picture_says_so():
    assert figures.route([], "Where?").alt == "no tensor went from one device to another"


def test_where_matrices_are_multiplied_is_told():
    busy = {**DEVICES, DEVICE: {"variables": {}, "operations": {"MatMul": 2}}}
    assert "ps 0 holds all variables; worker 0 multiplies matrices." in figures.placement(busy, "Who computes?").alt


def test_a_step_in_one_task_is_told_by_who_sends_most():
    alt = figures.route([move for move in MOVES if PS not in (move.src, move.dst)], "Which way?").alt
    assert alt.startswith("Which way? 2 transfers, 8.04 kB in all;")
