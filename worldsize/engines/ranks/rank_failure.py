"""An exception that ended a rank's function, as a `Failure`: made by the rank, in the notebook's engine and in a sandbox.

`failures` puts it into words.
"""

import re
import time
import traceback

from worldsize.errors import NotYet
from worldsize.failures import Failure, Frame, is_librarys_file, is_package

_MAX_ROWS = 10
_LAST_ROWS = 4  # of these
_MAX_CHARS = 300
_FRAME = re.compile(r'\s+File "(.+)", line \d+, in ')


def failure_of(rank: int, error: BaseException) -> Failure:
    """Return the failure of a rank whose function raised `error`, or left with a SystemExit."""
    at_s = time.monotonic()
    frames = frames_of(error)
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return Failure(rank=rank, kind="exit", at_s=at_s, code=code, frames=frames)

    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__

    return Failure(
        rank=rank,
        kind="raised",
        at_s=at_s,
        type=type(error).__name__,
        message=message_of(error),
        frames=frames,
        not_yet=isinstance(error, NotYet),
        cause=f"{type(cause).__name__}: {message_of(cause)}" if cause else "",
    )


def message_of(error: BaseException) -> str:
    """Return a failed rank's message with its notes, without torch's C++ stack, at most ten lines: the first and the last."""
    try:
        text = str(error).split("\nException raised from")[0]
    except Exception as broken:
        text = f"(its message raised {type(broken).__name__})"

    notes = getattr(error, "__notes__", None)  # a student's class may keep anything under this name
    if isinstance(notes, list):
        for note in notes:
            if isinstance(note, str):
                text += f"\n{note}"

    rows = [row for row in text.splitlines() if not _is_library_row(row)]
    if len(rows) > _MAX_ROWS:  # some libraries put the cause first, TensorFlow puts it last
        rows = list(dict.fromkeys(row for row in rows if row.strip()))  # TensorFlow says some twice
    if len(rows) > _MAX_ROWS:
        rows = [*rows[: _MAX_ROWS - _LAST_ROWS], "…", *rows[-_LAST_ROWS:]]
    return "\n".join(row[:_MAX_CHARS] for row in rows)


def _is_library_row(row: str) -> bool:
    """Return whether a row of a message is a frame of a library, as in the tracebacks that TensorFlow's messages contain."""
    found = _FRAME.match(row)
    return found is not None and (found[1].startswith("<") or is_librarys_file(found[1]))


def frames_of(error: BaseException) -> tuple[Frame, ...]:
    """Return the frames of a failure from the launched function on, without this package's frames before it."""
    found = [Frame(e.filename, e.lineno or 0, e.name, e.line or "") for e in traceback.extract_tb(error.__traceback__)]
    own = next((place for place, frame in enumerate(found) if not is_package(frame)), 0)
    return tuple(found[own:])
