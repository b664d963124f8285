"""IPython's `display` in a rank: it shows as the rank's own `display` does, also under `plt.show()`.

Outside of a shell IPython prints the text of what it should display. A rank does not import IPython itself: that costs half
a second. Therefore its function is replaced when a cell or function imports it.
"""

import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from typing_extensions import override

_HOMES = ("IPython.core.display_functions", "IPython.core.display")  # the second in IPython 7


def show_by(show: Callable[..., None]) -> None:
    """Let IPython's `display` call `show` with the values."""
    for home in _HOMES:
        if "display" in vars(sys.modules.get(home, sys)):
            _replace(sys.modules[home], show)
            return
    sys.meta_path.insert(0, _AtImport(show))


class _AtImport:
    """A finder that replaces IPython's `display` when its module is imported."""

    def __init__(self, show: Callable[..., None]) -> None:
        self._show = show

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _HOMES:
            return None

        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_replace(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path and "display" in vars(module):
                    sys.meta_path.remove(self)
                    _replace(module, self._show)

            spec.loader.exec_module = execute_and_replace
        return spec


def _replace(module: ModuleType, show: Callable[..., None]) -> None:
    def display(*values: Any, raw: bool = False, display_id: Any = None, **_: Any) -> Any:
        """Show values, from a rank, as the notebook's `display`. Updates of what was shown are shown again."""
        show(*map(_Bundle, values) if raw else values)
        if display_id:
            return module.DisplayHandle(None if display_id is True else display_id)
        return None

    module.display = display  # type: ignore[attr-defined]  # a module made here has no such name yet


class _Bundle:
    """A value to display that is given as its representations by MIME type."""

    def __init__(self, faces: dict[str, Any]) -> None:
        self._faces = faces

    @override
    def __repr__(self) -> str:
        return str(self._faces.get("text/plain", "")).rstrip("\n")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self._faces
