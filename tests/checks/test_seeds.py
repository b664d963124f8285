"""What a check draws at random turns no right answer into a wrong one: over many seeds.

In simulated time, also in another order of events, and in launches too. `test_drawn_words` has the wrong answers.
"""

import pytest

from tests.support.answers import ANSWERS, NEEDS_PROCESSES, SLOW, right_answers
from worldsize.checks import CHECKS, run_check
from worldsize.checks.arena import LaunchArena
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena

FIRST = {a.right[0] for a in ANSWERS}  # of each exercise; its others differ from it where no draw reaches
SEEDS, SEEDS_OF_OTHERS = 1000, 30
LAUNCHES, OF_TENSORFLOW = 10, 2
SEEDS_OF_SLOW = 250  # those of `SLOW` would be half of this part's time
CASE_S = 60.0  # real seconds of a case: a busy machine must not turn a verdict into a skip


def missed(exercise, fn, seeds) -> list[str]:
    """The verdicts that are no pass, with their seeds. Raises NotPlayable."""
    found = []
    for seed in seeds:
        verdict = run_check(exercise, SimulatedArena(seed, limit_s=CASE_S), fn)
        if verdict.state != "pass":
            found.append(f"seed {seed}: {verdict.mismatch}")
    return found


@pytest.mark.parametrize(("exercise", "fn"), [row for row in right_answers(usual=1) if row.values[0] not in NEEDS_PROCESSES])
def test_a_right_answer_passes_in_another_order_of_events(exercise, fn):
    try:
        verdict = run_check(exercise, SimulatedArena(1, interleaved=True), fn)
    except NotPlayable as error:
        pytest.skip(f"it needs {error}")
    assert verdict.state == "pass", verdict.mismatch


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("exercise", "fn"), right_answers())
def test_a_right_answer_passes_with_a_thousand_seeds_and_others_with_thirty(exercise, fn):
    seeds = SEEDS_OF_SLOW if exercise in SLOW else SEEDS
    try:
        assert missed(exercise, fn, range(seeds if fn in FIRST else SEEDS_OF_OTHERS)) == []
    except NotPlayable as error:
        pytest.skip(f"its check needs {error}")


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("answers", ANSWERS, ids=lambda answers: answers.exercise)
def test_a_right_answer_passes_in_ten_launches(answers):
    """In two where TensorFlow starts each time. `tests/grade/test_checks.py` has the other right answers on real ranks."""
    arena = LaunchArena()
    times = OF_TENSORFLOW if CHECKS[answers.exercise].startswith("tensorflow") else LAUNCHES
    for number in range(times):
        verdict = run_check(answers.exercise, arena, answers.right[0])
        assert (verdict.state, verdict.points) == ("pass", verdict.possible), f"launch {number}: {verdict.mismatch}"
