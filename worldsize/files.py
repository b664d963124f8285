"""Files written whole or not at all, even if the process is killed at any moment.

The text goes to a temporary file beside the target, which rename(2) then replaces in one step. Locks between writers of the
same file are left to the callers.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

REMOVALS = 20  # attempts at removing a folder in which a rank may still make files
PRIVATE = 0o600  # only the owner may read the file: it tells how a student was graded


def write_whole(path: Path, data: str | bytes, mode: int | None = None, durable: bool = False) -> None:
    """Replace `path`'s content by `data` (text as UTF-8), or leave it as it was; missing folders are made.

    `mode` has the permission bits; without it they are a new file's usual bits. A `durable` file also survives a crash of the
    machine, and takes a wait for the disk. Raises OSError, which names `path`.
    """
    content = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _part(path, content, mode, durable) as part:
            os.replace(part, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


@contextmanager
def _part(path: Path, content: bytes, mode: int | None, durable: bool) -> Iterator[Path]:
    """Write a temporary file beside `path`, and remove it at the end unless it was moved."""
    part = path.with_name(f"{_prefix_of(path)}{secrets.token_hex(8)}.part")
    try:
        # as open() does it, so that the umask counts; given bits are never exceeded
        first_mode = 0o666 if mode is None else mode & PRIVATE
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, first_mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if mode is not None:
                os.chmod(part, mode)
            if durable:
                os.fsync(handle)

        yield part
    finally:
        part.unlink(missing_ok=True)


def remove_whole(folder: Path) -> None:
    """Remove a folder in which another process may make a file meanwhile, and raise nothing.

    A file made between the listing and the removal keeps the folder alive, so the removal is repeated.
    """
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def make_whole(path: Path, data: str, mode: int) -> bool:
    """Write `path` as `write_whole` does, only if it does not exist; return True if it was made here. One of several callers
    wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _part(path, data.encode(), mode, durable=True) as part:
            os.link(part, path)
    except FileExistsError:
        return False
    return True


def _prefix_of(path: Path) -> str:
    return f".{hashlib.blake2b(path.name.encode(errors='surrogateescape'), digest_size=8).hexdigest()}."


def remove_parts_of(path: Path, parts: Iterable[str]) -> None:
    """Remove, of the `parts` in `path`'s folder, those that killed writers left; the caller must know that no one writes now."""
    for name in parts:
        if name.startswith(_prefix_of(path)):
            path.with_name(name).unlink(missing_ok=True)
