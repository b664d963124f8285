"""The arena: the one seam through which a check runs a student's function, wherever that has to happen.

`LaunchArena` runs it through `launch`, as the notebook does. A grader puts its sandbox behind the same four methods,
and a check never knows which. Left out: what is checked (`checks/`).
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from worldsize.arrays import plain, tensors
from worldsize.engines.cluster import Cluster
from worldsize.errors import Deadlock, LaunchError, NotYet, RankFailed, RunTimedOut
from worldsize.links import Link
from worldsize.trace import Trace

PlayedRanks = Mapping[int, Callable]
NOBODY: PlayedRanks = MappingProxyType({})


@dataclass(frozen=True)
class ArenaResult:
    """How a student's function ended on all ranks. Arrays are NumPy's, by rank.

    `state`: "done", "not yet", "raised", "deadlock" or "timeout"; `message` says what happened where it is not "done".
    `returned[r]` is what rank r returned, `inputs[r]` its input array afterwards (a function may work in place).
    """

    state: str
    message: str = ""
    returned: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()
    trace: Trace = field(default_factory=lambda: Trace(0))


class Arena(Protocol):
    draws: random.Random
    """Where a check's random numbers come from, so that a grading can be replayed."""

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        """A plain function, once; its value is `returned[0]`. A callable among `args` is the check's own, and is seen
        by the check whenever `fn` calls it."""

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Link | None = None, played: PlayedRanks = NOBODY
    ) -> ArenaResult:
        """`fn(fabric, inputs[rank], *more)` on `len(inputs)` ranks, with the record of their messages.

        The check plays the ranks in `played`: `played[rank](fabric, inputs[rank], *more)` runs there instead.
        """

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any) -> ArenaResult:
        """`fn(inputs[rank], *more)` on ranks that share a torch.distributed process group over gloo."""

    def tensorflow(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, logical_devices: int = 1, cluster: Cluster | None = None,
        servers: Iterable[str] | None = None, legacy_keras: bool = False, driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        """`fn(inputs[rank], *more)` in a process with TensorFlow, or on each task of a `cluster` (as `worldsize.tf.launch`).

        Arrays arrive as NumPy's. `driver`, a function of a module of checks, is called in the task in place of
        `fn`, and gets it: `driver(fn, inputs[rank], *more)`. A server returns None.
        """


class LaunchArena:
    """Runs a student's function in place, through `launch`, each time limited to `timeout_s`, with TensorFlow to
    `tensorflow_s`: its processes take longer to find each other."""

    def __init__(self, timeout_s: float = 8.0, tensorflow_s: float = 20.0, seed: int | None = None) -> None:
        self._timeout_s, self._tensorflow_s = timeout_s, tensorflow_s
        self.draws = random.Random(secrets.randbits(62) if seed is None else seed)

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        try:
            return ArenaResult("done", returned=(plain(fn(*args)),))
        except NotYet as stub:
            return ArenaResult("not yet", str(stub))
        except Exception as error:
            return ArenaResult("raised", f"{type(error).__name__}: {error}")

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Link | None = None, played: PlayedRanks = NOBODY
    ) -> ArenaResult:
        return self._ranks(_over_fabric, (fn, list(inputs), more, dict(played)), link)

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any) -> ArenaResult:
        return self._ranks(_over_group, (fn, list(inputs), more), None)

    def tensorflow(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, logical_devices: int = 1, cluster: Cluster | None = None,
        servers: Iterable[str] | None = None, legacy_keras: bool = False, driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        from worldsize.tf import quiet_launch

        expect_inputs(inputs, cluster)
        way = {"logical_devices": logical_devices, "cluster": cluster, "servers": servers, "legacy_keras": legacy_keras}
        way["env"] = {"CUDA_VISIBLE_DEVICES": "-1"}  # the same devices everywhere
        args = (fn, list(inputs), more, driver)
        return _ended(len(inputs), lambda: quiet_launch(_in_tensorflow, args, **way, timeout_s=self._tensorflow_s))

    def _ranks(self, body: Callable, args: tuple, link: Link | None) -> ArenaResult:
        from worldsize.launch import quiet_launch

        n = len(args[1])
        return _ended(n, lambda: quiet_launch(body, n, args, link, self._timeout_s, device="cpu"))


def expect_inputs(inputs: Sequence[Any], cluster: Cluster | None) -> None:
    """A check gives its arena one input for each task of a TensorFlow cluster; raises ValueError where it does not.

    Without a cluster there is one process, and so one input.
    """
    n = len(cluster.tasks()) if cluster else 1
    if len(inputs) != n:
        who = f"each task of {cluster}" if cluster else "the one process"
        raise ValueError(f"arena.tensorflow: expected {n} inputs, one for {who}, got {len(inputs)}")


def _ended(n: int, launch: Callable) -> ArenaResult:
    try:
        run = launch()
    except LaunchError as error:
        trace = error.run.trace if error.run else Trace(n)
        return ArenaResult(_STATES.get(type(error), "raised"), _message(error), trace=trace)
    except ValueError as error:  # it cannot travel to the ranks
        return ArenaResult("raised", str(error), trace=Trace(n))
    if run.state == "not yet":
        return ArenaResult("not yet", run.not_yet or "", trace=run.trace)
    returned, after = zip(*(result or (None, None) for result in run.results), strict=True)
    return ArenaResult("done", returned=returned, inputs=after, trace=run.trace)


def _message(error: LaunchError) -> str:
    """What happened, without the hint at the logs of the last run, which a check's run is not."""
    return "\n".join(row for row in str(error).splitlines() if not row.startswith("full logs: "))


_STATES = {Deadlock: "deadlock", RunTimedOut: "timeout", RankFailed: "raised"}


def _over_fabric(fabric: Any, fn: Callable, inputs: list, more: tuple, played: dict) -> tuple[Any, Any]:
    import torch

    x = tensors(inputs[fabric.rank])
    torch.manual_seed(fabric.rank)
    return plain(played.get(fabric.rank, fn)(fabric, x, *more)), plain(x)


def _over_group(fn: Callable, inputs: list, more: tuple) -> tuple[Any, Any]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    x = tensors(inputs[dist.get_rank()])
    return plain(fn(x, *more)), plain(x)


def _in_tensorflow(fn: Callable, inputs: list, more: tuple, driver: Callable | None) -> tuple[Any, Any]:
    x = inputs[int(os.environ["RANK"])]
    returned = driver(fn, x, *more) if driver else fn(x, *more)
    return plain(returned), plain(x)
