"""Every door is entered by a journey, or stands in the table below with the reason why no test can enter it."""

import importlib
from pathlib import Path

import pytest

from tests.journeys.doors import NOT_TYPED, blocks, every_door, run_of, typed_doors

pytestmark = pytest.mark.quick

FOLDER = Path(__file__).parent
JOURNEYS = sorted(path.stem for path in FOLDER.glob("test_*.py") if path.stem != Path(__file__).stem)

DOCKER, DOCKER_HUB, SYSTEMD_HUB, COLAB = blocks("docs/platforms.md")
KAGGLE, GPU_REPORT = blocks("docs/two-free-gpus.md")
NOT_ENTERED = {
    DOCKER.door: "needs Docker, and downloads: docs/platforms.md says by what steps the image was tried",
    DOCKER_HUB.door: "configures a hub's DockerSpawner, which needs Docker",
    SYSTEMD_HUB.door: "configures a hub's SystemdSpawner, which needs systemd",
    COLAB.door: "runs on Colab's machines: `tests/test_front_door.py` tries its script",
    KAGGLE.door: "runs on Kaggle's machines: `tests/test_front_door.py` tries its script",
    GPU_REPORT.door: "runs on Kaggle's machines: `tests/gpu/test_report.py` runs its command",
    "make test": "is the suite that enters the doors",
    "make quick": "runs a part of the same suite",
    "make soak": "hours; each part of it is typed each night",
    "make matrix": "installs gigabytes in five environments; each corner is typed each night",
    "make constraints": "downloads the newest versions of all packages",
    "make bench": "minutes for each peer, which `tests/test_bench.py` runs in small",
    "make pages": "its pages are compared with what is made anew: `test_evidence`, `test_teaching_pages`, `test_instructors`",
    "make support": "minutes of TensorFlow; `tests/tf` runs the same trials",
}


def doors_by_journey() -> dict[str, set[str]]:
    """{a journey's module: the doors that it declares}."""
    return {name: set(importlib.import_module(f"{__package__}.{name}").DOORS) for name in JOURNEYS}


def test_every_door_is_entered_by_a_journey_or_says_why_not() -> None:
    entered = set().union(*doors_by_journey().values())
    assert [door for door in every_door() if door not in entered and door not in NOT_ENTERED] == []


def test_a_journey_declares_doors_that_there_are() -> None:
    known = set(every_door())
    assert {name: doors - known for name, doors in doors_by_journey().items() if doors - known} == {}


def test_a_door_that_is_not_entered_is_there_and_no_journey_enters_it() -> None:
    entered = set().union(*doors_by_journey().values())
    assert (set(NOT_ENTERED) - set(every_door()), set(NOT_ENTERED) & entered) == (set(), set())


def test_a_line_that_is_not_typed_stands_in_a_document() -> None:
    documents = {document.partition(", block ")[0] for document in every_door() if ", block " in document}
    lines = {line for document in documents for one in blocks(document) for line in one.commands}
    assert set(NOT_TYPED) - lines == set()


def test_no_two_doors_have_one_name() -> None:
    assert len(every_door()) == len(set(every_door()))


@pytest.mark.parametrize(
    ("command", "doors"),
    [
        ("pip install jupyterlab worldsize-*.whl && worldsize start my-course", ["worldsize start"]),
        ("worldsize run labs/06_ring_all_reduce.ipynb", ["worldsize run", run_of("06")]),
        ("make -o .venv/.lab VENV=.venv lab HEADLESS=1 LAB=06", ["make lab", run_of("06")]),
        ("echo no such thing: worldsize sleep, make coffee", []),
    ],
)
def test_a_typed_command_goes_through_its_doors(command: str, doors: list[str]) -> None:
    assert typed_doors(command) == doors
