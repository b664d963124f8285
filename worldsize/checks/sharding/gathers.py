"""The gathers of a stage 3 run on two ranks, read from the trace: how many layers are whole at once, and which begin ahead.

With two ranks, a message's size identifies a layer's weight part, or the other rank's gradient part, if the layers have odd
sizes that differ. Each rank's sends and work are on one clock and in program order, so a busy machine changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from worldsize.checks.kit.transfers import declared_work, from_rank
from worldsize.checks.verdict import Complaint
from worldsize.trace import Trace


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
        # the bytes of each rank's part of each layer; rank 0's is the larger
        sizes = [[(size + 1 - rank) // 2 * item_bytes for size in layers] for rank in (0, 1)]
        if trace.world_size != 2 or len({*sizes[0], *sizes[1]}) != 2 * len(layers):
            raise ValueError(f"LayerGathers: expected two ranks and layers whose parts differ in size, got {layers!r}")

        self._layers, self._steps = len(layers), steps
        self._works = [*range(len(layers)), *reversed(range(len(layers)))]  # the layer of each work in a step: forward, backward
        self._spans = [declared_work(trace, rank) for rank in (0, 1)]
        self._messages = []  # of each rank: (layer, message) of the weight parts that it sends, in order
        for rank, own in enumerate(sizes):
            sent = from_rank(trace, rank)
            self._messages.append([(own.index(t.size_bytes), t) for t in sent if t.size_bytes in own])

    def too_many_at_once(self) -> Complaint:
        """Return a complaint if a gather begins before the work of two layers earlier has ended."""
        complaint = self._unread()
        if complaint:
            return complaint

        for gather in self._gathers():
            before = gather.work - 2
            if before >= 0 and gather.begun_s < self._spans[gather.rank][before].end_s:
                return (
                    f"{self._named(gather)} before the work of two layers earlier is over: three layers or more are whole at "
                    f"once. Gather only one layer ahead."
                )
        return None

    def not_ahead(self) -> Complaint:
        """Return a complaint if a gather begins after the previous layer's work does, or if most arrive before it.

        Most is over half of a rank's gathers, or over two thirds in one direction.
        """
        complaint = self._unread()
        if complaint:
            return complaint

        # no work precedes a step, and at the turn one layer works twice in a row
        ahead = [g for g in self._gathers() if g.work % len(self._works) not in (0, self._layers)]
        for gather in ahead:
            if gather.begun_s > self._spans[gather.rank][gather.work - 1].start_s:
                return (
                    f"{self._named(gather)} only after the work of the layer before it has begun: no part of it is hidden. "
                    f"Begin the gather first, then work, then wait for it."
                )

        for rank, spans in enumerate(self._spans):
            own = [g for g in ahead if g.rank == rank]
            forwards = [g for g in own if self._is_forwards(g.work)]
            backwards = [g for g in own if not self._is_forwards(g.work)]
            # most, not any: a helper thread may receive some early, and in one direction there are fewer of them
            for gathers, share in ((own, 1 / 2), (forwards, 2 / 3), (backwards, 2 / 3)):
                early = [g for g in gathers if g.arrived_s < spans[g.work - 1].start_s]
                if len(early) > share * len(gathers):
                    return (
                        f"rank {rank} waits for layer {early[0].layer} ({self._where(early[0].work)}) before it works on the "
                        f"current layer: begin the gather, work, and only then wait."
                    )
        return None

    def _unread(self) -> Complaint:
        """Return a complaint if the trace lacks the work or the gathers of a stage 3."""
        works = self._works
        for rank in (0, 1):
            expected, got = len(works) * self._steps, len(self._spans[rank])
            if got != expected:
                return (
                    f"rank {rank} did the work of a layer {got} times, expected {expected}: call layer_forward and "
                    f"layer_backward, which declare their work, once for each layer and step."
                )

            order = [layer for layer, _ in self._messages[rank]]
            kept = [*works[: self._layers], *works[self._layers + 1 :]]  # the last layer's weight may stay for its backward pass
            if order in (works * self._steps, kept * self._steps):
                continue
            if order == works[: self._layers] * self._steps:
                return (
                    f"rank {rank} sends its parts for the forward pass alone: weights that are not gathered again for the "
                    f"backward pass were never freed, and all layers are whole at once."
                )
            shown = ", ".join(map(str, order[: len(works)])) or "none"
            return (
                f"rank {rank} sends its parts of whole weights in the order of layers {shown}; expected in each step "
                f"{', '.join(map(str, works))}: gather each for its forward pass, free it, and gather it again for its "
                f"backward pass."
            )

        return None

    def _gathers(self) -> list[_Gather]:
        """Return both ranks' gathers, all of rank 0 first, each rank's in order."""
        of_step = list(range(len(self._works)))
        if len(self._messages[0]) != len(of_step) * self._steps:  # the last layer's weight stays for its backward pass
            of_step.remove(self._layers)

        gathers = []
        for rank, own in enumerate(self._messages):
            arrivals = [message.end_s for _, message in self._messages[1 - rank]]  # of the other rank's parts, here
            for place, ((layer, sent), arrived_s) in enumerate(zip(own, arrivals, strict=True)):
                step, k = divmod(place, len(of_step))
                gathers.append(_Gather(rank, layer, step * len(self._works) + of_step[k], sent.start_s, arrived_s))
        return gathers

    def _named(self, gather: _Gather) -> str:
        return f"rank {gather.rank} begins to gather layer {gather.layer} ({self._where(gather.work)})"

    def _where(self, work: int) -> str:
        way = "forwards" if self._is_forwards(work) else "backwards"
        return f"{way} in step {work // len(self._works) + 1}"

    def _is_forwards(self, work: int) -> bool:
        return work % len(self._works) < self._layers
