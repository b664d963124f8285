"""Exercise 11.3: each tensor's all-reduce begins in its hook, inside backward."""

from __future__ import annotations

from tests.checks.mutants import Answers
from worldsize.fabric.background import Background
from worldsize.fabric.collectives import broadcast
from worldsize.pytorch.timed_network import network, train

answers = Answers("overlapped")


def hooked(fabric, task, start=broadcast, pick=None, before=None, after=None, forget=False):
    model = network(fabric, task)
    start(fabric, model.parameters())
    sums, begun = Background(fabric), []
    n = fabric.world_size

    def ready(p):
        if before:
            before(p, sums)
        begun.append((p, sums.start(p.grad)))

    members = pick(model) if pick else [p for p in model.parameters() if p.requires_grad]
    for p in members:
        p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        loss.backward()
        for p, work in begun:
            work.wait()
            (after or (lambda p: p.grad.div_(n)))(p)
        if not forget:
            begun.clear()

    return train(fabric, task, model, gradients)


@answers.is_wrong("each from random weights of its own")
def forgets_the_broadcast(fabric, task):
    return hooked(fabric, task, start=lambda f, p: None)


@answers.is_wrong("The step is 3 times the mean gradient")
def adds_up(fabric, task):
    return hooked(fabric, task, after=lambda p: None)


@answers.is_wrong("divided twice by the number of ranks")
def divides_twice(fabric, task):
    return hooked(fabric, task, before=lambda p, sums: p.grad.div_(fabric.world_size))


@answers.is_wrong("Rank 0 steps by its own gradient alone", "weights that are alike stay alike")
def averages_the_weights(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums, begun = Background(fabric), []

    def ready(p):
        begun.append((p, sums.start(p.data)))

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        loss.backward()
        for p, work in begun:
            work.wait()
            p.data /= fabric.world_size
        begun.clear()

    return train(fabric, task, model, gradients)


@answers.is_wrong("on rank 0 backward stands still while messages travel", "wait for it after backward")
def waits_in_the_hook(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums = Background(fabric)

    def ready(p):
        sums.start(p.grad).wait()
        p.grad /= fabric.world_size

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(ready)
    return train(fabric, task, model, lambda loss: loss.backward())


@answers.is_wrong("no message travels before backward has ended")
def begins_after_backward(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums = Background(fabric)

    def gradients(loss):
        loss.backward()
        members = [p for p in model.parameters() if p.grad is not None]
        for work in [sums.start(p.grad) for p in members]:
            work.wait()
        for p in members:
            p.grad /= fabric.world_size

    return train(fabric, task, model, gradients)


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


@answers.is_wrong("layer 1 is frozen", "it can have no hook")
def hooks_on_frozen(fabric, task):
    return hooked(fabric, task, pick=lambda model: list(model.parameters()))


@answers.is_wrong("layers 1 and 2 are tied", "The step is 2 times the mean gradient", "share one tensor")
def hooks_tied_twice(fabric, task):
    """The second sum adds up what is a sum already."""
    model = network(fabric, task)
    broadcast(fabric, model.parameters())
    sums, begun = Background(fabric), []

    def ready(p):
        begun.append((p, sums.start(p.grad)))

    for p in model.weights:
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(ready)

    def gradients(loss):
        loss.backward()
        for _, work in begun:
            work.wait()
        done = {p for p, _ in begun}
        for p in done:
            p.grad /= fabric.world_size
        begun.clear()

    return train(fabric, task, model, gradients)


@answers.is_wrong("layer 1 is frozen", "still rank 1's own")
def broadcasts_only_what_learns(fabric, task):
    return hooked(fabric, task, start=lambda f, ps: broadcast(f, [p for p in ps if p.requires_grad]))


@answers.is_wrong("2 ranks, 3 steps", "left over from the step before", chance=True)
def forgets_to_forget(fabric, task):
    """Divides the handles' tensors of all earlier steps again."""
    return hooked(fabric, task, forget=True)


@answers.is_right
def plain(fabric, task):
    return hooked(fabric, task)


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
