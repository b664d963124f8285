"""A folder graded by Slurm on two nodes says what one machine says, also where a node is killed in the midst."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, with_cell
from tests.support import slurm as slurm_support
from tests.support.daemons import until
from tests.support.slurm import Slurm
from worldsize.grade import slurm as grading
from worldsize.grade.marking import rows
from worldsize.grade.marking.grade_folder import NO_DATES, grade
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.selection import Selection, Shard

pytestmark = pytest.mark.timeout(900)
SEED = 7
LIMIT_S = 600.0
ONE_A_NODE = "nodes=2,cpus_per_task=8,timeout_min=20"  # which has 8, by what it believes
SOURCES = [
    TITLE + RIGHT,
    TITLE,
    TITLE + RIGHT.replace("return received", "return x"),
    TITLE + "import os\nos._exit(3)\n",
    TITLE + "def pass_right(fabric, x):\n    raise ValueError(f'{x.tolist()} {torch.rand(1).item()}')\n",
]


@pytest.fixture
def in_slurm(slurm: Slurm, sandbox: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """This process finds the Slurm of the tests, and leaves nothing there."""
    look_for(slurm, monkeypatch)
    yield slurm
    slurm.cancel_all()
    until(lambda: not slurm.pids(), 60, "no process of a job is left")


def look_for(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", slurm.env()["SLURM_CONF"])


@pytest.fixture
def doomed_slurm(slurm: Slurm, sandbox: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A Slurm of this test's own, which may lose a node: there is one where there is the tests'."""
    with slurm_support.cluster(2) as own:
        look_for(own, monkeypatch)
        yield own


def submitted(folder: Path, count: int) -> Path:
    for k in range(count):
        path = folder / f"s_{k}" / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(with_cell(SOURCES[k % len(SOURCES)] + f"# {k}\n")))
    return folder


def results(found: tuple[GradeRow, ...]) -> list[tuple]:
    return [row.result for row in found]


@pytest.mark.soak
def test_two_nodes_say_what_one_machine_says(in_slurm, tmp_path):
    folder = submitted(tmp_path / "submitted", 2 * grading._LEAST_ROWS)
    own_setup = f"{ONE_A_NODE},slurm_setup=touch {tmp_path}/set-up"
    done = grading.grade_on_slurm(folder, tmp_path / "out", own_setup, ROOT, SEED, jobs=1)
    assert done.unfinished == () and done.tasks == 2 and (tmp_path / "set-up").exists()
    assert {row.host for row in done.folder.rows} == {"n1", "n2"}
    alone = grade(folder, tmp_path / "alone", root=ROOT, seed=SEED)
    assert results(done.folder.rows) == results(alone.rows)
    assert not (tmp_path / "out" / "slurm" / "x").exists() and list((tmp_path / "out" / "leases").iterdir()) == []


@pytest.mark.soak
def test_a_sandbox_that_a_node_refuses_is_tried_on_the_other(in_slurm, tmp_path, monkeypatch):
    """The program bwrap of one node refuses: it is looked for in the job, and not where the job is submitted."""
    monkeypatch.setattr(grading, "_LEAST_ROWS", 2)
    refusing = tmp_path / "bin"
    refusing.mkdir()
    refuses = 'if [ "$(hostname)" = n1 ]; then echo refused here >&2; exit 1; fi'
    (refusing / "bwrap").write_text(f'#!/bin/sh\n{refuses}\nexec /usr/bin/bwrap "$@"\n')
    (refusing / "bwrap").chmod(0o755)
    monkeypatch.setattr(grading, "_SETUP", (f"export PATH={refusing}:$PATH",))
    folder = submitted(tmp_path / "submitted", 4)
    done = grading.grade_on_slurm(folder, tmp_path / "out", ONE_A_NODE, ROOT, SEED, jobs=1)
    assert done.unfinished == () and {row.host for row in done.folder.rows} == {"n2"} and done.tasks == 3


@pytest.mark.soak
def test_no_task_has_as_many_siblings_as_slurm_refuses(in_slurm, tmp_path, monkeypatch):
    assert grading._most_tasks() == 1000
    shards = [Selection(shard=Shard(k, 2500)) for k in range(1, 2501)]
    calls = [grading.ShardCall(tmp_path, tmp_path, ROOT, 1, SEED, shard, NO_DATES) for shard in shards]
    assert [len(chunk) for chunk in grading._chunks(calls, grading._most_tasks())] == [1000, 1000, 500]


@pytest.mark.soak
def test_a_folder_that_the_nodes_do_not_see_is_said_and_not_tried_again(in_slurm, tmp_path):
    end = grading.grade_shard(grading.ShardCall(tmp_path / "nowhere", tmp_path, ROOT, 1, SEED, Selection(), NO_DATES))
    assert end.kind == "failed" and "all nodes must see it" in end.why


@pytest.mark.parametrize(("text", "words"), [("nodes=0", "nodes=0"), ("gpu", "name=value"), ("nodes=2,colour=red", "colour=red")])
def test_what_is_no_order_for_slurm_is_one_sentence(text, words):
    with pytest.raises(ValueError, match=f"^--slurm='{text}'.*{words}"):
        grading.parameters_from_text(text)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_node_that_is_killed_in_the_midst_changes_nothing_but_host_and_attempt(doomed_slurm, tmp_path):
    folder = submitted(tmp_path / "submitted", 24)
    words = ["grade", str(folder), "--out", str(tmp_path / "out"), "--seed", str(SEED), "--course", str(ROOT), "--jobs", "1"]
    command = [sys.executable, "-m", "worldsize.cli", *words, "--slurm", ONE_A_NODE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(run.stdout.read()))
        reader.start()

        def rows_of(host: str) -> list[GradeRow]:
            return [row for row in rows.read_all(tmp_path / "out") if row.host == host]

        until(lambda: rows_of("n2") != [], LIMIT_S, "the second node has graded one")
        second = doomed_slurm.hosts[1]
        for pid in second.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert run.wait(LIMIT_S) == 0, said
        reader.join()
    alone = grade(folder, tmp_path / "alone", root=ROOT, seed=SEED)
    assert results(tuple(rows.read_all(tmp_path / "out"))) == results(alone.rows)
