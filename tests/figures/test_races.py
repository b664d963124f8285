"""Races of bars: what several groups have in common is said once, how near predictions were is said, and lines are explained."""

import matplotlib
import pytest

from worldsize import figures
from worldsize.figures import Timing

pytestmark = pytest.mark.quick


def race(*rows, asks="Who is first?"):
    return figures.race(rows, asks)


def texts(shown):
    return [text.get_text() for text in shown.findobj(matplotlib.text.Text)]


def test_groups_with_the_same_answer_are_told_together():
    rows = [Timing(name, n * 1.0, None, n) for n in (2, 4, 8) for name in ("star", "tree")]
    assert race(*rows).alt.startswith("Who is first? 2 ranks, 4 ranks and 8 ranks: star and tree tie.")


def test_groups_with_different_answers_are_told_one_by_one():
    rows = [Timing(name, took_s, None, n) for name, took_s, n in [("star", 1, 2), ("tree", 1, 2), ("star", 3, 8), ("tree", 1, 8)]]
    assert "2 ranks: star and tree tie; 8 ranks: tree is 3 times as fast as star" in race(*rows).alt


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(1.0, 1.0), (2.0, 1.95)], "all within 5 % of what was predicted"),
        ([(1.1, 1.0), (3.0, 2.0)], "measured: 1.1 to 1.5 times what was predicted"),
        ([(1.5, 1.0), (3.0, 2.0)], "all about 1.5 times what was predicted"),
    ],
)
def test_how_near_the_predictions_were_is_told(pairs, words):
    rows = [Timing(f"way {k}", measured, predicted) for k, (measured, predicted) in enumerate(pairs)]
    assert words in race(*rows).alt


def test_simulated_bars_are_not_called_measured():
    rows = [Timing("star", 1.1, 1.0), Timing("tree", 3.0, 2.0)]
    shown = figures.race(rows, "Who is first?", simulated=True)
    assert "simulated: 1.1 to 1.5 times what was predicted" in shown.alt
    assert "simulated" in texts(shown) and "measured" not in texts(shown)


@pytest.mark.parametrize("pairs", [[(1.0, None), (2.0, None)], [(1.0, 1.0), (2.0, None)], [(float("inf"), 1.0), (2.0, 1.0)]])
def test_of_less_than_two_predictions_nothing_is_told(pairs):
    rows = [Timing(f"way {k}", measured, predicted) for k, (measured, predicted) in enumerate(pairs)]
    assert "what was predicted" not in race(*rows).alt


def test_a_winner_of_each_repetition_is_one_though_the_other_scatters():
    rows = [
        Timing("eager", 0.041, repeats_s=[0.024, 0.03, 0.041, 0.4, 0.45]),
        Timing("graph", 0.002, repeats_s=[0.001, 0.002, 0.002, 0.002, 0.009]),
    ]
    shown = race(*rows)
    assert "Graph is 20 times as fast as eager" in shown.alt and " 20 times" in texts(shown)


def test_how_many_times_stands_right_of_the_longest_repetition_and_its_time():
    shown = race(Timing("a", 1.0, repeats_s=[0.9, 1.0, 3.0]), Timing("b", 0.1, repeats_s=[0.1, 0.1, 0.2]))
    [said] = [text for text in shown.axes[0].texts if text.get_text() == " 10 times"]
    assert said.get_position()[0] > 3.0


def test_a_line_over_a_bar_is_explained_where_there_is_one():
    said = "bar: the middle run; thin line: from the shortest to the longest"
    assert said in texts(race(Timing("a", 2.0, repeats_s=[1.0, 2.0, 3.0]), Timing("b", 9.0)))
    assert said not in texts(race(Timing("a", 2.0), Timing("b", 9.0)))


def test_a_goal_that_is_not_reached_is_never_and_no_bar():
    shown = race(Timing("wild", float("inf"), float("inf"), repeats_s=[1.0, float("inf")]), Timing("tame", 1.0, 1.0))
    assert "wild: never, predicted never" in shown.alt and " never" in texts(shown)
