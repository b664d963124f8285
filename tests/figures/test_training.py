"""Histories and paths: lines that lie on each other, exercises not yet written, zeros on a logarithmic axis."""

import math
import re

import pytest

from worldsize import figures
from worldsize.figures.training import BROAD, THIN, hidden

pytestmark = pytest.mark.quick


def widths(picture):
    return [line.get_linewidth() for line in picture.axes[0].lines if len(line.get_xdata()) > 1]


def test_a_line_under_another_is_drawn_broader():
    picture = figures.histories({"one": [1.0, 2.0], "four": [1.0, 2.0001], "other": [3.0, 1.0]}, "Which is it?", y="loss")
    assert widths(picture) == [BROAD, THIN, THIN]


def test_lines_of_other_lengths_hide_nothing():
    assert not hidden("a", {"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]})


def test_a_zero_on_a_logarithmic_axis_is_drawn_and_named():
    ax = figures.histories({"right": [0.0, 1e-3]}, "Which?", y="difference", log=True).axes[0]
    assert min(ax.lines[0].get_ydata()) > 0
    assert [text.get_text() for text in ax.texts] == ["0"]


def test_a_run_that_is_not_yet_there_is_named_beside_the_others():
    alt = figures.histories({"yours": None, "one process": [2.0, 1.0]}, "Who learns?", y="loss").alt
    assert alt.startswith("Who learns? One process falls from 2 to 1 at step 2.")
    assert alt.endswith("yours: not yet. one process: loss 2 at the first step, 1 at step 2.")


def test_histories_of_which_none_is_there_give_a_not_yet_picture():
    assert figures.histories({"yours": None}, "Who learns?", y="loss").alt.startswith("not yet: yours")


def test_of_many_that_are_missing_the_title_names_two_and_the_alternative_text_all() -> None:
    picture = figures.histories(dict.fromkeys(["one", "two", "three", "four"]), "Who learns?", y="loss")
    assert [text.get_text() for text in picture.texts] == ["not yet: one, two and 2 more"]
    assert "one, two, three, four" in picture.alt


def test_the_finding_leads_the_alt_text_of_paths_and_goals_are_told():
    alt = figures.paths({"rank 0": [(0, 0), (2, -1)]}, {"best": (3, -2)}, lambda a, b: a + b, "Which way?", x="slope", y="b").alt
    assert alt == "Which way? It ends 1 from the best. rank 0: ends at (2, -1). best: (3, -2)."


def test_a_path_under_another_is_drawn_broader():
    rows = {"one": [(0, 0), (2, -1)], "four": [(0, 0), (2, -1)]}
    picture = figures.paths(rows, {}, lambda a, b: a**2 + b**2, "Which way?", x="a", y="b")
    assert widths(picture)[:2] == [BROAD, THIN]


def test_paths_of_which_none_is_there_give_a_not_yet_picture():
    assert figures.paths({"yours": None}, {}, lambda a, b: 0.0, "Which way?", x="a", y="b").alt.startswith("not yet: yours")


def test_lines_are_compared_at_the_marked_steps_alone():
    rows = {"save": [900.0, 40.0, 300.0, 40.0, 310.0], "async_save": [40.0, 40.0, 60.0, 40.0, 50.0]}
    alt = figures.histories(rows, "Which stalls longest?", y="step (ms)", marked=("a save", (3, 5))).alt
    assert "In the mean of the steps with a save save is highest, 305" in alt


def test_marked_steps_that_no_line_has_are_said():
    alt = figures.histories({"save": [40.0, 40.0]}, "Which stalls longest?", y="step (ms)", marked=("a save", (3, 5))).alt
    assert "No line has a step with a save" in alt



def test_lines_are_compared_in_their_means_where_the_last_step_is_noise():
    rows = {"none": [0.0, 0.0], "one": [0.5, 0.1], "other": [0.1, 0.2]}
    alt = figures.histories(rows, "Which is missed most?", y="difference", mean=True).alt
    assert "In the mean of all steps one is highest, 0.3; none is 0." in alt


def test_of_two_lines_the_one_that_ends_at_nothing_is_named():
    alt = figures.histories({"mended": [2.0, 0.5], "wild": [2.0, math.nan]}, "Does the loss show it?", y="loss").alt
    assert alt.startswith("Does the loss show it? Mended ends at 0.5; wild at no finite loss.")


def test_lines_are_equal_that_stay_under_what_rounding_makes():
    rows = {"wrong": [0.0, 0.1, 0.2], "right": [0.0, 1e-7, 1e-6], "exact": [0.0, 0.0, 0.0]}
    alt = figures.histories(rows, "Are they one?", y="difference", log=True, rounding=1e-5).alt
    assert "Right and exact stay equal up to rounding; wrong differs from step 2 on, by 0.2 at the end." in alt


def test_all_is_not_said_of_some_lines():
    rows = {"wrong": [1.0]} | {f"way {k}": [0.0] for k in range(5)}
    alt = figures.histories(rows, "Are they one?", y="difference", log=True, rounding=1e-5).alt
    assert "5 of 6 stay equal up to rounding; wrong differs" in alt


def test_lines_are_told_by_how_they_run_where_that_was_asked():
    alt = figures.histories({"a": [3.0, 3.0], "b": [2.0, 1.0]}, "Do they meet?", y="gap", growth=True).alt
    assert "A stays at 3 from step 1 to step 2; b falls from 2 to 1 at step 2." in alt


def test_the_line_that_ends_between_two_others_is_told_too():
    alt = figures.histories({"a": [2.0, 1.0], "b": [2.0, 3.0], "c": [2.0, 2.0]}, "Where do they end?", y="loss").alt
    assert "A ends lowest, at 1; b highest, at 3; between them c at 2." in alt


def test_a_question_about_errors_is_answered_by_the_worst_of_each_line():
    rows = {"padding counted": [0.0, -16.7, 0.0, -1.7], "yours": [0.0] * 4}
    alt = figures.histories(rows, "How far off is it?", y="error (points)", x="size", errors=True).alt
    assert alt.startswith("How far off is it? Padding counted is up to 16.7 points off, at size 2; yours is never off.")


def test_a_line_that_ends_at_zero_has_its_name_inside_a_logarithmic_picture():
    rows = {"right": [1e-8, 0.0], "wrong": [0.1, 0.3]}
    picture = figures.histories(rows, y="difference", log=True, rounding=1e-6)._repr_html_()
    height = float(re.search(r'viewBox="0 0 \S+ ([\d.]+)"', picture)[1])
    (place,) = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>right</text>', picture)
    assert 0 < float(place) < height


def test_names_of_many_lines_that_end_at_the_bottom_stand_on_each_other_above_the_axis():
    rows = {f"way {k}": [1e-9, 1e-9] for k in range(8)} | {"wrong": [0.1, 0.3]}
    picture = figures.histories(rows, y="difference", log=True)._repr_html_()
    height = float(re.search(r'viewBox="0 0 \S+ ([\d.]+)"', picture)[1])
    places = sorted(float(place) for place in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>way \d</text>', picture))
    assert len(places) == 8 and places[-1] < height
    assert min(after - before for before, after in zip(places, places[1:], strict=False)) > 8


def test_errors_are_drawn_apart_each_on_a_stem_from_zero_and_side_by_side():
    ax = figures.histories({"a": [3.0, 0.0, 2.0], "b": [1.0, 2.0, 0.0]}, y="error (points)", x="size", errors=True).axes[0]
    stems = [path.vertices.tolist() for lines in ax.collections for path in lines.get_paths()]
    assert len(stems) == 6 and all(low[0] == high[0] and low[1] == 0 for low, high in stems)
    assert {line.get_linestyle() for line in ax.lines} == {"None"} and len({stem[0][0] for stem in stems}) == 6
