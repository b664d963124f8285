"""How alike the answers to one exercise are, pair by pair, and how like the course's own: numbers to look at, no verdict.

Only exercise cells are compared, each with the answers to the same exercise. What the release gave is taken off first:
every run of characters that stands in one of its code cells, or in code among its prose. What two honest answers have in
common anyway, the median of a class, is the base rate: pairs are ranked by what they share beyond it.

Comparison is copydetect's: code as a stream of tokens without names, comments and spaces, cut into all runs of `RUN`
characters (Schleimer, Wilkerson and Aiken, "Winnowing:
Local Algorithms for Document Fingerprinting", SIGMOD 2003, with a window of one, because answers are short).
Left out: the page that shows it (`similarity_page`), and any judgement.
"""

from __future__ import annotations

import heapq
import io
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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

RUN = 15  # characters; a name, a string, a function's name are one each
LEAST = 2 * RUN  # characters of one's own: fewer come from where two given pieces meet, and say nothing
SHOWN = 20  # pairs of an exercise, from the most alike down
MOST_CHARACTERS = 20_000  # of one answer: the rest is not compared
LEAST_PAIRS = 10  # of five students: a median of fewer is no base rate
_CODE_IN_PROSE = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COURSE = "the course's own answer"
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Answer:
    """A student's answer; `fingerprint` is of what is left when the release's code is taken off."""

    student: str
    fingerprint: CodeFingerprint

    @property
    def size(self) -> int:
        """Characters of the filtered code that are the answer's own."""
        return int(self.fingerprint.token_coverage)


@dataclass(frozen=True)
class SimilarAnswers:
    """Two answers. `shared` counts characters that both have, in both of them; `share` is its part of all they have."""

    one: Answer
    other: Answer
    shared: float

    @property
    def share(self) -> float:
        return self.shared / (self.one.size + self.other.size)

    def beyond(self, base: float) -> float:
        """Characters that both have beyond a `base` rate, the share that answers to this exercise have in common anyway."""
        return self.shared - base * (self.one.size + self.other.size)


@dataclass(frozen=True)
class Compared:
    """One exercise. `shares` are of every pair of students; `pairs` the most alike; `to_course` each student's."""

    lab: str
    exercise: str
    title: str
    students: int
    empty: tuple[str, ...]  # students with next to no code of their own
    shares: tuple[float, ...]
    pairs: tuple[SimilarAnswers, ...]
    to_course: dict[str, SimilarAnswers]

    @property
    def base(self) -> float:
        return base_rate(self.shares)

    @property
    def beyond(self) -> float:
        """Of the pair most alike, the characters beyond the base rate; 0 where there is no pair."""
        return self.pairs[0].beyond(self.base) if self.pairs else 0.0


@dataclass(frozen=True)
class SimilarStudents:
    """Two students over all that they wrote in a lab: the longest text there is, and so the number that says most.

    `beyond` is the sum over its exercises of characters that both have beyond the base rate.
    """

    lab: str
    one: str
    other: str
    share: float
    exercises: int  # in how many both have code of their own
    beyond: float = 0.0


@dataclass(frozen=True)
class Similarity:
    """What came of a folder. `whole` are the pairs most alike over a lab; `unread` files that could not be compared."""

    compared: tuple[Compared, ...]
    whole: tuple[SimilarStudents, ...]
    unread: tuple[str, ...]

    @property
    def first(self) -> list[tuple[Compared, SimilarAnswers]]:
        """The pairs of all exercises that share most beyond the base rate: short answers come out alike by themselves."""
        every = [(one, pair) for one in self.compared for pair in one.pairs if pair.beyond(one.base) > 0]
        return heapq.nlargest(SHOWN, every, key=lambda both: both[1].beyond(both[0].base))


class SharedSums:
    """Sums over the exercises of a lab: what each student wrote, and what each two of them share."""

    def __init__(self) -> None:
        self.sizes: Counter[str] = Counter()
        self.shared: Counter[tuple[str, str]] = Counter()
        self.exercises: Counter[tuple[str, str]] = Counter()
        self.beyond: Counter[tuple[str, str]] = Counter()

    def add(self, pair: SimilarAnswers, base: float) -> None:
        students = (pair.one.student, pair.other.student)
        self.shared[students] += pair.shared
        self.beyond[students] += pair.beyond(base)
        self.exercises[students] += 1

    def pairs(self, lab: str) -> list[SimilarStudents]:
        """The most alike."""
        found = []
        for (one, other), shared in self.shared.items():
            share = shared / (self.sizes[one] + self.sizes[other])
            exercises, beyond = self.exercises[one, other], self.beyond[one, other]
            found.append(SimilarStudents(lab=lab, one=one, other=other, share=share, exercises=exercises, beyond=beyond))
        return sorted(found, key=lambda pair: (-pair.beyond, pair.one, pair.other))[:SHOWN]


def similarity(folder: Path, root: Path | None = None, progress: OnProgress | None = None) -> Similarity:
    """How alike the answers are in all that is in `folder`, laid out as for grading: each exercise, pair by pair.

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
    """{lab: {student: {exercise: source}}}, and words about files that cannot be read."""
    papers: dict[str, dict[str, dict]] = {}
    unread = []
    for one in submissions_folder.find(folder, labs):
        try:
            if one.refused:
                raise Ungradable(one.refused)
            cells = submission.read_notebook(one.path).cells
            lab = labs.get(one.lab) or submission.lab_of(cells, labs.values())
            if lab is None:
                raise Ungradable("it is of none of the course's labs")
        except Ungradable as error:
            unread.append(f"{one.student}: {error}")
            continue

        papers.setdefault(lab.stem, {}).setdefault(one.student, submission.repair(cells, lab).sources)
    return papers, unread


# ---- one exercise ----------------------------------------------------------------------------


def compare(
    lab: CourseLab,
    exercise: Exercise,
    sources: dict[str, dict[str, str | None]],
    given: frozenset[int],
    tally: SharedSums | None = None,
) -> Compared:
    """The similarity of every pair of answers to one exercise; the pairs go into `tally` too."""
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
    for pair in pairs:
        tally.add(pair, base_rate(shares))

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
        to_course=to_course,
    )


def base_rate(shares: Sequence[float]) -> float:
    """The share that two answers to one exercise have in common anyway: the median of a class, 0 of very few students."""
    return statistics.median(shares) if len(shares) >= LEAST_PAIRS else 0.0


def pair_of(one: Answer, other: Answer) -> SimilarAnswers:
    from copydetect import compare_files

    if one.fingerprint.hashes.isdisjoint(other.fingerprint.hashes):
        return SimilarAnswers(one, other, 0.0)

    _, (of_one, of_other), _ = compare_files(one.fingerprint, other.fingerprint)
    return SimilarAnswers(one, other, float(of_one * one.size + of_other * other.size))


# ---- fingerprints ----------------------------------------------------------------------------


def given_runs(lab: CourseLab) -> frozenset[int]:
    """What similarity does not count: the hashes of all runs of characters that the release gives.

    They stand in its code cells and in the code among its prose.
    """
    blocks = [block for source in lab.given for block in _CODE_IN_PROSE.findall(source)]
    return _runs([*lab.setups, *(exercise.stub for exercise in lab.exercises), *lab.code, *blocks])


def _runs(sources: Iterable[str]) -> frozenset[int]:
    found: set[int] = set()
    for source in sources:
        found |= fingerprint(source).hashes
    return frozenset(found)


def fingerprint(source: str, given: frozenset[int] = frozenset()) -> CodeFingerprint:
    """For similarity, copydetect's fingerprint of an answer's `source`, without the runs in `given`.

    They are taken off here and not by copydetect, whose way (0.5.0) takes off a run too that a file merely has twice.
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
    """The distribution of similarity: how many pairs have their share in each tenth, the last one with its end."""
    counts = [0] * bins
    for share in shares:
        counts[min(bins - 1, int(share * bins))] += 1
    return counts
