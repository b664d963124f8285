"""An all-reduce in the background: begin now, wait later, while the rank goes on computing.

A helper thread carries the sums over the fabric, in the order in which they were begun, as NCCL's communication stream does. All
ranks must begin the same sums in the same order. `over_the_fabric` makes torch's own DDP send its buckets the same way (a
communication hook). S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section
3.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from worldsize.fabric.collectives import all_reduce
from worldsize.fabric.interface import Fabric
from worldsize.report import span

Then = Callable[[torch.Tensor], None]


class Work:
    """A sum that was begun in the background. Leave its tensor alone until `wait()` returns."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: Exception | None = None

    def wait(self) -> None:
        """Block until the tensor holds the background's sum. Raises any error of the sum."""
        if not self._ended.is_set():
            with span("wait() of a sum", kind="wait"):
                self._ended.wait()
        if self._error is not None:
            raise self._error

    def end(self, error: Exception | None = None) -> None:
        self._error = error
        self._ended.set()


class OverGloo:
    """A rank's fabric for which a `Background` uses gloo's own all-reduce on torch's default process group.

    Real work can then be timed without the course's code in the sums' way. Everything else is the fabric's.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)


class Background:
    """A summation service: adds up tensors over all ranks of `fabric` while the rank computes.

    After the first `start`, this rank's other messages must wait until every work was waited for.
    """

    def __init__(self, fabric: Fabric | OverGloo) -> None:
        self._fabric = fabric
        if isinstance(fabric, OverGloo):
            return
        self._begun: queue.SimpleQueue[tuple[torch.Tensor, Work, Then | None]] = queue.SimpleQueue()
        threading.Thread(target=self._carry, name="worldsize-background", daemon=True).start()

    def start(self, x: torch.Tensor) -> Work | dist.Work:
        """Begin in the background to make `x` the sum over all ranks, in place, and return at once."""
        if isinstance(self._fabric, OverGloo):
            return dist.all_reduce(x, async_op=True)
        return self.start_then(x, None)

    def start_then(self, x: torch.Tensor, then: Then | None) -> Work:
        """Begin a background sum as `start` does, and call `then(x)` in the helper thread once `x` holds the sum."""
        work = Work()
        self._begun.put((x, work, then))
        return work

    def _carry(self) -> None:
        while True:
            x, work, then = self._begun.get()

            try:
                all_reduce(self._fabric, x)
                if then is not None:
                    then(x)
                work.end()
            except Exception as error:  # re-raised by the work's `wait()`
                work.end(error)


def over_the_fabric(background: Background, bucket):
    """Sum DDP's full buckets by a `Background` while the rank computes: a communication hook.

    `ddp.register_comm_hook(Background(fabric), over_the_fabric)`. torch's DDP calls the hook inside backward for every full
    bucket; the returned future holds the mean over the ranks.
    """
    # no annotations of `bucket` and the result: torch compares them, and in this file they would be text
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    n = dist.get_world_size()
    background.start_then(bucket.buffer(), lambda x: future.set_result(x.div_(n)))
    return future
