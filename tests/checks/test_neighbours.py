"""The property that is an exercise's idea carries its points: the answer of a neighbour, pasted, earns a third at most."""

import pytest

from tests.support.answers import ANSWERS
from worldsize.cells.released import EXERCISES
from worldsize.checks import run_check
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena

BY_EXERCISE = {answers.exercise: answers for answers in ANSWERS}
# an answer of lab 07, played as another exercise's, imports TensorFlow itself, for seconds
LABS = [pytest.param(lab, marks=[pytest.mark.soak] * (lab == "07")) for lab in EXERCISES]


@pytest.mark.parametrize("lab", LABS)
def test_a_neighbours_answer_earns_a_third_at_most(lab):
    exercises = [exercise for exercise in EXERCISES[lab] if exercise in BY_EXERCISE]
    rich = []
    for exercise in exercises:
        for neighbour in exercises:
            if neighbour == exercise:
                continue
            try:
                verdict = run_check(exercise, SimulatedArena(1), BY_EXERCISE[neighbour].right[0])
            except NotPlayable:
                continue
            if verdict.points > verdict.possible / 3 + 1e-9:
                rich.append(f"{neighbour} for {exercise}: {verdict.points:g} of {verdict.possible:g}")
    assert rich == []
