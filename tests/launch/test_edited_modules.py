"""Modules of the user's own that are edited while ranks stay, or after the notebook has imported them."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from worldsize.engines.ranks.edited_modules import EditedModules
from worldsize.launch import launch
from worldsize.ranks import OpenRanks, open_ranks

NAME = "a_module_of_the_user"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Writes the module, whose function returns the number of digits in its text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda value: (tmp_path / f"{NAME}.py").write_text(f"VALUE = {value}\ndef value():\n    return VALUE\n")
    sys.modules.pop(NAME, None)


def test_a_launch_notes_that_the_notebook_has_an_older_text(write):
    write(1)
    value = importlib.import_module(NAME).value
    assert launch(value, 1).notes == []
    write(22)
    run = launch(value, 1)
    assert run.results == [22] and value() == 1
    assert any(f"{NAME}: edited since the import" in note for note in run.notes)
    assert launch(value, 1).notes == []

    write(333)
    value = importlib.reload(sys.modules[NAME]).value
    run = launch(value, 1)
    assert (run.results, value(), run.notes) == ([333], 333, [])


@pytest.fixture
def two() -> Iterator[OpenRanks]:
    with open_ranks(2) as world:
        yield world


def test_ranks_that_stay_reload_what_was_edited_also_objects_imported_from_it(two, write):
    write(1)
    two.run(f"import {NAME}\nfrom {NAME} import value")  # the path came after the ranks were opened
    write(22)
    assert two[f"value(), {NAME}.value()"] == [(22, 22)] * 2
    write(333)
    assert f"reloaded {NAME}" in two.run("x = value()").log(0)
    assert two["x"] == [333, 333]


def test_a_module_that_cannot_be_reloaded_stays_and_is_named(two, write):
    write(1)
    two.run(f"import {NAME}")
    Path(sys.path[0], f"{NAME}.py").write_text("def value(:\n")
    run = two.run(f"x = {NAME}.value()")
    assert f"{NAME} was edited, but cannot be reloaded: SyntaxError" in run.log(1)
    assert two["x"] == [1, 1]


def test_the_notebooks_environment_and_directory_reach_open_ranks(two, monkeypatch, tmp_path):
    two.run("import os\nos.environ['OWN'] = 'kept'")
    before = two["os.environ['RANK'], os.environ['MASTER_PORT']"]
    monkeypatch.setenv("A_VARIABLE", "1")
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "INFO")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.chdir(tmp_path)
    values = two["os.environ['A_VARIABLE'], os.environ['OWN'], os.getcwd(), str(dist.get_debug_level()), torch.get_num_threads()"]
    assert values == [("1", "kept", str(tmp_path), "DebugLevel.INFO", 3)] * 2
    assert two["os.environ['RANK'], os.environ['MASTER_PORT']"] == before
    monkeypatch.delenv("A_VARIABLE")
    assert two["os.environ.get('A_VARIABLE')"] == [None, None]


@pytest.mark.parametrize("gone", ["", "newest", "before"])
def test_imports_are_noted_also_after_others_are_gone(tmp_path, monkeypatch, gone):
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = EditedModules.since_now()
    names = {"before": f"{NAME}_before", "newest": f"{NAME}_newest", "later": f"{NAME}_later"}
    write_and_import(tmp_path, names["before"])
    write_and_import(tmp_path, names["newest"])
    modules.note()
    if gone:
        del sys.modules[names[gone]]
    write_and_import(tmp_path, names["later"])
    modules.note()
    for name in names.values():
        (tmp_path / f"{name}.py").write_text("VALUE = 22\n")
    assert modules.edited() == sorted(names[part] for part in names if part != gone)
    for name in names.values():
        sys.modules.pop(name, None)


def test_what_a_reload_imports_is_noted_though_the_reloaded_module_comes_after_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    modules, outer, inner = EditedModules.since_now(), f"{NAME}_outer", f"{NAME}_inner"
    write_and_import(tmp_path, outer)
    modules.note()
    (tmp_path / f"{inner}.py").write_text("VALUE = 1\n")
    (tmp_path / f"{outer}.py").write_text(f"import {inner}\n")
    importlib.invalidate_caches()
    importlib.reload(sys.modules[outer])
    modules.note()
    (tmp_path / f"{inner}.py").write_text("VALUE = 22\n")
    assert inner in modules.edited()
    for name in (outer, inner):
        sys.modules.pop(name, None)


def write_and_import(folder: Path, name: str) -> None:
    (folder / f"{name}.py").write_text("VALUE = 1\n")
    importlib.invalidate_caches()
    importlib.import_module(name)
