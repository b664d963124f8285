"""The work that every engine gets: meet, add up a small tensor, print a line, return the sum.

As a script it is what torchrun runs. It imports torch alone, so that an engine that starts fresh interpreters pays
for nothing else.
"""

import os

import torch
import torch.distributed as dist


def work() -> float:
    """The sum of rank + 1 over all ranks, by gloo."""
    dist.init_process_group("gloo")
    x = torch.full((1000,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    # one write: torchrun's ranks are unbuffered, and would mix the line's end with another's line
    print(line(dist.get_rank(), dist.get_world_size()) + "\n", end="", flush=True)
    dist.destroy_process_group()
    return float(x[0])


def placed_work(rank: int, world_size: int, port: int) -> float:
    """The work for engines that leave it to the caller to say who is who and where to meet."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world_size))
    return work()


def line(rank: int, world_size: int) -> str:
    return f"rank {rank} of {world_size} is here"


if __name__ == "__main__":
    work()
