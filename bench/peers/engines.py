"""The engines, each used as its own documentation says, in a process that stands for a notebook's kernel.

`ENGINES[name]()` is the cell with the imports; it returns the function that launches the work on n ranks and gives
back the ranks' values, where the engine does (torchrun, spawn and notebook_launcher give back none). What the ranks
print lands in this process's standard output, or is fetched and printed there. Left out: measuring several engines
in turn (`bench/launch.py`).
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable

import torch.multiprocessing as mp

from peers import work as the_work
from peers.work import placed_work, work

Launch = Callable[[int], Iterable[float] | None]


def ours() -> Launch:
    from worldsize.launch import launch, warm

    warm()  # as the notebook's front does when it is imported

    def go(n: int) -> list[float]:
        run = launch(work, n)
        for rank in range(n):
            print(run.log(rank), end="")
        return run.results

    return go


def notebook_launcher() -> Launch:
    """accelerate's. Its port is a free one: the standard port may be taken on a machine that others use too."""
    from accelerate import notebook_launcher

    return lambda n: notebook_launcher(work, num_processes=n, use_port=str(_free_port()))


def ipyparallel() -> Launch:
    """Engines start with the first call and stay."""
    import ipyparallel as ipp

    started = []

    def go(n: int) -> list[float]:
        if not started:
            started.append(ipp.Cluster(n=n, log_level=40).start_and_connect_sync(activate=False))
        answer = started[0][:].map_async(placed_work, range(n), [n] * n, [_free_port()] * n)
        values = answer.get()
        answer.wait_for_output()
        print("".join(answer.stdout), end="")
        return values

    return go


def elastic_spawn() -> Launch:
    """`elastic_launch` as it ships: its start method is spawn."""
    return lambda n: _elastic(n, "spawn")


def elastic_forkserver() -> Launch:
    """`elastic_launch` with the start method forkserver, which imports torch beforehand by a call of Python's own."""
    import multiprocessing

    multiprocessing.set_forkserver_preload(["torch.distributed"])
    return lambda n: _elastic(n, "forkserver")


def _elastic(n: int, start_method: str) -> Iterable[float]:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=n, run_id=uuid.uuid4().hex, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, start_method=start_method,
    )  # fmt: skip
    return elastic_launch(config, work)().values()


def spawn() -> Launch:
    return lambda n: mp.spawn(placed_work, args=(n, _free_port()), nprocs=n)


def torchrun() -> Launch:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]

    def go(n: int) -> None:
        done = subprocess.run([*command, str(n), the_work.__file__], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-500:])
        print(done.stdout, end="")

    return go


ENGINES: dict[str, Callable[[], Launch]] = {
    "worldsize": ours,
    "notebook_launcher": notebook_launcher,
    "ipyparallel": ipyparallel,
    "elastic, fork server": elastic_forkserver,
    "elastic, spawn": elastic_spawn,
    "spawn": spawn,
    "torchrun": torchrun,
}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(name: str) -> None:
    """Answer each number of ranks on standard input with one line of JSON: the seconds, or the error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - ranks write to it through the descriptor
    os.dup2(log.fileno(), 1)
    go = ENGINES[name]()
    answers.write('"ready"\n')
    for request in sys.stdin:
        try:
            answer: object = _measured(go, int(request))
        except BaseException as error:  # noqa: BLE001 - whatever an engine does is a result of the bench
            answer = f"{type(error).__name__}: {error}"[:300]
        answers.write(json.dumps(answer) + "\n")


def _measured(go: Launch, n: int) -> float:
    """Seconds from the call until every rank's value (where there is one) and every line is here."""
    os.ftruncate(1, 0)
    os.lseek(1, 0, os.SEEK_SET)
    began_s = time.perf_counter()
    values = go(n)
    sys.stdout.flush()
    lines = set(os.pread(1, 1_000_000, 0).decode(errors="replace").splitlines())
    took_s = time.perf_counter() - began_s
    missing = [the_work.line(rank, n) for rank in range(n) if the_work.line(rank, n) not in lines]
    if missing or (values is not None and list(values) != [n * (n + 1) / 2] * n):
        raise RuntimeError(f"wrong outcome: lines missing: {missing}, values: {values}")
    return took_s
