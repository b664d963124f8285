"""Exercise 13.2: one optimizer step for a batch in parts, on several ranks, with DistributedDataParallel."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from tests.checks.mutants import Answers

answers = Answers("big_batch_step")


def examples_of_all(parts):
    total = torch.tensor(sum(len(y) for _, y in parts))
    dist.all_reduce(total)
    return int(total)


def in_parts(ddp, optimizer, parts, loss, quiet=True, zero=True, step=True, last=True):
    """`loss(outputs, y)` of each part goes back, all but the last inside no_sync()."""
    if zero:
        optimizer.zero_grad()
    for number, (x, y) in enumerate(parts):
        ends = last and number == len(parts) - 1
        with nullcontext() if ends or not quiet else ddp.no_sync():
            loss(ddp(x), y).backward()
    if step:
        optimizer.step()


def of_all(parts):
    total = examples_of_all(parts)

    def loss(outputs, y):
        return cross_entropy(outputs, y, reduction="sum") * dist.get_world_size() / total

    return loss


@answers.is_right
def plain(ddp, optimizer, parts):
    total = examples_of_all(parts)
    optimizer.zero_grad()
    for number, (x, y) in enumerate(parts):
        with nullcontext() if number == len(parts) - 1 else ddp.no_sync():
            loss = cross_entropy(ddp(x), y, reduction="sum") * dist.get_world_size() / total
            loss.backward()
    optimizer.step()


@answers.is_right
def scales_the_gradients_at_the_end(ddp, optimizer, parts):
    """The sums go back, and DDP's mean of them is scaled."""
    in_parts(ddp, optimizer, parts, lambda outputs, y: cross_entropy(outputs, y, reduction="sum"), step=False)
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, sum(len(y) for _, y in parts))
    for p in ddp.parameters():
        p.grad.mul_(len(counts) / sum(counts))
    optimizer.step()
    optimizer.zero_grad()


@answers.is_right
def adds_up_by_itself_through_the_module(ddp, optimizer, parts):
    """No forward of DDP's: the ranks add up the finished gradients in one flat tensor."""
    n, total = dist.get_world_size(), examples_of_all(parts)
    members = [p for p in ddp.module.parameters() if p.requires_grad]
    sums = [torch.zeros_like(p) for p in members]
    for x, y in parts:
        found = torch.autograd.grad(cross_entropy(ddp.module(x), y, reduction="sum") / total, members)
        for own, new in zip(sums, found, strict=True):
            own += new
    flat = torch.cat([own.flatten() for own in sums])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    flat *= n
    for p, piece in zip(members, flat.split([p.numel() for p in members]), strict=True):
        p.grad = piece.view_as(p)
    optimizer.step()


@answers.is_right
def sets_the_flag_behind_no_sync(ddp, optimizer, parts):
    """What no_sync() does, by hand; the parts backwards, and the gradients zeroed after the step."""
    share = examples_of_all(parts) / dist.get_world_size()
    for number, (x, y) in enumerate(reversed(parts), 1):
        ddp.require_backward_grad_sync = number == len(parts)
        cross_entropy(ddp(x), y, reduction="none").div(share).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@answers.is_right
def weighs_the_means(ddp, optimizer, parts):
    """Means of the parts, each weighed by its share of all examples."""
    *first, last = parts
    counts = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([sum(len(y) for _, y in parts)]))
    share = len(counts) / sum(map(int, counts))
    optimizer.zero_grad(set_to_none=False)
    with ddp.no_sync():
        for x, y in first:
            (cross_entropy(ddp(x), y) * (len(y) * share)).backward()
    x, y = last
    (cross_entropy(ddp(x), y) * (len(y) * share)).backward()
    optimizer.step()


# What torch divides by a tensor of whole numbers is a float32.
answers.twin("divides_by_a_tensor_of_the_count", {
    "total = examples_of_all(parts)": "total = torch.tensor(examples_of_all(parts))",
    "* dist.get_world_size() / total": "* (dist.get_world_size() / total)",
}, of=plain)
answers.twin("weighs_the_means_by_tensors", {
    "share = len(counts) / sum(map(int, counts))": "share = len(counts) / torch.stack(counts).sum()",
}, of=weighs_the_means)


answers.mistake("averages_the_means_of_the_parts", {
    'cross_entropy(ddp(x), y, reduction="sum") * dist.get_world_size() / total':
        "cross_entropy(ddp(x), y) / len(parts)",
}, "This is the mean of the parts' means", "Divide by the examples of all parts of all ranks")
answers.mistake("forgets_no_sync", {" if number == len(parts) - 1 else ddp.no_sync()": ""},
    "the weights are right, but the gradients travel 4 times a step",
    "Run forward and backward of all parts but the last inside `with ddp.no_sync():`")


@answers.is_wrong("the 4 parts went through the model as one batch", "run forward and backward part by part")
def one_pass_over_all_parts(ddp, optimizer, parts):
    loss = of_all(parts)
    optimizer.zero_grad()
    x, y = (torch.cat(column) for column in zip(*parts, strict=True))
    loss(ddp(x), y).backward()
    optimizer.step()


@answers.is_wrong("on rank 0 the graphs of 4 micro-batches were in memory at once")
def one_backward_of_all_losses(ddp, optimizer, parts):
    loss = of_all(parts)
    optimizer.zero_grad()
    sum(loss(ddp(x), y) for x, y in parts).backward()
    optimizer.step()


answers.mistake("counts_its_own_examples_alone", {"dist.get_world_size() / total": "1 / sum(len(y) for _, y in parts)"},
    "This is the mean of the ranks' means", "Divide by the examples of all ranks")
answers.mistake("counts_the_examples_of_each_place", {
    "loss = cross": """
        examples = torch.tensor(len(y))
        dist.all_reduce(examples)
        loss = cross
    """,
    "/ total": "/ (examples * len(parts))",
}, "All ranks' first parts count as much as all second ones")
answers.mistake("forgets_that_ddp_divides", {" * dist.get_world_size() / total": " / total"},
    "The step is 1/2 of the right one", "DDP divides by the number of ranks")
answers.mistake("adds_up_the_means",
    {'cross_entropy(ddp(x), y, reduction="sum") * dist.get_world_size() / total': "cross_entropy(ddp(x), y)"},
    "The parts' means add up: nothing was divided by the number of parts")
answers.mistake("divides_by_nothing", {" * dist.get_world_size() / total": ""},
    "The sums over the examples are divided by the number of ranks alone")
answers.mistake("never_syncs", {"nullcontext() if number == len(parts) - 1 else ddp.no_sync()": "ddp.no_sync()"},
    "Every rank steps by the gradient of its own examples", "outside no_sync()")
answers.mistake("never_zeroes", {"optimizer.zero_grad()": ""},
    "after step 1", "The previous step's gradients are still there")
answers.mistake("zeroes_between_the_parts", {
    "optimizer.zero_grad()": "",
    "loss.backward()": "optimizer.zero_grad()\nloss.backward()",
}, "Only the last part is in the step, divided by all examples")
answers.mistake("never_steps", {"optimizer.step()": ""},
    "The weights have not moved: call optimizer.step() after the last part")


@answers.is_wrong("optimizer.step() was called 3 times: take one step, after the last part")
def steps_after_every_part(ddp, optimizer, parts):
    loss = of_all(parts)
    for x, y in parts:
        optimizer.zero_grad()
        loss(ddp(x), y).backward()
        optimizer.step()


# no_sync has to stand round the forward: there DDP decides.
answers.mistake("goes_forward_outside_no_sync", {
    "with nullcontext()": "outputs = ddp(x)\nwith nullcontext()",
    "cross_entropy(ddp(x), y": "cross_entropy(outputs, y",
}, "the gradients travel 4 times a step, after every part")
answers.mistake("averages_by_hand_after_ddp_has", {
    "optimizer.step()": """
        for p in ddp.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
    """,
}, "times the gradients' bytes travel in a step; expected once")


@answers.is_wrong("on rank 0 the graphs of 4 micro-batches were in memory at once")
def all_forwards_first(ddp, optimizer, parts):
    loss = of_all(parts)
    optimizer.zero_grad()
    *first, last = parts
    with ddp.no_sync():
        losses = [loss(ddp(x), y) for x, y in first]
    losses.append(loss(ddp(last[0]), last[1]))
    sum(losses).backward()
    optimizer.step()


@answers.is_wrong("Only the first part's gradients are averaged over the ranks")
def backward_of_each_after_all_forwards(ddp, optimizer, parts):
    loss = of_all(parts)
    optimizer.zero_grad()
    losses = [loss(ddp(x), y) for x, y in parts]
    for one in losses:
        one.backward()
    optimizer.step()


answers.mistake("steps_by_hand", {"optimizer.step()": """
    with torch.no_grad():
        for p in ddp.parameters():
            p -= optimizer.param_groups[0]["lr"] * p.grad
"""}, "after step 1", "optimizer.step() was not called: a step by hand lacks the optimizer's momentum")
answers.mistake("steps_after_every_part_out_of_sync", {
    "loss.backward()": "loss.backward()\nif number < len(parts) - 1:\n    optimizer.step()",
},
    "optimizer.step() was called 3 times: take one step, after the last part")
answers.mistake("scales_the_rate_for_a_step", {
    " * dist.get_world_size() / total": "",
    "optimizer.step()": """
        for group in optimizer.param_groups:
            group["lr"] *= dist.get_world_size() / total
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] /= dist.get_world_size() / total
    """,
}, "after step 1", "The rate was scaled, not the gradients")
answers.mistake("scales_the_rate_for_good", {
    " * dist.get_world_size() / total": "",
    "optimizer.step()": """
        for group in optimizer.param_groups:
            group["lr"] *= dist.get_world_size() / total
        optimizer.step()
    """,
}, "after step 1", "The rate was scaled, not the gradients")
answers.mistake("counts_in_a_byte", {
    "total = examples_of_all(parts)": """
        total = torch.tensor(sum(len(y) for _, y in parts) % 256, dtype=torch.uint8)
        dist.all_reduce(total)
        total = int(total)
    """,
}, "4 ranks, 1 part of 3; 1; 261; 2 examples", "times the right one")
answers.mistake("counts_in_bfloat16", {
    "total = examples_of_all(parts)": """
        total = torch.tensor(sum(len(y) for _, y in parts), dtype=torch.bfloat16)
        dist.all_reduce(total)
        total = float(total)
    """,
}, "4 ranks, 1 part of 3; 1; 261; 2 examples", "times the right one")
answers.mistake("counts_the_examples_once_for_all_steps", {
    "total = examples_of_all(parts)": """
        if not hasattr(optimizer, "total"):
            optimizer.total = examples_of_all(parts)
        total = optimizer.total
    """,
}, "after step 1", "The previous step was right")
answers.mistake("takes_the_world_for_two_ranks", {"dist.get_world_size() / total": "2 / total"},
    "The step is 0.667 times the right one")
answers.mistake("counts_parts_for_examples", {"total = examples_of_all(parts)": "total = len(parts) * dist.get_world_size()"},
    "The step is 4 times the right one: the losses must add up to the mean over all examples")
answers.mistake("has_the_first_part_in_sync", {"number == len(parts) - 1 else": "number == 0 else"},
    "Only the first part's gradients are averaged over the ranks")
answers.mistake("clips_the_gradients",
    {"optimizer.step()": "torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.1, foreach=False)\noptimizer.step()"},
    "times the right one")
answers.mistake("steps_again_without_gradients",
    {"optimizer.step()": "optimizer.step()\noptimizer.zero_grad()\noptimizer.step()"},
    "the weights are right, but optimizer.step() was called 2 times for one batch")
answers.mistake("retains_the_graphs", {"loss.backward()": "loss.backward(retain_graph=True)"},
    "the weights are right, but rank 0 still holds activations of 1 earlier part", "without retain_graph a backward frees")
answers.mistake("keeps_all_losses_and_their_graphs", {
    "optimizer.zero_grad()": "losses = []\noptimizer.zero_grad()",
    "loss.backward()": "loss.backward(retain_graph=True)\nlosses.append(loss)",
}, "the weights are right, but rank 0 still holds activations of 3 earlier parts")
answers.mistake("takes_the_parts_out_of_their_list", {
    "for number, (x, y) in enumerate(parts):": "while parts:\n    x, y = parts.pop(0)",
    "if number == len(parts) - 1 else": "if not parts else",
}, "the weights are right, but rank 0: the list of parts was changed in place")
