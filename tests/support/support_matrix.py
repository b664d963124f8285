"""The recorder of the support matrix: `make support` runs every cell and writes `datasets/support.json`."""

from __future__ import annotations

import json
from pathlib import Path

from worldsize.files import write_whole
from worldsize.tf.support import RECORD, WAYS, Matrix, run


def save(matrix: Matrix, path: Path) -> None:
    """Write a support matrix to its file with its date and versions, all or nothing."""
    rows = {row: {way: list(matrix.cells[row, way]) for way in WAYS if (row, way) in matrix.cells} for row in matrix.rows}
    text = json.dumps({"date": matrix.date, "versions": matrix.versions, "cells": rows}, indent=1)
    write_whole(path, text + "\n")


if __name__ == "__main__":
    matrix = run()
    save(matrix, RECORD)
    for (row, way), (outcome, words) in matrix.cells.items():
        print(f"{row:38} {way:16} {outcome:14} {words}")
