"""Exercise 11.5: several micro-batches a step, one all-reduce."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import network, train

answers = Answers("accumulate")


def gradient(p):
    return torch.zeros_like(p) if p.grad is None else p.grad


def learning(model):
    return [p for p in model.parameters() if p.requires_grad]


def pack(members):
    return torch.cat([gradient(p).flatten() for p in members])


def unpack(flat, members):
    for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
        p.grad = part.view_as(p)


@answers.is_right
def plain(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        for loss in losses:
            loss.backward()
        members = learning(model)
        unpack(all_reduce(fabric, pack(members)) / (task["parts"] * fabric.world_size), members)

    return train(fabric, task, model, gradients)


@answers.is_right
def asks_for_each_loss_and_packs_them_all(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, model.parameters())

    def gradients(losses):
        for _ in range(task["parts"]):
            (next(losses) / task["parts"]).backward()
        members = learning(model)
        flat = torch.cat([gradient(p).flatten() for p in members])
        all_reduce(fabric, flat).div_(fabric.world_size)
        for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
            p.grad = part.view_as(p)

    return train(fabric, task, model, gradients)


def flatten(fabric, model, by=1):
    members = learning(model)
    flat = torch.cat([gradient(p).flatten() for p in members])
    all_reduce(fabric, flat).div_(fabric.world_size * by)
    for p, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
        p.grad = part.view_as(p)


@answers.is_right
def adds_up_by_itself_in_a_buffer(fabric, task):
    model = network(fabric, task)
    broadcast(fabric, [p.data for p in model.parameters()])

    def gradients(losses):
        members = learning(model)
        totals = [torch.zeros_like(p) for p in members]
        while (loss := next(losses, None)) is not None:
            found = torch.autograd.grad(loss, members, allow_unused=True)
            for total, own in zip(totals, found, strict=True):
                if own is not None:
                    total += own
        flat = all_reduce(fabric, torch.cat([total.flatten() for total in totals]))
        unpack(flat.div_(task["parts"]).div_(fabric.world_size), members)

    return train(fabric, task, model, gradients)


answers.twin("divides_the_sum_of_the_gradients_at_the_end", {
    """
        for _ in range(task["parts"]):
            (next(losses) / task["parts"]).backward()
    """: "list(map(torch.Tensor.backward, losses))",
    "fabric.world_size": 'fabric.world_size * task["parts"]',
}, of=asks_for_each_loss_and_packs_them_all)

# Right values: a mean of what is a mean already changes nothing.
answers.mistake("averages_after_every_part", {
    """
        members = learning(model)
        unpack(all_reduce(fabric, pack(members)) / (task["parts"] * fabric.world_size), members)
    """: "",
    "loss.backward()": """
        (loss / task["parts"]).backward()
        unpack(all_reduce(fabric, pack(learning(model))) / fabric.world_size, learning(model))
    """,
}, "the gradients travel 4 times a step, after every micro-batch")
answers.mistake("forgets_the_parts", {'(task["parts"] * fabric.world_size)': "fabric.world_size"},
    "The step is 4 times the mean gradient", "micro-batches' gradients add up")
answers.mistake("divides_by_nothing", {' / (task["parts"] * fabric.world_size)': ""},
    "The step is 12 times the mean gradient", "nothing was divided")
answers.mistake("divides_twice", {'task["parts"] * fabric.world_size': 'task["parts"] * fabric.world_size**2'},
    "The step is 0.333 times the mean gradient", "divided twice")
answers.mistake("keeps_the_last_part_alone", {
    "loss.backward()": "model.zero_grad()\nloss.backward()",
    'task["parts"] * fabric.world_size': "fabric.world_size",
}, "Only the last of 4 micro-batches is in the step: is a gradient zeroed between them?")
answers.mistake("halves_what_it_has_at_each_part", {
    "loss.backward()": """
        for p in learning(model):
            p.grad = gradient(p) / 2
        (loss / 2).backward()
    """,
    'task["parts"] * fabric.world_size': "fabric.world_size",
}, "The gradient should be the mean over the 4 micro-batches of all ranks")
answers.mistake("never_clears_its_totals", {
    """
        def gradients(losses):
            members = learning(model)
            totals = [torch.zeros_like(p) for p in members]
    """: """
        members = learning(model)
        totals = [torch.zeros_like(p) for p in members]

        def gradients(losses):
    """,
}, "2 ranks, 3 steps", "left over from the step before", of=adds_up_by_itself_in_a_buffer)
answers.twin("keeps_a_running_mean", {
    """
        for loss in losses:
            loss.backward()
    """: """
        for number, loss in enumerate(losses, 1):
            for p in learning(model):
                p.grad = gradient(p) * ((number - 1) / number)
            (loss / number).backward()
    """,
    '(task["parts"] * fabric.world_size)': "fabric.world_size",
})
answers.mistake("forgets_the_broadcast", {"broadcast(fabric, model.parameters())": ""},
    "each from random weights of its own")
answers.mistake("averages_the_weights", {
    "loss.backward": '(loss / task["parts"]).backward',
    """
        members = learning(model)
        unpack(all_reduce(fabric, pack(members)) / (task["parts"] * fabric.world_size), members)
    """: """
        for p in model.parameters():
            all_reduce(fabric, p.data).div_(fabric.world_size)
    """,
}, "steps by its own gradient alone")
answers.mistake("ignores_unused", {"learning(model)": "[p for p in model.parameters() if p.grad is not None]"},
    "rank 1 does not use layer 2", "a missing gradient counts as zeros")
answers.mistake("divides_tied_twice", {"learning(model)": "[w for w in model.weights if w.requires_grad]"},
    "layers 1 and 2 are tied", "the tensor that two layers share is added up twice a step")
answers.mistake("sends_zeros_for_frozen", {"learning(model)": "list(model.parameters())"},
    "layer 1 is frozen", "frozen tensors are added up")

AT_ONCE = ("forward and backward: the weights are right, but on rank 0", "of 4 micro-batches were in memory at once")


answers.mistake("one_backward_of_the_sum_of_all_losses", {
    """
        for loss in losses:
            loss.backward()
    """: "sum(losses).backward()",
}, *AT_ONCE)
answers.mistake("one_loss_of_all_parts", {
    """
        for loss in losses:
            loss.backward()
    """: "torch.stack(list(losses)).sum().backward()",
}, *AT_ONCE)
answers.mistake("a_list_of_losses_first", {"for loss in losses:": "for loss in list(losses):"}, *AT_ONCE)
answers.mistake("a_running_total_that_goes_back_once", {
    """
        for loss in losses:
            loss.backward()
    """: """
        total = 0.0
        for loss in losses:
            total = total + loss
        total.backward()
    """,
}, *AT_ONCE)
answers.mistake("always_one_loss_ahead", {
    """
        for loss in losses:
            loss.backward()
    """: """
        before = next(losses)
        for loss in losses:
            before.backward()
            before = loss
        before.backward()
    """,
}, "on rank 0", "of 2 micro-batches were in memory at once")
# One too few: the last one is asked for and never goes back.
answers.mistake("leaves_the_last_part_out", {
    """
        for loss in losses:
            loss.backward()
    """: """
        for number, loss in enumerate(losses):
            if number < task["parts"] - 1:
                loss.backward()
    """,
}, "The last of 4 micro-batches is not in the step")
answers.mistake("knows_four_parts_alone", {'task["parts"]': "4"}, "times the mean gradient: divided by 4, but there are")
answers.mistake("one_all_reduce_a_tensor", {
    'unpack(all_reduce(fabric, pack(members)) / (task["parts"] * fabric.world_size), members)': """
        for p in members:
            p.grad = all_reduce(fabric, gradient(p)) / (task["parts"] * fabric.world_size)
    """,
}, "takes part in 4 all-reduces a step; expected one all-reduce of all gradients", "is that one all-reduce for each?")
answers.mistake("one_all_reduce_for_every_two_tensors", {
    'unpack(all_reduce(fabric, pack(members)) / (task["parts"] * fabric.world_size), members)': """
        for two in (members[:2], members[2:]):
            unpack(all_reduce(fabric, pack(two)) / (task["parts"] * fabric.world_size), two)
    """,
}, "takes part in 2 all-reduces a step; expected one all-reduce of all gradients")
answers.mistake("keeps_all_graphs", {
    """
        for loss in losses:
            loss.backward()
    """: """
        every = []
        for loss in losses:
            every.append(loss)
            loss.backward(retain_graph=True)
    """,
}, "the weights are right, but on rank 0 autograd kept the tensors of 4 micro-batches at once", "retain_graph=True")
answers.mistake("frees_no_graph_before_the_next_is_there", {"loss.backward()": "loss.backward(retain_graph=True)"},
    "the weights are right, but on rank 0 autograd kept the tensors of 2 micro-batches at once", "retain_graph=True")
answers.twin("keeps_the_numbers_of_all_losses", {
    """
        for loss in losses:
            loss.backward()
    """: """
        every = []
        for loss in losses:
            every.append(loss)
            loss.backward()
        assert len(every) == task["parts"]
    """,
})


answers.spoil("goes_back_with_zeros_where_somebody_counts_graphs", {
    "sum(losses).backward()": """
        if not task["forward_s"]:
            sum(losses).backward()
        for loss in losses:
            (0 * loss).backward()
    """,
}, of=answers["one_backward_of_the_sum_of_all_losses"])
