"""An instructor's journey: the commands of docs/grading.md as they stand there, over a class of seven labs."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import a_class
from tests.support.lms_import import canvas_changes
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]
ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
STUDENTS = 9
_HANG_S = 900  # a bound against a hang
READY = [". .venv/bin/activate", "pip install -c constraints.txt -e '.[instructor]'"]  # the environment that runs the tests is
APPEAL = "0123-4567-89ab-cdef"


def block(title: str, kind: str = "sh") -> list[str]:
    """The lines of the first block in a section of the docs, without what is said beside them."""
    section = TEXT.partition(f"\n## {title}\n")[2] if title else TEXT
    found = re.search(rf"```{kind}\n(.*?)```", section, re.DOTALL)
    return [line if kind == "csv" else line.partition(" #")[0].rstrip() for line in found[1].splitlines()]


@dataclass
class Journey:
    """A folder with a class's files, and what each command of the docs said there."""

    folder: Path
    said: dict[str, str]

    def run(self, commands: list[str], names: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        for command in commands:
            typed = command
            for name, value in (names or {}).items():
                typed = typed.replace(name, value)
            done = subprocess.run(
                ["sh", "-c", typed], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=_HANG_S
            )
            assert done.returncode == 0, f"{typed}\n{done.stdout}{done.stderr}"
            self.said[command] = done.stdout + done.stderr

    def table(self) -> dict[str, dict[str, str]]:
        with (self.folder / "grades" / "table.csv").open(newline="") as file:
            return {line["student"]: line for line in csv.DictReader(file)}

    def pages(self) -> list[Path]:
        return sorted((self.folder / "feedback").rglob("*.html"))


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    """The first block of the docs, line by line, from where the environment is made and activated."""
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    made = Journey(tmp_path_factory.mktemp("journey"), {})
    a_class.hand_in(made.folder / "submitted", STUDENTS)
    a_class.roster(made.folder / "theirs.csv", STUDENTS)
    commands = block("")
    assert commands[:2] == READY
    del commands[:2]
    asked = next(command for command in commands if APPEAL in command)
    made.run(commands[: commands.index(asked)])
    number = re.search(r"appeal number <code>([0-9a-f-]+)", made.pages()[0].read_text())[1]
    made.run(commands[commands.index(asked) :], {APPEAL: number})
    return made


def test_every_command_of_the_first_block_leaves_what_it_says(journey):
    there = {path.name for path in journey.folder.iterdir()}
    assert {"worldsize.zip", "grades", "gradebook.db", "feedback", "alike.html", "autograder.zip"} <= there
    assert len(journey.pages()) == STUDENTS + 2


def test_who_solved_a_lab_has_all_its_points_and_what_needs_a_person_is_named(journey):
    table = journey.table()
    assert (table["doejane_4711"]["points"], table["doejane_4711"]["possible"]) == ("6", "6")
    said = next(text for command, text in journey.said.items() if command.startswith("worldsize grade"))
    assert said.count("needs a person (ungradable)") == 2
    assert {line["state"] for line in table.values()} == {"graded", "ungradable"}


def test_canvas_takes_the_marks_and_changes_nothing_else(journey):
    changes = canvas_changes(journey.folder / "theirs.csv", journey.folder / "grades" / "canvas.csv")
    marks = {name.rpartition("_")[2]: f"{float(line['points']):.2f}" for name, line in journey.table().items() if line["points"]}
    assert {student: mark for (student, _), mark in changes.items()} == marks


def test_an_appeal_comes_to_the_same_mark(journey):
    said = next(text for command, text in journey.said.items() if command.startswith("worldsize appeal"))
    assert "the same now" in said and "not the same" not in said


def test_points_given_as_the_docs_show_them_reach_sheet_and_page(journey):
    (journey.folder / "grades" / "overrides.csv").write_text("\n".join(block("Points by hand", "csv")) + "\n")
    again = [command for command in block("") if re.match("worldsize (export|books|feedback)", command)]
    journey.run(again)
    assert all("bad line" not in journey.said[command] for command in again)
    changes = canvas_changes(journey.folder / "theirs.csv", journey.folder / "grades" / "canvas.csv")
    assert changes["4711", "88000"] == "5.50" and changes["4712", "88001"] == "4.00"
    page = next(path for path in journey.pages() if path.name.startswith("doejane_4711"))
    assert "Your instructor gave 5.5 points for this lab" in page.read_text()


def test_the_commands_for_a_part_of_a_class_grade_that_part(journey):
    journey.run(block("Again, and in part"))
    alone, crashed, lab = (journey.said[command] for command in block("Again, and in part"))
    assert "0 submissions graded" in alone and "0 submissions graded" in crashed
    assert re.search(r"\b[23] submissions graded", lab)
