"""Checks of lab 11: gradients averaged all at once, inside backward, in buckets, and after micro-batches.

The final weights must match one process with all ranks' examples, also with tied, frozen and unused layers. The trace must show
one broadcast and, per step, one all-reduce of every learning tensor. Complaints about weights come from `weights`, about late
messages from `inside_backward`, about memory from `graphs`. S. Li et al., "PyTorch Distributed", VLDB 2020, sections 3.2 and 4.
Left out: speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.transfers import sent_by_each
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.overlap import wrong_weights
from worldsize.checks.overlap.inside_backward import TRIES, held_up, late
from worldsize.checks.overlap.live_graphs import kept, too_many
from worldsize.checks.overlap.wrong_weights import OverlapTraining
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.links import Link
from worldsize.pytorch.timed_network import task
from worldsize.trace import Trace
from worldsize.units import count

VALUES = "every rank ends with the weights of one process"
ONCE = "one all-reduce a step"
INSIDE = "sums begin inside backward, which waits for none"
BUCKETS = "one all-reduce a bucket"
SPARE = "micro-batches cost no messages"
GRAPHS = "one micro-batch in memory at a time"

SIZES = [3, 5, 5, 5, 4]
SLOW = Link("100 MB/s", "3 ms")  # so slow that a sum cannot have arrived as soon as it begins
SLOWER = Link("100 MB/s", "50 ms")  # a sum of two ranks takes 100 ms, and four layers' declared work 20 ms
LONG_WORK_S, SHORT_WORK_S = 0.05, 0.005

Examine = Callable[[Trace, OverlapTraining], Complaint]


@dataclass(frozen=True)
class TrainingKind:
    """A training of gradient averaging that a case runs: its name for the reader, and what `task` is given.

    `examine` are properties that only this training shows; it runs up to `tries` times, until they hold.
    """

    name: str
    world_size: int
    given: dict[str, Any]
    link: Link | None = SLOW
    examine: dict[str, Examine] = field(default_factory=dict)
    tries: int = 1

    def also(self, **more: Any) -> TrainingKind:
        return replace(self, given=self.given | more)


PLAIN = TrainingKind("all layers learn", 3, {})
TIED = TrainingKind("layers 1 and 2 are tied", 2, {"tied": [[1, 2]]})
FROZEN = TrainingKind("layer 1 is frozen", 4, {"frozen": [1]})
UNUSED = TrainingKind("rank 1 does not use layer 2", 3, {"unused": {"1": [2]}})
NEVER = TrainingKind("no rank uses layer 2", 2, {"unused": {"0": [2], "1": [2]}})
LONGER = TrainingKind("3 steps", 2, {"steps": 3})
UNUSED_AGAIN = TrainingKind("rank 0 does not use layer 2, 2 steps", 2, {"unused": {"0": [2]}, "steps": 2})
ALONE = TrainingKind("alone", 1, {"steps": 2})
EVERY = (PLAIN, TIED, FROZEN, UNUSED, LONGER, UNUSED_AGAIN, ALONE)

EARLY = TrainingKind(
    "declared work in every layer's backward, links that cost nothing", 2, {"steps": 2, "backward_s": LONG_WORK_S},
    link=None, examine={INSIDE: late}, tries=TRIES,
)  # fmt: skip
STEADY = TrainingKind(
    "declared work in every layer's backward, slow links", 2, {"steps": 2, "backward_s": SHORT_WORK_S},
    link=SLOWER, examine={INSIDE: held_up}, tries=TRIES,
)  # fmt: skip
ONE_BY_ONE = TrainingKind(
    "declared work in every layer's forward and backward", 2,
    {"steps": 2, "parts": 4, "forward_s": 0.001, "backward_s": 0.002}, examine={GRAPHS: too_many},
)  # fmt: skip

HINTS = {
    "frozen": "A frozen tensor (p.requires_grad is False) has no gradient: p.grad is None, and it takes no hook.",
    "tied": "Tied layers share one tensor, which has one gradient: model.parameters() gives it once.",
    "unused": "A loss that skips a layer leaves the layer's p.grad None. All ranks must begin the same all-reduces in the "
    "same order, so a missing gradient counts as zeros{}.",
}
IN_TURN = "; and a full bucket waits for the buckets before it in the list"
MIXED = (
    "Does one Background, made before the first step, begin every sum? Messages of two, or of one and of an all_reduce beside "
    "it, get mixed up."
)

ON_ITS_WAY = (
    "If you wrote no isend, it belongs to a sum that you began: leave the sum's gradient alone between start and wait(). "
    "Before a step ends, wait for all its handles, then drop them: the next step has new ones."
)


@exercise({VALUES: 0.25, ONCE: 0.75}, seen={ONCE: evidence.MESSAGES})
def flattened(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check gradient averaging after backward: `flattened(fabric, task)` trains with one all-reduce a step, of everything."""
    return _cases(arena, fn, EVERY, {ONCE: _wrong_sums})


@exercise({VALUES: 0.5, INSIDE: 1.0}, seen={INSIDE: evidence.WORK}, needs=needs.THREAD)
def overlapped(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check gradient averaging inside backward: `overlapped(fabric, task)` trains with an all-reduce per tensor, from its hook.

    All ranks use the same layers. A right answer fails only if, in each of four runs, its helper thread gets no turn for 50 ms,
    or backward none for 85 ms: a chance under 1e-6 if one run in forty has that.
    """
    return _cases(arena, fn, (PLAIN, TIED, FROZEN, NEVER, LONGER, EARLY, STEADY, ALONE))


@exercise({VALUES: 0.5, BUCKETS: 0.5, INSIDE: 1.0}, seen={BUCKETS: evidence.MESSAGES, INSIDE: evidence.WORK}, needs=needs.THREAD)
def bucketed(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check gradient averaging inside backward, where hooks begin an all-reduce for several gradients together.

    `bucketed(fabric, task)` trains. task["buckets"] are lists of numbers of learning tensors, in their order; each list is one
    all-reduce. For the role of chance, see `overlapped`.
    """
    whole, three = [[3, 2], [1, 0]], [[2], [1, 0]]
    trainings = (
        PLAIN.also(buckets=whole),
        TIED.also(buckets=three),
        FROZEN.also(buckets=three),
        UNUSED.also(buckets=[[3], [2], [1, 0]]),
        NEVER.also(buckets=whole),
        LONGER.also(buckets=[[3, 2, 1], [0]]),
        UNUSED_AGAIN.also(buckets=[[3], [2, 1, 0]]),
        EARLY.also(buckets=[[2], [3], [1], [0]]),  # one hook has two buckets to begin
        STEADY.also(buckets=[[3], [2, 1], [0]]),
        ALONE.also(buckets=whole),
    )
    return _cases(arena, fn, trainings, {BUCKETS: _wrong_sums})


@exercise({VALUES: 0.25, SPARE: 0.25, GRAPHS: 0.5}, seen={SPARE: evidence.MESSAGES, GRAPHS: evidence.WORK_AND_TENSORS})
def accumulate(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check gradient averaging after micro-batches: `accumulate(fabric, task)` averages once a step.

    It trains with task["parts"] micro-batches a step; the average is over the ranks, and all gradients are in one sum.
    """
    parts = [4, *arena.draws.sample((3, 5, 6, 7, 9, 10), len(EVERY) - 1)]  # no number over 4 is also a number of ranks
    trainings = [*(kind.also(parts=of) for kind, of in zip(EVERY, parts, strict=True)), ONE_BY_ONE]

    def wrong_messages(trace: Trace, training: OverlapTraining) -> Complaint:
        return _wrong_bytes(trace, training) or _wrong_sums(trace, training)

    return _cases(arena, fn, trainings, {SPARE: wrong_messages})


def _cases(
    arena: Arena, fn: Callable, trainings: Sequence[TrainingKind], everywhere: dict[str, Examine] | None = None
) -> Iterator[Case]:
    """Yield a case of gradient averaging for each training. `everywhere` are the properties that all of them show."""
    seeds = [arena.draws.getrandbits(32) for _ in range(max(kind.world_size for kind in trainings))]
    for kind in trainings:
        of_kind = seeds[: kind.world_size]
        training = OverlapTraining(tuple(task(sizes=SIZES, dtype="float64", seed=seed, **kind.given) for seed in of_kind))
        properties = (everywhere or {}) | kind.examine
        in_turn = IN_TURN * bool(training.task["buckets"])
        hints = [hint.format(in_turn) for name, hint in HINTS.items() if training.task[name]]
        run = partial(arena.ranks, fn, list(training.tasks), link=kind.link)
        yield Case(
            f"{ranks_in_words(kind.world_size)}, {kind.name}",
            partial(run_until_right, kind, training, run, hints),
            partial(_examine, training=training, properties=properties),
        )


def run_until_right(
    kind: TrainingKind, training: OverlapTraining, run: Callable[[], ArenaResult], hints: Sequence[str] = ()
) -> ArenaResult:
    """Run up to `kind.tries` times, and return the first run that passes `kind.examine`, or the last, with its hint."""
    for _ in range(kind.tries):
        ended = run()
        if ended.state != "done" or not any(examine(ended.trace, training) for examine in kind.examine.values()):
            break
    return hinted(ended, hints)


def hinted(ended: ArenaResult, hints: Sequence[str]) -> ArenaResult:
    """Return the result with advice after its message, if it broke off: the first of `hints`, unless the error tells more."""
    if ended.state == "raised" and "of its isend" in ended.message:
        hints = [ON_ITS_WAY]
    elif not hints and "Receive into a tensor like the one" in ended.message:
        hints = [MIXED]
    if hints and ended.state in ("raised", "deadlock", "timeout"):
        return replace(ended, message=f"{ended.message}\n{hints[0]}")
    return ended


def _examine(ended: ArenaResult, training: OverlapTraining, properties: dict[str, Examine]) -> dict[str, Complaint]:
    training = replace(training, work=ended.work)
    wrong = wrong_weights.wrong_weights(ended.returned, training)
    changes = first_complaint(
        changed(after, given, "task", rank)
        for rank, (after, given) in enumerate(zip(ended.inputs, training.tasks, strict=True))
    )
    complaints = {VALUES: wrong or though_right("the weights", changes)}
    for name, examine in properties.items():
        complaint = none_sent(ended.trace, "") or examine(ended.trace, training)
        if name in (INSIDE, GRAPHS):  # properties that declared work shows
            complaint = complaint or training.invented_work(wrong is None)
        if name == GRAPHS:
            complaint = complaint or kept(ended.returned)
        if wrong and name in (INSIDE, GRAPHS):
            complaint = complaint or UNEXAMINED  # both are easy where the sums may be of anything
        if complaint and name == INSIDE and complaints.get(BUCKETS):
            complaint = UNEXAMINED  # other sums than the buckets' begin at other times
        complaints[name] = complaint if wrong else though_right("the weights", complaint)

    return complaints


def _wrong_bytes(trace: Trace, training: OverlapTraining) -> Complaint:
    """Return a complaint unless all weights reached every rank once, and each step averaged exactly what learns."""
    others, steps = training.world_size - 1, training.task["steps"]
    sizes = [w.nbytes for w in training.expected]
    learning = sum(compress(sizes, training.learns))
    shared = sum(size for k, size in enumerate(sizes) if len(training.layers(k)) > 1)
    sent, at_the_start = trace.total_bytes(), others * sum(sizes)
    extra = sent - at_the_start - steps * 2 * others * learning
    if extra in (0, others * shared):  # broadcasting a state_dict sends a tied tensor twice
        return None

    if extra == -steps * others * learning:
        return "the sums have half of the gradients' bytes: give the buffer the gradients' dtype."
    if extra < 0:
        return (
            f"all ranks together sent {sent} bytes, fewer than {at_the_start} for the weights at the "
            f"start and an all-reduce of each gradient at each step."
        )

    parts = training.task["parts"]
    mistakes = {  # by the excess bytes, per step and per rank but one
        2 * (parts - 1) * learning: f"the gradients travel {parts} times a step, after every micro-batch: once is enough.",
        2 * (sum(sizes) - learning): "frozen tensors are added up at every step, although they have no gradient.",
        2 * shared: "the tensor that two layers share is added up twice a step: model.parameters() gives it once.",
        2 * learning: "every gradient is added up twice a step.",
        sum(sizes): "the weights travel at every step too: once at the start is enough.",
    }
    if others:
        each = extra / (others * steps)
        if each in mistakes:
            return mistakes[each]
    return f"all ranks together sent {extra} bytes more than a broadcast and one all-reduce of each gradient a step."


def _wrong_sums(trace: Trace, training: OverlapTraining) -> Complaint:
    """Return a complaint about wrong bytes, or about more or fewer all-reduces a step than buckets, or than one; else None."""
    n, steps = training.world_size, training.task["steps"]
    expected, wanted = 1, "one all-reduce of all gradients"
    if training.task["buckets"]:
        expected, wanted = len(training.task["buckets"]), "one for each bucket"

    sent = sent_by_each(trace)[n - 1]  # the last rank sends nothing in the initial broadcast
    each = sent / max(1, 2 * (n - 1) * steps)
    if n == 1 or each == expected:
        return _wrong_bytes(trace, training)

    sizes = [w.nbytes for w in training.expected]
    if trace.total_bytes() == 2 * (n - 1) * (sum(sizes) + steps * sum(compress(sizes, training.learns))):
        return "rank 0's weights travel by all-reduce at the start, twice the bytes of a broadcast: broadcast them."
    tensors, why = sum(training.learns), ""
    if round(each) == tensors:
        why = f" The network has {tensors} tensors that learn: is that one all-reduce for each?"
    return f"rank {n - 1} takes part in {count(round(each), 'all-reduce')} a step; expected {wanted}.{why}"
