"""Exercise 5.3: the barrier with backup workers."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from tests.checks.mutants._letters import STOP, dismiss, letter, opened

answers = Answers("backup_server")


def serve(fabric, weights, updates, rate, need, share=None, late="answer", busy=None, dropped=None):
    """A right server for `need` gradients a step, but for what the other arguments spoil."""
    n = fabric.world_size - 1
    waiting, lost, box = list(range(1, n + 1)), 0, letter(0, weights)
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, idle, total, fresh = [], [], torch.zeros_like(weights), 0
        while fresh < need:
            worker = fabric.recv(box)
            base, gradient = opened(box)
            if base < version:
                lost += 1
                if late == "answer":
                    fabric.send(letter(version, weights), to=worker)
                else:
                    idle.append(worker)
                if late == "count":
                    fresh += 1
                if late == "add":
                    total += gradient
                continue
            waiting.append(worker)
            total += gradient
            fresh += 1
        waiting += idle if late != "forget" else []
        weights -= rate * total / (share or need)
    dismiss(fabric, weights, [w for w in range(1, n + 1) if w not in waiting] if busy is None else busy)
    return weights, lost if dropped is None else dropped


def needed(fabric, backups):
    return fabric.world_size - 1 - backups


@answers.is_wrong("after 2 gradients the server waits for a gradient", "Step 0 had its 2 of 3 gradients")
def waits_for_everybody(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, fabric.world_size - 1)


@answers.is_wrong("counts 0.33 times, expected 0.5 times", "their sum over 2, not over all 3 workers")
def divides_by_all_workers(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, needed(fabric, backups), share=fabric.world_size - 1)


@answers.is_wrong("counts 1 times, expected 0.5 times", "not the sum")
def adds_and_does_not_divide(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, needed(fabric, backups), share=1)


@answers.is_wrong("It was left waiting: answer at once")
def lets_a_late_worker_wait_for_the_next_step(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, needed(fabric, backups), late="wait")


@answers.is_wrong("Its gradient was late: throw it away, and send the newest weights at once")
def never_answers_a_late_worker(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, needed(fabric, backups), late="forget")


@answers.is_wrong("It was computed on version 0, and the weights are at 1: throw it away")
def uses_late_gradients_too(fabric, weights, updates, rate, backups):
    need, box = needed(fabric, backups), letter(0, weights)
    waiting, lost = list(range(1, fabric.world_size)), 0
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        while len(waiting) < need:
            worker = fabric.recv(box)
            base, gradient = opened(box)
            total += gradient
            if base == version:
                waiting.append(worker)
            else:
                lost += 1
                fabric.send(letter(version, weights), to=worker)
        weights -= rate * total / need
    dismiss(fabric, weights, [w for w in range(1, fabric.world_size) if w not in waiting])
    return weights, lost


@answers.is_wrong("the server stops, and", "were computed on the newest weights: 3 steps of 2 take 6")
def takes_the_first_that_come_of_whatever_version(fabric, weights, updates, rate, backups):
    need, box = needed(fabric, backups), letter(0, weights)
    waiting, lost = list(range(1, fabric.world_size)), 0
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        for _ in range(need):
            waiting.append(fabric.recv(box))
            base, gradient = opened(box)
            lost += base < version
            total += gradient
        weights -= rate * total / need
    dismiss(fabric, weights, [w for w in range(1, fabric.world_size) if w not in waiting])
    return weights, lost


@answers.is_wrong("the server has ended, and a worker still waits for it")
def leaves_the_late_ones_in_their_send(fabric, weights, updates, rate, backups):
    return serve_without_end(fabric, weights, updates, rate, backups)


def serve_without_end(fabric, weights, updates, rate, backups):
    need, box = needed(fabric, backups), letter(0, weights)
    waiting, lost = list(range(1, fabric.world_size)), 0
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        while len(waiting) < need:
            worker = fabric.recv(box)
            base, gradient = opened(box)
            if base == version:
                waiting.append(worker)
                total += gradient
            else:
                lost += 1
                fabric.send(letter(version, weights), to=worker)
        weights -= rate * total / need
    for worker in waiting:
        fabric.send(letter(STOP, weights), to=worker)
    return weights, lost


@answers.is_wrong("3 updates are done", "`busy` are those who compute")
def takes_those_who_wait_for_busy(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, needed(fabric, backups), busy=range(1, fabric.world_size))


@answers.is_wrong("expected as second value 2, the number of gradients that came late", "got 0")
def forgets_to_count(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, needed(fabric, backups), dropped=0)


@answers.is_wrong("every gradient was added")
def climbs(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, -rate, needed(fabric, backups))


@answers.is_wrong("2 workers, backups=0", "A step takes the mean of its 2 gradients")
def keeps_one_backup_whatever_it_is_told(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, max(1, fabric.world_size - 2))


@answers.is_wrong("got the versions [0, 0, ", "The version is the number of updates")
def answers_a_late_worker_with_the_weights_that_it_had(fabric, weights, updates, rate, backups):
    need, n = needed(fabric, backups), fabric.world_size - 1
    waiting, lost, box = list(range(1, n + 1)), 0, letter(0, weights)
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        while len(waiting) < need:
            worker = fabric.recv(box)
            base, gradient = opened(box)
            if base < version:
                lost += 1
                fabric.send(letter(base, weights), to=worker)
                continue
            waiting.append(worker)
            total += gradient
        weights -= rate * total / need
    dismiss(fabric, weights, [w for w in range(1, n + 1) if w not in waiting])
    return weights, lost


@answers.is_wrong("expected as second value 2, the number of gradients that came late", "got 3")
def counts_what_comes_after_the_end_too(fabric, weights, updates, rate, backups):
    n = fabric.world_size - 1
    weights, lost = serve(fabric, weights, updates, rate, needed(fabric, backups))
    return weights, lost + n - needed(fabric, backups)


@answers.is_wrong("computed on version 0, and the weights are at 1: throw it away")
def forgives_a_gradient_that_is_one_version_late(fabric, weights, updates, rate, backups):
    need, n = needed(fabric, backups), fabric.world_size - 1
    waiting, lost, box = list(range(1, n + 1)), 0, letter(0, weights)
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        while len(waiting) < need:
            worker = fabric.recv(box)
            base, gradient = opened(box)
            if base >= version - 1:
                total += gradient
            if base < version:
                lost += 1
                fabric.send(letter(version, weights), to=worker)
                continue
            waiting.append(worker)
        weights -= rate * total / need
    dismiss(fabric, weights, [w for w in range(1, n + 1) if w not in waiting])
    return weights, lost


@answers.is_wrong("rank 0 ended with an isend that nobody waited for")
def never_waits_for_the_answers_to_late_ones(fabric, weights, updates, rate, backups):
    need, n = needed(fabric, backups), fabric.world_size - 1
    waiting, lost, box = list(range(1, n + 1)), 0, letter(0, weights)
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        while len(waiting) < need:
            worker = fabric.recv(box)
            base, gradient = opened(box)
            if base < version:
                lost += 1
                fabric.isend(letter(version, weights), to=worker)
                continue
            waiting.append(worker)
            total += gradient
        weights -= rate * total / need
    dismiss(fabric, weights, [w for w in range(1, n + 1) if w not in waiting])
    return weights, lost


@answers.is_right
def plain(fabric, weights, updates, rate, backups):
    return serve(fabric, weights, updates, rate, needed(fabric, backups))


@answers.is_right
def keeps_a_table_of_gradients_and_sends_after_the_last_step_too(fabric, weights, updates, rate, backups):
    n = fabric.world_size - 1
    box, table, version, lost = torch.zeros(len(weights) + 1), {}, 0, torch.tensor(0)
    for worker in range(n, 0, -1):
        fabric.isend(letter(0, weights), worker).wait()
    while version < updates:
        worker = fabric.recv(box)
        if int(box[0]) != version:
            lost += 1
            fabric.send(letter(version, weights), worker)
            continue
        table[worker] = box[1:].clone()
        if len(table) == n - backups:
            weights = weights - rate * torch.stack(list(table.values())).mean(dim=0)
            version += 1
            for worker in sorted(table):
                fabric.send(letter(version, weights), worker)
            table = {}
    for _ in range(n):
        fabric.send(letter(STOP, weights), fabric.recv(box))
    return weights, lost


@answers.is_right
def remembers_versions_and_counts_what_is_left_over(fabric, weights, updates, rate, backups):
    workers = range(1, fabric.world_size)
    need, holds, taken, box = len(workers) - backups, dict.fromkeys(workers, 0), 0, letter(0, weights)
    for worker in workers:
        fabric.send(box.clone(), to=worker)
    for version in range(updates):
        fresh = []
        while len(fresh) < need:
            worker = fabric.recv(box)
            taken += 1
            if holds.pop(worker) == version:
                fresh.append((worker, box[1:].clone()))
            else:
                fabric.send(letter(version, weights), to=worker)
                holds[worker] = version
        weights.sub_(sum(gradient for _, gradient in fresh) * (rate / need))
        if version + 1 < updates:
            for worker, _ in fresh:
                fabric.send(letter(version + 1, weights), to=worker)
                holds[worker] = version + 1
    dismiss(fabric, weights, list(holds))
    return weights, taken - need * updates


@answers.is_right
def averages_as_it_goes(fabric, weights, updates, rate, backups):
    everybody = set(range(1, fabric.world_size))
    free, late, box = set(everybody), 0, letter(0, weights)
    for version in range(updates):
        handles = [fabric.isend(letter(version, weights), to=worker) for worker in free]
        for handle in handles:
            handle.wait()
        free, mean = set(), torch.zeros_like(weights)
        while len(free) != len(everybody) - backups:
            sender = fabric.recv(box)
            if int(box[0]) == version:
                free.add(sender)
                mean += (box[1:] - mean) / len(free)
            else:
                late += 1
                fabric.isend(letter(version, weights), to=sender).wait()
        weights = weights - rate * mean
    dismiss(fabric, weights, everybody - free)
    return weights, late
