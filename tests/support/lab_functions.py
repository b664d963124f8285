"""What a lab's set-up cells and answers define, to be tried beyond what its checks ask for."""

import functools
import json
from pathlib import Path
from types import SimpleNamespace

from worldsize.cells import SETUP

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def lab_functions(source: str) -> SimpleNamespace:
    """The names that a notebook of `solutions/` defines in its set-up cells and exercises."""
    notebook = json.loads((ROOT / "solutions" / source).read_text())
    names: dict = {"__name__": f"cells of {source}"}
    for cell in notebook["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and code.startswith((f"# {SETUP}", "# Exercise")):
            exec(code, names)
    return SimpleNamespace(**names)
