"""A lab's cover: one picture of its solution's own run, at the top of its notebooks.

A cell with the tag `cover` draws it. Its PNG is kept in `labs/covers/NN.png`, and the source names it in a line of its
own, `![what it shows](../labs/covers/NN.png)`, with the words that the picture says of itself. Where a cell with the tag
`film` shows a replay, that is kept too, as `labs/covers/NN.svg`, which moves by itself. Left out: when to draw them anew,
which an author decides.
"""

from __future__ import annotations

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
WORDS = 100  # characters of what a cover says at most: a line of a source is 130
LINE = re.compile(r"^# !\[(?P<alt>.*)\]\((?P<path>\.\./labs/covers/[0-9]{2}\.png)\)$", re.MULTILINE)


def cover_of(source: Path) -> Path:
    """Where the cover of a lab's `source` is kept."""
    return source.parents[1] / "labs" / "covers" / f"{source.stem[:2]}.png"


def draw_cover(source: Path, progress: Callable[[int, int, str], None] | None = None) -> Path:
    """Run a lab's solution and keep the picture of its cover, and its words in the source. Returns the picture's path.

    Raises BuildError where the source has no line for it or no cell with the tag, or the cell showed no picture;
    NotebookFailed where the run failed.
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
    path.parent.mkdir(exist_ok=True)
    write_whole(path, picture)
    for player in players(executed, FILM_TAG):
        write_whole(path.with_suffix(".svg"), film_of(player))
    said = f"# ![{_short(words)}]({line['path']})"
    write_whole(source, text[: line.start()] + said + text[line.end() :])
    return path


def players(executed: NotebookNode, tag: str) -> list[str]:
    """The HTML that cells with the `tag` put out in a run."""
    found = []
    for cell in executed.cells:
        if tag not in cell.metadata.get("tags", []):
            continue
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                found.append("".join(data["text/html"]))
    return found


def _shown(source: Path, notebook: NotebookNode) -> tuple[bytes, str]:
    """The PNG and the words of the picture in the cell with the tag."""
    tagged = [cell for cell in notebook.cells if TAG in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise BuildError(f'{source}: expected one cell with tags=["{TAG}"], got {len(tagged)}')

    for output in reversed(tagged[0].get("outputs", [])):
        data = output.get("data", {})
        if "image/png" in data:
            return base64.b64decode(data["image/png"]), data.get("text/plain", "")
    raise BuildError(f"{source}: expected a picture from the cell with the tag {TAG}, got none")


def _short(words: str) -> str:
    """Whole sentences, as many as fit; nothing that would end the line's brackets."""
    plain = " ".join(words.replace("[", "(").replace("]", ")").split())
    kept = plain[:WORDS]
    if len(plain) > WORDS:
        kept = kept[: kept.rfind(". ") + 1] or f"{kept[: kept.rfind(' ')]} …"
    return kept
