"""Exercise 3.1: one stage of a model that is split over ranks."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from tests.checks.mutants import Answers
from worldsize.pytorch.stages import build

answers = Answers("run_stage")


@answers.is_right
def the_plain_way(fabric, part, schedules):
    layers, kept, handles = build(part, fabric), {}, []
    first, last = fabric.rank == 0, fabric.rank == fabric.world_size - 1
    for way, k in schedules[fabric.rank]:
        if way == "forward":
            x = part["xs"][k]
            if not first:
                fabric.recv(x, fabric.rank - 1)
                x.requires_grad_()
            out = layers(x)
            if last:
                out = cross_entropy(out, part["ys"][k]) / len(part["ys"])
            else:
                handles.append(fabric.isend(out, fabric.rank + 1))
            kept[k] = x, out
        else:
            x, out = kept.pop(k)
            grad = None if last else torch.empty_like(out)
            if not last:
                fabric.recv(grad, fabric.rank + 1)
            out.backward(grad)
            if not first:
                handles.append(fabric.isend(x.grad, fabric.rank - 1))
    for handle in handles:
        handle.wait()
    return [p.grad for p in layers.parameters()]


@answers.is_right
def gradients_by_hand_with_tags(fabric, part, schedules):
    """torch.autograd.grad in the place of backward, tags for micro-batches, buffers of its own."""
    layers = build(part, fabric)
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
    layers = build(part, fabric)
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


# No two stages can block each other: what it costs in time is another question.
answers.twin("blocks_in_every_send_of_an_activation",
    {"handles.append(fabric.isend(out, fabric.rank + 1))": "fabric.send(out, fabric.rank + 1)"})
answers.twin("blocks_in_every_send_of_a_gradient",
    {"handles.append(fabric.isend(x.grad, fabric.rank - 1))": "fabric.send(x.grad, fabric.rank - 1)"})


@answers.is_right
def computes_its_forward_again_in_the_backward(fabric, part, schedules):
    """Keeps inputs alone: what recomputation does."""
    layers, xs, handles = build(part, fabric), {}, []
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


answers.mistake("adds_the_micro_batches_losses", {' / len(part["ys"])': ""},
    "It is 4 times too large: a batch's loss is the mean of its 4 micro-batches' losses")
answers.mistake("clears_the_gradients_before_each_backward",
    {"out.backward(grad)": "layers.zero_grad()\nout.backward(grad)"},
    "This is micro-batch 3's gradient alone: add up the gradients of all micro-batches")
answers.mistake("waits_in_every_send", {
    "handles.append(fabric.isend(out, fabric.rank + 1))": "fabric.send(out, fabric.rank + 1)",
    "handles.append(fabric.isend(x.grad, fabric.rank - 1))": "fabric.send(x.grad, fabric.rank - 1)",
}, "deadlock: rank 0 waits for 1 (send), rank 1 waits for 0 (send)", "Receive before you wait")
# Enough where there is only one.
answers.mistake("keeps_one_micro_batch_alone", {
    "kept[k] = x, out": "kept = x, out",
    "x, out = kept.pop(k)": "x, out = kept",
}, "2 ranks, 4 micro-batches", "keep each one's input and output under its number k")
answers.mistake("forgets_that_the_input_needs_a_gradient", {
    "x.requires_grad_()": "",
    "isend(x.grad,": "isend(x.grad.clone(),",
}, "'NoneType'")
answers.mistake("goes_backward_from_ones",
    {"out.backward(grad)": "out.backward(None if last else torch.ones_like(out))"},
    "Rank 2 has the right gradients. So the mistake is in the gradient that it sends back")
answers.mistake("goes_backward_with_the_oldest_micro_batch", {"kept.pop(k)": "kept.pop(k if last else min(kept))"},
    "Rank 2 has the right gradients", "both must be of one micro-batch")
answers.mistake("takes_one_micro_batch_at_a_time", {
    "for way, k in schedules[fabric.rank]:": """
        one_by_one = [action for k in range(len(part["xs"])) for action in (("forward", k), ("backward", k))]
        for way, k in one_by_one:
    """,
}, "the gradients are right, but rank 0 went backward in action 1", "its schedule says forward: F0 F1 F2 F3")
answers.mistake("goes_forward_with_all_first_whatever_is_asked", {
    "for way, k in schedules[fabric.rank]:": """
        micros = range(len(part["xs"]))
        for way, k in [("forward", k) for k in micros] + [("backward", k) for k in micros]:
    """,
}, "the gradients are right, but rank 1 went", "where its schedule says")
answers.mistake("sends_the_activation_twice", {
    "kept[k] = x, out": """
        if not first and not last:
            handles.append(fabric.isend(out, fabric.rank + 1, tag=9))
        if fabric.rank > 1:
            fabric.recv(torch.empty_like(x), fabric.rank - 1, tag=9)
        kept[k] = x, out
    """,
}, "the gradients are right, but rank 1 sent rank 2 2 messages", "one for each micro-batch")
answers.mistake("only_the_last_stage_goes_backward", {
    """
        grad = None if last else torch.empty_like(out)
        if not last:
            fabric.recv(grad, fabric.rank + 1)
        out.backward(grad)
        if not first:
            handles.append(fabric.isend(x.grad, fabric.rank - 1))
    """: """
        if last:
            out.backward()
    """,
}, "the gradient of layer 0's weight is None: no backward reached this stage's layers")


@answers.is_wrong("no process group is here")
def leaves_the_fabric(fabric, part, schedules):
    dist.init_process_group("gloo")

    class Framework:
        rank, world_size = fabric.rank, fabric.world_size
        isend = staticmethod(lambda x, to: dist.isend(x.detach(), to))
        recv = staticmethod(dist.recv)

    if fabric.world_size == 1:
        return the_plain_way(fabric, part, schedules)
    return the_plain_way(Framework, part, schedules)


answers.mistake("forgets_to_return", {"return [p": "[p"},
    "expected a list of", "got None (does the function return it?)")
answers.twin("returns_a_generator", {"[p.grad for p in layers.parameters()]": "(p.grad for p in layers.parameters())"})
answers.mistake("never_waits", {
    """
        for handle in handles:
            handle.wait()
    """: "",
}, "ended without waiting for an isend")
answers.mistake("waits_for_its_activations_alone",
    {"handles.append(fabric.isend(x.grad, fabric.rank - 1))": "fabric.isend(x.grad, fabric.rank - 1)"},
    "ended without waiting for an isend")
# One on its way at a time: enough for some schedules, too few where the first stage is far ahead.
answers.mistake("waits_for_the_message_before", {
    "handles.append(fabric.isend(out, fabric.rank + 1))": """
        [handle.wait() for handle in handles]
        handles.append(fabric.isend(out, fabric.rank + 1))
    """,
    "handles.append(fabric.isend(x.grad, fabric.rank - 1))": """
        [handle.wait() for handle in handles]
        handles.append(fabric.isend(x.grad, fabric.rank - 1))
    """,
}, "deadlock: rank 0 waits for 1 (send), rank 1 waits for 0 (send)", "Receive before you wait")
answers.mistake("one_buffer_for_all_gradients_on_their_way", {
    "handles.append(fabric.isend(x.grad, fabric.rank - 1))": """
        buffer = kept.setdefault("gradient", torch.empty_like(x.grad))
        buffer.copy_(x.grad)
        handles.append(fabric.isend(buffer, fabric.rank - 1))
    """,
}, "rank 1 changed the tensor of its isend to rank 0 before wait()")
answers.mistake("receives_every_activation_into_one_tensor", {
    """
        fabric.recv(x, fabric.rank - 1)
        x.requires_grad_()
    """: """
        fabric.recv(part["xs"][0], fabric.rank - 1)
        x = part["xs"][0].detach().requires_grad_()
    """,
}, "3 ranks, 4 micro-batches", "modified by an inplace operation")
answers.mistake("adds_up_the_losses_of_the_images",
    {'cross_entropy(out, part["ys"][k])': 'cross_entropy(out, part["ys"][k], reduction="sum")'},
    'It is 3 times too large: reduction="sum" adds up the losses of the 3 images, but the loss is their mean')
answers.mistake("divides_the_gradients_too", {"[p.grad for p in": '[p.grad / len(part["xs"]) for p in'},
    "It is 4 times too small: was it divided by m = 4 twice")
answers.mistake("sends_a_gradient_that_nobody_asked_for", {"x.requires_grad_()": ""},
    "isend on rank 2: expected a torch tensor or a NumPy array, got None. A .grad is None before backward()")
answers.mistake("sends_on_from_the_last_stage", {
    """
        if last:
            out = cross_entropy(out, part["ys"][k]) / len(part["ys"])
        else:
            handles.append(fabric.isend(out, fabric.rank + 1))
    """: "handles.append(fabric.isend(out, fabric.rank + 1))",
}, "isend to rank 3 on rank 2: expected a rank from 0 to 2", "Rank 0 is the first and rank 2 the last")
answers.mistake("receives_gradients_as_float32", {"torch.empty_like(out)": "torch.empty(out.shape)"},
    "4 micro-batches of float64", "expected float32", "got float64")
# Right where a last stage has one micro-batch in flight, and where it goes backward with the newest first.
answers.mistake("the_last_stage_goes_backward_with_the_newest",
    {"x, out = kept.pop(k)": "x, out = kept.pop(max(kept, key=list(kept).index) if last else k)"},
    "3 ranks, 5 micro-batches", "Rank 2 has the right gradients", "both must be of one micro-batch")
answers.mistake("the_last_stage_goes_backward_with_the_oldest",
    {"x, out = kept.pop(k)": "x, out = kept.pop(next(iter(kept)) if last else k)"},
    ("3 ranks, 4 micro-batches", "3 ranks, 5 micro-batches"))
answers.mistake("goes_backward_inside_the_forward", {
    'out = cross_entropy(out, part["ys"][k]) / len(part["ys"])': """
        out = cross_entropy(out, part["ys"][k]) / len(part["ys"])
        out.backward()
    """,
    "out.backward(grad)": """
        if not last:
            out.backward(grad)
    """,
}, "with a declared time", "the gradients are right, but rank 1 had worked 2 times after going forward 1 time",
    "it ran a backward inside a forward")
answers.mistake("sends_the_gradient_inside_the_forward", {
    'out = cross_entropy(out, part["ys"][k]) / len(part["ys"])': """
        (cross_entropy(out, part["ys"][k]) / len(part["ys"])).backward()
        if not first:
            handles.append(fabric.isend(x.grad, fabric.rank - 1))
    """,
    "x, out = kept.pop(k)": """
        if last:
            continue
        x, out = kept.pop(k)
    """,
}, "3 ranks, 4 micro-batches", "Besides, rank 2 went backward in action 1, where its schedule says forward: F0 F1 F2 F3")
answers.mistake("halves_the_loss", {' / len(part["ys"])': ' / len(part["ys"]) / 2'},
    "All its numbers are 0.5 times the right ones. Rank 2 is the last stage, and no gradient comes to it")
answers.mistake("sends_half_of_the_gradient_back", {"isend(x.grad,": "isend(x.grad / 2,"},
    "All its numbers are 0.5 times the right ones", "has the right gradients")
answers.mistake("takes_the_labels_of_the_first_micro_batch", {'part["ys"][k]': 'part["ys"][0]'},
    "2 ranks, 4 micro-batches", "the mistake is in its own loss, or in the input or the labels")
answers.mistake("builds_without_the_fabric", {"build(part, fabric)": "build(part)"},
    "with a declared time", "as in the lab's later cells: call build(part, fabric)")


answers.mistake("runs_the_first_micro_batch_alone", {
    "for way, k in schedules[fabric.rank]:": 'for way, k in [("forward", 0), ("backward", 0)]:',
}, "This is micro-batch 0's gradient alone")
ONE_MORE = {"kept[k] = x, out": """
    if not last:
        handles.append(fabric.isend(torch.zeros(1), fabric.rank + 1, tag=9))
    if not first:
        fabric.recv(torch.zeros(1), fabric.rank - 1, tag=9)
    kept[k] = x, out
"""}
answers.spoil("one_micro_batch_and_a_message_more", ONE_MORE, of=answers["runs_the_first_micro_batch_alone"])
answers.spoil("its_own_order_and_a_message_more", ONE_MORE, of=answers["takes_one_micro_batch_at_a_time"])
