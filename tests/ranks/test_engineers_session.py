"""An engineer's notebook on ranks that stay, run from top to bottom: what its cells said.

`engineers_session.py` trains by hand, finds two faults by `world.differ`, and goes on after an error and a rank's death.
"""

import re
from pathlib import Path

import jupytext
import nbformat
import pytest

from tests.support.processes import ranks_alive
from worldsize.authoring.headless import NotebookFailed, run

SESSION = Path(__file__).with_name("engineers_session.py")
RUN_S = 100  # a bound against a hang
SAME = "net: 11 tensors, the same on ranks 0, 1, 2, 3"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> list[tuple[str, str]]:
    """By code cell: its source, and all that it put out as text."""
    path = tmp_path_factory.mktemp("session") / "session.ipynb"
    jupytext.write(jupytext.read(SESSION, fmt="py:percent"), path, fmt="ipynb")
    before = ranks_alive()
    with pytest.raises(NotebookFailed, match="raised RankFailed") as told:
        run(path, timeout_s=RUN_S)  # told at the end: these cells were expected to raise
    assert ranks_alive() == before
    cells = nbformat.read(told.value.out, as_version=4).cells
    return [(cell.source, text_of(cell)) for cell in cells if cell.cell_type == "code"]


def text_of(cell: nbformat.NotebookNode) -> str:
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append(output.text)
        elif output.output_type == "error":
            found.append("\n".join(output.traceback))
        else:
            found.append(output.data["text/plain"])
    return ANSI.sub("", "\n".join(found))


def after(said: list[tuple[str, str]], words: str) -> list[str]:
    """What the cells said that have these words, in their order."""
    found = [text for source, text in said if words in source]
    assert found, f"no cell has {words!r}"
    return found


def test_every_cell_ran_and_four_went_wrong_as_they_should(said):
    assert len(said) > 28
    assert [text.count("RankFailed: rank") + text.count("UsageError: ") for _, text in said].count(1) == 4


def test_data_of_the_notebook_is_missed_with_words_and_then_pushed(said):
    missed, found, _ = after(said, "points, labels = [part")
    assert "`settings` is in the notebook" in missed and "world.push(settings=settings)" in missed
    assert "[all 4 ranks] 300 examples, 770 parameters" in found


def test_differ_finds_each_fault_and_that_it_is_mended(said):
    drawn, copied, unsent, averaged, net, spoilt, mended, _ = after(said, 'world.differ("net")')
    assert "net: 6 of 11 tensors differ between ranks; the first is first.weight" in drawn
    assert copied == mended == SAME
    assert "6 of 11 tensors differ between ranks; the first is first.weight" in unsent
    assert "net: 2 of 11 tensors differ between ranks; the first is norm.running_mean" in averaged
    assert net.splitlines() == [SAME, "optimizer: 24 tensors, the same on ranks 0, 1, 2, 3"]
    assert spoilt.startswith("epochs [5, 5, 5, 5]\nnet: 3 of 11 tensors differ") and "  31 31 30 31\n" in spoilt


def test_an_error_of_one_rank_is_told_and_the_others_come_free(said):
    (error,) = after(said, "spoilt = points.clone()")
    assert "RankFailed: rank 2 of 4 failed first: ValueError: example 17 is not finite" in error
    assert "ranks 0, 1, 3 wait in all_reduce\n    at cell In[12], line 12, in average: dist.all_reduce(flat)" in error
    assert "note: the ranks keep their state, and get new process groups before the next cell" in error


def test_a_rank_that_is_killed_is_named_and_a_restart_resumes_to_the_same_bits(said):
    (killed,) = after(said, "signal.SIGKILL")
    assert "RankFailed: rank 3 of 4 was killed by SIGKILL" in killed
    assert after(said, 'world["epoch"]')[-1] == "[7, 7, 7, None]"
    refused = next(text for source, text in said if source == "%%ranks\nepoch")
    assert "rank 3 has ended (killed by SIGKILL)." in refused and "world.restart()" in refused
    (resumed,) = after(said, "resumed as if")
    assert resumed.splitlines() == ["resumed as if nothing had happened: True", SAME]


def test_the_model_learns_and_its_messages_are_recorded(said):
    (right,) = after(said, "of the examples are right")
    assert float(re.search(r"\[all 4 ranks\] '([\d.]+)%", right)[1]) > 90
    # 20 epochs: 6 steps of two buckets, a loss, two statistics; and the last sum
    assert after(said, "all-reduces on rank 0") == [f"{20 * (6 * 2 + 1 + 2) + 1} all-reduces on rank 0\n"]
