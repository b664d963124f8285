"""The commands of students: `worldsize start`, `doctor`, `run`, `answers` and `progress`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from worldsize.cli.common import app, bar, need_folder_of, one_paragraph

if TYPE_CHECKING:
    from worldsize.course.start_and_update import LaidCourse

GROUP = "Students"


@app.command(rich_help_panel=GROUP)
def start(
    folder: Annotated[Path | None, typer.Argument(help="a new folder or the course's; default: the current folder")] = None,
    lab: Annotated[str, typer.Option(help="the lab to open, such as 06")] = "00",
    no_open: Annotated[bool, typer.Option("--no-open", help="do not open JupyterLab: in a script, or without a browser")] = False,
) -> None:
    """Put the course into a folder, check this machine, and open lab 00. Run it again to reopen or update the course."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    import worldsize
    from worldsize import doctor
    from worldsize.course import opening, shipped_files, start_and_update
    from worldsize.lab.course_folder import notebook_of

    shown = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}", markup=False))
    with one_paragraph():
        if (system := doctor.system()).state == "fails":
            raise ValueError(f"start: expected Linux, macOS or WSL2, got {system.value}: {system.remark}.")
        if not no_open:
            opening.need_jupyterlab()
        source, place = shipped_files.source(), start_and_update.place_for(folder)
        with bar(*shown) as step:
            laid = start_and_update.lay(
                place, source, worldsize.__version__, lambda done, of, name: step(done, of, name if done < of else "")
            )
        _say_of_laying(laid)
        typer.echo(f"to come back: worldsize start {place}")
        notebook = notebook_of(lab, place)

    if laid.checked != worldsize.__version__:  # once for each release
        _show_sheet()
        with one_paragraph():
            start_and_update.mark_checked(place, worldsize.__version__)
    if not no_open:
        with one_paragraph():
            opening.open_lab(place, notebook)


def _say_of_laying(laid: LaidCourse) -> None:
    """Print what changed in the course's folder, with a line for each lab in which the student has worked."""
    from worldsize import units
    from worldsize.course.changes import news

    if not laid.before:
        typer.echo(f"put World Size {laid.now} into {laid.folder}: {units.count(len(laid.files), 'file')}")
        return

    if laid.before != laid.now:
        typer.echo(f"{laid.folder}: updated World Size from {laid.before} to {laid.now}. Changes:")
        for release in news((laid.folder / "CHANGELOG.md").read_text(encoding="utf-8"), laid.before, laid.now):
            for lead in release.leads:
                typer.echo(f"  {release.version}  {lead}")
            if release.more:
                typer.echo(f"  {release.version}  {units.count(release.more, 'line')} more in {laid.folder / 'CHANGELOG.md'}")
    for file in laid.files:
        if file.words:
            typer.echo(f"{file.name}: {file.words}")
    if anew := sum(not file.words for file in laid.files):
        typer.echo(f"{units.count(anew, 'file')} replaced, none of which you had changed")


@app.command(rich_help_panel=GROUP)
def doctor() -> None:
    """Show what this machine can do, and prove it with two real ranks. Exit code 1 if they do not run."""
    _show_sheet()


def _show_sheet() -> None:
    from rich.markup import escape
    from rich.table import Table

    from worldsize.doctor import examine

    console = Console(highlight=False)
    with console.status("running two ranks, twice …"):
        sheet = examine()

    table = Table("what", "here", "remark", title="This machine", title_justify="left")
    style = {"ok": None, "note": "yellow", "fails": "bold red"}
    for row in sheet.rows:
        table.add_row(row.what, escape(row.value), escape(row.remark), style=style[row.state])
    console.print(table)
    if not sheet.ok:
        raise typer.Exit(1)


@app.command(rich_help_panel=GROUP)
def run(
    notebook: Annotated[str, typer.Argument(help="a lab's number, such as 06, or a notebook's file")],
    out: Annotated[Path | None, typer.Option(help="where to write the executed notebook")] = None,
    parameter: Annotated[list[str] | None, typer.Option("-p", help="name=value; may be repeated")] = None,
) -> None:
    """Run a notebook from top to bottom without a browser, and print its summary table."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from worldsize.authoring import headless
    from worldsize.lab import course_folder

    shown = (TextColumn("cell {task.completed} of {task.total}"), BarColumn(), TimeElapsedColumn())
    with one_paragraph(headless.NotebookFailed):
        given, path = _parameters(parameter or []), Path(notebook)
        if course_folder.is_lab_name(notebook) and not path.exists():
            path = course_folder.notebook_of(notebook)

        with bar(*shown, TextColumn("{task.description}", markup=False)) as step:
            done = headless.run(path, out, given, progress=lambda cell, cells, line: step(cell, cells, line[:60]))
    typer.echo(done.summary_text)
    typer.echo(f"{done.seconds:.1f} s; executed notebook: {done.out}")


def _parameters(words: list[str]) -> dict[str, object]:
    """Parse a student's ["ranks=4"] into {"ranks": 4}. A value is JSON if it parses, else text. Raises ValueError."""
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


@app.command(rich_help_panel=GROUP)
def answers(
    notebook: Annotated[str, typer.Argument(help="a lab's number, such as 11, or a notebook's file")],
    out: Annotated[Path, typer.Option(help="the module to write, such as student.py")],
    force: Annotated[bool, typer.Option("--force", help="overwrite an existing file")] = False,
) -> None:
    """Write a lab's answers as a Python module, for torchrun or a program of your own; the notebook is not run."""
    from worldsize.course import shipped_files
    from worldsize.files import write_whole
    from worldsize.grade.marking.answers_module import answers_module
    from worldsize.lab import course_folder
    from worldsize.units import count

    with one_paragraph():
        need_folder_of(out)
        if out.suffix != ".py" or not out.stem.isidentifier():
            raise ValueError(f"{out}: expected a module name such as student.py, got one that Python cannot import.")
        if out.exists() and not force:
            raise ValueError(
                f"{out}: expected a new file, got an existing one. Choose another name, or overwrite it with --force."
            )
        path = Path(notebook)
        if course_folder.is_lab_name(notebook) and not path.exists():
            path = course_folder.notebook_of(notebook)

        made = answers_module(path, shipped_files.source())
        write_whole(out, made.text)
    for note in made.notes:
        typer.echo(note, err=True)
    if made.not_yet:
        typer.echo(f"not written yet; these raise NotYet: {', '.join(made.not_yet)}")
    written = [name for name in made.functions if name not in made.not_yet]
    typer.echo(f"wrote {out} from {path}: {count(len(written), 'answer')}" + (f" ({', '.join(written)})" if written else ""))


@app.command(rich_help_panel=GROUP)
def progress() -> None:
    """Show the points and predictions of every lab, and what to do next."""
    from rich.table import Table

    from worldsize.lab.progress import course_progress

    with one_paragraph():
        course = course_progress()
    labs = []
    for lab in course.labs:
        labs.append((lab.number, lab.title, f"{lab.earned:g} of {lab.possible:g}", _of(lab.predicted, lab.asked), lab.next_step))
    total = ("", "all labs", f"{course.earned:g} of {course.possible:g}", _of(course.predicted, course.asked), "")

    console = Console(highlight=False)
    if console.is_terminal:
        table = Table("lab", "title", "points", "predictions", "next step", title="The course so far", title_justify="left")
        for row in labs:
            table.add_row(*row)
        table.add_section()
        table.add_row(*total, style="bold")
        console.print(table)
    else:  # tabs, for other programs
        for row in (*labs, total):
            typer.echo("\t".join(row))
    typer.echo(f"read from {course.folder}")


def _of(made: int, asked: int) -> str:
    return f"{made} of {asked}" if asked else "–"
