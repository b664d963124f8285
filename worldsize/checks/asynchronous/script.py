"""A server's workers, played by the check from a script that fixes in which order their gradients arrive.

Worker w's turn comes when the worker before it in the script has had its gradient taken: a `send` is a rendezvous, and
a token says so to the next. So the order is certain on every machine, and nothing depends on time. The gradient that
arrives k-th is not zero in element k alone: the weights then tell which gradients count, and how often. A message is a
`letter`: first a version, then the values. Left out: what a server is to do (`update_plan`).
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
        # turn k comes after that of others[k], and before that of others[k + 2]
        others = [0, *(0 if who == worker else who for who in self.order), 0]
        turns = []
        for k, who in enumerate(self.order):
            if who == worker:
                turns.append({"place": k, "size": float(self.sizes[k]), "after": others[k], "before": others[k + 2]})

        return turns

    def _end(self, worker: int) -> dict:
        place = len(self.order) + worker - 1
        return {"last": self.order[-1], "place": place, "size": float(self.sizes[place]), "elements": len(self.start)}


def script(workers: int, order: Sequence[int], seed: int) -> WorkerScript:
    """A `WorkerScript` with this order of the workers' gradients, fresh weights, and fresh sizes of gradients.

    The weights at the start are all different.
    """
    generator = np.random.default_rng([seed, workers, len(order)])
    elements = len(order) + workers
    start = generator.permutation(elements) + 10 * generator.integers(1, 9)
    sizes = 4.0 * generator.integers(1, 16, elements)

    return WorkerScript(workers, tuple(order), start=start.astype("float32"), sizes=sizes.astype("float32"))


def played_worker(fabric: Any, part: dict, *more: Any) -> tuple[np.ndarray, ...]:
    """A worker that plays its turns of the script; returns every letter that the server sent, as they came.

    `more` is the server's, unused.
    """
    import torch

    answer, token = torch.empty(part["elements"] + 1), torch.zeros(1)
    answers, handles = [], []
    turns = list(part["turns"])
    others = [rank for rank in range(1, fabric.world_size) if rank != fabric.rank]
    tells = fabric.rank == part["last"]
    over = tells  # whether this worker knows that all turns were played
    closed = False

    while True:
        fabric.recv(answer, frm=0)
        answers.append(answer.numpy().copy())
        if answer[0] < 0 or closed:
            break

        turn = turns.pop(0) if turns else None
        if turn is None:  # the gradient that it still owes when all turns were played
            if not over:
                fabric.recv(token, frm=part["last"], tag=OVER)
            over = closed = True
        elif turn["after"]:
            fabric.recv(token, frm=turn["after"], tag=TOKEN)

        own = turn or part
        gradient = torch.zeros(part["elements"])
        gradient[own["place"]] = own["size"]
        fabric.send(torch.cat([answer[:1], gradient]), to=0)

        if turn and turn["before"]:
            handles.append(fabric.isend(token, to=turn["before"], tag=TOKEN))

        if turn and tells and not turns:
            handles += [fabric.isend(token, to=rank, tag=OVER) for rank in others]

    if not over:
        fabric.recv(token, frm=part["last"], tag=OVER)

    for handle in handles:
        handle.wait()

    return tuple(answers)
