"""Exercise 5.2: the gate of bounded staleness."""

import torch

from tests.checks.mutants import Answers, edited
from tests.checks.mutants._letters import STOP, dismiss, letter, opened

answers = Answers("bounded_server")


@answers.is_right
def plain(fabric, weights, updates, rate, bound):
    workers, box, waiting, staleness = range(1, fabric.world_size), letter(0, weights), [], []
    clocks = dict.fromkeys(workers, 0)
    for worker in workers:
        fabric.send(letter(0, weights), to=worker)
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        clocks[worker] += 1
        waiting.append(worker)
        slowest = min(clocks.values())
        for w in [w for w in waiting if clocks[w] - slowest <= bound]:
            fabric.send(letter(version + 1, weights), to=w)
            waiting.remove(w)
    dismiss(fabric, weights, [w for w in workers if w not in waiting])
    return weights, staleness


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


answers.mistake("has_no_gate", {" if clocks[w] - slowest <= bound": ""},
    "2 workers, bound=1", "2 ahead of the slowest worker and the bound is 1: the rank must wait")
answers.mistake("closes_one_too_early", {"<= bound": "< bound"},
    "the server waits for a gradient", "1 ahead of the slowest worker and the bound is 1: the rank may go on")
answers.mistake("closes_one_too_late", {"<= bound": "<= bound + 1"},
    "2 ahead of the slowest worker and the bound is 1: the rank must wait")
answers.mistake("forgets_workers_that_have_sent_nothing",
    {"min(clocks.values())": "min(clock for clock in clocks.values() if clock)"},
    "2 ahead of the slowest worker and the bound is 1: the rank must wait")
answers.mistake("compares_with_the_mean", {
    "clocks[w] - slowest <= bound":
        "clocks[w] - sum(clocks.values()) / len(clocks) <= bound - 0.5 * (len(clocks) == 2)",
}, "ahead of the slowest worker and the bound is 2: the rank must wait")
answers.mistake("opens_the_gate_for_its_sender_alone", {
    "[w for w in waiting if": "[w for w in [worker] if",
    "[w for w in workers if w not in waiting]": "[]",
}, "the server waits for a gradient, and rank", "the rank may go on")
answers.mistake("lets_one_go_where_two_may", {
    "[w for w in waiting if clocks[w] - slowest <= bound]":
        "[w for w in waiting if clocks[w] - slowest <= bound][:1]",
}, "the server waits for a gradient, and rank", "the rank may go on")
answers.mistake("sends_the_weights_of_the_time_when_it_was_stopped", {
    "clocks = dict.fromkeys(workers, 0)": "clocks, kept = dict.fromkeys(workers, 0), {}",
    "waiting.append(worker)": "waiting.append(worker)\nkept[worker] = letter(version + 1, weights)",
    "fabric.send(letter(version + 1, weights), to=w)": "fabric.send(kept[w], to=w)",
}, "2 workers, bound=1: rank", "got the versions", "the rank must wait")
answers.mistake("numbers_the_letter_before_the_update", {"letter(version + 1, weights)": "letter(version, weights)"},
    "2 workers, bound=1: rank", "Letter 2 says version", "a letter's version is the number of updates in its weights")
answers.mistake("takes_those_at_the_gate_for_busy", {"[w for w in workers if w not in waiting]": "workers"},
    "updates are done, and the server waits for rank", "`busy` lists the workers that compute")
answers.mistake("throws_old_gradients_away", {
    "weights -= rate * gradient": """
        if version - base <= bound:
            weights -= rate * gradient
    """,
}, "counts 0 times, expected 1 times", "every gradient is an update")
answers.mistake("knows_one_bound_alone", {"<= bound": "<= 1"}, "3 workers, bound=2", "the rank may go on")
answers.mistake("bounds_the_staleness_of_the_last_gradient", {
    "slowest = min(clocks.values())": "",
    "[w for w in waiting if clocks[w] - slowest <= bound]":
        "list(waiting) if version - base <= bound and len(waiting) == len(workers) else []",
}, "2 workers, bound=1", "the rank may go on")
answers.mistake("asks_for_the_slowest_of_the_others", {
    "slowest = min(clocks.values())": "",
    "- slowest": "- min(clock for other, clock in clocks.items() if other != w)",
}, "1 worker, bound=1", "ValueError")
answers.mistake("compares_with_the_slowest_of_those_who_wait",
    {"min(clocks.values())": "min(clocks[w] for w in waiting)"},
    "ahead of the slowest worker and the bound is", ("the rank must wait", "the rank may go on"))
answers.mistake("never_waits_for_the_first_letters",
    {"fabric.send(letter(0, weights), to=worker)": "fabric.isend(letter(0, weights), to=worker)"},
    "rank 0 ended without waiting for an isend")
answers.mistake("knows_bounds_up_to_four_alone", {"<= bound": "<= min(bound, 4)"}, "2 workers, bound=", "the rank may go on")
answers.mistake("knows_five_workers_alone", {"range(1, fabric.world_size)": "range(1, min(6, fabric.world_size))"},
    "workers, bound=1", "This rank has had none yet: at the start, send version 0 to every worker")
answers.mistake("opens_the_gate_when_the_mean_has_caught_up",
    {"slowest = min(clocks.values())": "slowest = sum(clocks.values()) // len(clocks)"},
    "ahead of the slowest worker and the bound is", "the rank must wait")
answers.mistake("compares_with_the_second_slowest_of_many",
    {"min(clocks.values())": "sorted(clocks.values())[len(clocks) > 3]"},
    "workers, bound=1: rank", "ahead of the slowest worker and the bound is 1: the rank must wait")
answers.mistake("takes_for_busy_those_it_has_heard_from",
    {"[w for w in workers if w not in waiting]": "[w for w in workers if w not in waiting and clocks[w]]"},
    "bound=1, 3 updates", "which computes: receive its gradient first", "This gradient would be the rank's first")
answers.mistake("takes_for_busy_as_many_as_there_were_updates",
    {"[w for w in workers if w not in waiting]": "[w for w in workers[:updates] if w not in waiting]"},
    "bound=1, 3 updates", "which computes: receive its gradient first. Is it in `busy`?")
answers.mistake("throws_gradients_older_than_eight_away", {"weights -= rate": "weights -= (version - base <= 8) * rate"},
    "It was received and never applied: every gradient is an update")
answers.mistake("knows_bounds_up_to_ten_alone", {"<= bound": "<= min(bound, 10)"}, "2 workers, bound=", "the rank may go on")
answers.mistake("changes_the_list_that_it_loops_over", {
    """
        for worker in workers:
            fabric.send(letter(0, weights), to=worker)
    """: """
        waiting = list(workers)
        for worker in waiting:
            fabric.send(letter(0, weights), to=worker)
            waiting.remove(worker)
    """,
}, ("Does a loop change the list that it goes over? Then it skips workers", "the rank may go on"))
answers.mistake("sends_half_precision", {"letter(version + 1, weights)": "letter(version + 1, weights.half().float())"},
    "holds the weights in fewer digits than float32 has")


answers.spoil("knows_one_bound_and_no_staleness", {"staleness.append(version - base)": "staleness.append(-1)"},
    of=answers["knows_one_bound_alone"])
SENDS_NOUGHT = edited(plain, "sends_nought", {"letter(version + 1, weights)": "letter(version + 1, 0 * weights)"})
answers.spoil("sends_nought_and_returns_it_twice_as_large", {"return weights,": "return 2 * weights,"}, of=SENDS_NOUGHT)
