"""What honest students hand in, each right, each in a way of its own: not one point may be lost.

A submission is a notebook of lab 00, or of lab 06 where several exercises share a helper, made from the release's by small
builders. One module a kind; `tests/grade/test_honest.py` grades them all in one batch.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.grade import cheats
from tests.grade.cheats import TITLE
from worldsize.grade import course

ROOT = Path(__file__).resolve().parents[3]
START, RING = "00_start_here", "06_ring_all_reduce"
POINTS = {START: 4.0, RING: 6.0}
BODY = cheats.RIGHT.split("\n", 2)[2]
RIGHT = TITLE + "def pass_right(fabric, x):\n" + BODY
HELPED = TITLE + "def pass_right(fabric, x):\n    return exchange(fabric, x)\n"
HELPER = "def exchange(fabric, x):\n" + BODY


@dataclass(frozen=True)
class Honest:
    """A right submission. `make(path)` writes its file."""

    name: str
    lab: str
    make: Callable[[Path], None]


SUBMISSIONS: list[Honest] = []


def hand_in(name: str, data: dict[str, Any] | bytes, lab: str = START) -> None:
    """A submission whose file is this notebook, or these bytes."""
    found = data if isinstance(data, bytes) else json.dumps(data).encode()
    SUBMISSIONS.append(Honest(name, lab, lambda path: path.write_bytes(found)))


@cache
def _released(lab: str) -> dict[str, Any]:
    return json.loads((ROOT / "labs" / f"{lab}.ipynb").read_text())


@cache
def ring() -> course.CourseLab:
    return course.load(ROOT)[RING]


def notebook(source: str = RIGHT, above: str = "", below: str = "", first: str = "") -> dict[str, Any]:
    """Lab 00 with `source` as its exercise; own cells right above it, right below it, and at the top of the notebook."""
    made = copy.deepcopy(_released(START))
    place = made["cells"].index(cell(made, "pass_right"))
    made["cells"][place]["source"] = source
    for text, where in ((below, place + 1), (above, place), (first, 0)):
        if text:
            made["cells"].insert(where, own(text))
    return made


def ring_notebook(sources: dict[str, str], *above_all: str) -> dict[str, Any]:
    """Lab 06, every exercise solved, those of `sources` in this way; own cells above the first."""
    made = copy.deepcopy(_released(RING))
    for exercise in ring().exercises:
        cell(made, exercise.id)["source"] = sources.get(exercise.id, exercise.reference)
    place = made["cells"].index(cell(made, ring().exercises[0].id))
    made["cells"][place:place] = [own(text) for text in above_all]
    return made


def own(source: str, **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 3, "source": source, **more}


def cell(made: dict[str, Any], grade_id: str) -> dict[str, Any]:
    return next(c for c in made["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)
