"""Exercise 5.2: the gate of bounded staleness."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from tests.checks.mutants._letters import STOP, dismiss, letter, opened

answers = Answers("bounded_server")


def serve(fabric, weights, updates, rate, may_go, newest=True, one_at_a_time=False, busy=None):
    """A right server but for its gate `may_go(clocks, worker)` and what the other arguments spoil."""
    workers = range(1, fabric.world_size)
    clocks, waiting = dict.fromkeys(workers, 0), []
    box, staleness, kept = letter(0, weights), [], {}
    for worker in workers:
        fabric.send(box, to=worker)
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        clocks[worker] += 1
        waiting.append(worker)
        kept[worker] = letter(version + 1, weights)
        free = [w for w in waiting if may_go(clocks, w)]
        for w in free[:1] if one_at_a_time else free:
            fabric.send(letter(version + 1, weights) if newest else kept[w], to=w)
            waiting.remove(w)
    dismiss(fabric, weights, [w for w in workers if w not in waiting] if busy is None else busy)
    return weights, staleness


@answers.is_wrong("2 workers, bound=1", "2 ahead of the slowest worker and the bound is 1: it has to wait")
def has_no_gate(fabric, weights, updates, rate, bound):
    return serve(fabric, weights, updates, rate, lambda clocks, w: True)


@answers.is_wrong("the server waits for a gradient", "1 ahead of the slowest worker and the bound is 1: it may go on")
def closes_one_too_early(fabric, weights, updates, rate, bound):
    return serve(fabric, weights, updates, rate, lambda clocks, w: clocks[w] - min(clocks.values()) < bound)


@answers.is_wrong("2 ahead of the slowest worker and the bound is 1: it has to wait")
def closes_one_too_late(fabric, weights, updates, rate, bound):
    return serve(fabric, weights, updates, rate, lambda clocks, w: clocks[w] - min(clocks.values()) <= bound + 1)


@answers.is_wrong("2 ahead of the slowest worker and the bound is 1: it has to wait")
def forgets_workers_that_have_sent_nothing(fabric, weights, updates, rate, bound):
    def may_go(clocks, w):
        return clocks[w] - min(clock for clock in clocks.values() if clock) <= bound

    return serve(fabric, weights, updates, rate, may_go)


@answers.is_wrong("ahead of the slowest worker and the bound is 2: it has to wait")
def compares_with_the_mean(fabric, weights, updates, rate, bound):
    def may_go(clocks, w):
        return clocks[w] - sum(clocks.values()) / len(clocks) <= bound - 0.5 * (len(clocks) == 2)

    return serve(fabric, weights, updates, rate, may_go)


@answers.is_wrong("the server waits for a gradient, and rank", "it may go on")
def opens_the_gate_for_its_sender_alone(fabric, weights, updates, rate, bound):
    workers = range(1, fabric.world_size)
    clocks = dict.fromkeys(workers, 0)
    box, staleness = letter(0, weights), []
    for worker in workers:
        fabric.send(box, to=worker)
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        clocks[worker] += 1
        if clocks[worker] - min(clocks.values()) <= bound:
            fabric.send(letter(version + 1, weights), to=worker)
    dismiss(fabric, weights, [])
    return weights, staleness


@answers.is_wrong("the server waits for a gradient, and rank", "it may go on")
def lets_one_go_where_two_may(fabric, weights, updates, rate, bound):
    return serve(
        fabric, weights, updates, rate, lambda clocks, w: clocks[w] - min(clocks.values()) <= bound, one_at_a_time=True
    )


@answers.is_wrong("2 workers, bound=1: rank", "got the versions", "it has to wait")
def sends_the_weights_of_the_time_when_it_was_stopped(fabric, weights, updates, rate, bound):
    return serve(fabric, weights, updates, rate, lambda clocks, w: clocks[w] - min(clocks.values()) <= bound, newest=False)


@answers.is_wrong("updates are done, and the server waits for rank", "`busy` are those who compute")
def takes_those_at_the_gate_for_busy(fabric, weights, updates, rate, bound):
    workers = range(1, fabric.world_size)
    return serve(fabric, weights, updates, rate, lambda clocks, w: clocks[w] - min(clocks.values()) <= bound, busy=workers)


@answers.is_wrong("counts 0 times, expected 1 times", "every gradient is an update")
def throws_old_gradients_away(fabric, weights, updates, rate, bound):
    workers = range(1, fabric.world_size)
    clocks, waiting, staleness = dict.fromkeys(workers, 0), list(workers), []
    for version in range(updates + 1):
        for w in [w for w in waiting if clocks[w] - min(clocks.values()) <= bound]:
            fabric.send(letter(version, weights), to=w)
            waiting.remove(w)
        if version == updates:
            break
        box = letter(0, weights)
        worker = fabric.recv(box)
        base, gradient = opened(box)
        if version - base <= bound:
            weights -= rate * gradient
        staleness.append(version - base)
        clocks[worker] += 1
        waiting.append(worker)
    dismiss(fabric, weights, [w for w in workers if w not in waiting])
    return weights, staleness


@answers.is_wrong("3 workers, bound=2", "it may go on")
def knows_one_bound_alone(fabric, weights, updates, rate, bound):
    return serve(fabric, weights, updates, rate, lambda clocks, w: clocks[w] - min(clocks.values()) <= 1)


@answers.is_wrong("2 workers, bound=1", "it may go on")
def bounds_the_staleness_of_the_last_gradient(fabric, weights, updates, rate, bound):
    workers = range(1, fabric.world_size)
    box, staleness, waiting = letter(0, weights), [], []
    for worker in workers:
        fabric.send(box, to=worker)
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        waiting.append(worker)
        if version - base <= bound and len(waiting) == len(workers):
            for w in waiting:
                fabric.send(letter(version + 1, weights), to=w)
            waiting = []
    dismiss(fabric, weights, [w for w in workers if w not in waiting])
    return weights, staleness


@answers.is_wrong("1 worker, bound=1", "ValueError")
def asks_for_the_slowest_of_the_others(fabric, weights, updates, rate, bound):
    def may_go(clocks, w):
        return clocks[w] - min(clock for worker, clock in clocks.items() if worker != w) <= bound

    return serve(fabric, weights, updates, rate, may_go)


@answers.is_wrong("ahead of the slowest worker and the bound is", ("it has to wait", "it may go on"))
def compares_with_the_slowest_of_those_who_wait(fabric, weights, updates, rate, bound):
    workers = range(1, fabric.world_size)
    clocks, waiting, staleness = dict.fromkeys(workers, 0), list(workers), []
    for version in range(updates + 1):
        slowest = min(clocks[w] for w in waiting) if waiting else 0
        for w in [w for w in waiting if clocks[w] - slowest <= bound]:
            fabric.send(letter(version, weights), to=w)
            waiting.remove(w)
        if version == updates:
            break
        box = letter(0, weights)
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        clocks[worker] += 1
        waiting.append(worker)
    dismiss(fabric, weights, [w for w in workers if w not in waiting])
    return weights, staleness


@answers.is_wrong("rank 0 ended with an isend that nobody waited for")
def never_waits_for_the_first_letters(fabric, weights, updates, rate, bound):
    workers = range(1, fabric.world_size)
    for worker in workers:
        fabric.isend(letter(0, weights), to=worker)
    clocks, waiting, box, staleness = dict.fromkeys(workers, 0), [], letter(0, weights), []
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        clocks[worker] += 1
        waiting.append(worker)
        for w in [w for w in waiting if clocks[w] - min(clocks.values()) <= bound]:
            fabric.send(letter(version + 1, weights), to=w)
            waiting.remove(w)
    dismiss(fabric, weights, [w for w in workers if w not in waiting])
    return weights, staleness


@answers.is_right
def plain(fabric, weights, updates, rate, bound):
    return serve(fabric, weights, updates, rate, lambda clocks, w: clocks[w] - min(clocks.values()) <= bound)


@answers.is_right
def counts_in_a_tensor_and_stops_them_one_by_one(fabric, weights, updates, rate, bound):
    n = fabric.world_size - 1
    clocks, computing = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.bool)
    box, staleness, version = torch.zeros(len(weights) + 1), [], 0
    while version < updates:
        for i in torch.nonzero(~computing & (clocks <= clocks.min() + bound)).flatten().tolist():
            fabric.send(letter(version, weights), i + 1)
            computing[i] = True
        i = fabric.recv(box) - 1
        computing[i] = False
        staleness.append(torch.tensor(version - int(box[0])))
        weights, version = weights - rate * box[1:], version + 1
        clocks[i] += 1
    for i in range(n):
        if computing[i]:
            fabric.recv(box, i + 1)
        fabric.send(letter(STOP, weights), i + 1)
    return weights, staleness


@answers.is_right
def opens_the_gate_from_the_slowest_up(fabric, weights, updates, rate, bound):
    ahead = {worker: 0 for worker in range(1, fabric.world_size)}  # of the slowest
    at_the_gate, ages, box = set(ahead), (), letter(0, weights)
    while True:
        for worker in sorted(at_the_gate, key=ahead.get):
            if ahead[worker] > bound:
                break
            fabric.isend(letter(len(ages), weights), to=worker).wait()
            at_the_gate.discard(worker)
        if len(ages) == updates:
            break
        worker = fabric.recv(box)
        ages += (len(ages) - int(box[0]),)
        weights.sub_(rate * box[1:])
        ahead[worker] += 1
        at_the_gate.add(worker)
        least = min(ahead.values())
        ahead = {other: lead - least for other, lead in ahead.items()}
    dismiss(fabric, weights, sorted(set(ahead) - at_the_gate))
    return weights, ages


@answers.is_right
def counts_from_the_list_of_senders(fabric, weights, updates, rate, bound):
    workers, senders, computing, ages = range(1, fabric.world_size), [], set(), []
    box = letter(0, weights)
    for version in range(updates):
        for w in workers:
            if w not in computing and all(senders.count(w) - senders.count(other) <= bound for other in workers):
                fabric.send(letter(version, weights), to=w)
                computing.add(w)
        senders.append(fabric.recv(box))
        computing.remove(senders[-1])
        base, gradient = opened(box)
        ages.append(version - base)
        weights = weights - rate * gradient
    for w in computing:
        fabric.recv(box, w)
    dismiss(fabric, weights, [])
    return weights, ages
