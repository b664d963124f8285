"""Check of `quicker_way`: replicas or stages, by the seconds of a step and the memory of a rank.

Each question is drawn so that one slip answers it wrongly, and the pattern of answers names the slip; 30 questions with
two answers each are guessed with chance 2 ** -30. Micro-batches and activations in memory are left out. The comparison
is from A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997, 2014.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import combinations
from typing import Any, NamedTuple

from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import shown
from worldsize.checks.verdict import Complaint
from worldsize.formulas import parallelism
from worldsize.links import Link
from worldsize.units import number, size

SOONER = "the way whose step is sooner over"
FITS = "a way that does not fit is not chosen; None where neither fits"
REPLICAS, STAGES = "replicas", "stages"
CLEAR = 0.03  # of the longer step: the least gap between the two ways, by the right rule and by the slip's
TIMES = 2  # questions for each slip
MOST_QUESTIONS = 20_000  # drawn for one that shows a slip
NO_LIMIT = 10**15  # bytes: more than any model drawn here needs


class SpreadSetting(NamedTuple):
    """The arguments of `quicker_way`, in order."""

    batch: int
    example_s: float
    stage_bytes: tuple[int, ...]
    boundary_bytes: tuple[int, ...]
    alpha_s: float
    bytes_per_s: float
    memory_bytes: int

    @property
    def n(self) -> int:
        return len(self.stage_bytes)

    @property
    def model_bytes(self) -> int:
        return sum(self.stage_bytes)

    @override
    def __str__(self) -> str:
        limit = f", memory_bytes={self.memory_bytes}" * (self.memory_bytes != NO_LIMIT)
        return (
            f"batch={self.batch}, example_s={self.example_s:.3g}, stage_bytes={list(self.stage_bytes)}, "
            f"boundary_bytes={list(self.boundary_bytes)}, alpha_s={self.alpha_s:.3g}, bytes_per_s={self.bytes_per_s:.3g}{limit}"
        )


Seconds = Callable[[SpreadSetting], float]


def replicas_s(q: SpreadSetting) -> float:
    """Return the seconds of a step of replicas: the largest share's work, then a ring all-reduce of all gradients."""
    work_s = -(-q.batch // q.n) * q.example_s * q.n
    return parallelism.seconds_data_parallel(q.n, work_s, q.model_bytes, _link(q.bytes_per_s, q.alpha_s))


def stages_s(q: SpreadSetting) -> float:
    """Return the seconds of a step of stages: all work in turn, and two messages of the whole batch at every boundary."""
    work_s = q.batch * q.example_s
    return parallelism.seconds_model_parallel(q.batch, work_s, q.boundary_bytes, _link(q.bytes_per_s, q.alpha_s))


_link = lru_cache(64)(Link)  # every slip asks for a setting's link, and making one takes longer than its formula


def right(q: SpreadSetting) -> str | None:
    return _chosen(replicas_s(q), stages_s(q), fits(q))


def fits(q: SpreadSetting) -> dict[str, bool]:
    """Return which of both ways fit. A rank holds parameters and as many bytes of gradients: the model's, or its stage's."""
    return {REPLICAS: 2 * q.model_bytes <= q.memory_bytes, STAGES: 2 * max(q.stage_bytes) <= q.memory_bytes}


def _chosen(replicas: float, stages: float, fit: dict[str, bool]) -> str | None:
    seconds = {REPLICAS: replicas, STAGES: stages}
    return min((way for way in seconds if fit[way]), key=seconds.get, default=None)


def _ring(q: SpreadSetting) -> float:
    return replicas_s(q) - -(-q.batch // q.n) * q.example_s


def _with_latencies(counted: Callable[[int], int]) -> Seconds:
    """Return the seconds of replicas whose ring has counted(n) latencies in place of 2 (n − 1)."""
    return lambda q: replicas_s(q) + (counted(q.n) - 2 * (q.n - 1)) * q.alpha_s


# {complaint: (seconds of replicas, seconds of stages)}
SLIPS: dict[str, tuple[Seconds, Seconds]] = {
    "Stages work one after the other, since each needs the output of the one before; only replicas share the work.":
        (replicas_s, lambda q: stages_s(q) - q.batch * q.example_s * (1 - 1 / q.n)),
    "Replicas share the batch as whole examples: the largest share decides when a step ends.":
        (lambda q: _ring(q) + q.batch * q.example_s / q.n, stages_s),
    "A share is rounded up: the examples that are left over are work, too.":
        (lambda q: _ring(q) + q.batch // q.n * q.example_s, stages_s),
    "A share is rounded up, also where less than half an example is left over for each.":
        (lambda q: _ring(q) + round(q.batch / q.n) * q.example_s, stages_s),
    "With fewer examples than ranks the largest share is one example, not the whole batch.":
        (lambda q: _ring(q) + (-(-q.batch // q.n) if q.batch >= q.n else q.batch) * q.example_s, stages_s),
    "Where the batch divides evenly, no share has one example more.":
        (lambda q: _ring(q) + (q.batch // q.n + 1) * q.example_s, stages_s),
    "All stages together do the work of the batch once: each does a part of it.":
        (replicas_s, lambda q: stages_s(q) + (q.n - 1) * q.batch * q.example_s),
    "A step of replicas averages its gradients: that takes time, too.": (lambda q: replicas_s(q) - _ring(q), stages_s),
    "Activations take time at every boundary.": (replicas_s, lambda q: q.batch * q.example_s),
    "A boundary is passed twice: activations forwards, their gradients backwards.":
        (replicas_s, lambda q: (stages_s(q) + q.batch * q.example_s) / 2),
    "The activations of the whole batch pass a boundary, not of one example.":
        (replicas_s, lambda q: stages_s(q._replace(example_s=0.0, batch=1)) + q.batch * q.example_s),
    "Stages do not share the batch: all of it passes every boundary.":
        (replicas_s, lambda q: q.batch * q.example_s
         + 2 * sum(q.alpha_s + q.batch / q.n * each / q.bytes_per_s for each in q.boundary_bytes)),
    "A batch passes the boundaries one after the other: add up all of them, not only the largest.":
        (replicas_s, lambda q: stages_s(q._replace(boundary_bytes=(max(q.boundary_bytes),)))),
    "Each of the 2 (n − 1) messages of the ring has its latency.": (lambda q: replicas_s(q._replace(alpha_s=0.0)), stages_s),
    "The ring has 2 (n − 1) messages in a row, each with its latency; this counts n of them.":
        (_with_latencies(lambda n: n), stages_s),
    "The ring has 2 (n − 1) messages in a row, each with its latency; this counts two of them.":
        (_with_latencies(lambda n: 2), stages_s),
    "The ring has 2 (n − 1) messages in a row, each with its latency; this counts one of them.":
        (_with_latencies(lambda n: 1), stages_s),
    "A ring all-reduce has 2 (n − 1) messages of an n-th of the gradients; this is two messages with all of them.":
        (lambda q: replicas_s(q) - _ring(q) + 2 * (q.alpha_s + q.model_bytes / q.bytes_per_s), stages_s),
    "Each message at a boundary has its latency.": (replicas_s, lambda q: stages_s(q._replace(alpha_s=0.0))),
    "A batch passes a boundary as one message: its latency comes once, not for each example.":
        (replicas_s, lambda q: stages_s(q) + 2 * len(q.boundary_bytes) * (q.batch - 1) * q.alpha_s),
    "A ring all-reduce has 2 (n − 1) messages of an n-th of the gradients; this is one message with all of them.":
        (lambda q: replicas_s(q) - _ring(q) + q.alpha_s + q.model_bytes / q.bytes_per_s, stages_s),
    "A ring goes round twice, once to add up and once to hand out: 2 (n − 1) messages.":
        (lambda q: replicas_s(q) - _ring(q) / 2, stages_s),
    "A ring of n ranks goes n − 1 steps to add up, and n − 1 to hand out, not n.":
        (lambda q: replicas_s(q) + _ring(q) / (q.n - 1), stages_s),
    "Replicas average gradients alone: each updates its own parameters, which need not travel.":
        (lambda q: replicas_s(q) + 2 * (q.n - 1) / q.n * q.model_bytes / q.bytes_per_s, stages_s),
    "A message of the ring holds an n-th of the gradients, not all of them.":
        (lambda q: replicas_s(q) + 2 * (q.n - 1) * q.model_bytes * (1 - 1 / q.n) / q.bytes_per_s, stages_s),
    "There are as many gradients as parameters, whatever the batch.":
        (lambda q: replicas_s(q) + 2 * (q.n - 1) / q.n * q.model_bytes * (q.batch - 1) / q.bytes_per_s, stages_s),
    "That is the slower way.": (stages_s, replicas_s),
}  # fmt: skip
# {complaint: which ways fit}
UNFIT: dict[str, Callable[[SpreadSetting], dict[str, bool]]] = {
    "A way that needs more memory than there is cannot be chosen.": lambda q: {REPLICAS: True, STAGES: True},
    "A rank holds its gradients as well, as many bytes as its parameters.":
        lambda q: {REPLICAS: q.model_bytes <= q.memory_bytes, STAGES: max(q.stage_bytes) <= q.memory_bytes},
    "Every stage must fit, the largest too.":
        lambda q: {**fits(q), STAGES: 2 * q.model_bytes / q.n <= q.memory_bytes},
    "Every stage must fit; this looks at the smallest.":
        lambda q: {**fits(q), STAGES: 2 * min(q.stage_bytes) <= q.memory_bytes},
    "Every stage must fit; this looks at the first.":
        lambda q: {**fits(q), STAGES: 2 * q.stage_bytes[0] <= q.memory_bytes},
    "Every stage must fit; this looks at the last.":
        lambda q: {**fits(q), STAGES: 2 * q.stage_bytes[-1] <= q.memory_bytes},
    "Every replica holds the whole model.": lambda q: {**fits(q), REPLICAS: fits(q)[STAGES]},
    "A rank holds one stage, not the whole model.": lambda q: {**fits(q), STAGES: fits(q)[REPLICAS]},
    "A way that needs exactly all of the memory fits.":
        lambda q: {REPLICAS: 2 * q.model_bytes < q.memory_bytes, STAGES: 2 * max(q.stage_bytes) < q.memory_bytes},
    "Replicas that need just all of the memory fit.":
        lambda q: {**fits(q), REPLICAS: 2 * q.model_bytes < q.memory_bytes},
    "A stage that needs just all of the memory fits.":
        lambda q: {**fits(q), STAGES: 2 * max(q.stage_bytes) < q.memory_bytes},
    "Leave activations out of the memory of a rank.":
        lambda q: {**fits(q), STAGES: 2 * max(q.stage_bytes) + q.batch * max(q.boundary_bytes) <= q.memory_bytes},
    "Where no way fits, return None.": lambda q: {**fits(q), STAGES: True},
}  # fmt: skip


def by_slip(q: SpreadSetting, words: str) -> str | None:
    """Return the quicker way by the slip."""
    if words in UNFIT:
        return _chosen(replicas_s(q), stages_s(q), UNFIT[words](q))
    replicas, stages = SLIPS[words]
    return _chosen(replicas(q), stages(q), fits(q))


@exercise({SOONER: 0.5, FITS: 0.5})
def quicker_way(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a decision between replicas and stages.

    `quicker_way(batch, example_s, stage_bytes, boundary_bytes, alpha_s, bytes_per_s, memory_bytes)` returns "replicas",
    "stages" or None.
    """
    for held, slips, limited in ((SOONER, SLIPS, False), (FITS, UNFIT, True)):
        asked = _telling(slips, limited, arena.draws)
        given = []
        for q in asked:
            with_lists = q._replace(stage_bytes=list(q.stage_bytes), boundary_bytes=list(q.boundary_bytes))
            given.append(tuple(with_lists))
        yield Case(
            f"{len(asked)} settings, {'with a limit of memory' if limited else 'memory for all'}",
            partial(arena.ranks, fn, [given], driver=on_ranks.answers),
            partial(_examine, asked=asked, slips=slips, held=held),
        )


def _telling(slips: Sequence[str], limited: bool, draws: random.Random) -> list[SpreadSetting]:
    """Draw quicker-way questions for each slip, and for each pair of slips that answer those alike; return them shuffled."""
    asked = [question_for(words, limited, draws) for words in slips for _ in range(TIMES)]
    answers = {words: [by_slip(q, words) for q in asked] for words in slips}
    for one, other in combinations(slips, 2):
        if answers[one] == answers[other]:
            asked.append(question_for(one, limited, draws, other))
            for words in slips:
                answers[words].append(by_slip(asked[-1], words))
    draws.shuffle(asked)
    return asked


def question_for(words: str, limited: bool, draws: random.Random, unlike: str | None = None) -> SpreadSetting:
    """Draw a quicker-way question that the slip `words` answers wrongly, or unlike the slip `unlike`, times clearly apart.

    Raises AssertionError as `drawn_until`.
    """

    def tells(q: SpreadSetting) -> bool:
        expected = right(q) if unlike is None else by_slip(q, unlike)
        if by_slip(q, words) == expected:  # most draws end here, so the cheap test comes first
            return False
        rules = filter(None, [(replicas_s, stages_s), SLIPS.get(words), SLIPS.get(unlike)])
        seconds = [sorted([replicas(q), stages(q)]) for replicas, stages in rules]
        return all(longer - shorter > CLEAR * longer for shorter, longer in seconds)

    return drawn_until(tells, lambda: _drawn(limited, draws), f"quicker_way, {words!r} beside {unlike!r}", MOST_QUESTIONS)


def _drawn(limited: bool, draws: random.Random) -> SpreadSetting:
    def between(low: float, high: float) -> float:
        return math.exp(draws.uniform(math.log(low), math.log(high)))

    n = draws.randint(2, 5)
    stage_bytes = tuple(4 * round(between(1e4, 2e6)) for _ in range(n))
    boundary_bytes = tuple(4 * round(between(20, 5e3)) for _ in range(n - 1))
    batch = draws.choice([draws.randint(1, n), draws.randint(n + 1, 3 * n), n * draws.randint(2, 6), draws.randint(20, 300)])
    bytes_per_s, alpha_s = between(2e6, 1e8), between(1e-5, 2e-2)
    moved_s = parallelism.bytes_data_parallel(n, sum(stage_bytes)) / n / bytes_per_s
    memory = NO_LIMIT
    if limited:  # often just at the limit of a right or a wrong rule
        edges = [2 * sum(stage_bytes), 2 * max(stage_bytes), sum(stage_bytes), max(stage_bytes), round(2 * sum(stage_bytes) / n)]
        edges.append(2 * min(stage_bytes))
        memory = round(draws.choice(edges) * draws.choice([1, 1, between(0.6, 1.6)]))
    return SpreadSetting(batch, moved_s / batch * between(0.1, 10), stage_bytes, boundary_bytes, alpha_s, bytes_per_s, memory)


def _examine(
    ended: ArenaResult, asked: Sequence[SpreadSetting], slips: Sequence[str], held: str
) -> dict[str, Complaint]:
    for given, q in zip(ended.inputs[0], asked, strict=True):
        if (tuple(given[2]), tuple(given[3])) != (q.stage_bytes, q.boundary_bytes):
            changed = "stage_bytes or boundary_bytes was changed in place: the caller still needs them unchanged. Work on a copy."
            return {held: changed}
    return {held: _wrong(ended.returned[0]["returned"], asked, slips)}


def _wrong(answered: Sequence[Any], asked: Sequence[SpreadSetting], slips: Sequence[str]) -> Complaint:
    for got in answered:
        if not isinstance(got, str | None) or got not in (REPLICAS, STAGES, None):
            return f'expected "replicas", "stages" or None, got {shown(got)}'

    wrong = [place for place, (got, q) in enumerate(zip(answered, asked, strict=True)) if got != right(q)]
    if not wrong:
        return None

    q, got = asked[wrong[0]], answered[wrong[0]]
    slip = next((words for words in slips if [by_slip(q, words) for q in asked] == list(answered)), "")
    seconds = f"A step of replicas takes {number(replicas_s(q), 's')}, of stages {number(stages_s(q), 's')}"
    if q.memory_bytes != NO_LIMIT:
        needs = f"a replica needs {size(2 * q.model_bytes)}, the largest stage {size(2 * max(q.stage_bytes))}"
        seconds += f"; {needs}, a rank has {size(q.memory_bytes)}"
    return f"{q}: expected {right(q)!r}, got {got!r} ({len(wrong)} of {len(asked)} differ). {seconds}. {slip}".rstrip()
