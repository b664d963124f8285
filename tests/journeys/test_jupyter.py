"""A notebook user: labs run by Jupyter's own programs, from another folder than their own.

`papermill --prepare-only` writes the small sizes into the notebooks, and the programs know nothing of them.
"""

import json
import shutil

import nbformat
import pytest

from tests.journeys.doors import ROOT, Entered, run_of
from tests.journeys.person import Person, output_of
from tests.labs.quick_parameters import QUICK
from tests.support import notebook_rules as rules
from worldsize.lab.lab import LABS

EXECUTE, NBCONVERT = "jupyter execute --inplace", "jupyter nbconvert --to notebook --execute --inplace"
PROGRAMS = {"00": EXECUTE, "17": NBCONVERT, "07": EXECUTE}
SOAK = ("00", "07")  # a student's journey runs the first lab in a kernel; TensorFlow takes as long as both others
DOORS = [run_of(lab) for lab in PROGRAMS]
LIMIT_S = 400.0
pytestmark = pytest.mark.timeout(LIMIT_S + 60)


@pytest.mark.parametrize(
    ("lab", "program"), [pytest.param(*row, marks=[pytest.mark.soak] * (row[0] in SOAK)) for row in PROGRAMS.items()]
)
def test_a_solution_earns_every_point_by_jupyter_s_own_program(person: Person, lab: str, program: str) -> None:
    labs = person.folder.with_name("course") / "labs"
    labs.mkdir(parents=True, exist_ok=True)
    source = next((ROOT / "solutions").glob(f"{lab}_*.ipynb"))
    notebook = labs / source.name
    shutil.copy(source, notebook)
    if QUICK[lab]:
        (labs / "sizes.yaml").write_text(json.dumps(QUICK[lab]))  # JSON is YAML
        person.types(f"papermill --prepare-only --no-progress-bar -f {labs}/sizes.yaml {notebook} {notebook}")

    person.types(f"{program} ../course/labs/{notebook.name}", limit_s=LIMIT_S)

    executed = nbformat.read(notebook, as_version=4)
    assert rules.errors(executed) == []
    assert f"points: {LABS[lab].points} of {LABS[lab].points}" in output_of(executed)
    person.entered.enter(run_of(lab))


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.closed |= {run_of(lab): "runs in the soak" for lab in SOAK}
    entered.check()
