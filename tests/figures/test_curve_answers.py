"""What one curve answers: from where it keeps a limit, where it is least, where most of it lies; and how numbers are said."""

import pytest

from worldsize import figures
from worldsize.figures import Curve, measured_curves
from worldsize.figures.measured_curves import unit_text

pytestmark = pytest.mark.quick

LIMIT = [(1, 0.2), (8, 0.2), (64, 0.2)]


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        ([(1, 0.9), (8, 0.3), (64, 0.1)], "it is at most the limit from 64 on: 0.1; at 8 it is 0.3"),
        ([(1, 0.9), (8, 0.1), (64, 0.3)], "it is over the limit at 64: 0.3"),
        ([(1, 0.1), (8, 0.2), (64, 0.1)], "it is at most the limit everywhere"),
        ([(1, None)], ""),
        ([(2, 0.1)], ""),
    ],
)
def test_a_limit_is_kept_from_the_place_after_the_last_that_is_over_it(curve, words):
    assert measured_curves.within("it", curve, "the limit", LIMIT) == words


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        ([(0, 3.0), (1, 1.0), (2, 2.0)], "time is least, 1, at 1"),
        ([(0, 3.0), (1, 1.0), (2, 1.02)], "time is least, 1, at 1 and 2, a tie"),
        ([(0, 1.0), (1, 1.0)], "time is about 1 at each of them"),
        ([(0, None)], ""),
    ],
)
def test_where_a_curve_is_least_ties_are_named(curve, words):
    assert measured_curves.lowest_place("time", curve) == words


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        ([(1, 1.0), (2, 96.0), (3, 3.0)], "96 % of the parameters lie in layer 2"),
        ([(1, 1.0), (2, 50.0), (3, 46.0), (4, 3.0)], "96 % of the parameters lie in layer 2 to layer 3"),
        ([(1, 0.0), (2, None)], ""),
    ],
)
def test_most_of_a_curve_lies_in_the_shortest_range_that_holds_nine_tenths(curve, words):
    assert measured_curves.bulk_range("parameters", curve, lambda layer: f"layer {layer}") == words


def test_a_limit_is_told_from_where_a_measured_curve_keeps_it():
    rows = [Curve("communication", [(1, 0.9), (64, 0.1)]), Curve("0.2", predicted=LIMIT, limit=True)]
    alt = figures.curves(rows, "From how many images on?", x="images a rank", y="part of a step").alt
    assert "Communication is at most 0.2 from 64 images on: 0.1; at 1 image it is 0.9." in alt


def test_of_a_law_the_limit_is_told():
    rows = [Curve("the law", predicted=[(1, 1.0), (8, 7.0)]), Curve("its limit", predicted=[(1, 20.0), (8, 20.0)], limit=True)]
    alt = figures.curves(rows, "How fast?", x="workers", y="speedup").alt
    assert alt.startswith("How fast? Its limit is 20; the law rises from 1 to 7 at 8 workers.")


def test_of_times_the_lower_one_is_the_faster_one():
    rows = [Curve("ring", [(1, 1.0), (2, 3.0)]), Curve("star", [(1, 2.0), (2, 1.0)])]
    assert "Ring is faster up to 1, star from 2" in figures.curves(rows, "Who?", x="size", y="time of a sum (s)").alt


def test_a_group_of_three_is_compared_also_where_one_is_only_predicted():
    measured = [Curve("ring", [(1, 5.0), (2, 5.0)]), Curve("star", [(1, 9.0), (2, 9.0)])]
    rows = [*measured, Curve("tree", predicted=[(1, 1.0), (2, 9.0)])]
    alt = figures.curves(rows, "Who?", x="size", y="cost", beside=[("ring", "star", "tree")]).alt
    assert "Tree is lowest up to 1, ring from 2" in alt


@pytest.mark.parametrize(
    ("value", "axis", "words"),
    [
        (1, "workers", "1 worker"),
        (8, "backup workers", "8 backup workers"),
        (1, "micro-batches", "1 micro-batch"),
        (16, "images a step", "16 images"),
        (3, "layer", "layer 3"),
        (50.8, "MFU (% of the peak)", "50.8 %"),
        (27.8, "GB/s", "27.8 GB/s"),
        (0.02, "one step (s)", "20 ms"),
        (37_800_000, "numbers", "37.8 million"),
        (2, "how many times as long the straggler takes", "2"),
    ],
)
def test_a_number_is_said_with_what_its_axis_counts(value, axis, words):
    assert unit_text(value, axis) == words


def test_of_a_group_those_that_are_not_yet_written_are_left_out():
    rows = [
        Curve("ring", [(1, None), (2, None)]), Curve("star", [(1, 2.0), (2, 9.0)], [(1, 1.0), (2, 6.0)]),
        Curve("tree", predicted=[(1, 1.0), (2, 12.0)]),
    ]  # fmt: skip
    alt = figures.curves(rows, "Who?", x="size", y="cost", beside=[("ring", "star", "tree")]).alt
    assert "Who? Tree is lower up to 1, star from 2; star is 2 times the prediction at 1." in alt


def test_of_what_is_not_yet_measured_the_prediction_is_called_one():
    alt = figures.curves([Curve("ring", [(1, None)], [(1, 1.0), (2, 3.0)])], "How?", x="ranks", y="cost").alt
    assert alt.startswith("How? Predicted: ring rises from 1 to 3 at 2 ranks.")


def test_of_several_curves_that_grow_the_first_says_what_the_axis_counts():
    rows = [Curve("ring", [(1, 1.0), (2, 3.0)]), Curve("star", [(1, 4.0), (2, 2.0)])]
    alt = figures.curves(rows, "How?", x="ranks", y="cost", growth=True).alt
    assert "Ring rises from 1 to 3 at 2 ranks; star falls from 4 to 2 at 2." in alt


@pytest.mark.parametrize(("flag", "words"), [("least", "is least, 1, at 2"), ("bulk", "lie in"), ("growth", "falls from")])
def test_a_flag_of_the_picture_chooses_what_it_says(flag, words):
    curve = figures.Curve("time", [(1, 9.0), (2, 1.0), (3, 2.0)] if flag != "growth" else [(1, 9.0), (2, 1.0)])
    assert words in figures.curves([curve], "Where?", x="n", y="s", **{flag: True}).alt
