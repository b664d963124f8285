"""What a rank tells while it runs: reports, spans and progress reach the notebook whole and in order."""

import time

import pytest
import torch

from worldsize.errors import RankFailed
from worldsize.failures import Wait
from worldsize.launch import launch
from worldsize.launch.run import Observer, observe, unobserved
from worldsize.report import report, span

pytestmark = pytest.mark.quick


def training(steps):
    for step in range(steps):
        report(step=step, loss=1 / (step + 1))


def test_every_row_of_every_rank_is_kept_in_order():
    run = launch(training, 3, args=(500,))
    for rows in run.reports:
        assert [row["step"] for row in rows] == list(range(500))
        assert rows[1]["loss"] == 0.5
        assert all(0 < a["t"] <= b["t"] for a, b in zip(rows, rows[1:], strict=False))


def test_a_report_of_something_that_is_no_number_is_a_value_error():
    with pytest.raises(ValueError, match="report.loss=….: expected a number, got str"):
        report(loss="low")


def test_a_tensor_of_one_element_is_a_number():
    run = launch(lambda: report(loss=torch.tensor([0.25])), 1)
    assert run.reports[0][0]["loss"] == 0.25


def test_a_loss_with_its_graph_is_a_number_without_a_warning():
    run = launch(lambda: report(loss=torch.tensor(0.25, requires_grad=True) * 2), 1)
    assert (run.reports[0][0]["loss"], run.log(0)) == (0.5, "")


def test_reporting_outside_a_rank_does_nothing():
    training(3)
    with span("nothing"):
        pass


class Collecting(Observer):
    def __init__(self):
        self.news, self.ticks = [], 0

    def progressed(self, run, progress):
        self.news.append(progress)

    def ticked(self, run):
        self.ticks += 1


@pytest.fixture
def watcher():
    made = Collecting()
    with unobserved():
        observe(made)
        yield made


def test_progress_says_who_waits_for_whom_and_how_many_bytes_went(watcher):
    def one_waits(fabric):
        if fabric.rank == 0:
            fabric.compute(0.6)
            fabric.send(torch.zeros(25), 1)
        else:
            fabric.recv(torch.empty(25), 0)

    launch(one_waits, 2)
    of_rank = [[p for p in watcher.news if p.rank == rank] for rank in range(2)]
    assert any((p.state, p.wait) == ("waiting", Wait(1, "recv", 0)) for p in of_rank[1])
    assert of_rank[0][-1].sent_bytes == 100 and of_rank[1][-1].received_bytes == 100
    assert watcher.ticks >= 5


def test_a_ranks_last_progress_says_how_it_ended(watcher):
    def fails(fabric):
        if fabric.rank == 1:
            raise KeyError("chunk 5")
        fabric.compute(0.01)

    with pytest.raises(RankFailed):
        launch(fails, 2)
    last = {p.rank: p for p in watcher.news}
    assert (last[0].state, last[1].state) == ("done", "failed")
    assert (last[1].failure.type, last[1].failure.message) == ("KeyError", "'chunk 5'")


def test_progress_comes_at_most_ten_times_a_second(watcher):
    def busy():
        end_s = time.monotonic() + 1
        while time.monotonic() < end_s:
            report(x=1)

    run = launch(busy, 1)
    assert len(watcher.news) <= 14
    assert sum(len(p.reports) for p in watcher.news) == len(run.reports[0])


def test_a_span_is_in_the_trace_with_its_label():
    def work(fabric):
        with span("forward"):
            fabric.compute(0.05)

    spans = launch(work, 2).trace.spans
    forward = [s for s in spans if s.label == "forward"]
    assert [s.rank for s in sorted(forward, key=lambda s: s.rank)] == [0, 1]
    assert all(s.kind == "compute" and s.end_s - s.start_s >= 0.05 for s in forward)


def test_a_span_of_an_unknown_kind_is_a_value_error():
    with pytest.raises(ValueError, match="expected kind as one of compute, wait, got 'sleep'"), span("x", kind="sleep"):
        pass
