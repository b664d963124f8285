"""Similarity as one HTML file: for each exercise the spread of all pairs, and the most similar ones side by side.

The page has no link or script, and everything that students wrote, even names, is escaped (`pages`).
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from worldsize import pages, units
from worldsize.grade.reports.similarity import (
    COURSE,
    LEAST,
    MOST_CHARACTERS,
    RUN,
    SimilarAnswers,
    Similarity,
    spread,
)


@dataclass(frozen=True)
class CodePiece:
    """A part of an answer's code that is shared with the other answer, or not."""

    text: str
    shared: bool


def page(found: Similarity) -> str:
    """Return the HTML file on the similarity of answers."""
    return pages.render(
        "similarity.html",
        found=found,
        labs=list(dict.fromkeys(one.lab for one in found.compared)),
        course=COURSE,
        run=RUN,
        least=LEAST,
        most=MOST_CHARACTERS,
        spread=spread,
        median=statistics.median,
        nearest_to_course=lambda one: sorted(one.to_course.values(), key=lambda pair: (-pair.share, pair.one.student)),
        codes=_codes,
    )


def lines(found: Similarity) -> list[str]:
    """Return the page in short, as lines for a terminal: each exercise's median and highest share.

    The exercise with most beyond its base rate comes first. Then come the most similar pairs over a whole lab, and files
    that were not compared.
    """
    said = []
    alike = [one for one in found.compared if one.pairs and one.pairs[0].share > 0]
    alike.sort(key=lambda one: -one.beyond)
    for one in alike:
        best, pairs = one.pairs[0], units.count(len(one.shares), "pair")
        said.append(
            f"{one.lab} {one.exercise}: {pairs}, median {statistics.median(one.shares):.2f}, "
            f"highest {best.share:.2f} ({best.one.student!r} and {best.other.student!r})"
        )

    others = len(found.compared) - len(alike)
    if alike and others:
        said.append(f"nothing alike in {units.count(others, 'other exercise')}")
    elif others and any(one.pairs for one in found.compared):
        said.append(f"nothing alike: no two answers share code in {units.count(others, 'exercise')}")
    elif not alike:
        said.append("nothing to compare: no exercise has answers from two students")

    for two in sorted(found.whole, key=lambda two: -two.beyond)[:5]:
        if two.share > 0:
            said.append(f"{two.lab}, whole lab: {two.one!r} and {two.other!r} {two.share:.2f}")
    for words in found.unread:
        said.append(f"not compared: {words!r}")
    return said


def _codes(pair: SimilarAnswers) -> Iterator[list[CodePiece]]:
    """Yield the code of both answers, cut where shared parts begin and end."""
    from copydetect import compare_files

    prints = (pair.one.fingerprint, pair.other.fingerprint)
    _, _, slices = compare_files(*prints)
    for one, places in zip(prints, slices, strict=True):
        code, reached = one.raw_code, 0
        pieces = []
        for start, end in places.T:  # copydetect has a row of starts and a row of ends
            pieces.append(CodePiece(code[reached:start], shared=False))
            pieces.append(CodePiece(code[start:end], shared=True))
            reached = end
        yield [*pieces, CodePiece(code[reached:], shared=False)]
