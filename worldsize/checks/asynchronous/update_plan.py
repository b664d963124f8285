"""The updates that a parameter server must make of gradients in a given order: the rules of lab 05, on paper.

An `UpdatePlan` says which gradients count in which update, and which versions of the weights each worker is sent, from the
order of arrivals alone.
"""

from dataclasses import dataclass

import numpy as np

from worldsize.checks.asynchronous.scripted_workers import WorkerScript


@dataclass(frozen=True)
class UpdatePlan:
    """A server's updates: `uses[v]` is {arrival: its share} of the update that leads to version v + 1.

    `versions_sent[w]` are the versions of the weights that worker w gets. Arrival k was computed on version `bases[k]` and
    comes when the weights are at version `at[k]`. `bound` is None without a gate; `need`, the gradients in a step, is None
    without steps.
    """

    uses: tuple[dict[int, float], ...]
    bases: tuple[int, ...]
    at: tuple[int, ...]
    versions_sent: dict[int, tuple[int, ...]]
    bound: int | None = None
    need: int | None = None

    @property
    def updates(self) -> int:
        return len(self.uses)

    @property
    def ages(self) -> list[int]:
        """Return the staleness of each gradient that arrives in the plan."""
        return [at - base for at, base in zip(self.at, self.bases, strict=True)]


def one_by_one(play: WorkerScript, bound: int | None = None, scaled: bool = False) -> UpdatePlan:
    """Return the update plan of a worker script without a barrier: every gradient that arrives is an update.

    The sender is answered at once; with a `bound`, as soon as it is at most `bound` ahead. With `scaled`, a stale gradient
    counts 1 over its staleness.
    """
    versions_sent: dict[int, tuple[int, ...]] = dict.fromkeys(range(1, play.workers + 1), (0,))
    uses, bases, waiting = [], [], []

    for k, worker in enumerate(play.order):
        base = versions_sent[worker][-1]
        bases.append(base)
        uses.append({k: 1 / max(1, k - base) if scaled else 1.0})

        waiting.append(worker)
        for rank in list(waiting):
            if bound is None or ahead(play, rank, k + 1) <= bound:
                versions_sent[rank] += (k + 1,)
                waiting.remove(rank)

    at = range(len(uses))
    return UpdatePlan(tuple(uses), tuple(bases), tuple(at), versions_sent=versions_sent, bound=bound)


def first_of_each(play: WorkerScript, backups: int) -> UpdatePlan:
    """Return the update plan of a worker script with backups: a step is the mean of the first N − b gradients of its version.

    A late gradient does not count, and its sender is answered at once.
    """
    versions_sent: dict[int, tuple[int, ...]] = dict.fromkeys(range(1, play.workers + 1), (0,))
    need = play.workers - backups
    uses, bases, at, fresh = [], [], [], []

    for k, worker in enumerate(play.order):
        bases.append(versions_sent[worker][-1])
        at.append(len(uses))
        if bases[k] < at[k]:  # a late gradient
            versions_sent[worker] += (at[k],)
            continue

        fresh.append(k)
        if len(fresh) == need:
            uses.append({j: 1 / need for j in fresh})
            for j in fresh:
                versions_sent[play.order[j]] += (len(uses),)
            fresh = []

    return UpdatePlan(tuple(uses), tuple(bases), tuple(at), versions_sent=versions_sent, need=need)


def ahead(play: WorkerScript, worker: int, arrivals: int) -> int:
    """Return how many more of the plan's gradients than the slowest worker this worker has sent, after so many arrivals."""
    clocks = [play.order[:arrivals].count(rank) for rank in range(1, play.workers + 1)]
    return clocks[worker - 1] - min(clocks)


def shares(play: WorkerScript, plan: UpdatePlan, version: int) -> np.ndarray:
    """Return how much each gradient counts in the plan's updates up to `version`, shape [elements]."""
    totals = np.zeros(len(play.start))
    for use in plan.uses[:version]:
        for k, share in use.items():
            totals[k] += share

    return totals


def weights_at(play: WorkerScript, plan: UpdatePlan, version: int, rate: float) -> np.ndarray:
    """Return the server's weights after the plan's updates up to `version`, shape [elements]."""
    return play.start - rate * play.sizes * shares(play, plan, version)
