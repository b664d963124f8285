"""Exercise 3.4: cuts whose slowest stage is as fast as it can be."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise

from tests.checks.mutants import Answers

answers = Answers("balanced_cuts")


def slowest(seconds, edges):
    return max(sum(seconds[a:b]) for a, b in pairwise(edges))


def every(layers, stages):
    return [[0, *inner, layers] for inner in combinations(range(1, layers), stages - 1)]


@answers.is_wrong("there are cuts whose slowest stage takes less", "Every stage has as many layers: it is their seconds")
def as_many_layers_each(seconds, stages):
    return [len(seconds) * s // stages for s in range(stages + 1)]


@answers.is_wrong("is the slowest with", "there are cuts whose slowest stage takes less")
def fills_up_to_the_mean(seconds, stages):
    edges, filled, mean = [0], 0, sum(seconds) / stages
    for k, one in enumerate(seconds):
        left = len(seconds) - k
        if filled and len(edges) < stages and (filled + one > mean or left == stages - len(edges)):
            edges.append(k)
            filled = 0
        filled += one
    return [*edges, len(seconds)]


@answers.is_wrong("there are cuts whose slowest stage takes less")
def the_worst_cuts(seconds, stages):
    return max(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))


@answers.is_wrong("expected 3 edges for 2 stages, 0 and 4 among them, got [2]")
def only_the_inner_edges(seconds, stages):
    return min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))[1:-1]


@answers.is_wrong("expected a list of 3 whole numbers, got")
def the_stages_themselves(seconds, stages):
    edges = min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))
    return [seconds[a:b] for a, b in pairwise(edges)]


@answers.is_wrong("there are cuts whose slowest stage takes less")
def the_least_spread_of_two_ends(seconds, stages):
    return min(every(len(seconds), stages), key=lambda e: abs(sum(seconds[: e[1]]) - sum(seconds[e[-2] :])))


@answers.is_wrong("expected the edges to begin with 0 and to end with 4, the number of layers, got [0, 2, 3]")
def ends_with_the_last_layer(seconds, stages):
    edges = min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))
    return [*edges[:-1], len(seconds) - 1]


@answers.is_wrong("expected a list of 3 whole numbers, got None (does the function return it?)")
def forgets_to_return(seconds, stages):
    every(len(seconds), stages)


@answers.is_right
def tries_every_cut(seconds, stages):
    return min(every(len(seconds), stages), key=lambda edges: slowest(seconds, edges))


@answers.is_right
def raises_the_limit_until_it_fits(seconds, stages):
    for limit in range(max(seconds), sum(seconds) + 1):
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
