"""How large a server a class needs: the formula, and the pages that quote it."""

import re
from pathlib import Path

import pytest

from tests.support import class_server
from tests.support.class_server import Student, server_gb

pytestmark = pytest.mark.quick
DOCS = Path(__file__).resolve().parents[1] / "docs"
MADE_UP = {
    "server alone": {"server": 100_000_000},
    "idle, each of all": [{"server": 100_000_000, "kernel": 200_000_000}, {"server": 100_000_000, "kernel": 400_000_000}],
    "kernels ended, each of all": [{"server": 120_000_000}],
    "warm, each of all": [{"server": 100_000_000, "helpers": 500_000_000}],
    "lab 06": {"most_bytes": {"server": 1, "sum": 1_100_000_000}},
    "lab 07": {"most_bytes": {"server": 1, "sum": 2_000_000_000}},
}


def test_a_server_holds_the_system_those_at_work_and_those_who_read() -> None:
    assert server_gb(40, 10, idle_gb=0.25, lab_gb=2.0, system_gb=2.0) == 2 + 20 + 7.5 + 0.5  # rounded up
    assert server_gb(0, 0, idle_gb=0.25, lab_gb=2.0, system_gb=2.0) == 2


def test_more_students_at_work_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 0 to 3 students at work, got 4"):
        server_gb(3, 4, idle_gb=0.3, lab_gb=1.0)


def test_a_student_of_a_record_is_its_median_and_the_most_of_a_lab() -> None:
    assert class_server.student(MADE_UP) == Student(
        server=0.1, idle=0.4, without_kernel=0.12, warm=0.6, torch_lab=1.1, tensorflow_lab=2.0
    )


def test_the_pages_quote_what_the_record_gives() -> None:
    record = class_server.read()
    instructors = (DOCS / "instructors.md").read_text()
    platforms = (DOCS / "platforms.md").read_text()
    assert class_server.size_table(record) in instructors
    assert class_server.formula(record) in " ".join(instructors.split())
    assert class_server.memory_table(record) in platforms
    assert class_server.launch_table(record) in platforms
    assert class_server.at_once(record) in " ".join(platforms.split())
    assert f"after an idle end took {record['first launch after idle']['seconds']:.1f} s" in " ".join(platforms.split())
    assert f"the slowest after {class_server.slowest(record)} s" in " ".join(platforms.split())


def test_the_limit_of_tasks_leaves_room_for_a_lab_of_tensorflow() -> None:
    most = max(one["most_tasks"] for one in class_server.read()["lab 07 of 6 students at once"])
    (limit,) = re.findall(r'"TasksMax": "(\d+)"', (DOCS / "platforms.md").read_text())
    assert 1.2 * most < int(limit)
