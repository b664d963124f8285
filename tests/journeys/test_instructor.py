"""An instructor: a class hands in all labs, one `worldsize grade` marks them, and the other commands of the documents follow.

The class is `class_of_three`. Commands are typed as docs/grading.md and docs/instructors.md print them.
"""

import csv
import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer

from tests.journeys import class_of_three
from tests.journeys.class_of_three import FIRST_NUMBER, LABS, MISTAKEN, SHIPPED, SOLVED
from tests.journeys.doors import Entered, block, blocks, doors_of, grading_of
from tests.journeys.person import Person
from tests.support import gradescope_harness, sample_grades
from tests.support.lms_import import canvas_changes
from worldsize import cli
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.marking import rows
from worldsize.grade.marking.rows import GradeRow

COMMANDS = typer.main.get_command(cli.app).commands
GRADING, GUIDE = blocks("docs/grading.md"), blocks("docs/instructors.md")
EVERY_COMMAND = block("docs/grading.md", ". .venv/bin/activate")
A_TABLE = block("docs/grading.md", "$ worldsize grade")
IN_PART = block("docs/grading.md", "worldsize grade submitted/ --out grades/ --lab 06 --student")
BY_HAND = block("docs/grading.md", "student,lab,points,reason")
MACHINES = block("docs/grading.md", "worldsize grade submitted/ --out grades/ --slurm")
FIRST_MARK = block("docs/instructors.md", "sudo apt-get")
EXAMS = block("docs/instructors.md", "worldsize exam")
DOORS = [
    *doors_of(GRADING), *doors_of(GUIDE), *map(grading_of, (lab.number for lab in LABS.values())),
    *(f"worldsize {name}" for name, command in COMMANDS.items() if command.rich_help_panel == "Instructors"),
]  # fmt: skip
APPEAL = "0123-4567-89ab-cdef"
LIMIT_S = 900.0  # a bound against a hang
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


@pytest.fixture(scope="module", autouse=True)
def _a_sandbox(entered: Entered) -> None:
    try:
        best_mode()
    except NoSandbox as refused:
        entered.skip(DOORS, str(refused))


@dataclass
class Graded:
    """A class's folder after the commands of a block, and what each of them said."""

    person: Person
    said: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.person.folder

    def says(self, begins: str) -> str:
        return next(text for command, text in self.said.items() if command.startswith(begins))

    def rows(self) -> dict[tuple[str, str], GradeRow]:
        """Return {(student, lab's number): row}."""
        found = [rows.read(path) for path in (self.folder / "grades" / "rows").iterdir()]
        return {(row.student, row.lab[:2]): row for row in found}


@pytest.fixture(scope="module")
def graded(person: Person) -> Graded:
    """The first block of docs/grading.md, over the class's notebooks of all labs."""
    class_of_three.hand_in(person.folder / "submitted")
    class_of_three.roster(person.folder / "theirs.csv")
    made = Graded(person)
    for command in EVERY_COMMAND.commands:
        names = {}
        if APPEAL in command:
            page = next(path for path in (person.folder / "feedback" / MISTAKEN).rglob("*.html") if "06_" in str(path))
            names[APPEAL] = re.search(r"appeal number <code>([0-9a-f-]+)", page.read_text())[1]
        made.said |= person.types_lines(command, names=names, limit_s=LIMIT_S)
    person.entered.enter(EVERY_COMMAND.door)
    return made


@pytest.mark.parametrize("stem", LABS)
@pytest.mark.parametrize("student", [SOLVED, MISTAKEN, SHIPPED])
def test_a_lab_has_the_points_that_its_answers_are_worth(graded: Graded, entered: Entered, student: str, stem: str) -> None:
    lab = LABS[stem]
    row = graded.rows()[student, lab.number]
    found = {exercise.id: exercise.points for exercise in row.exercises}
    why = [(e.id, e.state, e.mismatch) for e in row.exercises if e.state != "pass"]
    assert (row.state, row.attempt, found) == ("graded", 1, class_of_three.points(lab, student)), why
    assert (row.points, row.possible) == (sum(found.values()), lab.possible)
    entered.enter(grading_of(lab.number))


def test_who_solved_all_labs_has_all_points_and_who_wrote_nothing_has_none(graded: Graded) -> None:
    by_student = {student: 0.0 for student in (SOLVED, MISTAKEN, SHIPPED)}
    for (student, _), row in graded.rows().items():
        by_student[student] = by_student.get(student, 0.0) + row.points
    assert (by_student[SOLVED], by_student[SHIPPED]) == (sum(lab.possible for lab in LABS.values()), 0.0)


def test_what_is_no_notebook_needs_a_person_and_has_no_mark(graded: Graded) -> None:
    assert graded.says("worldsize grade").count("needs a person (ungradable)") == 1
    with (graded.folder / "grades" / "needs-a-person.csv").open(newline="") as file:
        assert {(line["student"], line["what"]) for line in csv.DictReader(file)} == {(f"late_{FIRST_NUMBER + 3}", "ungradable")}


def test_every_command_of_the_first_block_leaves_what_it_says(graded: Graded) -> None:
    there = {path.name for path in graded.folder.iterdir()}
    assert {"worldsize.zip", "grades", "gradebook.db", "feedback", "class.html", "alike.html", "autograder.zip"} <= there
    pages = list((graded.folder / "feedback").rglob("*.html"))
    assert len(pages) == 3 * len(LABS) + 1


def test_a_table_is_printed_as_the_document_shows_one(graded: Graded, entered: Entered) -> None:
    assert sample_grades.sample_table() in A_TABLE.text
    lines = re.compile(r"^(rows  lab .*students|  mean .* points)$", re.MULTILINE)
    texts = A_TABLE.text, graded.says("worldsize grade")
    shown, printed = ({re.sub(r"[\d.]+|  +", "·", line) for line in lines.findall(text)} for text in texts)
    assert len(shown) == 2 and shown <= printed
    entered.enter(A_TABLE.door)


def test_canvas_takes_the_marks_and_changes_nothing_else(graded: Graded) -> None:
    changes = canvas_changes(graded.folder / "theirs.csv", graded.folder / "grades" / "canvas.csv")
    place = {lab.number: str(88000 + k) for k, lab in enumerate(LABS.values())}
    marks = {}
    for (student, number), row in graded.rows().items():
        if row.state == "graded":
            marks[student.rpartition("_")[2], place[number]] = f"{row.points:.2f}"
    assert changes == marks


def test_an_appeal_comes_to_the_same_mark(graded: Graded) -> None:
    said = graded.says("worldsize appeal")
    assert "the same now" in said and "not the same" not in said


def test_the_most_alike_are_those_who_share_their_answers(graded: Graded) -> None:
    said = graded.says("worldsize similarity")
    assert SOLVED in said and MISTAKEN in said


def test_the_page_of_a_class_names_nobody_and_the_exercises_that_were_missed(graded: Graded) -> None:
    page = (graded.folder / "class.html").read_text()
    assert not any(name in page for name in (SOLVED, MISTAKEN, SHIPPED))
    assert "Exercise 6.5" in page


@pytest.mark.parametrize(
    ("student", "points"),
    [(MISTAKEN, 1.25), *(pytest.param(*row, marks=pytest.mark.soak) for row in ((SOLVED, 6.0), (SHIPPED, 0.0)))],
)
def test_gradescope_gives_the_same_points(
    graded: Graded, container: gradescope_harness.Container, student: str, points: float
) -> None:
    name = "06_ring_all_reduce.ipynb"
    found, said = container.result(lambda folder: shutil.copy(graded.folder / "submitted" / student / name, folder))
    assert (gradescope_harness.faults(found), found["score"]) == ([], points), said


@pytest.fixture(scope="module")
def container(graded: Graded, tmp_path_factory: pytest.TempPathFactory) -> gradescope_harness.Container:
    if why := gradescope_harness.refusal():
        pytest.skip(why)
    return gradescope_harness.Container(graded.folder / "autograder.zip", tmp_path_factory.mktemp("gradescope"))


# a notebook with a mistake and an untouched one, as far as the first check; whole labs, with right ones too, are the soak's
LOSE = (MISTAKEN, SHIPPED)
AUTOGRADED = [
    ("00_start_here", LOSE, False),
    *(
        pytest.param(stem, (SOLVED, *LOSE), True, marks=pytest.mark.soak)
        for stem in ("00_start_here", "02_messages_and_collectives", "04_data_parallelism")
    ),
]


@pytest.mark.parametrize(("stem", "students", "whole"), AUTOGRADED)
def test_nbgrader_s_own_autograde_counts_the_points_of_the_checks(
    entered: Entered, tmp_path: Path, stem: str, students: tuple[str, ...], whole: bool
) -> None:
    """A result that is no number would be full marks to nbgrader."""
    person, lab = Person(tmp_path, entered), LABS[stem]

    def written(folder: str, notebook: dict) -> None:
        if not whole:
            checks = [k for k, cell in enumerate(notebook["cells"]) if "".join(cell["source"]).startswith("check.")]
            del notebook["cells"][checks[0] + 1 :]
        (tmp_path / folder / stem).mkdir(parents=True)
        (tmp_path / folder / stem / f"{stem}.ipynb").write_text(json.dumps(notebook))

    written("source", class_of_three.notebook(lab, SHIPPED))
    for student in students:
        written(f"submitted/{student}", class_of_three.notebook(lab, student, thorough=True))
    person.types(f"nbgrader generate_assignment {stem} --create")
    person.types(f"nbgrader autograde {stem} --create", limit_s=LIMIT_S)
    person.types("nbgrader export --to grades.csv")
    with (tmp_path / "grades.csv").open(newline="") as file:
        found = {line["student_id"]: float(line["raw_score"]) for line in csv.DictReader(file)}
    assert found == {student: sum(class_of_three.points(lab, student, thorough=True).values()) for student in students}


@pytest.mark.soak
def test_a_known_mistake_among_right_answers_costs_its_points_and_no_other(entered: Entered, tmp_path: Path) -> None:
    person = Person(tmp_path, entered)
    class_of_three.hand_in(tmp_path / "submitted", thorough=True)
    person.types(f"worldsize grade submitted --out grades --student {MISTAKEN}", limit_s=LIMIT_S)
    found = {row.lab: {e.id: e.points for e in row.exercises} for row in Graded(person).rows().values()}
    assert found == {stem: class_of_three.points(lab, MISTAKEN, thorough=True) for stem, lab in LABS.items()}


def test_points_given_by_hand_as_shown_reach_sheet_and_page(graded: Graded, entered: Entered) -> None:
    (graded.folder / "grades" / "overrides.csv").write_text(BY_HAND.text)
    for command in EVERY_COMMAND.commands:
        if re.match("worldsize (export|books|feedback)", command):
            assert "bad line" not in graded.person.types(command, limit_s=LIMIT_S)
    changes = canvas_changes(graded.folder / "theirs.csv", graded.folder / "grades" / "canvas.csv")
    assert (changes["4711", "88006"], changes["4712", "88000"]) == ("5.50", "4.00")
    page = next(path for path in (graded.folder / "feedback" / SOLVED).rglob("*.html") if "/06_" in str(path))
    assert "Your instructor gave 5.5 points for this lab" in page.read_text()
    entered.enter(BY_HAND.door)


def test_the_commands_for_a_part_of_a_class_grade_that_part(graded: Graded) -> None:
    alone, crashed, lab = graded.person.types_block(IN_PART, limit_s=LIMIT_S).values()
    assert "0 submissions graded" in alone and "0 submissions graded" in crashed
    assert "3 submissions graded" in lab


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Person:
    """A person in another empty folder."""
    return Person(tmp_path_factory.mktemp("another"), entered)


def test_the_commands_of_the_guide_lead_to_marks_pages_and_a_sheet(another: Person) -> None:
    said = another.types_block(FIRST_MARK, limit_s=LIMIT_S)
    with (another.folder / "grades" / "table.csv").open(newline="") as file:
        points = [float(line["points"]) for line in csv.DictReader(file)]
    assert points[0] == 6 and 0 < min(points) < points[1] < 6
    told = next(text for command, text in said.items() if command.startswith("worldsize sample-class"))
    assert "with a mistake in Exercise 6.5" in told
    assert len(list((another.folder / "feedback").rglob("*.html"))) == 3
    with (another.folder / "grades" / "canvas.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) >= 4


def test_shards_that_are_graded_by_hand_are_one_grading_when_merged(tmp_path: Path, entered: Entered) -> None:
    person = Person(tmp_path, entered)
    person.types("worldsize sample-class submitted --lab 00")
    _, shard, merge = MACHINES.commands
    for number in "12":  # two machines in the place of seven
        person.types(shard.replace("part3", f"part{number}").replace("3/7", f"{number}/2"), limit_s=LIMIT_S)
    person.types(merge.partition(" part3/")[0])
    with (tmp_path / "grades" / "table.csv").open(newline="") as file:
        assert sorted(float(line["points"]) for line in csv.DictReader(file)) == [0.0, 0.0, 4.0]
    entered.enter(MACHINES.door)


def test_an_exam_has_a_text_a_sheet_and_the_forms_of_moodle_and_canvas(another: Person) -> None:
    (another.folder / "names.txt").write_text("Ada Arnold\nBen Bose\n")
    another.types_block(EXAMS)
    made = {name: sorted(path.name for path in (another.folder / name).iterdir()) for name in ("exam", "moodle", "canvas")}
    assert made == {
        "exam": ["Ada_Arnold.txt", "Ben_Bose.txt", "answers"],
        "moodle": ["world_size.moodle.xml"],
        "canvas": ["world_size.qti.zip"],
    }


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
