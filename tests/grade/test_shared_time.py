"""A limit in seconds judges the submission, and not what else runs on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.graded_arena import arena_of
from worldsize.grade.host.arena import Submitted
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.isolation.shared_time import MOST

FUNCTIONS = """
import time

def works(fabric, x):
    while time.thread_time() < 1.5:
        pass
    return x

def sleeps(fabric, x):
    time.sleep(60)

def loops(fabric, x):
    while True:
        pass
"""
LIMIT_S = 2.0


@pytest.fixture
def arena(sandbox):
    return arena_of(sandbox, FUNCTIONS, limits=Limits(case_s=LIMIT_S))


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Every processor has three others who want it too, each with a session of its own: the kernel shares by sessions."""
    hog = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(hog, start_new_session=True) for _ in range(3 * (os.cpu_count() or 1))]
    yield
    for other in others:
        other.kill()
    for other in others:
        other.wait()


def timed(arena, name: str, ranks: int) -> tuple[str, float]:
    began_s = time.monotonic()
    ended = arena.ranks(Submitted(name), [np.zeros(1)] * ranks)
    return ended.state, time.monotonic() - began_s


def test_work_within_the_limit_is_not_too_late_on_a_busy_machine(arena, busy_machine):
    assert timed(arena, "works", 1)[0] == "done"


def test_who_sleeps_has_lost_nothing_to_others(arena, busy_machine):
    state, took_s = timed(arena, "sleeps", 1)
    assert state == "timeout" and took_s < 2.5 * LIMIT_S


@pytest.fixture
def whole(sandbox):
    """An arena whose limit is that of the whole submission: no case has one of its own."""
    return arena_of(sandbox, FUNCTIONS, limits=Limits(case_s=600, wall_s=LIMIT_S))


def test_a_whole_submission_within_its_limit_is_not_too_late_on_a_busy_machine(whole, busy_machine):
    assert timed(whole, "works", 1)[0] == "done"


def test_a_whole_submission_that_sleeps_has_lost_nothing_to_others(whole, busy_machine):
    state, took_s = timed(whole, "sleeps", 1)
    assert state == "timeout" and took_s < 2.5 * LIMIT_S


def test_what_one_run_lost_is_not_the_next_ones_to_use(whole, busy_machine):
    """The whole submission has the time of a machine of its own, once, however many runs it has."""
    assert timed(whole, "works", 1)[0] == "done"
    assert timed(whole, "works", 1)[0] == "timeout"


def test_a_loop_ends_on_a_busy_machine_too(arena, busy_machine):
    state, took_s = timed(arena, "loops", 1)
    assert state == "timeout" and took_s < (MOST + 1) * LIMIT_S


@pytest.mark.soak  # on a machine with nobody else
def test_a_loop_on_more_ranks_than_processors_has_lost_nothing_to_itself(arena):
    assert timed(arena, "loops", 2 * (os.cpu_count() or 1) + 1) == ("timeout", pytest.approx(LIMIT_S, abs=2.0))
