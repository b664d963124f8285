"""A file is written whole or not at all, also by a process that is killed at any moment.

The text goes to a file of another name beside it, which then takes its place: rename(2) does that in one step. Left out:
the locks of those who write the same file in turn.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

REMOVALS = 20  # of a folder; a rank makes a file only where its place is news
PRIVATE = 0o600  # nobody but the owner reads it: what says how somebody was graded


def write_whole(path: Path, data: str | bytes, mode: int | None = None, durable: bool = False) -> None:
    """`path` holds `data`, text as UTF-8, or what it held before; its folder is made where there is none.

    `mode` are its permission bits; without it they are those of any new file. A `durable` one outlives the machine's own
    end too, for which the disk has to be waited for. Raises OSError, which names `path`.
    """
    content = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{_part_of(path)}{secrets.token_hex(8)}.part")
    try:
        _write(part, content, mode, durable)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _write(part: Path, content: bytes, mode: int | None, durable: bool) -> None:
    # as open() does it, so that the umask counts; where bits are given, no more than those at any moment
    first_mode = 0o666 if mode is None else mode & PRIVATE
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, first_mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        if mode is not None:
            os.chmod(part, mode)
        if durable:
            os.fsync(handle)


def remove_whole(folder: Path) -> None:
    """Remove a folder in which a process may make one more file meanwhile, and raise nothing.

    A file that is made between the listing and the removal leaves the folder standing: it is removed again then.
    """
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def make_whole(path: Path, data: str, mode: int) -> bool:
    """As `write_whole`, but only where there is no `path` yet: whether it was made here. Of several who try, one does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{_part_of(path)}{secrets.token_hex(8)}.part")
    try:
        _write(part, data.encode(), mode, durable=True)
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def _part_of(path: Path) -> str:
    return f".{hashlib.blake2b(path.name.encode(errors='surrogateescape'), digest_size=8).hexdigest()}."


def remove_parts_of(path: Path, parts: Iterable[str]) -> None:
    """Of the `parts` in its folder what killed writers of `path` left; for one who knows that nobody else writes it now."""
    for name in parts:
        if name.startswith(_part_of(path)):
            path.with_name(name).unlink(missing_ok=True)
