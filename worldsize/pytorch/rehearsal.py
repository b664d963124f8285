"""A pipeline's schedule on real ranks, with no model: declared work, and messages of a size, between neighbours.

So any schedule that `formulas.pipeline.play` plays can be tried on processes and links: with split backwards, and with
several chunks of a model on a rank, as in interleaved 1F1B (D. Narayanan et al., arXiv:2104.04473, 2021, section 2.2.2).
Left out: layers and gradients (`stages`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from worldsize.fabric.collectives import meet
from worldsize.fabric.interface import Fabric
from worldsize.formulas.pipeline import BACKWARD, FORWARD, WEIGHTS, Schedules, needed
from worldsize.report import span

WAYS = (FORWARD, BACKWARD, WEIGHTS)


def rehearse(
    fabric: Fabric, schedules: Schedules, seconds: Sequence[float], size_bytes: int = 4, chunks: int = 1
) -> None:
    """Do this rank's actions of a pipeline's schedules: wait for what each needs, take its time, send what comes of it.

    `seconds` of a whole stage: forward, backward, and the weights' gradients where backwards are split. A message has
    `size_bytes`. With `chunks`, actions are (way, micro-batch, chunk), as in `play`. All ranks begin together; a schedule
    that gets stuck is a deadlock.
    """
    ranks = fabric.world_size
    meet(fabric)
    handles = []

    for way, micro, *chunk in schedules[fabric.rank]:
        part = sum(chunk) * ranks + fabric.rank
        for other, _ in needed(part, (way, micro), ranks * chunks):
            if other % ranks != fabric.rank:
                fabric.recv(_message(size_bytes), other % ranks, _tag(way, micro, part, ranks * chunks))

        label = f"{way} {micro}"
        if chunks > 1:
            label += f" of chunk {sum(chunk)}"
        with span(label):
            fabric.compute(seconds[WAYS.index(way)] / chunks)

        after = part + {FORWARD: 1, BACKWARD: -1, WEIGHTS: 0}[way]
        if 0 <= after < ranks * chunks and after % ranks != fabric.rank:
            tag = _tag(way, micro, after, ranks * chunks)
            handles.append(fabric.isend(_message(size_bytes), after % ranks, tag))

    for handle in handles:
        handle.wait()


def _message(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8)


def _tag(way: str, micro: int, to_part: int, parts: int) -> int:
    """Of its own for every message: neighbours may take them in another order than they were sent in."""
    return (micro * parts + to_part) * 2 + (way == BACKWARD)
