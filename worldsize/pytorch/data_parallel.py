"""DataParallel at work: one process, a thread per card, with card 0 at the center of all copies.

With several GPUs, PyTorch's own `nn.DataParallel` runs and `RecordedCopies` notes its copies. Elsewhere `Emulated` does the same
on the CPU: each step scatters the batch from card 0, copies the weights to every card, runs a thread per card, gathers the
outputs on card 0 and, after backward, adds up all gradients there. Its cards are regions of one memory; each copy goes directly
from or to card 0, as in PyTorch without NCCL. In the trace a "rank" is a card. Left out: scalars and dicts as outputs. A. Paszke
and others, "PyTorch", NeurIPS 2019; the order is from `torch/nn/parallel/data_parallel.py` and `_functions.py`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from worldsize.links import Link
from worldsize.trace import Collective, Span, Trace, Transfer

Tensors = Sequence[torch.Tensor]


class Cards:
    """DataParallel's record of `count` cards of one process and, if they are emulated, the copies between them.

    A copy over `link` takes the link's time; copies leave one after another, because they share card 0's link.
    """

    def __init__(self, count: int, link: Link | None = None) -> None:
        self.count, self._link, self._origin_s = count, link, time.monotonic()
        self._transfers: list[Transfer] = []
        self._collectives: list[Collective] = []
        self._spans: list[Span] = []

    def now(self) -> float:
        return time.monotonic() - self._origin_s

    def move(self, tensors: Tensors, src: int, dst: int) -> list[torch.Tensor]:
        """Return copies of `tensors` on card `dst`; from a card to itself, the same data detached."""
        if src == dst or not tensors:
            return [t.detach() for t in tensors]

        start_s = self.now()
        copies = [t.detach().clone() for t in tensors]
        size_bytes = _bytes(copies)
        if self._link:
            time.sleep(max(0.0, start_s + self._link.seconds(size_bytes) - self.now()))

        self.note(src, dst, size_bytes, start_s)
        return copies

    def note(self, src: int, dst: int, size_bytes: int, start_s: float) -> None:
        self._transfers.append(Transfer(src, dst, size_bytes, start_s, self.now()))

    @contextmanager
    def collective(self, op: str, size_bytes: int) -> Iterator[None]:
        """Note that all of DataParallel's cards take part in `op` meanwhile."""
        start_s = self.now()
        yield
        for card in range(self.count):
            self._collectives.append(Collective(op, size_bytes, card, start_s, self.now()))

    @contextmanager
    def work(self, card: int, label: str) -> Iterator[None]:
        start_s = self.now()
        yield
        self._spans.append(Span(card, "compute", start_s, self.now(), label))

    def trace(self) -> Trace:
        for events in (self._transfers, self._spans, self._collectives):
            events.sort(key=lambda e: e.start_s)
        return Trace(self.count, tuple(self._transfers), tuple(self._spans), tuple(self._collectives))


class Emulated(nn.Module):
    """A replacement for `nn.DataParallel(module)`: call it, then call `backward()` on a loss of its output.

    Gradients arrive in the module's own parameters, on card 0. Of the buffers only card 0's copy stays.
    """

    def __init__(self, module: nn.Module, cards: Cards) -> None:
        super().__init__()
        self.module = module
        self._cards = cards
        # in a tuple, so that the replicas are not registered as submodules with parameters of their own
        self._replicas = (tuple(copy.deepcopy(module) for _ in range(cards.count)),)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Step.apply(self, x, *self.module.parameters())

    def run(self, ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Emulate DataParallel: scatter, replicate, run a forward pass in a thread per card, gather."""
        cards = self._cards
        pieces = self._scattered(x, x.chunk(cards.count))

        with cards.collective("replicate", _bytes([*self.module.parameters()])):
            replicas = list(map(self._replica, range(len(pieces))))

        outputs = self._threads("forward", list(map(partial, replicas, pieces)))

        with cards.collective("gather", _bytes(outputs)):
            gathered = [cards.move([o], card, 0)[0] for card, o in enumerate(outputs)]

        ctx.replicas, ctx.outputs = replicas, outputs
        return torch.cat(gathered)

    def run_back(self, ctx: Any, grad: torch.Tensor) -> Tensors:
        """Emulate DataParallel: scatter the outputs' gradients, run a backward pass in a thread per card, add up on card 0."""
        cards = self._cards
        pieces = self._scattered(grad, grad.split([len(o) for o in ctx.outputs]))

        works = [partial(torch.autograd.backward, o, p) for o, p in zip(ctx.outputs, pieces, strict=True)]
        self._threads("backward", works)

        own = []
        for replica in ctx.replicas:
            own.append([torch.zeros_like(p) if p.grad is None else p.grad for p in replica.parameters()])

        with cards.collective("reduce add", _bytes(own[0])):
            arrived = [cards.move(gradients, card, 0) for card, gradients in enumerate(own)]
            return [sum(of_all[1:], of_all[0]) for of_all in zip(*arrived, strict=True)]

    def _scattered(self, whole: torch.Tensor, parts: Tensors) -> list[torch.Tensor]:
        """Return a tensor scattered in parts, each on its card."""
        with self._cards.collective("scatter", whole.nbytes):
            return [self._cards.move([part], 0, card)[0] for card, part in enumerate(parts)]

    def _replica(self, card: int) -> nn.Module:
        replica = self._replicas[0][card].train(self.module.training)

        for kind in ("parameters", "buffers"):
            theirs = [*getattr(self.module, kind)()]
            for mine, given in zip(getattr(replica, kind)(), self._cards.move(theirs, 0, card), strict=True):
                mine.data, mine.grad = given, None

        return replica

    def _threads(self, label: str, works: Sequence[Callable[[], Any]]) -> list[Any]:
        def timed(card: int) -> Any:
            with torch.enable_grad(), self._cards.work(card, label):
                return works[card]()

        with ThreadPoolExecutor(len(works)) as pool:
            return list(pool.map(timed, range(len(works))))


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parallel: Emulated, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.parallel = parallel
        return parallel.run(ctx, x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return (None, None, *ctx.parallel.run_back(ctx, grad))


class RecordedCopies:
    """A recorder of the copies of PyTorch's own DataParallel: inside `with RecordedCopies(cards): …` it wraps four functions.

    The recorder synchronizes the cards before and after each copy for true times, which slows a step. The record has each copy's
    source and destination; NCCL may relay a copy from card to card.
    """

    def __init__(
        self, cards: Cards, comm: Any = None,
        card_of: Callable[[torch.Tensor], int] = lambda x: max(0, x.get_device()),  # host memory counts as card 0's
    ) -> None:  # fmt: skip
        if comm is None:
            from torch.nn.parallel import comm as torchs_own

            comm = torchs_own

        self._cards, self._comm, self._card_of = cards, comm, card_of

    def __enter__(self) -> RecordedCopies:
        self._originals = {name: getattr(self._comm, name) for name in _WAYS}
        for name, way in _WAYS.items():
            setattr(self._comm, name, self._noting(way, self._originals[name]))
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(self._comm, name, original)

    def _noting(self, way: tuple[str, bool], original: Callable) -> Callable:
        op, outwards = way

        def noted(given: Any, *args: Any, **kwargs: Any) -> Any:
            if not _bytes(given):  # such as the buffers of a model that has none
                return original(given, *args, **kwargs)

            _finish()
            start_s = self._cards.now()
            got = original(given, *args, **kwargs)
            _finish()

            many, whole = given, got
            if outwards:
                many, whole = got, given

            centre = self._card_of(_first(whole))
            for part in many:
                src, dst = self._card_of(_first(part)), centre
                if outwards:
                    src, dst = dst, src
                if src != dst:
                    self._cards.note(src, dst, _bytes(part), start_s)

            with self._cards.collective(op, _bytes(whole)):
                pass
            return got

        return noted


# name of the function in torch.nn.parallel.comm: (the course's name, True if it goes out from one card)
_WAYS = {
    "scatter": ("scatter", True), "broadcast_coalesced": ("replicate", True), "gather": ("gather", False),
    "reduce_add_coalesced": ("reduce add", False),
}  # fmt: skip


def _first(given: Any) -> torch.Tensor:
    while not isinstance(given, torch.Tensor):
        given = given[0]
    return given


def _bytes(given: Any) -> int:
    if isinstance(given, torch.Tensor):
        return given.nbytes
    return sum(map(_bytes, given))


def _finish() -> None:
    for card in range(torch.cuda.device_count()):
        torch.cuda.synchronize(card)


def data_parallel(module: nn.Module, cards: Cards) -> tuple[nn.Module, str]:
    """Return the module under DataParallel on `cards.count` cards, and a sentence that says if they are real GPUs."""
    if torch.cuda.device_count() >= max(2, cards.count):
        words = f"PyTorch's own DataParallel on {cards.count} GPUs"
        return nn.DataParallel(module.cuda(0), device_ids=[*range(cards.count)]), words
    return Emulated(module, cards), f"emulated: {cards.count} threads of one process stand for {cards.count} cards"
