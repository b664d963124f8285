"""A limit in seconds judges the submission, and not what else runs on the machine.

The usual suite makes the machine up; on a real one, with others that want it too, the soak tries the same.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.graded_arena import arena_of
from worldsize.grade.isolation import shared_time
from worldsize.grade.isolation.limits import Limits, Usage
from worldsize.grade.isolation.shared_time import MOST, SharedTime
from worldsize.grade.outside.arena import Submitted


class FakeMachine:
    """Two processors, a server with one rank below it, and what the kernel says of them."""

    RANK, SERVERS = 77, (7,)

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._used_s = 0.0
        self.ranks = [self.RANK]
        monkeypatch.setattr(shared_time, "_PROC", folder)
        monkeypatch.setattr(shared_time, "descendants", lambda server: self.ranks)
        monkeypatch.setattr(shared_time, "usage", lambda servers: Usage(cpu_s=self._used_s))
        monkeypatch.setattr(os, "cpu_count", lambda: 2)
        self.says()

    def says(self, busy_s: float = 0.0, used_s: float = 0.0, rank_waited_s: float = 0.0, we_waited_s: float = 0.0) -> None:
        """Since the machine began: its processors were busy, for the rank in part, and who was ready and did not run."""
        self._used_s = used_s
        ticks = int(busy_s * os.sysconf("SC_CLK_TCK"))
        (self._folder / "stat").write_text(f"cpu {ticks} 0 0 9 0 0 0 0 0 0\n")
        ours, theirs = (os.getpid(), threading.get_native_id()), (self.RANK, self.RANK)
        for (process, thread), waited_s in ((ours, we_waited_s), (theirs, rank_waited_s)):
            place = self._folder / str(process) / "task" / str(thread)
            place.mkdir(parents=True, exist_ok=True)
            (place / "schedstat").write_text(f"1 {int(waited_s * 1e9)} 1\n")


@pytest.fixture
def machine(tmp_path, monkeypatch) -> FakeMachine:
    return FakeMachine(tmp_path, monkeypatch)


def lost_s(shared: SharedTime) -> float:
    return shared.lost_s(FakeMachine.SERVERS)


def test_what_a_rank_waited_while_others_worked_is_lost(machine):
    shared = SharedTime()
    machine.says(busy_s=11, used_s=1, rank_waited_s=3)
    assert lost_s(shared) == pytest.approx(3)


def test_what_the_grader_itself_waited_is_lost_too(machine):
    shared = SharedTime()
    machine.says(busy_s=11, used_s=1, rank_waited_s=2, we_waited_s=1)
    assert lost_s(shared) == pytest.approx(3)


def test_no_more_is_lost_than_others_worked_on_all_processors(machine):
    shared = SharedTime()
    machine.says(busy_s=5, used_s=1, rank_waited_s=30)
    assert lost_s(shared) == pytest.approx(2)


@pytest.mark.parametrize(("busy_s", "used_s", "waited_s"), [(10, 10, 5), (99, 0, 0)], ids=["keeps itself waiting", "sleeps"])
def test_one_that_waited_for_nobody_has_lost_nothing(machine, busy_s, used_s, waited_s):
    shared = SharedTime()
    machine.says(busy_s, used_s, rank_waited_s=waited_s)
    assert lost_s(shared) == 0


def test_what_was_lost_before_a_run_is_not_its_own(machine):
    machine.says(busy_s=50, we_waited_s=20)
    shared = SharedTime()
    assert lost_s(shared) == 0


def test_what_a_rank_lost_that_has_ended_is_remembered(machine):
    shared = SharedTime()
    machine.says(busy_s=11, used_s=1, rank_waited_s=3)
    lost_s(shared)
    machine.ranks = []
    assert lost_s(shared) == pytest.approx(3)


@pytest.mark.parametrize(("waited_s", "more_s"), [(0, 2), (3, 5), (1000, 2 * MOST)])
def test_a_limit_ends_later_by_what_was_lost_and_at_some_point_in_any_case(machine, waited_s, more_s):
    shared = SharedTime()
    machine.says(busy_s=10_000, rank_waited_s=waited_s)
    began_s = shared.deadline_s(0, FakeMachine.SERVERS)
    assert shared.deadline_s(2, FakeMachine.SERVERS) - began_s == pytest.approx(more_s)


FUNCTIONS = """
import time

def works(fabric, x):
    while time.thread_time() < 1.5:
        pass
    return x

def sleeps(fabric, x):
    time.sleep(60)  # far longer than its limit

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


@pytest.mark.soak
def test_work_within_the_limit_is_not_too_late_on_a_busy_machine(arena, busy_machine):
    assert timed(arena, "works", 1)[0] == "done"


@pytest.mark.soak
def test_who_sleeps_has_lost_nothing_to_others(arena, busy_machine):
    state, took_s = timed(arena, "sleeps", 1)
    assert state == "timeout" and took_s < 2.5 * LIMIT_S


@pytest.fixture
def whole(sandbox):
    """An arena whose limit is that of the whole submission: no case has one of its own."""
    return arena_of(sandbox, FUNCTIONS, limits=Limits(case_s=600, wall_s=LIMIT_S))


@pytest.mark.soak
def test_a_whole_submission_within_its_limit_is_not_too_late_on_a_busy_machine(whole, busy_machine):
    assert timed(whole, "works", 1)[0] == "done"


@pytest.mark.soak
def test_a_whole_submission_that_sleeps_has_lost_nothing_to_others(whole, busy_machine):
    state, took_s = timed(whole, "sleeps", 1)
    assert state == "timeout" and took_s < 2.5 * LIMIT_S


@pytest.mark.soak
def test_what_one_run_lost_is_not_the_next_ones_to_use(whole, busy_machine):
    """The whole submission has the time of a machine of its own, once, however many runs it has."""
    assert timed(whole, "works", 1)[0] == "done"
    assert timed(whole, "works", 1)[0] == "timeout"


@pytest.mark.soak
def test_a_loop_ends_on_a_busy_machine_too(arena, busy_machine):
    state, took_s = timed(arena, "loops", 1)
    assert state == "timeout" and took_s < (MOST + 1) * LIMIT_S


@pytest.mark.soak
def test_a_loop_on_more_ranks_than_processors_has_lost_nothing_to_itself(arena):
    assert timed(arena, "loops", 2 * (os.cpu_count() or 1) + 1) == ("timeout", pytest.approx(LIMIT_S, abs=2.0))
