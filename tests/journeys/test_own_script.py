"""An engineer's script, `docs/gpt.py`, unedited from one process to `%%ranks`, `launch` and torchrun, with DDP and with FSDP2.

In the notebook the script is a module first and a cell afterwards: the one with DDP, the other with FSDP2. Every way sees the
same rows in each step, so all reach the same loss but for rounding. With the marker `soak` on four ranks at full size, and once
more with DDP and FSDP2 exchanged.
"""

import re
import shlex
from dataclasses import dataclass

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.journeys.doors import ROOT, Entered
from tests.journeys.person import Person
from tests.support.notebook_rules import text_of

DOORS = ["worldsize run"]
SCRIPT = (ROOT / "docs" / "gpt.py").read_text()
AS_A_CELL, _, _ = SCRIPT.partition('if __name__ == "__main__":')
LOSSES = re.compile(r"rank 0 of (\d+): loss ([\d.]+) -> ([\d.]+)")
ROUNDING = 5e-3  # of bfloat16, in another order of sums
pytestmark = pytest.mark.timeout(1200)

CELLS = {
    "front": "from worldsize.notebook import *",
    "script": "%%writefile gpt.py\n" + SCRIPT,
    "one process": "import gpt\nSIZES = {sizes}\ngpt.main(**SIZES)[-1]",
    "ranks, a module": "%%ranks {ranks}\nimport gpt\ngpt.main(sharded={module_sharded}, **SIZES)[-1]",
    "launch, a module": "launch(gpt.main, {ranks}, kwargs=dict(SIZES, sharded={module_sharded}))[0][-1]",
    "cell": AS_A_CELL,
    "ranks, a cell": "%%ranks\nmain(sharded={cell_sharded}, **SIZES)[-1]",
    "ranks afterwards": "%%ranks\nx = torch.ones(1)\ndist.all_reduce(x)\nint(x)",
    "close": "world.close()",
    "launch, a cell": "run = launch(main, {ranks}, kwargs=dict(SIZES, sharded={cell_sharded}))\nrun[0][-1]",
    "record": "sorted({{call.op for call in run.trace.collectives}})",
    "torchrun": 'terminal("torchrun", "--standalone", "--nproc-per-node", {ranks}, "gpt.py", *{options}, timeout_s=400);',
    "checkpoint": 'gpt.GPT(SIZES["width"], layers=SIZES["layers"]).load_state_dict(torch.load("gpt.pt")["model"])',
}
WAYS = ["one process", "ranks, a module", "launch, a module", "ranks, a cell", "launch, a cell", "torchrun"]


@dataclass(frozen=True)
class Journey:
    ranks: int
    module_sharded: bool
    sizes: dict[str, int]
    limit_s: float


SMALL, FULL = {"steps": 4, "layers": 1, "width": 32}, {"steps": 60, "layers": 2, "width": 64}


@pytest.fixture(
    scope="module",
    params=[
        Journey(2, False, SMALL, 280),
        *(pytest.param(Journey(4, sharded, FULL, 1000), marks=pytest.mark.soak) for sharded in (False, True)),
    ],
    ids=["small", "full", "exchanged"],
)
def journey(request: pytest.FixtureRequest) -> Journey:
    return request.param


@pytest.fixture(scope="module")
def said(journey: Journey, person: Person) -> dict[str, str]:
    """All that each cell put out, by its name in `CELLS`."""
    options = [f"--{name}={value}" for name, value in journey.sizes.items()] + ["--sharded"] * journey.module_sharded
    words = {
        "ranks": journey.ranks, "sizes": journey.sizes, "options": options,
        "module_sharded": journey.module_sharded, "cell_sharded": not journey.module_sharded,
    }  # fmt: skip
    own = {"script", "cell"}  # the script's braces are its own
    cells = [new_code_cell(text if name in own else text.format(**words)) for name, text in CELLS.items()]
    nbformat.write(new_notebook(cells=cells), person.folder / "own_script.ipynb")
    person.types(shlex.join(["worldsize", "run", "own_script.ipynb", "--out", "executed.ipynb"]), limit_s=journey.limit_s)
    executed = nbformat.read(person.folder / "executed.ipynb", as_version=4).cells
    return {name: "\n".join(map(text_of, cell.outputs)) for name, cell in zip(CELLS, executed, strict=True)}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_trains_to_the_loss_of_one_process(said: dict[str, str], journey: Journey, way: str) -> None:
    (alone,) = LOSSES.findall(said["one process"])
    (ranks, first, last) = LOSSES.findall(said[way])[0]
    assert int(ranks) == (1 if way == "one process" else journey.ranks)
    assert float(last) < float(first) and abs(float(last) - float(alone[2])) < ROUNDING


def test_the_progress_bar_is_its_last_state_beside_its_rank(said: dict[str, str], journey: Journey) -> None:
    steps = journey.sizes["steps"]
    assert re.search(rf"^\[rank 0\] 100%.*\| {steps}/{steps} ", said["launch, a cell"], re.MULTILINE)
    assert said["launch, a cell"].count("100%") == said["ranks, a cell"].count("100%") == 1


def test_the_plot_of_rank_0_is_told_where_no_person_looks(said: dict[str, str]) -> None:
    assert "[rank 0] <Figure size 640x480 with 1 Axes>" in said["launch, a cell"]
    assert "<Figure size 640x480 with 1 Axes>" in said["ranks, a cell"]


def test_ranks_go_on_after_a_script_that_ends_its_process_group(said: dict[str, str], journey: Journey) -> None:
    assert re.search(rf"ranks.*\] {journey.ranks}$", said["ranks afterwards"], re.MULTILINE)


def test_the_record_has_what_the_library_sends(said: dict[str, str], journey: Journey) -> None:
    ddp, fsdp2 = {"all_reduce", "broadcast"}, {"all_gather_single", "reduce_scatter_single"}
    assert (ddp if journey.module_sharded else fsdp2) <= set(re.findall(r"'(\w+)'", said["record"]))


def test_the_checkpoint_of_torchrun_fits_a_model_of_one_process(said: dict[str, str]) -> None:
    assert "All keys matched successfully" in said["checkpoint"]


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
