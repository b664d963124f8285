"""Shared parts of the commands: the application, error messages, and a progress bar.

A user's mistake prints one paragraph without a traceback, and ends with exit code 1.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

import worldsize

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

CourseFolder = Annotated[Path | None, typer.Option(help="the folder with the course's labs/ and solutions/; default: detected")]

app = typer.Typer(
    help="World Size: a hands-on course on distributed training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a bug shows Python's own traceback
)


@contextmanager
def one_paragraph(*more: type[Exception]) -> Iterator[None]:
    """Print a command's ValueError, OSError and `more` as one paragraph and exit with code 1. Bugs keep their traceback."""
    expected: tuple[type[Exception], ...] = (ValueError, OSError, *more)
    try:
        yield
    except expected as error:
        Console(stderr=True, highlight=False, markup=False).print(_words(error), style="red", soft_wrap=True)
        raise typer.Exit(1) from None


def _words(error: Exception) -> str:
    """Return a command's error message. An OSError with a file becomes: file, expected, got, and next step where known."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)

    place = os.fsdecode(error.filename)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{place}: expected room for this file, got a full disk or quota ({error.strerror}). Free some space, then run this "
            "again: files already written stay."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"{place}: expected a place that you may read and write, got: {error.strerror}. Name another, or change its "
            "permissions."
        )
    return f"{place}: {error.strerror}"


@contextmanager
def bar(*columns: ProgressColumn) -> Iterator[Callable[..., None]]:
    """Yield `step(done, of, words)` for a command's progress bar. The bar appears with the first step; an error removes it."""
    from rich.progress import Progress

    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task("", total=None)

    def step(done: int, of: int, words: str = "") -> None:
        progress.start()
        progress.update(task, completed=done, total=of, description=words)

    try:
        yield step
    except BaseException:
        progress.live.transient = True  # erases the bar when it stops
        progress.live.stop()
        raise
    progress.stop()


def course_folder(named: Path | None) -> Path:
    """Return the course's folder for a command: `named` by --course, or else found. Raises ValueError."""
    from worldsize.grade.course import default_root

    return (named or default_root()).resolve()


def need_folder_of(out: Path) -> None:
    """Check, before a command's work, that the folder of the file `out` exists. Raises ValueError."""
    folder = out.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{out}: expected a file in an existing folder, got no folder {folder}. Create it, or name another.")


def need_extra(command: str, package: str, extra: str) -> None:
    """Check, before a command's work, that the `package` of an extra is installed. Raises ValueError."""
    if find_spec(package) is None:
        install = f"pip install -c constraints.txt -e '.[{extra}]'"
        raise ValueError(f"{command}: expected the package {package}, got none. Install it in the course's folder: {install}")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"worldsize {worldsize.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")] = False,
) -> None:
    pass
