"""Files of a class report: rows and predictions are read from folders, the page and its CSV are written.

The page has neither names nor script: exercises by cause, predictions as rows of dots.

In a lecture, the report is written again whenever a file changes.
"""

import json
import math
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from worldsize import pages, units
from worldsize.files import PRIVATE, write_whole
from worldsize.grade.course import CourseLab
from worldsize.grade.marking import submission, submissions_folder
from worldsize.grade.marking.grading_record import read_graded
from worldsize.grade.marking.submission import Ungradable
from worldsize.grade.reports.class_map import ClassMap, QuestionMap, as_csv, class_map
from worldsize.grade.reports.released_questions import answers_of, released_questions
from worldsize.lab.handed_predictions import HandedPrediction, predictions_in
from worldsize.lab.summary import CLOSE_RATIO

WIDTH, DOT, TOP = 640, 5, 26
MARGIN = 0.8  # powers of ten, both ends together: room for the scale's last labels
_REACH = 3  # powers of ten to each side; dots beyond are drawn at the edge


@dataclass(frozen=True)
class DotPlace:
    """A class's prediction on a question's strip: its place, and whether the prediction is right to within 5 %."""

    x: float
    y: float
    right: bool


def page(overview: ClassMap, again_s: int | None = None) -> str:
    """Return the HTML file on a class's misunderstandings; a browser reloads it every `again_s` seconds."""
    labs = []
    for lab in sorted({one.lab[:2] for one in overview.exercises} | {one.lab[:2] for one in overview.questions}):
        exercises = [one for one in overview.exercises if one.lab[:2] == lab]
        labs.append((lab, exercises, [one for one in overview.questions if one.lab[:2] == lab]))
    return pages.render(
        "class.html", overview=overview, labs=labs, strip=_strip, again_s=again_s, width=WIDTH, reach=_REACH, margin=MARGIN,
        number=units.number, count=units.count, finding=finding,
    )  # fmt: skip


def finding(question: QuestionMap) -> str:
    """Return a sentence on the strip of a class's question."""
    clauses = [f"{question.close} of {question.students} within 5 %"]
    for group in question.groups:
        clauses.append(f"{group.students} of {question.students} {group.words}")
    return "; ".join(clauses)


def _strip(question: QuestionMap) -> tuple[Sequence[DotPlace], float]:
    """Return the dots of a class's question, stacked by error on a log scale, and the strip's height."""
    columns: Counter[int] = Counter()
    dots = []
    for ratio in question.ratios:
        decades = math.log10(ratio)
        within = min(_REACH, max(-_REACH, decades))
        column = round((0.5 + within / (2 * _REACH + MARGIN)) * WIDTH / (2 * DOT))
        columns[column] += 1
        dots.append((column, columns[column], abs(decades) <= math.log10(CLOSE_RATIO)))

    height = TOP + 2 * DOT * max(columns.values(), default=1) + DOT
    return [DotPlace(2 * DOT * c, height - TOP - 2 * DOT * k + DOT, right) for c, k, right in dots], height


MOST_BYTES = 64_000_000  # larger notebooks are not searched for predictions
LOOK_S = 2.0  # between looks for changes


@dataclass(frozen=True)
class ClassFiles:
    """A class report's map, the files written, and in `unread` the notebooks in which predictions were not looked for."""

    found: ClassMap
    page: Path
    sheet: Path
    unread: tuple[str, ...]


def write(
    grades: Path, submissions: Path | None, labs: Mapping[str, CourseLab], out: Path, again_s: int | None = None
) -> ClassFiles:  # fmt: skip
    """Write the page `out` and a CSV beside it, and return both with their map. `labs` are the release's.

    Without `submissions` there are no predictions. Raises ValueError if `grades` has no rows and `submissions` is None.
    """
    rows = ()
    if submissions is None or (grades / "rows").is_dir():
        rows = read_graded(grades).rows
    carried, unread = _carried(submissions, labs)
    overview = class_map(rows, carried)

    sheet = out.with_suffix(".csv")
    write_whole(sheet, as_csv(overview), PRIVATE)
    write_whole(out, page(overview, again_s), PRIVATE)
    return ClassFiles(overview, out, sheet, tuple(unread))


def changes(folders: Iterable[Path], wait: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Yield at once, and then each time a file below `folders` is added, removed or changed."""
    watched = list(folders)
    before: object = None
    while True:
        now = []
        for path in (path for folder in watched for path in sorted(folder.rglob("*"))):
            try:
                about = path.lstat()
            except OSError:
                continue  # removed in the meantime
            if stat.S_ISREG(about.st_mode):
                now.append((path, about.st_mtime_ns, about.st_size))

        if now != before:
            before = now
            yield
        wait(LOOK_S)


def _carried(
    submissions: Path | None, labs: Mapping[str, CourseLab]
) -> tuple[list[list[HandedPrediction]], list[str]]:  # fmt: skip
    """Return the predictions of each notebook that carries some, and messages on notebooks that were not read.

    Only plain files are opened, and only answers to the release's questions count.
    """
    carried: list[list[HandedPrediction]] = []
    unread: list[str] = []
    if submissions is None:
        return carried, unread

    asked = {stem: released_questions(lab) for stem, lab in labs.items()}
    for file in submissions_folder.find(submissions, labs):
        if file.refused:
            continue
        name = str(file.path.relative_to(submissions))
        try:
            handed = predictions_in(json.loads(submission.read(file.path, MOST_BYTES)))
        except Ungradable as error:
            unread.append(f"{name}: {error}")
            continue
        except (OSError, ValueError, RecursionError) as error:
            unread.append(f"{name} cannot be read ({type(error).__name__})")
            continue

        answers = []
        for stem in [file.lab] if file.lab else labs:  # a file without a lab in its name may be of any
            answers += answers_of(stem, asked[stem], handed)
        if answers:
            carried.append(answers)
    return carried, unread
