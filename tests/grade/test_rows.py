"""A grade as a file and as a table: whole or not at all, under a name that no student steers, and readable."""

import csv
import json
import sys
from typing import get_args

import pytest

from worldsize.grade.frames import BadFrame, Reader, decode, encode, framed
from worldsize.grade.gradescope import results
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.marking import rows as row
from worldsize.grade.marking.grade_folder import FolderGrading
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.rows import ExerciseRow, GradeRow, PropertyRow
from worldsize.grade.marking.tamper import Tamper, TamperKind, sentence
from worldsize.grade.reports.table import closing_line, summary, table, write

pytestmark = pytest.mark.quick

EXERCISE = ExerciseRow(
    "ring", "Exercise 6.5", "fail", 0.5, 1.0, (PropertyRow("the sum", 0.5, True), PropertyRow("messages", 0.5, None)),
    "3 ranks: too many", ("reduce_scatter",), 2, ((0, 1, 24, 0.5, 0.75, 0),),
)  # fmt: skip
CHANGED = Tamper("set-up changed", "2", first_line="import time", count=4, lines=("a = 1", "b = 2", "c = 3"))
LOST = Tamper("exercise missing", "Exercise 6.5", "ring")
ROW = GradeRow(
    "anna", "06_ring", "anna/06_ring.ipynb", "tampered", 0.5, 1.0, (EXERCISE,), (CHANGED, LOST), seed=7, digest="ab", seconds=1.5
)  # fmt: skip


def rows_of(*points: float) -> list[GradeRow]:
    return [GradeRow(f"s{k}", "06_ring", f"s{k}.ipynb", "graded", p, 6.0) for k, p in enumerate(points)]


def test_a_row_comes_back_as_it_was_written(tmp_path):
    row.write(ROW, tmp_path / "rows")
    assert list(row.read_all(tmp_path)) == [ROW]


def test_a_row_holds_the_messages_of_the_first_failing_case():
    (transfer,) = EXERCISE.trace.transfers
    assert (transfer.src, transfer.dst, transfer.size_bytes, EXERCISE.trace.world_size) == (0, 1, 24, 2)


@pytest.mark.parametrize("student", ["../../etc/passwd", "a/b", "\0", "…", "x" * 500, "", ".hidden", "\udcff"])
def test_a_students_name_cannot_steer_a_file(tmp_path, student):
    name = row.file_name(student, "06_ring")
    assert "/" not in name and not name.startswith(".") and len(name) < 160 and name.isascii()


def test_students_of_like_names_have_files_of_their_own():
    assert row.file_name("Zoë", "06") != row.file_name("Zoé", "06")


def test_a_damaged_row_is_named(tmp_path):
    path = row.write(ROW, tmp_path / "rows")
    path.write_text("{}")
    with pytest.raises(ValueError, match=f"{path.name}: expected a grade's row"):
        list(row.read_all(tmp_path))


def test_a_table_has_a_line_a_row_and_says_what_is_not_right():
    shown = table([ROW, *rows_of(6.0)])
    assert shown.splitlines()[1].split() == [
        "anna", "06_ring", "tampered", "0.5", "of", "1", "ring:", "fail;",
        "changed:", "1", "set-up", "cell", "and", "1", "thing",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tamper", "shown"),
    [
        ([CHANGED, LOST], "1 set-up cell and 1 thing"),
        ([CHANGED, Tamper("set-up missing", "1"), Tamper("set-up added")], "3 set-up cells"),
        ([Tamper("points claimed", "a set-up cell", found="3")], "1 thing"),
    ],
)
def test_a_table_counts_changed_set_up_cells_apart(tamper, shown):
    assert table([GradeRow("anna", "06", "p", "tampered", tamper=tuple(tamper))]).endswith(f"changed: {shown}")


def test_every_kind_of_tampering_has_a_sentence_of_its_own():
    said = [sentence(Tamper(kind, "Exercise 6.5", "ring", found="7", count=2)) for kind in get_args(TamperKind)]
    assert all(said) and len(set(said)) == len(said)


@pytest.mark.parametrize("tamper", [{"kind": "magic"}, {"kind": "more", "count": "many"}, {"place": "x"}, 7])
def test_a_row_with_a_kind_of_tampering_that_there_is_not_is_damaged(tmp_path, tamper):
    path = row.write(ROW, tmp_path / "rows")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tamper": [tamper]}))
    with pytest.raises(ValueError, match=f"{path.name}: expected a grade's row"):
        list(row.read_all(tmp_path))


def test_a_table_shows_no_control_characters():
    shown = table([GradeRow("\x1b[2Jeve\n", "06", "p", "graded")])
    assert "\x1b" not in shown and len(shown.splitlines()) == 2


def test_an_unsafe_row_says_so():
    assert "UNSAFE" in table([GradeRow("anna", "06", "p", "graded", unsafe=True)])


def test_more_rows_than_a_screen_has_are_folded_by_lab_state_and_points():
    many = [*rows_of(*[6.0] * 250, *[4.5] * 40, 3.0), *(GradeRow(f"t{k}", "06_ring", "p", "lost") for k in range(9))]
    lines = [line.split() for line in table(many).splitlines()]
    assert lines == [
        ["rows", "lab", "state", "points", "students"],
        ["250", "06_ring", "graded", "6", "of", "6", "s0,", "s1,", "s2", "and", "247", "more"],
        ["40", "06_ring", "graded", "4.5", "of", "6", "s250,", "s251,", "s252", "and", "37", "more"],
        ["1", "06_ring", "graded", "3", "of", "6", "s290"],
        ["9", "06_ring", "lost", "–", "of", "0", "t0,", "t1,", "t2", "and", "6", "more"],
    ]


def test_every_row_is_in_the_sheet_beside_the_rows_and_none_of_it_is_a_formula(tmp_path):
    told = {"reason": "+1", "late": "2 hours late", "host": "n1", "seconds": 1.25}
    shown = GradeRow("=cmd", "06_ring", "=cmd/06.ipynb", "timeout", 2.0, 6.0, **told)
    heads, *lines = csv.reader(write([shown, *rows_of(*[6.0] * 300)], tmp_path).read_text().splitlines())
    assert dict(zip(heads, lines[0], strict=True)) == {
        "student": "'=cmd", "lab": "06_ring", "state": "timeout", "points": "2", "possible": "6", "late": "2 hours late",
        "remark": "2 hours late; +1", "file": "'=cmd/06.ipynb", "machine": "n1", "attempt": "1", "seconds": "1.2",
    }  # fmt: skip
    assert len(lines) == 301


def test_a_summary_has_statistics_and_a_histogram():
    shown = summary(rows_of(6, 6, 5.5, 3, 0))
    assert "5 submissions (5 graded)" in shown
    assert "mean 4.1, median 5.5, standard deviation 2.33, lowest 0, highest 6 of 6 points" in shown
    assert shown.splitlines()[-1].split()[0:2] == ["all", "6"] and shown.splitlines()[-1].endswith(" 2")


def test_what_is_ungradable_is_counted_and_not_averaged():
    shown = summary([*rows_of(6), GradeRow("x", "06_ring", "x", "ungradable", possible=6.0)])
    assert "1 graded, 1 ungradable" in shown and "mean 6," in shown


def test_the_last_line_says_how_to_replay(tmp_path):
    said = closing_line(FolderGrading(GradedFolder((ROW,)), 0, 42, "own", kept=1), tmp_path)
    assert "0 submissions graded, 1 kept from before" in said and said.endswith("--seed 42")


def test_a_frame_may_come_in_pieces():
    reader, data = Reader(), framed({"a": 1}, b"xyz")
    for byte in data[:-1]:
        reader.feed(bytes([byte]))
        assert reader.next() is None
    reader.feed(data[-1:])
    assert reader.next() == ({"a": 1}, b"xyz")


@pytest.mark.parametrize("head", [b"\xff" * 16, bytes(7) + b"\1" + b"\xff" * 8])
def test_a_frame_that_claims_too_much_is_refused_before_it_comes(head):
    reader = Reader()
    reader.feed(head)
    with pytest.raises(BadFrame):
        reader.next()


@pytest.mark.parametrize(
    "value",
    [
        [], ["x"], [1], {"a": 1}, ["a", "|O8", [1], 0], ["a", "<f8", [2], 0], ["a", "<f8", [-1], 0], ["f", "eval"],
        ["a", "<f8", [True], 0], ["a", "<f8", [1], -8], ["d", [["l"], 1]], ["d", 1], ["a", "<f8", [2**40, 0], 0],
    ],
)  # fmt: skip
def test_what_no_value_can_be_is_refused(value):
    with pytest.raises(BadFrame):
        decode(value, bytes(8))


def test_an_object_arrives_as_text_that_names_its_type():
    blob = bytearray()
    assert decode(encode([object(), {1, 2}, b"x"], blob), bytes(blob)) == ["<object>", "<set>", "<bytes>"]


def test_half_a_character_arrives_as_a_question_mark():
    assert decode("\ud800x", b"") == "?x"


def test_a_python_named_by_a_way_round_is_found_in_the_sandbox_too(monkeypatch):
    """`bench/../.venv/bin/python`: in a sandbox there is no `bench` to go back from."""
    monkeypatch.setattr(sys, "executable", "/course/bench/../.venv/bin/python")
    assert bubblewrap.python()[0] == "/course/.venv/bin/python"


@pytest.mark.parametrize(("points", "possible", "words"), [(1.5, 1.5, "all points, with something to mend"), (1.0, 1.5, "fail")])
def test_a_failed_exercise_with_all_points_is_said_to_have_something_to_mend(points, possible, words):
    exercise = ExerciseRow("ring", "Exercise 6.5", "fail", points, possible)
    given = GradeRow("anna", "06_ring", "anna/06_ring.ipynb", "graded", points, possible, (exercise,))
    assert f"ring: {words}" in table([given])


@pytest.mark.parametrize(("points", "possible", "status"), [(1.5, 1.5, "passed"), (1.0, 1.5, "failed"), (0.0, 0.0, "failed")])
def test_gradescope_shows_a_failed_exercise_as_passed_if_it_has_all_points(points, possible, status):
    assert results._test(ExerciseRow("ring", "Exercise 6.5", "fail", points, possible))["status"] == status
