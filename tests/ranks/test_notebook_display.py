"""`display` of IPython and `plt.show()` in a cell on ranks: pictures and tables, in the order of the lines around them."""

import pytest

from worldsize.launch.rank_output import pieces_of
from worldsize.ranks import OpenRanks

CELL = """\
from IPython.display import HTML, Markdown, display as ipythons
print("before")
ipythons(HTML("<b>bold</b>"), Markdown("*a*"))
print("after")
ipythons({"text/html": "<i>raw</i>", "text/plain": "raw"}, raw=True)
handle = ipythons("first", display_id=True)
handle.update("second")
"""
PICTURE = """\
import matplotlib.pyplot as plt
if rank == 1:
    plt.plot([1, 2])
    plt.show()
    print("between")
    plt.plot([2, 1])
    plt.show()
"""


@pytest.fixture
def two(opened, monkeypatch) -> OpenRanks:
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # a notebook's
    return opened(2)


def test_what_ipython_displays_is_shown_where_it_stands(two):
    pieces = pieces_of(two.run(CELL), 0)
    assert [piece.text or dict(piece.bundle).get("text/html", "") for piece in pieces] == [
        "before\n", "<b>bold</b>", "", "after\n", "<i>raw</i>", "'first'\n'second'\n",
    ]  # fmt: skip
    assert dict(pieces[2].bundle)["text/markdown"] == "*a*" and dict(pieces[4].bundle)["text/plain"] == "raw"


def test_plt_show_puts_a_picture_between_the_lines(two):
    run = two.run(PICTURE)
    pieces = pieces_of(run, 1)
    assert ["image/png" in dict(piece.bundle) for piece in pieces] == [True, False, True]
    assert pieces[1].text == "between\n" and pieces_of(run, 0) == ()
