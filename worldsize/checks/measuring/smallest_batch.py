"""Check lab 01's decision: the smallest batch whose step outweighs its all-reduce as much as is asked for.

Compute is a scripted measurement that grows with the batch, in a line, or in stairs as on a GPU that fills up its tiles.
Communication is the ring's formula, 2 (n − 1) (α + m/(nB)). Left out: communication hidden behind the backward pass.
P. Patarasuk and X. Yuan, J. Parallel and Distributed Computing 69, 2009.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import are_whole, is_whole, number, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.formulas import cost
from worldsize.links import Link
from worldsize.units import count as counted

RING = "the seconds of a ring all-reduce"
SMALLEST = "the smallest batch, also where compute grows in stairs"
EDGES = "one rank alone; one example is enough; no batch is"
FEW = "at most 30 measurements"
MOST_ASKED = 30
MOST = 4096


@dataclass(frozen=True)
class ScriptedCompute:
    """The seconds of a batch: `fixed_s`, and `each_s` for every example; examples are filled up to a multiple of `tile`."""

    fixed_s: float
    each_s: float
    tile: int = 1

    def seconds(self, batch: int) -> float:
        return self.fixed_s + self.each_s * self.tile * math.ceil(batch / self.tile)


@dataclass(frozen=True)
class LinkedTraining:
    """A job that asks for a batch: `n` ranks, gradients of `size_bytes`, each rank's `link`, at most `most` examples a rank."""

    n: int
    size_bytes: int
    link: Link
    compute: ScriptedCompute
    most: int
    share: float = 0.0

    @property
    def all_reduce_s(self) -> float:
        return cost.ring_all_reduce(self.n, self.size_bytes, self.link)

    def share_at(self, batch: int) -> float:
        """Return the share of a step of `batch` examples a rank that is communication."""
        return self.all_reduce_s / (self.all_reduce_s + self.compute.seconds(batch))

    def asking_for(self, batch: int) -> LinkedTraining:
        """Return the same job with a share for which `batch` is the smallest that is enough."""
        # halfway between two neighboring batches, so that no rounding decides
        return replace(self, share=(self.share_at(batch - 1) + self.share_at(batch)) / 2)

    def smallest(self, all_reduce_s: float, of_compute: bool = False) -> int | None:
        """Return the smallest batch that is enough with these seconds of communication; `of_compute`: the share is of compute."""

        def enough(batch: int) -> bool:
            whole_s = self.compute.seconds(batch)
            if not of_compute:
                whole_s += all_reduce_s
            return all_reduce_s <= self.share * whole_s

        batch = 1 + bisect_left(range(1, self.most + 1), True, key=enough)  # compute never falls
        return batch if batch <= self.most else None

    @override
    def __str__(self) -> str:
        return (
            f"n={self.n}, size_bytes={self.size_bytes:,}, alpha_s={self.link.latency_s:.3g}, "
            f"bytes_per_s={self.link.bandwidth_bytes_per_s:.3g}, share={self.share:.4g}, most={self.most}"
        )


@dataclass
class ScriptedMeasurement:
    """The measurement that the function is given, with a record of the batches it was asked for."""

    compute: ScriptedCompute
    asked: list[Any] = field(default_factory=list)

    def step_s(self, batch: Any) -> float:
        self.asked.append(batch)
        if not are_whole(batch):
            return math.nan
        return self.compute.seconds(int(batch))


@exercise({RING: 0.5, SMALLEST: 0.5, EDGES: 0.25, FEW: 0.25}, seen={FEW: evidence.CALLS})
def smallest_batch(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a decision on measured numbers: from which batch on an all-reduce is a small part of the step.

    `smallest_batch(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share)` returns a whole number or None.
    """
    ring = _telling(arena)
    yield _case(arena, fn, ring, RING, "")

    latency = _job(arena, n=16, latency_part=0.995).asking_for(arena.draws.randint(300, 900))
    yield _case(arena, fn, latency, RING, ", small tensors: latency is nearly all")
    bandwidth = _job(arena, n=2, latency_part=0.02).asking_for(arena.draws.randint(300, 900))
    yield _case(arena, fn, bandwidth, RING, ", large tensors")

    stairs = _job(arena, n=4, latency_part=0.3, tile=64)
    yield _case(arena, fn, stairs.asking_for(64 * arena.draws.randint(3, 12) + 1), SMALLEST, ", compute in stairs of 64")
    small = _job(arena, n=3, latency_part=0.3, tile=8)
    yield _case(arena, fn, small.asking_for(8 * arena.draws.randint(2, 6) + 1), SMALLEST, ", compute in stairs of 8")

    # a batch has exactly the share, so that "at most" decides: powers of 2 keep rounding out
    alpha_s, share = 2.0 ** -arena.draws.randint(6, 9), 2.0 ** -arena.draws.randint(1, 3)
    compute = ScriptedCompute(0.0, alpha_s / 2 ** arena.draws.randint(5, 7))
    exact = LinkedTraining(2, int(alpha_s * 2.0**25), Link(2.0**24, alpha_s), compute, MOST, share)
    yield _case(arena, fn, exact, SMALLEST, ", of some batch just that share")
    # more than MOST, but still so few that an answer that measures every batch ends
    far = _job(arena, n=4, latency_part=0.3, most=arena.draws.randint(500_000, 1_000_000))
    asked = drawn_until(partial(_needs_all_halvings, far.most), partial(arena.draws.randint, 8_500, 9_500), "smallest_batch")
    yield _case(arena, fn, far.asking_for(asked), SMALLEST, ", up to some hundred thousand examples")

    yield _case(arena, fn, replace(ring, n=1), EDGES, ", no peer")
    yield _case(arena, fn, replace(ring, share=ring.share_at(1) * 1.01), EDGES, ", a large share is allowed")
    last = _job(arena, n=4, latency_part=0.3, most=arena.draws.randint(200, 250))
    yield _case(arena, fn, last.asking_for(last.most), EDGES, ", only the largest is enough")
    yield _case(arena, fn, last.asking_for(last.most + 1), EDGES, ", not even the largest is enough")

    many = _job(arena, n=4, latency_part=0.3).asking_for(arena.draws.randint(2000, 4000))
    yield _case(arena, fn, many, FEW, "")


def _needs_all_halvings(most: int, batch: int) -> bool:
    """Return whether halving finds this smallest batch in its last step only, so that a search that stops earlier fails."""
    low, high, found_last = 0, most, False
    while high - low > 1:
        middle = (low + high) // 2
        found_last = middle >= batch
        low, high = (low, middle) if found_last else (middle, high)
    return found_last


def _telling(arena: Arena) -> LinkedTraining:
    """Draw a job in which no two slips give the same smallest batch, nor the right one: 297 of 300 draws are such (measured)."""

    def tells(job: LinkedTraining) -> bool:
        given = [job.smallest(job.all_reduce_s), *(job.smallest(*slip) for slip in _slips(job).values())]
        return len(set(given)) == len(given)

    def draw() -> LinkedTraining:
        return _job(arena, n=5, latency_part=0.3).asking_for(arena.draws.randint(300, 900))

    return drawn_until(tells, draw, "smallest_batch")


def _job(arena: Arena, n: int, latency_part: float, tile: int = 1, most: int = MOST) -> LinkedTraining:
    """Draw a job with an all-reduce of 20 to 60 ms, `latency_part` of it latency; a step of some 100 examples takes as long."""
    rounds, all_reduce_s = 2 * (n - 1), arena.draws.uniform(0.02, 0.06)
    size_bytes = 4 * arena.draws.randint(250_000, 750_000)
    bandwidth = rounds * size_bytes / n / ((1 - latency_part) * all_reduce_s)
    link = Link(bandwidth, latency_part * all_reduce_s / rounds)
    compute = ScriptedCompute(arena.draws.uniform(0.001, 0.002), arena.draws.uniform(1e-4, 3e-4), tile)
    return LinkedTraining(n, size_bytes, link, compute, most)


def _case(arena: Arena, fn: Callable, job: LinkedTraining, what: str, name: str) -> Case:
    measured = ScriptedMeasurement(job.compute)
    numbers = (job.most, job.n, job.size_bytes, job.link.latency_s, job.link.bandwidth_bytes_per_s, job.share)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        complaint = _wrong_question(measured, job) or _wrong_batch(ended.returned[0], job)
        if what != FEW:
            return {what: complaint}
        few = UNEXAMINED if complaint else _too_many(len(measured.asked))  # it is easy to ask too little for the right batch
        return {SMALLEST: complaint, FEW: few}

    return Case(f"{job}{name}", partial(arena.call, fn, measured.step_s, *numbers), examine)


def _wrong_question(measured: ScriptedMeasurement, job: LinkedTraining) -> Complaint:
    for batch in measured.asked:
        if not are_whole(batch) or not 1 <= batch <= job.most:
            words = f"a batch of {shown(batch)}; expected whole numbers from 1 to most, {job.most}"
            return f"step_s was called with {words}"
    return None


def _too_many(asked: int) -> Complaint:
    if asked <= MOST_ASKED:
        return None
    return (
        f"step_s was called {asked:,} times; expected at most {MOST_ASKED}: each call is a measurement. Compute grows "
        "with the batch, so one measurement in the middle rules out half of the batches"
    )


def _wrong_batch(got: Any, job: LinkedTraining) -> Complaint:
    expected = job.smallest(job.all_reduce_s)
    if got is None:
        if expected is None:
            return None
        wanted = f"expected {expected}, where the all-reduce takes {job.share_at(expected):.2%} of the step, got None"
        if expected == job.most:
            return f"{wanted}. The largest batch may be the answer, too"
        return wanted + _slip(None, job)

    batch = number(got)
    if isinstance(batch, str):
        return f"expected a batch, one whole number, or None, {batch}"
    if batch == expected:
        if is_whole(got):
            return None
        return f"expected a whole number, an int, got {shown(got)}: the next cells take that many images"
    if expected is None:
        left = f"even with {job.most} examples a rank the all-reduce takes {job.share_at(job.most):.2%} of the step"
        return f"expected None, got {batch:g}: {left}"

    wanted = f"expected {expected}, got {batch:g}"
    if batch != int(batch) or not 1 <= batch <= job.most:
        return f"{wanted}. Expected a whole number from 1 to most, {job.most}{_slip(batch, job)}"
    share = job.share_at(int(batch))
    wanted += f", with which the all-reduce takes {share:.2%} of the step; {job.share:.2%} is allowed"
    if batch > expected:
        wanted += f", and {counted(expected, 'example')} are enough"
    return wanted + _slip(batch, job)


def _slips(job: LinkedTraining) -> dict[str, tuple[float, bool]]:
    """Return {words for a slip: a batch's seconds of communication, and whether its share is of compute alone}."""
    n, m = job.n, job.size_bytes
    alpha_s, bandwidth = job.link.latency_s, job.link.bandwidth_bytes_per_s
    return {
        "This keeps communication to that share of the compute; the step has both": (job.all_reduce_s, True),
        "A ring goes round twice, once to add up and once to hand out: 2 (n − 1) messages": (job.all_reduce_s / 2, False),
        "The ranks compute at the same time: a step has one rank's compute, not the sum over all": (job.all_reduce_s / n, False),
        "Every one of the 2 (n − 1) messages has its latency": (2 * (n - 1) * m / (n * bandwidth), False),
        "Every one of the 2 (n − 1) messages has its latency, not only one": (
            alpha_s + 2 * (n - 1) * m / (n * bandwidth), False,
        ),
        "A message holds an n-th of the bytes, not all": (2 * (n - 1) * (alpha_s + m / bandwidth), False),
        "There are 2 (n − 1) messages, not 2 n": (2 * n * (alpha_s + m / (n * bandwidth)), False),
        "This is one message; a ring all-reduce has 2 (n − 1), each an n-th as large": (alpha_s + m / bandwidth, False),
        "The link is in bytes a second already, not in bits": (2 * (n - 1) * (alpha_s + 8 * m / (n * bandwidth)), False),
    }  # fmt: skip


def _slip(got: float | None, job: LinkedTraining) -> str:
    """Return the first slip that gives this smallest batch, as ". …"; empty where none does."""
    for words, (seconds, of_compute) in _slips(job).items():
        if job.smallest(seconds, of_compute) == got:
            return f". {words}"

    right = job.smallest(job.all_reduce_s)
    if right is None:
        return ""
    if job.n > 1 and got == right * job.n:
        return ". This is the batch of all ranks: return the batch of one rank"
    if got in (right - 1, right + 1):
        return ". It is one off"
    return ""
