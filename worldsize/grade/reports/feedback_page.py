"""A row's feedback page as HTML, with the pictures passed in; it has no script and loads nothing.

Text that a student may have chosen (a name, a file's name, an exception's message) is escaped, shown in its own direction,
and stripped of characters that mislead a reader or a terminal: `pages` does that, and has the template.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from worldsize import pages
from worldsize.cells import taken_out_sentence
from worldsize.grade.marking.by_hand import ByHand
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.seeds import derived
from worldsize.grade.marking.tamper import SETUP_KINDS, sentence
from worldsize.units import number

_MOST_LINES = 100
NO_COMMENTS: Mapping[str, str] = MappingProxyType({})
_STEPS = {
    "fail": "{titles}: read the first thing that was not as expected, fix the cell, restart the kernel, and run its check in "
    "the notebook. That check tests the same properties, with new numbers each time.",
    "set-up": "{titles}: restore the set-up cells as the course gave them, restart the kernel, and run the checks: they then "
    "test what the grader tested.",
    "timeout": "{titles}: the run did not end in time. Does every send have a matching receive, and does every loop end?",
    "crashed": "{titles}: the process ended before the function did. Look for exit calls, and for lists or tensors that "
    "grow without limit.",
    "missing": "{titles}: the notebook that you handed in lacks the cell. Copy it from the course's notebook, write "
    "your answer in it, and keep its first line.",
    "not yet": "{titles}: not written yet. Replace the line that raises NotYet with your answer.",
}
_NOTES = {
    "timeout": "At least one exercise did not end in time. The others were graded without it.",
    "crashed": "At least one exercise ended its process. The others were graded without it.",
    "tampered": "Parts of the notebook that you must not change were changed. The list is below.",
}


@dataclass(frozen=True)
class PagePicture:
    """A picture for a feedback page, sizes in pixels."""

    png: bytes
    alt: str
    width: int
    height: int

    @property
    def base64(self) -> str:
        return base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class MessagePictures:
    """A page's pictures: the messages of the first failing case, and the expected ones; None if there are none to draw."""

    sent: PagePicture | None
    expected: PagePicture | None
    same: bool = False


def page(
    row: GradeRow, titles: Mapping[str, str], pairs: Mapping[str, MessagePictures], seed_too: bool = False,
    by_hand: ByHand | None = None, comments: Mapping[str, str] = NO_COMMENTS,
) -> str:  # fmt: skip
    """Return the whole page: points, next steps, exercises with pictures, and the appeal number.

    `titles`, `pairs` and a person's `comments` have exercises as keys; title "" is the lab's. `seed_too` shows the seed, with
    which anybody can replay. `by_hand` are points that a person gave.
    """
    changed = [*map(sentence, row.tamper[:_MOST_LINES]), *filter(None, [row.handed_in])]
    return pages.render(
        "feedback.html",
        row=row,
        lab=titles.get("") or row.lab or "A file that was handed in",
        titles=titles,
        pairs=pairs,
        comments=comments,
        notes=notes(row, by_hand),
        steps=steps(row, titles),
        changed=changed,
        appeal=appeal_number(row),
        seed_too=seed_too,
        without=taken_out_sentence,
    )


def notes(row: GradeRow, by_hand: ByHand | None = None) -> Iterator[str]:
    """Yield the notes at the page's head: points given by hand, missing points, lateness, and no sandbox."""
    if by_hand:
        given = f"Your instructor gave {number(by_hand.points)} points for this lab"
        yield f"{given}: they count, not the sum below. Reason: {by_hand.reason}"
    if not row.exercises:
        yield f"This could not be graded: {row.reason or 'the file could not be read'}."
    elif row.state in _NOTES:
        yield _NOTES[row.state]

    if row.late:
        yield f"It was handed in late ({row.late}). The points here are for the work alone: nothing is deducted for lateness."
    if row.unsafe:
        yield "This was graded without a sandbox: your instructor checks the points before they count."


def steps(row: GradeRow, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield a page's next steps: a line for each kind of problem, the closest to passing first."""
    if row.state == "lost":
        yield "Nothing: the grader failed, not your notebook. Your instructor will grade it again."
        return
    if not row.exercises:
        if row.state == "crashed":
            yield "Look for lists or tensors that grow without limit, fix the cell, and hand in again."
        else:
            yield "Open your notebook in Jupyter, check that it is complete, save it, and hand in the .ipynb file itself."
            yield "If it opens and runs there, write to your instructor."
        return

    by_step: dict[str, list[str]] = {}
    setup_changed = any(one.kind in SETUP_KINDS for one in row.tamper)
    for e in row.exercises:
        step = e.state
        # if the check may pass in the notebook, running it there is no help
        if e.advice and (e.elsewhere or e.state == "fail"):
            step = "elsewhere"
        elif e.state == "fail" and setup_changed:
            step = "set-up"
        by_step.setdefault(step, []).append(titles.get(e.id, e.title))

    for step, told in _STEPS.items():
        if step in by_step:
            yield told.format(titles="; ".join(by_step[step]))
    for e in row.exercises:
        if e.advice:
            yield f"{titles.get(e.id, e.title)}: {' '.join(e.advice)}"
    if set(by_step) == {"pass"}:
        yield "Every exercise passed. There is nothing left to do in this lab."


def appeal_number(row: GradeRow) -> str:
    """Return the page's appeal number, derived from seed, lab and file; the seed cannot be derived from it."""
    digits = f"{derived(row.seed, row.lab, row.digest):016x}"
    return "-".join(digits[k : k + 4] for k in range(0, 16, 4))
