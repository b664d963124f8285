"""World Size's launch against its peers: from the call until the ranks' results and lines are back.

The work is an all-reduce of a small tensor over gloo. "cold" is the first launch of a fresh process that has imported
the engine and torch, called at once; "5 s later" is ours when the notebook has been open for 5 s. "warm" is every
launch after it. The engines take turns within one run. A peer that fails is reported as failed. With `--against` the
peer is the same engine from another checkout: warm launches in turn, and the ratio of their medians with its 95 %
interval. Left out: what happens when a rank fails (tests/soak).

    python bench/launch.py [--ranks 2 4 8] [--repeats 20] [--engines worldsize torchrun] [--smoke]
    python bench/launch.py --only worldsize --against ../worldsize-before [--ranks 4] [--repeats 40]
"""

import argparse
import json
import os
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
from peers.engines import ENGINES

OURS = "worldsize"
SOON = "worldsize, 5 s later"
_ANSWER_S = 120.0
_GIVE_UP_AFTER = 2  # failures in a row
CHECKOUT = Path(__file__).resolve().parents[1]
_PAIRS = 40  # launches of each checkout
_FIRST_ONES = 3  # launches of each that do not count: pages and files come into memory


class Failed(Exception):
    """An engine did not do the work."""


class Kernel:
    """A process that stands for a notebook's kernel and has imported one engine."""

    def __init__(self, engine: str, home: str, checkout: Path = CHECKOUT) -> None:
        code = f"from peers.engines import serve; serve({engine!r})"
        self._said = open(Path(home) / "stderr.txt", "ab")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            env=_environment(home, checkout), cwd=home, start_new_session=True,
        )  # fmt: skip
        try:
            self._answer()
        except Failed:
            self.close()
            raise

    def seconds(self, ranks: int) -> float:
        """Launch once. Raises Failed."""
        self._process.stdin.write(f"{ranks}\n".encode())
        self._process.stdin.flush()
        answer = self._answer()
        if not isinstance(answer, float):
            raise Failed(answer)
        return answer

    def _answer(self) -> object:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(_ANSWER_S):
                raise Failed(f"no answer after {_ANSWER_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Failed("the process that launched has ended")
        return json.loads(line)

    def close(self) -> None:
        """Let it leave in peace; then end it and all that it started."""
        family = [self._process, *_descendants(self._process.pid)]
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        for process in family:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._said.close()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _environment(home: str, checkout: Path) -> dict[str, str]:
    """The same for all: the peers importable, gloo on loopback, IPython's files out of the user's home."""
    here = Path(__file__).resolve().parent
    path = os.pathsep.join([str(here), str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])])
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    gloo = {"GLOO_SOCKET_IFNAME": loopback} if loopback else {}
    return {**os.environ, "PYTHONPATH": path, "IPYTHONDIR": f"{home}/ipython", **gloo}


class Bench:
    """The measurements so far: {(engine, "cold" or "warm", ranks): seconds}, and what went wrong."""

    def __init__(self, engines: list[str], home: str) -> None:
        self.engines, self.home = engines, home
        self.seconds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        self.failures: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.in_a_row: dict[tuple[str, int], int] = defaultdict(int)

    def cold(self, engine: str, ranks: int, rest_s: float = 0.0) -> Kernel | None:
        """Start a kernel and launch once in it. None where that failed."""
        try:
            kernel = Kernel(engine, self.home)
        except Failed as error:
            self._failed(engine, ranks, error)
            return None
        time.sleep(rest_s)
        name = SOON if rest_s else engine
        return kernel if self._once(kernel, engine, (name, "cold", ranks)) else None

    def warm(self, kernels: dict[str, Kernel], ranks: int) -> None:
        """One launch of each engine, in turn."""
        for engine in list(kernels):
            if not self._once(kernels[engine], engine, (engine, "warm", ranks)):
                del kernels[engine]
                if self.in_a_row[engine, ranks] < _GIVE_UP_AFTER and (again := self.cold(engine, ranks)):
                    kernels[engine] = again

    def _once(self, kernel: Kernel, engine: str, key: tuple[str, str, int]) -> bool:
        try:
            self.seconds[key].append(kernel.seconds(key[2]))
        except (Failed, OSError) as error:
            self._failed(engine, key[2], error)
            kernel.close()
            return False
        self.in_a_row[engine, key[2]] = 0
        return True

    def _failed(self, engine: str, ranks: int, error: Exception) -> None:
        self.in_a_row[engine, ranks] += 1
        self.failures[engine, ranks].append(str(error))
        print(f"  {engine} failed with {ranks} ranks: {error}", flush=True)

    def median(self, engine: str, kind: str, ranks: int) -> float | None:
        return report.median(self.seconds.get((engine, kind, ranks), []))


def measure(bench: Bench, ranks: int, cold_repeats: int, repeats: int, rest_s: float) -> None:
    """Cold launches in fresh kernels; the last kernels stay for the warm ones."""
    print(f"measuring {ranks} ranks", flush=True)
    kernels: dict[str, Kernel] = {}
    try:
        for number in range(cold_repeats):
            last = number == cold_repeats - 1
            if rest_s and OURS in bench.engines and (rested := bench.cold(OURS, ranks, rest_s)):
                rested.close()
            for engine in bench.engines:
                kernel = bench.cold(engine, ranks)
                if kernel and last:
                    kernels[engine] = kernel
                elif kernel:
                    kernel.close()
        for _ in range(repeats):
            bench.warm(kernels, ranks)
    finally:
        for kernel in kernels.values():
            kernel.close()


def print_results(bench: Bench, all_ranks: list[int]) -> None:
    for kind in ("cold", "warm"):
        names = [*bench.engines, *([SOON] if kind == "cold" else [])]
        names = [n for n in names if n in bench.engines or any((n, kind, r) in bench.seconds for r in all_ranks)]
        header = [f"{kind}, median", *(f"{r} ranks, s" for r in all_ranks), *(f"ratio, {r} ranks" for r in all_ranks)]
        rows = []
        for name in names:
            medians = [bench.median(name, kind, r) for r in all_ranks]
            own = [bench.median(OURS, kind, r) for r in all_ranks]
            rows.append([name, *medians, *map(report.quotient, medians, own)])
        report.table(f"launch, {kind}: seconds until results and lines are back, and their ratio to ours", header, rows)
    for (engine, ranks), errors in bench.failures.items():
        print(f"  {engine} FAILED {len(errors)} times with {ranks} ranks: {errors[0]}")


def print_targets(bench: Bench, all_ranks: list[int]) -> None:
    print()
    for ranks, limit_s in ((4, 0.3), (8, 0.7)):
        report.target(f"ours, warm, {ranks} ranks, s", bench.median(OURS, "warm", ranks), at_most=limit_s)
    for ranks in all_ranks:
        ours = bench.median(OURS, "warm", ranks)
        forked = bench.median("notebook_launcher", "warm", ranks)
        report.target(f"ours / notebook_launcher, {ranks} ranks", report.quotient(ours, forked), at_most=2)
        for slow in ("torchrun", "spawn"):
            faster = report.quotient(bench.median(slow, "warm", ranks), ours)
            report.target(f"{slow} / ours, {ranks} ranks", faster, at_least=8)
        soon = bench.median(SOON, "cold", ranks)
        report.target(f"ours, first launch 5 s after the import, {ranks} ranks, s", soon, at_most=1)


def keep(path: Path, bench: Bench, note: str) -> None:
    rows = [{"engine": e, "kind": k, "ranks": r, "seconds": s} for (e, k, r), s in bench.seconds.items()]
    failed = [{"engine": e, "ranks": r, "errors": errors} for (e, r), errors in bench.failures.items()]
    report.keep(path, {"conditions": note, "measured": rows, "failed": failed})


def draw(path: Path, bench: Bench, all_ranks: list[int], note: str) -> None:
    series = {e: [bench.median(e, "warm", r) for r in all_ranks] for e in bench.engines}
    title = f"Warm launch to finished all-reduce, results and lines back\n{note}"
    report.bars(path, title, [f"{r} ranks" for r in all_ranks], series, axis="seconds (median)", log=True)


def compare(engine: str, checkouts: dict[str, Path], ranks: int, pairs: int, home: str) -> dict[str, list[float]]:
    """Seconds of warm launches from each checkout, one of each in turn; which goes first changes from pair to pair."""
    seconds: dict[str, list[float]] = {name: [] for name in checkouts}
    kernels: dict[str, Kernel] = {}
    try:
        for name, checkout in checkouts.items():
            kernels[name] = Kernel(engine, home, checkout)
        for number in range(_FIRST_ONES + pairs):
            for name in sorted(kernels, reverse=number % 2 == 1):
                taken_s = kernels[name].seconds(ranks)
                if number >= _FIRST_ONES:
                    seconds[name].append(taken_s)
    finally:
        for kernel in kernels.values():
            kernel.close()
    return seconds


def print_comparison(measured: dict[int, dict[str, list[float]]]) -> None:
    header = ["median", "this checkout, s", "the other, s", "ratio", "95 % from", "to"]
    rows, ends = [], {}
    for ranks, seconds in measured.items():
        this, other = seconds["this"], seconds["other"]
        ratio, low, high = report.ratio_of_medians(this, other)
        rows.append([f"{ranks} ranks", report.median(this), report.median(other), ratio, low, high])
        ends[ranks] = high
    report.table("launch, warm: seconds until results and lines are back", header, rows)
    for ranks, high in ends.items():
        report.target(f"this checkout / the other, {ranks} ranks, upper end", high, at_most=1.05)


def against(options: argparse.Namespace, note: str) -> None:
    """Compare one engine of this checkout with the same of another."""
    other = options.against.resolve()
    if not (other / "worldsize" / "__init__.py").is_file():
        sys.exit(f"--against: expected a checkout of the repository, got {options.against}. Make one: git worktree add {other}")
    measured = {}
    with tempfile.TemporaryDirectory(prefix="worldsize-bench-", ignore_cleanup_errors=True) as home:
        for ranks in options.ranks:
            print(f"measuring {ranks} ranks", flush=True)
            checkouts = {"this": CHECKOUT, "other": other}
            measured[ranks] = compare(options.only or OURS, checkouts, ranks, options.repeats, home)
    print_comparison(measured)
    report.keep(options.out / "launch-against.json", {"conditions": note, "measured": measured})


def main() -> None:
    parser = report.options(__doc__, repeats=None)
    parser.add_argument("--cold-repeats", type=int, default=3)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--engines", nargs="+", choices=[*ENGINES], default=[*ENGINES])
    chosen.add_argument("--only", choices=[*ENGINES], help="this engine alone")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="compare with the same engine of another checkout")
    options = parser.parse_args()
    options.repeats = options.repeats or (_PAIRS if options.against else 20)
    if options.against:
        if options.smoke:
            options.ranks, options.repeats = [2], 3
        note = f"{report.machine()}; {options.repeats} launches of each checkout, in turn"
        print(note)
        against(options, note)
        return
    options.engines = [options.only] if options.only else options.engines
    rest_s = 5.0
    if options.smoke:
        options.ranks, options.repeats, options.cold_repeats, rest_s = [2], 1, 1, 0.0
        options.engines = [OURS, "notebook_launcher"]
    note = f"{report.machine()}; medians of {options.repeats}"
    print(note)
    with tempfile.TemporaryDirectory(prefix="worldsize-bench-", ignore_cleanup_errors=True) as home:
        bench = Bench(options.engines, home)
        for ranks in options.ranks:
            measure(bench, ranks, options.cold_repeats, options.repeats, rest_s)
            keep(options.out / "launch.json", bench, note)  # each time, because a whole run takes long
    print_results(bench, options.ranks)
    print_targets(bench, options.ranks)
    draw(options.out / "launch.png", bench, options.ranks, note)


if __name__ == "__main__":
    main()
