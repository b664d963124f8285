"""How long a training step of a GPT takes on a cluster, reasoned from physics, with five constants fitted to measurements.

Of each part of a step the work is counted (FLOPs, bytes, layers) and divided by what the hardware's sheet promises; the
constants say how many times as long it really takes: of matrix products (1/E), of memory traffic (1/W), of NVLink (1/N), of
the network (1/X), and an overhead o in seconds for each layer and micro-batch. So a step's time is linear in them, and
`robust_fit` finds them. 1F1B without interleaving. Whether forward is recomputed the files don't say: the large models must
(four passes for three); the small ones on one node are taken to keep their activations, which they have room for, and
which fits them better (3.2 % against 3.5), at 70 % of peak and not at an unlikely 93.

Rows of one model can't tell matrix products from memory traffic, which grow together: W is fitted on other models
(`fit_memory`), or five free constants end at nonsense that fits well. Left out: overlap of messages with work, the
optimizer's step, sequence parallelism.

Work: D. Narayanan et al., "Megatron-LM", arXiv:2104.04473, 2021; bytes of activations that are read and written: V.
Korthikanti et al., arXiv:2205.05198, 2022, table 2's operations. Measurements: J. Bang et al., "vTrain", MICRO 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.data import MeasuredIteration
from worldsize.formulas import robust_fit

PEAK_FLOPS = 312e12  # of an A100 in 16 bits, a second
MEMORY_BYTES_PER_S = 2e12
NVLINK_BYTES_PER_S = 300e9  # a GPU, one way
NETWORK_BYTES_PER_S = 100e9  # a node, one way
GPUS_A_NODE = 8
VOCABULARY = 51_200
CONSTANTS = ("matmul", "memory", "nvlink", "network", "overhead")
TERMS = (
    "matmul", "attention", "memory", "nvlink", "off node", "overhead", "bubble", "recomputation", "head",
    "point to point", "data parallel",
)  # fmt: skip
NOMINAL = 0.9


@dataclass(frozen=True)
class ClusterFit:
    """Constants of the step-time model: times of `CONSTANTS` over the sheet's, `overhead` in seconds.

    `half_width` is of the interval: a step lies within exp(± half_width) of its prediction for 90 % of the fitted rows.
    `without` names the term that was left out, if any.
    """

    constants: tuple[float, ...]
    half_width: float = 0.0
    without: str = ""


def work(row: MeasuredIteration, without: str = "") -> np.ndarray:
    """Seconds that a step's parts take at what the sheet promises, float64 `[5]`; the overhead's are a count.

    In the order of `CONSTANTS`. `without` leaves one of `TERMS` out. Raises ValueError for another one.
    """
    if without not in ("", *TERMS):
        raise ValueError(f"measured_clusters: expected one of the terms {', '.join(TERMS)}, got {without!r}.")
    has = {term: float(term != without) for term in TERMS}

    t, p, tokens = row.tensor, row.pipeline, row.micro_batch * row.tokens
    micro_batches = row.global_batch / (row.data * row.micro_batch)
    passes = 3.0
    if row.gpus > GPUS_A_NODE:
        passes += has["recomputation"]

    act = tokens * row.hidden  # numbers of one activation
    scores = row.heads * tokens * row.tokens
    rounds = micro_batches + has["bubble"] * (p - 1)
    layers = row.layers / p * rounds

    flops = passes * (has["matmul"] * 24 * act * row.hidden + has["attention"] * 4 * act * row.tokens) / t
    traffic_bytes = passes * (18.5 * act + 14 * act / t + 10.75 * scores / t)
    tensor_bytes = (2 + 2 * (passes - 2)) * 2 * (t - 1) / t * 2 * act  # all-reduces: two a pass, backward's two are one
    head_flops = has["head"] * 6 * act * VOCABULARY / t

    matmul_s = (layers * flops + micro_batches * head_flops) / PEAK_FLOPS
    memory_s = has["memory"] * layers * traffic_bytes / MEMORY_BYTES_PER_S
    nvlink_s = network_s = 0.0
    if t > GPUS_A_NODE and has["off node"]:
        network_s = layers * tensor_bytes / NETWORK_BYTES_PER_S
    else:
        nvlink_s = has["nvlink"] * layers * tensor_bytes / NVLINK_BYTES_PER_S

    parameters = 12 * row.layers * row.hidden**2 / (t * p)
    gradient_bytes = has["data parallel"] * 2 * (row.data - 1) / row.data * 2 * parameters
    hop_bytes = has["point to point"] * 2 * 2 * act / t * (p > 1) * rounds
    if row.gpus <= GPUS_A_NODE:
        nvlink_s += (gradient_bytes + hop_bytes) / NVLINK_BYTES_PER_S
    else:
        # the ranks of a node share its card: rings of as many tensor parallel parts, and every rank's activations
        shared_bytes = gradient_bytes * min(t, GPUS_A_NODE) + hop_bytes * GPUS_A_NODE
        network_s += shared_bytes / NETWORK_BYTES_PER_S
    return np.array([matmul_s, memory_s, nvlink_s, network_s, has["overhead"] * layers])


def fit_memory(single: Sequence[MeasuredIteration], without: str = "", micro_batch: int = 1) -> float:
    """1/W of the step-time model, from rows of one node: those of no tensor and pipeline parallelism.

    Their models differ in width, so matrix products and memory traffic come apart. With `micro_batch`, only rows with
    micro-batches of that size and larger; `cluster_spread` has what such a choice decides. Raises ValueError where no row is
    such.
    """
    rows = [r for r in single if r.tensor == r.pipeline == 1 and r.micro_batch >= micro_batch]
    return float(robust_fit.fit(*_equations(rows, without))[CONSTANTS.index("memory")])


def fit(rows: Sequence[MeasuredIteration], memory: float | None = None, without: str = "") -> ClusterFit:
    """Fit the step-time model to measured `rows`, with the constant of memory traffic given, or (known wrong) free.

    The interval is the 90 % quantile of the residuals |log(measured / predicted)| of the same rows.
    """
    known = {} if memory is None else {CONSTANTS.index("memory"): memory}
    constants = robust_fit.fit(*_equations(rows, without), known=known)
    found = ClusterFit(tuple(constants.tolist()), without=without)

    residuals = np.abs(np.log([r.iteration_s for r in rows]) - np.log(predict(found, rows)))
    half_width = float(np.quantile(residuals, NOMINAL, method="higher"))
    return ClusterFit(found.constants, half_width, without)


def predict(fitted: ClusterFit, rows: Sequence[MeasuredIteration]) -> np.ndarray:
    """Seconds of a step by the fitted step-time model, float64 `[rows]`."""
    return np.array([work(row, fitted.without) @ np.array(fitted.constants) for row in rows])


def error(fitted: ClusterFit, rows: Sequence[MeasuredIteration]) -> float:
    """Mean absolute error of the step-time model's predictions, as a part of the measured seconds."""
    measured = np.array([row.iteration_s for row in rows])
    return float(np.mean(np.abs(predict(fitted, rows) / measured - 1)))


def coverage(fitted: ClusterFit, rows: Sequence[MeasuredIteration]) -> tuple[float, float]:
    """Of the step-time model's intervals: the part of `rows` that lie inside, and the mean half-width over the prediction."""
    measured = np.array([row.iteration_s for row in rows])
    inside = np.abs(np.log(measured / predict(fitted, rows))) <= fitted.half_width
    return float(inside.mean()), float(np.sinh(fitted.half_width))


def _equations(rows: Sequence[MeasuredIteration], without: str) -> tuple[np.ndarray, np.ndarray]:
    if not rows:
        raise ValueError("measured_clusters: expected measured rows to fit to, got none that can be used.")
    return np.array([work(row, without) for row in rows]), np.array([row.iteration_s for row in rows])
