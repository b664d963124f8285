"""What stays of a run in the notebook: a picture and a small table, as plain HTML that needs no kernel and no script.

The picture is the curves of what ranks reported, else the timeline of what they did; it is kept small, since every run
of every student is saved with it. Left out: showing it, and the error of a run that failed (the launch raises that).
"""

from __future__ import annotations

import html

from worldsize import failures, units
from worldsize.figures import rank_timeline, report_curves
from worldsize.figures.base import Picture
from worldsize.launch.run import Run
from worldsize.live.run_state import RankRow, RunState

PICTURE_BYTES = 9_500  # 20 kB of saved output in all, and base64 makes 4 bytes of 3
PICTURE_DPI = 96
MOST_ROWS = 16
WORD_CHARS = 140
MARKS = {"done": "✔", "failed": "✘", "stopped": "■", "ended": "■", "not yet": "–"}
_CELL = 'style="text-align:left;vertical-align:top"'
_WRONG = 'style="background-color:#b3261e;color:#ffffff;padding:0 4px"'  # 6.5:1 within, 3:1 on both themes


def bundle(run: Run, run_state: RunState) -> dict[str, str]:
    """The result that stays of a run in the notebook: its picture and table by MIME type."""
    made = picture(run)
    rows = table(run, run_state)
    shown = "" if made is None else made.html(made.png(PICTURE_BYTES, PICTURE_DPI))
    said = "" if made is None else f"{made.alt}\n"
    return {"text/html": _folded(run, shown + _html(run, rows)), "text/plain": said + _text(run, rows)}


def _folded(run: Run, content: str) -> str:
    """One line to open where a run went well and reported nothing: the cell's own picture of it counts then."""
    if run.state != "done" or report_curves.names(run.reports):
        return content
    return f"<details><summary>{html.escape(caption(run))}: what each rank did</summary>{content}</details>"


def has_picture(run: Run) -> bool:
    """Whether a run's result gets a picture: it reported numbers, or anything of it was recorded."""
    return bool(report_curves.names(run.reports) or rank_timeline.bars(run.trace))


def picture(run: Run) -> Picture | None:
    """A run's result as a picture: the curves where there are any, else the timeline, else None.

    A timeline is drawn where anything was recorded.
    """
    if not has_picture(run):
        return None
    return report_curves.draw(run.reports, run.tasks) if report_curves.names(run.reports) else rank_timeline.timeline(run.trace)


def table(run: Run, run_state: RunState) -> list[list[str]]:
    """A run's result as cells: a row a rank under a row of heads, those that failed first.

    Columns that say nothing are left out.
    """
    how = ends(run)
    order = sorted(run_state.rows, key=lambda row: (not how[row.rank].startswith("failed"), row.rank))
    rows = [["task" if run.tasks else "rank", "end", "last report", "sent", "received", "lines"]]
    rows += [_cells(row, how[row.rank], row.name.removeprefix("rank ")) for row in order]
    used = [index for index in range(len(rows[0])) if any(row[index] not in ("", "0", "0\u00a0B") for row in rows[1:])]
    return [[row[index] for index in sorted({0, 1, *used})] for row in rows]


def _cells(row: RankRow, end: str, name: str) -> list[str]:
    told = " · ".join(filter(None, (row.place(), row.values())))
    sizes = [units.size(n).replace(" ", "\u00a0") for n in (row.sent_bytes, row.received_bytes)]
    return [name, end, told, *sizes, f"{row.lines:,}"]


def ends(run: Run) -> dict[int, str]:
    """In the table of a launch's result, how each rank ended: "done", "failed: ValueError: …"."""
    outcome = run.outcome
    whole = run.state == "done"
    found = {rank: "done" if whole else "stopped" for rank in range(run.world_size)}
    if whole and outcome:  # a server, or one that was killed on request
        found |= {rank: "ended" for rank in range(run.world_size) if rank not in outcome.notes}
    for standing in outcome.standings if outcome else ():
        doing = standing.doing or ("it was running" if standing.answered else "in native code")
        found[standing.rank] = f"stopped: {doing}"
    for failure in outcome.failures if outcome else ():
        said = failures.headline(failure, run.world_size, run.tasks).splitlines()[0]
        said = said.removeprefix(f"{failures.name(failure.rank, run.tasks)} ").removeprefix(f"of {run.world_size} ")
        said = said.removeprefix("failed first: ").removeprefix("was ")
        found[failure.rank] = "not yet" if failure.not_yet else _short(f"failed: {said}")
    return found


def _short(words: str) -> str:
    return words if len(words) <= WORD_CHARS else words[: WORD_CHARS - 1] + "…"


def caption(run: Run) -> str:
    """The result of a run in one line, over its table: how many ranks, how it ended, how long it took."""
    word = {"not yet": f"not yet: {run.not_yet}"}.get(run.state, run.state)
    return f"{units.count(run.world_size, 'task' if run.tasks else 'rank')}, {word}, {units.seconds(run.wall_s)}"


def _html(run: Run, rows: list[list[str]]) -> str:
    heads, *body = rows
    top = "".join(f'<th scope="col" {_CELL}>{head}</th>' for head in heads)
    lines = "".join(f"<tr>{_cells_html(row)}</tr>" for row in body[:MOST_ROWS])
    more = f"<p>… and {len(body) - MOST_ROWS} more ranks</p>" if len(body) > MOST_ROWS else ""
    said = html.escape(caption(run))
    return f"<table><caption>{said}</caption><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>{more}"


def _cells_html(row: list[str]) -> str:
    rank, end, *others = map(html.escape, row)
    word, colon, why = end.partition(":")
    marked = f"{MARKS.get(word, '')} {word}"
    marked = f"<strong {_WRONG}>{marked}</strong>" if word == "failed" else marked
    cells = "".join(f"<td {_CELL}>{cell}</td>" for cell in (marked + colon + why, *others))
    return f'<th scope="row" {_CELL}>{rank}</th>{cells}'


def _text(run: Run, rows: list[list[str]]) -> str:
    shown = rows[: MOST_ROWS + 1]
    widths = [max(len(row[i]) for row in shown) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in shown]
    return "\n".join(
        [caption(run), *lines, *[f"… and {len(rows) - 1 - MOST_ROWS} more ranks"] * (len(rows) > len(shown))]
    )
