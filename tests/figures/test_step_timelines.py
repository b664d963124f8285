"""Steps one above the other: which messages belong to a step, what lies inside backward, and the picture's words."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from worldsize import figures
from worldsize.figures.one_step import step_timelines
from worldsize.trace import Span, Trace, Transfer

pytestmark = pytest.mark.quick


def trace(*messages, steps=2):
    """Two layers of 1 s in steps that begin every 10 s, on each of two ranks; messages as (src, start, end)."""
    works = [Span(r, "compute", 10 * s + k, 10 * s + k + 1) for s in range(steps) for k in range(2) for r in range(2)]
    sent = [Transfer(src, 1 - src, 8, a, b) for src, a, b in messages]
    return Trace(2, tuple(sent), tuple(sorted(works, key=lambda s: s.start_s)))


def test_messages_belong_to_the_step_in_which_they_begin():
    first, second = step_timelines.steps(trace((0, 1.0, 3.0), (0, 9.0, 11.0), (0, 12.0, 14.0)), 0, 2)
    assert (first.messages, second.messages) == (((1.0, 3.0), (9.0, 11.0)), ((2.0, 4.0),))


def test_what_was_sent_before_the_first_step_and_by_other_ranks_is_left_out():
    step = step_timelines.steps(trace((0, -2.0, -1.0), (1, 1.0, 2.0), steps=1), 0, 2)[0]
    assert step.messages == ()


def test_the_part_inside_backward_counts_time_once_where_messages_overlap():
    step = step_timelines.steps(trace((0, 1.0, 3.0), (0, 1.0, 3.0), steps=1), 0, 2)[0]
    assert step.hidden(whole_step=False) == pytest.approx(0.5)


def test_the_step_of_the_middle_length_is_taken():
    ends = [(0, 10 * s + 2.0, 10 * s + 3.0 + extra) for s, extra in enumerate((0, 4, 1))]
    assert step_timelines.middle_step(trace(*ends, steps=3), 0, 2).end_s == pytest.approx(4.0)


def test_the_alt_text_says_how_long_and_how_much_of_it_inside():
    alt = figures.overlaps({"hooks": trace((0, 1.0, 3.0), steps=1)}, 2, "How much of it is inside?").alt
    assert alt.startswith("How much of it is inside? Hooks take 3 s; 50 % of the time on the network is inside backward.")
    assert alt.endswith("hooks: 3 s, 50 % of the time on the network inside backward.")


@pytest.mark.parametrize(("steps", "which"), [(1, "one rank, one step"), (2, "one rank, the step of middle length")])
def test_the_caption_calls_a_step_the_middle_one_only_where_there_are_several(steps, which):
    ends = [(0, 10 * s + 2.0, 10 * s + 3.0) for s in range(steps)]
    picture = figures.overlaps({"hooks": trace(*ends, steps=steps)}, 2, "How much of it is inside?")
    assert which in [text.get_text() for text in picture.texts]


def test_a_form_not_yet_written_keeps_its_row():
    unwritten = SimpleNamespace(state="not yet", not_yet="Exercise 11.3")
    picture = figures.overlaps({"one": trace((0, 1.0, 3.0)), "two": unwritten}, 2, "Which?")
    assert "two: not yet" in picture.alt
    assert "not yet" in [text.get_text() for text in picture.axes[0].texts]


def test_with_nothing_written_there_is_a_picture_that_says_so():
    unwritten = SimpleNamespace(state="not yet", not_yet="Exercise 11.3")
    assert "not yet" in figures.overlaps({"one": unwritten}, 2, "Which?").alt


@pytest.mark.parametrize("rows", [1, 6])
def test_few_rows_and_many_leave_a_border(rows):
    picture = figures.overlaps({f"form number {k}": trace((0, 1.0, 3.0)) for k in range(rows)}, 2, "Which is shortest?")
    pixels = np.asarray(Image.open(io.BytesIO(picture.png())).convert("L"))
    assert pixels[0].min() == pixels[-1].min() == pixels[:, 0].min() == pixels[:, -1].min() == 255


def test_the_finding_says_which_step_is_shortest_and_which_hides_most():
    alt = figures.overlaps({"hooks": trace((0, 1.0, 3.0)), "after": trace((0, 2.0, 4.0))}, 2).alt
    assert alt.startswith("Hooks are 1.3 times as fast as after; inside backward: hooks most, 50 % of the time on the n")


def test_where_all_messages_come_after_backward_the_finding_says_so():
    assert "; no message travels inside backward. " in figures.overlaps({"after": trace((0, 2.0, 4.0))}, 2).alt


def test_over_a_whole_step_the_finding_tells_what_travels_under_work():
    runs = {"ahead": trace((0, 0.5, 1.5), steps=1), "none ahead": trace((0, 2.0, 3.0), steps=1)}
    alt = figures.overlaps(runs, 2, "Which way hides more?", whole_step=True).alt
    assert "? Under work: ahead most, 100 % of the time on the network, none ahead least, 0 %; " in alt


def test_a_message_between_two_layers_is_not_under_work():
    spans = [Span(0, "compute", 0.0, 1.0), Span(0, "compute", 3.0, 4.0)]
    step = step_timelines.steps(Trace(2, (Transfer(0, 1, 8, 0.5, 2.5),), tuple(spans)), 0, 2)[0]
    assert step.hidden(whole_step=True) == pytest.approx(0.25)


def test_steps_that_hide_as_much_are_said_to():
    alt = figures.overlaps({"one": trace((0, 1.0, 3.0)), "other": trace((0, 1.0, 3.0))}, 2).alt
    assert "; as much inside backward: about 50 % of the time on the network." in alt
