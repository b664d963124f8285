"""`worldsize grade`, `export`, `books`, `feedback`, `similarity`, `gradescope`: the commands of instructors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from worldsize.cli.common import app, bar, need_folder_of, one_paragraph

GROUP = "Instructors"

# arguments that several commands take
Submissions = Annotated[Path, typer.Argument(help="a folder: <student>/<lab>.ipynb, or files as Canvas, Moodle export")]
Grades = Annotated[Path, typer.Argument(help="the folder that `worldsize grade` wrote with --out")]
CourseFolder = Annotated[Path | None, typer.Option(help="the folder with the course's labs/ and solutions/")]
Repository = Annotated[Path, typer.Option(help="the repository")]


@app.command(rich_help_panel=GROUP)
def grade(
    submissions: Submissions,
    out: Annotated[Path, typer.Option(help="where the rows go; graded again, it goes on where it was")],
    jobs: Annotated[int, typer.Option(help="how many submissions at once")] = 2,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="grade without a sandbox; every row says so")] = False,
    course: CourseFolder = None,
    seed: Annotated[int | None, typer.Option(help="the seed of an earlier grading, to replay it")] = None,
) -> None:
    """Grade a folder of submissions, each in a sandbox, and print every row, statistics and a histogram."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from worldsize.grade.marking.batch import grade as grade_folder
    from worldsize.grade.reports import attention, table

    shown = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with one_paragraph(), bar(*shown) as step:
        batch = grade_folder(
            submissions, out, jobs, unsafe, course, seed,
            progress=lambda done, total, row: step(done, total, f"{row.student[:30]!a} {row.state}"),
        )  # fmt: skip
    typer.echo(table.table(batch.rows))
    typer.echo(f"\n{table.summary(batch.rows)}\n")
    _look_at(attention.needs_a_person(batch.rows, batch.gone))
    typer.echo(table.closing_line(batch, out))


def _look_at(lines: Iterable[str]) -> None:
    for words in lines:
        typer.echo(f"look at this one: {words!a}", err=True)


@app.command(rich_help_panel=GROUP)
def export(
    grades: Grades,
    lab: Annotated[str, typer.Option(help="for Moodle: the one lab, such as 06_ring_all_reduce")] = "",
) -> None:
    """Write the marks as CSV: for Canvas, or with --lab as Moodle's grading worksheet of that lab."""
    from worldsize.files import PRIVATE, write_whole
    from worldsize.grade.marking.grading_record import read_graded
    from worldsize.grade.reports import attention, csv_export

    with one_paragraph():
        graded = read_graded(grades)
        sheet = csv_export.moodle(graded.rows, lab) if lab else csv_export.canvas(graded.rows)
        path = grades / (f"moodle.{lab}.csv" if lab else "canvas.csv")
        write_whole(path, sheet.text, PRIVATE)

    for student in sheet.unknown:
        typer.echo(f"left out, no number in the name: {student!a}", err=True)
    for words in [*sheet.doubled, *attention.gone(graded.gone)]:
        typer.echo(f"left out: {words!a}", err=True)
    _look_at(sheet.unsure)
    typer.echo(f"wrote {path}")


@app.command(rich_help_panel=GROUP)
def books(
    grades: Grades,
    gradebook: Annotated[Path, typer.Option(help="nbgrader's database; it is backed up beside itself first")],
    submissions: Annotated[Path | None, typer.Option(help="the folder that was graded: notebooks for formgrader")] = None,
    course: CourseFolder = None,
) -> None:
    """Write the scores into nbgrader's gradebook; points and comments given by hand stay."""
    from worldsize.grade import course as release
    from worldsize.grade.marking import submissions_folder
    from worldsize.grade.marking.grading_record import read_graded
    from worldsize.grade.reports import attention

    with one_paragraph():
        graded = read_graded(grades)
        need_folder_of(gradebook)
        if submissions:
            submissions_folder.need(submissions)

    from worldsize.grade.nbgrader import notebooks, scores  # imports nbgrader: seconds

    with one_paragraph(), Console(stderr=True).status("writing scores …"):
        root = (course or release.default_root()).resolve()
        labs = release.load(root)
        times = scores.handed_in(graded.rows, submissions) if submissions else {}
        done = scores.write(graded.rows, gradebook, labs, root, times)
        folder = gradebook.parent / "autograded"
        written = notebooks.write(done.placed, submissions, folder, labs, root) if submissions else (0, [])

    for words in [*done.left_out, *written[1], *attention.gone(graded.gone)]:
        typer.echo(f"left out: {words!a}", err=True)
    _look_at([*done.to_look_at, *dict.fromkeys(attention.doubled(graded.rows).values())])
    if submissions:
        typer.echo(f"wrote {written[0]} notebooks for formgrader: {folder}")

    if done.backup:
        backup = f"backup: {done.backup}"
    elif done.changed:
        backup = "new"
    else:
        backup = "as it was"
    typer.echo(f"wrote {done.changed} scores, {done.kept} were there: {gradebook} ({backup})")


@app.command(rich_help_panel=GROUP)
def feedback(
    grades: Grades,
    to: Annotated[Path, typer.Option(help="where the pages go, laid out as the submissions were")],
    submissions: Annotated[Path | None, typer.Option(help="the folder that was graded: for nbgrader release_feedback")] = None,
    course: CourseFolder = None,
    seed: Annotated[bool, typer.Option("--seed", help="say the seed too: when nobody hands in again")] = False,
) -> None:
    """Write a page of feedback for every student and lab: HTML by itself, with no script."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    from worldsize.grade import course as release
    from worldsize.grade.marking import submissions_folder
    from worldsize.grade.marking.grading_record import read_graded
    from worldsize.grade.reports import attention
    from worldsize.grade.reports import feedback as pages

    with one_paragraph(), bar(MofNCompleteColumn(), BarColumn(), TimeRemainingColumn()) as step:
        graded = read_graded(grades)
        if submissions:
            submissions_folder.need(submissions)
        labs = release.load((course or release.default_root()).resolve())
        places = pages.write(
            graded.rows, to, labs, grades / "expected", seed, submissions=submissions,
            progress=lambda done, total, _: step(done, total),
        )  # fmt: skip
    for words in attention.gone(graded.gone):
        typer.echo(f"left out: {words!a}", err=True)
    _look_at(attention.needs_a_person(graded.rows, ()))
    typer.echo(f"wrote {len(places)} pages: {to}")


@app.command(rich_help_panel=GROUP)
def similarity(
    submissions: Submissions,
    out: Annotated[Path, typer.Option(help="the page to write, such as similarity.html")],
    course: CourseFolder = None,
) -> None:
    """Compare the answers to each exercise, also with the course's own: a page of pairs, and no verdict."""
    from worldsize.files import PRIVATE, write_whole
    from worldsize.grade.reports import similarity_page
    from worldsize.grade.reports.similarity import similarity as compare

    with one_paragraph():
        need_folder_of(out)
    with one_paragraph(), Console(stderr=True).status("comparing …") as status:
        found = compare(
            submissions, course, lambda done, of: status.update(f"comparing: exercise {done} of {of} …")
        )
        write_whole(out, similarity_page.page(found), PRIVATE)
    typer.echo("\n".join([*similarity_page.lines(found), f"wrote {out}"]))


@app.command(rich_help_panel=GROUP)
def gradescope(
    out: Annotated[Path, typer.Argument(help="the zip to write, such as autograder.zip")],
    lab: Annotated[str, typer.Argument(help="the lab, such as 06")],
    unsafe: Annotated[bool, typer.Option("--unsafe", help="grade without a sandbox where the container has none")] = False,
    root: Repository = Path("."),
) -> None:
    """Write a Gradescope autograder of one lab, which runs the same grader in Gradescope's container."""
    from worldsize.grade import course

    with one_paragraph():
        need_folder_of(out)
        course.stem_of(root, lab)

    from worldsize.grade.gradescope import bundle  # imports nbgrader: seconds

    with one_paragraph(), Console(stderr=True).status("comparing notebooks with their sources …"):
        names = bundle.autograder(root, out, lab, unsafe)
    typer.echo(f"wrote {out}: {len(names)} files, {out.stat().st_size / 1e6:.1f} MB")
