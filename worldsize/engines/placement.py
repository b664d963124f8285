"""Which rank runs on which host: neighbours stay together, and each host gets as many as its cores or GPUs carry.

Left out: what a rank finds there (`torch_session.py`, `tensorflow_session.py`).
"""

from __future__ import annotations

from collections.abc import Sequence


def place(world_size: int, capacities: Sequence[int]) -> list[range]:
    """The ranks of each host, in the hosts' order, for a placement by their `capacities` (cores, or GPUs).

    First each host gets one, as far as the ranks go; each next one goes where the load is then the least (the highest
    averages method of D'Hondt), so that no host has more than it carries while another carries less. The ranks are
    numbered host by host. A host of capacity 0 gets none.
    """
    counts = [0] * len(capacities)
    usable = [node for node, capacity in enumerate(capacities) if capacity > 0]
    for _ in range(world_size):
        chosen = min(usable, key=lambda node: (counts[node] > 0, (counts[node] + 1) / capacities[node]))
        counts[chosen] += 1

    ranks: list[range] = []
    start = 0
    for count in counts:
        ranks.append(range(start, start + count))
        start += count
    return ranks
