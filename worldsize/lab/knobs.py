"""Knobs beside a picture: choose other values, and the picture is redrawn from a run with them.

The picture is a widget below the controls, because a reloaded page restores widgets from the living kernel but not outputs that a
kernel could replace. Once the kernel is gone, the page's last picture stays, with a line that gives its values. Left out:
sliders, which would begin a run at each value that they pass.
"""

import html
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

from worldsize.figures.base import notice
from worldsize.lab import knob_positions
from worldsize.launch.run import unobserved
from worldsize.pages.fallback import WidgetWithFallback

RERUN = "Run again"


def knobs(draw: Callable[..., Any], **choices: Sequence[Any]) -> None:
    """Show the picture `draw(**values)`, and in a live kernel a field for each name in `choices` to redraw it.

    `knobs(race, ranks=[2, 4, 8])` begins with the default that `draw` has for `ranks`, which must be one of the choices. A
    headless run shows the picture alone or, for the site, also those at other values (`beforehand`). Raises ValueError for a name
    that `draw` does not take, or without such a default.
    """
    parameters = inspect.signature(draw).parameters
    values = {}
    for name, offered in choices.items():
        if name not in parameters:
            raise ValueError(
                f"knobs: {draw.__name__} takes no {name!r}; expected some of {', '.join(parameters) or 'none'}."
            )

        values[name] = default = parameters[name].default
        if default not in list(offered):
            got = "no default" if default is inspect.Parameter.empty else f"the default {default!r}"
            raise ValueError(
                f"knobs: expected {draw.__name__} to have one of {list(offered)} as default for {name!r}, got {got}."
            )

    picture, how = knob_positions.drawn_first(draw, values)

    if os.environ.get("WORLDSIZE_HEADLESS") == "1":
        from IPython.display import display

        if how:
            display(knob_positions.bundle(picture, draw, choices, values, _said, how), raw=True)
        else:
            display(picture)
        return

    Panel(draw, choices, values).show(picture)


def _drawn(picture: Any) -> tuple[str, str]:
    """Return the knobs' picture as HTML and as text; drawing is slow, so draw once for both."""
    return picture._repr_html_(), getattr(picture, "alt", "")


class Panel:
    """The panel of knobs, the picture below them, and the redrawing."""

    def __init__(self, draw: Callable, choices: dict[str, Sequence[Any]], values: dict[str, Any]) -> None:
        import ipywidgets

        self._draw = draw
        self.fields = {}
        for name, offered in choices.items():
            self.fields[name] = ipywidgets.Dropdown(
                options=[(_said(value), value) for value in offered], value=values[name], description=_label(name),
                style={"description_width": "initial"}, layout={"width": "max-content"},
            )  # fmt: skip

        self.again = ipywidgets.Button(description=RERUN, tooltip="the same values, a new run")
        self.status = ipywidgets.HTML()
        self.picture = ipywidgets.HTML()
        row = ipywidgets.HBox([*self.fields.values(), self.again], layout={"flex_flow": "row wrap"})
        self._all = ipywidgets.VBox([row, self.status, self.picture])

    def show(self, picture: Any) -> None:
        drawn = _drawn(picture)
        self.picture.value = drawn[0]
        self._left = WidgetWithFallback(self._all, *self._lasting(drawn))
        self._say(f"drawn with {self._values()}")

        for field in self.fields.values():
            field.observe(lambda change: self.turn(), names="value")
        self.again.on_click(lambda button: self.turn())

    def turn(self) -> None:
        """Redraw from the knobs. Errors are shown beside the controls, because a callback's exception stays invisible."""
        self._say("running …")
        try:
            with unobserved():
                drawn = _drawn(self._draw(**{name: field.value for name, field in self.fields.items()}))
            status = f"drawn with {self._values()}"
        except KeyboardInterrupt:
            drawn, status = _drawn(notice("stopped: choose a value, or run again")), "stopped"
        except Exception as error:
            first_line, *_ = str(error).splitlines() or ["no words"]
            drawn = _drawn(notice(f"{type(error).__name__}: {first_line}"))
            status = f"failed: {first_line}"

        self.picture.value = drawn[0]
        self._left.update(*self._lasting(drawn))
        self._say(status)  # last: the picture that it describes is there by then

    def _say(self, text: str) -> None:
        self.status.value = f'<span role="status" aria-live="polite">{html.escape(text)}</span>'

    def _values(self) -> str:
        return ", ".join(f"{_label(name)} = {_said(field.value)}" for name, field in self.fields.items())

    def _lasting(self, drawn: tuple[str, str]) -> tuple[str, str]:
        """Return the knobs' remains after the kernel has gone, as HTML and as text: the picture and its values."""
        shown, alt = drawn
        words = f"with {self._values()}; run this cell for the controls"
        return f"{shown}<p><em>{html.escape(words)}</em></p>", f"{alt}\n{words}".lstrip()


def _label(name: str) -> str:
    return name.replace("_", " ")


def _said(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
