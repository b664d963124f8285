"""Sheets filled into what Canvas and Moodle exported, imported by their own rules: our marks arrive, and nothing else changes."""

import csv
import io
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.gradebook import RING, ROOT, START, row
from tests.support.lms_import import canvas_changes, moodle_changes
from worldsize import cli
from worldsize.grade.marking import submissions_folder
from worldsize.grade.marking.rows import GradeRow, write
from worldsize.grade.reports import moodle_csv, needs_a_person

ROSTERS = Path(__file__).parent / "rosters"
LAB_06, LAB_00 = "88123", "88100"


def graded(folder: Path, *rows: GradeRow) -> Path:
    for one in rows:
        write(one, folder / "grades" / "rows")
    return folder / "grades"


def export(grades: Path, *words: object) -> Result:
    return CliRunner().invoke(cli.app, ["export", str(grades), "--course", str(ROOT), *map(str, words)])


def lines(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


@pytest.fixture
def canvas_class(tmp_path: Path) -> Path:
    """Ann handed in both labs, Jo lab 06 alone, Cem and Li lab 06, Nora nothing that can be graded, and Eve is not in Canvas."""
    bad = GradeRow("latenora_5005", RING, "x.ipynb", "ungradable", possible=6.0, reason="it is not a notebook")
    both = [row("doeann_5001"), row("doeann_5001", 9, START)]
    return graded(tmp_path, *both, row("obrienjo_5002"), row("unalcem_5003"), row("liming_5004", 9), bad, row("eve_6000"))


def test_canvas_gets_our_marks_and_keeps_those_that_it_has_where_there_is_none(canvas_class):
    answer = export(canvas_class, "--canvas", ROSTERS / "canvas.csv")
    assert answer.exit_code == 0, answer.output
    assert canvas_changes(ROSTERS / "canvas.csv", canvas_class / "canvas.csv") == {
        ("5001", LAB_06): "2.50", ("5001", LAB_00): "4.00", ("5002", LAB_06): "2.50", ("5004", LAB_06): "6.00",
    }  # fmt: skip


def test_canvas_gets_every_column_by_which_it_knows_a_student_as_it_wrote_it(canvas_class):
    export(canvas_class, "--canvas", ROSTERS / "canvas.csv")
    theirs = {line[1]: line[:6] for line in lines(ROSTERS / "canvas.csv")}
    heads, possible, *students = lines(canvas_class / "canvas.csv")
    assert heads[:6] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID", "Section"]
    assert possible[0] == "    Points Possible"
    assert [line[:6] for line in students] == [theirs[number] for number in ("5001", "5005", "5004", "5002", "5003")]


def test_who_is_in_one_of_the_two_alone_is_named_and_canvass_test_student_is_not(canvas_class):
    said = " ".join(export(canvas_class, "--canvas", ROSTERS / "canvas.csv").stderr.split())
    assert "eve_6000, no such number in" in said and "Student, Test" not in said
    (canvas_class / "rows" / next(p.name for p in (canvas_class / "rows").iterdir() if "5004" in p.name)).unlink()
    assert "李, 明, in" in " ".join(export(canvas_class, "--canvas", ROSTERS / "canvas.csv").stderr.split())


def test_whom_canvas_excuses_stays_excused_and_is_named(canvas_class):
    answer = export(canvas_class, "--canvas", ROSTERS / "canvas.csv")
    words = " ".join(answer.stderr.split())
    assert f"unalcem_5003, {RING}: excused in Canvas, and stays excused; the row has 2.5 points" in words


def test_canvass_sheet_with_semicolons_decimal_commas_and_two_columns_of_names_comes_back(canvas_class):
    roster = ROSTERS / "canvas_semicolons.csv"
    answer = export(canvas_class, "--canvas", roster)
    assert answer.exit_code == 0, answer.output
    assert canvas_changes(roster, canvas_class / "canvas.csv") == {
        ("5001", LAB_06): "2.50", ("5001", LAB_00): "4.00", ("5002", LAB_06): "2.50",
    }  # fmt: skip
    assert lines(canvas_class / "canvas.csv")[0][:5] == ["LastName", "FirstName", "ID", "SIS Login ID", "Section"]
    assert "Canvas has" not in answer.stderr and "Testschüler" not in answer.stderr


def test_canvass_total_of_a_group_is_no_lab_whatever_the_period_is_called(canvas_class, tmp_path):
    text = (ROSTERS / "canvas.csv").read_text(encoding="utf-8").replace("Labs Current Score", "Lab 06 Current Score (2026)")
    (tmp_path / "theirs.csv").write_text(text, encoding="utf-8")
    assert export(canvas_class, "--canvas", tmp_path / "theirs.csv").exit_code == 0


OVERRIDES = "student,lab,points,reason\n{},06,4,handed in by mail\n"


def test_whom_canvas_alone_knows_can_be_given_points(canvas_class):
    next(path for path in (canvas_class / "rows").iterdir() if "5004" in path.name).unlink()
    (canvas_class / "overrides.csv").write_text(OVERRIDES.format(5004))
    answer = export(canvas_class, "--canvas", ROSTERS / "canvas.csv")
    assert "bad line" not in answer.stderr and "李, 明, in" not in answer.stderr
    assert canvas_changes(ROSTERS / "canvas.csv", canvas_class / "canvas.csv")["5004", LAB_06] == "4.00"


@pytest.fixture
def moodle_class(tmp_path: Path) -> Path:
    """Of Moodle's five, Li handed in nothing, Nora nothing that can be graded, and Eve is not in the worksheet."""
    bad = GradeRow("Nora Late_4715", RING, "x.ipynb", "ungradable", possible=6.0, reason="it is not a notebook")
    four = [row("Ann Doe_4711"), row('Jo "JJ" O\'Brien, jr._4712'), row("Çem Ünal_4713"), row("Eve_4799")]
    return graded(tmp_path, *four, bad)


def test_moodle_gets_our_marks_and_keeps_those_that_it_has_where_there_is_none(moodle_class):
    answer = export(moodle_class, "--lab", "06", "--moodle", ROSTERS / "moodle.csv")
    assert answer.exit_code == 0, answer.output
    changed, comments = moodle_changes(ROSTERS / "moodle.csv", moodle_class / f"moodle.{RING}.csv")
    assert changed == {"Participant 4711": "2.5", "Participant 4712": "2.5"}
    assert comments.keys() == {f"Participant {k}" for k in (4711, 4712, 4713, 4715)}
    assert "no mark" in comments["Participant 4715"] and "it is not a notebook" in comments["Participant 4715"]


def test_every_other_column_and_line_of_moodles_worksheet_comes_back_as_it_was(moodle_class):
    export(moodle_class, "--lab", "06", "--moodle", ROSTERS / "moodle.csv")
    theirs, ours = lines(ROSTERS / "moodle.csv"), lines(moodle_class / f"moodle.{RING}.csv")
    ours_alone = {theirs[0].index(head) for head in ("Grade", "Feedback comments")}
    assert [[f for k, f in enumerate(line) if k not in ours_alone] for line in theirs] == [
        [f for k, f in enumerate(line) if k not in ours_alone] for line in ours
    ]
    assert ours[4] == theirs[4]


def test_who_is_in_moodles_worksheet_or_in_the_grading_alone_is_named_and_whose_grade_is_locked(moodle_class):
    said = " ".join(export(moodle_class, "--lab", "06", "--moodle", ROSTERS / "moodle.csv").stderr.split())
    assert "Eve_4799, no such number in" in said and "明 李, in" in said
    assert "Çem Ünal: Moodle says that the grade cannot be changed, and skips it" in said


def test_who_handed_in_moodles_online_text_is_listed_once(tmp_path):
    (tmp_path / "submitted" / "明 李_4714_assignsubmission_onlinetext_").mkdir(parents=True)
    (text,) = submissions_folder.find(tmp_path / "submitted", [RING])
    nothing = GradeRow(text.student, "", text.path.name, "ungradable", reason=text.refused)
    grades = graded(tmp_path, row("Ann Doe_4711"), nothing)
    export(grades, "--lab", "06", "--moodle", ROSTERS / "moodle.csv")
    listed = [line for line in lines(grades / needs_a_person.FILE) if "李" in " ".join(line)]
    assert [line[2] for line in listed] == ["ungradable"]


def test_a_comment_that_a_person_wrote_in_moodle_stays_above_ours_which_is_there_once(moodle_class, tmp_path):
    sheet = moodle_class / f"moodle.{RING}.csv"
    export(moodle_class, "--lab", "06", "--moodle", ROSTERS / "moodle.csv")
    (tmp_path / "again.csv").write_bytes(sheet.read_bytes())
    export(moodle_class, "--lab", "06", "--moodle", tmp_path / "again.csv")
    assert sheet.read_bytes() == (tmp_path / "again.csv").read_bytes()
    comment = lines(sheet)[2][-1]
    assert comment.startswith("<p>Well drawn, see me.</p><br>World Size, ") and comment.count("World Size") == 1


OLD = "World Size, 06_ring<br>2 of 6 points.<br>Exercise 6.1: 2 of 3. rank 1: expected 1,<br>got 2<br>Exercise 6.2: 0 of 3. x"
NO_MARK = "World Size, 06_ring<br>no mark.<br>it is not a notebook"
NEW = "World Size, 06_ring<br>6 of 6 points.<br>Exercise 6.1: 3 of 3.<br>Exercise 6.2: 3 of 3."


@pytest.mark.quick
@pytest.mark.parametrize("earlier", [OLD, NEW, NO_MARK, OLD.replace("<br>", "<br />\n")])
@pytest.mark.parametrize("words", ["<br>See me.", "<br><br>See me.<br>At 12.", "</p><p>See me.</p>", "\nSee me.", "<br />See."])
@pytest.mark.parametrize("above", ["", "<p>Well drawn.</p>", "Well drawn."])
def test_a_persons_words_below_our_comment_in_moodle_stay_there(earlier, words, above):
    had = f"{above}<br>{earlier}" if above else earlier
    expected = f"{above}<br>{NEW}" if above else NEW
    assert moodle_csv.with_ours(had, NEW) == expected
    assert moodle_csv.with_ours(had + words, NEW) == moodle_csv.with_ours(expected + words, NEW) == expected + words


def test_whom_moodle_alone_knows_can_be_given_points(moodle_class):
    (moodle_class / "overrides.csv").write_text(OVERRIDES.format("明 李_4714"))
    answer = export(moodle_class, "--lab", "06", "--moodle", ROSTERS / "moodle.csv")
    assert "bad line" not in answer.stderr and "明 李, in" not in answer.stderr
    changed, comments = moodle_changes(ROSTERS / "moodle.csv", moodle_class / f"moodle.{RING}.csv")
    assert changed["Participant 4714"] == "4"
    assert "4 of 6 points. handed in by mail" in comments["Participant 4714"]


def test_moodles_comment_has_breaks_where_lines_end_and_no_markup_of_a_submissions(tmp_path):
    grades = graded(tmp_path, row("Ann Doe_4711", reason="got <b>&\ntwo lines"))
    export(grades, "--lab", "06", "--moodle", ROSTERS / "moodle.csv")
    comment = lines(grades / f"moodle.{RING}.csv")[1][-1]
    assert "got &lt;b&gt;&amp;<br>two lines<br>" in comment and "\n" not in comment


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: (ROSTERS / "moodle_gradebook.csv").read_text(), "expected the heads of Moodle's grading worksheet"),
        (lambda text: text.replace("Last modified (grade)", "Zuletzt geändert (Bewertung)"), "Set Moodle to English"),
        (lambda text: text.replace("Participant 47", "Participant 99"), "Moodle renumbers students in each assignment"),
        (lambda text: "", "got 'nothing'"),
    ],
    ids=["the whole gradebook", "another language", "another assignment", "empty"],
)
def test_what_is_not_this_assignments_worksheet_is_refused_and_nothing_is_written(moodle_class, tmp_path, change, words):
    (tmp_path / "theirs.csv").write_text(change((ROSTERS / "moodle.csv").read_text(encoding="utf-8")), encoding="utf-8")
    answer = export(moodle_class, "--lab", "06", "--moodle", tmp_path / "theirs.csv")
    assert answer.exit_code == 1 and words in " ".join(answer.output.split())
    assert not list(moodle_class.glob("moodle.*"))


def test_another_maximum_in_moodle_is_named(moodle_class, tmp_path):
    (tmp_path / "theirs.csv").write_text((ROSTERS / "moodle.csv").read_text(encoding="utf-8").replace("6.00", "100.00"))
    answer = export(moodle_class, "--lab", "06", "--moodle", tmp_path / "theirs.csv")
    assert "Moodle has 100 points for it, the course 6: marks are not scaled" in " ".join(answer.stderr.split())


def test_without_a_worksheet_moodle_takes_the_sheet_where_it_had_no_grade(moodle_class):
    export(moodle_class, "--lab", "06")
    changed, _ = moodle_changes(ROSTERS / "moodle.csv", moodle_class / f"moodle.{RING}.csv")
    assert changed == {"Participant 4711": "2.5"}


@pytest.mark.parametrize("words", [["--moodle", "x.csv"], ["--lab", "06", "--canvas", "x.csv"]])
def test_a_roster_of_one_system_with_the_option_of_another_is_refused(moodle_class, words):
    answer = export(moodle_class, *words)
    assert answer.exit_code == 1 and "expected --canvas alone, or --lab" in " ".join(answer.output.split())
