"""A torch rank's part beside its function: threads, generator, the record of its collectives, and the fabric.

`rank.py` is the rest of a rank.
"""

import os
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from worldsize.engines import payload
from worldsize.engines.job import Job
from worldsize.engines.ranks.flight_recorder import RECORDS, FlightRecorder
from worldsize.engines.ranks.rank_channel import RankChannel
from worldsize.engines.ranks.rank_posts import RankPosts
from worldsize.engines.ranks.rendezvous import meet_at_own_store
from worldsize.fabric.gloo import GlooWire, gloo_group
from worldsize.fabric.interface import Fabric
from worldsize.fabric.recording import Recorded
from worldsize.fabric.shaping import Shaped
from worldsize.pytorch import abilities
from worldsize.pytorch.collective_log import CollectiveLog


def prepare(rank: int, job: Job, channel: RankChannel, threads: int, seed: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(RECORDS))  # unasked, PyTorch 2.9 keeps none
    read_environment()
    meet_at_own_store(job.world_size)
    channel.collectives = CollectiveLog(rank, job.origin_s)
    channel.collectives.install()
    channel.recorder = FlightRecorder(channel.collectives)
    channel.posts = RankPosts(rank, channel.collectives, channel.recorder)


def read_environment() -> None:
    """Read variables anew that torch reads at import only, which was in the fork server."""
    dist.set_debug_level_from_env()
    if "TORCH_LOGS" in os.environ and abilities.read_log_settings is not None:
        abilities.read_log_settings()


def payload_of(rank: int, job: Job) -> payload.Payload:
    """Return what a torch rank runs: the launched function with its arguments."""
    return payload.unpack(job.files.payload.read_bytes())


def arguments(opened: payload.Payload, rank: int, job: Job, channel: RankChannel, attempt: int) -> tuple:
    """Return a torch rank's arguments: with the fabric in front if its first parameter is named `fabric`, and with `rank` and
    `world_size` if it begins with these and nobody gave them.
    """
    if payload.first_parameter(opened.fn) != "fabric":
        return payload.with_rank(opened, rank, job.world_size)

    wire = GlooWire(gloo_group(open_store(), rank, job.world_size), job.origin_s)
    channel.recorded = Recorded(Shaped(wire, job.link) if job.link else wire, job.origin_s)
    channel.fabric = Fabric(channel.recorded)
    return (channel.fabric, *opened.args)


def open_store() -> dist.Store:
    """Connect this torch rank to the rendezvous store of this run."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=60))


def stay(rank: int, job: Job, channel: RankChannel) -> NoReturn:
    """Carry out orders for good, as a torch rank that stays."""
    from worldsize.engines.ranks.open_rank import OpenRank

    OpenRank(rank, job, channel, open_store()).serve()
