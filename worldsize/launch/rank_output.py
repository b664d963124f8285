"""Output of a run's ranks as data: text, pictures and tables in order, and grouped where ranks put out the same.

Read from the files of a run, at its end or while they grow. `live/output_by_rank.py` renders it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worldsize import failures, units
from worldsize.engines.ranks.rich_output import TYPES
from worldsize.launch.run import Bundle, Run, without_gloo

MOST_CHARS = 20_000  # shown of a rank's text; the log has all of it
MOST_RICH_BYTES = 8_000_000  # for all pictures and tables of one cell or launch


@dataclass(frozen=True)
class Piece:
    """A piece of a rank's output: text, or a bundle by MIME type; the other is empty."""

    text: str = ""
    bundle: Bundle = ()


@dataclass(frozen=True)
class Group:
    """A group of ranks with the same output."""

    ranks: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def name(self, of: Sequence[int]) -> str:
        """Return "all 4 ranks", "ranks 0, 2" or "rank 3", given the ranks `of` that ran the cell."""
        if len(self.ranks) == len(of) and len(of) > 1:
            return f"all {len(of)} ranks" if len(of) > 2 else f"ranks {of[0]} and {of[1]}"
        return failures.names(list(self.ranks))


def groups(run: Run, ranks: Sequence[int], only_rich: bool = False) -> list[Group]:
    """Return the output of `ranks` in this run, grouped where equal, ordered by each group's first rank.

    A rank without output is in no group. With `only_rich` the text between pictures and tables is left out.
    """
    ranks_by_output: dict[tuple[Piece, ...], list[int]] = {}
    for rank in ranks:
        pieces = pieces_of(run, rank)
        if only_rich:
            pieces = tuple(piece for piece in pieces if piece.bundle)
        if pieces:
            ranks_by_output.setdefault(pieces, []).append(rank)

    made = []
    room = MOST_RICH_BYTES
    for pieces, members in ranks_by_output.items():
        kept = []
        for piece in pieces:
            size = sum(len(face) for _, face in piece.bundle)
            if size <= room:
                room -= size
                kept.append(piece)
            else:
                plain = dict(piece.bundle).get("text/plain", "")
                why = f"the pictures and tables take more than {units.size(MOST_RICH_BYTES)}"
                kept.append(Piece(text=f"{plain}\n(not shown: {why})"))
        made.append(Group(tuple(members), tuple(kept)))
    return sorted(made, key=lambda group: group.ranks)


def pieces_of(run: Run, rank: int) -> tuple[Piece, ...]:
    """Return the text and bundles that a rank put out, in order."""
    data = _read(run.log_path(rank))

    pieces: list[Piece] = []
    begun = 0
    for line in _read(run.files.of(rank, "shown")).splitlines():
        at, bundle = _shown(line)
        if not bundle:
            continue
        _add_text(pieces, data[begun:at])
        pieces.append(Piece(bundle=bundle))
        begun = max(begun, at)
    _add_text(pieces, data[begun:])
    return tuple(pieces)


def _shown(line: bytes) -> tuple[int, Bundle]:
    """Return a rank's bundle and its position in the log; (0, ()) for a malformed line."""
    kinds = (*TYPES, "text/plain")
    try:
        row = json.loads(line)
        return int(row["at"]), tuple((kind, str(row["data"][kind])) for kind in kinds if kind in row["data"])
    except (ValueError, KeyError, TypeError):
        return 0, ()


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _add_text(pieces: list[Piece], data: bytes) -> None:
    text = as_seen(without_gloo(data.decode(errors="replace")))
    if len(text) > MOST_CHARS:
        left_out = len(text) - MOST_CHARS
        half = MOST_CHARS // 2
        text = f"{text[:half]}\n… {left_out:,} characters left out: last_run().log(rank) has all …\n{text[-half:]}"
    if text.strip():
        pieces.append(Piece(text=text))


def as_seen(text: str) -> str:
    """Return output as a terminal shows it: a carriage return overwrites the line, so a progress bar keeps its last state."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


class OutputTail:
    """Reads what a running rank puts out, in order: new text of its growing log, and new bundles between the lines."""

    def __init__(self, log: Path, shown: Path, partial_lines: bool = False) -> None:
        self._log, self._shown = log, shown
        self._text = Tail(log, partial_lines)
        self._read_bytes = 0  # of the file of bundles
        self._waiting: list[tuple[int, Bundle]] = []

    def new_pieces(self, last: bool = False) -> list[Piece]:
        """Return a rank's new output; with `last` also a line without an end."""
        # the log first: a bundle whose place it has passed is then in its file
        size = self._log.stat().st_size if self._log.exists() else 0
        self._waiting += self._new_bundles()

        pieces: list[Piece] = []
        while self._waiting and (last or self._waiting[0][0] <= size):
            at, bundle = self._waiting.pop(0)
            pieces += [Piece(text=self._text.rest(at)), Piece(bundle=bundle)]
        pieces.append(Piece(text=self._text.rest() if last else self._text.new_text(size)))
        return [piece for piece in pieces if piece.text or piece.bundle]

    def _new_bundles(self) -> list[tuple[int, Bundle]]:
        if not self._shown.exists():
            return []
        with open(self._shown, "rb") as file:
            file.seek(self._read_bytes)
            lines, mark, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(lines) + len(mark)
        return [row for row in map(_shown, lines.splitlines()) if row[1]]


class Tail:
    """Reads new text of a growing output file: whole lines, or with `partial_lines` everything so far."""

    def __init__(self, path: Path, partial_lines: bool = False) -> None:
        self._path = path
        self._partial_lines = partial_lines
        self._read_bytes = 0
        self._rest = b""

    def new_text(self, until_bytes: int | None = None) -> str:
        """Return a rank's text since the last call, at most to the file's byte `until_bytes`."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read_bytes)
                data = file.read(-1 if until_bytes is None else max(0, until_bytes - self._read_bytes))
        except FileNotFoundError:
            return ""

        self._read_bytes += len(data)
        if not self._partial_lines:
            whole, mark, self._rest = (self._rest + data).rpartition(b"\n")
            return without_gloo((whole + mark).decode(errors="replace"))

        # decode everything but a character cut at the end of the data, which is kept for the next call
        text = (self._rest + data).decode(errors="surrogateescape")
        # surrogateescape maps an undecodable byte to U+DC80 … U+DCFF; a cut UTF-8 character has at most 3 bytes
        cut = len(text) - len(text.rstrip("".join(map(chr, range(0xDC80, 0xDD00)))))
        self._rest = text[len(text) - cut :].encode(errors="surrogateescape") if 0 < cut < 4 else b""
        complete = text[: len(text) - cut] if self._rest else text
        return without_gloo(complete.encode(errors="surrogateescape").decode(errors="replace"))

    def rest(self, until_bytes: int | None = None) -> str:
        """Return a rank's text since the last call, with a line or character that has no end yet."""
        text = self.new_text(until_bytes) + self._rest.decode(errors="replace")
        self._rest = b""
        return text
