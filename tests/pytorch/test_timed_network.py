"""The network of plain layers, and the training around a student's gradients."""

import json

import pytest
import torch

from worldsize.pytorch.timed_network import Network, batch, loss, network, task, train


class Rank:
    """A rank that notes what work it was told to do."""

    def __init__(self, rank=0):
        self.rank, self.worked = rank, []

    def compute(self, seconds, x):
        self.worked.append(seconds)
        return x


def grown(given, rank=0):
    t = task(**given)
    here = Rank(rank)
    model = network(here, t)
    return train(here, t, model, lambda loss: loss.backward()), model, here


def test_ranks_draw_weights_and_examples_of_their_own_and_again_the_same():
    t = task()
    one, again, other = (list(Network(Rank(r), t).parameters())[0] for r in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert torch.equal(batch(t, 1, 2)[0], batch(t, 1, 2)[0])
    assert len({float(batch(t, r, s, p)[0][0, 0]) for r in (0, 1) for s in (0, 1) for p in (0, 1)}) == 8


def test_a_task_is_plain_enough_for_json():
    t = task(tied=[[1, 2]], unused={"1": [2]})
    assert json.loads(json.dumps(t)) == t


def test_a_word_that_no_task_has_is_named():
    with pytest.raises(ValueError, match="got 'layers'"):
        task(layers=3)


def test_tied_layers_are_one_parameter():
    _, model, _ = grown({"tied": [[0, 2]]})
    assert len(list(model.parameters())) == 2


def test_a_frozen_layer_stays_and_the_others_move():
    t = task(frozen=[1], steps=2)
    start = [p.detach().clone() for p in Network(Rank(), t).parameters()]
    done, _, _ = grown({"frozen": [1], "steps": 2})
    assert [torch.equal(a, b) for a, b in zip(start, done["weights"], strict=True)] == [False, True, False]


@pytest.mark.parametrize("key", [1, "1"])
def test_a_layer_is_passed_by_on_the_rank_that_does_not_use_it(key):
    for rank, unused in ((0, False), (1, True)):
        _, model, _ = grown({"unused": {key: [1]}}, rank)
        assert (model.weights[1].grad is None) == unused


def test_every_layers_backward_takes_its_declared_time_before_its_gradient_is_there():
    t, here, seen = task(backward_s=0.25), Rank(), []
    model = network(here, t)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: seen.append(len(here.worked)))
    loss(t, 0, model, 0).backward()
    assert (here.worked, seen) == ([0.25] * 3, [1, 2, 3])


def test_a_task_in_parts_runs_each_forward_when_it_is_asked_for():
    t, asked = task(parts=3), []
    model = network(Rank(), t)

    def forward(x):
        asked.append(len(asked))
        return model(x)

    def gradients(losses):
        for number, part in enumerate(losses):
            assert asked == list(range(number + 1))
            part.backward()

    train(Rank(), t, model, gradients, forward)
    assert len(asked) == 3


def test_forward_and_backward_of_every_layer_take_their_own_declared_times():
    t, here = task(forward_s=0.5, backward_s=0.25), Rank()
    loss(t, 0, network(here, t), 0).backward()
    assert here.worked == [0.5] * 3 + [0.25] * 3
