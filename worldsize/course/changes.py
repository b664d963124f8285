"""A newer release's news, from the CHANGELOG that it carries: the leads of its lines, newest release first."""

import re
from dataclasses import dataclass

from worldsize.course.record import release_number

MOST_LEADS = 8
_HEADING = re.compile(r"^## (\d[\w.]*).*$", re.MULTILINE)
_LEAD = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^- ", re.MULTILINE)


@dataclass(frozen=True)
class ReleaseNews:
    """The first leads of one release's lines, and the number of further lines."""

    version: str
    leads: tuple[str, ...]
    more: int


def news(changelog: str, since: str, now: str) -> list[ReleaseNews]:
    """Return the news of the releases after `since`, up to `now`, as the changelog has them."""
    _, *parts = _HEADING.split(changelog)
    releases = []
    for version, text in zip(parts[::2], parts[1::2], strict=True):
        if release_number(since) < release_number(version) <= release_number(now):
            leads = tuple(" ".join(lead.split()).rstrip(".:") for lead in _LEAD.findall(text))[:MOST_LEADS]
            releases.append(ReleaseNews(version, leads, len(_LINE.findall(text)) - len(leads)))
    return releases
