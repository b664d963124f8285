"""What a rank of torch has beside its function: threads, its generator, the record of its collectives, and the fabric.

Left out: a rank's way from the fork to the result (`rank.py`).
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from worldsize import parcel
from worldsize.collectives import CollectiveLog
from worldsize.engines import Job
from worldsize.engines.line import Line
from worldsize.fabric import Fabric, Recorded
from worldsize.wires import GlooWire, Shaped, gloo_group


def prepare(rank: int, job: Job, line: Line, threads: int, seed: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    line.collectives = CollectiveLog(rank, job.origin_s)
    line.collectives.install()


def parcel_of(rank: int, job: Job) -> parcel.Parcel:
    """What this rank runs."""
    return parcel.open_parcel(job.payload_path().read_bytes())


def arguments(opened: parcel.Parcel, rank: int, job: Job, line: Line, attempt: int) -> tuple:
    """The function's arguments, with its fabric in front where it asks for one."""
    if parcel.first_parameter(opened.fn) != "fabric":
        return opened.args
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=60)
    )
    wire = GlooWire(gloo_group(store, rank, job.world_size))
    line.recorded = Recorded(Shaped(wire, job.link) if job.link else wire, job.origin_s)
    line.fabric = Fabric(line.recorded)
    return (line.fabric, *opened.args)
