"""A lab's cover: a picture of its own run, kept beside the labs and named with its words at the top of each notebook."""

import base64
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.support.notebook_runs import SOURCES, built
from worldsize.authoring import covers
from worldsize.authoring.build import BuildError

every_lab = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
PNG = base64.b64encode(b"\x89PNG of a ring").decode()


def executed(*shown: dict, tag: str = covers.TAG) -> nbformat.NotebookNode:
    outputs = [new_output("display_data", data=data) for data in shown]
    return new_notebook(cells=[new_code_cell("draw()", metadata={"tags": [tag]}, outputs=outputs)])


@every_lab
def test_every_lab_has_a_cover_that_says_what_it_shows(source: Path) -> None:
    line = covers.LINE.search(source.read_text())
    assert line and Path(line["path"]).name == f"{source.stem[:2]}.png" and len(line["alt"]) > 20
    picture = covers.cover_of(source).read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) <= 80_000
    assert len(re.findall(r'tags=\["cover"\]', source.read_text())) == 1


def test_the_cover_is_the_last_picture_of_its_cell_with_its_words() -> None:
    first, last = ({"image/png": PNG, "text/plain": words} for words in ("A table", "A ring of 4 ranks."))
    assert covers._shown(Path("x.py"), executed(first, {"text/plain": "no"}, last)) == (
        b"\x89PNG of a ring", "A ring of 4 ranks.",
    )  # fmt: skip


@pytest.mark.parametrize(("notebook", "words"), [
    (executed({"text/plain": "not yet"}), "expected a picture"), (executed({"image/png": PNG}, tag="other"), "got 0"),
])  # fmt: skip
def test_a_lab_without_a_picture_for_its_cover_is_told(notebook: nbformat.NotebookNode, words: str) -> None:
    with pytest.raises(BuildError, match=words):
        covers._shown(Path("x.py"), notebook)


def test_words_of_a_cover_are_whole_sentences_and_end_no_bracket() -> None:
    assert covers._short("One [1] sentence. " + "x" * 300) == "One (1) sentence."
    assert len(covers._short("word " * 100)) <= covers.WORDS + 2
    assert covers._short("One, over 80 ms: two; " + "x" * 300) == "One, over 80 ms: two."


def test_a_source_without_a_line_for_its_cover_is_told_before_it_runs(tmp_path: Path) -> None:
    source = tmp_path / "solutions" / "07_x.py"
    source.parent.mkdir()
    source.write_text("# %% [markdown]\n# # Lab 07\n")
    with pytest.raises(BuildError, match="covers/07.png"):
        covers.draw_cover(source)


@every_lab
def test_a_students_notebook_finds_its_cover_from_its_own_folder(source: Path) -> None:
    lab = nbformat.reads(built(source)[1], as_version=4)
    [path] = [found for cell in lab.cells for found in re.findall(r"\]\((\S*covers/\S+)\)", cell.source)]
    assert (source.parents[1] / "labs" / path).is_file()


def test_a_film_is_of_the_cells_that_ask_for_one() -> None:
    shown = {"text/html": "<div data-replay></div>", "image/png": PNG}
    assert covers.players(executed(shown, {"text/plain": "no"}, tag=covers.FILM_TAG), covers.FILM_TAG) == [shown["text/html"]]
    assert covers.players(executed(shown, tag="other"), covers.FILM_TAG) == []


def test_the_readmes_film_is_one_that_a_lab_keeps() -> None:
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    film = re.search(r'<img src="labs/covers/(\d\d)\.svg"[^>]* alt="([^"]+)"', text)
    assert film is not None and f'srcset="labs/covers/{film[1]}-dark.svg"' in text
    (source,) = [source for source in SOURCES if source.name.startswith(film[1])]
    assert 'tags=["film"]' in source.read_text()
    for ending in (".svg", "-dark.svg"):
        kept = covers.cover_of(source).with_name(film[1] + ending).read_text()
        assert f"<title>{film[2]}</title>" in kept and "<animateMotion" in kept
