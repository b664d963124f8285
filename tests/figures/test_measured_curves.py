"""Curves with repetitions and marks: what is drawn of them, what ties within their ends, and what is said."""

from __future__ import annotations

import matplotlib
import pytest

from worldsize import figures
from worldsize.figures import Curve

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
    assert "1 first is lowest, at 2 first and second" in drawn(rows).alt


def test_a_mark_is_named_where_it_stands_and_in_the_alt_text():
    shown = drawn([Curve("measured", [(1, 10.0), (2, 6.0)])], marks={"knee": 1.5, "foretold": None})
    assert "knee: 1.5" in texts(shown) and not any(text.startswith("foretold") for text in texts(shown))
    assert "knee: at 1.5. foretold: not yet." in shown.alt
