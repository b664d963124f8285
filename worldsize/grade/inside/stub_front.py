"""Stubs of `worldsize.notebook` and `worldsize.tf` in a sandbox: the same names, but nothing starts, draws or keeps.

Set-up cells import the front; grading needs its data and its errors, not its agent and widgets. The names are read from
each module's own `__all__`, without importing it.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import worldsize
from worldsize.engines.cluster_spec import Cluster, Task

_REAL = ("errors", "failures", "links", "report")  # modules whose names are plain data


class Stub:
    """An object that takes every attribute and every call, in place of a picture, a lab or a launch."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Stub:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Stub:
        return self

    def __iter__(self) -> Any:
        return iter((self, self))  # for `lab, check = open_lab("06")`

    def __bool__(self) -> bool:
        return False


def names(file: str = "notebook.py") -> list[str]:
    """Return the names that a stub of the front provides: the `__all__` of the module in this file of the package."""
    tree = ast.parse((_package() / file).read_text(encoding="utf-8"))
    lists = [n.value for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__"]
    return ast.literal_eval(lists[0])


def _package() -> Path:
    return Path(find_spec("worldsize").origin).parent


def install() -> None:
    """Put the stubs in place of the notebook's front and TensorFlow's launch.

    From now on, `from worldsize.notebook import *` and `from worldsize.tf import …` give the stubs.
    """
    package: Any = worldsize  # whose submodules are set here
    known: dict[str, Any] = {"data": import_module("worldsize.data")}
    for name in _REAL:
        known.update(vars(import_module(f"worldsize.{name}")))

    front: Any = ModuleType("worldsize.notebook")
    front.__all__ = names()
    for name in front.__all__:
        setattr(front, name, known.get(name, Stub()))

    tensorflow: Any = ModuleType("worldsize.tf")
    tensorflow.__path__ = [str(_package() / "tf")]  # its other modules are real
    sys.modules["worldsize.tf"] = package.tf = tensorflow
    known = {"Cluster": Cluster, "Task": Task, "first_words": import_module("worldsize.tf.errors").first_words}
    tensorflow.__all__ = names("tf/__init__.py")
    for name in tensorflow.__all__:
        setattr(tensorflow, name, known.get(name, Stub()))

    sys.modules["worldsize.notebook"] = package.notebook = front
