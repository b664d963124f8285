"""Curves of what ranks reported: where points stand, what the curves do in words, how they are told apart."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest

from worldsize import figures
from worldsize.figures import base, report_curves
from worldsize.figures.report_curves import ReportCurve, points, share

pytestmark = pytest.mark.quick


def rows(values, **more):
    return [{"t": 0.1 * step, "step": step, "loss": value, **more} for step, value in enumerate(values)]


def alt(*reports):
    return report_curves.draw(reports).alt


def test_a_curve_that_falls_is_said_to_with_both_ends():
    assert "loss falls from 2 to 0.5" in alt(rows([2.0, 1.0, 0.5]))


def test_a_curve_that_rises_is_said_to():
    assert "loss rises from 0.5 to 2" in alt(rows([0.5, 2.0]))


def test_the_title_says_how_high_a_hill_is():
    assert "loss rises to 6 and ends at 0" in alt(rows([1.0, 6.0, 0.0]))


def test_the_title_names_the_ranks_with_the_lowest_and_the_highest_hill():
    assert "loss rises to 4 on rank 1, to 6 on rank 0, and ends at 0" in alt(rows([0.0, 6.0, 0.0]), rows([0.0, 4.0, 0.0]))


def test_the_ranks_that_end_lowest_and_highest_are_named():
    assert "(rank 1 lowest 0.25, rank 0 highest 0.75)" in alt(rows([2.0, 0.75]), rows([2.0, 0.25]))


def test_equal_curves_are_said_to_be_the_same():
    assert "the same on every rank" in alt(rows([2.0, 0.5]), rows([2.0, 0.5]))


def test_the_rank_whose_loss_is_no_number_is_named_with_its_step():
    assert "loss of rank 1 is no finite number at step 2" in alt(rows([2, 1, 0.5]), rows([2.0, 1.0, math.nan]))


def test_each_name_that_is_reported_has_a_panel():
    made = report_curves.draw([rows([2.0, 1.0], accuracy=0.5)])
    assert [ax.get_ylabel() for ax in made.axes] == ["loss", "accuracy"]


def apart(world_size, steps=4):
    """Reports of ranks that end the higher, the higher the rank."""
    return [rows([2.0 - 0.1 * step + rank for step in range(steps)]) for rank in range(world_size)]


def names_beside(ax):
    """The names right of a panel, from the lowest to the highest."""
    return [text.get_text() for text in sorted(ax.texts, key=lambda text: text.xy[1])]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_up_to_four_ranks_are_told_apart_by_colour_and_by_marker_and_named_at_their_ends(world_size):
    (ax,) = report_curves.draw(apart(world_size)).axes
    assert len({line.get_marker() for line in ax.lines}) == len({line.get_color() for line in ax.lines}) == world_size
    assert names_beside(ax) == [f"rank {rank}" for rank in range(world_size)]


@pytest.mark.parametrize("world_size", [5, 8, 16])
def test_of_more_ranks_the_mean_and_the_ends_stand_out_and_are_named(world_size):
    (ax,) = report_curves.draw(apart(world_size)).axes
    assert names_beside(ax) == ["rank 0", "mean", f"rank {world_size - 1}"]
    by_name = {line.get_label(): line for line in ax.lines}
    assert len(by_name) == world_size + 1
    pale = {line.get_color() for name, line in by_name.items() if name not in names_beside(ax)}
    assert pale == {base.RULE} and by_name["mean"].get_color() == base.INK
    assert list(by_name["mean"].get_ydata()[:2]) == pytest.approx([2 + (world_size - 1) / 2, 1.9 + (world_size - 1) / 2])


@pytest.mark.parametrize(
    ("failed", "words"), [(1, "Rank 1 failed after step 3"), (2, "Rank 2 failed before its first report")]
)
def test_the_title_of_a_run_that_broke_off_says_who_failed_and_when(failed, words):
    made = report_curves.draw([*apart(2), []], failed=failed)
    assert made.axes[0].get_title(loc="left") == words and f"ranks: {words}." in made.alt
    crosses = [line for line in made.axes[0].lines if line.get_marker() == "X"]
    assert [tuple(line.get_xydata()[0]) for line in crosses] == ([(3, 2.7)] if failed == 1 else [])


@pytest.mark.parametrize(
    ("values", "title"),
    [([0.0, 524.0, 1.0], "kept (kB) rises to 624 and ends at 51"), ([0.0, 1.0, 2.0], "kept (kB) rises to 52")],
)
def test_the_title_of_a_panel_keeps_the_unit_and_says_the_highest_peak(values, title):
    of_rank = []
    for more in (0, 100):
        kept = [values[0], *(value + more for value in values[1:])]
        of_rank.append([{"t": k, "step": k, "kept_kB": value, "loss": 1.0} for k, value in enumerate(kept)])
    assert report_curves.draw(of_rank).axes[0].get_title(loc="left") == title


def test_names_do_not_lie_on_each_other_where_curves_end_together():
    close = [rows([2.0, 1 + rank / 1000]) for rank in range(4)]
    made = report_curves.draw(close)
    made.canvas.draw()
    boxes = sorted((text.get_window_extent() for text in made.axes[0].texts), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))
    assert boxes[-1].y1 < made.bbox.y1 and boxes[0].y0 > 0


@pytest.mark.parametrize(("world_size", "name"), [(2, "ranks 0, 1"), (3, "ranks 0, 1, 2"), (8, "all 8")])
def test_equal_curves_are_one_line_with_one_name(world_size, name):
    (ax,) = report_curves.draw([rows([2.0, 1.0])] * world_size).axes
    assert len(ax.lines) == 1 and names_beside(ax) == [name]


def test_where_ranks_report_at_other_times_there_is_no_mean():
    of_rank = [[{"t": step + rank / 10, "loss": 2.0 - step + rank} for step in range(3)] for rank in range(6)]
    assert names_beside(report_curves.draw(of_rank).axes[0]) == ["rank 0", "rank 5"]


@pytest.mark.parametrize(
    ("more", "title"),
    [({}, "loss falls from 2.5 to 1.5 on average"), ({"accuracy": 0.5}, "loss falls to 1.5")],
    ids=["alone", "beside another"],
)
def test_the_title_of_a_panel_is_short_since_its_lines_have_names(more, title):
    made = report_curves.draw([rows([2.0, 1.0], **more), rows([3.0, 2.0], **more)])
    assert made.axes[0].get_title(loc="left") == title


def test_lines_that_lie_on_each_other_differ_in_their_dashes():
    assert len(set(report_curves.DASHES)) == len(report_curves.DASHES) >= 4


def test_a_rank_that_reported_nothing_has_no_line():
    assert len(report_curves.draw([rows([2.0, 1.0]), []]).axes[0].lines) == 1


def test_steps_that_begin_again_are_laid_end_to_end():
    twice = [{"t": 0.0, "step": step, "loss": 1.0} for step in (0, 1, 2, 0, 1, 2)]
    assert [x for x, _ in points(twice, "loss")] == [0, 1, 2, 3, 4, 5]


def test_without_a_step_the_epoch_is_x_and_without_both_the_time():
    assert points([{"t": 9.0, "epoch": 3, "loss": 1.0}], "loss") == [(3, 1.0)]
    assert points([{"t": 9.0, "loss": 1.0}], "loss") == [(9.0, 1.0)]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 12_345])
def test_a_growing_curve_is_bounded_and_keeps_both_ends(count):
    curve = ReportCurve(keep=64)
    for step in range(count):
        curve.add(step, step)
    xs = curve.part(0)["x"]
    assert len(xs) <= 65 and xs[0] == 0 and xs[-1] == count - 1


@pytest.mark.parametrize("every", [1, 7, 200])
def test_parts_put_together_are_the_whole_curve(every):
    curve, front = ReportCurve(keep=32), []
    for step in range(500):
        curve.add(step, step * step)
        if step % every == 0 or step == 499:
            part = curve.part(curve.sent)
            front[part["at"] :] = part["x"]
            curve.sent = len(curve.points)
    assert front == curve.part(0)["x"]


def test_progress_is_known_where_reports_say_of_how_many():
    assert share({"step": 25, "steps": 100}) == 0.25 and share({"step": 25}) is None


def test_a_run_without_reports_says_so():
    run = SimpleNamespace(state="done", reports=[[], []])
    assert figures.reports(run).alt == "nothing was reported"


def test_a_stub_s_reports_say_not_yet():
    run = SimpleNamespace(state="not yet", not_yet="Exercise 4.1: the loop", reports=[[]])
    assert figures.reports(run).alt.startswith("not yet: Exercise 4.1")


def test_a_run_s_reports_are_drawn():
    run = SimpleNamespace(state="done", tasks=(), reports=[rows([2.0, 0.5])])
    assert "loss falls from 2 to 0.5" in figures.reports(run).alt


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("loss", "loss"),
        ("kept_for_backward_kB", "kept for backward (kB)"),
        ("step_ms", "step (ms)"),
        ("step_us", "step (µs)"),
        ("read_TB", "read (TB)"),
        ("images_per_s", "images per s"),
        ("learning_rate", "learning rate"),
        ("s", "s"),
        ("", ""),
    ],
)
def test_a_name_with_its_unit_is_written_for_people(name, label):
    assert report_curves.label(name) == label


def test_axis_and_headline_name_a_report_and_its_unit():
    picture = report_curves.draw([[{"t": 0.0, "kept_kB": 0.0}, {"t": 1.0, "kept_kB": 264.0}]])
    assert picture.axes[0].get_ylabel() == "kept (kB)" and "kept (kB) rises from 0 to 264" in picture.alt
