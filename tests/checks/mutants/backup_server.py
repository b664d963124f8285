"""Exercise 5.3: the barrier with backup workers."""

import torch

from tests.checks.mutants import Answers
from tests.checks.mutants._letters import STOP, dismiss, letter, opened

answers = Answers("backup_server")


@answers.is_right
def plain(fabric, weights, updates, rate, backups):
    n, box, lost = fabric.world_size - 1, letter(0, weights), 0
    need, waiting = n - backups, list(range(1, n + 1))
    for version in range(updates):
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total = [], torch.zeros_like(weights)
        while len(waiting) < need:
            worker = fabric.recv(box)
            base, gradient = opened(box)
            if base < version:
                lost += 1
                fabric.send(letter(version, weights), to=worker)
                continue
            waiting.append(worker)
            total += gradient
        weights -= rate * total / need
    dismiss(fabric, weights, [w for w in range(1, n + 1) if w not in waiting])
    return weights, lost


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


answers.mistake("waits_for_everybody", {"n - backups": "n"},
    "after 2 gradients the server waits for a gradient", "Step 0 had its 2 of 3 gradients")
answers.mistake("divides_by_all_workers", {"total / need": "total / n"},
    "counts 0.33 times, expected 0.5 times", "Divide the sum of 2 gradients by 2, not by all 3 workers")
answers.mistake("adds_and_does_not_divide", {"total / need": "total"},
    "counts 1 times, expected 0.5 times", "not the sum")
answers.mistake("lets_a_late_worker_wait_for_the_next_step", {
    "waiting, total = [], torch.zeros_like(weights)": "waiting, late, total = [], [], torch.zeros_like(weights)",
    "lost += 1\nfabric.send(letter(version, weights), to=worker)": "lost += 1\nlate.append(worker)",
    "weights -= rate": "waiting += late\nweights -= rate",
}, ("Was the rank left waiting", "Drop it, and answer its sender at once"))
answers.mistake("never_answers_a_late_worker",
    {"lost += 1\nfabric.send(letter(version, weights), to=worker)": "lost += 1"},
    "Its last gradient was late: drop a late gradient, and send the newest weights at once")
answers.mistake("uses_late_gradients_too", {
    "base, gradient = opened(box)": "base, gradient = opened(box)\ntotal += gradient",
    "waiting.append(worker)\ntotal += gradient": "waiting.append(worker)",
}, "It was computed on version 0, and the weights are at version 1: drop this gradient")
answers.mistake("takes_the_first_that_come_of_whatever_version", {
    """
        if base < version:
            lost += 1
            fabric.send(letter(version, weights), to=worker)
            continue
    """: "lost += base < version",
}, "the server stops, but", "were computed on the newest weights: that makes", "or did a late gradient count?")
answers.mistake("leaves_the_late_ones_in_their_send", {
    "dismiss(fabric, weights, [w for w in range(1, n + 1) if w not in waiting])": """
        for worker in waiting:
            fabric.send(letter(STOP, weights), to=worker)
    """,
}, "the server has ended, but a worker still waits for it")
answers.mistake("takes_those_who_wait_for_busy",
    {"[w for w in range(1, n + 1) if w not in waiting]": "range(1, n + 1)"},
    "updates are done", "`busy` lists the workers that compute")
answers.mistake("forgets_to_count", {"lost += 1": ""},
    "the number of gradients that came late", "got 0")
answers.mistake("climbs", {"weights -=": "weights +="}, "every gradient was added")
answers.mistake("keeps_one_backup_whatever_it_is_told", {"n - backups": "max(1, n - 1)"},
    "2 workers, backups=0", "A step takes the mean of its 2 gradients")
answers.mistake("answers_a_late_worker_under_the_version_that_it_had", {
    """
        lost += 1
        fabric.send(letter(version, weights), to=worker)
    """: """
        lost += 1
        fabric.send(letter(base, weights), to=worker)
    """,
}, "got the versions [0, 0, ", "Letter 2 says version 0 and holds the weights of version 1")
answers.mistake("answers_a_late_worker_with_the_weights_that_it_had", {
    "for version in range(updates):": "kept = []\nfor version in range(updates):\n    kept.append(weights.clone())",
    """
        lost += 1
        fabric.send(letter(version, weights), to=worker)
    """: """
        lost += 1
        fabric.send(letter(base, kept[base]), to=worker)
    """,
}, "got the versions [0, 0, ", "Letter 2 holds the weights of version 0, not the newest ones")
answers.mistake("answers_a_late_worker_under_the_next_version", {
    """
        lost += 1
        fabric.send(letter(version, weights), to=worker)
    """: """
        lost += 1
        fabric.send(letter(version + 1, weights), to=worker)
    """,
}, ("with a higher number, the sender's next gradient seems to be in time", "and holds the weights of version"))
answers.mistake("counts_what_comes_after_the_end_too", {"return weights, lost": "return weights, lost + n - need"},
    "the number of gradients that came late")
answers.mistake("forgives_a_gradient_that_is_one_version_late", {
    "if base < version:": """
        if base >= version - 1:
            total += gradient
        if base < version:
    """,
    "waiting.append(worker)\ntotal += gradient": "waiting.append(worker)",
}, "computed on version 0, and the weights are at version 1: drop this gradient")
answers.mistake("never_waits_for_the_answers_to_late_ones", {
    """
        lost += 1
        fabric.send(letter(version, weights), to=worker)
    """: """
        lost += 1
        fabric.isend(letter(version, weights), to=worker)
    """,
}, "rank 0 ended without waiting for an isend")
answers.mistake("keeps_letters_that_look_into_one_box", {
    "waiting, total = [], torch.zeros_like(weights)": "waiting, kept = [], []",
    "total += gradient": "kept.append(gradient)",
    "total / need": "torch.stack(kept).mean(dim=0)",
}, "counts 0 times, expected 0.5 times", "counts instead", "the next recv overwrites them")
answers.mistake("counts_what_is_thrown_away_at_the_end", {"return weights, lost": "return weights, lost + n - len(waiting)"},
    "the number of gradients that came late before the last step")
answers.mistake("waits_for_two_at_most", {"n - backups": "min(2, n - backups)"},
    "workers, backups=", ("the loop or a step ended too early", "or did a step end before its"))
answers.mistake("divides_by_two_at_most", {"total / need": "total / min(need, 2)"},
    "workers, backups=", "counts 0.5 times, expected 0.", "Step 0 takes the first")
answers.mistake("halves_the_average_with_each_gradient", {
    "total += gradient": "total = (total + gradient) / 2 if len(waiting) > 1 else gradient.clone()",
    "total / need": "total",
}, "workers, backups=", "expected 0.", "Step 0 takes the first")
answers.mistake("takes_for_busy_those_it_has_heard_from", {
    "for version in range(updates):": "heard = set()\nfor version in range(updates):",
    "base, gradient = opened(box)": "heard.add(worker)\nbase, gradient = opened(box)",
    "range(1, n + 1) if": "heard if",
}, "backups=2, 1 update", "which computes: receive its gradient first", "This gradient would be the rank's first")
answers.mistake("answers_everybody_at_once", {
    "for version in range(updates):": """
        for worker in waiting:
            fabric.send(letter(0, weights), to=worker)
        for version in range(updates):
    """,
    """
        for worker in waiting:
            fabric.send(letter(version, weights), to=worker)
        waiting, total =
    """: "waiting, total =",
    "waiting.append(worker)\ntotal += gradient":
        "waiting.append(worker)\ntotal += gradient\nfabric.send(letter(version, weights), to=worker)",
    "[w for w in range(1, n + 1) if w not in waiting]": "range(1, n + 1)",
}, "had all their gradients, and the server waits for one more", "gradient counts must wait for the next version")
answers.mistake("ends_one_step_early", {"range(updates)": "range(updates - 1)"},
    "were computed on the newest weights: that makes", "Did the loop end too early, or did a late gradient count?")
answers.mistake("waits_for_half_of_them", {"n - backups": "max(1, n // 2)"},
    ("did a step end before its 2 gradients were there?", "the loop or a step ended too early"))
answers.mistake("drops_whoever_was_late_before", {
    "for version in range(updates):": "late = set()\nfor version in range(updates):",
    "if base < version:": """
        if base < version:
            late.add(worker)
        if worker in late:
    """,
}, "each late once", "gradient of version 1 was in time: count it, and send nothing before version 2")
answers.mistake("counts_whoever_was_in_time_for_step_0", {
    "for version in range(updates):": "team = []\nfor version in range(updates):",
    "if base < version:": """
        if version == 0:
            team.append(worker)
        if worker not in team:
    """,
}, "each late once", "gradient of version 1 was in time: count it, and send nothing before version 2")


answers.spoil("keeps_one_backup_and_counts_nothing", {"return weights, lost": "return weights, -1"},
    of=answers["keeps_one_backup_whatever_it_is_told"])
