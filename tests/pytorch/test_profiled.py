"""What torch's profiler saw of a rank, on the clock of the launch: it lies where our own record says, and in one file with it."""

import json
import math

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from worldsize.fabric.background import Background
from worldsize.launch import Run, launch
from worldsize.pytorch.models import mlp
from worldsize.pytorch.profiled import Profile, _offset, profiled
from worldsize.report import span

MOST_ERROR_S = 1e-3  # of marks that a busy machine interrupts every time
STEPS = 3


def steps(fabric) -> Profile:
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(mlp([30, 20, 10]))
    sums = Background(fabric)
    with profiled(fabric.rank) as seen:
        for _ in range(STEPS):
            with span("a step"), record_function("a step"):
                ddp(torch.ones(4, 30)).sum().backward()
            sums.start(torch.ones(8)).wait()
    return seen


@pytest.fixture(scope="module")
def run() -> Run:
    return launch(steps, 2, device="cpu")


def test_a_stretch_lies_inside_the_one_that_our_record_has_around_it(run: Run) -> None:
    for profile in run.results:
        ours = [s for s in run.trace.spans if s.label == "a step" and s.rank == profile.rank]
        theirs = [one for one in profile.slices if one.name == "a step"]
        assert len(ours) == len(theirs) == STEPS
        for outer, inner in zip(ours, theirs, strict=True):
            error_s = profile.clock_error_s + 1e-6  # the profiler's file has microseconds of three places
            assert outer.start_s - error_s <= inner.start_s <= inner.end_s <= outer.end_s + error_s


def test_the_clocks_agree_to_within_a_bound_that_is_told(run: Run) -> None:
    assert all(0 < profile.clock_error_s < MOST_ERROR_S for profile in run.results)


def test_the_profiler_sees_the_collectives_of_gloo_and_no_sum_through_the_fabric(run: Run) -> None:
    names = {one.name for profile in run.results for one in profile.collectives}
    assert names <= {"gloo:all_reduce", "gloo:broadcast"} and "gloo:all_reduce" in names
    assert [len(profile.collectives) for profile in run.results] == [len(run[0].collectives)] * 2
    assert len(run.trace.transfers) == STEPS * 4


def test_messages_of_the_ranks_own_thread_are_no_collectives() -> None:
    names = ["gloo:send", "gloo:recv", "gloo:all_reduce", "aten::mm"]
    profile = Profile(0, tuple({"ph": "X", "name": name, "ts": 0.0, "dur": 1.0, "tid": 10} for name in names), ("python",))
    assert [one.name for one in profile.collectives] == ["gloo:all_reduce"]
    assert [one.name for one in profile.operators] == ["aten::mm"]


def test_memory_is_counted_from_zero(run: Run) -> None:
    assert max(size_bytes for _, size_bytes in run[0].allocated) >= 4 * (30 * 20 + 20 * 10)


def test_one_file_holds_both_records_by_rank(run: Run, tmp_path) -> None:
    path = run.save_trace(tmp_path / "both.json", [row for profile in run.results for row in profile.rows])
    rows = json.loads(path.read_text())["traceEvents"]
    both = {(row["pid"], row["tid"]) for row in rows if row["name"] in ("a step", "compute a step")}
    assert {rank for rank, _ in both} == {0, 1}
    for rank in range(2):
        assert {tid < 10 for pid, tid in both if pid == rank} == {True, False}
        (ours, *_), (theirs, *_) = (
            sorted((r["ts"], r["ts"] + r["dur"]) for r in rows if r["pid"] == rank and r["name"] == name)
            for name in ("compute a step", "a step")
        )
        error_us = run[rank].clock_error_s * 1e6 + 1
        assert ours[0] - error_us <= theirs[0] <= theirs[1] <= ours[1] + error_us
    assert {row["ph"] for row in rows} >= {"s", "f", "X", "M"}


def test_every_profiled_thread_has_a_name_in_the_file(run: Run) -> None:
    for profile in run.results:
        named = {row["tid"] for row in profile.rows if row["ph"] == "M"}
        assert {row["tid"] for row in profile.rows} == named and len(profile.threads) == len(named)


def test_a_process_that_is_no_rank_counts_from_the_block() -> None:
    with profiled(0) as seen:
        torch.ones(3).sum()
    add = next(one for one in seen.slices if one.name == "aten::sum")
    assert 0 < add.start_s < add.end_s < math.inf


def test_a_clock_that_runs_faster_widens_the_bound() -> None:
    def marks(rate: float):
        rows, readings = [], []
        for at_s in (1.0, 100.0):
            rows.append({"name": "worldsize mark", "ts": at_s * rate * 1e6, "dur": 1.0})
            readings.append([(at_s - 1e-6, at_s + 3e-6)])
        return _offset(rows, readings)

    offset_s, error_s = marks(1.0)
    assert abs(offset_s) <= error_s == pytest.approx(1.5e-6, abs=1e-8)
    offset_s, error_s = marks(1 + 1e-5)
    assert error_s > 4.9e-4 and abs(offset_s - -1e-5) <= error_s and abs(offset_s - -1e-3) <= error_s + 2e-6


def test_the_part_in_collectives_counts_time_once() -> None:
    same = {"ph": "X", "name": "gloo:all_reduce", "dur": 2e6, "tid": 10, "pid": 0}
    rows = [{**same, "ts": start_s * 1e6} for start_s in (0.0, 1.0, 9.0)]
    assert Profile(0, tuple(rows), ("python",), 0.0).in_collectives(1.0, 5.0) == pytest.approx(0.5)
