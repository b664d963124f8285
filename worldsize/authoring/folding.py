"""The folded cells of a lab: their code is hidden behind their first line, which says what they do.

Cells that begin `# Set-up: <what>` or `# Helper: <what>` are folded. So are cells that only ask for predictions: a generated
first line leaves only the question's card visible. A set-up cell whose functions an exercise needs keeps the bare line `# Set-up`
and stays open. JupyterLab shows the first line and unfolds with a click; a kernel, a grader and papermill see no difference.
"""

import ast
import re

from worldsize.authoring.source import SourceCell

PREDICTION = "# Your prediction"

_SAYS_WHAT = re.compile(r"# (Set-up|Helper): \S")


def is_folded(cell: SourceCell) -> bool:
    """Return True if the cell is folded, its code hidden at first; an exercise's or its check's never is."""
    if cell.kind != "code" or cell.exercise or cell.check:
        return False
    return _SAYS_WHAT.match(cell.text) is not None or _only_predicts(cell)


def titled(cell: SourceCell) -> str:
    """Return the cell's text as its notebook has it, with a title to fold it under if it only predicts."""
    if _only_predicts(cell):
        return f"{PREDICTION}\n{cell.text}"
    return cell.text


def _only_predicts(cell: SourceCell) -> bool:
    if cell.kind != "code" or not cell.text.startswith("lab.predict("):
        return False
    for statement in ast.parse(cell.text).body:
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return False
        if ast.unparse(statement.value.func) != "lab.predict":
            return False
    return True
