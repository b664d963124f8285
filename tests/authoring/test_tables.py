"""The minutes of labs in the README and in the instructors' table of days: written by a build, and nothing beside them."""

from pathlib import Path

import pytest

from tests.support.sample_source import course
from worldsize.authoring.build import build
from worldsize.authoring.minutes import workload
from worldsize.authoring.source import read_source
from worldsize.authoring.tables import of_days, of_labs

pytestmark = pytest.mark.quick

LABS = """| lab | title | minutes | points |
| --- | --- | ---: | ---: |
| 04 | [Data parallelism: 2 ways](labs/04_data.ipynb) | 125 | 6 |
| 06 | [Ring all-reduce](labs/06_ring.ipynb) | 160 | 6 |
"""
DAYS = """| week | a lab a week | handed in |
| --- | --- | --- |
| 4 | 04 Data parallelism | 06 |

| day | five days | minutes in the notebooks |
| --- | --- | --- |
| 1 | 04, 06 | 285 |
| 2 | 15, then 06 as a race | 295 |

| 06 | 1.1 | 15 |
"""


def test_a_labs_row_has_its_minutes_and_the_rest_stays():
    assert of_labs(LABS, {"06": 185}) == LABS.replace("160", "185")


def test_a_day_has_the_sum_of_its_labs_and_other_tables_stay():
    made = of_days(DAYS, {"04": 125, "06": 185, "15": 100})
    assert made == DAYS.replace("| 285 |", "| 310 |").replace("| 295 |", "| 285 |")


def test_a_day_with_a_lab_that_is_not_there_stays():
    assert of_days(DAYS, {"06": 185}) == DAYS


def documents(root: Path) -> list[Path]:
    (root / "docs").mkdir()
    readme, days = root / "README.md", root / "docs" / "instructors.md"
    readme.write_text(LABS)
    days.write_text(DAYS.replace("15, then 06", "06"))
    return [readme, days]


def test_a_build_writes_the_minutes_into_both_documents_once(tmp_path):
    minutes = workload(read_source(course(tmp_path))).minutes
    readme, days = documents(tmp_path)
    assert {readme, days} <= set(build(tmp_path))
    assert readme.read_text() == LABS.replace("160", str(minutes))
    assert f"| 2 | 06 as a race | {minutes} |" in days.read_text()
    assert build(tmp_path) == []


def test_a_check_names_a_document_with_other_minutes_and_leaves_it(tmp_path):
    course(tmp_path)
    build(tmp_path)
    both = documents(tmp_path)
    assert build(tmp_path, check=True) == both
    assert both[0].read_text() == LABS
