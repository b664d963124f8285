"""How large a server a class needs: the tables in docs/instructors.md and docs/platforms.md, from what `bench/hub.py` measured.

    python -m tests.support.class_server     # prints them
    python -m tests.support.class_server 40 20     # GB for 40 students of whom 20 work at the same time

The record is `bench/measured_hub.json`. Left out: processors, and homes.
"""

import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parents[2] / "bench" / "measured_hub.json"
SYSTEM_GB = 2.0  # the system, hub and proxy
STUDENTS = 40


@dataclass(frozen=True)
class Student:
    """GB (PSS) of one student's processes in each state."""

    server: float
    idle: float
    without_kernel: float
    warm: float
    torch_lab: float
    tensorflow_lab: float


def student(record: dict[str, Any]) -> Student:
    """One student of a class, from a record: medians over the students, and the most in a whole lab."""

    def middle(state: str) -> float:
        return statistics.median(sum(one.values()) for one in record[state]) / 1e9

    def most(lab: str) -> float:
        return record[lab]["most_bytes"]["sum"] / 1e9

    server = sum(record["server alone"].values()) / 1e9
    idle, without_kernel = middle("idle, each of all"), middle("kernels ended, each of all")
    return Student(server, idle, without_kernel, middle("warm, each of all"), most("lab 06"), most("lab 07"))


def server_gb(students: int, working: int, idle_gb: float, lab_gb: float, system_gb: float = SYSTEM_GB) -> int:
    """GB that a server needs for so many students, `working` of them in a lab at the same time: rounded up.

    system + working · lab + (students − working) · idle. Raises ValueError where more work than there are.
    """
    if not 0 <= working <= students:
        raise ValueError(f"server_gb: expected 0 to {students} students at work, got {working}")
    return math.ceil(system_gb + working * lab_gb + (students - working) * idle_gb)


def size_table(record: dict[str, Any]) -> str:
    """The table of docs/instructors.md."""
    one = student(record)
    lines = [
        f"| of {STUDENTS} students work at the same time | GB, a lab of PyTorch | GB, a lab of TensorFlow |",
        "| --- | --: | --: |",
    ]
    for words, working in (("none", 0), ("a quarter", STUDENTS // 4), ("half", STUDENTS // 2), ("all", STUDENTS)):
        sizes = [server_gb(STUDENTS, working, one.idle, lab) for lab in (one.torch_lab, one.tensorflow_lab)]
        lines.append(f"| {words} | {sizes[0]} | {sizes[1]} |")
    return "\n".join(lines)


def formula(record: dict[str, Any]) -> str:
    """The formula of docs/instructors.md, with this record's numbers."""
    one = student(record)
    return (
        f"GB = {SYSTEM_GB:g} + working × lab + others × {one.idle:.2f}, where a lab is {one.torch_lab:.1f} (06, PyTorch) "
        f"or {one.tensorflow_lab:.1f} (07, TensorFlow)"
    )


def memory_table(record: dict[str, Any]) -> str:
    """The first table of docs/platforms.md: a student's memory by state."""
    one = student(record)
    kernel = sum(record["bare kernel"].values()) / 1e9 - one.server
    rows = {
        "the single-user server alone": one.server,
        "a kernel that has run nothing, besides": kernel,
        "a notebook that has launched, its helper ready": one.warm,
        "the same after the idle minutes": one.idle,
        "the same once the server has ended the kernel": one.without_kernel,
        "lab 06 from top to bottom, at most": one.torch_lab,
        "then lab 07 from top to bottom, at most": one.tensorflow_lab,
    }
    return "\n".join(["| a student has | GB (PSS) |", "| --- | --: |", *(f"| {what} | {gb:.2f} |" for what, gb in rows.items())])


def launch_table(record: dict[str, Any]) -> str:
    """The second one: launches of 4 ranks as students grow."""
    lines = ["| students who launch at once | median, s | 95 %, s | load before |", "| --: | --: | --: | --: |"]
    for one in record["launches"]:
        lines.append(f"| {one['students']} | {one['p50_s']:.1f} | {one['p95_s']:.1f} | {one['load']:.0f} |")
    return "\n".join(lines)


def at_once(record: dict[str, Any]) -> str:
    """Say how a class ran two labs from top to bottom at once: half of it lab 06, half lab 07."""
    labs = {name[:6]: found for name, found in record.items() if name.endswith("students at once")}
    students = sum(map(len, labs.values()))
    most_gb = {name: max(one["most_bytes"]["sum"] for one in found) / 1e9 for name, found in labs.items()}
    tasks = max(one["most_tasks"] for found in labs.values() for one in found)
    failed = sum(len(one["errors"]) for found in labs.values() for one in found)
    minutes = record["labs at once, s"] / 60
    return (
        f"{students} students at once, half in lab 06 and half in lab 07, were through after {minutes:.0f} minutes; the largest "
        f"had {most_gb['lab 06']:.1f} and {most_gb['lab 07']:.1f} GB, and up to {tasks} processes and threads; "
        f"failed cells: {failed}"
    )


def slowest(record: dict[str, Any]) -> str:
    """Seconds of the slowest launch of a student while another's cell ran away."""
    return f"{max(max(found['launches_s']) for what, found in record.items() if what.startswith('while another')):.1f}"


def read() -> dict[str, Any]:
    return json.loads(RECORD.read_text())


def main(words: list[str]) -> None:
    record = read()
    one = student(record)
    if words:
        students, working = map(int, words)
        for lab, gb in (("PyTorch", one.torch_lab), ("TensorFlow", one.tensorflow_lab)):
            sys.stdout.write(f"{server_gb(students, working, one.idle, gb)} GB, a lab of {lab}\n")
        return
    for text in (memory_table(record), launch_table(record), formula(record), size_table(record)):
        sys.stdout.write(text + "\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
