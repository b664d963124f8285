"""What a check says in a notebook it says in a grade: the answers of `mutants`, run in the sandbox instead."""

import random
import re

import pytest

from tests.checks.mutants import says
from tests.support.answers import ANSWERS, IN_A_SANDBOX, NEEDS_PROCESSES
from tests.support.sandboxed_answers import cells_of
from worldsize.checks import run_check
from worldsize.checks.arena import LaunchArena
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.checks.verdict import Verdict
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.outside.arena import SandboxArena, Submitted


def verdict_on(sandbox, exercise: str, fn):
    sandbox.preload(["torch.nn.parallel", "worldsize.formulas.attention"])  # what set-up cells of labs 10 and 17 import
    arena = SandboxArena(sandbox, Meter(sandbox.limits), cells_of(fn), 1, random.Random(SEED))
    return run_check(exercise, arena, Submitted("answer"))


SEED = 20_261_121
WHO = r"ranks? [\d, ]+( and \d+ more)? of \d+|\w+ \d(, \w+ \d)*"
# a grader draws numbers besides, by which the results of declared work are multiplied: it sees invented work that a notebook
# leaves unexamined
WEIGHED = ("accumulate", "big_batch_step", "ring_attention", "stage_3")
DRAWN = re.compile(r"-?\d+\.\d+(e[+-]\d+)?|\d+(?= of \d+ elements differ)")
# a notebook proves a hang in a framework's collectives, where a sandbox waits until its time is over
HUNG = re.compile(r"deadlock: ranks? [\d, ]+ returned; .*|after timeout_s=.*")
FAILED = re.compile(rf"({WHO}) (failed first:|failed:|failed, .*? with|was|were|exited)")
CHANGED = re.compile(r"rank \d+ changed the tensor of its isend to rank \d+")  # all ranks do: the message is the first one's


def _wrong(played: bool) -> list:
    """(exercise, function, words) of one wrong answer of each exercise, never the same place, that can be `played` or not."""
    rows = []
    for number, answers in enumerate(ANSWERS):
        fn, words, _ = answers.wrong[number % len(answers.wrong)]
        if (answers.exercise not in NEEDS_PROCESSES) == played:
            rows.append(pytest.param(answers.exercise, fn, words, id=f"{answers.exercise}-{fn.__name__}"))
    return rows


def _many() -> list:
    """(exercise, function) of the right answers, of those with a mistake on purpose, and of every third wrong one.

    The other wrong ones run in launches, and in one process of a sandbox (`test_simulated_cases.py`).
    """
    both = []
    for a in ANSWERS:
        wrong = [row[0] for row in a.wrong if row[0] in IN_A_SANDBOX]
        both += [(a.exercise, fn) for fn in (*a.right, *wrong, *(row[0] for row in a.spoilt))]
    return [pytest.param(exercise, fn, id=f"{exercise}-{fn.__name__}") for exercise, fn in both]


def words(verdict) -> list[str]:
    """What a verdict says, but for the places, which stand below in lines of their own: cells have other names here.

    Which of several ranks that fail alike fails first is chance. Where work is weighed, weights are other numbers.
    """
    text = verdict.mismatch or ""
    if verdict.exercise in WEIGHED:
        text = DRAWN.sub("a number", text)
    rows = text.splitlines()
    rows = [HUNG.sub("a hang", row) for row in rows]
    rows = [CHANGED.sub("a rank changed what it sends", row) for row in rows]
    return [FAILED.sub("some rank failed:", row) for row in rows if not row.startswith("  ")]


def on_real_ranks(exercise, fn, limits) -> Verdict:
    return run_check(exercise, LaunchArena(limits.case_s, 2 * limits.case_s, SEED), fn)


def in_simulated_time(exercise, fn, limits) -> Verdict:
    """As on real ranks: the tests of the checks hold the two together."""
    return run_check(exercise, SimulatedArena(SEED, limit_s=limits.case_s), fn)


def in_a_notebook(exercise, fn, limits) -> Verdict:
    """In simulated time, or on real ranks where the answer needs them."""
    try:
        return in_simulated_time(exercise, fn, limits)
    except NotPlayable:
        return on_real_ranks(exercise, fn, limits)


def properties(verdict) -> list[tuple]:
    """The properties of a verdict with their states; where work is weighed, whether they hold."""
    weighed = verdict.exercise in WEIGHED
    return [(p.name, p.points, bool(p.passed) if weighed else p.passed) for p in verdict.properties]


def agree(sandbox, exercise, fn, of_notebook) -> None:
    notebook = of_notebook(exercise, fn, sandbox.limits)
    grade = verdict_on(sandbox, exercise, fn)
    assert notebook.state == grade.state
    if not any(fn in answers.chance for answers in ANSWERS):  # whose points hang on the moment, or on where files lie
        assert notebook.points == grade.points
        assert properties(notebook) == properties(grade)
        assert words(notebook) == words(grade)


@pytest.mark.parametrize(("exercise", "fn", "_"), _wrong(played=True))
def test_a_wrong_answer_gets_the_same_verdict_in_the_notebook_and_in_a_grade(sandbox, exercise, fn, _):
    agree(sandbox, exercise, fn, in_a_notebook)


@pytest.mark.parametrize(("exercise", "fn", "words"), _wrong(played=False))
def test_a_wrong_answer_that_needs_processes_fails_in_a_grade_with_words_that_name_the_mistake(sandbox, exercise, fn, words):
    verdict = verdict_on(sandbox, exercise, fn)
    assert verdict.state == "fail"
    assert all(says(verdict.mismatch, one) for one in words), verdict.mismatch


@pytest.mark.soak
@pytest.mark.parametrize(("exercise", "fn"), _many())
def test_an_answer_gets_the_same_verdict_in_the_notebook_and_in_a_grade(sandbox, exercise, fn):
    agree(sandbox, exercise, fn, in_a_notebook)
