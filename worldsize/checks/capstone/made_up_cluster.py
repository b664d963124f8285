"""A made-up cluster: the shapes of measured steps with seconds from the course's model, drawn constants and a little scatter.

Both links are slow, and each in its own way, so that their traffic shows. In some groups of steps a single part is much of the
whole: an answer that leaves the part out, or takes it for another kind, is far off there.
"""

from dataclasses import replace

import numpy as np

from worldsize.data import MeasuredIteration
from worldsize.formulas import measured_clusters

SCATTER = 0.01
# ranges of constants: matrix products, memory traffic, NVLink and network over the sheet's; overhead of a layer turn, seconds
CONSTANTS = ((0.8, 1.0), (4.0, 5.0), (3.2, 3.6), (6.5, 7.5), (1e-3, 3e-3))
WIDTHS = (4096, 6144, 8192)
SIXTEEN, GRADIENTS, HOPS, HEAD = "with tensor 16", "of few micro-batches", "of one layer a stage", "of a single layer"
GROUPS = {
    SIXTEEN: "Sixteen ranks share a layer, so its bytes leave the node and go with the network's constant.",
    GRADIENTS: "Half of such a step is the all-reduce of the gradients over the network, with all ranks of a node on one card.",
    HEAD: "The output layer is much of the matrix products there, once per micro-batch.",
    HOPS: "Each of the m + p − 1 micro-batches has a hop to the next stage, which leaves the node, and the head comes m times.",
}

Rows = list[MeasuredIteration]


def cluster(single: Rows, multi: Rows, generator: np.random.Generator) -> tuple[Rows, Rows, Rows]:
    """Return `single` and `multi` with the made-up cluster's seconds, and the rows of `GROUPS`, three each."""
    constants = np.array([generator.uniform(*span) for span in CONSTANTS])

    def timed(rows: Rows) -> Rows:
        scatter = np.exp(SCATTER * generator.standard_normal(len(rows)))
        timed_rows = []
        for row, factor in zip(rows, scatter, strict=True):
            seconds = measured_clusters.work(row) @ constants
            timed_rows.append(replace(row, iteration_s=float(seconds * factor)))
        return timed_rows

    more = []
    for name in GROUPS:
        for hidden in WIDTHS:
            more.append(_drawn(name, replace(multi[0], hidden=hidden, heads=hidden // 128), generator))
    return timed(single), timed(multi), timed(more)


def group(row: MeasuredIteration) -> str | None:
    """Return the group of `GROUPS` that a row was drawn for, or None; no measured row has such a number of layers."""
    for name, layers in _LAYERS.items():
        if layers == row.layers:
            return name
    return None


_LAYERS = {SIXTEEN: 33, GRADIENTS: 34, HOPS: 12, HEAD: 1}


def _drawn(name: str, row: MeasuredIteration, generator: np.random.Generator) -> MeasuredIteration:
    """Return the made-up cluster's `row` in a shape of the group `name`."""
    micro_batches = int(generator.integers(2, 4)) if name == GRADIENTS else {SIXTEEN: 8, HOPS: 2, HEAD: 64}[name]
    drawn = int(generator.choice([2, 4]))
    gpus, tensor, pipeline, micro_batch = {
        SIXTEEN: (512, 16, 1, drawn), GRADIENTS: (512, drawn, 2, 1), HOPS: (48 * drawn, drawn, 12, 4), HEAD: (128, 8, 1, drawn),
    }[name]  # fmt: skip

    copies = gpus // (tensor * pipeline)
    return replace(
        row,
        layers=_LAYERS[name],
        gpus=gpus,
        tensor=tensor,
        pipeline=pipeline,
        data=copies,
        micro_batch=micro_batch,
        global_batch=copies * micro_batch * micro_batches,
    )
