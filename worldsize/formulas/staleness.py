"""Formulas of asynchronous training: the age of gradients, the learning rate they allow, and their number per second.

A gradient's staleness is the number of updates between the weights that it was computed on and the weights that it is applied to.
`workers` compute gradients, one at a time each; the server that applies them is not counted. Left out: the time of messages and
of the update itself, and the staleness that noise adds.
"""

import math


def mean_staleness(workers: int) -> int:
    """Return the mean staleness of asynchronous updates: N − 1.

    Independent of the workers' speeds: every update falls into the open gradient of each of the other workers once.
    I. Mitliagkas, C. Zhang, S. Hadjis and C. Ré, "Asynchrony begets momentum, with an application to deep learning", Allerton
    2016, start from the same count.
    """
    _check("workers", workers, 1)
    return workers - 1


def most_staleness(workers: int, bound: int) -> int:
    """Return the greatest staleness behind a gate: (N − 1)(2s + 1).

    No worker begins a gradient while it is more than s = `bound` gradients ahead of the slowest.
    Each other worker may be s gradients behind when the weights leave, and s + 1 ahead when the gradient is back. The gate is Q.
    Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
    """
    _check("workers", workers, 1)
    _check("bound", bound, 0)
    return (workers - 1) * (2 * bound + 1)


def stable_rate(staleness: int, curvature: float = 1.0) -> float:
    """Return the learning rate above which w ← w − η h w_old no longer shrinks: 2 cos(πτ/(2τ + 1))/h.

    τ is a staleness equal for every gradient, h the `curvature` of the loss. Without staleness the rate is 2/h; for large τ about
    π/(2τh). S. A. Levin and R. M. May, "A note on difference-delay equations", Theoretical Population Biology 9, 1976.
    """
    _check("staleness", staleness, 0)
    return 2 * math.cos(math.pi * staleness / (2 * staleness + 1)) / curvature


def sync_gradients_per_s(workers: int, work_s: float, slow: float = 1.0) -> float:
    """Return the gradients per second with synchronous updates: N/(k·t).

    Every step waits for one worker that takes k = `slow` times as long as the others' `work_s`.
    """
    _check("workers", workers, 1)
    return workers / (slow * work_s)


def async_gradients_per_s(workers: int, work_s: float, slow: float = 1.0) -> float:
    """Return the gradients per second with asynchronous updates: (N − 1 + 1/k)/t.

    The slow worker delays only itself. J. Dean et al., "Large scale distributed deep networks", NIPS 2012, trained so.
    """
    _check("workers", workers, 1)
    return (workers - 1 + 1 / slow) / work_s


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"staleness: expected {name} of {least} or more, got {value!r}.")
