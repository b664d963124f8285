"""A pipeline's schedule on real ranks, without a model: declared work, and messages of a given size between neighbors.

Any schedule that `formulas.pipeline.play` plays can thus be tried on processes and links: with split backwards, and with
several chunks of a model per rank, as in interleaved 1F1B (D. Narayanan et al., arXiv:2104.04473, 2021, section 2.2.2).
Two copies of a pipeline add up their gradients, layer by layer. `stages.py` has layers that compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from worldsize.fabric.collectives import meet
from worldsize.fabric.interface import Fabric
from worldsize.formulas.pipeline import BACKWARD, FORWARD, WEIGHTS, Schedules, needed
from worldsize.report import span

WAYS = (FORWARD, BACKWARD, WEIGHTS)
MOST_BYTES = 10**7  # of a message with values
GRADIENT_TAG = 0  # a pipeline's own tags begin at 1


@dataclass(frozen=True)
class Gradients:
    """The rehearsed gradients that a stage of each of two copies sends the other's: `size_bytes` in as many messages as `layers`.

    For two ranks that is an all-reduce of the fewest bytes. With `overlap` a layer's message leaves as soon as its last
    micro-batch's backward is over; otherwise all leave at the end.
    """

    size_bytes: int
    layers: int
    overlap: bool = False


def rehearse(
    fabric: Fabric, schedules: Schedules, seconds: Sequence[float], size_bytes: int = 4, chunks: int = 1,
    gradients: Gradients | None = None,
) -> None:  # fmt: skip
    """Rehearse this rank's actions of a pipeline's schedules: wait for each action's needs, take its time, send its result.

    `seconds` of a whole stage: forward, backward, and the weights' gradients if backwards are split. A message has
    `size_bytes`. With `chunks`, actions are (way, micro-batch, chunk), as in `play`. All ranks begin together; a schedule that
    gets stuck is a deadlock. With `gradients` there are two copies: rank r of p stages is stage r % p of copy r // p. Raises
    ValueError if their layers don't divide into chunks.
    """
    ranks = len(schedules)
    copy, stage = divmod(fabric.rank, ranks)
    first = copy * ranks
    meet(fabric)
    handles = []
    last_backwards = {}  # by chunk: the action whose layers send their gradients one by one
    other_copy = (fabric.rank + fabric.world_size // 2) % fabric.world_size
    layers = layer_bytes = 0
    if gradients:
        layers, layer_bytes = gradients.layers, gradients.size_bytes // gradients.layers
        if layers % chunks:
            raise ValueError(f"rehearse: {layers} layers of a stage don't divide into {chunks} chunks.")
        if gradients.overlap:
            for action in schedules[stage]:
                if action[0] == BACKWARD:
                    last_backwards[tuple(action[2:])] = tuple(action)

    for way, micro, *chunk in schedules[stage]:
        part = sum(chunk) * ranks + stage
        for other, _ in needed(part, (way, micro), ranks * chunks):
            if other % ranks != stage:
                fabric.recv(_message(size_bytes), first + other % ranks, _tag(way, micro, part, ranks * chunks))

        label = f"{way} {micro}"
        if chunks > 1:
            label += f" of chunk {sum(chunk)}"
        with span(label):
            if (way, micro, *chunk) in last_backwards.values():
                for _ in range(layers // chunks):
                    fabric.compute(seconds[1] / layers)
                    handles.append(fabric.isend(_message(layer_bytes), other_copy, GRADIENT_TAG))
            else:
                fabric.compute(seconds[WAYS.index(way)] / chunks)

        after = part + {FORWARD: 1, BACKWARD: -1, WEIGHTS: 0}[way]
        if 0 <= after < ranks * chunks and after % ranks != stage:
            tag = _tag(way, micro, after, ranks * chunks)
            handles.append(fabric.isend(_message(size_bytes), first + after % ranks, tag))

    if gradients and not gradients.overlap:
        for _ in range(layers):
            handles.append(fabric.isend(_message(layer_bytes), other_copy, GRADIENT_TAG))
    for _ in range(layers):
        fabric.recv(_message(layer_bytes), other_copy, GRADIENT_TAG)
    for handle in handles:
        handle.wait()


def _message(size_bytes: int) -> torch.Tensor:
    device = "meta" if size_bytes > MOST_BYTES else "cpu"  # large messages are for simulated ranks: a size and no values
    return torch.empty(size_bytes, dtype=torch.uint8, device=device)


def _tag(way: str, micro: int, to_part: int, parts: int) -> int:
    """Return a unique tag per rehearsed message: neighbors may take messages in another order than they were sent."""
    return 1 + (micro * parts + to_part) * 2 + (way == BACKWARD)
