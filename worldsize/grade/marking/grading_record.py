"""The record of a folder of grades, `grading.json`: its seed, and which row belongs to which submitted file.

A row outlives its file; rows of withdrawn or renamed files are left out of tables, exports, books and pages. The first
grading writes the record, and concurrent gradings into the same folder take the seed from there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from worldsize.files import PRIVATE, make_whole, write_whole
from worldsize.grade.marking import rows
from worldsize.grade.marking.rows import GradeRow

FILE = "grading.json"


@dataclass(frozen=True)
class GradingRecord:
    """The record of the last grading into a folder. `paths` maps a row's file name to the submission's path.

    `paths` is None in the record of a version that kept none; then no row counts as gone. By row file name, too,
    `stale` has the digest in rows whose file has changed since, and `outdated` the release in other rows that no longer
    hold.
    """

    seed: int
    paths: Mapping[str, str] | None = None
    stale: Mapping[str, str] = field(default_factory=dict)
    outdated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GradedFolder:
    """Every row whose file was present in the last grading, and the rows of files that are `gone`.

    `missing` are paths of submissions without a row, `stale` rows of files that have changed since, and `outdated` rows
    of another release, seed or kind of sandbox.
    """

    rows: tuple[GradeRow, ...]
    gone: tuple[GradeRow, ...] = ()
    missing: tuple[str, ...] = ()
    stale: tuple[GradeRow, ...] = ()
    outdated: tuple[GradeRow, ...] = ()


def read_record(out: Path) -> GradingRecord | None:
    """Return the grading record in a folder of grades, None if there is none. Raises ValueError if it is damaged."""
    path = out / FILE
    if not path.is_file():
        return None

    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), GradingRecord)
    except ValueError as error:
        raise ValueError(
            f"{path}: expected the seed and the files of a grading, got a file that cannot be read ({error}). Take the seed from "
            f"any row in {out / 'rows'}, delete this file, and grade again with --seed."
        ) from None


def write_record(out: Path, record: GradingRecord) -> None:
    """Write this record, unless the file already holds it."""
    text = _text(record)
    path = out / FILE
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_whole(path, text, PRIVATE, durable=True)


def first_record(out: Path, record: GradingRecord) -> GradingRecord:
    """Write `record` if the folder has none; return the folder's record. Raises ValueError if a present one is damaged."""
    if not (out / FILE).is_file() and make_whole(out / FILE, _text(record), PRIVATE):
        return record
    return read_record(out) or record


def _text(record: GradingRecord) -> str:
    return json.dumps(msgspec.to_builtins(record), indent=1)


def read_graded(out: Path, messages: bool = False) -> GradedFolder:
    """Return every row of a folder's grading record, with or without messages. Raises ValueError if the folder has none.

    A row that a newer row of the same file replaced is left out.
    """
    all_rows = rows.read_all(out, messages)
    record = read_record(out)
    if record is None and not all_rows:
        got = "no such folder"
        if out.is_dir():
            got = "a folder without its rows/"
        elif out.exists():
            got = "a file"
        raise ValueError(
            f"{out}: expected the folder that `worldsize grade` wrote with --out, got {got}. Name that folder, or run "
            "`worldsize grade`."
        )
    if record is None or record.paths is None:
        return GradedFolder(tuple(all_rows))

    there = set(record.paths.values())
    here, gone, stale, outdated = [], [], [], []
    for row in all_rows:
        name = row.file_name
        if name in record.paths:
            here.append(row)
            if record.stale.get(name) == row.digest:
                stale.append(row)
            if record.outdated.get(name) == row.release:
                outdated.append(row)
        elif row.path not in there:
            gone.append(row)

    missing = sorted(there - {row.path for row in here})
    return GradedFolder(tuple(here), tuple(gone), tuple(missing), tuple(stale), tuple(outdated))
