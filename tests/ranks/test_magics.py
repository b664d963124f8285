"""`%%ranks` and `%%rank`: what stands on their line, which ranks run the cell, and what a cell may not have."""

import re

import pytest

from worldsize.links import Link
from worldsize.ranks.magics import read_words

quick = pytest.mark.quick


@quick
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ((), None, None)),
        ("4", ((4,), None, None)),
        ('4 --link "20 MB/s, 100 us" --timeout 60', ((4,), Link("20 MB/s", "100 us"), 60.0)),
        ("--timeout 0.5", ((), None, 0.5)),
        ("1 3", ((1, 3), None, None)),
        ("0,2", ((0, 2), None, None)),
        ("1, 3", ((1, 3), None, None)),
        ("2 --timeout_s 100", ((2,), None, 100.0)),
        ("2 timeout=100 --link='20 MB/s, 100 us'", ((2,), Link("20 MB/s", "100 us"), 100.0)),
    ],
)
def test_a_line_is_read(line, expected):
    words = read_words("ranks", line)
    assert (words.numbers, words.link, words.timeout_s) == expected


@quick
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("four", "got 'four'"),
        ("-1", "got '-1'"),
        ("--timeout", "got '--timeout'"),
        ("--timeout soon", "--timeout: expected a number of seconds, got 'soon'"),
        ("--speed 3", "got '--speed'"),
        ('--link "fast"', "fast"),
        ('"', "No closing quotation"),
    ],
)
def test_a_line_that_is_none_says_what_is_expected(line, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        read_words("ranks", line)
