"""Wires between real processes: `GlooWire` moves bytes over torch's gloo, `Shaped` makes any wire as slow as a link.

The shaper works in user space: the sender stamps when the first byte leaves (its egress clock), the receiver waits
until the last byte would be there (its ingress clock). Both clocks make a fan-in queue up, as on a real network card.
Left out: packets, congestion control, switches. A message leaves when it is posted, whether or not its receiver is
ready, and is cut through, so that one message takes latency + size / bandwidth: the alpha-beta model of Hockney (1994,
doi 10.1016/S0167-8191(06)80021-9).
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from worldsize.fabric import Arrival, Pending, Wire
from worldsize.links import Link

_DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
_MAX_DIMS = 12
_HEADER_BYTES = 8 * (3 + _MAX_DIMS)  # stamp in ns, dtype, number of dimensions, shape
_SMALL_BYTES = 2**17  # to here, a copy into the header's message is cheaper than a second message
_NEVER = timedelta(days=30)  # the launch's own time limit ends a run, not gloo's


def gloo_group(store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroupGloo:
    """A gloo group of the fabric's own, so that the student's default process group stays theirs."""
    return dist.ProcessGroupGloo(dist.PrefixStore("fabric", store), rank, world_size, _NEVER)


class _GlooPending:
    def __init__(self, works: list[dist.Work], keep: tuple[torch.Tensor, ...]) -> None:
        self._works, self._keep = works, keep  # gloo reads the tensors until the works are done

    def wait(self) -> None:
        for work in self._works:
            work.wait()


class GlooWire:
    """Bytes between processes of one machine (or several) over gloo: a header, then the tensor.

    A small tensor travels in its header's message. Both are a rendezvous: gloo sends nothing before the receiver asks.
    """

    def __init__(self, group: dist.ProcessGroupGloo) -> None:
        self._group = group
        self._landings: list[torch.Tensor] = []  # where headers land; kept, because fresh memory costs page faults
        self.rank, self.world_size = group.rank(), group.size()

    def now(self) -> float:
        return time.monotonic()

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        header, payload = _header(x, stamp_s), _bytes(x)
        if x.nbytes <= _SMALL_BYTES:
            both = torch.cat([header, payload])
            return _GlooPending([self._group.send([both], to, 2 * tag)], (both,))
        works = [self._group.send([header], to, 2 * tag), self._group.send([payload], to, 2 * tag + 1)]
        return _GlooPending(works, (header, payload))

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        landing = self._landings.pop() if self._landings else torch.empty(_HEADER_BYTES + _SMALL_BYTES, dtype=torch.uint8)
        if frm is None:
            work = self._group.recv_anysource([landing], 2 * tag)
            work.wait()
            frm = work._source_rank()
        else:
            self._group.recv([landing], frm, 2 * tag).wait()
        stamp_ns, *kind = landing[:_HEADER_BYTES].view(torch.int64).tolist()
        _check(kind, out, self.rank, frm, tag)
        if out.nbytes <= _SMALL_BYTES:
            _bytes(out).copy_(landing[_HEADER_BYTES : _HEADER_BYTES + out.nbytes])
        else:
            self._group.recv([_bytes(out)], frm, 2 * tag + 1).wait()
        self._landings.append(landing)
        return Arrival(frm, out.nbytes, stamp_ns * 1e-9)

    def compute(self, seconds: float) -> None:
        time.sleep(seconds)


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1).view(torch.uint8)


def _header(x: torch.Tensor, stamp_s: float) -> torch.Tensor:
    if x.dtype not in _DTYPES or x.dim() > _MAX_DIMS:
        raise ValueError(f"send: expected a plain dtype and at most {_MAX_DIMS} dimensions, got {x.dtype}, {x.dim()}")
    shape = list(x.shape) + [0] * (_MAX_DIMS - x.dim())
    words = torch.tensor([round(stamp_s * 1e9), _DTYPES.index(x.dtype), x.dim(), *shape], dtype=torch.int64)
    return words.view(torch.uint8)


def _check(kind: list[int], out: torch.Tensor, rank: int, frm: int, tag: int) -> None:
    dtype, dims, *shape = kind
    if _DTYPES[dtype] != out.dtype or shape[:dims] != list(out.shape):
        raise ValueError(
            f"recv on rank {rank} from rank {frm} (tag {tag}): expected {_kind(out.dtype, list(out.shape))}, which is "
            f"what `out` is, got {_kind(_DTYPES[dtype], shape[:dims])}. Receive into a tensor like the one that "
            f"rank {frm} sends."
        )


def _kind(dtype: torch.dtype, shape: list[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{shape}"


class _ShapedPending:
    def __init__(self, wire: Shaped, inner: Pending, left_s: float) -> None:
        self._wire, self._inner, self._left_s = wire, inner, left_s

    def wait(self) -> None:
        self._inner.wait()
        self._wire.until(self._left_s)


class Shaped:
    """A wire as slow as `link`: full duplex, one egress and one ingress clock for this rank."""

    def __init__(self, inner: Wire, link: Link) -> None:
        self.rank, self.world_size = inner.rank, inner.world_size
        self.now = inner.now
        self.compute = inner.compute
        self._inner, self._link = inner, link
        self._egress_free_s = self._ingress_free_s = 0.0

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        leaves_s = max(self.now(), self._egress_free_s)
        self._egress_free_s = leaves_s + x.nbytes / self._link.bandwidth_bytes_per_s
        return _ShapedPending(self, self._inner.post(x, to, tag, leaves_s), self._egress_free_s)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        arrival = self._inner.take(out, frm, tag)
        enters_s = max(arrival.stamp_s + self._link.latency_s, self._ingress_free_s)
        self._ingress_free_s = enters_s + arrival.size_bytes / self._link.bandwidth_bytes_per_s
        self.until(self._ingress_free_s)
        return arrival

    def until(self, moment_s: float) -> None:
        remaining_s = moment_s - self.now()
        if remaining_s > 0:
            time.sleep(remaining_s)
