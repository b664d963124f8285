"""The folder of slides: a page and a PDF for each lab, and an index. Needs the extra `site`, and Chromium for the PDFs.

Executed notebooks come from `build/executed/`, as for the site; a lab without one is run first. Nothing is fetched.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat

from worldsize import pages
from worldsize.authoring.build import notebooks
from worldsize.authoring.executed_solutions import all_executed
from worldsize.authoring.slides.deck import deck
from worldsize.lab.lab_list import LABS

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PDF_TIMEOUT_S = 300  # ends a browser that hangs


def build_slides(root: Path, out: Path, numbers: Iterable[str] = (), progress: Callable[[str], None] | None = None) -> list[Path]:
    """Write the slides of the labs of the repository `root` to the folder `out`; `numbers` selects labs, else all.

    Returns the pages, and a PDF beside each if Chromium is installed. Raises ValueError for a number that no lab has, and if
    Chromium made no PDF; NotebookFailed if labs had to be run and failed.
    """
    sources = {source.stem[:2]: source for source in sorted((root / "solutions").glob("[0-9][0-9]_*.py"))}
    wanted = list(numbers) or list(sources)
    unknown = [number for number in wanted if number not in sources]
    if unknown:
        raise ValueError(f"slides: expected lab numbers ({', '.join(sources)}), got {', '.join(unknown)}")

    out.mkdir(parents=True, exist_ok=True)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    written = []
    for source, run in all_executed(root, [sources[number] for number in wanted], progress).items():
        page = out / f"{source.stem}.html"
        page.write_text(deck(nbformat.reads(notebooks(source)[1], as_version=4), run), encoding="utf-8")
        written.append(page)
        if browser:
            written.append(as_pdf(page, browser))

    made = sorted(page.stem for page in out.glob("[0-9][0-9]_*.html"))
    rows = [(stem, LABS[stem[:2]].title, (out / f"{stem}.pdf").is_file()) for stem in made]
    (out / "index.html").write_text(pages.render("slides_index.html", rows=rows), encoding="utf-8")
    return written


def as_pdf(page: Path, browser: str) -> Path:
    """Print the slides of `page` with Chromium, one per page of the PDF beside it. Returns the PDF's path."""
    pdf = page.with_suffix(".pdf")
    pdf.unlink(missing_ok=True)

    with tempfile.TemporaryDirectory(prefix="worldsize-slides-") as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--no-pdf-header-footer",
            f"--print-to-pdf={pdf.resolve()}", page.resolve().as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=PDF_TIMEOUT_S)

    if not pdf.is_file():
        raise ValueError(f"slides: expected {pdf} from {browser}, got none. The browser says: {done.stderr.strip()[-500:]}")
    return pdf
