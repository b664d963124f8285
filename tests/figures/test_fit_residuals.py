"""Residual plots: which line is off by how much, in words and in the picture."""

import matplotlib
import pytest

from worldsize import figures
from worldsize.figures import Line

pytestmark = pytest.mark.quick

SECONDS = {100: 1e-3, 1_000: 2e-3, 10_000: 11e-3}
EXACT = Line("exact", (1e-3, 1e6))


def texts(shown):
    return [t.get_text() for t in shown.findobj(matplotlib.text.Text) if t.get_text()]


def test_a_line_says_alpha_plus_size_over_bandwidth():
    assert EXACT.seconds(10_000) == pytest.approx(11e-3)


def test_an_error_is_relative_to_what_was_measured():
    assert EXACT.error(1_000, 4e-3) == pytest.approx(-0.5)


def test_the_alt_text_names_the_worst_of_the_sizes_left_out():
    shown = figures.residuals({**SECONDS, 2_000: 6e-3}, [EXACT], "How far off?", left_out=[1_000, 2_000])
    assert "exact: of the sizes left out, 2 kB is worst, off by 50 %" in shown.alt


def test_without_sizes_left_out_all_sizes_are_judged():
    assert "exact: of all sizes, 100 B is worst, off by 10 %" in figures.residuals(SECONDS, [EXACT], "How far off?").alt


def test_an_error_too_large_to_draw_is_at_the_edge_and_said_so():
    shown = figures.residuals(SECONDS, [Line("far", (1.0, 1e6))], "How far off?")
    assert any(text.startswith("further off than 100 %") for text in texts(shown))
    assert max(max(line.get_ydata(), default=0) for line in shown.axes[1].lines) == 100


def test_a_fit_not_yet_written_leaves_the_measured_points():
    shown = figures.residuals(SECONDS, [Line("your fit", None)], "How far off?")
    assert len(shown.axes) == 1 and "your fit: not yet" in shown.alt
    assert "your fit: not yet" in texts(shown)


def test_a_line_keeps_its_colour_in_both_panels_where_an_earlier_one_is_not_yet():
    shown = figures.residuals(SECONDS, [Line("your fit", None), EXACT], "How far off?")
    upper = next(line for line in shown.axes[0].lines if line.get_label() == "exact")
    assert upper.get_color() in {line.get_color() for line in shown.axes[1].lines}


def test_a_line_that_says_less_than_no_time_is_drawn_as_far_as_it_is_above():
    shown = figures.residuals(SECONDS, [Line("bent", (-1e-2, 1e6))], "How far off?")
    assert min(min(line.get_ydata(), default=1) for line in shown.axes[0].lines) > 0


def test_a_mark_is_named():
    assert any("128 KiB" in text for text in texts(figures.residuals(SECONDS, [EXACT], "How far off?", marks={2**17: "128 KiB"})))


def test_numbers_that_were_not_measured_are_not_called_so():
    shown = figures.residuals(SECONDS, [EXACT], "How far off?", points="made up")
    assert "made up" in texts(shown) and "measured" not in texts(shown) and "Made up: 100 B take 1 ms" in shown.alt


def test_nothing_measured_gives_a_notice():
    assert figures.residuals(None, [EXACT], "How far off?").alt == "nothing was measured"


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([1.0, 1.01, 0.99, 1.02], "no pattern: nowhere is it 5 % off"),
        ([1.2, 0.8, 1.2, 0.8], "no pattern: its errors change sides"),
        ([1.2, 1.3, 1.4, 1.0], "a pattern: it says too little from 100 B to 10 kB"),
        ([1.2] * 3 + [0.8] * 3, "a pattern: it says too little from 100 B to 10 kB, too much from 100 kB to 10 MB"),
    ],
)
def test_a_pattern_is_neighbours_that_are_off_to_one_side(ratios, words):
    seconds = {100 * 10**k: EXACT.seconds(100 * 10**k) * ratio for k, ratio in enumerate(ratios)}
    assert f"; {words}." in figures.residuals(seconds, [EXACT], "Is there a pattern?").alt
