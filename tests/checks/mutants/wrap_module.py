"""Exercise 11.6: any module as a replica, with its gradients in buckets inside backward."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.background import Background
from worldsize.fabric.collectives import all_reduce, broadcast

answers = Answers("wrap_module")


def fill_buckets(sizes, cap):
    buckets, room = [], 0
    for number in reversed(range(len(sizes))):
        if room <= 0:
            buckets.append([])
            room = cap
        buckets[-1].append(number)
        room -= sizes[number]
    return buckets


@answers.is_right
def plain(fabric, module, cap_bytes):
    sums = Background(fabric)
    broadcast(fabric, [*module.parameters(), *module.buffers()])
    members = [p for p in module.parameters() if p.requires_grad]
    buckets, fired, ends = [], set(), []
    for dtype in dict.fromkeys(p.dtype for p in members):
        own = [p for p in members if p.dtype == dtype]
        buckets += [[own[i] for i in bucket] for bucket in fill_buckets([p.nbytes for p in own], cap_bytes)]

    def begin(bucket):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        work = sums.start(flat)

        def end():
            work.wait()
            mean = flat / fabric.world_size
            for p, piece in zip(bucket, mean.split([p.numel() for p in bucket]), strict=True):
                p.grad = piece.view_as(p)

        return end

    def fire(ready):
        fired.update(ready)
        while len(ends) < len(buckets) and fired.issuperset(buckets[len(ends)]):
            ends.append(begin(buckets[len(ends)]))

    for p in members:
        p.register_post_accumulate_grad_hook(lambda p: fire([p]))

    def finish():
        fire(members)
        for end in ends:
            end()
        fired.clear()
        ends.clear()

    return finish


@answers.is_right
def an_object_with_a_buffer_for_each_bucket(fabric, module, cap_bytes):
    """Gradients are views into buffers that stay; a bucket counts what it waits for. The object is what is called."""
    n = fabric.world_size

    class Replica:
        def __init__(self):
            self.sums = Background(fabric)
            states = *module.named_parameters(remove_duplicate=False), *module.named_buffers()
            broadcast(fabric, [x.data for _, x in states])
            self.buckets = []
            for p in reversed(list(module.parameters())):
                if p.requires_grad:
                    self.place(p)
            self.buffers = [torch.zeros(sum(p.numel() for p in b), dtype=b[0].dtype) for b in self.buckets]
            self.step()

        def place(self, p):
            for bucket in self.buckets:
                if bucket[0].dtype == p.dtype and sum(q.nbytes for q in bucket) < cap_bytes:
                    bucket.append(p)
                    break
            else:
                bucket = [p]
                self.buckets.append(bucket)
            p.register_post_accumulate_grad_hook(lambda p: self.ready(bucket))

        def step(self):
            self.missing = [len(bucket) for bucket in self.buckets]
            self.works = []

        def ready(self, bucket):
            self.missing[next(k for k, b in enumerate(self.buckets) if b is bucket)] -= 1
            self.begin()

        def begin(self):
            while len(self.works) < len(self.buckets) and self.missing[len(self.works)] <= 0:
                number = len(self.works)
                place = 0
                for p in self.buckets[number]:
                    part = self.buffers[number][place : place + p.numel()]
                    part.copy_(p.grad.reshape(-1) / n if p.grad is not None else torch.zeros_like(part))
                    place += p.numel()
                self.works.append(self.sums.start(self.buffers[number]))

        def __call__(self):
            self.missing = [0] * len(self.buckets)
            self.begin()
            for bucket, buffer, work in zip(self.buckets, self.buffers, self.works, strict=True):
                work.wait()
                for p, part in zip(bucket, buffer.split([p.numel() for p in bucket]), strict=True):
                    p.grad = part.view_as(p)
            self.step()

    return Replica()


@answers.is_right
def numbers_and_a_coroutine(fabric, module, cap_bytes):
    broadcast(fabric, [x.detach() for x in module.parameters()])
    broadcast(fabric, module.buffers())
    learning = dict(enumerate(p for p in module.parameters() if p.requires_grad))
    kinds = sorted({str(p.dtype) for p in learning.values()})
    places = [[i for i, p in learning.items() if str(p.dtype) == kind] for kind in kinds]
    filled = [fill_buckets([learning[i].nbytes for i in own], cap_bytes) for own in places]
    buckets = [[own[i] for i in b] for own, some in zip(places, filled, strict=True) for b in some]
    sums, begun, taker = Background(fabric), [], []

    def gradient(p):
        return (p.grad if p.grad is not None else p.detach() * 0).reshape(-1)

    def take():
        here = set()
        for numbers in buckets:
            while not here.issuperset(numbers):
                here |= yield
            flat = torch.cat([gradient(learning[i]) for i in numbers]).div_(fabric.world_size)
            begun.append((numbers, flat, sums.start(flat)))
        while True:
            yield

    def again():
        taker[:] = [take()]
        next(taker[0])

    def finish():
        taker[0].send(set(learning))
        while begun:
            numbers, flat, work = begun.pop(0)
            work.wait()
            for i, mean in zip(numbers, flat.split([learning[i].numel() for i in numbers]), strict=True):
                learning[i].grad = mean.view_as(learning[i])
        again()

    for number, p in learning.items():
        p.register_post_accumulate_grad_hook(lambda p, number=number: taker[0].send({number}))
    again()
    return finish


answers.twin("buckets_of_all_dtypes_in_the_order_of_backward", {"def begin(bucket):": """
    place = {p: number for number, p in enumerate(members)}
    buckets.sort(key=lambda bucket: place[bucket[-1]], reverse=True)

    def begin(bucket):
"""})
answers.twin("means_put_into_the_gradients_that_are_there", {
    "p.grad = piece.view_as(p)": """
        if p.grad is None:
            p.grad = torch.empty_like(p)
        p.grad.copy_(piece.view_as(p))
    """,
})

answers.mistake("forgets_the_broadcast", {"broadcast(fabric, [*module.parameters(), *module.buffers()])": ""},
    "its own random values: broadcast rank 0's")
answers.mistake("forgets_the_buffers", {"[*module.parameters(), *module.buffers()]": "module.parameters()"},
    "4 ranks, a conv net with BatchNorm", "This buffer is still rank")
answers.mistake("broadcasts_the_state_dict",
    {"[*module.parameters(), *module.buffers()]": "module.state_dict().values()"},
    "3 ranks, layers used in turn", "It is not persistent, so state_dict() lacks it")
answers.mistake("broadcasts_only_buffers_of_floats", {
    "*module.buffers()]": "*[b for b in module.buffers() if b.is_floating_point()]]",
}, "4 ranks, a conv net with BatchNorm", "`1.num_batches_tracked`", "This buffer is still rank")
answers.mistake("broadcasts_only_what_learns", {
    "[*module.parameters(), *module.buffers()]":
    "[*[p for p in module.parameters() if p.requires_grad], *module.buffers()]",
}, "2 ranks, a frozen embedding", "This frozen weight is still rank 1's own")
answers.mistake("broadcasts_only_what_a_gradient_can_reach", {
    "[*module.parameters(), *module.buffers()]": "[p for p in module.parameters() if p.requires_grad]",
}, "4 ranks, a conv net with BatchNorm", "This buffer is still rank")
answers.mistake("averages_the_starts", {
    "broadcast(fabric, [*module.parameters(), *module.buffers()])": """
        for p in module.parameters():
            p.data = all_reduce(fabric, p.detach().clone()) / fabric.world_size
        broadcast(fabric, module.buffers())
    """,
}, "All ranks begin with rank 0's values")
answers.mistake("hooks_on_frozen_weights",
    {"[p for p in module.parameters() if p.requires_grad]": "list(module.parameters())"},
    "2 ranks, a frozen embedding", "takes no hook")
answers.mistake("counts_a_tied_weight_twice", {
    "[p for p in module.parameters() if p.requires_grad]":
    "[p for part in module.modules() for p in part.parameters(recurse=False) if p.requires_grad]",
}, "3 ranks, an embedding tied to the output", "the tied weight is added up twice a step")
answers.mistake("adds_up", {"flat / fabric.world_size": "flat"}, "times the mean gradient: divide by the number of ranks")
answers.mistake("divides_twice", {"flat / fabric.world_size": "flat / fabric.world_size**2"}, "The sum is divided twice by")
answers.mistake("divides_by_two", {"flat / fabric.world_size": "flat / 2"}, "3 ranks, an LSTM with a projection", "expected")
answers.mistake("adds_the_mean_to_the_gradient", {
    "p.grad = piece.view_as(p)": "p.grad = piece.view_as(p) + (0 if p.grad is None else p.grad)",
}, "2 ranks, a TransformerEncoderLayer", "expected")
answers.mistake("never_waits", {"work.wait()": ""},
    ("the sum over the ranks is missing", "left over from the step before", "expected", "isend"), chance=True)
answers.mistake("leaves_the_mean_in_the_bucket", {"p.grad = piece.view_as(p)": "pass"},
    "steps by its own gradient alone")
answers.mistake("averages_the_weights_after_backward", {
    "(torch.zeros_like(p) if p.grad is None else p.grad)": "p.detach()",
    "p.grad = piece.view_as(p)": "p.data.copy_(piece.view_as(p))",
}, "steps by its own gradient alone")
answers.mistake("always_in_float32", {
    ".flatten() for p in bucket])": ".flatten() for p in bucket]).float()",
    "piece.view_as(p)": "piece.view_as(p).to(p.dtype)",
}, "does each bucket have the dtype of its gradients?")
# torch.cat makes float64 of both, and no float32 weight takes such a gradient.
answers.mistake("dtypes_share_a_bucket", {
    """
        for dtype in dict.fromkeys(p.dtype for p in members):
            own = [p for p in members if p.dtype == dtype]
            buckets +=
    """: """
        for own in [members]:
            buckets +=
    """,
}, "2 ranks, weights of two dtypes", "A flat tensor has one dtype")
answers.mistake("dtypes_share_a_bucket_and_are_cast_back", {
    """
        for dtype in dict.fromkeys(p.dtype for p in members):
            own = [p for p in members if p.dtype == dtype]
            buckets +=
    """: """
        for own in [members]:
            buckets +=
    """,
    "piece.view_as(p)": "piece.view_as(p).to(p.dtype)",
}, "2 ranks, weights of two dtypes", "share a bucket, and travel in the wider one")
answers.mistake("a_missing_gradient_stays_missing", {
    "p.grad = piece.view_as(p)": "p.grad = None if p.grad is None else piece.view_as(p)",
}, "3 ranks, layers used in turn", "It has not moved, and one process moves it")
# A bucket that no hook has filled is never begun.
answers.mistake("finish_begins_nothing", {"fire(members)": "pass"}, "3 ranks, layers used in turn", "counts as zeros",
    chance=True)
answers.mistake("begins_in_the_order_in_which_buckets_are_full", {
    """
        while len(ends) < len(buckets) and fired.issuperset(buckets[len(ends)]):
            ends.append(begin(buckets[len(ends)]))
    """: """
        for number, bucket in enumerate(buckets):
            if number not in begun and fired.issuperset(bucket):
                begun.add(number)
                ends.append(begin(bucket))
    """,
    "buckets, fired, ends = [], set(), []": "buckets, fired, ends, begun = [], set(), [], set()",
    "ends.clear()": "ends.clear()\nbegun.clear()",
}, "3 ranks, layers used in turn", ("counts as zeros", "expected"), chance=True)
answers.mistake("stays_ready_for_ever", {"fired.clear()": ""}, ("left over from the step before", "A gradient"), chance=True)
answers.mistake("keeps_the_ends_of_the_first_step", {"ends.clear()": ""}, "a gradient left over from the step before")
answers.mistake("one_bucket_for_everything", {"cap_bytes)]": "1 << 60)]"}, "takes part in 1 all-reduce a step; expected")
answers.mistake("a_bucket_for_each_tensor", {"cap_bytes)]": "1)]"}, "takes part in 12 all-reduces a step; expected")
answers.mistake("counts_numbers_for_bytes", {"[p.nbytes for p in own]": "[p.numel() for p in own]"},
    "a step; expected 2: 12 gradients")
answers.mistake("begins_after_backward", {"lambda p: fire([p])": "lambda p: None"},
    "no message travels before backward has ended")
answers.mistake("waits_in_the_hook", {
    "ends.append(begin(buckets[len(ends)]))": """
        ends.append(begin(buckets[len(ends)]))
        ends[-1]()
    """,
}, "backward stands still while messages travel")
answers.mistake("each_bucket_waits_for_the_one_before", {
    "ends.append(begin": """
        if ends:
            ends[-1]()
        ends.append(begin
    """,
}, "backward stands still while messages travel")
answers.mistake("begins_with_the_first_hook_of_a_bucket",
    {"and fired.issuperset(buckets[len(ends)])": "and not fired.isdisjoint(buckets[len(ends)])"},
    "expected")
answers.mistake("returns_nothing", {"return finish": "return None"}, "expected a function, the finish()")
answers.mistake("finishes_at_once", {"return finish": "return finish()"}, "expected a function, the finish()")
answers.mistake("returns_the_module", {"return finish": "return module"}, "expected a function, the finish()")
