"""Points that a person gave reach what goes out, and an appeal finds its row; what cannot be read is named by its line."""

import csv
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.gradebook import LABS, RING, START, enter, row
from worldsize import cli
from worldsize.grade.marking import by_hand
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.rows import GradeRow, write
from worldsize.grade.nbgrader import hand_points, scores
from worldsize.grade.reports import appeal, canvas_csv, needs_a_person
from worldsize.grade.reports.feedback_page import appeal_number

ROOT = Path(__file__).resolve().parents[2]
NOTHING = GradeRow("noa_6", "", "noa_6", "ungradable", reason="no notebook was handed in")
ROWS = [row("anna_1"), row("anna_1", lab=START), row("ben_2"), NOTHING]
HEADS = "student,lab,points,reason\n"


@pytest.fixture
def grades(tmp_path: Path) -> Path:
    for one in ROWS:
        write(one, tmp_path / "grades" / "rows")
    return tmp_path / "grades"


def worldsize(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def filled(command: str, grades: Path) -> list[object]:
    """The words of a command, with the folder of its grades."""
    more = {"books": ["--gradebook", grades.parent / "gradebook.db"], "feedback": ["--to", grades.parent / "pages"]}
    return [command, grades, "--course", ROOT, *more.get(command, [])]


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def canvas_lines(grades: Path) -> dict[str, list[str]]:
    return {line[0]: line[1:] for line in csv.reader((grades / "canvas.csv").read_text().splitlines())}


def test_points_of_the_file_go_out_and_the_row_stays(grades):
    (grades / "overrides.csv").write_text(f'{HEADS}anna_1,06,5.5,"the check, was wrong"\n6,00,3,by mail\n\n')
    answer = worldsize("export", grades, "--course", ROOT)
    assert answer.exit_code == 0 and "points given by hand: 2" in answer.output
    lines = canvas_lines(grades)
    assert [lines[name][-2:] for name in ("anna", "ben", "noa")] == [["0.5", "5.5"], ["", "2.5"], ["3", ""]]
    assert "noa_6" not in (grades / needs_a_person.FILE).read_text()  # somebody has looked at it
    worldsize("export", grades, "--lab", "06", "--course", ROOT)
    sheet = list(csv.reader((grades / f"moodle.{RING}.csv").read_text().splitlines()))
    assert sheet[1][:4] == ["Participant 1", "anna", "5.5", "6"] and "6 points. the check, was wrong" in sheet[1][5]


def test_the_command_that_writes_pages_shows_how_many_of_how_many_are_done(grades, tmp_path):
    answer = worldsize("feedback", grades, "--to", tmp_path / "pages", "--course", ROOT)
    assert f"{len(ROWS)}/{len(ROWS)}" in answer.stderr


def test_a_page_says_the_points_and_the_reason(grades, tmp_path):
    (grades / "overrides.csv").write_text(f"{HEADS}anna_1,06,5.5,<b>late bus</b>\n")
    assert worldsize("feedback", grades, "--to", tmp_path / "pages", "--course", ROOT).exit_code == 0
    page = (tmp_path / "pages" / "anna_1" / f"{RING}.html").read_text()
    assert "Your instructor gave 5.5 points for this lab" in page and "&lt;b&gt;late bus" in page
    assert "Your instructor gave" not in (tmp_path / "pages" / "ben_2" / f"{RING}.html").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: expected the heads student,lab,points,reason, got 'nothing'"),
        ("name,points\n", "line 1: expected the heads.*got 'name,points'"),
        ("\udcff", "expected a CSV such as"),
    ],
)
@pytest.mark.parametrize("command", ["export", "books", "feedback"])
def test_a_file_that_is_no_such_csv_is_named_and_nothing_is_written(grades, tmp_path, command, text, words):
    (grades / "overrides.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    before = files_in(tmp_path)
    answer = worldsize(*filled(command, grades))
    assert answer.exit_code == 1 and re.search(words, " ".join(answer.output.split()))
    assert files_in(tmp_path) == before


BAD = {
    "anna_1,06,5": r"line 2: expected 4 fields (student, lab, points, reason), got 3",
    "dora,06,5,x": "line 2: expected a student's name as in table.csv, or an LMS number, got 'dora': none in this grading",
    "1,99,5,x": "line 2: expected a lab of the course, such as 06, got '99'",
    "1,06,many,x": "line 2: expected points as a number of at least 0, got 'many'",
    "1,06,-1,x": "line 2: expected points as a number of at least 0, got '-1'",
    "1,06,nan,x": "line 2: expected points as a number of at least 0, got 'nan'",
    "1,06,99,x": f"line 2: expected at most the 6 points of {RING}, got 99. Enter a bonus where you publish marks.",
    "1,06,5,": "line 2: expected a reason to tell the student, got none",
    "1,06,5,x\nanna_1,06,4,x": f"line 3: expected one line for anna_1 in {RING}, got a second one with other points: neither",
}


@pytest.mark.parametrize("line", BAD)
def test_a_line_that_cannot_be_read_is_listed_and_hinders_no_other(grades, line):
    (grades / "overrides.csv").write_text(f"{HEADS}{line}\n2,06,3,late bus\n")
    found = by_hand.read(grades, ROWS, LABS)
    assert list(found.given) == [("ben_2", RING)] and [BAD[line] in words for words in found.bad] == [True]


@pytest.mark.parametrize("command", ["export", "books", "feedback"])
def test_every_command_goes_on_without_a_bad_line_and_lists_it(grades, tmp_path, empty_gradebook, command):
    shutil.copy(empty_gradebook, tmp_path / "gradebook.db")
    (grades / "overrides.csv").write_text(f"{HEADS}dora,06,5,x\nben_2,06,3,late bus\n")
    answer = worldsize(*filled(command, grades))
    assert answer.exit_code == 0, answer.output
    rows = csv.reader((grades / needs_a_person.FILE).read_text().splitlines())
    assert ["bad line"] == [row[2] for row in rows if "got 'dora': none in this grading" in row[3]]


def scores_in(gradebook: Path) -> dict[tuple[str, str], float]:
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{gradebook}") as book:
        return {(s.student.id, a.name): s.score for a in book.assignments for s in a.submissions}


@pytest.fixture
def books(grades: Path, tmp_path: Path, empty_gradebook: Path) -> Callable[[str], Result]:
    """Write the books with such lines in overrides.csv."""
    shutil.copy(empty_gradebook, tmp_path / "gradebook.db")

    def write_books(lines: str) -> Result:
        (grades / "overrides.csv").write_text(HEADS + lines)
        answer = worldsize(*filled("books", grades))
        assert answer.exit_code == 0, answer.output
        return answer

    return write_books


def test_points_given_by_hand_reach_the_gradebook_follow_the_file_and_leave_with_it(books, tmp_path):
    found = []
    for lines in ("anna_1,06,5.5,<b>late bus</b>\n", "anna_1,06,1,x\n", "anna_1,06,2.5,the sum\n", ""):
        books(lines)
        found.append(scores_in(tmp_path / "gradebook.db")["anna_1", RING])
    assert found == [5.5, 1.0, 2.5, 2.5]


def test_the_reason_stands_in_the_comment_with_no_markup(books, tmp_path):
    books("anna_1,06,5.5,<b>late bus</b>\n")
    with closing(sqlite3.connect(tmp_path / "gradebook.db")) as book:
        (comment,) = [text for (text,) in book.execute("SELECT auto_comment FROM comment") if text and "late bus" in text]
    assert "<" not in comment and comment.endswith("extra credit +3 by overrides.csv")


def test_books_written_again_change_nothing(books, tmp_path):
    books("anna_1,06,5.5,x\n")
    before = (tmp_path / "gradebook.db").read_bytes()
    assert "wrote 0 scores" in books("anna_1,06,5.5,x\n").output
    assert (tmp_path / "gradebook.db").read_bytes() == before


def test_a_submission_without_a_score_gets_the_points_too(tmp_path, empty_gradebook):
    path = Path(shutil.copy(empty_gradebook, tmp_path / "gradebook.db"))
    given = {("anna_1", RING): by_hand.ByHand(3.0, "by mail")}
    for points in (given, given, {}):
        scores.write([row("anna_1", state="ungradable")], path, LABS, ROOT, given=points)
        assert scores_in(path)["anna_1", RING] == (3.0 if points else 0.0)


def test_points_by_hand_in_formgrader_stay_and_a_person_is_told(grades, gradebook):
    (grades / "overrides.csv").write_text(f"{HEADS}anna_1,06,6,x\n")
    answer = worldsize("books", grades, "--gradebook", gradebook, "--course", ROOT)
    assert scores_in(gradebook)["anna_1", RING] == 5.5
    assert f"anna_1, {RING}: overrides.csv says 6 points, but formgrader has points given by hand" in answer.stderr


def test_what_a_person_made_of_the_extra_credit_stays(books, tmp_path):
    books("anna_1,06,5.5,x\n")
    with closing(sqlite3.connect(tmp_path / "gradebook.db")) as book, book:
        book.execute("UPDATE grade SET extra_credit = 1 WHERE extra_credit IS NOT NULL")
    assert "formgrader has points given by hand" in books("anna_1,06,4,x\n").stderr
    assert scores_in(tmp_path / "gradebook.db")["anna_1", RING] == 3.5


def test_points_for_what_is_not_in_the_gradebook_are_named(books):
    answer = books("6,00,3,by mail\n")
    assert f"noa_6, {START}: overrides.csv says 3 points, and the gradebook has no such submission" in answer.stderr


@pytest.fixture
def gradebook(tmp_path: Path, empty_gradebook: Path) -> Path:
    path = Path(shutil.copy(empty_gradebook, tmp_path / "gradebook.db"))
    enter(path, *ROWS[:3])
    with closing(sqlite3.connect(path)) as book, book:
        cells = dict(book.execute("SELECT cell.name, cell.id FROM base_cell cell WHERE cell.name LIKE 'check_%'"))
        mine = "SELECT n.id FROM submitted_notebook n JOIN submitted_assignment a ON a.id = n.assignment_id"
        for student, name, sql in (
            ("anna_1", "ring_all_reduce", "manual_score = 1.5"), ("anna_1", "all_gather", "extra_credit = 2"),
            ("ben_2", "ring_all_reduce", "manual_score = 0"),
        ):  # fmt: skip
            where = f"cell_id = ? AND notebook_id IN ({mine} WHERE a.student_id = ?)"
            book.execute(f"UPDATE grade SET {sql} WHERE {where}", (cells[f"check_{name}"], student))
    return path


def test_points_given_in_formgrader_go_out_with_what_the_rows_say_of_the_rest(grades, gradebook):
    found = hand_points.read(gradebook, ROWS)
    assert {place: one.points for place, one in found.items()} == {("anna_1", RING): 5.5, ("ben_2", RING): 2.0}
    assert found["anna_1", RING].reason == "points given by hand: all_gather 2.5, ring_all_reduce 1.5"
    assert worldsize("export", grades, "--gradebook", gradebook, "--course", ROOT).exit_code == 0
    lines = canvas_lines(grades)
    assert [lines[name][-1] for name in ("anna", "ben")] == ["5.5", "2"]


def test_points_and_comments_given_in_formgrader_are_on_the_page_as_text(grades, gradebook, tmp_path):
    with closing(sqlite3.connect(gradebook)) as book, book:
        where = "cell_id IN (SELECT id FROM base_cell WHERE name = 'all_gather')"
        book.execute(f"UPDATE comment SET manual_comment = '<b>nearly</b>\ntwo lines ' WHERE {where}")
    answer = worldsize("feedback", grades, "--to", tmp_path / "pages", "--gradebook", gradebook, "--course", ROOT)
    assert answer.exit_code == 0, answer.output
    page = (tmp_path / "pages" / "anna_1" / f"{RING}.html").read_text()
    assert "gave 5.5 points for this lab" in page
    assert page.count("What your instructor says") == 1 and "&lt;b&gt;nearly&lt;/b&gt;\ntwo lines</pre>" in page
    assert "What your instructor says" not in (tmp_path / "pages" / "anna_1" / f"{START}.html").read_text()


def test_the_gradebook_is_not_written_to(gradebook):
    before = gradebook.read_bytes()
    hand_points.read(gradebook, ROWS)
    assert gradebook.read_bytes() == before


def test_where_formgrader_and_the_file_differ_the_file_counts_and_a_person_is_told(grades, gradebook):
    (grades / "overrides.csv").write_text(f"{HEADS}anna_1,06,6,x\nben_2,06,2,same\n")
    answer = worldsize("export", grades, "--gradebook", gradebook, "--course", ROOT)
    assert answer.stderr.count("formgrader 5.5: overrides.csv counts") == 1
    assert f"anna_1, {RING}: overrides.csv says 6 points, formgrader 5.5" in answer.stderr
    assert canvas_lines(grades)["anna"][-1] == "6"


@pytest.mark.parametrize("content", [None, b"no database", b""])
def test_what_is_no_gradebook_is_one_paragraph(grades, tmp_path, content):
    path = tmp_path / "none.db"
    if content is not None:
        path.write_bytes(content)
    answer = worldsize("export", grades, "--gradebook", path, "--course", ROOT)
    assert answer.exit_code == 1 and "expected nbgrader's gradebook" in " ".join(answer.output.split())


CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Lab 06: the ring (88123),Essay (7),00_start_here (88100),Final Score\n"
    '"    Points Possible",,,,,6,10,40,(read only)\n'
    '"Ann, Doe",1,s-1,ann@x,Tue,,,,\n"Ben",2,s-2,ben@x,Tue,,,,\n'
)


def test_canvas_gets_its_own_heads_numbers_and_students(grades, tmp_path):
    (tmp_path / "theirs.csv").write_text(CANVAS)
    answer = worldsize("export", grades, "--canvas", tmp_path / "theirs.csv", "--course", ROOT)
    assert answer.exit_code == 0, answer.output
    lines = list(csv.reader((grades / "canvas.csv").read_text().splitlines()))
    assert lines[0][5:] == ["00_start_here (88100)", "Lab 06: the ring (88123)"] and lines[1][5:] == ["40", "6"]
    assert lines[2:] == [["Ann, Doe", "1", "s-1", "ann@x", "Tue", "0.5", "2.5"], ["Ben", "2", "s-2", "ben@x", "Tue", "", "2.5"]]
    assert "noa_6, no such number in" in answer.stderr
    assert "00_start_here (88100): Canvas has 40 points for it, the course 4: marks are not scaled" in answer.stderr


def test_a_name_is_shown_as_it_is_written_and_what_cannot_be_seen_as_its_code(grades, tmp_path):
    students = "Zoë,0031,s-3,zoe@x,Tue,,,,\nM\u202eax,0032,s-4,max@x,Tue,,,,\n"
    (tmp_path / "theirs.csv").write_text(CANVAS + students)
    answer = worldsize("export", grades, "--canvas", tmp_path / "theirs.csv", "--course", ROOT)
    assert "Zoë, in" in answer.stderr
    assert "M\\u202eax, in" in answer.stderr and "\u202e" not in answer.stderr


def test_whom_canvas_has_and_who_handed_in_nothing_is_named_in_the_list_and_in_its_file(grades, tmp_path):
    (tmp_path / "theirs.csv").write_text(CANVAS + "Cem,0031,s-3,cem@x,Tue,,,,\n")
    answer = worldsize("export", grades, "--canvas", tmp_path / "theirs.csv", "--course", ROOT)
    words = f"Cem, in {tmp_path / 'theirs.csv'}: no file in the graded folder has the student's number"
    assert words in " ".join(answer.stderr.split())
    assert words in (grades / needs_a_person.FILE).read_text()
    assert "Ann, Doe, in" not in answer.stderr and "Ben, in" not in answer.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CANVAS.replace("Lab 06: the ring (88123)", "Homework 3 (9)"), f"expected one assignment for {RING}.*got none among"),
        (CANVAS.replace("Essay (7)", "lab 6 again (7)"), "got 'Lab 06: the ring \\(88123\\)' and 'lab 6 again \\(7\\)'"),
        ("Name,Email\nx,y\n", "line 1: expected Canvas's heads.*got 'Name, Email'"),
        ("", "line 1: expected Canvas's heads.*got 'nothing'"),
    ],
)
def test_what_is_not_canvass_export_is_named(grades, tmp_path, text, words):
    (tmp_path / "theirs.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        canvas_csv.read(tmp_path / "theirs.csv", [RING, START])


def test_an_appeal_number_leads_to_its_row_however_it_is_written():
    graded = GradedFolder(tuple(ROWS[:2]), gone=(ROWS[2],))
    for one in ROWS[:2]:
        number = appeal_number(one)
        assert {appeal.row_of(text, graded) for text in (number, number.upper(), f" {number.replace('-', ' ')}")} == {one}


def test_a_number_that_no_page_has_says_what_to_ask_for():
    with pytest.raises(ValueError, match="expected a number from a feedback page.*got '0000'.*ask for the page"):
        appeal.row_of("0000", GradedFolder(tuple(ROWS)))
