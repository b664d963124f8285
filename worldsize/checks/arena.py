"""The arena: the one interface through which a check runs a student's function.

A check calls one of an arena's five methods. Each makes a `Trial`, which says what runs, on what, and how; `run` carries it
out, and is all that an arena implements. `LaunchArena` runs a trial through `launch`, as the notebook does. A grader's sandbox
is an arena, too, so an answer gets the same verdict in both.
"""

from __future__ import annotations

import os
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from worldsize import failures
from worldsize.checks import in_rank, plain_call
from worldsize.checks.drivers import killed_writer
from worldsize.checks.noted_calls import NotedCalls, make_again
from worldsize.engines.cluster_spec import Cluster, TensorFlowTasks, serving
from worldsize.engines.ranks.rank_failure import failure_of
from worldsize.errors import LaunchError
from worldsize.failures import Failure, Wait
from worldsize.links import Link
from worldsize.trace import Trace

if TYPE_CHECKING:  # grading launches nothing, and a sandbox shows only the modules it needs
    from worldsize.checks.weighed_work import WeighedWork
    from worldsize.launch import Run

ArenaState = Literal["done", "not yet", "raised", "deadlock", "timeout"]
PlayedRanks = Mapping[int, Callable]
NOBODY: PlayedRanks = MappingProxyType({})


@dataclass(frozen=True)
class ArenaResult:
    """An arena's result: the end of a student's function on all ranks. Arrays are NumPy's, by rank.

    `message` describes any state but "done", `waits` lists who waits for whom in a deadlock, `failure` is the failure of a
    plain function. `returned[r]` is rank r's return value; `inputs[r]` is its input afterwards, since a function may work
    in place. For a plain call `inputs` holds all arguments afterwards. `unwaited` lists the ranks that ended without
    waiting for an isend handle. `work[r]` is rank r's declared work as the arena weighed it; `work` is None where the arena
    weighs none.
    """

    state: ArenaState
    message: str = ""
    returned: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()
    trace: Trace = field(default_factory=lambda: Trace(0))
    waits: tuple[Wait, ...] = ()
    failure: Failure | None = None
    unwaited: tuple[int, ...] = ()
    work: tuple[tuple[WeighedWork, ...], ...] | None = None


@dataclass(frozen=True)
class ByRank:
    """An arena's stand-in for an argument that all ranks share: rank r gets `values[r]`, and no other rank has it."""

    values: tuple[Any, ...]


def of_rank(more: Iterable[Any], rank: int) -> list[Any]:
    """Return the arguments that `rank` gets in an arena."""
    return [value.values[rank] if isinstance(value, ByRank) else value for value in more]


Way = Literal["call", "ranks", "saves", "group", "tensorflow"]


@dataclass(frozen=True)
class Trial:
    """A run that a check asks an arena for: the method of `Arena` that it called, and its arguments.

    `inputs` holds a value for each rank; for a plain call it holds the arguments, for "saves" one list of scenarios. `driver`, a
    function of `checks.drivers`, runs in place of `fn` and gets `fn` first. `more`, `link` and `played` are as in `Arena.ranks`;
    `tasks` holds the other arguments of `Arena.tensorflow`.
    """

    way: Way
    fn: Callable | None
    inputs: tuple[Any, ...]
    more: tuple[Any, ...] = ()
    driver: Callable | None = None
    link: Link | None = None
    played: PlayedRanks = field(default_factory=lambda: NOBODY)
    tasks: TensorFlowTasks = TensorFlowTasks()


class Arena(ABC):
    """An arena, a way to carry out trials. An arena defines `run`, and sets `draws`."""

    draws: random.Random
    """Where a check's random numbers come from, so that a grading can be replayed."""

    @abstractmethod
    def run(self, trial: Trial) -> ArenaResult:
        """Carry out `trial` in this arena, and return how it ended."""

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        """Call a plain function once in this arena, with copies of `args`; its value is `returned[0]`.

        A callable among `args` belongs to the check, which sees every call that `fn` makes to it.
        """
        return self.run(Trial("call", fn, args))

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Link | None = None, played: PlayedRanks = NOBODY,
        driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        """Run `fn(fabric, inputs[rank], *more)` on this arena's `len(inputs)` ranks and record their messages.

        A `ByRank` among `more` holds a value for each rank. The check plays the ranks in `played`: there
        `played[rank](fabric, inputs[rank], *more)` runs instead. On all other ranks a `driver` replaces `fn`:
        `driver(fn, fabric, inputs[rank], *more)`.
        """
        return self.run(Trial("ranks", fn, tuple(inputs), more, driver, link, played))

    def saves(self, fn: Callable, scenarios: Sequence[dict[str, Any]]) -> ArenaResult:
        """Save by `fn(path, data)` in writers that are killed; `returned[0]` is what `drivers.killed_writer.tried` returns.

        A grader kills the writers at bytes, and observes their folder, from outside their processes. The answer's own process
        notes the steps between two calls there, too (`drivers.killed_writer.is_noted`).
        """
        return self.run(Trial("saves", fn, (list(scenarios),), driver=killed_writer.tried))

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any, driver: Callable | None = None) -> ArenaResult:
        """Run `fn(inputs[rank], *more)` on this arena's ranks, which share a torch.distributed process group over gloo.

        A `driver` replaces `fn`: `driver(fn, inputs[rank], *more)`.
        """
        return self.run(Trial("group", fn, tuple(inputs), more, driver))

    def tensorflow(
        self, fn: Callable | None, inputs: Sequence[Any], *more: Any, logical_devices: int = 1, cluster: Cluster | None = None,
        servers: Iterable[str] | None = None, legacy_keras: bool = False, driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        """Run `fn(inputs[rank], *more)` in a process with TensorFlow, or on each task of a `cluster` (as `worldsize.tf.launch`).

        Arrays arrive as NumPy's, and callables belong to the check, as in `call`. In the task a `driver` replaces `fn`:
        `driver(fn, inputs[rank], *more)`. Where `fn` is None, no code of the student's runs. A server returns None. Raises
        ValueError unless there is one input for each task, or one where there is no cluster.
        """
        n = len(cluster.tasks()) if cluster else 1
        if len(inputs) != n:
            who = f"each task of {cluster}" if cluster else "the one process"
            raise ValueError(f"arena.tensorflow: expected {n} inputs, one for {who}, got {len(inputs)}")
        tasks = TensorFlowTasks(cluster, serving(cluster, servers), logical_devices, legacy_keras)
        return self.run(Trial("tensorflow", fn, tuple(inputs), more, driver, tasks=tasks))


FUNCTIONS_PROCESS = "the function's process"  # names what failed where there is no rank


def called(trial: Trial, limit_s: float) -> ArenaResult:
    """Return an arena's result of a plain function, called in this process with copies of `args`, within `limit_s` seconds."""
    assert trial.fn is not None
    try:
        returned, after = plain_call.call(trial.fn, trial.inputs, limit_s)
        return ArenaResult("done", returned=(returned,), inputs=after)
    except KeyboardInterrupt:
        raise
    except plain_call.TimeUp:
        return ArenaResult("timeout", failures.unfinished_line(limit_s, 1, (), alone=FUNCTIONS_PROCESS))
    except BaseException as error:  # SystemExit is a failure, too
        failure = failure_of(0, error)

    if failure.not_yet:
        return ArenaResult("not yet", failure.message)
    return ArenaResult("raised", failures.failed_text([failure], 1, alone=FUNCTIONS_PROCESS), failure=failure)


class LaunchArena(Arena):
    """An arena that runs a student's function through `launch`, for at most `timeout_s` seconds a trial.

    TensorFlow gets `tensorflow_s` seconds, because its processes take longer to find each other.
    """

    def __init__(self, timeout_s: float = 8.0, tensorflow_s: float = 20.0, seed: int | None = None) -> None:
        self._timeout_s = timeout_s
        self._tensorflow_s = tensorflow_s
        self.draws = random.Random(secrets.randbits(62) if seed is None else seed)

    @override
    def run(self, trial: Trial) -> ArenaResult:
        if trial.way == "call":
            return called(trial, self._timeout_s)
        if trial.way == "tensorflow":
            return self._in_tensorflow(trial)

        from worldsize.launch import quiet_launch

        n = len(trial.inputs)
        body, args = _over_fabric, (trial.fn, trial.inputs, trial.more, trial.driver, dict(trial.played))
        if trial.way == "group":
            body, args = _over_group, args[:4]
        try:
            run = quiet_launch(body, n, args, trial.link, self._timeout_s, device="cpu")
        except (LaunchError, ValueError) as error:
            return _broke_off(n, self._timeout_s, error)
        return _ended(run)

    def _in_tensorflow(self, trial: Trial) -> ArenaResult:
        from worldsize.tf import quiet_launch

        tasks = trial.tasks
        try:
            run = quiet_launch(
                _in_tensorflow,
                (trial.fn, trial.inputs, trial.more, trial.driver),
                logical_devices=tasks.logical_devices,
                cluster=tasks.cluster,
                servers=tasks.servers,
                legacy_keras=tasks.legacy_keras,
                timeout_s=self._tensorflow_s,
                env={"CUDA_VISIBLE_DEVICES": "-1"},  # hide GPUs: the same devices everywhere
            )
        except (LaunchError, ValueError) as error:
            return _broke_off(len(trial.inputs), self._tensorflow_s, error)

        for result, given in zip(run.results or (), trial.inputs, strict=False):
            if result is not None:
                make_again(result[2], [given, *trial.more])
        return _ended(run)


def _ended(run: Run) -> ArenaResult:
    if run.state == "not yet":
        return ArenaResult("not yet", run.not_yet or "", trace=run.trace)

    returned, after = zip(*((result or (None, None))[:2] for result in run.results), strict=True)
    unwaited = tuple(sorted(rank for rank, how in run.outcome.returned.items() if how.unwaited))
    return ArenaResult("done", returned=returned, inputs=after, trace=run.trace, unwaited=unwaited)


def _broke_off(n: int, limit_s: float, error: LaunchError | ValueError) -> ArenaResult:
    """Return the arena's result of a failed launch. After a deadlock or a timeout, its message says where each rank stood."""
    if isinstance(error, ValueError):  # an argument cannot be sent to the ranks
        return ArenaResult("raised", str(error), trace=Trace(n))

    run = error.run
    outcome = run.outcome if run else None
    if outcome is None:  # the engine was lost
        return ArenaResult("raised", error.message, trace=Trace(n))

    where = failures.render_standings(outcome.standings, run.tasks)
    if outcome.status == "deadlock":
        message = "\n".join([failures.deadlock_line(outcome.waits, outcome.cause), *where])
        return ArenaResult("deadlock", message, trace=run.trace, waits=outcome.waits)

    if outcome.status == "timeout":
        message = "\n".join([failures.unfinished_line(limit_s, n, outcome.standings, run.tasks), *where])
        return ArenaResult("timeout", message, trace=run.trace)

    return ArenaResult("raised", failures.failed_text(outcome.failures, n, run.tasks), trace=run.trace)


def _over_fabric(
    fabric: Any, fn: Callable, inputs: tuple, more: tuple, driver: Callable | None, played: dict
) -> tuple[Any, Any]:
    given, own = inputs[fabric.rank], of_rank(more, fabric.rank)
    if fabric.rank in played:
        return in_rank.over_fabric(fabric, played[fabric.rank], given, own)
    return in_rank.over_fabric(fabric, fn, given, own, driver)


def _over_group(fn: Callable, inputs: tuple, more: tuple, driver: Callable | None) -> tuple[Any, Any]:
    return in_rank.in_group(fn, inputs[int(os.environ["RANK"])], more, driver)


def _in_tensorflow(fn: Callable | None, inputs: tuple, more: tuple, driver: Callable | None) -> tuple[Any, Any, list]:
    """Return, for an arena, a function's value in TensorFlow, its input afterwards, and its calls of the check's callables."""
    noted = NotedCalls()
    given, *rest = noted.instead([inputs[int(os.environ["RANK"])], *more])
    returned, after = in_rank.in_tensorflow(fn, given, rest, driver)
    return returned, after, noted.calls
