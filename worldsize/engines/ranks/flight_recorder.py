"""torch's Flight Recorder: what this rank has posted in each process group, also from C++, as far as this torch tells.

The recorder keeps the last 2,000 collectives: group, number, operation, sizes, dtypes, and whether each is over; before PyTorch
2.13 perhaps only where TORCH_FR_BUFFER_SIZE is set, so each rank has it. With gloo it knows no end times, and no messages between
two ranks. `pytorch.collective_log` sees calls from Python, with their ends; this module adds what that cannot see: DDP's buckets,
DTensor, functional collectives.
"""

import json
import math
import pickle
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass, field

from worldsize.pytorch.abilities import dump_recorder, pickle_recorder
from worldsize.pytorch.collective_log import CollectiveLog
from worldsize.trace import Collective

RECORDS = 2000  # that it holds
_MANY = 1500  # unseen entries after which it is read
_BYTES = {  # 1 for all others
    "ComplexDouble": 16, "Double": 8, "Long": 8, "UInt64": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "UInt32": 4,
    "ComplexHalf": 4, "Half": 2, "BFloat16": 2, "Short": 2, "UInt16": 2,
}  # fmt: skip
_DTYPES = {"Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
           "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool"}  # fmt: skip
_OPERATIONS = {"_all_gather_base": "all_gather_single", "_reduce_scatter_base": "reduce_scatter_single"}


@dataclass(frozen=True)
class Entry:
    """A collective that this rank posted: the `number`-th of its group. `size` is "3 float32", "" without tensors."""

    record: int
    thread: int
    created_ns: int
    group: str
    number: int
    op: str
    size: str
    size_bytes: int
    over: bool
    timeout_s: float


@dataclass(eq=False)
class FlightRecorder:
    """This rank's reader of the recorder. `log` tells which calls Python saw."""

    log: CollectiveLog
    _rows: list[Collective] = field(default_factory=list)  # entries that Python did not see, up to the last reading
    _next: int = 0  # the record number of the next unread entry
    _enqueued: int = 0  # collectives of all groups at the last reading
    _calls: int = 0  # Python's at the last reading
    lost: int = 0  # entries that the ring buffer had dropped before they were read
    _since_ns: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)  # the channel's thread reads too

    def begin(self) -> None:
        """Forget what the recorder saw so far, when a new record begins."""
        self._rows, self.lost = [], 0
        self._next = -1  # from the entries since now
        self._since_ns = time.time_ns()

    def posted(self) -> int:
        """Return how many collectives and messages this process has posted, by torch's recorder, a cheap question."""
        if dump_recorder is None:
            return 0
        status = json.loads(dump_recorder(includeCollectives=False)).get("pg_status", {})
        return sum(max(0, int(group["last_enqueued_collective"])) for group in status.values())

    def missing(self) -> bool:
        """Return True if this process has used `torch.distributed` and its torch has no recorder."""
        return dump_recorder is None and bool(self.log.meetings)

    def keep_up(self, origin_s: float) -> None:
        """Read the recorder if its ring buffer could lose entries that only it has seen."""
        if abs(self.posted() - self._enqueued - (self.log.calls - self._calls)) >= _MANY:
            self._read(origin_s)

    def rows(self, origin_s: float) -> tuple[Collective, ...]:
        """Return the collectives that only torch's recorder saw, in seconds since `origin_s`. Their ends are known to the end of
        the backward pass that posted them; else they are shown without duration."""
        if dump_recorder is None or self.posted() - self._enqueued == self.log.calls - self._calls:
            return tuple(self._rows)
        running = self._read(origin_s)
        return (*self._rows, *running)

    def _read(self, origin_s: float) -> list[Collective]:
        """Take in all new entries of torch's recorder up to the first that is not over, and return the rest."""
        with self._lock:
            return self._read_alone(origin_s)

    def _read_alone(self, origin_s: float) -> list[Collective]:
        self._enqueued, self._calls = self.posted(), self.log.calls
        now_ns = time.time_ns()
        open_now = [(thread, start_ns, now_ns) for thread, start_ns in self.log.open_ns.copy().values()]
        calls = _by_thread([*self.log.calls_ns, *open_now])
        backwards = _by_thread(self.log.backwards_ns)
        wall_s = time.time() - time.monotonic() + origin_s  # the wall clock's time of `origin_s`

        running: list[Collective] = []
        unread_ns = now_ns
        for entry in self.entries(first=self._next):
            if entry.created_ns < self._since_ns:
                continue
            seen = _within(calls.get(entry.thread), entry.created_ns)
            if not running and (entry.over or seen):
                if self._next >= 0:
                    self.lost += entry.record - self._next
                self._next = entry.record + 1
            if seen:
                continue

            start_s = entry.created_ns * 1e-9 - wall_s
            passed = _within(backwards.get(entry.thread), entry.created_ns)
            if entry.over:
                end_s = passed * 1e-9 - wall_s if passed else start_s
                row = Collective(entry.op, entry.size_bytes, self.log.rank, start_s, end_s, blocking=False)
                (running if running else self._rows).append(row)
            else:
                unread_ns = min(unread_ns, entry.created_ns)
                end_s = time.monotonic() - origin_s
                running.append(
                    Collective(entry.op, entry.size_bytes, self.log.rank, start_s, end_s, ended=False, blocking=False)
                )
        for windows in (self.log.calls_ns, self.log.backwards_ns):
            del windows[: sum(end_ns < unread_ns for _, _, end_ns in windows)]
        return running

    def entries(self, active: bool = False, first: int = 0) -> list[Entry]:
        """Return what the recorder holds from record `first` on, in order; with `active` only what is not over."""
        if dump_recorder is None:
            return []
        if pickle_recorder is not None:
            held = pickle.loads(pickle_recorder(includeStackTraces=False, onlyActive=active))
        else:
            held = json.loads(dump_recorder(onlyActive=active))

        listed: list[Entry] = []
        for row in held.get("entries", ()):
            if row["record_id"] < first:
                continue
            name = row["profiling_name"].rpartition(":")[2]
            sizes, dtypes = row["input_sizes"], row["input_dtypes"]
            if not sizes:  # a scatter's receiver has an output alone
                sizes, dtypes = row["output_sizes"], row["output_dtypes"]
            listed.append(
                Entry(
                    record=row["record_id"],
                    thread=int(row.get("thread_id", 0)),
                    created_ns=row["time_created_ns"],
                    group=row["process_group"][0],
                    number=row["collective_seq_id"],
                    op=_OPERATIONS.get(name, name),
                    size=_in_words(sizes, dtypes),
                    size_bytes=sum(math.prod(s) * _BYTES.get(d, 1) for s, d in zip(sizes, dtypes, strict=False)),
                    over=row["retired"],
                    timeout_s=row["timeout_ms"] / 1000,
                )
            )
        return listed


def _in_words(sizes: list[list[int]], dtypes: list[str]) -> str:
    counts: dict[str, int] = {}
    for shape, dtype in zip(sizes, dtypes, strict=False):
        name = _DTYPES.get(dtype, dtype)
        counts[name] = counts.get(name, 0) + math.prod(shape)
    return ", ".join(f"{count} {name}" for name, count in counts.items())


Windows = tuple[list[int], list[int]]


def _by_thread(windows: list[tuple[int, int, int]]) -> dict[int, Windows]:
    """Return, from recorded entries, by thread: the starts and ends of its calls that lie in no other call, in order."""
    windows_of: dict[int, Windows] = {}
    for thread, start_ns, end_ns in sorted(windows):
        starts, ends = windows_of.setdefault(thread, ([], []))
        if not ends or start_ns > ends[-1]:
            starts.append(start_ns)
            ends.append(end_ns)
        else:
            ends[-1] = max(ends[-1], end_ns)
    return windows_of


def _within(windows: Windows | None, moment_ns: int) -> int:
    """Return the end of the recorded call that holds this moment; 0 where none does."""
    if windows is None:
        return 0
    starts, ends = windows
    place = bisect_right(starts, moment_ns) - 1
    return ends[place] if place >= 0 and moment_ns <= ends[place] else 0
