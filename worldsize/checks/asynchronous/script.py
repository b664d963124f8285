"""A server's workers, played by the check from a script that fixes in which order their gradients arrive, and what the
server has to do with them.

Worker w's turn comes when the worker before it in the script has had its gradient taken: a `send` is a rendezvous, and
a token says so to the next. So the order is certain on every machine, and nothing depends on time. The gradient that
arrives k-th is not zero in element k alone: the weights then tell which gradients count, and how often. A message is a
`letter`: first a version, then the values. What has to come out (`UpdatePlan`) follows from the order of arrivals alone.
Left out: what is checked (`servers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

STOP = -1
TOKEN, OVER = 1, 2  # tags between workers; the server's messages have tag 0


@dataclass(frozen=True)
class WorkerScript:
    """`order[k]` is the worker (a rank from 1 on) whose gradient arrives k-th; `workers` how many there are.

    When these are taken, every worker that still holds weights sends one gradient more, in any order: the server has to
    take it and to apply nothing. `start`: the first weights, shape [len(order) + workers]; `sizes`, of the same shape,
    is how large each gradient is in its own element.
    """

    workers: int
    order: tuple[int, ...]
    start: np.ndarray
    sizes: np.ndarray

    @property
    def inputs(self) -> list[Any]:
        """What each rank is given: rank 0 the weights, a worker its turns."""
        return [self.start.copy(), *({"turns": self._turns(w), **self._end(w)} for w in range(1, self.workers + 1))]

    def _turns(self, worker: int) -> list[dict]:
        """A turn waits for rank `after`'s token and gives one to rank `before`; 0 where there is nobody to."""
        last = len(self.order) - 1
        return [
            {
                "place": k,
                "size": float(self.sizes[k]),
                "after": self.order[k - 1] if k and self.order[k - 1] != worker else 0,
                "before": self.order[k + 1] if k < last and self.order[k + 1] != worker else 0,
            }
            for k, who in enumerate(self.order)
            if who == worker
        ]

    def _end(self, worker: int) -> dict:
        place = len(self.order) + worker - 1
        return {"last": self.order[-1], "place": place, "size": float(self.sizes[place]), "elements": len(self.start)}


def script(workers: int, order: Sequence[int], seed: int) -> WorkerScript:
    """A `WorkerScript` with this order of the workers' gradients, fresh weights, and fresh sizes of gradients.

    The weights at the start are all different.
    """
    generator = np.random.default_rng([seed, workers, len(order)])
    elements = len(order) + workers
    start = (generator.permutation(elements) + 10 * generator.integers(1, 9)).astype("float32")
    return WorkerScript(workers, tuple(order), start, (4.0 * generator.integers(1, 16, elements)).astype("float32"))


def played_worker(fabric: Any, part: dict, *more: Any) -> tuple[np.ndarray, ...]:
    """A worker that plays its turns of the script; returns every letter that the server sent, as they came.

    `more` is the server's, unused.
    """
    import torch

    letter, token = torch.empty(part["elements"] + 1), torch.zeros(1)
    others = [rank for rank in range(1, fabric.world_size) if rank != fabric.rank]
    letters, handles, turns = [], [], list(part["turns"])
    over = told = fabric.rank == part["last"]  # whether this worker knows that all turns were played
    closed = False
    while True:
        fabric.recv(letter, frm=0)
        letters.append(letter.numpy().copy())
        if letter[0] < 0 or closed:
            break
        turn = turns.pop(0) if turns else None
        if turn is None:
            if not over:
                fabric.recv(token, frm=part["last"], tag=OVER)
            over = closed = True
        elif turn["after"]:
            fabric.recv(token, frm=turn["after"], tag=TOKEN)
        gradient = torch.zeros(part["elements"])
        gradient[(turn or part)["place"]] = (turn or part)["size"]
        fabric.send(torch.cat([letter[:1], gradient]), to=0)
        if turn and turn["before"]:
            handles.append(fabric.isend(token, to=turn["before"], tag=TOKEN))
        if told and turn and not turns:
            handles += [fabric.isend(token, to=rank, tag=OVER) for rank in others]
    if not over:
        fabric.recv(token, frm=part["last"], tag=OVER)
    for handle in handles:
        handle.wait()
    return tuple(letters)


# ---- what the server has to do ----------------------------------------------------------------


@dataclass(frozen=True)
class UpdatePlan:
    """`uses[v]` is {arrival: its share} of the update that leads to version v + 1; `letters[w]` the versions sent to
    worker w. Arrival k was computed on version `bases[k]` and comes when the weights are at version `at[k]`.

    `bound` is a gate's, `need` the number of gradients in a step; None where there is no gate, no step.
    """

    uses: tuple[dict[int, float], ...]
    bases: tuple[int, ...]
    at: tuple[int, ...]
    letters: dict[int, tuple[int, ...]]
    bound: int | None = None
    need: int | None = None

    @property
    def updates(self) -> int:
        return len(self.uses)

    @property
    def ages(self) -> list[int]:
        """The staleness of each arrival."""
        return [at - base for at, base in zip(self.at, self.bases, strict=True)]


def one_by_one(play: WorkerScript, bound: int | None = None, scaled: bool = False) -> UpdatePlan:
    """The update plan of a worker script without a barrier: every gradient that arrives is an update.

    Its sender is answered at once; where there is a `bound`, behind a gate, once it is at most `bound` ahead. With
    `scaled`, a stale gradient counts 1 over its staleness.
    """
    letters: dict[int, list[int]] = {worker: [0] for worker in range(1, play.workers + 1)}
    uses, bases, waiting = [], [], []
    for k, worker in enumerate(play.order):
        bases.append(letters[worker][-1])
        uses.append({k: 1 / max(1, k - bases[k]) if scaled else 1.0})
        waiting.append(worker)
        for rank in [r for r in waiting if bound is None or ahead(play, r, k + 1) <= bound]:
            letters[rank].append(k + 1)
            waiting.remove(rank)
    return UpdatePlan(tuple(uses), tuple(bases), tuple(range(len(uses))), _fixed(letters), bound)


def first_of_each(play: WorkerScript, backups: int) -> UpdatePlan:
    """The update plan of a worker script with backups: a step is the mean of the first N − b gradients of its version.

    A late gradient counts nothing, and its sender is answered.
    """
    letters: dict[int, list[int]] = {worker: [0] for worker in range(1, play.workers + 1)}
    uses, bases, at, fresh, need = [], [], [], [], play.workers - backups
    for k, worker in enumerate(play.order):
        bases.append(letters[worker][-1])
        at.append(len(uses))
        if bases[k] < at[k]:
            letters[worker].append(at[k])
            continue
        fresh.append(k)
        if len(fresh) == need:
            uses.append({j: 1 / need for j in fresh})
            for j in fresh:
                letters[play.order[j]].append(len(uses))
            fresh = []
    return UpdatePlan(tuple(uses), tuple(bases), tuple(at), _fixed(letters), need=need)


def ahead(play: WorkerScript, worker: int, arrivals: int) -> int:
    """By the worker script: how many gradients this worker has sent more than the slowest, after so many arrivals."""
    clocks = [play.order[:arrivals].count(rank) for rank in range(1, play.workers + 1)]
    return clocks[worker - 1] - min(clocks)


def shares(play: WorkerScript, plan: UpdatePlan, version: int) -> np.ndarray:
    """By the worker script and its plan: how much each gradient counts in the updates up to `version`.

    Shape [elements].
    """
    found = np.zeros(len(play.start))
    for use in plan.uses[:version]:
        for k, share in use.items():
            found[k] += share
    return found


def weights_at(play: WorkerScript, plan: UpdatePlan, version: int, rate: float) -> np.ndarray:
    """By the worker script and its plan: the server's weights after the updates up to `version`.

    Shape [elements].
    """
    return play.start - rate * play.sizes * shares(play, plan, version)


def _fixed(letters: dict[int, list[int]]) -> dict[int, tuple[int, ...]]:
    return {worker: tuple(versions) for worker, versions in letters.items()}
