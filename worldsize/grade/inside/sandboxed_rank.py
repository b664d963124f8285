"""A rank of a submission, isolated: its cells in order, its function, and the result.

All of this runs in the submission's own process, so the grader trusts none of it: the broker keeps the record and
checks every frame. torch is imported only where a mode needs it, since TensorFlow's server has none.
"""

import builtins
import importlib
import linecache
import os
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from worldsize.arrays import plain, tensors
from worldsize.cells import compile_cell, run_cell
from worldsize.checks import in_rank
from worldsize.engines.ranks.rank_failure import failure_of, message_of
from worldsize.grade.frames import JobMode, decode, encode
from worldsize.grade.inside import changed_objects
from worldsize.grade.inside.broker_channel import BrokerChannel

_MOST_FRAMES = 12
_DRIVERS = "worldsize.checks.drivers."
_compile = cache(compile_cell)  # all ranks of a played case run the same cells


def serve(channel: BrokerChannel, addresses: Sequence[str] = ()) -> NoReturn:
    """Take, as sandboxed rank, one job from the grader, do it, report how it ended, and exit. Never returns.

    `addresses` has one entry per rank if ranks share a sandbox.
    """
    try:
        job, blob = channel.read()
        job["addresses"] = addresses
        # a look at every object of the package copies 10 MB of pages that ranks share: one rank of a run looks
        look = changed_objects.names if job["looks"] else list
        tell_end(channel, job["rank"], lambda: _do(channel, job, blob), look)
        if addresses:
            threading.Event().wait()  # another rank may still need this one; the grader ends them together
    finally:
        os._exit(0)


def tell_end(
    channel: BrokerChannel, rank: int, work: Callable[[], dict[str, Any]], changed: Callable[[], list[str]] = list
) -> None:
    """Do a rank's `work`; report its values by name or its failure, and the objects `changed`."""
    try:
        blob = bytearray()
        told = {name: encode(value, blob) for name, value in work().items()}
        channel.tell({"op": "done", **told, "changed": changed()}, blob)
    except BaseException as error:
        failure = failure_of(rank, error)
        frames = [[frame.file, frame.line, frame.function, frame.text] for frame in failure.frames[:_MOST_FRAMES]]
        channel.tell({"op": "failed", **asdict(failure), "frames": frames, "changed": changed()})


def _do(channel: BrokerChannel, job: dict, blob: bytes) -> dict[str, Any]:
    mode: JobMode = job["mode"]
    seed = seed_rank(job["seed"], job["run"], job["rank"])
    if mode == "tensorflow":
        from worldsize.grade.inside import tensorflow_task

        if tensorflow_task.prepare(job, seed):
            return {"returned": None, "input": None}

    if mode == "cells":
        _, errors = run_cells(job["cells"], channel)
        return {"errors": errors}
    if mode == "play":
        from worldsize.grade.inside import played_case

        return played_case.play_job(job, blob)

    module, errors = run_cells(job["cells"])

    def callable_of(what: Any) -> Any:
        if isinstance(what, int):
            return _theirs(channel, what)
        return function_of(vars(module), what, errors)

    function, *args = decode(job["args"], blob, callable_of)
    if mode == "call":
        return {"returned": plain(function(*args)), "input": plain(args)}
    if mode == "ranks":
        return play_rank(channel, job["rank"], job["world_size"], function, args, driver_of(job))

    given, *more = args
    if mode == "tensorflow":
        returned, after = in_rank.in_tensorflow(function, given, more, driver_of(job))
    else:
        host, _, port = job["addresses"][0].partition(":")
        rank = str(job["rank"])
        os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(job["world_size"]))
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
        returned, after = in_rank.in_group(function, given, more, driver_of(job))
    return {"returned": returned, "input": after}


def play_rank(
    channel: BrokerChannel, rank: int, world_size: int, function: Callable, args: list, driver: Callable | None = None
) -> dict[str, Any]:
    """Run a rank over the broker's fabric, whether a submission's or the check's, and return its report."""
    from worldsize.fabric.interface import Fabric
    from worldsize.grade.inside.broker_wire import BrokerWire

    given, *more = args
    fabric = Fabric(BrokerWire(channel, rank, world_size))
    returned, after = in_rank.over_fabric(fabric, function, given, more, driver)
    return {"returned": returned, "input": after}


def driver_of(job: dict) -> Callable | None:
    """Return the check's function that a rank calls in place of the submission's, which becomes its argument.

    A driver's results deserve no more trust than the submission's: both run in one process. Raises ValueError for other
    modules.
    """
    if not job["driver"]:
        return None

    module, _, name = job["driver"].partition(":")
    if not module.startswith(_DRIVERS):
        raise ValueError(f"a driver lives in a module of {_DRIVERS}…, got {job['driver']}")
    return getattr(importlib.import_module(module), name)


def seed_rank(*numbers: int) -> int:
    """Seed Python, NumPy and torch for this rank and run, alike in a replay; return a seed for a framework."""
    message = np.random.SeedSequence(numbers).generate_state(3)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(int(message[0]))  # seeding all devices takes a millisecond
    np.random.seed(message[1])  # noqa: NPY002 - students' code draws from the global generator
    random.seed(int(message[2]))
    return int(message[0])


def warm(framework: str) -> None:
    """Do, in the server and before ranks are forked, what is slow the first time: seeding, tensors, cells."""
    seed_rank(0)
    if framework != "torch":  # TensorFlow's runtime must not start before the fork
        run_cells([["warm", "import numpy"]])
        return

    import torch

    x = tensors(np.arange(4.0, dtype="float32"))
    x += torch.empty_like(x).copy_(x[:].clone())
    decode(encode(plain(x), blob := bytearray()), bytes(blob))
    run_cells([["warm", "import torch\nx = torch.zeros(2).tensor_split(2)"]])


def run_cells(cells: list[list[str]], channel: BrokerChannel | None = None) -> tuple[ModuleType, dict[str, str]]:
    """Run in the rank a submission's cells, [[title, source], …], in order; return the module that they make, and errors.

    `errors[title]` is a failed cell's error. A third entry, UNSEEN, keeps a reference's lines from `linecache`.
    """
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    errors: dict[str, str] = {}

    for number, (title, source, *unseen) in enumerate(cells):
        if channel is not None:
            channel.tell({"op": "cell", "number": number})

        file = f"<{title}>"
        lines = [] if unseen else source.splitlines(True)
        linecache.cache[file] = (len(source), None, lines, file)
        try:
            run_cell(_compile(source, file), vars(module))
        except BaseException as error:  # even a cell that exits costs only its own names
            errors[title] = f"{type(error).__name__}: {message_of(error)}"
    return module, errors


def function_of(namespace: dict, name: Any, errors: dict[str, str]) -> Callable:
    """Return, in a sandboxed rank, a function of the submission by name. Raises NameError, which names the cells that failed."""
    value = namespace.get(name)
    if callable(value):
        return value

    failures = "; ".join(f"{title} raised {message}" for title, message in errors.items())
    got = "nothing" if value is None else f"a {type(value).__name__}"
    raise NameError(f"expected a function `{name}`, got {got}. {failures}".rstrip(". "))


def _theirs(channel: BrokerChannel, number: int) -> Callable:
    """Return the rank's stand-in for a callable of the check: each call goes to the grader, and its value comes back."""

    def call(*args: Any) -> Any:
        blob = bytearray()
        values = encode([plain(a) for a in args], blob)
        answer, data = channel.ask({"op": "call", "number": number, "args": values}, blob)

        if "error" in answer:
            name, message = answer["error"]
            kind = getattr(builtins, name, None)
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                kind = RuntimeError
            raise kind(message)
        return decode(answer["value"], data)

    call.__qualname__ = call.__name__  # as in the notebook
    return call


def silence_output() -> None:
    """Redirect a rank's input, output and errors to /dev/null, since a submission may print any amount."""
    nowhere = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def is_only_thread() -> bool:
    """Return whether this is the sandboxed rank's only thread, so that no other thread can still send."""
    return threading.active_count() == 1
