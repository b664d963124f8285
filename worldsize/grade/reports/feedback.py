"""Feedback for students: a page for every row, laid out as the submissions were.

nbgrader's `<student>/<assignment>/<lab>.html`, `<student>/<lab>.html`, and the flat names that Canvas and Moodle export
with `.html` at their end: what each of them takes back. A name that a file system, a shell or a reader could stumble
over is written plainly, with a mark of its own. Left out: what a page says (`feedback_page`).
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.course import CourseLab, titles_of
from worldsize.grade.marking import submission
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.submission import Ungradable
from worldsize.grade.reports.expected import Expected
from worldsize.grade.reports.feedback_page import MessagePictures, PagePicture, page
from worldsize.trace import Trace, on_logical_clock

OnProgress = Callable[[int, int, GradeRow], None]
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_HARMLESS = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "So", "Sk"}  # letters, accents, digits, emoji
_MOST_BYTES = 180
_TICKETS = ("timestamp.txt", "submission_secret.txt")


def write(
    rows: Iterable[GradeRow], to: Path, labs: Mapping[str, CourseLab], kept: Path, seed_too: bool = False,
    progress: OnProgress | None = None, submissions: Path | None = None,
) -> list[Path]:  # fmt: skip
    """Put the feedback for all students below `to`, a page for every row, and return where.

    `kept` keeps the expected messages for the next time. What nbgrader's `release_feedback` wants to find beside a page
    is taken from the folder `submissions`.
    """
    every = list(rows)
    if not every:
        raise ValueError("feedback: expected the rows of a grading, got none. Give the folder that `worldsize grade` wrote.")
    places = []
    with Expected(dict(labs), kept) as expected:
        for done, (row, place) in enumerate(placed(every), 1):
            titles = titles_of(labs.get(row.lab))
            pairs = {e.id: pair for e in row.exercises if (pair := _pair(row, e, expected))}
            write_whole(to / place, page(row, titles, pairs, seed_too), 0o644)  # nbgrader's release keeps the mode
            for name, text in _tickets(row, submissions):
                write_whole((to / place).with_name(name), text, PRIVATE)
            places.append(to / place)
            if progress is not None:
                progress(done, len(every), row)
    return places


def _tickets(row: GradeRow, submissions: Path | None) -> Iterator[tuple[str, str]]:
    """The files that `nbgrader submit` made beside the notebook: (name, text)."""
    for name in _TICKETS if submissions else ():
        with suppress(Ungradable, UnicodeDecodeError):
            yield name, submission.read((submissions / row.path).parent / name)[:1000].decode()


# ---- pictures --------------------------------------------------------------------------------


def _pair(row: GradeRow, e: ExerciseRow, expected: Expected) -> MessagePictures | None:
    if e.state in ("pass", "not yet", "missing") and not (e.helped and e.ranks) or not e.ranks:
        return None
    wanted = expected.trace(row, e)
    if wanted is not None and wanted.world_size != e.ranks:
        wanted = None
    sent, due = on_logical_clock(e.trace), on_logical_clock(wanted) if wanted else None
    return MessagePictures(drawn(sent), drawn(due) if due else None, due is not None and _told(sent) == _told(due))


def _told(trace: Trace) -> list[tuple]:
    return sorted((t.src, t.dst, t.size_bytes, t.start_s) for t in trace.transfers)


@functools.lru_cache(maxsize=256)
def drawn(trace: Trace) -> PagePicture | None:
    """While feedback is written: the space-time diagram of messages, drawn once where many students sent the same.

    None where no message was sent.
    """
    from worldsize import figures
    from worldsize.figures.base import SHOWN_DPI

    if not trace.transfers:
        return None
    picture = figures.messages(trace, in_steps=True)
    width, height = (round(inches * SHOWN_DPI) for inches in picture.get_size_inches())
    return PagePicture(picture.png(), picture.alt, width, height)


# ---- places ----------------------------------------------------------------------------------


def placed(rows: Iterable[GradeRow]) -> Iterator[tuple[GradeRow, PurePosixPath]]:
    """Each row and where its page of feedback goes; no two share a place, on a file system that folds case either."""
    taken: set[str] = set()
    for row in sorted(rows, key=lambda row: (row.path, row.student, row.lab)):
        place = _place(row)
        if _folded(place) in taken:
            place = place.with_name(f"{place.stem}.{_mark(row.path, row.student, row.lab)}.html")
        taken.add(_folded(place))
        yield row, place


def _place(row: GradeRow) -> PurePosixPath:
    *folders, name = PurePosixPath(row.path).parts or (row.student,)
    stem = name[: -len(".ipynb")] if name.lower().endswith(".ipynb") else ""
    if not stem:  # a folder without a notebook
        folders, stem = [*folders, name], "feedback"
    elif folders and row.lab:
        stem = row.lab
    return PurePosixPath(*map(_part, folders), f"{_part(stem)}.html")


def _part(text: str) -> str:
    """A part of a path: as it is where that is harmless, else plain letters and a mark."""
    if _is_plain(text):
        return text
    plain = re.sub(r"[^\w]+", "-", text, flags=re.ASCII).strip("-")[:60]
    return f"{plain or 'student'}.{_mark(text)}"


def _is_plain(text: str) -> bool:
    harmless = all(c in " .,'()+@_-" or unicodedata.category(c) in _HARMLESS for c in text)
    return bool(
        text and harmless and text[0] not in " .-" and text[-1] not in " ." and len(text.encode()) <= _MOST_BYTES
        and not _RESERVED.fullmatch(text) and not text.lower().endswith(".html")
    )  # fmt: skip


def _folded(place: PurePosixPath) -> str:
    return unicodedata.normalize("NFC", str(place)).casefold()


def _mark(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=5).hexdigest()
