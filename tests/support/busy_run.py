"""A run that exchanges data until it is told to fail or to end: what faults are tried on. Told by files in a folder."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # other hosts do not have the tests' modules

FAULT, END, FAILED = "fault", "end", "failed"


def busy(fabric: Any, folder: str, culprit: int, how: str) -> int:
    """Returns the steps that were made, once the file END is there; the culprit fails where FAULT is."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    told = Path(folder)
    x, step = torch.ones(1000), 0
    after, before = (fabric.rank + 1) % fabric.world_size, (fabric.rank - 1) % fabric.world_size
    while True:
        handle = fabric.isend(x, after)
        fabric.recv(torch.empty_like(x), before)
        handle.wait()
        ends = torch.tensor(float((told / END).exists()))
        dist.all_reduce(ends)
        if step == 3:
            note(told / f"rank{fabric.rank}", str(os.getpid()))
        if ends:
            return step
        step += 1
        if fabric.rank == culprit and (told / FAULT).exists():
            fail(told, how)


def fail(told: Path, how: str) -> None:
    note(told / FAILED, repr(time.monotonic()))
    if how == "raise":
        raise IndexError("chunk 3 of 3")
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


def note(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def right() -> float:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    x = torch.tensor(float(dist.get_rank() + 1))
    dist.all_reduce(x)
    return float(x)


def kernel(address: str, count: int, folder: str) -> None:
    """A kernel of its own that opens invited hosts and starts a run; prints the invitations."""
    from tests.support.open_hosts import ByInvitation
    from worldsize import hosts
    from worldsize.launch import launch

    hosts.open(ByInvitation(count, address, lambda invitations: print(*invitations, sep="\n", flush=True)))
    launch(busy, 2 * count, args=(folder, -1, ""), timeout_s=1000)
