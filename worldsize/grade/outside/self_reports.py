"""Reports of a submission's process about itself, taken as text for a person and nothing more.

`grade.frames` checks the form of values, and `checks` judges them.
"""

import time
from dataclasses import replace
from typing import Any

from worldsize.failures import Failure, Frame, is_library
from worldsize.units import text_of

_MOST_STACK_FRAMES = 12
_MOST_CHANGED = 5


def changed_of(frame: dict) -> set[str]:
    """Return the names of package objects that a rank reports as changed in its process."""
    told = frame.get("changed")
    if not isinstance(told, list):
        return set()
    return {text_of(name, 120) for name in told[:_MOST_CHANGED]} - {""}


def failure_of(rank: int, frame: dict) -> Failure:
    """Return a rank's report of its own failure, taken as text for a person and nothing more."""
    rows = frame.get("frames")
    if not isinstance(rows, list):
        rows = []

    code = frame.get("code")
    return Failure(
        rank=rank,
        kind="exit" if frame.get("kind") == "exit" else "raised",
        at_s=time.monotonic(),
        type=text_of(frame.get("type"), 100),
        message=text_of(frame.get("message")),
        frames=tuple(filter(None, map(_stack_frame, rows[:_MOST_STACK_FRAMES]))),
        code=code if type(code) is int else 1,
        not_yet=frame.get("not_yet") is True,
        cause=text_of(frame.get("cause"), 300),
    )


def _stack_frame(row: Any) -> Frame | None:
    """Return one line of a rank's traceback as reported, None if it is malformed.

    A file that is neither a library's nor a cell gets angle brackets, a cell's form, so that the grader reads no file
    because a rank names it.
    """
    if not isinstance(row, list) or len(row) != 4:
        return None

    file, line, function, text = row
    if type(line) is not int:
        return None
    frame = Frame(file=text_of(file, 200), line=line, function=text_of(function, 100), text=text_of(text, 300))
    if is_library(frame) or (frame.file.startswith("<") and frame.file.endswith(">")):
        return frame
    return replace(frame, file=f"<{frame.file}>")
