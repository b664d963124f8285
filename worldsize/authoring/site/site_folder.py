"""The site as a folder of HTML: Sphinx's input, and Sphinx itself. Needs the extra `site`.

Executed notebooks come from `build/executed/`, where the soak leaves full runs; a lab without one, or with one of another
source or other parameters, is run first. A cover's card is its
picture without words, which cannot be read at that size. Nothing is fetched. A workflow publishes the site.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

import nbformat
from nbformat import NotebookNode

from worldsize.authoring import headless
from worldsize.authoring.build import notebooks
from worldsize.authoring.covers import FILM_TAG, TAG, players
from worldsize.authoring.covers import players as outputs_of
from worldsize.authoring.site import pages
from worldsize.authoring.site.lab_page import lab_page
from worldsize.figures import tokens
from worldsize.units import count

FOLDER = "notebooks"  # of the site, with the students' notebooks

_OWNER_AND_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_ON_GITHUB = re.compile(r"(?:https://github\.com/|git@github\.com:|ssh://git@github\.com/)([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def repository(root: Path, environment: Mapping[str, str]) -> str | None:
    """Return owner and name of the repository `root` on GitHub, from GitHub's build variables or the remote; else None."""
    named = environment.get("GITHUB_REPOSITORY", "")
    if _OWNER_AND_NAME.fullmatch(named):
        return named
    asked = subprocess.run(["git", "-C", str(root), "remote", "get-url", "origin"], capture_output=True, text=True)
    found = _ON_GITHUB.fullmatch(asked.stdout.strip())
    return found[1] if found else None


def buttons(stem: str, repository: str | None) -> NotebookNode:
    """Return the cell with the buttons of the lab `stem`: get its notebook, and open it where this repository is known.

    A `repository` on GitHub opens in Colab and in Codespaces; `docs/platforms.md` covers Kaggle and Binder.
    """
    links = [f'<a href="../{FOLDER}/{stem}.ipynb" download>Get the notebook</a>']
    note = '<a href="../platforms.html">What it needs</a>'

    if repository:
        where = html.escape(repository)
        links += [
            f'<a href="https://colab.research.google.com/github/{where}/blob/main/labs/{stem}.ipynb">Open in Colab</a>',
            f'<a href="https://codespaces.new/{where}">Open in Codespaces</a>',
        ]
        note += ', and <a href="../platforms.html#google-colab">the cell that Colab needs first</a>'

    return nbformat.v4.new_markdown_cell(f'<p class="ws-ways">{" ".join(links)} <span>{note}</span></p>')


RUN_TIMEOUT_S = 3600.0  # ends a run that hangs: nobody waits at such a notebook, and the machine may be busy


def all_executed(
    root: Path, sources: Iterable[Path], progress: Callable[[str], None] | None = None, timeout_s: float = RUN_TIMEOUT_S
) -> tuple[dict[Path, NotebookNode], list[headless.NotebookFailed]]:
    """Return the executed solution of each lab in `sources`, and what ended the others' runs; `progress(stem)` as each begins.

    A lab without a kept run is run, for at most `timeout_s`. A failed lab does not end the others, whose runs are kept for the
    next time.
    """
    runs: dict[Path, NotebookNode] = {}
    failures: list[headless.NotebookFailed] = []
    for source in sources:
        if progress:
            progress(source.stem)
        try:
            runs[source] = executed(root, source, timeout_s=timeout_s)
        except headless.NotebookFailed as failed:
            failures.append(failed)
    return runs, failures


def executed(root: Path, source: Path, run: bool = True, timeout_s: float = RUN_TIMEOUT_S) -> NotebookNode | None:
    """Return the executed solution of a lab's `source`, running it if need be (without `run`, None instead).

    Raises NotebookFailed, also where it takes longer than `timeout_s`.
    """
    kept = root / "build" / "executed" / f"{source.stem}.ipynb"
    text = notebooks(source)[0]
    if kept.is_file():
        notebook = nbformat.read(kept, as_version=4)
        if _is_whole(notebook) and _code(notebook) == _code(nbformat.reads(text, as_version=4)):
            return notebook
    if not run:
        return None

    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_name(f"{source.stem}.new.ipynb")
    fresh.write_text(text, encoding="utf-8")
    try:
        return nbformat.read(headless.run(fresh, kept, {}, timeout_s, knobs_beforehand=True).out, as_version=4)
    finally:
        fresh.unlink()


def _is_whole(notebook: NotebookNode) -> bool:
    """Return whether each code cell of an executed lab ran, and none ended in an error: a stopped run leaves a notebook too."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        if cell.execution_count is None or any(output.output_type == "error" for output in cell.outputs):
            return False
    return True


def _code(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Return the id and source of each code cell of an executed lab; papermill adds a cell to a run with other parameters."""
    return [(cell.id, cell.source) for cell in notebook.cells if cell.cell_type == "code"]


_COVER = re.compile(r"^!\[(?P<alt>[^\n]*)\]\((?P<path>covers/\d\d\.png)\)$", re.MULTILINE)
_SVG = "http://www.w3.org/2000/svg"
_VARIABLE = re.compile(r"var\(--ws-([\w-]+),\s*(#[0-9a-f]{6})\)")
_POINT = re.compile(r"M\s*(-?[\d.]+)[ ,]?(-?[\d.]+)")
# lines are as thick as the card has pixels, and messages' lines and heads, whose ends are round, thicker than axes
_STYLE = (
    '[style*="fill:none"],[style*="stroke-linecap:round"]{vector-effect:non-scaling-stroke}'
    '[style*="stroke-linecap:round"]{stroke-width:2px!important}'
)
_MARGIN = 8  # of a card, in units of its picture


def cover_svg(run: NotebookNode) -> str | None:
    """Return the cover's picture in an executed lab as it is shown there, an inline SVG; None if it is no SVG."""
    for shown in outputs_of(run, TAG):
        found = re.search(r'<div class="worldsize-picture">.*?(<svg .*?</svg>)', shown, re.DOTALL)
        if found:
            return found[1]
    return None


def with_card(text: str, number: str) -> str:
    """Return a lab's Markdown whose cover follows the theme, and has no words on screens too narrow to read them."""

    def shown(cover: re.Match[str]) -> str:
        pictures, alt = [], html.escape(html.unescape(cover["alt"]))
        for theme in ("light", "dark"):
            name = f"{number}{_SUFFIX[theme]}.svg"
            pictures.append(
                f'<picture class="only-{theme}"><source media="(max-width: 959px)" srcset="../cards/{name}">'
                f'<img class="only-{theme}" src="../cards/whole-{name}" alt="{alt}"></picture>'
            )
        return "".join(pictures)

    return _COVER.sub(shown, text)


_SUFFIX = {"light": "", "dark": "-dark"}


def standalone(svg: str, theme: str = "light") -> str:
    """Return an inline cover picture as an SVG file on a page of the `theme`: its tokens have become colours."""
    tones = {tone.name: getattr(tone, theme) for tone in tokens.ALL}
    return _VARIABLE.sub(lambda token: tones.get(token[1], token[2]), svg)


def small(svg: str) -> str:
    """Return a standalone cover picture without its words and the head over it, cut to what is drawn."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        before = None
        for child in list(parent):
            if child.tag == f"{{{_SVG}}}text":
                parent.remove(child)
                if before is not None and _is_patch(before):
                    parent.remove(before)
            before = child

    for name in ("width", "style", "role", "aria-label"):
        root.attrib.pop(name, None)
    root.attrib["viewBox"] = _drawn(root)
    style = ElementTree.Element(f"{{{_SVG}}}style")
    style.text = _STYLE
    root.insert(0, style)
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _is_patch(element: ElementTree.Element) -> bool:
    """Return whether this part of a cover is the piece of paper behind a word, which would cut what it lies on."""
    plain = [f"fill:{getattr(tokens.PAPER, theme)}" for theme in _SUFFIX]
    return element.tag == f"{{{_SVG}}}path" and element.get("style", "").replace(" ", "") in plain


def _drawn(root: ElementTree.Element) -> str:
    """Return the view box of a cover without words: the areas of its charts, and what begins outside of them."""
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    hidden = {path for defined in root.iter(f"{{{_SVG}}}defs") for path in defined.iter(f"{{{_SVG}}}path")}
    xs, ys = [], []
    for element in root.iter():
        kind = element.tag.rpartition("}")[2]
        if kind == "rect":
            xs += [float(element.get("x", 0)), float(element.get("x", 0)) + float(element.get("width", 0))]
            ys += [float(element.get("y", 0)), float(element.get("y", 0)) + float(element.get("height", 0))]
        elif kind == "use":
            xs.append(float(element.get("x", 0)))
            ys.append(float(element.get("y", 0)))
        elif kind == "path" and element not in hidden and not element.get("clip-path"):
            for x, y in _POINT.findall(element.get("d", "")):
                xs.append(float(x))
                ys.append(float(y))
    if not xs:
        return root.attrib["viewBox"]
    begin_x, begin_y = max(left, min(xs) - _MARGIN), max(top, min(ys) - _MARGIN)
    end_x, end_y = min(left + width, max(xs) + _MARGIN), min(top + height, max(ys) + _MARGIN)
    return f"{begin_x:g} {begin_y:g} {end_x - begin_x:g} {end_y - begin_y:g}"


# the replay of the cover starts by itself, unless the reader's system asks for reduced motion; its buttons stop it
PLAYS = """<script>
if (!matchMedia("(prefers-reduced-motion: reduce)").matches)
  addEventListener("load", () => document.querySelector(".ws-replay").shadowRoot.querySelector("button").click());
</script>"""
OnLab = Callable[[str], None]

# a page of docs/, the pages below it, and the folder there with a page for each lab, also below it
INSTRUCTORS, GRADING, TEACHING = "instructors.md", ("grading.md", "grading-internals.md"), "teaching"
FOR_CONTRIBUTORS = ("style.md",)  # a site's readers have no repository to contribute to


def build_site(
    root: Path, out: Path, numbers: Iterable[str] = (), progress: OnLab | None = None, timeout_s: float = RUN_TIMEOUT_S
) -> list[Path]:
    """Write the site of the repository `root` to the folder `out`; `numbers` selects labs, else all.

    Returns its HTML pages. Raises ValueError if Sphinx fails. Where labs had to be run and failed, or took over `timeout_s` each,
    it writes the site of the others, then raises NotebookFailed, which names them.
    """
    wanted = set(numbers)
    sources = sorted((root / "solutions").glob("[0-9][0-9]_*.py"))
    sources = [source for source in sources if not wanted or source.stem[:2] in wanted]
    runs, failures = all_executed(root, sources, progress, timeout_s)
    missing = "\n".join(map(str, failures))
    if failures and not runs:
        raise headless.NotebookFailed(missing, failures[0].out)

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
    if failures:
        there = f"{out / 'index.html'} was written without {count(len(failures), 'lab')}, and with {len(runs)}."
        raise headless.NotebookFailed(f"{missing}\n{there}", failures[0].out)
    return sorted(page for page in out.rglob("*.html") if "_static" not in page.parts)


def stage(root: Path, staged: Path, runs: dict[Path, NotebookNode]) -> None:
    """Put everything that Sphinx reads into the folder `staged`."""
    shutil.copytree(root / "docs" / "site", staged)
    shutil.copytree(root / "labs" / "covers", staged / "labs" / "covers")
    shutil.copytree(root / "labs" / "covers", staged / "_extra" / "covers")
    shutil.copytree(root / "docs" / "pictures", staged / "_extra" / "pictures")

    students = {source.stem: notebooks(source)[1] for source in runs}
    labs = {stem: nbformat.reads(text, as_version=4) for stem, text in students.items()}
    home = repository(root, os.environ)
    glossary = (staged / "glossary.md").read_text(encoding="utf-8")
    for source, run in runs.items():
        page = lab_page(labs[source.stem], run, glossary_terms(glossary))
        page.cells.insert(1, buttons(source.stem, home))
        _write(staged / "_extra" / FOLDER / f"{source.stem}.ipynb", students[source.stem])
        number, cover = source.stem[:2], cover_svg(run)
        if cover:
            for theme, suffix in _SUFFIX.items():
                whole = standalone(cover, theme)
                _write(staged / "_extra" / "cards" / f"whole-{number}{suffix}.svg", whole)
                _write(staged / "_extra" / "cards" / f"{number}{suffix}.svg", small(whole))
            for cell in page.cells:
                cell.source = with_card(cell.source, number) if cell.cell_type == "markdown" else cell.source
        nbformat.write(page, staged / "labs" / f"{source.stem}.ipynb")

    cards = [path.stem.removesuffix("-dark") for path in (staged / "_extra" / "cards").glob("*.svg")]
    for name, top in (("index.md", ""), ("labs/index.md", "../")):
        text = (staged / name).read_text(encoding="utf-8").replace("{{ cover }}", _raw(_cover(runs)))
        _write(staged / name, text.replace("{{ course_map }}", _raw(pages.course_map(labs, top, cards))))

    documents = [path for path in sorted((root / "docs").glob("*.md")) if path.name not in FOR_CONTRIBUTORS]
    texts = {path.name: path.read_text(encoding="utf-8") for path in documents}
    numbers = {stem[:2] for stem in labs}
    lessons = {path.name: path for path in sorted((root / "docs" / TEACHING).glob("*.md")) if path.stem in numbers}
    known = {name: name for name in texts} | {f"{stem}.ipynb": f"labs/{stem}.ipynb" for stem in labs}
    known |= {name: f"{TEACHING}/{name}" for name in lessons}
    titles = {name: pages.title_of_page(text) for name, text in texts.items()}
    for name, text in texts.items():
        _write(staged / name, pages.on_the_site(text, known, titles))
    below = [*GRADING, *(known[name] for name in lessons)]
    _write(staged / INSTRUCTORS, pages.with_pages_below((staged / INSTRUCTORS).read_text(encoding="utf-8"), below))
    teaching = [f'<a href="{TEACHING}/{Path(name).stem}.html">{Path(name).stem}</a>' for name in lessons]
    teach = (staged / "teach.md").read_text(encoding="utf-8")
    _write(staged / "teach.md", teach.replace("{{ teaching }}", f'<p class="ws-numbers">{" ".join(teaching)}</p>'))
    from_below = {name: f"../{page}" for name, page in known.items()}
    for name, path in lessons.items():
        _write(staged / TEACHING / name, pages.on_the_site(path.read_text(encoding="utf-8"), from_below, titles))

    where = pages.section_of(texts["platforms.md"], "What was tested").replace("](#", "](platforms.md#")
    where = pages.on_the_site(where, known, titles)
    matrix = json.loads((root / "datasets" / "support.json").read_text(encoding="utf-8"))  # which lab 09 shows
    _write(staged / "support.md", pages.support_page(matrix, where))
    _write(staged / "papers.md", pages.papers_page(labs))
    _write(staged / "visual-language.md", pages.visual_language_page())
    for name, text in pages.api_pages(pages.api_modules()).items():
        _write(staged / "api" / name, text)


def glossary_terms(glossary: str) -> list[str]:
    """Return the terms that the site's glossary explains."""
    block = re.search(r"```\{glossary\}\n(.*?)```", glossary, re.DOTALL)
    return [line for line in block[1].splitlines() if line and not line.startswith(" ")] if block else []


def _cover(runs: dict[Path, NotebookNode]) -> str:
    """Return the site's opening picture, the replay of lab 06's run, with its buttons; without that lab, its film."""
    for source, run in runs.items():
        shown = players(run, FILM_TAG) if source.stem.startswith("06") else []
        if shown:
            return shown[0] + PLAYS
    words = "Four ranks add up their gradients, through one server and round a ring"
    return pages.in_both_themes(f'<img src="covers/06.svg" width="620" alt="{words}">')


def _raw(text: str) -> str:
    """Wrap HTML for a page of Markdown that Sphinx reads."""
    return f"````{{raw}} html\n{text}\n````"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
