"""Simulated seconds against those of real ranks over the same shaped links: ring, server, tree, all-to-all.

The contestants take turns. And what simulations take themselves: lab 06's pattern in full, and by symmetry, in seconds of
one core. The programs are those of the simulator's tests.

    python bench/simulated.py [--ranks 2 4 8] [--repeats 5] [--smoke]
"""

import statistics
import sys
import time
from pathlib import Path

import report
import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.simulate.programs import all_to_all, ring, seconds, server, together, tree, two_levels
from worldsize.launch import launch
from worldsize.links import Link
from worldsize.simulate import Nodes, simulate

PROGRAMS = (ring, server, tree, all_to_all)
SHAPED = Link("20 MB/s", "10 ms")
FAST = Link("10 GB/s", "5 us")
EIGHT = Nodes(8, inside=Link("300 GB/s", "2 us"), between=Link("25 GB/s", "5 us"))
ELEMENTS = 100_000


def stragglers(generator, n):
    return 1 + generator.exponential(0.1, n)


def works_and_sums(fabric, x):
    fabric.compute(1e-3)
    ring(fabric, x)


def beside_real_ranks(ranks: list[int], repeats: int) -> dict[tuple[str, int], tuple[float, float]]:
    """{(program, ranks): (the median of real runs, simulated)}, seconds."""
    found = {}
    for n in ranks:
        real: dict[str, list[float]] = {fn.__name__: [] for fn in PROGRAMS}
        for _ in range(repeats):
            for fn in PROGRAMS:
                real[fn.__name__].append(seconds(launch(together, n, args=(fn, torch.ones(ELEMENTS)), link=SHAPED)))
        for fn in PROGRAMS:
            simulated = seconds(simulate(together, n, args=(fn, torch.ones(ELEMENTS)), link=SHAPED))
            found[fn.__name__, n] = statistics.median(real[fn.__name__]), simulated
    return found


def what_simulations_take(smoke: bool) -> list[list]:
    """[[what, ranks, messages, simulated s, CPU s]]."""
    wanted = [("ring in full", ring, n, {"link": FAST}) for n in ((64,) if smoke else (64, 256, 1024))]
    wanted += [("ring by symmetry", ring, n, {"link": FAST}) for n in ((2048,) if smoke else (10_000, 100_000))]
    if not smoke:
        wanted += [
            ("ring, nodes of 8", ring, 10_240, {"nodes": EIGHT}),
            ("two levels, nodes of 8", lambda fabric, x: two_levels(fabric, x, 8), 10_240, {"nodes": EIGHT}),
            ("ring with stragglers", works_and_sums, 10_000, {"link": FAST, "stragglers": stragglers}),
            ("server in full", server, 10_000, {"link": FAST}),
            ("tree in full", tree, 10_000, {"link": FAST}),
        ]

    rows = []
    for what, fn, n, more in wanted:
        x = torch.ones(1 if fn in (server, tree) else n)
        began_s = time.process_time()
        run = simulate(fn, n, args=(x,), timeout_s=600, **more)
        rows.append([f"{what}, {n:,} ranks", run.messages, run.simulated_s, time.process_time() - began_s])
    return rows


def main() -> None:
    options = report.options(__doc__, repeats=5).parse_args()
    if options.smoke:
        options.ranks, options.repeats = [2], 1
    torch.set_num_threads(1)
    note = f"{report.machine()}; medians of {options.repeats}; links {SHAPED}; {4 * ELEMENTS / 1e3:g} kB a rank"
    print(note)

    found = beside_real_ranks(options.ranks, options.repeats)
    rows = []
    for (name, n), (real_s, simulated_s) in found.items():
        rows.append([f"{name}, {n} ranks", real_s * 1e3, simulated_s * 1e3, real_s / simulated_s])
    report.table("one collective over the links", ["", "real, ms", "simulated, ms", "real / simulated"], rows)
    errors = [abs(simulated / real - 1) for real, simulated in found.values()]
    print()
    report.target("simulated / real, median error", statistics.median(errors), at_most=0.1)

    taken = what_simulations_take(options.smoke)
    report.table("what simulations take", ["", "messages", "simulated s", "CPU s"], taken)

    beside = [[*key, *value] for key, value in found.items()]
    report.keep(options.out / "simulated.json", {"conditions": note, "beside": beside, "taken": taken})
    groups = [f"{n} ranks" for n in options.ranks]
    series = {fn.__name__: [found[fn.__name__, n][0] / found[fn.__name__, n][1] for n in options.ranks] for fn in PROGRAMS}
    title = f"Real ranks over a shaped link / the same simulated\n{note}"
    report.bars(options.out / "simulated.png", title, groups, series, axis="ratio of seconds", line=1.0)


if __name__ == "__main__":
    main()
