"""Stacked bars: every part told, groups not yet measured named, one scale for all."""

import pytest

from worldsize import figures

pytestmark = pytest.mark.quick

GROUPS = {"replicas": [{"weights": 2000, "rest": 1000}, {"weights": 2000, "rest": 0}], "stages": None}


def test_the_alt_text_tells_every_part_of_every_rank():
    alt = figures.stacks(GROUPS, "Who holds most?").alt
    assert alt.startswith("Who holds most? Rank 0 has most, 3 kB, 1.5 times what rank 1 has.")
    assert "replicas: rank 0 weights 2 kB, rest 1 kB; rank 1 weights 2 kB, rest 0 B." in alt


def test_a_group_that_is_not_measured_yet_is_named():
    picture = figures.stacks(GROUPS, "How much?")
    assert picture.alt.endswith("stages: not yet.")
    assert "stages: not yet" in [text.get_text() for text in picture.axes[0].texts]


def test_the_sum_stands_beside_each_bar():
    texts = [text.get_text().strip() for text in figures.stacks(GROUPS, "How much?").axes[0].texts]
    assert {"3 kB", "2 kB"} <= set(texts)


def test_with_nothing_measured_a_picture_says_so():
    assert figures.stacks({"stages": None}, "How much?").alt == "not measured yet: stages"


def test_a_sum_is_not_written_across_the_line_of_a_limit():
    groups = {"plans": {"just under": {"held": 78e9}, "far under": {"held": 30e9}, "over": {"held": 100e9}}}
    texts = figures.stacks(groups, "Which fit?", limit=("80 GB", 80e9)).axes[0].texts
    at = {text.get_text().strip(): text.get_position()[0] for text in texts}
    assert (at["78 GB"], at["30 GB"], at["100 GB"]) == pytest.approx((80, 30, 100))


COMPARED = {"yours": {"rank 0": {"sent": 40.0}, "formula": {"by hand": 99.0}}, "copies": {"rank 0": {"sent": 20.0}}}


def test_the_finding_is_about_what_was_measured_and_not_about_a_formula():
    alt = figures.stacks(COMPARED, "Who sends most?").alt
    assert alt.startswith("Who sends most? Yours has most, 40 B, 2 times what copies has.")


def test_a_formula_is_no_part_of_a_whole_in_the_legend():
    legend = figures.stacks(COMPARED, "Who sends most?").axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["sent"]


def test_the_bar_of_a_formula_has_a_dashed_outline_and_no_other_has():
    bars = figures.stacks(COMPARED, "Who sends most?").axes[0].patches
    assert [bar.get_linestyle() not in ("-", "solid") for bar in bars] == [False, True, False]


def test_where_all_bars_are_of_formulas_the_finding_compares_them():
    groups = {"formula of one": [{"w": 10.0}], "formula of all": [{"w": 30.0}]}
    assert figures.stacks(groups).alt.startswith("Formula of all has most, 30 B, 3 times what formula of one has.")


def test_a_way_that_stands_beside_formulas_alone_is_told_by_its_name():
    groups = {"least, by formula": [{"w": 10.0}], "FSDP2": [{"w": 30.0}, {"w": 30.0}]}
    assert figures.stacks(groups, "How much?").alt.startswith("How much? FSDP2 has 30 B.")


def test_the_parts_of_training_have_their_colours_where_others_are_missing_too():
    colours = []
    for row in ({"parameters": 1.0, "gradients": 1.0, "optimizer": 2.0}, {"optimizer": 2.0}):
        colours.append(figures.stacks({"cut": [row]}, "How much?").axes[0].patches[-1].get_facecolor())
    assert colours[0] == colours[1]


def test_a_part_too_thin_for_its_bar_s_edges_has_them_in_its_own_colour():
    thick, thin = figures.stacks({"cut": [{"parameters": 1000.0, "gradients": 2.0}]}, "How much?").axes[0].patches
    assert thin.get_edgecolor() == thin.get_facecolor()
    assert thick.get_edgecolor() != thick.get_facecolor()
