"""A file is written whole or not at all, also by a process that is killed at any moment.

The text goes to a file of another name beside it, which then takes its place: rename(2) does that in one step. Left out:
the locks of those who write the same file in turn.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE = 0o600  # nobody but the owner reads it: what says how somebody was graded


def write_whole(path: Path, data: str | bytes, mode: int | None = None, durable: bool = False) -> None:
    """`path` holds `data`, text as UTF-8, or what it held before; its folder is made where there is none.

    `mode` are its permission bits; without it they are those of any new file. A `durable` one outlives the machine's own
    end too, for which the disk has to be waited for. Raises OSError.
    """
    content = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}.part")

    # as open() does it, so that the umask counts; where bits are given, no more than those at any moment
    first_mode = 0o666 if mode is None else mode & PRIVATE
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, first_mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if mode is not None:
                os.chmod(part, mode)
            if durable:
                os.fsync(handle)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def remove_parts(folder: Path) -> None:
    """What killed writers have left in a folder; for one who knows that nobody writes there now."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)
