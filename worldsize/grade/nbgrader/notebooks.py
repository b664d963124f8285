"""Notebooks for nbgrader's formgrader: the release's cells, with a submission's exercises and the verdicts.

formgrader shows a notebook as HTML that runs in the instructor's browser. So only the source of exercise cells comes from
the submission, shown as code; prose and metadata are the release's, and verdicts are plain text.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.course import CourseLab
from worldsize.grade.marking import submission
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.submission import Ungradable
from worldsize.units import worth

_MARKS = {True: "✔", False: "✘", None: "–"}


def write(
    placed: Iterable[tuple[GradeRow, str]], submissions: Path, folder: Path, labs: Mapping[str, CourseLab], root: Path
) -> tuple[int, list[str]]:
    """Write `folder/<student>/<assignment>/<lab>.ipynb` for each placed (row, assignment).

    Return the number written, and a message for each row left out.
    """
    written = 0
    left_out = []
    for row, assignment in placed:
        try:
            made = notebook(row, submissions / row.path, labs[row.lab], root / "labs" / f"{row.lab}.ipynb")
        except Ungradable as error:
            left_out.append(f"{row.student}, {row.lab}: {error}")
            continue

        write_whole(folder / row.student / assignment / f"{row.lab}.ipynb", made, PRIVATE)
        written += 1

        source = folder.parent / "source" / assignment  # without it, formgrader does not list the assignment
        if not source.exists():
            solution = root / "solutions" / f"{row.lab}.ipynb"
            path = solution if solution.is_file() else root / "labs" / f"{row.lab}.ipynb"
            write_whole(source / path.name, path.read_bytes(), PRIVATE)
    return written, left_out


def notebook(row: GradeRow, path: Path, lab: CourseLab, release: Path) -> str:
    """Return a notebook for formgrader as text: the release's cells, a student's answers, the verdicts.

    Raises Ungradable if the file changed since it was graded.
    """
    file = submission.read_notebook(path)
    if file.digest != row.digest:
        raise Ungradable(f"{path.name} is not the file that was graded: grade again, then write the books")

    try:
        sources = submission.repair(file.cells, lab).sources
    except Ungradable:  # formgrader then shows the release's stubs
        sources = {}

    made = json.loads(release.read_text(encoding="utf-8"))
    verdicts = {f"check_{e.id}": verdict(e) for e in row.exercises}
    for cell in made["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if sources.get(name) is not None:
            cell["source"] = sources[name]
        if name in verdicts:
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": verdicts[name]}]

    return json.dumps(made, ensure_ascii=True, indent=1)


def verdict(exercise: ExerciseRow) -> str:
    """Return the text below a check's cell: state, points, properties, and the first mismatch."""
    head = f"{exercise.id}: {exercise.state}, {exercise.points:g} of {exercise.possible:g} points"
    rows = [f"  {_MARKS[p.passed]} {p.name} ({worth(p.points)})" for p in exercise.properties]
    return "\n".join([head, *rows, exercise.mismatch, *exercise.advice])
