"""Every door is entered by a journey, or stands in the table below with the reason why no test can enter it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.journeys.doors import NOT_TYPED, blocks, every_door

pytestmark = pytest.mark.quick

FOLDER = Path(__file__).parent
JOURNEYS = sorted(path.stem for path in FOLDER.glob("test_*.py") if path.stem != Path(__file__).stem)

NOT_ENTERED = {
    "make setup": "installs for minutes; the soak types it in a fresh checkout, `.ci/run` before each run of this suite",
    "make test": "is the suite that enters the doors",
    "make quick": "runs a part of the same suite",
    "make soak": "hours; each part of it is typed each night",
    "make constraints": "downloads the newest versions of all packages",
    "make bench": "minutes for each peer, which `tests/test_bench.py` runs in small",
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
