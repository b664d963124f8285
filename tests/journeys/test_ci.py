"""Continuous integration of a course: every solution by papermill with small sizes, and a few by Jupyter's own programs.

`notebook_runs` executes each once, in a kernel of its own, for all tests that look at it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbformat
import pytest

from tests.journeys.doors import ROOT, Entered, run_of
from tests.journeys.person import Person, output_of
from tests.labs.quick_parameters import QUICK
from tests.support import notebook_rules as rules
from tests.support.notebook_runs import RUN_TIMEOUT_S, Execute, each_run
from worldsize.authoring.source import points
from worldsize.lab.lab import LABS

DOORS = [run_of(number) for number in LABS]

pytestmark = pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)


@each_run("quick")
def test_a_solution_with_small_sizes_earns_every_point(source: Path, kind: str, execute: Execute, entered: Entered) -> None:
    done = execute(source, kind)
    assert (done.points, done.possible) == (points(source), points(source))
    entered.enter(run_of(source.stem[:2]))


# a lab of PyTorch as it is, another with small sizes, and one of TensorFlow
@pytest.mark.parametrize(
    ("lab", "command"),
    [
        ("00", "jupyter execute --inplace ../course/labs/{}"),
        ("06", "jupyter nbconvert --to notebook --execute --inplace ../course/labs/{}"),
        ("07", "jupyter execute --inplace ../course/labs/{}"),
    ],
    ids=["00 by execute", "06 by nbconvert", "07 by execute"],
)
def test_jupyter_s_own_programs_run_a_solution_from_another_folder(person: Person, lab: str, command: str) -> None:
    labs = person.folder.with_name("course") / "labs"
    labs.mkdir(parents=True, exist_ok=True)
    source = next((ROOT / "solutions").glob(f"{lab}_*.ipynb"))
    (labs / "sizes.yaml").write_text(json.dumps(QUICK[lab]))  # JSON is YAML
    if QUICK[lab]:
        person.types(f"papermill --prepare-only --no-progress-bar -f {labs}/sizes.yaml {source} {labs / source.name}")
    else:
        shutil.copy(source, labs)

    person.types(command.format(source.name), limit_s=RUN_TIMEOUT_S)

    executed = nbformat.read(labs / source.name, as_version=4)
    assert rules.errors(executed) == []
    assert f"points: {LABS[lab].points} of {LABS[lab].points}" in output_of(executed)


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
