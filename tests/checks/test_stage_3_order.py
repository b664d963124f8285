"""Stage 3's check goes by the order of acts: right answers pass with any draw, and no clock is needed to turn wrong ones away."""

import pytest

from tests.checks.mutants import stage_3
from worldsize.checks import run_check
from worldsize.checks.simulated_arena import SimulatedArena

THREADED = "receives_in_a_thread"  # needs more than one process's greenlets
RIGHT = [fn for fn in stage_3.answers.right if fn.__name__ != THREADED]


def missed(fn, seeds):
    verdicts = [run_check("stage_3", SimulatedArena(seed), fn) for seed in seeds]
    return [verdict.mismatch for verdict in verdicts if verdict.state != "pass"]


@pytest.mark.parametrize("fn", RIGHT)
def test_a_right_answer_passes_whatever_is_drawn(fn):
    assert missed(fn, range(3)) == []


@pytest.mark.parametrize("fn", [fn for fn, *_ in stage_3.answers.wrong])
def test_a_wrong_answer_fails_without_a_clock(fn):
    assert len(missed(fn, range(2))) == 2
