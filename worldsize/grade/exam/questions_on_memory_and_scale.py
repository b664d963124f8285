"""Exam questions on memory, scale and failures: labs 12 to 17."""

import math

from worldsize.formulas import (
    attention,
    compression,
    cost,
    experts,
    goodput,
    large_batches,
    schedules,
    sharding,
    training_step,
)
from worldsize.grade.exam.question import ExamQuestion, Given

BILLIONS = (1.3, 2.7, 7, 7.5, 13, 30, 70)
RANKS = (8, 16, 32, 64, 128)
_MODELS = {"layers": (24, 32, 48, 96), "width": (1024, 2048, 4096, 8192)}


def _gb(g: Given, stage: int) -> float:
    return sum(sharding.memory(g.billions * 1e9, g.n, stage).values()) / 1e9


def _kept(tau_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return, for an exam, the first-order share of useful time, loss by loss."""
    saving = save_s / tau_s
    redone = tau_s / 2 / mtbf_s
    restarting = restart_s / mtbf_s
    return 1 - saving - redone - restarting


def _last_share(n: int) -> float:
    """Return, for an exam, the last rank's share of all causal pairs, counted for a sequence long enough to hide the diagonal."""
    length = 10_000 * n
    whole = attention.causal_pairs(length)
    return (whole - attention.causal_pairs(length - length // n)) / whole


QUESTIONS = (
    ExamQuestion(
        "zero_0", "12",
        "Mixed precision with Adam: weights and gradients of 2 bytes, and 12 bytes for the float32 copy and moments of each "
        "weight. How many GB does a model of {billions} billion weights take on each rank without any sharding (decimal GB)?",
        "GB", {"billions": BILLIONS, "n": RANKS},
        lambda g: _gb(g, 0),
        lambda g: g.billions * (2 + 2 + 4 + 4 + 4),  # weight, gradient, float32 copy, two moments
        "16 bytes per weight.",
        (lambda g: 4 * g.billions, lambda g: 12 * g.billions, lambda g: 14 * g.billions),
    ),
    ExamQuestion(
        "zero_1", "12",
        "With the same 2 + 2 + 12 bytes per weight on {n} ranks, ZeRO stage 1 shards the optimizer's 12 bytes. How many GB does "
        "a rank hold of a model of {billions} billion weights?",
        "GB", {"billions": BILLIONS, "n": RANKS},
        lambda g: _gb(g, 1),
        lambda g: g.billions * (2 + 2) + g.billions * 12 / g.n,
        "(2 + 2 + 12/n) bytes per weight.",
        (lambda g: g.billions * 16 / g.n, lambda g: g.billions * (2 + 14 / g.n), lambda g: g.billions * 16),
    ),
    ExamQuestion(
        "zero_2", "12",
        "With the same 2 + 2 + 12 bytes per weight on {n} ranks, ZeRO stage 2 shards optimizer and gradients. How many GB does a "
        "rank hold of a model of {billions} billion weights?",
        "GB", {"billions": BILLIONS, "n": RANKS},
        lambda g: _gb(g, 2),
        lambda g: g.billions * 2 + g.billions * (2 + 12) / g.n,
        "(2 + 14/n) bytes per weight.",
        (lambda g: g.billions * 16 / g.n, lambda g: g.billions * (4 + 12 / g.n)),
    ),
    ExamQuestion(
        "zero_3_bytes", "12",
        "{n} ranks train a model whose weights take {gb} GB. How many GB does a rank send in a step of ZeRO stage 3, without "
        "accumulation?",
        "GB", {"n": (2, 4, 8, 16), "gb": (2, 14, 26, 60)},
        lambda g: sharding.bytes_sent(g.n, g.gb, 3),
        lambda g: sum(g.gb / g.n for collective in range(3) for _ in range(g.n - 1)),
        "Two all-gathers and a reduce-scatter: 3 (n − 1)/n.",
        (lambda g: 2 * (g.n - 1) / g.n * g.gb, lambda g: 3 * g.gb, lambda g: (g.n - 1) / g.n * g.gb),
        lambda g: g.n <= 16,
    ),
    ExamQuestion(
        "tensor_parallel", "12",
        "{n} ranks split an MLP column-wise, then row-wise. Its output, [tokens, width], takes {mb} MB. How many MB does a rank "
        "send in one forward and backward pass, with rings?",
        "MB", {"n": (2, 4, 8), "mb": (8, 16, 50, 64)},
        lambda g: sharding.bytes_sent_tensor_parallel(g.n, g.mb),
        lambda g: sum(g.mb / g.n for all_reduce in ("g forward", "f backward") for half in range(2) for _ in range(g.n - 1)),
        "One all-reduce forward (g) and one backward (f).",
        (lambda g: 2 * (g.n - 1) / g.n * g.mb, lambda g: 8 * (g.n - 1) / g.n * g.mb),
    ),
    ExamQuestion(
        "linear_rule", "13",
        "Batch {base} trains well at rate {rate}. What rate does the linear scaling rule give for batch {large}, "
        "after warm-up?",
        "", {"base": (32, 64, 128, 256), "rate": (0.01, 0.05, 0.1), "large": (512, 1024, 4096, 8192)},
        lambda g: g.rate * g.large / g.base,
        lambda g: sum(g.rate / g.base for example in range(g.large)),
        "k times the batch, k times the rate.",
        (lambda g: g.rate * math.sqrt(g.large / g.base), lambda g: g.rate),
    ),
    ExamQuestion(
        "warm_up", "13",
        "The rate rises linearly from {base} to {top} over {steps} steps; step {steps} has the full rate, and the first step is "
        "0. What is the rate at step {now}?",
        "", {"base": (0.1, 0.2), "top": (0.8, 1.6, 3.2), "steps": (100, 200, 500), "now": (25, 50, 75, 80)},
        lambda g: g.base + (g.top - g.base) * g.now / g.steps,
        lambda g: g.base + sum((g.top - g.base) / g.steps for step in range(g.now)),
        "base + (top − base) · step/steps.",
        (lambda g: g.top * g.now / g.steps, lambda g: g.top),
    ),
    ExamQuestion(
        "critical_batch", "13",
        "Reaching a goal takes at least {fewest} steps, and the critical batch is {critical}. How many steps does batch {batch} "
        "take, by S = S_min (1 + B_crit/B)?",
        "steps", {"fewest": (100, 250, 400), "critical": (512, 1000, 2000), "batch": (125, 250, 500, 1000, 4000)},
        lambda g: large_batches.steps(g.batch, g.fewest, g.critical),
        lambda g: g.fewest + g.fewest * g.critical / g.batch,
        "At the critical batch, it is twice the minimum.",
        (lambda g: g.fewest, lambda g: g.fewest * g.critical / g.batch, lambda g: g.fewest * (1 + g.batch / g.critical)),
    ),
    ExamQuestion(
        "examples_to_goal", "13",
        "With S = S_min (1 + B_crit/B), S_min = {fewest} and B_crit = {critical}: how many times as many examples does batch "
        "{batch} need to reach the goal as a very small batch?",
        "times", {"fewest": (100, 250), "critical": (500, 1000, 2000), "batch": (250, 500, 1000, 2000, 4000)},
        lambda g: g.batch * large_batches.steps(g.batch, g.fewest, g.critical) / (g.fewest * g.critical),
        lambda g: 1 + g.batch / g.critical,
        "B · S = S_min (B + B_crit): 1 + B/B_crit times the minimum.",
        (lambda g: g.batch / g.critical, lambda g: 1 + g.critical / g.batch),
        lambda g: g.batch != g.critical,
    ),
    ExamQuestion(
        "top_k_bytes", "14",
        "{n} ranks average a gradient of {million} million numbers by the largest {percent} % of each rank, with 4 bytes per "
        "value and 4 per index; each part is sent to every other rank. How many MB does a rank send?",
        "MB", {"n": (4, 8, 16), "million": (1, 5, 10, 25), "percent": (0.1, 0.5, 1, 2)},
        lambda g: compression.top_k_bytes(g.n, round(g.million * 1e6 * g.percent / 100)) / 1e6,
        lambda g: sum((4 + 4) * g.million * g.percent / 100 for other in range(1, g.n)),
        "k (4 + 4) to each of n − 1 ranks.",
        (lambda g: 4 * (g.n - 1) * g.million * g.percent / 100, lambda g: 8 * g.million * g.percent / 100),
    ),
    ExamQuestion(
        "top_k_union", "14",
        "Each of {n} ranks sends {percent} % of all numbers, chosen at random and independently. What share of all numbers does "
        "at least one rank send, in per cent?",
        "%", {"n": (4, 8, 16, 32), "percent": (1, 2, 5, 10)},
        lambda g: 100 * compression.union_by_chance(g.percent / 100, g.n),
        lambda g: 100 * (1 - math.prod(1 - g.percent / 100 for rank in range(g.n))),
        "1 − (1 − s)ⁿ.",
        (lambda g: g.n * g.percent, lambda g: g.percent),
    ),
    ExamQuestion(
        "power_sgd", "14",
        "PowerSGD of rank {r} sends P and Q of a matrix of {rows} × {columns}. How many times fewer numbers is that?",
        "times", {"r": (1, 2, 4, 8), "rows": (512, 1024, 2048), "columns": (256, 768, 1024, 4096)},
        lambda g: g.rows * g.columns / compression.low_rank_numbers([(g.rows, g.columns)], g.r),
        lambda g: g.rows * g.columns / (sum(g.r for row in range(g.rows)) + sum(g.r for column in range(g.columns))),
        "rows · columns versus r (rows + columns).",
        (lambda g: g.rows / g.r, lambda g: g.rows * g.columns / g.r, lambda g: (g.rows + g.columns) / g.r),
    ),
    ExamQuestion(
        "local_sgd", "14",
        "{n} ranks average {mb} MB of weights once every {h} local steps, with a ring. How many MB does a rank send "
        "in {steps} steps?",
        "MB", {"n": (4, 8), "mb": (50, 100, 250), "h": (4, 8, 16, 50), "steps": (400, 800)},
        lambda g: g.steps / g.h * cost.bytes_ring_all_reduce(g.n, g.mb),
        lambda g: sum(2 * (g.n - 1) / g.n * g.mb for step in range(g.steps) if step % g.h == 0),
        "steps/H all-reduces.",
        (lambda g: g.steps * 2 * (g.n - 1) / g.n * g.mb, lambda g: g.steps / g.h * g.mb),
    ),
    ExamQuestion(
        "mtbf", "15",
        "A machine of 8 GPUs fails {rate} times in 1,000 days. How many hours, on average, does a job on {gpus} GPUs run between "
        "two failures?",
        "hours", {"rate": (2.5, 5, 6.5, 10), "gpus": (512, 1024, 4096, 16384)},
        lambda g: goodput.mtbf_hours(g.gpus, g.rate),
        lambda g: 24 * 1000 / sum(g.rate for machine in range(g.gpus // 8)),
        "24 · 1000/(rate · machines).",
        (lambda g: 24_000 / (g.rate * g.gpus), lambda g: 24_000 / g.rate),
    ),
    ExamQuestion(
        "young", "15",
        "A save takes {save} s, and a job fails every {hours} hours on average. After how many minutes of work should it save, "
        "by Young's formula?",
        "min", {"save": (10, 30, 60, 120), "hours": (1.8, 3, 8, 24)},
        lambda g: goodput.young_interval_s(g.save, 3600 * g.hours) / 60,
        lambda g: math.sqrt(2 * (g.save / 60) * (60 * g.hours)),
        "√(2 δ M).",
        (lambda g: math.sqrt(g.save / 60 * 60 * g.hours), lambda g: 60 * g.hours / 2),
    ),
    ExamQuestion(
        "goodput", "15",
        "A job saves every {minutes} min, which takes {save} s; it fails every {hours} hours on average, and a restart takes "
        "{restart} s. To first order, what share of the time is work that is kept, in per cent?",
        "%", {"minutes": (10, 20, 30, 60), "save": (10, 30, 60), "hours": (2, 4, 8), "restart": (60, 300, 600)},
        lambda g: 100 * goodput.effective_share_first_order(60 * g.minutes, g.save, g.restart, 3600 * g.hours),
        lambda g: 100 * _kept(60 * g.minutes, g.save, g.restart, 3600 * g.hours),
        "1 − δ/τ − (τ/2 + R)/M.",
        (lambda g: 100 * (1 - (60 * g.minutes + g.restart) / (3600 * g.hours) - g.save / (60 * g.minutes)),),
        lambda g: 0.4 < _kept(60 * g.minutes, g.save, g.restart, 3600 * g.hours) < 0.98,
    ),
    ExamQuestion(
        "shares_left", "15",
        "An epoch has {count} examples, dealt out to {n} ranks. After {done} examples, one rank is lost. How many examples are "
        "left for each remaining rank?",
        "examples", {"count": (4_800, 9_600, 48_000), "n": (4, 5, 9), "done": (1_200, 2_400, 3_600)},
        lambda g: (g.count - g.done) / (g.n - 1),
        lambda g: len(range(g.done, g.count)) / len(range(1, g.n)),
        "The rest is dealt out again to n − 1 ranks.",
        (lambda g: (g.count - g.done) / g.n, lambda g: g.count / (g.n - 1)),
        lambda g: (g.count - g.done) % (g.n - 1) == 0 and g.count > g.done,
    ),
    ExamQuestion(
        "gpt_parameters", "16",
        "A GPT has {layers} layers of width {width}. How many billion weights do its layers have, by 12 l h² (no biases, no "
        "vocabulary)?",
        "billion", _MODELS,
        lambda g: 12 * g.layers * g.width**2 / 1e9,
        lambda g: g.layers * sum(part * g.width**2 for part in (3, 1, 4, 4)) / 1e9,  # q, k, v; out; MLP up and down
        "3 h² for q, k and v, h² after attention, and 8 h² in the MLP.",
        (lambda g: 4 * g.layers * g.width**2 / 1e9, lambda g: 12 * g.width**2 / 1e9, lambda g: 8 * g.layers * g.width**2 / 1e9),
    ),
    ExamQuestion(
        "training_days", "16",
        "A model of {billions} billion weights sees {trillions} trillion tokens on {gpus} GPUs that each reach {tflops} TFLOP/s. "
        "How many days does that take, with 6 operations per weight and token?",
        "days", {"billions": (7, 13, 70, 175), "trillions": (0.3, 1, 2, 15),
         "gpus": (512, 1024, 4096, 16384), "tflops": (140, 160, 400)},
        # training_days counts 8 operations, with recomputed activations: 6/8 of it
        lambda g: 0.75 * training_step.training_days(g.billions * 1e9, g.trillions * 1e12, g.gpus, g.tflops * 1e12),
        lambda g: 6 * g.billions * 1e9 * g.trillions * 1e12 / (g.gpus * g.tflops * 1e12) / (24 * 60 * 60),
        "6 N D over the GPUs' operations per second; 8 N D if every activation is recomputed.",
        (lambda g: training_step.training_days(g.billions * 1e9, g.trillions * 1e12, g.gpus, g.tflops * 1e12),),
    ),
    ExamQuestion(
        "two_level_bytes", "16",
        "{nodes} machines of {per} GPUs add up {mb} MB: a reduce-scatter inside each machine, rings between machines over the "
        "parts, an all-gather inside. How many MB leave one machine?",
        "MB", {"nodes": (4, 8, 16, 32), "per": (4, 8), "mb": (100, 400, 1000)},
        lambda g: g.per * cost.bytes_ring_all_reduce(g.nodes, g.mb / g.per),
        lambda g: sum(2 * (g.nodes - 1) / g.nodes * g.mb / g.per for gpu in range(g.per)),
        "Each GPU's part goes round its own ring: 2 (N − 1)/N · m in total, however many GPUs a machine has.",
        (lambda g: g.per * 2 * (g.nodes - 1) / g.nodes * g.mb, lambda g: 2 * (g.nodes - 1) / g.nodes * g.mb / g.per),
    ),
    ExamQuestion(
        "interleaved", "16",
        "A pipeline of {p} stages and {m} micro-batches gives each stage {v} chunks of layers (interleaved 1F1B). How much "
        "longer than ideal is the step, in per cent?",
        "%", {"p": (4, 8, 16), "m": (8, 16, 32, 64), "v": (2, 3, 4)},
        lambda g: 100 * schedules.overhead(g.p, g.m, g.v),
        lambda g: 100 * (g.p - 1) * (1 / g.v) / g.m,
        "(p − 1)/(v m).",
        (lambda g: 100 * (g.p - 1) / g.m, lambda g: 100 * g.p / (g.v * g.m)),
    ),
    ExamQuestion(
        "score_memory", "17",
        "One layer's attention has {heads} heads, and a sequence has {tokens} tokens. How many GB do all its scores take at 2 "
        "bytes each, without a causal mask (decimal GB)?",
        "GB", {"heads": (16, 32, 64), "tokens": (8_192, 16_384, 32_768, 131_072)},
        lambda g: attention.score_bytes(g.tokens, g.heads) / 1e9,
        lambda g: sum(2 * g.tokens * g.tokens for head in range(g.heads)) / 1e9,
        "heads · L² numbers.",
        (lambda g: g.tokens**2 * g.heads / 1e9, lambda g: 4 * g.tokens**2 * g.heads / 1e9, lambda g: 2 * g.tokens**2 / 1e9),
    ),
    ExamQuestion(
        "ring_attention_bytes", "17",
        "{n} ranks run ring attention over {tokens} tokens of width {width}, in 2 bytes. How many MB does a rank send "
        "in one forward pass?",
        "MB", {"n": (2, 4, 8, 16), "tokens": (32_768, 131_072), "width": (1024, 4096, 8192)},
        lambda g: attention.bytes_ring(g.n, g.tokens, g.width) / 1e6,
        lambda g: sum(2 * 2 * g.tokens / g.n * g.width for _ in range(g.n - 1)) / 1e6,
        "n − 1 blocks of keys and values: (n − 1) · 2 · L/n · width.",
        (lambda g: (g.n - 1) * 2 * g.tokens / g.n * g.width / 1e6, lambda g: 6 * (g.n - 1) * g.tokens / g.n * g.width / 1e6),
    ),
    ExamQuestion(
        "causal_row", "17",
        "{n} ranks hold consecutive parts of a long sequence, and attention is causal. What share of all query-key pairs does "
        "the last rank work on, in per cent?",
        "%", {"n": (2, 4, 5, 8, 10)},
        lambda g: 100 * _last_share(g.n),
        lambda g: 100 * (1 - ((g.n - 1) / g.n) ** 2),
        "The ranks before it take (1 − 1/n)² of the pairs; the last rank has the rest, more than an even share of 1/n.",
        (lambda g: 100 / g.n, lambda g: 200 / g.n),
    ),
    ExamQuestion(
        "expert_capacity", "17",
        "{tokens} tokens of a group choose among {experts} experts, with a capacity factor of {factor}. What is the largest "
        "number of tokens that an expert can take?",
        "tokens", {"tokens": (256, 1024, 2048, 4096), "experts": (8, 16, 32, 64), "factor": (1.0, 1.25, 1.5, 2.0)},
        lambda g: experts.capacity(g.tokens, g.experts, g.factor),
        lambda g: math.ceil(sum(g.factor for token in range(g.tokens)) / g.experts),
        "⌈factor · tokens/experts⌉.",
        (lambda g: g.tokens if g.factor * g.tokens / g.experts < g.tokens else 0, lambda g: g.tokens / g.factor),
    ),
)  # fmt: skip
