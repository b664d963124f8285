"""The matrix of versions: its corners, how a run is read, and that the table in the documents is the last record's."""

import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.support import matrix
from tests.support.matrix import CORNERS, Install, Result, Suite

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BY_NAME = {corner.name: corner for corner in CORNERS}
ALL_WELL = Result(
    "oldest", "2026-11-29", "Linux x86_64", {"python": "3.11.7", "torch": "2.9.1", "tensorflow": "2.21.0"}, Install(120, 4000),
    Suite(3000, [], 20, 200), Suite(700, [], 2, 300), {"00": "4 of 4", "02": "6 of 6"}, 150,
)  # fmt: skip
REPORT = """<testsuites><testsuite>
<testcase classname="tests.launch.test_faults" name="test_a"><failure message="x"/></testcase>
<testcase classname="tests.launch.test_faults" name="test_b"><skipped message="x"/></testcase>
<testcase classname="tests.launch.test_faults" name="test_c"/>
<testcase classname="tests.ranks.test_d" name="test_d[2]"><error message="x"/></testcase>
</testsuite></testsuites>"""


def test_the_table_in_the_documents_is_the_last_record_s() -> None:
    text = (ROOT / matrix.DOCUMENT).read_text()
    assert matrix.with_table(text, matrix.records(ROOT)) == text, "python -m tests.support.matrix writes it"


def test_a_record_is_of_a_corner_and_its_table_has_every_corner() -> None:
    assert set(matrix.records(ROOT)) <= set(BY_NAME)
    assert [corner.name for corner in CORNERS if f"| `{corner.name}`: " not in matrix.table({})] == []


def test_the_corners_have_every_python_that_the_project_admits_and_its_oldest_torch() -> None:
    admitted = SpecifierSet(PROJECT["requires-python"])
    pythons = {f"3.{minor}" for minor in range(9, 20) if f"3.{minor}.0" in admitted}
    assert {corner.python for corner in CORNERS} == pythons
    (torch,) = [text for text in PROJECT["dependencies"] if text.startswith("torch")]
    assert BY_NAME["oldest"].torch.removesuffix(".*").removeprefix("==") == torch.removeprefix("torch>=")


def test_one_corner_has_no_constraints_at_all() -> None:
    assert [corner.name for corner in CORNERS if not (corner.constrained or corner.host or corner.torch)] == ["newest"]


def test_constraints_hold_but_for_the_torch_that_a_corner_asks_for() -> None:
    versions = "# made\nnumpy==2.4.0\ntorch==2.13.0\ntorchvision==0.28\n"
    assert BY_NAME["oldest"].versions(versions) == "# made\nnumpy==2.4.0\ntorchvision==0.28\n"
    assert BY_NAME["constraints"].versions(versions) == versions
    assert BY_NAME["newest"].versions(versions) == ""


def test_a_report_of_pytest_is_read() -> None:
    failed = ["tests/launch/test_faults.py::test_a", "tests/ranks/test_d.py::test_d[2]"]
    assert matrix.read_tests(REPORT, 61.6) == Suite(1, failed, 1, 62)


def test_points_are_read_from_what_a_run_of_a_lab_prints() -> None:
    assert matrix.read_points("a\npoints: 5.5 of 6\nnext: lab 03\n") == "5.5 of 6"
    assert matrix.read_points("a warning\ncode cell 17: RankFailed\n") == "code cell 17: RankFailed"


def test_of_a_failed_run_no_path_of_this_machine_is_recorded(tmp_path) -> None:
    failed = f"code cell 17 raised KeyError: 'sum'. Read {tmp_path}/12.ipynb, which holds the outputs so far, or run that cell."
    assert matrix.read_points(failed) == "code cell 17 raised KeyError: 'sum'."


def test_the_packages_of_this_environment_are_read() -> None:
    printed = subprocess.run([sys.executable, "-c", matrix.PACKAGES], capture_output=True, text=True, check=True, timeout=60)
    packages = matrix.read_packages(f"a warning\n{printed.stdout}")
    assert packages["python"] == ".".join(map(str, sys.version_info[:3])) and packages["pytest"] == pytest.__version__


@pytest.mark.parametrize(
    ("worse", "line"),
    [
        ({"install": Install(120, 4000, ["jupyter_server: 2.14.0 became 2.21.1"])}, "jupyter_server: 2.14.0 became 2.21.1"),
        ({"rooms": Suite(699, ["tests/a.py::test_b"], 2, 300)}, "failed: tests/a.py::test_b"),
        ({"labs": {"00": "4 of 4", "02": "5.5 of 6"}}, "lab 02: 5.5 of 6"),
        ({"labs": {"00": "KeyError: 'entries'"}}, "lab 00: KeyError: 'entries'"),
    ],
)
def test_what_is_not_as_it_should_be_is_named(worse: dict, line: str) -> None:
    assert ALL_WELL.wrong() == []
    (named,) = replace(ALL_WELL, **worse).wrong()
    assert line in named


def test_a_record_is_kept_and_shown_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / matrix.DOCUMENT, tmp_path / matrix.DOCUMENT)
    matrix.record(tmp_path, replace(ALL_WELL, labs={"00": "4 of 4", "02": "5 of 6"}, rooms=Suite(699, ["a"], 2, 300)))
    assert matrix.records(tmp_path)["oldest"].rooms == Suite(699, ["a"], 2, 300)
    (row,) = [line for line in (tmp_path / matrix.DOCUMENT).read_text().splitlines() if "| `oldest`" in line]
    assert "| 2.9.1 |" in row and "1 failed, 699 passed, 5 min" in row and "all points but in 02" in row


def test_a_part_that_was_left_out_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / matrix.DOCUMENT, tmp_path / matrix.DOCUMENT)
    matrix.record(tmp_path, replace(ALL_WELL, quick=None, labs={}))
    result = matrix.records(tmp_path)["oldest"]
    assert (result.quick, result.labs, result.wrong()) == (None, {}, [])
    assert matrix.table({"oldest": result}).count("not run") == 2


def test_nox_has_the_corners_and_passes_over_one_whose_python_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nox", "--envdir", str(tmp_path), "--report", str(tmp_path / "report.json")]
    listed = subprocess.run([*command, "--list", "--json"], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60)
    assert {row["name"]: row["python"] for row in json.loads(listed.stdout)} == {c.name: c.python for c in CORNERS}
    passed_over = [*command, "-s", "next", "-P", "3.99", "--download-python", "never"]
    done = subprocess.run(passed_over, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0 and "next" in done.stderr and "3.99 not found" in done.stderr


def test_every_night_each_corner_runs() -> None:
    nightly = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())["jobs"]["matrix"]
    assert nightly["strategy"]["matrix"]["corner"] == list(BY_NAME)
    assert any(".ci/run matrix CORNER=${{ matrix.corner }}" == step.get("run") for step in nightly["steps"])
