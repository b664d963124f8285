"""The support matrix: what came of every tf.distribute strategy with every way to train, with versions and a date.

`recorded()` reads it from `datasets/support.json`; `bench/tf_support` runs the cells. Beside it stands the table of the
TensorFlow 2.0 guide of 2019.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from worldsize import data

SupportCell = tuple[str, str]  # (row, way)
Outcome = tuple[str, str]  # ("works", "fails", "wrong" or "loses updates"; explanation)
Found = dict[SupportCell, Outcome]

RECORD = data.CHECKOUT_FOLDER / "support.json"
WAYS = ("Keras 3 fit", "tf_keras fit", "loop, variables", "loop, Keras 3", "loop, tf_keras")

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
    """The support matrix: the result of each cell, as (outcome, words), with the date and the versions."""

    date: str
    versions: dict[str, str]
    cells: Found

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row for row, _ in self.cells))

    def column(self, way: str) -> dict[str, Outcome]:
        return {row: found for (row, its), found in self.cells.items() if its == way}


def recorded(path: Path | None = None) -> Matrix:
    """Return the last recorded support matrix."""
    read = json.loads((path or data.shipped(RECORD.name)).read_text(encoding="utf-8"))
    found = {(row, way): tuple(said) for row, ways in read["cells"].items() for way, said in ways.items()}
    return Matrix(read["date"], read["versions"], found)
