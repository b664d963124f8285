"""The table of small sizes: it names parameters that the labs have, with other values of their kind."""

import ast
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from tests.labs.quick_parameters import QUICK
from tests.support.notebook_runs import SOURCES, built

pytestmark = pytest.mark.quick
every_lab = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


def parameters_cell(source: Path) -> str:
    notebook = nbformat.reads(built(source)[0], as_version=4)
    [cell] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    return cell.source


def own_values(source: Path) -> dict[str, Any]:
    values = {"torch": torch}
    exec(parameters_cell(source), values)
    return values


def kind_of(value: Any) -> Any:
    """The type of a value, and of the elements of a list."""
    return {type(element) for element in value} if isinstance(value, list) else type(value)


def test_every_lab_has_a_row() -> None:
    assert sorted(QUICK) == [source.stem[:2] for source in SOURCES]


@every_lab
def test_a_parameter_stands_on_a_line_of_its_own_so_that_one_can_be_set(source: Path) -> None:
    targets = [target for line in ast.parse(parameters_cell(source)).body for target in line.targets]
    assert [ast.unparse(target) for target in targets if not isinstance(target, ast.Name)] == []


@every_lab
def test_the_small_sizes_are_of_parameters_that_the_lab_has_and_of_their_kind(source: Path) -> None:
    own, small = own_values(source), QUICK[source.stem[:2]]
    assert {name: kind_of(value) for name, value in small.items()} == {name: kind_of(own.get(name)) for name in small}


@every_lab
def test_no_row_repeats_a_lab_s_own_value(source: Path) -> None:
    own = own_values(source)
    kept = [name for name, value in QUICK[source.stem[:2]].items() if value == own[name]]
    assert kept == []
