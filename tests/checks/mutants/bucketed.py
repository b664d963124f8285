"""Exercise 11.4: buckets, each begun inside backward when it is full, in one order on all ranks."""

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

    def __init__(self, fabric, task):
        self.fabric, self.task = fabric, task
        self.model = network(fabric, task)
        self.start()
        self.members = self.pick()
        self.sums, self.ready, self.begun = Background(fabric), set(), []
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


@answers.is_wrong("rank 1 does not use layer 2", "a bucket that is full waits for those before it", chance=True)
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


@answers.is_wrong("the sum of bucket 1 had not begun when the work after its last gradient was over")
def bucket_0_alone_begins_inside(fabric, task):
    class Wrong(Buckets):
        def begin_full(self, everything=False):
            if everything or not self.begun:
                for numbers in self.task["buckets"][len(self.begun) :][: None if everything else 1]:
                    if everything or self.ready.issuperset(numbers):
                        self.begin(numbers)

    return Wrong(fabric, task).train()


@answers.is_wrong("the sum of bucket 0 had not begun when the work after its last gradient was over")
def begins_a_bucket_when_the_next_one_is_touched(fabric, task):
    class Wrong(Buckets):
        def hook(self, number):
            self.begin_full()
            self.ready.add(number)

    return Wrong(fabric, task).train()


@answers.is_wrong("slow links: the weights are right, but on rank 0 backward stands still while messages travel")
def each_bucket_waits_for_the_one_before(fabric, task):
    class Wrong(Buckets):
        def begin(self, numbers):
            if self.begun:
                self.begun[-1][-1].wait()
            super().begin(numbers)

    return Wrong(fabric, task).train()


@answers.is_wrong("slow links: the weights are right, but on rank 0 backward stands still while messages travel")
def unpacks_in_the_hook(fabric, task):
    """A bucket is unpacked as soon as the next one begins, to free its memory."""

    class Wrong(Buckets):
        def begin(self, numbers):
            for earlier, flat, work in self.begun[len(self.unpacked) :]:
                work.wait()
                self.unpack(earlier, self.divided(flat))
                self.unpacked.append(earlier)
            super().begin(numbers)

        def gradients(self, loss):
            self.unpacked = []
            super().gradients(loss)

    return Wrong(fabric, task).train()


@answers.is_wrong("rank 2 takes part in 1 all-reduce a step; expected one for each bucket")
def one_bucket_for_everything(fabric, task):
    members = [p for p in network(fabric, task).parameters() if p.requires_grad]
    return Buckets(fabric, task | {"buckets": [list(range(len(members)))[::-1]]}).train()


@answers.is_wrong("expected")
def takes_the_numbers_for_layers(fabric, task):
    """Right until a layer is frozen or tied: then the numbers of what learns are others."""

    class Wrong(Buckets):
        def pick(self):
            return list(self.model.weights)

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


@answers.is_right
def an_object_for_each_bucket_that_divides_first(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, [p.data for p in model.parameters()])
    members = [p for p in model.parameters() if p.requires_grad]
    sums = Background(fabric)

    class Bucket:
        def __init__(self, numbers):
            self.members = [members[i] for i in numbers]
            self.clear()

        def clear(self):
            self.here, self.work = 0, None

        def begin(self):
            self.flat = torch.cat([(gradient(p) / fabric.world_size).reshape(-1) for p in self.members])
            self.work = sums.start(self.flat)

        def end(self):
            self.work.wait()
            place = 0
            for p in self.members:
                p.grad = self.flat[place : place + p.numel()].reshape(p.shape)
                place += p.numel()
            self.clear()

    buckets = [Bucket(numbers) for numbers in task["buckets"]]

    def ready(p):
        for bucket in buckets:
            bucket.here += any(p is member for member in bucket.members)
        for bucket in buckets:
            if bucket.work is None:
                if bucket.here < len(bucket.members):
                    return
                bucket.begin()

    for p in members:
        p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        loss.backward()
        for bucket in buckets:
            if bucket.work is None:
                bucket.begin()
        for bucket in buckets:
            bucket.end()

    return train(fabric, task, model, gradients)


@answers.is_right
def a_coroutine_that_takes_what_is_ready(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    members = [p for p in model.parameters() if p.requires_grad]
    sums, begun, taker = Background(fabric), [], []

    def take():
        here = set()
        for numbers in task["buckets"]:
            while not here.issuperset(numbers):
                here |= yield
            flat = torch.cat([gradient(members[i]).flatten() for i in numbers])
            begun.append((numbers, flat, sums.start(flat)))
        while True:
            yield

    for number, p in enumerate(members):
        p.register_post_accumulate_grad_hook(lambda p, number=number: taker[-1].send({number}))

    def gradients(loss):
        taker.append(take())
        next(taker[-1])
        loss.backward()
        taker[-1].send(set(range(len(members))))
        while begun:
            numbers, flat, work = begun.pop(0)
            work.wait()
            means = flat.div(fabric.world_size).split([members[i].numel() for i in numbers])
            for i, mean in zip(numbers, means, strict=True):
                members[i].grad = mean.view_as(members[i])

    return train(fabric, task, model, gradients)
