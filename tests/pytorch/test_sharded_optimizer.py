"""Lab 12's sharded optimizer takes the steps of one process with the whole optimizer, in float64, on 1 to 4 ranks.

The models are torch's own, some tied, frozen or not used in every step. It runs over a launch's fabric, and over one that
`over_group` makes of a process group of torch.distributed.
"""

import copy
import json

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support.lab_functions import ROOT, lab_functions
from worldsize.checks.drivers.any_optimizer import drawn, state_bytes, watched
from worldsize.fabric import over_group
from worldsize.launch import launch
from worldsize.simulate import simulate

STEPS, EXACT = 10, 1e-10
WORLDS = (1, 2, 3, 4)
KINDS = {
    # an epsilon above rounding: some gradients are 0 but for that, as of a bias of attention's keys
    "AdamW": {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-5}, "SGD": {"lr": 0.05, "momentum": 0.9},
    "Adagrad": {"lr": 0.02, "eps": 1e-5}, "RMSprop": {"lr": 0.005, "momentum": 0.5, "eps": 1e-5},
}  # fmt: skip


def usual(world_size):
    """All world sizes, of which the others are for the long campaign."""
    return [n if n == world_size else pytest.param(n, marks=pytest.mark.soak) for n in WORLDS]


def lab():
    return lab_functions("12_sharding.ipynb")


def tied_words():
    model = nn.ModuleDict({"words": nn.Embedding(13, 6), "rnn": nn.RNN(6, 6), "out": nn.Linear(6, 13)})
    model["out"].weight = model["words"].weight
    return model


def partly_frozen():
    model = nn.TransformerDecoderLayer(8, 2, 10, dropout=0.0)
    model.self_attn.requires_grad_(False)
    return model


def with_an_unused_layer():
    return nn.ModuleDict({"lstm": nn.LSTM(4, 5, num_layers=2, bidirectional=True), "unused": nn.Bilinear(3, 2, 4)})


MODELS = {
    "transformer": (
        lambda: nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True),
        lambda model, x, step: model(x(2, 3, 8), x(2, 4, 8)),
    ),
    "tied words": (
        tied_words, lambda model, x, step: model["out"](model["rnn"](model["words"](x(5).abs().long()))[0])
    ),
    "partly frozen": (partly_frozen, lambda model, x, step: model(x(3, 2, 8), x(2, 2, 8))),
    "an unused layer": (with_an_unused_layer, lambda model, x, step: model["lstm"](x(3, 4))[0]),
    "another layer each step": (
        lambda: nn.ModuleList([nn.Conv1d(2, 3, 3), nn.Linear(5, 5), nn.MultiheadAttention(5, 1)]),
        lambda model, x, step: model[1](model[0](x(2, 7))) if step % 2 else model[2](*3 * [model[0](x(2, 7))])[0],
    ),
}  # fmt: skip
CASES = list(zip(MODELS, [*KINDS, "AdamW"], strict=True))


def model_of(name):
    torch.manual_seed(5)
    return MODELS[name][0]().double()


def loss_of(name, model, step, rank):
    random = torch.Generator().manual_seed(100 * step + rank)
    return (MODELS[name][1](model, lambda *shape: drawn(random, *shape), step) - 1).square().mean()


def on_ranks(fabric, sharded_optimizer):
    """Of each case the weights after all steps and the bytes of this rank's state."""
    found = []
    for name, kind in CASES:
        model, made = model_of(name), []
        optimizer = sharded_optimizer(fabric, model.parameters(), watched(getattr(torch.optim, kind), made), **KINDS[kind])
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(name, model, step, fabric.rank).backward()
            optimizer.step()
        found.append(([p.detach() for p in model.parameters()], state_bytes(made)))
    return found


def on_a_group(sharded_optimizer):
    dist.init_process_group("gloo")
    found = on_ranks(over_group(), sharded_optimizer)
    dist.barrier()  # messages end with the fabric
    return found


def one_process(name, kind, world_size):
    model = model_of(name)
    optimizer = getattr(torch.optim, kind)(model.parameters(), **KINDS[kind])
    for step in range(STEPS):
        optimizer.zero_grad()
        sum(loss_of(name, model, step, rank) / world_size for rank in range(world_size)).backward()
        optimizer.step()
    return list(model.parameters()), optimizer


def expect_as_one_process(results):
    n = len(results)
    for place, (name, kind) in enumerate(CASES):
        expected, whole = one_process(name, kind, n)
        by_parameter = [sum(x.nbytes for x in s.values() if torch.is_tensor(x) and x.ndim) for s in whole.state.values()]
        for rank, cases in enumerate(results):
            weights, held_bytes = cases[place]
            off = max(float((a - b).detach().abs().max()) for a, b in zip(weights, expected, strict=True))
            assert off < EXACT, (name, kind, rank)
            assert held_bytes <= sum(by_parameter) / n + max(by_parameter), (name, kind, rank)


@pytest.mark.parametrize("world_size", usual(3))
def test_its_steps_and_state_over_a_fabric(world_size):
    expect_as_one_process(simulate(on_ranks, world_size, args=(lab().sharded_optimizer,)).results)


@pytest.mark.parametrize("world_size", usual(2))
def test_its_steps_and_state_in_a_process_group(world_size):
    expect_as_one_process(launch(on_a_group, world_size, args=(lab().sharded_optimizer,), timeout_s=60).results)


def as_cs336_asks(fabric, sharded_optimizer):
    """The weights of both optimizers after ten steps on the same batches, as in CS336's second assignment, in float32."""
    torch.manual_seed(42)
    layers = nn.Linear(10, 10, bias=False), nn.ReLU(), nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 5)
    models = [nn.Sequential(*layers), copy.deepcopy(nn.Sequential(*layers))]
    options = {"lr": 0.1, "weight_decay": 0.1, "betas": (0.9, 0.999), "eps": 1e-8}
    whole = torch.optim.AdamW(models[0].parameters(), **options)
    sharded = sharded_optimizer(fabric, models[1].parameters(), torch.optim.AdamW, **options)
    random = torch.Generator().manual_seed(43)
    for _ in range(10):
        x, y = torch.rand(32, 10, generator=random), torch.rand(32, 5, generator=random)
        for model, optimizer in zip(models, (whole, sharded), strict=True):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
    return [[p.detach() for p in model.parameters()] for model in models]


def test_adamw_in_float32_is_as_near_as_cs336_asks():
    for whole, sharded in simulate(as_cs336_asks, 2, args=(lab().sharded_optimizer,)).results:
        for expected, got in zip(whole, sharded, strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-7)


def helpers():
    """The functions of lab 12 that train a model whose weights lie in one tensor."""
    cells = json.loads((ROOT / "solutions" / "12_sharding.ipynb").read_text())["cells"]
    names = {**vars(lab()), "steps": 3}
    for code in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
        start = [code.find(f"def {name}(") for name in ("on_one_tensor", "gradients_of", "size_of")]
        if max(start) >= 0:
            exec(code[max(start) :], names)
    return names


def test_the_labs_helpers_take_a_model_with_frozen_weights():
    """They train what is not frozen, and leave the rest as it is."""
    names = helpers()
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    frozen = model[0].weight.clone()

    weights = names["on_one_tensor"](model)
    for gradient in names["gradients_of"](model, torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])):
        weights -= gradient
    assert len(weights) == 10
    assert torch.equal(model[0].weight, frozen)
    assert names["size_of"](p.grad for p in model.parameters()) == 40
