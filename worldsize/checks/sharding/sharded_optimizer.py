"""Check of `sharded_optimizer`: an optimizer of any class, of which each rank keeps and steps its own part.

torch.nn models are trained on the ranks, each with its own batches, and in one process with the whole optimizer and the mean
gradients. No points: only the function's own process can see a rank's state. S. Rajbhandari et al., "ZeRO", SC 2020, section
5.1; torch's version is `torch.distributed.optim.ZeroRedundancyOptimizer`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import any_optimizer
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import SINGLE, SINGLE_WORDS
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.values import same
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import times

WEIGHTS = "its steps are those of one process with the whole optimizer"
STATE = "a rank keeps its part of the state, and at most one parameter's more"
MESSAGES = "a step sends no more than an all-reduce of the gradients"
NEAR = 1e-10
STEPS = 6
MODELS = tuple(any_optimizer.MODELS)
UNUSED = "frozen and unused layers"


@dataclass(frozen=True)
class TrainedModel:
    """A training run: the model, the number of ranks, the optimizer class and its options; see `any_optimizer.train`."""

    world_size: int
    model: str
    kind: str
    options: dict[str, float]
    second_rate: float = 0.0
    added_at: int = 0
    decay_at: int = 0
    schedule: str = ""
    seed: int = 0

    def given(self) -> dict[str, Any]:
        return {
            "model": self.model, "kind": self.kind, "options": self.options, "second_rate": self.second_rate,
            "added_at": self.added_at, "decay_at": self.decay_at, "schedule": self.schedule, "seed": self.seed, "steps": STEPS,
        }  # fmt: skip

    @override
    def __str__(self) -> str:
        extras = [
            f"with {self.schedule}" * bool(self.schedule), "in two groups" * bool(self.second_rate),
            "a group added later" * bool(self.added_at), "other options later" * bool(self.decay_at),
        ]  # fmt: skip
        return ", ".join([ranks_in_words(self.world_size), self.model, self.kind, *filter(None, extras)])


@exercise({WEIGHTS: 0.0, STATE: 0.0, MESSAGES: 0.0}, seen={STATE: evidence.OWN_PROCESS, MESSAGES: evidence.MESSAGES})
def sharded_optimizer(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check an optimizer of any class that is sharded over the ranks.

    `sharded_optimizer(fabric, parameters, kind, **options)` returns a `torch.optim.Optimizer` that takes the steps of
    `kind(parameters, **options)` with the mean of the ranks' gradients; a parameter has a gradient on every rank or on none.
    """
    for training in trainings(arena.draws.getrandbits(20), arena.draws.uniform(0.01, 0.03)):
        right = one_process(training)  # before the run: a process's first optimizer spends seconds on imports
        run = partial(arena.ranks, fn, [training.given()] * training.world_size, driver=any_optimizer.stepped)
        yield Case(str(training), run, partial(_examine, task=training, right=right), _ADVICE)


def trainings(seed: int, rate: float) -> list[TrainedModel]:
    two_layers, encoder, tied, convolutions, _, six_layers = MODELS
    return [
        TrainedModel(2, two_layers, "AdamW", {"lr": rate, "weight_decay": 0.1}, seed=seed),
        TrainedModel(3, encoder, "SGD", {"lr": rate, "momentum": 0.9}, second_rate=4 * rate, seed=seed + 1),
        TrainedModel(4, tied, "RMSprop", {"lr": rate / 2, "eps": 1e-4}, schedule="StepLR", seed=seed + 2),
        TrainedModel(2, six_layers, "SGD", {"momentum": 0.9}, schedule="StepLR", seed=seed + 6),  # with SGD's default rate
        TrainedModel(4, UNUSED, "AdamW", {"lr": rate}, decay_at=3, seed=seed + 3),
        TrainedModel(1, two_layers, "Adagrad", {"lr": rate}, seed=seed + 4),
        TrainedModel(5, convolutions, _kind_with_late_groups(), {"lr": rate, "eps": 1e-4}, added_at=3, seed=seed + 5),
    ]


@cache
def _kind_with_late_groups() -> str:
    """Return Adagrad, which makes its state early, or another class where torch's own Adagrad takes no group later: in 2.9."""
    early, late = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = torch.optim.Adagrad([early])
    optimizer.add_param_group({"params": [late]})
    late.grad = torch.ones(1)
    try:
        optimizer.step()
    except KeyError:
        return "RMSprop"
    return "Adagrad"


_ALL_OPTIONS = "Give every group of the optimizer all options of its class, `kind`'s defaults included: scripts expect them."
_AN_OPTIMIZER = "Return an optimizer whose class inherits torch.optim.Optimizer: schedulers need one."
_ADVICE = {
    "is not an Optimizer": _AN_OPTIMIZER,
    "has no attribute 'zero_grad'": _AN_OPTIMIZER,
    "has no attribute 'param_groups'": _AN_OPTIMIZER,
    "has no attribute 'add_param_group'": _AN_OPTIMIZER,
    "KeyError: 'lr'": _ALL_OPTIONS,
    "KeyError: 'weight_decay'": _ALL_OPTIONS,
    "KeyError: 'betas'": _ALL_OPTIONS,
    "empty parameter list": "`parameters` may be an iterator, which you can read only once: make a list of it first.",
    "got an empty parameter list": "A rank may own no parameter of a group: give it an empty piece, or no group.",
    "'NoneType' object": "A parameter may have no gradient in a step: frozen, or not used. Leave it out.",
}


@dataclass(frozen=True)
class OptimizerSlip:
    """A known mistake in an optimizer's steps; the defaults are no mistake."""

    scale: float = 1.0  # factor on the mean gradient
    heard: tuple[str, ...] = ()  # only these later changes in param_groups take effect; () for all
    one_rate: bool = False  # the second group is stepped with the first group's rate
    deaf: bool = False  # no later change in param_groups takes effect
    adds_nothing: bool = False
    forgetful: bool = False  # every step begins with a fresh state
    never_zeroed: bool = False
    zeros: bool = False  # a missing gradient is replaced by zeros
    twice: bool = False


@dataclass
class OneProcess:
    """An optimizer's final weights, bytes of state per parameter, and per step the bytes of parameters with a gradient."""

    weights: list[np.ndarray] = field(default_factory=list)
    state: list[int] = field(default_factory=list)
    with_gradient: list[int] = field(default_factory=list)


def one_process(task: TrainedModel, slip: OptimizerSlip = OptimizerSlip()) -> OneProcess:  # noqa: B008, it is frozen
    """Train with the whole optimizer in this process."""
    given, result = task.given(), OneProcess()
    model = any_optimizer.model_of(task.model, task.seed)
    parameters = list(model.parameters())
    optimizers = []

    def make(groups: Any) -> Any:
        kind = getattr(torch.optim, task.kind)
        optimizers.append(_slipping(kind, slip)(groups, **task.options))
        return optimizers[0]

    def backward(step: int) -> None:
        for rank in range(task.world_size):
            loss = any_optimizer.loss_of(task.model, model, task.seed, step, rank)
            (loss * slip.scale / task.world_size).backward()
        result.with_gradient.append(sum(p.nbytes for p in parameters if p.grad is not None))
        for p in parameters:
            if slip.zeros and p.grad is None:
                p.grad = torch.zeros_like(p)

    if slip.one_rate:
        given["second_rate"] = 0.0
    any_optimizer.train(model, make, given, backward)
    result.weights = [p.detach().numpy() for p in parameters]
    for state in optimizers[0].state.values():
        result.state.append(sum(x.nbytes for x in state.values() if torch.is_tensor(x) and x.ndim))  # no step counts
    return result


def _slipping(kind: type, slip: OptimizerSlip) -> type:
    """Return a subclass of the optimizer class `kind` that makes the sharded optimizer's mistake."""

    class Slipping(kind):
        def add_param_group(self, group: dict[str, Any]) -> None:
            if not (slip.adds_nothing and self.state):
                super().add_param_group(group)
                options = {name: value for name, value in self.param_groups[-1].items() if name != "params"}
                self.told = [*getattr(self, "told", []), options]

        def zero_grad(self, set_to_none: bool = True) -> None:
            if not slip.never_zeroed:
                super().zero_grad(set_to_none)

        def step(self, closure: Any = None) -> None:
            now = [dict(group) for group in self.param_groups]
            for group, options in zip(self.param_groups, self.told, strict=True):
                if slip.deaf:
                    group.update(options)
                if slip.heard:
                    group.update({name: value for name, value in options.items() if name not in slip.heard})

            if slip.forgetful:
                self.state.clear()
            for _ in range(2 if slip.twice else 1):
                super().step()
            for group, before in zip(self.param_groups, now, strict=True):
                group.update(before)

    return Slipping


_SLIPS = {
    OptimizerSlip(heard=("lr",)): (
        "Of the options set in `param_groups` after the start, the rate alone reaches the steps, not the weight decay and "
        "betas: hand on all options but \"params\"."
    ),
    OptimizerSlip(heard=("lr", "weight_decay")): (
        "Of the options set in `param_groups` after the start, the rate and the weight decay reach the steps, not the betas: "
        "hand on all options but \"params\"."
    ),
    OptimizerSlip(deaf=True): (
        "Options set in `param_groups` after the start, such as a scheduler's \"lr\", do not reach the steps: hand the "
        "groups' options on at every step."
    ),
    OptimizerSlip(one_rate=True): "All parameters were stepped with one rate: a group may have its own.",
    OptimizerSlip(adds_nothing=True): "The group added by add_param_group is not stepped.",
    OptimizerSlip(never_zeroed=True): "zero_grad leaves the parameters' own gradients, which then add up from step to step.",
    OptimizerSlip(zeros=True): (
        "A parameter without a gradient was stepped with zeros: weight decay and momentum move it all the same. Leave it out of "
        "the step."
    ),
    OptimizerSlip(forgetful=True): "Each step begins with a new state: make the inner optimizer once, and keep it.",
    OptimizerSlip(twice=True): "Each step was taken twice.",
}  # fmt: skip


def _examine(ended: ArenaResult, task: TrainedModel, right: OneProcess) -> dict[str, Complaint]:
    wrong = _wrong_weights([told["weights"] for told in ended.returned], task, right)
    sent = none_sent(ended.trace, "Send the owners' weights to all ranks.")
    return {
        WEIGHTS: wrong,
        STATE: _too_large(ended.returned, task, right),
        MESSAGES: UNEXAMINED if wrong else though_right("the weights", sent or _dear(ended, task, right)),
    }


def _wrong_weights(held: Sequence[Any], task: TrainedModel, right: OneProcess) -> Complaint:
    place = _first_wrong(held, right.weights)
    if place is None:
        return None

    rank, k = place
    shape, off = list(right.weights[k].shape), 0.0
    for of_rank in held:
        for got, expected in zip(of_rank, right.weights, strict=True):
            off = max(off, float(np.abs(got - expected).max()))
    told = f"rank {rank}: parameter {k}, of shape {shape}, differs from one process's; the largest difference is {off:.1e}. "
    return told + _why(held, task, right)


def _first_wrong(held: Sequence[Any], weights: list[np.ndarray], near: float = NEAR) -> tuple[int, int] | None:
    for rank, of_rank in enumerate(held):
        for k, (got, expected) in enumerate(zip(of_rank, weights, strict=True)):
            if not same(got, expected, near, near):
                return rank, k

    return None


def _why(held: Sequence[Any], task: TrainedModel, right: OneProcess) -> str:
    start = [p.detach().numpy() for p in any_optimizer.model_of(task.model, task.seed).parameters()]
    if _first_wrong(held, start) is None:
        return "These are the initial weights: change the parameters in place at every step."

    summed = {OptimizerSlip(scale=task.world_size): "It stepped by the sum of the gradients: divide by the number of ranks."}
    for slip, words in (summed | _SLIPS).items():
        if _first_wrong(held, one_process(task, slip).weights) is None:
            return words

    if task.model == UNUSED:
        return (
            "A parameter without a gradient in a step stays as it is, even if it had one in the step before: is an old "
            "gradient left on a piece, or is a missing one taken for zeros?"
        )
    if _first_wrong(held, list(held[0])) is not None:
        return "Ranks hold different weights: after a step send each owner's weights to all ranks."
    if _first_wrong(held, right.weights, SINGLE) is None:
        return SINGLE_WORDS
    return "Are the gradients averaged over all ranks, and does each parameter come from its owner?"


def _too_large(returned: Sequence[dict[str, Any]], task: TrainedModel, right: OneProcess) -> Complaint:
    whole, n = sum(right.state), task.world_size
    most = whole / n + max(right.state)  # parameters are dealt out whole, so one more may fall to a rank

    for rank, report in enumerate(returned):
        if not report["made"]:
            return f"rank {rank} made no optimizer of the class `kind`: let one take the steps."
        if n > 1 and report["state"] > most:
            everything = ", as much as for all parameters: nothing is saved" * (report["state"] >= whole)
            why = "Deal whole parameters out by size, not by number; and note that a slice keeps its whole tensor in memory."
            if task.kind == "Adagrad":
                why = "Adagrad makes its state as soon as it has a parameter: give it this rank's part alone."
            return (
                f"rank {rank} keeps {report['state']} bytes of state{everything}; expected at most {most:.0f}, 1/{n} of the "
                f"whole and the largest parameter's. {why}"
            )
    return None


def _dear(ended: ArenaResult, task: TrainedModel, right: OneProcess) -> Complaint:
    """Return a complaint if more of an optimizer's bytes travel than an all-reduce of the existing gradients sends."""
    n, everything = task.world_size, sum(w.nbytes for w in right.weights)
    needed = sum(2 * (n - 1) * size for size in right.with_gradient)
    without = sum((n - 1) * (everything - size) for size in right.with_gradient)

    got = ended.trace.total_bytes()
    if got <= needed:
        return None

    told = f"all ranks together sent {times(got / needed)} x an all-reduce of the gradients; expected 1 x. "
    if got <= needed + without:
        return told + "A parameter without a gradient in a step does not change: do not gather it."
    return told + "An owner needs only its own part of the sum, and the other ranks need that part's weights."
