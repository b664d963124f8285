"""Exercise 11.2: each tensor's all-reduce begins in its hook, inside backward."""

import functools
import threading

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.background import Background
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import network, train

answers = Answers("overlapped")


@answers.is_right
def plain(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums, begun = Background(fabric), []

    def ready(p):
        begun.append((p, sums.start(p.grad)))

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        loss.backward()
        for p, work in begun:
            work.wait()
            p.grad /= fabric.world_size
        begun.clear()

    return train(fabric, task, model, gradients)


@answers.is_right
def divides_first_and_needs_no_list_of_tensors(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, [p.data for p in model.parameters()])
    sums = Background(fabric)
    works = {}

    class Ready:
        def __call__(self, p):
            p.grad.mul_(1 / fabric.world_size)
            works[p] = sums.start(p.grad)

    for p in filter(lambda p: p.requires_grad, model.parameters()):
        p.register_post_accumulate_grad_hook(Ready())

    def gradients(loss):
        loss.backward()
        while works:
            works.popitem()[1].wait()

    return train(fabric, task, model, gradients)


@answers.is_right
def waits_at_the_end_of_backward_as_ddp_does(fabric, task):
    """Autograd calls what was queued in a hook when backward has ended."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums, begun = Background(fabric), {}

    def finish():
        for p, work in begun.items():
            work.wait()
            p.grad /= fabric.world_size
        begun.clear()

    def ready(p):
        if not begun:
            torch.autograd.Variable._execution_engine.queue_callback(finish)
        begun[p] = sums.start(p.grad)

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(ready)
    return train(fabric, task, model, lambda loss: loss.backward())


@answers.is_right
def with_the_hooks_of_the_accumulating_nodes(fabric, task):
    """As programs did before torch 2.1: the node that adds to p.grad has a hook, and has to be kept."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums, begun, nodes = Background(fabric), [], []

    def ready(p, *_):
        begun.append((p, sums.start(p.grad)))

    for p in model.parameters():
        if p.requires_grad:
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            node.register_hook(functools.partial(ready, p))
            nodes.append(node)

    def gradients(loss):
        loss.backward()
        while begun:
            p, work = begun.pop()
            work.wait()
            p.grad = p.grad / fabric.world_size

    return train(fabric, task, model, gradients)


@answers.is_right
def with_a_thread_of_its_own(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    carriers = []

    def carry(p, earlier):
        for one in earlier:
            one.join()
        all_reduce(fabric, p.grad)

    def ready(p):
        carriers.append(threading.Thread(target=carry, args=(p, carriers[-1:])))
        carriers[-1].start()

    members = [p for p in model.parameters() if p.requires_grad]
    for p in members:
        p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        loss.backward()
        for carrier in carriers:
            carrier.join()
        carriers.clear()
        for p in members:
            if p.grad is not None:
                p.grad.div_(fabric.world_size)

    return train(fabric, task, model, gradients)


# Sums are carried out in their order: after the last one all are there.
answers.twin("waits_for_the_last_alone", {
    """
        for p, work in begun:
            work.wait()
    """: """
        begun[-1][1].wait()
        for p, _ in begun:
    """,
})
answers.mistake("forgets_the_broadcast", {"broadcast(fabric, model.parameters())": ""},
    "each from random weights of its own")
answers.mistake("adds_up", {"p.grad /= fabric.world_size": ""}, "The step is 3 times the mean gradient")
answers.mistake("divides_twice", {"begun.append": "p.grad.div_(fabric.world_size)\nbegun.append"},
    "divided twice by the number of ranks")
answers.mistake("averages_the_weights", {"sums.start(p.grad)": "sums.start(p.data)", "p.grad /=": "p.data /="},
    "Rank 0 steps by its own gradient alone", "averaging equal weights changes nothing")
answers.mistake("waits_in_the_hook", {
    "begun.append((p, sums.start(p.grad)))": """
        work = sums.start(p.grad)
        work.wait()
        begun.append((p, work))
    """,
}, "on rank 0 backward stands still while messages travel", "wait for it after backward")
answers.mistake("begins_after_backward", {
    "begun.append((p, sums.start(p.grad)))": "begun.append(p)",
    """
        for p, work in begun:
            work.wait()
    """: """
        for p, work in [(p, sums.start(p.grad)) for p in begun]:
            work.wait()
    """,
}, "no message travels before backward has ended")


@answers.is_wrong("3 ranks, all layers learn", "expected")
def never_waits(fabric, task):
    """The step is taken before the sums have arrived."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums, begun = Background(fabric), []

    def ready(p):
        p.grad /= fabric.world_size
        begun.append(sums.start(p.grad))

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        begun.clear()
        loss.backward()

    result = train(fabric, task, model, gradients)
    for work in begun:
        work.wait()
    return result


answers.mistake("hooks_on_frozen", {
    """
        if p.requires_grad:
            p.register
    """: """
        if True:
            p.register
    """,
}, "layer 1 is frozen", "it takes no hook")
# The second sum adds up what is a sum already.
answers.mistake("hooks_tied_twice", {
    "in model.parameters():": "in model.weights:",
    """
        for p, work in begun:
            work.wait()
            p.grad /= fabric.world_size
    """: """
        for _, work in begun:
            work.wait()
        for p in {p for p, _ in begun}:
            p.grad /= fabric.world_size
    """,
}, "layers 1 and 2 are tied", "The step is 2 times the mean gradient", "share one tensor")
answers.mistake("broadcasts_only_what_learns",
    {"broadcast(fabric, model.parameters())": "broadcast(fabric, [p for p in model.parameters() if p.requires_grad])"},
    "layer 1 is frozen", "still rank 1's own")
# Divides the handles' tensors of all earlier steps again.
answers.mistake("forgets_to_forget", {"begun.clear()": ""},
    "2 ranks, 3 steps", ("left over from the step before", "before wait()"), chance=True)
answers.mistake("each_hook_waits_for_the_one_before", {
    "begun.append": """
        if begun:
            begun[-1][1].wait()
        begun.append
    """,
}, "slow links: the weights are right, but on rank 0 backward stands still while messages travel")
# At most two sums are on their way.
answers.mistake("the_third_hook_waits_for_the_first", {
    "begun.append": """
        if len(begun) > 1:
            begun[-2][1].wait()
        begun.append
    """,
}, "slow links: the weights are right, but on rank 0 backward stands still while messages travel")
answers.mistake("adds_up_in_the_hook_itself",
    {"begun.append((p, sums.start(p.grad)))": "all_reduce(fabric, p.grad).div_(fabric.world_size)"},
    "slow links: the weights are right, but on rank 0 backward stands still while messages travel")
answers.mistake("the_first_hook_alone_begins_a_sum", {
    "sums, begun = Background(fabric), []": "sums, begun, later = Background(fabric), [], []",
    "begun.append((p, sums.start(p.grad)))": """
        if begun:
            later.append(p)
        else:
            begun.append((p, sums.start(p.grad)))
    """,
    "loss.backward()": """
        loss.backward()
        begun.extend((p, sums.start(p.grad)) for p in later)
        later.clear()
    """,
}, "the sum of tensor 2 had not begun when the work after its last gradient was over")
answers.mistake("every_hook_begins_the_sum_of_the_one_before", {
    "sums, begun = Background(fabric), []": "sums, begun, held = Background(fabric), [], []",
    "begun.append((p, sums.start(p.grad)))": """
        begun.extend((earlier, sums.start(earlier.grad)) for earlier in held)
        held[:] = [p]
    """,
    "loss.backward()": """
        loss.backward()
        begun.extend((p, sums.start(p.grad)) for p in held)
        held.clear()
    """,
}, "the sum of tensor 3 had not begun when the work after its last gradient was over")
answers.mistake("every_second_hook_begins_two_sums", {
    "sums, begun = Background(fabric), []": "sums, begun, held = Background(fabric), [], []",
    "begun.append((p, sums.start(p.grad)))": """
        held.append(p)
        if len(held) == 2 or not begun:
            begun.extend((p, sums.start(p.grad)) for p in held)
            held.clear()
    """,
    "loss.backward()": """
        loss.backward()
        begun.extend((p, sums.start(p.grad)) for p in held)
        held.clear()
    """,
}, "the sum of tensor 2 had not begun when the work after its last gradient was over")


def declared(fabric, task, step):
    """Backward is over at once; `step(number, work, sums)` then says when the declared work and the sums take place."""
    model = network(fabric, {**task, "backward_s": 0.0})
    broadcast(fabric, model.parameters())
    background, numbers = Background(fabric), iter(range(task["steps"]))
    layers, seconds = len(task["sizes"]) - 1, task["backward_s"]

    def work(times=layers, of=seconds):
        for _ in range(times if seconds else 0):
            fabric.compute(of)

    def gradients(loss):
        loss.backward()
        members = [p for p in model.parameters() if p.grad is not None][::-1]

        def sums():
            for begun in [background.start(p.grad) for p in members]:
                begun.wait()

        step(next(numbers), work, sums)
        for p in members:
            p.grad /= fabric.world_size

    return train(fabric, task, model, gradients)


@answers.is_wrong("on rank 0 no message travels before backward has ended")
def declares_the_work_when_all_messages_are_over(fabric, task):
    def step(number, work, sums):
        sums()
        work()

    return declared(fabric, task, step)


@answers.is_wrong("on rank 0 no message travels before backward has ended")
def declares_the_work_before_all_messages(fabric, task):
    def step(number, work, sums):
        work()
        sums()

    return declared(fabric, task, step)


@answers.is_wrong("rank 0 did the declared work of a layer's backward 16 times; expected 8")
def declares_the_work_before_the_messages_and_again_after_them(fabric, task):
    def step(number, work, sums):
        work()
        sums()
        work()

    return declared(fabric, task, step)


def beside(work, sums):
    thread = threading.Thread(target=work)
    thread.start()
    sums()
    thread.join()


@answers.is_wrong("a gradient is ready after its layer's work", chance=True)
def declares_the_work_beside_the_messages(fabric, task):
    """The messages have nothing to do with it: all of them leave at once."""
    return declared(fabric, task, lambda number, work, sums: beside(work, sums))


@answers.is_wrong("s of work for a layer; the task has 0.05 s", chance=True)
def declares_half_of_the_seconds(fabric, task):
    def step(number, work, sums):
        work(of=task["backward_s"] / 2)
        sums()

    return declared(fabric, task, step)


@answers.is_wrong("s of work for a layer; the task has 0.05 s", chance=True)
def declares_one_long_work_and_no_seconds_for_the_rest(fabric, task):
    def step(number, work, sums):
        work(times=1, of=4 * task["backward_s"])
        beside(lambda: work(times=3, of=0.0), sums)

    return declared(fabric, task, step)


@answers.is_wrong("on rank 0 no message travels before backward has ended")
def sums_of_a_step_beside_the_work_of_the_next(fabric, task):
    def step(number, work, sums):
        if number == 0:
            work()
        if number == task["steps"] - 1:
            sums()
        else:
            beside(work, sums)

    return declared(fabric, task, step)


answers.mistake("one_step_alone_overlaps", {
    "sums, begun = Background(fabric), []": "sums, begun, steps = Background(fabric), [], []",
    "begun.append((p, sums.start(p.grad)))": """
        begun.append((p, sums.start(p.grad)))
        if len(steps) > 1:
            begun[-1][1].wait()
    """,
    "loss.backward()": "steps.append(loss)\nloss.backward()",
}, "on rank 0 backward stands still while messages travel")
answers.mistake("adds_up_a_copy", {"sums.start(p.grad)": "sums.start(p.grad.clone())"},
    "steps by its own gradient, divided by 3: the sum over the ranks is missing", "p.grad itself, not a copy")
answers.mistake("has_a_background_for_each_tensor", {"sums.start(p.grad)": "Background(fabric).start(p.grad)"},
    "3 ranks, all layers learn", "Does one Background", chance=True)
