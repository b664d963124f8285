"""Lab 06's solution as the browser tests run it: small, with code cells after its own."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from tests.labs.quick_parameters import QUICK
from worldsize.authoring import build

ROOT = Path(__file__).resolve().parents[2]
# the sleep paces the reports, so that the live view draws many of them while its ranks run
LIVE = """\
def train(seconds=2.5):
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end:
        step += 1
        print("step", step)
        report(step=step, loss=1 / step)
        time.sleep(0.02)  # a step's work
run = launch(train, 4)"""
# its ranks have no end of their own: the tests interrupt them
LONG = "def sleep_long():\n    print('asleep')\n    time.sleep(1000)\nlaunch(sleep_long, 2, timeout_s=1000)"
# the sections that are run: with a step-through each; of the others the set-up cells and the exercises alone
RUN = ("Why ranks must add up", "One server", "Where the bytes go", "Round a ring", "What you predicted, and what came out")
# of the lab's own knobs each draws what took a race of many launches
KNOB = """\
def turned(ranks=4):
    return figures.messages(launch(add_up, ranks, args=(parameter_server, 1000)))
knobs(turned, ranks=[2, 3, 4])"""
ADDED = {"browser-knob": KNOB, "browser-live": LIVE, "browser-after": "print('the kernel answers', 6 * 7)"}


def write(path: Path, added: dict[str, str], labs_cells: int | None = None, sections: tuple[str, ...] = RUN) -> None:
    """Lab 06's solution with small parameters, or its first code cells, and code cells after its own.

    Of its checks, which take longest, the first alone is there, and of its sections `sections`: as a rule those with something to
    move.
    """
    notebook = nbformat.reads(build.notebooks(ROOT / "solutions" / "06_ring_all_reduce.py")[0], as_version=4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", ()):
            cell.source += "".join(f"\n{name} = {value!r}" for name, value in QUICK["06"].items())
    checks = [cell for cell in notebook.cells if any(tag.startswith("check:") for tag in cell.metadata.get("tags", ()))]
    assert len(checks) > 1
    notebook.cells = [cell for cell in _of_sections(notebook.cells, sections) if cell not in checks[1:]]
    if labs_cells is not None:
        notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"][:labs_cells]
    notebook.cells += [new_code_cell(source, id=id) for id, source in added.items()]
    nbformat.write(notebook, path)


def _of_sections(cells: list[NotebookNode], sections: tuple[str, ...]) -> Iterator[NotebookNode]:
    """The cells of these sections, and of the others what those need."""
    section, met = None, set()
    for cell in cells:
        heading = re.match(r"##+ (.+)", cell.source) if cell.cell_type == "markdown" else None
        if heading:
            section = heading[1]
            met.add(section)
        if section in (None, *sections) or cell.source.startswith(("# Set-up", "# Exercise")):
            yield cell
    assert met.issuperset(sections), met


def outputs(path: Path, cell: str) -> list[dict]:
    """The outputs of one cell of a notebook's file."""
    return next(c["outputs"] for c in json.loads(path.read_text())["cells"] if c["id"] == cell)
