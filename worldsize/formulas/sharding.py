"""A rank's memory and messages when a model's training state is sharded: ZeRO's stages, and tensor parallelism.

A training step keeps parameters, their gradients and the optimizer's state. Data parallelism keeps all three on every rank (stage
0). ZeRO shards the optimizer's state (stage 1), then also the gradients (stage 2), then also the parameters (stage 3, which
PyTorch calls FSDP). Sizes are in bytes per rank; messages go round a ring. Left out: activations, buffers, allocator waste, and
unequal parts where n does not divide.

S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, "ZeRO: memory optimizations toward training trillion parameter models", SC 2020. Y.
Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", VLDB 2023. M. Shoeybi et al., "Megatron-LM",
arXiv:1909.08053, 2019.
"""

from collections.abc import Sequence

from worldsize.formulas import cost

STAGES = (0, 1, 2, 3)


def memory(
    parameters: float, n: int, stage: int,
    parameter_bytes: int = 2, gradient_bytes: int = 2, optimizer_bytes: int = 12,
) -> dict[str, float]:  # fmt: skip
    """Return the bytes per rank of each part under ZeRO: (2 + 2 + 12) Ψ in stage 0, and 16 Ψ/n in stage 3.

    ZeRO, 2020, figure 1. The defaults are the paper's: 16-bit parameters and gradients, and an Adam with float32 copies of the
    parameters, the momentum and the variance. Plain float32 with Adam is 4, 4 and 8.
    """
    _check(n, stage)
    held = {
        "parameters": float(parameters * parameter_bytes),
        "gradients": float(parameters * gradient_bytes),
        "optimizer": float(parameters * optimizer_bytes),
    }
    for part in ("optimizer", "gradients", "parameters")[:stage]:
        held[part] /= n
    return held


def bytes_sent(n: int, size_bytes: float, stage: int, micro_batches: int = 1) -> float:
    """Return the bytes that a rank sends in a step under ZeRO's `stage`, 0 to 3.

    `size_bytes` is all parameters, or all gradients, in bytes. Stage 0 is an all-reduce of the gradients, 2 (n − 1)/n of it. In
    stages 1 and 2 the same bytes are a reduce-scatter of the gradients and an all-gather of the parameters. Stage 3 gathers them
    twice, for the forward and for the backward pass: 3 (n − 1)/n. ZeRO, 2020, section 7.

    With gradients accumulated over `micro_batches`, stages 0 and 1 keep a whole gradient and send as before; stage 2, which
    keeps only its part, reduce-scatters after each micro-batch, and stage 3 also gathers for each.
    """
    _check(n, stage)
    if micro_batches < 1:
        raise ValueError(f"sharding: expected one micro-batch or more in a step, got {micro_batches!r}")

    gathers, scatters = 1, 1
    if stage == 2:
        scatters = micro_batches
    if stage == 3:
        gathers, scatters = 2 * micro_batches, micro_batches
    return scatters * cost.bytes_reduce_scatter(n, size_bytes) + gathers * cost.bytes_all_gather(n, size_bytes)


def whole_in_stage_3(layers: Sequence[float], ahead: int = 1) -> float:
    """Return the most bytes of whole weights on a rank at once, of layers gathered for use, then freed.

    `layers`: bytes of each layer's weights in order. While one layer works, `ahead` more are on their way.
    """
    windows = range(max(1, len(layers) - ahead))
    return max(sum(layers[k : k + 1 + ahead]) for k in windows)


def bytes_sent_by(op: str, size_bytes: float, n: int) -> float:
    """Return the bytes that a rank sends in one collective `op`, given the bytes of its input.

    `op` and `size_bytes` are as in a recorded `trace.Collective`. Round a ring, an all-reduce sends 2 (n − 1)/n of its input,
    a reduce-scatter (n − 1)/n, an all-gather its input n − 1 times. Raises ValueError for another operation.
    """
    if op == "all_reduce":
        return cost.bytes_ring_all_reduce(n, size_bytes)
    if op in ("reduce_scatter", "reduce_scatter_single"):
        return cost.bytes_reduce_scatter(n, size_bytes)
    if op in ("all_gather", "all_gather_single"):
        return cost.bytes_all_gather(n, n * size_bytes)
    raise ValueError(f"bytes_sent_by: expected an all-reduce, a reduce-scatter or an all-gather, got {op!r}")


def bytes_sent_tensor_parallel(n: int, activation_bytes: float) -> float:
    """Return the bytes that a rank sends for a pair of layers under tensor parallelism, two all-reduces.

    One layer is cut by columns and the next by rows. One all-reduce is of the output, in forward, and one of the gradient of the
    input, in backward; both have `activation_bytes`, which grow with the batch. Megatron-LM, 2019, section 3.
    """
    return 2 * cost.bytes_ring_all_reduce(n, activation_bytes)


def bytes_sent_sequence_parallel(n: int, activation_bytes: float, shared_bytes: float = 0.0) -> float:
    """Return the bytes that a rank sends for a pair of layers under sequence parallelism.

    An all-gather of the tokens before the pair and a reduce-scatter after it, in forward and again in backward, are as many
    bytes as two all-reduces. `shared_bytes`: weights of norms and biases that every rank has whole, whose gradients are added up.
    Korthikanti et al., arXiv:2205.05198, 2022, section 4.2.
    """
    halves = cost.bytes_all_gather(n, activation_bytes) + cost.bytes_reduce_scatter(n, activation_bytes)
    return 2 * halves + cost.bytes_ring_all_reduce(n, shared_bytes)


def _check(n: int, stage: int) -> None:
    if stage not in STAGES:
        raise ValueError(f"sharding: expected a stage from 0 (nothing is cut) to 3, got {stage!r}")
    cost.bytes_all_gather(n, 0)  # raises for an invalid world size
