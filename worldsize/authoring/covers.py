"""A lab's cover: one picture of its solution's own run, at the top of its notebooks.

A cell tagged `cover` draws the cover, whose PNG is kept in `labs/covers/NN.png`. The source has a line
`![what it shows](../labs/covers/NN.png)`, with the picture's own alternative text. If a cell tagged `film` shows a replay, the
replay is kept as `labs/covers/NN.svg`, which moves by itself, and for dark pages as `NN-dark.svg`. An author decides when to
redraw covers.
"""

import base64
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from worldsize.authoring import headless
from worldsize.authoring.build import BuildError, notebooks
from worldsize.figures.replay.film import film_of
from worldsize.files import write_whole

TAG, FILM_TAG = "cover", "film"
WORDS = 100  # most characters of a cover's text: a source line has at most 130
LINE = re.compile(r"^# !\[(?P<alt>.*)\]\((?P<path>\.\./labs/covers/[0-9]{2}\.png)\)$", re.MULTILINE)


def cover_of(source: Path) -> Path:
    """Return the path of the cover of a lab's `source`."""
    return source.parents[1] / "labs" / "covers" / f"{source.stem[:2]}.png"


def draw_cover(source: Path, progress: Callable[[int, int, str], None] | None = None) -> Path:
    """Run a lab's solution, keep its cover's picture, and write the picture's words into the source. Returns the picture's path.

    Raises BuildError if the source has no line for the cover or not exactly one tagged cell, or the cell showed no picture;
    NotebookFailed if the run failed.
    """
    text = source.read_text(encoding="utf-8")
    line = LINE.search(text)
    if line is None:
        raise BuildError(f"{source}: expected a line # ![…](../labs/covers/{source.stem[:2]}.png), got none; write it first")

    with tempfile.TemporaryDirectory(prefix="worldsize-cover-") as folder:
        notebook = Path(folder) / f"{source.stem}.ipynb"
        notebook.write_text(notebooks(source)[0], encoding="utf-8")
        done = headless.run(notebook, Path(folder) / "executed.ipynb", {}, progress=progress)
        executed = nbformat.read(done.out, as_version=4)
        picture, words = _shown(source, executed)

    path = cover_of(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, picture)
    for player in players(executed, FILM_TAG):
        write_whole(path.with_suffix(".svg"), film_of(player))
        write_whole(path.with_name(f"{path.stem}-dark.svg"), film_of(player, "dark"))
    said = f"# ![{_short(words)}]({line['path']})"
    write_whole(source, text[: line.start()] + said + text[line.end() :])
    return path


def players(executed: NotebookNode, tag: str) -> list[str]:
    """Return the HTML output of the cells with the `tag` in a run, such as a cover's replay."""
    fragments = []
    for cell in executed.cells:
        if tag not in cell.metadata.get("tags", []):
            continue
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                fragments.append("".join(data["text/html"]))
    return fragments


def _shown(source: Path, notebook: NotebookNode) -> tuple[bytes, str]:
    """Return the PNG and the words of the cover's picture, from the tagged cell."""
    tagged = [cell for cell in notebook.cells if TAG in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise BuildError(f'{source}: expected one cell with tags=["{TAG}"], got {len(tagged)}')

    for output in reversed(tagged[0].get("outputs", [])):
        data = output.get("data", {})
        if "image/png" in data:
            return base64.b64decode(data["image/png"]), data.get("text/plain", "")
    raise BuildError(f"{source}: expected a picture from the cell with the tag {TAG}, got none")


def _short(words: str) -> str:
    """Return as many of a cover's sentences (else clauses, else words) as fit.

    There are no square brackets, which would end the line's own.
    """
    plain = " ".join(words.replace("[", "(").replace("]", ")").split())
    kept = plain[:WORDS]
    if len(plain) > WORDS:
        clauses = kept[: max(kept.rfind("; "), 0)]
        sentences = kept[: kept.rfind(". ") + 1] or (clauses and f"{clauses}.")
        kept = sentences or f"{kept[: kept.rfind(' ')]} …"
    return kept
