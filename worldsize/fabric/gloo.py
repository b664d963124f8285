"""A wire between real processes: `GlooWire` moves bytes over torch's gloo.

A small tensor travels in one message with its header, a larger one in a second message. `shaping.py` makes any wire as slow as a
link.
"""

import inspect
import struct
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from worldsize.fabric.tensor_kinds import DTYPE_NAMES, kind_mismatch, kind_text
from worldsize.fabric.wire import SMALL_BYTES, Arrival, PeerLost, PeerSilent, Pending

DTYPES = [getattr(torch, name) for name in DTYPE_NAMES]
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_MAX_DIMS = 12
_HEADER = struct.Struct(f"={3 + _MAX_DIMS}q")  # stamp in ns, dtype, number of dimensions, shape
_NEVER = timedelta(days=30)  # the launch's own time limit ends a run, not gloo's
_wait = inspect.unwrap(dist.Work.wait)  # torch's own wait, below any recording of a rank's waits: the fabric records its own
_TIMED_OUT = ("Timed out waiting", "Application timeout")  # gloo's RuntimeError tells its kind only in its text


def gloo_group(store: dist.Store, rank: int, world_size: int, timeout: timedelta = _NEVER) -> dist.ProcessGroupGloo:
    """Return a separate gloo group for the fabric; the student's default process group stays theirs."""
    return dist.ProcessGroupGloo(dist.PrefixStore("fabric", store), rank, world_size, timeout)


@dataclass(eq=False, slots=True)
class _GlooPending:
    works: list[dist.Work]
    kept: tuple[torch.Tensor, ...]  # gloo reads the tensors until the works are done
    peer: int

    def wait(self) -> None:
        try:
            for work in self.works:
                _wait(work)
        except RuntimeError as error:
            raise _peer_error("send to", self.peer, error) from error


def _peer_error(doing: str, peer: int | None, error: RuntimeError) -> PeerLost | PeerSilent:
    """Translate gloo's error: its calls fail when a connection fails or the group's time limit is over."""
    whom = "another rank" if peer is None else f"rank {peer}"
    if any(words in str(error) for words in _TIMED_OUT):
        return PeerSilent(
            f"{doing} {whom}: expected an answer within the group's time limit, got none. Does {whom} reach the "
            f"matching call, with the same tag?"
        )
    return PeerLost(f"{doing} {whom}: the other process has ended, and the connection with it")


class GlooWire:
    """A wire for bytes between processes, on one machine or several, over gloo: a header, then the tensor.

    A small tensor travels in its header's message. Header and tensor are each a rendezvous: gloo sends nothing before the
    receiver asks.
    """

    def __init__(self, group: dist.ProcessGroupGloo, origin_s: float = 0.0) -> None:
        self.rank = group.rank()
        self.world_size = group.size()
        self._group = group
        self._origin_s = origin_s
        self._landings: list[tuple[torch.Tensor, memoryview]] = []  # kept, because fresh memory costs page faults
        self._unmet: list[dist.Work] = []  # they must outlive the tensors of their messages

    now = staticmethod(time.monotonic)

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        header = _header(x, stamp_s - self._origin_s)
        header_tag, payload_tag = _tags(tag, x.nbytes)
        try:
            if x.nbytes <= SMALL_BYTES:
                both = torch.cat([header, raw(x)])
                return _GlooPending([self._group.send([both], to, header_tag)], (both,), to)
            works = [self._group.send([header], to, header_tag), self._group.send([x], to, payload_tag)]
        except RuntimeError as error:
            raise _peer_error("send to", to, error) from error
        return _GlooPending(works, (header, x), to)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        try:
            return self._take(out, frm, tag)
        except RuntimeError as error:
            raise _peer_error("recv from", frm, error) from error

    def _take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        if self._landings:
            landing, words = self._landings.pop()
        else:
            landing = torch.empty(_HEADER.size + SMALL_BYTES, dtype=torch.uint8)
            words = memoryview(landing.numpy())

        small = out.nbytes <= SMALL_BYTES  # then the payload comes with its header
        header_tag, payload_tag = _tags(tag, out.nbytes)
        payload = None
        if frm is None:
            header = self._group.recv_anysource([landing], header_tag)
            _wait(header)
            frm = header._source_rank()
        else:
            header = self._group.recv([landing], frm, header_tag)
            if not small:
                payload = self._group.recv([out], frm, payload_tag)  # before the header arrives: saves a round trip
            _wait(header)

        stamp_ns, dtype, dims, *shape = _HEADER.unpack_from(words)
        if DTYPES[dtype] != out.dtype or tuple(shape[:dims]) != out.shape:
            if payload is not None:
                self._unmet.append(payload)
            expected, got = kind_text(str(out.dtype), out.shape), kind_text(str(DTYPES[dtype]), shape[:dims])
            raise ValueError(kind_mismatch(self.rank, frm, tag, expected, got))

        if small:
            raw(out).copy_(landing[_HEADER.size : _HEADER.size + out.nbytes])
        else:
            if payload is None:
                payload = self._group.recv([out], frm, payload_tag)
            _wait(payload)

        self._landings.append((landing, words))
        return Arrival(frm, out.nbytes, stamp_ns * 1e-9 + self._origin_s)

    def compute(self, seconds: float, x: torch.Tensor | None = None) -> torch.Tensor | None:
        time.sleep(seconds)
        return x


def _tags(tag: int, size_bytes: int) -> tuple[int, int]:
    """Return gloo's tags of a message's header and payload. The payload's depends on the size, because gloo aborts a process
    that is sent more than it asked for.

    Sizes that are equal modulo 65521 share a tag. Correct programs do not notice, since payloads arrive in their headers' order.
    """
    header = int(tag) << 16
    return header, header + 1 + size_bytes % 65521  # the largest prime below 2**16, the room for a size


def raw(x: torch.Tensor) -> torch.Tensor:
    if not x.numel():  # an empty tensor made from a NumPy array has a stride that `view` refuses
        return torch.empty(0, dtype=torch.uint8)
    return x.reshape(-1).view(torch.uint8)


def _header(x: torch.Tensor, stamp_s: float) -> torch.Tensor:
    if x.dtype not in CODES or x.dim() > _MAX_DIMS:
        raise ValueError(f"send: expected a plain dtype and at most {_MAX_DIMS} dimensions, got {x.dtype}, {x.dim()}")

    unused = (0,) * (_MAX_DIMS - x.dim())
    words = _HEADER.pack(round(stamp_s * 1e9), CODES[x.dtype], x.dim(), *x.shape, *unused)
    return torch.frombuffer(bytearray(words), dtype=torch.uint8)
