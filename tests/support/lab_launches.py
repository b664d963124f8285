"""What a lab's solution launches when it is executed headlessly: told by the kernel itself, launch by launch."""

import json
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

from tests.support.notebook_runs import built
from worldsize.authoring.headless import run

RUN_TIMEOUT_S = 600
# A first cell, which writes a line of each launch's run into a file.
WITNESS = """
import json
from worldsize.launch.run import Observer, observe
class Witness(Observer):
    def ended(self, run):
        told = [run.state, run.world_size, list(run.hosts), run.trace.total_bytes()]
        with open({path!r}, "a") as file:
            print(json.dumps(told), file=file)
observe(Witness())
"""


def launches(source: Path, folder: Path, first: str = "") -> list[tuple[str, int, list[str], int]]:
    """(state, ranks, hosts, bytes) of each launch of a lab's solution, in order; the code `first` runs before it."""
    folder.mkdir()
    told = folder / "launches"
    notebook = nbformat.reads(built(source)[0], as_version=4)
    notebook.cells.insert(0, new_code_cell(WITNESS.format(path=str(told)) + first, id="witness"))
    path = folder / f"{source.stem}.ipynb"
    nbformat.write(notebook, path)
    run(path, folder / "executed.ipynb", timeout_s=RUN_TIMEOUT_S)
    return [tuple(json.loads(line)) for line in told.read_text().splitlines()]
