"""DataParallel, emulated: the gradients of one device, and copies that all begin or end at card 0."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from worldsize.links import Link
from worldsize.pytorch.data_parallel import Cards, Emulated, RecordedCopies, data_parallel
from worldsize.pytorch.models import mlp
from worldsize.pytorch.resnet import resnet

SIZES, IMAGES = [6, 5, 3], 10
WEIGHTS = sum(4 * p.numel() for p in mlp(SIZES).parameters())


def step(model, module, x, y):
    module.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    return [p.grad.clone() for p in module.parameters()]


def batch(count=IMAGES):
    torch.manual_seed(1)
    return torch.randn(count, SIZES[0]), torch.arange(count) % SIZES[-1]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_gradients_are_those_of_one_device(count):
    module = mlp(SIZES, seed=0)
    expected = step(module, module, *batch())
    for got, right in zip(step(Emulated(module, Cards(count)), module, *batch()), expected, strict=True):
        assert torch.allclose(got, right, atol=1e-6)


def test_a_second_step_uses_the_weights_that_the_first_one_left():
    module = mlp(SIZES, seed=0)
    parallel = Emulated(module, Cards(2))
    step(parallel, module, *batch())
    with torch.no_grad():
        for p in module.parameters():
            p -= p.grad
    expected = step(module, module, *batch())
    for got, right in zip(step(parallel, module, *batch()), expected, strict=True):
        assert torch.allclose(got, right, atol=1e-6)


def trace_of(count, images=IMAGES):
    cards, module = Cards(count), mlp(SIZES, seed=0)
    step(Emulated(module, cards), module, *batch(images))
    return cards.trace()


def test_every_copy_begins_or_ends_at_card_0():
    assert all((t.src == 0) != (t.dst == 0) for t in trace_of(4).transfers)


def test_the_weights_leave_card_0_once_for_every_other_card():
    sent = [t.size_bytes for t in trace_of(4).transfers if t.src == 0]
    assert sent.count(WEIGHTS) == 3
    assert 0 not in sent


def test_as_many_gradients_come_back_to_card_0():
    received = [t.size_bytes for t in trace_of(4).transfers if t.dst == 0]
    assert received.count(WEIGHTS) == 3


def test_the_collectives_are_pytorchs_in_pytorchs_order():
    ops = [c.op for c in trace_of(3).collectives if c.rank == 2]
    assert ops == ["scatter", "replicate", "gather", "scatter", "reduce add"]


def test_every_card_works_forwards_and_backwards():
    spans = trace_of(3).spans
    assert sorted((s.rank, s.label) for s in spans) == [(c, w) for c in range(3) for w in ("backward", "forward")]


def test_a_batch_smaller_than_the_cards_leaves_some_idle():
    assert {s.rank for s in trace_of(4, images=2).spans} == {0, 1}


def test_a_link_slows_the_copies_down():
    cards = Cards(2, Link("1 MB/s", "10 ms"))
    cards.move([torch.zeros(2500)], 0, 1)
    (transfer,) = cards.trace().transfers
    assert transfer.end_s - transfer.start_s >= 0.02


def test_of_the_buffers_card_0s_share_of_the_batch_stays():
    module = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    x, y = batch()
    step(Emulated(module, Cards(2)), module, x, y)
    assert torch.allclose(module[0].running_mean, 0.1 * x.chunk(2)[0].mean(0), atol=1e-6)


def test_a_resnet_can_be_trained_so():
    module = resnet(18, 1, 10, width=4)
    gradients = step(Emulated(module, Cards(2)), module, torch.randn(8, 1, 28, 28), torch.arange(8))
    assert all(bool(g.isfinite().all()) for g in gradients)


def test_its_parameters_are_the_modules_alone():
    module = mlp(SIZES)
    assert [*Emulated(module, Cards(3)).parameters()] == [*module.parameters()]


def test_without_gpus_it_is_emulated_and_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    model, words = data_parallel(mlp(SIZES), Cards(4))
    assert isinstance(model, Emulated) and words == "emulated: 4 threads of one process stand for 4 cards"


class OnCard(torch.Tensor):
    """A tensor that says on which card it would be."""


def on(card, numbers):
    x = torch.zeros(numbers).as_subclass(OnCard)
    x.card = card
    return x


def stand_in():
    return SimpleNamespace(
        scatter=lambda x, cards, *_: tuple(on(c, 2) for c in cards),
        broadcast_coalesced=lambda tensors, cards: [[on(c, len(t)) for t in tensors] for c in cards],
        gather=lambda tensors, dim, card: on(card, 4),
        reduce_add_coalesced=lambda gradients, card: [on(card, len(g)) for g in gradients[0]],
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda c: c.scatter(on(0, 4), [0, 1], None, 0, None), [(0, 1, 8)]),
        (lambda c: c.broadcast_coalesced([on(0, 3), on(0, 5)], [0, 1, 2]), [(0, 1, 32), (0, 2, 32)]),
        (lambda c: c.gather((on(0, 2), on(1, 2)), 0, 0), [(1, 0, 8)]),
        (lambda c: c.reduce_add_coalesced([[on(0, 3)], [on(1, 3)], [on(2, 3)]], 0), [(1, 0, 12), (2, 0, 12)]),
    ],
)
def test_pytorchs_copies_are_noted(call, expected):
    cards, comm = Cards(3), stand_in()
    with RecordedCopies(cards, comm, card_of=lambda x: x.card):
        call(comm)
    trace = cards.trace()
    assert [(t.src, t.dst, t.size_bytes) for t in trace.transfers] == expected
    assert len(trace.collectives) == 3


def test_nothing_to_copy_is_no_copy():
    cards, comm = Cards(2), stand_in()
    with RecordedCopies(cards, comm, card_of=lambda x: x.card):
        comm.broadcast_coalesced([], [0, 1])
    assert cards.trace().transfers == ()


def test_watching_leaves_pytorchs_functions_as_they_were():
    comm = stand_in()
    before = dict(vars(comm))
    with RecordedCopies(Cards(2), comm, card_of=lambda x: x.card):
        pass
    assert vars(comm) == before


def test_the_functions_that_are_watched_are_those_that_dataparallel_calls():
    import inspect

    from torch.nn.parallel import _functions, comm

    source = inspect.getsource(_functions)
    for name in ("scatter", "broadcast_coalesced", "gather", "reduce_add_coalesced"):
        assert callable(getattr(comm, name)) and f"comm.{name}(" in source
