"""What a check draws at random never turns a right answer into a wrong one: its judgement over many seeds, in one process."""

from __future__ import annotations

import pytest

from tests.support.answers import ANSWERS
from tests.support.in_process import InProcessArena, NoProcesses
from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import LaunchArena

RIGHT = [pytest.param(a.exercise, fn, id=f"{a.exercise}-{fn.__name__}") for a in ANSWERS for fn in a.right]
LAUNCHES, OF_TENSORFLOW = 10, 3


def missed(exercise, fn, seeds) -> list[str]:
    """The verdicts that are no pass, with their seeds. Raises NoProcesses."""
    found = []
    for seed in seeds:
        verdict = run_check(exercise, InProcessArena(seed), fn)
        if verdict.state != "pass":
            found.append(f"seed {seed}: {verdict.mismatch}")
    return found


# how a rank's own thread ends where there are no processes: its answer is then not tried
in_one_process = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@in_one_process
def test_right_answers_pass_whatever_is_drawn():
    tried, found = 0, []
    for answers in ANSWERS:
        try:
            for fn in answers.right:
                found += missed(answers.exercise, fn, range(1))
                tried += 1
        except NoProcesses:
            continue
    assert found == []
    assert tried > 50


@pytest.mark.soak
@pytest.mark.timeout(1200)
@in_one_process
@pytest.mark.parametrize(("exercise", "fn"), RIGHT)
def test_a_right_answer_passes_with_a_thousand_seeds(exercise, fn):
    try:
        assert missed(exercise, fn, range(1000)) == []
    except NoProcesses as error:
        pytest.skip(f"its check needs {error}")


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("exercise", "fn"), RIGHT)
def test_a_right_answer_passes_in_ten_launches(exercise, fn):
    """Three where TensorFlow starts each time."""
    arena = LaunchArena()
    times = OF_TENSORFLOW if CHECKS[exercise].startswith("tensorflow") else LAUNCHES
    for number in range(times):
        verdict = run_check(exercise, arena, fn)
        assert verdict.state == "pass", f"launch {number}: {verdict.mismatch}"
