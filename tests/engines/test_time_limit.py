"""When the time limit of a job begins, on a clock of the test's own: no rank is started, and nobody waits."""

import multiprocessing as mp
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from worldsize.engines import session
from worldsize.engines.host import RankNews
from worldsize.engines.job import Job, Setup
from worldsize.failures import Outcome, Return

pytestmark = pytest.mark.quick

LIMIT_S = 2.0


@dataclass
class ScriptedHost:
    """A host whose ranks tell what a script says, each line at its moment; the clock jumps from line to line."""

    script: list[tuple[float, RankNews]]
    now_s: float = 0.0
    connected: set[int] = field(default_factory=set)

    def heard_before(self) -> list[RankNews]:
        self.now_s, news = self.script.pop(0) if self.script else (1e6, RankNews(0, "hello"))
        return [news]

    def clock_error_s(self) -> float:
        return 0.0

    def watched(self) -> list:
        return []

    def seen_last(self, rank: int) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None  # what it is asked for, it does


class TwoRanks(session.Session):
    def _choose(self) -> Setup:
        self.ranks = [range(2)]
        return Setup(text="two ranks", threads=1)

    def _start(self) -> None:
        pass


def outcome_of(script: list[tuple[float, RankNews]], monkeypatch: pytest.MonkeyPatch) -> Outcome:
    host = ScriptedHost(script)
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: host.now_s))
    kernel, agents_end = mp.Pipe()
    job = Job(world_size=2, timeout_s=LIMIT_S, env={}, sys_path=(), cwd="", seed=0, sources=(), dir=Path())
    with kernel, agents_end:
        TwoRanks(job, agents_end, [agents_end], (host,), "forkserver").run()
        assert kernel.recv().text == "two ranks"
        return kernel.recv()


def entered(rank: int, at_s: float) -> tuple[float, RankNews]:
    return at_s, RankNews(rank, "entered", at_s)


def returned(rank: int, at_s: float) -> tuple[float, RankNews]:
    return at_s, RankNews(rank, "result", Return())


def test_a_slow_start_is_not_the_functions_time(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [entered(0, 1.0), entered(1, 60.0), returned(0, 60.5), returned(1, 60.0 + 0.9 * LIMIT_S)]
    assert outcome_of(script, monkeypatch).status == "done"


def test_from_the_last_ranks_entry_on_the_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [entered(0, 1.0), entered(1, 60.0), returned(1, 60.5), (60.0 + 1.1 * LIMIT_S, RankNews(0, "hello"))]
    ended = outcome_of(script, monkeypatch)
    assert (ended.status, set(ended.returned)) == ("timeout", {1})


def test_a_rank_that_returned_before_another_entered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [entered(0, 1.0), returned(0, 1.1), entered(1, 60.0), (60.0 + 1.1 * LIMIT_S, RankNews(1, "hello"))]
    assert outcome_of(script, monkeypatch).status == "timeout"


def test_a_start_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [entered(0, 1.0), (session.START_S + LIMIT_S + 1.0, RankNews(0, "hello"))]
    assert outcome_of(script, monkeypatch).status == "timeout"
