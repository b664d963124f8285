"""Tell which part of a step predictions leave out, and which of their constants are 0 or one for both links.

Predictions of the lab's kind are a sum of parts, each times a constant. A fit of the same parts to the *predictions* is exact, a
fit of other parts is not. Left out: predictions of any other kind, for which no cause is named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from worldsize.data import MeasuredIteration
from worldsize.formulas.measured_clusters import CONSTANTS, GPUS_A_NODE, NETWORK_BYTES_PER_S, NVLINK_BYTES_PER_S, work

EXACT = 1e-4  # the largest relative error of an exact fit; a fit of other parts is off by per cents in some row
NOTHING = 1e-6  # a part's largest share of any prediction
SAME = 1e-3
NVLINK, NETWORK = CONSTANTS.index("nvlink"), CONSTANTS.index("network")
FASTER = NVLINK_BYTES_PER_S / NETWORK_BYTES_PER_S
ONE_NODE = (
    "Give each link a constant of its own, and fit the network's to the rows of 64 GPUs: a single node's rows send nothing over "
    "the network."
)
SAME_SPEED = (
    f"In your predictions a byte takes as long over NVLink as over the network: where up to {GPUS_A_NODE} ranks share a layer, "
    "the bytes of a tensor group stay in the node and go with NVLink's constant."
)

Rows = Sequence[MeasuredIteration]


@dataclass(frozen=True)
class PartsFit:
    """A fit of parts to predictions: `constants` and `shares`, each part's largest share of a prediction, in columns `[5]`."""

    constants: np.ndarray
    shares: np.ndarray
    error: float  # the largest, relative

    @property
    def exact(self) -> bool:
        return self.error <= EXACT


def missing_part(rows: Rows, predicted_s: np.ndarray) -> str:
    """Return a sentence about the part that the predictions of `rows`, seconds `[rows]`, leave out.

    Empty if none of `_WITHOUT` is missing, or more than one.
    """
    if _fitted(work, rows, predicted_s).exact:
        return ""  # with a constant of 0, another list of parts may fit as well

    for sentence, parts in _WITHOUT.items():
        if _fitted(parts, rows, predicted_s).exact:
            return sentence
    return ""


def wrong_constant(rows: Rows, predicted_s: np.ndarray) -> str:
    """Return a sentence about a part that takes no time, or about two links as one; empty if a part is left out."""
    fit = _fitted(work, rows, predicted_s)
    if not fit.exact:
        return ""

    if min(fit.shares[NVLINK], fit.shares[NETWORK]) > NOTHING:
        ratio = fit.constants[NETWORK] / fit.constants[NVLINK]
        if abs(ratio - 1) <= SAME:
            return f"In your predictions the network has NVLink's constant. {ONE_NODE}"
        if abs(FASTER * ratio - 1) <= SAME:
            return SAME_SPEED
    for name, sentence in _NO_TIME.items():
        if fit.shares[CONSTANTS.index(name)] <= NOTHING:
            return sentence
    return ""


def _fitted(parts: Callable[[MeasuredIteration], np.ndarray], rows: Rows, predicted_s: np.ndarray) -> PartsFit:
    relative = np.array([parts(row) for row in rows]) / predicted_s[:, None]
    largest = np.maximum(relative.max(0), 1e-300)
    shares = np.linalg.lstsq(relative / largest, np.ones(len(rows)), rcond=None)[0]
    error = np.abs(relative / largest @ shares - 1).max()
    return PartsFit(shares / largest, np.abs(shares), float(error))


def _without_tensor(row: MeasuredIteration) -> np.ndarray:
    """Return the parts of a step without the messages between ranks that share a layer."""
    whole = work(row)
    elsewhere = work(row, "nvlink" if row.tensor <= GPUS_A_NODE else "off node")  # dropped, or in NVLink's column
    return np.minimum(whole, elsewhere)


_WITHOUT = {
    "Your predictions leave out the bubble: a step lasts as long as m + p − 1 micro-batches, not m.": partial(
        work, without="bubble"
    ),
    "Your predictions leave out the messages between the ranks that share a layer.": _without_tensor,
    f"Your predictions send the bytes of a tensor group of {2 * GPUS_A_NODE} over NVLink; such a group spans two nodes.": partial(
        work, without="off node"
    ),
    "Your predictions leave out the all-reduce of the gradients.": partial(work, without="data parallel"),
    "Your predictions leave out the hops to the next stage.": partial(work, without="point to point"),
    "Your predictions leave out the output layer.": partial(work, without="head"),
}
_NO_TIME = {
    "matmul": "In your predictions the matrix products take no time.",
    "memory": "In your predictions memory traffic takes no time.",
    "nvlink": "In your predictions the bytes over NVLink take no time.",
    "network": f"In your predictions the bytes over the network take no time. {ONE_NODE}",
    "overhead": "In your predictions a layer turn has no overhead.",
}
