"""The needs of a GPT's training step: a rank's memory by part, floating-point operations, seconds by part, days of training.

A `Transformer` is spread by a `Plan`: tensor parallel inside a layer, pipeline parallel over layers (1F1B, or interleaved with
`chunks` per rank), data parallel with a ZeRO stage, and activations kept or recomputed. Memory is the first pipeline stage's,
which holds most. Left out: allocator waste, messages to the next stage that hide behind work, contention on a card, the
optimizer's own time, experts and context parallelism.

D. Narayanan et al., "Megatron-LM", arXiv:2104.04473, 2021. V. Korthikanti et al., "Reducing activation recomputation in large
transformer models", arXiv:2205.05198, 2022. S. Rajbhandari et al., "ZeRO", SC 2020.
"""

from dataclasses import dataclass, fields, replace

from worldsize.formulas import activations, sharding

RECOMPUTED = ("", "attention", "whole")
DAY_S = 86_400


@dataclass(frozen=True)
class Transformer:
    """A GPT: l `layers` of width h `hidden` with a `heads`, sequences of s `tokens`, V words in the `vocabulary`."""

    layers: int
    hidden: int
    heads: int
    tokens: int = 2048
    vocabulary: int = 51_200


@dataclass(frozen=True)
class Plan:
    """The spread of a training step over `tensor` · `pipeline` · `data` ranks; batches are counted in sequences.

    `recomputed`: "" keeps every activation, "attention" recomputes the scores (selective), "whole" every layer. With `chunks` a
    stage has as many parts of the model (interleaved 1F1B), and micro-batches go in groups of `pipeline`. With `overlap` a
    layer's gradients are reduced as soon as its last backward is done. Raises ValueError for sizes below 1, a global batch or
    micro-batches that do not divide, unknown words, and overlap with a ZeRO stage above 0.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    chunks: int = 1
    zero: int = 0
    recomputed: str = ""
    sequence_parallel: bool = False
    overlap: bool = False

    def __post_init__(self) -> None:
        for field in fields(self)[:6]:
            if getattr(self, field.name) < 1:
                raise ValueError(f"Plan: {field.name} is {getattr(self, field.name)!r}; expected 1 or more.")
        if self.global_batch % (self.data * self.micro_batch):
            raise ValueError(
                f"Plan: a global batch of {self.global_batch} doesn't divide into micro-batches of {self.micro_batch} on "
                f"{self.data} replicas. Choose a multiple of {self.data * self.micro_batch}."
            )
        if self.recomputed not in RECOMPUTED:
            raise ValueError(f'Plan: expected recomputed as "", "attention" or "whole", got {self.recomputed!r}.')
        if self.zero not in sharding.STAGES:
            raise ValueError(f"Plan: expected a stage of ZeRO from 0 to 3, got {self.zero!r}.")
        if self.chunks > 1 and self.micro_batches % self.pipeline:
            raise ValueError(
                f"Plan: with {self.chunks} chunks, expected micro-batches in whole groups of {self.pipeline}, one for each "
                f"stage; got {self.micro_batches}. Choose other sizes, or chunks=1."
            )
        if self.overlap and self.zero:
            raise ValueError(f"Plan: overlap is modelled only without ZeRO, got zero={self.zero}. Choose one of the two.")

    @property
    def micro_batches(self) -> int:
        """m, the micro-batches of one replica in one step."""
        return self.global_batch // (self.data * self.micro_batch)


@dataclass(frozen=True)
class Accelerator:
    """Effective rates of a cluster, per second: FLOPs, bytes of memory, bytes of a GPU's links in its node and of a node's card.

    Each layer and micro-batch also costs `layer_overhead_s`. The defaults are A100s: the data sheet's 312 TFLOP/s, 2 TB/s, 300
    and 100 GB/s, times rounded shares with which `seconds` meets published steps of four large models within a tenth.
    """

    flops: float = 0.8 * 312e12
    memory_bytes_per_s: float = 0.55 * 2e12
    inside_bytes_per_s: float = 300e9
    between_bytes_per_s: float = 100e9
    layer_overhead_s: float = 2e-3
    a_node: int = 8


def parameters(model: Transformer) -> int:
    """Return a GPT's parameters: 12 l h² (1 + 13/(12h) + (V + s)/(12 l h)). Megatron-LM, 2021, equation 2."""
    _check(model)
    embedding = (model.vocabulary + model.tokens) * model.hidden
    return 12 * model.layers * model.hidden**2 + 13 * model.layers * model.hidden + embedding


def flops(model: Transformer, sequences: int, recomputed: str = "whole") -> float:
    """Return a training step's floating-point operations on `sequences`: 96 B s l h² (1 + s/(6h) + V/(16 l h)), all recomputed.

    With nothing recomputed the layers take three passes instead of four; with "attention" only the scores take four.
    Megatron-LM, 2021, equation 3; Korthikanti et al., 2022, appendix A.
    """
    _check(model)
    products, scores = _passes(recomputed)
    tokens = sequences * model.tokens
    layer = tokens * (products * 24 * model.hidden**2 + scores * 4 * model.tokens * model.hidden)
    return float(model.layers * layer + 6 * tokens * model.hidden * model.vocabulary)


def training_days(parameters: float, tokens: float, n: int, flops_per_s: float) -> float:
    """Return the days on n GPUs that each reach `flops_per_s`: 8 T P/(n X), activations recomputed. Megatron-LM, 2021, eq. 4.

    Raises ValueError for numbers that are not above 0.
    """
    if not min(parameters, tokens, n, flops_per_s) > 0:
        raise ValueError("training_days: expected parameters, tokens, GPUs and FLOP/s above 0.")
    return 8 * tokens * parameters / (n * flops_per_s) / DAY_S


def checkpoint_bytes(parameters: float) -> float:
    """Return the bytes of a training state on disk: 2 per 16-bit weight, 12 for Adam's float32 copy and two moments."""
    held = sharding.memory(parameters, 1, 0)
    return held["parameters"] + held["optimizer"]


def memory(model: Transformer, plan: Plan) -> dict[str, float]:
    """Return a training step's bytes on a rank of the first stage by part: parameters, gradients, optimizer, activations.

    16-bit weights and gradients, Adam in float32 (ZeRO, 2020). 1F1B holds the activations of min(m, p) micro-batches there,
    interleaved 1F1B of (1 + (p − 1)/(pv)) p micro-batches. A recomputed layer keeps its input of 2sbh bytes, and one layer at a
    time is whole. Korthikanti et al., 2022, sections 4 and 5. Raises ValueError if layers don't divide.
    """
    _check(model)
    layers = _layers_a_stage(model, plan)
    of_stage = parameters(replace(model, layers=layers))
    held = sharding.memory(of_stage / plan.tensor, plan.data, plan.zero)

    in_flight = float(min(plan.micro_batches, plan.pipeline))
    if plan.chunks > 1:
        in_flight = min(plan.micro_batches, plan.pipeline + (plan.pipeline - 1) / plan.chunks)

    if plan.recomputed == "whole":
        kept = 2 * model.tokens * plan.micro_batch * model.hidden
        if plan.sequence_parallel:
            kept /= plan.tensor
        held["activations"] = in_flight * layers * kept + _layer_bytes(model, plan, "")
    else:
        held["activations"] = in_flight * layers * _layer_bytes(model, plan, plan.recomputed)
    return held


def seconds(model: Transformer, plan: Plan, cluster: Accelerator | None = None) -> dict[str, float]:
    """Return the seconds of a training step by part; their sum is the step.

    "compute": matrix products, memory traffic and overhead of the layers. "tensor parallel": six all-reduces per layer with
    recomputation, four without. "head": the loss on the last stage. "bubble": (p − 1)/v micro-batches of the rest. "point to
    point". "data parallel": an all-reduce of the gradients (ZeRO: `sharding.bytes_sent`); with overlap, the part left after
    backward (`exposed_s`). Megatron-LM, 2021, section 3. Korthikanti et al., 2022, section 4 (sequence parallel). Raises
    ValueError if layers don't divide.
    """
    _check(model)
    cluster = cluster or Accelerator()
    layers, t, m = _layers_a_stage(model, plan), plan.tensor, plan.micro_batches
    act = plan.micro_batch * model.tokens * model.hidden

    products, scores = _passes(plan.recomputed)
    layer_flops = products * 24 * act * model.hidden / t + scores * 4 * act * model.tokens / t
    around = 18.5 * act  # bytes that norms and residual read and write
    if plan.sequence_parallel:
        around /= t
    tables = 10.75 * plan.micro_batch * model.heads * model.tokens**2 / t  # softmax and dropout
    traffic_bytes = products * (around + 14 * act / t) + scores * tables  # 14: GELU
    compute_s = layer_flops / cluster.flops + traffic_bytes / cluster.memory_bytes_per_s
    compute_s += cluster.layer_overhead_s

    all_reduces = 4 + 2 * (plan.recomputed == "whole")
    if plan.sequence_parallel and plan.recomputed != "whole":
        all_reduces += 1  # two more all-gathers: sharded inputs again, for the gradients of the weights
    bandwidth = cluster.inside_bytes_per_s
    if t > cluster.a_node:
        bandwidth = cluster.between_bytes_per_s
    tensor_s = all_reduces * 2 * (t - 1) / t * 2 * act / bandwidth

    gradients_bytes = 2 * (layers * 12 * model.hidden**2) / t
    sent_bytes = sharding.bytes_sent(plan.data, gradients_bytes, plan.zero, m)
    hop_bytes = 2 * 2 * act / t * (plan.pipeline > 1)  # 2 bytes a number, forward and backward
    if t * plan.pipeline * plan.data <= cluster.a_node:
        data_s, hop_s = sent_bytes / cluster.inside_bytes_per_s, hop_bytes / cluster.inside_bytes_per_s
    else:
        data_s = sent_bytes * min(t, cluster.a_node) / cluster.between_bytes_per_s
        hop_s = hop_bytes * cluster.a_node / cluster.between_bytes_per_s

    if plan.overlap:
        backward_s = compute_s * (1 - 1 / products) + tensor_s * (1 - 2 / all_reduces)  # per layer, with its recomputation
        data_s = exposed_s(data_s, layers, backward_s, plan.pipeline, plan.chunks)

    waiting = (plan.pipeline - 1) / plan.chunks
    return {
        "compute": m * layers * compute_s,
        "tensor parallel": m * layers * tensor_s,
        "head": m * 6 * act * model.vocabulary / t / cluster.flops,
        "bubble": waiting * (layers * (compute_s + tensor_s) + hop_s * plan.chunks),
        "point to point": m * hop_s * plan.chunks,
        "data parallel": data_s,
    }


def exposed_s(all_reduce_s: float, layers: int, backward_s: float, pipeline: int = 1, chunks: int = 1) -> float:
    """Return the seconds of a gradient all-reduce left after the first stage's last backward, of `backward_s` per layer.

    Each layer is a bucket, sent in turn as its last micro-batch's backward ends. Chunk c of v ends c p chunks' backwards before
    the stage does, so with v = 1 only one micro-batch's backward hides the sum, and with more whole groups of p. S. Li et al.,
    "PyTorch Distributed", VLDB 2020, section 3.2 (buckets that leave within backward); the order is Megatron-LM's, 2021.
    """
    bucket_s, chunk_layers = all_reduce_s / layers, layers // chunks
    left = []
    for chunk in range(chunks):
        before_s = chunk * pipeline * chunk_layers * backward_s  # from the chunk's last backward to the stage's
        first_s = before_s + (chunk_layers - 1) * backward_s
        left += [(chunk * chunk_layers + 1) * bucket_s - before_s, (chunk + 1) * chunk_layers * bucket_s - first_s]
    return max(left)


def _layer_bytes(model: Transformer, plan: Plan, recomputed: str) -> float:
    cut = "whole"
    if plan.tensor > 1:
        cut = "tensor and sequence" if plan.sequence_parallel else "tensor"
    return activations.transformer_layer(
        model.tokens, plan.micro_batch, model.hidden, model.heads, plan.tensor, cut, recomputed
    )


def _passes(recomputed: str) -> tuple[int, int]:
    """Return a training step's passes over a layer's matrix products and over its scores; backward counts twice."""
    if recomputed not in RECOMPUTED:
        raise ValueError(f'flops: expected recomputed as "", "attention" or "whole", got {recomputed!r}.')
    return 3 + (recomputed == "whole"), 3 + (recomputed != "")


def _layers_a_stage(model: Transformer, plan: Plan) -> int:
    if model.layers % (plan.pipeline * plan.chunks):
        raise ValueError(
            f"training_step: {model.layers} layers don't divide into {plan.pipeline} stages of {plan.chunks} chunks. "
            "Choose stages and chunks whose product divides the layers."
        )
    return model.layers // plan.pipeline


def _check(model: Transformer) -> None:
    for field in fields(model):
        if getattr(model, field.name) < 1:
            raise ValueError(f"Transformer: {field.name} is {getattr(model, field.name)!r}; expected 1 or more.")
