"""What a traced step moves between devices, from graphs that TensorFlow ran: each strategy as it is known to do it.

One process of four logical CPUs, in which each strategy has three of them; a model of one variable of 12 floats, so 48 bytes.
"""

from collections.abc import Callable
from typing import Any

import pytest

from worldsize.figures.device_traffic import given_out, taken_in
from worldsize.tf import launch
from worldsize.tf.crossings import device

SIZE_BYTES = 48
WEIGHTS_AFTER = [-3.0] * 12  # from zeros, a gradient of 1 from each of three replicas, rate 1


MAKES = ("ReductionToOneDevice", "CentralStorage", "default", "HierarchicalCopyAllReduce")


def step_of_each(n: int) -> dict[str, dict[str, Any]]:
    return {make: step_of(make, n) for make in MAKES}


def step_of(make: str, n: int) -> dict[str, Any]:
    """One step of plain gradient descent, rate 1: every replica's gradient is ones."""
    import keras
    import tensorflow as tf

    from worldsize.tf.crossings import crossings

    names = [f"CPU:{k}" for k in range(n)]
    if make == "CentralStorage":
        strategy = tf.distribute.experimental.CentralStorageStrategy(names, "CPU:0")
    else:
        strategy = tf.distribute.MirroredStrategy(names, None if make == "default" else getattr(tf.distribute, make)())
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((12,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        )
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build(model.trainable_variables)

    def on_replica() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones([1, 12])))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    moved = crossings(tf.function(lambda: strategy.run(on_replica)), (), model.trainable_variables)
    return moved | {"weights": model.get_weights()[0].reshape(-1).tolist()}


@pytest.fixture(scope="module")
def step() -> Callable[[str], dict]:
    found = launch(step_of_each, args=(3,), logical_devices=4)[0]
    return found.__getitem__


def ends(moved: dict, n: int) -> list[tuple[int, int]]:
    """(in, out) of each device, in copies of the variable."""
    names = [f"CPU:{k}" for k in range(n)]
    return [(taken_in(moved, name) // SIZE_BYTES, given_out(moved, name) // SIZE_BYTES) for name in names]


def test_mirrored_holds_a_copy_on_every_device(step):
    assert step("ReductionToOneDevice")["holds"] == dict.fromkeys(["CPU:0", "CPU:1", "CPU:2"], SIZE_BYTES)


def test_reduction_to_one_device_is_a_star(step):
    assert ends(step("ReductionToOneDevice"), 3) == [(2, 2), (1, 1), (1, 1)]


def test_central_storage_holds_one_copy_and_sends_weights_out_and_gradients_in(step):
    moved = step("CentralStorage")
    assert moved["holds"] == {"CPU:0": SIZE_BYTES}
    assert {(s["kind"], s["src"] == "CPU:0") for s in moved["sends"] if s["bytes"] > 8} == {
        ("weights", True), ("gradients", False),
    }  # fmt: skip


def test_the_default_on_cpus_is_a_collective_op_and_sends_no_gradients(step):
    moved = step("default")
    assert moved["collectives"] == dict.fromkeys(["CPU:0", "CPU:1", "CPU:2"], SIZE_BYTES)
    assert ends(moved, 3) == [(0, 0)] * 3


def test_hierarchical_copy_of_three_leaves_the_last_replica_out(step):
    """TensorFlow 2.21: two groups of n // 2. The lab shows it; when this fails, it is mended, and the lab must say so."""
    moved = step("HierarchicalCopyAllReduce")
    assert ends(moved, 3)[2] == (1, 0)
    assert moved["weights"] == [-2.0] * 12


@pytest.mark.parametrize("make", ["ReductionToOneDevice", "default", "CentralStorage"])
def test_the_others_take_the_step_of_all_replicas(step, make):
    assert step(make)["weights"] == WEIGHTS_AFTER


def test_a_devices_short_name_is_its_kind_and_number():
    assert device("/job:localhost/replica:0/task:0/device:CPU:11") == "CPU:11"
