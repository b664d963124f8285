"""Answers that labs share: which rows grow, and whether two runs stay the same, with words for every outcome."""

from dataclasses import replace

import pytest

from worldsize import figures

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"A": [1.0, 20.0], "B": [2.0, 2.1]}, "only A, 20 times; B stays"),
        ({"A": [1.0, 20.0], "B": [2.0, 1.0]}, "only A, 20 times; B 0.5 times"),
        ({"A": [1.0, 20.0], "B": [2.0, 3.0]}, "both: A 20 times, B 1.5 times"),
        ({"A": [1.0, 1.0], "weights": [2.0, 2.0]}, "neither: A stays, weights stay"),
        ({"A": [1.0, 1.0], "B": [2.0, 2.0], "C": [1.0, 1.0]}, "none: A stays, B stays, C stays"),
        ({"A": [1.0, 2.0], "B": [2.0, 4.0], "C": [1.0, 1.0]}, "only A, 2 times, B, 2 times; C stays"),
        ({"A": [1.0, None], "B": [2.0, 4.0]}, None),
        ({"A": [], "B": [2.0, 4.0]}, None),
    ],
)
def test_rows_that_grow_are_told_from_those_that_stay_or_fall(rows, words):
    assert figures.growing(rows) == words


def test_the_last_number_may_stand_in_place_of_the_growth():
    assert figures.growing({"A": [1.0, 20.0], "B": [2.0, 2.1]}, last="{:g} %".format) == "only A, to 20 %; B to 2.1 %"


@pytest.mark.parametrize(
    ("apart", "words"),
    [
        ([0.0, 4.44e-16], "yes, up to rounding (4.4e-16)"),
        ([0.2, 0.1234], "no, up to 0.2 apart"),
        ([0.0, 0.0], "yes, to the last bit"),
        (None, None),
    ],
)
def test_runs_stay_the_same_up_to_rounding_or_part(apart, words):
    assert figures.same(apart, rounding=1e-9) == words


def bars(*seconds):
    """Star and tree at 2 ranks, and then at 8."""
    places = [("star", 2), ("tree", 2), ("star", 8), ("tree", 8)]
    return [figures.Timing(name, s, world_size=n) for (name, n), s in zip(places, seconds, strict=True)]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((1.0, 1.01, 3.0, 2.0), "2 ranks: a tie; 8 ranks: tree, 1.5 times"),
        ((3.0, 2.0, 1.0, 1.0), "2 ranks: tree, 1.5 times; 8 ranks: a tie"),
        ((1.0, 1.0, 2.0, 2.0), "a tie at 2 ranks and 8 ranks"),
        ((2.0, 1.0, 3.0, 1.0), "tree: 2 times (2 ranks), 3 times (8 ranks)"),
        ((1.0, 2.0, 3.0, 1.0), "2 ranks: star; 8 ranks: tree"),
        ((1.0, 2.0, 3.0, None), None),
    ],
)
def test_of_two_the_faster_one_is_told_in_the_first_group_and_in_the_last(seconds, words):
    assert figures.quicker(bars(*seconds)) == words


def test_two_whose_repetitions_overlap_tie():
    repeats = [(0.8, 1.0, 1.6), (1.1, 1.5, 1.7), (2.9, 3.0, 3.1), (1.9, 2.0, 2.1)]
    rows = [replace(bar, repeats_s=own) for bar, own in zip(bars(1.0, 1.5, 3.0, 2.0), repeats, strict=True)]
    assert figures.quicker(rows) == "2 ranks: a tie; 8 ranks: tree, 1.5 times"
