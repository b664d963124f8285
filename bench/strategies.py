"""TensorFlow's strategies from the call to the first result: World Size's launch against processes started by hand.

By hand is as TensorFlow's guides say: a Python process a task, with `TF_CONFIG` and free ports. The two take turns.
Ours is warm, since a notebook starts it once; its first launch is measured apart. Left out: training.

    python bench/strategies.py [--repeats 9] [--smoke]
"""

import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import report
from peers import strategies

from worldsize.engines.cluster_spec import Cluster, tf_config
from worldsize.tf import launch

_END_S = 120.0
WORKS: dict[str, tuple[Callable, dict, float, float]] = {  # the work, how it is launched, its result, its limit
    "Mirrored, 4 devices": (strategies.mirrored, {"logical_devices": 4}, 4.0, 0.8),
    "MultiWorkerMirrored, 2 workers": (strategies.multi_worker, {"cluster": Cluster(worker=2)}, 2.0, 1.5),
    "ParameterServer, 2 workers + 1 ps": (
        strategies.parameter_server, {"cluster": Cluster(chief=1, worker=2, ps=1)}, 10.0, 4.0,
    ),
}  # fmt: skip
Seconds = dict[tuple[str, str], list[float]]


def ours(name: str) -> float:
    work, way, expected, _ = WORKS[name]
    began_s = time.monotonic()
    run = launch(work, **way, timeout_s=60)
    took_s = time.monotonic() - began_s
    assert run[0] == expected, (name, run.results)
    return took_s


def by_hand(name: str) -> float:
    """A process a task, until the first one has told its result; then the others are ended."""
    work, way, expected, _ = WORKS[name]
    cluster = way.get("cluster")
    began_s = time.monotonic()
    spec = cluster.spec([f"127.0.0.1:{port}" for port in _free_ports(len(cluster.tasks()))]) if cluster else {}
    tasks = []
    for task in cluster.tasks() if cluster else [""]:
        config = {"TF_CONFIG": tf_config(spec, task)} if task else {}
        tasks.append(
            subprocess.Popen(
                [sys.executable, strategies.__file__, work.__name__], env={**os.environ, **config},
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
        )  # fmt: skip
    try:
        said, _ = tasks[0].communicate(timeout=_END_S)
        took_s = time.monotonic() - began_s
    finally:
        for task in tasks:
            task.kill()
            task.communicate()
    assert float(said) == expected, (name, said)
    return took_s


def _free_ports(count: int) -> list[int]:
    found = [socket.socket() for _ in range(count)]
    for each in found:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


def measure(names: list[str], repeats: int) -> Seconds:
    seconds: Seconds = defaultdict(list)
    for name in names:
        seconds[name, "first"].append(ours(name))  # of these the first of all holds the import
        for _ in range(repeats):
            seconds[name, "ours"].append(ours(name))
            seconds[name, "by hand"].append(by_hand(name))
    return seconds


def main() -> None:
    options = report.options(__doc__, repeats=9).parse_args()
    names = [*WORKS][: 1 if options.smoke else None]
    repeats = 1 if options.smoke else options.repeats
    note = f"{report.machine()}; medians of {repeats}"
    print(note)
    seconds = measure(names, repeats)
    medians = {way: [report.median(seconds[name, way]) for name in names] for way in ("ours", "by hand", "first")}
    ratios = [report.quotient(b, a) for a, b in zip(medians["ours"], medians["by hand"], strict=True)]
    header = ["strategy", "ours, s", "by hand, s", "by hand / ours", "our first, s"]
    rows = [*zip(names, medians["ours"], medians["by hand"], ratios, medians["first"], strict=True)]
    report.table("from the call to the first result", header, rows)
    print()
    for name, median, ratio in zip(names, medians["ours"], ratios, strict=True):
        report.target(f"ours, warm: {name}, s", median, at_most=WORKS[name][3])
        report.target(f"by hand / ours: {name}", ratio, at_least=2)
    out: Path = options.out
    report.keep(out / "strategies.json", {"conditions": note, "measured": [[*key, s] for key, s in seconds.items()]})
    shown = {"World Size, warm": medians["ours"], "by hand": medians["by hand"]}
    report.bars(
        out / "strategies.png", f"TensorFlow: call to first result\n{note}", names, shown, axis="seconds (median)", log=True
    )


if __name__ == "__main__":
    main()
