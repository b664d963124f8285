"""How ranks of torch start: devices and backend, the environment that torchrun would set, and PyTorch's elastic.

Left out: listening to them (`session.py`), and what a rank does (`rank.py`, `torch_rank.py`).
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, start_processes

from worldsize import units
from worldsize.engines import session
from worldsize.engines.job import Job, Setup, StartMethod
from worldsize.engines.rank import main as rank_main

logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)


@dataclass(eq=False)
class TorchSession(session.Session):
    """A job of torch."""

    store: dist.TCPStore | None = None  # it lives as long as this session
    context: PContext | None = None

    def _choose(self) -> Setup:
        return choose(self.job, self.start_method)

    def _start(self, setup: Setup) -> None:
        job = self.job
        job.files.job.write_bytes(pickle.dumps(job))
        self.store = _store()
        env = _environment(job, self.store.port, setup)
        ranks = range(job.world_size)
        self.context = start_processes(
            "worldsize",
            rank_main,
            {r: (r, self.address, str(job.files.job), env, setup.threads) for r in ranks},
            {r: {} for r in ranks},
            DefaultLogsSpecs(log_dir=str(job.dir / "elastic")),
            start_method=self.start_method,
        )

        self.pids = self.context.pids()
        own = {p.pid: p for p in multiprocessing.active_children()}
        for rank, pid in self.pids.items():
            if pid in own:
                self.processes[rank] = own[pid]
            else:
                self.silent[rank] = time.monotonic()

    def _reap(self) -> None:
        if self.context is not None:
            self.context.close(signal.SIGKILL, timeout=5)


def choose(job: Job, start_method: StartMethod) -> Setup:
    """For a session of torch: devices, backend and threads, one rank a GPU over NCCL where there are enough, else gloo."""
    gpus = torch.cuda.device_count() if job.device != "cpu" else 0
    n = job.world_size
    if job.device == "cuda" and not gpus:
        raise ValueError('launch: expected device="cpu" or "auto", got device="cuda" on a machine with no GPU')

    own_gpu = gpus >= n and dist.is_nccl_available()
    if own_gpu:
        where = f"nccl, one GPU each ({torch.cuda.get_device_name(0)})"
    elif job.device == "cuda":
        where = f"gloo, {n} ranks share {gpus} GPU{'s' * (gpus > 1)}"
    else:
        where = "gloo on CPU"

    threads = max(1, len(os.sched_getaffinity(0)) // n) if hasattr(os, "sched_getaffinity") else 1
    way = session.way_of(start_method)
    words = [units.count(n, "rank"), where, f"{units.count(threads, 'thread')} each", way]
    if job.link:
        words.append(f"links {job.link}")
    return Setup(" · ".join(words), threads, on_gpus=own_gpu or job.device == "cuda")


def _environment(job: Job, port: int, setup: Setup) -> dict[str, str]:
    """What torchrun would set, so that `dist.init_process_group()` just works."""
    n = str(job.world_size)
    env = {
        "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": n,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": job.dir.name,
        "OMP_NUM_THREADS": str(setup.threads),
    }  # fmt: skip
    if not setup.on_gpus:
        env["CUDA_VISIBLE_DEVICES"] = ""

    if "GLOO_SOCKET_IFNAME" not in job.env:
        for _, name in socket.if_nameindex():
            if name in ("lo", "lo0"):
                env["GLOO_SOCKET_IFNAME"] = name
    return env


def _store() -> dist.TCPStore:
    """The rendezvous of one run: a socket that is bound before anyone is told its port, on loopback alone."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    return dist.TCPStore(
        "127.0.0.1", listening.getsockname()[1], is_master=True, wait_for_workers=False,
        timeout=timedelta(seconds=60), master_listen_fd=listening.detach(),
    )  # fmt: skip
