"""Train torch.nn models with an optimizer that a student's function makes of any class, for lab 12.

No expected values: the check takes the same steps in one process with the whole optimizer. The function's own process counts
the bytes of state, in all optimizers of the class that were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.random import fork_rng

if TYPE_CHECKING:
    from worldsize.fabric.interface import Fabric


class Model(NamedTuple):
    """An optimizer's model: `make()` makes it, `output(model, random, step)` is its output for a batch drawn from `random`."""

    make: Callable[[], nn.Module]
    output: Callable[[nn.Module, torch.Generator, int], torch.Tensor]


def drawn(random: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=random, dtype=torch.float64)


def _tied() -> nn.Module:
    model = nn.ModuleDict({"words": nn.Embedding(9, 6), "cell": nn.GRU(6, 6, batch_first=True), "out": nn.Linear(6, 9)})
    model["out"].weight = model["words"].weight
    return model


def _tied_output(model: nn.Module, random: torch.Generator, step: int) -> torch.Tensor:
    words = torch.randint(9, (2, 4), generator=random)
    return model["out"](model["cell"](model["words"](words))[0])


def _frozen() -> nn.Module:
    parts = {"base": nn.Linear(5, 6), "sometimes": nn.Linear(6, 6), "never": nn.Bilinear(2, 3, 2), "head": nn.LSTM(6, 4)}
    model = nn.ModuleDict(parts)
    model["base"].requires_grad_(False)
    return model


def _frozen_output(model: nn.Module, random: torch.Generator, step: int) -> torch.Tensor:
    x = model["base"](drawn(random, 3, 5))
    if step % 3 != 1:
        x = model["sometimes"](x).tanh()
    return model["head"](x)[0]


MODELS = {
    "two layers": Model(
        lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), lambda model, random, _: model(drawn(random, 4, 5))
    ),
    # without biases: a key bias's gradient is only rounding, which an adaptive optimizer turns into full steps
    "an encoder layer": Model(
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, bias=False, batch_first=True),
        lambda model, random, _: model(drawn(random, 2, 3, 8)),
    ),
    "tied words": Model(_tied, _tied_output),
    "convolutions": Model(
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Conv2d(4, 3, 3, padding=1), nn.Flatten(), nn.Linear(48, 2)),
        lambda model, random, _: model(drawn(random, 2, 2, 6, 6)),
    ),
    "frozen and unused layers": Model(_frozen, _frozen_output),
    # large and small parameters alternate, so dealing them out by number gives one of two ranks all large ones
    "six layers": Model(
        lambda: nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(4, 4), nn.Tanh()))),
        lambda model, random, _: model(drawn(random, 4, 4)),
    ),
}


def model_of(name: str, seed: int) -> nn.Module:
    with fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name].make().double()


def loss_of(name: str, model: nn.Module, seed: int, step: int, rank: int) -> torch.Tensor:
    """Return the loss of the optimizer's model on this rank's batch of this step."""
    random = torch.Generator().manual_seed(seed + 1000 * (step + 1) + rank)  # one batch per rank and step
    output = MODELS[name].output(model, random, step)
    return F.mse_loss(output, drawn(random, *output.shape))


def train(model: nn.Module, make: Callable, given: dict[str, Any], backward: Callable[[int], None]) -> Any:
    """Train with the optimizer `make(parameters)`, as a script does, and return it; `backward(step)` leaves the gradients.

    given["second_rate"], if not 0: the second half of the parameters is a group with this rate. given["added_at"], if not 0:
    the last two parameters come as a group at this step, and the first group's rate changes. given["decay_at"], if not 0:
    AdamW's weight decay and betas change at this step. given["schedule"] names a scheduler.
    """
    parameters = list(model.parameters())
    later = parameters[-2:] if given["added_at"] else []
    now = parameters[: len(parameters) - len(later)]

    groups: Any = iter(now)  # an iterator, as model.parameters() is
    if given["second_rate"]:
        half = len(now) // 2
        groups = [{"params": now[:half]}, {"params": now[half:], "lr": given["second_rate"]}]

    optimizer, schedule = make(groups), None
    if given["schedule"] == "StepLR":
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.4)
    for step in range(given["steps"]):
        if later and step == given["added_at"]:
            optimizer.add_param_group({"params": later, "lr": given["options"]["lr"] / 2})
            optimizer.param_groups[0]["lr"] *= 3
        if step and step == given["decay_at"]:
            for group in optimizer.param_groups:
                group["weight_decay"] *= 4
                group["betas"] = (0.7, 0.9)
        optimizer.zero_grad()
        backward(step)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return optimizer


def watched(kind: type, made: list[Any]) -> type:
    """Return a subclass of the optimizer class `kind` whose instances are appended to `made`."""

    def note(self: Any, *given: Any, **more: Any) -> None:
        kind.__init__(self, *given, **more)  # type: ignore[misc]  # `kind` is a class, not an instance
        made.append(self)

    return type(kind.__name__, (kind,), {"__init__": note})


def state_bytes(optimizers: Iterable[Any]) -> int:
    """Return the bytes of the storages that the optimizers' state lies in, each once, without step counts."""
    storages = {}
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for x in state.values():
                if torch.is_tensor(x) and x.ndim:
                    storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
    return sum(storages.values())


def stepped(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> dict[str, Any]:
    """Return the weights after steps with `fn(fabric, parameters, kind, **options)`, and the bytes of this rank's state.

    "made" is the number of optimizers of the class that were made.
    """
    made: list[Any] = []
    kind = watched(getattr(torch.optim, given["kind"]), made)
    model = model_of(given["model"], given["seed"])

    train(
        model,
        lambda parameters: fn(fabric, parameters, kind, **given["options"]),
        given,
        lambda step: loss_of(given["model"], model, given["seed"], step, fabric.rank).backward(),
    )
    return {"weights": list(model.parameters()), "state": state_bytes(made), "made": len(made)}
