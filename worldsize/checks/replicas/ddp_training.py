"""The check of a training with DistributedDataParallel and a DistributedSampler, epoch for epoch.

The model is a line, so that the training of one process on the ranks' shares is a few rows of NumPy: that is what the
weights are held against, and slips are told by the weights that they lead to. Left out: what travelled, which happens
inside the submission's own process group. S. Li et al., "PyTorch Distributed", VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena
from worldsize.checks.kit.judge import Case, judge, ranks_in_words
from worldsize.checks.replicas.sampler import library
from worldsize.checks.verdict import Verdict

POINTS = {
    "all ranks hold the same weights": 0.5,
    "one step is that of all ranks' examples together": 0.5,
    "every epoch has an order of its own": 0.5,
}
ALIKE, TOGETHER, ORDERS = POINTS
PLANS = ((2, 11, 3), (2, 14, 2))  # (ranks, examples, a rank's examples in a step); DDP starts slowly, so two ranks
EPOCHS, INPUTS = 3, 2

Inputs = list[dict[str, np.ndarray]]


@dataclass(frozen=True)
class DdpTrainingRun:
    """One training: every rank has all examples, and weights of its own to begin with."""

    inputs: Inputs
    batch_size: int
    rate: float

    @property
    def n(self) -> int:
        return len(self.inputs)

    @property
    def count(self) -> int:
        return len(self.inputs[0]["x"])

    def orders(self, anew: bool = True) -> list[list[list[int]]]:
        """[epoch][rank] -> the indices in order; `anew` is False where set_epoch is forgotten."""
        return [library(self.count, self.n, 0, epoch if anew else 0) for epoch in range(EPOCHS)]


def train_ddp(arena: Arena, fn: Callable) -> Verdict:
    """Check of a training with DDP.

    `train_ddp(data, epochs, batch_size, rate)` returns the weights after each epoch, [weight…, bias] each.

    data has "weight" [1, inputs] and "bias" [1], which differ by rank, and "x" [count, inputs] and "y" [count, 1].
    """

    def cases() -> Iterator[Case]:
        for n, count, batch_size in PLANS:
            lesson = _lesson(n, count, batch_size, arena.draws.getrandbits(32))
            yield Case(
                f"{ranks_in_words(n)}, {count} examples, {batch_size} of each rank in a step",
                lambda lesson=lesson: arena.group(fn, lesson.inputs, EPOCHS, lesson.batch_size, lesson.rate),
                lambda ended, lesson=lesson: _examine(ended.returned, lesson),
            )

    return judge("train_ddp", POINTS, cases())


def _lesson(n: int, count: int, batch_size: int, seed: int) -> DdpTrainingRun:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, INPUTS))
    y = x @ generator.normal(size=(INPUTS, 1)) + generator.normal(size=(count, 1))
    starts = [{"weight": generator.normal(size=(1, INPUTS)) + r, "bias": generator.normal(size=1)} for r in range(n)]
    return DdpTrainingRun([{**start, "x": x, "y": y} for start in starts], batch_size, float(generator.uniform(0.05, 0.1)))


# ---- what should come out --------------------------------------------------------------------


def history(lesson: DdpTrainingRun, orders: Sequence, start: int = 0, scale: float = 1.0, keep: bool = False) -> np.ndarray:
    """What training with DDP must come to, computed in NumPy.

    The weights after each epoch, [epochs, inputs + 1], where each step takes the mean of the ranks' mean gradients.

    Gradients are multiplied by `scale`; with `keep` they are never set to zero and add up.
    """
    given = lesson.inputs[start]
    weights, told, kept = np.append(given["weight"], given["bias"]), [], 0.0
    table, y = np.c_[given["x"], np.ones(lesson.count)], given["y"][:, 0]
    for shares in orders:
        for first in range(0, len(shares[0]), lesson.batch_size):
            batches = [share[first : first + lesson.batch_size] for share in shares]
            slopes = [2 * table[b].T @ (table[b] @ weights - y[b]) / len(b) for b in batches]
            step = scale * np.mean(slopes, axis=0) + (kept if keep else 0.0)
            weights, kept = weights - lesson.rate * step, step
        told.append(weights)
    return np.stack(told)


def _slips(lesson: DdpTrainingRun) -> dict[str, list[np.ndarray]]:
    """What mistakes lead to on each rank, with their names."""
    n, orders, every = lesson.n, lesson.orders(), list(range(lesson.count))

    def alike(*more: Any, **ways: Any) -> list[np.ndarray]:
        return [history(lesson, *more, **ways)] * n

    def alone(start: Callable[[int], int], taken: Sequence) -> list[np.ndarray]:
        return [history(lesson, [[shares[r]] for shares in taken], start(r)) for r in range(n)]

    in_order = [[[i % lesson.count for i in range(r, -(-lesson.count // n) * n, n)] for r in range(n)]] * EPOCHS
    return {
        "Every epoch has the order of the first one: call sampler.set_epoch(epoch) before each.": alike(lesson.orders(False)),
        "The examples were never shuffled: leave shuffle to the sampler, whose default is True.": alike(in_order),
        "Every rank took all examples: give the loader the sampler, sampler=….": alike([[every]] * EPOCHS),
        "The gradients of earlier steps are still there: optimizer.zero_grad() at every step.": alike(orders, keep=True),
        f"The steps are {n} times as long: DDP has divided by the number of ranks already, and by nothing else.": alike(
            orders, scale=n
        ),
        f"The steps are {n} times too short: DDP has divided by the number of ranks already.": alike(orders, scale=1 / n),
        "Each rank trained on its share alone, from weights of its own: nothing is wrapped in DistributedDataParallel, or "
        "it was not the wrapped model that was called.": alone(lambda r: r, orders),
        "The ranks began alike and then each trained on its share alone: call the wrapped model. Its forward arms the "
        "hooks; ddp.module goes round it.": alone(lambda r: 0, orders),
        "Each rank trained on all examples by itself, from weights of its own.": alone(lambda r: r, [[every] * n] * EPOCHS),
    }


# ---- what came out ---------------------------------------------------------------------------


def _examine(returned: Sequence[Any], lesson: DdpTrainingRun) -> dict[str, str | None]:
    complaint = next((w for r, got in enumerate(returned) if (w := _no_history(got, r))), None)
    if complaint:
        return dict.fromkeys(POINTS, complaint)
    told = [_rows(got) for got in returned]
    right = history(lesson, lesson.orders())
    named = _named(told, lesson)
    apart = next((r for r in range(1, lesson.n) if not _close(told[r], told[0])), None)
    first = _first_difference(told, right, epochs=1)
    later = _first_difference(told, right, epochs=EPOCHS)
    return {
        ALIKE: None if apart is None else f"ranks 0 and {apart} end with different weights. {named}".strip(),
        TOGETHER: first and f"{first} {named}".strip(),
        ORDERS: later and f"{later} {named}".strip(),
    }


def _no_history(got: Any, rank: int) -> str | None:
    shape = f"the weights after each of {EPOCHS} epochs, a list of {EPOCHS} tensors of {INPUTS + 1} numbers"
    rows = list(got) if isinstance(got, (tuple, np.ndarray)) else None
    if rows is None:
        kind = "None (does the function return it?)" if got is None else f"a {type(got).__name__}"
        return f"rank {rank}: expected {shape}, got {kind}"
    sizes = [np.size(row) if isinstance(row, (np.ndarray, tuple)) else 1 for row in rows]
    if len(rows) != EPOCHS or set(sizes) != {INPUTS + 1}:
        return f"rank {rank}: expected {shape}, got {len(rows)} of {', '.join(map(str, sizes))} numbers"
    try:
        _rows(got)
    except (TypeError, ValueError):
        return f"rank {rank}: expected {shape}, got something else than numbers in them"
    return None


def _rows(got: Any) -> np.ndarray:
    return np.stack([np.asarray(row, float).reshape(-1) for row in got])


def _first_difference(told: Sequence[np.ndarray], right: np.ndarray, epochs: int) -> str | None:
    for rank, rows in enumerate(told):
        for epoch in range(epochs):
            if not _close(rows[epoch], right[epoch]):
                alike = " All rows are alike: keep a copy of the weights." if _frozen(rows) else ""
                got, expected = (np.array2string(v, precision=4) for v in (rows[epoch], right[epoch]))
                return f"rank {rank}, after epoch {epoch}: expected {expected}, got {got}.{alike}"
    return None


def _frozen(rows: np.ndarray) -> bool:
    return _close(rows[0], rows[-1])


def _named(told: Sequence[np.ndarray], lesson: DdpTrainingRun) -> str:
    for complaint, by_rank in _slips(lesson).items():
        if all(_close(rows, slip) for rows, slip in zip(told, by_rank, strict=True)):
            return complaint
    return ""


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-6, atol=1e-8, equal_nan=True))
