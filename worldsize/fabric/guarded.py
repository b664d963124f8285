"""A wire that detects a change of a tensor while it is being sent: between `isend` and its `wait()`.

On a real wire such a change may or may not arrive; here it is always an error, at every size. The rule is MPI's for the buffer
of a nonblocking send (MPI 4.1, section 3.7.2). Checks use this wire, because it costs a copy of each message.
"""

from dataclasses import dataclass

import torch

from worldsize.fabric.gloo import raw
from worldsize.fabric.wire import Arrival, Pending, Wire


@dataclass(eq=False, slots=True)
class _GuardedPending:
    inner: Pending
    sent: torch.Tensor
    before: torch.Tensor  # the bytes of `sent` at the isend
    words: str

    def wait(self) -> None:
        if not torch.equal(raw(self.sent), self.before):
            raise RuntimeError(self.words)
        self.inner.wait()


class GuardedWire:
    """A wrapped wire whose message's `wait()` raises RuntimeError if the tensor has changed since `isend`."""

    def __init__(self, inner: Wire) -> None:
        self.rank = inner.rank
        self.world_size = inner.world_size
        self.now = inner.now
        self.compute = inner.compute
        self._inner = inner

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        words = (
            f"rank {self.rank} changed the tensor of its isend to rank {to} before wait(), so the message may hold old "
            f"or new values. Call wait() first, or receive into another tensor."
        )
        return _GuardedPending(self._inner.post(x, to, tag, stamp_s), x, raw(x).clone(), words)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        return self._inner.take(out, frm, tag)
