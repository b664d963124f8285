"""`world = open_ranks(4)`: four ranks that stay until they are closed, and what can be asked of them.

What is done on them is executed as a launch is, and is a `Run`: recorded, limited in time, explained where it goes wrong.
After an error the ranks that are left keep their state; their groups are made anew. Left out: the magics (`magics.py`), what
goes along from a notebook (`definitions.py`), and how a cell's output looks (`cell_view.py`).
"""

from __future__ import annotations

import itertools
import linecache
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import cloudpickle

from worldsize import errors, failures
from worldsize.engines.current import current_engine
from worldsize.engines.job import SMALL_BYTES, Close, Device, Job, NewGroups, Use
from worldsize.engines.ranks.cell_work import NOBODY, LookBack, Push, RunCell, Value
from worldsize.engines.ranks.tensor_rows import TensorPart, TensorRow, TensorRows
from worldsize.failures import Outcome
from worldsize.launch.api import check_arguments_of_ranks
from worldsize.launch.execute import callers_state, cell_sources, close_order, execute_order
from worldsize.launch.run import STUDENTS_LAUNCHES, KernelLaunches, Run
from worldsize.links import Link
from worldsize.ranks.definitions import Along
from worldsize.ranks.tensor_table import TensorTable, rows_of

IDLE_MIN = 60.0
MOST_S = 1e6
CLOSED = "they were closed"
CELLS = KernelLaunches(partial_lines=True)
_QUIET = KernelLaunches()
_last: list[OpenRanks] = []  # at most one
_numbers = itertools.count(1)
_texts = itertools.count(1)


class OpenRanks:
    """Ranks that stay. `world["x"]` is what each rank has under this name, `world.run(text)` runs a text on them all.

    `world_size` is how many they are, `setup` says in a line what they run on.
    """

    def __init__(self, world_size: int, link: Link | None, timeout_s: float, device: Device, seed: int | None) -> None:
        self.world_size = world_size
        self.link = link
        self.timeout_s = timeout_s
        self.setup = ""
        self._device: Device = device
        self._seed = seed
        self._engine = current_engine("torch")
        self._sent: set[str] = set()  # the cells' files whose text the ranks have
        self._ended: dict[int, str] = {}  # the ranks that have ended, and how
        self._new_groups: NewGroups = ""
        self._why_closed = ""
        self._at_work = False
        self._idle: threading.Timer | None = None
        self._idle_from_s = self._idle_due_s = 0.0
        self._one_at_a_time = threading.Lock()  # what one order does to the ranks decides how the next one is given
        self._open()
        _last[:] = [self]

    def _open(self) -> None:
        self._name = f"{os.getpid()}-{next(_numbers)}"
        job = Job(
            world_size=self.world_size, timeout_s=self.timeout_s, device=self._device, world=self._name,
            wants_late_imports=True, **callers_state(self._seed),
        )  # fmt: skip
        self._sent = {file for file, _ in job.sources}
        self._ended, self._new_groups, self._why_closed = {}, "", ""
        run = execute_order(self._engine, b"", job, _QUIET, lambda job: job)
        self._keeper = self._engine.keeper()
        self.setup, self._seed_used = run.setup, job.seed
        self._wait_idle()

    # ---- what is done on them --------------------------------------------------------------------

    def run(
        self, text: str, ranks: Sequence[int] | None = None, *, timeout_s: float | None = None, link: Link | None = None,
        along: Along | None = None, file: str = "",
    ) -> Run:  # fmt: skip
        """Run Python on `ranks`, on all of them without; the value of its last expression is shown. Returns the `Run`.

        `timeout_s` and `link` are this text's alone. `along` has what goes along from a notebook, `file` is the name of the
        text in tracebacks, "" for one of its own. Raises ValueError for a rank that is not there, RankFailed, Deadlock,
        RunTimedOut, Interrupted and EngineLost, as `launch` does.
        """
        along = along or Along()
        if not file:
            file = f"<text {next(_texts)}>"
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # for what names its lines
        work = RunCell(text, file, along.definitions, along.in_notebook, answers=CELLS.ask is not None)
        before = CELLS.latest
        try:
            return self._do("run", work, ranks, CELLS, timeout_s, link)
        finally:
            if CELLS.latest is not before:
                STUDENTS_LAUNCHES.latest = CELLS.latest

    def debug(self, rank: int | None = None) -> None:
        """Open the debugger where the last text raised: on `rank`, or on the rank that failed first.

        Raises ValueError where nobody can answer it, or where no rank raised.
        """
        if CELLS.ask is None:
            raise ValueError(NOBODY.format("debug"))
        failed = CELLS.latest.outcome.failures if CELLS.latest is not None and CELLS.latest.outcome is not None else ()
        raised = [failure for failure in failed if failure.kind == "raised"]
        if rank is None and not raised:
            raise ValueError("debug: expected ranks of which one has raised in the last text, got none")
        chosen = failures.first_failure(raised).rank if rank is None else rank
        self._do("debug", LookBack(), [chosen], KernelLaunches(ask=CELLS.ask), timeout_s=MOST_S)

    def push(self, **values: Any) -> None:
        """Bind values in every rank: `world.push(x=x)`. Each rank gets a copy of its own.

        Raises ValueError for a value that cannot travel.
        """
        if not values:
            raise ValueError("push: expected values by name, got none. Write for example world.push(x=x).")
        for name, value in values.items():
            _check_travels(name, value)
        self._do("push", Push(values), self._left(), _QUIET)

    def __getitem__(self, expression: str) -> list[Any]:
        """Return by rank what every rank has under a name, or as the value of an expression such as "model.weight.norm()".

        None for a rank that has ended. Raises RankFailed where a rank has no such value.
        """
        if not isinstance(expression, str):
            raise TypeError(f'world[…]: expected the name of a value, such as world["x"], got {expression!r}')
        compile(expression, "<expression>", "eval")
        return self._do("world[…]", Value(expression), self._left(), _QUIET).results

    def table(self, expression: str) -> TensorTable:
        """Return the tensors of an expression's value on every rank: shape, dtype, device, norm, and who has the same bytes.

        The value is a tensor, a module, an optimizer, or lists and dicts of them. Raises RankFailed where a rank has none.
        """
        return self._table("table", expression)

    def differ(self, expression: str) -> TensorTable:
        """Return the tensors of an expression's value in which ranks differ, and by how much the first one does at most.

        Raises RankFailed where a rank has no tensor there.
        """
        found = self._table("differ", expression)
        row = found.first_difference
        if row is None:
            return replace(found, only_difference=True)
        difference = None
        if len({(each.shape if each else None) for each in row.by_rank}) == 1:
            parts = self._do("differ", TensorPart(expression, row.name), self._left(), _QUIET).results
            difference = _apart([part for part in parts if part is not None])
        return replace(found, only_difference=True, difference=difference)

    def _table(self, what: str, expression: str) -> TensorTable:
        ranks = self._left()
        results = self._do(what, TensorRows(expression), ranks, _QUIET).results
        rows = rows_of({rank: [TensorRow(*row) for row in results[rank][0]] for rank in ranks})
        left_out = max(0, *(results[rank][1] for rank in ranks))
        return TensorTable(expression, tuple(ranks), tuple(rows), left_out)

    def restart(self) -> None:
        """End the ranks and open as many new ones, which have nothing of what the earlier ones had."""
        self.close()
        self._open()

    def close(self) -> None:
        """End the ranks, with all that they have."""
        self._end(CLOSED)

    def __enter__(self) -> OpenRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.world_size

    def __repr__(self) -> str:
        if self.why_closed:
            return f"OpenRanks({self.world_size} ranks, not open: {self.why_closed})"
        gone = f", {failures.names(sorted(self._ended))} ended" if self._ended else ""
        return f"OpenRanks({self.setup}{gone})"

    @property
    def is_open(self) -> bool:
        """Whether the ranks are there."""
        return not self.why_closed

    @property
    def why_closed(self) -> str:
        """Why the ranks are not there; "" where they are."""
        if not self._why_closed and self._engine.keeper() is not self._keeper:
            return "they ended with the process that started them"
        return self._why_closed

    # ---- how -------------------------------------------------------------------------------------

    def _do(
        self, what: str, work: Any, ranks: Sequence[int] | None, launches: KernelLaunches, timeout_s: float | None = None,
        link: Link | None = None,
    ) -> Run:  # fmt: skip
        with self._one_at_a_time:
            chosen = self._chosen(what, ranks)
            limit_s = timeout_s if timeout_s is not None else self.timeout_s
            check_arguments_of_ranks(what, limit_s, link)
            new_sources = tuple((file, text) for file, text in cell_sources() if file not in self._sent)
            job = Job(
                world_size=self.world_size, env={}, sys_path=(), cwd="", seed=self._seed_used, world=self._name,
                timeout_s=limit_s, link=link or self.link, sources=new_sources,
            )  # fmt: skip
            new_groups: NewGroups = self._new_groups if len(chosen) == self.world_size else ""

            packed = cloudpickle.dumps(work)
            along = packed if len(packed) <= SMALL_BYTES else b""

            self._at_work = True
            try:
                run = execute_order(
                    self._engine, b"" if along else packed, job, launches,
                    lambda job: Use(job, tuple(chosen), new_groups, along), ended=self._heard,
                )  # fmt: skip
            finally:
                self._at_work = False
                self._wait_idle()
            self._sent |= {file for file, _ in new_sources}
            if new_groups:
                self._new_groups = ""
            return run

    def _heard(self, run: Run, outcome: Outcome) -> None:
        """Note what has become of the ranks, and say what follows from it."""
        for failure in outcome.failures:
            if failure.kind != "raised":
                self._ended[failure.rank] = failures.leaving(failure)
        self._ended.update(dict.fromkeys(outcome.killed, "killed, since it did not come free"))
        if outcome.status == "done":
            return
        if outcome.freed:
            self._new_groups = "all"
        elif not self._new_groups:
            self._new_groups = "fabric"  # a message may be on its way that nobody takes any more
        if self._ended:
            run.notes.append(
                f"{self._endings()}. The others keep what they have: %%rank reads it, world.restart() opens new ranks."
            )
        elif outcome.freed:
            run.notes.append(
                "the ranks keep what they have. Their groups are made anew before the next cell: what holds an earlier "
                "one, as a model in DDP or FSDP does, has to be wrapped again."
            )

    def _endings(self) -> str:
        return ", ".join(f"rank {rank} has ended ({how})" for rank, how in sorted(self._ended.items()))

    def _left(self) -> list[int]:
        return [rank for rank in range(self.world_size) if rank not in self._ended]

    def _chosen(self, what: str, ranks: Sequence[int] | None) -> list[int]:
        if why := self.why_closed:
            raise ValueError(
                f"{what}: expected ranks that are open, got some that are not: {why}. world.restart() opens new ones."
            )
        chosen = list(range(self.world_size)) if ranks is None else sorted(set(ranks))
        for rank in chosen:
            if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < self.world_size:
                raise ValueError(f"{what}: expected ranks from 0 to {self.world_size - 1}, got {rank!r}")
        gone = [rank for rank in chosen if rank in self._ended]
        if gone or not chosen:
            raise ValueError(
                f"{what}: {self._endings()}. Expected ranks that are there: name them ({_few(self._left())}), or open new "
                f"ones with world.restart()."
            )
        return chosen

    def _end(self, why: str) -> None:
        self._stop_waiting()
        if not self.why_closed:
            self._why_closed = why
            with suppress(errors.EngineLost):
                close_order(self._engine, Close(self._name))
        self._why_closed = self._why_closed or why

    # ---- an hour without work --------------------------------------------------------------------

    def _wait_idle(self) -> None:
        """From now on they have nothing to do. One timer serves many orders, since to start one takes as long as a cell: it
        looks how long that has been when it is due."""
        self._idle_from_s = time.monotonic()
        due_s = self._idle_from_s + IDLE_MIN * 60
        if self._idle is None or due_s < self._idle_due_s:
            self._look_at(due_s)

    def _look_at(self, due_s: float) -> None:
        self._stop_waiting()
        self._idle_due_s = due_s
        self._idle = threading.Timer(due_s - time.monotonic(), self._end_idle)
        self._idle.daemon = True
        self._idle.start()

    def _end_idle(self) -> None:
        if self._why_closed:
            return
        now_s = time.monotonic()
        due_s = (now_s if self._at_work else self._idle_from_s) + IDLE_MIN * 60
        if now_s < due_s:
            self._look_at(due_s)
        else:
            self._end(f"they had nothing to do for {IDLE_MIN:g} minutes")

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def open_ranks(
    world_size: int = 4,
    *,
    link: Link | None = None,
    timeout_s: float = 60.0,
    device: Device = "auto",
    seed: int | None = None,
) -> OpenRanks:
    """Open ranks that stay: fresh processes that keep what runs on them, until `close()` or this process's end.

    Each rank has `rank`, `world_size`, `fabric`, `dist` with a default group, `torch` and `device`. `link` shapes the
    fabric; `timeout_s` limits each text that runs on them. After 60 minutes without work they end. Raises ValueError for a
    wrong argument, EngineLost, Interrupted.
    """
    check_arguments_of_ranks("open_ranks", timeout_s, link, world_size, device, seed)
    return OpenRanks(world_size, link, timeout_s, device, seed)


def _apart(tensors: list[Any]) -> float:
    """How far any two of these tensors of one shape are apart at most, in any element."""
    import torch

    wide = [tensor.to(torch.complex128 if tensor.is_complex() else torch.float64) for tensor in tensors]
    return max(((one - wide[0]).abs().max().item() for one in wide if one.numel()), default=0.0)


def opened_last() -> OpenRanks | None:
    """Return the ranks that were opened last, whether they are still open or not; None where none were."""
    return _last[0] if _last else None


def _few(ranks: list[int]) -> str:
    return failures.names(ranks) if ranks else "none is left"


def _check_travels(name: str, value: Any) -> None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else ""
        raise ValueError(
            f"push: `{name}` (a {type(value).__name__}) cannot travel to the ranks, which are other processes: expected "
            f"something that can be pickled, got {type(error).__name__}: {said}. Make it in a cell of theirs, or push the plain "
            f"data it is made from."
        ) from None
