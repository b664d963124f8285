"""Ranks that stay: `open_ranks(4)`, then cell after cell on every one of them, each cell a run with its record.

    world = open_ranks(4)
    world.run("x = torch.ones(3) * rank; dist.all_reduce(x); x")
    world["x"]

Left out: one-off runs of a function (`launch`), what a rank does (`engines/ranks`), and TensorFlow, whose tasks do not stay.
"""

from worldsize.ranks.open_world import OpenRanks, open_ranks

__all__ = ["OpenRanks", "open_ranks"]
