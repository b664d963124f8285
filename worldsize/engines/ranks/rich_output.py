"""Rich output of a rank: pictures and tables, as MIME bundles with their position in its log.

Each bundle is a line of JSON in a file of the run, so that the notebook can show it between the lines printed before and
after. A value without a bundle, or with a bundle that is too large, is printed as text. `live/output_by_rank.py` renders
bundles; scripts in a bundle do not run.
"""

import base64
import io
import json
import sys
from contextlib import suppress
from typing import Any

from worldsize.engines.job import RunFiles

MOST_BYTES = 2_000_000  # of one bundle
TYPES = ("text/html", "text/markdown", "text/latex", "image/svg+xml", "image/png", "image/jpeg")
_METHODS = {
    "text/html": "_repr_html_", "text/markdown": "_repr_markdown_", "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_", "image/png": "_repr_png_", "image/jpeg": "_repr_jpeg_",
}  # fmt: skip


class RichOutput:
    """The bundles of one order or launch, in a file beside the log to which the rank prints."""

    def __init__(self, files: RunFiles, rank: int) -> None:
        self._files, self._rank = files, rank

    def display(self, *values: Any) -> None:
        """Show, as rich output, values as a notebook does, with pictures and tables."""
        for value in values:
            self.show(value)

    def show(self, value: Any) -> None:
        """Show a rank's value as a notebook does: its bundle if it has one, else its text."""
        forms = bundle(value)
        if not forms or sum(map(len, forms.values())) > MOST_BYTES:
            print(_text(value))
            if forms:
                print(f"(not shown: the picture or table is larger than {MOST_BYTES / 1e6:g} MB)")
            return

        sys.stdout.flush()
        row = {"at": self._files.of(self._rank, "log").stat().st_size, "data": forms}
        with open(self._files.of(self._rank, "shown"), "a") as file:
            file.write(json.dumps(row) + "\n")

    def show_figures(self) -> None:
        """Show as rich output the figures that pyplot has open, each once, at the end of a cell, and close them."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        for number in pyplot.get_fignums():
            self.show(pyplot.figure(number))
        pyplot.close("all")


def bundle(value: Any) -> dict[str, str]:
    """Return a value's rich output, its representations by MIME type, images in base64; {} if it has only text."""
    forms: dict[str, str] = {}
    if isinstance(value, type):
        return forms

    if type(value).__module__.startswith("matplotlib.") and hasattr(value, "savefig"):  # a figure
        image = io.BytesIO()
        value.savefig(image, format="png", bbox_inches="tight")
        forms["image/png"] = base64.b64encode(image.getvalue()).decode()
        if sys.modules.get("matplotlib.pyplot"):
            sys.modules["matplotlib.pyplot"].close(value)
    else:
        _ask(value, forms)

    if forms:
        forms["text/plain"] = _text(value)
    return forms


def _ask(value: Any, forms: dict[str, str]) -> None:
    """Ask a value for its rich bundle, then for each type that this lacks; as in a notebook, what fails is left out."""
    whole = getattr(value, "_repr_mimebundle_", None)
    if callable(whole):
        with suppress(Exception):
            made = whole(include=None, exclude=None)
            faces = made[0] if isinstance(made, tuple) else made
            for kind in TYPES:
                if kind in faces:
                    forms[kind] = _as_text(faces[kind])

    for kind, name in _METHODS.items():
        if kind in forms:
            continue

        method = getattr(value, name, None)
        if not callable(method):
            continue
        with suppress(Exception):
            face = method()
            if face is not None:
                forms[kind] = _as_text(face[0] if isinstance(face, tuple) else face)


def _as_text(face: str | bytes) -> str:
    return base64.b64encode(face).decode() if isinstance(face, bytes) else str(face)


def _text(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}: its repr() raised {type(error).__name__}: {error}>"
