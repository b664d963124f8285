"""Exercise 5.1: the asynchronous server."""

import torch

from tests.checks.mutants import Answers, edited
from tests.checks.mutants._letters import STOP, dismiss, letter, opened

answers = Answers("async_server")


@answers.is_right
def plain(fabric, weights, updates, rate, scaled=False):
    workers, box, staleness = range(1, fabric.world_size), letter(0, weights), []
    for worker in workers:
        fabric.send(letter(0, weights), to=worker)
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        age = version - base
        weights -= (rate / max(1, age) if scaled else rate) * gradient
        staleness.append(age)
        fabric.send(letter(version + 1, weights), to=worker)
    dismiss(fabric, weights, workers)
    return weights, staleness


@answers.is_right
def remembers_what_it_sent_and_tells_the_last_one_to_stop(fabric, weights, updates, rate, scaled=False):
    sent = dict.fromkeys(range(1, fabric.world_size), 0)
    handles = [fabric.isend(letter(0, weights), to=worker) for worker in reversed(sent)]
    for handle in handles:
        handle.wait()
    box, staleness = torch.zeros(len(weights) + 1), torch.zeros(updates, dtype=torch.int64)
    for version in range(updates):
        worker = fabric.recv(box, None)
        staleness[version] = version - sent[worker]
        factor = 1 / staleness[version] if scaled and staleness[version] else 1.0
        weights = weights - rate * factor * box[1:]
        sent[worker] = version + 1
        if version + 1 < updates:
            fabric.isend(letter(version + 1, weights), worker).wait()
        else:
            fabric.send(letter(STOP, weights), worker)
            del sent[worker]
    while sent:
        worker = fabric.recv(box)
        fabric.send(letter(STOP, weights), worker)
        del sent[worker]
    return weights, staleness


@answers.is_right
def waits_for_an_answer_only_when_its_worker_is_heard_again(fabric, weights, updates, rate, scaled=False):
    under_way = {worker: fabric.isend(letter(0, weights), to=worker) for worker in range(1, fabric.world_size)}
    box, ages = letter(0, weights), ()
    while len(ages) < updates:
        worker = fabric.recv(box)
        under_way[worker].wait()
        ages += (len(ages) - int(box[0]),)
        weights.sub_(box[1:], alpha=rate / ages[-1] if scaled and ages[-1] > 1 else rate)
        under_way[worker] = fabric.isend(letter(len(ages), weights), to=worker)
    for handle in under_way.values():
        handle.wait()
    dismiss(fabric, weights, sorted(under_way))
    return weights, ages


@answers.is_right
def serves_by_a_function_of_its_own(fabric, weights, updates, rate, scaled=False):
    workers = tuple(range(1, fabric.world_size))

    def answer(version, worker):
        fabric.send(letter(version, weights), worker)

    def one_update(version):
        box = torch.empty(weights.numel() + 1)
        worker = fabric.recv(box)
        age = torch.tensor(version) - box[0].int()
        weights.copy_(weights - box[1:] * rate / (age.clamp(min=1) if scaled else 1))
        answer(version + 1, worker)
        return age.item()

    for worker in workers:
        answer(0, worker)
    ages = list(map(one_update, range(updates)))
    dismiss(fabric, weights, workers)
    return weights, ages


answers.mistake("waits_for_all_of_them", {
    "for version in range(updates):": "senders = []\nfor version in range(updates):",
    "worker = fabric.recv(box)": "senders.append(fabric.recv(box))",
    "fabric.send(letter(version + 1, weights), to=worker)": """
        if len(set(senders)) == len(workers):
            for worker in senders:
                fabric.send(letter(version + 1, weights), to=worker)
            senders = []
    """,
}, "the server waits for a gradient, and rank", "There is no barrier here")
answers.mistake("takes_the_workers_in_turn",
    {"worker = fabric.recv(box)": "worker = workers[-1 - version % len(workers)]\nfabric.recv(box, frm=worker)"},
    "after 0 gradients the server waits for rank", "receive from anyone")
answers.mistake("answers_before_it_updates", {
    "worker = fabric.recv(box)": "worker = fabric.recv(box)\nfabric.send(letter(version + 1, weights), to=worker)",
    "staleness.append(age)\nfabric.send(letter(version + 1, weights), to=worker)": "staleness.append(age)",
}, "got the weights of version 0 in a letter that says version 1")
answers.mistake("numbers_the_letter_before_the_update", {"letter(version + 1, weights)": "letter(version, weights)"},
    "got the versions [0, 0", "Letter 2 says version 0 and holds the weights of version 1")
answers.mistake("numbers_the_letter_one_too_high", {"letter(version + 1, weights)": "letter(version + 2, weights)"},
    "got the versions [0, 2", "Letter 2 says version 2 and holds the weights of version 1")
answers.mistake("answers_under_the_old_version_before_it_updates", {
    "worker = fabric.recv(box)": "worker = fabric.recv(box)\nfabric.send(letter(version, weights), to=worker)",
    "staleness.append(age)\nfabric.send(letter(version + 1, weights), to=worker)": "staleness.append(age)",
}, "Letter 2 holds the weights of version 0, not the newest ones: update first, then answer")
answers.mistake("tells_everybody_of_every_update", {
    "fabric.send(letter(version + 1, weights), to=worker)": """
        for worker in workers:
            fabric.send(letter(version + 1, weights), to=worker)
    """,
}, "the server sends to rank", "answer only workers that wait")
answers.mistake("averages_over_the_workers",
    {"(rate / max(1, age) if scaled else rate)": "(rate / max(1, age) if scaled else rate) / len(workers)"},
    "every gradient counts 1/2. Take no mean here")
answers.mistake("counts_its_own_update_as_staleness", {"staleness.append(age)": "staleness.append(age + 1)"},
    "the staleness of gradient 1 of ", "is 0, got 1")
answers.mistake("returns_the_versions", {"staleness.append(age)": "staleness.append(version)"},
    "the staleness of gradient", "it was computed on version", "applied to version")
answers.mistake("climbs", {"weights -=": "weights +="}, "every gradient was added", "weights -= …")
answers.mistake("never_scales", {"(rate / max(1, age) if scaled else rate)": "rate"},
    "3 workers, scaled=True", "expected 0.", "with scaled=True, divide the rate of this update by its staleness")
answers.mistake("always_scales", {"(rate / max(1, age) if scaled else rate)": "rate / max(1, age)"},
    "expected 1 times", "but the update takes the full rate")
answers.mistake("divides_by_the_staleness_and_one", {"max(1, age)": "(age + 1)"},
    "3 workers, scaled=True", "The update divided the rate by", "divide by the staleness, above 1")
answers.mistake("stops_workers_that_compute", {"dismiss(fabric, weights, workers)": "dismiss(fabric, weights, [])"},
    "tells rank 1 to stop, which computes: receive its gradient first")
answers.mistake("applies_what_comes_after_the_end", {
    "range(updates)": "range(updates + len(workers))",
    "letter(version + 1, weights)": "letter(version + 1 if version < updates else STOP, weights)",
    "dismiss(fabric, weights, workers)": "",
    "return weights, staleness": "return weights, staleness[:updates]",
}, "had a gradient under way when the ", "updates were done", "Only receive it, as `dismiss` does")
answers.mistake("leaves_without_a_word", {"dismiss(fabric, weights, workers)": ""},
    "the server has ended, but a worker still waits for it")
answers.mistake("returns_the_weights_alone", {"return weights, staleness": "return weights"},
    "expected two values, the weights and the second one of the contract, got a tensor")


@answers.is_wrong("expected float32[", "which is what `out` is, got float32[")
def sends_weights_without_a_version(fabric, weights, updates, rate, scaled=False):
    workers = range(1, fabric.world_size)
    for worker in workers:
        fabric.send(weights, to=worker)
    box, sent, staleness = letter(0, weights), dict.fromkeys(workers, 0), []
    for version in range(updates):
        worker = fabric.recv(box)
        weights -= rate * opened(box)[1]
        staleness.append(version - sent[worker])
        sent[worker] = version + 1
        fabric.send(weights, to=worker)
    dismiss(fabric, weights, workers)
    return weights, staleness


answers.mistake("writes_into_the_letter_that_is_still_being_sent", {
    "for version in range(updates):": "out, under_way = letter(0, weights), []\nfor version in range(updates):",
    "fabric.send(letter(version + 1, weights), to=worker)": """
        out.copy_(letter(version + 1, weights))
        under_way.append(fabric.isend(out, to=worker))
    """,
    "dismiss(fabric, weights, workers)": """
        for handle in under_way:
            handle.wait()
        dismiss(fabric, weights, workers)
    """,
}, "rank 0 changed the tensor of its isend to rank")
answers.mistake("never_waits_for_its_answers",
    {"fabric.send(letter(version + 1, weights), to=worker)": "fabric.isend(letter(version + 1, weights), to=worker)"},
    "rank 0 ended without waiting for an isend")
answers.mistake("divides_by_a_staleness_of_nought", {"max(1, age)": "age"},
    "3 workers, scaled=True", "ZeroDivisionError")
answers.mistake("returns_the_weights_that_it_was_given", {
    "workers, box, staleness =": "given, weights = weights, weights.clone()\nworkers, box, staleness =",
    "return weights, staleness": "return given, staleness",
}, "counts 0 times, expected 1 times", "It was received and never applied")
answers.mistake("takes_the_last_letter_to_anybody_for_the_base", {"staleness.append(age)": "staleness.append(0)"},
    "the staleness of gradient", "it was computed on version", "applied to version")
answers.mistake("divides_the_rate_for_good", {
    "weights -= (rate / max(1, age) if scaled else rate) * gradient": """
        if scaled and age > 1:
            rate /= age
        weights -= rate * gradient
    """,
}, "3 workers, scaled=True", "An earlier update divided the rate for good")
answers.mistake("takes_for_busy_those_it_has_heard_from", {
    "workers, box, staleness =": "heard = set()\nworkers, box, staleness =",
    "staleness.append(age)": "staleness.append(age)\nheard.add(worker)",
    "dismiss(fabric, weights, workers)": "dismiss(fabric, weights, heard)",
}, "workers, 2 updates", "which computes: receive its gradient first", "This gradient would be the rank's first")
answers.mistake("takes_for_busy_as_many_as_there_were_updates",
    {"dismiss(fabric, weights, workers)": "dismiss(fabric, weights, workers[:updates])"},
    "workers, 2 updates", "which computes: receive its gradient first. Is it in `busy`?")
answers.mistake("throws_gradients_older_than_eight_away",
    {"weights -= (rate": "weights -= (age <= 8) * (rate"},
    "one very slow", "It was received and never applied: every gradient is an update")
answers.mistake("divides_by_eight_at_most", {"max(1, age)": "min(8, max(1, age))"},
    "one very slow, scaled=True", "with scaled=True, divide the rate of this update by its staleness")
answers.mistake("sends_half_precision", {"letter(version + 1, weights)": "letter(version + 1, weights.half().float())"},
    "holds the weights in fewer digits than float32 has")
answers.mistake("ends_one_update_early", {"range(updates)": "range(updates - 1)"},
    "updates: if `dismiss` is what waits here, the loop ended too early")
answers.mistake("takes_every_value_for_positive", {"* gradient": "* gradient.abs()"},
    ("Values of a gradient may be negative: keep their sign", "every gradient was added"))


KNOWS_TWO = edited(plain, "knows_two_workers_alone", {"range(1, fabric.world_size)": "range(1, min(3, fabric.world_size))"})
answers.spoil("knows_two_workers_and_no_staleness", {"staleness.append(age)": "staleness.append(-1)"}, of=KNOWS_TWO)
answers.spoil("answers_before_it_updates_and_returns_nought", {"return weights,": "return 0 * weights,"},
    of=answers["answers_before_it_updates"])
