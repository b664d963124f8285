"""Exercise 12.6: weights gathered, used and freed, one layer ahead."""

import threading

import torch

from tests.checks.mutants import Answers, edited
from tests.checks.mutants._sharding import Gather, layer_backward, layer_forward
from worldsize.fabric.collectives import all_gather, all_reduce, reduce_scatter

answers = Answers("stage_3")


def gather_now(fabric, part, shape):
    whole = torch.empty(shape[0] * shape[1], dtype=part.dtype)
    whole.tensor_split(fabric.world_size)[fabric.rank].copy_(part)
    return all_gather(fabric, whole).view(*shape)


def mean_part(fabric, of_weight):
    return reduce_scatter(fabric, of_weight.flatten()) / fabric.world_size


@answers.is_right
def one_ahead(fabric, task):
    parts, shapes = task["parts"], task["shapes"]
    layers = range(len(parts))

    def begin(k):
        return Gather(fabric, parts[k], shapes[k]) if k in layers else None

    for x, target in task["batches"]:
        inputs, coming = [], begin(0)
        for k in layers:
            weight, coming = coming.wait(), begin(k + 1)
            inputs.append(x)
            x = layer_forward(fabric, task, weight, x)
        grad, coming = x - target, begin(layers[-1])
        for k in reversed(layers):
            weight, coming = coming.wait(), begin(k - 1)
            grad, of_weight = layer_backward(fabric, task, weight, inputs[k], grad)
            parts[k] -= task["rate"] * mean_part(fabric, of_weight)
    return parts


answers.twin("keeps_the_last_layer_for_its_backward_pass", {
    "grad, coming = x - target, begin(layers[-1])": "grad, coming = x - target, None",
    "weight, coming = coming.wait(), begin(k - 1)":
        "weight, coming = coming.wait() if coming else weight, begin(k - 1)",
})


answers.twin("returns_an_iterator", {"return parts": "return (part for part in parts)"})
answers.twin("returns_what_torch_keeps_parameters_in", {
    "return parts": "return torch.nn.ParameterList([torch.nn.Parameter(part, requires_grad=False) for part in parts])",
})


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


answers.mistake("gathers_when_its_turn_has_come", {
    "weight, coming = coming.wait(), begin(k + 1)": "weight = begin(k).wait()",
    "weight, coming = coming.wait(), begin(k - 1)": "weight = begin(k).wait()",
    "inputs, coming = [], begin(0)": "inputs = []",
    "grad, coming = x - target, begin(layers[-1])": "grad = x - target",
}, "the weights are right, but rank 0 begins to gather layer 1 (forwards in step 1)", "no part of it is hidden")
answers.mistake("gathers_ahead_forwards_alone", {
    "grad, coming = x - target, begin(layers[-1])": "grad = x - target",
    "weight, coming = coming.wait(), begin(k - 1)": "weight = begin(k).wait()",
}, "begins to gather layer 2 (backwards in step 1) only after", "Begin the gather first, then work")
answers.mistake("gathers_ahead_backwards_alone", {
    "inputs, coming = [], begin(0)": "inputs = []",
    "weight, coming = coming.wait(), begin(k + 1)": "weight = begin(k).wait()",
}, "begins to gather layer 1 (forwards in step 1) only after")
# The second layer alone.
answers.mistake("gathers_ahead_once", {
    "weight, coming = coming.wait(), begin(k + 1)":
        "weight, coming = (coming or begin(k)).wait(), begin(1) if k == 0 else None",
}, "begins to gather layer 2 (forwards in step 1) only after")
# Gathered ahead, and waited for before the work: as slow as without, and two layers are whole.
answers.mistake("waits_at_once", {
    "return Gather(fabric, parts[k], shapes[k]) if k in layers else None":
        "return gather_now(fabric, parts[k], shapes[k]) if k in layers else None",
    "weight, coming = coming.wait(), begin(k + 1)": "weight, coming = coming, begin(k + 1)",
    "weight, coming = coming.wait(), begin(k - 1)": "weight, coming = coming, begin(k - 1)",
}, "waits for layer 1 (forwards in step 1) before it works on the current layer", "only then wait")
# In one direction alone: half of the gathers are hidden.
answers.mistake("waits_at_once_forwards_alone", {
    "inputs, coming = [], begin(0)": "inputs, coming = [], begin(0).wait()",
    "weight, coming = coming.wait(), begin(k + 1)": "weight, coming = coming, begin(k + 1).wait() if k + 1 in layers else None",
}, "waits for layer 1 (forwards in step 1) before it works on the current layer", "only then wait")
answers.mistake("waits_at_once_backwards_alone", {
    "grad, coming = x - target, begin(layers[-1])": "grad, coming = x - target, begin(layers[-1]).wait()",
    "weight, coming = coming.wait(), begin(k - 1)": "weight, coming = coming, begin(k - 1).wait() if k else None",
}, "waits for layer 2 (backwards in step 1) before it works on the current layer", "only then wait")
answers.mistake("keeps_what_it_gathered", {
    "inputs, coming = [], begin(0)": "inputs, wholes, coming = [], [], begin(0)",
    "inputs.append(x)": "inputs.append(x)\nwholes.append(weight)",
    "grad, coming = x - target, begin(layers[-1])": "grad = x - target",
    "weight, coming = coming.wait(), begin(k - 1)": "weight = wholes[k]",
}, "all ranks together sent 2 x the weights", "weights stay whole between forward and backward, as in stage 2")
# In each pass all gathers begin at its start.
answers.mistake("gathers_everything_at_once", {
    "inputs, coming = [], begin(0)": "inputs, coming = [], [begin(k) for k in layers]",
    "weight, coming = coming.wait(), begin(k + 1)": "weight = coming[k].wait()",
    "x - target, begin(layers[-1])": "x - target, [begin(k) for k in reversed(layers)]",
    "weight, coming = coming.wait(), begin(k - 1)": "weight = coming[layers[-1] - k].wait()",
}, "begins to gather layer 2 (forwards in step 1) before the work of two", "Gather only one layer ahead")
answers.mistake("gathers_two_ahead", {
    "inputs, coming = [], begin(0)": "inputs, coming = [], {k: begin(k) for k in layers[:2]}",
    "weight, coming = coming.wait(), begin(k + 1)": "weight, coming[k + 2] = coming.pop(k).wait(), begin(k + 2)",
    "x - target, begin(layers[-1])": "x - target, {k: begin(k) for k in layers[:-3:-1]}",
    "weight, coming = coming.wait(), begin(k - 1)": "weight, coming[k - 2] = coming.pop(k).wait(), begin(k - 2)",
}, "begins to gather layer 2 (forwards in step 1) before the work of two layers earlier is over")
# Each weight is gathered twice, and never freed.
answers.mistake("gathers_twice_and_keeps_everything", {
    "inputs, coming = [], begin(0)": "inputs, wholes, coming = [], [], begin(0)",
    "inputs.append(x)": "inputs.append(x)\nwholes.append(weight)",
}, "the weights are right, but rank 0, forwards at layer", "holds 5 tensors as large as a weight", "in a list, or in")
answers.mistake("lets_autograd_keep_the_weights", {
    "weight, coming = coming.wait(), begin(k + 1)": "weight, coming = coming.wait().requires_grad_(), begin(k + 1)",
    "grad, coming = x - target, begin(layers[-1])": "grad, coming = (x - target).detach(), begin(layers[-1])",
    "weight, inputs[k], grad)": "weight, inputs[k].detach(), grad)",
}, "the weights are right, but rank 0, forwards at layer", "holds 5 tensors as large as a weight", "autograd's graph")
answers.mistake("keeps_all_gradients_until_the_end", {
    "inputs, coming = [], begin(0)": "inputs, gradients, coming = [], {}, begin(0)",
    "parts[k] -= task[\"rate\"] * mean_part(fabric, of_weight)": """
        gradients[k] = of_weight
        for j in gradients if k == 0 else ():
            parts[j] -= task["rate"] * mean_part(fabric, gradients[j])
    """,
}, "the weights are right, but rank 0, backwards at layer", "Step by a layer's gradient before the next layer works")
answers.mistake("all_reduces_the_gradients", {
    "mean_part(fabric, of_weight)":
        "all_reduce(fabric, of_weight.flatten()).tensor_split(fabric.world_size)[fabric.rank] / fabric.world_size",
}, "all ranks together sent 4 x the weights", "An all-reduce has two halves")
answers.mistake("forgets_to_divide", {"mean_part(fabric, of_weight)": "reduce_scatter(fabric, of_weight.flatten())"},
    "It stepped by 2 times the mean gradient: divide the sum by the number of ranks")
answers.mistake("steps_by_its_own_gradient",
    {"mean_part(fabric, of_weight)": "of_weight.flatten().tensor_split(fabric.world_size)[fabric.rank]"},
    "It stepped by its own examples' gradient: reduce-scatter the gradients of all ranks")


@answers.is_wrong("its part of layer 0 at the end", "the weight from before the last step: begin that gather after the step")
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


# Round the end of a step the first layer is gathered once more than it is used.
answers.mistake("begins_a_gather_too_many", {
    "return Gather(fabric, parts[k], shapes[k]) if k in layers else None":
        "return Gather(fabric, parts[k % len(parts)], shapes[k % len(parts)])",
}, "Do you begin a gather and never wait for it?", "begin each gather once, none after a pass's last layer")
answers.mistake("begins_the_next_steps_gather_and_forgets_it", {
    "parts[k] -= task[\"rate\"] * mean_part(fabric, of_weight)": """
        parts[k] -= task["rate"] * mean_part(fabric, of_weight)
        if k == 0:
            Gather(fabric, parts[0].clone(), shapes[0])
    """,
}, "Do you begin a gather and never wait for it?", "and wait for every one")
answers.mistake("gathers_the_first_layer_once_more",
    {"grad, coming = x - target, begin(layers[-1])": "begin(0).wait()\ngrad, coming = x - target, begin(layers[-1])"},
    "One gather too many: gather each weight twice a step")
answers.mistake("climbs", {"parts[k] -=": "parts[k] +="}, "The step went up: subtract rate times the gradient")
answers.mistake("takes_the_gradient_of_a_loss_without_its_half", {"grad, coming = x - target": "grad, coming = 2 * (x - target)"},
    "It stepped by 2 times the mean gradient", "begin backward with y − target, not with twice that")
answers.mistake("takes_the_mean_over_the_examples", {"grad, coming = x - target": "grad, coming = (x - target) / len(x)"},
    "It was divided by the number of examples, too: the loss is a sum over them")
answers.mistake("keeps_what_came_out_of_a_layer", {
    "inputs.append(x)": "",
    "x = layer_forward(fabric, task, weight, x)": "x = layer_forward(fabric, task, weight, x)\ninputs.append(x)",
}, "layer_backward takes what went into the layer as its x")
answers.mistake("has_a_rate_of_its_own", {"parts[k] -= task[\"rate\"]": "parts[k] -= 0.05"}, "its part of layer 0 at the end")
answers.mistake("counts_on_two_layers", {
    "inputs, coming = [], begin(0)": "inputs, first = [], begin(0).wait()\nsecond = Gather(fabric, parts[1], shapes[1])",
    "weight, coming = coming.wait(), begin(k + 1)": """
        weight, coming = (first, None) if k == 0 else (second.wait() if k == 1 else coming.wait(), begin(k + 1))
    """,
}, "3 ranks, 1 layer of widths 4, 3", "IndexError")
answers.mistake("subtracts_in_the_target", {"grad, coming = x - target": "grad, coming = target.sub_(x).neg_()"},
    'task["batches"] was changed in place')
answers.mistake("takes_one_step", {'task["batches"]:': 'task["batches"][:1]:'}, "Only one step was taken")
answers.mistake("works_on_copies", {
    'parts, shapes = task["parts"]': 'parts, shapes = [part.clone() for part in task["parts"]]',
    "return parts": 'return task["parts"]',
}, "These are the initial weights: step in place")
# Nothing of its work is in the record.
answers.mistake("computes_beside_the_given_layers", {
    "def begin(k):": """
        class Silent:
            rank, world_size = fabric.rank, fabric.world_size
            isend, send, recv = fabric.isend, fabric.send, fabric.recv

            def compute(self, seconds, x):
                return x

        silent = Silent()

        def begin(k):
    """,
    "layer_forward(fabric": "layer_forward(silent",
    "layer_backward(fabric": "layer_backward(silent",
}, "the weights are right, but rank 0 did the work of a layer 0 times", "layer_forward and layer_backward")
answers.mistake("gathers_the_initial_weights_at_every_step", {
    "parts, shapes = task[\"parts\"]": "parts, shapes = [part.clone() for part in task[\"parts\"]]",
    "Gather(fabric, parts[k], shapes[k])": "Gather(fabric, task[\"parts\"][k], shapes[k])",
}, "Every step used the initial weights: gather the parts that the last step changed")
answers.mistake("returns_nothing", {"return parts": ""}, "expected its 4 parts, one of each layer, got nothing")

START = 'parts, shapes = task["parts"], task["shapes"]'
answers.spoils()(edited(one_ahead, "for_two_ranks_alone", {
    START: START + "\nif fabric.world_size != 2:\n    return parts",
}))  # fmt: skip
DIVIDES_BY_2 = edited(one_ahead, "divides_by_2", {
    "mean_part(fabric, of_weight)": "reduce_scatter(fabric, of_weight.flatten()) / 2",
})  # fmt: skip
answers.spoil("divides_by_2_and_sends_more", {START: START + "\nall_reduce(fabric, torch.zeros(50))"}, of=DIVIDES_BY_2)
