"""What the check of a big batch's step runs in a rank: the student's function with a model in DDP, over the fabric.

The model's layers declare their work, so that the record shows forward and backward; its process group is the fabric's, so
that it shows what travels. Inputs and weights alone, no expected value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def stepped(fn: Callable, fabric: Any, given: dict[str, Any]) -> list[Any]:
    """The weights, [numbers], after each call of `fn(ddp, optimizer, parts)`.

    given["stepped"] has the number of a call for each optimizer.step() in it; given["held"] says of how many earlier parts there
    were activations when the model went forward, at most. Both are noted in the function's own process.

    `given` has the model's "task" (`worldsize.pytorch.timed_network`), "rate" and "momentum", and "steps": for each step
    this rank's parts, (x, y) each.
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from worldsize.pytorch.group_over_fabric import use_fabric
    from worldsize.pytorch.live_bytes import LiveBytes
    from worldsize.pytorch.timed_network import network

    use_fabric(fabric)
    model = network(fabric, given["task"])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=given["rate"], momentum=given["momentum"])
    row_bytes = given["task"]["sizes"][1] * next(model.parameters()).itemsize  # of an example's first activations

    weights, given["stepped"], given["held"] = [], [], 0
    optimizer.register_step_post_hook(lambda *_: given["stepped"].append(len(weights)))
    for parts in given["steps"]:
        earlier: list[int] = []
        with LiveBytes() as meter:

            def note(_: Any, inputs: tuple, earlier: list[int] = earlier, meter: LiveBytes = meter) -> None:
                there = set(meter.sizes())
                given["held"] = max(given["held"], sum(examples * row_bytes in there for examples in earlier))
                earlier.append(len(inputs[0]))

            hook = model.register_forward_pre_hook(note)
            fn(ddp, optimizer, parts)
            hook.remove()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return weights
