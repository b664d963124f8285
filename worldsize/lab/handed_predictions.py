"""Predictions that travel to an instructor inside a notebook, only if the student asked for it.

`lab.summary(hand_in_predictions=True)` puts the predictions into the output of its cell, as data beside the visible table.
Nothing else of a student's folder travels. `grade.reports.class_map` evaluates a whole class.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from worldsize.lab.state import is_finite_number
from worldsize.lab.summary import HANDED_IN_MIME, SummaryRow

MOST_ROWS = 200
MOST_CHARACTERS = 300


@dataclass(frozen=True)
class HandedPrediction:
    """An answered question of a lab: the predicted number and the number measured then, in `unit`."""

    lab: str  # such as "06"
    id: str
    question: str
    unit: str
    predicted: float
    measured: float


def as_data(lab: str, rows: Iterable[SummaryRow]) -> dict[str, Any]:
    """Return the summary's rows that have both numbers in one unit, as plain JSON."""
    predictions = []
    for row in rows:
        if row.predicted is None or row.measured is None or row.unit != row.measured_unit:
            continue
        predictions.append(
            {"id": row.id, "question": row.question, "unit": row.unit, "predicted": row.predicted, "measured": row.measured}
        )
    return {"lab": lab, "predictions": predictions}


def predictions_in(notebook: object) -> list[HandedPrediction]:
    """Return the predictions in a notebook (as parsed JSON), from the last summary that has some.

    The notebook is a student's, so anything but a question with two finite numbers is skipped, texts are cut, and at most
    `MOST_ROWS` rows are read.
    """
    for data in reversed(list(_outputs(notebook))):
        if not isinstance(data, dict) or not isinstance(data.get("predictions"), list):
            continue

        predictions = {}
        for row in data["predictions"][:MOST_ROWS]:
            if not isinstance(row, dict):
                continue
            texts = [data.get("lab"), row.get("id"), row.get("question"), row.get("unit")]
            numbers = [row.get("predicted"), row.get("measured")]
            if all(isinstance(text, str) for text in texts) and all(map(is_finite_number, numbers)):
                prediction = HandedPrediction(*[text[:MOST_CHARACTERS] for text in texts], *map(float, numbers))
                predictions[prediction.id] = prediction
        return list(predictions.values())
    return []


def _outputs(notebook: object) -> Iterator[object]:
    for cell in _list(notebook, "cells"):
        for output in _list(cell, "outputs"):
            data = output.get("data") if isinstance(output, dict) else None
            if isinstance(data, dict) and HANDED_IN_MIME in data:
                yield data[HANDED_IN_MIME]


def _list(holder: object, key: str) -> list:
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, list) else []
