"""Framework collectives, seen one level up: each call of `torch.distributed` becomes a `Collective` event.

Messages inside a collective bypass the fabric, so only the call is recorded: operation, bytes of this rank's input, start and
end. Waits outside a collective (for an `async_op=True` handle, for a rendezvous) become "wait" spans. FSDP2 calls from Python and
is recorded too. A message of `torch.distributed` itself (`dist.send`, `isend`, a batch's, a pipeline's) becomes an `Event`, like
one of the fabric. Left out: collectives called from C++, such as DDP's (`engines.ranks.flight_recorder` has those), and waits of
threads other than the rank's own.
"""

import functools
import inspect
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from worldsize.failures import Wait, where_it_waits
from worldsize.pytorch.abilities import name_here
from worldsize.trace import Collective, Event, MessageKind, Span

OPERATIONS = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single", "barrier",
)  # fmt: skip
RENDEZVOUS = ("init_process_group", "new_group")
_MESSAGES: dict[str, MessageKind] = {"send": "send", "recv": "recv", "recv_anysource": "recv"}  # methods of a ProcessGroup
_OWN_MEETING = {"timeout", "store", "init_method", "use_local_synchronization"}  # arguments
_LEAST_WAIT_S = 1e-3  # shorter waits are too short to be seen
_INPUT = {  # place and name of this rank's input, where it is not the first argument
    "all_gather": (1, "tensor"), "all_gather_single": (1, "input_tensor"), "scatter": (1, "scatter_list"),
    "reduce_scatter": (1, "input_list"), "reduce_scatter_single": (1, "input"),
    "all_to_all": (1, "input_tensor_list"), "all_to_all_single": (1, "input"),
}  # fmt: skip


@dataclass(eq=False, slots=True)
class PeerCall:
    """A message of `torch.distributed` itself, the `number`-th of its channel. `end_s` is None before somebody waited for it."""

    kind: MessageKind
    peer: int | None
    tag: int
    group: str
    number: int
    size_bytes: int
    start_s: float
    end_s: float | None = None
    wait_start_s: float | None = None


def channel(group: str, src: int | None, dst: int | None, tag: int) -> str:
    """Return the logged name of the messages from `src` (None: from anyone) to `dst` under a tag, in order within a group."""
    return f"{group} {'*' if src is None else src}>{dst} {tag}"


class CollectiveLog:
    """A recorder of this process's collectives after `install()`. Times are seconds since `origin_s`."""

    def __init__(self, rank: int, origin_s: float) -> None:
        self.rank, self._origin_s = rank, origin_s
        self._rows: list[Collective] = []
        self._open: dict[int, tuple[str, int, float, tuple[int, ...]]] = {}  # by call: operation, bytes, start, group's ranks
        self._begun: set[int] = set()  # open calls that have returned: the rank goes on meanwhile
        self._numbers = itertools.count()
        self._waits: list[Span] = []
        self._waiting: tuple[str, float] | None = None  # what the rank's own thread waits in outside a collective, since when
        self._peer_wait: Wait | None = None  # the same wait, if it is for a message
        self._inside = 0  # depth of recorded calls in the rank's own thread
        self._thread = threading.get_ident()
        self._op_of_work: dict[int, str | PeerCall] = {}

        # read by `engines.ranks`: what the flight recorder need not tell again, and who has posted what to whom
        self.calls_ns: list[tuple[int, int, int]] = []  # recorded calls on the wall clock: thread, start, end
        self.open_ns: dict[int, tuple[int, int]] = {}  # by number of the call: thread and start
        self.calls = 0  # recorded calls of collectives so far
        self.backwards_ns: list[tuple[int, int, int]] = []  # backward passes: thread, start, end
        self.backwards = 0  # begun so far
        self.messages: list[PeerCall] = []
        self.sent: Counter[str] = Counter()  # by channel: messages posted
        self.asked_for: Counter[str] = Counter()  # by channel: receives posted
        self.taken: Counter[str] = Counter()  # by receiver's group and tag: receives that ended
        self.meetings: Counter[str] = Counter()  # by rendezvous: calls begun
        self.meets_all = True  # whether the latest rendezvous needs all ranks, and has no time limit of its own
        self.awaited: PeerCall | str | None = None  # what the rank's own thread waits for outside a collective
        self.born_ns = 0  # when the current default group was asked for, on the wall clock
        self.groups: dict[str, tuple[int, ...]] = {}  # every group so far, by key: the ranks of its members
        self.ended_groups: list[dist.ProcessGroup] = []  # kept, for whoever ends this process, or begins its next work
        self._places: dict[str, tuple[str, tuple[int, ...]]] = {}  # by name of a current group: key and members

    def install(self) -> None:
        """Wrap the functions of `torch.distributed` in this process."""
        wrapped = {}
        for op in OPERATIONS:
            name = name_here(op)
            wrapped[name] = self._recorded(op, getattr(distributed_c10d, name))
        for name in RENDEZVOUS:
            wrapped[name] = self._waiting_in(self._meeting(getattr(distributed_c10d, name), name), name)
        wrapped["destroy_process_group"] = self._remembering(distributed_c10d.destroy_process_group)

        for name, function in wrapped.items():
            setattr(dist, name, function)
            setattr(distributed_c10d, name, function)
        for name, kind in _MESSAGES.items():
            setattr(dist.ProcessGroup, name, self._noted(getattr(dist.ProcessGroup, name), kind))
        dist.Work.wait = self._waiting_in(dist.Work.wait, self._what_is_awaited)
        for name in ("wait", "get"):
            setattr(dist.Store, name, self._waiting_in(getattr(dist.Store, name), f"store.{name}"))
        torch.autograd._engine_run_backward = self._passing_back(torch.autograd._engine_run_backward)

    def peer_wait(self) -> Wait | None:
        """Return the message of `torch.distributed` itself that the rank now waits for, or None."""
        return self._peer_wait

    def begin(self, origin_s: float) -> None:
        """Clear the log; from now on times are seconds since `origin_s`. Open calls stay open."""
        self._origin_s, self._rows, self._waits = origin_s, [], []
        self.messages, self.calls_ns, self.backwards_ns, self.backwards = [], [], [], 0

    def events(self) -> tuple[Event, ...]:
        """Return the messages of `torch.distributed` itself that were sent, or received and waited for."""
        recorded: list[Event] = []
        for call in list(self.messages):
            if call.peer is None or (call.kind == "recv" and call.end_s is None):
                continue
            end_s = call.start_s if call.end_s is None else call.end_s
            wait_s = None if call.wait_start_s is None else call.wait_start_s - self._origin_s
            start_s, end_s = call.start_s - self._origin_s, end_s - self._origin_s
            recorded.append(Event(call.kind, call.peer, call.tag, call.size_bytes, start_s, end_s, wait_s, call.group))
        return tuple(recorded)

    def known_groups(self) -> dict[str, tuple[int, ...]]:
        """Return every group so far, by key, with the ranks of its members. A key has the count of `init_process_group`."""
        for group, ranks in list(distributed_c10d._world.pg_group_ranks.items()):
            name = distributed_c10d._world.pg_names.get(group)
            if name is not None:
                self.groups[self.key(name)] = tuple(ranks)
        return dict(self.groups)

    def key(self, name: str) -> str:
        return f"{self.meetings['init_process_group']}:{name}"

    def rows(self) -> tuple[Collective, ...]:
        """Return the collectives that ended, then the open ones, up to this moment."""
        found = list(self._rows)
        for number, call in self._open.copy().items():
            found.append(self._row(*call, ended=False, blocking=number not in self._begun))
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
        for number, (op, _, start_s, _) in self._open.copy().items():
            if start_s <= latest_s and number not in self._begun:
                return op
        return ""

    def _recorded(self, name: str, original: Callable) -> Callable:
        parameters = list(inspect.signature(original).parameters)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            size_bytes = _size(args, kwargs, *_INPUT.get(name, (0, "")))
            group = {**dict(zip(parameters, args, strict=False)), **kwargs}.get("group")
            ranks = ()
            if isinstance(group, dist.ProcessGroup):
                ranks = tuple(distributed_c10d._world.pg_group_ranks.get(group, ()))
            number = next(self._numbers)
            self._open[number] = name, size_bytes, time.monotonic(), ranks
            thread, began_ns = threading.get_ident(), time.time_ns()
            own = thread == self._thread
            self.calls += 1
            self.open_ns[number] = thread, began_ns
            self._inside += own
            try:
                work = original(*args, **kwargs)
            except BaseException:
                self._close(number, ended=False)
                raise
            finally:
                self._inside -= own
                self.calls_ns.append((thread, began_ns, time.time_ns()))
                del self.open_ns[number]

            if work is None:
                self._close(number, blocking=own)
            else:
                self._begun.add(number)
                self._op_of_work[id(work)] = name
                work.get_future().add_done_callback(lambda _: self._close(number, blocking=False))
            return work

        return wrapper

    def _noted(self, original: Callable, kind: MessageKind) -> Callable:
        """Wrap a message's method of a process group to log it, and to remember what its handle waits for."""
        anyone = "anysource" in original.__name__

        @functools.wraps(original)
        def wrapper(group: dist.ProcessGroup, tensors: Any, *args: Any, **kwargs: Any) -> Any:
            start_s = time.monotonic()
            work = original(group, tensors, *args, **kwargs)
            if work is not None:
                given = [*args, *kwargs.values()]  # the peer's rank in the group, then the tag
                key, members = self._place(group)
                peer = None if anyone else members[given.pop(0)]
                tag = given[0] if given else 0

                counts = self.sent if kind == "send" else self.asked_for
                name = channel(key, self.rank, peer, tag) if kind == "send" else channel(key, peer, self.rank, tag)
                counts[name] += 1
                call = PeerCall(kind, peer, tag, key, counts[name], sum(t.nbytes for t in tensors), start_s)
                self.messages.append(call)
                self._op_of_work[id(work)] = call
            return work

        return wrapper

    def _place(self, group: dist.ProcessGroup) -> tuple[str, tuple[int, ...]]:
        """Return the logged group's key, and its members by their rank in the group."""
        name = group.group_name
        if name not in self._places:
            members = tuple(dist.get_process_group_ranks(group))
            self._places[name] = self.key(name), members
            self.groups[self.key(name)] = members
        return self._places[name]

    def _remembering(self, original: Callable) -> Callable:
        """Wrap a call that ends groups, to log their members, and the groups themselves.

        Else a model in DDP could hold a group's last reference. When the model goes, PyTorch waits, with the interpreter locked,
        for the group's thread, which may need the interpreter to end its last work (https://github.com/pytorch/pytorch/issues/75097).
        """

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.known_groups()
            self._places.clear()
            self.ended_groups += distributed_c10d._world.pg_map
            return original(*args, **kwargs)

        return wrapper

    def _meeting(self, original: Callable, name: str) -> Callable:
        """Wrap a rendezvous to log the number of its calls."""

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.meetings[name] += 1
            others = kwargs.get("world_size", -1) not in (-1, int(os.environ.get("WORLD_SIZE", "-1")))
            self.meets_all = not others and not _OWN_MEETING & kwargs.keys()
            if name == "init_process_group":
                self.known_groups()
                self._places.clear()
                self.born_ns = time.time_ns()
            return original(*args, **kwargs)

        return wrapper

    def _passing_back(self, original: Callable) -> Callable:
        """Wrap autograd's backward pass to log when each began and ended."""

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.backwards += 1
            began_ns = time.time_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self.backwards_ns.append((threading.get_ident(), began_ns, time.time_ns()))

        return wrapper

    def _waiting_in(self, original: Callable, what: str | Callable[..., str | PeerCall]) -> Callable:
        """Wrap a call to record its time in the rank's own thread as a wait for `what`; inside a recorded call it counts as part
        of that call."""

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            awaited = what if isinstance(what, str) else what(*args, **kwargs)
            limited = isinstance(args[0], dist.Work) and (len(args) > 1 or bool(kwargs)) if args else False
            own = threading.get_ident() == self._thread
            if self._inside or not own:
                result = original(*args, **kwargs)
                if isinstance(awaited, PeerCall):
                    self._end(awaited, args[0])
                return result

            label, start_s = awaited, time.monotonic()
            if isinstance(awaited, PeerCall):
                awaited.wait_start_s = start_s
                self._peer_wait = Wait(self.rank, awaited.kind, awaited.peer, awaited.tag)
                label = where_it_waits(self._peer_wait).removeprefix("in ")
            self._waiting = waiting = label, start_s
            self.awaited = "" if limited else awaited  # the caller's own time limit ends the wait
            self._inside += 1
            try:
                result = original(*args, **kwargs)
                if isinstance(awaited, PeerCall):
                    self._end(awaited, args[0])
                return result
            finally:
                self._inside -= 1
                self._waiting = self._peer_wait = self.awaited = None
                over = isinstance(awaited, PeerCall) and awaited.end_s is not None  # then the message's event shows the wait
                if not over and time.monotonic() - start_s >= _LEAST_WAIT_S:
                    self._waits.append(self._wait(*waiting))

        return wrapper

    def _end(self, call: PeerCall, work: dist.Work) -> None:
        call.end_s = time.monotonic()
        if call.kind == "recv":
            self.taken[channel(call.group, None, self.rank, call.tag)] += 1
            if call.peer is None:
                call.peer = self.groups[call.group][work._source_rank()]

    def _what_is_awaited(self, work: dist.Work, *_: Any, **__: Any) -> str | PeerCall:
        op = self._op_of_work.pop(id(work), "")
        if isinstance(op, PeerCall):
            return op
        return f"wait() of {op}" if op else "wait()"

    def _wait(self, what: str, start_s: float, ended: bool = True) -> Span:
        end_s = time.monotonic()
        return Span(self.rank, "wait", start_s - self._origin_s, end_s - self._origin_s, label=what, ended=ended)

    def _close(self, number: int, ended: bool = True, blocking: bool = True) -> None:
        self._rows.append(self._row(*self._open[number], ended, blocking))
        del self._open[number]
        self._begun.discard(number)

    def _row(
        self, op: str, size_bytes: int, start_s: float, ranks: tuple[int, ...], ended: bool, blocking: bool = True
    ) -> Collective:
        end_s = time.monotonic()
        return Collective(op, size_bytes, self.rank, start_s - self._origin_s, end_s - self._origin_s, ended, blocking, ranks)


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
