"""What a student should know and do about a row, in plain words. Left out: HTML (`page`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from worldsize.grade.marking import derived
from worldsize.grade.row import Row

_STEPS = {
    "fail": "{titles}: read the first thing that was not as expected, mend the cell, and run its check in the notebook. "
    "The check there tests the same properties, on fresh numbers each time.",
    "timeout": "{titles}: it did not end in time. Does every send have its receive, and does every loop come to an end?",
    "crashed": "{titles}: its process ended before the function did. Look for exit calls, and for lists or tensors that "
    "grow without end.",
    "missing": "{titles}: the cell is not in the notebook that you handed in. Take it from the course's notebook, write "
    "your answer in it, and keep its first line.",
    "not yet": "{titles}: not written yet. Put your answer in the place of the line that raises NotYet.",
}
_NOTES = {
    "timeout": "At least one exercise did not end in time. The others were graded without it.",
    "crashed": "At least one exercise ended its process. The others were graded without it.",
    "tampered": "Parts of the notebook that are not yours to change had changed. The list is below.",
}


def notes(row: Row) -> Iterator[str]:
    """What stands above everything else: why there are no points, or fewer than there might be."""
    if not row.exercises:
        yield f"This could not be graded: {row.words or 'the file could not be read'}."
    elif row.state in _NOTES:
        yield _NOTES[row.state]
    if row.unsafe:
        yield "This was graded without a sandbox: your instructor looks at the points before they count."


def steps(row: Row, titles: Mapping[str, str]) -> Iterator[str]:
    """One line for each kind of thing there is to do, what is furthest along first."""
    if row.state == "crashed" and not row.exercises:
        yield "Nothing: the grader failed, not your notebook. Your instructor grades it again."
        return
    if not row.exercises:
        yield "Open your notebook in Jupyter, see that it is whole, save it, and hand in the .ipynb file itself."
        yield "If it opens and runs there, write to your instructor."
        return
    by_state: dict[str, list[str]] = {}
    for e in row.exercises:
        by_state.setdefault(e.state, []).append(titles.get(e.id, e.title))
    for state, told in _STEPS.items():
        if state in by_state:
            yield told.format(titles="; ".join(by_state[state]))
    if set(by_state) == {"pass"}:
        yield "Every exercise passed. There is nothing left to do in this lab."


def appeal_number(row: Row) -> str:
    """It follows from the grading's seed, the lab and the file, and does not lead back to the seed."""
    digits = f"{derived(row.seed, row.lab, row.digest):016x}"
    return "-".join(digits[k : k + 4] for k in range(0, 16, 4))
