"""An arena without processes: every rank is a greenlet of this one, and its clock counts events.

So a check's own judgement can be tried over thousands of draws: what it decides by values, messages and rounds. There is
no time in it; `link` is left out, and so is what needs a process group or TensorFlow. Declared work has a beginning and an
end there, for checks that ask for order alone, where it is `declared`.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from greenlet import getcurrent, greenlet

from worldsize import failures
from worldsize.arrays import plain, tensors
from worldsize.checks import plain_call
from worldsize.checks.arena import NOBODY, ArenaResult, PlayedRanks, of_rank
from worldsize.checks.drivers import big_batch
from worldsize.engines.ranks.rank_failure import failure_of
from worldsize.fabric.interface import Arrival, Fabric
from worldsize.fabric.recording import Recorded
from worldsize.trace import Trace, merge

_ENDS_S = 1.0  # a rank's own thread ends with its first message
_IN_A_GROUP = (big_batch.stepped,)  # drivers that make the fabric a process group, of which a process has one


class NoProcesses(NotImplementedError):
    """The check needs a process group, TensorFlow, threads of a rank, or time."""


@dataclass
class _Message:
    src: int
    x: torch.Tensor
    taken: bool = False


@dataclass
class _World:
    """What the ranks share: messages on their way by (from, to, tag) in order, and a clock that counts."""

    queues: dict[tuple[int, int, int], deque[_Message]] = field(default_factory=lambda: defaultdict(deque))
    ticks: Iterator[int] = field(default_factory=itertools.count)
    changes: int = 0
    declared: bool = False
    thread: int = field(default_factory=threading.get_ident)
    left: bool = False  # a rank sent or received in a thread of its own

    def stay(self) -> None:
        """Ends a thread that a rank has started: greenlets do not go from one to another. Raises NoProcesses."""
        if threading.get_ident() != self.thread:
            self.left = True
            raise NoProcesses("threads")

    def now(self) -> float:
        return next(self.ticks) * 1e-6


class _Pending:
    def __init__(self, message: _Message) -> None:
        self._message = message

    def wait(self) -> None:
        while not self._message.taken:
            _next_one()


class GreenletWire:
    """A wire between greenlets: a rank that has to wait lets the next one go on."""

    def __init__(self, world: _World, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self._world = world
        self.now = world.now

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> _Pending:
        self._world.stay()
        message = _Message(self.rank, x)
        self._world.queues[self.rank, to, tag].append(message)
        self._world.changes += 1
        return _Pending(message)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        self._world.stay()
        sources = range(self.world_size) if frm is None else [frm]
        while True:
            for source in sources:
                queue = self._world.queues[source, self.rank, tag]
                if queue:
                    return self._land(queue.popleft(), out)
            _next_one()

    def _land(self, message: _Message, out: torch.Tensor) -> Arrival:
        if (message.x.dtype, message.x.shape) != (out.dtype, out.shape):
            raise ValueError(f"rank {self.rank}: expected {out.dtype} {out.shape}, got {message.x.dtype} {message.x.shape}")
        out.copy_(message.x)
        message.taken = True
        self._world.changes += 1
        return Arrival(message.src, out.nbytes, 0.0)

    def compute(self, seconds: float) -> None:
        if not self._world.declared:
            raise NoProcesses("declared work")


class InProcessArena:
    """The face of an arena, for checks of plain functions and of functions over the fabric."""

    def __init__(self, seed: int, declared: bool = False) -> None:
        self.draws = random.Random(seed)
        self._declared = declared

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        copies = [plain_call.handed_out(value) for value in args]
        try:
            return ArenaResult("done", returned=(plain(fn(*copies)),))
        except Exception as error:
            failure = failure_of(0, error)
        return ArenaResult("raised", failures.failed_text([failure], 1), failure=failure)

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Any = None, played: PlayedRanks = NOBODY,
        driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        if driver in _IN_A_GROUP:
            raise NoProcesses("a process group")

        n = len(inputs)
        world = _World(declared=self._declared)
        wires = [Recorded(GreenletWire(world, rank, n)) for rank in range(n)]
        fabrics = [Fabric(wire) for wire in wires]
        given = [tensors(x) for x in inputs]
        returned: dict[int, Any] = {}

        def work(rank: int) -> None:
            torch.set_grad_enabled(True)  # the rank before may have stopped inside no_grad
            fabrics[rank].guard_sends()
            own = (fabrics[rank], given[rank], *map(tensors, of_rank(more, rank)))
            driven = driver is not None and rank not in played
            returned[rank] = driver(fn, *own) if driven else played.get(rank, fn)(*own)

        running = set(threading.enumerate())
        try:
            stuck = _take_turns(world, [greenlet(lambda rank=rank: work(rank)) for rank in range(n)])
        except NoProcesses:
            raise
        except Exception as error:
            if not world.left:
                return ArenaResult("raised", f"{type(error).__name__}: {error}", trace=Trace(n))
        finally:
            for thread in set(threading.enumerate()) - running:
                thread.join(_ENDS_S)
        if world.left:
            raise NoProcesses("threads")
        if stuck:
            return ArenaResult("deadlock", "nobody goes on", trace=Trace(n))

        return ArenaResult(
            "done",
            returned=tuple(plain(returned[rank]) for rank in range(n)),
            inputs=tuple(map(plain, given)),
            trace=merge([wire.record() for wire in wires], n),
            unwaited=tuple(rank for rank in range(n) if fabrics[rank].unwaited()),
        )

    def group(self, *_: Any, **__: Any) -> ArenaResult:
        raise NoProcesses("a process group")

    def tensorflow(self, *_: Any, **__: Any) -> ArenaResult:
        raise NoProcesses("TensorFlow")


def _next_one() -> None:
    others = getcurrent().parent
    if others is None:
        raise NoProcesses("threads")
    if torch._C._current_graph_task_id() != -1:
        raise NoProcesses("a backward that waits for messages: autograd runs one at a time in a thread")

    learns = torch.is_grad_enabled()  # a rank's own in a process of its own
    others.switch()
    torch.set_grad_enabled(learns)


def _take_turns(world: _World, ranks: list[greenlet]) -> bool:
    """Let every rank go on until it waits, over and over; True where none can go on any more."""
    while True:
        before = world.changes
        for one in ranks:
            if not one.dead:
                one.switch()
        if all(one.dead for one in ranks):
            return False
        if world.changes == before:
            return True
