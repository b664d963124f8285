"""Framework collectives, seen one level up: each call of `torch.distributed` becomes a `Collective` event.

Messages inside a collective bypass the fabric, so only the call is recorded: operation, bytes of this rank's input, start and
end. Waits outside a collective (for an `async_op=True` handle, for a rendezvous) become "wait" spans. FSDP2 calls from Python and
is recorded too. Left out: calls from C++ (DDP's reducer, unless it has a communication hook), and waits of threads other than the
rank's own.
"""

import functools
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from worldsize.failures import Wait, where_it_waits
from worldsize.trace import Collective, MessageKind, Span

OPERATIONS = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single", "barrier",
)  # fmt: skip
# PyTorch 2.13 keeps these names and calls the newer ones; earlier versions have only these
_OLDER_NAMES = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
RENDEZVOUS = ("init_process_group", "new_group")
_PEER: dict[str, tuple[MessageKind, str]] = {  # messages of `torch.distributed` itself: (kind, name of the peer's argument)
    "send": ("send", "dst"), "isend": ("send", "dst"), "recv": ("recv", "src"), "irecv": ("recv", "src"),
}  # fmt: skip
_LEAST_WAIT_S = 1e-3  # shorter waits are too short to be seen
_INPUT = {  # place and name of this rank's input, where it is not the first argument
    "all_gather": (1, "tensor"), "all_gather_single": (1, "input_tensor"), "scatter": (1, "scatter_list"),
    "reduce_scatter": (1, "input_list"), "reduce_scatter_single": (1, "input"),
    "all_to_all": (1, "input_tensor_list"), "all_to_all_single": (1, "input"),
}  # fmt: skip


class CollectiveLog:
    """A recorder of this process's collectives after `install()`. Times are seconds since `origin_s`."""

    def __init__(self, rank: int, origin_s: float) -> None:
        self._rank, self._origin_s = rank, origin_s
        self._rows: list[Collective] = []
        self._open: dict[int, tuple[str, int, float]] = {}  # by number of the call: operation, bytes, start
        self._begun: set[int] = set()  # open calls that have returned: the rank goes on meanwhile
        self._numbers = itertools.count()
        self._waits: list[Span] = []
        self._waiting: tuple[str, float] | None = None  # what the rank's own thread waits in outside a collective, since when
        self._peer_wait: Wait | None = None  # the same wait, if it is for a message
        self._inside = 0  # depth of recorded calls in the rank's own thread
        self._thread = threading.get_ident()
        self._op_of_work: dict[int, str | Wait] = {}

    def install(self) -> None:
        """Wrap the functions of `torch.distributed` in this process."""
        wrapped = {}
        for op in OPERATIONS:
            name = op if hasattr(distributed_c10d, op) else _OLDER_NAMES[op]
            wrapped[name] = self._recorded(op, getattr(distributed_c10d, name))
        for name in RENDEZVOUS:
            wrapped[name] = self._waiting_in(getattr(distributed_c10d, name), name)
        for name, (op, peer) in _PEER.items():
            original = getattr(distributed_c10d, name)
            of = functools.partial(self._wait_for_peer, op, peer)
            if name.startswith("i"):
                wrapped[name] = self._noted(original, of)
            else:
                wrapped[name] = self._waiting_in(original, of)

        for name, function in wrapped.items():
            setattr(dist, name, function)
            setattr(distributed_c10d, name, function)
        dist.Work.wait = self._waiting_in(dist.Work.wait, self._what_is_awaited)
        for name in ("wait", "get"):
            setattr(dist.Store, name, self._waiting_in(getattr(dist.Store, name), f"store.{name}"))

    def peer_wait(self) -> Wait | None:
        """Return the message of `torch.distributed` itself that the rank now waits for, or None."""
        return self._peer_wait

    def begin(self, origin_s: float) -> None:
        """Clear the record; from now on times are seconds since `origin_s`. Open calls stay open."""
        self._origin_s, self._rows, self._waits = origin_s, [], []

    def rows(self) -> tuple[Collective, ...]:
        """Return the collectives that ended, then the open ones, up to this moment."""
        found = list(self._rows)
        for number, (op, size_bytes, start_s) in self._open.copy().items():
            found.append(self._row(op, size_bytes, start_s, ended=False, blocking=number not in self._begun))
        return tuple(found)

    def waits(self) -> tuple[Span, ...]:
        """Return the rank's waits outside of collectives, including the current one."""
        waits, waiting = list(self._waits), self._waiting
        if waiting is not None:
            waits.append(self._wait(*waiting, ended=False))
        return tuple(waits)

    def waits_in(self, since_s: float) -> str:
        """Return what this rank has waited in for at least `since_s` seconds (a collective's call, a rendezvous, the wait for a
        handle), or ""."""
        latest_s = time.monotonic() - since_s
        waiting = self._waiting
        if waiting is not None and waiting[1] <= latest_s:
            return waiting[0]
        for number, (op, _, start_s) in self._open.copy().items():
            if start_s <= latest_s and number not in self._begun:
                return op
        return ""

    def _recorded(self, name: str, original: Callable) -> Callable:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            size_bytes = _size(args, kwargs, *_INPUT.get(name, (0, "")))
            number = next(self._numbers)
            self._open[number] = name, size_bytes, time.monotonic()
            own = threading.get_ident() == self._thread
            self._inside += own
            try:
                work = original(*args, **kwargs)
            except BaseException:
                self._close(number, ended=False)
                raise
            finally:
                self._inside -= own

            if work is None:
                self._close(number, blocking=own)
            else:
                self._begun.add(number)
                self._op_of_work[id(work)] = name
                work.get_future().add_done_callback(lambda _: self._close(number, blocking=False))
            return work

        return wrapper

    def _noted(self, original: Callable, what: Callable[..., Wait]) -> Callable:
        """Wrap `original` to remember what its handle waits for."""

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            work = original(*args, **kwargs)
            if work is not None:
                self._op_of_work[id(work)] = what(*args, **kwargs)
            return work

        return wrapper

    def _wait_for_peer(self, op: MessageKind, name: str, *args: Any, **kwargs: Any) -> Wait:
        peer = args[1] if len(args) > 1 else None
        for given in (name, f"group_{name}"):  # the latter in a batch
            peer = kwargs.get(given) if peer is None else peer
        return Wait(self._rank, op, peer if isinstance(peer, int) else None)

    def _waiting_in(self, original: Callable, what: str | Callable[..., str | Wait]) -> Callable:
        """Wrap a call to record its time in the rank's own thread as a wait for `what`; inside a recorded call it counts as part
        of that call."""

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._inside or threading.get_ident() != self._thread:
                return original(*args, **kwargs)

            awaited = what if isinstance(what, str) else what(*args, **kwargs)
            if isinstance(awaited, Wait):
                self._peer_wait = awaited
                awaited = where_it_waits(awaited).removeprefix("in ")
            self._waiting = waiting = awaited, time.monotonic()
            self._inside += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._inside -= 1
                self._waiting = self._peer_wait = None
                if time.monotonic() - waiting[1] >= _LEAST_WAIT_S:
                    self._waits.append(self._wait(*waiting))

        return wrapper

    def _what_is_awaited(self, work: dist.Work, *_: Any, **__: Any) -> str | Wait:
        op = self._op_of_work.pop(id(work), "")
        if isinstance(op, Wait):
            return op
        return f"wait() of {op}" if op else "wait()"

    def _wait(self, what: str, start_s: float, ended: bool = True) -> Span:
        end_s = time.monotonic()
        return Span(self._rank, "wait", start_s - self._origin_s, end_s - self._origin_s, label=what, ended=ended)

    def _close(self, number: int, ended: bool = True, blocking: bool = True) -> None:
        self._rows.append(self._row(*self._open[number], ended, blocking))
        del self._open[number]
        self._begun.discard(number)

    def _row(self, op: str, size_bytes: int, start_s: float, ended: bool, blocking: bool = True) -> Collective:
        end_s = time.monotonic()
        return Collective(op, size_bytes, self._rank, start_s - self._origin_s, end_s - self._origin_s, ended, blocking)


def _size(args: tuple, kwargs: dict, place: int, name: str) -> int:
    """Return the bytes of this rank's input: the argument at `place` or called `name`; without a name, the first with tensors."""
    given = list(kwargs.values())
    if len(args) > place:
        given = [args[place]]
    elif name:
        given = [kwargs.get(name)]

    for value in given:
        values = value if isinstance(value, (list, tuple)) else [value]
        tensors = [t for t in values if isinstance(t, torch.Tensor)]
        if tensors:
            return sum(t.nbytes for t in tensors)
    return 0
