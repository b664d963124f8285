"""The suite's budget: CPU seconds by room, in units of a loop that runs in the same minute, and a run that exceeds it fails.

A second of CPU is worth more or less by machine and by what else runs there, so each test's seconds are divided by those of a
fixed loop of Python that its worker ran at most a minute before. `tests/budgets.toml` has each room's budget; a room that uses
more than a quarter more fails a whole run. Left out: how the seconds of a process tree are counted (`cpu_seconds`).
"""

import os
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from time import monotonic, thread_time  # tests replace the module's clocks while this measures
from typing import Any

import pytest

from tests.support.cpu_seconds import TreeCpu

BUDGETS = Path(__file__).resolve().parents[1] / "budgets.toml"
LOOP_S = 0.010  # the loop's, on a fast core of 2026: the unit of the budgets
TOO_MUCH = 1.25
_AGAIN_S = 60.0
_SHORT_S = 30.0  # a run of one room that is over before a table would help


def loop_s() -> float:
    """Return the CPU seconds of the fixed loop, the least of three: other work on the core only adds to them."""
    return min(_one_loop_s() for _ in range(3))


def _one_loop_s() -> float:
    before_s = thread_time()
    counts: dict[int, float] = {}
    for k in range(130_000):
        counts[k % 997] = counts.get(k % 997, 0.0) + k * 0.5
    return thread_time() - before_s


def room_of(nodeid: str) -> str:
    """Return the room of a test: its folder below `tests`, or `tests` itself."""
    parts = nodeid.partition("::")[0].split("/")
    return "/".join(parts[:-1][:2]) or "."


def exceeded(used: dict[str, float], budgets: dict[str, float]) -> dict[str, str]:
    """Return {room: sentence} for each room that used over a quarter more than its budget, or has none."""
    found = {}
    for room, seconds in used.items():
        if room not in budgets:
            found[room] = f"{room}: expected a budget in {BUDGETS.name}, got none, and {seconds:.1f} calibrated CPU seconds"
        elif seconds > TOO_MUCH * budgets[room]:
            found[room] = (
                f"{room}: expected at most {budgets[room]:g} calibrated CPU seconds and a quarter more, got {seconds:.1f}. "
                f"Do less work there, or say in {BUDGETS.name} why the room needs more"
            )
    return found


class CpuBudget:
    """A plugin of pytest: it measures in every worker, adds up in the controlling process, and judges a whole run there."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._worker = hasattr(config, "workerinput")
        self._alone = not self._worker and not config.getoption("numprocesses", None)
        self._cpu: TreeCpu | None = None
        self._before_s = 0.0
        self._loop_s, self._looped_s = LOOP_S, -_AGAIN_S
        self._seconds: dict[str, float] = defaultdict(float)  # of workers, by room
        self._used: dict[str, float] = defaultdict(float)  # calibrated CPU seconds, by room
        self._by_test: dict[str, float] = defaultdict(float)
        self._loops: list[float] = []
        self._over: dict[str, str] = {}

    # ---- in a process that runs tests -----------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        if self._worker or self._alone:
            worker = os.environ.get("PYTEST_XDIST_WORKER")
            self._cpu = TreeCpu(mark=f"PYTEST_XDIST_WORKER={worker}" if worker else "")

    def pytest_collection_finish(self) -> None:
        if self._cpu is not None:
            self._before_s = self._cpu.seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        if self._cpu is not None:
            now_s = monotonic()
            if now_s - self._looped_s > _AGAIN_S:
                self._loop_s, self._looped_s = loop_s(), now_s
            used_s = self._cpu.seconds()
            report.cpu_s = max(0.0, used_s - self._before_s)
            report.loop_s = self._loop_s
            self._before_s = used_s
        return report

    # ---- in the process that reports ------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        room = room_of(report.nodeid)
        self._seconds[room] += report.duration
        self._by_test[report.nodeid] += 0.0
        if hasattr(report, "cpu_s"):
            calibrated_s = report.cpu_s * LOOP_S / report.loop_s
            self._used[room] += calibrated_s
            self._by_test[report.nodeid] += calibrated_s
            self._loops.append(report.loop_s)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._cpu is not None:
            self._cpu.close()
        if self._worker or not BUDGETS.is_file():
            return
        budgets = tomllib.loads(BUDGETS.read_text())["rooms"]
        if budgets.keys() <= self._used.keys():  # a part of the suite pays alone for what rooms share
            self._over = exceeded(self._used, budgets)
        if self._over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how many items of each room ran, their workers' seconds, and their CPU seconds beside the budget."""
        write = terminalreporter.write_line
        shown = self._config.getoption("cpu")
        for test in sorted(self._by_test, key=self._by_test.__getitem__, reverse=True)[:shown]:
            write(f"{self._by_test[test]:7.2f} calibrated CPU seconds   {test}")
        for sentence in self._over.values():
            write(f"OVER BUDGET  {sentence}", red=True)
        if len(self._seconds) < 2 and sum(self._seconds.values()) < _SHORT_S:
            return
        budgets = tomllib.loads(BUDGETS.read_text())["rooms"] if BUDGETS.is_file() else {}
        items = Counter(map(room_of, self._by_test))
        terminalreporter.section("by room")
        write("worker seconds   CPU   budget   items   (CPU: calibrated seconds)")
        for room in sorted(self._seconds, key=self._used.__getitem__, reverse=True):
            budget = f"{budgets[room]:g}" if room in budgets else "–"
            write(f"{self._seconds[room]:12.1f} {self._used[room]:7.1f} {budget:>7} {items[room]:7}   {room}")
        seconds, used, budget = (sum(each.values()) for each in (self._seconds, self._used, budgets))
        write(f"{seconds:12.1f} {used:7.1f} {budget:7g} {items.total():7}   in all")
        if self._loops:
            fastest, slowest = min(self._loops), max(self._loops)
            write(f"the loop took {1000 * fastest:.1f} to {1000 * slowest:.1f} ms; a calibrated second is {1 / LOOP_S:g} loops")
