"""The property that is an exercise's idea carries its points: the answer of a neighbour, pasted, earns a third at most."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.checks.mutants import Answers
from tests.support.in_process import InProcessArena, NoProcesses
from worldsize.checks import run_check
from worldsize.lab.released import EXERCISES

MODULES = sorted(p.stem for p in (Path(__file__).parent / "mutants").glob("[a-z]*.py"))
ANSWERS: dict[str, Answers] = {
    answers.exercise: answers for answers in (import_module(f"tests.checks.mutants.{name}").answers for name in MODULES)
}


@pytest.mark.parametrize("lab", EXERCISES)
def test_a_neighbours_answer_earns_a_third_at_most(lab):
    exercises = [exercise for exercise in EXERCISES[lab] if exercise in ANSWERS]
    rich = []
    for exercise in exercises:
        for neighbour in exercises:
            if neighbour == exercise:
                continue
            try:
                verdict = run_check(exercise, InProcessArena(1), ANSWERS[neighbour].right[0])
            except NoProcesses:
                continue
            if verdict.points > verdict.possible / 3 + 1e-9:
                rich.append(f"{neighbour} for {exercise}: {verdict.points:g} of {verdict.possible:g}")
    assert rich == []
