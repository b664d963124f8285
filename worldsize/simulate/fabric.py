"""The fabric of a simulated rank: the same interface, with a fast path for nearly all calls.

A call with plainly valid arguments goes directly to the simulation; every other call goes through the checks and messages of
real ranks. `world.py` decides when messages pass.
"""

import sys
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.fabric.interface import MAX_TAG, Fabric, Handle
from worldsize.fabric.tensor_kinds import kind_mismatch, kind_text
from worldsize.fabric.wire import Arrival
from worldsize.simulate.world import Sent, World


class SimulatedWire:
    """A rank's wire in simulated time, for calls that do not take the fast path."""

    def __init__(self, world: World, rank: int) -> None:
        self.rank = rank
        self.world_size = world.world_size
        self._world = world

    def now(self) -> float:
        return self._world.clock_s[self.rank]

    def post(self, x: Any, to: int, tag: int, stamp_s: float) -> Sent:
        return self._world.post(self.rank, x.clone(), to, tag)  # as a real wire copies a small message

    def take(self, out: Any, frm: int | None, tag: int) -> Arrival:
        return Arrival(*self._world.take(self.rank, out, frm, tag, land))

    def compute(self, seconds: float, x: Any = None) -> Any:
        self._world.compute(self.rank, seconds)
        return x


class SimulatedFabric(Fabric):
    """The fabric of a simulated rank, its connection to the others."""

    def __init__(self, world: World, rank: int) -> None:
        super().__init__(SimulatedWire(world, rank))
        self._world = world
        self._number = rank  # `rank` itself may count the numbers it is compared with (`ranks_alone`)
        self._guarded = False

    @override
    def guard_sends(self) -> None:
        super().guard_sends()
        self._guarded = True

    @override
    def isend(self, x: Any, to: int, tag: int = 0) -> Handle:
        if not self._plain(x, to, tag):
            return super().isend(x, to, tag)
        return self._world.post(self.rank, x, to, tag)

    @override
    def send(self, x: Any, to: int, tag: int = 0) -> None:
        if not self._plain(x, to, tag):
            return super().send(x, to, tag)
        self._world.post(self.rank, x, to, tag).wait()

    @override
    def recv(self, out: Any, frm: int | None = None, tag: int = 0) -> int:
        if not self._plain(out, frm, tag, may_be_anyone=True):
            return super().recv(out, frm, tag)
        return self._world.take(self.rank, out, frm, tag, land)[0]

    @override
    def unwaited(self) -> int:
        return self._world.unwaited[self.rank]

    def _plain(self, x: Any, peer: Any, tag: Any, may_be_anyone: bool = False) -> bool:
        """Return True for a plainly valid call on unguarded tensors: a tensor or an array, another rank's number, a tag."""
        if self._guarded or type(tag) is not int or not 0 <= tag < MAX_TAG:
            return False
        if peer is not None or not may_be_anyone:
            if type(peer) is not int or not 0 <= peer < self.world_size or peer == self._number:
                return False

        if type(x) is np.ndarray:
            return True
        torch = sys.modules.get("torch")
        return torch is not None and type(x) is torch.Tensor


def land(message: Sent, out: Any) -> None:
    """Put a simulated message's values into `out`. Raises ValueError if its dtype or shape differs."""
    x = message.x
    if type(x) is not type(out):
        x, out = _as_tensor(x), _as_tensor(out)
    if x.shape != out.shape or x.dtype != out.dtype:
        expected, got = kind_text(str(out.dtype), out.shape), kind_text(str(x.dtype), x.shape)
        raise ValueError(kind_mismatch(message.to, message.rank, message.tag, expected, got))

    if type(out) is np.ndarray:
        out[...] = x
    elif out.requires_grad or x.requires_grad:
        out.detach().copy_(x.detach())
    else:
        out.copy_(x)


def _as_tensor(x: Any) -> Any:
    import torch

    return torch.from_numpy(x) if isinstance(x, np.ndarray) else x
