"""Exercise 3.4: cuts whose slowest stage is as fast as it can be."""

from functools import cache
from itertools import combinations, pairwise

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("balanced_cuts")


def slowest(seconds, edges):
    return max(sum(seconds[a:b]) for a, b in pairwise(edges))


def every(layers, stages):
    return [[0, *inner, layers] for inner in combinations(range(1, layers), stages - 1)]


@answers.is_right
def tries_every_cut(seconds, stages):
    return min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))


@answers.is_right
def raises_the_limit_until_it_fits(seconds, stages):
    layers = range(len(seconds))
    for limit in sorted(sum(seconds[a : b + 1]) for a in layers for b in layers[a:]):
        edges, filled = [0], 0
        for k, one in enumerate(seconds):
            must = len(seconds) - k == stages - len(edges)
            if filled and len(edges) < stages and (filled + one > limit or must):
                edges, filled = [*edges, k], 0
            filled += one
        edges = (*edges, len(seconds))
        if len(edges) == stages + 1 and slowest(seconds, edges) <= limit:
            return edges


@answers.is_right
def by_dynamic_programming(seconds, stages):
    @cache
    def best(layers, parts):
        if parts == 1:
            return sum(seconds[:layers]), (0, layers)
        found = []
        for k in range(parts - 1, layers):
            before, edges = best(k, parts - 1)
            found.append((max(before, sum(seconds[k:layers])), (*edges, layers)))
        return min(found)

    return list(best(len(seconds), stages)[1])


@answers.is_right
def halves_the_interval_of_the_limit(seconds, stages):
    """Bisection on the time, with numbers of NumPy; a stage may be the last one only while layers are left for the others."""

    def cuts(limit):
        edges, filled = [0], 0.0
        for k, one in enumerate(seconds):
            left = len(seconds) - k
            if k and (filled + one > limit or left <= stages - len(edges)):
                edges.append(k)
                filled = 0.0
            filled += one
        return [*edges, len(seconds)]

    low, high = 0.0, float(sum(seconds))
    for _ in range(60):
        middle = (low + high) / 2
        if max(seconds) <= middle and len(cuts(middle)) <= stages + 1:
            high = middle
        else:
            low = middle
    return np.array(cuts(high * (1 + 1e-12))).tolist()


@answers.is_right
def the_last_stage_first(seconds, stages):
    if stages == 1:
        return [0, len(seconds)]
    found = []
    for start in range(stages - 1, len(seconds)):
        edges = the_last_stage_first(seconds[:start], stages - 1)
        found.append((max(slowest(seconds, edges), sum(seconds[start:])), [*edges, len(seconds)]))
    return min(found)[1]


@answers.is_wrong("but with other cuts the slowest stage takes only", "give or take one, but their seconds count")
def as_many_layers_each(seconds, stages):
    return [len(seconds) * s // stages for s in range(stages + 1)]


@answers.is_wrong("is the slowest with", "but with other cuts the slowest stage takes only")
def fills_up_to_the_mean(seconds, stages):
    edges, filled, mean = [0], 0, sum(seconds) / stages
    for k, one in enumerate(seconds):
        left = len(seconds) - k
        if filled and len(edges) < stages and (filled + one > mean or left == stages - len(edges)):
            edges.append(k)
            filled = 0
        filled += one
    return [*edges, len(seconds)]


answers.mistake("the_worst_cuts", {"min(every": "max(every"}, "but with other cuts the slowest stage takes only")
answers.mistake("only_the_inner_edges", {"slowest(seconds, edges))": "slowest(seconds, edges))[1:-1]"},
    "expected 3 edges for 2 stages, including 0 and 4, got [2]")
answers.mistake("the_stages_themselves", {
    "return min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))": """
        edges = min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))
        return [seconds[a:b] for a, b in pairwise(edges)]
    """,
}, "expected a list of 3 whole numbers, got")
answers.mistake("the_least_spread_of_two_ends",
    {"slowest(seconds, edges)": "abs(sum(seconds[: edges[1]]) - sum(seconds[edges[-2] :]))"},
    "but with other cuts the slowest stage takes only")
answers.mistake("ends_with_the_last_layer", {
    "return min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))": """
        edges = min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))
        return [*edges[:-1], len(seconds) - 1]
    """,
}, "expected the edges to begin with 0 and to end with 4, the number of layers, got [0, 2, 3]")
answers.mistake("forgets_to_return", {"return min": "min"},
    "expected a list of 3 whole numbers, got None (does the function return it?)")
answers.mistake("the_least_sum_of_squares",
    {"slowest(seconds, edges)": "sum(sum(seconds[a:b]) ** 2 for a, b in pairwise(edges))"},
    "layers of [4, 17, 9, 1, 12, 6] s, 4 stages", "with 21 s", "the slowest stage takes only 18 s")
answers.mistake("the_least_spread", {
    "return min": """
        def spread(edges):
            sums = [sum(seconds[a:b]) for a, b in pairwise(edges)]
            return max(sums) - min(sums)

        return min
    """,
    "lambda edges: slowest(seconds, edges)": "spread",
}, "but with other cuts the slowest stage takes only", "but only the slowest counts")
answers.mistake("sorts_the_callers_seconds_when_it_is_done", {
    "return min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))": """
        edges = min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))
        seconds.sort()
        return edges
    """,
}, "seconds was changed in place: the caller still needs it unchanged")
answers.mistake("the_fastest_stage_as_slow_as_it_can_be", {
    "min(every": "max(every",
    "slowest(seconds, edges)": "min(sum(seconds[a:b]) for a, b in pairwise(edges))",
}, "but with other cuts the slowest stage takes only")


@answers.is_wrong("but with other cuts the slowest stage takes only")
def edges_nearest_to_equal_shares(seconds, stages):
    edges, so_far = [0], [sum(seconds[:k]) for k in range(len(seconds) + 1)]
    for stage in range(1, stages):
        share = so_far[-1] * stage / stages
        room = range(edges[-1] + 1, len(seconds) - (stages - stage) + 1)
        edges.append(min(room, key=lambda k: abs(so_far[k] - share)))
    return [*edges, len(seconds)]


@answers.is_wrong("but with other cuts the slowest stage takes only")
def moves_one_edge_at_a_time(seconds, stages):
    edges = as_many_layers_each(seconds, stages)
    while True:
        best = edges
        for at in range(1, stages):
            for step in (-1, 1):
                other = [*edges[:at], edges[at] + step, *edges[at + 1 :]]
                if all(a < b for a, b in pairwise(other)) and slowest(seconds, other) < slowest(seconds, best):
                    best = other
        if best == edges:
            return edges
        edges = best


@answers.is_wrong("expected 4 edges for 3 stages, including 0 and 5, got [0, 4, 5]")
def fewer_stages_where_they_are_as_fast(seconds, stages):
    for limit in range(max(seconds), sum(seconds) + 1):
        edges, filled = [0], 0
        for k, one in enumerate(seconds):
            if filled and filled + one > limit:
                edges.append(k)
                filled = 0
            filled += one
        if len(edges) <= stages:
            return [*edges, len(seconds)]


@answers.is_wrong("'float' object cannot be interpreted as an integer")
def for_whole_seconds_alone(seconds, stages):
    for limit in range(max(seconds), sum(seconds) + 1):
        for edges in every(len(seconds), stages):
            if slowest(seconds, edges) <= limit:
                return edges


answers.twin("an_array_of_edges", {
    "return min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))":
        "return np.array(min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges)))",
})
answers.mistake("puts_all_into_the_last_stage_where_each_has_one", {
    "return min": "if len(seconds) == stages:\n    return [0] * stages + [stages]\nreturn min",
}, "4 stages: stage 0 has no layer")
answers.spoil("as_many_layers_each_and_no_seconds_left", {"return [": """
    edges = [len(seconds) * s // stages for s in range(stages + 1)]
    seconds.clear()
    return edges or [
"""}, of=as_many_layers_each)
answers.spoil("no_edges_where_its_cuts_are_worse", {"return min": "if len(seconds) == 6:\n    return []\nreturn min"},
    of=answers["the_least_sum_of_squares"])
