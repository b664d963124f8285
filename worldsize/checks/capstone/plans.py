"""Check the fastest plan: how a training step is spread over GPUs, by the course's own formulas of memory and time.

The check tries every plan of the five decisions, a few hundred in milliseconds, so any of several equally fast plans
passes. Each case defeats a shortcut (always as much tensor parallelism as a node has, one sequence at a time, powers of
two, whole recomputation or none); drawn cases do so again, so that a table of the fixed cases' plans earns nothing. Left
out: whether the formulas are right (`formulas.training_step`), sharded states, and interleaved schedules.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from typing_extensions import override

from worldsize import units
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import are_whole, has_keys, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.formulas import training_step
from worldsize.formulas.training_step import RECOMPUTED, Accelerator, Plan, Transformer

FITS = "a plan for all the GPUs, which fits"
FASTEST = "none that fits is faster"
DECIDED = ("tensor", "pipeline", "data", "micro_batch", "recomputed")
ROUNDING = 1e-9
GB = 1e9
USUAL_BYTES = 80 * GB  # the lab's card
MOST_SLIPS = 3  # that are named; more say nothing


@dataclass(frozen=True)
class PlanCase:
    """A plan's case: a model, a number of GPUs with so much memory each, and the sequences a step."""

    name: str
    model: Transformer
    gpus: int
    global_batch: int
    memory_bytes: float

    @override
    def __str__(self) -> str:
        return (
            f"{self.name}, {units.count(self.gpus, 'GPU')} of {self.memory_bytes / GB:g} GB, "
            f"{units.count(self.global_batch, 'sequence')} a step"
        )


LARGE = Transformer(96, 12288, 96)
MIDDLE = Transformer(48, 8192, 64)
SMALL = Transformer(24, 2048, 32, tokens=1024)
SIX_HEADS = Transformer(30, 3072, 6)
NARROW = Transformer(36, 2304, 24)
FORTY_LAYERS = Transformer(40, 6144, 48)
SEVEN_LAYERS = Transformer(7, 8192, 64)
TINY = Transformer(12, 768, 12, tokens=512)
TASKS = (
    PlanCase("175 B", LARGE, 1024, 1536, 80 * GB),
    PlanCase("175 B", LARGE, 1024, 1536, 40 * GB),
    PlanCase("175 B", LARGE, 1024, 1536, 24 * GB),  # only what recomputes everything fits
    PlanCase("39 B", MIDDLE, 512, 1536, 80 * GB),
    PlanCase("1.3 B", SMALL, 8, 64, 80 * GB),
    PlanCase("1.3 B", SMALL, 8, 64, 16 * GB),
    PlanCase("2.4 B", NARROW, 12, 36, 40 * GB),
    PlanCase("2.4 B", NARROW, 1, 16, 80 * GB),
    PlanCase("3.6 B with 6 heads", SIX_HEADS, 64, 96, 24 * GB),
    PlanCase("175 B", LARGE, 96, 96, 80 * GB),  # the best tensor is no power of two
    PlanCase("6.5 B with 7 layers", SEVEN_LAYERS, 64, 4, 80 * GB),  # the best tensor leaves the node
    PlanCase("39 B", MIDDLE, 96, 4, 80 * GB),  # the best has fewer micro-batches than stages
    PlanCase("0.1 B", TINY, 2, 128, 80 * GB),  # the best takes 64 sequences at a time
    PlanCase("0.1 B", TINY, 128, 512, 80 * GB),  # the best has 128 copies
    PlanCase("1.3 B and 256,000 words", replace(SMALL, vocabulary=256_000), 8, 64, 16 * GB),
    PlanCase("1.3 B", SMALL, 8, 64, 66_951_315_456),  # the best of 80 GB needs just as much
    PlanCase("18.4 B with 40 layers", FORTY_LAYERS, 20, 240, 24 * GB),  # 5 stages, which 96 layers would not divide into
    PlanCase("175 B", LARGE, 16, 64, 80 * GB),  # nothing fits
    PlanCase("2.4 B", NARROW, 14, 36, 80 * GB),  # nothing divides
)


@dataclass(frozen=True)
class Drawn:
    """The choices for a drawn plan: a model is `heads` times `head_size` wide, and the batch is `sequences` times the GPUs."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    head_size: tuple[int, ...]
    gpus: tuple[int, ...]
    sequences: tuple[int, ...]
    memory_gb: tuple[int, int]
    tokens: int = 2048
    vocabulary: tuple[int, ...] = (51_200,)

    def case(self, draws: random.Random) -> PlanCase:
        heads = draws.choice(self.heads)
        layers, hidden = draws.choice(self.layers), heads * draws.choice(self.head_size)
        model = Transformer(layers, hidden, heads, self.tokens, draws.choice(self.vocabulary))
        gpus = draws.choice(self.gpus)
        memory_bytes = draws.randint(*self.memory_gb) * GB
        name = f"{training_step.parameters(model) / 1e9:.3g} B"
        return PlanCase(name, model, gpus, gpus * draws.choice(self.sequences), memory_bytes)


DRAWN = (
    Drawn((72, 80, 84, 90, 96), (80, 96, 120), (96, 112, 128), (384, 512, 768), (2, 3, 4), (44, 88)),
    Drawn((24, 30, 36, 42), (10, 12, 14, 20), (160, 192, 256), (24, 36, 48, 64), (2, 3, 4), (18, 44)),
    Drawn((20, 24, 28), (16, 20, 24, 32), (64, 80, 96), (6, 8, 12), (6, 8, 12), (30, 80), 1024, (64_000, 100_000, 128_000)),
)
SHORTCUTS = {  # {shortcut: whether a plan is among those that it tries}
    "as much tensor parallelism as a node has": lambda plan, case: plan.tensor == _most_in_a_node(case),
    "one sequence at a time": lambda plan, case: plan.micro_batch == 1,
    "powers of two": lambda plan, case: all(n & (n - 1) == 0 for n in (plan.tensor, plan.pipeline, plan.micro_batch)),
    "all recomputed": lambda plan, case: plan.recomputed == "whole",
    "the scores recomputed": lambda plan, case: plan.recomputed == "attention",
    "nothing recomputed": lambda plan, case: plan.recomputed == "",
    "no pipeline": lambda plan, case: plan.pipeline == 1,
    "no tensor parallelism": lambda plan, case: plan.tensor == 1,
}


@exercise({FITS: 0.25, FASTEST: 0.75})
def best_plan(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the fastest plan of a training step.

    `best_plan(model, gpus, global_batch, memory_bytes)` returns a dict with the five decisions, or None where nothing fits.
    """
    for task in (*TASKS, *drawn_cases(arena.draws)):
        model = {name: getattr(task.model, name) for name in ("layers", "hidden", "heads", "tokens", "vocabulary")}
        yield Case(
            str(task),
            lambda task=task, model=model: arena.call(fn, model, task.gpus, task.global_batch, task.memory_bytes),
            lambda ended, task=task, model=model: _with_unchanged(ended, model, _examine(ended.returned[0], task)),
        )


def _with_unchanged(ended: ArenaResult, model: dict[str, int], complaints: dict[str, Complaint]) -> dict[str, Complaint]:
    return complaints | {FITS: complaints[FITS] or changed(ended.inputs[0], model, "model")}


def _examine(got: Any, task: PlanCase) -> dict[str, Complaint]:
    best = _fastest(task)

    def none(complaint: str) -> dict[str, Complaint]:
        return {FITS: complaint, FASTEST: UNEXAMINED}

    if got is None and best is None:
        return dict.fromkeys(best_plan.points)
    if best is None:
        why = ""
        if has_keys(got, *DECIDED):
            why = _no_plan(got, task) or _too_large(_plan(got, task), task) or ""
        return none(f"no plan fits here; expected None, got {_short(got)}. {why}".rstrip())
    if got is None:
        return none(f"got {shown(got)} A plan that fits takes {_seconds(best, task):.4g} s: try every divisor.")

    complaint = _no_plan(got, task) or _too_large(_plan(got, task), task)
    if complaint:
        return none(complaint)

    plan = _plan(got, task)
    took, least = _seconds(plan, task), _seconds(best, task)
    if took <= least * (1 + ROUNDING):
        return {FITS: None, FASTEST: None}

    others = [name for name in DECIDED if getattr(plan, name) != getattr(best, name)]
    slower = (
        f"{_short(vars(plan))} takes {took:.4g} s a step, but another plan that fits takes {least:.4g} s: "
        f"{' and '.join(filter(None, [', '.join(others[:-1]), others[-1]]))} differ{'s' * (len(others) == 1)}. "
        f"{_slips(plan, task)}"
    )
    return {FITS: None, FASTEST: slower.rstrip()}


def _slips(plan: Plan, task: PlanCase) -> str:
    """Return words for the incomplete searches that end at this plan; empty for none, or for too many."""
    found = []
    for words, admits in _NARROWER.items():
        among = [other for other in _fitting(task) if admits(other, task)]
        if plan in among and _seconds(plan, task) <= min(_seconds(other, task) for other in among) * (1 + ROUNDING):
            found.append(words)
    for words, cost in _OTHER_COSTS.items():
        if cost(plan, task) <= min(cost(other, task) for other in _fitting(task)) * (1 + ROUNDING):
            found.append(words)
    if not found or len(found) > MOST_SLIPS:
        return ""
    return f"A search ends at yours if it {', or if it '.join(found)}."


def _as_quick(plan: Plan, task: PlanCase) -> bool:
    best = _fastest(task)
    return best is not None and _seconds(plan, task) <= _seconds(best, task) * (1 + ROUNDING)


def drawn_cases(draws: random.Random) -> list[PlanCase]:
    """Draw a plan's case of each kind, a case in which nothing fits, and a case whose GPUs nothing divides.

    Each shortcut is slower in a case of the three kinds, or finds nothing there.
    """

    def tells(cases: list[PlanCase]) -> bool:
        return all(map(_fastest, cases)) and all(_lost(shortcut, cases) for shortcut in SHORTCUTS.values())

    drawn = drawn_until(tells, lambda: [kind.case(draws) for kind in DRAWN], "best_plan")

    # a whole number of GB, just below the least that a plan needs
    first = draws.choice(drawn[:2])
    least = min(_held_bytes(plan, first) for plan in _plans(first))
    too_small = replace(first, memory_bytes=(math.ceil(least / GB) - 1) * GB)

    # a number of GPUs with a prime factor that divides neither heads nor layers nor the batch
    last = drawn[2]
    product = last.model.heads * last.model.layers * last.global_batch
    primes = [n for n in (11, 13, 17, 19) if product % n]
    return [*drawn, too_small, replace(last, gpus=draws.choice(primes) * draws.choice((1, 2)))]


def _lost(shortcut: Callable[[Plan, PlanCase], bool], cases: list[PlanCase]) -> bool:
    for case in cases:
        found = _fastest(case, shortcut)
        if found is None or _seconds(found, case) > _seconds(_fastest(case), case) * (1 + ROUNDING):
            return True
    return False


def _most_in_a_node(case: PlanCase) -> int:
    return max(t for t in _divisors(case.gpus) if t <= Accelerator.a_node and case.model.heads % t == 0)


def _plans(task: PlanCase) -> Iterator[Plan]:
    for tensor in _divisors(task.gpus):
        if task.model.heads % tensor:
            continue
        for pipeline in _divisors(task.gpus // tensor):
            data = task.gpus // (tensor * pipeline)
            if task.model.layers % pipeline or task.global_batch % data:
                continue
            for micro_batch in _divisors(task.global_batch // data):
                for recomputed in RECOMPUTED:
                    yield Plan(tensor, pipeline, data, micro_batch, task.global_batch, recomputed=recomputed)


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]


def _held_bytes(plan: Plan, task: PlanCase) -> float:
    return sum(training_step.memory(task.model, plan).values())


@lru_cache(32)
def _fitting(task: PlanCase) -> list[Plan]:
    return [plan for plan in _plans(task) if _held_bytes(plan, task) <= task.memory_bytes]


def _seconds(plan: Plan, task: PlanCase) -> float:
    return sum(training_step.seconds(task.model, plan).values())


@lru_cache(256)
def _fastest(task: PlanCase, among: Callable[[Plan, PlanCase], bool] = lambda plan, case: True) -> Plan | None:
    fitting = [plan for plan in _fitting(task) if among(plan, task)]
    return min(fitting, key=lambda plan: _seconds(plan, task), default=None)


def _plan(got: Mapping[str, Any], task: PlanCase) -> Plan:
    sizes = {name: int(got[name]) for name in DECIDED[:4]}
    return Plan(**sizes, global_batch=task.global_batch, recomputed=str(got["recomputed"]))


def _no_plan(got: Any, task: PlanCase) -> Complaint:
    """Complain about an answer that is none of the plans asked for, whether or not it would fit."""
    if got == "<Plan>":
        return f"expected a dict, got a Plan: return a dict of its {', '.join(DECIDED)} alone"
    if not isinstance(got, dict):
        return f"expected a dict with {', '.join(DECIDED)}, got {shown(got)}"
    for name in DECIDED:
        if name not in got:
            return f"expected a dict with {', '.join(DECIDED)}; {name} is missing in {_short(got)}"
    if "global_batch" in got:
        return (
            f"the dict has global_batch, which is given: the next cell adds it, Plan(**found, global_batch=…). "
            f"Return only {', '.join(DECIDED)}"
        )
    for name, value in {"chunks": 1, "zero": 0, "sequence_parallel": False, "overlap": False}.items():
        if got.get(name, value) != value:
            return f"{name} is {got[name]!r}; choose only {', '.join(DECIDED)} here, with {name} = {value!r}"
    more = [name for name in got if name not in (*DECIDED, "chunks", "zero", "sequence_parallel", "overlap")]
    if more:
        return f"expected a dict with {', '.join(DECIDED)} alone, got {', '.join(map(str, more))} too: a Plan has no such field"

    sizes = [got[name] for name in DECIDED[:4]]
    if not are_whole(*sizes) or min(sizes) < 1:
        return f"expected whole numbers of 1 and more, got {_short(got)}"
    if got["recomputed"] not in RECOMPUTED:
        return f'expected recomputed as "", "attention" or "whole", got {got["recomputed"]!r}'

    tensor, pipeline, data, micro_batch = map(int, sizes)
    if tensor * pipeline * data != task.gpus:
        return f"tensor · pipeline · data is {tensor * pipeline * data}; expected {task.gpus}, all the GPUs. Got {_short(got)}"
    if task.model.heads % tensor:
        return f"tensor {tensor} doesn't divide the {task.model.heads} heads: a rank holds whole heads. Got {_short(got)}"
    if task.model.layers % pipeline:
        return f"pipeline {pipeline} doesn't divide the {task.model.layers} layers. Got {_short(got)}"
    if task.global_batch % (data * micro_batch):
        return f"data · micro_batch is {data * micro_batch}, and doesn't divide {task.global_batch} sequences. Got {_short(got)}"
    return None


def _too_large(plan: Plan, task: PlanCase) -> Complaint:
    parts = training_step.memory(task.model, plan)
    needed = sum(parts.values())
    if needed <= task.memory_bytes:
        return None

    held = " + ".join(f"{name} {size / GB:.3g}" for name, size in parts.items())
    complaint = f"{_short(vars(plan))} needs {needed / GB:.4g} GB per GPU ({held}); a GPU has {task.memory_bytes / GB:g} GB."
    roomy = replace(task, memory_bytes=USUAL_BYTES)
    if task.memory_bytes < USUAL_BYTES and _as_quick(plan, roomy):
        complaint += f" In {USUAL_BYTES / GB:g} GB it would be the fastest: compare with memory_bytes."
    elif needed - parts["activations"] <= task.memory_bytes:
        complaint += " Activations must fit as well."
    return complaint


def _short(got: Any) -> str:
    if not isinstance(got, dict):
        return shown(got)
    return ", ".join(f"{name} {got[name]!r}" for name in DECIDED if name in got) or shown(got)


def _without(*parts: str) -> Callable[[Plan, PlanCase], float]:
    """Return a plan's seconds without these parts, as a function."""
    return lambda plan, task: sum(s for part, s in training_step.seconds(task.model, plan).items() if part not in parts)


_NARROWER = {  # {what an incomplete search does: whether it tries a plan}
    "tries no micro_batch but powers of two": lambda plan, task: plan.micro_batch & (plan.micro_batch - 1) == 0,
    "tries micro_batch 1 alone": lambda plan, task: plan.micro_batch == 1,
    "tries no tensor but powers of two": lambda plan, task: plan.tensor & (plan.tensor - 1) == 0,
    "tries no tensor above a node's 8": lambda plan, task: plan.tensor <= Accelerator.a_node,
    'never tries recomputed "attention"': lambda plan, task: plan.recomputed != "attention",
    'never tries recomputed "whole"': lambda plan, task: plan.recomputed != "whole",
    "always recomputes": lambda plan, task: plan.recomputed != "",
    'always has recomputed "whole"': lambda plan, task: plan.recomputed == "whole",
    "wants at least as many micro-batches as stages": lambda plan, task: plan.micro_batches >= plan.pipeline,
    "wants room to spare: at most memory_bytes means that just as much fits": lambda plan, task: (
        _held_bytes(plan, task) < task.memory_bytes
    ),
}
_OTHER_COSTS = {  # {what a search does: what it makes small}
    "seeks the least memory": lambda plan, task: _held_bytes(plan, task),
    "leaves the bubble out of the seconds": _without("bubble"),
    "leaves the gradients' all-reduce out of the seconds": _without("data parallel"),
    "leaves the tensor parallel messages out of the seconds": _without("tensor parallel"),
    "counts compute alone": _without("bubble", "data parallel", "tensor parallel", "head", "point to point"),
}
