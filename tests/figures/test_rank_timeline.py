"""The timeline: a lane a rank of what it did, messages as arrows, and the finding in words."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from worldsize import figures
from worldsize.failures import Failure, Outcome, Standing, Wait
from worldsize.figures import rank_timeline
from worldsize.figures.rank_timeline import covered_s
from worldsize.trace import Collective, Span, Trace, Transfer


def trace(*spans, collectives=(), world_size=2):
    return Trace(world_size, (), tuple(Span(*s) for s in spans), tuple(Collective(*c) for c in collectives))


UNEVEN = trace(
    (0, "compute", 0.0, 1.0, "forward"), (0, "recv", 1.0, 4.0, "from rank 1"),
    (1, "compute", 0.0, 3.5, "forward"), (1, "send", 3.5, 4.0, "to rank 0"),
)  # fmt: skip


def many(count):
    """Work that fills 0.4 of each millisecond."""
    return trace(*[(r, "compute", n * 1e-3, n * 1e-3 + 4e-4) for r in range(2) for n in range(count)])


def areas(picture):
    """The lanes' areas by colour: the extents of each polygon, as (left, right, low, high)."""
    by_tone = {}
    for patch in picture.axes[0].patches:
        if isinstance(patch, PathPatch) and patch.get_facecolor()[3]:
            boxes = [Path(points).get_extents().extents for points in patch.get_path().to_polygons()]
            by_tone.setdefault(to_hex(patch.get_facecolor()), []).extend(boxes)
    return {tone: [(box[0], box[2], box[1], box[3]) for box in boxes] for tone, boxes in by_tone.items()}


def size_of_svg(picture):
    html = picture.html(b"")
    return len(html[html.index("<svg") : html.index("</svg>")])


def test_the_finding_names_who_waits_most_and_who_least():
    assert "rank 0 waits most, 75 % of the time; rank 1 least, 0 %" in figures.timeline(UNEVEN).alt


def test_the_alt_text_gives_each_rank_s_time_by_kind():
    assert "rank 1: compute 3.5 s, send 500 ms" in figures.timeline(UNEVEN).alt


def test_ranks_that_wait_alike_are_said_to():
    alike = trace((0, "recv", 0.0, 0.5), (1, "recv", 0.5, 1.0))
    assert "every rank waits about 50 % of the time" in figures.timeline(alike).alt


def test_ranks_that_never_wait_are_said_not_to():
    assert "no rank waits for another" in figures.timeline(trace((0, "compute", 0.0, 1.0))).alt


def test_a_framework_s_collectives_have_a_colour_of_their_own():
    joined = trace((0, "compute", 0, 1), collectives=[("all_reduce", 8, r, 1.0, 2.0) for r in range(2)])
    legend = figures.timeline(joined).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["compute", "collective"]


def test_a_collective_is_named_in_its_bar():
    named = figures.timeline(trace(collectives=[("all_reduce", 8, 0, 0.0, 1.0)]))
    assert "all_reduce" in [text.get_text() for text in named.axes[0].texts]


def test_a_marked_span_is_named_in_its_bar():
    assert "forward" in [text.get_text() for text in figures.timeline(UNEVEN).axes[0].texts]


def test_declared_work_is_named_by_its_time_in_three_digits_where_no_arrow_strikes_it_out():
    declared = Span(0, "compute", 0.0, 0.065536, "0.065536 s declared", declared=True)
    sent = Trace(2, (Transfer(1, 0, 8, 0.0, 0.065),), (declared, Span(1, "compute", 0.0, 0.01)))
    ax = figures.timeline(sent).axes[0]
    named = next(text for text in ax.texts if text.get_text() == "65.5 ms declared")
    assert named.get_bbox_patch() is not None
    assert named.get_zorder() > max(patch.get_zorder() for patch in ax.patches)


def test_each_kind_has_a_colour_and_none_a_hatch():
    everything = trace((0, "compute", 0, 1), (0, "recv", 1, 2), collectives=[("all_reduce", 8, 0, 2, 3)], world_size=1)
    patches = figures.timeline(everything).axes[0].patches
    assert len(areas(figures.timeline(everything))) >= 3 and not any(patch.get_hatch() for patch in patches)


def test_time_that_overlaps_counts_once():
    assert covered_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)]) == 4.0


def test_bars_too_many_to_be_seen_become_the_part_of_the_time():
    boxes = areas(figures.timeline(many(1000)))[rank_timeline.LOOKS["compute"]]
    heights = [(high - low) / (2 * rank_timeline.HALF) for _, _, low, high in boxes]
    assert heights == pytest.approx([0.4] * 2, abs=0.1)


def test_the_part_of_the_time_is_explained_where_it_is_drawn():
    assert figures.timeline(many(1000)).axes[0].get_xlabel().endswith("; height: share of the time")


def test_few_bars_are_drawn_one_by_one():
    boxes = areas(figures.timeline(many(10)))[rank_timeline.LOOKS["compute"]]
    assert len(boxes) == 20


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_a_thousand_events_a_rank_are_a_small_svg(ranks):
    rng = np.random.default_rng(ranks)
    spans, sent = [], []
    for rank in range(ranks):
        for begin, end in np.cumsum(rng.random(2000) * 1e-3).reshape(-1, 2):
            spans += [(rank, "compute", begin, end), (rank, "recv", end, end + 1e-4, f"from rank {(rank - 1) % ranks}")]
            sent.append(Transfer((rank - 1) % ranks, rank, 8, end, end + 1e-4))
    drawn = figures.timeline(Trace(ranks, tuple(sent), tuple(Span(*row) for row in spans)))
    assert size_of_svg(drawn) <= 20_000
    assert f"{len(sent):,} messages not drawn" in drawn.axes[0].get_xlabel()


def test_a_message_is_an_arrow_from_the_sender_s_lane_to_the_receiver_s():
    sent = Trace(3, (Transfer(0, 2, 8, 1.0, 3.0),), (Span(0, "compute", 0.0, 4.0),))
    lines = [p.get_path() for p in figures.timeline(sent).axes[0].patches if p.get_facecolor()[3] == 0]
    (start, low), (end, high) = lines[0].vertices
    assert (start, end) == (1.0, 3.0) and round(low) == 0 and round(high) == 2


def test_the_share_of_the_time_that_a_rank_did_not_wait_stands_right_of_its_lane():
    texts = {round(t.get_position()[1]): t.get_text() for t in figures.timeline(UNEVEN).axes[0].texts if "%" in t.get_text()}
    assert texts == {0: "25 %", 1: "100 %"}


def test_a_rank_that_ended_early_is_as_busy_as_it_was_until_then():
    early = trace((0, "compute", 0.0, 1.0), (0, "recv", 1.0, 2.0), (1, "compute", 0.0, 8.0))
    assert "50 %" in [t.get_text() for t in figures.timeline(early).axes[0].texts]


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


def test_the_title_of_a_failure_is_short_and_a_cross_ends_the_lane_of_the_rank_that_failed():
    failed = broken_off("failed", (Failure(2, "raised", 0.0, type="ValueError"),), STOOD[:2])
    (ax,) = figures.timeline(failed).axes
    assert ax.get_title(loc="left") == "Rank 2 failed; 2 ranks waited for others"
    assert [line.get_ydata()[0] for line in ax.lines if line.get_marker() == "X"] == [2]


def test_a_rank_of_a_hang_that_waited_for_nobody_is_said_to_have_been_running():
    stood = (STOOD[0], Standing(1), STOOD[2])
    assert "rank 1 was running" in figures.timeline(broken_off(standings=stood)).alt


def test_a_trace_alone_says_what_never_ended():
    alt = figures.timeline(HUNG).alt
    assert "rank 2 left recv from rank 0 unfinished; ranks 0 and 1 left barrier unfinished." in alt


def test_what_never_ended_reaches_the_end_and_is_named():
    ax = figures.timeline(broken_off()).axes[0]
    said = [text.get_text() for text in ax.texts]
    assert said.count("barrier, never ended") == 2 and "recv from rank 0, never ended" in said
    ends = {max(right for _, right, _, _ in boxes) for boxes in areas(figures.timeline(broken_off())).values()}
    assert max(ends) == ax.get_xlim()[1]


def test_many_different_stands_are_counted_and_not_listed():
    ring = tuple(Standing(r, Wait(r, "recv", (r + 1) % 64)) for r in range(64))
    said = rank_timeline.told_stands(rank_timeline.stands(HUNG, Outcome("deadlock", standings=ring)))
    assert said.endswith("and 61 more ranks elsewhere") and len(said) < 160


def test_the_headline_names_the_straggler_before_those_who_wait_for_it():
    spans = [Span(rank, "compute", 0.0, 4.0 if rank == 2 else 1.0) for rank in range(4)]
    spans += [Span(rank, "wait", 1.0, 4.0) for rank in (0, 1, 3)]
    alt = figures.timeline(Trace(4, (), tuple(spans))).alt
    assert "rank 2 computes 4 times as long as the others; " in alt


def test_a_collective_within_a_marked_phase_covers_a_part_of_it():
    within = areas(figures.timeline(trace((0, "compute", 0.0, 1.0), collectives=[("all_gather", 8, 0, 0.2, 0.4)])))
    assert [box[:2] for box in within[rank_timeline.LOOKS["collective"]]] == [(0.2, 0.4)]
    assert [box[:2] for box in within[rank_timeline.LOOKS["compute"]]] == [(0.0, 0.2), (0.4, 1.0)]


def test_waits_with_less_than_a_pixel_between_them_are_as_high_as_they_are_long():
    received = [(0, "recv", k * 1e-3, k * 1e-3 + 9e-4) for k in range(1000)]
    picture = figures.timeline(trace(*received, world_size=1))
    assert "the rank waits 90 % of the time" in picture.alt
    [(_, _, low, high)] = areas(picture)[rank_timeline.LOOKS["wait"]]
    assert (high - low) / (2 * rank_timeline.HALF) == pytest.approx(0.9, abs=0.05)


def test_many_waits_as_narrow_as_their_outlines_are_drawn_as_heights_and_no_barcode():
    spans = [(r, "wait", 0.1 * n, 0.1 * n + (1e-4 if n % 2 else 0.05)) for r in range(2) for n in range(100)]
    assert "height: share of the time" in figures.timeline(trace(*spans)).axes[0].get_xlabel()


def test_nothing_over_a_crowded_timeline_lies_on_its_legend():
    spans = [(rank, kind, k + 0.1, k + 0.6) for rank in range(2) for kind in ("send", "recv") for k in range(400)]
    shown = figures.timeline(trace(*spans, (0, "compute", 0.0, 0.1), (0, "wait", 0.1, 0.6)))
    shown.canvas.draw()
    [ax] = shown.axes
    legend = ax.get_legend().get_window_extent()
    over = [*ax.texts, ax.title, ax._left_title]
    assert not any(legend.overlaps(text.get_window_extent()) for text in over if text.get_text())
