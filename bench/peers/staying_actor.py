"""The actor of torchmonarch that stands for a rank: it runs the texts that it is sent in one namespace.

In a file of its own, because it can only be made where torchmonarch is.
"""

import os

import torch
import torch.distributed as dist
from monarch.actor import Actor, current_rank, endpoint


class Rank(Actor):
    """A rank with a namespace that stays."""

    def __init__(self) -> None:
        self._space = {"torch": torch, "dist": dist}

    @endpoint
    def meet(self, world_size: int, port: int, text: str) -> None:
        """Run the text that makes the default group, with the environment that torchrun would set."""
        rank = str(current_rank().rank)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=rank, WORLD_SIZE=str(world_size))
        exec(text, self._space)

    @endpoint
    def cell(self, text: str) -> None:
        exec(text, self._space)
