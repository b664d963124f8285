"""Exercise 5.1: the asynchronous server."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from tests.checks.mutants._letters import STOP, dismiss, letter, opened

answers = Answers("async_server")


def begin(fabric, weights):
    """Sends the first weights; returns the workers and a letter to receive into."""
    workers = range(1, fabric.world_size)
    for worker in workers:
        fabric.send(letter(0, weights), to=worker)
    return workers, letter(0, weights)


@answers.is_wrong("the server waits for a gradient, and rank", "There is no barrier here")
def waits_for_all_of_them(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness, senders = [], []
    for version in range(updates):
        senders.append(fabric.recv(box))
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        if len(set(senders)) == len(workers):
            for worker in senders:
                fabric.send(letter(version + 1, weights), to=worker)
            senders = []
    dismiss(fabric, weights, workers)
    return weights, staleness


@answers.is_wrong("after 0 gradients the server waits for rank", "receive from anyone")
def takes_the_workers_in_turn(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates):
        worker = workers[-1 - version % len(workers)]
        fabric.recv(box, frm=worker)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        fabric.send(letter(version + 1, weights), to=worker)
    dismiss(fabric, weights, workers)
    return weights, staleness


@answers.is_wrong("got the weights of version 0 in a letter that says version 1")
def answers_before_it_updates(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates):
        worker = fabric.recv(box)
        fabric.send(letter(version + 1, weights), to=worker)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
    dismiss(fabric, weights, workers)
    return weights, staleness


@answers.is_wrong("got the versions [0, 0", "first update, then answer")
def numbers_the_letter_before_the_update(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        fabric.send(letter(version, weights), to=worker)
    dismiss(fabric, weights, workers)
    return weights, staleness


@answers.is_wrong("the server sends to rank", "answer only who waits")
def tells_everybody_of_every_update(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates):
        fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        for worker in workers:
            fabric.send(letter(version + 1, weights), to=worker)
    dismiss(fabric, weights, workers)
    return weights, staleness


def serve(fabric, weights, updates, step, age=lambda version, base: version - base, busy=None):
    """A right server but for its `step(weights, gradient, age)`, its `age` and who it takes for `busy`."""
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        staleness.append(age(version, base))
        step(weights, gradient, version - base)
        fabric.send(letter(version + 1, weights), to=worker)
    dismiss(fabric, weights, workers if busy is None else busy)
    return weights, staleness


def descend(rate, scaled):
    def step(weights, gradient, age):
        weights -= (rate / max(1, age) if scaled else rate) * gradient

    return step


@answers.is_wrong("every gradient counts 1/2. There is no mean here")
def averages_over_the_workers(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate / (fabric.world_size - 1), scaled))


@answers.is_wrong("the staleness of gradient 1 of 6", "is 0, got 1")
def counts_its_own_update_as_staleness(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, scaled), lambda version, base: version + 1 - base)


@answers.is_wrong("the staleness of gradient", "it was computed on version", "applied to version")
def returns_the_versions(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, scaled), lambda version, base: version)


@answers.is_wrong("every gradient was added", "weights -= …")
def climbs(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(-rate, scaled))


@answers.is_wrong("3 workers, scaled=True", "expected 0.", "with scaled=True the rate of this update is divided by that")
def never_scales(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, False))


@answers.is_wrong("expected 1 times", "and the whole rate holds")
def always_scales(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, True))


@answers.is_wrong("3 workers, scaled=True", "a gradient of the newest weights has staleness 0")
def divides_by_the_staleness_and_one(fabric, weights, updates, rate, scaled=False):
    def step(weights, gradient, age):
        weights -= (rate / (age + 1) if scaled else rate) * gradient

    return serve(fabric, weights, updates, step)


@answers.is_wrong("tells rank 1 to stop, which computes: take its gradient first")
def stops_workers_that_compute(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, scaled), busy=[])


@answers.is_wrong("had a gradient under way when the 6 updates were done", "It only has to be received")
def applies_what_comes_after_the_end(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates + len(workers)):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        staleness.append(version - base)
        descend(rate, scaled)(weights, gradient, version - base)
        fabric.send(letter(version + 1 if version < updates else STOP, weights), to=worker)
    return weights, staleness[:updates]


@answers.is_wrong("the server has ended, and a worker still waits for it")
def leaves_without_a_word(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        weights -= rate * gradient
        staleness.append(version - base)
        fabric.send(letter(version + 1, weights), to=worker)
    return weights, staleness


@answers.is_wrong("expected two values, the weights and what the contract asks besides, got a tensor")
def returns_the_weights_alone(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, scaled))[0]


@answers.is_wrong("expected float32[9], which is what `out` is, got float32[8]")
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


@answers.is_wrong("rank 0 changed the tensor of its isend to rank")
def writes_into_the_letter_that_is_still_being_sent(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    out, staleness, under_way = letter(0, weights), [], []
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        staleness.append(version - base)
        descend(rate, scaled)(weights, gradient, version - base)
        out.copy_(letter(version + 1, weights))
        under_way.append(fabric.isend(out, to=worker))
    for handle in under_way:
        handle.wait()
    dismiss(fabric, weights, workers)
    return weights, staleness


@answers.is_wrong("rank 0 ended with an isend that nobody waited for")
def never_waits_for_its_answers(fabric, weights, updates, rate, scaled=False):
    workers, box = begin(fabric, weights)
    staleness = []
    for version in range(updates):
        worker = fabric.recv(box)
        base, gradient = opened(box)
        staleness.append(version - base)
        descend(rate, scaled)(weights, gradient, version - base)
        fabric.isend(letter(version + 1, weights), to=worker)
    dismiss(fabric, weights, workers)
    return weights, staleness


@answers.is_wrong("3 workers, scaled=True", "ZeroDivisionError")
def divides_by_a_staleness_of_nought(fabric, weights, updates, rate, scaled=False):
    def step(weights, gradient, age):
        weights -= (rate / age if scaled else rate) * gradient

    return serve(fabric, weights, updates, step)


@answers.is_wrong("counts 0 times, expected 1 times", "It was received and never applied")
def returns_the_weights_that_it_was_given(fabric, weights, updates, rate, scaled=False):
    newest = weights.clone()
    return weights, serve(fabric, newest, updates, descend(rate, scaled))[1]


@answers.is_wrong("the staleness of gradient", "it was computed on version", "applied to version")
def takes_the_last_letter_to_anybody_for_the_base(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, scaled), lambda version, base: 0)


@answers.is_right
def plain(fabric, weights, updates, rate, scaled=False):
    return serve(fabric, weights, updates, descend(rate, scaled))


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
