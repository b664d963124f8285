"""What travels to the ranks: the function, its arguments, and every cell variable that it uses.

It is pickled once, by value where it comes from a notebook cell (cloudpickle). What cannot travel is named, with the
remedy; what is large is named; what a rank changed in its own copy is noticed.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

LARGE_BYTES = 50_000_000
# what makes torch import more: its optimizers, a gradient that is handed to `backward`, DDP
_LATE_NAMES = {"backward", "optim", "SGD", "Adam", "AdamW", "DistributedDataParallel", "DDP", "compile", "fully_shard"}
_WATCHED = (list, dict, set)
_MAX_WATCHED_BYTES = 5_000_000


@dataclass(frozen=True)
class Payload:
    fn: Callable
    args: tuple
    kwargs: dict[str, Any]


def first_parameter(fn: Callable) -> str | None:
    """The name of the first parameter of a payload's function.

    One named `fabric` or `task` gets what the launcher has to give.
    """
    try:
        return next(iter(inspect.signature(fn).parameters), None)
    except (TypeError, ValueError):
        return None


def pack(call: Payload) -> bytes:
    """Pickle the payload that travels to the ranks, a function with its arguments, and return its bytes.

    Raises ValueError that names what cannot be pickled and says what to do.
    """
    try:
        return cloudpickle.dumps((call.fn, call.args, call.kwargs))
    except Exception as error:
        raise ValueError(_unpicklable(call, error)) from None


def unpack(data: bytes) -> Payload:
    return Payload(*pickle.loads(data))


def captured(fn: Callable) -> dict[str, Any]:
    """The outside variables that a payload's function takes along: its closure and the globals that it names.

    For a function of a notebook's cell.
    """
    fn = inspect.unwrap(fn) if callable(fn) else fn
    code = getattr(fn, "__code__", None)
    if code is None:
        return {}

    found = {}
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet

    for name in _global_names(code):
        if name in fn.__globals__:
            found.setdefault(name, fn.__globals__[name])
    return found


def _global_names(code: Any) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if inspect.iscode(constant):
            names |= _global_names(constant)
    return names


def reachable(fn: Callable) -> dict[str, Any]:
    """Every variable that a payload's function takes along, also through functions that it captured itself.

    `captured`, and what the captured functions of the same module capture in turn.
    """
    module = getattr(fn, "__module__", None)
    found: dict[str, Any] = {}
    todo = [fn]
    while todo:
        for name, value in captured(todo.pop()).items():
            if name in found:
                continue

            found[name] = value
            if inspect.isfunction(value) and value.__module__ == module:
                todo.append(value)
    return found


def wants_late_imports(call: Payload) -> bool:
    """Whether a payload seems to use what torch imports late: its function, or one among its arguments.

    Where this is wrong, only time is lost.
    """
    given = [call.fn, *filter(inspect.isfunction, [*call.args, *call.kwargs.values()])]
    functions = [*given, *filter(inspect.isfunction, (value for fn in given for value in reachable(fn).values()))]
    codes = [getattr(inspect.unwrap(function), "__code__", None) for function in functions]
    return any(_global_names(code) & _LATE_NAMES for code in codes if code is not None)


def sizes(call: Payload) -> list[tuple[str, int]]:
    """(name, bytes) of everything that travels to the ranks in a payload, largest first."""
    found = []
    for name, value in _named(call).items():
        if inspect.ismodule(value):
            continue
        try:
            found.append((name, len(cloudpickle.dumps(value))))
        except Exception:
            continue
    return sorted(found, key=lambda row: -row[1])


def _named(call: Payload) -> dict[str, Any]:
    """All that travels by name, with what a function among the arguments takes along."""
    named = {f"args[{place}]": value for place, value in enumerate(call.args)} | call.kwargs
    for function in [call.fn, *filter(inspect.isfunction, named.values())]:
        named = {**reachable(function), **named}
    return named


def _unpicklable(call: Payload, error: Exception) -> str:
    culprit = _culprit(_named(call))
    if culprit is None:
        what, reason = f"`{getattr(call.fn, '__name__', call.fn)}`", error
    else:
        name, value, reason = culprit
        what = f"`{name}` (a {type(value).__module__}.{type(value).__qualname__})".replace("builtins.", "")

    said = str(reason).splitlines()[0] if str(reason) else ""
    return (
        f"launch: {what} cannot travel to the ranks, which are other processes: expected something that can be "
        f"pickled, got {type(reason).__name__}: {said}. "
        f"Make it inside the function, or pass the plain data it is made from."
    )


def _culprit(named: dict[str, Any]) -> tuple[str, Any, Exception] | None:
    """The first name that cannot travel; a function that only carries a culprit comes last."""
    for name, value in sorted(named.items(), key=lambda row: inspect.isfunction(row[1])):
        if inspect.ismodule(value):
            continue
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            return name, value, error
    return None


def fingerprint(fn: Callable) -> dict[str, bytes]:
    """A digest of every list, dict and set that a payload's function captured.

    To notice a change in the rank's own copy.
    """
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
