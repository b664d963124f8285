"""The rules that every notebook of the course keeps, each a function from a notebook to its complaints.

An empty list means that the rule is kept. Pure functions, so that they are tested on notebooks which break
them (`test_notebook_rules.py`) and then applied to the labs (`test_notebooks.py`).
"""

import re
import statistics
from collections.abc import Iterator
from html.parser import HTMLParser

from nbformat import NotebookNode
from typing_extensions import override

from worldsize.authoring.release import leaks as leaks

MEDIAN_CODE_LINES = 10
MAX_CODE_LINES = 30
MAX_CODE_COLUMNS = 96  # as many as JupyterLab shows in a window of 1,280 pixels
MAX_PROSE_WORDS = 100
MAX_ANSWER_LINES = 25

_MARKER = re.compile(r"\s*### (BEGIN|END) SOLUTION\s*")
_DETAILS = re.compile(r"<details\b.*?</details>", re.DOTALL | re.IGNORECASE)
_OPENING = {
    '"able to"': re.compile(r"\bable to\b", re.IGNORECASE),
    "minutes": re.compile(r"\d\s+minutes\b|\bminutes\W{1,6}\d", re.IGNORECASE),
    "points": re.compile(r"(\d+(?:\.\d+)?)\s+points?\b|\bpoints\W{1,6}(\d+(?:\.\d+)?)", re.IGNORECASE),
    "prerequisites": re.compile(r"\bprerequisites?\b", re.IGNORECASE),
}


def tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", ()))


def role(cell: NotebookNode, kind: str) -> str | None:
    """The id in the tag `exercise:<id>` or `check:<id>` of a cell."""
    return next((tag.split(":", 1)[1] for tag in tags(cell) if tag.startswith(kind + ":")), None)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    """(cell, output) of every output."""
    return ((cell, output) for cell in code_cells(notebook) for output in cell.get("outputs", ()))


def text_of(output: NotebookNode) -> str:
    """What an output says: its stream, or its plain text and HTML."""
    if output.output_type == "stream":
        return output.text
    data = output.get("data", {})
    return "\n".join(data[kind] for kind in ("text/plain", "text/html") if kind in data)


def long_code(notebook: NotebookNode) -> list[str]:
    lengths = [(cell.id, _code_lines(cell.source)) for cell in code_cells(notebook)]
    said = [f"{id}: {n} lines of code, at most {MAX_CODE_LINES}" for id, n in lengths if n > MAX_CODE_LINES]
    median = statistics.median([n for _, n in lengths] or [0])
    if median > MEDIAN_CODE_LINES:
        said.append(f"median code cell: {median:g} lines, at most {MEDIAN_CODE_LINES}")
    return said


def _code_lines(source: str) -> int:
    return sum(_MARKER.fullmatch(line) is None for line in source.split("\n"))


def wide_code(notebook: NotebookNode) -> list[str]:
    """Lines of code that a window would cut, outside folded cells."""
    said = []
    for cell in code_cells(notebook):
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            continue
        for line in cell.source.split("\n"):
            if len(line) > MAX_CODE_COLUMNS:
                said.append(f"{cell.id}: {len(line)} columns, at most {MAX_CODE_COLUMNS}: {line.strip()}")
    return said


def long_prose(notebook: NotebookNode) -> list[str]:
    prose = [(cell.id, _words(cell.source)) for cell in notebook.cells if cell.cell_type == "markdown"]
    return [f"{id}: {n} words, at most {MAX_PROSE_WORDS}" for id, n in prose if n > MAX_PROSE_WORDS]


def _words(text: str) -> int:
    """Words outside <details>; a token without a letter or digit is none."""
    return sum(re.search(r"\w", token) is not None for token in _DETAILS.sub(" ", text).split())


def long_answers(answers: dict[str, list[str]]) -> list[str]:
    """`answers`: the answer's lines by exercise, without blank ones."""
    long = {id: len(lines) for id, lines in answers.items() if len(lines) > MAX_ANSWER_LINES}
    return [f"{id}: an answer of {n} lines, at most {MAX_ANSWER_LINES}" for id, n in long.items()]


def opening(notebook: NotebookNode, points: float) -> list[str]:
    """The prose before the first code cell: goals, minutes, points (the right number), prerequisites."""
    text = ""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            break
        text += cell.source + "\n"
    found = {name: pattern.search(text) for name, pattern in _OPENING.items()}
    said = [f"the opening does not say {name}" for name, match in found.items() if match is None]
    if stated := found["points"]:
        number = float(stated[1] or stated[2])
        said += [f"the opening says {number:g} points, the checks hold {points:g}"] * (number != points)
    return said


def ending(notebook: NotebookNode) -> list[str]:
    """The last cell of code is tagged `summary`, the only one to be; prose may follow."""
    summaries = [n for n, cell in enumerate(code_cells(notebook)) if "summary" in tags(cell)]
    last = len(code_cells(notebook)) - 1
    return [] if summaries == [last] else [f"cells tagged summary: {summaries}, expected the last, {last}"]


def ids(notebook: NotebookNode, lab: str) -> list[str]:
    """Cell ids: `ring` and `check_ring`, also nbgrader's; elsewhere lab, heading, ordinal."""
    said = []
    for cell in notebook.cells:
        expected = _expected_id(cell, lab)
        if not re.fullmatch(expected, cell.id):
            said.append(f"{cell.id}: expected the id {expected}")
        elif cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", cell.id) != cell.id:
            said.append(f"{cell.id}: nbgrader calls it {cell.metadata.nbgrader.grade_id}")
    every = [cell.id for cell in notebook.cells]
    return said + [f"{id}: twice" for id in sorted(set(every)) if every.count(id) > 1]


def _expected_id(cell: NotebookNode, lab: str) -> str:
    if exercise := role(cell, "exercise"):
        return re.escape(exercise)
    if checked := role(cell, "check"):
        return f"check_{re.escape(checked)}"
    return rf"{lab}-[a-z0-9-]+-\d+"


def traces_of_a_run(notebook: NotebookNode) -> list[str]:
    """Outputs, execution counts, and metadata besides the kernel's name and the language's."""
    run = [cell.id for cell in code_cells(notebook) if cell.outputs or cell.execution_count is not None]
    said = [f"{id}: has been run" for id in run]
    extra = set(notebook.metadata) - {"kernelspec", "language_info"}
    extra |= set(notebook.metadata.get("language_info", {})) - {"name"}
    return said + [f"metadata {name!r}" for name in sorted(extra)]


def errors(executed: NotebookNode) -> list[str]:
    """Error outputs, and tracebacks that something printed."""
    said = []
    for cell, output in outputs(executed):
        if output.output_type == "error":
            said.append(f"{cell.id}: {output.ename}: {output.evalue}")
        elif "Traceback (most recent call last)" in text_of(output):
            said.append(f"{cell.id}: shows a traceback")
    return said


def silent_stubs(executed: NotebookNode) -> list[str]:
    """Checks of unsolved exercises that do not say "not yet"."""
    checks = [cell for cell in code_cells(executed) if role(cell, "check")]
    return [
        f'{cell.id}: does not say "not yet"'
        for cell in checks
        if not any("not yet" in text_of(output).lower() for output in cell.outputs)
    ]


def widget_state(executed: NotebookNode) -> list[str]:
    return ["the notebook stores widget state"] if "widgets" in executed.metadata else []


def missing_alt(executed: NotebookNode) -> list[str]:
    """Pictures without alt text, and kinds of picture that are not shown everywhere."""
    said = []
    for cell, output in outputs(executed):
        data = output.get("data", {})
        images = _images(data.get("text/html", ""))
        said += [f"{cell.id}: an <img> without alt text"] * sum(not alt for alt in images)
        if "image/svg+xml" in data:
            said.append(f"{cell.id}: an SVG, which an untrusted notebook does not show")
        for kind in {"image/png", "image/jpeg"} & set(data):
            if not (_alt_of(output, kind) or any(images)):
                said.append(f"{cell.id}: {kind} without alt text")
    return said


def _alt_of(output: NotebookNode, kind: str) -> str:
    metadata = output.get("metadata", {})
    return (metadata.get(kind, {}).get("alt") or metadata.get("alt") or "").strip()


def _images(html: str) -> list[str]:
    """The alt text of each <img>, "" where it has none."""
    found: list[str] = []

    class Images(HTMLParser):
        @override
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            if tag == "img":
                found.append((dict(attributes).get("alt") or "").strip())

    Images().feed(html)
    return found
