"""A lab as its student meets it: predictions typed before a run, measurements, points, the summary.

A file beside the notebook (`state`) keeps all of it, so a kernel restart loses nothing. The evidence that predicting first
helps learning is from Crouch, Fagen, Callan and Mazur, "Classroom demonstrations: learning tools or entertainment?", Am. J. Phys.
72, 2004.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import override

from worldsize import units
from worldsize.lab import seals
from worldsize.lab.course_map import CourseMap
from worldsize.lab.handed_predictions import as_data
from worldsize.lab.lab_list import LABS
from worldsize.lab.progress import map_of_course, next_lab, progress_in
from worldsize.lab.rehearsal import rehearsed
from worldsize.lab.state import LabFile, counted_points, state_folder
from worldsize.lab.summary import Score, Summary, SummaryRow

if TYPE_CHECKING:
    from worldsize.lab.prediction_field import PredictionField


class Lab:
    """A lab's predictions, measurements and points: `Lab("06")`. Raises ValueError for a number not in `LABS`."""

    def __init__(self, number: str) -> None:
        self.number = str(number).zfill(2)
        if self.number not in LABS:
            known = "; ".join(f'"{key}" {listing.title}' for key, listing in LABS.items())
            raise ValueError(
                f'there is no lab {str(number)!r}: expected one of {known}. Write, for instance, Lab("06").'
            )
        self.title, self.possible, _ = LABS[self.number]
        self._file = LabFile(state_folder() / f"lab_{self.number}.json")
        self._fields: dict[str, PredictionField] = {}

    @property
    def path(self) -> Path:
        """The path of the lab's file, which may not exist yet."""
        return self._file.path

    def predict(self, id: str, question: str, unit: str, answer: float | None = None) -> None:
        """Ask for the prediction in `unit`: a field in a live kernel. A headless run takes `answer`, else the last number."""
        if answer is not None:
            answer = _finite(answer, f"lab.predict({id!r}): answer")

        headless = os.environ.get("WORLDSIZE_HEADLESS") == "1"

        def ask(state: dict[str, Any]) -> None:
            earlier = state["predictions"].get(id, {})
            # A number typed for another unit would be a wrong answer to this question.
            value = earlier.get("value") if earlier.get("unit") == unit else None
            if headless and answer is not None:
                value = answer
            state["predictions"][id] = {"question": question, "unit": unit, "value": value}

        self._file.update(ask)
        value = self.prediction(id)
        if headless:
            said = "no prediction" if value is None else f"prediction: {units.number(value, unit)}"
            print(f"{question.replace('`', '')} {said}")
            return

        from worldsize.lab.prediction_field import PredictionField

        def save(typed: float | None) -> None:
            self._set("predictions", id, question=question, unit=unit, value=typed)

        def error() -> tuple[str, str]:
            row = _row(self._file.read(), id)
            return row.answer_html, row.answer

        self._fields[id] = PredictionField(question, unit, value, save, error)

    def measure(self, id: str, value: float | None, unit: str | None = None) -> None:
        """Keep the measurement for the prediction `id`, and say how far off the prediction was. A value of None clears the
        earlier measurement."""
        asked = self._file.read()["predictions"].get(id, {}).get("unit")
        if None not in (asked, unit) and asked != unit:
            raise ValueError(
                f"lab.measure({id!r}): expected a number in {asked!r}, as the question asks, got one in "
                f"{unit!r}. Convert it, then measure again."
            )

        if value is not None:
            value = _finite(value, f"lab.measure({id!r}): value")
        if unit is None:
            unit = asked or ""
        self._set("measurements", id, value=value, unit=unit)
        row = _row(self._file.read(), id)
        if id in self._fields:
            self._fields[id].measured()
        elif row.answer and asked is not None:
            print(f"{row.question.replace('`', '')}\n  {row.answer}")  # on one line JupyterLab would break it within a word

    def prediction(self, id: str) -> float | None:
        """Return the number predicted for `id`, or None."""
        return self._file.read()["predictions"].get(id, {}).get("value")

    def measured(self, id: str) -> float | None:
        """Return the number measured for `id`, or None."""
        return self._file.read()["measurements"].get(id, {}).get("value")

    def rehearse(self, rows: Sequence[Sequence[float]] | None, known: Sequence[float | None]) -> bool:
        """Return True if forecast rows (low, middle, high) may be sealed, and print why or why not.

        `known` holds each row's measurement, None where the truth is closed.
        """
        if rows is None:
            print("not yet: the exercise is not written")
            return False

        tried = rehearsed(rows, known)
        print(tried)
        return not tried.complaint

    def seal(
        self,
        id: str,
        rows: Sequence[Sequence[float]] | None,
        *functions: Callable,
        known: Sequence[float | None] | None = None,
    ) -> None:
        """Keep, in the lab, forecast rows before the truth is opened, with a digest of them and of the sources of `functions`.

        `rows` is None for an unwritten exercise, which seals nothing. `known` holds each row's measurement, None where the truth
        is closed: the rows (low, middle, high) are rehearsed first, refused with a reason if that fails, and only the closed rows
        are sealed. A seal not yet opened by `sealed` is replaced by a new seal and removed by a refusal.
        """
        if rows is None:
            self._refuse(id, "not yet: write the exercise, run its cell, then run this one again.")
            return
        if known is not None:
            tried = rehearsed(rows, known)
            if tried.complaint:
                self._refuse(id, f"{tried} Fix your function, run its cell, then run this one again.")
                return
            rows = [row for row, value in zip(rows, known, strict=True) if value is None]

        seal = seals.sealed_now(id, rows, functions)
        before = seals.seals_in(self._file.read(), id)
        if seal.digest not in [one.digest for one in before]:
            self._file.update(lambda state: seals.with_seal(state, id, seal))
        print(seals.words(seal, before))

    def _refuse(self, id: str, why: str) -> None:
        before, taken_back = seals.seals_in(self._file.read(), id), []
        if before:
            self._file.update(lambda state: taken_back.extend(seals.withdrawn(state, id)))
        print(seals.refused(why, before, taken_back))

    def sealed(self, id: str) -> list[tuple[float, ...]] | None:
        """Open the lab's seal `id` and return the rows of the first seal; None if nothing is sealed."""
        history = seals.seals_in(self._file.read(), id)
        if not history:
            return None
        if not history[-1].opened:
            self._file.update(lambda state: seals.opened(state, id))
        return list(history[0].numbers)

    def record(self, verdict: Any) -> None:
        """Keep a verdict's points in the lab; the latest counts, as in a grade, so a later failure lowers them."""
        earned = 0 if verdict.state == "not yet" else verdict.points
        self._set("points", verdict.exercise, earned=earned, possible=verdict.possible, state=verdict.state)

    @property
    def points(self) -> float:
        """Points of the latest checks, of `self.possible`."""
        return sum(entry["earned"] for entry in counted_points(self._file.read()).values())

    def rows(self) -> tuple[SummaryRow, ...]:
        """Return every question of the lab in the order asked, then the measurements without a question."""
        state = self._file.read()
        return tuple(_row(state, id) for id in {**state["predictions"], **state["measurements"]})

    def summary(self, hand_in_predictions: bool = False) -> Summary:
        """Return the table of predictions beside measurements, the points here and in the course, and the next lab.

        With `hand_in_predictions` the handed-in notebook carries the predictions; otherwise they stay with the student.
        """
        points = counted_points(self._file.read()).items()
        scores = tuple(Score(name, kept["earned"], kept["possible"], kept["state"]) for name, kept in points)
        course = progress_in(self.path.parent)
        return Summary(
            f"Lab {self.number}: {self.title}", self.rows(), scores, self.possible,
            course.earned, course.possible, next_lab(self.number), self.course_map(),
            as_data(self.number, self.rows()) if hand_in_predictions else None,
        )  # fmt: skip

    def course_map(self) -> CourseMap:
        """Return the course's labs with their prerequisites and the points so far; this lab is marked."""
        return map_of_course(self.path.parent, self.number)

    def _set(self, section: str, key: str, **values: Any) -> None:
        self._file.update(lambda state: state[section].setdefault(key, {}).update(values))

    @override
    def __repr__(self) -> str:
        return f"Lab {self.number}: {self.title}; points: {units.number(self.points)} of {self.possible}"

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"Lab {self.number} can't be sent to ranks; expected it to stay in the notebook. Keep `lab` out "
            "of the function that ranks run; return the value and call lab.measure after launch."
        )


def _row(state: dict[str, Any], id: str) -> SummaryRow:
    asked, found = state["predictions"].get(id, {}), state["measurements"].get(id, {})
    unit = asked.get("unit", found.get("unit", ""))
    question = asked.get("question", id)
    return SummaryRow(id, question, unit, asked.get("value"), found.get("value"), found.get("unit", unit))


def _finite(value: Any, where: str) -> float:
    """Return a measured `value` as a float, from anything that `float` takes (NumPy scalars, tensors of one element).

    Raises ValueError unless the number is finite.
    """
    try:
        result = float(value)
    except (TypeError, ValueError, RuntimeError):  # torch raises RuntimeError for a tensor of many
        result = math.nan

    if not math.isfinite(result):
        raise ValueError(f"{where}: expected one finite number, got {value!r}. Give it in the question's unit.")
    return result
