"""A page of feedback as HTML: one row, with pictures that are given; no script, nothing from elsewhere.

Every word that a student may have chosen (a name, a file's name, what an exception says) is escaped, shown in its own
direction, and without characters that steer a reader's eye or terminal. The page's own policy forbids scripts, should
an escape be missing after all. Left out: drawing the pictures, and files (`feedback`).
"""

from __future__ import annotations

import base64
import hashlib
import html
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.seeds import derived
from worldsize.grade.marking.tamper import sentence
from worldsize.grade.reports.page_style import STYLE

MOST_CHARACTERS = 4000
_MOST_LINES = 100
_KEPT = "\n\t\u200c\u200d"  # the last two join letters in names
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
_RESULTS = {
    "pass": "passed", "fail": "not right yet", "not yet": "not written yet", "missing": "cell missing",
    "timeout": "out of time", "crashed": "process ended",
}  # fmt: skip
_HELD = {True: ("good", "✔ holds"), False: ("bad", "✘ does not hold"), None: ("quiet", "– not reached")}


@dataclass(frozen=True)
class PagePicture:
    """A picture as it goes into a page."""

    png: bytes
    alt: str
    width: int
    height: int


@dataclass(frozen=True)
class MessagePictures:
    """The messages of the first failing case and those expected there; None where there are none to draw."""

    sent: PagePicture | None
    expected: PagePicture | None
    same: bool = False


def escaped(text: str, most: int = MOST_CHARACTERS) -> str:
    """A student's text made safe for the HTML of a feedback page, inside an element or an attribute."""
    cut = text if len(text) <= most else f"{text[:most]} …"
    return html.escape("".join(c if c in _KEPT or unicodedata.category(c)[0] != "C" else "\ufffd" for c in cut))


def named(text: str) -> str:
    """A name as HTML on a page of feedback: a student's or a file's, which may run from right to left."""
    return f"<bdi>{escaped(text, 200)}</bdi>"


def page(row: GradeRow, titles: Mapping[str, str], pairs: Mapping[str, MessagePictures], seed_too: bool = False) -> str:
    """One of the feedback pages in HTML, whole: points, what to do next, exercises with pictures, how to appeal.

    `titles` and `pairs` are by exercise, "" is the lab's own title; `seed_too` says the seed, with which anybody can
    replay.
    """
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    lab = titles.get("") or row.lab or "A file that was handed in"
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escaped(lab)}: feedback for {escaped(row.student, 200)}</title>",
        f"<style>{STYLE}</style>", "</head>", "<body>",
        '<a class="skip" href="#exercises">Skip to the exercises</a>' if row.exercises else "",
        *_head(row, lab), "<main>", *_next(row, titles), *_exercises(row, titles, pairs), *_changed(row),
        *_appeal(row, seed_too), "</main>",
        "<footer><p>Written by the course’s grader. This page holds no script and asks nothing of the network.</p></footer>",
        "</body>", "</html>", "",
    ])  # fmt: skip


def _head(row: GradeRow, lab: str) -> Iterator[str]:
    yield f'<header><p class="quiet">World Size: feedback for {named(row.student)}</p><h1>{escaped(lab)}</h1>'
    if row.exercises:
        yield f'<p class="score"><strong>{row.points:g}</strong> of {row.possible:g} points</p>'
        told = f"{row.points:g} of {row.possible:g} points"
        yield f'<meter aria-label="{told}" min="0" max="{row.possible:g}" value="{row.points:g}">{told}</meter>'
    for note in notes(row):
        yield f'<p class="note">{escaped(note)}</p>'
    yield "</header>"


def _next(row: GradeRow, titles: Mapping[str, str]) -> Iterator[str]:
    yield "<h2>What to do next</h2><ul>"
    for line in steps(row, titles):
        yield f"<li>{escaped(line)}</li>"
    yield "</ul>"


def _exercises(row: GradeRow, titles: Mapping[str, str], pairs: Mapping[str, MessagePictures]) -> Iterator[str]:
    if not row.exercises:
        return
    yield '<h2 id="exercises">Exercises</h2><table><caption>Points by exercise</caption><thead><tr>'
    yield '<th scope="col">Exercise</th><th scope="col">Result</th><th scope="col" class="number">Points</th></tr></thead>'
    yield "<tbody>"
    for e in row.exercises:
        link = f'<a href="#e-{escaped(e.id)}">{escaped(titles.get(e.id, e.title))}</a>'
        points = f'<td class="number">{e.points:g} of {e.possible:g}</td>'
        yield f'<tr><th scope="row">{link}</th><td>{_result(e)}</td>{points}</tr>'
    yield "</tbody></table>"
    for e in row.exercises:
        yield from _exercise(e, titles.get(e.id, e.title), pairs.get(e.id))


def _result(e: ExerciseRow) -> str:
    mark = "✔" if e.state == "pass" else "○" if e.state == "not yet" else "✘"
    kind = "good" if e.state == "pass" else "quiet" if e.state == "not yet" else "bad"
    return f'<span class="{kind}">{mark} {escaped(_RESULTS.get(e.state, e.state))}</span>'


def _exercise(e: ExerciseRow, title: str, pair: MessagePictures | None) -> Iterator[str]:
    id = f"e-{escaped(e.id)}"
    yield f'<section class="exercise" aria-labelledby="{id}"><h3 id="{id}" tabindex="-1">{escaped(title)}</h3>'
    yield f"<p>{_result(e)}, {e.points:g} of {e.possible:g} points (<code>{escaped(e.id)}</code>)</p>"
    if e.properties and e.state not in ("not yet", "missing"):
        yield "<table><caption>What was checked</caption>"
        yield '<thead><tr><th scope="col">Property</th><th scope="col">Found</th>'
        yield '<th scope="col" class="number">Points</th></tr></thead><tbody>'
        for p in e.properties:
            kind, found = _HELD[p.passed]
            yield f'<tr><th scope="row">{escaped(p.name)}</th><td class="{kind}">{found}</td>'
            yield f'<td class="number">{p.points:g}</td></tr>'
        yield "</tbody></table>"
    if e.mismatch and e.state not in ("pass", "not yet"):
        yield f'<h4>The first thing that was not as expected</h4><pre dir="auto">{escaped(e.mismatch)}</pre>'
    elif e.helped and e.mismatch:
        yield f'<h4>How it was checked</h4><pre dir="auto">{escaped(e.mismatch)}</pre>'
    if pair is not None and (pair.sent or pair.expected):
        yield "<h4>The messages of that case</h4>"
        yield '<p class="quiet">The same ranks and the same numbers in both. What a rank sends comes a step after what it '
        yield "had received by then; seconds do not count.</p>"
        if pair.same:
            yield "<p>Your ranks sent what was expected, to whom it was expected: the difference is in the values.</p>"
        yield '<div class="pair">'
        yield _figure("Your messages", pair.sent, "Your ranks sent no message in this case.")
        if pair.expected:
            yield _figure("Messages as expected", pair.expected, "")
        yield "</div>"
    yield "</section>"


def _figure(caption: str, drawn: PagePicture | None, instead: str) -> str:
    if drawn is None:
        return f"<figure><figcaption>{caption}</figcaption><p>{instead}</p></figure>"
    data = base64.b64encode(drawn.png).decode()
    size = f'width="{drawn.width}" height="{drawn.height}"'
    image = f'<img alt="{caption}: {escaped(drawn.alt)}" {size} src="data:image/png;base64,{data}">'
    return f"<figure><figcaption>{caption}</figcaption>{image}</figure>"


def _changed(row: GradeRow) -> Iterator[str]:
    if not row.tamper and not row.handed_in:
        return
    yield "<h2>What was changed in your notebook</h2>"
    yield "<p>Only the exercise cells are yours. What else had changed was put back from the course’s own notebook, "
    yield "and costs nothing by itself; your notebook may have shown other results than the grader found.</p><ul>"
    for line in [*map(sentence, row.tamper[:_MOST_LINES]), *([row.handed_in] if row.handed_in else [])]:
        yield f"<li><bdi>{escaped(line, 500)}</bdi></li>"
    yield "</ul>"


def _appeal(row: GradeRow, seed_too: bool) -> Iterator[str]:
    yield '<h2>If you think that this is wrong</h2><p>Write to your instructor and give the appeal number <code>'
    yield f"{appeal_number(row)}</code>. Everything that the checks drew at random follows from it, so the instructor "
    yield "can replay this grading with the file that you handed in and gets the same points.</p>"
    digest = f", SHA-256 <code>{escaped(row.digest)}</code>" if row.digest else ""
    path = "/".join(map(named, row.path[:400].split("/")))  # each part in its own direction, the path from left to right
    yield f'<p>Your file: <code><bdi dir="ltr">{path}</bdi></code>{digest}.</p>'
    if seed_too and row.exercises:
        yield f"<p>To replay it yourself, put that file as <code>again/me/{escaped(row.lab)}.ipynb</code> beside the course’s "
        yield f"folder <code>labs</code> and run <code>worldsize grade again --out replayed --seed {row.seed}</code>.</p>"


# ---- what to know and to do -------------------------------------------------------------------


def notes(row: GradeRow) -> Iterator[str]:
    """At the head of a feedback page: why there are no points, or fewer than there might be."""
    if not row.exercises:
        yield f"This could not be graded: {row.reason or 'the file could not be read'}."
    elif row.state in _NOTES:
        yield _NOTES[row.state]
    if row.unsafe:
        yield "This was graded without a sandbox: your instructor looks at the points before they count."


def steps(row: GradeRow, titles: Mapping[str, str]) -> Iterator[str]:
    """On a feedback page, what to do next: one line for each kind of thing, what is furthest along first."""
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


def appeal_number(row: GradeRow) -> str:
    """The appeal number on a feedback page: it follows from the grading's seed, the lab and the file, and not back.

    It does not lead back to the seed.
    """
    digits = f"{derived(row.seed, row.lab, row.digest):016x}"
    return "-".join(digits[k : k + 4] for k in range(0, 16, 4))
