"""The arena: the one seam through which a check runs a student's function, wherever that has to happen.

`LaunchArena` runs it through `launch`, as the notebook does. A grader puts its sandbox behind the same three methods,
and a check never knows which. Left out: what is checked (`checks/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from worldsize.failures import Deadlock, LaunchError, NotYet, RankFailed, RunTimedOut
from worldsize.links import Link
from worldsize.trace import Trace

Played = Mapping[int, Callable]
NOBODY: Played = MappingProxyType({})


@dataclass(frozen=True)
class Ended:
    """How a student's function ended on all ranks. Arrays are NumPy's, by rank.

    `state`: "done", "not yet", "raised", "deadlock" or "timeout"; `words` says what happened where it is not "done".
    `returned[r]` is what rank r returned, `inputs[r]` its input array afterwards (a function may work in place).
    """

    state: str
    words: str = ""
    returned: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()
    trace: Trace = field(default_factory=lambda: Trace(0))


class Arena(Protocol):
    def call(self, fn: Callable, *args: Any) -> Ended:
        """A plain function, once; its value is `returned[0]`. A callable among `args` is the check's own, and is seen
        by the check whenever `fn` calls it."""

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Link | None = None, played: Played = NOBODY
    ) -> Ended:
        """`fn(fabric, inputs[rank], *more)` on `len(inputs)` ranks, with the record of their messages.

        The check plays the ranks in `played`: `played[rank](fabric, inputs[rank], *more)` runs there instead.
        """

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any) -> Ended:
        """`fn(inputs[rank], *more)` on ranks that share a torch.distributed process group over gloo."""


class LaunchArena:
    """Runs a student's function in place, through `launch`, each time limited to `timeout_s`."""

    def __init__(self, timeout_s: float = 8.0) -> None:
        self._timeout_s = timeout_s

    def call(self, fn: Callable, *args: Any) -> Ended:
        try:
            return Ended("done", returned=(plain(fn(*args)),))
        except NotYet as stub:
            return Ended("not yet", str(stub))
        except Exception as error:
            return Ended("raised", f"{type(error).__name__}: {error}")

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Link | None = None, played: Played = NOBODY
    ) -> Ended:
        return self._launch(_over_fabric, (fn, list(inputs), more, dict(played)), link)

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any) -> Ended:
        return self._launch(_over_group, (fn, list(inputs), more), None)

    def _launch(self, body: Callable, args: tuple, link: Link | None) -> Ended:
        from worldsize.launch import quiet_launch

        _, inputs, *_ = args
        try:
            run = quiet_launch(body, len(inputs), args, link, self._timeout_s, device="cpu")
        except LaunchError as error:
            trace = error.run.trace if error.run else Trace(len(inputs))
            return Ended(_STATES.get(type(error), "raised"), _words(error), trace=trace)
        except ValueError as error:  # it cannot travel to the ranks
            return Ended("raised", str(error), trace=Trace(len(inputs)))
        if run.state == "not yet":
            return Ended("not yet", run.not_yet or "", trace=run.trace)
        returned, after = zip(*run.results, strict=True)
        return Ended("done", returned=returned, inputs=after, trace=run.trace)


def _words(error: LaunchError) -> str:
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


def tensors(value: Any) -> Any:
    """NumPy arrays as tensors of their own memory, inside lists and dicts too."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, (list, tuple)):
        return type(value)(tensors(v) for v in value)
    if isinstance(value, dict):
        return {k: tensors(v) for k, v in value.items()}
    return value


def plain(value: Any) -> Any:
    """Tensors as NumPy arrays, inside lists, tuples and dicts; numbers, text and None as they are; else its type."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, (list, tuple)):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, slice):
        return (value.start, value.stop)
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray, np.generic)):
        return value
    return f"<{type(value).__name__}>"
