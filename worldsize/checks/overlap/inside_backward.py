"""Words for sums that do not travel while backward computes, read from the record of two ranks alone.

Backward declares its work layer by layer, and whoever keeps the record times it. So a step's declared work must be the
task's, one layer after the other; what a rank sends must be of layers whose work is over, and of this step; and in each
step a message must be under way to the rank while it works, which no program does that waits for its messages, however
slow the machine. A message is under way when it was sent and is waited for; until then it may lie about for as long as
its sender or its receiver likes. Left out: what the messages hold, which the weights tell (`weights`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, pairwise, product

from worldsize.checks.overlap.weights import OverlapTraining
from worldsize.checks.verdict import Complaint
from worldsize.trace import Span, Trace, Transfer

_AS_LONG = 0.99  # of the declared time: clocks are read a little before and after it


@dataclass(frozen=True)
class StepRecord:
    """A rank's work in the backward of one step, in order, and what it sent and received from its beginning to the next."""

    rank: int
    step: int
    work: Sequence[Span]
    sent: Sequence[Transfer]
    received: Sequence[Transfer]

    @property
    def name(self) -> str:
        return f"on rank {self.rank}, step {self.step}"


def not_inside(trace: Trace, training: OverlapTraining) -> Complaint:
    """Words for a rank of two on which, in some step, no message travels while backward computes."""
    if training.world_size != 2:
        raise ValueError(f"not_inside: expected 2 ranks, whose every sum has one size, got {training.world_size}")

    for rank in range(trace.world_size):
        work = sorted((s for s in trace.spans if s.rank == rank and s.declared), key=lambda s: s.start_s)
        complaint = _wrong_work(rank, work, training)
        if complaint:
            return complaint

        for record in _steps(trace, rank, work, training.task["steps"]):
            complaint = _too_early(record, training) or _stands_still(record) or _wrong_sums(record, training)
            if complaint:
                return complaint

    return None


# ---- work ------------------------------------------------------------------------------------


def _wrong_work(rank: int, work: Sequence[Span], training: OverlapTraining) -> Complaint:
    expected = _layers(training) * training.task["steps"]
    if len(work) != expected:
        return f"rank {rank} did the declared work of a backward {len(work)} times; expected {expected}."

    long_s = training.task["backward_s"]
    shortest_s = min(span.end_s - span.start_s for span in work)
    if shortest_s < _AS_LONG * long_s:
        return f"rank {rank} declared {shortest_s:.4f} s of work for a layer; the task has {long_s} s (backward_s)."
    if any(after.start_s < before.end_s for before, after in pairwise(work)):
        return f"rank {rank} declared the work of two layers at once: backward goes through one layer after the other."
    return None


def _layers(training: OverlapTraining) -> int:
    return len(training.task["sizes"]) - 1


def _steps(trace: Trace, rank: int, work: Sequence[Span], steps: int) -> list[StepRecord]:
    layers = len(work) // steps
    begins = [work[step * layers].start_s for step in range(steps)]

    found = []
    for step, (begin_s, next_s) in enumerate(pairwise([*begins, float("inf")])):
        within = [t for t in trace.transfers if begin_s <= t.start_s < next_s]
        found.append(
            StepRecord(
                rank=rank,
                step=step,
                work=work[step * layers : (step + 1) * layers],
                sent=[t for t in within if t.src == rank],
                received=[t for t in within if t.dst == rank],
            )
        )

    return found


# ---- messages --------------------------------------------------------------------------------


def _sums(training: OverlapTraining) -> list[tuple[int, int]]:
    """(layers whose work comes before it, bytes) of each sum of a step, which has one tensor or a bucket of them."""
    learning = list(compress(range(len(training.expected)), training.learns))
    buckets = training.task["buckets"] or [[k] for k in range(len(learning))]

    found = []
    for bucket in buckets:
        members = [learning[k] for k in bucket]
        first = min(layer for k in members for layer in training.layers(k))
        found.append((_layers(training) - first, sum(training.expected[k].nbytes for k in members)))
    return found


def _too_early(record: StepRecord, training: OverlapTraining) -> Complaint:
    """Of two ranks each sends all of a tensor once, when they add it up."""
    sent_bytes = 0
    for message in sorted(record.sent, key=lambda t: t.start_s):
        over = sum(span.end_s <= message.start_s for span in record.work)
        ready_bytes = sum(size_bytes for after, size_bytes in _sums(training) if after <= over)
        sent_bytes += message.size_bytes
        if sent_bytes > ready_bytes:
            return (
                f"{record.name}, {sent_bytes} bytes were sent when the work of {over} layers was over, whose sums have "
                f"{ready_bytes}: a gradient is there after the work of its layer, and a bucket's after that of all its layers."
            )

    return None


def _stands_still(record: StepRecord) -> Complaint:
    under_way = [(max(t.start_s, t.recv_start_s or t.start_s), t.end_s) for t in record.received]
    for (start_s, end_s), span in product(under_way, record.work):
        if start_s < span.end_s and span.start_s < end_s:
            return None

    last_s = record.work[-1].start_s
    if any(t.start_s < last_s for t in record.sent):
        return (
            f"on rank {record.rank} backward stands still while messages travel: begin a sum in the hook, and wait for "
            f"it after backward."
        )
    return f"on rank {record.rank} no message travels before backward has ended: begin each sum in its hook."


def _wrong_sums(record: StepRecord, training: OverlapTraining) -> Complaint:
    sent_bytes = sum(t.size_bytes for t in record.sent)
    expected_bytes = sum(size_bytes for _, size_bytes in _sums(training))
    if sent_bytes == expected_bytes:
        return None

    return (
        f"{record.name}, {sent_bytes} bytes were sent before the next step's backward began; the sums of a step have "
        f"{expected_bytes}. They belong to it: wait for them before the weights change."
    )
