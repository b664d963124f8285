"""Check of `wrap_module`: any module becomes a replica, whose gradients are averaged in buckets inside backward.

torch.nn modules with buffers, tied or frozen weights, skipped layers or two dtypes are trained for ten steps, and compared with
one process that has all rows. Each gradient must travel once a step, in buckets of the cap; the timed network shows when
(`inside_backward`). S. Li et al., "PyTorch Distributed", VLDB 2020, sections 3.2.3 and 4.1. Left out: BatchNorm's statistics in
training, which each rank keeps for itself.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import any_module
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected
from worldsize.checks.kit.judge import Case, first_complaint, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.transfers import sent_by_each
from worldsize.checks.kit.values import first_slip, same
from worldsize.checks.overlap import gradient_averaging, wrong_weights
from worldsize.checks.overlap.gradient_averaging import EARLY, INSIDE, SIZES, STEADY, TrainingKind, hinted
from worldsize.checks.overlap.wrong_weights import OverlapTraining
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.pytorch import torch_modules
from worldsize.pytorch.timed_network import task as timed_task
from worldsize.pytorch.torch_modules import MODULES, ModuleTask, module_task
from worldsize.trace import Trace
from worldsize.units import count, number

VALUES = "ten steps give every module the weights of one process"
ONCE = "each gradient travels once a step, in buckets of the cap"

NEAR = {"float64": 1e-10, "float32": 1e-5}  # after ten steps; one float32 weight makes a whole module float32
RANKS = dict(zip(MODULES, (2, 3, 4, 3, 2, 3, 2), strict=True))
MANY, FEW_STEPS = 5, 3
TIMED = ((EARLY, 300, [[3, 2], [1, 0]]), (STEADY.also(steps=1), 100, [[3], [2], [1], [0]]))  # caps; a weight has 120 to 200 bytes

HINTS = {
    "a frozen embedding": "A frozen weight (p.requires_grad is False) has no gradient and takes no hook. Broadcast rank 0's "
    "anyway.",
    "layers used in turn": "A layer that this rank did not use has no gradient (p.grad is None), and its hook does not fire. "
    "All ranks must begin the same buckets in the same order, so a missing gradient counts as zeros.",
    "weights of two dtypes": "A flat tensor has one dtype: put gradients of two dtypes in separate buckets.",
}  # fmt: skip


@dataclass(frozen=True)
class ModuleTraining:
    """A module's training on several ranks, and its expected results. `tasks[rank]` differ only in their seeds."""

    tasks: tuple[ModuleTask, ...]
    cap_bytes: int

    @property
    def name(self) -> str:
        return self.tasks[0]["module"]

    @property
    def world_size(self) -> int:
        return len(self.tasks)

    @property
    def steps(self) -> int:
        return self.tasks[0]["steps"]

    @cached_property
    def expected(self) -> dict[str, dict[str, np.ndarray]]:
        return {when: _arrays(state) for when, state in torch_modules.train_alone(self.tasks).items()}

    @cached_property
    def starts(self) -> list[dict[str, np.ndarray]]:
        """The module's state that each rank draws for itself."""
        return [_arrays(torch_modules.state(torch_modules.module(task))) for task in self.tasks]

    @cached_property
    def own(self) -> list[dict[str, np.ndarray]]:
        """Each rank's own gradients in the first step, at rank 0's weights; a dict lacks weights without a gradient."""
        gradients = []
        for rank, task in enumerate(self.tasks):
            model = torch_modules.module(self.tasks[0])
            torch_modules.loss(task, rank, 0, model).backward()
            gradients.append({name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None})
        return gradients

    @cached_property
    def learning(self) -> dict[str, np.ndarray]:
        """The weights that learn, by name, in the order of the module."""
        named = torch_modules.module(self.tasks[0]).named_parameters()
        return {name: p.detach().numpy() for name, p in named if p.requires_grad}

    @property
    def buckets(self) -> int:
        """The number of a module's buckets. A bucket holds one dtype, and closes as soon as it holds the cap."""
        closed = 0
        for dtype in {x.dtype for x in self.learning.values()}:
            room = 0
            for x in reversed(self.learning.values()):
                if x.dtype != dtype:
                    continue
                if room <= 0:
                    closed, room = closed + 1, self.cap_bytes
                room -= x.nbytes
        return closed

    @property
    def is_mixed(self) -> bool:
        return len({x.dtype for x in self.learning.values()}) > 1

    def near(self, x: np.ndarray) -> float:
        """Return the tolerance for a module's tensor `x`; integers such as counters get float32's."""
        return NEAR["float32"] if self.is_mixed else NEAR.get(str(x.dtype), NEAR["float32"])


def _arrays(state: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: x.numpy().copy() for name, x in state.items()}


@exercise({VALUES: 0.0, ONCE: 0.0, INSIDE: 0.0}, seen={ONCE: evidence.MESSAGES, INSIDE: evidence.WORK}, needs=needs.THREAD)
def wrap_module(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a wrapper that makes any module a replica.

    `wrap_module(fabric, module, cap_bytes)` gives the module rank 0's parameters and buffers, and hooks that begin the sums of
    buckets inside backward. It returns finish(), which leaves the means in p.grad. For the role of chance, see `overlapped`.
    """
    for name, n in RANKS.items():
        training = _drawn(arena, name, n)
        yield _modules(arena, fn, f"{ranks_in_words(n)}, {name}", [training])

    alone = [_drawn(arena, name, 1, steps=FEW_STEPS) for name in MODULES]
    yield _modules(arena, fn, "1 rank, all of these modules, one after the other", alone)
    name = arena.draws.choice(list(MODULES)[:3])
    training = _drawn(arena, name, MANY, dtype="float32", steps=FEW_STEPS)
    yield _modules(arena, fn, f"{ranks_in_words(MANY)}, {name}, in float32", [training])

    for kind, cap_bytes, buckets in TIMED:
        seeds = [arena.draws.getrandbits(32) for _ in range(kind.world_size)]
        given = kind.given | {"sizes": SIZES, "dtype": "float64", "buckets": buckets}
        training = OverlapTraining(tuple(timed_task(seed=seed, **given) for seed in seeds))
        tasks = [{"task": {**task, "buckets": []}, "cap_bytes": cap_bytes} for task in training.tasks]
        run = partial(arena.ranks, fn, tasks, link=kind.link, driver=any_module.timed)
        yield Case(
            f"{ranks_in_words(kind.world_size)}, {kind.name}",
            partial(gradient_averaging.run_until_right, kind, training, run),
            partial(_examine_timed, kind=kind, training=training),
        )


def _drawn(arena: Arena, name: str, n: int, **given: Any) -> ModuleTraining:
    """Draw a module's training whose cap is 1/2, 1/3 or 1/4 of all gradients; layers used in turn get a bucket each."""
    tasks = tuple(module_task(name, seed=arena.draws.getrandbits(32), **given) for _ in range(n))
    learning = ModuleTraining(tasks, 1).learning
    parts = len(learning) // 2 if name == "layers used in turn" else arena.draws.randint(2, 4)
    return ModuleTraining(tasks, sum(x.nbytes for x in learning.values()) // parts)


def _modules(arena: Arena, fn: Callable, name: str, trainings: Sequence[ModuleTraining]) -> Case:
    given = []
    for rank in range(trainings[0].world_size):
        given.append({"tasks": [one.tasks[rank] for one in trainings], "caps": [one.cap_bytes for one in trainings]})

    hints = []
    if len(trainings) == 1 and trainings[0].name in HINTS:
        hints.append(HINTS[trainings[0].name])
    return Case(
        name,
        lambda: hinted(arena.ranks(fn, given, driver=any_module.trained), hints),
        partial(_examine, trainings=trainings),
    )


def _examine(ended: ArenaResult, trainings: Sequence[ModuleTraining]) -> dict[str, Complaint]:
    wrong = None
    for place, training in enumerate(trainings):
        complaint = _wrong_states([states[place] for states in ended.returned], training)
        if complaint:
            wrong = f"{training.name}: {complaint}" if len(trainings) > 1 else complaint
            break

    sent = none_sent(ended.trace, "Broadcast at the start, and begin sums.") or _wrong_messages(ended.trace, trainings)
    return {VALUES: wrong, ONCE: sent if wrong else though_right("the weights", sent)}


def _wrong_states(returned: Sequence[dict], training: ModuleTraining) -> Complaint:
    for when in ("start", "first", "end"):
        for rank, states in enumerate(returned):
            wanted = _expected(training, when, states)
            complaint = first_complaint(tensor.wrong_on(rank, states[when].get(name)) for name, tensor in wanted.items())
            if complaint:
                return complaint
    return None


def _expected(training: ModuleTraining, when: str, states: dict) -> dict[str, Expected]:
    """Return a module's parameters and buffers as they must be, by name."""
    tensors = {}
    for name, value in training.expected[when].items():
        near = training.near(value)
        tensors[name] = Expected(
            f"`{name}`, as in one process", [value] * training.world_size, rounding=near, near_zero=near,
            otherwise=partial(_mistake, states=states, training=training, name=name, when=when),
        )  # fmt: skip
    return tensors


def _mistake(rank: int, got: Any, right: np.ndarray, *, states: dict, training: ModuleTraining, name: str, when: str) -> str:
    if when == "start":
        if not same(states["start"][name], training.starts[rank][name]):
            return "All ranks begin with rank 0's values: broadcast them."
        if name in training.learning:
            return f"Rank {rank} still has its own random values: broadcast rank 0's before the first step."

        model = torch_modules.module(training.tasks[0])
        if name in dict(model.named_buffers()):
            more = " It is not persistent, so state_dict() lacks it." * (name not in model.state_dict())
            return f"This buffer is still rank {rank}'s own: broadcast module.buffers() from rank 0 too.{more}"
        return f"This frozen weight is still rank {rank}'s own: broadcast frozen weights from rank 0 too."

    if name not in training.learning:
        return "It does not learn: no step changes it."
    if same(states[when][name], training.expected[when][name], *[NEAR["float32"] / 10] * 2):
        return "It is off by a rounding error of float32: does each bucket have the dtype of its gradients?"
    if when == "end":
        return "The first step was right: is a set, a list or a gradient left over from the step before?"

    step = (states["start"][name] - states["first"][name]) / training.tasks[0]["rate"]
    near = 10 * training.near(step)
    slip = first_slip(lambda gradient: same(step, gradient, near, near), _slips(training, rank, name))
    if not all(name in gradients for gradients in training.own):
        slip += f" {HINTS['layers used in turn']}"
    return slip.strip()


def _slips(training: ModuleTraining, rank: int, name: str) -> dict[str, np.ndarray]:
    """Return {words for a mistake: the module's gradient that it would have left in the first step}."""
    n, zeros = training.world_size, np.zeros_like(training.learning[name])
    if n == 1:
        return {}

    own = [gradients.get(name, zeros) for gradients in training.own]
    having = sum(name in gradients for gradients in training.own)
    whole = np.sum(own, axis=0)
    slips = {
        "It has not moved, and one process moves it.": zeros,
        f"The step is {number(n)} times the mean gradient: divide by the number of ranks.": whole,
        f"The sum is divided twice by {n}, the number of ranks.": whole / n**2,
        f"Rank {rank} steps by its own gradient alone: let finish() leave the mean over all ranks in p.grad.": own[rank],
        f"Rank {rank} steps by its own gradient, divided by {n}: the sum over the ranks is missing.": own[rank] / n,
    }
    if having < n:
        slips[f"The sum is divided by the {having} ranks that use it: divide by all {n}."] = whole / max(1, having)
    return slips


def _wrong_messages(trace: Trace, trainings: Sequence[ModuleTraining]) -> Complaint:
    n = trainings[0].world_size
    if n == 1:
        return None

    states = twice = each = 0
    for training in trainings:
        states += sum(x.nbytes for x in training.starts[0].values())
        each += 2 * training.steps * sum(x.nbytes for x in training.learning.values())
        # broadcasting a state_dict sends a tied weight, which has two names, twice
        model = torch_modules.module(training.tasks[0])
        twice += sum(p.nbytes for _, p in model.named_parameters(remove_duplicate=False))
        twice -= sum(p.nbytes for p in model.parameters())
    extra = trace.total_bytes() / (n - 1) - states - each
    if extra not in (0, twice):
        return _known_bytes(extra, each, twice, trainings)

    if any(training.is_mixed for training in trainings):
        return None  # buckets of two dtypes may close in any order
    sums = sent_by_each(trace)[n - 1] / (2 * (n - 1))  # the last rank sends nothing in the initial broadcast
    expected = sum(training.steps * training.buckets for training in trainings)
    if sums == expected:
        return None
    training, steps = trainings[0], trainings[0].steps
    return (
        f"rank {n - 1} takes part in {count(round(sums / steps), 'all-reduce')} a step; expected {expected // steps}: "
        f"{count(len(training.learning), 'gradient')}, the last first, in buckets that close once they hold "
        f"{training.cap_bytes} bytes."
    )


def _known_bytes(extra: float, each: float, twice: float, trainings: Sequence[ModuleTraining]) -> str:
    steps, every, frozen, cast = trainings[0].steps, 0, 0, 0
    for training in trainings:
        for name, x in training.starts[0].items():
            every += x.nbytes
            if name not in training.learning:
                frozen += x.nbytes
            elif training.is_mixed and x.dtype == np.float32:
                cast += x.nbytes

    known = {
        2 * steps * twice: "the tied weight is added up twice a step: it is one tensor under two names, with one gradient.",
        each: "every gradient is added up twice a step.",
        2 * steps * frozen: "frozen weights or buffers are added up at every step, although they have no gradient.",
        steps * every: "the weights travel at every step too: once at the start is enough.",
        2 * steps * cast: "gradients of two dtypes share a bucket, and travel in the wider one: give each bucket one dtype.",
        -each / 2: "the sums have half of the gradients' bytes: give each bucket the dtype of its gradients.",
    }
    words = known.get(extra) or known.get(extra - twice)
    if words and extra:
        return words
    more = f"{abs(extra):.0f} bytes {'more' if extra > 0 else 'fewer'}"
    return f"per rank but one, {more} travel than a broadcast of rank 0's state and one all-reduce of each gradient a step."


def _examine_timed(ended: ArenaResult, kind: TrainingKind, training: OverlapTraining) -> dict[str, Complaint]:
    training = replace(training, work=ended.work)
    wrong = wrong_weights.wrong_weights(ended.returned, training)
    (examine,) = kind.examine.values()
    late = examine(ended.trace, training) or training.invented_work(wrong is None)
    return {VALUES: wrong, INSIDE: late or UNEXAMINED if wrong else though_right("the weights", late)}
