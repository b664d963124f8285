"""`%%ranks` and `%%rank` in a notebook: run the cell on ranks that stay, which open at first use.

    %%ranks 4 --link "20 MB/s, 100 us" --timeout 600
    %%rank 2

`open_world.py` opens the ranks; `definitions.py` chooses what a cell takes along.
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from worldsize.errors import RankFailed
from worldsize.launch.execute import cell_sources
from worldsize.links import Link
from worldsize.ranks import definitions
from worldsize.ranks.cell_observers import CellText
from worldsize.ranks.debugger_prompts import DebuggerPrompts
from worldsize.ranks.definitions import Cell
from worldsize.ranks.open_world import CELLS, CLOSED, OpenRanks, check_open_arguments, open_ranks, opened_last

USAGE = '%%ranks [how many] [--link "20 MB/s, 100 us"] [--timeout 600], or %%rank 2, or %%rank 0,2'
_NUMBERS = re.compile(r"\d+(,\d+)*,?")
_OPTIONS = {  # also as Python's arguments are written
    "--link": "link", "link": "link",
    "--timeout": "timeout", "--timeout_s": "timeout", "timeout": "timeout", "timeout_s": "timeout",
}  # fmt: skip
_MAGIC = re.compile(r"\A\s*%%ranks?\b")
_IN_BRACKETS = re.compile(r"(%%rank)\s*\[([\d,\s]*)\]")  # as nbdistributed writes ranks


@dataclass(frozen=True)
class Words:
    """The arguments on a magic's line, `%%ranks` or `%%rank`: numbers and options."""

    numbers: tuple[int, ...] = ()
    link: Link | None = None
    timeout_s: float | None = None


def read_words(magic: str, line: str) -> Words:
    """Parse a magic's line. Raises ValueError if it does not match `USAGE`."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ValueError(f"%%{magic} {line}: {error}. Write {USAGE}.") from None

    numbers: list[int] = []
    link: Link | None = None
    timeout_s: float | None = None
    while words:
        word = words.pop(0)
        if _NUMBERS.fullmatch(word):
            numbers += map(int, filter(None, word.split(",")))
            continue

        name, mark, value = word.partition("=")
        option = _OPTIONS.get(name if mark else word)
        if option is None or not (mark or words):
            raise ValueError(f"%%{magic}: expected {USAGE}, got {word!r}")
        value = value if mark else words.pop(0)
        if option == "link":
            link = Link(*map(str.strip, value.split(",")))
            continue
        try:
            timeout_s = float(value)
        except ValueError:
            raise ValueError(f"%%{magic} --timeout: expected a number of seconds, got {value!r}") from None

    return Words(tuple(numbers), link, timeout_s)


@contextmanager
def _told_in_a_line() -> Iterator[None]:
    """Turn a ValueError into a UsageError, which IPython shows in one line, without this package's frames."""
    from IPython.core.error import UsageError

    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


class RanksMagics:
    """The magics of one shell, and the observer that must know which ranks run the next cell."""

    def __init__(self, shell: Any, observer: CellText) -> None:
        self._shell = shell
        self._observer = observer
        self._known_cells: dict[tuple[int, str], Cell] = {}
        self._usual_debug = shell.find_line_magic("debug")

    def ranks(self, line: str, cell: str) -> None:
        """Run the cell below `%%ranks` on every rank."""
        with _told_in_a_line():
            words = read_words("ranks", line)
            many = len(words.numbers)
            if many > 1:
                raise ValueError(f"%%ranks {line}: expected one number, the number of ranks, got {many}. Write {USAGE}.")
            if words.numbers:
                check_open_arguments("%%ranks", world_size=words.numbers[0])
            world = self._world(words.numbers[0] if words.numbers else None)
            self._run(world, cell, tuple(range(world.world_size)), words)

    def rank(self, line: str, cell: str) -> None:
        """Run the cell below `%%rank` only on the ranks that the line names."""
        with _told_in_a_line():
            words = read_words("rank", line)
            if not words.numbers:
                raise ValueError(f"%%rank {line}: expected the number of a rank. Write {USAGE}.")
            self._run(self._world(None), cell, words.numbers, words)

    def debug(self, line: str) -> Any:
        """Open the debugger where the last cell on ranks raised: on the named rank, or on the first that failed. If the
        last error was the notebook's own, run IPython's `%debug`.
        """
        world = opened_last()
        if world is None or not world.is_open or not isinstance(getattr(sys, "last_value", None), RankFailed):
            return self._usual_debug(line)
        with _told_in_a_line():
            words = read_words("debug", line)
            world.debug(words.numbers[0] if words.numbers else None)

    def _world(self, world_size: int | None) -> OpenRanks:
        """Return the open ranks for a magic; open new ones if none are open, or if a different number is wanted."""
        world = opened_last()
        wanted = world_size or (world.world_size if world is not None else 4)

        if world is not None and world.is_open:
            if wanted == world.world_size:
                return world
            print(f"closing the {world.world_size} open ranks and opening {wanted} new ones")
            world.close()
        elif world is not None and wanted == world.world_size and world.why_closed != CLOSED:
            why = world.why_closed
            print(f"the ranks were no longer open ({why}): these are new ranks, without the old ranks' state")

        opened = open_ranks(wanted)
        print(opened.setup)
        self._shell.user_ns["world"] = opened
        return opened

    def _run(self, world: OpenRanks, cell: str, ranks: tuple[int, ...], words: Words) -> None:
        text = "\n" + cell  # stands for the magic's line, so that line numbers match
        try:
            compile(text, "<cell>", "exec")
        except SyntaxError as error:
            for number, line in enumerate(text.split("\n"), 1):
                if line.lstrip().startswith(("%", "!")):  # another magic
                    raise ValueError(
                        f"line {number}: ranks have no shell: expected Python, got {line.strip()!r}. Run this line in an "
                        f"ordinary notebook cell."
                    ) from None
            raise ValueError(_syntax_error(error, text)) from None

        along = definitions.along(text, self._shell.user_ns, self._cells())
        file = self._shell.compile.cache(text, self._number())
        self._observer.ranks = ranks
        world.run(text, ranks, timeout_s=words.timeout_s, link=words.link, along=along, file=file)

    def _number(self) -> int:
        """Return the running magic's cell number: its place in the history. Some shells count a cell before they run it."""
        raw = self._shell.history_manager.input_hist_raw
        return len(raw) - 1 if raw and _MAGIC.match(raw[-1]) else self._shell.execution_count

    def _cells(self) -> list[Cell]:
        """Return, for a magic, the cells that ran in the notebook itself, newest last, without cells that ran on ranks."""
        raw = self._shell.history_manager.input_hist_raw
        parsed = self._shell.history_manager.input_hist_parsed
        cells = []
        for number, (text, code) in enumerate(zip(raw, parsed, strict=False)):
            if not text.strip() or _MAGIC.match(text):
                continue

            key = number, text
            if key not in self._known_cells:  # the kernel hashes a cell's text in Python: slow for a long cell
                self._known_cells[key] = Cell(code, _file_of(code) or self._shell.compile.get_code_name(text, code, number))
            cells.append(self._known_cells[key])
        return cells[:-1] if cells and _MAGIC.match(raw[-1]) is None else cells


def _file_of(code: str) -> str:
    """Return, for a magic, the file name under which Python knows a cell's code; "" if it does not.

    The kernel makes the name from the text as typed, of which the history has lost the empty lines at the end.
    """
    code = code.rstrip("\n")
    return next((file for file, text in reversed(cell_sources()) if text.rstrip("\n") == code), "")


def _syntax_error(error: SyntaxError, text: str) -> str:
    """Return a magic cell's syntax error as text: line, message, the line's source, and a mark below the place."""
    rows = [f"line {error.lineno}: SyntaxError: {error.msg}"]
    lines = text.split("\n")
    if error.lineno and error.lineno <= len(lines):
        rows.append(f"    {lines[error.lineno - 1]}")
        if error.offset:
            rows.append(f"    {' ' * (error.offset - 1)}^")
    if "await" in str(error.msg):
        rows.append("A cell on ranks has no event loop: write asyncio.run(f()).")
    return "\n".join(rows)


def _without_brackets(lines: list[str]) -> list[str]:
    """Return a cell's lines, with `%%rank[0, 2]` as `%%rank 0,2`: IPython takes the name of a magic to end at a space."""
    found = _IN_BRACKETS.match(lines[0]) if lines else None
    if not found:
        return lines
    ranks = ",".join(re.findall(r"\d+", found[2]))
    return [f"{found[1]} {ranks}{lines[0][found.end() :]}", *lines[1:]]


def register(shell: Any, observer: CellText, ask_user: Callable[[str], str] | None) -> None:
    """Register the magics with a shell, and let `observer` show every cell on ranks.

    `ask_user` shows a prompt and returns the typed text; None if nobody can type.
    """
    magics = RanksMagics(shell, observer)
    shell.input_transformers_cleanup.insert(0, _without_brackets)
    CELLS.observers = (observer,)
    CELLS.ask = DebuggerPrompts(ask_user).ask if ask_user is not None else None
    shell.register_magic_function(magics.ranks, "cell", "ranks")
    shell.register_magic_function(magics.rank, "cell", "rank")
    shell.register_magic_function(magics.debug, "line", "debug")
