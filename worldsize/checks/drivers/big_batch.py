"""What the check of a big batch's step runs in a rank: the student's function with a model in DDP, over the fabric.

The model's layers declare their work, so that the record shows forward and backward; its process group is the fabric's, so
that it shows what travels. Inputs and weights alone, no expected value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def stepped(fn: Callable, fabric: Any, given: dict[str, Any]) -> list[Any]:
    """The weights, [numbers], after each call of `fn(ddp, optimizer, parts)`.

    `given` has the model's "task" (`worldsize.pytorch.timed_network`), "rate" and "momentum", and "steps": for each step
    this rank's parts, (x, y) each.
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from worldsize.pytorch.group_over_fabric import use_fabric
    from worldsize.pytorch.timed_network import network

    use_fabric(fabric)
    model = network(fabric, given["task"])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=given["rate"], momentum=given["momentum"])

    weights = []
    for parts in given["steps"]:
        fn(ddp, optimizer, parts)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return weights
