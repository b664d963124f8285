"""What a check of overlap makes of a machine that is busy, and of an order of work that is not."""

from dataclasses import replace

import pytest
from typing_extensions import override

from tests.checks.mutants import overlapped
from worldsize.checks import run_check
from worldsize.checks.arena import ArenaResult, LaunchArena, Trial
from worldsize.checks.overlap import gradient_averaging, live_graphs
from worldsize.checks.overlap.wrong_weights import OverlapTraining
from worldsize.pytorch.timed_network import task
from worldsize.trace import Span, Trace


class Busy(LaunchArena):
    """Its first runs of declared work on links that cost nothing are so busy that no helper thread gets a turn in them."""

    def __init__(self, busy_runs: int) -> None:
        super().__init__(seed=5)
        self.busy_runs = busy_runs

    @override
    def run(self, trial: Trial) -> ArenaResult:
        ended = super().run(trial)
        if trial.way != "ranks" or trial.link is not None or self.busy_runs == 0:
            return ended

        self.busy_runs -= 1
        last_s = max(span.end_s for span in ended.trace.spans)
        after = tuple(replace(t, start_s=t.start_s + last_s, end_s=t.end_s + last_s) for t in ended.trace.transfers)
        return replace(ended, trace=replace(ended.trace, transfers=after))


def test_an_overlap_that_a_busy_machine_hid_is_looked_for_again():
    verdict = run_check("overlapped", Busy(gradient_averaging.TRIES - 1), overlapped.plain)
    assert verdict.state == "pass", verdict.mismatch


def test_an_overlap_that_never_shows_is_none():
    verdict = run_check("overlapped", Busy(gradient_averaging.TRIES), overlapped.plain)
    assert (verdict.state, verdict.points) == ("fail", 0.5)
    assert "no message travels before backward has ended" in verdict.mismatch


def words(order: str) -> str | None:
    """What is said of one rank's passes through one layer, in this order: forward or backward."""
    training = OverlapTraining((task(sizes=[2, 2], parts=3, forward_s=0.001, backward_s=0.002),))
    labels = {"f": "0.001 s declared", "b": "0.002 s declared"}
    spans = tuple(Span(0, "compute", at, at + 0.5, label=labels[way], declared=True) for at, way in enumerate(order))
    return live_graphs.too_many(Trace(1, spans=spans), training)


def test_each_backward_before_the_next_forward_is_right():
    assert words("fbfbfb") is None


@pytest.mark.parametrize(("order", "most"), [("ffbbfb", 2), ("ffbfbb", 2), ("fbffbb", 2), ("fffbbb", 3)])
def test_the_most_graphs_at_a_time_are_counted(order, most):
    assert f"the graphs of {most} micro-batches were in memory at once" in words(order)


def test_a_pass_that_is_missing_is_named():
    assert "forward 3 times and of its backward 2 times; expected 3 of each" in words("fbfbf")
