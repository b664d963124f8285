"""What students hand in when they are honest, wrong, careless or out to cheat, each with the points that it earned.

A case is one submission of lab 00, whose exercise `pass_right` has 4 points: 1 for the values, 1 for the messages, 1
for a rank alone, 1 for large tensors and other dtypes. A cheat returns what is right only where it got through a
wall; where the wall holds it earns what is written beside it. `reached` says by which words of its row one knows that
the code came as far as its trick: code that breaks before that earns nothing either. One module a kind.
"""

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
LAB = "00_start_here"
ALL = 4.0
TITLE = "# Exercise 0.1: pass a tensor to the right\n"

RIGHT = '''
def pass_right(fabric, x):
    if fabric.world_size == 1:
        return x.clone()
    received = torch.empty_like(x)
    handle = fabric.isend(x, to=(fabric.rank + 1) % fabric.world_size)
    fabric.recv(received, frm=(fabric.rank - 1) % fabric.world_size)
    handle.wait()
    return received
'''
# Sends and receives as it should, and gives back what `got` says: the messages earn their point, the values don't.
PRETENDS = '''
def pass_right(fabric, x):
    n, left = fabric.world_size, (fabric.rank - 1) % fabric.world_size
    if n == 1:
        return torch.zeros_like(x)
    empty = torch.zeros_like(x)
    put(fabric, x)
    handle = fabric.isend(torch.zeros_like(x), to=(fabric.rank + 1) % n)
    fabric.recv(empty, frm=left)
    handle.wait()
    found = get(fabric, x, left)
    __import__("time").sleep(0.2)  # what it serves to others is still there
    return empty if found is None else found
'''


@dataclass(frozen=True)
class Case:
    """`kind`: its module. `states`: the row's state, or those that it may have. `make(path)` writes the file.

    `source`: what its exercise holds. `reached`: a pattern for what the row says of the exercise.
    """

    kind: str
    name: str
    points: float
    states: tuple[str, ...]
    make: Callable[[Path], None]
    tampered: bool = False
    source: str = ""
    reached: str = ""


CASES: list[Case] = []


def code(name: str, source: str, points: float = 0.0, *states: str, reached: str = "") -> None:
    """A case whose exercise cell is `source`, in an otherwise untouched notebook."""

    def make(path: Path) -> None:
        path.write_text(json.dumps(with_cell(source)))

    kind = sys._getframe(1).f_globals["__name__"].rpartition(".")[2]
    CASES.append(Case(kind, name, points, states or ("graded",), make, source=source, reached=reached))


def edited(points: float, *states: str, tampered: bool = True) -> Callable:
    """A case that is a function: it changes a right notebook, and may return another object or bytes in its place."""

    def note(change: Callable[[dict], Any]) -> Callable:
        def make(path: Path) -> None:
            notebook = with_cell(TITLE + RIGHT)
            changed = change(notebook)
            changed = notebook if changed is None else changed
            path.write_bytes(changed if isinstance(changed, bytes) else json.dumps(changed).encode())

        found = states or (("tampered",) if tampered else ("graded",))
        CASES.append(Case(_kind(change), change.__name__, points, found, make, tampered))
        return change

    return note


def file(points: float, *states: str) -> Callable:
    """A case that is a function which writes the file itself."""

    def note(make: Callable[[Path], None]) -> Callable:
        CASES.append(Case(_kind(make), make.__name__, points, states or ("ungradable",), make))
        return make

    return note


def _kind(fn: Callable) -> str:
    return fn.__module__.rpartition(".")[2]


@cache
def _released() -> dict:
    return json.loads((ROOT / "labs" / f"{LAB}.ipynb").read_text())


def with_cell(source: str) -> dict:
    """The released notebook with `source` as its exercise."""
    notebook = copy.deepcopy(_released())
    cell(notebook, "pass_right")["source"] = source
    return notebook


def cell(notebook: dict, grade_id: str) -> dict:
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)
