"""Where each property of each check is seen, and in whose process: the table of docs/what-earns-points.md.

`python -m tests.grade.evidence` writes the page. Properties, points and evidence are those that the exercises declare.
"""

from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import torch

from tests.support.answers import ANSWERS
from worldsize.cells.released import EXERCISES
from worldsize.checks import check_of, run_check
from worldsize.checks.kit.evidence import MESSAGES, Evidence
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.fabric import Fabric

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "what-earns-points.md"


HEAD = """# What earns points, and where it is seen

Only what is seen from outside an answer's own process earns points. This table is made from the checks; a test holds that
each of their properties is in it, and that what the answer's own process alone can see has 0 points: it is shown. "What came
back" is judged where no line of a submission runs, and the right values never enter a sandbox.

With `--unsafe` no writer is watched from outside: what a save does to its folder is then noted in the answer's own process,
and every row says that it was graded without a sandbox.

| lab | exercise | property | points | what it is judged by | whose process sees it |
| --- | --- | --- | --- | --- | --- |
"""


ALONE = """

## What messages alone earn

Messages have points of their own: they are judged also where the values are wrong, so that a mistake in a sum does not cost the
work on its messages. An answer that sends all the right messages with zeros in them, and computes nothing, earns this; the rounds
of such messages are not examined.

| lab | exercise | points |
| --- | --- | --- |
"""

class EvidenceRow(NamedTuple):
    """A property of an exercise, and where it is seen."""

    lab: str
    exercise: str
    name: str
    points: float
    seen: Evidence


def rows() -> list[EvidenceRow]:
    """A row for each property of each released exercise, in the order of the labs."""
    found = []
    for lab, exercises in EXERCISES.items():
        for exercise in exercises:
            check = check_of(exercise)
            for name, points in check.points.items():
                found.append(EvidenceRow(lab, exercise, name, points, check.seen[name]))
    return found


def collectives() -> Iterator[tuple[str, str]]:
    """Yield (lab, exercise) where messages have points and the function takes a fabric, a tensor, and at most one thing more."""
    for lab, exercises in EXERCISES.items():
        for exercise in exercises:
            check = check_of(exercise)
            messages = sum(points for name, points in check.points.items() if check.seen[name] is MESSAGES)
            takes = list(signature(_right(exercise)).parameters)
            if messages and takes[:2] == ["fabric", "x"] and len(takes) <= 3:
                yield lab, exercise


def _right(exercise: str) -> Callable:
    (right,) = (answers.right[0] for answers in ANSWERS if answers.exercise == exercise)
    return right


def messages_alone(exercise: str) -> tuple[float, float]:
    """The points of an answer that sends all messages of a right one, with zeros in them, and the exercise's points."""
    verdict = run_check(exercise, SimulatedArena(seed=7), _with_zeros(_right(exercise)))
    return verdict.points, verdict.possible


def _with_zeros(right: Callable) -> Callable:
    def sends_zeros(fabric: Fabric, x: torch.Tensor, *more: int) -> torch.Tensor:
        right(fabric, torch.zeros_like(x), *more)
        return x

    return sends_zeros


def page() -> str:
    """The page as it is to be."""
    lines = (f"| {r.lab} | `{r.exercise}` | {r.name} | {r.points:g} | {r.seen.what} | {r.seen.process} |" for r in rows())
    found = [(lab, name, *messages_alone(name)) for lab, name in collectives()]
    alone = (f"| {lab} | `{name}` | {points:g} of {possible:g} |" for lab, name, points, possible in found)
    return HEAD + "\n".join(lines) + ALONE + "\n".join(alone) + "\n"


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
