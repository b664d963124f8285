"""The sample table and page of feedback in docs/grading.md, of students who do not exist.

    python -m tests.support.sample_grades     # writes the table, and the page's picture in docs/pictures/; needs Chromium

A picture of the page has the digest of the page's text in it, so that a test can say whether it is still what a page is.
"""

import hashlib
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.support.gradebook import LABS, RING, row
from worldsize.grade.course import titles_of
from worldsize.grade.marking.rows import ExerciseRow, GradeRow, PropertyRow
from worldsize.grade.reports.feedback import drawn
from worldsize.grade.reports.feedback_page import MessagePictures, page
from worldsize.grade.reports.table import summary, table
from worldsize.trace import Trace, Transfer

DOCS = Path(__file__).resolve().parents[2] / "docs"
GRADING = DOCS / "grading.md"
PICTURES = DOCS / "pictures"
PAGE = PICTURES / "feedback.png"
MISSED = "ring_all_reduce"  # the exercise that some students have wrong
_WIDTH, _HEIGHT = 900, 1500
_SENT = ((1, 0, 24, 0.0, 0.1), (2, 0, 24, 0.1, 0.2), (0, 1, 24, 0.2, 0.3), (0, 2, 24, 0.3, 0.4))
HUB = Trace(3, tuple(Transfer(*one) for one in _SENT))
RING_OF_3 = Trace(3, tuple(Transfer(r, (r + 1) % 3, 8, k / 10, (k + 1) / 10) for k in range(4) for r in range(3)))


def rows() -> list[GradeRow]:
    """What 60 people handed in of lab 06, in a few words."""
    made = [row(f"Student {k}_{4700 + k}", points=9, path=f"s{k}/{RING}.ipynb") for k in range(38)]
    made += [_wrong(f"Student {k}_{4700 + k}") for k in range(38, 52)]
    made += [row(f"Student {k}_{4700 + k}", 0.0, state="timeout", path=f"s{k}/{RING}.ipynb") for k in range(52, 56)]
    made += [row(f"Student {k}_{4700 + k}", state="ungradable", path=f"s{k}") for k in range(56, 58)]
    return [replace(one, points=0.0) if one.state == "ungradable" else one for one in made]


def _wrong(student: str) -> GradeRow:
    """All exercises but one are right, in which ranks send to rank 0."""
    made = row(student, points=9)
    [missed] = [one for one in made.exercises if one.id == MISSED]
    properties = (PropertyRow("every rank has the sum", 0.5, True), PropertyRow("2(n − 1) messages a rank", 1.0, False))
    words = "3 ranks: rank 1 sent 1 message, expected 4: are the sums passed on round the ring?"
    failed = ExerciseRow(MISSED, missed.title, "fail", 0.5, missed.possible, properties, words, ranks=3, run=1)
    exercises = tuple(failed if one is missed else one for one in made.exercises)
    return replace(made, exercises=exercises, points=sum(e.points for e in exercises), late="3 hours late")


def sample_table() -> str:
    return f"{table(rows())}\n\n{summary(rows())}"


def with_sample_table(text: str) -> str:
    """Return the text of docs/grading.md with the sample table in its place, which begins with the table's head."""
    start = text.index("rows  lab ")
    return text[:start] + sample_table() + text[text.index("\n```", start) :]


def sample_page() -> str:
    made = _wrong("Grace Doe_4738")
    pictures = {MISSED: MessagePictures(drawn(HUB), drawn(RING_OF_3))}
    return page(made, titles_of(LABS[RING]), pictures)


def digest(html: str) -> str:
    """Of what a page says and looks like, but for its pictures, which depend on fonts."""
    return hashlib.sha256(re.sub(r"data:image/png;base64,[^\"]+", "", html).encode()).hexdigest()[:16]


def kept_digest() -> str:
    with Image.open(PAGE) as picture:
        return picture.text.get("page", "")  # type: ignore[attr-defined]  # a PNG has it


def is_stale() -> bool:
    return kept_digest() != digest(sample_page())


def write_table() -> None:
    GRADING.write_text(with_sample_table(GRADING.read_text(encoding="utf-8")), encoding="utf-8")


def take_picture() -> None:
    from playwright.sync_api import sync_playwright

    html = sample_page()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(html)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        shown.goto(path.as_uri())
        shown.screenshot(path=f"{folder}/page.png", full_page=True)
        browser.close()

        about = PngInfo()
        about.add_text("page", digest(html))
        PICTURES.mkdir(exist_ok=True)
        with Image.open(f"{folder}/page.png") as picture:
            picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(PAGE, pnginfo=about, optimize=True)
    sys.stdout.write(f"wrote {PAGE}\n")


if __name__ == "__main__":
    write_table()
    take_picture()
