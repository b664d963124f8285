"""The commands of the course's authors: `worldsize build`, `covers`, `site` and `release`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from worldsize.cli.common import CourseFolder, app, course_folder, need_extra, need_folder_of, one_paragraph
from worldsize.units import count

GROUP = "Authors"


@app.command(rich_help_panel=GROUP)
def build(
    root: Annotated[Path, typer.Argument(help="the repository")] = Path("."),
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 if something is stale")] = False,
) -> None:
    """Write the notebooks in solutions/ and labs/ from the sources solutions/NN_topic.py."""
    from worldsize.authoring.build import build as build_notebooks

    with one_paragraph(), Console(stderr=True).status("reading the sources, making the notebooks …"):
        paths = build_notebooks(root, check=check)

    for path in paths:
        typer.echo(f"{'stale' if check else 'wrote'} {path}")
    if not paths:
        typer.echo("every notebook matches its source")
    if check and paths:
        raise typer.Exit(1)


@app.command(rich_help_panel=GROUP)
def covers(
    labs: Annotated[list[str] | None, typer.Argument(help="lab numbers, such as 06; default: all")] = None,
    course: CourseFolder = None,
) -> None:
    """Run solutions, and save each lab's cover picture in labs/covers/; then run `worldsize build`."""
    from worldsize.authoring import headless
    from worldsize.authoring.covers import draw_cover

    with one_paragraph(headless.NotebookFailed):
        root = course_folder(course)
        sources = sorted((root / "solutions").glob("[0-9][0-9]_*.py"))
        asked = [source for source in sources if not labs or source.stem[:2] in labs]
        unknown = sorted(set(labs or ()) - {source.stem[:2] for source in sources})
        if unknown or not asked:
            there = ", ".join(source.stem[:2] for source in sources) or "none"
            raise ValueError(f"covers: expected lab numbers in {root / 'solutions'} ({there}), got {', '.join(labs or [])}")
        for source in asked:
            with Console(stderr=True).status(f"running {source.stem} …"):
                path = draw_cover(source)
            typer.echo(f"wrote {path}")


@app.command(rich_help_panel=GROUP)
def site(
    labs: Annotated[list[str] | None, typer.Argument(help="lab numbers, such as 06; default: all")] = None,
    course: CourseFolder = None,
    out: Annotated[Path | None, typer.Option(help="the folder to write; default: build/site in the repository")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="seconds for the run of a lab; the site goes on without one")] = 3600,
) -> None:
    """Make the course's site from executed solutions (build/executed, or a run now), with the exercises left open.

    A lab that fails or takes too long is left out and named at the end, with exit code 1.
    """
    from worldsize.authoring import headless

    with one_paragraph(headless.NotebookFailed):
        try:
            from worldsize.authoring.site.site_folder import build_site
        except ModuleNotFoundError as missing:
            raise ValueError(f"site: expected the extra `site`, got no {missing.name}. Run pip install -e '.[site]'") from None

        with Console(stderr=True).status("reading the runs …") as status:
            root = course_folder(course)
            out = out or root / "build" / "site"
            paths = build_site(root, out.resolve(), labs or (), lambda stem: status.update(f"site: {stem} …"), timeout)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    typer.echo(f"wrote {out / 'index.html'}: {count(len(paths), 'page')}, {size / 1e6:.0f} MB")


@app.command(rich_help_panel=GROUP)
def release(
    out: Annotated[Path, typer.Argument(help="the zip to write, such as worldsize.zip")],
    course: CourseFolder = None,
) -> None:
    """Write the student bundle: labs, package, data, environment; no solutions and no tests."""
    with one_paragraph():
        need_extra("release", "nbgrader", "instructor")
        need_folder_of(out)
        root = course_folder(course)

    from worldsize.authoring.release import release as write_bundle  # takes seconds: it imports nbgrader

    with one_paragraph(), Console(stderr=True).status("comparing notebooks with their sources …"):
        names = write_bundle(root, out)
    typer.echo(f"wrote {out}: {count(len(names), 'file')}, {out.stat().st_size / 1e6:.1f} MB")
