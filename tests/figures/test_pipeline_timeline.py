"""The picture of a pipeline: what it says and what it draws."""

from types import SimpleNamespace

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from worldsize import figures
from worldsize.figures import pipeline_timeline, tokens
from worldsize.figures.pipeline_timeline import LOOKS
from worldsize.formulas.pipeline import play
from worldsize.trace import Trace, Transfer

pytestmark = pytest.mark.quick


def staircase(stages: int = 4) -> Trace:
    return play([[("forward", 0), ("backward", 0)]] * stages, 1, 2)


def boxes(picture, way: str) -> list[Rectangle]:
    found = [p for p in picture.axes[0].patches if isinstance(p, Rectangle)]
    from matplotlib.colors import to_rgba

    return [p for p in found if p.get_facecolor() == to_rgba(LOOKS[way]["facecolor"])]


def test_the_title_says_how_long_stages_are_idle():
    assert "Each stage works 25 % of the time and is idle 75 %" in figures.pipeline(staircase()).alt


def test_the_title_names_the_slowest_stage():
    trace = play([[("forward", k) for k in range(9)]] * 2, [1, 3], 1)
    assert "Stage 1 works 96 % of the time, the other 32 %" in figures.pipeline(trace).alt


def test_every_forward_and_backward_is_a_box():
    picture = figures.pipeline(staircase(3))
    assert (len(boxes(picture, "forward")), len(boxes(picture, "backward"))) == (3, 3)


def test_ways_differ_by_height_as_well_as_colour():
    picture = figures.pipeline(staircase(1))
    forward, backward = boxes(picture, "forward")[0], boxes(picture, "backward")[0]
    assert forward.get_height() < backward.get_height()


def test_numbers_of_all_ways_stand_on_one_line():
    texts = [t for t in figures.pipeline(staircase(1)).axes[0].texts if t.get_text() == "0"]
    assert len(texts) == 2 and len({t.get_position()[1] for t in texts}) == 1


def test_an_idle_stage_has_a_colour_that_no_work_has_and_the_ground_has_not():
    split = figures.pipeline(play([[("forward", 0), ("backward", 0), ("weights", 0)]], 1, 1, weights_s=1))
    lane, *_ = (p for p in split.axes[0].patches if isinstance(p, Rectangle))
    idle = to_hex(lane.get_facecolor())
    work = {to_hex(look["facecolor"]) for look in LOOKS.values()}
    assert idle == tokens.IDLE.light and idle not in work and tokens.PAPER.light not in work


@pytest.mark.parametrize("micros", [4, 8, 12, 20, 40])
def test_a_number_is_narrower_than_its_box(micros):
    ways = [("forward", k, chunk) for chunk in range(2) for k in range(micros)]
    picture = figures.pipeline(play([ways], 1, 0, chunks=2))
    picture.canvas.draw()
    widths = {box.get_window_extent().width for box in boxes(picture, "forward")}
    numbers = [t.get_window_extent().width for t in picture.axes[0].texts if t.get_text()]
    assert max(numbers, default=0) < min(widths)


def test_a_chunk_has_a_prime_and_split_backwards_a_box_of_their_own():
    chunks = play([[("forward", 3, 0), ("forward", 3, 1)]], 1, 1, chunks=2)
    assert [t.get_text() for t in figures.pipeline(chunks).axes[0].texts if t.get_text()[:1] == "3"] == ["3", "3′"]
    split = play([[("forward", 0), ("backward", 0), ("weights", 0)]], 1, 1, weights_s=1)
    assert len(boxes(figures.pipeline(split), "weights")) >= 1
    assert "Stage 0 works 100 %: F0 B0 W0" in figures.pipeline(split).alt


def test_numbers_are_left_out_where_they_do_not_fit():
    micros = range(40)
    crowded = play([[("forward", k) for k in micros] + [("backward", k) for k in micros]], 1, 1)
    texts = [t.get_text() for t in figures.pipeline(crowded).axes[0].texts]
    assert not any(t.isdigit() for t in texts)


def test_messages_between_stages_are_arrows_and_those_before_the_first_forward_are_not():
    trace = staircase(2)
    messages = (Transfer(0, 1, 4, -0.5, -0.4), Transfer(0, 1, 4, 1, 1), Transfer(1, 0, 4, 4, 4))
    shown = pipeline_timeline.pipeline(Trace(2, messages, trace.spans))
    arrows = [t for t in shown.axes[0].texts if getattr(t, "arrow_patch", None)]
    assert len(arrows) == 2


def test_a_run_that_marked_nothing_says_so():
    assert figures.pipeline(Trace(2)).alt == "no forward and no backward was marked"


def test_a_run_not_yet_says_so():
    run = SimpleNamespace(state="not yet", not_yet="Exercise 3.2: the GPipe schedule")
    assert figures.pipeline(run).alt.startswith("not yet: Exercise 3.2")


def test_each_is_said_only_where_it_holds_of_each_stage():
    trace = play([[("forward", k) for k in range(9)]] * 2, [1, 1.03], 1)
    said = figures.pipeline(trace).alt
    assert "Each stage" not in said and "Stages work 88 to 90 % of the time; they are idle 10 to 12 %" in said
