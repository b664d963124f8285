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
    """A part of an answer's code on the page that is shared with the other answer, or not."""

    text: str
    shared: bool


def page(comparison: Similarity) -> str:
    """Return the HTML file on the similarity of answers."""
    return pages.render(
        "similarity.html",
        comparison=comparison,
        labs=list(dict.fromkeys(one.lab for one in comparison.compared)),
        course=COURSE,
        run=RUN,
        least=LEAST,
        most=MOST_CHARACTERS,
        spread=spread,
        median=statistics.median,
        nearest_to_course=lambda one: sorted(one.to_course.values(), key=lambda pair: (-pair.share, pair.one.student)),
        codes=_codes,
    )


def lines(comparison: Similarity) -> list[str]:
    """Return the similarity page in short, as lines for a terminal: each exercise's median and highest share.

    The exercise with most beyond its base rate comes first. Then come the most similar pairs over a whole lab, and files
    that were not compared.
    """
    report = []
    alike = [compared for compared in comparison.compared if compared.pairs and compared.pairs[0].share > 0]
    alike.sort(key=lambda compared: -compared.beyond)
    for compared in alike:
        best, pairs = compared.pairs[0], units.count(len(compared.shares), "pair")
        report.append(
            f"{compared.lab} {compared.exercise}: {pairs}, median {statistics.median(compared.shares):.2f}, "
            f"highest {best.share:.2f} ({best.one.student!r} and {best.other.student!r})"
        )

    others = len(comparison.compared) - len(alike)
    if alike and others:
        report.append(f"nothing alike in {units.count(others, 'other exercise')}")
    elif others and any(compared.pairs for compared in comparison.compared):
        report.append(f"nothing alike: no two answers share code in {units.count(others, 'exercise')}")
    elif not alike:
        report.append("nothing to compare: no exercise has answers from two students")

    for two in sorted(comparison.whole, key=lambda two: -two.beyond)[:5]:
        if two.share > 0:
            report.append(f"{two.lab}, whole lab: {two.one!r} and {two.other!r} {two.share:.2f}")
    for words in comparison.unread:
        report.append(f"not compared: {words!r}")
    return report


def _codes(pair: SimilarAnswers) -> Iterator[list[CodePiece]]:
    """Yield for the page the code of both answers, cut where shared parts begin and end."""
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
