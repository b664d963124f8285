"""What a newer release says of itself: the leads of the lines in its CHANGELOG, and of no older release."""

from pathlib import Path

import pytest

import worldsize
from worldsize.course.changes import MOST_LEADS, ReleaseNews, news

pytestmark = pytest.mark.quick

CHANGELOG = """# Changelog

## 0.10.0

- **A tenth
  release**: it comes after the ninth.
- Some words.

## 0.9.0, unfinished

- **The ninth.** Some words.

## 0.2.0

- **Ranks that stay**
"""


def test_the_news_are_those_since_the_release_that_was_laid() -> None:
    assert news(CHANGELOG, "0.2.0", "0.10.0") == [
        ReleaseNews("0.10.0", ("A tenth release",), 1), ReleaseNews("0.9.0", ("The ninth",), 0),
    ]  # fmt: skip


def test_what_is_not_yet_released_is_no_news() -> None:
    assert [release.version for release in news(CHANGELOG, "0.2.0", "0.9.0")] == ["0.9.0"]


def test_many_leads_are_cut_and_counted() -> None:
    (told,) = news("## 1.0\n\n" + "".join(f"- **Line {n}**\n" for n in range(20)), "0.9", "1.0")
    assert len(told.leads) == MOST_LEADS and told.more == 20 - MOST_LEADS


def test_the_courses_own_changelog_has_news_of_this_release(root: Path) -> None:
    (told,) = news((root / "CHANGELOG.md").read_text(), "0.1.0", worldsize.__version__)
    assert told.version == worldsize.__version__ and told.leads and told.more
