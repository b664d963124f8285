"""Similarity of the answers to one exercise, pair by pair and with the course's own: numbers to look at, no verdict.

Runs of characters that the release gave are not counted, and pairs of different exercises are ranked by what they share
beyond a base rate, the median of a class. copydetect compares streams of tokens, without names, comments and spaces, by all
runs of `RUN` characters (Schleimer, Wilkerson and Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD
2003, with a window of one, because answers are short).
"""

from __future__ import annotations

import heapq
import io
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from worldsize.grade import course
from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.marking import submission, submissions_folder
from worldsize.grade.marking.submission import Ungradable

if TYPE_CHECKING:
    from copydetect import CodeFingerprint

RUN = 15  # characters of the filtered code; a name or a string is one character
LEAST = 2 * RUN  # characters of an answer's own: fewer arise where two given pieces meet
SHOWN = 20  # most similar pairs of an exercise
MOST_CHARACTERS = 20_000  # compared of one answer
LEAST_PAIRS = 10  # five students: the median of fewer pairs is no base rate
_CODE_IN_PROSE = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COURSE = "the course's own answer"
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Answer:
    """A student's answer to compare; `fingerprint` leaves out the release's code."""

    student: str
    fingerprint: CodeFingerprint

    @property
    def size(self) -> int:
        """Return the number of characters, after copydetect's filter, that the release did not give."""
        return int(self.fingerprint.token_coverage)


@dataclass(frozen=True)
class SimilarAnswers:
    """Two compared answers. `shared` adds up the shared characters in both; `share` is their part of all characters of both."""

    one: Answer
    other: Answer
    shared: float

    @property
    def share(self) -> float:
        return self.shared / (self.one.size + self.other.size)

    def beyond(self, base: float) -> float:
        """Return the shared characters beyond a `base` rate, the share that any two answers have."""
        return self.shared - base * (self.one.size + self.other.size)


@dataclass(frozen=True)
class Compared:
    """An exercise: `shares` of all pairs, `pairs` with most, `longest` with most beyond the base, `to_course` by student."""

    lab: str
    exercise: str
    title: str
    students: int
    empty: tuple[str, ...]  # students with fewer than LEAST characters of their own
    shares: tuple[float, ...]
    pairs: tuple[SimilarAnswers, ...]
    longest: tuple[SimilarAnswers, ...]
    to_course: dict[str, SimilarAnswers]

    @cached_property
    def base(self) -> float:
        return base_rate(self.shares)

    @property
    def beyond(self) -> float:
        """Return the most characters that a pair has beyond the base rate; 0 without pairs."""
        return self.longest[0].beyond(self.base) if self.longest else 0.0


@dataclass(frozen=True)
class SimilarStudents:
    """Two students over all their answers in a lab: the longest text, and so the most telling number.

    `beyond` sums the characters beyond the base rate over the lab's exercises.
    """

    lab: str
    one: str
    other: str
    share: float
    exercises: int  # in which both have code of their own
    beyond: float = 0.0


@dataclass(frozen=True)
class Similarity:
    """The similarity in a folder. `whole` has the most similar pairs over a lab, `unread` files that were not compared."""

    compared: tuple[Compared, ...]
    whole: tuple[SimilarStudents, ...]
    unread: tuple[str, ...]

    @property
    def first(self) -> list[tuple[Compared, SimilarAnswers]]:
        """Return the pairs with most characters beyond the base rate, over all exercises: short answers are alike anyway."""
        every = [(one, pair) for one in self.compared for pair in one.longest if pair.beyond(one.base) > 0]
        return heapq.nlargest(SHOWN, every, key=lambda both: both[1].beyond(both[0].base))


class SharedSums:
    """Similarity's sums over a lab's exercises: each student's characters, and each pair's shared ones."""

    def __init__(self) -> None:
        self.sizes: Counter[str] = Counter()
        self.shared: Counter[tuple[str, str]] = Counter()
        self.exercises: Counter[tuple[str, str]] = Counter()
        self.beyond: Counter[tuple[str, str]] = Counter()

    def pairs(self, lab: str) -> list[SimilarStudents]:
        """Return the pairs with most characters beyond the base rate."""
        pairs = []
        for (one, other), shared in self.shared.items():
            share = shared / (self.sizes[one] + self.sizes[other])
            exercises, beyond = self.exercises[one, other], self.beyond[one, other]
            pairs.append(SimilarStudents(lab=lab, one=one, other=other, share=share, exercises=exercises, beyond=beyond))
        return sorted(pairs, key=lambda pair: (-pair.beyond, pair.one, pair.other))[:SHOWN]


def similarity(folder: Path, root: Path | None = None, progress: OnProgress | None = None) -> Similarity:
    """Compare the answers in `folder`, laid out as for grading: each exercise, pair by pair.

    Raises ValueError for a wrong folder or course, or without copydetect.
    """
    if find_spec("copydetect") is None:
        raise ValueError("similarity: expected the package copydetect, got none. Install it: pip install '.[instructor]'")

    labs = course.load((root or course.default_root()).resolve())
    papers, unread = _read(folder, labs)
    total = sum(len(labs[stem].exercises) for stem in papers)
    compared: list[Compared] = []
    whole: list[SimilarStudents] = []
    for stem in sorted(papers):
        tally = SharedSums()
        given = given_runs(labs[stem])
        for exercise in labs[stem].exercises:
            compared.append(compare(labs[stem], exercise, papers[stem], given, tally))
            if progress is not None:
                progress(len(compared), total)

        whole += tally.pairs(stem)

    return Similarity(compared=tuple(compared), whole=tuple(whole), unread=tuple(unread))


def _read(folder: Path, labs: dict[str, CourseLab]) -> tuple[dict[str, dict[str, dict]], list[str]]:
    """Return, to compare, {lab: {student: {exercise: source}}}, and messages on files that cannot be read."""
    papers: dict[str, dict[str, dict]] = {}
    unread = []
    for file in submissions_folder.find(folder, labs):
        try:
            if file.refused:
                raise Ungradable(file.refused)
            cells = submission.read_notebook(file.path).cells
            lab = labs.get(file.lab) or submission.lab_of(cells, labs.values())
            if lab is None:
                raise Ungradable("it belongs to none of the course's labs")
        except Ungradable as error:
            unread.append(f"{file.student}: {error}")
            continue

        papers.setdefault(lab.stem, {}).setdefault(file.student, submission.repair(cells, lab).sources)

    return papers, unread


def compare(
    lab: CourseLab,
    exercise: Exercise,
    sources: dict[str, dict[str, str | None]],
    given: frozenset[int],
    tally: SharedSums | None = None,
) -> Compared:
    """Return the similarity of each pair of answers to one exercise; add the pairs to `tally`."""
    tally = tally or SharedSums()
    own, empty = [], []
    for name, found in sorted(sources.items()):
        answer = Answer(name, fingerprint(found[exercise.id] or "", given))
        if answer.size < LEAST:
            empty.append(name)
        else:
            own.append(answer)
            tally.sizes[name] += answer.size

    pairs = [pair_of(one, other) for one, other in combinations(own, 2)]
    shares = tuple(pair.share for pair in pairs)
    base = base_rate(shares)
    for pair in pairs:
        students = (pair.one.student, pair.other.student)
        tally.shared[students] += pair.shared
        tally.beyond[students] += pair.beyond(base)
        tally.exercises[students] += 1

    reference = Answer(COURSE, fingerprint(exercise.reference or "", given))
    to_course = {}
    if reference.size:
        to_course = {answer.student: pair_of(answer, reference) for answer in own}

    return Compared(
        lab=lab.stem,
        exercise=exercise.id,
        title=exercise.title,
        students=len(sources),
        empty=tuple(empty),
        shares=shares,
        pairs=tuple(heapq.nlargest(SHOWN, pairs, key=lambda pair: pair.share)),
        longest=tuple(heapq.nlargest(SHOWN, pairs, key=lambda pair: pair.beyond(base))),
        to_course=to_course,
    )


def base_rate(shares: Sequence[float]) -> float:
    """Return the share that any two answers to an exercise have: the class's median, 0 for very few students."""
    return statistics.median(shares) if len(shares) >= LEAST_PAIRS else 0.0


def pair_of(answer: Answer, other: Answer) -> SimilarAnswers:
    from copydetect import compare_files

    if answer.fingerprint.hashes.isdisjoint(other.fingerprint.hashes):
        return SimilarAnswers(answer, other, 0.0)

    _, (of_answer, of_other), _ = compare_files(answer.fingerprint, other.fingerprint)
    return SimilarAnswers(answer, other, float(of_answer * answer.size + of_other * other.size))


def given_runs(lab: CourseLab) -> frozenset[int]:
    """Return the hashes of all runs in the release's code cells and in the code of its prose: they do not count."""
    sources = [*lab.setups, *(exercise.stub for exercise in lab.exercises), *lab.code]
    for source in lab.given:
        sources += _CODE_IN_PROSE.findall(source)
    return frozenset().union(*(fingerprint(source).hashes for source in sources))


def fingerprint(source: str, given: frozenset[int] = frozenset()) -> CodeFingerprint:
    """Return copydetect's fingerprint of an answer's `source`, without the runs in `given`.

    copydetect's own removal (0.5.0) also drops a run that a file merely repeats.
    """
    from copydetect import CodeFingerprint
    from copydetect.utils import get_token_coverage

    code = io.StringIO(source[:MOST_CHARACTERS])
    made = CodeFingerprint("answer.py", RUN, 1, language="python", fp=code)

    made.hash_idx = {run: places for run, places in made.hash_idx.items() if run not in given}
    made.hashes = set(made.hash_idx)
    made.token_coverage = get_token_coverage(made.hash_idx, RUN, len(made.filtered_code))
    return made


def spread(shares: Sequence[float], bins: int = 10) -> list[int]:
    """Return how many pairs have their similarity, the share, in each of `bins` equal bins; the last bin includes 1."""
    counts = [0] * bins
    for share in shares:
        counts[min(bins - 1, int(share * bins))] += 1
    return counts
