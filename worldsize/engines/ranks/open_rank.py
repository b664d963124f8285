"""A rank that stays: it carries out one order after the other in one namespace, and abandons an order when told to.

The work is an object with `do(rank)`, which travels as a payload; output, record and result are files of the order's own
run. `cell_work.py` has the kinds of work, `rank_groups.py` the groups; `open_session.py` gives the orders.
"""

import os
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
from worldsize.engines.ranks.edited_modules import EditedModules
from worldsize.engines.ranks.notebook_display import show_by
from worldsize.engines.ranks.pickles import dumps_result
from worldsize.engines.ranks.rank import keep_sources, write_to_logs
from worldsize.engines.ranks.rank_channel import RankChannel
from worldsize.engines.ranks.rank_debugger import RankDebugger
from worldsize.engines.ranks.rank_failure import failure_of
from worldsize.engines.ranks.rank_groups import RankGroups, own_device
from worldsize.engines.ranks.rich_output import RichOutput
from worldsize.engines.ranks.torch_rank import read_environment
from worldsize.fabric.interface import Fabric
from worldsize.failures import Failure, GroupsUse, Return
from worldsize.files import write_whole

_LEAVES_S = 0.2  # for an order without communication to end by its signal
_AGAIN_S = 0.005  # between two signals to a main thread that has not left its order
_HERE = (__file__, "_done")  # frames below this function are the student's


class Freed(KeyboardInterrupt):
    """Raised in a rank's work when the rank is told to abandon it."""


class OpenRank:
    """A rank that stays. `space` is its namespace, the module `__main__` of its process."""

    def __init__(self, rank: int, job: Job, channel: RankChannel, store: dist.Store) -> None:
        self.rank = rank
        self.world_size = job.world_size
        self._channel = channel
        self._groups = RankGroups(rank, job, store)
        self._main_thread = threading.get_ident()
        self._at_work = False
        self._begun = 0  # number of orders begun
        self._freed = 0  # number of orders received when last told to abandon one
        self._modules = EditedModules.since_now()  # what a fork server has imported is a library
        self._groups_cut = False  # by this order's end
        self._calls_before = self._calls_seen = (0, 0, 0)  # when the order began, and when last counted

        self.output: RichOutput | None = None  # of the current order
        self.last_error: BaseException | None = None  # raised by the last cell
        self.taken: dict[str, tuple[str, Any]] = {}  # definitions from the notebook, by name: source text and object

        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main  # cloudpickle pickles its definitions by value, as from a notebook
        self.space: dict[str, Any] = main.__dict__

        show_by(self.display)
        channel.free = self._free
        signal.signal(signal.SIGINT, self._leave)

    def serve(self) -> NoReturn:
        """Make the groups, report this rank as ready, and carry out orders for good."""
        self._groups.make()
        self._groups.recorded(None, 0.0)
        self.space.update(
            rank=self.rank, world_size=self.world_size, fabric=self.fabric, dist=dist, torch=torch, device=own_device(),
            display=self.display,
        )  # fmt: skip
        self._calls_seen = self._calls()
        self._channel.resting = True
        self._channel.tell("entered", time.monotonic())

        while True:
            order = self._channel.orders.get()
            write_to_logs(self.rank, order.job)
            keep_sources(order.job)
            self._channel.begin(order.job, _HERE)
            self._channel.end(*self._ended(order))

    @property
    def fabric(self) -> Fabric:
        return self._groups.fabric

    def debugger(self) -> RankDebugger:
        """Return this rank's debugger, whose prompts appear in the notebook."""
        return RankDebugger(self.rank, lambda prompt: self._channel.tell("prompt", prompt), self._channel.typed)

    def display(self, *values: Any) -> None:
        """Show a staying rank's values as a notebook does, with pictures and tables; bound as `display` for cells."""
        self.output.display(*values)

    def _ended(self, order: Use) -> tuple[Literal["result", "failure"], Return | Failure]:
        """Carry out an order in a rank that stays, and return how it ended."""
        try:
            try:
                self._begin(order)  # never interrupted: all ranks make their groups together
                self._at_work = True
                if self._freed >= self._begun:
                    raise Freed

                for sentence in self._modules.reload_edited():
                    print(sentence)
                work = pickle.loads(order.packed or order.job.files.payload.read_bytes())
                self._channel.tell("entered", time.monotonic())
                value = self._done(work)
                self._channel.end_forked()
                result = dumps_result(value)
                if len(result) > SMALL_BYTES:
                    write_whole(order.job.files.of(self.rank, "result"), result)
            finally:
                self._at_work = False
                self._modules.note()
        except SystemExit as error:  # ends the order, not the rank
            self._channel.end_forked(error)
            failure = replace(failure_of(self.rank, error), kind="raised", type="SystemExit", message=f"{error.code}", code=None)
            return "failure", replace(failure, groups=self._groups_use())
        except BaseException as error:
            self._channel.end_forked(error)
            self.last_error = error
            return "failure", replace(failure_of(self.rank, error), groups=self._groups_use())

        small = result if len(result) <= SMALL_BYTES else b""
        return "result", Return(unwaited=self.fabric.unwaited(), packed=small, groups=self._groups_use())

    def _begin(self, order: Use) -> None:
        job = order.job
        self._begun += 1
        self._follow_notebook(job)
        self._channel.collectives.ended_groups.clear()  # their threads are idle by now
        if order.new_groups == "all":
            self._groups.make()
        elif order.new_groups:
            self._groups.make_wire()

        self._channel.collectives.begin(job.origin_s)
        self._channel.recorder.begin()
        self._channel.recorded = self._groups.recorded(job.link, job.origin_s)
        self._groups_cut, self._calls_before = False, self._calls() if order.new_groups else self._calls_seen
        self.output = RichOutput(job.files, self.rank)

    def _follow_notebook(self, job: Job) -> None:
        """Take over, in a rank that stays, what has changed in the notebook's environment, module path and directory."""
        changed = {name: value for name, value in job.env.items() if name not in self._channel.own_env}
        unset = set(job.unset) - self._channel.own_env
        os.environ.update(changed)
        for name in unset:
            os.environ.pop(name, None)
        if changed or unset:
            read_environment()
        if changed.get("OMP_NUM_THREADS", "").isdigit():
            torch.set_num_threads(max(1, int(changed["OMP_NUM_THREADS"])))

        if job.sys_path:
            sys.path[:] = [*job.sys_path, *(entry for entry in sys.path if entry not in job.sys_path)]
        if job.cwd:
            os.chdir(job.cwd)

    def _done(self, work: Any) -> Any:
        return work.do(self)

    def _calls(self) -> tuple[int, int, int]:
        """Return how often this staying rank has called torch's communication: from Python, in all, and to meet."""
        log = self._channel.collectives
        return log.calls, self._channel.recorder.posted(), sum(log.meetings.values())

    def _groups_use(self) -> GroupsUse:
        """Return what the current order has done with this rank's groups so far."""
        if not dist.is_initialized():
            return "ended"
        recorded, log = self._channel.recorded, self._channel.collectives
        posted = log.messages or recorded.events or recorded.state.changes
        calls = self._calls()
        if threading.get_ident() == self._main_thread:  # an order's last count is the first of the next one
            self._calls_seen = calls
        return "used" if self._groups_cut or posted or calls != self._calls_before else "untouched"

    def _free(self) -> None:
        """Make the main thread abandon its current or next order, even if it waits for a peer. Called in another thread."""
        self._freed = self._channel.orders_come
        if not self._at_work:
            return
        leaving = threading.Thread(target=self._signal_until_left, name="worldsize-free", daemon=True)
        leaving.start()
        if self._groups_use() == "untouched":  # it waits for no peer: healthy groups stay, if it leaves by itself
            leaving.join(_LEAVES_S)
        if self._at_work:
            self._groups_cut = True
            self._groups.cut()

    def _signal_until_left(self) -> None:
        """Signal the main thread until it has left its order: a signal just before a system call that waits does not end it."""
        while self._to_leave():
            signal.pthread_kill(self._main_thread, signal.SIGINT)
            time.sleep(_AGAIN_S)

    def _to_leave(self) -> bool:
        return self._at_work and self._freed >= self._begun

    def _leave(self, *_: object) -> None:
        if self._to_leave():
            self._at_work = False  # raise once only, and never while the rank reports its end
            raise Freed
