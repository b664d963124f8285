"""A race in panels: who is first under which condition, in the caption and in bold; ties, predictions, what is not yet."""

import pytest

from worldsize import figures
from worldsize.figures import Timing

pytestmark = pytest.mark.quick

TOOK_S = {"slow": {"plain": 1.8, "thin": 0.7}, "fast": {"plain": 0.4, "thin": 0.6}, "faster": {"plain": 0.3, "thin": 0.6}}


def rows(took_s=TOOK_S, predicted_s=TOOK_S):
    return [
        Timing(name, seconds, predicted_s.get(at, {}).get(name), group=at)
        for at, members in took_s.items()
        for name, seconds in members.items()
    ]


def test_the_caption_names_who_is_first_under_each_condition():
    alt = figures.races(rows(), "Who is first?").alt
    assert alt.startswith("Who is first? Thin is first at slow; plain is first at fast and faster; as predicted.")


def test_the_first_of_each_panel_is_in_bold_and_nobody_else():
    axes = figures.races(rows(), "Who is first?").axes
    bold = [[text.get_text().strip() for text in ax.texts if text.get_weight() == "bold"] for ax in axes]
    assert bold == [["700 ms"], ["400 ms"], ["300 ms"]]


def test_rows_may_come_in_any_order():
    by_name = sorted(rows(), key=lambda row: row.name)
    assert figures.races(by_name, "Who is first?").alt == figures.races(rows(), "Who is first?").alt


def test_names_within_a_twentieth_tie_for_first():
    alt = figures.races(rows({"slow": {"plain": 1.0, "thin": 0.98}}, {}), "Who is first?").alt
    assert "Plain and thin tie for first at slow." in alt


def test_names_whose_runs_overlap_tie_for_first_and_others_do_not():
    runs = {"plain": [1.0, 1.2, 1.3], "thin": [0.9, 1.1, 1.25], "slow": [2.0, 2.1, 2.2]}
    bars = [Timing(name, seconds[1], group="fast", repeats_s=seconds) for name, seconds in runs.items()]
    picture = figures.races(bars, "Who is first?")
    assert "Plain and thin tie for first at fast." in picture.alt
    assert figures.first(bars) == "plain and thin tie" and figures.first(bars[2:]) == "slow"
    assert figures.first([*bars[:2], Timing("as thin", 1.1)]) == "3 of 3 tie" and figures.first([Timing("none", None)]) is None
    assert figures.first(bars, most=1) == "2 of 3 tie"


def test_a_prediction_that_names_another_is_told_with_its_condition():
    predicted_s = {**TOOK_S, "fast": {"plain": 0.9, "thin": 0.5}}
    assert "the prediction has thin at fast." in figures.races(rows(predicted_s=predicted_s), "Who is first?").alt


def test_all_panels_share_one_scale():
    assert len({ax.get_xlim() for ax in figures.races(rows(), "Who is first?").axes}) == 1


def test_who_has_no_time_is_not_yet_and_not_first():
    picture = figures.races(rows({"slow": {"plain": 1.0, "thin": None}}, {}), "Who is first?")
    assert "Plain is first at slow." in picture.alt and "thin not yet" in picture.alt


def test_with_nothing_measured_a_race_in_panels_is_not_yet():
    assert figures.races(rows({"slow": {"plain": None}}, {}), "Who is first?").alt.startswith("not yet: plain")


def test_a_question_about_two_of_a_race_is_answered_by_the_time_between_them():
    race = [Timing("ahead", 0.5, 0.4), Timing("none ahead", 0.8, 0.9), Timing("other", 0.1)]
    alt = figures.race(race, "What does it save?", beside=("ahead", "none ahead")).alt
    assert alt.startswith("What does it save? Ahead takes 300 ms less than none ahead; predicted: 500 ms less.")


def test_two_of_a_race_within_their_repetitions_take_about_as_long():
    race = [Timing(name, took_s, repeats_s=[0.3, took_s, 0.9]) for name, took_s in (("a", 0.5), ("b", 0.6))]
    assert "A and b take about as long;" in figures.race(race, "Which is it?", beside=("a", "b")).alt
