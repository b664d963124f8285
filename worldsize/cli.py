"""The command line: `worldsize doctor`, `run`, `build`, `grade`, `join`. Each command calls one function and shows the answer.

Left out: all logic, and what the modules import: a command imports its module when it runs, so that `--help`
answers at once. A mistake of the caller is shown as one paragraph, without a traceback, with exit code 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table

    from worldsize.doctor import CapabilitySheet

app = typer.Typer(
    help="World Size: a hands-on course on distributed training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# arguments that several commands take
Submissions = Annotated[Path, typer.Argument(help="a folder: <student>/<lab>.ipynb, or files as Canvas, Moodle export")]
Grades = Annotated[Path, typer.Argument(help="the folder that `worldsize grade` wrote with --out")]
CourseFolder = Annotated[Path | None, typer.Option(help="the folder with the course's labs/ and solutions/")]
Repository = Annotated[Path, typer.Option(help="the repository")]


@contextmanager
def _one_paragraph(*more: type[Exception]) -> Iterator[None]:
    """Show the errors that a person can do something about as a paragraph; a bug keeps its traceback."""
    try:
        yield
    except (ValueError, OSError, *more) as error:
        Console(stderr=True, highlight=False, markup=False).print(str(error), style="red", soft_wrap=True)
        raise typer.Exit(1) from None


@app.command()
def doctor() -> None:
    """Show what this machine can do, and prove it with two real ranks. Exit code 1 if they do not run."""
    from worldsize.doctor import examine

    console = Console(highlight=False)
    with console.status("two ranks, twice …"):
        sheet = examine()
    console.print(_table(sheet))
    if not sheet.ok:
        raise typer.Exit(1)


def _table(sheet: CapabilitySheet) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("what", "here", "remark", title="This machine", title_justify="left")
    style = {"ok": None, "note": "yellow", "fails": "bold red"}
    for row in sheet.rows:
        table.add_row(row.what, escape(row.value), escape(row.remark), style=style[row.state])

    return table


@app.command()
def run(
    notebook: Annotated[Path, typer.Argument(help="a notebook, for example labs/00_start_here.ipynb")],
    out: Annotated[Path | None, typer.Option(help="where the executed notebook goes")] = None,
    parameter: Annotated[list[str] | None, typer.Option("-p", help="name=value; may be repeated")] = None,
) -> None:
    """Run a notebook from top to bottom without a browser, and print its summary table."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from worldsize.authoring import headless

    shown = (TextColumn("cell {task.completed} of {task.total}"), BarColumn(), TimeElapsedColumn())
    with _one_paragraph(headless.NotebookFailed):
        given = _parameters(parameter or [])
        with Progress(*shown, TextColumn("{task.description}", markup=False), transient=True) as progress:
            task = progress.add_task("", total=None)
            done = headless.run(
                notebook, out, given,
                progress=lambda cell, cells, line: progress.update(
                    task, completed=cell, total=cells, description=line[:60]
                ),
            )
    typer.echo(done.summary_text)
    typer.echo(f"{done.seconds:.1f} s; executed notebook: {done.out}")


def _parameters(words: list[str]) -> dict[str, object]:
    """["ranks=4"] -> {"ranks": 4}; a value is JSON, or else the text itself."""
    import json

    parameters: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"the parameter {word!r}: expected name=value, for example -p ranks=4")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value

    return parameters


@app.command()
def build(
    root: Annotated[Path, typer.Argument(help="the repository")] = Path("."),
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 if something is stale")] = False,
) -> None:
    """Write the notebooks in solutions/ and labs/ from the sources solutions/NN_topic.py."""
    from worldsize.authoring.build import build as build_notebooks

    with _one_paragraph(), Console(stderr=True).status("reading the sources, making the notebooks …"):
        paths = build_notebooks(root, check=check)

    for path in paths:
        typer.echo(f"{'stale' if check else 'wrote'} {path}")
    if not paths:
        typer.echo("every notebook is as its source says")
    if check and paths:
        raise typer.Exit(1)


@app.command()
def release(
    out: Annotated[Path, typer.Argument(help="the zip to write, such as worldsize.zip")],
    root: Repository = Path("."),
) -> None:
    """Write the student bundle: labs, package, data, environment; no solutions and no tests."""
    from worldsize.authoring.release import release as write_bundle

    with _one_paragraph(), Console(stderr=True).status("comparing notebooks with their sources …"):
        names = write_bundle(root, out)
    typer.echo(f"wrote {out}: {len(names)} files, {out.stat().st_size / 1e6:.1f} MB")


@app.command()
def grade(
    submissions: Submissions,
    out: Annotated[Path, typer.Option(help="where the rows go; graded again, it goes on where it was")],
    jobs: Annotated[int, typer.Option(help="how many submissions at once")] = 2,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="grade without a sandbox; every row says so")] = False,
    course: CourseFolder = None,
    seed: Annotated[int | None, typer.Option(help="the seed of an earlier grading, to replay it")] = None,
) -> None:
    """Grade a folder of submissions, each in a sandbox, and print every row, statistics and a histogram."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from worldsize.grade.marking.batch import grade as grade_folder
    from worldsize.grade.reports import table

    shown = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with _one_paragraph(), Progress(*shown, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)
        batch = grade_folder(
            submissions, out, jobs, unsafe, course, seed,
            progress=lambda done, total, row: progress.update(
                task, completed=done, total=total, description=f"{row.student[:30]!a} {row.state}"
            ),
        )
    typer.echo(table.table(batch.rows))
    typer.echo(f"\n{table.summary(batch.rows)}\n\n{table.closing_line(batch, out)}")


@app.command()
def export(
    grades: Grades,
    lab: Annotated[str, typer.Option(help="for Moodle: the one lab, such as 06_ring_all_reduce")] = "",
) -> None:
    """Write the marks as CSV: for Canvas, or with --lab as Moodle's grading worksheet of that lab."""
    from worldsize.files import PRIVATE, write_whole
    from worldsize.grade.marking import rows
    from worldsize.grade.reports import csv_export

    with _one_paragraph():
        graded = list(rows.read_all(grades))
        sheet = csv_export.moodle(graded, lab) if lab else csv_export.canvas(graded)
        path = grades / (f"moodle.{lab}.csv" if lab else "canvas.csv")
        write_whole(path, sheet.text, PRIVATE)

    for student in sheet.unknown:
        typer.echo(f"left out, no number in the name: {student!a}", err=True)
    for words in sheet.unsure:
        typer.echo(f"look at this one: {words!a}", err=True)
    typer.echo(f"wrote {path}")


@app.command()
def similarity(
    submissions: Submissions,
    out: Annotated[Path, typer.Option(help="the page to write, such as similarity.html")],
    course: CourseFolder = None,
) -> None:
    """Compare the answers to each exercise, also with the course's own: a page of pairs, and no verdict."""
    from worldsize.files import PRIVATE, write_whole
    from worldsize.grade.reports import similarity_page
    from worldsize.grade.reports.similarity import similarity as compare

    with _one_paragraph(), Console(stderr=True).status("comparing …") as status:
        found = compare(
            submissions, course, lambda done, of: status.update(f"comparing: exercise {done} of {of} …")
        )
        write_whole(out, similarity_page.page(found), PRIVATE)
    typer.echo("\n".join([*similarity_page.lines(found), f"wrote {out}"]))


@app.command()
def gradescope(
    out: Annotated[Path, typer.Argument(help="the zip to write, such as autograder.zip")],
    lab: Annotated[str, typer.Argument(help="the lab, such as 06")],
    unsafe: Annotated[bool, typer.Option("--unsafe", help="grade without a sandbox where the container has none")] = False,
    root: Repository = Path("."),
) -> None:
    """Write a Gradescope autograder of one lab, which runs the same grader in Gradescope's container."""
    from worldsize.grade.gradescope import bundle

    with _one_paragraph(), Console(stderr=True).status("comparing notebooks with their sources …"):
        names = bundle.autograder(root, out, lab, unsafe)
    typer.echo(f"wrote {out}: {len(names)} files, {out.stat().st_size / 1e6:.1f} MB")


@app.command()
def books(
    grades: Grades,
    gradebook: Annotated[Path, typer.Option(help="nbgrader's database; it is backed up beside itself first")],
    submissions: Annotated[Path | None, typer.Option(help="the folder that was graded: notebooks for formgrader")] = None,
    course: CourseFolder = None,
) -> None:
    """Write the scores into nbgrader's gradebook; points and comments given by hand stay."""
    from worldsize.grade import course as release
    from worldsize.grade.marking import rows
    from worldsize.grade.nbgrader import notebooks, scores

    with _one_paragraph(), Console(stderr=True).status("writing scores …"):
        root = (course or release.default_root()).resolve()
        labs, graded = release.load(root), list(rows.read_all(grades))
        times = scores.handed_in(graded, submissions) if submissions else {}
        done = scores.write(graded, gradebook, labs, root, times)
        folder = gradebook.parent / "autograded"
        written = notebooks.write(done.placed, submissions, folder, labs, root) if submissions else (0, [])

    for words in [*done.left_out, *written[1]]:
        typer.echo(f"left out: {words!a}", err=True)
    for words in done.to_look_at:
        typer.echo(f"look at this one: {words!a}", err=True)
    if submissions:
        typer.echo(f"wrote {written[0]} notebooks for formgrader: {folder}")

    if done.backup:
        backup = f"backup: {done.backup}"
    elif done.changed:
        backup = "new"
    else:
        backup = "as it was"
    typer.echo(f"wrote {done.changed} scores, {done.kept} were there: {gradebook} ({backup})")


@app.command()
def feedback(
    grades: Grades,
    to: Annotated[Path, typer.Option(help="where the pages go, laid out as the submissions were")],
    submissions: Annotated[Path | None, typer.Option(help="the folder that was graded: for nbgrader release_feedback")] = None,
    course: CourseFolder = None,
    seed: Annotated[bool, typer.Option("--seed", help="say the seed too: when nobody hands in again")] = False,
) -> None:
    """Write a page of feedback for every student and lab: HTML by itself, with no script."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from worldsize.grade import course as release
    from worldsize.grade.marking import rows
    from worldsize.grade.reports import feedback as pages

    shown = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with _one_paragraph(), Progress(*shown, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)
        labs = release.load((course or release.default_root()).resolve())
        places = pages.write(
            rows.read_all(grades), to, labs, grades / "expected", seed, submissions=submissions,
            progress=lambda done, total, _: progress.update(task, completed=done, total=total),
        )  # fmt: skip
    typer.echo(f"wrote {len(places)} pages: {to}")


@app.command()
def join(
    invitation: Annotated[Path | None, typer.Option(help="a file with it that only you can read; else you paste it")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask whether code from there may run here")] = False,
) -> None:
    """Be a host of a notebook on another machine, which invited this one; ends with Ctrl-C, or when the notebook does."""
    from worldsize.engines.hosts import joining

    with _one_paragraph():
        code = joining.join(invitation, yes, typer.echo, typer.confirm)
    raise typer.Exit(code)


if __name__ == "__main__":
    app()
