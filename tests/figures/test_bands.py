"""Bands of several runs: the middle line, what ties within a spread, and what is not yet written."""

import pytest

from worldsize import figures
from worldsize.figures.statistics.distributions import band

pytestmark = pytest.mark.quick

LOW = [[(1, 2.0), (2, 1.0)], [(1, 2.1), (2, 1.2)], [(1, 1.9), (2, 0.8)]]
HIGH = [[(1, 2.0), (2, 1.8)], [(1, 2.2), (2, 1.9)], [(1, 2.1), (2, 1.7)]]


def drawn(rows):
    return figures.bands(rows, "Who is lower?", x="step", y="loss")


def test_a_band_goes_from_the_lowest_run_to_the_highest_round_the_middle_one():
    one = band("a", LOW)
    assert (one.low, one.middle, one.high) == ((1.9, 0.8), (2.0, 1.0), (2.1, 1.2))


def test_the_finding_says_who_ends_lowest_and_highest_with_their_spreads():
    assert drawn({"a": LOW, "b": HIGH}).alt.startswith(
        "Who is lower? At step 2 a is lower, at 1 (0.8 to 1.2); b higher, at 1.8 (1.7 to 1.9)."
    )


def test_runs_whose_difference_is_within_their_spread_tie():
    near = [[(x, y + 0.1) for x, y in run] for run in LOW]
    assert "At step 2 a and b tie within their spread" in drawn({"a": LOW, "b": near}).alt


def test_single_runs_have_no_band_and_no_spread():
    picture = drawn({"a": LOW[:1]})
    assert not picture.axes[0].collections
    assert "At step 2 a is at 1." in picture.alt


def test_what_is_not_yet_written_is_named_beside_the_others():
    assert drawn({"a": LOW, "yours": None}).alt.endswith("yours: not yet.")
    assert drawn({"yours": None}).alt.startswith("not yet: yours")


def test_runs_with_points_at_other_places_are_an_error():
    with pytest.raises(ValueError, match="all runs in 'a' to have their points at the same x"):
        drawn({"a": [LOW[0], LOW[1][:1]]})


def test_where_only_neighbours_tie_the_ends_are_told():
    middle = [[(x, y + 0.3) for x, y in run] for run in LOW]
    high = [[(x, y + 0.55) for x, y in run] for run in LOW]
    assert "neighbours tie within their spread, from 1 (a) to 1.55 (c)" in drawn({"a": LOW, "b": middle, "c": high}).alt


def test_paired_runs_are_compared_seed_by_seed():
    near = [[(x, y + 0.1) for x, y in run] for run in LOW]
    picture = figures.bands({"a": LOW, "b": near}, "Who is lower?", x="step", y="loss", paired=True)
    assert "At step 2 a is lower, at 1 (0.8 to 1.2); b higher, at 1.1 (0.9 to 1.3)" in picture.alt


def test_not_all_tie_where_two_of_them_do_not():
    middle, high = ([[(x, y + more) for x, y in run] for run in LOW] for more in (0.3, 0.55))
    assert "tie within their spread, at about" not in drawn({"b": middle, "a": LOW, "c": high}).alt


def test_who_is_neither_lowest_nor_highest_is_told_too():
    between = [[(1, 2.0), (2, 1.5)], [(1, 2.0), (2, 1.55)], [(1, 2.0), (2, 1.45)]]
    said = "At step 2 a is lowest, at 1 (0.8 to 1.2); between them m at 1.5 (1.45 to 1.55); b highest, at 1.8 (1.7 to 1.9)."
    assert said in drawn({"a": LOW, "b": HIGH, "m": between}).alt
