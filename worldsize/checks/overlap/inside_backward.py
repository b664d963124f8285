"""Complaints about sums that do not travel while backward computes, read from the trace of two ranks alone.

Backward declares each layer's work, so the trace times it. A step may send only the sums of layers whose work is over, and two
trainings show the rest, by the order of events:

- `late`: free links and long layers. Every sum begins before the work after its last gradient ends.
- `held_up`: slow links and short layers. The last layer's work begins before the first sum arrives, so backward waits for no
  sum. If no sum begins inside backward, `held_up` passes, and `late` fails.

A busy machine can hide an overlap (a helper thread gets no turn while a layer works), but never fake one, so a training is run
up to `TRIES` times. Left out: the messages' contents (`weights`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise

from worldsize.checks.kit.transfers import declared_work
from worldsize.checks.overlap.wrong_weights import OverlapTraining
from worldsize.checks.verdict import Complaint
from worldsize.trace import Span, Trace, Transfer

TRIES = 4  # the chance that a right answer fails: see `gradient_averaging.overlapped`
_AS_LONG = 0.99  # fraction of the declared time: clocks are read a little before and after it


@dataclass(frozen=True)
class Sum:
    """An all-reduce inside a backward: a name for what it adds up, the number of layers whose work it needs, and its bytes."""

    name: str
    after: int
    size_bytes: int


@dataclass(frozen=True)
class StepRecord:
    """A rank's work in one step's backward, in order, and its messages from there to the next step's backward.

    `sums` are the sums that the step owes, in the order in which they begin.
    """

    rank: int
    step: int
    work: Sequence[Span]
    sent: Sequence[Transfer]
    received: Sequence[Transfer]
    sums: Sequence[Sum]

    @property
    def name(self) -> str:
        return f"on rank {self.rank}, step {self.step}"


def late(trace: Trace, training: OverlapTraining) -> Complaint:
    """Return a complaint if on a rank of two, in some step, a sum begins later than it can."""
    return _in_some_step(trace, training, _too_early, _too_late, _wrong_sums)


def held_up(trace: Trace, training: OverlapTraining) -> Complaint:
    """Return a complaint if on a rank of two, in some step, backward waits for a sum."""
    return _in_some_step(trace, training, _too_early, _stands_still, _wrong_sums)


def _in_some_step(
    trace: Trace, training: OverlapTraining, *examine: Callable[[StepRecord], Complaint]
) -> Complaint:
    if training.world_size != 2:
        raise ValueError(f"inside_backward: expected 2 ranks, whose every sum has one size, got {training.world_size}")

    for rank in range(trace.world_size):
        work = declared_work(trace, rank)
        complaint = _wrong_work(rank, work, training)
        if complaint:
            return complaint

        for record in _steps(trace, rank, work, training):
            for one in examine:
                complaint = one(record)
                if complaint:
                    return complaint

    return None


def _wrong_work(rank: int, work: Sequence[Span], training: OverlapTraining) -> Complaint:
    expected = _layers(training) * training.task["steps"]
    if len(work) != expected:
        return f"rank {rank} did the declared work of a layer's backward {len(work)} times; expected {expected}."

    long_s = training.task["backward_s"]
    shortest_s = min(span.end_s - span.start_s for span in work)
    if shortest_s < _AS_LONG * long_s:
        return f"rank {rank} declared {shortest_s:.4f} s of work for a layer; the task has {long_s} s (backward_s)."
    if any(after.start_s < before.end_s for before, after in pairwise(work)):
        return f"rank {rank} declared the work of two layers at once: backward goes through one layer after the other."
    return None


def _layers(training: OverlapTraining) -> int:
    return len(training.task["sizes"]) - 1


def _steps(trace: Trace, rank: int, work: Sequence[Span], training: OverlapTraining) -> list[StepRecord]:
    layers = _layers(training)
    begins = [span.start_s for span in work[::layers]]
    sums = _sums(training)

    records = []
    for step, (begin_s, next_s) in enumerate(pairwise([*begins, float("inf")])):
        within = [t for t in trace.transfers if begin_s <= t.start_s < next_s]
        records.append(
            StepRecord(
                rank=rank,
                step=step,
                work=work[step * layers : (step + 1) * layers],
                sent=sorted((t for t in within if t.src == rank), key=lambda t: t.start_s),
                received=sorted((t for t in within if t.dst == rank), key=lambda t: t.end_s),
                sums=sums,
            )
        )

    return records


def _sums(training: OverlapTraining) -> list[Sum]:
    """Return a backward's sums: one per bucket in the given order, or, without buckets, one per tensor, the last first."""
    learning = list(compress(range(len(training.expected)), training.learns))
    buckets = training.task["buckets"]
    what = "bucket" if buckets else "tensor"
    numbers = range(len(buckets)) if buckets else reversed(range(len(learning)))

    sums = []
    for number in numbers:
        members = [learning[k] for k in (buckets[number] if buckets else [number])]
        first = min(layer for k in members for layer in training.layers(k))  # backward reaches this layer last
        size_bytes = sum(training.expected[k].nbytes for k in members)
        sums.append(Sum(f"{what} {number}", _layers(training) - first, size_bytes))
    return sums


def _too_early(record: StepRecord) -> Complaint:
    """Return a complaint if backward sent more than finished layers' sums hold; each of two ranks sends a sum's bytes once."""
    sent_bytes = 0
    for message in record.sent:
        over = sum(span.end_s <= message.start_s for span in record.work)
        ready_bytes = sum(one.size_bytes for one in record.sums if one.after <= over)
        sent_bytes += message.size_bytes
        if sent_bytes > ready_bytes:
            return (
                f"{record.name}, {sent_bytes} bytes were sent when the work of {over} layers was over; their sums have "
                f"{ready_bytes}: a gradient is ready after its layer's work, and a bucket after the work of all its layers."
            )

    return None


def _too_late(record: StepRecord) -> Complaint:
    """Return a complaint if a sum begins late in backward; a sum has begun once more bytes are sent than earlier sums hold."""
    earlier_bytes = [0, *accumulate(reduction.size_bytes for reduction in record.sums)]
    after = accumulate((reduction.after for reduction in record.sums), max)  # a sum queues behind the sums before it
    for reduction, before_bytes, over in zip(record.sums, earlier_bytes, after, strict=False):
        if over == len(record.work):
            break  # no work is left to overlap with

        until_s = record.work[over].end_s
        sent_bytes = sum(t.size_bytes for t in record.sent if t.start_s < until_s)
        if sent_bytes <= before_bytes:
            if all(t.start_s >= record.work[-1].end_s for t in record.sent):
                numbered = " Does each hook know its own number (number=number)?" if reduction.name.startswith("bucket") else ""
                return (
                    f"on rank {record.rank} no message travels before backward has ended: begin each sum in its hook.{numbered}"
                )
            return (
                f"{record.name}, the sum of {reduction.name} had not begun when the work after its last gradient was over: begin "
                f"each sum in the hook of its last gradient."
            )

    return None


def _stands_still(record: StepRecord) -> Complaint:
    """Return a complaint if the first sum, by its number of bytes, arrives before all layers' backward has begun."""
    first, came_bytes = record.sums[0], 0
    for message in record.received:
        came_bytes += message.size_bytes
        if came_bytes >= first.size_bytes:
            over = sum(span.start_s < message.end_s for span in record.work)
            if over == len(record.work):
                return None
            break

    return (
        f"on rank {record.rank} backward stands still while messages travel: begin each sum in the hook, and wait for it after "
        f"backward."
    )


def _wrong_sums(record: StepRecord) -> Complaint:
    sent_bytes = sum(t.size_bytes for t in record.sent)
    expected_bytes = sum(one.size_bytes for one in record.sums)
    if sent_bytes == expected_bytes:
        return None

    return (
        f"{record.name}, {sent_bytes} bytes were sent before the next step's backward began; expected {expected_bytes}. Wait "
        f"for all sums of a step before the weights change."
    )
