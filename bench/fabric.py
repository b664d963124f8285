"""The fabric: what recording a message costs, and how near a shaped link comes to alpha-beta.

Recording: messages to and fro between 2 ranks over the bare wire and over the recorded one, in alternating blocks of
one run, the ratio of the medians. Shaping: a message, a ring and a parameter server over shaped links, from a moment
that all ranks agree on until the last rank is done, beside the formula in `worldsize/formulas/cost.py`. Left out: the bare
machine's own speed (`bench/ring.py`).

    python bench/fabric.py [--ranks 2 4 8] [--repeats 9] [--smoke]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import report
import torch
import torch.distributed as dist

from worldsize.fabric.gloo import GlooWire, gloo_group
from worldsize.fabric.interface import Fabric
from worldsize.fabric.recording import Recorded
from worldsize.fabric.shaping import Shaped
from worldsize.fabric.wire import Arrival
from worldsize.formulas import cost
from worldsize.launch import launch
from worldsize.links import Link

KB, MB = 1000, 1_000_000
SLOW, FAST, FAR = Link("20 MB/s", "100 us"), Link("1 Gbit/s", "50 us"), Link("20 MB/s", "5 ms")
_BLOCKS = {KB: (120, 25), MB: (300, 5), 16 * MB: (50, 2)}  # size: (blocks of each kind, round trips in a block)


def own_wire() -> GlooWire:
    """A wire as `launch` makes it for a function that asks for a fabric."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=60))
    return GlooWire(gloo_group(store, rank, world_size))


def round_trips(size_bytes: int, blocks: int, count: int) -> dict[str, list[float]]:
    """Seconds of each message: {"bare": [...], "recorded": [...]}, blocks in turn. Runs in each of 2 ranks."""
    wire = own_wire()
    fabrics = {"bare": Fabric(wire), "recorded": Fabric(Recorded(wire))}
    x = torch.ones(size_bytes // 4)
    seconds: dict[str, list[float]] = {name: [] for name in fabrics}
    for block in range(2 * blocks + 2):
        name = ("bare", "recorded", "recorded", "bare")[block % 4]  # who comes first takes turns too
        for _ in range(count):
            began_s = time.perf_counter()
            _to_and_fro(fabrics[name], x)
            if block >= 2:  # the first of each kind warms up
                seconds[name].append((time.perf_counter() - began_s) / 2)
    return seconds


def _to_and_fro(fabric: Fabric, x: torch.Tensor) -> None:
    other = 1 - fabric.rank
    if fabric.rank == 0:
        fabric.send(x, other)
        fabric.recv(x, other)
    else:
        fabric.recv(x, other)
        fabric.send(x, other)


class Nowhere:
    """A wire that moves nothing at once: what is left is the fabric's own work, and the recorder's."""

    rank, world_size, now = 0, 2, staticmethod(time.monotonic)

    def post(self, *_: object) -> Nowhere:
        return self

    def wait(self) -> None:
        pass

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        return Arrival(1, out.nbytes, 0.0)


def recorder_us(messages: int) -> float:
    """Microseconds that recording adds to one message, at both its ends together, with no wire under it."""
    x, fastest_s = torch.ones(1), {}
    for _ in range(5):
        for name, fabric in (("bare", Fabric(Nowhere())), ("recorded", Fabric(Recorded(Nowhere())))):
            began_s = time.perf_counter()
            for _ in range(messages):
                fabric.send(x, 1)
                fabric.recv(x, 1)
            fastest_s[name] = min(fastest_s.get(name, 1e9), time.perf_counter() - began_s)
    return (fastest_s["recorded"] - fastest_s["bare"]) / messages * 1e6


def ping(fabric: Fabric, x: torch.Tensor) -> None:
    """One message from rank 0 to rank 1."""
    if fabric.rank == 0:
        fabric.send(x, 1)
    elif fabric.rank == 1:
        fabric.recv(x, 0)


def fan_in(fabric: Fabric, x: torch.Tensor) -> None:
    """Every rank's tensor to rank 0, which adds them up."""
    if fabric.rank:
        fabric.send(x, 0)
        return
    other = torch.empty_like(x)
    for _ in range(fabric.world_size - 1):
        fabric.recv(other)
        x += other


def fan_out(fabric: Fabric, x: torch.Tensor) -> None:
    """Rank 0's tensor to every rank."""
    if fabric.rank:
        fabric.recv(x, 0)
        return
    for handle in [fabric.isend(x, to) for to in range(1, fabric.world_size)]:
        handle.wait()


def parameter_server(fabric: Fabric, x: torch.Tensor) -> None:
    fan_in(fabric, x)
    fan_out(fabric, x)


def ring(fabric: Fabric, x: torch.Tensor) -> None:
    """Reduce-scatter, then all-gather, n - 1 steps each, in place."""
    n, rank = fabric.world_size, fabric.rank
    chunks = x.tensor_split(n)
    landing = torch.empty_like(chunks[0])  # the first chunk is the longest
    for step in range(2 * (n - 1)):
        handle = fabric.isend(chunks[(rank - step) % n], (rank + 1) % n)
        into = chunks[(rank - step - 1) % n]
        part = landing[: len(into)] if step < n - 1 else into
        fabric.recv(part, (rank - 1) % n)
        if step < n - 1:
            into += part
        handle.wait()


def formula(pattern: Callable, n: int, size_bytes: int, link: Link) -> float:
    """Seconds by alpha-beta."""
    if pattern is ping:
        return cost.message(size_bytes, link)
    whole = {ring: cost.ring_all_reduce, parameter_server: cost.parameter_server}
    return whole[pattern](n, size_bytes, link) if pattern in whole else cost.parameter_server(n, size_bytes, link) / 2


def shaped_times(cases: list, repeats: int) -> list[list[tuple[float, float]]]:
    """For each case (pattern, size, link), each repeat: (agreed start, this rank's end) on the machine's clock.

    The cases take turns, so that a slow moment of the machine falls on all of them. Runs in every rank.
    """
    wire = own_wire()
    plain = Fabric(wire)
    times: list[list[tuple[float, float]]] = [[] for _ in cases]
    for repeat in range(repeats + 1):
        for number, (pattern, size_bytes, link) in enumerate(cases):
            fabric = Fabric(Recorded(Shaped(wire, link)))
            x = torch.ones(size_bytes // 4)
            start_s = agreed_start(plain)
            pattern(fabric, x)
            if repeat:  # the first one warms up
                times[number].append((start_s, time.monotonic()))
    return times


def agreed_start(fabric: Fabric) -> float:
    """A moment shortly after everybody has come here; returns at that moment."""
    moment = torch.zeros(1, dtype=torch.float64)
    if fabric.rank == 0:
        for _ in range(fabric.world_size - 1):
            fabric.recv(moment)
        moment[0] = time.monotonic() + 0.01
        for to in range(1, fabric.world_size):
            fabric.send(moment, to)
    else:
        fabric.send(moment, 0)
        fabric.recv(moment, 0)
    time.sleep(max(0.0, float(moment[0]) - time.monotonic()))
    return float(moment[0])


def bench_recording(smoke: bool) -> dict[int, dict[str, list[float]]]:
    blocks = {KB: (2, 5), MB: (2, 5)} if smoke else _BLOCKS
    found = {size: launch(round_trips, 2, args=(size, *plan), timeout_s=300)[0] for size, plan in blocks.items()}
    rows = []
    for size, seconds in found.items():
        bare, recorded = report.median(seconds["bare"]), report.median(seconds["recorded"])
        more = (recorded - bare) * 1e6
        rows.append([_size(size), len(seconds["bare"]), bare * 1e6, recorded * 1e6, more, recorded / bare])
    header = ["message", "of each", "bare, us", "recorded, us", "difference, us", "recorded / bare"]
    report.table("recording: one message between 2 ranks, medians", header, rows)
    at_1_mb = next(row[-1] for row in rows if row[0] == "1 MB")
    own_us = recorder_us(200 if smoke else 5000)
    print(f"  the recorder's own work with no wire, both ends together: {own_us:.2g} us a message")
    report.target("recorded / bare at 1 MB", at_1_mb, at_most=1.03)
    return found


def bench_shaping(all_ranks: list[int], repeats: int, cases: list) -> dict[tuple, float]:
    """{(pattern's name, ranks, size, link): median seconds}; prints measured / alpha-beta."""
    medians: dict[tuple, float] = {}
    rows = []
    for n in all_ranks:
        by_rank = launch(shaped_times, n, args=(cases, repeats), timeout_s=900).results
        for number, (pattern, size, link) in enumerate(cases):
            runs = zip(*(times[number] for times in by_rank), strict=True)
            measured_s = report.median([max(end for _, end in run) - run[0][0] for run in runs])
            paper_s = formula(pattern, n, size, link)
            medians[pattern.__name__, n, size, str(link)] = measured_s
            name = f"{n} ranks, {pattern.__name__.replace('_', ' ')}"
            rows.append([name, str(link), _size(size), measured_s * 1e3, paper_s * 1e3, measured_s / paper_s])
    rows.sort(key=lambda row: row[1])
    header = ["pattern", "link", "tensor", "measured, ms", "alpha-beta, ms", "measured / alpha-beta"]
    report.table(f"shaping: until the last rank is done, medians of {repeats}", header, rows)
    worst = max((row[-1] for row in rows if row[1] == str(SLOW)), key=lambda ratio: abs(ratio - 1))
    report.target(f"measured / alpha-beta at {SLOW}, the worst", worst, at_most=1.25, at_least=0.75)
    return medians


def print_order(medians: dict[tuple, float], n: int, large: int) -> None:
    """How much slower the parameter server is than the ring, for large tensors and for small ones far away."""
    print()
    for size, link, bounds in ((large, SLOW, {"at_least": 5}), (KB, FAR, {"at_most": 1})):
        pair = [medians.get((name, n, size, str(link))) for name in ("parameter_server", "ring")]
        report.target(f"parameter server / ring, {n} ranks, {_size(size)}, {link}", report.quotient(*pair), **bounds)


def _size(size_bytes: int) -> str:
    return f"{size_bytes // MB} MB" if size_bytes >= MB else f"{size_bytes // KB} KB"


def draw(path: Path, medians: dict[tuple, float], cases: list, all_ranks: list[int], note: str) -> None:
    shown = [(p, s, link) for p, s, link in cases if link == SLOW]
    groups = [f"{p.__name__.replace('_', ' ')}\n{_size(s)}" for p, s, _ in shown]
    series = {
        f"{n} ranks": [medians[p.__name__, n, s, str(link)] / formula(p, n, s, link) for p, s, link in shown]
        for n in all_ranks
    }
    title = f"Shaped links, {SLOW}: measured / alpha-beta\n{note}"
    report.bars(path, title, groups, series, axis="ratio", line=1.0)


def main() -> None:
    options = report.options(__doc__, repeats=9).parse_args()
    patterns, sizes = [ping, fan_in, fan_out, parameter_server, ring], [MB, 4 * MB]
    if options.smoke:
        options.ranks, options.repeats, sizes = [2], 2, [MB]
    note = report.machine()
    print(note)
    recording = bench_recording(options.smoke)
    cases = [(p, size, link) for link in (SLOW, FAST) for size in sizes for p in patterns]
    cases += [(p, KB, FAR) for p in (parameter_server, ring)]
    medians = bench_shaping(options.ranks, options.repeats, cases)
    if not options.smoke:
        print_order(medians, max(options.ranks), max(sizes))
    rows = [{"pattern": p, "ranks": n, "size_bytes": s, "link": k, "seconds": t} for (p, n, s, k), t in medians.items()]
    report.keep(options.out / "fabric.json", {"conditions": note, "recording": recording, "shaping": rows})
    draw(options.out / "fabric.png", medians, cases, options.ranks, note)


if __name__ == "__main__":
    main()
