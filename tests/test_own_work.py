"""The page `docs/own-work.md`: its blocks run as they stand there, in the cells of one notebook, and do what it says.

The hosts of its last part are two guests on this machine, in the place of `hosts.Ssh`.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tests.support.notebook_rules import text_of
from worldsize import hosts
from worldsize.authoring.headless import run

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "own-work.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HOSTS = next(place for place, text in enumerate(BLOCKS) if text.startswith("from worldsize import hosts"))
LIMIT_S = 200

STAND_IN = """\
import subprocess
import sys

from tests.support.bad_guest import ADDRESS
from tests.support.open_hosts import lines_of
from worldsize import hosts

def join(text):
    for line in lines_of(text):
        command = [sys.executable, "-m", "worldsize.engines.hosts.host_program"]
        guest = subprocess.Popen(command, stdin=subprocess.PIPE)
        guest.stdin.write(line.encode() + b"\\n")
        guest.stdin.flush()

hosts.Ssh = lambda names: hosts.Invited(hosts=len(names), address=ADDRESS, and_this_machine=False, show=join)
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[NotebookNode]:
    """The page's cells, executed."""
    path = tmp_path_factory.mktemp("own-work") / "own_work.ipynb"
    stand_in = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{STAND_IN}"
    notebook = new_notebook(
        cells=[new_code_cell(text.removesuffix("\n")) for text in (*BLOCKS[:HOSTS], stand_in, *BLOCKS[HOSTS:])]
    )
    nbformat.write(notebook, path)
    done = run(path, path.with_name("executed.ipynb"), timeout_s=LIMIT_S)
    return nbformat.read(done.out, as_version=4).cells


def said(cells: list[NotebookNode], begins: str) -> str:
    """All that the cells whose text begins so put out."""
    return "\n".join(text_of(output) for cell in cells if cell.source.startswith(begins) for output in cell.outputs)


pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def test_four_ranks_drift_apart_without_an_average_and_are_one_model_with_it(cells) -> None:
    assert "4 of 4 tensors differ between ranks" in said(cells, "world.differ")
    assert "the same on ranks 0, 1, 2, 3" in said(cells, "def largest_difference")


def test_all_ways_come_to_the_weights_of_one_process(cells) -> None:
    for begins in ("def largest_difference", "run = launch", "from worldsize import hosts"):
        (apart,) = re.findall(r"from one process: (\S+) at most", said(cells, begins))
        assert float(apart) < 1e-4, begins


def test_torchrun_runs_the_file(cells) -> None:
    text = said(cells, "said = terminal")
    assert [f"rank {rank} of 4: loss " in text for rank in range(4)] == [True] * 4


@pytest.mark.quick
def test_the_way_to_the_hosts_that_the_page_names_is_one() -> None:
    (way,) = re.findall(r"^hosts\.open\((.*)\)$", BLOCKS[HOSTS], re.MULTILINE)
    assert callable(eval(way, {"hosts": hosts}).begin)


def test_the_hosts_have_the_ranks(cells) -> None:
    (names,) = re.findall(r"ranks ran on (.*)", said(cells, "from worldsize import hosts"))
    assert len(names.split(", ")) == 4 and len(set(names.split(", "))) == 2


def test_replicas_of_ddp_that_stay_on_the_hosts_are_one_model(cells) -> None:
    assert "the same on ranks 0, 1, 2, 3" in said(cells, "print(world.differ")
