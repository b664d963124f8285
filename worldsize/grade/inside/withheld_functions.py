"""Withhold functions of the package that answer an exercise from a submission's process, before it reads the submission.

A function of an imported module stays, with every reference to it, but its code is replaced by code that raises an error.
`namespaces.cover` empties the module's files, so it cannot be read, nor imported later. `outside.withheld` has the list.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import CodeType
from typing import Any, NoReturn

from worldsize.grade.inside import changed_objects

_MESSAGE = "withheld"


def withhold(withheld: Mapping[str, Sequence[str]]) -> None:
    """Let the functions {module: names} raise an error from now on, in this process and those that it forks.

    Modules that are not imported are left out.
    """
    for module, names in withheld.items():
        for name in names if module in sys.modules else ():
            function: Any = inspect.unwrap(attrgetter(name)(sys.modules[module]))
            old, function.__code__ = function.__code__, _raising(f"{module}.{name}")
            changed_objects.accept(old, function.__code__)


def _raising(name: str) -> CodeType:
    """Return the code, for a withheld function, that takes anything and says that this one is not available."""
    text = f"{name} is not available in graded runs: it answers an exercise, so write it yourself"
    code = _raise.__code__
    return code.replace(co_consts=tuple(text if one == _MESSAGE else one for one in code.co_consts))


def _raise(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("withheld")  # _MESSAGE
