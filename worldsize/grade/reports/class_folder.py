"""A class in its folders: its rows, the predictions that its notebooks carry, and the two files that show what was misunderstood.

Written again whenever a file changes, for a page that is open in a lecture. Left out: what is counted (`class_map`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.marking import submissions_folder
from worldsize.grade.marking.grading_record import GradedFolder, read_graded
from worldsize.grade.reports import class_page
from worldsize.grade.reports.class_map import ClassMap, as_csv, class_map
from worldsize.lab.handed_predictions import HandedPrediction, predictions_in

MOST_BYTES = 64_000_000  # a notebook that is larger is not searched for predictions
LOOK_S = 2.0


@dataclass(frozen=True)
class ClassFiles:
    """What was written, and of which map. `unread` names notebooks in which no predictions could be looked for."""

    found: ClassMap
    page: Path
    sheet: Path
    unread: tuple[str, ...]


def write(grades: Path, submissions: Path | None, labs: Iterable[str], out: Path, again_s: int | None = None) -> ClassFiles:
    """Write the page `out` and a CSV beside it, and return what they show.

    Without `submissions` there are no predictions. Without rows in `grades` there are no exercises, where there are
    submissions; else raises ValueError.
    """
    graded = _graded(grades, submissions)
    carried, unread = _carried(submissions, labs)
    found = class_map(graded.rows, carried)
    sheet = out.with_suffix(".csv")
    write_whole(sheet, as_csv(found), PRIVATE)
    write_whole(out, class_page.page(found, again_s), PRIVATE)
    return ClassFiles(found, out, sheet, tuple(unread))


def changes(folders: Iterable[Path], wait: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Yield at once, and then each time a file below `folders` has come, gone or changed."""
    watched = list(folders)
    before: object = None
    while True:
        now = [(path, about.st_mtime_ns, about.st_size) for path, about in _files(watched)]
        if now != before:
            before = now
            yield
        wait(LOOK_S)


def _files(folders: Iterable[Path]) -> Iterator[tuple[str, object]]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            try:
                about = path.stat()
            except OSError:
                continue  # it went meanwhile
            if path.is_file():
                yield str(path), about


def _graded(grades: Path, submissions: Path | None) -> GradedFolder:
    if submissions is not None and not (grades / "rows").is_dir():
        return GradedFolder(())
    return read_graded(grades)


def _carried(submissions: Path | None, labs: Iterable[str]) -> tuple[list[list[HandedPrediction]], list[str]]:
    """The predictions of each notebook that carries some, and the names of those that could not be searched."""
    carried: list[list[HandedPrediction]] = []
    unread: list[str] = []
    if submissions is None:
        return carried, unread

    for one in submissions_folder.find(submissions, labs):
        if one.refused:
            continue
        name = str(one.path.relative_to(submissions))
        try:
            if one.path.stat().st_size > MOST_BYTES:
                unread.append(f"{name} has over {MOST_BYTES // 1_000_000} MB")
                continue
            predictions = predictions_in(json.loads(one.path.read_bytes()))
        except (OSError, ValueError, RecursionError) as error:
            unread.append(f"{name} cannot be read ({type(error).__name__})")
            continue
        if predictions:
            carried.append(predictions)
    return carried, unread
