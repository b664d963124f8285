"""Modules of torch's own `nn`, each with rows to train on, to test a wrapper that should take any module.

Each module has a difficulty: buffers, a tied weight, a frozen weight, layers that a rank skips, weights of two dtypes. Every rank
draws its weights, buffers and rows from the seed of its task. Making the ranks agree is left to the lab's student.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from worldsize.pytorch.timed_network import descend

ModuleTask = dict[str, Any]
Inputs = Callable[[torch.Generator, int, int], tuple]  # (random, rank, step) -> the module's arguments


@dataclass(frozen=True)
class ModuleKind:
    """A recipe for a module and for its arguments: rows in float64, tokens as whole numbers."""

    build: Callable[[], nn.Module]
    inputs: Inputs


class InTurn(nn.Module):
    """A module of layers of which each call uses two: the layer of the given number, and the last. Layer 0 stays unused.

    The module's buffer is not persistent: a state_dict lacks it.
    """

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.register_buffer("scale", torch.ones(width), persistent=False)

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return self.layers[-1](self.layers[number](x * self.scale).tanh())


class TwoDtypes(nn.Module):
    """A module with a linear layer in float32, between two in the rows' dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = self.first(x).tanh().float()
        return self.last(self.middle(small).to(x.dtype))


def _rows(*shape: int) -> Inputs:
    return lambda random, rank, step: (torch.randn(shape, generator=random, dtype=torch.float64),)


def _tokens(vocabulary: int, *shape: int) -> Inputs:
    return lambda random, rank, step: (torch.randint(vocabulary, shape, generator=random),)


def _in_turn(random: torch.Generator, rank: int, step: int) -> tuple:
    """Return rows for one of four layers: another on the next rank and at the next step, never the first or the last."""
    return torch.randn((3, 4), generator=random, dtype=torch.float64), 1 + (rank + step) % 2


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Embedding(11, 6), nn.LayerNorm(6), nn.Linear(6, 11))
    model[2].weight = model[0].weight
    return model


MODULES = {
    "a TransformerEncoderLayer": ModuleKind(
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True), _rows(3, 5, 8)
    ),
    "an LSTM with a projection": ModuleKind(lambda: nn.LSTM(5, 6, num_layers=2, proj_size=3), _rows(4, 3, 5)),
    "a conv net with BatchNorm": ModuleKind(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4).eval(),  # it computes with its buffers, as in fine-tuning
            nn.ReLU(), nn.Flatten(), nn.Linear(64, 3),
        ),
        _rows(2, 2, 6, 6),
    ),
    "an embedding tied to the output": ModuleKind(_tied, _tokens(11, 3, 4)),
    "a frozen embedding": ModuleKind(
        lambda: nn.Sequential(nn.EmbeddingBag(9, 6).requires_grad_(False), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
        _tokens(9, 3, 4),
    ),
    "layers used in turn": ModuleKind(lambda: InTurn(4, 4), _in_turn),
    "weights of two dtypes": ModuleKind(TwoDtypes, _rows(3, 5)),
}  # fmt: skip


def module_task(name: str, **given: Any) -> ModuleTask:
    """Return a module's training task as plain values: the given values, and defaults for the rest.

    Raises ValueError for an unknown module or value.
    """
    plain: ModuleTask = {"module": name, "seed": 0, "steps": 10, "rate": 0.3, "dtype": "float64"}
    unknown = sorted(set(given) - set(plain))
    if unknown or name not in MODULES:
        got, known = (unknown[0], plain) if unknown else (name, MODULES)
        raise ValueError(f"module_task: expected one of {', '.join(known)}, got {got!r}")
    return {**plain, **given}


def module(task: ModuleTask) -> nn.Module:
    """Return the task's module with weights and buffers drawn from the task's seed.

    torch's own generator stays as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_random(task, 0).initial_seed())
        made = MODULES[task["module"]].build().to(getattr(torch, task["dtype"]))
        for buffer in made.buffers():
            if buffer.dtype.is_floating_point:
                buffer.uniform_(0.5, 2.0)
            else:
                buffer.random_(1, 100)

    if isinstance(made, TwoDtypes):
        made.middle.float()
    return made


def inputs(task: ModuleTask, rank: int, step: int) -> tuple:
    """Return the arguments of a rank's module at a step: the rank's own rows, in the task's dtype."""
    dtype = getattr(torch, task["dtype"])
    given = []
    for x in MODULES[task["module"]].inputs(_random(task, 1 + step), rank, step):
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            x = x.to(dtype)
        given.append(x)
    return tuple(given)


def loss(task: ModuleTask, rank: int, step: int, forward: Callable) -> torch.Tensor:
    """Return the mean squared distance between the module's output for a rank's rows and the target."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")  # another way is taken
        made = forward(*inputs(task, rank, step))
    if isinstance(made, tuple):  # an LSTM also returns its state
        made = made[0]
    wanted = torch.randn(made.shape, generator=_random(task, 1_000 + step), dtype=torch.float64)
    return nn.functional.mse_loss(made, wanted.to(made.dtype))


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of a torch module's parameters and buffers by name, shared ones once."""
    return {name: x.detach().clone() for name, x in (*model.named_parameters(), *model.named_buffers())}


def train(
    task: ModuleTask, rank: int, model: nn.Module, finish: Callable | None = None, forward: Callable | None = None
) -> dict[str, dict[str, torch.Tensor]]:
    """Train a module of torch's by gradient descent, as a script without ranks does.

    `finish()` is called after each backward; `forward` replaces the module. Returns {"start": state, "first": the state after the
    first step, "end": the state after the last}.
    """
    states = [state(model)]
    for step in range(task["steps"]):
        model.zero_grad()
        loss(task, rank, step, forward or model).backward()
        if finish is not None:
            finish()
        descend(model, task["rate"])
        states.append(state(model))
    return {"start": states[0], "first": states[1], "end": states[-1]}


def train_alone(tasks: Sequence[ModuleTask]) -> dict[str, dict[str, torch.Tensor]]:
    """Train a module in one process on all ranks' rows from rank 0's weights; return states as `train` does.

    `tasks[rank]` differ only in their seeds.
    """
    model = module(tasks[0])
    states = [state(model)]
    for step in range(tasks[0]["steps"]):
        model.zero_grad()
        losses = [loss(task, rank, step, model) for rank, task in enumerate(tasks)]
        torch.stack(losses).mean().backward()
        descend(model, tasks[0]["rate"])
        states.append(state(model))
    return {"start": states[0], "first": states[1], "end": states[-1]}


def _random(task: ModuleTask, place: int) -> torch.Generator:
    return torch.Generator().manual_seed((task["seed"] * 1_000_003 + place + 1) % 2**61)
