"""Observers of a cell on ranks: plain text at its end, or a notebook view that also updates while the cell runs.

`live/output_by_rank.py` renders the output.
"""

import time
from collections.abc import Sequence

from typing_extensions import override

from worldsize import units
from worldsize.launch import rank_output
from worldsize.launch.rank_output import Group
from worldsize.launch.run import Observer, Run
from worldsize.live import output_by_rank
from worldsize.live.text import last_words, say

OPEN_AFTER_S = 0.3  # a cell that ends sooner shows its result only
AGAIN_S = 0.1  # between two updates of the view
LIVE_CHARS = 20_000


class CellText(Observer):
    """Prints a cell's output by rank when the cell ends."""

    ranks: tuple[int, ...] = ()  # the ranks that run the next cell

    @override
    def ended(self, run: Run) -> None:
        self._put_out(rank_output.groups(run, self.ranks), caption(run, self.ranks))
        say(last_words(run))

    def _put_out(self, groups: list[Group], caption: str) -> None:
        print(output_by_rank.text_of(groups, self.ranks, caption))


class CellView(CellText):
    """Shows a cell's output by rank in a notebook: live while it runs, in tabs when it has ended."""

    def __init__(self) -> None:
        self._handle = None
        self._texts: dict[int, str] = {}
        self._began_s = self._shown_s = 0.0

    @override
    def started(self, run: Run) -> None:
        self._handle = None
        self._texts = {}
        self._began_s = self._shown_s = time.monotonic()

    @override
    def printed(self, run: Run, rank: int, text: str) -> None:
        self._texts[rank] = (self._texts.get(rank, "") + text)[-LIVE_CHARS:]

    @override
    def ticked(self, run: Run) -> None:
        if not run.setup:  # not begun yet: what is known is of the cell before
            return
        now_s = time.monotonic()
        if now_s - self._began_s < OPEN_AFTER_S or now_s - self._shown_s < AGAIN_S:
            return
        self._shown_s = now_s
        text = "\n".join(f"[rank {rank}] {text}" for rank, text in sorted(self._texts.items()))
        self._put({"text/html": output_by_rank.live_html(self._texts, now_s - self._began_s), "text/plain": text})

    @override
    def _put_out(self, groups: list[Group], caption: str) -> None:
        text = output_by_rank.text_of(groups, self.ranks, caption)
        self._put({"text/html": output_by_rank.html_of(groups, self.ranks, caption), "text/plain": text})
        self._handle = None

    def _put(self, bundle: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def caption(run: Run, ranks: Sequence[int]) -> str:
    """Return the line under an observed cell: "4 ranks · 12 messages, 48 kB · 3.1 ms"."""
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
