"""Losses against steps and against seconds: what the picture says, and what it leaves out."""

import math
import warnings

import matplotlib
import pytest

from worldsize import figures
from worldsize.figures import Descent

pytestmark = pytest.mark.quick

SLOW = Descent("slow", [(step, step * 0.1, 5 * 0.8**step) for step in range(40)])
QUICK = Descent("quick", [(step, step * 0.003, 0.05 + 5 * 0.9**step) for step in range(400)])


def descents(*rows):
    return figures.descents(rows, "Who wins?", y="loss")


def test_the_same_losses_stand_against_steps_and_against_seconds():
    left, right = descents(SLOW).axes
    assert list(left.lines[0].get_ydata()) == list(right.lines[0].get_ydata())
    assert (left.lines[0].get_xdata()[-1], right.lines[0].get_xdata()[-1]) == (39, pytest.approx(3.9))


def test_steps_end_with_the_shortest_run_and_seconds_with_the_longest():
    left, right = descents(SLOW, QUICK).axes
    assert (left.get_xlim()[1], right.get_xlim()[1]) == (pytest.approx(39, rel=0.05), pytest.approx(3.9, rel=0.05))


def test_the_alt_text_says_where_each_run_began_and_ended():
    alt = descents(SLOW).alt
    assert alt.startswith("Who wins? Slow falls from 5 to 0.000831 at step 39.")
    assert alt.endswith("slow: from 5 to 0.000831 after 39 steps and 3.9 s, lowest 0.000831.")


def test_a_run_that_diverges_leaves_the_picture_and_not_the_alt_text():
    wild = Descent("wild", [(step, step * 0.01, 5.0 * 3**step) for step in range(40)])
    shown = descents(SLOW, wild)
    assert shown.axes[0].get_ylim()[1] < 1000 and "wild: from 5 to 2.03e+19" in shown.alt


@pytest.mark.parametrize("bad", [math.inf, math.nan, 0.0, -1e-9])
def test_a_loss_that_cannot_be_drawn_is_left_out(bad):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert descents(Descent("odd", [(0, 0.0, 5.0), (1, 0.1, bad), (2, 0.2, 1.0)])).png()


def test_a_run_of_an_exercise_not_yet_written_says_so_beside_the_others():
    shown = descents(SLOW, Descent("yours", None))
    assert "yours: not yet" in shown.alt and len(shown.axes[0].lines) == 1


@pytest.mark.parametrize("rows", [(), (Descent("yours", None),)])
def test_nothing_to_draw_is_a_picture_with_words(rows):
    assert descents(*rows).alt in ("nothing was measured", "not yet: yours")


def test_lines_differ_in_colour_dashes_and_marker():
    one, other = descents(SLOW, QUICK).axes[0].lines
    looks = [(line.get_color(), line.get_marker(), line.get_linestyle()) for line in (one, other)]
    assert all(a != b for a, b in zip(*looks, strict=True))


def test_the_legend_is_inside_the_picture():
    shown = descents(SLOW, QUICK)
    shown.png()
    legend = shown.findobj(matplotlib.legend.Legend)[0].get_window_extent()
    assert shown.bbox.x0 <= legend.x0 and legend.x1 <= shown.bbox.x1
