"""The search for a plan tries all that the sizes admit, and takes the fastest that fits."""

import pytest

from worldsize.checks.capstone import plans as asked
from worldsize.formulas import plan_search, training_step
from worldsize.formulas.training_step import Transformer

pytestmark = pytest.mark.quick

SMALL = Transformer(12, 1536, 12)
GPT3 = Transformer(96, 12288, 96)


def seconds(plan, model=GPT3):
    return sum(training_step.seconds(model, plan).values())


@pytest.mark.parametrize("task", asked.TASKS, ids=str)
def test_without_chunks_the_fastest_plan_is_that_of_the_check(task):
    found = plan_search.fastest(task.model, task.gpus, task.global_batch, task.memory_bytes)
    best = asked._fastest(task)
    if best is None:
        assert found is None
    else:
        assert seconds(found, task.model) == pytest.approx(seconds(best, task.model))


def test_no_plan_comes_twice_and_chunks_only_add_some():
    plain = set(plan_search.plans(SMALL, 24, 48))
    chunked = list(plan_search.plans(SMALL, 24, 48, most_chunks=12))
    assert len(set(chunked)) == len(chunked)
    assert plain < set(chunked)
    assert all(plan.tensor * plan.pipeline * plan.data == 24 and 12 % (plan.pipeline * plan.chunks) == 0 for plan in chunked)


def test_both_together_are_faster_than_either_on_ten_thousand():
    choices = [(1, False), (1, True), (96, False), (96, True)]
    took_s = [seconds(plan_search.fastest(GPT3, 10_240, 2_560, 80e9, *how)) for how in choices]
    assert took_s == sorted(took_s, reverse=True) and len(set(took_s)) == 4


def test_what_does_not_fit_is_not_found():
    assert plan_search.fastest(GPT3, 8, 8, 80e9) is None
