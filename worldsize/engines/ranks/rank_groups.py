"""The process groups of a rank that stays: the default group of `torch.distributed`, and the fabric's.

Both groups are made when the ranks open, and remade after an order was cut short: gloo cannot cancel a message, so a
waiting rank is freed by closing its connections (measured: 10 ms), which makes its groups useless. NCCL's groups are
aborted. Groups that a student makes end with the default one.
"""

import os
import socket
import stat
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from worldsize.engines.job import Job
from worldsize.fabric.gloo import GlooWire, gloo_group
from worldsize.fabric.interface import Fabric
from worldsize.fabric.recording import Recorded
from worldsize.fabric.shaping import Shaped
from worldsize.links import Link, Nodes


class RankGroups:
    """The groups of one rank. `fabric` stays the same object while its wire is remade."""

    def __init__(self, rank: int, job: Job, store: dist.Store) -> None:
        self._rank, self._world_size, self._origin_s = rank, job.world_size, job.origin_s
        self._store = store

        self._store_port = int(os.environ["MASTER_PORT"])  # a cell may change the variable
        self._made = 0
        self._earlier: dist.ProcessGroup | None = None  # the default group when the order began
        self._init_group = dist.init_process_group
        for module in (dist, dist.distributed_c10d):
            module.init_process_group = self._init_anew
        self._wire: GlooWire | None = None
        self.fabric: Fabric | None = None

    def make(self) -> None:
        """Make both process groups of a rank that stays, ending earlier ones. Every rank must call this at once."""
        if dist.is_initialized():
            with suppress(RuntimeError):  # its connections are closed
                dist.destroy_process_group()

        store = self._new_store()
        own_device()

        on_gpus = torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
        self._init_group(backend, store=store, rank=self._rank, world_size=self._world_size)
        self.make_wire(store)

    def _init_anew(self, *args: Any, **kwargs: Any) -> None:
        """Make the default group as a script asks for it, in place of the one that it found."""
        if dist.is_initialized() and dist.group.WORLD is self._earlier:
            dist.destroy_process_group()
        self._earlier = None
        self._init_group(*args, **kwargs)

    def make_wire(self, store: dist.Store | None = None) -> None:
        """Make the fabric's group only, because the earlier one may hold a message. Every rank must call this at once."""
        if store is None:
            store = self._new_store()
        self._wire = GlooWire(gloo_group(store, self._rank, self._world_size), self._origin_s)

    def _new_store(self) -> dist.Store:
        self._made += 1
        # a new prefix each time: new groups must not meet under the keys of earlier ones
        return dist.PrefixStore(f"groups {self._made}", self._store)

    def recorded(self, link: Link | Nodes | None, origin_s: float) -> Recorded:
        """Start an order's record of the fabric's messages, shaped by `link`, and send later messages through it."""
        self._earlier = dist.group.WORLD if dist.is_initialized() else None
        recorded = Recorded(Shaped(self._wire, link) if link else self._wire, origin_s)
        if self.fabric is None:
            self.fabric = Fabric(recorded)
        else:
            self.fabric.move_to(recorded)
        return recorded

    def cut(self) -> None:
        """Close every connection of this rank's groups, so that no call waits any longer. The store's connections stay."""
        folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
        for name in os.listdir(folder):
            _shut_down(int(name), self._store_port)

        if dist.is_initialized() and torch.cuda.is_available():
            with suppress(Exception):  # the group may be broken already
                dist.distributed_c10d._abort_process_group()


def _shut_down(fd: int, store_port: int) -> None:
    """Close a group's connection `fd`, if it is TCP and does not lead to the store."""
    with suppress(OSError):  # `fd` has no peer, or is closed by now
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):  # `socket()` on a copy of a file would leave it open
            return
        with socket.socket(fileno=os.dup(fd)) as found:
            over_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
            if over_tcp and found.getpeername()[1] != store_port:
                found.shutdown(socket.SHUT_RDWR)


def own_device() -> torch.device:
    """Return this rank's device for its groups and make it current: the GPU of its local rank, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    place = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(place)
    return torch.device("cuda", place)
