"""Days of failures: what is kept, what falls, and that it can be read."""

import matplotlib
import pytest

from worldsize import figures
from worldsize.figures.kept_work import falls

pytestmark = pytest.mark.quick

OFTEN = [(0, 0), (10, 8), (11, 7), (24, 18)]
RARELY = [(0, 0), (10, 9), (11, 3), (24, 12)]


def texts(shown):
    return [t.get_text() for t in shown.findobj(matplotlib.text.Text) if t.get_text()]


def test_the_alt_text_says_who_keeps_most_and_how_deep_each_falls():
    alt = figures.kept_work({"often": OFTEN, "rarely": RARELY}, [10.5], "Who keeps most?").alt
    assert alt.startswith("Who keeps most? Often keeps most, 18 hours, 1.5 times what rarely keeps. 1 kill.")
    assert "often: 18 hours of work kept, 1 fall, the deepest 1 hour" in alt
    assert "rarely: 12 hours of work kept, 1 fall, the deepest 6 hours" in alt


def test_a_fall_is_told_with_its_hour_and_depth():
    assert falls(RARELY) == [(11, 6)]
    assert falls([(0, 0), (1, 1)]) == []


def test_both_ends_of_a_fall_are_drawn_however_many_points_there_are():
    course = [(hour / 1000, hour / 1000) for hour in range(20_000)]
    course += [(20, 1.0), (24, 5.0)]
    line = figures.kept_work({"day": course}, []).axes[0].lines[1]
    drawn = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert {(19.999, 19.999), (20, 1.0)} <= set(drawn)
    assert len(drawn) < 600


def test_kills_are_marked_at_their_hours():
    shown = figures.kept_work({"often": OFTEN}, [3, 10.5])
    (marks,) = [line for line in shown.axes[0].lines if line.get_label() == "a rank is killed"]
    assert list(marks.get_xdata()) == [3, 10.5]


def test_a_shorter_day_fills_the_picture():
    axes = figures.kept_work({"often": [(0, 0), (4, 3)]}, [1], hours=4).axes[0]
    assert axes.get_xlim() == (0, 4)
    assert list(axes.get_xticks()) == [0, 1, 2, 3, 4]


def test_what_is_not_yet_written_says_so():
    assert "not yet" in figures.kept_work({"often": None}, []).alt
    both = figures.kept_work({"often": OFTEN, "yours": None}, [])
    assert "yours: not yet" in both.alt
    assert any("yours: not yet" in text for text in texts(both))


def test_days_differ_by_colour_and_by_marker():
    lines = figures.kept_work({"often": OFTEN, "rarely": RARELY}, []).axes[0].lines[1:3]
    assert len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == 2


def test_a_statement_over_it_is_refused():
    with pytest.raises(ValueError, match="question"):
        figures.kept_work({"often": OFTEN}, [], "Young wins")
