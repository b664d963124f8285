"""Ranks of unequal speed that all make the same calls: their times as vectors over all ranks, call by call.

A rank's times depend on its own clock and on the times of the messages that it takes; which messages it takes does not depend
on time. So one rank's calls are replayed once, with a number for every rank at each call. Exact if every rank has its own link
and every receive names its source; a shared network card serves ranks in order of time, which then differs. `symmetry.py`
records the calls.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from worldsize.links import Link
from worldsize.simulate.symmetry import Call


@dataclass
class _Message:
    distance: int
    sent_s: np.ndarray
    first_s: np.ndarray
    last_s: np.ndarray
    taken_s: np.ndarray | None = None


def ends(calls: list[Call], world_size: int, link: Link | None, slowness: np.ndarray) -> np.ndarray:
    """Return each replayed rank's end in seconds, [ranks]: all make `calls` on their own `link`; declared work takes `slowness`
    times as long.

    A "wait" among the calls is for the message of its number.
    """
    latency_s = link.latency_s if link else 0.0
    s_per_byte = 1 / link.bandwidth_bytes_per_s if link else 0.0
    now_s, egress_s, ingress_s = np.zeros(world_size), np.full(world_size, -np.inf), np.full(world_size, -np.inf)
    on_the_way: dict[tuple[int, int], deque[_Message]] = defaultdict(deque)
    sent: dict[int, _Message] = {}
    number = 0

    for what, distance, tag, amount in calls:
        if what == "compute":
            now_s = now_s + amount * slowness

        elif what == "send":
            first_s = np.maximum(now_s, egress_s)
            egress_s = first_s + amount * s_per_byte
            message = sent[number] = _Message(distance, now_s, first_s, egress_s)
            on_the_way[distance, tag].append(message)
            number += 1

        elif what == "recv":
            message = on_the_way[distance, tag].popleft()
            taken_s = np.maximum(now_s, np.roll(message.sent_s, distance))
            message.taken_s = np.roll(taken_s, -distance)
            ingress_s = np.maximum(np.roll(message.first_s, distance) + latency_s, ingress_s) + amount * s_per_byte
            now_s = np.maximum(taken_s, ingress_s)

        else:
            message = sent.pop(distance)
            now_s = np.maximum(np.maximum(now_s, message.taken_s), message.last_s)
    return now_s
