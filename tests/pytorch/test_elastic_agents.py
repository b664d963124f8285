"""Agents of torchrun of which one is killed and comes back: what is killed and started when, and what is left behind."""

import json
import os
import subprocess
import sys
import uuid

import psutil
import pytest

from worldsize.pytorch import elastic_agents

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks its agents")

WAITS = "is_host=0,keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=1"
TORCHRUN = [
    "--nnodes", "3:4", "--rdzv-backend", "c10d", "--rdzv-id", "test", "--rdzv-conf", WAITS, "--max-restarts", "3", "--run-path",
    "--start-method", "fork", "train.py",
]  # fmt: skip
TRAIN = """
import json, os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world, node = dist.get_rank(), dist.get_world_size(), int(os.environ["NODE"])
done = torch.load("group.pt") if os.path.exists("group.pt") else 0
last = max(14, done + 4)
while world < 4 or done < last:
    dist.all_reduce(torch.ones(1))
    done += 1
    row = {"s": time.monotonic(), "step": done, "world": world, "rank": rank, "node": node}
    os.write(1, (json.dumps(row) + "\\n").encode())
    if rank == 0 and done % 5 == 0:
        torch.save(done, "group.tmp")
        os.replace("group.tmp", "group.pt")
dist.destroy_process_group()
"""


class PlayedAgents:
    """Agents that do nothing; their ranks' rows are given."""

    def __init__(self, *rows):
        self._rows = [{"s": 0.0, "step": step, "world": world, "rank": rank} for step, world, rank in rows]
        self.did = []

    def rows(self):
        for row in self._rows:
            self.did.append((row["step"], row["world"]))
            yield row

    def kill(self, node):
        self.did.append(f"kill {node}")

    def start(self, node):
        self.did.append(f"start {node}")

    def starts_no_more(self):
        self.did.append("no more")


def followed(tmp_path, monkeypatch, *rows):
    monkeypatch.chdir(tmp_path)
    agents = PlayedAgents(*rows)
    elastic_agents._follow(agents, elastic_agents._Notes(), kill_at=2, back_after=2)
    return agents.did


def test_one_is_killed_after_a_step_of_all_and_comes_back_after_steps_of_fewer(tmp_path, monkeypatch):
    did = followed(tmp_path, monkeypatch, (1, 4, 0), (2, 4, 0), (2, 4, 1), (1, 3, 0), (2, 3, 1), (2, 3, 0), (2, 4, 0))
    said = [step for step in did if isinstance(step, str)]
    assert said == ["kill 2", "start 2", "no more"]
    assert did.index("kill 2") == 2
    assert did[did.index("start 2") - 1] == (2, 3)


def test_in_a_group_that_began_with_fewer_nobody_is_killed(tmp_path, monkeypatch):
    assert followed(tmp_path, monkeypatch, (2, 3, 0), (3, 3, 0), (4, 3, 0)) == [(2, 3), (3, 3), (4, 3)]


def test_all_rows_are_kept(tmp_path, monkeypatch):
    followed(tmp_path, monkeypatch, (1, 4, 0), (2, 4, 0))
    kept = [json.loads(line) for line in (tmp_path / elastic_agents.ROWS).read_text().splitlines()]
    assert [row["step"] for row in kept] == [1, 2]


def agents(folder, script, limit_s):
    """Run the agents; what they noted, and which processes are left when they have ended."""
    mark = uuid.uuid4().hex
    (folder / "agents.py").write_text(elastic_agents.SCRIPT)
    (folder / "train.py").write_text(script)
    environment = os.environ | {"TEST_MARK": mark, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "agents.py", "3", "3", str(limit_s), *TORCHRUN]
    try:
        subprocess.run(command, cwd=folder, env=environment, timeout=limit_s + 200, check=True)
    finally:
        left = marked(mark)
        for process in left:
            process.kill()
    return [json.loads(line) for line in (folder / elastic_agents.ROWS).read_text().splitlines()], left


def marked(mark):
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_MARK") == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.soak
def test_three_go_on_from_the_last_save_and_the_fourth_comes_back(tmp_path):
    rows, left = agents(tmp_path, TRAIN, 300)
    events = [row["event"] for row in rows if "event" in row]
    assert events == ["starts"] * 4 + ["is killed", "starts"]
    killed_s = next(row["s"] for row in rows if row.get("event") == "is killed")
    after = [row for row in rows if "step" in row and row["s"] > killed_s and row["world"] == 3]
    assert {row["node"] for row in after} == {0, 1, 3}
    assert after[0]["step"] % 5 == 1
    assert {row["node"] for row in rows[-8:]} == {0, 1, 2, 3}
    assert not left


@pytest.mark.soak
def test_agents_whose_ranks_never_end_are_ended_in_time(tmp_path):
    rows, left = agents(tmp_path, "import time\ntime.sleep(3600)\n", 20)
    assert rows[-1]["event"] == "out of time"
    assert not left
