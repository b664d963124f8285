"""A grading can be killed at any moment and goes on, gives the same result each time, and refuses without a sandbox."""

import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from typer.testing import CliRunner

from tests.grade.cheats import CASES, LAB, RIGHT, ROOT, TITLE, Case, with_cell
from tests.support.graded_arena import SEED, mark_here
from tests.support.processes import LONG_S, below
from tests.support.quick_marking import QuickMarking, quick_marking
from worldsize import cli
from worldsize.grade import course
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import NoSandbox
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import grade_folder, submission
from worldsize.grade.marking import rows as row
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.grading_record import read_graded
from worldsize.grade.marking.mark_submission import MarkingTask, mark
from worldsize.grade.marking.merge import merge
from worldsize.grade.marking.release_digests import release_digests
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.selection import Selection, Shard
from worldsize.grade.outside.boxes import Sandbox

KINDS = ("honest", "damaged")
for kind in KINDS:
    import_module(f"tests.grade.cheats.{kind}")

pytestmark = pytest.mark.timeout(600)

RING = "06_ring_all_reduce"
_HANG_S = 300  # a bound against a hang
OF_EACH_STATE = ("the_plain_answer", "its_own_tensor", "claims_100_points", "half_of_the_file")
# of these kinds alone, in this order, whichever others another test has imported
SOON_OVER = [
    case for kind in KINDS for case in CASES
    if case.kind == kind and case.states != ("timeout",) and case.name != "takes_its_time"
]  # fmt: skip
LIMITS = Limits(case_s=5, wall_s=60)


needs_sandbox = pytest.mark.usefixtures("_sandboxed")


@pytest.fixture
def marking(monkeypatch: pytest.MonkeyPatch) -> QuickMarking:
    """Marking without a process: what a grading keeps, and what it does again, is its own to know."""
    return quick_marking(monkeypatch)


def hand_in(folder: Path, **notebooks: dict) -> Path:
    """`{"anna": notebook}` as submissions of lab 00."""
    for student, notebook in notebooks.items():
        (folder / student).mkdir(parents=True)
        (folder / student / f"{LAB}.ipynb").write_text(json.dumps(notebook))
    return folder


def results(rows: tuple[GradeRow, ...]) -> list[tuple]:
    return [r.result for r in rows]


def test_a_second_run_grades_nothing_and_says_the_same(tmp_path, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE + RIGHT), ben=with_cell(TITLE))
    first = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    second = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert (first.graded, second.graded) == (2, 0)
    assert first.rows == second.rows


def test_a_file_that_was_handed_in_again_is_graded_again(tmp_path, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE), ben=with_cell(TITLE))
    grade(folder, tmp_path / "out", root=ROOT, mode="own")
    (folder / "anna" / f"{LAB}.ipynb").write_text(json.dumps(with_cell(TITLE + RIGHT)))
    again = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert (again.graded, marking.marked[2:]) == (1, [f"anna/{LAB}.ipynb"])


def test_a_file_is_read_once_here_and_once_where_it_is_marked(tmp_path, monkeypatch, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE))
    (folder / "ben").mkdir()
    (folder / "ben" / "notes.ipynb").write_text(json.dumps(with_cell(TITLE + RIGHT)))
    (folder / "ben" / "more.ipynb").write_text(json.dumps({"cells": []}))
    opened, read = [], submission.read
    monkeypatch.setattr(submission, "read", lambda path, most: opened.append(path.name) or read(path, most))

    for marked in (2, 1):  # marking reads the file too; the second time there is nothing to mark
        batch = grade(folder, tmp_path / "out", jobs=1, root=ROOT, mode="own")
        assert Counter(opened) == dict.fromkeys([f"{LAB}.ipynb", "more.ipynb", "notes.ipynb"], marked)
        assert [(r.student, r.lab, r.digest != "") for r in batch.rows] == [
            ("anna", LAB, True), ("ben", "", True), ("ben", LAB, True)
        ]  # fmt: skip
        opened.clear()


def test_a_row_has_the_digest_of_the_bytes_that_were_marked(tmp_path):
    """Also where somebody handed in again between the grading's look at the file and its marking."""
    path = tmp_path / "06.ipynb"
    path.write_bytes(b"{}")
    task = MarkingTask("anna", RING, str(path), "anna/06.ipynb")
    row = mark(task, course.load(ROOT), SimpleNamespace(mode="own"), SEED)
    assert (row.state, row.digest) == ("ungradable", submission.digest(b"{}"))


def test_another_release_grades_again(tmp_path, monkeypatch, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE + RIGHT), ben=with_cell(TITLE))
    (folder / "carl").mkdir()
    (folder / "carl" / f"{LAB}.ipynb").write_text(json.dumps({"cells": []}))
    first = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert {r.release for r in first.rows} == {release_digests(course.load(ROOT))[LAB]}
    monkeypatch.setattr(grade_folder, "release_digests", lambda labs: {lab: "mended" for lab in [*labs, ""]})
    again = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert (again.graded, {r.release for r in again.rows}) == (3, {"mended"})
    assert grade(folder, tmp_path / "out", root=ROOT, mode="own").graded == 0


def test_a_row_of_a_version_that_kept_no_release_is_graded_again(tmp_path, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE))
    grade(folder, tmp_path / "out", root=ROOT, mode="own")
    (path,) = (tmp_path / "out" / "rows").iterdir()
    old = json.loads(path.read_text())
    for name in ("release", "host", "attempt"):
        del old[name]
    path.write_text(json.dumps(old))
    (tmp_path / "out" / "grading.json").write_text(json.dumps({"seed": old["seed"]}))
    assert [r.release for r in read_graded(tmp_path / "out").rows] == [""]
    again = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert (again.graded, again.rows[0].release != "", again.rows[0].host, again.seed) == (1, True, platform.node(), old["seed"])


def test_a_damaged_record_of_a_grading_is_a_mistake_with_the_next_step(tmp_path):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE))
    for damaged in ("", "[]", "{}", '{"seed": "x"}', '{"seed": 1, "paths": []}', '{"seed": 1, "stale": 2}'):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "grading.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"grading.json: expected the seed and the files.*delete this file"):
            grade(folder, tmp_path / "out", root=ROOT, mode="own")


def test_a_link_is_not_followed_and_has_a_row(tmp_path, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE))
    (folder / f"eve_{LAB}.ipynb").symlink_to(tmp_path)
    batch = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    row = {made.student: made for made in batch.rows}["eve"]
    assert (row.state, "links are not followed" in row.reason) == ("ungradable", True)


DRAWS = TITLE + "def pass_right(fabric, x):\n    raise ValueError(f'{x.tolist()} {torch.rand(1).item()}')\n"


def test_the_same_seed_replays_what_the_check_and_the_ranks_drew(tmp_path, sandbox):
    path = hand_in(tmp_path / "submitted", anna=with_cell(DRAWS)) / "anna" / f"{LAB}.ipynb"
    first, again, other = (mark_here(sandbox, path, LAB, seed=seed) for seed in (5, 5, 6))
    assert first.exercises[0].mismatch == again.exercises[0].mismatch != other.exercises[0].mismatch
    assert first.seed == 5


def test_a_seed_is_drawn_and_kept_where_none_is_given(tmp_path, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE))
    first = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert grade(folder, tmp_path / "out", root=ROOT, mode="own").seed == first.seed == first.rows[0].seed > 0


def test_grades_do_not_go_among_the_submissions(tmp_path):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE))
    with pytest.raises(ValueError, match="expected a folder outside the submissions"):
        grade(folder, folder / "out", root=ROOT)


def many(folder: Path, count: int, cases: list[Case] = SOON_OVER) -> Path:
    for k in range(count):
        case = cases[k % len(cases)]
        (folder / f"s{k:02d}").mkdir(parents=True)
        case.make(folder / f"s{k:02d}" / f"{LAB}.ipynb")
    return folder


def start(folder: Path, out: Path, jobs: int) -> subprocess.Popen:
    words = ["grade", str(folder), "--out", str(out), "--jobs", str(jobs), "--seed", str(SEED), "--course", str(ROOT)]
    return subprocess.Popen(
        [sys.executable, "-m", "worldsize.cli", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kept(out: Path) -> dict[str, tuple]:
    """Which rows are there to stay, and which file each is: a row that was written again is another file."""
    found = [out / "rows" / made.file_name for made in row.read_all(out) if made.state != "lost"]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def workers(grader: subprocess.Popen) -> set[int]:
    with suppress(psutil.NoSuchProcess):
        return {process.pid for process in below("worldsize.grade.marking.worker_process", pid=grader.pid)}
    return set()


class Kill:
    """Of a worker, the grader or the whole, as soon as a worker has started or a row is there, as chance has it."""

    def __init__(self, target: str, grader: subprocess.Popen, out: Path, chance: random.Random) -> None:
        self._target = target
        self._grader, self._out, self._chance = grader, out, chance
        self._event = chance.choice(["worker", "row"])
        self._before = self._seen()
        self.tree: list[psutil.Process] = []

    def _seen(self) -> set:
        if self._event == "worker":
            return workers(self._grader)
        return set((self._out / "rows").glob("*.json"))

    def strike(self) -> bool:
        """Wait for the event and kill; False where there was nothing to kill any more."""
        while not self._seen() - self._before:
            with suppress(subprocess.TimeoutExpired):
                self._grader.wait(0.01)  # between two looks
                return False

        self.tree = psutil.Process(self._grader.pid).children(recursive=True)
        victims = [self._grader.pid]
        if self._target == "worker":
            alive = sorted(workers(self._grader))
            victims = self._chance.sample(alive, min(1, len(alive)))
        elif self._target == "whole":
            victims += [process.pid for process in self.tree]

        for victim in self._chance.sample(victims, len(victims)):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        return bool(victims)


def one_run(folder: Path, out: Path, targets: list[str], chance: random.Random, jobs: int) -> tuple[list[str], bool]:
    """A grading with the first of these kills, until one ends it: which there were, and whether it came to its own end."""
    struck: list[str] = []
    tree: list[psutil.Process] = []
    grader = start(folder, out, jobs)
    while len(struck) < len(targets) and set(struck) <= {"worker"}:
        target = targets[len(struck)]
        kill = Kill(target, grader, out, chance)
        if not kill.strike():
            break
        struck.append(target)
        tree += kill.tree

    whole = grader.wait(_HANG_S) == 0
    assert whole == (set(struck) <= {"worker"})
    _, alive = psutil.wait_procs(tree, timeout=LONG_S)
    assert alive == [], "processes outlived the grader"
    return struck, whole


def kill_and_go_on(folder: Path, out: Path, targets: list[str], chance: random.Random, jobs: int) -> None:
    """Grade with these kills, and then to the end; what had its row at a kill keeps it as it is."""
    while targets:
        before = kept(out)
        struck, whole = one_run(folder, out, targets, chance, jobs)
        targets = targets[len(struck) :]
        after = kept(out)
        assert {name: after[name] for name in before} == before, "a row was made twice"
        if whole and targets:
            shutil.rmtree(out)  # it came to its end: begin anew
    assert start(folder, out, jobs).wait(_HANG_S) == 0


def as_undisturbed(
    folder: Path, out: Path, undisturbed: Sequence[GradeRow], targets: list[str], chance: random.Random, jobs: int = 2
) -> None:
    kill_and_go_on(folder, out, targets, chance, jobs)
    found = tuple(row.read_all(out))
    assert results(found) == results(undisturbed)
    assert [p.name for p in (out / "rows").iterdir() if p.suffix != ".json"] == []


def test_kills_of_a_worker_and_of_the_grader_change_nothing(tmp_path, sandbox):
    folder = many(tmp_path / "submitted", 4, [case for case in CASES if case.name in OF_EACH_STATE])
    undisturbed = [mark_here(sandbox, path, LAB, path.parent.name) for path in sorted(folder.rglob("*.ipynb"))]
    as_undisturbed(folder, tmp_path / "killed", undisturbed, ["worker", "grader"], random.Random(3), jobs=1)


@needs_sandbox
@pytest.mark.soak
def test_kills_of_a_worker_the_grader_and_the_whole_change_nothing(tmp_path):
    folder = many(tmp_path / "submitted", 8)
    undisturbed = grade(folder, tmp_path / "whole", root=ROOT, seed=SEED)
    as_undisturbed(folder, tmp_path / "killed", undisturbed.rows, ["worker", "grader", "whole"], random.Random(3))


@needs_sandbox
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_ten_kills_change_nothing(tmp_path, seed):
    chance = random.Random(seed)
    targets = chance.choices(["worker", "worker", "grader", "whole"], k=10)
    folder = many(tmp_path / "submitted", 40)
    undisturbed = grade(folder, tmp_path / "whole", root=ROOT, seed=SEED)
    as_undisturbed(folder, tmp_path / "killed", undisturbed.rows, targets, chance)


def test_without_bubblewrap_nothing_is_graded_and_the_next_step_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE))
    with pytest.raises(NoSandbox, match="Install the package bubblewrap.*--unsafe"):
        grade(folder, tmp_path / "out", root=ROOT)
    assert not (tmp_path / "out").exists()


def test_a_sandbox_that_does_not_start_is_refused_with_what_it_said(tmp_path, monkeypatch):
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(NoSandbox, match="bubblewrap said: bwrap: No permissions.*AppArmor"):
        bubblewrap.best_mode()


def test_unsafe_marks_every_row(tmp_path):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE + RIGHT), ben=with_cell(TITLE))
    made = grade(folder, tmp_path / "out", jobs=1, root=ROOT, mode="unsafe", limits=LIMITS)
    assert [(r.points, r.unsafe) for r in made.rows] == [(4.0, True), (0.0, True)]


def test_an_unsafe_row_is_graded_again_with_a_sandbox(tmp_path, marking):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE + RIGHT))
    grade(folder, tmp_path / "out", root=ROOT, mode="unsafe")
    again = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert (again.graded, again.rows[0].unsafe) == (1, False)


@pytest.mark.soak
def test_where_ranks_cannot_have_walls_of_their_own_each_gets_a_fresh_sandbox(tmp_path, sandbox):
    wrong = with_cell(TITLE + RIGHT.replace("return received", "return x"))
    path = hand_in(tmp_path / "submitted", anna=wrong) / "anna" / f"{LAB}.ipynb"
    with closing(Sandbox("fresh", sandbox.limits)) as fresh:
        assert mark_here(fresh, path, LAB).result == mark_here(sandbox, path, LAB).result


@needs_sandbox
def test_the_command_prints_rows_statistics_and_how_to_replay(tmp_path):
    folder = hand_in(tmp_path / "submitted", anna=with_cell(TITLE + RIGHT))
    words = ["grade", str(folder), "--out", str(tmp_path / "out"), "--course", str(ROOT), "--seed", "3"]
    said = " ".join(CliRunner().invoke(cli.app, words).output.split())
    assert "anna 00_start_here graded 4 of 4" in said
    assert "1 submission (1 graded) mean 4" in said
    assert said.endswith("To replay a row: --seed 3")


def test_a_mistake_of_the_caller_is_one_paragraph(tmp_path):
    answer = CliRunner().invoke(cli.app, ["grade", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 1
    assert "expected a folder of submissions" in " ".join(answer.output.split())


@needs_sandbox
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_seven_shards_merged_are_the_whole(tmp_path):
    folder = many(tmp_path / "submitted", 28)
    whole = grade(folder, tmp_path / "whole", root=ROOT, seed=SEED)
    parts = [tmp_path / f"part{k}" for k in range(1, 8)]
    for k, part in enumerate(parts, 1):
        grade(folder, part, root=ROOT, seed=SEED, selection=Selection(shard=Shard(k, 7)))
    assert results(merge(tmp_path / "all", parts).rows) == results(whole.rows)
