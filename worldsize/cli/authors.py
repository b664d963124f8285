"""`worldsize build`, `release`: the commands of who writes the course."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from worldsize.cli.common import app, need_folder_of, one_paragraph

GROUP = "Authors"
Repository = Annotated[Path, typer.Option(help="the repository")]


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
        typer.echo("every notebook is as its source says")
    if check and paths:
        raise typer.Exit(1)


@app.command(rich_help_panel=GROUP)
def release(
    out: Annotated[Path, typer.Argument(help="the zip to write, such as worldsize.zip")],
    root: Repository = Path("."),
) -> None:
    """Write the student bundle: labs, package, data, environment; no solutions and no tests."""
    with one_paragraph():
        need_folder_of(out)

    from worldsize.authoring.release import release as write_bundle  # imports nbgrader: seconds

    with one_paragraph(), Console(stderr=True).status("comparing notebooks with their sources …"):
        names = write_bundle(root, out)
    typer.echo(f"wrote {out}: {len(names)} files, {out.stat().st_size / 1e6:.1f} MB")
