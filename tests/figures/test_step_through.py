"""Step-throughs: what a step is, what it says, what ranks are seen to hold, and the HTML that carries it."""

import base64
import html
import itertools
import json
import math
import re
from functools import cache
from types import SimpleNamespace

import pytest

from worldsize import figures
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.step_through import layout as stage
from worldsize.figures.step_through import scene, text
from worldsize.figures.step_through.steps import RankRest, steps_of
from worldsize.figures.step_through.still import still
from worldsize.trace import Note, Span, Trace, Transfer

WORLDS = [2, 3, 4, 8, 16]
LAYOUTS = ["ring", "star", "tree", "pipeline"]


def trace(n, transfers=(), spans=()):
    return Trace(n, tuple(transfers), tuple(spans))


def ring(n, rounds_, jitter=lambda k, r: 0.0):
    """Every rank sends to the next one, and goes on when that is taken and it has what the one before sent."""
    free_s, found = [0.0] * n, []
    for k in range(rounds_):
        sent = [Transfer(r, (r + 1) % n, 1000, free_s[r], free_s[r] + 1 + jitter(k, r)) for r in range(n)]
        found += sent
        free_s = [max(sent[r - 1].end_s, sent[r].end_s) for r in range(n)]
    return trace(n, found)


def server(n):
    """All send to rank 0 at once, which takes one after another; then it sends to all at once."""
    up = [Transfer(r, 0, 1000, 0.0, float(r)) for r in range(1, n)]
    down = [Transfer(0, r, 1000, n - 1.0, n - 1.0 + r, recv_start_s=float(r)) for r in range(1, n)]
    spans = [Span(t.src, "send", t.start_s, t.end_s) for t in up]
    return trace(n, up + down, spans)


def data_of(shown):
    """What the page's script gets."""
    return data_in(shown._repr_html_())


def data_in(page):
    return json.loads(re.search(r"\nshowAll\(\"steps\", \"\w+\", (.*)\);\n</script>$", page)[1])


def links(steps):
    return [[(m.src, m.dst) for m in step.messages] for step in steps]


# what a step is


@pytest.mark.parametrize("n", WORLDS)
def test_the_kth_messages_round_a_ring_are_one_step(n):
    steps = links(steps_of(ring(n, 3)))
    assert steps == [[(r, (r + 1) % n) for r in range(n)]] * 3


def test_ranks_that_are_at_different_speeds_still_make_the_same_steps():
    uneven = ring(4, 5, jitter=lambda k, r: 0.3 * ((7 * r + 3 * k) % 5))
    assert links(steps_of(uneven)) == links(steps_of(ring(4, 5)))


def test_messages_that_queue_at_a_server_are_a_step_each():
    assert links(steps_of(server(4))) == [[(1, 0)], [(2, 0)], [(3, 0)], [(0, 1)], [(0, 2)], [(0, 3)]]


def test_messages_that_are_posted_together_to_different_ranks_are_taken_one_a_step():
    all_to_all = [Transfer(r, (r + k) % 4, 10, 0.0, float(k)) for k in (1, 2, 3) for r in range(4)]
    assert links(steps_of(trace(4, all_to_all))) == [[(r, (r + k) % 4) for r in range(4)] for k in (1, 2, 3)]


def test_a_message_that_passes_on_what_came_is_a_later_step():
    chain = [Transfer(r, r + 1, 10, float(r), r + 1.0) for r in range(3)]
    assert links(steps_of(trace(4, chain))) == [[(0, 1)], [(1, 2)], [(2, 3)]]


def test_a_pipelines_stages_work_in_the_same_step():
    filled = [Transfer(s, s + 1, 10, float(s + m), s + m + 1.0) for m in range(3) for s in range(2)]
    assert links(steps_of(trace(3, filled))) == [[(0, 1)], [(0, 1), (1, 2)], [(0, 1), (1, 2)], [(1, 2)]]


def test_every_message_is_in_one_step():
    tangled = [Transfer((7 * k) % 5, (7 * k + 1 + k % 4) % 5, k, 0.1 * (k % 9), 1 + 0.37 * k % 3) for k in range(60)]
    found = [m.size_bytes for step in steps_of(trace(5, tangled)) for m in step.messages]
    assert sorted(found) == list(range(60))


def test_a_rank_sends_at_most_one_message_and_receives_at_most_one_in_a_step():
    tangled = [Transfer((7 * k) % 5, (7 * k + 1 + k % 4) % 5, k, 0.1 * (k % 9), 1 + 0.37 * k % 3) for k in range(60)]
    for step in links(steps_of(trace(5, tangled))):
        assert len({src for src, _ in step}) == len({dst for _, dst in step}) == len(step)


# who waits


def test_ranks_that_queue_are_said_to_wait_and_for_whom():
    rest = [step.rest for step in steps_of(server(4))]
    assert rest[0] == {2: RankRest("sends", 0), 3: RankRest("sends", 0)}
    assert rest[1] == {1: RankRest("receives", 0), 3: RankRest("sends", 0)}
    assert rest[5] == {}


def test_a_rank_that_computes_meanwhile_is_said_to_compute():
    spans = [Span(2, "compute", 0.0, 0.9)]
    assert steps_of(trace(3, [Transfer(0, 1, 10, 0, 1)], spans))[0].rest == {2: RankRest("computes")}


def test_a_rank_whose_send_waits_behind_its_back_computes():
    found = steps_of(
        trace(3, [Transfer(0, 1, 9, 0, 1), Transfer(2, 1, 9, 0, 2)], [Span(2, "compute", 0, 1), Span(2, "send", 0, 2)])
    )
    assert found[0].rest == {2: RankRest("computes")}


def test_a_receiver_that_waited_long_for_a_late_sender_is_named():
    late = trace(2, [Transfer(0, 1, 10, 0, 0.1), Transfer(0, 1, 10, 0.5, 0.6, recv_start_s=0.1)])
    assert (
        text.sentence(steps_of(late)[1], 2)
        == "rank 0 sends 10 B to rank 1; rank 1 waited 400 ms for its message"
    )


# a step in words


@pytest.mark.parametrize(
    ("transfers", "n", "words"),
    [
        ([Transfer(r, (r + 1) % 4, 1000, 0, 1) for r in range(4)], 4, "every rank sends 1 kB to the next one"),
        ([Transfer(r, (r - 1) % 4, 1000, 0, 1) for r in range(4)], 4, "every rank sends 1 kB to the one before"),
        ([Transfer(r, (r + 2) % 5, 1000, 0, 1) for r in range(5)], 5, "every rank sends 1 kB to the one 2 further on"),
        ([Transfer(r, (r + 1) % 3, 1 + (r > 1), 0, 1) for r in range(3)], 3, "every rank sends 1 B to 2 B to the next one"),
        ([Transfer(0, 1, 8, 0, 1), Transfer(1, 0, 8, 0, 1)], 2, "ranks 0 and 1 send each other 8 B"),
        ([Transfer(0, 2, 8, 0, 1), Transfer(1, 0, 9, 0, 1)], 3, "rank 0 sends 8 B to rank 2, rank 1 sends 9 B to rank 0"),
        (
            [Transfer(r, r + 1, 8, 0, 1) for r in range(6)], 8,
            "rank 0 sends 8 B to rank 1, rank 1 sends 8 B to rank 2, rank 2 sends 8 B to rank 3, "
            "rank 3 sends 8 B to rank 4, and 2 more messages",
        ),
    ],
)  # fmt: skip
def test_a_step_says_who_sends_what_to_whom(transfers, n, words):
    assert text.sentence(steps_of(trace(n, transfers))[0], n) == words


@pytest.mark.parametrize(
    ("rest", "clauses"),
    [
        ({0: RankRest("receives", 1)}, ["rank 0 waits for rank 1"]),
        ({2: RankRest("sends", 0), 3: RankRest("sends", 0)}, ["ranks 2 and 3 wait to send to rank 0"]),
        ({3: RankRest("waits"), 1: RankRest("waits")}, ["ranks 1 and 3 wait"]),
        ({r: RankRest("computes") for r in (2, 3, 4)}, ["ranks 2 to 4 compute"]),
        (
            {0: RankRest("computes"), 1: RankRest("waits"), 2: RankRest("computes"), 4: RankRest("computes")},
            ["ranks 0, 2 and 4 compute", "rank 1 waits"],
        ),
    ],
)
def test_ranks_that_do_the_same_share_a_clause(rest, clauses):
    assert text.resting(rest) == clauses


# what ranks hold


def note(op, peer, held, chunks=None):
    return Note(op, peer, 0, held, chunks)


# reduce-scatter of two ranks: rank 0 sends chunk 0 and takes chunk 1; rank 1 the other way round
HALF = trace(2, [Transfer(0, 1, 8, 0, 1), Transfer(1, 0, 8, 0, 1)])
HALF_NOTES = [
    [note("send", 1, (1.0, 1.0), (0, 0)), note("recv", 1, (1.0, 1.0)), note("end", 0, (1.0, 11.0))],
    [note("send", 0, (10.0, 10.0), (1, 1)), note("recv", 0, (10.0, 10.0)), note("end", 1, (11.0, 10.0))],
]


def test_after_a_step_a_rank_holds_what_it_held_at_its_next_call():
    assert steps_of(HALF, HALF_NOTES)[0].held == ((1.0, 11.0), (11.0, 10.0))


def test_the_text_counts_whole_sums():
    words = text.sentence(steps_of(HALF, HALF_NOTES)[0], 2)
    assert words == "ranks 0 and 1 send each other a chunk (8 B); 2 of 4 cells hold the whole sum"


def test_a_message_names_its_chunk_where_that_is_known():
    data = data_of(figures.steps(HALF, contents=HALF_NOTES))
    assert data["steps"][0]["messages"] == [[0, 1, "chunk 0"], [1, 0, "chunk 1"]]


def test_the_notes_say_what_is_known_of_an_arrow():
    known, plain = figures.steps(HALF, contents=HALF_NOTES), figures.steps(HALF)
    assert data_of(known)["notes"][0] == "On an arrow: which chunk it carries."
    assert data_of(plain)["notes"][0].startswith("On an arrow: its size. Which part of a tensor")


def test_tags_stand_on_the_arrows_where_they_tell_messages_apart():
    tagged = trace(2, [Transfer(0, 1, 8, 0, 1, tag=3)])
    assert data_of(figures.steps(tagged))["steps"][0]["messages"] == [[0, 1, "8 B, tag 3"]]


def test_the_tracks_of_all_messages_are_there_before_the_first_step():
    assert data_of(figures.steps(server(3), "star"))["links"] == [[0, 1], [0, 2], [1, 0], [2, 0]]


def test_a_step_carries_the_cells_that_change():
    data = data_of(figures.steps(HALF, contents=HALF_NOTES))
    assert data["cells"] == [["10", "10"], ["01", "01"]]
    assert data["steps"][0]["cells"] == [[0, 1, "11"], [1, 0, "11"]]


def test_a_number_that_is_no_sum_of_marks_is_shown_as_unknown():
    odd = [[*notes[:-1], note("end", 0, (0.5, 2.0))] for notes in HALF_NOTES]
    assert data_of(figures.steps(HALF, contents=odd))["steps"][0]["cells"][:2] == [[0, 0, "?"], [0, 1, "20"]]


# where ranks stand


def boxes(where):
    w, h = where.box
    return [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for x, y in where.centres]


def binomial(n, chunks=0, width=stage.WIDTH):
    pairs = [(me - step, me) for step in (1, 2, 4, 8) for me in range(step, min(2 * step, n))]
    return stage.tree(n, chunks, 0, pairs, width)


SIZES = [(n, chunks) for n in (1, 2, 3, 5, 8) for chunks in (0, 1, 4, 16)] + [(n, 0) for n in (9, 12, 15, 16)]


def fits(where):
    """Return whether no box of a picture touches another or leaves the canvas."""
    found = boxes(where)
    within = all(0 <= x0 and 0 <= y0 and x1 <= where.width and y1 <= where.height for x0, y0, x1, y1 in found)
    pairs = [(a, b) for i, a in enumerate(found) for b in found[:i]]
    return within and not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for a, b in pairs)


@pytest.mark.parametrize("place", [stage.ring, stage.star, stage.tree, binomial, stage.pipeline])
def test_no_box_touches_another_or_leaves_the_canvas(place):
    drawn = {(n, chunks, width): place(n, chunks, width=width) for n, chunks in SIZES for width in stage.WIDTHS}
    assert [size for size, where in drawn.items() if not fits(where)] == []


def test_what_goes_to_the_next_stage_passes_above_the_boxes():
    for n, width in itertools.product(range(2, 9), stage.WIDTHS):
        where = stage.pipeline(n, width=width)
        begin, via, end = where.arrow(0, 1)
        middle_y = (begin[1] + 2 * via[1] + end[1]) / 4
        assert middle_y + 10 < where.centres[0][1] - where.box[1] / 2, (n, width)


def test_the_hub_of_a_star_stands_in_the_middle_of_the_others():
    where = stage.star(5, hub=2)
    others = [x for rank, (x, _) in enumerate(where.centres) if rank != 2]
    assert min(others) < where.centres[2][0] == stage.WIDTH / 2 < max(others)


@pytest.mark.parametrize(("n", "width"), [(n, width) for n in (4, 5, 9, 16) for width in stage.WIDTHS])
def test_a_stars_ranks_stand_at_even_distances_and_alike_on_both_sides(n, width):
    hub, *others = stage.star(n, width=width).centres
    gaps = [math.dist(a, b) for a, b in zip(others, others[1:] + others[:1], strict=True)]
    spokes = [math.dist(hub, other) for other in others]
    assert max(gaps) <= 1.3 * min(gaps) and max(spokes) <= 1.7 * min(spokes)

    left = sorted(round(hub[0] - x, 3) for x, _ in others if x < hub[0] - 1)
    right = sorted(round(x - hub[0], 3) for x, _ in others if x > hub[0] + 1)
    assert left == pytest.approx(right, abs=2)


def test_in_a_tree_everybody_stands_one_floor_below_the_rank_that_it_heard_from_first():
    floors = [y for _, y in binomial(8).centres]
    steps = [floors[child] - floors[parent] for parent, child in [(0, 1), (0, 2), (1, 3), (0, 4), (1, 5), (2, 6), (3, 7)]]
    assert len(set(steps)) == 1 and steps[0] > 0


def test_ranks_that_no_message_reaches_stand_below_the_hub_of_a_tree():
    where = stage.tree(4, hub=3, pairs=[(3, 1)])
    assert {y for rank, (_, y) in enumerate(where.centres) if rank != 3} == {where.centres[1][1]}


def test_two_ranks_that_swap_have_two_arrows():
    where = stage.ring(2)
    assert where.arrow(0, 1)[1][1] < where.centres[0][1] < where.arrow(1, 0)[1][1]


# the output


RING = ring(4, 6)
EVERY_LAYOUT = {
    **{layout: lambda layout=layout: figures.steps(RING, layout) for layout in LAYOUTS},
    "contents": lambda: figures.steps(HALF, contents=HALF_NOTES),
    "sixteen": lambda: figures.steps(ring(16, 4)),
    "server": lambda: figures.steps(server(8), "star"),
}
every_layout = pytest.mark.parametrize("make", EVERY_LAYOUT.values(), ids=EVERY_LAYOUT)


@cache
def output(make):
    """Return a step-through and its page; drawing one takes long, and several tests look at it."""
    shown = make()
    return shown, shown._repr_html_()


@every_layout
def test_the_output_holds_a_picture_with_alt_text(make):
    shown, page = output(make)
    found = re.search(r'<img alt="([^"]+)" [^>]*src="data:image/png;base64,([^"]+)">', page)
    assert html.unescape(found[1]) == shown.alt
    assert base64.b64decode(found[2]).startswith(b"\x89PNG")


@every_layout
def test_the_output_fetches_nothing(make):
    page = re.sub(r'src="data:[^"]*"|http://www\.w3\.org/2000/svg', "", output(make)[1])
    assert not re.search(r"https?:|src=|import |fetch\(|url\((?!#|\$)", page)


@every_layout
def test_the_output_ends_with_its_data(make):
    shown, page = output(make)
    data = data_in(page)
    assert data["title"].lower() in shown.alt.lower() and data["steps"]


def test_text_cannot_end_the_script(monkeypatch):
    monkeypatch.setattr(scene, "message_pattern", lambda trace: "</script><b>")
    shown = figures.steps(RING)
    assert shown._repr_html_().count("</script>") == 1 and data_of(shown)["title"] == "</script><b>"


def test_two_step_throughs_on_a_page_have_names_of_their_own():
    pages = [output(EVERY_LAYOUT[name])[1] for name in ("ring", "server")]
    names = [re.search(r'data-steps="(\w+)"', page)[1] for page in pages]
    assert names[0] != names[1]


def test_lab_leaves_the_arrow_keys_to_it():
    assert 'data-lm-suppress-shortcuts="true"' in output(EVERY_LAYOUT["ring"])[1]


def test_the_still_picture_names_the_chunk_on_every_arrow():
    picture = still(steps_of(HALF, HALF_NOTES), stage.ring(2, 2, stage.WIDTHS[1]), "two ranks")
    said = [words.get_text() for words in picture.axes[0].texts]
    assert {"chunk 0", "chunk 1"} <= set(said)


def test_the_alt_text_states_the_finding_and_the_first_steps():
    alt = figures.steps(RING).alt
    assert alt.startswith(
        "Steps of 4 ranks as a ring: every message goes from a rank to the next one (rank + 1), round a ring. "
        "24 messages in 6 steps, 24 kB in all. step 1: every rank sends 1 kB to the next one."
    )


def test_ipython_stores_html_a_picture_and_text(monkeypatch):
    bundles = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw, metadata: bundles.append(bundle))
    figures.steps(RING)._ipython_display_()
    assert [sorted(bundle) for bundle in bundles] == [["image/png", "text/html", "text/plain"]]


CROWDED = trace(8, [Transfer(k % 7, 7, 10**6 + k, float(k), k + 1.0) for k in range(200)])
CROWDED = trace(8, CROWDED.transfers, [Span(r, "recv", 0.0, 1e3) for r in range(8)])


IN_SOAK = [pytest.param(of, id=id, marks=pytest.mark.soak) for of, id in ((ring(8, 25), "8"), (server(16), "server"))]


@pytest.mark.parametrize("of", [pytest.param(CROWDED, id="one a step"), pytest.param(ring(16, 12), id="16"), *IN_SOAK])
def test_two_hundred_messages_stay_under_60_kB(of):
    assert len(figures.steps(of, "star" if of is CROWDED else "ring")._repr_html_().encode()) <= 60_000


def test_a_long_trace_is_cut_at_a_whole_step_and_says_so():
    data = data_of(figures.steps(ring(8, 100)))
    assert len(data["steps"]) == 25
    assert data["notes"][-1] == "Only the first 25 of 100 steps are here."


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_that_is_not_yet_gives_a_picture_that_says_which_exercise(layout):
    run = SimpleNamespace(state="not yet", not_yet="Exercise 6.2: the ring", trace=trace(4), results=[])
    shown = figures.steps(run, layout, contents=run.results)
    assert isinstance(shown, Picture) and "not yet: Exercise 6.2" in shown.alt


def test_a_trace_without_messages_says_so():
    assert figures.steps(trace(4)).alt == "no messages were sent"


def test_more_ranks_than_fit_are_a_picture_that_says_so():
    assert "17 ranks are too many" in figures.steps(ring(17, 1)).alt


def test_what_ranks_hold_is_left_out_where_there_are_too_many_to_draw():
    notes = [[note("end", rank, (1.0,) * 9)] for rank in range(9)]
    data = data_of(figures.steps(ring(9, 1), contents=notes))
    assert data["cells"] == [] and "cells" not in data["steps"][0]


def test_an_unknown_layout_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="one of the layouts 'ring', 'star', 'tree', 'pipeline', got 'mesh'"):
        figures.steps(RING, "mesh")


@pytest.mark.parametrize("contents", [[None] * 4, [[1.0, 2.0]] * 4, HALF_NOTES])
def test_contents_that_are_no_notes_of_every_rank_are_refused(contents):
    with pytest.raises(ValueError, match="expected contents to hold a Watched fabric's notes for each of 4 ranks"):
        figures.steps(RING, contents=contents)


def test_every_rank_has_a_hatch_in_the_script():
    script = scene.SCRIPT.read_text()
    table = re.search(r"const HATCHES = \[(.*?)\];", script, re.DOTALL)[1]
    assert len(set(re.findall(r'"([^"]*)"', table))) >= len(set(base.COLOURS))


def test_the_player_has_each_rank_s_marker_within_one_square():
    page = figures.steps(ring(3, 2))._repr_html_()
    shapes = json.loads(re.search(r"SHAPES = (\[.*?\]);", page)[1])
    assert len(shapes) == len(set(shapes)) == len(tokens.MARKERS)
    for shape in shapes:
        numbers = list(map(float, re.findall(r"-?\d+\.\d+", shape)))
        assert len(numbers) % 2 == 0 and max(map(abs, numbers)) < 0.51


def test_the_still_picture_shows_ranks_and_senders_by_their_markers():
    panel = figures.steps(ring(3, 1))._still.axes[0]
    assert sorted(line.get_marker() for line in panel.lines) == sorted(2 * [base.marker(rank) for rank in range(3)])
