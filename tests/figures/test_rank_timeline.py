"""The timeline: bars of what ranks did, told apart by colour and hatch, and the finding in words."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.path import Path

from worldsize import figures
from worldsize.failures import Failure, Outcome, Standing, Wait
from worldsize.figures import rank_timeline
from worldsize.figures.rank_timeline import KINDS, LOOKS, covered_s
from worldsize.trace import Collective, Span, Trace


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
    assert [text.get_text() for text in legend.get_texts()] == ["compute", "wait", "collective"]


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
    assert figures.timeline(many(1000)).axes[0].get_xlabel().endswith("; send: height is the part of the time")


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


def waiting(*seconds):
    """Ranks that each wait so long in a run of 10 s."""
    spans = [(rank, "compute", 0.0, 10.0) for rank in range(len(seconds))]
    return trace(*spans, *[(rank, "recv", 0.0, s) for rank, s in enumerate(seconds)], world_size=len(seconds))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ((9.0, 8.9, 1.0), "ranks 0 and 1 wait most, about 90 % of the time; rank 2 least, 10 %"),
        ((9.0, 1.0, 1.1, 1.0), "rank 0 waits most, 90 % of the time; ranks 1, 2, 3 least, about 10 %"),
        ((9.0, 5.0, 1.0), "rank 0 waits most, 90 % of the time; rank 2 least, 10 %"),
    ],
)
def test_ranks_that_wait_alike_share_first_and_last_place(seconds, said):
    assert said in figures.timeline(waiting(*seconds)).alt


HUNG = Trace(
    3,
    spans=(Span(2, "wait", 0.1, 2.0, "recv from rank 0", ended=False),),
    collectives=tuple(Collective("barrier", 0, rank, 0.1, 2.0, ended=False) for rank in range(2)),
)
STOOD = (Standing(0, collective="barrier"), Standing(1, collective="barrier"), Standing(2, Wait(2, "recv", 0)))


def broken_off(status="timeout", failures=(), standings=STOOD, trace=HUNG):
    outcome = Outcome(status, failures, standings)
    return SimpleNamespace(state="failed", trace=trace, outcome=outcome)


def test_the_headline_of_a_hang_says_who_waited_for_whom_the_odd_one_first():
    assert "rank 2 waited in recv from rank 0; ranks 0 and 1 waited in barrier." in figures.timeline(broken_off()).alt


def test_the_headline_of_a_failure_begins_with_the_rank_that_failed():
    failed = broken_off("failed", (Failure(2, "raised", 0.0, type="ValueError"),), STOOD[:2])
    assert "rank 2 failed; ranks 0 and 1 waited in barrier." in figures.timeline(failed).alt


def test_a_rank_of_a_hang_that_waited_for_nobody_is_said_to_have_been_running():
    stood = (STOOD[0], Standing(1), STOOD[2])
    assert "rank 1 was running" in figures.timeline(broken_off(standings=stood)).alt


def test_a_trace_alone_says_what_never_ended():
    alt = figures.timeline(HUNG).alt
    assert "rank 2 left recv from rank 0 unfinished; ranks 0 and 1 left barrier unfinished." in alt


def test_a_collective_that_never_ended_is_an_open_bar_to_the_end_with_its_name():
    ax = figures.timeline(broken_off()).axes[0]
    said = [text.get_text() for text in ax.texts]
    assert said.count("barrier, never ended") == 2 and "recv from rank 0, never ended" in said
    # the collective's two in the track of the waits, too
    open_bars = [p.get_path() for p in ax.patches if Path.CLOSEPOLY not in p.get_path().codes]
    assert len(open_bars) == 5 and {path.vertices[0][0] for path in open_bars} == {ax.get_xlim()[1]}


def test_many_different_stands_are_counted_and_not_listed():
    ring = tuple(Standing(r, Wait(r, "recv", (r + 1) % 64)) for r in range(64))
    said = rank_timeline.told_stands(rank_timeline.stands(HUNG, Outcome("deadlock", standings=ring)))
    assert said.endswith("and 61 more ranks elsewhere") and len(said) < 160


def test_the_headline_names_the_straggler_before_those_who_wait_for_it():
    spans = [Span(rank, "compute", 0.0, 4.0 if rank == 2 else 1.0) for rank in range(4)]
    spans += [Span(rank, "wait", 1.0, 4.0) for rank in (0, 1, 3)]
    alt = figures.timeline(Trace(4, (), tuple(spans))).alt
    assert "rank 2 computes 4 times as long as the others; " in alt


def phase_heights(shown):
    """How high the bars of marked phases are, in tracks."""
    hollow = [p for p in shown.axes[0].patches if p.get_zorder() < 1]
    return [round(p.get_path().get_extents().height, 2) for p in hollow]


def test_collectives_within_a_marked_phase_are_drawn_in_it():
    within = trace((0, "compute", 0.0, 1.0, "forward"), collectives=[("all_gather", 8, 0, 0.2, 0.4)])
    assert phase_heights(figures.timeline(within)) == [1.8]


def test_a_phase_that_ends_before_its_collectives_is_a_bar_of_its_own():
    after = trace((0, "compute", 0.0, 1.0, "forward"), collectives=[("all_gather", 8, 0, 1.0, 1.4)])
    assert phase_heights(figures.timeline(after)) == []


def test_waits_with_less_than_a_pixel_between_them_are_one_bar_and_count_as_they_are():
    received = [(0, "recv", k * 1e-3, k * 1e-3 + 9e-4) for k in range(1000)]
    picture = figures.timeline(trace(*received, world_size=1))
    said = picture.axes[0].get_xlabel()
    assert "the rank waits 90 % of the time" in picture.alt
    assert said.endswith("; recv: height is the part of the time")  # not of the waits


def test_many_waits_as_narrow_as_their_outlines_are_drawn_as_heights_and_no_barcode():
    spans = [(r, "wait", 0.1 * n, 0.1 * n + (1e-4 if n % 2 else 0.05)) for r in range(2) for n in range(100)]
    assert "wait: height is the part of the time" in figures.timeline(trace(*spans)).axes[0].get_xlabel()


def test_nothing_over_a_crowded_timeline_lies_on_its_legend():
    spans = [(rank, kind, k + 0.1, k + 0.6) for rank in range(2) for kind in ("send", "recv") for k in range(400)]
    shown = figures.timeline(trace(*spans, (0, "compute", 0.0, 0.1), (0, "wait", 0.1, 0.6)))
    shown.canvas.draw()
    [ax] = shown.axes
    legend = ax.get_legend().get_window_extent()
    over = [*ax.texts, ax.title, ax._left_title]
    assert not any(legend.overlaps(text.get_window_extent()) for text in over if text.get_text())
