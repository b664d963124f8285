"""The field in which a student types a prediction: a label, a text box, and a line that says what was saved.

Enter or leaving the box saves. An empty box means no prediction, which is why this isn't ipywidgets'
FloatText: that one can't be empty and would turn "no answer" into 0.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable

from worldsize import units
from worldsize.lab.fallback import WidgetWithFallback

LAYOUT = (
    "<style>"
    ".worldsize-field{flex-direction:column!important;height:auto!important;align-items:flex-start;max-width:44em}"
    ".worldsize-field .widget-label"
    "{width:100%!important;height:auto;white-space:normal;text-align:left;line-height:1.4}"
    ".worldsize-field input{width:12em!important;flex:none!important}"
    "</style>"
)


def parse_number(text: str, unit: str = "") -> float | None:
    """The number that a student typed into a prediction's field.

    The number in `text`, its unit allowed behind it; None for empty text; ValueError says what to type.
    """
    bare = text.strip()
    if unit and bare.endswith(unit):
        bare = bare.removesuffix(unit).strip()
    if not bare:
        return None

    try:
        value = float(bare)
    except ValueError:
        value = math.nan

    if not math.isfinite(value):
        raise ValueError(f"“{text.strip()}” is not a number: type one such as 0.25 and press Enter")
    return value


def show_field(question: str, unit: str, value: float | None, save: Callable[[float | None], None]) -> None:
    """Show the field in which a student predicts.

    Display the field, filled with `value`; `save` gets each new number, or None for an emptied box.
    """
    import ipywidgets

    box = ipywidgets.Text(
        value="" if value is None else f"{value:g}",
        description=f"{question} (in {unit})" if unit else question,
        placeholder="your prediction",
        continuous_update=False,
        style={"description_width": "initial"},
        layout={"width": "auto"},
    )
    box.add_class("worldsize-field")

    said = "no prediction yet" if value is None else _saved(value, unit)
    status = ipywidgets.HTML(_status(said))
    parts = ipywidgets.VBox([box, status, ipywidgets.HTML(LAYOUT, layout={"display": "none"})])
    shown = WidgetWithFallback(parts, *_lasting(box.description, value, unit))

    def on_change(change: dict) -> None:
        try:
            typed = parse_number(change["new"], unit)
            save(typed)
            status.value = _status("no prediction" if typed is None else _saved(typed, unit))
            shown.update(*_lasting(box.description, typed, unit))
        except (ValueError, OSError) as error:  # an exception in a callback is shown to nobody
            status.value = _status(f"not saved: {error}")

    box.observe(on_change, names="value")


def _lasting(question: str, value: float | None, unit: str) -> tuple[str, str]:
    """What is left of the field when its kernel is gone, as HTML and as text."""
    said = "no prediction; run this cell to type one" if value is None else _saved(value, unit)
    return f"{html.escape(question)} <em>{html.escape(said)}</em>", f"{question} {said}"


def _saved(value: float, unit: str) -> str:
    return f"saved: {units.number(value, unit)}"


def _status(text: str) -> str:
    return f'<span role="status" aria-live="polite">{html.escape(text)}</span>'
