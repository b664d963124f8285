"""A training step's traffic and time for a model that is replicated or split by layers.

Data parallelism: every rank holds the whole model and its part of the batch; gradients are added up by an all-reduce.
Model parallelism: every rank holds some layers and sees the whole batch; activations cross each boundary between two ranks in
forward, and their gradients in backward. Sizes are in bytes and for all ranks together, `parameters_bytes` is the whole model,
`boundary_bytes` one example's activations at each boundary. Left out: micro-batches, which let split layers work at once, and the
overlap of an all-reduce with the backward pass.

The comparison is A. Krizhevsky's ("One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997, 2014); both
ways are in J. Dean et al. ("Large scale distributed deep networks", NIPS 2012).
"""

from collections.abc import Sequence

from worldsize.formulas import cost
from worldsize.links import Link


def bytes_data_parallel(n: int, parameters_bytes: float) -> float:
    """Return the bytes of a data-parallel step over all ranks: 2 (n − 1) times the parameters, whatever the batch.

    Each rank sends 2 (n − 1)/n of the parameters.
    """
    return n * cost.bytes_ring_all_reduce(n, parameters_bytes)


def bytes_model_parallel(batch: int, boundary_bytes: Sequence[float]) -> float:
    """Return the bytes of a model-parallel step: twice the activations at every boundary, for each example of the batch.

    Independent of the number of parameters.
    """
    _check(batch, boundary_bytes)
    return 2 * batch * sum(boundary_bytes)


def crossing_batch(n: int, parameters_bytes: float, boundary_bytes: Sequence[float]) -> float:
    """Return the batch at which data and model parallelism move the same bytes; above it data parallelism moves less.

    With n − 1 boundaries the result is the parameters over the mean activations at a boundary. Infinite if nothing crosses.
    """
    for_each_example = bytes_model_parallel(1, boundary_bytes)
    if not for_each_example:
        return float("inf")
    return bytes_data_parallel(n, parameters_bytes) / for_each_example


def seconds_data_parallel(n: int, compute_s: float, parameters_bytes: float, link: Link) -> float:
    """Return the seconds of a data-parallel step: an n-th of `compute_s` per rank, then a bandwidth-optimal all-reduce."""
    return compute_s / n + cost.ring_all_reduce(n, parameters_bytes, link)


def seconds_model_parallel(batch: int, compute_s: float, boundary_bytes: Sequence[float], link: Link) -> float:
    """Return the seconds of a model-parallel step: layers work one after another, and activations cross each boundary.

    Every boundary is crossed in forward and in backward.
    """
    _check(batch, boundary_bytes)
    return compute_s + 2 * sum(cost.message(batch * size, link) for size in boundary_bytes)


def _check(batch: int, boundary_bytes: Sequence[float]) -> None:
    if not batch >= 0 or not all(size >= 0 for size in boundary_bytes):
        raise ValueError(
            f"parallelism: expected a batch and boundaries of 0 or more, got {batch!r} and {boundary_bytes!r}. "
            "Give the bytes of one example's activations at each boundary."
        )
