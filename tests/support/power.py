"""Measure a suite by planted faults: which of them do its tests find, by which test, in how many seconds?

    python -m tests.support.power choose OLD NEW faults.json          # two checkouts; the same faults for both
    python -m tests.support.power doors NEW faults.json --seed 57     # faults where rooms join, of one checkout
    python -m tests.support.power rooms OLD faults.json old.json      # each fault alone, against the tests of its room
    python -m tests.support.power rest OLD faults.json old.json       # those not found, all at once, against all tests
    python -m tests.support.power table faults.json old.json new.json

A checkout is a scratch clone with a `.venv` of its own; its sources are edited and put back. A test that fails with a fault
has found it if it fails once more with it and passes without it, so a test that fails by chance finds nothing. `rooms` goes
on where it was cut off. Left out: the faults themselves (`planted_faults`).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.support import door_faults
from tests.support.door_faults import DoorFault
from tests.support.planted_faults import ROOMS, Fault, choose, plant, restore

_CONFIRM_S = 400.0
_EACH_S = 900.0  # for a fault alone, against the tests that failed with all
_MOST_BY_CHANCE = 4  # tests that fail without the fault too, and are left out for it
_TYPES = ("tests/test_types.py",)
_RULES = "tests/test_architecture.py"  # ruff and names: they see an edit, not what it does

AnyFault = Fault | DoorFault

PLUGIN = """
import os

def _note(report):
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ["POWER_FAILED"], "a") as file:
            file.write(report.nodeid + "\\n")

pytest_runtest_logreport = pytest_collectreport = _note
"""


def run_tests(checkout: Path, targets: list[str], limit_s: float, *more: str) -> tuple[list[str], bool, float]:
    """(the tests that failed, whether all of the run was in time, seconds) of pytest in the checkout."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="power-") as folder:
        Path(folder, "power_plugin.py").write_text(PLUGIN)
        failed = Path(folder, "failed")
        env = {
            **os.environ, "PATH": f"{checkout / '.venv/bin'}:{os.environ['PATH']}", "PYTHONPATH": folder,
            "POWER_FAILED": str(failed), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        command = [".venv/bin/python", "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "power_plugin"]
        child = subprocess.Popen(
            [*command, f"--ignore={_RULES}", *more, *targets], cwd=checkout, env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        in_time = True
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            code, in_time = 0, False
        finally:
            with_children_gone(child)

        found = list(dict.fromkeys(failed.read_text().splitlines())) if failed.exists() else []
        if code not in (0, 1, 2, 5) or (code == 2 and not found):
            found = found or [f"pytest itself, exit status {code}"]
    return found, in_time, time.monotonic() - began_s


def with_children_gone(child: subprocess.Popen) -> None:
    """End what is left of the process group of `child`."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


@contextmanager
def planted(checkout: Path, faults: list[AnyFault]) -> Iterator[None]:
    """Inside, the checkout has these faults; afterwards its sources are as they were."""
    originals = {fault.path: (checkout / fault.path).read_text() for fault in faults}
    try:
        for fault in faults:
            plant(checkout, fault)
        yield
    finally:
        restore(checkout, originals)


def confirmed(checkout: Path, fault: AnyFault, test: str) -> bool:
    """Whether `test` fails with the fault once more, and passes without it."""
    if test.startswith("pytest itself"):
        return True
    with planted(checkout, [fault]):
        again = run_tests(checkout, [test], _CONFIRM_S)[0]
    return bool(again) and not run_tests(checkout, [test], _CONFIRM_S)[0]


def try_room(checkout: Path, fault: AnyFault, limit_s: float, workers: int) -> dict:
    """What the tests of the fault's room say of it: those first that name the module."""
    targets, by_chance, seconds = _nearest_first(checkout, fault), [], 0.0
    side_by_side = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"] if workers > 1 else ["-n", "0"]
    while len(by_chance) <= _MOST_BY_CHANCE:
        with planted(checkout, [fault]):
            left_out = [f"--deselect={test}" for test in by_chance]
            failed, in_time, taken_s = run_tests(checkout, targets, limit_s - seconds, "-x", *side_by_side, *left_out)
        seconds += taken_s
        for test in failed:
            if confirmed(checkout, fault, test):
                return {"found": True, "phase": "room", "test": test, "seconds": seconds, "by_chance": by_chance}
        by_chance += failed
        if not failed or not in_time or seconds >= limit_s:
            break
    return {"found": False, "phase": "room", "in_time": in_time, "seconds": seconds, "by_chance": by_chance}


def _nearest_first(checkout: Path, fault: AnyFault) -> list[str]:
    """The test files of the fault's room, those first that name its module or its function; the journeys are for `rest`."""
    files: list[Path] = []
    of_doors = _TYPES if isinstance(fault, DoorFault) else ()
    for target in (*ROOMS[fault.room][1], *of_doors):
        path = checkout / target
        files += sorted(path.rglob("test_*.py")) if path.is_dir() else [path] * path.exists()
    stem, function = Path(fault.path).stem, fault.name.split(".")[0].strip("_")

    def distance(file: Path) -> tuple[int, str]:
        text = file.read_text()
        first = str(file.relative_to(checkout)) in _TYPES  # the type checker sees each override and call in seconds
        return -(4 * first + 2 * (function in text) + (stem in text)), str(file)

    return [str(file.relative_to(checkout)) for file in sorted(dict.fromkeys(files), key=distance)]


def rest(checkout: Path, survivors: list[AnyFault], tests: list[str], limit_s: float, workers: int) -> dict[str, dict]:
    """{fault: what all tests say}, from one whole run with all of them planted; its failures are tried with each alone."""
    with planted(checkout, survivors):
        failed, in_time, taken_s = run_tests(checkout, tests, limit_s, "-n", str(workers), "--dist", "loadfile")
    print(f"{len(survivors)} faults at once: {len(failed)} tests failed in {taken_s:.0f} s", flush=True)
    without = set(run_tests(checkout, failed, limit_s, "-n", str(workers))[0]) if failed else set()
    failed = [test for test in failed if test not in without]

    found = {}
    for fault in survivors:
        with planted(checkout, [fault]):
            by, _, seconds = run_tests(checkout, failed, _EACH_S, "-x") if failed else ([], True, 0.0)
        row = {"found": bool(by), "phase": "rest", "seconds": seconds, "in_time": in_time}
        found[str(fault)] = {**row, "test": by[0]} if by else row
        print(_told(fault, found[str(fault)]), flush=True)
    return found


def _told(fault: AnyFault, row: dict) -> str:
    by = f"found by {row['test']}" if row["found"] else "NOT FOUND" + ("" if row.get("in_time", True) else " in time")
    return f"{fault.room:11} {row['seconds']:6.1f} s  {fault}: {by}"


def _executed(path: Path | None) -> dict[str, set[int]] | None:
    if path is None:
        return None
    files = json.loads(path.read_text())["files"]
    return {name[name.index("worldsize/") :]: set(one["executed_lines"]) for name, one in files.items() if "worldsize/" in name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("choose")
    for name in ("one", "other", "faults"):
        one.add_argument(name, type=Path)
    one.add_argument("--seed", type=int, default=34)
    one.add_argument("--a-room", type=int, default=5)
    one.add_argument("--executed", type=Path, help="the report of `coverage json` in the first checkout")
    one = commands.add_parser("doors")
    for name in ("checkout", "faults"):
        one.add_argument(name, type=Path)
    one.add_argument("--seed", type=int, default=57)
    one.add_argument("--count", type=int, default=40)
    for command in ("rooms", "rest"):
        one = commands.add_parser(command)
        for name in ("checkout", "faults", "out"):
            one.add_argument(name, type=Path)
        one.add_argument("--limit-s", type=float, default=200.0 if command == "rooms" else 4500.0)
        one.add_argument("--workers", type=int, default=2)
        one.add_argument("--tests", nargs="+", default=["tests"], help="`rest`: what is run")
        one.add_argument("--soak", action="store_true", help="the tests of the long campaigns in place of the usual ones")
        one.add_argument("--only", help="rooms, with commas between")
        one.add_argument("--each", type=int, help="at most so many faults a room")
    one = commands.add_parser("table")
    for name in ("faults", "out", "other_out"):
        one.add_argument(name, type=Path)
    given = parser.parse_args()

    if given.command == "choose":
        chosen = choose(given.one.resolve(), given.other.resolve(), given.seed, given.a_room, _executed(given.executed))
        given.faults.write_text(json.dumps([asdict(fault) for fault in chosen], indent=1))
        print("\n".join(f"{fault.room:11} {fault}" for fault in chosen), f"\n{len(chosen)} faults")
        return

    if given.command == "doors":
        doors = door_faults.choose(given.checkout.resolve(), given.seed, given.count)
        given.faults.write_text(json.dumps([asdict(fault) for fault in doors], indent=1))
        print("\n".join(map(str, doors)))
        return

    faults: list[AnyFault] = [Fault(**row) if "room" in row else DoorFault(**row) for row in json.loads(given.faults.read_text())]
    if given.command == "table":
        table(faults, *(json.loads(path.read_text()) for path in (given.out, given.other_out)))
        return

    rows = json.loads(given.out.read_text()) if given.out.exists() else {}
    checkout = given.checkout.resolve()
    if given.soak:
        os.environ["PYTEST_ADDOPTS"] = "-m soak"
    if given.command == "rest":
        survivors = [fault for fault in faults if not rows.get(str(fault), {"found": True})["found"]]
        rows |= rest(checkout, survivors, given.tests, given.limit_s, given.workers)
        given.out.write_text(json.dumps(rows, indent=1))
        return

    seen: dict[str, int] = {}
    for fault in faults:
        seen[fault.room] = seen.get(fault.room, 0) + 1
        left_out = (given.only and fault.room not in given.only.split(",")) or (given.each and seen[fault.room] > given.each)
        if left_out or str(fault) in rows:
            continue
        rows[str(fault)] = try_room(checkout, fault, given.limit_s, given.workers)
        given.out.write_text(json.dumps(rows, indent=1))
        print(_told(fault, rows[str(fault)]), flush=True)


def table(faults: list[AnyFault], one: dict, other: dict) -> None:
    """Print how many faults of each room both suites found, and which of them one alone found."""
    for room in ROOMS:
        those = [str(fault) for fault in faults if fault.room == room]
        counts = [sum(rows.get(name, {}).get("found", False) for name in those) for rows in (one, other)]
        print(f"{room:11} {len(those)} faults: {counts[0]} and {counts[1]} found")
    for fault in faults:
        first, second = (rows.get(str(fault), {}).get("found") for rows in (one, other))
        if first != second or not first:
            print(f"{fault}: {first} and {second}", file=sys.stdout)


if __name__ == "__main__":
    main()
