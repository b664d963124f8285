"""nbgrader's gradebook, opened for writing in one transaction after a backup: everything is written, or nothing.

nbgrader's API commits in every call; here each commit only ends a savepoint. If the writer is killed, SQLite rolls the
transaction back.
"""

import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

WAIT_S = 5.0


@contextmanager
def writing(path: Path) -> Iterator[Any]:
    """Yield the `nbgrader.api.Gradebook` at `path`, made if missing; roll everything back if the body raises.

    Raises ValueError if the gradebook cannot be written to now.
    """
    from nbgrader.api import Gradebook

    if not path.exists():
        _make(path)

    # otherwise Python's sqlite3 begins transactions itself, after the first savepoint
    options = {"isolation_level": "AUTOCOMMIT"}
    try:
        with Gradebook(_url(path)) as book, book.engine.connect().execution_options(**options) as connection:
            transaction = connection.begin()
            try:
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {WAIT_S * 1000:.0f}")
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # takes the write lock now, not at the first write
                book.db.remove()
                book.db.configure(bind=connection, join_transaction_mode="create_savepoint", expire_on_commit=False)
                yield book
                book.db.commit()
                book.db.remove()
                transaction.commit()
            except BaseException:
                book.db.remove()
                transaction.rollback()
                raise
    except Exception as error:
        cause = getattr(error, "orig", error)  # SQLAlchemy wraps SQLite's errors
        if isinstance(cause, sqlite3.Error):
            raise ValueError(explained(path, cause)) from None
        raise


def _url(path: Path) -> str:
    if "?" in str(path):
        raise ValueError(f"{path}: expected a gradebook path without a question mark. Rename its folder.")
    return f"sqlite:///{path.resolve()}"


def _make(path: Path) -> None:
    """Make an empty gradebook in a temporary folder, then move it into place, so that a kill leaves no half-made one."""
    from nbgrader.api import Gradebook

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".gradebook-") as folder:
        # nbgrader runs alembic, a program of this Python, for the version of its tables
        before = os.environ.get("PATH", os.defpath)
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
        try:
            Gradebook(_url(Path(folder) / path.name)).close()
        finally:
            os.environ["PATH"] = before
        os.rename(Path(folder) / path.name, path)


def explained(path: Path, error: sqlite3.Error) -> str:
    """Return a paragraph that says what to do about an SQLite error of the gradebook."""
    if "locked" in str(error) or "busy" in str(error):
        return (
            f"{path}: expected a gradebook that no other program is writing, but it was locked for {WAIT_S:g} s; nothing was "
            "written and nothing is lost. Close the other program (nbgrader, formgrader, an open database viewer), then run "
            "this again."
        )

    if "full" in str(error):
        return (
            f"{path}: expected room for the gradebook, but SQLite said: {error}. Nothing was written and nothing is lost. Free "
            "some space, then run this again."
        )

    return (
        f"{path}: expected nbgrader's gradebook, but SQLite said: {error}. Nothing was written. Name another file or, if another "
        "nbgrader made this one, run `nbgrader db upgrade` first."
    )


def backup(path: Path) -> Path:
    """Copy the gradebook to a dated file beside it, and check the copy. Raises ValueError if it cannot be read whole."""
    moment = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    copy = path.with_name(f"{path.name}.{moment}.backup")
    number = 2
    while copy.exists():  # a second one in the same second gets a number
        copy = path.with_name(f"{path.name}.{moment}-{number}.backup")
        number += 1
    part = copy.with_name(f".{copy.name}.part")

    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=WAIT_S)) as source:
            with closing(sqlite3.connect(part)) as target:
                source.backup(target)  # includes what is still in the write-ahead log
                found = target.execute("PRAGMA quick_check").fetchone()[0]
                target.execute("SELECT 1 FROM submitted_assignment LIMIT 1")
        if found != "ok":
            raise sqlite3.DatabaseError(found)

        part.rename(copy)
    except sqlite3.Error as error:
        raise ValueError(explained(path, error)) from None
    finally:
        part.unlink(missing_ok=True)
    return copy
