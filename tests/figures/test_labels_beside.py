"""What stands beside lines, bars and arrows: names at the ends of curves, a bracket between two bars, a size on a bundle."""

from itertools import pairwise

import pytest
from matplotlib.text import Text

from worldsize import figures
from worldsize.figures import Curve, Timing
from worldsize.trace import Trace, Transfer

pytestmark = pytest.mark.quick


def texts(picture) -> list[str]:
    return [text.get_text() for text in picture.axes[0].texts]


@pytest.mark.parametrize("ends", [(1.0, 8.0), (1.0, 1.01), (5.0, 5.0)])
def test_names_at_the_ends_of_curves_keep_their_distance(ends: tuple[float, ...]) -> None:
    rows = [Curve(f"curve {n}", [(1, 1.0), (8, end)]) for n, end in enumerate(ends)]
    picture = figures.curves(rows, "Which?", x="ranks", y="speedup")
    picture.canvas.draw()
    names = [text for text in picture.axes[0].texts if text.get_text().startswith("curve")]
    boxes = sorted((Text.get_window_extent(text) for text in names), key=lambda box: box.y0)
    assert len(boxes) == 2 and picture.axes[0].get_legend() is None
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))
    assert max(box.x1 for box in boxes) <= picture.bbox.x1


def test_a_curve_that_is_not_written_yet_is_named_in_a_legend() -> None:
    picture = figures.curves([Curve("a", [(1, 1.0)]), Curve("b", [(1, None)])], "Which?", x="ranks", y="speedup")
    assert "b: not yet" in [text.get_text() for text in picture.axes[0].get_legend().get_texts()]


@pytest.mark.parametrize("order", [1, -1])
def test_two_bars_have_a_bracket_that_says_how_many_times(order: int) -> None:
    rows = [Timing("eager", 0.06), Timing("graph", 0.02)][::order]
    assert " 3 times" in texts(figures.race(rows))


@pytest.mark.parametrize("rows", [
    [Timing("a", 0.06), Timing("b", 0.0605)], [Timing("a", 0.06, 0.05), Timing("b", 0.02, 0.02)],
    [Timing("a", 0.06), Timing("b", None)], [Timing("a", 0.06), Timing("b", 0.02), Timing("c", 0.03)],
])  # fmt: skip
def test_bars_that_tie_or_have_predictions_or_are_more_than_two_have_no_bracket(rows: list[Timing]) -> None:
    assert not [text for text in texts(figures.race(rows)) if text.endswith(" times")]


def test_messages_side_by_side_have_one_size() -> None:
    twins = [Transfer(0, 1, 288, 0.0, 0.001), Transfer(0, 1, 288, 0.0005, 0.002), Transfer(1, 0, 40, 0.05, 0.1)]
    assert {"2 × 288 B", "40 B"} <= set(texts(figures.messages(Trace(2, tuple(twins)))))


def test_a_bundle_of_different_sizes_says_how_many_and_their_sum() -> None:
    both = [Transfer(0, 1, 288, 0.0, 0.001), Transfer(0, 1, 32, 0.0005, 0.002), Transfer(1, 0, 40, 0.05, 0.1)]
    assert "2: 320 B" in texts(figures.messages(Trace(2, tuple(both))))


def widths(*sizes: int) -> list[float]:
    sent = [Transfer(0, 1, size, 0.1 * k, 0.1 * k + 0.05) for k, size in enumerate(sizes)]
    arrows = [text.arrow_patch for text in figures.messages(Trace(2, tuple(sent))).axes[0].texts if hasattr(text, "arrow_patch")]
    return [arrow.get_linewidth() for arrow in arrows if arrow is not None]


def test_an_arrow_is_the_wider_the_more_bytes_it_stands_for() -> None:
    small, middle, large = widths(100, 10_000, 1_000_000)
    assert small < middle < large


def test_arrows_of_nearly_the_same_size_are_equally_wide() -> None:
    assert len(set(widths(1000, 1500, 3000))) == 1
