"""Check of a training with DistributedDataParallel and a DistributedSampler, epoch by epoch.

The model is a line, so a few rows of NumPy give the right weights and those that known slips lead to. Every rank has
its own y, so no rank can compute another's gradients; messages stay unchecked, inside the submission's own process
group. S. Li et al., "PyTorch Distributed", VLDB 2020.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks import needs
from worldsize.checks.arena import Arena
from worldsize.checks.drivers import ddp_parts
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, ranks_in_words, though_right
from worldsize.checks.kit.values import alike, first_slip, is_row, kind_in_words, size
from worldsize.checks.replicas.sampler import library
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count as counted

ALIKE = "all ranks hold the same weights"
TOGETHER = "one step is that of all ranks' examples together"
ORDERS = "every epoch has an order of its own"
PARTS = "build makes the model, loss judges it"
MOVED = "model and examples are moved to the device"
BY_DDP = "the weights are right because DDP averages the gradients"
GROUP_STAYS = "the process group stays"
SHIFT, SCALE = 0.37, 1.7  # the check's own build adds SHIFT to the weights; its loss is SCALE x the mean squared error
PLANS = ((2, 11, 3, 3), (3, 14, 2, 2))  # (ranks, examples, a rank's batch size, epochs); few ranks, because DDP starts slowly
INPUTS = 2
USUAL_SEEDS = (42, 123)
USUAL_DECAYS, USUAL_MOMENTA = (1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 0.1), (0.5, 0.9, 0.99)
NEAR_ZERO = 1e-8  # weights may be float32, and pass near 0 between values near 1

Inputs = list[dict[str, np.ndarray]]


@dataclass(frozen=True)
class DdpTrainingRun:
    """A training in which every rank has all examples, with its own y and initial weights."""

    inputs: Inputs
    batch_size: int
    rate: float
    epochs: int
    shift: float = 0.0
    scale: float = 1.0

    @property
    def n(self) -> int:
        return len(self.inputs)

    @property
    def count(self) -> int:
        return len(self.inputs[0]["x"])

    def orders(self, epochs: Iterable[int] | None = None, seed: int = 0) -> list[list[list[int]]]:
        """Return the sampler's indices in order for DDP, by epoch and rank. 0 is the sampler's default seed."""
        return [library(self.count, self.n, seed, epoch) for epoch in (range(self.epochs) if epochs is None else epochs)]

    def slope(self, rank: int, batch: Sequence[int], weights: np.ndarray) -> np.ndarray:
        """Return the gradient of the mean squared error on a batch of the rank's examples."""
        given = self.inputs[rank]
        table = np.c_[given["x"], np.ones(self.count)][batch]
        return 2 * table.T @ (table @ weights - given["y"][batch, 0]) / len(batch)

    def start(self, rank: int) -> np.ndarray:
        given = self.inputs[rank]
        return np.append(given["weight"], given["bias"]) + self.shift

    @override
    def __str__(self) -> str:
        return f"{ranks_in_words(self.n)}, {self.count} examples, {self.batch_size} of each rank in a step"


@exercise(
    {ALIKE: 0.25, TOGETHER: 0.25, ORDERS: 0.25, PARTS: 0.25, BY_DDP: 0.5, MOVED: 0.0, GROUP_STAYS: 0.0},
    seen={BY_DDP: evidence.RETURNED_AND_DDP, MOVED: evidence.OWN_PROCESS, GROUP_STAYS: evidence.OWN_PROCESS},
    needs=needs.GROUP,
)
def train_ddp(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a training with DDP.

    `train_ddp(data, epochs, batch_size, rate, build, loss)` returns the weights after each epoch, [weight…, bias] each.
    The first training uses the lab's own `build` and `loss`, the second one the check's.

    `data` has "weight" [1, inputs], "bias" [1] and "y" [count, 1], which differ by rank, and "x" [count, inputs].
    """
    plain, other = (draw_lesson(*plan, arena.draws.getrandbits(32)) for plan in PLANS)
    with_parts = replace(other, shift=SHIFT, scale=SCALE)
    own_parts = Case(
        str(plain),
        lambda: arena.group(fn, plain.inputs, plain.epochs, plain.batch_size, plain.rate, driver=ddp_parts.noted),
        lambda ended: _examine([of_rank["returned"] for of_rank in ended.returned], plain, ended.returned[0]),
        _NO_HOOK,
    )

    checks_parts = Case(
        f"{other}, another model and another loss",
        lambda: arena.group(
            fn, other.inputs, other.epochs, other.batch_size, other.rate, SHIFT, SCALE, driver=ddp_parts.with_model_and_loss
        ),
        lambda ended: _examine_parts(ended.returned, with_parts),
        _NO_HOOK,
    )
    return [own_parts, checks_parts]


_NO_HOOK = {
    "Expected to have finished reduction": (
        "Here every parameter is used. Was one replaced or added after the wrapping? DDP has hooks only for the parameters that "
        "it wrapped: make all changes first, and wrap last."
    ),
    "does not require a gradient": "DDP found nothing to average: leave the parameters' requires_grad as build made it.",
}


def draw_lesson(n: int, count: int, batch_size: int, epochs: int, seed: int) -> DdpTrainingRun:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, INPUTS))
    line = generator.normal(size=(INPUTS, 1))

    inputs = []
    for rank in range(n):
        y = x @ line + generator.normal(size=(count, 1)) - rank
        weight, bias = generator.normal(size=(1, INPUTS)) + rank, generator.normal(size=1)
        inputs.append({"weight": weight, "bias": bias, "x": x, "y": y})

    return DdpTrainingRun(inputs, batch_size, rate=float(generator.uniform(0.05, 0.1)), epochs=epochs)


def history(
    lesson: DdpTrainingRun, orders: Sequence, start: int = 0, scale: float = 1.0, keep: float = 0.0, decay: float = 0.0,
    owners: Sequence[int] | None = None, anew: bool = False, once: bool = False, summed: bool = False,
) -> np.ndarray:  # fmt: skip
    """Return the weights after each epoch of DDP training, computed in NumPy. Shape [epochs, inputs + 1].

    Each step takes the mean of the ranks' mean gradients, times `scale`, plus `keep` times the step before (1 if
    gradients are never zeroed, else a momentum; `anew`: not of an earlier epoch), plus `decay` times the weights. `once`: the
    weights move at the end of an epoch alone. `summed`: gradients are sums over a rank's batch. `start` is the rank whose
    weights come first. `owners` are the ranks whose y the shares use; by default each share's own rank.
    """
    owners = range(lesson.n) if owners is None else owners
    weights = lesson.start(start)
    by_epoch, kept = [], 0.0 * weights

    for shares in orders:
        if anew:
            kept = 0.0 * weights
        for batches in _steps(shares, lesson.batch_size):
            slopes = [
                lesson.slope(rank, batch, weights) * (len(batch) if summed else 1)
                for rank, batch in zip(owners, batches, strict=True)
            ]
            kept = scale * lesson.scale * np.mean(slopes, axis=0) + decay * weights + keep * kept
            if not once:
                weights = weights - lesson.rate * kept
        if once:
            weights = weights - lesson.rate * kept
        by_epoch.append(weights)

    return np.stack(by_epoch)


def histories_apart(lesson: DdpTrainingRun, orders: Sequence) -> list[np.ndarray]:
    """Return each rank's history if gradients are averaged, but every rank began with weights of its own."""
    weights = np.stack(list(map(lesson.start, range(lesson.n))))
    by_epoch = []
    for shares in orders:
        for batches in _steps(shares, lesson.batch_size):
            slopes = [lesson.slope(rank, batch, weights[rank]) for rank, batch in enumerate(batches)]
            weights = weights - lesson.rate * lesson.scale * np.mean(slopes, axis=0)
        by_epoch.append(weights)
    return list(np.stack(by_epoch, axis=1))


def _steps(shares: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[Sequence[int]]]:
    """Yield each step's batches of an epoch, one for each share."""
    for first in range(0, len(shares[0]), batch_size):
        yield [share[first : first + batch_size] for share in shares]


def _slips(lesson: DdpTrainingRun) -> dict[str, list[np.ndarray]]:
    """Return {complaint: the weights after DDP on each rank} of known mistakes."""
    n, orders, never_anew = lesson.n, lesson.orders(), lesson.orders([0] * lesson.epochs)
    every = list(range(lesson.count))
    padded = [i % lesson.count for i in range(-(-lesson.count // n) * n)]
    in_order = [[padded[rank::n] for rank in range(n)]] * lesson.epochs
    own = lesson.batch_size
    last = [[share[(len(share) - 1) // own * own :] for share in shares] for shares in orders]
    of_rank_0 = [[shares[0]] * n for shares in orders]
    # as DistributedSampler's drop_last cuts: each rank has a last example fewer
    even = [[share[: lesson.count // n] for share in shares] for shares in orders]
    whole = [[share[: len(share) // own * own] for share in shares] for shares in orders]

    def on_all(*more: Any, **ways: Any) -> list[np.ndarray]:
        return [history(lesson, *more, **ways)] * n

    everything = [[every] * n] * lesson.epochs

    def alone(start: Callable[[int], int], taken: Sequence) -> list[np.ndarray]:
        return [history(lesson, [[shares[r]] for shares in taken], start(r), owners=[r]) for r in range(n)]

    return {
        "Every epoch has the order of the first one: call sampler.set_epoch(epoch) before each.": on_all(never_anew),
        "Every epoch has the order of the first one, and the gradients of earlier steps are still there: "
        "sampler.set_epoch(epoch) before each, optimizer.zero_grad() at every step.": on_all(never_anew, keep=1.0),
        f"Each rank took batch_size // {n} examples in a step: batch_size counts one rank's examples.": [
            history(replace(lesson, batch_size=max(1, own // n)), orders)
        ] * n,
        f"Each rank took {n} · batch_size examples in a step: batch_size counts one rank's examples already.": [
            history(replace(lesson, batch_size=own * n), orders)
        ] * n,
        "The smaller batch at the end of a share was left out: the loader's drop_last is False by default.": on_all(whole),
        "The examples were never shuffled: leave shuffle to the sampler, whose default is True.": on_all(in_order),
        "Every rank took all examples: give the loader the sampler, sampler=….": on_all(everything),
        "The gradients of earlier steps are still there: optimizer.zero_grad() at every step.": on_all(orders, keep=1.0),
        **{
            f"The weights shrink by a little more at every step: the optimizer has weight_decay={decay:g}. A plain step is "
            "weights -= rate · gradient.": on_all(orders, decay=decay) for decay in USUAL_DECAYS
        },
        **{
            f"Each step contains a part of the step before: the optimizer has momentum={keep:g}. A plain step is "
            "weights -= rate · gradient.": on_all(orders, keep=keep) for keep in USUAL_MOMENTA
        },
        "The orders are those of epochs 1, 2, …, or of seed 1: sampler.set_epoch(0) comes first, and the sampler's seed stays 0.":
            on_all(lesson.orders(range(1, lesson.epochs + 1))),
        **{
            f"The orders are those of the sampler's seed {seed}: leave it at 0.": on_all(lesson.orders(seed=seed))
            for seed in USUAL_SEEDS
        },
        "These are the weights before each epoch: note them after it.": on_all([[[]] * n, *orders[:-1]]),
        "The weights moved once an epoch, by the last step's gradients: optimizer.step() belongs into the loop over batches.":
            on_all(last),
        "The weights moved once an epoch, by the sum of all steps' gradients: zero_grad(), backward() and step() belong into "
        "the loop over batches.": on_all(orders, keep=1.0, anew=True, once=True),
        "The gradients of an epoch's earlier steps are still there: optimizer.zero_grad() at every step.":
            on_all(orders, keep=1.0, anew=True),
        "The sampler left examples out: its drop_last is False by default.": on_all(even),
        "Every rank took rank 0's examples: the sampler asks the group for its rank by itself.": on_all(of_rank_0),
        f"The steps are {own} times too short: the loss is a mean over the batch already.": on_all(orders, scale=1 / own),
        "Each gradient is multiplied by the number of its batch's examples: the loss is a mean over the batch; take it as it is.":
            on_all(orders, summed=True),
        "The ranks began with other weights, and kept them apart: DDP gives all ranks rank 0's when it wraps the model, unless "
        "init_sync is False.": histories_apart(lesson, orders),
        "The weights never moved: call optimizer.step(), of an optimizer that holds the wrapped model's parameters.": on_all(
            orders, scale=0.0
        ),
        f"The steps are {n} times as long: DDP has divided by the number of ranks already, and by nothing else.": on_all(
            orders, scale=n
        ),
        f"The steps are {n} times too short: DDP has divided by the number of ranks already.": on_all(orders, scale=1 / n),
        **{
            f"The ranks' gradients were added up and divided by {other}, but there are {n} ranks.":
                on_all(orders, scale=n / other) for other in {2} - {n}
        },
        "Each rank trained on its share alone, from weights of its own: nothing is wrapped in DistributedDataParallel, or "
        "the unwrapped model was called.": alone(lambda r: r, orders),
        "The ranks began alike and then each trained on its share alone: call the wrapped model. Its forward arms the "
        "hooks; ddp.module goes round it, and no_sync() disarms them.": alone(lambda r: 0, orders),
        "Each rank trained on all examples by itself, from weights of its own.": alone(lambda r: r, everything),
        "Each rank computed the gradients of all shares by itself: take one share a rank, and let DDP average.": [
            history(lesson, orders, owners=[r] * n) for r in range(n)
        ],
    }


def _examine(returned: Sequence[Any], lesson: DdpTrainingRun, parts: Mapping[str, Any]) -> dict[str, Complaint]:
    """Examine each rank's history; `parts` is what `ddp_parts` noted of rank 0's training."""
    for rank, got in enumerate(returned):
        complaint = _no_history(got, rank, lesson.epochs)
        if complaint:
            return {ALIKE: UNEXAMINED, TOGETHER: complaint, ORDERS: UNEXAMINED}

    histories, orders = list(map(rows_of, returned)), lesson.orders()
    right, start = history(lesson, orders), history(lesson, orders, scale=0.0)
    apart = [rank for rank, rows in enumerate(histories) if not alike(rows, histories[0], near_zero=NEAR_ZERO)]
    complaints = {
        ALIKE: f"ranks 0 and {apart[0]} hold different weights." if apart else None,
        TOGETHER: _first_difference(histories, right, start, epochs=1),
        ORDERS: _first_difference(histories, right, start, epochs=lesson.epochs),
    }

    slip = ""
    if any(complaints.values()):
        slip = first_slip(lambda by_rank: alike(np.stack(histories), np.stack(by_rank), near_zero=NEAR_ZERO), _slips(lesson))
    kept = any(complaint and _KEPT in complaint for complaint in complaints.values())
    if not slip and not apart and not kept:
        slip = _odd_part(lesson, parts) or (
            "All ranks agree: so a step takes other examples than expected, or is longer or shorter."
        )
    for held, complaint in complaints.items():
        if complaint:
            complaints[held] = f"{complaint} {slip}".strip()
    if complaints[TOGETHER]:
        complaints[ORDERS] = UNEXAMINED
    return complaints


_NO_DDP = (
    "No DistributedDataParallel was called: wrap the model, call the wrapped one, and let DDP average the gradients at every "
    "step."
)


def _odd_part(lesson: DdpTrainingRun, parts: Mapping[str, Any]) -> str:
    """Return what is odd about a training: no DDP, its samplers or its optimizer; or an empty text."""
    if not parts["called"]:
        return _NO_DDP
    epochs, seeds = [epoch for epoch, _ in parts["orders"]], {seed for _, seed in parts["orders"]}
    if not epochs:
        return (
            "No DistributedSampler was asked for an order: give the loader the sampler, sampler=…, and no shuffle=True. "
            "Otherwise each rank takes all examples."
        )
    if seeds != {0}:
        return f"The orders are those of the sampler's seed {max(seeds, key=abs)}: leave it at 0."
    expected = list(range(lesson.epochs))
    if epochs != expected:
        return (
            f"The sampler gave the orders of epochs {epochs}, expected {expected}: call sampler.set_epoch(epoch) before the "
            "loop over an epoch's batches."
        )
    for optimizer in parts["optimizers"]:
        name, odd = optimizer["name"], [key for key in ("momentum", "weight_decay") if optimizer[key]]
        if name != "SGD":
            return f"The optimizer is {name}. A plain step is weights -= rate · gradient, as SGD takes it."
        if odd:
            return f"The optimizer has {odd[0]}={optimizer[odd[0]]:g}. A plain step is weights -= rate · gradient."
        if not math.isclose(optimizer["lr"], lesson.rate, rel_tol=1e-4):
            return f"The optimizer's lr is {optimizer['lr']:.4g}; rate is {lesson.rate:.4g}."
    return ""


def _examine_parts(returned: Sequence[Any], lesson: DdpTrainingRun) -> dict[str, Complaint]:
    """Examine the records of `ddp_parts.with_model_and_loss`. `lesson` has the model's shift and the loss's scale."""
    histories = [of_rank["returned"] for of_rank in returned]
    unexamined = dict.fromkeys((PARTS, BY_DDP, MOVED, GROUP_STAYS), UNEXAMINED)
    if any(_no_history(got, rank, lesson.epochs) for rank, got in enumerate(histories)):
        return {**_examine(histories, lesson, returned[0]), **unexamined}

    weights = np.stack(list(map(rows_of, histories)))
    ignored = {
        "The check's own build and loss were not used: they are parameters, call them.": replace(lesson, shift=0.0, scale=1.0),
        "The model does not come from build(data): build is a parameter, call it.": replace(lesson, shift=0.0),
        "The loss is not the given one: loss is a parameter, call it.": replace(lesson, scale=1.0),
    }
    for complaint, other in ignored.items():
        if all(alike(rows[0], history(other, other.orders([0]))[0], near_zero=NEAR_ZERO) for rows in weights):
            return {**_examine(histories, other, returned[0]), **unexamined, PARTS: complaint}

    complaints = _examine(histories, lesson, returned[0])
    complaints[PARTS] = UNEXAMINED if complaints[TOGETHER] else None
    complaints[BY_DDP] = UNEXAMINED if complaints[TOGETHER] or complaints[ORDERS] else None
    if not all(of_rank["called"] for of_rank in returned):
        complaints[BY_DDP] = complaints[BY_DDP] or though_right("the weights", _NO_DDP[0].lower() + _NO_DDP[1:])
    complaints[MOVED] = None
    moved = returned[0]["moved"]
    if not moved["model"]:
        complaints[MOVED] = "the model stays where build made it: for a GPU, move it first, build(data).to(my_device())."
    elif not moved["examples"]:
        complaints[MOVED] = (
            "the examples stay on the CPU: for a GPU, move each batch to the model, x.to(device), y.to(device)."
        )
    complaints[GROUP_STAYS] = None
    if not all(of_rank["group"] for of_rank in returned):
        complaints[GROUP_STAYS] = "the process group is gone: the caller made it, so the caller ends it."
    return complaints


def _no_history(got: Any, rank: int, epochs: int) -> Complaint:
    shape = f"the weights after each of {epochs} epochs, a list of {epochs} tensors of {INPUTS + 1} numbers"
    if not is_row(got):
        return f"rank {rank}: expected {shape}, got {kind_in_words(got)}"

    if any(isinstance(row, dict) for row in got):
        return f"rank {rank}: expected {shape}, got dicts: make one vector of an epoch's weights, flat([*ddp.parameters()])"

    sizes = list(map(size, got))
    if len(sizes) != epochs or set(sizes) != {INPUTS + 1}:
        return f"rank {rank}: expected {shape}, got {counted(len(sizes), 'row')} of {', '.join(map(str, sizes))} numbers"

    try:
        rows_of(got)
    except (TypeError, ValueError):
        return f"rank {rank}: expected {shape}, got values that are not numbers"

    return None


def rows_of(got: Any) -> np.ndarray:
    """Return the rows of a DDP training's history; a row may be one tensor, or a list with a tensor for each parameter."""
    return np.stack(list(map(_flat, got)))


def _flat(row: Any) -> np.ndarray:
    if isinstance(row, (tuple, list)):
        return np.concatenate(list(map(_flat, row)))
    return np.asarray(row, float).reshape(-1)


_KEPT = "All rows are equal: keep a copy of the weights."


def _first_difference(histories: Sequence[np.ndarray], right: np.ndarray, start: np.ndarray, epochs: int) -> Complaint:
    for rank, rows in enumerate(histories):
        for epoch in range(epochs):
            if alike(rows[epoch], right[epoch], near_zero=NEAR_ZERO):
                continue

            for digits in (4, 6, 9):  # as many as both need to differ
                got = np.array2string(rows[epoch], precision=digits)
                expected = np.array2string(right[epoch], precision=digits)
                if got != expected:
                    break
            hint = ""
            if alike(rows[0], rows[-1], near_zero=NEAR_ZERO) and not alike(rows, start, near_zero=NEAR_ZERO):
                hint = f" {_KEPT}"
            return f"rank {rank}, after epoch {epoch}: expected {expected}, got {got}.{hint}"

    return None
