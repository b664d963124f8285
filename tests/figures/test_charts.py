"""The layer under charts: an actor's colour, numbers in one hue, names at the ends of lines, and a title of few words."""

import math
from itertools import pairwise

import pytest
from coloraide import Color
from matplotlib.text import Text

from worldsize import figures
from worldsize.figures import base, tokens
from worldsize.figures.frame import charts, findings, heading

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("names", "actor", "tone"),
    [
        (["one server", "your ring", "tree"], "your ring", tokens.YOURS),
        (["ring", "one server"], "ring", tokens.YOURS),
        (["all images (yours)", "mean of ranks"], "all images (yours)", tokens.YOURS),
        (["star", "tree"], "star", tokens.SERVER),
        (["your wrapper", "PyTorch's DDP"], "PyTorch's DDP", tokens.LIBRARY),
        (["asynchronous", "synchronous"], "synchronous", tokens.SYNCHRONOUS),
    ],
)
def test_an_actor_has_its_colour_wherever_it_stands(names, actor, tone):
    assert charts.tones(names)[actor] == charts.tones(names[::-1])[actor] == tone.light


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_names_of_one_picture_have_colours_of_their_own(count):
    names = ["your ring", "one server", "tree", "halving", "in turns", "PyTorch's"][:count]
    assert len(set(charts.tones(names).values())) == count


def test_names_that_are_no_actor_s_leave_the_actors_their_colours():
    others = set(charts.tones(["tree", "your ring", "in turns", "one server"]).values())
    assert tokens.YOURS.light in others and charts.tones(["tree", "your ring"])["tree"] != tokens.YOURS.light


@pytest.mark.parametrize("numbers", [(1, 2, 4), (1, 2, 4, 8, 16), (16, 8, 4)])
def test_an_ordered_number_has_one_hue_in_steps(numbers):
    tones = charts.tones([f"{n} worker{'s' * (n > 1)}" for n in numbers])
    lightness = [Color(tone).convert("oklch")["l"] for tone in tones.values()]
    assert len(set(tones.values())) == len(numbers)
    assert set(tones.values()) <= {tone.light for tone in tokens.STEPS} and lightness == sorted(lightness, reverse=True)


@pytest.mark.parametrize(
    "names",
    [["1 worker", "2 workers"], ["1 worker", "2 ranks", "4 GPUs"], ["batch 8, rate 1", "batch 16, rate 2", "batch 32, rate 4"]],
)
def test_what_is_no_order_of_one_number_has_hues(names):
    assert not set(charts.tones(names).values()) & {tone.light for tone in tokens.STEPS}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_steps_are_told_apart_from_their_neighbours_and_from_the_ground(theme):
    steps = [Color(getattr(tone, theme)) for tone in tokens.STEPS]
    assert min(one.delta_e(other, method="2000") for one, other in pairwise(steps)) >= 7
    assert min(step.contrast(Color(getattr(tokens.PAPER, theme)), method="wcag21") for step in steps) >= 3


def test_lines_carry_their_names_and_no_legend():
    drawn = figures.histories({"ring": [3.0, 1.0], "star": [3.0, 2.0]}, "Who is lower?", y="loss")
    assert drawn.axes[0].get_legend() is None
    assert {"ring", "star"} <= {text.get_text() for text in drawn.axes[0].texts}


@pytest.mark.parametrize(
    ("ys", "wanted"),
    [
        ([3.0, 2.0, 1.0], (3, 1.0)),
        ([3.0, 2.0, None], (2, 2.0)),
        ([3.0, math.nan, math.inf], (1, 3.0)),
        ([math.nan, None, math.nan], None),
    ],
)
def test_a_line_ends_at_its_last_finite_point(ys, wanted):
    found = charts.end([1, 2, 3], ys, "ring", "#000000")
    assert (found and (found.x, found.y)) == wanted


def test_names_at_the_ends_do_not_overlap():
    rows = {f"line {name}": [3.0, 1.0 + 0.001 * k] for k, name in enumerate("abcdef")}
    drawn = figures.histories(rows, "Who is lower?", y="loss")
    drawn.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in drawn.axes[0].texts if text.get_text()]
    boxes.sort(key=lambda box: box.y0)
    assert len(boxes) == 6 and all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))


@pytest.mark.parametrize(
    ("finding", "title"),
    [
        ("A is fastest", "A is fastest"),
        ("A is 3 times as fast as B; all within 5 % of the prediction", "A is 3 times as fast as B"),
        ("A is first; B is last", "A is first; B is last"),
    ],
)
def test_a_title_holds_twelve_words_of_the_finding(finding, title):
    assert findings.title(finding) == title


def test_what_a_title_leaves_out_is_in_the_folded_table_and_in_the_text():
    picture = base.notice("nothing")
    finding = "A is 3 times as fast as B; the second run of B took much longer than the others"
    heading.tell(picture, "Who is first?", finding, "A: 1 s", "B: 3 s")
    assert picture.details == [("", finding), ("A", "1 s"), ("B", "3 s")]
    assert picture.brief == f"Who is first? {finding}." and picture.alt.endswith("A: 1 s. B: 3 s.")
    page = picture.html(b"")
    assert "<summary>the numbers</summary>" in page and "<td>3 s</td>" in page and 'aria-label="Who is first? A' in page


def test_a_cell_answers_its_question_from_its_run_and_the_figure_s_own_finding_goes_below():
    rows = {"with warm-up": [3.0, 2.0], "without": [3.0, 2.5]}
    drawn = figures.histories(rows, figures.answered("Does it help?", "yes: 2 with it, 2.5 without"), y="loss")
    assert "Yes: 2 with it, 2.5 without" in [text.get_text() for text in drawn.texts]
    assert drawn.brief == "Does it help? Yes: 2 with it, 2.5 without."
    assert "With warm-up ends lower" in drawn.alt and any("ends lower" in text for _, text in drawn.details)


@pytest.mark.parametrize("answer", ["", " ", "one two three four five six seven eight nine ten eleven twelve thirteen"])
def test_an_answer_has_one_to_twelve_words(answer):
    with pytest.raises(ValueError, match="expected an answer of 1 to 12 words to 'Does it help\\?'"):
        figures.answered("Does it help?", answer)


def test_a_question_without_an_answer_keeps_the_figure_s_own_finding():
    drawn = figures.histories({"a": [1.0, 2.0]}, figures.answered("Does it help?", None), y="loss")
    assert drawn.brief.startswith("Does it help? A rises")


def test_what_was_answered_must_be_a_question():
    with pytest.raises(ValueError, match="expected a question that ends in"):
        figures.histories({"a": [1.0, 2.0]}, figures.answered("It helps.", "yes"), y="loss")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "names", [[f"{n} workers" for n in (2, 4, 8, 16, 32)], ["yours", "one server", "PyTorch", "synchronous", "a", "b"]], ids=str
)
def test_the_name_of_a_curve_stands_out_from_its_ground(names, theme):
    curves = [figures.Curve(name, [(1, 1.0 + k), (2, 3.0 + 2 * k)]) for k, name in enumerate(names)]
    picture = figures.curves(curves, "Which rises?", x="a", y="b")
    told = [text for text in picture.axes[0].texts if text.get_text() in names]
    of_light = {tone.light: tone for tone in tokens.ALL}
    assert len(told) == len(names)
    for text in told:
        tone = of_light[text.get_color()]
        assert Color(getattr(tone, theme)).contrast(Color(getattr(tokens.PAPER, theme)), method="wcag21") >= 4.5, text.get_text()
