"""The time of a GPT's training step on a cluster, from physics, with five constants fitted to measurements.

The work of each part of a step (FLOPs, bytes, layers) is divided by the data sheet's rate. Constants scale the result: matrix
products (1/E), memory traffic (1/W), NVLink (1/N), the network (1/X), plus an overhead of o seconds per layer and micro-batch.
The step's time is linear in them, and `robust_fit` finds them. The schedule is 1F1B without interleaving. The files do not say if
forward is recomputed. The large models must recompute (four passes for three); the small ones on one node are taken to keep their
activations, which have room and fit better (3.2 % against 3.5), at 70 % of peak and not at an unlikely 93. Rows of one model
cannot separate matrix products from memory traffic, which grow together: W is fitted on other models (`fit_memory`), because five
free constants end at nonsense that fits well. Left out: overlap of messages with work, the optimizer's step, sequence
parallelism.

Work: D. Narayanan et al., "Megatron-LM", arXiv:2104.04473, 2021; bytes of activations read and written: V.
Korthikanti et al., arXiv:2205.05198, 2022, table 2's operations. Measurements: J. Bang et al., "vTrain", MICRO 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.data import MeasuredIteration
from worldsize.formulas import robust_fit

PEAK_FLOPS = 312e12  # of an A100 in 16 bits, per second
MEMORY_BYTES_PER_S = 2e12
NVLINK_BYTES_PER_S = 300e9  # per GPU, one way
NETWORK_BYTES_PER_S = 100e9  # per node, one way
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
    """Constants of the step-time model: factors on the data sheet's times, `overhead` in seconds; in the order of `CONSTANTS`.

    A step's time lies within exp(± half_width) of its prediction for 90 % of the fitted rows. `without` names the term left out,
    if any.
    """

    constants: tuple[float, ...]
    half_width: float = 0.0
    without: str = ""


def work(row: MeasuredIteration, without: str = "") -> np.ndarray:
    """Return the seconds of a step's parts at the data sheet's rates, float64 `[5]`; the overhead's entry is a count.

    In the order of `CONSTANTS`. `without` leaves one of `TERMS` out. Raises ValueError for any other name.
    """
    if without not in ("", *TERMS):
        raise ValueError(f"measured_clusters: expected one of the terms {', '.join(TERMS)}, got {without!r}.")
    has = {term: float(term != without) for term in TERMS}

    t, p, tokens = row.tensor, row.pipeline, row.micro_batch * row.tokens
    micro_batches = row.global_batch / (row.data * row.micro_batch)
    passes = 3.0
    if row.gpus > GPUS_A_NODE:
        passes += has["recomputation"]

    act = tokens * row.hidden  # elements of one activation
    scores = row.heads * tokens * row.tokens
    rounds = micro_batches + has["bubble"] * (p - 1)
    layers = row.layers / p * rounds

    flops = passes * (has["matmul"] * 24 * act * row.hidden + has["attention"] * 4 * act * row.tokens) / t
    traffic_bytes = passes * (18.5 * act + 14 * act / t + 10.75 * scores / t)
    tensor_bytes = (2 + 2 * (passes - 2)) * 2 * (t - 1) / t * 2 * act  # all-reduces: two per pass, backward's two are one
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
    """Return 1/W of the step-time model, fitted to one-node rows without tensor and pipeline parallelism.

    Their models differ in width, which separates matrix products from memory traffic. `micro_batch` is the smallest size of
    micro-batches used; `cluster_spread` shows the effect of this choice. Raises ValueError if no row qualifies.
    """
    rows = [r for r in single if r.tensor == r.pipeline == 1 and r.micro_batch >= micro_batch]
    return float(robust_fit.fit(*_equations(rows, without))[CONSTANTS.index("memory")])


def fit(rows: Sequence[MeasuredIteration], memory: float | None = None, without: str = "") -> ClusterFit:
    """Fit the step-time model to measured `rows`, with memory traffic's constant given, or (known wrong) free.

    The interval is the 90 % quantile of the residuals |log(measured / predicted)| of the same rows.
    """
    known = {} if memory is None else {CONSTANTS.index("memory"): memory}
    constants = robust_fit.fit(*_equations(rows, without), known=known)
    model = ClusterFit(tuple(constants.tolist()), without=without)

    residuals = np.abs(np.log([r.iteration_s for r in rows]) - np.log(predict(model, rows)))
    half_width = float(np.quantile(residuals, NOMINAL, method="higher"))
    return ClusterFit(model.constants, half_width, without)


def predict(fitted: ClusterFit, rows: Sequence[MeasuredIteration]) -> np.ndarray:
    """Return the predicted seconds of a cluster's step, float64 `[rows]`."""
    return np.array([work(row, fitted.without) @ np.array(fitted.constants) for row in rows])


def error(fitted: ClusterFit, rows: Sequence[MeasuredIteration]) -> float:
    """Return the mean absolute error of predicted steps, as a share of the measured seconds."""
    measured = np.array([row.iteration_s for row in rows])
    return float(np.mean(np.abs(predict(fitted, rows) / measured - 1)))


def coverage(fitted: ClusterFit, rows: Sequence[MeasuredIteration]) -> tuple[float, float]:
    """Return the share of a cluster's `rows` inside the model's intervals, and the mean half-width relative to the prediction."""
    measured = np.array([row.iteration_s for row in rows])
    inside = np.abs(np.log(measured / predict(fitted, rows))) <= fitted.half_width
    return float(inside.mean()), float(np.sinh(fitted.half_width))


def _equations(rows: Sequence[MeasuredIteration], without: str) -> tuple[np.ndarray, np.ndarray]:
    if not rows:
        raise ValueError("measured_clusters: expected usable measured rows to fit to, got none.")
    return np.array([work(row, without) for row in rows]), np.array([row.iteration_s for row in rows])
