"""The gathers of a stage 3 run on two ranks, read from the trace: how many layers are whole at once, and which begin ahead.

With two ranks, a message's size identifies a layer's weight part, or the other rank's gradient part, if the layers have odd
sizes that differ. Each rank's sends and work are on one clock and in program order, so a busy machine changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worldsize.checks.kit.transfers import declared_work
from worldsize.checks.verdict import Complaint
from worldsize.trace import Span, Trace, Transfer


@dataclass(frozen=True)
class _Gather:
    """A rank's gather of a layer; `work` is the index of the work that needs it, counted over passes and steps."""

    rank: int
    layer: int
    work: int
    begun_s: float
    arrived_s: float


class LayerGathers:
    """The gathers of a run of two ranks, by layer and by the work that needs them.

    `layers` are the numbers of elements of each weight. Raises ValueError unless two ranks' parts all differ in size.
    """

    def __init__(self, layers: Sequence[int], item_bytes: int, steps: int, trace: Trace) -> None:
        self._layers, self._item_bytes, self._steps, self._trace = layers, item_bytes, steps, trace
        sizes = [size for rank in (0, 1) for size in self._own_sizes(rank)]
        if trace.world_size != 2 or len(set(sizes)) != len(sizes):
            raise ValueError(f"LayerGathers: expected two ranks and layers whose parts differ in size, got {layers!r}")

    def too_many_at_once(self) -> Complaint:
        """Return a complaint if a gather begins before the work of two layers earlier has ended."""
        return self._unread() or self._over_all(self._too_early)

    def not_ahead(self) -> Complaint:
        """Return a complaint if a gather begins after the previous layer's work does, or if most arrive before it."""
        return self._unread() or self._over_all(self._too_late) or self._mostly_waited_for()

    # ---- reading -----------------------------------------------------------------------------

    def _own_sizes(self, rank: int) -> list[int]:
        """Return the bytes of this rank's part of each layer; rank 0's part is the larger."""
        return [(size + 1 - rank) // 2 * self._item_bytes for size in self._layers]

    def _works(self) -> list[int]:
        """Return the layer of each piece of work in a step: forward, then backward."""
        forwards = list(range(len(self._layers)))
        return [*forwards, *reversed(forwards)]

    def _spans(self, rank: int) -> list[Span]:
        return declared_work(self._trace, rank)

    def _gather_messages(self, rank: int) -> list[tuple[int, Transfer]]:
        """Return (layer, message) of the weight parts that this rank sends, in order."""
        sizes = self._own_sizes(rank)
        sent = sorted((t for t in self._trace.transfers if t.src == rank), key=lambda t: t.start_s)
        return [(sizes.index(t.size_bytes), t) for t in sent if t.size_bytes in sizes]

    def _unread(self) -> Complaint:
        """Return a complaint if the trace lacks the work or the gathers of a stage 3."""
        works, last = self._works(), len(self._layers) - 1
        for rank in (0, 1):
            expected, got = len(works) * self._steps, len(self._spans(rank))
            if got != expected:
                return (
                    f"rank {rank} did the work of a layer {got} times, expected {expected}: call layer_forward and "
                    f"layer_backward, which declare their work, once for each layer and step."
                )

            order = [layer for layer, _ in self._gather_messages(rank)]
            kept = [*works[: last + 1], *works[last + 2 :]]  # the last layer's weight may stay for its backward pass
            if order not in (works * self._steps, kept * self._steps):
                return self._wrong_order(rank, order, works)

        return None

    def _wrong_order(self, rank: int, order: list[int], works: list[int]) -> str:
        if order == works[: len(self._layers)] * self._steps:
            return (
                f"rank {rank} sends its parts for the forward pass alone: weights that are not gathered again for the backward "
                f"pass were never freed, and all layers are whole at once."
            )
        shown = ", ".join(map(str, order[: len(works)])) or "none"
        return (
            f"rank {rank} sends its parts of whole weights in the order of layers {shown}; expected in each step "
            f"{', '.join(map(str, works))}: gather each for its forward pass, free it, and gather it again for its backward "
            "pass."
        )

    def _gathers(self, rank: int) -> list[_Gather]:
        works = self._works()
        of_work = [k for _ in range(self._steps) for k in range(len(works))]
        messages = self._gather_messages(rank)
        if len(messages) != len(of_work):  # the last layer's weight stays for its backward pass
            of_work = [k for k in of_work if k != len(self._layers)]

        arrivals = self._arrivals(rank)
        found, step = [], -1  # the first work of each step, k = 0, counts it up
        for (layer, sent), k, arrived_s in zip(messages, of_work, arrivals, strict=True):
            step += k == 0
            found.append(_Gather(rank, layer, step * len(works) + k, sent.start_s, arrived_s))
        return found

    def _arrivals(self, rank: int) -> list[float]:
        """Return when the other rank's weight parts arrived here, in the order in which they were sent."""
        return [message.end_s for _, message in self._gather_messages(1 - rank)]

    # ---- judging -----------------------------------------------------------------------------

    def _over_all(self, judged: Callable[[_Gather, list[Span]], Complaint]) -> Complaint:
        for rank in (0, 1):
            spans = self._spans(rank)
            for gather in self._gathers(rank):
                complaint = judged(gather, spans)
                if complaint:
                    return complaint
        return None

    def _too_early(self, gather: _Gather, spans: list[Span]) -> Complaint:
        before = gather.work - 2
        if before < 0 or gather.begun_s >= spans[before].end_s:
            return None
        return (
            f"{self._named(gather)} before the work of two layers earlier is over: three layers or more are whole at once. "
            f"Gather only one layer ahead."
        )

    def _too_late(self, gather: _Gather, spans: list[Span]) -> Complaint:
        place = gather.work % len(self._works())
        if place in (0, len(self._layers)):  # no work precedes a step, and at the turn one layer works twice in a row
            return None

        if gather.begun_s > spans[gather.work - 1].start_s:
            return (
                f"{self._named(gather)} only after the work of the layer before it has begun: no part of it is hidden. Begin "
                f"the gather first, then work, then wait for it."
            )
        return None

    def _mostly_waited_for(self) -> Complaint:
        """Return a complaint if most prefetched gathers arrive before the work that should hide them begins."""
        for rank in (0, 1):
            spans = self._spans(rank)
            ahead = [g for g in self._gathers(rank) if g.work % len(self._works()) not in (0, len(self._layers))]
            early = [g for g in ahead if g.arrived_s < spans[g.work - 1].start_s]
            if 2 * len(early) > len(ahead):  # most, not any: a helper thread may receive some early
                return (
                    f"rank {rank} waits for layer {early[0].layer} ({self._where(early[0].work)}) before it works on the "
                    f"current layer: begin the gather, work, and only then wait."
                )

        return None

    def _named(self, gather: _Gather) -> str:
        return f"rank {gather.rank} begins to gather layer {gather.layer} ({self._where(gather.work)})"

    def _where(self, work: int) -> str:
        step, k = divmod(work, len(self._works()))
        way = "forwards"
        if k >= len(self._layers):
            way = "backwards"
        return f"{way} in step {step + 1}"
