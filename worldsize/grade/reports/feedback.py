"""Feedback for students: a page for every row, laid out as the submissions were.

The layouts are those that nbgrader (`<student>/<assignment>/<lab>.html`), Canvas and Moodle (flat names) take back. A name
that could confuse a file system, a shell or a reader is replaced by plain letters and a hash.
"""

import functools
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.course import CourseLab, titles_of
from worldsize.grade.marking import submission
from worldsize.grade.marking.by_hand import NOTHING_GIVEN, Given
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.submission import Ungradable
from worldsize.grade.marking.submissions_folder import TICKETS
from worldsize.grade.reports.expected_messages import ExpectedMessages
from worldsize.grade.reports.feedback_page import MessagePictures, PagePicture, page
from worldsize.trace import Trace, on_logical_clock

NO_COMMENTS: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType({})
OnProgress = Callable[[int, int, GradeRow], None]
# names that Windows reserves for devices
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_BAD_STARTS, _BAD_ENDS = (" ", ".", "-"), (" ", ".", ".html")
# endings of files that students hand in instead of a notebook; other names are folders, such as "anna.smith"
_NO_NOTEBOOK = re.compile(
    r".+\.(pdf|zip|7z|rar|tar|t?gz|py|html?|txt|md|rtf|csv|json|docx?|odt|pages|pptx?|xlsx?|png|jpe?g|heic)", re.IGNORECASE
)
_HARMLESS = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "So", "Sk"}  # letters, accents, digits, emoji
_MOST_BYTES = 180  # of a part of a path, as UTF-8


def write(
    rows: Iterable[GradeRow], to: Path, labs: Mapping[str, CourseLab], kept: Path, seed_too: bool = False,
    progress: OnProgress | None = None, submissions: Path | None = None, given: Given = NOTHING_GIVEN,
    comments: Mapping[tuple[str, str], Mapping[str, str]] = NO_COMMENTS,
) -> list[Path]:  # fmt: skip
    """Write a page for every row below `to`, and return the paths.

    A "lost" row, which says nothing of a student's work, has no page. Points `given` by hand are named, and a person's
    `comments` stand beside their exercises.

    `kept` is the folder that caches expected messages. Files that nbgrader's `release_feedback` needs beside a page are
    copied from `submissions`. Raises ValueError without rows.
    """
    every = list(rows)
    if not every:
        raise ValueError("feedback: expected the rows of a grading, got none. Name the folder that `worldsize grade` wrote.")

    written = []
    every = [row for row in every if row.state != "lost"]
    with closing(ExpectedMessages(dict(labs), kept)) as expected:
        for row, place in placed(every):
            path = to / place
            whose = row.student, row.lab
            pictures = _pictures(row, expected)
            text = page(row, titles_of(labs.get(row.lab)), pictures, seed_too, given.get(whose), comments.get(whose, {}))
            write_whole(path, text, 0o644)  # students read it: nbgrader's release keeps the mode
            for name in TICKETS if submissions is not None else ():
                with suppress(Ungradable, UnicodeDecodeError):
                    ticket = submission.read((submissions / row.path).parent / name)[:1000].decode()
                    write_whole(path.with_name(name), ticket, PRIVATE)

            written.append(path)
            if progress is not None:
                progress(len(written), len(every), row)
    return written


def _pictures(row: GradeRow, expected: ExpectedMessages) -> dict[str, MessagePictures]:
    """Return the feedback's pictures for a row by exercise, for exercises with a case to show."""
    pictures = {}
    for e in row.exercises:
        if not e.ranks:
            continue
        if e.state in ("pass", "not yet", "missing") and not e.helped:
            continue

        wanted = expected.trace(row, e)
        sent = on_logical_clock(e.trace)
        if wanted is None or wanted.world_size != e.ranks:
            pictures[e.id] = MessagePictures(sent=drawn(sent), expected=None)
        else:
            due = on_logical_clock(wanted)
            pictures[e.id] = MessagePictures(sent=drawn(sent), expected=drawn(due), same=_moves(sent) == _moves(due))
    return pictures


def _moves(trace: Trace) -> list[tuple]:
    """Return each link's sizes in order. The order across links is ignored: it may be chance, where a rank takes from any."""
    by_link = sorted(trace.transfers, key=lambda t: (t.src, t.dst, t.start_s))
    return [(t.src, t.dst, t.size_bytes) for t in by_link]


@functools.lru_cache(maxsize=256)
def drawn(trace: Trace) -> PagePicture | None:
    """Return the space-time diagram of messages for feedback, or None for none. Cached: many students send the same."""
    from worldsize import figures
    from worldsize.figures.base import SHOWN_DPI

    if not trace.transfers:
        return None

    picture = figures.messages(trace, in_steps=True)
    width, height = (round(inches * SHOWN_DPI) for inches in picture.get_size_inches())
    return PagePicture(picture.png(), picture.alt, width, height)


def placed(rows: Iterable[GradeRow]) -> Iterator[tuple[GradeRow, PurePosixPath]]:
    """Yield each row and its page's path; no two paths are equal, even on a file system that folds case."""
    taken: set[str] = set()
    for row in sorted(rows, key=lambda row: (row.path, row.student, row.lab)):
        place = _place(row)
        if _folded(place) in taken:
            place = place.with_name(f"{place.stem}.{_mark(row.path, row.student, row.lab)}.html")
        taken.add(_folded(place))
        yield row, place


def _place(row: GradeRow) -> PurePosixPath:
    *folders, name = PurePosixPath(row.path).parts or (row.student,)
    if row.state == "ungradable" and _NO_NOTEBOOK.fullmatch(name):
        stem = name.rpartition(".")[0]
    elif len(name) <= len(".ipynb") or not name.lower().endswith(".ipynb"):  # a folder without a notebook
        folders, stem = [*folders, name], "feedback"
    elif folders and row.lab:
        stem = row.lab
    else:
        stem = name[: -len(".ipynb")]
    return PurePosixPath(*map(_part, folders), f"{_part(stem)}.html")


def _part(text: str) -> str:
    """Return a part of a feedback page's path: unchanged if harmless, else plain letters and a hash."""
    if _is_plain(text):
        return text
    plain = re.sub(r"[^\w]+", "-", text, flags=re.ASCII).strip("-")[:60]
    return f"{plain or 'student'}.{_mark(text)}"


def _is_plain(text: str) -> bool:
    if any(c not in " .,'()+@_-" and unicodedata.category(c) not in _HARMLESS for c in text):
        return False
    if text.startswith(_BAD_STARTS) or text.lower().endswith(_BAD_ENDS):
        return False
    if _RESERVED.fullmatch(text):
        return False
    return 0 < len(text.encode()) <= _MOST_BYTES


def _folded(place: PurePosixPath) -> str:
    return unicodedata.normalize("NFC", str(place)).casefold()


def _mark(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=5).hexdigest()
