"""Which functions, classes and properties of the course's package are no longer what they were when a rank was started.

A submission that replaces them is for a person to look at. It is a hint and no wall: it is found in the submission's own
process, which can put everything back. What earns points is seen elsewhere. Left out: other packages, and plain values.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

_PACKAGE = "worldsize"
_STUDENTS = "__main__"
MOST_NAMES = 5

_before: dict[tuple[str, str], tuple[Any, Any]] = {}


def remember() -> None:
    """Keep how everything is now; a process that is forked later knows it too."""
    _before.clear()
    for place, name, value in _members():
        _before[place, name] = value, _code(value)


def names() -> list[str]:
    """The first few things that were replaced, added to a class, or removed, by their full names."""
    now = {(place, name): value for place, name, value in _members()}
    found = {f"{place}.{name}" for (place, name), value in now.items() if _is_changed(place, name, value)}
    found |= {f"{place}.{name}" for place, name in _before.keys() - now.keys()}
    return sorted(found | set(_shadowed()))[:MOST_NAMES]


def _is_changed(place: str, name: str, value: Any) -> bool:
    if (place, name) in _before:
        kept, code = _before[place, name]
        defined_here = place.startswith(getattr(_function(value), "__module__", "") or place)
        return value is not kept or (defined_here and _code(value) is not code)
    return getattr(_function(value), "__module__", None) == _STUDENTS  # of a module that was imported later


def _members() -> Iterator[tuple[str, str, Any]]:
    """(where, name, value) of the package's functions and classes, and of what those classes are made of."""
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType) or not f"{module.__name__}.".startswith(f"{_PACKAGE}."):
            continue
        for name, value in list(vars(module).items()):
            if not isinstance(value, (FunctionType, type)):
                continue
            yield module.__name__, name, value
            if isinstance(value, type) and value.__module__ == module.__name__:
                for own, member in list(vars(value).items()):
                    if callable(_function(member)):
                        yield f"{module.__name__}.{name}", own, member


def _shadowed() -> Iterator[str]:
    """Methods that an object of the package's hides behind something of its own. Objects of before the fork are not listed."""
    for one in gc.get_objects():
        kind = type(one)
        if not str(getattr(kind, "__module__", "")).startswith(f"{_PACKAGE}."):
            continue
        for name in getattr(one, "__dict__", ()):
            if isinstance(getattr(kind, name, None), FunctionType):
                yield f"{kind.__module__}.{kind.__name__}.{name}"


def _function(value: Any) -> Any:
    """What a property, a static method or a class method is made of."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def _code(value: Any) -> Any:
    return getattr(_function(value), "__code__", None)
