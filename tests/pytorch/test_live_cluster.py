"""Ranks that are killed and started again: what they lose, and that what they keep is the same bits as without a kill."""

import math
import subprocess
import sys

import numpy as np
import pytest

from worldsize.files import write_whole
from worldsize.launch import launch
from worldsize.pytorch.live_cluster import DayPlan, live_day, undisturbed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks its ranks")

RANKS, DAY_S, SAVE_S = 3, 2.0, 0.02
KILLS = ((0.5, 1), (0.55, 2), (1.2, 0))  # the second one comes in the restart of the first


def a_day(failures, save=write_whole, hours=24):
    return live_day(DayPlan(RANKS, DAY_S, 0.01, 10, SAVE_S, failures, hours), save)


@pytest.fixture(scope="module")
def days():
    return {name: a_day(failures) for name, failures in (("killed", KILLS), ("quiet", ()))}


@pytest.mark.parametrize("name", ["killed", "quiet"])
def test_what_is_kept_is_the_same_bits_as_without_a_kill(days, name):
    assert days[name]["step"] > 0
    assert np.array_equal(days[name]["weights"], undisturbed(days[name]["step"], RANKS))


def test_every_failure_killed_a_rank(days):
    assert [days[name]["kills"] for name in ("killed", "quiet")] == [3, 0]


def test_a_kill_in_a_restart_begins_it_again(days):
    assert 1 <= len(days["killed"]["restarts_s"]) <= 3
    assert all(0 < restart_s < DAY_S for restart_s in days["killed"]["restarts_s"])


def test_without_a_failure_there_is_no_restart_and_no_work_is_lost(days):
    course = [work_s for _, work_s in days["quiet"]["course"]]
    assert course == sorted(course)
    assert math.isnan(days["quiet"]["restart_s"])


def test_a_kill_takes_work_along(days):
    course = [work_s for _, work_s in days["killed"]["course"]]
    assert course != sorted(course)


@pytest.mark.soak
def test_a_day_with_kills_keeps_less_than_a_quiet_one(days):
    assert days["killed"]["work_s"] < days["quiet"]["work_s"]


def test_a_save_takes_at_least_what_is_declared(days):
    assert days["quiet"]["save_s"] >= SAVE_S


def test_work_between_two_saves_is_that_of_its_steps(days):
    assert days["quiet"]["interval_s"] >= 10 * 0.01


def test_a_rank_reports_the_hours_of_its_day():
    run = launch(a_day, 1, args=((), write_whole, 8), device="cpu", timeout_s=60)
    assert run.reports[0][-1]["steps"] == 8
    assert 4 < run.reports[0][-1]["step"] <= 8 and run.reports[0][-1]["kept"] > 0


def test_a_save_that_fails_is_told():
    def no_disk(path, data):
        if path.exists():
            raise ValueError("no disk")
        write_whole(path, data)

    with pytest.raises(RuntimeError, match="supervisor ended"):
        a_day((), no_disk)


def test_it_starts_without_torch():
    code = "import sys; import worldsize.pytorch.live_cluster; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
