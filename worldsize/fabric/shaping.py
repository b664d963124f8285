"""A wire as slow as a link: a rank's messages leave one after another, and arrive one after another.

The shaper works in user space: the sender stamps when the first byte leaves (its egress clock), and the receiver waits until
the last byte would be there (its ingress clock). `links.py` has the model of a link and of nodes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worldsize.fabric.wire import Arrival, Pending, Wire
from worldsize.links import Link, LinkClock, Nodes

if TYPE_CHECKING:
    import torch


@dataclass(eq=False, slots=True)
class _ShapedPending:
    wire: Shaped
    inner: Pending
    left_s: float

    def wait(self) -> None:
        self.inner.wait()
        self.wire.until(self.left_s)


class Shaped:
    """A wire as slow as `link`: full duplex, one egress and one ingress clock for this rank. On `Nodes` it has two of each, for
    ranks of its node and for others.
    """

    def __init__(self, inner: Wire, link: Link | Nodes) -> None:
        self.rank = inner.rank
        self.world_size = inner.world_size
        self.now = inner.now
        self.compute = inner.compute
        self._inner = inner
        self._node_ranks = inner.world_size
        if isinstance(link, Nodes):
            self._node_ranks, self._between, link = link.ranks, LinkClock(link.between), link.inside
        self._inside = LinkClock(link)

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        first_s, last_s = self._clock(to).leave(x.nbytes, self.now())
        return _ShapedPending(self, self._inner.post(x, to, tag, first_s), last_s)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        arrival = self._inner.take(out, frm, tag)
        self.until(self._clock(arrival.source).arrive(arrival.size_bytes, arrival.stamp_s))
        return arrival

    def _clock(self, peer: int) -> LinkClock:
        if peer // self._node_ranks == self.rank // self._node_ranks:
            return self._inside
        return self._between

    def until(self, moment_s: float) -> None:
        remaining_s = moment_s - self.now()
        if remaining_s > 0:
            time.sleep(remaining_s)
