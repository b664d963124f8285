"""Ready-made collectives over the fabric, for labs on other topics: all-reduce, its two halves, unequal parts, broadcast,
barrier.

Chunks are added up round a ring, and every finished chunk goes directly to all ranks: no rank sends more than 2(n − 1)/n of the
tensor, the minimum (P. Patarasuk and X. Yuan, J. Parallel and Distributed Computing 69, 2009). Each chunk is added up on one
rank, so that all ranks end with the same bits.
"""

from collections.abc import Iterable

import torch

from worldsize.fabric.interface import Fabric


def all_reduce(fabric: Fabric, x: torch.Tensor) -> torch.Tensor:
    """Replace `x` by the sum of all ranks' `x`, and return it.

    Any shape, the same on every rank.
    """
    whole = x.detach().reshape(-1)  # a view, if x is contiguous
    chunks = list(whole.tensor_split(fabric.world_size))
    _add_round_the_ring(fabric, chunks)
    _gather_sums(fabric, chunks)

    if not x.is_contiguous():
        x.detach().copy_(whole.reshape(x.shape))
    return x


def reduce_scatter(fabric: Fabric, x: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of the sum of all ranks' `x`: part `rank` of `x.tensor_split(world_size)`.

    x stays as it is. Its shape is [elements]; each rank sends (n − 1)/n of it. Raises ValueError for another shape.
    """
    _check("reduce_scatter", x)
    chunks = list(x.detach().clone().tensor_split(fabric.world_size))
    _add_round_the_ring(fabric, chunks)
    return chunks[fabric.rank].clone()


def all_gather(fabric: Fabric, x: torch.Tensor) -> torch.Tensor:
    """Fill x, in place, with the parts of all ranks, and return it: part r of `x.tensor_split(world_size)` is rank r's.

    x has shape [elements]; each rank sends its part, 1/n of x, n − 1 times. Raises ValueError for another shape.
    """
    _check("all_gather", x)
    _gather_sums(fabric, list(x.detach().tensor_split(fabric.world_size)))
    return x


def concatenated(fabric: Fabric, x: torch.Tensor) -> torch.Tensor:
    """Return, by a ready-made collective, all ranks' `x` concatenated in rank order, on every rank.

    x stays as it is. Its shape is [elements], where numbers may differ between ranks and may be 0; the dtype is the same
    everywhere. Each rank sends its count and its part n − 1 times. Raises ValueError for another shape.
    """
    _check("concatenated", x)
    counts = torch.zeros(fabric.world_size, dtype=torch.int64)
    counts[fabric.rank] = len(x)
    all_gather(fabric, counts)

    whole = torch.empty(int(counts.sum()), dtype=x.dtype)
    parts = list(whole.split(counts.tolist()))
    parts[fabric.rank].copy_(x.detach())
    _gather_sums(fabric, parts)
    return whole


def _check(name: str, x: torch.Tensor) -> None:
    if x.ndim != 1:
        raise ValueError(f"{name}: expected a flat tensor, of shape [elements], got shape {list(x.shape)}")


def _add_round_the_ring(fabric: Fabric, chunks: list[torch.Tensor]) -> None:
    """Add up a collective's chunks in place: afterwards rank r holds the sum of chunk r."""
    n, rank = fabric.world_size, fabric.rank
    for step in range(1, n):
        handle = fabric.isend(chunks[(rank - step) % n], to=(rank + 1) % n)

        own = chunks[(rank - step - 1) % n]
        arrived = torch.empty_like(own)
        fabric.recv(arrived, frm=(rank - 1) % n)

        handle.wait()
        own += arrived


def _gather_sums(fabric: Fabric, chunks: list[torch.Tensor]) -> None:
    """Send in an all-gather chunk r from rank r to all other ranks."""
    n, rank = fabric.world_size, fabric.rank
    handles = [fabric.isend(chunks[rank], to=(rank + k) % n) for k in range(1, n)]

    for k in range(1, n):
        fabric.recv(chunks[(rank - k) % n], frm=(rank - k) % n)
    for handle in handles:
        handle.wait()


def broadcast(fabric: Fabric, tensors: Iterable[torch.Tensor]) -> None:
    """Send over the fabric rank 0's tensors to every other rank, in place.

    Parameters are accepted as they are.
    """
    for x in tensors:
        if fabric.rank != 0:
            fabric.recv(x.detach(), frm=0)
            continue

        handles = [fabric.isend(x, to=rank) for rank in range(1, fabric.world_size)]
        for handle in handles:
            handle.wait()


def meet(fabric: Fabric, tag: int = 1000) -> None:
    """Wait until a token has passed over the fabric from rank 0 to the last rank and back: a barrier.

    The barrier absorbs the differences in the ranks' starting times.
    """
    token = torch.zeros(1)
    last = fabric.world_size - 1
    for begins, ends, step in ((0, last, 1), (last, 0, -1)):
        if fabric.rank != begins:
            fabric.recv(token, frm=fabric.rank - step, tag=tag)
        if fabric.rank != ends:
            fabric.send(token, to=fabric.rank + step, tag=tag)
