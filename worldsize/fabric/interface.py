"""The fabric: all that a rank needs to write any collective by hand, namely `send`, `isend` and `recv`.

Students' code sees a `Fabric`; below it a `Wire` moves bytes (`wire.py`). `send` is a rendezvous, like MPI's `MPI_Ssend`: it
returns when the receiver has taken the message. `collectives.py` builds on the fabric.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from worldsize.fabric.wire import Pending, Wire

if TYPE_CHECKING:  # a process that sends no torch tensor need not import torch
    import torch

MAX_TAG = 2**15  # MPI's guaranteed minimum


class Handle:
    """An `isend` of the fabric on its way. Do not change the tensor before `wait()` returns."""

    def __init__(self, pending: Pending) -> None:
        self._pending: Pending | None = pending

    def wait(self) -> None:
        """Block until the receiver on the fabric has taken the message. A second call returns at once."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None

    @property
    def waited(self) -> bool:
        return self._pending is None


class Fabric:
    """The fabric, a rank's connection to the others. `rank` is this rank, `world_size` the number of ranks."""

    def __init__(self, wire: Wire, handles: list[Handle] | None = None) -> None:
        self.rank = wire.rank
        self.world_size = wire.world_size
        self._wire = wire
        self._handles: list[Handle] = [] if handles is None else handles  # a part of a fabric (`among`) shares the whole's

    def send(self, x: torch.Tensor, to: int, tag: int = 0) -> None:
        """Send `x` (any shape, any dtype) over the fabric to rank `to` and wait until it has been taken.

        Moves `x.nbytes` bytes. Raises ValueError for an invalid rank or tag.
        """
        self._post("send", x, to, tag).wait()

    def isend(self, x: torch.Tensor, to: int, tag: int = 0) -> Handle:
        """Begin to send `x` to rank `to`. Returns a handle; call its `wait()` before `x` changes or the run ends."""
        handle = Handle(self._post("isend", x, to, tag))
        self._handles[:] = [h for h in self._handles if not h.waited] + [handle]
        return handle

    def recv(self, out: torch.Tensor, frm: int | None = None, tag: int = 0) -> int:
        """Receive over the fabric into `out` from rank `frm`, or from the first sender if `frm` is None. Returns the source.

        Raises ValueError if the message's dtype or shape differs from `out`.
        """
        if frm is not None:
            self._check_peer("recv", frm, "from")
        self._check_tag("recv", tag)

        import torch

        view = self._tensor("recv", out)
        landing = view if _plain(view) else torch.empty(view.shape, dtype=view.dtype)
        arrival = self._wire.take(landing, frm, tag)

        if landing is not view:
            view.copy_(landing)
        return arrival.source

    def compute(self, seconds: float, x: torch.Tensor | None = None) -> torch.Tensor | None:
        """Do declared work: it takes `seconds`, is drawn as compute, and burns no core.

        `x` is the work's input, returned as its result. A grader returns `x` times a number drawn when the work is over, so
        that nothing that needs the result can be done earlier.
        """
        if not isinstance(seconds, (int, float)) or not (0 <= seconds < math.inf):
            raise ValueError(f"compute on rank {self.rank}: expected a time of 0 s or more, got {seconds!r}")
        return self._wire.compute(seconds, x)

    def guard_sends(self) -> None:
        """Make later `wait()` calls raise RuntimeError if the tensor has changed since `isend`. Costs a copy per message."""
        from worldsize.fabric.guarded import GuardedWire

        self._wire = GuardedWire(self._wire)

    def move_to(self, wire: Wire) -> None:
        """Send every later message through `wire`, which connects the same ranks. Earlier handles are forgotten."""
        self._wire = wire
        self._handles.clear()

    def unwaited(self) -> int:
        """Return the number of `isend` handles not waited for, of the fabric and of parts of it."""
        return sum(not h.waited for h in self._handles)

    def _post(self, op: str, x: torch.Tensor, to: int, tag: int) -> Pending:
        self._check_peer(op, to, "to")
        self._check_tag(op, tag)

        import torch

        data = self._tensor(op, x)
        if data.requires_grad:
            data = data.detach()
        if not _plain(data):
            data = torch.empty(data.shape, dtype=data.dtype).copy_(data)
        return self._wire.post(data, to, tag, self._wire.now())

    def _check_peer(self, op: str, peer: object, way: str) -> None:
        if not isinstance(peer, (int, np.integer)) or isinstance(peer, bool) or not 0 <= peer < self.world_size:
            raise ValueError(
                f"{op} {way} rank {peer!r} on rank {self.rank}: expected a rank from 0 to {self.world_size - 1} "
                f"(the world size is {self.world_size}). Rank 0 is the first and rank {self.world_size - 1} the last: each has "
                f"only one neighbour, except in a ring, where the next rank is (rank + 1) % world_size."
            )
        if peer == self.rank:
            raise ValueError(
                f"{op} {way} rank {peer} on rank {self.rank}: expected another rank, got this rank itself. "
                f"Copy the tensor instead."
            )

    def _check_tag(self, op: str, tag: object) -> None:
        if not isinstance(tag, (int, np.integer)) or not 0 <= tag < MAX_TAG:
            raise ValueError(f"{op} on rank {self.rank}: expected a tag from 0 to {MAX_TAG - 1}, got {tag!r}")

    def _tensor(self, op: str, x: object) -> torch.Tensor:
        import torch

        if isinstance(x, np.ndarray):
            return torch.from_numpy(x)
        if isinstance(x, torch.Tensor):
            return x
        got = f"{op} on rank {self.rank}: expected a torch tensor or a NumPy array, got"
        if x is None:
            raise ValueError(
                f"{got} None. A .grad is None before backward(), and also if requires_grad was not set before the forward pass; "
                f"a function without return gives None too."
            )
        if op == "recv" and type(x) is int and 0 <= x < self.world_size:
            raise ValueError(f"{got} int. recv fills a tensor of yours: recv(out, {x}) where {x} is the sender.")
        if isinstance(x, (bool, int, float, complex, np.generic)):
            raise ValueError(f"{got} {type(x).__name__}. Wrap a number as torch.tensor([{x!r}]).")
        raise ValueError(f"{got} {type(x).__name__}. Send its tensors one by one.")


def _plain(x: torch.Tensor) -> bool:
    """Return True if a fabric's message is contiguous in this machine's memory, so that a wire can read or write them."""
    return x.is_contiguous() and x.device.type == "cpu" and not (x.is_conj() or x.is_neg())
