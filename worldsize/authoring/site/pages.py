"""Generated pages of the site: the course map, the API pages, the support matrix, the papers."""

import html
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nbformat import NotebookNode

from worldsize.figures import tokens
from worldsize.lab.lab_list import LABS

# the modules that a lab may import, and so those a reader may look up; for ROOMS, also the modules inside
FACES = (
    "notebook", "launch", "ranks", "simulate", "fabric", "fabric.collectives", "fabric.background", "fabric.watched", "hosts",
    "machine", "data", "figures",
)  # fmt: skip
ROOMS = ("formulas", "pytorch", "tf")

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#]+)(#[^)]*)?\)")
_CONTENTS = re.compile(r"^\*\*Contents\.\*\* .*?\n\n", re.DOTALL | re.MULTILINE)
_READING = re.compile(r"\*\*Further reading\.\*\*\s*(.+)", re.DOTALL)


def course_map(labs: Mapping[str, NotebookNode], top: str = "", drawn: Collection[str] = ()) -> str:
    """Return HTML with a card for each lab, by its notebook's name, with cover, minutes and points; `top` leads to the site's
    top.

    Labs whose numbers are in `drawn` have a cover drawn for a card, one for light and one for dark pages.
    """
    cards = []
    for stem, lab in labs.items():
        number = stem[:2]
        opening = lab.cells[0].source
        minutes = re.search(r"\*\*Minutes:\*\* (\d+)", opening)

        name = html.escape(LABS[number].title)
        shown = f'<img src="{top}covers/{number}.png" alt="" loading="lazy">'
        if number in drawn:
            shown = in_both_themes(f'<img src="{top}cards/{number}.svg" alt="" loading="lazy">')
        cards.append(
            f'<li><a href="{top}labs/{stem}.html">{shown}'
            f"<strong>{number} {name}</strong>"
            f"<span>{minutes[1] if minutes else '?'} minutes, {LABS[number].points} points</span></a></li>"
        )
    return "\n".join(['<ul class="course-map">', *cards, "</ul>"])


def in_both_themes(picture: str) -> str:
    """Return HTML with a page's picture twice, for light and for dark pages: the twin of `NN.svg` is `NN-dark.svg`."""
    dark = picture.replace(".svg", "-dark.svg")
    return "".join(shown.replace("<img ", f'<img class="only-{theme}" ') for theme, shown in (("light", picture), ("dark", dark)))


def api_modules() -> Iterator[str]:
    """Yield the modules that have a page, by their names below `worldsize`."""
    yield from FACES
    for room in ROOMS:
        yield room
        package = importlib.import_module(f"worldsize.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                yield f"{room}.{module.name}"


def api_pages(modules: Iterable[str]) -> dict[str, str]:
    """Return Markdown for Sphinx by file name; the first file lists all modules."""
    modules = list(modules)
    opening = ["# API", "", "Everything a notebook may import, with shapes, units and errors."]
    pages = {"index.md": "\n".join([*opening, "", "```{toctree}", *modules, "```"]) + "\n"}
    for module in modules:
        # re-exports of the notebook module are indexed where they are defined
        members = ["   :members:", "   :no-index:" if module == "notebook" else "   :show-inheritance:"]
        auto = ["```{eval-rst}", f".. automodule:: worldsize.{module}", *members, "```"]
        pages[f"{module}.md"] = "\n".join([f"# worldsize.{module}", "", *auto]) + "\n"
    return pages


def papers_page(labs: Mapping[str, NotebookNode]) -> str:
    """Return the page with every lab's further reading."""
    parts = ["# Papers", "", "The papers behind each lab, and further reading."]
    for stem, lab in labs.items():
        for cell in lab.cells:
            found = _READING.search(cell.source) if cell.cell_type == "markdown" else None
            if found:
                parts += ["", f"## Lab {stem[:2]}", "", found[1].strip()]
    return "\n".join(parts) + "\n"


def support_page(record: Mapping, where: str) -> str:
    """Return the page of tested platforms (`where`, from docs/platforms.md) and of TensorFlow's strategies by way to train."""
    ways: dict[str, None] = {}
    for row in record["cells"].values():
        ways |= dict.fromkeys(row)
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    rows = []
    for strategy, row in record["cells"].items():
        cells = []
        for way in ways:
            state, words = row.get(way, ("not run", ""))
            if state in ("works", "not run"):
                cells.append(state)
            else:
                cells.append(f"**{state}**: {words}".replace("|", "\\|").replace("\n", " "))
        rows.append("| " + " | ".join([strategy, *cells]) + " |")

    return "\n".join([
        "# What was tested", "", where.strip(), "",
        "## Strategies of TensorFlow", "",
        f"Every cell was run on {record['date']} and compared with NumPy ({versions}).", "",
        "| strategy | " + " | ".join(ways) + " |", "| --- |" + " --- |" * len(ways), *rows, "",
    ])  # fmt: skip


def visual_language_page() -> str:
    """Return the page of the pictures' colours: each token on light and on dark paper, with what it stands for."""
    lines = []
    for meaning, tones in tokens.MEANINGS.items():
        lines.append(f"| {meaning} | {_swatches(tones, 'light')} | {_swatches(tones, 'dark')} |")
    return "\n".join([
        "# Visual language", "",
        "A colour means one thing in the whole course, and is never the only sign of it: names stand beside lines, ranks have "
        "markers, and a title answers the question above it. Point at a square for its name.", "",
        "| it stands for | light | dark |", "| --- | --- | --- |", *lines, "",
    ])  # fmt: skip


def _swatches(tones: Sequence[tokens.Tone], theme: str) -> str:
    squares = []
    for place, tone in enumerate(tones):
        look = f'x="{26 * place + 3}" y="3" width="20" height="20" fill="{getattr(tone, theme)}" stroke="#888"'
        squares.append(f"<rect {look}><title>{tone.name}</title></rect>")
    names = ", ".join(f"{tone.name} {getattr(tone, theme)}" for tone in tones)
    size = f'width="{26 * len(tones)}" height="26" style="background:{getattr(tokens.PAPER, theme)}"'
    return f'<svg role="img" aria-label="{names}" {size}>{"".join(squares)}</svg>'


def section_of(text: str, heading: str) -> str:
    """Return the text under `## heading`, for a page of the site. Raises ValueError if there is no such heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if not found:
        raise ValueError(f"expected a section ## {heading} for the site, got none")
    return found[1]


def on_the_site(text: str, pages: Mapping[str, str], titles: Mapping[str, str] | None = None) -> str:
    """Redirect links to files to their pages, by file name; a link to any other file becomes its text.

    A link that shows a file's name shows its page's title; a line of contents goes, as the site has its own beside the page.
    """

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if target.startswith(("http:", "https:", "mailto:")):
            return match[0]
        name = Path(target).name
        if name not in pages:
            return words
        if words == name:
            words = (titles or {}).get(name, words)
        return f"[{words}]({pages[name]}{anchor})"

    return _LINK.sub(link, _CONTENTS.sub("", text))


def title_of_page(text: str) -> str:
    """Return the title of a document, its first heading."""
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def with_pages_below(text: str, names: Iterable[str]) -> str:
    """Add pages, by their files' names, below a Markdown page in the site's tree, without adding visible links."""
    entries = [name.removesuffix(".md") for name in names]
    return "\n".join([text, "```{toctree}", ":hidden:", "", *entries, "```"]) + "\n" if entries else text
