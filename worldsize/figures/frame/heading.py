"""The text above a picture: the question that it answers, its finding, and a note on how to read it.

The caller gives the question. The finding comes from the data: from the figure's own numbers or, for a question that is
`answered`, from the cell that drew them. No sentence about a run can be written before the run.
"""

import textwrap

from matplotlib.layout_engine import ConstrainedLayoutEngine

from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings

HEAD, LINE, NOTE = tokens.TITLE_PT, tokens.QUESTION_PT, tokens.LABEL_PT
EM = 0.56  # a letter's average width in its height, rather too broad
LEADING = 1.22
TOP_IN, GAP_IN, FOOT_IN, LEFT_IN = 0.1, 0.035, 0.09, base.EDGE_IN


class AnsweredQuestion(str):
    """A question with its answer, which a picture takes in place of its own finding."""

    answer: str


def answered(question: str, answer: str | None) -> str:
    """Return a question with the answer that a cell computed from its run, for a picture's `asks`.

    Without an answer, None, the question stands alone, as over an exercise that is not written yet. Raises ValueError for
    an answer of more than twelve words, or of no word.
    """
    if answer is None:
        return question
    words = answer.split()
    if not 0 < len(words) <= findings.MOST_WORDS:
        raise ValueError(
            f"figures.answered: expected an answer of 1 to {findings.MOST_WORDS} words to {question!r}, got {len(words)}: "
            f"{answer!r}. Say what was asked, with one or two numbers; the rest is in the picture."
        )
    given = AnsweredQuestion(question)
    given.answer = findings.line(answer.strip().removesuffix("."))
    return given


def question(asks: str) -> str:
    """Return a heading's question without blanks at its ends. Raises ValueError unless it is empty or ends in "?"."""
    if asks and not asks.rstrip().endswith("?"):
        raise ValueError(
            f"a picture's asks= is {asks!r}; expected a question that ends in '?'. The picture states its finding itself, "
            "from its data: a sentence written before the run may be false after the run."
        )
    return asks.strip()


def head(picture: Picture, asks: str, finding: str, note: str = "") -> float:
    """Write question, finding and note over a picture, which grows by their height. Returns that height in inches.

    Of the finding as much is shown as a title holds (`findings.title`). Without a question, it takes its place.
    """
    finding = asks.answer if isinstance(asks, AnsweredQuestion) else findings.title(finding)
    blocks = [(question(asks), LINE, base.QUIET_INK), (finding, HEAD, base.INK), (note, NOTE, base.QUIET_INK)]

    width_in, height_in = picture.get_size_inches()
    written, y_in = [], TOP_IN
    for text, points, ink in blocks:
        if text:
            columns = int((width_in - 2 * LEFT_IN) * 72 / (EM * points))
            lines = textwrap.wrap(text, columns)
            written.append((y_in, "\n".join(lines), points, ink))
            y_in += len(lines) * points * LEADING / 72 + GAP_IN

    head_in = y_in + FOOT_IN - GAP_IN
    whole_in = height_in + head_in
    picture.set_size_inches(width_in, whole_in)
    for y_in, text, points, ink in written:
        place = LEFT_IN / width_in, 1 - y_in / whole_in
        picture.text(*place, text, fontsize=points, color=ink, va="top", linespacing=LEADING)

    engine = picture.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, height_in / whole_in))  # keep the axes below the text
    return head_in


def tell(picture: Picture, asks: str, finding: str, *parts: str) -> None:
    """Give a picture its words: question and finding for a screen reader, and the parts, "name: numbers", in a folded table."""
    shown, told = findings.title(finding), finding
    if isinstance(asks, AnsweredQuestion):
        shown = told = asks.answer
    picture.brief = _sentences(asks, told)
    picture.alt = _sentences(asks, told, *([finding] if told != finding else []), *parts)
    rows = [] if shown == finding else [finding]
    for text in filter(None, [*rows, *parts]):
        name, colon, numbers = text.partition(": ")
        picture.details.append((name, numbers) if colon else ("", text))


def _sentences(*texts: str) -> str:
    return " ".join(text if text.endswith("?") else f"{text}." for text in filter(None, texts))
