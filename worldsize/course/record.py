"""The record of a laid course, `.worldsize/course.json` in its folder, which identifies the folder as a course.

The record has the release that was laid, and the digest of each file and of each notebook's cells, so that a newer release can
detect a student's changes.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from worldsize.files import write_whole

RECORD = Path(".worldsize", "course.json")


@dataclass(frozen=True)
class CourseRecord:
    """A course's record: `files` has each file's digest as laid, `cells` each notebook's cells' digests by their ids.

    `checked` is the release with which two real ranks last ran on this machine, "" before that.
    """

    version: str
    files: dict[str, str] = field(default_factory=dict)
    cells: dict[str, dict[str, str]] = field(default_factory=dict)
    checked: str = ""


def is_course(folder: Path) -> bool:
    """Return True if the course was laid into `folder`, by its record."""
    return (folder / RECORD).is_file()


def course_above(start: Path | None = None) -> Path | None:
    """Return the folder of the laid course that contains `start`, by default the current directory; None outside a course."""
    try:
        here = (start or Path.cwd()).absolute()
    except FileNotFoundError:  # the current directory was removed
        return None
    return next((folder for folder in (here, *here.parents) if is_course(folder)), None)


def read_record(folder: Path) -> CourseRecord:
    """Return the record of the course in `folder`. Raises ValueError for a damaged record."""
    try:
        read = json.loads((folder / RECORD).read_bytes())
        record = CourseRecord(read["version"], read["files"], read["cells"], read["checked"])
        release_number(record.version)
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"{folder / RECORD}: expected the list of the course's files, got a damaged file, so your changes are unknown. "
            f"Rename the folder, let `worldsize start {folder.name}` lay a new one, and copy the cells that begin with "
            f"`# Exercise` into it."
        ) from None
    return record


def write_record(folder: Path, record: CourseRecord) -> None:
    """Write the record of the course in `folder`, whole. Raises OSError."""
    write_whole(folder / RECORD, json.dumps(asdict(record), indent=1, sort_keys=True), durable=True)


def release_number(version: str) -> tuple[int, ...]:
    """Return a release's numbers for comparison: (0, 2, 0) for "0.2.0", "0.2" and "0.2.0rc1". Raises ValueError."""
    matched = re.match(r"\d{1,9}(\.\d{1,9})*", version)
    if matched is None:
        raise ValueError(f"expected a version such as 0.2.0, got {version!r}")

    numbers = [int(number) for number in matched[0].split(".")]
    return tuple((numbers + [0, 0, 0])[: max(3, len(numbers))])


def digest(content: bytes) -> str:
    """Return a short hash of a file's content, for the course's record."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()
