"""Distributions in lanes: what they say, and that they can be read."""

import warnings

import matplotlib
import pytest

from worldsize import figures
from worldsize.figures import Sample

pytestmark = pytest.mark.quick

TAIL = [6] * 50 + [35, 36]


def spreads(*rows):
    return figures.spreads(rows, "Is there a tail?", x="staleness (updates)")


def texts(shown):
    return [t.get_text() for t in shown.findobj(matplotlib.text.Text) if t.get_text()]


def test_the_alt_text_gives_mean_prediction_and_reach_of_each_sample():
    alt = spreads(Sample("even", [1, 2, 3], 2), Sample("tail", TAIL)).alt
    assert alt.startswith("Is there a tail? The tail reaches 36 with tail, 3 with even; the mean is 2 with even, 7.13 with ")
    assert alt.endswith("even: mean 2, predicted 2, from 1 to 3. tail: mean 7.13, from 6 to 36.")


def test_bars_of_a_lane_stand_over_their_values_and_the_commonest_is_the_highest():
    shown = spreads(Sample("even", [1, 2, 2, 4]))
    bars = [(bar.get_x() + bar.get_width() / 2, round(-bar.get_height(), 2)) for bar in shown.axes[0].patches]
    assert bars == [(pytest.approx(1), 0.36), (pytest.approx(2), 0.72), (pytest.approx(4), 0.36)]


def test_marked_values_are_the_dark_part_of_their_bars():
    sample = Sample("all", [1, 2, 2, 4], marked=[2, 4])
    shown = figures.spreads([sample], "Whose are old?", x="staleness (updates)", marked="rank 1's")
    bars = [(round(bar.get_x() + bar.get_width() / 2), round(-bar.get_height(), 2)) for bar in shown.axes[0].patches]
    assert bars == [(1, 0.36), (2, 0.72), (4, 0.36), (1, 0.0), (2, 0.36), (4, 0.36)]
    assert "rank 1's" in texts(shown) and "all: mean 2.25, from 1 to 4, rank 1's from 2 to 4" in shown.alt


def test_one_value_far_out_is_a_bar_that_can_be_seen():
    shown = spreads(Sample("tail", [5] * 1000 + [30]))
    assert min(-bar.get_height() for bar in shown.axes[0].patches) >= 0.02


def test_far_values_share_bars_of_several_values():
    shown = spreads(Sample("long", list(range(500))))
    assert len(shown.axes[0].patches) <= 60


def test_the_largest_value_is_written_in_each_lane():
    assert {"36", "3"} <= set(texts(spreads(Sample("tail", TAIL), Sample("even", [1, 2, 3]))))


def test_a_sample_of_an_exercise_not_yet_written_says_so_beside_the_others():
    shown = spreads(Sample("yours", None), Sample("even", [1, 2]))
    assert "not yet" in texts(shown) and "yours: not yet. even: mean 1.5" in shown.alt


@pytest.mark.parametrize("rows", [[], [Sample("yours", None)], [Sample("zero", [0, 0])]])
def test_little_or_nothing_is_a_picture_too(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert spreads(*rows).png()


def test_lanes_differ_in_colour():
    shown = spreads(Sample("a", [1]), Sample("b", [1]))
    one, other = shown.axes[0].patches
    assert one.get_facecolor() != other.get_facecolor()


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([Sample("a", [3, 3], 3)], "The tail reaches 3 with a; the mean is within 5 % of the prediction"),
        ([Sample("a", [0, 0], 0)], "The tail reaches 0 with a; the mean is within 5 % of the prediction"),
        ([Sample("a", [1, 3], 1)], "The tail reaches 3 with a; the mean of a, 2, is above the prediction, 1"),
        ([Sample("a", [3]), Sample("b", [3])], "The tail reaches 3 with a and b; the means tie at about 3"),
        ([Sample("a", [3]), Sample("b", None)], "The tail reaches 3 with a"),
        ([Sample("a", [3], 3), Sample("b", [9], 9)], "each mean is within 5 % of the prediction"),
    ],
)
def test_the_finding_tells_reach_means_and_predictions(samples, words):
    assert words in spreads(*samples).alt


def test_a_question_about_means_is_answered_by_means_first():
    rows = [Sample("even", [1, 2, 3], 2), Sample("tail", TAIL)]
    alt = figures.spreads(rows, "How old on average?", x="staleness (updates)", mean=True).alt
    assert alt.startswith("How old on average? The mean is 2 with even, 7.13 with tail;") and "; the tail reaches 36" in alt
