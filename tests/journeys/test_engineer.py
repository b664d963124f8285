"""An engineer: the blocks of docs/own-work.md and docs/clusters.md in their order, ssh and Slurm on two hosts of this machine."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tests.journeys.doors import ROOT, Entered, block, blocks, doors_of
from tests.journeys.person import PROGRAMS, Person, environment
from tests.support import namespaces, slurm, sshd
from tests.support.daemons import until
from tests.support.namespaces import INTERFACE
from tests.support.notebook_rules import text_of

OWN_WORK = blocks("docs/own-work.md")
GUIDE = blocks("docs/clusters.md")
DOORS = [*doors_of(OWN_WORK), *doors_of(GUIDE), "worldsize answers", "worldsize run"]

CELLS = [one for one in OWN_WORK if one.language == "python"]
FIRST_ON_HOSTS = next(place for place, one in enumerate(CELLS) if one.text.startswith("from worldsize import hosts"))
ON_SLURM, BATCH, OVER_GROUP, UNDER_SRUN = GUIDE
LIMIT_S = 200.0
GONE_S = 20.0
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


@pytest.fixture(scope="module")
def two_by_ssh() -> Iterator[list[str] | None]:
    """A command to start on a third host, where `ssh n1` and `ssh n2` need no password; None if there can be no such hosts."""
    if namespaces.why_not() or sshd.why_not():
        yield None
        return
    with ExitStack() as stack:
        *two, here = stack.enter_context(namespaces.network(3)).hosts
        path = f"{PROGRAMS}:{os.defpath}"
        servers = [stack.enter_context(sshd.sshd(host, path)) for host in two]
        settings = servers[0].folder / "ssh_config.d"
        settings.mkdir()
        (settings / "two.conf").write_text("".join(server.config for server in servers))
        # in the mounts of that host alone, where a person has her own settings
        yield here.command(["sh", "-c", f'mount --bind {settings} /etc/ssh/ssh_config.d && exec "$@"', "sh"])


@pytest.fixture(scope="module")
def cells(person: Person, two_by_ssh: list[str] | None) -> list[NotebookNode]:
    """The page's cells, executed: all of them, or those before the two hosts."""
    typed = CELLS if two_by_ssh else CELLS[:FIRST_ON_HOSTS]
    notebook = new_notebook(cells=[new_code_cell(one.text.removesuffix("\n")) for one in typed])
    nbformat.write(notebook, person.folder / "own_work.ipynb")
    command = "worldsize run own_work.ipynb --out executed.ipynb"
    person.types(shlex.join([*(two_by_ssh or []), "sh", "-c", command]), limit_s=LIMIT_S)
    person.entered.enter(*(one.door for one in typed))
    return nbformat.read(person.folder / "executed.ipynb", as_version=4).cells


def said(cells: list[NotebookNode], begins: str) -> str:
    """All that the cells whose text begins so put out."""
    return "\n".join(text_of(output) for cell in cells if cell.source.startswith(begins) for output in cell.outputs)


def need_hosts(entered: Entered, two_by_ssh: list[str] | None) -> None:
    """Skip where there are no two hosts."""
    if two_by_ssh is None:
        entered.skip([one.door for one in CELLS[FIRST_ON_HOSTS:]], namespaces.why_not() or sshd.why_not())


def test_four_ranks_drift_apart_without_an_average_and_are_one_model_with_it(cells: list[NotebookNode]) -> None:
    assert "4 of 4 tensors differ between ranks" in said(cells, "world.differ")
    assert "the same on ranks 0, 1, 2, 3" in said(cells, "def largest_difference")


def test_all_ways_come_to_the_weights_of_one_process(cells: list[NotebookNode]) -> None:
    for begins in ("def largest_difference", "run = launch"):
        (apart,) = re.findall(r"from one process: (\S+) at most", said(cells, begins))
        assert float(apart) < 1e-4, begins


def test_torchrun_runs_the_file(cells: list[NotebookNode]) -> None:
    text = said(cells, "said = terminal")
    assert [f"rank {rank} of 4: loss " in text for rank in range(4)] == [True] * 4


def test_two_hosts_by_ssh_have_the_ranks_and_come_to_the_same_weights(
    cells: list[NotebookNode], entered: Entered, two_by_ssh: list[str] | None
) -> None:
    need_hosts(entered, two_by_ssh)
    text = said(cells, "from worldsize import hosts")
    assert "ranks ran on n1, n1, n2, n2" in text
    assert float(re.findall(r"from one process: (\S+) at most", text)[0]) < 1e-4


def test_replicas_of_ddp_that_stay_on_the_hosts_are_one_model(
    cells: list[NotebookNode], entered: Entered, two_by_ssh: list[str] | None
) -> None:
    need_hosts(entered, two_by_ssh)
    assert "the same on ranks 0, 1, 2, 3" in said(cells, "print(world.differ")


@pytest.fixture(scope="module")
def course(person: Person) -> Person:
    """The same person in a folder with the notebook of lab 11, solved."""
    labs = person.folder / "labs"
    labs.mkdir()
    shutil.copy(next((ROOT / "solutions").glob("11_*.ipynb")), labs)
    return person


def test_a_lab_s_answers_train_under_torchrun(course: Person) -> None:
    command, program = block("docs/own-work.md", "worldsize answers"), block("docs/own-work.md", "import torch.distributed")
    course.types(command.text.strip())
    (course.folder / "program.py").write_text(program.text)
    told = course.types("torchrun --standalone --nproc-per-node 2 program.py")
    assert sorted(line for line in told.splitlines() if line.startswith("rank")) == [f"rank {rank}: 60 steps" for rank in (0, 1)]
    course.entered.enter(command.door, program.door)


# a person's train.py: what each rank found goes to standard output, in one write
TRAIN = """\
import os
import torch
import torch.distributed as dist
{more}
dist.init_process_group("gloo")
x = torch.arange(4.0) + 1000 * dist.get_rank()
{work}
print(f"rank {{dist.get_rank()}} of {{dist.get_world_size()}} on {{os.uname().nodename}}: {{x.tolist()}}\\n", end="", flush=True)
dist.barrier()
dist.destroy_process_group()
"""
LAUNCHED = """\
import os
import torch.distributed as dist
from worldsize.launch import launch

def train():
    dist.init_process_group("gloo")
    return dist.get_world_size(), os.uname().nodename

if __name__ == "__main__":
    {block}
    print(run.results)
"""


@pytest.fixture(scope="module")
def login_node(tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Iterator[Person]:
    """A person who submits to a Slurm of two nodes without GPUs. At the end no job and no process of one is left."""
    if reason := slurm.why_not():
        entered.skip([one.door for one in GUIDE], reason)
    with slurm.cluster(2) as running:
        mine = {name: value for name, value in environment().items() if not name.startswith(("SLURM", "SBATCH"))}
        yield Person(tmp_path_factory.mktemp("login"), entered, mine | {"SLURM_CONF": running.env()["SLURM_CONF"]})
        until(lambda: (running.job_states(), running.pids()) == ({}, set()), GONE_S, "no job and no process of one is left")


def without_gpus(text: str, *parts: str) -> str:
    """A block as printed, but for what only nodes with GPUs have, which must be in it."""
    for part in parts:
        assert part in text, f"expected {part!r} in the block"
        text = text.replace(part, "")
    return text


def submitted(person: Person, script: str) -> list[str]:
    """What the ranks of a batch script print, in order."""
    (person.folder / "job.sh").write_text(script)
    person.types(f"GLOO_SOCKET_IFNAME={INTERFACE} sbatch --wait --output=told.out job.sh")
    return sorted(line for line in (person.folder / "told.out").read_text().splitlines() if line.startswith("rank"))


def test_launches_run_on_the_nodes_of_a_slurm_job(login_node: Person) -> None:
    text = without_gpus(ON_SLURM.text, "gpus_per_node=8, ", ', slurm_partition="gpu"').replace("launch(", "run = launch(")
    (login_node.folder / "on_slurm.py").write_text(LAUNCHED.format(block=text.replace("\n", "\n    ")))
    told = login_node.types("python -u on_slurm.py", limit_s=LIMIT_S)
    assert "2 hosts are open: n1, n2" in told
    assert str([(16, host) for host in ("n1", "n2") for _ in range(8)]) in told
    login_node.entered.enter(ON_SLURM.door)


def test_the_batch_script_runs_torchrun_on_both_nodes(login_node: Person) -> None:
    work = "dist.all_reduce(x)"
    (login_node.folder / "train.py").write_text(TRAIN.format(more="", work=work))
    script = without_gpus(BATCH.text, "--gpus-per-node=8 ").replace("--nproc-per-node=8", "--nproc-per-node=2")
    told = submitted(login_node, script)
    summed = [6000.0, 6004.0, 6008.0, 6012.0]
    assert told == [f"rank {rank} of 4 on {host}: {summed}" for rank, host in enumerate(("n1", "n1", "n2", "n2"))]
    login_node.entered.enter(BATCH.door)


def test_a_lab_s_answer_runs_over_the_group_of_srun_without_torchrun(login_node: Person) -> None:
    """The guide's lines around `pass_right`, which `worldsize answers` has taken from lab 00, in a job of two tasks a node."""
    (login_node.folder / "labs").mkdir()
    shutil.copy(next((ROOT / "solutions").glob("00_*.ipynb")), login_node.folder / "labs")
    login_node.types("worldsize answers 00 --out student.py")
    group = 'dist.init_process_group("gloo")'
    imports, _, work = OVER_GROUP.text.partition(group)
    body = TRAIN.format(more=f"from student import pass_right\n{imports}", work=work.replace("pass_right(", "x = pass_right(", 1))
    (login_node.folder / "train.py").write_text(body)
    head, _, _ = without_gpus(BATCH.text, "--gpus-per-node=8 ").partition("srun ")
    tasks = UNDER_SRUN.text.replace("--ntasks=16", "--ntasks=4")
    told = submitted(login_node, head.replace("--ntasks-per-node=1", "--ntasks-per-node=2") + tasks)
    passed = [[1000.0 * ((rank - 1) % 4) + place for place in range(4)] for rank in range(4)]
    assert told == [f"rank {rank} of 4 on n{1 + rank // 2}: {passed[rank]}" for rank in range(4)]
    login_node.entered.enter(OVER_GROUP.door, UNDER_SRUN.door)


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
