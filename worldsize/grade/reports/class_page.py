"""The page on a class's misunderstandings, without names or script: exercises by cause, predictions as rows of dots."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from worldsize import pages, units
from worldsize.grade.reports.class_map import ClassMap, QuestionMap
from worldsize.lab.summary import CLOSE_RATIO

WIDTH, DOT, TOP = 640, 5, 26
MARGIN = 0.8  # powers of ten, both ends together: room for the scale's last labels
_REACH = 3  # powers of ten to each side; dots beyond are drawn at the edge


@dataclass(frozen=True)
class DotPlace:
    """A prediction on a question's strip: its place, and whether the prediction is right to within 5 %."""

    x: float
    y: float
    right: bool


def page(found: ClassMap, again_s: int | None = None) -> str:
    """Return the HTML file on a class's misunderstandings; a browser reloads it every `again_s` seconds."""
    labs = []
    for lab in sorted({one.lab[:2] for one in found.exercises} | {one.lab[:2] for one in found.questions}):
        exercises = [one for one in found.exercises if one.lab[:2] == lab]
        labs.append((lab, exercises, [one for one in found.questions if one.lab[:2] == lab]))
    return pages.render(
        "class.html", found=found, labs=labs, strip=_strip, again_s=again_s, width=WIDTH, reach=_REACH, margin=MARGIN,
        number=units.number, count=units.count, finding=finding,
    )  # fmt: skip


def finding(one: QuestionMap) -> str:
    """Return a sentence on the strip of a question."""
    said = [f"{one.close} of {one.students} within 5 %"]
    for group in one.groups:
        said.append(f"{group.students} of {one.students} {group.words}")
    return "; ".join(said)


def _strip(one: QuestionMap) -> tuple[Sequence[DotPlace], float]:
    """Return the dots of a question, stacked by error on a log scale, and the strip's height."""
    columns: Counter[int] = Counter()
    dots = []
    for ratio in one.ratios:
        decades = math.log10(ratio)
        within = min(_REACH, max(-_REACH, decades))
        column = round((0.5 + within / (2 * _REACH + MARGIN)) * WIDTH / (2 * DOT))
        columns[column] += 1
        dots.append((column, columns[column], abs(decades) <= math.log10(CLOSE_RATIO)))

    height = TOP + 2 * DOT * max(columns.values(), default=1) + DOT
    return [DotPlace(2 * DOT * c, height - TOP - 2 * DOT * k + DOT, right) for c, k, right in dots], height
