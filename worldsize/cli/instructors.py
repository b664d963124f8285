"""The commands of instructors: a sample class, grading, exports, feedback, reports on a class, exams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from worldsize.cli.common import CourseFolder, app, bar, course_folder, need_extra, need_folder_of, one_paragraph
from worldsize.units import count

if TYPE_CHECKING:
    from worldsize.grade.marking.grading_record import GradedFolder
    from worldsize.grade.reports.needs_a_person import Need

GROUP = "Instructors"

# arguments that several commands share
Submissions = Annotated[Path, typer.Argument(help="a folder: <student>/<lab>.ipynb, or files as Canvas or Moodle exports them")]
Grades = Annotated[Path, typer.Argument(help="the folder that `worldsize grade` wrote with --out")]


@app.command(rich_help_panel=GROUP)
def sample_class(
    to: Annotated[Path, typer.Argument(help="the folder to create, such as submitted; it must not exist yet")],
    lab: Annotated[str, typer.Option(help="the lab that the class hands in")] = "06",
    students: Annotated[int, typer.Option(help="the number of students")] = 3,
    course: CourseFolder = None,
) -> None:
    """Make up a class and its submissions of one lab, to try grading with."""
    from worldsize.grade import course as release
    from worldsize.grade.sample_class import hand_in

    with one_paragraph():
        root = course_folder(course)
        made = hand_in(to, root, release.stem_of(root, lab, "--lab"), students)
    for one in made:
        typer.echo(f"{one.path}: {one.answers}")
    typer.echo(f"next: worldsize grade {to} --out grades/")


@app.command(rich_help_panel=GROUP)
def grade(
    submissions: Submissions,
    out: Annotated[Path, typer.Option(help="the folder for the rows; run again, grading continues there")],
    jobs: Annotated[int | None, typer.Option(help="submissions at once; default: 2, in a Slurm task 1 per processor")] = None,
    lab: Annotated[list[str] | None, typer.Option(help="only this lab, such as 06; may be repeated")] = None,
    student: Annotated[list[str] | None, typer.Option(help="only this student: a name or an LMS number")] = None,
    only: Annotated[list[str] | None, typer.Option(help="only these files: a path in the folder, or a pattern")] = None,
    regrade: Annotated[bool, typer.Option("--regrade", help="mark again even where a row is valid")] = False,
    crashed: Annotated[bool, typer.Option("--crashed", help="mark again what ended as crashed, timeout or lost")] = False,
    due: Annotated[list[str] | None, typer.Option(help='"2026-11-01 23:59", or for one lab "06=…": notes who was late')] = None,
    shard: Annotated[str, typer.Option(help="one part of several, such as 3/7; then `worldsize merge`")] = "",
    slurm: Annotated[str, typer.Option(help="on nodes of a cluster: nodes=2,cpus_per_task=8,partition=cpu,timeout_min=60")] = "",
    unsafe: Annotated[bool, typer.Option("--unsafe", help="grade without a sandbox; every row says so")] = False,
    course: CourseFolder = None,
    seed: Annotated[int | None, typer.Option(help="the seed of an earlier grading, to replay it")] = None,
) -> None:
    """Grade a folder of submissions, each in a sandbox, and print rows, statistics and a histogram."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from worldsize.grade import course as release
    from worldsize.grade.isolation.bubblewrap import UNSAFE
    from worldsize.grade.marking import grade_folder
    from worldsize.grade.marking.lateness import due_dates
    from worldsize.grade.marking.selection import Selection, Shard, shard_of
    from worldsize.grade.reports import table
    from worldsize.grade.slurm import NoHosts, SlurmGrading, grade_on_slurm

    shown = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with one_paragraph(NoHosts), bar(*shown) as step:
        need_submissions(submissions)
        root = course_folder(course)
        stems = [release.stem_of(root, name, "--lab") for name in lab or ()]
        part = shard_of(shard) if shard else Shard()
        selection = Selection(tuple(stems), tuple(student or ()), tuple(only or ()), crashed, regrade, part)
        dates = due_dates(due or (), release.stems(root))
        if slurm:
            if shard or unsafe:
                raise ValueError("--slurm: expected neither --shard nor --unsafe with it, got one of them. Leave it out.")
            made = grade_on_slurm(submissions, out, slurm, root, seed, selection, dates, step, jobs)
        else:
            made = grade_folder.grade(
                submissions, out, jobs or 2, course, seed, mode=UNSAFE if unsafe else None, selection=selection, due=dates,
                progress=lambda done, total, row: step(done, total, f"{row.student[:30]!r} {row.state}"),
            )  # fmt: skip
    with one_paragraph():
        _show(made.folder, out)

    if not isinstance(made, SlurmGrading):
        typer.echo(table.closing_line(made, out))
        return
    for end in made.unfinished:
        typer.echo(f"shard {end.shard.number}/{end.shard.count} is not done ({end.host or 'no node'}): {end.why}", err=True)
    done = f"{count(len(made.folder.rows), 'row')}, {count(made.tasks, 'Slurm task')}"
    typer.echo(f"{done}; the same command continues where it stopped")
    if made.unfinished:
        raise typer.Exit(1)


@app.command(rich_help_panel=GROUP)
def merge(
    out: Annotated[Path, typer.Argument(help="the folder for all rows; it may already have some")],
    parts: Annotated[list[Path], typer.Argument(help="the folders of the shards")],
) -> None:
    """Merge shards that were graded into separate folders, and print the table."""
    from worldsize.grade.marking import merge as merging

    with one_paragraph():
        made = merging.merge(out, parts)
        _show(made, out)
    typer.echo(f"{count(len(made.rows), 'row')} from {count(len(parts), 'folder')}: {out}")


def need_submissions(submissions: Path) -> None:
    from worldsize.grade.marking import submissions_folder

    submissions_folder.need(submissions)


def _show(graded: GradedFolder, out: Path) -> None:
    """Print, for instructors, the table of a folder of grades, and list the rows that need a person."""
    from worldsize.grade.reports import needs_a_person, table

    table.write(graded.rows, out)
    typer.echo(table.table(graded.rows))
    typer.echo(f"\n{table.summary(graded.rows)}\n")
    _look_at(needs_a_person.needs(graded), out)


def _look_at(needs: list[Need], grades: Path) -> None:
    """Print, for instructors, the first things that need a person, and write all of them beside the rows."""
    from worldsize.grade.reports import needs_a_person

    path = needs_a_person.write(needs, grades)
    for need in needs[: needs_a_person.MOST_SHOWN]:
        typer.echo(f"needs a person ({need.kind}): {need.words!r}", err=True)
    if len(needs) > needs_a_person.MOST_SHOWN:
        typer.echo(f"and {len(needs) - needs_a_person.MOST_SHOWN} more: {path}", err=True)


@app.command(rich_help_panel=GROUP)
def export(
    grades: Grades,
    lab: Annotated[str, typer.Option(help="for Moodle: the lab, such as 06")] = "",
    canvas: Annotated[Path | None, typer.Option(help="the CSV from Canvas's gradebook: assignments and students")] = None,
    moodle: Annotated[Path | None, typer.Option(help="with --lab: Moodle's grading worksheet, to fill in")] = None,
    gradebook: Annotated[Path | None, typer.Option(help="nbgrader's gradebook, for points given in formgrader")] = None,
    course: CourseFolder = None,
) -> None:
    """Write the marks as CSV: for Canvas, or with --lab as Moodle's grading worksheet of that lab."""
    from worldsize.files import PRIVATE, write_whole
    from worldsize.grade import course as release
    from worldsize.grade.marking import by_hand
    from worldsize.grade.marking.grading_record import read_graded
    from worldsize.grade.reports import canvas_csv, mark_sheet, moodle_csv, needs_a_person

    with one_paragraph():
        if (canvas and (lab or moodle)) or (moodle and not lab):
            raise ValueError("export: expected --canvas alone, or --lab with or without --moodle, got another combination.")
        graded = read_graded(grades)
        root = course_folder(course)
        worksheet, listed = None, {}
        if moodle:
            worksheet = moodle_csv.read(moodle)
            listed = worksheet.names
        elif canvas:
            listed = canvas_csv.read(canvas, ()).names
        overrides = by_hand.read(grades, graded.rows, release.stems(root), listed)
        given, differing = overrides.given, []
        if gradebook:
            from worldsize.grade.nbgrader import hand_points

            given, differing = by_hand.together(given, hand_points.read(gradebook, graded.rows))
        rows = by_hand.rows_too(graded.rows, given)
        if lab:
            lab = release.stem_of(root, lab, "--lab")
            sheet = moodle_csv.export(rows, lab, given, worksheet)
        else:
            theirs = canvas_csv.read(canvas, mark_sheet.labs_of(rows, given)) if canvas else None
            sheet = canvas_csv.export(rows, given, theirs)
        path = grades / (f"moodle.{lab}.csv" if lab else "canvas.csv")
        write_whole(path, sheet.text, PRIVATE)

        where = canvas or moodle or "the name"
        unknown = [f"{student}, no such number in {where}: left out of the sheet" for student in sheet.unknown]
        needs = needs_a_person.with_more(needs_a_person.needs(graded, given), "left out", unknown)
        nothing = "no file in the graded folder has the student's number"
        none = [f"{student}, in {where}: {nothing}" for student in sheet.absent]
        needs = needs_a_person.with_more(needs, "nothing handed in", none)
        needs = needs_a_person.with_more(needs, "by hand", [*differing, *sheet.looked_at])
        _look_at(needs_a_person.with_more(needs, "bad line", overrides.bad), grades)
    if given:
        typer.echo(f"points given by hand: {len(given)}")
    typer.echo(f"wrote {path}")


@app.command(rich_help_panel=GROUP)
def appeal(
    number: Annotated[str, typer.Argument(help="the appeal number on the student's page")],
    grades: Grades,
    submissions: Annotated[Path, typer.Option(help="the folder that was graded")],
    course: CourseFolder = None,
) -> None:
    """Find the row of an appeal number, mark its file again with the same seed, and show both; nothing is written."""
    from worldsize.grade.marking.grading_record import read_graded
    from worldsize.grade.reports import appeal as appeals

    with one_paragraph(), Console(stderr=True).status("marking it again …"):
        root = course_folder(course)
        row = appeals.row_of(number, read_graded(grades))
        need_submissions(submissions)
        again = appeals.replayed(row, submissions, root)
        words = appeals.compared(row, again, root)
    typer.echo(words)


@app.command(rich_help_panel=GROUP)
def books(
    grades: Grades,
    gradebook: Annotated[Path, typer.Option(help="nbgrader's database; a backup is made beside it first")],
    submissions: Annotated[Path | None, typer.Option(help="the folder that was graded: notebooks for formgrader")] = None,
    course: CourseFolder = None,
) -> None:
    """Write the scores into nbgrader's gradebook; points and comments given by hand stay."""
    from worldsize.grade import course as release
    from worldsize.grade.marking import by_hand
    from worldsize.grade.marking.grading_record import read_graded
    from worldsize.grade.reports import needs_a_person

    with one_paragraph():
        need_extra("books", "nbgrader", "instructor")
        graded = read_graded(grades)
        need_folder_of(gradebook)
        if submissions:
            need_submissions(submissions)

    from worldsize.grade.nbgrader import notebooks, scores  # takes seconds: it imports nbgrader

    with one_paragraph(), Console(stderr=True).status("writing scores …"):
        root = course_folder(course)
        labs = release.load(root)
        overrides = by_hand.read(grades, graded.rows, labs)
        times = scores.handed_in(graded.rows, submissions) if submissions else {}
        done = scores.write(graded.rows, gradebook, labs, root, times, overrides.given)
        folder = gradebook.parent / "autograded"
        written = notebooks.write(done.placed, submissions, folder, labs, root) if submissions else (0, [])

    with one_paragraph():
        given = overrides.given
        placed = {(row.student, row.lab) for row, _ in done.placed}
        absent = by_hand.for_formgrader({place: points for place, points in given.items() if place not in placed})
        found = needs_a_person.with_more(needs_a_person.needs(graded, given), "left out", [*done.left_out, *written[1]])
        found = needs_a_person.with_more(found, "by hand", [*absent, *done.not_given, *done.to_look_at])
        _look_at(needs_a_person.with_more(found, "bad line", overrides.bad), grades)
    if submissions:
        typer.echo(f"wrote {count(written[0], 'notebook')} for formgrader: {folder}")

    if done.backup:
        backup = f"backup: {done.backup}"
    elif done.changed:
        backup = "new"
    else:
        backup = "unchanged"
    typer.echo(f"wrote {count(done.changed, 'score')}, {done.kept} unchanged: {gradebook} ({backup})")


@app.command(rich_help_panel=GROUP)
def feedback(
    grades: Grades,
    to: Annotated[Path, typer.Option(help="the folder for the pages, laid out like the submissions")],
    submissions: Annotated[Path | None, typer.Option(help="the folder that was graded: for nbgrader release_feedback")] = None,
    gradebook: Annotated[Path | None, typer.Option(help="nbgrader's gradebook, for formgrader's points and comments")] = None,
    course: CourseFolder = None,
    seed: Annotated[bool, typer.Option("--seed", help="show the seed too, when no student can resubmit")] = False,
) -> None:
    """Write a feedback page for every student and lab: self-contained HTML, without scripts."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    from worldsize.grade import course as release
    from worldsize.grade.marking import by_hand
    from worldsize.grade.marking.grading_record import read_graded
    from worldsize.grade.reports import feedback as pages
    from worldsize.grade.reports import needs_a_person

    with one_paragraph(), bar(MofNCompleteColumn(), BarColumn(), TimeRemainingColumn()) as step:
        graded = read_graded(grades, messages=True)
        if submissions:
            need_submissions(submissions)
        labs = release.load(course_folder(course))
        overrides = by_hand.read(grades, graded.rows, labs)
        given, differing, comments = overrides.given, [], pages.NO_COMMENTS
        if gradebook:
            from worldsize.grade.nbgrader import hand_points

            given, differing = by_hand.together(given, hand_points.read(gradebook, graded.rows))
            comments = hand_points.comments(gradebook)
        places = pages.write(
            graded.rows, to, labs, grades / "expected", seed, submissions=submissions, given=given, comments=comments,
            progress=lambda done, total, _: step(done, total),
        )  # fmt: skip
    with one_paragraph():
        found = needs_a_person.with_more(needs_a_person.needs(graded, given), "by hand", differing)
        _look_at(needs_a_person.with_more(found, "bad line", overrides.bad), grades)
    typer.echo(f"wrote {count(len(places), 'page')}: {to}")


@app.command("class", rich_help_panel=GROUP)
def misunderstood(
    grades: Grades,
    submissions: Annotated[Path | None, typer.Argument(help="the graded folder, for the predictions in it")] = None,
    out: Annotated[Path, typer.Option(help="the page to write; a CSV is written beside it")] = Path("class.html"),
    watch: Annotated[bool, typer.Option("--watch", help="rewrite it whenever a file changes, until Ctrl-C")] = False,
    course: CourseFolder = None,
) -> None:
    """Show what a class misunderstood, exercise by exercise and prediction by prediction, without names."""
    from worldsize.grade import course as release
    from worldsize.grade.reports import class_folder
    from worldsize.grade.reports.class_map import lines

    with one_paragraph():
        need_folder_of(out)
        if submissions:
            need_submissions(submissions)
        labs = release.load(course_folder(course))
        again_s = round(class_folder.LOOK_S) if watch else None
        folders = [grades, *filter(None, [submissions])]
        for _ in class_folder.changes(folders) if watch else (None,):  # without --watch: once
            made = class_folder.write(grades, submissions, labs, out, again_s)
            typer.echo("\n".join([*lines(made.found), f"wrote {made.page} and {made.sheet}"]))
            for words in made.unread:
                typer.echo(f"no predictions read: {words!r}", err=True)


@app.command(rich_help_panel=GROUP)
def exam(
    out: Annotated[Path, typer.Argument(help="the folder to create; it must not exist yet")],
    students: Annotated[str, typer.Option(help="how many, or a text file with one name per line")] = "1",
    lab: Annotated[list[str] | None, typer.Option(help="questions on this lab, such as 06; may be repeated")] = None,
    questions: Annotated[int | None, typer.Option(help="how many; default: all on these labs")] = None,
    form: Annotated[str, typer.Option(help="text: an exam and an answer sheet per student; moodle; qti, for Canvas")] = "text",
    seed: Annotated[str, typer.Option(help="draws the questions and, with a student's name, the numbers")] = "exam",
) -> None:
    """Write exams and answers: the same questions, with different numbers for each student."""
    from worldsize.grade.exam import files

    with one_paragraph():
        if form == "qti":
            need_extra("exam --form qti", "text2qti", "instructor")
        written = files.write(out, form, files.names_from(students), tuple(lab or ()), questions, seed)
    typer.echo(f"wrote {count(len(written), 'file')}: {out}")


@app.command(rich_help_panel=GROUP)
def similarity(
    submissions: Submissions,
    out: Annotated[Path, typer.Option(help="the page to write, such as similarity.html")],
    course: CourseFolder = None,
) -> None:
    """Compare the answers to each exercise, also with the course's own: a page of pairs, without a verdict."""
    from worldsize.files import PRIVATE, write_whole
    from worldsize.grade.reports import similarity_page
    from worldsize.grade.reports.similarity import similarity as compare

    with one_paragraph():
        need_extra("similarity", "copydetect", "instructor")
        need_folder_of(out)
    with one_paragraph(), Console(stderr=True).status("comparing …") as status:
        comparison = compare(
            submissions, course, lambda done, of: status.update(f"comparing: exercise {done} of {of} …")
        )
        write_whole(out, similarity_page.page(comparison), PRIVATE)
    typer.echo("\n".join([*similarity_page.lines(comparison), f"wrote {out}"]))


@app.command(rich_help_panel=GROUP)
def gradescope(
    out: Annotated[Path, typer.Argument(help="the zip to write, such as autograder.zip")],
    lab: Annotated[str, typer.Argument(help="the lab, such as 06")],
    unsafe: Annotated[bool, typer.Option("--unsafe", help="grade without a sandbox if the container has none")] = False,
    course: CourseFolder = None,
) -> None:
    """Write a Gradescope autograder for one lab, which runs the same grader in Gradescope's container."""
    from worldsize.grade import course as release

    with one_paragraph():
        need_extra("gradescope", "nbgrader", "instructor")
        need_folder_of(out)
        root = course_folder(course)
        release.stem_of(root, lab, "gradescope")

    from worldsize.grade.gradescope import bundle  # takes seconds: it imports nbgrader

    with one_paragraph(), Console(stderr=True).status("comparing notebooks with their sources …"):
        names = bundle.autograder(root, out, lab, unsafe)
    typer.echo(f"wrote {out}: {count(len(names), 'file')}, {out.stat().st_size / 1e6:.1f} MB")
