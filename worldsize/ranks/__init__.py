"""Ranks that stay: `open_ranks(4)`, then cell after cell on every rank, each a run with its record.

    world = open_ranks(4)
    world.run("x = torch.ones(3) * rank; dist.all_reduce(x); x")
    world["x"]

`launch` runs a function once; `engines/ranks` is the ranks' own side. TensorFlow tasks cannot stay.
"""

from worldsize.ranks.open_world import OpenRanks, open_ranks

__all__ = ["OpenRanks", "open_ranks"]
