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
