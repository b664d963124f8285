"""Exam questions on messages: labs 00, 02, 05 and 06. Sizes are in decimal units; links follow the alpha-beta model."""

import math

from worldsize.formulas import cost, staleness
from worldsize.grade.exam.question import ExamQuestion, Given
from worldsize.links import Link

RANKS = (3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
POWERS = (4, 8, 16, 32, 64)
MB = (6, 10, 16, 24, 40, 64, 100, 250, 400)
LATENCIES_US = (5, 10, 20, 50, 100, 200)
GB_A_SECOND = (1, 2, 5, 10, 12.5, 25, 50)
_LINK = {"us": LATENCIES_US, "gbs": GB_A_SECOND}
_SAYS_LINK = "Each message has a latency of {us} µs, and the link has a bandwidth of {gbs} GB/s."


def _link(g: Given) -> Link:
    return Link(g.gbs * 1e9, g.us * 1e-6)


def _one(g: Given, size_bytes: float) -> float:
    return g.us * 1e-6 + size_bytes / (g.gbs * 1e9)


def _levels(n: int) -> int:
    levels = 0
    while 2**levels < n:
        levels += 1
    return levels


QUESTIONS = (
    ExamQuestion(
        "pass_right", "00",
        "{n} ranks stand in a ring. Each passes a tensor of {mb} MB to its right neighbour, once. How many MB are sent in total?",
        "MB", {"n": RANKS, "mb": MB},
        lambda g: g.n * g.mb,
        lambda g: sum(g.mb for _ in range(g.n)),
        "Every rank sends one tensor, including the last: n messages.",
        (lambda g: (g.n - 1) * g.mb, lambda g: g.mb, lambda g: g.n * (g.n - 1) * g.mb),
    ),
    ExamQuestion(
        "all_the_way_round", "00",
        "{n} ranks stand in a ring, and each rank's tensor of {mb} MB is passed on until every rank has seen all tensors. How "
        "many MB does one rank send?",
        "MB", {"n": RANKS, "mb": MB},
        lambda g: cost.bytes_all_gather(g.n, g.n * g.mb),
        lambda g: sum(g.mb for _ in range(g.n - 1)),
        "A tensor must reach n − 1 other ranks, so each rank passes on n − 1 tensors.",
        (lambda g: g.n * g.mb, lambda g: g.mb),
    ),
    ExamQuestion(
        "one_message", "02", _SAYS_LINK + " How many milliseconds does a message of {mb} MB take?",
        "ms", {**_LINK, "mb": MB},
        lambda g: 1e3 * cost.message(g.mb * 1e6, _link(g)),
        lambda g: 1e3 * _one(g, g.mb * 1e6),
        "α + m/B: the latency once, plus the bytes over the bandwidth.",
        (lambda g: 8e3 * g.mb * 1e6 / (g.gbs * 1e9),),  # bits for bytes, and no latency
    ),
    ExamQuestion(
        "half_latency", "02",
        _SAYS_LINK + " At what message size, in kB, is half of the time latency?",
        "kB", _LINK,
        lambda g: g.us * 1e-6 * g.gbs * 1e9 / 1e3,
        lambda g: next(size for size in (g.us * g.gbs,) if math.isclose(_one(g, size * 1e3), 2 * g.us * 1e-6)),
        "Both parts are equal where m = αB.",
        (lambda g: g.us * g.gbs / 2, lambda g: 2 * g.us * g.gbs, lambda g: g.us * g.gbs / 8),
    ),
    ExamQuestion(
        "broadcast_tree_rounds", "02",
        "Rank 0 has a tensor that {n} ranks need. In each round, every rank that has it may send it to one other rank. What is "
        "the smallest number of rounds for the broadcast?",
        "rounds", {"n": (5, 9, 12, 17, 24, 33, 48, 65, 100)},
        lambda g: round(cost.broadcast_tree(g.n, 0, Link(1.0, 1.0))),  # 0 bytes and 1 s of latency: seconds are rounds
        lambda g: _levels(g.n),
        "The number of ranks with the tensor doubles in every round: ⌈log₂ n⌉.",
        (lambda g: g.n - 1, lambda g: _levels(g.n) - 1, lambda g: g.n / 2),
    ),
    ExamQuestion(
        "broadcast_star_seconds", "02",
        _SAYS_LINK + " Rank 0 sends {mb} MB to each of the other {others} ranks, one after the other through its own card. After "
                     "how many milliseconds does the last rank have its data?",
        "ms", {**_LINK, "mb": MB, "others": (3, 7, 11, 15, 31)},
        lambda g: 1e3 * cost.broadcast_star(g.others + 1, g.mb * 1e6, _link(g)),
        lambda g: 1e3 * (g.us * 1e-6 + sum(g.mb * 1e6 / (g.gbs * 1e9) for _ in range(g.others))),
        "Everything leaves through one card: α + (n − 1) m/B; the latencies of messages in flight overlap.",
        (lambda g: 1e3 * _one(g, g.mb * 1e6), lambda g: 1e3 * _one(g, (g.others + 1) * g.mb * 1e6)),
        lambda g: g.others > 1,
    ),
    ExamQuestion(
        "all_to_all_bytes", "02",
        "{n} ranks hold {mb} MB each, cut into {n} equal blocks. In an all-to-all, block j of every rank goes to rank j. How "
        "many MB does a rank send?",
        "MB", {"n": RANKS, "mb": MB},
        lambda g: cost.bytes_all_gather(g.n, g.mb),
        lambda g: sum(g.mb / g.n for j in range(g.n) if j != 0),
        "A rank keeps its own block and sends the rest: (n − 1)/n of its data.",
        (lambda g: g.mb, lambda g: g.mb / g.n, lambda g: (g.n - 1) * g.mb),
        lambda g: g.n <= 16,
    ),
    ExamQuestion(
        "staleness_mean", "05",
        "A parameter server applies each gradient as it arrives. {n} workers compute gradients without a break. How many updates "
        "old, on average, is a gradient when it is applied?",
        "updates", {"n": (4, 6, 8, 12, 16, 32)},
        lambda g: staleness.mean_staleness(g.n),
        lambda g: sum(1 for worker in range(g.n) if worker != 0),
        "While one worker computes, each other worker's gradient is applied once on average: N − 1.",
        (lambda g: g.n, lambda g: g.n / 2, lambda g: 1),
    ),
    ExamQuestion(
        "staleness_bound", "05",
        "{n} workers train behind a gate: a worker starts no gradient while it is more than {s} gradients ahead of the slowest. "
        "What is the largest possible age of a gradient, in updates?",
        "updates", {"n": (3, 4, 5, 8), "s": (1, 2, 3, 4)},
        lambda g: staleness.most_staleness(g.n, g.s),
        lambda g: sum(g.s + g.s + 1 for worker in range(g.n) if worker != 0),
        "Meanwhile, each other worker can go from s behind to s + 1 ahead: (N − 1)(2s + 1).",
        (lambda g: g.s, lambda g: (g.n - 1) * g.s, lambda g: (g.n - 1) * (g.s + 1)),
    ),
    ExamQuestion(
        "sync_slow_worker", "05",
        "{n} synchronous workers each take {ms} ms for a gradient, but one takes {slow} times as long. How many gradients a "
        "second are applied?",
        "gradients a second", {"n": (4, 8, 16, 32), "ms": (20, 50, 80, 125), "slow": (1.5, 2, 3, 4)},
        lambda g: staleness.sync_gradients_per_s(g.n, g.ms / 1e3, g.slow),
        lambda g: g.n / max([g.ms / 1e3] * (g.n - 1) + [g.slow * g.ms / 1e3]),
        "Every step waits for the slow worker: N/(k t).",
        (lambda g: g.n / (g.ms / 1e3), lambda g: (g.n - 1 + 1 / g.slow) / (g.ms / 1e3)),
    ),
    ExamQuestion(
        "async_slow_worker", "05",
        "{n} asynchronous workers each take {ms} ms for a gradient, but one takes {slow} times as long. How many gradients a "
        "second are applied?",
        "gradients a second", {"n": (4, 8, 16), "ms": (20, 50, 80, 125), "slow": (1.5, 2, 3, 4)},
        lambda g: staleness.async_gradients_per_s(g.n, g.ms / 1e3, g.slow),
        lambda g: sum(1e3 / g.ms for _ in range(g.n - 1)) + 1e3 / (g.slow * g.ms),
        "No worker waits: N − 1 workers run at full speed, and one at 1/k of it.",
        (lambda g: g.n / (g.slow * g.ms / 1e3),),
        lambda g: g.n / (g.n - 1 + 1 / g.slow) > 1.06,
    ),
    ExamQuestion(
        "server_bytes", "06",
        "{n} ranks add up a tensor of {mb} MB; rank 0 is the server and has its own tensor. How many MB does rank 0 receive?",
        "MB", {"n": RANKS, "mb": MB},
        lambda g: cost.bytes_parameter_server(g.n, g.mb),
        lambda g: sum(g.mb for rank in range(1, g.n)),
        "A whole tensor from each of the other n − 1 ranks.",
        (lambda g: g.n * g.mb, lambda g: 2 * (g.n - 1) * g.mb, lambda g: 2 * (g.n - 1) / g.n * g.mb),
    ),
    ExamQuestion(
        "ring_bytes", "06",
        "{n} ranks add up a tensor of {mb} MB with a ring all-reduce. How many MB does each rank send?",
        "MB", {"n": RANKS, "mb": MB},
        lambda g: cost.bytes_ring_all_reduce(g.n, g.mb),
        lambda g: sum(g.mb / g.n for half in range(2) for _ in range(g.n - 1)),
        "n − 1 chunks of m/n in each half: 2 (n − 1)/n · m.",
        (lambda g: (g.n - 1) * g.mb, lambda g: (g.n - 1) / g.n * g.mb, lambda g: g.mb),
    ),
    ExamQuestion(
        "ring_messages", "06",
        "{n} ranks run a ring all-reduce. How many messages are sent in total?",
        "messages", {"n": RANKS},
        lambda g: g.n * round(cost.ring_all_reduce(g.n, 0, Link(1.0, 1.0))),
        lambda g: sum(1 for half in range(2) for step in range(g.n - 1) for rank in range(g.n)),
        "Every rank sends one message in each of 2 (n − 1) steps.",
        (lambda g: 2 * (g.n - 1), lambda g: g.n * (g.n - 1), lambda g: 2 * g.n * g.n),
        lambda g: g.n < 16,
    ),
    ExamQuestion(
        "ring_seconds", "06",
        "{n} ranks add up {mb} MB with a ring all-reduce. " + _SAYS_LINK + " How many milliseconds does the all-reduce take?",
        "ms", {"n": RANKS, "mb": MB, **_LINK},
        lambda g: 1e3 * cost.ring_all_reduce(g.n, g.mb * 1e6, _link(g)),
        lambda g: 1e3 * sum(_one(g, g.mb * 1e6 / g.n) for _ in range(2 * (g.n - 1))),
        "2 (n − 1) steps of one chunk: 2 (n − 1)(α + m/(nB)).",
        (lambda g: 1e3 * 2 * (g.n - 1) * _one(g, g.mb * 1e6), lambda g: 1e3 * (g.n - 1) * _one(g, g.mb * 1e6 / g.n)),
    ),
    ExamQuestion(
        "tree_or_ring", "06",
        "{n} ranks add up a tensor so small that only latency counts, {us} µs per message. How many microseconds does a reduce "
        "up a tree and a broadcast down save over a ring all-reduce?",
        "µs", {"n": (8, 16, 32, 64, 128), "us": LATENCIES_US},
        lambda g: g.us * (cost.ring_all_reduce(g.n, 0, Link(1.0, 1.0)) - cost.tree_all_reduce(g.n, 0, Link(1.0, 1.0))),
        lambda g: sum(g.us for _ in range(2 * (g.n - 1))) - sum(g.us for _ in range(2 * _levels(g.n))),
        "2 (n − 1) latencies versus 2 log₂ n.",
        (lambda g: 2 * (g.n - 1) * g.us, lambda g: (g.n - 1 - _levels(g.n)) * g.us),
        lambda g: g.n < 100,
    ),
    ExamQuestion(
        "sharded_server", "06",
        "A parameter server for {mb} MB is spread over all {n} ranks, each serving a part. How many MB does each rank send in an "
        "all-reduce?",
        "MB", {"n": RANKS, "mb": MB},
        lambda g: cost.bytes_reduce_scatter(g.n, g.mb) + cost.bytes_all_gather(g.n, g.mb),
        lambda g: sum(g.mb / g.n for other in range(1, g.n)) * 2,
        "Each rank sends a part to each other server, then its own finished part to each other worker: 2 (n − 1)/n · m, as in a "
        "ring.",
        (lambda g: (g.n - 1) * g.mb, lambda g: (g.n - 1) / g.n * g.mb, lambda g: 2 * (g.n - 1) * g.mb),
    ),
)  # fmt: skip
