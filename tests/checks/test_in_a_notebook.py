"""What a student gets in a notebook: simulated time in every case, real ranks in two, within three seconds."""

import functools
import time
from collections.abc import Callable

import pytest

from tests.support.answers import ANSWERS, NEEDS_PROCESSES, right_answers
from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import LaunchArena
from worldsize.checks.confirming_arena import confirmed_check
from worldsize.checks.kit.values import inputs_for
from worldsize.checks.verdict import Verdict

RIGHT_S = 3.0  # what a student waits at most
SEED = 7  # as in `test_checks`


def idle(fabric, x):
    """What a rank runs so that its process has started."""


@functools.cache
def checked_in_a_notebook(exercise: str, fn: Callable) -> tuple[Verdict, float]:
    """The verdict that a student gets, and the seconds that it takes.

    The helper processes have started by then, as they have when a student checks.
    """
    arena = LaunchArena(seed=SEED)
    arena.ranks(idle, inputs_for(1, 1, seed=0))
    if CHECKS[exercise].startswith("tensorflow."):
        arena.tensorflow(abs, [1])
    began_s = time.monotonic()
    return confirmed_check(exercise, fn, launches=arena), time.monotonic() - began_s


@pytest.mark.soak
@pytest.mark.parametrize(
    ("exercise", "fn"),
    [
        pytest.param(a.exercise, row[0], id=f"{a.exercise}-{row[0].__name__}")
        for number, a in enumerate(ANSWERS)
        if a.exercise not in NEEDS_PROCESSES
        for row in a.wrong[number % 9 :: 9]
        if row[0] not in a.chance
    ],
)
def test_a_wrong_answer_gets_in_a_notebook_what_it_gets_on_real_ranks(exercise, fn):
    """Every ninth one. `test_checks` holds the simulated time that a notebook uses and real ranks together for each."""
    verdict, _ = checked_in_a_notebook(exercise, fn)
    plain = run_check(exercise, LaunchArena(seed=SEED), fn)
    assert (verdict.state, verdict.points) == (plain.state, plain.points), (verdict.mismatch, plain.mismatch)


@pytest.mark.soak  # in the usual suite the course's own answers are the right ones: `tests/journeys/test_ci.py`
@pytest.mark.parametrize(("exercise", "fn"), right_answers())
def test_a_right_answer_earns_every_point_in_a_notebook(exercise, fn):
    """On real ranks in the first case and in one more, and in simulated time in all."""
    verdict, _ = checked_in_a_notebook(exercise, fn)
    assert (verdict.state, verdict.points) == ("pass", verdict.possible), verdict.mismatch


@pytest.mark.soak  # a wall-clock bound holds on an idle machine alone
@pytest.mark.parametrize(("exercise", "fn"), right_answers())
def test_a_right_answer_is_known_in_three_seconds(exercise, fn):
    assert checked_in_a_notebook(exercise, fn)[1] <= RIGHT_S
