"""Check of `stage_3`: weights, gradients and steps sharded over the ranks; each layer's weight is gathered, used and freed.

The final parts must match one device's. Freeing shows in the messages (each weight is gathered for the forward pass and again
for the backward pass), and prefetch in the order of a rank's own events, so no clock or other rank decides. S. Rajbhandari et
al., "ZeRO", SC 2020, section 5.3. Y. Zhao et al., "PyTorch FSDP", VLDB 2023, section 3.3.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import sharding
from worldsize.checks.kit import evidence
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.sharding.gathers import LayerGathers
from worldsize.checks.sharding.parts import cut, part, what_came
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.checks.weighed_work import WeighedRank, WeighedWork, on_other_numbers
from worldsize.links import Link
from worldsize.units import count, times

VALUES = "every rank ends with its parts of one device's weights"
BYTES = "each weight is gathered twice a step, each gradient reduce-scattered once"
TWO = "no more than two layers are whole at once"
PREFETCH = "the next layer is on its way while this one works"

METERED = (2, 2, (16,) * 8, 2)  # weights of one size, so that whole ones can be counted by their bytes
MOST_WHOLE = 4  # a weight, the next one, a gradient and a copy of it
WORK_S = 0.001  # declared, so that the trace shows when a layer works
RATES = (0.03, 0.08)
SLOW = Link("100 MB/s", "2 ms")  # slow, so that a helper thread cannot have a message as soon as its receive begins
# ranks, examples per rank, widths, steps. With 2 ranks a message's size identifies its layer: see `gathers`. One has one layer
SIZES = ((2, 3, (3, 5, 7, 9, 3), 2), (3, 2, (4, 5, 3), 3), (4, 2, (3, 3, 2), 2), (1, 3, (4, 3, 5), 2), (3, 2, (4, 3), 5))


@dataclass(frozen=True)
class Stack:
    """A stack of layers tanh(x weightᵀ) and its training data: batches[rank][step] is (x, target).

    `work` is the real ranks' declared work, None if it was not weighed.
    """

    weights: list[np.ndarray]
    batches: list[list[tuple[np.ndarray, np.ndarray]]]
    rate: float
    work: tuple[tuple[WeighedWork, ...], ...] | None = None

    @property
    def world_size(self) -> int:
        return len(self.batches)

    @property
    def steps(self) -> int:
        return len(self.batches[0])

    def ranks(self) -> list[WeighedRank]:
        return [WeighedRank(rank, self.work and self.work[rank]) for rank in range(self.world_size)]

    def inputs(self) -> list[dict[str, Any]]:
        given = []
        for rank, batches in enumerate(self.batches):
            parts = [cut(w.reshape(-1), self.world_size)[rank].copy() for w in self.weights]
            shapes = [list(w.shape) for w in self.weights]
            given.append({"parts": parts, "shapes": shapes, "batches": batches, "rate": self.rate, "work_s": WORK_S})
        return given


@exercise(
    {VALUES: 0.25, BYTES: 0.25, TWO: 0.5, PREFETCH: 0.5},
    seen={BYTES: evidence.MESSAGES, TWO: evidence.WORK_AND_TENSORS, PREFETCH: evidence.WORK},
)
def stage_3(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check stage 3 of ZeRO: `stage_3(fabric, task)` trains a stack of layers, and returns this rank's parts.

    task["parts"] are this rank's parts of the flat weights, task["shapes"] the weights' shapes, task["batches"] pairs
    (x, target) of this rank's own examples. Gradients are means over the ranks. A right answer may receive in a helper thread. It
    fails only if most of 12 messages, or 5 of the 6 in one direction, arrive before the work on the next line begins. Each is at
    least 2 ms on its way.
    """
    cases = []
    for size in (*SIZES, METERED):
        n, examples, widths, steps = size
        stack = _drawn(n, examples, widths, steps, np.random.default_rng(arena.draws.getrandbits(32)))
        link, driver, examine = None, sharding.parts_of, _examine
        if size is METERED:
            driver, examine = sharding.held_at_work, _examine_held
        elif n == 2:
            link = SLOW

        name = f"{ranks_in_words(n)}, {count(len(stack.weights), 'layer')} of widths {', '.join(map(str, widths))}, {steps} steps"
        run = partial(arena.ranks, fn, stack.inputs(), link=link, driver=driver)
        cases.append(Case(name, lambda run=run: _with_words(run()), partial(examine, stack=stack)))
    return cases


def _drawn(n: int, examples: int, widths: Sequence[int], steps: int, generator: np.random.Generator) -> Stack:
    weights = []
    for shape in zip(widths[1:], widths, strict=False):
        weights.append(generator.normal(size=shape) / shape[1] ** 0.5)

    batches = []
    for _ in range(n):
        batches.append([])
        for _ in range(steps):
            x, target = generator.normal(size=(examples, widths[0])), generator.uniform(-0.9, 0.9, (examples, widths[-1]))
            batches[-1].append((x, target))
    return Stack(weights, batches, float(generator.uniform(*RATES)))


def _with_words(ended: ArenaResult) -> ArenaResult:
    """Return the result, with advice if a stage 3 gather that no rank waits for made ranks fail or deadlock."""
    if ended.state == "deadlock" and all(wait.op == "send" for wait in ended.waits):
        return replace(ended, message=f"{ended.message}\n{_UNTAKEN}", waits=())
    return with_advice(ended, {"which is what `out` is": _UNTAKEN, "shapes cannot be multiplied": _INPUT})


_INPUT = "layer_backward takes what went into the layer as its x: keep that, before the layer works."


_UNTAKEN = (
    "Do you begin a gather and never wait for it? Its parts stay on the way, and the next gather takes them for its own: "
    "begin each gather once, none after a pass's last layer, and wait for every one."
)


def _examine_held(ended: ArenaResult, stack: Stack) -> dict[str, Complaint]:
    wrong = _wrong_parts(ended, [told["returned"] for told in ended.returned], replace(stack, work=ended.work))
    too_many = UNEXAMINED if wrong else though_right("the weights", _too_many_whole(ended.returned, stack))
    return {VALUES: wrong, TWO: too_many}


def _too_many_whole(returned: Sequence[dict[str, Any]], stack: Stack) -> Complaint:
    """Complain if a rank in stage 3 holds over MOST_WHOLE tensors as large as a weight while a layer works.

    The function's own process counts them, so the result can only cost points.
    """
    layers = len(stack.weights)
    for rank, told in enumerate(returned):
        for work, held in enumerate(told["held"]):
            if held <= MOST_WHOLE:
                continue
            step, k = divmod(work, 2 * layers)
            way = f"forwards at layer {k}"
            why = "Are the others in a list, or in autograd's graph, which keeps each weight that x has gone through?"
            if k >= layers:
                way = f"backwards at layer {2 * layers - 1 - k}"
                why = "Step by a layer's gradient before the next layer works, and delete names that are no longer needed."
            return (
                f"rank {rank}, {way} in step {step + 1}, holds {held} tensors as large as a weight; {MOST_WHOLE} are enough: "
                f"the weight, the next one, a gradient and its copy. {why}"
            )

    return None


def _examine(ended: ArenaResult, stack: Stack) -> dict[str, Complaint]:
    stack = replace(stack, work=ended.work)
    wrong = _wrong_parts(ended, ended.returned, stack)
    complaints = {VALUES: wrong, BYTES: UNEXAMINED if wrong else though_right("the weights", _wrong_bytes(ended, stack))}
    if stack.world_size == 1:
        return complaints

    invented = _invented_work(stack, wrong is None)
    if stack.world_size > 2:  # messages do not tell their layers here; but what works on two ranks alone is no stage 3
        unseen = invented or _gathers_too_little(ended, stack)
        return complaints | dict.fromkeys((TWO, PREFETCH), UNEXAMINED if unseen else None)

    gathers = LayerGathers([w.size for w in stack.weights], stack.weights[0].itemsize, stack.steps, ended.trace)
    too_many = gathers.too_many_at_once() or invented
    complaints[TWO] = UNEXAMINED if wrong else though_right("the weights", too_many)
    # gathering everything at once is not prefetching one layer
    complaints[PREFETCH] = UNEXAMINED if too_many else gathers.not_ahead()
    if not wrong:
        complaints[PREFETCH] = though_right("the weights", complaints[PREFETCH])
    return complaints


def _wrong_parts(ended: ArenaResult, returned: Sequence[Any], stack: Stack) -> Complaint:
    layers, n = len(stack.weights), stack.world_size
    for rank, got in enumerate(returned):
        if not isinstance(got, tuple) or len(got) != layers:
            return f"rank {rank}: expected its {layers} parts, one of each layer, got {what_came(got)}"

    right = one_device(stack, stack.ranks())
    slips = {words: one_device(stack, stack.ranks(), **otherwise) for words, otherwise in _slips(stack).items()}
    for k in range(layers):
        named = {words: cut(trained[k].reshape(-1), n) for words, trained in slips.items()}
        wanted = part(f"its part of layer {k} at the end", cut(right[k].reshape(-1), n), named)
        complaint = wanted.wrong([got[k] for got in returned])
        if complaint:
            return complaint

    for rank, batches in enumerate(stack.batches):
        complaint = changed(ended.inputs[rank].get("batches"), batches, 'task["batches"]', rank)
        if complaint:
            return complaint
    return None


def _slips(stack: Stack) -> dict[str, dict[str, Any]]:
    """Return {words for a mistake: arguments of `one_device`}. On two ranks a sum of gradients is twice their mean."""
    or_twice = ", and begin backward with y − target, not with twice that" * (stack.world_size == 2)
    return {
        "These are the initial weights: step in place, part -= …, at every step.": {"steps": 0},
        f"It stepped by {stack.world_size} times the mean gradient: divide the sum by the number of ranks{or_twice}.": {
            "combine": np.sum
        },
        "Backward began with twice y − target: the loss has a factor ½.": {"rate": 2 * stack.rate},
        "It was divided by the number of examples, too: the loss is a sum over them.": {
            "rate": stack.rate / len(stack.batches[0][0][0])
        },
        "Only one step was taken.": {"steps": 1},
        "It stepped by its own examples' gradient: reduce-scatter the gradients of all ranks.": {"own_alone": True},
        "The step went up: subtract rate times the gradient.": {"rate": -stack.rate},
        "The first layer's forward pass used the weight from before the last step: begin that gather after the step.": {
            "stale_first": True
        },
        "Every step used the initial weights: gather the parts that the last step changed.": {"always_initial": True},
    }


def one_device(
    stack: Stack,
    ranks: Sequence[WeighedRank],
    *,
    steps: int | None = None,
    rate: float | None = None,
    combine: Callable = np.mean,
    own_alone: bool = False,
    stale_first: bool = False,
    always_initial: bool = False,
) -> list[np.ndarray]:
    """Return the stack's weights after training on one device with all ranks' examples and their mean gradients.

    Each layer's results are weighed as the real `ranks`' results were. The other arguments make the mistakes of `_slips`;
    with `own_alone` each rank's part is stepped by the rank's own gradient, with `stale_first` the first layer goes forward with
    its weight of the step before, and with `always_initial` all gradients are taken at the initial weights.
    """
    weights, first = list(stack.weights), stack.weights[0]
    if steps is None:
        steps = stack.steps
    if rate is None:
        rate = stack.rate
    for step in range(steps):
        used = stack.weights if always_initial else weights
        forwards = [first, *used[1:]] if stale_first else used
        first = weights[0]
        of_ranks = [_gradients(used, forwards, rank, *stack.batches[rank.rank][step]) for rank in ranks]
        for k, w in enumerate(weights):
            gradients = [of_rank[k] for of_rank in of_ranks]
            gradient = combine(gradients, axis=0)
            if own_alone:
                parts = [cut(own.reshape(-1), len(ranks))[rank] for rank, own in enumerate(gradients)]
                gradient = np.concatenate(parts).reshape(w.shape)
            weights[k] = w - rate * gradient

    return weights


def _gradients(
    weights: Sequence[np.ndarray], forwards: Sequence[np.ndarray], rank: WeighedRank, x: np.ndarray, target: np.ndarray
) -> list[np.ndarray]:
    """Return the gradient of ½ Σ (y − target)² for the weight of each layer in the stack, first layer first.

    The forward pass uses the weights `forwards`; backward computes a layer's output again.
    """
    values = [x]
    for w in forwards:
        made = np.tanh(values[-1] @ w.T)
        values.append(made * rank.weights_of(WORK_S, made))

    grad, gradients = values[-1] - target, []
    for w, x_in in zip(reversed(weights), reversed(values[:-1]), strict=True):
        inward = grad * rank.weights_of(WORK_S, grad) * (1 - np.tanh(x_in @ w.T) ** 2)
        gradients.append(inward.T @ x_in)
        grad = inward @ w

    return gradients[::-1]


def _invented_work(stack: Stack, weights_are_right: bool) -> Complaint:
    """Return a complaint if stage 3's work was on other numbers; if the weights are wrong, look at the first step alone."""
    if stack.work is None:
        return None

    ranks = stack.ranks()
    one_device(stack, ranks, steps=None if weights_are_right else 1)
    for rank in ranks:
        if rank.missed or (weights_are_right and not rank.all_done):
            return on_other_numbers(rank.rank)
    return None


def _gathers_too_little(ended: ArenaResult, stack: Stack) -> bool:
    """Return whether the ranks sent fewer bytes than stage 3's gathers of each step need."""
    sizes = [w.nbytes for w in stack.weights]
    return ended.trace.total_bytes() < (2 * sum(sizes) - sizes[-1]) * (stack.world_size - 1) * stack.steps


def _wrong_bytes(ended: ArenaResult, stack: Stack) -> Complaint:
    """Complain about stage 3 unless all ranks together sent (n − 1) times the bytes gathered and reduce-scattered."""
    complaint = none_sent(ended.trace, "Gather weights, and reduce-scatter gradients.")
    if complaint:
        return complaint

    sizes = [w.nbytes for w in stack.weights]
    whole, times_sent = sum(sizes), (stack.world_size - 1) * stack.steps
    got = ended.trace.total_bytes()
    # the last layer's backward pass follows its forward pass at once, so its weight may stay
    if not times_sent or got in (3 * whole * times_sent, (3 * whole - sizes[-1]) * times_sent):
        return None

    each, last = got / times_sent, sizes[-1]
    mismatch = f"all ranks together sent {times(each / whole)} x the weights (n − 1) times a step, expected 3 x. "
    if each == 2 * whole:
        return mismatch + (
            "One gather is missing: weights stay whole between forward and backward, as in stage 2, or nothing is summed."
        )
    if 3 * whole < each < 4 * whole - last:
        return mismatch + "One gather too many: gather each weight twice a step, for its forward and for its backward pass."
    if each in (4 * whole, 4 * whole - last):
        return mismatch + "An all-reduce has two halves: a rank needs only its own part of the sum of gradients."
    if each < 3 * whole:
        return mismatch + "Gather each weight for the forward and for the backward pass, and reduce-scatter each gradient."
    return mismatch + "Gather a weight twice a step, reduce-scatter its gradient once, and send nothing else."
