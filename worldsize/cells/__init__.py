"""A notebook's cells: read them, choose those that count, and find what goes along with an answer and which answer is elsewhere.

The notebook's check and the grader share these rules; neither room is known here. Cells are text, and only `run_cell` runs one.
Import from here: `read` and the cells are in `notebook_cells`, a file's bytes in `notebook_file`, a cell as Python in
`as_python`, its statements in `cell_statements`, `chosen` in `choice`, `taken_along` in `own_cells`, `answers_elsewhere` in
`misplaced`. `released` has the release's titles and digests.
"""

from worldsize.cells.as_python import (
    DOES_NOT_PARSE,
    PythonCell,
    compile_cell,
    python_cell,
    run_cell,
    taken_out_sentence,
)
from worldsize.cells.cell_statements import Statement, breakpoint_line, names_bound, raises_not_yet, statements
from worldsize.cells.choice import ChosenCells, FoundCell, chosen, names_of, title_text, unnamed
from worldsize.cells.misplaced import AnswerElsewhere, answers_elsewhere, no_python
from worldsize.cells.notebook_cells import AskedExercise, NotebookCell, lines_of, printable, read, text
from worldsize.cells.notebook_file import CLEARED, NoNotebook
from worldsize.cells.own_cells import LeftBehind, OwnCell, TakenAlong, taken_along
from worldsize.cells.setups import SETUP, changed_setups, digest, setup_lines

__all__ = [
    "CLEARED", "DOES_NOT_PARSE", "SETUP",
    "AnswerElsewhere", "AskedExercise", "ChosenCells", "FoundCell", "LeftBehind", "NoNotebook", "NotebookCell", "OwnCell",
    "PythonCell",
    "Statement", "TakenAlong",
    "answers_elsewhere", "breakpoint_line", "changed_setups", "chosen", "compile_cell", "digest",
    "lines_of", "names_bound", "names_of", "no_python", "printable", "python_cell", "raises_not_yet", "read", "run_cell",
    "setup_lines", "statements", "taken_along", "taken_out_sentence", "text", "title_text", "unnamed",
]  # fmt: skip
