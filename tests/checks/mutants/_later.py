"""A module that is imported when it is first used: the tests' own process has no need of TensorFlow."""

from importlib import import_module
from typing import Any


class Later:
    """`tf = Later("tensorflow")`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
