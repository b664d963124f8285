"""What needs GPUs: NCCL, gloo on a shared GPU, PyTorch's own DataParallel, ResNet-101's speed, FSDP's memory.

`pytest tests/gpu -s` prints the figures. Where there is no GPU, or too few, every test is skipped and says why. Their
bodies are in `gpu_work`, and `test_dry_run` runs those on the CPU, so that they are known to run at all.
"""

from pathlib import Path

import pytest
import torch

from tests.support import gpu_report, gpu_work
from worldsize.formulas import sharding
from worldsize.launch import launch
from worldsize.pytorch.models import mlp

GPUS = torch.cuda.device_count()
MANY = max(2, min(GPUS, 8))
WIDE = [4096] * 5  # 268 MB of weights: activations and work space hardly count beside them
CLOSE = {"rel": 1e-3, "abs": 1e-5}  # GPUs add up in other orders, and in TF32 where a user has asked for it

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
two_gpus = pytest.mark.skipif(GPUS < 2, reason=f"needs 2 GPUs, a rank on each; this machine has {GPUS}")


def test_one_rank_on_one_gpu_forms_a_group_over_nccl():
    run = launch(gpu_work.sum_and_broadcast, 1, args=("nccl", "cuda"))
    assert "nccl" in str(run.setup)
    assert run[0] == {"sum": [0, 1, 2, 3, 4], "told": [0, 0, 0], "device": "cuda:0", "backend": "nccl"}


@two_gpus
def test_ranks_on_gpus_of_their_own_add_up_over_nccl():
    run = launch(gpu_work.sum_and_broadcast, MANY, args=("nccl", "cuda"))
    times = MANY * (MANY + 1) / 2
    for rank, found in enumerate(run.results):
        assert found["sum"] == [times * k for k in range(5)]
        assert (found["told"], found["device"]) == ([0, 0, 0], f"cuda:{rank}")


@two_gpus
def test_a_reduce_scatter_and_an_all_gather_over_nccl_are_an_all_reduce():
    run = launch(gpu_work.halves_of_an_all_reduce, MANY, args=("nccl", "cuda"))
    expected = [10 * MANY * k + MANY * (MANY - 1) / 2 for k in range(2 * MANY)]
    for rank, found in enumerate(run.results):
        assert (found["part"], found["whole"]) == (expected[2 * rank : 2 * rank + 2], expected)


@two_gpus
def test_an_all_reduce_over_nccl_has_a_rate_and_a_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    run = launch(gpu_work.rate_of_an_all_reduce, MANY, args=("nccl", "cuda", 100, 20))
    size, seconds = 100e6, max(found["seconds"] for found in run.results)
    moved = 2 * (MANY - 1) / MANY * size / seconds / 1e9  # by a rank, each way: nccl-tests call it the bus bandwidth
    ways = ", ".join(gpu_report.ways_of_nccl(run.log())) or "a way not named"
    print(f"\nall-reduce of 100 MB on {MANY} GPUs: {seconds * 1e3:.1f} ms, {moved:.1f} GB/s, via {ways}")
    assert all(found["right"] for found in run.results)


@two_gpus
def test_ddp_over_nccl_has_the_gradients_of_one_gpu_with_the_whole_batch():
    for found in launch(gpu_work.ddp_and_one_device, MANY, args=("nccl", "cuda")).results:
        assert found["ddp"] == pytest.approx(found["alone"], **CLOSE)


def test_ddp_of_one_rank_over_nccl_has_the_gradients_of_the_gpu_alone():
    found = launch(gpu_work.ddp_and_one_device, 1, args=("nccl", "cuda"))[0]
    assert found["ddp"] == pytest.approx(found["alone"], **CLOSE)


def test_more_ranks_than_gpus_share_them_over_gloo():
    n = GPUS + 1
    run = launch(gpu_work.sum_and_broadcast, n, args=("gloo", "cuda"), device="cuda")
    assert "share" in str(run.setup)
    assert {found["device"] for found in run.results} == {f"cuda:{k}" for k in range(GPUS)}
    assert all(found["sum"] == [n * (n + 1) / 2 * k for k in range(5)] for found in run.results)


def test_ddp_over_gloo_on_shared_gpus_has_the_gradients_of_one_gpu():
    for found in launch(gpu_work.ddp_and_one_device, GPUS + 1, args=("gloo", "cuda"), device="cuda").results:
        assert found["ddp"] == pytest.approx(found["alone"], **CLOSE)


def test_the_fabric_carries_tensors_of_a_gpu():
    n = GPUS + 1
    expected = [1000.0 * n * (n - 1) / 2 + n * k for k in range(7)]
    run = launch(gpu_work.sum_over_the_fabric, n, args=("cuda",), device="cuda")
    assert run.results == [{"sum": expected, "device": "cuda"}] * n
    assert run.trace.total_bytes() > 0


def test_data_parallel_on_one_gpu_has_its_gradients_and_copies_nothing():
    found = launch(gpu_work.data_parallel_and_one_device, 1, args=(1, "cuda"))[0]
    assert found["together"] == pytest.approx(found["alone"], **CLOSE)
    assert (found["cards"], found["copies"]) == (1, [])


@two_gpus
def test_data_parallel_on_many_gpus_copies_from_and_to_card_0_alone():
    found = launch(gpu_work.data_parallel_and_one_device, 1, args=(MANY, "cuda"))[0]
    assert found["together"] == pytest.approx(found["alone"], **CLOSE)
    assert found["copies"] and all((src == 0) != (dst == 0) for src, dst, _ in found["copies"])


@two_gpus
def test_data_parallel_moves_the_weights_out_and_the_gradients_back_once_for_each_other_card():
    found = launch(gpu_work.data_parallel_and_one_device, 1, args=(MANY, "cuda"))[0]
    weights = sum(p.nbytes for p in mlp(gpu_work.SIZES).parameters())
    sizes = [size for *_, size in found["copies"]]
    assert sizes.count(weights) == 2 * (MANY - 1)


def test_a_gpu_trains_resnet_101_on_whole_images(record_property):
    found = launch(gpu_work.images_per_second, 1, args=("cuda", 101, 64, 32, 224, 40))[0]
    record_property("images_per_s", found["images_per_s"])
    print(f"\nResNet-101, 224 x 224, batch 32, float32: {found['images_per_s']:.0f} images/s")
    assert found["images_per_s"] > 20  # the slowest card that this PyTorch supports does several times that
    assert found["last_loss"] < found["first_loss"]


def memory(n: int, sharded: bool) -> list[dict[str, float]]:
    return list(launch(gpu_work.memory_of_a_step, n, args=("nccl", "cuda", WIDE, sharded)).results)


def by_formula(n: int) -> int:
    count = sum(p.numel() for p in mlp(WIDE).parameters())
    return sum(sharding.memory(count, n, 3, 4, 4, 8).values())


@pytest.mark.parametrize("n", [1, pytest.param(MANY, marks=two_gpus, id="many")])
def test_a_gpu_keeps_what_stage_3_of_zero_says(n):
    for found in memory(n, sharded=True):
        print(f"\nFSDP on {n}: keeps {found['kept'] / 1e6:.0f} MB, peak {found['peak'] / 1e6:.0f} MB")
        assert found["counted"] == pytest.approx(by_formula(n), rel=0.01)
        assert found["kept"] == pytest.approx(by_formula(n), rel=0.1, abs=80e6)  # with the libraries' work space
        assert found["peak"] >= found["kept"]


@two_gpus
def test_at_its_peak_fsdp_needs_less_than_replicas():
    sharded, replicas = memory(MANY, sharded=True), memory(MANY, sharded=False)
    print(f"\npeak on {MANY} GPUs: FSDP {sharded[0]['peak'] / 1e6:.0f} MB, replicas {replicas[0]['peak'] / 1e6:.0f} MB")
    assert max(found["peak"] for found in sharded) < min(found["peak"] for found in replicas)


def test_the_meter_of_living_tensors_counts_what_the_allocator_counts(tmp_path: Path):
    found = launch(gpu_work.live_bytes_of_a_step, 1, args=("cuda", WIDE, str(tmp_path)), device="cuda")[0]
    print(f"\nfullest moment of a step: meter {found['meter'] / 1e6:.1f} MB, allocator {found['allocator'] / 1e6:.1f} MB")
    assert found["meter"] == pytest.approx(found["allocator"], rel=0.02)
    assert "live_bytes_of_a_step" in found["lines"]


def test_any_module_on_a_gpu_gets_the_weights_of_one_process_from_a_wrapper():
    run = launch(gpu_work.any_module_wrapped, GPUS + 1, args=("cuda",), device="cuda", timeout_s=120)
    for off in run.results:
        print(f"\nfarthest weight: {max(off.values()):.1e}")
        assert all(distance < (1e-4 if "two dtypes" in name else 1e-10) for name, distance in off.items()), off


def test_lab_10_runs_on_this_machines_gpus(root: Path, tmp_path: Path):
    from worldsize.authoring.headless import run

    done = run(root / "solutions" / "10_data_parallel_and_ddp.ipynb", tmp_path / "executed.ipynb", timeout_s=280)
    assert done.points == done.possible == 6
