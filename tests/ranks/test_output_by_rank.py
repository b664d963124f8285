"""What the ranks of a cell put out: read in order, grouped where ranks say the same, and shown as text and as HTML."""

import re

import pytest

from worldsize.launch import rank_output
from worldsize.launch.rank_output import Group, Piece
from worldsize.live import output_by_rank
from worldsize.ranks.cell_observers import caption

SHOWN = """\
class Table:
    def _repr_html_(self):
        return f"<b>table {rank // 2}</b>"
    def __repr__(self):
        return f"Table {rank // 2}"
class Broken:
    def _repr_html_(self):
        raise KeyError
    def __repr__(self):
        return "broken"
"""


def shown(world, text: str, ranks=(0, 1, 2, 3)):
    run = world.run(text, list(ranks))
    return run, rank_output.groups(run, ranks)


def test_ranks_that_put_out_the_same_are_one_group(four):
    run, groups = shown(four, "print('even' if rank % 2 == 0 else 'odd')")
    assert [(group.ranks, group.pieces) for group in groups] == [
        ((0, 2), (Piece("even\n"),)),
        ((1, 3), (Piece("odd\n"),)),
    ]
    assert output_by_rank.text_of(groups, range(4), "foot") == "[ranks 0, 2] even\n[ranks 1, 3] odd\nfoot"
    assert re.fullmatch(r"4 ranks · [\d.]+ m?s", caption(run, (0, 1, 2, 3)))


def test_text_and_what_is_shown_keep_their_order(four):
    _, groups = shown(four, f"{SHOWN}print('before')\ndisplay(Table())\nprint('after')\nTable()")
    assert [[piece.text or dict(piece.bundle)["text/html"] for piece in group.pieces] for group in groups] == [
        ["before\n", f"<b>table {half}</b>", "after\n", f"<b>table {half}</b>"] for half in (0, 1)
    ]
    assert output_by_rank.text_of(groups, range(4), "f").splitlines()[:5] == [
        "[ranks 0, 1]",
        "before",
        "Table 0",
        "after",
        "Table 0",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank * 0", "0\n"),
        ("'a'", "'a'\n"),
        ("None", ""),
        ("x = 3", ""),
        ("3;", ""),
        (f"{SHOWN}Broken()", "broken\n"),
        ("print(end='abc')", "abc"),
    ],
)
def test_the_value_of_the_last_expression_is_shown(four, text, expected):
    run, groups = shown(four, text)
    assert run.log(0) == expected and len(groups) == bool(expected)


def test_figures_show_once_at_the_end_of_the_cell(four):
    plot = "import matplotlib.pyplot as plt\nfigure = plt.figure()\nplt.plot([1, rank])\nprint('drawn')"
    _, groups = shown(four, f"{plot}\nfigure", [1])
    assert [sorted(dict(piece.bundle)) for piece in groups[0].pieces] == [[], ["image/png", "text/plain"]]
    _, groups = shown(four, f"{plot}\nplt.show()", [1])
    assert [sorted(dict(piece.bundle)) for piece in groups[0].pieces] == [[], ["image/png", "text/plain"]]


def test_a_progress_bar_is_its_last_state(four):
    _, groups = shown(
        four, "import sys\nfor k in range(5):\n    sys.stderr.write(f'\\r{k} of 5')\nsys.stderr.write('\\r5 of 5\\n');"
    )
    assert [piece.text for piece in groups[0].pieces] == ["5 of 5\n"]


def test_a_flood_is_cut_in_the_middle_and_the_log_has_all(four):
    run, groups = shown(four, "print('x' * 100_000)\nprint('end')", [0])
    (piece,) = groups[0].pieces
    assert len(piece.text) < rank_output.MOST_CHARS + 200 and piece.text.endswith("end\n") and "left out" in piece.text
    assert len(run.log(0)) == 100_005


def test_pictures_beyond_the_room_are_told_as_text(four, monkeypatch):
    monkeypatch.setattr(rank_output, "MOST_RICH_BYTES", 100)
    _, groups = shown(
        four,
        f"{SHOWN}class Large(Table):\n    def _repr_html_(self):\n        return 'x' * 90\ndisplay(Large()); display(Large())",
        [0],
    )
    kinds = [bool(piece.bundle) for piece in groups[0].pieces]
    assert kinds == [True, False] and "not shown" in groups[0].pieces[1].text


def test_one_bundle_that_is_too_large_is_its_text(four):
    _, groups = shown(
        four, f"{SHOWN}class Large(Table):\n    def _repr_html_(self):\n        return 'x' * 3_000_000\nLarge()", [0]
    )
    assert [piece.bundle for piece in groups[0].pieces] == [()] and "larger than 2 MB" in groups[0].pieces[0].text


quick = pytest.mark.quick


@quick
@pytest.mark.parametrize(
    ("ranks", "of", "expected"),
    [
        ((0,), (0,), "rank 0"),
        ((0, 1), (0, 1), "ranks 0 and 1"),
        ((0, 1, 2), (0, 1, 2), "all 3 ranks"),
        ((0, 2), (0, 1, 2), "ranks 0, 2"),
    ],
)
def test_a_group_is_named(ranks, of, expected):
    assert Group(ranks, ()).name(of) == expected


@quick
def test_what_was_printed_is_no_html():
    page = output_by_rank.html_of([Group((0,), (Piece("<script>1</script>"),))], (0, 1), "foot")
    assert "<script>" not in page and "&lt;script&gt;" in page


@quick
@pytest.mark.parametrize("lines", [1, 2, 3])
def test_short_outputs_stand_one_below_the_other_with_the_names_of_their_ranks(lines):
    groups = [Group((rank, rank + 4), (Piece(f"text {rank}\n" * lines),)) for rank in range(3)]
    page = output_by_rank.html_of(groups, range(8), "foot")
    names = re.findall(r'class="ranks"[^>]*>([^<]+)<', page)
    assert names == ["ranks 0, 4", "ranks 1, 5", "ranks 2, 6"] and "radio" not in page
    assert [page.count(f"text {rank}") for rank in range(3)] == [lines] * 3


@quick
@pytest.mark.parametrize(
    "long",
    [Piece("4 lines\n" * 4), Piece("", (("image/png", "iVBORw0KGgo="), ("text/plain", "a picture")))],
    ids=["lines", "picture"],
)
def test_where_one_output_is_long_there_is_a_tab_for_each_group_and_the_first_is_chosen(long):
    groups = [Group((rank,), (Piece(f"text {rank}"),)) for rank in range(3)] + [Group((3,), (long,))]
    page = output_by_rank.html_of(groups, range(3), "foot")
    assert page.count('type="radio"') == 4 and page.count(" checked>") == 1
    assert [page.count(f"text {rank}") for rank in range(3)] == [1, 1, 1]
    labels = re.findall(r'<label for="([^"]+)">([^<]+)</label>', page)
    assert [name for _, name in labels] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert all(f'id="{own}"' in page for own, _ in labels)


@quick
def test_the_outputs_of_many_ranks_are_bounded_and_counted():
    groups = [Group((rank,), (Piece(f"text {rank}"),)) for rank in range(64)]
    page = output_by_rank.html_of(groups, range(64), "foot")
    assert page.count('type="radio"') == output_by_rank.MOST_TABS and "and 32 more outputs" in page


@quick
def test_a_cell_that_runs_shows_the_last_lines_of_each_rank():
    texts = {rank: "\n".join(f"rank {rank} line {k}" for k in range(100)) for rank in range(16)}
    page = output_by_rank.live_html(texts, 3.2)
    assert all(f"rank {rank} line 99" in page for rank in range(16)) and "rank 3 line 5\n" not in page
    assert len(page) < 16_000 and "at work for 3 s" in page
