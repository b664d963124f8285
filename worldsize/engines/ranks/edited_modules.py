"""Modules of the user's own whose files change after their import, in the notebook and in ranks that stay.

A fresh process imports the file as it is; a process that stays keeps what it has imported. Modules of libraries are left out.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from worldsize.failures import is_librarys_file


@dataclass(frozen=True)
class _Import:
    """A module's import: its spec, which a reload replaces, and its file's state."""

    spec: Any
    path: str
    state: tuple[int, int]


@dataclass
class EditedModules:
    """The imports of one process. `note` often: an edit before the first `note` after an import is not noticed."""

    _imports: dict[str, _Import] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _read: tuple[int, ModuleType | None] = (0, None)  # number of entries and last one of `sys.modules` when it was read
    _before: ModuleType | None = None  # it and what stands before it there are not looked at

    @classmethod
    def since_now(cls) -> EditedModules:
        """Return the imports from now on. To look at earlier ones in a fork server's child would copy their pages of memory."""
        return cls(_before=next(reversed(sys.modules.values())))

    def note(self) -> None:
        """Note the state of the files of the user's modules imported since the last call."""
        read = len(sys.modules), next(reversed(sys.modules.values()))
        if read == self._read:
            return
        later: dict[str, ModuleType] = {}
        try:
            for name, module in reversed(sys.modules.items()):
                if self._before is not None and module is self._before:
                    break
                later[name] = module
        except RuntimeError:  # another thread imports: next time
            return
        for name in later.keys() - self._seen:
            self._note(name, later[name])
        self._seen, self._read = set(later), read

    def _note(self, name: str, module: ModuleType | None) -> None:
        spec, path = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        if spec is None or not isinstance(path, str) or not path.endswith(".py") or is_librarys_file(path):
            return
        with suppress(OSError):
            self._imports[name] = _Import(spec, path, _state(path))

    def edited(self) -> list[str]:
        """Return the modules whose files have changed since they were imported or last returned here, without reloaded ones."""
        names = []
        for name, known in list(self._imports.items()):
            module = sys.modules.get(name)
            try:
                state = _state(known.path)
            except OSError:
                continue  # removed, perhaps about to be written anew
            if module is None or state == known.state:
                continue
            if module.__spec__ is known.spec:
                names.append(name)
            self._note(name, module)
        return sorted(names)

    def reload_edited(self) -> list[str]:
        """Reload the edited modules, and return a sentence on each. Objects imported from them change as under `%autoreload`."""
        sentences = []
        for name in self.edited():
            try:
                _reload(sys.modules[name])
                sentences.append(f"reloaded {name}, which was edited")
            except Exception as error:
                sentences.append(f"{name} was edited, but cannot be reloaded: {type(error).__name__}: {error}")
            self._note(name, sys.modules.get(name))
        return sentences


def _state(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _reload(module: ModuleType) -> None:
    importlib.invalidate_caches()
    try:
        from IPython.extensions.autoreload import superreload
    except ImportError:
        importlib.reload(module)
    else:
        superreload(module)
