"""What a rank of torch has beside its function: threads, its generator, the record of its collectives, and the fabric.

Left out: a rank's way from the fork to the result (`rank.py`).
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from worldsize.engines import payload
from worldsize.engines.job import Job
from worldsize.engines.ranks.rank_channel import RankChannel
from worldsize.fabric.gloo import GlooWire, gloo_group
from worldsize.fabric.interface import Fabric
from worldsize.fabric.recording import Recorded
from worldsize.fabric.shaping import Shaped
from worldsize.pytorch.collective_log import CollectiveLog


def prepare(rank: int, job: Job, channel: RankChannel, threads: int, seed: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    channel.collectives = CollectiveLog(rank, job.origin_s)
    channel.collectives.install()


def payload_of(rank: int, job: Job) -> payload.Payload:
    """Of a rank of torch: what it runs, the function that was launched with its arguments."""
    return payload.unpack(job.files.payload.read_bytes())


def arguments(opened: payload.Payload, rank: int, job: Job, channel: RankChannel, attempt: int) -> tuple:
    """What a torch rank calls its function with: the payload's arguments, the fabric in front if it asks for one."""
    if payload.first_parameter(opened.fn) != "fabric":
        return opened.args

    wire = GlooWire(gloo_group(open_store(), rank, job.world_size), job.origin_s)
    channel.recorded = Recorded(Shaped(wire, job.link) if job.link else wire, job.origin_s)
    channel.fabric = Fabric(channel.recorded)
    return (channel.fabric, *opened.args)


def open_store() -> dist.Store:
    """Where the ranks of this run meet."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=60))


def stay(rank: int, job: Job, channel: RankChannel) -> NoReturn:
    """Of a rank of torch that stays: do one order after the other, for good."""
    from worldsize.engines.ranks.open_rank import OpenRank

    OpenRank(rank, job, channel, open_store()).serve()
