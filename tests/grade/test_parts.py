"""Grading in part: by lab, student, file or shard, again, and by several who share a folder; what was not asked for stays."""

import json
import socket
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.support.quick_marking import LAB, RING, hand_in, in_threads, quick_marking
from worldsize.grade.marking import grade_folder, submission
from worldsize.grade.marking.grade_folder import FolderGrading, grade
from worldsize.grade.marking.grading_record import read_graded
from worldsize.grade.marking.lateness import due_dates
from worldsize.grade.marking.rows import file_name
from worldsize.grade.marking.selection import Selection, Shard, shard_of
from worldsize.grade.reports import needs_a_person

pytestmark = pytest.mark.quick
ROOT = Path(__file__).resolve().parents[2]
EVERYBODY = [f"{student}/{lab}.ipynb" for student in ("anna_1", "ben_2", "carl_3") for lab in (LAB, RING)]


@pytest.fixture
def marking(monkeypatch):
    return quick_marking(monkeypatch)


@pytest.fixture
def graded(tmp_path, marking):
    """`graded(selection, …)`: a call of `grade` on everybody's notebooks."""
    folder = hand_in(tmp_path / "submitted", *EVERYBODY)

    def call(selection: Selection = Selection(), out: str = "out", **more: object) -> FolderGrading:  # noqa: B008 - frozen
        marking.marked.clear()
        return grade(folder, tmp_path / out, root=ROOT, mode="own", selection=selection, **{"seed": 7, **more})

    return call


@pytest.mark.parametrize(
    ("selection", "marked"),
    [
        (Selection(labs=(RING,)), [name for name in EVERYBODY if RING in name]),
        (Selection(students=("ben_2",)), EVERYBODY[2:4]),
        (Selection(students=("2", "anna_1")), EVERYBODY[:4]),
        (Selection(only=(f"*/{LAB}.ipynb",)), EVERYBODY[::2]),
        (Selection(labs=(LAB,), students=("3",)), [EVERYBODY[4]]),
        (Selection(), EVERYBODY),
    ],
    ids=["lab", "student", "numbers", "pattern", "both", "all"],
)
def test_only_what_is_asked_for_is_marked(graded, marking, selection, marked):
    done = graded(selection)
    assert sorted(marking.marked) == sorted(marked) and done.graded == len(marked)
    assert sorted(done.folder.missing) == sorted(set(EVERYBODY) - set(marked))


def test_rows_that_are_not_asked_for_stay_and_count(graded, marking):
    whole = graded()
    marking.points = 2.0
    part = graded(Selection(labs=(RING,), again=True))
    assert [row.points for row in part.rows] == [4.0, 2.0] * 3
    assert (part.graded, part.kept, part.folder.gone, len(whole.rows)) == (3, 0, (), 6)


def test_what_holds_is_marked_again_only_where_that_is_asked_for(graded, marking):
    graded()
    assert graded().graded == 0
    assert graded(Selection(students=("anna_1",), again=True)).graded == 2 and sorted(marking.marked) == EVERYBODY[:2]


def test_what_ended_badly_is_marked_again(graded, marking):
    marking.states = {"anna_1": "crashed", "ben_2": "timeout"}
    graded()
    marking.states = {}
    assert graded(Selection(crashed=True)).graded == 4 and sorted(marking.marked) == EVERYBODY[:4]
    assert graded(Selection(crashed=True)).graded == 0


def test_one_who_handed_in_again_and_is_passed_over_is_named_until_graded(graded, tmp_path):
    graded()
    path = tmp_path / "submitted" / EVERYBODY[1]
    path.write_text(path.read_text() + " ")
    found = needs_a_person.needs(graded(Selection(labs=(LAB,))).folder)
    assert [(need.kind, need.student, need.lab) for need in found] == [("changed since", "anna_1", RING)]
    assert needs_a_person.needs(graded().folder) == []


def test_rows_of_another_release_that_are_passed_over_are_one_line_a_lab(graded, monkeypatch):
    graded()
    monkeypatch.setattr(grade_folder, "release_digests", lambda labs: {lab: "mended" for lab in [*labs, ""]})
    found = [need for need in needs_a_person.needs(graded(Selection(labs=(LAB,))).folder) if need.kind == "changed since"]
    assert [need.words for need in found] == [
        f"{RING}: 3 rows from another release, seed or sandbox than the last grading: grade all again"
    ]
    assert needs_a_person.needs(graded().folder) == []


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (
            Selection(students=("dora",)),
            r"--student: expected a student who handed in \('anna_1', 'ben_2', 'carl_3'\), got 'dora'",
        ),
        (Selection(only=("dora/*",)), r"--only: expected a path in the folder.*and 3 more\), got 'dora/\*'"),
    ],
)
def test_one_who_is_not_there_is_a_mistake(graded, selection, words):
    with pytest.raises(ValueError, match=words):
        graded(selection)


def test_a_note_on_a_file_is_kept_up_to_date_without_marking(graded, tmp_path):
    graded()
    (tmp_path / "submitted" / "anna_1" / f"{LAB} (1).ipynb").write_text("{}")
    again = graded()
    assert again.graded == 0 and "2 notebooks of this lab" in again.rows[0].handed_in


@pytest.mark.parametrize(
    ("moment", "late"),
    [
        ("2026-11-02 00:59:00.5 UTC", "59 minutes late"), ("2026-11-02 10:00:00 UTC", "10 hours late"),
        ("2026-11-09 00:00:00 UTC", "7 days late"), ("2026-11-01 23:59:00 UTC", ""), ("2026-11-02 00:30:00 Europe/Berlin", ""),
        ("2026-11-02 02:30:00 Europe/Berlin", "90 minutes late"), ("yesterday", ""), ("2026-11-02 02:30:00 Nowhere/Land", ""),
    ],
)  # fmt: skip
def test_nbgraders_moment_is_compared_with_the_due_date_and_nothing_is_taken_off(graded, tmp_path, moment, late):
    (tmp_path / "submitted" / "anna_1" / "timestamp.txt").write_text(moment)
    row = graded(due=due_dates(["00=2026-11-02 00:00+00:00"], [LAB, RING])).rows[0]
    assert (row.student, row.late, row.points) == ("anna_1", late, 4.0)


def test_a_due_date_that_is_said_later_marks_nothing_again(graded, tmp_path):
    (tmp_path / "submitted" / "anna_1" / "timestamp.txt").write_text("2026-11-09 00:00:00 UTC")
    assert graded().rows[0].late == ""
    again = graded(due=due_dates(["2026-11-02 00:00+00:00"], [LAB, RING]))
    assert (again.graded, [row.late for row in again.rows]) == (0, ["7 days late"] * 2 + [""] * 4)


@pytest.mark.parametrize(("text", "words"), [("99=2026-01-01", "expected a lab of the course"), ("soon", "expected a date")])
def test_what_is_no_due_date_is_a_mistake(text, words):
    with pytest.raises(ValueError, match=words):
        due_dates([text], [LAB])


def test_every_row_is_in_one_shard_whatever_the_folder_holds_besides():
    names = [file_name(f"s{k}_{k}", RING) for k in range(2000)]
    found = Counter(number for name in names for number in range(1, 8) if Shard(number, 7).has(name))
    assert sum(found.values()) == 2000 and all(240 < count < 330 for count in found.values())


def test_a_shard_reads_the_files_of_its_own_rows_alone(graded, marking, monkeypatch):
    opened = []
    read = submission.read
    monkeypatch.setattr(submission, "read", lambda path, most: opened.append(path) or read(path, most))
    graded(Selection(shard=Shard(1, 3)))
    assert len(opened) == 2 * len(marking.marked) < 2 * len(EVERYBODY)  # once here, once where it is marked


def test_shards_in_one_folder_are_the_whole(graded):
    whole = graded()
    parts = [graded(Selection(shard=Shard(k, 3)), out="shared") for k in (1, 2, 3)]
    assert [row.result for row in parts[-1].rows] == [row.result for row in whole.rows]
    assert sum(part.graded for part in parts) == 6 and parts[-1].folder.missing == ()


def test_a_shard_into_a_fresh_folder_wants_the_seed_that_all_share(graded):
    with pytest.raises(ValueError, match=r"expected one seed for all shards, got none.*--seed [0-9]+"):
        graded(Selection(shard=Shard(1, 3)), seed=None)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5"])
def test_what_is_no_shard_is_a_mistake(text):
    with pytest.raises(ValueError, match="expected one part of several"):
        shard_of(text)
    assert shard_of("3/7") == Shard(3, 7)


def test_two_gradings_into_one_folder_share_the_rows(graded, marking, monkeypatch):
    monkeypatch.setattr(grade_folder, "_ASK_AGAIN_S", 0.01)
    done = in_threads(*[partial(graded, jobs=2)] * 3)
    assert sum(one.graded for one in done) == len(EVERYBODY)
    assert all(len(one.rows) == len(EVERYBODY) and one.folder.missing == () for one in done)


def test_a_row_that_somebody_else_marks_is_waited_for_and_not_marked_twice(graded, marking, monkeypatch, tmp_path):
    monkeypatch.setattr(grade_folder, "_ASK_AGAIN_S", 0.01)
    marked = []

    def meanwhile(task):
        marking.meanwhile = lambda task: marked.append(task.name)
        other = in_threads(lambda: graded(Selection(students=("ben_2", "carl_3"))))[0]
        assert other.folder.missing != ()  # this very row, which the first one holds
        marked.append(task.name)

    marking.meanwhile = meanwhile
    done = graded(jobs=1)
    assert sorted(marked) == EVERYBODY and len(done.rows) == 6


def held(folder: Path, student: str, pid: int, host: str) -> None:
    """A lease that a process of some machine holds, as far as its file says."""
    (folder / "leases").mkdir(parents=True)
    lines = ["filelock/2", f"pid={pid}", f"host={host}", "mode=lease", "token=abc", f"duration={grade_folder.LEASE_S}", ""]
    (folder / "leases" / f"{file_name(student, LAB)}.lease").write_text("\n".join(lines))


def test_what_a_dead_process_of_this_machine_held_is_free_at_once(graded, tmp_path):
    with subprocess.Popen(["true"]) as ended:
        pass
    held(tmp_path / "out", "anna_1", ended.pid, socket.gethostname())
    assert graded().graded == len(EVERYBODY)


def test_what_another_machine_held_is_free_when_nothing_was_heard_of_it(graded, tmp_path, monkeypatch):
    monkeypatch.setattr(grade_folder, "LEASE_S", 0.3)
    monkeypatch.setattr(grade_folder, "_ASK_AGAIN_S", 0.05)
    held(tmp_path / "out", "anna_1", 1, "far.away")
    assert graded().graded == len(EVERYBODY)


def test_another_seed_while_somebody_grades_is_refused(graded, marking):
    refused = []

    def meanwhile(task):
        marking.meanwhile = lambda task: None
        with pytest.raises(ValueError, match="expected no grading with another seed") as said:
            graded(seed=8)
        refused.append(str(said.value))

    marking.meanwhile = meanwhile
    graded()
    assert len(refused) == 1 and "process" in refused[0]
    assert graded(seed=8).graded == len(EVERYBODY)


def test_gradings_that_begin_at_once_without_a_seed_take_the_first_ones(graded, monkeypatch):
    monkeypatch.setattr(grade_folder, "_ASK_AGAIN_S", 0.01)
    done = in_threads(*[partial(graded, seed=None)] * 4)
    assert len({one.seed for one in done}) == 1 and {row.seed for row in done[0].rows} == {done[0].seed}


def test_no_lease_and_no_part_of_a_file_is_left(graded, tmp_path):
    path = tmp_path / "out" / "rows" / file_name("anna_1", LAB)
    program = f"import os; os.replace = os._exit; from worldsize import files; files.write_whole(files.Path({str(path)!r}), 'x')"
    killed = subprocess.run([sys.executable, "-c", program.replace("os._exit", "lambda *_: os._exit(9)")])
    assert killed.returncode == 9 and len(list(path.parent.glob(".*.part"))) == 1
    graded()
    assert list(path.parent.glob(".*.part")) == [] and list((tmp_path / "out" / "leases").iterdir()) == []
    assert len(read_graded(tmp_path / "out").rows) == len(EVERYBODY)
    assert json.loads((tmp_path / "out" / "grading.json").read_text())["seed"] == 7
