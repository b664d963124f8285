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
    assert tags - drawn == {"p", "strong", "table", "tr", "th", "td", "pre", "details", "summary", "img"}
    assert page.count("<img") == 1 and "<script" not in page and "\x1b" not in page
    assert page.count("&lt;script&gt;alert(1)") == 2


def test_a_verdict_says_in_words_what_holds():
    for passed, words in ((True, "✔ holds"), (False, "✘ does not hold"), (None, "– not examined")):
        assert f"<td>{words}</td><td>1.5</td>" in verdict_html(verdict("fail", passed))


def test_what_passed_says_which_properties_were_checked_and_hold():
    page = verdict_html(verdict("pass", True, "over the ring", trace=SENT))
    assert page.startswith("<p><strong>✔ ring: 1.5 of 1.5 points</strong></p>\n<table>")
    assert ">sums over the ring</td><td>✔ holds</td>" in page and "<pre" not in page and "<details" not in page


def test_what_is_not_written_is_one_quiet_chip_that_names_the_exercise():
    page = verdict_html(verdict("not yet", None, "Exercise 6.2: the ring", trace=SENT))
    assert re.fullmatch(r"<p><span [^>]*>○ not yet: Exercise 6\.2: the ring · 1\.5 points</span></p>\n", page)


def test_messages_are_shown_where_there_are_any():
    assert "the messages of that run" in verdict_html(verdict("fail", False, trace=SENT))
    assert "the messages of that run" not in verdict_html(verdict("fail", False, trace=Trace(2, ())))


def test_a_verdict_sets_no_colour():
    assert "color" not in verdict_html(verdict("fail", False))
