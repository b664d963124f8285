"""Check the size and form of a sandbox's report on a case that it played in simulated time.

The whole report, its messages too, was made beside a submission's code, which may have forged it.
`marking.confirmation` decides what it is worth.
"""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from worldsize.checks.arena import ArenaResult, ArenaState
from worldsize.checks.in_one_process import NotPlayable
from worldsize.failures import Wait
from worldsize.grade.frames import MAX_BLOB_BYTES, BadFrame
from worldsize.trace import Span, Trace, Transfer
from worldsize.units import text_of

MOST_MESSAGES = 60_000  # about as many as the frames of a run of real ranks can carry
MOST_WORK = 60_000
_MOST_SECONDS = 1e6
_MOST_TAG = 2**31
_SENT = {"src": np.int64, "dst": np.int64, "size_bytes": np.int64, "tag": np.int64,
         "start_s": np.float64, "end_s": np.float64, "recv_start_s": np.float64}  # fmt: skip
_WORK = {"rank": np.int64, "start_s": np.float64, "end_s": np.float64}


def arena_result(report: Any, n: int) -> ArenaResult:
    """Return the played result of a case on `n` ranks. Raises NotPlayable if the report says so, BadFrame if it is none."""
    if not isinstance(report, dict):
        raise BadFrame("expected the result of a played case")

    state, message = report.get("state"), text_of(report.get("message"))
    if state == "not playable":
        raise NotPlayable(message)
    if state not in get_args(ArenaState):
        raise BadFrame("expected a state of a played case")

    trace = Trace(n, _transfers(report.get("transfers"), n), _work(report.get("work"), n))
    if state != "done":
        return ArenaResult(state, message, trace=trace, waits=_waits(report.get("waits"), n))

    returned, inputs, unwaited = report.get("returned"), report.get("inputs"), report.get("unwaited")
    for values in (returned, inputs):
        if not isinstance(values, tuple) or len(values) != n:
            raise BadFrame(f"expected a value for each of {n} ranks")
    if not isinstance(unwaited, tuple) or not all(_is_rank(value, n) for value in unwaited):
        raise BadFrame("expected numbers of ranks")
    return ArenaResult("done", returned=returned, inputs=inputs, trace=trace, unwaited=tuple(sorted(set(unwaited))))


def _waits(rows: Any, n: int) -> tuple[Wait, ...]:
    if not isinstance(rows, tuple) or len(rows) > n:
        raise BadFrame("expected at most one wait for each rank")

    waits = []
    for row in rows:
        if not isinstance(row, tuple) or len(row) != 5:
            raise BadFrame("expected a rank's wait")
        rank, op, peer, tag, ended = row
        if not _is_rank(rank, n) or op not in ("send", "recv") or not (peer is None or _is_rank(peer, n)):
            raise BadFrame("expected a wait for a send or a receive")
        if type(tag) is not int or not 0 <= tag < _MOST_TAG:
            raise BadFrame("expected the tag of a wait")
        waits.append(Wait(rank, op, peer, tag, peer_ended=ended is True))
    return tuple(waits)


def _is_rank(value: Any, n: int) -> bool:
    return type(value) is int and 0 <= value < n


def _transfers(table: Any, n: int) -> tuple[Transfer, ...]:
    columns = _columns(table, _SENT, MOST_MESSAGES)
    for name in ("src", "dst"):
        _expect_within(columns[name], n)
    _expect_within(columns["size_bytes"], MAX_BLOB_BYTES + 1)
    _expect_within(columns["tag"], _MOST_TAG)
    if (columns["src"] == columns["dst"]).any():
        raise BadFrame("expected messages between two ranks")

    rows = zip(*(columns[name].tolist() for name in _SENT), strict=True)
    transfers = [
        Transfer(src, dst, size_bytes, start_s, end_s, tag, recv_start_s)
        for src, dst, size_bytes, tag, start_s, end_s, recv_start_s in rows
    ]
    return tuple(sorted(transfers, key=lambda t: (t.start_s, t.end_s)))


def _work(table: Any, n: int) -> tuple[Span, ...]:
    columns = _columns(table, _WORK, MOST_WORK)
    _expect_within(columns["rank"], n)

    rows = zip(*(columns[name].tolist() for name in _WORK), strict=True)
    spans = [Span(r, "compute", start, end, label=f"{end - start:g} s declared", declared=True) for r, start, end in rows]
    return tuple(sorted(spans, key=lambda span: span.start_s))


def _columns(table: Any, kinds: Mapping[str, type], most: int) -> dict[str, np.ndarray]:
    """Check that a played result's columns have one length, and each its dtype; seconds are finite and not negative."""
    if not isinstance(table, dict) or table.keys() != kinds.keys():
        raise BadFrame(f"expected the columns {', '.join(kinds)}")

    lengths = set()
    for name, kind in kinds.items():
        column = table[name]
        if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype != kind:
            raise BadFrame(f"expected a column of numbers for {name}")
        if kind is np.float64:
            _expect_within(column, _MOST_SECONDS)
        lengths.add(len(column))

    if len(lengths) != 1 or max(lengths) > most:
        raise BadFrame(f"expected columns of one length, at most {most}")
    return table


def _expect_within(column: np.ndarray, most: float) -> None:
    if not ((column >= 0) & (column < most)).all():  # a NaN fails both
        raise BadFrame(f"expected numbers from 0 to {most:g}")
