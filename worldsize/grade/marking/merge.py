"""Merge folders of grades: the shards of a submissions folder that were graded on separate machines.

All parts need one seed, and a row in two parts must agree; a row lost in one part is taken from another. Shards graded
into one shared folder need no merge.
"""

from collections.abc import Sequence
from pathlib import Path

from worldsize.grade.marking import grading_record, rows
from worldsize.grade.marking.grading_record import GradedFolder, GradingRecord, read_graded, read_record, write_record
from worldsize.grade.marking.rows import GradeRow


def merge(out: Path, parts: Sequence[Path]) -> GradedFolder:
    """Copy the rows of every folder in `parts` into `out`, which may have rows already, and return the whole folder.

    Raises ValueError, before anything is written, for folders of different seeds, releases or rows.
    """
    folders = [out, *parts] if (out / grading_record.FILE).is_file() else parts
    records: dict[Path, GradingRecord] = {}
    for part in folders:
        read_graded(part)  # raises if it is not a folder of grades
        record = read_record(part)
        if record is None:
            raise ValueError(
                f"{part}: expected a folder of grades with its grading.json, got none. Grade again with --seed."
            )
        records[part] = record

    seeds = {record.seed: part for part, record in records.items()}
    if len(seeds) > 1:
        listing = ", ".join(f"{seed} in {part}" for seed, part in sorted(seeds.items()))
        raise ValueError(f"merge: expected folders graded with one seed, got {listing}. Give every shard the same --seed.")

    kept: dict[str, tuple[GradeRow, Path]] = {}
    for part, record in records.items():
        for row in rows.read_all(part, messages=False):
            if record.paths is None or row.file_name in record.paths:
                _take(kept, row, part)

    of_labs: dict[str, dict[str, Path]] = {}
    for row, part in kept.values():
        of_labs.setdefault(row.lab, {})[row.release] = part
    for lab, releases in sorted(of_labs.items()):
        if len(releases) > 1:
            listing = " and ".join(f"{name[:8] or 'unknown'} in {part}" for name, part in releases.items())
            raise ValueError(
                f"merge: expected rows of one release of {lab or 'no lab'}, got {listing}. Install the same package on every "
                "machine."
            )

    paths: dict[str, str] = {}
    for record in records.values():
        paths |= record.paths or {}
    for name, (_, part) in kept.items():
        if part != out:
            rows.write(rows.read(part / "rows" / name), out / "rows")
    write_record(out, GradingRecord(next(iter(seeds)), paths))
    return read_graded(out)


def _take(kept: dict[str, tuple[GradeRow, Path]], row: GradeRow, part: Path) -> None:
    """Keep, in a merge, one of two copies of a row, preferably one that is not lost. Raises ValueError if they disagree."""
    other, where = kept.setdefault(row.file_name, (row, part))
    if other.state == "lost" and row.state != "lost":
        kept[row.file_name] = row, part
    elif row.state != "lost" and (other.digest, other.result) != (row.digest, row.result):
        raise ValueError(
            f"merge: expected one mark for {row.student}, {row.lab or row.path}, got {_told(other)} in {where} and {_told(row)} "
            f"in {part}. Remove the wrong {row.file_name}, or grade that file again in both."
        )


def _told(row: GradeRow) -> str:
    return f"{row.state} {row.points:g} (file {row.digest[:8] or 'unread'}, release {row.release[:8] or 'unknown'})"
