"""The state of a run while it goes: each rank's state, last lines, numbers and curves, all of bounded size.

`whole` is a message with everything. `news` has only changes, so that ten messages a second stay small whatever ranks
print.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from worldsize import failures, units
from worldsize.engines.job import Progress, ProgressState
from worldsize.figures import report_curves
from worldsize.figures.frame.findings import verb
from worldsize.figures.report_curves import PLACES, TOTALS, Axis, ReportCurve

LINE_CHARS = 160
SHOWN_CURVES = 3
RECENT = 0.1  # of what is known of who is waited for: the part that a look at the ranks renews, ten times a second
MOST_OF = 0.5  # of the other ranks: fewer that wait for one rank are not told
MEETING = "init_process_group"
# escape sequences of terminals, and control characters but tab and line feed
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")

RankLife = Literal["starting", "stopped", "ended"] | ProgressState


@dataclass
class RankRow:
    """The state of one rank. `doing` explains `state` in words, `short` in a word or two for a chip.

    `meets` is the framework call in which the rank waits for others, `awaits` the rank whose message it waits for; `host` is ""
    on this machine.
    """

    rank: int
    name: str
    tail: deque[str]
    keep_points: int
    host: str = ""
    state: RankLife = "starting"
    doing: str = ""
    short: str = ""
    meets: str = ""
    awaits: int | None = None
    lines: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    curves: dict[str, ReportCurve] = field(default_factory=dict)
    axis: Axis = field(default_factory=Axis)
    new_lines: int = 0
    changed: bool = True

    def report(self, report: dict[str, float]) -> None:
        self.latest |= {name: value for name, value in report.items() if name != "t"}
        self.changed = True

        x = self.axis.x(report)
        for name in report_curves.curve_names([report]):
            if name in self.curves or len(self.curves) < SHOWN_CURVES:
                self.curves.setdefault(name, ReportCurve(self.keep_points)).add(x, report[name])

    def values(self) -> str:
        """Return the latest reports in words: "loss 0.213 · accuracy 0.9"."""
        names = report_curves.curve_names([self.latest])
        return " · ".join(f"{name} {units.number(self.latest[name])}" for name in names)

    def told(self) -> str:
        """Return place and values: "epoch 2 of 3 · step 40 · loss 0.213"."""
        return " · ".join(filter(None, (self.place(), self.values())))

    def place(self) -> str:
        """Return the rank's progress: "epoch 2 of 3 · step 40"."""
        parts = []
        for name in reversed(PLACES):
            if name in self.latest:
                total = self.latest.get(TOTALS[name])
                of = "" if total is None else f" of {units.number(total)}"
                parts.append(f"{name} {units.number(self.latest[name])}{of}")

        return " · ".join(parts)


class RunState:
    """The state of all ranks of one run."""

    def __init__(self, world_size: int, tasks: failures.TaskNames = (), hosts: Sequence[str] = ()) -> None:
        lines = max(3, min(40, 400 // world_size))
        points = max(64, min(1000, 8000 // world_size))

        self.rows: list[RankRow] = []
        for rank in range(world_size):
            row = RankRow(rank, name=failures.name(rank, tasks), tail=deque(maxlen=lines), keep_points=points)
            if hosts:
                row.host = hosts[rank]
            self.rows.append(row)
        self._waiters = dict.fromkeys(range(world_size), 0.0)  # by rank: how many others waited for it lately, on average

    @property
    def changed(self) -> bool:
        return any(row.changed for row in self.rows)

    def printed(self, rank: int, lines: Sequence[str]) -> None:
        row = self.rows[rank]
        row.changed = True
        row.lines += len(lines)
        row.new_lines = min(row.new_lines + len(lines), row.tail.maxlen)  # older lines are gone
        row.tail.extend(plain(line) for line in lines[-row.tail.maxlen :])

    def progressed(self, progress: Progress) -> None:
        """Take into the state a rank's news, except for reports, which its row takes one by one."""
        row = self.rows[progress.rank]
        row.sent_bytes = progress.sent_bytes
        row.received_bytes = progress.received_bytes
        self.stands(row.rank, progress.state, *_doing(progress))
        row.meets = progress.collective  # after `stands`, which clears both
        row.awaits = progress.wait.peer if progress.wait is not None else None

    def absent(self) -> str:
        """Return the state's sentence on the ranks missing in `init_process_group`, where others wait, or ""."""
        there, missing = [], []
        for row in self.rows:
            if row.meets == MEETING:
                there.append(row.rank)
            else:
                missing.append(row.rank)
        if not there or not missing:
            return ""

        have, wait = verb(missing, "has", "have"), verb(there, "waits", "wait")
        return f"{failures.names(missing)} {have} not reached {MEETING}, where {failures.names(there)} {wait}"

    def held_up(self) -> str:
        """Return the state's sentence on the rank for which most others wait, or "" where there is none.

        A chain of waits ends at the rank that waits for none. The last second counts, not a moment.
        """
        now = dict.fromkeys(self._waiters, 0)
        for row in self.rows:
            root, seen = row.rank, set()
            while (peer := self.rows[root].awaits) in now and root not in seen:
                seen.add(root)
                root = peer
            if root != row.rank and root not in seen:
                now[root] += 1

        for rank, count in now.items():
            self._waiters[rank] += RECENT * (count - self._waiters[rank])
        rank = max(self._waiters, key=self._waiters.get)
        if self._waiters[rank] <= MOST_OF * (len(self.rows) - 1):
            return ""
        return f"{'most ranks wait' if len(self.rows) > 2 else 'the other rank waits'} for {self.rows[rank].name}"

    def stands(self, rank: int, state: RankLife, doing: str = "", short: str = "") -> None:
        row = self.rows[rank]
        row.meets = ""
        row.awaits = None
        row.state = state
        row.doing = doing
        row.short = short
        row.changed = True

    def whole(self) -> dict[str, Any]:
        """Return the whole state that is kept, for a front end that knows nothing yet."""
        return self._message(self.rows, whole=True)

    def news(self) -> dict[str, Any]:
        """Return the changes of the state since the last message."""
        return self._message([row for row in self.rows if row.changed], whole=False)

    def _message(self, rows: Sequence[RankRow], whole: bool) -> dict[str, Any]:
        """Return a message on the state of these rows, and mark all that it holds as sent."""
        ranks = []
        for row in rows:
            ranks.append(_facts(row, whole))
            row.changed = False
            row.new_lines = 0
            for curve in row.curves.values():
                curve.sent = len(curve.points)

        return {"ranks": ranks, "keep_lines": self.rows[0].tail.maxlen, "absent": self.absent() or self.held_up()}


def _doing(progress: Progress) -> tuple[str, str]:
    """Return the rank's activity in words, and its wait for a chip: "recv ← 3", "send → any", "barrier", or ""."""
    wait = progress.wait
    if wait is not None:
        arrow = "→" if wait.op == "send" else "←"
        return f"waits {failures.where_it_waits(wait)}", f"{wait.op} {arrow} {'any' if wait.peer is None else wait.peer}"
    if progress.collective:
        return f"waits in {progress.collective}", progress.collective
    if progress.state == "failed" and progress.failure is not None:
        return f"failed: {failures.ending(progress.failure).splitlines()[0][:LINE_CHARS]}", ""
    return progress.state, ""


def plain(line: str) -> str:
    """Return a line, for the state, without colors and control characters, cut to `LINE_CHARS`.

    As in a terminal, text that a carriage return overwrote is gone.
    """
    text = _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


def _facts(row: RankRow, whole: bool) -> dict[str, Any]:
    tail, traffic = list(row.tail), ""
    if row.sent_bytes + row.received_bytes:
        traffic = f"sent {units.size(row.sent_bytes)} · received {units.size(row.received_bytes)}"

    facts = {
        "rank": row.rank,
        "name": row.name,
        "host": row.host,
        "state": row.state,
        "doing": row.doing,
        "short": row.short,
        "lines": row.lines,
        "place": row.place(),
        "share": report_curves.share(row.latest),
        "values": row.values(),
        "traffic": traffic,
        "x": row.axis.name,
        "curves": {name: curve.part(0 if whole else curve.sent) for name, curve in row.curves.items()},
    }
    if whole:
        return {**facts, "tail": tail}
    return {**facts, "add": tail[len(tail) - row.new_lines :]}
