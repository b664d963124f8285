"""The alpha-beta formulas against numbers worked out by hand and a slow simulation of every message."""

import heapq
import math
from dataclasses import dataclass

import numpy as np
import pytest

from worldsize.formulas import cost
from worldsize.links import Link

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 16)
POWERS = (1, 2, 4, 8, 16)
SIZE_BYTES = 4_000_000
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


def shifts(n, size):
    """An all-to-all: in round k every rank sends to the one that is k further on."""
    return exchange(n, [[(r, (r + k) % n, size / n) for r in range(n)] for k in range(1, n)])


def halving_and_doubling(n, size):
    """Rabenseifner's: partners half the ranks away first, with half the tensor; then the same rounds backwards."""
    rounds, part, step = [], size / 2, n // 2
    while step:
        rounds.append([(r, r ^ step, part) for r in range(n)])
        part, step = part / 2, step // 2
    return exchange(n, rounds + rounds[::-1])


def up_and_down_a_tree(n, size):
    up, step = [], 1
    while step < n:
        up.append([(r + step, r, size) for r in range(0, n, 2 * step) if r + step < n])
        step *= 2
    down = [[(dst, src, size) for src, dst, _ in pairs] for pairs in reversed(up)]
    return exchange(n, up + down)


EXACT = [
    (cost.parameter_server, server),
    (cost.sharded_parameter_server, sharded),
    (cost.reduce_scatter, lambda n, m: ring(n, m, n - 1)),
    (cost.all_gather, lambda n, m: ring(n, m, n - 1)),
    (cost.ring_all_reduce, lambda n, m: ring(n, m, 2 * (n - 1))),
    (cost.all_to_all, shifts),
]
SENT = [
    (cost.bytes_parameter_server, server),
    (cost.bytes_reduce_scatter, lambda n, m: ring(n, m, n - 1)),
    (cost.bytes_all_gather, lambda n, m: ring(n, m, n - 1)),
    (cost.bytes_ring_all_reduce, lambda n, m: ring(n, m, 2 * (n - 1))),
]


def named(rows):
    return [pytest.param(*row, id=row[0].__name__) for row in rows]


@pytest.mark.parametrize("link", [SLOW, FAR], ids=["slow", "far"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("seconds", "messages"), named(EXACT))
def test_the_formula_is_the_time_of_its_messages(seconds, messages, n, link):
    simulated_s, _ = simulate(messages(n, SIZE_BYTES), link)
    assert seconds(n, SIZE_BYTES, link) == pytest.approx(simulated_s, rel=1e-9)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("sent", "messages"), named(SENT))
def test_the_busiest_rank_sends_what_the_formula_says(sent, messages, n):
    _, by_rank = simulate(messages(n, SIZE_BYTES), SLOW)
    assert sent(n, SIZE_BYTES) == pytest.approx(max(by_rank.values(), default=0))


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
        (cost.broadcast_tree, 8, 3 * (50e-6 + 0.2)),
        (cost.broadcast_tree, 5, 3 * (50e-6 + 0.2)),
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


# Stars and trees


def rooted_star(n, size, way):
    return [Message(*((0, r) if way == "down" else (r, 0)), size) for r in range(1, n)]


def binomial(n, size, way, growing):
    """The edges of a binomial tree; with `growing`, a message holds a block for every rank below it."""
    up = [[(r, r - 2**k, size * (min(2**k, n - r) if growing else 1)) for r in range(2**k, n, 2 ** (k + 1))]
          for k in range(math.ceil(math.log2(n)))]  # fmt: skip
    return exchange(n, up if way == "up" else [[(d, s, m) for s, d, m in pairs] for pairs in reversed(up)])


def then(first, second):
    every = tuple(range(len(first)))
    later = [Message(m.src, m.dst, m.size_bytes, (*(len(first) + i for i in m.after), *every)) for m in second]
    return first + later


ROOTED = [
    (cost.broadcast_star, lambda n, m: rooted_star(n, m, "down"), SIZES),
    (cost.reduce_star, lambda n, m: rooted_star(n, m, "up"), SIZES),
    (cost.gather_star, lambda n, m: rooted_star(n, m, "up"), SIZES),
    (cost.scatter_star, lambda n, m: rooted_star(n, m, "down"), SIZES),
    (cost.all_gather_star, lambda n, m: then(rooted_star(n, m / n, "up"), rooted_star(n, m, "down")), SIZES),
    (cost.broadcast_tree, lambda n, m: binomial(n, m, "down", False), POWERS),
    (cost.reduce_tree, lambda n, m: binomial(n, m, "up", False), POWERS),
    (cost.gather_tree, lambda n, m: binomial(n, m, "up", True), POWERS),
    (cost.scatter_tree, lambda n, m: binomial(n, m, "down", True), POWERS),
    (cost.all_gather_tree, lambda n, m: then(binomial(n, m / n, "up", True), binomial(n, m, "down", False)), POWERS),
]


@pytest.mark.parametrize("link", [SLOW, FAR], ids=["slow", "far"])
@pytest.mark.parametrize(
    ("seconds", "messages", "n"), [pytest.param(*row[:2], n, id=f"{row[0].__name__}-{n}") for row in ROOTED for n in row[2]]
)
def test_a_stars_or_trees_formula_is_the_time_of_its_messages(seconds, messages, n, link):
    assert seconds(n, SIZE_BYTES, link) == pytest.approx(simulate(messages(n, SIZE_BYTES), link)[0], rel=1e-9)


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12])
@pytest.mark.parametrize("link", [SLOW, FAR], ids=["slow", "far"])
@pytest.mark.parametrize(("seconds", "messages", "_"), ROOTED[5:], ids=[row[0].__name__ for row in ROOTED[5:]])
def test_a_rooted_tree_that_is_not_full_takes_at_most_what_its_formula_says(seconds, messages, _, n, link):
    assert simulate(messages(n, SIZE_BYTES), link)[0] <= seconds(n, SIZE_BYTES, link) * (1 + 1e-9)


def test_a_tree_helps_a_broadcast_of_a_large_tensor_and_not_one_of_a_few_bytes():
    assert cost.broadcast_tree(8, SIZE_BYTES, SLOW) < 0.5 * cost.broadcast_star(8, SIZE_BYTES, SLOW)
    assert cost.broadcast_tree(8, 1, FAR) > 2.9 * cost.broadcast_star(8, 1, FAR)


def test_no_tree_brings_a_gather_to_its_root_before_a_star():
    assert all(cost.gather_tree(n, m, link) >= cost.gather_star(n, m, link)
               for n in SIZES for m in (1, 1e3, 1e6) for link in (SLOW, FAR))  # fmt: skip


# Mistakes


@pytest.mark.parametrize("n", [0, -1, 2.5, "4"])
def test_a_world_size_that_is_no_count_is_refused(n):
    with pytest.raises(ValueError, match="world size n is .*; expected a whole number"):
        cost.ring_all_reduce(n, 10, SLOW)


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="size_bytes is -1; expected 0 or more"):
        cost.parameter_server(2, -1, SLOW)


def test_numpy_integers_are_world_sizes_too():
    assert cost.broadcast_tree(np.int64(8), 0, FAR) == pytest.approx(0.03)


@pytest.mark.parametrize(("micro_batches", "times"), [(4, 1.75), (8, 1.375), (32, 1.09375)])
def test_the_bubble_of_four_stages_shrinks_with_micro_batches(micro_batches, times):
    assert cost.bubble(4, micro_batches) == times


def test_the_slowest_stage_paces_a_pipeline():
    assert cost.pipeline([1, 3, 2], 10) == 6 + 9 * 3


@pytest.mark.parametrize(("stages", "micro_batches"), [([], 1), ([1], 0)])
def test_a_pipeline_without_stages_or_micro_batches_is_refused(stages, micro_batches):
    with pytest.raises(ValueError, match="expected 1 stage and 1 micro-batch or more"):
        cost.pipeline(stages, micro_batches)


@pytest.mark.parametrize("link", [SLOW, FAR], ids=["slow", "far"])
@pytest.mark.parametrize("n", POWERS)
@pytest.mark.parametrize(
    ("seconds", "messages"),
    [(cost.rabenseifner_all_reduce, halving_and_doubling), (cost.tree_all_reduce, up_and_down_a_tree)],
)
def test_at_powers_of_two_the_formula_is_the_time_of_its_messages(seconds, messages, n, link):
    simulated_s, _ = simulate(messages(n, SIZE_BYTES), link)
    assert seconds(n, SIZE_BYTES, link) == pytest.approx(simulated_s, rel=1e-9)


@pytest.mark.parametrize("n", [3, 6, 12])
def test_rabenseifners_formula_is_for_powers_of_two_alone(n):
    with pytest.raises(ValueError, match=f"a power of two as its number of ranks, got n = {n}"):
        cost.rabenseifner_all_reduce(n, SIZE_BYTES, SLOW)


@pytest.mark.parametrize("n", SIZES)
def test_on_one_level_two_levels_are_a_ring(n):
    ring_s = cost.ring_all_reduce(n, SIZE_BYTES, SLOW)
    assert cost.two_level_ring_all_reduce(n, 1, SIZE_BYTES, FAR, SLOW) == pytest.approx(ring_s)
    assert cost.two_level_ring_all_reduce(1, n, SIZE_BYTES, SLOW, FAR) == pytest.approx(ring_s)


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 2), (2, 4), (4, 8)])
def test_two_levels_with_equal_links_send_as_many_bytes_as_one_ring_in_fewer_steps(nodes, per_node):
    no_latency = Link(1e9, 0.0)
    flat_s = cost.ring_all_reduce(nodes * per_node, SIZE_BYTES, no_latency)
    assert cost.two_level_ring_all_reduce(nodes, per_node, SIZE_BYTES, no_latency, no_latency) == pytest.approx(flat_s)

    steps = cost.two_level_ring_all_reduce(nodes, per_node, 0, Link(1e9, 1.0), Link(1e9, 1.0))
    assert steps == 2 * (nodes - 1) + 2 * (per_node - 1)


@pytest.mark.parametrize("n", SIZES[1:])
def test_the_bus_bandwidth_of_a_ring_without_latency_is_its_links(n):
    link = Link(20e6, 0.0)
    assert cost.bus_bandwidth(n, SIZE_BYTES, cost.ring_all_reduce(n, SIZE_BYTES, link)) == pytest.approx(20e6)


def test_a_bus_bandwidth_needs_a_time():
    with pytest.raises(ValueError, match="expected a time above 0"):
        cost.bus_bandwidth(4, SIZE_BYTES, 0.0)
