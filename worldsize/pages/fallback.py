"""A widget with a fallback, which a reader sees once no kernel answers for the widget.

JupyterLab writes "Error displaying widget: model not found" in place of such a widget and never shows the other forms of the same
output. So the widget is one output and the fallback the next; a style rule shows one of the two. Where widgets cannot be shown at
all (GitHub, nbconvert, an untrusted notebook), only the fallback is visible.
"""

from typing import Any

# JupyterLab gives an output itself the widgets' class if it failed, and a child of the output if it did not.
STYLE = (
    "<style>"
    ".jp-OutputArea-child:has(> .jp-OutputArea-output > .jupyter-widgets) + .jp-OutputArea-child:has(.ws-instead),"
    ".jp-OutputArea-child:has(> .jp-OutputArea-output.jupyter-widgets):has(+ .jp-OutputArea-child .ws-instead)"
    "{display:none}"
    "</style>"
)


class WidgetWithFallback:
    """A displayed widget with its fallback."""

    def __init__(self, widget: Any, html: str, text: str) -> None:
        from IPython.display import display

        view = "application/vnd.jupyter.widget-view+json"
        display({view: widget.get_view_spec(), "text/html": "", "text/plain": ""}, raw=True)
        self._handle = display(_bundle(html, text), raw=True, display_id=True)

    def update(self, html: str, text: str) -> None:
        """Replace the fallback."""
        self._handle.update(_bundle(html, text), raw=True)


def _bundle(html: str, text: str) -> dict[str, str]:
    return {"text/html": f'<div class="ws-instead">{html}</div>{STYLE}', "text/plain": text}
