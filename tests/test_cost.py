"""The alpha-beta formulas against numbers worked out by hand and a slow simulation of every message."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import pytest

from worldsize import cost

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 16)
POWERS = (1, 2, 4, 8, 16)
SIZE_BYTES = 4_000_000


@dataclass(frozen=True)
class Link:
    bandwidth_bytes_per_s: float
    latency_s: float


SLOW = Link(20e6, 50e-6)
FAR = Link(1e9, 10e-3)


# The reference: messages as a list, each with the messages that it waits for, moved by an event loop.


@dataclass(frozen=True)
class Message:
    src: int
    dst: int
    size_bytes: float
    after: tuple[int, ...] = ()


def simulate(messages: list[Message], link: Link) -> tuple[float, dict[int, float]]:
    """(seconds until the last arrival, bytes sent by rank). One egress and one ingress clock a rank."""
    egress, ingress, sent, arrival = {}, {}, {}, {}
    waiting = {index: set(m.after) for index, m in enumerate(messages)}
    ready = [(0.0, index) for index, before in waiting.items() if not before]
    leaving = []
    heapq.heapify(ready)
    while ready or leaving:
        if ready and (not leaving or ready[0] <= leaving[0]):
            now, index = heapq.heappop(ready)
            m = messages[index]
            start = max(now, egress.get(m.src, 0.0))
            egress[m.src] = start + m.size_bytes / link.bandwidth_bytes_per_s
            sent[m.src] = sent.get(m.src, 0) + m.size_bytes
            heapq.heappush(leaving, (start + link.latency_s, index))
            continue
        first_byte, index = heapq.heappop(leaving)
        m = messages[index]
        arrival[index] = max(first_byte, ingress.get(m.dst, 0.0)) + m.size_bytes / link.bandwidth_bytes_per_s
        ingress[m.dst] = arrival[index]
        for other, before in waiting.items():
            if index in before:
                before.remove(index)
                if not before:
                    heapq.heappush(ready, (max(arrival[k] for k in messages[other].after), other))
    assert len(arrival) == len(messages)
    return max(arrival.values(), default=0.0), sent


def server(n, size):
    up = [Message(r, 0, size) for r in range(1, n)]
    return up + [Message(0, r, size, tuple(range(n - 1))) for r in range(1, n)]


def sharded(n, size):
    up = [Message(r, (r + k) % n, size / n) for k in range(1, n) for r in range(n)]
    into = {s: tuple(i for i, m in enumerate(up) if m.dst == s) for s in range(n)}
    return up + [Message(s, (s + k) % n, size / n, into[s]) for k in range(1, n) for s in range(n)]


def ring(n, size, steps):
    return [
        Message(r, (r + 1) % n, size / n, ((step - 1) * n + (r - 1) % n,) if step else ())
        for step in range(steps)
        for r in range(n)
    ]


def exchange(n, rounds):
    """Messages of (src, dst, size) by round; one starts when both its ranks have got all of earlier rounds."""
    messages, got = [], {r: () for r in range(n)}
    for pairs in rounds:
        arriving = [(dst, len(messages) + k) for k, (_, dst, _) in enumerate(pairs)]
        messages += [Message(src, dst, size, got[src] + got[dst]) for src, dst, size in pairs]
        for dst, index in arriving:
            got[dst] = (*got[dst], index)
    return messages


def tree(n, size):
    up = [[(r, r - 2**k, size) for r in range(2**k, n, 2 ** (k + 1))] for k in range(math.ceil(math.log2(n)))]
    return exchange(n, [*up, *([(dst, src, size) for src, dst, size in pairs] for pairs in reversed(up))])


def halving_doubling(n, size):
    inner = 2 ** int(math.log2(n))
    fold = [(r, r - inner, size) for r in range(inner, n)]
    down = [[(r, r ^ 2**k, size / 2 ** (k + 1)) for r in range(inner)] for k in range(int(math.log2(inner)))]
    unfold = [(dst, src, size) for src, dst, size in fold]
    return exchange(n, [fold, *down, *reversed(down), unfold])


EXACT = [
    (cost.parameter_server, cost.bytes_parameter_server, server, SIZES),
    (cost.sharded_parameter_server, cost.bytes_sharded_parameter_server, sharded, SIZES),
    (cost.reduce_scatter, cost.bytes_reduce_scatter, lambda n, m: ring(n, m, n - 1), SIZES),
    (cost.all_gather, cost.bytes_all_gather, lambda n, m: ring(n, m, n - 1), SIZES),
    (cost.ring_all_reduce, cost.bytes_ring_all_reduce, lambda n, m: ring(n, m, 2 * (n - 1)), SIZES),
    (cost.tree_all_reduce, cost.bytes_tree_all_reduce, tree, POWERS),
    (cost.halving_doubling_all_reduce, cost.bytes_halving_doubling_all_reduce, halving_doubling, SIZES),
]
CASES = [pytest.param(*case[:3], n, id=f"{case[0].__name__}-{n}") for case in EXACT for n in case[3]]


@pytest.mark.parametrize("link", [SLOW, FAR], ids=["slow", "far"])
@pytest.mark.parametrize(("seconds", "sent", "messages", "n"), CASES)
def test_the_formula_is_the_time_of_its_messages(seconds, sent, messages, n, link):
    simulated_s, _ = simulate(messages(n, SIZE_BYTES), link)
    assert seconds(n, SIZE_BYTES, link) == pytest.approx(simulated_s, rel=1e-9)


@pytest.mark.parametrize(("seconds", "sent", "messages", "n"), CASES)
def test_the_busiest_rank_sends_what_the_formula_says(seconds, sent, messages, n):
    _, by_rank = simulate(messages(n, SIZE_BYTES), SLOW)
    assert sent(n, SIZE_BYTES) == pytest.approx(max(by_rank.values(), default=0))


@pytest.mark.parametrize("n", [3, 5, 6, 7])
@pytest.mark.parametrize("link", [SLOW, FAR], ids=["slow", "far"])
def test_a_tree_that_is_not_full_takes_at_most_what_the_formula_says(n, link):
    assert simulate(tree(n, SIZE_BYTES), link)[0] <= cost.tree_all_reduce(n, SIZE_BYTES, link)


def test_shards_that_all_start_with_server_0_queue_there():
    up = [Message(r, s, SIZE_BYTES / 4) for s in range(4) for r in range(4) if r != s]
    assert simulate(up, SLOW)[0] > 1.3 * cost.sharded_parameter_server(4, SIZE_BYTES, SLOW) / 2


# Numbers worked out by hand: 4 MB at 20 MB/s is 0.2 s; 50 us a message.


@pytest.mark.parametrize(
    ("formula", "n", "expected_s"),
    [
        (cost.parameter_server, 8, 2 * (50e-6 + 7 * 0.2)),
        (cost.sharded_parameter_server, 8, 2 * (50e-6 + 7 * 0.025)),
        (cost.reduce_scatter, 4, 3 * (50e-6 + 0.05)),
        (cost.all_gather, 4, 3 * (50e-6 + 0.05)),
        (cost.ring_all_reduce, 8, 14 * (50e-6 + 0.025)),
        (cost.tree_all_reduce, 8, 6 * (50e-6 + 0.2)),
        (cost.tree_all_reduce, 5, 6 * (50e-6 + 0.2)),
        (cost.halving_doubling_all_reduce, 8, 6 * 50e-6 + 2 * 0.175),
        (cost.halving_doubling_all_reduce, 3, 4 * 50e-6 + 0.2 + 2 * 0.2),
    ],
)
def test_four_megabytes_over_a_slow_link_take(formula, n, expected_s):
    assert formula(n, SIZE_BYTES, SLOW) == pytest.approx(expected_s)


def test_one_message_takes_alpha_plus_size_over_bandwidth():
    assert cost.message(SIZE_BYTES, SLOW) == pytest.approx(0.20005)


def test_sixteen_mebibytes_over_a_gigabit_link_take_236_ms_by_ring_and_1879_ms_by_server():
    link = Link(125e6, 50e-6)
    ms = [round(1e3 * f(8, 2**24, link)) for f in (cost.ring_all_reduce, cost.parameter_server)]
    assert ms == [236, 1879]


def test_the_ring_sends_the_least_that_is_possible():
    assert cost.bytes_ring_all_reduce(8, 8) == 14


@pytest.mark.parametrize("n", [4, 8])
def test_small_messages_over_a_far_link_reverse_the_order(n):
    far = Link(125e6, 1e-3)
    assert cost.parameter_server(n, 1000, far) < cost.ring_all_reduce(n, 1000, far)
    assert cost.parameter_server(n, 10**8, far) > cost.ring_all_reduce(n, 10**8, far)


@pytest.mark.parametrize("formula", [case[0] for case in EXACT])
def test_a_world_of_one_costs_nothing(formula):
    assert formula(1, SIZE_BYTES, FAR) == 0


# The fit


def test_exact_measurements_give_alpha_and_beta_back():
    sizes = [256, 4096, 10**6, 10**8]
    found = cost.fit(sizes, [cost.message(size, SLOW) for size in sizes])
    assert (found.alpha_s, found.bandwidth_bytes_per_s) == pytest.approx((50e-6, 20e6))
    assert found.relative_errors == pytest.approx((0, 0, 0, 0), abs=1e-9)


def test_noisy_measurements_give_the_line_that_scipy_finds():
    from scipy.optimize import nnls

    rng = np.random.default_rng(3)
    sizes = np.geomspace(100, 1e8, 25)
    times = (50e-6 + sizes / 20e6) * rng.uniform(0.7, 1.3, 25)
    found = cost.fit(sizes, times)
    scale = np.array([1e-4, 1e-7])
    reference = nnls(np.stack([1 / times, sizes / times], axis=1) * scale, np.ones(25))[0] * scale
    assert (found.alpha_s, found.beta_s_per_byte) == pytest.approx(tuple(reference), rel=1e-6)


def test_small_messages_count_as_much_as_large_ones():
    sizes = [100, 200, 10**8]
    found = cost.fit(sizes, [1e-3, 1e-3, 6.0])
    assert abs(found.relative_errors[0]) < 0.01


def test_alpha_is_never_below_zero():
    found = cost.fit([1000, 2000, 4000], [1e-3, 3e-3, 7e-3])
    assert found.alpha_s == 0 and found.beta_s_per_byte > 0


def test_beta_is_never_below_zero():
    found = cost.fit([1000, 2000, 4000], [3e-3, 2e-3, 1e-3])
    assert found.beta_s_per_byte == 0 and found.bandwidth_bytes_per_s == math.inf


def test_the_residuals_are_measured_minus_predicted():
    sizes, times = [1000, 2000, 4000], [1e-3, 3e-3, 4e-3]
    found = cost.fit(sizes, times)
    assert [found.predict(m) + r for m, r in zip(sizes, found.residuals_s, strict=True)] == pytest.approx(times)


@pytest.mark.parametrize(
    ("sizes", "seconds", "words"),
    [
        ([1, 2], [1.0], "one time for each size, got 2 sizes and 1 times"),
        ([5, 5], [1.0, 2.0], "at least two different sizes, got 1"),
        ([], [], "at least two different sizes, got 0"),
        ([1, 2], [0.0, 1.0], "times above 0"),
        ([1, 2], [1.0, math.nan], "all finite"),
        ([-1, 2], [1.0, 1.0], "sizes of 0 or more"),
    ],
)
def test_samples_that_cannot_be_fitted_are_refused(sizes, seconds, words):
    with pytest.raises(ValueError, match=words):
        cost.fit(sizes, seconds)


@pytest.mark.parametrize("n", [0, -1, 2.5, "4"])
def test_a_world_size_that_is_no_count_is_refused(n):
    with pytest.raises(ValueError, match="world size n is .*; expected a whole number"):
        cost.ring_all_reduce(n, 10, SLOW)


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="size_bytes is -1; expected 0 or more"):
        cost.parameter_server(2, -1, SLOW)


def test_numpy_integers_are_world_sizes_too():
    assert cost.tree_all_reduce(np.int64(8), 0, FAR) == pytest.approx(0.06)
