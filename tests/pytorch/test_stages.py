"""Parts of a model as plain data, layers that take a declared time, and the count of what autograd keeps."""

import threading
import time
from dataclasses import dataclass, field

import pytest
import torch

from worldsize import report
from worldsize.fabric.collectives import meet
from worldsize.formulas.pipeline import works
from worldsize.pytorch import models
from worldsize.pytorch.stages import build, cut
from worldsize.trace import Span, Trace

WIDTHS = [6, 5, 4, 3, 7]


@dataclass
class Sleeper:
    """A fabric that keeps what was declared, and sleeps it."""

    declared: list[float] = field(default_factory=list)

    def compute(self, seconds: float) -> None:
        self.declared.append(seconds)
        time.sleep(seconds)  # as a fabric does that declares work


@pytest.fixture
def told():
    yield report.gather(time.monotonic())
    report._gathering.clear()


def batch(rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, WIDTHS[0]), torch.randint(WIDTHS[-1], (rows,))


def timed(part: dict, watch: bool = False, seconds: tuple[float, float] = (0.02, 0.03)) -> tuple[torch.nn.Module, Sleeper]:
    fabric = Sleeper()
    return build(part | {"seconds": seconds, "watch": watch}, fabric), fabric


def test_the_parts_one_after_the_other_are_the_model():
    model, (x, y) = models.mlp(WIDTHS, seed=1), batch()
    out = x
    for part in cut(model, [0, 1, 3, 4], x, y):
        out = build(part)(out)
    assert torch.equal(out, model(x))


def test_the_first_part_has_the_inputs_and_the_last_the_labels():
    x, y = batch()
    parts = cut(models.mlp(WIDTHS), [0, 2, 4], x, y, micro_batches=4)
    assert torch.equal(torch.cat(parts[0]["xs"]), x) and torch.equal(torch.cat(parts[1]["ys"]), y)
    assert [tuple(t.shape) for t in parts[1]["xs"]] == [(2, 4)] * 4 and parts[0]["ys"] == []


def test_a_micro_batch_has_memory_of_its_own():
    parts = cut(models.mlp(WIDTHS), [0, 4], *batch(), micro_batches=4)
    assert {t.untyped_storage().nbytes() for t in parts[0]["xs"]} == {2 * 6 * 4}


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="that 3 micro-batches divide evenly, got 8 examples"):
        cut(models.mlp(WIDTHS), [0, 4], *batch(), micro_batches=3)


@pytest.mark.parametrize("edges", [[0, 2], [1, 4], [0, 2, 2, 4]])
def test_edges_that_leave_out_a_layer_are_refused(edges):
    with pytest.raises(ValueError, match="grow from 0 to 4, the linear layers"):
        cut(models.mlp(WIDTHS), edges, *batch())


def test_timed_layers_compute_what_the_layers_do():
    x, y = batch()
    part = cut(models.mlp(WIDTHS, seed=1), [0, 4], x, y)[0]
    plain, (layers, _) = build(part), timed(part)
    given = x.clone().requires_grad_()
    plain(given).sum().backward()
    mine = x.clone().requires_grad_()
    layers(mine).sum().backward()
    assert torch.equal(given.grad, mine.grad)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), layers.parameters(), strict=True))


def test_forward_and_backward_are_marked_by_micro_batch_and_take_their_declared_time(told):
    layers, _ = timed(cut(models.mlp(WIDTHS), [0, 4], *batch())[0])
    outs = [layers(batch()[0]) for _ in range(2)]
    for out in reversed(outs):
        out.sum().backward()
    trace = Trace(1, spans=tuple(Span(0, *row) for row in told.spans))
    assert [(w.way, w.micro) for w in works(trace)] == [("forward", 0), ("forward", 1), ("backward", 1), ("backward", 0)]
    least = {"forward": 0.02, "backward": 0.03}
    assert all(w.end_s - w.start_s >= least[w.way] for w in works(trace))


def test_declared_time_includes_the_layers_own_work():
    layers, fabric = timed(cut(models.mlp(WIDTHS), [0, 4], *batch())[0])
    layers(batch()[0]).sum().backward()
    assert len(fabric.declared) == 2 and all(a < b for a, b in zip(fabric.declared, (0.02, 0.03), strict=True))


def test_what_autograd_keeps_grows_with_forwards_and_is_free_after_backwards(told):
    part = cut(models.mlp([6, 5, 4]), [0, 2], torch.randn(8, 6), torch.zeros(8, dtype=torch.int64))[0]
    layers, _ = timed(part, watch=True, seconds=(0, 0))
    outs = [layers(torch.randn(8, 6)) for _ in range(3)]
    kept = told.rows[-1]["kept_for_backward_kB"]
    for out in outs:
        out.sum().backward()
    # of each micro-batch its input and the ReLU's output, 8 rows of 6 and of 5 numbers of 4 bytes
    assert (kept, told.rows[-1]["kept_for_backward_kB"]) == (pytest.approx(3 * 8 * (6 + 5) * 4 / 1e3), 0)


def test_recomputing_layers_have_the_same_gradients_and_keep_their_inputs_alone(told):
    x = torch.randn(8, 6)
    part = cut(models.mlp([6, 5, 4], seed=1), [0, 2], x, torch.zeros(8, dtype=torch.int64))[0]
    plain, (again, _) = build(part), timed(part | {"recompute": True}, watch=True, seconds=(0, 0))
    given, mine = x.clone().requires_grad_(), x.clone().requires_grad_()
    plain(given).sum().backward()
    outs = [again(mine), again(torch.randn(8, 6))]
    kept = told.rows[-1]["kept_for_backward_kB"]
    outs[0].sum().backward()
    highest = max(row["kept_for_backward_kB"] for row in told.rows)
    assert torch.equal(given.grad, mine.grad)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), again.parameters(), strict=True))
    one_input, hidden = 8 * 6 * 4 / 1e3, 8 * 5 * 4 / 1e3
    assert kept == pytest.approx(2 * one_input)
    assert highest == pytest.approx(2 * one_input + hidden)  # of one micro-batch at a time, what it computes again


def test_recomputing_takes_a_forward_more(told):
    layers, fabric = timed(cut(models.mlp(WIDTHS), [0, 4], *batch())[0] | {"recompute": True})
    layers(batch()[0]).sum().backward()
    trace = Trace(1, spans=tuple(Span(0, *row) for row in told.spans))
    forward, backward = works(trace)
    assert forward.end_s - forward.start_s >= 0.02 and backward.end_s - backward.start_s >= 0.02 + 0.03


def test_without_watch_nothing_is_reported(told):
    layers, _ = timed(cut(models.mlp(WIDTHS), [0, 4], *batch())[0])
    layers(batch()[0]).sum().backward()
    assert told.rows == []


@pytest.mark.parametrize("n", [1, 2, 4])
def test_nobody_leaves_a_meeting_before_all_have_come(n):
    links = {(a, b): threading.Semaphore(0) for a in range(n) for b in range(n)}
    came, left = [], []

    class Line:
        world_size = n

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def send(self, x: torch.Tensor, to: int, tag: int) -> None:
            links[self.rank, to].release()

        def recv(self, x: torch.Tensor, frm: int, tag: int) -> None:
            assert links[frm, self.rank].acquire(timeout=10)

    def come(rank: int) -> None:
        came.append(rank)
        meet(Line(rank))
        left.append(len(came))

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert left == [n] * n


def test_going_backward_from_a_gradient_imports_nothing_in_a_rank():
    from worldsize.launch import quiet_launch

    assert quiet_launch(_imported_by_backward, 1).results == [[]]


def _imported_by_backward() -> list[str]:
    import sys

    before = set(sys.modules)
    (torch.ones(2, requires_grad=True) * 2).backward(torch.ones(2))
    return sorted(set(sys.modules) - before)[:5]
