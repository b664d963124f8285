"""A class's misunderstandings: exercises by cause, and predictions by their error, without any name.

A cause is the first property of a check that does not hold, with the check's sentence stripped of its case and numbers. A
misjudged question has groups of students whose predictions are off by the same factor.
"""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from worldsize import units
from worldsize.grade.marking.rows import NO_MARK, ExerciseRow, GradeRow
from worldsize.grade.reports import safe_csv
from worldsize.lab.handed_predictions import HandedPrediction
from worldsize.lab.summary import CLOSE_RATIO, compare

SAME_FACTOR = 1.05  # ratios within 5 % of each other count as one mistake
LEAST_SHARE, LEAST_MORE = 0.1, 2  # 10 % of a class and 2 more: fewer agree by chance
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?")
_FACTORS = {8: "bits for bytes, or the other way round", 1000: "one unit for the next", 1e6: "a million for one"}


@dataclass(frozen=True)
class Cause:
    """A cause for which `students` lost points: the first failed property, with an example of the check's sentence."""

    property: str
    sentence: str
    students: int


@dataclass(frozen=True)
class ExerciseMap:
    """A class's results in one exercise: counts, mean points, and the causes of failures, most frequent first."""

    lab: str
    id: str
    title: str
    students: int
    passed: int
    unwritten: int
    mean: float
    possible: float
    causes: tuple[Cause, ...]


@dataclass(frozen=True)
class FactorGroup:
    """Students of a class whose predictions, about `predicted`, are `factor` times their own measurements."""

    factor: float
    students: int
    predicted: float
    unit: str

    @property
    def words(self) -> str:
        """Return a sentence on the prediction, its error, and the usual origin of such a factor."""
        sentence = f"said about {units.number(self.predicted, self.unit)}, {compare(self.factor, 1.0)}"
        large = max(self.factor, 1 / self.factor)
        for factor, why in _FACTORS.items():
            if 1 / SAME_FACTOR < large / factor < SAME_FACTOR:
                return f"{sentence} ({why})"
        return sentence


@dataclass(frozen=True)
class QuestionMap:
    """A question on a class's map: every prediction over its student's own measurement, and groups with one wrong factor.

    `ratios` are sorted; `signless` counts predictions without a ratio, zero or of another sign. `measured` is the median.
    """

    lab: str
    id: str
    question: str
    unit: str
    measured: float
    ratios: tuple[float, ...]
    signless: int
    groups: tuple[FactorGroup, ...]

    @property
    def students(self) -> int:
        return len(self.ratios) + self.signless

    @property
    def close(self) -> int:
        """Return how many students were right to within 5 %."""
        return sum(1 / CLOSE_RATIO <= ratio <= CLOSE_RATIO for ratio in self.ratios)


@dataclass(frozen=True)
class ClassMap:
    """All exercises and questions of a class, in the order of the labs."""

    submissions: int
    students: int
    exercises: tuple[ExerciseMap, ...]
    questions: tuple[QuestionMap, ...]


def class_map(rows: Iterable[GradeRow], predictions: Iterable[Sequence[HandedPrediction]]) -> ClassMap:
    """Return the map of a class from its rows, and from the predictions of each notebook that carries some."""
    graded = [row for row in rows if row.state not in NO_MARK]
    exercises: dict[tuple[str, str], list[ExerciseRow]] = defaultdict(list)
    for row in graded:
        for exercise in row.exercises:
            exercises[row.lab, exercise.id].append(exercise)

    asked: dict[tuple[str, str], list[HandedPrediction]] = defaultdict(list)
    for notebook in predictions:
        for one in notebook:
            asked[one.lab, one.id].append(one)

    return ClassMap(
        submissions=len(graded),
        students=len({row.student for row in graded}),
        exercises=tuple(_exercise(lab, exercises[lab, name]) for lab, name in sorted(exercises, key=lambda key: key[0])),
        questions=tuple(_question(asked[key]) for key in sorted(asked, key=lambda key: key[0])),
    )


def _exercise(lab: str, rows: Sequence[ExerciseRow]) -> ExerciseMap:
    states: Counter[str] = Counter()
    by_cause: dict[tuple[str, str], list[ExerciseRow]] = defaultdict(list)
    for row in rows:
        states[row.state] += 1
        if row.state in ("pass", "not yet", "missing"):
            continue

        failed = next((one.name for one in row.properties if one.passed is False), row.state)
        # without its case and numbers, so that like mistakes compare equal
        first = _first_line(row.mismatch)
        _, _, detail = first.partition(": ")
        by_cause[failed, _NUMBER.sub("#", detail or first)].append(row)

    causes = [Cause(name, _first_line(same[0].mismatch), len(same)) for (name, _), same in by_cause.items()]
    return ExerciseMap(
        lab=lab,
        id=rows[0].id,
        title=rows[0].title,
        students=len(rows),
        passed=states["pass"],
        unwritten=states["not yet"] + states["missing"],
        mean=statistics.fmean(row.points for row in rows),
        possible=rows[0].possible,
        causes=tuple(sorted(causes, key=lambda cause: -cause.students)),
    )


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _question(asked: Sequence[HandedPrediction]) -> QuestionMap:
    pairs = sorted((one.predicted / one.measured, one.predicted) for one in asked if one.predicted * one.measured > 0)
    (question, unit), _ = Counter((one.question, one.unit) for one in asked).most_common(1)[0]

    return QuestionMap(
        lab=asked[0].lab,
        id=asked[0].id,
        question=question,
        unit=unit,
        measured=statistics.median(one.measured for one in asked),
        ratios=tuple(ratio for ratio, _ in pairs),
        signless=len(asked) - len(pairs),
        groups=tuple(_groups(pairs, len(asked), unit)),
    )


def _groups(pairs: Sequence[tuple[float, float]], students: int, unit: str) -> list[FactorGroup]:
    """Return a class's groups whose wrong predictions are off by one factor, the largest first. A pair is (ratio, predicted)."""
    least = math.ceil(LEAST_SHARE * students) + LEAST_MORE
    left = [pair for pair in pairs if not 1 / CLOSE_RATIO <= pair[0] <= CLOSE_RATIO]

    groups = []
    while True:
        best: list[tuple[float, float]] = []  # greedy: the largest group first, then the rest
        for ratio, _ in left:
            window = [pair for pair in left if ratio <= pair[0] <= ratio * SAME_FACTOR]
            best = max(best, window, key=len)
        if len(best) < least:
            return groups

        factor, predicted = (statistics.median(values) for values in zip(*best, strict=True))
        groups.append(FactorGroup(factor, len(best), predicted, unit))
        left = [pair for pair in left if pair not in best]


def as_csv(overview: ClassMap) -> str:
    """Return a class's map as CSV: a line for each cause and each group, with how many of how many students; no names."""
    rows: list[tuple[str, str, str, str, int, int]] = []
    for exercise in overview.exercises:
        rows.append((exercise.lab, "exercise", exercise.id, "every point", exercise.passed, exercise.students))
        rows.append((exercise.lab, "exercise", exercise.id, "not written", exercise.unwritten, exercise.students))
        for cause in exercise.causes:
            what = f"{cause.property}: {cause.sentence}"
            rows.append((exercise.lab, "cause", exercise.id, what, cause.students, exercise.students))

    for question in overview.questions:
        rows.append((question.lab, "question", question.id, "within 5 %", question.close, question.students))
        for group in question.groups:
            rows.append((question.lab, "factor", question.id, group.words, group.students, question.students))
    return safe_csv.text([("lab", "kind", "id", "what", "students", "of"), *(map(str, row) for row in rows)])


def lines(overview: ClassMap) -> list[str]:
    """Return a class's map in short: the exercises that fewest solved first, and the questions with a shared mistake."""
    report = [f"{units.count(overview.submissions, 'submission')} of {units.count(overview.students, 'student')}"]
    for exercise in sorted(overview.exercises, key=lambda exercise: exercise.passed / exercise.students):
        if exercise.passed < exercise.students:
            worst = f"; {exercise.causes[0].students} of them: {exercise.causes[0].property}" if exercise.causes else ""
            report.append(f"{exercise.title}: {exercise.passed} of {exercise.students} have every point{worst}")
    for question in overview.questions:
        for group in question.groups:
            report.append(f"{question.lab} {question.id}: {group.students} of {question.students} {group.words}")
    return report
