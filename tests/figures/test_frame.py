"""What stands round a picture: questions from outside, findings from the data, axes that say what they are."""

import inspect
import random
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.text import Text

from worldsize import figures
from worldsize.figures import Curve, Descent, Line, Sample, Timing, base, tokens
from worldsize.figures.frame import scales
from worldsize.trace import Span, Trace, Transfer

SIDES = ("left", "right")
EXAMPLES = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
TWICE = [[[0, 1], [2, 3]], [[0, 1], [2, 3]]]
ASKED = ("race", "curves", "stacks", "spreads", "tallies", "overlaps", "residuals", "outcomes", "histories", "descents",
         "paths", "shares", "lanes", "pipeline", "moved", "placement", "route", "two_records")  # fmt: skip


def texts(picture):
    return [t.get_text() for t in picture.findobj(Text) if t.get_text()]


def one_step(end_s):
    return Trace(2, (Transfer(0, 1, 8, 0.5, end_s),), (Span(0, "compute", 0.0, 1.0),))


def sends(size_bytes):
    send = {"src": "CPU:1", "dst": "CPU:0", "kind": "gradients", "bytes": size_bytes}
    return {"holds": {"CPU:0": 8}, "sends": [send], "collectives": {}}


def device(size_bytes):
    return {"variables": {"w": size_bytes}, "operations": {"Mul": 1}}


# each draws two sides of which the first argument gives the numbers, (left, right)
PAIRS = {
    "race": lambda a, b: figures.race([Timing("left", a), Timing("right", b)]),
    "curves": lambda a, b: figures.curves([Curve("left", [(1, a), (2, a)]), Curve("right", [(1, b), (2, b)])], x="n", y="s"),
    "stacks": lambda a, b: figures.stacks({"left": [{"w": a}], "right": [{"w": b}]}),
    "spreads": lambda a, b: figures.spreads([Sample("left", [1, a]), Sample("right", [1, b])], x="age"),
    "tallies": lambda a, b: figures.tallies({"left": {"count": a}, "right": {"count": b}}, 100),
    "overlaps": lambda a, b: figures.overlaps({"left": one_step(a), "right": one_step(b)}, 1),
    "residuals": lambda a, b: figures.residuals({1: 1.0, 10: 1.0}, [Line("left", (a, 1e9)), Line("right", (b, 1e9))]),
    "outcomes": lambda a, b: figures.outcomes(
        ["row"], ["left", "right", "other"],
        {("row", "left"): "works" if a > b else "fails", ("row", "right"): "works" if b > a else "fails"},
    ),
    "histories": lambda a, b: figures.histories({"left": [9, a], "right": [8, b]}, y="loss"),
    "descents": lambda a, b: figures.descents(
        [Descent("left", [(0, 0, 9), (1, 1, a)]), Descent("right", [(0, 0, 9), (1, 1, b)])], y="loss"
    ),
    "paths": lambda a, b: figures.paths(
        {"left": [(0, 0), (a, a)], "right": [(0, 0), (b, b)]}, {"goal": (1, 1)}, lambda p, q: p * p + q * q, x="a", y="b"
    ),
    "shares": lambda a, b: figures.shares({"left": EXAMPLES if a > b else TWICE, "right": EXAMPLES if b > a else TWICE}),
    "lanes": lambda a, b: figures.lanes({"left": range(a), "right": range(b)}, {}),
    "moved": lambda a, b: figures.moved({"left": sends(a), "right": sends(b)}),
    "placement": lambda a, b: figures.placement({"left": device(a), "right": device(b)}),
}  # fmt: skip


def finding(picture):
    """What a picture says before its parts: its headline, where nothing was asked."""
    return picture.texts[0].get_text().replace("\n", " ")


@pytest.mark.parametrize("draw", PAIRS.values(), ids=PAIRS)
def test_a_finding_turns_round_with_the_data(draw):
    one, other = finding(draw(9, 3)), finding(draw(3, 9))
    swapped = other.lower().replace("left", "\0").replace("right", "left").replace("\0", "right")
    assert one != other and one.lower() == swapped


@pytest.mark.parametrize("draw", PAIRS.values(), ids=PAIRS)
def test_two_that_are_equal_have_no_winner(draw):
    said = finding(draw(5, 5)).lower()
    assert ("left" in said) == ("right" in said)


@pytest.mark.parametrize("draw", PAIRS.values(), ids=PAIRS)
def test_the_alt_text_begins_with_the_finding(draw):
    picture = draw(9, 3)
    assert picture.alt.startswith(finding(picture))


@pytest.mark.parametrize("name", ASKED)
def test_a_picture_takes_a_question_and_no_title(name):
    parameters = inspect.signature(getattr(figures, name)).parameters
    assert parameters["asks"].default == "" and "title" not in parameters


def test_a_finding_that_asks_ends_with_its_question_mark():
    points = [(n, float(n)) for n in (1, 2, 3, 4, 5)]
    points[2] = (3, 9.0)
    alt = figures.curves([Curve("a step", points)], x="n", y="s").alt
    assert "at 3 it is 3 times what its neighbours say: was this machine busy? a step: 1 at 1" in alt


def test_bars_under_a_limit_are_told_from_those_over_it():
    limit = ("a card", 100)
    groups = {"whole": [{"w": 200}], "cut": [{"w": 50}] * 4}
    assert figures.stacks(groups, limit=limit).alt.startswith("What fits: cut; what does not: whole; ")
    assert figures.stacks({"cut": [{"w": 50}]}, limit=limit).alt.startswith("It fits: 50 B, 0.5 times a card.")
    assert figures.stacks({"whole": [{"w": 200}]}, limit=limit).alt.startswith("It does not fit: 200 B, 2 times a card.")
    named = {"all": {"one": {"w": 200}, "two": {"w": 5}}}
    assert figures.stacks(named, limit=limit).alt.startswith("What fits: two; what does not: one; ")


def test_a_sentence_in_place_of_a_question_is_refused():
    with pytest.raises(ValueError, match=r"asks= is 'The ring wins'; expected a question that ends in '\?'"):
        figures.race([Timing("ring", 1.0)], "The ring wins")


def test_the_question_stands_over_the_finding():
    picture = figures.race([Timing("ring", 1.0), Timing("star", 3.0)], "Which is faster?")
    question, found = picture.texts[:2]
    assert (question.get_text(), found.get_text()) == ("Which is faster?", "Ring is 3 times as fast as star")
    assert question.get_position()[1] > found.get_position()[1] and question.get_fontsize() < found.get_fontsize()
    assert picture.alt.startswith("Which is faster? Ring is 3 times as fast as star. ")


@pytest.mark.parametrize("words", [1, 10, 60])
def test_question_and_finding_touch_neither_each_other_nor_the_axes(words):
    rows = [Timing(f"ring {k}", 1.0 + k) for k in range(3)]
    picture = figures.race(rows, "who wins " * words + "?")
    picture.png()
    boxes = [text.get_window_extent() for text in picture.texts] + [picture.axes[0].get_window_extent()]
    assert all(above.y0 >= below.y1 for above, below in zip(boxes, boxes[1:], strict=False))
    assert all(picture.bbox.x0 < box.x0 and box.x1 < picture.bbox.x1 for box in boxes[:-1])


def test_lines_are_called_predicted_only_where_they_are_drawn():
    measured = figures.curves([Curve("ring", [(1, 1.0), (2, 2.0)])], x="n", y="s")
    both = figures.curves([Curve("ring", [(1, 1.0), (2, 2.0)], [(1, 1.0)])], x="n", y="s")
    assert not any("predicted" in text for text in texts(measured))
    assert "markers: measured; dashed lines: predicted" in texts(both)


def test_an_axis_with_a_logarithmic_scale_says_so():
    curves = figures.curves([Curve("ring", [(1, 1.0), (9, 2.0)])], x="size (bytes)", y="s", log=True).axes[0]
    assert (curves.get_xlabel(), curves.get_ylabel()) == ("size, log scale", "s, log scale")
    assert figures.histories({"a": [1.0, 2.0]}, y="loss", log=True).axes[0].get_ylabel() == "loss, log scale"
    assert figures.descents([Descent("a", [(0, 0, 2.0), (1, 1, 1.0)])], y="loss").axes[0].get_ylabel() == "loss, log scale"


def test_an_axis_without_it_does_not():
    assert figures.curves([Curve("ring", [(1, 1.0), (9, 2.0)])], x="n", y="s").axes[0].get_xlabel() == "n"


@pytest.mark.parametrize("seed", range(20))
def test_a_logarithmic_axis_has_more_than_one_tick(seed):
    low = 10 ** random.Random(seed).uniform(-8, 8)
    ratio = 10 ** random.Random(seed + 1).uniform(0.01, 6)
    ax = figures.curves([Curve("a", [(1, low), (9, ratio * low)])], x="n", y="s", log=True).axes[0]
    bottom, top = ax.get_ylim()
    assert 2 <= sum(bottom <= tick <= top for tick in ax.yaxis.get_majorticklocs()) <= 10


@pytest.mark.parametrize("low", [1.0, 1.04, 2.02, 3.1, 5.15, 7.04, 9.5])
def test_no_two_ticks_of_a_logarithmic_axis_are_so_close_that_their_numbers_overlap(low):
    for ratio in (1.5, 2, 2.9, 3.7, 4.1, 8, 20, 90, 1e3, 1e5, 1e9, 1e14):
        places = np.log10(scales.log_ticks(low, ratio * low))
        assert np.all(np.diff(places) >= 0.1 * np.log10(ratio))


@pytest.mark.parametrize("limits", [(0.0, 1.0), (1.0, 1.0), (-1.0, 5.0), (1.0, float("inf"))])
def test_limits_that_no_logarithm_has_give_no_ticks(limits):
    assert scales.log_ticks(*limits) == []


RING = Trace(3, tuple(Transfer(r, (r + 1) % 3, 8, 0.1 * r, 0.1 * r + 0.05) for r in range(3)), (Span(0, "compute", 0.0, 1.0),))
CHUNKS = SimpleNamespace(state="done", results=[[111, 10, 100], [1, 111, 100], [1, 10, 111]])
HEADED = {
    "messages": lambda: figures.messages(RING), "links": lambda: figures.links(RING), "timeline": lambda: figures.timeline(RING),
    "contributions": lambda: figures.contributions(CHUNKS), "matrix_cuts": lambda: figures.matrix_cuts(4, 8, 8, 4, 2),
    "race": lambda: figures.race([Timing("left", 1.0)], "Who is first?"),
    "curves": lambda: figures.curves([Curve("left", [(1, 1.0), (2, 2.0)])], "How many?", x="n", y="s"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADED)
def test_the_heads_of_all_pictures_begin_at_one_left_edge(name):
    picture = HEADED[name]()
    picture.canvas.draw()
    tops = [t.get_window_extent() for t in picture.findobj(Text) if len(t.get_text()) > 9 and t.get_fontsize() == tokens.TITLE_PT]
    assert tops and {round(box.x0 / picture.dpi, 2) for box in tops} == {base.EDGE_IN}
