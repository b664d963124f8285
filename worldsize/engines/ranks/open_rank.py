"""A rank that stays: it does one order after the other in one namespace, and comes free when it is told to.

What it does is an object with `do(rank)`, which travels as a payload; its output, record and result are files of the order's
own run. Left out: the groups (`rank_groups.py`), what orders there are (`cell_work.py`), and who gives them
(`open_session.py`).
"""

from __future__ import annotations

import pickle
import signal
import sys
import threading
import time
import types
from dataclasses import replace
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist

from worldsize.engines.job import SMALL_BYTES, Job, Use
from worldsize.engines.ranks.rank import keep_sources, write_to_logs
from worldsize.engines.ranks.rank_channel import RankChannel
from worldsize.engines.ranks.rank_debugger import RankDebugger
from worldsize.engines.ranks.rank_failure import failure_of
from worldsize.engines.ranks.rank_groups import RankGroups, own_device
from worldsize.engines.ranks.rich_output import RichOutput
from worldsize.engines.results import packed
from worldsize.fabric.interface import Fabric
from worldsize.failures import Failure, Return
from worldsize.files import write_whole

_HERE = (__file__, "_done")  # below it is the student's code


class Freed(KeyboardInterrupt):
    """Raised in what a rank does when it is told to leave that."""


class OpenRank:
    """One rank that stays. `space` is its namespace, the module `__main__` of its process."""

    def __init__(self, rank: int, job: Job, channel: RankChannel, store: dist.Store) -> None:
        self.rank = rank
        self.world_size = job.world_size
        self._channel = channel
        self._groups = RankGroups(rank, job, store)
        self._main_thread = threading.get_ident()
        self._at_work = False
        self._begun = 0  # orders that this rank has begun
        self._freed = 0  # how many orders had come when it was told to leave what it does
        self.output: RichOutput | None = None  # of the order that is being done
        self.last_error: BaseException | None = None  # that the last cell ended with
        self.taken: dict[
            str, tuple[str, Any]
        ] = {}  # what came from the notebook, by name: its text, and what that made

        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main  # what is defined there travels by value, as from a notebook
        self.space: dict[str, Any] = main.__dict__
        channel.free = self._free
        signal.signal(signal.SIGINT, self._leave)

    def serve(self) -> NoReturn:
        """Make the groups, say that this rank is ready, and do orders for good."""
        self._groups.make()
        self._fill_space()
        self._channel.rest()
        self._channel.tell("entered", time.monotonic())
        while True:
            self._do(self._channel.orders.get())

    def _fill_space(self) -> None:
        device = own_device()
        self._groups.recorded(None, 0.0)
        self.space.update(
            rank=self.rank, world_size=self.world_size, fabric=self.fabric, dist=dist, torch=torch, device=device,
            display=self.display,
        )  # fmt: skip

    @property
    def fabric(self) -> Fabric:
        return self._groups.fabric

    def debugger(self) -> RankDebugger:
        """This rank's debugger, which asks in the notebook."""
        return RankDebugger(self.rank, lambda prompt: self._channel.tell("prompt", prompt), self._channel.typed)

    def display(self, *values: Any) -> None:
        """Show values as a notebook does, for the code of a cell: pictures and tables as such, else as text."""
        for value in values:
            self.output.show(value)

    def _do(self, order: Use) -> None:
        write_to_logs(self.rank, order.job)
        keep_sources(order.job)
        self._channel.begin(order.job, _HERE)
        self._channel.end(*self._ended(order))

    def _ended(self, order: Use) -> tuple[Literal["result", "failure"], Return | Failure]:
        """Do an order, and say how it ended."""
        try:
            try:
                self._begin(order)  # all ranks make their groups at once: that is not left in the midst
                self._at_work = True
                if self._freed >= self._begun:
                    raise Freed
                work = pickle.loads(order.packed or order.job.files.payload.read_bytes())
                self._channel.tell("entered", time.monotonic())
                result = packed(self._done(work), order.job.plain_results)
                if len(result) > SMALL_BYTES:
                    write_whole(order.job.files.result(self.rank), result)
            finally:
                self._at_work = False
        except SystemExit as error:  # it leaves what is done, not the rank
            failure = failure_of(self.rank, error)
            return "failure", replace(failure, kind="raised", type="SystemExit", message=f"{error.code}", code=None)
        except BaseException as error:
            self.last_error = error
            return "failure", failure_of(self.rank, error)
        small = result if len(result) <= SMALL_BYTES else b""
        return "result", Return(unwaited=self.fabric.unwaited(), packed=small)

    def _begin(self, order: Use) -> None:
        job = order.job
        self._begun += 1
        if order.new_groups == "all":
            self._groups.make()
        elif order.new_groups:
            self._groups.make_wire()
        self._channel.collectives.begin(job.origin_s)
        self._channel.recorded = self._groups.recorded(job.link, job.origin_s)
        self.output = RichOutput(job.files.log(self.rank), job.files.shown(self.rank))

    def _done(self, work: Any) -> Any:
        return work.do(self)

    def _free(self) -> None:
        """From another thread: make the main thread leave what it does, or is about to do, also where it waits for a peer."""
        self._freed = self._channel.orders_come
        if self._at_work:
            signal.pthread_kill(self._main_thread, signal.SIGINT)
            self._groups.cut()

    def _leave(self, *_: object) -> None:
        if self._at_work:
            self._at_work = False  # once: it may be swallowed, but never comes while this rank says how it ended
            raise Freed
