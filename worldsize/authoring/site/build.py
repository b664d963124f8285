"""The site as a folder of HTML: Sphinx's input, and Sphinx itself. Needs the extra `site`.

Executed notebooks come from `build/executed/`, where the soak leaves full runs; a lab without one, or with one of another
source or other parameters, is run first. Nothing is fetched. A workflow publishes the site.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from worldsize.authoring.build import notebooks
from worldsize.authoring.covers import FILM_TAG, players
from worldsize.authoring.executed_solutions import all_executed
from worldsize.authoring.site import open_buttons, pages
from worldsize.authoring.site.lab_page import lab_page
from worldsize.authoring.site.thumbnails import thumbnail, with_card

# the replay of the cover starts by itself, unless the reader's system asks for reduced motion; its buttons stop it
PLAYS = """<script>
if (!matchMedia("(prefers-reduced-motion: reduce)").matches)
  addEventListener("load", () => document.querySelector(".ws-replay").shadowRoot.querySelector("button").click());
</script>"""
OnLab = Callable[[str], None]

# a page of docs/, the pages below it, and the folder there with a page for each lab, also below it
INSTRUCTORS, GRADING, TEACHING = "instructors.md", ("grading.md", "grading-internals.md"), "teaching"
FOR_CONTRIBUTORS = ("style.md",)  # a site's readers have no repository to contribute to


def build_site(root: Path, out: Path, numbers: Iterable[str] = (), progress: OnLab | None = None) -> list[Path]:
    """Write the site of the repository `root` to the folder `out`; `numbers` selects labs, else all.

    Returns its HTML pages. Raises ValueError if Sphinx fails, NotebookFailed if labs had to be run and failed.
    """
    wanted = set(numbers)
    sources = sorted((root / "solutions").glob("[0-9][0-9]_*.py"))
    sources = [source for source in sources if not wanted or source.stem[:2] in wanted]
    runs = all_executed(root, sources, progress)

    staged = root / "build" / "site-source"
    shutil.rmtree(staged, ignore_errors=True)
    stage(root, staged, runs)
    shutil.rmtree(out, ignore_errors=True)
    if progress:
        progress("the pages")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-j", "auto", "-b", "html", str(staged), str(out)]
    done = subprocess.run(sphinx, capture_output=True, text=True)
    if done.returncode or done.stderr.strip():  # a warning is a mistake on a page
        raise ValueError(f"site: expected Sphinx to build {staged} without warnings, got: {done.stderr[-2000:]}")
    return sorted(page for page in out.rglob("*.html") if "_static" not in page.parts)


def stage(root: Path, staged: Path, runs: dict[Path, NotebookNode]) -> None:
    """Put everything that Sphinx reads into the folder `staged`."""
    shutil.copytree(root / "docs" / "site", staged)
    shutil.copytree(root / "labs" / "covers", staged / "labs" / "covers")
    shutil.copytree(root / "labs" / "covers", staged / "_extra" / "covers")
    shutil.copytree(root / "docs" / "pictures", staged / "_extra" / "pictures")

    students = {source.stem: notebooks(source)[1] for source in runs}
    labs = {stem: nbformat.reads(text, as_version=4) for stem, text in students.items()}
    repository = open_buttons.repository(root, os.environ)
    glossary = (staged / "glossary.md").read_text(encoding="utf-8")
    for source, run in runs.items():
        page = lab_page(labs[source.stem], run, glossary_terms(glossary))
        page.cells.insert(1, open_buttons.buttons(source.stem, repository))
        _write(staged / "_extra" / open_buttons.FOLDER / f"{source.stem}.ipynb", students[source.stem])
        number, card = source.stem[:2], thumbnail(run)
        if card:
            _write(staged / "_extra" / "cards" / f"{number}.svg", card)
            for cell in page.cells:
                cell.source = with_card(cell.source, number) if cell.cell_type == "markdown" else cell.source
        nbformat.write(page, staged / "labs" / f"{source.stem}.ipynb")

    cards = [path.stem for path in (staged / "_extra" / "cards").glob("*.svg")]
    for name, top in (("index.md", ""), ("labs/index.md", "../")):
        text = (staged / name).read_text(encoding="utf-8").replace("{{ cover }}", _raw(_cover(runs)))
        _write(staged / name, text.replace("{{ course_map }}", _raw(pages.course_map(labs, top, cards))))

    documents = [path for path in sorted((root / "docs").glob("*.md")) if path.name not in FOR_CONTRIBUTORS]
    texts = {path.name: path.read_text(encoding="utf-8") for path in documents}
    numbers = {stem[:2] for stem in labs}
    lessons = {path.name: path for path in sorted((root / "docs" / TEACHING).glob("*.md")) if path.stem in numbers}
    known = {name: name for name in texts} | {f"{stem}.ipynb": f"labs/{stem}.ipynb" for stem in labs}
    known |= {name: f"{TEACHING}/{name}" for name in lessons}
    for name, text in texts.items():
        _write(staged / name, pages.on_the_site(text, known))
    below = [*GRADING, *(known[name] for name in lessons)]
    _write(staged / INSTRUCTORS, pages.with_pages_below((staged / INSTRUCTORS).read_text(encoding="utf-8"), below))
    from_below = {name: f"../{page}" for name, page in known.items()}
    for name, path in lessons.items():
        _write(staged / TEACHING / name, pages.on_the_site(path.read_text(encoding="utf-8"), from_below))

    where = pages.section_of(texts["platforms.md"], "What was tested").replace("](#", "](platforms.md#")
    where = pages.on_the_site(where, known)
    matrix = json.loads((root / "datasets" / "support.json").read_text(encoding="utf-8"))  # which lab 09 shows
    _write(staged / "support.md", pages.support_page(matrix, where))
    _write(staged / "papers.md", pages.papers_page(labs))
    for name, text in pages.api_pages(pages.api_modules()).items():
        _write(staged / "api" / name, text)


def glossary_terms(glossary: str) -> list[str]:
    """Return the terms that the glossary's page explains."""
    block = re.search(r"```\{glossary\}\n(.*?)```", glossary, re.DOTALL)
    return [line for line in block[1].splitlines() if line and not line.startswith(" ")] if block else []


def _cover(runs: dict[Path, NotebookNode]) -> str:
    """Return the replay of lab 06's run, with its buttons; without that lab, its film."""
    for source, run in runs.items():
        shown = players(run, FILM_TAG) if source.stem.startswith("06") else []
        if shown:
            return shown[0] + PLAYS
    return '<img src="covers/06.svg" alt="Four ranks add up their gradients, through one server and round a ring">'


def _raw(text: str) -> str:
    """Wrap HTML for a page of Markdown."""
    return f"````{{raw}} html\n{text}\n````"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
