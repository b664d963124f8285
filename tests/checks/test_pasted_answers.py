"""A table of the right answers under one seed earns nothing under another: what decides about points is drawn.

A pasted answer has every fixed case right. It is judged as the grader judges, which stops at the first case that is wrong.
"""

import functools
from collections import Counter

import pytest

from tests.support.answers import ANSWERS, NEEDS_PROCESSES
from tests.support.remembered import RightAnswer, earned, remembered
from worldsize.checks import CHECKS, check_of
from worldsize.checks.arena import LaunchArena
from worldsize.checks.kit.evidence import MESSAGES, OWN_PROCESS, WORK
from worldsize.checks.simulated_arena import SimulatedArena

RIGHT = {a.exercise: a.right[0] for a in ANSWERS}
LEARNT, OTHER = 11, 12  # seeds
ASKED = range(20, 24)  # seeds
MANY = range(100, 200)  # seeds
BY_LUCK = 0.3  # of many seeds: what is drawn may be the same twice, as the number of hosts

# What is asked for is a form that any answer can have, and no value: nothing is there to be remembered.
OF_FORM = {
    "reduce_scatter": {"the slices cover x exactly once": "any cut of x will do, and the lengths are those of every other check"},
    "average_tower_gradients": {
        "a (gradient, variable) for each variable, in their order": "the variables are those that are handed in, in their order"
    },
    "score": {
        "all parts are under way, and joined, before the first answer is fetched": "this is the order of calls, not a value"
    },
    "train_ddp": {"all ranks hold the same weights": "ranks are compared with each other; the values have points of their own"},
}

SIMULATED = [name for name in CHECKS if name not in NEEDS_PROCESSES]
EVERY = [pytest.param(name, marks=[pytest.mark.soak] * (name in NEEDS_PROCESSES)) for name in CHECKS]


@functools.cache
def learnt(exercise: str, seed: int = LEARNT) -> RightAnswer:
    if exercise in NEEDS_PROCESSES:
        return remembered(exercise, LaunchArena(timeout_s=30, tensorflow_s=60, seed=seed), RIGHT[exercise])
    return remembered(exercise, SimulatedArena(seed), RIGHT[exercise])


def seen_outside_the_answer(exercise: str) -> set[str]:
    """Its properties that are about messages and declared work, which pass or do not, or that have no points."""
    return {name for name, seen in check_of(exercise).seen.items() if seen in (MESSAGES, OWN_PROCESS, WORK)}


def unlearnable(exercise: str) -> set[str]:
    return seen_outside_the_answer(exercise) | set(OF_FORM.get(exercise, ()))


@pytest.mark.parametrize("exercise", EVERY)
def test_a_pasted_table_of_answers_earns_nothing(exercise):
    runs = learnt(exercise).runs
    always = set.intersection(*(earned(exercise, seed, runs) for seed in ASKED))
    assert always - unlearnable(exercise) == set()


@pytest.mark.parametrize("exercise", EVERY)
def test_every_property_is_tried_by_a_case_that_differs_between_two_seeds(exercise):
    one, other = learnt(exercise).handed_in, learnt(exercise, OTHER).handed_in
    assert [name for name in check_of(exercise).points if name not in one] == []
    assert [name for name, points in check_of(exercise).points.items() if points and one[name] == other[name]] == []


@pytest.mark.parametrize("exercise", SIMULATED)
def test_a_table_with_its_own_seed_earns_every_point(exercise):
    """So it is the seed that takes the points from it, and no flaw of the table."""
    wanted = {name for name, points in check_of(exercise).points.items() if points}
    assert earned(exercise, LEARNT, learnt(exercise).runs) == wanted


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("exercise", CHECKS)
def test_a_pasted_table_earns_hardly_ever_anything_by_luck(exercise):
    runs = learnt(exercise).runs
    found = Counter(name for seed in MANY for name in earned(exercise, seed, runs))
    lucky = {name: times for name, times in found.items() if times > BY_LUCK * len(MANY)}
    assert lucky.keys() - unlearnable(exercise) == set(), lucky


def test_an_exception_is_a_property_of_its_exercise():
    wrong = [(exercise, name) for exercise, names in OF_FORM.items() for name in names if name not in check_of(exercise).points]
    assert wrong == []
