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


@answers.is_wrong("the server stops, and 3 updates take 8 of these: late ones count nothing")
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
