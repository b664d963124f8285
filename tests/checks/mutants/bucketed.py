"""Exercise 11.5: buckets, each begun inside backward when it is full, in one order on all ranks."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.background import Background
from worldsize.fabric.collectives import broadcast
from worldsize.pytorch.timed_network import network, train

answers = Answers("bucketed")


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


class Buckets:
    """The right way, with a method for each thing that can be got wrong."""

    def __init__(self, fabric, task, background=Background):
        self.fabric, self.task = fabric, task
        self.model = network(fabric, task)
        self.start()
        self.members = self.pick()
        self.sums, self.ready, self.begun = background(fabric), set(), []
        for number, p in enumerate(self.members):
            p.register_post_accumulate_grad_hook(lambda p, number=number: self.hook(number))

    def start(self):
        broadcast(self.fabric, self.model.parameters())

    def pick(self):
        return [p for p in self.model.parameters() if p.requires_grad]

    def hook(self, number):
        self.ready.add(number)
        self.begin_full()

    def begin_full(self, everything=False):
        for numbers in self.task["buckets"][len(self.begun) :]:
            if not everything and not self.ready.issuperset(numbers):
                return
            self.begin(numbers)

    def begin(self, numbers):
        flat = torch.cat([self.payload(self.members[i]).flatten() for i in numbers])
        self.begun.append((numbers, flat, self.sums.start(flat)))

    payload = staticmethod(gradient)

    def divided(self, flat):
        return flat / self.fabric.world_size

    def finish(self):
        self.begin_full(everything=True)

    def unpack(self, numbers, flat):
        members = [self.members[i] for i in numbers]
        for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
            p.grad = part.view_as(p)

    def gradients(self, loss):
        self.ready.clear()
        self.begun.clear()
        loss.backward()
        self.finish()
        for numbers, flat, work in self.begun:
            work.wait()
            self.unpack(numbers, self.divided(flat))

    def train(self):
        return train(self.fabric, self.task, self.model, self.gradients)


@answers.is_wrong("each from random weights of its own")
def forgets_the_broadcast(fabric, task):
    class Wrong(Buckets):
        def start(self):
            pass

    return Wrong(fabric, task).train()


@answers.is_wrong("The step is 3 times the mean gradient")
def adds_up(fabric, task):
    class Wrong(Buckets):
        def divided(self, flat):
            return flat

    return Wrong(fabric, task).train()


@answers.is_wrong("divided twice by the number of ranks")
def divides_twice(fabric, task):
    class Wrong(Buckets):
        def divided(self, flat):
            return flat / self.fabric.world_size**2

    return Wrong(fabric, task).train()


@answers.is_wrong("steps by its own gradient alone")
def averages_the_weights(fabric, task):
    class Wrong(Buckets):
        payload = staticmethod(lambda p: p.detach())

        def unpack(self, numbers, flat):
            members = [self.members[i] for i in numbers]
            for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
                p.data = part.view_as(p)

    return Wrong(fabric, task).train()


@answers.is_wrong("rank 1 does not use layer 2", "it counts as zeros")
def ignores_unused(fabric, task):
    """A bucket with a tensor that never becomes ready is never begun."""

    class Wrong(Buckets):
        def finish(self):
            pass

    return Wrong(fabric, task).train()


@answers.is_wrong("rank 1 does not use layer 2", "the same all-reduces in the same order", chance=True)
def begins_in_the_order_of_the_hooks(fabric, task):
    """Where one rank skips a bucket, its later ones meet other ranks' earlier ones."""

    class Wrong(Buckets):
        def begin_full(self, everything=False):
            done = [numbers for numbers, *_ in self.begun]
            for numbers in self.task["buckets"]:
                if numbers not in done and (everything or self.ready.issuperset(numbers)):
                    self.begin(numbers)

    return Wrong(fabric, task).train()


@answers.is_wrong("layer 1 is frozen", "it can have no hook")
def counts_frozen_tensors(fabric, task):
    class Wrong(Buckets):
        def pick(self):
            return list(self.model.parameters())

    return Wrong(fabric, task).train()


@answers.is_wrong("layers 1 and 2 are tied", "expected")
def counts_tied_tensors_twice(fabric, task):
    class Wrong(Buckets):
        def pick(self):
            return [w for w in self.model.weights if w.requires_grad]

    return Wrong(fabric, task).train()


@answers.is_wrong("layer 1 is frozen", "still rank 1's own")
def broadcasts_only_what_learns(fabric, task):
    class Wrong(Buckets):
        def start(self):
            broadcast(self.fabric, [p for p in self.model.parameters() if p.requires_grad])

    return Wrong(fabric, task).train()


@answers.is_wrong("takes part in 4 all-reduces a step; expected one for each bucket", "is that one for each?")
def one_for_each_tensor(fabric, task):
    class Wrong(Buckets):
        def __init__(self, fabric, task):
            super().__init__(fabric, task | {"buckets": [[i] for bucket in task["buckets"] for i in bucket]})

    return Wrong(fabric, task).train()


@answers.is_wrong("no message travels before backward has ended")
def begins_after_backward(fabric, task):
    class Wrong(Buckets):
        def hook(self, number):
            pass

    return Wrong(fabric, task).train()


@answers.is_wrong("backward stands still while messages travel")
def waits_in_the_hook(fabric, task):
    class Wrong(Buckets):
        def begin(self, numbers):
            super().begin(numbers)
            self.begun[-1][-1].wait()

    return Wrong(fabric, task).train()


@answers.is_wrong("2 ranks, 3 steps", "left over from the step before")
def stays_ready_for_ever(fabric, task):
    """From the second step on the first hook finds all buckets ready, and sends gradients that are not there yet."""

    class Wrong(Buckets):
        def gradients(self, loss):
            before = set(self.ready)
            super().gradients(loss)
            self.ready |= before

        def begin_full(self, everything=False):
            self.ready |= getattr(self, "stale", set())
            super().begin_full(everything)
            self.stale = set(self.ready)

    return Wrong(fabric, task).train()


@answers.is_right
def plain(fabric, task):
    return Buckets(fabric, task).train()


@answers.is_right
def with_views_into_buffers_and_counters(fabric, task):
    """Gradients live in the buckets' buffers, so that nothing is copied; a bucket counts what it still waits for."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    members = [p for p in model.parameters() if p.requires_grad]
    sums = Background(fabric)
    buckets = task["buckets"]
    buffers = [torch.zeros(sum(members[i].numel() for i in b), dtype=torch.float64) for b in buckets]
    missing, works = [], []

    def begin():
        while len(works) < len(buckets) and missing[len(works)] <= 0:
            works.append(sums.start(buffers[len(works)].div_(fabric.world_size)))

    def hook(place):
        def ready(p):
            missing[place] -= 1
            begin()

        return ready

    for place, bucket in enumerate(buckets):
        for i in bucket:
            members[i].register_post_accumulate_grad_hook(hook(place))

    def gradients(loss):
        works.clear()
        missing[:] = [len(b) for b in buckets]
        for bucket, buffer in zip(buckets, buffers, strict=True):
            buffer.zero_()
            for i, part in zip(bucket, buffer.split([members[i].numel() for i in bucket]), strict=True):
                members[i].grad = part.view_as(members[i])
        loss.backward()
        missing[:] = [0] * len(buckets)
        begin()
        for work in works:
            work.wait()

    return train(fabric, task, model, gradients)
