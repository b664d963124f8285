"""What a check says in a notebook it says in a grade: the answers of `mutants`, run in the sandbox instead."""

from __future__ import annotations

import random
import re

import pytest

from tests.support.answers import ANSWERS
from tests.support.sandboxed_answers import cells_of
from worldsize.checks import run_check
from worldsize.checks.arena import LaunchArena
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.checks.verdict import Verdict
from worldsize.grade.host.arena import SandboxArena, Submitted
from worldsize.grade.isolation.limits import Meter


def verdict_on(sandbox, exercise: str, fn):
    sandbox.preload(["torch.nn.parallel"])  # what lab 10's set-up cells import
    arena = SandboxArena(sandbox, Meter(sandbox.limits), cells_of(fn), 1, random.Random(SEED))
    return run_check(exercise, arena, Submitted("answer"))


@pytest.mark.soak  # in the usual suite the course's own answers are the right ones: `test_solved_labs`
@pytest.mark.parametrize(("exercise", "fn"), [pytest.param(a.exercise, a.right[0], id=a.exercise) for a in ANSWERS])
def test_a_right_answer_earns_every_point(sandbox, exercise, fn):
    verdict = verdict_on(sandbox, exercise, fn)
    assert (verdict.state, verdict.points) == ("pass", verdict.possible), verdict.mismatch


# ---- one answer, one verdict -----------------------------------------------------------------

SEED = 20_261_121
WHO = r"ranks? [\d, ]+( and \d+ more)? of \d+|\w+ \d(, \w+ \d)*"
FAILED = re.compile(rf"({WHO}) (failed first:|failed:|failed, .*? with|was|were|exited)")


def _agreeing(sampled: bool) -> list:
    """(exercise, function) of every answer, right, odd or wrong; or one wrong one of each exercise, never the same place."""
    rows = []
    for number, answers in enumerate(ANSWERS):
        wrong = [row[0] for row in answers.wrong]
        functions = [wrong[number % len(wrong)]] if sampled else [*answers.right, *wrong]
        rows += [pytest.param(answers.exercise, fn, id=f"{answers.exercise}-{fn.__name__}") for fn in functions]
    return rows


def words(verdict) -> list[str]:
    """What a verdict says, but for the places, which stand below in lines of their own: cells have other names here.

    Which of several ranks that fail alike fails first is chance.
    """
    rows = (verdict.mismatch or "").splitlines()
    return [FAILED.sub("some rank failed:", row) for row in rows if not row.startswith("  ")]


def on_real_ranks(exercise, fn, limits) -> Verdict:
    return run_check(exercise, LaunchArena(limits.case_s, 2 * limits.case_s, SEED), fn)


def in_the_notebook(exercise, fn, limits) -> Verdict:
    """In simulated time where that can be, which the tests of the checks hold to real ranks."""
    try:
        return run_check(exercise, SimulatedArena(SEED, limit_s=limits.case_s), fn)
    except NotPlayable:
        return on_real_ranks(exercise, fn, limits)


def agree(sandbox, exercise, fn, of_notebook) -> None:
    notebook = of_notebook(exercise, fn, sandbox.limits)
    grade = verdict_on(sandbox, exercise, fn)
    assert (notebook.state, notebook.points) == (grade.state, grade.points)
    if not any(fn in answers.chance for answers in ANSWERS):
        assert notebook.properties == grade.properties
        assert words(notebook) == words(grade)


@pytest.mark.parametrize(("exercise", "fn"), _agreeing(sampled=True))
def test_an_answer_gets_the_same_verdict_in_the_notebook_and_in_a_grade(sandbox, exercise, fn):
    agree(sandbox, exercise, fn, in_the_notebook)


@pytest.mark.soak
@pytest.mark.parametrize(("exercise", "fn"), _agreeing(sampled=False))
def test_every_answer_gets_the_same_verdict_in_the_notebook_and_in_a_grade(sandbox, exercise, fn):
    agree(sandbox, exercise, fn, on_real_ranks)
