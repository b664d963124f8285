"""Reading TensorFlow's graphs: devices in short, what each holds, and which tensors crossed in a step that ran."""

import pytest

from worldsize.tf import graphs, quiet_launch
from worldsize.tf.graphs import Move

quick = pytest.mark.quick
HOST, DEVICE = "CPU:0", "CPU:1"


@quick
@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("/job:worker/replica:0/task:1/device:CPU:2", "worker 1, CPU:2"),
        ("/job:localhost/replica:0/task:0/device:GPU:0", "GPU:0"),
        ("/job:ps/task:0", "ps 0"),
        ("/job:worker", "worker (any)"),
        ("", ""),
    ],
)
def test_a_device_has_a_short_name(device, words):
    assert graphs.short(device) == words


@quick
def test_a_tensors_kind_is_the_first_part_of_its_name():
    assert [Move("a", "b", what, 0, 0.0).kind for what in ("gradients_1/MatMul", "weights", "data/x0")] == [
        "gradients", "weights", "data",
    ]  # fmt: skip


def _one_step():
    """weights on the host, a product with what is fed on the device, its gradient back on the host."""
    import numpy as np
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as graph:
        with tf.device("CPU:0"):
            weights = tf.get_variable("weights", [6, 2], initializer=tf.ones_initializer())
            fed = tf.placeholder(tf.float32, [5, 6], name="data/x")
        with tf.device("CPU:1"):
            gradient = tf.gradients(tf.reduce_sum((fed @ weights) ** 2), weights)[0]
        with tf.device("CPU:0"):
            train = tf.assign_sub(weights, 0.1 * gradient)
        told = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train, {fed: np.ones([5, 6])}, options=options, run_metadata=told)
    return {"placed": graphs.placed(told.partition_graphs), "moves": graphs.moves(told, graph)}


@pytest.fixture(scope="module")
def step():
    return quiet_launch(_one_step, logical_devices=2)[0]


def test_a_device_holds_its_variables_with_their_bytes(step):
    assert {device: row["variables"] for device, row in step["placed"].items()} == {HOST: {"weights": 48}, DEVICE: {}}


def test_operations_are_counted_by_their_types(step):
    assert step["placed"][DEVICE]["operations"]["MatMul"] == 2
    assert "Const" not in step["placed"][DEVICE]["operations"]


def test_a_variable_that_is_read_moves_under_its_own_name_with_its_bytes(step):
    assert [move.size_bytes for move in step["moves"] if move[:3] == (HOST, DEVICE, "weights")] == [48]


def test_what_comes_back_is_a_gradient_and_comes_last(step):
    last = step["moves"][-1]
    assert (last.src, last.dst, last.kind, last.size_bytes) == (DEVICE, HOST, "gradients", 48)
