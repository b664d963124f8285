"""What the set-up cells of lab 17 give to its exercises."""

import math

import torch


def attend(fabric, task, source, k, v):
    scores = task["q"] @ k.T / math.sqrt(k.shape[1])
    if task["causal"]:
        own, theirs = (torch.tensor(task["tokens"][rank]) for rank in (fabric.rank, source))
        scores = scores.masked_fill(theirs > own[:, None], -math.inf)
    greatest = scores.amax(dim=1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weights = torch.exp(scores - greatest)
    return greatest, weights.sum(dim=1, keepdim=True), fabric.compute(task["work_s"], weights @ v)


def weights_again(fabric, task, source, k):
    scores = task["q"] @ k.T / math.sqrt(k.shape[1])
    if task["causal"]:
        own, theirs = (torch.tensor(task["tokens"][rank]) for rank in (fabric.rank, source))
        scores = scores.masked_fill(theirs > own[:, None], -math.inf)
    return torch.exp(scores - task["log_sum"])


def pass_on(fabric, block, rows):
    n = fabric.world_size
    if n == 1:
        return block
    handles = [fabric.isend(x, to=(fabric.rank + 1) % n) for x in block]
    came = [x.new_empty(rows, x.shape[1]) for x in block]
    for x in came:
        fabric.recv(x, frm=(fabric.rank - 1) % n)
    for handle in handles:
        handle.wait()
    return came
