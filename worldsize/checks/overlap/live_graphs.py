"""Complaints about micro-batches whose graphs are in memory at once, read from the trace of declared work alone.

Each layer's forward and backward declare work of different lengths. A graph lives from its forward to its backward, so the
order of the two shows how many lived at once, and no clock decides. Only the process itself can see graphs kept after backward
(`retain_graph`), and it counts them (`kept`).
"""

from collections.abc import Sequence
from typing import Any, Protocol

from worldsize.checks.verdict import Complaint
from worldsize.pytorch.timed_network import TrainingTask
from worldsize.trace import Trace


class InParts(Protocol):
    """A training in micro-batches whose task gives the number of layers, steps and micro-batches, and the work they declare."""

    @property
    def task(self) -> TrainingTask: ...


def too_many(trace: Trace, training: InParts) -> Complaint:
    """Return a complaint if a rank runs a micro-batch's forward before the previous one's backward."""
    task = training.task
    layers = len(task["sizes"]) - 1
    expected = layers * task["parts"] * task["steps"]

    for rank in range(trace.world_size):
        forward, backward, most = passes(trace, rank, task)
        if (forward, backward) != (expected, expected):
            return (
                f"rank {rank} did the declared work of a layer's forward {forward} times and of its backward {backward} "
                f"times; expected {expected} of each."
            )

        at_once = -(-most // layers)  # rounded up: one layer into a second micro-batch makes two
        if at_once > 1:
            return (
                f"on rank {rank} the graphs of {at_once} micro-batches were in memory at once: run backward for each before "
                f"you ask for the next."
            )

    return None


def kept(returned: Sequence[Any]) -> Complaint:
    """Return a complaint if autograd kept several micro-batches' graphs at once. `returned` is what `train` returned."""
    for rank, told in enumerate(returned):
        most = told.get("graphs", 1) if isinstance(told, dict) else 1
        if most > 1:
            return (
                f"on rank {rank} autograd kept the tensors of {most} micro-batches at once, though each ran backward before "
                f"the next came: backward frees them, unless you pass retain_graph=True."
            )
    return None


def passes(trace: Trace, rank: int, task: TrainingTask) -> tuple[int, int, int]:
    """Return how many layers a rank's trace shows going forward, and backward, and the largest lead of forward."""
    labels = [f"{task[name]:g} s declared" for name in ("forward_s", "backward_s")]
    done = [0, 0]
    most = 0
    for span in sorted(trace.spans, key=lambda s: s.start_s):
        if span.rank != rank or span.label not in labels:
            continue
        done[labels.index(span.label)] += 1  # labels differ, because forward_s and backward_s do
        most = max(most, done[0] - done[1])

    return done[0], done[1], most
