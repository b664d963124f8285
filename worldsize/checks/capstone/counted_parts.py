"""Tell which part of a step predictions leave out or count otherwise, and which constants are 0 or one for both links.

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
_OVERHEAD_ALONE = np.array([float(name == "overhead") for name in CONSTANTS])
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
    """Return a sentence about the part that the predictions of `rows`, seconds `[rows]`, leave out or count otherwise.

    Empty if it is none of `_WITHOUT` and `_OTHERWISE`, or more than one.
    """
    if _fitted(work, rows, predicted_s).exact:
        return ""  # with a constant of 0, another list of parts may fit as well

    for sentence, parts in (_WITHOUT | _OTHERWISE).items():
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


def _otherwise(changed: Callable[["_CountedStep"], np.ndarray]) -> Callable[[MeasuredIteration], np.ndarray]:
    """Return the parts of a step, with what `changed` adds to them, as a function of the row."""
    return lambda row: work(row) + changed(_CountedStep.of(row))


@dataclass(frozen=True)
class _CountedStep:
    """A step's counted parts, each in columns `[5]`: head, hops, gradients and the layers; and how often they come."""

    head: np.ndarray
    hops: np.ndarray
    gradients: np.ndarray
    layers: np.ndarray
    stages: int
    micro_batches: float  # m
    rounds: float  # m + p − 1
    stage_layers: float
    sequences: int  # in a micro-batch

    @classmethod
    def of(cls, row: MeasuredIteration) -> "_CountedStep":
        head, hops, gradients = (work(row) - work(row, term) for term in ("head", "point to point", "data parallel"))
        micro_batches = row.global_batch / (row.data * row.micro_batch)
        rounds, layers = micro_batches + row.pipeline - 1, work(row) - head - hops - gradients
        stage_layers = row.layers / row.pipeline
        return cls(head, hops, gradients, layers, row.pipeline, micro_batches, rounds, stage_layers, row.micro_batch)

    def of_more_micro_batches(self, times: float) -> np.ndarray:
        """Return what a step has more of with so many times its micro-batches."""
        more = (times - 1) * self.micro_batches
        return more / self.rounds * (self.layers + self.hops) + (times - 1) * self.head


def _over_nvlink(parts: np.ndarray) -> np.ndarray:
    """Return what changes if a part's bytes over the network go over NVLink."""
    changed = np.zeros_like(parts)
    changed[NETWORK], changed[NVLINK] = -parts[NETWORK], parts[NETWORK] / FASTER
    return changed


_OTHERWISE = {
    "Your predictions have m hops: each of the m + p − 1 micro-batches has one to the next stage.": _otherwise(
        lambda step: (step.micro_batches / step.rounds - 1) * step.hops
    ),
    "Your predictions have the head m + p − 1 times: the last stage has it m times.": _otherwise(
        lambda step: (step.rounds / step.micro_batches - 1) * step.head
    ),
    "Your predictions have a hop in each layer turn: there are m + p − 1, however many layers a stage has.": _otherwise(
        lambda step: (step.stage_layers - 1) * step.hops
    ),
    "Your predictions add up gradients in each layer turn: that comes once a step.": _otherwise(
        lambda step: (step.rounds * step.stage_layers - 1) * step.gradients
    ),
    "Your predictions add up gradients in each micro-batch: that comes once a step.": _otherwise(
        lambda step: (step.micro_batches - 1) * step.gradients
    ),
    "In your predictions a step lasts as long as m + p micro-batches: it is m + p − 1.": _otherwise(
        lambda step: (step.layers + step.hops) / step.rounds
    ),
    "Your predictions have an overhead in each micro-batch: it comes in each layer turn, layers / p times as often.": _otherwise(
        lambda step: (1 / step.stage_layers - 1) * step.layers * _OVERHEAD_ALONE
    ),
    "In your predictions a stage has all the layers: it has layers / p.": _otherwise(
        lambda step: (step.stages - 1) * step.layers
    ),
    "Your predictions add up gradients over NVLink: copies are on other nodes.": _otherwise(
        lambda step: _over_nvlink(step.gradients)
    ),
    "Your predictions send hops over NVLink: the next stage is on another node.": _otherwise(
        lambda step: _over_nvlink(step.hops)
    ),
    "Your predictions send hops and gradients over NVLink: both go to other nodes.": _otherwise(
        lambda step: _over_nvlink(step.hops + step.gradients)
    ),
    "In your predictions m is a copy's sequences: divide them by the micro-batch's.": _otherwise(
        lambda step: step.of_more_micro_batches(step.sequences)
    ),
}
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
    "network": f"In your predictions the bytes over the network take no time. {ONE_NODE} If you did, is a part counted too "
    "often, so that the fit makes it 0?",
    "overhead": "In your predictions a layer turn has no overhead.",
}
