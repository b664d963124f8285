"""The process groups of a rank that stays: the default one of `torch.distributed`, and the fabric's.

Both are made when the ranks open, and anew after something was cut short: gloo has no way to take a message back, so a
rank that waits in one is freed by an end of its connections (measured: 10 ms), after which its groups are of no use.
NCCL's groups are aborted. Left out: the groups that a student makes, which end with the default one.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress

import torch
import torch.distributed as dist

from worldsize.engines.job import Job
from worldsize.fabric.gloo import GlooWire, gloo_group
from worldsize.fabric.interface import Fabric
from worldsize.fabric.recording import Recorded
from worldsize.fabric.shaping import Shaped
from worldsize.links import Link


class RankGroups:
    """The groups of one rank. `fabric` stays the same object while what lies under it is made anew."""

    def __init__(self, rank: int, job: Job, store: dist.Store) -> None:
        self._rank, self._world_size, self._origin_s = rank, job.world_size, job.origin_s
        self._store = store
        self._made = 0
        self._wire: GlooWire | None = None
        self.fabric: Fabric | None = None

    def make(self) -> None:
        """Make both groups, which every rank has to do at once; earlier ones end."""
        if dist.is_initialized():
            with suppress(RuntimeError):  # its connections have ended
                dist.destroy_process_group()
        store = self._new_store()
        own_device()
        on_gpus = torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
        dist.init_process_group(backend, store=store, rank=self._rank, world_size=self._world_size)
        self._make_wire(store)

    def make_wire(self) -> None:
        """Make the fabric's group alone, which every rank has to do at once: a message may be left in the earlier one."""
        self._make_wire(self._new_store())

    def _make_wire(self, store: dist.Store) -> None:
        self._wire = GlooWire(gloo_group(store, self._rank, self._world_size), self._origin_s)

    def _new_store(self) -> dist.Store:
        self._made += 1
        return dist.PrefixStore(f"groups {self._made}", self._store)

    def recorded(self, link: Link | None, origin_s: float) -> Recorded:
        """A new record of the fabric's messages, as slow as `link`; the fabric's later messages go there."""
        recorded = Recorded(Shaped(self._wire, link) if link else self._wire, origin_s)
        if self.fabric is None:
            self.fabric = Fabric(recorded)
        else:
            self.fabric.move_to(recorded)
        return recorded

    def cut(self) -> None:
        """End every connection between the ranks, so that no call of theirs waits any longer. The store's stay."""
        for fd in _descriptors():
            _shut_down(fd, int(os.environ["MASTER_PORT"]))
        if dist.is_initialized() and torch.cuda.is_available():
            with suppress(Exception):  # of a group that is broken already
                dist.distributed_c10d._abort_process_group()


def _descriptors() -> list[int]:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return [int(name) for name in os.listdir(folder)]


def _shut_down(fd: int, store_port: int) -> None:
    """End the connection that `fd` is, if it is one over TCP and not to the store."""
    with suppress(OSError):  # it has no peer
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):  # a copy of another one would stay open
            return
        with socket.socket(fileno=os.dup(fd)) as found:
            over_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
            if over_tcp and found.getpeername()[1] != store_port:
                found.shutdown(socket.SHUT_RDWR)


def own_device() -> torch.device:
    """Return this rank's device, which becomes its current one: the GPU of its place on the host, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    place = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(place)
    return torch.device("cuda", place)
