"""Three hundred submissions cost each as much as ten do, in time and in memory: a soak, for a machine with nothing else to do."""

from __future__ import annotations

import json
import resource
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.marking.batch import grade
from worldsize.grade.marking.rows import GradeRow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
LAB = "06_ring_all_reduce"
MANY = 300
STEPS = (10, 100, MANY)


def cpu_s() -> float:
    """Of this process and of all that it started, those that have ended too."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # of its ended children too
    return total


def memory_bytes() -> int:
    """The proportional share of all workers, their sandboxes and this process."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, float]]:
    """Seconds and CPU seconds after so many rows, and the memory of the whole tree at each."""
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))

    folder = tmp_path_factory.mktemp("many")
    notebook = json.loads((ROOT / "solutions" / f"{LAB}.ipynb").read_text())
    for number in range(MANY):
        (folder / "submitted" / f"student{number:03}").mkdir(parents=True)
        notebook["metadata"]["number"] = number  # no two files are the same
        (folder / "submitted" / f"student{number:03}" / f"{LAB}.ipynb").write_text(json.dumps(notebook))

    found: dict[str, dict[int, float]] = {"seconds": {0: time.monotonic()}, "cpu": {0: cpu_s()}, "memory": {}}

    def look(done: int, total: int, row: GradeRow) -> None:
        assert (row.state, row.points) == ("graded", row.possible), row
        found["seconds"][done] = time.monotonic()
        if done in (2, *STEPS):
            found["cpu"][done] = cpu_s()
        if done <= 20 or done > MANY - 20:
            found["memory"][done] = memory_bytes()

    grade(folder / "submitted", folder / "out", jobs=2, root=ROOT, progress=look)
    print(json.dumps({step: {name: round(a_submission(found[name], step), 3) for name in ("seconds", "cpu")} for step in STEPS}))
    print("memory, MB:", [round(found["memory"][done] / 1e6) for done in (15, 20, MANY - 15, MANY - 1)])
    return found


def a_submission(found: dict[int, float], until: int) -> float:
    """The cost of one, of the last part of those until then."""
    begin = {10: 2, 100: 10, MANY: 100}[until]  # the first two wait for workers and sandboxes to start
    return (found[until] - found.get(begin, found[0])) / (until - (begin if begin in found else 0))


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_submission_takes_as_long_late_as_early(measured, step):
    assert a_submission(measured["seconds"], step) <= 1.1 * a_submission(measured["seconds"], 10)


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_submission_takes_as_much_processor_time_late_as_early(measured, step):
    assert a_submission(measured["cpu"], step) <= 1.1 * a_submission(measured["cpu"], 10)


def test_all_processes_together_need_as_much_memory_late_as_early(measured):
    memory = measured["memory"]
    early = max(memory[done] for done in range(5, 21))
    late = max(memory[done] for done in range(MANY - 19, MANY))
    assert late <= 1.05 * early
