"""Marking that starts no process, for tests of what surrounds it: points by what a file says, and a list of what was marked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from worldsize.grade.isolation.bubblewrap import UNSAFE
from worldsize.grade.marking import grade_folder, submission
from worldsize.grade.marking.mark_submission import MarkingOrder, MarkingTask
from worldsize.grade.marking.rows import GradeRow, GradeState

LAB, RING = "00_start_here", "06_ring_all_reduce"


@dataclass
class QuickMarking:
    """Stands for `WorkerSupervisor`. `marked` has the files' names in turn; `meanwhile` is called before each."""

    states: dict[str, GradeState] = field(default_factory=dict)  # by student
    points: float = 4.0
    marked: list[str] = field(default_factory=list)
    meanwhile: Callable[[MarkingTask], None] = lambda task: None

    def __call__(self, order: MarkingOrder) -> _Supervisor:
        return _Supervisor(self, order)


class _Supervisor:
    def __init__(self, marking: QuickMarking, order: MarkingOrder) -> None:
        self._marking, self._order = marking, order

    def mark(self, task: MarkingTask) -> GradeRow:
        self._marking.meanwhile(task)
        self._marking.marked.append(task.name)
        state = self._marking.states.get(task.student, "graded")
        points = self._marking.points if state == "graded" else 0.0
        row = task.row(state, "" if state == "graded" else "made up", self._order.seed, self._order.mode == UNSAFE)
        try:
            digest = submission.read_notebook(Path(task.path)).digest
        except submission.Ungradable as error:
            return task.row("ungradable", str(error), self._order.seed, self._order.mode == UNSAFE)
        return replace(row, points=points, possible=4.0, digest=digest, handed_in=task.note)

    def close(self) -> None:
        pass


def quick_marking(monkeypatch: pytest.MonkeyPatch, **given: object) -> QuickMarking:
    made = QuickMarking(**given)
    monkeypatch.setattr(grade_folder, "WorkerSupervisor", made)
    return made


def hand_in(folder: Path, *names: str) -> Path:
    """Notebooks at these places, such as "anna/06_ring_all_reduce.ipynb", each with other bytes."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"cells": [], "metadata": {"name": name}, "nbformat": 4, "nbformat_minor": 5}))
    return folder


def in_threads(*calls: Callable[[], object]) -> list[object]:
    """What the calls return, all made at once; the first of their errors is raised."""
    answers: dict[int, object] = {}
    errors: list[BaseException] = []

    def answer(k: int, call: Callable[[], object]) -> None:
        try:
            answers[k] = call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=answer, args=(k, call)) for k, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return [answers[k] for k in range(len(calls))]
