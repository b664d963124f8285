"""The payload of a launch: the function, its arguments, and every variable of a notebook cell that it uses.

The payload is pickled once; code from a notebook cell by value (cloudpickle). Errors name the object that cannot be
pickled, a note names large ones, and changes to a rank's own copy are noticed.
"""

import dis
import hashlib
import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

import cloudpickle

from worldsize.engines.ranks import pickles

LARGE_BYTES = 50_000_000
# in a class body a global is read by name, since a local of the body would come first
_READS_IN_A_CLASS = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
# names whose use makes torch import more modules: optimizers, `backward` with a gradient, DDP
_LATE_NAMES = {"backward", "optim", "SGD", "Adam", "AdamW", "DistributedDataParallel", "DDP", "compile", "fully_shard"}
_WATCHED = (list, dict, set)
_MAX_WATCHED_BYTES = 5_000_000  # larger variables are not watched: each is pickled before and after the function


def _with_class_bodies(global_names: Callable[[CodeType], Iterator[str]]) -> Callable[[CodeType], Iterator[str]]:
    """Return cloudpickle's search for the globals of a function, which also finds those that only a nested class's body reads.

    Such are a method's decorator (`@torch.no_grad()`) and a default value. cloudpickle 3.1.2 leaves them out.
    """

    def names(code: CodeType) -> Iterator[str]:
        yield from global_names(code)
        if code.co_flags & inspect.CO_OPTIMIZED:
            return  # a function's body, not a class's
        own = {"__name__"}
        for instruction in dis.get_instructions(code):
            if instruction.opname == "STORE_NAME":
                own.add(instruction.argval)
            elif instruction.opname in _READS_IN_A_CLASS and instruction.argval not in own:
                yield instruction.argval

    return names


cloudpickle.cloudpickle._walk_global_ops = _with_class_bodies(cloudpickle.cloudpickle._walk_global_ops)


@dataclass(frozen=True)
class Payload:
    fn: Callable
    args: tuple
    kwargs: dict[str, Any]


def first_parameter(fn: Callable) -> str | None:
    """Return the name of the first parameter of a payload's function; None if it has none or cannot be inspected.

    A parameter named `fabric` or `task` gets the launcher's object.
    """
    try:
        return next(iter(inspect.signature(fn).parameters), None)
    except (TypeError, ValueError):
        return None


def with_rank(call: Payload, rank: int, world_size: int) -> tuple:
    """Return a payload's arguments, preceded by this rank and the number of ranks if the function lacks these: `train(rank)` and
    `train(rank, world_size)` are called as `torch.multiprocessing.spawn` would call them.
    """
    try:
        signature = inspect.signature(call.fn)
    except (TypeError, ValueError):
        return call.args

    names = tuple(signature.parameters)
    before: tuple[tuple[str, int], ...] = (("rank", rank), ("world_size", world_size))
    for more in range(len(before) + 1):
        if names[:more] != tuple(name for name, _ in before[:more]):
            break
        args = (*(value for _, value in before[:more]), *call.args)
        with suppress(TypeError):
            signature.bind(*args, **call.kwargs)
            return args
    return call.args


def pack(call: Payload) -> bytes:
    """Pickle the payload, and return its bytes.

    Raises ValueError that names the object that cannot be pickled, with a remedy.
    """
    try:
        return pickles.dumps((call.fn, call.args, call.kwargs))
    except Exception as error:
        raise ValueError(_unpicklable(call, error)) from None


def unpack(data: bytes) -> Payload:
    return Payload(*pickle.loads(data))


def captured(fn: Callable) -> dict[str, Any]:
    """Return the outside variables of a notebook cell's function: its closure, and the globals that it names."""
    fn = inspect.unwrap(fn) if callable(fn) else fn
    code = getattr(fn, "__code__", None)
    if code is None:
        return {}

    values = {}
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet

    for name in _global_names(code):
        if name in fn.__globals__:
            values.setdefault(name, fn.__globals__[name])
    return values


def _global_names(code: Any) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if inspect.iscode(constant):
            names |= _global_names(constant)
    return names


def reachable(fn: Callable) -> dict[str, Any]:
    """Return every variable that a payload's function takes along, by name: `captured` of the function, and recursively
    of captured functions of the same module.
    """
    module = getattr(fn, "__module__", None)
    functions: dict[str, Any] = {}
    todo = [fn]
    while todo:
        for name, value in captured(todo.pop()).items():
            if name in functions:
                continue

            functions[name] = value
            if inspect.isfunction(value) and value.__module__ == module:
                todo.append(value)
    return functions


def wants_late_imports(call: Payload) -> bool:
    """Return whether a payload's function, or a function among its arguments, seems to use torch's late imports.

    A wrong guess costs only time.
    """
    given = [call.fn, *filter(inspect.isfunction, [*call.args, *call.kwargs.values()])]
    functions = list(given)
    for fn in given:
        functions += filter(inspect.isfunction, reachable(fn).values())

    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None and _global_names(code) & _LATE_NAMES:
            return True
    return False


def sizes(call: Payload) -> list[tuple[str, int]]:
    """Return (name, bytes) of everything in a payload, largest first."""
    rows = []
    for name, value in _named(call).items():
        if inspect.ismodule(value):
            continue

        try:
            rows.append((name, len(pickles.dumps(value))))
        except Exception:
            continue
    return sorted(rows, key=lambda row: -row[1])


def _named(call: Payload) -> dict[str, Any]:
    """Return a launch's payload by the names of its contents, with the variables that its functions take along."""
    named = {f"args[{place}]": value for place, value in enumerate(call.args)} | call.kwargs
    for function in [call.fn, *filter(inspect.isfunction, named.values())]:
        named = {**reachable(function), **named}
    return named


def _unpicklable(call: Payload, error: Exception) -> str:
    # functions come last: they may only carry the culprit
    for name, value in sorted(_named(call).items(), key=lambda row: inspect.isfunction(row[1])):
        if inspect.ismodule(value):
            continue
        try:
            pickles.dumps(value)
        except Exception as raised:
            reason = raised
            what = f"`{name}` (a {type(value).__module__}.{type(value).__qualname__})".replace("builtins.", "")
            break
    else:
        what, reason = f"`{getattr(call.fn, '__name__', call.fn)}`", error

    said = str(reason).splitlines()[0] if str(reason) else ""
    return (
        f"launch: {what} cannot be sent to the ranks, which are separate processes: expected a value that can be "
        f"pickled, got {type(reason).__name__}: {said}. "
        f"Create it inside the function, or pass the plain data that it is made from."
    )


def fingerprint(fn: Callable) -> dict[str, bytes]:
    """Return a digest of every list, dict and set that a payload's function captured, to detect changes in a rank's copy."""
    marks = {}
    for name, value in reachable(fn).items():
        if not isinstance(value, _WATCHED):
            continue

        try:
            data = pickle.dumps(value)
        except Exception:
            continue
        if len(data) <= _MAX_WATCHED_BYTES:
            marks[name] = hashlib.blake2b(data).digest()
    return marks
