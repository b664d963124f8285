"""The support matrix: every tf.distribute strategy with every way to train, really run, with versions and a date.

`run()` runs cells, `recorded()` reads the last whole matrix from `datasets/support.json`, and `python -m worldsize.tf.support`
rewrites that file. Beside the matrix stands the table of the TensorFlow 2.0 guide of 2019. The trials are in `support_trials.py`
and `support_trials_tf1.py`.
"""

from __future__ import annotations

import datetime
import json
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from worldsize import data
from worldsize.errors import LaunchError
from worldsize.files import write_whole
from worldsize.tf import Cluster, quiet_launch, support_trials, support_trials_tf1
from worldsize.tf.support_trials import KERAS_3_FIT, LOOP_KERAS_3, LOOP_TF_KERAS, RAW, TF_KERAS_FIT, SupportCell

RECORD = data.CHECKOUT_FOLDER / "support.json"
WAYS = (KERAS_3_FIT, TF_KERAS_FIT, RAW, LOOP_KERAS_3, LOOP_TF_KERAS)
FITS = (KERAS_3_FIT, TF_KERAS_FIT)
KINDS = ("OneDevice", "Mirrored", "CentralStorage", "MultiWorkerMirrored", "ParameterServer", "TPU", "v1")
PACKAGES = ("tensorflow", "keras", "tf_keras", "numpy")


@dataclass(frozen=True)
class SupportLaunch:
    """Rows that share processes: `fn(cells)` runs in the tasks, and a cell's outcome is its worst task's."""

    fn: Callable
    rows: dict[str, tuple[str, ...]]  # row -> its ways
    way: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = 240.0


def between_graphs(row: str) -> SupportLaunch:
    return SupportLaunch(_between, {row: (RAW,)}, {"cluster": Cluster(worker=2, ps=1)})


def _on_devices(cells: tuple[SupportCell, ...]) -> support_trials.Found:
    return support_trials.on_devices(cells, {"v1 towers": support_trials_tf1.towers})


def _with_servers(cells: tuple[SupportCell, ...]) -> support_trials.Found:
    return support_trials.with_servers(cells, {"v1 in-graph": support_trials_tf1.in_graph})


def _between(task: Any, cells: tuple[SupportCell, ...]) -> support_trials.Found:
    (cell,) = cells
    return support_trials_tf1.between_graphs(task, *cell)


LAUNCHES = (
    SupportLaunch(
        _on_devices,
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
    SupportLaunch(support_trials.on_devices, {"Mirrored, 4 devices": WAYS}, {"logical_devices": 4}),
    SupportLaunch(
        support_trials.on_devices, {"Mirrored, HierarchicalCopyAllReduce, 3 devices": WAYS}, {"logical_devices": 3}
    ),
    # one strategy per process: a second one reopens the collectives, and a worker that is ahead then waits forever
    *(
        SupportLaunch(support_trials.on_workers, {f"MultiWorkerMirrored, {kind}": WAYS}, {"cluster": Cluster(worker=2)})
        for kind in ("RING", "AUTO", "NCCL on CPUs")
    ),
    SupportLaunch(
        support_trials.on_workers_devices,
        {"MultiWorkerMirrored, 2 devices a worker": WAYS},
        {"cluster": Cluster(worker=2), "logical_devices": 2},
    ),
    SupportLaunch(
        _with_servers,
        {"ParameterServer": WAYS, "ParameterServer, partitioner": WAYS, "v1 in-graph": (RAW,)},
        {"cluster": Cluster(chief=1, worker=3, ps=2)},
    ),
    between_graphs("v1 between-graph, asynchronous"),
    between_graphs("v1 between-graph, SyncReplicas"),
)

# "Distributed training with TensorFlow", guide of TensorFlow 2.0 (2019), its support table
GUIDE_2_0 = {
    "Keras API": {
        "Mirrored": "supported", "TPU": "experimental", "MultiWorkerMirrored": "experimental",
        "CentralStorage": "experimental", "ParameterServer": "planned", "OneDevice": "supported",
    },
    "Custom training loop": {
        "Mirrored": "experimental", "TPU": "experimental", "MultiWorkerMirrored": "planned",
        "CentralStorage": "planned", "ParameterServer": "not yet", "OneDevice": "supported",
    },
    "Estimator API": {
        "Mirrored": "limited", "TPU": "not supported", "MultiWorkerMirrored": "limited",
        "CentralStorage": "limited", "ParameterServer": "limited", "OneDevice": "limited",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    """The result of each cell, as (outcome, words), with the date and the versions."""

    date: str
    versions: dict[str, str]
    cells: dict[SupportCell, tuple[str, str]]

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row for row, _ in self.cells))

    def column(self, way: str) -> dict[str, tuple[str, str]]:
        return {row: found for (row, its), found in self.cells.items() if its == way}


def cells() -> tuple[SupportCell, ...]:
    """Return every cell of the support matrix, row by row, whichever launch runs it."""
    every = {cell for launch in LAUNCHES for cell in _cells(launch, WAYS)}
    return tuple(sorted(every, key=lambda cell: (_order(cell[0]), WAYS.index(cell[1]))))


def _order(row: str) -> tuple[int, str]:
    return next(k for k, kind in enumerate(KINDS) if re.split("[ ,]", row)[0] == kind), row


def _cells(launch: SupportLaunch, ways: Iterable[str]) -> tuple[SupportCell, ...]:
    return tuple((row, way) for row, those in launch.rows.items() for way in those if way in ways)


def run(ways: Iterable[str] = WAYS, launches: Iterable[SupportLaunch] = LAUNCHES) -> Matrix:
    """Run every cell of these ways, and return the matrix of results.

    Raises ValueError for an unknown way.
    """
    ways = (ways,) if isinstance(ways, str) else tuple(ways)
    for way in ways:
        if way not in WAYS:
            raise ValueError(f"support.run: expected one of {', '.join(WAYS)}, got {way!r}")

    found: support_trials.Found = {}
    for launch in launches:
        wanted = _cells(launch, ways)
        if wanted:
            found |= _launched(launch, wanted)

    ordered = {cell: found[cell] for cell in cells() if cell in found}
    return Matrix(datetime.date.today().isoformat(), _versions(), ordered)


def _launched(launch: SupportLaunch, wanted: tuple[SupportCell, ...]) -> support_trials.Found:
    try:
        run = quiet_launch(launch.fn, (wanted,), timeout_s=launch.timeout_s, **launch.way)
    except LaunchError as error:
        return dict.fromkeys(wanted, ("fails", str(error).splitlines()[0][: support_trials.TOLD]))

    tasks = [result for result in run.results if result]
    return {cell: min((task[cell] for task in tasks), key=lambda found: found[0] == "works") for cell in wanted}


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


# ---- the file --------------------------------------------------------------------------------


def save(matrix: Matrix, path: Path = RECORD) -> None:
    """Write a support matrix to its file with its date and versions, all or nothing."""
    rows = {row: {way: list(matrix.cells[row, way]) for way in WAYS if (row, way) in matrix.cells} for row in matrix.rows}
    text = json.dumps({"date": matrix.date, "versions": matrix.versions, "cells": rows}, indent=1)
    write_whole(path, text + "\n")


def recorded(path: Path | None = None) -> Matrix:
    """Return the last recorded support matrix."""
    read = json.loads((path or data.shipped(RECORD.name)).read_text(encoding="utf-8"))
    found = {(row, way): tuple(said) for row, ways in read["cells"].items() for way, said in ways.items()}
    return Matrix(read["date"], read["versions"], found)


if __name__ == "__main__":
    matrix = run()
    save(matrix)
    for (row, way), (outcome, words) in matrix.cells.items():
        print(f"{row:38} {way:16} {outcome:14} {words}")
