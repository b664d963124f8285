"""Output of one cell as data: ordered by rank, and grouped where ranks put out the same.

Read from the files of a run. `cell_view.py` renders it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worldsize import failures, units
from worldsize.engines.ranks.rich_output import TYPES
from worldsize.launch.run import Run, without_gloo

MOST_CHARS = 20_000  # shown of a rank's text; the log has all of it
MOST_RICH_BYTES = 8_000_000  # for all pictures and tables of one cell


@dataclass(frozen=True)
class Piece:
    """Text, or a bundle by MIME type; the other is empty."""

    text: str = ""
    bundle: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Group:
    """Ranks that put out the same."""

    ranks: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def name(self, of: Sequence[int]) -> str:
        """Return "all 4 ranks", "ranks 0, 2" or "rank 3", given the ranks `of` that ran the cell."""
        if len(self.ranks) == len(of) and len(of) > 1:
            return f"all {len(of)} ranks" if len(of) > 2 else f"ranks {of[0]} and {of[1]}"
        return failures.names(list(self.ranks))


def groups(run: Run, ranks: Sequence[int]) -> list[Group]:
    """Return the output of `ranks` in this run, grouped where equal, ordered by each group's first rank.

    A rank without output is in no group.
    """
    ranks_by_output: dict[tuple[Piece, ...], list[int]] = {}
    for rank in ranks:
        pieces = pieces_of(run, rank)
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
                why = f"the cell's pictures and tables take more than {units.size(MOST_RICH_BYTES)}"
                kept.append(Piece(text=f"{plain}\n(not shown: {why})"))
        made.append(Group(tuple(members), tuple(kept)))
    return sorted(made, key=lambda group: group.ranks)


def pieces_of(run: Run, rank: int) -> tuple[Piece, ...]:
    """Return the text and bundles that a rank put out, in order."""
    data = _read(run.log_path(rank))
    kinds = (*TYPES, "text/plain")

    pieces: list[Piece] = []
    begun = 0
    for line in _read(run.files.of(rank, "shown")).splitlines():
        try:
            row = json.loads(line)
            bundle = tuple((kind, str(row["data"][kind])) for kind in kinds if kind in row["data"])
            at = int(row["at"])  # in the log
        except (ValueError, KeyError, TypeError):
            continue  # a malformed line

        _add_text(pieces, data[begun:at])
        pieces.append(Piece(bundle=bundle))
        begun = max(begun, at)
    _add_text(pieces, data[begun:])
    return tuple(pieces)


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
    """Return text as a terminal shows it: a carriage return overwrites the line, so a progress bar keeps its last state."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def caption(run: Run, ranks: Sequence[int]) -> str:
    """Return the line under a cell: "4 ranks · 12 messages, 48 kB · 3.1 ms"."""
    words = [units.count(len(ranks), "rank") if len(ranks) > 1 else f"rank {ranks[0]}"]
    messages = run.trace.transfers
    if messages:
        words.append(f"{units.count(len(messages), 'message')}, {units.size(sum(m.size_bytes for m in messages))}")

    # all ranks share a collective: the first rank's calls are counted
    calls = [each for each in run.trace.collectives if each.rank == ranks[0]]
    if calls:
        words.append(units.count(len(calls), "collective"))

    if run.trace.unseen:
        words.append(run.trace.unseen)
    words.append(units.seconds(run.wall_s))
    if run.state != "done":
        words.append(run.state)
    return " · ".join(words)
