"""Words for micro-batches whose graphs are in memory at once, read from the record of declared work alone.

Forward and backward of each layer declare work, of other lengths, and whoever keeps the record notes them. A graph is
there from its forward to its backward; so the order of the two says how many there were at a time, and no clock decides.
What a process keeps of a graph whose backward is over (`retain_graph`) only that process can see: it counts (`kept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from worldsize.checks.verdict import Complaint
from worldsize.pytorch.timed_network import TrainingTask
from worldsize.trace import Trace


class InParts(Protocol):
    """A training whose task says how many layers, steps and micro-batches there are, and what work they declare."""

    @property
    def task(self) -> TrainingTask: ...


def too_many(trace: Trace, training: InParts) -> Complaint:
    """Words for a rank that runs the forward of a micro-batch before the backward of the one before it."""
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

        at_once = -(-most // layers)
        if at_once > 1:
            return (
                f"on rank {rank} the graphs of {at_once} micro-batches were in memory at once: "
                f"run the backward of each before you ask for the next."
            )

    return None


def kept(returned: Sequence[Any]) -> Complaint:
    """Words for a rank on which autograd kept the tensors of several micro-batches at once. `returned` is what `train` gave."""
    for rank, told in enumerate(returned):
        most = told.get("graphs", 1) if isinstance(told, dict) else 1
        if most > 1:
            return (
                f"on rank {rank} autograd kept the tensors of {most} micro-batches at once, though each went backward before "
                f"the next came: backward frees them, unless it is told retain_graph=True."
            )
    return None


def passes(trace: Trace, rank: int, task: TrainingTask) -> tuple[int, int, int]:
    """Layers that went forward, and backward, by the declared work on a rank, and by how many forward was ahead at most."""
    labels = [f"{task[name]:g} s declared" for name in ("forward_s", "backward_s")]
    done = [0, 0]
    most = 0
    for span in sorted(trace.spans, key=lambda s: s.start_s):
        if span.rank != rank or span.label not in labels:
            continue
        done[labels.index(span.label)] += 1
        most = max(most, done[0] - done[1])

    return done[0], done[1], most
