"""The report of a machine with GPUs: what it says, read from a report of pytest and from NCCL's own lines."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support import gpu_report
from worldsize import doctor

JUNIT = """<testsuites><testsuite>
<testcase name="test_a_rate" time="3.21"><system-out>--- Captured Out ---
all-reduce of 100 MB on 2 GPUs: 20.0 ms, 5.0 GB/s, via SHM/direct/direct
</system-out></testcase>
<testcase name="test_many" time="0.01"><skipped message="needs 2 GPUs, a rank on each; this machine has 1"/></testcase>
<testcase name="test_wrong" time="1.5"><failure message="assert 1 == 2">line one\nE   assert 1 == 2</failure></testcase>
</testsuite></testsuites>"""
LOG = """[rank 0] host:41:52 [0] NCCL INFO Channel 00/02 :    0   1
[rank 0] host:41:52 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
[rank 1] host:42:53 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via SHM/direct/direct
"""


def test_each_test_has_its_outcome_its_figures_or_its_reason():
    assert gpu_report.rows_of(JUNIT) == [
        "passed     3.2 s  test_a_rate",
        "        all-reduce of 100 MB on 2 GPUs: 20.0 ms, 5.0 GB/s, via SHM/direct/direct",
        "skipped    0.0 s  test_many",
        "        needs 2 GPUs, a rank on each; this machine has 1",
        "FAILED     1.5 s  test_wrong",
        "        line one",
        "        E   assert 1 == 2",
    ]


def test_the_ways_of_nccl_are_read_from_its_log():
    assert gpu_report.ways_of_nccl(LOG) == ["SHM/direct/direct"]
    assert gpu_report.ways_of_nccl("nothing") == []


def test_the_report_has_the_machine_s_sheet_and_the_tests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "examine", lambda: "two ranks: the all-reduce is right")
    text = gpu_report.report("passed     3.2 s  test_a_rate")
    assert f"PyTorch {torch.__version__}" in text and "two ranks" in text and text.endswith("test_a_rate")


def test_the_tests_begin_without_the_tools_of_instructors_and_contributors(root: Path):
    absent = ("nbgrader", "jupytext", "sphinx", "playwright", "jupyterlab", "xdist", "tensorflow")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import tests.conftest, tests.support.gpu_report"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100, cwd=root)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_and_what_to_choose(capsys: pytest.CaptureFixture[str]):
    assert gpu_report.main([]) == 1
    assert "no GPU that CUDA can use" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_the_gpu_tests_run_in_a_process_of_their_own_and_are_skipped_here():
    lines = gpu_report.tests_report().splitlines()
    assert "skipped" in lines[-1] and any(line.endswith("test_one_rank_on_one_gpu_forms_a_group_over_nccl") for line in lines)
