"""The bodies of the GPU tests, run on the CPU: so that on a GPU machine what fails is a GPU's matter."""

import pytest
import torch

from tests.support import gpu_work
from worldsize.formulas import sharding
from worldsize.launch import launch
from worldsize.pytorch.models import mlp

SMALL = [16, 32, 32, 8]


def run(body, n, *args):
    return list(launch(body, n, args=args, device="cpu").results)


def test_a_sum_and_a_broadcast():
    expected = {"sum": [0, 3, 6, 9, 12], "told": [0, 0, 0], "device": "cpu", "backend": "gloo"}
    assert run(gpu_work.sum_and_broadcast, 2, "gloo", "cpu") == [expected] * 2


def test_the_halves_of_an_all_reduce():
    expected = [20.0 * k + 1 for k in range(4)]
    for rank, found in enumerate(run(gpu_work.halves_of_an_all_reduce, 2, "gloo", "cpu")):
        assert found == {"part": expected[2 * rank : 2 * rank + 2], "whole": expected}


def test_the_rate_of_an_all_reduce():
    for found in run(gpu_work.rate_of_an_all_reduce, 2, "gloo", "cpu", 0.4, 3):
        assert found["right"] and 0 < found["seconds"] < 60


def test_a_sum_over_the_fabric():
    assert run(gpu_work.sum_over_the_fabric, 2, "cpu") == [{"sum": [1000.0 + 2 * k for k in range(7)], "device": "cpu"}] * 2


@pytest.mark.parametrize("n", [1, 2])
def test_ddp_has_the_gradients_of_one_device(n):
    for found in run(gpu_work.ddp_and_one_device, n, "gloo", "cpu"):
        assert found["ddp"] == pytest.approx(found["alone"], rel=1e-4, abs=1e-6)


def test_data_parallel_without_gpus_passes_through():
    (found,) = run(gpu_work.data_parallel_and_one_device, 1, 1, "cpu")
    assert found["together"] == found["alone"]
    assert (found["cards"], found["copies"]) == (0, [])


@pytest.mark.soak
def test_a_deep_resnet_is_timed_and_learns():
    (found,) = run(gpu_work.images_per_second, 1, "cpu", 101, 4, 8, 28, 4)
    assert found["images_per_s"] > 0
    assert torch.isfinite(torch.tensor(found["last_loss"]))


@pytest.mark.parametrize(("sharded", "stage"), [(True, 3), (False, 0)])
def test_what_a_step_keeps_is_counted(sharded, stage):
    count = sum(p.numel() for p in mlp(SMALL).parameters())
    expected = sum(sharding.memory(count, 2, stage, 4, 4, 8).values())
    for found in run(gpu_work.memory_of_a_step, 2, "gloo", "cpu", SMALL, sharded):
        assert found["counted"] == expected


def test_every_body_of_the_gpu_tests_is_run_here():
    bodies = {name for name, value in vars(gpu_work).items() if getattr(value, "__module__", "") == "gpu_work"}
    helpers = {"device_of", "joined", "finish", "batch", "gradients", "_kept", "_local_bytes"}
    with open(__file__, encoding="utf-8") as source:
        text = source.read()
    assert [name for name in sorted(bodies - helpers) if f"gpu_work.{name}" not in text] == []


def test_the_meter_of_a_steps_bytes():
    assert run(gpu_work.live_bytes_of_a_step, 1, "cpu", SMALL)[0]["meter"] > 2 * sum(p.nbytes for p in mlp(SMALL).parameters())


def test_any_module_in_a_wrapper():
    for off in run(gpu_work.any_module_wrapped, 2, "cpu"):
        assert all(distance < (1e-5 if "two dtypes" in name else 1e-10) for name, distance in off.items()), off
