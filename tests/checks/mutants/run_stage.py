"""Exercise 3.1: one stage of a model that is split over ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from tests.checks.mutants import Answers
from worldsize.pytorch.stages import build

answers = Answers("run_stage")


def stage(fabric, part, schedules, go_forward=None, go_backward=None):
    """The plain way, with either half replaced."""
    layers, kept, handles = build(part), {}, []
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            kept[k] = (go_forward or forward)(fabric, part, layers, handles, k)
        else:
            (go_backward or backward)(fabric, handles, *kept.pop(k))
    for handle in handles:
        handle.wait()
    return [p.grad for p in layers.parameters()]


def forward(fabric, part, layers, handles, k, share=None):
    x = part["xs"][k]
    if fabric.rank > 0:
        fabric.recv(x, fabric.rank - 1)
        x.requires_grad_()
    out = layers(x)
    if fabric.rank < fabric.world_size - 1:
        handles.append(fabric.isend(out, fabric.rank + 1))
        return x, out
    return x, cross_entropy(out, part["ys"][k]) / (share or len(part["ys"]))


def backward(fabric, handles, x, out):
    grad = None
    if fabric.rank < fabric.world_size - 1:
        grad = torch.empty_like(out)
        fabric.recv(grad, fabric.rank + 1)
    out.backward(grad)
    if fabric.rank > 0:
        handles.append(fabric.isend(x.grad, fabric.rank - 1))


@answers.is_wrong("It is 4 times too large: a batch's loss is the mean of its 4 micro-batches' losses")
def adds_the_micro_batches_losses(fabric, part, schedules):
    return stage(fabric, part, schedules, lambda *args: forward(*args, share=1))


@answers.is_wrong("This is micro-batch 3's gradient alone: those of all micro-batches have to add up")
def clears_the_gradients_before_each_backward(fabric, part, schedules):
    layers, kept, handles = build(part), {}, []
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            kept[k] = forward(fabric, part, layers, handles, k)
        else:
            layers.zero_grad()
            backward(fabric, handles, *kept.pop(k))
    for handle in handles:
        handle.wait()
    return [p.grad for p in layers.parameters()]


@answers.is_wrong("deadlock: rank 0 waits for 1 (send), rank 1 waits for 0 (send)", "Receive before you wait")
def waits_in_every_send(fabric, part, schedules):
    layers, kept, last = build(part), {}, fabric.rank == fabric.world_size - 1
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            x = part["xs"][k]
            if fabric.rank > 0:
                fabric.recv(x, fabric.rank - 1)
                x.requires_grad_()
            out = layers(x)
            if not last:
                fabric.send(out, fabric.rank + 1)
            kept[k] = x, cross_entropy(out, part["ys"][k]) / len(part["ys"]) if last else out
        else:
            x, out = kept.pop(k)
            grad = None if last else torch.empty_like(out)
            if not last:
                fabric.recv(grad, fabric.rank + 1)
            out.backward(grad)
            if fabric.rank > 0:
                fabric.send(x.grad, fabric.rank - 1)
    return [p.grad for p in layers.parameters()]


@answers.is_wrong("2 ranks, 4 micro-batches", "keep each one's input and output under its number k")
def keeps_one_micro_batch_alone(fabric, part, schedules):
    """Enough where there is only one."""
    latest = {}

    def go_forward(*given):
        latest["kept"] = forward(*given)
        return latest["kept"]

    return stage(fabric, part, schedules, go_forward, lambda fabric, handles, x, out: backward(fabric, handles, *latest["kept"]))


@answers.is_wrong("'NoneType'")
def forgets_that_the_input_needs_a_gradient(fabric, part, schedules):
    def go_forward(fabric, part, layers, handles, k):
        x = part["xs"][k]
        if fabric.rank > 0:
            fabric.recv(x, fabric.rank - 1)
        out = layers(x)
        if fabric.rank < fabric.world_size - 1:
            handles.append(fabric.isend(out, fabric.rank + 1))
            return x, out
        return x, cross_entropy(out, part["ys"][k]) / len(part["ys"])

    def go_backward(fabric, handles, x, out):
        grad = None
        if fabric.rank < fabric.world_size - 1:
            grad = torch.empty_like(out)
            fabric.recv(grad, fabric.rank + 1)
        out.backward(grad)
        if fabric.rank > 0:
            handles.append(fabric.isend(x.grad.clone(), fabric.rank - 1))

    return stage(fabric, part, schedules, go_forward, go_backward)


@answers.is_wrong("Rank 2 has the right gradients: does it send back the gradient of its input")
def goes_backward_from_ones(fabric, part, schedules):
    def go_backward(fabric, handles, x, out):
        last = fabric.rank == fabric.world_size - 1
        if not last:
            fabric.recv(torch.empty_like(out), fabric.rank + 1)
        out.backward(None if last else torch.ones_like(out))
        if fabric.rank > 0:
            handles.append(fabric.isend(x.grad, fabric.rank - 1))

    return stage(fabric, part, schedules, None, go_backward)


@answers.is_wrong("Rank 2 has the right gradients", "for the right micro-batch")
def goes_backward_with_the_oldest_micro_batch(fabric, part, schedules):
    layers, kept, handles = build(part), [], []
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            kept.append(forward(fabric, part, layers, handles, k))
        else:
            x, out = kept.pop(0 if fabric.rank < fabric.world_size - 1 else -1)
            backward(fabric, handles, x, out)
    for handle in handles:
        handle.wait()
    return [p.grad for p in layers.parameters()]


@answers.is_wrong("the gradients are right, but rank 0 went backward as its action 1", "its schedule says forward: F0 F1 F2 F3")
def takes_one_micro_batch_at_a_time(fabric, part, schedules):
    m = len(part["xs"])
    one_by_one = [action for k in range(m) for action in (("forward", k), ("backward", k))]
    return stage(fabric, part, [one_by_one] * fabric.world_size)


@answers.is_wrong("the gradients are right, but rank 1 went", "where its schedule says")
def goes_forward_with_all_first_whatever_is_asked(fabric, part, schedules):
    micros = range(len(part["xs"]))
    all_first = [("forward", k) for k in micros] + [("backward", k) for k in micros]
    return stage(fabric, part, [all_first] * fabric.world_size)


@answers.is_wrong("the gradients are right, but rank 1 sent rank 2 2 messages", "one for each micro-batch")
def sends_the_activation_twice(fabric, part, schedules):
    def go_forward(fabric, part, layers, handles, k):
        x, out = forward(fabric, part, layers, handles, k)
        if 0 < fabric.rank < fabric.world_size - 1:
            handles.append(fabric.isend(out, fabric.rank + 1, tag=9))
        if fabric.rank > 1:
            fabric.recv(torch.empty_like(x), fabric.rank - 1, tag=9)
        return x, out

    return stage(fabric, part, schedules, go_forward)


@answers.is_wrong("the gradient of layer 0's weight is None: no backward reached this stage's layers")
def only_the_last_stage_goes_backward(fabric, part, schedules):
    def go_backward(fabric, handles, x, out):
        if fabric.rank == fabric.world_size - 1:
            out.backward()

    return stage(fabric, part, schedules, None, go_backward)


@answers.is_wrong("no process group is here")
def leaves_the_fabric(fabric, part, schedules):
    dist.init_process_group("gloo")

    class Framework:
        rank, world_size = fabric.rank, fabric.world_size
        isend = staticmethod(lambda x, to: dist.isend(x.detach(), to))
        recv = staticmethod(dist.recv)

    if fabric.world_size == 1:
        return stage(fabric, part, schedules)
    return stage(Framework, part, schedules)


@answers.is_wrong("expected a list of", "got None (does the function return it?)")
def forgets_to_return(fabric, part, schedules):
    stage(fabric, part, schedules)


@answers.is_wrong("ended with an isend that nobody waited for")
def never_waits(fabric, part, schedules):
    layers, kept, handles = build(part), {}, []
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            kept[k] = forward(fabric, part, layers, handles, k)
        else:
            backward(fabric, handles, *kept.pop(k))
    return [p.grad for p in layers.parameters()]


@answers.is_wrong("ended with an isend that nobody waited for")
def waits_for_its_activations_alone(fabric, part, schedules):
    return stage(fabric, part, schedules, None, lambda fabric, handles, x, out: backward(fabric, [], x, out))


@answers.is_wrong("deadlock: rank 0 waits for 1 (send), rank 1 waits for 0 (send)", "Receive before you wait")
def waits_for_the_message_before(fabric, part, schedules):
    """One on its way at a time: enough for some schedules, too few where the first stage is far ahead."""

    class OneOnItsWay(list):
        def append(self, handle):
            for earlier in self:
                earlier.wait()
            super().append(handle)

    layers, kept, handles = build(part), {}, OneOnItsWay()
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            kept[k] = forward(fabric, part, layers, handles, k)
        else:
            backward(fabric, handles, *kept.pop(k))
    for handle in handles:
        handle.wait()
    return [p.grad for p in layers.parameters()]


@answers.is_wrong("rank 1 changed the tensor of its isend to rank 0 before wait()")
def one_buffer_for_all_gradients_on_their_way(fabric, part, schedules):
    buffers = {}

    def go_backward(fabric, handles, x, out):
        grad = None
        if fabric.rank < fabric.world_size - 1:
            grad = torch.empty_like(out)
            fabric.recv(grad, fabric.rank + 1)
        out.backward(grad)
        if fabric.rank > 0:
            buffer = buffers.setdefault("gradient", torch.empty_like(x.grad))
            buffer.copy_(x.grad)
            handles.append(fabric.isend(buffer, fabric.rank - 1))

    return stage(fabric, part, schedules, None, go_backward)


@answers.is_wrong("3 ranks, 4 micro-batches", "modified by an inplace operation")
def receives_every_activation_into_one_tensor(fabric, part, schedules):
    buffer = part["xs"][0]

    def go_forward(fabric, part, layers, handles, k):
        if fabric.rank == 0:
            return forward(fabric, part, layers, handles, k)
        fabric.recv(buffer, fabric.rank - 1)
        x = buffer.detach().requires_grad_()
        out = layers(x)
        if fabric.rank < fabric.world_size - 1:
            handles.append(fabric.isend(out, fabric.rank + 1))
            return x, out
        return x, cross_entropy(out, part["ys"][k]) / len(part["ys"])

    return stage(fabric, part, schedules, go_forward)


@answers.is_wrong('It is 3 times too large: reduction="sum" adds up the losses of the 3 images, and the loss is their mean')
def adds_up_the_losses_of_the_images(fabric, part, schedules):
    def go_forward(fabric, part, layers, handles, k):
        if fabric.rank < fabric.world_size - 1:
            return forward(fabric, part, layers, handles, k)
        x = part["xs"][k]
        if fabric.rank > 0:
            fabric.recv(x, fabric.rank - 1)
            x.requires_grad_()
        return x, cross_entropy(layers(x), part["ys"][k], reduction="sum") / len(part["ys"])

    return stage(fabric, part, schedules, go_forward)


@answers.is_wrong("It is 4 times too small: was it divided by m = 4 twice")
def divides_the_gradients_too(fabric, part, schedules):
    return [grad / len(part["xs"]) for grad in stage(fabric, part, schedules)]


@answers.is_wrong("isend on rank 2: expected a torch tensor or a NumPy array, got None. A .grad is None until a backward")
def sends_a_gradient_that_nobody_asked_for(fabric, part, schedules):
    def go_forward(fabric, part, layers, handles, k):
        x = part["xs"][k]
        if fabric.rank > 0:
            fabric.recv(x, fabric.rank - 1)
        out = layers(x)
        if fabric.rank < fabric.world_size - 1:
            handles.append(fabric.isend(out, fabric.rank + 1))
            return x, out
        return x, cross_entropy(out, part["ys"][k]) / len(part["ys"])

    return stage(fabric, part, schedules, go_forward)


@answers.is_wrong("isend to rank 3 on rank 2: expected a rank from 0 to 2", "Rank 0 is the first and rank 2 the last")
def sends_on_from_the_last_stage(fabric, part, schedules):
    def go_forward(fabric, part, layers, handles, k):
        x = part["xs"][k]
        if fabric.rank > 0:
            fabric.recv(x, fabric.rank - 1)
            x.requires_grad_()
        out = layers(x)
        handles.append(fabric.isend(out, fabric.rank + 1))
        return x, out

    return stage(fabric, part, schedules, go_forward)


@answers.is_wrong("4 micro-batches of float64", "expected float32", "got float64")
def receives_gradients_as_float32(fabric, part, schedules):
    def go_backward(fabric, handles, x, out):
        grad = None
        if fabric.rank < fabric.world_size - 1:
            grad = torch.empty(out.shape)
            fabric.recv(grad, fabric.rank + 1)
        out.backward(grad)
        if fabric.rank > 0:
            handles.append(fabric.isend(x.grad, fabric.rank - 1))

    return stage(fabric, part, schedules, None, go_backward)


@answers.is_right
def the_plain_way(fabric, part, schedules):
    return stage(fabric, part, schedules)


@answers.is_right
def gradients_by_hand_with_tags(fabric, part, schedules):
    """torch.autograd.grad in the place of backward, tags for micro-batches, buffers of its own."""
    layers = build(part)
    n, rank, m = fabric.world_size, fabric.rank, len(part["xs"])
    weights = tuple(layers.parameters())
    sums = [torch.zeros_like(w) for w in weights]
    inputs, outputs, on_their_way = [None] * m, [None] * m, []
    for way, k in schedules[rank]:
        if way == "forward":
            x = part["xs"][k].clone()
            if rank:
                fabric.recv(x, frm=rank - 1, tag=k)
            inputs[k] = x.requires_grad_()
            outputs[k] = layers(inputs[k])
            if rank + 1 < n:
                on_their_way.append(fabric.isend(outputs[k].detach(), to=rank + 1, tag=k))
            continue
        if rank + 1 < n:
            arrived = torch.zeros(outputs[k].shape, dtype=outputs[k].dtype)
            fabric.recv(arrived, frm=rank + 1, tag=m + k)
            found = torch.autograd.grad(outputs[k], (inputs[k], *weights), arrived)
        else:
            loss = cross_entropy(outputs[k], part["ys"][k], reduction="sum") / (m * len(part["ys"][k]))
            found = torch.autograd.grad(loss, (inputs[k], *weights))
        if rank:
            on_their_way.append(fabric.isend(found[0], to=rank - 1, tag=m + k))
        sums = [a + b for a, b in zip(sums, found[1:], strict=True)]
    [handle.wait() for handle in on_their_way]
    return tuple(sums)


@answers.is_right
def numbers_the_retained_gradients(fabric, part, schedules):
    """Keeps everything in two dicts and lets the sum of losses go backward through `(out * grad).sum()`."""
    layers = build(part)
    xs, outs, handles = {}, {}, []
    first, last = fabric.rank == 0, fabric.rank == fabric.world_size - 1
    for action in schedules[fabric.rank]:
        k = action[1]
        if action[0] == "backward":
            goal = outs[k]
            if not last:
                grad = goal.detach().clone()
                fabric.recv(grad, fabric.rank + 1)
                goal = (goal * grad).sum()
            goal.backward()
            if not first:
                handles += [fabric.isend(xs[k].grad, fabric.rank - 1)]
        else:
            xs[k] = part["xs"][k]
            if not first:
                fabric.recv(xs[k], fabric.rank - 1)
            xs[k].requires_grad = True
            outs[k] = layers(xs[k])
            if last:
                outs[k] = cross_entropy(outs[k], part["ys"][k]).div(len(part["xs"]))
            else:
                handles += [fabric.isend(outs[k], fabric.rank + 1)]
    for handle in handles:
        handle.wait()
    return [p.grad.clone() for p in layers.parameters()]


class _Done:
    def wait(self):
        pass


class _Blocking:
    """A fabric whose isend waits at once, towards later stages or towards earlier ones."""

    def __init__(self, fabric, forwards):
        self.rank, self.world_size, self.recv = fabric.rank, fabric.world_size, fabric.recv
        self.fabric, self.forwards = fabric, forwards

    def isend(self, x, to):
        if (to > self.rank) == self.forwards:
            self.fabric.send(x, to)
            return _Done()
        return self.fabric.isend(x, to)


@answers.is_right
def blocks_in_every_send_of_an_activation(fabric, part, schedules):
    """No two stages can block each other: what it costs in time is another question."""
    return stage(_Blocking(fabric, forwards=True), part, schedules)


@answers.is_right
def blocks_in_every_send_of_a_gradient(fabric, part, schedules):
    return stage(_Blocking(fabric, forwards=False), part, schedules)


@answers.is_right
def computes_its_forward_again_in_the_backward(fabric, part, schedules):
    """Keeps inputs alone: what recomputation does."""
    layers, xs, handles = build(part), {}, []
    last = fabric.rank == fabric.world_size - 1
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            xs[k] = part["xs"][k]
            if fabric.rank > 0:
                fabric.recv(xs[k], fabric.rank - 1)
            if not last:
                with torch.no_grad():
                    handles.append(fabric.isend(layers(xs[k]), fabric.rank + 1))
            continue
        x = xs.pop(k).requires_grad_()
        out = layers(x)
        if last:
            (cross_entropy(out, part["ys"][k]) / len(part["ys"])).backward()
        else:
            grad = torch.empty_like(out)
            fabric.recv(grad, fabric.rank + 1)
            out.backward(grad)
        if fabric.rank > 0:
            handles.append(fabric.isend(x.grad, fabric.rank - 1))
    while handles:
        handles.pop().wait()
    return [p.grad for p in layers.parameters()]
