"""The cells of the support matrix, the launches that run them, and the file that keeps what came of them.

`trials.py` and `trials_tf1.py` hold the trials, `worldsize.tf.support` the matrix as data.
"""

import datetime
import json
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.tf_support import trials, trials_tf1
from bench.tf_support.trials import FITS, RAW, attempts
from worldsize.errors import LaunchError
from worldsize.files import write_whole
from worldsize.tf import Cluster, quiet_launch, worker_devices
from worldsize.tf.errors import MAX_CHARACTERS
from worldsize.tf.support import WAYS, Found, Matrix, Outcome, SupportCell

KINDS = ("OneDevice", "Mirrored", "CentralStorage", "MultiWorkerMirrored", "ParameterServer", "TPU", "v1")
PACKAGES = ("tensorflow", "keras", "tf_keras", "numpy")


def on_devices(cells: Iterable[SupportCell]) -> Found:
    """Run trials on one machine's devices, and return the result of each cell."""
    import tensorflow as tf

    d, pair, three = tf.distribute, ["/cpu:0", "/cpu:1"], ["/cpu:0", "/cpu:1", "/cpu:2"]
    made = {
        "OneDevice": lambda: d.OneDeviceStrategy("/cpu:0"),
        "Mirrored, 2 devices": lambda: d.MirroredStrategy(pair),
        "Mirrored, 4 devices": lambda: d.MirroredStrategy([*three, "/cpu:3"]),
        "Mirrored, HierarchicalCopyAllReduce": lambda: d.MirroredStrategy(pair, d.HierarchicalCopyAllReduce()),
        "Mirrored, HierarchicalCopyAllReduce, 3 devices": lambda: d.MirroredStrategy(three, d.HierarchicalCopyAllReduce()),
        "Mirrored, ReductionToOneDevice": lambda: d.MirroredStrategy(pair, d.ReductionToOneDevice()),
        "Mirrored, NcclAllReduce on CPUs": lambda: d.MirroredStrategy(pair, d.NcclAllReduce()),
        "CentralStorage": lambda: d.experimental.CentralStorageStrategy(pair),
    }

    def trial(row: str, way: str) -> Outcome:
        if row == "TPU":
            return str(d.TPUStrategy(d.cluster_resolver.TPUClusterResolver())), ""
        if row == "v1 Estimator":
            if hasattr(tf, "estimator") or hasattr(tf.compat.v1, "estimator"):
                return "works", ""
            return "fails", "AttributeError: tf.estimator and tf.compat.v1.estimator are gone"
        if row == "v1 towers":
            return trials_tf1.towers()

        if row == "CentralStorage, aggregation=MEAN":
            weights = trials.looped(made["CentralStorage"](), way, aggregation=tf.VariableAggregation.MEAN)
            return trials.compared(weights.numpy())
        if row.startswith("CentralStorage, "):
            names = row.removeprefix("CentralStorage, ").split(" and ")
            return trials.layers(made["CentralStorage"](), way, names)

        return trials.synchronous(made[row](), way)

    return attempts(trial, cells)


def on_workers(cells: Iterable[SupportCell]) -> Found:
    """Run trials of MultiWorkerMirrored on each worker, and return the result of each cell."""
    import tensorflow as tf

    experimental, made = tf.distribute.experimental, {}
    kinds = experimental.CommunicationImplementation
    for row, _ in cells:  # before any other operation
        if row not in made:
            kind = getattr(kinds, row.removeprefix("MultiWorkerMirrored, ").split()[0], kinds.AUTO)
            options = experimental.CommunicationOptions(implementation=kind)
            made[row] = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    return attempts(lambda row, way: trials.synchronous(made[row], way), cells)


def on_workers_devices(cells: Iterable[SupportCell]) -> Found:
    """Run the trials of `on_workers` with every logical CPU of a worker as a replica."""
    worker_devices.use_logical_cpus()
    return on_workers(cells)


def with_servers(cells: Iterable[SupportCell]) -> Found:
    """Run trials with ParameterServerStrategy on the chief, and return the result of each cell."""
    import tensorflow as tf

    d, made = tf.distribute, {}

    def trial(row: str, way: str) -> Outcome:
        if row == "v1 in-graph":
            return trials_tf1.in_graph()

        if row not in made:
            cut = d.experimental.partitioners.FixedShardsPartitioner(2) if "partitioner" in row else None
            resolver = d.cluster_resolver.TFConfigClusterResolver()
            made[row] = d.coordinator.ClusterCoordinator(d.ParameterServerStrategy(resolver, variable_partitioner=cut))
        if way in FITS:
            return trials.fitted(made[row], way)
        return trials.scheduled(made[row], way)

    return attempts(trial, cells)


def between_graphs(task: Any, cells: Iterable[SupportCell]) -> Found:
    """Run between-graph replication of TensorFlow 1 on this worker, and return the result of each cell."""
    return attempts(lambda row, way: trials_tf1.between_graphs(task, "Sync" in row), cells)


@dataclass(frozen=True)
class SupportLaunch:
    """Rows that share processes: `fn(cells)` runs in the tasks, and a cell's outcome is its worst task's."""

    fn: Callable
    rows: dict[str, tuple[str, ...]]  # row -> its ways
    options: dict[str, Any] = field(default_factory=dict)  # of the launch

    def cells(self, ways: Iterable[str] = WAYS) -> list[SupportCell]:
        return [(row, way) for row, its in self.rows.items() for way in its if way in ways]


LAUNCHES = (
    SupportLaunch(
        on_devices,
        {
            "OneDevice": WAYS,
            "Mirrored, 2 devices": WAYS,
            "Mirrored, HierarchicalCopyAllReduce": WAYS,
            "Mirrored, ReductionToOneDevice": WAYS,
            "Mirrored, NcclAllReduce on CPUs": WAYS,
            "CentralStorage": WAYS,
            "CentralStorage, aggregation=MEAN": (RAW,),
            "CentralStorage, Conv2D and LSTM": FITS,
            "CentralStorage, Dropout": FITS,
            "CentralStorage, BatchNormalization": FITS,
            "TPU": WAYS,
            "v1 towers": (RAW,),
            "v1 Estimator": (RAW,),
        },
        {"logical_devices": 2},
    ),
    # in a separate process: once 2 devices have met, a process refuses a group of 4 (collectives keep their group)
    SupportLaunch(on_devices, {"Mirrored, 4 devices": WAYS}, {"logical_devices": 4}),
    SupportLaunch(on_devices, {"Mirrored, HierarchicalCopyAllReduce, 3 devices": WAYS}, {"logical_devices": 3}),
    # one strategy per process: a second one reopens the collectives, and a worker that is ahead then waits forever
    *(
        SupportLaunch(on_workers, {f"MultiWorkerMirrored, {kind}": WAYS}, {"cluster": Cluster(worker=2)})
        for kind in ("RING", "AUTO", "NCCL on CPUs")
    ),
    SupportLaunch(
        on_workers_devices,
        {"MultiWorkerMirrored, 2 devices a worker": WAYS},
        {"cluster": Cluster(worker=2), "logical_devices": 2},
    ),
    SupportLaunch(
        with_servers,
        {"ParameterServer": WAYS, "ParameterServer, partitioner": WAYS, "v1 in-graph": (RAW,)},
        {"cluster": Cluster(chief=1, worker=3, ps=2)},
    ),
    *(
        SupportLaunch(between_graphs, {f"v1 between-graph, {kind}": (RAW,)}, {"cluster": Cluster(worker=2, ps=1)})
        for kind in ("asynchronous", "SyncReplicas")
    ),
)

def cells() -> tuple[SupportCell, ...]:
    """Return every cell of the support matrix, row by row, whichever launch runs it."""

    def place(cell: SupportCell) -> tuple[int, str, int]:
        row, way = cell
        return KINDS.index(re.split("[ ,]", row)[0]), row, WAYS.index(way)

    return tuple(sorted((cell for launch in LAUNCHES for cell in launch.cells()), key=place))


def run(ways: Iterable[str] = WAYS, launches: Iterable[SupportLaunch] = LAUNCHES) -> Matrix:
    """Run every cell of these ways, and return the matrix of results.

    Raises ValueError for an unknown way.
    """
    ways = (ways,) if isinstance(ways, str) else tuple(ways)
    for way in ways:
        if way not in WAYS:
            raise ValueError(f"tf_support: expected one of {', '.join(WAYS)}, got {way!r}")

    found: Found = {}
    for launch in launches:
        wanted = launch.cells(ways)
        if not wanted:
            continue

        try:
            results = quiet_launch(launch.fn, (wanted,), timeout_s=240.0, **launch.options).results
        except LaunchError as error:
            found |= dict.fromkeys(wanted, ("fails", str(error).splitlines()[0][:MAX_CHARACTERS]))
            continue
        for cell in wanted:
            outcomes = [task[cell] for task in results if task]
            found[cell] = min(outcomes, key=lambda outcome: outcome[0] == "works")

    ordered = {cell: found[cell] for cell in cells() if cell in found}
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    return Matrix(datetime.date.today().isoformat(), versions, ordered)


def save(matrix: Matrix, path: Path) -> None:
    """Write a support matrix to its file with its date and versions, all or nothing."""
    rows = {row: {way: list(matrix.cells[row, way]) for way in WAYS if (row, way) in matrix.cells} for row in matrix.rows}
    text = json.dumps({"date": matrix.date, "versions": matrix.versions, "cells": rows}, indent=1)
    write_whole(path, text + "\n")
