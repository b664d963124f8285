"""Labs that are not edited run on two nodes of a Slurm: every launch on both, and the bytes that one machine counts.

`WORLDSIZE_HOSTS` alone opens them. A launch of one rank is on one host, as it must be.
"""

from pathlib import Path

import pytest

from tests.support.daemons import until
from tests.support.lab_launches import RUN_TIMEOUT_S, launches
from tests.support.slurm import Slurm

LABS = ["00_start_here", "02_messages_and_collectives", "06_ring_all_reduce", "10_data_parallel_and_ddp"]
TENSORFLOW_LABS = ["07_tensorflow_by_hand", "09_tf_distribute_machines"]
LIMIT_S = 60.0


def launches_on_nodes(
    slurm: Slurm, source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = ""
) -> list[tuple[str, int, list[str], int]]:
    """The same of one that runs on two nodes; `more` is asked of their hosts. Nothing is left there after it."""
    monkeypatch.setenv("SLURM_CONF", slurm.env()["SLURM_CONF"])
    monkeypatch.setenv("WORLDSIZE_HOSTS", f"slurm:nodes=2,timeout_min=30,folder={folder / 'slurm'}{more}")
    there = launches(source, folder / "there")
    until(lambda: (slurm.job_states(), slurm.pids()) == ({}, set()), LIMIT_S, "the job has ended with the notebook")
    return there


@pytest.mark.soak
@pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)
@pytest.mark.parametrize("lab", LABS)
def test_a_lab_runs_on_two_nodes_as_it_is(
    slurm: Slurm, lab: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = root / "solutions" / f"{lab}.py"
    here = launches(source, tmp_path / "here")
    there = launches_on_nodes(slurm, source, tmp_path, monkeypatch)

    assert {tuple(hosts) for _, _, hosts, _ in here} == {()}
    assert [hosts for _, ranks, hosts, _ in there if set(hosts) != ({"n1", "n2"} if ranks > 1 else {"n1"})] == []
    assert [(state, ranks) for state, ranks, _, _ in there] == [(state, ranks) for state, ranks, _, _ in here]
    done = [[row[3] for row in rows if row[0] == "done"] for rows in (there, here)]
    assert done[0] == done[1]


@pytest.mark.soak
@pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)
@pytest.mark.parametrize("lab", TENSORFLOW_LABS)
def test_a_lab_of_tensorflow_runs_on_two_nodes_as_it_is(
    slurm: Slurm, lab: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = root / "solutions" / f"{lab}.py"
    here = launches(source, tmp_path / "here")
    there = launches_on_nodes(slurm, source, tmp_path, monkeypatch, ",trusted_network=1")

    assert [hosts for _, tasks, hosts, _ in there if set(hosts) != ({"n1", "n2"} if tasks > 1 else {"n1"})] == []
    assert [(state, tasks) for state, tasks, _, _ in there] == [(state, tasks) for state, tasks, _, _ in here]
