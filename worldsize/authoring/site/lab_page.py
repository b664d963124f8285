"""A lab's page on the site: the student's cells, with the outputs of a run of the solution.

Exercises and checks have no outputs, because these are the reader's work; helpers, exercises and checks are folded under their
titles. The summary shows the reader's guesses on the page. A test checks that no lab's page contains an answer.
"""

import copy
import re
from collections.abc import Iterable

import nbformat
from nbformat import NotebookNode

from worldsize.authoring.folding import PREDICTION
from worldsize.authoring.site.picture_widths import with_least_widths
from worldsize.authoring.site.questions import UNANSWERED, questions_of
from worldsize.titles import title_of

# places in which no link may begin: code, formulas, other links and pictures, headings
_NOT_PROSE = re.compile(
    r"```.*?```|`[^`\n]+`|\$\$.*?\$\$|\$[^$\n]+\$|!?\[[^\]]*\]\([^)]*\)|^#+ [^\n]*$|<[^>]+>", re.DOTALL | re.MULTILINE
)
_KNOBS = re.compile(r"^knobs\(", re.MULTILINE)
_RECORDED = '<p class="ws-recorded">The recorded run. In JupyterLab the knobs of this cell start a run with other values.</p>'
# the page's script fills it
_GUESSES = '<div class="ws-guesses"></div>'
_PLUMBING = re.compile(r"lab, check = open_lab\(")
_SUMMARY = re.compile(r"\blab\.summary\(")


def lab_page(lab: NotebookNode, executed: NotebookNode, terms: Iterable[str] = ()) -> NotebookNode:
    """Return the page of a student's `lab`, with outputs of its solution's `executed` notebook.

    The first use of each of `terms` becomes a link to the glossary; a term that is a common word, such as "stage", is linked only
    where bold or italics introduce it. Raises ValueError for a code cell that was not executed.
    """
    page = copy.deepcopy(lab)
    outputs = {cell.id: cell.get("outputs", []) for cell in executed.cells if cell.cell_type == "code"}
    unlinked = dict.fromkeys(sorted(terms, key=len, reverse=True))

    for cell in page.cells:
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source, unlinked)
        if cell.cell_type != "code":
            continue
        if cell.id not in outputs:
            raise ValueError(f"site: expected a run of the lab's current version, got none of cell {cell.id}; run it again")

        if _SUMMARY.search(cell.source):
            cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": _GUESSES})]
        elif "nbgrader" not in cell.metadata:
            cell.outputs = list(map(_light, outputs[cell.id]))
            if _KNOBS.search(cell.source) and "ws-knobs" not in str(cell.outputs):
                cell.outputs.append(nbformat.v4.new_output("display_data", {"text/html": _RECORDED}))
        _fold(cell)

    _ask(page.cells)
    return page


def _fold(cell: NotebookNode) -> None:
    """Fold a page's helper, exercise or check under a title; a cell that only asks, opens the lab or sets sizes shows no code."""
    if cell.source.startswith(PREDICTION) or _PLUMBING.match(cell.source) or "parameters" in cell.metadata.get("tags", ()):
        _tag(cell, "remove-input")
    elif "nbgrader" in cell.metadata or cell.metadata.get("jupyter", {}).get("source_hidden"):
        title = title_of(cell.source)
        if title:
            words = title.whole
        elif cell.metadata.get("nbgrader", {}).get("grade"):
            words = f"Check: {cell.id.removeprefix('check_')}"
        else:
            words = cell.source.partition("\n")[0].removeprefix("# ")
        cell.metadata["mystnb"] = dict.fromkeys(("code_prompt_show", "code_prompt_hide"), words)
        _tag(cell, "hide-input")


def _ask(cells: list[NotebookNode]) -> None:
    """Put a field's place where a lab's page would print a question, and mark the cells that answer the question."""
    for number, question in enumerate(questions_of(cells)):
        field = nbformat.v4.new_output("display_data", {"text/html": question.html(number), "text/plain": question.text})
        cells[question.asked_in].outputs.append(field)
        for place in question.answered_in:
            _tag(cells[place], f"answers-{number}")
        for output in cells[question.asked_in].outputs:
            if output.output_type == "stream":
                output.text = output.text.replace(f"{question.text} no prediction\n", "")

    for cell in cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = UNANSWERED.sub(r"\1", output.text)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("text", "kept")]


def _tag(cell: NotebookNode, tag: str) -> None:
    cell.metadata.setdefault("tags", []).append(tag)


def linked(text: str, unlinked: dict[str, None]) -> str:
    """Return a lab page's Markdown with a link at the first use of each term in `unlinked`; remove the linked terms from it."""
    for term in list(unlinked):
        found = _first(term, text)
        if found:
            del unlinked[term]
            text = f"{text[: found.start()]}{{term}}`{found[0]} <{term}>`{text[found.end() :]}"
    return text


def _first(term: str, text: str) -> re.Match[str] | None:
    hidden = [match.span() for match in _NOT_PROSE.finditer(text)]
    introduced = r"(?<=\*)" if re.fullmatch("[a-z]+", term) else ""
    for match in re.finditer(rf"{introduced}(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", text, re.IGNORECASE):
        if not any(begin <= match.start() < end for begin, end in hidden):
            return match
    return None


def _light(output: NotebookNode) -> NotebookNode:
    """Return a lab page's output without the PNG of a picture that is also an SVG; set the SVG's least width."""
    output = copy.deepcopy(output)
    data = output.get("data", {})
    if "text/html" in data:
        data.pop("image/png", None)
        data["text/html"] = with_least_widths("".join(data["text/html"]))
    return output
