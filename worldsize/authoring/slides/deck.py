"""A lab's slides as one self-contained page of HTML: 10 to 20 slides, from its executed solution notebook.

A part takes three slides: its question, the picture that answers it, its sentence. If that makes too many, optional parts are
left out, then headings of level 3 lose their own slides; then short texts join their picture.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jinja2.utils import markupsafe
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode

from worldsize import pages
from worldsize.authoring import covers
from worldsize.authoring.site.pages import on_the_site
from worldsize.authoring.site.thumbnails import thumbnail
from worldsize.authoring.slides.parts import AskedInClass, LabPart, joined, parts_of
from worldsize.authoring.slides.pictures import Shown, with_own_names

Markup = markupsafe.Markup
MOST = 20
MOST_LINES, LINE_LETTERS = 14, 84  # of a slide of answers
MOST_WORDS = 85  # of a slide without a picture; with more its sentence stands apart, or its lead is left to the notes
# in pixels at 1280 x 720: a picture's room, a line's height, the least text of a picture that the page can enlarge
PICTURE_WIDTH, PICTURE_HEIGHT, LINE_HEIGHT, SMALL_TEXT = 1178, 550, 32, 13.5
TOO_SMALL, AFTER_EXERCISE = 1000, 4  # times the cost

_COVER = re.compile(r"^!\[(?P<alt>[^\n]*)\]\([^)]*\)\s*$", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_ABLE = re.compile(r"^\*\*After this lab.*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Slide:
    """A slide's content from top to bottom, as HTML except `measured` and `alt`; `notes` are for the speaker."""

    heading: str
    kind: str = "part"
    lead: str = ""
    question: str = ""
    measured: str = ""
    shown: Shown | None = None
    printed: str = ""
    answer_waits: bool = False  # hide the picture or print until the speaker goes on
    sentence: str = ""
    compare: str = ""
    exercises: Sequence[str] = ()
    answers: Sequence[AskedInClass] = field(default=())
    alt: str = ""
    notes: str = ""


def deck(lab: NotebookNode, executed: NotebookNode) -> str:
    """Return the HTML of the slides of a student's `lab`, with the output of its solution's `executed` notebook.

    Raises ValueError for a code cell that was not executed.
    """
    slides = slides_of(lab, executed)
    functions = {"html": as_html, "inline": as_inline_html, "named": lambda svg, number: Markup(with_own_names(svg, number))}
    return pages.render("slides.html", title=_title(lab.cells), slides=slides, **functions)


def slides_of(lab: NotebookNode, executed: NotebookNode) -> list[Slide]:
    """Return the slides of a lab, from the title to the results."""
    opening, parts = parts_of(lab, executed)
    needed = [part for part in parts if not part.is_optional]
    for chosen in (parts, needed, joined(needed)):
        closing = list(_closing(parts, chosen))
        content = [part for part in chosen if not part.is_summary]
        apart = [(place, what) for place, part in enumerate(content) for what in _movable(part)]
        too_many = max(0, 1 + len(content) + len(apart) + len(closing) - MOST)
        apart.sort(key=lambda one: _crowding(content[one[0]], one[1]))
        moved = apart[:too_many]
        if too_many <= len(apart) / 3 and not any(_becomes_small(content[place], what) for place, what in moved):
            break

    slides = [_opening(opening, thumbnail(executed) or _bitmap(parts))]
    for place, part in enumerate(content):
        slides += _slides(part, {what for at, what in moved if at == place})
    return slides + closing


def _bitmap(parts: Sequence[LabPart]) -> str | None:
    """Return the HTML of a cover that is a bitmap; a player needs more room than a title has."""
    for part in parts:
        for _, shown in part.tagged(covers.TAG):
            if not shown.is_player:
                return shown.html
    return None


def _movable(part: LabPart) -> list[str]:
    """Return the texts of a part that may have a slide of their own: beside a picture, or where one slide would be crowded."""
    if part.picture:
        return [what for what in ("question", "sentence") if getattr(part, what)]
    if not part.sentence or not part.question:
        return []
    return ["sentence"] if part.exercises or _words(part) > MOST_WORDS else []


def _words(part: LabPart) -> int:
    """Return the number of words of a slide without a picture that has all texts of the part."""
    texts = [part.lead, *part.exercises]
    if part.question:
        texts.append(part.question.text)
    if part.sentence:
        texts += [part.sentence.text, part.sentence.compare]
    return len(" ".join(texts).split())


def _crowding(part: LabPart, what: str) -> float:
    """Return the cost of keeping a text on a slide with others: its length, a question's with its lead; more where a sentence
    would stand beside the exercise that it discusses.

    Beside a picture, times its steepness squared, and far more if the picture's text would become small.
    """
    cost = _letters(part, what)
    if what == "sentence" and part.exercises:
        cost *= AFTER_EXERCISE
    if part.picture is None:
        return cost

    _, shown = part.picture
    if shown.is_player:
        return math.inf
    return cost * shown.steepness**2 * (TOO_SMALL if _becomes_small(part, what) else 1)


def _letters(part: LabPart, what: str) -> int:
    return len(part.lead + part.question.text) if what == "question" else len(part.sentence.text + part.sentence.compare)


def _becomes_small(part: LabPart, what: str) -> bool:
    """Return whether the picture's text becomes too small for the page to enlarge if the text moves to its slide."""
    if part.picture is None:
        return False
    height = PICTURE_HEIGHT - LINE_HEIGHT * (1 + _letters(part, what) // LINE_LETTERS)
    return part.picture[1].smallest_text(PICTURE_WIDTH, height) < SMALL_TEXT


def _opening(cells: Sequence[NotebookNode], picture: str | None) -> Slide:
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    rest = _COVER.sub("", _TITLE.sub("", text, count=1))
    lead = alt = ""
    if able := _ABLE.search(text):
        lead = able[0]
        rest = rest.replace(lead, "")
    if cover := _COVER.search(text):
        alt = cover["alt"]

    shown = Shown(picture) if picture else None
    return Slide(_title(cells), "title", lead=lead, shown=shown, alt=alt, notes=rest)


def _slides(part: LabPart, together: set[str]) -> Iterator[Slide]:
    """Yield the slides of a part: question, picture, sentence; the texts in `together` stand on the slide of the others."""
    question, picture, sentence = part.question, part.picture, part.sentence
    asks = {"question": question.text, "measured": question.measured} if question else {}
    says = {"sentence": sentence.text, "compare": sentence.compare} if sentence else {}
    apart = sentence is not None and "sentence" in set(_movable(part)) - together
    after = sentence.place if apart else None
    beside = {} if apart else dict(says)

    if picture is None:
        crowded = bool(beside) and _words(part) > MOST_WORDS
        yield Slide(
            part.heading, lead="" if crowded else part.lead, printed="" if beside else part.printed, answer_waits=bool(asks),
            exercises=part.exercises, notes=part.notes(stop=after), **asks, **beside,
        )  # fmt: skip
    else:
        above = question.place if question and "question" not in together else 0
        if above:
            yield Slide(part.heading, lead=part.lead, exercises=part.exercises, notes=part.notes(stop=above), **asks)
        else:
            beside |= asks
        yield Slide(
            part.heading, shown=picture[1], answer_waits="question" in beside, exercises=() if above else part.exercises,
            notes=part.notes(above, after), **beside,
        )  # fmt: skip

    if apart:
        yield Slide(part.heading, notes=part.notes(sentence.place), **says)


def _closing(parts: Sequence[LabPart], chosen: Sequence[LabPart]) -> Iterator[Slide]:
    """Yield as many slides of the run's measurements as needed; the notes name the parts without a slide."""
    heading = next((part.heading for part in parts if part.is_summary), "What came out")
    kept = {part.heading for part in (*joined(chosen), *chosen)}
    left_out = [part.heading for part in parts if part.is_optional and part.heading not in kept]
    notes = "\n\n".join(part.notes() for part in parts if part.is_summary)
    if left_out:
        notes += f"\n\n**Without a slide:** {'; '.join(left_out)}."

    pages_of: list[list[AskedInClass]] = [[]]
    room = MOST_LINES
    for part in chosen:
        asked = part.question
        if asked is None or not asked.measured:
            continue
        lines = 1 + (len(asked.text) + len(asked.measured)) // LINE_LETTERS
        if lines > room:
            pages_of.append([])
            room = MOST_LINES
        pages_of[-1].append(asked)
        room -= lines

    for number, answers in enumerate(pages_of, 1):
        yield Slide(heading, "summary", answers=answers, notes=notes if number == len(pages_of) else "")


def _title(cells: Sequence[NotebookNode]) -> str:
    for cell in cells:
        found = _TITLE.search(cell.source) if cell.cell_type == "markdown" else None
        if found:
            return found[1]
    raise ValueError("slides: expected a lab that begins with a title, got none")


def _formula(text: str, options: dict[str, bool]) -> str:
    return convert(text, display="block" if options.get("display_mode") else "inline")


_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table").use(dollarmath_plugin, double_inline=True, renderer=_formula)


def as_html(text: str) -> Markup:
    """Convert the labs' Markdown to HTML; a link to another file becomes its text."""
    return Markup(_MARKDOWN.render(on_the_site(text, {})))


def as_inline_html(text: str) -> Markup:
    """Convert one paragraph of Markdown to HTML without the paragraph tag."""
    return Markup(_MARKDOWN.renderInline(on_the_site(text, {})))
