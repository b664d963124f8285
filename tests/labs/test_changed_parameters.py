"""A number of ranks that a student changes in a lab's parameters: three works, or the lab says at once which do.

Three, since it is odd and divides no power of two. With small sizes else, as in the quick runs. Other numbers are tried by hand.
"""

import re
from pathlib import Path

import pytest

from tests.labs.quick_parameters import QUICK
from tests.support.notebook_runs import RUN_TIMEOUT_S, SOURCES, built
from worldsize.authoring.headless import NotebookFailed, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(RUN_TIMEOUT_S + 60)]
THREE = 3
COUNTS = {  # parameters that count ranks, workers, stages, towers, replicas or cards
    "00": ("few_ranks", "many_ranks"), "03": ("stages",), "04": ("ranks",), "05": ("few", "workers"), "06": ("ranks",),
    "07": ("towers",), "08": ("replicas",), "09": ("workers",), "10": ("cards",), "11": ("ranks",),
    "13": ("ranks", "noise_ranks"), "14": ("ranks",),
}  # fmt: skip
DIVISORS = {"12": "ranks", "17": "ranks"}  # of the number of heads
SOURCE = {source.stem[:2]: source for source in SOURCES}


def solved(lab: str, folder: Path) -> Path:
    path = folder / f"{SOURCE[lab].stem}.ipynb"
    path.write_text(built(SOURCE[lab])[0], encoding="utf-8")
    return path


@pytest.mark.parametrize(("lab", "name"), [(lab, name) for lab, names in COUNTS.items() for name in names])
def test_a_solution_runs_with_three(lab: str, name: str, tmp_path: Path) -> None:
    given = QUICK[lab] | {name: THREE}
    assert run(solved(lab, tmp_path), tmp_path / "executed.ipynb", given, RUN_TIMEOUT_S).cells


@pytest.mark.parametrize(("lab", "name"), DIVISORS.items())
def test_a_lab_that_cannot_use_three_says_so_in_its_second_cell_of_code(lab: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(NotebookFailed, match=re.escape(f"{name} = {THREE}: expected 2, 4 or 8")):
        run(solved(lab, tmp_path), tmp_path / "executed.ipynb", QUICK[lab] | {name: THREE}, RUN_TIMEOUT_S)


def test_every_parameter_that_counts_ranks_is_tried() -> None:
    counted = r"^(few_ranks|many_ranks|ranks|workers|stages|towers|replicas|cards|few|noise_ranks) = (?!\[)"
    for lab, source in SOURCE.items():
        cell = re.search(r'tags=\["parameters"\]\n(.*?)\n\n', source.read_text(), re.DOTALL)
        assert cell, lab
        names = {found[1] for found in re.finditer(counted, cell[1], re.MULTILINE)}
        tried = {*COUNTS.get(lab, ()), *filter(None, [DIVISORS.get(lab)])}
        assert names == tried, lab
