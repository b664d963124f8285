"""Ranks that stay, each kind used as its own documentation says, in a process that a bench drives by lines of JSON.

`OPENERS[name]()` imports the package, which may raise; the object opens ranks and runs texts on them. Here are those that a
Python program calls itself; those that a notebook's kernel drives are in `staying_in_kernels.py`. This file imports nothing
but the standard library, since each peer runs in its own Python. Left out: several of them in turn (`bench/stay.py`).
"""

import json
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

FIRST = "x = 1"
ADD_UP = "y = torch.ones(1000); dist.all_reduce(y)"
SLEEPS = "import time; time.sleep(1000)"
RECEIVES = "import time; dist.recv(torch.ones(1), 0) if rank else time.sleep(1000)"  # no deadlock: rank 0 is only slow
RAISES = "if rank == 1:\n    raise ValueError('boom')\ndist.all_reduce(torch.ones(1000))"
MEET = (
    "import os, torch, torch.distributed as dist\n"
    "rank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    "dist.init_process_group('gloo')"
)
INTERRUPT_AFTER_S = 1.0
_RUN_TIMES = 200


class CellFailed(Exception):
    """What ran on the ranks has ended with an error, which was shown."""


class Hung(Exception):
    """A text did not end within its limit; the message says what was seen of it."""


class Staying(Protocol):
    """Ranks that stay. Every call returns when it is done, and raises Hung where it is not within its limit."""

    began_s: float  # from which the seconds of `open` count

    def open(self, ranks: int, limit_s: float) -> None:
        """Open ranks from nothing, and run the first text on them."""

    def meet(self, limit_s: float) -> None:
        """Make the ranks' default group, where they have none yet."""

    def run(self, text: str, limit_s: float) -> None:
        """Run a text on all ranks. Raises CellFailed where a rank raised."""

    def interrupted(self, text: str, limit_s: float) -> float:
        """Run a text that waits, interrupt it, and return the seconds from there until it has ended."""

    def again(self, limit_s: float) -> float:
        """End the ranks, open as many new ones, and return the seconds that the opening took."""


class WorldSize:
    """Ours, called by a program: `world = open_ranks(n)`, `world.run(text)`."""

    def __init__(self) -> None:
        self.began_s = 0.0
        from worldsize.launch import warm

        warm()  # as the notebook's front does when it is imported

    def open(self, ranks: int, limit_s: float) -> None:
        from worldsize.ranks import open_ranks

        self._open, self._ranks = open_ranks, ranks
        self._world = open_ranks(ranks)
        self.run(FIRST, limit_s)

    def meet(self, limit_s: float) -> None:
        """They have a group from the beginning."""

    def run(self, text: str, limit_s: float) -> None:
        from worldsize.errors import RankFailed, RunTimedOut

        try:
            self._world.run(text, timeout_s=limit_s)
        except RankFailed as error:
            raise CellFailed(str(error)) from None
        except RunTimedOut as error:
            raise Hung(str(error)) from None

    def interrupted(self, text: str, limit_s: float) -> float:
        return interrupted_here(lambda: self.run(text, limit_s))

    def again(self, limit_s: float) -> float:
        self._world.close()
        began_s = time.monotonic()
        self._world = self._open(self._ranks)
        return time.monotonic() - began_s

    def in_a_launch(self, ranks: int) -> float:
        """Seconds of the same all-reduce inside a launch, the median."""
        from worldsize.launch import launch

        return launch(add_up_often, ranks)[0]

    def launch_that_stays(self, ranks: int, seconds: float) -> None:
        """End the ranks, and let others in a launch do the same and wait, so that their memory can be looked at."""
        from worldsize.launch import launch

        self._world.close()
        launch(add_up_and_stay, ranks, args=(seconds,))


class Monarch:
    """torchmonarch: an actor on each process of a mesh, which runs the text that it is sent."""

    def __init__(self) -> None:
        self.began_s = 0.0
        import torch  # noqa: F401 - as a user of it does
        from monarch.actor import this_host

        from peers.staying_actor import Rank

        self._this_host, self._rank_class, self._opened = this_host, Rank, 0

    def open(self, ranks: int, limit_s: float) -> None:
        self._ranks = ranks
        self._spawn()
        self.run(FIRST, limit_s)

    def _spawn(self) -> None:
        self._opened += 1
        self._processes = self._this_host().spawn_procs(per_host={"ranks": self._ranks})
        self._actors = self._processes.spawn(f"rank{self._opened}", self._rank_class)

    def meet(self, limit_s: float) -> None:
        self._answer(self._actors.meet.call(self._ranks, free_port(), MEET), limit_s)

    def run(self, text: str, limit_s: float) -> None:
        self._answer(self._actors.cell.call(text), limit_s)

    def _answer(self, asked: object, limit_s: float) -> None:
        try:
            asked.get(timeout=limit_s)
        except TimeoutError:
            raise Hung(f"the cell still runs after {limit_s:g} s, no error was shown") from None
        except Exception as error:  # noqa: BLE001 - what a rank raised comes in a class of its own
            raise CellFailed(str(error)[-300:]) from None

    def interrupted(self, text: str, limit_s: float) -> float:
        return interrupted_here(lambda: self.run(text, limit_s))

    def again(self, limit_s: float) -> float:
        with suppress(Exception):
            self._processes.stop().get(timeout=limit_s)
        began_s = time.monotonic()
        self._spawn()
        self.run(FIRST, limit_s)  # without it nothing says that they are there
        return time.monotonic() - began_s


def interrupted_here(work: Callable[[], None]) -> float:
    """Run what waits in this thread, interrupt this process as a kernel is, and return the seconds until it has ended."""
    told: list[float] = []

    def interrupt() -> None:
        told.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(INTERRUPT_AFTER_S, interrupt)
    timer.start()
    try:
        work()
    except Hung:
        raise
    except BaseException:  # noqa: BLE001 - each has an error of its own for it
        return time.monotonic() - told[0]
    raise Hung("what was to wait has ended by itself")


def add_up_often() -> float:
    """On a rank of a launch: the median of the seconds that an all-reduce takes."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    seconds = []
    for _ in range(_RUN_TIMES):
        began_s = time.perf_counter()
        y = torch.ones(1000)
        dist.all_reduce(y)
        seconds.append(time.perf_counter() - began_s)
    return statistics.median(seconds)


def add_up_and_stay(fabric: object, seconds: float) -> None:
    """On a rank of a launch: have what a rank that stays has, a fabric and a default group, and wait."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1000))
    time.sleep(seconds)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def openers() -> dict[str, Callable[[], Staying]]:
    from peers import staying_in_kernels as kernels

    return {
        "worldsize": WorldSize, "worldsize, %%ranks": kernels.WorldSizeMagic, "torchmonarch": Monarch,
        "ipyparallel": kernels.IPyParallel, "jupyter-distributed": kernels.JupyterDistributed,
        "nbdistributed": kernels.NbDistributed,
    }  # fmt: skip


def serve(name: str, began_s: float) -> None:
    """Answer each request on standard input, {"do": what, …}, with one line of JSON: {"value": …} or {"error": why}.

    `began_s` is when this process was started, on the monotonic clock.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 1)
    try:
        staying = openers()[name]()
    except BaseException as error:  # noqa: BLE001 - whatever a peer does is a result of the bench
        answers.write(json.dumps({"error": _words(error)}) + "\n")
        return
    staying.began_s = staying.began_s or began_s
    answers.write('{"value": "ready"}\n')
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict = {"value": _done(staying, request.pop("do"), request)}
        except BaseException as error:  # noqa: BLE001
            answer = {"error": _words(error)}
        answers.write(json.dumps(answer) + "\n")
    os._exit(0)


def _words(error: BaseException) -> str:
    said = str(error) or "nothing was said"
    return (said if isinstance(error, Hung) else f"{type(error).__name__}: {said}")[-300:]


def _done(staying: Staying, what: str, given: dict) -> object:
    limit_s = given.get("limit_s", 60.0)
    if what == "open":
        staying.open(given["ranks"], limit_s)
        return time.monotonic() - staying.began_s
    if what == "cell":
        began_s = time.perf_counter()
        staying.run(given["text"], limit_s)
        return time.perf_counter() - began_s
    if what == "raises":
        return _raising(staying, limit_s)
    if what == "interrupted":
        seconds = staying.interrupted(given["text"], limit_s)
        _usable(staying, limit_s, seconds)
        return seconds
    return getattr(staying, what)(**given)


def _raising(staying: Staying, limit_s: float) -> float:
    """Seconds from the start of a text in which one rank raises until it was shown and the ranks do the next one."""
    began_s = time.monotonic()
    try:
        staying.run(RAISES, limit_s)
    except CellFailed as error:
        if "boom" not in str(error):
            raise Hung(f"another error was shown: {str(error)[-150:]}") from None
    else:
        raise Hung("the cell has ended, no error was shown")
    _usable(staying, limit_s, time.monotonic() - began_s)
    return time.monotonic() - began_s


def _usable(staying: Staying, limit_s: float, seconds: float) -> None:
    for text in (FIRST, ADD_UP):
        try:
            staying.run(text, limit_s)
        except (Hung, CellFailed) as error:
            raise Hung(f"it was over after {seconds:.2g} s, but then `{text}` does not run: {error}") from None
