"""Scores in nbgrader's gradebook: the rows' own, all or none of them, and nothing that a person gave is lost."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.gradebook import LABS, RING, ROOT, START, enter, row
from tests.support.kernels import seconds_until
from worldsize import cli
from worldsize.grade.marking.rows import GradeRow, write
from worldsize.grade.marking.tamper import Tamper
from worldsize.grade.nbgrader import database, notebooks

_HANG_S = 300  # a bound against a hang


@pytest.fixture
def path(empty_gradebook: Path, tmp_path: Path) -> Path:
    """A gradebook with nothing in it."""
    (tmp_path / "course").mkdir()
    return Path(shutil.copy(empty_gradebook, tmp_path / "course" / "gradebook.db"))


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.iterdump())


def grades(path: Path, student: str, lab: str = RING) -> dict[str, dict]:
    """{exercise: the columns of its grade and of its comment}."""
    query = """SELECT cell.name, grade.* FROM grade JOIN base_cell cell ON cell.id = grade.cell_id
        JOIN submitted_notebook n ON n.id = grade.notebook_id JOIN notebook lab ON lab.id = n.notebook_id
        JOIN submitted_assignment a ON a.id = n.assignment_id WHERE a.student_id = ? AND lab.name = ?"""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return {r["name"].removeprefix("check_"): dict(r) for r in connection.execute(query, (student, lab))}


def by_hand(path: Path, student: str, sql: str) -> None:
    """What a person does to the grades of a student."""
    with closing(sqlite3.connect(path)) as connection, connection:
        names = "','".join(grade["id"] for grade in grades(path, student).values())
        connection.execute(f"UPDATE grade SET {sql} WHERE id IN ('{names}')")


def test_scores_are_those_of_the_rows(path):
    from nbgrader.api import Gradebook

    enter(path, row("anna"), row("ben", 9), row("anna", 9, START))
    with Gradebook(f"sqlite:///{path}") as book:
        found = [(s.student.id, a.name, s.score, s.max_score) for a in book.assignments for s in a.submissions]
    assert sorted(found) == [("anna", START, 4, 4), ("anna", RING, 2.5, 6), ("ben", RING, 6, 6)]


def test_a_second_writing_changes_nothing_and_leaves_no_backup(path):
    enter(path, row("anna"), row("ben"))
    before, files = dump(path), set(path.parent.iterdir())
    written = enter(path, row("anna"), row("ben"))
    assert (dump(path), written.changed, written.kept) == (before, 0, 10)
    assert set(path.parent.iterdir()) == files


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (row("anna"), 0), (row("anna", state="timeout"), 5), (row("anna", state="crashed"), 5),
        (row("anna", state="tampered"), 5), (row("anna", 9, state="tampered"), 0), (row("anna", 1, state="tampered"), 2),
        (row("anna", state="ungradable"), 5), (row("anna", 9, unsafe=True), 5),
    ],
    ids=["graded", "timeout", "crashed", "tampered", "tampered, all right", "tampered, part", "ungradable", "unsafe"],
)  # fmt: skip
def test_a_person_is_asked_to_look_where_points_may_be_missing_or_forged(path, given, asked):
    written = enter(path, given)
    assert sum(grade["needs_manual_grade"] for grade in grades(path, "anna").values()) == asked
    assert len(written.to_look_at) == bool(asked)


def test_what_could_not_be_graded_has_no_score_rather_than_zero(path):
    enter(path, row("anna", state="ungradable"))
    assert {grade["auto_score"] for grade in grades(path, "anna").values()} == {None}


def test_what_the_grader_lost_leaves_the_gradebook_as_it_was_and_is_named(path):
    enter(path, row("anna"))
    before = dump(path)
    lost = [GradeRow(name, RING, f"{name}/x.ipynb", "lost", reason="it was killed") for name in ("anna", "ben")]
    written = enter(path, *lost)
    assert (dump(path), written.changed, written.placed) == (before, 0, ())
    assert written.left_out[1] == f"ben, {RING}: no score, the grader lost it: it was killed. Run `worldsize grade` again"


def test_what_a_person_has_looked_at_does_not_come_up_again(path):
    enter(path, row("anna", state="timeout"))
    by_hand(path, "anna", "needs_manual_grade = 0")
    assert enter(path, row("anna", state="timeout")).to_look_at == ()
    assert not any(grade["needs_manual_grade"] for grade in grades(path, "anna").values())


def test_another_version_handed_in_comes_up_again(path):
    enter(path, row("anna", state="timeout"))
    by_hand(path, "anna", "needs_manual_grade = 0")
    assert len(enter(path, row("anna", state="timeout", digest="e" * 64)).to_look_at) == 1


@pytest.mark.parametrize("given", ["manual_score = 0.25", "extra_credit = 2", "manual_score = 0.25, extra_credit = 2"])
def test_points_given_by_hand_stay_when_graded_again(path, given):
    enter(path, row("anna"))
    by_hand(path, "anna", f"{given}, needs_manual_grade = 0")
    kept = {k: (g["manual_score"], g["extra_credit"]) for k, g in grades(path, "anna").items()}
    written = enter(path, row("anna", 9))
    now = grades(path, "anna")
    assert {k: (g["manual_score"], g["extra_credit"]) for k, g in now.items()} == kept
    assert now["ring_all_reduce"]["auto_score"] == 1.5
    assert len(written.to_look_at) == 1  # the person may wish to know that the points below changed


def test_comments_and_flags_given_by_hand_stay_when_graded_again(path):
    enter(path, row("anna"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE comment SET manual_comment = 'well done'")
        connection.execute("UPDATE submitted_notebook SET flagged = 1, late_submission_penalty = 0.5")
    enter(path, row("anna", 9))
    with closing(sqlite3.connect(path)) as connection:
        assert {c for (c,) in connection.execute("SELECT manual_comment FROM comment")} == {"well done"}
        assert connection.execute("SELECT flagged, late_submission_penalty FROM submitted_notebook").fetchall() == [(1, 0.5)]


def test_grading_one_again_changes_no_row_of_another_student_or_lab(path):
    enter(path, row("anna"), row("ben"), row("anna", lab=START))
    mine = {grade["id"] for grade in grades(path, "anna").values()}
    before = dump(path)
    enter(path, row("anna", 9))
    gone = [line for line in before if line not in set(dump(path))]
    assert len(gone) == 10 and all("comment" in line or any(id in line for id in mine) for line in gone)
    assert all("Autograded: fail" in line for line in gone if 'INTO "comment"' in line)


def test_a_new_student_changes_no_row_that_was_there(path):
    enter(path, row("anna"), row("anna", lab=START))
    before = dump(path)
    enter(path, row("ben"))
    assert set(before) <= set(dump(path))


def test_a_comment_has_no_word_of_the_students(path):
    bad = row("anna", state="tampered", tamper=(Tamper("points claimed", "<script>", found="3"),))
    bad = replace(bad, exercises=tuple(replace(e, mismatch="<script>alert(1)</script>") for e in bad.exercises))
    enter(path, bad)
    assert "script" not in "".join(dump(path))


@pytest.mark.parametrize("name", ["=cmd", "علي", "😀", "O'Brien, Ann", "a" * 200, "100%", "'); DROP TABLE grade;--"])
def test_any_name_that_formgrader_can_show_is_written_as_it_is(path, name):
    assert enter(path, row(name, path="x.ipynb")).left_out == ()
    assert grades(path, name)["ring_all_reduce"]["auto_score"] == 0.5


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", 'a" onload="x', "..", "a/../../b", "a\nb", "a\\b", "\u202eb", ""])
def test_a_name_that_formgrader_would_run_or_follow_is_left_out_and_named(path, name):
    written = enter(path, row(name, path="x.ipynb"), row("anna"))
    assert len(written.left_out) == 1 and written.left_out[0].startswith(f"{name}, {RING}: ")
    assert [r.student for r, _ in written.placed] == ["anna"]


def test_an_assignment_that_has_the_notebook_is_the_one(path):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{path}") as book:
        book.add_assignment("ps1")
        book.add_notebook(RING, "ps1")
    written = enter(path, row("anna", path=f"anna/ps1/{RING}.ipynb"), row("ben", path="ben.ipynb"))
    assert [assignment for _, assignment in written.placed] == ["ps1", "ps1"]


def test_of_several_assignments_the_folder_says_which(path):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{path}") as book:
        for name in ("ps1", "ps2"):
            book.add_assignment(name)
            book.add_notebook(RING, name)
    assert [name for _, name in enter(path, row("anna", path=f"anna/ps2/{RING}.ipynb")).placed] == ["ps2"]
    with pytest.raises(ValueError, match="expected one assignment with the notebook 06_ring_all_reduce, got ps1, ps2"):
        enter(path, row("ben"))


def test_a_locked_gradebook_is_refused_and_stays_as_it_is(path, monkeypatch):
    monkeypatch.setattr(database, "WAIT_S", 0.1)  # the lock below is never given up
    before = path.read_bytes()
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ValueError, match="it was locked for .* s; nothing was written and nothing is lost"):
            enter(path, row("anna", 9))
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["gradebook.db"]


@pytest.mark.parametrize("content", [b"", b"no database at all", b"SQLite format 3\0" + b"x" * 2000])
def test_what_is_no_gradebook_is_refused_and_stays_as_it_is(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected nbgrader's gradebook, but SQLite said"):
        enter(path, row("anna"))
    assert path.read_bytes() == content and [p.name for p in path.parent.iterdir()] == ["gradebook.db"]


def test_other_points_than_the_releases_are_refused_and_nothing_is_written(path):
    enter(path, row("anna"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE grade_cells SET max_score = 3")
    before = dump(path)
    with pytest.raises(ValueError, match=r"expected 1 points for check_parameter_server .* the gradebook has 3"):
        enter(path, row("ben"))
    assert dump(path) == before


def test_the_backup_is_the_gradebook_as_it_was(path):
    enter(path, row("anna"))
    before = dump(path)
    backup = enter(path, row("anna", 9), row("ben")).backup
    assert re.fullmatch(r"gradebook\.db\.\d{4}-\d\d-\d\d-\d{6}(-\d)?\.backup", backup.name)
    shutil.copy(backup, path)
    assert dump(path) == before
    enter(path, row("anna", 9))
    assert grades(path, "anna")["ring_all_reduce"]["auto_score"] == 1.5


def test_the_backup_has_what_stands_in_a_write_ahead_log(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("INSERT INTO student VALUES ('carla', NULL, NULL, NULL, NULL)")
        other.commit()
        assert path.with_name("gradebook.db-wal").stat().st_size > 0
        backup = enter(path, row("anna")).backup
    assert any("'carla'" in line for line in dump(backup))


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from tests.support.gradebook import enter, row
@event.listens_for(Engine, "after_cursor_execute")
def written(connection, cursor, statement, parameters, *_):
    if statement.startswith("INSERT INTO student") and "carla" in parameters:
        os.kill(os.getpid(), signal.SIGKILL)
enter(Path(sys.argv[1]), row("anna", 9), row("ben"), row("carla"))
"""


def test_killed_in_the_midst_nothing_is_written_and_the_next_time_all_is(path):
    enter(path, row("anna"))
    before = dump(path)
    command = [sys.executable, "-c", KILLED, str(path), str(ROOT)]
    assert subprocess.run(command, timeout=_HANG_S).returncode == -signal.SIGKILL
    assert dump(path) == before
    assert enter(path, row("anna", 9), row("ben"), row("carla")).changed == 15


HALF_WRITTEN = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA cache_size = 1")  # so that pages go to the file before the end
connection.execute("BEGIN IMMEDIATE")
rows = ((f"{k:0200}",) for k in range(5000))
connection.executemany("INSERT INTO student VALUES (?, NULL, NULL, NULL, NULL)", rows)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_program_half_wrote_into_the_file_is_undone_first(path):
    enter(path, row("anna"))
    before = dump(path)
    size = path.stat().st_size
    subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(path)], timeout=_HANG_S)
    assert path.stat().st_size > size and path.with_name("gradebook.db-journal").stat().st_size > 0
    backup = enter(path, row("ben")).backup
    assert dump(backup) == before and set(before) < set(dump(path))


def test_a_gradebook_that_is_new_has_nbgraders_own_tables_and_nothing_else_beside_it(empty_gradebook):
    assert [p.name for p in empty_gradebook.parent.iterdir()] == ["gradebook.db"]
    assert any('"alembic_version" VALUES' in line for line in dump(empty_gradebook))


def test_the_command_says_what_it_wrote_and_where_the_backup_is(path, tmp_path):
    write(row("anna"), tmp_path / "grades" / "rows")
    write(row("ben", state="timeout"), tmp_path / "grades" / "rows")
    answer = CliRunner().invoke(cli.app, ["books", str(tmp_path / "grades"), "--gradebook", str(path)])
    assert answer.exit_code == 0 and "wrote 10 scores, 0 unchanged" in answer.output
    assert "needs a person (by hand): 'ben, 06_ring_all_reduce:" in answer.output and ".backup)" in answer.output


SCRIPT = "<script>alert(1)</script>"


def handed_in(folder: Path, student: str) -> GradeRow:
    """A notebook whose prose, outputs and exercise are all hostile, and its row."""
    from worldsize.grade.marking import submission

    made = json.loads((ROOT / "labs" / f"{RING}.ipynb").read_text())
    for cell in made["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "all_gather":
            cell["source"] = f"# Exercise 6.4: x\nanswer = '{SCRIPT} mine'\n"
        elif cell["cell_type"] == "markdown":
            cell["source"] = SCRIPT
    path = folder / student / f"{RING}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(made))
    found = row(student, digest=submission.digest(path.read_bytes()))
    return replace(found, exercises=tuple(replace(e, mismatch=f"ValueError: {SCRIPT}") for e in found.exercises))


def test_a_file_that_changed_since_it_was_graded_gets_no_notebook(path, tmp_path):
    given = handed_in(tmp_path / "submitted", "anna")
    (tmp_path / "submitted" / "anna" / f"{RING}.ipynb").write_text("{}")
    written, left_out = notebooks.write([(given, RING)], tmp_path / "submitted", tmp_path / "autograded", LABS, ROOT)
    assert written == 0 and "is not the file that was graded" in left_out[0]


@pytest.fixture(scope="module")
def formgrader(empty_gradebook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[object, Path]]:
    """`ask(path, data=None)` of a Jupyter server with nbgrader's formgrader, and the gradebook that it has open."""
    folder = tmp_path_factory.mktemp("course")
    path = Path(shutil.copy(empty_gradebook, folder / "gradebook.db"))
    given = [handed_in(folder.parent / "submitted", "anna"), row("ben", state="timeout")]
    notebooks.write(enter(path, *given).placed[:1], folder.parent / "submitted", folder / "autograded", LABS, ROOT)
    extension = '{"nbgrader.server_extensions.formgrader": True}'
    command = [
        sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0", f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=secret",
        f"--ServerApp.jpserver_extensions={extension}",
    ]  # fmt: skip
    log = folder.parent / "formgrader.log"
    environment = {**os.environ, "JUPYTER_NO_CONFIG": "1", "JUPYTER_RUNTIME_DIR": str(folder.parent / "runtime")}
    with log.open("w") as said:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)

    def url() -> str:
        assert server.poll() is None, log.read_text()
        found = re.search(r"(http://127\.0\.0\.1:[1-9]\d*)/", log.read_text())
        return found[1] if found else ""

    def answers() -> bool:  # a moment after it has said its address
        try:
            return bool(url()) and bool(ask("gradebook"))
        except urllib.error.URLError:
            return False

    def ask(place: str, data: dict | None = None) -> str:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{url()}/formgrader/{place}", body, method="PUT" if data else "GET")
        request.add_header("Authorization", "token secret")
        with urllib.request.urlopen(request, timeout=_HANG_S) as answer:
            return answer.read().decode()

    try:
        seconds_until(answers, _HANG_S)
        yield ask, path
    finally:
        server.terminate()
        server.wait(_HANG_S)


@pytest.mark.soak
def test_formgrader_lists_the_assignment_and_its_scores(formgrader):
    ask, _ = formgrader
    assert "Manual Grading" in ask("gradebook")
    assert [a["name"] for a in json.loads(ask("api/assignments"))] == [RING]
    found = {s["student"]: (s["score"], s["needs_manual_grade"]) for s in json.loads(ask(f"api/submissions/{RING}"))}
    assert found == {"anna": (2.5, False), "ben": (2.5, True)}


@pytest.mark.soak
def test_formgrader_shows_a_students_cells_as_text_and_none_of_their_html(formgrader):
    ask, _ = formgrader
    (notebook,) = json.loads(ask(f"api/submitted_notebooks/{RING}/{RING}"))
    page = ask(f"submissions/{notebook['id']}/")
    assert "alert(1)" not in page.replace("&lt;script&gt;alert(1)&lt;/script&gt;", "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; mine" in page and "all_gather: fail, 0.5 of 1 points" in page


def test_points_given_in_formgrader_stay_when_graded_again(formgrader):
    ask, path = formgrader
    (notebook,) = json.loads(ask(f"api/submitted_notebooks/{RING}/{RING}"))
    mine = json.loads(ask(f"api/grades?submission_id={notebook['id']}"))[0]
    ask(f"api/grade/{mine['id']}", {"manual_score": 0.75, "extra_credit": None})
    enter(path, row("anna", 9))
    assert json.loads(ask(f"api/grade/{mine['id']}"))["manual_score"] == 0.75
