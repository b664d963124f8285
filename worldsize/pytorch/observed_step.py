"""The real traffic of a framework's step, from two witnesses that know nothing of the framework.

The system counts the bytes of every TCP connection: how much each rank received from each other rank, by any library.
PyTorch's own profiler sees the collectives that DDP's C++ begins, which no Python function could record. Left out: the time of
single bytes; NCCL, which does not use TCP; systems without Linux's counters, which only have the profiler. The counters are
`tcp_info`'s (RFC 4898's extended statistics), see the manual page tcp(7).
"""

import math
import os
import pickle
import re
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch.distributed as dist

from worldsize.pytorch.abilities import pickle_recorder
from worldsize.trace import Collective, Trace, Transfer

NOTES_BYTES = 2_000  # gloo's own bytes on a connection, beside the data of a few collectives
_RECEIVED_AT = 128  # offset of tcpi_bytes_received in Linux's struct tcp_info
_INFO_BYTES = 256  # more than tcp_info up to that field
_COLLECTIVE = re.compile(r"(?:gloo|nccl|mpi):_?(\w+)")
_AT_MOST_S = 1.0
_meetings = count()


@dataclass
class ObservedStep:
    """A rank's observations; complete once the block has ended."""

    rank: int
    world_size: int
    collectives: tuple[Collective, ...] = ()
    transfers: tuple[Transfer, ...] = ()


@contextmanager
def witnessed(item_bytes: int = 4) -> Iterator[ObservedStep]:
    """Observe the real traffic of a framework's step: `with witnessed() as seen: step()` on every rank.

    All ranks of the default process group must enter together. Times are seconds since the block began.
    `item_bytes` is the size of one element, for sizes that the profiler reports as counts.
    """
    from torch.profiler import ProfilerActivity, profile

    seen = ObservedStep(dist.get_rank(), dist.get_world_size())
    ports: list[Any] = [None] * seen.world_size
    dist.all_gather_object(ports, sorted({own for own, _ in received_bytes()}))
    owner = {port: rank for rank, theirs in enumerate(ports) for port in theirs}

    _meet(seen.world_size)
    before = received_bytes()
    _meet(seen.world_size)

    start_s = time.monotonic()
    profiled = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    with quietly():
        profiled.start()
    try:
        yield seen
    finally:
        end_s = time.monotonic() - start_s
        _wait_for_threads()
        with quietly():
            profiled.stop()

    _meet(seen.world_size)
    after = received_bytes()
    _meet(seen.world_size)

    seen.collectives = tuple(_collectives(profiled.events(), seen.rank, item_bytes))
    arrived: Counter = Counter()  # bytes by sender
    for ports, size_bytes in after.items():
        arrived[owner.get(ports[1], seen.rank)] += size_bytes - before.get(ports, 0)
    for peer, size_bytes in arrived.items():
        if peer != seen.rank and size_bytes > NOTES_BYTES:
            transfer = Transfer(src=peer, dst=seen.rank, size_bytes=size_bytes, start_s=0.0, end_s=end_s)
            seen.transfers += (transfer,)


def together(testimonies: Iterable[ObservedStep]) -> Trace:
    """Return the trace of a framework's step: a `Transfer` for each pair of ranks whose TCP connections carried data.

    `testimonies` are the observations of all ranks.
    """
    ranks, transfers, collectives = 0, [], []
    for seen in testimonies:
        ranks += 1
        transfers += seen.transfers
        collectives += seen.collectives

    collectives.sort(key=lambda c: c.start_s)
    return Trace(ranks, transfers=tuple(sorted(transfers)), collectives=tuple(collectives))


def received_bytes() -> dict[tuple[int, int], int]:
    """Return, as one witness, the system's count of bytes received on each of this process's TCP connections.

    {(own port, peer's port): bytes received}; empty if the system does not count.
    """
    counts = {}
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return counts

    for name in names:
        with suppress(OSError, struct.error):  # closed meanwhile, or not connected
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue

            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                ports = connection.getsockname()[1], connection.getpeername()[1]
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
                counts[ports] = struct.unpack_from("Q", info, _RECEIVED_AT)[0]
    return counts


def _collectives(events: Iterable[Any], rank: int, item_bytes: int) -> Iterator[Collective]:
    for event in events:
        named = _COLLECTIVE.fullmatch(event.name)
        if named:
            start_us, end_us = event.time_range.start, event.time_range.end
            size_bytes = item_bytes * sum(map(math.prod, filter(None, event.input_shapes or ())))
            yield Collective(named[1], size_bytes, rank, float(start_us) * 1e-6, float(end_us) * 1e-6)


@contextmanager
def quietly() -> Iterator[None]:
    """Silence an observed step's profiler, which writes to the error stream whenever it starts and stops."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _wait_for_threads() -> None:
    """Wait until gloo's threads are through with every collective of the observed step, a second at most.

    DDP goes on once its result is there, but a thread of gloo tells the profiler of the end a moment later.
    """
    until_s = time.monotonic() + _AT_MOST_S
    while pickle_recorder is not None and time.monotonic() < until_s:
        if not pickle.loads(pickle_recorder(includeStackTraces=False, onlyActive=True)).get("entries"):
            return
        time.sleep(0.001)


def _meet(world_size: int) -> None:
    """Wait for all observed ranks through the launch's store, which sends nothing over the connections between ranks."""
    store, key = dist.distributed_c10d._get_default_store(), f"worldsize-witness-{next(_meetings)}"

    store.add(key, 1)
    while store.add(key, 0) < world_size:
        time.sleep(0.001)
