"""Similarity as one HTML file: for each exercise the spread of all pairs, then the most alike, side by side.

Nothing in it is a link or a script, and all that students wrote, their names too, is escaped. Left out: the comparison.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from html import escape

from worldsize.grade.reports.similarity import (
    COURSE,
    LEAST,
    MOST_CHARACTERS,
    RUN,
    Compared,
    SimilarAnswers,
    Similarity,
    SimilarStudents,
    spread,
)

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Similarity</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em;
  color: #1a1a1a; background: #fff }
table { border-collapse: collapse; margin: .6em 0 } td, th { padding: .15em .8em .15em 0; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.bar { display: inline-block; height: .8em; background: #0072b2 }
.two { display: flex; gap: 1em } .two > div { flex: 1; min-width: 0 }
pre { overflow: auto; background: #f5f5f5; padding: .6em; font-size: 12.5px } mark { background: #ffe08a }
</style></head><body>
"""


def page(found: Similarity) -> str:
    """The whole HTML file that shows the similarity of answers: their spread, and the most alike side by side."""
    parts = [_HEAD, "<h1>Similarity</h1>", _preface()]
    for lab in dict.fromkeys(one.lab for one in found.compared):
        parts.append(f"<h2>{escape(lab)}</h2>")
        parts.append(_whole([pair for pair in found.whole if pair.lab == lab]))
        parts += [_exercise(one) for one in found.compared if one.lab == lab]
    if found.unread:
        parts.append("<h2>Not compared</h2>" + _list(found.unread))
    return "\n".join([*parts, "</body></html>\n"])


def lines(found: Similarity) -> list[str]:
    """A page on similarity in short, as lines for a terminal: for each exercise the median and the highest share.

    Then the pairs most alike over a whole lab, and what could not be compared.
    """
    said = []
    for one in found.compared:
        best = one.pairs[0] if one.pairs else None
        words = f"{one.lab} {one.exercise}: {len(one.shares)} pairs"
        if best:
            words += f", median {statistics.median(one.shares):.2f}, highest {best.share:.2f}"
            words += f" ({best.one.student!a} and {best.other.student!a})"
        said.append(words)
    said += [f"{p.lab}, whole lab: {p.one!a} and {p.other!a} {p.share:.2f}" for p in found.whole[:5]]
    return [*said, *(f"not compared: {words!a}" for words in found.unread)]


def _preface() -> str:
    return f"""<p>A number is the part of two answers that both have: 0 is nothing, 1 is all of it. Compared is what is left
of an exercise's cell when the release's own code is taken off, without names, comments and spaces, in runs of {RUN}
characters. So renaming and reformatting change nothing; another order of lines changes some; other code changes much.
Of an answer over {MOST_CHARACTERS:,} characters the rest is not compared.</p>
<p><strong>This proves nothing by itself.</strong> Answers here have 5 to 25 lines, and a short task has few natural
solutions: honest answers often come out alike, and even a high number may be chance. There is no threshold: none would
be right for every exercise. Look at the spread: a pair that stands apart from all others, in several exercises and over
the whole lab, is worth a talk. Where both are also near {COURSE}, they may have one source, which anyone can read, or none.
A copy that was rewritten, or mixed with other code, is not found.</p>"""


def _whole(pairs: list[SimilarStudents]) -> str:
    rows = [[_name(p.one), _name(p.other), _number(p.share), f'<td class="n">{p.exercises}</td>'] for p in pairs]
    heads = ["one", "other", "in common", "exercises of both"]
    return "<h3>Over the whole lab</h3>" + (_table(heads, rows) if rows else "<p>Fewer than two to compare.</p>")


def _exercise(one: Compared) -> str:
    said = f"{one.students} answers, {len(one.shares)} pairs"
    if one.empty:
        said += f"; {len(one.empty)} with fewer than {LEAST} characters of their own, not compared"
    parts = [f"<h3>{escape(one.title)}: {escape(one.exercise)}</h3><p>{said}.</p>"]
    if one.shares:
        parts += [_histogram(one), _pairs(one)]
    if one.to_course:
        parts.append(_course(one))
    return "\n".join(parts)


def _histogram(one: Compared) -> str:
    counts = spread(one.shares)
    most = max(counts)
    rows = [
        [f"<td>{k / 10:.1f} to {(k + 1) / 10:.1f}</td>",
         f'<td class="n">{count}</td><td><span class="bar" style="width:{round(240 * count / most)}px"></span></td>']
        for k, count in enumerate(counts)
    ]  # fmt: skip
    head = f"Median {statistics.median(one.shares):.2f}, highest {max(one.shares):.2f}."
    return f"<p>{head}</p>" + _table(["in common", "pairs", ""], rows)


def _pairs(one: Compared) -> str:
    heads = ["one", "other", "in common", "one and the course's", "other and the course's", ""]
    rows = []
    for pair in one.pairs:
        near = [_number(one.to_course[a.student].share) if one.to_course else "<td></td>" for a in (pair.one, pair.other)]
        size = f"<td>{pair.one.size} and {pair.other.size} characters</td>"
        rows.append([_name(pair.one.student), _name(pair.other.student), _number(pair.share), *near, size])
    return _table(heads, rows) + "".join(_side_by_side(pair) for pair in one.pairs if pair.shared)


def _course(one: Compared) -> str:
    best = sorted(one.to_course.values(), key=lambda pair: (-pair.share, pair.one.student))[: len(one.pairs) or 5]
    rows = [[_name(pair.one.student), _number(pair.share)] for pair in best]
    return f"<p>Nearest to {COURSE}, in <code>solutions/</code>:</p>" + _table(["student", "in common"], rows)


def _side_by_side(pair: SimilarAnswers) -> str:
    names = f"{escape(pair.one.student)} and {escape(pair.other.student)}, {pair.share:.2f}"
    codes = "".join(f"<div><pre>{code}</pre></div>" for code in _marked(pair))
    return f'<details><summary>{names}</summary><div class="two">{codes}</div></details>'


def _marked(pair: SimilarAnswers) -> Iterable[str]:
    """Both codes, escaped, with what they share marked."""
    from copydetect import compare_files
    from copydetect.utils import highlight_overlap

    prints = (pair.one.fingerprint, pair.other.fingerprint)
    _, _, slices = compare_files(*prints)
    for one, places in zip(prints, slices, strict=True):
        yield highlight_overlap(one.raw_code, places, "<mark>", "</mark>", escape_html=True)[0]


def _name(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _number(share: float) -> str:
    return f'<td class="n">{share:.2f}</td>'


def _table(heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(words)}</th>" for words in heads)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows) + "</table>"


def _list(words: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(one)}</li>" for one in words) + "</ul>"
