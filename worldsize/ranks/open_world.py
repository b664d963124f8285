"""`world = open_ranks(4)`: four ranks that stay until they are closed, and the calls on them.

Each call executes as a launch does and yields a `Run`: recorded, limited in time, its errors explained. After an error
the surviving ranks keep their state and get new process groups. `magics.py` has the notebook magics, `definitions.py`
chooses what a cell takes along.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from typing_extensions import override

from worldsize import errors, failures
from worldsize.engines.current_engine import current_engine
from worldsize.engines.idle_end import IdleEnd
from worldsize.engines.job import SMALL_BYTES, Close, Device, Job, NewGroups, Use
from worldsize.engines.ranks import pickles
from worldsize.engines.ranks.cell_work import NOBODY, LookBack, Push, RunCell, Value
from worldsize.engines.ranks.tensor_rows import TensorPart, TensorRow, TensorRows
from worldsize.failures import Outcome
from worldsize.launch.execute import callers_state, cell_sources, check_arguments, close_order, execute_order
from worldsize.launch.launch_function import check_run_arguments
from worldsize.launch.run import STUDENTS_LAUNCHES, KernelLaunches, Run
from worldsize.links import Link
from worldsize.ranks.definitions import Along
from worldsize.ranks.tensor_table import TensorTable, rows_of

IDLE_MIN = 60.0
MOST_S = 1e6  # while a person debugs, no time limit should end the order
CLOSED = "they were closed"
CELLS = KernelLaunches(partial_lines=True)
_QUIET = KernelLaunches()
_last: list[OpenRanks] = []  # at most one: a list, so that it is replaced in place
_numbers = itertools.count(1)
_texts = itertools.count(1)


class OpenRanks:
    """A world of open ranks, which stay. `world["x"]` returns each rank's `x`; `world.run(text)` runs Python on all ranks.

    `world_size` is the number of ranks; `setup` describes in one line what they run on.
    """

    def __init__(self, world_size: int, link: Link | None, timeout_s: float, device: Device, seed: int | None) -> None:
        self.world_size = world_size
        self.link = link
        self.timeout_s = timeout_s
        self.setup = ""

        self._device: Device = device
        self._seed = seed
        self._engine = current_engine("torch")
        self._sent: set[str] = set()  # files of the cells whose source the ranks have
        self._raw_env: dict[Any, Any] = {}
        self._around: dict[str, Any] = {}  # the notebook's environment, module path and directory that the ranks have

        self._ended: dict[int, str] = {}  # how each ended rank ended
        self._new_groups: NewGroups = ""
        self._why_closed = ""
        self._at_work = False
        self._idle = IdleEnd(lambda: self._end(f"they were idle for {IDLE_MIN:g} minutes"), lambda: self._at_work)
        self._one_at_a_time = threading.Lock()  # an order's outcome decides how the next is given

        self._open()
        _last[:] = [self]

    def _open(self) -> None:
        self._name = f"{os.getpid()}-{next(_numbers)}"
        job = Job(
            world_size=self.world_size, timeout_s=self.timeout_s, device=self._device, world=self._name,
            wants_late_imports=True, **callers_state(self._seed),
        )  # fmt: skip
        self._sent = {file for file, _ in job.sources}
        self._around = {"env": job.env, "sys_path": job.sys_path, "cwd": job.cwd}
        self._ended, self._new_groups, self._why_closed = {}, "", ""

        run = execute_order(self._engine, b"", job, _QUIET, lambda job: job)
        self._keeper = self._engine.keeper()
        self.setup, self._seed_used = run.setup, job.seed
        self._idle.used(IDLE_MIN * 60)

    # ---- calls on the ranks ----------------------------------------------------------------------

    def run(
        self, text: str, ranks: Sequence[int] | None = None, *, timeout_s: float | None = None, link: Link | None = None,
        along: Along | None = None, file: str = "",
    ) -> Run:  # fmt: skip
        """Run Python on open `ranks` (default: all), show the value of its last expression, and return the `Run`.

        `timeout_s` and `link` apply to this text only. `along` holds definitions taken from a notebook. `file` names the
        text in tracebacks; "" picks a new name. Raises ValueError for a rank that does not exist, and RankFailed,
        Deadlock, RunTimedOut, Interrupted and EngineLost, as `launch` does.
        """
        along = along or Along()
        if not file:
            file = f"<text {next(_texts)}>"
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # tracebacks read lines here

        work = RunCell(text, file, along.definitions, along.in_notebook, answers=CELLS.ask is not None)
        before = CELLS.latest
        try:
            return self._do("run", work, ranks, CELLS, timeout_s, link)
        finally:
            if CELLS.latest is not before:
                STUDENTS_LAUNCHES.latest = CELLS.latest

    def debug(self, rank: int | None = None) -> None:
        """Open the debugger where the last text raised: on `rank`, or on the rank that failed first.

        Raises ValueError if nobody can type at its prompt, or if no rank raised.
        """
        if CELLS.ask is None:
            raise ValueError(NOBODY.format("debug"))

        if rank is None:
            raised = []
            if CELLS.latest is not None and CELLS.latest.outcome is not None:
                raised = [failure for failure in CELLS.latest.outcome.failures if failure.kind == "raised"]
            if not raised:
                raise ValueError("debug: expected a rank that raised in the last run, got none")
            rank = failures.first_failure(raised).rank
        self._do("debug", LookBack(), [rank], KernelLaunches(ask=CELLS.ask), timeout_s=MOST_S)

    def push(self, **values: Any) -> None:
        """Bind values in every rank, a copy each: `world.push(x=x)`.

        Raises ValueError for a value that cannot be pickled.
        """
        if not values:
            raise ValueError("push: expected values by name, got none. Write for example world.push(x=x).")
        for name, value in values.items():
            try:
                pickles.dumps(value)
            except Exception as error:
                said = str(error).splitlines()[0] if str(error) else ""
                raise ValueError(
                    f"push: `{name}` (a {type(value).__name__}) cannot be sent to the ranks, which are separate processes: "
                    f"expected a value that can be pickled, got {type(error).__name__}: {said}. Create it in a cell on ranks, or "
                    f"push the plain data that it is made from."
                ) from None
        self._do("push", Push(values), self._left(), _QUIET)

    def __getitem__(self, expression: str) -> list[Any]:
        """Return, by rank of this world, the value of a name or of an expression such as "model.weight.norm()".

        A rank that has ended yields None. Raises RankFailed if the expression raises on a rank.
        """
        if not isinstance(expression, str):
            raise TypeError(f'world[…]: expected the name of a value, such as world["x"], got {expression!r}')
        compile(expression, "<expression>", "eval")
        return self._do("world[…]", Value(expression), self._left(), _QUIET).results

    def table(self, expression: str) -> TensorTable:
        """Return the tensors of an expression's value on every rank: shape, dtype, device, norm, and equality of bytes.

        The value is a tensor, a module, an optimizer, or lists and dicts of them. Raises RankFailed if a rank has none.
        """
        return self._table("table", expression)

    def differ(self, expression: str) -> TensorTable:
        """Return the tensors that differ between ranks, and the largest difference between any two ranks in the first of
        these.

        Raises RankFailed if a rank has no tensors there.
        """
        table = self._table("differ", expression)
        row = table.first_difference
        if row is None:
            return replace(table, only_difference=True)

        difference = None
        if len({(each.shape if each else None) for each in row.by_rank}) == 1:
            parts = self._do("differ", TensorPart(expression, row.name), self._left(), _QUIET).results
            difference = _apart(parts)
        return replace(table, only_difference=True, difference=difference)

    def _table(self, what: str, expression: str) -> TensorTable:
        ranks = self._left()
        results = self._do(what, TensorRows(expression), ranks, _QUIET).results

        rows_by_rank: dict[int, list[TensorRow]] = {}
        left_out = 0
        for rank in ranks:
            rows, more = results[rank]
            rows_by_rank[rank] = [TensorRow(*row) for row in rows]
            left_out = max(left_out, more)
        return TensorTable(expression, tuple(ranks), tuple(rows_of(rows_by_rank)), left_out)

    def restart(self) -> None:
        """End the ranks and open the same number of new ones, with empty state."""
        self.close()
        self._open()

    def close(self) -> None:
        """End the open ranks and discard their state."""
        self._end(CLOSED)

    def __enter__(self) -> OpenRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.world_size

    @override
    def __repr__(self) -> str:
        if self.why_closed:
            return f"OpenRanks({self.world_size} ranks, not open: {self.why_closed})"
        gone = f", {failures.names(sorted(self._ended))} ended" if self._ended else ""
        return f"OpenRanks({self.setup}{gone})"

    @property
    def is_open(self) -> bool:
        """True while the ranks are open."""
        return not self.why_closed

    @property
    def why_closed(self) -> str:
        """The reason why the ranks are closed; "" while they are open."""
        if not self._why_closed and self._engine.keeper() is not self._keeper:
            return "they ended with the process that started them"
        return self._why_closed

    # ---- giving an order -------------------------------------------------------------------------

    def _do(
        self, what: str, work: Any, ranks: Sequence[int] | None, launches: KernelLaunches, timeout_s: float | None = None,
        link: Link | None = None,
    ) -> Run:  # fmt: skip
        with self._one_at_a_time:
            chosen = self._chosen(what, ranks)
            limit_s = timeout_s if timeout_s is not None else self.timeout_s
            check_open_arguments(what, limit_s, link)

            new_sources = tuple((file, text) for file, text in cell_sources() if file not in self._sent)
            raw_env = dict(getattr(os.environ, "_data", os.environ))  # of bytes, without decoding: most cells change nothing
            env = dict(os.environ) if raw_env != self._raw_env else self._around["env"]
            around = {"env": env, "sys_path": tuple(sys.path), "cwd": os.getcwd()}
            job = Job(
                world_size=self.world_size, seed=self._seed_used, world=self._name, timeout_s=limit_s, link=link or self.link,
                sources=new_sources, **self._changed(around),
            )  # fmt: skip
            # every rank must take part in remaking groups
            new_groups: NewGroups = self._new_groups if len(chosen) == self.world_size else ""

            # a small payload travels with the order, which saves a file
            along, in_file = pickles.dumps(work), b""
            if len(along) > SMALL_BYTES:
                along, in_file = b"", along

            self._at_work = True
            try:
                run = execute_order(
                    self._engine, in_file, job, launches, lambda job: Use(job, tuple(chosen), new_groups, along),
                    ended=lambda run, outcome: self._heard(run, outcome, new_groups),
                )  # fmt: skip
            finally:
                self._at_work = False
                self._idle.used(IDLE_MIN * 60)

            self._sent |= {file for file, _ in new_sources}
            if len(chosen) == self.world_size:
                self._around, self._raw_env = around, raw_env
            return run

    def _changed(self, around: dict[str, Any]) -> dict[str, Any]:
        """Return what the open ranks lack of the notebook's surroundings, as fields of a `Job`."""
        before, now = self._around["env"], around["env"]
        is_same = now is before
        return {
            "env": {} if is_same else {name: value for name, value in now.items() if before.get(name) != value},
            "unset": () if is_same else tuple(name for name in before if name not in now),
            "sys_path": around["sys_path"] if around["sys_path"] != self._around["sys_path"] else (),
            "cwd": around["cwd"] if around["cwd"] != self._around["cwd"] else "",
        }

    def _heard(self, run: Run, outcome: Outcome, renewed: NewGroups) -> None:
        """Record which open ranks ended, decide which groups to remake, and note both on the run."""
        if renewed and outcome.groups:
            self._new_groups = ""
        for failure in outcome.failures:
            if failure.kind != "raised":
                self._ended[failure.rank] = failures.leaving(failure)
        self._ended.update(dict.fromkeys(outcome.killed, "killed, because it did not stop"))
        if "ended" in outcome.groups.values():  # as at the end of a script
            self._new_groups = "all"
        if outcome.status == "done":
            return

        used = set(outcome.groups.values()) != {"untouched"}
        if outcome.freed and used:
            self._new_groups = "all"
        elif used and not self._new_groups:
            self._new_groups = "fabric"  # a message may be left in the old group

        if self._ended:
            run.notes.append(
                f"{self._endings()}. The others keep their state: read it with %%rank, or open new ranks with world.restart()."
            )
        elif outcome.freed and not used:
            run.notes.append("the ranks keep their state and their process groups: none of them had communicated in this cell")
        elif outcome.freed:
            run.notes.append(
                "the ranks keep their state, and get new process groups before the next cell: make DDP and FSDP models anew "
                "(p.to_local() still has a shard)"
            )

    def _endings(self) -> str:
        return ", ".join(f"rank {rank} has ended ({how})" for rank, how in sorted(self._ended.items()))

    def _left(self) -> list[int]:
        return [rank for rank in range(self.world_size) if rank not in self._ended]

    def _chosen(self, what: str, ranks: Sequence[int] | None) -> list[int]:
        if why := self.why_closed:
            raise ValueError(f"{what}: expected open ranks, got closed ones: {why}. Open new ones with world.restart().")

        chosen = list(range(self.world_size)) if ranks is None else sorted(set(ranks))
        for rank in chosen:
            if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < self.world_size:
                raise ValueError(f"{what}: expected ranks from 0 to {self.world_size - 1}, got {rank!r}")

        if not chosen or not self._ended.keys().isdisjoint(chosen):
            left = failures.names(self._left()) if self._left() else "none is left"
            raise ValueError(
                f"{what}: {self._endings()}. Name the ranks that are left ({left}), or open new ones with world.restart()."
            )
        return chosen

    def _end(self, why: str) -> None:
        self._idle.stop()
        was_open = self.is_open
        if not self._why_closed:
            self._why_closed = why
        if was_open:
            with suppress(errors.EngineLost):
                close_order(self._engine, Close(self._name))


def open_ranks(
    world_size: int = 4,
    *,
    link: Link | None = None,
    timeout_s: float = 3600.0,
    device: Device = "auto",
    seed: int | None = None,
) -> OpenRanks:
    """Open ranks that stay: fresh processes that keep their state until `close()` or until this process ends.

    Each rank has `rank`, `world_size`, `fabric`, `dist` with a default group, `torch` and `device`. `link` shapes the
    fabric; `timeout_s` limits each text that runs on the ranks: a person ends it sooner by an interrupt. The ranks end after 60
    minutes without work. Raises ValueError for a wrong argument, EngineLost, Interrupted.
    """
    check_open_arguments("open_ranks", timeout_s, link, world_size, device, seed)
    return OpenRanks(world_size, link, timeout_s, device, seed)


def _apart(tensors: list[Any]) -> float:
    """Return the largest difference between any two tensors in any element; all have one shape, or are None."""
    import torch

    wide = []
    for tensor in tensors:
        if tensor is not None and tensor.numel():
            wide.append(tensor.to(torch.complex128 if tensor.is_complex() else torch.float64))
    pairs = itertools.combinations(wide, 2)
    return max(((one - other).abs().max().item() for one, other in pairs), default=0.0)


def opened_last() -> OpenRanks | None:
    """Return the world of ranks opened last, open or not; None if none were opened."""
    return _last[0] if _last else None


def check_open_arguments(
    what: str, timeout_s: Any = 1.0, link: Any = None, world_size: Any = 1, device: Any = "auto", seed: Any = None
) -> None:
    """Raise ValueError for an argument that no launch takes either; the message speaks of `what`, not of a launch."""
    try:
        check_arguments(callable, (), timeout_s, seed)
        check_run_arguments(world_size, link, device)
    except ValueError as error:
        said = str(error).removeprefix("launch: ").partition(" Write for example launch")[0]
        raise ValueError(f"{what}: {said}") from None
