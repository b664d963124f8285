"""The result of a run in the notebook: pictures and a small table, as plain HTML without kernel or script.

The picture of a run that hung is its wait graph. Other runs have the timeline of their ranks, whose title says who holds the
others up, and the curves of their reports. Pictures are kept small, because every run of every student is saved with them.
"""

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from worldsize import failures, units
from worldsize.figures import rank_timeline, report_curves, wait_graph
from worldsize.figures.base import Picture
from worldsize.launch.run import Run
from worldsize.live.run_state import RankLife, RunState, plain

PICTURE_BYTES = 9_500  # base64 makes 4 bytes of 3; a saved output has at most 40 kB, except with many ranks
BESIDE_BYTES = 6_500  # of each of two pictures
PICTURE_SVG_BYTES = 40_000  # the curves of 24 ranks; larger pictures are PNG only, white even in a dark theme
FOLDED_CHARS = 3_000
PICTURE_DPI = 96
MOST_ROWS = 16
WORD_CHARS = 140
MARKS = {"done": "✔", "failed": "✘", "stopped": "■", "ended": "■", "not yet": "–"}
_CELL = 'style="text-align:left;vertical-align:top"'
_WRONG = 'style="background-color:#b3261e;color:#ffffff;padding:0 4px"'  # contrast 6.5:1 inside, 3:1 on both themes


def folding(run: Run, run_state: RunState, lines: Sequence[str], is_open: bool) -> dict[str, str]:
    """Return `bundle`'s result, folded under the run's summary."""
    made = bundle(run, run_state, lines)
    return {**made, "text/html": _folded(summary(run), made["text/html"], is_open)}


def summary(run: Run) -> str:
    """Return a run's result in one line: function, ranks, end, time, and what it sent."""
    trace, parts = run.trace, []
    if trace.transfers:
        parts.append(f"{units.count(len(trace.transfers), 'message')}, {units.size(trace.total_bytes())}")
    if trace.collectives:
        calls = Counter(call.rank for call in trace.collectives)
        rank, most = max(calls.items(), key=lambda item: (item[1], -item[0]))
        total = sum(call.size_bytes for call in trace.collectives if call.rank == rank)
        of = f" of {run.name(rank)}"
        if set(map(calls.get, range(run.world_size))) == {most}:
            of = ""  # every rank's
        parts.append(f"{units.count(most, 'collective')}{of}, {units.size(total)}")

    ran = f"{run.function}: {caption(run)}" if run.function else caption(run)
    return " · ".join([ran, *parts])


def bundle(run: Run, run_state: RunState, lines: Sequence[str] = ()) -> dict[str, str]:
    """Return a run's result by MIME type: picture, table, and the `lines` that it printed, folded.

    Below a picture, the table is folded too: the picture says more.
    """
    heads, rows = table(run, run_state)
    page = _html(run, heads, rows)
    text = _text(run, heads, rows)

    made = pictures(run)
    if made:
        page = _folded("what each rank did", page)
        most_bytes = PICTURE_BYTES if len(made) == 1 else BESIDE_BYTES
        drawn = [each.html(each.png(most_bytes, PICTURE_DPI), PICTURE_SVG_BYTES) for each in made]
        page = "".join([*drawn, page])
        text = "\n".join([*(each.alt for each in made), text])

    if lines:
        page += _folded("what the ranks printed", f"<pre>{html.escape(_cut(lines))}</pre>")
    return {"text/html": page, "text/plain": text}


def _folded(head: str, content: str, is_open: bool = False) -> str:
    # JupyterLab takes a focused element's keys unless the element says this
    look = 'data-lm-suppress-shortcuts="true"' + (" open" if is_open else "")
    return f"<details {look}><summary>{html.escape(head)}</summary>{content}</details>"


def _cut(lines: Sequence[str]) -> str:
    """Return a result's first lines, up to `FOLDED_CHARS` characters, and a pointer to the log if lines are missing."""
    shown, chars = [], 0
    for line in map(plain, lines):
        chars += len(line) + 1
        if chars > FOLDED_CHARS:
            return "\n".join([*shown, "… more lines: print(run.log(0))"])
        shown.append(line)
    return "\n".join(shown)


def state_of(run: Run) -> RunState:
    """Return, for a run's result, the state that a live view would have at the run's end, rebuilt from its files."""
    state = RunState(run.world_size, run.tasks, run.hosts)
    for row in state.rows:
        state.printed(row.rank, run.log(row.rank).splitlines())
        for report in run.reports[row.rank]:
            row.report(report)
        row.sent_bytes = run.trace.sent_bytes(row.rank)
        row.received_bytes = run.trace.received_bytes(row.rank)
    return state


def has_picture(run: Run) -> bool:
    """Return True if a run's result gets a picture: it hung, reported numbers, or recorded anything.

    In a run that is done, waits alone do not count, as when ranks meet in `init_process_group`.
    """
    if run.state == "not yet":
        return False
    if wait_graph.hangs(run):
        return True
    if report_curves.names(run.reports):
        return True

    kinds = {bar.kind for bar in rank_timeline.bars(run.trace)}
    if run.state == "done":
        kinds.discard("wait")
    return bool(kinds)


def pictures(run: Run) -> list[Picture]:
    """Return the pictures of a run's result: the wait graph if it hung, else the ranks' timeline, and the curves of reports.

    A run that reported has a timeline only if its ranks waited for each other.
    """
    if wait_graph.hangs(run):
        return [wait_graph.waiting(run)]
    if not has_picture(run):
        return []
    if not report_curves.names(run.reports):
        return [rank_timeline.timeline(run)]

    curves = report_curves.draw(run.reports, run.tasks, first_failed(run))
    if run.trace.transfers or run.trace.collectives:
        return [rank_timeline.timeline(run), curves]
    return [curves]


def first_failed(run: Run) -> int | None:
    """Return the rank that failed first, for the result's words; None of a run without a failure."""
    if run.state != "failed" or run.outcome is None or not run.outcome.failures:
        return None
    return run.outcome.failures[0].rank


@dataclass(frozen=True)
class RankEnd:
    """A rank's end, for the result's table; `reason` has details."""

    state: RankLife
    reason: str = ""

    @override
    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


def ends(run: Run) -> list[RankEnd]:
    """Return, for the result, how each rank ended."""
    rank_ends = [RankEnd("stopped")] * run.world_size
    if run.state == "done":
        rank_ends = [RankEnd("done")] * run.world_size
    if run.outcome is None:
        return rank_ends

    if run.state == "done":  # ranks without a result are servers, or were killed on request
        for rank in set(range(run.world_size)) - run.outcome.returned.keys():
            rank_ends[rank] = RankEnd("ended")

    for standing in run.outcome.standings:
        rank_ends[standing.rank] = RankEnd("stopped", failures.doing(standing))
    for failure in run.outcome.failures:
        if failure.not_yet:
            rank_ends[failure.rank] = RankEnd("not yet")
            continue

        words = failures.ending(failure).splitlines()[0]
        if len(words) > WORD_CHARS:
            words = words[: WORD_CHARS - 1] + "…"
        rank_ends[failure.rank] = RankEnd("failed", words)
    return rank_ends


@dataclass(frozen=True)
class TableRow:
    """A rank's row in the result's table; `more` belongs to the heads after the first two."""

    name: str
    end: RankEnd
    more: tuple[str, ...]

    def texts(self) -> list[str]:
        return [self.name, str(self.end), *self.more]


def table(run: Run, run_state: RunState) -> tuple[list[str], list[TableRow]]:
    """Return the table's heads and rows, failed ranks first. Columns that are empty or 0 in every row are left out."""
    how = ends(run)
    order = sorted(run_state.rows, key=lambda row: (how[row.rank].state != "failed", row.rank))

    columns: dict[str, list[str]] = {"host": [], "last report": [], "sent": [], "received": [], "lines": []}
    for row in order:
        texts = row.host, row.told(), _size(row.sent_bytes), _size(row.received_bytes), f"{row.lines:,}"
        for column, text in zip(columns.values(), texts, strict=True):
            column.append(text)

    heads, used = ["rank", "end"], []
    if run.tasks:
        heads[0] = "task"
    for head, column in columns.items():
        if not set(column) <= {"", "0", _size(0)}:
            heads.append(head)
            used.append(column)

    rows = []
    for place, row in enumerate(order):
        name = row.name if run.tasks else str(row.rank)
        rows.append(TableRow(name=name, end=how[row.rank], more=tuple(column[place] for column in used)))
    return heads, rows


def _size(size_bytes: int) -> str:
    return units.size(size_bytes).replace(" ", "\u00a0")


def caption(run: Run) -> str:
    """Return one line on a result: how many ranks, how it ended, and how long it took."""
    ranks = units.count(run.world_size, "task" if run.tasks else "rank")
    word: str = run.state
    if run.state == "not yet":
        word = f"not yet: {run.not_yet}"
    elif wait_graph.hangs(run):
        word = "deadlock"
    elif (failed := first_failed(run)) is not None:
        word = f"{failures.name(failed, run.tasks)} failed"
    return f"{ranks}, {word}, {units.seconds(run.wall_s)}"


def _html(run: Run, heads: list[str], rows: list[TableRow]) -> str:
    top = "".join(f'<th scope="col" {_CELL}>{head}</th>' for head in heads)
    lines = ""
    for row in rows[:MOST_ROWS]:
        end = f"{MARKS.get(row.end.state, '')} {row.end.state}"
        if row.end.state == "failed":
            end = f"<strong {_WRONG}>{end}</strong>"
        if row.end.reason:
            end += f": {html.escape(row.end.reason)}"

        cells = "".join(f"<td {_CELL}>{cell}</td>" for cell in (end, *map(html.escape, row.more)))
        lines += f'<tr><th scope="row" {_CELL}>{html.escape(row.name)}</th>{cells}</tr>'

    page = f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"
    if len(rows) > MOST_ROWS:
        page += f"<p>{_left_out(rows)}</p>"
    return page


def _text(run: Run, heads: list[str], rows: list[TableRow]) -> str:
    shown = [heads, *(row.texts() for row in rows[:MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [caption(run)]
    for row in shown:
        lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
    if len(rows) > MOST_ROWS:
        lines.append(_left_out(rows))
    return "\n".join(lines)


def _left_out(rows: list[TableRow]) -> str:
    return f"… and {len(rows) - MOST_ROWS} more ranks"
