"""Curves with repetitions and marks: what is drawn of them, what ties within their ends, and what is said."""

import matplotlib
import pytest

from worldsize import figures
from worldsize.figures import Curve, tokens

pytestmark = pytest.mark.quick

TIMES = {1: [9.0, 10.0, 12.0], 2: [5.0, 6.0, 6.5]}


def drawn(rows, **more):
    return figures.curves(rows, "How many?", x="batch", y="steps", **more)


def texts(shown):
    return [t.get_text() for t in shown.findobj(matplotlib.text.Text) if t.get_text()]


def test_a_line_goes_from_the_least_repetition_to_the_greatest():
    shown = drawn([Curve("measured", [(1, 10.0), (2, 6.0)], repeats=TIMES)])
    upright = [list(line.get_ydata()) for line in shown.axes[0].lines if list(line.get_xdata()) == [1, 1]]
    assert upright == [[9.0, 12.0]]
    assert any("least to greatest repetition" in text for text in texts(shown))


def test_without_repetitions_nobody_reads_of_them():
    assert not any("repetition" in text for text in texts(drawn([Curve("measured", [(1, 10.0), (2, 6.0)])])))


def test_curves_tie_where_the_repetitions_of_one_reach_to_the_other():
    rows = [
        Curve("first", [(1, 10.0), (2, 6.0)], repeats={2: [5.0, 6.0, 8.0]}),
        Curve("second", [(1, 20.0), (2, 7.0)]),
        Curve("third", [(1, 30.0), (2, 30.0)]),
    ]
    assert "First is lowest up to 1, first and second from 2" in drawn(rows).alt


def test_a_mark_is_named_where_it_stands_and_in_the_alt_text():
    shown = drawn([Curve("measured", [(1, 10.0), (2, 6.0)])], marks={"knee": 1.5, "foretold": None})
    assert "knee: 1.5" in texts(shown) and not any(text.startswith("foretold") for text in texts(shown))
    assert "knee: at 1.5. foretold: not yet." in shown.alt


def test_a_mark_at_the_right_has_its_name_at_its_left():
    shown = drawn([Curve("measured", [(0, 10.0), (10, 6.0)])], marks={"early": 1.0, "late": 9.0})
    sides = {text.get_text(): text.get_ha() for text in shown.findobj(matplotlib.text.Text)}
    assert (sides["early: 1"], sides["late: 9"]) == ("left", "right")


def test_a_question_about_growth_is_answered_by_how_each_curve_runs():
    rows = [Curve("activations", [(1, 10.0), (4, 40.0)]), Curve("weights", [(1, 20.0), (4, 20.0)])]
    assert "Activations rise from 10 to 40 at 4; weights stay at 20 from 1 to 4" in drawn(rows, growth=True).alt


def test_a_question_about_pairs_is_answered_pair_by_pair_and_a_level_is_one_of_a_pair():
    rows = [
        Curve("a", [(1, 10.0), (4, 40.0)]), Curve("b", [(1, 20.0), (4, 20.0)]), Curve("c", [(1, 1.0), (4, 1.0)]),
        Curve("allowed", predicted=[(1, 15.0), (4, 15.0)]),
    ]  # fmt: skip
    said = drawn(rows, beside=[("a", "b"), ("a", "allowed")]).alt
    assert "A is lower up to 1, b from 4; a is lower up to 1, allowed from 4" in said


def test_one_simulation_is_held_against_its_formula_and_real_ranks_against_it():
    rows = [
        Curve("real", [(1, 10.0), (2, 22.0)]),
        Curve("simulated", simulated=[(1, 10.0), (2, 20.0)], predicted=[(1, 10.0), (2, 25.0)]),
    ]
    shown = drawn(rows)
    assert "Simulated is up to 20 % below the formula, at 2; real is up to 10 % above the simulation, at 2" in shown.alt
    assert "large markers: real ranks; lines: simulated ones; dashed: by the formula" in texts(shown)


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        ("ranks", "density (%)", "A rises from 1 % to 5 % at 4 ranks"),
        ("bandwidth (MB/s)", "time (times the ideal)", "A rises from 1 times the ideal to 5 times the ideal at 4 MB/s"),
        ("micro-batches", "each sends (bytes)", "A rises from 1 B to 5 B at 4 micro-batches"),
        ("slope", "test error (1 − accuracy)", "A rises from 1 to 5 at 4"),
    ],
)  # fmt: skip
def test_a_caption_names_units_and_what_is_counted(x, y, told):
    assert told in figures.curves([Curve("a", [(1, 1.0), (4, 5.0)])], "How does it run?", x=x, y=y).alt


REPEATS = {1: [80.0, 90.0], 2: [40.0, 50.0], 4: [35.0, 45.0], 8: [30.0, 41.0]}


def measured(name, repeats):
    return Curve(name, [(x, sum(ys) / len(ys)) for x, ys in repeats.items()], repeats=repeats)


def test_up_to_where_more_helps_is_answered_by_the_last_place_whose_range_is_clear_of_those_before():
    alt = figures.curves([measured("steps", REPEATS)], "Up to which batch?", x="batch", y="steps", until_level=True).alt
    assert "Up to which batch? Steps falls from 85 at 1 to 45 at 2; from there on its ranges overlap." in alt


def test_a_curve_that_falls_to_its_last_place_has_not_come_to_rest():
    falling = {x: [y, y + 1] for x, y in ((1, 90.0), (2, 60.0), (4, 30.0))}
    alt = figures.curves([measured("steps", falling)], "Up to which batch?", x="batch", y="steps", until_level=True).alt
    assert "Steps falls from 90.5 at 1 to 30.5 at 4, the last one." in alt


def test_who_stands_where_at_the_last_place_is_told_by_ranges():
    rows = [measured(name, {8: ys}) for name, ys in (("small", [19.0, 20.0]), ("rule", [30.0, 33.0]), ("same", [80.0, 90.0]))]
    alt = figures.curves(rows, "Who learns as much?", x="epochs", y="error (%)", at_end=True).alt
    said = "small is lowest, at 19.5 % (19 % to 20 %); between them rule at 31.5 % (30 % to 33 %); same highest, at 85 %"
    assert f"At 8 epochs {said}" in alt


def test_of_curves_that_are_only_computed_each_is_told_where_the_first_one_ends():
    rows = [Curve(name, predicted=[(1, 20.0), (10, y)]) for name, y in (("with failures", 4.0), ("without", 3.0))]
    alt = figures.curves(rows, "What do ten times as many buy?", x="GPUs", y="training (days)").alt
    assert "With failures falls from 20 days to 4 days at 10 GPUs; without is at 3 days." in alt


def test_of_growing_curves_that_are_only_computed_each_is_told_from_end_to_end():
    rows = [Curve(name, predicted=[(1, y), (10, 10 * y)]) for name, y in (("scores", 4.0), ("keys", 3.0))]
    alt = figures.curves(rows, "What grows faster?", x="tokens", y="ms", growth=True).alt
    assert "Scores rise from 4 to 40 at 10 tokens; keys rise from 3 to 30 at 10 tokens." in alt


def test_of_many_points_some_are_read_out_with_the_first_and_the_last():
    alt = figures.curves([Curve("share", [(step, float(step)) for step in range(60)])], "What now?", x="steps", y="share").alt
    said = alt.split("share (20 of 60 points): ")[1]
    assert said.startswith("0 at 0, 3 at 3") and said.rstrip(".").endswith("59 at 59") and said.count(" at ") == 20


def test_a_curve_that_ends_early_is_named_beside_its_last_point():
    rows = [Curve("early", [(1, 1.0), (2, 2.0)]), Curve("late", [(1, 2.0), (10, 4.0)])]
    drawn_at = {text.get_text(): text.get_position() for text in drawn(rows).axes[0].texts}
    assert drawn_at["early"] == (9, -9) and drawn_at["late"][0] > 1


def test_a_ratio_past_reading_is_told_as_two_values():
    rows = [Curve("apart", [(1, 1.0), (8, 0.1)]), Curve("synced", [(1, 1.0), (8, 1e-16)])]
    assert "Synced is lower from 8 on, at 8 1e-16 against 0.1." in figures.curves(rows, "How far?", x="size", y="off").alt


def test_curves_that_are_only_computed_have_their_ticks_at_their_points():
    rows = [Curve("days", predicted=[(1024, 20.0), (2048, 11.0), (10240, 4.0)])]
    ax = figures.curves(rows, "How long?", x="GPUs", y="training (days)", log=True).axes[0]
    assert list(ax.get_xticks()) == [1024, 2048, 10240]


def markers(shown):
    return [line for line in shown.axes[0].lines if line.get_marker() not in ("None", "", None)]


def learning(x, **more):
    rows = [Curve(name, [(k, 9.0 - k) for k in range(1, 5)], **more) for name in ("a", "b", "c")]
    return figures.curves(rows, "Who learns most?", x=x, y="error (%)")


@pytest.mark.parametrize(
    ("x", "joined"), [("epochs", True), ("step", True), ("ranks", False), ("step after the checkpoint", False)]
)
def test_what_is_measured_on_the_way_through_a_training_is_joined_and_side_by_side(x, joined):
    shown = learning(x)
    shown.canvas.draw()
    lefts = [line.get_transform().transform((2, 3))[0] for line in markers(shown)]
    assert {line.get_linestyle() for line in markers(shown)} == {"-" if joined else "None"}
    assert len(set(lefts)) == (3 if joined else 1) and max(lefts) - min(lefts) < 0.1 * shown.dpi
    low, high = shown.axes[0].get_ylim()
    assert low == 0 and 8 < high < 10


def test_markers_beside_a_predicted_line_are_not_joined():
    shown = learning("epochs", predicted=[(1, 8.0), (4, 5.0)])
    assert {line.get_linestyle() for line in markers(shown)} == {"None"}


def test_a_single_curve_has_no_legend():
    assert drawn([Curve("measured", [(1, 10.0), (2, 6.0)])]).axes[0].get_legend() is None


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    ("name", "shown"), [("time of a step (s)", "time of a step"), ("kept (bytes)", "kept"), ("error (%)", "error (%)")]
)
def test_a_unit_on_each_tick_is_not_in_the_axis_label_too(name, shown, log):
    axes = figures.curves([Curve("a", [(1, 10.0), (2, 6.0)])], "How much?", x="ranks", y=name, log=log).axes[0]
    assert axes.get_ylabel() == shown + ", log scale" * log


def test_a_name_has_its_curve_s_hue():
    rows = [Curve(name, [(1, 1.0), (2, 2.0 + k)]) for k, name in enumerate(("one", "two", "three", "four", "five"))]
    names = {text.get_text(): text.get_color() for text in drawn(rows).axes[0].texts}
    assert tokens.INK.light not in {names[row.name] for row in rows}
