"""Intervals against what was measured: what holds, what misses, and what is said of them."""

import re

import numpy as np
import pytest

from worldsize import figures
from worldsize.figures import Forecast
from worldsize.figures.statistics.held_intervals import finding

pytestmark = pytest.mark.quick

HOLDS = Forecast(8.0, 10.0, 12.0, 11.0)
MISSES = Forecast(8.0, 10.0, 12.0, 20.0)


def test_an_interval_holds_from_its_low_to_its_high_end():
    held = [Forecast(8.0, 10.0, 12.0, measured).holds for measured in (7.9, 8.0, 12.0, 12.1)]
    assert held == [False, True, True, False]


def test_how_far_off_a_middle_is_is_a_share_of_what_was_measured():
    assert MISSES.off == pytest.approx(-0.5)
    assert MISSES.half_width == pytest.approx(0.2)


def test_the_finding_counts_what_holds_and_says_what_should():
    said = finding({"one": [HOLDS] * 8, "other": [MISSES] * 2}, 0.9)
    assert said.startswith("8 of 10 intervals hold, 80 % (90 % should)")
    assert "on average ± 20 % wide, the middle 17 % off" in said


def test_every_forecast_is_drawn_once_and_what_misses_has_another_mark():
    picture = figures.intervals({"one": [HOLDS] * 5, "other": [MISSES] * 3}, "Do they hold?")
    (ax,) = picture.axes
    counts = {line.get_marker(): len(line.get_xdata()) for line in ax.lines if line.get_marker() in ("o", "X")}
    assert counts["X"] == 3 and counts["o"] == 5
    assert "one: 5 of 5 hold" in picture.alt and "other: 0 of 3 hold" in picture.alt


def test_numbers_of_numpy_are_drawn_too():
    picture = figures.intervals({"one": [Forecast(*np.array([8.0, 10.0, 12.0, 20.0]))]}, "Do they hold?")
    assert [len(line.get_xdata()) for line in picture.axes[0].lines if line.get_marker() == "X"] == [1]


def test_what_is_far_off_is_drawn_at_the_edge():
    picture = figures.intervals({"far": [Forecast(90.0, 100.0, 110.0, 1.0)]}, "Do they hold?")
    low, high = picture.axes[0].get_ylim()
    assert low < 0 < 100 < high < 160


@pytest.mark.parametrize("groups", [{"Exercise 16.3": None}, {"Exercise 16.3": []}])
def test_without_forecasts_the_picture_says_so(groups):
    assert figures.intervals(groups).alt.startswith("not yet: Exercise 16.3")


def test_a_group_that_is_not_written_is_named_beside_one_that_is():
    picture = figures.intervals({"yours": None, "given": [HOLDS]}, "Do they hold?")
    assert re.search(r"yours: not yet.* given: 1 of 1 hold", picture.alt)
