"""What needs a person: every command names the lost, the doubled, the gone and the ungradable, and marks none of them."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner, Result

from tests.grade.cheats import LAB, ROOT
from tests.support.gradebook import RING, row
from tests.support.quick_marking import hand_in, quick_marking
from worldsize import cli
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.grading_record import GradedFolder, GradingRecord, read_graded, write_record
from worldsize.grade.marking.rows import GradeRow, file_name, write
from worldsize.grade.marking.tamper import Tamper, TamperKind, in_short, sentence
from worldsize.grade.reports import needs_a_person

NAMES = {
    "lost": "the grader lost it: it was killed",
    "doubled": "number 7 is the number of",
    "gone": "carl_3, 06_ring_all_reduce: carl_3/x.ipynb was missing in the last grading",
    "ungradable": "no notebook was handed in",
}


@pytest.fixture
def grades(tmp_path: Path) -> Path:
    lost = GradeRow("lea_5", "06_ring_all_reduce", "lea_5/x.ipynb", "lost", reason="it was killed")
    nothing = GradeRow("noa_6", "", "noa_6", "ungradable", reason="no notebook was handed in")
    here = [row("anna_1"), row("eve_7"), row("victim_07"), lost, nothing]
    for one in [*here, row("carl_3", path="carl_3/x.ipynb")]:
        write(one, tmp_path / "grades" / "rows")
    write_record(tmp_path / "grades", GradingRecord(7, {one.file_name: one.path for one in here}))
    return tmp_path / "grades"


def said(*words: object) -> Result:
    answer = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert answer.exit_code == 0, answer.output
    return answer


@pytest.mark.parametrize(
    "command",
    [["export", "GRADES"], ["books", "GRADES", "--gradebook", "TMP/gradebook.db"], ["feedback", "GRADES", "--to", "TMP/pages"]],
    ids=lambda command: command[0],
)
def test_a_command_names_what_needs_a_person(grades, empty_gradebook, command):
    shutil.copy(empty_gradebook, grades.parent / "gradebook.db")
    words = [word.replace("GRADES", str(grades)).replace("TMP", str(grades.parent)) for word in command]
    told = said(*words, *(["--course", ROOT] if command[0] != "export" else [])).stderr
    assert [name for name, expected in NAMES.items() if expected not in told] == []


def in_the_list(grades: Path) -> list[list[str]]:
    return list(csv.reader((grades / needs_a_person.FILE).read_text().splitlines()))


def test_every_command_writes_the_same_list_beside_the_rows(grades, empty_gradebook):
    shutil.copy(empty_gradebook, grades.parent / "gradebook.db")
    found = []
    for words in (
        ["export", grades], ["feedback", grades, "--to", grades.parent / "pages", "--course", ROOT],
        ["books", grades, "--gradebook", grades.parent / "gradebook.db", "--course", ROOT],
    ):  # fmt: skip
        said(*words)
        found.append(in_the_list(grades))
    assert found[0][0] == ["student", "lab", "what", "why", "file"]
    assert [line[2] for line in found[0][1:]] == ["lost", "doubled", "ungradable", "gone"]
    assert found[0] == found[1] == found[2]


def test_a_long_list_is_cut_in_the_terminal_and_whole_in_the_file(tmp_path):
    many = [GradeRow(f"s_{k}", "06_ring_all_reduce", f"s_{k}/x.ipynb", "lost", reason="gone") for k in range(300)]
    for one in many:
        write(one, tmp_path / "rows")
    answer = said("export", tmp_path)
    assert answer.stderr.count("needs a person (lost)") == needs_a_person.MOST_SHOWN
    assert f"and {300 - needs_a_person.MOST_SHOWN} more: {tmp_path / needs_a_person.FILE}" in answer.stderr
    assert len(in_the_list(tmp_path)) == 301


def test_a_list_of_nothing_replaces_the_one_before(tmp_path):
    write(GradeRow("s_1", "06_ring_all_reduce", "s_1/x.ipynb", "lost", reason="gone"), tmp_path / "rows")
    said("export", tmp_path)
    write(row("s_1"), tmp_path / "rows")
    said("export", tmp_path)
    assert len(in_the_list(tmp_path)) == 1


def test_what_has_no_row_yet_or_has_changed_since_is_named(tmp_path):
    write(row("anna_1"), tmp_path / "rows")
    name = row("anna_1").file_name
    paths = {name: row("anna_1").path, file_name("ben_2", RING): "ben_2/x.ipynb"}
    write_record(tmp_path, GradingRecord(7, paths, {name: "d" * 64}))
    found = needs_a_person.needs(read_graded(tmp_path))
    assert [(need.kind, need.path) for need in found] == [("not graded", "ben_2/x.ipynb"), ("changed since", row("anna_1").path)]


def test_rows_of_two_releases_are_named():
    found = needs_a_person.needs(GradedFolder((row("anna_1", release="a"), row("ben_2", release="b"))))
    assert [need.kind for need in found] == ["two releases"] and "1 of release a and 1 of release b" in found[0].why


def test_like_changes_of_a_notebook_are_counted_and_one_alone_is_told():
    checks = [Tamper("check missing", f"Exercise 6.{k}", f"e{k}") for k in range(1, 6)]
    setups = [Tamper("set-up missing", str(k), first_line="import time") for k in (1, 2)]
    told = []
    for tamper in ([*checks, *setups, Tamper("more", count=3)], setups[:1]):
        (need,) = needs_a_person.needs(GradedFolder((row("anna_1", state="tampered", tamper=tuple(tamper)),)))
        told.append(need.why)
    assert told == ["5 checks missing, 3 other changes, 2 set-up cells missing", sentence(setups[0])]


@pytest.mark.parametrize("kind", get_args(TamperKind))
def test_each_kind_of_change_can_be_counted(kind):
    words = in_short([Tamper(kind, count=1), Tamper(kind, count=1)])
    assert words.startswith("2 ") and len(words) < 40


def test_copies_in_several_folders_are_for_a_person():
    (need,) = needs_a_person.needs(GradedFolder((row("anna_1", copies=True, handed_in="2 notebooks"),)))
    assert (need.kind, need.student, need.why) == ("copies", "anna_1", "2 notebooks")


def test_a_row_whose_submission_replaced_objects_of_the_package_is_for_a_person():
    one = row("anna_1")
    told = replace(one, exercises=(replace(one.exercises[0], changed=("worldsize.fabric.Fabric.send",)), *one.exercises[1:]))
    (need,) = needs_a_person.needs(GradedFolder((told,)))
    assert (need.kind, need.student) == ("objects changed", "anna_1") and "worldsize.fabric.Fabric.send" in need.why


def test_none_of_them_has_a_mark_or_a_page(grades):
    said("export", grades)
    said("feedback", grades, "--to", grades.parent / "pages", "--course", ROOT)
    sheet = (grades / "canvas.csv").read_text()
    assert [name in sheet for name in ("anna", "eve", "victim", "carl")] == [True, False, False, False]
    assert '"lea","5","","","",""' in sheet
    pages = {path.parent.name for path in (grades.parent / "pages").rglob("*.html")}
    assert "anna_1" in pages and not {"carl_3", "lea_5"} & pages


def test_grading_ends_with_what_needs_a_person(grades, tmp_path, monkeypatch):
    quick_marking(monkeypatch)
    hand_in(tmp_path / "submitted", *(f"{student}/{LAB}.ipynb" for student in ("eve_7", "victim_07")))
    words = said("grade", tmp_path / "submitted", "--out", grades, "--course", ROOT, "--unsafe")
    assert NAMES["doubled"] in words.stderr and NAMES["gone"] in words.stderr
    assert words.stderr.count("carl_3,") == 1


def test_a_row_of_a_version_that_called_its_own_loss_a_crash_is_named():
    old = GradeRow("anna_1", LAB, "anna_1/x.ipynb", "crashed", reason="the process that marked it ended before it made a row")
    assert [need.words for need in needs_a_person.unsure([old])] == [f"anna_1, {LAB}: {old.reason}"]


def test_one_who_comes_back_is_not_gone_any_more(tmp_path, monkeypatch):
    quick_marking(monkeypatch)
    folder = hand_in(tmp_path / "submitted", *(f"{student}/{LAB}.ipynb" for student in ("anna", "ben")))
    away = tmp_path / "away"
    counts = []
    for frm, to in ((None, None), (folder / "ben", away), (away, folder / "ben")):
        if frm:
            frm.rename(to)
        batch = grade(folder, tmp_path / "out", root=ROOT, mode="own")
        counts.append((len(batch.rows), [one.student for one in batch.folder.gone]))
    assert counts == [(2, []), (1, ["ben"]), (2, [])]
