"""A verdict in a notebook: every word of it is text, what passed says so, and what is not written is quiet."""

import re

from worldsize.checks.verdict import Property, Verdict
from worldsize.lab.verdict_view import verdict_html
from worldsize.trace import Trace, Transfer

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m"
SENT = Trace(2, (Transfer(0, 1, 8, 0.0, 0.1, 0),))


def verdict(state: str, passed: bool | None, words: str = "rank 1: expected 12, got 7", trace: Trace | None = None) -> Verdict:
    return Verdict("ring", state, (Property(f"sums {words}", 1.5, passed),), words, trace)


def test_no_word_of_a_verdict_becomes_a_tag():
    page = verdict_html(verdict("fail", False, HOSTILE, SENT))
    tags = set(re.findall(r"<(\w+)", page))
    drawn = {"div", "style", "svg", "g", "path", "text", "tspan", "defs", "use", "clipPath", "rect", "pattern", "marker"}
    assert tags - drawn == {"p", "strong", "span", "details", "summary", "img"}
    assert page.count("<img") == 1 and "<script" not in page and "\x1b" not in page
    assert page.count("&lt;script&gt;alert(1)") == 2


def test_a_verdict_says_in_words_what_holds():
    for passed, mark in ((True, "✔ holds:"), (False, "✘ not earned:"), (None, "–")):
        assert f"{mark} sums rank 1: expected 12, got 7 · 1.5</span>" in verdict_html(verdict("fail", passed))


def test_the_sentence_that_helps_comes_before_the_points_and_the_properties():
    page = verdict_html(verdict("fail", False, "4 ranks: rank 1 has 7. Do you add?\n  line 3: x += y\nNext: the ring."))
    places = [page.index(words) for words in ("rank 1 has 7", "Next: the ring", "line 3", "0 of 1.5 points", "✘ not earned:")]
    assert places == sorted(places) and "<pre" in page


def test_what_was_not_examined_is_folded_and_counted():
    page = verdict_html(verdict("fail", None))
    assert "<summary>1 more is examined once this holds" in page and page.index("<summary>1 more") < page.index("– sums")


def test_the_edge_says_again_what_the_words_say():
    assert "--jp-error-color1" in verdict_html(verdict("fail", False))
    assert "--jp-success-color1" in verdict_html(verdict("pass", True))


def test_what_passed_says_which_properties_were_checked_and_hold():
    page = verdict_html(verdict("pass", True, "over the ring", trace=SENT))
    assert "<strong>✔ ring: 1.5 of 1.5 points</strong>" in page
    assert "✔ holds: sums over the ring · 1.5</span>" in page and "<pre" not in page and "<details" not in page


def test_all_points_and_a_shown_property_that_fails_are_told_as_all_points():
    shown = Verdict("ring", "fail", (Property("sums", 1.5, True), Property("the group stays", 0.0, False)), "the group is gone")
    page = verdict_html(shown)
    assert "✔ ring: 1.5 of 1.5 points, with something to mend" in page and "the group is gone" in page
    assert "✘ ring" in str(Verdict("ring", "fail", (Property("sums", 0.0, False),), "no sum"))


def test_what_is_not_written_is_one_quiet_chip_that_names_the_exercise():
    page = verdict_html(verdict("not yet", None, "Exercise 6.2: the ring", trace=SENT))
    assert re.fullmatch(r"<p><span [^>]*>○ not yet: Exercise 6\.2: the ring · 1\.5 points</span></p>\n", page)


def test_messages_are_shown_where_there_are_any():
    assert "the messages of that run" in verdict_html(verdict("fail", False, trace=SENT))
    assert "the messages of that run" not in verdict_html(verdict("fail", False, trace=Trace(2, ())))


def test_a_verdict_sets_no_colour_of_text():
    assert not re.search(r"[;\"]color:", verdict_html(verdict("fail", False)))
