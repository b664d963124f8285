"""The ring all-reduce of lab 06 against gloo's own `all_reduce`, over the bare machine, in the same processes.

The ring is the lab's own solution, Python over the recorded fabric; gloo's is C++. Both add up float32 in place. They
take turns, each from a moment that all ranks agree on until the last rank is done, and both results are compared with
the sum. Left out: shaped links (`bench/fabric.py`).

    python bench/ring.py [--ranks 2 4 8] [--sizes-mb 1 16 64] [--repeats 15] [--smoke]
"""

import ast
import time
from collections.abc import Callable
from pathlib import Path

import report
import torch
import torch.distributed as dist
from fabric import MB, agreed_start

from worldsize.fabric.interface import Fabric
from worldsize.launch import launch

_OF_THE_LAB = {"split", "reduce_scatter", "all_gather", "ring_all_reduce"}


def lab_ring() -> Callable[[Fabric, torch.Tensor], torch.Tensor]:
    """`ring_all_reduce` of lab 06 and what it calls, out of the lab's source."""
    (path,) = (Path(__file__).resolve().parent.parent / "solutions").glob("06_*.py")
    cells = ast.parse(path.read_text()).body
    functions = [node for node in cells if isinstance(node, ast.FunctionDef) and node.name in _OF_THE_LAB]
    names = {"__name__": "__main__", "torch": torch}  # as in a notebook, so that they travel to the ranks by value
    exec(compile(ast.Module(functions, []), str(path), "exec"), names)
    return names["ring_all_reduce"]


def gloo(_: Fabric, x: torch.Tensor) -> None:
    dist.all_reduce(x)


CONTESTANTS = {"ring": lab_ring(), "gloo": gloo}


def times(fabric: Fabric, size_bytes: int, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """{name: (agreed start, this rank's end) of each repeat}. Runs in every rank."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    x = torch.empty(size_bytes // 4)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTESTANTS}
    for repeat in range(repeats + 1):
        for name in list(CONTESTANTS)[:: 1 if repeat % 2 else -1]:
            x.fill_(fabric.rank + 1)
            start_s = agreed_start(fabric)
            CONTESTANTS[name](fabric, x)
            end_s = time.monotonic()
            assert (x == fabric.world_size * (fabric.world_size + 1) / 2).all()
            if repeat:  # the first one warms up
                found[name].append((start_s, end_s))
    return found


def seconds(by_rank: list[dict], name: str) -> list[float]:
    """Of each repeat: from the agreed start until the last rank was done."""
    return [max(end for _, end in run) - run[0][0] for run in zip(*(found[name] for found in by_rank), strict=True)]


def main() -> None:
    parser = report.options(__doc__, repeats=15)
    parser.add_argument("--sizes-mb", type=int, nargs="+", default=[1, 16, 64])
    options = parser.parse_args()
    if options.smoke:
        options.ranks, options.sizes_mb, options.repeats = [2], [1], 2
    note = f"{report.machine()}; medians of {options.repeats}"
    print(note)
    rows, measured, ratios = [], [], {}
    for size_mb in options.sizes_mb:
        for n in options.ranks:
            by_rank = launch(times, n, args=(size_mb * MB, options.repeats), timeout_s=600).results
            both = {name: seconds(by_rank, name) for name in CONTESTANTS}
            own, peer = report.median(both["ring"]), report.median(both["gloo"])
            ratios[n, size_mb] = own / peer
            rows.append([f"{n} ranks, {size_mb} MB", own * 1e3, peer * 1e3, own / peer])
            measured.append({"ranks": n, "size_mb": size_mb, **both})
    report.table("all-reduce: until the last rank is done, medians", ["", "ring, ms", "gloo, ms", "ring / gloo"], rows)
    print()
    for n in (4, 8):
        report.target(f"ring / gloo at 64 MB, {n} ranks", ratios.get((n, 64)), at_most=1.3)
    report.keep(options.out / "ring.json", {"conditions": note, "measured": measured})
    series = {f"{n} ranks": [ratios[n, s] for s in options.sizes_mb] for n in options.ranks}
    title = f"The ring of lab 06 / gloo's own all-reduce\n{note}"
    groups = [f"{s} MB" for s in options.sizes_mb]
    report.bars(options.out / "ring.png", title, groups, series, axis="ratio of medians", line=1.0)


if __name__ == "__main__":
    main()
