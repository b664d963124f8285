"""This rank's `Posts`, asked while ranks wait: its posts and its wait, in torch's own communication and in the fabric.

A rank counts as waiting only if its own thread is blocked in a call that it has posted, every thread sleeps, and no thread could
post more: only such ranks may prove a deadlock. A caller's time limit that is shorter than the launch's rules a proof out.
"""

import os
import sys
import threading
import time
from collections import Counter
from types import FrameType

import torch
from torch.distributed import distributed_c10d

from worldsize.engines.deadlock import Posts, RankMessages, TorchCall
from worldsize.engines.ranks.flight_recorder import Entry, FlightRecorder
from worldsize.engines.ranks.last_seen import Rows, collected_later
from worldsize.pytorch import collective_log
from worldsize.pytorch.collective_log import CollectiveLog, PeerCall, channel

_LONGEST_S = 1800.0  # gloo's own time limit: a longer one of the launch does not rule a proof out
_SLEEP_LOOKS, _SLEEP_LOOK_S = 10, 0.003
_RECENT = 200  # collectives told, enough to compare what ranks posted at one place
_TORCH = os.path.dirname(torch.__file__) + os.sep
_WAITING_FILES = tuple(
    map(_TORCH.__add__, ("distributed/", "nn/parallel/", "autograd/graph.py", "_ops.py", "_library/"))
) + (collective_log.__file__,)

# frames that name who called a collective: part of the file's path, function ("" for any), words
_CALLERS = (
    ("nn/parallel/distributed.py", "_sync_buffers", "DDP's buffers"),
    ("nn/parallel/distributed.py", "_pre_forward", "DDP's forward"),
    ("nn/parallel/distributed.py", "__init__", "DDP's constructor"),
    ("distributed/tensor/_api.py", "full_tensor", "full_tensor()"),
    ("distributed/checkpoint/", "", "a distributed checkpoint"),
    ("distributed/fsdp/", "", "FSDP"),
    ("distributed/pipelining/", "", "a pipeline"),
    ("distributed/tensor/", "", "DTensor"),
    ("distributed/optim/", "", "a sharded optimizer"),
)
_OWN_NAMES = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list", "send_object_list",
              "recv_object_list")  # fmt: skip  # of torch, made of collectives

# threads that post nothing: where their innermost frame is
_IDLE = (
    ("tqdm/_monitor.py", ""), ("multiprocessing/queues.py", "_feed"), ("_utils/pin_memory.py", ""),
    ("concurrent/futures/thread.py", "_worker"), ("multiprocessing/pool.py", "_handle"),
    ("multiprocessing/pool.py", "_wait_for_updates"),
)  # fmt: skip


class RankPosts:
    """The posts of one rank. `log` and `recorder` know what it called."""

    def __init__(self, rank: int, log: CollectiveLog, recorder: FlightRecorder) -> None:
        self._rank, self._log, self._recorder = rank, log, recorder
        self._limits_s: dict[str, float] = {}  # by group: torch's own time limit

    def of(self, rows: Rows, fabric: RankMessages | None, at_work: bool, limit_s: float) -> Posts:
        """Return this rank's posts. `rows` is its thread's stack; `at_work` is False once its function or order has ended."""
        if _others_may_post():
            return Posts("goes on")
        calls, where = (), ""
        if at_work:
            in_fabric = fabric is not None and fabric.wait is not None
            calls, where = self._waits_for(rows, min(limit_s, _LONGEST_S))
            if not _asleep() or not (calls or in_fabric):
                return Posts("goes on")
            if in_fabric:
                calls = ()

        posted, recent, groups = {}, {}, self._log.known_groups()
        held, born_ns = self._recorder.entries(), self._log.born_ns
        if held and held[0].record > 0 and held[0].created_ns >= born_ns:
            posted = dict.fromkeys(groups, -1)  # earlier entries are lost: the last of a group may be among them
        entries = [entry for entry in held if entry.created_ns >= born_ns]
        for entry in entries:
            posted[self._log.key(entry.group)] = entry.number
        for entry in entries[-_RECENT:]:
            recent[f"{self._log.key(entry.group)} {entry.number}"] = f"{entry.op}|{entry.size}"
        for name, times in self._log.meetings.items():
            posted[name] = times

        log = self._log
        return Posts(
            "waits" if at_work else "ended", calls, where, groups, posted, recent, dict(log.sent), dict(log.asked_for),
            dict(log.taken), self._unwaited(), fabric, time.process_time() - time.thread_time(),
        )  # fmt: skip

    def may_wait(self, rows: Rows) -> bool:
        return bool(rows) and _in_torch(rows)

    def label(self, rows: Rows) -> str:
        """Return what this rank waits for in torch's own C++ code, such as "all_reduce of DDP's backward"; "" if it does not."""
        if not rows or not _in_torch(rows) or not _asleep():
            return ""
        pending = self._pending()
        return self._where(rows, pending[0].op) if pending else ""

    def _waits_for(self, rows: Rows, limit_s: float) -> tuple[tuple[TorchCall, ...], str]:
        """Return the posted calls for one of which this rank's thread waits, and their name; () where that is not certain."""
        if not rows or not _in_torch(rows):
            return (), ""

        awaited = self._log.awaited
        if isinstance(awaited, PeerCall):
            call = self._message(awaited)
            way = "to" if call.kind == "send" else "from"
            whom = "anyone" if call.peer is None else f"rank {call.peer}"
            return ((call,) if self._limit_s(call.group) >= limit_s else ()), f"{call.op} {way} {whom}"
        if awaited in collective_log.RENDEZVOUS:
            everyone = tuple(range(int(os.environ["WORLD_SIZE"])))
            call = TorchCall("meeting", awaited, awaited, everyone, self._log.meetings[awaited])
            return ((call,) if self._log.meets_all else ()), awaited
        if awaited is not None and not awaited.startswith("wait()"):
            return (), ""  # a store, or a wait with a time limit of the caller's

        pending = self._pending()
        if awaited is None and self._log.waits_in(0):  # a call that waits: the last that was posted
            pending = pending[-1:]
        if not pending or any(entry.timeout_s < limit_s for entry in pending):
            return (), ""
        groups = self._log.known_groups()
        calls: list[TorchCall] = []
        for entry in pending:
            key = self._log.key(entry.group)
            if key not in groups:
                return (), ""
            calls.append(TorchCall("collective", entry.op, key, groups[key], entry.number, entry.size))
        return tuple(calls), self._where(rows, self._log.waits_in(0) or pending[0].op)

    def _pending(self) -> list[Entry]:
        born_ns = self._log.born_ns
        return [entry for entry in self._recorder.entries(active=True) if entry.created_ns >= born_ns and not entry.over]

    def _unwaited(self) -> dict[str, int]:
        """Return this rank's posts by channel: sends for whose handle nobody has waited."""
        counts: Counter[str] = Counter()
        for call in list(self._log.messages):
            if call.kind == "send" and call.end_s is None:
                counts[channel(call.group, self._rank, call.peer, call.tag)] += 1
        return dict(counts)

    def _message(self, call: PeerCall) -> TorchCall:
        src, dst = (self._rank, call.peer) if call.kind == "send" else (call.peer, self._rank)
        return TorchCall(
            call.kind, call.kind, call.group, self._log.groups[call.group], call.number, peer=call.peer,
            channel=channel(call.group, src, dst, call.tag), any_channel=channel(call.group, None, dst, call.tag),
        )  # fmt: skip

    def _limit_s(self, key: str) -> float:
        """Return the time limit of a group that torch posts to; 0 where it is unknown."""
        if key not in self._limits_s:
            for group in distributed_c10d._world.pg_names:
                if self._log.key(group.group_name) == key:
                    limit = group._get_backend(torch.device("cpu")).options._timeout
                    self._limits_s[key] = limit.total_seconds()
        return self._limits_s.get(key, 0.0)

    def _where(self, rows: Rows, op: str) -> str:
        """Return a posted operation's name for people: "all_reduce of DDP's backward (the 4th backward pass)"."""
        file, _, function = rows[-1]
        if function == "_engine_run_backward":
            return f"{op} of DDP's backward (backward pass {self._log.backwards})"
        for file, _, function in reversed(rows):
            if function in _OWN_NAMES and file.startswith(_TORCH):
                return function
        for part, name, words in _CALLERS:
            if any(part in file and name in ("", function) for file, _, function in rows):
                return f"{op} of {words}"
        return op


def _in_torch(rows: Rows) -> bool:
    """Tell whether the innermost frame is one of torch's that may wait for other ranks."""
    file, _, function = rows[-1]
    if file.endswith("autograd/graph.py"):
        return function == "_engine_run_backward"
    if file.startswith((_TORCH + "_ops.py", _TORCH + "_library")):
        return any(name.startswith(_TORCH + "distributed") for name, _, _ in rows[-6:])
    return file.startswith(_WAITING_FILES)


def _others_may_post() -> bool:
    """Tell whether a thread beside the rank's own and this one may still post something."""
    known = {threading.main_thread().ident, threading.get_ident()}
    with collected_later():
        for thread, frame in sys._current_frames().items():
            if thread not in known and not _idle(frame):
                return True
    rpc = sys.modules.get("torch.distributed.rpc")
    return rpc is not None and rpc._is_current_rpc_agent_set()


def _idle(frame: FrameType | None) -> bool:
    """Tell whether a thread at this frame waits to be given work, in code that posts nothing."""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if any(file.endswith(part) and name.startswith(start) for part, start in _IDLE):
            return True
        if not file.endswith(("threading.py", "queue.py", "queues.py", "selectors.py", "connection.py")):
            return False
        frame = frame.f_back
    return False


def _asleep() -> bool:
    """Tell whether, so that none posts, at some moment every thread but this one sleeps; True where the system does not say.

    A thread at work stays at work for all looks, while gloo's loops wake for a moment a hundred times a second.
    """
    for _ in range(_SLEEP_LOOKS):
        try:
            if not _busy_threads():
                return True
        except OSError:  # no such files, or a thread ended meanwhile
            if not os.path.isdir("/proc/self/task"):
                return True
        time.sleep(_SLEEP_LOOK_S)
    return False


def _busy_threads() -> list[str]:
    own, busy = str(threading.get_native_id()), []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] in "RD" and task != own:
                busy.append(task)
    return busy


