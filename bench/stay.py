"""Ranks that stay against their peers: opening them, a cell, an all-reduce, an interrupt, a rank that raises, memory.

"from nothing" is a fresh kernel or process, until its first cell `x = 1` has run on all ranks, and "to an all-reduce" until
they have met in a group and added up; "again" is opening as many new ones in a kernel that had some. Cells at the first
number of ranks are measured in turn; more ranks of all at once find no room on a small machine, so there one comes after
the other. An interrupt and a raising rank count until the ranks do the next cell; what does not come back within `--limit`
seconds is reported as such. Memory is the PSS of all processes. The peers run in the Python that `--peers-python` names; one
that is not there, or fails, is reported with its reason.

    python bench/stay.py [--ranks 4 16 64] [--peers-python PATH] [--only worldsize ipyparallel] [--smoke]
"""

import argparse
import json
import os
import secrets
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil
import report
from peers.staying import ADD_UP, FIRST, RECEIVES, SLEEPS

OURS = "worldsize"
MAGIC = "worldsize, %%ranks"
PEERS = ("torchmonarch", "jupyter-distributed", "ipyparallel", "nbdistributed")
IN_KERNELS = (MAGIC, *PEERS[1:])
CHECKOUT = Path(__file__).resolve().parents[1]
CELLS = {"x = 1": FIRST, "all-reduce": ADD_UP}
_MARK = "WORLDSIZE_BENCH_MARK"
_WARM_UP = 3  # cells that do not count
_LAUNCH_STAYS_S = 6.0
_SETTLES_S = 1.0

Key = tuple[str, str, int]  # contestant, what, ranks


class Failed(Exception):
    """A contestant did not do what was asked."""


class Driver:
    """A process that drives one contestant (`peers/staying.py`). All that it starts bears its mark."""

    def __init__(self, name: str, python: str, home: str) -> None:
        self.name = name
        self._mark = secrets.token_hex(8)
        code = f"from peers.staying import serve; serve({name!r}, {time.monotonic()!r})"
        self._said = open(Path(home) / "stderr.txt", "ab")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            env={**_environment(name, python, home), _MARK: self._mark}, cwd=home, start_new_session=True,
        )  # fmt: skip
        try:
            self.answer(120.0)
        except Failed:
            self.close()
            raise

    def ask(self, what: str, patience_s: float = 120.0, **given: object) -> object:
        """Have one thing done. Raises Failed."""
        self.tell(what, **given)
        return self.answer(patience_s)

    def tell(self, what: str, **given: object) -> None:
        with suppress(OSError):  # its end is told by `answer`
            self._process.stdin.write(json.dumps({"do": what, **given}).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, patience_s: float) -> object:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(patience_s):
                raise Failed(f"no answer after {patience_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Failed("its process has ended")
        said = json.loads(line)
        if "error" in said:
            raise Failed(said["error"])
        return said["value"]

    def pss_bytes(self) -> int:
        """The memory of all its processes; those that drive a kernel, and stand for Jupyter, are left out."""
        found = 0
        for pid in self._family():
            if pid == self._process.pid and self.name in IN_KERNELS:
                continue
            with suppress(OSError):
                rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                found += sum(1024 * int(row.split()[1]) for row in rows if row.startswith("Pss:"))
        return found

    def _family(self) -> list[int]:
        marked = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self._mark:
                    marked.append(process.pid)
        return marked

    def close(self) -> None:
        """Let it leave in peace; then end all that bears its mark."""
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        for _ in range(3):  # some start others while they end
            for pid in self._family():
                with suppress(psutil.Error):
                    psutil.Process(pid).kill()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._said.close()


def _environment(name: str, python: str, home: str) -> dict[str, str]:
    """The same for all: gloo on loopback, one thread, Jupyter's files out of the user's home, its own Python first in the
    path, as one of them calls `python`; this package for ours alone."""
    here = Path(__file__).resolve().parent
    path = [str(here), *([str(CHECKOUT)] if name.startswith(OURS) else [])]
    loopback = next((each for _, each in socket.if_nameindex() if each in ("lo", "lo0")), None)
    gloo = {"GLOO_SOCKET_IFNAME": loopback} if loopback else {}
    return {
        **os.environ, "OMP_NUM_THREADS": "1", "PATH": os.pathsep.join([os.path.dirname(python), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(path), "IPYTHONDIR": f"{home}/ipython", "JUPYTER_RUNTIME_DIR": f"{home}/runtime",
        **gloo,
    }  # fmt: skip


class Bench:
    """The measurements so far: by contestant, what, and ranks; what went wrong is said once."""

    def __init__(self, options: argparse.Namespace, home: str) -> None:
        self.options, self.home = options, home
        self.names: list[str] = options.only
        self.values: dict[Key, list[float]] = defaultdict(list)
        self.failures: dict[Key, str] = {}
        self.absent: set[str] = set()

    def opened(self, name: str, ranks: int) -> Driver | None:
        """A contestant with ranks on which the first cell has run, and which have a group. None where that failed."""
        if name in self.absent:
            return None
        try:
            driver = Driver(name, sys.executable if name.startswith(OURS) else self.options.peers_python, self.home)
        except Failed as error:
            self.absent.add(name)
            self._failed((name, "start", ranks), error)
            return None
        limit_s = self.options.open_limit
        try:
            self.values[name, "from nothing", ranks].append(
                driver.ask("open", limit_s + 60, ranks=ranks, limit_s=limit_s)
            )
            met_s = time.monotonic()
            driver.ask("meet", limit_s + 60, limit_s=limit_s)
            driver.ask("cell", limit_s + 60, text=ADD_UP, limit_s=limit_s)
            opened_s = self.values[name, "from nothing", ranks][-1]
            self.values[name, "to an all-reduce", ranks].append(opened_s + time.monotonic() - met_s)
        except Failed as error:
            self._failed((name, "open", ranks), error)
            driver.close()
            return None
        return driver

    def ask(self, driver: Driver, key: Key, what: str, **given: object) -> bool:
        """Have one thing done, and note what it gave; whether it was done."""
        try:
            self.values[key].append(driver.ask(what, 4 * self.options.limit + 60, **given))
        except Failed as error:
            self._failed(key, error)
            return False
        return True

    def _failed(self, key: Key, error: Failed) -> None:
        self.failures.setdefault(key, str(error))
        print(f"  {key[0]}, {key[2]} ranks, {key[1]}: {error}", flush=True)

    def median(self, name: str, what: str, ranks: int) -> float | None:
        return report.median(self.values.get((name, what, ranks), []))

    def word(self, name: str, what: str, ranks: int, times: float = 1.0) -> float | str | None:
        """The median for a table, or that it failed."""
        if name in self.absent:
            return "absent"
        found = self.median(name, what, ranks)
        if found is not None:
            return found * times
        return "failed" if (name, what, ranks) in self.failures else None


def measure_first(bench: Bench, ranks: int) -> None:
    """All contestants at once: cells in turn, then what each does alone."""
    print(f"measuring {ranks} ranks", flush=True)
    drivers: dict[str, Driver] = {}
    try:
        for number in range(bench.options.cold_repeats):
            for name in bench.names:
                driver = bench.opened(name, ranks)
                if driver and number == bench.options.cold_repeats - 1:
                    drivers[name] = driver
                elif driver:
                    driver.close()
        _cells(bench, drivers, ranks)
        _memory(bench, drivers, ranks)
    finally:
        for driver in drivers.values():
            driver.close()
    for name in list(drivers):
        _alone(bench, name, ranks)


def measure_more(bench: Bench, ranks: int) -> None:
    """One contestant after the other."""
    print(f"measuring {ranks} ranks", flush=True)
    for name in bench.names:
        driver = bench.opened(name, ranks)
        if driver:
            try:
                _cells(bench, {name: driver}, ranks)
                _memory(bench, {name: driver}, ranks)
            finally:
                driver.close()


def _cells(bench: Bench, drivers: dict[str, Driver], ranks: int) -> None:
    limit_s = bench.options.limit
    gone: set[str] = set()
    for what, text in CELLS.items():
        for number in range(_WARM_UP + bench.options.repeats):
            for name in drivers.keys() - gone:
                if not bench.ask(drivers[name], (name, what, ranks), "cell", text=text, limit_s=limit_s):
                    gone.add(name)
                elif number < _WARM_UP:
                    bench.values[name, what, ranks].pop()


def _memory(bench: Bench, drivers: dict[str, Driver], ranks: int) -> None:
    for name, driver in drivers.items():
        time.sleep(_SETTLES_S)
        bench.values[name, "memory", ranks].append(driver.pss_bytes())
    if OURS not in drivers:
        return
    ours = drivers[OURS]
    bench.ask(ours, (OURS, "in a launch", ranks), "in_a_launch", ranks=ranks)
    ours.tell("launch_that_stays", ranks=ranks, seconds=_LAUNCH_STAYS_S)
    time.sleep(_LAUNCH_STAYS_S / 2)
    bench.values[OURS, "memory of a launch", ranks].append(ours.pss_bytes())
    with suppress(Failed):
        ours.answer(60.0)


def _alone(bench: Bench, name: str, ranks: int) -> None:
    """What may leave a contestant of no use: after each failure another one is opened."""
    opened: list[Driver] = []
    try:
        _what_may_break(bench, name, ranks, opened)
    finally:
        for driver in opened:
            driver.close()


def _what_may_break(bench: Bench, name: str, ranks: int, opened: list[Driver]) -> None:
    limit_s = bench.options.limit
    requests = {
        "again": ("again", {}), "interrupt a sleep": ("interrupted", {"text": SLEEPS}),
        "interrupt a recv": ("interrupted", {"text": RECEIVES}), "raise": ("raises", {}),
    }  # fmt: skip
    for what, (request, given) in requests.items():
        for _ in range(bench.options.again):
            if not opened and (another := bench.opened(name, ranks)):
                opened.append(another)
            if not opened:
                return
            driver = opened[0]
            patience_s = bench.options.open_limit if what == "again" else limit_s
            if not bench.ask(driver, (name, what, ranks), request, limit_s=patience_s, **given):
                opened.pop().close()
                break
        if what == "again" and opened:  # the new ranks have no group yet
            with suppress(Failed):
                opened[0].ask("meet", bench.options.open_limit + 60, limit_s=bench.options.open_limit)


def print_results(bench: Bench, all_ranks: list[int]) -> None:
    first = all_ranks[0]
    header = [
        f"{first} ranks, medians", "from nothing, s", "to an all-reduce, s", "again, s", "interrupt a sleep, s",
        "interrupt a recv, s", "raise, s",
    ]  # fmt: skip
    rows = []
    for name in bench.names:
        rows.append([
            name, bench.word(name, "from nothing", first), bench.word(name, "to an all-reduce", first),
            bench.word(name, "again", first),
            bench.word(name, "interrupt a sleep", first), bench.word(name, "interrupt a recv", first),
            bench.word(name, "raise", first),
        ])  # fmt: skip
    report.table("ranks that stay", header, rows)
    for what in CELLS:
        header = [f"{what}, median", *(f"{r} ranks, ms" for r in all_ranks), *(f"ratio, {r} ranks" for r in all_ranks)]
        rows = []
        for name in bench.names:
            medians = [bench.median(name, what, r) for r in all_ranks]
            own = [bench.median(OURS, what, r) for r in all_ranks]
            rows.append([name, *(bench.word(name, what, r, 1e3) for r in all_ranks), *map(report.quotient, medians, own)])
        report.table(f"a cell: {what}, and its ratio to ours", header, rows)
    header = ["memory, MB", *(f"{r} ranks" for r in all_ranks)]
    rows = [[name, *(bench.word(name, "memory", r, 1e-6) for r in all_ranks)] for name in bench.names]
    rows.append(["a launch of ours", *(bench.word(OURS, "memory of a launch", r, 1e-6) for r in all_ranks)])
    report.table("memory, PSS of all processes", header, rows)
    for (name, what, ranks), error in bench.failures.items():
        print(f"  {name}, {what}, {ranks} ranks: FAILED: {error}")


def print_targets(bench: Bench, all_ranks: list[int]) -> None:
    print()
    first = all_ranks[0]
    report.target(f"ours, opening {first} ranks in a warm engine, s", bench.median(OURS, "again", first), at_most=0.15)
    for ranks, limit_ms in ((4, 5.0), (16, 15.0), (64, 60.0)):
        if ranks in all_ranks:
            cell = bench.word(OURS, "x = 1", ranks, 1e3)
            report.target(f"ours, x = 1, {ranks} ranks, ms", cell if isinstance(cell, float) else None, at_most=limit_ms)
    cell, inside = bench.median(OURS, "all-reduce", first), bench.median(OURS, "in a launch", first)
    more = (cell - inside) * 1e3 if cell is not None and inside is not None else None
    report.target(f"ours, all-reduce cell less the same in a launch, {first} ranks, ms", more, at_most=5.0)
    for what in ("interrupt a sleep", "interrupt a recv"):
        report.target(f"ours, {what}, {first} ranks, s", bench.median(OURS, what, first), at_most=0.5)
    for ranks in all_ranks:
        ratio = report.quotient(bench.median(OURS, "memory", ranks), bench.median(OURS, "memory of a launch", ranks))
        report.target(f"ours, memory / a launch's, {ranks} ranks", ratio, at_most=1.0)


def draw(path: Path, bench: Bench, all_ranks: list[int], note: str) -> None:
    """One bar a contestant for each cell and number of ranks."""
    groups = [f"{what}, {ranks}" for what in CELLS for ranks in all_ranks]
    series = {}
    for name in bench.names:
        found = [bench.median(name, what, ranks) for what in CELLS for ranks in all_ranks]
        if any(found):
            series[name] = [each * 1e3 if each else None for each in found]
    if series:
        report.bars(path, f"a cell on ranks that stay\n{note}", groups, series, axis="milliseconds (median)", log=True)


def main() -> None:
    parser = report.options(__doc__, repeats=30)
    parser.set_defaults(ranks=[4, 16, 64])
    everyone = [OURS, MAGIC, *PEERS]
    parser.add_argument("--peers-python", default=sys.executable, metavar="PATH", help="the Python in which the peers are")
    parser.add_argument("--only", nargs="+", choices=everyone, default=everyone, help="these alone")
    parser.add_argument("--cold-repeats", type=int, default=2)
    parser.add_argument("--again", type=int, default=5, help="how often each opens new ranks, is interrupted, and raises")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds after which a cell counts as one that hangs")
    parser.add_argument("--open-limit", type=float, default=180.0, help="the same for opening ranks")
    options = parser.parse_args()
    if options.smoke:
        options.ranks, options.repeats, options.cold_repeats, options.again = [2], 2, 1, 1
        options.only = [OURS, PEERS[0]]
    note = f"{report.machine()}; medians of {options.repeats}"
    print(note)
    with tempfile.TemporaryDirectory(prefix="worldsize-bench-", ignore_cleanup_errors=True) as home:
        bench = Bench(options, home)
        for ranks in options.ranks:
            (measure_first if ranks == options.ranks[0] else measure_more)(bench, ranks)
            rows = [{"contestant": n, "what": w, "ranks": r, "values": v} for (n, w, r), v in bench.values.items()]
            wrong = [{"contestant": n, "what": w, "ranks": r, "why": why} for (n, w, r), why in bench.failures.items()]
            report.keep(options.out / "stay.json", {"conditions": note, "measured": rows, "failed": wrong})
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    print_results(bench, options.ranks)
    print_targets(bench, options.ranks)
    draw(options.out / "stay.png", bench, options.ranks, note)


if __name__ == "__main__":
    main()
