"""Agents of torchrun on one machine, as if each had its own machine: one is killed with its rank, and later returns.

`main` imports PyTorch once and forks an agent for every node; each agent calls torchrun's own `main`, which forks its rank
(`--run-path --start-method fork`), so that two cores start them all in a second. The agents meet at a store in the first
process, on a port that the system chooses. Ranks print a row of JSON after every step, and these rows trigger the kill and the
restart. The file ROWS keeps all rows; LOG keeps other output of agents and ranks. Left out: other machines, more than one rank
per agent, the death of the store.
"""

import json
import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

NODES = 4
LOST = 2  # the node that is killed
ROWS, LOG = "rows.jsonl", "agents.log"
# a main file for Python: without one, torch's rendezvous searches all modules at each of its messages
SCRIPT = "import sys\nfrom worldsize.pytorch.elastic_agents import main\nmain(sys.argv[1:])\n"
Row = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    """Run the agents in this folder; keep the ranks' rows, and one per event: {"s": seconds, "event": …, "node": …}.

    `arguments` are KILL_AT, BACK_AFTER, LIMIT_S, and torchrun's own. Node LOST is killed when a full group has done step
    KILL_AT, and starts again when a smaller group has done BACK_AFTER steps. After LIMIT_S seconds everything is ended, with the
    event "out of time". A rank's row has "s", "step", "world" and "rank"; its node is NODE in the environment. Seconds are
    `time.monotonic()`'s. Events, and the first step of each group, are printed.
    """
    kill_at, back_after, limit_s = int(arguments[0]), int(arguments[1]), float(arguments[2])
    notes = _Notes()
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # workaround for pytorch/pytorch#135712
    agents = _Agents(notes, arguments[3:])
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, limit_s)

    try:
        agents.start(*range(NODES))
        _follow(agents, notes, kill_at, back_after)
    except _OutOfTime:
        notes.event("out of time")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        agents.end()


class _OutOfTime(Exception):
    """The agents' time limit is over."""


class _Notes:
    """The agents' rows in their file, and the lines printed about them."""

    def __init__(self) -> None:
        self._begin_s = time.monotonic()
        Path(ROWS).write_text("")

    def keep(self, row: Row) -> None:
        with open(ROWS, "a") as file:
            file.write(json.dumps(row) + "\n")

    def event(self, what: str, node: int | None = None) -> None:
        row = {"s": time.monotonic(), "event": what, "node": node}
        self.keep(row)
        self.say(row["s"], what if node is None else f"agent {node} {what}")

    def say(self, at_s: float, what: str) -> None:
        print(f"{at_s - self._begin_s:.1f} s: {what}", flush=True)


class _Agents:
    """The agents. Each leads its own process group, so that a kill takes the agent together with its rank."""

    def __init__(self, notes: _Notes, torchrun: Sequence[str]) -> None:
        import torch.distributed as dist
        from torch.distributed import run

        self._notes = notes
        self._run = run.main
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._torchrun = ["--rdzv-endpoint", f"127.0.0.1:{self._store.port}", "--local-addr", "127.0.0.1", *torchrun]
        self._read, self._write = os.pipe()
        self._pids: dict[int, int] = {}

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self._notes.event("starts", node)
            pid = os.fork()
            if not pid:
                self._be_an_agent(node)

            with suppress(OSError):  # the child does this too, since either may come first
                os.setpgid(pid, pid)
            self._pids[node] = pid

    def _be_an_agent(self, node: int) -> NoReturn:
        code = 1
        try:
            os.setpgid(0, 0)
            os.environ["NODE"] = str(node)
            # SIGTERM ends a forked rank, as it ends a fresh process
            os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
            os.dup2(self._write, 1)
            os.dup2(os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            os.close(self._read)
            os.close(self._write)

            logging.disable()  # the report of a failed rank has a traceback, for which torch would import its compiler
            self._run(self._torchrun)
            code = 0
        finally:
            os._exit(code)

    def rows(self) -> Iterator[Row]:
        """Yield the rows that the agents' ranks printed, until every process that could print has ended."""
        with os.fdopen(self._read) as file:
            for line in file:
                yield json.loads(line)

    def starts_no_more(self) -> None:
        os.close(self._write)

    def kill(self, node: int) -> None:
        os.killpg(self._pids[node], signal.SIGKILL)
        os.waitpid(self._pids.pop(node), 0)
        self._notes.event("is killed", node)

    def end(self) -> None:
        """End the remaining agents with their ranks."""
        for pid in self._pids.values():
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _follow(agents: _Agents, notes: _Notes, kill_at: int, back_after: int) -> None:
    """Record the ranks' rows, and kill and restart an agent at the given steps."""
    killed = back = False
    fewer = world = 0
    for row in agents.rows():
        notes.keep(row)
        if row["world"] != world:
            world = row["world"]
            notes.say(row["s"], f"step {row['step']}, done by {world} ranks")

        if not killed:
            if row["world"] == NODES and row["step"] >= kill_at:
                killed = True
                agents.kill(LOST)
        elif not back and row["world"] < NODES:
            fewer += row["rank"] == 0
            if fewer == back_after:
                back = True
                agents.start(LOST)
                agents.starts_no_more()


def _out_of_time(number: int, frame: FrameType | None) -> NoReturn:
    raise _OutOfTime
