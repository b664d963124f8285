"""The pictures: what they say, that they can be read, and that they stay small."""

import base64
import html
import io
import re
import subprocess
import sys
import warnings
from functools import cache
from types import SimpleNamespace

import matplotlib
import numpy as np
import PIL.Image
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from worldsize import figures
from worldsize.figures import Curve, Timing, tokens
from worldsize.figures import base as picture
from worldsize.lab.summary import SummaryRow
from worldsize.trace import Collective, Span, Trace, Transfer

SIZE_BYTES = 4_000_000
SECONDS_PER_BYTE = 1 / 20e6


def ring(n, size_bytes=SIZE_BYTES, rounds=None, step=1):
    """A ring all-reduce in which every round takes as long as its chunk."""
    chunk = size_bytes // n
    took_s = chunk * SECONDS_PER_BYTE
    return trace(
        n,
        [
            Transfer(r, (r + step) % n, chunk, k * took_s, (k + 1) * took_s)
            for k in range(rounds or 2 * (n - 1))
            for r in range(n)
        ],
    )


def server(n, size_bytes=SIZE_BYTES):
    took_s = size_bytes * SECONDS_PER_BYTE
    up = [Transfer(r, 0, size_bytes, 0.0, r * took_s) for r in range(1, n)]
    down = [Transfer(0, r, size_bytes, (n + r - 2) * took_s, (n + r - 1) * took_s) for r in range(1, n)]
    return trace(n, up + down)


def line(n):
    """There and back along a row of ranks, as in a pipeline."""
    there = [(rank, rank + 1) for rank in range(n - 1)]
    pairs = [*there, *((after, before) for before, after in reversed(there))]
    return trace(n, [Transfer(*pair, SIZE_BYTES, k, k + 1) for k, pair in enumerate(pairs)])


def tree(n, up=False):
    """A binomial tree from rank 0 down, or up to it."""
    pairs = [(me - step, me) for step in (1, 2, 4, 8) for me in range(step, min(2 * step, n))]
    times = range(len(pairs), 0, -1) if up else range(len(pairs))
    return trace(n, [Transfer(*(p[::-1] if up else p), SIZE_BYTES, k, k + 1) for k, p in zip(times, pairs, strict=True)])


def sharded(n, size_bytes=SIZE_BYTES):
    took_s = size_bytes // n * SECONDS_PER_BYTE
    return trace(
        n,
        [
            Transfer(r, (r + k) % n, size_bytes // n, (k - 1) * took_s, k * took_s)
            for k in range(1, n)
            for r in range(n)
        ],
    )


def trace(n, transfers=(), spans=(), collectives=()):
    return Trace(n, tuple(transfers), tuple(spans), tuple(collectives))


def texts(shown):
    """Every text in the picture."""
    return [t.get_text() for t in shown.findobj(matplotlib.text.Text) if t.get_text()]


def arrows(shown):
    return [a for a in shown.axes[0].texts if getattr(a, "arrow_patch", None)]


def contrast(one, other):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return np.dot([0.2126, 0.7152, 0.0722], parts)

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def row(id, predicted, measured, unit="s", measured_unit="s"):
    return SummaryRow(id, f"What is {id}?", unit, predicted, measured, measured_unit)


def lab(*rows):
    return SimpleNamespace(rows=lambda: rows)


def done(results):
    return SimpleNamespace(state="done", results=results)


NOT_YET = SimpleNamespace(state="not yet", not_yet="Exercise 6.2: the ring", trace=trace(4))
EVERY_KIND = {
    "messages": lambda: figures.messages(ring(4)),
    "links": lambda: figures.links(server(4)),
    "race": lambda: figures.race([Timing("ring", 0.2, 0.21, 4), Timing("server", 1.0, None, 4)]),
    "predicted": lambda: figures.predicted(lab(row("a", 1, 2), row("b", None, 3))),
    "curves": lambda: figures.curves([Curve("ring", [(2, 1.0), (8, 1.75)])], "Is it flat?", x="ranks", y="tensors"),
    "contributions": lambda: figures.contributions(done([[1, 11], [11, 10]])),
    "not_yet": lambda: figures.not_yet("Exercise 6.2: the ring"),
    "empty": lambda: figures.messages(trace(4)),
}
every_kind = pytest.mark.parametrize("make", EVERY_KIND.values(), ids=EVERY_KIND)
WORLDS = [1, 3, 16, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 4, 8))]


@cache
def drawn(make):
    """Return the picture that `make` gives and its PNG; several tests look at one."""
    shown = make()
    return shown, shown.png()


# how a picture is shown


@every_kind
def test_a_picture_is_an_image_with_alt_text(make):
    shown, _ = drawn(make)
    page = shown._repr_html_()
    found = re.search(r'<img alt="([^"]+)" [^>]*src="data:image/png;base64,([^"]+)">', page)
    assert html.unescape(found[1]) == (shown.brief or shown.alt)
    assert base64.b64decode(found[2]).startswith(b"\x89PNG")
    assert html.unescape(re.search(r'aria-label="([^"]+)"', page)[1]) == (shown.brief or shown.alt)


def test_quotes_in_a_name_do_not_end_the_alt_text():
    page = figures.race([Timing('the "fast" <one>', 1.0)])._repr_html_()
    assert "&quot;fast&quot; &lt;one&gt;" in page


def test_pictures_need_no_pyplot():
    code = "import sys; from worldsize import figures; figures.not_yet('x').png(); print(*sys.modules)"
    assert b"matplotlib.pyplot" not in subprocess.check_output([sys.executable, "-c", code], timeout=60).split()


@every_kind
def test_a_picture_has_a_white_background(make):
    image = PIL.Image.open(io.BytesIO(drawn(make)[1])).convert("RGB")
    assert image.getpixel((8, 8)) == (255, 255, 255)


def test_a_students_own_style_stays_out():
    with matplotlib.rc_context({"axes.facecolor": "black", "text.color": "white", "font.size": 40}):
        styled = figures.messages(ring(3)).png()
    assert styled == figures.messages(ring(3)).png()


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("pattern", [ring, server, sharded])
@pytest.mark.parametrize("draw", [figures.messages, figures.links])
def test_a_picture_of_up_to_16_ranks_stays_under_80_kB_and_is_laid_out(draw, pattern, n):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where a layout has no room
        assert len(draw(pattern(n)).png()) < 80_000


LONG = "a sharded parameter server with a long name"
CROWDED = {
    **{name: make for name, make in EVERY_KIND.items() if name not in ("not_yet", "empty")},  # those have a frame
    "sixteen ranks": lambda: figures.messages(server(16, 12_345_678)),
    "sixteen rows": lambda: figures.links(sharded(16, 12_345_678)),
    "long names": lambda: figures.race([Timing(f"{LONG} {i}", i + 1, i + 0.7, 8) for i in range(3)]),
    "long questions": lambda: figures.predicted(
        lab(SummaryRow("a", "word " * 60, "bytes a rank", 1234567, 345, "bytes a rank"))
    ),
}


@pytest.mark.parametrize("make", CROWDED.values(), ids=CROWDED)
def test_nothing_touches_the_edge(make):
    image = np.asarray(PIL.Image.open(io.BytesIO(drawn(make)[1])).convert("L"))
    assert min(image[:3].min(), image[-3:].min(), image[:, :3].min(), image[:, -3:].min()) == 255


def test_text_has_a_contrast_of_at_least_4_5():
    assert all(contrast(ink, "white") >= 4.5 for ink in (picture.INK, picture.QUIET_INK))


def test_the_line_of_each_rank_has_a_contrast_of_at_least_3():
    assert all(contrast(colour, "white") >= 3 for colour in picture.COLOURS)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_in_cells_have_a_contrast_of_at_least_4_5(theme):
    ink, paper, tone = (to_rgb(getattr(t, theme)) for t in (tokens.INK, tokens.PAPER, tokens.AMOUNT))
    for level in np.linspace(0, 1, 101):
        alpha = picture.amount(level)[3]
        cell = [alpha * one + (1 - alpha) * ground for one, ground in zip(tone, paper, strict=True)]
        assert contrast(ink, cell) >= 4.5


def test_sixteen_ranks_have_sixteen_pairs_of_colour_and_marker():
    assert len({(picture.colour(rank), picture.marker(rank)) for rank in range(16)}) == 16


def test_a_hatch_stands_only_where_a_colour_comes_again():
    assert {picture.hatch(rank) for rank in range(6)} == {""}
    assert len({(picture.colour(rank), picture.hatch(rank)) for rank in range(24)}) == 24


def test_the_small_palette_keeps_every_ranks_colour():
    image = PIL.Image.open(io.BytesIO(figures.messages(ring(8)).png())).convert("RGB")
    found = set(image.get_flattened_data() if hasattr(image, "get_flattened_data") else image.getdata())
    assert all(tuple(round(255 * c) for c in to_rgb(colour)) in found for colour in picture.COLOURS)


# messages


def test_every_message_is_an_arrow_from_its_sender_to_its_receiver():
    shown = figures.messages(trace(3, [Transfer(2, 0, 8, 0.010, 0.014), Transfer(0, 1, 8, 0.012, 0.020)]))
    ends = [(a.xyann, a.xy) for a in arrows(shown)]
    assert ends == [(pytest.approx((0, 2)), pytest.approx((4, 0))), (pytest.approx((2, 0)), pytest.approx((10, 1)))]


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (ring(4), "every message goes from a rank to the next one (rank + 1), round a ring"),
        (ring(4, step=-1), "every message goes from a rank to the previous one (rank − 1), round a ring"),
        (server(4), "every message goes to or comes from rank 0"),
        (line(3), "every message goes from a rank to a neighbour, from rank 0 to rank 2 and back"),
        (line(4), "every message goes from a rank to a neighbour, from rank 0 to rank 3 and back"),
        (tree(8), "every rank but 0 receives one message, down a tree from rank 0"),
        (tree(8, up=True), "every rank but 0 sends one message, up a tree to rank 0"),
        (sharded(4), "every rank sends to every other one, the same number of bytes"),
        (ring(2), "every rank sends the same number of bytes"),
        (trace(2, [Transfer(1, 0, 5, 0, 1)]), "rank 1 sends to rank 0"),
        (trace(3, [Transfer(0, 1, 3, 0, 1), Transfer(1, 2, 1, 0, 1), Transfer(2, 1, 0, 0, 1)]), "rank 1"),
    ],
)
def test_the_alt_text_states_what_the_messages_do(of, words):
    assert words in figures.messages(of).alt and words in figures.links(of).alt


def test_chunks_that_differ_by_an_element_are_told_as_equal():
    pairs = {(0, 1): 893_000, (1, 2): 893_004, (2, 0): 893_000, (1, 0): 893_000, (2, 1): 893_000, (0, 2): 893_004}
    alt = figures.messages(trace(3, [Transfer(*pair, size, 0, 1) for pair, size in pairs.items()])).alt
    assert "every rank sends to every other one, the same number of bytes" in alt


def test_work_after_the_last_message_is_drawn():
    work = Span(0, "compute", 0.003, 0.009)
    shown = figures.messages(trace(2, [Transfer(1, 0, 8, 0.001, 0.002)], [work]))
    assert shown.axes[0].get_xlim()[1] >= 8  # ms since the first event, at 0.001 s


def test_the_alt_text_counts_the_messages_and_their_bytes():
    assert figures.messages(ring(4)).alt.endswith("24 messages, 1 MB each, 24 MB in all, 300 ms.")


def test_messages_in_steps_say_steps_and_no_seconds():
    shown = figures.messages(ring(4), in_steps=True)
    assert shown.alt.endswith("24 messages, 1 MB each, 24 MB in all, 6 steps.") and "step" in texts(shown)


def test_sizes_that_differ_are_written_on_the_arrows():
    shown = figures.messages(trace(3, [Transfer(0, 1, 1000, 0, 1), Transfer(1, 2, 2500, 0, 1)]))
    assert {"1 kB", "2.5 kB"} <= set(texts(shown))


@pytest.mark.parametrize(("n", "labels"), [(4, 6), (5, 0)])
def test_sizes_that_are_all_equal_are_written_on_few_arrows_as_they_stand_over_the_picture(n, labels):
    shown = figures.messages(line(n))
    assert texts(shown).count("4 MB") == labels and "4 MB each" in shown.alt


def test_size_labels_touch_neither_each_other_nor_the_edge():
    shown = figures.messages(
        trace(8, [Transfer(r, (r * 3 + 1) % 8, 100 + r, 0.001 * r, 0.004 + 0.001 * r) for r in range(8)])
    )
    shown.png()
    boxes = [t.get_window_extent() for t in shown.axes[0].texts if re.fullmatch(r"\d+ B", t.get_text())]
    assert len(boxes) >= 4
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(shown.bbox.x0 < box.x0 and box.x1 < shown.bbox.x1 for box in boxes)


def test_many_messages_are_thinned_and_the_picture_says_so():
    shown = figures.messages(ring(4, rounds=1200))
    drawn = len(arrows(shown))
    assert drawn < 4800
    assert f"4,800 messages, 1 MB each, 4.8 GB in all, 60 s; only the first {drawn} are drawn" in shown.alt


def test_compute_and_wait_are_bars_with_a_legend():
    spans = [Span(0, "compute", 0, 0.5), Span(1, "wait", 0, 0.5), Span(0, "send", 0.5, 1)]
    shown = figures.messages(trace(2, [Transfer(0, 1, 8, 0.5, 1)], spans))
    assert [t.get_text() for t in shown.axes[0].get_legend().get_texts()] == ["compute", "wait", "message"]


# links


def test_each_cell_holds_its_links_bytes_and_the_edges_hold_the_sums():
    shown = figures.links(trace(2, [Transfer(0, 1, 2000, 0, 1), Transfer(0, 1, 1000, 1, 2), Transfer(1, 0, 500, 0, 1)]))
    found = [(t.get_position(), t.get_text()) for t in shown.axes[0].texts if type(t) is Text]
    assert {((1, 0), "3"), ((0, 1), "0.5")} <= set(found)
    sent = [text for (x, y), text in found if x > 1.5]
    received = [text for (x, y), text in found if y > 1.5]
    assert (sent, received) == (["3", "0.5", "sends"], ["0.5", "3", "receives"])


def test_the_alt_text_names_the_busiest_link_and_what_each_rank_sent():
    alt = figures.links(trace(2, [Transfer(0, 1, 3000, 0, 1), Transfer(1, 0, 500, 0, 1)])).alt
    assert "the busiest link is 0 to 1 with 3 kB. Sent: 3 kB by rank 0; 500 B by rank 1." in alt


@pytest.mark.parametrize("draw", [figures.messages, figures.links])
def test_ranks_that_send_as_much_have_no_first_among_them(draw):
    alt = draw(trace(3, [Transfer(0, 1, 1000, 0, 1), Transfer(0, 2, 1000, 0, 1), Transfer(1, 2, 2000, 0, 1)])).alt
    assert "ranks 0 and 1 send most, about 50 % of all bytes each" in alt


def test_links_that_carry_as_much_have_no_busiest_among_them():
    pairs = [(0, 1, 3000), (1, 2, 3000), (2, 0, 2950), (0, 2, 10)]
    alt = figures.links(trace(3, [Transfer(src, dst, size, 0, 1) for src, dst, size in pairs])).alt
    assert "the 3 busiest links carry about 3 kB each" in alt


# race


def test_the_race_names_the_winner_of_each_world_size():
    alt = figures.race([Timing("ring", n * 0.1, None, n) for n in (2, 4)] + [Timing("server", 0.8, None, 4)]).alt
    assert "2 ranks: ring takes 200 ms" in alt
    assert "4 ranks: ring is 2 times as fast as server" in alt


def test_a_race_that_is_a_tie_has_no_winner():
    assert "Ring and gloo tie" in figures.race([Timing("ring", 0.2), Timing("gloo", 0.203)]).alt


def test_a_race_without_predictions_has_no_legend_of_them():
    assert figures.race([Timing("ring", 0.2)]).axes[0].get_legend() is None


def test_the_prediction_is_drawn_beside_the_measurement():
    shown = figures.race([Timing("ring", 0.2, 0.3)])
    assert sorted(bar.get_width() for bar in shown.axes[0].patches) == [0.2, 0.3]
    assert {" 200 ms", " predicted 300 ms"} <= set(texts(shown))


def test_outlines_that_are_a_part_of_a_bar_have_a_name_of_their_own():
    shown = figures.race([Timing("ring", 0.3, 0.2), Timing("server", 0.9, 0.8)], outlines="messages alone")
    assert " messages alone 200 ms" in texts(shown) and "predicted" not in shown.alt
    assert "measured: 1.1 to 1.5 times the messages alone" in shown.alt


def test_an_exercise_not_yet_written_is_a_row_that_says_so():
    shown = figures.race([Timing("ring", None, 0.3, 8), Timing("server", 1.0, 0.9, 8)])
    assert " not yet" in texts(shown) and "ring at 8 ranks: not yet, predicted 300 ms" in shown.alt


def test_bars_of_one_group_stand_under_its_name():
    shown = figures.race([Timing("ring", 0.2, group="1 kB"), Timing("gloo", 0.1, group="1 kB")])
    assert "1 kB" in texts(shown) and "1 kB: gloo is 2 times as fast as ring" in shown.alt


def test_a_name_keeps_its_colour_in_every_group():
    rows = [Timing(name, 1.0, None, n) for n in (2, 4) for name in ("ring", "server")]
    colours = [bar.get_facecolor() for bar in figures.race(rows).axes[0].patches]
    assert colours[:2] == colours[2:] and colours[0] != colours[1]


@pytest.mark.parametrize("rows", [[], [Timing("ring", None)], [Timing("ring", 0.0, 0.0)]])
def test_a_race_with_no_times_is_a_picture_too(rows):
    assert figures.race(rows).png()


# curves


def test_a_measured_point_is_a_marker_and_a_prediction_a_line():
    shown = figures.curves([Curve("ring", [(2, 1.0), (4, 1.5)], [(2, 1.0), (3, 1.3), (4, 1.5)])], x="ranks", y="tensors")
    line, points = shown.axes[0].lines
    assert (len(line.get_xdata()), line.get_marker()) == (3, "None")
    assert (len(points.get_xdata()), points.get_linestyle()) == (2, "None")


def test_the_alt_text_of_curves_gives_every_measured_point_in_its_unit():
    ring = Curve("ring", [(1000, 0.02), (2_000_000, 1.5)])
    shown = figures.curves([ring], "How long?", x="size (bytes)", y="time (s)", log=True)
    assert shown.alt == "How long? Ring rises from 20 ms to 1.5 s at 2 MB. ring: 20 ms at 1 kB, 1.5 s at 2 MB."


def test_a_curve_of_an_exercise_not_yet_written_says_so_and_keeps_its_prediction():
    shown = figures.curves([Curve("ring", [(2, None), (4, None)], [(2, 1.0), (4, 1.5)])], x="ranks", y="tensors")
    assert "ring: not yet" in texts(shown) and "ring: not yet" in shown.alt
    assert list(shown.axes[0].lines[0].get_ydata()) == [1.0, 1.5]


# contributions


def test_each_cell_names_the_ranks_whose_numbers_are_in_it():
    shown = figures.contributions(done([[1, 101, 1000], [111, 10, 0], [2, 0.5, 100]]))
    assert {"0", "0+2", "?", "all", "1", "nothing", "0+0", "2"} <= set(texts(shown))
    assert shown.alt.endswith("By chunk, rank 0: 0, 0+2, ?; rank 1: all, 1, nothing; rank 2: 0+0, ?, 2.")


def test_numbers_that_are_not_finite_are_no_sum_of_ranks_numbers():
    shown = figures.contributions(done([[float("nan"), float("inf")], [-float("inf"), 1]]))
    assert texts(shown).count("?") == 3


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([[1, 11], [11, 10]], "Every rank holds the whole sum of one chunk"),
        ([[11, 11], [11, 11]], "Every rank holds the whole sum of every chunk"),
        ([[11, 11], [11, 10]], "3 whole sums in 4 cells"),
        ([[1, 1], [10, 10]], "No rank holds the whole sum of any chunk yet"),
    ],
)
def test_the_finding_counts_whole_sums(results, words):
    assert figures.contributions(done(results)).alt.startswith(words)


# predictions


def test_predictions_stand_beside_measurements_with_the_comparison_in_words():
    asked = row("speed", 0.2, 0.4)
    shown = figures.predicted(lab(asked))
    assert {"What is speed?", "predicted 0.2 s", "measured 0.4 s", asked.comparison} <= set(texts(shown)) and asked.comparison


def test_the_finding_counts_the_predictions_that_were_near():
    shown = figures.predicted(lab(row("a", 1, 1.1), row("b", 1, 9), row("c", None, 2)))
    assert shown.alt.startswith("1 of 2 within 20 % of what was measured. ")


def test_questions_that_nobody_predicted_give_no_bars():
    shown = figures.predicted(lab(row("a", None, 1), row("b", None, 2)))
    assert not isinstance(shown, figures.base.Picture)
    assert repr(shown).startswith("no prediction of yours to compare with. What is a? Measured: 1 s.")


def test_missing_numbers_are_said_so():
    shown = figures.predicted(lab(row("a", None, 1), row("b", 1, None)))
    assert {"no prediction", "not measured yet"} <= set(texts(shown))


def test_ids_choose_questions_and_their_order():
    alt = figures.predicted(lab(row("a", 1, 1), row("b", 2, 2), row("c", 3, 3)), ["c", "a"]).alt
    assert alt.index("What is c?") < alt.index("What is a?") and "What is b?" not in alt


def test_an_unknown_id_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match="no prediction or measurement 'x'; expected one of: 'a'"):
        figures.predicted(lab(row("a", 1, 1)), ["x"])


def test_a_lab_without_questions_is_a_picture_too():
    assert figures.predicted(lab()).alt == "no predictions yet"


# not yet, and nothing to draw


@pytest.mark.parametrize("draw", [figures.messages, figures.links, figures.contributions])
def test_a_run_that_is_not_yet_gives_a_picture_that_says_which_exercise(draw):
    shown = draw(NOT_YET)
    assert texts(shown) == ["not yet: Exercise 6.2: the ring"] and "not yet: Exercise 6.2" in shown.alt


@pytest.mark.parametrize("draw", [figures.messages, figures.links])
def test_a_verdict_that_is_not_yet_gives_the_same_picture(draw):
    verdict = SimpleNamespace(state="not yet", exercise="ring_all_reduce", trace=None)
    assert texts(draw(verdict)) == ["not yet: ring_all_reduce"]


def test_a_run_that_is_done_is_drawn_from_its_trace():
    run = SimpleNamespace(state="done", not_yet=None, trace=ring(3))
    assert figures.messages(run).alt == figures.messages(ring(3)).alt


@pytest.mark.parametrize("of", [trace(4), SimpleNamespace(state="fail", exercise="ring", trace=None)])
def test_no_messages_is_said_in_words(of):
    assert figures.messages(of).alt == "no messages were sent"


def test_a_frameworks_collectives_are_named_where_there_are_no_messages():
    collectives = [Collective("all_reduce", 8, rank, 0, 1) for rank in range(2) for _ in range(3)]
    assert "on each rank: 3\u00a0×\u00a0all_reduce" in figures.links(trace(2, collectives=collectives)).alt


def test_the_ranks_of_a_picture_can_be_called_otherwise():
    trace = Trace(2, (Transfer(0, 1, 8, 0.0, 1.0),))
    picture = figures.messages(trace).calling("card")
    words = [text.get_text() for text in picture.findobj(Text)]
    assert {"card 0", "card 1"} <= set(words) and not any("rank" in word.lower() for word in [*words, picture.alt])


def test_simulated_ranks_are_compared_at_their_last_and_held_against_real_ones():
    star = figures.Curve("star", [(2, 1.0), (4, 3.1)], simulated=[(2, 1.0), (4, 3.0), (1024, 1000.0)])
    tree = figures.Curve("tree", [(2, 1.0), (4, 2.0)], simulated=[(2, 1.0), (4, 2.0), (1024, 10.0)])
    alt = figures.curves([star, tree], "Star or tree?", x="ranks", y="time (s)", log=True).alt
    assert "from 4 ranks on, 100 times at 1,024 ranks" in alt and "within 5 % of the simulation" in alt
    assert "simulated 1 s at 2, 2 s at 4, 10 s at 1,024" in alt
