"""The timeline: bars of what ranks did, told apart by colour and hatch, and the finding in words."""

from types import SimpleNamespace

import numpy as np
import pytest

from worldsize import figures
from worldsize.figures import rank_timeline
from worldsize.figures.rank_timeline import KINDS, LOOKS, covered_s
from worldsize.trace import Collective, Span, Trace

pytestmark = pytest.mark.quick


def trace(*spans, collectives=(), world_size=2):
    return Trace(world_size, (), tuple(Span(*s) for s in spans), tuple(Collective(*c) for c in collectives))


UNEVEN = trace(
    (0, "compute", 0.0, 1.0, "forward"), (0, "recv", 1.0, 4.0, "from rank 1"),
    (1, "compute", 0.0, 3.5, "forward"), (1, "send", 3.5, 4.0, "to rank 0"),
)  # fmt: skip


def many(count):
    """Sends that fill 0.4 of each millisecond."""
    return trace(*[(r, "send", n * 1e-3, n * 1e-3 + 4e-4) for r in range(2) for n in range(count)])


def test_the_finding_names_who_waits_most_and_who_least():
    assert "rank 0 waits most, 75 % of the time; rank 1 least, 0 %" in figures.timeline(UNEVEN).alt


def test_the_alt_text_gives_each_rank_s_time_by_kind():
    assert "rank 1: compute 3.5 s, send 500 ms" in figures.timeline(UNEVEN).alt


def test_ranks_that_wait_alike_are_said_to():
    alike = trace((0, "recv", 0.0, 0.5), (1, "recv", 0.5, 1.0))
    assert "every rank waits about 50 % of the time" in figures.timeline(alike).alt


def test_ranks_that_never_wait_are_said_not_to():
    assert "no rank waits for another" in figures.timeline(trace((0, "compute", 0.0, 1.0))).alt


def test_a_framework_s_collectives_have_bars_of_their_own():
    joined = trace((0, "compute", 0, 1), collectives=[("all_reduce", 8, r, 1.0, 2.0) for r in range(2)])
    legend = figures.timeline(joined).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["compute", "collective"]


def test_a_collective_is_named_in_its_bar():
    named = figures.timeline(trace(collectives=[("all_reduce", 8, 0, 0.0, 1.0)]))
    assert "all_reduce" in [text.get_text() for text in named.axes[0].texts]


def test_a_marked_span_is_named_in_its_bar():
    assert "forward" in [text.get_text() for text in figures.timeline(UNEVEN).axes[0].texts]


def test_kinds_are_told_apart_by_colour_and_by_hatch():
    assert len({LOOKS[kind]["facecolor"] for kind in KINDS}) == len({LOOKS[kind]["hatch"] for kind in KINDS}) == 5


def test_time_that_overlaps_counts_once():
    assert covered_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)]) == 4.0


def test_bars_too_many_to_be_seen_become_the_part_of_the_time():
    crowded = figures.timeline(many(1000))
    heights = [np.ptp(c.get_paths()[0].vertices[:, 1]) for c in crowded.axes[0].collections]
    assert heights == pytest.approx([0.4 * rank_timeline.TRACK_HEIGHT] * 2, abs=0.08)


def test_the_part_of_the_time_is_explained_where_it_is_drawn():
    said = [t.get_text() for t in figures.timeline(many(1000)).axes[0].texts]
    assert any("send: height is the part of the time" in text for text in said)


def test_few_bars_are_drawn_one_by_one():
    assert not figures.timeline(many(10)).axes[0].collections


def test_messages_of_a_whole_training_still_make_a_small_picture():
    assert len(figures.timeline(many(20_000)).png()) < 80_000


def test_a_moment_without_length_is_drawn():
    assert figures.timeline(trace((0, "compute", 1.0, 1.0))).png().startswith(b"\x89PNG")


def test_a_run_is_drawn_by_its_trace():
    run = SimpleNamespace(state="done", trace=UNEVEN)
    assert figures.timeline(run).alt == figures.timeline(UNEVEN).alt


def test_a_stub_s_timeline_says_not_yet():
    run = SimpleNamespace(state="not yet", not_yet="Exercise 6.2: the ring", trace=None)
    assert figures.timeline(run).alt.startswith("not yet: Exercise 6.2: the ring")


def test_a_run_of_which_nothing_was_recorded_says_so():
    assert figures.timeline(Trace(2)).alt == "nothing was recorded"


def test_the_headline_names_the_straggler_before_those_who_wait_for_it():
    spans = [Span(rank, "compute", 0.0, 4.0 if rank == 2 else 1.0) for rank in range(4)]
    spans += [Span(rank, "wait", 1.0, 4.0) for rank in (0, 1, 3)]
    alt = figures.timeline(Trace(4, (), tuple(spans))).alt
    assert "rank 2 computes 4 times as long as the others; " in alt
