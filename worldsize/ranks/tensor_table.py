"""`world.table("model")` and `world.differ("model")`: the tensors of a value on every rank, side by side.

Ranks with the same bytes have the same letter. `engines/ranks/tensor_rows.py` reads the tensors.
"""

import html
import itertools
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from worldsize import failures
from worldsize.engines.ranks.tensor_rows import TensorRow
from worldsize.units import count, number

MOST_ROWS = 60
MOST_RANKS = 16
_SHARDED = "sharded, nothing to compare: each rank has its own part"
_FILLS = ("transparent", "rgba(213,94,0,.28)", "rgba(0,114,178,.28)", "rgba(0,158,115,.28)", "rgba(204,121,167,.28)")


@dataclass(frozen=True)
class TensorOnRanks:
    """A tensor on all ranks: its row by rank, None for a rank without this tensor."""

    name: str
    by_rank: tuple[TensorRow | None, ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """A letter for each rank: equal for equal shape, dtype and bytes; "–" for a rank without the tensor, "·" for a shard."""
        if self.is_sharded:
            return ("·",) * len(self.by_rank)
        known: dict[tuple, str] = {}
        marks_in_letters = []
        for row in self.by_rank:
            if row is None:
                marks_in_letters.append("–")
                continue

            mark = (row.shape, row.dtype, row.digest)
            if mark not in known:  # the next letter: A to Z, then AA, AB and so on
                first, last = divmod(len(known), 26)
                before = string.ascii_uppercase[first - 1] if first else ""
                known[mark] = before + string.ascii_uppercase[last]
            marks_in_letters.append(known[mark])
        return tuple(marks_in_letters)

    @property
    def is_sharded(self) -> bool:
        """True if every rank of the table has a part of its own, so that there is nothing to compare."""
        return all(row is not None and row.is_part for row in self.by_rank)

    @property
    def same(self) -> bool:
        return self.is_sharded or len(set(self.letters)) == 1

    def words(self) -> tuple[str, str, str]:
        """Return a tensor's shape, dtype and device, each with all values that occur."""
        shapes, dtypes, devices = {}, {}, {}  # each value once, in the ranks' order
        for row in self.by_rank:
            if row is not None:
                shapes[f"{row.shape} {row.sharding}".rstrip()] = dtypes[row.dtype] = devices[row.device] = None
        return " | ".join(shapes), " | ".join(dtypes), " | ".join(devices)

    def norms(self) -> tuple[str, ...]:
        return tuple("–" if row is None else number(row.norm) for row in self.by_rank)


def rows_of(rows_by_rank: Mapping[int, Sequence[TensorRow]]) -> list[TensorOnRanks]:
    """Return the tensors of all ranks by name, in the order of the first rank that has each."""
    by_rank = [{row.name: row for row in rows} for rows in rows_by_rank.values()]
    names = dict.fromkeys(itertools.chain.from_iterable(by_rank))
    return [TensorOnRanks(name, tuple(rows.get(name) for rows in by_rank)) for name in names]


@dataclass(frozen=True)
class TensorTable:
    """The tensors of `expression` on `ranks`. `same`: whether every tensor is equal on all of them.

    `difference` is the first differing tensor's largest difference between any two ranks; None if there is none or if
    shapes differ. `left_out` is the number of tensors that were not read.
    """

    expression: str
    ranks: tuple[int, ...]
    rows: tuple[TensorOnRanks, ...]
    left_out: int = 0
    difference: float | None = None
    only_difference: bool = False

    @property
    def same(self) -> bool:
        return self.first_difference is None

    @property
    def first_difference(self) -> TensorOnRanks | None:
        return next((row for row in self.rows if not row.same), None)

    def sentence(self) -> str:
        """Return the tensor table's finding as one sentence."""
        beyond = f" ({self.left_out} more were not compared)" if self.left_out > 0 else ""
        ranks = failures.names(list(self.ranks))
        sharded = sum(row.is_sharded for row in self.rows)
        if not self.rows:
            return f"{self.expression}: no tensors on {ranks}: an optimizer may keep none, or none before its first step"
        if sharded == len(self.rows):
            return f"{self.expression}: {count(sharded, 'tensor')}, {_SHARDED}{beyond}"
        if sharded:
            beyond += f"; {sharded} more {_SHARDED}"

        tensors = count(len(self.rows) - sharded, "tensor")
        row = self.first_difference
        if row is None:
            return f"{self.expression}: {tensors}, the same on {ranks}{beyond}"

        many = sum(not row.same for row in self.rows)
        words = f"{self.expression}: {many} of {tensors} differ{'s' * (many == 1)} between ranks{beyond}; the first is {row.name}"

        if self.difference is not None:
            words += f", by at most {number(self.difference)}"
        elif len({each.shape for each in row.by_rank if each is not None}) > 1:
            words += ", whose shapes differ"
        return words

    def _shown(self) -> Sequence[TensorOnRanks]:
        if not self.only_difference:
            return self.rows
        return [row for row in self.rows if not row.same]

    @override
    def __repr__(self) -> str:
        rows = [["tensor", "shape", "dtype", "device", "same letter, same bytes", "norm by rank"]]
        for row in self._shown()[:MOST_ROWS]:
            shape, dtype, device = row.words()
            letters, norms = row.letters[:MOST_RANKS], row.norms()[:MOST_RANKS]
            equal = len(set(norms)) == 1
            rows.append([row.name, shape, dtype, device, " ".join(letters), norms[0] if equal else " ".join(norms)])

        lines = [self.sentence()]
        if len(rows) > 1:
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, *self._beyond()])

    def _beyond(self) -> list[str]:
        lines = []
        if len(self._shown()) > MOST_ROWS:
            lines.append(f"… and {len(self._shown()) - MOST_ROWS} more tensors")
        if len(self.ranks) > MOST_RANKS:
            lines.append(f"… only the first {MOST_RANKS} of {len(self.ranks)} ranks are shown")
        return lines

    def _repr_html_(self) -> str:
        ranks = self.ranks[:MOST_RANKS]
        heads = ["tensor", "shape", "dtype", "device", *(f"rank {rank}" for rank in ranks)]
        top = "".join(f'<th scope="col">{head}</th>' for head in heads)

        body = ""
        for row in self._shown()[:MOST_ROWS]:
            body += f'<tr><th scope="row" style="text-align:left">{html.escape(row.name)}</th>'
            for words in row.words():
                body += f"<td>{html.escape(words)}</td>"

            order = list(dict.fromkeys(row.letters))
            for letter, norm in list(zip(row.letters, row.norms(), strict=True))[: len(ranks)]:
                fill = _FILLS[min(order.index(letter), len(_FILLS) - 1)]
                body += f'<td style="background-color:{fill}"><b>{letter}</b> {norm}</td>'
            body += "</tr>"

        table = f'<table><caption style="text-align:left">{html.escape(self.sentence())}</caption>'
        table += f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>" if body else "</table>"
        shards = ", a dot a shard" if any(row.is_sharded for row in self._shown()) else ""
        key = f"In a row, the same letter means the same bytes{shards}. The number is the norm."
        return table + "".join(f"<p>{line}</p>" for line in (*self._beyond(), key * bool(body)))
