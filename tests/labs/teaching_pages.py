"""A page for each lab, for whoever teaches it: `docs/teaching/NN.md`, made from the lab's source and from wrong answers.

    python -m tests.labs.teaching_pages [--anew] [NN …]

`tests/labs/teaching/NN.toml` says by hand what to show in five minutes, and which wrong answers of `tests/checks/mutants` are
told; `NN.json` beside it keeps what the checks say of them. `--anew` asks the checks again, else only about what it lacks.
Left out: right answers, of which a test finds no line on a page.
"""

import inspect
import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.checks.mutants import Answers
from tests.support.answers import ANSWERS
from worldsize.authoring.minutes import parts, said, workload
from worldsize.authoring.source import Source, SourceCell, read_source, split_answer
from worldsize.checks import run_check
from worldsize.checks.arena import LaunchArena
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.lab.lab_list import LABS
from worldsize.titles import title_of

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).with_name("teaching")
PAGES = ROOT / "docs" / "teaching"
SOURCES = {path.stem[:2]: path for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))}
BY_EXERCISE = {answers.exercise: answers for answers in ANSWERS}
SEED = 1
FEWEST, MOST = 3, 5  # wrong answers of an exercise
UNCHOSEN = 4  # of an exercise of which the table says nothing, the first ones
CODE_CHARACTERS = 76  # of a slip's new code that is shown
SENTENCE_ENDS = (".", "?", "!", ":")

_GOALS = re.compile(r"\*\*After this lab you are able to\*\*\s+(.*?)\n\n", re.DOTALL)
_PREREQUISITES = re.compile(r"\*\*Prerequisites:\*\*\s+(.*)", re.DOTALL)
_COMPARE = re.compile(r"<details>\s*<summary>Compare</summary>(.*?)</details>", re.DOTALL)
_ASKED = re.compile(r"\*\*In one sentence:\*\*\s+(.*?)(?:\n\n|\Z)", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?]) |(?<=\$\$) (?=[A-Z])")  # a formula in a line of its own ends one, too
_HEADING = re.compile(r"^#{2,6} (.+)$", re.MULTILINE)
_CODE = re.compile(r"(`[^`\n]+`)")
_MARKUP = re.compile(r"([\\*_\[\]<>|$#~])")

Sentences = dict[str, dict[str, str]]  # by exercise and name of a wrong answer


class Shown(NamedTuple):
    """What to show in five minutes: the last heading over the cell, a line of the cell, what to ask, what is to be seen."""

    under: str
    line: str
    ask: str
    see: str


class Slip(NamedTuple):
    """A wrong answer: the name of its function, and in words what its author did."""

    name: str
    words: str


@cache
def source_of(lab: str) -> Source:
    return read_source(SOURCES[lab])


@cache
def table(lab: str) -> Mapping:
    return tomllib.loads((TABLES / f"{lab}.toml").read_text(encoding="utf-8"))


def shown(lab: str) -> Shown:
    return Shown(**table(lab)["show"])


def slips(lab: str, exercise: str) -> list[Slip]:
    """The wrong answers of an exercise that its lab's table names, or the first ones."""
    names = table(lab).get(exercise)
    if names is None:
        answers = BY_EXERCISE[exercise]
        names = {fn.__name__: "" for fn, *_ in answers.wrong if fn not in answers.chance}
        names = dict(list(names.items())[:UNCHOSEN])
    return [Slip(name, words or name.replace("_", " ").capitalize()) for name, words in names.items()]


def shown_cell(source: Source, told: Shown) -> SourceCell:
    """The cell to show. Raises ValueError where no cell, or more than one, has the line under the heading."""
    under, found = "", []
    for cell in source.cells:
        headings = _HEADING.findall(cell.text) if cell.kind == "markdown" else []
        under = headings[-1] if headings else under
        lines = map(str.strip, cell.text.split("\n"))
        if cell.kind == "code" and told.line in lines and under == told.under:
            found.append(cell)
    if len(found) != 1:
        where = f"lab {source.lab}: expected one cell under “{told.under}” with the line {told.line!r}"
        raise ValueError(f"{where}, got {len(found)}; mend {source.lab}.toml")
    return found[0]


def sentence(exercise: str, name: str) -> str:
    """What the check of an exercise says of its wrong answer, without the lines of code that it points to."""
    [fn] = [fn for fn, *_ in BY_EXERCISE[exercise].wrong if fn.__name__ == name]
    with redirect_stdout(io.StringIO()):
        try:
            verdict = run_check(exercise, SimulatedArena(SEED), fn)
        except NotPlayable:
            verdict = run_check(exercise, LaunchArena(seed=SEED), fn)
    lines = [line.strip() for line in (verdict.mismatch or "").splitlines() if line.strip() and not line.startswith("  ")]
    return " ".join(line if line.endswith(SENTENCE_ENDS) else f"{line}." for line in lines)


def kept(lab: str) -> Sentences:
    path = TABLES / f"{lab}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def judged(lab: str, known: Sentences, say: Callable[[str, str], str] = sentence) -> Sentences:
    """The sentences of a lab's wrong answers, those of them that are not `known` from their checks."""
    found: Sentences = {}
    for exercise in exercises(source_of(lab)):
        before = known.get(exercise, {})
        found[exercise] = {slip.name: before.get(slip.name) or say(exercise, slip.name) for slip in slips(lab, exercise)}
    return found


def page(lab: str, sentences: Sentences) -> str:
    """The page of a lab, in Markdown."""
    source = source_of(lab)
    parts_of_page = [
        f"# Teaching lab {lab}: {LABS[lab].title}",
        "Made from the lab and its tests by `python -m tests.labs.teaching_pages`. It holds no answers; the wrong ones are "
        "real code that the check was run on.",
        *_opening(source),
        "## In five minutes",
        *_five_minutes(source, shown(lab)),
        "## Minutes, part by part",
        *_minutes(source),
        "## Wrong answers, and what the check says",
        *_wrong(source, sentences),
        "## To discuss",
        *_discussion(source),
    ]
    return "\n\n".join(parts_of_page) + "\n"


def exercises(source: Source) -> dict[str, SourceCell]:
    return {cell.exercise: cell for cell in source.cells if cell.exercise}


def _opening(source: Source) -> Iterable[str]:
    opening = source.cells[0].text
    before = _PREREQUISITES.search(opening)
    points = sum(cell.points or 0 for cell in source.cells)
    yield f"[The lab](../../labs/{source.path.stem}.ipynb) · {said(source)} · **Points:** {points:g}"
    yield f"**After it a student is able to** {_one_line(_GOALS.search(opening)[1])}"
    if before:
        yield f"**Before it:** {_one_line(before[1])}"


def _five_minutes(source: Source, told: Shown) -> Iterable[str]:
    shown_cell(source, told)
    yield f"**Run** `solutions/{source.path.stem}.ipynb` down to “{told.under}”, and show the cell with this line:"
    yield f"```python\n{told.line.strip()}\n```"
    yield f"**Ask first:** {told.ask}"
    yield f"**Look for:** {told.see}"


def _minutes(source: Source) -> Iterable[str]:
    whole = parts(source)
    named = {name: title_of(cell.text) for name, cell in exercises(source).items()}
    optional = [part for part in whole if part.optional]
    rows = ["| part | about, minutes | exercises |", "| --- | --: | --- |"]
    if optional:
        rows = [f"{rows[0]} optional |", f"{rows[1]} --- |"]
    for part in whole:
        own = ", ".join(f"{named[name].lab}.{named[name].number}" for name in part.exercises)
        minutes = max(1, round(part.workload.exact_minutes))
        row = f"| {part.title} | {minutes} | {own} |"
        rows.append(f"{row} {'may be skipped' if part.optional else ''} |" if optional else row)
    yield "\n".join(rows)

    if optional:
        spared = round(sum(part.workload.exact_minutes for part in optional))
        yield (
            f"The lab's {workload(source).minutes} minutes are for a first reading, and without what may be skipped, which takes "
            f"{spared} more and has no points."
        )
    else:
        yield f"The lab's {workload(source).minutes} minutes are for a first reading. It has no optional part."


def _wrong(source: Source, sentences: Sentences) -> Iterable[str]:
    worth = {cell.check: cell.points for cell in source.cells if cell.check}
    for exercise, cell in exercises(source).items():
        yield f"### {title_of(cell.text).whole}"
        yield f"`{exercise}`, {worth[exercise]:g} point{'s' * (worth[exercise] != 1)}"
        rows = ["| the slip | what the check says |", "| --- | --- |"]
        for slip in slips(source.lab, exercise):
            code = _code_of(BY_EXERCISE[exercise], slip.name, split_answer(cell.text)[1])
            rows.append(f"| {_plain(slip.words)}{code} | {_plain(sentences[exercise][slip.name])} |")
        yield "\n".join(rows)


def _code_of(answers: Answers, name: str, right: list[str]) -> str:
    """What a slip writes, where that is a short line as a whole in which no line of the right answer stands; else nothing."""
    new = "".join(answers.edits.get(name, {}).values()).strip()
    [fn] = [fn for fn, *_ in answers.wrong if fn.__name__ == name]
    whole_lines = [line.strip() for line in inspect.getsource(fn).splitlines()]
    gives_away = any(line.strip() in new for line in right if line.strip())
    fits = new in whole_lines and len(new) <= CODE_CHARACTERS and not set("|`") & set(new) and new not in ("", "pass")
    return f": `{new}`" if fits and not gives_away else ""


def _discussion(source: Source) -> Iterable[str]:
    told, under, prose = 0, "", ""
    for cell in source.cells:
        if cell.kind != "markdown":
            continue
        under = (_HEADING.findall(cell.text) or [under])[-1]
        for found in _COMPARE.finditer(cell.text):
            before = cell.text[: found.start()].rpartition("</details>")[2]
            told += 1
            where = under if under.endswith(SENTENCE_ENDS) else f"{under}."
            yield f"*{where}* **{_asked(before, prose)}** {_as_markdown(found[1])}"
        prose = cell.text
    if not told:
        yield "The lab has no question of its own for this. Ask for each prediction who was farthest off, and why."


def _asked(before: str, prose: str) -> str:
    """What is to be compared: the question in the text before it, else in the prose above, with the sentence that it follows."""
    named = _ASKED.findall(before)
    if named:
        question = _one_line(named[-1])
        return question[0].upper() + question[1:]

    for text in (before, prose):
        sentences = _SENTENCE_END.split(_one_line(_HEADING.sub("", text)))
        asks = [place for place, sentence in enumerate(sentences) if sentence.endswith("?")]
        if asks:
            break
    last = asks[-1] if asks else len(sentences) - 1
    return " ".join(sentences[max(0, last - 1) : last + 1]).replace("**", "")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_markdown(html: str) -> str:
    """The text of a details element, whose only tags are those of code, stress, letters and signs."""
    return _one_line(re.sub(r"</?em>", "*", re.sub(r"</?code>", "`", html)))


def _plain(text: str) -> str:
    """Words for a cell of a table, with nothing in them taken for Markdown but code in backticks."""
    pieces = _CODE.split(_one_line(text))
    pieces[::2] = [_MARKUP.sub(r"\\\1", piece).replace("`", "\\`") for piece in pieces[::2]]
    pieces[1::2] = [piece.replace("|", "\\|") for piece in pieces[1::2]]
    return "".join(pieces)


def write(lab: str, anew: bool = False) -> None:
    """Write a lab's page, and what the checks say of its wrong answers; `anew` asks the checks again."""
    sentences = judged(lab, {} if anew else kept(lab))
    text = json.dumps(sentences, indent=1, ensure_ascii=False) + "\n"
    (TABLES / f"{lab}.json").write_text(text, encoding="utf-8")
    (PAGES / f"{lab}.md").write_text(page(lab, sentences), encoding="utf-8")


def main() -> None:
    """Write the pages of the labs that are named, else of all."""
    asked = [word for word in sys.argv[1:] if not word.startswith("-")]
    for lab in asked or SOURCES:
        write(lab, anew="--anew" in sys.argv)
        print(f"lab {lab}", flush=True)


if __name__ == "__main__":
    main()
