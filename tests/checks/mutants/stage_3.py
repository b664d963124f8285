"""Exercise 12.4: weights gathered, used and freed, one layer ahead."""

from __future__ import annotations

import threading

import torch

from tests.checks.mutants import Answers
from tests.checks.mutants._sharding import Gather, layer_backward, layer_forward
from worldsize.fabric.collectives import all_gather, all_reduce, reduce_scatter

answers = Answers("stage_3")


def gather_now(fabric, part, shape):
    whole = torch.empty(shape[0] * shape[1], dtype=part.dtype)
    whole.tensor_split(fabric.world_size)[fabric.rank].copy_(part)
    return all_gather(fabric, whole).view(*shape)


def mean_part(fabric, of_weight):
    return reduce_scatter(fabric, of_weight.flatten()) / fabric.world_size


def trained(fabric, task, forwards=True, backwards=True, reduced=mean_part, keep_last=False):
    """Stage 3; `forwards` and `backwards`: whether the next layer is gathered ahead in that pass."""
    parts, shapes = task["parts"], task["shapes"]
    last = len(parts) - 1

    def begin(k):
        return Gather(fabric, parts[k], shapes[k])

    for x, target in task["batches"]:
        inputs, coming = [], begin(0)
        for k in range(len(parts)):
            weight = (coming or begin(k)).wait()
            coming = begin(k + 1) if forwards and k < last else None
            inputs.append(x)
            x = layer_forward(fabric, task, weight, x)
        grad, coming = x - target, None
        for k in reversed(range(len(parts))):
            if k < last or not keep_last:
                weight = (coming or begin(k)).wait()
            coming = begin(k - 1) if backwards and k > 0 else None
            grad, of_weight = layer_backward(fabric, task, weight, inputs[k], grad)
            parts[k] -= task["rate"] * reduced(fabric, of_weight)
    return parts


@answers.is_wrong("the weights are right, but rank 0 begins to gather layer 1 (forwards in step 1)", "nothing of it is hidden")
def gathers_when_its_turn_has_come(fabric, task):
    return trained(fabric, task, forwards=False, backwards=False)


@answers.is_wrong("begins to gather layer 2 (backwards in step 1) only after", "Begin the gather first, then work")
def gathers_ahead_forwards_alone(fabric, task):
    return trained(fabric, task, backwards=False)


@answers.is_wrong("begins to gather layer 1 (forwards in step 1) only after")
def gathers_ahead_backwards_alone(fabric, task):
    return trained(fabric, task, forwards=False)


@answers.is_wrong("begins to gather layer 2 (forwards in step 1) only after")
def gathers_ahead_once(fabric, task):
    """The second layer alone."""
    parts, shapes = task["parts"], task["shapes"]
    for x, target in task["batches"]:
        inputs, coming = [], Gather(fabric, parts[0], shapes[0])
        for k in range(len(parts)):
            weight = (coming or Gather(fabric, parts[k], shapes[k])).wait()
            coming = Gather(fabric, parts[1], shapes[1]) if k == 0 else None
            inputs.append(x)
            x = layer_forward(fabric, task, weight, x)
        grad, coming = x - target, None
        for k in reversed(range(len(parts))):
            weight = (coming or Gather(fabric, parts[k], shapes[k])).wait()
            coming = Gather(fabric, parts[k - 1], shapes[k - 1]) if k else None
            grad, of_weight = layer_backward(fabric, task, weight, inputs[k], grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts


@answers.is_wrong("waits for layer 1 (forwards in step 1) before it works on the layer at hand", "only then wait")
def waits_at_once(fabric, task):
    """Gathered ahead, and waited for before the work: as slow as without, and two layers are whole."""
    parts, shapes = task["parts"], task["shapes"]
    layers = range(len(parts))
    for x, target in task["batches"]:
        inputs, after = [], gather_now(fabric, parts[0], shapes[0])
        for k in layers:
            weight = after
            if k + 1 < len(parts):
                after = gather_now(fabric, parts[k + 1], shapes[k + 1])
            inputs.append(x)
            x = layer_forward(fabric, task, weight, x)
        grad, after = x - target, gather_now(fabric, parts[-1], shapes[-1])
        for k in reversed(layers):
            weight = after
            if k:
                after = gather_now(fabric, parts[k - 1], shapes[k - 1])
            grad, of_weight = layer_backward(fabric, task, weight, inputs[k], grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts


@answers.is_wrong("all ranks together sent 2 x the weights", "kept whole from the forward to the backward pass, as in stage 2")
def keeps_what_it_gathered(fabric, task):
    parts, shapes = task["parts"], task["shapes"]
    for x, target in task["batches"]:
        inputs, wholes, coming = [], [], Gather(fabric, parts[0], shapes[0])
        for k in range(len(parts)):
            wholes.append(coming.wait())
            if k + 1 < len(parts):
                coming = Gather(fabric, parts[k + 1], shapes[k + 1])
            inputs.append(x)
            x = layer_forward(fabric, task, wholes[k], x)
        grad = x - target
        for k in reversed(range(len(parts))):
            grad, of_weight = layer_backward(fabric, task, wholes[k], inputs[k], grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts


@answers.is_wrong("begins to gather layer 2 (forwards in step 1) before the work of two", "Gather one ahead")
def gathers_everything_at_once(fabric, task):
    """In each pass all gathers begin at its start."""
    parts, shapes = task["parts"], task["shapes"]
    layers = range(len(parts))
    for x, target in task["batches"]:
        inputs, coming = [], [Gather(fabric, parts[k], shapes[k]) for k in layers]
        for k in layers:
            inputs.append(x)
            x = layer_forward(fabric, task, coming[k].wait(), x)
        grad, coming = x - target, [Gather(fabric, parts[k], shapes[k]) for k in reversed(layers)]
        for k in reversed(layers):
            grad, of_weight = layer_backward(fabric, task, coming[len(parts) - 1 - k].wait(), inputs[k], grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts


@answers.is_wrong("begins to gather layer 2 (forwards in step 1) before the work of two layers earlier is over")
def gathers_two_ahead(fabric, task):
    parts, shapes = task["parts"], task["shapes"]
    layers = list(range(len(parts)))
    for x, target in task["batches"]:
        inputs, coming = [], {k: Gather(fabric, parts[k], shapes[k]) for k in layers[:2]}
        for k in layers:
            weight = coming.pop(k).wait()
            if k + 2 < len(parts):
                coming[k + 2] = Gather(fabric, parts[k + 2], shapes[k + 2])
            inputs.append(x)
            x = layer_forward(fabric, task, weight, x)
        grad, coming = x - target, {k: Gather(fabric, parts[k], shapes[k]) for k in layers[:-3:-1]}
        for k in reversed(layers):
            weight = coming.pop(k).wait()
            if k >= 2:
                coming[k - 2] = Gather(fabric, parts[k - 2], shapes[k - 2])
            grad, of_weight = layer_backward(fabric, task, weight, inputs[k], grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts


@answers.is_wrong("all ranks together sent 4 x the weights", "An all-reduce has two halves")
def all_reduces_the_gradients(fabric, task):
    def reduced(fabric, of_weight):
        whole = all_reduce(fabric, of_weight.flatten())
        return whole.tensor_split(fabric.world_size)[fabric.rank] / fabric.world_size

    return trained(fabric, task, reduced=reduced)


@answers.is_wrong("It stepped by the sum of the gradients: divide by the number of ranks")
def forgets_to_divide(fabric, task):
    return trained(fabric, task, reduced=lambda fabric, of_weight: reduce_scatter(fabric, of_weight.flatten()))


@answers.is_wrong("It stepped by its own examples' gradient: reduce-scatter the gradients of all ranks")
def steps_by_its_own_gradient(fabric, task):
    n, rank = fabric.world_size, fabric.rank
    return trained(fabric, task, reduced=lambda _, of_weight: of_weight.flatten().tensor_split(n)[rank])


@answers.is_wrong("its part of layer 0 in the end")
def steps_after_everything(fabric, task):
    """Gathered ahead from one step to the next: the first layer's old weight."""
    parts, shapes = task["parts"], task["shapes"]
    coming = Gather(fabric, parts[0].clone(), shapes[0])
    for step, (x, target) in enumerate(task["batches"]):
        inputs = []
        for k in range(len(parts)):
            weight = coming.wait()
            if k + 1 < len(parts):
                coming = Gather(fabric, parts[k + 1], shapes[k + 1])
            inputs.append(x)
            x = layer_forward(fabric, task, weight, x)
        grad, coming = x - target, Gather(fabric, parts[-1], shapes[-1])
        for k in reversed(range(len(parts))):
            weight = coming.wait()
            if k:
                coming = Gather(fabric, parts[k - 1], shapes[k - 1])
            elif step + 1 < len(task["batches"]):
                coming = Gather(fabric, parts[0].clone(), shapes[0])
            grad, of_weight = layer_backward(fabric, task, weight, inputs[k], grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts


@answers.is_wrong("changed the tensor of its isend")
def updates_what_is_on_its_way(fabric, task):
    """The step changes a part whose gather nobody has waited for."""
    parts, shapes = task["parts"], task["shapes"]
    for x, _ in task["batches"]:
        coming = Gather(fabric, parts[0], shapes[0])
        parts[0] -= task["rate"]
        weight = coming.wait()
        layer_forward(fabric, task, weight, x)
    return parts


@answers.is_wrong("The step went up: subtract rate times the gradient")
def climbs(fabric, task):
    return trained(fabric, task, reduced=lambda fabric, of_weight: -mean_part(fabric, of_weight))


@answers.is_wrong("Only one step was taken")
def takes_one_step(fabric, task):
    return trained(fabric, {**task, "batches": task["batches"][:1]})


@answers.is_wrong("These are the weights of the start: step in place")
def works_on_copies(fabric, task):
    trained(fabric, {**task, "parts": [part.clone() for part in task["parts"]]})
    return task["parts"]


@answers.is_wrong("the weights are right, but rank 0 did the work of a layer 0 times", "layer_forward and layer_backward")
def computes_beside_the_given_layers(fabric, task):
    """Nothing of its work is in the record."""

    class Silent:
        rank, world_size = fabric.rank, fabric.world_size
        isend, send, recv = fabric.isend, fabric.send, fabric.recv

        def compute(self, seconds):
            pass

    return trained(Silent(), task)


@answers.is_wrong("expected its 4 parts, one of each layer, got nothing")
def returns_nothing(fabric, task):
    trained(fabric, task)


@answers.is_right
def one_ahead(fabric, task):
    return trained(fabric, task)


@answers.is_right
def keeps_the_last_layer_for_its_backward_pass(fabric, task):
    return trained(fabric, task, keep_last=True)


@answers.is_right
def steps_when_all_is_over(fabric, task):
    """New tensors for the parts, and all steps at the end of backward."""
    parts, shapes, n = list(task["parts"]), task["shapes"], fabric.world_size
    last = len(parts) - 1
    for x, target in task["batches"]:
        inputs, means, coming = [x], [None] * len(parts), Gather(fabric, parts[0], shapes[0])
        for k in range(last + 1):
            weight = coming.wait()
            if k < last:
                coming = Gather(fabric, parts[k + 1], shapes[k + 1])
            inputs.append(layer_forward(fabric, task, weight, inputs[-1]))
        grad, coming = inputs.pop() - target, Gather(fabric, parts[last], shapes[last])
        for k in range(last, -1, -1):
            weight = coming.wait()
            if k:
                coming = Gather(fabric, parts[k - 1], shapes[k - 1])
            grad, of_weight = layer_backward(fabric, task, weight, inputs.pop(), grad)
            means[k] = reduce_scatter(fabric, of_weight.reshape(-1) / n)
        parts = [part - task["rate"] * mean for part, mean in zip(parts, means, strict=True)]
    return parts


@answers.is_right
def receives_in_a_thread(fabric, task):
    """Begun by sends in the rank's own thread, received in another while it works."""

    class InThread:
        def __init__(self, k):
            self.gather, self.whole = Gather(fabric, task["parts"][k], task["shapes"][k]), None
            self.thread = threading.Thread(target=self.take)
            self.thread.start()

        def take(self):
            self.whole = self.gather.wait()

        def wait(self):
            self.thread.join()
            return self.whole

    parts, last = task["parts"], len(task["parts"]) - 1
    for x, target in task["batches"]:
        inputs, coming = [], InThread(0)
        for k in range(last + 1):
            weight, coming = coming.wait(), InThread(k + 1) if k < last else None
            inputs.append(x)
            x = layer_forward(fabric, task, weight, x)
        grad, coming = x - target, InThread(last)
        for k in range(last, -1, -1):
            weight, coming = coming.wait(), InThread(k - 1) if k else None
            grad, of_weight = layer_backward(fabric, task, weight, inputs.pop(), grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts
