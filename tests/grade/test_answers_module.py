"""`worldsize answers`: a notebook's answers as a module that imports by itself, and what is said of what it does without."""

import ast
import builtins
import json
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from typer.testing import CliRunner, Result

from worldsize import cli
from worldsize.cells import statements
from worldsize.errors import NotYet
from worldsize.grade import course
from worldsize.grade.marking.answers_module import AnswersModule, answers_module
from worldsize.pytorch.timed_network import task

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.ipynb"))
TENSORFLOW = ("07", "08", "09")
LIMIT_S = 120

IMPORTS = """
import importlib, json, os, sys
found = {name: [each for each in names if not callable(getattr(importlib.import_module(name), each, None))]
         for name, names in json.load(sys.stdin).items()}
children = open(f"/proc/self/task/{os.getpid()}/children").read().split() if sys.platform == "linux" else []
print(json.dumps([found, "worldsize.notebook" in sys.modules, children]))
"""

TRAINS = """
import torch
import torch.distributed as dist
from lab_11 import bucketed, fill_buckets
from worldsize.fabric import over_group
from worldsize.pytorch.timed_network import loss, network, task

dist.init_process_group("gloo")
rank, fabric = dist.get_rank(), over_group()
given = task(sizes=[6] * 5, steps=60, rate=0.2, seed=3, buckets=fill_buckets([36] * 4, 70))
done = bucketed(fabric, given)
model = network(fabric, given)
for p in model.parameters():
    dist.broadcast(p.detach(), 0)
before = loss(given, rank, model, step=0)
apart = 0.0
for p, mine in zip(model.parameters(), done["weights"]):
    with torch.no_grad():
        p.copy_(mine)
    theirs = mine.clone()
    dist.broadcast(theirs, 0)
    apart = max(apart, float((mine - theirs).abs().max()))
after = loss(given, rank, model, step=0)
print(f"rank {rank} of {dist.get_world_size()}: {apart} apart, learned: {bool(after < before)}\\n", end="")  # in one write
dist.barrier()
dist.destroy_process_group()
"""

SHARDS = """
import torch
import torch.distributed as dist
from lab_12 import sharded_adam
from worldsize.fabric import over_group

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
random = torch.Generator().manual_seed(1)
weights = torch.randn(11, generator=random)
gradients = [[torch.randn(11, generator=random) for _ in range(5)] for _ in range(n)]
alone = weights.clone().requires_grad_()
adam = torch.optim.Adam([alone], lr=0.1)
for each in zip(*gradients):
    alone.grad = sum(each) / n
    adam.step()
sharded_adam(over_group(), (weights, [g.clone() for g in gradients[rank]]), 0.1)
print(f"rank {rank} of {n}: {torch.allclose(weights, alone.detach(), atol=1e-5)}\\n", end="")  # in one write
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def _course_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldsize.grade.marking.answers_module.load", the_course)


@cache
def the_course(root: Path) -> dict[str, course.CourseLab]:
    return course.load(root)


@cache
def module_of(notebook: Path) -> AnswersModule:
    return answers_module(notebook, ROOT)


def worldsize(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def said(answer: Result) -> str:
    return " ".join(answer.output.split())


def stem(notebook: Path) -> str:
    return f"lab_{notebook.name[:2]}"


def write_modules(folder: Path, notebooks: list[Path]) -> dict[str, list[str]]:
    """{module's name: its exercises}."""
    labs = the_course(ROOT)
    names = {}
    for notebook in notebooks:
        (folder / f"{stem(notebook)}.py").write_text(module_of(notebook).text, encoding="utf-8")
        names[stem(notebook)] = [exercise.id for exercise in labs[notebook.stem].exercises]
    return names


def imported_afresh(folder: Path, notebooks: list[Path]) -> None:
    """A fresh process imports each module, finds every exercise in it, and has started nothing by that."""
    names = write_modules(folder, notebooks)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=folder, input=json.dumps(names), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [{name: [] for name in names}, False, []]


def torchrun(folder: Path, program: str) -> list[str]:
    """What both ranks print."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_the_modules_of_all_labs_of_pytorch_import_without_a_notebook(tmp_path: Path) -> None:
    imported_afresh(tmp_path, [notebook for notebook in SOLUTIONS if notebook.name[:2] not in TENSORFLOW])


@pytest.mark.soak
@pytest.mark.parametrize("notebook", SOLUTIONS, ids=stem)
def test_a_labs_module_imports_by_itself(tmp_path: Path, notebook: Path) -> None:
    imported_afresh(tmp_path, [notebook])


@pytest.mark.parametrize("notebook", SOLUTIONS, ids=stem)
def test_a_labs_module_has_all_answers_and_nothing_is_to_be_said(notebook: Path) -> None:
    made = module_of(notebook)
    assert (made.not_yet, made.notes) == ((), ()) and "SOLUTION" not in made.text


@pytest.mark.parametrize("notebook", SOLUTIONS, ids=stem)
def test_a_labs_module_does_nothing_but_define(notebook: Path) -> None:
    plain = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign)
    body = ast.parse(module_of(notebook).text).body[1:]
    assert [ast.unparse(node) for node in body if not isinstance(node, plain)] == []


@pytest.mark.parametrize("notebook", SOLUTIONS, ids=stem)
def test_a_labs_module_has_every_name_that_it_uses(notebook: Path) -> None:
    rows = statements(module_of(notebook).text)
    has = {name for one in rows for name in one.binds} | set(dir(builtins))
    assert {name for one in rows for name in one.now | one.later} - has == set()


@pytest.mark.soak
def test_buckets_train_under_torchrun(tmp_path: Path) -> None:
    write_modules(tmp_path, [notebook for notebook in SOLUTIONS if notebook.name.startswith("11")])
    assert torchrun(tmp_path, TRAINS) == [f"rank {rank} of 2: 0.0 apart, learned: True" for rank in range(2)]


@pytest.mark.soak
def test_sharded_adam_trains_as_adam_does_under_torchrun(tmp_path: Path) -> None:
    write_modules(tmp_path, [notebook for notebook in SOLUTIONS if notebook.name.startswith("12")])
    assert torchrun(tmp_path, SHARDS) == [f"rank {rank} of 2: True" for rank in range(2)]


FILLED = """\
# Exercise 11.3: fill the buckets
def fill_buckets(sizes, cap):
    return grouped(sizes, LEAST * cap)

print(fill_buckets([1, 2], 3))
run = launch(order, 2)
"""
HELPERS = """\
%matplotlib inline
LEAST = 1
TOO_MUCH = launch(order, 1)

def grouped(sizes, cap):
    report(step=len(sizes))
    return [list(range(len(sizes)))[::-1]]

grouped([1], 2)
"""


def lab_11(folder: Path, cells: dict[str, str], *more: str) -> Path:
    """The student's notebook of lab 11 with exercises' cells in the place of stubs, and more cells at its end."""
    path = folder / "11_mine.ipynb"
    notebook = nbformat.read(next((ROOT / "labs").glob("11_*.ipynb")), as_version=4)
    for cell in notebook.cells:
        cell.source = cells.get(cell.id, cell.source)
    notebook.cells += [new_code_cell(source) for source in more]
    nbformat.write(notebook, path)
    return path


def test_a_half_written_notebook_keeps_its_stubs_and_names_them(tmp_path: Path) -> None:
    out = tmp_path / "student.py"
    answer = worldsize("answers", lab_11(tmp_path, {"fill_buckets": FILLED}, HELPERS), "--out", out)
    assert answer.exit_code == 0, answer.output
    assert "not written yet; these raise NotYet: flattened, overlapped, bucketed, wrap_module, accumulate" in said(answer)
    assert "1 answer (fill_buckets)" in said(answer)

    names = runpy.run_path(str(out))
    assert names["fill_buckets"]([4, 8], 3) == [[1, 0]]
    with pytest.raises(NotYet, match=r"Exercise 11\.4"):
        names["bucketed"](SimpleNamespace(rank=0), task())


def test_helpers_come_along_and_what_runs_in_the_notebook_does_not(tmp_path: Path) -> None:
    made = answers_module(lab_11(tmp_path, {"fill_buckets": FILLED}, HELPERS), ROOT)
    text = made.text
    assert "def grouped" in text and "LEAST = 1" in text and "from worldsize.report import report\n" in text
    assert not {"launch", "print", "matplotlib", "TOO_MUCH", "worldsize.notebook"} & set(re.findall(r"[\w.]+", text))
    assert [note for note in made.notes if "run = launch" in note]


def test_what_only_a_run_makes_is_named(tmp_path: Path) -> None:
    cells = {"fill_buckets": "# Exercise 11.3\ndef fill_buckets(sizes, cap):\n    return [[widths[0]]]\n"}
    made = answers_module(lab_11(tmp_path, cells, "widths = launch(order, 1)"), ROOT)
    assert [note for note in made.notes if "Exercise 11.3 uses `widths`" in note and "`widths = launch(order, 1)`" in note]


def test_a_magic_in_an_exercises_cell_stays_behind(tmp_path: Path) -> None:
    cells = {"fill_buckets": "# Exercise 11.3: fill the buckets\n%time 1 + 1\ndef fill_buckets(sizes, cap):\n    return []\n"}
    made = answers_module(lab_11(tmp_path, cells), ROOT)
    assert "fill_buckets" not in made.not_yet and "1 + 1" not in made.text
    compile(made.text, "student.py", "exec")


@pytest.mark.parametrize(
    ("cells", "more", "says"),
    [
        ({"bucketed": "# Exercise 11.4\ndef bucketed(fabric, task):\n    return [1, 2\n"}, "", "the cell of Exercise 11.4"),
        ({"fill_buckets": FILLED}, HELPERS + "\nfor\n", "Exercise 11.3 uses `LEAST` from code cell"),
    ],
    ids=["the exercise", "a helper"],
)
def test_a_cell_that_python_cannot_read_is_named_and_nothing_is_written(
    tmp_path: Path, cells: dict[str, str], more: str, says: str
) -> None:
    out = tmp_path / "student.py"
    answer = worldsize("answers", lab_11(tmp_path, cells, more), "--out", out)
    assert answer.exit_code == 1 and says in said(answer) and "line" in said(answer), answer.output
    assert not out.exists()


def test_a_broken_cell_that_no_exercise_uses_does_no_harm(tmp_path: Path) -> None:
    assert answers_module(lab_11(tmp_path, {"fill_buckets": FILLED}, HELPERS, "for"), ROOT).not_yet


def test_a_module_that_is_there_is_written_over_with_force_alone(tmp_path: Path) -> None:
    out = tmp_path / "student.py"
    out.write_text("mine")
    words = ("answers", SOLUTIONS[0], "--out", out)
    answer = worldsize(*words)
    assert answer.exit_code == 1 and "expected a new file, got an existing one" in said(answer) and out.read_text() == "mine"
    assert worldsize(*words, "--force").exit_code == 0 and "def pass_right" in out.read_text()


def test_a_notebook_without_an_exercise_is_refused(tmp_path: Path) -> None:
    answer = worldsize("answers", ROOT / "labs" / "scratch.ipynb", "--out", tmp_path / "student.py")
    assert answer.exit_code == 1 and "expected a notebook with a lab's exercises" in said(answer)


@pytest.mark.parametrize(("word", "says"), [("77", "expected one of the labs in"), ("no.ipynb", "no.ipynb")])
def test_a_lab_or_a_file_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, says: str
) -> None:
    monkeypatch.chdir(ROOT)
    answer = worldsize("answers", word, "--out", tmp_path / "student.py")
    assert answer.exit_code == 1 and says in said(answer)


@pytest.mark.parametrize("name", ["student.txt", "my-answers.py", "11.py"])
def test_a_file_that_no_program_can_import_is_refused(tmp_path: Path, name: str) -> None:
    answer = worldsize("answers", SOLUTIONS[0], "--out", tmp_path / name)
    assert answer.exit_code == 1 and "expected a module name" in said(answer)
