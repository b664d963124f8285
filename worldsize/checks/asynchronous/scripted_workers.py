"""A server's workers, played by the check from a script that fixes in which order their gradients arrive.

A `send` is a rendezvous: once its gradient is taken, a worker sends a token to the next, so the order is certain on every
machine. Gradient k is not zero in element k alone, so the weights tell which gradients count, and how often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# A message between server and worker is a letter: first a version, then the values.
STOP = -1
TOKEN, OVER = 1, 2  # tags between workers; the server's messages have tag 0


@dataclass(frozen=True)
class WorkerScript:
    """A script of workers: `order[k]` is the worker (a rank from 1 on) whose gradient arrives k-th, of `workers` in all.

    After these, every worker that still holds weights sends a last gradient, in any order: the server must take the
    gradient and apply nothing. `start` holds the first weights, shape [len(order) + workers]. `sizes`, of the same
    shape, says how large each gradient is in its own element.
    """

    workers: int
    order: tuple[int, ...]
    start: np.ndarray
    sizes: np.ndarray

    @property
    def inputs(self) -> list[Any]:
        """Return each rank's input: for rank 0 the weights, for a scripted worker its turns.

        A turn comes after rank `after`'s token, and is followed by a token to rank `before`; 0 is no rank.
        """
        given: list[Any] = [self.start.copy()]
        for worker in range(1, self.workers + 1):
            # turn k follows a turn of others[k], and precedes a turn of others[k + 2]
            others = [0, *(0 if who == worker else who for who in self.order), 0]
            turns = []
            for k, who in enumerate(self.order):
                if who == worker:
                    turns.append({"place": k, "size": float(self.sizes[k]), "after": others[k], "before": others[k + 2]})

            place = len(self.order) + worker - 1
            last = {"last": self.order[-1], "place": place, "size": float(self.sizes[place]), "elements": len(self.start)}
            given.append({"turns": turns, **last})
        return given


def script(workers: int, order: Sequence[int], seed: int) -> WorkerScript:
    """Return a `WorkerScript` with this order of the workers' gradients, drawn first weights, and drawn sizes of gradients.

    The weights at the start are all different, and have more digits than 16 bits hold; gradients have either sign.
    """
    generator = np.random.default_rng([seed, workers, len(order)])
    elements = len(order) + workers
    start = generator.permutation(elements) + 100 * generator.integers(1, 9) + generator.integers(1, 512, elements) / 512
    sizes = 4.0 * generator.integers(1, 16, elements) * generator.choice([-1, 1], elements)

    return WorkerScript(workers, tuple(order), start=start.astype("float32"), sizes=sizes.astype("float32"))


def played_worker(fabric: Any, part: dict, *more: Any) -> tuple[np.ndarray, ...]:
    """Play a worker's turns of the script; return every letter from the server, in order of arrival.

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
        if turn is None:  # all turns are played: the last gradient, which must not count
            if not over:
                fabric.recv(token, frm=part["last"], tag=OVER)
            over = closed = True
        elif turn["after"]:
            fabric.recv(token, frm=turn["after"], tag=TOKEN)

        own = turn or part
        gradient = torch.zeros(part["elements"])
        gradient[own["place"]] = own["size"]
        fabric.send(torch.cat([answer[:1], gradient]), to=0)

        if turn is None:
            continue
        if turn["before"]:
            handles.append(fabric.isend(token, to=turn["before"], tag=TOKEN))
        if tells and not turns:
            handles += [fabric.isend(token, to=rank, tag=OVER) for rank in others]

    if not over:
        fabric.recv(token, frm=part["last"], tag=OVER)

    for handle in handles:
        handle.wait()

    return tuple(answers)
