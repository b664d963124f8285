"""Find functions, classes and properties of this package that changed since a rank was started.

The result is a hint for a person, and never decides points: it is found in the submission's own process, which can put
everything back.
"""

import gc
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PACKAGE = "worldsize"
_STUDENTS = "__main__"
MOST_NAMES = 5

_before: dict[tuple[str, str], tuple[Any, Any]] = {}


def remember() -> None:
    """Keep the present state of the package's objects; a process that is forked later inherits the record."""
    _before.clear()
    for place, name, value in _members():
        _before[place, name] = value, _code(value)


def accept(old: CodeType, new: CodeType) -> None:
    """Take `new` for what was remembered as `old`, of which nothing is kept: this package itself has replaced it."""
    for key, (value, code) in _before.items():
        if code is old:
            _before[key] = value, new


def names() -> list[str]:
    """Return the full names of the first few changed objects: replaced, added to a class, or removed."""
    removed = set(_before)
    full_names = set(_shadowed())
    for place, name, value in _members():
        home = getattr(_function(value), "__module__", None)
        if (place, name) not in _before:
            changed = home == _STUDENTS  # a new name counts only if it is the student's
        else:
            kept, code = _before[place, name]
            defined_here = place.startswith(home or place)
            changed = value is not kept or (defined_here and _code(value) is not code)

        removed.discard((place, name))
        if changed:
            full_names.add(f"{place}.{name}")

    full_names |= {f"{place}.{name}" for place, name in removed}
    return sorted(full_names)[:MOST_NAMES]


def _members() -> Iterator[tuple[str, str, Any]]:
    """Yield (where, name, value) of objects that may change: the package's functions and classes, and those classes' members."""
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
    """Yield methods that an object of the package hides behind an attribute of its own.

    Objects from before the fork are not listed: the server has frozen them.
    """
    for instance in gc.get_objects():
        kind = type(instance)
        if not str(getattr(kind, "__module__", "")).startswith(f"{_PACKAGE}."):
            continue

        for name in getattr(instance, "__dict__", ()):
            if isinstance(getattr(kind, name, None), FunctionType):
                yield f"{kind.__module__}.{kind.__name__}.{name}"


def _function(value: Any) -> Any:
    """Return the function to compare inside a property, a static method or a class method."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def _code(value: Any) -> Any:
    return getattr(_function(value), "__code__", None)
