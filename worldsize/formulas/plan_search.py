"""Every plan of a training step, and the fastest that fits: sizes, micro-batch, recomputation, chunks and overlap.

The search tries all divisors, with the formulas of `training_step`. Left out: ZeRO and sequence parallelism, stages of unequal
layers, and any search smarter than trying everything.
"""

from collections.abc import Iterator
from itertools import product

from worldsize.formulas import training_step
from worldsize.formulas.training_step import RECOMPUTED, Plan, Transformer


def plans(
    model: Transformer, gpus: int, global_batch: int, most_chunks: int = 1, overlap: bool = False
) -> Iterator[Plan]:
    """Yield every plan of a training step on all `gpus`: tensor divides the heads, pipeline · chunks the layers.

    data · micro_batch divides the global batch. With more than one chunk the stages divide the micro-batches.
    """
    for tensor, pipeline in product(_divisors(gpus), repeat=2):
        if gpus % (tensor * pipeline) or model.heads % tensor or model.layers % pipeline:
            continue
        data = gpus // (tensor * pipeline)
        if global_batch % data:
            continue

        for micro_batch, chunks in product(_divisors(global_batch // data), _divisors(model.layers // pipeline)):
            micro_batches = global_batch // (data * micro_batch)
            if chunks > 1 and (chunks > most_chunks or pipeline == 1 or micro_batches % pipeline):
                continue
            for recomputed in RECOMPUTED:
                sizes = (tensor, pipeline, data, micro_batch, global_batch, chunks)
                yield Plan(*sizes, recomputed=recomputed, overlap=overlap)


def fastest(
    model: Transformer, gpus: int, global_batch: int, memory_bytes: float, most_chunks: int = 1, overlap: bool = False
) -> Plan | None:
    """Return the plan with the shortest step among those that need at most `memory_bytes` on a rank; None if none fits."""
    fitting = [
        plan
        for plan in plans(model, gpus, global_batch, most_chunks, overlap)
        if sum(training_step.memory(model, plan).values()) <= memory_bytes
    ]
    return min(fitting, key=lambda plan: sum(training_step.seconds(model, plan).values()), default=None)


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]
