"""Report how late a submission came; deducting points is left to the LMS.

Canvas marks a late file in its name; `nbgrader submit` writes the moment to `timestamp.txt`, which is compared with a
due date. A file's own time says only when it was copied, and is ignored.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from worldsize.grade.marking import submission
from worldsize.grade.marking.submission import Ungradable
from worldsize.grade.marking.submissions_folder import HandedIn
from worldsize.units import count

_TIMESTAMP = re.compile(r"(?P<moment>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.\d+)?(?: (?P<zone>[\w/+-]+))?", re.ASCII)


@dataclass(frozen=True)
class DueDates:
    """Due dates `of_labs`, by stem, and one for all `others`."""

    of_labs: dict[str, datetime] = field(default_factory=dict)
    others: datetime | None = None


def due_dates(texts: Iterable[str], labs: Iterable[str]) -> DueDates:
    """Parse ["06=2026-11-01 23:59", "2026-12-01 23:59+01:00"] into a date for lab 06 and one for all others.

    A date without an offset is local. Raises ValueError for an unknown lab or date.
    """
    stems = {}
    for stem in labs:
        stems |= {stem: stem, stem[:2]: stem}

    of_labs: dict[str, datetime] = {}
    others = None
    for text in texts:
        lab, equals, moment = text.rpartition("=")
        if equals and lab not in stems:
            raise ValueError(f"--due: expected a lab of the course before '=' ({', '.join(stems)}), got {lab!r}.")
        try:
            due = datetime.fromisoformat(moment).astimezone()
        except ValueError:
            example = '"2026-11-01 23:59" or "06=2026-11-01 23:59+01:00"'
            raise ValueError(f"--due: expected a date and time such as {example}, got {text!r}.") from None

        if equals:
            of_labs[stems[lab]] = due
        else:
            others = due
    return DueDates(of_labs, others)


def late(file: HandedIn, due: DueDates) -> str:
    """Return by how much a submission was late, "" if it was on time or its time is unknown."""
    date = due.of_labs.get(file.lab, due.others)
    if date is None:
        return ""
    moment = _handed_in_at(file)
    if moment is None or moment <= date:
        return ""

    minutes = int((moment - date).total_seconds() // 60)
    if minutes < 120:
        return f"{count(max(1, minutes), 'minute')} late"
    if minutes < 2 * 24 * 60:
        return f"{count(minutes // 60, 'hour')} late"
    return f"{count(minutes // (24 * 60), 'day')} late"


def _handed_in_at(file: HandedIn) -> datetime | None:
    """Return the moment in nbgrader's `timestamp.txt` beside the notebook, None if it cannot be read."""
    try:
        timestamp = _TIMESTAMP.match(submission.read(file.path.with_name("timestamp.txt"))[:100].decode())
        if timestamp is None:
            return None
        zone = UTC if timestamp["zone"] in (None, "UTC") else ZoneInfo(timestamp["zone"])
        return datetime.fromisoformat(timestamp["moment"]).replace(tzinfo=zone)
    except (Ungradable, ValueError, ZoneInfoNotFoundError):
        return None
