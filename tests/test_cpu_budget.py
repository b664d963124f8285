"""The suite's budget: CPU seconds of whole process trees, and a run that fails where a room uses too much."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cpu_budget import exceeded, room_of
from tests.support.cpu_seconds import TreeCpu
from tests.support.processes import LONG_S

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
BURN = "import time\nwhile time.process_time() < 0.5: pass\n"
BURNED_S = pytest.approx(0.5, rel=0.4)  # a start of Python comes on top, and clocks tick in hundredths
# one that goes on with each line of its input: it starts a child that burns, and waits for it
STARTS = f"""
import os, subprocess, sys
sys.stdin.readline()
child = subprocess.Popen([sys.executable, "-S", "-c", {BURN!r}])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print("it has ended", flush=True)
sys.stdin.readline()
child.wait()
print("it was waited for", flush=True)
sys.stdin.readline()
"""
# one that ends at once and leaves a process that burns, says so, and stays until its input ends
LEAVES = f"""
import subprocess, sys
stays = {BURN!r} + "print('burned', flush=True)\\nimport sys\\nsys.stdin.readline()"
subprocess.Popen([sys.executable, "-S", "-c", stays])
"""


@contextmanager
def program(text: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program, which ends with its input."""
    command, env = [sys.executable, "-S", "-c", text], {**os.environ, **environment}
    with subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        yield running


def go_on(running: subprocess.Popen[str]) -> None:
    running.stdin.write("\n")
    running.stdin.flush()


@contextmanager
def counted(root: int, mark: str = "") -> Iterator[TreeCpu]:
    made = TreeCpu(root, mark)
    try:
        yield made
    finally:
        made.close()


def test_a_child_counts_once_before_and_after_it_was_waited_for() -> None:
    with program(STARTS) as parent, counted(parent.pid) as cpu:
        go_on(parent)
        assert parent.stdout.readline() == "it has ended\n"
        assert cpu.seconds() == BURNED_S
        go_on(parent)
        assert parent.stdout.readline() == "it was waited for\n"
        assert cpu.seconds() == BURNED_S


def test_a_process_counts_that_outlives_the_one_that_started_it() -> None:
    word = uuid.uuid4().hex
    with program("input()") as idle, counted(idle.pid, f"MARKED={word}") as cpu, program(LEAVES, MARKED=word) as parent:
        assert parent.stdout.readline() == "burned\n"
        parent.wait(LONG_S)
        assert cpu.seconds() == BURNED_S
        parent.stdin.close()
        idle.communicate("\n", LONG_S)


def test_a_process_of_somebody_else_does_not_count() -> None:
    with program("input()") as idle, counted(idle.pid) as cpu, program(STARTS) as other:
        go_on(other)
        assert other.stdout.readline() == "it has ended\n"
        assert cpu.seconds() < 0.1
        other.communicate("\n\n", LONG_S)
        idle.communicate("\n", LONG_S)


def test_a_room_is_the_folder_of_a_test_below_all_tests_or_all_of_them() -> None:
    assert room_of("tests/grade/test_rows.py::test_x[a/b]") == "tests/grade"
    assert room_of("tests/checks/mutants/test_rows.py::test_x") == "tests/checks"
    assert room_of("tests/test_units.py::test_x") == "tests"


def test_a_room_may_use_a_quarter_more_than_its_budget_and_no_more() -> None:
    assert exceeded({"tests/lab": 12.4}, {"tests/lab": 10.0}) == {}
    assert "expected at most 10 calibrated CPU seconds" in exceeded({"tests/lab": 12.6}, {"tests/lab": 10.0})["tests/lab"]


def test_a_room_without_a_budget_is_named() -> None:
    assert "tests/new: expected a budget" in exceeded({"tests/new": 1.0}, {})["tests/new"]


CONFTEST = """
from pathlib import Path
from tests.support import cpu_budget

cpu_budget.BUDGETS = Path(__file__).with_name("budgets.toml")

def pytest_addoption(parser):
    parser.addoption("--cpu", type=int, default=0)

def pytest_configure(config):
    config.pluginmanager.register(cpu_budget.CpuBudget(config), "cpu-budget")
"""
TEST = f"""
import subprocess, sys

def test_burns():
    subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(("budget", "code"), [(0.1, 1), (50, 0)])
def test_a_run_whose_room_uses_too_much_fails_and_says_so(tmp_path: Path, workers: str, budget: float, code: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "budgets.toml").write_text(f'[rooms]\n"." = {budget}\n')
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, "--cpu=1", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("OVER BUDGET  .: expected at most 0.1" in done.stdout) == bool(code)
    assert "calibrated CPU seconds   test_it.py::test_burns" in done.stdout
