"""Exercise 11.4: buckets, each begun inside backward when it is full, in one order on all ranks."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.background import Background
from worldsize.fabric.collectives import broadcast
from worldsize.pytorch.timed_network import network, train

answers = Answers("bucketed")


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


@answers.is_right
def plain(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    members = [p for p in model.parameters() if p.requires_grad]
    sums, ready, begun = Background(fabric), set(), []

    def begin(numbers):
        flat = torch.cat([gradient(members[i]).flatten() for i in numbers])
        begun.append((numbers, flat, sums.start(flat)))

    def begin_full():
        for numbers in task["buckets"][len(begun) :]:
            if not ready.issuperset(numbers):
                return
            begin(numbers)

    def hook(number):
        ready.add(number)
        begin_full()

    def unpack(numbers, flat):
        parts = flat.div(fabric.world_size).split([members[i].numel() for i in numbers])
        for i, part in zip(numbers, parts, strict=True):
            members[i].grad = part.view_as(members[i])

    def gradients(loss):
        ready.clear()
        begun.clear()
        loss.backward()
        for numbers in task["buckets"][len(begun) :]:
            begin(numbers)
        for numbers, flat, work in begun:
            work.wait()
            unpack(numbers, flat)

    for number, p in enumerate(members):
        p.register_post_accumulate_grad_hook(lambda p, number=number: hook(number))
    return train(fabric, task, model, gradients)


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


answers.mistake("forgets_the_broadcast", {"broadcast(fabric, model.parameters())": ""},
    "each from random weights of its own")
answers.mistake("adds_up", {"flat.div(fabric.world_size)": "flat"}, "The step is 3 times the mean gradient")
answers.mistake("divides_twice", {"flat.div(fabric.world_size)": "flat.div(fabric.world_size**2)"},
    "divided twice by the number of ranks")
answers.mistake("averages_the_weights", {
    "gradient(members[i])": "members[i].detach()",
    "members[i].grad = part": "members[i].data = part",
}, "steps by its own gradient alone")
# A bucket with a tensor that never becomes ready is never begun.
answers.mistake("ignores_unused", {
    """
        for numbers in task["buckets"][len(begun) :]:
            begin(numbers)
    """: "",
}, "rank 1 does not use layer 2", "a missing gradient counts as zeros")
# Where one rank skips a bucket, its later ones meet other ranks' earlier ones.
answers.mistake("begins_in_the_order_of_the_hooks", {
    """
        for numbers in task["buckets"][len(begun) :]:
            if not ready.issuperset(numbers):
                return
            begin(numbers)
    """: """
        done = [numbers for numbers, *_ in begun]
        for numbers in task["buckets"]:
            if numbers not in done and ready.issuperset(numbers):
                begin(numbers)
    """,
    """
        for numbers in task["buckets"][len(begun) :]:
            begin(numbers)
    """: """
        ready.update(range(len(members)))
        begin_full()
    """,
}, "rank 1 does not use layer 2", "a full bucket waits for the buckets before it", chance=True)
answers.mistake("counts_frozen_tensors",
    {"[p for p in model.parameters() if p.requires_grad]": "list(model.parameters())"},
    "layer 1 is frozen", "it takes no hook")
answers.mistake("counts_tied_tensors_twice",
    {"[p for p in model.parameters() if p.requires_grad]": "[w for w in model.weights if w.requires_grad]"},
    "layers 1 and 2 are tied", "expected")
answers.mistake("broadcasts_only_what_learns",
    {"broadcast(fabric, model.parameters())": "broadcast(fabric, [p for p in model.parameters() if p.requires_grad])"},
    "layer 1 is frozen", "still rank 1's own")
answers.mistake("one_for_each_tensor", {
    "model = network": """
        task = task | {"buckets": [[i] for bucket in task["buckets"] for i in bucket]}
        model = network
    """,
}, "takes part in 4 all-reduces a step; expected one for each bucket", "is that one all-reduce for each?")
answers.mistake("begins_after_backward", {"ready.add(number)\nbegin_full()": "pass"},
    "no message travels before backward has ended")
answers.mistake("waits_in_the_hook", {
    "begun.append((numbers, flat, sums.start(flat)))": """
        begun.append((numbers, flat, sums.start(flat)))
        begun[-1][-1].wait()
    """,
}, "backward stands still while messages travel")
# From the second step on the first hook finds all buckets ready, and sends gradients that are not there yet.
answers.mistake("stays_ready_for_ever", {"ready.clear()": ""}, "2 ranks, 3 steps", "left over from the step before")
answers.mistake("bucket_0_alone_begins_inside", {
    """
        [len(begun) :]:
            if not
    """: """
        [len(begun) : 1]:
            if not
    """,
}, "the sum of bucket 1 had not begun when the work after its last gradient was over")
answers.mistake("begins_a_bucket_when_the_next_one_is_touched",
    {"ready.add(number)\nbegin_full()": "begin_full()\nready.add(number)"},
    "the sum of bucket 0 had not begun when the work after its last gradient was over")
answers.mistake("each_bucket_waits_for_the_one_before", {
    "flat = torch.cat": """
        if begun:
            begun[-1][-1].wait()
        flat = torch.cat
    """,
}, "slow links: the weights are right, but on rank 0 backward stands still while messages travel")
# A bucket is unpacked as soon as the next one begins, to free its memory.
answers.mistake("unpacks_in_the_hook", {
    "flat = torch.cat": """
        for earlier, whole, work in begun[-1:]:
            work.wait()
            unpack(earlier, whole)
        flat = torch.cat
    """,
}, "slow links: the weights are right, but on rank 0 backward stands still while messages travel")
answers.mistake("one_bucket_for_everything", {
    "model = network(fabric, task)": """
        model = network(fabric, task)
        learning = sum(p.requires_grad for p in model.parameters())
        task = task | {"buckets": [list(range(learning))[::-1]]}
    """,
}, "rank 2 takes part in 1 all-reduce a step; expected one for each bucket")
answers.mistake("a_hook_begins_one_bucket_at_most", {
    """
        [len(begun) :]:
            if not
    """: """
        [len(begun) : len(begun) + 1]:
            if not
    """,
}, "links that cost nothing: the weights are right, but on rank 0",
    "the sum of bucket 1 had not begun when the work after its last")
answers.mistake("takes_the_buckets_off_their_list", {"model = network": """
    given, task = task, task | {"buckets": []}
    while given["buckets"]:
        task["buckets"].append(given["buckets"].pop(0))
    model = network
"""}, "the weights are right, but rank 0: task was changed in place")
answers.mistake("unpacks_in_the_order_of_the_layers",
    {"work.wait()\nunpack(numbers, flat)": "work.wait()\nunpack(sorted(numbers), flat)"},
    "The step's numbers are those of the mean gradients, in other places")


@answers.is_wrong("2 ranks, rank 0 does not use layer 2, 2 steps", "left over from the step before")
def counts_anew_only_where_hooks_filled_the_bucket(fabric, task):
    """What hooks have counted for a bucket that they did not fill counts for the next step."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    members = [p for p in model.parameters() if p.requires_grad]
    sums, full, begun = Background(fabric), set(), []
    buckets = task["buckets"]
    here = [0] * len(buckets)

    def begin():
        flat = torch.cat([gradient(members[i]).flatten() for i in buckets[len(begun)]])
        begun.append((flat, sums.start(flat)))

    def hook(place):
        here[place] += 1
        if here[place] == len(buckets[place]):
            here[place] = 0
            full.add(place)
        while len(begun) in full:
            begin()

    for place, bucket in enumerate(buckets):
        for i in bucket:
            members[i].register_post_accumulate_grad_hook(lambda p, place=place: hook(place))

    def gradients(loss):
        loss.backward()
        while len(begun) < len(buckets):
            begin()
        for bucket, (flat, work) in zip(buckets, begun, strict=True):
            work.wait()
            parts = flat.div(fabric.world_size).split([members[i].numel() for i in bucket])
            for i, part in zip(bucket, parts, strict=True):
                members[i].grad = part.view_as(members[i])
        full.clear()
        begun.clear()

    return train(fabric, task, model, gradients)


# Right until a layer is frozen or tied: then the numbers of what learns are others.
answers.mistake("takes_the_numbers_for_layers",
    {"[p for p in model.parameters() if p.requires_grad]": "list(model.weights)"},
    "expected")
answers.mistake("begins_with_the_first_hook_of_a_bucket",
    {"if not ready.issuperset(numbers):": "if ready.isdisjoint(numbers):"},
    "It has not moved, and one process moves it", "begin before the hooks of all its tensors had fired")
