"""Exam questions on training: labs 01, 03, 04, and 07 to 11."""

import math

from worldsize.formulas import bucketing, cost, parallelism, scaling, schedules
from worldsize.grade.exam.question import ExamQuestion, Given

_PERCENT = (1, 2, 4, 5, 8, 10)


def _makespan(g: Given, forward: float, backward: float) -> float:
    """Return, for an exam, the seconds of a GPipe step, slot by slot: all forwards through every stage, then all backwards."""
    ready = [0.0] * g.m
    idle_from = []
    for _ in range(g.p):
        free = 0.0
        for k in range(g.m):
            ready[k] = free = max(free, ready[k]) + forward
        idle_from.append(free)

    for free in reversed(idle_from):
        for k in range(g.m):
            ready[k] = free = max(free, ready[k]) + backward
    return max(ready)


def _held(stages: int, micro_batches: int) -> list[int]:
    """Return, for an exam, each stage's peak count of in-flight micro-batches, by replaying its 1F1B schedule."""
    most = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, micro_batches)
        order = ["F"] * ahead + ["F", "B"] * (micro_batches - ahead) + ["B"] * ahead
        held = [sum(1 if one == "F" else -1 for one in order[:k]) for k in range(len(order) + 1)]
        most.append(max(held))
    return most


def _halvings(n: int) -> int:
    levels = 0
    while n > 1:
        n, levels = (n + 1) // 2, levels + 1
    return levels


def _filled(count: int, size: float, cap: float) -> int:
    buckets = held = 0
    for _ in range(count):
        held += size
        if held >= cap:
            buckets, held = buckets + 1, 0
    return buckets + (held > 0)


QUESTIONS = (
    ExamQuestion(
        "efficiency", "01",
        "One worker trains on {one} images per second, {n} workers together on {many}. What is the efficiency, in per cent?",
        "%", {"n": (4, 8, 16), "one": (100, 120, 200, 250), "many": (600, 700, 900, 1400, 1500, 2100)},
        lambda g: 100 * scaling.efficiency(g.n, scaling.speedup(1 / g.one, 1 / g.many)),
        lambda g: 100 * g.many / sum(g.one for _ in range(g.n)),
        "The speedup over the number of workers.",
        (lambda g: g.many / g.one, lambda g: 100 * g.one / g.many),
        lambda g: 0.3 < g.many / g.one / g.n < 0.95,
    ),
    ExamQuestion(
        "amdahl", "01",
        "{f} % of a job's time cannot be parallelized. How many times as fast is it with {n} workers, by Amdahl's law?",
        "times", {"f": _PERCENT, "n": (4, 8, 16, 32, 64)},
        lambda g: scaling.amdahl(g.n, g.f / 100),
        lambda g: 100 / (g.f + (100 - g.f) / g.n),
        "1/(f + (1 − f)/n).",
        (lambda g: g.n, lambda g: g.f / 100 + (1 - g.f / 100) * g.n, lambda g: g.n * (1 - g.f / 100)),
    ),
    ExamQuestion(
        "amdahl_limit", "01",
        "{f} % of a job's time cannot be parallelized. How many times as fast can it be at most, with any number of workers?",
        "times", {"f": (1, 2, 2.5, 4, 5, 8, 10, 12.5, 20)},
        lambda g: scaling.amdahl_limit(g.f / 100),
        lambda g: 100 / g.f,
        "The serial part stays: 1/f.",
        (lambda g: 100 / (100 - g.f), lambda g: 100 - g.f),
    ),
    ExamQuestion(
        "gustafson", "01",
        "{n} workers run a job that grew with their number; {f} % of their time is serial. What is the scaled speedup?",
        "times", {"f": _PERCENT + (20, 30), "n": (8, 16, 32, 64)},
        lambda g: scaling.gustafson(g.n, g.f / 100),
        lambda g: g.f / 100 + sum(1 - g.f / 100 for _ in range(g.n)),
        "f + (1 − f) n (Gustafson): the workers do the other part n times in that time.",
        (lambda g: g.n, lambda g: scaling.amdahl(g.n, g.f / 100)),
    ),
    ExamQuestion(
        "training_memory", "01",
        "A model has {millions} million weights in float32, trained by Adam. How many MB do weights, gradients and "
        "Adam's two moments "
        "take together, in decimal MB?",
        "MB", {"millions": (10, 25, 60, 110, 125, 350, 1300)},
        lambda g: 4 * 4 * g.millions,
        lambda g: sum(4 * g.millions for part in ("weights", "gradients", "mean", "square")),
        "Four numbers of 4 bytes for each weight.",
        (lambda g: 4 * g.millions, lambda g: 8 * g.millions, lambda g: 12 * g.millions),
    ),
    ExamQuestion(
        "gpipe_idle", "03",
        "A pipeline of {p} equal stages works on {m} micro-batches, all forward and then all backward (GPipe). For what share of "
        "the step is a stage idle, in per cent?",
        "%", {"p": (2, 3, 4, 6, 8), "m": (2, 4, 8, 12, 16, 32)},
        lambda g: 100 * schedules.idle_share(g.p, g.m),
        lambda g: 100 * (1 - g.m * 3 / _makespan(g, 1, 2)),  # a backward takes two forwards
        "(p − 1)/(m + p − 1).",
        (lambda g: 100 * (g.p - 1) / g.m, lambda g: 100 * g.p / (g.m + g.p)),
    ),
    ExamQuestion(
        "gpipe_overhead", "03",
        "A pipeline has {p} equal stages, and a step has {m} micro-batches. How much longer does the step take than without idle "
        "stages, in per cent?",
        "%", {"p": (2, 3, 4, 6, 8), "m": (2, 4, 8, 12, 16, 32)},
        lambda g: 100 * schedules.overhead(g.p, g.m),
        lambda g: 100 * (_makespan(g, 1, 2) / (3 * g.m) - 1),
        "The bubble is p − 1 slots next to m full ones: (p − 1)/m.",
        (lambda g: 100 * (g.p - 1) / (g.m + g.p - 1), lambda g: 100 * g.p / g.m),
    ),
    ExamQuestion(
        "pipeline_seconds", "03",
        "A pipeline of {p} stages takes {ms} ms per stage for the forward pass of one micro-batch. How many ms do the forward "
        "passes of {m} micro-batches take, from the first stage's start to the last stage's end?",
        "ms", {"p": (2, 3, 4, 6, 8), "m": (2, 4, 8, 16), "ms": (5, 10, 20, 25)},
        lambda g: cost.pipeline([g.ms] * g.p, g.m),
        lambda g: _makespan(g, g.ms, 0),
        "m + p − 1 slots.",
        (lambda g: g.p * g.m * g.ms, lambda g: g.m * g.ms, lambda g: (g.m + g.p) * g.ms),
    ),
    ExamQuestion(
        "in_flight", "03",
        "A pipeline of {p} stages runs 1F1B with {m} micro-batches. At most, how many micro-batches' activations does stage "
        "{stage} (the first is 0) hold?",
        "micro-batches", {"p": (4, 6, 8), "m": (8, 12, 16), "stage": (0, 1, 2, 3)},
        lambda g: _held(g.p, g.m)[g.stage],
        lambda g: min(g.m, g.p - g.stage),
        "A stage holds one for each stage from itself to the end: p − s, and never more than m.",
        (lambda g: g.m, lambda g: g.p - g.stage - 1, lambda g: g.stage + 1),
    ),
    ExamQuestion(
        "mean_of_means", "04",
        "Rank 0 has {a} examples with a mean loss of {x}, rank 1 has {b} with a mean loss of {y}. What is the mean "
        "loss of all examples?",
        "", {"a": (10, 20, 30), "b": (40, 60, 90), "x": (0.5, 1.0, 2.0), "y": (3.0, 4.0, 6.0)},
        lambda g: (g.a * g.x + g.b * g.y) / (g.a + g.b),
        lambda g: math.fsum([g.x] * g.a + [g.y] * g.b) / len([g.x] * g.a + [g.y] * g.b),
        "Weighted by the counts. The mean of the two means gives rank 0's examples too much weight.",
        (lambda g: (g.x + g.y) / 2, lambda g: (g.b * g.x + g.a * g.y) / (g.a + g.b)),
    ),
    ExamQuestion(
        "model_or_data", "04",
        "{n} ranks train a model of {mb} MB of weights. With the layers spread over the ranks, a step moves {kb} kB of "
        "activations per example forward over all boundaries together, and as much backward. From what batch size on does data "
        "parallelism move fewer bytes?",
        "examples", {"n": (2, 4, 8), "mb": (10, 20, 40, 100), "kb": (50, 100, 200, 400)},
        lambda g: parallelism.crossing_batch(g.n, g.mb * 1e6, [g.kb * 1e3]),
        lambda g: 2 * (g.n - 1) * g.mb * 1e6 / sum(2 * g.kb * 1e3 for boundary in (0,)),
        "2 (n − 1) times the weights in total, versus 2 · activations per example.",
        (lambda g: g.mb * 1e3 / g.kb, lambda g: 2 * (g.n - 1) * g.mb * 1e3 / g.kb),
        lambda g: g.n > 2,
    ),
    ExamQuestion(
        "steps_an_epoch", "04",
        "A data set has {count} examples. {n} ranks take {each} examples each in every step; the last, smaller step counts too. "
        "How many steps does an epoch have?",
        "steps", {"count": (10_000, 12_500, 50_000, 60_000), "n": (4, 8, 16), "each": (32, 48, 64)},
        lambda g: math.ceil(g.count / (g.n * g.each)),
        lambda g: len(range(0, g.count, g.n * g.each)),
        "All ranks together take n · b examples per step; round the steps up.",
        (lambda g: math.ceil(g.count / g.each), lambda g: math.ceil(g.count / g.each / g.n / g.n)),
    ),
    ExamQuestion(
        "tower_batch", "07",
        "{n} towers share a batch of {batch} examples evenly. Each tower's loss is the mean over its own part. By what factor "
        "must you multiply the sum of the towers' gradients to get the gradient of the whole batch's mean loss?",
        "", {"n": (2, 3, 4, 6, 8), "batch": (48, 96, 240)},
        lambda g: 1 / g.n,
        lambda g: (g.batch / g.n) / g.batch,
        "Each part is 1/n of the batch.",
        (lambda g: 1 / g.batch, lambda g: g.n / g.batch, lambda g: 1.0),
    ),
    ExamQuestion(
        "between_graph_steps", "07",
        "{n} between-graph workers train asynchronously and share one global step. Each has applied {each} gradients. "
        "What is the global step?",
        "steps", {"n": (2, 3, 4, 5, 8), "each": (50, 100, 150, 400)},
        lambda g: g.n * g.each,
        lambda g: sum(g.each for worker in range(g.n)),
        "Every applied gradient counts as a step, from any worker.",
        (lambda g: g.each, lambda g: g.each / g.n),
    ),
    ExamQuestion(
        "replica_loss", "08",
        "MirroredStrategy has {n} replicas and a global batch of {batch}. A replica sums the losses of its {part} examples. By "
        "what number must it divide so that the sum over replicas is the mean over the batch?",
        "", {"n": (2, 4, 8), "batch": (64, 128, 256), "part": (8, 16, 32, 64, 128)},
        lambda g: g.batch,
        lambda g: sum(g.part for replica in range(g.n)),
        "By the global batch, not by the replica's part.",
        (lambda g: g.part, lambda g: g.n),
        lambda g: g.n * g.part == g.batch,
    ),
    ExamQuestion(
        "hierarchical_sum", "08",
        "A tree adds up the gradients of {n} devices in pairs, all pairs of a level at once. How many levels does it have?",
        "levels", {"n": (4, 6, 8, 12, 16, 24, 32)},
        lambda g: math.ceil(math.log2(g.n)),
        lambda g: _halvings(g.n),
        "Each level halves the number of tensors: ⌈log₂ n⌉.",
        (lambda g: g.n - 1, lambda g: g.n / 2 if g.n > 4 else 0),  # with 4 devices n/2 is the right answer
    ),
    ExamQuestion(
        "worker_share", "09",
        "A data set of {count} examples is sharded over {n} workers of MultiWorkerMirroredStrategy: worker w takes "
        "examples w, w + {n}, and so "
        "on. How many does worker 0 get?",
        "examples", {"count": (50, 101, 130, 250), "n": (3, 4, 6, 7)},
        lambda g: math.ceil(g.count / g.n),
        lambda g: len(range(0, g.count, g.n)),
        "One in n, rounded up, for the first worker.",
        (lambda g: g.count, lambda g: g.count / (g.n + 1)),
    ),
    ExamQuestion(
        "lost_updates", "09",
        "{n} workers each raise one counter {each} times: a worker reads it, adds 1 and writes it back. The counter ends at "
        "{end}. What share of the updates was lost, in per cent?",
        "%", {"n": (3, 4, 5), "each": (100, 200), "end": (210, 260, 344, 410)},
        lambda g: 100 * (1 - g.end / (g.n * g.each)),
        lambda g: 100 * (g.n * g.each - g.end) / sum(g.each for worker in range(g.n)),
        "The workers made n · k updates; the updates missing at the end were lost.",
        (lambda g: 100 * g.end / (g.n * g.each),),
        lambda g: 0.05 < 1 - g.end / (g.n * g.each) < 0.9 and g.end >= g.each,
    ),
    ExamQuestion(
        "sampler_padding", "10",
        "DistributedSampler deals {count} examples to {n} ranks. How many examples are counted twice in an evaluation "
        "of all ranks?",
        "examples", {"count": (50, 101, 125, 1000, 1003), "n": (3, 4, 6, 7, 8)},
        lambda g: -g.count % g.n,
        lambda g: next(more for more in range(g.n) if (g.count + more) % g.n == 0),
        "It pads to a multiple of n.",
        (lambda g: g.count % g.n, lambda g: g.n),
    ),
    ExamQuestion(
        "ddp_batch", "10",
        "A script trained with batch {batch} on one GPU. Under DDP with {n} ranks its DataLoader still says "
        "batch_size={batch}. How many "
        "examples make one update?",
        "examples", {"batch": (32, 64, 100, 128, 256), "n": (2, 4, 8, 16)},
        lambda g: g.batch * g.n,
        lambda g: sum(g.batch for rank in range(g.n)),
        "batch_size is per rank: all ranks together take n times as many.",
        (lambda g: g.batch, lambda g: g.batch / g.n),
    ),
    ExamQuestion(
        "data_parallel_gather", "10",
        "DataParallel on {n} GPUs keeps the model of {mb} MB on GPU 0 and copies it to the others at every step. How "
        "many MB of weights leave "
        "GPU 0 in {steps} steps?",
        "MB", {"n": (2, 4, 8), "mb": (45, 100, 180), "steps": (10, 50, 100)},
        lambda g: g.steps * parallelism.bytes_data_parallel(g.n, g.mb) / 2,  # (n - 1) copies: half of an all-reduce
        lambda g: sum(g.mb for step in range(g.steps) for gpu in range(1, g.n)),
        "A whole copy to each of n − 1 others, every step. (DDP sends none: replicas stay equal.)",
        (lambda g: g.mb * (g.n - 1), lambda g: g.steps * g.n * g.mb, lambda g: g.steps * g.mb if g.n > 2 else 0),
    ),
    ExamQuestion(
        "naive_overlap", "11",
        "Backward takes {t} ms and makes {k} gradients. Each all-reduce costs {a} ms, and all bytes together another {w} ms. How "
        "many ms does the step take if the all-reduces run one by one after backward?",
        "ms", {"t": (60, 100, 150), "k": (8, 16, 32, 64), "a": (2, 5, 8), "w": (20, 40, 80)},
        lambda g: 1e3 * bucketing.naive_s(g.t / 1e3, g.k, g.a / 1e3, g.w / 1e3),
        lambda g: g.t + sum(g.a + g.w / g.k for _ in range(g.k)),
        "T + kA + W.",
        (lambda g: g.t + g.a + g.w, lambda g: g.t + g.k * (g.a + g.w), lambda g: max(g.t, g.k * g.a + g.w)),
    ),
    ExamQuestion(
        "bucket_bytes", "11",
        "DDP fills buckets of {cap} MB, in reverse order, with gradients of {size} MB each; a bucket is closed when "
        "it has {cap} MB or more. "
        "How many buckets do {k} gradients make?",
        "buckets", {"cap": (20, 25, 40), "size": (3, 4, 6, 8, 9), "k": (24, 36, 48, 60)},
        lambda g: math.ceil(g.k / math.ceil(g.cap / g.size)),
        lambda g: _filled(g.k, g.size, g.cap),
        "A bucket takes ⌈cap/size⌉ gradients.",
        (lambda g: g.k, lambda g: math.ceil(g.k / max(1, g.cap // g.size)) if g.cap % g.size else 0),
    ),
    ExamQuestion(
        "accumulation_bytes", "11",
        "{n} ranks accumulate gradients of {mb} MB over {parts} micro-batches, and average them once before the update. How many "
        "MB does a rank send for one update, with a ring?",
        "MB", {"n": (2, 4, 8), "mb": (50, 100, 240), "parts": (2, 4, 8)},
        lambda g: cost.bytes_ring_all_reduce(g.n, g.mb),
        lambda g: 2 * sum(g.mb / g.n for _ in range(g.n - 1)),
        "One all-reduce, whatever the number of micro-batches.",
        (lambda g: g.parts * 2 * (g.n - 1) / g.n * g.mb, lambda g: 2 * (g.n - 1) / g.n * g.mb / g.parts),
    ),
)  # fmt: skip
