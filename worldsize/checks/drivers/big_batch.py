"""Run a student's big-batch step on a rank, with a model in DDP over the fabric; no expected values.

The model's layers declare their work, and its process group is the fabric's, so the trace shows forward, backward and messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def stepped(fn: Callable, fabric: Any, given: dict[str, Any]) -> list[Any]:
    """Return the weights, [numbers], after each big-batch step, `fn(ddp, optimizer, parts)`.

    given["stepped"] gets the number of the call at each optimizer.step(); given["held"] the most earlier parts whose
    activations were alive when the model went forward. The function's own process notes both.

    `given` has the model's "task" (`worldsize.pytorch.timed_network`), "rate" and "momentum", and "steps": for each step this
    rank's parts, (x, y) each.
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
    row_bytes = given["task"]["sizes"][1] * next(model.parameters()).itemsize  # the first layer's activations of one example

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
