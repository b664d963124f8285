"""What a check draws at random turns no right answer into a wrong one, and leaves a wrong one its words: over many seeds.

In one process, and right answers in launches too.
"""

from __future__ import annotations

import pytest

from tests.checks.mutants import says
from tests.support.answers import ANSWERS
from tests.support.in_process import InProcessArena, NoProcesses
from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import LaunchArena

RIGHT = [pytest.param(a.exercise, fn, id=f"{a.exercise}-{fn.__name__}") for a in ANSWERS for fn in a.right]
WRONG = [pytest.param(a.exercise, *row[:2], id=f"{a.exercise}-{row[0].__name__}") for a in ANSWERS for row in a.wrong]
LAUNCHES, OF_TENSORFLOW = 10, 3
DRAWS = 200  # of a wrong answer


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


def unnamed(exercise, fn, words, seed) -> str:
    """The verdict on a wrong answer, if it does not fail or leaves out some of the words. Raises NoProcesses."""
    verdict = run_check(exercise, InProcessArena(seed), fn)
    if verdict.state != "fail":
        return f"seed {seed}: {verdict.state}"
    missing = [one for one in words if not says(verdict.mismatch, one)]
    return f"seed {seed}: {missing} not in {verdict.mismatch}" if missing else ""


@pytest.mark.soak
@pytest.mark.timeout(1200)
@in_one_process
@pytest.mark.parametrize(("exercise", "fn", "words"), WRONG)
def test_a_wrong_answer_fails_with_its_words_whatever_is_drawn(exercise, fn, words):
    try:
        found = [said for said in (unnamed(exercise, fn, words, seed) for seed in range(DRAWS)) if said]
    except NoProcesses as error:
        pytest.skip(f"its check needs {error}")
    if len(found) == DRAWS:  # no matter of what is drawn, and `test_checks` looks for them in launches
        pytest.skip("its words are of processes: who waits for whom, or what a framework says")
    assert found == []


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
